/* SPDX-License-Identifier: MIT
 * What clients believe they hold: exclusion, permits, fences; and free locks and permits must be
 * granted. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

/* ---- Lost wake-ups ------------------------------------------------------------------------ *
 *
 * A grant by message is used within GRANT bound: the message's trip, and a claim there and back;
 * each trip takes 1.05 of the plan's delay at most, and sending may be delayed by 5 ms.
 *
 * A free lock is granted within IDLE bound to a waiter that receives and asks: it asks again within
 * 11.2 s at the latest (LK__REASK_MAX_MS, 50 ranks of 20 ms, 2 % of jitter), the reply is "free",
 * it has the head served and gets a message.  Dead waiters before it do not count: while a dead one
 * is granted, for one claim window or one lease, the lock is not free.  Permits have one rule more:
 * a head that does not fit and is silent is skipped after 21 s, found by an ask. */
#define SLACK_NS (100 * SIM_MS)
#define IDLE_NS (13 * SIM_S)
#define IDLE_LONG_NS (45 * SIM_S)

int64_t sim_ways_ns(const struct sim *sim, int ways)
{
	/* A request waits for the count before it, and then for its own. */
	if (sim->plan->replicas)
		ways *= 2;
	return ways * (sim->plan->delay_ns + sim->plan->delay_ns / 20 + 5 * SIM_MS) + SLACK_NS;
}

static bool is_fine_there(const struct sim_client *client, const struct sim_pending *pending)
{
	if (client->sim->plan->quorum)
		return sim_quorum_is_linked(client, pending->place, pending->at_ns);
	return sim_is_fine(client, client->sim->now_ns - pending->at_ns);
}

/* False if it needs no more checks. */
static bool check_pending(struct sim *sim, const struct sim_pending *pending)
{
	struct sim_client *client = &sim->clients[pending->slot];
	const struct sim_name *name = sim->plan->quorum
	                                      ? sim_quorum_name(sim, pending->place, pending->name)
	                                      : &sim->names[pending->name];
	const struct store_view *view = &name->view;
	const struct lk__ticket *ticket;
	bool stands = false;

	if (sim->plan->cluster)
		sim_cluster_select(sim, pending->name);
	if (sim->plan->quorum)
		sim_quorum_select(sim, pending->place);
	if (!client->alive || client->life != pending->life || !is_fine_there(client, pending) ||
	    name->forced_ns >= pending->at_ns)
		return false;
	/* The clock was set back in a grace: by the next marker, the claim counts as new. */
	if (sim->marked_ns >= pending->at_ns && sim->clock_was_back && sim_server_in_grace(sim))
		return false;
	/* A client without a grace granted it, or in a Cluster one that had not yet heard of the
	 * loss, and a client with a grace may not claim it. */
	if ((sim->plan->graceless || sim->plan->cluster || sim->plan->quorum) &&
	    sim_server_in_grace(sim))
		return false;
	for (int i = 0; i < view->hold_count && !stands; i++)
		stands = !strcmp(view->holds[i].nonce, pending->nonce) &&
		         view->holds[i].end_us > sim_server_us(sim);
	if (stands && (double)(sim->now_ns - pending->at_ns) / 1e6 > sim->tally.longest_grant_ms)
		sim->tally.longest_grant_ms = (double)(sim->now_ns - pending->at_ns) / 1e6;
	ticket = lk__ticket_find_at(&client->core, pending->nonce,
	                            sim->plan->quorum ? &client->lanes[pending->place].session
	                                              : NULL);
	if (!stands || !ticket ||
	    (ticket->state != LK__ASKING && ticket->state != LK__WAITING &&
	     ticket->state != LK__CLAIMING) ||
	    (lk__ticket_whole(ticket) && ticket->whole->state == LK__HOLDING))
		return false;
	sim_keep_of(sim, name, PROMISE_WAKE_UP,
	            promise_wake_up(pending->at_ns + sim_ways_ns(sim, 3), sim->now_ns));
	return true;
}

/* The first in the queue that receives and asks, if it fits; NULL if there is none. */
static const struct store_ticket *who_fits(struct sim *sim, const struct sim_name *name, bool *head)
{
	const struct store_view *view = &name->view;
	int64_t used = 0, now_us = sim_server_us(sim);

	for (int i = 0; i < view->hold_count; i++)
		if (view->holds[i].end_us > now_us)
			used += view->holds[i].held;
	if ((name->kind == LK_KIND_LOCK && used) || sim_server_in_grace(sim))
		return NULL;
	for (int i = 0; i < view->queued; i++) {
		const struct store_ticket *wait = &view->queue[i];
		const struct sim_client *client = sim_client_of(sim, wait);
		if (!client || !sim_is_fine(client, 0) ||
		    !lk__ticket_find(&client->core, wait->nonce))
			continue;
		*head = i == 0;
		return !wait->permits || used + wait->permits <= view->capacity ? wait : NULL;
	}
	return NULL;
}

