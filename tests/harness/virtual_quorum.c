/* SPDX-License-Identifier: MIT
 * Clients of a quorum in virtual time: see virtual_quorum.h. */
#include "virtual_quorum.h"

#include "find_epoch.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPOCH_US INT64_C(1700000000000000)
#define RUNS_MAX 2000 /* of events at one moment */
#define OWNER 7

struct vq vq;

/* ---- The world ---------------------------------------------------------------------------- */

int64_t vq_store_us(int server)
{
	return EPOCH_US + vq.server[server].offset_us + vq.now_ns / 1000;
}

void vq_set_time(int64_t now_ns)
{
	vq.now_ns = now_ns;
	for (int i = 0; i < vq.servers; i++)
		lua_store_set_time(vq.server[i].store, vq_store_us(i));
}

void vq_set_clock(int server, int64_t offset_us)
{
	vq.server[server].offset_us = offset_us;
	vq_set_time(vq.now_ns);
}

static int publish(void *arg, const char *channel, const char *text, size_t len)
{
	int server = (int)((struct vq_server *)arg - vq.server), receivers = 0;

	for (int i = 0; i < vq.clients; i++) {
		struct vq_link *link = &vq.client[i].links[server];
		if (!link->is_up || strcmp(vq.client[i].space.channel, channel) != 0)
			continue;
		ck_assert_int_lt(link->message_count, VQ_MESSAGES);
		ck_assert_uint_lt(len, sizeof(link->messages[0]));
		memcpy(link->messages[link->message_count], text, len);
		link->messages[link->message_count++][len] = '\0';
		receivers++;
	}
	return receivers;
}

static void new_process(struct vq_server *server, int number)
{
	static uint64_t run = 1000;

	lua_store_process(server->store)->run = ++run;
	lua_store_process(server->store)->replid = 2000 + run;
	(void)number;
}

static void start_client(int number)
{
	struct vq_client *client = &vq.client[number];
	char id[LK__CLIENT_ID_SIZE];

	snprintf(id, sizeof(id), "%cclient_AAAAAAAAAAAAAA", 'a' + number);
	lk__space_init(&client->space, "lk", 0, id);
	client->space.quorum = true;
	ck_assert(lk__core_init(&client->core, test_seed() * 100 + (uint64_t)number));
	client->core.command_timeout_ns = VQ_TIMEOUT_MS * VQ_MS;
	ck_assert(lk__core_use_quorum(&client->core, (unsigned)vq.servers));
	for (int i = 0; i < vq.servers; i++) {
		lk__session_init(&client->links[i].session, 1000 * VQ_MS, VQ_TIMEOUT_MS * VQ_MS);
		ck_assert(lk__core_add_session(&client->core, &client->links[i].session));
	}
	client->queue = vq_open(number, "name", VQ_LEASE_MS, false);
}

void vq_start_unmarked(int servers, int clients)
{
	memset(&vq, 0, sizeof(vq));
	vq.servers = servers;
	vq.clients = clients;
	for (int i = 0; i < servers; i++) {
		vq.server[i].store = lua_store_new(publish, &vq.server[i]);
		lua_store_load_scripts(vq.server[i].store);
		new_process(&vq.server[i], i);
	}
	vq_set_time(100000 * VQ_MS);
	for (int i = 0; i < clients; i++)
		start_client(i);
}

/* As `latchkey quorum init`. */
static void mark(int server)
{
	const struct lk__epoch none = {0};
	char set[LK__SET_TEXT];
	const struct lk__request request = {
		.kind = LK__EPOCH, .quorum = true, .epoch = &none, .set = set, .set_is_new = true};
	struct lk__buf bytes = {0}, reply = {0};

	snprintf(set, sizeof(set), "theset_AAAA %d/%d %d", server + 1, vq.servers, VQ_LONGEST_MS);
	ck_assert(lk__codec_request(&bytes, &vq.client[0].space, &request));
	lua_store_run(vq.server[server].store, bytes.data, bytes.len, &reply);
	ck_assert_msg(strstr(reply.data, " 0 [theset") != NULL, "not marked");
	lk__buf_fini(&bytes);
	lk__buf_fini(&reply);
}

void vq_start(int servers, int clients)
{
	vq_start_unmarked(servers, clients);
	for (int i = 0; i < servers; i++)
		mark(i);
	for (int i = 0; i < clients; i++)
		for (int j = 0; j < servers; j++)
			vq_join(i, j);
	vq_settle();
}

static void free_calls(struct vq_link *link)
{
	for (int i = 0; i < link->call_count; i++) {
		lk__buf_fini(&link->calls[i].bytes);
		lk__buf_fini(&link->calls[i].reply);
	}
	link->call_count = 0;
}

