/* SPDX-License-Identifier: MIT
 * The wait queue for permits: FIFO, for any number of permits; one release serves several waiters;
 * a large head that is dead or stands still.  tests/stores/order.h has what locks promise, too. */
#include "harness/handles.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

static struct test_server server;
static struct redis *redis;

static lk_client *set_up(void)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
	return client_at(server.url);
}

/* ---- Weights ------------------------------------------------------------------------------ */

TEST(waits_of_all_sizes_are_served_in_their_order)
{
	static const int64_t wanted[] = {3, 1, 5, 2, 6, 1, 1, 4, 6, 2, 3, 1};
	enum { WAITS = sizeof(wanted) / sizeof(wanted[0]) };
	lk_client *clients[3] = {set_up(), client_at(server.url), client_at(server.url)};
	lk_semaphore *semaphore = semaphore_of(clients[0], "a", 6, 0);
	struct permit_wait waits[WAITS];
	uint64_t hold = permits_of(semaphore, 6, 0), last;
	int64_t start_ms;

	for (int i = 0; i < WAITS; i++)
		permit_wait_queue(&waits[i], redis, "a", semaphore_of(clients[i % 3], "a", 6, 0),
		                  wanted[i], false);
	last = hold;
	start_ms = now_ms();
	for (int i = 0; i < 6; i++)
		OK(lk_semaphore_release_some(semaphore, hold, 1));
	for (int i = 0; i < WAITS; i++) {
		OK(permit_wait_join(&waits[i]));
		ck_assert_msg(waits[i].hold > last, "the %dth was granted out of its turn", i);
		last = waits[i].hold;
	}
	ck_assert_int_le(now_ms() - start_ms, 1000);
	ck_assert(permits_at_rest(redis, "a", 6));
	for (int i = 0; i < 3; i++)
		OK(lk_client_close(clients[i]));
}

TEST(one_release_serves_all_who_fit_and_nobody_else)
{
	static const int64_t wanted[] = {1, 2, 3, 2, 4, 1};
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_semaphore *semaphore = semaphore_of(client, "a", 8, 0);
	struct monitor *monitor;
	struct permit_wait waits[6];
	const char *line;
	uint64_t hold = permits_of(semaphore, 8, 0);
	int scripts = 0;

	for (int i = 0; i < 6; i++)
		permit_wait_queue(&waits[i], redis, "a", semaphore_of(other, "a", 8, 0), wanted[i],
		                  true);
	nap_ms(50);
	monitor = monitor_open(&server);
	OK(lk_semaphore_release(semaphore, hold));
	for (int i = 0; i < 4; i++) {
		OK(permit_wait_join(&waits[i]));
		if (i)
			ck_assert_uint_gt(waits[i].hold, waits[i - 1].hold);
	}
	redis_do(redis, "ECHO the-end");
	while ((line = monitor_next(monitor, 5000)) && !strstr(line, "the-end"))
		scripts += strstr(line, "\"EVALSHA\"") || strstr(line, "\"EVAL\"");
	ck_assert_ptr_nonnull(line);
	ck_assert_int_le(scripts, 2); /* the release, sent once more with its text */
	nap_ms(100);
	/* The head wants 4, which are not free, and the waiter behind it does not overtake. */
	ck_assert(!waits[4].ended && !waits[5].ended);
	ck_assert_int_eq(permits_used(redis, "a"), 8);
	OK(lk_semaphore_release(waits[2].semaphore, waits[2].hold));
	nap_ms(100);
	ck_assert(!waits[4].ended && !waits[5].ended); /* 3 are free */
	OK(lk_semaphore_release(waits[0].semaphore, waits[0].hold));
	OK(permit_wait_join(&waits[4]));
	ck_assert(!waits[5].ended);
	OK(lk_semaphore_release(waits[1].semaphore, waits[1].hold));
	OK(permit_wait_join(&waits[5]));
	permits_add_up(redis, "a");
	monitor_close(monitor);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	ck_assert(permits_at_rest(redis, "a", 8));
}

static atomic_bool crowd_ends;
static atomic_int crowd_rounds;

static void *crowd_thread(void *arg)
{
	while (!crowd_ends) {
		uint64_t hold = permits_of(arg, 1, LK_FOREVER);
		crowd_rounds++;
		OK(lk_semaphore_release(arg, hold));
	}
	return NULL;
}

