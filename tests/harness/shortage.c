/* SPDX-License-Identifier: MIT
 * Use everything once while one system call fails: see shortage.h. */
#include "shortage.h"

#include "handles.h"
#include "process.h"
#include "redis.h"
#include "server.h"
#include "test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS_MAX 20000
#define LEASE_MS 500

/* Is this the test's own thread, outside any call of the library? */
static __thread bool exempt;
static struct redis *redis;
static bool harmless, misreported;
static int outcomes[32];

bool shortage_strikes(struct shortage *shortage)
{
	if (exempt || shortage->left <= 0)
		return false;
	if (!(shortage->for_good && shortage->left == 1) &&
	    atomic_fetch_sub(&shortage->left, 1) != 1)
		return false;
	shortage->failures++;
	return true;
}

/* Assert that a call succeeded, or returned an error with a text. */
static lk_err noted(lk_err err, const char *call)
{
	bool right = err == LK_OK || err == LK_ETIMEDOUT || err == LK_EABSENT;

	if (!harmless)
		right = right || err == LK_ENOMEM || err == LK_ECONN || err == LK_EUNKNOWN ||
		        err == LK_ESYSTEM ||
		        (misreported && (err == LK_ESERVER || err == LK_EINVALID));
	ck_assert_msg(right, "%s: %s: %s", call, lk_err_name(err), lk_errmsg());
	ck_assert_msg(err == LK_OK || lk_errmsg()[0], "%s: %s, without an error text", call,
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

/* ---- Each kind, and its state in the store --------------------------------------------- */

static void use_lock(lk_client *client, lk_lock *lock)
{
	lk_lock_status status;
	lk_party parties[2];
	size_t count;
	lk_err err;

	if (NOTED(lk_lock_acquire(lock, 1000, NULL)) == LK_OK) {
		char fence[40];
		snprintf(fence, sizeof(fence), " %llu ", (unsigned long long)hold_of(lock).fence);
		ck_assert(lk_lock_is_mine(lock));
		ck_assert_uint_eq(hold_of(lock).count, 1);
		ck_assert_msg(strstr(redis_text(redis, "GET lk:{a}"), fence) != NULL,
		              "a hold that the store does not have");
		if (NOTED(lk_lock_query(lock, &status)) == LK_OK)
			ck_assert_uint_eq(status.fence, hold_of(lock).fence);
		NOTED(lk_lock_waiters(lock, 2, parties, &count));
		NOTED(lk_client_names(client, see_name, NULL));
		NOTED(lk_lock_extend(lock, LEASE_MS));
		err = NOTED(lk_lock_release(lock));
		ck_assert(err == LK_OK || err == LK_EUNKNOWN);
		ck_assert_msg(err != LK_OK || redis_int(redis, "EXISTS lk:{a}") == 0,
		              "released, but still in the store");
	}
	ck_assert(!lk_lock_is_mine(lock));
	ck_assert_uint_eq(hold_of(lock).count, 0);
}

static long long permits_used(void)
{
	const char *text = redis_text(redis, "HGET lk:{s} used");

	return *text ? strtoll(text, NULL, 10) : 0;
}

static void use_semaphore(lk_semaphore *semaphore)
{
	lk_semaphore_status status;
	uint64_t hold = 0;
	lk_err err;

	if (NOTED(lk_semaphore_acquire(semaphore, 3, 1000, &hold)) != LK_OK)
		return;
	ck_assert_int_eq(hold_in(semaphore, hold).count, 3);
	ck_assert_int_eq(permits_used(), 3);
	NOTED(lk_semaphore_query(semaphore, &status));
	err = NOTED(lk_semaphore_release_some(semaphore, hold, 1));
	ck_assert_int_eq(hold_in(semaphore, hold).count, 2);
	ck_assert(err != LK_OK || permits_used() == 2);
	NOTED(lk_semaphore_extend(semaphore, hold, LEASE_MS));
	err = NOTED(lk_semaphore_release(semaphore, hold));
	ck_assert(err == LK_OK || err == LK_EUNKNOWN);
	ck_assert(err != LK_OK || permits_used() == 0);
}

static void use_latch(lk_latch *latch)
{
	lk_latch_step step = {.remaining = 77};
	lk_latch_status status;
	lk_err err;
	bool made = NOTED(lk_latch_reset(latch, 2, NULL)) == LK_OK;

	NOTED(lk_latch_await(latch, 5));
	err = NOTED(lk_latch_down(latch, 1, "x", 0, &step));
	if (made && err == LK_OK)
		ck_assert_int_eq(step.remaining, 1);
	if (made && (err == LK_OK || err == LK_ECONN || err == LK_ENOMEM)) {
		long long count = redis_int(redis, "HGET lk:{latch} count");
		ck_assert_msg(count == (err == LK_OK ? 1 : 2), "%s, and the count is %lld",
		              lk_err_name(err), count);
	}
	NOTED(lk_latch_query(latch, &status));
	NOTED(lk_latch_down(latch, 1, NULL, 0, NULL));
	NOTED(lk_latch_await(latch, 100));
}

/* Use everything once, with a wait in the middle that times out. */
static void use_all(const char *url)
{
	const lk_client_options client_options = {
		.label = "short of all", .command_timeout_ms = 200, .connect_timeout_ms = 500};
	const lk_lock_options options = {.lease_ms = LEASE_MS, .label = "lock", .on_lost = on_lost};
	const lk_semaphore_options semaphore_options = {.capacity = 4, .lease_ms = LEASE_MS};
	lk_client *client = NULL;
	lk_lock *lock = NULL, *busy = NULL;
	lk_semaphore *semaphore = NULL;
	lk_latch *latch = NULL;

	if (NOTED(lk_client_open(url, &client_options, &client)) != LK_OK) {
		ck_assert_ptr_null(client);
		return;
	}
	if (NOTED(lk_lock_open(client, "a", 0, &options, &lock)) == LK_OK)
		use_lock(client, lock);
	if (NOTED(lk_lock_open(client, "near", 0, &options, &busy)) == LK_OK)
		ck_assert_int_ne(NOTED(lk_lock_acquire(busy, 5, NULL)), LK_OK);
	if (NOTED(lk_semaphore_open(client, "s", 0, &semaphore_options, &semaphore)) == LK_OK)
		use_semaphore(semaphore);
	if (NOTED(lk_latch_open(client, "latch", 0, NULL, &latch)) == LK_OK)
		use_latch(latch);
	NOTED(lk_lock_close(lock));
	NOTED(lk_client_close(client));
}

/* ---- What is left ------------------------------------------------------------------------- */

/* The state of this process, for failure messages. */
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

/* A joined thread is visible for a moment longer. */
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

/* An expired lease is not a hold, even if no script has removed it yet. */
static bool store_is_clean(void)
{
	long long seconds = strtoll(redis_text(redis, "TIME"), NULL, 10);

	return redis_int(redis, "EXISTS lk:{a} lk:{a}:q lk:{s}:q") == 0 &&
	       redis_int(redis, "ZCOUNT lk:{s}:h %lld000000 +inf", seconds) == 0;
}

void shortage_everywhere(const struct test_server *server, const char *url,
                         struct shortage *shortage, int least)
{
	/* Links may have to reconnect, too, and must be up before threads are counted. */
	const lk_client_options near_options = {.connect_timeout_ms = 1000};
	lk_lock *near; /* another client's */
	int step = shortage->step && !getenv("LK_LONG") ? shortage->step : 1;
	int fds, threads, n;

	exempt = true;
	harmless = shortage->harmless;
	misreported = shortage->misreported;
	redis = redis_open(server);
	near = lock_named(client_with(server->unix_url, &near_options), "near");
	OK(lk_lock_acquire(near, 1000, NULL));
	use_all(url);
	fds = proc_fd_count(0);
	threads = settled_thread_count();
	for (n = 1; n < REQUESTS_MAX; n += step) {
		int before = shortage->failures;
		shortage->left = n;
		use_all(url);
		shortage->left = 0;
		ck_assert_msg(WITHIN(1500, store_is_clean()), "n = %d leaves a hold or a wait", n);
		ck_assert_msg(WITHIN(2000, proc_fd_count(0) == fds), "n = %d leaves descriptors",
		              n);
		ck_assert_msg(WITHIN(2000, proc_thread_count(0) == threads),
		              "n = %d leaves threads: %s", n, thread_names());
		/* Links may have had to reconnect. */
		ck_assert(lk_lock_is_mine(near));
		if (shortage->failures == before)
			break;
	}
	printf("%d failures:", n - 1);
	for (int i = 0; i < 32; i++)
		if (outcomes[i])
			printf(" %s %d", lk_err_name((lk_err)i), outcomes[i]);
	printf("\n");
	ck_assert_int_ge(n - 1, least);
	ck_assert_int_lt(n, REQUESTS_MAX);
	OK(lk_lock_release(near));
}
