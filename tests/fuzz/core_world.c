/* SPDX-License-Identifier: MIT
 * One state machine and its callers: see core_world.h. */
#include "core_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char text[] = "the store said so";

/* ---- Life ---------------------------------------------------------------------------------- */

static struct lk__wait_queue *open_place(struct core_world *world, lk_kind kind, const char *name,
                                         int64_t lease_ms, bool fixed)
{
	struct lk__wait_queue *queue = lk__wait_queue_new(lease_ms, fixed);
	struct lk__name *part = lk__name_new(kind, name, strlen(name));

	if (!queue || !part)
		abort();
	queue->capacity = 3;
	queue->ttl_ms = 60000;
	return lk__wait_queue_open(&world->core, &world->session, part, queue);
}

void core_world_init(struct core_world *world)
{
	struct lk__latch *latch = lk__latch_new(CORE_TOPIC);

	memset(world, 0, sizeof(*world));
	world->now_ns = 1000000 * CORE_MS;
	lk__session_init(&world->session, 1000 * CORE_MS, 1000 * CORE_MS);
	if (!latch || !lk__core_init(&world->core, 1) ||
	    !lk__core_add_session(&world->core, &world->session))
		abort();
	world->core.command_timeout_ns = 2000 * CORE_MS;
	world->queues[CORE_LOCK] = open_place(world, LK_KIND_LOCK, "a", 1000, false);
	world->queues[CORE_FIXED] = open_place(world, LK_KIND_LOCK, "a", 3000, true);
	world->queues[CORE_PERMITS] = open_place(world, LK_KIND_SEMAPHORE, "b", 1000, false);
	world->queues[CORE_LATCH] = open_place(world, LK_KIND_LATCH, "c", 1000, false);
	lk__latch_open(world->queues[CORE_LATCH]->name, latch);
}

/* ---- Calls --------------------------------------------------------------------------------- */

static void *provide(size_t size)
{
	void *memory = malloc(size);

	if (!memory)
		abort();
	memset(memory, 0xa5, size);
	return memory;
}

static struct lk__op *begin(struct core_world *world, enum core_place queue)
{
	struct core_call *call = world->calls;

	while (call < world->calls + CORE_CALLS && call->used)
		call++;
	if (call == world->calls + CORE_CALLS)
		return NULL;
	*call = (struct core_call){
		.waiter = {.queue = world->queues[queue],
	                   .handle = &world->queues[queue],
	                   .reports_loss = queue != CORE_FIXED},
		.used = true,
	};
	return &call->waiter;
}

bool core_acquire(struct core_world *world, enum core_place queue, uint64_t owner, bool only_try)
{
	struct lk__op *waiter = begin(world, queue);

	if (!waiter)
		return false;
	waiter->owner = owner;
	waiter->only_try = only_try;
	waiter->max_hold_ms = owner == 6 ? 500 : 0;
	waiter->until_ns = owner == 4 ? world->now_ns + 700 * CORE_MS : 0;
	waiter->spare_ticket = provide(sizeof(*waiter->spare_ticket));
	waiter->spare_hold = provide(sizeof(*waiter->spare_hold));
	lk__core_acquire(&world->core, world->now_ns, waiter);
	return true;
}

bool core_acquire_permits(struct core_world *world, uint32_t permits, bool only_try, bool final)
{
	struct lk__op *waiter = begin(world, CORE_PERMITS);

	if (!waiter)
		return false;
	waiter->permits = permits;
	waiter->only_try = only_try;
	waiter->forget = final;
	world->queues[CORE_PERMITS]->fixed = final; /* as of another handle */
	waiter->spare_ticket = provide(sizeof(*waiter->spare_ticket));
	waiter->spare_hold = provide(sizeof(*waiter->spare_hold));
	waiter->spare_queue = provide(sizeof(*waiter->spare_queue));
	lk__core_acquire_permits(&world->core, world->now_ns, waiter);
	return true;
}

bool core_await(struct core_world *world, bool only_try, bool absent_is_open)
{
	struct lk__op *waiter = begin(world, CORE_LATCH);

	if (!waiter)
		return false;
	waiter->only_try = only_try;
	waiter->absent_is_open = absent_is_open;
	lk__core_await(&world->core, world->now_ns, waiter);
	return true;
}

bool core_step(struct core_world *world, uint32_t n)
{
	struct lk__op *waiter = begin(world, CORE_LATCH);

	if (!waiter)
		return false;
	waiter->spare_step = calloc(1, sizeof(*waiter->spare_step));
	if (!waiter->spare_step)
		abort();
	waiter->spare_step->n = n;
	lk__core_step(&world->core, world->now_ns, waiter);
	return true;
}

