/* SPDX-License-Identifier: MIT
 * What only a semaphore promises, on any store: capacities, holds of several permits, permits
 * without an id, and handles after a fork. */
#ifndef STORES_SEMAPHORE_H
#define STORES_SEMAPHORE_H

#include "stores/set_up.h"
#include "harness/permit_watch.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEST_SEMAPHORE(name) TEST_STORE(name, 20, STORE_SEMAPHORES | STORE_KEYS)

static lk_err open_with(lk_client *client, lk_semaphore_options options)
{
	lk_semaphore *semaphore = NULL;
	lk_err err = lk_semaphore_open(client, "a", 0, &options, &semaphore);

	ck_assert_int_eq(semaphore != NULL, err == LK_OK);
	OK(lk_semaphore_close(semaphore));
	return err;
}

/* Return all keys of a semaphore, to compare before and after. */
static const char *state_of_a(void)
{
	static char states[2][1000];
	static int turn;
	char *state = states[turn++ % 2];

	snprintf(state, sizeof(states[0]), "%s", redis_text(redis, "HGETALL lk:{a}"));
	return state;
}

/* ---- Open --------------------------------------------------------------------------------- */

TEST_SEMAPHORE(first_opening_gives_the_capacity_and_another_one_is_a_mismatch)
{
	lk_client *client = set_up(), *other = client_at(url);
	lk_semaphore *any;

	EXPECT(open_with(client, (lk_semaphore_options){0}), LK_EABSENT);
	ck_assert_int_eq(redis_size(redis), 0);
	OK(open_with(client, (lk_semaphore_options){.capacity = 3}));
	OK(open_with(other, (lk_semaphore_options){.capacity = 3}));
	EXPECT(open_with(other, (lk_semaphore_options){.capacity = 4}), LK_EMISMATCH);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "3"));
	EXPECT(open_with(client, (lk_semaphore_options){.capacity = 2}), LK_EMISMATCH);
	ck_assert(permits_at_rest(redis, "a", 3));
	/* 0 accepts the existing capacity. */
	any = semaphore_of(other, "a", 0, 0);
	permits_of(any, 3, 0);
	EXPECT(lk_semaphore_acquire(any, 4, 0, &(uint64_t){0}), LK_ELIMIT);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	ck_assert(permits_at_rest(redis, "a", 3));
}

TEST_SEMAPHORE(options_out_of_range_are_refused_and_named)
{
	static const struct {
		lk_semaphore_options options;
		const char *named;
	} wrong[] = {
		{{.capacity = -1}, "capacity"},
		{{.capacity = INT64_MIN}, "capacity"},
		{{.capacity = INT64_C(1) + LK_PERMITS_MAX}, "capacity"},
		{{.capacity = INT64_C(1) << 32}, "capacity"},
		{{.capacity = INT64_MAX}, "capacity"},
		{{.capacity = 3, .ttl_ms = -1}, "ttl_ms"},
		{{.capacity = 3, .ttl_ms = LK_TTL_MIN_MS - 1}, "ttl_ms"},
		{{.capacity = 3, .ttl_ms = LK_TTL_MAX_MS + 1}, "ttl_ms"},
		{{.capacity = 3, .ttl_ms = INT64_MIN}, "ttl_ms"},
		{{.capacity = 3, .lease_ms = LK_LEASE_MIN_MS - 1}, "lease_ms"},
		{{.capacity = 3, .lease_ms = INT64_C(1) + LK_LEASE_MAX_MS}, "lease_ms"},
		{{.capacity = 3, .lease_ms = INT64_MIN}, "lease_ms"},
		{{.capacity = 3, .max_hold_ms = -1}, "max_hold_ms"},
		{{.capacity = 3, .max_hold_ms = INT64_MAX}, "max_hold_ms"},
		{{.capacity = 3, .reserved = {[7] = 1}}, "reserved[7]"},
	};
	lk_client *client = set_up();
	char label[LK_LABEL_MAX + 2];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		EXPECT(open_with(client, wrong[i].options), LK_EINVALID);
		ck_assert_msg(strstr(lk_errmsg(), wrong[i].named) != NULL, "%s does not name %s",
		              lk_errmsg(), wrong[i].named);
	}
	memset(label, 'x', sizeof(label));
	label[LK_LABEL_MAX + 1] = '\0';
	EXPECT(open_with(client, (lk_semaphore_options){.capacity = 3, .label = label}),
	       LK_EINVALID);
	ck_assert_int_eq(redis_size(redis), 0);
	label[LK_LABEL_MAX] = '\0';
	OK(open_with(client, (lk_semaphore_options){.capacity = LK_PERMITS_MAX,
	                                            .ttl_ms = LK_TTL_MAX_MS,
	                                            .lease_ms = LK_LEASE_MAX_MS,
	                                            .label = label}));
	OK(lk_client_close(client));
}

