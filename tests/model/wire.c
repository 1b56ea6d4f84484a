/* SPDX-License-Identifier: MIT
 * The network of the model, a step at a time: requests, replies, messages, and faults. */
#include "world.h"

#include "find_epoch.h"

#include "scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)

/* ---- The store sends a message ------------------------------------------------------------- */

static struct model_item *add_item(struct model_link *link)
{
	if (link->inbox_count == MODEL_INBOX) {
		fprintf(stderr, "model: no room for a message\n");
		abort();
	}
	return &link->inbox[link->inbox_count++];
}

static int broadcast(struct model_world *world, int server, const char *text, size_t len)
{
	struct lk__message message;
	int receivers = 0;

	if (!lk__codec_broadcast(text, len, &message))
		world_keep(world, PROMISE_SCRIPT, "no client can parse a broadcast");
	if (message.kind == LK__OPENED) {
		world_keep(world, PROMISE_OPENING, promise_opening(world->opened, message.fence));
		world->opened = message.fence;
	}
	for (int i = 0; i < world->bounds->clients; i++) {
		struct model_link *link = &world->clients[i].links[server];
		if (!link->listens)
			continue;
		receivers++;
		if (link->client->alive)
			*add_item(link) = (struct model_item){ITEM_BROADCAST, message};
	}
	return receivers;
}

int world_publish(void *arg, const char *channel, const char *text, size_t len)
{
	const struct model_server *one = arg;
	struct model_world *world = one->world;
	int server = world_server(world, one);
	struct lk__message message;

	if (!strcmp(channel, MODEL_TOPIC))
		return broadcast(world, server, text, len);
	for (int i = 0; i < world->bounds->clients; i++) {
		struct model_client *client = &world->clients[i];
		struct model_link *link = &client->links[server];
		if (strcmp(channel, world_space(world, client)->channel) != 0 || !link->heard)
			continue;
		if (!lk__codec_message(world_space(world, client), text, len, &message))
			world_keep(world, PROMISE_SCRIPT, "a client cannot parse a message");
		if (client->alive)
			*add_item(link) = (struct model_item){ITEM_MESSAGE, message};
		return 1;
	}
	return 0;
}

/* ---- The store's side --------------------------------------------------------------------- */

/* The facts that a wait for the latch may know. */
static void note_open(struct model_world *world)
{
	const struct store_view *view = world_view(world->servers);

	if (world->bounds->kind != LK_KIND_LATCH || !view->there || view->count)
		return;
	for (int i = 0; i < world->bounds->clients; i++)
		if (world->clients[i].verb == DO_AWAIT || world->clients[i].verb == DO_AWAIT_TRY)
			world->clients[i].was_open = true;
}

/* The store executes a command; frees the bytes. */
static struct lk__resp *execute(struct model_server *server, struct lk__buf *bytes)
{
	struct lk__buf reply = {0};
	struct lk__resp *resp;

	lua_store_run(server->store, bytes->data, bytes->len, &reply);
	world_view_forget();
	lk__buf_fini(bytes);
	resp = lua_store_parse(&reply);
	lk__buf_fini(&reply);
	if (lk__codec_unknown_script(resp))
		abort(); /* scripts were loaded */
	world_keep(server->world, PROMISE_SCRIPT, promise_script(resp));
	return resp;
}

static void run_bytes(struct model_server *server, struct model_call *call)
{
	struct lk__resp *resp = execute(server, &call->bytes);
	struct lk__why why;

	lk__codec_answer(resp, "the store", &call->answer, &why);
	if (call->answer.kind == LK__FAILED)
		world_keep(server->world, PROMISE_SCRIPT, "a reply is malformed");
	call->answer.text = NULL;
	call->executed = true;
	lk__resp_free(resp);
}

static bool is_of(const struct model_client *client, const struct model_world *world,
                  const struct store_ticket *ticket, const struct model_call *call)
{
	return world_owner(ticket) == world_index(world, client) &&
	       !strcmp(ticket->nonce, call->nonce);
}

static void run_of_latch(struct model_world *world, struct model_link *link,
                         struct model_call *call)
{
	struct model_client *client = link->client;
	const struct store_view *before = world_view(link->server);

	run_bytes(link->server, call);
	if (world_view(link->server)->count < before->count && call->kind == LK__STEP) {
		uint16_t bit = (uint16_t)(1u << call->number);
		world_keep(world, PROMISE_STEP, promise_step(!!(client->counted & bit)));
		client->counted |= bit;
		world_keep(world, PROMISE_STEP,
		           promise_step(__builtin_popcount(client->counted) > client->stepped));
	}
	note_open(world);
}