/* A hold of the semaphore, selected by the input; NULL if there is none. */
static struct lk__hold *permits_hold(const struct core_world *world, unsigned choice)
{
	struct lk__hold *hold = world->queues[CORE_PERMITS]->name->holds;

	while (choice-- && hold && hold->next_of_name)
		hold = hold->next_of_name;
	return hold && !hold->released ? hold : NULL;
}

/* Release or extend. */
static void use_hold(struct core_world *world, struct fuzz_input *input, bool extend)
{
	enum core_place queue = (enum core_place)fuzz_below(input, 3);
	uint64_t owner = 2 * (1 + fuzz_below(input, 3));
	struct lk__op *waiter;

	if (queue == CORE_PERMITS) {
		const struct lk__hold *hold = permits_hold(world, fuzz_below(input, 4));
		if (!hold)
			return;
		owner = hold->owner;
	}
	waiter = begin(world, queue);
	if (!waiter)
		return;
	waiter->owner = owner;
	if (extend) {
		waiter->lease_ms = 100 << fuzz_below(input, 8);
		lk__core_extend(&world->core, world->now_ns, waiter);
	} else if (queue == CORE_PERMITS) {
		waiter->permits = fuzz_below(input, 4);
		lk__core_release_permits(&world->core, world->now_ns, waiter);
	} else {
		lk__core_release(&world->core, world->now_ns, waiter);
	}
}

static void end_call(struct core_world *world, struct fuzz_input *input)
{
	struct core_call *call = &world->calls[fuzz_below(input, CORE_CALLS)];
	unsigned how = fuzz_below(input, 4);

	if (!call->used || call->waiter.done)
		return;
	if (how < 2) {
		lk__core_give_up(&world->core, world->now_ns, &call->waiter,
		                 how ? LK_ETIMEDOUT : LK_ECANCELED);
	} else {
		lk__core_abandon(&world->core, world->now_ns, &call->waiter);
		FUZZ_MUST(call->waiter.done, "an abandoned call is not done");
	}
}

void core_call_event(struct core_world *world, struct fuzz_input *input)
{
	struct lk__wait_queue *queue;
	unsigned how;

	switch (fuzz_below(input, 11)) {
	case 0:
	case 1:
		core_acquire(world, fuzz_below(input, 4) ? CORE_LOCK : CORE_FIXED,
		             2 * (1 + fuzz_below(input, 3)), fuzz_below(input, 4) == 3);
		break;
	case 2:
		how = fuzz_below(input, 4);
		core_acquire_permits(world, 1 + fuzz_below(input, 4), how == 3, how > 1);
		break;
	case 3:
		core_await(world, fuzz_below(input, 4) == 3, fuzz_below(input, 2));
		break;
	case 4:
		core_step(world, 1 + fuzz_below(input, 3));
		break;
	case 5:
	case 6:
		use_hold(world, input, false);
		break;
	case 7:
		use_hold(world, input, true);
		break;
	case 8:
		end_call(world, input);
		break;
	case 9:
		lk__core_thread_ended(&world->core, world->now_ns, 2 * (1 + fuzz_below(input, 3)));
		break;
	default:
		queue = world->queues[fuzz_below(input, CORE_PLACES)];
		for (int i = 0; i < CORE_PLACES; i++)
			if (queue == world->queues[i])
				lk__core_cancel(&world->core, world->now_ns, queue->name,
				                &world->queues[i], LK_ECANCELED);
		if (fuzz_below(input, 2))
			for (int i = 0; i < CORE_PLACES; i++)
				if (queue == world->queues[i])
					lk__core_drop(&world->core, world->now_ns, queue->name,
					              &world->queues[i]);
	}
}

/* ---- The store ----------------------------------------------------------------------------- */

static struct lk__epoch marker(unsigned memory)
{
	struct lk__epoch epoch = {.since_us = 1 + memory};

	epoch.len = (uint8_t)snprintf(epoch.text, sizeof(epoch.text), "1 a %u", 1 + memory);
	return epoch;
}

void core_forget(struct core_world *world)
{
	world->memory++;
}

void core_link(struct core_world *world, bool up)
{
	struct lk__why why = {.err = LK_EUNKNOWN, .text = "the connection broke"};

	if (up == lk__session_is_up(&world->session))
		return;
	if (up) {
		struct lk__epoch epoch = marker(world->memory);
		lk__core_memory(&world->core, &world->session, world->now_ns, &epoch);
		lk__core_link_up(&world->core, &world->session, world->now_ns);
		return;
	}
	world->sent_count = 0;
	lk__core_link_down(&world->core, &world->session, world->now_ns, &why, 0);
}

void core_send(struct core_world *world)
{
	while (world->sent_count < CORE_SENT) {
		struct lk__pending *request =
			lk__core_next_request(&world->core, &world->session, world->now_ns);
		if (!request)
			break;
		core_keep(PROMISE_ZOMBIE, promise_zombie(&world->leaves, request));
		world->sent[world->sent_count++] = request;
	}
}

