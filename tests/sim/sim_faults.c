/* SPDX-License-Identifier: MIT
 * The effect of each fault.  Its choices come from its own random stream. */
#include "sim.h"

#include "query.h"

#include <stdlib.h>
#include <string.h>

/* How a server refuses. */
static const char *const refusals[] = {
	"-LOADING Redis is loading the dataset in memory\r\n",
	"-BUSY Redis is busy running a script. You can only call SCRIPT KILL.\r\n",
	"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
	"-MISCONF Redis is configured to save RDB snapshots, but it is unable to persist.\r\n",
};
#define REFUSALS (sizeof(refusals) / sizeof(*refusals))
static const char *const denial =
	"-NOPERM this user has no permissions to run the 'evalsha' command\r\n";

static void stall(struct sim_client *client, const struct sim_fault *fault,
                  struct sim_random *random)
{
	unsigned ways = 1 + (unsigned)sim_draw(random, (1u << SIM_WAYS) - 1);

	if (!client->lane->link)
		return;
	if (sim_percent(random, 50))
		ways = 1u << sim_draw(random, SIM_WAYS); /* one way alone */
	for (int way = 0; way < SIM_WAYS; way++)
		if (ways >> way & 1)
			sim_disturb(&client->lane->link->stalled_ns[way],
			            client->sim->now_ns + fault->length_ns);
	sim_disturb(sim_disturbed(client, sim_client_place(client)),
	            client->sim->now_ns + fault->length_ns);
}

/* A message is lost, and its connection closed, as the server does with a slow reader. */
static void lose(struct sim_client *client)
{
	struct sim_link *link = client->lane->link;

	if (!link)
		return;
	link->there = false;
	link->topics = 0;
	while (link->items) {
		struct sim_item *item = link->items;
		link->items = item->next;
		free(item);
	}
	link->items_end = &link->items;
	link->reset_ns = client->sim->now_ns + sim_delay(client);
}

static void cut_off(struct sim_client *client, int64_t length_ns)
{
	sim_disturb(&client->cut_off_ns, client->sim->now_ns + length_ns);
	sim_disturb(&client->disturbed_ns, client->cut_off_ns);
	for (struct sim_lane *lane = NULL; (lane = sim_client_lane(client, lane));)
		for (int way = 0; lane->link && way < SIM_WAYS; way++)
			sim_disturb(&lane->link->stalled_ns[way], client->cut_off_ns);
}

static void hurt_client(struct sim *sim, const struct sim_fault *fault, struct sim_random *random)
{
	struct sim_client *client = &sim->clients[fault->target];

	if (!client->alive)
		return;
	sim->tally.faults[fault->kind]++;
	client->dirty = true;
	if (sim->plan->cluster)
		sim_nodes_pick(client, fault->chance / 7);
	if (sim->plan->quorum)
		client->lane = &client->lanes[sim_quorum_place(sim, fault)];
	if (fault->kind == SIM_CUT || fault->kind == SIM_LOSE || fault->kind == SIM_STALL)
		sim_disturb(sim_disturbed(client, sim_client_place(client)), sim->now_ns);
	else
		sim_disturb(&client->disturbed_ns, sim->now_ns);
	switch (fault->kind) {
	case SIM_CUT:
		if (client->lane->link && sim_percent(random, 50))
			client->lane->link->reset_ns =
				sim->now_ns + sim_within(random, 20 * SIM_MS);
		else if (client->lane->link)
			sim_client_unlink(client, sim_percent(random, 50) ? LK_ECONN : LK_EUNKNOWN);
		break;
	case SIM_STALL:
		stall(client, fault, random);
		break;
	case SIM_CUT_OFF:
		cut_off(client, fault->length_ns);
		break;
	case SIM_CRASH:
		sim_client_crash(client);
		client->start_ns = sim->now_ns + 10 * SIM_MS + fault->length_ns;
		break;
	case SIM_LEAVE:
		client->close_ns = sim->now_ns;
		break;
	case SIM_STOP:
		sim_disturb(&client->resume_ns, sim->now_ns + fault->length_ns);
		sim_disturb(&client->disturbed_ns, client->resume_ns);
		break;
	default:
		lose(client);
	}
	sim_client_settle(client);
}

/* ---- The server's memory ------------------------------------------------------------------ */

/* No hold is lost, but a grace begins: claims in it are refused. */
static void lose_marker(struct sim *sim, struct sim_random *random)
{
	lua_store_process(sim->store)->evicted += sim_percent(random, 50);
	sim_server_mark(sim);
	sim_disturb(&sim->disturbed_ns, sim->now_ns);
	for (int i = 0; i < SIM_NAMES; i++)
		sim->names[i].forced_ns = sim->now_ns;
}

