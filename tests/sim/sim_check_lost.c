/* SPDX-License-Identifier: MIT
 * A hold is lost: with a reason that is true.  A loss of the server's memory alone is none, if the
 * grace is meant for it. */
#include "sim.h"

/* The last one to that client, of that fence or an earlier one: threads hand the lock over under
 * later fences. */
static const struct sim_grant *grant_of(const struct sim_client *client, struct sim_name *name,
                                        const struct lk__hold *hold)
{
	int least = name->grant_count > SIM_GRANTS ? name->grant_count - SIM_GRANTS : 0;

	for (int i = name->grant_count - 1; i >= least; i--) {
		const struct sim_grant *grant = &name->grants[i % SIM_GRANTS];
		if (grant->slot == client->slot && grant->life == client->life &&
		    grant->fence <= hold->fence)
			return grant;
	}
	return NULL;
}

/* An older copy may have other holds, which have ended: they make room. */
static void check_taken(struct sim *sim, const struct sim_name *name, const struct lk__hold *hold)
{
	sim_fail(sim, PROMISE_OWNER, "fence %llu of %s is reported taken, and nobody took it",
	         (unsigned long long)hold->fence, name->text);
}

/* All the time of its lease the client reached the server, and nothing was delayed or refused: it
 * had time for a renewal that finds nothing, for the marker, and for the reclaim. */
static void check_expired(const struct sim_client *client, const struct sim_name *name,
                          const struct lk__hold *hold)
{
	const struct sim_caller *caller = hold->handle;
	int64_t lease_ns = caller->queue->lease_ms * SIM_MS;

	if (!caller->queue->fixed && lease_ns > 3 * sim_ways_ns(client->sim, 6) &&
	    sim_is_fine(client, lease_ns))
		sim_fail(client->sim, PROMISE_RENEWAL,
		         "fence %llu of %s has expired: its client did not renew it, or did not "
		         "take it back",
		         (unsigned long long)hold->fence, name->text);
}

void sim_check_lost(const struct sim_client *client, const struct lk__hold *hold)
{
	struct sim *sim = client->sim;
	struct sim_name *name = &sim->names[hold->name->bytes[hold->name->len - 1] - '0'];
	const struct sim_grant *grant = grant_of(client, name, hold);

	if (sim->plan->quorum) {
		sim_quorum_check_lost(client, hold);
		return;
	}
	if (sim->plan->etcd) {
		sim_etcd_check_lost(client, hold);
		return;
	}
	if (!grant || grant->broken || grant->era != name->era || name->torn)
		return;
	/* A replaced master granted it, or says so. */
	if (grant->stale || (!sim->plan->cluster && client->lane->link &&
	                     client->lane->link->place != sim->service.place))
		return;
	if (hold->lost == LK_LOST_TAKEN)
		check_taken(sim, name, hold);
	else if (hold->lost == LK_LOST_EXPIRED)
		check_expired(client, name, hold);
}
