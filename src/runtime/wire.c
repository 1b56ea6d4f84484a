/* SPDX-License-Identifier: MIT
 * The wire between threads and the server.  Any thread that has something to send writes what is in
 * line; one thread that waits for a reply reads for all and hands that duty on when its own reply
 * has come, to the thread whose reply is next or to the background thread.  Alone, a caller does
 * its own I/O. */
#include "client.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define REPLIES_MAX 64 /* taken at once */
#define HEIRS_MAX 16   /* requests whose askers are thought of as the next to read */
#define PATIENT_NS (20 * LK__MS)

/* ---- The pair ----------------------------------------------------------------------------- */

void lk__pair_use(struct lk__pair *pair)
{
	pair->users++;
}

void lk__pair_leave(struct lk__pair *pair)
{
	if (--pair->users || !pair->broken)
		return;
	pair->ops->close(pair->peer);
	lk__buf_fini(&pair->out);
	lk__buf_fini(&pair->messages_out);
	free(pair);
}

/* Have a thread look at its state again. */
static void wake(struct lk_client *client, struct lk__sleeper *sleeper)
{
	if (sleeper->reading)
		lk__wake_notify(&client->reader_wake);
	if (sleeper == client->listener)
		lk__wake_notify(&client->listener_wake);
	if (sleeper->parked)
		lk__park_wake(&sleeper->park, &client->wakes);
	sleeper->parked = false;
}

static void unlist(struct lk_client *client, struct lk__sleeper *sleeper)
{
	sleeper->listed = false;
	if (sleeper->prev)
		sleeper->prev->next = sleeper->next;
	else
		client->sleepers = sleeper->next;
	if (sleeper->next)
		sleeper->next->prev = sleeper->prev;
}

/* Its wait is done.  Who sleeps need not come for the mutex, which all who are woken with it would
 * want, too: we leave the call in its place. */
static void let_go(struct lk_client *client, struct lk__sleeper *sleeper)
{
	struct lk__handle *handle = sleeper->waiter.handle;

	if (!sleeper->parked || !lk__park_claim(&sleeper->park)) {
		wake(client, sleeper);
		return;
	}
	unlist(client, sleeper);
	client->calls_inside--;
	if (!--handle->calls_inside && handle->closing)
		pthread_cond_broadcast(&client->quiet_cond);
	lk__park_dismiss(&sleeper->park, &client->wakes);
}

void lk__client_unlock(struct lk_client *client)
{
	lk__wakes_unlock(&client->wakes, &client->mutex);
}

void lk__client_wait_quiet(struct lk_client *client, int64_t ns)
{
	lk__wakes_now(&client->wakes);
	lk__cond_wait(&client->quiet_cond, &client->mutex, ns);
}

void lk__wire_broken(struct lk_client *client, struct lk__pair *pair, const struct lk__why *why)
{
	int64_t now_ns = lk__now_ns();

	if (pair->broken)
		return;
	pair->broken = true;
	client->pair = NULL;
	client->need_reader = client->callers_listen = false;
	pair->ops->shutdown(pair->peer);
	/* Before the core hears of it: it may free what its requests stand in. */
	pair->sent = NULL;
	pair->sent_end = &pair->sent;
	lk__core_link_down(&client->core, now_ns, why);
	lk__session_down(&client->session, now_ns, lk__core_random(&client->core));
	lk__wake_notify(&client->reader_wake);
	if (client->listener)
		lk__wake_notify(&client->listener_wake);
	lk__wake_notify(&client->loop_wake);
	lk__pair_leave(pair);
}

void lk__wire_up(struct lk_client *client, struct lk__pair *pair)
{
	int64_t now_ns = lk__now_ns();

	client->pair = pair;
	lk__session_up(&client->session, now_ns);
	client->introduce_ns = 0;
	lk__core_link_up(&client->core, now_ns);
}

int64_t lk__wire_oldest_ns(const struct lk_client *client)
{
	const struct lk__pair *pair = client->pair;

	return pair && pair->sent ? pair->sent->sent_ns : LK__NEVER;
}

