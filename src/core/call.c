/* SPDX-License-Identifier: MIT
 * What callers do: acquire, release, extend, give up, close; and who gets a lock inside the
 * process without a request. */
#include "core.h"

#include "counters.h"
#include "latch.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Holds -------------------------------------------------------------------------------- */

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

lk_state lk__hold_state(const struct lk__core *core, const struct lk__hold *hold, int64_t now_ns)
{
	const struct lk__ticket *ticket = hold->ticket;

	if (!lk__hold_left_ns(hold, now_ns))
		return LK_STATE_LOST;
	/* A renewal is due with two thirds left; with half left something is wrong. */
	if (!ticket->fixed && (!core->linked || ticket->trouble ||
	                       ticket->valid_until_ns - now_ns < ticket->lease_ms * 500000))
		return LK_STATE_UNSURE;
	return LK_STATE_HELD;
}

/* Take the first waiter out of the line. */
struct lk__waiter *lk__line_first(struct lk__place *place)
{
	struct lk__waiter *waiter = place->first;

	place->first = waiter->next;
	if (!place->first)
		place->last = NULL;
	return waiter;
}

/* The first waiter of the place becomes the owner of the place's ticket. */
void lk__hold_make(struct lk__core *core, int64_t now_ns, struct lk__place *place)
{
	struct lk__waiter *waiter = lk__line_first(place);
	struct lk__hold *hold = waiter->spare_hold;

	waiter->spare_hold = NULL;
	waiter->fence = place->ticket->last_fence;
	*hold = (struct lk__hold){
		.next_of_name = place->name->holds,
		.next = core->all_holds,
		.handle = waiter->handle,
		.owner = place->permits ? waiter->fence : waiter->owner,
		.name = place->name,
		.ticket = place->ticket,
		.fence = place->ticket->last_fence,
		.since_ns = now_ns,
		.max_until_ns =
			waiter->max_hold_ms ? now_ns + waiter->max_hold_ms * 1000000 : LK__NEVER,
		.count = place->permits ? place->permits : 1,
		.told = !waiter->tell_loss,
	};
	place->name->holds = hold;
	if (core->all_holds)
		core->all_holds->prev = hold;
	core->all_holds = hold;
	place->hold = hold;
	lk__complete(core, waiter, LK_OK, NULL);
}

/* Out of every list; the memory stays. */
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

/* The owner is done with it.  A loss that is still to be told keeps the memory until then. */
static void retire_hold(struct lk__core *core, struct lk__hold *hold)
{
	unlink_hold(core, hold);
	hold->released = true;
	if (!hold->lost || hold->told)
		free(hold);
}

void lk__core_told(struct lk__hold *hold)
{
	hold->told = true;
	if (hold->released)
		free(hold);
}

void lk__hold_lose(struct lk__core *core, int64_t now_ns, struct lk__hold *hold,
                   lk_lost_reason reason)
{
	struct lk__ticket *ticket = hold->ticket;
	struct lk__place *place = ticket->place;

	lk__count_hold(&core->counters, now_ns, hold);
	lk__count_loss(&core->counters, reason);
	hold->lost = (uint8_t)reason;
	hold->ticket = NULL;
	if (!hold->told) {
		*core->lost_end = hold;
		core->lost_end = &hold->next_lost;
	}
	place->hold = NULL;
	lk__ticket_leave(core, now_ns, ticket);
	if (place->first)
		lk__ticket_start(core, now_ns, place);
}

/* ---- Acquire ------------------------------------------------------------------------------ */

static bool expired(const struct lk__hold *hold, int64_t now_ns)
{
	return hold && !hold->lost && !lk__hold_left_ns(hold, now_ns);
}

/* The clock decides, whether or not the timer has run. */
static void expire(struct lk__core *core, int64_t now_ns, struct lk__hold *hold)
{
	if (expired(hold, now_ns))
		lk__hold_lose(core, now_ns, hold,
		              hold->ticket->valid_until_ns <= now_ns ? LK_LOST_EXPIRED
		                                                     : LK_LOST_MAX_HOLD);
}

