/* SPDX-License-Identifier: MIT
 * The watches of a session: of its mailbox, for as long as the connection is up; and of the ticket
 * before one of its own that has waited for a while, in case that its client has died. */
#include "session_parts.h"

#include <string.h>

#define LETTER_MS 300 /* a letter follows the end of a ticket so soon */

bool lk__etcd_watch_create(struct lk__etcd_session *session,
                           const struct lk__etcd_watch_create *create)
{
	char bytes[2 * LK__ETCD_KEY_MAX + 256];
	struct lk__pb_writer writer;

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_watch_create(&writer, create);
	return !writer.is_full && session->wire.watch(session->wire.arg, bytes, writer.len);
}

bool lk__etcd_watch_mailbox(struct lk__etcd_session *session)
{
	char key[LK__ETCD_OWN_MAX];
	size_t len = lk__etcd_mailbox_key(key, session->prefix, session->client);

	return lk__etcd_watch_create(session, &(struct lk__etcd_watch_create){
						      .key = {key, len},
						      .watch_id = LK__ETCD_MAILBOX_WATCH,
					      });
}

void lk__etcd_watch(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket,
                    const struct lk__etcd_ticket *before, int64_t revision)
{
	struct lk__etcd_watch_create create = {.start_revision = revision + 1, .no_put = true};
	char queue[LK__ETCD_KEY_MAX], other[LK__ETCD_KEY_MAX];
	size_t len = lk__etcd_queue_key(queue, session->prefix, ticket->kind, ticket->name,
	                                ticket->name_len);

	lk__etcd_unwatch(session, ticket);
	if (before->client[0]) {
		create.key.len = lk__etcd_ticket_key(other, queue, before->client, before->nonce);
		create.key.data = other;
	} else { /* any end in the queue */
		memcpy(other, queue, len + 1);
		lk__etcd_range_end(other, len);
		create.key = (struct lk__bytes){queue, len};
		create.range_end = (struct lk__bytes){other, len};
	}
	ticket->watch_id = ++session->last_watch;
	create.watch_id = ticket->watch_id;
	ticket->watches_all = !before->client[0];
	if (!lk__etcd_watch_create(session, &create))
		ticket->watch_id = 0; /* it asks again by itself, later */
}

void lk__etcd_watch_wanted(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket,
                           int64_t revision)
{
	struct lk__etcd_watch_create create = {.start_revision = revision + 1, .no_delete = true};
	char queue[LK__ETCD_KEY_MAX], end[LK__ETCD_KEY_MAX];

	if (ticket->wanted_id)
		return;
	create.key.len = lk__etcd_queue_key(queue, session->prefix, LK__ETCD_LOCK, ticket->name,
	                                    ticket->name_len);
	create.key.data = queue;
	memcpy(end, queue, create.key.len + 1);
	lk__etcd_range_end(end, create.key.len);
	create.range_end = (struct lk__bytes){end, create.key.len};
	ticket->wanted_id = ++session->last_watch;
	create.watch_id = ticket->wanted_id;
	if (!lk__etcd_watch_create(session, &create))
		ticket->wanted_id = 0; /* a renewal counts those that wait */
}

void lk__etcd_watch_cancel(struct lk__etcd_session *session, uint32_t *watch_id)
{
	char bytes[64];
	struct lk__pb_writer writer;

	if (!*watch_id)
		return;
	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_watch_cancel(&writer, *watch_id);
	session->wire.watch(session->wire.arg, bytes, writer.len);
	*watch_id = 0;
}

void lk__etcd_unwatch_wanted(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket)
{
	lk__etcd_watch_cancel(session, &ticket->wanted_id);
}

void lk__etcd_unwatch(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket)
{
	lk__etcd_watch_cancel(session, &ticket->watch_id);
}

/* ---- Events --------------------------------------------------------------------------------- */

