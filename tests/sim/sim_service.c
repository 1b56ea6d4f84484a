/* SPDX-License-Identifier: MIT
 * A service of three servers: the master, whose memory is the simulator's store, and two replicas,
 * each a copy of it that lags.  A failover makes a copy the master.  The old master may go on for a
 * while, in a memory of its own: for up to 11 s after a planned failover, and for up to 10 s after
 * it was stopped and wakes (both measured with Redis' Sentinel). */
#include "sim.h"

#include <string.h>

#define DEMOTED_NS (11 * SIM_S)       /* after a planned failover */
#define DEMOTED_AWAKE_NS (10 * SIM_S) /* after a stop */
#define WAKE_NS (6 * SIM_S)        /* the longest time from a promotion until the old one wakes */
#define DETECTED_NS (2 * SIM_S)    /* the shortest time until a dead master is replaced */
#define ELECTED_NS (1500 * SIM_MS) /* ... and the longest one after that */
#define AWAY_NS (5 * SIM_S)        /* how long a killed server is away, at most */

void sim_service_init(struct sim *sim)
{
	struct sim_service *service = &sim->service;

	service->random = sim_random_of(sim->plan->seed, 9, 0);
	service->spare = sim_server_store(sim);
	for (int i = 0; i < SIM_PLACES; i++)
		service->processes[i] = (struct lua_store_process){.run = 10 + (uint64_t)i,
		                                                   .replid = 10 + (uint64_t)i};
	for (int i = 0; i < SIM_SENTINELS; i++)
		service->sentinels[i].next_ns = LK__NEVER;
	sim_replicas_init(sim);
}

void sim_service_fini(struct sim *sim)
{
	if (sim->service.spare)
		lua_store_free(sim->service.spare);
	if (sim->service.stale.store)
		lua_store_free(sim->service.stale.store);
}

void sim_service_set_time(struct sim *sim)
{
	const struct sim_stale *stale = &sim->service.stale;

	if (stale->store)
		lua_store_set_time(stale->store,
		                   SIM_EPOCH_US + stale->offset_us + sim->now_ns / 1000);
}

enum sim_found sim_service_find(const struct sim *sim, int place)
{
	const struct sim_stale *stale = &sim->service.stale;

	if (place == sim->service.place)
		return SIM_MASTER;
	if (stale->store && place == stale->place)
		return sim->now_ns < stale->wake_ns ? SIM_STOPPED : SIM_REPLACED;
	return sim->now_ns < sim->service.down_ns[place] ? SIM_DEAD : SIM_REPLICA;
}

/* ---- The old master ------------------------------------------------------------------------- */

/* It becomes a replica, which ends all connections to it. */
static void demote(struct sim *sim)
{
	struct sim_service *service = &sim->service;
	struct sim_stale *stale = &service->stale;

	if (!stale->store)
		return;
	sim_trace(sim, NULL, "server %d becomes a replica", stale->place);
	sim_server_hang_up(sim, stale->place);
	service->processes[stale->place] = *lua_store_process(stale->store);
	lua_store_text(stale->store, "FLUSHALL", NULL);
	lua_store_text(stale->store, "SCRIPT", "FLUSH", NULL);
	service->spare = stale->store;
	*stale = (struct sim_stale){.place = stale->place};
}

/* Its memory goes on beside that of the new master, which begins in the spare one. */
static void leave_behind(struct sim *sim, int place)
{
	struct sim_service *service = &sim->service;
	struct sim_stale *stale = &service->stale;

	*stale = (struct sim_stale){
		.store = sim->store, .place = place, .offset_us = sim->store_offset_us};
	for (int i = 0; i < SIM_NAMES; i++) {
		stale->epochs[i] = sim->names[i].epoch;
		stale->eras[i] = sim->names[i].era;
	}
	sim->store = service->spare;
	service->spare = NULL;
}

/* Nothing passes until it wakes. */
static void stop(struct sim *sim, int place, int64_t wake_ns)
{
	for (struct sim_link *link = sim->links; link; link = link->next) {
		if (link->place != place)
			continue;
		for (int way = 0; way < SIM_WAYS; way++)
			sim_disturb(&link->stalled_ns[way], wake_ns);
		link->client->dirty = true;
	}
}

/* ---- Failovers ------------------------------------------------------------------------------ */

