/* SPDX-License-Identifier: MIT
 * A worker's turn with a semaphore or a rate. */
#include "chaos/worker.h"

struct stay {
	struct worker_handle *handle;
	uint64_t hold;
};

static lk_hold hold_in(lk_semaphore *semaphore, uint64_t fence)
{
	lk_hold hold;

	return lk_semaphore_snapshot(semaphore, fence, &hold) == LK_OK ? hold : (lk_hold){0};
}

static int64_t valid_until_ns(void *arg)
{
	const struct stay *stay = arg;
	int64_t now_ns = history_now_ns();
	int64_t left_ms = hold_in(stay->handle->semaphore, stay->hold).remaining_ms;

	return left_ms > 0 ? now_ns + left_ms * CHAOS_MS : 0;
}

void worker_permits_lost(void *arg, lk_semaphore *semaphore, uint64_t hold, lk_lost_reason reason)
{
	struct worker_handle *handle = arg;
	struct history_record record = worker_record(handle, HISTORY_LOST);

	record.err = LK_ELOST;
	record.permits = (int32_t)hold_in(semaphore, hold).count;
	record.u.of.fence = hold;
	record.u.of.amount = reason;
	history_event(handle->worker->history, &record);
	handle->worker->page->losses++;
}

static void note(struct stay *stay, const struct canary *canary, enum history_op op, int err)
{
	struct worker_handle *handle = stay->handle;
	struct history_record record = worker_record(handle, op);

	record.err = err;
	record.permits = (int32_t)hold_in(handle->semaphore, stay->hold).count;
	record.u.of.fence = stay->hold;
	record.u.of.valid_until_ns = valid_until_ns(stay);
	record.u.of.amount = err ? canary->other : 0;
	history_event(handle->worker->history, &record);
	if (err)
		handle->worker->page->violations++;
}

/* hold NULL: a rate. */
static lk_err acquire(struct worker_thread *thread, struct worker_handle *handle, int64_t permits,
                      int64_t wait_ms, struct stay *stay)
{
	struct history_record record = worker_record(handle, HISTORY_ACQUIRE);
	lk_err err;

	record.permits = (int32_t)permits;
	record.u.of.amount = handle->lease_ms;
	worker_wait_begin(thread, handle, &record, wait_ms);
	err = lk_semaphore_acquire(handle->semaphore, permits, wait_ms, stay ? &stay->hold : NULL);
	worker_wait_end(thread);
	record.u.of.amount = 0;
	record.u.of.valid_until_ns = 0;
	if (!err && stay) {
		record.u.of.fence = stay->hold;
		record.u.of.valid_until_ns = valid_until_ns(stay);
	}
	worker_done(handle, &record, err);
	return err;
}

/* permits 0 = all that it still has. */
static lk_err release(struct stay *stay, int64_t permits)
{
	struct worker_handle *handle = stay->handle;
	struct history_record record = worker_record(handle, HISTORY_RELEASE);
	lk_err err;

	record.permits = (int32_t)hold_in(handle->semaphore, stay->hold).count;
	record.u.of.fence = stay->hold;
	record.u.of.valid_until_ns = valid_until_ns(stay);
	record.u.of.amount = permits;
	record.call = history_begin(handle->worker->history, &record);
	if (permits)
		err = lk_semaphore_release_some(handle->semaphore, stay->hold, permits);
	else
		err = lk_semaphore_release(handle->semaphore, stay->hold);
	record.u.of.valid_until_ns = 0;
	worker_done(handle, &record, err);
	return err;
}

/* Stay inside; false if the hold was lost, which has been acknowledged then. */
static bool work(struct worker_thread *thread, struct stay *stay, struct canary *canary,
                 int64_t permits)
{
	int64_t left_us = worker_hold_us(thread, stay->handle), until_ns;
	int64_t apart_us = thread->worker->apart_us;
	bool some = permits > 1 && chaos_once_in(&thread->dice, 4);

	while (left_us > 0) {
		int64_t piece_us = left_us < WORKER_PIECE_US ? left_us : WORKER_PIECE_US;
		worker_nap_us(piece_us);
		left_us -= piece_us;
		until_ns = valid_until_ns(stay);
		if (left_us <= 0 && apart_us > 0 && until_ns &&
		    lk_semaphore_state(stay->handle->semaphore, stay->hold) == LK_STATE_UNSURE) {
			left_us = WORKER_PIECE_US;
			apart_us -= left_us;
		}
		if (until_ns && left_us > 0)
			canary_keep(canary, permits, until_ns);
	}
	if (!some)
		return true;
	canary_keep(canary, permits - 1, valid_until_ns(stay));
	if (release(stay, 1) == LK_ELOST)
		return false;
	worker_nap_us(chaos_between(&thread->dice, 0, 2000));
	return true;
}

void worker_semaphore(struct worker_thread *thread, struct worker_handle *handle)
{
	struct worker *worker = thread->worker;
	struct stay stay = {handle, 0};
	struct canary canary = {
		worker->page, thread->slot, handle->name, valid_until_ns, &stay, NULL, 0, 0, 0, 0};
	int64_t capacity = chaos_names[handle->name].capacity, wait_ms = worker_wait_ms(thread);
	int64_t permits = chaos_between(&thread->dice, 1, 3), until_ns;
	lk_err err = acquire(thread, handle, permits, wait_ms, &stay);
	bool held;

	if (err) {
		worker_rest(thread, err);
		return;
	}
	until_ns = valid_until_ns(&stay);
	if (until_ns) {
		int met = canary_take(&canary, permits, capacity, until_ns);
		note(&stay, &canary, HISTORY_ENTER, met);
		held = work(thread, &stay, &canary, permits);
		canary_give(&canary);
		if (!held)
			return;
		note(&stay, &canary, HISTORY_LEAVE, 0);
	}
	err = release(&stay, 0);
	if (err == LK_OK)
		worker_pair(worker, wait_ms != 0);
	worker_rest(thread, err);
}

void worker_rate(struct worker_thread *thread, struct worker_handle *handle)
{
	int64_t permits = chaos_between(&thread->dice, 1, 3);
	lk_err err = acquire(thread, handle, permits, worker_wait_ms(thread), NULL);

	worker_rest(thread, err);
}
