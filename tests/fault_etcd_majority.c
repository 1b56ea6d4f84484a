/* SPDX-License-Identifier: MIT
 * Nodes of etcd that are lost together, restarted, restored or removed (E9, E10, E19, E25 and E26
 * of the fault list). */
#include "harness/etcd_fault.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define LEASE_MS 3000
#define LONG_LEASE_MS 60000
#define SLOW_MS 4000 /* what a loaded machine may add */

static lk_client *client, *rival;
static lk_lock *lock;
static struct etcd_waiter waiter;

static uint64_t hold_and_wait(int64_t lease_ms)
{
	uint64_t fence;

	client = etcd_client(ETCD_ALL);
	rival = etcd_client(ETCD_ALL);
	lock = etcd_lock(client, "a", lease_ms);
	OK(lk_lock_acquire(lock, ETCD_SOON_MS, &fence));
	waiter.other = lock;
	etcd_waiter_start(&waiter, etcd_lock(rival, "a", LONG_LEASE_MS), LK_FOREVER);
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_tickets(0, "a") == 2));
	return fence;
}

static void end(void)
{
	OK(lk_client_close(client));
	OK(lk_client_close(rival));
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_is_clear(0)));
	etcd_stop(&etcd);
}

TEST_LIMIT(e9_lost_majority_ends_the_hold_in_time_and_revives_nothing, 240)
{
	uint64_t fence, later;
	int64_t began_ms;
	lk_err err;

	etcd_fault_set_up();
	fence = hold_and_wait(LEASE_MS);
	began_ms = now_ms();
	etcd_kill(&etcd, 1);
	etcd_kill(&etcd, 2);
	ck_assert(WITHIN(ETCD_SOON_MS, losses.count == 1));
	ck_assert_int_le(losses.at_ms - began_ms, LEASE_MS + SLOW_MS);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_LOST);
	began_ms = now_ms();
	err = lk_lock_acquire(etcd_lock(client, "b", LEASE_MS), 500, NULL);
	ck_assert_msg(err == LK_ECONN || err == LK_EUNKNOWN, "%s", lk_err_name(err));
	ck_assert_int_le(now_ms() - began_ms, 500 + SLOW_MS);
	ck_assert(!waiter.ended);
	etcd_restart_dead(&etcd);
	/* The lease lives again in the store, with its whole time, and is not the holder's. */
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_LOST);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(etcd_waiter_join(&waiter));
	ck_assert_uint_gt(waiter.fence, fence);
	OK(lk_lock_release(waiter.lock));
	OK(lk_lock_acquire(lock, ETCD_SOON_MS, &later));
	ck_assert_uint_gt(later, waiter.fence);
	ck_assert_int_eq(losses.count, 1);
	end();
}

/* ---- E10: all restart ----------------------------------------------------------------------- */

TEST_LIMIT(e10_restart_of_all_nodes_costs_no_hold_and_no_place, 240)
{
	etcd_fault_set_up();
	hold_and_wait(LONG_LEASE_MS);
	for (int i = 0; i < etcd.count; i++)
		etcd_kill(&etcd, i);
	etcd_restart_dead(&etcd);
	ck_assert(lk_lock_is_mine(lock));
	ck_assert(!waiter.ended);
	ck_assert(WITHIN(ETCD_SOON_MS, lk_lock_state(lock) == LK_STATE_HELD));
	OK(lk_lock_release(lock));
	OK(etcd_waiter_join(&waiter));
	OK(lk_lock_release(waiter.lock));
	ck_assert_int_eq(losses.count, 0);
	end();
}

/* ---- E19: executed late --------------------------------------------------------------------- */

static void stop_followers(bool go_on)
{
	for (int i = 1; i < 3; i++)
		if (go_on)
			ck_assert(!kill(etcd.nodes[i].pid, SIGCONT));
		else
			etcd_pause(&etcd, i);
}

