/* SPDX-License-Identifier: MIT
 * N4 of the fault list, for what only permits have: releases of some of them, and grants of a rate.
 * Whatever happens, no permit is granted twice, and none is missing.  fault_cut.c has the others.
 */
#include "harness/lanes.h"
#include "harness/permit_watch.h"

#define RATE_MS 1000

/* Two at once, so that the unconfirmed part has grown when it is sent again. */
static bool shrink_step(struct lane *lane, int k)
{
	lk_semaphore *semaphore = lane->mine.semaphore;
	uint64_t hold = permits_of(semaphore, 4, 10000);
	int64_t cuts;
	bool cut;

	nap_ms(5);
	cuts = lane_arm(lane, k);
	for (int i = 0; i < 2; i++) {
		lk_err err = lk_semaphore_release_some(semaphore, hold, 1);
		ck_assert_msg(err == LK_OK || err == LK_EUNKNOWN, "%s: %s", lk_err_name(err),
		              lk_errmsg());
		ck_assert_int_eq(hold_in(semaphore, hold).count, 3 - i);
	}
	cut = lane_disarm(lane, cuts);
	ck_assert(WITHIN(2500, permits_used(redis, lane->name) == 2));
	lane->mine.fence = hold;
	ck_assert(lane->mine.primitive->is_held(&lane->mine)); /* 2 permits */
	OK(lk_semaphore_release(semaphore, hold));
	ck_assert(lane->mine.primitive->is_at_rest(lane->name));
	return cut;
}

/* Permits that cannot be released are granted once, even if the answer is lost. */
static bool rate_step(struct lane *lane, int k)
{
	const lk_semaphore_options options = {
		.capacity = CAPACITY, .lease_ms = RATE_MS, .fixed = true};
	lk_semaphore *rate = semaphore_with(lane->far, lane->name, &options);
	lk_semaphore_status status;
	int64_t cuts = lane_arm(lane, k);
	bool cut;

	OK(lk_semaphore_acquire(rate, 2, 10000, NULL));
	cut = lane_disarm(lane, cuts);
	ck_assert_int_eq(permits_used(redis, lane->name), 2);
	ck_assert_int_eq(permits_holds(redis, lane->name), 1);
	permits_add_up(redis, lane->name);
	ck_assert(WITHIN(RATE_MS + 500,
	                 lk_semaphore_query(lane->theirs.semaphore, &status) == LK_OK &&
	                         !status.holders));
	ck_assert_int_eq(status.available, CAPACITY);
	/* The next script removes what has ended. */
	OK(lk_semaphore_release(lane->theirs.semaphore, permits_of(lane->theirs.semaphore, 4, 0)));
	ck_assert(lane->mine.primitive->is_at_rest(lane->name));
	OK(lk_semaphore_close(rate));
	return cut;
}

static void cut_permits(bool (*step)(struct lane *lane, int k), enum proxy_way way, int least)
{
	cut_everywhere(&(struct cut){.set = SEMAPHORE,
	                             .step = step,
	                             .link = PROXY_COMMANDS,
	                             .way = way,
	                             .least = least});
}

TEST_LIMIT(n4_answers_to_partial_releases_cut_at_every_byte, 120)
{
	cut_permits(shrink_step, PROXY_TO_CLIENT, 32);
}

TEST_LIMIT(n4_requests_of_partial_releases_cut_at_every_byte, 120)
{
	cut_permits(shrink_step, PROXY_TO_SERVER, 200);
}

TEST_LIMIT(n4_answer_to_a_grant_of_a_rate_cut_at_every_byte, 120)
{
	cut_permits(rate_step, PROXY_TO_CLIENT, 40);
}
