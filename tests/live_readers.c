/* SPDX-License-Identifier: MIT
 * One thread reads the replies for all: which thread reads next when it leaves, and how soon the
 * next reader handles messages. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/proxy.h"
#include "harness/server.h"
#include "harness/test.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define LATE_MS 2000 /* far less than the loop sleeps */

static struct test_server server;
static struct proxy proxy;
static pthread_barrier_t done;

static lk_client *set_up(void)
{
	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	return client_at(proxy.url);
}

struct caller {
	pthread_t thread;
	lk_lock *lock;
	int64_t pause_ms, took_ms;
	lk_err err;
};

static void *acquire(void *arg)
{
	struct caller *caller = arg;
	int64_t start_ms;

	nap_ms(caller->pause_ms);
	start_ms = now_ms();
	caller->err = lk_lock_acquire(caller->lock, LK_FOREVER, NULL);
	caller->took_ms = now_ms() - start_ms;
	/* The end of a thread that holds a lock is work for the loop, which would then look for a
	 * reader. */
	pthread_barrier_wait(&done);
	return NULL;
}

/* Each reply arrives after the thread that read the previous one has left and makes no more
 * calls. */
TEST(reply_is_read_when_the_reader_has_gone)
{
	const struct proxy_fault slow = {.delay_ms = 50};
	lk_client *client = set_up();
	struct caller callers[THREADS];

	ck_assert(!pthread_barrier_init(&done, NULL, THREADS));
	for (int i = 0; i < THREADS; i++) {
		char name[2] = {(char)('a' + i), '\0'};
		callers[i] = (struct caller){.lock = lock_named(client, name), .pause_ms = 10 * i};
	}
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &slow);
	for (int i = 0; i < THREADS; i++)
		ck_assert(!pthread_create(&callers[i].thread, NULL, acquire, &callers[i]));
	for (int i = 0; i < THREADS; i++) {
		ck_assert(!pthread_join(callers[i].thread, NULL));
		ck_assert_int_eq(callers[i].err, LK_OK);
		ck_assert_int_ge(callers[i].took_ms, 50);
		ck_assert_msg(callers[i].took_ms < LATE_MS, "caller %d took %lld ms", i,
		              (long long)callers[i].took_ms);
	}
	OK(lk_client_close(client));
}

/* The reader waits for its own reply, which does not arrive.  Cancelling its wait ends it all the
 * same, while another thread remains in the queue. */
TEST(reader_whose_reply_is_late_hears_that_it_is_cancelled)
{
	const struct proxy_fault stall = {.stall = true};
	lk_client *client = set_up();
	struct caller first = {.lock = lock_named(client, "a")};
	struct caller second = {.lock = lock_named(client, "a"), .pause_ms = 50};
	int64_t start_ms;

	ck_assert(!pthread_barrier_init(&done, NULL, 1));
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &stall);
	ck_assert(!pthread_create(&first.thread, NULL, acquire, &first));
	ck_assert(!pthread_create(&second.thread, NULL, acquire, &second));
	nap_ms(150);
	start_ms = now_ms();
	OK(lk_lock_cancel(first.lock));
	ck_assert(!pthread_join(first.thread, NULL));
	ck_assert_int_eq(first.err, LK_ECANCELED);
	ck_assert_int_lt(now_ms() - start_ms, LATE_MS / 4);
	proxy_heal(&proxy);
	ck_assert(!pthread_join(second.thread, NULL));
	ck_assert_int_eq(second.err, LK_OK);
	OK(lk_client_close(client));
}

/* ---- Messages ----------------------------------------------------------------------------- */

static lk_client *waiting, *holding;

static void two_clients(void)
{
	server_start(&server, NULL);
	waiting = client_at(server.url);
	holding = client_at(server.url);
}

static void close_both(void)
{
	OK(lk_client_close(waiting));
	OK(lk_client_close(holding));
}

static bool stands_in_line(lk_lock *lock)
{
	lk_lock_status status;

	OK(lk_lock_query(lock, &status));
	return status.queue_len > 0;
}

static void start(struct caller *caller, lk_lock *lock)
{
	*caller = (struct caller){.lock = lock};
	ck_assert(!pthread_create(&caller->thread, NULL, acquire, caller));
}

static atomic_bool lost;

static void on_lost(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	(void)arg;
	(void)lock;
	(void)fence;
	lost = reason == LK_LOST_BROKEN;
}

