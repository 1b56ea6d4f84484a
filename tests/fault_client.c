/* SPDX-License-Identifier: MIT
 * Faults inside a client's process (C17 to C19, C26, C27 of the fault list): signals, no free
 * descriptors, closing while calls are in progress, callbacks. */
#include "harness/primitive.h"
#include "harness/watch.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

/* ---- Signals ------------------------------------------------------------------------------ */

static volatile sig_atomic_t alarms;

static void count_alarm(int number)
{
	(void)number;
	alarms++;
}

TEST_OF(c17_storm_of_signals_changes_nothing, EVERY, 20)
{
	const struct itimerval every_ms = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = count_alarm}; /* no SA_RESTART */
	lk_client *client, *other;
	struct claims held, waits;

	fault_set_up(NULL);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every_ms, NULL);
	client = client_at(server.url);
	other = client_at(server.url);
	claims_open(&waits, set, client, 0);
	for (int i = 0; i < 100; i++) {
		EACH (claim, &waits) {
			OK(claim->primitive->hold(claim, 0));
			OK(claim->primitive->query(claim));
		}
		claims_expect_held(&waits);
		claims_release(&waits);
	}
	claims_hold(&held, set, other, 0);
	for (int i = 0; i < 2; i++) {
		EACH (claim, &waits) { /* in this thread, which gets the signals */
			int64_t start_us = now_us();
			EXPECT(claim->primitive->wait(claim, 150), LK_ETIMEDOUT);
			ck_assert_int_ge(now_us() - start_us, 149000);
			ck_assert_int_le(now_us() - start_us, 400000);
		}
	}
	claims_release(&held);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	setitimer(ITIMER_REAL, &never, NULL);
	ck_assert_int_gt(alarms, 300);
	ck_assert(claims_at_rest(set));
}

TEST_OF(c18_broken_pipe_does_not_kill_the_process, LEASED, 30)
{
	const lk_client_options options = {.command_timeout_ms = 300};
	struct claims claims;
	lk_client *client;

	fault_set_up(NULL);
	signal(SIGPIPE, SIG_DFL);
	client = client_with(server.unix_url, &options); /* a Unix socket breaks at once */
	claims_open(&claims, set, client, 300);
	for (int i = 0; i < 3; i++) {
		EACH (claim, &claims)
			ck_assert(WITHIN(BACK_MS, claim->primitive->wait(claim, 500) == LK_OK));
		server_kill(&server);
		EACH (claim, &claims) {
			claim->primitive->release(claim);
			ck_assert_int_ne(claim->primitive->wait(claim, 0), LK_OK);
			claim->primitive->release(claim);
		}
		server_restart(&server);
	}
	claims_hold_again(&claims);
	OK(lk_client_close(client));
}

/* ---- Descriptors -------------------------------------------------------------------------- */

TEST_OF(c19_no_descriptor_left_is_an_error_and_holds_go_on, EVERY, 20)
{
	struct rlimit all, few;
	lk_client *client, *none = NULL;
	struct claims held;
	int fds;

	fault_set_up_proxy();
	client = client_at(proxy.url);
	claims_hold(&held, set, client, 900);
	fds = proc_fd_count(0);
	ck_assert(!getrlimit(RLIMIT_NOFILE, &all));
	for (rlim_t spare = 0; spare < 4; spare++) {
		/* The lowest free descriptor is used first, so some may be free below the limit. */
		few = all;
		few.rlim_cur = (rlim_t)fds + spare;
		ck_assert(!setrlimit(RLIMIT_NOFILE, &few));
		if (lk_client_open(server.url, NULL, &none) == LK_OK) {
			ck_assert(!setrlimit(RLIMIT_NOFILE, &all));
			ck_abort_msg("%d descriptors were enough", (int)spare);
		}
		EXPECT(lk_client_open(server.url, NULL, &none), LK_ESYSTEM);
		ck_assert_ptr_null(none);
		few.rlim_cur = all.rlim_cur;
		ck_assert(!setrlimit(RLIMIT_NOFILE, &few));
		ck_assert_int_eq(proc_fd_count(0), fds);
	}
	few.rlim_cur = (rlim_t)fds;
	ck_assert(!setrlimit(RLIMIT_NOFILE, &few));
	claims_stay_held(&held, 1500);
	claims_expect_held(&held);
	/* Its links are cut and cannot be replaced: lost in time, and working again afterwards. */
	proxy_cut(&proxy, PROXY_MESSAGES, false);
	nap_ms(100);
	few.rlim_cur = all.rlim_cur;
	ck_assert(!setrlimit(RLIMIT_NOFILE, &few));
	claims_await_link(&held);
	claims_release(&held);
	claims_hold_again(&held);
	OK(lk_client_close(client));
	ck_assert(claims_at_rest(set));
}

