/* SPDX-License-Identifier: MIT
 * A quorum's state in its canonical form.
 *
 * - Servers are interchangeable: they are sorted by their own form, with that of all legs and links
 *   on them, then by the numbers in it.
 * - Clients are not: the bytes of their ids break ties of priorities.
 * - Numbers are times of the servers' clocks, with small additions; all clocks are put among them.
 */
#include "dump.h"

#include <stdlib.h>
#include <string.h>

#define BIT(set, server) ((set) >> (server)&1)

/* ---- The marker --------------------------------------------------------------------------- */

/* How much of the marker is the process's id: "1 <id>". */
static size_t id_len(const char *marker)
{
	const char *space = strchr(marker, ' ');
	const char *end = space ? strchr(space + 1, ' ') : NULL;

	return end ? (size_t)(end - marker) : 0;
}

/* Its id matters only as that of the server's present memory, or of an earlier one. */
void form_put_member(struct form *form, const char *marker)
{
	const char *present = store_marker(form->server->store, MODEL_MARKER);
	size_t len = id_len(marker);
	int64_t since_us = len ? strtoll(marker + len, NULL, 10) : 0;
	int64_t age_us = lua_store_time(form->server->store) - since_us;

	form_put(form, !len                                 ? 0
	               : !strcmp(marker, present)           ? 1
	               : !strncmp(marker, present, len + 1) ? 2
	                                                    : 3);
	form_put(form, strchr(marker, '[') != NULL);
	form_put_wide(form, form_least(age_us / 1000, world_grace_ms(form->world->bounds)) / 10);
	form_put_number(form, FENCES, (uint64_t)since_us);
}

/* ---- A ticket and its legs ---------------------------------------------------------------- */

static int index_of(const struct model_client *client, const struct lk__ticket *whole)
{
	int index = 1;

	for (const struct lk__ticket *ticket = client->core.all_tickets; ticket;
	     ticket = ticket->next) {
		if (!ticket->legs)
			continue;
		if (ticket == whole)
			return index;
		index++;
	}
	return 0;
}

static void put_whole(struct form *form, const struct model_client *client,
                      const struct lk__ticket *ticket)
{
	const struct lk__legs *legs = ticket->legs;
	const struct lk__wait_queue *queue = ticket->queue;

	form_put(form, ticket->state | ticket->is_try << 3 | ticket->released << 4 |
	                       legs->was_taken << 5 | legs->was_queued << 6 |
	                       legs->is_touched << 7);
	form_put_nonce(form, world_index(form->world, client), ticket->nonce);
	form_put(form, form_where_of(client, queue->first) |
	                       form_where_of(client, ticket->leavers) << 2 |
	                       form_where_of(client, ticket->extenders) << 4 |
	                       (queue->ticket == ticket) << 6 | ticket->granted_by_message << 7);
	form_put_number(form, FENCES, legs->priority);
	form_put_number(form, FENCES, legs->proposal);
	form_put_number(form, FENCES, legs->commit);
	form_put_number(form, FENCES, ticket->fence);
	form_put_age(form, legs->refreshed_ns, queue->lease_ms);
	form_put_due(form, ticket->valid_until_ns);
	form_put_due(form, ticket->grace_until_ns);
}

static void put_pending(struct form *form, const struct lk__pending *pending)
{
	form_put(form, pending->state | (pending->state == LK__IDLE ? 0 : pending->kind) << 2);
	if (pending->state == LK__IDLE)
		return;
	form_put(form, pending->claim | pending->extends << 1 | pending->tries << 2);
	form_put(form, pending->heard);
	form_put_wide(form, pending->lease_ms / 10);
	if (pending->state == LK__IN_FLIGHT)
		form_put_age(form, pending->sent_ns, MODEL_EXTENSION_MS);
	if (pending->kind == LK__RENEW)
		form_put_number(form, FENCES, pending->fence);
}

static void put_leg(struct form *form, const struct model_client *client,
                    const struct lk__ticket *leg)
{
	bool leaves = lk__ticket_is_leaving(leg), over = leg->state == LK__OVER;

	form_put(form, leg->state | leg->is_try << 3 | leg->is_busy << 4 | leg->is_refused << 5 |
	                       leg->is_minor << 6 | leg->yields << 7);
	put_pending(form, &leg->main);
	put_pending(form, &leg->leave);
	form_put(form, index_of(client, leg->whole));
	if (over)
		return;
	form_put_nonce(form, world_index(form->world, client), leg->nonce);
	form_put(form, leg->epoch);
	form_put(form, leg->may_be_known | leg->granted_by_message << 1 | leg->is_wanted << 2 |
	                       leg->renewal_failed << 3 | leg->head_unserved << 4 |
	                       leg->released << 5 | leg->leave_refused << 6 |
	                       leg->is_forgotten << 7);
	form_put(form, leg->hands | leg->refusals << 4);
	form_put(form, form_least(leg->leaves_sent, 2) | (leg->arrival != 0) << 2);
	form_put_due(form, leg->next_ns);
	form_put_age(form, leg->first_sent_ns, leg->queue->lease_ms);
	if (leg->state == LK__HOLDING || leaves)
		form_put_due(form, leg->valid_until_ns);
	if (leg->grace_until_ns > form->world->now_ns)
		form_put_due(form, leg->grace_until_ns);
	if (leg->main.state == LK__IDLE && leg->state <= LK__CLAIMING)
		form_put_age(form, leg->main.sent_ns, MODEL_EXTENSION_MS);
	form_put_number(form, FENCES, leg->state == LK__HOLDING ? leg->fence : 0);
	form_put_number(form, FENCES, leg->last_fence);
}

