/* SPDX-License-Identifier: MIT
 * The judge of chaos against made-up rounds: waits without end, links of processes, losses and
 * their reports, and the search for an order after the store lost its memory. */
#include "chaos/judge_made.h"

static struct history_record *wait_without_end(int op, int name, int64_t to_ns, int err)
{
	struct history_record *end = call(1, op, name, 10 * MS, to_ns, err);
	struct history_record *begin = to_ns ? end - 1 : end;

	begin->u.of.valid_until_ns = 0;
	return begin;
}

static void cancels(uint64_t number, int64_t at_ns)
{
	struct history_record *end = call(1, HISTORY_CANCEL, LOCK, at_ns, at_ns + MS, LK_OK);

	end->u.of.fence = (end - 1)->u.of.fence = number;
}

TEST(judge_sees_a_cancelled_wait_that_goes_on)
{
	const int ops[] = {HISTORY_ACQUIRE, HISTORY_AWAIT}, about[] = {LOCK, GATE};

	for (int i = 0; i < 2; i++) {
		begin_round();
		options.command_ms = 1000;
		cancels(wait_without_end(ops[i], about[i], 1900 * MS, LK_ECANCELED)->call,
		        900 * MS);
		judge();
		GOOD();
		ck_assert_int_eq(verdict.cancels_judged, 1);
		begin_round();
		options.command_ms = 1000;
		cancels(wait_without_end(ops[i], about[i], 1950 * MS, LK_ECANCELED)->call,
		        900 * MS);
		judge();
		ONLY(PROMISE_DEADLINE);
		/* Three cases: the wait never ends, its process is stopped for as long, it is not
		 * cancelled. */
		for (int how = 0; how < 3; how++) {
			struct history_record *wait;
			begin_round();
			options.command_ms = 1000;
			wait = wait_without_end(ops[i], about[i], 0, 0);
			if (how < 2)
				cancels(wait->call, 900 * MS);
			if (how == 1)
				note(nemesis, "%lld stop 1 begin\n%lld stop 1 end\n", 950LL * MS,
				     1800LL * MS);
			put(2000 * MS, 1, HISTORY_END, HISTORY_EVENT, 0);
			judge();
			if (how)
				GOOD();
			else
				ONLY(PROMISE_DEADLINE);
		}
	}
}

static void passed_over(void)
{
	begin_round();
	for (uint32_t pid = 1; pid <= 3; pid++) {
		put(1 * MS, pid, HISTORY_START, HISTORY_EVENT, 0);
		client(pid);
		note(nemesis, "# 0 worker %u proxy%u\n", pid, pid);
	}
	asks(10 * MS, 1, 1, 5);
	asks(11 * MS, 2, 2, 0);
	asks(12 * MS, 3, 3, 0);
	leaves(20 * MS, 1, 1);
	goes_to(20 * MS, 2, 2, 0);
	goes_to(20 * MS, 3, 3, 6);
	for (uint32_t pid = 1; pid <= 3; pid++)
		put(5000 * MS, pid, HISTORY_END, HISTORY_EVENT, 0);
}

TEST(judge_knows_whose_link_a_fault_is)
{
	passed_over();
	note(nemesis, "%lld stall proxy2 begin\n%lld stall proxy2 end\n", 12LL * MS, 19LL * MS);
	judge();
	GOOD();
	ck_assert_int_eq(verdict.passed_over, 1);
	passed_over();
	note(nemesis, "%lld stall proxy1 begin\n%lld stall proxy1 end\n", 12LL * MS, 19LL * MS);
	judge();
	ONLY(PROMISE_FIFO);
	/* A link of unknown process may belong to any. */
	passed_over();
	note(nemesis, "%lld stall proxy9 at\n", 12LL * MS);
	judge();
	GOOD();
}

TEST(judge_wants_a_loss_told_that_was_seen)
{
	for (int told = 0; told < 3; told++) {
		struct history_record *seen;
		begin_round();
		acquire(1, LOCK, 10 * MS, 20 * MS, 5, 1000 * MS);
		seen = put(600 * MS, 1, HISTORY_SEEN, HISTORY_EVENT, LOCK);
		seen->u.of.fence = 5;
		seen->u.of.valid_until_ns = 0;
		if (told)
			put((told == 1 ? 790 : 810) * MS, 1, HISTORY_LOST, HISTORY_EVENT, LOCK)
				->u.of.fence = 5;
		release(1, LOCK, 900 * MS, 901 * MS, 5, LK_ELOST);
		judge();
		ck_assert_int_eq(verdict.overs_judged, 1);
		if (told == 1)
			GOOD();
		else
			ONLY(PROMISE_LOSS);
	}
}

