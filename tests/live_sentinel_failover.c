/* SPDX-License-Identifier: MIT
 * Failovers of a real service: one master, two replicas, three sentinels.  Planned, by a crash, and
 * of a master that is stopped and wakes up. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/sentinel_setup.h"
#include "harness/test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct sentinel_setup setup;
static char url[200];

static void start(void)
{
	sentinel_setup_start(&setup, NULL);
	snprintf(url, sizeof(url), "%s?grace=4000", setup.url);
}

/* The connections of this program's clients. */
static long long clients_at(const struct test_server *server)
{
	struct redis *redis = redis_open(server);
	const char *list = redis_text(redis, "CLIENT LIST TYPE normal");
	long long count = 0;

	for (const char *at = list; (at = strstr(at, "name=latchkey")); at++)
		count++;
	redis_close(redis);
	return count;
}

static int64_t reclaimed(lk_client *client)
{
	lk_counters counters;

	OK(lk_client_counters(client, &counters));
	return counters.reclaimed;
}

/* A lock that is held by one client, and waited for by another in a thread. */
struct contest {
	lk_client *holder, *waiter;
	lk_lock *held, *wanted;
	uint64_t fence, next_fence;
	lk_err err;
	pthread_t thread;
	bool done;
};

static void *wait_for_lock(void *arg)
{
	struct contest *contest = arg;

	contest->err = lk_lock_acquire(contest->wanted, 40000, &contest->next_fence);
	__atomic_store_n(&contest->done, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static void begin(struct contest *contest)
{
	const lk_client_options options = {.command_timeout_ms = 1000};
	const lk_lock_options shared = {.owner = LK_OWNER_HANDLE}; /* another thread releases it */

	memset(contest, 0, sizeof(*contest));
	contest->holder = client_with(url, &options);
	contest->waiter = client_with(url, &options);
	contest->held = lock_named(contest->holder, "a");
	contest->wanted = lock_with(contest->waiter, "a", &shared);
	OK(lk_lock_acquire(contest->held, 15000, &contest->fence));
	ck_assert(!pthread_create(&contest->thread, NULL, wait_for_lock, contest));
	nap_ms(300); /* it is in the queue, or soon is */
}

/* The hold has survived; its release lets the waiter in, with a larger fence. */
static void finish(struct contest *contest)
{
	ck_assert(WITHIN(SETUP_FAILOVER_MS, reclaimed(contest->holder) == 1));
	ck_assert(WITHIN(3000, lk_lock_state(contest->held) == LK_STATE_HELD));
	ck_assert(!__atomic_load_n(&contest->done, __ATOMIC_SEQ_CST));
	OK(lk_lock_release(contest->held));
	pthread_join(contest->thread, NULL);
	ck_assert_int_eq(contest->err, LK_OK);
	ck_assert_uint_gt(contest->next_fence, contest->fence);
	OK(lk_lock_release(contest->wanted));
	OK(lk_client_close(contest->holder));
	OK(lk_client_close(contest->waiter));
}

TEST_LIMIT(planned_failover_moves_holds_while_both_are_masters, 60)
{
	struct contest contest;

	start();
	begin(&contest);
	sentinel_setup_failover(&setup);
	ck_assert(WITHIN(SETUP_FAILOVER_MS, reclaimed(contest.holder) == 1));
	/* Nothing but the sentinels could tell. */
	ck_assert(sentinel_setup_is_master(&setup, 0));
	ck_assert(WITHIN(2000, clients_at(&setup.servers[0]) == 0));
	ck_assert_int_gt(sentinel_setup_await_switch(&setup, 0), 0);
	finish(&contest);
	sentinel_setup_stop(&setup);
}

TEST_LIMIT(crash_of_the_master_moves_holds, 60)
{
	struct contest contest;

	start();
	begin(&contest);
	server_kill(&setup.servers[0]);
	finish(&contest);
	ck_assert_int_gt(sentinel_setup_await_switch(&setup, 0), 0);
	sentinel_setup_stop(&setup);
}

TEST_LIMIT(stopped_master_that_wakes_up_is_left, 60)
{
	struct contest contest;

	start();
	begin(&contest);
	server_pause(&setup.servers[0]);
	ck_assert(WITHIN(SETUP_FAILOVER_MS, reclaimed(contest.holder) == 1));
	server_resume(&setup.servers[0]);
	nap_ms(500);
	ck_assert_int_eq(clients_at(&setup.servers[0]), 0);
	finish(&contest);
	sentinel_setup_stop(&setup);
}

TEST_LIMIT(client_opened_in_a_failover_waits_for_its_end, 60)
{
	const lk_client_options options = {.connect_timeout_ms = SETUP_FAILOVER_MS};

	start();
	server_kill(&setup.servers[0]);
	OK(lk_client_close(client_with(url, &options)));
	sentinel_setup_stop(&setup);
}
