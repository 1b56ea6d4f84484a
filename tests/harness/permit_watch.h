/* SPDX-License-Identifier: MIT
 * Shared by tests of semaphores: the state in the store, a hold that records its loss, and a wait
 * in a thread of its own. */
#ifndef PERMIT_WATCH_H
#define PERMIT_WATCH_H

#include "redis.h"

#include <latchkey.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- The state of a semaphore, read from its keys ------------------------------------ */

long long permits_used(struct redis *redis, const char *name);
long long permits_holds(struct redis *redis, const char *name);
long long permits_queue(struct redis *redis, const char *name);
/* Assert that the keys agree: the sum of the holds equals the used permits, every hold has an
 * expiry, and no more is used than the capacity. */
void permits_add_up(struct redis *redis, const char *name);
/* Assert that there is no hold, no waiter, and all permits are free. */
bool permits_at_rest(struct redis *redis, const char *name, long long capacity);

/* ---- A hold that records its loss
 * ---------------------------------------------------------------- */

struct permit_losses {
	atomic_int count;
	_Atomic(lk_lost_reason) reason; /* of the last loss */
	_Atomic uint64_t hold;
	_Atomic int64_t at_ms;
};
extern struct permit_losses permit_losses;

/* Open a semaphore that records the losses of its holds. */
lk_semaphore *semaphore_watched(lk_client *client, const char *name, lk_semaphore_options options);

/* ---- A wait in a thread of its own ----------------------------------------------------------- */

struct permit_wait {
	lk_semaphore *semaphore;
	int64_t permits, wait_ms;
	bool keep; /* do not release at once */
	lk_err err;
	uint64_t hold;
	int order; /* its position among all grants */
	int64_t took_ms;
	atomic_bool ended;
	pthread_t thread;
};

void permit_wait_start(struct permit_wait *wait, lk_semaphore *semaphore, int64_t permits,
                       int64_t wait_ms, bool keep);
/* The same, and return when it is in the queue. */
void permit_wait_queue(struct permit_wait *wait, struct redis *redis, const char *name,
                       lk_semaphore *semaphore, int64_t permits, bool keep);
/* The result of its acquire; fails the test if there is none within 20 s. */
lk_err permit_wait_join(struct permit_wait *wait);

#endif
