/* SPDX-License-Identifier: MIT
 * A server that does not answer (S7, S8 of the fault list): it is slow, or runs another program's
 * script.  The library does not stop that script; waits continue, other calls fail in time. */
#include "harness/latch_watch.h"
#include "harness/primitive.h"

#include <pthread.h>
#include <string.h>

#define LEASE_MS 800
#define TIMEOUT_MS 350

static struct redis *foreign;
static lk_client *client;
static struct claims held, others;
static lk_latch *latch;
static long long remaining; /* of the latch */

static void set_up(unsigned set)
{
	const lk_client_options options = {.command_timeout_ms = TIMEOUT_MS};

	fault_set_up(NULL);
	foreign = redis_open(&server);
	redis_do(redis, "CONFIG SET lua-time-limit 20");
	client = client_with(server.url, &options);
	latch = latch_named(client, "l");
	remaining = 100;
	OK(lk_latch_set(latch, remaining, NULL));
	claims_open(&others, set, client, 0);
	claims_hold(&held, set, client, LEASE_MS);
}

/* It answers again: the leased holds are lost, nothing else is. */
static void tear_down(unsigned set)
{
	claims_release_lost(&held);
	held.set = set & LEASED;
	claims_hold_again(&held);
	held.set = set & ~LEASED;
	claims_expect_held(&held);
	claims_release(&held);
	ck_assert(WITHIN(1000, claims_at_rest(set)));
	OK(lk_client_close(client));
}

/* Calls without an answer, or answered by "busy" only, end in time. */
static void call_in_vain(void)
{
	int64_t start_ms = now_ms();
	lk_err err;

	claims_start(&others, 150, true);
	EACH (claim, &others) {
		err = claim_join(claim);
		ck_assert_msg(err == LK_ETIMEDOUT || err == LK_EUNKNOWN || err == LK_ECONN ||
		                      (err == LK_EAGAIN && !claim->primitive->is_leased),
		              "%s: %s", claim->name, lk_err_name(err));
		ck_assert_uint_eq(claim->fence, 0);
		ck_assert_int_le(claim->took_ms, 150 + TIMEOUT_MS + 100);
	}
	err = lk_latch_down(latch, 1, NULL, 0, NULL);
	ck_assert_msg(err == LK_EUNKNOWN || err == LK_ECONN || err == LK_EAGAIN, "%s: %s",
	              lk_err_name(err), lk_errmsg());
	remaining -= err == LK_EUNKNOWN; /* now, or in the background */
	ck_assert_int_le(now_ms() - start_ms, 150 + 2 * TIMEOUT_MS + 200);
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

TEST_OF(s7_slow_server_loses_nothing_within_the_lease_and_tells_later, EVERY, 20)
{
	static char naps[2][8] = {"0.5", "2.3"};
	pthread_t thread;

	set_up(set);
	for (int i = 0; i < 2; i++) {
		pthread_create(&thread, NULL, sleep_server, naps[i]);
		nap_ms(30); /* it sleeps from now on */
		if (i) {
			claims_expect_expiry(&held);
			call_in_vain();
		}
		pthread_join(thread, NULL);
		if (!i) {
			claims_stay_held(&held, LEASE_MS);
		}
	}
	expect_counted();
	tear_down(set);
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

TEST_OF(s8_foreign_script_that_blocks_the_server_is_sat_out, EVERY, 20)
{
	lk_client *none = NULL;
	pthread_t script;

	set_up(set);
	for (int i = 0; i < 2; i++) {
		pthread_create(&script, NULL, run_endless_script, NULL);
		ck_assert(WITHIN(2000, is_busy()));
		/* It answers, but is not ready: a transient error. */
		EXPECT(lk_client_open(server.url, NULL, &none), LK_ECONN);
		if (i) {
			claims_expect_expiry(&held);
			call_in_vain();
		} else {
			claims_stay_held(&held, 450); /* a renewal is due, and refused */
		}
		ck_assert(is_busy()); /* no client kills it but this test */
		redis_do(redis, "SCRIPT KILL");
		pthread_join(script, NULL);
		ck_assert_int_eq(redis_calls(redis, "script|kill"), i + 1);
		if (!i) {
			claims_stay_held(&held, LEASE_MS);
		}
	}
	expect_counted();
	tear_down(set);
}