TEST_SEMAPHORE(capacity_is_kept_for_its_ttl_after_the_last_use)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore;
	lk_semaphore_status status;
	uint64_t hold;

	semaphore = semaphore_with(
		client, "a",
		&(lk_semaphore_options){.capacity = 2, .ttl_ms = 1000, .lease_ms = 300});
	OK(lk_semaphore_query(semaphore, &status));
	ck_assert(status.ttl_ms > 500 && status.ttl_ms <= 1000);
	hold = permits_of(semaphore, 1, 0);
	nap_ms(1500); /* a hold counts as use */
	ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_HELD);
	OK(lk_semaphore_release(semaphore, hold));
	nap_ms(1100);
	EXPECT(lk_semaphore_query(semaphore, &status), LK_EABSENT);
	EXPECT(lk_semaphore_resize(semaphore, 5), LK_EABSENT);
	EXPECT(open_with(client, (lk_semaphore_options){0}), LK_EABSENT);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q lk:{a}:h"), 0);
	/* The handle still knows the capacity, and creates the semaphore again. */
	permits_of(semaphore, 2, 0);
	OK(lk_semaphore_query(semaphore, &status));
	ck_assert_int_eq(status.capacity, 2);
	ck_assert_int_eq(status.available, 0);
	OK(lk_client_close(client));
}

/* ---- Acquire ------------------------------------------------------------------------------ */

TEST_SEMAPHORE(acquire_refuses_what_is_out_of_range)
{
	static const int64_t wrong[] = {
		0, -1, INT64_MIN, INT64_C(1) + LK_PERMITS_MAX, (INT64_C(1) << 32) + 1, INT64_MAX};
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_of(client, "a", 3, 0);
	const char *before;
	uint64_t hold = 77;

	before = state_of_a();
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		EXPECT(lk_semaphore_acquire(semaphore, wrong[i], 0, &hold), LK_EINVALID);
	EXPECT(lk_semaphore_acquire(semaphore, 1, -2, &hold), LK_EINVALID);
	EXPECT(lk_semaphore_acquire(semaphore, 1, INT64_MIN, &hold), LK_EINVALID);
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, NULL), LK_EINVALID);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "fixed"));
	/* A wait cannot help when more are wanted than exist. */
	EXPECT(lk_semaphore_acquire(semaphore, 4, 0, &hold), LK_ELIMIT);
	EXPECT(lk_semaphore_acquire(semaphore, 4, LK_FOREVER, &hold), LK_ELIMIT);
	EXPECT(lk_semaphore_acquire(semaphore, LK_PERMITS_MAX, LK_FOREVER, &hold), LK_ELIMIT);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "3"));
	ck_assert_uint_eq(hold, 77);
	ck_assert_str_eq(state_of_a(), before);
	ck_assert(permits_at_rest(redis, "a", 3));
	OK(lk_client_close(client));
}

