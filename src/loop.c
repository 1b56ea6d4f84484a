/* SPDX-License-Identifier: MIT
 * The background thread: messages, timers, renewals, pings, reconnecting; and replies that no
 * caller waits for.  It waits in poll() alone, so an idle client costs nothing. */
#include "client.h"

#include "local.h"
#include "redis/connect.h"
#include "redis/dial.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef POLLRDHUP
#define POLLRDHUP POLLIN
#endif

#define BACKOFF_FIRST_MS 20
#define BACKOFF_MAX_MS 500
#define BACKOFF_AUTH_MS 5000 /* wrong credentials do not get better by asking often */
#define SETTLED_NS (1000 * LK__MS)
#define MESSAGES_MAX 64 /* taken at once */
#define SLEEP_MIN_NS (50 * LK__MS)

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
		err = lk__connect(&target, &client->space, deadline_ns,
		                  client->connect_cancel.read_fd, &pair->commands, &pair->messages,
		                  why);
	if (err) {
		free(pair);
		return err;
	}
	lk__conn_be_patient(pair->commands);
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

static void back_off(struct lk_client *client, lk_err err)
{
	int64_t ms = client->backoff_ns / LK__MS * 2;

	if (ms < BACKOFF_FIRST_MS)
		ms = BACKOFF_FIRST_MS;
	if (ms > BACKOFF_MAX_MS)
		ms = err == LK_EAUTH ? BACKOFF_AUTH_MS : BACKOFF_MAX_MS;
	client->backoff_ns = ms * LK__MS;
	/* Clients that lost one server together do not come back together. */
	client->retry_ns = lk__now_ns() + client->backoff_ns / 2 +
	                   (int64_t)(lk__core_random(&client->core) % (uint64_t)(ms * LK__MS / 2));
}

void lk__loop_reconnect(struct lk_client *client, int64_t lived_ns)
{
	if (lived_ns > SETTLED_NS) {
		client->backoff_ns = 0;
		client->retry_ns = 0;
	} else {
		back_off(client, LK_OK);
	}
	lk__wake_notify(&client->loop_wake);
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
		client->told_down = false;
		lk__wire_up(client, pair);
	} else {
		client->core.link_why = client->connect_why;
		back_off(client, client->connect_why.err);
	}
}

static void mind_connection(struct lk_client *client, int64_t now_ns)
{
	if (client->connecting && client->connected)
		connector_ended(client);
	if (client->pair || client->connecting || now_ns < client->retry_ns)
		return;
	if (!client->told_down) {
		struct lk__why why = client->core.link_why;
		client->told_down = true;
		lk__client_unlock(client);
		lk__log(client, LK_LOG_WARN, "connection lost: %s", why.text);
		pthread_mutex_lock(&client->mutex);
	}
	/* Nobody who is idle starts a server that somebody stopped. */
	client->start_local = lk__core_busy(&client->core) || client->calls;
	client->connecting = true;
	if (!lk__thread_start(&client->connector, "lk-connect", connector, client)) {
		client->connecting = false;
		back_off(client, LK_ESYSTEM);
	}
}

/* ---- Pings -------------------------------------------------------------------------------- */

/* When to look whether both connections still lead somewhere: only while somebody waits or holds.
 */
static int64_t ping_due(const struct lk_client *client)
{
	const struct lk__pair *pair = client->pair;

	if (!pair || !lk__core_busy(&client->core))
		return LK__NEVER;
	if (pair->pinged_ns > pair->heard_ns)
		return pair->pinged_ns + client->target.command_timeout_ns;
	return pair->heard_ns + client->ping_ns;
}

