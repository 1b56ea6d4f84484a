/* SPDX-License-Identifier: MIT
 * The possible actions in a state of the model, within its bounds, and their execution. */
#include "world.h"

#include <stdio.h>
#include <string.h>

#define TICK_NS (INT64_C(1000000) * MODEL_TICK_MS)

static bool room(const struct model_world *world, enum model_verb verb, uint8_t most)
{
	return world->used[verb] < most;
}

static bool may_fail(const struct model_world *world, enum model_verb verb, uint8_t most)
{
	return world->faults < world->bounds->faults && room(world, verb, most);
}

/* A new wait, or count-down. */
static bool may_begin(const struct model_world *world, const struct model_client *client,
                      enum model_verb verb)
{
	const struct model_bounds *bounds = world->bounds;

	if (!client->alive || client->waiter || client->owner || client->begun >= bounds->calls ||
	    client->scripts >= bounds->steps || world_is_stranger(client))
		return false;
	switch (verb) {
	case DO_ACQUIRE:
		return bounds->kind != LK_KIND_LATCH;
	case DO_ACQUIRE_TWO:
		return bounds->kind == LK_KIND_SEMAPHORE && room(world, verb, bounds->twos);
	case DO_TRY:
		return bounds->kind != LK_KIND_LATCH && room(world, verb, bounds->tries);
	case DO_AWAIT_TRY:
		return bounds->kind == LK_KIND_LATCH && room(world, verb, bounds->tries);
	case DO_STEP_NAMED:
		return bounds->kind == LK_KIND_LATCH && room(world, verb, bounds->twos);
	default:
		return bounds->kind == LK_KIND_LATCH;
	}
}

/* A call about a hold, or about a pending call. */
static bool may_call(const struct model_world *world, const struct model_client *client,
                     enum model_verb verb)
{
	const struct model_bounds *bounds = world->bounds;
	const struct lk__op *waiter = client->waiter;
	const struct lk__hold *hold = world_hold(client);

	switch (verb) {
	case DO_RELEASE:
		return client->alive && client->owner && !waiter;
	case DO_RELEASE_ONE:
		return hold && !waiter && hold->count == 2 && !hold->lost &&
		       room(world, verb, bounds->shrinks);
	case DO_EXTEND:
		return hold && !waiter && !hold->lost && room(world, verb, bounds->extends);
	case DO_GIVE_UP:
		return waiter && !client->gave_up && room(world, verb, bounds->give_ups) &&
		       (waiter->awaits == LK__FOR_GRANT || waiter->awaits == LK__FOR_OPEN);
	case DO_ABANDON:
		return waiter && room(world, verb, bounds->abandons) &&
		       (waiter->awaits == LK__FOR_LEAVE || waiter->awaits == LK__FOR_EXTEND ||
		        waiter->awaits == LK__FOR_STEP || waiter->late);
	case DO_SET:
		return bounds->kind == LK_KIND_LATCH && client->linked && !waiter &&
		       client->scripts < bounds->steps && room(world, verb, bounds->sets);
	default:
		return bounds->kind == LK_KIND_LATCH && client->linked && !waiter &&
		       client->scripts < bounds->steps && room(world, verb, bounds->removes);
	}
}

/* Fewer replicas than all confirm: none, or one of two. */
static bool may_confirm(const struct model_world *world, struct model_client *client,
                        enum model_verb verb)
{
	const struct model_bounds *bounds = world->bounds;
	int count = verb != DO_SHORT;

	if (!world_next_call(client) || world_next_call(client)->kind != LK__CONFIRM ||
	    count > bounds->second)
		return false;
	return count >= bounds->replicas || room(world, DO_SHORT, bounds->shorts);
}

static bool may_happen(const struct model_world *world, struct model_client *client,
                       enum model_verb verb)
{
	const struct model_bounds *bounds = world->bounds;

	switch (verb) {
	case DO_EXECUTE:
		return world_next_call(client) && (client->scripts < bounds->steps ||
		                                   world_next_call(client)->kind == LK__CONFIRM);
	case DO_SHORT:
	case DO_FIRST:
	case DO_SECOND:
		return may_confirm(world, client, verb);
	case DO_SUBSCRIBE:
		return client->linked && client->session.channels.queue;
	case DO_ANSWER:
		return client->call_count && client->calls[0].executed;
	case DO_HEAR:
		return client->inbox_count;
	case DO_TIMER:
		return client->alive && lk__core_due(&client->core) <= world->now_ns;
	case DO_CUT:
		return client->linked && may_fail(world, verb, bounds->cuts);
	case DO_LINK:
		return client->alive && !client->linked;
	case DO_LATE:
		return client->late_count && room(world, verb, bounds->lates);
	case DO_CRASH:
		return client->alive && may_fail(world, verb, bounds->crashes);
	case DO_CRASH_UNSEEN:
		return client->alive && client->heard && may_fail(world, verb, bounds->crashes);
	case DO_REFUSE:
		return world_next_call(client) && may_fail(world, verb, bounds->refusals);
	case DO_PUT_OFF:
		return world_next_call(client) && may_fail(world, verb, bounds->put_offs);
	case DO_LOSE:
		return client->inbox_count && client->inbox[0].kind <= ITEM_BROADCAST &&
		       may_fail(world, verb, bounds->losses);
	default:
		return false;
	}
}

