/* SPDX-License-Identifier: MIT
 * Links: the connections of a client to a server, and what is lost, or comes late, with them. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

/* Mostly short, sometimes up to the maximum. */
int64_t sim_delay(struct sim_client *client)
{
	int64_t ns = client->sim->plan->delay_ns;

	return ns / 20 +
	       sim_within(&client->random, ns / (sim_percent(&client->random, 80) ? 10 : 1));
}

int64_t sim_link_arrival(struct sim_link *link, enum sim_way way)
{
	const struct sim *sim = link->client->sim;
	int64_t at_ns = sim->now_ns + sim_delay(link->client) + sim_quorum_lag_ns(sim, link->place);

	if (at_ns < link->last_ns[way])
		at_ns = link->last_ns[way];
	link->last_ns[way] = at_ns;
	return at_ns;
}

/* ---- Links -------------------------------------------------------------------------------- */

struct sim_link *sim_link_new(struct sim_client *client, int place)
{
	struct sim *sim = client->sim;
	struct sim_link *link = calloc(1, sizeof(*link));

	if (!link)
		abort();
	link->client = client;
	link->life = client->life;
	link->place = place;
	memcpy(link->channel, client->space.channel, sizeof(link->channel));
	if (sim->plan->cluster) /* of its channels for names, the last part */
		memcpy(link->channel, client->space.client_id, sizeof(client->space.client_id));
	link->here = link->there = true;
	link->there_until_ns = link->reset_ns = LK__NEVER;
	link->calls_end = &link->calls;
	link->orders_end = &link->orders;
	link->items_end = &link->items;
	link->next = sim->links;
	sim->links = link;
	return link;
}

void sim_call_free(struct sim_call *call)
{
	lk__buf_fini(&call->bytes);
	lk__buf_fini(&call->reply);
	free(call->topology);
	free(call);
}

static void free_items(struct sim_item *item)
{
	while (item) {
		struct sim_item *next = item->next;
		free(item);
		item = next;
	}
}

void sim_link_drop(struct sim_link *link)
{
	while (link->calls) {
		struct sim_call *call = link->calls;
		link->calls = call->next;
		sim_call_free(call);
	}
	link->calls_end = &link->calls;
	free_items(link->orders);
	free_items(link->items);
	link->orders = link->items = NULL;
	link->orders_end = &link->orders;
	link->items_end = &link->items;
}

void sim_link_free(struct sim *sim, struct sim_link *link)
{
	struct sim_link **at = &sim->links;

	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	sim_link_drop(link);
	sim_etcd_link_free(sim, link);
	free(link);
}

void sim_link_free_all(struct sim *sim)
{
	while (sim->links)
		sim_link_free(sim, sim->links);
	while (sim->late) {
		struct sim_call *call = sim->late;
		sim->late = call->next;
		sim_call_free(call);
	}
}

void sim_call_late(struct sim_client *client, struct sim_call *call)
{
	struct sim *sim = client->sim;

	call->request = NULL;
	call->asker = NULL;
	call->at_ns = sim->now_ns + sim_within(&client->random, sim_percent(&client->random, 50)
	                                                                ? 50 * SIM_MS
	                                                                : 3000 * SIM_MS);
	call->next = sim->late;
	sim->late = call;
}

void sim_link_cut(struct sim_link *link)
{
	struct sim_client *client = link->client;
	struct sim_call *call = link->calls, *next;

	if (link->etcd)
		sim_etcd_link_cut(link);
	link->calls = NULL;
	for (; call; call = next) {
		next = call->next;
		/* In the server's buffer, or its kernel's: the server runs it later. */
		if (!call->executed && link->there && call->kind != SIM_PING &&
		    call->kind != LK__CONFIRM && sim_percent(&client->random, 40))
			sim_call_late(client, call);
		else
			sim_call_free(call);
	}
	sim_link_drop(link);
}

struct sim_call *sim_link_to_execute(const struct sim_link *link)
{
	struct sim_call *call = link->calls;

	while (call && call->executed)
		call = call->next;
	return call;
}

int64_t sim_link_first(const struct sim_link *link, enum sim_way way)
{
	const struct sim_call *call = NULL;
	const struct sim_item *item = NULL;
	int64_t at_ns;

	if (link->etcd && way <= SIM_COMMANDS_IN)
		return sim_etcd_link_first(link, way == SIM_COMMANDS_OUT);
	if (way == SIM_COMMANDS_OUT)
		call = sim_link_to_execute(link);
	else if (way == SIM_COMMANDS_IN)
		call = link->calls && link->calls->executed ? link->calls : NULL;
	else
		item = way == SIM_MESSAGES_OUT ? link->orders : link->items;
	if (!call && !item)
		return LK__NEVER;
	at_ns = call ? call->at_ns : item->at_ns;
	return at_ns < link->stalled_ns[way] ? link->stalled_ns[way] : at_ns;
}
