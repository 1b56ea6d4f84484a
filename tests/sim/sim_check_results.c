/* SPDX-License-Identifier: MIT
 * Results of calls on locks and permits: each result only where it is possible, and in time. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static bool store_knows(struct sim *sim, struct sim_name *name, const char *nonce)
{
	sim_look(sim, name, &name->view);
	for (int i = 0; i < name->view.hold_count; i++)
		if (!strcmp(name->view.holds[i].nonce, nonce))
			return true;
	for (int i = 0; i < name->view.queued; i++)
		if (!strcmp(name->view.queue[i].nonce, nonce))
			return true;
	return false;
}

/* Neither the client nor the server had a fault since the call began. */
static bool was_fine(const struct sim_caller *caller)
{
	const struct sim *sim = caller->client->sim;

	return !sim->plan->fault_count ||
	       sim_is_fine(caller->client, sim->now_ns - caller->began_ns);
}

/* What may have happened to any call. */
static struct promise_causes causes_of(const struct sim_caller *caller)
{
	const struct sim *sim = caller->client->sim;

	return (struct promise_causes){
		.silence = !was_fine(caller),
		.unsent = !was_fine(caller),
		/* A slot that moves, or has no master: nothing was done, try again. */
		.refusal = sim->tally.faults[SIM_REFUSE] > 0 ||
	                   ((sim->plan->cluster || sim->plan->etcd) && !was_fine(caller)),
		.close = caller->client->closed,
		.shortage = caller->client->short_ns >= caller->began_ns,
		.other = sim->tally.faults[SIM_EVICT] > 0,
		.gave_up = caller->gave_up,
	};
}

/* A client of a service that no sentinel knows has a wrong URL. */
void sim_keep_result(const struct sim_caller *caller, const struct promise_causes *causes,
                     lk_err err)
{
	if (err != LK_EINVALID || !caller->client->watch.was_unaware)
		sim_keep_of(caller->client->sim, &caller->client->sim->names[caller->name],
		            PROMISE_RESULT, promise_result(causes, err));
}

/* ---- Waits -------------------------------------------------------------------------------- */

/* A wait that is cancelled or times out ends as soon as the store has acknowledged it. */
void sim_check_gave_up(struct sim_caller *caller)
{
	struct sim *sim = caller->client->sim;

	if (caller->gave_up && sim_is_fine(caller->client, sim->now_ns - caller->gave_up_ns))
		sim_keep(sim, PROMISE_DEADLINE,
		         promise_deadline(caller->gave_up_ns + sim_ways_ns(sim, 4), sim->now_ns));
}

/* In any case a call ends by its wait plus one command timeout; in a stopped process, by its
 * continuation plus that. */
void sim_check_deadline(const struct sim_caller *caller)
{
	const struct sim_client *client = caller->client;
	int64_t over_ns = sim_true(client, caller->until_ns);

	if (!sim_caller_is_inside(caller))
		return;
	if (caller->waits && caller->gave_up)
		over_ns = caller->gave_up_ns;
	if (over_ns < client->resume_ns)
		over_ns = client->resume_ns;
	/* Its clock drifts by less than 1 %. */
	sim_keep(client->sim, PROMISE_DEADLINE,
	         promise_deadline(over_ns,
	                          client->sim->now_ns - SIM_TIMEOUT_NS - SIM_TIMEOUT_NS / 100));
	sim_keep(client->sim, PROMISE_STATE, promise_state_call(&caller->waiter));
}

void sim_check_acquired(struct sim_caller *caller, lk_err err)
{
	struct promise_causes causes = causes_of(caller);
	struct sim *sim = caller->client->sim;
	struct sim_name *name = &sim->names[caller->name];

	sim_check_gave_up(caller);
	causes.success = true;
	causes.silence = causes.unsent =
		caller->gave_up || caller->waiter.only_try || sim->plan->fault_count;
	causes.busy = caller->waiter.only_try;
	causes.limit = sim_capacity_since(name, caller->began_ns, true) < caller->count ||
	               (caller->client->stale_ns >= caller->began_ns &&
	                name->stale_capacity < caller->count);
	causes.other = false;
	if (err == LK_EREPLICAS)
		sim_check_unconfirmed(caller);
	sim_keep_result(caller, &causes, err);
	/* Requests sent over a closed connection, or twice, may arrive after the leave. */
	if ((err == LK_ETIMEDOUT || err == LK_ECANCELED || err == LK_ECLOSED) && caller->nonce[0] &&
	    !sim->plan->fault_count && !sim->plan->quorum && store_knows(sim, name, caller->nonce))
		sim_fail(sim, PROMISE_RESULT, "a wait ended with %s and left its ticket",
		         lk_err_name(err));
}

void sim_check_reentered(struct sim_caller *caller, lk_err err)
{
	const struct promise_causes causes = {
		.success = true, .loss = !caller->was_valid, .close = caller->client->closed};

	sim_keep_result(caller, &causes, err);
}

/* ---- Holds -------------------------------------------------------------------------------- */

void sim_check_released(struct sim_caller *caller, lk_err err)
{
	struct promise_causes causes = causes_of(caller);
	struct sim *sim = caller->client->sim;

	causes.success = caller->was_valid;
	/* A lease that is not renewed, or is short, may expire in flight. */
	causes.loss = !caller->was_valid || sim->plan->fault_count || caller->queue->fixed ||
	              caller->queue->lease_ms * SIM_MS < 2 * sim_ways_ns(sim, 2);
	causes.limit = caller->waiter.permits > caller->least;
	causes.gave_up = LK_OK;
	sim_keep_result(caller, &causes, err);
	if (sim->plan->quorum)
		sim_quorum_check_released(caller, err);
}

void sim_check_extended(struct sim_caller *caller, lk_err err)
{
	struct promise_causes causes = causes_of(caller);
	struct sim_client *client = caller->client;
	struct sim *sim = client->sim;
	const struct lk__hold *hold = lk__core_hold(caller->queue->name, caller->owner);
	int64_t now_ns = sim_local(client), least_ns;
	bool valid = hold && lk__hold_left_ns(hold, now_ns);

	causes.success = caller->was_valid;
	causes.loss = !valid;
	/* Other members may have no leg that could be extended. */
	if (sim->plan->quorum)
		causes.silence = !sim_quorum_had_majority(caller);
	causes.gave_up = LK_OK;
	sim_keep_result(caller, &causes, err);
	if (err || !valid)
		return;
	/* It was sent after the call began. */
	least_ns = sim->now_ns - caller->began_ns;
	least_ns = now_ns - least_ns - least_ns / 100 + caller->waiter.lease_ms * SIM_MS -
	           lk__margin_ns(caller->waiter.lease_ms);
	if (hold->ticket->valid_until_ns < least_ns - SIM_MS)
		sim_fail(sim, PROMISE_RESULT, "an extension by %lld ms is %lld us too short",
		         (long long)caller->waiter.lease_ms,
		         (long long)(least_ns - hold->ticket->valid_until_ns) / 1000);
}
