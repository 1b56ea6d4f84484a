/* SPDX-License-Identifier: MIT
 * A client that connects finds the marker of the memory of a Redis in memory, or writes it. */
#ifndef FIND_EPOCH_H
#define FIND_EPOCH_H

#include "core/core.h"
#include "lua_store.h"
#include "redis/codec.h"

/* *epoch: the marker that the client found last, then the present one. */
void find_epoch(struct lua_store *store, const struct lk__space *space, struct lk__epoch *epoch);
/* The same for a link, which is up then. */
void link_up(struct lua_store *store, const struct lk__space *space, struct lk__core *core,
             struct lk__session *session, int64_t now_ns);

#endif