void lk__core_acquire(struct lk__core *core, int64_t now_ns, struct lk__waiter *waiter)
{
	struct lk__place *place = waiter->place;
	struct lk__hold *hold = lk__core_hold(place->name, waiter->owner);

	waiter->began_ns = now_ns;
	waiter->acquires = true;
	expire(core, now_ns, hold);
	expire(core, now_ns, place->hold);
	if (core->closing) {
		lk__complete(core, waiter, LK_ECLOSED, "the client is closed");
	} else if (hold && hold->lost) {
		lk__complete(core, waiter, LK_ELOST, "the hold was lost: release it first");
	} else if (hold && hold->count == LK__COUNT_MAX) {
		lk__complete(core, waiter, LK_ELIMIT, "re-entered 2147483647 times");
	} else if (hold) {
		hold->count++;
		lk__count(&core->counters.reentered, 1);
		lk__complete(core, waiter, LK_OK, NULL);
	} else if (waiter->only_try && (place->hold || place->first)) {
		lk__complete(core, waiter, LK_EBUSY, "held by another thread of this process");
	} else {
		waiter->behind = place->ticket != NULL;
		waiter->where = LK__IN_PLACE;
		waiter->next = NULL;
		if (place->last)
			place->last->next = waiter;
		else
			place->first = waiter;
		place->last = waiter;
		if (place->ticket)
			lk__ticket_pursue(core, now_ns, place->ticket);
		else
			lk__ticket_start(core, now_ns, place);
	}
}

/* No two waits for permits share a ticket: none is handed on inside the process, and the store
 * serves them in their order among all. */
void lk__core_acquire_permits(struct lk__core *core, int64_t now_ns, struct lk__waiter *waiter)
{
	struct lk__place *place = waiter->spare_place, *like = waiter->place;

	waiter->began_ns = now_ns;
	waiter->acquires = true;
	if (core->closing) {
		lk__complete(core, waiter, LK_ECLOSED, "the client is closed");
		return;
	}
	waiter->spare_place = NULL;
	*place = (struct lk__place){
		.name = like->name,
		.next = like->name->places,
		.first = waiter,
		.last = waiter,
		.lease_ms = like->lease_ms,
		.ttl_ms = like->ttl_ms,
		.capacity = like->capacity,
		.permits = waiter->permits,
		.fixed = like->fixed,
	};
	place->name->places = place;
	place->name->refs++;
	waiter->place = place;
	waiter->where = LK__IN_PLACE;
	waiter->next = NULL;
	lk__ticket_start(core, now_ns, place);
}

/* ---- Release ------------------------------------------------------------------------------ */

static void wait_for_leave(struct lk__ticket *ticket, struct lk__waiter *waiter, lk_err err)
{
	waiter->where = LK__FOR_LEAVE;
	waiter->ticket = ticket;
	waiter->why.err = err;
	waiter->next = ticket->leavers;
	ticket->leavers = waiter;
}

/* The next thread may have the lock with the next fence: the store granted for long enough, owes
 * nobody a turn, and could not have given that fence to anyone: its clock has passed it. */
static bool may_hand_over(const struct lk__place *place, int64_t now_ns)
{
	const struct lk__ticket *ticket = place->ticket;
	int64_t passed_us = (now_ns - ticket->store_us_ns) / 1000;

	if (!place->first || ticket->fixed ||
	    ticket->valid_until_ns - now_ns < ticket->lease_ms * 250000)
		return false;
	if ((ticket->wanted || !ticket->share) && ticket->hand_overs >= LK__HANDOVERS_MAX)
		return false;
	return (int64_t)ticket->last_fence + 1 < ticket->store_us + passed_us - passed_us / 100;
}

/* Give the hold's lock on: to a thread here, or back to the store, waiter (may be NULL) waiting for
 * that. */
static void give_back(struct lk__core *core, int64_t now_ns, struct lk__hold *hold,
                      struct lk__waiter *waiter)
{
	struct lk__ticket *ticket = hold->ticket;
	struct lk__place *place = ticket->place;

	lk__count_hold(&core->counters, now_ns, hold);
	if (may_hand_over(place, now_ns)) {
		ticket->by_message = false;
		lk__count_grant(&core->counters, now_ns, ticket, place->first);
		lk__count(&core->counters.by_thread, 1);
		if (ticket->wanted || !ticket->share)
			ticket->hand_overs++;
		ticket->last_fence++;
		retire_hold(core, hold);
		lk__hold_make(core, now_ns, place);
		lk__ticket_pursue(core, now_ns, ticket);
		if (waiter)
			lk__complete(core, waiter, LK_OK, NULL);
		return;
	}
	retire_hold(core, hold);
	place->hold = NULL;
	ticket->released = true;
	if (waiter)
		wait_for_leave(ticket, waiter, LK_OK);
	lk__ticket_leave(core, now_ns, ticket);
	if (place->first)
		lk__ticket_start(core, now_ns, place);
}

void lk__core_release(struct lk__core *core, int64_t now_ns, struct lk__waiter *waiter)
{
	struct lk__hold *hold = lk__core_hold(waiter->place->name, waiter->owner);

	expire(core, now_ns, hold);
	if (!hold) {
		lk__complete(core, waiter, LK_ENOTOWNER, "not held by the caller");
	} else if (hold->count > 1) {
		hold->count--;
		if (hold->lost)
			lk__complete(core, waiter, LK_ELOST, lk_lost_reason_name(hold->lost));
		else
			lk__complete(core, waiter, LK_OK, NULL);
	} else if (hold->lost) {
		lk__complete(core, waiter, LK_ELOST, lk_lost_reason_name(hold->lost));
		retire_hold(core, hold);
	} else {
		give_back(core, now_ns, hold, waiter);
	}
}

