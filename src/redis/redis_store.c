/* SPDX-License-Identifier: MIT
 * The store in one Redis server, or in the nodes of a Cluster: the table of its operations.  A peer
 * is a pair of connections, since a RESP2 connection with subscriptions takes no other commands. */
#include "redis_store.h"

#include "connect.h"
#include "doctor.h"
#include "sentinel.h"

#include <stdlib.h>
#include <string.h>

/* A peer with connections. */
struct connected {
	struct lk__redis_peer peer; /* first */
	struct lk__conn *conns[2];  /* by enum lk__side */
};

/* A quorum can only decide between pairs: two majorities have a server in common, three permits
 * have not. */
static const char *const refusals_of_quorum[LK__KINDS] = {
	[LK_KIND_SEMAPHORE] =
		"no semaphore and no rate limit on a quorum: with two permits, each of "
		"three clients can have the votes of two of three servers; use one "
		"Redis server, or a lock for each permit",
	[LK_KIND_LATCH] = "no latch on a quorum: votes of a majority cannot count steps; use one "
			  "Redis server, or Sentinel",
};

static struct lk__store *create(const struct lk__target *target, const char *client_id)
{
	struct lk__redis *redis = calloc(1, sizeof(*redis));

	if (!redis)
		return NULL;
	redis->store.ops = &lk__redis_store;
	redis->store.links = target->quorum ? (unsigned)target->member_count : 1;
	redis->store.refusals = target->quorum ? refusals_of_quorum : NULL;
	lk__space_init(&redis->space, target->prefix, target->db, client_id);
	redis->space.grace_ms = target->grace_ms;
	redis->space.quorum = target->quorum;
	redis->divided = redis->space;
	lk__space_divide(&redis->divided);
	atomic_init(&redis->is_cluster, target->cluster);
	redis->target = target;
	return &redis->store;
}

static void destroy(struct lk__store *store)
{
	for (unsigned link = 0; link < LK__NODES_MAX; link++)
		lk__tls_unload(&((struct lk__redis *)store)->tls[link]);
	free(store);
}

static const struct lk__space *space_of(const struct lk__redis *redis)
{
	return atomic_load(&redis->is_cluster) ? &redis->divided : &redis->space;
}

static void topic_of(const struct lk__store *store, const char *name, size_t len,
                     char topic[LK__TOPIC_MAX])
{
	lk__space_topic(space_of((const struct lk__redis *)store), name, len, topic);
}

