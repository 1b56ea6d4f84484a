/* SPDX-License-Identifier: MIT
 * Threads that await latches, count them down, set and remove them; and the operator, who does the
 * same. */
#include "sim.h"

#include "scripts.h"

#include <stdlib.h>
#include <string.h>

/* The arguments after the keys of latch_set. */
struct set_args {
	char count[24];
	const char *anew, *open_ttl, *counting_ttl;
};

static void fill_args(struct set_args *args, uint64_t chance)
{
	static const char *const open_ttls[] = {"1000", "5000", "60000", "86400000"};

	snprintf(args->count, sizeof(args->count), "%d",
	         chance % 16 == 0 ? 0 : 1 + (int)(chance / 16 % 12));
	args->anew = chance / 192 % 4 ? "0" : "1";
	args->open_ttl = open_ttls[chance / 768 % 4];
	args->counting_ttl = chance / 3072 % 8 ? "0" : "20000";
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

/* set: NULL = remove it. */
static void ask(struct sim_caller *caller, const struct set_args *set)
{
	struct sim_client *client = caller->client;
	const struct sim_name *name = &client->sim->names[caller->name];
	const char *remove_args[] = {name->main, name->memory, name->queue, name->topic};
	const char *args[9] = {name->main, name->memory, "lk:fence", name->queue};

	if (!client->link) {
		sim_caller_plan(caller, client->sim->plan->idle_ns);
		return;
	}
	sim_caller_begin(caller, SIM_ASKING);
	sim_trace(client->sim, client, "thread %d %s %s", caller->index, set ? "sets" : "removes",
	          name->text);
	if (!set) {
		sim_network_ask(caller, &lk__script_latch_remove, 4, remove_args);
		return;
	}
	args[4] = set->count;
	args[5] = set->anew;
	args[6] = set->open_ttl;
	args[7] = set->counting_ttl;
	args[8] = name->topic;
	sim_network_ask(caller, &lk__script_latch_set, 9, args);
}

void sim_latch_begin(struct sim_caller *caller)
{
	unsigned kind = (unsigned)sim_draw(&caller->random, 100);
	uint64_t chance = sim_draw(&caller->random, 1u << 20);
	struct set_args set;

	fill_args(&set, chance / 8);
	caller->queue = caller->client->queues[caller->name][0];
	caller->owner = 0;
	caller->depth = 0;
	if (kind < 35)
		await(caller);
	else if (kind < 88)
		count_down(caller);
	else
		ask(caller, chance % 8 ? &set : NULL);
}

void sim_latch_act(struct sim_caller *caller, const struct sim_act *act)
{
	struct set_args set = {"", "1", "86400000", "0"};

	caller->queue = caller->client->queues[caller->name][0];
	caller->owner = 0;
	caller->depth = 0;
	if (act->count < 0) {
		start_await(caller, act->wait_ns, false);
		return;
	}
	snprintf(set.count, sizeof(set.count), "%d", act->count);
	ask(caller, &set);
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

static void set(struct sim *sim, struct sim_name *name, const struct set_args *set)
{
	const char *args[] = {set->count,        set->anew,   set->open_ttl,
	                      set->counting_ttl, name->topic, NULL};

	sim_check_before(sim, name->index);
	sim_server_script(sim, name, &lk__script_latch_set, args);
	sim_check_after(sim, name->index, NULL);
}

void sim_latch_change(struct sim *sim, int index, uint64_t chance)
{
	struct sim_name *name = &sim->names[index];
	const char *remove_args[] = {name->topic, NULL};
	struct set_args args;

	fill_args(&args, chance / 6);
	if (chance % 6) {
		set(sim, name, &args);
		return;
	}
	sim_check_before(sim, index);
	sim_server_script(sim, name, &lk__script_latch_remove, remove_args);
	sim_check_after(sim, index, NULL);
}

void sim_latch_open_all(struct sim *sim)
{
	const struct set_args args = {"0", "1", "86400000", "0"};

	for (int i = 0; i < SIM_NAMES; i++)
		if (sim->names[i].kind == LK_KIND_LATCH)
			set(sim, &sim->names[i], &args);
}
