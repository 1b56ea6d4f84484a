/* SPDX-License-Identifier: MIT
 * Calls: acquire, release, extend, close; and handing over inside the process without a request.
 * op.c has the end of a call. */
#include "core.h"

#include "counters.h"
#include "latch.h"

#include <stdlib.h>

/* ---- Acquire ------------------------------------------------------------------------------ */

/* Does the calling thread itself hold the lock that the handle waits for, and does only its own
 * release end that hold? */
static bool waits_for_itself(struct lk__core *core, int64_t now_ns, const struct lk__op *waiter)
{
	struct lk__hold *hold = NULL;

	if (waiter->thread && !waiter->only_try)
		hold = lk__core_hold(waiter->queue->name, waiter->thread);
	lk__hold_expire(core, now_ns, hold);
	return hold && !hold->lost && !hold->ticket->queue->fixed &&
	       hold->max_until_ns == LK__NEVER;
}

void lk__core_acquire(struct lk__core *core, int64_t now_ns, struct lk__op *waiter)
{
	struct lk__wait_queue *queue = waiter->queue;
	struct lk__hold *hold = lk__core_hold(queue->name, waiter->owner);

	lk__op_begin_wait(core, now_ns, waiter);
	waiter->acquires = true;
	lk__hold_expire(core, now_ns, hold);
	lk__hold_expire(core, now_ns, queue->hold);
	if (core->closing) {
		lk__complete(core, waiter, LK_ECLOSED, "the client is closed");
	} else if (hold && hold->lost) {
		lk__complete(core, waiter, LK_ELOST, "the hold was lost: release it first");
	} else if (hold && hold->count == LK__COUNT_MAX) {
		lk__complete(core, waiter, LK_ELIMIT, "re-entered 2147483647 times");
	} else if ((waiter->fence = lk__core_reenter(core, now_ns, queue->name, waiter->owner))) {
		lk__complete(core, waiter, LK_OK, NULL);
	} else if (waits_for_itself(core, now_ns, waiter)) {
		lk__complete(core, waiter, LK_EDEADLOCK,
		             "the calling thread holds the lock itself");
	} else if (waiter->only_try && (queue->hold || queue->first)) {
		lk__complete(core, waiter, LK_EBUSY,
		             queue->hold ? "held by another thread of this process"
		                         : "another thread of this process waits for it");
	} else {
		waiter->was_queued = queue->ticket != NULL;
		waiter->awaits = LK__FOR_GRANT;
		waiter->next = NULL;
		if (queue->last)
			queue->last->next = waiter;
		else
			queue->first = waiter;
		queue->last = waiter;
		if (queue->ticket)
			lk__ticket_pursue(core, now_ns, queue->ticket);
		else
			lk__ticket_start(core, now_ns, queue);
	}
}

/* Waits for permits never share a ticket: none is handed over inside the process, and the store
 * serves them all FIFO. */
void lk__core_acquire_permits(struct lk__core *core, int64_t now_ns, struct lk__op *waiter)
{
	struct lk__wait_queue *queue = waiter->spare_queue, *like = waiter->queue;

	lk__op_begin_wait(core, now_ns, waiter);
	waiter->acquires = true;
	if (core->closing) {
		lk__complete(core, waiter, LK_ECLOSED, "the client is closed");
		return;
	}
	waiter->spare_queue = NULL;
	*queue = (struct lk__wait_queue){
		.name = like->name,
		.next = like->name->queues,
		.first = waiter,
		.last = waiter,
		.lease_ms = like->lease_ms,
		.ttl_ms = like->ttl_ms,
		.capacity = like->capacity,
		.permits = waiter->permits,
		.fixed = like->fixed,
		.final = waiter->forget,
	};
	queue->name->queues = queue;
	queue->name->refs++;
	waiter->queue = queue;
	waiter->awaits = LK__FOR_GRANT;
	waiter->next = NULL;
	lk__ticket_start(core, now_ns, queue);
}

/* ---- Release ------------------------------------------------------------------------------ */

