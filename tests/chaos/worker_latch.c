/* SPDX-License-Identifier: MIT
 * A worker's turn with a latch: set it, count it down, or wait for it. */
#include "chaos/worker.h"

#include <stdio.h>

#define COUNT_MAX 12
#define STEP_NAMES 40
#define SET_NS UINT64_C(5000000000) /* the longest wait */

/* It may be set again while others count it down and wait for it, or removed: such a generation
 * never opens. */
static lk_err make(struct worker_handle *handle, int64_t chance, int64_t count)
{
	lk_err err;

	if (chance > 15)
		return lk_latch_set(handle->latch, count, NULL);
	if (chance > 5)
		return lk_latch_reset(handle->latch, count, NULL);
	err = lk_latch_remove(handle->latch);
	return err == LK_EABSENT ? LK_OK : err;
}

static void set(struct worker_thread *thread, struct worker_handle *handle)
{
	struct history_record record = worker_record(handle, HISTORY_SET);
	int64_t chance = chaos_between(&thread->dice, 1, 100);
	int64_t count = chance > 5 ? chaos_between(&thread->dice, 1, COUNT_MAX) : LK_COUNT_MAX;
	_Atomic uint64_t *turn = &handle->worker->page->places[handle->name].fence;
	uint64_t now_ns = (uint64_t)history_now_ns(), busy_until_ns = *turn;
	lk_err err;

	/* One at a time, or the judge could not know the generation of a step. */
	if (busy_until_ns > now_ns ||
	    !atomic_compare_exchange_strong(turn, &busy_until_ns, now_ns + SET_NS))
		return;
	record.u.of.amount = count;
	if (chance <= 15)
		record.flags |= HISTORY_RESET;
	record.call = history_begin(handle->worker->history, &record);
	err = make(handle, chance, count);
	worker_done(handle, &record, err);
	/* One without a reply may still be pending. */
	if (err != LK_EUNKNOWN)
		*turn = 0;
	worker_rest(thread, err);
}

static void down(struct worker_thread *thread, struct worker_handle *handle)
{
	struct history_record record = worker_record(handle, HISTORY_DOWN);
	int64_t number = chaos_between(&thread->dice, 1, STEP_NAMES);
	bool named = chaos_once_in(&thread->dice, 4);
	lk_latch_step step = {0};
	char name[32];
	lk_err err;

	snprintf(name, sizeof(name), "step-%lld", (long long)number);
	record.permits = 1;
	if (named) {
		record.flags |= HISTORY_NAMED;
		record.u.of.valid_until_ns = number;
	}
	record.call = history_begin(handle->worker->history, &record);
	err = lk_latch_down(handle->latch, 1, named ? name : NULL, 0, &step);
	record.u.of.valid_until_ns = 0;
	if (!err) {
		record.u.of.amount = step.remaining;
		if (!step.counted)
			record.flags |= HISTORY_AGAIN;
		handle->worker->page->steps++;
		if (step.counted && !step.remaining)
			handle->worker->page->openings++;
	}
	worker_done(handle, &record, err);
	worker_rest(thread, err);
}

static void await(struct worker_thread *thread, struct worker_handle *handle)
{
	struct history_record record = worker_record(handle, HISTORY_AWAIT);
	int64_t wait_ms = worker_wait_ms(thread);
	lk_err err;

	worker_wait_begin(thread, handle, &record, wait_ms);
	err = lk_latch_await(handle->latch, wait_ms);
	worker_wait_end(thread);
	record.u.of.valid_until_ns = 0;
	worker_done(handle, &record, err);
	worker_rest(thread, err);
}

void worker_latch(struct worker_thread *thread, struct worker_handle *handle)
{
	int64_t chance = chaos_between(&thread->dice, 1, 100);

	if (chance <= 25)
		set(thread, handle);
	else if (chance <= 85)
		down(thread, handle);
	else
		await(thread, handle);
}
