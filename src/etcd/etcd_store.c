/* SPDX-License-Identifier: MIT
 * The store in etcd: the table of its operations.  A peer is one connection, over which calls and
 * the streams of watches and keep-alives go. */
#include "etcd_store.h"

#include "status.h"

#include "../base/os.h"

#include <stdlib.h>
#include <string.h>

#define READ_BYTES 8192
#define FINISH_NS (1000 * INT64_C(1000000)) /* for the revocation of leases at the end */

static struct lk__etcd_peer *peer_of(struct lk__peer *peer)
{
	return (struct lk__etcd_peer *)peer;
}

/* ---- The store ------------------------------------------------------------------------------ */

static const char refused_rate[] =
	"no rate limit on etcd: a transaction has no clock, and a lease for each permit would have "
	"whole seconds, 2 at least, and end late; use one Redis server";

static struct lk__store *create(const struct lk__target *target, const char *client_id)
{
	struct lk__etcd *etcd = calloc(1, sizeof(*etcd));
	struct lk__etcd_wire wire;
	uint64_t random;

	if (!etcd)
		return NULL;
	wire = lk__etcd_wire_of(etcd);
	etcd->store = (struct lk__store){.ops = &lk__etcd_store,
	                                 .links = 1,
	                                 .refused_rate = refused_rate,
	                                 .fences = LK__ETCD_FENCES,
	                                 .least_lease_ms = LK__ETCD_TTL_MIN_S * 1000,
	                                 .lease_step_ms = 1000};
	etcd->target = target;
	memcpy(etcd->client, client_id, sizeof(etcd->client));
	if (!lk__random(&random, sizeof(random)) || pthread_mutex_init(&etcd->mutex, NULL)) {
		free(etcd);
		return NULL;
	}
	lk__endpoints_init(&etcd->endpoints, target->seed_count ? (unsigned)target->seed_count : 1,
	                   random);
	if (lk__etcd_session_init(&etcd->session, target->prefix, etcd->client, &wire))
		return &etcd->store;
	pthread_mutex_destroy(&etcd->mutex);
	free(etcd);
	return NULL;
}

static void destroy(struct lk__store *store)
{
	struct lk__etcd *etcd = (struct lk__etcd *)store;

	lk__etcd_session_fini(&etcd->session);
	lk__tls_unload(&etcd->tls);
	pthread_mutex_destroy(&etcd->mutex);
	free(etcd);
}

/* The key of the latch, which is watched. */
static void topic_of(const struct lk__store *store, const char *name, size_t len,
                     char topic[LK__TOPIC_MAX])
{
	const struct lk__etcd *etcd = (const struct lk__etcd *)store;

	_Static_assert(LK__ETCD_KEY_MAX <= LK__TOPIC_MAX, "a key fits");
	lk__etcd_noun_key(topic, etcd->target->prefix, LK__ETCD_LATCH, name, len);
}

/* Messages about a lock come to the client's mailbox. */
static bool inbox_of(const struct lk__store *store, const char *name, size_t len,
                     char topic[LK__TOPIC_MAX])
{
	(void)store;
	(void)name;
	(void)len;
	topic[0] = '\0';
	return false;
}

static size_t guard_key(const struct lk__store *store, const char *name, size_t len,
                        const char *nonce, char key[LK_GUARD_KEY_SIZE])
{
	const struct lk__etcd *etcd = (const struct lk__etcd *)store;
	char queue[LK__ETCD_KEY_MAX];

	_Static_assert(LK__ETCD_KEY_MAX <= LK_GUARD_KEY_SIZE, "a key fits");
	lk__etcd_queue_key(queue, etcd->target->prefix, LK__ETCD_LOCK, name, len);
	return lk__etcd_ticket_key(key, queue, etcd->client, nonce);
}

static unsigned route(const struct lk__store *store, const char *name, size_t len)
{
	(void)store;
	(void)name;
	(void)len;
	return 0;
}

