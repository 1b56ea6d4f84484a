/* SPDX-License-Identifier: MIT
 * The model of etcd as a peer of scripts: one connection, with a stream of each kind. */
#ifndef ETCD_MODEL_PEER_H
#define ETCD_MODEL_PEER_H

#include "etcd_model.h"
#include "etcd_script.h"

struct etcd_model_peer {
	struct etcd_peer peer; /* the first member */
	struct etcd_model *model;
	int64_t now_ns;
	uint64_t connection, streams[2]; /* 0 = not open */
	char token[40];
	/* Messages of the streams that were not received yet, and what is in use. */
	struct etcd_model_mail {
		struct etcd_model_mail *next;
		uint64_t stream;
		int status; /* -1 = a message */
		const char *text;
		size_t len;
		unsigned char bytes[];
	} * mail, *used;
};

/* A new world, connected to that member. */
void etcd_model_peer_init(struct etcd_model_peer *peer, const struct em_setup *setup, uint64_t seed,
                          int member);
void etcd_model_peer_fini(struct etcd_model_peer *peer);

#endif
