/* SPDX-License-Identifier: MIT
 * Concurrent calls: a close while others wait, run callbacks or are cancelled, a store that does
 * not respond, a machine that sleeps.  No call hangs, leaks or exceeds its time limit. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct test_server server;
static struct redis *redis;

static lk_client *set_up(const lk_client_options *options)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
	return client_with(server.url, options);
}

/* ---- Replacements for libc's clock and user look-up ---------------------------------------- */

static atomic_llong slept_s; /* how long the machine appears to have slept */

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int result = (int)syscall(SYS_clock_gettime, clock, now);

	if (clock == CLOCK_BOOTTIME)
		now->tv_sec += slept_s;
	return result;
}

static atomic_bool users_slow;
static atomic_int users_asked;

/* A user directory that does not respond for a while. */
int getpwuid_r(uid_t uid, struct passwd *entry, char *buf, size_t len, struct passwd **result)
{
	(void)uid;
	(void)entry;
	(void)buf;
	(void)len;
	users_asked++;
	for (int i = 0; i < 1000 && users_slow; i++)
		nap_ms(1);
	*result = NULL;
	return ENOENT;
}

/* ---- A thread that makes one call ---------------------------------------------------------- */

struct call {
	lk_lock *lock;
	lk_client *client;
	int64_t wait_ms;
	lk_err (*fn)(struct call *call);
	lk_err err;
	int64_t took_ms;
	atomic_bool ended;
	pthread_t thread;
};

static void *call_thread(void *arg)
{
	struct call *call = arg;
	int64_t start_ms = now_ms();

	call->err = call->fn(call);
	call->took_ms = now_ms() - start_ms;
	call->ended = true;
	return NULL;
}

static void call_start(struct call *call)
{
	pthread_create(&call->thread, NULL, call_thread, call);
}

static lk_err acquire(struct call *call)
{
	return lk_lock_acquire(call->lock, call->wait_ms, NULL);
}

static lk_err close_client(struct call *call)
{
	return lk_client_close(call->client);
}

static lk_err close_lock(struct call *call)
{
	return lk_lock_close(call->lock);
}

static void expect_end(struct call *call, int64_t ms, lk_err expected)
{
	ck_assert_msg(WITHIN(ms + 5000, call->ended), "it hangs");
	pthread_join(call->thread, NULL);
	ck_assert_msg(call->took_ms <= ms, "took %lld ms", (long long)call->took_ms);
	ck_assert_msg(call->err == expected, "%s, not %s", lk_err_name(call->err),
	              lk_err_name(expected));
}

/* ---- Ends of waits while the store does not respond ---------------------------------------- */

static const lk_client_options quick = {.command_timeout_ms = 500};

TEST(cancel_ends_a_long_wait_though_the_store_is_silent)
{
	lk_client *client = set_up(&quick), *other = client_with(server.url, &quick);
	lk_lock *held = lock_named(client, "a"), *lock = lock_named(other, "a");
	struct call call = {.lock = lock, .wait_ms = 60000, .fn = acquire};

	OK(lk_lock_acquire(held, 0, NULL));
	call_start(&call);
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	server_pause(&server);
	OK(lk_lock_cancel(lock));
	expect_end(&call, 1000, LK_EUNKNOWN);
	server_resume(&server);
	OK(lk_client_close(other));
	OK(lk_client_close(client));
}

TEST(close_ends_a_long_wait_though_the_store_is_silent)
{
	lk_client *client = set_up(&quick), *other = client_with(server.url, &quick);
	lk_lock *held = lock_named(client, "a");
	struct call wait = {.lock = lock_named(other, "a"), .wait_ms = 60000, .fn = acquire};
	struct call end = {.client = other, .fn = close_client};

	OK(lk_lock_acquire(held, 0, NULL));
	call_start(&wait);
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	server_pause(&server);
	call_start(&end);
	expect_end(&wait, 60000, LK_EUNKNOWN);
	expect_end(&end, 1000, LK_EUNKNOWN);
	server_resume(&server);
	OK(lk_client_close(client));
}

/* ---- Closing while a loss callback waits --------------------------------------------------- */

static atomic_bool calling_back, go_on;
static _Atomic(lk_err) called_back;

/* Acquire the lock again, as programs may do. */
static void acquire_again(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	(void)arg;
	(void)fence;
	(void)reason;
	calling_back = true;
	while (!go_on)
		nap_ms(1);
	called_back = lk_lock_acquire(lock, LK_FOREVER, NULL);
	calling_back = false;
}

/* Return a lock that client lost to other, whose callback is running and waits for go_on. */
static lk_lock *lose(lk_client *client, lk_client *other)
{
	const lk_lock_options options = {.on_lost = acquire_again};
	lk_lock *lock = lock_with(client, "a", &options);

	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_break(lock_named(other, "a"), NULL));
	OK(lk_lock_acquire(lock_named(other, "a"), 1000, NULL));
	ck_assert(WITHIN(2000, calling_back));
	return lock;
}

