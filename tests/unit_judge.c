/* SPDX-License-Identifier: MIT
 * The judge of chaos against hand-made histories: in each pair one is bad and one is a near
 * miss. */
#include "chaos/judge_made.h"

/* ---- locks -------------------------------------------------------------------------------------
 */

static void two_holds(int64_t second_ns)
{
	begin_round();
	acquire(1, LOCK, 10 * MS, 20 * MS, 5, 1000 * MS);
	acquire(2, LOCK, 15 * MS, second_ns, 6, 1000 * MS);
	release(1, LOCK, 30 * MS, 40 * MS, 5, LK_OK);
	release(2, LOCK, 50 * MS, 60 * MS, 6, LK_OK);
}

TEST(judge_sees_an_overlap_of_a_nanosecond)
{
	two_holds(30 * MS - 1);
	judge();
	BAD(PROMISE_EXCLUSION);
	BAD(PROMISE_ORDER);
	two_holds(30 * MS);
	judge();
	GOOD();
	ck_assert_int_eq(verdict.pairs, 2);
}

TEST(judge_ends_a_hold_by_its_valid_until)
{
	begin_round();
	acquire(1, LOCK, 10 * MS, 20 * MS, 5, 500 * MS);
	acquire(2, LOCK, 15 * MS, 500 * MS, 6, 1500 * MS);
	release(2, LOCK, 600 * MS, 601 * MS, 6, LK_OK);
	release(1, LOCK, 700 * MS, 701 * MS, 5, LK_ELOST);
	judge();
	GOOD();
	/* A leave record shows a renewal: the hold was valid until then. */
	begin_round();
	acquire(1, LOCK, 10 * MS, 20 * MS, 5, 500 * MS);
	put(490 * MS, 1, HISTORY_LEAVE, HISTORY_EVENT, LOCK)->u.of.fence = 5;
	records[count - 1].u.of.valid_until_ns = 900 * MS;
	acquire(2, LOCK, 15 * MS, 500 * MS, 6, 1500 * MS);
	release(2, LOCK, 600 * MS, 601 * MS, 6, LK_OK);
	release(1, LOCK, 700 * MS, 701 * MS, 5, LK_OK);
	judge();
	BAD(PROMISE_EXCLUSION);
}

TEST(judge_excuses_an_overlap_when_the_store_forgot_between)
{
	two_holds(25 * MS);
	note(nemesis, "%lld flushall server at memory=lost\n", 22LL * MS);
	judge();
	GOOD();
	ck_assert_int_eq(verdict.excused, 1);
	/* Requested before the older grant, and with another name: no excuse. */
	two_holds(25 * MS);
	note(nemesis, "%lld flushall server at memory=lost\n", 9LL * MS);
	note(nemesis, "%lld delete pool at memory=lost\n", 22LL * MS);
	judge();
	BAD(PROMISE_EXCLUSION);
	ck_assert_int_eq(verdict.excused, 0);
	two_holds(25 * MS);
	note(nemesis, "%lld clock server at clock=2000\n", 22LL * MS);
	judge();
	GOOD();
}

/* The store forgot the first hold at 22 ms, and its client still renews: it may be unaware for one
 * lease of 1000 ms. */
TEST(judge_excuses_who_was_forgotten_for_a_lease)
{
	for (int late = 0; late < 2; late++) {
		begin_round();
		acquire(1, LOCK, 10 * MS, 20 * MS, 5, 1000 * MS);
		put(900 * MS, 1, HISTORY_LEAVE, HISTORY_EVENT, LOCK)->u.of.fence = 5;
		records[count - 1].u.of.valid_until_ns = 1022 * MS + late;
		note(nemesis, "%lld flushall server at memory=lost\n", 22LL * MS);
		acquire(2, LOCK, 25 * MS, 30 * MS, 6, 2000 * MS);
		release(2, LOCK, 1500 * MS, 1501 * MS, 6, LK_OK);
		release(1, LOCK, 1600 * MS, 1601 * MS, 5, LK_ELOST);
		judge();
		if (late)
			BAD(PROMISE_EXCLUSION);
		else
			GOOD();
	}
}