static bool inbox_of(const struct lk__store *store, const char *name, size_t len,
                     char topic[LK__TOPIC_MAX])
{
	return lk__space_inbox(space_of((const struct lk__redis *)store), name, len, topic);
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

/* Find out that a plain URL leads to a Cluster, or connect.  Like the runtime, the store becomes
 * one of a Cluster at its first dial only: a client that has had names and channels refuses a node,
 * and the server may be back at the next dial. */
static lk_err dial_server(struct lk__redis *redis, unsigned link, const struct lk__target *place,
                          int64_t deadline_ns, int cancel_fd, struct lk__epoch *epoch,
                          struct lk__conn *conns[2], bool *is_cluster, struct lk__why *why)
{
	lk_err err =
		lk__connect(place, &redis->tls[link], &redis->space, deadline_ns, cancel_fd, epoch,
	                    &conns[LK__RESPONSES], &conns[LK__MESSAGES], is_cluster, why);

	if (*is_cluster && place->db) {
		*is_cluster = false;
		return lk__why_about(why, LK_EINVALID, place->text, LK__ONE_DATABASE);
	}
	if (place->quorum)
		return err; /* the runtime refuses a node; this store is never one of a Cluster */
	if (!*is_cluster)
		redis->was_server |= !err;
	else if (!place->lazy && !redis->was_server)
		atomic_store(&redis->is_cluster, true);
	return err;
}

/* Without connections the peer is of use only for its topology. */
static lk_err dial_node(struct lk__redis *redis, unsigned link, const struct lk__target *place,
                        int64_t deadline_ns, int cancel_fd, struct lk__epoch *epoch,
                        struct connected *connected, struct lk__why *why)
{
	struct lk__topology *topology = calloc(1, sizeof(*topology));
	lk_err err;

	if (!topology)
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	err = lk__cluster_connect(place, &redis->tls[link], &redis->divided, deadline_ns, cancel_fd,
	                          epoch, connected->conns, &connected->peer.node, topology, why);
	if (!topology->count) {
		free(topology);
		return err;
	}
	connected->peer.peer.topology = topology;
	connected->peer.peer.node = lk__cluster_find(topology, connected->peer.node.id);
	return err;
}

static lk_err look(struct lk__store *store, unsigned link, const struct lk__target *place,
                   int64_t deadline_ns, int cancel_fd, struct lk__topology *topology,
                   struct lk__why *why)
{
	struct lk__redis *redis = (struct lk__redis *)store;

	return lk__cluster_look(place, &redis->tls[link], deadline_ns, cancel_fd, topology, why);
}

static lk_err dial(struct lk__store *store, unsigned link, const struct lk__target *place,
                   int64_t deadline_ns, int cancel_fd, struct lk__epoch *epoch,
                   struct lk__peer **result, struct lk__why *why)
{
	struct lk__redis *redis = (struct lk__redis *)store;
	struct connected *connected = calloc(1, sizeof(*connected));
	struct lk__conn **conns;
	bool is_cluster = place->cluster;
	lk_err err = LK_OK;

	*result = NULL;
	if (!connected)
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	conns = connected->conns;
	if (!is_cluster)
		err = dial_server(redis, link, place, deadline_ns, cancel_fd, epoch, conns,
		                  &is_cluster, why);
	if (is_cluster && !conns[LK__RESPONSES])
		err = dial_node(redis, link, place, deadline_ns, cancel_fd, epoch, connected, why);
	if (err && !connected->peer.peer.topology) {
		free(connected);
		return err;
	}
	*result = &connected->peer.peer;
	if (err)
		return err;
	for (int side = 0; side < 2; side++)
		connected->peer.readers[side] = conns[side]->reader;
	connected->peer.redis = redis;
	connected->peer.space = connected->peer.node.id[0] ? &redis->divided : &redis->space;
	memcpy(connected->peer.text, place->text, sizeof(place->text));
	connected->peer.peer.can_wait = lk__socket_be_patient(&conns[LK__RESPONSES]->socket);
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
	free(peer->topology);
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

/* A node's marker has its own key. */
static bool encode(struct lk__peer *peer, const struct lk__request *request, struct lk__buf *buf)
{
	const struct lk__redis_peer *of = peer_of(peer);
	struct lk__request own;

	if (!of->space->cluster || request->marker)
		return lk__codec_request(buf, of->space, request);
	own = *request;
	own.marker = of->node.marker;
	return lk__codec_request(buf, of->space, &own);
}

static bool subscribe(struct lk__peer *peer, const char *topic, bool on, struct lk__buf *buf)
{
	static const char *const commands[][2] = {{"UNSUBSCRIBE", "SUBSCRIBE"},
	                                          {"SUNSUBSCRIBE", "SSUBSCRIBE"}};
	const char *argv[] = {commands[peer_of(peer)->space->cluster][on], topic};

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
	struct lk__redis_peer *of = peer_of(peer);
	bool known = !lk__codec_unknown_script(reply);

	if (query)
		lk__codec_query_answer(reply, of->text, of->space, query, into, result, why);
	else
		lk__codec_answer(reply, of->text, result, why);
	if (!of->redis->target->service && result->kind == LK__FAILED)
		lk__resp_blame_replica(reply, of->text, "", why);
	if (query && query->kind == LK__TOPOLOGY && into && result->kind == LK__LISTED) {
		lk__cluster_fill(&of->node, into);
		lk__cluster_rebase(&of->node, of->space, into);
	}
	lk__resp_free(reply);
	return known;
}

/* Is it a channel of messages to this client? */
static bool is_inbox(const struct lk__space *space, const char *channel)
{
	if (space->cluster)
		return !strncmp(channel, space->channels, space->channels_len);
	return !strcmp(channel, space->channel);
}

static void payload(const struct lk__redis_peer *peer, const struct lk__resp *channel,
                    const struct lk__resp *text, struct lk__event *event)
{
	if (is_inbox(peer->space, channel->str)) {
		if (lk__codec_message(peer->space, text->str, text->len, &event->message))
			event->kind = LK__EVENT_MESSAGE;
	} else if (lk__codec_broadcast(text->str, text->len, &event->message)) {
		event->kind = LK__EVENT_PUBLISHED;
	}
}

/* An error that is not the response to a PING. */
static void refusal(const struct lk__redis_peer *peer, const struct lk__resp *resp,
                    struct lk__event *event)
{
	const char *place = lk__resp_redirect(resp);
	lk_err err = lk__resp_error(resp);

	if (place && resp->str[0] == 'M') {
		event->kind = LK__EVENT_MOVED;
		lk__why_set(&event->why, LK_EAGAIN, "%s", place);
	} else if (err == LK_EAGAIN) {
		event->kind = LK__EVENT_PUT_OFF;
	} else {
		event->kind = LK__EVENT_REFUSED;
		lk__why_about(&event->why, err, peer->text, "%sSUBSCRIBE: %s",
		              peer->space->cluster ? "S" : "", resp->str);
	}
}

/* The word behind the 's' of a Cluster: "message" of "smessage", but not "ubscribe". */
static const char *plain(const struct lk__space *space, const char *word)
{
	return space->cluster && word[0] == 's' ? word + 1 : word;
}

static void event_of(struct lk__peer *peer, const void *reply, bool awaits_pong,
                     struct lk__event *event)
{
	const struct lk__redis_peer *of = peer_of(peer);
	const struct lk__resp *resp = reply, *kind, *last;
	const char *word;

	event->kind = LK__EVENT_NONE;
	/* An error reply to PING is a response, too.  It never concerns a slot. */
	if (awaits_pong && !lk__resp_is_of_cluster(resp) &&
	    (resp->type != LK__RESP_ARRAY || resp->len == 2)) {
		event->kind = LK__EVENT_PONG;
		return;
	}
	if (resp->type == LK__RESP_ERROR) {
		refusal(of, resp, event);
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
	word = plain(of->space, kind->str);
	if (!strcmp(word, "message") && last->type == LK__RESP_STRING) {
		payload(of, resp->elements[1], last, event);
	} else if ((!strcmp(word, "subscribe") || !strcmp(word, "unsubscribe")) &&
	           strcmp(event->topic, of->node.channel) != 0) {
		event->kind = LK__EVENT_CONFIRMED;
		event->subscribed = word[0] == 's';
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
	.inbox = inbox_of,
	.route = route,
	.dial = dial,
	.look = look,
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
	.doctor = lk__doctor_examine,
};
