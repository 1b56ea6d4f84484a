/* SPDX-License-Identifier: MIT
 * Servers of a quorum that return (Q4, Q7 to Q9 of the fault list): a majority that was down, one
 * after the other, as a member of another set, with another clock. */
#include "harness/quorum_fault.h"
#include "harness/server_clock.h"

#include <stdio.h>
#include <string.h>

#define LEASE_MS 1500
#define LONGEST_MS 2000
#define RETURN_MS 4000 /* so long that a wait ends meanwhile */
#define CLOCK_LONGEST_MS 20000
#define WAIT_MS 15000
#define TIMEOUT_MS 500

static struct test_server *const servers = quorum.servers;
static lk_client *client, *other;
static lk_lock *lock;
static struct quorum_scene scene;

/* "server N is young" is the reason why a wait ends without the lock. */
static bool tells_youth(lk_lock *wanted)
{
	lk_err err = lk_lock_acquire(wanted, 50, NULL);

	if (!err)
		OK(lk_lock_release(wanted));
	return err == LK_ETIMEDOUT &&
	       strstr(lk_errmsg(), " has lost its memory, votes in ") != NULL;
}

/* ---- Q4: a majority is lost, and returns ----------------------------------------------------- */

TEST_LIMIT(q4_lost_majority_ends_the_hold_in_time_and_is_young_when_it_returns, 40)
{
	int64_t died_ms, back_ms;
	uint64_t before, after;
	lk_lock *wanted;

	quorum_setup_begin(&quorum, RETURN_MS);
	client = quorum_client(false, TIMEOUT_MS);
	other = quorum_client(false, TIMEOUT_MS);
	lock = hold_watched(client, "a", LEASE_MS);
	before = hold_of(lock).fence;
	wanted = lock_leased(other, "a", LEASE_MS);
	server_kill(&servers[0]);
	server_kill(&servers[1]);
	died_ms = now_ms();
	while (lk_lock_is_mine(lock))
		nap_ms(1);
	ck_assert_int_le(now_ms() - died_ms, LEASE_MS + QUORUM_SOON_MS);
	ck_assert(WITHIN(QUORUM_SOON_MS, losses.count == 1));
	ck_assert_int_eq(losses.reason, LK_LOST_EXPIRED);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	ck_assert_int_ne(lk_lock_acquire(wanted, 200, NULL), LK_OK);
	back_ms = now_ms();
	server_restart(&servers[0]);
	server_restart(&servers[1]);
	ck_assert(WITHIN(RETURN_MS, tells_youth(wanted)));
	OK(lk_lock_acquire(wanted, WAIT_MS, &after));
	ck_assert_int_ge(now_ms() - back_ms, RETURN_MS - 100);
	ck_assert_int_le(now_ms() - back_ms, RETURN_MS + BACK_MS);
	ck_assert_uint_gt(after, before);
	OK(lk_lock_release(wanted));
	ck_assert_int_eq(losses.count, 1);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* ---- Q7: another server answers -------------------------------------------------------------- */

/* At its address is a member of another set, as after a mistake with addresses or volumes. */
TEST_LIMIT(q7_member_of_another_set_is_not_asked_and_is_named, 40)
{
	char named[60];
	struct redis *own;
	lk_lock *wanted;

	quorum_fault_set_up(LONGEST_MS);
	client = quorum_client(true, TIMEOUT_MS);
	other = quorum_client(true, TIMEOUT_MS);
	lock = hold_watched(client, "a", LEASE_MS);
	wanted = lock_leased(other, "a", LEASE_MS);
	quorum_await_legs();
	proxy_refuse(&quorum_proxies[1], true);
	server_restart(&servers[1]);
	own = redis_open(&servers[1]);
	redis_do(own, "SET lk:epoch %s", "1 0123456789abcdef 0 [another-set 1/3 60000]");
	redis_close(own);
	proxy_heal(&quorum_proxies[1]);
	ck_assert(WITHIN(BACK_MS, proxy_count(&quorum_proxies[1]).open >= 2));
	stays_held(lock, LEASE_MS + LEASE_MS / 3);
	EXPECT(lk_lock_acquire(wanted, 0, NULL), LK_EBUSY);
	OK(lk_lock_release(lock));
	OK(lk_lock_acquire(wanted, WAIT_MS, NULL));
	ck_assert(!quorum_has_leg(1) && !quorum_has_queue(1));
	OK(lk_lock_release(wanted));
	/* With a second one it is the reason. */
	server_kill(&servers[0]);
	snprintf(named, sizeof(named), ":%d: belongs to another set", quorum_proxies[1].port);
	ck_assert(WITHIN(BACK_MS,
	                 lk_lock_acquire(wanted, 50, NULL) != LK_OK && strstr(lk_errmsg(), named)));
	lk_client_close(client);
	lk_client_close(other);
}

/* ---- Q8: one after the other ----------------------------------------------------------------- */

/* As in an upgrade that waits until the server that was restarted votes again. */
TEST_LIMIT(q8_servers_restarted_in_turn_cost_no_hold, 40)
{
	quorum_setup_begin(&quorum, LONGEST_MS);
	quorum_hold_and_wait(&scene, LEASE_MS, WAIT_MS);
	for (int i = 0; i < QUORUM_SERVERS; i++) {
		server_restart(&servers[i]);
		ck_assert(WITHIN(LONGEST_MS + BACK_MS, quorum_has_leg(i)));
		ck_assert(lk_lock_is_mine(scene.lock));
	}
	ck_assert_int_eq(losses.count, 0);
	ck_assert(!scene.waiters[0].ended && !scene.waiters[1].ended);
	quorum_serve_waiters(&scene);
	ck_assert(WITHIN(BACK_MS, quorum_is_clear()));
	quorum_close_all(&scene);
}

/* ---- Q9: a clock is set forward -------------------------------------------------------------- */

/* Server 0 has a clock of its own. */
static void begin_with_a_clock(void)
{
	server_clock_begin();
	server_start(&servers[0], NULL);
	server_clock_end();
	server_start(&servers[1], NULL);
	server_start(&servers[2], NULL);
	snprintf(quorum.url, sizeof(quorum.url),
	         "redis+quorum://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", servers[0].port,
	         servers[1].port, servers[2].port);
	OK(lk_quorum_begin(quorum.url, NULL, CLOCK_LONGEST_MS));
	quorum_fault_add_proxies();
}

TEST_LIMIT(q9_hold_on_all_servers_bears_a_clock_set_forward, 30)
{
	lk_lock *wanted;
	int64_t end_ms;

	begin_with_a_clock();
	client = quorum_client(false, QUORUM_SLOW_MS);
	other = quorum_client(false, QUORUM_SLOW_MS);
	lock = hold_watched(client, "a", LEASE_MS);
	wanted = lock_leased(other, "a", LEASE_MS);
	quorum_await_legs();
	server_clock_move(60000, 0);
	for (end_ms = now_ms() + LEASE_MS + LEASE_MS / 3; now_ms() < end_ms; nap_ms(10)) {
		EXPECT(lk_lock_acquire(wanted, 0, NULL), LK_EBUSY);
		ck_assert(lk_lock_is_mine(lock));
	}
	OK(lk_lock_release(lock));
	OK(lk_lock_acquire(wanted, WAIT_MS, NULL));
	OK(lk_lock_release(wanted));
	ck_assert_int_eq(losses.count, 0);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* What is not promised: its holder does not reach the third server. */
TEST_LIMIT(q9_hold_on_a_bare_majority_does_not_bear_it, 30)
{
	const lk_lock_options options = {.lease_ms = CLOCK_LONGEST_MS, .fixed = true};
	uint64_t before, after;
	lk_lock *wanted;

	begin_with_a_clock();
	proxy_refuse(&quorum_proxies[2], true);
	client = quorum_client(true, QUORUM_SLOW_MS);
	other = quorum_client(false, QUORUM_SLOW_MS);
	lock = lock_with(client, "a", &options);
	wanted = lock_leased(other, "a", LEASE_MS);
	OK(lk_lock_acquire(lock, WAIT_MS, &before));
	EXPECT(lk_lock_acquire(wanted, 0, NULL), LK_EBUSY);
	server_clock_move(60000, 0);
	OK(lk_lock_acquire(wanted, WAIT_MS, &after));
	ck_assert(lk_lock_is_mine(lock) && lk_lock_is_mine(wanted));
	ck_assert_uint_gt(after, before);
	OK(lk_lock_release(wanted));
	lk_lock_release(lock);
	lk_client_close(client);
	OK(lk_client_close(other));
}
