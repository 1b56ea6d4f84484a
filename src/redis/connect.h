/* SPDX-License-Identifier: MIT
 * A client's two connections to one server, ready for use. */
#ifndef LK__CONNECT_H
#define LK__CONNECT_H

#include "codec.h"
#include "conn.h"

/* Dial both, subscribe to the client's channel, load the scripts, and check that a message which a
 * script publishes arrives there.  This proves that every right is granted and that both
 * connections lead to the same server.  *epoch: the memory that the client found last, then that of
 * this server.
 *
 * LK_OK, or as lk__conn_dial(); no connection is open after an error. */
lk_err lk__connect(const struct lk__target *target, struct lk__tls_shared *tls,
                   const struct lk__space *space, int64_t deadline_ns, int cancel_fd,
                   struct lk__epoch *epoch, struct lk__conn **commands, struct lk__conn **messages,
                   struct lk__why *why);

#endif