static void grant(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket,
                  const struct lk__etcd_letter *letter)
{
	struct lk__message message = {
		.kind = LK__GRANT,
		.lease_ms = ticket->lease_ms,
		.fixed = ticket->fixed,
		.permits = ticket->permits,
		.fence = (uint64_t)letter->created * LK__ETCD_FENCES,
		.life_ms = ticket->lease_ms,
		.waiting = letter->count,
		.since_ns = ticket->lease ? ticket->lease->machine.since_ns : 0,
		.store_us = LK__ETCD_LATE_US,
	};

	if (ticket->created && ticket->created != letter->created)
		return;                    /* of a former ticket with that nonce */
	ticket->granted = letter->created; /* perhaps the answer to its ask comes later */
	ticket->count = letter->count;
	memcpy(ticket->next, letter->next, sizeof(ticket->next));
	if (!message.since_ns || ticket->created != letter->created || ticket->is_under_another)
		return;
	ticket->is_waiting = false;
	lk__etcd_unwatch(session, ticket);
	memcpy(message.nonce, ticket->nonce, sizeof(message.nonce));
	lk__etcd_hear(session, &message);
}

void lk__etcd_notify(struct lk__etcd_session *session, char what, const char *nonce,
                     int64_t created, int64_t revision)
{
	static const struct lk__etcd_ticket any;
	const struct lk__etcd_letter letter = {.created = created};
	struct lk__etcd_own_ticket *ticket = lk__etcd_find(session, nonce);

	if (!ticket || ticket->kind != LK__ETCD_SEMAPHORE || ticket->is_leaving)
		return;
	if (what == LK__NEWS_GRANT)
		grant(session, ticket, &letter);
	else if (!ticket->is_waiting || ticket->created != created)
		return;
	else if (what == LK__NEWS_AGAIN)
		lk__etcd_reask(session, ticket, 0);
	else if (what == LK__NEWS_FIRST && ticket->watch_id && !ticket->watches_all)
		lk__etcd_watch(session, ticket, &any, revision);
}

static void read_letter(struct lk__etcd_session *session, struct lk__bytes text, int64_t revision)
{
	struct lk__etcd_letter letter;
	struct lk__etcd_own_ticket *ticket;

	if (!lk__etcd_letter_read(&letter, text) || letter.kind == LK__LETTER_NONE)
		return;
	for (unsigned i = 0; letter.kind == LK__LETTER_PERMITS && i < letter.count; i++)
		lk__etcd_notify(session, letter.what[i], letter.next[i].nonce,
		                letter.next[i].created, revision);
	ticket = lk__etcd_find(session, letter.nonce);
	if (ticket && letter.kind == LK__LETTER_GRANT) {
		grant(session, ticket, &letter);
	} else if (ticket && ticket->created == letter.created) {
		lk__etcd_hear_of(session, ticket, LK__BROKEN);
	} else if (ticket && !ticket->created) {
		ticket->broken = letter.created; /* perhaps the answer to its ask comes later */
	}
}

/* The ticket that has the watch, of either kind. */
static struct lk__etcd_own_ticket *watcher(const struct lk__etcd_session *session,
                                           uint32_t watch_id)
{
	struct lk__etcd_own_ticket *ticket = NULL;

	while ((ticket = lk__etcd_each(session, ticket)))
		if (ticket->watch_id == watch_id || ticket->wanted_id == watch_id)
			break;
	return ticket;
}

static void before_is_gone(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket)
{
	bool may_get_letter = ticket->kind == LK__ETCD_SEMAPHORE;

	lk__etcd_unwatch(session, ticket);
	lk__etcd_reask(session, ticket, may_get_letter ? LETTER_MS : 0);
}

/* One is enough: the next renewal counts those that wait. */
static void wanted(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket)
{
	lk__etcd_unwatch_wanted(session, ticket);
	lk__etcd_hear_of(session, ticket, LK__WANTED);
}

/* Its own ticket may be put again, under another lease. */
static bool is_own_key(const struct lk__etcd_session *session,
                       const struct lk__etcd_own_ticket *ticket, struct lk__bytes key)
{
	char queue[LK__ETCD_KEY_MAX], own[LK__ETCD_KEY_MAX];

	lk__etcd_queue_key(queue, session->prefix, ticket->kind, ticket->name, ticket->name_len);
	lk__etcd_ticket_key(own, queue, session->client, ticket->nonce);
	return lk__bytes_equal(key, lk__bytes_of(own));
}

