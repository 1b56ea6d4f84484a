/* SPDX-License-Identifier: MIT
 * A run: each step is the earliest event, and the checks follow each step. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define ENDING_NS (90 * SIM_S) /* until every wait has ended */
#define REST_NS (45 * SIM_S)   /* until everything of ended processes has expired */
#define STEPS_A_SECOND_MAX 200000
#define PACE_GRANTS 12 /* a second, at least */
#define PACE_MAX 64

/* Take images first that restarted servers and replicas load later. */
struct image {
	int64_t at_ns;
	int fault;
};

struct agenda {
	struct image images[SIM_FAULTS];
	int count, next;
};

void sim_set_time(struct sim *sim, int64_t now_ns)
{
	sim->now_ns = now_ns;
	lua_store_set_time(sim->store, sim_server_us(sim));
	if (sim->plan->sentinels)
		sim_service_set_time(sim);
	if (sim->plan->cluster)
		sim_cluster_set_time(sim);
	if (sim->plan->quorum)
		sim_quorum_set_time(sim);
	if (sim->plan->etcd)
		sim_etcd_set_time(sim);
}

/* ---- Of the world ------------------------------------------------------------------------- */

static int earlier(const void *one, const void *other)
{
	int64_t a = ((const struct image *)one)->at_ns, b = ((const struct image *)other)->at_ns;

	return a < b ? -1 : a > b;
}

static bool loads_image(enum sim_fault_kind kind)
{
	return kind == SIM_OLD || kind == SIM_SNAPSHOT || kind == SIM_FAILOVER ||
	       kind == SIM_SWITCH || kind == SIM_MASTER_KILL || kind == SIM_MASTER_STOP ||
	       kind == SIM_NODE_KILL || kind == SIM_NODE_STOP;
}

static void plan_images(struct agenda *agenda, const struct sim_plan *plan)
{
	for (int i = 0; i < plan->fault_count; i++) {
		const struct sim_fault *fault = &plan->faults[i];
		int64_t at_ns = fault->at_ns - fault->length_ns;
		if (fault->out || !loads_image(fault->kind))
			continue;
		agenda->images[agenda->count++] =
			(struct image){SIM_START_NS + (at_ns > 0 ? at_ns : 0), i};
	}
	qsort(agenda->images, (size_t)agenda->count, sizeof(*agenda->images), earlier);
}

static void consider(struct sim_next *next, const struct sim *sim, enum sim_event event,
                     int64_t at_ns)
{
	if (at_ns < sim->now_ns)
		at_ns = sim->now_ns;
	if (at_ns < next->at_ns) {
		next->event = event;
		next->at_ns = at_ns;
	}
}

static void skip_faults(struct sim *sim)
{
	const struct sim_plan *plan = sim->plan;

	while (sim->next_fault < plan->fault_count &&
	       (plan->faults[sim->next_fault].out ||
	        plan->clients_out >> plan->faults[sim->next_fault].target & 1))
		sim->next_fault++;
}

static void consider_world(struct sim *sim, const struct agenda *agenda, struct sim_next *next)
{
	for (const struct sim_call *call = sim->late; call; call = call->next)
		consider(next, sim, SIM_LATE, call->at_ns);
	for (const struct sim_link *link = sim->links; link; link = link->next)
		if (link->there_until_ns != LK__NEVER)
			consider(next, sim, SIM_HALF_OPEN, link->there_until_ns);
	if (sim->plan->sentinels)
		consider(next, sim, SIM_SERVICE, sim_service_due(sim));
	if (sim->plan->cluster)
		consider(next, sim, SIM_SERVICE, sim_cluster_due(sim));
	if (sim->plan->etcd)
		consider(next, sim, SIM_SERVICE, sim_etcd_world_due(sim));
	skip_faults(sim);
	if (sim->ending)
		return;
	if (agenda->next < agenda->count)
		consider(next, sim, SIM_IMAGE, agenda->images[agenda->next].at_ns);
	if (sim->next_fault < sim->plan->fault_count)
		consider(next, sim, SIM_FAULT,
		         SIM_START_NS + sim->plan->faults[sim->next_fault].at_ns);
}

/* The server closes a connection whose other end is gone. */
static void end_half_open(struct sim *sim)
{
	struct sim_link *link = sim->links, *next;

	for (; link; link = next) {
		next = link->next;
		if (link->there_until_ns <= sim->now_ns)
			sim_link_free(sim, link);
	}
}

