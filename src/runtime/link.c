/* SPDX-License-Identifier: MIT
 * Links: one connection each to a server, and sending.  Any thread writes queued requests, one
 * thread at a time on each link, without the mutex; bytes that the socket does not take are left to
 * the background thread. */
#include "client.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

const char *lk__link_text(const struct lk__link *link, char text[LK__PLACE_SIZE])
{
	char place[LK__PLACE_SIZE];

	if (!link->place.host[0])
		return link->client->target.text;
	lk__place_write(place, sizeof(place), link->place.host, link->place.port);
	lk__escape(text, LK__PLACE_SIZE, place, strlen(place));
	return text;
}

bool lk__client_loop_reads(const struct lk_client *client)
{
	return lk__client_is_quorum(client) || client->store->ops->next;
}

struct lk__link *lk__handle_link(const struct lk__handle *handle)
{
	return (struct lk__link *)handle->name->session;
}

/* A name may move to another link during the call. */
struct lk__link *lk__op_link(const struct lk__op *op)
{
	struct lk__link *link =
		op->handle ? lk__handle_link(op->handle) : (struct lk__link *)op->session;

	return !link || lk__client_loop_reads(link->client) ? NULL : link;
}

/* ---- Connections -------------------------------------------------------------------------- */

void lk__connection_use(struct lk__connection *connection)
{
	connection->users++;
}

void lk__connection_leave(struct lk__connection *connection)
{
	if (--connection->users || !connection->broken)
		return;
	connection->ops->close(connection->peer);
	lk__buf_fini(&connection->out);
	lk__buf_fini(&connection->messages_out);
	free(connection);
}

struct lk__pending *lk__connection_take_sent(struct lk__connection *connection)
{
	struct lk__pending *pending = connection->sent;

	if (!pending)
		return NULL;
	connection->sent = pending->next;
	if (!connection->sent)
		connection->sent_end = &connection->sent;
	pending->next = NULL;
	return pending;
}

void lk__connection_drop(struct lk__connection *connection)
{
	if (!connection)
		return;
	connection->broken = true;
	lk__connection_leave(connection);
}

void lk__link_broken(struct lk__link *link, struct lk__connection *connection,
                     const struct lk__why *why)
{
	struct lk_client *client = link->client;

	if (connection->broken)
		return;
	connection->broken = true;
	link->connection = NULL;
	client->core.server = client->target.text;
	link->reader.is_loop = link->listener.is_caller = false;
	connection->ops->shutdown(connection->peer);
	/* Before lk__core_link_down(), which may free the requests in this list. */
	connection->sent = NULL;
	connection->sent_end = &connection->sent;
	lk__core_link_down(&client->core, &link->session, lk__now_ns(), why,
	                   lk__core_random(&client->core));
	lk__wake_notify(&link->reader.wake);
	if (link->listener.call)
		lk__wake_notify(&link->listener.wake);
	lk__poller_wake(client);
	lk__wake_notify(&client->loop.wake);
	lk__connection_leave(connection);
}

void lk__link_up(struct lk__link *link, struct lk__connection *connection)
{
	link->connection = connection;
	if (!link->client->is_cluster && !lk__client_is_quorum(link->client))
		link->client->core.server = connection->text;
	link->reader.is_loop = lk__client_loop_reads(link->client);
	link->introduce_ns = 0;
	lk__core_memory(&link->client->core, &link->session, lk__now_ns(), &link->dialer.epoch);
	lk__core_link_up(&link->client->core, &link->session, lk__now_ns());
	lk__poller_wake(link->client); /* it polls this one, too */
	if (link->client->sentinels)
		lk__sentinels_judge(link);
}

int64_t lk__link_oldest_ns(const struct lk__link *link)
{
	const struct lk__connection *connection = link->connection;

	return connection && connection->sent ? connection->sent->sent_ns : LK__NEVER;
}

int64_t lk__link_overdue_ns(const struct lk__link *link)
{
	return lk__session_overdue_ns(&link->session, lk__link_oldest_ns(link));
}

void lk__link_overdue(struct lk__link *link)
{
	int64_t timeout_ns = link->client->target.command_timeout_ns;
	struct lk__why why;

	lk__why_set(&why, LK_EUNKNOWN, "%s: no response within %lld ms", link->connection->text,
	            (long long)(timeout_ns / LK__MS));
	lk__link_broken(link, link->connection, &why);
}

/* ---- Receive ------------------------------------------------------------------------------ */

