/* SPDX-License-Identifier: MIT
 * The store in one Redis server. */
#ifndef LK__REDIS_STORE_H
#define LK__REDIS_STORE_H

#include "../store.h"
#include "../net/tls.h"
#include "cluster.h"
#include "codec.h"

#include <stdatomic.h>

struct lk__redis {
	struct lk__store store;          /* first */
	struct lk__space space;          /* of a single server */
	struct lk__space divided;        /* of a Cluster */
	atomic_bool is_cluster;          /* by the URL, or by what a plain URL led to; for good */
	bool was_server;                 /* a dial of a plain URL has succeeded */
	const struct lk__target *target; /* the client's */
	struct lk__tls_shared tls[LK__NODES_MAX]; /* of each link; its dialling thread's */
};

/* Everything for encoding requests and decoding replies.  A store with another transport adds its
 * own dial, shutdown, close, fd, write and read. */
struct lk__redis_peer {
	struct lk__peer peer; /* first */
	const struct lk__redis *redis;
	const struct lk__space *space;      /* one of the store's */
	struct lk__member node;             /* of a Cluster; under the client's mutex */
	struct lk__resp_reader *readers[2]; /* by enum lk__side; borrowed, filled by read() */
	char text[200];                     /* names the server in error texts */
};

extern const struct lk__store_ops lk__redis_store;

#endif
