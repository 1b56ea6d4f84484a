/* SPDX-License-Identifier: MIT
 * Faults of servers and hostile contents, for latches (S and V of the fault list): nothing counts
 * twice, and each waiter is released, none early. */
#include "harness/latch_watch.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include "scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 300
#define BACK_MS 5000 /* for a client to reconnect and to repeat its request */

static struct test_server server;
static struct redis *redis;
static const lk_client_options quick = {.command_timeout_ms = TIMEOUT_MS};

static void set_up(const struct server_options *options)
{
	server_start(&server, options);
	redis = redis_open(&server);
}

static void redis_reopen(void)
{
	redis_close(redis);
	redis = redis_open(&server);
}

static int subscribers(const char *name)
{
	const char *text = redis_text(redis, "PUBSUB NUMSUB lk:l:0:{%s}", name);

	return atoi(text + strcspn(text, "\n"));
}

/* Wait in a thread; returns when its channel is subscribed. */
static void await_subscribed(struct awaiter *awaiter, lk_client *client, const char *name)
{
	int before = subscribers(name);

	awaiter_start(awaiter, latch_named(client, name), 30000);
	ck_assert(WITHIN(3000, subscribers(name) == before + 1));
}

static long long count_of(const char *name)
{
	return redis_int(redis, "HGET lk:{%s} count", name);
}

/* ---- The server --------------------------------------------------------------------------- */

