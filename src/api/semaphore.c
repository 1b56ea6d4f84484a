/* SPDX-License-Identifier: MIT
 * The semaphore's public calls: check the arguments, make an op, run it. */
#include "runtime/client.h"
#include "run.h"
#include "semaphore_query.h"

#include <stdlib.h>
#include <string.h>

/* ---- Open and close ----------------------------------------------------------------------- */

static lk_err check_options(const lk_semaphore_options *options)
{
	lk_err err = lk__check_range("capacity", options->capacity, 0, LK_PERMITS_MAX);

	if (!err && options->ttl_ms)
		err = lk__check_range("ttl_ms", options->ttl_ms, LK_TTL_MIN_MS, LK_TTL_MAX_MS);
	return err;
}

lk_err lk_semaphore_open(lk_client *client, const char *name, size_t name_len,
                         const lk_semaphore_options *options, lk_semaphore **result)
{
	static const lk_semaphore_options defaults;
	struct lk__handle_plan plan;
	struct lk_semaphore *semaphore;
	int64_t capacity;
	lk_err err;

	if ((err = lk__refuse_null(client, "client")) ||
	    (err = lk__refuse_null(result, "semaphore")))
		return err;
	if (!options)
		options = &defaults;
	if ((err = check_options(options)))
		return err;
	plan = (struct lk__handle_plan){
		.name = name,
		.label = options->label,
		.name_len = name_len,
		.lease_ms = options->lease_ms,
		.max_hold_ms = options->max_hold_ms,
		.capacity = (uint32_t)options->capacity,
		.ttl_ms = options->ttl_ms ? options->ttl_ms : LK_TTL_DEFAULT_MS,
		.reserved = options->reserved,
		.kind = LK_KIND_SEMAPHORE,
		.fixed = options->fixed,
		.reports_loss = options->on_lost != NULL,
	};
	semaphore = calloc(1, sizeof(*semaphore));
	if (!semaphore)
		return lk__failf(LK_ENOMEM, "out of memory");
	semaphore->on_lost = options->on_lost;
	semaphore->on_lost_arg = options->on_lost_arg;
	if ((err = lk__handle_open(client, &semaphore->handle, &plan))) {
		free(semaphore);
		return err;
	}
	/* Ask the store, which may have another capacity. */
	err = lk__permits_size(&semaphore->handle, false, options->capacity, &capacity);
	if (err)
		lk__handle_free(&semaphore->handle); /* no other thread knows it */
	else
		semaphore->handle.queue->capacity = (uint32_t)capacity;
	lk__call_leave(client, NULL);
	if (err)
		return err;
	*result = semaphore;
	return LK_OK;
}

lk_err lk_semaphore_close(lk_semaphore *semaphore)
{
	return lk__handle_close(semaphore ? &semaphore->handle : NULL);
}

lk_err lk_semaphore_cancel(lk_semaphore *semaphore)
{
	lk_err err = lk__refuse_null(semaphore, "semaphore");

	return err ? err : lk__handle_cancel(&semaphore->handle);
}

/* ---- Calls that wait ---------------------------------------------------------------------- */

lk_err lk_semaphore_acquire(lk_semaphore *semaphore, int64_t permits, int64_t wait_ms,
                            uint64_t *hold)
{
	struct lk__call call;
	int64_t now_ns = lk__now_ns();
	lk_err err = lk__refuse_null(semaphore, "semaphore");

	if (err || (err = lk__check_wait(wait_ms)))
		return err;
	if ((err = lk__check_range("permits", permits, 1, LK_PERMITS_MAX)))
		return err;
	if ((err = lk__handle_enter(&semaphore->handle)))
		return err;
	if (!hold && !semaphore->handle.queue->fixed) {
		lk__call_leave(semaphore->handle.client, &semaphore->handle);
		return lk__failf(LK_EINVALID,
		                 "hold: must not be NULL unless leases are fixed, since "
		                 "the permits could not be released");
	}
	if (!hold && semaphore->handle.client->store->refused_rate) {
		lk__call_leave(semaphore->handle.client, &semaphore->handle);
		return lk__failf(LK_EUNSUPPORTED, "%s",
		                 semaphore->handle.client->store->refused_rate);
	}
	lk__call_init(&call, &semaphore->handle);
	call.op.permits = (uint32_t)permits;
	call.op.forget = !hold;
	lk__call_limit(&call, now_ns, wait_ms);
	lk__call_provide(&call);
	err = lk__call_run(&call, now_ns, lk__core_acquire_permits);
	if (!err && hold)
		*hold = call.op.fence;
	return err;
}

/* Enter a call on one of the handle's holds, and prepare it. */
static lk_err enter_for(struct lk_semaphore *semaphore, uint64_t fence, struct lk__call *call)
{
	const struct lk__hold *hold;
	lk_err err = lk__handle_enter(&semaphore->handle);

	if (err)
		return err;
	hold = lk__core_hold(semaphore->handle.name, fence);
	if (!hold || hold->handle != semaphore) {
		lk__call_leave(semaphore->handle.client, &semaphore->handle);
		return lk__failf(LK_ENOTOWNER, "no such hold");
	}
	lk__call_init(call, &semaphore->handle);
	call->op.owner = fence;
	return LK_OK;
}

/* permits: 0 = all. */
static lk_err release(struct lk_semaphore *semaphore, uint64_t hold, uint32_t permits,
                      lk_lost_reason *lost)
{
	struct lk__call call;
	lk_err err = enter_for(semaphore, hold, &call);

	if (err)
		return err;
	call.op.permits = permits;
	err = lk__call_run(&call, lk__now_ns(), lk__core_release_permits);
	if (err == LK_ELOST)
		*lost = (lk_lost_reason)call.op.lost;
	return err;
}

