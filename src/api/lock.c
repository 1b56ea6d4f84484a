/* SPDX-License-Identifier: MIT
 * The lock's public calls: check the arguments, make an op, run it. */
#include "runtime/client.h"
#include "run.h"

#include <stdlib.h>
#include <string.h>

/* Even numbers are threads, odd ones handles. */
static uint64_t this_thread(void)
{
	return lk__thread_serial() * 2;
}

static uint64_t owner_of(const struct lk_lock *lock)
{
	return lock->handle.owns ? lock->handle.serial * 2 + 1 : this_thread();
}

/* ---- Open and close ----------------------------------------------------------------------- */

lk_err lk_lock_open(lk_client *client, const char *name, size_t name_len,
                    const lk_lock_options *options, lk_lock **result)
{
	static const lk_lock_options defaults;
	struct lk__handle_plan plan;
	struct lk_lock *lock;
	lk_err err;

	if ((err = lk__refuse_null(client, "client")) || (err = lk__refuse_null(result, "lock")))
		return err;
	if (!options)
		options = &defaults;
	if (options->owner != LK_OWNER_THREAD && options->owner != LK_OWNER_HANDLE)
		return lk__failf(LK_EINVALID, "owner: must be an lk_owner, not %d",
		                 (int)options->owner);
	plan = (struct lk__handle_plan){
		.name = name,
		.label = options->label,
		.name_len = name_len,
		.lease_ms = options->lease_ms,
		.max_hold_ms = options->max_hold_ms,
		.reserved = options->reserved,
		.kind = LK_KIND_LOCK,
		.fixed = options->fixed,
		.reports_loss = options->on_lost != NULL,
	};
	lock = calloc(1, sizeof(*lock));
	if (!lock)
		return lk__failf(LK_ENOMEM, "out of memory");
	lock->on_lost = options->on_lost;
	lock->on_lost_arg = options->on_lost_arg;
	lock->handle.owns = options->owner == LK_OWNER_HANDLE;
	if ((err = lk__handle_open(client, &lock->handle, &plan))) {
		free(lock);
		return err;
	}
	lk__call_leave(client, NULL);
	*result = lock;
	return LK_OK;
}

lk_err lk_lock_close(lk_lock *lock)
{
	return lk__handle_close(lock ? &lock->handle : NULL);
}

lk_err lk_lock_cancel(lk_lock *lock)
{
	lk_err err = lk__refuse_null(lock, "lock");

	return err ? err : lk__handle_cancel(&lock->handle);
}

/* ---- Calls that wait ---------------------------------------------------------------------- */

static void init_call(struct lk__call *call, struct lk_lock *lock, uint64_t owner)
{
	lk__call_init(call, &lock->handle);
	call->op.owner = owner;
}

lk_err lk_lock_acquire(lk_lock *lock, int64_t wait_ms, uint64_t *result)
{
	struct lk_client *client;
	struct lk__call call;
	uint64_t owner, fence;
	int64_t now_ns = lk__now_ns();
	lk_err err = lk__refuse_null(lock, "lock");

	if (err || (err = lk__check_wait(wait_ms)))
		return err;
	if ((err = lk__handle_enter(&lock->handle)))
		return err;
	client = lock->handle.client;
	owner = owner_of(lock);
	fence = lk__core_reenter(&client->core, now_ns, lock->handle.name, owner);
	if (fence) {
		lk__call_leave(client, &lock->handle);
	} else {
		init_call(&call, lock, owner);
		lk__call_limit(&call, now_ns, wait_ms);
		if (lock->handle.owns)
			call.op.thread = this_thread();
		lk__call_provide(&call);
		if ((err = lk__call_run(&call, now_ns, lk__core_acquire)))
			return err;
		fence = call.op.fence;
	}
	if (result)
		*result = fence;
	return LK_OK;
}

lk_err lk__lock_release(struct lk_lock *lock, lk_lost_reason *lost)
{
	uint64_t owner;
	int64_t now_ns = lk__now_ns();
	struct lk__call call;
	lk_err err = lk__handle_enter(&lock->handle);

	if (err)
		return err;
	owner = owner_of(lock);
	if (lk__core_unenter(now_ns, lock->handle.name, owner)) {
		lk__call_leave(lock->handle.client, &lock->handle);
		return LK_OK;
	}
	init_call(&call, lock, owner);
	if ((err = lk__call_run(&call, now_ns, lk__core_release)) == LK_ELOST)
		*lost = (lk_lost_reason)call.op.lost;
	return err;
}

bool lk__lock_handle_owns(const struct lk_lock *lock)
{
	return lock->handle.owns;
}

lk_err lk_lock_release(lk_lock *lock)
{
	lk_lost_reason lost;
	lk_err err = lk__refuse_null(lock, "lock");

	return err ? err : lk__lock_release(lock, &lost);
}

lk_err lk_lock_extend(lk_lock *lock, int64_t lease_ms)
{
	struct lk__call call;
	lk_err err = lk__refuse_null(lock, "lock");

	if (err || (err = lk__check_range("lease_ms", lease_ms, LK_LEASE_MIN_MS, LK_LEASE_MAX_MS)))
		return err;
	if ((err = lk__handle_enter(&lock->handle)))
		return err;
	if ((err = lk__quorum_check_lease(lock->handle.client, lease_ms))) {
		lk__call_leave(lock->handle.client, &lock->handle);
		return err;
	}
	init_call(&call, lock, owner_of(lock));
	call.op.lease_ms = lease_ms;
	return lk__call_run(&call, lk__now_ns(), lk__core_extend);
}

/* ---- The caller's own hold ---------------------------------------------------------------- */

lk_err lk_lock_snapshot(lk_lock *lock, lk_hold *hold)
{
	lk_err err;

	if ((err = lk__refuse_null(lock, "lock")) || (err = lk__refuse_null(hold, "hold")))
		return err;
	return lk__handle_snapshot(&lock->handle, owner_of(lock), NULL, hold);
}

lk_state lk_lock_state(lk_lock *lock)
{
	return lock ? lk__handle_state(&lock->handle, owner_of(lock), NULL) : LK_STATE_NONE;
}

bool lk_lock_is_mine(lk_lock *lock)
{
	lk_state state = lk_lock_state(lock);

	return state == LK_STATE_HELD || state == LK_STATE_UNSURE;
}