/* ---- A client, a server ------------------------------------------------------------------- */

static void put_client(struct form *form, const struct model_client *client, bool with_bounds)
{
	form_put(form, client->alive | client->gave_up << 1 | client->refused << 2 |
	                       client->was_valid << 3 | client->stalled << 4 |
	                       (client->owner != 0) << 5 | client->denied << 6);
	if (!client->alive)
		return;
	form_put(form, client->verb);
	if (with_bounds) {
		form_put(form, client->scripts);
		form_put(form, client->begun);
	}
	for (const struct lk__ticket *ticket = client->core.all_tickets; ticket;
	     ticket = ticket->next)
		if (ticket->legs)
			put_whole(form, client, ticket);
	form_put(form, 254);
	form_put_hold(form, client);
}

static void put_legs(struct form *form, const struct model_client *client, int server)
{
	for (const struct lk__ticket *ticket = client->core.all_tickets; ticket;
	     ticket = ticket->next) {
		const struct lk__legs *legs = ticket->legs;
		if (legs) {
			form_put(form, BIT(legs->forgotten, server));
			form_put(form, BIT(legs->held, server) | BIT(legs->missing, server) << 1 |
			                       BIT(legs->left, server) << 2 |
			                       BIT(legs->unleft, server) << 3 |
			                       BIT(legs->extended, server) << 4 |
			                       BIT(legs->unextended, server) << 5 |
			                       BIT(legs->extending, server) << 6 |
			                       (legs->leg[server] != NULL) << 7);
			form_put(form, BIT(legs->stood, server));
		} else if (ticket->session == &client->links[server].session) {
			put_leg(form, client, ticket);
		}
	}
	form_put(form, 253);
}

static void put_link(struct form *form, const struct model_link *link)
{
	const struct lk__session *session = &link->session;
	int index = world_index(form->world, link->client);
	int64_t clock_us = session->clock_us + (form->world->now_ns - session->clock_ns) / 1000;

	form_put(form, link->linked | link->heard << 1 | link->stalled << 2 |
	                       session->memory.state << 3 | (session->set[0] != 0) << 5 |
	                       link->is_answer_late << 6 | link->is_message_late << 7);
	form_put(form, link->returns);
	form_put_due(form, lk__members_due(session));
	form_put_due(form, link->doubted_until_ns);
	form_put_number(form, FENCES, clock_us > 0 ? (uint64_t)clock_us : 0);
	form_put_member(form, session->epoch.text);
	form_put(form, link->call_count << 4 | link->late_count);
	form_put(form, link->inbox_count);
	for (int i = 0; i < link->call_count; i++)
		form_put_call(form, index, &link->calls[i]);
	for (int i = 0; i < link->late_count; i++)
		form_put_call(form, index, &link->late[i]);
	for (int i = 0; i < link->inbox_count; i++)
		form_put_item(form, index, &link->inbox[i]);
}

static void put_server(struct form *form, int index)
{
	const struct model_world *world = form->world;

	form->server = &world->servers[index];
	form_put(form, form->server->down);
	form_put_number(form, FENCES, (uint64_t)lua_store_time(form->server->store));
	form_put_member(form, store_marker(form->server->store, MODEL_MARKER));
	form_put_keys(form);
	for (int i = 0; i < world->bounds->clients; i++) {
		const struct model_client *client = &world->clients[i];
		if (client->alive)
			put_legs(form, client, index);
		put_link(form, &client->links[index]);
	}
}

/* ---- All of it ---------------------------------------------------------------------------- */

#define LOOKS 64

/* A server's own form; then its numbers. */
struct looks {
	uint64_t hash;
	uint64_t numbers[LOOKS];
};

static int compare(const struct looks *one, const struct looks *other)
{
	if (one->hash != other->hash)
		return one->hash < other->hash ? -1 : 1;
	for (int i = 0; i < LOOKS; i++)
		if (one->numbers[i] != other->numbers[i])
			return one->numbers[i] < other->numbers[i] ? -1 : 1;
	return 0;
}

static void sort_servers(struct form *form, const struct model_world *world,
                         int order[MODEL_SERVERS])
{
	static struct looks looks[MODEL_SERVERS];
	int count = world->server_count;

	memset(looks, 0, sizeof(looks));
	for (int i = 0; i < count; i++) {
		int at = i;
		form_begin(form, world);
		put_server(form, i);
		for (size_t j = 0; j < form->slot_count[FENCES] && j < LOOKS; j++)
			looks[i].numbers[j] = form->slots[FENCES][j].value;
		looks[i].hash = form_hash(form);
		for (; at && compare(&looks[order[at - 1]], &looks[i]) > 0; at--)
			order[at] = order[at - 1];
		order[at] = i;
	}
}

void form_put_quorum(struct form *form, const struct model_world *world, bool with_bounds)
{
	int order[MODEL_SERVERS];

	sort_servers(form, world, order);
	form_begin(form, world);
	if (with_bounds)
		form_put_bounds(form);
	form_put_number(form, FENCES, world->seen);
	form_put(form, world->has_lost | (world->used[DO_JUMP] != 0) << 1);
	for (int i = 0; i < world->bounds->clients; i++) {
		form->place[i] = (uint8_t)i;
		put_client(form, &world->clients[i], with_bounds);
	}
	for (int i = 0; i < world->server_count; i++)
		put_server(form, order[i]);
}
