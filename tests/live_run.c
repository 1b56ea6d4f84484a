/* SPDX-License-Identifier: MIT
 * lk_lock_run() and lk_semaphore_run(): the function's arguments, the report about its result, a
 * loss and the release, and the remaining keys of the store. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <string.h>

/* The behaviour of a function under the lock, and its observations. */
struct work {
	lk_lock *lock, *other;
	lk_semaphore *semaphore;
	struct redis *redis;
	int calls;
	uint64_t fence;
};

static struct test_server server;
static struct redis *redis;
static struct work work;
static lk_run run;

/* Open a client with a short command timeout, and its lock "a". */
static lk_client *set_up(void)
{
	const lk_client_options options = {.command_timeout_ms = 300};
	lk_client *client;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_with(server.url, &options);
	memset(&run, 0xff, sizeof(run));
	work = (struct work){.lock = lock_named(client, "a"), .redis = redis};
	work.other = lock_named(client_at(server.url), "a");
	return client;
}

/* The last run's report has these values; its other members are 0. */
static void expect_run(lk_run_stage stage, int result, uint64_t fence, lk_lost_reason lost)
{
	const lk_run expected = {.stage = stage, .result = result, .fence = fence, .lost = lost};

	ck_assert_int_eq(run.stage, stage);
	ck_assert_int_eq(run.result, result);
	ck_assert_uint_eq(run.fence, fence);
	ck_assert_int_eq(run.lost, lost);
	ck_assert(!memcmp(run.reserved, expected.reserved, sizeof(run.reserved)));
	memset(&run, 0xff, sizeof(run));
}

static int note(struct work *self, uint64_t fence, int result)
{
	self->calls++;
	self->fence = fence;
	return result;
}

static int look(void *arg, uint64_t fence)
{
	struct work *self = arg;

	ck_assert(lk_lock_is_mine(self->lock));
	ck_assert_uint_eq(hold_of(self->lock).fence, fence);
	EXPECT(lk_lock_acquire(self->other, 0, NULL), LK_EBUSY);
	return note(self, fence, 17);
}

TEST(function_runs_once_under_the_lock)
{
	lk_client *client = set_up();

	OK(lk_lock_run(work.lock, 0, look, &work, &run));
	ck_assert_int_eq(work.calls, 1);
	ck_assert_uint_ne(work.fence, 0);
	expect_run(LK_RUN_DONE, 17, work.fence, 0);
	ck_assert(!lk_lock_is_mine(work.lock));
	OK(lk_lock_run(work.lock, LK_FOREVER, look, &work, NULL));
	ck_assert_int_eq(work.calls, 2);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}"), 0);
	OK(lk_client_close(client));
}

TEST(function_is_not_called_without_the_lock)
{
	lk_client *client = set_up();
	lk_run before;

	OK(lk_lock_acquire(work.other, 0, NULL));
	EXPECT(lk_lock_run(work.lock, 0, look, &work, &run), LK_EBUSY);
	expect_run(LK_RUN_ACQUIRE, 0, 0, 0);
	EXPECT(lk_lock_run(work.lock, 50, look, &work, &run), LK_ETIMEDOUT);
	expect_run(LK_RUN_ACQUIRE, 0, 0, 0);
	memset(&before, 0xff, sizeof(before));
	EXPECT(lk_lock_run(work.lock, -2, look, &work, &run), LK_EINVALID);
	EXPECT(lk_lock_run(work.lock, 0, NULL, &work, &run), LK_EINVALID);
	ck_assert(!memcmp(&run, &before, sizeof(run)));
	ck_assert_int_eq(work.calls, 0);
	OK(lk_client_close(client));
}

static int run_again(void *arg, uint64_t fence)
{
	struct work *self = arg;
	lk_run inner;

	OK(lk_lock_run(self->lock, 0, look, self, &inner));
	ck_assert_int_eq(inner.stage, LK_RUN_DONE);
	ck_assert_uint_eq(inner.fence, fence);
	ck_assert_int_eq(hold_of(self->lock).count, 1);
	return inner.result + 1;
}

TEST(runs_nest)
{
	lk_client *client = set_up();

	OK(lk_lock_run(work.lock, 0, run_again, &work, &run));
	expect_run(LK_RUN_DONE, 18, work.fence, 0);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}"), 0);
	OK(lk_client_close(client));
}

/* ---- Losses ------------------------------------------------------------------------------- */

