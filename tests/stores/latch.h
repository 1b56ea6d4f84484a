/* SPDX-License-Identifier: MIT
 * What a latch promises, on any store: the contract of each call, and many threads. */
#ifndef STORES_LATCH_H
#define STORES_LATCH_H

#include "stores/set_up.h"
#include "core/channel.h"
#include "harness/latch_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHANNEL "lk:l:0:{a}"
#define TEST_LATCH(name, seconds) TEST_STORE(name, seconds, STORE_LATCHES)

static int subscribers(void)
{
	const char *text = redis_text(redis, "PUBSUB NUMSUB " CHANNEL);

	return atoi(text + strcspn(text, "\n"));
}

/* Does the client hear of the latch "a", as far as the store shows it? */
static bool is_heard(void)
{
	return !redis || subscribers() == 1;
}

static long long openings(void)
{
	return redis ? redis_calls(redis, "publish") : 0;
}

/* ---- Set, reset, remove, query ------------------------------------------------------------ */

TEST_LATCH(set_says_what_it_was_and_refuses_while_it_counts, 20)
{
	lk_client *client = set_up();
	lk_latch *latch = latch_named(client, "a");
	lk_latch_state was = LK_LATCH_OPEN;
	lk_latch_status status;
	uint64_t first;

	status = latch_status(latch);
	ck_assert_int_eq(status.state, LK_LATCH_ABSENT);
	ck_assert_uint_eq(status.generation, 0);
	OK(lk_latch_set(latch, 3, &was));
	ck_assert_int_eq(was, LK_LATCH_ABSENT);
	status = latch_status(latch);
	ck_assert_int_eq(status.state, LK_LATCH_COUNTING);
	ck_assert_int_eq(status.count, 3);
	ck_assert_int_eq(status.initial, 3);
	ck_assert_int_eq(status.ttl_ms, -1);
	first = status.generation;
	ck_assert_uint_ne(first, 0);
	ck_assert_int_eq(latch_down(latch, 1, NULL), 2);
	EXPECT(lk_latch_set(latch, 9, &was), LK_EMISMATCH);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "2 of 3"));
	ck_assert_uint_eq(latch_status(latch).generation, first);
	ck_assert_int_eq(latch_down(latch, 2, NULL), 0);
	status = latch_status(latch);
	ck_assert_int_eq(status.state, LK_LATCH_OPEN);
	ck_assert(status.ttl_ms > LK_TTL_DEFAULT_MS - 5000 && status.ttl_ms <= LK_TTL_DEFAULT_MS);
	OK(lk_latch_set(latch, 0, &was));
	ck_assert_int_eq(was, LK_LATCH_OPEN);
	ck_assert_int_eq(latch_status(latch).state, LK_LATCH_OPEN);
	ck_assert_uint_gt(latch_status(latch).generation, first);
	OK(lk_latch_set(latch, LK_COUNT_MAX, NULL));
	ck_assert_int_eq(latch_status(latch).count, LK_COUNT_MAX);
	OK(lk_client_close(client));
}

TEST_LATCH(reset_begins_anew_in_every_state, 20)
{
	lk_client *client = set_up();
	lk_latch *latch = latch_named(client, "a");
	lk_latch_state was = LK_LATCH_OPEN;

	OK(lk_latch_reset(latch, 2, &was));
	ck_assert_int_eq(was, LK_LATCH_ABSENT);
	ck_assert_int_eq(latch_down(latch, 1, "x"), 1);
	OK(lk_latch_reset(latch, 3, &was));
	ck_assert_int_eq(was, LK_LATCH_COUNTING);
	ck_assert_int_eq(latch_down(latch, 1, "x"), 2);
	OK(lk_latch_reset(latch, 0, &was));
	OK(lk_latch_reset(latch, 1, &was));
	ck_assert_int_eq(was, LK_LATCH_OPEN);
	OK(lk_client_close(client));
}

TEST_LATCH(remove_makes_absent_and_leaves_nothing_for_long, 20)
{
	lk_client *client = set_up();
	lk_latch *latch = latch_named(client, "a");

	EXPECT(lk_latch_remove(latch), LK_EABSENT);
	OK(lk_latch_set(latch, 3, NULL));
	OK(lk_latch_remove(latch));
	EXPECT(lk_latch_remove(latch), LK_EABSENT);
	ck_assert_int_eq(latch_status(latch).state, LK_LATCH_ABSENT);
	EXPECT(lk_latch_down(latch, 1, NULL, 0, NULL), LK_EABSENT);
	if (redis) {
		ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}"), 0);
		ck_assert_int_gt(redis_int(redis, "PTTL lk:{a}:s"), 0);
	}
	OK(lk_lock_acquire(lock_named(client, "a"), 0, NULL)); /* the name is free */
	OK(lk_client_close(client));
}

