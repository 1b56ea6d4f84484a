/* SPDX-License-Identifier: MIT
 * A server that does not answer (S7, S8 of the fault list): it is slow, or runs another program's
 * script.  The library does not stop that script; waits continue, other calls fail in time. */
#include "harness/handles.h"
#include "harness/latch_watch.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"
#include "harness/watch.h"

#include <pthread.h>
#include <string.h>

#define LEASE_MS 800
#define TIMEOUT_MS 350
#define BACK_MS 5000

static struct test_server server;
static struct redis *redis, *foreign;
static lk_client *client;
static lk_lock *lock, *other;
static lk_semaphore *semaphore;
static lk_latch *latch;
static uint64_t fence, hold;
static long long remaining; /* of the latch */

static void set_up(void)
{
	const lk_client_options options = {.command_timeout_ms = TIMEOUT_MS};

	server_start(&server, NULL);
	redis = redis_open(&server);
	foreign = redis_open(&server);
	redis_do(redis, "CONFIG SET lua-time-limit 20");
	client = client_with(server.url, &options);
	latch = latch_named(client, "l");
	remaining = 100;
	OK(lk_latch_set(latch, remaining, NULL));
	other = lock_named(client, "b");
	semaphore = semaphore_watched(client, "s",
	                              (lk_semaphore_options){.capacity = 3, .lease_ms = LEASE_MS});
	hold = permits_of(semaphore, 2, 0);
	lock = hold_watched(client, "a", LEASE_MS);
	fence = hold_of(lock).fence;
}

static void tear_down(void)
{
	ck_assert(WITHIN(BACK_MS, lk_lock_acquire(lock, 1000, NULL) == LK_OK));
	ck_assert_uint_gt(hold_of(lock).fence, fence);
	OK(lk_lock_release(lock));
	hold = permits_of(semaphore, 3, 1000);
	OK(lk_semaphore_release(semaphore, hold));
	ck_assert(permits_at_rest(redis, "s", 3));
	ck_assert(WITHIN(1000, redis_int(redis, "EXISTS lk:{a} lk:{b} lk:{b}:q") == 0));
	OK(lk_client_close(client));
}

/* Calls without an answer, or answered by "busy" only, end in time. */
static void call_in_vain(void)
{
	int64_t start_ms = now_ms();
	uint64_t none = 77;
	lk_err err = lk_lock_acquire(other, 150, NULL);

	ck_assert_msg(err == LK_ETIMEDOUT || err == LK_EUNKNOWN || err == LK_ECONN, "%s: %s",
	              lk_err_name(err), lk_errmsg());
	ck_assert_int_le(now_ms() - start_ms, 150 + TIMEOUT_MS + 100);
	start_ms = now_ms();
	err = lk_semaphore_acquire(semaphore, 1, 0, &none);
	ck_assert_msg(err == LK_EUNKNOWN || err == LK_ECONN || err == LK_EAGAIN, "%s: %s",
	              lk_err_name(err), lk_errmsg());
	ck_assert_uint_eq(none, 77);
	err = lk_latch_down(latch, 1, NULL, 0, NULL);
	ck_assert_msg(err == LK_EUNKNOWN || err == LK_ECONN || err == LK_EAGAIN, "%s: %s",
	              lk_err_name(err), lk_errmsg());
	remaining -= err == LK_EUNKNOWN; /* now, or in the background */
	ck_assert_int_le(now_ms() - start_ms, 2 * TIMEOUT_MS + 200);
}

/* Both holds end on time, neither later nor earlier. */
static void expect_losses(void)
{
	int64_t until_ms = now_ms() + hold_of(lock).remaining_ms;

	ck_assert_int_eq(losses.count + permit_losses.count, 0);
	while (lk_lock_is_mine(lock)) {
		until_ms = now_ms() + hold_of(lock).remaining_ms;
		nap_ms(1);
	}
	ck_assert(WITHIN(400, losses.count == 1 && permit_losses.count == 1));
	ck_assert_int_eq(losses.reason, LK_LOST_EXPIRED);
	ck_assert_int_ge(losses.at_ms, until_ms - 5);
	ck_assert_int_le(losses.at_ms, until_ms + 50);
	ck_assert_int_eq(permit_losses.reason, LK_LOST_EXPIRED);
}

/* Requests without an answer are executed in the background: each counts once. */
static void expect_counted(void)
{
	lk_latch_status status;

	ck_assert(WITHIN(BACK_MS,
	                 lk_latch_query(latch, &status) == LK_OK && status.count == remaining));
	nap_ms(200); /* a repeated request would count twice now */
	ck_assert_int_eq(latch_status(latch).count, remaining);
}

static void *sleep_server(void *arg)
{
	redis_do(foreign, "DEBUG SLEEP %s", (const char *)arg);
	return NULL;
}

TEST(s7_slow_server_loses_nothing_within_the_lease_and_tells_later)
{
	static char naps[2][8] = {"0.5", "2.3"};
	pthread_t thread;

	set_up();
	for (int i = 0; i < 2; i++) {
		pthread_create(&thread, NULL, sleep_server, naps[i]);
		nap_ms(30); /* it sleeps from now on */
		if (i) {
			expect_losses();
			call_in_vain();
		}
		pthread_join(thread, NULL);
		if (!i) {
			stays_held(lock, LEASE_MS);
			permits_stay_held(semaphore, hold, 10);
		}
	}
	expect_counted();
	EXPECT(lk_lock_release(lock), LK_ELOST);
	EXPECT(lk_semaphore_release(semaphore, hold), LK_ELOST);
	tear_down();
}

/* Run until it is killed. */
static void *run_endless_script(void *arg)
{
	(void)arg;
	(void)redis_text(foreign, "EVAL %s 0", "while true do end");
	return NULL;
}

static bool is_busy(void)
{
	return !strncmp(redis_text(redis, "PING"), "-BUSY", 5);
}

TEST(s8_foreign_script_that_blocks_the_server_is_sat_out)
{
	lk_client *none = NULL;
	pthread_t script;

	set_up();
	for (int i = 0; i < 2; i++) {
		pthread_create(&script, NULL, run_endless_script, NULL);
		ck_assert(WITHIN(2000, is_busy()));
		/* It answers, but is not ready: a transient error. */
		EXPECT(lk_client_open(server.url, NULL, &none), LK_ECONN);
		if (i) {
			expect_losses();
			call_in_vain();
		} else {
			stays_held(lock, 450); /* a renewal is due, and refused */
		}
		ck_assert(is_busy()); /* no client kills it but this test */
		redis_do(redis, "SCRIPT KILL");
		pthread_join(script, NULL);
		ck_assert_int_eq(redis_calls(redis, "script|kill"), i + 1);
		if (!i) {
			stays_held(lock, LEASE_MS);
			permits_stay_held(semaphore, hold, 10);
		}
	}
	expect_counted();
	EXPECT(lk_lock_release(lock), LK_ELOST);
	EXPECT(lk_semaphore_release(semaphore, hold), LK_ELOST);
	tear_down();
}
