/* SPDX-License-Identifier: MIT
 * The clients of etcd in the model: their calls, their connections, and what may happen next. */
#include "etcd.h"

#include "arena.h"
#include "etcd/grpc.h"
#include "etcd/h2.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START_NS (INT64_C(999000) * ETCD_MS)
#define ROUNDS_MAX 1000
#define OWNER 7

static const char *const paths[] = {
	[LK__ETCD_CALL_TXN] = "/etcdserverpb.KV/Txn",
	[LK__ETCD_CALL_GRANT] = "/etcdserverpb.Lease/LeaseGrant",
	[LK__ETCD_CALL_REVOKE] = "/etcdserverpb.Lease/LeaseRevoke",
	[LK__ETCD_CALL_KEEP_ALIVE] = "/etcdserverpb.Lease/LeaseKeepAlive",
};

/* The same in all states: the arena's address. */
static struct model_etcd *world_of_session;

/* ---- Letters ------------------------------------------------------------------------------ */

static struct etcd_letter *add_letter(struct etcd_queue *queue, const void *bytes, size_t len)
{
	struct etcd_letter *letter = &queue->letters[queue->count++];

	if (queue->count > ETCD_LETTERS)
		abort();
	memset(letter, 0, sizeof(*letter));
	if (len && !lk__grpc_append(&letter->bytes, bytes, len))
		abort();
	return letter;
}

static struct etcd_letter take_letter(struct etcd_queue *queue)
{
	struct etcd_letter letter = queue->letters[0];

	memmove(&queue->letters[0], &queue->letters[1], sizeof(letter) * (size_t)--queue->count);
	memset(&queue->letters[queue->count], 0, sizeof(letter));
	return letter;
}

static void empty(struct etcd_queue *queue)
{
	while (queue->count) {
		struct etcd_letter letter = take_letter(queue);
		lk__buf_fini(&letter.bytes);
	}
}

static bool call(void *arg, uint32_t id, enum lk__etcd_method method, const void *message,
                 size_t len)
{
	struct etcd_client *client = arg;
	struct etcd_letter *letter;

	if (!client->end.connection || client->is_broken)
		return true;
	letter = add_letter(&client->end.out, message, len);
	letter->id = id;
	letter->method = (uint8_t)method;
	client->end.calls[client->end.call_count].id = id;
	client->end.calls[client->end.call_count].call = 0;
	client->end.calls[client->end.call_count++].sent_ns = world_of_session->world->now_ns;
	if (client->end.call_count == ETCD_LETTERS)
		abort();
	return true;
}

static bool watch(void *arg, const void *message, size_t len)
{
	struct etcd_client *client = arg;

	if (client->end.connection && !client->is_broken)
		add_letter(&client->end.out, message, len);
	return true;
}

/* ---- Connections -------------------------------------------------------------------------- */

void etcd_drop_end(struct model_etcd *etcd, struct etcd_end *end)
{
	if (end->connection)
		em_disconnect(etcd->model, end->connection);
	empty(&end->out);
	memset(end, 0, sizeof(*end));
}

void etcd_went_down(struct model_etcd *etcd, struct etcd_client *client, bool keeps)
{
	const struct lk__why why = {.err = LK_ECONN, .text = "the link is down"};

	if (!client->end.connection)
		return;
	empty(&client->in);
	etcd_drop_end(etcd, &client->past);
	if (keeps && client->end.out.count) {
		client->past = client->end;
		memset(&client->end, 0, sizeof(client->end));
	} else {
		etcd_drop_end(etcd, &client->end);
	}
	client->sent_count = 0;
	client->is_broken = false;
	lk__etcd_session_down(&client->session);
	lk__core_link_down(&client->core, &client->link, etcd->world->now_ns, &why, 0);
}

void etcd_link_up(struct model_etcd *etcd, struct etcd_client *client, int member)
{
	static const struct lk__epoch epoch = {.len = 1, .text = "1"};
	int64_t now_ns = etcd->world->now_ns;

	client->end.connection = em_connect(etcd->model, member);
	if (!client->end.connection)
		return;
	client->end.member = member;
	lk__etcd_session_up(&client->session, now_ns);
	if (etcd->world->rule == RULE_ETCD_ERA) { /* all connections are of one era */
		client->session.era = 1;
		memcpy(client->session.era_text, "1", sizeof("1"));
	}
	lk__core_memory(&client->core, &client->link, now_ns, &epoch);
	lk__core_link_up(&client->core, &client->link, now_ns);
}