/* ---- Connections ---------------------------------------------------------------------------- */

/* The next member, whenever the runtime dials: it has pauses of its own. */
static void aim(struct lk__etcd *etcd, struct lk__target *target)
{
	int64_t now_ns = lk__now_ns();
	int member;

	pthread_mutex_lock(&etcd->mutex);
	if (now_ns < lk__endpoints_due_ns(&etcd->endpoints))
		now_ns = lk__endpoints_due_ns(&etcd->endpoints);
	member = lk__endpoints_next(&etcd->endpoints, now_ns);
	pthread_mutex_unlock(&etcd->mutex);
	if (target->seed_count)
		lk__target_aim(target, target->seeds[member].host, target->seeds[member].port);
}

/* The session uses it from now on. */
static void attach(struct lk__etcd *etcd, struct lk__etcd_peer *peer)
{
	int64_t now_ns = lk__now_ns();

	pthread_mutex_lock(&etcd->mutex);
	lk__endpoints_up(&etcd->endpoints, now_ns);
	etcd->peer = peer;
	lk__etcd_session_up(&etcd->session, now_ns);
	lk__etcd_session_tick(&etcd->session, now_ns);
	pthread_mutex_unlock(&etcd->mutex);
}

/* Is it worth trying another member? */
static bool may_differ(lk_err err)
{
	return err == LK_ECONN || err == LK_ESERVER || err == LK_EMISMATCH;
}

static lk_err dial(struct lk__store *store, unsigned link, const struct lk__target *place,
                   int64_t deadline_ns, int cancel_fd, struct lk__epoch *epoch,
                   struct lk__peer **result, struct lk__why *why)
{
	struct lk__etcd *etcd = (struct lk__etcd *)store;
	struct lk__etcd_peer *peer = NULL;
	struct lk__why of_another = {0};
	lk_err err = LK_ECONN;

	(void)link;
	(void)place;
	*result = NULL;
	for (unsigned left = etcd->endpoints.count; left; left--) {
		struct lk__target target = *etcd->target;
		int64_t now_ns = lk__now_ns();

		target.tls_protocol = "h2";
		aim(etcd, &target);
		err = lk__etcd_connect(etcd, &target, now_ns + (deadline_ns - now_ns) / left,
		                       cancel_fd, &peer, why);
		if (!err)
			break;
		pthread_mutex_lock(&etcd->mutex);
		lk__endpoints_failed(&etcd->endpoints, lk__now_ns());
		pthread_mutex_unlock(&etcd->mutex);
		if (!may_differ(err))
			break;
		if (err == LK_EMISMATCH)
			of_another = *why;
	}
	if (err && of_another.err && may_differ(err)) {
		*why = of_another; /* which waiting does not cure, unless the others return */
		err = why->err = LK_ECONN;
	}
	if (err && etcd->endpoints.count > 1 && may_differ(err)) {
		struct lk__why last = *why;
		lk__why_about(why, err, etcd->target->text, "no member can be used: %s", last.text);
	}
	if (err)
		return err;
	attach(etcd, peer);
	*epoch = (struct lk__epoch){.len = 1, .text = "1"}; /* etcd forgets nothing */
	peer->peer.place = peer->socket.text;
	*result = &peer->peer;
	return LK_OK;
}

static void detach(struct lk__etcd_peer *peer)
{
	struct lk__etcd *etcd = peer->etcd;

	pthread_mutex_lock(&etcd->mutex);
	if (etcd->peer == peer) {
		etcd->peer = NULL;
		lk__etcd_session_down(&etcd->session);
		/* Without a reason of its own it was silent. */
		lk__endpoints_down(&etcd->endpoints, lk__now_ns(), !peer->is_broken || peer->leave);
	}
	pthread_mutex_unlock(&etcd->mutex);
}

