/* SPDX-License-Identifier: MIT
 * The choice of the thread that polls the links of a quorum.  A call has its responses and messages
 * on all of them, so the thread that polls reads every link.  The loop does; but a thread that
 * waits, and is the only waiting thread, does it itself: so an event wakes one thread and not two.
 *
 * It need not wake for each response.  While it needs those of two servers or more, some of them
 * (lk__quorum_spared()) decide nothing without another one, with which they are read then.
 *
 * When such a call has ended, the loop leaves the links alone until its timer fires, which is
 * after a while at the latest: the next call often follows, and reads what has come meanwhile, such
 * as the answers of the servers that the majority did not need.  The loop takes the links back as
 * soon as it has anything else to do, or another thread waits. */
#include "client.h"

#define LINGER_NS (250 * LK__MS)  /* after such a call: the next one often follows */
#define SEVERAL_NS (100 * LK__MS) /* after several calls have waited */
#define SPARED_MS 100             /* a response that decides nothing is read by then */
#define POLL_MAX_MS 1000000

/* ---- A call that polls --------------------------------------------------------------------- */

void lk__poller_to_loop(struct lk_client *client)
{
	struct lk__poller *poller = &client->poller;

	if (!poller->is_caller || poller->call)
		return;
	poller->is_caller = false;
	lk__wake_notify(&client->loop.wake);
}

/* Several calls wait: leave the links to the loop for a while. */
static void give_up(struct lk_client *client)
{
	client->poller.alone_ns = lk__now_ns() + SEVERAL_NS;
	lk__poller_to_loop(client);
}

void lk__poller_wake(struct lk_client *client)
{
	if (client->poller.call)
		lk__wake_notify(&client->poller.wake);
}

static bool is_alone(const struct lk_client *client, const struct lk__call *call)
{
	return client->calls == call && !call->next;
}

static int64_t overdue_ns(const struct lk_client *client)
{
	int64_t due_ns = LK__NEVER;

	for (unsigned i = 0; i < client->link_count; i++) {
		int64_t link_ns = lk__link_overdue_ns(client->links[i]);
		if (link_ns < due_ns)
			due_ns = link_ns;
	}
	return due_ns;
}

static int ms_until(int64_t deadline_ns)
{
	int64_t left_ns;

	if (deadline_ns == LK__NEVER)
		return -1;
	left_ns = deadline_ns - lk__now_ns();
	if (left_ns <= 0)
		return 0;
	/* Round up: the last fraction of a millisecond would otherwise be spent spinning. */
	return left_ns / LK__MS >= POLL_MAX_MS ? POLL_MAX_MS : (int)((left_ns - 1) / LK__MS) + 1;
}

/* Set up the poll() entries of a link; keeps the connection until lk__link_serve().  What the
 * socket has not taken is the loop's to write. */
static struct lk__connection *watch(const struct lk__link *link, struct pollfd fds[LK__LINK_FDS],
                                    bool spared)
{
	struct lk__connection *connection = link->connection;

	fds[LK__MESSAGES] = fds[LK__RESPONSES] = (struct pollfd){.fd = -1, .events = POLLIN};
	if (!connection)
		return NULL;
	lk__connection_use(connection);
	if (spared)
		fds[LK__RESPONSES].events = 0; /* only its end */
	fds[LK__RESPONSES].fd = connection->ops->fd(connection->peer, LK__RESPONSES);
	fds[LK__MESSAGES].fd = connection->ops->fd(connection->peer, LK__MESSAGES);
	return connection;
}

/* Wait for events, of the call or now, and read what has come.  Releases the mutex meanwhile.
 * _locked */
static void poll_links(struct lk_client *client, int64_t deadline_ns, struct lk__call *call)
{
	const unsigned spared = call ? lk__quorum_spared(&call->op, lk__now_ns()) : 0;
	struct lk__connection *connections[LK__SERVERS_MAX];
	struct pollfd fds[1 + LK__SERVERS_MAX * LK__LINK_FDS];
	const unsigned count = client->link_count; /* of a quorum, constant */
	int ready, wait_ms = ms_until(deadline_ns);

	if (spared && (wait_ms < 0 || wait_ms > SPARED_MS))
		wait_ms = SPARED_MS;
	fds[0] = (struct pollfd){.fd = call ? client->poller.wake.read_fd : -1, .events = POLLIN};
	for (unsigned i = 0; i < count; i++)
		connections[i] =
			watch(client->links[i], &fds[1 + i * LK__LINK_FDS], spared >> i & 1);
	if (call)
		client->poller.call = call;
	lk__client_unlock(client);
	ready = poll(fds, 1 + count * LK__LINK_FDS, wait_ms);
	for (unsigned i = 0; ready <= 0 && i < 1 + count * LK__LINK_FDS; i++)
		fds[i].revents = 0; /* it was interrupted, or its time is over */
	if (fds[0].revents)
		lk__wake_drain(&client->poller.wake);
	pthread_mutex_lock(&client->mutex);
	if (call)
		client->poller.call = NULL; /* it is awake */
	for (unsigned i = 0; i < count; i++) {
		if (spared >> i & 1)
			fds[1 + i * LK__LINK_FDS + LK__RESPONSES].revents |= POLLIN;
		lk__link_serve(client->links[i], connections[i], &fds[1 + i * LK__LINK_FDS]);
	}
}

bool lk__poller_wait(struct lk_client *client, struct lk__call *call, int64_t now_ns)
{
	struct lk__poller *poller = &client->poller;
	int64_t deadline_ns = call->op.timer.due_ns, due_ns;

	if (!lk__client_is_quorum(client))
		return false;
	if (!is_alone(client, call) || now_ns < poller->alone_ns) {
		if (poller->is_caller)
			give_up(client);
		return false;
	}
	if (!poller->is_caller)
		lk__wake_notify(&client->loop.wake); /* it polls them, too */
	poller->is_caller = true;
	due_ns = overdue_ns(client);
	poll_links(client, due_ns < deadline_ns ? due_ns : deadline_ns, call);
	poller->linger_ns = lk__now_ns() + LINGER_NS;
	for (unsigned i = 0; i < client->link_count; i++)
		if (lk__link_overdue_ns(client->links[i]) <= lk__now_ns())
			lk__link_overdue(client->links[i]);
	if (!is_alone(client, call))
		give_up(client);
	lk__client_settle(client);
	return true;
}

/* ---- The loop ------------------------------------------------------------------------------ */

int64_t lk__poller_due_ns(const struct lk_client *client)
{
	const struct lk__poller *poller = &client->poller;

	if (!poller->is_caller || poller->call)
		return LK__NEVER;
	for (unsigned i = 0; i < client->link_count; i++) {
		const struct lk__link *link = client->links[i];
		if (link->session.users || (link->connection && link->connection->sent))
			return poller->linger_ns;
	}
	return LK__NEVER; /* no message is urgent */
}

void lk__poller_catch_up(struct lk_client *client)
{
	if (!client->poller.is_caller)
		return;
	if (!client->poller.call)
		client->poller.is_caller = false;
	poll_links(client, 0, NULL);
}

bool lk__poller_init(struct lk_client *client)
{
	return !lk__client_is_quorum(client) || lk__wake_init(&client->poller.wake);
}

void lk__poller_fini(struct lk_client *client)
{
	lk__wake_fini(&client->poller.wake);
}
