/* SPDX-License-Identifier: MIT
 * The possible actions in a state of the model, within its bounds, and their execution. */
#include "etcd.h"

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
	bool linked = client->links[0].linked;

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
		return bounds->kind == LK_KIND_LATCH && linked && !waiter &&
		       client->scripts < bounds->steps && room(world, verb, bounds->sets);
	default:
		return bounds->kind == LK_KIND_LATCH && linked && !waiter &&
		       client->scripts < bounds->steps && room(world, verb, bounds->removes);
	}
}

/* Fewer replicas than all confirm: none, or one of two. */
static bool may_confirm(const struct model_world *world, struct model_link *link,
                        enum model_verb verb)
{
	const struct model_bounds *bounds = world->bounds;
	int count = verb != DO_SHORT;

	if (!world_next_call(link) || world_next_call(link)->kind != LK__CONFIRM ||
	    count > bounds->second)
		return false;
	return count >= bounds->replicas || room(world, DO_SHORT, bounds->shorts);
}

static bool may_delay(const struct model_world *world)
{
	return !world->bounds->any_order && may_fail(world, DO_LATE_ANSWER, world->bounds->delays);
}

static bool may_happen(const struct model_world *world, struct model_link *link,
                       enum model_verb verb)
{
	const struct model_bounds *bounds = world->bounds;
	const struct model_client *client = link->client;

	switch (verb) {
	case DO_EXECUTE:
		return world_next_call(link) && (client->scripts < bounds->steps ||
		                                 world_next_call(link)->kind == LK__CONFIRM);
	case DO_SHORT:
	case DO_FIRST:
	case DO_SECOND:
		return may_confirm(world, link, verb);
	case DO_SUBSCRIBE:
		return link->linked && link->session.channels.queue;
	case DO_ANSWER:
		return link->call_count && link->calls[0].executed;
	case DO_HEAR:
		return link->inbox_count;
	case DO_CUT:
		return link->linked && may_fail(world, verb, bounds->cuts);
	case DO_LINK:
		return client->alive && !link->linked && !link->server->down;
	case DO_LATE_ANSWER:
		return link->call_count && link->calls[0].executed && !link->is_answer_late &&
		       may_delay(world);
	case DO_LATE_MESSAGE:
		return link->inbox_count && !link->is_message_late && may_delay(world);
	case DO_SLOW:
		return (link->call_count || link->inbox_count) && world->ticks < bounds->ticks &&
		       may_fail(world, verb, bounds->slows);
	case DO_LATE:
		return link->late_count && room(world, verb, bounds->lates);
	case DO_REFUSE:
		return world_next_call(link) && may_fail(world, verb, bounds->refusals);
	case DO_PUT_OFF:
		return world_next_call(link) && may_fail(world, verb, bounds->put_offs);
	case DO_LOSE:
		return link->inbox_count && link->inbox[0].kind <= ITEM_BROADCAST &&
		       may_fail(world, verb, bounds->losses);
	default:
		return false;
	}
}

static bool is_heard(const struct model_world *world, const struct model_client *client)
{
	for (int i = 0; i < world->server_count; i++)
		if (client->links[i].heard)
			return true;
	return false;
}

/* What is not of one link. */
static bool may_happen_to(const struct model_world *world, const struct model_client *client,
                          enum model_verb verb)
{
	const struct model_bounds *bounds = world->bounds;

