/* SPDX-License-Identifier: MIT
 * Faults of a client's process (C1 to C6, C13 to C16 of the fault list): stopped, killed, forked,
 * its threads ended. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/proxy.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"
#include "harness/watch.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAITERS 5

static struct test_server server;
static struct proxy proxy;
static struct redis *redis;

/* ---- Holders in a process of their own ---------------------------------------------------- */

struct job {
	const char *url;
	int64_t lease_ms;
	int64_t wait_ms;
};

/* Orders, one per line: acquire, state, release, write (fenced), thread (the library's ids). */
static int obey(void *arg, int in, int out)
{
	const struct job *job = arg;
	struct redis *mine;
	lk_client *client;
	lk_lock *lock;
	const char *order;

	if (!line_read(in, 30000)) /* the server is up */
		return 2;
	mine = redis_open(&server);
	client = client_at(job->url);
	lock = hold_watched(client, "warm", 0);
	OK(lk_lock_release(lock));
	lock = lock_leased(client, "a", job->lease_ms);
	line_write(out, "ready");
	while ((order = line_read(in, 60000))) {
		if (!strcmp(order, "acquire")) {
			lk_err err = lk_lock_acquire(lock, job->wait_ms, NULL);
			line_write(out, "%s %lld", lk_err_name(err),
			           (long long)hold_of(lock).fence);
		} else if (!strcmp(order, "state")) {
			line_write(out, "%d", (int)lk_lock_state(lock));
		} else if (!strcmp(order, "release")) {
			line_write(out, "%s", lk_err_name(lk_lock_release(lock)));
		} else if (!strcmp(order, "write")) {
			line_write(out, "%lld",
			           redis_int(mine, "EVAL %s 1 fenced %lld",
			                     "if tonumber(redis.call('GET', KEYS[1]) or '0') > "
			                     "tonumber(ARGV[1]) then return 0 end "
			                     "redis.call('SET', KEYS[1], ARGV[1]) return 1",
			                     (long long)hold_of(lock).fence));
		} else if (!strcmp(order, "quit")) {
			redis_close(mine);
			return lk_client_close(client) != LK_OK;
		}
	}
	return 3;
}

/* Send an order and return the answer. */
static const char *tell(struct process *process, const char *order)
{
	const char *answer;

	line_write(process->in, "%s", order);
	answer = line_read(process->out, 10000);
	ck_assert_msg(answer != NULL, "no answer to %s", order);
	return answer;
}

TEST(c1_holder_stopped_past_its_lease_is_told_and_harmless)
{
	struct job job = {.lease_ms = 500};
	struct process holder;
	lk_client *client;
	lk_lock *lock;
	char state[8];
	uint64_t fence;

	server_start(&server, NULL);
	redis = redis_open(&server);
	job.url = server.url;
	process_start(&holder, obey, &job);
	client = client_at(server.url);
	lock = lock_named(client, "a");
	tell(&holder, "start");
	ck_assert(!strncmp(tell(&holder, "acquire"), "LK_OK ", 6));
	ck_assert_str_eq(tell(&holder, "write"), "1");
	process_pause(&holder);
	ck_assert_int_eq(proc_state(holder.pid), 'T');
	OK(lk_lock_acquire(lock, 5000, &fence));
	redis_do(redis, "SET fenced %lld", (long long)fence);
	process_continue(&holder);
	snprintf(state, sizeof(state), "%d", LK_STATE_LOST);
	ck_assert_str_eq(tell(&holder, "state"), state); /* the first call detects it */
	ck_assert_str_eq(tell(&holder, "write"), "0");
	ck_assert_str_eq(tell(&holder, "release"), "LK_ELOST");
	nap_ms(200);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "GET lk:{a}"), lk_client_id(client)));
	OK(lk_lock_release(lock));
	line_write(holder.in, "quit");
	ck_assert(process_succeeded(&holder, 5000));
	OK(lk_client_close(client));
}

/* The answer to an acquire is in the kernel's buffer while its process is stopped past the
 * lease. */