/* ---- Closing and callbacks ---------------------------------------------------------------- */

static atomic_int inside; /* a callback is running */
static atomic_int told;

static void slow_callback(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	(void)arg;
	(void)reason;
	inside = 1;
	nap_ms(300);
	ck_assert_uint_eq(hold_of(lock).fence ? hold_of(lock).fence : fence, fence);
	told++;
	inside = 0;
}

TEST(c26_close_in_the_middle_of_everything_joins_all)
{
	const lk_lock_options options = {.on_lost = slow_callback, .owner = LK_OWNER_HANDLE};
	int threads, fds;

	fault_set_up_proxy();
	threads = proc_thread_count(0);
	fds = proc_fd_count(0);
	for (int i = 0; i < 4; i++) {
		struct waiter waiters[4];
		lk_client *client = client_at(server.url), *holder = client_at(server.url);
		lk_lock *held = lock_named(holder, "a");
		lk_lock *lost = lock_with(client, "lost", &options);
		OK(lk_lock_acquire(held, 1000, NULL));
		OK(lk_lock_acquire(lost, 1000, NULL));
		OK(lk_lock_acquire(lock_named(client, "mine"), 1000, NULL));
		for (int j = 0; j < 4; j++)
			waiter_start(&waiters[j], lock_of_handle(client, "a", 1000 + j % 2),
			             LK_FOREVER, true);
		ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 2));
		nap_ms(50); /* all four are inside: the outside cannot observe this */
		if (i % 2) {
			OK(lk_lock_break(lock_named(holder, "lost"), NULL));
			ck_assert(WITHIN(2000, inside));
		}
		OK(lk_client_close(client));
		ck_assert(!inside); /* it has waited for the callback */
		for (int j = 0; j < 4; j++)
			EXPECT(waiter_join(&waiters[j]), LK_ECLOSED);
		ck_assert_int_eq(redis_int(redis, "EXISTS lk:{mine} lk:{lost}"), 0);
		ck_assert_int_eq(redis_int(redis, "ZCARD lk:{a}:q"), 0);
		OK(lk_client_close(holder));
	}
	ck_assert_int_eq(told, 2);
	/* A joined thread may be visible a moment longer; the thread sanitizer has its own. */
	ck_assert(WITHIN(1000, proc_thread_count(0) <= threads + TSAN));
	ck_assert_int_eq(proc_fd_count(0), fds);
	ck_assert_int_eq(redis_size(redis), 1);
}

TEST(c26_close_of_a_lock_waits_for_its_callback)
{
	const lk_lock_options options = {.on_lost = slow_callback};
	lk_client *client;
	lk_lock *lock, *tool;

	fault_set_up_proxy();
	client = client_at(server.url);
	tool = lock_named(client, "a");
	lock = lock_with(client, "a", &options);
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_break(tool, NULL));
	ck_assert(WITHIN(2000, inside));
	OK(lk_lock_close(lock));
	ck_assert(!inside);
	ck_assert_int_eq(told, 1);
	OK(lk_client_close(client));
}

static lk_client *callback_client;
static lk_lock *callback_lock;
static lk_err close_client_err, close_lock_err, acquire_err;

static void busy_callback(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	(void)arg;
	(void)fence;
	(void)reason;
	acquire_err = lk_lock_acquire(callback_lock, 1000, NULL);
	if (!acquire_err)
		acquire_err = lk_lock_release(callback_lock);
	close_client_err = lk_client_close(callback_client);
	close_lock_err = lk_lock_close(lock);
	nap_ms(1500); /* five leases of another lock */
	told++;
}

TEST(c27_callback_that_calls_back_and_blocks_delays_no_renewal)
{
	const lk_lock_options options = {.on_lost = busy_callback};
	lk_lock *lock, *held;

	fault_set_up_proxy();
	callback_client = client_at(server.url);
	callback_lock = lock_named(callback_client, "from-callback");
	held = hold_watched(callback_client, "held", 300);
	lock = lock_with(callback_client, "a", &options);
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_break(lock_named(callback_client, "a"), NULL));
	stays_held(held, 1700);
	ck_assert(WITHIN(2000, told == 1));
	OK(acquire_err);
	ck_assert_int_eq(close_client_err, LK_EDEADLOCK);
	ck_assert_int_eq(close_lock_err, LK_EDEADLOCK);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(lk_client_close(callback_client));
}
