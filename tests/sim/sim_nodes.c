/* SPDX-License-Identifier: MIT
 * A client's way to the nodes of a Cluster: stands for src/runtime/cluster.c.  It dials a node when
 * a name needs it, follows redirects, and adopts what nodes know about the owners of slots.  What
 * that means for names and holds, core/route.c decides. */
#include "find_epoch.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>

void sim_nodes_start(struct sim_client *client)
{
	lk__space_divide(&client->space);
	if (!lk__core_use_route(&client->core))
		abort();
	for (int i = 0; i < client->lane_count; i++)
		client->lanes[i].session.grace_ms = client->space.grace_ms;
}

void sim_nodes_open(struct sim_client *client, struct lk__name *name)
{
	char topic[LK__TOPIC_MAX];

	if (!lk__space_inbox(&client->space, name->bytes, name->len, topic))
		abort();
	lk__inbox_open(name, lk__inbox_new(topic));
}

/* ---- Dials -------------------------------------------------------------------------------- */

/* Another node answers the question for the topology. */
static void look(struct sim_client *client, int node)
{
	const struct sim_cluster *cluster = &client->sim->cluster;
	int64_t now_ns = client->sim->now_ns;

	for (int i = 1; i < SIM_NODES; i++) {
		int other = (node + i) % SIM_NODES;
		if (cluster->nodes[other].down_ns > now_ns ||
		    cluster->nodes[other].stopped_ns > now_ns)
			continue;
		client->lane->topology = sim_cluster_topology(client->sim, other);
		return;
	}
}

void sim_nodes_probe(struct sim_client *client)
{
	struct sim *sim = client->sim;
	struct sim_lane *lane = client->lane;
	int place = (int)(lane - client->lanes);
	struct sim_node *node = &sim->cluster.nodes[place];

	free(lane->topology);
	lane->topology = NULL;
	if (node->down_ns > sim->now_ns || node->stopped_ns > sim->now_ns) {
		look(client, place);
		if (node->stopped_ns > sim->now_ns)
			lane->dial_ns = sim->now_ns + lane->session.connect_timeout_ns;
		return;
	}
	if (sim_server_refuses(sim, client->slot, LK__EPOCH)) {
		if (sim->sick[1] == 'N')
			lane->dial_err = LK_EAUTH;
		else if (sim->sick[1] == 'O' || sim->sick[1] == 'M')
			lane->dial_err = LK_ESERVER;
		return;
	}
	lane->topology = sim_cluster_topology(sim, place);
	if (sim->cluster.shards[place % SIM_SHARDS].master != place)
		return; /* a replica */
	sim_cluster_load(sim, false);
	lane->dialled = sim_link_new(client, place);
	lane->found = lane->session.epoch;
	find_epoch(node->memory, &client->space, &lane->found);
	sim_cluster_mark(sim);
	lane->dial_err = LK_OK;
}

/* ---- Topology ----------------------------------------------------------------------------- */

static int node_of(const struct lk__place *place)
{
	return place->port - 7000;
}

static void adopt(struct sim_client *client, const struct lk__topology *topology)
{
	struct sim_lane *current = client->lane;
	static uint8_t owner[LK__SLOTS];
	bool has_slots[SIM_NODES] = {false};

	for (int slot = 0; slot < LK__SLOTS; slot++) {
		owner[slot] = (uint8_t)node_of(&topology->nodes[topology->owner[slot]].place);
		has_slots[owner[slot]] = true;
	}
	lk__core_topology(&client->core, sim_local(client), owner);
	for (struct sim_lane *lane = NULL; (lane = sim_client_lane(client, lane));)
		if (lane->link && !has_slots[lane - client->lanes])
			sim_client_unlink(client, LK_ECONN);
	client->lane = current;
}

void sim_nodes_adopt(struct sim_client *client)
{
	struct lk__topology *topology = client->lane->topology;

	client->lane->topology = NULL;
	if (topology)
		adopt(client, topology);
	free(topology);
}

void sim_nodes_refresh(struct sim_client *client)
{
	struct lk__session *from;
	struct lk__topology *topology = lk__core_take_topology(&client->core, &from);

	if (topology)
		adopt(client, topology);
	free(topology);
}

void sim_nodes_redirect(struct sim_client *client, struct lk__pending *pending, bool is_asked,
                        const char *text)
{
	struct lk__core *core = &client->core;
	struct lk__redirect redirect;
	struct lk__session *to;

	if (!lk__redirect_parse(text, &redirect))
		abort();
	to = &client->lanes[node_of(&redirect.place)].session;
	if (!pending) {
		lk__core_slot_moved(core, sim_local(client), redirect.slot, to);
		lk__topology_ask(core, &client->lane->session);
	} else if (is_asked) {
		lk__core_asked(core, sim_local(client), pending, to);
	} else {
		lk__core_moved(core, sim_local(client), pending, redirect.slot, to);
	}
}

/* ---- For checks and faults ------------------------------------------------------------------ */

bool sim_nodes_are_fine(const struct sim_client *client, int64_t since_ns)
{
	const struct sim *sim = client->sim;

	if (!client->alive || client->closed || client->resume_ns > since_ns ||
	    client->disturbed_ns > since_ns || sim->disturbed_ns > since_ns ||
	    sim->up_ns > since_ns)
		return false;
	for (int i = 0; i < client->lane_count; i++) {
		const struct sim_lane *lane = &client->lanes[i];
		if (lane->session.users &&
		    (!lane->link || !lane->link->there || lane->link->reset_ns != LK__NEVER))
			return false;
	}
	return true;
}

void sim_nodes_pick(struct sim_client *client, uint64_t chance)
{
	for (unsigned i = 0; i < SIM_NODES; i++) {
		struct sim_lane *lane = &client->lanes[(chance + i) % SIM_NODES];
		if (!lane->link)
			continue;
		client->lane = lane;
		return;
	}
}
