/* SPDX-License-Identifier: MIT
 * The background thread: messages, timers, renewals, pings, reconnects, on every link; and
 * responses without a waiting caller.  It blocks only in poll(), so an idle client costs
 * nothing. */
#include "client.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifndef POLLRDHUP
#define POLLRDHUP POLLIN
#endif

#define OWN_FDS 2 /* wake, timer */

/* ---- Duties of the sessions ------------------------------------------------------------------ */

static void ping(struct lk__link *link)
{
	struct lk__connection *connection = link->connection;
	struct lk__channels *channels = &link->session.channels;

	if (connection->ops->next) { /* it notices a dead connection itself */
		lk__session_heard(&link->session, lk__now_ns());
		return;
	}
	if (!connection->sent)
		lk__ask_detached(link, lk__query_new(LK__PING, LK_KIND_NONE, NULL, 0));
	if (lk__channels_ping(channels) &&
	    !connection->ops->ping(connection->peer, &connection->messages_out))
		lk__channels_ponged(channels); /* out of memory: unanswered, the link will break */
}

static void silent(struct lk__link *link)
{
	struct lk__why why;

	lk__why_set(&why, LK_EUNKNOWN, "%s: messages: no response to PING", link->connection->text);
	lk__link_broken(link, link->connection, &why);
}

/* Perform the due duties.  Releases the mutex meanwhile.  _locked */
static void mind_session(struct lk__link *link)
{
	enum lk__duty duty;

	lk__dial_take(link);
	while ((duty = lk__session_next(&link->session, lk__now_ns(), lk__link_oldest_ns(link)))) {
		if (duty == LK__DUTY_DIAL)
			lk__dial_start(link);
		else if (duty == LK__DUTY_REFUSE)
			lk__core_link_refused(&link->client->core, &link->session, lk__now_ns());
		else if (duty == LK__DUTY_PING)
			ping(link);
		else if (duty == LK__DUTY_SILENT)
			silent(link);
		else
			lk__link_overdue(link);
	}
}

/* ---- Due times ------------------------------------------------------------------------------ */

static int64_t link_due(const struct lk__link *link)
{
	const struct lk__listener *listener = &link->listener;
	/* A caller that reads checks for overdue responses itself. */
	bool is_loop = link->reader.is_loop && !link->client->poller.is_caller;
	int64_t oldest_ns = is_loop ? lk__link_oldest_ns(link) : LK__NEVER;
	int64_t due_ns = lk__session_due(&link->session, oldest_ns);
	int64_t stream_ns = lk__stream_due_ns(link);

	if (stream_ns < due_ns)
		due_ns = stream_ns;
	/* Without holds and waits, no message is urgent. */
	if (listener->is_caller && !listener->call && listener->linger_ns < due_ns &&
	    link->session.users)
		due_ns = listener->linger_ns;
	return due_ns;
}

int64_t lk__loop_due(const struct lk_client *client)
{
	int64_t due_ns = lk__core_due(&client->core), poller_ns = lk__poller_due_ns(client);

	if (poller_ns < due_ns)
		due_ns = poller_ns;
	for (unsigned i = 0; i < client->link_count; i++) {
		int64_t link_ns = link_due(client->links[i]);
		if (link_ns < due_ns)
			due_ns = link_ns;
	}
	return due_ns;
}

void lk__loop_arm(struct lk_client *client, int64_t due_ns)
{
	client->loop.armed_ns = due_ns;
	client->loop.timed = lk__timer_set(client->loop.timer_fd, due_ns == LK__NEVER ? 0
	                                                          : due_ns > 0        ? due_ns
	                                                                              : 1);
}

/* Condition variables and poll() do not count time while the machine is suspended; deadlines do.
 * After a suspend every waiting thread must check the clock. */
static void mind_suspend(struct lk_client *client, int64_t now_ns)
{
	struct timespec awake;

	clock_gettime(CLOCK_MONOTONIC, &awake);
	if (!lk__suspend_noticed(&client->loop.suspended_ns, now_ns,
	                         awake.tv_sec * 1000 * LK__MS + awake.tv_nsec))
		return;
	lk__client_wake_calls(client, NULL);
	pthread_cond_broadcast(&client->quiet_cond);
}

static void do_what_is_due(struct lk_client *client)
{
	int64_t now_ns = lk__now_ns();

	mind_suspend(client, now_ns);
	for (unsigned i = 0; i < client->link_count; i++)
		mind_session(client->links[i]);
	if (client->sentinels)
		lk__sentinels_mind(client);
	lk__core_tick(&client->core, now_ns);
	lk__client_introduce(client, now_ns);
	for (unsigned i = 0; i < client->link_count; i++) {
		struct lk__listener *listener = &client->links[i]->listener;
		if (listener->is_caller && !listener->call && listener->linger_ns <= now_ns)
			listener->is_caller = false;
		lk__messages_flush(client->links[i]);
	}
	lk__client_flush(client);
	lk__reader_take(client);
}

