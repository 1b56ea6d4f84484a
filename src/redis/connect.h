/* SPDX-License-Identifier: MIT
 * A client's two connections to one server, ready for use. */
#ifndef LK__CONNECT_H
#define LK__CONNECT_H

#include "codec.h"
#include "conn.h"

/* Dial both, subscribe to the client's channel, load the scripts, and check that a message which a
 * script publishes arrives there.  This proves that every right is granted and that both
 * connections lead to the same server.  *epoch: the memory that the client found last, then that of
 * this server.  *is_cluster: it is a node of a Cluster, see cluster.h; then the result is LK_ECONN.
 *
 * LK_OK, or as lk__conn_dial(); no connection is open after an error. */
lk_err lk__connect(const struct lk__target *target, struct lk__tls_shared *tls,
                   const struct lk__space *space, int64_t deadline_ns, int cancel_fd,
                   struct lk__epoch *epoch, struct lk__conn **commands, struct lk__conn **messages,
                   bool *is_cluster, struct lk__why *why);

/* ---- Its steps, for a Cluster ------------------------------------------------------------- */

/* What a pair of connections is tested with. */
struct lk__trial {
	char channel[LK__CHANNEL_MAX]; /* of this client */
	char key[LK__CHANNEL_MAX];     /* of its details */
	const char *marker;            /* as in struct lk__request, and so are these: */
	const char *const *vouchers;
	int voucher_count;
	bool is_plain; /* by a URL of one server: a replica is a mistake in it */
};

lk_err lk__connect_subscribe(struct lk__conn *conn, const struct lk__space *space,
                             const char *channel, int64_t deadline_ns, int cancel_fd,
                             struct lk__why *why);
/* *is_refused: the server refuses as only a node of a Cluster does; nothing was done. */
lk_err lk__connect_probe(struct lk__conn *conn, struct lk__conn *messages,
                         const struct lk__space *space, const struct lk__trial *trial,
                         int64_t deadline_ns, int cancel_fd, struct lk__epoch *epoch,
                         bool *is_refused, struct lk__why *why);

#endif
