/* SPDX-License-Identifier: MIT
 * The connection that messages come by.  The loop reads it; but a thread that waits for a message,
 * and is the only one to wait, reads it itself, so that a hand-off wakes one thread and not two.
 * The loop then leaves it alone until no such wait has begun for a while. */
#include "client.h"

#include <poll.h>
#include <string.h>

#define MESSAGES_MAX 64          /* taken at once */
#define LINGER_NS (100 * LK__MS) /* after such a wait: the next one often follows */

/* ---- Out ---------------------------------------------------------------------------------- */

/* Append the commands of channels to the buffer.  False when out of memory. */
static bool fill_messages(struct lk_client *client, struct lk__pair *pair)
{
	struct lk__channel *channel;
	bool subscribe;

	while ((channel = lk__channels_next(&client->core.channels, &subscribe))) {
		if (!pair->ops->subscribe(pair->peer, channel->topic, subscribe,
		                          &pair->messages_out))
			return false;
	}
	return true;
}

/* Only the loop writes there, so a command that the socket took in part is never cut into. */
void lk__messages_flush(struct lk_client *client)
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
	taken = pair->ops->write(pair->peer, LK__MESSAGES, out->data, out->len, &why);
	pthread_mutex_lock(&client->mutex);
	if (taken > 0) {
		out->len -= (size_t)taken;
		memmove(out->data, out->data + taken, out->len);
	}
	if (taken < 0)
		lk__wire_broken(client, pair, &why);
	lk__pair_leave(pair);
}

/* ---- In ----------------------------------------------------------------------------------- */

static void take(struct lk_client *client, struct lk__pair *pair, const void *reply)
{
	struct lk__channels *channels = &client->core.channels;
	struct lk__event event;

	pair->ops->event(pair->peer, reply, channels->pinged, &event);
	switch (event.kind) {
	case LK__EVENT_NONE:
		break;
	case LK__EVENT_PONG:
		lk__channels_ponged(channels);
		break;
	case LK__EVENT_MESSAGE:
		lk__core_message(&client->core, lk__now_ns(), &event.message);
		break;
	case LK__EVENT_PUBLISHED:
		lk__channels_published(channels, lk__now_ns(), event.topic, event.topic_len,
		                       &event.message);
		break;
	case LK__EVENT_CONFIRMED:
		lk__channels_confirmed(channels, lk__now_ns(), event.subscribed, event.topic,
		                       event.topic_len);
		break;
	case LK__EVENT_REFUSED:
		lk__channels_refused(channels, lk__now_ns(), &event.why);
		break;
	case LK__EVENT_PUT_OFF:
		lk__channels_put_off(channels, lk__now_ns());
		break;
	}
}

void lk__messages_read(struct lk_client *client, struct lk__pair *pair)
{
	void *replies[MESSAGES_MAX];
	struct lk__why why;
	lk_err err = LK_OK;
	int64_t got;
	size_t count;

	lk__pair_use(pair);
	pair->hearing = true;
	lk__client_unlock(client);
	got = pair->ops->read(pair->peer, LK__MESSAGES, false, &why);
	do {
		count = 0;
		if (!err)
			count = pair->ops->parse(pair->peer, LK__MESSAGES, replies, MESSAGES_MAX,
			                         &err, &why);
		pthread_mutex_lock(&client->mutex);
		for (size_t i = 0; i < count; i++) {
			if (!pair->broken)
				take(client, pair, replies[i]);
			pair->ops->discard(replies[i]);
		}
		if (count < MESSAGES_MAX)
			break;
		lk__client_unlock(client);
	} while (true);
	pair->hearing = false;
	if (got > 0 && !pair->broken)
		lk__session_heard(&client->session, lk__now_ns());
	if (got < 0 || err)
		lk__wire_broken(client, pair, &why);
	lk__pair_leave(pair);
}

/* ---- Who listens -------------------------------------------------------------------------- */

void lk__messages_to_loop(struct lk_client *client)
{
	client->callers_listen = false;
	client->alone_ns = lk__now_ns() + LINGER_NS;
	lk__wake_notify(&client->loop_wake);
}

/* Nothing but a message, or time, ends this wait, and nobody else waits who would have to be woken
 * to listen when it is over. */
static bool may_listen(const struct lk_client *client, const struct lk__sleeper *sleeper,
                       int64_t now_ns)
{
	const struct lk__pair *pair = client->pair;

	return pair && !pair->hearing && !sleeper->next && client->sleepers == sleeper &&
	       now_ns >= client->alone_ns && lk__waiter_expects_message(&sleeper->waiter);
}

bool lk__messages_listen(struct lk_client *client, struct lk__sleeper *sleeper, int64_t now_ns,
                         int64_t deadline_ns)
{
	struct lk__pair *pair = client->pair;
	int ready;

	if (!may_listen(client, sleeper, now_ns)) {
		if (client->callers_listen && !client->listener)
			lk__messages_to_loop(client); /* somebody must, for who sleeps now */
		return false;
	}
	if (!client->callers_listen)
		lk__wake_notify(&client->loop_wake); /* it sleeps on that connection, too */
	client->callers_listen = true;
	client->listener = sleeper;
	lk__pair_use(pair);
	lk__client_unlock(client);
	ready = lk__poll2(pair->ops->fd(pair->peer, LK__MESSAGES), POLLIN,
	                  client->listener_wake.read_fd,
	                  deadline_ns == LK__NEVER ? -1 : deadline_ns);
	if (ready & 2)
		lk__wake_drain(&client->listener_wake);
	pthread_mutex_lock(&client->mutex);
	client->listener = NULL; /* it is awake */
	if ((ready & 1) && !pair->broken)
		lk__messages_read(client, pair);
	client->linger_ns = lk__now_ns() + LINGER_NS;
	if (client->callers_listen && (sleeper->next || client->sleepers != sleeper))
		lk__messages_to_loop(client);
	lk__pair_leave(pair);
	lk__wire_settle(client);
	return true;
}
