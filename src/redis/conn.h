/* SPDX-License-Identifier: MIT
 * One connection to one Redis server: log-in, commands and replies. */
#ifndef LK__CONN_H
#define LK__CONN_H

#include "../base/error.h"
#include "../base/url.h"
#include "../net/resolve.h"
#include "../net/socket.h"
#include "../net/tls.h"
#include "resp.h"

#include <stdbool.h>
#include <stdint.h>

#define LK__ONE_DATABASE "a Cluster has only database 0"

struct lk__conn {
	struct lk__socket socket;
	struct lk__resp_reader *reader;
	bool has_ended; /* a read has failed */
};

/* Connect to target, with TLS if target says so, and log in (AUTH, SELECT if db > 0, CLIENT SETNAME
 * best effort), all by deadline_ns; returns LK_ECONN "canceled" as soon as cancel_fd (-1 = none) is
 * readable. Tries every address of the host in turn.  Name look-up runs in a thread of its own,
 * which is detached if it is late.  Stores the address that worked in *address (may be NULL). tls:
 * what the link's connections share; for one that is alone, all zero.  The caller ends it by
 * lk__tls_unload().
 *
 * LK_OK, LK_ECONN, LK_EAUTH, LK_ESERVER, LK_EINVALID (a file of TLS), LK_ESYSTEM, LK_ENOMEM */
lk_err lk__conn_dial(const struct lk__target *target, struct lk__tls_shared *tls,
                     int64_t deadline_ns, int cancel_fd, struct lk__conn **conn,
                     struct lk__address *address, struct lk__why *why);
/* The same, to an address that is known already, after lk__conn_dial(). */
lk_err lk__conn_dial_address(const struct lk__target *target, struct lk__tls_shared *tls,
                             const struct lk__address *address, int64_t deadline_ns, int cancel_fd,
                             struct lk__conn **conn, struct lk__why *why);

/* Send one command and read its reply, which may be an error reply.  LK_OK with *resp, LK_ECONN (no
 * byte was sent), LK_EUNKNOWN (sent, no response), LK_ESERVER, LK_ENOMEM. */
lk_err lk__conn_call(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd, int argc,
                     const char *const *argv, const size_t *argv_len, struct lk__resp **resp,
                     struct lk__why *why);
/* Send buf, then read count replies in order.  The caller frees them all. */
lk_err lk__conn_pipeline(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd,
                         const struct lk__buf *buf, size_t count, struct lk__resp **resps,
                         struct lk__why *why);

/* The same, but replies that arrived before a failure stay in resps. */
lk_err lk__conn_exchange(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd,
                         const struct lk__buf *buf, size_t count, struct lk__resp **resps,
                         struct lk__why *why);

/* lk__socket_read() of all that is there into the reader, which may refuse the bytes: LK_ESERVER or
 * LK_ENOMEM then. */
int64_t lk__conn_read(struct lk__conn *conn, bool wait, struct lk__why *why);

/* Close and free; NULL is a no-op. */
void lk__conn_close(struct lk__conn *conn);

/* Classify an error reply: LK_EAUTH (NOAUTH, WRONGPASS, NOPERM, a right that is missing inside a
 * script), LK_EAGAIN (transient: LOADING, BUSY, READONLY, MASTERDOWN, CLUSTERDOWN, TRYAGAIN, MOVED,
 * ASK, NOREPLICAS; a script at the source of a slot that migrates; UNBLOCKED: a WAIT of a master
 * that became a replica), LK_EFOREIGN (WRONGTYPE), else LK_ESERVER. */
lk_err lk__resp_error(const struct lk__resp *resp);
/* Describe an error reply of the server "what": its class, and its text, with the way to find the
 * right that is missing, or that a script had changed something before the error.  Returns the
 * class. */
lk_err lk__resp_why(const struct lk__resp *resp, const char *what, struct lk__why *why);
/* If the server "what" refused to write as a replica, say in why what the URL should name; master:
 * the place of its master, "" = not known.  Otherwise a no-op. */
void lk__resp_blame_replica(const struct lk__resp *resp, const char *what, const char *master,
                            struct lk__why *why);
/* Is it the error of a script that had changed something before?  See scripts/shared/change.lua. */
bool lk__resp_is_torn(const struct lk__resp *resp);
/* Is it an error of a Cluster, before anything was done: the slot migrates, and only some of the
 * keys have? */
bool lk__resp_is_divided(const struct lk__resp *resp);
/* "<slot> <host>:<port>" if a Cluster's node refused because that one has the slot (MOVED), or
 * imports it (ASK), else NULL.  Borrows from resp. */
const char *lk__resp_redirect(const struct lk__resp *resp);
/* Only the node of a Cluster refuses in this way. */
bool lk__resp_is_of_cluster(const struct lk__resp *resp);
/* The error that ends the set-up of a connection: LK_ECONN if it is transient. */
lk_err lk__resp_refusal(const struct lk__resp *resp);

#endif
