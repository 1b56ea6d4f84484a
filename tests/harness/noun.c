/* SPDX-License-Identifier: MIT
 * Locks and semaphores behind one set of calls: see noun.h. */
#include "noun.h"

#include "handles.h"
#include "permit_watch.h"
#include "process.h"
#include "scripts.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct noun_losses noun_losses;

static void count_loss(struct noun_losses *losses, uint64_t fence, lk_lost_reason reason)
{
	losses->at_ms = now_ms();
	losses->fence = fence;
	losses->reason = reason;
	losses->count++;
}

/* ---- Locks --------------------------------------------------------------------------------- */

static void note_lock(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	ck_assert_ptr_nonnull(lock);
	count_loss(arg, fence, reason);
}

static lk_err open_lock(lk_client *client, const char *name, struct noun_options options,
                        void **handle)
{
	lk_lock *lock = NULL;
	const lk_lock_options chosen = {
		.lease_ms = options.lease_ms,
		.max_hold_ms = options.max_hold_ms,
		.fixed = options.fixed,
		.label = options.label,
		.owner = options.any_thread ? LK_OWNER_HANDLE : LK_OWNER_THREAD,
		.on_lost = options.losses ? note_lock : NULL,
		.on_lost_arg = options.losses,
	};
	lk_err err = lk_lock_open(client, name, 0, &chosen, &lock);

	*handle = lock;
	return err;
}

static lk_err close_lock(void *lock)
{
	return lk_lock_close(lock);
}

static lk_err acquire_lock(void *lock, int64_t size, int64_t wait_ms, uint64_t *fence)
{
	(void)size;
	return lk_lock_acquire(lock, wait_ms, fence);
}

static lk_err release_lock(void *lock, uint64_t fence)
{
	(void)fence;
	return lk_lock_release(lock);
}

static lk_err cancel_lock(void *lock)
{
	return lk_lock_cancel(lock);
}

static lk_err extend_lock(void *lock, uint64_t fence, int64_t lease_ms)
{
	(void)fence;
	return lk_lock_extend(lock, lease_ms);
}

static lk_err snapshot_lock(void *lock, uint64_t fence, lk_hold *hold)
{
	(void)fence;
	return lk_lock_snapshot(lock, hold);
}

static lk_state state_of_lock(void *lock, uint64_t fence)
{
	(void)fence;
	return lk_lock_state(lock);
}

static lk_err break_lock(void *lock, const char *if_holder)
{
	return lk_lock_break(lock, if_holder);
}

static lk_err query_lock(void *lock, lk_lock_status *status)
{
	return lk_lock_query(lock, status);
}

static lk_err list_lock(void *lock, size_t max, lk_party *waiters, size_t *count)
{
	return lk_lock_waiters(lock, max, waiters, count);
}

static bool lock_at_rest(struct redis *redis, const char *name)
{
	return redis_int(redis, "EXISTS lk:{%s} lk:{%s}:q", name, name) == 0;
}

const struct noun noun_lock = {
	.name = "lock",
	.waits_share = true,
	.rest_keys = 0,
	.count = 1,
	.ask = &lk__script_lock_ask,
	.leave = &lk__script_lock_leave,
	.renew = &lk__script_lock_renew,
	.open = open_lock,
	.close = close_lock,
	.acquire = acquire_lock,
	.release = release_lock,
	.cancel = cancel_lock,
	.extend = extend_lock,
	.snapshot = snapshot_lock,
	.state = state_of_lock,
	.break_hold = break_lock,
	.query = query_lock,
	.waiters = list_lock,
	.at_rest = lock_at_rest,
};

/* ---- Semaphores ----------------------------------------------------------------------------- */

static void note_semaphore(void *arg, lk_semaphore *semaphore, uint64_t hold, lk_lost_reason reason)
{
	ck_assert_ptr_nonnull(semaphore);
	count_loss(arg, hold, reason);
}

static lk_err open_semaphore(lk_client *client, const char *name, struct noun_options options,
                             void **handle)
{
	lk_semaphore *semaphore = NULL;
	const lk_semaphore_options chosen = {
		.capacity = options.capacity ? options.capacity : NOUN_CAPACITY,
		.lease_ms = options.lease_ms,
		.max_hold_ms = options.max_hold_ms,
		.fixed = options.fixed,
		.label = options.label,
		.on_lost = options.losses ? note_semaphore : NULL,
		.on_lost_arg = options.losses,
	};
	lk_err err = lk_semaphore_open(client, name, 0, &chosen, &semaphore);

	*handle = semaphore;
	return err;
}

static lk_err close_semaphore(void *semaphore)
{
	return lk_semaphore_close(semaphore);
}

static lk_err acquire_semaphore(void *semaphore, int64_t size, int64_t wait_ms, uint64_t *fence)
{
	return lk_semaphore_acquire(semaphore, size, wait_ms, fence);
}

static lk_err release_semaphore(void *semaphore, uint64_t fence)
{
	return lk_semaphore_release(semaphore, fence);
}

static lk_err cancel_semaphore(void *semaphore)
{
	return lk_semaphore_cancel(semaphore);
}

static lk_err extend_semaphore(void *semaphore, uint64_t fence, int64_t lease_ms)
{
	return lk_semaphore_extend(semaphore, fence, lease_ms);
}

static lk_err snapshot_semaphore(void *semaphore, uint64_t fence, lk_hold *hold)
{
	return lk_semaphore_snapshot(semaphore, fence, hold);
}

static lk_state state_of_semaphore(void *semaphore, uint64_t fence)
{
	return lk_semaphore_state(semaphore, fence);
}

static lk_err break_semaphore(void *semaphore, const char *if_holder)
{
	return lk_semaphore_break(semaphore, if_holder);
}