/* Whoever gives back some permits has them no more from now on; the store hears of it until it
 * has confirmed it. */
static void shrink(struct lk__core *core, int64_t now_ns, struct lk__hold *hold,
                   struct lk__waiter *waiter)
{
	struct lk__ticket *ticket = hold->ticket;

	hold->count -= waiter->permits;
	ticket->keep = hold->count;
	ticket->shrinking = true;
	ticket->next_ns = now_ns;
	waiter->permits = hold->count;
	wait_for_leave(ticket, waiter, LK_OK);
	lk__ticket_pursue(core, now_ns, ticket);
}

void lk__core_release_permits(struct lk__core *core, int64_t now_ns, struct lk__waiter *waiter)
{
	struct lk__hold *hold = lk__core_hold(waiter->place->name, waiter->owner);

	if (waiter->permits && hold)
		expire(core, now_ns, hold);
	if (!hold) {
		lk__complete(core, waiter, LK_ENOTOWNER, "no such hold");
	} else if (waiter->permits > hold->count) {
		lk__complete(core, waiter, LK_ELIMIT, "more permits than the hold has");
	} else if (!waiter->permits || waiter->permits == hold->count) {
		hold->count = 1; /* all of it */
		lk__core_release(core, now_ns, waiter);
	} else if (hold->lost) {
		lk__complete(core, waiter, LK_ELOST, lk_lost_reason_name(hold->lost));
	} else {
		shrink(core, now_ns, hold, waiter);
	}
}

void lk__core_extend(struct lk__core *core, int64_t now_ns, struct lk__waiter *waiter)
{
	struct lk__hold *hold = lk__core_hold(waiter->place->name, waiter->owner);
	struct lk__waiter **at;

	expire(core, now_ns, hold);
	if (!hold) {
		lk__complete(core, waiter, LK_ENOTOWNER, "not held by the caller");
	} else if (hold->lost) {
		lk__complete(core, waiter, LK_ELOST, lk_lost_reason_name(hold->lost));
	} else {
		for (at = &hold->ticket->extenders; *at;)
			at = &(*at)->next;
		*at = waiter;
		waiter->next = NULL;
		waiter->where = LK__FOR_EXTEND;
		waiter->ticket = hold->ticket;
		waiter->sent = false;
		lk__ticket_pursue(core, now_ns, hold->ticket);
	}
}

/* ---- Giving up ---------------------------------------------------------------------------- */

static void remove_from(struct lk__waiter **at, struct lk__waiter *waiter)
{
	while (*at != waiter)
		at = &(*at)->next;
	*at = waiter->next;
	waiter->next = NULL;
}

static void leave_line(struct lk__place *place, struct lk__waiter *waiter)
{
	struct lk__waiter *last = NULL;

	remove_from(&place->first, waiter);
	for (struct lk__waiter *other = place->first; other; other = other->next)
		last = other;
	place->last = last;
}

static const char *text_of(const struct lk__core *core, lk_err why)
{
	switch (why) {
	case LK_ETIMEDOUT:
		return "not acquired in time";
	case LK_ECANCELED:
		return "the wait was cancelled";
	case LK_ECLOSED:
		return "the client was closed";
	case LK_EUNKNOWN:
		return "no answer to a request in time";
	default:
		return core->link_why.text[0] ? core->link_why.text : "not connected";
	}
}

/* Nothing was asked for want of a connection: not even one that may have happened. */
static lk_err why_unlinked(const struct lk__core *core)
{
	return core->link_why.err == LK_EUNKNOWN || !core->link_why.err ? LK_ECONN
	                                                                : core->link_why.err;
}

/* The server's words for the last error that a ticket had. */
static const char *refusal_text(const struct lk__core *core, const struct lk__ticket *ticket)
{
	lk_err err = (lk_err)ticket->refusal;

	return core->refusal.err == err ? core->refusal.text : lk_err_text(err);
}

/* A try that the server refused each time ends with the server's error, not for want of time. */
static void complete_refused(struct lk__core *core, struct lk__waiter *waiter,
                             const struct lk__ticket *ticket, lk_err why)
{
	if (why == LK_ETIMEDOUT && waiter->only_try && ticket && ticket->state == LK__ASKING &&
	    ticket->refusals)
		lk__complete(core, waiter, (lk_err)ticket->refusal, refusal_text(core, ticket));
	else
		lk__complete(core, waiter, why, text_of(core, why));
}

