/* SPDX-License-Identifier: MIT
 * The clients of the model: their calls, their connections, their requests and messages. */
#include "world.h"

#include "arena.h"
#include "etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define EPOCH_US INT64_C(1700000000000000)
#define START_NS (INT64_C(999000) * MS)

static struct lk__space spaces[MODEL_CLIENTS];

/* Not random: it only spreads moments inside the same tick. */
uint64_t __wrap_lk__core_random(struct lk__core *core);
uint64_t __wrap_lk__core_random(struct lk__core *core)
{
	(void)core;
	return 0;
}

void world_keep(struct model_world *world, enum promise promise, const char *wrong)
{
	if (!world->wrong)
		world->wrong = promise_broken(promise, wrong);
}

int world_index(const struct model_world *world, const struct model_client *client)
{
	return (int)(client - world->clients);
}

int world_server(const struct model_world *world, const struct model_server *server)
{
	return (int)(server - world->servers);
}

int world_owner(const struct store_ticket *ticket)
{
	return strchr(ticket->text, ':')[1] - 'a';
}

bool world_is_final(const struct model_world *world, const struct model_client *client)
{
	return world_index(world, client) < world->bounds->finals;
}

const struct lk__space *world_space(const struct model_world *world,
                                    const struct model_client *client)
{
	return &spaces[world_index(world, client)];
}

void world_ticket(const struct model_world *world, const struct model_client *client,
                  const struct lk__ticket *ticket, char text[LK__TICKET_MAX])
{
	struct lk__ticket_id id = lk__ticket_id(ticket);

	lk__ticket_text(world_space(world, client), &id, text);
}

/* ---- Life --------------------------------------------------------------------------------- */

/* The wait queue of a call, that of its handle. */
static struct lk__wait_queue *open_handle(const struct model_bounds *bounds,
                                          struct model_client *client)
{
	struct lk__name *name = lk__name_new(bounds->kind, MODEL_NAME, strlen(MODEL_NAME));
	struct lk__wait_queue *queue = lk__wait_queue_new(MODEL_LEASE_MS, bounds->fixed);

	queue->capacity = MODEL_CAPACITY;
	queue->ttl_ms = MODEL_TTL_MS;
	queue = lk__wait_queue_open(&client->core, &client->links[0].session, name, queue);
	if (bounds->kind == LK_KIND_LATCH)
		lk__latch_open(queue->name, lk__latch_new(MODEL_TOPIC));
	return queue;
}

void world_set_time(struct model_world *world, int64_t now_ns)
{
	world->now_ns = now_ns;
	world_view_forget();
	for (int i = 0; i < world->server_count; i++)
		lua_store_set_time(world->servers[i].store,
		                   EPOCH_US + now_ns / 1000 + world->servers[i].ahead_us);
}

static void start_servers(struct model_world *world, const char *script, const char *old,
                          const char *new)
{
	for (int i = 0; i < world->server_count; i++) {
		struct model_server *server = &world->servers[i];
		server->world = world;
		server->store = lua_store_new(world_publish, server);
		lua_store_load_scripts(server->store);
		if (script)
			lua_store_alter(server->store, script, old, new);
		lua_store_process(server->store)->run += 100 * (uint64_t)i;
		lua_store_process(server->store)->replid += 100 * (uint64_t)i;
	}
}

static void add_link(struct model_world *world, struct model_client *client, int server)
{
	struct model_link *link = &client->links[server];

	link->client = client;
	link->server = &world->servers[server];
	lk__session_init(&link->session, 1000000000, 1000000000);
	link->session.replicas = world->bounds->replicas;
	link->session.replicas_ms = 500;
	if (!lk__core_add_session(&client->core, &link->session))
		abort();
}

static void start_client(struct model_world *world, int index)
{
	struct model_client *client = &world->clients[index];
	char id[LK__CLIENT_ID_SIZE];

	snprintf(id, sizeof(id), "%cclient_AAAAAAAAAAAAAA", 'a' + index);
	lk__space_init(&spaces[index], "lk", 0, id);
	spaces[index].grace_ms = world->rule == RULE_NO_GRACE ? 0 : world_grace_ms(world->bounds);
	spaces[index].quorum = world->bounds->servers > 0;
	if (!lk__core_init(&client->core, (uint64_t)index + 1) ||
	    (world->bounds->servers && !lk__core_use_quorum(&client->core, world->server_count)))
		abort();
	client->links = &world->links[index * world->server_count];
	for (int i = 0; i < world->server_count; i++)
		add_link(world, client, i);
	client->queue = open_handle(world->bounds, client);
	client->alive = true;
	for (int i = 0; i < world->server_count; i++)
		if (index < world->bounds->clients - world->bounds->strangers)
			world_link(world, &client->links[i]);
}

