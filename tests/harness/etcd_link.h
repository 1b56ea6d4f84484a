/* SPDX-License-Identifier: MIT
 * A connection of the library's parts to a real etcd: its sockets, its TLS, its gRPC; driven by the
 * test's own thread. */
#ifndef ETCD_LINK_H
#define ETCD_LINK_H

#include "base/url.h"
#include "etcd/h2.h"
#include "etcd/messages.h"
#include "etcd/status.h"
#include "net/secure.h"

#define ETCD_WAIT_MS 20000 /* for what comes at once on a machine that is not loaded */

#define ETCD_KV "/etcdserverpb.KV/"
#define ETCD_LEASE "/etcdserverpb.Lease/"
#define ETCD_WATCH "/etcdserverpb.Watch/Watch"

struct etcd_link {
	struct lk__target target;
	struct lk__tls_shared shared;
	struct lk__socket socket;
	struct lk__h2 *h2;
	int64_t ahead_ns;   /* of the clock, as the connection sees it */
	int64_t call_ms;    /* the deadline of a call, 0 = ETCD_WAIT_MS */
	struct lk__buf out; /* bytes to send, of which that many were written */
	size_t written;
	struct lk__pb_writer writer; /* of etcd_message() */
	unsigned char request[8192];
	struct lk__buf answer;     /* of etcd_ask() */
	char text[LK__GRPC_TEXT];  /* of its status */
	struct lk__h2_event event; /* of etcd_next() */
	struct lk__why why;
};

/* Connect to 127.0.0.1; the target's members for TLS are set, the rest of the link is zero.  The
 * reason of a failure is in link->why. */
lk_err etcd_link_open(struct etcd_link *link, int port);
void etcd_link_close(struct etcd_link *link);

/* A writer for the next request. */
struct lk__pb_writer *etcd_message(struct etcd_link *link);
/* Send it as a call of path. */
uint32_t etcd_call(struct etcd_link *link, const char *path);
/* Send it as a message of a stream. */
void etcd_send(struct etcd_link *link, uint32_t stream);
uint32_t etcd_open(struct etcd_link *link, const char *path);

/* The next event within ms, in link->event; false if none comes. */
bool etcd_next(struct etcd_link *link, int64_t ms);
/* Send the request as a call, and read its answer, whose bytes are valid until the next call. Fails
 * the test unless it is the next event.  The second one returns what an error means. */
void etcd_ask(struct etcd_link *link, const char *path, const struct lk__pb_shape *shape,
              void *answer);
enum lk__etcd_meaning etcd_ask_in_vain(struct etcd_link *link, const char *path);
/* The next event is a message of that stream: read it. */
void etcd_hear(struct etcd_link *link, uint32_t stream, const struct lk__pb_shape *shape,
               void *message);

#endif