/* ---- The loop ----------------------------------------------------------------------------- */

/* Keep a timer that is too early: one spurious wake costs less than setting it at each message.
 * Without a usable timer poll() must do: returns its timeout. */
static int arm(struct lk_client *client)
{
	int64_t due_ns = lk__loop_due(client), left_ms;

	if (due_ns < client->loop.armed_ns || !client->loop.timed)
		lk__loop_arm(client, due_ns);
	if (client->loop.timed || due_ns == LK__NEVER)
		return -1;
	left_ms = (due_ns - lk__now_ns()) / LK__MS + 1;
	return left_ms < 0 ? 0 : left_ms > 1000000 ? 1000000 : (int)left_ms;
}

static struct pollfd *fds_of(const struct lk__link *link)
{
	return &link->client->loop.fds[OWN_FDS + link->index * LK__LINK_FDS];
}

/* Set up the poll() entries of a link; keeps its connection until lk__link_serve(). */
static void watch(struct lk__link *link)
{
	struct lk__connection *connection = link->connection;
	const bool reads = link->reader.is_loop && !link->client->poller.is_caller;
	const bool listens = !link->listener.is_caller && !link->client->poller.is_caller;
	struct pollfd *fds = fds_of(link);

	fds[LK__MESSAGES] = fds[LK__RESPONSES] = (struct pollfd){.fd = -1};
	link->polled = connection;
	if (!connection)
		return;
	lk__connection_use(connection);
	fds[LK__RESPONSES].fd = connection->ops->fd(connection->peer, LK__RESPONSES);
	fds[LK__RESPONSES].events = POLLRDHUP;
	if (reads)
		fds[LK__RESPONSES].events |= POLLIN;
	if (connection->stuck)
		fds[LK__RESPONSES].events |= POLLOUT;
	if (listens || connection->messages_out.len)
		fds[LK__MESSAGES].fd = connection->ops->fd(connection->peer, LK__MESSAGES);
	if (listens)
		fds[LK__MESSAGES].events |= POLLIN;
	if (connection->messages_out.len)
		fds[LK__MESSAGES].events |= POLLOUT;
}

/* Sleep until there is something to read, to write or to do. */
static void wait_for_events(struct lk_client *client)
{
	struct lk__loop *loop = &client->loop;
	struct pollfd *fds = loop->fds;
	const unsigned count = client->link_count; /* others may come meanwhile */
	int left_ms = arm(client);

	fds[0] = (struct pollfd){.fd = loop->wake.read_fd, .events = POLLIN};
	fds[1] = (struct pollfd){.fd = loop->timer_fd, .events = POLLIN};
	for (unsigned i = 0; i < count; i++)
		watch(client->links[i]);
	lk__client_unlock(client);
	poll(fds, OWN_FDS + count * LK__LINK_FDS, left_ms);
	if (fds[0].revents)
		lk__wake_drain(&loop->wake);
	if (fds[1].revents)
		lk__timer_drain(loop->timer_fd);
	pthread_mutex_lock(&client->mutex);
	for (unsigned i = 0; i < count; i++)
		lk__link_serve(client->links[i], client->links[i]->polled,
		               fds_of(client->links[i]));
	if (fds[1].revents || !loop->timed)
		lk__poller_catch_up(client);
	/* First send the requests that these events have queued. */
	lk__client_flush(client);
	if (fds[1].revents)
		loop->armed_ns = LK__NEVER; /* due work is done next, and the timer set */
}

static void *run(void *arg)
{
	struct lk_client *client = arg;

	pthread_mutex_lock(&client->mutex);
	while (!client->loop.stop) {
		do_what_is_due(client);
		wait_for_events(client);
	}
	lk__client_unlock(client);
	return NULL;
}

bool lk__loop_init(struct lk_client *client)
{
	struct lk__loop *loop = &client->loop;

	loop->timer_fd = lk__timer_open();
	loop->armed_ns = LK__NEVER;
	loop->timed = loop->timer_fd >= 0;
	loop->fds = calloc(OWN_FDS + LK__NODES_MAX * LK__LINK_FDS, sizeof(struct pollfd));
	return loop->fds && lk__wake_init(&loop->wake) && lk__poller_init(client);
}

void lk__loop_fini(struct lk_client *client)
{
	lk__wake_fini(&client->loop.wake);
	lk__poller_fini(client);
	if (client->loop.timer_fd >= 0)
		close(client->loop.timer_fd);
	free(client->loop.fds);
}

bool lk__loop_start(struct lk_client *client)
{
	return lk__thread_start(&client->loop.thread, "lk-loop", run, client);
}

void lk__loop_stop(struct lk_client *client)
{
	pthread_mutex_lock(&client->mutex);
	client->loop.stop = true;
	lk__client_unlock(client);
	lk__wake_notify(&client->loop.wake);
	pthread_join(client->loop.thread, NULL);
	for (unsigned i = 0; i < client->link_count; i++)
		lk__dial_stop(client->links[i]);
}
