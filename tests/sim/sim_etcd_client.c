/* SPDX-License-Identifier: MIT
 * A client's session with etcd: what src/etcd/etcd_store.c and peer.c do with sockets, here over
 * letters. */
#include "sim.h"

#include "etcd/h2.h"
#include "etcd/status.h"
#include "store.h"

#include <stdlib.h>
#include <string.h>

#define PING_NS (10 * SIM_S) /* as in src/etcd/h2.c */

struct sim_etcd_client *sim_etcd_of(const struct sim_client *client)
{
	return &client->sim->etcd.clients[client->slot];
}

static struct sim_etcd_link *link_of(const struct sim_client *client)
{
	return client->lanes[0].link ? client->lanes[0].link->etcd : NULL;
}

static void break_link(struct sim_client *client, bool leaves, lk_err err)
{
	struct sim_etcd_client *own = sim_etcd_of(client);

	if (own->is_broken)
		return;
	own->is_broken = true;
	own->leaves = leaves;
	own->err = err;
}

/* ---- What the session sends --------------------------------------------------------------- */

static bool call(void *arg, uint32_t id, enum lk__etcd_method method, const void *message,
                 size_t len)
{
	struct sim_client *client = arg;
	struct sim_etcd_link *link = link_of(client);
	bool is_stream = method == LK__ETCD_CALL_KEEP_ALIVE;
	struct sim_letter *letter;

	if (!link || sim_etcd_of(client)->is_broken)
		return true;
	if (link->waiting_count == SIM_ETCD_CALLS)
		abort();
	letter = sim_etcd_send(client, is_stream ? SIM_LETTER_KEEP_ALIVE : SIM_LETTER_CALL, message,
	                       len);
	letter->id = id;
	letter->method = method;
	link->waiting[link->waiting_count++] = (struct sim_etcd_waiting){id, sim_local(client)};
	return true;
}

static bool watch(void *arg, const void *message, size_t len)
{
	struct sim_client *client = arg;

	if (link_of(client) && !sim_etcd_of(client)->is_broken)
		sim_etcd_send(client, SIM_LETTER_WATCH, message, len);
	return true;
}

/* ---- Life --------------------------------------------------------------------------------- */

void sim_etcd_start(struct sim_client *client)
{
	struct sim *sim = client->sim;
	struct sim_etcd_client *own = sim_etcd_of(client);
	const struct lk__etcd_wire wire = {client, call, watch};
	struct sim_random random =
		sim_random_of(sim->plan->seed, 16, (uint64_t)(client->slot * 1000 + client->life));

	if (!sim->plan->etcd)
		return;
	memset(own, 0, sizeof(*own));
	client->lanes[0].session.fences = LK__ETCD_FENCES;
	lk__endpoints_init(&own->endpoints, (unsigned)sim->etcd.count,
	                   sim_draw(&random, UINT64_MAX));
	if (!lk__etcd_session_init(&own->session, "lk", client->space.client_id, &wire))
		abort();
}

void sim_etcd_free(struct sim_client *client)
{
	if (client->sim->plan->etcd)
		lk__etcd_session_fini(&sim_etcd_of(client)->session);
}

void sim_etcd_end(struct sim_client *client)
{
	if (!client->sim->plan->etcd || !link_of(client))
		return;
	sim_etcd_of(client)->is_ending = true;
	lk__etcd_session_end(&sim_etcd_of(client)->session);
}

/* ---- Dials -------------------------------------------------------------------------------- */

/* What lk__etcd_connect() asks: does the member have a leader? */
static bool has_leader(struct sim *sim, uint64_t connection)
{
	struct sim_etcd *etcd = &sim->etcd;

	etcd->is_led = false;
	etcd->status_call = em_call(etcd->model, connection, "/etcdserverpb.Maintenance/Status",
	                            &(struct em_metadata){0}, (struct lk__bytes){0});
	sim_etcd_pump(sim);
	return etcd->is_led;
}

/* Members are tried one after the other; one that is silent costs a part of the time. */
void sim_etcd_probe(struct sim_client *client)
{
	struct sim *sim = client->sim;
	struct sim_etcd_client *own = sim_etcd_of(client);
	struct sim_lane *lane = client->lane;
	int64_t slice_ns = lane->session.connect_timeout_ns / sim->etcd.count;

	for (int left = sim->etcd.count; left; left--) {
		int64_t now_ns = sim_local(client), due_ns = lk__endpoints_due_ns(&own->endpoints);
		int place = lk__endpoints_next(&own->endpoints, due_ns > now_ns ? due_ns : now_ns);
		uint64_t connection = em_connect(sim->etcd.model, place);
		bool is_silent = connection && (!sim_etcd_reaches(client, place) ||
		                                sim->etcd.members[place].awake_ns > sim->now_ns);

		if (connection && !is_silent && has_leader(sim, connection)) {
			lane->dialled = sim_link_new(client, place);
			lane->dialled->etcd = sim_etcd_link_new();
			lane->dialled->etcd->connection = connection;
			lane->found = (struct lk__epoch){.len = 1, .text = "1"};
			lane->dial_err = LK_OK;
			return;
		}
		if (connection)
			em_disconnect(sim->etcd.model, connection);
		lane->dial_ns += is_silent ? slice_ns : 2 * sim_delay(client);
		lk__endpoints_failed(&own->endpoints, now_ns);
	}
}

