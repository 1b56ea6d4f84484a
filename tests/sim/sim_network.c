/* SPDX-License-Identifier: MIT
 * Requests, replies and messages in flight.  A connection keeps its order; the two of a client are
 * independent. */
#include "sim.h"

#include "query.h"

#include <stdlib.h>
#include <string.h>

/* ---- Commands ----------------------------------------------------------------------------- */

static void append_call(struct sim_link *link, struct sim_call *call)
{
	call->sent_ns = sim_local(link->client);
	call->at_ns = sim_link_arrival(link, SIM_COMMANDS_OUT);
	call->slot = link->client->slot;
	call->life = link->client->life;
	call->place = link->place;
	call->next = NULL;
	*link->calls_end = call;
	link->calls_end = &call->next;
}

static struct sim_call *new_call(uint8_t kind)
{
	struct sim_call *call = calloc(1, sizeof(*call));

	if (!call)
		abort();
	call->kind = kind;
	call->name = -1;
	return call;
}

static int name_of(const struct lk__name *name)
{
	return name->bytes[name->len - 1] - '0';
}

static void describe_step(struct sim_client *client, struct sim_call *call,
                          const struct lk__latch *latch)
{
	const struct lk__step *step = latch->steps;
	struct sim_caller *caller = (struct sim_caller *)step->waiter;

	call->generation = step->generation;
	call->number = step->number;
	call->n = step->n;
	call->step_name = step->len ? step->name[0] - 'a' : 0;
	if (!caller)
		return;
	(void)client;
	caller->step_number = step->number;
	caller->step_generation = step->generation;
}

static struct sim_call *take(struct sim_client *client, struct lk__pending *request)
{
	struct sim_call *call = new_call(request->kind);
	static const char *const question[] = {"PING"};
	struct lk__request asked;

	call->request = request;
	if (request->kind == LK__TOPOLOGY) {
		if (!lk__resp_command(&call->bytes, 1, question, NULL))
			abort();
		return call;
	}
	lk__core_request(request, &asked);
	call->asking = asked.asking;
	asked.asking = false; /* its own reply has no place here */
	if (request->kind == LK__EPOCH || request->kind == LK__CONFIRM) {
		/* Of no name. */
	} else if (lk__pending_is_latch(request)) {
		call->name = name_of(request->latch->name);
		if (request->kind == LK__STEP)
			describe_step(client, call, request->latch);
	} else {
		call->name = name_of(request->ticket->queue->name);
		if (request->kind != LK__HAND)
			lk__ticket_text(&client->space, &asked.ticket, call->ticket);
		memcpy(call->nonce, request->ticket->nonce, sizeof(call->nonce));
		call->permits = request->permits;
		if (request->kind == LK__ASK)
			call->arrival_us = (int64_t)request->ticket->arrival;
		if (request->kind == LK__LEAVE || request->kind == LK__RECLAIM ||
		    (request->kind == LK__RENEW && !request->claim))
			call->fence = request->ticket->last_fence;
	}
	if (!lk__codec_request(&call->bytes, &client->space, &asked))
		abort();
	return call;
}

static void append_item(struct sim_item ***end, struct sim_item *item)
{
	item->next = NULL;
	**end = item;
	*end = &item->next;
}

static int topic_of(const struct sim *sim, const char *topic)
{
	for (int i = 0; i < SIM_NAMES; i++)
		if (!strcmp(sim->names[i].topic, topic))
			return i;
	/* lk:c:{name}:client */
	return sim->plan->cluster ? SIM_NAMES + strchr(topic, '}')[-1] - '0' : -1;
}

static struct sim_item *new_item(enum sim_item_kind kind, int topic)
{
	struct sim_item *item = calloc(1, sizeof(*item));

	if (!item)
		abort();
	item->kind = (uint8_t)kind;
	item->topic = topic;
	return item;
}

/* To the client; from the server's end. */
static void push_item(struct sim_link *link, struct sim_item *item)
{
	if (!link->here) {
		free(item);
		return;
	}
	item->at_ns = sim_link_arrival(link, SIM_MESSAGES_IN);
	append_item(&link->items_end, item);
	link->client->dirty = true;
}

