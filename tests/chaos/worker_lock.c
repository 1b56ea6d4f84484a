/* SPDX-License-Identifier: MIT
 * A worker's turn with a lock: acquire, enter the canary, work, leave, release. */
#include "chaos/worker.h"

#include <stdio.h>
#include <unistd.h>

static int64_t valid_until_ns(void *arg)
{
	struct worker_handle *handle = arg;
	int64_t now_ns = history_now_ns(), left_ms = lk_lock_remaining_ms(handle->lock);

	return left_ms > 0 ? now_ns + left_ms * CHAOS_MS : 0;
}

void worker_lock_lost(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	struct worker_handle *handle = arg;
	struct history_record record = worker_record(handle, HISTORY_LOST);

	(void)lock;
	record.err = LK_ELOST;
	record.u.of.fence = fence;
	record.u.of.amount = reason;
	history_event(handle->worker->history, &record);
	handle->worker->page->losses++;
}

static lk_err acquire(struct worker_handle *handle, int64_t wait_ms, uint8_t flags)
{
	struct history_record record = worker_record(handle, HISTORY_ACQUIRE);
	lk_err err;

	record.flags |= flags;
	record.permits = 1;
	record.u.of.amount = handle->lease_ms;
	worker_wait_note(&record, wait_ms);
	record.call = history_begin(handle->worker->history, &record);
	err = lk_lock_acquire(handle->lock, wait_ms);
	record.u.of.amount = 0;
	record.u.of.valid_until_ns = 0;
	if (!err) {
		record.u.of.fence = lk_lock_fence(handle->lock);
		record.u.of.valid_until_ns = valid_until_ns(handle);
	}
	worker_done(handle, &record, err);
	return err;
}

static lk_err release(struct worker_handle *handle, uint8_t flags)
{
	struct history_record record = worker_record(handle, HISTORY_RELEASE);
	lk_err err;

	record.flags |= flags;
	record.permits = 1;
	record.u.of.fence = lk_lock_fence(handle->lock);
	record.u.of.valid_until_ns = valid_until_ns(handle);
	record.call = history_begin(handle->worker->history, &record);
	err = lk_lock_release(handle->lock);
	record.u.of.valid_until_ns = 0;
	worker_done(handle, &record, err);
	return err;
}

static void extend(struct worker_handle *handle)
{
	struct history_record record = worker_record(handle, HISTORY_EXTEND);
	lk_err err;

	record.permits = 1;
	record.u.of.fence = lk_lock_fence(handle->lock);
	record.u.of.amount = CHAOS_LEASE_MAX_MS;
	record.call = history_begin(handle->worker->history, &record);
	err = lk_lock_extend(handle->lock, CHAOS_LEASE_MAX_MS);
	record.u.of.valid_until_ns = valid_until_ns(handle);
	worker_done(handle, &record, err);
}

static void reenter(struct worker_handle *handle)
{
	if (acquire(handle, 0, HISTORY_REENTRY) == LK_OK)
		release(handle, HISTORY_REENTRY);
}

static void note(struct worker_handle *handle, const struct canary *canary, enum history_op op,
                 int err)
{
	struct history_record record = worker_record(handle, op);

	record.err = err;
	record.permits = 1;
	record.u.of.fence = lk_lock_fence(handle->lock);
	record.u.of.valid_until_ns = valid_until_ns(handle);
	record.u.of.amount = err ? canary->other : 0;
	history_event(handle->worker->history, &record);
	if (err)
		handle->worker->page->violations++;
}

/* Inside: in pieces, so that the canary knows of renewals. */
static void work(struct worker_thread *thread, struct worker_handle *handle, struct canary *canary)
{
	int64_t left_us = worker_hold_us(thread, handle->lease_ms);

	if (chaos_once_in(&thread->dice, 30))
		reenter(handle);
	if (chaos_once_in(&thread->dice, 40))
		extend(handle);
	while (left_us > 0) {
		int64_t piece_us = left_us < 20000 ? left_us : 20000;
		worker_nap_us(piece_us);
		canary_refresh(canary, valid_until_ns(handle));
		left_us -= piece_us;
	}
}

static void break_log(const struct worker_handle *handle, const char *phase)
{
	char line[100];
	int len = snprintf(line, sizeof(line), "%lld break %s %s\n", (long long)history_now_ns(),
	                   chaos_names[handle->name].name, phase);

	if (write(handle->worker->log_fd, line, (size_t)len) != len)
		fprintf(stderr, "worker %d: a break cannot be logged\n", (int)getpid());
}

void worker_break(struct worker_handle *handle)
{
	lk_err err;

	break_log(handle, "begin");
	err = lk_lock_break(handle->lock, NULL);
	break_log(handle, "end");
	if (err == LK_OK)
		handle->worker->page->breaks++;
	else if (err != LK_ENOTHELD && err != LK_ECONN && err != LK_EUNKNOWN && err != LK_ESERVER)
		fprintf(stderr, "worker %d: break: %s\n", (int)getpid(), lk_errmsg());
}

void worker_lock(struct worker_thread *thread, struct worker_handle *handle)
{
	struct worker *worker = thread->worker;
	struct canary canary = {
		worker->page, thread->slot, handle->name, valid_until_ns, handle, NULL, 0, 0, 0, 0};
	int64_t wait_ms = worker_wait_ms(thread), until_ns;
	lk_err err = acquire(handle, wait_ms, 0);
	int met, late;

	if (err) {
		if (err == LK_ELOST)
			release(handle, 0);
		worker_rest(thread, err);
		return;
	}
	until_ns = valid_until_ns(handle);
	if (until_ns) {
		met = canary_enter(&canary, until_ns);
		if (!met)
			met = canary_store(&canary, lk_lock_fence(handle->lock));
		note(handle, &canary, HISTORY_ENTER, met);
		work(thread, handle, &canary);
		/* What it writes at last may come too late: the store with fences refuses it then.
		 */
		late = canary_store(&canary, lk_lock_fence(handle->lock));
		met = canary_leave(&canary);
		if (!met && late)
			met = 3;
		note(handle, &canary, HISTORY_LEAVE, met);
	}
	err = release(handle, 0);
	if (err == LK_OK)
		worker_pair(worker, wait_ms > 0);
	worker_rest(thread, err);
}