/* Time passes once every client has done all it can, or is stalled. */
static bool may_pass(const struct model_world *world)
{
	for (int i = 0; i < world->bounds->clients; i++)
		if (!world->clients[i].stalled && !world_rests(world, &world->clients[i]))
			return false;
	return world->ticks < world->bounds->ticks;
}

static bool may_promote(const struct model_world *world, int replica)
{
	const struct model_bounds *bounds = world->bounds;

	if (replica > bounds->second || !may_fail(world, DO_PROMOTE, bounds->promotions))
		return false;
	return !bounds->better || world->rule == RULE_OLDER_PROMOTED ||
	       world_is_better(world, replica);
}

/* The store's own faults. */
static bool may_lose(const struct model_world *world, enum model_verb verb)
{
	const struct model_bounds *bounds = world->bounds;

	switch (verb) {
	case DO_COPY_OTHER:
		if (!bounds->second)
			return false;
		/* fall through */
	case DO_COPY:
		return room(world, DO_COPY, bounds->copies) && world_may_lose(world);
	case DO_FLUSH:
		return may_fail(world, verb, bounds->flushes);
	case DO_RESTORE:
		return world->copies[0] && may_fail(world, verb, bounds->restarts);
	case DO_PROMOTE:
	case DO_PROMOTE_OTHER:
		return may_promote(world, verb == DO_PROMOTE_OTHER);
	default:
		return may_fail(world, verb, bounds->restarts);
	}
}

static bool may(const struct model_world *world, struct model_client *client, enum model_verb verb)
{
	if (verb == DO_TIME)
		return client == world->clients && may_pass(world);
	if (verb >= DO_COPY)
		return client == world->clients && may_lose(world, verb);
	if (verb == DO_LATE)
		return may_happen(world, client, verb);
	if (client->stalled)
		return false;
	if (verb == DO_STALL)
		return world->ticks < world->bounds->ticks &&
		       world->stalls < world->bounds->stalls && !world_rests(world, client);
	if (verb <= DO_TRY || (verb >= DO_AWAIT && verb <= DO_STEP_NAMED))
		return may_begin(world, client, verb);
	if (verb <= DO_ABANDON)
		return may_call(world, client, verb);
	return may_happen(world, client, verb);
}

/* ---- Partial order reduction -------------------------------------------------------------- */

static bool waits_in_store(const struct model_world *world, int index)
{
	const struct store_view *view = world_view(world);

	for (int i = 0; i < view->queued; i++)
		if (view->queue[i].text[2] == 'a' + index)
			return true;
	return false;
}

/* Its input leaves its hold valid: another client's hold would be seen beside it, after as
 * before. */
static bool keeps_hold(const struct model_client *client)
{
	for (int i = 0; i < client->call_count; i++)
		if (client->calls[i].answer.kind != LK__KEPT)
			return false;
	return !client->inbox_count;
}

/* Whatever the others do until this client acts, its action is possible then as now, with the same
 * effect, and it must act before time passes: none of its requests is still to be executed, the
 * store has no message for it, and others see its action only when the store executes a request,
 * which is another action.  So any order in which others come first leads to a state that is also
 * reached with this client first; exploring the latter is enough.  The action must not end a valid
 * hold, beside which another one might be seen.  Not for latches, where more is in flight between
 * clients and store. */
static bool is_alone(const struct model_world *world, int index)
{
	struct model_client *client = (struct model_client *)(uintptr_t)&world->clients[index];

	/* A loss of memory ends what is in flight. */
	if (world_may_lose(world))
		return false;
	return client->alive && !client->stalled && !world_rests(world, client) &&
	       world->bounds->kind != LK_KIND_LATCH && !client->session.channels.queue &&
	       !client->late_count && !world_next_call(client) &&
	       (!world_valid(world, client) || keeps_hold(client)) && !waits_in_store(world, index);
}

