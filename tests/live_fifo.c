/* SPDX-License-Identifier: MIT
 * Fairness: waiting processes are served FIFO, dead waiters are skipped at once, and the threads of
 * one process do not starve others. */
#define STORE store_on_server

#include "stores/fifo.h"
#include "harness/server.h"

#include <stdlib.h>
#include <string.h>

#define WAITERS_MAX 100
/* The limit between the ends of two holds with dead waiters between them; a claim window is 3 s. */
#define SKIP_MS_MAX 500

static struct test_server server;

/* On a line of input acquire the lock, record the fact and its time, and release. */
static int wait_once(void *arg, int in, int out)
{
	struct redis *redis;
	lk_client *client;
	lk_lock *lock;

	if (!line_read(in, 60000) || lk_client_open(server.unix_url, NULL, &client) ||
	    lk_lock_open(client, "line", 0, NULL, &lock))
		return 2;
	redis = redis_open(&server);
	line_write(out, "asking");
	if (lk_lock_acquire(lock, LK_FOREVER, NULL))
		return 3;
	redis_do(redis, "RPUSH served %lld:%lld", (long long)(intptr_t)arg, (long long)now_ms());
	if (lk_lock_release(lock))
		return 4;
	redis_close(redis);
	return lk_client_close(client) != LK_OK;
}

static int64_t queue_len(struct redis *redis)
{
	return redis_int(redis, "ZCARD lk:{line}:q");
}

/* Hold the lock, and start count processes that enter the queue one after the other. */
static lk_lock *fill_line(struct process *workers, int count, struct redis **redis)
{
	lk_lock *lock;

	server_start(&server, NULL);
	for (int i = 0; i < count; i++)
		process_start(&workers[i], wait_once, (void *)(intptr_t)i);
	*redis = redis_open(&server);
	lock = lock_named(client_at(server.unix_url), "line");
	OK(lk_lock_acquire(lock, 1000, NULL));
	for (int i = 0; i < count; i++) {
		line_write(workers[i].in, "go");
		ck_assert_ptr_nonnull(line_read(workers[i].out, 10000));
		ck_assert(WITHIN(10000, queue_len(*redis) == i + 1));
	}
	return lock;
}

/* Check that all processes but the dead were served FIFO; return the longest time between two of
 * them. */
static int64_t check_served(struct redis *redis, int count, const bool *dead, int64_t since_ms)
{
	char *text = strdup(redis_text(redis, "LRANGE served 0 -1")), *at = text;
	int64_t gap_max = 0;

	for (int i = 0; i < count; i++) {
		int64_t when;
		if (dead && dead[i])
			continue;
		ck_assert_msg(*at, "the %dth was not served", i);
		ck_assert_int_eq(strtol(at, &at, 10), i);
		when = strtoll(at + 1, &at, 10);
		gap_max = when - since_ms > gap_max ? when - since_ms : gap_max;
		since_ms = when;
		at += *at == '\n';
	}
	ck_assert_str_eq(at, "");
	free(text);
	return gap_max;
}

TEST_LIMIT(fifty_processes_are_served_in_order, 90)
{
	struct process workers[50];
	struct redis *redis;
	lk_lock *lock = fill_line(workers, 50, &redis);

	OK(lk_lock_release(lock));
	for (int i = 0; i < 50; i++)
		ck_assert_msg(process_succeeded(&workers[i], 20000), "worker %d", i);
	check_served(redis, 50, NULL, now_ms());
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{line} lk:{line}:q"), 0);
}

TEST_LIMIT(thirty_dead_of_a_hundred_waiters_are_skipped_at_once, 120)
{
	struct process workers[WAITERS_MAX];
	bool dead[WAITERS_MAX] = {false};
	struct redis *redis;
	lk_lock *lock = fill_line(workers, WAITERS_MAX, &redis);
	unsigned short seed[3] = {(unsigned short)test_seed(), (unsigned short)(test_seed() >> 16),
	                          7};
	int64_t released_ms, gap_ms;

	for (int killed = 0; killed < 30;) {
		int i = (int)(nrand48(seed) % WAITERS_MAX);
		killed += !dead[i];
		dead[i] = true;
		process_kill(&workers[i]);
	}
	released_ms = now_ms();
	OK(lk_lock_release(lock));
	for (int i = 0; i < WAITERS_MAX; i++)
		ck_assert_msg(dead[i] || process_succeeded(&workers[i], 20000), "worker %d", i);
	gap_ms = check_served(redis, WAITERS_MAX, dead, released_ms);
	ck_assert_msg(gap_ms <= SKIP_MS_MAX, "waited %lld ms for a dead one", (long long)gap_ms);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{line} lk:{line}:q"), 0);
}

/* Acquire 20 times, each within a second. */
static int want_in(void *arg, int in, int out)
{
	lk_client *client;
	lk_lock *lock;

	(void)arg;
	if (!line_read(in, 20000) || lk_client_open(server.unix_url, NULL, &client) ||
	    lk_lock_open(client, "line", 0, NULL, &lock))
		return 2;
	for (int i = 0; i < 20; i++)
		if (lk_lock_acquire(lock, 1000, NULL) || lk_lock_release(lock))
			return 3;
	line_write(out, "done");
	return lk_client_close(client) != LK_OK;
}

TEST_LIMIT(local_crowd_lets_another_process_in, 60)
{
	struct process worker;
	pthread_t threads[4];
	lk_client *client;

	server_start(&server, NULL);
	process_start(&worker, want_in, NULL);
	client = client_at(server.unix_url);
	crowd_start(threads, client);
	line_write(worker.in, "go");
	ck_assert(process_succeeded(&worker, 30000));
	crowd_end(threads, client);
}
