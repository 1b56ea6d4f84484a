/* SPDX-License-Identifier: MIT
 * What conn.c and dial.c share. */
#ifndef LK__DIAL_H
#define LK__DIAL_H

#include "conn.h"

/* As lk__conn_pipeline(), but the replies that came before a failure are left in resps. */
lk_err lk__conn_exchange(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd,
                         const struct lk__buf *buf, size_t count, struct lk__resp **resps,
                         struct lk__why *why);

#endif
