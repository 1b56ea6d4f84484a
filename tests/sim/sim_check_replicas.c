/* SPDX-License-Identifier: MIT
 * What replicas have confirmed survives a failover.
 *
 * With replicas=K, a hold counts when K replicas have it.  If all of them must confirm, any replica
 * that is promoted has each hold that counts, for at least as long as its holder believes in it;
 * with fewer, one has that confirmed at least as much as every other.  And then nothing that the
 * replaced master still grants counts.  So these failovers excuse only what holders believe in
 * since an earlier loss of memory, for which the grace is meant. */
#include "sim.h"

#include <string.h>

bool sim_check_is_unanimous(const struct sim *sim)
{
	return sim->plan->replicas >= SIM_PLACES - 1;
}

/* Until when the promoted replica has it, by the clock of the master that it replaces: the true
 * time, 0 = it has nothing of it. */
static int64_t kept_ns(const struct sim *sim, const struct store_view *view,
                       const struct sim_grant *grant)
{
	for (int i = 0; i < view->hold_count; i++) {
		const struct store_ticket *held = &view->holds[i];
		if (held->fence == grant->fence && !strcmp(held->nonce, grant->nonce))
			return (held->end_us - SIM_EPOCH_US - sim->service.keeps_offset_us) * 1000;
	}
	return 0;
}

static bool is_known(const struct sim *sim, const struct sim_grant *grant)
{
	const struct sim_client *client = &sim->clients[grant->slot];

	return client->alive && client->life == grant->life &&
	       lk__ticket_find(&client->core, grant->nonce);
}

void sim_check_kept(struct sim *sim, struct sim_name *name)
{
	int least = name->grant_count > SIM_GRANTS ? name->grant_count - SIM_GRANTS : 0;
	static struct store_view view;

	sim_look(sim, name, &view);
	for (int i = name->grant_count - 1; i >= least; i--) {
		struct sim_grant *grant = &name->grants[i % SIM_GRANTS];
		int64_t until_ns;
		if (grant->epoch != name->epoch || grant->broken || !is_known(sim, grant))
			continue;
		until_ns = kept_ns(sim, &view, grant);
		sim->tally.kept += until_ns > 0;
		if (until_ns < sim->now_ns)
			until_ns = sim->now_ns;
		grant->excused = true;
		grant->is_kept = until_ns >= grant->carried_ns;
		grant->excused_ns = grant->is_kept ? until_ns : grant->carried_ns;
	}
}

void sim_check_confirmed(struct sim_caller *caller, const struct sim_grant *grant)
{
	struct sim *sim = caller->client->sim;

	if (grant->stale && sim_check_is_unanimous(sim))
		sim_fail(sim, PROMISE_GRANT,
		         "%s: a grant of a replaced master counts, and not all replicas have it",
		         sim->names[caller->name].text);
}

void sim_check_unconfirmed(struct sim_caller *caller)
{
	const struct lk__hold *hold = lk__core_hold(caller->queue->name, caller->owner);

	caller->client->sim->tally.unconfirmed++;
	if (hold && hold->handle == caller)
		sim_fail(caller->client->sim, PROMISE_RESULT,
		         "%s: too few replicas confirmed a grant, and it is a hold",
		         caller->client->sim->names[caller->name].text);
}
