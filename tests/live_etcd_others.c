/* SPDX-License-Identifier: MIT
 * Others that lock the same prefix in etcd exclude our clients and are excluded: "etcdctl lock",
 * and Go's concurrency.Mutex if LATCHKEY_MUTEX names its program (tests/etcd_mutex/main.go). */
#include "harness/etcd_server.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEASE_MS 4000
#define LONG_MS 30000 /* for what comes soon on a machine that is not loaded */

static struct etcd_servers shared;

static void start_shared(void)
{
	etcd_start(&shared, 1);
}

/* Each test runs with one of these. */
enum other_kind { ETCDCTL, MUTEX };

#define TEST_OTHERS(name, seconds)                                                                 \
	static void name##_run(int);                                                               \
	static const TTest name##_test[] = {                                                       \
		{#name ":etcdctl", name##_run, __FILE__, __LINE__},                                \
		{#name ":mutex", name##_run, __FILE__, __LINE__},                                  \
	};                                                                                         \
	__attribute__((constructor)) static void name##_register(void)                             \
	{                                                                                          \
		test_register_row(&name##_test[ETCDCTL], seconds, ETCDCTL);                        \
		if (getenv("LATCHKEY_MUTEX"))                                                      \
			test_register_row(&name##_test[MUTEX], seconds, MUTEX);                    \
	}                                                                                          \
	static void name##_run(int kind)

__attribute__((constructor)) static void prepare(void)
{
	test_before_all(start_shared);
}

/* ---- The others ----------------------------------------------------------------------------- */

#define WORDS 12

/* A program with its arguments. */
struct line {
	const char *words[WORDS];
};

static const char *endpoint(void)
{
	static char text[60];

	snprintf(text, sizeof(text), "http://127.0.0.1:%d", shared.nodes[0].port);
	return text;
}

/* Become that program, with its output in the pipe. */
static int become(void *arg, int in, int out)
{
	struct line *line = arg;
	char *const *argv;

	dup2(in, 0);
	dup2(out, 1);
	memcpy(&argv, &(const char **){line->words}, sizeof(argv));
	execvp(argv[0], argv);
	return 126;
}

#define LONG_TTL "20"
#define SHORT_TTL "5" /* of those that are killed */

/* Start one that holds the lock, or waits for it.  It writes a line as soon as it holds it. */
static void other_start(struct process *other, int kind, const char *prefix, bool is_doomed)
{
	const char *ttl = is_doomed ? SHORT_TTL : LONG_TTL;
	struct line etcdctl = {{etcd_program("etcdctl"), "--dial-timeout=60s", "--endpoints",
	                        endpoint(), "lock", "--ttl", ttl, prefix}};
	struct line mutex = {{getenv("LATCHKEY_MUTEX"), endpoint(), "hold", prefix, ttl}};

	process_start(other, become, kind == ETCDCTL ? &etcdctl : &mutex);
}

static bool other_holds(struct process *other, int64_t ms)
{
	return line_read(other->out, ms) != NULL;
}

static void other_stop(struct process *other)
{
	ck_assert(!kill(other->pid, SIGTERM));
	ck_assert(process_succeeded(other, LONG_MS));
}

/* ---- Our own -------------------------------------------------------------------------------- */

static int tickets(const char *prefix)
{
	const char *at = etcd_ctl(&shared, "get --prefix '%s/' --keys-only", prefix);
	int count = 0;

	while ((at = strstr(at, "lk/L/"))) {
		count++;
		at++;
	}
	return count;
}

static lk_lock *lock_here(const char *name)
{
	return lock_leased(client_at(etcd_url(&shared, "", "")), name, LEASE_MS);
}

/* A process that acquires the lock, writes a line, and holds it until its input ends. */
static int hold_here(void *arg, int in, int out)
{
	lk_client *client;
	lk_lock *lock;
	const lk_lock_options options = {.lease_ms = LEASE_MS};

	if (!line_read(in, LONG_MS) || lk_client_open(etcd_url(&shared, "", ""), NULL, &client) ||
	    lk_lock_open(client, arg, 0, &options, &lock) ||
	    lk_lock_acquire(lock, LK_FOREVER, NULL) || !line_write(out, "held"))
		return 1;
	line_read(in, LONG_MS * 10);
	return 0;
}

struct waiter {
	pthread_t thread;
	lk_lock *lock;
	lk_err err;
	uint64_t fence;
	atomic_bool done;
};

static void *wait_for(void *arg)
{
	struct waiter *waiter = arg;

	waiter->err = lk_lock_acquire(waiter->lock, LK_FOREVER, &waiter->fence);
	atomic_store(&waiter->done, true);
	if (!waiter->err)
		waiter->err = lk_lock_release(waiter->lock);
	return NULL;
}

static void begin_waiting(struct waiter *waiter, lk_lock *lock)
{
	memset(waiter, 0, sizeof(*waiter));
	waiter->lock = lock;
	ck_assert(!pthread_create(&waiter->thread, NULL, wait_for, waiter));
}

static void end_waiting(struct waiter *waiter)
{
	ck_assert(WITHIN(LONG_MS, atomic_load(&waiter->done)));
	pthread_join(waiter->thread, NULL);
	OK(waiter->err);
}

/* ---- One of each ---------------------------------------------------------------------------- */

TEST_OTHERS(we_wait_for_one_that_holds, 120)
{
	const char *prefix = "lk/L/th%2Fem";
	lk_lock *lock = lock_here("th/em");
	struct process other;
	struct waiter waiter;

	other_start(&other, kind, prefix, false);
	ck_assert(other_holds(&other, LONG_MS));
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EBUSY);
	EXPECT(lk_lock_acquire(lock, 300, NULL), LK_ETIMEDOUT);
	ck_assert_int_eq(tickets(prefix), 1);
	begin_waiting(&waiter, lock);
	ck_assert(WITHIN(LONG_MS, tickets(prefix) == 2));
	ck_assert(!atomic_load(&waiter.done));
	other_stop(&other);
	end_waiting(&waiter);
	ck_assert_int_eq(tickets(prefix), 0);
}

TEST_OTHERS(one_waits_while_we_hold, 120)
{
	const char *prefix = "lk/L/us";
	lk_lock *lock = lock_here("us");
	struct process other;

	OK(lk_lock_acquire(lock, LONG_MS, NULL));
	other_start(&other, kind, prefix, false);
	ck_assert(WITHIN(LONG_MS, tickets(prefix) == 2));
	/* For longer than the lease. */
	ck_assert(!other_holds(&other, LEASE_MS + 500));
	OK(lk_lock_release(lock));
	ck_assert(other_holds(&other, LONG_MS));
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EBUSY);
	other_stop(&other);
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_release(lock));
}

