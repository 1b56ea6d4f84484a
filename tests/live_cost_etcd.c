/* SPDX-License-Identifier: MIT
 * What an acquisition costs on etcd: requests, system calls, and the library's requests for memory
 * (nghttp2 makes its own).  A renewal may add some to a turn, so the cheapest one counts.
 *
 * LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup
 */
#include "harness/calls.h"
#include "harness/counted_memory.h"
#include "harness/etcd_server.h"
#include "harness/handles.h"
#include "harness/latch_watch.h"
#include "harness/process.h"
#include "harness/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define EACH 50
#define TURNS 10
#define CROWD 8
#define LEASE_MS 20000

static struct etcd_servers shared;

static void start_shared(void)
{
	etcd_start(&shared, 1);
}

__attribute__((constructor)) static void prepare(void)
{
	test_before_all(start_shared);
}

static lk_lock *lock_here(void)
{
	lk_lock *lock = lock_leased(client_at(etcd_url(&shared, "", "")), "cost", LEASE_MS);

	OK(lk_lock_acquire(lock, LK_FOREVER, NULL));
	OK(lk_lock_release(lock));
	return lock;
}

static double requests(void)
{
	return etcd_metric(&shared, 0, "grpc_server_started_total{", "\"unary\"");
}

static double memory(void)
{
	return (double)atomic_load(&asked);
}

/* The cheapest turn, by the acquisition. */
static double cost_of(double (*read)(void), void (*work)(void *arg), void *arg, int each)
{
	double best = -1;

	work(arg); /* buffers grow */
	for (int i = 0; i < TURNS; i++) {
		double before = read(), cost;

		work(arg);
		cost = (read() - before) / each;
		if (best < 0 || cost < best)
			best = cost;
	}
	return best;
}

static void acquire_and_release(void *lock)
{
	for (int i = 0; i < EACH; i++) {
		DO(lk_lock_acquire(lock, i & 1 ? 0 : LK_FOREVER, NULL));
		DO(lk_lock_release(lock));
	}
}

/* ---- Requests ------------------------------------------------------------------------------ */

TEST_LIMIT(free_lock_takes_two_requests, 60)
{
	double cost = cost_of(requests, acquire_and_release, lock_here(), EACH);

	ck_assert_msg(cost >= 2 && cost < 2.01, "%.3f requests", cost);
}

static void count_down(void *latch)
{
	for (int i = 0; i < EACH; i++)
		DO(lk_latch_down(latch, 1, NULL, 0, NULL));
}

static void await_open(void *latch)
{
	for (int i = 0; i < EACH; i++)
		DO(lk_latch_await(latch, i & 1 ? 0 : LK_FOREVER));
}

TEST_LIMIT(step_and_look_of_a_latch_take_one_request, 60)
{
	lk_latch *latch = latch_named(client_at(etcd_url(&shared, "", "")), "cost");
	double cost;

	OK(lk_latch_set(latch, LK_COUNT_MAX, NULL));
	cost = cost_of(requests, count_down, latch, EACH);
	ck_assert_msg(cost >= 1 && cost < 1.03, "%.3f requests a step", cost);
	OK(lk_latch_reset(latch, 0, NULL));
	cost = cost_of(requests, await_open, latch, EACH);
	ck_assert_msg(cost >= 1 && cost < 1.01, "%.3f requests a look", cost);
	OK(lk_latch_remove(latch));
}

static void *wait_and_release(void *lock)
{
	for (int i = 0; i < EACH; i++) {
		OK(lk_lock_acquire(lock, LK_FOREVER, NULL));
		OK(lk_lock_release(lock));
	}
	return NULL;
}

static void contend(void *arg)
{
	lk_lock *const *locks = arg;
	pthread_t threads[CROWD];

	for (int i = 0; i < CROWD; i++)
		ck_assert(!pthread_create(&threads[i], NULL, wait_and_release, locks[i]));
	for (int i = 0; i < CROWD; i++)
		ck_assert(!pthread_join(threads[i], NULL));
}

/* Every eighth holder reads the queue; and the crowd comes and goes. */
TEST_LIMIT(contended_lock_takes_a_fifth_more, 240)
{
	lk_lock *locks[CROWD];
	double cost;

	for (int i = 0; i < CROWD; i++)
		locks[i] = lock_here();
	cost = cost_of(requests, contend, locks, CROWD * EACH);
	printf("%d clients: %.3f requests an acquisition\n", CROWD, cost);
	ck_assert_msg(cost < 2.25, "%.3f requests", cost);
}