void lk__link_serve(struct lk__link *link, struct lk__connection *connection,
                    const struct pollfd fds[LK__LINK_FDS])
{
	if (!connection)
		return;
	if (fds[LK__MESSAGES].revents && !connection->broken && !connection->hearing &&
	    !link->listener.is_caller)
		lk__messages_read(link, connection);
	if (fds[LK__RESPONSES].revents && !connection->broken && !connection->reading)
		lk__reader_read(link, connection, NULL, lk__now_ns());
	lk__connection_leave(connection);
}

/* ---- Send --------------------------------------------------------------------------------- */

static void append_sent(struct lk__connection *connection, struct lk__pending *pending)
{
	pending->next = NULL;
	*connection->sent_end = pending;
	connection->sent_end = &pending->next;
}

static void refuse_request(struct lk_client *client, struct lk__pending *pending)
{
	const struct lk__answer answer = {
		.kind = LK__FAILED, .err = LK_ENOMEM, .retryable = true, .text = "out of memory"};

	lk__core_answer(&client->core, lk__now_ns(), pending, &answer);
}

/* Requests that were sent depend on the question. */
static bool refuse_confirm(struct lk__link *link)
{
	struct lk__why why;

	lk__why_set(&why, LK_ENOMEM, "%s: out of memory", link->connection->text);
	lk__link_broken(link, link->connection, &why);
	return false;
}

/* Encode the queued requests into the connection's buffer.  False if the link is broken. */
static bool encode(struct lk__link *link)
{
	struct lk__connection *connection = link->connection;
	struct lk_client *client = link->client;
	int64_t now_ns = lk__now_ns();
	struct lk__pending *pending;

	while ((pending = lk__core_next_request(&client->core, &link->session, now_ns))) {
		struct lk__request request;
		lk__core_request(pending, &request);
		if (connection->ops->encode(connection->peer, &request, &connection->out))
			append_sent(connection, pending);
		else if (pending->kind == LK__CONFIRM)
			return refuse_confirm(link);
		else
			refuse_request(client, pending);
	}
	return true;
}

/* The same.  False also when there is nothing to send. */
static bool fill(struct lk__link *link)
{
	do {
		if (!encode(link))
			return false;
	} while (link->connection->ops->next && lk__stream_turn(link));
	return link->connection && link->connection->out.len > 0;
}

/* The socket was full: the rest goes first when the loop finds it writable. */
static bool put_back(struct lk__connection *connection, const char *bytes, size_t len)
{
	char *data = malloc(len + connection->out.len);

	if (!data)
		return false;
	memcpy(data, bytes, len);
	if (connection->out.len)
		memcpy(data + len, connection->out.data, connection->out.len);
	free(connection->out.data);
	connection->out =
		(struct lk__buf){data, len + connection->out.len, len + connection->out.len};
	connection->stuck = true;
	return true;
}

/* Write the connection's buffer without the mutex. */
static void write_out(struct lk__link *link, struct lk__connection *connection)
{
	struct lk_client *client = link->client;
	struct lk__buf buf = connection->out;
	struct lk__why why;
	int64_t taken;
	size_t done = 0;

	connection->out = (struct lk__buf){0}; /* other threads fill another one meanwhile */
	connection->writing = true;
	connection->stuck = false;
	lk__client_unlock(client);
	do {
		taken = connection->ops->write(connection->peer, LK__RESPONSES, buf.data + done,
		                               buf.len - done, &why);
		if (taken > 0)
			done += (size_t)taken;
	} while (taken > 0 && done < buf.len);
	pthread_mutex_lock(&client->mutex);
	connection->writing = false;
	if (taken == 0 && !put_back(connection, buf.data + done, buf.len - done)) {
		lk__why_set(&why, LK_ENOMEM, "%s: out of memory", connection->text);
		taken = -1;
	}
	if (connection->stuck)
		lk__wake_notify(&client->loop.wake);
	if (connection->out.data) {
		lk__buf_fini(&buf);
	} else {
		buf.len = 0;
		connection->out = buf;
	}
	if (taken < 0)
		lk__link_broken(link, connection, &why);
}

/* May there be anything to write, and no other thread is writing? */
static bool can_write(const struct lk__link *link)
{
	const struct lk__connection *connection = link->connection;

	return connection && !connection->broken && !connection->writing &&
	       (link->session.send_queue || connection->out.len || connection->ops->next);
}

static void flush(struct lk__link *link)
{
	while (can_write(link) && fill(link)) {
		struct lk__connection *connection = link->connection;
		bool stuck;
		lk__connection_use(connection);
		write_out(link, connection);
		stuck = connection->stuck;
		lk__connection_leave(connection);
		if (stuck)
			break;
	}
}

void lk__client_flush(struct lk_client *client)
{
	for (unsigned i = 0; i < client->link_count; i++)
		flush(client->links[i]);
	lk__client_settle(client);
}
