/* SPDX-License-Identifier: MIT
 * Faults of a client's process (C1 to C6, C13 to C16 of the fault list), for holders and waiters of
 * each primitive: stopped, killed, forked, its threads ended. */
#include "harness/primitive.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAITERS 5

/* ---- Holders and waiters in a process of their own ---------------------------------------- */

struct job {
	unsigned set;
	int64_t lease_ms, wait_ms;
	bool exclusive;
	const char *url; /* NULL = the server's */
};

/* Write to a resource that refuses a smaller fence than it has seen; 1 = accepted. */
static long long write_fenced(struct claim *claim)
{
	return redis_int(redis, "EVAL %s 1 fenced:%s %lld",
	                 "if tonumber(redis.call('GET', KEYS[1]) or '0') > tonumber(ARGV[1]) then "
	                 "return 0 end redis.call('SET', KEYS[1], ARGV[1]) return 1",
	                 claim->name, (long long)claim->fence);
}

/* Orders, one per line, known by their first letter: hold, wait, state, fenced (write), release,
 * quit.  Each has an answer of one line for each primitive. */
static int obey(void *arg, int in, int out)
{
	const struct job *job = arg;
	struct claims mine;
	lk_client *client;
	const char *order;

	if (!line_read(in, 30000)) /* the server is up */
		return 2;
	redis = redis_open(&server);
	client = client_at(job->url ? job->url : server.url);
	claims_warm_up(job->set, client);
	claims_open(&mine, job->set, client, job->lease_ms);
	EACH (claim, &mine)
		line_write(out, "ready");
	while ((order = line_read(in, 60000)) && strcmp(order, "quit")) {
		char what = *order;
		if (what == 'h')
			claims_hold(&mine, job->set, client, job->lease_ms);
		EACH (claim, &mine)
			claim->exclusive = job->exclusive;
		if (what == 'w')
			claims_start(&mine, job->wait_ms, true);
		EACH (claim, &mine) {
			if (what == 'w')
				pthread_join(claim->thread, NULL);
			if (what == 'h' || what == 'w')
				line_write(out, "%s %lld", lk_err_name(claim->err),
				           (long long)claim->fence);
			else if (what == 's')
				line_write(out, "%d", (int)claim->primitive->state(claim));
			else if (what == 'f')
				line_write(out, "%lld", write_fenced(claim));
			else if (what == 'r')
				line_write(out, "%s",
				           lk_err_name(claim->primitive->release(claim)));
		}
	}
	return order ? lk_client_close(client) != LK_OK : 3;
}

/* Each answer begins with that. */
static void expect_answers(struct process *process, unsigned set, int64_t ms, const char *expected)
{
	for (int i = 0; i < PRIMITIVES; i++) {
		const char *answer = set & 1u << i ? line_read(process->out, ms) : expected;
		ck_assert_msg(answer && !strncmp(answer, expected, strlen(expected)),
		              "%s: %s, not %s", primitives[i].name, answer ? answer : "no answer",
		              expected);
	}
}

static void tell(struct process *process, unsigned set, const char *order, const char *expected)
{
	line_write(process->in, "%s", order);
	expect_answers(process, set, 10000, expected);
}

static void quit(struct process *process)
{
	line_write(process->in, "quit");
	ck_assert(process_succeeded(process, 5000));
}

/* The state of a lost hold, as an answer. */
static const char *lost_state(void)
{
	static char state[8];

	snprintf(state, sizeof(state), "%d", LK_STATE_LOST);
	return state;
}

TEST_OF(c1_holder_stopped_past_its_lease_is_told_and_harmless, LEASED, 20)
{
	struct job job = {.set = set, .lease_ms = 500};
	struct process holder;
	struct claims next;

	server_start(&server, NULL);
	process_start(&holder, obey, &job);
	redis = redis_open(&server);
	tell(&holder, set, "start", "ready");
	tell(&holder, set, "hold", "LK_OK ");
	tell(&holder, set, "fenced", "1");
	process_pause(&holder);
	ck_assert_int_eq(proc_state(holder.pid), 'T');
	claims_hold_later(&next, set, client_at(server.url), 0);
	EACH (claim, &next)
		ck_assert_int_eq(write_fenced(claim), 1);
	process_continue(&holder);
	tell(&holder, set, "state", lost_state()); /* the first call detects it */
	tell(&holder, set, "fenced", "0");
	tell(&holder, set, "release", "LK_ELOST");
	nap_ms(200);
	claims_expect_held(&next);
	claims_release(&next);
	ck_assert(claims_at_rest(set));
	quit(&holder);
}

/* The answer to an acquire is in the kernel's buffer while its process is stopped past the
 * lease. */