TEST_LIMIT(wait_for_all_is_not_starved_by_a_crowd_of_small_ones, 60)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_semaphore *semaphore = semaphore_of(client, "a", 4, 0);
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, crowd_thread, semaphore_of(other, "a", 4, 0));
	ck_assert(WITHIN(5000, crowd_rounds > 100));
	for (int i = 0; i < 20; i++) {
		int64_t start_ms = now_ms();
		uint64_t hold = permits_of(semaphore, 4, 2000);
		ck_assert_int_le(now_ms() - start_ms, 1000);
		OK(lk_semaphore_release(semaphore, hold));
	}
	crowd_ends = true;
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	ck_assert(permits_at_rest(redis, "a", 4));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* A release grants to a limited number of waiters; the rest follows at once. */
TEST_LIMIT(hundred_waits_are_served_by_one_release, 60)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_semaphore *semaphore = semaphore_of(client, "a", 100, 0);
	lk_semaphore *waiting = semaphore_of(other, "a", 100, 0);
	static struct permit_wait waits[100];
	uint64_t hold = permits_of(semaphore, 100, 0);
	int64_t start_ms;

	for (int i = 0; i < 100; i++)
		permit_wait_queue(&waits[i], redis, "a", waiting, 1, true);
	start_ms = now_ms();
	OK(lk_semaphore_release(semaphore, hold));
	for (int i = 0; i < 100; i++) {
		OK(permit_wait_join(&waits[i]));
		if (i)
			ck_assert_uint_gt(waits[i].hold, waits[i - 1].hold);
	}
	ck_assert_int_le(now_ms() - start_ms, 1000);
	ck_assert_int_eq(permits_used(redis, "a"), 100);
	permits_add_up(redis, "a");
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	ck_assert(permits_at_rest(redis, "a", 100));
}

/* ---- Dead waiters -------------------------------------------------------------------------- */

/* On a line of input wait for 3 permits, and release them. */
static int wait_once(void *arg, int in, int out)
{
	lk_client *client;
	lk_semaphore *semaphore;

	(void)arg;
	(void)out;
	if (!line_read(in, 60000))
		return 2;
	client = client_at(server.unix_url);
	semaphore = semaphore_of(client, "line", 4, 0);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 3, LK_FOREVER)));
	return lk_client_close(client) != LK_OK;
}

/* A head that wants more than is free blocks the waiters behind it, unless it is dead. */
TEST_LIMIT(large_head_that_dies_does_not_block, 40)
{
	struct process worker;
	struct permit_wait wait;
	lk_semaphore *semaphore;
	lk_client *client;
	int64_t start_ms;

	server_start(&server, NULL);
	process_start(&worker, wait_once, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	semaphore = semaphore_of(client, "line", 4, 1000);
	permits_of(semaphore, 2, 0);
	line_write(worker.in, "go");
	ck_assert(WITHIN(5000, permits_queue(redis, "line") == 1));
	permit_wait_queue(&wait, redis, "line", semaphore, 1, true);
	nap_ms(1500);
	ck_assert(!wait.ended); /* it lives, and is the head */
	process_kill(&worker);
	start_ms = now_ms();
	OK(permit_wait_join(&wait));
	ck_assert_int_le(now_ms() - start_ms,
	                 3000 + 1500); /* one message each 3 s, one request each lease */
	ck_assert_int_eq(permits_queue(redis, "line"), 0);
	ck_assert_int_eq(permits_used(redis, "line"), 3);
	OK(lk_client_close(client));
	ck_assert(permits_at_rest(redis, "line", 4));
}

TEST_LIMIT(large_head_that_stands_still_is_passed_over_at_last, 60)
{
	struct process worker;
	struct permit_wait wait;
	lk_semaphore *semaphore;
	lk_client *client;
	int64_t start_ms;

	server_start(&server, NULL);
	process_start(&worker, wait_once, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	semaphore = semaphore_of(client, "line", 4, 1000);
	permits_of(semaphore, 2, 0);
	line_write(worker.in, "go");
	ck_assert(WITHIN(5000, permits_queue(redis, "line") == 1));
	process_pause(&worker); /* its connection remains open */
	start_ms = now_ms();
	permit_wait_start(&wait, semaphore, 1, 40000, true);
	ck_assert(WITHIN(30000, wait.ended));
	OK(permit_wait_join(&wait));
	ck_assert_int_ge(now_ms() - start_ms, 15000);
	/* When it runs again it asks again, and is granted. */
	process_continue(&worker);
	OK(lk_semaphore_close(semaphore));
	ck_assert(process_succeeded(&worker, 15000));
	OK(lk_client_close(client));
	ck_assert(permits_at_rest(redis, "line", 4));
}
