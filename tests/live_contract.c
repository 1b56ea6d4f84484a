/* SPDX-License-Identifier: MIT
 * The lock's promise on a real server: one holder at a time, and growing fences, for contending
 * threads, processes and both. */
#define STORE store_on_server

#include "stores/lock.h"
#include "harness/server.h"

#include <stdlib.h>

#define THREADS_MAX 8
#define PROCESSES_MAX 8

/* Contenders that count in Redis, protected only by the lock. */
struct crowd {
	struct test_server server;
	int processes, threads, rounds;
	lk_client *client; /* of one process */
	int failures;      /* of one process */
	pthread_mutex_t mutex;
};

/* Do one unprotected increment: read, pause, write.  The fence is written as well and must grow. */
static bool increment(struct redis *redis, uint64_t fence)
{
	long long value = redis_int(redis, "GET counter");
	long long last = redis_int(redis, "GET last-fence");

	if ((long long)fence <= last)
		return false;
	if (value % 16 == 0)
		nap_ms(1);
	redis_do(redis, "SET counter %lld", value + 1);
	redis_do(redis, "SET last-fence %lld", (long long)fence);
	return true;
}

static void *contend_thread(void *arg)
{
	struct crowd *crowd = arg;
	struct redis *redis = redis_open(&crowd->server);
	lk_lock *lock = NULL;
	int failures = lk_lock_open(crowd->client, "counter", 0, NULL, &lock) != LK_OK;

	for (int i = 0; i < crowd->rounds && !failures; i++) {
		uint64_t fence = 0;
		failures += lk_lock_acquire(lock, LK_FOREVER, &fence) != LK_OK;
		failures += !increment(redis, fence);
		failures += lk_lock_release(lock) != LK_OK;
	}
	lk_lock_close(lock);
	redis_close(redis);
	pthread_mutex_lock(&crowd->mutex);
	crowd->failures += failures;
	pthread_mutex_unlock(&crowd->mutex);
	return NULL;
}

static int contend_in_process(void *arg, int in, int out)
{
	struct crowd *crowd = arg;
	pthread_t threads[THREADS_MAX];

	(void)out;
	if (!line_read(in, 10000))
		return 2;
	pthread_mutex_init(&crowd->mutex, NULL);
	if (lk_client_open(crowd->server.url, NULL, &crowd->client))
		return 3;
	for (int i = 0; i < crowd->threads; i++)
		pthread_create(&threads[i], NULL, contend_thread, crowd);
	for (int i = 0; i < crowd->threads; i++)
		pthread_join(threads[i], NULL);
	if (lk_client_close(crowd->client) != LK_OK)
		return 4;
	return crowd->failures != 0;
}

static void run_crowd(int processes, int threads, int rounds)
{
	static struct crowd crowd;
	struct process workers[PROCESSES_MAX];
	struct redis *redis;

	crowd.processes = processes;
	crowd.threads = threads;
	crowd.rounds = rounds;
	server_start(&crowd.server, NULL);
	redis = redis_open(&crowd.server);
	redis_do(redis, "SET counter 0");
	for (int i = 0; i < processes; i++)
		process_start(&workers[i], contend_in_process, &crowd);
	for (int i = 0; i < processes; i++)
		line_write(workers[i].in, "go");
	for (int i = 0; i < processes; i++)
		ck_assert(process_succeeded(&workers[i], 60000));
	ck_assert_int_eq(redis_int(redis, "GET counter"), processes * threads * rounds);
	/* Only the fence counter and this test's own two keys remain. */
	ck_assert_int_eq(redis_int(redis, "DBSIZE"), 3);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:fence"), 1);
	redis_close(redis);
}

TEST_LIMIT(counter_of_processes_never_loses, 90)
{
	run_crowd(8, 1, 60);
}

TEST_LIMIT(counter_of_processes_with_threads_never_loses, 90)
{
	run_crowd(4, 4, 40);
}

static uint64_t fence_of_one_hold(lk_lock *lock)
{
	uint64_t fence;

	OK(lk_lock_acquire(lock, 5000, &fence));
	ck_assert_uint_ne(fence, 0);
	OK(lk_lock_release(lock));
	return fence;
}

TEST(fences_grow_across_flushall)
{
	struct test_server server;
	struct redis *redis;
	lk_client *client;
	lk_lock *lock;
	uint64_t last = 0;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	lock = lock_named(client, "fences");
	for (int i = 0; i < 20; i++) {
		uint64_t fence = fence_of_one_hold(lock);
		ck_assert_uint_gt(fence, last);
		last = fence;
		redis_do(redis, "FLUSHALL");
	}
	OK(lk_client_close(client));
	redis_close(redis);
}

TEST(fences_grow_across_restart_of_an_empty_server)
{
	struct test_server server;
	lk_client *client;
	lk_lock *lock;
	uint64_t last, fence = 0;

	server_start(&server, NULL);
	client = client_at(server.url);
	lock = lock_named(client, "fences");
	last = fence_of_one_hold(lock);
	server_restart(&server);
	/* A request sent into the dead connection may be ambiguous; the next try uses a new
	 * connection. */
	ck_assert(WITHIN(5000, lk_lock_acquire(lock, 1000, &fence) == LK_OK));
	ck_assert_uint_gt(fence, last);
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}
