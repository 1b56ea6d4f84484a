/* SPDX-License-Identifier: MIT
 * A made-up sentinel in a thread of the test: it names what the test wants, also what no real one
 * would, and at the moment that the test chooses.  It records every byte that it receives. */
#ifndef FAKE_SENTINEL_H
#define FAKE_SENTINEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define FAKE_SENTINEL_CONNS 64

struct fake_sentinel {
	int port; /* on 127.0.0.1 */
	atomic_int asked, connected;
	/* Set at any time. */
	atomic_bool silent;    /* it reads and answers nothing */
	atomic_bool unaware;   /* it knows no such service */
	atomic_bool is_valkey; /* INFO names its mode as Valkey does */
	const char *password;  /* NULL = none; set before the start of the clients */
	/* The reply to SENTINEL MASTER, as bytes of RESP; NULL = it is refused, as managed services
	 * do.  Set before it is asked. */
	const char *facts;
	/* Internal. */
	pthread_t thread;
	pthread_mutex_t mutex;
	int listen_fd, count, fds[FAKE_SENTINEL_CONNS];
	bool subscribed[FAKE_SENTINEL_CONNS];
	char host[100];
	int master_port;
	size_t seen_len;
	char seen[65536];
	bool ending;
};

/* Start one that names 127.0.0.1:master_port for every service, on port (0 = any). */
void fake_sentinel_start(struct fake_sentinel *sentinel, int port, int master_port);
/* End it: its connections are closed, and its port refuses. */
void fake_sentinel_stop(struct fake_sentinel *sentinel);
/* Name another master from now on, when asked. */
void fake_sentinel_name(struct fake_sentinel *sentinel, const char *host, int port);
/* The same, and tell all subscribers that the master of "s" has changed. */
void fake_sentinel_switch(struct fake_sentinel *sentinel, const char *host, int port);
/* Did it receive these bytes? */
bool fake_sentinel_saw(struct fake_sentinel *sentinel, const char *bytes);

#endif