static void check_idle(struct sim *sim, struct sim_name *name)
{
	const struct store_ticket *wait;
	int64_t limit_ns;
	bool head = false;

	wait = name->torn || !name->view.queued ? NULL : who_fits(sim, name, &head);
	if (!wait || strcmp(name->idle, wait->text) != 0 ||
	    !sim_is_fine(sim_client_of(sim, wait), sim->now_ns - name->idle_since_ns)) {
		name->idle_since_ns = sim->now_ns;
		snprintf(name->idle, sizeof(name->idle), "%s", wait ? wait->text : "");
		return;
	}
	if ((double)(sim->now_ns - name->idle_since_ns) / 1e6 > sim->tally.longest_idle_ms)
		sim->tally.longest_idle_ms = (double)(sim->now_ns - name->idle_since_ns) / 1e6;
	limit_ns =
		(head || name->kind == LK_KIND_LOCK ? IDLE_NS : IDLE_LONG_NS) + sim_ways_ns(sim, 6);
	sim_keep_of(sim, name, PROMISE_WAKE_UP,
	            promise_wake_up(name->idle_since_ns + limit_ns, sim->now_ns));
}

void sim_check_names(struct sim *sim)
{
	for (int i = 0; i < sim->pending_count; i++)
		if (!check_pending(sim, &sim->pending[i]))
			sim->pending[i--] = sim->pending[--sim->pending_count];
	for (int i = 0; sim->plan->quorum && i < SIM_LOCKS; i++)
		sim_quorum_check_idle(sim, &sim->names[i],
		                      IDLE_NS + 2 * SIM_LONGEST_MS * SIM_MS + sim_ways_ns(sim, 6));
	for (int i = 0; !sim->plan->quorum && i < SIM_NAMES; i++) {
		struct sim_name *name = &sim->names[i];
		if (name->kind == LK_KIND_LATCH)
			continue;
		if (sim->plan->cluster)
			sim_cluster_select(sim, i);
		if (!name->view.queued)
			name->busy_since_ns = sim->now_ns;
		check_idle(sim, name);
	}
}

/* ---- Validity ----------------------------------------------------------------------------- */

/* Find the grant of a hold by its ticket's fence: hand-overs inside a process change the hold's
 * fence. */
static struct sim_grant *grant_of(struct sim_name *name, const struct lk__hold *hold)
{
	return sim_grant_of(name, hold->ticket->fence, hold->ticket->nonce);
}

/* A hold that a client believes in is in the store, for at least as long. */
void sim_check_backed(struct sim_client *client, const struct lk__hold *hold)
{
	struct sim *sim = client->sim;
	struct sim_name *name = &sim->names[hold->name->bytes[hold->name->len - 1] - '0'];
	struct sim_grant *grant = grant_of(name, hold);
	int64_t until_ns = sim_true(client, hold->ticket->valid_until_ns);
	int64_t until_us = SIM_EPOCH_US + sim->store_offset_us + until_ns / 1000;

	if (grant && grant->excused)
		sim_check_excused(client, hold, grant);
	if (!grant || grant->broken || grant->epoch != name->epoch || name->torn)
		return;
	for (int i = 0; i < name->view.hold_count; i++) {
		const struct store_ticket *held = &name->view.holds[i];
		if (held->fence != grant->fence || strcmp(held->nonce, grant->nonce) != 0)
			continue;
		sim_keep_of(sim, name, PROMISE_VALIDITY,
		            promise_validity(true, held->end_us, until_us));
		return;
	}
	sim_keep_of(sim, name, PROMISE_VALIDITY, promise_validity(false, 0, until_us));
}

int64_t sim_capacity_since(const struct sim_name *name, int64_t since_ns, bool least)
{
	int first =
		name->capacity_count > SIM_CAPACITIES ? name->capacity_count - SIM_CAPACITIES : 0;
	int64_t best = 0;

	for (int i = name->capacity_count - 1; i >= first; i--) {
		const struct sim_capacity *capacity = &name->capacities[i % SIM_CAPACITIES];
		if (!best || (least ? capacity->capacity < best : capacity->capacity > best))
			best = capacity->capacity;
		if (capacity->since_ns < since_ns)
			break;
	}
	return best;
}

/* Permits that are valid at a moment, beside those just granted: holds of their era; detached
 * permits of the present memory, since no client takes those back. */
