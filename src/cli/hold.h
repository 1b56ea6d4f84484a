/* SPDX-License-Identifier: MIT
 * The object of the command line: a lock, permits of a semaphore, a turn at a rate, or a latch.
 * All can be waited for; a lock and permits are then held and released. */
#ifndef HOLD_H
#define HOLD_H

#include "options.h"

#include <latchkey.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hold_kind;

struct hold {
	/* set by the caller */
	const struct options *options;
	void (*on_lost)(void *arg, lk_lost_reason reason); /* on a thread of the library */
	void *on_lost_arg;
	bool in_quorum;
	/* its own */
	const struct hold_kind *kind;
	lk_lock *lock;
	lk_semaphore *semaphore;
	lk_latch *latch;
	uint64_t fence;   /* of permits: identifies them */
	int64_t grace_ms; /* by the last description: nothing is granted for this time */
};

/* Open the handle for the options.  It is closed with the client. */
lk_err hold_open(struct hold *hold, lk_client *client);
/* Would acquiring wait for a hold of the commands that run this one?  If so, message describes it.
 * A store that does not respond shows when acquiring. */
bool hold_is_nested(struct hold *hold, char *message, size_t size);
lk_err hold_acquire(struct hold *hold, int64_t wait_ms);
/* Any thread. */
void hold_cancel(struct hold *hold);
/* Describe the wait for a person, with one request: "2 ahead, 0 of 3 free".  False when the store
 * does not respond. */
bool hold_describe(struct hold *hold, char *text, size_t size);
/* Describe the holder after a failure, with a few requests.  False, with text "", when there is
 * nothing to add: the store does not respond, or the hold has ended. */
bool hold_explain(struct hold *hold, char *text, size_t size);

/* Can it be lost and released: a lock, permits?  The functions below are for these only. */
bool hold_lasts(const struct hold *hold);
lk_err hold_release(struct hold *hold);
lk_state hold_state(struct hold *hold);
/* As lk_lock_extend(). */
lk_err hold_extend(struct hold *hold, int64_t lease_ms);
/* All zero if nothing is held. */
lk_hold hold_snapshot(struct hold *hold);
uint64_t hold_fence(struct hold *hold);
/* As lk_lock_guard_key(); "" if there is none. */
void hold_guard_key(struct hold *hold, char key[LK_GUARD_KEY_SIZE]);

#endif