TEST(close_ends_a_wait_in_a_callback)
{
	lk_client *client = set_up(&quick), *other = client_at(server.url);
	struct call end = {.client = client, .fn = close_client};

	lose(client, other);
	go_on = true;
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	call_start(&end);
	expect_end(&end, 1000, LK_OK);
	ck_assert_int_eq(called_back, LK_ECLOSED);
	OK(lk_client_close(other));
}

TEST(close_of_a_lock_ends_a_wait_that_a_callback_begins_later)
{
	lk_client *client = set_up(&quick), *other = client_at(server.url);
	struct call end = {.fn = close_lock};

	end.lock = lose(client, other);
	call_start(&end);
	nap_ms(100); /* it most likely waits for the callback by now; if not, the test passes, too
	              */
	go_on = true;
	expect_end(&end, 2000, LK_OK);
	ck_assert_int_eq(called_back, LK_ECLOSED);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

static _Atomic(lk_client *) logging;
static _Atomic(lk_err) log_closed;

static void close_by_log(void *arg, lk_log_level level, const char *line)
{
	(void)arg;
	(void)level;
	(void)line;
	if (logging && !log_closed)
		log_closed = lk_client_close(logging);
}

TEST(log_hook_cannot_close_its_client)
{
	const lk_client_options options = {.log = close_by_log};

	logging = set_up(&options);
	server_kill(&server);
	ck_assert(WITHIN(2000, log_closed));
	ck_assert_int_eq(log_closed, LK_EDEADLOCK);
	OK(lk_client_close(logging));
}

/* ---- Threads and processes that start and end ---------------------------------------------- */

static pthread_barrier_t all_hold;

static void *hold_and_end(void *arg)
{
	lk_lock *lock = arg;
	lk_err err = lk_lock_acquire(lock, LK_FOREVER, NULL);

	pthread_barrier_wait(&all_hold);
	return err ? arg : NULL;
}

TEST(threads_end_holding_while_their_client_is_closed)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
	for (int round = 0; round < 20; round++) {
		lk_client *client = client_at(server.url);
		pthread_t threads[8];
		void *failed;

		pthread_barrier_init(&all_hold, NULL, 9);
		for (int i = 0; i < 8; i++) {
			char name[] = {'a', (char)('0' + i), '\0'};
			pthread_create(&threads[i], NULL, hold_and_end, lock_named(client, name));
		}
		pthread_barrier_wait(&all_hold);
		OK(lk_client_close(client));
		for (int i = 0; i < 8; i++) {
			pthread_join(threads[i], &failed);
			ck_assert_ptr_null(failed);
		}
		pthread_barrier_destroy(&all_hold);
		ck_assert_int_eq(redis_size(redis), 1);
	}
}

static atomic_bool work_over;

static void *work(void *arg)
{
	while (!work_over) {
		OK(lk_lock_acquire(arg, LK_FOREVER, NULL));
		OK(lk_lock_release(arg));
	}
	return NULL;
}

TEST(fork_in_the_middle_of_calls_stops_neither_process)
{
	lk_client *client = set_up(NULL);
	lk_lock *lock = lock_named(client, "a");
	pthread_t threads[3];

	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, work, lock);
	for (int i = 0; i < 50; i++) {
		int status = -1;
		pid_t pid = fork();
		if (pid == 0)
			_exit(lk_lock_acquire(lock, 0, NULL) != LK_EFORKED ||
			      lk_lock_cancel(lock) != LK_EFORKED ||
			      lk_lock_state(lock) != LK_STATE_NONE ||
			      lk_lock_close(lock) != LK_EFORKED ||
			      lk_client_close(client) != LK_EFORKED);
		ck_assert_int_gt(pid, 0);
		ck_assert(WITHIN(2000, waitpid(pid, &status, WNOHANG) == pid));
		ck_assert_int_eq(status, 0);
	}
	work_over = true;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	OK(lk_client_close(client));
}

/* ---- Nothing is leaked --------------------------------------------------------------------- */

TEST(close_frees_what_was_never_answered)
{
	lk_client *client = set_up(&quick);

	OK(lk_lock_acquire(lock_named(client, "a"), 0, NULL));
	server_pause(&server);
	/* The client's description gets no response; the address sanitizer would report a leak. */
	EXPECT(lk_client_close(client), LK_EUNKNOWN);
	server_resume(&server);
}

/* ---- The mutex is not held during a look-up ------------------------------------------------ */

