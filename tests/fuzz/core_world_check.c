/* SPDX-License-Identifier: MIT
 * The invariants of a state machine after every event, whatever the store replied, and at its
 * end. */
#include "core_world.h"

#include <stdlib.h>
#include <string.h>

#define DRAIN_MAX 2000 /* steps until nothing is left */

/* ---- After every event --------------------------------------------------------------------- */

/* Each ticket has a pending request or a timer; without either it would never make progress. */
static void check_ticket(const struct lk__core *core, const struct lk__ticket *ticket)
{
	const struct lk__pending *request =
		lk__ticket_is_leaving(ticket) ? &ticket->leave : &ticket->main;

	FUZZ_MUST(ticket->state <= LK__OVER, "state %d", ticket->state);
	if (ticket->state == LK__OVER) {
		FUZZ_MUST(ticket->main.state == LK__IN_FLIGHT ||
		                  ticket->leave.state == LK__IN_FLIGHT,
		          "a ticket has ended and has no pending request");
		return;
	}
	FUZZ_MUST(lk__ticket_find(core, ticket->nonce) == ticket, "a ticket cannot be found");
	FUZZ_MUST(ticket->state != LK__HOLDING ||
	                  (ticket->queue->hold && ticket->queue->hold->ticket == ticket),
	          "a ticket that holds has no hold");
	FUZZ_MUST(ticket->state == LK__HOLDING || !ticket->extenders,
	          "an extension without a hold");
	if (!lk__session_is_up(ticket->session) || request->state != LK__IDLE ||
	    (ticket->state == LK__HOLDING && ticket->queue->fixed &&
	     !lk__ticket_is_shrinking(ticket)))
		return;
	FUZZ_MUST(ticket->next_ns != LK__NEVER && ticket->timer.due_ns <= ticket->next_ns,
	          "a ticket in state %d has no next event", ticket->state);
}

static void check_hold(const struct lk__core *core, const struct lk__hold *hold)
{
	if (hold->lost) {
		FUZZ_MUST(!hold->ticket, "a lost hold has a ticket");
		return;
	}
	FUZZ_MUST(hold->ticket && hold->ticket->state == LK__HOLDING &&
	                  hold->ticket->queue->hold == hold,
	          "a hold and its ticket disagree");
	FUZZ_MUST(hold->count, "a hold of nothing");
	FUZZ_MUST(lk__core_due(core) <= hold->ticket->valid_until_ns &&
	                  lk__core_due(core) <= hold->max_until_ns,
	          "no timer for the end of a hold");
}

static void check_latch(const struct lk__latch *latch)
{
	FUZZ_MUST(latch->busy, "a latch at rest is in the list");
	if (!lk__session_is_up(latch->name->session))
		return;
	FUZZ_MUST(!latch->first || latch->ask.state != LK__IDLE || latch->ask_ns != LK__NEVER,
	          "no timer for the waiters of a latch");
	FUZZ_MUST(!latch->steps || latch->down.state != LK__IDLE || latch->ask.state != LK__IDLE ||
	                  latch->timer.due_ns != LK__NEVER,
	          "no timer for a step");
}

static void check_calls(const struct core_world *world)
{
	for (int i = 0; i < CORE_CALLS; i++) {
		const struct lk__op *waiter = &world->calls[i].waiter;
		if (!world->calls[i].used)
			continue;
		FUZZ_MUST(waiter->awaits != LK__FOR_NOTHING, "a call that will never end");
		FUZZ_MUST(waiter->timer.due_ns > world->now_ns, "a call outlives its deadline");
		FUZZ_MUST(waiter->awaits != LK__FOR_GRANT || waiter->queue->ticket,
		          "a call waits without a ticket");
		FUZZ_MUST(waiter->awaits != LK__FOR_GRANT || waiter->spare_hold,
		          "a call waits without room for a hold");
	}
}

static void free_spares(struct lk__op *waiter)
{
	free(waiter->spare_ticket);
	free(waiter->spare_hold);
	free(waiter->spare_queue);
	free(waiter->spare_step);
}

void core_settle(struct core_world *world)
{
	const struct lk__core *core = &world->core;
	struct lk__op *waiter;

	while ((waiter = lk__core_next_done(&world->core))) {
		struct core_call *call = (struct core_call *)waiter;
		FUZZ_MUST(call->used && waiter->done, "a call is done twice");
		FUZZ_MUST(fuzz_is_plain(waiter->why.text), "a reason that is not plain");
		free_spares(waiter);
		call->used = false;
	}
	for (const struct lk__ticket *ticket = core->all_tickets; ticket; ticket = ticket->next)
		check_ticket(core, ticket);
	for (const struct lk__hold *hold = core->all_holds; hold; hold = hold->next)
		check_hold(core, hold);
	for (const struct lk__latch *latch = core->latches; latch; latch = latch->next)
		check_latch(latch);
	check_calls(world);
}