struct model_world *world_begin(const struct model_bounds *bounds, enum model_rule rule,
                                const char *script, const char *old, const char *new)
{
	int servers = bounds->servers ? bounds->servers : 1;
	struct model_world *world = arena_clear(
		sizeof(*world) +
		(bounds->members ? sizeof(struct model_etcd)
	                         : sizeof(world->links[0]) * (size_t)(servers * bounds->clients)));

	arena_use(ARENA_SETUP);
	world->bounds = bounds;
	world->rule = rule;
	if (bounds->members) {
		etcd_begin_world(world);
		arena_use(ARENA_LOOSE);
		return world;
	}
	world->server_count = (uint8_t)servers;
	start_servers(world, script, old, new);
	world_set_time(world, START_NS);
	if (bounds->servers)
		world_mark_servers(world);
	for (int i = 0; i < bounds->clients; i++)
		start_client(world, i);
	if (bounds->replicas || bounds->second)
		world_copy(world, world_replicas(world));
	if (bounds->held)
		world_hold_legs(world, 0, bounds->held);
	arena_use(ARENA_ON);
	return world;
}

void world_end(struct model_world *world)
{
	for (int i = 0; i < world->server_count; i++)
		lua_store_free(world->servers[i].store);
	arena_use(ARENA_OFF);
}

/* ---- After each event --------------------------------------------------------------------- */

struct lk__hold *world_hold(const struct model_client *client)
{
	return client->alive && client->owner ? lk__core_hold(client->queue->name, client->owner)
	                                      : NULL;
}

bool world_valid(const struct model_world *world, const struct model_client *client)
{
	const struct lk__hold *hold = world_hold(client);

	return hold && lk__hold_left_ns(hold, world->now_ns) > 0;
}

/* The content of a request's bytes, for the explorer. */
static void describe(struct model_call *call, const struct lk__request *asked)
{
	const struct lk__pending *request = call->request;

	call->kind = request->kind;
	if (request->kind == LK__EPOCH || request->kind == LK__CONFIRM)
		return;
	call->lease_ms = request->lease_ms;
	call->permits = request->permits;
	if (lk__pending_is_latch(request)) {
		if (call->kind == LK__STEP) {
			call->number = request->latch->steps->number;
			call->fence = request->latch->steps->generation;
		}
		return;
	}
	call->proposal = asked->proposal;
	memcpy(call->nonce, request->ticket->nonce, LK__NONCE_SIZE);
	if (call->kind == LK__HAND)
		return;
	if (call->kind == LK__RECLAIM)
		call->permits = request->ticket->queue->hold->count;
	call->arrival = request->ticket->arrival;
	call->only_try = request->ticket->is_try;
	call->last_fence = asked->quorum ? asked->last_fence : request->ticket->last_fence;
	call->leg_epoch = asked->ticket.epoch;
	if (call->kind == LK__RECLAIM || (call->kind == LK__RENEW && !request->claim) ||
	    (call->kind == LK__LEAVE && lk__ticket_is_used(request->ticket)))
		call->fence = request->ticket->fence;
}

/* In walks, a client whose link is slow sends the rest later. */
static bool has_room(const struct model_world *world, const struct model_link *link)
{
	if (link->call_count < MODEL_CALLS)
		return true;
	if (!world->bounds->any_order && link->session.send_queue) {
		fprintf(stderr, "model: no room for a request\n");
		abort();
	}
	return false;
}

