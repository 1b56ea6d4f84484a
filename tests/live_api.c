/* SPDX-License-Identifier: MIT
 * Each promise of latchkey.h about one caller's own hold: re-entry, owners, waits and their ends,
 * fixed leases, losses and their reasons. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static struct test_server server;
static struct redis *redis;

/* A server and its client. */
static lk_client *set_up(void)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
	return client_at(server.url);
}

static long long keys_of(const char *name)
{
	return redis_int(redis, "EXISTS lk:{%s} lk:{%s}:q", name, name);
}

/* ---- Reentry and owners ------------------------------------------------------------------- */

TEST(hold_count_follows_reentry)
{
	lk_client *client = set_up();
	lk_lock *lock = lock_named(client, "a"), *same = lock_named(client, "a");
	uint64_t fence = 0, again = 0;

	ck_assert_uint_eq(hold_of(lock).count, 0);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_NONE);
	ck_assert_uint_eq(hold_of(lock).fence, 0);
	OK(lk_lock_acquire(lock, 0, &fence));
	ck_assert_uint_ne(fence, 0);
	OK(lk_lock_acquire(lock, LK_FOREVER, NULL));
	OK(lk_lock_acquire(same, 0, &again)); /* through any handle of the client */
	ck_assert_uint_eq(again, fence);
	ck_assert_uint_eq(hold_of(lock).count, 3);
	ck_assert_uint_eq(hold_of(same).count, 3);
	ck_assert_uint_eq(hold_of(same).fence, fence);
	OK(lk_lock_release(lock));
	OK(lk_lock_release(same));
	ck_assert(lk_lock_is_mine(lock));
	ck_assert_int_eq(keys_of("a"), 1);
	OK(lk_lock_release(lock));
	ck_assert(!lk_lock_is_mine(lock));
	ck_assert_int_eq(keys_of("a"), 0);
	EXPECT(lk_lock_release(lock), LK_ENOTOWNER);
	OK(lk_client_close(client));
}

static void *release_thread(void *arg)
{
	static lk_err err;

	err = lk_lock_release(arg);
	return &err;
}

/* Return the result of a release in another thread. */
static lk_err release_elsewhere(lk_lock *lock)
{
	pthread_t thread;
	void *err;

	pthread_create(&thread, NULL, release_thread, lock);
	pthread_join(thread, &err);
	return *(lk_err *)err;
}

TEST(hold_of_a_thread_is_released_by_it_alone)
{
	lk_client *client = set_up();
	lk_lock *lock = lock_named(client, "a");

	OK(lk_lock_acquire(lock, 0, NULL));
	ck_assert_int_eq(release_elsewhere(lock), LK_ENOTOWNER);
	ck_assert_uint_eq(hold_of(lock).count, 1);
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}

TEST(hold_of_a_handle_is_released_by_any_thread)
{
	const lk_lock_options options = {.owner = LK_OWNER_HANDLE};
	lk_client *client = set_up();
	lk_lock *lock = lock_with(client, "a", &options), *other = lock_with(client, "a", &options);
	uint64_t fence = 17;

	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_acquire(lock, 0, NULL));
	/* Another handle is another owner, even in the same thread. */
	EXPECT(lk_lock_acquire(other, 0, &fence), LK_EBUSY);
	ck_assert_uint_eq(fence, 17); /* a result is written on success only */
	EXPECT(lk_lock_release(other), LK_ENOTOWNER);
	ck_assert_int_eq(release_elsewhere(lock), LK_OK);
	ck_assert_uint_eq(hold_of(lock).count, 1);
	ck_assert_int_eq(release_elsewhere(lock), LK_OK);
	ck_assert_int_eq(keys_of("a"), 0);
	OK(lk_lock_acquire(other, 0, NULL));
	OK(lk_client_close(client));
}

TEST(wait_of_a_handle_for_its_own_thread_is_a_deadlock)
{
	const lk_lock_options of_handle = {.owner = LK_OWNER_HANDLE};
	lk_client *client = set_up();
	lk_lock *lock = lock_named(client, "a"), *other = lock_with(client, "a", &of_handle);
	lk_lock *limited = lock_with(client, "a", &(lk_lock_options){.max_hold_ms = 300});
	int64_t start_ms = now_ms();
	uint64_t fence = 17;

	OK(lk_lock_acquire(lock, 0, NULL));
	EXPECT(lk_lock_acquire(other, LK_FOREVER, &fence), LK_EDEADLOCK);
	EXPECT(lk_lock_acquire(other, 5000, &fence), LK_EDEADLOCK);
	ck_assert_uint_eq(fence, 17);
	EXPECT(lk_lock_acquire(other, 0, NULL), LK_EBUSY);
	ck_assert_int_lt(now_ms() - start_ms, 1000);
	OK(lk_lock_release(lock));
	OK(lk_lock_acquire(limited, 0, NULL));
	OK(lk_lock_acquire(other, 5000, NULL));
	EXPECT(lk_lock_release(limited), LK_ELOST);
	OK(lk_lock_release(other));
	OK(lk_client_close(client));
}

