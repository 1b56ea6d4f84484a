/* SPDX-License-Identifier: MIT
 * Clients in virtual time: see virtual.h. */
#include "virtual.h"

#include "find_epoch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The index of the topic among those of the client, or their number. */
static int find_topic(const struct virt_client *client, const char *topic)
{
	int i = 0;

	while (i < client->topic_count && strcmp(client->topics[i], topic) != 0)
		i++;
	return i;
}

static void send_item(struct virt_client *client, int kind, const char *topic, const char *text,
                      size_t len)
{
	struct virt_message *message = &client->inbox[client->inbox_count++];
	struct virt *virt = client->virt;

	if (client->inbox_count > VIRT_INBOX || len > VIRT_MESSAGE_MAX ||
	    strlen(topic) >= VIRT_TOPIC_MAX)
		abort();
	message->kind = kind;
	message->at_ns = virt->now_ns + (virt->delay_ns ? virt->delay_ns(virt) : 0);
	if (message > client->inbox && message->at_ns < message[-1].at_ns)
		message->at_ns = message[-1].at_ns;
	memcpy(message->topic, topic, strlen(topic) + 1);
	message->len = len;
	memcpy(message->text, text, len);
}

static int publish(void *arg, const char *channel, const char *text, size_t len)
{
	struct virt *virt = arg;
	int receivers = 0;

	for (int i = 0; i < virt->client_count; i++) {
		struct virt_client *client = &virt->clients[i];
		bool own = !strcmp(client->space.channel, channel);
		if (!client->subscribed ||
		    (!own && find_topic(client, channel) == client->topic_count))
			continue;
		send_item(client, own ? VIRT_MESSAGE : VIRT_PUBLISHED, channel, text, len);
		receivers++;
	}
	return receivers;
}

int64_t virt_store_us(const struct virt *virt)
{
	return VIRT_EPOCH_US + virt->store_offset_us + virt->now_ns / 1000;
}

void virt_set_time(struct virt *virt, int64_t now_ns)
{
	virt->now_ns = now_ns;
	lua_store_set_time(virt->store, virt_store_us(virt));
}

void virt_init(struct virt *virt, int clients, uint64_t seed)
{
	memset(virt, 0, sizeof(*virt));
	virt->store = lua_store_new(publish, virt);
	virt->client_count = clients;
	lua_store_load_scripts(virt->store);
	virt_set_time(virt, 1000 * VIRT_MS);
	for (int i = 0; i < clients; i++) {
		struct virt_client *client = &virt->clients[i];
		char id[LK__CLIENT_ID_SIZE];
		client->virt = virt;
		client->id = i;
		snprintf(id, sizeof(id), "%cclient_AAAAAAAAAAAAAA", 'a' + i);
		lk__space_init(&client->space, "lk", 0, id);
		lk__session_init(&client->session, 1000000000, 1000000000);
		if (!lk__core_init(&client->core, seed * 100 + (uint64_t)i) ||
		    !lk__core_add_session(&client->core, &client->session))
			abort();
		virt_link_up(client);
	}
}

void virt_fini(struct virt *virt)
{
	for (int i = 0; i < virt->client_count; i++) {
		struct virt_client *client = &virt->clients[i];
		lk__core_fini(&client->core);
		for (int j = 0; j < client->waiter_count; j++) {
			free(client->waiters[j]->spare_ticket);
			free(client->waiters[j]->spare_hold);
			free(client->waiters[j]->spare_queue);
			free(client->waiters[j]->spare_step);
			free(client->waiters[j]);
		}
	}
	lua_store_free(virt->store);
}

int64_t virt_now(const struct virt_client *client)
{
	return client->virt->now_ns;
}

/* ---- Callers ------------------------------------------------------------------------------ */

struct lk__op *virt_waiter(struct virt_client *client, struct lk__wait_queue *queue)
{
	struct lk__op *waiter = calloc(1, sizeof(*waiter));

	waiter->queue = queue;
	waiter->handle = client;
	waiter->reports_loss = true;
	waiter->spare_ticket = malloc(sizeof(*waiter->spare_ticket));
	waiter->spare_hold = malloc(sizeof(*waiter->spare_hold));
	waiter->spare_queue = malloc(sizeof(*waiter->spare_queue));
	if (client->waiter_count == (int)(sizeof(client->waiters) / sizeof(*client->waiters)))
		abort();
	client->waiters[client->waiter_count++] = waiter;
	return waiter;
}

void virt_give_up(struct virt_client *client, struct lk__op *waiter, lk_err why)
{
	lk__core_give_up(&client->core, virt_now(client), waiter, why);
}

void virt_abandon(struct virt_client *client, struct lk__op *waiter)
{
	lk__core_abandon(&client->core, virt_now(client), waiter);
}

/* ---- The network -------------------------------------------------------------------------- */

