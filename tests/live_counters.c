/* SPDX-License-Identifier: MIT
 * A client's counters on a real server, as a monitoring program sees them, also while other threads
 * work. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/server.h"
#include "harness/test.h"

#include <latchkey.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define TURNS 200

static lk_counters counters_of(lk_client *client)
{
	lk_counters counters;

	memset(&counters, 0xff, sizeof(counters));
	OK(lk_client_counters(client, &counters));
	return counters;
}

TEST(counters_begin_at_zero)
{
	const lk_counters zero = {.connected = 1};
	struct test_server server;
	lk_counters counters;
	lk_client *client;

	server_start(&server, NULL);
	client = client_at(server.url);
	counters = counters_of(client);
	ck_assert_mem_eq(&counters, &zero, sizeof(zero));
	OK(lk_client_close(client));
	server_stop(&server);
}

TEST(counters_tell_what_a_program_did)
{
	struct test_server server;
	lk_client *client, *other;
	lk_lock *lock, *same;
	lk_semaphore *semaphore;
	lk_latch *latch;
	lk_counters counters;
	uint64_t hold;

	server_start(&server, NULL);
	client = client_at(server.url);
	other = client_at(server.url);
	lock = lock_named(client, "a");
	same = lock_named(other, "a");
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_acquire(lock, 0, NULL));
	EXPECT(lk_lock_acquire(same, 0, NULL), LK_EBUSY);
	EXPECT(lk_lock_acquire(same, 20, NULL), LK_ETIMEDOUT);
	OK(lk_lock_release(lock));
	OK(lk_lock_release(lock));
	semaphore = semaphore_of(client, "s", 2, 0);
	hold = permits_of(semaphore, 2, 0);
	OK(lk_semaphore_release(semaphore, hold));
	OK(lk_latch_open(client, "l", 0, NULL, &latch));
	OK(lk_latch_set(latch, 2, NULL));
	OK(lk_latch_down(latch, 2, NULL, 0, NULL));
	OK(lk_latch_await(latch, 1000));
	counters = counters_of(client);
	ck_assert_int_eq(counters.acquired, 2);
	ck_assert_int_eq(counters.reentered, 1);
	ck_assert_int_eq(counters.waited, 0);
	ck_assert_int_eq(counters.holds, 2);
	ck_assert_int_ge(counters.held_max_us, 20000);
	ck_assert_int_ge(counters.held_us, counters.held_max_us);
	ck_assert_int_eq(counters.awaited, 1);
	ck_assert_int_eq(counters.stepped, 1);
	/* acquire, leave; acquire, leave; query and down; query */
	ck_assert_int_eq(counters.requests, 7);
	counters = counters_of(other);
	ck_assert_int_eq(counters.acquired, 0);
	ck_assert_int_eq(counters.busy, 1);
	ck_assert_int_eq(counters.timed_out, 1);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	server_stop(&server);
}

TEST(counters_tell_of_losses_and_reconnects)
{
	struct test_server server;
	lk_client *client;
	lk_counters counters;
	lk_lock *lock;

	server_start(&server, NULL);
	client = client_at(server.url);
	lock = lock_leased(client, "a", 1000);
	OK(lk_lock_acquire(lock, 0, NULL));
	ck_assert(WITHIN(5000, counters_of(client).renewed >= 2));
	ck_assert_int_gt(counters_of(client).lease_max_permille, 250);
	server_kill(&server);
	ck_assert(WITHIN(5000, counters_of(client).lost[LK_LOST_EXPIRED] == 1));
	server_restart(&server);
	ck_assert(WITHIN(5000, counters_of(client).connected == 2));
	counters = counters_of(client);
	ck_assert_int_eq(counters.lost[0], 1);
	ck_assert_int_eq(counters.holds, 1);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(lk_client_close(client));
	server_stop(&server);
}

/* ---- Threads ------------------------------------------------------------------------------ */

struct crowd {
	lk_client *client;
	atomic_bool done;
};

static void *contend(void *arg)
{
	struct crowd *crowd = arg;
	lk_lock *lock = lock_named(crowd->client, "a");

	for (int i = 0; i < TURNS; i++) {
		OK(lk_lock_acquire(lock, LK_FOREVER, NULL));
		OK(lk_lock_release(lock));
	}
	return NULL;
}

/* Each snapshot is of one moment: its counters agree, and none decreases. */
static void *watch(void *arg)
{
	struct crowd *crowd = arg;
	lk_counters before = {0};

	while (!crowd->done) {
		lk_counters now = counters_of(crowd->client);
		ck_assert_int_ge(now.acquired, before.acquired);
		ck_assert_int_ge(now.waited_us, before.waited_us);
		ck_assert_int_ge(now.acquired, now.holds);
		ck_assert_int_le(now.acquired - now.holds, 1);
		ck_assert_int_le(now.by_thread, now.waited);
		ck_assert_int_le(now.waited, now.acquired);
		before = now;
	}
	return NULL;
}

TEST(counters_agree_while_threads_contend)
{
	struct test_server server;
	struct crowd crowd = {0};
	pthread_t threads[THREADS], watcher;
	lk_counters counters;

	server_start(&server, NULL);
	crowd.client = client_at(server.url);
	pthread_create(&watcher, NULL, watch, &crowd);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, contend, &crowd);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	crowd.done = true;
	pthread_join(watcher, NULL);
	counters = counters_of(crowd.client);
	ck_assert_int_eq(counters.acquired, THREADS * TURNS);
	ck_assert_int_eq(counters.holds, THREADS * TURNS);
	ck_assert_int_gt(counters.by_thread, 0);
	/* Two requests for each grant that was no hand-over; few renewals and messages of other
	 * clients. */
	ck_assert_int_ge(counters.requests, 2 * (counters.acquired - counters.by_thread));
	ck_assert_int_ge(counters.acquired_us, counters.waited_us);
	ck_assert_int_ge(counters.waited_us, counters.waited_max_us);
	OK(lk_client_close(crowd.client));
	server_stop(&server);
}

TEST(counters_are_not_a_childs)
{
	struct test_server server;
	lk_client *client;
	lk_counters counters;
	int status;
	pid_t child;

	server_start(&server, NULL);
	client = client_at(server.url);
	child = fork();
	if (!child)
		_exit(lk_client_counters(client, &counters));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(WEXITSTATUS(status), LK_EFORKED);
	OK(lk_client_close(client));
	server_stop(&server);
}