void sim_network_flush(struct sim_client *client)
{
	struct sim_link *link = client->lane->link;
	struct lk__pending *request;
	struct lk__channel *channel;
	bool subscribe;

	client->lane->flush_ns = LK__NEVER;
	if (!link)
		return;
	if (link->etcd) {
		sim_etcd_flush(client);
		return;
	}
	while ((request = lk__core_next_request(&client->core, &client->lane->session,
	                                        sim_local(client)))) {
		sim_check_sent(client, request);
		append_call(link, take(client, request));
	}
	while ((channel = lk__channels_next(&client->lane->session.channels, &subscribe))) {
		struct sim_item *item = new_item(subscribe ? SIM_SUBSCRIBED : SIM_UNSUBSCRIBED,
		                                 topic_of(client->sim, channel->topic));
		item->at_ns = sim_link_arrival(link, SIM_MESSAGES_OUT);
		append_item(&link->orders_end, item);
	}
}

void sim_network_ping(struct sim_client *client)
{
	static const char *const ping[] = {"PING"};
	struct sim_link *link = client->lane->link;
	struct sim_call *call;

	if (link->etcd) { /* it notices a dead connection itself */
		lk__session_heard(&client->lane->session, sim_local(client));
		return;
	}
	if (!link->calls) {
		call = new_call(SIM_PING);
		if (!lk__resp_command(&call->bytes, 1, ping, NULL))
			abort();
		append_call(link, call);
	}
	if (lk__channels_ping(&client->lane->session.channels)) {
		struct sim_item *item = new_item(SIM_PONG, -1);
		item->at_ns = sim_link_arrival(link, SIM_MESSAGES_OUT);
		append_item(&link->orders_end, item);
	}
}

void sim_network_ask(struct sim_caller *caller, enum lk__request_kind kind,
                     const struct lk__details *details)
{
	struct sim_call *call = new_call(SIM_QUESTION);
	struct sim_link *link;

	call->asker = caller;
	call->name = caller->name;
	link = ((struct sim_lane *)caller->queue->name->session)->link;
	query_append(&call->bytes, &caller->client->space, kind, LK_KIND_LATCH,
	             caller->queue->name->bytes, details);
	append_call(link, call);
}

static struct sim_call *copy_of(const struct sim_call *call)
{
	struct sim_call *copy = new_call(call->kind);

	*copy = *call;
	copy->reply = (struct lk__buf){0};
	copy->topology = NULL;
	copy->executed = false;
	copy->bytes.data = malloc(call->bytes.len);
	if (!copy->bytes.data)
		abort();
	memcpy(copy->bytes.data, call->bytes.data, call->bytes.len);
	copy->bytes.len = copy->bytes.cap = call->bytes.len;
	return copy;
}

void sim_network_execute(struct sim_client *client)
{
	struct sim_link *link = client->lane->link;
	struct sim_call *call = sim_link_to_execute(link);
	uint64_t wrote = client->sim->service.writes;

	if (link->etcd) {
		sim_etcd_execute(client);
		return;
	}
	if (sim_replicas_wait(client->sim, link, call))
		return;
	sim_server_run(client->sim, call);
	if (client->sim->service.writes > wrote)
		link->wrote = client->sim->service.writes;
	if (client->lane->link != link)
		return;
	call->executed = true;
	call->at_ns = sim_link_arrival(link, SIM_COMMANDS_IN);
	/* As if it was sent again over a second connection, and arrives late by the first. */
	if (call->request && call->kind != LK__CONFIRM && client->sim->plan->fault_count &&
	    !client->sim->ending && sim_percent(&client->random, 1))
		sim_call_late(client, copy_of(call));
}

