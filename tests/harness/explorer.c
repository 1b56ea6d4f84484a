/* SPDX-License-Identifier: MIT
 * The explorer's run: each step is the event whose time comes first. */
#include "explorer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACTIVITY_NS (20000 * VIRT_MS)
#define ENDING_NS (60000 * VIRT_MS) /* until every wait has ended */
#define REST_NS (45000 * VIRT_MS)   /* until everything of the dead has run out */
#define ACTIVITY_STEPS 8000
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
	CHAOS
};

struct next {
	enum event event;
	int64_t at_ns;
	struct actor *actor;
	struct caller *caller;
	int ties;
};

/* What is overdue has no order: a stopped process finds it all at once. */
static void consider(struct next *next, struct explorer *explorer, enum event event, int64_t at_ns,
                     struct actor *actor, struct caller *caller)
{
	if (at_ns == LK__NEVER)
		return;
	if (actor && event != EXECUTE && event != HALF_OPEN && at_ns < actor->resume_ns)
		at_ns = actor->resume_ns;
	if (at_ns < explorer->virt.now_ns)
		at_ns = explorer->virt.now_ns;
	if (next->event != NOTHING && at_ns > next->at_ns)
		return;
	if (next->event != NOTHING && at_ns == next->at_ns) {
		if (explorer_draw(explorer, (uint64_t)++next->ties))
			return;
	} else {
		next->ties = 1;
	}
	next->event = event;
	next->at_ns = at_ns;
	next->actor = actor;
	next->caller = caller;
}

static void consider_callers(struct next *next, struct actor *actor)
{
	struct explorer *explorer = actor->explorer;

	for (int i = 0; i < EXPLORER_THREADS; i++) {
		struct caller *caller = &actor->callers[i];
		int64_t until_ns = virt_true(actor->client, caller->until_ns);
		int64_t limit_ns = virt_true(actor->client, caller->limit_ns);
		consider(next, explorer, CANCEL, caller->cancel_ns, actor, caller);
		if (caller->state == IDLE || caller->state == HOLDING)
			consider(next, explorer, CALLER, caller->next_ns, actor, caller);
		else
			consider(next, explorer, CALLER, until_ns < limit_ns ? until_ns : limit_ns,
			         actor, caller);
	}
}

static void consider_actor(struct next *next, struct actor *actor)
{
	struct explorer *explorer = actor->explorer;
	struct virt_client *client = actor->client;

	consider(next, explorer, HALF_OPEN, actor->half_open_ns, actor, NULL);
	if (actor->dead)
		return;
	if (!actor->black) {
		for (int i = 0; i < actor->call_count; i++) {
			if (!actor->calls[i].call.executed) {
				consider(next, explorer, EXECUTE, actor->calls[i].call.at_ns, actor,
				         NULL);
				break;
			}
		}
		if (actor->call_count && actor->calls[0].call.executed)
			consider(next, explorer, ANSWER, actor->calls[0].call.at_ns, actor, NULL);
	}
	if (client->inbox_count)
		consider(next, explorer, HEAR, client->inbox_at_ns[0], actor, NULL);
	consider(next, explorer, TICK, virt_true(client, lk__core_due(&client->core)), actor, NULL);
	consider(next, explorer, FLUSH, actor->flush_ns, actor, NULL);
	consider(next, explorer, LINK, actor->link_ns, actor, NULL);
	consider(next, explorer, CLOSE, actor->close_ns, actor, NULL);
	consider_callers(next, actor);
}

static void happen(struct explorer *explorer, const struct next *next)
{
	struct actor *actor = next->actor;

	switch (next->event) {
	case EXECUTE:
		actor_execute(actor);
		return;
	case ANSWER:
		actor_answer(actor);
		break;
	case HEAR:
		virt_hear(actor->client);
		break;
	case TICK:
		lk__core_tick(&actor->client->core, virt_now(actor->client));
		break;
	case FLUSH:
		actor_send(actor);
		break;
	case LINK:
		actor_change_link(actor);
		break;
	case HALF_OPEN:
		actor->half_open_ns = LK__NEVER;
		if (actor->dead || !actor->client->core.linked)
			actor->client->subscribed = false;
		return;
	case CALLER:
		caller_step(next->caller);
		break;
	case CANCEL:
		caller_give_up(next->caller, LK_ECANCELED);
		break;
	case CLOSE:
		actor_close(actor);
		break;
	default:
		explorer_chaos(explorer);
		return;
	}
	actor_settle(actor);
}

/* LK_TRACE=1: what happened, for the reader of one seed. */
static void trace(const struct explorer *explorer, const struct next *next)
{
	static const char *const events[] = {"nothing", "execute", "answer", "hear",
	                                     "tick",    "flush",   "link",   "half",
	                                     "caller",  "cancel",  "close",  "chaos"};
	const struct actor *actor = next->actor;
	const struct lk__ticket *ticket = actor ? actor->client->core.all_tickets : NULL;

	printf("%.6f %s", (double)explorer->virt.now_ns / 1e9, events[next->event]);
	if (actor)
		printf(" client %d", actor->client->id);
	if (next->caller)
		printf(" caller %d state %d", (int)(next->caller - actor->callers),
		       next->caller->state);
	for (; ticket; ticket = ticket->next)
		printf("\n    %s %s state %u main %u/%u leave %u valid %.6f due %.6f next %.6f "
		       "fence %llu",
		       ticket->nonce, ticket->place ? ticket->place->name->bytes : "-",
		       ticket->state, ticket->main.where, ticket->main.kind, ticket->leave.where,
		       (double)ticket->valid_until_ns / 1e9, (double)ticket->timer.due_ns / 1e9,
		       (double)ticket->next_ns / 1e9, (unsigned long long)ticket->last_fence);
	printf("\n");
}

