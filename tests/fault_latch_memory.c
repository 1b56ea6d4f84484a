/* SPDX-License-Identifier: MIT
 * The memory keys of latches, and what happens if they are lost or damaged (S and V of the fault
 * list): a step never counts twice, and no opening is forgotten too early. */
#include "harness/latch_watch.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include "scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_MS 60000 /* as in latch.lua */
#define SLACK_MS 5000

static struct test_server server;
static struct redis *redis;

static lk_client *set_up(void)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
	return client_at(server.url);
}

/* The memory of latch a outlives it by a minute; by_ms is how long the latch lives. */
static void assert_outlives(long long by_ms)
{
	long long latch_ms = redis_int(redis, "PTTL lk:{a}");
	long long memory_ms = redis_int(redis, "PTTL lk:{a}:s");

	ck_assert_msg(latch_ms > by_ms - SLACK_MS && latch_ms <= by_ms, "latch: %lld", latch_ms);
	ck_assert_msg(memory_ms > by_ms + MEMORY_MS - SLACK_MS && memory_ms <= by_ms + MEMORY_MS,
	              "memory: %lld", memory_ms);
}

TEST(s10_memory_outlives_the_latch_by_a_minute)
{
	const lk_latch_options hours = {.open_ttl_ms = 3600000, .counting_ttl_ms = 7200000};
	lk_client *client = set_up();
	lk_latch *latch = latch_with(client, "a", &hours);

	OK(lk_latch_set(latch, 2, NULL));
	assert_outlives(7200000);
	redis_do(redis, "PEXPIRE lk:{a} 5000000");
	latch_down(latch, 1, NULL);
	assert_outlives(5000000);
	latch_down(latch, 1, NULL);
	assert_outlives(3600000);
	OK(lk_latch_reset(latch, 0, NULL));
	assert_outlives(3600000);
	latch = latch_named(client, "a");
	OK(lk_latch_reset(latch, 2, NULL));
	ck_assert_int_eq(redis_int(redis, "PTTL lk:{a}:s"), -1);
	latch_down(latch, 1, NULL);
	ck_assert_int_eq(redis_int(redis, "PTTL lk:{a}:s"), -1);
	latch_down(latch, 1, NULL);
	assert_outlives(LK_TTL_DEFAULT_MS);
	OK(lk_client_close(client));
}

/* While the latch is open, a repeated last step is recognised as the one that counted. */
TEST(s10_last_step_sent_again_is_known_while_the_latch_is_open)
{
	lk_client *client = set_up();
	lk_latch *latch = latch_named(client, "a");
	char generation[32];

	OK(lk_latch_set(latch, 1, NULL));
	snprintf(generation, sizeof(generation), "%s", redis_text(redis, "HGET lk:{a} gen"));
	latch_down(latch, 1, NULL);
	ck_assert_int_gt(redis_int(redis, "PTTL lk:{a}:s"), LK_TTL_DEFAULT_MS);
	ck_assert_str_eq(redis_text(redis, "EVAL %s 2 lk:{a} lk:{a}:s %s %s 1 1 %s lk:l:0:{a}",
	                            lk__script_latch_down.text, generation, lk_client_id(client),
	                            ""),
	                 "stepped\n0\n1");
	OK(lk_client_close(client));
}

TEST(s10_opening_is_carried_over_though_its_memory_was_lost)
{
	lk_client *client = set_up();
	lk_latch *latch = latch_named(client, "a");
	uint64_t opened;

	OK(lk_latch_set(latch, 1, NULL));
	latch_down(latch, 1, NULL);
	opened = latch_status(latch).generation;
	redis_do(redis, "DEL lk:{a}:s");
	OK(lk_latch_set(latch, 3, NULL));
	ck_assert_uint_eq((uint64_t)redis_int(redis, "HGET lk:{a}:s opened"), opened);
	OK(lk_client_close(client));
}

