/* SPDX-License-Identifier: MIT
 * What a session knows of latches, and their watches, which are the subscriptions of their topics.
 *
 * etcd keeps history.  So a watch begins after the first read that the core has had, also if it is
 * made later, or anew over another connection: whatever has happened since then comes as an event.
 * Only if that has been compacted, the watch begins at the present. */
#include "session_parts.h"

#include "../store.h"

#include <stdlib.h>
#include <string.h>

#define KNOWN_MAX 1024                /* latches that are not watched */
#define SINCE_NS INT64_C(20000000000) /* a subscription follows a read sooner */

struct lk__etcd_notice {
	struct lk__etcd_notice *next;
	struct lk__event event;
	char topic[];
};

/* ---- Events to the core --------------------------------------------------------------------- */

/* NULL when out of memory: then the core asks again by itself. */
static struct lk__event *notify(struct lk__etcd_session *session,
                                const struct lk__etcd_latch *latch, enum lk__event_kind kind)
{
	size_t len = strlen(latch->key);
	struct lk__etcd_notice *notice = calloc(1, sizeof(*notice) + len + 1);

	if (!notice)
		return NULL;
	memcpy(notice->topic, latch->key, len + 1);
	notice->event = (struct lk__event){.kind = kind, .topic = notice->topic, .topic_len = len};
	*session->notices_end = notice;
	session->notices_end = &notice->next;
	return &notice->event;
}

static void notify_message(struct lk__etcd_session *session, const struct lk__etcd_latch *latch,
                           enum lk__message_kind kind, uint64_t generation)
{
	struct lk__event *event = notify(session, latch, LK__EVENT_PUBLISHED);

	if (event)
		event->message = (struct lk__message){.kind = kind, .fence = generation};
}

static void notify_state(struct lk__etcd_session *session, const struct lk__etcd_latch *latch,
                         bool subscribed)
{
	struct lk__event *event = notify(session, latch, LK__EVENT_CONFIRMED);

	if (event)
		event->subscribed = subscribed;
}

static void drop_first(struct lk__etcd_session *session)
{
	struct lk__etcd_notice *notice = session->notices;

	session->notices = notice->next;
	if (!session->notices)
		session->notices_end = &session->notices;
	free(notice);
}

bool lk__etcd_session_event(struct lk__etcd_session *session, struct lk__event *event)
{
	if (session->notices && session->notices->event.kind == LK__EVENT_NONE)
		drop_first(session); /* it was taken */
	if (!session->notices)
		return false;
	*event = session->notices->event;
	session->notices->event.kind = LK__EVENT_NONE;
	return true;
}

/* ---- What is known -------------------------------------------------------------------------- */

static void drop_excess(struct lk__etcd_session *session)
{
	unsigned count = 0;

	for (struct lk__etcd_latch **at = &session->latches, *latch; (latch = *at);) {
		if (latch->watch_id || ++count < KNOWN_MAX) {
			at = &latch->next;
		} else {
			*at = latch->next;
			free(latch);
		}
	}
}

struct lk__etcd_latch *lk__etcd_latch_of(struct lk__etcd_session *session, const char *key)
{
	struct lk__etcd_latch **at = &session->latches, *latch;

	while (*at && strcmp((*at)->key, key) != 0)
		at = &(*at)->next;
	latch = *at;
	if (latch) {
		*at = latch->next;
	} else {
		drop_excess(session);
		latch = calloc(1, sizeof(*latch) + strlen(key) + 1);
		if (!latch)
			return NULL;
		memcpy(latch->key, key, strlen(key) + 1);
	}
	latch->next = session->latches;
	session->latches = latch;
	return latch;
}

/* It is subscribed to no longer, in the view of the core, too. */
static void lose(struct lk__etcd_session *session, struct lk__etcd_latch *latch)
{
	lk__etcd_watch_cancel(session, &latch->watch_id);
	latch->is_on = latch->is_wanted = false;
	notify_state(session, latch, false);
}

void lk__etcd_latch_was_read(struct lk__etcd_session *session, int64_t now_ns,
                             struct lk__etcd_latch *latch, const struct lk__etcd_latch_seen *seen)
{
	bool is_past = seen->revision < latch->since; /* a backup was restored */

	latch->generation = seen->is_there ? seen->value.generation : 0;
	latch->mod = seen->mod;
	latch->lease = seen->lease;
	latch->own = seen->own;
	if (seen->value.opened > latch->opened)
		latch->opened = seen->value.opened;
	if (is_past || !latch->since ||
	    (!latch->is_wanted && now_ns - latch->since_ns > SINCE_NS)) {
		latch->since = seen->revision;
		latch->since_ns = now_ns;
	}
	if (is_past && latch->watch_id)
		lose(session, latch); /* it waits for a revision that is far away */
}

/* ---- Subscriptions -------------------------------------------------------------------------- */

