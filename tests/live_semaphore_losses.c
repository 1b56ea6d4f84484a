/* SPDX-License-Identifier: MIT
 * Each promise of latchkey.h about how a hold of permits lasts and ends: leases, extending,
 * losses and their reasons, callbacks, and forks. */
#include "harness/handles.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_server server;
static struct redis *redis;

static lk_client *set_up(void)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
	return client_at(server.url);
}

/* Return the milliseconds until the store ends the only hold. */
static long long lease_left(void)
{
	return redis_int(redis, "EVAL %s 1 lk:{a}:h",
	                 "local t, e = redis.call('TIME'), redis.call('ZRANGE', KEYS[1], 0, 0, "
	                 "'WITHSCORES') return math.floor((e[2] - t[1] * 1000000 - t[2]) / 1000)");
}

/* The loss is reported once, with this reason and the hold's fence, and the hold's state agrees. */
static void expect_loss(lk_semaphore *semaphore, uint64_t hold, lk_lost_reason reason)
{
	ck_assert_msg(WITHIN(3000, permit_losses.count > 0), "no loss was reported");
	nap_ms(20);
	ck_assert_int_eq(permit_losses.count, 1);
	ck_assert_msg(permit_losses.reason == reason, "%s, not %s",
	              lk_lost_reason_name(permit_losses.reason), lk_lost_reason_name(reason));
	ck_assert_uint_eq(permit_losses.hold, hold);
	ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_LOST);
	ck_assert_int_eq(hold_in(semaphore, hold).remaining_ms, 0);
	ck_assert_int_eq(hold_in(semaphore, hold).count, 2);
	EXPECT(lk_semaphore_release_some(semaphore, hold, 1), LK_ELOST);
	EXPECT(lk_semaphore_extend(semaphore, hold, 1000), LK_ELOST);
	ck_assert_int_eq(hold_in(semaphore, hold).count, 2);
	EXPECT(lk_semaphore_release(semaphore, hold), LK_ELOST);
	EXPECT(lk_semaphore_release(semaphore, hold), LK_ENOTOWNER);
	ck_assert_int_eq(hold_in(semaphore, hold).count, 0);
	ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_NONE);
}

/* ---- Leases ------------------------------------------------------------------------------- */

TEST(renewed_holds_outlive_their_lease)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_watched(
		client, "a", (lk_semaphore_options){.capacity = 3, .lease_ms = 300});
	uint64_t hold = permits_of(semaphore, 2, 0);

	for (int i = 0; i < 20; i++) {
		long long left = lease_left();
		nap_ms(50);
		ck_assert(left > 0 && left <= 300);
		ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_HELD);
		ck_assert_int_gt(hold_in(semaphore, hold).remaining_ms, 0);
		ck_assert_int_le(hold_in(semaphore, hold).remaining_ms, 300);
	}
	ck_assert_int_eq(permit_losses.count, 0);
	OK(lk_semaphore_release(semaphore, hold));
	OK(lk_client_close(client));
	ck_assert(permits_at_rest(redis, "a", 3));
}

TEST(extending_moves_the_end_of_a_hold)
{
	static const int64_t wrong[] = {
		0, -1, LK_LEASE_MIN_MS - 1, LK_LEASE_MAX_MS + 1, INT64_MAX, INT64_MIN};
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_watched(
		client, "a", (lk_semaphore_options){.capacity = 3, .lease_ms = 300, .fixed = true});
	uint64_t hold = permits_of(semaphore, 2, 0);

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		EXPECT(lk_semaphore_extend(semaphore, hold, wrong[i]), LK_EINVALID);
	EXPECT(lk_semaphore_extend(semaphore, hold + 1, 600), LK_ENOTOWNER);
	ck_assert_int_le(lease_left(), 300);
	OK(lk_semaphore_extend(semaphore, hold, 800));
	ck_assert_int_gt(hold_in(semaphore, hold).remaining_ms, 700);
	ck_assert_int_gt(lease_left(), 700);
	nap_ms(500);
	ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_HELD);
	ck_assert_int_eq(permit_losses.count, 0);
	/* Less than is left: only the holder shortens it, and then releases it. */
	OK(lk_semaphore_extend(semaphore, hold, 100));
	ck_assert_int_le(hold_in(semaphore, hold).remaining_ms, 100);
	expect_loss(semaphore, hold, LK_LOST_EXPIRED);
	ck_assert(WITHIN(500, permits_at_rest(redis, "a", 3)));
	OK(lk_client_close(client));
}