static void ping(struct lk_client *client, struct lk__pair *pair, int64_t now_ns)
{
	struct lk__buf buf = {0};
	const char *argv[] = {"PING"};
	struct lk__why why;

	if (pair->pinged_ns > pair->heard_ns) {
		lk__why_set(&why, LK_EUNKNOWN, "%s: messages: no answer to PING",
		            client->target.text);
		lk__wire_broken(client, pair, &why);
		return;
	}
	pair->pinged_ns = now_ns;
	if (!pair->sent && lk__resp_command(&buf, 1, argv, NULL))
		lk__call_background(client, &buf);
	/* The reply to a subscription is as good.  Without any the connection breaks. */
	if (!client->core.channels.sent && !pair->pong_due)
		pair->pong_due = lk__resp_command(&pair->messages_out, 1, argv, NULL);
}

/* ---- Messages ----------------------------------------------------------------------------- */

/* Which channels are wanted, and which no more: into the buffer.  False when out of memory.  Not
 * while a PING has no reply: an error could be that of the one or of the other. */
static bool fill_messages(struct lk_client *client, struct lk__pair *pair)
{
	struct lk__channel *channel;
	bool subscribe;

	while (!pair->pong_due &&
	       (channel = lk__channels_next(&client->core.channels, &subscribe))) {
		const char *argv[] = {subscribe ? "SUBSCRIBE" : "UNSUBSCRIBE", channel->topic};
		if (!lk__resp_command(&pair->messages_out, 2, argv, NULL))
			return false;
	}
	return true;
}

/* Only the loop writes there, so a command that the socket took in part is never cut into. */
static void flush_messages(struct lk_client *client)
{
	struct lk__pair *pair = client->pair;
	struct lk__buf *out;
	struct lk__why why;
	int64_t taken = 0;

	if (!pair)
		return;
	out = &pair->messages_out;
	if (!fill_messages(client, pair)) {
		lk__why_set(&why, LK_ENOMEM, "%s: out of memory", client->target.text);
		lk__wire_broken(client, pair, &why);
		return;
	}
	if (!out->len)
		return;
	lk__pair_use(pair);
	lk__client_unlock(client);
	taken = lk__conn_write(pair->messages, out->data, out->len, &why);
	pthread_mutex_lock(&client->mutex);
	if (taken > 0) {
		out->len -= (size_t)taken;
		memmove(out->data, out->data + taken, out->len);
	}
	if (taken < 0)
		lk__wire_broken(client, pair, &why);
	lk__pair_leave(pair);
}

static void take_payload(struct lk_client *client, const struct lk__resp *channel,
                         const struct lk__resp *payload)
{
	struct lk__message message;

	if (!strcmp(channel->str, client->space.channel)) {
		if (lk__codec_message(&client->space, payload->str, payload->len, &message))
			lk__core_message(&client->core, lk__now_ns(), &message);
	} else if (lk__codec_broadcast(payload->str, payload->len, &message)) {
		lk__channels_published(&client->core.channels, lk__now_ns(), channel->str,
		                       channel->len, &message);
	}
}

static void take_message(struct lk_client *client, struct lk__pair *pair,
                         const struct lk__resp *resp)
{
	const struct lk__resp *kind, *channel, *last;
	struct lk__why why;

	/* A refused PING is an answer, too. */
	if (pair->pong_due && (resp->type != LK__RESP_ARRAY || resp->len == 2)) {
		pair->pong_due = false;
		return;
	}
	if (resp->type == LK__RESP_ERROR && lk__resp_error_passes(resp)) {
		lk__channels_put_off(&client->core.channels, lk__now_ns());
		return;
	}
	if (resp->type == LK__RESP_ERROR) {
		lk__conn_why(&why, lk__resp_error(resp), client->target.text, "SUBSCRIBE: %s",
		             resp->str);
		lk__channels_refused(&client->core.channels, lk__now_ns(), &why);
		return;
	}
	if (resp->type != LK__RESP_ARRAY || resp->len != 3)
		return;
	kind = resp->elements[0];
	channel = resp->elements[1];
	last = resp->elements[2];
	if (kind->type != LK__RESP_STRING || channel->type != LK__RESP_STRING)
		return;
	if (!strcmp(kind->str, "message") && last->type == LK__RESP_STRING)
		take_payload(client, channel, last);
	else if (!strcmp(kind->str, "subscribe") || !strcmp(kind->str, "unsubscribe"))
		lk__channels_confirmed(&client->core.channels, lk__now_ns(), kind->str[0] == 's',
		                       channel->str, channel->len);
}

