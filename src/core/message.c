/* SPDX-License-Identifier: MIT
 * How each message changes a ticket.  Messages are hints: the store keeps their content, and a
 * ticket asks again by itself. */
#include "core.h"
#include "quorum.h"

#define MS INT64_C(1000000)
#define WAITED_MAX_US INT64_C(86400000000) /* a day: more makes no difference */

/* Use a final grant, however late its message is: it counts from the moment when the store made it.
 * The first ask ran at the arrival, so that moment is at least "grant - arrival" after the first
 * ask was sent, and the store keeps the grant for a lease from then on. */
static void granted_for_good(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                             const struct lk__message *message)
{
	int64_t waited_us = ticket->arrival ? message->store_us - (int64_t)ticket->arrival : 0;

	if (waited_us > 0)
		ticket->valid_until_ns +=
			(waited_us < WAITED_MAX_US ? waited_us : WAITED_MAX_US) * 1000;
	lk__ticket_take(core, now_ns, ticket, message->fence, message->store_us, message->waiting);
}

static void grant(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                  const struct lk__message *message)
{
	int64_t life_ns = message->life_ms * MS;

	if (ticket->state != LK__ASKING && ticket->state != LK__WAITING)
		return;
	if (!ticket->first_sent_ns || message->lease_ms != ticket->queue->lease_ms ||
	    message->fixed != ticket->queue->fixed || message->final != ticket->queue->final ||
	    message->permits != ticket->queue->permits)
		return; /* malformed or forged; ignore it */
	ticket->head_unserved = false;
	ticket->valid_until_ns = (message->since_ns ? message->since_ns : ticket->first_sent_ns) +
	                         life_ns - lk__margin_ns(message->life_ms);
	ticket->granted_by_message = true;
	ticket->is_shared = false;
	if (ticket->queue->final && !message->claim) {
		granted_for_good(core, now_ns, ticket, message);
		return;
	}
	/* A grant that replicas must confirm was not written by our connection: the claim is.  In a
	 * Cluster the grant does not compare the memory: its client may have been mistaken.  After
	 * a pause the claim's answer is kept. */
	if (message->claim || ticket->queue->fixed || ticket->session->replicas ||
	    ticket->session->vouch.is_doubted || lk__memory_is_old(core, ticket->session, now_ns) ||
	    (core->route && lk__grace_left_ms(&ticket->session->epoch, message->store_us,
	                                      ticket->session->grace_ms)) ||
	    ticket->valid_until_ns - now_ns < ticket->queue->lease_ms * MS / 3) {
		ticket->state = LK__CLAIMING;
		ticket->next_ns = now_ns;
		lk__ticket_pursue(core, now_ns, ticket);
	} else {
		/* Sent before the server lost its memory, and read after the new marker. */
		ticket->is_forgotten = message->store_us <= ticket->session->epoch.since_us;
		lk__ticket_take(core, now_ns, ticket, message->fence, message->store_us,
		                message->waiting);
	}
}

static void broken(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	if (ticket->is_leg) {
		if (!lk__ticket_is_leaving(ticket))
			lk__leg_broken(core, now_ns, ticket);
	} else if (ticket->state == LK__HOLDING) {
		lk__ticket_lose(core, now_ns, ticket, LK_LOST_BROKEN);
	} else if (!lk__ticket_is_leaving(ticket)) {
		ticket->state = LK__ASKING;
		ticket->next_ns = now_ns;
		lk__ticket_pursue(core, now_ns, ticket);
	}
}

/* May arrive before the answer to its ask. */
static void reask(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                  const struct lk__message *message)
{
	int64_t in_ms = message->in_ms < LK__REASK_MAX_MS ? message->in_ms : LK__REASK_MAX_MS;
	int64_t when_ns = now_ns + (in_ms + (ticket->queue->permits > 0)) * MS;

	if (ticket->state != LK__WAITING && ticket->state != LK__ASKING)
		return;
	/* The store sends a waiter the time when permits expire: asking earlier is useless.  But
	 * the waiter still asks as often as others: its asks show that it is alive. */
	if (ticket->main.sent_ns && when_ns > ticket->main.sent_ns + LK__REASK_MAX_MS * MS)
		when_ns = ticket->main.sent_ns + LK__REASK_MAX_MS * MS;
	if (when_ns < ticket->next_ns || (ticket->queue->permits && !ticket->head_unserved)) {
		ticket->next_ns = when_ns;
		lk__ticket_pursue(core, now_ns, ticket);
	}
}

/* Note for the answer to the request, if it is in flight, that the message arrived first. */
static void note_heard(struct lk__pending *pending, const struct lk__message *message)
{
	if (pending->state == LK__IN_FLIGHT)
		pending->heard |= (uint8_t)(1U << message->kind);
}

bool lk__pending_heard(const struct lk__pending *pending, enum lk__message_kind kind)
{
	return pending->heard & 1U << kind;
}

static void of_ticket(struct lk__core *core, int64_t now_ns, const struct lk__message *message)
{
	struct lk__ticket *ticket = lk__ticket_find_at(core, message->nonce, message->from);

	if (!ticket) {
		/* Stale or forged; an unclaimed grant expires with its lease. */
		lk__ghost_message(core, now_ns, message);
		return;
	}
	lk__vouch_run(ticket->session, now_ns);
	if (lk__ticket_whole(ticket) && !ticket->first_sent_ns && !ticket->epoch)
		return; /* forged: it was never asked for, and its end would free it */
	ticket->may_be_known = true;
	if (ticket->is_leg)
		lk__quorum_expire(core, now_ns, ticket);
	if (message->epoch == ticket->epoch)
		note_heard(&ticket->main, message);
	note_heard(&ticket->leave, message);
	if (ticket->state == LK__LEAVING && message->kind != LK__BROKEN) {
		lk__leave_now(core, now_ns, ticket); /* the store still knows it */
		return;
	}
	if (ticket->is_leg && lk__leg_is_old(core, now_ns, ticket, message))
		return;
	switch (message->kind) {
	case LK__GRANT:
		grant(core, now_ns, ticket, message);
		break;
	case LK__WANTED:
		/* May arrive before the grant, or a renewal's answer: kept with the ticket. */
		ticket->is_wanted = true;
		if (ticket->is_leg)
			lk__quorum_touch(core, ticket);
		break;
	case LK__REASK:
		reask(core, now_ns, ticket, message);
		break;
	case LK__BROKEN:
		broken(core, now_ns, ticket);
		break;
	case LK__TAKEN:
		if (ticket->state == LK__HOLDING && !ticket->is_leg)
			lk__ticket_doubt(core, now_ns, ticket);
		break;
	case LK__OPENED:
	case LK__REMOVED:
		break; /* of a latch */
	}
}

void lk__core_message(struct lk__core *core, int64_t now_ns, const struct lk__message *message)
{
	of_ticket(core, now_ns, message);
	lk__quorum_settle(core, now_ns);
}