TEST(c2_grant_that_is_read_too_late_is_no_hold)
{
	static const int64_t waits_ms[] = {0, 700, 1500};
	const struct proxy_fault stalled = {.stall = true};

	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	redis = redis_open(&server);
	for (int i = 0; i < 3; i++) {
		struct job job = {proxy.url, 400, waits_ms[i]};
		struct process stopped;
		lk_client *client;
		lk_lock *lock;
		const char *answer;

		process_start(&stopped, obey, &job);
		client = client_at(server.unix_url);
		lock = lock_named(client, "a");
		tell(&stopped, "start");
		proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &stalled);
		line_write(stopped.in, "acquire");
		ck_assert(WITHIN(2000, redis_int(redis, "EXISTS lk:{a}") == 1));
		process_pause(&stopped);
		ck_assert(WITHIN(1000,
		                 proxy_count(&proxy).held[PROXY_COMMANDS][PROXY_TO_CLIENT] > 0));
		proxy_heal(&proxy);
		OK(lk_lock_acquire(lock, 5000,
		                   NULL)); /* when the lease of the unused grant has ended */
		process_continue(&stopped);
		answer = line_read(stopped.out, 5000);
		ck_assert_ptr_nonnull(answer);
		ck_assert_msg(strncmp(answer, "LK_OK ", 6) != 0,
		              "a grant that had lapsed is a hold");
		ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
		ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 0));
		OK(lk_lock_release(lock));
		ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}"), 0);
		line_write(stopped.in, "quit");
		ck_assert(process_succeeded(&stopped, 5000));
		OK(lk_client_close(client));
	}
}

/* The thread of the library in that process, by its name. */
static pid_t library_thread(pid_t pid)
{
	char path[64], file[400], name[32];
	struct dirent *entry;
	pid_t found = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		FILE *comm;
		snprintf(file, sizeof(file), "%s/%s/comm", path, entry->d_name);
		comm = entry->d_name[0] != '.' ? fopen(file, "re") : NULL;
		if (!comm)
			continue;
		if (fgets(name, sizeof(name), comm) && !strncmp(name, "lk-loop", 7))
			found = atoi(entry->d_name);
		fclose(comm);
	}
	closedir(dir);
	return found;
}

TEST(c3_loss_is_seen_though_the_background_thread_cannot_run)
{
	struct job job = {.lease_ms = 500};
	struct process holder;
	lk_client *client;
	char state[8];
	pid_t thread;
	int status;

	server_start(&server, NULL);
	job.url = server.url;
	process_start(&holder, obey, &job);
	tell(&holder, "start");
	ck_assert(!strncmp(tell(&holder, "acquire"), "LK_OK ", 6));
	ck_assert(WITHIN(2000, (thread = library_thread(holder.pid)) > 0)); /* it has its name */
	ck_assert(!ptrace(PTRACE_SEIZE, thread, NULL, NULL));
	ck_assert(!ptrace(PTRACE_INTERRUPT, thread, NULL, NULL));
	ck_assert_int_eq(waitpid(thread, &status, __WALL), thread);
	ck_assert(WIFSTOPPED(status));
	client = client_at(server.url);
	OK(lk_lock_acquire(lock_named(client, "a"), 5000, NULL));
	snprintf(state, sizeof(state), "%d", LK_STATE_LOST);
	ck_assert_str_eq(tell(&holder, "state"), state);
	ck_assert_str_eq(tell(&holder, "release"), "LK_ELOST");
	ck_assert(!ptrace(PTRACE_DETACH, thread, NULL, NULL));
	OK(lk_client_close(client));
	line_write(holder.in, "quit");
	ck_assert(process_succeeded(&holder, 5000));
}

TEST(c4_next_holder_follows_a_killed_one_after_its_lease)
{
	struct job job = {.lease_ms = 800};
	struct process holder;
	struct waiter waiter;
	lk_client *client;
	int64_t start_ms;

	server_start(&server, NULL);
	job.url = server.url;
	process_start(&holder, obey, &job);
	redis = redis_open(&server);
	client = client_at(server.url);
	tell(&holder, "start");
	ck_assert(!strncmp(tell(&holder, "acquire"), "LK_OK ", 6));
	waiter_start(&waiter, lock_of_handle(client, "a", 0), LK_FOREVER, false);
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	process_kill(&holder);
	start_ms = now_ms();
	OK(waiter_join(&waiter));
	ck_assert_int_le(now_ms() - start_ms, 800 + 800);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	OK(lk_client_close(client));
}

/* Start the workers, hold the lock, and queue them in their order. */
static lk_lock *queue_workers(struct process *workers, struct job *job)
{
	lk_lock *lock;

	server_start(&server, NULL);
	job->url = server.url;
	job->wait_ms = LK_FOREVER;
	for (int i = 0; i < WAITERS; i++)
		process_start(&workers[i], obey, job);
	redis = redis_open(&server);
	lock = lock_leased(client_at(server.url), "a", job->lease_ms);
	OK(lk_lock_acquire(lock, 0, NULL));
	for (int i = 0; i < WAITERS; i++) {
		tell(&workers[i], "start");
		line_write(workers[i].in, "acquire");
		ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == i + 1));
	}
	return lock;
}

/* That worker must be the next to hold, within ms; it releases. */
static long long expect_next(struct process *worker, int64_t ms)
{
	const char *answer = line_read(worker->out, ms);
	long long fence;

	ck_assert_msg(answer != NULL, "not granted within %lld ms", (long long)ms);
	ck_assert_int_eq(sscanf(answer, "LK_OK %lld", &fence), 1);
	ck_assert_str_eq(tell(worker, "release"), "LK_OK");
	return fence;
}

