/* SPDX-License-Identifier: MIT
 * A client's two connections to one node of a Cluster.  All its tests use a slot of that node. */
#ifndef LK__CLUSTER_H
#define LK__CLUSTER_H

#include "codec.h"
#include "conn.h"

/* The node that a link leads to. */
struct lk__member {
	char id[LK__NODE_ID_SIZE];     /* "" = not of a Cluster */
	char host[LK_HOST_SIZE];       /* of nodes that it names without a host */
	char channel[LK__CHANNEL_MAX]; /* of this client, for the test of the connections */
	unsigned base;                 /* a slot, once the first one in the node's order */
	char marker[LK__MARKER_MAX];   /* the key of its memory's marker, in that slot */
};

/* Dial both connections to the master at target's place, as lk__connect() does, in the slot that is
 * the first of its slots; if that one migrates, in one of the next.  *topology is what that node
 * says, also if it is no master with slots (LK_ECONN); its count is 0 if it says nothing.
 *
 * LK_OK, or as lk__connect(); LK_EINVALID also for a server that is not in a Cluster */
lk_err lk__cluster_connect(const struct lk__target *target, struct lk__tls_shared *tls,
                           const struct lk__space *space, int64_t deadline_ns, int cancel_fd,
                           struct lk__epoch *epoch, struct lk__conn *conns[2],
                           struct lk__member *node, struct lk__topology *topology,
                           struct lk__why *why);

/* Ask the node at target's place, a master or not, for the topology, by a connection of its own. As
 * lk__conn_dial(). */
lk_err lk__cluster_look(const struct lk__target *target, struct lk__tls_shared *tls,
                        int64_t deadline_ns, int cancel_fd, struct lk__topology *topology,
                        struct lk__why *why);

/* Complete the places without a host, in what that node said. */
void lk__cluster_fill(const struct lk__member *node, struct lk__topology *topology);
/* The node's slots may have changed: name the marker by the one that is the first now. */
void lk__cluster_rebase(struct lk__member *node, const struct lk__space *space,
                        const struct lk__topology *topology);

/* The node of that id, -1 = none. */
int lk__cluster_find(const struct lk__topology *topology, const char *id);

#endif
