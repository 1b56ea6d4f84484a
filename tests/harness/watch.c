/* SPDX-License-Identifier: MIT
 * Shared by tests of faults: a hold that records its loss, and a client that waits. */
#include "watch.h"

#include "handles.h"
#include "process.h"

#include <check.h>

struct losses losses;

void losses_note(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	(void)arg;
	(void)lock;
	losses.at_ms = now_ms();
	losses.fence = fence;
	losses.reason = reason;
	losses.count++;
}

lk_lock *hold_watched(lk_client *client, const char *name, int64_t lease_ms)
{
	const lk_lock_options options = {.lease_ms = lease_ms, .on_lost = losses_note};
	lk_lock *lock = lock_with(client, name, &options);

	OK(lk_lock_acquire(lock, 5000, NULL));
	return lock;
}

void stays_held(lk_lock *lock, int64_t ms)
{
	int64_t end_ms = now_ms() + ms;

	while (now_ms() < end_ms) {
		ck_assert(lk_lock_is_mine(lock));
		nap_ms(10);
	}
	ck_assert_int_eq(losses.count, 0);
}

lk_lock *lock_of_handle(lk_client *client, const char *name, int64_t lease_ms)
{
	const lk_lock_options options = {.lease_ms = lease_ms, .owner = LK_OWNER_HANDLE};

	return lock_with(client, name, &options);
}

static void *wait_in_thread(void *arg)
{
	static atomic_int served;
	struct waiter *waiter = arg;
	int64_t start_ms = now_ms();

	waiter->err = lk_lock_acquire(waiter->lock, waiter->wait_ms, &waiter->fence);
	waiter->took_ms = now_ms() - start_ms;
	if (!waiter->err) {
		waiter->order = served++;
		if (!waiter->keep)
			OK(lk_lock_release(waiter->lock));
	}
	waiter->ended = true;
	return NULL;
}

void waiter_start(struct waiter *waiter, lk_lock *lock, int64_t wait_ms, bool keep)
{
	waiter->lock = lock;
	waiter->wait_ms = wait_ms;
	waiter->keep = keep;
	waiter->ended = false;
	ck_assert(!pthread_create(&waiter->thread, NULL, wait_in_thread, waiter));
}

lk_err waiter_join(struct waiter *waiter)
{
	ck_assert_msg(WITHIN(20000, waiter->ended), "a wait does not end");
	pthread_join(waiter->thread, NULL);
	return waiter->err;
}
