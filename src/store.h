/* SPDX-License-Identifier: MIT
 * The seam between a client and its store, which keeps the shared state.  A store implements this
 * table; it has no threads and no timers of its own.  The runtime owns the readiness of
 * descriptors, the order of requests in flight, and retries; the core decides which requests are
 * sent, and when.
 *
 *   store  named by a URL; defines the names of keys and channels
 *   peer   one connected server: a stream of responses and a stream of messages, each with a
 *          descriptor; or one stream for both, which the store understands by itself (next) */
#ifndef LK__STORE_H
#define LK__STORE_H

#include "base/buf.h"
#include "core/request.h"
#include "base/error.h"
#include "base/url.h"

#define LK__CLIENT_ID_SIZE 23
#define LK__TOPIC_MAX (3 * LK_NAME_MAX + 80) /* with its NUL */

enum lk__side { LK__RESPONSES, LK__MESSAGES };

enum lk__event_kind {
	LK__EVENT_NONE,      /* ignore it */
	LK__EVENT_PONG,      /* the response to a PING */
	LK__EVENT_MESSAGE,   /* to this client: message */
	LK__EVENT_PUBLISHED, /* on a topic: message */
	LK__EVENT_CONFIRMED, /* a topic's subscription or its end is in force: subscribed */
	LK__EVENT_REFUSED,   /* the oldest topic command in flight was refused: why */
	LK__EVENT_PUT_OFF,   /* the same, and it may succeed later */
	LK__EVENT_MOVED,     /* the same, by a Cluster: why.text is "<slot> <host>:<port>" */
};

struct lk__event {
	enum lk__event_kind kind;
	bool subscribed;
	const char *topic; /* borrowed from the reply */
	size_t topic_len;
	struct lk__message message;
	struct lk__why why;
};

#define LK__KINDS 4 /* values of lk_kind */

struct lk__store {
	const struct lk__store_ops *ops;
	unsigned links; /* servers; each is dialled, and fails, independently */
	/* Why names of a kind, by lk_kind, are refused; NULL = none is, or not that kind. */
	const char *const *refusals;
	/* Why permits that are never released are refused, NULL = they are not. */
	const char *refused_rate;
	uint32_t fences; /* as lk__session.fences */
	/* A renewed lease is rounded up to these; 0 = any is kept. */
	int64_t least_lease_ms, lease_step_ms;
};

struct lk__sentinel_conn;

struct lk__peer {
	bool can_wait;       /* read() with wait works on LK__RESPONSES */
	const char *warning; /* to log once it is connected, the peer's; NULL = none */
	const char *place;   /* the server that the store has chosen, the peer's; NULL = none */
	/* The Cluster that the server is a node of, NULL = none.  The runtime takes and frees it.
	 */
	struct lk__topology *topology;
	int node; /* which of its nodes the server is, -1 = unknown */
};

enum lk__next {
	LK__NEXT_NONE,
	LK__NEXT_ANSWER, /* to the oldest request in flight */
	LK__NEXT_MESSAGE,
};

/* "Raw" functions do I/O on a descriptor.  Call them without the client's mutex, one thread at a
 * time for each side and direction.  All others do no I/O. */
struct lk__store_ops {
	/* NULL when out of memory.  The target outlives the store. */
	struct lk__store *(*create)(const struct lk__target *target, const char *client_id);
	void (*destroy)(struct lk__store *store);
	/* The topic for messages about the latch of that name, NUL-ended. */
	void (*topic)(const struct lk__store *store, const char *name, size_t len,
	              char topic[LK__TOPIC_MAX]);
	/* The topic for messages to this client about that name, NUL-ended.  False if there is
	 * none: they come without a subscription. */
	bool (*inbox)(const struct lk__store *store, const char *name, size_t len,
	              char topic[LK__TOPIC_MAX]);
	/* The key of a lock's ticket, whose creation is fence / fences; NUL-ended, and returns its
	 * length.  NULL: there is none that the user's own transactions can compare. */
	size_t (*guard_key)(const struct lk__store *store, const char *name, size_t len,
	                    const char *nonce, char key[LK_GUARD_KEY_SIZE]);
	/* The link for requests about that name, less than store->links. */
	unsigned (*route)(const struct lk__store *store, const char *name, size_t len);

	/* Connect to that link's server at place: log in, subscribe to this client's messages,
	 * check that both streams lead to the same server.  *epoch: the memory that the link found
	 * last, then that of this server.  All by deadline_ns; returns LK_ECONN as soon as
	 * cancel_fd is readable.  On an error *peer is NULL, or has only a topology: close it.
	 * Raw. */
	lk_err (*dial)(struct lk__store *store, unsigned link, const struct lk__target *place,
	               int64_t deadline_ns, int cancel_fd, struct lk__epoch *epoch,
	               struct lk__peer **peer, struct lk__why *why);
	/* Ask the Cluster's node at place for the topology, over a connection of its own.  Raw. */
	lk_err (*look)(struct lk__store *store, unsigned link, const struct lk__target *place,
	               int64_t deadline_ns, int cancel_fd, struct lk__topology *topology,
	               struct lk__why *why);
	/* Shut both streams down: threads that read or write return. */
	void (*shutdown)(struct lk__peer *peer);
	void (*close)(struct lk__peer *peer);
	int (*fd)(const struct lk__peer *peer, enum lk__side side);

