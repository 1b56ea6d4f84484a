/* SPDX-License-Identifier: MIT
 * TLS in a process: threads that share a connection, fork(), exit(), and what an operation costs.
 */
#include "harness/calls.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/test.h"
#include "harness/tls_store.h"

#include "net/fork.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tls_redis tls;

/* ---- Threads and processes ---------------------------------------------------------------- */

#define THREADS 8

static lk_client *shared_client;

static void *work(void *arg)
{
	char name[16];
	lk_lock *lock;

	snprintf(name, sizeof(name), "n%d", (int)(intptr_t)arg % (THREADS / 2));
	lock = lock_named(shared_client, name);
	for (int64_t end_ms = now_ms() + 1500; now_ms() < end_ms;) {
		OK(lk_lock_acquire(lock, LK_FOREVER, NULL));
		OK(lk_lock_release(lock));
	}
	return NULL;
}

TEST(threads_share_a_connection)
{
	pthread_t threads[THREADS];
	lk_counters counters;

	tls_redis_start(&tls, NULL);
	shared_client = client_at(tls.url);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	OK(lk_client_counters(shared_client, &counters));
	ck_assert_int_eq(counters.connected, 1);
	ck_assert_int_eq(counters.failed, 0);
	ck_assert_int_gt(counters.acquired, 100);
	OK(lk_client_close(shared_client));
}

static int64_t renewals_of(lk_client *client)
{
	lk_counters counters;

	OK(lk_client_counters(client, &counters));
	return counters.renewed;
}

TEST(child_leaves_the_connection_of_its_parent_alone)
{
	lk_client *client;
	lk_lock *lock;
	int status;
	pid_t pid;

	tls_redis_start(&tls, NULL);
	client = client_at(tls.url);
	lock = lock_leased(client, "a", 3000);
	OK(lk_lock_acquire(lock, 1000, NULL));
	pid = fork();
	if (!pid) {
		lk_client *own;
		int bad = lk_lock_release(lock) != LK_EFORKED;
		bad |= (lk_client_close(client) != LK_EFORKED) << 1;
		if (TSAN) /* cannot start a thread here: see fault_process.c */
			_exit(bad);
		bad |= (lk_client_open(tls.url, NULL, &own) != LK_OK) << 2;
		bad |= (lk_client_close(own) != LK_OK) << 3;
		_exit(bad);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert(WITHIN(10000, renewals_of(client) >= 2));
	ck_assert_int_eq(hold_of(lock).state, LK_STATE_HELD);
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}

static atomic_bool churn_ends;

/* Make handshakes without a pause. */
static void *churn(void *arg)
{
	(void)arg;
	while (!churn_ends)
		OK(lk_client_close(client_at(tls.url)));
	return NULL;
}

static void *hold_for_a_while(void *arg)
{
	lk__fork_hold();
	atomic_store((atomic_bool *)arg, true);
	nap_ms(300);
	lk__fork_let();
	/* The thread sanitizer takes a thread that ended for a leak of the child. */
	while (atomic_load((atomic_bool *)arg))
		nap_ms(1);
	return NULL;
}

TEST(fork_waits_for_openssl_and_its_child_does_not)
{
	atomic_bool held = false;
	pthread_t thread;
	int64_t start_ms;
	int status;
	pid_t pid;

	ck_assert(lk__fork_watch());
	start_ms = now_ms();
	pthread_create(&thread, NULL, hold_for_a_while, &held);
	ck_assert(WITHIN(5000, held));
	pid = fork();
	if (!pid) {
		alarm(5);
		lk__fork_hold();
		lk__fork_let();
		_exit(0);
	}
	ck_assert_int_ge(now_ms() - start_ms, 300);
	lk__fork_hold();
	lk__fork_let();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	held = false;
	pthread_join(thread, NULL);
}

/* A child that got a lock of OpenSSL which a thread of its parent held would wait without end.
 * LK_LONG=1: without lk__fork_hold(), about one child in 500 did. */
TEST_LIMIT(c13_child_of_a_parent_in_handshakes_opens_a_client, 120)
{
	/* TSAN: see fault_process.c.  The allocator of gcc 12's address sanitizer has OpenSSL's
	 * fault: a child that allocates waits for a lock that a thread of its parent held. */
	const int forks = TSAN || ASAN ? 0 : getenv("LK_LONG") ? 1500 : 60;
	pthread_t threads[2];

	tls_redis_start(&tls, NULL);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, churn, NULL);
	for (int i = 0; i < forks; i++) {
		int status;
		pid_t pid = fork();
		if (!pid) {
			lk_client *own;
			alarm(10);
			_exit(lk_client_open(tls.url, NULL, &own) || lk_client_close(own));
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
	}
	churn_ends = true;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

static lk_lock *last_lock;

/* Runs after OpenSSL's own function of exit(), which must not free what renewals and reconnects
 * use. */
static void look_at_exit(void)
{
	lk_client *client;

	nap_ms(400);
	if (lk_lock_state(last_lock) != LK_STATE_HELD)
		_exit(5);
	if (lk_client_open(tls.url, NULL, &client) != LK_OK)
		_exit(6);
}

static int exit_while_renewing(void *arg, int in, int out)
{
	const lk_lock_options options = {.lease_ms = 200};
	lk_client *client;

	(void)arg;
	(void)in;
	(void)out;
	if (atexit(look_at_exit) || lk_client_open(tls.url, NULL, &client) ||
	    lk_lock_open(client, "a", 0, &options, &last_lock) ||
	    lk_lock_acquire(last_lock, 1000, NULL))
		return 2;
	exit(0);
}

TEST(exit_while_renewing_is_clean)
{
	struct process process;

	tls_redis_start(&tls, NULL);
	process_start(&process, exit_while_renewing, NULL);
	ck_assert(process_succeeded(&process, 10000));
}

/* ---- Costs -------------------------------------------------------------------------------- */

#define EACH 48

static lk_lock *pair_lock;

static void prepare_pairs(void *arg)
{
	(void)arg;
	pair_lock = lock_named(client_at(tls.url), "a");
	OK(lk_lock_acquire(pair_lock, 1000, NULL));
	OK(lk_lock_release(pair_lock));
}

static void do_pairs(void *arg)
{
	(void)arg;
	for (int i = 0; i < EACH; i++) {
		DO(lk_lock_acquire(pair_lock, i & 1 ? 0 : LK_FOREVER, NULL));
		DO(lk_lock_release(pair_lock));
	}
}

TEST(uncontended_pair_takes_four_system_calls)
{
	const struct calls_work plan = {prepare_pairs, do_pairs, NULL, EACH};
	struct calls calls;

	if (TSAN || ASAN)
		return;
	tls_redis_start(&tls, NULL);
	calls = calls_of(&plan);
	ck_assert_msg(calls.sends == 2 && calls.receives == 2 && calls.all == 4,
	              "%.2f calls: %.2f sends, %.2f receives, %.2f polls", calls.all, calls.sends,
	              calls.receives, calls.polls);
}
