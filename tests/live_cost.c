/* SPDX-License-Identifier: MIT
 * The system calls that an operation costs, in all threads of the process, so that an increase
 * fails a test.  The limits do not depend on the machine: the cheapest of several turns counts.
 * Sanitizers make calls of their own, so their builds leave this out. */
#include "harness/calls.h"
#include "harness/handles.h"
#include "harness/operations.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EACH 48 /* operations a turn */
#define THREADS 4
#define LOCKS 1000

static struct test_server server;
static lk_client *client;
static lk_lock *lock;
static const struct operation *operation;
static void *handle; /* of the operation */

static struct calls measure(const char *what, void (*prepare)(void *), void (*work)(void *),
                            int each)
{
	const struct calls_work plan = {prepare, work, NULL, each};
	struct calls calls = {0};

	if (TSAN || ASAN)
		return calls;
	server_start(&server, NULL);
	calls = calls_of(&plan);
	server_stop(&server);
	printf("%s: %.2f calls: %.2f sends, %.2f receives, %.2f polls, %.2f sleeps, %.2f wakes, "
	       "%.2f timers, %.2f of descriptors, %.2f of memory\n",
	       what, calls.all, calls.sends, calls.receives, calls.polls, calls.sleeps, calls.wakes,
	       calls.timers, calls.descriptors, calls.memory);
	return calls;
}

/* ---- Operations without contention -------------------------------------------------------- */

static void open_operation(void *arg)
{
	(void)arg;
	handle = operation->open(client_at(server.url));
}

static void run_operation(void *arg)
{
	(void)arg;
	operation->run(handle);
}

/* A request takes one call to send, and one to receive. */
TEST_LIMIT(operations_take_two_system_calls_a_request, 60)
{
	if (TSAN || ASAN)
		return;
	for (const struct operation *each = operations; each->name; each++) {
		struct calls calls;
		operation = each;
		calls = measure(each->name, open_operation, run_operation, OPERATIONS_EACH);
		ck_assert_msg(calls.sends == each->requests && calls.receives == each->requests &&
		                      calls.all == 2 * each->requests,
		              "%s: %.2f calls, not %d: %.2f sends, %.2f receives, %.2f polls",
		              each->name, calls.all, 2 * each->requests, calls.sends,
		              calls.receives, calls.polls);
	}
}

/* Return the number of commands that clients sent since the last mark, without those of scripts. */
static int commands_seen(struct redis *redis, struct monitor *monitor)
{
	const char *line;
	int seen = 0;

	redis_do(redis, "ECHO the-mark");
	while ((line = monitor_next(monitor, 5000)) && !strstr(line, "the-mark"))
		seen += !strstr(line, " lua] ");
	ck_assert_ptr_nonnull(line);
	return seen;
}

/* A request that shares its packets with another costs no system call. */
TEST(operations_send_their_scripts_and_nothing_else)
{
	struct monitor *monitor;
	struct redis *redis;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	monitor = monitor_open(&server);
	for (const struct operation *each = operations; each->name; each++) {
		void *opened = each->open(client);
		nap_ms(50); /* the description of the client is sent by now */
		commands_seen(redis, monitor);
		each->run(opened);
		ck_assert_msg(commands_seen(redis, monitor) == each->requests * OPERATIONS_EACH,
		              "%s sends other commands", each->name);
	}
	monitor_close(monitor);
}

/* ---- Processes ---------------------------------------------------------------------------- */

static void have_lock(void *arg)
{
	(void)arg;
	client = client_at(server.url);
	lock = lock_named(client, "a");
	OK(lk_lock_acquire(lock, 1000, NULL));
	OK(lk_lock_release(lock));
}

/* Another process always wants the lock as well, and holds it briefly. */
static int rival(void *arg, int in, int out)
{
	(void)in;
	(void)out;
	have_lock(arg);
	for (;;) {
		DO(lk_lock_acquire(lock, LK_FOREVER, NULL));
		nap_ms(1);
		DO(lk_lock_release(lock));
	}
}

static void have_a_rival(void *arg)
{
	struct process process;

	process_start(&process, rival, arg);
	have_lock(arg);
}

static void queue_for_lock(void *arg)
{
	(void)arg;
	for (int i = 0; i < EACH; i++) {
		DO(lk_lock_acquire(lock, LK_FOREVER, NULL));
		DO(lk_lock_release(lock));
	}
}

/* The waiting thread itself reads the message that grants the lock: no other thread wakes. */
TEST(hand_off_between_processes_wakes_one_thread)
{
	struct calls calls = measure("hand-off", have_a_rival, queue_for_lock, EACH);

	if (TSAN || ASAN)
		return;
	ck_assert_msg(calls.sends < 2.1 && calls.receives < 3.1 && calls.polls < 1.2,
	              "%.2f sends, %.2f receives, %.2f polls", calls.sends, calls.receives,
	              calls.polls);
	ck_assert_msg(calls.sleeps < 0.1 && calls.wakes < 0.1, "%.2f sleeps, %.2f wakes",
	              calls.sleeps, calls.wakes);
	ck_assert_msg(calls.all < 6.5, "%.2f calls", calls.all);
}

/* ---- Threads ------------------------------------------------------------------------------ */

static pthread_barrier_t turn;

/* Hand the lock over between the threads of one process.  The holder keeps it until all others
 * wait. */
static void *pass_on(void *arg)
{
	(void)arg;
	for (;;) {
		pthread_barrier_wait(&turn);
		for (int i = 0; i < EACH / THREADS; i++) {
			DO(lk_lock_acquire(lock, LK_FOREVER, NULL));
			nap_ms(2);
			DO(lk_lock_release(lock));
		}
		pthread_barrier_wait(&turn);
	}
}

static void have_threads(void *arg)
{
	pthread_t thread;

	have_lock(arg);
	ck_assert(!pthread_barrier_init(&turn, NULL, THREADS + 1));
	for (int i = 0; i < THREADS; i++)
		ck_assert(!pthread_create(&thread, NULL, pass_on, NULL));
}

static void let_them_pass(void *arg)
{
	(void)arg;
	pthread_barrier_wait(&turn);
	pthread_barrier_wait(&turn);
}

TEST(hand_over_wakes_one_thread)
{
	struct calls calls = measure("hand-over", have_threads, let_them_pass, EACH);

	if (TSAN || ASAN)
		return;
	/* The test's own calls are the naps, and the barrier of each turn. */
	ck_assert_msg(calls.sends <= 0.1 && calls.sleeps <= 1.2 && calls.wakes <= 1.2 &&
	                      calls.all - 1 <= 2.6,
	              "%.2f calls", calls.all);
}

/* ---- Renewals ----------------------------------------------------------------------------- */

static void hold_many(void *arg)
{
	(void)arg;
	client = client_at(server.url);
	for (int i = 0; i < LOCKS; i++) {
		char name[32];
		snprintf(name, sizeof(name), "held-%d", i);
		OK(lk_lock_acquire(lock_leased(client, name, 1500), 1000, NULL));
	}
}

/* Two periods; in each, every hold is renewed once. */
static void let_time_pass(void *arg)
{
	(void)arg;
	nap_ms(1000);
}

TEST_LIMIT(renewals_of_a_thousand_holds_share_system_calls, 60)
{
	struct calls calls = measure("renewal", hold_many, let_time_pass, 2 * LOCKS);

	if (TSAN || ASAN)
		return;
	ck_assert_msg(calls.sends > 0 && calls.sends <= 0.1 && calls.all <= 0.5,
	              "%.3f sends, %.3f calls", calls.sends, calls.all);
}
