/* SPDX-License-Identifier: MIT
 * Clients of etcd in virtual time: see virtual_etcd.h. */
#include "virtual_etcd.h"

#include "etcd/h2.h"
#include "store.h"
#include "test.h"
#include "virtual_etcd_latch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS_MAX 2000 /* of events at one moment */
#define OWNER 7

struct ve ve;

/* ---- Calls of the session ---- */

static const char *const paths[] = {
	[LK__ETCD_CALL_TXN] = "/etcdserverpb.KV/Txn",
	[LK__ETCD_CALL_GRANT] = "/etcdserverpb.Lease/LeaseGrant",
	[LK__ETCD_CALL_REVOKE] = "/etcdserverpb.Lease/LeaseRevoke",
	[LK__ETCD_CALL_TIME_TO_LIVE] = "/etcdserverpb.Lease/LeaseTimeToLive",
	[LK__ETCD_CALL_KEEP_ALIVE] = "/etcdserverpb.Lease/LeaseKeepAlive",
};

static const struct em_metadata plain, has_leader = {.has_leader = true};

static bool call(void *arg, uint32_t id, enum lk__etcd_method method, const void *message,
                 size_t len)
{
	struct ve_client *client = arg;
	struct lk__bytes bytes = {message, len};
	struct ve_call *made = &client->calls[client->call_count++];

	ck_assert_int_lt(client->call_count, VE_CALLS);
	ck_assert(client->connection);
	*made = (struct ve_call){.id = id, .method = method, .sent_ns = ve.now_ns};
	ve.calls[method]++;
	if (method == LK__ETCD_CALL_KEEP_ALIVE) {
		made->call = em_open(ve.model, client->connection, paths[method], &has_leader);
		em_send(ve.model, made->call, bytes);
	} else {
		made->call = em_call(ve.model, client->connection, paths[method], &plain, bytes);
	}
	return true;
}

static bool watch(void *arg, const void *message, size_t len)
{
	struct ve_client *client = arg;

	if (!client->watch)
		client->watch = em_open(ve.model, client->connection, "/etcdserverpb.Watch/Watch",
		                        &has_leader);
	em_send(ve.model, client->watch, (struct lk__bytes){message, len});
	return true;
}

/* ---- The world ---- */

static void start_client(int number)
{
	struct ve_client *client = &ve.client[number];
	const struct lk__etcd_wire wire = {client, call, watch};

	snprintf(client->id, sizeof(client->id), "%cclient_AAAAAAAAAAAAAA", 'a' + number);
	ck_assert(lk__core_init(&client->core, test_seed() * 100 + (uint64_t)number));
	client->core.command_timeout_ns = VE_TIMEOUT_MS * VE_MS;
	lk__session_init(&client->link, 1000 * VE_MS, VE_TIMEOUT_MS * VE_MS);
	client->link.fences = LK__ETCD_FENCES;
	ck_assert(lk__core_add_session(&client->core, &client->link));
	ck_assert(lk__etcd_session_init(&client->session, "lk", client->id, &wire));
	client->queue = ve_open(number, "name", VE_LEASE_MS, false);
}

void ve_start(const struct em_setup *setup, int clients)
{
	memset(&ve, 0, sizeof(ve));
	ve.now_ns = 100000 * VE_MS;
	ve.owner = OWNER;
	ve.model = em_new(setup, test_seed(), ve.now_ns);
	ve.clients = clients;
	for (int i = 0; i < clients; i++) {
		start_client(i);
		ve_join(i, 0);
	}
	ve_settle();
}

static void count_key(void *arg, const struct lk__etcd_kv *kv)
{
	static const char prefix[] = "lk/L/name/";

	if (kv->key.len > sizeof(prefix) - 1 &&
	    memcmp(kv->key.data, prefix, sizeof(prefix) - 1) == 0)
		++*(int *)arg;
}

int ve_tickets(void)
{
	int count = 0;

	em_each_key(ve.model, count_key, &count);
	return count;
}

static void count_any(void *arg, const struct lk__etcd_kv *kv)
{
	(void)kv;
	++*(int *)arg;
}

int ve_keys(void)
{
	int count = 0;

	em_each_key(ve.model, count_any, &count);
	return count;
}