TEST_OF(c2_grant_that_is_read_too_late_is_no_hold, LEASED, 20)
{
	static const int64_t waits_ms[] = {0, 700, 1500};
	const struct proxy_fault stalled = {.stall = true};

	fault_set_up_proxy();
	for (int i = 0; i < 3; i++) {
		struct job job = {set, 400, waits_ms[i], false, proxy.url};
		struct process stopped;
		struct claims next;
		lk_client *client;

		process_start(&stopped, obey, &job);
		client = client_at(server.unix_url);
		tell(&stopped, set, "start", "ready");
		proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &stalled);
		line_write(stopped.in, "wait");
		ck_assert(WITHIN(2000, claims_in_use(set)));
		process_pause(&stopped);
		ck_assert(WITHIN(1000,
		                 proxy_count(&proxy).held[PROXY_COMMANDS][PROXY_TO_CLIENT] > 0));
		proxy_heal(&proxy);
		/* When the lease of the unused grant has ended. */
		claims_hold_later(&next, set, client, 0);
		process_continue(&stopped);
		EACH (claim, &next) {
			const char *answer = line_read(stopped.out, 5000);
			ck_assert_ptr_nonnull(answer);
			ck_assert_msg(strncmp(answer, "LK_OK ", 6) != 0,
			              "a grant of the %s that had lapsed is a hold", claim->name);
		}
		claims_expect_held(&next);
		ck_assert(WITHIN(2000, claims_waiting(set, 0)));
		claims_release(&next);
		ck_assert(claims_at_rest(set));
		quit(&stopped);
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

TEST_OF(c3_loss_is_seen_though_the_background_thread_cannot_run, LEASED, 20)
{
	struct job job = {.set = set, .lease_ms = 500};
	struct process holder;
	struct claims next;
	lk_client *client;
	pid_t thread;
	int status;

	server_start(&server, NULL);
	process_start(&holder, obey, &job);
	tell(&holder, set, "start", "ready");
	tell(&holder, set, "hold", "LK_OK ");
	ck_assert(WITHIN(2000, (thread = library_thread(holder.pid)) > 0)); /* it has its name */
	ck_assert(!ptrace(PTRACE_SEIZE, thread, NULL, NULL));
	ck_assert(!ptrace(PTRACE_INTERRUPT, thread, NULL, NULL));
	ck_assert_int_eq(waitpid(thread, &status, __WALL), thread);
	ck_assert(WIFSTOPPED(status));
	client = client_at(server.url);
	claims_hold_later(&next, set, client, 0);
	tell(&holder, set, "state", lost_state());
	tell(&holder, set, "release", "LK_ELOST");
	ck_assert(!ptrace(PTRACE_DETACH, thread, NULL, NULL));
	OK(lk_client_close(client));
	quit(&holder);
}

TEST_OF(c4_next_holder_follows_a_killed_one_after_its_lease, LEASED, 20)
{
	struct job job = {.set = set, .lease_ms = 800};
	struct process holder;
	struct claims waits;
	lk_client *client;
	int64_t start_ms;

	server_start(&server, NULL);
	process_start(&holder, obey, &job);
	redis = redis_open(&server);
	client = client_at(server.url);
	tell(&holder, set, "start", "ready");
	tell(&holder, set, "hold", "LK_OK ");
	claims_queue(&waits, set, client, 0, false);
	process_kill(&holder);
	start_ms = now_ms();
	claims_join(&waits, LK_OK);
	ck_assert_int_le(now_ms() - start_ms, 800 + 800);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
}

/* Start the workers, hold all, and queue them in their order. */
static void queue_workers(struct process *workers, struct job *job, struct claims *held)
{
	server_start(&server, NULL);
	job->wait_ms = LK_FOREVER;
	for (int i = 0; i < WAITERS; i++)
		process_start(&workers[i], obey, job);
	redis = redis_open(&server);
	claims_hold(held, job->set, client_at(server.url), job->lease_ms);
	for (int i = 0; i < WAITERS; i++) {
		tell(&workers[i], job->set, "start", "ready");
		line_write(workers[i].in, "wait");
		ck_assert(WITHIN(2000, claims_waiting(job->set, i + 1)));
	}
}

/* That worker must be the next to hold, within ms, by larger fences; it releases. */
static void expect_next(struct process *worker, unsigned set, int64_t ms, long long *fences)
{
	for (int i = 0; i < PRIMITIVES; i++) {
		const char *answer;
		long long fence;
		if (!(set & 1u << i))
			continue;
		answer = line_read(worker->out, ms);
		ck_assert_msg(answer != NULL, "%s: not granted within %lld ms", primitives[i].name,
		              (long long)ms);
		ck_assert_int_eq(sscanf(answer, "LK_OK %lld", &fence), 1);
		ck_assert_int_gt(fence, fences[i]);
		fences[i] = fence;
	}
	tell(worker, set, "release", "LK_OK");
}

static void fences_of(struct claims *claims, long long *fences)
{
	EACH (claim, claims)
		fences[claim - claims->of] = (long long)claim->fence;
}

TEST_OF(c5_killed_waiters_are_skipped_wherever_they_stand, LEASED, 20)
{
	struct job job = {.set = set, .lease_ms = 3000, .exclusive = true};
	struct process workers[WAITERS];
	long long fences[PRIMITIVES];
	struct claims held;

	queue_workers(workers, &job, &held);
	fences_of(&held, fences);
	for (int i = 0; i < WAITERS; i += 2) /* head, middle, tail */
		process_kill(&workers[i]);
	claims_release(&held);
	expect_next(&workers[1], set, 300, fences);
	expect_next(&workers[3], set, 300, fences);
	ck_assert(WITHIN(500, claims_at_rest(set)));
}

/* A stopped waiter keeps its connection, so it gets the grant; then it is killed. */
static void kill_granted(unsigned set, bool exclusive, int64_t queued_ms, int64_t within_ms)
{
	/* Its claim window is 600 ms. */
	struct job job = {.set = set, .lease_ms = 1200, .exclusive = exclusive};
	struct process workers[WAITERS];
	long long fences[PRIMITIVES];
	struct claims held;
	int64_t start_ms;

	queue_workers(workers, &job, &held);
	nap_ms(queued_ms);
	fences_of(&held, fences);
	process_pause(&workers[0]);
	claims_release(&held);
	start_ms = now_ms();
	/* It was granted, and perhaps another one beside it. */
	ck_assert(claims_in_use(set) && claims_waiting(set, WAITERS - (exclusive ? 1 : 2)));
	process_kill(&workers[0]);
	for (int i = 1; i < WAITERS; i++)
		expect_next(&workers[i], set, within_ms, fences);
	ck_assert_int_le(now_ms() - start_ms, within_ms + 500);
	/* What the dead one was granted is free again, too. */
	claims_hold_later(&held, set, client_at(server.url), 0);
	ck_assert_int_le(now_ms() - start_ms, within_ms + 1500);
	claims_release(&held);
	ck_assert(claims_at_rest(set));
}

TEST_OF(c6_full_grant_of_a_killed_waiter_ends_with_its_lease, LEASED, 20)
{
	/* A lease, and the time until the next repeated ask. */
	kill_granted(set, true, 0, 1200 + 1200 + 500);
}

TEST_OF(c6_short_grant_of_a_killed_waiter_ends_with_its_claim_window, LEASED, 20)
{
	kill_granted(set, true, 700, 600 + 500);
}

TEST_OF(c6_one_killed_after_its_grant_does_not_hold_up_who_was_granted_beside_it, SEMAPHORE, 20)
{
	kill_granted(set, false, 0, 1500);
}

/* ---- Forks -------------------------------------------------------------------------------- */

static bool keep_name(void *arg, const char *name, size_t len)
{
	(void)arg;
	(void)name;
	(void)len;
	return true;
}

/* The calls of a lock that the others do not have, in the child. */
static void use_lock_after_fork(lk_client *client, lk_lock *lock)
{
	lk_hold snapshot;
	lk_party party;
	size_t count;

	EXPECT(lk_lock_extend(lock, 1000), LK_EFORKED);
	EXPECT(lk_lock_waiters(lock, 1, &party, &count), LK_EFORKED);
	EXPECT(lk_lock_break(lock, NULL), LK_EFORKED);
	EXPECT(lk_client_names(client, keep_name, NULL), LK_EFORKED);
	ck_assert(!lk_lock_is_mine(lock));
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_NONE);
	EXPECT(lk_lock_snapshot(lock, &snapshot), LK_EFORKED);
}

