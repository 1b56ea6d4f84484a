/* SPDX-License-Identifier: MIT
 * A scripted TCP peer, for behaviour that real servers do not show: a function of the test serves
 * each connection. */
#ifndef PEER_H
#define PEER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

/* Serve one connection, in the peer's thread, one at a time; the caller closes it. */
typedef void peer_fn(int fd, void *arg);

struct peer {
	int port; /* on 127.0.0.1 */
	char url[64];
	int listen_fd;
	atomic_int accepted; /* connections so far */
	atomic_int fd;       /* the current one, -1 = none */
	atomic_int ending;
	peer_fn *fn;
	void *arg;
	pthread_t thread;
};

/* fn NULL: the kernel accepts connections, and no thread reads them. */
void peer_start(struct peer *peer, peer_fn *fn, void *arg);
void peer_stop(struct peer *peer);

/* For a peer_fn.  Read the available bytes, once; 0 if the other side has closed. */
size_t peer_read(int fd, char *bytes, size_t size);
/* Send all; returns quietly if the other side has closed. */
void peer_send(int fd, const char *bytes, size_t len);

#endif