int world_actions(const struct model_world *world, bool reduced, uint8_t actions[MODEL_ACTIONS])
{
	int count = 0, first = 0, end = world->bounds->clients;

	for (int i = 0; reduced && i < world->bounds->clients; i++) {
		if (is_alone(world, i)) {
			first = i;
			end = i + 1;
			break;
		}
	}
	for (int verb = 0; verb < MODEL_VERBS; verb++) {
		for (int i = first; i < end; i++) {
			/* The explorer only reads: the owner of the calls makes no difference. */
			struct model_client *client =
				(struct model_client *)(uintptr_t)&world->clients[i];
			if (may(world, client, (enum model_verb)verb))
				actions[count++] = (uint8_t)(verb * MODEL_CLIENTS + i);
		}
	}
	return count;
}

static void happen(struct model_world *world, struct model_client *client, enum model_verb verb)
{
	switch (verb) {
	case DO_EXECUTE:
		world_execute(world, client, world_replicas(world));
		break;
	case DO_SHORT:
	case DO_FIRST:
	case DO_SECOND:
		world->used[DO_SHORT] += (verb != DO_SHORT) < world->bounds->replicas;
		world_execute(world, client, verb == DO_SHORT ? 0 : verb == DO_FIRST ? 1 : 2);
		break;
	case DO_SUBSCRIBE:
		world_subscribe(world, client);
		break;
	case DO_ANSWER:
		world_answer(world, client);
		break;
	case DO_HEAR:
		world_hear(world, client);
		break;
	case DO_TIMER:
		world_timer(world, client);
		break;
	case DO_STALL:
		world->stalls++;
		client->stalled = true;
		break;
	case DO_TIME:
		world->ticks++;
		for (int i = 0; i < world->bounds->clients; i++)
			world->clients[i].stalled = false;
		world_time(world, TICK_NS);
		break;
	case DO_LINK:
		world_link(world, client);
		break;
	case DO_LATE:
		world->used[verb]++;
		world_execute_late(world, client);
		break;
	case DO_CUT:
		world_cut(world, client);
		break;
	case DO_LOSE:
		world_lose(client);
		break;
	case DO_REFUSE:
	case DO_PUT_OFF:
		world_refuse(client, verb == DO_PUT_OFF);
		break;
	case DO_COPY:
	case DO_COPY_OTHER:
		world->used[DO_COPY]++;
		world_copy(world, verb == DO_COPY ? 1 : 2);
		break;
	case DO_FLUSH:
		world_flush(world);
		break;
	case DO_RESTART:
	case DO_RESTORE:
		world_restart(world, verb == DO_RESTORE);
		break;
	case DO_PROMOTE:
	case DO_PROMOTE_OTHER:
		world->used[DO_PROMOTE]++;
		world->faults++;
		world_promote(world, verb == DO_PROMOTE_OTHER);
		break;
	default:
		world_crash(world, client, verb == DO_CRASH_UNSEEN);
	}
}

void world_do(struct model_world *world, uint8_t action)
{
	struct model_client *client = &world->clients[action % MODEL_CLIENTS];
	enum model_verb verb = action / MODEL_CLIENTS;

	world->wrong = NULL;
	switch (verb) {
	case DO_CUT:
	case DO_LOSE:
	case DO_REFUSE:
	case DO_PUT_OFF:
	case DO_FLUSH:
		world->used[verb]++;
		world->faults++;
		break;
	case DO_RESTART:
	case DO_RESTORE:
		world->used[DO_RESTART]++;
		world->used[DO_RESTORE]++;
		world->faults++;
		break;
	case DO_CRASH:
	case DO_CRASH_UNSEEN:
		world->used[DO_CRASH]++;
		world->used[DO_CRASH_UNSEEN]++;
		world->faults++;
		break;
	case DO_TRY:
	case DO_AWAIT_TRY:
	case DO_ACQUIRE_TWO:
	case DO_STEP_NAMED:
		world->used[verb]++;
		client->begun++;
		break;
	case DO_ACQUIRE:
	case DO_AWAIT:
	case DO_STEP:
		client->begun++;
		break;
	case DO_RELEASE_ONE:
	case DO_EXTEND:
	case DO_GIVE_UP:
	case DO_ABANDON:
	case DO_SET:
	case DO_REMOVE:
		world->used[verb]++;
		break;
	default:
		break;
	}
	if (verb == DO_SET || verb == DO_REMOVE)
		world_question(world, client, verb);
	else if (verb <= DO_ABANDON)
		world_call(world, client, verb);
	else
		happen(world, client, verb);
}

/* ---- As text ------------------------------------------------------------------------------ */