TEST_LATCH(arguments_out_of_range_change_nothing, 20)
{
	lk_client *client = set_up();
	lk_latch *latch = latch_named(client, "a");
	char name[LK_STEP_MAX + 2];
	lk_latch_options wrong[] = {
		{.open_ttl_ms = LK_TTL_MIN_MS - 1},
		{.open_ttl_ms = LK_TTL_MAX_MS + 1},
		{.counting_ttl_ms = -1},
		{.counting_ttl_ms = LK_TTL_MAX_MS + 1},
		{.reserved = {1}},
	};
	long long before;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		lk_latch *none = latch;
		EXPECT(lk_latch_open(client, "a", 0, &wrong[i], &none), LK_EINVALID);
		ck_assert_ptr_eq(none, latch);
	}
	EXPECT(lk_latch_open(client, "", 0, NULL, &latch), LK_EINVALID);
	EXPECT(lk_latch_open(client, NULL, 0, NULL, &latch), LK_EINVALID);
	EXPECT(lk_latch_open(client, NULL, 3, NULL, &latch), LK_EINVALID);
	EXPECT(lk_latch_open(client, "a", LK_NAME_MAX + 1, NULL, &latch), LK_EINVALID);
	OK(lk_latch_set(latch, 3, NULL));
	before = STORE.requests();
	EXPECT(lk_latch_set(latch, -1, NULL), LK_EINVALID);
	EXPECT(lk_latch_reset(latch, LK_COUNT_MAX + INT64_C(1), NULL), LK_EINVALID);
	EXPECT(lk_latch_down(latch, 0, NULL, 0, NULL), LK_EINVALID);
	EXPECT(lk_latch_down(latch, LK_COUNT_MAX + INT64_C(1), NULL, 0, NULL), LK_EINVALID);
	EXPECT(lk_latch_down(latch, INT64_MIN, NULL, 0, NULL), LK_EINVALID);
	memset(name, 'x', sizeof(name));
	name[LK_STEP_MAX + 1] = '\0';
	EXPECT(lk_latch_down(latch, 1, name, 0, NULL), LK_EINVALID);
	EXPECT(lk_latch_down(latch, 1, name, LK_STEP_MAX + 1, NULL), LK_EINVALID);
	EXPECT(lk_latch_down(latch, 1, name, SIZE_MAX, NULL), LK_EINVALID);
	EXPECT(lk_latch_down(latch, 1, "", 0, NULL), LK_EINVALID);
	EXPECT(lk_latch_down(latch, 1, NULL, 1, NULL), LK_EINVALID);
	EXPECT(lk_latch_await(latch, -2), LK_EINVALID);
	ck_assert_int_eq(STORE.requests(), before);
	name[LK_STEP_MAX] = '\0';
	ck_assert_int_eq(latch_down(latch, 1, name), 2);
	OK(lk_latch_close(NULL));
	OK(lk_client_close(client));
}

/* A step's name consists of any bytes of the given length; each of these names counts once. */
TEST_LATCH(step_names_are_any_bytes, 20)
{
	static const struct {
		const char *bytes;
		size_t len;
	} names[] = {{"a", 1}, {"a\0", 2}, {"a\0b", 3}, {"a\0c", 3}, {"\0", 1}, {"\r\n\xff", 3}};
	enum { NAMES = sizeof(names) / sizeof(names[0]) };
	lk_client *client = set_up();
	lk_latch *latch = latch_named(client, "a");
	lk_latch_step step;

	OK(lk_latch_set(latch, 2 * NAMES, NULL));
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < NAMES; i++) {
			OK(lk_latch_down(latch, 1, names[i].bytes, names[i].len, &step));
			ck_assert_msg(step.counted == !round, "name %d, round %d", i, round);
		}
	}
	ck_assert_int_eq(step.remaining, NAMES);
	OK(lk_latch_down(latch, 1, "a", 0, &step)); /* the same name, ended by its NUL */
	ck_assert(!step.counted);
	OK(lk_client_close(client));
}