	switch (verb) {
	case DO_STALL:
		return world->ticks < bounds->ticks && world->stalls < bounds->stalls &&
		       !world_rests(world, client);
	case DO_TIMER:
		return client->alive && lk__core_due(&client->core) <= world->now_ns;
	case DO_CRASH:
		return client->alive && may_fail(world, verb, bounds->crashes);
	default:
		return client->alive && is_heard(world, client) &&
		       may_fail(world, verb, bounds->crashes);
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
static bool may_lose(const struct model_world *world, const struct model_server *server,
                     enum model_verb verb)
{
	const struct model_bounds *bounds = world->bounds;

	if (server->down)
		return false;
	switch (verb) {
	case DO_DOWN:
		return may_fail(world, verb, bounds->downs);
	case DO_JUMP:
		return may_fail(world, verb, bounds->jumps);
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
	case DO_RESTART:
		return may_fail(world, verb, bounds->restarts);
	default:
		return false; /* etcd's */
	}
}

/* Whose action is it: a client's, a server's, or one of their link? */
enum agent { OF_CLIENT, OF_SERVER, OF_LINK };

static enum agent agent_of(enum model_verb verb)
{
	if (verb <= DO_ABANDON || verb == DO_TIMER || verb == DO_STALL || verb == DO_CRASH ||
	    verb == DO_CRASH_UNSEEN)
		return OF_CLIENT;
	return verb == DO_TIME || verb >= DO_COPY ? OF_SERVER : OF_LINK;
}

bool world_is_fault(enum model_verb verb)
{
	switch (verb) {
	case DO_GIVE_UP:
	case DO_ABANDON:
	case DO_STALL:
	case DO_SLOW:
	case DO_CUT:
	case DO_CRASH:
	case DO_CRASH_UNSEEN:
	case DO_LOSE:
	case DO_REFUSE:
	case DO_PUT_OFF:
		return true;
	default:
		return verb >= DO_COPY;
	}
}

bool world_is_of_server(enum model_verb verb)
{
	return agent_of(verb) != OF_CLIENT;
}

bool world_may(const struct model_world *world, struct model_link *link, enum model_verb verb)
{
	const struct model_client *client = link->client;
	enum agent agent = agent_of(verb);

	if ((agent == OF_CLIENT && link->server != world->servers) ||
	    (agent == OF_SERVER && client != world->clients))
		return false;
	if (verb == DO_TIME)
		return link->server == world->servers && may_pass(world);
	if (agent == OF_SERVER)
		return may_lose(world, link->server, verb);
	if (verb == DO_LATE)
		return may_happen(world, link, verb);
	if (client->stalled || (agent == OF_LINK && link->stalled))
		return false;
	if (agent == OF_LINK)
		return may_happen(world, link, verb);
	if (verb <= DO_TRY || (verb >= DO_AWAIT && verb <= DO_STEP_NAMED))
		return may_begin(world, client, verb);
	if (verb <= DO_ABANDON)
		return may_call(world, client, verb);
	return may_happen_to(world, client, verb);
}

/* ---- Partial order reduction -------------------------------------------------------------- */

static bool waits_in_store(const struct model_world *world, int index)
{
	const struct store_view *view = world_view(world->servers);

	for (int i = 0; i < view->queued; i++)
		if (world_owner(&view->queue[i]) == index)
			return true;
	return false;
}

/* Its input leaves its hold valid: another client's hold would be seen beside it, after as
 * before. */
static bool keeps_hold(const struct model_link *link)
{
	for (int i = 0; i < link->call_count; i++)
		if (link->calls[i].answer.kind != LK__KEPT)
			return false;
	return !link->inbox_count;
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
	struct model_link *link = &client->links[0];

	/* A loss of memory ends what is in flight. */
	if (world->bounds->servers || world_may_lose(world))
		return false;
	return client->alive && !client->stalled && !world_rests(world, client) &&
	       world->bounds->kind != LK_KIND_LATCH && !link->session.channels.queue &&
	       !link->late_count && !world_next_call(link) &&
	       (!world_valid(world, client) || keeps_hold(link)) && !waits_in_store(world, index);
}

uint16_t world_action(const struct model_world *world, const struct model_link *link,
                      enum model_verb verb)
{
	int client = world_index(world, link->client), server = world_server(world, link->server);

	return (uint16_t)(((int)verb * MODEL_CLIENTS + client) * MODEL_SERVERS + server);
}

enum model_verb world_verb_of(uint16_t action)
{
	return action / (MODEL_CLIENTS * MODEL_SERVERS);
}

struct model_link *world_link_of(const struct model_world *world, uint16_t action)
{
	const struct model_client *client = &world->clients[action / MODEL_SERVERS % MODEL_CLIENTS];

	return &client->links[action % MODEL_SERVERS];
}

int world_actions(const struct model_world *world, bool reduced, uint16_t actions[MODEL_ACTIONS])
{
	int count = 0, first = 0, end = world->bounds->clients;

	if (world->etcd)
		return etcd_actions(world, actions);
	if (world->bounds->servers && !world->bounds->any_order &&
	    (count = world_urgent(world, actions)))
		return count;
	for (int i = 0; reduced && i < world->bounds->clients; i++) {
		if (is_alone(world, i)) {
			first = i;
			end = i + 1;
			break;
		}
	}
	for (int verb = 0; verb < MODEL_VERBS; verb++) {
		for (int i = first; i < end; i++) {
			for (int j = 0; j < world->server_count; j++) {
				struct model_link *link = &world->clients[i].links[j];
				if (world_may(world, link, (enum model_verb)verb))
					actions[count++] =
						world_action(world, link, (enum model_verb)verb);
			}
		}
	}
	return count;
}

static void pass_tick(struct model_world *world)
{
	world->ticks++;
	for (int i = 0; i < world->bounds->clients; i++) {
		world->clients[i].stalled = false;
		for (int j = 0; j < world->server_count; j++)
			world->clients[i].links[j].stalled = false;
	}
	world_time(world, TICK_NS);
}

/* A fault of the network, a process or a server. */
static void fail(struct model_world *world, struct model_link *link, enum model_verb verb)
{
	switch (verb) {
	case DO_STALL:
		world->stalls++;
		link->client->stalled = true;
		break;
	case DO_SLOW:
		link->stalled = true;
		break;
	case DO_LATE_ANSWER:
		link->is_answer_late = true;
		break;
	case DO_LATE_MESSAGE:
		link->is_message_late = true;
		break;
	case DO_CUT:
		world_cut(world, link);
		break;
	case DO_LOSE:
		world_lose(link);
		break;
	case DO_REFUSE:
	case DO_PUT_OFF:
		world_refuse(link, verb == DO_PUT_OFF);
		break;
	case DO_FLUSH:
		world_flush(world, link->server);
		break;
	case DO_RESTART:
	case DO_RESTORE:
		world_restart(world, link->server, verb == DO_RESTORE);
		break;
	case DO_PROMOTE:
	case DO_PROMOTE_OTHER:
		world->used[DO_PROMOTE]++;
		world->faults++;
		world_promote(world, verb == DO_PROMOTE_OTHER);
		break;
	case DO_DOWN:
		world_down(world, link->server);
		break;
	case DO_JUMP:
		world_jump(world, link->server);
		break;
	default:
		world_crash(world, link->client, verb == DO_CRASH_UNSEEN);
	}
}

static void happen(struct model_world *world, struct model_link *link, enum model_verb verb)
{
	switch (verb) {
	case DO_EXECUTE:
		world_execute(world, link, world_replicas(world));
		break;
	case DO_SHORT:
	case DO_FIRST:
	case DO_SECOND:
		world->used[DO_SHORT] += (verb != DO_SHORT) < world->bounds->replicas;
		world_execute(world, link, verb == DO_SHORT ? 0 : verb == DO_FIRST ? 1 : 2);
		break;
	case DO_SUBSCRIBE:
		world_subscribe(world, link);
		break;
	case DO_ANSWER:
		world_answer(world, link);
		break;
	case DO_HEAR:
		world_hear(world, link);
		break;
	case DO_TIMER:
		world_timer(world, link->client);
		break;
	case DO_TIME:
		pass_tick(world);
		break;
	case DO_LINK:
		world_link(world, link);
		break;
	case DO_LATE:
		world->used[verb]++;
		world_execute_late(world, link);
		break;
	case DO_COPY:
	case DO_COPY_OTHER:
		world->used[DO_COPY]++;
		world_copy(world, verb == DO_COPY ? 1 : 2);
		break;
	default:
		fail(world, link, verb);
	}
}

/* What the bounds count of it. */
static void count(struct model_world *world, struct model_client *client, enum model_verb verb)
{
	switch (verb) {
	case DO_CUT:
	case DO_LOSE:
	case DO_REFUSE:
	case DO_PUT_OFF:
	case DO_FLUSH:
	case DO_SLOW:
	case DO_DOWN:
	case DO_JUMP:
		world->used[verb]++;
		world->faults++;
		break;
	case DO_LATE_ANSWER:
	case DO_LATE_MESSAGE:
		world->used[DO_LATE_ANSWER]++;
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
}

void world_do(struct model_world *world, uint16_t action)
{
	struct model_link *link = world_link_of(world, action);
	enum model_verb verb = world_verb_of(action);

	world->wrong = NULL;
	if (world->etcd) {
		etcd_do(world, verb, action / MODEL_SERVERS % MODEL_CLIENTS,
		        action % MODEL_SERVERS);
		return;
	}
	count(world, link->client, verb);
	if (verb == DO_SET || verb == DO_REMOVE)
		world_question(world, link, verb);
	else if (verb <= DO_ABANDON)
		world_call(world, link->client, verb);
	else
		happen(world, link, verb);
}
