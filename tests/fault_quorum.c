/* SPDX-License-Identifier: MIT
 * Servers of a quorum that fail (Q1 to Q3, Q5, Q6 of the fault list): killed, emptied, hung; one of
 * three, or two. */
#include "harness/quorum_fault.h"

#define LEASE_MS 1500
#define LONGEST_MS 2000
#define WAIT_MS 15000
#define TIMEOUT_MS 500

static struct test_server *const servers = quorum.servers;
static lk_client *client, *other;
static lk_lock *lock;
static struct waiter waiter;
static struct quorum_scene scene;

/* ---- Q1 -------------------------------------------------------------------------------------- */

TEST_LIMIT(q1_killed_server_costs_no_hold_and_no_waiter, 30)
{
	quorum_setup_begin(&quorum, LONGEST_MS);
	quorum_hold_and_wait(&scene, LEASE_MS, WAIT_MS);
	server_kill(&servers[0]);
	stays_held(scene.lock, LEASE_MS + LEASE_MS / 3);
	ck_assert(!scene.waiters[0].ended && !scene.waiters[1].ended);
	quorum_serve_waiters(&scene);
	ck_assert(WITHIN(BACK_MS, quorum_is_clear()));
	quorum_close_all(&scene);
}

/* ---- Q2, Q3: it has forgotten ---------------------------------------------------------------- */

static void flush(int member)
{
	struct redis *own = redis_open(&servers[member]);

	redis_do(own, "FLUSHALL");
	redis_close(own);
}

static void restart(int member)
{
	server_restart(&servers[member]);
}

/* The others vote meanwhile; when it is no longer young, it gets the leg of the present hold. */
static void one_forgets(void (*forget)(int member))
{
	int64_t forgot_ms;
	bool has_leg;

	quorum_setup_begin(&quorum, LONGEST_MS);
	quorum_hold_and_wait(&scene, LEASE_MS, WAIT_MS);
	forgot_ms = now_ms();
	forget(1);
	stays_held(scene.lock, LEASE_MS + LEASE_MS / 3);
	has_leg = quorum_has_leg(1);
	ck_assert(!has_leg || now_ms() >= forgot_ms + LONGEST_MS - 100);
	quorum_serve_waiters(&scene);
	OK(lk_lock_acquire(scene.lock, WAIT_MS, NULL));
	ck_assert(WITHIN(LONGEST_MS + BACK_MS, quorum_has_leg(1)));
	ck_assert_int_ge(now_ms(), forgot_ms + LONGEST_MS - 100);
	OK(lk_lock_release(scene.lock));
	ck_assert(WITHIN(BACK_MS, quorum_is_clear()));
	ck_assert_int_eq(losses.count, 0);
	quorum_close_all(&scene);
}

TEST_LIMIT(q2_restarted_server_is_young_and_the_others_go_on, 30)
{
	one_forgets(restart);
}

TEST_LIMIT(q3_emptied_server_is_young_and_the_others_go_on, 30)
{
	one_forgets(flush);
}

TEST_LIMIT(q3_two_emptied_servers_are_a_loss_and_grant_nothing_while_young, 30)
{
	int64_t forgot_ms;
	uint64_t fence;

	quorum_setup_begin(&quorum, LONGEST_MS);
	quorum_hold_and_wait(&scene, LEASE_MS, WAIT_MS);
	fence = hold_of(scene.lock).fence;
	forgot_ms = now_ms();
	flush(0);
	flush(2);
	ck_assert(WITHIN(LEASE_MS + QUORUM_SOON_MS, losses.count == 1));
	ck_assert(!lk_lock_is_mine(scene.lock));
	ck_assert_uint_eq(losses.fence, fence);
	EXPECT(lk_lock_release(scene.lock), LK_ELOST);
	ck_assert_int_eq(waiter_join(&scene.waiters[0]), LK_OK);
	ck_assert_int_ge(now_ms(), forgot_ms + LONGEST_MS - 100);
	ck_assert_uint_gt(scene.waiters[0].fence, fence);
	OK(lk_lock_release(scene.waiters[0].lock));
	ck_assert_int_eq(waiter_join(&scene.waiters[1]), LK_OK);
	ck_assert_uint_gt(scene.waiters[1].fence, scene.waiters[0].fence);
	OK(lk_lock_release(scene.waiters[1].lock));
	ck_assert_int_eq(losses.count, 1);
	quorum_close_all(&scene);
}