static void evict(struct sim *sim, struct sim_random *random)
{
	struct sim_name *name = &sim->names[sim_draw(random, SIM_NAMES)];
	const char *keys[] = {name->main,   name->queue, name->holds,
	                      name->memory, "lk:fence",  "lk:epoch"};
	const char *key = keys[sim_draw(random, 6)];

	if (!strcmp(lua_store_text(sim->store, "DEL", key, NULL), "0"))
		return;
	sim->tally.faults[SIM_EVICT]++;
	if (key == keys[4]) {
		sim_server_uncounted(sim); /* no holder loses its hold by it */
		return;
	}
	if (key == keys[5]) {
		lose_marker(sim, random);
		return;
	}
	/* The marker stays, so no grace follows. */
	sim_server_forced(sim, name->index, false);
	if (name->kind == LK_KIND_SEMAPHORE && key != name->queue)
		name->torn = true;
}

static void hurt_memory(struct sim *sim, const struct sim_fault *fault, struct sim_random *random)
{
	int index = (int)(fault - sim->plan->faults);
	int64_t offset_us;

	sim->tally.faults[fault->kind]++;
	switch (fault->kind) {
	case SIM_RESTART:
		sim_server_restart(sim, fault->length_ns);
		sim_server_begin(sim, random);
		break;
	case SIM_EMPTY:
		lua_store_text(sim->store, "FLUSHALL", NULL);
		sim_server_restart(sim, fault->length_ns);
		sim_server_begin(sim, random);
		sim_server_forced(sim, -1, true);
		break;
	case SIM_FAILOVER:
		/* Another machine: its clock differs by some milliseconds. */
		offset_us = (int64_t)sim_draw(random, 40001) - 20000;
		sim->store_offset_us += offset_us;
		sim->clock_was_back |= offset_us < 0;
		sim_set_time(sim, sim->now_ns);
		sim_server_promote(sim, random);
		sim_server_restore(sim, index, true);
		sim_server_restart(sim, sim_within(random, 2 * SIM_S));
		break;
	case SIM_SWITCH:
	case SIM_MASTER_KILL:
	case SIM_MASTER_STOP:
		sim_service_fail_over(sim, fault, index, random);
		break;
	case SIM_OLD:
		sim_server_begin(sim, random);
		sim_server_restore(sim, index, true);
		sim_server_restart(sim, sim_within(random, 2 * SIM_S));
		break;
	case SIM_SNAPSHOT:
		/* The same process with its old memory: nothing shows the loss. */
		sim_server_restore(sim, index, false);
		sim_server_restart(sim, sim_within(random, 2 * SIM_S));
		break;
	case SIM_FLUSH_ALL:
		lua_store_text(sim->store, "FLUSHALL", NULL);
		sim_server_forced(sim, -1, true);
		break;
	default:
		sim->tally.faults[fault->kind]--;
		evict(sim, random);
	}
}

/* ---- The server's manners ----------------------------------------------------------------- */

static void step_clock(struct sim *sim, int64_t by_us)
{
	sim->store_offset_us += by_us;
	if (by_us < 0)
		sim->clock_was_back = true;
	sim_set_time(sim, sim->now_ns);
	sim_server_uncounted(sim); /* a counter that was lost a moment ago has not caught up yet */
	/* Set forward, it ends leases and graces too early: holders still believe in their holds.
	 */
	for (int i = 0; i < SIM_NAMES && by_us > 0; i++)
		sim_check_forced(sim, i, false);
	sim_disturb(&sim->disturbed_ns, sim->now_ns);
}

const char *sim_fault_refusal(struct sim_random *random, int64_t length_ns, bool *to_some)
{
	const char *refusal = refusals[sim_draw(random, REFUSALS)];

	/* Without a draw, which would change the runs of all seeds. */
	*to_some = length_ns / 1000 % 3 == 0;
	return *to_some ? denial : refusal;
}

static void hurt_server(struct sim *sim, const struct sim_fault *fault, struct sim_random *random)
{
	sim->tally.faults[fault->kind]++;
	switch (fault->kind) {
	case SIM_FORGET:
		sim_server_forget(sim);
		break;
	case SIM_REFUSE:
		sim->sick = sim_fault_refusal(random, fault->length_ns, &sim->sick_to_some);
		sim->sick_until_ns = sim->now_ns + fault->length_ns;
		sim_disturb(&sim->disturbed_ns, sim->sick_until_ns);
		break;
	case SIM_CLOCK_ON:
		step_clock(sim, fault->length_ns / 1000);
		break;
	default:
		step_clock(sim, -fault->length_ns / 1000);
	}
}

/* ---- Operators ---------------------------------------------------------------------------- */

static void break_one(struct sim *sim, struct sim_random *random)
{
	struct sim_name *name = &sim->names[sim_draw(random, 6)];
	const struct store_ticket *hold;
	struct sim_grant *grant;

	sim_check_before(sim, name->index);
	if (!name->view.hold_count)
		return;
	hold = &name->view.holds[sim_draw(random, (uint64_t)name->view.hold_count)];
	grant = sim_grant_of(name, hold->fence, hold->nonce);
	if (grant) {
		sim_check_excuse(sim, name, grant);
		grant->broken = true;
	}
	sim->tally.faults[SIM_BREAK]++;
	if (sim->plan->cluster)
		sim->cluster.runs_at = sim_cluster_owner(sim, name->index);
	query_break(sim->store, name->kind, name->text, hold->text);
	sim_server_mark(sim);
	sim_check_after(sim, name->index, NULL);
}

