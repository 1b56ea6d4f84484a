/* SPDX-License-Identifier: MIT
 * The store in one Redis server: the table of its operations.  A peer is a pair of connections,
 * since a RESP2 connection with subscriptions takes no other commands. */
#include "redis_store.h"

#include "connect.h"
#include "sentinel.h"

#include <stdlib.h>
#include <string.h>

/* A peer with connections. */
struct connected {
	struct lk__redis_peer peer; /* first */
	struct lk__conn *conns[2];  /* by enum lk__side */
};

static struct lk__store *create(const struct lk__target *target, const char *client_id)
{
	struct lk__redis *redis = calloc(1, sizeof(*redis));

	if (!redis)
		return NULL;
	redis->store.ops = &lk__redis_store;
	redis->store.links = 1;
	lk__space_init(&redis->space, target->prefix, target->db, client_id);
	redis->space.grace_ms = target->grace_ms;
	redis->target = target;
	return &redis->store;
}

static void destroy(struct lk__store *store)
{
	lk__tls_unload(&((struct lk__redis *)store)->tls);
	free(store);
}

static void topic_of(const struct lk__store *store, const char *name, size_t len,
                     char topic[LK__TOPIC_MAX])
{
	lk__space_topic(&((const struct lk__redis *)store)->space, name, len, topic);
}

static unsigned route(const struct lk__store *store, const char *name, size_t len)
{
	(void)store;
	(void)name;
	(void)len;
	return 0;
}

/* ---- Connections -------------------------------------------------------------------------- */

static struct lk__conn *conn_of(struct lk__peer *peer, enum lk__side side)
{
	return ((struct connected *)peer)->conns[side];
}

static lk_err dial(struct lk__store *store, unsigned link, const struct lk__target *place,
                   int64_t deadline_ns, int cancel_fd, struct lk__epoch *epoch,
                   struct lk__peer **result, struct lk__why *why)
{
	struct lk__redis *redis = (struct lk__redis *)store;
	struct connected *connected = calloc(1, sizeof(*connected));
	struct lk__conn **conns;
	lk_err err;

	(void)link;
	if (!connected)
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	conns = connected->conns;
	err = lk__connect(place, &redis->tls, &redis->space, deadline_ns, cancel_fd, epoch,
	                  &conns[LK__RESPONSES], &conns[LK__MESSAGES], why);
	if (err) {
		free(connected);
		return err;
	}
	for (int side = 0; side < 2; side++)
		connected->peer.readers[side] = conns[side]->reader;
	connected->peer.redis = redis;
	memcpy(connected->peer.text, place->text, sizeof(place->text));
	connected->peer.peer.can_wait = lk__socket_be_patient(&conns[LK__RESPONSES]->socket);
	*result = &connected->peer.peer;
	return LK_OK;
}

static void shut_down(struct lk__peer *peer)
{
	lk__socket_shutdown(&conn_of(peer, LK__RESPONSES)->socket);
	lk__socket_shutdown(&conn_of(peer, LK__MESSAGES)->socket);
}

static void close_peer(struct lk__peer *peer)
{
	lk__conn_close(conn_of(peer, LK__RESPONSES));
	lk__conn_close(conn_of(peer, LK__MESSAGES));
	free(peer);
}

static int fd_of(const struct lk__peer *peer, enum lk__side side)
{
	return ((const struct connected *)peer)->conns[side]->socket.fd;
}

static int64_t write_bytes(struct lk__peer *peer, enum lk__side side, const char *bytes, size_t len,
                           struct lk__why *why)
{
	return lk__socket_write(&conn_of(peer, side)->socket, bytes, len, why);
}

static int64_t read_bytes(struct lk__peer *peer, enum lk__side side, bool wait, struct lk__why *why)
{
	return lk__conn_read(conn_of(peer, side), wait, why);
}

/* ---- Requests ----------------------------------------------------------------------------- */

static struct lk__redis_peer *peer_of(struct lk__peer *peer)
{
	return (struct lk__redis_peer *)peer;
}

static bool encode(struct lk__peer *peer, const struct lk__request *request, struct lk__buf *buf)
{
	return lk__codec_request(buf, &peer_of(peer)->redis->space, request);
}

static bool subscribe(struct lk__peer *peer, const char *topic, bool on, struct lk__buf *buf)
{
	const char *argv[] = {on ? "SUBSCRIBE" : "UNSUBSCRIBE", topic};

	(void)peer;
	return lk__resp_command(buf, 2, argv, NULL);
}

