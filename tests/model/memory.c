/* SPDX-License-Identifier: MIT
 * The store of the model loses its memory: it is emptied, begins anew, or a replica takes its
 * place.  Clients then take back what they hold, and nothing else is granted for a grace. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_US (INT64_C(1000) * MODEL_TICK_MS)

int64_t world_grace_ms(const struct model_bounds *bounds)
{
	if (bounds->grace)
		return bounds->grace * MODEL_TICK_MS;
	if (bounds->replicas)
		return 0;
	return bounds->extends ? MODEL_EXTENSION_MS : MODEL_LEASE_MS;
}

bool world_may_lose(const struct model_world *world)
{
	const struct model_bounds *bounds = world->bounds;

	return world->faults < bounds->faults && (world->used[DO_FLUSH] < bounds->flushes ||
	                                          world->used[DO_RESTART] < bounds->restarts ||
	                                          world->used[DO_PROMOTE] < bounds->promotions);
}

bool world_is_stranger(const struct model_client *client)
{
	return client->alive && !client->links[0].linked && !client->links[0].session.epoch.len;
}

/* ---- Losses ------------------------------------------------------------------------------- */

static void end_copy(struct model_world *world, int replica)
{
	if (world->copies[replica])
		lua_store_image_free(world->copies[replica]);
	world->copies[replica] = NULL;
}

unsigned world_replicas(const struct model_world *world)
{
	return world->bounds->second ? 3 : 1;
}

void world_copy(struct model_world *world, unsigned replicas)
{
	world->saves++;
	for (int i = 0; i < MODEL_REPLICAS; i++) {
		if (!(replicas >> i & 1))
			continue;
		end_copy(world, i);
		world->copies[i] = lua_store_save(world->servers[0].store);
		world->received[i] = world->saves;
	}
}

bool world_is_better(const struct model_world *world, int replica)
{
	return world->received[replica] >= world->received[!replica];
}

static void empty(struct model_server *server)
{
	static const char command[] = "*1\r\n$8\r\nFLUSHALL\r\n";
	struct lk__buf reply = {0};

	lua_store_run(server->store, command, sizeof(command) - 1, &reply);
	lk__buf_fini(&reply);
}

static void lost(struct model_world *world)
{
	world->has_lost = true;
	world_view_forget();
	for (int i = 0; !world_may_lose(world) && i < MODEL_REPLICAS; i++)
		end_copy(world, i);
}

void world_flush(struct model_world *world, struct model_server *server)
{
	empty(server);
	lost(world);
}

void world_restart(struct model_world *world, struct model_server *server, bool from_copy)
{
	world_drop(world, server);
	if (from_copy)
		lua_store_load(server->store, world->copies[0]);
	else
		empty(server);
	lua_store_restart(server->store);
	if (world->bounds->servers)
		lua_store_process(server->store)->flushed = false;
	for (int i = 0; i < world->bounds->clients; i++)
		world->clients[i].links[world_server(world, server)].returns =
			world->bounds->servers > 0;
	world->is_older |= from_copy;
	lost(world);
}

void world_promote(struct model_world *world, int replica)
{
	struct model_server *server = world->servers;
	struct lua_store_process *process = lua_store_process(server->store);

	world_drop(world, server);
	server->ahead_us -= world->bounds->behind * TICK_US;
	world_set_time(world, world->now_ns);
	if (world->copies[replica])
		lua_store_load(server->store, world->copies[replica]);
	*process = (struct lua_store_process){
		.run = process->run + 1,
		.replid = process->replid + 1,
		.replid2 = process->replid,
		.was_replica = true,
	};
	world->is_older = true;
	world_view_forget();
	if (world->bounds->replicas && !world->bounds->grace)
		world_check_replica(world);
	/* The other one gets all from the new master. */
	if (world->bounds->second && world_may_lose(world))
		world_copy(world, world_replicas(world));
	lost(world);
}

/* ---- The set of a quorum ------------------------------------------------------------------ */

/* As `latchkey quorum init`. */
void world_mark_servers(struct model_world *world)
{
	const struct lk__epoch none = {0};
	struct lk__space space;
	char set[LK__SET_TEXT];
	const struct lk__request request = {
		.kind = LK__EPOCH, .quorum = true, .epoch = &none, .set = set, .set_is_new = true};

	lk__space_init(&space, "lk", 0, "zclient_AAAAAAAAAAAAAA");
	space.quorum = true;
	for (int i = 0; i < world->server_count; i++) {
		struct lk__buf bytes = {0}, reply = {0};
		snprintf(set, sizeof(set), "theset_AAAA %d/%d %lld", i + 1, world->server_count,
		         (long long)world_grace_ms(world->bounds));
		if (!lk__codec_request(&bytes, &space, &request))
			abort();
		lua_store_run(world->servers[i].store, bytes.data, bytes.len, &reply);
		lk__buf_fini(&bytes);
		lk__buf_fini(&reply);
	}
}

void world_down(struct model_world *world, struct model_server *server)
{
	server->down = true;
	world_drop(world, server);
}

void world_jump(struct model_world *world, struct model_server *server)
{
	/* Also grants that their clients do not know yet. */
	for (int i = 0; i < world->bounds->clients; i++)
		world->clients[i].links[world_server(world, server)].doubted_until_ns =
			world->now_ns + world_grace_ms(world->bounds) * 1000000;
	server->ahead_us += INT64_C(1000) * MODEL_LEASE_MS;
	world_set_time(world, world->now_ns);
}

/* ---- Promises ----------------------------------------------------------------------------- */

bool world_is_young(const struct model_server *server)
{
	const char *since = strrchr(store_marker(server->store, MODEL_MARKER), ' ');
	int64_t grace_us = world_grace_ms(server->world->bounds) * 1000;

	return !since || lua_store_time(server->store) < strtoll(since, NULL, 10) + grace_us;
}

bool world_is_confirmed(const struct model_world *world, const struct model_client *client)
{
	const struct model_link *link = &client->links[0];
	const struct lk__ticket *ticket = world_hold(client)->ticket;

	if (!world->has_lost)
		return true;
	if (!link->linked || ticket->is_forgotten || ticket->is_doubted)
		return false;
	return !strcmp(store_marker(link->server->store, MODEL_MARKER), link->session.epoch.text);
}

/* What is valid by its client's clock can be taken back: holds that have ended since, and are still
 * in the copy, give way.  Except permits that are never released: no client takes those back. */
void world_check_reclaim(struct model_world *world, const struct model_client *client,
                         const struct model_call *call)
{
	const struct lk__hold *hold = world_hold(client);

	if (call->answer.kind == LK__KEPT && world->bounds->kind == LK_KIND_SEMAPHORE)
		world_keep(world, PROMISE_PERMITS,
		           promise_permits(world_view(world->servers)->used, MODEL_CAPACITY));
	if (!call->request)
		return; /* of a lost connection */
	if (call->answer.kind != LK__GONE || !world_valid(world, client) ||
	    hold->fence != call->fence || strcmp(hold->ticket->nonce, call->nonce) != 0)
		return;
	if (world->bounds->kind == LK_KIND_SEMAPHORE && world->is_older && world->bounds->finals)
		return;
	world_keep(world, PROMISE_VALIDITY, "a valid hold cannot be taken back");
}