/* May the next thread have the lock with the next fence?  Enough lease is left, no remote waiter is
 * being starved, and the store cannot have issued that fence: its clock has passed it, or no other
 * grant has it. */
static bool may_hand_over(const struct lk__wait_queue *queue, int64_t now_ns)
{
	const struct lk__ticket *ticket = queue->ticket;
	int64_t passed_us = (now_ns - ticket->store_us_ns) / 1000;

	if (ticket->legs)
		return false;
	if (!queue->first || queue->fixed || ticket->is_doubted || ticket->is_divided ||
	    ticket->valid_until_ns - now_ns < queue->lease_ms * 250000)
		return false;
	if ((ticket->is_wanted || !ticket->is_shared) && ticket->hand_overs >= LK__HANDOVERS_MAX)
		return false;
	if (ticket->session->fences)
		return (ticket->last_fence + 1) % ticket->session->fences != 0;
	return (int64_t)ticket->last_fence + 1 < ticket->store_us + passed_us - passed_us / 100;
}

/* End the hold: hand its lock over to a thread here, or release it in the store; waiter (may be
 * NULL) waits for that. */
static void give_back(struct lk__core *core, int64_t now_ns, struct lk__hold *hold,
                      struct lk__op *waiter)
{
	struct lk__ticket *ticket = hold->ticket;
	struct lk__wait_queue *queue = ticket->queue;

	lk__count_hold(&core->counters, now_ns, hold);
	if (may_hand_over(queue, now_ns)) {
		ticket->granted_by_message = false;
		lk__count_grant(&core->counters, now_ns, ticket, queue->first);
		lk__count(&core->counters.by_thread, 1);
		if (ticket->is_wanted || !ticket->is_shared)
			ticket->hand_overs++;
		ticket->last_fence++;
		lk__hold_retire(core, hold);
		lk__hold_make(core, now_ns, queue);
		lk__ticket_pursue(core, now_ns, ticket);
		if (waiter)
			lk__complete(core, waiter, LK_OK, NULL);
		return;
	}
	lk__hold_retire(core, hold);
	queue->hold = NULL;
	ticket->released = true;
	if (waiter)
		lk__op_await_leave(ticket, waiter, LK_OK);
	lk__ticket_leave(core, now_ns, ticket);
	if (queue->first)
		lk__ticket_start(core, now_ns, queue);
}

static void release(struct lk__core *core, int64_t now_ns, struct lk__hold *hold,
                    struct lk__op *waiter)
{
	lk__hold_expire(core, now_ns, hold);
	if (!hold) {
		lk__complete(core, waiter, LK_ENOTOWNER, "not held by the caller");
	} else if (lk__core_unenter(now_ns, waiter->queue->name, waiter->owner)) {
		lk__complete(core, waiter, LK_OK, NULL);
	} else if (hold->count > 1) {
		hold->count--;
		lk__complete_lost(core, waiter, hold->lost);
	} else if (hold->lost) {
		lk__complete_lost(core, waiter, hold->lost);
		lk__hold_retire(core, hold);
	} else {
		give_back(core, now_ns, hold, waiter);
	}
}

void lk__core_release(struct lk__core *core, int64_t now_ns, struct lk__op *waiter)
{
	lk__op_begin(core, now_ns, waiter);
	release(core, now_ns, lk__core_hold(waiter->queue->name, waiter->owner), waiter);
}

/* Release some permits: they are invalid here from now on; the request is repeated until the store
 * confirms it. */
static void shrink(struct lk__core *core, int64_t now_ns, struct lk__hold *hold,
                   struct lk__op *waiter)
{
	struct lk__ticket *ticket = hold->ticket;

	hold->count -= waiter->permits;
	ticket->next_ns = now_ns;
	waiter->permits = hold->count;
	lk__op_await_leave(ticket, waiter, LK_OK);
	lk__ticket_pursue(core, now_ns, ticket);
}

