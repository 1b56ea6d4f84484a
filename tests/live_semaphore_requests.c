/* SPDX-License-Identifier: MIT
 * What a semaphore costs a server: requests and round trips.  The server counts scripts;
 * descriptions of clients depend on the clock, and a command of their own distinguishes them. */
#include "harness/handles.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/proxy.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include "scripts.h"

#include <stdio.h>
#include <string.h>

#define HOLDS 1000
#define WORKERS 16
#define ROUNDS 60

static struct test_server server;
static struct redis *redis;

/* Return the number of scripts that clients sent, without those for their descriptions. */
static long long scripts_so_far(void)
{
	return redis_script_calls(redis) - redis_calls(redis, "hsetnx");
}

/* Return a semaphore that was used once, so that the server has the scripts and the description. */
static lk_semaphore *warm(const char *url, int64_t capacity)
{
	lk_semaphore *semaphore = semaphore_of(client_at(url), "a", capacity, 0);

	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 1, 5000)));
	return semaphore;
}

TEST(acquire_and_release_take_two_scripts)
{
	lk_semaphore_status status;
	lk_semaphore *semaphore;
	long long before;
	uint64_t hold;

	server_start(&server, NULL);
	redis = redis_open(&server);
	semaphore = warm(server.url, 5);
	before = scripts_so_far();
	for (int i = 0; i < 100; i++) {
		hold = permits_of(semaphore, 1 + i % 5, 1000);
		OK(lk_semaphore_release(semaphore, hold));
	}
	ck_assert_int_eq(scripts_so_far() - before, 200);
	/* A partial release is one more request, and so is each query. */
	before = scripts_so_far();
	hold = permits_of(semaphore, 3, 0);
	OK(lk_semaphore_release_some(semaphore, hold, 1));
	OK(lk_semaphore_release(semaphore, hold));
	ck_assert_int_eq(scripts_so_far() - before, 3);
	OK(lk_semaphore_query(semaphore, &status)); /* the text of a script is sent once */
	before = scripts_so_far();
	OK(lk_semaphore_query(semaphore, &status));
	ck_assert_int_eq(scripts_so_far() - before, 1);
	before = scripts_so_far();
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_NONE);
		EXPECT(lk_semaphore_release(semaphore, hold), LK_ENOTOWNER);
	}
	ck_assert_int_eq(scripts_so_far() - before, 0);
}

/* ---- Under contention --------------------------------------------------------------------- */

static int contend(void *arg, int in, int out)
{
	lk_semaphore *semaphore;

	if (!line_read(in, 20000))
		return 2;
	semaphore = warm(server.url, (int)(intptr_t)arg);
	line_write(out, "warm");
	if (!line_read(in, 20000))
		return 3;
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t hold;
		if (lk_semaphore_acquire(semaphore, 1, LK_FOREVER, &hold) ||
		    lk_semaphore_release(semaphore, hold))
			return 4;
	}
	line_write(out, "done");
	return line_read(in, 20000) ? 0 : 5;
}

static void contend_for(int64_t capacity)
{
	struct process workers[WORKERS];
	long long before, scripts;
	double each;

	server_start(&server, NULL);
	for (int i = 0; i < WORKERS; i++)
		process_start(&workers[i], contend, (void *)(intptr_t)capacity);
	redis = redis_open(&server);
	for (int i = 0; i < WORKERS; i++) {
		line_write(workers[i].in, "warm up");
		ck_assert_ptr_nonnull(line_read(workers[i].out, 20000));
	}
	before = scripts_so_far();
	for (int i = 0; i < WORKERS; i++)
		line_write(workers[i].in, "go");
	for (int i = 0; i < WORKERS; i++)
		ck_assert_ptr_nonnull(line_read(workers[i].out, 60000));
	scripts = scripts_so_far() - before;
	each = (double)scripts / (WORKERS * ROUNDS);
	printf("contended for %lld: %.3f scripts an acquisition\n", (long long)capacity, each);
	ck_assert_msg(each <= 2.2, "%lld scripts for %d acquisitions", scripts, WORKERS * ROUNDS);
	ck_assert(permits_at_rest(redis, "a", capacity));
	for (int i = 0; i < WORKERS; i++)
		line_write(workers[i].in, "end");
	for (int i = 0; i < WORKERS; i++)
		ck_assert(process_succeeded(&workers[i], 20000));
}

TEST_LIMIT(contended_acquisition_of_1_takes_at_most_2_2_requests, 90)
{
	contend_for(1);
}

TEST_LIMIT(contended_acquisition_of_3_takes_at_most_2_2_requests, 90)
{
	contend_for(3);
}

/* ---- Waiting ------------------------------------------------------------------------------ */