static void world_happen(struct sim *sim, struct agenda *agenda, const struct sim_next *next)
{
	switch (next->event) {
	case SIM_LATE:
		sim_network_late(sim);
		break;
	case SIM_HALF_OPEN:
		end_half_open(sim);
		break;
	case SIM_SERVICE:
		if (sim->plan->cluster)
			sim_cluster_happen(sim);
		else if (sim->plan->etcd)
			sim_etcd_happen(sim);
		else
			sim_service_happen(sim);
		break;
	case SIM_IMAGE:
		sim_replicas_image(sim, agenda->images[agenda->next++].fault);
		break;
	default:
		sim_fault_happen(sim, &sim->plan->faults[sim->next_fault++]);
	}
}

/* ---- Steps -------------------------------------------------------------------------------- */

/* For the trace: the event, and its subject. */
static void tell(struct sim *sim, const struct sim_client *client, const struct sim_next *next)
{
	const struct sim_link *link = client && next->lane ? next->lane->link : NULL;
	const struct sim_call *call = link ? link->calls : NULL;
	const struct sim_item *item = link ? link->items : NULL;

	if (!sim->trace)
		return;
	if (next->event == SIM_HEAR && item && item->kind == SIM_MESSAGE)
		sim_trace(sim, client, "hears: %.*s", (int)item->len, item->text);
	else if (next->event == SIM_REPLY && call)
		sim_trace(sim, client, "has a reply to %s", sim_call_name(call));
	else if (next->event == SIM_TICK)
		sim_trace(sim, client, "has a timer that is due");
	else if (next->event == SIM_HALF_OPEN)
		sim_trace(sim, NULL, "the server closes a silent connection");
	else if (next->event == SIM_IMAGE)
		sim_trace(sim, NULL, "an image is taken");
	/* Other events trace themselves. */
}

/* Where little is granted, callers pause less. */
static void set_pace(struct sim *sim)
{
	int64_t seconds = (sim->now_ns - SIM_START_NS) / SIM_S;
	long long grants = sim->tally.grants + sim->tally.handed_over;

	if (sim->ending || sim->now_ns < sim->paced_ns + SIM_S)
		return;
	sim->paced_ns = sim->now_ns;
	if (grants < PACE_GRANTS * seconds && sim->pace < PACE_MAX)
		sim->pace *= 2;
	else if (grants > 2 * PACE_GRANTS * seconds && sim->pace > 1)
		sim->pace /= 2;
}

/* Nothing new is granted: no server is the master, or it may have forgotten holders. */
static bool is_between(const struct sim *sim)
{
	if (sim->plan->quorum)
		return sim_quorum_voters(sim) < sim->quorum.majority;
	if (sim->plan->etcd)
		return em_leader(sim->etcd.model) < 0;
	return sim_server_in_grace(sim) || (sim->plan->sentinels && sim->now_ns < sim->up_ns);
}

static bool step(struct sim *sim, struct agenda *agenda, int64_t end_ns)
{
	struct sim_next next = {.event = SIM_NOTHING, .at_ns = LK__NEVER};
	struct sim_client *who = NULL;
	int alive = 0;

	consider_world(sim, agenda, &next);
	for (int i = 0; i < sim->plan->clients; i++) {
		struct sim_client *client = &sim->clients[i];
		alive += client->alive;
		if (client->dirty)
			sim_client_find_next(client);
		if (client->next.at_ns < next.at_ns ||
		    (who && client->next.at_ns == next.at_ns && client->next.tie < next.tie)) {
			next = client->next;
			who = client;
		}
	}
	if (next.event == SIM_NOTHING || next.at_ns > end_ns || sim->result->failed) {
		if (!sim->result->failed)
			sim_set_time(sim, end_ns);
		return false;
	}
	if (!sim->ending && is_between(sim))
		sim->tally.grace_seconds += (double)(next.at_ns - sim->now_ns) / 1e9;
	else if (!sim->ending && (sim->plan->sentinels || sim->plan->quorum || sim->plan->etcd))
		sim->tally.following_seconds += (double)(next.at_ns - sim->now_ns) / 1e9;
	if (!sim->ending)
		sim->tally.client_seconds += alive * (double)(next.at_ns - sim->now_ns) / 1e9;
	sim_set_time(sim, next.at_ns);
	tell(sim, who, &next);
	sim->tally.steps++;
	set_pace(sim);
	if (who) {
		sim_client_happen(who, &next);
		sim_check_client(who);
	} else {
		world_happen(sim, agenda, &next);
	}
	if (sim->plan->etcd)
		sim_etcd_check_names(sim);
	else
		sim_check_names(sim);
	return true;
}