/* It read messages itself while it waited; now that it holds the lock, the loop reads. */
TEST(who_waited_alone_hears_of_a_break)
{
	const lk_lock_options options = {.on_lost = on_lost};
	struct caller caller;
	lk_lock *held;

	two_clients();
	ck_assert(!pthread_barrier_init(&done, NULL, 2));
	held = lock_named(holding, "a");
	OK(lk_lock_acquire(held, 0, NULL));
	start(&caller, lock_with(waiting, "a", &options));
	ck_assert(WITHIN(5000, stands_in_line(held)));
	OK(lk_lock_release(held));
	ck_assert(WITHIN(5000, !stands_in_line(held)));
	OK(lk_lock_break(held, NULL));
	ck_assert(WITHIN(LATE_MS, lost)); /* a renewal would find it after a third of 10 s */
	pthread_barrier_wait(&done);
	ck_assert(!pthread_join(caller.thread, NULL));
	close_both();
}

/* The thread that read messages gets its lock and leaves.  The other waiter does not depend on a
 * timer to become the next reader: most often it gets its own lock at once. */
TEST(second_waiter_is_heard_for_when_the_first_has_gone)
{
	int prompt = 0;

	two_clients();
	ck_assert(!pthread_barrier_init(&done, NULL, 1));
	for (int i = 0; i < 9; i++) {
		lk_lock *held[2] = {lock_named(holding, "a"), lock_named(holding, "b")};
		lk_lock *wanted[2] = {lock_named(waiting, "a"), lock_named(waiting, "b")};
		struct caller callers[2];
		int64_t start_ms;

		for (int k = 0; k < 2; k++) {
			OK(lk_lock_acquire(held[k], 1000, NULL));
			start(&callers[k], wanted[k]);
			ck_assert(WITHIN(5000, stands_in_line(held[k])));
		}
		OK(lk_lock_release(held[0]));
		ck_assert(!pthread_join(callers[0].thread, NULL));
		start_ms = now_ms();
		OK(lk_lock_release(held[1]));
		ck_assert(!pthread_join(callers[1].thread, NULL));
		prompt += now_ms() - start_ms < 50;
		for (int k = 0; k < 2; k++) {
			OK(lk_lock_close(wanted[k]));
			OK(lk_lock_close(held[k]));
		}
	}
	ck_assert_int_ge(prompt, 5);
	close_both();
}

/* When both have their responses, two threads wait: the loop reads for them at once, and not only
 * when its sleep ends. */
TEST(two_who_wait_after_one_who_waited_alone_are_heard_for)
{
	const struct proxy_fault slow = {.delay_ms = 30};
	int prompt = 0;

	waiting = set_up();
	holding = client_at(server.url);
	ck_assert(!pthread_barrier_init(&done, NULL, 1));
	for (int i = 0; i < 9; i++) {
		lk_lock *held[2] = {lock_named(holding, "a"), lock_named(holding, "b")};
		lk_lock *wanted[2] = {lock_named(waiting, "a"), lock_named(waiting, "b")};
		struct caller callers[2];
		int64_t start_ms;

		OK(lk_lock_acquire(held[0], 1000, NULL));
		start(&callers[0], wanted[0]);
		ck_assert(WITHIN(5000, stands_in_line(held[0])));
		OK(lk_lock_release(held[0])); /* the end of its thread releases it */
		ck_assert(!pthread_join(callers[0].thread, NULL));
		for (int k = 0; k < 2; k++)
			OK(lk_lock_acquire(held[k], 1000, NULL));
		proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &slow);
		for (int k = 0; k < 2; k++)
			start(&callers[k], wanted[k]);
		nap_ms(45); /* their responses, that they are queued, have arrived */
		start_ms = now_ms();
		for (int k = 0; k < 2; k++)
			OK(lk_lock_release(held[k]));
		for (int k = 0; k < 2; k++)
			ck_assert(!pthread_join(callers[k].thread, NULL));
		prompt += now_ms() - start_ms < 25;
		proxy_heal(&proxy);
		for (int k = 0; k < 2; k++) {
			OK(lk_lock_close(wanted[k]));
			OK(lk_lock_close(held[k]));
		}
	}
	ck_assert_msg(prompt >= 5, "%d of 9 in time", prompt);
	close_both();
}
