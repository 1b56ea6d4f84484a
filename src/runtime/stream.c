/* SPDX-License-Identifier: MIT
 * Peers with one stream for responses and messages, whose stores understand it themselves: their
 * timers, their bytes, and what comes of them for the core. */
#include "client.h"

int64_t lk__stream_due_ns(const struct lk__link *link)
{
	const struct lk__connection *connection = link->connection;

	return connection && connection->ops->next ? connection->ops->due_ns(connection->peer)
	                                           : LK__NEVER;
}

static void deliver(struct lk__link *link, struct lk__connection *connection,
                    struct lk__answer *answer)
{
	struct lk__pending *pending = lk__connection_take_sent(connection);
	struct lk__why why;

	if (!pending) {
		lk__why_set(&why, LK_ESERVER, "%s: response without a request", connection->text);
		lk__link_broken(link, connection, &why);
		return;
	}
	if (connection->ops->fill)
		connection->ops->fill(connection->peer, lk__core_into(pending), answer);
	lk__core_answer(&link->client->core, lk__now_ns(), pending, answer);
}

bool lk__stream_turn(struct lk__link *link)
{
	struct lk__connection *connection = link->connection;
	const struct lk__store_ops *ops = connection->ops;
	struct lk__message message;
	struct lk__answer answer;
	struct lk__event event;
	struct lk__why why;
	enum lk__next next;
	bool delivered = false;
	bool good = ops->pump(connection->peer, lk__now_ns(), &connection->out, &why);

	while (ops->topic_event && link->connection == connection &&
	       ops->topic_event(connection->peer, &event)) {
		delivered = true;
		lk__messages_take(link, &event);
	}
	while (link->connection == connection &&
	       (next = ops->next(connection->peer, &answer, &message)) != LK__NEXT_NONE) {
		delivered = true;
		if (next == LK__NEXT_ANSWER) {
			deliver(link, connection, &answer);
			continue;
		}
		message.from = &link->session;
		lk__core_message(&link->client->core, lk__now_ns(), &message);
	}
	if (!good && link->connection == connection)
		lk__link_broken(link, connection, &why);
	return delivered && link->connection;
}