/* ---- A run -------------------------------------------------------------------------------- */

static bool somebody_waits(const struct sim *sim)
{
	for (int i = 0; i < sim->plan->clients; i++)
		for (int j = 0; sim->clients[i].alive && j < SIM_THREADS; j++)
			if (sim->clients[i].callers[j].doing != SIM_IDLE)
				return true;
	return false;
}

static bool is_endless(struct sim *sim)
{
	int64_t seconds = (sim->now_ns - SIM_START_NS) / SIM_S + 1;

	if (sim->tally.steps < seconds * STEPS_A_SECOND_MAX)
		return false;
	sim_fail(sim, PROMISE_PROGRESS, "%lld steps in %lld s", sim->tally.steps,
	         (long long)seconds);
	return true;
}

/* How far a server's clock is behind: negative, or 0. */
static int64_t back_us(const struct sim *sim)
{
	int64_t back_us = sim->plan->quorum ? 0 : sim->store_offset_us;

	for (int i = 0; i < sim->quorum.count; i++)
		if (sim->quorum.members[i].offset_us < back_us)
			back_us = sim->quorum.members[i].offset_us;
	return back_us < 0 ? back_us : 0;
}

/* Heal all faults; pending calls run to their end. */
static void finish(struct sim *sim, struct agenda *agenda)
{
	int64_t rested_ns;

	sim->ending = true;
	sim->end_ns = sim->now_ns;
	sim_faults_heal(sim);
	sim_latch_open_all(sim);
	while (somebody_waits(sim) && step(sim, agenda, sim->end_ns + ENDING_NS))
		if (is_endless(sim))
			return;
	if (!sim->result->failed && somebody_waits(sim))
		sim_fail(sim, PROMISE_REST, "a client still waits or holds");
	sim->pace = 1;
	rested_ns = sim->now_ns + sim_ways_ns(sim, 8);
	while ((sim->late || sim->now_ns < rested_ns) &&
	       step(sim, agenda, sim->late ? sim->end_ns + ENDING_NS : rested_ns))
		if (is_endless(sim))
			return;
	if (!sim->result->failed)
		sim_check_rest(sim);
	while (step(sim, agenda, sim->end_ns + ENDING_NS + REST_NS - back_us(sim) * 1000))
		if (is_endless(sim))
			return;
	if (!sim->result->failed)
		sim_check_end(sim);
	if (sim->plan->quorum && !sim->plan->fault_count)
		sim_quorum_check_cost(sim);
}

bool sim_run(const struct sim_plan *plan, struct sim_result *result, FILE *trace)
{
	struct sim *sim = calloc(1, sizeof(*sim));
	static struct agenda agenda;

	if (!sim)
		abort();
	memset(&agenda, 0, sizeof(agenda));
	memset(result, 0, sizeof(*result));
	sim->plan = plan;
	sim->result = result;
	sim->trace = trace;
	sim->now_ns = SIM_START_NS;
	sim->pace = 1;
	sim_server_init(sim);
	sim_set_time(sim, SIM_START_NS);
	plan_images(&agenda, plan);
	for (int i = 0; i < plan->clients; i++) {
		sim->clients[i].next.at_ns = LK__NEVER;
		if (!(plan->clients_out >> i & 1))
			sim_client_start(sim, i);
	}
	while (step(sim, &agenda, SIM_START_NS + plan->length_ns) && !is_endless(sim))
		;
	if (!result->failed)
		finish(sim, &agenda);
	/* Without the quiet time at the end. */
	sim->tally.seconds =
		(double)(sim->ending ? plan->length_ns : sim->now_ns - SIM_START_NS) / 1e9;
	result->tally = sim->tally;
	for (int i = 0; i < plan->clients; i++)
		sim_client_free(&sim->clients[i]);
	sim_link_free_all(sim);
	sim_server_fini(sim);
	free(sim);
	return !result->failed;
}
