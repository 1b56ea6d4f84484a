/* SPDX-License-Identifier: MIT
 * No memory and no threads (C20, C21 of the fault list): the n-th request for either fails, for
 * every n that the library comes to.
 *
 * LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=pthread_create
 */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define ASKS_MAX 2000

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);

/* Which request fails: 1 is the next one, 0 none any more. */
static atomic_int memory_left, threads_left;
static bool for_good; /* and all after it */
static atomic_int failures;
/* The test's own thread, while it is in no call: Check needs memory, too. */
static __thread bool exempt;

static bool fails(atomic_int *left)
{
	if (exempt || *left <= 0)
		return false;
	if (for_good && *left == 1) {
		failures++;
		return true;
	}
	if (atomic_fetch_sub(left, 1) != 1)
		return false;
	failures++;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return fails(&memory_left) ? errno = ENOMEM, NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return fails(&memory_left) ? errno = ENOMEM, NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
	return fails(&memory_left) ? errno = ENOMEM, NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
	return fails(&memory_left) ? errno = ENOMEM, NULL : __real_strdup(text);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg)
{
	return fails(&threads_left) ? EAGAIN : __real_pthread_create(thread, attr, fn, arg);
}

static struct test_server server;
static struct redis *redis;
static lk_lock *near; /* another client's */
static int outcomes[32];

