/* SPDX-License-Identifier: MIT
 * The lock's promise on any store: one holder at a time, growing fences, waits that end.  See
 * harness/test_store.h. */
#ifndef STORES_LOCK_H
#define STORES_LOCK_H

#include "harness/handles.h"
#include "harness/process.h"
#include "harness/test.h"
#include "harness/test_store.h"

#include <pthread.h>
#include <stdatomic.h>

#define LOCK_CONTENDERS 8

/* Protected only by the lock: read, pause, write. */
static atomic_int lock_counter;
static _Atomic uint64_t lock_last_fence;

static void *contend(void *client)
{
	lk_lock *lock = lock_named(client, "counter");

	for (int i = 0; i < 60; i++) {
		uint64_t fence;
		int value;
		OK(lk_lock_acquire(lock, LK_FOREVER, &fence));
		ck_assert_uint_gt(fence, lock_last_fence);
		lock_last_fence = fence;
		value = lock_counter;
		if (value % 16 == 0)
			nap_ms(1);
		lock_counter = value + 1;
		OK(lk_lock_release(lock));
	}
	OK(lk_lock_close(lock));
	return NULL;
}

/* Contend with threads that share so many clients, and check that no key remains. */
static void contend_by(int client_count)
{
	const char *address = STORE.start();
	struct redis *keys = STORE.look();
	lk_client *clients[LOCK_CONTENDERS];
	pthread_t threads[LOCK_CONTENDERS];
	lk_lock_status status;

	for (int i = 0; i < client_count; i++)
		clients[i] = client_at(address);
	for (int i = 0; i < LOCK_CONTENDERS; i++)
		pthread_create(&threads[i], NULL, contend, clients[i % client_count]);
	for (int i = 0; i < LOCK_CONTENDERS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(lock_counter, LOCK_CONTENDERS * 60);
	OK(lk_lock_query(lock_named(clients[0], "counter"), &status));
	ck_assert(!status.held && status.queue_len == 0);
	for (int i = 0; i < client_count; i++)
		OK(lk_client_close(clients[i]));
	/* Only the fence counter remains. */
	if (keys) {
		ck_assert_int_eq(redis_int(keys, "DBSIZE"), 1);
		ck_assert_int_eq(redis_int(keys, "EXISTS lk:fence"), 1);
	}
}

TEST_LIMIT(counter_of_threads_never_loses, 90)
{
	contend_by(1);
}

TEST_LIMIT(counter_of_clients_with_threads_never_loses, 90)
{
	contend_by(2);
}

TEST_LIMIT(fences_grow_over_10000_grants, 120)
{
	lk_client *client = client_at(STORE.start());
	lk_lock *lock = lock_named(client, "fences");
	uint64_t last = 0;

	for (int i = 0; i < 10000; i++) {
		uint64_t fence;
		OK(lk_lock_acquire(lock, 1000, &fence));
		OK(lk_lock_release(lock));
		ck_assert_uint_gt(fence, last);
		last = fence;
	}
	OK(lk_client_close(client));
}

/* The fence of a local hand-over is larger than all earlier ones, and so is the next grant's. */
static void *fence_thread(void *arg)
{
	lk_lock *lock = arg;

	for (int i = 0; i < 300; i++) {
		uint64_t fence;
		OK(lk_lock_acquire(lock, LK_FOREVER, &fence));
		ck_assert_uint_gt(fence, lock_last_fence);
		lock_last_fence = fence;
		OK(lk_lock_release(lock));
	}
	return NULL;
}

TEST_LIMIT(fences_grow_across_local_hand_overs, 60)
{
	lk_client *client = client_at(STORE.start());
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, fence_thread, lock_named(client, "fences"));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	OK(lk_client_close(client));
}

/* A try, a wait that ends, a hold that is renewed. */
TEST(waits_end_and_holds_are_renewed)
{
	const char *address = STORE.start();
	lk_client *one = client_at(address), *two = client_at(address);
	lk_lock *held = lock_leased(one, "kept", 300), *wanted = lock_named(two, "kept");
	lk_lock_status status;

	OK(lk_lock_acquire(held, 0, NULL));
	EXPECT(lk_lock_acquire(wanted, 0, NULL), LK_EBUSY);
	EXPECT(lk_lock_acquire(wanted, 700, NULL), LK_ETIMEDOUT);
	OK(lk_lock_query(wanted, &status));
	ck_assert_int_eq(status.queue_len, 0);
	ck_assert(lk_lock_is_mine(held));
	OK(lk_lock_release(held));
	OK(lk_lock_acquire(wanted, 0, NULL));
	OK(lk_lock_release(wanted));
	OK(lk_client_close(one));
	OK(lk_client_close(two));
}

#endif