static void resize(struct sim *sim, struct sim_random *random)
{
	struct sim_name *name = &sim->names[3 + sim_draw(random, 3)];
	int64_t capacity = 1 + (int64_t)sim_draw(random, 2 * sim->plan->capacity);

	sim_check_before(sim, name->index);
	if (sim->plan->cluster)
		sim->cluster.runs_at = sim_cluster_owner(sim, name->index);
	if (query_size(sim->store, name->text, true, capacity, 3600000).kind == LK__SIZED)
		sim->tally.faults[SIM_RESIZE]++;
	sim_server_mark(sim); /* the first one after a loss writes the marker */
	sim_check_after(sim, name->index, NULL);
}

static void operate(struct sim *sim, const struct sim_fault *fault, struct sim_random *random)
{
	if (sim->now_ns < sim->sick_until_ns || sim->now_ns < sim->up_ns)
		return;
	for (int i = 0; sim->plan->cluster && i < SIM_NAMES; i++)
		if (!sim_cluster_is_usable(sim, i))
			return; /* an operator would wait */
	if (fault->kind == SIM_BREAK) {
		break_one(sim, random);
	} else if (fault->kind == SIM_RESIZE) {
		resize(sim, random);
	} else {
		sim->tally.faults[SIM_RESET]++;
		sim_latch_change(sim, 6 + (int)sim_draw(random, 2), sim_draw(random, 1u << 20));
	}
}

void sim_fault_happen(struct sim *sim, const struct sim_fault *fault)
{
	struct sim_random random = {fault->chance};

	sim_trace(sim, NULL, "FAULT %s target %d for %.3f s", sim_fault_name(fault->kind),
	          fault->target, (double)fault->length_ns / 1e9);
	if (sim->plan->quorum && sim_quorum_hurt(sim, fault, &random))
		return;
	if (sim->plan->etcd && sim_etcd_hurt(sim, fault, &random))
		return;
	switch (fault->kind) {
	case SIM_CUT:
	case SIM_STALL:
	case SIM_CUT_OFF:
	case SIM_CRASH:
	case SIM_STOP:
	case SIM_LOSE:
	case SIM_LEAVE:
		hurt_client(sim, fault, &random);
		break;
	case SIM_RESTART:
	case SIM_EMPTY:
	case SIM_OLD:
	case SIM_SNAPSHOT:
	case SIM_FAILOVER:
	case SIM_EVICT:
	case SIM_FLUSH_ALL:
	case SIM_SWITCH:
	case SIM_MASTER_KILL:
	case SIM_MASTER_STOP:
		hurt_memory(sim, fault, &random);
		break;
	case SIM_MUTE:
	case SIM_LIE:
	case SIM_BLIND:
		sim_sentinels_hurt(sim, fault, &random);
		break;
	case SIM_SLOT_MOVE:
	case SIM_TAKEOVER:
	case SIM_NODE_KILL:
	case SIM_NODE_STOP:
		sim_cluster_hurt(sim, fault, &random);
		break;
	case SIM_DEAF:
		sim_replicas_stop(sim, fault, &random);
		break;
	case SIM_FORGET:
	case SIM_REFUSE:
	case SIM_CLOCK_ON:
	case SIM_CLOCK_BACK:
		hurt_server(sim, fault, &random);
		break;
	default:
		operate(sim, fault, &random);
	}
}

/* A wait without limit, perhaps for a rate with many waiters, is cancelled. */
static void limit_waits(struct sim_client *client)
{
	for (int i = 0; i < SIM_THREADS; i++) {
		struct sim_caller *caller = &client->callers[i];
		bool waits = sim_caller_is_inside(caller) && caller->waits && !caller->gave_up;
		if (waits && caller->until_ns == LK__NEVER)
			caller->cancel_ns = client->sim->now_ns + 60 * SIM_S;
	}
}

void sim_faults_heal(struct sim *sim)
{
	sim->sick_until_ns = 0;
	if (sim->up_ns > sim->now_ns)
		sim->up_ns = sim->now_ns;
	if (sim->plan->sentinels)
		sim_service_heal(sim);
	if (sim->plan->cluster)
		sim_cluster_heal(sim);
	if (sim->plan->quorum)
		sim_quorum_heal(sim);
	if (sim->plan->etcd)
		sim_etcd_heal(sim);
	for (int i = 0; i < SIM_CLIENTS; i++) {
		struct sim_client *client = &sim->clients[i];
		client->start_ns = LK__NEVER;
		if (!client->alive)
			continue;
		client->dirty = true;
		if (client->resume_ns > sim->now_ns)
			client->resume_ns = sim->now_ns;
		client->cut_off_ns = 0;
		limit_waits(client);
		for (struct sim_lane *lane = NULL; (lane = sim_client_lane(client, lane));)
			for (int way = 0; lane->link && way < SIM_WAYS; way++)
				lane->link->stalled_ns[way] = 0;
	}
}
