/* SPDX-License-Identifier: MIT
 * A holder may believe in a hold that an operator broke, or that was granted before the memory was
 * lost, for as long as it could know at that moment, and no longer.
 *
 * Nobody else may hold it meanwhile: after a loss, the server grants nothing for the grace, which
 * no belief outlives.  So grants of one era exclude each other, whatever memory they are of.  These
 * losses begin another era, because the grace is not meant for them:
 *
 *   - a client has no grace: it is granted what others have not taken back yet
 *   - keys of a name are evicted, or deleted by hand: the marker of the memory stays
 *   - the server's clock is set forward: leases and graces end too early
 *   - a snapshot of the machine is restored: the same process has an older memory
 *
 * A hold whose belief outlasts the grace is of no era until its client has taken it back. */
#include "sim.h"

#include <string.h>

#define ROUNDING_NS (2 * SIM_MS)

int64_t sim_check_excused_until(const struct sim_client *client, const struct lk__ticket *ticket)
{
	int64_t until_ns = ticket->valid_until_ns, other_ns;

	/* The reply to a pending request may be from before. */
	if (ticket->main.state == LK__IN_FLIGHT) {
		other_ns = ticket->main.sent_ns + ticket->main.lease_ms * SIM_MS;
		until_ns = other_ns > until_ns ? other_ns : until_ns;
	}
	/* Granted by a message that is still in flight. */
	other_ns = ticket->first_sent_ns + ticket->queue->lease_ms * SIM_MS;
	if (ticket->state != LK__HOLDING && other_ns > until_ns)
		until_ns = other_ns;
	return sim_true(client, until_ns);
}

static void excuse(struct sim *sim, struct sim_grant *grant)
{
	const struct sim_client *client = &sim->clients[grant->slot];
	const struct lk__ticket *ticket;

	int64_t until_ns;

	if (!client->alive || client->life != grant->life)
		return;
	ticket = lk__ticket_find(&client->core, grant->nonce);
	if (!ticket)
		return;
	until_ns = sim_check_excused_until(client, ticket);
	/* It may have been taken back after an earlier loss, with the reply in flight. */
	if (!grant->excused || (grant->excused_ns < until_ns && ticket->main.kind == LK__RECLAIM)) {
		grant->excused_ns = until_ns;
		grant->is_kept = false;
	}
	grant->excused = true;
}

void sim_check_excuse(struct sim *sim, struct sim_name *name, struct sim_grant *grant)
{
	int least = name->grant_count > SIM_GRANTS ? name->grant_count - SIM_GRANTS : 0;

	if (grant) {
		excuse(sim, grant);
		return;
	}
	for (int i = name->grant_count - 1; i >= least; i--)
		if (name->grants[i % SIM_GRANTS].epoch == name->epoch ||
		    name->grants[i % SIM_GRANTS].excused)
			excuse(sim, &name->grants[i % SIM_GRANTS]);
}

void sim_check_uncovered(struct sim *sim, struct sim_name *name)
{
	int least = name->grant_count > SIM_GRANTS ? name->grant_count - SIM_GRANTS : 0;
	int64_t covered_ns = sim->now_ns + sim->plan->grace_ms * SIM_MS;

	for (int i = name->grant_count - 1; i >= least; i--) {
		struct sim_grant *grant = &name->grants[i % SIM_GRANTS];
		if (grant->excused && grant->excused_ns > covered_ns)
			grant->era = SIM_NO_ERA;
	}
}

void sim_check_join(struct sim *sim, const struct sim_name *name, struct sim_grant *grant)
{
	if (grant->excused && !grant->is_kept && grant->excused_ns > grant->carried_ns)
		grant->carried_ns = grant->excused_ns;
	grant->epoch = name->epoch;
	grant->excused = grant->is_kept = false;
	if (grant->stale) {
		grant->regime = name->regime;
		grant->in_grace = true;
	}
	grant->stale = false;
	if (grant->era == name->era)
		return;
	grant->era = name->era;
	grant->era_ns = sim->now_ns;
}

