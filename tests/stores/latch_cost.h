/* SPDX-License-Identifier: MIT
 * What a latch costs a store, and many processes on one latch. */
#ifndef STORES_LATCH_COST_H
#define STORES_LATCH_COST_H

#include "stores/latch.h"

#define TEST_COST(name, seconds) TEST_STORE(name, seconds, STORE_LATCHES | STORE_KEYS)

/* ---- Costs --------------------------------------------------------------------------------- */

/* Return the number of commands that clients sent, without the test's own queries. */
static long long commands(void)
{
	return redis_script_calls(redis) + redis_calls(redis, "subscribe") +
	       redis_calls(redis, "unsubscribe") + redis_calls(redis, "ping");
}

TEST_COST(await_of_an_open_latch_takes_one_request, 20)
{
	lk_client *client = set_up();
	lk_latch *latch = latch_named(client, "a");
	long long before;

	OK(lk_latch_set(latch, 0, NULL));
	before = commands();
	for (int i = 0; i < 100; i++)
		OK(lk_latch_await(latch, i & 1 ? 1000 : 0));
	ck_assert_int_eq(commands() - before, 100);
	OK(lk_client_close(client));
}

TEST_COST(thousand_waiters_of_a_process_are_released_by_one_message, 60)
{
	enum { WAITERS = TSAN || ASAN ? 200 : 1000 };
	static struct awaiter awaiters[WAITERS];
	lk_client *client = set_up(), *other = client_at(url);
	lk_latch *latch = latch_named(other, "a"), *awaited = latch_named(client, "a");
	long long published, subscribed;

	OK(lk_latch_set(latch, 1, NULL));
	subscribed = redis_calls(redis, "subscribe");
	for (int i = 0; i < WAITERS; i++)
		awaiter_start(&awaiters[i], awaited, 30000);
	ck_assert(WITHIN(5000, subscribers() == 1));
	ck_assert(WITHIN(20000, proc_thread_count(0) >= WAITERS));
	nap_ms(500);
	published = redis_calls(redis, "publish");
	latch_down(latch, 1, NULL);
	for (int i = 0; i < WAITERS; i++)
		OK(awaiter_join(&awaiters[i]));
	ck_assert_int_eq(redis_calls(redis, "publish") - published, 1);
	ck_assert_int_eq(redis_calls(redis, "subscribe") - subscribed, 1);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_COST(channel_is_left_late_and_a_loop_does_not_flap, 40)
{
	lk_client *client = set_up();
	lk_latch *latch = latch_named(client, "a");
	long long before = redis_calls(redis, "subscribe");

	OK(lk_latch_set(latch, 1, NULL));
	for (int i = 0; i < 30; i++) {
		lk_latch *again = latch_named(client, "a");
		EXPECT(lk_latch_await(again, 10), LK_ETIMEDOUT);
		OK(lk_latch_close(again));
	}
	ck_assert_int_eq(redis_calls(redis, "subscribe") - before, 1);
	ck_assert_int_eq(redis_calls(redis, "unsubscribe"), 0);
	ck_assert_int_eq(subscribers(), 1);
	OK(lk_latch_close(latch));
	ck_assert(WITHIN(LK__LINGER_MS + 1000, subscribers() == 0));
	latch = latch_named(client, "a");
	EXPECT(lk_latch_await(latch, 10), LK_ETIMEDOUT);
	ck_assert_int_eq(redis_calls(redis, "subscribe") - before, 2);
	OK(lk_client_close(client));
}

TEST_COST(client_with_latches_has_two_connections_and_one_thread, 20)
{
	lk_client *client = set_up();
	int threads = proc_thread_count(0), sockets = proc_socket_count(0);
	lk_latch *latches[100];
	char name[16];

	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "l%d", i);
		latches[i] = latch_named(client, name);
		OK(lk_latch_set(latches[i], 1, NULL));
		EXPECT(lk_latch_await(latches[i], 2), LK_ETIMEDOUT);
	}
	ck_assert_int_eq(proc_thread_count(0), threads);
	ck_assert_int_eq(proc_socket_count(0), sockets);
	OK(lk_client_close(client));
}