/* After a grant by message, the lease is counted from the start of the wait; a fixed one from its
 * claim. */
TEST(fixed_hold_that_was_waited_for_has_its_whole_lease)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_semaphore *semaphore = semaphore_of(client, "a", 3, 0);
	lk_semaphore *fixed = semaphore_with(
		other, "a",
		&(lk_semaphore_options){.capacity = 3, .lease_ms = 1000, .fixed = true});
	struct permit_wait wait;
	uint64_t hold = permits_of(semaphore, 3, 0);

	permit_wait_queue(&wait, redis, "a", fixed, 2, true);
	nap_ms(400);
	OK(lk_semaphore_release(semaphore, hold));
	OK(permit_wait_join(&wait));
	ck_assert_int_gt(hold_in(fixed, wait.hold).remaining_ms, 850);
	ck_assert_int_gt(lease_left(), 850);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	ck_assert(permits_at_rest(redis, "a", 3));
}

TEST(permits_of_nobody_come_back_when_their_lease_ends_and_not_before)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	const lk_semaphore_options options = {.capacity = 3, .lease_ms = 600, .fixed = true};
	lk_semaphore *rate = semaphore_with(client, "a", &options);
	lk_semaphore *later = semaphore_with(other, "a", &options);
	int64_t start_ms = now_ms();

	OK(lk_semaphore_acquire(rate, 2, 0, NULL));
	OK(lk_semaphore_close(rate));
	rate = semaphore_with(client, "a", &options);
	OK(lk_semaphore_acquire(rate, 1, LK_FOREVER, NULL));
	EXPECT(lk_semaphore_acquire(later, 1, 0, NULL), LK_EBUSY);
	OK(lk_client_close(client)); /* it has nothing to release */
	ck_assert_int_eq(permits_used(redis, "a"), 3);
	OK(lk_semaphore_acquire(later, 3, 5000, NULL));
	ck_assert_int_ge(now_ms() - start_ms, 600);
	ck_assert_int_le(now_ms() - start_ms, 900);
	/* A hold with an id is released by the id, fixed or not. */
	nap_ms(650);
	ck_assert_uint_ne(permits_of(later, 3, 0), 0);
	OK(lk_client_close(other));
	ck_assert(permits_at_rest(redis, "a", 3));
}

/* ---- Losses ------------------------------------------------------------------------------- */

TEST(loss_by_the_end_of_a_lease_is_told)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_watched(
		client, "a", (lk_semaphore_options){.capacity = 3, .lease_ms = 200, .fixed = true});
	int64_t start_ms = now_ms();
	uint64_t hold = permits_of(semaphore, 2, 0);

	expect_loss(semaphore, hold, LK_LOST_EXPIRED);
	ck_assert_int_le(permit_losses.at_ms - start_ms, 200 + 50);
	OK(lk_client_close(client));
}

TEST(loss_by_a_server_that_does_not_answer_is_told_in_time)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_watched(
		client, "a", (lk_semaphore_options){.capacity = 3, .lease_ms = 400});
	int64_t start_ms = now_ms();
	uint64_t hold = permits_of(semaphore, 2, 0);

	server_pause(&server);
	ck_assert(WITHIN(1000, lk_semaphore_state(semaphore, hold) == LK_STATE_UNSURE));
	expect_loss(semaphore, hold, LK_LOST_EXPIRED);
	ck_assert_int_le(permit_losses.at_ms - start_ms, 400 + 50);
	server_resume(&server);
	OK(lk_client_close(client));
}