TEST_SEMAPHORE(permits_at_the_edge_of_their_type_are_counted_right)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_of(client, "a", LK_PERMITS_MAX, 0);
	lk_semaphore_status status;
	uint64_t hold, one;

	hold = permits_of(semaphore, LK_PERMITS_MAX, INT64_MAX);
	ck_assert_int_eq(hold_in(semaphore, hold).count, LK_PERMITS_MAX);
	OK(lk_semaphore_query(semaphore, &status));
	ck_assert_int_eq(status.capacity, LK_PERMITS_MAX);
	ck_assert_int_eq(status.available, 0);
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, &one), LK_EBUSY);
	OK(lk_semaphore_release_some(semaphore, hold, 1));
	one = permits_of(semaphore, 1, 0);
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, &(uint64_t){0}), LK_EBUSY);
	OK(lk_semaphore_release_some(semaphore, hold, LK_PERMITS_MAX - 2));
	ck_assert_int_eq(hold_in(semaphore, hold).count, 1);
	permits_add_up(redis, "a");
	ck_assert_int_eq(permits_used(redis, "a"), 2);
	OK(lk_semaphore_release(semaphore, hold));
	OK(lk_semaphore_release(semaphore, one));
	ck_assert(permits_at_rest(redis, "a", LK_PERMITS_MAX));
	OK(lk_client_close(client));
}

TEST_SEMAPHORE(each_acquire_is_a_hold_of_its_own_with_a_greater_fence)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_of(client, "a", 3, 0);
	char ids[2][LK_HOLDER_ID_SIZE];
	uint64_t first, second, third = 77;
	lk_semaphore_status status;

	first = permits_of(semaphore, 1, 0);
	second = permits_of(semaphore, 2, LK_FOREVER);
	ck_assert_uint_gt(second, first);
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, &third), LK_EBUSY); /* never re-entrant */
	ck_assert_uint_eq(third, 77);
	ck_assert_int_eq(hold_in(semaphore, first).count, 1);
	ck_assert_int_eq(hold_in(semaphore, second).count, 2);
	ck_assert_int_eq(lk_semaphore_state(semaphore, first), LK_STATE_HELD);
	ck_assert_int_gt(hold_in(semaphore, second).remaining_ms, 9000);
	ck_assert_int_le(hold_in(semaphore, second).remaining_ms, LK_LEASE_DEFAULT_MS);
	memcpy(ids[0], hold_in(semaphore, first).holder_id, LK_HOLDER_ID_SIZE);
	memcpy(ids[1], hold_in(semaphore, second).holder_id, LK_HOLDER_ID_SIZE);
	ck_assert_str_ne(ids[0], ids[1]);
	ck_assert(!strncmp(ids[0], lk_client_id(client), strlen(lk_client_id(client))));
	OK(lk_semaphore_query(semaphore, &status));
	ck_assert_int_eq(status.available, 0);
	ck_assert_int_eq(status.holders, 2);
	ck_assert_int_eq(status.queue_len, 0);
	ck_assert_int_eq(status.my_rank, -1);
	OK(lk_semaphore_release(semaphore, first));
	third = permits_of(semaphore, 1, 0);
	ck_assert_uint_gt(third, second);
	OK(lk_client_close(client));
	ck_assert(permits_at_rest(redis, "a", 3));
}

TEST_SEMAPHORE(try_is_busy_while_others_wait_though_it_would_fit)
{
	lk_client *client = set_up(), *other = client_at(url);
	lk_semaphore *semaphore = semaphore_of(client, "a", 3, 0);
	struct permit_wait wait;
	uint64_t hold = permits_of(semaphore, 2, 0);

	permit_wait_queue(&wait, redis, "a", semaphore_of(other, "a", 3, 0), 3, true);
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, &(uint64_t){0}), LK_EBUSY);
	ck_assert_int_eq(permits_queue(redis, "a"), 1);
	OK(lk_semaphore_release(semaphore, hold));
	OK(permit_wait_join(&wait));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* ---- Release ------------------------------------------------------------------------------ */

