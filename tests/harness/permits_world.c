/* SPDX-License-Identifier: MIT
 * Clients of a semaphore in virtual time: see permits_world.h. */
#include "permits_world.h"

#include "scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int publish(void *arg, const char *channel, const char *text, size_t len)
{
	struct permits_world *world = arg;
	struct permits_client *client = world->clients, *end = client + world->client_count;
	struct permits_message *message;
	int64_t at_ns = world->now_ns;

	while (client < end && strcmp(client->space.channel, channel))
		client++;
	if (client == end || !client->subscribed)
		return 0;
	if (client->inbox_count == PERMITS_INBOX || len > PERMITS_MESSAGE_MAX)
		abort();
	if (world->delay_ns)
		at_ns += world->delay_ns(world);
	message = &client->inbox[client->inbox_count++];
	if (message > client->inbox && at_ns < message[-1].at_ns)
		at_ns = message[-1].at_ns;
	message->at_ns = at_ns;
	message->len = len;
	memcpy(message->text, text, len);
	return 1;
}

int64_t permits_store_us(const struct permits_world *world)
{
	return PERMITS_EPOCH_US + world->store_offset_us + world->now_ns / 1000;
}

void permits_set_time(struct permits_world *world, int64_t now_ns)
{
	world->now_ns = now_ns;
	lua_store_set_time(world->store, permits_store_us(world));
}

void permits_init(struct permits_world *world, int clients, uint64_t seed)
{
	memset(world, 0, sizeof(*world));
	world->store = lua_store_new(publish, world);
	world->client_count = clients;
	for (int i = 0; lk__scripts[i]; i++)
		lua_store_text(world->store, "SCRIPT", "LOAD", lk__scripts[i]->text, NULL);
	permits_set_time(world, 1000 * PERMITS_MS);
	for (int i = 0; i < clients; i++) {
		struct permits_client *client = &world->clients[i];
		char id[LK__CLIENT_ID_SIZE];
		client->world = world;
		client->id = i;
		snprintf(id, sizeof(id), "%cclient_AAAAAAAAAAAAAA", 'a' + i);
		lk__space_init(&client->space, "lk", 0, id);
		lk__session_init(&client->session, 1000000000, 1000000000);
		if (!lk__core_init(&client->core, seed * 100 + (uint64_t)i) ||
		    !lk__core_add_session(&client->core, &client->session))
			abort();
		permits_link_up(client);
	}
}

void permits_fini(struct permits_world *world)
{
	for (int i = 0; i < world->client_count; i++) {
		struct permits_client *client = &world->clients[i];
		lk__core_fini(&client->core);
		for (int j = 0; j < client->waiter_count; j++) {
			free(client->waiters[j]->spare_ticket);
			free(client->waiters[j]->spare_hold);
			free(client->waiters[j]->spare_queue);
			free(client->waiters[j]);
		}
	}
	lua_store_free(world->store);
}

int64_t permits_now(const struct permits_client *client)
{
	return client->world->now_ns;
}

/* ---- Callers ------------------------------------------------------------------------------ */

struct lk__wait_queue *permits_open(struct permits_client *client, const char *name,
                                    uint32_t capacity, int64_t lease_ms, bool fixed)
{
	struct lk__wait_queue *queue = lk__wait_queue_new(lease_ms, fixed);

	queue->capacity = capacity;
	queue->ttl_ms = PERMITS_TTL_MS;
	return lk__wait_queue_open(&client->core, &client->session,
	                           lk__name_new(LK_KIND_SEMAPHORE, name, strlen(name)), queue);
}

struct lk__op *permits_waiter(struct permits_client *client, struct lk__wait_queue *queue,
                              uint32_t permits)
{
	struct lk__op *waiter = calloc(1, sizeof(*waiter));

	waiter->queue = queue;
	waiter->handle = client;
	waiter->permits = permits;
	waiter->reports_loss = true;
	waiter->spare_ticket = malloc(sizeof(*waiter->spare_ticket));
	waiter->spare_hold = malloc(sizeof(*waiter->spare_hold));
	waiter->spare_queue = malloc(sizeof(*waiter->spare_queue));
	if (client->waiter_count == (int)(sizeof(client->waiters) / sizeof(*client->waiters)))
		abort();
	client->waiters[client->waiter_count++] = waiter;
	return waiter;
}