/* Wait 5 s for wanted permits of 4 while others hold held of them. */
static void wait_5_s(int64_t held, int64_t wanted)
{
	lk_semaphore *holder, *waiting;
	struct permit_wait wait;
	struct monitor *monitor;
	int asks = 0, leaves = 0, others = 0;
	const char *line;
	uint64_t hold;

	server_start(&server, NULL);
	redis = redis_open(&server);
	holder = warm(server.url, 4);
	waiting = warm(server.url, 4);
	hold = permits_of(holder, held, 0);
	monitor = monitor_open(&server);
	permit_wait_start(&wait, waiting, wanted, 20000, false);
	nap_ms(5000);
	OK(lk_semaphore_release(holder, hold));
	OK(permit_wait_join(&wait));
	redis_do(redis, "ECHO the-end");
	while ((line = monitor_next(monitor, 5000)) && !strstr(line, "the-end")) {
		if (!strstr(line, "\"EVALSHA\"") && !strstr(line, "\"EVAL\""))
			continue;
		asks += strstr(line, lk__script_semaphore_ask.sha1) != NULL;
		leaves += strstr(line, lk__script_semaphore_leave.sha1) != NULL;
		others += !strstr(line, lk__script_semaphore_ask.sha1) &&
		          !strstr(line, lk__script_semaphore_leave.sha1) &&
		          !strstr(line, lk__script_semaphore_renew.sha1) && !strstr(line, "HSETNX");
	}
	ck_assert_ptr_nonnull(line);
	printf("wait of 5 s: %d asks, %d leaves of two, %d others\n", asks, leaves, others);
	/* One of the leaves is the holder's own; the text of the renewal may be sent once. */
	ck_assert_int_ge(asks, 1);
	ck_assert_int_ge(leaves, 2);
	ck_assert_int_le(asks + leaves - 1, 3);
	ck_assert_int_le(others, 1);
	monitor_close(monitor);
}

TEST_LIMIT(wait_of_5_s_takes_at_most_3_scripts, 30)
{
	wait_5_s(4, 1);
}

TEST_LIMIT(wait_of_5_s_for_more_than_is_free_takes_at_most_3_scripts, 30)
{
	wait_5_s(2, 4);
}

/* ---- Renewal ------------------------------------------------------------------------------ */

TEST_LIMIT(thousand_holds_are_renewed_in_ten_round_trips, 90)
{
	static uint64_t holds[HOLDS];
	const struct proxy_fault slow = {.delay_ms = 10};
	struct proxy proxy;
	struct monitor *monitor;
	lk_semaphore *semaphore;
	lk_client *client;
	const char *line;
	int renewals = 0;
	int64_t turns;

	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	redis = redis_open(&server);
	client = client_at(proxy.url);
	semaphore = semaphore_of(client, "a", HOLDS, 3000);
	for (int i = 0; i < HOLDS; i++)
		holds[i] = permits_of(semaphore, 1, 1000);
	proxy_set_all(&proxy, &slow);
	nap_ms(1000); /* a whole period passes */
	monitor = monitor_open(&server);
	turns = proxy_count(&proxy).turns[PROXY_COMMANDS];
	nap_ms(3000); /* three periods */
	turns = proxy_count(&proxy).turns[PROXY_COMMANDS] - turns;
	redis_do(redis, "ECHO the-end");
	while ((line = monitor_next(monitor, 5000)) && !strstr(line, "the-end"))
		renewals += strstr(line, lk__script_semaphore_renew.sha1) != NULL;
	ck_assert_ptr_nonnull(line);
	printf("renewal: %lld round trips, %d renewals in 3 periods\n", (long long)turns, renewals);
	ck_assert_int_ge(renewals, 2 * HOLDS);
	ck_assert_int_le(renewals, 4 * HOLDS);
	ck_assert_int_le(turns, 30);
	for (int i = 0; i < HOLDS; i++)
		ck_assert_int_eq(lk_semaphore_state(semaphore, holds[i]), LK_STATE_HELD);
	proxy_heal(&proxy);
	monitor_close(monitor);
	OK(lk_client_close(client));
	ck_assert(permits_at_rest(redis, "a", HOLDS));
}

/* ---- After the end ------------------------------------------------------------------------ */

/* Hold for about the time of a renewal, release, and leave a mark in the server's stream. */
static void *race_renewal(void *arg)
{
	lk_client *client = client_at(server.unix_url);
	struct redis *mine = redis_open(&server);
	lk_semaphore *semaphore = semaphore_of(client, "a", 8, 100);
	char id[LK_HOLDER_ID_SIZE];

	(void)arg;
	for (int i = 0; i < 30; i++) {
		uint64_t hold = permits_of(semaphore, 1, 1000);
		lk_err err;
		memcpy(id, hold_in(semaphore, hold).holder_id, LK_HOLDER_ID_SIZE);
		nap_ms(28 + i % 10);
		err = lk_semaphore_release(semaphore, hold); /* a lease may have expired */
		ck_assert(err == LK_OK || err == LK_ELOST);
		redis_do(mine, "ECHO released:%s", id);
	}
	redis_close(mine);
	OK(lk_client_close(client));
	return NULL;
}

#define RELEASED_MAX (8 * 30)

TEST_LIMIT(c25_released_hold_is_never_renewed, 60)
{
	static char released[RELEASED_MAX][LK_HOLDER_ID_SIZE];
	pthread_t threads[8];
	struct monitor *monitor;
	const char *line;
	int count = 0, renewals = 0;

	server_start(&server, NULL);
	redis = redis_open(&server);
	monitor = monitor_open(&server);
	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, race_renewal, NULL);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	redis_do(redis, "ECHO the-end");
	while ((line = monitor_next(monitor, 5000)) && !strstr(line, "the-end")) {
		const char *mark = strstr(line, "\"released:");
		if (mark) {
			ck_assert_int_lt(count, RELEASED_MAX);
			sscanf(mark + 10, "%39[^\"]", released[count++]);
		} else if (strstr(line, lk__script_semaphore_renew.sha1)) {
			renewals++;
			for (int i = 0; i < count; i++)
				ck_assert_msg(!strstr(line, released[i]),
				              "renewed after its release: %s", line);
		}
	}
	ck_assert_ptr_nonnull(line);
	ck_assert_int_eq(count, RELEASED_MAX);
	ck_assert_int_gt(renewals, 50); /* otherwise there was no race */
	ck_assert(permits_at_rest(redis, "a", 8));
	monitor_close(monitor);
}