/* ---- Processes ------------------------------------------------------------------------------ */

static int step_in_process(void *arg, int in, int out)
{
	lk_client *client = client_at(url);
	lk_latch *latch = latch_named(client, "a");
	char name[16];
	int counted = 0;

	(void)arg;
	if (!line_read(in, 20000))
		return 2;
	for (int i = 0; i < STEPS; i++) {
		lk_latch_step step;
		snprintf(name, sizeof(name), "step %d", i);
		OK(lk_latch_down(latch, 1, name, 0, &step));
		counted += step.counted;
		latch_down(latch, 1, NULL);
	}
	OK(lk_latch_await(latch, 20000));
	line_write(out, "%d", counted);
	OK(lk_client_close(client));
	return 0;
}

TEST_STORE(sixteen_processes_count_each_step_once, 60, STORE_LATCHES | STORE_SHARED)
{
	enum { WORKERS = 16 };
	struct process workers[WORKERS];
	lk_latch *latch;
	int named = 0;

	url = STORE.start();
	for (int i = 0; i < WORKERS; i++)
		process_start(&workers[i], step_in_process, NULL);
	redis = STORE.look();
	latch = latch_named(client_at(url), "a");
	/* The shared step names count once for all, the others once for each process. */
	OK(lk_latch_set(latch, STEPS + WORKERS * STEPS, NULL));
	for (int i = 0; i < WORKERS; i++)
		line_write(workers[i].in, "go");
	for (int i = 0; i < WORKERS; i++) {
		const char *line = line_read(workers[i].out, 40000);
		ck_assert_ptr_nonnull(line);
		named += atoi(line);
		ck_assert(process_succeeded(&workers[i], 10000));
	}
	ck_assert_int_eq(named, STEPS);
	ck_assert_int_eq(latch_status(latch).state, LK_LATCH_OPEN);
}

static int await_in_process(void *arg, int in, int out)
{
	lk_client *client = client_at(url);
	lk_latch *latch = latch_named(client, "a");

	(void)arg;
	if (!line_read(in, 20000))
		return 2;
	OK(lk_latch_await(latch, 40000));
	line_write(out, "released");
	OK(lk_client_close(client));
	return 0;
}

TEST_STORE(hundred_processes_are_released_by_one_message, 90,
           STORE_LATCHES | STORE_KEYS | STORE_SHARED)
{
	enum { WORKERS = TSAN || ASAN ? 30 : 100 };
	static struct process workers[WORKERS];
	long long published, scripts;
	lk_latch *latch;

	url = STORE.start();
	for (int i = 0; i < WORKERS; i++)
		process_start(&workers[i], await_in_process, NULL);
	redis = STORE.look();
	latch = latch_named(client_at(url), "a");
	OK(lk_latch_set(latch, 1, NULL));
	for (int i = 0; i < WORKERS; i++)
		line_write(workers[i].in, "go");
	ck_assert(WITHIN(30000, subscribers() == WORKERS));
	nap_ms(300);
	published = redis_calls(redis, "publish");
	scripts = redis_script_calls(redis);
	latch_down(latch, 1, NULL);
	for (int i = 0; i < WORKERS; i++) {
		const char *line = line_read(workers[i].out, 5000);
		ck_assert_msg(line && !strcmp(line, "released"), "%d", i);
	}
	ck_assert_int_eq(redis_calls(redis, "publish") - published, 1);
	ck_assert_int_le(redis_script_calls(redis) - scripts, 2); /* the step, and its query */
	for (int i = 0; i < WORKERS; i++)
		ck_assert(process_succeeded(&workers[i], 10000));
}

#endif