struct lk__pending *core_take_sent(struct core_world *world)
{
	struct lk__pending *request = world->sent[0];

	if (!world->sent_count)
		return NULL;
	world->sent_count--;
	memmove(world->sent, world->sent + 1, sizeof(*world->sent) * (size_t)world->sent_count);
	return request;
}

void core_answer(struct core_world *world, const struct lk__answer *answer)
{
	struct lk__pending *request = core_take_sent(world);

	if (request)
		lk__core_answer(&world->core, world->now_ns, request, answer);
}

static uint64_t any_number(struct fuzz_input *input)
{
	static const uint64_t numbers[] = {0,
	                                   1,
	                                   2,
	                                   3,
	                                   1000,
	                                   1000000000,
	                                   1000000001,
	                                   (UINT64_C(1) << 53) - 1,
	                                   UINT64_C(1) << 53};

	return numbers[fuzz_below(input, sizeof(numbers) / sizeof(*numbers))];
}

void core_any_answer(struct fuzz_input *input, struct lk__answer *answer)
{
	static const lk_err errors[] = {LK_ESERVER, LK_EAUTH, LK_EFOREIGN, LK_EAGAIN, LK_ELIMIT};
	unsigned flags;

	memset(answer, 0, sizeof(*answer));
	answer->kind = (enum lk__answer_kind)fuzz_below(input, LK__FAILED + 1);
	flags = fuzz_byte(input);
	answer->free = flags & 1;
	answer->mine = answer->counted = flags & 2;
	answer->more = flags & 4;
	answer->fence = any_number(input);
	if (answer->kind == LK__FAILED) {
		answer->err = errors[fuzz_below(input, sizeof(errors) / sizeof(*errors))];
		answer->retryable = flags & 8;
		answer->ambiguous = flags & 16;
		answer->by_script = flags & 32;
		answer->text = text;
		return;
	}
	answer->arrival = answer->opened = any_number(input);
	answer->store_us = (int64_t)any_number(input);
	answer->waiting = answer->rank = answer->remaining = (int64_t)any_number(input);
	answer->replicas = answer->waiting;
	answer->left_ms = (int64_t)any_number(input) - (flags >> 7);
	if (answer->left_ms < -1)
		answer->left_ms = -1;
	answer->latch_state = (lk_latch_state)((flags >> 5) % 3);
	answer->removed = any_number(input);
	answer->next = any_number(input);
	answer->grace_ms = answer->left_ms > 0 && flags & 16 ? answer->left_ms : 0;
	if (answer->kind == LK__MEMORY)
		answer->epoch = marker(flags & 3);
}

void core_good_answer(const struct core_world *world, const struct lk__pending *request,
                      struct lk__answer *answer)
{
	static const enum lk__answer_kind kinds[] = {
		[LK__ASK] = LK__BUSY,          [LK__LEAVE] = LK__LEFT,   [LK__HAND] = LK__LEFT,
		[LK__RENEW] = LK__GONE,        [LK__SHRINK] = LK__LEFT,  [LK__LOOK] = LK__SHOWN,
		[LK__STEP] = LK__STEPPED,      [LK__RECLAIM] = LK__GONE, [LK__EPOCH] = LK__MEMORY,
		[LK__CONFIRM] = LK__CONFIRMED,
	};

	memset(answer, 0, sizeof(*answer));
	answer->kind = kinds[request->kind];
	answer->left_ms = -1;
	answer->mine = answer->counted = true;
	answer->replicas = 1;
	answer->epoch = marker(world->memory);
	if (request->kind == LK__ASK && !request->ticket->is_try) {
		answer->kind = LK__QUEUED;
		answer->left_ms = 1000;
	}
}

void core_channel_event(struct core_world *world, unsigned choice)
{
	struct lk__channels *channels = &world->session.channels;
	struct lk__why why = {.err = LK_EAUTH, .text = "no right"};
	bool subscribe;

	if (!lk__session_is_up(&world->session))
		return;
	switch (choice % 5) {
	case 0:
	case 1:
		lk__channels_next(channels, &subscribe);
		break;
	case 2:
	case 3:
		lk__channels_confirmed(channels, world->now_ns, choice % 5 == 2, CORE_TOPIC,
		                       strlen(CORE_TOPIC));
		break;
	default:
		if (choice & 8)
			lk__channels_refused(channels, world->now_ns, &why);
		else
			lk__channels_put_off(channels, world->now_ns);
	}
}

void core_later(struct core_world *world, int64_t ns)
{
	world->now_ns += ns;
	lk__core_tick(&world->core, world->now_ns);
}