TEST(judge_excuses_no_overlap_for_any_other_fault)
{
	two_holds(25 * MS);
	note(nemesis, "%lld restart server begin\n%lld restart server end\n", 12LL * MS, 24LL * MS);
	judge();
	BAD(PROMISE_EXCLUSION);
}

TEST(judge_believes_the_canary)
{
	two_holds(30 * MS);
	put(31 * MS, 2, HISTORY_ENTER, HISTORY_EVENT, LOCK)->err = 1;
	judge();
	ONLY(PROMISE_CANARY);
	two_holds(30 * MS);
	put(31 * MS, 2, HISTORY_ENTER, HISTORY_EVENT, LOCK)->err = 1;
	note(nemesis, "%lld flushall server at memory=lost\n", 30LL * MS);
	judge();
	GOOD();
	ck_assert_int_eq(verdict.canaries_excused, 1);
}

/* The release finds it lost, though it seemed valid until 1000 ms. */
TEST(judge_wants_on_lost_to_be_called_once)
{
	for (int told = 0; told < 3; told++) {
		begin_round();
		acquire(1, LOCK, 10 * MS, 20 * MS, 5, 1000 * MS);
		for (int i = 0; i < told; i++)
			put((35 + i) * MS, 1, HISTORY_LOST, HISTORY_EVENT, LOCK)->u.of.fence = 5;
		release(1, LOCK, 30 * MS, 40 * MS, 5, LK_ELOST);
		call(1, HISTORY_AWAIT, GATE, 300 * MS, 301 * MS, LK_ETIMEDOUT);
		note(nemesis, "%lld delete job at memory=lost\n", 22LL * MS);
		judge();
		if (told == 1)
			GOOD();
		else
			ONLY(PROMISE_LOSS);
		ck_assert_int_eq(verdict.losses_judged, 1);
	}
}

TEST(judge_believes_the_canary_of_who_leaves)
{
	two_holds(30 * MS);
	put(29 * MS, 1, HISTORY_LEAVE, HISTORY_EVENT, LOCK)->err = 2;
	judge();
	ONLY(PROMISE_CANARY);
}

TEST(judge_lets_a_release_of_unknown_outcome_happen_at_any_time)
{
	begin_round();
	acquire(1, LOCK, 10 * MS, 20 * MS, 5, 1000 * MS);
	release(1, LOCK, 30 * MS, 2030 * MS, 5, LK_EUNKNOWN);
	acquire(2, LOCK, 25 * MS, 31 * MS, 6, 1000 * MS);
	release(2, LOCK, 40 * MS, 41 * MS, 6, LK_OK);
	judge();
	GOOD();
	ck_assert_int_eq(verdict.unknown, 1);
}

TEST(judge_lets_a_killed_process_leave_a_call_open)
{
	begin_round();
	acquire(1, LOCK, 10 * MS, 20 * MS, 5, 1000 * MS);
	release(1, LOCK, 30 * MS, 31 * MS, 5, LK_OK);
	call(1, HISTORY_ACQUIRE, LOCK, 40 * MS, 0, LK_OK);
	acquire(2, LOCK, 9000 * MS, 9001 * MS, 7, 10000 * MS);
	release(2, LOCK, 9002 * MS, 9003 * MS, 7, LK_OK);
	note(nemesis, "%lld kill 1 at\n", 50LL * MS);
	judge_but(1);
	GOOD();
	ck_assert_int_eq(verdict.killed, 1);
	*nemesis = 0;
	judge_but(1);
	BAD(PROMISE_CRASH);
	BAD(PROMISE_DEADLINE);
}

/* ---- fences ------------------------------------------------------------------------------------
 */

static void two_fences(uint64_t first, uint64_t second, int64_t second_ns)
{
	begin_round();
	acquire(1, LOCK, 10 * MS, 20 * MS, first, 1000 * MS);
	release(1, LOCK, 30 * MS, 40 * MS, first, LK_OK);
	acquire(2, LOCK, second_ns, 50 * MS, second, 1000 * MS);
	release(2, LOCK, 60 * MS, 70 * MS, second, LK_OK);
}

