/* SPDX-License-Identifier: MIT
 * Queries of a quorum: all servers that vote are asked at once, and their answers merged.  For a
 * thread inside a call; they release the mutex meanwhile. */
#ifndef LK__API_QUORUM_H
#define LK__API_QUORUM_H

#include "runtime/client.h"

/* As lk__show() and lk__break() of a lock.  The holder is the ticket that a majority names. */
lk_err lk__quorum_show(struct lk__handle *handle, size_t waiters, struct lk__listing **listing);
lk_err lk__quorum_break(struct lk__handle *handle, const char *id, bool *was_held);
/* How long no majority grants anything yet, at that time of their clocks. */
int64_t lk__quorum_grace_ms(const struct lk_client *client, int64_t store_us);
/* A server to be asked for details of clients, NULL = none. */
struct lk__link *lk__quorum_link(const struct lk_client *client);
/* LK__KIND: any kind that a server knows. */
lk_err lk__quorum_kind(struct lk_client *client, const char *name, size_t len, lk_kind *kind);

/* LK__LIST: append the names on each server that votes, some of them more than once. */
lk_err lk__quorum_names(struct lk_client *client, struct lk__names *names);

#endif