/* ---- Waits and their ends ----------------------------------------------------------------- */

struct wait {
	lk_lock *lock;
	int64_t wait_ms;
	lk_err err;
	int64_t took_ms;
	atomic_bool ended;
	pthread_t thread;
};

static void *wait_thread(void *arg)
{
	struct wait *wait = arg;
	int64_t start_ms = now_ms();

	wait->err = lk_lock_acquire(wait->lock, wait->wait_ms, NULL);
	wait->took_ms = now_ms() - start_ms;
	if (!wait->err)
		OK(lk_lock_release(wait->lock));
	wait->ended = true;
	return NULL;
}

static void wait_start(struct wait *wait, lk_lock *lock, int64_t wait_ms)
{
	wait->lock = lock;
	wait->wait_ms = wait_ms;
	wait->ended = false;
	pthread_create(&wait->thread, NULL, wait_thread, wait);
}

static lk_err wait_end(struct wait *wait)
{
	ck_assert(WITHIN(10000, wait->ended));
	pthread_join(wait->thread, NULL);
	return wait->err;
}

TEST(try_of_a_held_lock_is_busy_and_a_wait_times_out)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_lock *held = lock_named(client, "a"), *lock = lock_named(other, "a");
	struct wait wait;

	OK(lk_lock_acquire(held, 0, NULL));
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EBUSY);
	ck_assert_int_eq(keys_of("a"), 1);
	wait_start(&wait, lock, 200);
	ck_assert_int_eq(wait_end(&wait), LK_ETIMEDOUT);
	ck_assert_int_ge(wait.took_ms, 199);
	ck_assert_int_le(wait.took_ms, 2200);
	ck_assert_int_eq(keys_of("a"), 1); /* no ticket remains */
	EXPECT(lk_lock_acquire(lock, -2, NULL), LK_EINVALID);
	EXPECT(lk_lock_release(lock), LK_ENOTOWNER);
	OK(lk_client_close(other));
	OK(lk_client_close(client));
}

TEST(cancel_ends_every_wait_of_the_handle_and_no_other)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_lock *held = lock_named(client, "a");
	lk_lock *lock = lock_named(other, "a"), *spared = lock_named(other, "a");
	struct wait waits[3], rest;

	OK(lk_lock_acquire(held, 0, NULL));
	OK(lk_lock_cancel(lock)); /* no wait to cancel; later waits are unaffected */
	for (int i = 0; i < 3; i++)
		wait_start(&waits[i], lock, LK_FOREVER);
	wait_start(&rest, spared, LK_FOREVER);
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	nap_ms(50); /* the others wait in the queue inside the process, which the store does not see
	             */
	OK(lk_lock_cancel(lock));
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(wait_end(&waits[i]), LK_ECANCELED);
	ck_assert(!rest.ended);
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	OK(lk_lock_release(held));
	ck_assert_int_eq(wait_end(&rest), LK_OK);
	ck_assert_int_eq(keys_of("a"), 0);
	OK(lk_client_close(other));
	OK(lk_client_close(client));
}

TEST(close_of_a_lock_cancels_its_waits_and_gives_its_hold_back)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_lock *held = lock_named(client, "a"), *lock = lock_named(other, "a");
	struct wait wait;

	OK(lk_lock_acquire(held, 0, NULL));
	wait_start(&wait, lock, LK_FOREVER);
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	OK(lk_lock_close(lock));
	ck_assert_int_eq(wait_end(&wait), LK_ECANCELED);
	ck_assert(WITHIN(2000, keys_of("a") == 1));
	OK(lk_lock_close(held)); /* released in the background */
	ck_assert(WITHIN(2000, keys_of("a") == 0));
	OK(lk_lock_close(NULL));
	OK(lk_client_close(NULL));
	OK(lk_client_close(other));
	OK(lk_client_close(client));
}

TEST(close_of_a_client_ends_waits_and_releases)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_lock *held = lock_named(client, "a"), *lock = lock_named(other, "a");
	lk_lock *mine = lock_named(other, "b");
	struct wait wait;

	OK(lk_lock_acquire(held, 0, NULL));
	OK(lk_lock_acquire(mine, 0, NULL));
	wait_start(&wait, lock, LK_FOREVER);
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	OK(lk_client_close(other));
	ck_assert_int_eq(wait_end(&wait), LK_ECLOSED);
	ck_assert_int_eq(keys_of("b"), 0);
	ck_assert_int_eq(keys_of("a"), 1);
	OK(lk_client_close(client));
	/* No hold, no queue, no description of a client remains: only the fence counter. */
	ck_assert_int_eq(redis_int(redis, "DBSIZE"), 1);
}