/* The child of C13: every call on the parent's handles, then its own client. */
static int use_after_fork(lk_client *client, struct claims *held, int sockets)
{
	lk_client *own;

	ck_assert_int_eq(proc_socket_count(0), sockets); /* its copies are closed */
	EACH (claim, held) {
		struct claim other = *claim;
		EXPECT(other.primitive->open(&other, false), LK_EFORKED);
		claim->primitive->expect_refused(claim, LK_EFORKED, "");
		EXPECT(claim->primitive->cancel(claim), LK_EFORKED);
		EXPECT(claim->primitive->query(claim), LK_EFORKED);
		EXPECT(claim->primitive->release(claim), LK_EFORKED);
	}
	use_lock_after_fork(client, held->of[0].lock);
	EXPECT(lk_lock_close(held->of[0].lock), LK_EFORKED);
	EXPECT(lk_semaphore_close(held->of[1].semaphore), LK_EFORKED);
	EXPECT(lk_latch_close(held->of[2].latch), LK_EFORKED);
	if (TSAN) { /* the sanitizer cannot start a thread in the child of a process with threads */
		EXPECT(lk_client_close(client), LK_EFORKED);
		return 0;
	}
	own = client_at(server.url);
	ck_assert_str_ne(lk_client_id(own), lk_client_id(client));
	EXPECT(lk_client_close(client), LK_EFORKED);
	EXPECT(lk_lock_acquire(lock_named(own, "lock"), 0, NULL), LK_EBUSY);
	OK(lk_lock_acquire(lock_named(own, "b"), 0, NULL));
	OK(lk_client_close(own));
	return 0;
}

