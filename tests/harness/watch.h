/* SPDX-License-Identifier: MIT
 * Shared by tests of faults: a hold that records its loss, and a client that waits in a thread of
 * its own. */
#ifndef WATCH_H
#define WATCH_H

#include <latchkey.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The number of losses reported in this process, and the last one. */
struct losses {
	atomic_int count;
	_Atomic(lk_lost_reason) reason;
	_Atomic uint64_t fence;
	_Atomic int64_t at_ms;
};
extern struct losses losses;

/* Open a lock that records its loss, and acquire it. */
lk_lock *hold_watched(lk_client *client, const char *name, int64_t lease_ms);
/* Assert that it stays valid for that long, without a reported loss. */
void stays_held(lk_lock *lock, int64_t ms);

/* lk_lost_fn: records the loss there. */
void losses_note(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason);

/* One acquire in a thread of its own; the handle owns the hold, so the test may release it. */
struct waiter {
	lk_lock *lock;
	int64_t wait_ms;
	bool keep; /* do not release at once */
	lk_err err;
	uint64_t fence;
	int order; /* its position among all grants */
	int64_t took_ms;
	atomic_bool ended;
	pthread_t thread;
};

/* The lock must come from lock_of_handle(). */
void waiter_start(struct waiter *waiter, lk_lock *lock, int64_t wait_ms, bool keep);
/* The result of its acquire; fails the test if there is none within 20 s. */
lk_err waiter_join(struct waiter *waiter);
/* A lock owned by its handle. */
lk_lock *lock_of_handle(lk_client *client, const char *name, int64_t lease_ms);

#endif
