/* SPDX-License-Identifier: MIT
 * Tickets that have ended, but not for the server.  A replica that is promoted may lack the newest
 * changes: its queue still has tickets that the old master had served.  Their clients know nothing
 * of them any more, and without an answer each would keep the lock for its claim time, one after
 * the other.  So a client remembers the last waits that it has ended; when the server grants to one
 * of them, or asks its client to ask, the ticket comes back in order to leave. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

void lk__ghost_note(struct lk__core *core, const struct lk__ticket *ticket)
{
	struct lk__ghosts *ghosts = &core->ghosts;
	struct lk__ghost *ghost = &ghosts->ring[ghosts->next];

	/* It was never in the queue; or its grant is final, and no leave ends it. */
	if (!ticket->arrival || ticket->queue->final || ticket->legs)
		return;
	ghosts->next = (ghosts->next + 1) % LK__GHOSTS_MAX;
	ghost->name = ticket->queue->name;
	memcpy(ghost->nonce, ticket->nonce, sizeof(ghost->nonce));
}

void lk__ghosts_forget(struct lk__core *core, const struct lk__name *name)
{
	for (int i = 0; i < LK__GHOSTS_MAX; i++)
		if (core->ghosts.ring[i].name == name)
			core->ghosts.ring[i].name = NULL;
}

static const struct lk__ghost *find(const struct lk__core *core, const char *nonce)
{
	for (int i = 0; i < LK__GHOSTS_MAX; i++) {
		const struct lk__ghost *ghost = &core->ghosts.ring[i];
		if (ghost->name && !memcmp(ghost->nonce, nonce, sizeof(ghost->nonce)))
			return ghost;
	}
	return NULL;
}

void lk__ghost_message(struct lk__core *core, int64_t now_ns, const struct lk__message *message)
{
	const struct lk__ghost *ghost = find(core, message->nonce);
	struct lk__wait_queue *queue;
	struct lk__ticket *ticket;

	if (!ghost || (message->kind != LK__GRANT && message->kind != LK__REASK) ||
	    message->final ||
	    (message->from && message->from != ghost->name->session && !core->quorum))
		return;
	queue = lk__wait_queue_new(message->lease_ms, message->fixed);
	ticket = calloc(1, sizeof(*ticket));
	if (!queue || !ticket) {
		free(queue);
		free(ticket);
		return; /* the server ends it */
	}
	queue->permits = message->permits;
	if (core->quorum) {
		ticket->session = core->links[message->from ? message->from->index : 0];
		ticket->is_leg = true;
		ticket->arrival = message->priority;
		ticket->epoch = message->epoch;
	}
	lk__ticket_raise(core, now_ns, ghost->name, queue, ticket, message->nonce);
}