static struct lk__op *acquire(struct permits_client *client, struct lk__op *waiter)
{
	lk__core_acquire_permits(&client->core, permits_now(client), waiter);
	return waiter;
}

struct lk__op *permits_acquire(struct permits_client *client, struct lk__wait_queue *queue,
                               uint32_t permits)
{
	return acquire(client, permits_waiter(client, queue, permits));
}

struct lk__op *permits_try(struct permits_client *client, struct lk__wait_queue *queue,
                           uint32_t permits)
{
	struct lk__op *waiter = permits_waiter(client, queue, permits);

	waiter->only_try = true;
	return acquire(client, waiter);
}

struct lk__op *permits_forget(struct permits_client *client, struct lk__wait_queue *queue,
                              uint32_t permits)
{
	struct lk__op *waiter = permits_waiter(client, queue, permits);

	waiter->forget = true;
	return acquire(client, waiter);
}

struct lk__op *permits_release_some(struct permits_client *client, struct lk__wait_queue *queue,
                                    uint64_t hold, uint32_t permits)
{
	struct lk__op *waiter = permits_waiter(client, queue, permits);

	waiter->owner = hold;
	lk__core_release_permits(&client->core, permits_now(client), waiter);
	return waiter;
}

struct lk__op *permits_release(struct permits_client *client, struct lk__wait_queue *queue,
                               uint64_t hold)
{
	return permits_release_some(client, queue, hold, 0);
}

struct lk__op *permits_extend(struct permits_client *client, struct lk__wait_queue *queue,
                              uint64_t hold, int64_t lease_ms)
{
	struct lk__op *waiter = permits_waiter(client, queue, 0);

	waiter->owner = hold;
	waiter->lease_ms = lease_ms;
	lk__core_extend(&client->core, permits_now(client), waiter);
	return waiter;
}

void permits_give_up(struct permits_client *client, struct lk__op *waiter, lk_err why)
{
	lk__core_give_up(&client->core, permits_now(client), waiter, why);
}

void permits_abandon(struct permits_client *client, struct lk__op *waiter)
{
	lk__core_abandon(&client->core, permits_now(client), waiter);
}

lk_state permits_state(const struct permits_client *client, const struct lk__wait_queue *queue,
                       uint64_t fence)
{
	const struct lk__hold *hold = lk__core_hold(queue->name, fence);

	return hold ? lk__hold_state(hold, permits_now(client)) : LK_STATE_NONE;
}

uint32_t permits_count(const struct lk__wait_queue *queue, uint64_t fence)
{
	const struct lk__hold *hold = lk__core_hold(queue->name, fence);

	return hold ? hold->count : 0;
}

/* ---- The network -------------------------------------------------------------------------- */

bool permits_take(struct permits_client *client, struct permits_call *call)
{
	struct lk__pending *request =
		lk__core_next_request(&client->core, &client->session, permits_now(client));
	struct lk__request asked;

	memset(call, 0, sizeof(*call));
	if (!request)
		return false;
	call->request = request;
	call->kind = request->kind;
	lk__core_request(request, &asked);
	if (!lk__codec_request(&call->bytes, &client->space, &asked))
		abort();
	return true;
}

void permits_execute(struct permits_client *client, struct permits_call *call)
{
	call->reply.len = 0;
	lua_store_run(client->world->store, call->bytes.data, call->bytes.len, &call->reply);
}

void permits_call_fini(struct permits_call *call)
{
	lk__buf_fini(&call->bytes);
	lk__buf_fini(&call->reply);
}