static void send_all(struct model_world *world, struct model_link *link)
{
	struct model_client *client = link->client;
	struct lk__pending *request;
	struct lk__request asked;

	while (has_room(world, link) &&
	       (request = lk__core_next_request(&client->core, &link->session, world->now_ns))) {
		struct model_call *call = &link->calls[link->call_count++];
		memset(call, 0, sizeof(*call));
		call->request = request;
		if (world->rule == RULE_STEP_RENUMBERED && request->kind == LK__STEP)
			request->latch->steps->number = ++client->core.step_number;
		lk__core_request(request, &asked);
		describe(call, &asked);
		call->epoch = link->session.epoch;
		if (!lk__codec_request(&call->bytes, world_space(world, client), &asked))
			abort();
	}
}

void world_free_call(struct lk__op *waiter)
{
	free(waiter->spare_ticket);
	free(waiter->spare_hold);
	free(waiter->spare_queue);
	free(waiter->spare_step);
	lk__legs_free(waiter->spare_legs);
	free(waiter);
}

/* A call has its result: an acquisition's is a hold, with a new fence. */
static void acquired(struct model_world *world, struct model_client *client,
                     const struct lk__op *waiter)
{
	uint64_t least = world->bounds->kind == LK_KIND_LOCK ? world->seen : client->seen;

	/* An older counter, and a clock that is behind: fences grow only in the new memory.  And a
	 * wrong variant is found by the harm that it does. */
	bool grows = (world->bounds->servers || !world->servers[0].ahead_us) &&
	             (!world->has_lost || world->rule == RULES_AS_SHIPPED);

	client->owner = world->bounds->kind == LK_KIND_LOCK ? 1 : waiter->fence;
	grows &= !world->bounds->servers || world_is_sure(world, client);
	if (grows)
		world_keep(world, PROMISE_FENCE, promise_fence(least, waiter->fence));
	if (waiter->forget) {
		client->owner = 0;
		world_use(world, waiter->fence, waiter->permits);
		return;
	}
	for (int i = 0; i < world->bounds->clients; i++) {
		const struct lk__hold *hold = world_hold(&world->clients[i]);
		if (grows && hold && &world->clients[i] != client && hold->fence == waiter->fence)
			world_keep(world, PROMISE_FENCE, promise_fence(hold->fence, waiter->fence));
	}
	if (waiter->fence > world->seen && (grows || !world->bounds->servers))
		world->seen = waiter->fence;
	world_keep(world, PROMISE_GRANT,
	           promise_grant(world_hold(client), world->now_ns,
	                         waiter->permits ? waiter->permits : 1));
}

static void finished(struct model_world *world, struct model_client *client, struct lk__op *waiter)
{
	lk_err err = waiter->why.err;
	bool counted;

	if (world->rule == RULE_RELEASE_LOST && client->verb == DO_RELEASE)
		err = LK_ELOST;
	if ((world->rule == RULE_RELEASE_UNKNOWN && client->verb == DO_RELEASE) ||
	    (world->rule == RULE_EXTEND_UNKNOWN && client->verb == DO_EXTEND))
		err = LK_EUNKNOWN;
	if (client->verb >= DO_RELEASE && client->verb <= DO_EXTEND)
		world_keep(world, PROMISE_RESULT, world_result_wrong(world, client, err));
	switch (client->verb) {
	case DO_ACQUIRE:
	case DO_ACQUIRE_TWO:
	case DO_TRY:
		if (!err)
			acquired(world, client, waiter);
		else if (err != LK_EBUSY && !client->gave_up && !client->refused &&
		         (err != LK_EREPLICAS || !world->used[DO_SHORT]))
			world_keep(world, PROMISE_RESULT, "a wait ends with an error");
		break;
	case DO_RELEASE:
		client->owner = 0;
		break;
	case DO_AWAIT:
	case DO_AWAIT_TRY:
		world_keep(world, PROMISE_AWAIT, promise_await(err, client->was_open));
		break;
	case DO_STEP:
	case DO_STEP_NAMED:
		counted = (client->counted >> client->core.step_number) & 1;
		world_keep(world, PROMISE_RESULT,
		           promise_result_step(err, waiter->counted, counted));
		break;
	}
	client->gave_up = client->was_open = client->was_valid = client->refused = false;
	client->denied = false;
	client->seen = 0;
	client->verb = 0;
	client->waiter = NULL;
	world_free_call(waiter);
}

