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

static bool refused(const struct sim_caller *caller)
{
	return caller->client->sim->tally.faults[SIM_REFUSE] > 0;
}

/* ---- Waits -------------------------------------------------------------------------------- */

static bool is_allowed(const struct sim_caller *caller, lk_err err)
{
	switch (err) {
	case LK_OK:
		return true;
	case LK_ETIMEDOUT:
	case LK_ECANCELED:
		return caller->gave_up == err;
	case LK_ECONN:
	case LK_EUNKNOWN:
		return caller->gave_up || caller->waiter.only_try ||
		       caller->client->sim->plan->fault_count;
	case LK_EBUSY:
		return caller->waiter.only_try;
	case LK_ECLOSED:
		return caller->client->closed;
	case LK_EAGAIN:
	case LK_EAUTH:
	case LK_ESERVER:
		return refused(caller);
	case LK_ELIMIT:
		return sim_capacity_since(&caller->client->sim->names[caller->name],
		                          caller->began_ns, true) < caller->count;
	default:
		return false;
	}
}

/* A wait that is cancelled or times out ends as soon as the store has acknowledged it. */
void sim_check_gave_up(struct sim_caller *caller, lk_err err)
{
	struct sim *sim = caller->client->sim;
	int64_t took_ns = sim->now_ns - caller->gave_up_ns;

	if (caller->gave_up == LK_ECANCELED && err == LK_ETIMEDOUT)
		sim_fail(sim, "result", "a cancelled wait ended with %s", lk_err_name(err));
	if (caller->gave_up && took_ns > sim_ways_ns(sim, 4) &&
	    sim_is_fine(caller->client, took_ns))
		sim_fail(sim, "deadline", "a wait that had timed out took %.3f s to end with %s",
		         (double)took_ns / 1e9, lk_err_name(err));
}

/* In any case a call ends by its wait plus one command timeout; in a stopped process, by its
 * continuation plus that. */
void sim_check_deadline(const struct sim_caller *caller)
{
	const struct sim_client *client = caller->client;
	int64_t now_ns = client->sim->now_ns, over_ns = sim_true(client, caller->until_ns);

	if (!sim_caller_is_inside(caller))
		return;
	if (caller->waits && caller->gave_up)
		over_ns = caller->gave_up_ns;
	if (over_ns < client->resume_ns)
		over_ns = client->resume_ns;
	if (over_ns < now_ns - SIM_TIMEOUT_NS - SIM_TIMEOUT_NS / 100)
		sim_fail(client->sim, "deadline", "a call does not end: overdue for %.3f s",
		         (double)(now_ns - over_ns) / 1e9);
}

void sim_check_acquired(struct sim_caller *caller, lk_err err)
{
	struct sim *sim = caller->client->sim;
	struct sim_name *name = &sim->names[caller->name];

	sim_check_gave_up(caller, err);
	if (!is_allowed(caller, err))
		sim_fail(sim, "result", "acquire of %s ended with %s", name->text,
		         lk_err_name(err));
	/* Requests sent over a closed connection, or twice, may arrive after the leave. */
	if ((err == LK_ETIMEDOUT || err == LK_ECANCELED || err == LK_ECLOSED) && caller->nonce[0] &&
	    !sim->plan->fault_count && store_knows(sim, name, caller->nonce))
		sim_fail(sim, "result", "a wait ended with %s and left its ticket",
		         lk_err_name(err));
}

void sim_check_reentered(struct sim_caller *caller, lk_err err)
{
	if (err != LK_OK && (err != LK_ELOST || caller->was_valid) &&
	    (err != LK_ECLOSED || !caller->client->closed))
		sim_fail(caller->client->sim, "result", "a re-entry ended with %s",
		         lk_err_name(err));
}

/* ---- Holds -------------------------------------------------------------------------------- */

/* The result of a call whose reply is missing, or that the server refuses. */
static bool is_trouble(const struct sim_caller *caller, lk_err err)
{
	switch (err) {
	case LK_ECONN:
	case LK_EUNKNOWN:
		return !was_fine(caller);
	case LK_EAGAIN:
	case LK_EAUTH:
	case LK_ESERVER:
		return refused(caller);
	case LK_ECLOSED:
		return caller->client->closed;
	case LK_EFOREIGN:
		return caller->client->sim->tally.faults[SIM_EVICT] > 0;
	default:
		return false;
	}
}

void sim_check_released(struct sim_caller *caller, lk_err err)
{
	struct sim *sim = caller->client->sim;
	bool allowed;

	switch (err) {
	case LK_OK:
		allowed = caller->was_valid;
		break;
	case LK_ELOST:
		/* A lease that is not renewed, or is short, may expire in flight. */
		allowed = !caller->was_valid || sim->plan->fault_count || caller->queue->fixed ||
		          caller->queue->lease_ms * SIM_MS < 2 * sim_ways_ns(sim, 2);
		break;
	case LK_ELIMIT:
		allowed = caller->waiter.permits > caller->least;
		break;
	default:
		allowed = is_trouble(caller, err);
	}
	if (!allowed)
		sim_fail(sim, "result", "the release of a %s hold ended with %s",
		         caller->was_valid ? "valid" : "lapsed", lk_err_name(err));
}

void sim_check_extended(struct sim_caller *caller, lk_err err)
{
	struct sim_client *client = caller->client;
	struct sim *sim = client->sim;
	const struct lk__hold *hold = lk__core_hold(caller->queue->name, caller->owner);
	int64_t now_ns = sim_local(client), least_ns;
	bool valid = hold && lk__hold_left_ns(hold, now_ns);

	if (err == LK_ELOST ? valid : err && !is_trouble(caller, err))
		sim_fail(sim, "result", "the extension of a %s hold ended with %s",
		         caller->was_valid ? "valid" : "lapsed", lk_err_name(err));
	if (err == LK_OK && !caller->was_valid)
		sim_fail(sim, "result", "the extension of a lapsed hold succeeded");
	if (err || !valid)
		return;
	/* It was sent after the call began. */
	least_ns = sim->now_ns - caller->began_ns;
	least_ns = now_ns - least_ns - least_ns / 100 + caller->waiter.lease_ms * SIM_MS -
	           lk__margin_ns(caller->waiter.lease_ms);
	if (hold->ticket->valid_until_ns < least_ns - SIM_MS)
		sim_fail(sim, "result", "an extension by %lld ms is %lld us too short",
		         (long long)caller->waiter.lease_ms,
		         (long long)(least_ns - hold->ticket->valid_until_ns) / 1000);
}
