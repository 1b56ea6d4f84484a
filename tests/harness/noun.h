/* SPDX-License-Identifier: MIT
 * Locks and semaphores behind one set of calls: a test of what both promise runs for each.  A
 * semaphore has 5 permits here, so a hold of NOUN_ALONE is the only one, as a lock's always is, but
 * two would fit into one permit more. */
#ifndef NOUN_H
#define NOUN_H

#include "redis.h"
#include "redis/script.h"

#include <latchkey.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define NOUN_CAPACITY 5
#define NOUN_ALONE 3

/* The reported losses, and the last one. */
struct noun_losses {
	atomic_int count;
	_Atomic(lk_lost_reason) reason;
	_Atomic uint64_t fence;
	_Atomic int64_t at_ms;
};
extern struct noun_losses noun_losses; /* for the handle that a test watches */

struct noun_options {
	int64_t lease_ms, max_hold_ms;
	int64_t capacity; /* of a semaphore, 0 = NOUN_CAPACITY */
	const char *label;
	bool fixed;
	bool any_thread;            /* may use a hold, not only the thread that acquired it */
	struct noun_losses *losses; /* of its holds, NULL = they are not counted */
};

struct noun {
	const char *name;
	bool waits_share; /* the waits of one client have one entry in the queue */
	int rest_keys; /* that remain for a day when there is no hold, beside the fence counter */
	int64_t count; /* of a hold of NOUN_ALONE, in its snapshot */
	const struct lk__script *ask, *leave, *renew;
	/* The calls of latchkey.h; a size, and the fence of a hold, are a semaphore's only. */
	lk_err (*open)(lk_client *client, const char *name, struct noun_options options,
	               void **handle);
	lk_err (*close)(void *handle);
	lk_err (*acquire)(void *handle, int64_t size, int64_t wait_ms, uint64_t *fence);
	lk_err (*release)(void *handle, uint64_t fence);
	lk_err (*cancel)(void *handle);
	lk_err (*extend)(void *handle, uint64_t fence, int64_t lease_ms);
	lk_err (*snapshot)(void *handle, uint64_t fence, lk_hold *hold);
	lk_state (*state)(void *handle, uint64_t fence);
	lk_err (*break_hold)(void *handle, const char *if_holder);
	/* The first holder, and the queue. */
	lk_err (*query)(void *handle, lk_lock_status *status);
	lk_err (*waiters)(void *handle, size_t max, lk_party *waiters, size_t *count);
	/* By the keys: there is no hold and no wait. */
	bool (*at_rest)(struct redis *redis, const char *name);
};

extern const struct noun noun_lock, noun_semaphore;

/* ---- In one line; what is not the subject of a test must succeed --------------------------- */

void *noun_open(const struct noun *noun, lk_client *client, const char *name,
                struct noun_options options);
void *noun_named(const struct noun *noun, lk_client *client, const char *name);
/* Acquire a hold that is the only one; its fence. */
uint64_t noun_hold(const struct noun *noun, void *handle, int64_t wait_ms);
lk_hold noun_snapshot(const struct noun *noun, void *handle, uint64_t fence);
lk_lock_status noun_status(const struct noun *noun, void *handle);
/* Assert that the handle holds nothing. */
void noun_holds_nothing(const struct noun *noun, void *handle, uint64_t fence);

/* ---- A wait in a thread of its own ----------------------------------------------------------- */

struct noun_wait {
	const struct noun *noun;
	void *handle;
	int64_t wait_ms;
	bool keep; /* do not release at once; the handle must be of any_thread */
	lk_err err;
	uint64_t fence;
	int64_t took_ms;
	atomic_bool ended;
	atomic_int thread_id; /* in /proc; 0 = not started */
	pthread_t thread;
};

void noun_wait_start(struct noun_wait *wait, const struct noun *noun, void *handle, int64_t wait_ms,
                     bool keep);
/* Start a wait, and return when it is in the queue. */
void noun_wait_queue(struct noun_wait *wait, const struct noun *noun, void *handle, bool keep);
/* Its thread has begun and sleeps, as it does inside the call. */
bool noun_wait_sleeps(const struct noun_wait *wait);
/* The result of its acquire; fails the test if there is none within 20 s. */
lk_err noun_wait_join(struct noun_wait *wait);

#endif