TEST(c5_killed_waiters_are_skipped_wherever_they_stand)
{
	struct job job = {.lease_ms = 3000};
	struct process workers[WAITERS];
	lk_lock *lock = queue_workers(workers, &job);

	for (int i = 0; i < WAITERS; i += 2) /* head, middle, tail */
		process_kill(&workers[i]);
	OK(lk_lock_release(lock));
	expect_next(&workers[1], 300);
	expect_next(&workers[3], 300);
	ck_assert(WITHIN(500, redis_int(redis, "EXISTS lk:{a} lk:{a}:q") == 0));
}

/* A stopped waiter keeps its connection, so it gets the grant; then it is killed. */
static void kill_granted(int64_t queued_ms, int64_t within_ms)
{
	struct job job = {.lease_ms = 1200}; /* its claim window is 600 ms */
	struct process workers[WAITERS];
	lk_lock *lock = queue_workers(workers, &job);
	char before[256];
	long long dead_fence;
	int64_t start_ms;

	nap_ms(queued_ms);
	snprintf(before, sizeof(before), "%s", redis_text(redis, "GET lk:{a}"));
	process_pause(&workers[0]);
	OK(lk_lock_release(lock));
	start_ms = now_ms();
	ck_assert_str_ne(redis_text(redis, "GET lk:{a}"), before); /* it was granted */
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}"), 1);
	dead_fence = redis_int(redis, "GET lk:fence");
	process_kill(&workers[0]);
	for (int i = 1; i < WAITERS; i++) {
		long long fence = expect_next(&workers[i], within_ms);
		ck_assert_int_gt(fence, dead_fence);
		dead_fence = fence;
	}
	ck_assert_int_le(now_ms() - start_ms, within_ms + 500);
	ck_assert(WITHIN(500, redis_int(redis, "EXISTS lk:{a} lk:{a}:q") == 0));
}

TEST(c6_full_grant_of_a_killed_waiter_ends_with_its_lease)
{
	kill_granted(0, 1200 + 1200 + 500); /* a lease, and the time until the next repeated ask */
}

TEST(c6_short_grant_of_a_killed_waiter_ends_with_its_claim_window)
{
	kill_granted(700, 600 + 400);
}

/* ---- Forks -------------------------------------------------------------------------------- */

static bool keep_name(void *arg, const char *name, size_t len)
{
	(void)arg;
	(void)name;
	(void)len;
	return true;
}

/* The child of C13: every call on the parent's handles, then its own client. */
static int use_after_fork(lk_client *client, lk_lock *lock, const char *url, int sockets)
{
	lk_lock_status status;
	lk_hold snapshot;
	lk_party party;
	lk_client *own;
	lk_lock *other;
	size_t count;

	ck_assert_int_eq(proc_socket_count(0), sockets); /* its copies are closed */
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EFORKED);
	EXPECT(lk_lock_acquire(lock, LK_FOREVER, NULL), LK_EFORKED);
	EXPECT(lk_lock_extend(lock, 1000), LK_EFORKED);
	EXPECT(lk_lock_cancel(lock), LK_EFORKED);
	EXPECT(lk_lock_query(lock, &status), LK_EFORKED);
	EXPECT(lk_lock_waiters(lock, 1, &party, &count), LK_EFORKED);
	EXPECT(lk_lock_break(lock, NULL), LK_EFORKED);
	EXPECT(lk_client_names(client, keep_name, NULL), LK_EFORKED);
	EXPECT(lk_lock_open(client, "b", 0, NULL, &other), LK_EFORKED);
	ck_assert(!lk_lock_is_mine(lock));
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_NONE);
	EXPECT(lk_lock_snapshot(lock, &snapshot), LK_EFORKED);
	EXPECT(lk_lock_release(lock), LK_EFORKED);
	EXPECT(lk_lock_close(lock), LK_EFORKED);
	if (TSAN) { /* the sanitizer cannot start a thread in the child of a process with threads */
		EXPECT(lk_client_close(client), LK_EFORKED);
		return 0;
	}
	own = client_at(url);
	ck_assert_str_ne(lk_client_id(own), lk_client_id(client));
	EXPECT(lk_client_close(client), LK_EFORKED);
	EXPECT(lk_lock_acquire(lock_named(own, "a"), 0, NULL), LK_EBUSY);
	OK(lk_lock_acquire(lock_named(own, "b"), 0, NULL));
	OK(lk_client_close(own));
	return 0;
}

