/* SPDX-License-Identifier: MIT
 * Getting what is named: in a thread, so that signals and the waiting line are served meanwhile. */
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
	bool nested; /* this very chain of commands holds it: it would wait for itself */
	int signal;  /* it was given up because of this signal */
	int64_t waited_ms;
	char message[1600];
	struct outage outage;
	/* its own */
	pthread_t thread;
	int64_t began_ns;
	int64_t end_ns; /* of the wait, NEVER = there is none */
	atomic_int stage;
	lk_client *opened; /* these three are the thread's until it is done */
	lk_err result;
	char detail[1600];
};

/* Acquire; LK_OK, or err and message say why not.  The wait that the options allow covers
 * connecting, too.  A signal that ends programs while the store is still being connected to ends
 * this one at once, after before_death(signal), if not NULL. */
void acquire_run(struct acquire *acquire, void (*before_death)(void *arg, int number), void *arg);
/* Have acquire_close() close nothing: the store was asked once, and did not answer. */
void acquire_give_up(struct acquire *acquire);
/* Close the client, if it is open: no more of the hold. */
void acquire_close(struct acquire *acquire);

#endif
