/* SPDX-License-Identifier: MIT
 * Holds: the ownerships in this process, from grant to release or loss. */
#include "core.h"

#include "counters.h"
#include "quorum.h"

#include <stdlib.h>

struct lk__hold *lk__core_hold(const struct lk__name *name, uint64_t owner)
{
	struct lk__hold *hold = name->holds;

	while (hold && (hold->owner != owner || hold->released))
		hold = hold->next_of_name;
	return hold;
}

int64_t lk__hold_left_ns(const struct lk__hold *hold, int64_t now_ns)
{
	int64_t until;

	if (hold->lost || !hold->ticket)
		return 0;
	until = hold->ticket->valid_until_ns;
	if (hold->max_until_ns < until)
		until = hold->max_until_ns;
	return until > now_ns ? until - now_ns : 0;
}

lk_state lk__hold_state(const struct lk__hold *hold, int64_t now_ns)
{
	const struct lk__ticket *ticket = hold->ticket;

	if (!lk__hold_left_ns(hold, now_ns))
		return LK_STATE_LOST;
	/* A renewal is due with two thirds of the lease left; with half left it has failed. */
	if (ticket->legs)
		return ticket->queue->fixed ||
		                       (lk__quorum_is_sure(ticket) &&
		                        ticket->valid_until_ns - now_ns >=
		                                ticket->queue->lease_ms * 500000)
		               ? LK_STATE_HELD
		               : LK_STATE_UNSURE;
	if (!ticket->queue->fixed &&
	    (!lk__session_is_up(ticket->session) || ticket->session->unwatched_ns <= now_ns ||
	     ticket->renewal_failed || ticket->is_forgotten || ticket->is_doubted ||
	     ticket->valid_until_ns - now_ns < ticket->queue->lease_ms * 500000))
		return LK_STATE_UNSURE;
	return LK_STATE_HELD;
}

/* Remove the first waiter from the queue. */
struct lk__op *lk__wait_queue_pop(struct lk__wait_queue *queue)
{
	struct lk__op *waiter = queue->first;

	queue->first = waiter->next;
	if (!queue->first)
		queue->last = NULL;
	return waiter;
}

/* The first waiter of the queue becomes the owner of the queue's ticket. */
void lk__hold_make(struct lk__core *core, int64_t now_ns, struct lk__wait_queue *queue)
{
	struct lk__op *waiter = lk__wait_queue_pop(queue);
	struct lk__hold *hold = waiter->spare_hold;

	waiter->spare_hold = NULL;
	waiter->fence = queue->ticket->last_fence;
	*hold = (struct lk__hold){
		.next_of_name = queue->name->holds,
		.next = core->all_holds,
		.handle = waiter->handle,
		.owner = queue->permits ? waiter->fence : waiter->owner,
		.name = queue->name,
		.ticket = queue->ticket,
		.fence = queue->ticket->last_fence,
		.since_ns = now_ns,
		.max_until_ns =
			waiter->max_hold_ms ? now_ns + waiter->max_hold_ms * 1000000 : LK__NEVER,
		.count = queue->permits ? queue->permits : 1,
		.loss_reported = !waiter->reports_loss,
	};
	queue->name->holds = hold;
	if (core->all_holds)
		core->all_holds->prev = hold;
	core->all_holds = hold;
	queue->hold = hold;
	lk__complete(core, waiter, LK_OK, NULL);
}

/* Remove it from every list; the memory stays. */
static void unlink_hold(struct lk__core *core, struct lk__hold *hold)
{
	struct lk__hold **at = &hold->name->holds;

	while (*at != hold)
		at = &(*at)->next_of_name;
	*at = hold->next_of_name;
	if (hold->prev)
		hold->prev->next = hold->next;
	else
		core->all_holds = hold->next;
	if (hold->next)
		hold->next->prev = hold->prev;
}

void lk__hold_free(struct lk__core *core, struct lk__hold *hold)
{
	if (!hold->released)
		unlink_hold(core, hold);
	free(hold);
}

/* The owner has released it.  A loss that is not reported yet keeps the memory until then. */
void lk__hold_retire(struct lk__core *core, struct lk__hold *hold)
{
	unlink_hold(core, hold);
	hold->released = true;
	if (!hold->lost || hold->loss_reported)
		free(hold);
}

void lk__core_loss_reported(struct lk__hold *hold)
{
	hold->loss_reported = true;
	if (hold->released)
		free(hold);
}

void lk__hold_lose(struct lk__core *core, int64_t now_ns, struct lk__hold *hold,
                   lk_lost_reason reason)
{
	struct lk__ticket *ticket = hold->ticket;
	struct lk__wait_queue *queue = ticket->queue;

	lk__count_hold(&core->counters, now_ns, hold);
	lk__count_loss(&core->counters, reason);
	hold->lost = (uint8_t)reason;
	hold->ticket = NULL;
	if (!hold->loss_reported) {
		*core->lost_end = hold;
		core->lost_end = &hold->next_lost;
	}
	queue->hold = NULL;
	lk__ticket_leave(core, now_ns, ticket);
	if (queue->first)
		lk__ticket_start(core, now_ns, queue);
}

/* The reason if the hold is lost at that time, else 0.  The clock decides, whether or not the timer
 * has run. */
static uint8_t loss_of(const struct lk__hold *hold, int64_t now_ns)
{
	if (hold->lost || lk__hold_left_ns(hold, now_ns))
		return hold->lost;
	return hold->ticket->valid_until_ns <= now_ns ? LK_LOST_EXPIRED : LK_LOST_MAX_HOLD;
}

void lk__hold_expire(struct lk__core *core, int64_t now_ns, struct lk__hold *hold)
{
	uint8_t reason = hold && !hold->lost ? loss_of(hold, now_ns) : 0;

	if (reason)
		lk__hold_lose(core, now_ns, hold, (lk_lost_reason)reason);
}

void lk__hold_snapshot(const struct lk__hold *hold, int64_t now_ns, lk_hold *snapshot)
{
	*snapshot = (lk_hold){
		.fence = hold->fence,
		.count = hold->count,
		.state = lk__hold_state(hold, now_ns),
		.lost = (lk_lost_reason)loss_of(hold, now_ns),
		.remaining_ms = lk__hold_left_ns(hold, now_ns) / 1000000,
		.lease_ms = lk__hold_left_ns(hold, now_ns) ? hold->ticket->queue->lease_ms : 0,
	};
}

/* ---- Re-entry ----------------------------------------------------------------------------- */

/* The owner's hold if it is certain at that time, else NULL. */
static struct lk__hold *valid_hold(const struct lk__name *name, uint64_t owner, int64_t now_ns)
{
	struct lk__hold *hold = lk__core_hold(name, owner);

	return hold && lk__hold_left_ns(hold, now_ns) ? hold : NULL;
}

uint64_t lk__core_reenter(struct lk__core *core, int64_t now_ns, const struct lk__name *name,
                          uint64_t owner)
{
	struct lk__hold *hold = valid_hold(name, owner, now_ns);

	if (!hold || hold->count == LK__COUNT_MAX)
		return 0;
	hold->count++;
	lk__count(&core->counters.reentered, 1);
	return hold->fence;
}

bool lk__core_unenter(int64_t now_ns, const struct lk__name *name, uint64_t owner)
{
	struct lk__hold *hold = valid_hold(name, owner, now_ns);

	if (!hold || hold->count < 2)
		return false;
	hold->count--;
	return true;
}