static bool ping(struct lk__peer *peer, struct lk__buf *buf)
{
	const char *argv[] = {"PING"};

	(void)peer;
	return lk__resp_command(buf, 1, argv, NULL);
}

/* ---- Replies ------------------------------------------------------------------------------ */

static size_t parse(struct lk__peer *peer, enum lk__side side, void **replies, size_t max,
                    lk_err *err, struct lk__why *why)
{
	return lk__resp_take(peer_of(peer)->readers[side], replies, max, err, why);
}

static void discard(void *reply)
{
	lk__resp_free(reply);
}

static bool answer(struct lk__peer *peer, void *reply, const struct lk__request *query, void *into,
                   struct lk__answer *result, struct lk__why *why)
{
	const struct lk__redis_peer *of = peer_of(peer);
	bool known = !lk__codec_unknown_script(reply);

	if (query)
		lk__codec_query_answer(reply, of->text, &of->redis->space, query, into, result,
		                       why);
	else
		lk__codec_answer(reply, of->text, result, why);
	if (!of->redis->target->service && result->kind == LK__FAILED)
		lk__resp_blame_replica(reply, of->text, "", why);
	lk__resp_free(reply);
	return known;
}

static void payload(const struct lk__redis_peer *peer, const struct lk__resp *channel,
                    const struct lk__resp *text, struct lk__event *event)
{
	const struct lk__space *space = &peer->redis->space;

	if (!strcmp(channel->str, space->channel)) {
		if (lk__codec_message(space, text->str, text->len, &event->message))
			event->kind = LK__EVENT_MESSAGE;
	} else if (lk__codec_broadcast(text->str, text->len, &event->message)) {
		event->kind = LK__EVENT_PUBLISHED;
	}
}

static void event_of(struct lk__peer *peer, const void *reply, bool awaits_pong,
                     struct lk__event *event)
{
	const struct lk__resp *resp = reply, *kind, *last;

	event->kind = LK__EVENT_NONE;
	/* An error reply to PING is a response, too. */
	if (awaits_pong && (resp->type != LK__RESP_ARRAY || resp->len == 2)) {
		event->kind = LK__EVENT_PONG;
		return;
	}
	if (resp->type == LK__RESP_ERROR && lk__resp_error(resp) == LK_EAGAIN) {
		event->kind = LK__EVENT_PUT_OFF;
		return;
	}
	if (resp->type == LK__RESP_ERROR) {
		event->kind = LK__EVENT_REFUSED;
		lk__why_about(&event->why, lk__resp_error(resp), peer_of(peer)->text,
		              "SUBSCRIBE: %s", resp->str);
		return;
	}
	if (resp->type != LK__RESP_ARRAY || resp->len != 3)
		return;
	kind = resp->elements[0];
	last = resp->elements[2];
	if (kind->type != LK__RESP_STRING || resp->elements[1]->type != LK__RESP_STRING)
		return;
	event->topic = resp->elements[1]->str;
	event->topic_len = resp->elements[1]->len;
	if (!strcmp(kind->str, "message") && last->type == LK__RESP_STRING) {
		payload(peer_of(peer), resp->elements[1], last, event);
	} else if (!strcmp(kind->str, "subscribe") || !strcmp(kind->str, "unsubscribe")) {
		event->kind = LK__EVENT_CONFIRMED;
		event->subscribed = kind->str[0] == 's';
	}
}

static lk_err open_sentinel(struct lk__store *store, unsigned index, int64_t deadline_ns,
                            int cancel_fd, struct lk__sentinel_conn **conn, struct lk__why *why)
{
	return lk__sentinel_open(((struct lk__redis *)store)->target, index, deadline_ns, cancel_fd,
	                         conn, why);
}

const struct lk__store_ops lk__redis_store = {
	.create = create,
	.destroy = destroy,
	.topic = topic_of,
	.route = route,
	.dial = dial,
	.shutdown = shut_down,
	.close = close_peer,
	.fd = fd_of,
	.write = write_bytes,
	.read = read_bytes,
	.encode = encode,
	.subscribe = subscribe,
	.ping = ping,
	.parse = parse,
	.answer = answer,
	.event = event_of,
	.discard = discard,
	.sentinel_open = open_sentinel,
	.sentinel_ask = lk__sentinel_ask,
	.sentinel_next = lk__sentinel_next,
	.sentinel_close = lk__sentinel_close,
};