static int break_it(void *arg, uint64_t fence)
{
	struct work *self = arg;

	OK(lk_lock_break(self->other, NULL));
	ck_assert(WITHIN(2000, lk_lock_state(self->lock) == LK_STATE_LOST));
	return note(self, fence, 1);
}

/* The client learns of the loss when it releases. */
static int delete_it(void *arg, uint64_t fence)
{
	struct work *self = arg;

	redis_do(self->redis, "DEL lk:{a}");
	return note(self, fence, 2);
}

static int outlast_it(void *arg, uint64_t fence)
{
	struct work *self = arg;

	nap_ms(400);
	return note(self, fence, 3);
}

TEST(loss_is_reported_with_its_reason)
{
	const lk_lock_options fixed = {.fixed = true, .lease_ms = 200};
	const lk_lock_options brief = {.max_hold_ms = 200};
	lk_client *client = set_up();

	EXPECT(lk_lock_run(work.lock, 0, break_it, &work, &run), LK_ELOST);
	expect_run(LK_RUN_RELEASE, 1, work.fence, LK_LOST_BROKEN);
	EXPECT(lk_lock_run(work.lock, 0, delete_it, &work, &run), LK_ELOST);
	expect_run(LK_RUN_RELEASE, 2, work.fence, LK_LOST_TAKEN);
	work.lock = lock_with(client, "a", &fixed);
	EXPECT(lk_lock_run(work.lock, 0, outlast_it, &work, &run), LK_ELOST);
	expect_run(LK_RUN_RELEASE, 3, work.fence, LK_LOST_EXPIRED);
	work.lock = lock_with(client, "a", &brief);
	EXPECT(lk_lock_run(work.lock, 0, outlast_it, &work, &run), LK_ELOST);
	expect_run(LK_RUN_RELEASE, 3, work.fence, LK_LOST_MAX_HOLD);
	/* The release has acknowledged it. */
	OK(lk_lock_run(work.lock, 5000, look, &work, &run));
	ck_assert_int_eq(work.calls, 5);
	OK(lk_client_close(client));
}

/* Within an outer hold the loss remains for the outer one to acknowledge. */
TEST(loss_is_reported_to_each_of_nested_holds)
{
	lk_client *client = set_up();

	OK(lk_lock_acquire(work.lock, 0, NULL));
	EXPECT(lk_lock_run(work.lock, 0, break_it, &work, &run), LK_ELOST);
	expect_run(LK_RUN_RELEASE, 1, work.fence, LK_LOST_BROKEN);
	EXPECT(lk_lock_run(work.lock, 0, look, &work, &run), LK_ELOST);
	expect_run(LK_RUN_ACQUIRE, 0, 0, 0);
	EXPECT(lk_lock_release(work.lock), LK_ELOST);
	EXPECT(lk_lock_release(work.lock), LK_ENOTOWNER);
	ck_assert_int_eq(work.calls, 1);
	OK(lk_client_close(client));
}

/* ---- Releases ----------------------------------------------------------------------------- */

static int pause_the_server(void *arg, uint64_t fence)
{
	server_pause(&server);
	return note(arg, fence, 4);
}

TEST(release_that_is_not_confirmed_is_reported)
{
	lk_client *client = set_up();

	EXPECT(lk_lock_run(work.lock, 0, pause_the_server, &work, &run), LK_EUNKNOWN);
	expect_run(LK_RUN_RELEASE, 4, work.fence, 0);
	ck_assert_int_eq(lk_lock_state(work.lock), LK_STATE_NONE);
	server_resume(&server);
	OK(lk_lock_run(work.lock, 10000, look, &work, NULL)); /* it was released nevertheless */
	OK(lk_client_close(client));
}

static int release_it(void *arg, uint64_t fence)
{
	struct work *self = arg;

	OK(lk_lock_release(self->lock));
	return note(self, fence, 5);
}

TEST(function_that_releases_is_reported)
{
	lk_client *client = set_up();

	EXPECT(lk_lock_run(work.lock, 0, release_it, &work, &run), LK_ENOTOWNER);
	expect_run(LK_RUN_RELEASE, 5, work.fence, 0);
	OK(lk_lock_acquire(work.other, 0, NULL));
	OK(lk_client_close(client));
}

/* The second hold is not the run's to release. */
static int release_and_acquire(void *arg, uint64_t fence)
{
	struct work *self = arg;

	OK(lk_lock_release(self->lock));
	OK(lk_lock_acquire(self->other, 0, NULL));
	OK(lk_lock_release(self->other));
	OK(lk_lock_acquire(self->lock, 0, NULL));
	return note(self, fence, 6);
}