TEST(loss_by_a_deleted_key_is_told_at_the_next_renewal)
{
	static const char *const keys[] = {"lk:{a}", "lk:{a}:h"};

	for (int i = 0; i < 2; i++) {
		lk_client *client = set_up();
		lk_semaphore *semaphore = semaphore_watched(
			client, "a", (lk_semaphore_options){.capacity = 3, .lease_ms = 600});
		int64_t start_ms = now_ms();
		uint64_t hold = permits_of(semaphore, 2, 0), next;

		redis_do(redis, "DEL %s", keys[i]);
		expect_loss(semaphore, hold, LK_LOST_TAKEN);
		ck_assert_int_le(permit_losses.at_ms - start_ms, 300 + 100);
		next = permits_of(semaphore, 3, 0); /* partial data counts as lost */
		ck_assert_uint_gt(next, hold);
		permits_add_up(redis, "a");
		OK(lk_client_close(client));
		ck_assert(permits_at_rest(redis, "a", 3));
		permit_losses.count = 0;
		redis_close(redis);
		server_stop(&server);
	}
}

TEST(loss_by_a_break_is_told_at_once)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_semaphore *semaphore =
		semaphore_watched(client, "a", (lk_semaphore_options){.capacity = 3});
	uint64_t hold = permits_of(semaphore, 2, 0);
	int64_t start_ms = now_ms();

	OK(lk_semaphore_break(semaphore_of(other, "a", 3, 0), NULL));
	expect_loss(semaphore, hold, LK_LOST_BROKEN);
	ck_assert_int_le(permit_losses.at_ms - start_ms, 500);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	ck_assert(permits_at_rest(redis, "a", 3));
}

TEST(hold_ends_after_its_maximum_and_is_released)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_watched(
		client, "a",
		(lk_semaphore_options){.capacity = 3, .lease_ms = 5000, .max_hold_ms = 500});
	int64_t start_ms = now_ms();
	uint64_t hold = permits_of(semaphore, 2, 0);

	nap_ms(400);
	ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_HELD);
	ck_assert_int_le(hold_in(semaphore, hold).remaining_ms, 100);
	expect_loss(semaphore, hold, LK_LOST_MAX_HOLD);
	ck_assert_int_ge(permit_losses.at_ms - start_ms, 499);
	ck_assert_int_le(permit_losses.at_ms - start_ms, 600);
	ck_assert(WITHIN(200, permits_at_rest(redis, "a", 3))); /* long before the lease's end */
	OK(lk_client_close(client));
}

TEST(callback_is_not_called_for_a_release_or_a_close)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_watched(
		client, "a", (lk_semaphore_options){.capacity = 3, .lease_ms = 100});
	uint64_t hold = permits_of(semaphore, 2, 0);

	OK(lk_semaphore_release_some(semaphore, hold, 1));
	OK(lk_semaphore_release(semaphore, hold));
	permits_of(semaphore, 2, 0);
	OK(lk_semaphore_close(semaphore));
	semaphore = semaphore_watched(client, "a",
	                              (lk_semaphore_options){.capacity = 3, .lease_ms = 100});
	permits_of(semaphore, 3, 1000);
	OK(lk_client_close(client));
	/* Nor for permits without an id. */
	client = client_at(server.url);
	semaphore = semaphore_watched(
		client, "a", (lk_semaphore_options){.capacity = 3, .lease_ms = 100, .fixed = true});
	OK(lk_semaphore_acquire(semaphore, 3, 1000, NULL));
	nap_ms(150);
	ck_assert_int_eq(permit_losses.count, 0);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 3, 0)));
	ck_assert(permits_at_rest(redis, "a", 3));
	OK(lk_client_close(client));
}

TEST(each_lost_hold_of_many_is_told_once)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_watched(
		client, "a", (lk_semaphore_options){.capacity = 100, .lease_ms = 900});
	uint64_t holds[100];

	for (int i = 0; i < 100; i++)
		holds[i] = permits_of(semaphore, 1, 0);
	redis_do(redis, "FLUSHALL");
	ck_assert(WITHIN(2000, permit_losses.count == 100));
	nap_ms(50);
	ck_assert_int_eq(permit_losses.count, 100);
	for (int i = 0; i < 100; i++)
		EXPECT(lk_semaphore_release(semaphore, holds[i]), LK_ELOST);
	OK(lk_client_close(client));
}

