/* SPDX-License-Identifier: MIT
 * Queries about a semaphore, and changes to it without a hold.  For a thread inside a call on the
 * handle; they release the mutex meanwhile. */
#ifndef LK__SEMAPHORE_QUERY_H
#define LK__SEMAPHORE_QUERY_H

#include "runtime/client.h"

/* Open it, or with must_exist resize it; *result is its capacity afterwards. */
lk_err lk__permits_size(struct lk__handle *handle, bool must_exist, int64_t capacity,
                        int64_t *result);
lk_err lk__permits_query(struct lk__handle *handle, lk_semaphore_status *status);
lk_err lk__permits_list(struct lk__handle *handle, bool holders, size_t max, lk_ticket *list,
                        size_t *count);
lk_err lk__permits_break(struct lk__handle *handle, const char *if_holder);

#endif
