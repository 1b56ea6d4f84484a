/* SPDX-License-Identifier: MIT
 * The run of the explorer of permits: each step is the event whose time comes first. */
#include "permits_explorer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACTIVITY_NS (20000 * PERMITS_MS)
#define ACTIVITY_LONG_NS (80000 * PERMITS_MS) /* beyond the patience with a head */
#define ENDING_NS (90000 * PERMITS_MS)        /* until every wait has ended */
#define REST_NS (45000 * PERMITS_MS)          /* until everything of the dead has run out */
#define ACTIVITY_STEPS 6000
#define STEPS_MAX 100000 /* more of them have no end */

/* What can happen next. */
enum event {
	NOTHING,
	EXECUTE,
	ANSWER,
	HEAR,
	TICK,
	FLUSH,
	LINK,
	HALF_OPEN,
	CALLER,
	CANCEL,
	CLOSE,
	LATE,
	RESIZE,
	CHAOS
};

struct next {
	enum event event;
	int64_t at_ns;
	struct permits_actor *actor;
	struct permits_caller *caller;
	int ties;
};

const char *permits_name(int name)
{
	return name ? "t" : "s";
}

int permits_name_of(const char *name)
{
	return name[0] == 't';
}

/* What is overdue has no order: a stopped process finds it all at once. */
static void consider(struct next *next, struct permits_explorer *explorer, enum event event,
                     int64_t at_ns, struct permits_actor *actor, struct permits_caller *caller)
{
	if (at_ns == LK__NEVER)
		return;
	if (actor && event != EXECUTE && event != HALF_OPEN && at_ns < actor->resume_ns)
		at_ns = actor->resume_ns;
	if (at_ns < explorer->world.now_ns)
		at_ns = explorer->world.now_ns;
	if (next->event != NOTHING && at_ns > next->at_ns)
		return;
	if (next->event != NOTHING && at_ns == next->at_ns) {
		if (permits_draw(explorer, (uint64_t)++next->ties))
			return;
	} else {
		next->ties = 1;
	}
	next->event = event;
	next->at_ns = at_ns;
	next->actor = actor;
	next->caller = caller;
}

static void consider_callers(struct next *next, struct permits_actor *actor)
{
	struct permits_explorer *explorer = actor->explorer;

	for (int i = 0; i < PERMITS_THREADS; i++) {
		struct permits_caller *caller = &actor->callers[i];
		int64_t until_ns = permits_true(actor->client, caller->until_ns);
		int64_t limit_ns = permits_true(actor->client, caller->limit_ns);
		consider(next, explorer, CANCEL, caller->cancel_ns, actor, caller);
		if (caller->state == PERMITS_IDLE || caller->state == PERMITS_HOLDING)
			consider(next, explorer, CALLER, caller->next_ns, actor, caller);
		else
			consider(next, explorer, CALLER, until_ns < limit_ns ? until_ns : limit_ns,
			         actor, caller);
	}
}

static void consider_calls(struct next *next, struct permits_actor *actor)
{
	struct permits_explorer *explorer = actor->explorer;

	for (int i = 0; i < actor->call_count; i++) {
		if (!actor->calls[i].executed) {
			consider(next, explorer, EXECUTE, actor->calls[i].at_ns, actor, NULL);
			break;
		}
	}
	if (actor->call_count && actor->calls[0].executed)
		consider(next, explorer, ANSWER, actor->calls[0].at_ns, actor, NULL);
}

static void consider_actor(struct next *next, struct permits_actor *actor)
{
	struct permits_explorer *explorer = actor->explorer;
	struct permits_client *client = actor->client;

	consider(next, explorer, HALF_OPEN, actor->half_open_ns, actor, NULL);
	if (actor->dead)
		return;
	if (!actor->black)
		consider_calls(next, actor);
	if (client->inbox_count)
		consider(next, explorer, HEAR, client->inbox[0].at_ns, actor, NULL);
	consider(next, explorer, TICK, permits_true(client, lk__core_due(&client->core)), actor,
	         NULL);
	consider(next, explorer, FLUSH, actor->flush_ns, actor, NULL);
	consider(next, explorer, LINK, actor->link_ns, actor, NULL);
	consider(next, explorer, CLOSE, actor->close_ns, actor, NULL);
	consider_callers(next, actor);
}

