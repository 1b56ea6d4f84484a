/* SPDX-License-Identifier: MIT
 * Replicas that must confirm each grant (W1 to W4 of the fault list), of a real master: some are
 * stopped, or there are none, or one of them takes the master's place. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/replicated.h"
#include "harness/sentinel_setup.h"
#include "harness/test.h"
#include "harness/watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define REPLICAS 2
#define TIMEOUT_MS 2000 /* the server waits for half of it */
#define MANY 20
#define SLACK_MS (TSAN || ASAN ? 1000 : 100)

static struct replicated servers;

static lk_client *client_timed(int64_t needed, int64_t command_timeout_ms)
{
	const lk_client_options options = {.command_timeout_ms = command_timeout_ms,
	                                   .replicas = needed};

	return client_with(servers.master.url, &options);
}

static lk_client *client_of(int64_t needed)
{
	return client_timed(needed, TIMEOUT_MS);
}

static bool is_free(const char *name)
{
	return !redis_int(servers.redis, "EXISTS lk:{%s}", name);
}

/* ---- W1 ----------------------------------------------------------------------------------- */

TEST_LIMIT(w1_grant_that_too_few_replicas_have_is_left, 60)
{
	lk_semaphore *semaphore;
	lk_client *client;
	uint64_t hold;
	int64_t began_ms;
	lk_lock *lock;

	replicated_start(&servers, REPLICAS);
	client = client_of(REPLICAS);
	lock = lock_named(client, "a");
	semaphore = semaphore_of(client, "s", 2, 0);
	OK(lk_lock_acquire(lock, LK_FOREVER, NULL));
	OK(lk_lock_release(lock));
	replicated_pause(&servers, 1);
	began_ms = now_ms();
	EXPECT(lk_lock_acquire(lock, LK_FOREVER, NULL), LK_EREPLICAS);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "1 of 2 replicas confirmed in 1000 ms"));
	ck_assert_int_ge(now_ms() - began_ms, TIMEOUT_MS / 2);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_NONE);
	ck_assert(WITHIN(5000, is_free("a")));
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EREPLICAS);
	EXPECT(lk_semaphore_acquire(semaphore, 1, 10000, &hold), LK_EREPLICAS);
	replicated_resume(&servers, 1);
	ck_assert(WITHIN(10000, lk_lock_acquire(lock, 0, NULL) == LK_OK));
	OK(lk_lock_release(lock));
	OK(lk_semaphore_acquire(semaphore, 2, 10000, &hold)); /* none was left behind */
	OK(lk_client_close(client));
	replicated_stop(&servers);
}

TEST_LIMIT(w1_server_without_replicas_grants_nothing_that_counts, 60)
{
	const lk_client_options options = {.command_timeout_ms = TIMEOUT_MS};
	char url[200];
	lk_client *client;

	replicated_start(&servers, 0);
	snprintf(url, sizeof(url), "%s&replicas=1", servers.master.url);
	client = client_with(url, &options);
	EXPECT(lk_lock_acquire(lock_named(client, "a"), 10000, NULL), LK_EREPLICAS);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "granted, but 0 of 1 replicas confirmed"));
	OK(lk_client_close(client));
	replicated_stop(&servers);
}

/* ---- W2 ----------------------------------------------------------------------------------- */

/* The client that releases asks for no replicas: the grant is its write, on its connection. */
TEST_LIMIT(w2_grant_by_message_is_claimed_first, 60)
{
	lk_client *client, *other;
	struct waiter waiter;
	lk_lock *lock;

	replicated_start(&servers, REPLICAS);
	other = client_of(0);
	client = client_of(REPLICAS);
	lock = lock_named(other, "a");
	for (int i = 0; i < 2; i++) {
		OK(lk_lock_acquire(lock, 10000, NULL));
		waiter_start(&waiter, lock_of_handle(client, "a", 10000), 20000, false);
		ck_assert(WITHIN(5000, redis_int(servers.redis, "ZCARD lk:{a}:q") == 1));
		replicated_sync(&servers);
		if (i)
			replicated_pause(&servers, REPLICAS);
		OK(lk_lock_release(lock));
		EXPECT(waiter_join(&waiter), i ? LK_EREPLICAS : LK_OK);
	}
	ck_assert(WITHIN(5000, is_free("a")));
	replicated_resume(&servers, REPLICAS);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	replicated_stop(&servers);
}

/* ---- W3 ----------------------------------------------------------------------------------- */

TEST_LIMIT(w3_renewals_without_replicas_do_not_extend, 60)
{
	lk_client *client;
	int64_t until_ms;
	lk_lock *lock;
	lk_hold hold;

	replicated_start(&servers, REPLICAS);
	client = client_timed(1, TIMEOUT_MS / 2);
	lock = hold_watched(client, "a", 5000);
	stays_held(lock, 2500);
	replicated_pause(&servers, REPLICAS);
	ck_assert(WITHIN(5000, lk_lock_state(lock) == LK_STATE_UNSURE));
	hold = hold_of(lock);
	until_ms = now_ms() + hold.remaining_ms;
	EXPECT(lk_lock_extend(lock, 60000), LK_EREPLICAS);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "extended, but 0 of 1 replicas"));
	ck_assert(WITHIN(8000, losses.count == 1));
	ck_assert_int_eq(losses.reason, LK_LOST_EXPIRED);
	ck_assert_int_le(losses.at_ms, until_ms + 500);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	replicated_resume(&servers, REPLICAS);
	OK(lk_client_close(client));
	replicated_stop(&servers);
}

