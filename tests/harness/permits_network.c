/* SPDX-License-Identifier: MIT
 * The chance, network and faults of the explorer of permits. */
#include "permits_explorer.h"

#include "lua_store_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOCK_BACK_MAX_US INT64_C(30000000) /* in a run */

/* ---- Chance -------------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t permits_draw(struct permits_explorer *explorer, uint64_t below)
{
	uint64_t z = explorer->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (z ^ (z >> 31)) % below;
}

bool permits_percent(struct permits_explorer *explorer, unsigned percents)
{
	return permits_draw(explorer, 100) < percents;
}

int64_t permits_within_ms(struct permits_explorer *explorer, uint64_t ms)
{
	return (int64_t)permits_draw(explorer, ms * 1000 + 1) * 1000;
}

static int64_t delay(struct permits_explorer *explorer)
{
	/* Mostly short, sometimes as long as it gets. */
	return (int64_t)permits_draw(
		explorer,
		(uint64_t)explorer->delay_max_ns / (permits_percent(explorer, 80) ? 10 : 1) + 1);
}

int64_t permits_message_delay(struct permits_world *world, struct permits_client *client)
{
	(void)client;
	return delay((struct permits_explorer *)world); /* its first member */
}

/* ---- The network -------------------------------------------------------------------------- */

static void drop_call(struct permits_actor *actor)
{
	actor->call_count--;
	memmove(&actor->calls[0], &actor->calls[1],
	        sizeof(actor->calls[0]) * (size_t)actor->call_count);
}

void permits_actor_send(struct permits_actor *actor)
{
	struct permits_explorer *explorer = actor->explorer;
	struct permits_call call;

	actor->flush_ns = LK__NEVER;
	while (permits_take(actor->client, &call)) {
		int64_t at_ns = explorer->world.now_ns + delay(explorer);
		if (actor->call_count == PERMITS_CALLS)
			abort();
		if (actor->call_count && at_ns < actor->calls[actor->call_count - 1].at_ns)
			at_ns = actor->calls[actor->call_count - 1].at_ns;
		call.at_ns = at_ns;
		actor->calls[actor->call_count++] = call;
	}
}

static void execute(struct permits_actor *actor, struct permits_call *call)
{
	int name = permits_name_of(call->name);

	permits_check_before(actor->explorer, name);
	permits_execute(actor->client, call);
	permits_check_after(actor->explorer, name, actor, call);
}

/* Some server has it in its buffer, and comes to it later. */
static bool come_late(struct permits_actor *actor, const struct permits_call *call)
{
	struct permits_explorer *explorer = actor->explorer;
	struct permits_late *late = &explorer->late[explorer->late_count];

	if (!(explorer->faults & PERMITS_LATECOMERS) || explorer->late_count == PERMITS_LATE)
		return false;
	late->actor = actor;
	late->call = *call;
	late->call.request = NULL;
	late->call.reply = (struct lk__buf){0};
	late->call.bytes = (struct lk__buf){0};
	lua_reply_bytes(&late->call.bytes, call->bytes.data, call->bytes.len);
	late->call.at_ns = explorer->world.now_ns +
	                   permits_within_ms(explorer, permits_percent(explorer, 50) ? 50 : 3000);
	explorer->late_count++;
	return true;
}

void permits_actor_execute(struct permits_actor *actor)
{
	static const char loading[] = "-LOADING Redis is loading the dataset in memory\r\n";
	struct permits_explorer *explorer = actor->explorer;
	struct permits_call *call = actor->calls, *before;
	int64_t at_ns = explorer->world.now_ns + delay(explorer);

	while (call->executed)
		call++;
	before = call > actor->calls ? call - 1 : NULL;
	if (explorer->world.now_ns < explorer->sick_until_ns) {
		call->reply.data = strdup(loading);
		call->reply.len = call->reply.cap = sizeof(loading) - 1;
		call->executed = true;
	} else {
		execute(actor, call);
		/* As one that was sent again over a second connection, and comes late by the first.
		 */
		if (permits_percent(explorer, 3))
			come_late(actor, call);
	}
	call->at_ns = before && at_ns < before->at_ns ? before->at_ns : at_ns;
}

void permits_actor_answer(struct permits_actor *actor)
{
	struct permits_call call = actor->calls[0];

	drop_call(actor);
	permits_answer(actor->client, &call);
}