static bool step(struct explorer *explorer, int64_t end_ns)
{
	struct next next = {.event = NOTHING};

	for (int i = 0; i < explorer->virt.client_count; i++)
		consider_actor(&next, &explorer->actors[i]);
	if (explorer->faults && !explorer->ending)
		consider(&next, explorer, CHAOS, explorer->chaos_ns, NULL, NULL);
	if (next.event == NOTHING || next.at_ns > end_ns || explorer->failure[0]) {
		virt_set_time(&explorer->virt, end_ns);
		return false;
	}
	virt_set_time(&explorer->virt, next.at_ns);
	happen(explorer, &next);
	if (explorer->trace)
		trace(explorer, &next);
	explorer_check_step(explorer);
	if (++explorer->steps > STEPS_MAX)
		explorer_fail(explorer, "%d steps, and no end", STEPS_MAX);
	return true;
}

/* ---- A run -------------------------------------------------------------------------------- */

static uint64_t pick(struct explorer *explorer, const int64_t choices[4])
{
	return (uint64_t)choices[explorer_draw(explorer, 4)];
}

static void init_actor(struct explorer *explorer, int index)
{
	struct actor *actor = &explorer->actors[index];
	struct virt_client *client = &explorer->virt.clients[index];
	int64_t lease_ms = (int64_t)pick(explorer, (const int64_t[]){150, 300, 1000, 4000});
	bool fixed = explorer_percent(explorer, 50);

	if (!explorer->faults && lease_ms < 600)
		lease_ms = 600;
	actor->explorer = explorer;
	actor->client = client;
	actor->flush_ns = actor->link_ns = actor->half_open_ns = LK__NEVER;
	actor->close_ns = LK__NEVER;
	if (explorer_percent(explorer, 10))
		actor->close_ns = explorer->virt.now_ns + explorer_within_ms(explorer, 12000);
	client->offset_ns = explorer_within_ms(explorer, 100000);
	client->drift_ppm = (int64_t)explorer_draw(explorer, 8001) - 4000;
	for (int i = 0; i < EXPLORER_PLACES; i++)
		actor->places[i] =
			virt_open(client, i & 1 ? "b" : "a", i & 2 ? lease_ms * 2 : lease_ms,
		                  i & 2 ? fixed : false);
	for (int i = 0; i < EXPLORER_THREADS; i++) {
		struct caller *caller = &actor->callers[i];
		caller->actor = actor;
		caller->owner = (uint64_t)(i + 1) * 2;
		caller->until_ns = caller->limit_ns = caller->cancel_ns = LK__NEVER;
		caller_plan(caller, 100);
	}
}

static bool waits_left(const struct explorer *explorer)
{
	for (int i = 0; i < explorer->virt.client_count; i++)
		for (int j = 0; j < EXPLORER_THREADS; j++)
			if (!explorer->actors[i].dead &&
			    explorer->actors[i].callers[j].state != IDLE)
				return true;
	return false;
}

static void free_spares(struct explorer *explorer)
{
	for (int i = 0; i < explorer->virt.client_count; i++) {
		for (int j = 0; j < EXPLORER_THREADS; j++) {
			free(explorer->actors[i].callers[j].waiter.spare_ticket);
			free(explorer->actors[i].callers[j].waiter.spare_hold);
		}
	}
}

bool explorer_run(struct explorer *explorer, uint64_t seed, unsigned faults)
{
	memset(explorer, 0, sizeof(*explorer));
	explorer->seed = explorer->random = seed;
	explorer->faults = faults;
	explorer->trace = getenv("LK_TRACE") != NULL;
	virt_init(&explorer->virt, 2 + (int)explorer_draw(explorer, VIRT_CLIENTS - 1), seed);
	explorer->virt.model.granted = explorer_check_grant;
	explorer->virt.delay_ns = explorer_message_delay;
	explorer->delay_max_ns =
		explorer_within_ms(explorer, faults && explorer_percent(explorer, 30) ? 700 : 20);
	explorer->idle_ms = pick(explorer, (const int64_t[]){1, 20, 200, 800});
	explorer->hold_ms = pick(explorer, (const int64_t[]){0, 10, 300, 6000});
	explorer->release_percent = explorer_percent(explorer, 70) ? 70 : 20;
	explorer->one_name = explorer_percent(explorer, 60);
	explorer->chaos_each_ns = VIRT_MS * (int64_t)(10 + explorer_draw(explorer, 300));
	explorer->chaos_ns = explorer->virt.now_ns;
	for (int i = 0; i < explorer->virt.client_count; i++)
		init_actor(explorer, i);
	explorer->end_ns = explorer->virt.now_ns + ACTIVITY_NS;
	while (step(explorer, explorer->end_ns) && explorer->steps < ACTIVITY_STEPS)
		;
	explorer->end_ns = explorer->virt.now_ns;
	explorer->ending = true;
	while (waits_left(explorer) && step(explorer, explorer->end_ns + ENDING_NS))
		;
	if (waits_left(explorer))
		explorer_fail(explorer, "somebody still waits or holds");
	while (step(explorer, explorer->end_ns + ENDING_NS + REST_NS))
		;
	if (!explorer->failure[0])
		explorer_check_end(explorer);
	free_spares(explorer);
	virt_fini(&explorer->virt);
	return !explorer->failure[0];
}