TEST_LIMIT(e19_requests_that_time_out_leave_nothing_when_they_are_executed, 240)
{
	lk_lock *other, *third;
	lk_err err;

	etcd_fault_set_up();
	etcd_lead(0);
	hold_and_wait(LONG_LEASE_MS);
	other = etcd_lock(client, "b", LONG_LEASE_MS);
	third = etcd_lock(rival, "b", LONG_LEASE_MS);
	etcd_lead(0);
	stop_followers(false);
	err = lk_lock_acquire(other, 1500, NULL);
	ck_assert_msg(err == LK_ECONN || err == LK_EUNKNOWN, "%s", lk_err_name(err));
	EXPECT(lk_lock_release(lock), LK_EUNKNOWN);
	ck_assert(!waiter.ended);
	stop_followers(true);
	/* Long before the leases would end. */
	OK(etcd_waiter_join(&waiter));
	OK(lk_lock_acquire(third, ETCD_SOON_MS, NULL));
	ck_assert_int_eq(losses.count, 0);
	OK(lk_lock_release(third));
	OK(lk_lock_release(waiter.lock));
	end();
}

/* ---- E25: members that are of no use -------------------------------------------------------- */

static void expect_work(lk_client *of)
{
	lk_lock *other = lock_named(of, "other");

	OK(lk_lock_acquire(other, ETCD_SOON_MS, NULL));
	OK(lk_lock_release(other));
	OK(lk_lock_close(other));
}

TEST_LIMIT(e25_removed_member_and_a_learner_are_left, 240)
{
	lk_client *far, *lost = NULL;
	struct etcd_view view;

	etcd.args[0] =
		"--strict-reconfig-check=false"; /* it wants nodes that have run for a while */
	etcd_fault_set_up();
	etcd_lead(0);
	hold_and_wait(LONG_LEASE_MS);
	far = etcd_client_at(2);
	expect_work(far);
	etcd_replace_by_learner(2);
	expect_work(far);
	OK(lk_client_close(far));
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_look(2, &view) && view.leader == 0));
	EXPECT(lk_client_open(etcd_url_of(4, false, "?connect_timeout=3000"), NULL, &lost),
	       LK_ECONN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "learner"));
	for (int i = 0; i < 6; i++) { /* some of them dial the learner first */
		far = etcd_client(ETCD_ALL);
		expect_work(far);
		OK(lk_client_close(far));
	}
	ck_assert(lk_lock_is_mine(lock));
	OK(lk_lock_release(lock));
	OK(etcd_waiter_join(&waiter));
	OK(lk_lock_release(waiter.lock));
	end();
}

/* ---- E26: a backup -------------------------------------------------------------------------- */

/* All nodes go back to what they were at the copy. */
static void copy(bool back)
{
	for (int i = 0; i < etcd.count; i++)
		etcd_kill(&etcd, i);
	for (int i = 0; i < etcd.count; i++)
		ck_assert(!shell(back ? "cd '%s' && rm -rf n%d && mv copy%d n%d"
		                      : "cd '%s' && rm -rf copy%d && cp -a n%d copy%d",
		                 etcd.dir, i, i, i));
	etcd_restart_dead(&etcd);
}

TEST_LIMIT(e26_restored_backup_is_a_loss_and_fences_go_back, 240)
{
	uint64_t fence, again;

	etcd_fault_set_up();
	client = etcd_client(ETCD_ALL);
	expect_work(client);
	OK(lk_client_close(client));
	copy(false);
	for (int i = 0; i < 40; i++)
		etcd_write(0);
	fence = hold_and_wait(2 * LEASE_MS);
	waiter.other = NULL; /* two may hold until the holder's next renewal */
	copy(true);
	ck_assert(WITHIN(LONG_LEASE_MS, losses.count == 1));
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(etcd_waiter_join(&waiter));
	OK(lk_lock_release(waiter.lock));
	OK(lk_lock_acquire(lock, ETCD_SOON_MS, &again));
	ck_assert_uint_lt(again, fence);
	OK(lk_lock_release(lock));
	end();
}

/* The client lives, and so does the lease of what it had. */
TEST_LIMIT(e26_ticket_that_a_backup_restores_blocks_nobody, 240)
{
	lk_lock *other;

	etcd_fault_set_up();
	hold_and_wait(LONG_LEASE_MS);
	OK(lk_lock_release(lock));
	OK(etcd_waiter_join(&waiter));
	ck_assert_int_eq(etcd_tickets(0, "a"), 1);
	copy(false);
	OK(lk_lock_release(waiter.lock));
	for (int i = 0; i < 40; i++)
		etcd_write(0);
	expect_work(rival); /* it sees the later revision */
	copy(true);
	other = etcd_lock(client, "a", LONG_LEASE_MS);
	OK(lk_lock_acquire(other, 2 * ETCD_SOON_MS, NULL));
	OK(lk_lock_release(other));
	end();
}