/* ---- Permits -------------------------------------------------------------------------------- */

static lk_semaphore *permits_here(void)
{
	lk_semaphore *semaphore =
		semaphore_of(client_at(etcd_url(&shared, "", "")), "permits", CROWD / 2, LEASE_MS);
	uint64_t hold;

	OK(lk_semaphore_acquire(semaphore, 1, LK_FOREVER, &hold));
	OK(lk_semaphore_release(semaphore, hold));
	return semaphore;
}

static void acquire_and_release_permits(void *semaphore)
{
	uint64_t hold;

	for (int i = 0; i < EACH; i++) {
		DO(lk_semaphore_acquire(semaphore, 1 + i % 3, i & 1 ? 0 : LK_FOREVER, &hold));
		DO(lk_semaphore_release(semaphore, hold));
	}
}

TEST_LIMIT(free_permits_take_two_requests, 60)
{
	double cost = cost_of(requests, acquire_and_release_permits, permits_here(), EACH);

	ck_assert_msg(cost >= 2 && cost < 2.01, "%.3f requests", cost);
}

static void *wait_for_permits(void *semaphore)
{
	uint64_t hold;

	for (int i = 0; i < EACH; i++) {
		OK(lk_semaphore_acquire(semaphore, 1 + i % 3, LK_FOREVER, &hold));
		OK(lk_semaphore_release(semaphore, hold));
	}
	return NULL;
}

static void contend_for_permits(void *arg)
{
	lk_semaphore *const *semaphores = arg;
	pthread_t threads[CROWD];

	for (int i = 0; i < CROWD; i++)
		ck_assert(!pthread_create(&threads[i], NULL, wait_for_permits, semaphores[i]));
	for (int i = 0; i < CROWD; i++)
		ck_assert(!pthread_join(threads[i], NULL));
}

/* A letter more, at most; of two that are granted at once, one. */
TEST_LIMIT(contended_permits_take_three_requests, 240)
{
	lk_semaphore *semaphores[CROWD];
	double cost;

	for (int i = 0; i < CROWD; i++)
		semaphores[i] = permits_here();
	cost = cost_of(requests, contend_for_permits, semaphores, CROWD * EACH);
	printf("%d clients: %.3f requests an acquisition of permits\n", CROWD, cost);
	ck_assert_msg(cost < 3.1, "%.3f requests", cost);
}

/* ---- Memory, system calls ------------------------------------------------------------------ */

TEST_LIMIT(acquisition_asks_for_memory_as_often_as_listed, 60)
{
	double cost = cost_of(memory, acquire_and_release, lock_here(), EACH);

	printf("pair: %.2f requests for memory\n", cost);
	if (!TSAN && !ASAN)
		ck_assert_msg(cost < 16.5, "%.2f requests for memory", cost);
}

static lk_lock *counted;

static void open_counted(void *arg)
{
	(void)arg;
	counted = lock_here();
}

static void use_counted(void *arg)
{
	(void)arg;
	acquire_and_release(counted);
}

/* etcd measures each call by a PING, whose answer is a send more.  The background thread, which has
 * all streams, reads the answers and wakes the call. */
TEST_LIMIT(acquisition_takes_as_many_system_calls_as_listed, 60)
{
	const struct calls_work plan = {open_counted, use_counted, NULL, EACH};
	struct calls calls;

	if (TSAN || ASAN)
		return;
	calls = calls_of(&plan);
	printf("pair: %.2f calls: %.2f sends, %.2f receives, %.2f polls, %.2f sleeps, %.2f wakes, "
	       "%.2f timers, %.2f of descriptors, %.2f of memory\n",
	       calls.all, calls.sends, calls.receives, calls.polls, calls.sleeps, calls.wakes,
	       calls.timers, calls.descriptors, calls.memory);
	ck_assert_msg(calls.sends < 4.5 && calls.receives < 4.5 && calls.all < 16.5,
	              "%.2f calls, %.2f sends, %.2f receives", calls.all, calls.sends,
	              calls.receives);
	ck_assert_msg(calls.sleeps < 2.5 && calls.wakes < 2.5, "%.2f sleeps, %.2f wakes",
	              calls.sleeps, calls.wakes);
}