void permits_answer(struct permits_client *client, struct permits_call *call)
{
	struct lk__resp_reader *reader = lk__resp_reader_new();
	struct lk__answer answer;
	struct lk__resp *resp;
	struct lk__why why;

	if (!reader || lk__resp_feed(reader, call->reply.data, call->reply.len, &why) ||
	    lk__resp_next(reader, &resp, &why) || !resp)
		abort();
	if (lk__codec_unknown_script(resp)) {
		lk__core_resend(&client->core, call->request);
	} else {
		lk__codec_answer(resp, "the store", &answer, &why);
		lk__core_answer(&client->core, permits_now(client), call->request, &answer);
	}
	lk__resp_free(resp);
	lk__resp_reader_free(reader);
	permits_call_fini(call);
}

void permits_refuse(struct permits_client *client, struct permits_call *call, const char *error)
{
	char text[200];
	int len = snprintf(text, sizeof(text), "-%s\r\n", error);

	lk__buf_fini(&call->reply);
	call->reply.data = strdup(text);
	call->reply.len = (size_t)len;
	call->reply.cap = (size_t)len + 1;
	permits_answer(client, call);
}

bool permits_hear(struct permits_client *client)
{
	struct permits_message copy = client->inbox[0];
	struct lk__message message;

	if (!client->inbox_count || copy.at_ns > client->world->now_ns)
		return false;
	client->inbox_count--;
	memmove(&client->inbox[0], &client->inbox[1],
	        sizeof(client->inbox[0]) * (size_t)client->inbox_count);
	if (!lk__codec_message(&client->space, copy.text, copy.len, &message))
		abort(); /* a script must not send what clients cannot parse */
	lk__core_message(&client->core, permits_now(client), &message);
	return true;
}

void permits_link_down(struct permits_client *client, lk_err err)
{
	struct lk__why why = {.err = err, .text = "the link is down"};

	client->subscribed = false;
	client->inbox_count = 0;
	lk__core_link_down(&client->core, &client->session, permits_now(client), &why, 0);
}

void permits_link_up(struct permits_client *client)
{
	client->subscribed = true;
	lk__core_link_up(&client->core, &client->session, permits_now(client));
}

/* ---- The network, whole
 * -------------------------------------------------------------------------- */

static void take_out(struct permits_client *client)
{
	struct lk__hold *hold;

	while (lk__core_next_done(&client->core))
		;
	while ((hold = lk__core_next_lost(&client->core)))
		lk__core_loss_reported(hold);
}

void permits_settle(struct permits_world *world)
{
	struct permits_call call;
	bool busy = true;

	while (busy) {
		busy = false;
		for (int i = 0; i < world->client_count; i++) {
			struct permits_client *client = &world->clients[i];
			lk__core_tick(&client->core, permits_now(client));
			while (permits_take(client, &call)) {
				permits_execute(client, &call);
				permits_answer(client, &call);
				busy = true;
			}
			while (permits_hear(client))
				busy = true;
		}
	}
	for (int i = 0; i < world->client_count; i++)
		take_out(&world->clients[i]);
}

void permits_pass(struct permits_world *world, int64_t ms)
{
	int64_t end_ns = world->now_ns + ms * PERMITS_MS;

	for (;;) {
		int64_t next_ns = end_ns;
		permits_settle(world);
		for (int i = 0; i < world->client_count; i++) {
			const struct permits_client *client = &world->clients[i];
			int64_t due_ns = lk__core_due(&client->core);
			if (client->inbox_count && client->inbox[0].at_ns < due_ns)
				due_ns = client->inbox[0].at_ns;
			if (due_ns < next_ns)
				next_ns = due_ns;
		}
		if (world->now_ns >= end_ns)
			return;
		permits_set_time(world, next_ns > world->now_ns ? next_ns : world->now_ns);
	}
}

bool permits_nothing_left(struct permits_world *world, const char *name)
{
	struct permits_view view;

	for (int i = 0; i < world->client_count; i++)
		if (world->clients[i].core.all_tickets || world->clients[i].core.all_holds)
			return false;
	permits_look(world, name, &view);
	return !view.used && !view.hold_count && !view.queued;
}