static const char *const kinds[] = {
	[LK__ASK] = "ask",
	[LK__LEAVE] = "leave",
	[LK__HAND] = "hand",
	[LK__RENEW] = "renew",
	[LK__SHRINK] = "shrink",
	[LK__LOOK] = "look",
	[LK__STEP] = "step",
	[LK__RECLAIM] = "reclaim",
	[LK__EPOCH] = "question for the marker",
	[LK__CONFIRM] = "question for the replica",
};

static const char *const answers[] = {
	[LK__GRANTED] = "granted",
	[LK__QUEUED] = "queued",
	[LK__BUSY] = "busy",
	[LK__KEPT] = "held",
	[LK__GONE] = "gone",
	[LK__LEFT] = "left",
	[LK__SHOWN] = "shown",
	[LK__STEPPED] = "stepped",
	[LK__OTHER] = "other",
	[LK__FAILED] = "failed",
	[LK__STALE] = "epoch",
	[LK__MEMORY] = "the marker",
	[LK__CONFIRMED] = "how many replicas",
};

static const char *const messages[] = {
	[LK__GRANT] = "grant",   [LK__WANTED] = "wanted", [LK__REASK] = "again",
	[LK__BROKEN] = "broken", [LK__OPENED] = "open",   [LK__REMOVED] = "gone",
};

static const char *item_name(const struct model_item *item)
{
	if (item->kind == ITEM_SUBSCRIBED)
		return "subscribed";
	if (item->kind == ITEM_UNSUBSCRIBED)
		return "unsubscribed";
	return messages[item->message.kind];
}

static const char *const verbs[MODEL_VERBS] = {
	[DO_ACQUIRE] = "acquires",
	[DO_ACQUIRE_TWO] = "acquires two permits",
	[DO_TRY] = "tries",
	[DO_RELEASE] = "releases",
	[DO_RELEASE_ONE] = "releases one permit",
	[DO_EXTEND] = "extends its hold",
	[DO_AWAIT] = "awaits the latch",
	[DO_AWAIT_TRY] = "checks whether the latch is open",
	[DO_STEP] = "counts down",
	[DO_STEP_NAMED] = "counts down under a name",
	[DO_SET] = "sets the latch",
	[DO_REMOVE] = "removes the latch",
	[DO_GIVE_UP] = "waits no longer",
	[DO_ABANDON] = "does not wait for the reply",
	[DO_EXECUTE] = "the store runs its",
	[DO_SUBSCRIBE] = "the store executes its subscription",
	[DO_ANSWER] = "reads the answer:",
	[DO_HEAR] = "hears:",
	[DO_TIMER] = "sees its timer",
	[DO_STALL] = "stands still",
	[DO_TIME] = "time goes by",
	[DO_CUT] = "loses its connections",
	[DO_LINK] = "is connected again",
	[DO_LATE] = "the store runs, of a lost connection, its",
	[DO_CRASH] = "dies",
	[DO_CRASH_UNSEEN] = "dies, and the store still counts it as a receiver",
	[DO_LOSE] = "a message to it is lost:",
	[DO_REFUSE] = "the store refuses its",
	[DO_PUT_OFF] = "the store puts off its",
	[DO_SHORT] = "no replica confirms in time its",
	[DO_FIRST] = "only the first replica confirms in time its",
	[DO_SECOND] = "only the second replica confirms in time its",
	[DO_COPY] = "- the store saves a copy",
	[DO_COPY_OTHER] = "- the store saves a copy for the second replica",
	[DO_FLUSH] = "- the store is emptied",
	[DO_RESTART] = "- the store begins anew, empty",
	[DO_RESTORE] = "- the store begins anew, from the copy",
	[DO_PROMOTE] = "- a replica takes the store's place, with the copy if there is one",
	[DO_PROMOTE_OTHER] = "- the second replica takes the store's place, with its copy",
};

void world_tell(const struct model_world *world, uint8_t action, char *text, size_t size)
{
	struct model_client *client =
		(struct model_client *)(uintptr_t)&world->clients[action % MODEL_CLIENTS];
	enum model_verb verb = action / MODEL_CLIENTS;
	const char *what = "";

	if (verb == DO_EXECUTE || (verb >= DO_REFUSE && verb <= DO_SECOND))
		what = kinds[world_next_call(client)->kind];
	else if (verb == DO_LATE)
		what = kinds[client->late[0].kind];
	else if (verb == DO_ANSWER)
		what = answers[client->calls[0].answer.kind];
	else if (verb == DO_HEAR || verb == DO_LOSE)
		what = item_name(&client->inbox[0]);
	if (verb == DO_TIME)
		snprintf(text, size, "- %d s go by", MODEL_TICK_MS / 1000);
	else
		snprintf(text, size, "%c %s%s%s", 'A' + action % MODEL_CLIENTS, verbs[verb],
		         *what ? " " : "", what);
}