TEST(slow_user_directory_delays_no_call)
{
	lk_client *client = set_up(NULL);
	lk_lock *lock = lock_named(client, "a");
	struct call call = {.lock = lock_named(client, "b"), .fn = acquire};
	int64_t start_ms;

	users_slow = true;
	start_ms = now_ms();
	call_start(&call);
	ck_assert_int_eq(lk_lock_acquire(lock, 0, NULL), LK_OK);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	ck_assert_int_le(now_ms() - start_ms, 500);
	expect_end(&call, 500, LK_OK);
	users_slow = false;
	ck_assert_int_gt(users_asked, 0);
	OK(lk_client_close(client));
}

/* ---- Thread cancellation ------------------------------------------------------------------- */

static void call_all(lk_lock *lock)
{
	lk_lock_status status;
	lk_client *client;

	if (lk_lock_query(lock, &status) == LK_OK)
		lk_lock_cancel(lock);
	if (lk_lock_acquire(lock, 100, NULL) == LK_OK)
		lk_lock_release(lock);
	if (lk_client_open(server.url, NULL, &client) == LK_OK)
		lk_client_close(client);
}

/* Keep no locals: the address sanitizer does not notice that a cancellation ends this function. */
static void *cancel_victim(void *arg)
{
	for (;;) {
		call_all(arg);
		pthread_testcancel();
	}
	return NULL;
}

TEST_LIMIT(cancelled_thread_leaves_the_client_usable, 40)
{
	lk_client *client = set_up(NULL);
	lk_lock *lock = lock_named(client, "a"), *other = lock_named(client, "b");
	int fds = proc_fd_count(0);
	int64_t start_ms;

	for (int i = 0; i < 200; i++) {
		pthread_t thread;
		pthread_create(&thread, NULL, cancel_victim, lock);
		nap_ms(i % 7);
		pthread_cancel(thread);
		pthread_join(thread, NULL);
		start_ms = now_ms();
		OK(lk_lock_acquire(other, 1000, NULL));
		OK(lk_lock_release(other));
		ck_assert_int_le(now_ms() - start_ms, 500);
	}
	ck_assert_int_eq(proc_fd_count(0), fds);
	OK(lk_client_close(client));
}

/* ---- A machine that sleeps ----------------------------------------------------------------- */

TEST(wait_ends_soon_after_the_machine_slept_past_its_end)
{
	lk_client *other = set_up(NULL);
	struct call calls[2];

	/* A client of another machine holds the lock. */
	redis_do(redis, "SET lk:{a} %s PX 60000",
	         "2:AAAAAAAAAAAAAAAAAAAAAA:BBBBBBBBBBB:60000:r 5 60000 -");
	for (int i = 0; i < 2; i++) {
		calls[i] = (struct call){
			.lock = lock_leased(other, "a", 600), .wait_ms = 15000, .fn = acquire};
		call_start(&calls[i]);
	}
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	nap_ms(50);
	slept_s += 3600;
	for (int i = 0; i < 2; i++) {
		ck_assert_msg(WITHIN(5000, calls[i].ended), "it still waits");
		pthread_join(calls[i].thread, NULL);
		ck_assert_int_eq(calls[i].err, LK_ETIMEDOUT);
	}
	OK(lk_client_close(other));
}

/* ---- Replies are always read --------------------------------------------------------------- */

static atomic_bool storm_over;

static void *storm_wait(void *arg)
{
	while (!storm_over)
		if (lk_lock_acquire(arg, 1, NULL) == LK_OK)
			lk_lock_release(arg);
	return NULL;
}

static void *storm_cancel(void *arg)
{
	while (!storm_over)
		lk_lock_cancel(arg);
	return NULL;
}

/* An unread response is only found by the next ping, which breaks the connection. */
TEST_LIMIT(answers_are_read_while_waits_are_cancelled, 40)
{
	lk_client *client = set_up(NULL);
	lk_lock *free_lock = lock_named(client, "free");
	lk_client *other = client_at(server.url);
	pthread_t threads[6];
	int64_t worst_ms = 0, end_ms = now_ms() + 2000;

	OK(lk_lock_acquire(lock_named(other, "held"), 0, NULL));
	for (int i = 0; i < 3; i++) {
		lk_lock *lock = lock_named(client, "held");
		pthread_create(&threads[2 * i], NULL, storm_wait, lock);
		pthread_create(&threads[2 * i + 1], NULL, storm_cancel, lock);
	}
	while (now_ms() < end_ms) {
		int64_t start_ms = now_ms();
		OK(lk_lock_acquire(free_lock, 10000, NULL));
		OK(lk_lock_release(free_lock));
		if (now_ms() - start_ms > worst_ms)
			worst_ms = now_ms() - start_ms;
	}
	storm_over = true;
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
	ck_assert_msg(worst_ms < 1000, "one took %lld ms", (long long)worst_ms);
	ck_assert_int_le(redis_info(redis, "total_connections_received"), 6);
	OK(lk_client_close(other));
	OK(lk_client_close(client));
}