TEST(s10_steps_that_were_lost_count_no_second_time)
{
	static const char *const losses[] = {"DEL lk:{a}:s", "HSET lk:{a}:s gen 1",
	                                     "HDEL lk:{a}:s gen"};
	lk_client *client = set_up();
	lk_latch *latch = latch_named(client, "a");
	lk_latch_step step;

	for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
		OK(lk_latch_reset(latch, 3, NULL));
		ck_assert_int_eq(latch_down(latch, 1, "job"), 2);
		redis_do(redis, losses[i]);
		EXPECT(lk_latch_down(latch, 1, "job", 0, &step), LK_EFOREIGN);
		ck_assert_ptr_nonnull(strstr(lk_errmsg(), "reset it"));
		ck_assert_int_eq(latch_status(latch).count, 2);
		EXPECT(lk_latch_await(latch, 0), LK_EBUSY);
	}
	OK(lk_latch_reset(latch, 1, NULL));
	ck_assert_int_eq(latch_down(latch, 1, "job"), 0);
	redis_do(redis, "DEL lk:{a}:s");
	OK(lk_latch_down(latch, 1, "job", 0, &step)); /* it is open in any case */
	ck_assert(!step.counted);
	OK(lk_latch_await(latch, 0));
	OK(lk_client_close(client));
}

/* A lock is free for a moment between its holder and the next waiter. */
TEST(v4_name_with_tickets_of_another_kind_becomes_no_latch)
{
	lk_client *client = set_up();
	lk_latch *latch = latch_named(client, "a");

	redis_do(redis, "ZADD lk:{a}:q 1 2:abcdefghijklmnopqrstuv:abcdefghijk:10000:r");
	EXPECT(lk_latch_set(latch, 1, NULL), LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "a lock, not a latch"));
	EXPECT(lk_latch_reset(latch, 1, NULL), LK_EFOREIGN);
	EXPECT(lk_latch_remove(latch), LK_EFOREIGN);
	redis_do(redis, "DEL lk:{a}:q");
	redis_do(redis, "ZADD lk:{a}:q 1 2:abcdefghijklmnopqrstuv:abcdefghijk:10000:r:3");
	EXPECT(lk_latch_set(latch, 1, NULL), LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "a semaphore, not a latch"));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:s lk:fence"), 0);
	ck_assert_int_eq(redis_int(redis, "ZCARD lk:{a}:q"), 1);
	redis_do(redis, "DEL lk:{a}:q");
	redis_do(redis, "SET lk:{a}:q x");
	EXPECT(lk_latch_set(latch, 1, NULL), LK_EFOREIGN);
	EXPECT(lk_latch_remove(latch), LK_EFOREIGN);
	redis_do(redis, "DEL lk:{a}:q");
	OK(lk_latch_set(latch, 1, NULL));
	/* An existing latch remains one, and can be removed. */
	redis_do(redis, "ZADD lk:{a}:q 1 2:abcdefghijklmnopqrstuv:abcdefghijk:10000:r");
	OK(lk_latch_reset(latch, 2, NULL));
	OK(lk_latch_remove(latch));
	OK(lk_client_close(client));
}

TEST(v4_latch_that_counts_does_so_with_a_damaged_counter)
{
	static const char *const counters[] = {"x", "9007199254740991", "9007199254740992",
	                                       "9999999999999999", "99999999999999999999"};
	lk_client *client = set_up();
	lk_latch *latch = latch_named(client, "a"), *absent = latch_named(client, "b");

	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
		redis_do(redis, "DEL lk:fence");
		OK(lk_latch_reset(latch, 2, NULL));
		redis_do(redis, "SET lk:fence %s", counters[i]);
		EXPECT(lk_latch_await(latch, 20), LK_ETIMEDOUT);
		EXPECT(lk_latch_await(absent, 20), LK_ETIMEDOUT);
		ck_assert_int_eq(latch_down(latch, 1, NULL), 1);
		ck_assert_int_eq(latch_down(latch, 1, NULL), 0);
		OK(lk_latch_await(latch, 0));
		EXPECT(lk_latch_reset(latch, 1, NULL), LK_ESERVER);
	}
	OK(lk_client_close(client));
}
