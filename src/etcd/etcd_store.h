/* SPDX-License-Identifier: MIT
 * The store in etcd: what its files share.  A client has one session, which outlives connections,
 * and one connection to any of the members. */
#ifndef LK__ETCD_STORE_H
#define LK__ETCD_STORE_H

#include "../net/secure.h"
#include "../store.h"
#include "endpoints.h"
#include "h2.h"
#include "session.h"

#include <pthread.h>

struct lk__etcd {
	struct lk__store store;          /* first */
	const struct lk__target *target; /* the client's */
	char client[LK__CLIENT_ID_SIZE];
	/* The dialling thread's: */
	struct lk__tls_shared tls;
	uint64_t cluster_id;             /* of the members that were used, 0 = none was */
	char first_used[LK__PLACE_SIZE]; /* the first of them */
	/* A leaf: no I/O and no other lock under it.  It guards everything below, and what the
	 * peer's h2 has. */
	pthread_mutex_t mutex;
	struct lk__endpoints endpoints;
	struct lk__etcd_session session;
	struct lk__etcd_peer *peer; /* that the session uses, NULL = it is down */
};

/* A call of the session without an answer. */
struct lk__etcd_sent {
	struct lk__etcd_sent *next;
	uint32_t call;       /* as the session numbers it */
	uint32_t id;         /* as h2 does */
	bool is_stream;      /* of one message and one answer */
	int64_t deadline_ns; /* of a stream: h2 minds those of calls */
};

struct lk__etcd_peer {
	struct lk__peer peer; /* first */
	struct lk__etcd *etcd;
	struct lk__socket socket;
	struct lk__h2 *h2;
	bool has_read;  /* anything */
	uint32_t watch; /* the stream of watches, 0 = not open */
	struct lk__etcd_sent *sent;
	bool is_broken;            /* the connection has to end: why */
	bool leave;                /* ... and the member cannot help for now */
	struct lk__why why;        /* the same */
	struct lk__why answer_why; /* of the answer that was taken last */
	char warning[200];
};

extern const struct lk__store_ops lk__etcd_store;

/* connect.c: I/O, without the mutex.  Connect to the member that target names, log in, and ask how
 * it is, by deadline_ns; the errors of lk__dial_each(), LK_EAUTH, and LK_EMISMATCH: it is of
 * another cluster than the members before. */
lk_err lk__etcd_connect(struct lk__etcd *etcd, const struct lk__target *target, int64_t deadline_ns,
                        int cancel_fd, struct lk__etcd_peer **peer, struct lk__why *why);
/* The same for the doctor: without asking how it is. */
lk_err lk__etcd_reach(struct lk__etcd *etcd, const struct lk__target *target, int64_t deadline_ns,
                      struct lk__etcd_peer **peer, struct lk__why *why);
/* Make a call over a connection that no session uses, and wait for its end: event. */
lk_err lk__etcd_await(struct lk__etcd_peer *peer, const char *path, struct lk__bytes message,
                      int64_t deadline_ns, int cancel_fd, struct lk__h2_event *event,
                      struct lk__why *why);
/* Write the bytes that h2 has, and read for a while, until no call is left, or until deadline_ns.
 */
void lk__etcd_finish(struct lk__etcd_peer *peer, int64_t deadline_ns);
void lk__etcd_free(struct lk__etcd_peer *peer);

/* doctor.c: lk_doctor() for members of etcd. */
lk_err lk__etcd_doctor(struct lk__target *target, const lk_client_options *options,
                       lk_finding_fn *fn, void *arg, lk_fitness *worst, struct lk__why *why);

/* peer.c, all with the mutex. */
struct lk__etcd_wire lk__etcd_wire_of(struct lk__etcd *etcd);
/* The connection has to end. */
void lk__etcd_break(struct lk__etcd_peer *peer, bool leave, const struct lk__why *why);
/* Hand what has come to the session. */
void lk__etcd_take(struct lk__etcd_peer *peer, int64_t now_ns);
/* The time of streams. */
int64_t lk__etcd_sent_due_ns(const struct lk__etcd_peer *peer);
void lk__etcd_sent_tick(struct lk__etcd_peer *peer, int64_t now_ns);

#endif