void lk__core_release_permits(struct lk__core *core, int64_t now_ns, struct lk__op *waiter)
{
	struct lk__hold *hold = lk__core_hold(waiter->queue->name, waiter->owner);

	lk__op_begin(core, now_ns, waiter);
	if (waiter->permits && hold)
		lk__hold_expire(core, now_ns, hold);
	if (!hold) {
		lk__complete(core, waiter, LK_ENOTOWNER, "no such hold");
	} else if (waiter->permits > hold->count) {
		lk__complete(core, waiter, LK_ELIMIT, "permits: more than the hold has");
	} else if (!waiter->permits || waiter->permits == hold->count) {
		hold->count = 1; /* all of it */
		release(core, now_ns, hold, waiter);
	} else if (hold->lost) {
		lk__complete_lost(core, waiter, hold->lost);
	} else {
		shrink(core, now_ns, hold, waiter);
	}
}

void lk__core_extend(struct lk__core *core, int64_t now_ns, struct lk__op *waiter)
{
	struct lk__hold *hold = lk__core_hold(waiter->queue->name, waiter->owner);
	struct lk__op **at;

	lk__op_begin(core, now_ns, waiter);
	lk__hold_expire(core, now_ns, hold);
	if (!hold) {
		lk__complete(core, waiter, LK_ENOTOWNER, "not held by the caller");
	} else if (hold->lost) {
		lk__complete_lost(core, waiter, hold->lost);
	} else {
		for (at = &hold->ticket->extenders; *at;)
			at = &(*at)->next;
		*at = waiter;
		waiter->next = NULL;
		waiter->awaits = LK__FOR_EXTEND;
		waiter->ticket = hold->ticket;
		waiter->sent = false;
		lk__ticket_pursue(core, now_ns, hold->ticket);
	}
}

/* ---- Involuntary release ------------------------------------------------------------------ */

static void drop_hold(struct lk__core *core, int64_t now_ns, struct lk__hold *hold)
{
	if (hold->lost) {
		lk__hold_retire(core, hold);
		return;
	}
	hold->loss_reported = true; /* there is no loss to report */
	give_back(core, now_ns, hold, NULL);
}

void lk__core_drop(struct lk__core *core, int64_t now_ns, struct lk__name *name, void *handle)
{
	struct lk__hold **lost = &core->lost, *hold, *next;

	while (*lost) {
		hold = *lost;
		if (hold->handle == handle) {
			*lost = hold->next_lost;
			lk__core_loss_reported(hold);
		} else {
			lost = &hold->next_lost;
		}
	}
	core->lost_end = lost;
	for (hold = name->holds; hold; hold = next) {
		next = hold->next_of_name;
		if (hold->handle == handle) {
			drop_hold(core, now_ns, hold);
			next = name->holds;
		}
	}
}

void lk__core_thread_ended(struct lk__core *core, int64_t now_ns, uint64_t owner)
{
	struct lk__hold *hold, *next;

	for (hold = core->all_holds; hold; hold = next) {
		next = hold->next;
		if (hold->owner != owner || hold->name->kind != LK_KIND_LOCK)
			continue;
		lk__hold_expire(core, now_ns, hold);
		if (!hold->lost)
			lk__hold_lose(core, now_ns, hold, LK_LOST_THREAD);
		lk__hold_retire(core, hold);
		next = core->all_holds; /* losing one may have made others */
	}
}

void lk__core_close(struct lk__core *core, int64_t now_ns)
{
	struct lk__node *node = NULL;

	core->closing = true;
	while ((node = lk__table_each(&core->names, node))) {
		struct lk__wait_queue *queue = ((struct lk__name *)node)->queues, *next;
		for (; queue; queue = next) {
			queue->refs++; /* its last wait may drop the last reference */
			while (queue->first)
				lk__core_give_up(core, now_ns, queue->first, LK_ECLOSED);
			next = queue->next;
			lk__wait_queue_close(core, queue);
		}
	}
	lk__latches_end(core, NULL, now_ns, &(struct lk__why){LK_ECLOSED, "the client was closed"});
	while (core->all_holds)
		drop_hold(core, now_ns, core->all_holds);
	lk__leave_close(core, now_ns);
}
