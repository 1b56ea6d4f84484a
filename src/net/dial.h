/* SPDX-License-Identifier: MIT
 * From a target to a connected socket.  All functions end by deadline_ns, and with LK_ECONN
 * "canceled" as soon as cancel_fd (-1 = none) is readable. */
#ifndef LK__DIAL_H
#define LK__DIAL_H

#include "../base/url.h"
#include "resolve.h"
#include "socket.h"

/* Connect to one address of target and set the socket's options.
 *
 * LK_OK, LK_ECONN, LK_ESYSTEM, LK_ENOMEM */
lk_err lk__socket_connect(const struct lk__target *target, const struct lk__address *address,
                          int64_t deadline_ns, int cancel_fd, struct lk__socket *result,
                          struct lk__why *why);

/* Connect to address, greet the server and log in, as its protocol requires. */
typedef lk_err lk__dial_address_fn(void *context, const struct lk__address *address,
                                   int64_t deadline_ns, struct lk__why *why);

/* Call dial for one address of target after the other, each with its share of the time, until the
 * result is not LK_ECONN.  The name look-up runs in a thread of its own, which is detached if it is
 * late.  Stores the address that worked in *address (may be NULL).
 *
 * The result of dial, or LK_ECONN, LK_ESYSTEM, LK_ENOMEM */
lk_err lk__dial_each(const struct lk__target *target, int64_t deadline_ns, int cancel_fd,
                     lk__dial_address_fn *dial, void *context, struct lk__address *address,
                     struct lk__why *why);

#endif
