/* SPDX-License-Identifier: MIT
 * What the lock costs a server and its process: requests, round trips, processor time, memory.  The
 * server counts scripts; renewals and descriptions of clients depend on the clock, and their
 * digests distinguish them. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/proxy.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include "scripts.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LOCKS 1000

static struct test_server server;

/* The scripts that a monitor saw, by kind. */
struct seen {
	int asks, leaves, renewals, introductions, all;
};

static bool names_script(const char *line, const struct lk__script *script)
{
	return strstr(line, script->sha1) != NULL;
}

/* Count the commands that the monitor saw until now. */
static struct seen look(struct redis *redis, struct monitor *monitor)
{
	static int marks;
	struct seen seen = {0};
	char mark[32];
	const char *line;

	snprintf(mark, sizeof(mark), "\"mark-%d\"", ++marks);
	redis_do(redis, "ECHO mark-%lld", (long long)marks);
	while ((line = monitor_next(monitor, 5000)) && !strstr(line, mark)) {
		if (!strstr(line, "\"EVALSHA\"") && !strstr(line, "\"EVAL\""))
			continue;
		seen.all++;
		seen.asks += names_script(line, &lk__script_lock_ask);
		seen.leaves += names_script(line, &lk__script_lock_leave);
		seen.renewals += names_script(line, &lk__script_lock_renew);
		seen.introductions += names_script(line, &lk__script_client_set);
	}
	ck_assert_ptr_nonnull(line);
	return seen;
}

/* Return a lock that was used once, so that the server has the scripts and the client's
 * description. */
static lk_lock *warm_lock(const char *url, const char *name, int64_t lease_ms)
{
	lk_client *client = client_at(url);
	lk_lock *lock = lock_leased(client, name, lease_ms);

	OK(lk_lock_acquire(lock, 1000, NULL));
	OK(lk_lock_release(lock));
	return lock;
}

TEST(acquire_and_release_take_two_scripts)
{
	struct redis *redis;
	lk_lock *lock;
	long long before, hsets;

	server_start(&server, NULL);
	redis = redis_open(&server);
	lock = warm_lock(server.url, "cost", 0);
	nap_ms(50); /* the description may arrive a little later */
	before = redis_script_calls(redis);
	hsets = redis_calls(redis, "hset");
	for (int i = 0; i < 100; i++) {
		OK(lk_lock_acquire(lock, 1000, NULL));
		OK(lk_lock_release(lock));
	}
	ck_assert_int_eq(redis_script_calls(redis) - before - (redis_calls(redis, "hset") - hsets),
	                 200);
	/* The text of a script is sent once, to a server that does not have it yet. */
	ck_assert_int_le(redis_calls(redis, "eval"), 4);
}

TEST(reentry_takes_no_request)
{
	struct redis *redis;
	lk_lock *lock;
	long long before;

	server_start(&server, NULL);
	redis = redis_open(&server);
	lock = warm_lock(server.url, "cost", 0);
	OK(lk_lock_acquire(lock, 1000, NULL));
	nap_ms(50);
	before = redis_info(redis, "total_commands_processed");
	for (int i = 0; i < 1000; i++)
		OK(lk_lock_acquire(lock, 1000, NULL));
	for (int i = 0; i < 1000; i++)
		OK(lk_lock_release(lock));
	/* Only the test's own two INFO. */
	ck_assert_int_le(redis_info(redis, "total_commands_processed") - before, 2);
	OK(lk_lock_release(lock));
}

static int contend(void *arg, int in, int out)
{
	lk_lock *lock = NULL;
	int rounds = (int)(intptr_t)arg;

	if (!line_read(in, 20000))
		return 2;
	lock = warm_lock(server.url, "cost", 0);
	line_write(out, "warm");
	if (!line_read(in, 20000))
		return 3;
	for (int i = 0; i < rounds; i++)
		if (lk_lock_acquire(lock, LK_FOREVER, NULL) || lk_lock_release(lock))
			return 4;
	line_write(out, "done");
	return line_read(in, 20000) ? 0 : 5;
}