TEST_OF(c13_forked_child_is_refused_and_the_parent_unaffected, EVERY, 20)
{
	struct claims held, waits;
	lk_client *client;
	int64_t sent;
	int sockets, status;
	pid_t child;

	fault_set_up_proxy();
	sockets = proc_socket_count(0);
	client = client_at(proxy.url);
	claims_hold(&held, set, client, 10000);
	claims_queue(&waits, set, client_at(server.url), 10000, false);
	nap_ms(50);
	sent = proxy_count(&proxy).bytes[PROXY_COMMANDS][PROXY_TO_SERVER];
	child = fork();
	if (!child)
		_exit(use_after_fork(client, &held, sockets));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", (unsigned)status);
	ck_assert_int_eq(proxy_count(&proxy).bytes[PROXY_COMMANDS][PROXY_TO_SERVER], sent);
	ck_assert_int_eq(proxy_count(&proxy).open, 2); /* no connection was closed */
	claims_expect_held(&held);
	ck_assert(!claims_any_ended(&waits));
	claims_stay_held(&held, 10);
	claims_release(&held);
	claims_join(&waits, LK_OK);
	claims_hold_again(&held);
	OK(lk_client_close(client));
	ck_assert(claims_at_rest(set));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{b}"), 0);
}

/* A worker that queues, forks, and dies: its child must not make it seem alive. */
static int fork_in_queue(void *arg, int in, int out)
{
	struct claims waits;
	pid_t child;

	if (!line_read(in, 10000))
		return 2;
	redis = redis_open(&server);
	claims_queue(&waits, *(unsigned *)arg, client_at(server.url), 0, true);
	child = fork();
	if (!child) {
		line_write(out, "%d", (int)getpid()); /* its sockets are closed now */
		nap_ms(20000);
		_exit(0);
	}
	nap_ms(20000);
	return 4;
}

TEST_OF(c13_child_does_not_keep_a_dead_waiter_alive, LEASED, 20)
{
	struct process worker;
	struct claims held, next;
	int64_t start_ms;
	const char *child;

	server_start(&server, NULL);
	process_start(&worker, fork_in_queue, &set);
	redis = redis_open(&server);
	claims_hold(&held, set, client_at(server.url), 0);
	line_write(worker.in, "go");
	child = line_read(worker.out, 10000);
	ck_assert_ptr_nonnull(child);
	process_kill(&worker);
	claims_release(&held);
	start_ms = now_ms();
	claims_hold_later(&next, set, client_at(server.url), 0);
	ck_assert_int_le(now_ms() - start_ms, 200);
	kill(atoi(child), SIGKILL);
}

TEST_OF(c14_program_that_is_executed_inherits_no_socket, EVERY, 20)
{
	struct claims held;

	server_start(&server, NULL);
	claims_hold(&held, set, client_at(server.url), 0);
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

	fault_set_up(NULL);
	lock = lock_named(client_at(server.url), "a");
	for (int i = 0; i < 50; i++) { /* thread ids are reused at once */
		pthread_create(&thread, NULL, hold_and_end, lock);
		pthread_join(thread, NULL);
		pthread_create(&thread, NULL, try_to_inherit, lock);
		pthread_join(thread, NULL);
	}
	ck_assert(WITHIN(1000, redis_int(redis, "EXISTS lk:{a}") == 0));
}

TEST_OF(c16_release_by_who_does_not_hold_changes_nothing, LEASED, 20)
{
	struct job job = {.set = set};
	struct process stranger;
	struct claims held;
	pthread_t thread;

	server_start(&server, NULL);
	process_start(&stranger, obey, &job);
	redis = redis_open(&server);
	claims_hold(&held, set, client_at(server.url), 0);
	pthread_create(&thread, NULL, try_to_inherit, held.of[0].lock);
	pthread_join(thread, NULL);
	tell(&stranger, set, "start", "ready");
	tell(&stranger, set, "release", "LK_ENOTOWNER");
	claims_expect_held(&held);
	claims_release(&held);
	ck_assert(claims_at_rest(set));
	quit(&stranger);
}