void ve_end(void)
{
	for (int i = 0; i < ve.clients; i++) {
		struct ve_client *client = &ve.client[i];
		ck_assert_msg(!client->core.all_tickets, "left: tickets of client %d", i);
		ck_assert_msg(!client->core.all_holds, "left: holds of client %d", i);
		ck_assert_msg(!client->session.tickets.count, "left: tickets of session %d", i);
		ck_assert_msg(!client->session.jobs, "left: jobs of session %d", i);
		lk__core_fini(&client->core);
		lk__etcd_session_fini(&client->session);
		for (int j = 0; j < client->op_count; j++) {
			free(client->ops[j]->spare_ticket);
			free(client->ops[j]->spare_queue);
			free(client->ops[j]->spare_hold);
			free(client->ops[j]->spare_step);
			free(client->ops[j]);
		}
	}
	ck_assert_int_eq(ve_tickets(), 0);
	ck_assert_int_eq(ve_permit_tickets(), 0);
	em_free(ve.model);
}

struct lk__wait_queue *ve_open(int client, const char *name, int64_t lease_ms, bool fixed)
{
	struct lk__core *core = &ve.client[client].core;

	return lk__wait_queue_open(core, core->links[0],
	                           lk__name_new(LK_KIND_LOCK, name, strlen(name)),
	                           lk__wait_queue_new(lease_ms, fixed));
}

/* ---- Other programs ---- */

static void do_call(const char *path, const struct lk__pb_writer *writer)
{
	uint64_t connection = em_connect(ve.model, 0);

	ck_assert(connection && !writer->is_full);
	em_call(ve.model, connection, path, &plain, (struct lk__bytes){writer->data, writer->len});
	ve_settle();
	em_disconnect(ve.model, connection);
}

void ve_put(const char *key, const char *value)
{
	char bytes[512];
	struct lk__pb_writer writer;

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_put(&writer, &(struct lk__etcd_put){.key = lk__bytes_of(key),
	                                                 .value = lk__bytes_of(value)});
	do_call("/etcdserverpb.KV/Put", &writer);
}

void ve_delete(const char *key)
{
	char bytes[512];
	struct lk__pb_writer writer;

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_delete(&writer, &(struct lk__etcd_delete){.key = lk__bytes_of(key)});
	do_call("/etcdserverpb.KV/DeleteRange", &writer);
}

void ve_revoke(int64_t lease)
{
	char bytes[64];
	struct lk__pb_writer writer;

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_lease_revoke(&writer, lease);
	do_call("/etcdserverpb.Lease/LeaseRevoke", &writer);
}

/* ---- Calls of the core ---- */

struct lk__op *ve_new_op(int client, struct lk__wait_queue *queue)
{
	struct lk__op *op = calloc(1, sizeof(*op));

	ck_assert_int_lt(ve.client[client].op_count, VE_OPS);
	ve.client[client].ops[ve.client[client].op_count++] = op;
	op->queue = queue;
	op->owner = ve.owner;
	op->handle = queue;
	op->reports_loss = true;
	return op;
}

struct lk__op *ve_acquire_of(int client, struct lk__wait_queue *queue, bool tries)
{
	struct lk__op *op = ve_new_op(client, queue);

	op->only_try = tries;
	op->spare_ticket = malloc(sizeof(*op->spare_ticket));
	op->spare_hold = malloc(sizeof(*op->spare_hold));
	lk__core_acquire(&ve.client[client].core, ve.now_ns, op);
	return op;
}

struct lk__op *ve_acquire(int client)
{
	return ve_acquire_of(client, ve.client[client].queue, false);
}

struct lk__op *ve_try(int client)
{
	return ve_acquire_of(client, ve.client[client].queue, true);
}

struct lk__op *ve_release_of(int client, struct lk__wait_queue *queue)
{
	struct lk__op *op = ve_new_op(client, queue);

	lk__core_release(&ve.client[client].core, ve.now_ns, op);
	return op;
}

struct lk__op *ve_release(int client)
{
	return ve_release_of(client, ve.client[client].queue);
}

struct lk__op *ve_extend(int client, int64_t lease_ms)
{
	struct lk__op *op = ve_new_op(client, ve.client[client].queue);

	op->lease_ms = lease_ms;
	lk__core_extend(&ve.client[client].core, ve.now_ns, op);
	return op;
}

void ve_give_up(int client, struct lk__op *op, lk_err why)
{
	lk__core_give_up(&ve.client[client].core, ve.now_ns, op, why);
}

lk_state ve_state(int client)
{
	const struct lk__hold *hold = lk__core_hold(ve.client[client].queue->name, ve.owner);

	return hold ? lk__hold_state(hold, ve.now_ns) : LK_STATE_NONE;
}

void ve_done(const struct lk__op *op, lk_err err)
{
	ck_assert_msg(op->done, "not done, expected %s", lk_err_name(err));
	ck_assert_msg(op->why.err == err, "%s (%s), expected %s", lk_err_name(op->why.err),
	              op->why.text, lk_err_name(err));
}

