/* SPDX-License-Identifier: MIT
 * Run a function under a lock or permits: acquire, call, release. */
#include "run.h"

static lk_err refuse_null_function(lk_run_fn *fn)
{
	return fn ? LK_OK : lk__failf(LK_EINVALID, "fn: must not be NULL");
}

/* The end of a run, whose result is that of its acquire or of its release. */
static lk_err finish(const lk_run *run, lk_err err, lk_run *out)
{
	if (out)
		*out = *run;
	return err;
}

/* Release the acquisition of a run, and no other: the function may have released it, and acquired
 * the lock again.  before: the hold at the start of the run. */
static lk_err release_own(lk_lock *lock, const lk_hold *before, lk_lost_reason *lost)
{
	lk_hold now;
	lk_err err = lk_lock_snapshot(lock, &now);

	if (err)
		return err;
	/* Threads that share a handle re-enter and release by themselves: their count says nothing.
	 */
	if (now.fence != before->fence ||
	    (now.count < before->count && !lk__lock_handle_owns(lock)))
		return lk__failf(LK_ENOTOWNER, "the function ended the hold itself");
	return lk__lock_release(lock, lost);
}

lk_err lk_lock_run(lk_lock *lock, int64_t wait_ms, lk_run_fn *fn, void *arg, lk_run *out)
{
	lk_run run = {.stage = LK_RUN_ACQUIRE};
	lk_hold before = {0};
	lk_err err = lk__refuse_null(lock, "lock");

	if (err || (err = refuse_null_function(fn)))
		return err;
	err = lk_lock_acquire(lock, wait_ms, &run.fence);
	if (err == LK_EINVALID)
		return err;
	if (!err) {
		err = lk_lock_snapshot(lock, &before);
		before.fence = run.fence;
		run.result = fn(arg, run.fence);
		err = err ? err : release_own(lock, &before, &run.lost);
		run.stage = err ? LK_RUN_RELEASE : LK_RUN_DONE;
	}
	return finish(&run, err, out);
}

lk_err lk_semaphore_run(lk_semaphore *semaphore, int64_t permits, int64_t wait_ms, lk_run_fn *fn,
                        void *arg, lk_run *out)
{
	lk_run run = {.stage = LK_RUN_ACQUIRE};
	lk_err err = lk__refuse_null(semaphore, "semaphore");

	if (err || (err = refuse_null_function(fn)))
		return err;
	err = lk_semaphore_acquire(semaphore, permits, wait_ms, &run.fence);
	if (err == LK_EINVALID)
		return err;
	if (!err) {
		run.result = fn(arg, run.fence);
		err = lk__semaphore_release(semaphore, run.fence, &run.lost);
		run.stage = err ? LK_RUN_RELEASE : LK_RUN_DONE;
	}
	return finish(&run, err, out);
}