/* Every byte of it is 0: the caller holds nothing. */
static bool is_empty(const lk_hold *hold)
{
	static const lk_hold empty;

	return !memcmp(hold, &empty, sizeof(empty));
}

TEST(snapshot_has_all_that_a_hold_knows)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_lock *lock = lock_leased(client, "a", 1000), *seen = lock_named(other, "a");
	lk_lock_status status;
	uint64_t fence;
	lk_hold hold;

	memset(&hold, 0xff, sizeof(hold));
	OK(lk_lock_snapshot(lock, &hold));
	ck_assert(is_empty(&hold));
	OK(lk_lock_acquire(lock, 0, &fence));
	OK(lk_lock_acquire(lock, 0, NULL));
	memset(&hold, 0xff, sizeof(hold));
	OK(lk_lock_snapshot(lock, &hold));
	OK(lk_lock_query(seen, &status));
	ck_assert_uint_eq(hold.fence, fence);
	ck_assert_int_eq(hold.count, 2);
	ck_assert_int_eq(hold.state, LK_STATE_HELD);
	ck_assert_int_eq(hold.lost, 0);
	ck_assert_int_gt(hold.remaining_ms, 0);
	ck_assert_int_le(hold.remaining_ms, 1000);
	ck_assert_str_eq(hold.holder_id, status.holder.id);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(hold.reserved[i], 0);
	OK(lk_lock_snapshot(seen, &hold)); /* another client holds nothing */
	ck_assert(is_empty(&hold));
	OK(lk_lock_break(seen, NULL));
	ck_assert(WITHIN(1000, lk_lock_state(lock) == LK_STATE_LOST));
	OK(lk_lock_snapshot(lock, &hold));
	ck_assert_int_eq(hold.state, LK_STATE_LOST);
	ck_assert_int_eq(hold.lost, LK_LOST_BROKEN);
	ck_assert_int_eq(hold.remaining_ms, 0);
	ck_assert_str_eq(hold.holder_id, "");
	ck_assert_uint_eq(hold.fence, fence); /* remains until the loss is acknowledged */
	ck_assert_int_eq(hold.count, 2);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(lk_lock_snapshot(lock, &hold));
	ck_assert(is_empty(&hold));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* ---- Leases ------------------------------------------------------------------------------- */

TEST(renewed_hold_outlives_its_lease)
{
	lk_client *client = set_up();
	lk_lock *lock = lock_leased(client, "a", 300);

	OK(lk_lock_acquire(lock, 0, NULL));
	for (int i = 0; i < 20; i++) {
		long long left = redis_int(redis, "PTTL lk:{a}");
		nap_ms(50);
		ck_assert_int_gt(left, 0);
		ck_assert_int_le(left, 300);
		ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
		ck_assert_int_gt(hold_of(lock).remaining_ms, 0);
		ck_assert_int_le(hold_of(lock).remaining_ms, 300);
	}
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}

