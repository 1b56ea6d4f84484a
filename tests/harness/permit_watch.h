/* SPDX-License-Identifier: MIT
 * What tests of semaphores have in common: what the store says of one, a hold whose loss is noted,
 * and a wait in a thread of its own. */
#ifndef PERMIT_WATCH_H
#define PERMIT_WATCH_H

#include "redis.h"

#include <latchkey.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- What the store says of a semaphore, read from its keys ------------------------------------
 */

long long permits_used(struct redis *redis, const char *name);
long long permits_holds(struct redis *redis, const char *name);
long long permits_queue(struct redis *redis, const char *name);
/* What it has says the same wherever it stands: the sum of the holds is what is used, every hold
 * has an end, and no more is used than there is. */
void permits_add_up(struct redis *redis, const char *name);
/* Nobody holds, nobody waits, all of its permits are there. */
bool permits_at_rest(struct redis *redis, const char *name, long long capacity);

/* ---- A hold whose loss is noted ----------------------------------------------------------------
 */

struct permit_losses {
	atomic_int count;
	_Atomic(lk_lost_reason) reason; /* of the last one */
	_Atomic uint64_t hold;
	_Atomic int64_t at_ms;
};
extern struct permit_losses permit_losses;

/* Open a semaphore that notes the losses of its holds. */
lk_semaphore *semaphore_watched(lk_client *client, const char *name, lk_semaphore_options options);
/* It must be valid all the time for that long, and no loss may be told. */
void permits_stay_held(lk_semaphore *semaphore, uint64_t hold, int64_t ms);

/* ---- A wait in a thread of its own -------------------------------------------------------------
 */

struct permit_wait {
	lk_semaphore *semaphore;
	int64_t permits, wait_ms;
	bool keep; /* do not release at once */
	lk_err err;
	uint64_t hold;
	int order; /* in which it was served among all */
	int64_t took_ms;
	atomic_bool ended;
	pthread_t thread;
};

void permit_wait_start(struct permit_wait *wait, lk_semaphore *semaphore, int64_t permits,
                       int64_t wait_ms, bool keep);
/* The same, and return when it stands in the queue. */
void permit_wait_queue(struct permit_wait *wait, struct redis *redis, const char *name,
                       lk_semaphore *semaphore, int64_t permits, bool keep);
/* What its acquire said; fails the test when it says nothing for 20 s. */
lk_err permit_wait_join(struct permit_wait *wait);

#endif