struct sum {
	const struct sim_grant *made; /* the last of them */
	int64_t permits, oldest_ns;
};

static void add(struct sum *sum, const struct sim_name *name, const struct sim_grant *grant,
                uint32_t permits)
{
	if (!grant || grant->broken || !sim_check_excludes(grant, sum->made) ||
	    (grant->forgotten && grant->epoch != name->epoch))
		return;
	sum->permits += permits;
	if (grant->granted_ns < sum->oldest_ns)
		sum->oldest_ns = grant->granted_ns;
}

/* Count in microseconds, as the server does: it rounds the time of each grant down. */
static void add_forgotten(struct sum *sum, struct sim_name *name, int64_t at_ns)
{
	int least = name->grant_count > SIM_GRANTS ? name->grant_count - SIM_GRANTS : 0;

	for (int i = name->grant_count - 1; i >= least; i--) {
		const struct sim_grant *grant = &name->grants[i % SIM_GRANTS];
		const struct promise_use use = {grant->forgotten_ns / 1000,
		                                grant->forgotten_ns / 1000 + grant->lease_ms * 1000,
		                                grant->permits};
		if (grant->granted_ns < at_ns - 120 * SIM_S)
			break;
		if (grant->forgotten && promise_used(&use, 1, at_ns / 1000))
			add(sum, name, grant, grant->permits);
	}
}

/* Never are more valid than the capacity, now or when they were granted. */
static void check_sum(struct sim *sim, struct sim_name *name, const struct sim_grant *made)
{
	struct sum sum = {made, 0, INT64_MAX};
	int64_t capacity;

	for (int i = 0; i < sim->plan->clients; i++) {
		const struct sim_client *client = &sim->clients[i];
		const struct lk__hold *hold = client->alive ? client->core.all_holds : NULL;
		for (; hold; hold = hold->next)
			if (hold->name->bytes[hold->name->len - 1] - '0' == name->index &&
			    lk__hold_left_ns(hold, sim_local(client)))
				add(&sum, name, grant_of(name, hold), hold->count);
	}
	add_forgotten(&sum, name, sim->now_ns);
	capacity = sim_capacity_since(name, sum.oldest_ns, false);
	/* The new master may have another one. */
	if (made->stale && capacity < name->stale_capacity)
		capacity = name->stale_capacity;
	sim_keep_of(sim, name, PROMISE_PERMITS, promise_permits(sum.permits, capacity));
}

/* Two valid holds have one fence: only if a counter and a clock are both behind. */
static void check_twins(struct sim *sim, const struct lk__hold *mine, const struct sim_grant *grant,
                        const struct lk__hold *hold, const struct sim_grant *other)
{
	if (hold->fence != mine->fence || !grant || !other)
		return;
	if (other->regime == grant->regime)
		sim_fail(sim, PROMISE_FENCE, "two valid holds of %s: %s", mine->name->bytes,
		         promise_fence(hold->fence, mine->fence));
	else
		sim->tally.fences_again++;
}

/* No two valid holds of a lock, of one era, except after a break between their grants. */
static void check_alone(struct sim *sim, struct sim_name *name, const struct lk__hold *mine)
{
	const struct sim_grant *grant = grant_of(name, mine);
	int64_t used = 1;

	for (int i = 0; i < sim->plan->clients; i++) {
		const struct sim_client *client = &sim->clients[i];
		const struct lk__hold *hold = client->alive ? client->core.all_holds : NULL;
		for (; hold; hold = hold->next) {
			const struct sim_grant *other;
			if (hold == mine || hold->name->kind != LK_KIND_LOCK ||
			    hold->name->bytes[hold->name->len - 1] - '0' != name->index ||
			    !lk__hold_left_ns(hold, sim_local(client)))
				continue;
			other = grant_of(name, hold);
			check_twins(sim, mine, grant, hold, other);
			used += grant && other && sim_check_excludes(grant, other);
			sim->tally.stale_dual += grant && other && sim_check_is_apart(grant, other);
		}
	}
	sim_keep_of(sim, name, PROMISE_EXCLUSION, promise_exclusion(used));
}

/* ---- Acquired ----------------------------------------------------------------------------- */