TEST_IF(mutex_tries_in_vain_while_we_hold, 120, getenv("LATCHKEY_MUTEX"))
{
	struct line line = {{getenv("LATCHKEY_MUTEX"), endpoint(), "try", "lk/L/tried", LONG_TTL}};
	lk_lock *lock = lock_here("tried");
	struct process other;
	const char *text;

	OK(lk_lock_acquire(lock, LONG_MS, NULL));
	for (int i = 0; i < 2; i++) {
		process_start(&other, become, &line);
		text = line_read(other.out, LONG_MS);
		ck_assert_ptr_nonnull(text);
		ck_assert_str_eq(text, i ? "held" : "busy");
		ck_assert(process_succeeded(&other, LONG_MS));
		if (!i)
			OK(lk_lock_release(lock));
	}
}

/* ---- Several -------------------------------------------------------------------------------- */

TEST_OTHERS(all_are_served_in_their_order, 240)
{
	const char *prefix = "lk/L/order";
	lk_lock *lock = lock_here("order"), *later = lock_here("order");
	struct process others[2];
	struct waiter waiter;
	uint64_t fence;

	OK(lk_lock_acquire(lock, LONG_MS, &fence));
	other_start(&others[0], kind, prefix, false);
	ck_assert(WITHIN(LONG_MS, tickets(prefix) == 2));
	begin_waiting(&waiter, later);
	ck_assert(WITHIN(LONG_MS, tickets(prefix) == 3));
	other_start(&others[1], kind, prefix, false);
	ck_assert(WITHIN(LONG_MS, tickets(prefix) == 4));
	OK(lk_lock_release(lock));
	ck_assert(other_holds(&others[0], LONG_MS));
	ck_assert(!other_holds(&others[1], 300));
	ck_assert(!atomic_load(&waiter.done));
	other_stop(&others[0]);
	end_waiting(&waiter);
	ck_assert_uint_gt(waiter.fence, fence);
	ck_assert(other_holds(&others[1], LONG_MS));
	other_stop(&others[1]);
	ck_assert_int_eq(tickets(prefix), 0);
}

TEST_OTHERS(killed_holders_are_followed, 240)
{
	char name[] = "killed";
	const char *prefix = "lk/L/killed";
	struct process ours, others[2];
	struct waiter waiter;

	process_start(&ours, hold_here, name);
	other_start(&others[0], kind, prefix, true);
	ck_assert(other_holds(&others[0], LONG_MS));
	line_write(ours.in, "go");
	ck_assert(WITHIN(LONG_MS, tickets(prefix) == 2));
	process_kill(&others[0]);
	ck_assert(line_read(ours.out, LONG_MS));
	/* And the other way round. */
	other_start(&others[1], kind, prefix, false);
	ck_assert(WITHIN(LONG_MS, tickets(prefix) == 2));
	process_kill(&ours);
	ck_assert(other_holds(&others[1], LONG_MS));
	begin_waiting(&waiter, lock_here(name));
	other_stop(&others[1]);
	end_waiting(&waiter);
}

