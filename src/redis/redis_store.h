/* SPDX-License-Identifier: MIT
 * The store in one Redis server. */
#ifndef LK__REDIS_STORE_H
#define LK__REDIS_STORE_H

#include "../store.h"
#include "codec.h"

struct lk__redis {
	struct lk__store store; /* first */
	struct lk__space space;
};

/* All that turning requests into bytes and bytes into replies needs.  A store that carries the
 * bytes in another way puts its own dial, shutdown, close, fd, write and read around this. */
struct lk__redis_peer {
	struct lk__peer peer; /* first */
	const struct lk__redis *redis;
	struct lk__resp_reader *readers[2]; /* by enum lk__side; borrowed from what read() feeds */
	char text[200];                     /* names the server in messages */
};

extern const struct lk__store_ops lk__redis_store;

#endif