void sim_network_late(struct sim *sim)
{
	struct sim_call **first = &sim->late, **at, *call;

	for (at = &sim->late; *at; at = &(*at)->next)
		if ((*at)->at_ns < (*first)->at_ns)
			first = at;
	call = *first;
	if (sim_quorum_put_off(sim, call))
		return;
	if (call->place != sim->service.place && sim->now_ns < sim->service.stale.wake_ns) {
		call->at_ns = sim->service.stale.wake_ns;
		return;
	}
	*first = call->next;
	if (sim->now_ns >= sim->up_ns || call->place != sim->service.place)
		sim_server_run(sim, call);
	if (call->kind == LK__ASK || call->kind == LK__RECLAIM || call->kind == LK__YIELD)
		sim_check_ghost(sim, call->ticket);
	sim_call_free(call);
}

void sim_network_reply(struct sim_client *client)
{
	struct sim_link *link = client->lane->link;
	struct sim_call *call = link->calls;
	struct lk__answer answer;
	struct lk__resp *resp;
	struct lk__why why;

	if (link->etcd) {
		sim_etcd_reply(client);
		return;
	}
	link->calls = call->next;
	if (!link->calls)
		link->calls_end = &link->calls;
	if (call->request && call->topology) {
		memcpy(lk__core_into(call->request), call->topology, sizeof(*call->topology));
		answer = (struct lk__answer){.kind = LK__LISTED};
		lk__core_answer(&client->core, sim_local(client), call->request, &answer);
		sim_nodes_refresh(client);
	} else if (call->request) {
		bool reclaim = call->kind == LK__RECLAIM;
		char nonce[LK__NONCE_SIZE] = "";
		uint64_t fence = reclaim ? call->request->ticket->fence : 0;

		if (reclaim)
			memcpy(nonce, call->request->ticket->nonce, sizeof(nonce));
		resp = lua_store_parse(&call->reply);
		if (lk__codec_unknown_script(resp) && !call->request->by_text) {
			lk__core_resend(&client->core, call->request);
		} else {
			lk__codec_answer(resp, "the store", &answer, &why);
			if (answer.kind == LK__MOVED || answer.kind == LK__ASKED)
				sim_nodes_redirect(client, call->request, answer.kind == LK__ASKED,
				                   answer.text);
			else
				lk__core_answer(&client->core, sim_local(client), call->request,
				                &answer);
			if (answer.kind == LK__CONFIRMED &&
			    answer.replicas < client->lane->session.replicas)
				client->short_ns = client->sim->now_ns;
			if (reclaim && answer.kind == LK__GONE)
				sim_check_gone(client, nonce, fence);
			if (reclaim && answer.kind == LK__KEPT) {
				client->counted.reclaimed++;
				client->sim->tally.reclaimed++;
			}
			if (answer.kind == LK__MEMORY)
				sim_check_doubts(client);
		}
		lk__resp_free(resp);
	} else if (call->asker) {
		sim_latch_answered(call->asker, true);
	}
	sim_call_free(call);
}

/* ---- Messages ----------------------------------------------------------------------------- */

void sim_network_order(struct sim_client *client)
{
	struct sim *sim = client->sim;
	struct sim_link *link = client->lane->link;
	struct sim_item *item = link->orders;

	link->orders = item->next;
	if (!link->orders)
		link->orders_end = &link->orders;
	if (sim->plan->quorum)
		sim_quorum_select(sim, link->place);
	if (sim->now_ns < sim->sick_until_ns && !sim->sick_to_some && item->kind != SIM_PONG &&
	    (client->lane_count > 1 || link->place == sim->service.place))
		item->kind = SIM_PUT_OFF;
	if (sim->plan->cluster)
		sim_cluster_order(sim, link, item);
	if (item->kind == SIM_SUBSCRIBED)
		link->topics |= 1u << item->topic;
	else if (item->kind == SIM_UNSUBSCRIBED)
		link->topics &= ~(1u << item->topic);
	push_item(link, item);
}

static void publish_to(struct sim_link *link, int topic, const char *text, size_t len)
{
	struct sim_item *item = new_item(SIM_MESSAGE, topic);

	if (len >= sizeof(item->text))
		abort();
	item->len = len;
	memcpy(item->text, text, len);
	push_item(link, item);
}