static void run(struct model_world *world, struct model_link *link, struct model_call *call)
{
	const struct store_view *before;

	if (world->bounds->kind == LK_KIND_LATCH) {
		run_of_latch(world, link, call);
		return;
	}
	if (call->kind == LK__EPOCH || call->kind == LK__CONFIRM) {
		run_bytes(link->server, call);
		return; /* it writes the marker, or nothing */
	}
	before = world_view(link->server);
	call->owned = before->hold_count && is_of(link->client, world, &before->holds[0], call);
	run_bytes(link->server, call);
	if (world->bounds->kind == LK_KIND_SEMAPHORE)
		call->owned = call->answer.mine; /* it knows about expired leases */
	else if (call->kind == LK__LEAVE && call->owned && !call->answer.mine)
		world_keep(world, PROMISE_RESULT, "a leave denies its client's hold");
	if (world->bounds->servers)
		world_check_member(world, link->server, before, call);
	else
		world_check_run(world, link->server, before, call);
	if (call->kind == LK__RECLAIM)
		world_check_reclaim(world, link->client, call);
}

struct model_call *world_next_call(struct model_link *link)
{
	for (int i = 0; i < link->call_count; i++)
		if (!link->calls[i].executed)
			return &link->calls[i];
	return NULL;
}

/* Replicas get all that was written, and confirm it. */
static void catch_up(struct model_world *world, unsigned replicas)
{
	/* On a connection that wrote nothing, the server has nothing to wait for. */
	if (world->rule != RULE_WAIT_ELSEWHERE && world_may_lose(world))
		world_copy(world, replicas);
}

void world_execute(struct model_world *world, struct model_link *link, unsigned confirmed)
{
	struct model_call *call = world_next_call(link);

	if (call->kind == LK__CONFIRM) {
		lua_store_process(link->server->store)->replicas = __builtin_popcount(confirmed);
		if (confirmed)
			catch_up(world, confirmed);
	} else {
		link->client->scripts++;
	}
	run(world, link, call);
}

static void remove_call(struct model_call *calls, uint8_t *count)
{
	lk__buf_fini(&calls[0].bytes);
	--*count;
	memmove(&calls[0], &calls[1], sizeof(calls[0]) * *count);
	memset(&calls[*count], 0, sizeof(calls[0]));
}

void world_execute_late(struct model_world *world, struct model_link *link)
{
	run(world, link, &link->late[0]);
	remove_call(link->late, &link->late_count);
}

/* The store executes SUBSCRIBE and UNSUBSCRIBE. */
void world_subscribe(struct model_world *world, struct model_link *link)
{
	bool subscribe;

	(void)world;
	if (!lk__channels_next(&link->session.channels, &subscribe))
		abort();
	link->listens = subscribe;
	add_item(link)->kind = subscribe ? ITEM_SUBSCRIBED : ITEM_UNSUBSCRIBED;
}

/* Queries: sent once, with the reply at once. */
void world_question(struct model_world *world, struct model_link *link, enum model_verb verb)
{
	const struct lk__request query = {.kind = verb == DO_SET ? LK__SET : LK__REMOVE};
	const struct lk__space *space = world_space(world, link->client);
	char count[8], open_ttl[16];
	struct lk__answer answer;
	struct lk__buf bytes = {0};
	struct lk__resp *resp;
	struct lk__keys keys;
	struct lk__why why;

	snprintf(count, sizeof(count), "%d", world->bounds->count);
	snprintf(open_ttl, sizeof(open_ttl), "%d", MODEL_OPEN_TTL_MS);
	lk__space_keys(space, MODEL_NAME, strlen(MODEL_NAME), &keys);
	const char *set_args[] = {keys.main, keys.memory, keys.fence, keys.queue, count,
	                          "1",       open_ttl,    "0",        MODEL_TOPIC};
	const char *remove_args[] = {keys.main, keys.memory, keys.queue, MODEL_TOPIC};
	if (verb == DO_SET
	            ? !lk__codec_eval(&bytes, &lk__script_latch_set, false, 9, set_args, NULL)
	            : !lk__codec_eval(&bytes, &lk__script_latch_remove, false, 4, remove_args,
	                              NULL))
		abort();
	link->client->scripts++;
	resp = execute(link->server, &bytes);
	lk__codec_query_answer(resp, "the store", space, &query, NULL, &answer, &why);
	if (answer.kind != LK__MADE && answer.kind != LK__DONE && answer.kind != LK__ABSENT)
		world_keep(world, PROMISE_SCRIPT, "a reply is malformed");
	link->client->queue->name->latch->generation = 0;
	lk__resp_free(resp);
	note_open(world);
}

/* ---- The client's side -------------------------------------------------------------------- */