static void happen(struct permits_explorer *explorer, const struct next *next)
{
	struct permits_actor *actor = next->actor;

	switch (next->event) {
	case EXECUTE:
		permits_actor_execute(actor);
		return;
	case ANSWER:
		permits_actor_answer(actor);
		break;
	case HEAR:
		permits_hear(actor->client);
		break;
	case TICK:
		lk__core_tick(&actor->client->core, permits_now(actor->client));
		break;
	case FLUSH:
		permits_actor_send(actor);
		break;
	case LINK:
		permits_actor_change_link(actor);
		break;
	case HALF_OPEN:
		actor->half_open_ns = LK__NEVER;
		if (actor->dead || !actor->client->core.linked)
			actor->client->subscribed = false;
		return;
	case CALLER:
		permits_caller_step(next->caller);
		break;
	case CANCEL:
		permits_caller_give_up(next->caller, LK_ECANCELED);
		break;
	case CLOSE:
		permits_actor_close(actor);
		break;
	case LATE:
		permits_late_execute(explorer);
		return;
	case RESIZE:
		permits_resize_one(explorer);
		return;
	default:
		permits_chaos(explorer);
		return;
	}
	permits_actor_settle(actor);
}

/* LK_TRACE=1: what happened, for the reader of one seed. */
static void trace(struct permits_explorer *explorer, const struct next *next)
{
	static const char *const events[] = {"nothing", "execute", "answer", "hear",   "tick",
	                                     "flush",   "link",    "half",   "caller", "cancel",
	                                     "close",   "late",    "resize", "chaos"};
	const struct permits_actor *actor = next->actor;
	const struct lk__ticket *ticket = actor ? actor->client->core.all_tickets : NULL;

	printf("%.6f %s", (double)explorer->world.now_ns / 1e9, events[next->event]);
	if (actor)
		printf(" client %d", actor->client->id);
	if (next->caller)
		printf(" caller %d state %d", (int)(next->caller - actor->callers),
		       next->caller->state);
	for (; ticket; ticket = ticket->next)
		printf("\n    %s %s x%u state %u main %u/%u leave %u valid %.6f due %.6f next %.6f "
		       "fence %llu",
		       ticket->nonce, ticket->place ? ticket->place->name->bytes : "-",
		       ticket->place ? ticket->place->permits : 0, ticket->state,
		       ticket->main.where, ticket->main.kind, ticket->leave.where,
		       (double)ticket->valid_until_ns / 1e9, (double)ticket->timer.due_ns / 1e9,
		       (double)ticket->next_ns / 1e9, (unsigned long long)ticket->last_fence);
	for (int name = 0; name < PERMITS_NAMES; name++) {
		struct permits_view *view = &explorer->records[name].view;
		permits_look(&explorer->world, permits_name(name), view);
		printf("\n  %s %lld/%lld:", permits_name(name), (long long)view->used,
		       (long long)view->capacity);
		for (int i = 0; i < view->hold_count; i++)
			printf(" %c.%s x%u until %+.6f", 'a' + view->holds[i].client,
			       view->holds[i].nonce, view->holds[i].held,
			       (double)(view->holds[i].end_us -
			                permits_store_us(&explorer->world)) /
			               1e6);
		printf(" | queue");
		for (int i = 0; i < view->queued; i++)
			printf(" %c.%s x%u", 'a' + view->queue[i].client, view->queue[i].nonce,
			       view->queue[i].permits);
	}
	printf("\n");
}

static bool step(struct permits_explorer *explorer, int64_t end_ns)
{
	struct next next = {.event = NOTHING};
	int late = 0; /* the first of them */

	for (int i = 0; i < explorer->world.client_count; i++)
		consider_actor(&next, &explorer->actors[i]);
	for (int i = 1; i < explorer->late_count; i++)
		if (explorer->late[i].call.at_ns < explorer->late[late].call.at_ns)
			late = i;
	if (explorer->late_count)
		consider(&next, explorer, LATE, explorer->late[late].call.at_ns, NULL, NULL);
	if (explorer->resizes && !explorer->ending)
		consider(&next, explorer, RESIZE, explorer->resize_ns, NULL, NULL);
	if (explorer->faults && !explorer->ending)
		consider(&next, explorer, CHAOS, explorer->chaos_ns, NULL, NULL);
	if (next.event == NOTHING || next.at_ns > end_ns || explorer->failure[0]) {
		permits_set_time(&explorer->world, end_ns);
		return false;
	}
	permits_set_time(&explorer->world, next.at_ns);
	happen(explorer, &next);
	if (explorer->trace)
		trace(explorer, &next);
	permits_check_step(explorer);
	if (++explorer->steps > STEPS_MAX)
		permits_fail(explorer, "%d steps, and no end", STEPS_MAX);
	return true;
}

/* ---- A run -------------------------------------------------------------------------------- */

static uint64_t pick(struct permits_explorer *explorer, const int64_t choices[4])
{
	return (uint64_t)choices[permits_draw(explorer, 4)];
}

