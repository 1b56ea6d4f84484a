/* SPDX-License-Identifier: MIT
 * The requests that each operation costs a quorum of three servers.  A machine that stalls may
 * cause a few more, or fewer to a server that is behind, so one of several turns must have the
 * number. */
#include "harness/calls.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/quorum_setup.h"
#include "harness/redis.h"
#include "harness/test.h"

#include <pthread.h>
#include <stdio.h>

#define N QUORUM_SERVERS
#define TURNS 40
#define EACH 20
#define LATE_MS 200 /* the slowest server executes a request after the call has returned */
#define LEASE_MS 1500
#define REST_MS 100 /* less than the time between renewals */

static struct quorum_setup setup;
static struct redis *servers[N];

static lk_client *set_up(void)
{
	lk_client *client;

	quorum_setup_begin(&setup, 0);
	for (int i = 0; i < N; i++)
		servers[i] = redis_open(&setup.servers[i]);
	client = client_at(setup.url);
	OK(lk_lock_acquire(lock_named(client, "a"), 5000, NULL));
	OK(lk_lock_release(lock_named(client, "a")));
	return client;
}

static long long requests(void)
{
	long long all = 0;

	for (int i = 0; i < N; i++)
		all += redis_script_calls(servers[i]);
	return all;
}

/* Each of these pieces of work takes so many requests.  The next one begins when all servers have
 * executed them: a server that is behind is not asked. */
static void takes(long long expected, int pieces, void (*work)(void *arg), void *arg)
{
	long long before, took;
	int turns = 0;

	do {
		before = requests();
		for (int i = 1; i <= pieces; i++) {
			work(arg);
			(void)WITHIN(LATE_MS, requests() - before >= i * expected);
		}
		took = requests() - before;
	} while (took != pieces * expected && ++turns < TURNS);
	ck_assert_msg(took == pieces * expected, "%lld requests, not %lld", took,
	              pieces * expected);
}

/* ---- Alone --------------------------------------------------------------------------------- */

static void acquire_and_release(void *lock)
{
	for (int i = 0; i < 2; i++) {
		OK(lk_lock_acquire(lock, i & 1 ? 0 : LK_FOREVER, NULL));
		OK(lk_lock_release(lock));
	}
}

TEST(acquire_and_release_take_two_requests_a_server)
{
	lk_client *client = set_up();

	takes(2 * 2 * N, EACH / 2, acquire_and_release, lock_named(client, "a"));
	OK(lk_client_close(client));
}

static void reenter(void *lock)
{
	for (int i = 0; i < EACH; i++)
		OK(lk_lock_acquire(lock, 0, NULL));
	for (int i = 0; i < EACH; i++)
		OK(lk_lock_release(lock));
	for (int i = 0; i < EACH; i++)
		ck_assert(lk_lock_is_mine(lock));
}

TEST(reentry_takes_no_request_of_a_quorum)
{
	lk_client *client = set_up();
	lk_lock *lock = lock_named(client, "a");

	OK(lk_lock_acquire(lock, 5000, NULL));
	takes(0, 1, reenter, lock);
	OK(lk_client_close(client));
}

static void query(void *lock)
{
	lk_lock_status status;

	OK(lk_lock_query(lock, &status));
}

static void extend(void *lock)
{
	OK(lk_lock_extend(lock, 10000));
}

TEST(query_and_extension_take_a_request_a_server)
{
	lk_client *client = set_up();
	lk_lock *lock = lock_named(client, "a");

	takes(N, EACH, query, lock);
	OK(lk_lock_acquire(lock, 5000, NULL));
	takes(N, EACH, query, lock);
	takes(N, EACH, extend, lock);
	OK(lk_client_close(client));
}

static void await_renewal(void *arg)
{
	long long before = requests();

	(void)arg;
	ck_assert(WITHIN(5 * LEASE_MS, requests() > before));
	nap_ms(REST_MS);
}

TEST(renewal_takes_a_request_a_server)
{
	lk_client *client = set_up();

	OK(lk_lock_acquire(lock_leased(client, "renewed", LEASE_MS), 5000, NULL));
	takes(N, 1, await_renewal, NULL);
	OK(lk_client_close(client));
}

/* ---- Contended ----------------------------------------------------------------------------- */

struct pair {
	lk_lock *holder, *waiter;
};

static void *wait_and_release(void *lock)
{
	OK(lk_lock_acquire(lock, LK_FOREVER, NULL));
	OK(lk_lock_release(lock));
	return NULL;
}

static bool waits_everywhere(void)
{
	for (int i = 0; i < N; i++)
		if (redis_int(servers[i], "ZCARD lk:{a}:q") != 1)
			return false;
	return true;
}

static void hand_off(void *arg)
{
	const struct pair *pair = arg;
	pthread_t thread;

	OK(lk_lock_acquire(pair->holder, LK_FOREVER, NULL));
	ck_assert(!pthread_create(&thread, NULL, wait_and_release, pair->waiter));
	ck_assert(WITHIN(10000, waits_everywhere()));
	OK(lk_lock_release(pair->holder));
	pthread_join(thread, NULL);
}

TEST(hand_off_takes_two_requests_a_server)
{
	lk_client *client = set_up(), *other = client_at(setup.url);
	struct pair pair = {lock_named(client, "a"), lock_named(other, "a")};

	takes(2 * 2 * N, 1, hand_off, &pair);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* ---- System calls ---------------------------------------------------------------------------- */

static lk_lock *counted;

static void open_counted(void *arg)
{
	(void)arg;
	counted = lock_named(client_at(setup.url), "a");
	OK(lk_lock_acquire(counted, 5000, NULL));
	OK(lk_lock_release(counted));
}

static void use_counted(void *arg)
{
	(void)arg;
	for (int i = 0; i < EACH; i++) {
		DO(lk_lock_acquire(counted, LK_FOREVER, NULL));
		DO(lk_lock_release(counted));
	}
}

/* The thread of the call polls all servers itself, and not again for each of their answers. */
TEST(acquire_and_release_wake_no_other_thread)
{
	const struct calls_work plan = {open_counted, use_counted, NULL, EACH};
	struct calls calls;

	if (TSAN || ASAN)
		return;
	OK(lk_client_close(set_up()));
	calls = calls_of(&plan);
	printf("pair: %.2f calls: %.2f sends, %.2f receives, %.2f polls, %.2f sleeps, %.2f wakes\n",
	       calls.all, calls.sends, calls.receives, calls.polls, calls.sleeps, calls.wakes);
	/* The answer of one server decides nothing, and may not have come yet when it is read. */
	ck_assert_msg(calls.sends < 2 * N + 0.5 && calls.receives < 2 * (N + 1) + 0.5,
	              "%.2f sends, %.2f receives", calls.sends, calls.receives);
	ck_assert_msg(calls.sleeps < 0.5 && calls.wakes < 0.5 && calls.polls < 3.5,
	              "%.2f sleeps, %.2f wakes, %.2f polls", calls.sleeps, calls.wakes,
	              calls.polls);
}
