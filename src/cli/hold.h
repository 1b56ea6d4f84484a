/* SPDX-License-Identifier: MIT
 * What the command line names: a lock, permits of a semaphore, a turn at a rate, or a latch.  All
 * of them are waited for; a lock and permits are held then, and given back. */
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
	/* its own */
	const struct hold_kind *kind;
	lk_lock *lock;
	lk_semaphore *semaphore;
	lk_latch *latch;
	uint64_t fence; /* of permits: names them */
};

/* Open the handle of what the options name; the client's end is the handle's. */
lk_err hold_open(struct hold *hold, lk_client *client);
/* Would acquiring wait for what the commands above us hold?  Then message says so.  A store that
 * does not answer is found out by acquiring. */
bool hold_is_nested(struct hold *hold, char *message, size_t size);
lk_err hold_acquire(struct hold *hold, int64_t wait_ms);
/* Any thread. */
void hold_cancel(struct hold *hold);
/* What a person wants to know while it is waited for, in one request: "2 ahead, 0 of 3 free". False
 * when the store does not tell. */
bool hold_describe(struct hold *hold, char *text, size_t size);
/* Why it was not acquired, in a few requests: its holder.  False, with text "", when there is
 * nothing to add: the store does not answer, or the holder is gone. */
bool hold_explain(struct hold *hold, char *text, size_t size);

/* There is something to lose and to give back: a lock, permits.  The rest is for these. */
bool hold_lasts(const struct hold *hold);
lk_err hold_release(struct hold *hold);
lk_state hold_state(struct hold *hold);
/* As lk_lock_extend(). */
lk_err hold_extend(struct hold *hold, int64_t lease_ms);
/* All zero where nothing is held. */
lk_hold hold_snapshot(struct hold *hold);
uint64_t hold_fence(struct hold *hold);

#endif