static void free_op(struct lk__op *op)
{
	free(op->spare_ticket);
	free(op->spare_hold);
	lk__legs_free(op->spare_legs);
	free(op);
}

void vq_end(void)
{
	for (int i = 0; i < vq.clients; i++) {
		struct vq_client *client = &vq.client[i];
		ck_assert_msg(!client->core.all_tickets, "left: tickets of client %d", i);
		ck_assert_msg(!client->core.all_holds, "left: holds of client %d", i);
		ck_assert_msg(!client->core.quorum->touched, "left: a ticket to decide");
		for (int j = 0; j < vq.servers; j++)
			ck_assert_msg(!client->links[j].session.users, "left: users of a link");
		lk__core_fini(&client->core);
		for (int j = 0; j < vq.servers; j++)
			free_calls(&client->links[j]);
		for (int j = 0; j < client->op_count; j++)
			free_op(client->ops[j]);
	}
	for (int i = 0; i < vq.servers; i++) {
		if (!vq.server[i].is_down) {
			ck_assert_msg(!vq_value(i)[0], "left on server %d: %s", i, vq_value(i));
			ck_assert_msg(!vq_waiting(i), "left on server %d: waiters", i);
		}
		while (vq.server[i].late_count)
			lk__buf_fini(&vq.server[i].late[--vq.server[i].late_count]);
		lua_store_free(vq.server[i].store);
	}
}

struct lk__wait_queue *vq_open(int client, const char *name, int64_t lease_ms, bool fixed)
{
	struct lk__core *core = &vq.client[client].core;

	return lk__wait_queue_open(core, core->links[0],
	                           lk__name_new(LK_KIND_LOCK, name, strlen(name)),
	                           lk__wait_queue_new(lease_ms, fixed));
}

/* ---- Calls -------------------------------------------------------------------------------- */

struct lk__op *vq_op(int client, struct lk__wait_queue *queue)
{
	struct lk__op *op = calloc(1, sizeof(*op));

	ck_assert_int_lt(vq.client[client].op_count, VQ_OPS);
	vq.client[client].ops[vq.client[client].op_count++] = op;
	op->queue = queue;
	op->owner = OWNER;
	op->handle = queue;
	op->reports_loss = true;
	return op;
}

static struct lk__op *acquire(int client, struct lk__wait_queue *queue, uint64_t owner, bool tries)
{
	struct lk__op *op = vq_op(client, queue);

	op->owner = owner;
	op->only_try = tries;
	op->spare_ticket = malloc(sizeof(*op->spare_ticket));
	op->spare_hold = malloc(sizeof(*op->spare_hold));
	op->spare_legs = lk__legs_new((unsigned)vq.servers);
	lk__core_acquire(&vq.client[client].core, vq.now_ns, op);
	return op;
}

struct lk__op *vq_acquire_of(int client, struct lk__wait_queue *queue, uint64_t owner)
{
	return acquire(client, queue, owner, false);
}

struct lk__op *vq_acquire(int client)
{
	return acquire(client, vq.client[client].queue, OWNER, false);
}

struct lk__op *vq_try(int client)
{
	return acquire(client, vq.client[client].queue, OWNER, true);
}

struct lk__op *vq_release_of(int client, struct lk__wait_queue *queue, uint64_t owner)
{
	struct lk__op *op = vq_op(client, queue);

	op->owner = owner;
	lk__core_release(&vq.client[client].core, vq.now_ns, op);
	return op;
}

struct lk__op *vq_release(int client)
{
	return vq_release_of(client, vq.client[client].queue, OWNER);
}

struct lk__op *vq_extend(int client, int64_t lease_ms)
{
	struct lk__op *op = vq_op(client, vq.client[client].queue);

	op->lease_ms = lease_ms;
	lk__core_extend(&vq.client[client].core, vq.now_ns, op);
	return op;
}

void vq_give_up(int client, struct lk__op *op, lk_err why)
{
	lk__core_give_up(&vq.client[client].core, vq.now_ns, op, why);
}

struct lk__hold *vq_hold(int client)
{
	return lk__core_hold(vq.client[client].queue->name, OWNER);
}

lk_state vq_state(int client)
{
	const struct lk__hold *hold = vq_hold(client);

	return hold ? lk__hold_state(hold, vq.now_ns) : LK_STATE_NONE;
}

void vq_done(const struct lk__op *op, lk_err err)
{
	ck_assert_msg(op->done, "not done, expected %s", lk_err_name(err));
	ck_assert_msg(op->why.err == err, "%s (%s), expected %s", lk_err_name(op->why.err),
	              op->why.text, lk_err_name(err));
}

