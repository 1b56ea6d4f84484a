/* SPDX-License-Identifier: MIT
 * A TCP peer that no real server plays: a function of the test answers each connection. */
#ifndef PEER_H
#define PEER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

/* One connection, in the peer's thread, one at a time; it is closed afterwards. */
typedef void peer_fn(int fd, void *arg);

struct peer {
	int port; /* on 127.0.0.1 */
	char url[64];
	int listen_fd;
	atomic_int accepted; /* connections so far */
	atomic_int fd;       /* the one under way, -1 = none */
	atomic_int ending;
	peer_fn *fn;
	void *arg;
	pthread_t thread;
};

/* fn NULL: connections are accepted by the kernel, and nobody ever looks at them. */
void peer_start(struct peer *peer, peer_fn *fn, void *arg);
void peer_stop(struct peer *peer);

/* For a peer_fn.  Read what there is, once; 0 when the other side is gone. */
size_t peer_read(int fd, char *bytes, size_t size);
/* Send all; stops quietly when the other side is gone. */
void peer_send(int fd, const char *bytes, size_t len);

#endif
