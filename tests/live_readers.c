/* SPDX-License-Identifier: MIT
 * One thread reads the replies for all: who reads on when it goes, and how soon it hears of what is
 * no reply. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/proxy.h"
#include "harness/server.h"
#include "harness/test.h"

#include <pthread.h>

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
	caller->err = lk_lock_acquire(caller->lock, LK_FOREVER);
	caller->took_ms = now_ms() - start_ms;
	/* The end of a thread that holds a lock is work for the loop, which would then look around.
	 */
	pthread_barrier_wait(&done);
	return NULL;
}

/* Each reply comes when the reader of the one before has gone, and calls nothing any more. */
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

/* The reader waits for its own reply, which does not come; a wait that another one cancels ends all
 * the same, for a thread behind it stays in line. */
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
