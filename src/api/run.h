/* SPDX-License-Identifier: MIT
 * Releases that report why a hold was lost. */
#ifndef LK__RUN_H
#define LK__RUN_H

#include "runtime/client.h"

/* As lk_lock_release() and lk_semaphore_release(); *lost is written on LK_ELOST only. */
lk_err lk__lock_release(struct lk_lock *lock, lk_lost_reason *lost);
/* True if several threads can own a hold of this handle. */
bool lk__lock_handle_owns(const struct lk_lock *lock);
lk_err lk__semaphore_release(struct lk_semaphore *semaphore, uint64_t hold, lk_lost_reason *lost);

#endif