/* ---- What comes --------------------------------------------------------------------------- */

void etcd_pump(struct model_etcd *etcd)
{
	struct em_output output;

	while (em_take(etcd->model, &output)) {
		for (int i = 0; i < ETCD_CLIENTS; i++) {
			struct etcd_end *end = &etcd->clients[i].end;
			uint32_t id = 0;
			struct etcd_letter *letter;
			int at = 0;
			if (!end->connection || end->connection != output.connection)
				continue;
			while (at < end->call_count && end->calls[at].call != output.call)
				at++;
			if (output.call && output.call != end->watch && at == end->call_count)
				continue;
			if (output.call && output.call != end->watch)
				id = end->calls[at].id;
			letter = add_letter(&etcd->clients[i].in, output.message.data,
			                    output.has_message ? output.message.len : 0);
			letter->id = id;
			letter->is_closed = !output.call;
			letter->has_message = output.has_message;
			letter->has_ended = output.has_ended;
			letter->status = output.status;
			snprintf(letter->text, sizeof(letter->text), "%s",
			         output.text ? output.text : "");
		}
	}
}

/* The first letter of that connection arrives. */
void etcd_arrive(struct model_etcd *etcd, struct etcd_end *end)
{
	static const struct em_metadata plain, leads = {.has_leader = true};
	struct etcd_letter letter = take_letter(&end->out);
	struct lk__bytes bytes = {letter.bytes.data, letter.bytes.len};
	uint64_t made = 0;

	if (!letter.id) {
		if (!end->watch)
			end->watch = em_open(etcd->model, end->connection,
			                     "/etcdserverpb.Watch/Watch", &leads);
		em_send(etcd->model, end->watch, bytes);
	} else if (letter.method == LK__ETCD_CALL_KEEP_ALIVE) {
		made = em_open(etcd->model, end->connection, paths[letter.method], &leads);
	} else {
		made = em_call(etcd->model, end->connection, paths[letter.method], &plain, bytes);
	}
	for (int i = 0; i < end->call_count; i++)
		if (letter.id && end->calls[i].id == letter.id)
			end->calls[i].call = made;
	if (letter.method == LK__ETCD_CALL_KEEP_ALIVE && letter.id)
		em_send(etcd->model, made, bytes);
	lk__buf_fini(&letter.bytes);
	em_tick(etcd->model, etcd->world->now_ns);
	etcd_pump(etcd);
}

static void answered(struct model_etcd *etcd, struct etcd_client *client,
                     const struct etcd_letter *letter)
{
	const struct lk__h2_event event = {
		.kind = LK__H2_ANSWER,
		.fate = LK__H2_ANSWERED,
		.status = letter->has_message ? 0 : letter->status,
		.message = {letter->bytes.data, letter->bytes.len},
		.text = letter->text,
	};
	struct lk__etcd_outcome outcome;

	for (int i = 0; i < client->end.call_count; i++) {
		if (client->end.calls[i].id != letter->id)
			continue;
		if (!letter->has_ended)
			em_cancel(etcd->model, client->end.calls[i].call);
		memmove(&client->end.calls[i], &client->end.calls[i + 1],
		        sizeof(client->end.calls[0]) * (size_t)(--client->end.call_count - i));
		memset(&client->end.calls[client->end.call_count], 0, sizeof(client->end.calls[0]));
		if (lk__etcd_outcome_of(&event, &outcome))
			lk__etcd_session_outcome(&client->session, etcd->world->now_ns, letter->id,
			                         &outcome);
		else
			client->is_broken = true;
		return;
	}
}

