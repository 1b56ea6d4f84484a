/* SPDX-License-Identifier: MIT
 * One latch, its store and its clients in virtual time. */
#include "latch_world.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOPIC "lk:l:0:{gate}"
#define START_NS (INT64_C(1000000) * WORLD_MS)

/* ---- The store ---------------------------------------------------------------------------- */

static void publish(struct world *world, int kind, uint64_t generation)
{
	for (int i = 0; i < world->client_count; i++) {
		struct world_client *client = &world->clients[i];
		if (!client->subscribed)
			continue;
		ck_assert_int_lt(client->inbox_count, WORLD_INBOX);
		client->inbox[client->inbox_count++] = (struct world_item){kind, generation};
	}
}

static void open_it(struct world *world)
{
	world->opened = world->generation;
	world->ends_ns = world->now_ns + world->open_ttl_ms * WORLD_MS;
	world->published++;
	publish(world, WORLD_OPENED, world->generation);
}

static void forget_steps(struct world *world)
{
	for (int i = 0; i < world->client_count; i++)
		world->clients[i].last = 0;
	memset(world->named, 0, sizeof(world->named));
}

static uint64_t next_generation(const struct world *world)
{
	uint64_t now_us = (uint64_t)(world->now_ns / 1000);

	return world->fence + 1 > now_us ? world->fence + 1 : now_us;
}

bool world_set(struct world *world, int64_t count, bool anew)
{
	if (world->generation && world->count && !anew)
		return false;
	world->generation = world->fence = next_generation(world);
	world->count = count;
	world->ends_ns = LK__NEVER;
	forget_steps(world);
	if (!count)
		open_it(world);
	return true;
}

bool world_remove(struct world *world)
{
	if (!world->generation)
		return false;
	world->removed = world->generation;
	world->generation = 0;
	world->ends_ns = LK__NEVER;
	publish(world, WORLD_REMOVED, world->removed);
	return true;
}

void world_flush(struct world *world)
{
	world->fence = world->generation = world->opened = world->removed = 0;
	world->ends_ns = LK__NEVER;
	forget_steps(world);
}

/* latch_down.lua */
static void run_step(struct world_client *client, struct world_call *call)
{
	struct world *world = client->world;
	struct lk__answer *answer = &call->answer;

	if (world->generation != call->generation) {
		answer->kind = LK__OTHER;
		answer->fence = world->generation;
		return;
	}
	answer->kind = LK__STEPPED;
	answer->counted = client->last >= call->number;
	if (!answer->counted && world->count && !(call->name && world->named[call->name])) {
		answer->counted = true;
		client->last = call->number;
		client->counted[call->number]++;
		world->named[call->name] = call->name != 0;
		world->count = world->count > call->n ? world->count - call->n : 0;
		if (!world->count)
			open_it(world);
	}
	answer->remaining = world->count;
}

void world_execute(struct world_client *client, struct world_call *call)
{
	struct world *world = client->world;
	struct lk__answer *answer = &call->answer;

	memset(answer, 0, sizeof(*answer));
	if (call->kind == LK__STEP) {
		client->steps++;
		run_step(client, call);
		return;
	}
	client->looks++;
	*answer = (struct lk__answer){
		.kind = LK__SHOWN,
		.latch_state = !world->generation ? LK_LATCH_ABSENT
	                       : world->count     ? LK_LATCH_COUNTING
	                                          : LK_LATCH_OPEN,
		.fence = world->generation,
		.opened = world->opened,
		.removed = world->removed,
		.next = next_generation(world),
		.left_ms = world->ends_ns == LK__NEVER
	                           ? -1
	                           : (world->ends_ns - world->now_ns) / WORLD_MS,
	};
}

void world_later(struct world *world, int64_t ms)
{
	world->now_ns += ms * WORLD_MS;
	if (world->ends_ns <= world->now_ns) {
		world->generation = 0;
		world->ends_ns = LK__NEVER;
	}
}

/* ---- Clients ------------------------------------------------------------------------------ */

void world_open(struct world_client *client)
{
	struct lk__name *name = lk__name_new(LK_KIND_LATCH, "gate", 4);

	client->queue = lk__wait_queue_open(&client->core, &client->session, name,
	                                    lk__wait_queue_new(10000, false));
	lk__latch_open(client->queue->name, lk__latch_new(TOPIC));
}

void world_init(struct world *world, int clients)
{
	memset(world, 0, sizeof(*world));
	world->now_ns = START_NS;
	world->client_count = clients;
	world->ends_ns = LK__NEVER;
	world->open_ttl_ms = 60000;
	for (int i = 0; i < clients; i++) {
		struct world_client *client = &world->clients[i];
		client->world = world;
		client->id = i;
		lk__session_init(&client->session, 1000000000, 1000000000);
		ck_assert(lk__core_init(&client->core, (uint64_t)i + 1));
		ck_assert(lk__core_add_session(&client->core, &client->session));
		world_open(client);
		world_link_up(client);
	}
}

void world_fini(struct world *world)
{
	for (int i = 0; i < world->client_count; i++)
		lk__core_fini(&world->clients[i].core);
	for (int i = 0; i < world->waiter_count; i++) {
		free(world->waiters[i]->spare_step);
		free(world->waiters[i]);
	}
}

static struct lk__op *new_waiter(struct world_client *client)
{
	struct world *world = client->world;
	struct lk__op *waiter = calloc(1, sizeof(*waiter));

	ck_assert(waiter != NULL);
	ck_assert_int_lt(world->waiter_count, WORLD_WAITERS);
	world->waiters[world->waiter_count++] = waiter;
	waiter->queue = client->queue;
	waiter->handle = client;
	return waiter;
}

