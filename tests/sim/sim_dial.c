/* SPDX-License-Identifier: MIT
 * A dial: its request for the marker of the server's memory, and its end. */
#include "find_epoch.h"
#include "sim.h"

/* It is not the master, or not any more. */
static void probe_other(struct sim_client *client)
{
	struct sim *sim = client->sim;
	enum sim_found found = sim_service_find(sim, client->watch.place);

	if (found == SIM_STOPPED)
		client->lane->dial_ns = sim_true(client, client->watch.deadline_ns);
	if (found != SIM_REPLACED)
		return;
	client->lane->dialled = sim_link_new(client, client->watch.place);
	client->lane->found = client->lane->session.epoch;
	client->stale_ns = sim->now_ns;
	find_epoch(sim->service.stale.store, &client->space, &client->lane->found);
	client->lane->dial_err = LK_OK;
}

void sim_dial_probe(struct sim_client *client)
{
	struct sim *sim = client->sim;

	client->lane->probe_ns = LK__NEVER;
	client->lane->dial_ns = sim->now_ns + sim_delay(client);
	client->lane->dial_err = LK_ECONN;
	if (sim->now_ns < client->cut_off_ns)
		return;
	if (sim->plan->cluster) {
		sim_nodes_probe(client);
		return;
	}
	if (sim->plan->quorum) {
		sim_quorum_probe(client);
		return;
	}
	if (sim->plan->etcd) {
		sim_etcd_probe(client);
		return;
	}
	if (sim->plan->sentinels && sim_service_find(sim, client->watch.place) != SIM_MASTER) {
		probe_other(client);
		return;
	}
	if (sim->now_ns < sim->up_ns)
		return;
	if (sim_server_refuses(sim, client->slot, LK__EPOCH)) {
		if (sim->sick[1] == 'N')
			client->lane->dial_err = LK_EAUTH;
		else if (sim->sick[1] == 'O' || sim->sick[1] == 'M')
			client->lane->dial_err = LK_ESERVER; /* a permanent one */
		return;
	}
	sim_server_load(sim);
	client->lane->dialled = sim_link_new(client, sim->service.place);
	client->lane->found = client->lane->session.epoch;
	find_epoch(sim->store, &client->space, &client->lane->found);
	sim_server_mark(sim);
	client->lane->dial_err = LK_OK;
}

void sim_client_dial_failed(struct sim_client *client, const struct lk__why *why)
{
	struct sim *sim = client->sim;

	sim_trace(sim, client, "finds no link: %s", lk_err_name(why->err));
	if (why->err == LK_EAUTH)
		client->lane->denied_ns = sim->now_ns;
	client->watch.was_unaware = sim_check_is_unaware(client);
	lk__session_dial_failed(&client->lane->session, sim_local(client), why,
	                        sim_draw(&client->random, UINT64_MAX));
	if (sim->plan->cluster)
		lk__core_link_unreached(&client->core, &client->lane->session, sim_local(client));
	if (sim->plan->cluster)
		sim_disturb(&client->disturbed_ns, sim->now_ns);
}

void sim_client_cancel_dial(struct sim_client *client)
{
	const struct lk__why why = {.err = LK_ECONN, .text = "canceled"};

	client->lane->probe_ns = client->lane->dial_ns = LK__NEVER;
	sim_client_drop_link(client, &client->lane->dialled);
	if (!sim_watch_dial_again(client, LK_ECONN))
		sim_client_dial_failed(client, &why);
}

void sim_dial_end(struct sim_client *client)
{
	struct lk__why why = {.err = client->lane->dial_err, .text = "no link"};
	struct sim *sim = client->sim;

	client->lane->dial_ns = LK__NEVER;
	if (!why.err && (!client->lane->dialled->there || sim->now_ns < client->cut_off_ns))
		why.err = LK_ECONN;
	if (why.err) {
		sim_etcd_dial_failed(client);
		sim_client_drop_link(client, &client->lane->dialled);
		if (!sim->plan->sentinels || !sim_watch_dial_again(client, why.err))
			sim_client_dial_failed(client, &why);
		sim_nodes_adopt(client);
		return;
	}
	sim_nodes_adopt(client);
	client->watch.dialing = SIM_NO_DIAL;
	client->lane->link = client->lane->dialled;
	client->lane->dialled = NULL;
	client->lane->linked_ns = client->lane->heard_ns = sim->now_ns;
	sim_disturb(sim_disturbed(client, sim_client_place(client)), sim->now_ns);
	sim_trace(sim, client, "is linked, and knows %s", client->lane->found.text);
	sim_etcd_up(client);
	lk__core_memory(&client->core, &client->lane->session, sim_local(client),
	                &client->lane->found);
	lk__core_link_up(&client->core, &client->lane->session, sim_local(client));
}

void sim_client_connect(struct sim_client *client)
{
	struct sim *sim = client->sim;

	client->lane->probe_ns = sim->now_ns;
	for (int i = 0; i < 3; i++)
		client->lane->probe_ns += sim_delay(client);
	if (sim->now_ns < client->cut_off_ns)
		client->lane->probe_ns =
			sim->plan->sentinels
				? sim_true(client, client->watch.deadline_ns)
				: sim->now_ns + client->lane->session.connect_timeout_ns;
}