void lk__wire_overdue(struct lk_client *client)
{
	struct lk__why why;

	lk__why_set(&why, LK_EUNKNOWN, "%s: no answer within %lld ms", client->target.text,
	            (long long)(client->target.command_timeout_ns / LK__MS));
	lk__wire_broken(client, client->pair, &why);
}

/* When the oldest request becomes overdue.  A thread that reads sees to that itself. */
static int64_t overdue_at(const struct lk_client *client)
{
	return lk__session_overdue_ns(&client->session, lk__wire_oldest_ns(client));
}

/* ---- Waking ------------------------------------------------------------------------------- */

void lk__wire_settle(struct lk_client *client)
{
	struct lk__waiter *waiter;
	int64_t due_ns = lk__loop_due(client);

	while ((waiter = lk__core_next_done(&client->core))) {
		if (waiter->resumes)
			wake(client, (struct lk__sleeper *)waiter);
		else
			let_go(client, (struct lk__sleeper *)waiter);
	}
	if (client->core.lost)
		pthread_cond_signal(&client->notify_cond);
	if (client->core.closing)
		pthread_cond_broadcast(&client->quiet_cond);
	if (client->pair && lk__channels_ready(&client->core.channels))
		lk__wake_notify(&client->loop_wake); /* it alone writes there */
	/* The timer is only ever moved forward: the loop sets it anew when it has fired. */
	if (due_ns < client->armed_ns) {
		lk__loop_arm(client, due_ns);
		if (!client->timed)
			lk__wake_notify(&client->loop_wake);
	}
}

void lk__wire_poke(struct lk_client *client, const void *handle)
{
	struct lk__sleeper *sleeper;

	for (sleeper = client->sleepers; sleeper; sleeper = sleeper->next)
		if (!handle || sleeper->waiter.handle == handle)
			wake(client, sleeper);
}

/* Somebody must read what is under way: best the one whose reply comes next, who gets it without
 * being woken for it.  Whoever is awake sees to it by itself before it sleeps or goes. */
static void pass_reading(struct lk_client *client)
{
	struct lk__pair *pair = client->pair;
	const struct lk__pending *pending;
	int looked_at = 0;

	if (!pair || !pair->sent || pair->reading || client->need_reader || client->heir)
		return;
	for (pending = pair->sent; pending && looked_at < HEIRS_MAX; pending = pending->next) {
		struct lk__waiter *waiter = lk__core_asker(pending);
		struct lk__sleeper *sleeper = (struct lk__sleeper *)waiter;
		looked_at++;
		if (!sleeper || !sleeper->listed || waiter->done ||
		    !lk__waiter_expects_response(waiter))
			continue;
		if (sleeper->parked || sleeper == client->listener) {
			client->heir = sleeper;
			wake(client, sleeper);
		}
		return;
	}
	client->need_reader = true;
	lk__wake_notify(&client->loop_wake);
}

/* ---- Out ---------------------------------------------------------------------------------- */

static void append_sent(struct lk__pair *pair, struct lk__pending *pending)
{
	pending->next = NULL;
	*pair->sent_end = pending;
	pair->sent_end = &pending->next;
}

static void refuse_request(struct lk_client *client, struct lk__pending *pending)
{
	const struct lk__answer answer = {
		.kind = LK__FAILED, .err = LK_ENOMEM, .passes = true, .text = "out of memory"};

	lk__core_answer(&client->core, lk__now_ns(), pending, &answer);
}

/* Write the commands in line into the pair's buffer.  False when there is nothing to send. */
static bool fill(struct lk_client *client, struct lk__pair *pair)
{
	int64_t now_ns = lk__now_ns();
	struct lk__pending *pending;

	while ((pending = lk__core_next_request(&client->core, now_ns))) {
		struct lk__request request;
		lk__core_request(pending, &request);
		if (pair->ops->encode(pair->peer, &request, &pair->out))
			append_sent(pair, pending);
		else
			refuse_request(client, pending);
	}
	return pair->out.len > 0;
}

