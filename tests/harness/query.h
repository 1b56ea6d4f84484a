/* SPDX-License-Identifier: MIT
 * Operators and other clients, on a Redis in memory: each query has the bytes that the library
 * sends, and is answered at once. */
#ifndef QUERY_H
#define QUERY_H

#include "lua_store.h"
#include "redis/codec.h"

/* The grace that they know, at first none. */
void query_grace(int64_t grace_ms);
/* From now on the stores are parts of a Cluster's nodes: the marker is in that one; NULL = they are
 * not. */
void query_cluster(struct lua_store *memory);
/* details: see lk__details.  The answer has no text. */
struct lk__answer query_run(struct lua_store *store, enum lk__request_kind kind, lk_kind noun,
                            const char *name, const struct lk__details *details);
/* End the hold with that ticket, "" = none, and serve the queue, again as long as the answer asks
 * for it. */
void query_break(struct lua_store *store, lk_kind noun, const char *name, const char *ticket);
/* Set a semaphore's capacity, and serve its queue.  must_exist: false = create it. */
struct lk__answer query_size(struct lua_store *store, const char *name, bool must_exist,
                             int64_t capacity, int64_t ttl_ms);
/* Append the bytes of such a query, for a client to send. */
void query_append(struct lk__buf *bytes, const struct lk__space *space, enum lk__request_kind kind,
                  lk_kind noun, const char *name, const struct lk__details *details);

#endif