void vq_waits(const struct lk__op *op)
{
	ck_assert_msg(!op->done, "done with %s (%s)", lk_err_name(op->why.err), op->why.text);
}

struct lk__ticket *vq_leg(int client, int server)
{
	const struct lk__ticket *ticket = vq.client[client].queue->ticket;

	ck_assert_msg(ticket && ticket->legs->leg[server], "no leg");
	return ticket->legs->leg[server];
}

/* ---- Servers ------------------------------------------------------------------------------ */

void vq_down(int server)
{
	vq.server[server].is_down = true;
	for (int i = 0; i < vq.clients; i++)
		if (vq.client[i].links[server].is_up)
			vq_cut(i, server, false);
}

void vq_up(int server)
{
	vq.server[server].is_down = false;
	for (int i = 0; i < vq.clients; i++)
		vq_join(i, server);
}

void vq_restart_empty(int server)
{
	struct vq_server *one = &vq.server[server];

	vq_down(server);
	while (one->late_count)
		lk__buf_fini(&one->late[--one->late_count]);
	lua_store_text(one->store, "FLUSHALL", NULL);
	lua_store_restart(one->store);
	new_process(one, server);
	lua_store_process(one->store)->flushed = false;
	lua_store_load_scripts(one->store);
	vq_up(server);
}

const char *vq_value(int server)
{
	return lua_store_text(vq.server[server].store, "GET", "lk:{name}", NULL);
}

int vq_waiting(int server)
{
	return atoi(lua_store_text(vq.server[server].store, "ZCARD", "lk:{name}:q", NULL));
}

/* ---- The network -------------------------------------------------------------------------- */

static struct vq_link *link_of(int client, int server)
{
	return &vq.client[client].links[server];
}

bool vq_send(int client, int server)
{
	struct vq_link *link = link_of(client, server);
	struct lk__core *core = &vq.client[client].core;
	struct lk__request request;
	struct vq_call *call;

	if (!link->is_up || vq.client[client].is_stopped || link->call_count == VQ_CALLS)
		return false;
	call = &link->calls[link->call_count];
	*call = (struct vq_call){.request = lk__core_next_request(core, &link->session, vq.now_ns)};
	if (!call->request)
		return false;
	lk__core_request(call->request, &request);
	ck_assert(lk__codec_request(&call->bytes, &vq.client[client].space, &request));
	vq.runs[call->request->kind]++;
	link->call_count++;
	return true;
}

bool vq_execute(int client, int server)
{
	struct vq_link *link = link_of(client, server);
	int i = 0;

	while (i < link->call_count && link->calls[i].executed)
		i++;
	if (i == link->call_count)
		return false;
	link->calls[i].executed = true;
	lua_store_run(vq.server[server].store, link->calls[i].bytes.data, link->calls[i].bytes.len,
	              &link->calls[i].reply);
	return true;
}

static void answer(int client, struct vq_call *call)
{
	struct lk__core *core = &vq.client[client].core;
	struct lk__resp *resp = lua_store_parse(&call->reply);
	struct lk__answer decoded;
	struct lk__why why;

	if (lk__codec_unknown_script(resp)) {
		lk__core_resend(core, call->request);
	} else {
		lk__codec_answer(resp, "the server", &decoded, &why);
		lk__core_answer(core, vq.now_ns, call->request, &decoded);
	}
	lk__resp_free(resp);
	lk__buf_fini(&call->bytes);
	lk__buf_fini(&call->reply);
}

bool vq_reply(int client, int server)
{
	struct vq_link *link = link_of(client, server);
	struct vq_call call = link->calls[0];

	if (!link->call_count || !call.executed || vq.client[client].is_stopped)
		return false;
	memmove(&link->calls[0], &link->calls[1],
	        sizeof(link->calls[0]) * (size_t)--link->call_count);
	answer(client, &call);
	vq_check();
	return true;
}

bool vq_hear(int client, int server)
{
	struct vq_link *link = link_of(client, server);
	struct lk__message message;
	char text[sizeof(link->messages[0])];

	if (!link->message_count || vq.client[client].is_stopped)
		return false;
	memcpy(text, link->messages[0], sizeof(text));
	memmove(link->messages[0], link->messages[1],
	        sizeof(link->messages[0]) * (size_t)--link->message_count);
	ck_assert_msg(lk__codec_message(&vq.client[client].space, text, strlen(text), &message),
	              "no message of the protocol: %s", text);
	message.from = &link->session;
	lk__core_message(&vq.client[client].core, vq.now_ns, &message);
	vq_check();
	return true;
}