TEST(judge_wants_fences_to_grow)
{
	two_fences(7, 6, 45 * MS);
	judge();
	BAD(PROMISE_FENCE);
	BAD(PROMISE_ORDER);
	two_fences(7, 7, 45 * MS);
	judge();
	BAD(PROMISE_FENCE);
	two_fences(7, 8, 45 * MS);
	judge();
	GOOD();
}

TEST(judge_wants_fences_to_grow_when_the_store_forgot)
{
	two_fences(7, 6, 45 * MS);
	note(nemesis, "%lld flushall server at memory=lost\n", 42LL * MS);
	judge();
	BAD(PROMISE_FENCE);
	/* Both faults together excuse it. */
	two_fences(7, 6, 45 * MS);
	note(nemesis, "%lld clock server at clock=-5000\n", 41LL * MS);
	note(nemesis, "%lld flushall server at memory=lost\n", 42LL * MS);
	judge();
	GOOD();
}

TEST(judge_takes_a_reentry_for_what_it_is)
{
	struct history_record *again;

	begin_round();
	acquire(1, LOCK, 10 * MS, 20 * MS, 5, 1000 * MS);
	again = call(1, HISTORY_ACQUIRE, LOCK, 21 * MS, 22 * MS, LK_OK);
	again->flags = (again - 1)->flags = HISTORY_REENTRY;
	again->u.of.fence = 5;
	release(1, LOCK, 23 * MS, 24 * MS, 5, LK_OK);
	records[count - 1].flags = records[count - 2].flags = HISTORY_REENTRY;
	release(1, LOCK, 30 * MS, 31 * MS, 5, LK_OK);
	judge();
	GOOD();
	again->u.of.fence = 4;
	judge();
	ONLY(PROMISE_ORDER);
}

/* ---- permits -----------------------------------------------------------------------------------
 */

static void three_holds(int64_t third, int64_t from_ns)
{
	begin_round();
	acquire(1, POOL, 1 * MS, 2 * MS, 11, 1000 * MS);
	records[count - 1].permits = 2;
	acquire(2, POOL, 3 * MS, 4 * MS, 12, 1000 * MS);
	acquire(3, POOL, 5 * MS, from_ns, 13, 1000 * MS);
	records[count - 1].permits = (int32_t)third;
	release(2, POOL, 20 * MS, 21 * MS, 12, LK_OK);
	release(1, POOL, 30 * MS, 31 * MS, 11, LK_OK);
	release(3, POOL, 40 * MS, 41 * MS, 13, LK_OK);
}

TEST(judge_counts_permits)
{
	three_holds(1, 20 * MS - 1);
	judge();
	BAD(PROMISE_PERMITS);
	three_holds(1, 20 * MS);
	judge();
	GOOD();
	three_holds(2, 25 * MS);
	judge();
	BAD(PROMISE_PERMITS);
	three_holds(2, 30 * MS);
	judge();
	GOOD();
}

TEST(judge_counts_permits_that_were_given_back)
{
	for (int amount = 1; amount <= 2; amount++) {
		three_holds(2, 25 * MS);
		/* The first hold has 2 permits and releases some. */
		release(1, POOL, 22 * MS, 23 * MS, 11, LK_OK);
		records[count - 2].u.of.amount = records[count - 1].u.of.amount = 1;
		if (amount == 2)
			records[count - 2].at_ns = records[count - 1].at_ns = 26 * MS;
		judge();
		if (amount == 1)
			GOOD();
		else
			BAD(PROMISE_PERMITS);
	}
}

static void taps(int64_t third_asked_ns, int64_t third_ns)
{
	begin_round();
	for (int i = 0; i < 3; i++) {
		acquire((uint32_t)i + 1, TAP, i < 2 ? (10 + i) * MS : third_asked_ns,
		        i < 2 ? (12 + i) * MS : third_ns, 0, 0);
		records[count - 1].flags = records[count - 2].flags = HISTORY_RATE | HISTORY_FIXED;
		records[count - 2].u.of.amount = 100;
	}
}

TEST(judge_counts_the_grants_of_a_window)
{
	taps(50 * MS, 110 * MS - 1);
	judge();
	ONLY(PROMISE_RATE);
	taps(50 * MS, 110 * MS);
	judge();
	GOOD();
}