TEST_SEMAPHORE(release_by_another_handle_or_of_no_hold_changes_nothing)
{
	lk_client *client = set_up(), *other = client_at(url);
	lk_semaphore *semaphore = semaphore_of(client, "a", 3, 0);
	lk_semaphore *strangers[] = {semaphore_of(client, "a", 3, 0),
	                             semaphore_of(other, "a", 3, 0),
	                             semaphore_of(client, "b", 3, 0)};
	static const lk_hold empty;
	lk_hold snapshot;
	const char *before;
	uint64_t hold = permits_of(semaphore, 2, 0);

	before = state_of_a();
	for (int i = 0; i < 3; i++) {
		EXPECT(lk_semaphore_release(strangers[i], hold), LK_ENOTOWNER);
		EXPECT(lk_semaphore_release_some(strangers[i], hold, 1), LK_ENOTOWNER);
		EXPECT(lk_semaphore_extend(strangers[i], hold, 1000), LK_ENOTOWNER);
		ck_assert_int_eq(lk_semaphore_state(strangers[i], hold), LK_STATE_NONE);
		snapshot = hold_in(strangers[i], hold);
		ck_assert(!memcmp(&snapshot, &empty, sizeof(empty)));
	}
	EXPECT(lk_semaphore_release(semaphore, 0), LK_ENOTOWNER);
	EXPECT(lk_semaphore_release(semaphore, hold + 1), LK_ENOTOWNER);
	EXPECT(lk_semaphore_release(semaphore, UINT64_MAX), LK_ENOTOWNER);
	ck_assert_str_eq(state_of_a(), before);
	OK(lk_semaphore_release(semaphore, hold));
	EXPECT(lk_semaphore_release(semaphore, hold), LK_ENOTOWNER);
	ck_assert(permits_at_rest(redis, "a", 3));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_SEMAPHORE(release_of_some_keeps_the_rest_and_refuses_more_than_there_is)
{
	static const int64_t less[] = {0, -1, INT64_MIN};
	static const int64_t more[] = {
		6,          LK_PERMITS_MAX,         INT64_C(1) + LK_PERMITS_MAX,
		UINT32_MAX, (INT64_C(1) << 32) + 1, INT64_MAX};
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_of(client, "a", 7, 0);
	const char *before;
	uint64_t hold = permits_of(semaphore, 5, 0);

	before = state_of_a();
	for (size_t i = 0; i < sizeof(less) / sizeof(less[0]); i++)
		EXPECT(lk_semaphore_release_some(semaphore, hold, less[i]), LK_EINVALID);
	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
		EXPECT(lk_semaphore_release_some(semaphore, hold, more[i]), LK_ELIMIT);
	ck_assert_str_eq(state_of_a(), before);
	ck_assert_int_eq(hold_in(semaphore, hold).count, 5);
	OK(lk_semaphore_release_some(semaphore, hold, 2));
	ck_assert_int_eq(hold_in(semaphore, hold).count, 3);
	ck_assert_int_eq(permits_used(redis, "a"), 3);
	permits_add_up(redis, "a");
	EXPECT(lk_semaphore_release_some(semaphore, hold, 4), LK_ELIMIT); /* it held them earlier */
	OK(lk_semaphore_release_some(semaphore, hold, 2));
	ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_HELD);
	OK(lk_semaphore_release_some(semaphore, hold, 1)); /* all of them: a full release */
	ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_NONE);
	EXPECT(lk_semaphore_release_some(semaphore, hold, 1), LK_ENOTOWNER);
	ck_assert(permits_at_rest(redis, "a", 7));
	OK(lk_client_close(client));
}

TEST_SEMAPHORE(release_of_some_serves_who_fits)
{
	lk_client *client = set_up(), *other = client_at(url);
	lk_semaphore *semaphore = semaphore_of(client, "a", 5, 0);
	lk_semaphore *waits = semaphore_of(other, "a", 5, 0);
	struct permit_wait two, three;
	uint64_t hold = permits_of(semaphore, 5, 0);

	permit_wait_queue(&two, redis, "a", waits, 2, true);
	permit_wait_queue(&three, redis, "a", waits, 3, true);
	OK(lk_semaphore_release_some(semaphore, hold, 1));
	nap_ms(100);
	ck_assert(!two.ended && !three.ended);
	OK(lk_semaphore_release_some(semaphore, hold, 1));
	OK(permit_wait_join(&two));
	ck_assert_int_le(permits_queue(redis, "a"), 1);
	OK(lk_semaphore_release(semaphore, hold));
	OK(permit_wait_join(&three));
	/* By messages: a repeated request would come a lease later. */
	ck_assert_int_le(two.took_ms, 1000);
	ck_assert_int_le(three.took_ms, 1000);
	permits_add_up(redis, "a");
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	ck_assert(permits_at_rest(redis, "a", 5));
}