static void read_messages(struct lk_client *client, struct lk__pair *pair)
{
	struct lk__resp *resps[MESSAGES_MAX];
	struct lk__why why;
	lk_err err = LK_OK;
	int64_t got;
	size_t count;

	lk__pair_use(pair);
	lk__client_unlock(client);
	got = lk__conn_read(pair->messages, &why);
	do {
		count = 0;
		while (count < MESSAGES_MAX && !err) {
			err = lk__resp_next(pair->messages->reader, &resps[count], &why);
			if (err || !resps[count])
				break;
			count++;
		}
		pthread_mutex_lock(&client->mutex);
		for (size_t i = 0; i < count; i++) {
			if (!pair->broken)
				take_message(client, pair, resps[i]);
			lk__resp_free(resps[i]);
		}
		if (count < MESSAGES_MAX)
			break;
		lk__client_unlock(client);
	} while (true);
	if (got > 0)
		pair->heard_ns = lk__now_ns();
	if (got < 0 || err)
		lk__wire_broken(client, pair, &why);
	lk__pair_leave(pair);
}

/* ---- The loop ----------------------------------------------------------------------------- */

int64_t lk__loop_due(const struct lk_client *client)
{
	int64_t due_ns = lk__core_due(&client->core), ping_ns = ping_due(client);

	if (ping_ns < due_ns)
		due_ns = ping_ns;
	if (!client->pair && !client->connecting && client->retry_ns < due_ns)
		due_ns = client->retry_ns;
	if (client->pair && client->pair->sent && client->need_reader) {
		int64_t late_ns = client->pair->sent->sent_ns + client->target.command_timeout_ns;
		if (late_ns < due_ns)
			due_ns = late_ns;
	}
	return due_ns;
}

void lk__loop_arm(struct lk_client *client, int64_t due_ns)
{
	client->armed_ns = due_ns;
	client->timed = lk__timer_set(client->timer_fd, due_ns == LK__NEVER ? 0
	                                                : due_ns > 0        ? due_ns
	                                                                    : 1);
}

/* Condition variables and poll() do not count the time that the machine sleeps; deadlines do. After
 * it whoever waits looks at the clock. */
static void mind_sleep(struct lk_client *client, int64_t now_ns)
{
	struct timespec awake;
	int64_t asleep_ns;

	clock_gettime(CLOCK_MONOTONIC, &awake);
	asleep_ns = now_ns - (awake.tv_sec * 1000 * LK__MS + awake.tv_nsec);
	if (asleep_ns - client->asleep_ns < SLEEP_MIN_NS)
		return;
	client->asleep_ns = asleep_ns;
	lk__wire_poke(client, NULL);
	pthread_cond_broadcast(&client->quiet_cond);
}

static void do_what_is_due(struct lk_client *client)
{
	int64_t now_ns = lk__now_ns();

	mind_sleep(client, now_ns);
	mind_connection(client, now_ns);
	lk__core_tick(&client->core, now_ns);
	if (client->core.all_tickets)
		lk__client_introduce(client, now_ns);
	if (ping_due(client) <= now_ns)
		ping(client, client->pair, now_ns);
	if (client->pair)
		lk__wire_overdue(client, client->pair, now_ns);
	flush_messages(client);
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
		{.fd = pair ? pair->messages->fd : -1, .events = POLLIN},
		{.fd = pair ? pair->commands->fd : -1, .events = POLLRDHUP},
	};

	if (pair && pair->messages_out.len)
		fds[2].events |= POLLOUT;
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
	if (fds[2].revents && !pair->broken)
		read_messages(client, pair);
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
