/* SPDX-License-Identifier: MIT
 * The store in one Redis server. */
#ifndef LK__REDIS_STORE_H
#define LK__REDIS_STORE_H

#include "../store.h"
#include "../net/tls.h"
#include "codec.h"

struct lk__redis {
	struct lk__store store; /* first */
	struct lk__space space;
	const struct lk__target *target; /* the client's */
	struct lk__tls_shared tls;       /* of its link; the dialling thread's */
};

/* Everything for encoding requests and decoding replies.  A store with another transport adds its
 * own dial, shutdown, close, fd, write and read. */
struct lk__redis_peer {
	struct lk__peer peer; /* first */
	const struct lk__redis *redis;
	struct lk__resp_reader *readers[2]; /* by enum lk__side; borrowed, filled by read() */
	char text[200];                     /* names the server in error texts */
};

extern const struct lk__store_ops lk__redis_store;

#endif