/* By a replaced master, beside what the new one gave back, or let a holder hand on in its grace. */
bool sim_check_is_apart(const struct sim_grant *one, const struct sim_grant *other)
{
	const struct sim_grant *stale = one->stale ? one : other;
	const struct sim_grant *later = one->stale ? other : one;

	return stale->stale && !later->stale && later->epoch > stale->epoch &&
	       later->granted_ns < (later->in_grace ? stale->apart_ns : stale->new_ns);
}

/* One that came back from an earlier era excludes what is granted later. */
bool sim_check_excludes(const struct sim_grant *one, const struct sim_grant *other)
{
	return one->era == other->era && one->era != SIM_NO_ERA && !one->broken && !other->broken &&
	       !sim_check_is_apart(one, other) &&
	       (one->era_ns <= other->granted_ns || other->era_ns <= one->granted_ns);
}

/* Behind a clock that was set back, the next ask cuts what is left to the lease in force. */
int64_t sim_check_kept_us(const struct sim *sim, const struct store_ticket *held)
{
	int64_t force_ms = held->force_ms ? held->force_ms : held->lease_ms;
	int64_t most_us = sim_server_us(sim) + force_ms * 1000;

	return held->end_us < most_us ? held->end_us : most_us;
}

/* The present memory has it, too, for as long as its holder believes in it. */
static bool is_backed(const struct sim *sim, const struct sim_name *name,
                      const struct sim_grant *grant, int64_t until_ns)
{
	int64_t until_us = SIM_EPOCH_US + sim->store_offset_us + until_ns / 1000;

	for (int i = 0; i < name->view.hold_count; i++) {
		const struct store_ticket *held = &name->view.holds[i];
		if (held->fence == grant->fence && !strcmp(held->nonce, grant->nonce))
			return sim_check_kept_us(sim, held) >= until_us;
	}
	return false;
}

void sim_check_excused(struct sim_client *client, const struct lk__hold *hold,
                       struct sim_grant *grant)
{
	struct sim *sim = client->sim;
	struct sim_name *name = &sim->names[hold->name->bytes[hold->name->len - 1] - '0'];
	int64_t until_ns = sim_true(client, hold->ticket->valid_until_ns);
	/* A reply from before may still arrive and extend it to there. */
	int64_t most_ns = until_ns > grant->excused_ns ? until_ns : grant->excused_ns;

	if (name->torn)
		return;
	if (!grant->broken && is_backed(sim, name, grant, most_ns)) {
		sim_check_join(sim, name, grant);
		return;
	}
	if (until_ns > grant->excused_ns + ROUNDING_NS)
		sim_fail(sim, PROMISE_VALIDITY,
		         "fence %llu of %s, %s, is believed in for %lld us "
		         "more than was known then",
		         (unsigned long long)hold->fence, hold->name->bytes,
		         grant->is_kept ? "which the new master has for less"
		                        : "whose memory was lost",
		         (long long)(until_ns - grant->excused_ns) / 1000);
}

/* The store refused to give a hold back. */
void sim_check_gone(struct sim_client *client, const char *nonce, uint64_t fence)
{
	const struct lk__ticket *ticket = lk__ticket_find(&client->core, nonce);

	if (fence && ticket && ticket->fence == fence && ticket->state == LK__HOLDING &&
	    lk__hold_left_ns(ticket->queue->hold, sim_local(client)))
		sim_fail(client->sim, PROMISE_VALIDITY,
		         "fence %llu of %s is believed in after the store said that it is gone",
		         (unsigned long long)fence, ticket->queue->name->bytes);
}

/* The client has just heard whether the memory is another one. */
void sim_check_doubts(const struct sim_client *client)
{
	for (const struct lk__ticket *ticket = client->core.all_tickets; ticket;
	     ticket = ticket->next)
		if (ticket->state == LK__HOLDING && ticket->is_doubted)
			sim_fail(client->sim, PROMISE_VALIDITY,
			         "fence %llu of %s is neither lost nor reclaimed",
			         (unsigned long long)ticket->fence, ticket->queue->name->bytes);
}
