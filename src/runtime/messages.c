/* SPDX-License-Identifier: MIT
 * The connection for messages.  The loop reads it; but a thread that waits for a message, and is
 * the only waiting thread, reads it itself, so that a hand-off wakes one thread and not two.  The
 * loop then leaves it alone until no such wait has begun for a while. */
#include "client.h"

#include <poll.h>
#include <string.h>

#define MESSAGES_MAX 64          /* parsed at once */
#define LINGER_NS (100 * LK__MS) /* after such a wait: the next one often follows */

/* ---- Send --------------------------------------------------------------------------------- */

/* Append the commands of channels to the buffer.  False when out of memory. */
static bool fill_messages(struct lk__link *link, struct lk__connection *connection)
{
	struct lk__channel *channel;
	bool subscribe;

	while ((channel = lk__channels_next(&link->session.channels, &subscribe))) {
		if (!connection->ops->subscribe(connection->peer, channel->topic, subscribe,
		                                &connection->messages_out))
			return false;
	}
	return true;
}

/* Only the loop writes here, so a partly written command is completed before the next. */
void lk__messages_flush(struct lk__link *link)
{
	struct lk__connection *connection = link->connection;
	struct lk__buf *out;
	struct lk__why why;
	int64_t taken = 0;

	if (!connection)
		return;
	out = &connection->messages_out;
	if (!fill_messages(link, connection)) {
		lk__why_set(&why, LK_ENOMEM, "%s: out of memory", connection->text);
		lk__link_broken(link, connection, &why);
		return;
	}
	if (!out->len)
		return;
	lk__connection_use(connection);
	lk__client_unlock(link->client);
	taken = connection->ops->write(connection->peer, LK__MESSAGES, out->data, out->len, &why);
	pthread_mutex_lock(&link->client->mutex);
	if (taken > 0) {
		out->len -= (size_t)taken;
		memmove(out->data, out->data + taken, out->len);
	}
	if (taken < 0)
		lk__link_broken(link, connection, &why);
	lk__connection_leave(connection);
}

/* ---- Receive ------------------------------------------------------------------------------ */

void lk__messages_take(struct lk__link *link, const struct lk__event *event)
{
	struct lk__channels *channels = &link->session.channels;
	struct lk__message message = event->message;

	message.from = &link->session;
	switch (event->kind) {
	case LK__EVENT_NONE:
		break;
	case LK__EVENT_PONG:
		lk__channels_ponged(channels);
		break;
	case LK__EVENT_MESSAGE:
		lk__core_message(&link->client->core, lk__now_ns(), &message);
		break;
	case LK__EVENT_PUBLISHED:
		lk__channels_published(channels, lk__now_ns(), event->topic, event->topic_len,
		                       &message);
		break;
	case LK__EVENT_CONFIRMED:
		lk__channels_confirmed(channels, lk__now_ns(), event->subscribed, event->topic,
		                       event->topic_len);
		break;
	case LK__EVENT_REFUSED:
		lk__channels_refused(channels, lk__now_ns(), &event->why);
		break;
	case LK__EVENT_PUT_OFF:
		lk__channels_put_off(channels, lk__now_ns());
		break;
	case LK__EVENT_MOVED:
		lk__channels_put_off(channels, lk__now_ns());
		lk__cluster_redirect(link, NULL, false, event->why.text);
		break;
	}
}

static void take(struct lk__link *link, struct lk__connection *connection, const void *reply)
{
	struct lk__event event;

	connection->ops->event(connection->peer, reply, link->session.channels.pinged, &event);
	lk__messages_take(link, &event);
}

void lk__messages_read(struct lk__link *link, struct lk__connection *connection)
{
	void *replies[MESSAGES_MAX];
	struct lk__why why;
	lk_err err = LK_OK;
	int64_t got;
	size_t count;

	lk__connection_use(connection);
	connection->hearing = true;
	lk__client_unlock(link->client);
	got = connection->ops->read(connection->peer, LK__MESSAGES, false, &why);
	do {
		count = 0;
		if (!err)
			count = connection->ops->parse(connection->peer, LK__MESSAGES, replies,
			                               MESSAGES_MAX, &err, &why);
		pthread_mutex_lock(&link->client->mutex);
		for (size_t i = 0; i < count; i++) {
			if (!connection->broken)
				take(link, connection, replies[i]);
			connection->ops->discard(replies[i]);
		}
		if (count < MESSAGES_MAX)
			break;
		lk__client_unlock(link->client);
	} while (true);
	connection->hearing = false;
	if (got > 0 && !connection->broken)
		lk__session_heard(&link->session, lk__now_ns());
	if (got < 0 || err)
		lk__link_broken(link, connection, &why);
	lk__connection_leave(connection);
}

/* ---- The listener ------------------------------------------------------------------------- */

void lk__messages_to_loop(struct lk__link *link)
{
	link->listener.is_caller = false;
	link->listener.alone_ns = lk__now_ns() + LINGER_NS;
	lk__wake_notify(&link->client->loop.wake);
}

/* Only a message or time can end this wait, and no other caller waits, which would have to be woken
 * to listen afterwards. */
static bool may_listen(const struct lk__link *link, const struct lk__call *call, int64_t now_ns)
{
	const struct lk__connection *connection = link->connection;

	return connection && !connection->hearing && !call->next && link->client->calls == call &&
	       now_ns >= link->listener.alone_ns && lk__op_expects_message(&call->op);
}

/* Wait for a message or a wake, and read the messages. */
static void listen_once(struct lk__link *link, struct lk__connection *connection,
                        int64_t deadline_ns)
{
	struct lk_client *client = link->client;
	int ready;

	lk__connection_use(connection);
	lk__client_unlock(client);
	ready = lk__poll2(connection->ops->fd(connection->peer, LK__MESSAGES), POLLIN,
	                  link->listener.wake.read_fd, deadline_ns == LK__NEVER ? -1 : deadline_ns);
	if (ready & 2)
		lk__wake_drain(&link->listener.wake);
	pthread_mutex_lock(&client->mutex);
	link->listener.call = NULL; /* it is awake */
	if ((ready & 1) && !connection->broken)
		lk__messages_read(link, connection);
	lk__connection_leave(connection);
}

bool lk__messages_listen(struct lk__link *link, struct lk__call *call, int64_t now_ns,
                         int64_t deadline_ns)
{
	struct lk__listener *listener = &link->listener;
	struct lk_client *client = link->client;

	if (!may_listen(link, call, now_ns)) {
		if (listener->is_caller && !listener->call)
			lk__messages_to_loop(link); /* the loop must listen for sleeping threads */
		return false;
	}
	if (!listener->is_caller)
		lk__wake_notify(&client->loop.wake); /* it polls that connection, too */
	listener->is_caller = true;
	listener->call = call;
	listen_once(link, link->connection, deadline_ns);
	listener->linger_ns = lk__now_ns() + LINGER_NS;
	if (listener->is_caller && (call->next || client->calls != call))
		lk__messages_to_loop(link);
	lk__client_settle(client);
	return true;
}