TEST_LIMIT(contended_acquisition_takes_at_most_2_2_requests, 90)
{
	enum { WORKERS = 16, ROUNDS = 60 };
	struct process workers[WORKERS];
	struct redis *redis;
	long long before, hsets, scripts, others;
	static const char *const other[] = {
		"ping",        "subscribe",      "unsubscribe", "auth", "select", "hello",
		"script|load", "client|setname", "client|id",   "scan", "hmget"};

	server_start(&server, NULL);
	for (int i = 0; i < WORKERS; i++)
		process_start(&workers[i], contend, (void *)(intptr_t)ROUNDS);
	redis = redis_open(&server);
	for (int i = 0; i < WORKERS; i++) {
		line_write(workers[i].in, "warm up");
		ck_assert_ptr_nonnull(line_read(workers[i].out, 20000));
	}
	nap_ms(100);
	before = redis_script_calls(redis);
	hsets = redis_calls(redis, "hset");
	others = 0;
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		others -= redis_calls(redis, other[i]);
	for (int i = 0; i < WORKERS; i++)
		line_write(workers[i].in, "go");
	for (int i = 0; i < WORKERS; i++)
		ck_assert_ptr_nonnull(line_read(workers[i].out, 60000));
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		others += redis_calls(redis, other[i]);
	scripts = redis_script_calls(redis) - before - (redis_calls(redis, "hset") - hsets);
	printf("contended: %.3f scripts an acquisition, %lld other commands\n",
	       (double)scripts / (WORKERS * ROUNDS), others);
	ck_assert_msg((double)(scripts + others) <= 2.2 * WORKERS * ROUNDS,
	              "%lld scripts and %lld others for %d acquisitions", scripts, others,
	              WORKERS * ROUNDS);
	for (int i = 0; i < WORKERS; i++)
		line_write(workers[i].in, "end");
	for (int i = 0; i < WORKERS; i++)
		ck_assert(process_succeeded(&workers[i], 20000));
}

static void *acquire_thread(void *arg)
{
	OK(lk_lock_acquire(arg, 20000, NULL));
	OK(lk_lock_release(arg));
	return NULL;
}

TEST_LIMIT(wait_of_5_s_takes_at_most_3_scripts, 30)
{
	struct redis *redis;
	struct monitor *monitor;
	lk_lock *holder, *waiter;
	pthread_t thread;
	struct seen seen;

	server_start(&server, NULL);
	redis = redis_open(&server);
	holder = warm_lock(server.url, "cost", 0);
	waiter = warm_lock(server.url, "cost", 0);
	OK(lk_lock_acquire(holder, 1000, NULL));
	monitor = monitor_open(&server);
	look(redis, monitor);
	pthread_create(&thread, NULL, acquire_thread, waiter);
	nap_ms(5000);
	OK(lk_lock_release(holder));
	pthread_join(thread, NULL);
	seen = look(redis, monitor);
	/* One of the leaves is the holder's own. */
	ck_assert_int_le(seen.asks + seen.leaves - 1, 3);
	ck_assert_int_le(seen.all - seen.renewals - seen.introductions - 1, 3);
	monitor_close(monitor);
}

TEST_LIMIT(thousand_held_locks_are_renewed_in_ten_round_trips, 90)
{
	static lk_lock *locks[LOCKS];
	const struct proxy_fault slow = {.delay_ms = 10};
	struct proxy proxy;
	struct redis *redis;
	lk_client *client;
	struct monitor *monitor;
	struct seen seen;
	int64_t turns;

	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	redis = redis_open(&server);
	client = client_at(proxy.url);
	for (int i = 0; i < LOCKS; i++) {
		char name[32];
		snprintf(name, sizeof(name), "held-%d", i);
		locks[i] = lock_leased(client, name, 3000);
		OK(lk_lock_acquire(locks[i], 1000, NULL));
	}
	proxy_set_all(&proxy, &slow);
	nap_ms(1000); /* a whole period passes */
	monitor = monitor_open(&server);
	turns = proxy_count(&proxy).turns[PROXY_COMMANDS];
	nap_ms(3000); /* three periods */
	turns = proxy_count(&proxy).turns[PROXY_COMMANDS] - turns;
	seen = look(redis, monitor);
	printf("renewal: %lld round trips, %d renewals in 3 periods\n", (long long)turns,
	       seen.renewals);
	ck_assert_int_ge(seen.renewals, 2 * LOCKS);
	ck_assert_int_le(seen.renewals, 4 * LOCKS);
	ck_assert_int_le(turns, 30);
	for (int i = 0; i < LOCKS; i++)
		ck_assert_int_eq(lk_lock_state(locks[i]), LK_STATE_HELD);
	proxy_heal(&proxy);
	OK(lk_client_close(client));
	ck_assert_int_le(redis_int(redis, "DBSIZE"), 1);
}

/* Hold for about the time of a renewal, release, and leave a mark in the server's stream. */
static void *race_renewal(void *arg)
{
	lk_client *client = client_at(server.unix_url);
	struct redis *redis = redis_open(&server);
	char name[16], id[LK_HOLDER_ID_SIZE];
	lk_lock *lock;
	lk_err err;

	snprintf(name, sizeof(name), "race-%d", (int)(intptr_t)arg);
	lock = lock_leased(client, name, 100);
	for (int i = 0; i < 40; i++) {
		OK(lk_lock_acquire(lock, 1000, NULL));
		memcpy(id, hold_of(lock).holder_id, LK_HOLDER_ID_SIZE);
		nap_ms(28 + i % 10);
		err = lk_lock_release(lock); /* on a busy machine a lease may have expired */
		ck_assert(err == LK_OK || err == LK_ELOST);
		redis_do(redis, "ECHO released:%s", id);
	}
	redis_close(redis);
	OK(lk_client_close(client));
	return NULL;
}