/* The wrong variants' change of a reply, before the core reads it. */
static void break_rule(const struct model_world *world, struct model_call *call,
                       int64_t valid_until_ns)
{
	struct lk__ticket *ticket = call->request->ticket;
	bool late = valid_until_ns <= world->now_ns;

	if (world->rule == RULE_VALID_FROM_REPLY || (world->rule == RULE_LATE_ANSWER_HOLDS && late))
		call->request->sent_ns = world->now_ns;
	if (world->rule == RULE_VALID_FROM_QUEUED && call->answer.kind == LK__QUEUED)
		ticket->first_sent_ns = call->request->sent_ns;
	if (world->rule == RULE_LATE_GRANT_REVIVES && call->answer.kind == LK__GRANTED &&
	    ticket->state == LK__HOLDING && ticket->valid_until_ns <= world->now_ns && !late)
		ticket->valid_until_ns = world->now_ns + 1;
	if (world->rule == RULE_FENCE_OF_MESSAGE && call->answer.kind == LK__KEPT &&
	    ticket->state == LK__CLAIMING)
		call->answer.fence = ticket->fence;
	if (world->rule == RULE_RENEWAL_UNCOUNTED && call->kind == LK__CONFIRM &&
	    call->request->session->granted.first &&
	    call->request->session->granted.first->kind == LK__RENEW &&
	    !call->request->session->granted.first->claim)
		call->answer.replicas = 1;
	if (world->rule == RULE_NEVER_YIELDS)
		call->answer.older = false;
	if (world->rule == RULE_YIELD_BELIEVED && call->kind == LK__YIELD)
		world_disbelieve(ticket);
	if (world->rule == RULE_UNCOMMITTED && call->answer.last)
		call->answer.last = INT64_MAX;
	if (world->rule == RULE_ONE_IS_ENOUGH && call->kind == LK__CONFIRM && call->answer.replicas)
		call->answer.replicas = call->request->session->replicas;
}

void world_answer(struct model_world *world, struct model_link *link)
{
	struct model_client *client = link->client;
	struct model_call call = link->calls[0];
	int64_t valid_until_ns = call.request->sent_ns + call.request->lease_ms * MS -
	                         lk__margin_ns(call.request->lease_ms);
	const struct lk__hold *hold = world_hold(client);
	uint64_t lapsed = hold && !world_valid(world, client) ? hold->fence : 0;
	bool forgets;

	remove_call(link->calls, &link->call_count);
	link->is_answer_late = false;
	break_rule(world, &call, valid_until_ns);
	forgets = world->rule == RULE_LEAVE_FORGOTTEN && call.kind == LK__LEAVE &&
	          call.answer.kind == LK__FAILED && !call.answer.retryable;
	client->denied |=
		call.kind == LK__LEAVE && call.answer.kind == LK__LEFT && !call.answer.mine;
	lk__core_answer(&client->core, world->now_ns, call.request, &call.answer);
	if (forgets)
		lk__ticket_end(&client->core, call.request->ticket);
	if (world->rule == RULE_NEVER_ASKS_AGAIN && client->core.all_tickets &&
	    client->core.all_tickets->state == LK__WAITING)
		lk__heap_set(&client->core.timers, &client->core.all_tickets->timer, LK__NEVER);
	world->answered = &call;
	world_after(world, client);
	world->answered = NULL;
	if (world_hold(client))
		world_keep(world, PROMISE_REVIVAL,
		           promise_revival(world_hold(client), world->now_ns, &lapsed));
}

static void drop_item(struct model_link *link)
{
	link->inbox_count--;
	link->is_message_late = false;
	memmove(&link->inbox[0], &link->inbox[1], sizeof(link->inbox[0]) * link->inbox_count);
	memset(&link->inbox[link->inbox_count], 0, sizeof(link->inbox[0]));
}