TEST_OTHERS(killed_waiters_are_passed, 240)
{
	char name[] = "dead";
	const char *prefix = "lk/L/dead";
	struct process ours, others[2];
	struct waiter waiter;
	lk_lock *lock;

	process_start(&ours, hold_here, name);
	lock = lock_here(name);
	OK(lk_lock_acquire(lock, LONG_MS, NULL));
	other_start(&others[0], kind, prefix, true);
	ck_assert(WITHIN(LONG_MS, tickets(prefix) == 2));
	begin_waiting(&waiter, lock_here(name));
	ck_assert(WITHIN(LONG_MS, tickets(prefix) == 3));
	line_write(ours.in, "go");
	ck_assert(WITHIN(LONG_MS, tickets(prefix) == 4));
	other_start(&others[1], kind, prefix, false);
	ck_assert(WITHIN(LONG_MS, tickets(prefix) == 5));
	process_kill(&others[0]);
	process_kill(&ours);
	OK(lk_lock_release(lock));
	end_waiting(&waiter);
	ck_assert(other_holds(&others[1], LONG_MS));
	other_stop(&others[1]);
	ck_assert_int_eq(tickets(prefix), 0);
}

/* ---- A crowd -------------------------------------------------------------------------------- */

#define CROWD 3
#define OUR_ROUNDS 40
#define MUTEX_ROUNDS "40"

/* A folder that each holder creates and removes: it shows an overlap. */
static char crowd_folder[100];

static int crowd_here(void *arg, int in, int out)
{
	lk_client *client;
	lk_lock *lock;
	const lk_lock_options options = {.lease_ms = LEASE_MS};

	(void)in;
	if (lk_client_open(etcd_url(&shared, "", ""), NULL, &client) ||
	    lk_lock_open(client, arg, 0, &options, &lock))
		return 2;
	for (int i = 0; i < OUR_ROUNDS; i++) {
		bool alone;

		if (lk_lock_acquire(lock, LK_FOREVER, NULL)) {
			line_write(out, "%s", lk_errmsg());
			return 3;
		}
		alone = !mkdir(crowd_folder, 0700) && !rmdir(crowd_folder);
		if (lk_lock_release(lock) || !alone) {
			line_write(out, "%s", alone ? lk_errmsg() : "two holders");
			return 4;
		}
	}
	return lk_client_close(client) ? 5 : 0;
}

/* That many processes of ours and of the others, each in turn. */
static int start_crowd(struct process *crowd, int kind, char *name, const char *prefix)
{
	char script[800];
	struct line etcdctl = {{"sh", "-c", script}};
	struct line mutex = {{getenv("LATCHKEY_MUTEX"), endpoint(), "crowd", prefix, LONG_TTL, "3",
	                      MUTEX_ROUNDS}};
	int count = 0;

	snprintf(
		script, sizeof(script),
		"for i in 1 2 3 4 5 6; do %s --dial-timeout=60s --endpoints=%s lock --ttl=" LONG_TTL
		" '%s' "
		"-- "
		"sh -c 'mkdir %s && rmdir %s' || exit 1; done",
		etcd_program("etcdctl"), endpoint(), prefix, crowd_folder, crowd_folder);
	setenv("CROWD_FOLDER", crowd_folder, 1);
	for (int i = 0; i < CROWD; i++)
		process_start(&crowd[count++], crowd_here, name);
	for (int i = 0; i < (kind == ETCDCTL ? CROWD : 1); i++)
		process_start(&crowd[count++], become, kind == ETCDCTL ? &etcdctl : &mutex);
	return count;
}

TEST_OTHERS(no_two_of_a_crowd_hold, 400)
{
	char name[] = "crowd", folder[80];
	const char *prefix = "lk/L/crowd";
	struct process crowd[2 * CROWD], doomed[2];
	int count;

	folder_make(folder, sizeof(folder));
	snprintf(crowd_folder, sizeof(crowd_folder), "%s/held", folder);
	process_start(&doomed[0], hold_here, name);
	count = start_crowd(crowd, kind, name, prefix);
	/* One of each dies while it holds the lock. */
	line_write(doomed[0].in, "go");
	other_start(&doomed[1], kind, prefix, true);
	for (int i = 0; i < 2; i++) {
		(void)line_read(doomed[i].out, LONG_MS * 2);
		process_kill(&doomed[i]);
	}
	for (int i = 0; i < count; i++) {
		int status = process_wait(&crowd[i], LONG_MS * 10);
		ck_assert_msg(!status, "%d: %x: %s", i, (unsigned)status,
		              line_read(crowd[i].out, 0));
	}
	ck_assert_int_eq(tickets(prefix), 0);
}
