/* SPDX-License-Identifier: MIT
 * The semaphores that a session uses.  It remembers each, so that an ask can compare that it is
 * still the same: then its capacity is known before a ticket is put.
 *
 * A semaphore lives under a lease of its own, which all that use it keep alive; what is granted
 * does not depend on it. */
#include "session_parts.h"

#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define KNOWN_MAX 64                /* that no ticket uses */
#define UNKNOWN_USE (INT64_MAX / 4) /* more permits than there are */

/* ---- What is known -------------------------------------------------------------------------- */

static bool is_of(const struct lk__etcd_known *known, const char *name, size_t len)
{
	return known->name_len == len && memcmp(known->name, name, len) == 0;
}

/* Forget one of many that are not in use. */
static void make_room(struct lk__etcd_session *session)
{
	struct lk__etcd_known **at = &session->known, **last = NULL;
	unsigned count = 0;

	for (; *at; at = &(*at)->next) {
		if ((*at)->users || (*at)->lease)
			continue;
		last = at;
		count++;
	}
	if (count > KNOWN_MAX) {
		struct lk__etcd_known *oldest = *last;
		*last = oldest->next;
		free(oldest);
	}
}

struct lk__etcd_known *lk__etcd_know(struct lk__etcd_session *session, const char *name, size_t len)
{
	struct lk__etcd_known *known = session->known;

	while (known && !is_of(known, name, len))
		known = known->next;
	if (known)
		return known;
	make_room(session);
	known = calloc(1, sizeof(*known) + len);
	if (!known)
		return NULL;
	known->name_len = len;
	memcpy(known->name, name, len);
	known->next = session->known;
	session->known = known;
	return known;
}

void lk__etcd_uses_known(struct lk__etcd_session *session, const struct lk__etcd_own_ticket *ticket,
                         int change)
{
	struct lk__etcd_known *known = session->known;

	if (ticket->kind != LK__ETCD_SEMAPHORE)
		return;
	while (known && !is_of(known, ticket->name, ticket->name_len))
		known = known->next;
	if (known)
		known->users += (unsigned)change;
}

void lk__etcd_forget_known(struct lk__etcd_session *session)
{
	while (session->known) {
		struct lk__etcd_known *known = session->known;
		session->known = known->next;
		free(known);
	}
}

void lk__etcd_known_down(struct lk__etcd_session *session)
{
	for (struct lk__etcd_known *known = session->known; known; known = known->next) {
		known->kept_ns = 0;
		known->was_read = false; /* the next member may have an earlier store */
		known->revision = 0;
	}
}

void lk__etcd_learn(struct lk__etcd_known *known, const struct lk__etcd_seen *seen, bool has_noun)
{
	if (has_noun && seen->noun.mod) {
		if (known->noun.lease != seen->noun.lease)
			known->kept_ns = 0;
		known->noun = seen->noun;
	} else if (has_noun) {
		known->noun.mod = 0;
	}
	known->was_read = known->was_read || has_noun;
	if (seen->revision < known->revision)
		return;
	known->revision = seen->revision;
	known->used = seen->is_short ? UNKNOWN_USE : seen->used;
}

/* ---- The lease of a semaphore --------------------------------------------------------------- */

int64_t lk__etcd_known_ttl_s(int64_t ttl_ms)
{
	return lk__etcd_ttl_s(ttl_ms / 4 * 5);
}

static int64_t keep_ns(const struct lk__etcd_known *known)
{
	return known->noun.ttl_ms / 5 * MS;
}

void lk__etcd_keep_known(struct lk__etcd_session *session, int64_t now_ns,
                         struct lk__etcd_known *known)
{
	if (!known->noun.mod || !known->noun.lease || session->state == LK__ETCD_DOWN ||
	    (known->kept_ns && now_ns - known->kept_ns < keep_ns(known)))
		return;
	lk__etcd_call_keep_alive(session, LK__ETCD_FOR_NOTHING, known->noun.lease);
	known->kept_ns = now_ns; /* without memory: the next time */
}

void lk__etcd_known_tick(struct lk__etcd_session *session, int64_t now_ns)
{
	for (struct lk__etcd_known *known = session->known; known; known = known->next)
		if (known->users && known->kept_ns)
			lk__etcd_keep_known(session, now_ns, known);
}

int64_t lk__etcd_known_due_ns(const struct lk__etcd_session *session)
{
	int64_t due_ns = LK__ETCD_NEVER;

	for (const struct lk__etcd_known *known = session->known; known; known = known->next)
		if (known->users && known->kept_ns && known->noun.mod && known->noun.lease &&
		    session->state != LK__ETCD_DOWN && known->kept_ns + keep_ns(known) < due_ns)
			due_ns = known->kept_ns + keep_ns(known);
	return due_ns;
}

void lk__etcd_grant_known(struct lk__etcd_session *session, int64_t now_ns,
                          struct lk__etcd_job *job, struct lk__etcd_known *known, int64_t ttl_s)
{
	int64_t id;
	struct lk__etcd_call *call =
		lk__etcd_call_grant(session, LK__ETCD_FOR_SEMAPHORE, ttl_s, &id);

	if (!call) {
		lk__etcd_refuse(job, &lk__etcd_no_memory);
		return;
	}
	call->job = job;
	call->noun = (struct lk__etcd_noun){.lease = id, .ttl_ms = ttl_s};
	job->is_calling = true;
	known->lease_sent_ns = now_ns;
}

void lk__etcd_known_outcome(struct lk__etcd_session *session, struct lk__etcd_call *call,
                            const struct lk__etcd_outcome *outcome)
{
	struct lk__etcd_job *job = call->job;
	struct lk__etcd_known *known = lk__etcd_know(session, job->name, job->name_len);
	struct lk__etcd_own_ticket *ticket = lk__etcd_find(session, job->nonce);

	job->is_calling = false;
	if (!outcome->err && known) {
		known->lease = call->noun.lease;
		known->lease_ttl_s = call->noun.ttl_ms;
		return;
	}
	lk__etcd_refuse(job, known ? outcome : &lk__etcd_no_memory);
	if (ticket && job->kind == LK__ASK && !ticket->created)
		lk__etcd_remove(session, ticket);
}

void lk__etcd_semaphore_lease_over(struct lk__etcd_session *session, const struct lk__etcd_job *job)
{
	struct lk__etcd_known *known = lk__etcd_know(session, job->name, job->name_len);

	if (known)
		known->lease = 0; /* another one is granted */
}
