/* SPDX-License-Identifier: MIT
 * What only a lock promises, on any store: re-entry, owners, and a loss that its owner must
 * acknowledge. */
#ifndef STORES_LOCK_H
#define STORES_LOCK_H

#include "stores/set_up.h"

static long long lock_keys(void)
{
	return redis_int(redis, "EXISTS lk:{a} lk:{a}:q");
}

/* ---- Reentry and owners ------------------------------------------------------------------- */

TEST_STORE(hold_count_follows_reentry, 20, STORE_LOCKS | STORE_KEYS)
{
	lk_client *client = set_up();
	lk_lock *lock = lock_named(client, "a"), *same = lock_named(client, "a");
	uint64_t fence = 0, again = 0;

	ck_assert_uint_eq(hold_of(lock).count, 0);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_NONE);
	ck_assert_uint_eq(hold_of(lock).fence, 0);
	OK(lk_lock_acquire(lock, 0, &fence));
	ck_assert_uint_ne(fence, 0);
	OK(lk_lock_acquire(lock, LK_FOREVER, NULL));
	OK(lk_lock_acquire(same, 0, &again)); /* through any handle of the client */
	ck_assert_uint_eq(again, fence);
	ck_assert_uint_eq(hold_of(lock).count, 3);
	ck_assert_uint_eq(hold_of(same).count, 3);
	ck_assert_uint_eq(hold_of(same).fence, fence);
	OK(lk_lock_release(lock));
	OK(lk_lock_release(same));
	ck_assert(lk_lock_is_mine(lock));
	ck_assert_int_eq(lock_keys(), 1);
	OK(lk_lock_release(lock));
	ck_assert(!lk_lock_is_mine(lock));
	ck_assert_int_eq(lock_keys(), 0);
	EXPECT(lk_lock_release(lock), LK_ENOTOWNER);
	OK(lk_client_close(client));
}

static void *release_thread(void *arg)
{
	static lk_err err;

	err = lk_lock_release(arg);
	return &err;
}

/* Return the result of a release in another thread. */
static lk_err release_elsewhere(lk_lock *lock)
{
	pthread_t thread;
	void *err;

	pthread_create(&thread, NULL, release_thread, lock);
	pthread_join(thread, &err);
	return *(lk_err *)err;
}

TEST_STORE(hold_of_a_thread_is_released_by_it_alone, 20, STORE_LOCKS | STORE_KEYS)
{
	lk_client *client = set_up();
	lk_lock *lock = lock_named(client, "a");

	OK(lk_lock_acquire(lock, 0, NULL));
	ck_assert_int_eq(release_elsewhere(lock), LK_ENOTOWNER);
	ck_assert_uint_eq(hold_of(lock).count, 1);
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}

TEST_STORE(hold_of_a_handle_is_released_by_any_thread, 20, STORE_LOCKS | STORE_KEYS)
{
	const lk_lock_options options = {.owner = LK_OWNER_HANDLE};
	lk_client *client = set_up();
	lk_lock *lock = lock_with(client, "a", &options), *other = lock_with(client, "a", &options);
	uint64_t fence = 17;

	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_acquire(lock, 0, NULL));
	/* Another handle is another owner, even in the same thread. */
	EXPECT(lk_lock_acquire(other, 0, &fence), LK_EBUSY);
	ck_assert_uint_eq(fence, 17); /* a result is written on success only */
	EXPECT(lk_lock_release(other), LK_ENOTOWNER);
	ck_assert_int_eq(release_elsewhere(lock), LK_OK);
	ck_assert_uint_eq(hold_of(lock).count, 1);
	ck_assert_int_eq(release_elsewhere(lock), LK_OK);
	ck_assert_int_eq(lock_keys(), 0);
	OK(lk_lock_acquire(other, 0, NULL));
	OK(lk_client_close(client));
}

TEST_STORE(wait_of_a_handle_for_its_own_thread_is_a_deadlock, 20, STORE_LOCKS | STORE_KEYS)
{
	const lk_lock_options of_handle = {.owner = LK_OWNER_HANDLE};
	lk_client *client = set_up();
	lk_lock *lock = lock_named(client, "a"), *other = lock_with(client, "a", &of_handle);
	lk_lock *limited = lock_with(client, "a", &(lk_lock_options){.max_hold_ms = 300});
	int64_t start_ms = now_ms();
	uint64_t fence = 17;

	OK(lk_lock_acquire(lock, 0, NULL));
	EXPECT(lk_lock_acquire(other, LK_FOREVER, &fence), LK_EDEADLOCK);
	EXPECT(lk_lock_acquire(other, 5000, &fence), LK_EDEADLOCK);
	ck_assert_uint_eq(fence, 17);
	EXPECT(lk_lock_acquire(other, 0, NULL), LK_EBUSY);
	ck_assert_int_lt(now_ms() - start_ms, 1000);
	OK(lk_lock_release(lock));
	OK(lk_lock_acquire(limited, 0, NULL));
	OK(lk_lock_acquire(other, 5000, NULL));
	EXPECT(lk_lock_release(limited), LK_ELOST);
	OK(lk_lock_release(other));
	OK(lk_client_close(client));
}

static void *end_holding(void *arg)
{
	static uint64_t fence;

	fence = noun_hold(&noun_lock, arg, 0);
	return &fence;
}

TEST_STORE(hold_of_an_ended_thread_is_released_and_reported, 20, STORE_LOCKS)
{
	lk_client *client = set_up(), *other = client_at(url);
	struct noun_options options = {.losses = &noun_losses};
	lk_lock *lock = noun_open(&noun_lock, client, "a", options);
	pthread_t thread;
	void *fence;

	pthread_create(&thread, NULL, end_holding, lock);
	pthread_join(thread, &fence);
	ck_assert(WITHIN(2000, noun_losses.count == 1));
	ck_assert_int_eq(noun_losses.reason, LK_LOST_THREAD);
	ck_assert_uint_eq(noun_losses.fence, *(uint64_t *)fence);
	OK(lk_lock_acquire(lock_named(other, "a"), 1000, NULL)); /* long before the lease's end */
	noun_holds_nothing(&noun_lock, lock, 0);
	EXPECT(lk_lock_release(lock), LK_ENOTOWNER);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* ---- Losses --------------------------------------------------------------------------------- */

TEST_STORE(loss_is_acknowledged_before_the_next_hold, 20, STORE_LOCKS)
{
	const lk_lock_options options = {.fixed = true, .lease_ms = 300};
	lk_client *client = set_up(), *other = client_at(url);
	lk_lock *lock = lock_with(client, "a", &options);
	uint64_t fence;

	OK(lk_lock_acquire(lock, 0, &fence));
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_acquire(lock_named(other, "a"), 5000, NULL));
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_LOST);
	ck_assert(!lk_lock_is_mine(lock));
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_ELOST);
	ck_assert_uint_eq(hold_of(lock).fence, fence);
	ck_assert_int_eq(hold_of(lock).count, 2);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	noun_holds_nothing(&noun_lock, lock, 0);
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EBUSY);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

#endif
