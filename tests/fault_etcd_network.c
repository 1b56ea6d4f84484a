/* SPDX-License-Identifier: MIT
 * The network between a client and the nodes of etcd fails (E7 and E8 of the fault list). */
#include "harness/etcd_fault.h"

#include <stdio.h>

#define LEASE_MS 3000
#define LONG_LEASE_MS 60000
#define WAIT_MS 2000
#define SLOW_MS 3000 /* what a loaded machine may add */

static lk_client *client, *rival;
static struct etcd_waiter waiter;

static void start(void)
{
	etcd_fault_set_up();
}

__attribute__((constructor)) static void prepare(void)
{
	test_before_all(start);
}

/* Lose what is sent in these ways. */
static void lose(int node, bool requests, bool answers)
{
	const struct proxy_fault drop = {.drop = true};

	if (requests)
		proxy_set(&etcd_proxies[node], PROXY_COMMANDS, PROXY_TO_SERVER, &drop);
	if (answers)
		proxy_set(&etcd_proxies[node], PROXY_COMMANDS, PROXY_TO_CLIENT, &drop);
}

/* No network delivers bytes after it lost some. */
static void heal(void)
{
	for (int i = 0; i < etcd.count; i++) {
		proxy_cut(&etcd_proxies[i], PROXY_COMMANDS, false);
		proxy_heal(&etcd_proxies[i]);
	}
}

static void use_another(int round)
{
	char name[20];
	lk_lock *other;

	snprintf(name, sizeof(name), "other/%d", round);
	other = lock_named(client, name);
	OK(lk_lock_acquire(other, ETCD_SOON_MS, NULL));
	OK(lk_lock_close(other));
}

TEST_LIMIT(e7_client_without_its_node_goes_to_another, 120)
{
	lk_lock *lock;

	client = etcd_client_at(0);
	rival = etcd_client(ETCD_ALL);
	lock = etcd_lock(client, "e7", LONG_LEASE_MS);
	OK(lk_lock_acquire(lock, ETCD_SOON_MS, NULL));
	etcd_waiter_start(&waiter, etcd_lock(rival, "e7", LONG_LEASE_MS), LK_FOREVER);
	for (int i = 0; i < 2 * etcd.count; i++) {
		if (i < etcd.count) {
			lose(i, true, true);
		} else {
			proxy_refuse(&etcd_proxies[i % etcd.count], true);
			proxy_cut(&etcd_proxies[i % etcd.count], PROXY_COMMANDS, false);
		}
		use_another(i);
		ck_assert(lk_lock_is_mine(lock));
		ck_assert(!waiter.ended);
		heal();
	}
	OK(lk_lock_release(lock));
	OK(etcd_waiter_join(&waiter));
	OK(lk_client_close(client));
	OK(lk_client_close(rival));
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_is_clear(0)));
}

/* The client's hold is lost in time and not early; then another client has the lock. */
static void expect_loss(bool requests)
{
	uint64_t fence, later;
	int64_t began_ms;
	lk_lock *lock;

	client = etcd_client_at(0);
	rival = etcd_client(ETCD_ALL);
	lock = etcd_lock(client, "a", LEASE_MS);
	OK(lk_lock_acquire(lock, ETCD_SOON_MS, &fence));
	waiter.other = lock;
	etcd_waiter_start(&waiter, etcd_lock(rival, "a", LEASE_MS), LK_FOREVER);
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_tickets(0, "a") == 2));
	began_ms = now_ms();
	for (int i = 0; i < etcd.count; i++)
		lose(i, requests, true);
	ck_assert(WITHIN(ETCD_SOON_MS, losses.count == 1));
	ck_assert_int_ge(losses.at_ms - began_ms, LEASE_MS / 2);
	ck_assert_int_le(losses.at_ms - began_ms, LEASE_MS + SLOW_MS);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_LOST);
	OK(etcd_waiter_join(&waiter));
	ck_assert_uint_gt(waiter.fence, fence);
	heal();
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(lk_lock_release(waiter.lock));
	OK(lk_lock_acquire(lock, ETCD_SOON_MS, &later));
	ck_assert_uint_gt(later, waiter.fence);
	OK(lk_client_close(client));
	OK(lk_client_close(rival));
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_is_clear(0)));
}

TEST_LIMIT(e7_client_without_any_node_loses_in_time, 120)
{
	expect_loss(true);
}

TEST_LIMIT(e8_renewals_without_answers_do_not_count, 120)
{
	expect_loss(false);
}

/* Its hold is long, and it has used the name. */
static lk_lock *begin_one_way(void)
{
	lk_lock *lock;

	client = etcd_client_at(0);
	rival = etcd_client(ETCD_ALL);
	lock = etcd_lock(client, "a", LONG_LEASE_MS);
	OK(lk_lock_acquire(lock, ETCD_SOON_MS, NULL));
	return lock;
}

static void lose_answers(void)
{
	for (int i = 0; i < etcd.count; i++)
		lose(i, false, true);
}

static void end_one_way(lk_lock *lock)
{
	ck_assert_int_eq(losses.count, 0);
	OK(lk_lock_acquire(lock, ETCD_SOON_MS, NULL));
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	OK(lk_client_close(rival));
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_is_clear(0)));
}

TEST_LIMIT(e8_ask_without_an_answer_leaves_nothing, 120)
{
	lk_lock *lock = begin_one_way(), *wanted = etcd_lock(rival, "a", LONG_LEASE_MS);
	int64_t began_ms;
	lk_err err;

	OK(lk_lock_release(lock));
	lose_answers();
	began_ms = now_ms();
	err = lk_lock_acquire(lock, WAIT_MS, NULL);
	ck_assert_msg(err == LK_ECONN || err == LK_ETIMEDOUT || err == LK_EUNKNOWN, "%s",
	              lk_err_name(err));
	ck_assert_int_le(now_ms() - began_ms, WAIT_MS + SLOW_MS);
	ck_assert_int_eq(etcd_tickets(0, "a"), 1); /* it was executed */
	heal();
	/* Long before its lease would end. */
	OK(lk_lock_acquire(wanted, ETCD_SOON_MS, NULL));
	OK(lk_lock_release(wanted));
	end_one_way(lock);
}

TEST_LIMIT(e8_release_without_an_answer_is_unknown_and_releases, 120)
{
	lk_lock *lock = begin_one_way(), *wanted = etcd_lock(rival, "a", LONG_LEASE_MS);

	lose_answers();
	EXPECT(lk_lock_release(lock), LK_EUNKNOWN);
	OK(lk_lock_acquire(wanted, ETCD_SOON_MS, NULL));
	heal();
	use_another(0); /* it is connected again */
	/* What the client repeats changes nothing. */
	EXPECT(lk_lock_acquire(lock, WAIT_MS, NULL), LK_ETIMEDOUT);
	ck_assert(lk_lock_is_mine(wanted));
	ck_assert_int_eq(etcd_tickets(0, "a"), 1);
	OK(lk_lock_release(wanted));
	end_one_way(lock);
}