TEST_LATCH(times_to_live_are_as_asked, 20)
{
	const int64_t open_ms = lease_of(1000);
	/* Some have whole seconds, of which the first is not complete. */
	const int64_t less_ms = STORE.least_lease_ms >= 1000 ? 1000 : 0;
	lk_client *client = set_up();
	lk_latch *latch = latch_with(
		client, "a", &(lk_latch_options){.open_ttl_ms = 1000, .counting_ttl_ms = 3000});
	lk_latch_status status;

	OK(lk_latch_set(latch, 2, NULL));
	status = latch_status(latch);
	ck_assert(status.ttl_ms > 2500 - less_ms && status.ttl_ms <= 3000);
	nap_ms(300);
	latch_down(latch, 1, NULL);
	ck_assert_int_le(latch_status(latch).ttl_ms, 2700); /* a step does not extend it */
	latch_down(latch_named(client, "a"), 1, NULL);
	status = latch_status(latch);
	ck_assert(status.ttl_ms > open_ms - 300 - less_ms); /* not the opening handle's */
	ck_assert_int_le(status.ttl_ms, open_ms);
	OK(lk_latch_await(latch, 0));
	ck_assert(
		WITHIN(open_ms + 500 + 2 * less_ms, latch_status(latch).state == LK_LATCH_ABSENT));
	EXPECT(lk_latch_await(latch, 0), LK_EBUSY);
	if (redis)
		ck_assert_int_gt(redis_int(redis, "PTTL lk:{a}:s"), 0);
	OK(lk_client_close(client));
}

/* ---- Steps -------------------------------------------------------------------------------- */