bool virt_take(struct virt_client *client, struct virt_call *call)
{
	struct lk__pending *request =
		lk__core_next_request(&client->core, &client->session, virt_now(client));
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

void virt_execute(struct virt_client *client, struct virt_call *call)
{
	call->reply.len = 0;
	client->virt->runs[call->kind]++;
	lua_store_run(client->virt->store, call->bytes.data, call->bytes.len, &call->reply);
}

void virt_call_fini(struct virt_call *call)
{
	lk__buf_fini(&call->bytes);
	lk__buf_fini(&call->reply);
}

void virt_answer(struct virt_client *client, struct virt_call *call)
{
	struct lk__resp *resp = lua_store_parse(&call->reply);
	struct lk__answer answer;
	struct lk__why why;

	if (lk__codec_unknown_script(resp)) {
		lk__core_resend(&client->core, call->request);
	} else {
		lk__codec_answer(resp, "the store", &answer, &why);
		lk__core_answer(&client->core, virt_now(client), call->request, &answer);
	}
	lk__resp_free(resp);
	virt_call_fini(call);
}

void virt_reply(struct virt_client *client, struct virt_call *call, const char *bytes)
{
	lk__buf_fini(&call->reply);
	call->reply.data = strdup(bytes);
	call->reply.len = strlen(bytes);
	call->reply.cap = call->reply.len + 1;
	virt_answer(client, call);
}

void virt_refuse(struct virt_client *client, struct virt_call *call, const char *error)
{
	char text[200];

	snprintf(text, sizeof(text), "-%s\r\n", error);
	virt_reply(client, call, text);
}

bool virt_command(struct virt_client *client)
{
	struct lk__channel *channel;
	bool subscribe;
	int i;

	if (!(channel = lk__channels_next(&client->session.channels, &subscribe)))
		return false;
	i = find_topic(client, channel->topic);
	if (subscribe && i == client->topic_count) {
		if (client->topic_count++ == VIRT_TOPICS || channel->len >= VIRT_TOPIC_MAX)
			abort();
		memcpy(client->topics[i], channel->topic, channel->len + 1u);
	} else if (!subscribe && i < client->topic_count) {
		memcpy(client->topics[i], client->topics[--client->topic_count], VIRT_TOPIC_MAX);
	}
	client->subscribes += subscribe;
	client->unsubscribes += !subscribe;
	send_item(client, subscribe ? VIRT_SUBSCRIBED : VIRT_UNSUBSCRIBED, channel->topic, "", 0);
	return true;
}

static bool has_arrived(const struct virt_client *client)
{
	return client->inbox_count && client->inbox[0].at_ns <= client->virt->now_ns;
}

struct lk__message virt_peek(const struct virt_client *client)
{
	const struct virt_message *first = &client->inbox[0];
	struct lk__message message;

	/* A script must not send what clients cannot parse. */
	if (!has_arrived(client) ||
	    !(first->kind == VIRT_MESSAGE
	              ? lk__codec_message(&client->space, first->text, first->len, &message)
	              : lk__codec_broadcast(first->text, first->len, &message)))
		abort();
	return message;
}

bool virt_hear(struct virt_client *client)
{
	struct lk__channels *channels = &client->session.channels;
	struct virt_message item = client->inbox[0];
	int64_t now_ns = virt_now(client);
	size_t topic_len = strlen(item.topic);
	struct lk__message message;

	if (!has_arrived(client))
		return false;
	if (item.kind == VIRT_MESSAGE || item.kind == VIRT_PUBLISHED)
		message = virt_peek(client);
	client->inbox_count--;
	memmove(&client->inbox[0], &client->inbox[1],
	        sizeof(client->inbox[0]) * (size_t)client->inbox_count);
	if (item.kind == VIRT_MESSAGE)
		lk__core_message(&client->core, now_ns, &message);
	else if (item.kind == VIRT_PUBLISHED)
		lk__channels_published(channels, now_ns, item.topic, topic_len, &message);
	else
		lk__channels_confirmed(channels, now_ns, item.kind == VIRT_SUBSCRIBED, item.topic,
		                       topic_len);
	return true;
}

void virt_link_down(struct virt_client *client, lk_err err)
{
	struct lk__why why = {.err = err, .text = "the link is down"};

	client->subscribed = false;
	client->inbox_count = client->topic_count = 0;
	lk__core_link_down(&client->core, &client->session, virt_now(client), &why, 0);
}

void virt_link_up(struct virt_client *client)
{
	client->subscribed = true;
	link_up(client->virt->store, &client->space, &client->core, &client->session,
	        virt_now(client));
}

/* ---- The network, whole ------------------------------------------------------------------- */

static void take_out(struct virt_client *client)
{
	struct lk__hold *hold;

	while (lk__core_next_done(&client->core))
		;
	while ((hold = lk__core_next_lost(&client->core)))
		lk__core_loss_reported(hold);
}

void virt_settle(struct virt *virt)
{
	struct virt_call call;
	bool busy = true;

	while (busy) {
		busy = false;
		for (int i = 0; i < virt->client_count; i++) {
			struct virt_client *client = &virt->clients[i];
			lk__core_tick(&client->core, virt_now(client));
			while (virt_take(client, &call)) {
				virt_execute(client, &call);
				virt_answer(client, &call);
				busy = true;
			}
			while (virt_command(client) || virt_hear(client))
				busy = true;
		}
	}
	for (int i = 0; i < virt->client_count; i++)
		take_out(&virt->clients[i]);
}

void virt_pass(struct virt *virt, int64_t ms)
{
	int64_t end_ns = virt->now_ns + ms * VIRT_MS;

	for (;;) {
		int64_t next_ns = end_ns;
		virt_settle(virt);
		for (int i = 0; i < virt->client_count; i++) {
			const struct virt_client *client = &virt->clients[i];
			int64_t due_ns = lk__core_due(&client->core);
			if (client->inbox_count && client->inbox[0].at_ns < due_ns)
				due_ns = client->inbox[0].at_ns;
			if (due_ns < next_ns)
				next_ns = due_ns;
		}
		if (virt->now_ns >= end_ns)
			return;
		virt_set_time(virt, next_ns > virt->now_ns ? next_ns : virt->now_ns);
	}
}
