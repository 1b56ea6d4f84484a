/* SPDX-License-Identifier: MIT
 * The end of a program, or of the library in it (C28 of the fault list): a program that unloads the
 * library, or ends, during calls does not crash and does not hang. */
#include "harness/handles.h"
#include "harness/loaded_library.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"
#include "harness/watch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_server server;
static struct redis *redis;

/* The shared library of this build, beside the folder of this program. */
static void load(void)
{
	char path[4200];
	ssize_t len = readlink("/proc/self/exe", path, 4096);

	ck_assert_int_gt(len, 0);
	path[len] = 0;
	snprintf(strstr(path, "/tests/"), 64, "/liblatchkey.so");
	library_load(path);
	/* It is a different copy from the one linked to this program. */
	ck_assert_ptr_ne(*(void **)&lib.lock_acquire,
	                 *(void **)&(lk_err(*)(lk_lock *, int64_t, uint64_t *)){lk_lock_acquire});
}

struct user {
	lk_lock *lock;
	atomic_bool holds, may_end;
};

/* A thread of the program that has used the library, and outlives it. */
static void *use(void *arg)
{
	struct user *user = arg;

	OK(lib.lock_acquire(user->lock, 5000, NULL));
	OK(lib.lock_release(user->lock));
	user->holds = true;
	WITHIN(10000, user->may_end);
	return NULL;
}

/* A worker: loads, uses and unloads the library, with its client closed or not. */
static int unload(void *arg, int in, int out)
{
	bool closes = *(bool *)arg;
	struct user user = {.lock = NULL};
	int threads = proc_thread_count(0);
	pthread_t thread;
	lk_client *client;
	lk_lock *lock;

	(void)out;
	if (!line_read(in, 10000))
		return 2;
	load();
	OK(lib.client_open(server.url, NULL, &client));
	OK(lib.lock_open(client, "a", 0, &(lk_lock_options){.lease_ms = 300}, &lock));
	OK(lib.lock_open(client, "b", 0, NULL, &user.lock));
	pthread_create(&thread, NULL, use, &user);
	ck_assert(WITHIN(5000, user.holds));
	OK(lib.lock_acquire(lock, 1000, NULL));
	if (closes) {
		OK(lib.client_close(client));
		ck_assert(WITHIN(1000, proc_thread_count(0) <= threads + 1 + TSAN));
	}
	ck_assert_int_eq(dlclose(lib.handle), 0);
	nap_ms(350); /* renewals would run, if a thread was left */
	user.may_end = true;
	pthread_join(thread, NULL);
	nap_ms(50);
	return 0;
}

TEST(c28_no_thread_runs_code_that_was_unloaded)
{
	for (int closes = 1; closes >= 0; closes--) {
		bool arg = closes;
		struct process worker;

		server_start(&server, NULL);
		process_start(&worker, unload, &arg);
		line_write(worker.in, "go");
		ck_assert_msg(process_succeeded(&worker, 10000),
		              "the program fails; its client was %s", closes ? "closed" : "open");
		server_stop(&server);
	}
}

static lk_lock *kept;
static lk_client *keeper;

/* Exit handlers run in reverse order: the calls here still work. */
static void release_at_exit(void)
{
	lk_err err = lk_lock_release(kept);

	if (err != LK_OK)
		_exit(40 + (int)err);
	if (lk_client_close(keeper) != LK_OK)
		_exit(4);
}

/* A worker that calls exit() while it holds, waits, and receives losses. */
static int leave(void *arg, int in, int out)
{
	bool tidy = *(bool *)arg;
	struct waiter waiters[3];
	lk_client *client;

	(void)out;
	if (!line_read(in, 10000))
		return 2;
	client = client_at(server.url);
	if (tidy) {
		ck_assert_int_eq(atexit(release_at_exit), 0);
		keeper = client_at(server.url);
		kept = lock_of_handle(keeper, "kept", 600);
		OK(lk_lock_acquire(kept, 0, NULL));
	}
	hold_watched(client, "a", 600);
	for (int i = 0; i < 3; i++)
		waiter_start(&waiters[i], lock_of_handle(client, "theirs", 1000 + i), LK_FOREVER,
		             true);
	ck_assert(WITHIN(2000, redis_int(redis_open(&server), "ZCARD lk:{theirs}:q") == 3));
	exit(7);
}

TEST(c28_program_that_exits_in_the_middle_of_everything_just_ends)
{
	for (int tidy = 0; tidy < 2; tidy++) {
		bool arg = tidy;
		struct process worker;
		lk_client *client;
		lk_lock *lock;
		int64_t start_ms;
		int status;

		server_start(&server, NULL);
		process_start(&worker, leave, &arg);
		redis = redis_open(&server);
		client = client_at(server.url);
		OK(lk_lock_acquire(lock_named(client, "theirs"), 0, NULL));
		start_ms = now_ms();
		line_write(worker.in, "go");
		status = process_wait(&worker, 10000);
		ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 7, "status %x",
		              (unsigned)status);
		ck_assert_int_le(now_ms() - start_ms, 3000);
		if (tidy)
			ck_assert_int_eq(redis_int(redis, "EXISTS lk:{kept}"), 0);
		/* Its hold ends with the lease; its waiter is skipped. */
		lock = lock_named(client, "a");
		OK(lk_lock_acquire(lock, 600 + 1000, NULL));
		OK(lk_lock_release(lock));
		OK(lk_client_close(client));
		redis_close(redis);
		server_stop(&server);
	}
}