TEST_LATCH(named_step_counts_once_in_all_clients, 20)
{
	lk_client *client = set_up(), *other = client_at(url);
	lk_latch *mine = latch_named(client, "a"), *theirs = latch_named(other, "a");
	lk_latch_step step;

	OK(lk_latch_set(mine, 3, NULL));
	ck_assert_int_eq(latch_down(mine, 1, "one \xff\r\n{}"), 2);
	OK(lk_latch_down(mine, 1, "one \xff\r\n{}", 0, &step));
	ck_assert(!step.counted && step.remaining == 2);
	OK(lk_latch_down(theirs, 1, "one \xff\r\n{}", 0, &step));
	ck_assert(!step.counted && step.remaining == 2);
	ck_assert_int_eq(latch_down(theirs, LK_COUNT_MAX, "two"), 0);
	OK(lk_latch_down(theirs, 1, NULL, 0, &step)); /* it does not fall below zero */
	ck_assert(!step.counted && step.remaining == 0);
	OK(lk_latch_down(mine, 1, "three", 0, NULL));
	ck_assert_int_eq(latch_status(mine).count, 0);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

enum { THREADS = 64, STEPS = 20 };

struct counter {
	lk_latch *latch;
	pthread_t thread;
};

static void *count_down(void *arg)
{
	struct counter *counter = arg;

	for (int i = 0; i < STEPS; i++)
		latch_down(counter->latch, 1, NULL);
	return NULL;
}

TEST_LATCH(sixty_four_threads_count_each_step_once, 60)
{
	static struct counter counters[THREADS];
	lk_client *client = set_up();
	struct awaiter awaiter;
	lk_latch *latch = latch_named(client, "a");
	long long before;

	OK(lk_latch_set(latch, THREADS * STEPS, NULL));
	before = openings(); /* a connection's test publishes too */
	awaiter_start(&awaiter, latch, 20000);
	for (int i = 0; i < THREADS; i++) {
		counters[i].latch = i & 1 ? latch : latch_named(client, "a");
		pthread_create(&counters[i].thread, NULL, count_down, &counters[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(counters[i].thread, NULL);
	OK(awaiter_join(&awaiter));
	ck_assert_int_eq(latch_status(latch).state, LK_LATCH_OPEN);
	if (redis)
		ck_assert_int_eq(openings() - before, 1);
	OK(lk_client_close(client));
}

/* ---- Waits -------------------------------------------------------------------------------- */

TEST_LATCH(wait_keeps_its_contract, 20)
{
	lk_client *client = set_up();
	lk_latch *latch = latch_named(client, "a");
	lk_latch *content = latch_with(client, "a", &(lk_latch_options){.absent_is_open = true});
	int64_t start_ms = now_ms();

	EXPECT(lk_latch_await(latch, 0), LK_EBUSY);
	EXPECT(lk_latch_await(latch, 100), LK_ETIMEDOUT);
	ck_assert(now_ms() - start_ms >= 100 && now_ms() - start_ms < 1000);
	OK(lk_latch_await(content, 0));
	OK(lk_latch_await(content, LK_FOREVER));
	OK(lk_latch_set(latch, 1, NULL));
	EXPECT(lk_latch_await(content, 0), LK_EBUSY);
	EXPECT(lk_latch_await(content, 50), LK_ETIMEDOUT);
	latch_down(latch, 1, NULL);
	OK(lk_latch_await(latch, 0));
	OK(lk_latch_await(latch, LK_FOREVER));
	if (redis)
		ck_assert_int_eq(redis_size(redis),
		                 3); /* no key for the wait: latch, memory, fence */
	OK(lk_client_close(client));
}

TEST_LATCH(wait_for_an_absent_latch_ends_when_it_was_made_and_opened, 20)
{
	lk_client *client = set_up(), *other = client_at(url);
	lk_latch *latch = latch_named(other, "a");
	struct awaiter awaiter;

	awaiter_start(&awaiter, latch_named(client, "a"), 10000);
	ck_assert(WITHIN(2000, is_heard()));
	OK(lk_latch_set(latch, 2, NULL));
	latch_down(latch, 1, NULL);
	nap_ms(50);
	ck_assert(!awaiter.ended);
	latch_down(latch, 1, NULL);
	ck_assert(WITHIN(500, awaiter.ended));
	OK(awaiter_join(&awaiter));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_LATCH(removed_and_reset_latch_is_waited_for, 20)
{
	lk_client *client = set_up(), *other = client_at(url);
	lk_latch *latch = latch_named(other, "a");
	struct awaiter waits, content;

	OK(lk_latch_set(latch, 2, NULL));
	awaiter_start(&waits, latch_named(client, "a"), 10000);
	awaiter_start(&content,
	              latch_with(client, "a", &(lk_latch_options){.absent_is_open = true}), 10000);
	ck_assert(WITHIN(2000, is_heard()));
	OK(lk_latch_reset(latch, 3, NULL));
	nap_ms(50);
	ck_assert(!waits.ended && !content.ended);
	OK(lk_latch_remove(latch));
	ck_assert(WITHIN(500, content.ended));
	OK(awaiter_join(&content));
	nap_ms(50);
	ck_assert(!waits.ended);
	OK(lk_latch_set(latch, 1, NULL));
	latch_down(latch, 1, NULL);
	OK(lk_latch_set(latch, 5, NULL)); /* and counts again */
	ck_assert(WITHIN(500, waits.ended));
	OK(awaiter_join(&waits));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* A wait begins with a request. */
/* Start a wait and return when it waits, so that a close cannot come before it. */
static void await_inside(struct awaiter *awaiter, lk_latch *latch, int64_t wait_ms)
{
	awaiter_start(awaiter, latch, wait_ms);
	ck_assert(WITHIN(5000, proc_thread_sleeps(awaiter->thread_id)));
}

TEST_LATCH(cancel_and_close_end_waits_at_once, 20)
{
	lk_client *client = set_up();
	lk_latch *latch = latch_named(client, "a"), *other = latch_named(client, "a");
	struct awaiter one, two, three;

	OK(lk_latch_set(latch, 1, NULL));
	OK(lk_latch_cancel(latch));
	await_inside(&one, latch, 10000);
	await_inside(&two, other, 10000);
	ck_assert(WITHIN(2000, is_heard()));
	OK(lk_latch_cancel(latch));
	EXPECT(awaiter_join(&one), LK_ECANCELED);
	ck_assert(!two.ended);
	await_inside(&one, latch, 10000);
	OK(lk_latch_close(latch));
	EXPECT(awaiter_join(&one), LK_ECANCELED);
	ck_assert(!two.ended);
	await_inside(&three, latch_named(client, "b"), LK_FOREVER);
	OK(lk_client_close(client));
	EXPECT(awaiter_join(&two), LK_ECLOSED);
	EXPECT(awaiter_join(&three), LK_ECLOSED);
}

TEST_STORE(other_databases_and_prefixes_are_other_latches, 20, STORE_LATCHES | STORE_KEYS)
{
	const lk_client_options apart = {.prefix = "other"};
	lk_client *client = set_up(), *clients[2];
	lk_latch *latch = latch_named(client, "a");
	struct awaiter awaiters[2];
	int count = STORE_HAS(STORE_DATABASES) ? 2 : 1;
	char third[128];

	snprintf(third, sizeof(third), "%s&db=3", url);
	clients[0] = client_with(url, &apart);
	if (count == 2)
		clients[1] = client_at(third);
	for (int i = 0; i < count; i++)
		awaiter_start(&awaiters[i], latch_named(clients[i], "a"), 300);
	OK(lk_latch_set(latch, 0, NULL));
	for (int i = 0; i < count; i++)
		EXPECT(awaiter_join(&awaiters[i]), LK_ETIMEDOUT);
	for (int i = 0; i < count; i++)
		OK(lk_client_close(clients[i]));
	OK(lk_client_close(client));
}

#endif
