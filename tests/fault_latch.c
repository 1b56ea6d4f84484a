/* SPDX-License-Identifier: MIT
 * Faults of servers and hostile contents that concern latches only (S and V of the fault list):
 * nothing counts twice, and each waiter is released, none early.  fault_server.c has the others. */
#include "harness/fault.h"
#include "harness/latch_watch.h"

#include "scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 300

static const lk_client_options quick = {.command_timeout_ms = TIMEOUT_MS};

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

TEST_LIMIT(s6_step_to_a_stopped_server_is_counted_once_when_it_runs, 40)
{
	struct awaiter awaiter;
	lk_client *client;
	lk_latch *latch;

	fault_set_up(NULL);
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

	fault_set_up(NULL);
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

	fault_set_up(NULL);
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

	fault_set_up(NULL);
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

		fault_set_up(NULL);
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

	fault_set_up(NULL);
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

TEST(s13_full_server_resets_no_latch_but_removes_it)
{
	lk_client *client;
	lk_latch *latch;

	fault_set_up(NULL);
	client = client_at(server.url);
	latch = latch_named(client, "a");
	OK(lk_latch_set(latch, 3, NULL));
	redis_do(redis, "CONFIG SET maxmemory 1");
	ck_assert(redis_text(redis, "SET full 1")[0] == '-');
	EXPECT(lk_latch_reset(latch, 9, NULL), LK_ESERVER);
	ck_assert_int_eq(latch_status(latch).count, 3);
	OK(lk_latch_remove(latch));
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

	fault_set_up(NULL);
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
	lk_client *client;
	lk_latch *latch;

	fault_set_up(NULL);
	client = client_at(server.url);
	latch = latch_named(client, "a");
	redis_do(redis, "SET lk:fence x");
	EXPECT(lk_latch_set(latch, 1, NULL), LK_ESERVER);
	EXPECT(lk_latch_await(latch, 0), LK_EBUSY);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}"), 0);
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

	fault_set_up(NULL);
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
