/* SPDX-License-Identifier: MIT
 * At the end, after a while without faults and with all callers gone, nothing must be left. */
#include "sim.h"

#include <string.h>

static void check_client(struct sim *sim, const struct sim_client *client)
{
	sim_keep(sim, PROMISE_REST, promise_rest(&client->core));
	for (int i = 0; i < SIM_NAMES * SIM_HANDLES; i++)
		sim_keep(sim, PROMISE_REST,
		         promise_rest_queue(client->queues[i / SIM_HANDLES][i % SIM_HANDLES]));
	for (int i = 0; i < client->lane_count; i++)
		if (client->lanes[i].link && client->lanes[i].link->topics)
			sim_fail(sim, PROMISE_REST, "c%02d is still subscribed to a latch",
			         client->slot);
}

/* ---- Right after the last call ------------------------------------------------------------ */

static bool is_ghost(const struct sim *sim, const char *ticket)
{
	for (int i = 0; i < SIM_GHOSTS && i < sim->ghost_count; i++)
		if (store_is_same(sim->ghosts[i], ticket))
			return true;
	return false;
}

void sim_check_ghost(struct sim *sim, const char *ticket)
{
	if (!is_ghost(sim, ticket))
		memcpy(sim->ghosts[sim->ghost_count++ % SIM_GHOSTS], ticket, strlen(ticket) + 1);
}

/* Its process lives, and has forgotten it, or its leave is about to be acknowledged. */
static void add_ghost(struct sim *sim, const struct store_ticket *ticket)
{
	const struct sim_client *client = sim_client_of(sim, ticket);
	const struct lk__ticket *own = NULL;

	if (client && sim->plan->quorum)
		own = sim_quorum_leg(client, ticket);
	else if (client)
		own = lk__ticket_find(&client->core, ticket->nonce);
	if (client && (!own || own->leave.state == LK__IN_FLIGHT))
		sim_check_ghost(sim, ticket->text);
}

void sim_check_ghosts(struct sim *sim, const struct sim_name *name)
{
	for (int i = 0; i < name->view.queued; i++)
		add_ghost(sim, &name->view.queue[i]);
	for (int i = 0; i < name->view.hold_count; i++)
		add_ghost(sim, &name->view.holds[i]);
}

/* It had a link all the time since. */
static bool was_linked(const struct sim_client *client)
{
	if (client && client->sim->plan->quorum)
		return sim_quorum_is_linked(client, client->sim->quorum.runs_at,
		                            client->sim->now_ns - sim_ways_ns(client->sim, 8));
	return client && sim_is_fine(client, sim_ways_ns(client->sim, 8));
}

/* ... to all servers. */
static bool was_linked_everywhere(struct sim *sim, const struct sim_client *client)
{
	bool was = true;

	for (int i = 0; i < sim->quorum.count; i++) {
		sim_quorum_select(sim, i);
		was = was && was_linked(client);
	}
	return sim->plan->quorum ? was : was_linked(client);
}

static void check_left(struct sim *sim, struct sim_name *name, const struct store_ticket *ticket)
{
	const struct sim_grant *grant =
		ticket->fence ? sim_grant_of(name, ticket->fence, ticket->nonce) : NULL;

	if ((grant && grant->forgotten) || is_ghost(sim, ticket->text) ||
	    !was_linked(sim_client_of(sim, ticket)))
		return;
	sim_fail(sim, PROMISE_REST, "all calls have ended, and %s of %s is in the store",
	         ticket->text, name->text);
}

static void check_name(struct sim *sim, struct sim_name *name)
{
	sim_look(sim, name, &name->view);
	for (int j = 0; j < name->view.hold_count; j++)
		if (name->view.holds[j].end_us > sim_server_us(sim))
			check_left(sim, name, &name->view.holds[j]);
	for (int j = 0; j < name->view.queued; j++)
		check_left(sim, name, &name->view.queue[j]);
}

/* Of each server. */
static void each_name(struct sim *sim, void check(struct sim *sim, struct sim_name *name))
{
	for (int i = 0; i < sim->quorum.count; i++) {
		sim_quorum_select(sim, i);
		for (int j = 0; j < SIM_LOCKS; j++)
			check(sim, sim_quorum_name(sim, i, j));
	}
	for (int i = 0; !sim->plan->quorum && i < SIM_NAMES; i++)
		if (sim->names[i].kind != LK_KIND_LATCH)
			check(sim, &sim->names[i]);
}

void sim_check_rest(struct sim *sim)
{
	if (sim->plan->etcd)
		sim_etcd_check_rest(sim);
	each_name(sim, check_name);
	for (int i = 0; i < sim->plan->clients; i++) {
		const struct sim_client *client = &sim->clients[i];
		if (client->alive && was_linked_everywhere(sim, client) &&
		    (client->core.all_tickets || client->core.all_holds))
			sim_fail(sim, PROMISE_REST, "all calls have ended, and c%02d has a ticket",
			         i);
	}
}

/* ---- When everything has expired ---------------------------------------------------------- */

static void check_key(void *arg, const char *key, size_t len, const char *type, int64_t expires_ms)
{
	struct sim *sim = arg;

	(void)len;
	(void)type;
	(void)expires_ms;
	if (!strncmp(key, "lk:fence", 8) || !strcmp(key, "lk:epoch"))
		return;
	/* Semaphores and latches are meant to last. */
	for (int i = 3; i < SIM_NAMES; i++)
		if (!strcmp(key, sim->names[i].main) ||
		    !strcmp(key, i > 5 ? sim->names[i].memory : sim->names[i].holds))
			return;
	sim_fail(sim, PROMISE_REST, "a key is left: %s", key);
}

/* At rest all permits are free. */
static void check_rest(struct sim *sim, struct sim_name *name)
{
	const struct store_view *view = &name->view;

	sim_look(sim, name, &name->view);
	for (int i = 0; i < view->hold_count; i++)
		if (view->holds[i].end_us > sim_server_us(sim))
			sim_fail(sim, PROMISE_REST, "%s is still held by %s", name->text,
			         view->holds[i].text);
	if (view->queued)
		sim_fail(sim, PROMISE_REST, "%s is still waited for by %s", name->text,
		         view->queue[0].text);
}

void sim_check_end(struct sim *sim)
{
	for (int i = 0; i < sim->plan->clients; i++)
		if (sim->clients[i].alive)
			check_client(sim, &sim->clients[i]);
	if (sim->plan->etcd)
		sim_etcd_check_end(sim);
	each_name(sim, check_rest);
	for (int i = 0; i < sim->quorum.count; i++)
		lua_store_each_key(sim->quorum.members[i].store, check_key, sim);
	for (int i = 0; sim->plan->cluster && i < SIM_NAMES; i++)
		lua_store_each_key(sim->cluster.slots[i].store, check_key, sim);
	if (!sim->plan->cluster && !sim->plan->quorum)
		lua_store_each_key(sim->store, check_key, sim);
}
