/* SPDX-License-Identifier: MIT
 * The choice of the thread that reads the responses of a link: leader/followers.
 *
 * One thread reads for all.  It is a thread whose own response is in flight, so a single caller
 * does its own I/O.  When its response has arrived, it passes the reading to the thread with the
 * next response, or to the background thread if there is none.
 *
 * Invariant: once every thread sleeps, there is a reader while a request is in flight.  reading,
 * next and is_loop are accessed under the mutex.  Every thread that goes to sleep or leaves its
 * call has called lk__reader_pass() since it last released the mutex, or has woken the loop, which
 * calls lk__reader_take(); and after that
 *
 *   - a thread reads (connection->reading), and calls lk__reader_pass() when it is done; or
 *   - the thread of a call was woken to read (next), and checks before it sleeps again; if it
 *     leaves instead, it clears next and passes the reading on; or
 *   - a thread that expects a response is awake, and checks before it sleeps; or
 *   - the loop reads (is_loop), since it was woken after is_loop was set.
 *
 * Only one thread reads at a time: reading is set under the mutex before the first read and cleared
 * under it after the last one.
 *
 * A call on a quorum has its responses on several links: poller.c chooses the thread that reads all
 * of them, and is_loop is set while a link is up.  On a peer with one stream for both sides a
 * message may come at any time: the loop reads it, always.
 *
 * (Schmidt, O'Ryan, Kircher, Pyarali: Leader/Followers, 2000.) */
#include "client.h"

#define REPLIES_MAX 64   /* parsed at once */
#define LOOKED_AT_MAX 16 /* requests whose waiters may become the next reader */
#define PATIENT_NS (20 * LK__MS)

/* ---- Reading ------------------------------------------------------------------------------ */

/* The request is the oldest in flight again. */
static void put_back(struct lk__connection *connection, struct lk__pending *pending)
{
	pending->next = connection->sent;
	if (!connection->sent)
		connection->sent_end = &pending->next;
	connection->sent = pending;
}

/* This is the reply to ASKING, sent ahead of the request.  Without that right the server redirects
 * the request back: keep the reason. */
static void take_ahead(struct lk__connection *connection, void *reply)
{
	struct lk__answer answer;

	connection->ops->answer(connection->peer, reply, NULL, NULL, &answer, &connection->refusal);
	if (answer.err != LK_EAUTH)
		connection->refusal.err = LK_OK;
}

static void blame_refusal(struct lk__connection *connection, struct lk__answer *answer)
{
	if (connection->refusal.err && (answer->kind == LK__MOVED || answer->kind == LK__ASKED))
		*answer = (struct lk__answer){.kind = LK__FAILED,
		                              .err = connection->refusal.err,
		                              .text = connection->refusal.text};
	connection->refusal.err = LK_OK;
}

static void deliver(struct lk__link *link, struct lk__connection *connection, void *reply)
{
	struct lk_client *client = link->client;
	struct lk__pending *pending = lk__connection_take_sent(connection);
	struct lk__request query;
	struct lk__answer answer;
	struct lk__why why;
	bool asked, known;

	if (!pending) {
		lk__why_set(&why, LK_ESERVER, "%s: response without a request", connection->text);
		connection->ops->discard(reply);
		lk__link_broken(link, connection, &why);
		return;
	}
	if (pending->ahead) {
		pending->ahead = false;
		put_back(connection, pending);
		take_ahead(connection, reply);
		return;
	}
	asked = lk__is_query(pending->kind);
	if (asked)
		lk__core_request(pending, &query);
	known = connection->ops->answer(connection->peer, reply, asked ? &query : NULL,
	                                lk__core_into(pending), &answer, &why);
	blame_refusal(connection, &answer);
	if (!known && !pending->by_text)
		lk__core_resend(&client->core, pending);
	else if (answer.kind == LK__MOVED || answer.kind == LK__ASKED)
		lk__cluster_redirect(link, pending, answer.kind == LK__ASKED, answer.text);
	else
		lk__core_answer(&client->core, lk__now_ns(), pending, &answer);
	if (client->core.topology)
		lk__cluster_refresh(client);
}

/* May it block in read()?  The next response is the call's own, and hardly anything else ends its
 * wait. */
static bool is_patient(const struct lk__connection *connection, const struct lk__call *call,
                       int64_t deadline_ns)
{
	return call && !call->impatient && connection->peer->can_wait &&
	       lk__core_asker(connection->sent) == &call->op &&
	       deadline_ns - lk__now_ns() >= PATIENT_NS && lk__op_is_patient(&call->op);
}

