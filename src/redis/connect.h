/* SPDX-License-Identifier: MIT
 * A client's two connections to one server, ready for use. */
#ifndef LK__CONNECT_H
#define LK__CONNECT_H

#include "codec.h"
#include "conn.h"

/* Dial both, subscribe the client's channel, load the scripts, and see that a script's message to
 * that channel arrives at a subscriber: then every right is there and both stand on one server.
 *
 * LK_OK, or as lk__conn_dial(); nothing is left open then. */
lk_err lk__connect(const struct lk__target *target, const struct lk__space *space,
                   int64_t deadline_ns, int cancel_fd, struct lk__conn **commands,
                   struct lk__conn **messages, struct lk__why *why);

#endif
