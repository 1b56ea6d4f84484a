/* SPDX-License-Identifier: MIT
 * A real etcd as a peer of scripts: one connection, with a stream of each kind. */
#ifndef ETCD_LIVE_PEER_H
#define ETCD_LIVE_PEER_H

#include "etcd_link.h"
#include "etcd_script.h"

struct etcd_live_peer {
	struct etcd_peer peer; /* the first member */
	struct etcd_link link;
	uint32_t streams[2]; /* 0 = not open */
	/* Events that were not asked for yet, and the one in use. */
	struct etcd_live_mail {
		struct etcd_live_mail *next;
		uint32_t id;
		int status; /* -1 = a message */
		char text[LK__GRPC_TEXT];
		size_t len;
		unsigned char bytes[];
	} * mail, *used;
};

/* Connect to that port of 127.0.0.1; fails the test on an error. */
void etcd_live_peer_init(struct etcd_live_peer *peer, int port);
void etcd_live_peer_fini(struct etcd_live_peer *peer);

#endif
