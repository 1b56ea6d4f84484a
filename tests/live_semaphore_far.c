/* SPDX-License-Identifier: MIT
 * A rate whose window is as long as the round trip of some of its clients.  These get their turns
 * beside near clients, and no wait ends as ambiguous on a network that is merely slow. */
#include "harness/handles.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/proxy.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include "scripts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define NEAR 3
#define FAR 2
#define LIMIT 4
#define WINDOW_MS 100
#define WAY_MS 50
#define RUN_MS 5000

static struct test_server server;
static atomic_bool stop;

struct taker {
	lk_client *client;
	lk_semaphore *semaphore;
	pthread_t thread;
	int granted, timeouts;
};

static void *take(void *arg)
{
	struct taker *taker = arg;

	while (!stop) {
		lk_err err = lk_semaphore_acquire(taker->semaphore, 1, 3000, NULL);
		ck_assert_msg(err == LK_OK || err == LK_ETIMEDOUT, "%s: %s", lk_err_name(err),
		              lk_errmsg());
		taker->granted += err == LK_OK;
		taker->timeouts += err == LK_ETIMEDOUT;
	}
	return NULL;
}

static void open_taker(struct taker *taker, const char *url)
{
	const lk_semaphore_options options = {
		.capacity = LIMIT, .lease_ms = WINDOW_MS, .fixed = true};

	memset(taker, 0, sizeof(*taker));
	taker->client = client_at(url);
	taker->semaphore = semaphore_with(taker->client, "a", &options);
}

/* Claims and renewals that the store has run, up to the mark. */
static int count_claims(struct monitor *monitor)
{
	const char *line;
	int claims = 0;

	while ((line = monitor_next(monitor, 5000)) && !strstr(line, "the-end"))
		claims += strstr(line, lk__script_semaphore_renew.sha1) != NULL;
	ck_assert_ptr_nonnull(line);
	return claims;
}

TEST_LIMIT(rate_whose_window_is_the_round_trip_is_granted_to_far_clients, 60)
{
	const struct proxy_fault slow = {.delay_ms = WAY_MS};
	struct taker takers[NEAR + FAR];
	struct monitor *monitor;
	struct redis *redis;
	struct proxy proxy;
	int sum = 0, claims;
	int64_t took_ms;

	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	redis = redis_open(&server);
	for (int i = 0; i < NEAR + FAR; i++)
		open_taker(&takers[i], i < NEAR ? server.url : proxy.url);
	proxy_set_all(&proxy, &slow);
	monitor = monitor_open(&server);
	took_ms = now_ms();
	for (int i = 0; i < NEAR + FAR; i++)
		ck_assert_int_eq(pthread_create(&takers[i].thread, NULL, take, &takers[i]), 0);
	nap_ms(RUN_MS);
	stop = true;
	for (int i = 0; i < NEAR + FAR; i++)
		pthread_join(takers[i].thread, NULL);
	took_ms = now_ms() - took_ms;
	redis_do(redis, "ECHO the-end");
	claims = count_claims(monitor);
	for (int i = 0; i < NEAR + FAR; i++) {
		printf("%s: %d grants, %d timeouts\n", i < NEAR ? "near" : "far", takers[i].granted,
		       takers[i].timeouts);
		sum += takers[i].granted;
	}
	ck_assert_int_gt(proxy_count(&proxy).late[PROXY_COMMANDS][PROXY_TO_CLIENT], 0);
	ck_assert_int_le(sum, LIMIT * (took_ms / WINDOW_MS + 1));
	/* At best one in a round trip plus a window; a quarter of that on a busy machine. */
	for (int i = NEAR; i < NEAR + FAR; i++)
		ck_assert_int_ge(takers[i].granted, RUN_MS / (2 * WAY_MS + WINDOW_MS) / 4);
	ck_assert_int_ge(sum, RUN_MS / WINDOW_MS * LIMIT / 3);
	ck_assert_int_eq(claims, 0);
	/* The queue is empty in the end. */
	ck_assert(WITHIN(2000, permits_queue(redis, "a") == 0));
	for (int i = 0; i < NEAR + FAR; i++)
		OK(lk_client_close(takers[i].client));
	monitor_close(monitor);
	proxy_stop(&proxy);
}