TEST(fixed_hold_ends_with_its_lease_unless_extended)
{
	const lk_lock_options options = {.fixed = true, .lease_ms = 300};
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_lock *lock = lock_with(client, "a", &options);

	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_extend(lock, 600));
	ck_assert_int_gt(hold_of(lock).remaining_ms, 500);
	ck_assert_int_gt(redis_int(redis, "PTTL lk:{a}"), 500);
	nap_ms(400);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	EXPECT(lk_lock_extend(lock, 0), LK_EINVALID);
	OK(lk_lock_acquire(lock_named(other, "a"), 5000, NULL));
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_LOST);
	ck_assert_int_eq(hold_of(lock).remaining_ms, 0);
	ck_assert(!lk_lock_is_mine(lock));
	ck_assert_uint_ne(hold_of(lock).fence, 0); /* readable until acknowledged */
	EXPECT(lk_lock_extend(lock, 300), LK_ELOST);
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_ELOST);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	EXPECT(lk_lock_release(lock), LK_ENOTOWNER);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_NONE);
	EXPECT(lk_lock_extend(lock, 300), LK_ENOTOWNER);
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EBUSY);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST(waiter_gets_the_lock_when_a_fixed_lease_ends)
{
	const lk_lock_options options = {.fixed = true, .lease_ms = 500};
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_lock *lock = lock_with(client, "a", &options);
	struct wait wait;

	OK(lk_lock_acquire(lock, 0, NULL));
	wait_start(&wait, lock_named(other, "a"), LK_FOREVER);
	ck_assert_int_eq(wait_end(&wait), LK_OK);
	ck_assert_int_ge(wait.took_ms, 350);
	ck_assert_int_le(wait.took_ms, 1500);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* ---- Losses ------------------------------------------------------------------------------- */

static atomic_int losses;
static _Atomic(lk_lost_reason) reason_seen;
static _Atomic uint64_t fence_seen;

static void note_loss(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	ck_assert_ptr_eq(arg, &losses);
	ck_assert_ptr_nonnull(lock);
	fence_seen = fence;
	reason_seen = reason;
	losses++;
}

/* The loss is reported once, with this reason and the hold's fence. */
static void expect_loss(uint64_t fence, lk_lost_reason reason)
{
	ck_assert_msg(WITHIN(3000, losses > 0), "no loss was reported");
	nap_ms(20);
	ck_assert_int_eq(losses, 1);
	ck_assert_msg(reason_seen == reason, "%s, not %s", lk_lost_reason_name(reason_seen),
	              lk_lost_reason_name(reason));
	ck_assert_uint_eq(fence_seen, fence);
}

/* Return a held lock whose loss is recorded. */
static lk_lock *watched(lk_client *client, lk_lock_options options)
{
	lk_lock *lock;

	options.on_lost = note_loss;
	options.on_lost_arg = &losses;
	lock = lock_with(client, "a", &options);
	OK(lk_lock_acquire(lock, 0, NULL));
	return lock;
}

TEST(loss_by_the_end_of_a_lease_is_told)
{
	lk_client *client = set_up();
	lk_lock *lock = watched(client, (lk_lock_options){.lease_ms = 200, .fixed = true});
	int64_t start_ms = now_ms();

	expect_loss(hold_of(lock).fence, LK_LOST_EXPIRED);
	ck_assert_int_le(now_ms() - start_ms, 200 + 100);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(lk_client_close(client));
}

TEST(loss_by_a_deleted_key_is_told_at_the_next_renewal)
{
	lk_client *client = set_up();
	lk_lock *lock = watched(client, (lk_lock_options){.lease_ms = 600});
	uint64_t fence = hold_of(lock).fence;
	int64_t start_ms = now_ms();

	redis_do(redis, "DEL lk:{a}");
	expect_loss(fence, LK_LOST_TAKEN);
	ck_assert_int_le(now_ms() - start_ms, 300 + 100);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_LOST);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(lk_lock_acquire(lock, 0, NULL)); /* acknowledged: a new hold */
	ck_assert_uint_gt(hold_of(lock).fence, fence);
	OK(lk_client_close(client));
}

TEST(loss_by_a_break_is_told_at_once)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_lock *lock = watched(client, (lk_lock_options){0});
	int64_t start_ms = now_ms();

	OK(lk_lock_break(lock_named(other, "a"), NULL));
	expect_loss(hold_of(lock).fence, LK_LOST_BROKEN);
	ck_assert_int_le(now_ms() - start_ms, 500);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST(hold_ends_after_its_maximum)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_lock *lock = watched(client, (lk_lock_options){.lease_ms = 200, .max_hold_ms = 500});
	int64_t start_ms = now_ms();

	nap_ms(400);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	expect_loss(hold_of(lock).fence, LK_LOST_MAX_HOLD);
	ck_assert_int_ge(now_ms() - start_ms, 499);
	ck_assert_int_le(now_ms() - start_ms, 700);
	/* It was released; the lease did not have to expire. */
	ck_assert(WITHIN(100, keys_of("a") == 0));
	OK(lk_lock_acquire(lock_named(other, "a"), 0, NULL));
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST(callback_is_not_called_for_a_release_or_a_close)
{
	lk_client *client = set_up();
	lk_lock *lock = watched(client, (lk_lock_options){.lease_ms = 100});

	OK(lk_lock_release(lock));
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_close(lock));
	watched(client, (lk_lock_options){.lease_ms = 100});
	OK(lk_client_close(client));
	nap_ms(150);
	ck_assert_int_eq(losses, 0);
}

static void *end_holding(void *arg)
{
	*(lk_lock **)arg = watched(*(void **)arg, (lk_lock_options){0});
	return NULL;
}

TEST(hold_of_an_ended_thread_is_released_and_told)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	void *lock = client;
	pthread_t thread;

	pthread_create(&thread, NULL, end_holding, &lock);
	pthread_join(thread, NULL);
	ck_assert(WITHIN(2000, losses == 1));
	ck_assert_int_eq(reason_seen, LK_LOST_THREAD);
	ck_assert_uint_ne(fence_seen, 0);
	OK(lk_lock_acquire(lock_named(other, "a"), 1000, NULL)); /* long before the lease's end */
	ck_assert_uint_eq(hold_of(lock).count, 0);
	EXPECT(lk_lock_release(lock), LK_ENOTOWNER);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}
