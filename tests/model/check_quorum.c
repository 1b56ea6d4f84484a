/* SPDX-License-Identifier: MIT
 * The promises of a quorum: of its legs, of their tickets, and of each server. */
#include "world.h"

#include <string.h>

#define AT_ONCE_MS 1000

/* ---- Around a script ---------------------------------------------------------------------- */

/* Its client would have received a grant. */
static bool must_wait(const struct model_world *world, const struct model_server *server,
                      const struct store_ticket *ticket, const struct model_call *call)
{
	const struct model_client *client = &world->clients[world_owner(ticket)];

	return client->alive && client->links[world_server(world, server)].heard &&
	       strcmp(ticket->nonce, call->nonce) != 0;
}

/* A grant is to the oldest ticket. */
static void check_order(struct model_world *world, const struct model_server *server,
                        const struct store_view *before, const struct model_call *call)
{
	const struct store_view *after = world_view(server);
	struct promise_waiter queue[STORE_TICKETS];
	const struct store_ticket *hold = &after->holds[0];
	const struct store_ticket *wait;
	int64_t priority = INT64_MAX;

	if (!after->hold_count || store_hold(before, hold->text))
		return;
	wait = store_wait(before, hold->text);
	if (wait)
		priority = wait->arrival_us;
	else if (!strcmp(hold->nonce, call->nonce))
		priority = (int64_t)call->arrival;
	for (int i = 0; i < before->queued; i++)
		queue[i] =
			(struct promise_waiter){before->queue[i].text, before->queue[i].arrival_us,
		                                must_wait(world, server, &before->queue[i], call)};
	world_keep(world, PROMISE_FIFO,
	           promise_fifo(queue, (size_t)before->queued, hold->text, priority));
}

void world_check_member(struct model_world *world, const struct model_server *server,
                        const struct store_view *before, const struct model_call *call)
{
	const struct store_view *after = world_view(server);
	const struct store_ticket *was = &before->holds[0], *is;
	const struct promise_run run = {.before = before,
	                                .after = after,
	                                .kind = call->kind,
	                                .ticket = "",
	                                .now_us = lua_store_time(server->store)};

	check_order(world, server, before, call);
	/* A wrong variant is found by the harm that it does. */
	if (world->rule != RULES_AS_SHIPPED || !before->hold_count)
		return;
	is = store_hold(after, was->text);
	if (!is && strcmp(was->nonce, call->nonce) != 0)
		world_keep(world, PROMISE_OWNER, promise_owner(&run, was));
	else if (is && is->fence == was->fence)
		world_keep(world, PROMISE_LEASE, promise_lease(was, is, run.now_us));
}

/* ---- In each state ------------------------------------------------------------------------ */

static struct model_link *link_of(const struct model_client *client, const struct lk__ticket *leg)
{
	return &client->links[leg->session->index];
}

bool world_leg_is_sure(const struct model_client *client, const struct lk__ticket *leg)
{
	return leg->valid_until_ns > link_of(client, leg)->doubted_until_ns;
}

/* The valid legs of a ticket; sure: without those whose server's clock was set forward meanwhile.
 */
static unsigned valid_legs(const struct model_world *world, const struct model_client *client,
                           const struct lk__ticket *ticket, bool sure)
{
	unsigned count = 0;

	for (int i = 0; i < world->server_count; i++) {
		const struct lk__ticket *leg = ticket->legs->leg[i];
		count += lk__leg_is_valid(leg, world->now_ns) &&
		         (!sure || world_leg_is_sure(client, leg));
	}
	return count;
}

bool world_is_sure(const struct model_world *world, const struct model_client *client)
{
	const struct lk__hold *hold = world_hold(client);

	return hold && hold->ticket && !hold->lost &&
	       valid_legs(world, client, hold->ticket, true) * 2 > world->server_count;
}

/* One ticket is decided, of those that are sure. */
static const char *decided_wrong(struct model_world *world)
{
	unsigned decided = 0, sure = 0;

	for (int i = 0; i < world->bounds->clients; i++) {
		const struct model_client *client = &world->clients[i];
		for (const struct lk__ticket *ticket = client->core.all_tickets; ticket;
		     ticket = ticket->next) {
			if (!ticket->legs || ticket->state == LK__OVER)
				continue;
			decided +=
				valid_legs(world, client, ticket, false) * 2 > world->server_count;
			sure += valid_legs(world, client, ticket, true) * 2 > world->server_count;
		}
	}
	world->excused |= decided > 1;
	return promise_broken(PROMISE_EXCLUSION, promise_exclusion(sure));
}

