/* SPDX-License-Identifier: MIT
 * The conversation with one sentinel, which names the master of a service.  All functions block;
 * one thread uses a conversation. */
#ifndef LK__REDIS_SENTINEL_H
#define LK__REDIS_SENTINEL_H

#include "../core/request.h"
#include "conn.h"

struct lk__sentinel_conn;

/* Connect to that sentinel of target, with the sentinels' own user and password, by deadline_ns.
 * As lk__conn_dial(). */
lk_err lk__sentinel_open(const struct lk__target *target, unsigned index, int64_t deadline_ns,
                         int cancel_fd, struct lk__sentinel_conn **conn, struct lk__why *why);
/* Send another command, before lk__sentinel_ask().  As lk__conn_call(). */
lk_err lk__sentinel_call(struct lk__sentinel_conn *conn, int64_t deadline_ns, int argc,
                         const char *const *argv, struct lk__resp **resp, struct lk__why *why);
/* Ask for the master, and subscribe to its changes.  May be repeated when the last question was
 * answered.  LK_OK, LK_ECONN, LK_ENOMEM. */
lk_err lk__sentinel_ask(struct lk__sentinel_conn *conn, int64_t deadline_ns, int cancel_fd,
                        struct lk__why *why);
/* The next report; LK__REPORT_NONE at deadline_ns, or as soon as cancel_fd is readable.  LK_OK,
 * LK_ECONN (lost), LK_EAUTH (a right is missing), LK_EINVALID (no sentinel), LK_ESERVER,
 * LK_ENOMEM. */
lk_err lk__sentinel_next(struct lk__sentinel_conn *conn, int64_t deadline_ns, int cancel_fd,
                         struct lk__report *report, struct lk__why *why);
/* NULL is a no-op. */
void lk__sentinel_close(struct lk__sentinel_conn *conn);

/* A server refused a command that every Redis knows: if it is a sentinel, say so in why and return
 * LK_EINVALID, else return why->err. */
lk_err lk__sentinel_blame(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd,
                          struct lk__why *why);

#endif