static void shut_down(struct lk__peer *peer)
{
	detach(peer_of(peer));
	lk__socket_shutdown(&peer_of(peer)->socket);
}

/* Of a client that ends with its connection, the leases are revoked; else they expire. */
static void close_peer(struct lk__peer *base)
{
	struct lk__etcd_peer *peer = peer_of(base);
	struct lk__etcd *etcd = peer->etcd;
	bool is_end;

	pthread_mutex_lock(&etcd->mutex);
	is_end = etcd->peer == peer;
	if (is_end)
		lk__etcd_session_end(&etcd->session);
	pthread_mutex_unlock(&etcd->mutex);
	if (is_end)
		lk__etcd_finish(peer, lk__now_ns() + FINISH_NS);
	detach(peer);
	lk__etcd_free(peer);
}

static int fd_of(const struct lk__peer *peer, enum lk__side side)
{
	return side == LK__RESPONSES ? ((const struct lk__etcd_peer *)peer)->socket.fd : -1;
}

static int64_t write_bytes(struct lk__peer *peer, enum lk__side side, const char *bytes, size_t len,
                           struct lk__why *why)
{
	(void)side;
	return lk__socket_write(&peer_of(peer)->socket, bytes, len, why);
}

/* Hand bytes to the session; false, with why, if the connection has to end. */
static bool feed(struct lk__etcd_peer *peer, const char *bytes, size_t len, struct lk__why *why)
{
	struct lk__etcd *etcd = peer->etcd;
	int64_t now_ns = lk__now_ns();
	bool good = true;

	pthread_mutex_lock(&etcd->mutex);
	if (etcd->peer == peer) {
		lk__h2_feed(peer->h2, bytes, len, now_ns);
		lk__etcd_take(peer, now_ns);
		good = !peer->is_broken;
		if (!good)
			*why = peer->why;
	}
	pthread_mutex_unlock(&etcd->mutex);
	return good;
}

static int64_t read_bytes(struct lk__peer *base, enum lk__side side, bool wait, struct lk__why *why)
{
	struct lk__etcd_peer *peer = peer_of(base);
	char bytes[READ_BYTES];
	int64_t got, all = 0;

	(void)side;
	(void)wait;
	do {
		got = lk__socket_read(&peer->socket, false, bytes, sizeof(bytes), why);
		if (got < 0 || (got > 0 && !feed(peer, bytes, (size_t)got, why)))
			return -1;
		all += got;
	} while (got > 0 && lk__socket_has_more(&peer->socket));
	return all;
}

/* ---- Requests, time, and what comes --------------------------------------------------------- */

static bool encode(struct lk__peer *base, const struct lk__request *request, struct lk__buf *buf)
{
	struct lk__etcd_peer *peer = peer_of(base);
	struct lk__etcd *etcd = peer->etcd;
	bool done = true; /* of a connection that ends: without an answer */

	(void)buf;
	pthread_mutex_lock(&etcd->mutex);
	if (etcd->peer == peer)
		done = lk__etcd_session_request(&etcd->session, lk__now_ns(), request);
	pthread_mutex_unlock(&etcd->mutex);
	return done;
}

static bool subscribe(struct lk__peer *base, const char *topic, bool on, struct lk__buf *buf)
{
	struct lk__etcd_peer *peer = peer_of(base);
	struct lk__etcd *etcd = peer->etcd;
	bool done = true;

	(void)buf;
	pthread_mutex_lock(&etcd->mutex);
	if (etcd->peer == peer)
		done = lk__etcd_session_subscribe(&etcd->session, topic, on);
	pthread_mutex_unlock(&etcd->mutex);
	return done;
}