/* The server has each valid leg, unless it has lost its memory, which its client may not know. */
static const char *leg_wrong(const struct model_world *world, const struct model_client *client,
                             const struct lk__ticket *leg)
{
	const struct model_link *link = link_of(client, leg);
	int64_t now_us = lua_store_time(link->server->store);
	const struct store_ticket *kept;
	char ticket[LK__TICKET_MAX];

	if (!lk__leg_is_valid(leg, world->now_ns) || !link->linked ||
	    !world_leg_is_sure(client, leg) ||
	    strcmp(store_marker(link->server->store, MODEL_MARKER), link->session.epoch.text) != 0)
		return NULL;
	world_ticket(world, client, leg, ticket);
	kept = store_hold(world_view(link->server), ticket);
	if (kept && (kept->end_us <= now_us || kept->fence != leg->fence))
		kept = NULL;
	return promise_validity(kept, kept ? kept->end_us : 0,
	                        now_us + (leg->valid_until_ns - world->now_ns) / 1000);
}

static const char *legs_wrong(const struct model_world *world, const struct model_client *client)
{
	const char *wrong = NULL;

	for (const struct lk__ticket *leg = client->core.all_tickets; leg && !wrong;
	     leg = leg->next) {
		if (!leg->is_leg || leg->state == LK__OVER)
			continue;
		if (world->rule == RULES_AS_SHIPPED)
			wrong = promise_broken(PROMISE_VALIDITY, leg_wrong(world, client, leg));
		if (!wrong && world->bounds->yields && leg->epoch > world->bounds->yields)
			wrong = promise_broken(PROMISE_PROGRESS, "a leg yields too often");
	}
	return wrong;
}

/* All its tickets have ended with that server's reply, but the server has one. */
static bool is_left(const struct model_world *world, const struct model_link *link)
{
	const struct store_view *view = world_view(link->server);
	int index = world_index(world, link->client);

	if (link->call_count || link->late_count || world->used[DO_LATE] || link->server->down)
		return false;
	for (int i = 0; i < view->queued; i++)
		if (world_owner(&view->queue[i]) == index)
			return true;
	for (int i = 0; i < view->hold_count; i++)
		if (world_owner(&view->holds[i]) == index)
			return true;
	return false;
}

const char *world_quorum_wrong(struct model_world *world)
{
	const char *wrong = decided_wrong(world);

	for (int i = 0; i < world->bounds->clients && !wrong; i++) {
		const struct model_client *client = &world->clients[i];
		if (!client->alive)
			continue;
		wrong = legs_wrong(world, client);
		for (int j = 0; j < world->server_count && !wrong; j++)
			if (!client->core.all_tickets && is_left(world, &client->links[j]))
				wrong = promise_broken(PROMISE_REST,
				                       "a ticket that has ended is on a server");
	}
	return wrong;
}

/* ---- At the end --------------------------------------------------------------------------- */

const char *world_quorum_rest(const struct model_world *world, const struct model_client *client)
{
	const struct lk__ticket *ticket = client->core.all_tickets;

	if (!world->used[DO_DOWN])
		return promise_rest(&client->core);
	/* Its leave is repeated when the server is there again. */
	while (ticket && ticket->is_leg && lk__ticket_is_leaving(ticket) &&
	       link_of(client, ticket)->server->down)
		ticket = ticket->next;
	return ticket || client->core.all_holds ? "a ticket or a hold is left in a client" : NULL;
}

bool world_quorum_is_left(const struct model_world *world)
{
	for (int i = 0; i < world->server_count; i++) {
		const struct store_view *view = world_view(&world->servers[i]);
		if (!world->servers[i].down && (view->there || view->hold_count || view->queued))
			return true;
	}
	return false;
}

int64_t world_quorum_served_ms(const struct model_world *world, int64_t most_ms)
{
	/* Messages alone serve all waits. */
	if (!world->faults && !world->stalls)
		return AT_ONCE_MS;
	return most_ms + (world->has_lost ? world_grace_ms(world->bounds) : 0);
}