/* ---- Q5: one server hangs -------------------------------------------------------------------- */

TEST_LIMIT(q5_hung_server_delays_no_grant_no_renewal_and_no_release, 30)
{
	int64_t began_ms;

	quorum_setup_begin(&quorum, LONGEST_MS);
	client = quorum_client(false, QUORUM_SLOW_MS);
	other = quorum_client(false, QUORUM_SLOW_MS);
	server_pause(&servers[2]);
	began_ms = now_ms();
	lock = hold_watched(client, "a", LEASE_MS);
	quorum_expect_soon(began_ms);
	waiter_start(&waiter, lock_of_handle(other, "a", LEASE_MS), WAIT_MS, true);
	ck_assert(WITHIN(BACK_MS, quorum_has_queue(0) && quorum_has_queue(1)));
	stays_held(lock, LEASE_MS + LEASE_MS / 3);
	began_ms = now_ms();
	OK(lk_lock_extend(lock, LEASE_MS));
	quorum_expect_soon(began_ms);
	began_ms = now_ms();
	OK(lk_lock_release(lock));
	quorum_expect_soon(began_ms);
	ck_assert_int_eq(waiter_join(&waiter), LK_OK);
	quorum_expect_soon(began_ms);
	server_resume(&servers[2]);
	/* What lay in its buffers harms nothing. */
	nap_ms(LEASE_MS / 2);
	ck_assert(lk_lock_is_mine(waiter.lock));
	OK(lk_lock_release(waiter.lock));
	ck_assert(WITHIN(BACK_MS, quorum_is_clear()));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* It hangs while it is held, until the release; its leg lasts no longer than a lease. */
TEST_LIMIT(q5_server_that_hangs_in_between_is_told_the_end_later, 30)
{
	quorum_setup_begin(&quorum, LONGEST_MS);
	quorum_hold_and_wait(&scene, LEASE_MS, WAIT_MS);
	server_pause(&servers[0]);
	quorum_serve_waiters(&scene);
	server_resume(&servers[0]);
	ck_assert(WITHIN(BACK_MS, quorum_is_clear()));
	ck_assert_int_eq(losses.count, 0);
	quorum_close_all(&scene);
}

/* ---- Q6: two servers hang -------------------------------------------------------------------- */

TEST_LIMIT(q6_two_hung_servers_end_calls_in_time_and_revive_nothing, 30)
{
	int64_t began_ms;
	uint64_t before, after;
	lk_lock *wanted;
	lk_err err;

	quorum_setup_begin(&quorum, LONGEST_MS);
	client = quorum_client(false, TIMEOUT_MS);
	other = quorum_client(false, TIMEOUT_MS);
	lock = hold_watched(client, "a", LEASE_MS);
	before = hold_of(lock).fence;
	wanted = lock_leased(other, "a", LEASE_MS);
	server_pause(&servers[0]);
	server_pause(&servers[2]);
	began_ms = now_ms();
	err = lk_lock_acquire(wanted, 300, NULL);
	ck_assert_msg(err == LK_ETIMEDOUT || err == LK_EUNKNOWN || err == LK_ECONN, "%s",
	              lk_err_name(err));
	ck_assert_int_lt(now_ms() - began_ms, 300 + TIMEOUT_MS + QUORUM_SOON_MS);
	ck_assert(WITHIN(LEASE_MS + QUORUM_SOON_MS, losses.count == 1));
	ck_assert(!lk_lock_is_mine(lock));
	server_resume(&servers[0]);
	server_resume(&servers[2]);
	OK(lk_lock_acquire(wanted, WAIT_MS, &after));
	ck_assert_uint_gt(after, before);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_LOST);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	nap_ms(LEASE_MS / 2);
	ck_assert(lk_lock_is_mine(wanted));
	OK(lk_lock_release(wanted));
	ck_assert(WITHIN(BACK_MS, quorum_is_clear()));
	ck_assert_int_eq(losses.count, 1);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}
