/* SPDX-License-Identifier: MIT
 * The seam between a client and what keeps its shared state.  A store fills in this table; it has
 * no threads and no timers of its own.  The client's threads own the descriptors' readiness, the
 * order of requests in flight and the retries; the core owns what is asked and when.
 *
 *   store  what a URL names; knows how keys and channels are called
 *   peer   one server, reached: a stream of responses and a stream of messages, each with a
 *          descriptor.  They may be one and the same */
#ifndef LK__STORE_H
#define LK__STORE_H

#include "base/buf.h"
#include "core/request.h"
#include "base/error.h"
#include "base/url.h"

#define LK__CLIENT_ID_SIZE 23
#define LK__TOPIC_MAX (3 * LK_NAME_MAX + 64) /* with its NUL */

enum lk__side { LK__RESPONSES, LK__MESSAGES };

enum lk__event_kind {
	LK__EVENT_NONE,      /* of no concern */
	LK__EVENT_PONG,      /* the answer to a PING */
	LK__EVENT_MESSAGE,   /* to this client: message */
	LK__EVENT_PUBLISHED, /* on a topic: message */
	LK__EVENT_CONFIRMED, /* a topic's subscription or its end: subscribed */
	LK__EVENT_REFUSED,   /* the oldest command of topics in flight: why */
	LK__EVENT_PUT_OFF,   /* the same, and it may succeed later */
};

struct lk__event {
	enum lk__event_kind kind;
	bool subscribed;
	const char *topic; /* borrowed from the reply */
	size_t topic_len;
	struct lk__message message;
	struct lk__why why;
};

struct lk__store {
	const struct lk__store_ops *ops;
	unsigned links; /* servers; each is dialled, and fails, on its own */
};

struct lk__peer {
	bool can_wait; /* read() with wait works on the side of responses */
};

/* "raw": does I/O on a descriptor, and is called without the client's mutex; one thread at a time
 * for each side and direction.  All others do no I/O. */
struct lk__store_ops {
	/* NULL when out of memory.  The target outlives the store. */
	struct lk__store *(*create)(const struct lk__target *target, const char *client_id);
	void (*destroy)(struct lk__store *store);
	/* The topic on which a latch of that name is published, NUL-ended. */
	void (*topic)(const struct lk__store *store, const char *name, size_t len,
	              char topic[LK__TOPIC_MAX]);
	/* The link by which requests about that name go, below store->links. */
	unsigned (*route)(const struct lk__store *store, const char *name, size_t len);

	/* Reach that link's server, for one server at that place: log in, hear this client's
	 * messages, and see that both streams lead to the same.  All by deadline_ns; ends with
	 * LK_ECONN as soon as cancel_fd is readable.  Raw. */
	lk_err (*dial)(struct lk__store *store, unsigned link, const struct lk__target *place,
	               int64_t deadline_ns, int cancel_fd, struct lk__peer **peer,
	               struct lk__why *why);
	/* Ends both streams at once: whoever reads or writes comes back. */
	void (*shutdown)(struct lk__peer *peer);
	void (*close)(struct lk__peer *peer);
	int (*fd)(const struct lk__peer *peer, enum lk__side side);

	/* Bytes taken, 0 when the descriptor takes none now, -1 with why.  Raw. */
	int64_t (*write)(struct lk__peer *peer, enum lk__side side, const char *bytes, size_t len,
	                 struct lk__why *why);
	/* Take in what has come: above 0 if something has, 0 if not, -1 with why.  wait: for a few
	 * milliseconds, where the peer can.  Raw. */
	int64_t (*read)(struct lk__peer *peer, enum lk__side side, bool wait, struct lk__why *why);

	/* Append a request, a topic's command or a PING (for the side of messages).  False when out
	 * of memory.  Responses come in the order of requests. */
	bool (*encode)(struct lk__peer *peer, const struct lk__request *request,
	               struct lk__buf *buf);
	bool (*subscribe)(struct lk__peer *peer, const char *topic, bool on, struct lk__buf *buf);
	bool (*ping)(struct lk__peer *peer, struct lk__buf *buf);

	/* The next replies among what was read, up to max.  *err when the stream makes no sense.
	 * Called as read() is. */
	size_t (*parse)(struct lk__peer *peer, enum lk__side side, void **replies, size_t max,
	                lk_err *err, struct lk__why *why);
	/* Decode a reply and free it.  query: NULL unless the request is one; into: what its
	 * answer fills in.  False: the server does not know the request's script.  answer->text
	 * borrows why->text. */
	bool (*answer)(struct lk__peer *peer, void *reply, const struct lk__request *query,
	               void *into, struct lk__answer *answer, struct lk__why *why);
	/* What a reply on the side of messages is; awaits_pong: a PING has no answer yet.  The
	 * reply stays, and what is borrowed from it. */
	void (*event)(struct lk__peer *peer, const void *reply, bool awaits_pong,
	              struct lk__event *event);
	void (*discard)(void *reply);
};

/* The store of that target.  stores.c, the one file that names stores. */
const struct lk__store_ops *lk__store_of(const struct lk__target *target);
/* Clients that open from now on use that one, NULL = as usual.  For tests of the seam. */
void lk__store_use(const struct lk__store_ops *ops);

#endif