static lk_err query_semaphore(void *semaphore, lk_lock_status *status)
{
	lk_semaphore_status now;
	lk_ticket first;
	size_t count;
	lk_err err = lk_semaphore_query(semaphore, &now);

	if (!err)
		err = lk_semaphore_holders(semaphore, 1, &first, &count);
	if (err)
		return err;
	*status = (lk_lock_status){
		.held = count > 0, .queue_len = now.queue_len, .my_rank = now.my_rank};
	if (count) {
		status->holder = first.party;
		status->fence = first.fence;
		status->held_ms = first.held_ms;
		status->lease_left_ms = first.lease_left_ms;
	}
	return LK_OK;
}

static lk_err list_semaphore(void *semaphore, size_t max, lk_party *waiters, size_t *count)
{
	lk_ticket tickets[16];
	lk_err err = lk_semaphore_waiters(semaphore, max < 16 ? max : 16, tickets, count);

	for (size_t i = 0; !err && i < *count; i++)
		waiters[i] = tickets[i].party;
	return err;
}

static bool semaphore_at_rest(struct redis *redis, const char *name)
{
	permits_add_up(redis, name);
	return redis_int(redis, "EXISTS lk:{%s}:q lk:{%s}:h", name, name) == 0 &&
	       permits_used(redis, name) == 0;
}

const struct noun noun_semaphore = {
	.name = "semaphore",
	.rest_keys = 1,
	.count = NOUN_ALONE,
	.ask = &lk__script_semaphore_ask,
	.leave = &lk__script_semaphore_leave,
	.renew = &lk__script_semaphore_renew,
	.open = open_semaphore,
	.close = close_semaphore,
	.acquire = acquire_semaphore,
	.release = release_semaphore,
	.cancel = cancel_semaphore,
	.extend = extend_semaphore,
	.snapshot = snapshot_semaphore,
	.state = state_of_semaphore,
	.break_hold = break_semaphore,
	.query = query_semaphore,
	.waiters = list_semaphore,
	.at_rest = semaphore_at_rest,
};

/* ---- In one line --------------------------------------------------------------------------- */

void *noun_open(const struct noun *noun, lk_client *client, const char *name,
                struct noun_options options)
{
	void *handle = NULL;

	OK(noun->open(client, name, options, &handle));
	return handle;
}

void *noun_named(const struct noun *noun, lk_client *client, const char *name)
{
	return noun_open(noun, client, name, (struct noun_options){0});
}

uint64_t noun_hold(const struct noun *noun, void *handle, int64_t wait_ms)
{
	uint64_t fence = 0;

	OK(noun->acquire(handle, NOUN_ALONE, wait_ms, &fence));
	ck_assert_uint_ne(fence, 0);
	return fence;
}

lk_hold noun_snapshot(const struct noun *noun, void *handle, uint64_t fence)
{
	lk_hold hold;

	memset(&hold, 0xff, sizeof(hold));
	OK(noun->snapshot(handle, fence, &hold));
	return hold;
}

lk_lock_status noun_status(const struct noun *noun, void *handle)
{
	lk_lock_status status;

	OK(noun->query(handle, &status));
	return status;
}

void noun_holds_nothing(const struct noun *noun, void *handle, uint64_t fence)
{
	static const lk_hold empty;
	lk_hold hold = noun_snapshot(noun, handle, fence);

	ck_assert(!memcmp(&hold, &empty, sizeof(empty)));
	ck_assert_int_eq(noun->state(handle, fence), LK_STATE_NONE);
}

/* ---- A wait in a thread of its own ----------------------------------------------------------- */

static void *wait_in_thread(void *arg)
{
	struct noun_wait *wait = arg;
	int64_t start_ms = now_ms();

	wait->thread_id = gettid();
	wait->err = wait->noun->acquire(wait->handle, NOUN_ALONE, wait->wait_ms, &wait->fence);
	wait->took_ms = now_ms() - start_ms;
	if (!wait->err && !wait->keep)
		OK(wait->noun->release(wait->handle, wait->fence));
	wait->ended = true;
	return NULL;
}

void noun_wait_start(struct noun_wait *wait, const struct noun *noun, void *handle, int64_t wait_ms,
                     bool keep)
{
	*wait = (struct noun_wait){
		.noun = noun, .handle = handle, .wait_ms = wait_ms, .keep = keep};
	ck_assert(!pthread_create(&wait->thread, NULL, wait_in_thread, wait));
}

/* Without a hold's own ask that one server of a quorum answers last. */
static int64_t settled_queue(const struct noun *noun, void *handle)
{
	int64_t len = noun_status(noun, handle).queue_len;

	for (int i = 0; i < 3 && len; i++) {
		int64_t now_len;

		nap_ms(10);
		now_len = noun_status(noun, handle).queue_len;
		if (now_len < len)
			len = now_len;
	}
	return len;
}

void noun_wait_queue(struct noun_wait *wait, const struct noun *noun, void *handle, bool keep)
{
	int64_t before = settled_queue(noun, handle);

	noun_wait_start(wait, noun, handle, 15000, keep);
	ck_assert_msg(WITHIN(5000, noun_status(noun, handle).queue_len == before + 1),
	              "%lld in the queue, not %lld", (long long)noun_status(noun, handle).queue_len,
	              (long long)before + 1);
}

bool noun_wait_sleeps(const struct noun_wait *wait)
{
	return proc_thread_sleeps(wait->thread_id);
}

lk_err noun_wait_join(struct noun_wait *wait)
{
	ck_assert_msg(WITHIN(20000, wait->ended), "a wait does not end");
	pthread_join(wait->thread, NULL);
	return wait->err;
}