void etcd_read_letter(struct model_etcd *etcd, struct etcd_client *client)
{
	struct etcd_letter letter = take_letter(&client->in);

	if (letter.is_closed || (!letter.id && letter.has_ended))
		client->is_broken = true;
	else if (letter.id)
		answered(etcd, client, &letter);
	else
		lk__etcd_session_watched(&client->session, etcd->world->now_ns, letter.bytes.data,
		                         letter.bytes.len);
	lk__buf_fini(&letter.bytes);
}

/* ---- Calls -------------------------------------------------------------------------------- */

struct lk__hold *etcd_hold(const struct etcd_client *client)
{
	return client->alive ? lk__core_hold(client->queue->name, OWNER) : NULL;
}

static void free_call(struct etcd_client *client)
{
	free(client->waiter->spare_ticket);
	free(client->waiter->spare_hold);
	free(client->waiter);
	client->waiter = NULL;
}

void etcd_call_of(struct model_etcd *etcd, int index, enum model_verb verb)
{
	struct etcd_client *client = &etcd->clients[index];
	int64_t now_ns = etcd->world->now_ns;
	struct lk__op *op = calloc(1, sizeof(*op));
	const struct lk__hold *hold = etcd_hold(client);

	op->queue = client->queue;
	op->handle = client->queue;
	op->owner = OWNER;
	op->reports_loss = true;
	client->waiter = op;
	client->verb = (uint8_t)verb;
	client->gave_up = false;
	client->was_valid = hold && lk__hold_left_ns(hold, now_ns);
	if (verb == DO_RELEASE) {
		lk__core_release(&client->core, now_ns, op);
		return;
	}
	client->begun++;
	op->only_try = verb == DO_TRY;
	op->spare_ticket = malloc(sizeof(*op->spare_ticket));
	op->spare_hold = malloc(sizeof(*op->spare_hold));
	lk__core_acquire(&client->core, now_ns, op);
}

static void keep(struct model_etcd *etcd, enum promise promise, const char *wrong)
{
	world_keep(etcd->world, promise, wrong);
}

static void done(struct model_etcd *etcd, struct etcd_client *client)
{
	const struct lk__hold *hold = etcd_hold(client);
	lk_err err = client->waiter->why.err;
	const struct promise_causes causes = {
		.success = true,
		.loss = true,
		.silence = etcd->world->faults || etcd->world->stalls || client->gave_up,
		.unsent = etcd->world->faults || etcd->world->stalls,
		.busy = client->verb == DO_TRY,
		.gave_up = client->gave_up ? LK_ETIMEDOUT : LK_OK,
	};

	keep(etcd, PROMISE_RESULT, promise_result(&causes, err));
	if (!err && client->verb != DO_RELEASE) {
		keep(etcd, PROMISE_GRANT, promise_grant(hold, etcd->world->now_ns, 1));
		if (hold && !etcd_is_broken(etcd, hold)) {
			keep(etcd, PROMISE_FENCE, promise_fence(etcd->fence, hold->fence));
			etcd->fence = hold->fence;
		}
	}
	free_call(client);
}

/* ---- After each event --------------------------------------------------------------------- */

static bool send(struct model_etcd *etcd, struct etcd_client *client)
{
	struct lk__pending *pending;
	struct lk__request request;
	bool sent = false;

	while (client->end.connection &&
	       (pending =
	                lk__core_next_request(&client->core, &client->link, etcd->world->now_ns))) {
		if (client->sent_count == ETCD_SENT)
			abort();
		client->sent[client->sent_count++] = pending;
		lk__core_request(pending, &request);
		if (!lk__etcd_session_request(&client->session, etcd->world->now_ns, &request))
			abort();
		sent = true;
	}
	return sent;
}

static bool receive(struct model_etcd *etcd, struct etcd_client *client)
{
	int64_t now_ns = etcd->world->now_ns;
	struct lk__message message;
	struct lk__answer answer;
	bool received = false;

	while (lk__etcd_session_message(&client->session, &message)) {
		message.from = &client->link;
		lk__core_message(&client->core, now_ns, &message);
		received = true;
	}
	while (client->sent_count && lk__etcd_session_answer(&client->session, &answer)) {
		struct lk__pending *pending = client->sent[0];
		memmove(&client->sent[0], &client->sent[1],
		        sizeof(pending) * (size_t)--client->sent_count);
		client->sent[client->sent_count] = NULL;
		lk__core_answer(&client->core, now_ns, pending, &answer);
		received = true;
	}
	return received;
}