bool vq_run_late(int server)
{
	struct vq_server *one = &vq.server[server];
	struct lk__buf reply = {0};

	if (!one->late_count)
		return false;
	lua_store_run(one->store, one->late[0].data, one->late[0].len, &reply);
	lk__buf_fini(&reply);
	lk__buf_fini(&one->late[0]);
	memmove(&one->late[0], &one->late[1], sizeof(one->late[0]) * (size_t)--one->late_count);
	return true;
}

void vq_cut(int client, int server, bool late)
{
	const struct lk__why why = {.err = LK_ECONN, .text = "the link is down"};
	struct vq_server *one = &vq.server[server];
	struct vq_link *link = link_of(client, server);

	for (int i = 0; i < link->call_count && late; i++) {
		if (link->calls[i].executed || one->late_count == VQ_CALLS)
			continue;
		one->late[one->late_count++] = link->calls[i].bytes;
		link->calls[i].bytes = (struct lk__buf){0};
	}
	free_calls(link);
	link->message_count = 0;
	link->is_up = false;
	lk__core_link_down(&vq.client[client].core, &link->session, vq.now_ns, &why, 0);
}

void vq_join(int client, int server)
{
	struct vq_link *link = link_of(client, server);

	if (link->is_up || vq.server[server].is_down)
		return;
	link->is_up = true;
	link_up(vq.server[server].store, &vq.client[client].space, &vq.client[client].core,
	        &link->session, vq.now_ns);
}

void vq_refuse(int client, int server, const char *error)
{
	struct vq_link *link = link_of(client, server);
	struct vq_call *call = &link->calls[0];
	char text[200];
	int len = snprintf(text, sizeof(text), "-%s\r\n", error);

	if (!link->call_count)
		ck_assert(vq_send(client, server));
	ck_assert(!call->executed);
	call->executed = true;
	call->reply.data = strdup(text);
	call->reply.len = (size_t)len;
	call->reply.cap = (size_t)len + 1;
	vq_reply(client, server);
}

/* ---- The network, whole ------------------------------------------------------------------- */

static void take_out(struct vq_client *client)
{
	struct lk__hold *hold;

	while (lk__core_next_done(&client->core))
		;
	while ((hold = lk__core_next_lost(&client->core)))
		lk__core_loss_reported(hold);
}

void vq_check(void)
{
	int valid = 0;

	for (int i = 0; i < vq.clients; i++) {
		const struct lk__hold *hold = vq.client[i].core.all_holds;
		for (; hold; hold = hold->next) {
			if (hold->name != vq.client[i].queue->name ||
			    !lk__hold_left_ns(hold, vq.now_ns))
				continue;
			valid++;
			ck_assert_msg(hold->fence >= vq.fence, "a fence goes back");
			vq.holds += hold->fence > vq.fence;
			vq.fence = hold->fence;
		}
	}
	ck_assert_msg(valid <= 1, "%d valid holds", valid);
}

static bool move(int client, int server)
{
	bool moved = false;

	while (vq_send(client, server))
		moved = true;
	while (vq_execute(client, server))
		moved = true;
	while (vq_reply(client, server))
		moved = true;
	while (vq_hear(client, server))
		moved = true;
	return moved;
}

void vq_settle(void)
{
	bool busy = true;
	int runs = 0;

	while (busy) {
		busy = false;
		ck_assert_msg(++runs < RUNS_MAX, "the clients do not come to rest");
		for (int i = 0; i < vq.clients; i++) {
			if (vq.client[i].is_stopped)
				continue;
			lk__core_tick(&vq.client[i].core, vq.now_ns);
			for (int j = 0; j < vq.servers; j++)
				busy |= move(i, j);
			take_out(&vq.client[i]);
		}
	}
	vq_check();
}

/* When the next timer is due, or the next deadline of a call. */
static int64_t due_ns(const struct vq_client *client)
{
	const struct lk__timer *op = lk__heap_first(&client->core.op_timers);
	int64_t due = lk__core_due(&client->core);

	return op && op->due_ns < due ? op->due_ns : due;
}

void vq_pass(int64_t ms)
{
	int64_t end_ns = vq.now_ns + ms * VQ_MS;
	int runs = 0;

	for (;;) {
		int64_t next_ns = end_ns;
		vq_settle();
		for (int i = 0; i < vq.clients; i++)
			if (!vq.client[i].is_stopped && due_ns(&vq.client[i]) < next_ns)
				next_ns = due_ns(&vq.client[i]);
		if (vq.now_ns >= end_ns)
			return;
		runs = next_ns > vq.now_ns ? 0 : runs + 1;
		ck_assert_msg(runs < RUNS_MAX, "a timer stays due");
		vq_set_time(next_ns > vq.now_ns ? next_ns : vq.now_ns);
	}
}