static bool ping(struct lk__peer *peer, struct lk__buf *buf)
{
	(void)peer;
	(void)buf;
	return true;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t due_ns(struct lk__peer *base)
{
	struct lk__etcd_peer *peer = peer_of(base);
	struct lk__etcd *etcd = peer->etcd;
	int64_t due = LK__H2_NEVER;

	pthread_mutex_lock(&etcd->mutex);
	if (peer->is_broken)
		due = 0;
	else if (etcd->peer == peer)
		due = least(lk__etcd_session_due_ns(&etcd->session),
		            least(lk__h2_due_ns(peer->h2), lk__etcd_sent_due_ns(peer)));
	pthread_mutex_unlock(&etcd->mutex);
	return due;
}

static bool pump(struct lk__peer *base, int64_t now_ns, struct lk__buf *buf, struct lk__why *why)
{
	struct lk__etcd_peer *peer = peer_of(base);
	struct lk__etcd *etcd = peer->etcd;
	bool good = true;

	pthread_mutex_lock(&etcd->mutex);
	if (etcd->peer == peer) {
		lk__h2_tick(peer->h2, now_ns);
		lk__etcd_take(peer, now_ns);
		lk__etcd_sent_tick(peer, now_ns);
		lk__etcd_session_tick(&etcd->session, now_ns);
		lk__h2_write(peer->h2, buf);
		good = !peer->is_broken;
		if (!good)
			*why = peer->why;
	}
	pthread_mutex_unlock(&etcd->mutex);
	return good;
}

/* Let the text of an error begin with the server, unless it is about a key. */
static void name_server(struct lk__etcd_peer *peer, struct lk__answer *answer)
{
	if (!answer->text)
		return;
	if (answer->err == LK_EFOREIGN)
		lk__why_set(&peer->answer_why, answer->err, "%s", answer->text);
	else
		lk__why_about(&peer->answer_why, answer->err, peer->socket.text, "%s%s",
		              answer->text, lk__etcd_cure(answer->text));
	answer->text = peer->answer_why.text;
}

static enum lk__next next(struct lk__peer *base, struct lk__answer *answer,
                          struct lk__message *message)
{
	struct lk__etcd_peer *peer = peer_of(base);
	struct lk__etcd *etcd = peer->etcd;
	enum lk__next kind = LK__NEXT_NONE;

	pthread_mutex_lock(&etcd->mutex);
	if (etcd->peer != peer)
		kind = LK__NEXT_NONE;
	else if (lk__etcd_session_message(&etcd->session, message))
		kind = LK__NEXT_MESSAGE;
	else if (lk__etcd_session_answer(&etcd->session, answer))
		kind = LK__NEXT_ANSWER;
	if (kind == LK__NEXT_ANSWER)
		name_server(peer, answer);
	pthread_mutex_unlock(&etcd->mutex);
	return kind;
}

static bool topic_event(struct lk__peer *base, struct lk__event *event)
{
	struct lk__etcd_peer *peer = peer_of(base);
	struct lk__etcd *etcd = peer->etcd;
	bool has_event;

	pthread_mutex_lock(&etcd->mutex);
	has_event = etcd->peer == peer && lk__etcd_session_event(&etcd->session, event);
	pthread_mutex_unlock(&etcd->mutex);
	return has_event;
}

static void fill(struct lk__peer *base, void *into, struct lk__answer *answer)
{
	struct lk__etcd_peer *peer = peer_of(base);
	struct lk__etcd *etcd = peer->etcd;
	enum lk__answer_kind before = answer->kind;

	pthread_mutex_lock(&etcd->mutex);
	lk__etcd_session_fill(&etcd->session, into, answer);
	if (answer->kind != before)
		name_server(peer, answer);
	pthread_mutex_unlock(&etcd->mutex);
}

const struct lk__store_ops lk__etcd_store = {
	.create = create,
	.destroy = destroy,
	.topic = topic_of,
	.inbox = inbox_of,
	.guard_key = guard_key,
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
	.due_ns = due_ns,
	.pump = pump,
	.next = next,
	.topic_event = topic_event,
	.fill = fill,
	.doctor = lk__etcd_doctor,
};
