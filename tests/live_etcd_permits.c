/* SPDX-License-Identifier: MIT
 * Semaphores on real etcd servers: capacities, permits of the dead, queries, breaks, names of one
 * kind.  The calls and their results are in live_etcd_contract. */
#include "harness/etcd_server.h"
#include "harness/handles.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LEASE_MS 4000
#define LONG_MS 20000 /* for what comes at once on a machine that is not loaded */

static struct etcd_servers shared;

static void start_shared(void)
{
	etcd_start(&shared, 3);
}

__attribute__((constructor)) static void prepare(void)
{
	test_before_all(start_shared);
}

static lk_client *client_here(void)
{
	return client_at(etcd_url(&shared, "", ""));
}

static lk_semaphore *leased(lk_client *client, const char *name, int64_t capacity)
{
	return semaphore_of(client, name, capacity, LEASE_MS);
}

static uint64_t hold(lk_semaphore *semaphore, int64_t permits)
{
	uint64_t fence = 0;

	OK(lk_semaphore_acquire(semaphore, permits, LONG_MS, &fence));
	return fence;
}

static lk_semaphore_status status_of(lk_semaphore *semaphore)
{
	lk_semaphore_status status;

	OK(lk_semaphore_query(semaphore, &status));
	return status;
}

static void begin_waiting(struct permit_wait *wait, lk_semaphore *semaphore, int64_t permits)
{
	int64_t before = status_of(semaphore).queue_len;

	permit_wait_start(wait, semaphore, permits, 10 * LONG_MS, true);
	ck_assert(WITHIN(LONG_MS, status_of(semaphore).queue_len == before + 1));
}

static uint64_t end_waiting(struct permit_wait *wait)
{
	ck_assert(WITHIN(LONG_MS, wait->ended));
	OK(permit_wait_join(wait));
	return wait->hold;
}

TEST_LIMIT(capacity_is_that_of_the_first_opening, 120)
{
	lk_client *client = client_here(), *other = client_here();
	const lk_semaphore_options four = {.capacity = 4}, any = {0}, huge = {.capacity = 10001};
	lk_semaphore *first, *semaphore;

	EXPECT(lk_semaphore_open(client, "size/of", 0, &any, &semaphore), LK_EABSENT);
	first = leased(client, "size/of", 3);
	EXPECT(lk_semaphore_open(other, "size/of", 0, &four, &semaphore), LK_EMISMATCH);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "3"));
	semaphore = leased(other, "size/of", 0);
	EXPECT(lk_semaphore_acquire(semaphore, 4, LK_FOREVER, &(uint64_t){0}), LK_ELIMIT);
	EXPECT(lk_semaphore_acquire(semaphore, 4, 0, &(uint64_t){0}), LK_ELIMIT);
	EXPECT(lk_semaphore_open(client, "huge", 0, &huge, &semaphore), LK_EINVALID);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "10000"));
	OK(lk_semaphore_release(first, hold(first, 3)));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_LIMIT(resize_serves_those_that_fit_and_ends_no_hold, 120)
{
	lk_client *client = client_here(), *other = client_here();
	lk_semaphore *semaphore = leased(client, "resized", 2);
	lk_semaphore *waits = leased(other, "resized", 2);
	struct permit_wait two, one;
	uint64_t held = hold(semaphore, 2), first, second;

	begin_waiting(&two, waits, 2);
	begin_waiting(&one, waits, 1);
	OK(lk_semaphore_resize(semaphore, 5));
	first = end_waiting(&two);
	second = end_waiting(&one);
	ck_assert_int_lt(two.took_ms, LONG_MS);
	OK(lk_semaphore_resize(semaphore, 1));
	ck_assert_int_eq(status_of(semaphore).available, -4);
	ck_assert_int_eq(status_of(semaphore).holders, 3);
	ck_assert_int_eq(lk_semaphore_state(semaphore, held), LK_STATE_HELD);
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, &(uint64_t){0}), LK_EBUSY);
	EXPECT(lk_semaphore_acquire(semaphore, 2, 0, &(uint64_t){0}), LK_ELIMIT);
	OK(lk_semaphore_release(waits, first));
	OK(lk_semaphore_release(semaphore, held));
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, &(uint64_t){0}), LK_EBUSY);
	OK(lk_semaphore_release(waits, second));
	OK(lk_semaphore_release(semaphore, hold(semaphore, 1)));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* A wait that cannot be met any more is refused, and blocks nobody. */
