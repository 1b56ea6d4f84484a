/* SPDX-License-Identifier: MIT
 * The explorer's chance, network and faults. */
#include "explorer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Chance -------------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t explorer_draw(struct explorer *explorer, uint64_t below)
{
	uint64_t z = explorer->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (z ^ (z >> 31)) % below;
}

bool explorer_percent(struct explorer *explorer, unsigned percents)
{
	return explorer_draw(explorer, 100) < percents;
}

int64_t explorer_within_ms(struct explorer *explorer, uint64_t ms)
{
	return (int64_t)explorer_draw(explorer, ms * 1000 + 1) * 1000;
}

static int64_t delay(struct explorer *explorer)
{
	/* Mostly short, sometimes as long as it gets. */
	return (int64_t)explorer_draw(
		explorer,
		(uint64_t)explorer->delay_max_ns / (explorer_percent(explorer, 80) ? 10 : 1) + 1);
}

int64_t explorer_message_delay(struct virt *virt, struct virt_client *client)
{
	(void)client;
	return delay((struct explorer *)virt); /* its first member */
}

/* ---- The network -------------------------------------------------------------------------- */

static void drop_call(struct actor *actor)
{
	actor->call_count--;
	memmove(&actor->calls[0], &actor->calls[1],
	        sizeof(actor->calls[0]) * (size_t)actor->call_count);
}

void actor_send(struct actor *actor)
{
	struct explorer *explorer = actor->explorer;
	struct explorer_call call = {0};

	actor->flush_ns = LK__NEVER;
	while (virt_take(actor->client, &call.call)) {
		int64_t at_ns = explorer->virt.now_ns + delay(explorer);
		if (actor->call_count == EXPLORER_CALLS)
			abort();
		if (actor->call_count && at_ns < actor->calls[actor->call_count - 1].call.at_ns)
			at_ns = actor->calls[actor->call_count - 1].call.at_ns;
		call.call.at_ns = at_ns;
		actor->calls[actor->call_count++] = call;
	}
}

void actor_execute(struct actor *actor)
{
	struct explorer *explorer = actor->explorer;
	struct explorer_call *call = actor->calls, *before;
	int64_t at_ns = explorer->virt.now_ns + delay(explorer);

	while (call->call.executed)
		call++;

	before = call > actor->calls ? call - 1 : NULL;
	if (explorer->virt.now_ns < explorer->sick_until_ns) {
		call->call.answer = (struct lk__answer){
			.kind = LK__FAILED, .err = LK_ESERVER, .passes = true, .text = "LOADING"};
		call->call.executed = true;
	} else if ((explorer->faults & FAULT_STORE) && !call->call.request->by_text &&
	           explorer_percent(explorer, 2)) {
		call->unknown = call->call.executed = true;
	} else {
		virt_execute(actor->client, &call->call);
	}
	call->call.at_ns = before && at_ns < before->call.at_ns ? before->call.at_ns : at_ns;
}

void actor_answer(struct actor *actor)
{
	struct explorer_call call = actor->calls[0];

	drop_call(actor);
	if (call.unknown)
		lk__core_resend(&actor->client->core, call.call.request);
	else
		virt_answer(actor->client, &call.call);
}

/* Of what was sent and not executed, the store has got a part or nothing. */
static void cut(struct actor *actor)
{
	struct explorer *explorer = actor->explorer;
	int part = (int)explorer_draw(explorer, (uint64_t)actor->call_count + 1);

	for (int i = 0; i < part; i++)
		if (!actor->calls[i].call.executed)
			virt_execute(actor->client, &actor->calls[i].call);
	actor->call_count = 0;
}

/* A subscription that broke may count for a while. */
static void lose_subscription(struct actor *actor)
{
	struct explorer *explorer = actor->explorer;

	virt_forget(actor->client);
	actor->client->subscribed = false;
	if (!explorer_percent(explorer, 40))
		return;
	actor->client->subscribed = actor->client->deaf = true;
	actor->half_open_ns = explorer->virt.now_ns + explorer_within_ms(explorer, 5000);
}