static lk_client *callback_client;
static lk_err callback_errs[4];
static atomic_bool called_back;

static void call_back(void *arg, lk_semaphore *semaphore, uint64_t hold, lk_lost_reason reason)
{
	uint64_t next;

	(void)arg;
	(void)reason;
	callback_errs[0] = lk_semaphore_close(semaphore);
	callback_errs[1] = lk_client_close(callback_client);
	callback_errs[2] = lk_semaphore_release(semaphore, hold);
	callback_errs[3] = lk_semaphore_acquire(semaphore, 3, 1000, &next);
	called_back = true;
}

TEST(callback_may_call_everything_but_close)
{
	const lk_semaphore_options options = {.capacity = 3, .on_lost = call_back};
	lk_semaphore *semaphore;

	callback_client = set_up();
	semaphore = semaphore_with(callback_client, "a", &options);
	permits_of(semaphore, 3, 0);
	OK(lk_semaphore_break(semaphore, NULL));
	ck_assert(WITHIN(2000, called_back));
	EXPECT(callback_errs[0], LK_EDEADLOCK);
	EXPECT(callback_errs[1], LK_EDEADLOCK);
	EXPECT(callback_errs[2], LK_ELOST);
	EXPECT(callback_errs[3], LK_OK);
	ck_assert_int_eq(permits_used(redis, "a"), 3);
	OK(lk_client_close(callback_client));
	ck_assert(permits_at_rest(redis, "a", 3));
}

/* ---- Forks -------------------------------------------------------------------------------- */

/* Make every call on the parent's handles. */
static int use_after_fork(lk_client *client, lk_semaphore *semaphore, uint64_t hold)
{
	lk_semaphore_status status;
	lk_ticket list[1];
	lk_semaphore *none = NULL;
	lk_hold snapshot;
	uint64_t got = 77;
	lk_kind kind;
	size_t count;

	EXPECT(lk_semaphore_open(client, "a", 0, NULL, &none), LK_EFORKED);
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, &got), LK_EFORKED);
	EXPECT(lk_semaphore_acquire(semaphore, 1, LK_FOREVER, &got), LK_EFORKED);
	EXPECT(lk_semaphore_release(semaphore, hold), LK_EFORKED);
	EXPECT(lk_semaphore_release_some(semaphore, hold, 1), LK_EFORKED);
	EXPECT(lk_semaphore_cancel(semaphore), LK_EFORKED);
	EXPECT(lk_semaphore_extend(semaphore, hold, 1000), LK_EFORKED);
	EXPECT(lk_semaphore_query(semaphore, &status), LK_EFORKED);
	EXPECT(lk_semaphore_holders(semaphore, 1, list, &count), LK_EFORKED);
	EXPECT(lk_semaphore_waiters(semaphore, 1, list, &count), LK_EFORKED);
	EXPECT(lk_semaphore_resize(semaphore, 5), LK_EFORKED);
	EXPECT(lk_semaphore_break(semaphore, NULL), LK_EFORKED);
	EXPECT(lk_client_name_kind(client, "a", 0, &kind), LK_EFORKED);
	ck_assert_ptr_null(none);
	ck_assert_uint_eq(got, 77);
	ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_NONE);
	EXPECT(lk_semaphore_snapshot(semaphore, hold, &snapshot), LK_EFORKED);
	EXPECT(lk_semaphore_close(semaphore), LK_EFORKED);
	EXPECT(lk_client_close(client), LK_EFORKED);
	return 0;
}

TEST(forked_child_is_refused_and_the_parent_unaffected)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore =
		semaphore_watched(client, "a", (lk_semaphore_options){.capacity = 3});
	uint64_t hold = permits_of(semaphore, 2, 0);
	int status;
	pid_t child;

	child = fork();
	if (!child)
		_exit(use_after_fork(client, semaphore, hold));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", (unsigned)status);
	ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_HELD);
	ck_assert_int_eq(permit_losses.count, 0);
	OK(lk_semaphore_release(semaphore, hold));
	permits_of(semaphore, 3, 0);
	OK(lk_client_close(client));
	ck_assert(permits_at_rest(redis, "a", 3));
}