TEST_LIMIT(wait_for_more_than_is_left_is_refused, 120)
{
	lk_client *client = client_here(), *other = client_here();
	lk_semaphore *semaphore = leased(client, "too/much", 3);
	lk_semaphore *waits = leased(other, "too/much", 3);
	struct permit_wait three;
	uint64_t held = hold(semaphore, 1);

	begin_waiting(&three, waits, 3);
	OK(lk_semaphore_resize(semaphore, 2));
	ck_assert(WITHIN(LONG_MS, three.ended));
	EXPECT(permit_wait_join(&three), LK_ELIMIT);
	OK(lk_semaphore_release(semaphore, hold(semaphore, 1)));
	OK(lk_semaphore_release(semaphore, held));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_LIMIT(holders_and_waiters_are_shown_and_broken, 120)
{
	lk_client *client = client_here(), *other = client_here();
	lk_semaphore *semaphore = leased(client, "shown/permits", 3);
	lk_semaphore *waits = leased(other, "shown/permits", 3);
	lk_ticket tickets[5];
	struct permit_wait wait;
	size_t count = 0;
	uint64_t two = hold(semaphore, 2), one = hold(semaphore, 1);
	lk_kind kind;

	begin_waiting(&wait, waits, 2);
	OK(lk_semaphore_holders(semaphore, 5, tickets, &count));
	ck_assert_uint_eq(count, 2);
	ck_assert_int_eq(tickets[0].permits, 2);
	ck_assert_uint_eq(tickets[0].fence, two);
	ck_assert_int_gt(tickets[0].lease_left_ms, 0);
	ck_assert_int_le(tickets[0].lease_left_ms, LEASE_MS);
	ck_assert_str_eq(tickets[0].party.id, hold_in(semaphore, two).holder_id);
	ck_assert_uint_eq(tickets[1].fence, one);
	OK(lk_semaphore_waiters(semaphore, 5, tickets, &count));
	ck_assert_uint_eq(count, 1);
	ck_assert_int_eq(tickets[0].permits, 2);
	ck_assert_int_eq(status_of(waits).my_rank, 0);
	ck_assert_int_eq(status_of(semaphore).my_rank, -1);
	ck_assert_int_gt(status_of(semaphore).ttl_ms, 0);
	OK(lk_client_name_kind(other, "shown/permits", 0, &kind));
	ck_assert_int_eq(kind, LK_KIND_SEMAPHORE);
	EXPECT(lk_semaphore_break(waits, NULL), LK_EMISMATCH); /* which of two? */
	EXPECT(lk_semaphore_break(waits, "nobody"), LK_EMISMATCH);
	OK(lk_semaphore_break(waits, hold_in(semaphore, two).holder_id));
	ck_assert(WITHIN(LONG_MS, lk_semaphore_state(semaphore, two) != LK_STATE_HELD));
	EXPECT(lk_semaphore_release(semaphore, two), LK_ELOST);
	OK(lk_semaphore_release(waits, end_waiting(&wait)));
	OK(lk_semaphore_release(semaphore, one));
	EXPECT(lk_semaphore_break(waits, NULL), LK_EABSENT);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_LIMIT(name_is_of_one_kind, 120)
{
	lk_client *client = client_here();
	const lk_semaphore_options options = {.capacity = 3}, any = {0};
	lk_lock *lock = lock_leased(client, "one/kind", LEASE_MS);
	lk_lock_status lock_status;
	lk_semaphore *semaphore;

	OK(lk_lock_acquire(lock, LONG_MS, NULL));
	EXPECT(lk_semaphore_open(client, "one/kind", 0, &options, &semaphore), LK_EFOREIGN);
	EXPECT(lk_semaphore_open(client, "one/kind", 0, &any, &semaphore), LK_EFOREIGN);
	OK(lk_lock_release(lock));
	OK(lk_semaphore_open(client, "one/kind", 0, &options, &semaphore));
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EFOREIGN);
	EXPECT(lk_lock_acquire(lock, LK_FOREVER, NULL), LK_EFOREIGN);
	EXPECT(lk_lock_query(lock, &lock_status), LK_EFOREIGN);
	OK(lk_semaphore_release(semaphore, hold(semaphore, 1)));
	OK(lk_client_close(client));
}

/* The time to live counts from the last use, and a hold is one. */
TEST_LIMIT(semaphore_without_use_is_forgotten, 120)
{
	const lk_semaphore_options options = {.capacity = 2, .ttl_ms = 2000, .lease_ms = 30000};
	lk_client *client = client_here();
	lk_semaphore *semaphore = semaphore_with(client, "forgotten", &options);
	lk_semaphore_status status;
	uint64_t held = hold(semaphore, 1);

	nap_ms(6000);
	ck_assert_int_eq(status_of(semaphore).available, 1);
	OK(lk_semaphore_release(semaphore, held));
	ck_assert(WITHIN(LONG_MS, lk_semaphore_query(semaphore, &status) == LK_EABSENT));
	EXPECT(lk_semaphore_resize(semaphore, 5), LK_EABSENT);
	/* The handle still knows the capacity. */
	held = hold(semaphore, 2);
	ck_assert_int_eq(status_of(semaphore).available, 0);
	OK(lk_semaphore_release(semaphore, held));
	OK(lk_client_close(client));
}

/* ---- Deaths --------------------------------------------------------------------------------- */

static int hold_and_stay(void *arg, int in, int out)
{
	lk_semaphore *semaphore = leased(client_here(), "dying", 3);

	hold(semaphore, *(int *)arg);
	line_write(out, "held");
	line_read(in, 10 * LONG_MS);
	return 0;
}

TEST_LIMIT(permits_of_the_dead_come_back, 180)
{
	struct process dead[2];
	int permits[2] = {2, 1};
	lk_semaphore *semaphore;
	lk_client *client;
	uint64_t fence;

	for (int i = 0; i < 2; i++) {
		process_start(&dead[i], hold_and_stay, &permits[i]);
		ck_assert_ptr_nonnull(line_read(dead[i].out, LONG_MS));
	}
	client = client_here();
	semaphore = leased(client, "dying", 3);
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, &fence), LK_EBUSY);
	for (int i = 0; i < 2; i++)
		process_kill(&dead[i]);
	fence = hold(semaphore, 3);
	OK(lk_semaphore_release(semaphore, fence));
	OK(lk_client_close(client));
}

/* Amid an election: not sent, or unknown, and then repeated by the client. */
static bool is_released(lk_semaphore *semaphore, uint64_t fence)
{
	lk_err err = lk_semaphore_release(semaphore, fence);

	return err == LK_OK || err == LK_EUNKNOWN;
}

TEST_LIMIT(leader_is_killed_while_permits_are_held_and_waited_for, 240)
{
	lk_client *client = client_here(), *other = client_here();
	lk_semaphore *semaphore = semaphore_of(client, "led", 3, LONG_MS);
	lk_semaphore *waits = semaphore_of(other, "led", 3, LONG_MS);
	struct permit_wait wait;
	uint64_t held = hold(semaphore, 2);

	begin_waiting(&wait, waits, 2);
	etcd_kill(&shared, 0);
	ck_assert(WITHIN(2 * LONG_MS, is_released(semaphore, held)));
	ck_assert(WITHIN(2 * LONG_MS, wait.ended));
	OK(permit_wait_join(&wait));
	ck_assert(WITHIN(2 * LONG_MS, is_released(waits, wait.hold)));
	etcd_restart(&shared, 0);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}