/* Long enough, sometimes, for a lease to end. */
static uint64_t outage_ms(const struct actor *actor)
{
	return (uint64_t)actor->places[0]->lease_ms * 3 / 2;
}

static void link_down(struct actor *actor)
{
	cut(actor);
	virt_link_down(actor->client,
	               explorer_percent(actor->explorer, 50) ? LK_ECONN : LK_EUNKNOWN);
	lose_subscription(actor);
	actor->black = false;
	actor->link_ns =
		actor->explorer->virt.now_ns +
		explorer_within_ms(actor->explorer,
	                           explorer_percent(actor->explorer, 70) ? 50 : outage_ms(actor));
}

void actor_change_link(struct actor *actor)
{
	if (actor->client->core.linked) {
		link_down(actor);
	} else {
		virt_link_up(actor->client);
		actor->link_ns = actor->half_open_ns = LK__NEVER;
	}
}

/* ---- Faults ------------------------------------------------------------------------------- */

static void crash(struct actor *actor)
{
	struct explorer *explorer = actor->explorer;
	int alive = 0;

	for (int i = 0; i < explorer->virt.client_count; i++)
		alive += !explorer->actors[i].dead;
	if (alive < 2)
		return;
	cut(actor);
	actor->dead = true;
	lose_subscription(actor);
}

static void hurt_links(struct actor *actor)
{
	struct explorer *explorer = actor->explorer;

	if (!actor->client->core.linked || actor->link_ns != LK__NEVER)
		return;
	if (explorer_percent(explorer, 60)) {
		link_down(actor);
	} else {
		/* Nothing comes through until somebody notices. */
		actor->black = actor->client->deaf = true;
		actor->link_ns = explorer->virt.now_ns + explorer_within_ms(explorer, 2000);
	}
}

static void force(struct explorer *explorer)
{
	switch (explorer_draw(explorer, 4)) {
	case 0:
		model_break(&explorer->virt.model, (int)explorer_draw(explorer, MODEL_NAMES));
		break;
	case 1: /* a restart of an empty server */
		model_flush(&explorer->virt.model);
		/* fall through */
	case 2: /* a restart */
		for (int i = 0; i < explorer->virt.client_count; i++) {
			struct actor *actor = &explorer->actors[i];
			actor->client->subscribed = false;
			actor->half_open_ns = LK__NEVER;
			if (!actor->dead && actor->client->core.linked) {
				actor->call_count = 0; /* none is executed */
				actor->black = true;
				actor->link_ns =
					explorer->virt.now_ns + explorer_within_ms(explorer, 100);
			}
		}
		break;
	default:
		model_flush(&explorer->virt.model);
	}
}

void explorer_chaos(struct explorer *explorer)
{
	struct actor *actor =
		&explorer->actors[explorer_draw(explorer, (uint64_t)explorer->virt.client_count)];
	unsigned fault = 1u << explorer_draw(explorer, 6);

	explorer->chaos_ns +=
		explorer_within_ms(explorer, (uint64_t)(explorer->chaos_each_ns / VIRT_MS) * 2);
	fault &= explorer->faults;
	if (actor->dead)
		return;
	if (fault == FAULT_LINKS)
		hurt_links(actor);
	else if (fault == FAULT_PAUSES)
		actor->resume_ns =
			explorer->virt.now_ns +
			explorer_within_ms(explorer,
		                           explorer_percent(explorer, 50) ? 100 : outage_ms(actor));
	else if (fault == FAULT_CRASHES && explorer_percent(explorer, 30))
		crash(actor);
	else if (fault == FAULT_MESSAGES && actor->client->inbox_count)
		actor->client->inbox_count--;
	else if (fault == FAULT_STORE)
		explorer->sick_until_ns = explorer->virt.now_ns + explorer_within_ms(explorer, 500);
	else if (fault == FAULT_FORCE)
		force(explorer);
}