void lk__core_give_up(struct lk__core *core, int64_t now_ns, struct lk__waiter *waiter, lk_err why)
{
	struct lk__place *place = waiter->place;
	struct lk__ticket *ticket;

	if (!waiter->done && waiter->where == LK__IN_LATCH)
		lk__latch_give_up(core, now_ns, waiter, why);
	if (waiter->done || waiter->where != LK__IN_PLACE)
		return; /* its place may be no more */
	ticket = place->ticket;
	leave_line(place, waiter);
	if (place->first || place->hold || !ticket) {
		complete_refused(core, waiter, ticket, why);
		return;
	}
	/* It was the last one: the ticket goes with it. */
	if (lk__ticket_is_unknown(ticket) && !ticket->again) {
		if (why == LK_ETIMEDOUT && !core->linked)
			why = why_unlinked(core);
		complete_refused(core, waiter, ticket, why);
		lk__ticket_leave(core, now_ns, ticket);
		return;
	}
	wait_for_leave(ticket, waiter, why);
	lk__ticket_leave(core, now_ns, ticket);
}

/* The latest answer that concerns its call was an error that passes. */
static const struct lk__ticket *refused_ticket(const struct lk__waiter *waiter)
{
	const struct lk__ticket *ticket = NULL;

	if (waiter->where == LK__IN_PLACE)
		ticket = waiter->place->ticket;
	else if (waiter->where == LK__FOR_LEAVE)
		ticket = waiter->ticket;
	return ticket && ticket->refusals ? ticket : NULL;
}

void lk__core_abandon(struct lk__core *core, int64_t now_ns, struct lk__waiter *waiter)
{
	const struct lk__ticket *refused = refused_ticket(waiter);
	char text[sizeof(core->refusal.text)] = "";
	lk_err err = LK_EUNKNOWN;

	if (refused) /* it may be no more below */
		snprintf(text, sizeof(text), "%s", refusal_text(core, refused));
	if (waiter->where == LK__IN_PLACE)
		lk__core_give_up(core, now_ns, waiter, LK_ETIMEDOUT);
	if (waiter->done)
		return;
	if (waiter->where == LK__IN_LATCH || waiter->where == LK__FOR_STEP) {
		lk__latch_abandon(core, now_ns, waiter);
		return;
	}
	if (waiter->where == LK__FOR_EXTEND) {
		remove_from(&waiter->ticket->extenders, waiter);
		if (!waiter->sent)
			err = LK_ECONN;
	} else {
		remove_from(&waiter->ticket->leavers, waiter);
	}
	lk__complete(core, waiter, err, text[0] ? text : text_of(core, err));
}

void lk__core_cancel(struct lk__core *core, int64_t now_ns, struct lk__name *name, void *handle,
                     lk_err why)
{
	struct lk__place *place = name->places, *next_place;

	if (name->latch)
		lk__latch_cancel(core, now_ns, name->latch, handle, why);
	for (; place; place = next_place) {
		struct lk__waiter *waiter = place->first, *next;

		next_place = place->next; /* the end of its only wait may be the end of the place */
		for (; waiter; waiter = next) {
			next = waiter->next;
			if (waiter->handle == handle)
				lk__core_give_up(core, now_ns, waiter, why);
		}
	}
}

/* ---- Ends that no owner asked for --------------------------------------------------------- */

static void drop_hold(struct lk__core *core, int64_t now_ns, struct lk__hold *hold)
{
	if (hold->lost) {
		retire_hold(core, hold);
		return;
	}
	hold->told = true; /* there is nothing to tell */
	give_back(core, now_ns, hold, NULL);
}

void lk__core_drop(struct lk__core *core, int64_t now_ns, struct lk__name *name, void *handle)
{
	struct lk__hold **lost = &core->lost, *hold, *next;

	while (*lost) {
		hold = *lost;
		if (hold->handle == handle) {
			*lost = hold->next_lost;
			lk__core_told(hold);
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
		expire(core, now_ns, hold);
		if (!hold->lost)
			lk__hold_lose(core, now_ns, hold, LK_LOST_THREAD);
		retire_hold(core, hold);
		next = core->all_holds; /* losing one may have made others */
	}
}

void lk__core_close(struct lk__core *core, int64_t now_ns)
{
	core->closing = true;
	for (size_t i = 0; i < core->names.size; i++) {
		struct lk__link *link = core->names.buckets[i];
		for (; link; link = link->next) {
			struct lk__place *place = ((struct lk__name *)link)->places, *next;
			for (; place; place = next) {
				place->refs++; /* its last wait may be its end */
				while (place->first)
					lk__core_give_up(core, now_ns, place->first, LK_ECLOSED);
				next = place->next;
				lk__place_close(core, place);
			}
		}
	}
	lk__latches_close(core, now_ns);
	while (core->all_holds)
		drop_hold(core, now_ns, core->all_holds);
	lk__leave_close(core, now_ns);
}
