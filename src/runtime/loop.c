/* SPDX-License-Identifier: MIT
 * The background thread: messages, timers, renewals, pings, reconnecting; and replies that no
 * caller waits for.  It waits in poll() alone, so an idle client costs nothing. */
#include "client.h"

#include "local/local.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef POLLRDHUP
#define POLLRDHUP POLLIN
#endif

/* ---- Connecting --------------------------------------------------------------------------- */

lk_err lk__loop_dial(struct lk_client *client, struct lk__pair **result, struct lk__why *why)
{
	int64_t deadline_ns = lk__now_ns() + client->target.connect_timeout_ns;
	struct lk__pair *pair = calloc(1, sizeof(*pair));
	struct lk__target target = client->target;
	lk_err err = LK_OK;

	if (!pair)
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	if (target.local) {
		if (client->start_local)
			err = lk__local_ensure(client->local_path, deadline_ns, why);
		target.socket_path = client->local_path;
		snprintf(target.text, sizeof(target.text), "local:");
	}
	if (!err)
		err = client->store->ops->dial(client->store, 0, &target, deadline_ns,
		                               client->connect_cancel.read_fd, &pair->peer, why);
	if (err) {
		free(pair);
		return err;
	}
	pair->ops = client->store->ops;
	pair->users = 1;
	pair->sent_end = &pair->sent;
	*result = pair;
	return LK_OK;
}

static void *connector(void *arg)
{
	struct lk_client *client = arg;
	struct lk__pair *pair = NULL;
	struct lk__why why = {0};
	lk_err err = lk__loop_dial(client, &pair, &why);

	pthread_mutex_lock(&client->mutex);
	client->new_pair = pair;
	client->connect_why = why;
	client->connect_why.err = err;
	client->connected = true;
	lk__wake_notify(&client->loop_wake);
	lk__client_unlock(client);
	return NULL;
}

static void dial_failed(struct lk_client *client, lk_err err)
{
	lk__session_dial_failed(&client->session, lk__now_ns(), err,
	                        lk__core_random(&client->core));
}

/* The dialling thread has ended: take its result. */
static void connector_ended(struct lk_client *client)
{
	struct lk__pair *pair = client->new_pair;

	lk__client_unlock(client);
	pthread_join(client->connector, NULL);
	if (pair)
		lk__log(client, LK_LOG_INFO, "%s: connected", client->target.text);
	else
		lk__log(client, LK_LOG_WARN, "cannot connect: %s", client->connect_why.text);
	pthread_mutex_lock(&client->mutex);
	client->connecting = client->connected = false;
	client->new_pair = NULL;
	if (pair) {
		lk__wire_up(client, pair);
	} else {
		client->core.link_why = client->connect_why;
		dial_failed(client, client->connect_why.err);
	}
}

/* Start the thread that dials. */
static void start_dial(struct lk_client *client)
{
	if (lk__session_report_loss(&client->session)) {
		struct lk__why why = client->core.link_why;
		lk__client_unlock(client);
		lk__log(client, LK_LOG_WARN, "connection lost: %s", why.text);
		pthread_mutex_lock(&client->mutex);
	}
	/* Nobody who is idle starts a server that somebody stopped. */
	client->start_local = lk__core_busy(&client->core) || client->core.questions;
	client->connecting = true;
	if (!lk__thread_start(&client->connector, "lk-connect", connector, client)) {
		client->connecting = false;
		dial_failed(client, LK_ESYSTEM);
	}
}

/* ---- What the session asks for ------------------------------------------------------------- */

static void ping(struct lk_client *client)
{
	struct lk__pair *pair = client->pair;

	if (!pair->sent)
		lk__ask_detached(client, lk__question_new(LK__PING, LK_KIND_NONE, NULL, 0));
	if (lk__channels_ping(&client->core.channels) &&
	    !pair->ops->ping(pair->peer, &pair->messages_out))
		lk__channels_ponged(&client->core.channels); /* without any the link breaks */
}

static void silent(struct lk_client *client)
{
	struct lk__why why;

	lk__why_set(&why, LK_EUNKNOWN, "%s: messages: no answer to PING", client->target.text);
	lk__wire_broken(client, client->pair, &why);
}

/* Carry out what is due.  Gives the mutex up meanwhile.  _locked */
static void mind_session(struct lk_client *client)
{
	enum lk__duty duty;

	if (client->connecting && client->connected)
		connector_ended(client);
	while ((duty = lk__session_next(&client->session, lk__now_ns(),
	                                lk__core_busy(&client->core),
	                                lk__wire_oldest_ns(client)))) {
		if (duty == LK__DUTY_DIAL)
			start_dial(client);
		else if (duty == LK__DUTY_PING)
			ping(client);
		else if (duty == LK__DUTY_SILENT)
			silent(client);
		else
			lk__wire_overdue(client);
	}
}

/* ---- The loop ----------------------------------------------------------------------------- */