TEST_SEMAPHORE(close_of_a_handle_releases_all_its_holds_and_no_other)
{
	lk_client *client = set_up();
	lk_semaphore *held = semaphore_of(client, "a", 4, 0),
		     *kept = semaphore_of(client, "a", 4, 0);
	uint64_t hold = permits_of(kept, 1, 0);

	permits_of(held, 1, 0);
	permits_of(held, 2, 0);
	OK(lk_semaphore_close(held)); /* released in the background */
	ck_assert(WITHIN(1000, permits_used(redis, "a") == 1));
	ck_assert_int_eq(lk_semaphore_state(kept, hold), LK_STATE_HELD);
	permits_add_up(redis, "a");
	permits_of(kept, 3, 0);
	OK(lk_client_close(client));
	ck_assert(permits_at_rest(redis, "a", 4));
}

static void *hold_two(void *arg)
{
	static uint64_t hold;

	hold = permits_of(arg, 2, 0);
	return &hold;
}

TEST_SEMAPHORE(hold_belongs_to_its_handle_and_not_to_a_thread)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_of(client, "a", 3, 0);
	pthread_t thread;
	void *hold;

	pthread_create(&thread, NULL, hold_two, semaphore);
	pthread_join(thread, &hold);
	nap_ms(200); /* the end of the thread would have had its effect by now */
	ck_assert_int_eq(lk_semaphore_state(semaphore, *(uint64_t *)hold), LK_STATE_HELD);
	ck_assert_int_eq(permits_used(redis, "a"), 2);
	OK(lk_semaphore_release(semaphore, *(uint64_t *)hold)); /* by another thread */
	ck_assert(permits_at_rest(redis, "a", 3));
	OK(lk_client_close(client));
}

/* ---- Losses ------------------------------------------------------------------------------- */

TEST_SEMAPHORE(permits_of_nobody_come_back_when_their_lease_ends_and_not_before)
{
	lk_client *client = set_up(), *other = client_at(url);
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

TEST_SEMAPHORE(each_lost_hold_of_many_is_reported_once)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_watched(
		client, "a", (lk_semaphore_options){.capacity = 200, .lease_ms = 900});
	uint64_t holds[100];

	for (int i = 0; i < 100; i++)
		holds[i] = permits_of(semaphore, 2, 0);
	redis_do(redis, "FLUSHALL");
	ck_assert(WITHIN(2000, permit_losses.count == 100));
	nap_ms(50);
	ck_assert_int_eq(permit_losses.count, 100);
	for (int i = 0; i < 100; i++) {
		EXPECT(lk_semaphore_release_some(semaphore, holds[i], 1), LK_ELOST);
		EXPECT(lk_semaphore_release(semaphore, holds[i]), LK_ELOST);
	}
	OK(lk_client_close(client));
}

TEST_SEMAPHORE(end_of_permits_without_an_id_is_no_loss)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_watched(
		client, "a", (lk_semaphore_options){.capacity = 3, .lease_ms = 100, .fixed = true});

	OK(lk_semaphore_acquire(semaphore, 3, 1000, NULL));
	nap_ms(150);
	ck_assert_int_eq(permit_losses.count, 0);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 3, 0)));
	ck_assert(permits_at_rest(redis, "a", 3));
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

TEST_SEMAPHORE(callback_may_call_everything_but_close)
{
	const lk_semaphore_options options = {.capacity = 3, .on_lost = call_back};
	lk_semaphore *semaphore;

	callback_client = set_up();
	semaphore = semaphore_with(callback_client, "a", &options);
	permits_of(semaphore, 3, 0);
	await_hearing(callback_client, "a");
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

TEST_SEMAPHORE(forked_child_is_refused_and_the_parent_unaffected)
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

#endif