/* ---- latches -----------------------------------------------------------------------------------
 */

static void latch(int64_t second_remains, int64_t await_ns)
{
	begin_round();
	set(1 * MS, 2 * MS, 3);
	step(2, 3 * MS, 4 * MS, 2);
	step(3, 5 * MS, 6 * MS, second_remains);
	step(4, 50 * MS, 51 * MS, 0);
	call(5, HISTORY_AWAIT, GATE, 3 * MS, await_ns, LK_OK);
}

TEST(judge_sees_a_latch_open_early_and_late)
{
	latch(1, 50 * MS);
	judge();
	ONLY(PROMISE_AWAIT);
	latch(1, 50 * MS + 1);
	judge();
	GOOD();
	ck_assert_int_eq(verdict.openings, 1);
	latch(1, 1051 * MS);
	call(6, HISTORY_AWAIT, GATE, 1100 * MS, 1200 * MS, LK_OK);
	judge();
	GOOD();
	latch(1, 1052 * MS);
	call(6, HISTORY_AWAIT, GATE, 1100 * MS, 1200 * MS, LK_OK);
	judge();
	ONLY(PROMISE_AWAIT);
}

TEST(judge_sees_a_step_count_twice_or_not_at_all)
{
	latch(0, 60 * MS);
	judge();
	BAD(PROMISE_STEP);
	latch(2, 60 * MS);
	judge();
	BAD(PROMISE_STEP);
	/* A step of unknown outcome may have been the missing one. */
	latch(0, 60 * MS);
	call(6, HISTORY_DOWN, GATE, 3 * MS, 2003 * MS, LK_EUNKNOWN);
	records[count - 1].at_ns = 1900 * MS;
	for (size_t i = 0; i < count; i++)
		if (records[i].pid == 4)
			records[i].flags = HISTORY_AGAIN;
	judge();
	GOOD();
}

TEST(judge_counts_the_name_of_a_step_once)
{
	for (int same = 0; same < 2; same++) {
		latch(1, 60 * MS);
		for (size_t i = 0; i < count; i++) {
			if (records[i].op != HISTORY_DOWN || records[i].phase != HISTORY_BEGIN)
				continue;
			records[i].flags = HISTORY_NAMED;
			records[i].u.of.valid_until_ns = same ? 7 : 7 + records[i].pid;
		}
		judge();
		if (same)
			ONLY(PROMISE_STEP);
		else
			GOOD();
	}
}

/* ---- time --------------------------------------------------------------------------------------
 */

static void wake(int64_t late_ns)
{
	begin_round();
	acquire(1, LOCK, 10 * MS, 20 * MS, 5, 1000 * MS);
	acquire(2, LOCK, 15 * MS, 40 * MS + late_ns, 6, 30000 * MS);
	records[count - 2].u.of.valid_until_ns = 0;
	release(1, LOCK, 30 * MS, 40 * MS, 5, LK_OK);
	release(2, LOCK, 41 * MS + late_ns, 42 * MS + late_ns, 6, LK_OK);
}

TEST(judge_sees_a_lost_wake_up)
{
	wake(1000 * MS);
	judge();
	GOOD();
	ck_assert_int_eq(verdict.quiet_max_ns, 1000 * MS);
	wake(1000 * MS + 1);
	judge();
	ONLY(PROMISE_WAKE_UP);
	/* With a fault: the lease, an ask, the claims of two waiters, and the fault's own
	 * length. */
	for (int over = 0; over < 2; over++) {
		wake((1000 + 11200 + 2 * 3000 + 100) * MS + over);
		note(nemesis, "%lld drop server begin\n%lld drop server end\n", 100LL * MS,
		     200LL * MS);
		judge();
		if (over)
			ONLY(PROMISE_WAKE_UP);
		else
			GOOD();
	}
}