TEST_LIMIT(w3_hold_is_sure_again_when_a_replica_follows, 60)
{
	lk_client *client;
	lk_lock *lock;

	replicated_start(&servers, REPLICAS);
	client = client_of(1);
	lock = hold_watched(client, "a", 10000);
	replicated_pause(&servers, REPLICAS);
	ck_assert(WITHIN(8000, lk_lock_state(lock) == LK_STATE_UNSURE));
	replicated_resume(&servers, 1);
	ck_assert(WITHIN(8000, lk_lock_state(lock) == LK_STATE_HELD));
	stays_held(lock, 500);
	replicated_resume(&servers, REPLICAS);
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	replicated_stop(&servers);
}

/* The requests of many holds share a WAIT: none of them is overdue, and the link stays. */
TEST_LIMIT(w3_many_holds_share_a_link_while_replicas_are_stopped, 60)
{
	lk_lock *locks[MANY];
	lk_counters counters;
	lk_client *client;
	char name[16];

	replicated_start(&servers, REPLICAS);
	client = client_of(1);
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "l%d", i);
		locks[i] = lock_leased(client, name, 3000 + 200 * i);
		OK(lk_lock_acquire(locks[i], 10000, NULL));
	}
	replicated_pause(&servers, REPLICAS);
	for (int i = 0; i < MANY; i++)
		ck_assert(WITHIN(10000, lk_lock_state(locks[i]) == LK_STATE_LOST));
	OK(lk_client_counters(client, &counters));
	ck_assert_int_eq(counters.connected, 1);
	replicated_resume(&servers, REPLICAS);
	OK(lk_client_close(client));
	replicated_stop(&servers);
}

static struct hammer {
	lk_client *client;
	atomic_bool stop;
	int refused;
} hammer;

/* A WAIT is in flight nearly always. */
static void *acquire_again(void *arg)
{
	lk_lock *lock = lock_named(hammer.client, "other");

	(void)arg;
	while (!hammer.stop)
		hammer.refused += lk_lock_acquire(lock, 10000, NULL) == LK_EREPLICAS;
	return NULL;
}

/* A query needs two responses, and each may have to wait behind a WAIT. */
TEST_LIMIT(w3_queries_end_in_time_while_replicas_are_stopped, 60)
{
	const int64_t timeout_ms = 400;
	lk_lock_status status;
	lk_client *client;
	pthread_t thread;
	lk_lock *lock;

	replicated_start(&servers, 1);
	client = client_timed(1, timeout_ms);
	lock = lock_leased(client, "a", 60000);
	ck_assert(WITHIN(10000, lk_lock_acquire(lock, 10000, NULL) == LK_OK));
	replicated_pause(&servers, 1);
	hammer = (struct hammer){.client = client};
	ck_assert_int_eq(pthread_create(&thread, NULL, acquire_again, NULL), 0);
	for (int i = 0; i < 10; i++) {
		int64_t began_ms = now_ms();
		OK(lk_lock_query(lock, &status));
		ck_assert(status.held);
		ck_assert_int_le(now_ms() - began_ms, timeout_ms + SLACK_MS);
	}
	hammer.stop = true;
	pthread_join(thread, NULL);
	ck_assert_int_gt(hammer.refused, 0);
	replicated_resume(&servers, 1);
	OK(lk_client_close(client));
	replicated_stop(&servers);
}

/* The server looks at its clock ten times a second, so a WAIT may take 100 ms longer. */
TEST_LIMIT(w3_short_command_timeout_keeps_the_link_while_replicas_are_stopped, 60)
{
	lk_counters counters;
	lk_client *client;
	lk_lock *lock;

	replicated_start(&servers, 1);
	client = client_timed(1, 200);
	lock = lock_named(client, "a");
	replicated_pause(&servers, 1);
	for (int i = 0; i < 10; i++)
		EXPECT(lk_lock_acquire(lock, 10000, NULL), LK_EREPLICAS);
	OK(lk_client_counters(client, &counters));
	ck_assert_int_eq(counters.connected, 1);
	replicated_resume(&servers, 1);
	OK(lk_client_close(client));
	replicated_stop(&servers);
}

/* ---- W4 ----------------------------------------------------------------------------------- */

TEST_LIMIT(w4_promoted_replica_has_each_hold, 90)
{
	static struct sentinel_setup setup;
	char url[220], without[200];
	lk_client *client, *other;
	lk_semaphore *semaphore;
	uint64_t fence, later;
	int64_t until_ms;

	sentinel_setup_start(&setup, NULL);
	snprintf(without, sizeof(without), "%s?grace=0", setup.url);
	snprintf(url, sizeof(url), "%s&replicas=2", without);
	client = client_at(url);
	semaphore = semaphore_of(client, "s", 1, 30000);
	OK(lk_lock_acquire(lock_leased(client, "a", 30000), 10000, &fence));
	permits_of(semaphore, 1, 10000);
	server_kill(&setup.servers[0]);
	until_ms = now_ms() + 20000;
	sentinel_setup_await_switch(&setup, 0);
	/* The other client, which knew no server before, has no grace. */
	other = client_at(without);
	EXPECT(lk_lock_acquire(lock_named(other, "a"), 0, &later), LK_EBUSY);
	EXPECT(lk_semaphore_acquire(semaphore_of(other, "s", 1, 30000), 1, 0, &later), LK_EBUSY);
	ck_assert_int_lt(now_ms(), until_ms);
	OK(lk_client_close(client));
	OK(lk_lock_acquire(lock_named(other, "a"), 10000, &later));
	ck_assert_uint_gt(later, fence);
	OK(lk_client_close(other));
	sentinel_setup_stop(&setup);
}
