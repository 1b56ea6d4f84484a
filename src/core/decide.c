/* SPDX-License-Identifier: MIT
 * What answers and messages about a ticket mean for the calls of its wait queue: a hold for the
 * first waiter, the loss of that hold, the end of calls.  answer.c has what a server's answer makes
 * of the ticket itself. */
#include "core.h"

#include "counters.h"
#include "quorum.h"

#include <stdio.h>

/* May the store enqueue this ticket once more, or grant to it?  One of its asks ran, or will run,
 * after the end of the grant by message. */
static bool may_be_queued(const struct lk__ticket *ticket, int64_t now_ns)
{
	return ticket->granted_by_message &&
	       (ticket->valid_until_ns <= now_ns ||
	        (ticket->main.state == LK__IN_FLIGHT && ticket->main.kind == LK__ASK));
}

/* A final grant: only the store ends it, when its lease expires. */
static void forget(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	struct lk__wait_queue *queue = ticket->queue;
	struct lk__op *waiter = lk__wait_queue_pop(queue);

	waiter->fence = ticket->fence;
	lk__complete(core, waiter, LK_OK, NULL);
	if (ticket->head_unserved) {
		queue->ticket = NULL;
		lk__leave_begin(now_ns, ticket);
		lk__ticket_serve(core, now_ns, ticket);
	} else if (may_be_queued(ticket, now_ns)) {
		lk__ticket_leave(core, now_ns, ticket);
	} else {
		lk__ticket_end(core, ticket);
	}
}

/* Make a hold for the first waiter. */
void lk__ticket_take(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                     uint64_t fence, int64_t store_us, int64_t waiting)
{
	if (ticket->is_leg) {
		lk__leg_take(core, now_ns, ticket, fence, store_us);
		return;
	}
	ticket->fence = ticket->last_fence = fence;
	ticket->store_us = store_us;
	ticket->store_us_ns = now_ns;
	ticket->hand_overs = 0;
	ticket->hands = 0;
	ticket->renewal_failed = false;
	if (waiting > 0)
		ticket->is_wanted = true;
	lk__count_grant(&core->counters, now_ns, ticket, ticket->queue->first);
	if (ticket->queue->final) {
		forget(core, now_ns, ticket);
		return;
	}
	ticket->state = LK__HOLDING;
	lk__hold_make(core, now_ns, ticket->queue);
	ticket->next_ns = lk__ticket_next_ns(ticket, now_ns);
	lk__ticket_pursue(core, now_ns, ticket);
}

/* The tries of its calls found it held.  Later waiters with time to wait start again. */
void lk__decide_busy(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                     const struct lk__answer *answer)
{
	struct lk__wait_queue *queue = ticket->queue;
	char text[120];

	if (answer->grace_ms)
		snprintf(text, sizeof(text), "%s: nothing is granted for %lld.%d s",
		         ticket->legs ? "too many servers are new or have lost their memory"
		                      : "the server may have forgotten a holder",
		         (long long)((answer->grace_ms + 99) / 1000),
		         (int)((answer->grace_ms + 99) / 100 % 10));
	while (queue->first && queue->first->only_try)
		lk__complete(core, lk__wait_queue_pop(queue), LK_EBUSY,
		             answer->grace_ms ? text
		             : queue->permits ? "too few permits are free"
		                              : "held by another process");
	queue->refs++; /* ending the ticket may drop the last reference */
	if (ticket->legs)
		lk__ticket_leave(core, now_ns, ticket);
	else
		lk__ticket_end(core, ticket);
	if (queue->first)
		lk__ticket_start(core, now_ns, queue);
	lk__wait_queue_close(core, queue);
}

/* The store does not have the hold. */
void lk__ticket_lose(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                     lk_lost_reason reason)
{
	ticket->valid_until_ns = now_ns;
	lk__hold_lose(core, now_ns, ticket->queue->hold, reason);
}

void lk__ticket_refuse(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket, lk_err err,
                       const char *text)
{
	struct lk__wait_queue *queue = ticket->queue;

	if (ticket->is_leg) {
		lk__leg_refused(core, now_ns, ticket, err, text);
		return;
	}
	while (queue->first) {
		lk__count_grace(&core->counters, now_ns, ticket, queue->first);
		lk__complete(core, lk__wait_queue_pop(queue), err, text);
	}
	lk__ticket_leave(core, now_ns, ticket);
}

void lk__ticket_fail(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                     const struct lk__answer *answer)
{
	/* A rate's grant by a lost answer or message is used up, and no leave undoes it. */
	bool unknown = answer->ambiguous || (ticket->queue->final && ticket->may_be_known);

	lk__ticket_refuse(core, now_ns, ticket, unknown ? LK_EUNKNOWN : answer->err, answer->text);
}

void lk__complete_ended(struct lk__core *core, struct lk__op *op)
{
	lk_err err = op->why.err;

	lk__complete(core, op, err,
	             op->why.text[0]       ? op->why.text
	             : err == LK_ETIMEDOUT ? lk__timed_out_text(op)
	             : err               ? "the wait was ended"
	                                 : NULL);
}

/* A leave was answered: complete the calls that wait for it. */
void lk__decide_left(struct lk__core *core, struct lk__ticket *ticket,
                     const struct lk__answer *answer)
{
	bool confirmed = answer->kind == LK__LEFT;

	if (confirmed && ticket->released && lk__leave_shows_loss(ticket, answer))
		lk__count_loss(&core->counters, LK_LOST_TAKEN);
	while (ticket->leavers) {
		struct lk__op *waiter = ticket->leavers;
		lk_err err = waiter->why.err;
		ticket->leavers = waiter->next;
		if (confirmed && err == LK_OK && lk__leave_shows_loss(ticket, answer))
			lk__complete_lost(core, waiter, LK_LOST_TAKEN);
		else if (confirmed)
			lk__complete_ended(core, waiter);
		else
			lk__complete(core, waiter, LK_EUNKNOWN, answer->text);
	}
}