/* The process of the replica, as it is after its promotion. */
static struct lua_store_process promoted(struct sim *sim, int place, struct sim_random *random)
{
	struct lua_store_process process = sim->service.processes[place];
	uint64_t replid = lua_store_process(sim->store)->replid;

	process.replid = ++sim->replids;
	process.replid2 = sim_percent(random, 80) ? replid : 0; /* it may be forgotten */
	process.was_replica = true;
	return process;
}

static void depart(struct sim *sim, const struct sim_fault *fault, struct sim_random *random,
                   int64_t up_ns)
{
	struct sim_service *service = &sim->service;
	struct sim_stale *stale = &service->stale;
	int place = service->place;

	if (fault->kind == SIM_MASTER_KILL) {
		sim_server_restart(sim, 0);
		service->down_ns[place] = sim->now_ns + sim_within(random, AWAY_NS);
		service->processes[place] = (struct lua_store_process){
			.run = ++sim->runs, .began_us = sim_server_us(sim)};
		return;
	}
	leave_behind(sim, place);
	stale->since_ns = up_ns;
	stale->wake_ns = sim->now_ns;
	stale->end_ns = up_ns + sim_within(random, DEMOTED_NS);
	if (fault->kind != SIM_MASTER_STOP)
		return;
	stale->wake_ns = up_ns + sim_within(random, WAKE_NS);
	stale->end_ns = stale->wake_ns + sim_within(random, DEMOTED_AWAKE_NS);
	stop(sim, place, stale->wake_ns);
}

int sim_service_next(const struct sim *sim, struct sim_random *random)
{
	return (sim->service.place + 1 + (int)sim_draw(random, SIM_PLACES - 1)) % SIM_PLACES;
}

void sim_service_fail_over(struct sim *sim, const struct sim_fault *fault, int image,
                           struct sim_random *random)
{
	struct sim_service *service = &sim->service;
	int from = service->place, place = sim_service_next(sim, random);
	int64_t offset_us = (int64_t)sim_draw(random, 40001) - 20000, up_ns = sim->now_ns;
	struct lua_store_process process = promoted(sim, place, random);

	demote(sim);
	if (fault->kind != SIM_SWITCH)
		up_ns += DETECTED_NS + sim_within(random, ELECTED_NS);
	sim_replicas_promote(sim, from, place, fault->kind == SIM_MASTER_KILL);
	depart(sim, fault, random, up_ns);
	service->place = place;
	service->down_ns[place] = 0;
	/* Another machine: its clock differs by some milliseconds. */
	sim->store_offset_us += offset_us;
	sim->clock_was_back |= offset_us < 0;
	sim->scripts_loaded = false;
	sim->sick_until_ns = 0;
	sim->up_ns = up_ns;
	sim_disturb(&sim->disturbed_ns, up_ns);
	sim_set_time(sim, sim->now_ns);
	*lua_store_process(sim->store) = process;
	sim_server_restore(sim, image, true);
	sim_replicas_promoted(sim, from, up_ns);
	sim_sentinels_switch(sim, up_ns);
	sim_trace(sim, NULL, "server %d is the master", place);
}

/* ---- Steps ---------------------------------------------------------------------------------- */

int64_t sim_service_due(const struct sim *sim)
{
	int64_t due_ns = sim_sentinels_due(sim);

	if (sim->service.stale.store && sim->service.stale.end_ns < due_ns)
		return sim->service.stale.end_ns;
	return due_ns;
}

void sim_service_happen(struct sim *sim)
{
	if (sim->service.stale.store && sim->service.stale.end_ns <= sim->now_ns)
		demote(sim);
	sim_sentinels_happen(sim);
}

void sim_service_heal(struct sim *sim)
{
	demote(sim);
	sim_replicas_heal(sim);
	sim_sentinels_heal(sim);
}

void sim_service_run(struct sim *sim, struct sim_call *call)
{
	struct sim_stale *stale = &sim->service.stale;

	if (!stale->store || call->place != stale->place)
		return; /* that server is gone: nothing waits for the reply */
	sim->tally.stale++;
	if (call->request && sim->clients[call->slot].life == call->life)
		sim->clients[call->slot].stale_ns = sim->now_ns;
	if (call->name >= 0)
		sim_check_stale_before(sim, call);
	stale->runs = true;
	lua_store_run(stale->store, call->bytes.data, call->bytes.len, &call->reply);
	stale->runs = false;
	if (call->name >= 0)
		sim_check_stale_after(sim, call);
}
