/* SPDX-License-Identifier: MIT
 * A worker's turn with a lock: acquire, enter the canary, work, leave, release. */
#include "chaos/worker.h"

#include <stdio.h>
#include <unistd.h>

#define LAST_WAIT_US 200000
#define TOLD_US 1500000 /* by then a loss is reported even on a loaded machine */

static lk_hold hold_of(const struct worker_handle *handle)
{
	lk_hold hold;

	return lk_lock_snapshot(handle->lock, &hold) == LK_OK ? hold : (lk_hold){0};
}

static int64_t valid_until_ns(void *arg)
{
	int64_t now_ns = history_now_ns(), left_ms = hold_of(arg).remaining_ms;

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

static lk_err acquire(struct worker_thread *thread, struct worker_handle *handle, int64_t wait_ms,
                      uint8_t flags)
{
	struct history_record record = worker_record(handle, HISTORY_ACQUIRE);
	lk_err err;

	record.flags |= flags;
	record.permits = 1;
	record.u.of.amount = handle->lease_ms;
	worker_wait_begin(thread, handle, &record, wait_ms);
	err = lk_lock_acquire(handle->lock, wait_ms, &record.u.of.fence);
	worker_wait_end(thread);
	record.u.of.amount = 0;
	record.u.of.valid_until_ns = err ? 0 : valid_until_ns(handle);
	worker_done(handle, &record, err);
	return err;
}

static lk_err release(struct worker_handle *handle, uint8_t flags)
{
	struct history_record record = worker_record(handle, HISTORY_RELEASE);
	lk_err err;

	record.flags |= flags;
	record.permits = 1;
	record.u.of.fence = hold_of(handle).fence;
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
	record.u.of.fence = hold_of(handle).fence;
	/* On etcd no lease can be longer than at first. */
	record.u.of.amount =
		handle->worker->etcd ? handle->lease_ms : handle->worker->page->lease_max_ms;
	record.call = history_begin(handle->worker->history, &record);
	err = lk_lock_extend(handle->lock, record.u.of.amount);
	record.u.of.valid_until_ns = valid_until_ns(handle);
	worker_done(handle, &record, err);
}

static void reenter(struct worker_thread *thread, struct worker_handle *handle)
{
	if (acquire(thread, handle, 0, HISTORY_REENTRY) == LK_OK)
		release(handle, HISTORY_REENTRY);
}

static void note(struct worker_handle *handle, const struct canary *canary, enum history_op op,
                 int err)
{
	struct history_record record = worker_record(handle, op);

	record.err = err;
	record.permits = 1;
	record.u.of.fence = hold_of(handle).fence;
	record.u.of.valid_until_ns = valid_until_ns(handle);
	record.u.of.amount = err ? canary->other : 0;
	history_event(handle->worker->history, &record);
	if (err)
		handle->worker->page->violations++;
}

static void seen(struct worker_handle *handle, int64_t valid_ns)
{
	struct history_record record = worker_record(handle, HISTORY_SEEN);

	record.permits = 1;
	record.u.of.fence = hold_of(handle).fence;
	record.u.of.valid_until_ns = valid_ns;
	history_event(handle->worker->history, &record);
}

/* Stay inside, in pieces, so that the canary sees renewals. */
static void work(struct worker_thread *thread, struct worker_handle *handle, struct canary *canary)
{
	int64_t left_us = worker_hold_us(thread, handle), valid_ns;
	int64_t apart_us = thread->worker->apart_us;
	bool over = false;

	if (chaos_once_in(&thread->dice, 30))
		reenter(thread, handle);
	if (chaos_once_in(&thread->dice, 40))
		extend(handle);
	while (left_us > 0) {
		int64_t piece_us = left_us < WORKER_PIECE_US ? left_us : WORKER_PIECE_US;
		worker_nap_us(piece_us);
		valid_ns = valid_until_ns(handle);
		canary_refresh(canary, valid_ns);
		if (!valid_ns && thread->worker->quorum)
			canary_lost(canary);
		left_us -= piece_us;
		if (left_us <= 0 && apart_us > 0 && valid_ns &&
		    lk_lock_state(handle->lock) == LK_STATE_UNSURE) {
			left_us = WORKER_PIECE_US;
			apart_us -= left_us;
		}
		if (left_us <= 0 || over)
			continue;
		seen(handle, valid_ns);
		/* A lost hold blocks no waiter: stay to see whether the loss is reported. */
		over = !valid_ns;
		if (over && chaos_once_in(&thread->dice, 3))
			left_us = TOLD_US;
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
	if (handle->lock)
		err = lk_lock_break(handle->lock, NULL);
	else
		err = lk_semaphore_break(handle->semaphore, NULL);
	break_log(handle, "end");
	if (err == LK_OK)
		handle->worker->page->breaks++;
	else if (err != LK_EABSENT && err != LK_EMISMATCH && err != LK_ECONN &&
	         err != LK_EUNKNOWN && err != LK_ESERVER && err != LK_EAGAIN)
		fprintf(stderr, "worker %d: break: %s\n", (int)getpid(), lk_errmsg());
}

/* ---- detached holds and waits -------------------------------------- */

struct leaver {
	struct worker_thread *thread;
	struct worker_handle *handle;
	_Atomic bool begun;
};

/* A thread that ends while it holds the lock, which is then released. */
static void *abandon(void *arg)
{
	struct leaver *leaver = arg;
	struct worker_handle *handle = leaver->handle;
	struct history_record record = worker_record(handle, HISTORY_RELEASE);

	if (acquire(leaver->thread, handle, CHAOS_COMMAND_MS, 0))
		return NULL;
	record.permits = 1;
	record.u.of.fence = hold_of(handle).fence;
	record.u.of.valid_until_ns = valid_until_ns(handle);
	record.call = history_begin(handle->worker->history, &record);
	record.u.of.valid_until_ns = 0;
	/* There is no event when it happens. */
	worker_done(handle, &record, LK_EUNKNOWN);
	return NULL;
}

void worker_abandon(struct worker_thread *thread, struct worker_handle *handle)
{
	struct leaver leaver = {.thread = thread, .handle = handle};
	pthread_t id;

	if (!pthread_create(&id, NULL, abandon, &leaver))
		pthread_join(id, NULL);
}

/* A wait that the close of the client ends.  It cannot find out whether it was granted. */
static void *last_wait(void *arg)
{
	struct leaver *leaver = arg;
	struct worker_handle *handle = leaver->handle;
	struct history_record record = worker_record(handle, HISTORY_ACQUIRE);
	lk_err err;

	record.permits = 1;
	record.u.of.amount = handle->lease_ms;
	record.call = history_begin(handle->worker->history, &record);
	leaver->begun = true;
	err = lk_lock_acquire(handle->lock, LK_FOREVER, NULL);
	record.u.of.amount = 0;
	worker_done(handle, &record, err == LK_OK || err == LK_ECLOSED ? LK_EUNKNOWN : err);
	return NULL;
}

lk_err worker_close(struct worker *worker)
{
	struct leaver leaver = {.handle = NULL};
	bool waits = false;
	pthread_t id;
	lk_err err;

	for (int i = 0; i < worker->handle_count; i++)
		if (worker->handles[i].lock)
			leaver.handle = &worker->handles[i];
	if (leaver.handle && worker->seed % 3 == 0)
		waits = !pthread_create(&id, NULL, last_wait, &leaver);
	while (waits && !leaver.begun)
		worker_nap_us(1000);
	/* Long enough for the thread to be inside the call: none may begin while the client is
	 * closed. */
	if (waits)
		worker_nap_us(LAST_WAIT_US);
	err = lk_client_close(worker->client);
	if (waits)
		pthread_join(id, NULL);
	return err;
}

void worker_lock(struct worker_thread *thread, struct worker_handle *handle)
{
	struct worker *worker = thread->worker;
	struct canary canary = {
		worker->page, thread->slot, handle->name, valid_until_ns, handle, NULL, 0, 0, 0, 0};
	int64_t wait_ms = worker_wait_ms(thread), until_ns;
	lk_err err = acquire(thread, handle, wait_ms, 0);
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
			met = canary_store(&canary, hold_of(handle).fence);
		note(handle, &canary, HISTORY_ENTER, met);
		work(thread, handle, &canary);
		/* Its last write may come too late: the store with fences refuses it then. */
		late = canary_store(&canary, hold_of(handle).fence);
		met = canary_leave(&canary);
		if (!met && late)
			met = 3;
		note(handle, &canary, HISTORY_LEAVE, met);
	}
	err = release(handle, 0);
	if (err == LK_OK)
		worker_pair(worker, wait_ms != 0);
	worker_rest(thread, err);
}