struct lk__op *world_await(struct world_client *client, bool only_try, bool absent_is_open)
{
	struct lk__op *waiter = new_waiter(client);

	waiter->only_try = only_try;
	waiter->absent_is_open = absent_is_open;
	lk__core_await(&client->core, client->world->now_ns, waiter);
	return waiter;
}

struct lk__op *world_step(struct world_client *client, int64_t n, int name)
{
	struct lk__op *waiter = new_waiter(client);
	struct lk__step *step = calloc(1, sizeof(*step));

	ck_assert(step != NULL);
	step->n = (uint32_t)n;
	if (name) {
		step->name[0] = (char)('0' + name);
		step->len = 1;
	}
	waiter->spare_step = step;
	lk__core_step(&client->core, client->world->now_ns, waiter);
	return waiter;
}

bool world_take(struct world_client *client, struct world_call *call)
{
	struct lk__pending *request =
		lk__core_next_request(&client->core, &client->session, client->world->now_ns);
	const struct lk__step *step;

	memset(call, 0, sizeof(*call));
	if (!request)
		return false;
	call->request = request;
	call->kind = request->kind;
	if (call->kind == LK__STEP) {
		step = request->latch->steps;
		call->generation = step->generation;
		call->number = step->number;
		call->n = step->n;
		call->name = step->len ? step->name[0] - '0' : 0;
		ck_assert_uint_lt(call->number, WORLD_STEPS);
	}
	return true;
}

void world_answer(struct world_client *client, const struct world_call *call)
{
	lk__core_answer(&client->core, client->world->now_ns, call->request, &call->answer);
}

void world_refuse(struct world_client *client, const struct world_call *call, lk_err err,
                  bool passes)
{
	const struct lk__answer answer = {
		.kind = LK__FAILED, .err = err, .retryable = passes, .text = "refused"};

	lk__core_answer(&client->core, client->world->now_ns, call->request, &answer);
}

bool world_command(struct world_client *client)
{
	struct world *world = client->world;
	bool subscribe;

	if (!lk__channels_next(&client->session.channels, &subscribe))
		return false;
	if (!world->busy) {
		client->subscribed = subscribe;
		client->subscribes += subscribe;
		client->unsubscribes += !subscribe;
	}
	ck_assert_int_lt(client->inbox_count, WORLD_INBOX);
	client->inbox[client->inbox_count++].kind = world->busy ? WORLD_PUT_OFF
	                                            : subscribe ? WORLD_SUBSCRIBED
	                                                        : WORLD_UNSUBSCRIBED;
	return true;
}

bool world_hear(struct world_client *client)
{
	struct world_item item = client->inbox[0];
	struct lk__channels *channels = &client->session.channels;
	const struct lk__message message = {
		.kind = item.kind == WORLD_OPENED ? LK__OPENED : LK__REMOVED,
		.fence = item.generation,
	};

	if (!client->inbox_count)
		return false;
	client->inbox_count--;
	memmove(&client->inbox[0], &client->inbox[1],
	        sizeof(client->inbox[0]) * (size_t)client->inbox_count);
	if (item.kind == WORLD_PUT_OFF)
		lk__channels_put_off(channels, client->world->now_ns);
	else if (item.kind == WORLD_SUBSCRIBED || item.kind == WORLD_UNSUBSCRIBED)
		lk__channels_confirmed(channels, client->world->now_ns,
		                       item.kind == WORLD_SUBSCRIBED, TOPIC, strlen(TOPIC));
	else
		lk__channels_published(channels, client->world->now_ns, TOPIC, strlen(TOPIC),
		                       &message);
	return true;
}

void world_link_down(struct world_client *client)
{
	const struct lk__why why = {.err = LK_EUNKNOWN, .text = "the link is down"};

	client->subscribed = false;
	client->inbox_count = 0;
	lk__core_link_down(&client->core, &client->session, client->world->now_ns, &why, 0);
}

void world_link_up(struct world_client *client)
{
	lk__core_link_up(&client->core, &client->session, client->world->now_ns);
}

void world_tick(struct world_client *client)
{
	lk__core_tick(&client->core, client->world->now_ns);
}

/* ---- The network, whole
 * -------------------------------------------------------------------------- */

void world_settle(struct world *world)
{
	struct world_call call;
	bool busy = true;

	while (busy) {
		busy = false;
		for (int i = 0; i < world->client_count; i++) {
			struct world_client *client = &world->clients[i];
			world_tick(client);
			while (world_take(client, &call)) {
				world_execute(client, &call);
				world_answer(client, &call);
				busy = true;
			}
			while (world_command(client) || world_hear(client))
				busy = true;
			while (lk__core_next_done(&client->core))
				;
		}
	}
}

void world_pass(struct world *world, int64_t ms)
{
	int64_t end_ns = world->now_ns + ms * WORLD_MS;

	for (;;) {
		int64_t next_ns = end_ns;
		world_settle(world);
		if (world->now_ns >= end_ns)
			return;
		for (int i = 0; i < world->client_count; i++) {
			int64_t due_ns = lk__core_due(&world->clients[i].core);
			if (due_ns < next_ns)
				next_ns = due_ns;
		}
		world_later(world, (next_ns - world->now_ns) / WORLD_MS + 1);
	}
}

bool world_idle(const struct world *world)
{
	for (int i = 0; i < world->client_count; i++)
		if (lk__core_busy(&world->clients[i].core))
			return false;
	return true;
}