void ve_holds(int client)
{
	struct lk__op *op = ve_acquire(client);

	ve_pass(200);
	ve_done(op, LK_OK);
	ck_assert_int_eq(ve_state(client), LK_STATE_HELD);
}

void ve_releases(int client)
{
	struct lk__op *op = ve_release(client);

	ve_pass(200);
	ve_done(op, LK_OK);
}

void ve_begin_waiting(int client, struct lk__op **op)
{
	*op = ve_acquire(client);
	ve_pass(200);
	ve_waits(*op);
}

void ve_waits(const struct lk__op *op)
{
	ck_assert_msg(!op->done, "done with %s (%s)", lk_err_name(op->why.err), op->why.text);
}

/* ---- The network ---- */

static void went_down(struct ve_client *client)
{
	const struct lk__why why = {.err = LK_ECONN, .text = "the link is down"};

	client->connection = client->watch = 0;
	client->call_count = client->sent_count = 0;
	lk__etcd_session_down(&client->session);
	lk__core_link_down(&client->core, &client->link, ve.now_ns, &why, 0);
}

void ve_cut(int client)
{
	if (!ve.client[client].connection)
		return;
	em_disconnect(ve.model, ve.client[client].connection);
	went_down(&ve.client[client]);
}

void ve_join(int client, int member)
{
	static const struct lk__epoch epoch = {.len = 1, .text = "1"};
	struct ve_client *one = &ve.client[client];

	ve_cut(client);
	one->connection = em_connect(ve.model, member);
	if (!one->connection)
		return;
	one->member = member;
	lk__etcd_session_up(&one->session, ve.now_ns);
	lk__core_memory(&one->core, &one->link, ve.now_ns, &epoch);
	lk__core_link_up(&one->core, &one->link, ve.now_ns);
}

static struct ve_client *client_of(uint64_t connection)
{
	for (int i = 0; i < ve.clients; i++)
		if (ve.client[i].connection == connection)
			return &ve.client[i];
	return NULL;
}

static void ended(struct ve_client *client, int at, const struct em_output *output)
{
	struct ve_call made = client->calls[at];
	const struct lk__h2_event event = {
		.kind = LK__H2_ANSWER,
		.fate = LK__H2_ANSWERED,
		.status = output->has_message ? 0 : output->status,
		.message = output->message,
		.text = output->text ? output->text : "",
	};
	struct lk__etcd_outcome outcome;

	memmove(&client->calls[at], &client->calls[at + 1],
	        sizeof(made) * (size_t)(--client->call_count - at));
	if (!lk__etcd_outcome_of(&event, &outcome)) {
		em_disconnect(ve.model, client->connection);
		went_down(client);
		return;
	}
	if (made.method == LK__ETCD_CALL_KEEP_ALIVE && !output->has_ended)
		em_cancel(ve.model, made.call);
	lk__etcd_session_outcome(&client->session, ve.now_ns, made.id, &outcome);
}

/* Is the answer held back? */
static bool keeps(const struct ve_client *client, int at, const struct em_output *output)
{
	if (!ve.holds_back || client->calls[at].method != LK__ETCD_CALL_TXN)
		return false;
	ck_assert_uint_le(output->message.len, sizeof(ve.late_bytes));
	ve.late = *output;
	memcpy(ve.late_bytes, output->message.data, output->message.len);
	ve.late.message.data = ve.late_bytes;
	ve.holds_back = false;
	return true;
}

static void deliver(const struct em_output *output)
{
	struct ve_client *client = client_of(output->connection);

	if (!client || client->is_stopped)
		return; /* what it has not read is lost with it */
	if (!output->call) {
		went_down(client);
	} else if (output->call == client->watch) {
		if (output->has_message)
			ck_assert(lk__etcd_session_watched(&client->session, ve.now_ns,
			                                   output->message.data,
			                                   output->message.len));
		if (output->has_ended)
			went_down(client);
	} else {
		for (int i = 0; i < client->call_count; i++) {
			if (client->calls[i].call == output->call) {
				if (keeps(client, i, output))
					return;
				ended(client, i, output);
				return;
			}
		}
	}
}

void ve_hold_back(void)
{
	ve.holds_back = true;
}

void ve_let_go(void)
{
	deliver(&ve.late);
	ve_settle();
}

/* When the oldest call is overdue. */
static int64_t overdue_ns(const struct ve_client *client)
{
	return client->call_count ? client->calls[0].sent_ns + VE_TIMEOUT_MS * VE_MS : INT64_MAX;
}

