/* SPDX-License-Identifier: MIT
 * Threads that await latches, count them down, set and remove them; and the operator, who does the
 * same. */
#include "sim.h"

#include "query.h"

#include <stdlib.h>
#include <string.h>

struct lk__details sim_latch_any_set(uint64_t chance)
{
	static const int64_t open_ttls_ms[] = {1000, 5000, 60000, 86400000};

	return (struct lk__details){
		.count = chance % 16 == 0 ? 0 : 1 + (int64_t)(chance / 16 % 12),
		.anew = chance / 192 % 4 == 0,
		.open_ttl_ms = open_ttls_ms[chance / 768 % 4],
		.counting_ttl_ms = chance / 3072 % 8 ? 0 : 20000,
	};
}

static struct lk__details reset_to(int64_t count)
{
	return (struct lk__details){.count = count, .anew = true, .open_ttl_ms = 86400000};
}

/* ---- Calls -------------------------------------------------------------------------------- */

/* wait_ns: LK__NEVER = without limit, 0 = look once. */
static void start_await(struct sim_caller *caller, int64_t wait_ns, bool absent_is_open)
{
	struct sim_client *client = caller->client;

	sim_caller_begin(caller, SIM_AWAITING);
	sim_caller_limit(caller, wait_ns);
	caller->waiter.absent_is_open = absent_is_open;
	sim_trace(client->sim, client, "thread %d awaits %s", caller->index,
	          caller->queue->name->bytes);
	lk__core_await(&client->core, sim_local(client), &caller->waiter);
}

static void await(struct sim_caller *caller)
{
	struct sim_random *random = &caller->random;
	unsigned kind = (unsigned)sim_draw(random, 20);
	int64_t wait_ns = sim_within(random, kind < 12 ? 5 * SIM_S : 25 * SIM_S);
	bool absent_is_open = sim_percent(random, 15);

	if (kind < 2)
		wait_ns = 0;
	else if (kind >= 18)
		wait_ns = LK__NEVER;
	else if (!wait_ns)
		wait_ns = 1;
	start_await(caller, wait_ns, absent_is_open);
}

static void count_down(struct sim_caller *caller)
{
	struct sim_client *client = caller->client;
	struct sim_random *random = &caller->random;
	struct lk__step *step = calloc(1, sizeof(*step));

	if (!step)
		abort();
	step->n = sim_percent(random, 75) ? 1 : 1 + (uint32_t)sim_draw(random, 3);
	if (sim_percent(random, 35)) {
		step->len = 1;
		step->name[0] = (char)('a' + 1 + sim_draw(random, SIM_STEP_NAMES));
	}
	sim_caller_begin(caller, SIM_STEPPING);
	caller->waiter.spare_step = step;
	sim_trace(client->sim, client, "thread %d counts %s down by %u, step %s", caller->index,
	          caller->queue->name->bytes, step->n, step->len ? step->name : "unnamed");
	lk__core_step(&client->core, sim_local(client), &caller->waiter);
}

static void ask(struct sim_caller *caller, enum lk__request_kind kind,
                const struct lk__details *details)
{
	struct sim_client *client = caller->client;

	if (client->sim->plan->etcd) {
		sim_etcd_ask(caller, kind, details);
		return;
	}
	caller->asks = (struct sim_lane *)caller->queue->name->session;
	if (!caller->asks->link) {
		sim_caller_plan(caller, client->sim->plan->idle_ns);
		return;
	}
	sim_caller_begin(caller, SIM_ASKING);
	sim_trace(client->sim, client, "thread %d %s %s", caller->index,
	          kind == LK__SET ? "sets" : "removes", caller->queue->name->bytes);
	sim_network_ask(caller, kind, details);
}

void sim_latch_begin(struct sim_caller *caller)
{
	unsigned kind = (unsigned)sim_draw(&caller->random, 100);
	uint64_t chance = sim_draw(&caller->random, 1u << 20);
	struct lk__details details = sim_latch_any_set(chance / 8);

	caller->queue = caller->client->queues[caller->name][0];
	caller->owner = 0;
	caller->depth = 0;
	if (kind < 35)
		await(caller);
	else if (kind < 88)
		count_down(caller);
	else
		ask(caller, chance % 8 ? LK__SET : LK__REMOVE, &details);
}

void sim_latch_act(struct sim_caller *caller, const struct sim_act *act)
{
	struct lk__details details = reset_to(act->count);

	caller->queue = caller->client->queues[caller->name][0];
	caller->owner = 0;
	caller->depth = 0;
	if (act->count < 0) {
		start_await(caller, act->wait_ns, false);
		return;
	}
	ask(caller, LK__SET, &details);
}

void sim_latch_done(struct sim_caller *caller, enum sim_doing was)
{
	struct sim *sim = caller->client->sim;
	lk_err err = caller->waiter.why.err;

	if (was == SIM_AWAITING) {
		sim->tally.released += !err;
		sim_check_awaited(caller, err);
	} else {
		sim_check_stepped(caller, err);
	}
}

/* A query has its reply, or will never get one; the steps' knowledge of the latch is discarded. */
void sim_latch_answered(struct sim_caller *caller, bool answered)
{
	(void)answered;
	caller->queue->name->latch->generation = 0;
	caller->doing = SIM_IDLE;
	sim_caller_plan(caller, caller->client->sim->plan->idle_ns);
}

/* ---- Operators ---------------------------------------------------------------------------- */

static void change(struct sim *sim, const struct sim_name *name, enum lk__request_kind kind,
                   const struct lk__details *details)
{
	sim_check_before(sim, name->index);
	if (sim->plan->cluster)
		sim->cluster.runs_at = sim_cluster_owner(sim, name->index);
	query_run(sim->store, kind, LK_KIND_LATCH, name->text, details);
	sim_check_after(sim, name->index, NULL);
}

void sim_latch_change(struct sim *sim, int index, uint64_t chance)
{
	struct lk__details details = sim_latch_any_set(chance / 6);

	change(sim, &sim->names[index], chance % 6 ? LK__SET : LK__REMOVE, &details);
}

void sim_latch_open_all(struct sim *sim)
{
	struct lk__details details = reset_to(0);

	for (int i = 0; !sim->plan->quorum && !sim->plan->etcd && i < SIM_NAMES; i++)
		if (sim->names[i].kind == LK_KIND_LATCH)
			change(sim, &sim->names[i], LK__SET, &details);
}