/* An end of a call while memory is short: it did its work, or says why not. */
static lk_err noted(lk_err err, const char *call)
{
	bool right = err == LK_OK || err == LK_ENOMEM || err == LK_ECONN || err == LK_EUNKNOWN ||
	             err == LK_ESYSTEM || err == LK_ETIMEDOUT || err == LK_EABSENT;

	ck_assert_msg(right, "%s: %s: %s", call, lk_err_name(err), lk_errmsg());
	ck_assert_msg(err == LK_OK || lk_errmsg()[0], "%s: %s, and no word", call,
	              lk_err_name(err));
	outcomes[err]++;
	return err;
}
#define NOTED(call)                                                                                \
	({                                                                                         \
		exempt = false;                                                                    \
		lk_err noted_err_ = (call);                                                        \
		exempt = true;                                                                     \
		noted(noted_err_, #call);                                                          \
	})

static void on_lost(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	(void)arg;
	(void)lock;
	(void)fence;
	(void)reason;
}

static bool see_name(void *arg, const char *name, size_t len)
{
	(void)arg;
	(void)name;
	return len > 0;
}

static void use_lock(lk_client *client, lk_lock *lock)
{
	lk_lock_status status;
	lk_party parties[2];
	size_t count;
	lk_err err;

	if (NOTED(lk_lock_acquire(lock, 1000)) == LK_OK) {
		ck_assert(lk_lock_is_mine(lock));
		ck_assert_uint_eq(lk_lock_hold_count(lock), 1);
		if (NOTED(lk_lock_query(lock, &status)) == LK_OK)
			ck_assert_uint_eq(status.fence, lk_lock_fence(lock));
		NOTED(lk_lock_waiters(lock, 2, parties, &count));
		NOTED(lk_client_list(client, see_name, NULL));
		NOTED(lk_lock_extend(lock, 500));
		err = NOTED(lk_lock_release(lock));
		ck_assert(err == LK_OK || err == LK_EUNKNOWN);
	}
	ck_assert(!lk_lock_is_mine(lock));
	ck_assert_uint_eq(lk_lock_hold_count(lock), 0);
}

static void use_latch(lk_latch *latch)
{
	lk_latch_step step = {.remaining = 77};
	lk_latch_status status;
	lk_err err;
	bool made = NOTED(lk_latch_reset(latch, 2, NULL)) == LK_OK;

	NOTED(lk_latch_await(latch, 5));
	err = NOTED(lk_latch_down(latch, 1, "x", &step));
	ck_assert(!made || err != LK_OK || step.remaining == 1);
	NOTED(lk_latch_query(latch, &status));
	NOTED(lk_latch_down(latch, 1, NULL, NULL));
	NOTED(lk_latch_await(latch, 100));
}

/* Everything once, with a wait in the middle that times out. */
static void use_all(const char *url)
{
	const lk_client_options client_options = {
		.label = "short of memory", .command_timeout_ms = 200, .connect_timeout_ms = 500};
	const lk_lock_options options = {.lease_ms = 500, .label = "lock", .on_lost = on_lost};
	lk_client *client = NULL;
	lk_lock *lock = NULL, *busy = NULL;
	lk_latch *latch = NULL;

	if (NOTED(lk_client_open(url, &client_options, &client)) != LK_OK) {
		ck_assert_ptr_null(client);
		return;
	}
	if (NOTED(lk_lock_open(client, "a", &options, &lock)) == LK_OK)
		use_lock(client, lock);
	if (NOTED(lk_lock_open(client, "near", &options, &busy)) == LK_OK)
		ck_assert_int_ne(NOTED(lk_lock_acquire(busy, 5)), LK_OK);
	if (NOTED(lk_latch_open(client, "latch", NULL, &latch)) == LK_OK)
		use_latch(latch);
	NOTED(lk_lock_close(lock));
	NOTED(lk_client_close(client));
}

/* Of this process, for people. */
static const char *thread_names(void)
{
	static char names[1000];
	char path[320];
	struct dirent *entry;
	DIR *tasks = opendir("/proc/self/task");
	size_t len = 0;

	while (tasks && (entry = readdir(tasks)) && len < sizeof(names) - 40) {
		FILE *file;
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		file = fopen(path, "r");
		if (file && fgets(names + len, 32, file))
			len += strcspn(names + len, "\n");
		if (file)
			fclose(file);
		names[len++] = ' ';
		names[len] = '\0';
	}
	if (tasks)
		closedir(tasks);
	return names;
}

/* A thread that was joined is seen for an instant more. */
static int settled_thread_count(void)
{
	int least = proc_thread_count(0);

	for (int i = 0; i < 50; i++) {
		int count = proc_thread_count(0);
		if (count < least)
			least = count;
		nap_ms(2);
	}
	return least;
}

static void fail_everywhere(const char *url, atomic_int *left, int least)
{
	/* Its links may have to be made anew, too, and that is over before threads are counted. */
	const lk_client_options near_options = {.connect_timeout_ms = 1000};
	int fds, threads, n;

	exempt = true;
	near = lock_named(client_with(server.unix_url, &near_options), "near");
	OK(lk_lock_acquire(near, 1000));
	use_all(url);
	fds = proc_fd_count(0);
	threads = settled_thread_count();
	for (n = 1; n < ASKS_MAX; n += for_good ? 3 : 1) {
		int before = failures;
		*left = n;
		use_all(url);
		*left = 0;
		ck_assert_msg(WITHIN(1500, redis_int(redis, "EXISTS lk:{a} lk:{a}:q") == 0),
		              "n = %d leaves a key", n);
		ck_assert_msg(WITHIN(2000, proc_fd_count(0) == fds), "n = %d leaves descriptors",
		              n);
		ck_assert_msg(WITHIN(2000, proc_thread_count(0) == threads),
		              "n = %d leaves threads: %s", n, thread_names());
		ck_assert(
			lk_lock_is_mine(near)); /* though its links may have had to be made anew */
		if (failures == before)
			break;
	}
	printf("%d failures:", n - 1);
	for (int i = 0; i < 32; i++)
		if (outcomes[i])
			printf(" %s %d", lk_err_name((lk_err)i), outcomes[i]);
	printf("\n");
	ck_assert_int_ge(n - 1, least);
	ck_assert_int_lt(n, ASKS_MAX);
	OK(lk_lock_release(near));
}

TEST_LIMIT(c20_every_failing_allocation_is_an_error_and_nothing_more, 120)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
	fail_everywhere(server.url, &memory_left, 30);
}

TEST_LIMIT(c20_failing_allocations_on_a_unix_socket, 120)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
	fail_everywhere(server.unix_url, &memory_left, 30);
}

TEST_LIMIT(c20_memory_that_is_gone_for_good_is_an_error_and_nothing_more, 120)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
	for_good = true;
	fail_everywhere(server.unix_url, &memory_left, 30);
}

TEST(c21_every_thread_that_cannot_start_is_an_error_and_nothing_more)
{
	lk_client *client = NULL;

	server_start(&server, NULL);
	redis = redis_open(&server);
	threads_left = 1;
	EXPECT(lk_client_open(server.unix_url, NULL, &client), LK_ESYSTEM);
	ck_assert_ptr_null(client);
	fail_everywhere(server.url, &threads_left, 2);
}
