/* SPDX-License-Identifier: MIT
 * The promises that hold after every event, whatever the store replied, and at the end. */
#include "core_world.h"

#include <stdlib.h>
#include <string.h>

#define DRAIN_MAX 2000 /* steps until nothing is left */

void core_keep(enum promise promise, const char *wrong)
{
	FUZZ_MUST(!wrong, "%s", promise_broken(promise, wrong));
}

/* ---- After every event --------------------------------------------------------------------- */

static void check_calls(const struct core_world *world)
{
	for (int i = 0; i < CORE_CALLS; i++) {
		const struct lk__op *waiter = &world->calls[i].waiter;
		if (!world->calls[i].used)
			continue;
		core_keep(PROMISE_STATE, promise_state_call(waiter));
		/* The op's timer is the end of its wait, or one command timeout later. */
		core_keep(PROMISE_DEADLINE,
		          promise_deadline(waiter->timer.due_ns, world->now_ns + 1));
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
		core_keep(PROMISE_RESULT, promise_result_once(waiter, call->used));
		FUZZ_MUST(fuzz_is_plain(waiter->why.text), "a reason that is not plain");
		free_spares(waiter);
		call->used = false;
	}
	core_keep(PROMISE_PROGRESS, promise_progress(core));
	core_keep(PROMISE_STATE, promise_state(core));
	for (const struct lk__hold *hold = core->all_holds; hold; hold = hold->next)
		core_keep(PROMISE_LOSS, promise_loss(core, hold, NULL));
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
		core_good_answer(world, world->sent[0], &answer);
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
		core_keep(PROMISE_DEADLINE,
		          call->waiter.done ? NULL : "an abandoned call is not done");
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
	core_link(world, false); /* its subscriptions end with it */
	core_keep(PROMISE_REST, promise_rest(core));
	for (int i = 0; i < CORE_PLACES; i++) {
		core_keep(PROMISE_REST, promise_rest_queue(world->queues[i]));
		FUZZ_MUST(world->queues[i]->refs == 1, "a reference to a handle is left");
		lk__wait_queue_close(core, world->queues[i]);
	}
	FUZZ_MUST(!core->names.count, "a name is left");
	lk__core_fini(core);
}

/* ---- One reply to all --------------------------------------------------------------------- */

/* The link breaks, and the server has lost its memory when it is up again. */
static void forget_hold(struct core_world *world)
{
	core_link(world, false);
	core_forget(world);
	core_link(world, true);
}

/* A renewal finds nothing. */
static void doubt_hold(struct core_world *world)
{
	const struct lk__answer gone = {.kind = LK__GONE};

	core_later(world, lk__core_due(&world->core) - world->now_ns);
	core_send(world);
	core_answer(world, &gone);
}

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
	else if (kind == LK__RECLAIM)
		forget_hold(world);
	else if (kind == LK__EPOCH)
		doubt_hold(world);
	else if (kind == LK__LEAVE)
		lk__core_drop(&world->core, world->now_ns,
		              world->queues[permits ? CORE_PERMITS : CORE_LOCK]->name,
		              &world->queues[permits ? CORE_PERMITS : CORE_LOCK]);
	core_send(world);
	return world->sent_count && world->sent[0]->kind == kind;
}

void core_world_answer_all(const struct lk__answer *answer)
{
	static const enum lk__request_kind kinds[] = {LK__ASK,  LK__LEAVE, LK__HAND,    LK__RENEW,
	                                              LK__LOOK, LK__STEP,  LK__RECLAIM, LK__EPOCH};
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
