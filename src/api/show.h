/* SPDX-License-Identifier: MIT
 * Who holds and who waits, for locks and semaphores; and the end of a hold of another.  All are for
 * a thread inside a call on the handle; the mutex is given up meanwhile. */
#ifndef LK__SHOW_H
#define LK__SHOW_H

#include "runtime/client.h"

#define LK__SHOWN_MAX 1000 /* holders, or waiters, that are listed at most */

/* Ask for the first holders and waiters; with only, for the one holder of that id.  *listing is the
 * caller's to free.  LK_EABSENT: there is no such semaphore. */
lk_err lk__show(struct lk__handle *handle, size_t holders, size_t waiters, const char *only,
                struct lk__listing **listing);
/* The party of an entry, not described yet. */
void lk__party_init(lk_party *party, const struct lk__entry *entry);
/* Fill in what the clients of these parties say of themselves; what they do not say stays empty. */
lk_err lk__party_describe(struct lk__handle *handle, lk_party *const *parties, size_t count);
/* How long a hold lasts already, by the store's clock. */
int64_t lk__held_ms(const struct lk__listing *listing, const struct lk__entry *entry);
/* End the hold or wait of that lk__entry.id, "" = none, and have served who can be.  *was_held: it
 * was a holder's still. */
lk_err lk__break(struct lk__handle *handle, const char *id, bool *was_held);

#endif
