/* SPDX-License-Identifier: MIT
 * Fairness on any store: clients are served FIFO, and the threads of one client do not starve
 * others.  See harness/test_store.h. */
#ifndef STORES_FIFO_H
#define STORES_FIFO_H

#include "harness/handles.h"
#include "harness/process.h"
#include "harness/test.h"
#include "harness/test_store.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define FIFO_CLIENTS 8

static const char *fifo_url;
static atomic_int served[FIFO_CLIENTS], served_count;

static void *wait_in_line(void *arg)
{
	lk_client *client = client_at(fifo_url);
	lk_lock *lock = lock_named(client, "line");

	OK(lk_lock_acquire(lock, LK_FOREVER, NULL));
	served[served_count] = (int)(intptr_t)arg;
	served_count = served_count + 1; /* guarded by the lock */
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	return NULL;
}

static int64_t queue_len_of(lk_lock *lock)
{
	lk_lock_status status;

	OK(lk_lock_query(lock, &status));
	return status.queue_len;
}

TEST_LIMIT(clients_are_served_in_order, 60)
{
	pthread_t threads[FIFO_CLIENTS];
	lk_client *client;
	lk_lock *lock;

	fifo_url = STORE.start();
	client = client_at(fifo_url);
	lock = lock_named(client, "line");
	OK(lk_lock_acquire(lock, 1000, NULL));
	for (int i = 0; i < FIFO_CLIENTS; i++) {
		pthread_create(&threads[i], NULL, wait_in_line, (void *)(intptr_t)i);
		ck_assert(WITHIN(10000, queue_len_of(lock) == i + 1));
	}
	OK(lk_lock_release(lock));
	for (int i = 0; i < FIFO_CLIENTS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(served_count, FIFO_CLIENTS);
	for (int i = 0; i < FIFO_CLIENTS; i++)
		ck_assert_int_eq(served[i], i);
	OK(lk_client_close(client));
}

/* Local threads that contend for the lock without a pause.  A thread holds it until another one
 * wants it, too, up to a limit: otherwise a store that responds at once would get a request for
 * each round of a lone thread. */
static atomic_bool crowd_ends;
static atomic_int crowd_rounds, crowd_wants;

static void *crowd_thread(void *lock)
{
	while (!crowd_ends) {
		crowd_wants++;
		OK(lk_lock_acquire(lock, LK_FOREVER, NULL));
		crowd_wants--;
		crowd_rounds++;
		for (int i = 0; i < 10000 && !crowd_ends && crowd_wants < 3; i++)
			sched_yield();
		OK(lk_lock_release(lock));
	}
	return NULL;
}

static void crowd_start(pthread_t threads[4], lk_client *client)
{
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, crowd_thread, lock_named(client, "line"));
	ck_assert(WITHIN(5000, crowd_rounds > 200));
}

static void crowd_end(pthread_t threads[4], lk_client *client)
{
	crowd_ends = true;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	OK(lk_client_close(client));
}

TEST(local_crowd_hands_over_without_requests)
{
	lk_client *client = client_at(STORE.start());
	pthread_t threads[4];
	long long before, requests;
	int rounds;

	crowd_start(threads, client);
	rounds = crowd_rounds;
	before = STORE.requests();
	ck_assert(WITHIN(10000, crowd_rounds > rounds + 2000));
	requests = STORE.requests() - before;
	crowd_end(threads, client);
	ck_assert_msg(requests < 1000, "%lld requests for 2,000 rounds", requests);
}

/* Each acquisition takes less than a second. */
TEST_LIMIT(local_crowd_lets_another_client_in, 60)
{
	const char *address = STORE.start();
	lk_client *client = client_at(address), *other = client_at(address);
	lk_lock *lock = lock_named(other, "line");
	pthread_t threads[4];

	crowd_start(threads, client);
	for (int i = 0; i < 20; i++) {
		OK(lk_lock_acquire(lock, 1000, NULL));
		OK(lk_lock_release(lock));
	}
	crowd_end(threads, client);
	OK(lk_client_close(other));
}

#endif