/* Fences grow from holder to holder of one era, local ones, too. */
static void check_fence(struct sim *sim, struct sim_name *name, const struct lk__hold *hold,
                        const struct sim_grant *grant)
{
	bool local = hold->fence != hold->ticket->fence;

	if (grant->broken || grant->stale)
		return; /* its holder has not learned of it yet; or of the new master */
	if (grant->era == name->made_era && grant->regime == name->made_regime)
		sim_keep_of(sim, name, PROMISE_FENCE, promise_fence(name->made_max, hold->fence));
	if (grant->era >= name->made_era) {
		name->made_max = hold->fence;
		name->made_era = grant->era;
		name->made_regime = grant->regime;
	}
	if (!local)
		return;
	sim->tally.handed_over++;
	if (!sim->clock_was_back && (int64_t)hold->fence > sim_server_us(sim))
		sim_fail(sim, PROMISE_FENCE, "a local fence is ahead of the server's clock");
	if (grant->regime != name->regime || hold->fence <= name->fence_max)
		return;
	name->fence_max = hold->fence;
	name->local = grant;
	name->local_ns = sim->now_ns;
}

/* Once another process waits and the holder knows it, which is at once as long as no connection
 * breaks, a lock is handed over inside a process at most so many more times. */
static void check_share(struct sim_client *client, struct sim_name *name,
                        const struct lk__hold *hold, struct sim_grant *grant)
{
	struct sim *sim = client->sim;
	int64_t told_ns = sim_ways_ns(sim, 4);

	/* The queue was empty meanwhile: the holder was told that nobody waits. */
	if (name->busy_since_ns > grant->handed_ns)
		grant->handed = 0;
	grant->handed_ns = sim->now_ns;
	/* Until the holder learns that the memory was lost, nobody tells it who waits. */
	if (hold->fence == hold->ticket->fence || grant->epoch != name->epoch ||
	    sim->now_ns - name->busy_since_ns < told_ns || !sim_is_fine(client, told_ns))
		grant->handed = 0;
	else
		sim_keep_of(sim, name, PROMISE_HAND_OVERS, promise_hand_overs(++grant->handed));
}

void sim_check_made(struct sim_caller *caller)
{
	struct sim_client *client = caller->client;
	struct sim *sim = client->sim;
	struct sim_name *name = &sim->names[caller->name];
	const struct lk__hold *hold = lk__core_hold(caller->queue->name, caller->owner);
	struct sim_grant *grant = hold && hold->ticket ? grant_of(name, hold) : NULL;
	uint32_t count = name->kind == LK_KIND_LOCK ? 1 : caller->count;
	const char *wrong = promise_grant(hold, sim_local(client), count);

	if (grant)
		sim_check_confirmed(caller, grant);
	if (hold && hold->ticket)
		sim_check_vouched(client, hold->ticket);
	if (wrong) {
		sim_keep_of(sim, name, PROMISE_GRANT, wrong);
	} else if (sim->plan->etcd) {
		sim_trace(sim, client, "thread %d holds %s, fence %llu", caller->index, name->text,
		          (unsigned long long)hold->fence);
		sim_etcd_check_made(caller, hold);
	} else if (sim->plan->quorum) {
		sim_trace(sim, client, "thread %d holds %s, fence %llu", caller->index, name->text,
		          (unsigned long long)hold->fence);
		sim_quorum_check_made(caller, hold);
	} else if (hold->handle != caller || !grant || grant->slot != client->slot ||
	           grant->life != client->life || grant->permits != count) {
		sim_fail(sim, PROMISE_GRANT, "a hold that is no grant of the store");
	} else if (name->kind == LK_KIND_LOCK) {
		sim_trace(sim, client, "thread %d holds %s, fence %llu", caller->index, name->text,
		          (unsigned long long)hold->fence);
		check_fence(sim, name, hold, grant);
		check_share(client, name, hold, grant);
		check_alone(sim, name, hold);
	} else {
		check_sum(sim, name, grant);
	}
}

/* Detached permits must last, from their grant, as long as their lease; and in no window of that
 * length were more granted than the capacity. */
void sim_check_forgotten(struct sim_caller *caller)
{
	struct sim *sim = caller->client->sim;
	struct sim_name *name = &sim->names[caller->name];
	struct sim_grant *grant = sim_grant_to(name, caller->waiter.fence, caller->client);
	struct sum sum = {grant, 0, INT64_MAX};

	sim->tally.forgot++;
	caller->owner = 0;
	if (!grant || grant->permits != caller->count) {
		sim_fail(sim, PROMISE_GRANT, "a permit without a grant of the store");
		return;
	}
	if (!grant->whole && grant->epoch == name->epoch)
		sim_fail(sim, PROMISE_RATE, "a permit whose grant is shorter than its lease");
	grant->forgotten = true;
	grant->forgotten_ns = grant->counted_ns;
	add_forgotten(&sum, name, grant->forgotten_ns);
	sim_keep_of(sim, name, PROMISE_RATE,
	            promise_rate(sum.permits, sim_capacity_since(name, sum.oldest_ns, false)));
	check_sum(sim, name, grant);
}
