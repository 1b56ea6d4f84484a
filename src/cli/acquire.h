/* SPDX-License-Identifier: MIT
 * Acquiring the named lock, permits, turn or open latch in a thread, so that signals and the
 * waiting line are handled meanwhile. */
#ifndef ACQUIRE_H
#define ACQUIRE_H

#include "hold.h"
#include "options.h"
#include "outage.h"
#include "store.h"

#include <latchkey.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct acquire {
	/* set by the caller */
	struct store *store;
	struct hold hold; /* its options and its on_lost */
	/* set by acquire_run() */
	lk_client *client;
	lk_err err;
	bool nested; /* held by the commands that run this one: it would wait for itself */
	int signal;  /* the signal that ended the wait */
	int64_t waited_ms;
	char message[1600];
	struct outage outage;
	/* its own */
	pthread_t thread;
	int64_t began_ns;
	int64_t end_ns; /* end of the wait, NEVER = no limit */
	atomic_int stage;
	lk_client *opened; /* the thread owns these three until it is done */
	lk_err result;
	char detail[1600];
};

/* Acquire; LK_OK, or err and message give the reason.  The wait includes connecting.  While the
 * store is still being connected to, a signal that ends programs ends this one at once, after
 * before_death(signal), if not NULL. */
void acquire_run(struct acquire *acquire, void (*before_death)(void *arg, int number), void *arg);
/* Is there no connection to the store? */
bool acquire_is_cut(struct acquire *acquire);
/* Make acquire_close() close nothing: the store did not respond. */
void acquire_give_up(struct acquire *acquire);
/* Close the client, if it is open.  Its hold ends with it. */
void acquire_close(struct acquire *acquire);

#endif