void world_hear(struct model_world *world, struct model_link *link)
{
	struct model_client *client = link->client;
	struct model_item item = link->inbox[0];
	struct lk__channels *channels = &link->session.channels;
	struct lk__ticket *ticket;
	uint32_t replicas = link->session.replicas;

	drop_item(link);
	switch (item.kind) {
	case ITEM_MESSAGE:
		if (world->rule == RULE_NEVER_YIELDS && item.message.kind == LK__WANTED)
			break;
		item.message.from = &link->session;
		ticket = lk__ticket_find(&client->core, item.message.nonce);
		if (world->rule == RULE_CLAIM_SKIPPED && item.message.kind == LK__GRANT && ticket) {
			item.message.claim = false;
			item.message.life_ms = ticket->queue->lease_ms;
			ticket->first_sent_ns = world->now_ns;
		}
		if (world->rule == RULE_FENCE_OF_MESSAGE && item.message.kind == LK__GRANT &&
		    ticket && (ticket->state == LK__ASKING || ticket->state == LK__WAITING))
			ticket->fence = item.message.fence;
		link->session.replicas = world->rule == RULE_MESSAGE_UNCOUNTED ? 0 : replicas;
		lk__core_message(&client->core, world->now_ns, &item.message);
		link->session.replicas = replicas;
		break;
	case ITEM_BROADCAST:
		lk__channels_published(channels, world->now_ns, MODEL_TOPIC, strlen(MODEL_TOPIC),
		                       &item.message);
		break;
	default:
		lk__channels_confirmed(channels, world->now_ns, item.kind == ITEM_SUBSCRIBED,
		                       MODEL_TOPIC, strlen(MODEL_TOPIC));
	}
	world_after(world, client);
}

void world_lose(struct model_link *link)
{
	drop_item(link);
}

void world_timer(struct model_world *world, struct model_client *client)
{
	lk__core_tick(&client->core, world->now_ns);
	world_after(world, client);
}

void world_time(struct model_world *world, int64_t ns)
{
	world_set_time(world, world->now_ns + ns);
}

/* ---- Faults ------------------------------------------------------------------------------- */

/* Requests that the store has not executed may still arrive there, or never. */
static void close_connections(struct model_world *world, struct model_link *link, uint8_t lates)
{
	for (int i = 0; i < link->call_count; i++) {
		struct model_call *call = &link->calls[i];
		if (call->executed || link->late_count == MODEL_LATE ||
		    world->used[DO_LATE] >= lates) {
			lk__buf_fini(&call->bytes);
			continue;
		}
		call->request = NULL;
		link->late[link->late_count++] = *call;
	}
	memset(link->calls, 0, sizeof(link->calls));
	memset(link->inbox, 0, sizeof(link->inbox));
	link->call_count = link->inbox_count = 0;
	link->is_answer_late = link->is_message_late = false;
}

static void break_links(struct model_world *world, struct model_link *link, uint8_t lates)
{
	const struct lk__why why = {.err = LK_EUNKNOWN, .text = "the link is down"};

	close_connections(world, link, lates);
	link->linked = link->heard = link->listens = false;
	lk__core_link_down(&link->client->core, &link->session, world->now_ns, &why, 0);
	world_after(world, link->client);
}

void world_cut(struct model_world *world, struct model_link *link)
{
	break_links(world, link, world->bounds->lates);
}

static void drop(struct model_world *world, struct model_link *link)
{
	for (int i = 0; i < link->late_count; i++)
		lk__buf_fini(&link->late[i].bytes);
	memset(link->late, 0, sizeof(link->late));
	link->late_count = 0;
	if (link->client->alive && link->linked)
		break_links(world, link, 0);
	link->heard = false;
}

void world_drop(struct model_world *world, const struct model_server *server)
{
	for (int i = 0; i < world->bounds->clients; i++)
		drop(world, &world->clients[i].links[world_server(world, server)]);
}

void world_link(struct model_world *world, struct model_link *link)
{
	struct model_client *client = link->client;

	link->linked = link->heard = true;
	link->returns = false;
	link_up(link->server->store, world_space(world, client), &client->core, &link->session,
	        world->now_ns);
	world_view_forget();
	world_after(world, client);
}

/* The store replies to its next request with an error, and executes nothing of it. */
void world_refuse(struct model_link *link, bool passes)
{
	struct model_call *call = world_next_call(link);

	call->answer = (struct lk__answer){
		.kind = LK__FAILED,
		.err = passes ? LK_EAGAIN : LK_EAUTH,
		.retryable = passes,
		.text = "refused",
	};
	call->executed = true;
	link->client->refused = true;
	lk__buf_fini(&call->bytes);
}

/* unseen: the store still counts it as a receiver. */
void world_crash(struct model_world *world, struct model_client *client, bool unseen)
{
	struct lk__op *waiter = client->waiter;

	for (int i = 0; i < world->server_count; i++) {
		struct model_link *link = &client->links[i];
		close_connections(world, link, world->bounds->lates);
		link->linked = false;
		link->heard = unseen && link->heard;
		link->listens = unseen && link->listens;
	}
	lk__core_fini(&client->core);
	if (waiter)
		world_free_call(waiter);
	memset(&client->core, 0, sizeof(client->core));
	client->waiter = NULL;
	client->queue = NULL;
	client->owner = client->seen = client->told = 0;
	client->verb = 0;
	client->alive = client->gave_up = client->was_open = false;
	client->was_valid = client->refused = client->denied = false;
}