void permits_late_execute(struct permits_explorer *explorer)
{
	struct permits_late late;
	int first = 0;

	for (int i = 1; i < explorer->late_count; i++)
		if (explorer->late[i].call.at_ns < explorer->late[first].call.at_ns)
			first = i;
	late = explorer->late[first];
	explorer->late[first] = explorer->late[--explorer->late_count];
	execute(late.actor, &late.call);
	permits_call_fini(&late.call);
}

/* Of what was sent and not executed, the store has got a part or nothing. */
static void cut(struct permits_actor *actor)
{
	struct permits_explorer *explorer = actor->explorer;
	int part = (int)permits_draw(explorer, (uint64_t)actor->call_count + 1);

	for (int i = 0; i < actor->call_count; i++) {
		struct permits_call *call = &actor->calls[i];
		bool late = permits_percent(explorer, 50);
		if (i < part && !call->executed && !(late && come_late(actor, call)))
			execute(actor, call);
		permits_call_fini(call);
	}
	actor->call_count = 0;
}

/* A subscription that broke may count for a while. */
static void lose_subscription(struct permits_actor *actor)
{
	struct permits_explorer *explorer = actor->explorer;

	actor->client->inbox_count = 0;
	actor->client->subscribed = false;
	if (!permits_percent(explorer, 40))
		return;
	actor->client->subscribed = actor->client->deaf = true;
	actor->half_open_ns = explorer->world.now_ns + permits_within_ms(explorer, 5000);
}

/* Long enough, sometimes, for a lease to end. */
static uint64_t outage_ms(const struct permits_actor *actor)
{
	return (uint64_t)actor->places[0]->lease_ms * 3 / 2;
}

static void link_down(struct permits_actor *actor)
{
	struct permits_explorer *explorer = actor->explorer;

	cut(actor);
	permits_link_down(actor->client, permits_percent(explorer, 50) ? LK_ECONN : LK_EUNKNOWN);
	lose_subscription(actor);
	actor->black = false;
	actor->link_ns =
		explorer->world.now_ns +
		permits_within_ms(explorer, permits_percent(explorer, 70) ? 50 : outage_ms(actor));
}

void permits_actor_change_link(struct permits_actor *actor)
{
	actor->disturbed_ns = actor->explorer->world.now_ns;
	if (actor->client->core.linked) {
		link_down(actor);
	} else {
		permits_link_up(actor->client);
		actor->link_ns = actor->half_open_ns = LK__NEVER;
	}
}

bool permits_actor_is_fine(const struct permits_actor *actor, int64_t for_ns)
{
	const struct permits_explorer *explorer = actor->explorer;
	const struct permits_client *client = actor->client;
	int64_t since_ns = explorer->world.now_ns - for_ns;

	return !actor->dead && !actor->black && client->core.linked && client->subscribed &&
	       !client->deaf && actor->resume_ns <= since_ns && actor->disturbed_ns <= since_ns &&
	       explorer->sick_until_ns <= since_ns;
}

void permits_network_fini(struct permits_explorer *explorer)
{
	for (int i = 0; i < explorer->late_count; i++)
		permits_call_fini(&explorer->late[i].call);
	for (int i = 0; i < explorer->world.client_count; i++)
		for (int j = 0; j < explorer->actors[i].call_count; j++)
			permits_call_fini(&explorer->actors[i].calls[j]);
}

/* ---- Faults ------------------------------------------------------------------------------- */

static void crash(struct permits_actor *actor)
{
	struct permits_explorer *explorer = actor->explorer;
	int alive = 0;

	for (int i = 0; i < explorer->world.client_count; i++)
		alive += !explorer->actors[i].dead;
	if (alive < 2)
		return;
	cut(actor);
	actor->dead = true;
	lose_subscription(actor);
}

static void hurt_links(struct permits_actor *actor)
{
	struct permits_explorer *explorer = actor->explorer;

	if (!actor->client->core.linked || actor->link_ns != LK__NEVER)
		return;
	if (permits_percent(explorer, 60)) {
		link_down(actor);
	} else {
		/* Nothing comes through until somebody notices. */
		actor->black = actor->client->deaf = true;
		actor->link_ns = explorer->world.now_ns + permits_within_ms(explorer, 2000);
	}
}

static void flush(struct permits_explorer *explorer)
{
	lua_store_text(explorer->world.store, "FLUSHALL", NULL);
	for (int name = 0; name < PERMITS_NAMES; name++)
		permits_check_forced(explorer, name);
}

