/* SPDX-License-Identifier: MIT
 * A gateway to a real etcd in a thread of the test, for calls: it changes answers that a real one
 * gives rarely. */
#ifndef ETCD_GATEWAY_H
#define ETCD_GATEWAY_H

#include "etcd_link.h"
#include "h2_server.h"

#include <pthread.h>

struct etcd_gateway {
	int port; /* of 127.0.0.1 */
	int listener, etcd_port;
	pthread_t thread;
	/* Called in the thread for each answer; it may write another one. */
	void (*forge)(const char *path, struct lk__buf *answer);
	struct h2_link link; /* of the connection: its server only */
	struct etcd_link etcd;
};

/* It serves one connection after the other, each for H2_REQUESTS_MAX calls. */
void etcd_gateway_start(struct etcd_gateway *gateway, int etcd_port,
                        void (*forge)(const char *path, struct lk__buf *answer));
void etcd_gateway_stop(struct etcd_gateway *gateway);

#endif
