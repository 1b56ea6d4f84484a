/* SPDX-License-Identifier: MIT
 * The seam: the threads, the state machines and the public calls over a store that is no Redis and
 * no server.  Clients of one process stand for processes. */
#include "harness/handles.h"
#include "harness/memory_store.h"
#include "harness/process.h"
#include "harness/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define CLIENTS 8
#define URL "redis://127.0.0.1:1" /* nobody listens there */

static int counter; /* guarded by nothing but the lock */
static uint64_t last_fence;

static void *count_60(void *arg)
{
	lk_lock *lock = lock_named(arg, "counter");

	for (int i = 0; i < 60; i++) {
		int value;
		OK(lk_lock_acquire(lock, LK_FOREVER));
		ck_assert_uint_gt(lk_lock_fence(lock), last_fence);
		last_fence = lk_lock_fence(lock);
		value = counter;
		if (value % 16 == 0)
			nap_ms(1);
		counter = value + 1;
		OK(lk_lock_release(lock));
	}
	return NULL;
}

TEST_LIMIT(counter_of_threads_never_loses_on_another_store, 60)
{
	pthread_t threads[CLIENTS];
	lk_client *clients[2];

	memory_store_use();
	for (int i = 0; i < 2; i++)
		clients[i] = client_at(URL);
	for (int i = 0; i < CLIENTS; i++)
		pthread_create(&threads[i], NULL, count_60, clients[i % 2]);
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(counter, CLIENTS * 60);
	ck_assert_int_eq(memory_store_queue("counter"), 0);
	for (int i = 0; i < 2; i++)
		OK(lk_client_close(clients[i]));
}

static int served[CLIENTS], served_count; /* guarded by the lock */
static lk_client *waiting[CLIENTS];

static void *wait_once(void *arg)
{
	int i = (int)(intptr_t)arg;
	lk_lock *lock = lock_named(waiting[i], "line");

	OK(lk_lock_acquire(lock, LK_FOREVER));
	served[served_count++] = i;
	OK(lk_lock_release(lock));
	return NULL;
}

TEST_LIMIT(clients_are_served_in_order_on_another_store, 60)
{
	pthread_t threads[CLIENTS];
	lk_client *client;
	lk_lock *lock;

	memory_store_use();
	client = client_at(URL);
	lock = lock_named(client, "line");
	OK(lk_lock_acquire(lock, 1000));
	for (int i = 0; i < CLIENTS; i++) {
		waiting[i] = client_at(URL);
		pthread_create(&threads[i], NULL, wait_once, (void *)(intptr_t)i);
		ck_assert(WITHIN(10000, memory_store_queue("line") == i + 1));
	}
	OK(lk_lock_release(lock));
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < CLIENTS; i++) {
		ck_assert_int_eq(served[i], i);
		OK(lk_client_close(waiting[i]));
	}
	OK(lk_client_close(client));
}

static atomic_bool crowd_ends;
static atomic_int crowd_rounds, crowd_wants;

/* Holds until another thread wants the lock, or the store, which answers at once, is asked for each
 * round of a thread that is alone. */
static void *crowd_thread(void *arg)
{
	while (!crowd_ends) {
		crowd_wants++;
		OK(lk_lock_acquire(arg, LK_FOREVER));
		crowd_wants--;
		crowd_rounds++;
		for (int i = 0; i < 10000 && !crowd_ends && crowd_wants < 3; i++)
			sched_yield();
		OK(lk_lock_release(arg));
	}
	return NULL;
}

/* Hand-overs between threads ask nothing of the store; another client has its turn all the same. */
TEST_LIMIT(local_crowd_asks_little_and_lets_others_in_on_another_store, 60)
{
	pthread_t threads[4];
	lk_client *client, *other;
	lk_lock *lock;
	long long before;
	int rounds;

	memory_store_use();
	client = client_at(URL);
	other = client_at(URL);
	lock = lock_named(other, "line");
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, crowd_thread, lock_named(client, "line"));
	ck_assert(WITHIN(5000, crowd_rounds > 200));
	rounds = crowd_rounds;
	before = memory_store_requests();
	ck_assert(WITHIN(10000, crowd_rounds > rounds + 2000));
	ck_assert_int_lt(memory_store_requests() - before, 1000);
	for (int i = 0; i < 20; i++) {
		OK(lk_lock_acquire(lock, 5000));
		OK(lk_lock_release(lock));
	}
	crowd_ends = true;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* Times and errors are the client's: a try, a wait that ends, a hold that is kept by renewals. */
TEST(waits_end_and_holds_are_renewed_on_another_store)
{
	lk_lock_options options = {.lease_ms = 300};
	lk_client *one, *two;
	lk_lock *held, *wanted;

	memory_store_use();
	one = client_at(URL);
	two = client_at(URL);
	OK(lk_lock_open(one, "kept", &options, &held));
	wanted = lock_named(two, "kept");
	OK(lk_lock_acquire(held, 0));
	ck_assert_int_eq(lk_lock_acquire(wanted, 0), LK_EBUSY);
	ck_assert_int_eq(lk_lock_acquire(wanted, 700), LK_ETIMEDOUT);
	ck_assert_int_eq(memory_store_queue("kept"), 0);
	ck_assert(lk_lock_is_mine(held));
	OK(lk_lock_release(held));
	OK(lk_lock_acquire(wanted, 0));
	OK(lk_lock_release(wanted));
	OK(lk_client_close(one));
	OK(lk_client_close(two));
}