/* Every connection ends, and nothing that was sent is executed. */
static void restart(struct permits_explorer *explorer)
{
	for (int i = 0; i < explorer->world.client_count; i++) {
		struct permits_actor *actor = &explorer->actors[i];
		actor->client->subscribed = false;
		actor->half_open_ns = LK__NEVER;
		actor->disturbed_ns = explorer->world.now_ns;
		if (actor->dead || !actor->client->core.linked)
			continue;
		for (int j = 0; j < actor->call_count; j++)
			permits_call_fini(&actor->calls[j]);
		actor->call_count = 0;
		actor->black = true;
		actor->link_ns = explorer->world.now_ns + permits_within_ms(explorer, 100);
	}
}

/* Somebody breaks a hold. */
static void break_one(struct permits_explorer *explorer, int name)
{
	struct permits_view *view = &explorer->records[name].view;
	struct permits_grant *grant;
	const struct permits_ticket *hold;

	permits_look(&explorer->world, permits_name(name), view);
	if (!view->hold_count)
		return;
	hold = &view->holds[permits_draw(explorer, (uint64_t)view->hold_count)];
	grant = permits_grant_of(explorer, name, hold->fence);
	if (grant)
		grant->broken = true;
	permits_check_before(explorer, name);
	permits_break(&explorer->world, permits_name(name), hold->text);
	permits_check_after(explorer, name, NULL, NULL);
}

static void force(struct permits_explorer *explorer)
{
	int name = (int)permits_draw(explorer, PERMITS_NAMES);

	switch (permits_draw(explorer, 6)) {
	case 0:
	case 1:
		break_one(explorer, name);
		break;
	case 2: /* a restart of an empty server */
		flush(explorer);
		restart(explorer);
		break;
	case 3:
		restart(explorer);
		break;
	case 4: /* eviction of half */
		lua_store_text(
			explorer->world.store, "DEL",
			permits_key(permits_name(name), permits_percent(explorer, 50) ? "" : ":h"),
			NULL);
		permits_check_forced(explorer, name);
		explorer->records[name].torn = true;
		break;
	default:
		flush(explorer);
	}
}

/* Now it forgets scripts, now it refuses. */
static void sicken(struct permits_explorer *explorer)
{
	if (permits_percent(explorer, 50))
		lua_store_text(explorer->world.store, "SCRIPT", "FLUSH", NULL);
	else
		explorer->sick_until_ns = explorer->world.now_ns + permits_within_ms(explorer, 500);
}

static void step_back(struct permits_explorer *explorer)
{
	int64_t back_us = permits_within_ms(explorer, permits_percent(explorer, 50) ? 100 : 8000);

	back_us /= 1000;
	if (explorer->world.store_offset_us - back_us < -CLOCK_BACK_MAX_US)
		return;
	explorer->world.store_offset_us -= back_us;
	permits_set_time(&explorer->world, explorer->world.now_ns);
}

void permits_resize_one(struct permits_explorer *explorer)
{
	int name = (int)permits_draw(explorer, PERMITS_NAMES);
	int64_t capacity = 1 + (int64_t)permits_draw(explorer, explorer->capacity_max);

	explorer->resize_ns = explorer->world.now_ns + permits_within_ms(explorer, 4000);
	permits_check_before(explorer, name);
	permits_resize(&explorer->world, permits_name(name), capacity);
	permits_check_after(explorer, name, NULL, NULL);
}

void permits_chaos(struct permits_explorer *explorer)
{
	struct permits_actor *actor =
		&explorer->actors[permits_draw(explorer, (uint64_t)explorer->world.client_count)];
	unsigned fault = 1u << permits_draw(explorer, 7);

	explorer->chaos_ns +=
		permits_within_ms(explorer, (uint64_t)(explorer->chaos_each_ns / PERMITS_MS) * 2);
	fault &= explorer->faults;
	if (actor->dead)
		return;
	actor->disturbed_ns = explorer->world.now_ns;
	if (fault == PERMITS_LINKS)
		hurt_links(actor);
	else if (fault == PERMITS_PAUSES)
		actor->resume_ns =
			explorer->world.now_ns +
			permits_within_ms(explorer,
		                          permits_percent(explorer, 50) ? 100 : outage_ms(actor));
	else if (fault == PERMITS_CRASHES && permits_percent(explorer, 30))
		crash(actor);
	else if (fault == PERMITS_MESSAGES && actor->client->inbox_count)
		actor->client->inbox_count--;
	else if (fault == PERMITS_STORE)
		sicken(explorer);
	else if (fault == PERMITS_FORCE)
		force(explorer);
	else if (fault == PERMITS_CLOCK)
		step_back(explorer);
}
