/* SPDX-License-Identifier: MIT
 * Holders and waiters of locks and semaphores; and the end of another client's hold.  For a thread
 * inside a call on the handle; they release the mutex meanwhile. */
#ifndef LK__SHOW_H
#define LK__SHOW_H

#include "runtime/client.h"

#define LK__SHOWN_MAX 1000 /* limit of the listed holders, or waiters */

/* Query the first holders and waiters; with only, the holder of that id.  The caller frees
 * *listing.  LK_EABSENT: no such semaphore. */
lk_err lk__show(struct lk__handle *handle, size_t holders, size_t waiters, const char *only,
                struct lk__listing **listing);
/* The party of an entry, without details. */
void lk__party_init(lk_party *party, const struct lk__entry *entry);
/* Fill in the details that the clients of these parties have published; others stay empty, and so
 * do those that come too late for the call. */
lk_err lk__party_describe(struct lk__handle *handle, lk_party *const *parties, size_t count);
/* How long a hold has lasted, by the store's clock; -1 = unknown. */
int64_t lk__held_ms(const struct lk__listing *listing, const struct lk__entry *entry);
/* How much of the grace was left then. */
int64_t lk__grace_ms(const struct lk__handle *handle, const struct lk__listing *listing);
/* End the hold or wait of that lk__entry.id, "" = none, and serve the queue.  *was_held: it was
 * still a holder's. */
lk_err lk__break(struct lk__handle *handle, const char *id, bool *was_held);

#endif
