/* SPDX-License-Identifier: MIT
 * Load with a judge: clients in threads that acquire one name in turn, as fast as they can, while
 * the test breaks the store.  One that loses its link goes on holding until its lease ends.
 * Whenever one begins to hold, no other hold may be valid by its own clock, and the fence must be
 * the largest so far. */
#ifndef RIVALS_H
#define RIVALS_H

#include "noun.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define RIVALS 4

struct rival {
	struct rivals *all;
	lk_client *client;
	void *handle;
	uint64_t fence; /* of its hold, 0 = none */
	pthread_t thread;
};

struct rivals {
	const struct noun *noun;
	int64_t late_ms; /* by which every other one follows a failover */
	struct rival of[RIVALS];
	atomic_bool started, stop;
	atomic_int holds; /* so far */
	pthread_mutex_t mutex;
	uint64_t fence; /* the largest one */
	int overlaps, stale_fences;
};

/* Start them at that URL, of a service of Sentinel or a Cluster, with holds of that lease. */
void rivals_start(struct rivals *rivals, const struct noun *noun, const char *url,
                  int64_t lease_ms);
/* Assert that they acquire again, within ms. */
void rivals_go_on(struct rivals *rivals, int64_t ms);
/* End them, and assert that no two held at once and that all fences grew. */
void rivals_stop(struct rivals *rivals);

#endif