/* The socket was full: what it did not take goes first when the loop finds room. */
static bool put_back(struct lk__pair *pair, const char *bytes, size_t len)
{
	char *data = malloc(len + pair->out.len);

	if (!data)
		return false;
	memcpy(data, bytes, len);
	if (pair->out.len)
		memcpy(data + len, pair->out.data, pair->out.len);
	free(pair->out.data);
	pair->out = (struct lk__buf){data, len + pair->out.len, len + pair->out.len};
	pair->stuck = true;
	return true;
}

/* Write the pair's buffer with the mutex given up. */
static void write_out(struct lk_client *client, struct lk__pair *pair)
{
	struct lk__buf buf = pair->out;
	struct lk__why why;
	int64_t taken;
	size_t done = 0;

	pair->out = (struct lk__buf){0}; /* others fill another one meanwhile */
	pair->writing = true;
	pair->stuck = false;
	lk__client_unlock(client);
	do {
		taken = pair->ops->write(pair->peer, LK__RESPONSES, buf.data + done, buf.len - done,
		                         &why);
		if (taken > 0)
			done += (size_t)taken;
	} while (taken > 0 && done < buf.len);
	pthread_mutex_lock(&client->mutex);
	pair->writing = false;
	if (taken == 0 && !put_back(pair, buf.data + done, buf.len - done)) {
		lk__why_set(&why, LK_ENOMEM, "%s: out of memory", client->target.text);
		taken = -1;
	}
	if (pair->stuck)
		lk__wake_notify(&client->loop_wake);
	if (pair->out.data) {
		lk__buf_fini(&buf);
	} else {
		buf.len = 0;
		pair->out = buf;
	}
	if (taken < 0)
		lk__wire_broken(client, pair, &why);
}

void lk__wire_flush(struct lk_client *client)
{
	struct lk__pair *pair = client->pair;

	while (pair && !pair->broken && !pair->writing && fill(client, pair)) {
		bool stuck;
		lk__pair_use(pair);
		write_out(client, pair);
		stuck = pair->stuck;
		lk__pair_leave(pair);
		if (stuck)
			break;
		pair = client->pair;
	}
	lk__wire_settle(client);
}

/* ---- In ----------------------------------------------------------------------------------- */

static void deliver(struct lk_client *client, struct lk__pair *pair, void *reply)
{
	struct lk__pending *pending = pair->sent;
	struct lk__request question;
	struct lk__answer answer;
	struct lk__why why;
	bool asked, known;

	if (!pending) {
		lk__why_set(&why, LK_ESERVER, "%s: answered what was not asked",
		            client->target.text);
		pair->ops->discard(reply);
		lk__wire_broken(client, pair, &why);
		return;
	}
	pair->sent = pending->next;
	if (!pair->sent)
		pair->sent_end = &pair->sent;
	pending->next = NULL;
	asked = lk__is_question(pending->kind);
	if (asked)
		lk__core_request(pending, &question);
	known = pair->ops->answer(pair->peer, reply, asked ? &question : NULL,
	                          lk__core_into(pending), &answer, &why);
	if (!known && !pending->by_text)
		lk__core_resend(&client->core, pending);
	else
		lk__core_answer(&client->core, lk__now_ns(), pending, &answer);
}

/* The next reply is the sleeper's own, and nothing else ends its wait, or not often. */
static bool is_patient(const struct lk__pair *pair, const struct lk__sleeper *sleeper,
                       int64_t deadline_ns)
{
	return sleeper && !sleeper->impatient && pair->peer->can_wait &&
	       lk__core_asker(pair->sent) == &sleeper->waiter &&
	       deadline_ns - lk__now_ns() >= PATIENT_NS && lk__waiter_is_patient(&sleeper->waiter);
}