static int64_t read_when_ready(struct lk__link *link, struct lk__connection *connection,
                               int64_t deadline_ns, struct lk__why *why)
{
	int ready =
		lk__poll2(connection->ops->fd(connection->peer, LK__RESPONSES), POLLIN,
	                  link->reader.wake.read_fd, deadline_ns == LK__NEVER ? -1 : deadline_ns);

	if (ready & 2)
		lk__wake_drain(&link->reader.wake);
	if (!(ready & 1))
		return 0;
	return connection->ops->read(connection->peer, LK__RESPONSES, false, why);
}

/* Parse and deliver the bytes that were read.  Returns with the mutex held. */
static lk_err take(struct lk__link *link, struct lk__connection *connection, bool got,
                   struct lk__call *call, struct lk__why *why)
{
	struct lk_client *client = link->client;
	void *replies[REPLIES_MAX];
	lk_err err = LK_OK;
	size_t count;

	if (connection->ops->next) {
		pthread_mutex_lock(&client->mutex);
		if (!connection->broken)
			lk__stream_turn(link);
		return LK_OK;
	}
	for (;;) {
		count = 0;
		if (got && !err)
			count = connection->ops->parse(connection->peer, LK__RESPONSES, replies,
			                               REPLIES_MAX, &err, why);
		pthread_mutex_lock(&client->mutex);
		if (call)
			call->reading = false; /* it is awake */
		for (size_t i = 0; i < count; i++) {
			if (connection->broken)
				connection->ops->discard(replies[i]);
			else
				deliver(link, connection, replies[i]);
		}
		if (count < REPLIES_MAX)
			return err;
		lk__client_unlock(client);
	}
}

void lk__reader_read(struct lk__link *link, struct lk__connection *connection,
                     struct lk__call *call, int64_t deadline_ns)
{
	const bool patient = is_patient(connection, call, deadline_ns);
	const bool is_ready = lk__client_loop_reads(link->client); /* the loop has polled */
	int64_t due_ns = lk__link_overdue_ns(link);
	struct lk__why why;
	int64_t got;
	lk_err err;

	if (due_ns < deadline_ns)
		deadline_ns = due_ns;
	connection->reading = true;
	if (call)
		call->reading = true;
	link->reader.is_loop = lk__client_loop_reads(link->client);
	lk__connection_use(connection);
	lk__client_unlock(link->client);
	if (patient || is_ready)
		got = connection->ops->read(connection->peer, LK__RESPONSES, patient, &why);
	else
		got = read_when_ready(link, connection, deadline_ns, &why);
	err = take(link, connection, got != 0, call, &why);
	if (call && !got)
		call->impatient = true;
	connection->reading = false;
	if (got < 0 || err)
		lk__link_broken(link, connection, &why);
	if (lk__link_overdue_ns(link) <= lk__now_ns())
		lk__link_overdue(link);
	lk__connection_leave(connection);
	lk__client_settle(link->client);
}

/* ---- The next reader ---------------------------------------------------------------------- */

bool lk__reader_is_free(const struct lk__link *link)
{
	const struct lk__connection *connection = link->connection;

	return connection && connection->sent && !connection->reading;
}

bool lk__reader_is_mine(const struct lk__link *link, const struct lk__call *call)
{
	return lk__reader_is_free(link) && !link->reader.next && lk__op_expects_response(&call->op);
}

static void pass(struct lk__link *link)
{
	const struct lk__pending *pending;
	int looked_at = 0;

	if (!lk__reader_is_free(link) || link->reader.is_loop || link->reader.next)
		return;
	for (pending = link->connection->sent; pending && looked_at < LOOKED_AT_MAX;
	     pending = pending->next) {
		struct lk__op *waiter = lk__core_asker(pending);
		struct lk__call *call = (struct lk__call *)waiter;
		looked_at++;
		if (!call || !call->listed || waiter->done || call->link != link ||
		    lk__op_link(waiter) != link || !lk__op_expects_response(waiter))
			continue;
		if (call->parked || call == link->listener.call) {
			link->reader.next = call;
			lk__call_wake(link->client, call);
		}
		return;
	}
	link->reader.is_loop = true;
	lk__wake_notify(&link->client->loop.wake);
}

void lk__reader_pass(struct lk_client *client)
{
	for (unsigned i = 0; i < client->link_count; i++)
		pass(client->links[i]);
}

void lk__reader_take(struct lk_client *client)
{
	for (unsigned i = 0; i < client->link_count; i++) {
		struct lk__link *link = client->links[i];
		if (lk__reader_is_free(link) && !link->reader.next)
			link->reader.is_loop = true;
	}
}
