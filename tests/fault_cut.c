/* SPDX-License-Identifier: MIT
 * N4 of the fault list: a link is cut after each byte of each answer, request and message.
 * Whatever happens, there is one hold or none, and nothing is left. */
#include "harness/lanes.h"

static bool is_free(struct lane *lane)
{
	return lane->mine.primitive->is_at_rest(lane->name);
}

static bool one_waits(struct lane *lane)
{
	return lane->mine.primitive->waiting(lane->name) == 1;
}

/* Exactly this hold, in the store and in the client; release it. */
static void expect_one_hold(struct lane *lane)
{
	struct claim *mine = &lane->mine;

	ck_assert_int_gt(mine->primitive->remaining_ms(mine), 0);
	ck_assert(mine->primitive->is_held(mine));
	ck_assert_int_eq(mine->primitive->waiting(lane->name), 0);
	OK(mine->primitive->release(mine));
	ck_assert(is_free(lane));
}

static bool acquire_step(struct lane *lane, int k)
{
	int64_t cuts = lane_arm(lane, k);
	bool cut;

	OK(lane->mine.primitive->wait(&lane->mine, 10000)); /* enough time for another try */
	cut = lane_disarm(lane, cuts);
	expect_one_hold(lane);
	return cut;
}

static bool release_step(struct lane *lane, int k)
{
	struct claim *mine = &lane->mine;
	int64_t cuts;
	bool cut;
	lk_err err;

	OK(mine->primitive->wait(mine, 10000));
	ck_assert(mine->primitive->is_held(mine));
	nap_ms(5); /* the introduction on a new link is over */
	cuts = lane_arm(lane, k);
	err = mine->primitive->release(mine);
	cut = lane_disarm(lane, cuts);
	ck_assert_msg(err == LK_OK || err == LK_EUNKNOWN, "%s: %s", lk_err_name(err), lk_errmsg());
	/* The caller does not hold it any more; the store agrees once the link is up. */
	ck_assert_int_eq(mine->primitive->state(mine), LK_STATE_NONE);
	EXPECT(mine->primitive->release(mine), LK_ENOTOWNER);
	ck_assert(WITHIN(2500, is_free(lane)));
	return cut;
}

static void start_waiting(struct lane *lane)
{
	claim_start(&lane->mine, 10000, true);
	ck_assert(WITHIN(5000, one_waits(lane)));
}

static void hand_off(struct lane *lane)
{
	OK(lane->theirs.primitive->release(&lane->theirs));
	OK(claim_join(&lane->mine));
}

static bool queue_step(struct lane *lane, int k)
{
	int64_t cuts;
	bool cut;

	OK(lane->theirs.primitive->hold(&lane->theirs, 0));
	cuts = lane_arm(lane, k);
	start_waiting(lane);
	cut = WITHIN(300, proxy_count(&lane->proxy).cuts > cuts);
	lane_disarm(lane, cuts);
	hand_off(lane);
	expect_one_hold(lane);
	return cut;
}

/* A wait that is granted in full by message; or, with a fixed lease, must be claimed. */
static bool grant_step(struct lane *lane, int k)
{
	int64_t cuts;
	bool cut;

	OK(lane->theirs.primitive->hold(&lane->theirs, 0));
	start_waiting(lane);
	nap_ms(5); /* "queued" has arrived */
	cuts = lane_arm(lane, k);
	hand_off(lane); /* by message, or by asking again on new links */
	cut = lane_disarm(lane, cuts);
	expect_one_hold(lane);
	return cut;
}

/* Cut the link at each byte that a step transfers, which are at least that many. */
static void cut_commands(unsigned set, bool (*step)(struct lane *lane, int k), enum proxy_way way,
                         int least)
{
	cut_everywhere(&(struct cut){
		.set = set, .step = step, .link = PROXY_COMMANDS, .way = way, .least = least});
}

TEST_EACH(n4_answer_to_an_acquire_cut_at_every_byte, LEASED, 120)
{
	cut_commands(set, acquire_step, PROXY_TO_CLIENT, 40);
}

TEST_EACH(n4_request_to_acquire_cut_at_every_byte, LEASED, 120)
{
	cut_commands(set, acquire_step, PROXY_TO_SERVER, 100);
}

TEST_EACH(n4_answer_to_a_release_cut_at_every_byte, LEASED, 120)
{
	cut_commands(set, release_step, PROXY_TO_CLIENT, 16);
}

TEST_EACH(n4_request_to_release_cut_at_every_byte, LEASED, 120)
{
	cut_commands(set, release_step, PROXY_TO_SERVER, 100);
}

TEST_EACH(n4_answer_that_one_is_queued_cut_at_every_byte, LEASED, 120)
{
	cut_commands(set, queue_step, PROXY_TO_CLIENT, 30);
}

TEST_EACH(n4_message_of_a_grant_cut_at_every_byte, LEASED, 120)
{
	cut_everywhere(&(struct cut){.set = set,
	                             .step = grant_step,
	                             .link = PROXY_MESSAGES,
	                             .way = PROXY_TO_CLIENT,
	                             .least = 80});
}

static void cut_claims(unsigned set, enum proxy_way way, int least)
{
	cut_everywhere(&(struct cut){.set = set,
	                             .fixed = true,
	                             .step = grant_step,
	                             .link = PROXY_COMMANDS,
	                             .way = way,
	                             .least = least});
}

TEST_EACH(n4_answer_to_a_claim_cut_at_every_byte, LEASED, 120)
{
	cut_claims(set, PROXY_TO_CLIENT, 30);
}

TEST_EACH(n4_request_to_claim_cut_at_every_byte, LEASED, 120)
{
	cut_claims(set, PROXY_TO_SERVER, 100);
}