void etcd_take_out(struct model_etcd *etcd, struct etcd_client *client)
{
	struct lk__hold *hold;

	while (lk__core_next_done(&client->core))
		if (client->waiter)
			done(etcd, client);
	while ((hold = lk__core_next_lost(&client->core))) {
		client->told = hold->fence;
		lk__core_loss_reported(hold);
	}
}

void etcd_turn(struct model_etcd *etcd, struct etcd_client *client)
{
	int64_t now_ns = etcd->world->now_ns;
	bool busy = true;

	for (int rounds = 0; client->alive && busy; rounds++) {
		if (rounds == ROUNDS_MAX)
			abort();
		if (client->is_broken ||
		    (client->end.call_count &&
		     client->end.calls[0].sent_ns + ETCD_TIMEOUT_MS * ETCD_MS <= now_ns))
			etcd_went_down(etcd, client, false);
		lk__etcd_session_tick(&client->session, now_ns);
		lk__core_tick(&client->core, now_ns);
		busy = send(etcd, client);
		busy |= receive(etcd, client);
		etcd_take_out(etcd, client);
	}
}

void etcd_pass(struct model_etcd *etcd, int64_t ns)
{
	etcd->world->now_ns += ns;
	em_tick(etcd->model, etcd->world->now_ns);
	etcd_pump(etcd);
}

void etcd_deliver(struct model_etcd *etcd)
{
	bool busy = true;

	while (busy) {
		busy = false;
		for (int i = 0; i < ETCD_CLIENTS; i++) {
			struct etcd_client *client = &etcd->clients[i];
			if (!client->alive)
				continue;
			etcd_turn(etcd, client);
			if (client->end.connection && client->end.out.count) {
				etcd_arrive(etcd, &client->end);
				busy = true;
			} else if (client->in.count) {
				etcd_read_letter(etcd, client);
				busy = true;
			}
		}
	}
}

/* ---- The first state ---------------------------------------------------------------------- */

static void start_client(struct model_etcd *etcd, int index)
{
	struct etcd_client *client = &etcd->clients[index];
	const struct lk__etcd_wire wire = {client, call, watch};
	struct lk__core *core = &client->core;

	snprintf(client->id, sizeof(client->id), "%cclient_AAAAAAAAAAAAAA", 'a' + index);
	if (!lk__core_init(core, (uint64_t)index + 1))
		abort();
	core->command_timeout_ns = ETCD_TIMEOUT_MS * ETCD_MS;
	lk__session_init(&client->link, 1000 * ETCD_MS, ETCD_TIMEOUT_MS * ETCD_MS);
	client->link.fences = LK__ETCD_FENCES;
	if (!lk__core_add_session(core, &client->link) ||
	    !lk__etcd_session_init(&client->session, "lk", client->id, &wire))
		abort();
	client->alive = true;
	client->queue =
		lk__wait_queue_open(core, core->links[0],
	                            lk__name_new(LK_KIND_LOCK, MODEL_NAME, sizeof(MODEL_NAME) - 1),
	                            lk__wait_queue_new(MODEL_LEASE_MS, etcd->world->bounds->fixed));
	etcd_link_up(etcd, client, index);
	etcd_deliver(etcd);
	etcd_call_of(etcd, index, DO_ACQUIRE);
	etcd_deliver(etcd);
	etcd_call_of(etcd, index, DO_RELEASE);
	etcd_deliver(etcd);
	client->begun = 0;
}

void etcd_begin_world(struct model_world *world)
{
	const struct em_setup setup = {.members = world->bounds->members,
	                               .is_3_4 = world->rule == RULE_ETCD_OLD};
	struct model_etcd *etcd = (struct model_etcd *)(world + 1);

	world->etcd = world_of_session = etcd;
	world->now_ns = START_NS;
	etcd->world = world;
	etcd->model = em_new(&setup, 1, world->now_ns);
	for (int i = 0; i < ETCD_CLIENTS; i++)
		start_client(etcd, i);
	if (world->wrong)
		abort();
}