#define RELEASED_MAX (8 * 40)

TEST_LIMIT(c25_released_hold_is_never_renewed, 60)
{
	static char released[RELEASED_MAX][LK_HOLDER_ID_SIZE];
	pthread_t threads[8];
	struct monitor *monitor;
	struct redis *redis;
	const char *line;
	int count = 0, renewals = 0;

	server_start(&server, NULL);
	redis = redis_open(&server);
	monitor = monitor_open(&server);
	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, race_renewal, (void *)(intptr_t)i);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	nap_ms(100);
	redis_do(redis, "ECHO the-end");
	while ((line = monitor_next(monitor, 5000)) && !strstr(line, "the-end")) {
		const char *mark = strstr(line, "\"released:");
		if (mark) {
			ck_assert_int_lt(count, RELEASED_MAX);
			sscanf(mark + 10, "%39[^\"]", released[count++]);
		} else if (names_script(line, &lk__script_lock_renew)) {
			renewals++;
			for (int i = 0; i < count; i++)
				ck_assert_msg(!strstr(line, released[i]),
				              "renewed after its release: %s", line);
		}
	}
	ck_assert_ptr_nonnull(line);
	ck_assert_int_eq(count, RELEASED_MAX);
	ck_assert_int_gt(renewals, 50); /* otherwise there was no race */
	monitor_close(monitor);
	redis_close(redis);
}

static int idle(void *arg, int in, int out)
{
	lk_client *client;
	lk_lock *lock;
	int64_t before;
	int threads;

	(void)arg;
	if (!line_read(in, 10000))
		return 2;
	before = proc_socket_count(0);
	threads = proc_thread_count(0);
	client = client_at(server.url);
	lock = lock_named(client, "idle");
	OK(lk_lock_acquire(lock, 1000, NULL));
	OK(lk_lock_release(lock));
	/* Threads for look-ups and connects end soon; the thread sanitizer has one of its own. */
	WITHIN(1000, proc_thread_count(0) - threads <= 1);
	line_write(out, "%d %d", (int)(proc_socket_count(0) - before),
	           proc_thread_count(0) - threads);
	return line_read(in, 20000) ? 0 : 3;
}

TEST(idle_client_costs_two_connections_and_a_thread)
{
	struct process worker;
	struct redis *redis;
	int sockets, threads;
	int64_t cpu_ms;
	long long connected;

	server_start(&server, NULL);
	process_start(&worker, idle, NULL);
	redis = redis_open(&server);
	connected = redis_info(redis, "connected_clients");
	line_write(worker.in, "go");
	ck_assert_int_eq(sscanf(line_read(worker.out, 10000), "%d %d", &sockets, &threads), 2);
	ck_assert_int_eq(sockets, 2);
	ck_assert_int_ge(threads, 1);
	ck_assert_int_le(threads, 1 + 2 * TSAN);
	ck_assert_int_eq(redis_info(redis, "connected_clients") - connected, 2);
	cpu_ms = proc_cpu_ms(worker.pid);
	nap_ms(3000);
	cpu_ms = proc_cpu_ms(worker.pid) - cpu_ms;
	ck_assert_msg(cpu_ms <= (TSAN || ASAN ? 60 : 10), "%lld ms in 3 s", (long long)cpu_ms);
	line_write(worker.in, "end");
	ck_assert(process_succeeded(&worker, 5000));
}

static size_t heap_bytes(void)
{
	return mallinfo2().uordblks + mallinfo2().hblkhd;
}

TEST_LIMIT(idle_lock_costs_512_bytes_and_a_held_one_768, 60)
{
	static lk_lock *locks[LOCKS];
	lk_client *client;
	size_t empty, open, held;

	server_start(&server, NULL);
	client = client_at(server.unix_url);
	empty = heap_bytes();
	for (int i = 0; i < LOCKS; i++) {
		char name[40];
		snprintf(name, sizeof(name), "a-name-of-thirty-two-bytes-%05d", i);
		ck_assert_uint_eq(strlen(name), 32);
		locks[i] = lock_named(client, name);
	}
	open = heap_bytes();
	for (int i = 0; i < LOCKS; i++)
		OK(lk_lock_acquire(locks[i], 1000, NULL));
	held = heap_bytes();
	printf("heap: %zu bytes an open lock, %zu a held one\n", (open - empty) / LOCKS,
	       (held - empty) / LOCKS);
	if (!TSAN && !ASAN) {
		ck_assert_uint_le((open - empty) / LOCKS, 512);
		ck_assert_uint_le((held - empty) / LOCKS, 768);
	}
	OK(lk_client_close(client));
}