void world_after(struct model_world *world, struct model_client *client)
{
	struct lk__op *waiter;
	struct lk__hold *hold;

	if (world->rule == RULE_YIELD_BELIEVED)
		world_believe(world, client);
	while ((waiter = lk__core_next_done(&client->core)))
		finished(world, client, waiter);
	for (int i = 0; i < world->server_count; i++)
		send_all(world, &client->links[i]);
	while ((hold = lk__core_next_lost(&client->core))) {
		client->told = hold->fence;
		lk__core_loss_reported(hold);
	}
}

/* ---- Calls -------------------------------------------------------------------------------- */

static struct lk__op *new_waiter(const struct model_world *world, struct model_client *client,
                                 enum model_verb verb)
{
	struct lk__op *waiter = calloc(1, sizeof(*waiter));

	waiter->queue = client->queue;
	waiter->handle = client;
	waiter->owner = client->owner ? client->owner : 1;
	waiter->reports_loss = world->rule != RULE_LOSS_UNTOLD;
	waiter->only_try = verb == DO_TRY || verb == DO_AWAIT_TRY;
	waiter->forget = world_is_final(world, client);
	if (verb == DO_STEP || verb == DO_STEP_NAMED) {
		waiter->spare_step = calloc(1, sizeof(*waiter->spare_step));
		waiter->spare_step->n = 1;
		waiter->spare_step->name[0] = 's';
		waiter->spare_step->len = verb == DO_STEP_NAMED;
	} else if (verb == DO_ACQUIRE || verb == DO_ACQUIRE_TWO || verb == DO_TRY) {
		waiter->spare_ticket = calloc(1, sizeof(*waiter->spare_ticket));
		waiter->spare_hold = calloc(1, sizeof(*waiter->spare_hold));
		waiter->spare_queue = calloc(1, sizeof(*waiter->spare_queue));
		if (world->bounds->servers)
			waiter->spare_legs = lk__legs_new(world->bounds->servers);
	}
	return waiter;
}

static void begin_call(struct model_world *world, struct model_client *client, enum model_verb verb)
{
	bool permits = world->bounds->kind == LK_KIND_SEMAPHORE;
	struct lk__core *core = &client->core;
	struct lk__op *waiter = new_waiter(world, client, verb);

	client->waiter = waiter;
	client->was_valid = world_valid(world, client);
	client->verb = (uint8_t)verb;
	client->seen = world->seen;
	switch (verb) {
	case DO_ACQUIRE:
	case DO_ACQUIRE_TWO:
	case DO_TRY:
		waiter->permits = permits ? 1 + (verb == DO_ACQUIRE_TWO) : 0;
		if (permits)
			lk__core_acquire_permits(core, world->now_ns, waiter);
		else
			lk__core_acquire(core, world->now_ns, waiter);
		break;
	case DO_RELEASE:
	case DO_RELEASE_ONE:
		waiter->permits = verb == DO_RELEASE_ONE;
		if (permits)
			lk__core_release_permits(core, world->now_ns, waiter);
		else
			lk__core_release(core, world->now_ns, waiter);
		break;
	case DO_EXTEND:
		waiter->lease_ms = MODEL_EXTENSION_MS;
		lk__core_extend(core, world->now_ns, waiter);
		break;
	case DO_AWAIT:
	case DO_AWAIT_TRY:
		client->was_open =
			world_view(world->servers)->there && !world_view(world->servers)->count;
		lk__core_await(core, world->now_ns, waiter);
		break;
	default:
		client->stepped++;
		lk__core_step(core, world->now_ns, waiter);
	}
}

void world_call(struct model_world *world, struct model_client *client, enum model_verb verb)
{
	if (verb == DO_GIVE_UP) {
		client->gave_up = true;
		lk__core_give_up(&client->core, world->now_ns, client->waiter, LK_ETIMEDOUT);
	} else if (verb == DO_ABANDON) {
		client->gave_up = true;
		lk__core_abandon(&client->core, world->now_ns, client->waiter);
	} else {
		begin_call(world, client, verb);
	}
	world_after(world, client);
}

void world_hold_legs(struct model_world *world, int client, int legs)
{
	struct model_client *holder = &world->clients[client];

	holder->begun++;
	world_call(world, holder, DO_ACQUIRE);
	for (int i = 0; i < legs; i++) {
		world_execute(world, &holder->links[i], 0);
		world_answer(world, &holder->links[i]);
	}
}
