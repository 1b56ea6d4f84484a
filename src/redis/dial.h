/* SPDX-License-Identifier: MIT
 * What conn.c and dial.c share. */
#ifndef LK__DIAL_H
#define LK__DIAL_H

#include "conn.h"

/* "<text>: <words>": text is escaped already, the words are escaped here.  Returns err. */
lk_err lk__conn_why(struct lk__why *why, lk_err err, const char *text, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The words being those of an errno in lower case, and what it came at, "" if that is clear. */
lk_err lk__conn_why_errno(struct lk__why *why, lk_err err, const char *text, int number,
                          const char *at);

/* As lk__conn_pipeline(), but the replies that came before a failure are left in resps. */
lk_err lk__conn_exchange(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd,
                         const struct lk__buf *buf, size_t count, struct lk__resp **resps,
                         struct lk__why *why);

#endif