TEST(function_that_releases_and_acquires_again_is_reported)
{
	lk_client *client = set_up();

	EXPECT(lk_lock_run(work.lock, 0, release_and_acquire, &work, &run), LK_ENOTOWNER);
	expect_run(LK_RUN_RELEASE, 6, work.fence, 0);
	ck_assert(lk_lock_is_mine(work.lock));
	OK(lk_lock_release(work.lock));
	OK(lk_client_close(client));
}

static int acknowledge_a_loss(void *arg, uint64_t fence)
{
	struct work *self = arg;

	OK(lk_lock_break(self->other, NULL));
	ck_assert(WITHIN(2000, lk_lock_state(self->lock) == LK_STATE_LOST));
	EXPECT(lk_lock_release(self->lock), LK_ELOST);
	OK(lk_lock_acquire(self->lock, 0, NULL));
	return note(self, fence, 7);
}

TEST(loss_that_the_function_acknowledged_is_no_success)
{
	lk_client *client = set_up();

	EXPECT(lk_lock_run(work.lock, 0, acknowledge_a_loss, &work, &run), LK_ENOTOWNER);
	expect_run(LK_RUN_RELEASE, 7, work.fence, 0);
	OK(lk_client_close(client));
}

/* An inner run, whose function releases its acquisition, takes none of the outer hold. */
TEST(run_releases_its_own_acquisition_only)
{
	lk_client *client = set_up();

	OK(lk_lock_acquire(work.lock, 0, NULL));
	EXPECT(lk_lock_run(work.lock, 0, release_it, &work, &run), LK_ENOTOWNER);
	expect_run(LK_RUN_RELEASE, 5, work.fence, 0);
	ck_assert(lk_lock_is_mine(work.lock));
	OK(lk_lock_release(work.lock));
	OK(lk_client_close(client));
}

/* ---- Permits ------------------------------------------------------------------------------ */

static int look_at_permits(void *arg, uint64_t fence)
{
	struct work *self = arg;

	ck_assert_int_eq(hold_in(self->semaphore, fence).count, 2);
	return note(self, fence, 6);
}

static int break_permits(void *arg, uint64_t fence)
{
	struct work *self = arg;

	OK(lk_semaphore_break(self->semaphore, NULL));
	return note(self, fence, 7);
}

static int release_permits(void *arg, uint64_t fence)
{
	struct work *self = arg;

	OK(lk_semaphore_release(self->semaphore, fence));
	return note(self, fence, 8);
}

TEST(function_runs_under_permits)
{
	lk_client *client = set_up();
	lk_run before;
	uint64_t hold;

	work.semaphore = semaphore_of(client, "s", 3, 0);
	OK(lk_semaphore_run(work.semaphore, 2, 0, look_at_permits, &work, &run));
	expect_run(LK_RUN_DONE, 6, work.fence, 0);
	OK(lk_semaphore_run(work.semaphore, 2, LK_FOREVER, look_at_permits, &work, NULL));
	hold = permits_of(work.semaphore, 2, 0); /* all were released */
	EXPECT(lk_semaphore_run(work.semaphore, 2, 0, look_at_permits, &work, &run), LK_EBUSY);
	expect_run(LK_RUN_ACQUIRE, 0, 0, 0);
	EXPECT(lk_semaphore_run(work.semaphore, 4, 0, look_at_permits, &work, &run), LK_ELIMIT);
	expect_run(LK_RUN_ACQUIRE, 0, 0, 0);
	memset(&before, 0xff, sizeof(before));
	EXPECT(lk_semaphore_run(work.semaphore, 0, 0, look_at_permits, &work, &run), LK_EINVALID);
	ck_assert(!memcmp(&run, &before, sizeof(run)));
	OK(lk_semaphore_release(work.semaphore, hold));
	EXPECT(lk_semaphore_run(work.semaphore, 3, 0, break_permits, &work, &run), LK_ELOST);
	ck_assert(run.lost == LK_LOST_BROKEN || run.lost == LK_LOST_TAKEN);
	expect_run(LK_RUN_RELEASE, 7, work.fence, run.lost);
	EXPECT(lk_semaphore_run(work.semaphore, 3, 0, release_permits, &work, &run), LK_ENOTOWNER);
	expect_run(LK_RUN_RELEASE, 8, work.fence, 0);
	ck_assert_int_eq(work.calls, 4);
	OK(lk_client_close(client));
}