bool lk__etcd_session_subscribe(struct lk__etcd_session *session, const char *topic, bool on)
{
	struct lk__etcd_latch *latch = lk__etcd_latch_of(session, topic);
	struct lk__etcd_watch_create create = {0};

	if (!latch)
		return false;
	if (!on) {
		lose(session, latch);
		return true;
	}
	latch->is_wanted = true;
	latch->is_on = false;
	latch->watch_id = ++session->last_watch;
	create.key = lk__bytes_of(latch->key);
	create.watch_id = latch->watch_id;
	create.start_revision = latch->since ? latch->since + 1 : 0;
	if (lk__etcd_watch_create(session, &create))
		return true;
	latch->watch_id = 0;
	return false;
}

static struct lk__etcd_latch *watched_by(const struct lk__etcd_session *session, uint32_t watch_id)
{
	struct lk__etcd_latch *latch = session->latches;

	while (latch && latch->watch_id != watch_id)
		latch = latch->next;
	return watch_id ? latch : NULL;
}

/* Of those that were not created yet, the one that was asked for first. */
static struct lk__etcd_latch *first_asked(const struct lk__etcd_session *session)
{
	struct lk__etcd_latch *first = NULL;

	for (struct lk__etcd_latch *latch = session->latches; latch; latch = latch->next)
		if (latch->watch_id && !latch->is_on &&
		    (!first || latch->watch_id < first->watch_id))
			first = latch;
	return first;
}

bool lk__etcd_topic_created(struct lk__etcd_session *session, uint32_t watch_id)
{
	struct lk__etcd_latch *latch = watched_by(session, watch_id);

	if (!latch)
		return false;
	latch->is_on = true;
	notify_state(session, latch, true);
	return true;
}

static void refuse(struct lk__etcd_session *session, struct lk__etcd_latch *latch,
                   struct lk__bytes reason)
{
	struct lk__event *event = notify(session, latch, LK__EVENT_REFUSED);
	char text[200];

	latch->watch_id = 0;
	latch->is_wanted = false;
	lk__escape(text, sizeof(text), reason.data, reason.len);
	if (event)
		lk__why_set(&event->why, LK_EAUTH, "%s", text);
}

/* A refusal does not name its watch. */
bool lk__etcd_topic_ended(struct lk__etcd_session *session, uint32_t watch_id, bool is_new,
                          struct lk__bytes reason)
{
	struct lk__etcd_latch *latch = watched_by(session, watch_id);

	if (!latch && is_new)
		latch = first_asked(session);
	if (!latch)
		return false;
	if (is_new) {
		refuse(session, latch, reason);
		return true;
	}
	latch->watch_id = 0; /* what has happened since was compacted */
	latch->since = 0;
	lose(session, latch);
	return true;
}

static void was_put(struct lk__etcd_session *session, struct lk__etcd_latch *latch,
                    const struct lk__etcd_kv *kv)
{
	struct lk__etcd_latch_value value;
	bool is_news;

	if (!lk__etcd_latch_value_read(&value, kv->value, kv->mod_revision))
		return;
	if (kv->mod_revision > latch->mod) {
		latch->mod = kv->mod_revision;
		latch->lease = kv->lease;
		if (latch->generation != value.generation)
			latch->own = (struct lk__etcd_own_steps){0};
		latch->generation = value.generation;
	}
	is_news = value.is_open || value.opened > latch->opened;
	if (value.opened > latch->opened)
		latch->opened = value.opened;
	if (is_news)
		notify_message(session, latch, LK__OPENED, value.opened);
}

/* Its generation was smaller than the revision that has deleted it, and that of the next one is
 * greater: so that stands for it. */
static void was_deleted(struct lk__etcd_session *session, struct lk__etcd_latch *latch,
                        const struct lk__etcd_kv *kv)
{
	if (kv->mod_revision > latch->mod) {
		latch->generation = 0;
		latch->mod = latch->lease = 0;
	}
	latch->removed = (uint64_t)kv->mod_revision;
	notify_message(session, latch, LK__REMOVED, latch->removed);
}

bool lk__etcd_topic_happened(struct lk__etcd_session *session, uint32_t watch_id,
                             const struct lk__etcd_event *event)
{
	struct lk__etcd_latch *latch = watched_by(session, watch_id);

	if (!latch)
		return false;
	latch->since = event->kv.mod_revision;
	if (event->type == LK__ETCD_EVENT_PUT)
		was_put(session, latch, &event->kv);
	else if (event->type == LK__ETCD_EVENT_DELETE)
		was_deleted(session, latch, &event->kv);
	return true;
}

/* ---- The connection ------------------------------------------------------------------------- */

void lk__etcd_topics_down(struct lk__etcd_session *session)
{
	for (struct lk__etcd_latch *latch = session->latches; latch; latch = latch->next) {
		latch->watch_id = 0;
		latch->is_on = false;
	}
	while (session->notices)
		drop_first(session);
}

void lk__etcd_topics_fini(struct lk__etcd_session *session)
{
	while (session->latches) {
		struct lk__etcd_latch *latch = session->latches;
		session->latches = latch->next;
		free(latch);
	}
	while (session->notices)
		drop_first(session);
}