TEST(c13_forked_child_is_refused_and_the_parent_unaffected)
{
	lk_client *client;
	lk_lock *lock;
	int64_t sent;
	int sockets, status;
	pid_t child;

	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	redis = redis_open(&server);
	sockets = proc_socket_count(0);
	client = client_at(proxy.url);
	lock = hold_watched(client, "a", 10000);
	nap_ms(50);
	sent = proxy_count(&proxy).bytes[PROXY_COMMANDS][PROXY_TO_SERVER];
	child = fork();
	if (!child)
		_exit(use_after_fork(client, lock, server.url, sockets));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", (unsigned)status);
	ck_assert_int_eq(proxy_count(&proxy).bytes[PROXY_COMMANDS][PROXY_TO_SERVER], sent);
	ck_assert_int_eq(proxy_count(&proxy).open, 2); /* no connection was closed */
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	ck_assert_int_eq(losses.count, 0);
	OK(lk_lock_release(lock));
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_client_close(client));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{b}"), 0);
}

/* A worker that queues, forks, and dies: its child must not make it seem alive. */
static int fork_in_queue(void *arg, int in, int out)
{
	struct waiter waiter;
	pid_t child;

	(void)arg;
	if (!line_read(in, 10000))
		return 2;
	waiter_start(&waiter, lock_of_handle(client_at(server.url), "a", 0), LK_FOREVER, true);
	if (!WITHIN(5000, redis_int(redis_open(&server), "ZCARD lk:{a}:q") == 1))
		return 3;
	child = fork();
	if (!child) {
		nap_ms(20000);
		_exit(0);
	}
	line_write(out, "%d", (int)child);
	nap_ms(20000);
	return 4;
}

TEST(c13_child_does_not_keep_a_dead_waiter_alive)
{
	struct process worker;
	lk_client *client;
	lk_lock *lock, *next;
	int64_t start_ms;
	const char *child;

	server_start(&server, NULL);
	process_start(&worker, fork_in_queue, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	lock = lock_named(client, "a");
	next = lock_named(client_at(server.url), "a");
	OK(lk_lock_acquire(lock, 0, NULL));
	line_write(worker.in, "go");
	child = line_read(worker.out, 10000);
	ck_assert_ptr_nonnull(child);
	process_kill(&worker);
	OK(lk_lock_release(lock));
	start_ms = now_ms();
	ck_assert(WITHIN(200, lk_lock_acquire(next, 0, NULL) == LK_OK));
	ck_assert_int_le(now_ms() - start_ms, 200);
	kill(atoi(child), SIGKILL);
}

TEST(c14_program_that_is_executed_inherits_no_socket)
{
	server_start(&server, NULL);
	hold_watched(client_at(server.url), "a", 0);
	ck_assert_int_eq(shell("ls -l /proc/$$/fd | grep -q socket:"), 1);
}

/* ---- Threads ------------------------------------------------------------------------------ */

static void *hold_and_end(void *arg)
{
	OK(lk_lock_acquire(arg, 5000, NULL));
	return NULL;
}

static void *try_to_inherit(void *arg)
{
	ck_assert_uint_eq(hold_of(arg).count, 0);
	ck_assert(!lk_lock_is_mine(arg));
	EXPECT(lk_lock_release(arg), LK_ENOTOWNER);
	return NULL;
}

TEST(c15_hold_of_an_ended_thread_is_inherited_by_none)
{
	pthread_t thread;
	lk_lock *lock;

	server_start(&server, NULL);
	redis = redis_open(&server);
	lock = lock_named(client_at(server.url), "a");
	for (int i = 0; i < 50; i++) { /* thread ids are reused at once */
		pthread_create(&thread, NULL, hold_and_end, lock);
		pthread_join(thread, NULL);
		pthread_create(&thread, NULL, try_to_inherit, lock);
		pthread_join(thread, NULL);
	}
	ck_assert(WITHIN(1000, redis_int(redis, "EXISTS lk:{a}") == 0));
}

TEST(c16_release_by_who_does_not_hold_changes_nothing)
{
	struct job job = {.lease_ms = 0};
	struct process stranger;
	pthread_t thread;
	char before[256];
	lk_lock *lock;

	server_start(&server, NULL);
	job.url = server.url;
	process_start(&stranger, obey, &job);
	redis = redis_open(&server);
	lock = lock_named(client_at(server.url), "a");
	OK(lk_lock_acquire(lock, 0, NULL));
	snprintf(before, sizeof(before), "%s", redis_text(redis, "GET lk:{a}"));
	pthread_create(&thread, NULL, try_to_inherit, lock);
	pthread_join(thread, NULL);
	tell(&stranger, "start");
	ck_assert_str_eq(tell(&stranger, "release"), "LK_ENOTOWNER");
	ck_assert_str_eq(redis_text(redis, "GET lk:{a}"), before);
	ck_assert_uint_eq(hold_of(lock).count, 1);
	OK(lk_lock_release(lock));
	line_write(stranger.in, "quit");
	ck_assert(process_succeeded(&stranger, 5000));
}