/* A hold that ended before its acquire returned: the next one may lie inside that call, but not
 * before it. */
TEST(judge_lets_a_hold_end_inside_its_acquire)
{
	begin_round();
	acquire(1, LOCK, 10 * MS, 500 * MS, 5, 400 * MS);
	acquire(2, LOCK, 20 * MS, 450 * MS, 6, 1400 * MS);
	release(2, LOCK, 460 * MS, 470 * MS, 6, LK_OK);
	release(1, LOCK, 501 * MS, 502 * MS, 5, LK_ELOST);
	judge();
	ck_assert_int_eq(verdict.of[PROMISE_ORDER], 0);
	begin_round();
	acquire(1, LOCK, 455 * MS, 500 * MS, 5, 400 * MS);
	acquire(2, LOCK, 20 * MS, 450 * MS, 6, 1400 * MS);
	release(2, LOCK, 460 * MS, 470 * MS, 6, LK_OK);
	release(1, LOCK, 501 * MS, 502 * MS, 5, LK_ELOST);
	judge();
	BAD(PROMISE_ORDER);
}

/* The hold with the larger fence ends before the other is requested, in a lock that is held. */
static void disorder(int64_t from_ns)
{
	struct history_record *again;

	acquire(1, LOCK, from_ns + 10 * MS, from_ns + 20 * MS, 15, from_ns + 1000 * MS);
	again = call(1, HISTORY_ACQUIRE, LOCK, from_ns + 21 * MS, from_ns + 22 * MS, LK_OK);
	again->flags = (again - 1)->flags = HISTORY_REENTRY;
	again->u.of.fence = 14;
	release(1, LOCK, from_ns + 30 * MS, from_ns + 31 * MS, 15, LK_OK);
}

TEST(judge_searches_again_a_lease_after_a_loss)
{
	/* The lease is 1 s, and another one allows for the machine. */
	static const struct {
		const char *fault;
		int64_t from_ms;
		bool found;
	} cases[] = {
		{"flushall server at memory=lost", 1900, false},
		{"flushall server at memory=lost", 2100, true},
		{"break job at", 2100, true},
		{"clock server at clock=5000", 2100, true},
		{"clock server at clock=-5000", 2100, false},
		{"delete pool at memory=lost", 100, true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		begin_round();
		acquire(2, LOCK, 10 * MS, 20 * MS, 3, 1000 * MS);
		release(2, LOCK, 30 * MS, 31 * MS, 3, LK_OK);
		note(nemesis, "%lld %s\n", 40LL * MS, cases[i].fault);
		disorder(cases[i].from_ms * MS);
		judge();
		if (cases[i].found)
			ONLY(PROMISE_ORDER);
		else
			GOOD();
	}
}

/* The holder from before the restarted search may still release the lock; no other may before
 * it. */
TEST(judge_takes_old_holds_over)
{
	for (int early = 0; early < 2; early++) {
		begin_round();
		note(nemesis, "%lld flushall server at memory=lost\n", 40LL * MS);
		acquire(1, LOCK, 1000 * MS, 1010 * MS, 5, 9000 * MS);
		acquire(2, LOCK, 1020 * MS, 2510 * MS, 6, 9000 * MS);
		release(1, LOCK, (early ? 2520 : 2500) * MS, (early ? 2525 : 2505) * MS, 5, LK_OK);
		release(2, LOCK, 2600 * MS, 2601 * MS, 6, LK_OK);
		judge();
		if (early)
			BAD(PROMISE_ORDER);
		else
			GOOD();
	}
}

/* A process that the store forgot may hand over its hold between threads for one lease. */
TEST(judge_knows_what_was_handed_on_inside_a_process)
{
	for (int how = 0; how < 4; how++) {
		begin_round();
		acquire(1, LOCK, 10 * MS, 20 * MS, 5, 1000 * MS);
		release(1, LOCK, 300 * MS, 310 * MS, 5, LK_OK);
		if (how != 1)
			note(nemesis, "%lld flushall server at memory=lost\n", 40LL * MS);
		acquire(2, LOCK, 50 * MS, 60 * MS, 100, 70 * MS);
		release(2, LOCK, 65 * MS, 66 * MS, 100, LK_OK);
		acquire(how == 2 ? 3 : 1, LOCK, 290 * MS, 305 * MS, how == 3 ? 7 : 6, 1000 * MS);
		release(how == 2 ? 3 : 1, LOCK, 320 * MS, 330 * MS, how == 3 ? 7 : 6, LK_ELOST);
		judge();
		if (how)
			BAD(PROMISE_FENCE);
		else
			GOOD();
	}
}