lk_err lk__semaphore_release(struct lk_semaphore *semaphore, uint64_t hold, lk_lost_reason *lost)
{
	return release(semaphore, hold, 0, lost);
}

lk_err lk_semaphore_release(lk_semaphore *semaphore, uint64_t hold)
{
	lk_lost_reason lost;
	lk_err err = lk__refuse_null(semaphore, "semaphore");

	return err ? err : release(semaphore, hold, 0, &lost);
}

lk_err lk_semaphore_release_some(lk_semaphore *semaphore, uint64_t hold, int64_t permits)
{
	lk_lost_reason lost;
	lk_err err = lk__refuse_null(semaphore, "semaphore");

	if (err)
		return err;
	if (permits < 1)
		return lk__failf(LK_EINVALID, "permits: must be 1 or more, not %lld",
		                 (long long)permits);
	/* No hold can have more: same error as for more than this one has. */
	return release(semaphore, hold, permits > LK_PERMITS_MAX ? UINT32_MAX : (uint32_t)permits,
	               &lost);
}

lk_err lk_semaphore_extend(lk_semaphore *semaphore, uint64_t hold, int64_t lease_ms)
{
	struct lk__call call;
	lk_err err;

	if ((err = lk__refuse_null(semaphore, "semaphore")) ||
	    (err = lk__check_range("lease_ms", lease_ms, LK_LEASE_MIN_MS, LK_LEASE_MAX_MS)) ||
	    (err = enter_for(semaphore, hold, &call)))
		return err;
	call.op.lease_ms = lease_ms;
	return lk__call_run(&call, lk__now_ns(), lk__core_extend);
}

/* ---- A hold of the handle ----------------------------------------------------------------- */

lk_err lk_semaphore_snapshot(lk_semaphore *semaphore, uint64_t hold_fence, lk_hold *hold)
{
	lk_err err;

	if ((err = lk__refuse_null(semaphore, "semaphore")) ||
	    (err = lk__refuse_null(hold, "hold")))
		return err;
	return lk__handle_snapshot(&semaphore->handle, hold_fence, semaphore, hold);
}

lk_state lk_semaphore_state(lk_semaphore *semaphore, uint64_t hold_fence)
{
	return semaphore ? lk__handle_state(&semaphore->handle, hold_fence, semaphore)
	                 : LK_STATE_NONE;
}

/* ---- Queries ------------------------------------------------------------------------------ */

lk_err lk_semaphore_query(lk_semaphore *semaphore, lk_semaphore_status *result)
{
	lk_semaphore_status status;
	lk_err err;

	if ((err = lk__refuse_null(semaphore, "semaphore")) ||
	    (err = lk__refuse_null(result, "status")) ||
	    (err = lk__handle_enter(&semaphore->handle)))
		return err;
	err = lk__permits_query(&semaphore->handle, &status);
	lk__call_leave(semaphore->handle.client, &semaphore->handle);
	if (!err)
		*result = status;
	return err;
}

static lk_err list(lk_semaphore *semaphore, bool holders, size_t max, lk_ticket *parties,
                   size_t *count)
{
	lk_err err = lk__refuse_null(semaphore, "semaphore");

	if (!err && max)
		err = lk__refuse_null(parties, holders ? "holders" : "waiters");
	if (err || (err = lk__refuse_null(count, "count")) ||
	    (err = lk__handle_enter(&semaphore->handle)))
		return err;
	err = lk__permits_list(&semaphore->handle, holders, max, parties, count);
	lk__call_leave(semaphore->handle.client, &semaphore->handle);
	return err;
}

lk_err lk_semaphore_holders(lk_semaphore *semaphore, size_t max, lk_ticket *holders, size_t *count)
{
	return list(semaphore, true, max, holders, count);
}

lk_err lk_semaphore_waiters(lk_semaphore *semaphore, size_t max, lk_ticket *waiters, size_t *count)
{
	return list(semaphore, false, max, waiters, count);
}

/* For the case that the store has expired the semaphore; waits in progress may be the first to
 * notice. */
static void keep_capacity(struct lk_semaphore *semaphore, uint32_t capacity)
{
	struct lk__wait_queue *queue = semaphore->handle.name->queues;

	semaphore->handle.queue->capacity = capacity;
	for (; queue; queue = queue->next)
		if (queue->first && queue->first->handle == semaphore)
			queue->capacity = capacity;
}

lk_err lk_semaphore_resize(lk_semaphore *semaphore, int64_t capacity)
{
	int64_t now_has;
	lk_err err = lk__refuse_null(semaphore, "semaphore");

	if (err || (err = lk__check_range("capacity", capacity, 1, LK_PERMITS_MAX)) ||
	    (err = lk__handle_enter(&semaphore->handle)))
		return err;
	err = lk__permits_size(&semaphore->handle, true, capacity, &now_has);
	if (!err)
		keep_capacity(semaphore, (uint32_t)now_has);
	lk__call_leave(semaphore->handle.client, &semaphore->handle);
	return err;
}

lk_err lk_semaphore_break(lk_semaphore *semaphore, const char *if_holder)
{
	lk_err err = lk__refuse_null(semaphore, "semaphore");

	if (err || (err = lk__handle_enter(&semaphore->handle)))
		return err;
	err = lk__permits_break(&semaphore->handle, if_holder);
	lk__call_leave(semaphore->handle.client, &semaphore->handle);
	return err;
}