static void happened(struct lk__etcd_session *session, uint32_t watch_id,
                     const struct lk__etcd_event *event)
{
	struct lk__etcd_own_ticket *ticket = watcher(session, watch_id);

	if (!ticket)
		return;
	if (ticket->watch_id == watch_id && event->type == LK__ETCD_EVENT_DELETE)
		before_is_gone(session, ticket);
	else if (ticket->wanted_id == watch_id && event->type == LK__ETCD_EVENT_PUT &&
	         !is_own_key(session, ticket, event->kv.key))
		wanted(session, ticket);
}

/* Without a mailbox each grant would be late. */
static void mailbox_is_gone(struct lk__etcd_session *session, int64_t now_ns)
{
	if (session->state == LK__ETCD_READY)
		lk__etcd_set_up_again(session);
	lk__etcd_run(session, now_ns);
}

/* Events may be missing. */
static void ended(struct lk__etcd_session *session, uint32_t watch_id)
{
	struct lk__etcd_own_ticket *ticket = watcher(session, watch_id);

	if (ticket && ticket->watch_id == watch_id)
		before_is_gone(session, ticket);
	else if (ticket)
		wanted(session, ticket);
	if (watch_id != LK__ETCD_MAILBOX_WATCH)
		return;
	session->is_watching = lk__etcd_watch_mailbox(session);
	lk__etcd_reask_all(session);
}

/* The mailbox cannot be watched: what waits for the set-up is refused with the server's text. */
static void refused(struct lk__etcd_session *session, int64_t now_ns, struct lk__bytes reason)
{
	char text[200];
	const struct lk__etcd_outcome outcome = {.err = LK_EAUTH, .text = text};

	lk__escape(text, sizeof(text), reason.data, reason.len);
	session->is_watching = false;
	session->state = LK__ETCD_IDLE;
	session->retry_ns = now_ns + LK__ETCD_CHORE_NS;
	lk__etcd_refuse_all(session, &outcome);
}

static void canceled(struct lk__etcd_session *session, int64_t now_ns,
                     const struct lk__etcd_watch_answer *answer)
{
	uint32_t watch_id = (uint32_t)answer->watch_id;

	if (answer->created && session->state == LK__ETCD_OPENING && !watcher(session, watch_id))
		refused(session, now_ns, answer->cancel_reason);
	else if (!lk__etcd_topic_ended(session, watch_id, answer->created, answer->cancel_reason))
		ended(session, watch_id);
}

static void created(struct lk__etcd_session *session, int64_t now_ns, uint32_t watch_id)
{
	if (lk__etcd_topic_created(session, watch_id))
		return; /* of a latch */
	if (watch_id != LK__ETCD_MAILBOX_WATCH || session->state != LK__ETCD_OPENING)
		return;
	session->state = LK__ETCD_READY;
	lk__etcd_add_chores(session);
	lk__etcd_run(session, now_ns);
}

bool lk__etcd_session_watched(struct lk__etcd_session *session, int64_t now_ns, const void *message,
                              size_t len)
{
	struct lk__etcd_watch_answer answer;
	struct lk__etcd_event event;
	uint32_t watch_id;

	if (!lk__pb_read(&lk__etcd_watch_shape, message, len, &answer))
		return false;
	watch_id = (uint32_t)answer.watch_id;
	if (answer.canceled)
		canceled(session, now_ns, &answer);
	else if (answer.created)
		created(session, now_ns, watch_id);
	while (lk__pb_next(&answer.events, &event)) {
		if (watch_id == LK__ETCD_MAILBOX_WATCH && event.type == LK__ETCD_EVENT_PUT)
			read_letter(session, event.kv.value, event.kv.mod_revision);
		else if (watch_id == LK__ETCD_MAILBOX_WATCH)
			mailbox_is_gone(session, now_ns);
		else if (!lk__etcd_topic_happened(session, watch_id, &event))
			happened(session, watch_id, &event);
	}
	return true;
}