static bool send(struct ve_client *client)
{
	struct lk__channel *channel;
	bool sent = false, on;

	while (client->connection && (channel = lk__channels_next(&client->link.channels, &on))) {
		ck_assert(lk__etcd_session_subscribe(&client->session, channel->topic, on));
		sent = true;
	}

	while (client->connection) {
		struct lk__request request;
		struct lk__pending *pending =
			lk__core_next_request(&client->core, &client->link, ve.now_ns);
		if (!pending)
			break;
		ck_assert_int_lt(client->sent_count, VE_CALLS);
		client->sent[client->sent_count++] = pending;
		lk__core_request(pending, &request);
		ck_assert(lk__etcd_session_request(&client->session, ve.now_ns, &request));
		sent = true;
	}
	return sent;
}

static void check(void)
{
	int valid = 0;

	for (int i = 0; i < ve.clients; i++) {
		const struct lk__hold *hold = ve.client[i].core.all_holds;
		for (; hold; hold = hold->next) {
			if (hold->name != ve.client[i].queue->name ||
			    !lk__hold_left_ns(hold, ve.now_ns))
				continue;
			valid++;
			ck_assert_msg(hold->fence >= ve.fence, "a fence goes back");
			ve.holds += hold->fence > ve.fence;
			ve.fence = hold->fence;
		}
	}
	ck_assert_msg(valid <= 1, "%d valid holds", valid);
	if (ve.also)
		ve.also();
}

static bool receive(struct ve_client *client)
{
	struct lk__message message;
	struct lk__answer answer;
	struct lk__event event;
	bool received = false;

	while (lk__etcd_session_event(&client->session, &event)) {
		vel_told(client, &event);
		received = true;
	}

	while (lk__etcd_session_message(&client->session, &message)) {
		message.from = &client->link;
		lk__core_message(&client->core, ve.now_ns, &message);
		check();
		received = true;
	}
	while (lk__etcd_session_answer(&client->session, &answer)) {
		struct lk__pending *pending = client->sent[0];
		ck_assert_int_gt(client->sent_count, 0);
		memmove(&client->sent[0], &client->sent[1],
		        sizeof(pending) * (size_t)--client->sent_count);
		lk__etcd_session_fill(&client->session, lk__core_into(pending), &answer);
		lk__core_answer(&client->core, ve.now_ns, pending, &answer);
		check();
		received = true;
	}
	return received;
}

static void take_out(struct ve_client *client)
{
	struct lk__hold *hold;

	while (lk__core_next_done(&client->core))
		;
	while ((hold = lk__core_next_lost(&client->core)))
		lk__core_loss_reported(hold);
}

void ve_settle(void)
{
	struct em_output output;
	bool busy = true;
	uint32_t calls;
	int runs = 0;

	while (busy) {
		busy = false;
		ck_assert_msg(++runs < RUNS_MAX, "the clients do not come to rest");
		em_tick(ve.model, ve.now_ns);
		while (em_take(ve.model, &output)) {
			deliver(&output);
			busy = true;
		}
		for (int i = 0; i < ve.clients; i++) {
			struct ve_client *client = &ve.client[i];
			if (client->is_stopped)
				continue;
			if (overdue_ns(client) <= ve.now_ns)
				ve_cut(i);
			calls = client->session.last_call;
			lk__etcd_session_tick(&client->session, ve.now_ns);
			lk__core_tick(&client->core, ve.now_ns);
			busy |= send(client);
			busy |= receive(client) || client->session.last_call != calls;
			take_out(client);
		}
	}
	check();
}

static int64_t due_ns(const struct ve_client *client)
{
	const struct lk__timer *op = lk__heap_first(&client->core.op_timers);
	int64_t due = lk__core_due(&client->core);
	int64_t session = lk__etcd_session_due_ns(&client->session);

	if (op && op->due_ns < due)
		due = op->due_ns;
	if (overdue_ns(client) < due)
		due = overdue_ns(client);
	return session < due ? session : due;
}

void ve_pass(int64_t ms)
{
	int64_t end_ns = ve.now_ns + ms * VE_MS;
	int runs = 0;

	for (;;) {
		int64_t next_ns = end_ns;
		ve_settle();
		for (int i = 0; i < ve.clients; i++)
			if (!ve.client[i].is_stopped && due_ns(&ve.client[i]) < next_ns)
				next_ns = due_ns(&ve.client[i]);
		if (em_due_ns(ve.model) < next_ns)
			next_ns = em_due_ns(ve.model);
		if (ve.now_ns >= end_ns)
			return;
		runs = next_ns > ve.now_ns ? 0 : runs + 1;
		ck_assert_msg(runs < RUNS_MAX, "a timer stays due");
		if (next_ns > ve.now_ns)
			ve.now_ns = next_ns;
	}
}
