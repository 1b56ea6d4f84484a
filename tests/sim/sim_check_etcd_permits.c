/* SPDX-License-Identifier: MIT
 * The promises of semaphores on etcd.  The tickets' own order and permits are the truth: those are
 * granted whose sum, from the first on, fits into the capacity; and what was granted stays so. */
#include "sim.h"

#include <string.h>

static int name_of(const struct lk__name *name)
{
	return name->bytes[name->len - 1] - '0';
}

/* ---- What the store has ------------------------------------------------------------------- */

static void note_capacity(struct sim *sim, struct sim_name *name)
{
	const struct lk__etcd_noun *noun = &sim->etcd.nouns[name->index];
	const struct sim_capacity *last = NULL;

	if (name->capacity_count)
		last = &name->capacities[(name->capacity_count - 1) % SIM_CAPACITIES];
	if (!noun->mod || (last && last->capacity == noun->capacity))
		return;
	name->capacities[name->capacity_count++ % SIM_CAPACITIES] =
		(struct sim_capacity){sim->now_ns, noun->capacity};
}

static const struct sim_etcd_ticket *former_of(const struct sim_etcd *etcd,
                                               const struct sim_etcd_ticket *ticket)
{
	for (int i = 0; i < etcd->former_count; i++)
		if (etcd->former[i].created == ticket->created)
			return &etcd->former[i];
	return NULL;
}

/* The permits of the tickets up to that one, and with it. */
static int64_t sum_to(const struct sim_etcd *etcd, const struct sim_etcd_ticket *ticket)
{
	int64_t sum = 0;

	for (int i = 0; i < etcd->ticket_count; i++)
		if (etcd->tickets[i].name == ticket->name &&
		    etcd->tickets[i].created <= ticket->created)
			sum += etcd->tickets[i].permits;
	return sum;
}

static void judge(struct sim *sim, struct sim_etcd_ticket *ticket)
{
	const struct sim_etcd *etcd = &sim->etcd;
	const struct lk__etcd_noun *noun = &etcd->nouns[ticket->name];
	const struct sim_etcd_ticket *former = former_of(etcd, ticket);

	ticket->fits = noun->mod && sum_to(etcd, ticket) <= noun->capacity;
	ticket->granted_ns = former ? former->granted_ns : 0;
	ticket->unknown_ns = former && former->fits ? former->unknown_ns : sim->now_ns;
	if (ticket->fits && !ticket->granted_ns)
		ticket->granted_ns = sim->now_ns;
	if (former && ticket->permits > former->permits)
		sim_fail(sim, PROMISE_PERMITS, "%s: a ticket of c%02d grows from %lld to %lld",
		         sim->names[ticket->name].text, ticket->slot, (long long)former->permits,
		         (long long)ticket->permits);
}

void sim_etcd_look_permits(struct sim *sim)
{
	for (int i = SIM_LOCKS; i < SIM_RATE; i++)
		note_capacity(sim, &sim->names[i]);
	for (int i = 0; i < sim->etcd.ticket_count; i++)
		if (sim->etcd.tickets[i].name >= SIM_LOCKS)
			judge(sim, &sim->etcd.tickets[i]);
}

/* ---- Holds -------------------------------------------------------------------------------- */

/* Never are more valid than the capacity, now or when they were granted; beside what an operator
 * has ended. */
static void check_sum(struct sim *sim, const struct sim_name *name)
{
	int64_t used = 0, oldest_ns = INT64_MAX;

	for (int i = 0; i < sim->plan->clients; i++) {
		const struct sim_client *client = &sim->clients[i];
		const struct lk__hold *hold = client->alive ? client->core.all_holds : NULL;
		for (; hold; hold = hold->next) {
			const struct sim_etcd_ticket *ticket;
			if (name_of(hold->name) != name->index || !hold->ticket ||
			    !lk__hold_left_ns(hold, sim_local(client)) ||
			    sim_etcd_is_ended(sim, hold))
				continue;
			ticket = sim_etcd_find(sim, hold->ticket->nonce);
			used += hold->count;
			if (ticket && ticket->granted_ns < oldest_ns)
				oldest_ns = ticket->granted_ns;
		}
	}
	if (used)
		sim_keep_of(sim, name, PROMISE_PERMITS,
		            promise_permits(used, sim_capacity_since(name, oldest_ns, false)));
}

/* ---- Lost wake-ups ------------------------------------------------------------------------ */

/* A granted ticket's client knows it, or ends the ticket. */
static void check_known(struct sim *sim, const struct sim_name *name,
                        struct sim_etcd_ticket *ticket)
{
	const struct sim_client *client = sim_etcd_client_of(sim, ticket);
	int64_t limit_ns = sim_etcd_wake_ns(sim);
	double idle_ms;

	if (!ticket->fits || !client || sim_etcd_is_known(client, ticket->nonce)) {
		ticket->unknown_ns = sim->now_ns;
		return;
	}
	if (!sim_etcd_is_fine(client, limit_ns))
		return;
	idle_ms = (double)(sim->now_ns - ticket->unknown_ns) / 1e6;
	if (idle_ms > sim->tally.longest_idle_ms)
		sim->tally.longest_idle_ms = idle_ms;
	sim_keep_of(sim, name, PROMISE_WAKE_UP,
	            promise_wake_up(ticket->unknown_ns + limit_ns, sim->now_ns));
}

void sim_etcd_check_permits(struct sim *sim, const struct sim_name *name)
{
	check_sum(sim, name);
	for (int i = 0; i < sim->etcd.ticket_count; i++)
		if (sim->etcd.tickets[i].name == name->index)
			check_known(sim, name, &sim->etcd.tickets[i]);
}
