/* SPDX-License-Identifier: MIT
 * Latches and rate limits over a failover (F12 of the fault list).  The grace does not cover them:
 * what a replica had received goes on, what it had not is forgotten. */
#include "harness/grace.h"
#include "harness/latch_watch.h"
#include "harness/sentinel_setup.h"

#include <stdio.h>
#include <string.h>

#define GRANTS 5
#define WINDOW_MS 60000 /* no grant comes back meanwhile */
#define FAILOVER_GRACE_MS 2000
#define WAIT_MS 20000

static struct sentinel_setup setup;
static lk_client *client;
static lk_semaphore *rate;

static void set_up(void)
{
	const lk_semaphore_options options = {
		.capacity = GRANTS, .lease_ms = WINDOW_MS, .fixed = true};
	char url[200];

	sentinel_setup_start(&setup, NULL);
	redis = redis_open(&setup.servers[0]);
	grace_pass();
	snprintf(url, sizeof(url), "%s?grace=%d", setup.url, FAILOVER_GRACE_MS);
	client = client_at(url);
	rate = semaphore_with(client, "rate", &options);
}

static void tear_down(void)
{
	OK(lk_client_close(client));
	sentinel_setup_stop(&setup);
}

static void use_up_rate(int64_t wait_ms)
{
	OK(lk_semaphore_acquire(rate, GRANTS, wait_ms, NULL));
	EXPECT(lk_semaphore_acquire(rate, 1, 0, NULL), LK_EBUSY);
}

/* Wait until the new master grants: its grace has passed. */
static void await_grants(void)
{
	lk_lock *lock = lock_named(client, "free");

	OK(lk_lock_acquire(lock, WAIT_MS, NULL));
	OK(lk_lock_release(lock));
}

/* A step while there is no master: its error says whether it may have counted, and a named one can
 * be repeated in any case. */
static void step_until_counted(lk_latch *latch, const char *name)
{
	int failures = 0;
	int64_t end_ms = now_ms() + WAIT_MS;
	lk_err err;

	while ((err = lk_latch_down(latch, 1, name, 0, NULL)) && now_ms() < end_ms) {
		ck_assert_msg(err == LK_ECONN || err == LK_EUNKNOWN, "%s: %s", lk_err_name(err),
		              lk_errmsg());
		failures++;
	}
	OK(err);
	ck_assert_int_gt(failures, 0);
}

TEST_LIMIT(f12_counts_that_a_replica_has_go_on, 60)
{
	struct awaiter awaiter;
	lk_latch *latch;
	lk_latch_step step;

	set_up();
	latch = latch_named(client, "gate");
	OK(lk_latch_set(latch, 3, NULL));
	ck_assert_int_eq(latch_down(latch, 1, "one"), 2);
	awaiter_start(&awaiter, latch_named(client, "gate"), WAIT_MS);
	use_up_rate(0);
	sentinel_setup_await_sync(&setup, 0);
	server_kill(&setup.servers[0]);
	step_until_counted(latch, "two");
	ck_assert_int_gt(sentinel_setup_await_switch(&setup, 0), 0);
	OK(lk_latch_down(latch, 1, "one", 0, &step));
	ck_assert(!step.counted);
	ck_assert_int_eq(step.remaining, 1);
	ck_assert(!awaiter.ended);
	ck_assert_int_eq(latch_down(latch, 1, "three"), 0);
	ck_assert_int_eq(awaiter_join(&awaiter), LK_OK);
	await_grants();
	EXPECT(lk_semaphore_acquire(rate, 1, 0, NULL), LK_EBUSY);
	tear_down();
}

TEST_LIMIT(f12_counts_that_no_replica_has_are_forgotten, 60)
{
	struct awaiter awaiter;
	lk_latch *older, *newer;

	set_up();
	older = latch_named(client, "older");
	newer = latch_named(client, "newer");
	OK(lk_latch_set(older, 3, NULL));
	ck_assert_int_eq(latch_down(older, 1, "one"), 2);
	sentinel_setup_await_sync(&setup, 0);
	sentinel_setup_cut_replicas(&setup, 0);
	ck_assert_int_eq(latch_down(older, 1, "two"), 1);
	OK(lk_latch_set(newer, 1, NULL));
	awaiter_start(&awaiter, latch_named(client, "newer"), WAIT_MS);
	use_up_rate(0);
	server_kill(&setup.servers[0]);
	for (int i = 1; i < SETUP_SERVERS; i++)
		server_resume(&setup.servers[i]);
	ck_assert_int_gt(sentinel_setup_await_switch(&setup, 0), 0);
	/* The older latch lacks the last step, which counts again; the newer one is absent. */
	ck_assert(WITHIN(WAIT_MS, lk_latch_down(older, 1, "two", 0, NULL) == LK_OK));
	ck_assert_int_eq(latch_status(older).count, 1);
	EXPECT(lk_latch_down(newer, 1, NULL, 0, NULL), LK_EABSENT);
	ck_assert(!awaiter.ended);
	OK(lk_latch_set(newer, 1, NULL));
	ck_assert_int_eq(latch_down(newer, 1, NULL), 0);
	ck_assert_int_eq(awaiter_join(&awaiter), LK_OK);
	/* The whole limit once more, though the window has not ended. */
	await_grants();
	use_up_rate(0);
	tear_down();
}