TEST(judge_sees_a_wait_in_vain)
{
	for (int over = 0; over < 2; over++) {
		wake(1 * MS);
		call(3, HISTORY_ACQUIRE, LOCK, 30 * MS, 1042 * MS + over, LK_ETIMEDOUT);
		records[count - 2].u.of.valid_until_ns = 1042 * MS;
		acquire(1, LOCK, 2000 * MS, 2001 * MS, 9, 9000 * MS);
		release(1, LOCK, 2002 * MS, 2003 * MS, 9, LK_OK);
		for (size_t i = 0; i < count; i++)
			if (records[i].pid == 2 && records[i].op == HISTORY_RELEASE &&
			    records[i].phase == HISTORY_DONE)
				records[i].at_ns = 42 * MS;
		judge();
		if (over)
			ONLY(PROMISE_WAKE_UP);
		else
			GOOD();
	}
}

TEST(judge_sees_a_call_that_hangs)
{
	for (int over = 0; over < 2; over++) {
		begin_round();
		call(1, HISTORY_ACQUIRE, LOCK, 10 * MS, (10 + 3000 + 2000) * MS + over,
		     LK_EUNKNOWN);
		judge();
		if (over)
			ONLY(PROMISE_DEADLINE);
		else
			GOOD();
	}
	/* A stopped process could not return. */
	note(nemesis, "%lld stop 1 begin\n%lld stop 1 end\n", 20LL * MS, 21LL * MS);
	judge();
	GOOD();
}

TEST(judge_sees_a_loss_that_was_told_late)
{
	for (int over = 0; over < 2; over++) {
		begin_round();
		acquire(1, LOCK, 10 * MS, 20 * MS, 5, 500 * MS);
		records[count - 1].flags = HISTORY_FIXED;
		put(700 * MS + over, 1, HISTORY_LOST, HISTORY_EVENT, LOCK)->u.of.fence = 5;
		release(1, LOCK, 800 * MS, 801 * MS, 5, LK_ELOST);
		judge();
		if (over)
			ONLY(PROMISE_LOSS);
		else
			GOOD();
	}
	note(nemesis, "%lld stop 1 begin\n%lld stop 1 end\n", 600LL * MS, 601LL * MS);
	judge();
	GOOD();
}

TEST(judge_sees_a_lost_hold_believed)
{
	for (int err = 0; err < 2; err++) {
		begin_round();
		acquire(1, LOCK, 10 * MS, 20 * MS, 5, 500 * MS);
		put(100 * MS, 1, HISTORY_LOST, HISTORY_EVENT, LOCK)->u.of.fence = 5;
		release(1, LOCK, 110 * MS, 111 * MS, 5, err ? LK_ELOST : LK_OK);
		judge();
		if (err)
			GOOD();
		else
			ONLY(PROMISE_LOSS);
	}
}

TEST(judge_wants_load_and_faults)
{
	wake(1 * MS);
	options.min_faults = 1;
	judge();
	ONLY(JUDGE_LOAD);
	note(nemesis, "%lld drop server at\n", 30LL * MS);
	judge();
	GOOD();
	options.min_rate = 60;
	judge();
	GOOD();
	options.min_rate = 61;
	judge();
	ONLY(JUDGE_LOAD);
}

TEST(judge_wants_all_free_at_the_end)
{
	wake(1 * MS);
	snprintf(rest, sizeof(rest), "job 1 1 0\npool 3 3 0\ntap 0 2 0\n");
	judge();
	GOOD();
	snprintf(rest, sizeof(rest), "job 1 1 0\npool 2 3 0\n");
	judge();
	ONLY(PROMISE_REST);
	snprintf(rest, sizeof(rest), "job 1 1 1\n");
	judge();
	ONLY(PROMISE_REST);
}

/* ---- records -----------------------------------------------------------------------------------
 */

TEST(judge_sees_records_that_contradict_each_other)
{
	begin_round();
	call(1, HISTORY_ACQUIRE, LOCK, 10 * MS, 0, LK_OK);
	put(11 * MS, 1, HISTORY_RELEASE, HISTORY_DONE, LOCK)->call = calls;
	judge();
	BAD(JUDGE_HISTORY);
	begin_round();
	release(1, LOCK, 10 * MS, 11 * MS, 99, LK_OK);
	judge();
	BAD(JUDGE_HISTORY);
}
