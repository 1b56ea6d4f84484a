/* SPDX-License-Identifier: MIT
 * Permits with a fixed lease, which their holders do not release, make a rate: no window of the
 * lease's length contains more grants than the capacity.  A witness reads the time of each grant
 * from the store, where it is the fence. */
#include "harness/handles.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define WORKERS 16
#define LIMIT 10
#define WINDOW_MS 500
#define RUN_MS 5000
#define GRANTS_MAX 2000
/* Grants in the same microsecond have consecutive fences. */
#define FENCE_SLACK_US 100

static struct test_server server;
static struct redis *redis;

struct rate {
	atomic_int grants, weight, failures, timeouts, ended;
	atomic_bool end;
	int64_t permits_max;
	atomic_int after_count;
	int64_t after_us[GRANTS_MAX]; /* by the store's clock, after the call returned */
};

static struct rate *rate_of(int64_t permits_max)
{
	struct rate *rate = mmap(NULL, sizeof(*rate), PROT_READ | PROT_WRITE,
	                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(rate, MAP_FAILED);
	rate->permits_max = permits_max;
	return rate;
}

static lk_semaphore *rate_limiter(lk_client *client)
{
	const lk_semaphore_options options = {
		.capacity = LIMIT, .lease_ms = WINDOW_MS, .fixed = true};

	return semaphore_with(client, "a", &options);
}

static int64_t store_us(struct redis *mine)
{
	long long seconds = 0, us = 0;

	ck_assert_int_eq(sscanf(redis_text(mine, "TIME"), "%lld %lld", &seconds, &us), 2);
	return seconds * 1000000 + us;
}

static int work(void *arg, int in, int out)
{
	struct rate *rate = arg;
	lk_semaphore *semaphore;
	struct redis *mine;
	lk_client *client;
	unsigned short seed[3] = {(unsigned short)test_seed(), 3, 0};

	if (!line_read(in, 20000))
		return 2;
	seed[2] = (unsigned short)now_us();
	mine = redis_open(&server);
	client = client_at(server.url);
	semaphore = rate_limiter(client);
	line_write(out, "open");
	if (!line_read(in, 20000))
		return 3;
	while (!rate->end) {
		int64_t permits = 1 + nrand48(seed) % rate->permits_max;
		lk_err err = lk_semaphore_acquire(semaphore, permits, 15000, NULL);
		int i;
		if (err == LK_ETIMEDOUT) {
			rate->timeouts++;
			continue;
		}
		rate->failures += err != LK_OK;
		rate->grants++;
		rate->weight += (int)permits;
		i = rate->after_count++;
		if (i < GRANTS_MAX)
			rate->after_us[i] = store_us(mine);
	}
	rate->ended++;
	redis_close(mine);
	return lk_client_close(client) != LK_OK;
}

/* ---- The witness -------------------------------------------------------------------------- */

struct grant {
	char ticket[100];
	int64_t us, permits;
};

static struct grant grants[GRANTS_MAX];
static int grant_count;

/* Record all present holds.  Each lasts for a whole window, so none is missed. */
static void look(void)
{
	char *text = strdup(redis_text(redis, "HGETALL lk:{a}")), *at = text, *ticket, *value;

	while ((ticket = strsep(&at, "\n")) && (value = strsep(&at, "\n"))) {
		struct grant *grant = &grants[grant_count];
		long long permits, us;
		int known = 0;
		if (strncmp(ticket, "2:", 2) != 0)
			continue;
		while (known < grant_count && strcmp(grants[known].ticket, ticket) != 0)
			known++;
		if (known < grant_count)
			continue;
		ck_assert_int_lt(grant_count, GRANTS_MAX - 1);
		ck_assert_int_eq(sscanf(value, "%lld %lld", &permits, &us), 2);
		snprintf(grant->ticket, sizeof(grant->ticket), "%s", ticket);
		grant->permits = permits;
		grant->us = us;
		grant_count++;
	}
	free(text);
}

static int by_time(const void *a, const void *b)
{
	const struct grant *one = a, *other = b;

	return (one->us > other->us) - (one->us < other->us);
}

/* A window that begins at any grant contains no more than the limit. */
static void check_windows(void)
{
	qsort(grants, (size_t)grant_count, sizeof(grants[0]), by_time);
	for (int i = 0; i < grant_count; i++) {
		int64_t sum = 0;
		for (int j = i; j < grant_count &&
		                grants[j].us - grants[i].us < WINDOW_MS * 1000 - FENCE_SLACK_US;
		     j++)
			sum += grants[j].permits;
		ck_assert_msg(sum <= LIMIT, "%lld permits in the window from grant %d on",
		              (long long)sum, i);
	}
}

static int number_order(const void *a, const void *b)
{
	int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;

	return (one > other) - (one < other);
}

/* Return the most returns of calls in any window; for information. */
static int most_after(struct rate *rate)
{
	int count = rate->after_count, most = 0;

	qsort(rate->after_us, (size_t)count, sizeof(int64_t), number_order);
	for (int i = 0; i < count; i++) {
		int j = i;
		while (j < count && rate->after_us[j] - rate->after_us[i] < WINDOW_MS * 1000)
			j++;
		most = j - i > most ? j - i : most;
	}
	return most;
}

/* Run sixteen processes that acquire as often as they can; return the number of scripts. */
static long long run_rate(struct rate *rate)
{
	struct process workers[WORKERS];
	long long scripts, introductions;
	int64_t end_ms;

	server_start(&server, NULL);
	for (int i = 0; i < WORKERS; i++)
		process_start(&workers[i], work, rate);
	redis = redis_open(&server);
	for (int i = 0; i < WORKERS; i++) {
		line_write(workers[i].in, "open");
		ck_assert_ptr_nonnull(line_read(workers[i].out, 10000));
	}
	scripts = redis_script_calls(redis);
	introductions = redis_calls(redis, "hsetnx");
	for (int i = 0; i < WORKERS; i++)
		line_write(workers[i].in, "go");
	end_ms = now_ms() + RUN_MS;
	while (now_ms() < end_ms) {
		look();
		nap_ms(20);
	}
	scripts = redis_script_calls(redis) - scripts;
	scripts -= redis_calls(redis, "hsetnx") - introductions;
	rate->end = true;
	/* The last ones are granted while other processes still wait. */
	for (end_ms += 20000; rate->ended < WORKERS && now_ms() < end_ms; nap_ms(20))
		look();
	for (int i = 0; i < WORKERS; i++)
		ck_assert(process_succeeded(&workers[i], 20000));
	look();
	return scripts;
}

/* Each recorded grant reached a waiter, and none was missed.  A wait that ended at its grant
 * released it, possibly after it was recorded. */
static void check_grants(const struct rate *rate)
{
	ck_assert_int_ge(grant_count, rate->grants);
	ck_assert_int_le(grant_count, rate->grants + rate->timeouts);
}

TEST_LIMIT(rate_is_kept_in_every_window_and_used_up, 60)
{
	struct rate *rate = rate_of(1);
	long long scripts = run_rate(rate);
	int granted = rate->grants;

	printf("rate: %d grants in %d ms, %.2f scripts an acquisition, at most %d calls returned "
	       "in a window\n",
	       granted, RUN_MS, (double)scripts / granted, most_after(rate));
	ck_assert_int_eq(rate->failures, 0);
	check_grants(rate);
	check_windows();
	/* No waiter waits longer than the window: nine tenths of the allowed rate are used. */
	ck_assert_int_ge(granted, RUN_MS / WINDOW_MS * LIMIT * 9 / 10);
	ck_assert_msg((double)scripts / granted <= 2.5, "%lld scripts for %d grants", scripts,
	              granted);
	ck_assert(WITHIN(1000, permits_queue(redis, "a") == 0));
}

TEST_LIMIT(rate_of_several_permits_at_once_is_kept, 60)
{
	struct rate *rate = rate_of(4);
	long long scripts = run_rate(rate);

	printf("rate: %d permits in %d grants in %d ms, %.2f scripts an acquisition\n",
	       rate->weight, rate->grants, RUN_MS, (double)scripts / rate->grants);
	ck_assert_int_eq(rate->failures, 0);
	check_grants(rate);
	check_windows();
	ck_assert_int_ge(rate->weight, RUN_MS / WINDOW_MS * LIMIT * 6 / 10);
}