static int64_t read_when_ready(struct lk_client *client, struct lk__pair *pair, int64_t deadline_ns,
                               struct lk__why *why)
{
	int ready =
		lk__poll2(pair->ops->fd(pair->peer, LK__RESPONSES), POLLIN,
	                  client->reader_wake.read_fd, deadline_ns == LK__NEVER ? -1 : deadline_ns);

	if (ready & 2)
		lk__wake_drain(&client->reader_wake);
	return ready & 1 ? pair->ops->read(pair->peer, LK__RESPONSES, false, why) : 0;
}

void lk__wire_read(struct lk_client *client, struct lk__pair *pair, struct lk__sleeper *sleeper,
                   int64_t deadline_ns)
{
	const bool patient = is_patient(pair, sleeper, deadline_ns);
	int64_t due_ns = overdue_at(client);
	void *replies[REPLIES_MAX];
	struct lk__why why;
	lk_err err = LK_OK;
	int64_t got = 0;
	size_t count;

	if (due_ns < deadline_ns)
		deadline_ns = due_ns;
	pair->reading = true;
	if (sleeper)
		sleeper->reading = true;
	client->need_reader = false;
	lk__pair_use(pair);
	lk__client_unlock(client);
	got = patient ? pair->ops->read(pair->peer, LK__RESPONSES, true, &why)
	              : read_when_ready(client, pair, deadline_ns, &why);
	do {
		count = 0;
		if (got && !err)
			count = pair->ops->parse(pair->peer, LK__RESPONSES, replies, REPLIES_MAX,
			                         &err, &why);
		pthread_mutex_lock(&client->mutex);
		if (sleeper)
			sleeper->reading = false; /* it is awake */
		for (size_t i = 0; i < count; i++) {
			if (pair->broken)
				pair->ops->discard(replies[i]);
			else
				deliver(client, pair, replies[i]);
		}
		if (count < REPLIES_MAX)
			break;
		lk__client_unlock(client);
	} while (true);
	if (sleeper && !got)
		sleeper->impatient = true;
	pair->reading = false;
	if (got < 0 || err)
		lk__wire_broken(client, pair, &why);
	if (overdue_at(client) <= lk__now_ns())
		lk__wire_overdue(client);
	lk__pair_leave(pair);
	lk__wire_settle(client);
}

/* ---- Waiting ------------------------------------------------------------------------------ */

void lk__wire_finish(struct lk_client *client)
{
	lk__wire_flush(client);
	pass_reading(client);
}

void lk__wire_wait(struct lk_client *client, struct lk__sleeper *sleeper, int64_t deadline_ns)
{
	const bool in_place = sleeper->waiter.where == LK__IN_PLACE;
	struct lk__pair *pair;
	int64_t now_ns;

	sleeper->next = client->sleepers;
	sleeper->prev = NULL;
	if (sleeper->next)
		sleeper->next->prev = sleeper;
	client->sleepers = sleeper;
	sleeper->listed = true;
	while (!sleeper->waiter.done) {
		lk__wire_flush(client);
		now_ns = lk__now_ns();
		if (client->heir == sleeper)
			client->heir = NULL;
		if (sleeper->waiter.done || deadline_ns <= now_ns)
			break;
		if (in_place && sleeper->waiter.where == LK__FOR_LEAVE)
			break; /* cancelled: its caller sets another limit */
		pair = client->pair;
		if (pair && !pair->reading && pair->sent && !client->heir &&
		    lk__waiter_expects_response(&sleeper->waiter)) {
			lk__wire_read(client, pair, sleeper, deadline_ns);
			continue;
		}
		pass_reading(client);
		if (!lk__messages_listen(client, sleeper, now_ns, deadline_ns)) {
			sleeper->parked = true;
			sleeper->gone = !lk__park_wait(
				&sleeper->park, &client->mutex, &client->wakes,
				deadline_ns == LK__NEVER ? -1 : deadline_ns - now_ns);
			if (sleeper->gone)
				return;
			sleeper->parked = false;
		}
	}
	unlist(client, sleeper);
	if (client->heir == sleeper)
		client->heir = NULL;
	lk__wire_finish(client);
}