/* A message of a master reaches the subscribers of its replica as well. */
static bool reaches(const struct sim *sim, const struct sim_link *link, int place)
{
	if (sim->plan->cluster)
		return link->place % SIM_SHARDS == sim->cluster.runs_at % SIM_SHARDS;
	return link->place == (sim->plan->quorum ? sim->quorum.runs_at : place);
}

void sim_network_unsubscribed(struct sim_link *link, int topic)
{
	push_item(link, new_item(SIM_UNSUBSCRIBED, topic));
}

/* The store's PUBLISH; returns how many subscribers the server counts. */
int sim_network_publish(void *arg, const char *channel, const char *text, size_t len)
{
	struct sim *sim = arg;
	const struct sim_service *service = &sim->service;
	const char *own = sim->plan->cluster ? strrchr(channel, ':') + 1 : channel;
	int place = service->stale.runs ? service->stale.place : service->place;
	int topic = topic_of(sim, channel), receivers = 0;

	if (topic >= 0 && topic < SIM_NAMES && !service->stale.runs)
		sim_check_opened(sim, topic, text);
	for (struct sim_link *link = sim->links; link; link = link->next) {
		if (!link->there || !reaches(sim, link, place))
			continue;
		if (topic >= 0 && !(link->topics >> topic & 1))
			continue;
		if ((topic < 0 || topic >= SIM_NAMES) && strcmp(link->channel, own) != 0)
			continue;
		receivers++;
		publish_to(link, topic, text, len);
	}
	return receivers;
}

static void hear(struct sim_client *client, struct lk__message *message)
{
	message->from = client->lane_count > 1 ? &client->lane->session : NULL;
	lk__core_message(&client->core, sim_local(client), message);
}

static const char *topic_text(const struct sim_client *client, int topic, char text[LK__TOPIC_MAX])
{
	const struct sim_name *name;

	if (topic < 0)
		return "";
	name = &client->sim->names[topic % SIM_NAMES];
	if (topic < SIM_NAMES)
		return name->topic;
	lk__space_inbox(&client->space, name->text, strlen(name->text), text);
	return text;
}

void sim_network_hear(struct sim_client *client)
{
	struct sim *sim = client->sim;
	struct sim_link *link = client->lane->link;
	struct sim_item *item = link->items;
	struct lk__channels *channels = &client->lane->session.channels;
	char inbox[LK__TOPIC_MAX];
	const char *topic = topic_text(client, item->topic, inbox);
	int64_t now_ns = sim_local(client);
	struct lk__message message;

	link->items = item->next;
	if (!link->items)
		link->items_end = &link->items;
	client->lane->heard_ns = sim->now_ns;
	if (client->lane_count == 1 && link->place != sim->service.place)
		client->stale_ns = sim->now_ns;
	lk__session_heard(&client->lane->session, now_ns);
	switch ((enum sim_item_kind)item->kind) {
	case SIM_PONG:
		lk__channels_ponged(channels);
		break;
	case SIM_PUT_OFF:
		lk__channels_put_off(channels, now_ns);
		break;
	case SIM_SUBSCRIBED:
	case SIM_UNSUBSCRIBED:
		lk__channels_confirmed(channels, now_ns, item->kind == SIM_SUBSCRIBED, topic,
		                       strlen(topic));
		break;
	case SIM_MOVED:
		lk__channels_put_off(channels, now_ns);
		sim_nodes_redirect(client, NULL, false, item->text);
		break;
	case SIM_MESSAGE:
		if (item->topic < 0 || item->topic >= SIM_NAMES) {
			if (!lk__codec_message(&client->space, item->text, item->len, &message))
				sim_fail(sim, PROMISE_SCRIPT, "a client cannot parse %.*s",
				         (int)item->len, item->text);
			else
				hear(client, &message);
		} else if (lk__codec_broadcast(item->text, item->len, &message)) {
			lk__channels_published(channels, now_ns, topic, strlen(topic), &message);
		}
	}
	free(item);
}