	/* Returns bytes written, 0 when the descriptor takes none now, -1 with why.  Raw. */
	int64_t (*write)(struct lk__peer *peer, enum lk__side side, const char *bytes, size_t len,
	                 struct lk__why *why);
	/* Read the available bytes.  Returns above 0 if there are any, 0 if not, -1 with why. wait:
	 * block for a few milliseconds, where the peer can.  Raw. */
	int64_t (*read)(struct lk__peer *peer, enum lk__side side, bool wait, struct lk__why *why);

	/* Append a request, a topic's command or a PING (on LK__MESSAGES).  False when out of
	 * memory.  Responses arrive in the order of requests. */
	bool (*encode)(struct lk__peer *peer, const struct lk__request *request,
	               struct lk__buf *buf);
	bool (*subscribe)(struct lk__peer *peer, const char *topic, bool on, struct lk__buf *buf);
	bool (*ping)(struct lk__peer *peer, struct lk__buf *buf);

	/* Parse the next replies from the bytes read, up to max.  *err is set when the stream is
	 * malformed.  Same calling rules as read(). */
	size_t (*parse)(struct lk__peer *peer, enum lk__side side, void **replies, size_t max,
	                lk_err *err, struct lk__why *why);
	/* Decode a reply and free it.  query: NULL unless the request is one; into: the structure
	 * that its answer fills.  False: the server does not know the request's script.
	 * answer->text borrows why->text. */
	bool (*answer)(struct lk__peer *peer, void *reply, const struct lk__request *query,
	               void *into, struct lk__answer *answer, struct lk__why *why);
	/* Classify a reply on LK__MESSAGES; awaits_pong: a PING has no response yet.  The event
	 * borrows from the reply, which the caller frees. */
	void (*event)(struct lk__peer *peer, const void *reply, bool awaits_pong,
	              struct lk__event *event);
	void (*discard)(void *reply);

	/* Of a store whose peers have one stream for both sides, LK__RESPONSES; else NULL.  The
	 * background thread reads it, always.  read() makes of the bytes what next() then returns,
	 * and so may encode() and pump(): no reply is parsed, and encode() need not append
	 * anything.
	 *
	 * due_ns: when pump() has something to do by itself, LK__NEVER.  pump: do it, and append
	 * all bytes to send.  False, with why, if the connection has to end. */
	int64_t (*due_ns)(struct lk__peer *peer);
	bool (*pump)(struct lk__peer *peer, int64_t now_ns, struct lk__buf *buf,
	             struct lk__why *why);
	/* Take what has come for the core; answer->text is valid until the next call. */
	enum lk__next (*next)(struct lk__peer *peer, struct lk__answer *answer,
	                      struct lk__message *message);
	/* Take what has come about a topic; it is valid until the next call.  NULL: nothing does.
	 */
	bool (*topic_event)(struct lk__peer *peer, struct lk__event *event);
	/* Fill the structure of the query whose answer was taken last, into; NULL: its caller has
	 * returned.  It may make the answer a failure. */
	void (*fill)(struct lk__peer *peer, void *into, struct lk__answer *answer);

	/* As lk_doctor(), with a target that was parsed; it may be aimed elsewhere. */
	lk_err (*doctor)(struct lk__target *target, const lk_client_options *options,
	                 lk_finding_fn *fn, void *arg, lk_fitness *worst, struct lk__why *why);

	/* The conversation with one of the target's sentinels, by one thread: connect to it; ask
	 * for the master, and to hear of changes; wait for the next report, LK__REPORT_NONE at
	 * deadline_ns or as soon as cancel_fd is readable.  Raw. */
	lk_err (*sentinel_open)(struct lk__store *store, unsigned index, int64_t deadline_ns,
	                        int cancel_fd, struct lk__sentinel_conn **conn,
	                        struct lk__why *why);
	lk_err (*sentinel_ask)(struct lk__sentinel_conn *conn, int64_t deadline_ns, int cancel_fd,
	                       struct lk__why *why);
	lk_err (*sentinel_next)(struct lk__sentinel_conn *conn, int64_t deadline_ns, int cancel_fd,
	                        struct lk__report *report, struct lk__why *why);
	void (*sentinel_close)(struct lk__sentinel_conn *conn);
};

/* The store of that target, or NULL with why.  In stores.c, the only file that names stores. */
const struct lk__store_ops *lk__store_of(const struct lk__target *target, struct lk__why *why);
/* Make clients that open from now on use that store, NULL = the default.  For tests. */
void lk__store_use(const struct lk__store_ops *ops);

#endif