TEST_LIMIT(s1_restart_with_aof_keeps_count_steps_and_waiters, 40)
{
	const struct server_options aof = {.appendonly = true};
	struct awaiter awaiter;
	lk_client *client, *other;
	lk_latch *latch;
	lk_latch_step step;
	uint64_t generation;
	pid_t killed;

	set_up(&aof);
	client = client_at(server.url);
	other = client_at(server.url);
	latch = latch_named(client, "a");
	OK(lk_latch_set(latch, 3, NULL));
	latch_down(latch, 1, "one");
	generation = latch_status(latch).generation;
	await_subscribed(&awaiter, other, "a");
	killed = server.pid;
	server_restart(&server);
	redis_reopen();
	ck_assert_int_ne(redis_info(redis, "process_id"), killed);
	ck_assert(WITHIN(BACK_MS, lk_latch_down(latch, 1, "one", 0, &step) == LK_OK));
	ck_assert(!step.counted && step.remaining == 2);
	ck_assert_uint_eq(latch_status(latch).generation, generation);
	ck_assert(WITHIN(BACK_MS, subscribers("a") == 1));
	ck_assert(!awaiter.ended);
	latch_down(latch, 2, NULL);
	ck_assert(WITHIN(1000, awaiter.ended));
	OK(awaiter_join(&awaiter));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_LIMIT(s2_empty_restart_makes_it_absent_and_waiters_go_on, 40)
{
	struct awaiter awaiter;
	lk_client *client, *other;
	lk_latch *latch;
	uint64_t generation;

	set_up(NULL);
	client = client_at(server.url);
	other = client_at(server.url);
	latch = latch_named(client, "a");
	OK(lk_latch_set(latch, 3, NULL));
	generation = latch_status(latch).generation;
	latch_down(latch, 1, NULL);
	await_subscribed(&awaiter, other, "a");
	server_restart(&server);
	redis_reopen();
	ck_assert(WITHIN(BACK_MS, lk_latch_down(latch, 1, NULL, 0, NULL) == LK_EABSENT));
	ck_assert(WITHIN(BACK_MS, subscribers("a") == 1));
	ck_assert(!awaiter.ended);
	OK(lk_latch_set(latch, 1, NULL));
	ck_assert_uint_gt(latch_status(latch).generation, generation);
	latch_down(latch, 1, NULL);
	ck_assert(WITHIN(1000, awaiter.ended));
	OK(awaiter_join(&awaiter));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_LIMIT(s6_step_to_a_stopped_server_is_counted_once_when_it_runs, 40)
{
	struct awaiter awaiter;
	lk_client *client;
	lk_latch *latch;

	set_up(NULL);
	client = client_with(server.url, &quick);
	latch = latch_named(client, "a");
	OK(lk_latch_set(latch, 3, NULL));
	latch_down(latch, 1, NULL);
	await_subscribed(&awaiter, client, "a");
	server_pause(&server);
	ck_assert_int_eq(proc_state(server.pid), 'T');
	EXPECT(lk_latch_down(latch, 1, NULL, 0, NULL), LK_EUNKNOWN);
	EXPECT(lk_latch_await(latch, 10), LK_ECONN);
	server_resume(&server);
	ck_assert(WITHIN(BACK_MS, count_of("a") == 1));
	nap_ms(500); /* a repeated request would count twice now */
	ck_assert_int_eq(count_of("a"), 1);
	ck_assert(WITHIN(BACK_MS, lk_latch_down(latch, 1, NULL, 0, NULL) == LK_OK));
	ck_assert(WITHIN(BACK_MS, awaiter.ended));
	OK(awaiter_join(&awaiter));
	OK(lk_client_close(client));
}

/* The answer never comes, and the connection ends after all its callers have left. */
TEST(s6_handle_may_be_closed_while_its_request_hangs)
{
	struct awaiter awaiter;
	lk_client *client;
	lk_latch *latch;

	set_up(NULL);
	client = client_with(server.url, &quick);
	latch = latch_named(client, "a");
	OK(lk_latch_set(latch, 3, NULL));
	server_pause(&server);
	awaiter_start(&awaiter, latch, 10000);
	nap_ms(50);
	OK(lk_latch_close(latch));
	EXPECT(awaiter_join(&awaiter), LK_ECANCELED);
	nap_ms(3 * TIMEOUT_MS); /* it is overdue, and the connection is given up */
	server_resume(&server);
	latch = latch_named(client, "a");
	ck_assert(WITHIN(BACK_MS, lk_latch_down(latch, 3, NULL, 0, NULL) == LK_OK));
	OK(lk_client_close(client));
}

/* The wait and the handle have ended when the connection breaks before the answer. */
TEST(s6_latch_that_nobody_has_any_more_goes_with_its_connection)
{
	struct awaiter awaiter;
	lk_client *client;
	lk_latch *latch;
	long long blocked;

	set_up(NULL);
	client = client_at(server.url);
	for (int i = 0; i < 3; i++) {
		latch = latch_named(client, "a");
		blocked = redis_info(redis, "blocked_clients");
		redis_do(redis, "CLIENT PAUSE 100000 WRITE");
		awaiter_start(&awaiter, latch, 5000);
		ck_assert(WITHIN(2000, redis_info(redis, "blocked_clients") > blocked));
		OK(lk_latch_cancel(latch));
		EXPECT(awaiter_join(&awaiter), LK_ECANCELED);
		OK(lk_latch_close(latch));
		redis_do(redis, "CLIENT KILL TYPE normal SKIPME yes");
		redis_do(redis, "CLIENT UNPAUSE");
		latch = latch_named(client, "b");
		ck_assert(WITHIN(BACK_MS, lk_latch_await(latch, 0) == LK_EBUSY));
		OK(lk_latch_close(latch));
	}
	OK(lk_client_close(client));
}

/* A request that the network delayed for long, executed by hand. */
TEST(s6_late_step_counts_on_no_newer_latch)
{
	char generation[32];
	lk_client *client;
	lk_latch *latch;

	set_up(NULL);
	client = client_at(server.url);
	latch = latch_named(client, "a");
	OK(lk_latch_set(latch, 5, NULL));
	latch_down(latch, 1, NULL);
	latch_down(latch, 1, NULL);
	snprintf(generation, sizeof(generation), "%s", redis_text(redis, "HGET lk:{a} gen"));
	for (int number = 1; number <= 2; number++) {
		ck_assert_str_eq(redis_text(redis,
		                            "EVAL %s 2 lk:{a} lk:{a}:s %s %s %lld 1 %s lk:l:0:{a}",
		                            lk__script_latch_down.text, generation,
		                            lk_client_id(client), (long long)number, "name"),
		                 "stepped\n3\n1");
		ck_assert_int_eq(count_of("a"), 3);
	}
	OK(lk_latch_reset(latch, 7, NULL));
	redis_do(redis, "EVAL %s 2 lk:{a} lk:{a}:s %s %s 9 1 %s lk:l:0:{a}",
	         lk__script_latch_down.text, generation, lk_client_id(client), "name");
	ck_assert_int_eq(count_of("a"), 7);
	OK(lk_latch_remove(latch));
	ck_assert_str_eq(redis_text(redis, "EVAL %s 2 lk:{a} lk:{a}:s %s %s 9 1 %s lk:l:0:{a}",
	                            lk__script_latch_down.text, generation, lk_client_id(client),
	                            "name"),
	                 "other\n0");
	OK(lk_client_close(client));
}

static void *resume_later(void *arg)
{
	nap_ms(*(int *)arg);
	server_resume(&server);
	return NULL;
}

TEST_LIMIT(s6_close_settles_a_step_or_says_that_it_is_not_known, 40)
{
	for (int late = 0; late < 2; late++) {
		const lk_client_options options = {.command_timeout_ms = 500};
		int after_ms = late ? 1400 : 150;
		pthread_t thread;
		lk_client *client;
		lk_latch *latch;
		int64_t start_ms;

		set_up(NULL);
		client = client_with(server.url, &options);
		latch = latch_named(client, "a");
		OK(lk_latch_set(latch, 3, NULL));
		latch_down(latch, 1, NULL);
		server_pause(&server);
		EXPECT(lk_latch_down(latch, 1, NULL, 0, NULL), LK_EUNKNOWN);
		pthread_create(&thread, NULL, resume_later, &after_ms);
		start_ms = now_ms();
		EXPECT(lk_client_close(client), late ? LK_EUNKNOWN : LK_OK);
		ck_assert_int_lt(now_ms() - start_ms, 1000);
		pthread_join(thread, NULL);
		if (!late)
			ck_assert_int_eq(count_of("a"), 1);
		else
			ck_assert_int_ge(count_of("a"), 1);
		redis_close(redis);
		server_stop(&server);
	}
}

struct load {
	lk_latch *latch;
	int steps;
	pthread_t thread;
};

static void *count_down(void *arg)
{
	struct load *load = arg;

	for (int i = 0; i < load->steps; i++)
		latch_down(load->latch, 1, NULL);
	return NULL;
}

TEST_LIMIT(s9_forgotten_scripts_are_sent_again, 40)
{
	enum { THREADS = 8, STEPS = 100 };
	struct load loads[THREADS];
	struct awaiter awaiter;
	lk_client *client;
	lk_latch *latch;

	set_up(NULL);
	client = client_at(server.url);
	latch = latch_named(client, "a");
	OK(lk_latch_set(latch, THREADS * STEPS + 1, NULL));
	await_subscribed(&awaiter, client, "a");
	for (int i = 0; i < THREADS; i++) {
		loads[i] = (struct load){.latch = latch_named(client_at(server.url), "a"),
		                         .steps = STEPS};
		pthread_create(&loads[i].thread, NULL, count_down, &loads[i]);
	}
	for (int i = 0; i < 20; i++) {
		redis_do(redis, "SCRIPT FLUSH");
		nap_ms(2);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(loads[i].thread, NULL);
	ck_assert_int_gt(redis_calls(redis, "eval"), THREADS + 2);
	ck_assert_int_eq(latch_status(latch).count, 1);
	redis_do(redis, "SCRIPT FLUSH");
	ck_assert(!awaiter.ended);
	latch_down(latch, 1, NULL);
	OK(awaiter_join(&awaiter));
	OK(lk_client_close(client));
}

TEST_LIMIT(s10_deleted_latch_is_absent_and_waiters_go_on, 40)
{
	struct awaiter awaiter;
	lk_client *client;
	lk_latch *latch;
	uint64_t generation;

	set_up(NULL);
	client = client_at(server.url);
	latch = latch_named(client, "a");
	OK(lk_latch_set(latch, 2, NULL));
	generation = latch_status(latch).generation;
	latch_down(latch, 1, "one");
	await_subscribed(&awaiter, client, "a");
	redis_do(redis, "FLUSHALL");
	EXPECT(lk_latch_down(latch, 1, NULL, 0, NULL), LK_EABSENT);
	OK(lk_latch_set(latch, 2, NULL));
	ck_assert_uint_gt(latch_status(latch).generation, generation);
	ck_assert_int_eq(latch_down(latch, 1, "one"), 1); /* the name is forgotten with it */
	redis_do(redis, "DEL lk:{a}");
	EXPECT(lk_latch_down(latch, 1, NULL, 0, NULL), LK_EABSENT);
	ck_assert(!awaiter.ended);
	OK(lk_latch_set(latch, 0, NULL));
	ck_assert(WITHIN(1000, awaiter.ended));
	OK(awaiter_join(&awaiter));
	OK(lk_client_close(client));
}

TEST_LIMIT(s11_flush_with_many_waiters_leaves_none_behind, 60)
{
	enum { WAITERS = 200 };
	static struct awaiter awaiters[WAITERS];
	lk_client *clients[4];
	lk_latch *latch;

	set_up(NULL);
	for (int i = 0; i < 4; i++)
		clients[i] = client_at(server.url);
	latch = latch_named(clients[0], "a");
	OK(lk_latch_set(latch, 1, NULL));
	for (int i = 0; i < WAITERS; i++)
		awaiter_start(&awaiters[i], latch_named(clients[i % 4], "a"), 30000);
	ck_assert(WITHIN(5000, subscribers("a") == 4));
	redis_do(redis, "FLUSHALL ASYNC");
	nap_ms(50);
	for (int i = 0; i < WAITERS; i++)
		ck_assert(!awaiters[i].ended);
	OK(lk_latch_set(latch, 1, NULL));
	latch_down(latch, 1, NULL);
	for (int i = 0; i < WAITERS; i++) {
		OK(awaiter_join(&awaiters[i]));
		ck_assert_int_lt(awaiters[i].took_ms, 8000);
	}
	for (int i = 0; i < 4; i++)
		OK(lk_client_close(clients[i]));
}

TEST(s13_full_server_makes_no_latch_but_counts_opens_and_removes)
{
	lk_client *client;
	lk_latch *latch, *other;
	struct awaiter awaiter;

	set_up(NULL);
	client = client_at(server.url);
	latch = latch_named(client, "a");
	other = latch_named(client, "b");
	OK(lk_latch_set(latch, 3, NULL));
	OK(lk_latch_set(other, 3, NULL));
	latch_down(latch, 1, NULL);
	await_subscribed(&awaiter, client, "a");
	redis_do(redis, "CONFIG SET maxmemory 1");
	ck_assert(redis_text(redis, "SET full 1")[0] == '-');
	EXPECT(lk_latch_set(latch_named(client, "c"), 1, NULL), LK_ESERVER);
	EXPECT(lk_latch_reset(latch, 9, NULL), LK_ESERVER);
	ck_assert_int_eq(latch_status(latch).count, 2);
	latch_down(latch, 1, "named");
	latch_down(latch, 1, NULL);
	OK(awaiter_join(&awaiter));
	OK(lk_latch_remove(other));
	OK(lk_client_close(client));
}

TEST(s16_key_of_another_type_is_refused_and_left_alone)
{
	lk_client *client;
	lk_latch *latch;
	lk_latch_status status;

	set_up(NULL);
	client = client_at(server.url);
	latch = latch_named(client, "a");
	redis_do(redis, "LPUSH lk:{a} x");
	EXPECT(lk_latch_set(latch, 1, NULL), LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "lk:{a}"));
	EXPECT(lk_latch_reset(latch, 1, NULL), LK_EFOREIGN);
	EXPECT(lk_latch_down(latch, 1, NULL, 0, NULL), LK_EFOREIGN);
	EXPECT(lk_latch_await(latch, 1000), LK_EFOREIGN);
	EXPECT(lk_latch_query(latch, &status), LK_EFOREIGN);
	EXPECT(lk_latch_remove(latch), LK_EFOREIGN);
	ck_assert_str_eq(redis_text(redis, "LRANGE lk:{a} 0 -1"), "x");
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}:s lk:fence"), 0);
	/* A key that becomes foreign during a wait is found and reported by the next look. */
	redis_do(redis, "DEL lk:{a}");
	OK(lk_client_close(client));
}

/* ---- Names and numbers -------------------------------------------------------------------- */

TEST(v1_v2_any_bytes_make_names_that_never_collide)
{
	static const struct {
		const char *bytes;
		size_t len;
	} names[] = {{"a", 1},     {"a\0b", 3}, {"a\r\nb", 4},  {"\xff\xfe", 2}, {"a}b{c", 5},
	             {"}x", 2},    {"{a}", 3},  {"%00", 3},     {"a:s", 3},      {"a b", 3},
	             {"{a}:s", 5}, {"", 1},     {"\xc3\xa4", 2}};
	enum { NAMES = sizeof(names) / sizeof(names[0]) };
	lk_latch *latches[NAMES];
	lk_client *client;

	set_up(NULL);
	client = client_at(server.url);
	for (size_t i = 0; i < NAMES; i++) {
		struct awaiter awaiter;
		OK(lk_latch_open(client, names[i].bytes, names[i].len, NULL, &latches[i]));
		awaiter_start(&awaiter, latches[i], 10000);
		nap_ms(5);
		OK(lk_latch_set(latches[i], (int64_t)i + 2, NULL));
		latch_down(latches[i], (int64_t)i + 2, names[i].len > 1 ? NULL : "x");
		OK(awaiter_join(&awaiter));
		OK(lk_latch_reset(latches[i], (int64_t)i + 1, NULL));
	}
	for (size_t i = 0; i < NAMES; i++)
		ck_assert_int_eq(latch_status(latches[i]).count, (int64_t)i + 1);
	OK(lk_client_close(client));
}

TEST(v4_damaged_counter_and_fields_are_told)
{
	static const char *const counters[] = {"x", "-1", "1e3", "9007199254740991",
	                                       "99999999999999999999"};
	lk_client *client;
	lk_latch *latch;

	set_up(NULL);
	client = client_at(server.url);
	latch = latch_named(client, "a");
	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
		redis_do(redis, "SET lk:fence %s", counters[i]);
		EXPECT(lk_latch_set(latch, 1, NULL), LK_ESERVER);
		EXPECT(lk_latch_await(latch, 0), LK_EBUSY);
		ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}"), 0);
	}
	redis_do(redis, "DEL lk:fence");
	redis_do(redis, "LPUSH lk:fence x");
	EXPECT(lk_latch_set(latch, 1, NULL), LK_EFOREIGN);
	redis_do(redis, "DEL lk:fence");
	OK(lk_latch_set(latch, 1, NULL));
	redis_do(redis, "HSET lk:{a} count -5");
	EXPECT(lk_latch_down(latch, 1, NULL, 0, NULL), LK_EFOREIGN);
	redis_do(redis, "HSET lk:{a} count 5 open_ttl x");
	EXPECT(lk_latch_down(latch, 1, NULL, 0, NULL), LK_EFOREIGN);
	OK(lk_client_close(client));
}

TEST(v7_count_stops_at_zero_and_old_waiters_are_released_once)
{
	struct awaiter awaiters[20];
	lk_client *client;
	lk_latch *latch;
	lk_latch_step step;

	set_up(NULL);
	client = client_at(server.url);
	latch = latch_named(client, "a");
	OK(lk_latch_set(latch, LK_COUNT_MAX, NULL));
	for (int i = 0; i < 20; i++)
		awaiter_start(&awaiters[i], latch, 10000);
	ck_assert(WITHIN(2000, subscribers("a") == 1));
	nap_ms(100);
	latch_down(latch, LK_COUNT_MAX - 1, NULL);
	ck_assert_int_eq(latch_status(latch).count, 1);
	OK(lk_latch_down(latch, LK_COUNT_MAX, NULL, 0, &step));
	ck_assert_int_eq(step.remaining, 0);
	OK(lk_latch_reset(latch, 1, NULL));
	for (int i = 0; i < 20; i++)
		OK(awaiter_join(&awaiters[i]));
	EXPECT(lk_latch_await(latch, 0), LK_EBUSY);
	ck_assert_int_eq(latch_status(latch).count, 1);
	OK(lk_client_close(client));
}