static void init_actor(struct permits_explorer *explorer, int index)
{
	struct permits_actor *actor = &explorer->actors[index];
	struct permits_client *client = &explorer->world.clients[index];
	int64_t lease_ms = (int64_t)pick(explorer, (const int64_t[]){150, 300, 1000, 6000});
	bool fixed = explorer->any_fixed && permits_percent(explorer, 80);

	if (!explorer->faults && lease_ms < 600)
		lease_ms = 600;
	actor->explorer = explorer;
	actor->client = client;
	actor->flush_ns = actor->link_ns = actor->half_open_ns = LK__NEVER;
	actor->close_ns = LK__NEVER;
	actor->disturbed_ns = -ENDING_NS;
	if (permits_percent(explorer, 10))
		actor->close_ns = explorer->world.now_ns + permits_within_ms(explorer, 12000);
	client->offset_ns = permits_within_ms(explorer, 100000);
	client->drift_ppm = (int64_t)permits_draw(explorer, 8001) - 4000;
	for (int i = 0; i < PERMITS_NAMES * PERMITS_KINDS; i++)
		actor->places[i] = permits_open(
			client, permits_name(i / PERMITS_KINDS), explorer->capacity_max,
			i % 2 ? lease_ms * 2 : lease_ms, i % 2 ? fixed : false);
	for (int i = 0; i < PERMITS_THREADS; i++) {
		struct permits_caller *caller = &actor->callers[i];
		caller->actor = actor;
		caller->until_ns = caller->limit_ns = caller->cancel_ns = LK__NEVER;
		permits_caller_plan(caller, 100);
	}
}

static bool waits_left(const struct permits_explorer *explorer)
{
	for (int i = 0; i < explorer->world.client_count; i++)
		for (int j = 0; j < PERMITS_THREADS; j++)
			if (!explorer->actors[i].dead &&
			    explorer->actors[i].callers[j].state != PERMITS_IDLE)
				return true;
	return false;
}

static void free_spares(struct permits_explorer *explorer)
{
	for (int i = 0; i < explorer->world.client_count; i++) {
		for (int j = 0; j < PERMITS_THREADS; j++) {
			struct lk__waiter *waiter = &explorer->actors[i].callers[j].waiter;
			free(waiter->spare_ticket);
			free(waiter->spare_hold);
			free(waiter->spare_place);
		}
	}
}

static void init_run(struct permits_explorer *explorer, uint64_t seed, unsigned faults)
{
	memset(explorer, 0, sizeof(*explorer));
	explorer->seed = explorer->random = seed;
	explorer->faults = faults;
	explorer->trace = getenv("LK_TRACE") != NULL;
	permits_init(&explorer->world, 2 + (int)permits_draw(explorer, PERMITS_CLIENTS - 1), seed);
	explorer->world.delay_ns = permits_message_delay;
	explorer->delay_max_ns =
		permits_within_ms(explorer, faults && permits_percent(explorer, 30) ? 700 : 20);
	explorer->idle_ms = pick(explorer, (const int64_t[]){1, 20, 200, 800});
	explorer->hold_ms = pick(explorer, (const int64_t[]){0, 10, 300, 6000});
	explorer->release_percent = permits_percent(explorer, 70) ? 60 : 20;
	explorer->forget_percent = permits_percent(explorer, 50) ? 80 : 20;
	explorer->capacity_max = (uint32_t)pick(explorer, (const int64_t[]){1, 3, 5, 12});
	explorer->any_fixed = permits_percent(explorer, 75);
	explorer->one_name = permits_percent(explorer, 60);
	explorer->resizes = permits_percent(explorer, 40);
	explorer->resize_ns = explorer->world.now_ns + permits_within_ms(explorer, 4000);
	explorer->chaos_each_ns = PERMITS_MS * (int64_t)(10 + permits_draw(explorer, 300));
	explorer->chaos_ns = explorer->world.now_ns;
	for (int i = 0; i < explorer->world.client_count; i++)
		init_actor(explorer, i);
}

bool permits_explore(struct permits_explorer *explorer, uint64_t seed, unsigned faults)
{
	init_run(explorer, seed, faults);
	explorer->end_ns = explorer->world.now_ns +
	                   (permits_percent(explorer, 30) ? ACTIVITY_LONG_NS : ACTIVITY_NS);
	while (step(explorer, explorer->end_ns) && explorer->steps < ACTIVITY_STEPS)
		;
	explorer->end_ns = explorer->world.now_ns;
	explorer->ending = true;
	while (waits_left(explorer) && step(explorer, explorer->end_ns + ENDING_NS))
		;
	if (waits_left(explorer))
		permits_fail(explorer, "somebody still waits or holds");
	while (step(explorer, explorer->end_ns + ENDING_NS + REST_NS -
	                              explorer->world.store_offset_us * 1000))
		;
	if (!explorer->failure[0])
		permits_check_end(explorer);
	permits_network_fini(explorer);
	free_spares(explorer);
	permits_fini(&explorer->world);
	return !explorer->failure[0];
}