int64_t lk__loop_due(const struct lk_client *client)
{
	/* A caller that reads sees for itself that a reply is overdue. */
	int64_t oldest_ns = client->need_reader ? lk__wire_oldest_ns(client) : LK__NEVER;
	int64_t due_ns = lk__core_due(&client->core);
	int64_t session_ns =
		lk__session_due(&client->session, lk__core_busy(&client->core), oldest_ns);

	if (session_ns < due_ns)
		due_ns = session_ns;
	/* Who neither holds nor waits is told nothing that could not wait. */
	if (client->callers_listen && !client->listener && client->linger_ns < due_ns &&
	    lk__core_busy(&client->core))
		due_ns = client->linger_ns;
	return due_ns;
}

void lk__loop_arm(struct lk_client *client, int64_t due_ns)
{
	client->armed_ns = due_ns;
	client->timed = lk__timer_set(client->timer_fd, due_ns == LK__NEVER ? 0
	                                                : due_ns > 0        ? due_ns
	                                                                    : 1);
}

/* Condition variables and poll() do not count the time that the machine is suspended; deadlines do.
 * After it every sleeper looks at the clock. */
static void mind_suspend(struct lk_client *client, int64_t now_ns)
{
	struct timespec awake;

	clock_gettime(CLOCK_MONOTONIC, &awake);
	if (!lk__suspend_noticed(&client->suspended_ns, now_ns,
	                         awake.tv_sec * 1000 * LK__MS + awake.tv_nsec))
		return;
	lk__wire_poke(client, NULL);
	pthread_cond_broadcast(&client->quiet_cond);
}

static void do_what_is_due(struct lk_client *client)
{
	int64_t now_ns = lk__now_ns();

	mind_suspend(client, now_ns);
	mind_session(client);
	lk__core_tick(&client->core, now_ns);
	if (client->core.all_tickets)
		lk__client_introduce(client, now_ns);
	if (client->callers_listen && !client->listener && client->linger_ns <= now_ns)
		client->callers_listen = false;
	lk__messages_flush(client);
	lk__wire_flush(client);
	if (client->pair && client->pair->sent && !client->pair->reading && !client->heir)
		client->need_reader = true;
}

/* Sleep until there is something to read, to write or to do. */
static void wait_for_events(struct lk_client *client)
{
	struct lk__pair *pair = client->pair;
	int64_t due_ns = lk__loop_due(client), left_ms = -1;
	struct pollfd fds[4] = {
		{.fd = client->loop_wake.read_fd, .events = POLLIN},
		{.fd = client->timer_fd, .events = POLLIN},
		{.fd = pair ? pair->ops->fd(pair->peer, LK__MESSAGES) : -1,
	         .events = client->callers_listen ? 0 : POLLIN},
		{.fd = pair ? pair->ops->fd(pair->peer, LK__RESPONSES) : -1, .events = POLLRDHUP},
	};

	if (pair && pair->messages_out.len)
		fds[2].events |= POLLOUT;
	else if (client->callers_listen)
		fds[2].fd = -1;
	if (pair && client->need_reader)
		fds[3].events |= POLLIN;
	if (pair && pair->stuck)
		fds[3].events |= POLLOUT;
	/* A timer that is too early is left as it is: to be woken once for nothing costs less than
	 * to set it at each message.  Where there is none, or it would not be set, poll() has to
	 * count.
	 */
	if (due_ns < client->armed_ns || !client->timed)
		lk__loop_arm(client, due_ns);
	if (!client->timed && due_ns != LK__NEVER) {
		left_ms = (due_ns - lk__now_ns()) / LK__MS + 1;
		left_ms = left_ms < 0 ? 0 : left_ms > 1000000 ? 1000000 : left_ms;
	}
	if (pair)
		lk__pair_use(pair);
	lk__client_unlock(client);
	poll(fds, 4, (int)left_ms);
	if (fds[0].revents)
		lk__wake_drain(&client->loop_wake);
	if (fds[1].revents)
		lk__timer_drain(client->timer_fd);
	pthread_mutex_lock(&client->mutex);
	if (fds[1].revents)
		client->armed_ns = LK__NEVER; /* what is due is looked at next, and the timer set */
	if (!pair)
		return;
	if (fds[2].revents && !pair->broken && !pair->hearing && !client->callers_listen)
		lk__messages_read(client, pair);
	if (fds[3].revents && !pair->broken && !pair->reading)
		lk__wire_read(client, pair, NULL, lk__now_ns());
	lk__pair_leave(pair);
}

static void *run(void *arg)
{
	struct lk_client *client = arg;

	pthread_mutex_lock(&client->mutex);
	while (!client->stop) {
		do_what_is_due(client);
		wait_for_events(client);
	}
	lk__client_unlock(client);
	return NULL;
}

bool lk__loop_start(struct lk_client *client)
{
	client->armed_ns = LK__NEVER;
	client->timed = client->timer_fd >= 0;
	return lk__thread_start(&client->loop, "lk-loop", run, client);
}

void lk__loop_stop(struct lk_client *client)
{
	bool connecting;

	pthread_mutex_lock(&client->mutex);
	client->stop = true;
	lk__client_unlock(client);
	lk__wake_notify(&client->loop_wake);
	pthread_join(client->loop, NULL);
	connecting = client->connecting;
	if (connecting) {
		lk__wake_notify(&client->connect_cancel);
		pthread_join(client->connector, NULL);
	}
	if (client->new_pair) {
		client->new_pair->broken = true;
		lk__pair_leave(client->new_pair);
	}
}