void sim_etcd_dial_failed(struct sim_client *client)
{
	if (client->sim->plan->etcd && client->lane->dialled)
		lk__endpoints_failed(&sim_etcd_of(client)->endpoints, sim_local(client));
}

void sim_etcd_up(struct sim_client *client)
{
	struct sim_etcd_client *own = sim_etcd_of(client);
	int64_t now_ns = sim_local(client);

	if (!client->sim->plan->etcd)
		return;
	link_of(client)->heard_ns = link_of(client)->pinged_ns = now_ns;
	lk__endpoints_up(&own->endpoints, now_ns);
	lk__etcd_session_up(&own->session, now_ns);
	lk__etcd_session_tick(&own->session, now_ns);
}

void sim_etcd_down(struct sim_client *client)
{
	struct sim_etcd_client *own = sim_etcd_of(client);

	if (!client->sim->plan->etcd)
		return;
	lk__endpoints_down(&own->endpoints, sim_local(client), !own->is_broken || own->leaves);
	own->sent_count = 0;
	own->is_broken = true; /* what it sends now is lost */
	lk__etcd_session_down(&own->session);
	own->is_broken = false;
}

/* ---- What comes --------------------------------------------------------------------------- */

static bool forget(struct sim_etcd_link *link, uint32_t id)
{
	for (int i = 0; i < link->waiting_count; i++) {
		if (link->waiting[i].id != id)
			continue;
		memmove(&link->waiting[i], &link->waiting[i + 1],
		        sizeof(link->waiting[i]) * (size_t)(--link->waiting_count - i));
		return true;
	}
	return false;
}

static void answered(struct sim_client *client, const struct sim_letter *letter)
{
	struct sim_etcd_client *own = sim_etcd_of(client);
	const struct lk__h2_event event = {
		.kind = LK__H2_ANSWER,
		.fate = LK__H2_ANSWERED,
		.status = letter->has_message ? 0 : letter->status,
		.message = {letter->bytes, letter->len},
		.text = letter->text,
	};
	struct lk__etcd_verdict verdict = lk__etcd_judge(&event);
	struct lk__etcd_outcome outcome;

	if (!forget(link_of(client), letter->id))
		return;
	if (!lk__etcd_outcome_of(&event, &outcome)) {
		break_link(client, verdict.elsewhere, LK_EUNKNOWN);
		return;
	}
	if (verdict.meaning == LK__ETCD_LOGIN || verdict.elsewhere) {
		break_link(client, verdict.elsewhere, LK_ECONN);
		return;
	}
	if (!letter->has_ended) /* a keep-alive's stream */
		sim_etcd_send(client, SIM_LETTER_CANCEL, NULL, 0)->id = letter->id;
	lk__etcd_session_outcome(&own->session, sim_local(client), letter->id, &outcome);
}

static void watched(struct sim_client *client, const struct sim_letter *letter)
{
	struct sim_etcd_client *own = sim_etcd_of(client);

	if (letter->has_message &&
	    !lk__etcd_session_watched(&own->session, sim_local(client), letter->bytes, letter->len))
		sim_fail(client->sim, PROMISE_SCRIPT, "a client cannot parse an event");
	if (letter->has_ended)
		break_link(client, true, LK_ECONN);
}

void sim_etcd_heard(struct sim_client *client, const struct sim_letter *letter)
{
	if (sim_etcd_of(client)->is_broken)
		return;
	if (letter->kind == SIM_LETTER_ANSWER)
		answered(client, letter);
	else if (letter->kind == SIM_LETTER_WATCHED)
		watched(client, letter);
	else if (letter->kind == SIM_LETTER_CLOSED)
		break_link(client, true, LK_ECONN);
}

void sim_etcd_flush(struct sim_client *client)
{
	struct sim_etcd_client *own = sim_etcd_of(client);
	struct lk__pending *pending;
	struct lk__request request;
	struct lk__channel *channel;
	bool on;

	while (link_of(client) &&
	       (channel = lk__channels_next(&client->lane->session.channels, &on)))
		if (!lk__etcd_session_subscribe(&own->session, channel->topic, on))
			abort();
	while (link_of(client) &&
	       (pending = lk__core_next_request(&client->core, &client->lane->session,
	                                        sim_local(client)))) {
		sim_check_sent(client, pending);
		if (own->sent_count == SIM_ETCD_SENT)
			abort();
		own->sent[own->sent_count++] = pending;
		lk__core_request(pending, &request);
		if (request.kind == LK__STEP)
			sim_etcd_note_step(client, pending->latch);
		sim_trace(client->sim, client, "sends request %d for ticket %.4s",
		          (int)request.kind, request.ticket.nonce);
		if (!lk__etcd_session_request(&own->session, sim_local(client), &request))
			abort();
	}
}