/* ---- The end ------------------------------------------------------------------------------- */

static void tell_losses(struct core_world *world)
{
	struct lk__hold *hold;

	while ((hold = lk__core_next_lost(&world->core)))
		lk__core_loss_reported(hold);
}

/* One step of a store without faults. */
static void drain_once(struct core_world *world)
{
	struct lk__answer answer;
	int64_t due_ns;

	core_send(world);
	if (world->sent_count) {
		core_good_answer(world->sent[0], &answer);
		core_answer(world, &answer);
	} else {
		due_ns = lk__core_due(&world->core);
		core_later(world, due_ns == LK__NEVER || due_ns < world->now_ns
		                          ? 0
		                          : due_ns - world->now_ns);
	}
	core_settle(world);
}

static void drain(struct core_world *world)
{
	int steps = 0;

	core_link(world, true);
	core_settle(world);
	for (int i = 0; i < CORE_CALLS; i++) {
		struct core_call *call = &world->calls[i];
		if (!call->used)
			continue;
		lk__core_abandon(&world->core, world->now_ns, &call->waiter);
		FUZZ_MUST(call->waiter.done, "an abandoned call is not done");
		core_settle(world);
	}
	while (lk__core_busy(&world->core) && steps++ < DRAIN_MAX)
		drain_once(world);
}

void core_world_close(struct core_world *world)
{
	struct lk__core *core = &world->core;

	lk__core_close(core, world->now_ns);
	core_settle(world);
	drain(world);
	tell_losses(world);
	FUZZ_MUST(!core->all_tickets && !core->tickets.count, "a ticket is left in state %d",
	          core->all_tickets ? core->all_tickets->state : -1);
	FUZZ_MUST(!core->all_holds && !core->latches && !lk__core_has_requests(core) && !core->done,
	          "something is left");
	for (int i = 0; i < CORE_PLACES; i++) {
		FUZZ_MUST(!world->queues[i]->first && !world->queues[i]->ticket &&
		                  !world->queues[i]->hold && world->queues[i]->refs == 1,
		          "a handle is not at rest");
		lk__wait_queue_close(core, world->queues[i]);
	}
	FUZZ_MUST(!core->names.count, "a name is left");
	lk__core_fini(core);
}

/* ---- One reply to all --------------------------------------------------------------------- */

/* A world in which a request of that kind is pending. */
static bool reach(struct core_world *world, enum lk__request_kind kind, bool permits)
{
	struct lk__answer answer = {.kind = LK__GRANTED, .fence = 7, .store_us = 1000000};

	core_world_init(world);
	core_link(world, true);
	if (kind == LK__LOOK || kind == LK__STEP) {
		core_step(world, 1);
		core_send(world);
		if (kind == LK__LOOK)
			return true;
		answer = (struct lk__answer){.kind = LK__SHOWN,
		                             .latch_state = LK_LATCH_COUNTING,
		                             .fence = 7,
		                             .next = 8,
		                             .left_ms = -1};
	} else {
		if (permits)
			core_acquire_permits(world, 2, false, false);
		else
			core_acquire(world, CORE_LOCK, 2, false);
		core_send(world);
		if (kind == LK__ASK)
			return true;
		answer.more = kind == LK__HAND;
	}
	core_answer(world, &answer);
	core_settle(world);
	if (kind == LK__RENEW)
		core_later(world, lk__core_due(&world->core) - world->now_ns);
	else if (kind == LK__LEAVE)
		lk__core_drop(&world->core, world->now_ns,
		              world->queues[permits ? CORE_PERMITS : CORE_LOCK]->name,
		              &world->queues[permits ? CORE_PERMITS : CORE_LOCK]);
	core_send(world);
	return world->sent_count && world->sent[0]->kind == kind;
}

void core_world_answer_all(const struct lk__answer *answer)
{
	static const enum lk__request_kind kinds[] = {LK__ASK,   LK__LEAVE, LK__HAND,
	                                              LK__RENEW, LK__LOOK,  LK__STEP};
	struct core_world world;

	for (size_t i = 0; i < 2 * sizeof(kinds) / sizeof(*kinds); i++) {
		enum lk__request_kind kind = kinds[i / 2];
		FUZZ_MUST(reach(&world, kind, i & 1), "no request of kind %d is under way",
		          (int)kind);
		core_answer(&world, answer);
		core_settle(&world);
		core_world_close(&world);
	}
}
