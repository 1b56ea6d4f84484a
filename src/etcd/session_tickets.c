/* SPDX-License-Identifier: MIT
 * The tickets of a session, and messages to the core. */
#include "session_parts.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash(const char *nonce)
{
	return lk__hash(nonce, strlen(nonce), 0);
}

struct lk__etcd_own_ticket *lk__etcd_find(const struct lk__etcd_session *session, const char *nonce)
{
	struct lk__node *node = lk__table_first(&session->tickets, hash(nonce));

	for (; node; node = lk__table_next(node)) {
		struct lk__etcd_own_ticket *ticket = (struct lk__etcd_own_ticket *)node;

		if (strcmp(ticket->nonce, nonce) == 0)
			return ticket;
	}
	return NULL;
}

struct lk__etcd_own_ticket *lk__etcd_add(struct lk__etcd_session *session,
                                         const struct lk__etcd_job *job)
{
	struct lk__etcd_own_ticket *ticket = calloc(1, sizeof(*ticket) + job->name_len);

	if (!ticket)
		return NULL;
	memcpy(ticket->nonce, job->nonce, sizeof(ticket->nonce));
	ticket->lease_ms = job->lease_ms;
	ticket->fixed = job->fixed;
	ticket->kind = job->letter;
	ticket->permits = ticket->stored = job->permits;
	ticket->name_len = job->name_len;
	memcpy(ticket->name, job->name, job->name_len);
	lk__table_add(&session->tickets, &ticket->node, hash(ticket->nonce));
	lk__etcd_uses_known(session, ticket, 1);
	return ticket;
}

struct lk__etcd_own_ticket *lk__etcd_each(const struct lk__etcd_session *session,
                                          const struct lk__etcd_own_ticket *ticket)
{
	return (struct lk__etcd_own_ticket *)lk__table_each(&session->tickets,
	                                                    ticket ? &ticket->node : NULL);
}

void lk__etcd_remove(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket)
{
	lk__table_remove(&session->tickets, &ticket->node);
	lk__etcd_uses_known(session, ticket, -1);
	lk__etcd_unwatch(session, ticket);
	if (ticket->longer)
		lk__etcd_lease_end(session, ticket->longer);
	lk__etcd_unwatch_wanted(session, ticket);
	if (ticket->lease) {
		ticket->lease->tickets--;
		if (ticket->lease->is_own)
			lk__etcd_lease_end(session, ticket->lease);
	}
	free(ticket);
}

void lk__etcd_remove_unknown(struct lk__etcd_session *session)
{
	struct lk__etcd_own_ticket *ticket, *next;

	for (ticket = lk__etcd_each(session, NULL); ticket; ticket = next) {
		next = lk__etcd_each(session, ticket);
		if (!ticket->created && !ticket->is_leaving)
			lk__etcd_remove(session, ticket);
	}
}

static bool has_job(const struct lk__etcd_session *session, const char *nonce)
{
	for (const struct lk__etcd_job *job = session->jobs; job; job = job->next)
		if (!job->is_done && strcmp(job->nonce, nonce) == 0)
			return true;
	return false;
}

void lk__etcd_add_chore(struct lk__etcd_session *session, const struct lk__etcd_own_ticket *ticket,
                        int64_t not_before_ns)
{
	struct lk__etcd_job *chore = session->chores;

	while (chore && strcmp(chore->nonce, ticket->nonce) != 0)
		chore = chore->next;
	if (chore)
		return;
	chore = calloc(1, sizeof(*chore) + ticket->name_len);
	if (!chore)
		return; /* over the next connection */
	chore->kind = LK__LEAVE;
	chore->is_chore = true;
	chore->letter = ticket->kind;
	chore->retry_ns = not_before_ns;
	memcpy(chore->nonce, ticket->nonce, sizeof(chore->nonce));
	chore->name_len = ticket->name_len;
	memcpy(chore->name, ticket->name, ticket->name_len);
	chore->next = session->chores;
	session->chores = chore;
}

void lk__etcd_leave_later(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket)
{
	ticket->is_leaving = true;
	lk__etcd_add_chore(session, ticket, 0);
}

void lk__etcd_add_chores(struct lk__etcd_session *session)
{
	const struct lk__etcd_own_ticket *ticket = NULL;

	while ((ticket = lk__etcd_each(session, ticket)))
		if (ticket->is_leaving && !ticket->busy && !has_job(session, ticket->nonce))
			lk__etcd_add_chore(session, ticket, 0);
}

void lk__etcd_hear(struct lk__etcd_session *session, const struct lk__message *message)
{
	struct lk__etcd_heard *heard = malloc(sizeof(*heard));

	if (!heard)
		return; /* a hint: the ticket asks again by itself */
	*heard = (struct lk__etcd_heard){.message = *message};
	*session->heard_end = heard;
	session->heard_end = &heard->next;
}

void lk__etcd_hear_of(struct lk__etcd_session *session, const struct lk__etcd_own_ticket *ticket,
                      enum lk__message_kind kind)
{
	struct lk__message message = {.kind = kind};

	memcpy(message.nonce, ticket->nonce, sizeof(message.nonce));
	lk__etcd_hear(session, &message);
}

void lk__etcd_reask(struct lk__etcd_session *session, const struct lk__etcd_own_ticket *ticket,
                    int64_t in_ms)
{
	struct lk__message message = {.kind = LK__REASK, .in_ms = in_ms};

	memcpy(message.nonce, ticket->nonce, sizeof(message.nonce));
	lk__etcd_hear(session, &message);
}

void lk__etcd_reask_all(struct lk__etcd_session *session)
{
	const struct lk__etcd_own_ticket *ticket = NULL;

	while ((ticket = lk__etcd_each(session, ticket)))
		if (ticket->is_waiting)
			lk__etcd_reask(session, ticket, 0);
}