/* What has come of a latch's topic: the same as the runtime does. */
static bool deliver_events(struct sim_client *client)
{
	struct lk__channels *channels = &client->lane->session.channels;
	int64_t now_ns = sim_local(client);
	struct lk__event event;
	bool delivered = false;

	while (link_of(client) && lk__etcd_session_event(&sim_etcd_of(client)->session, &event)) {
		delivered = true;
		if (event.kind == LK__EVENT_PUBLISHED)
			lk__channels_published(channels, now_ns, event.topic, event.topic_len,
			                       &event.message);
		else if (event.kind == LK__EVENT_CONFIRMED)
			lk__channels_confirmed(channels, now_ns, event.subscribed, event.topic,
			                       event.topic_len);
		else
			lk__channels_refused(channels, now_ns, &event.why);
	}
	return delivered;
}

static bool deliver(struct sim_client *client)
{
	struct sim_etcd_client *own = sim_etcd_of(client);
	int64_t now_ns = sim_local(client);
	struct lk__message message;
	struct lk__answer answer;
	bool delivered = deliver_events(client);

	while (link_of(client) && lk__etcd_session_message(&own->session, &message)) {
		sim_trace(client->sim, client, "hears a message %d about ticket %.4s, fence %llu",
		          (int)message.kind, message.nonce, (unsigned long long)message.fence);
		message.from = &client->lane->session;
		lk__core_message(&client->core, now_ns, &message);
		delivered = true;
	}
	while (link_of(client) && lk__etcd_session_answer(&own->session, &answer)) {
		struct lk__pending *pending = own->sent[0];
		if (!own->sent_count)
			abort();
		memmove(&own->sent[0], &own->sent[1],
		        sizeof(own->sent[0]) * (size_t)--own->sent_count);
		sim_trace(client->sim, client, "has answer %d to request %d: fence %llu, rank %lld",
		          (int)answer.kind, (int)pending->kind, (unsigned long long)answer.fence,
		          (long long)answer.rank);
		lk__etcd_session_fill(&own->session, lk__core_into(pending), &answer);
		lk__core_answer(&client->core, now_ns, pending, &answer);
		delivered = true;
	}
	return delivered;
}

/* ---- Time --------------------------------------------------------------------------------- */

static int64_t overdue_ns(const struct sim_etcd_link *link)
{
	return link->waiting_count ? link->waiting[0].sent_ns + SIM_TIMEOUT_NS : LK__NEVER;
}

static int64_t ping_due_ns(const struct sim_etcd_link *link)
{
	return link->pinged_ns > link->heard_ns ? link->pinged_ns + SIM_TIMEOUT_NS
	                                        : link->heard_ns + PING_NS;
}

static void mind_link(struct sim_client *client)
{
	struct sim_etcd_link *link = link_of(client);
	int64_t now_ns = sim_local(client);

	if (!link)
		return;
	if (overdue_ns(link) <= now_ns)
		break_link(client, true, LK_EUNKNOWN);
	if (ping_due_ns(link) > now_ns)
		return;
	if (link->pinged_ns > link->heard_ns)
		break_link(client, true, LK_ECONN);
	else
		sim_etcd_send(client, SIM_LETTER_PING, NULL, 0);
	link->pinged_ns = now_ns;
}

bool sim_etcd_turn(struct sim_client *client)
{
	struct sim_etcd_client *own = sim_etcd_of(client);
	bool delivered;

	if (!client->sim->plan->etcd || !client->alive)
		return false;
	client->lane = client->lanes;
	mind_link(client);
	lk__etcd_session_tick(&own->session, sim_local(client));
	delivered = deliver(client);
	if (own->is_broken && link_of(client)) {
		sim_client_unlink(client, own->err);
		delivered = true;
	}
	return delivered;
}

int64_t sim_etcd_due(const struct sim_client *client)
{
	const struct sim_etcd_link *link = link_of(client);
	int64_t due_ns, session_ns;

	if (!client->sim->plan->etcd)
		return LK__NEVER;
	due_ns = link ? overdue_ns(link) : LK__NEVER;
	if (link && ping_due_ns(link) < due_ns)
		due_ns = ping_due_ns(link);
	session_ns = lk__etcd_session_due_ns(&sim_etcd_of(client)->session);
	return session_ns < due_ns ? session_ns : due_ns;
}

int64_t sim_etcd_oldest_ns(const struct sim_client *client)
{
	const struct sim_etcd_client *own = sim_etcd_of(client);

	return own->sent_count ? own->sent[0]->sent_ns : LK__NEVER;
}
