/* SPDX-License-Identifier: MIT
 * The judge of chaos against hand-made lines of a server's monitor. */
#include "chaos/judge_made.h"

static void begin_queue(void)
{
	begin_round();
	client(1);
	client(2);
	client(3);
	asks(10 * MS, 1, 1, 5);
	asks(11 * MS, 2, 2, 0);
	asks(12 * MS, 3, 3, 0);
	leaves(20 * MS, 1, 1);
	put(5000 * MS, 1, HISTORY_END, HISTORY_EVENT, 0);
	put(5000 * MS, 2, HISTORY_END, HISTORY_EVENT, 0);
	put(5000 * MS, 3, HISTORY_END, HISTORY_EVENT, 0);
}

TEST(judge_sees_who_jumps_the_queue)
{
	begin_queue();
	goes_to(20 * MS, 2, 2, 6);
	judge();
	GOOD();
	begin_queue();
	goes_to(20 * MS, 3, 3, 6);
	judge();
	ONLY(PROMISE_FIFO);
	/* After a gap in the monitor's output the waiters are unknown. */
	begin_queue();
	note(monitor, "%lld gap\n", 20LL * MS);
	goes_to(20 * MS, 3, 3, 6);
	judge();
	GOOD();
}

TEST(judge_lets_a_dead_waiter_be_passed_over)
{
	begin_queue();
	goes_to(20 * MS, 2, 2, 0);
	goes_to(20 * MS, 3, 3, 6);
	judge();
	ONLY(PROMISE_FIFO);
	note(nemesis, "%lld kill 2 at\n", 15LL * MS);
	judge();
	GOOD();
	ck_assert_int_eq(verdict.passed_over, 1);
	*nemesis = 0;
	note(nemesis, "%lld kill 1 at\n", 15LL * MS);
	judge();
	ONLY(PROMISE_FIFO);
}

TEST(judge_sees_a_zombie)
{
	for (int again = 0; again < 2; again++) {
		begin_queue();
		goes_to(20 * MS, 2, 2, 6);
		if (again)
			script(30 * MS, &lk__script_lock_renew, 1, 1, "\"5\" \"1000\" \"0\" \"-\"");
		else
			script(30 * MS, &lk__script_lock_renew, 2, 2, "\"6\" \"1000\" \"0\" \"-\"");
		lua(30 * MS, "PEXPIRE", again ? 1 : 2, 2, "\"lk:{job}\" \"1000\" \"@\"");
		judge();
		if (again)
			ONLY(PROMISE_ZOMBIE);
		else
			GOOD();
	}
}

/* It writes nothing, and the network is at fault: the connection of its leave marks it as a
 * zombie. */
TEST(judge_knows_a_zombie_by_its_connection)
{
	for (int other = 0; other < 2; other++) {
		begin_queue();
		goes_to(20 * MS, 2, 2, 6);
		note(nemesis, "%lld delay proxy0 begin\n", 15LL * MS);
		connection = 1 + other;
		script(30 * MS, &lk__script_lock_renew, 1, 1, "\"5\" \"1000\" \"0\" \"-\"");
		connection = 1;
		judge();
		if (other)
			GOOD();
		else
			ONLY(PROMISE_ZOMBIE);
	}
}

static void handovers(int many, int64_t from_ns)
{
	begin_round();
	client(1);
	client(2);
	asks(10 * MS, 1, 1, 5);
	asks(11 * MS, 2, 2, 0);
	acquire(1, LOCK, 9 * MS, 10 * MS, 5, 60000 * MS);
	release(1, LOCK, 12 * MS, 13 * MS, 5, LK_OK);
	for (int i = 0; i < many; i++) {
		int64_t at_ns = from_ns + i * 4 * MS;
		acquire(1, LOCK, at_ns, at_ns + MS, 6 + (uint64_t)i, 60000 * MS);
		release(1, LOCK, at_ns + 2 * MS, at_ns + 3 * MS, 6 + (uint64_t)i, LK_OK);
	}
}

TEST(judge_counts_handovers_while_another_process_waits)
{
	handovers(16, 600 * MS);
	judge();
	GOOD();
	ck_assert_int_eq(verdict.handovers, 16);
	handovers(17, 600 * MS);
	judge();
	ONLY(PROMISE_HAND_OVERS);
	/* The holder may not have received "wanted" yet. */
	handovers(17, 20 * MS);
	judge();
	GOOD();
}

/* A process that stands still between its grant and the return of its call: the hold ends, others
 * come and go, and the call reports a fence that was good when it was granted. */
TEST(judge_lets_a_hold_end_inside_the_call_that_reports_it)
{
	for (int known = 0; known < 2; known++) {
		begin_round();
		note(nemesis, "%lld stop 1 begin\n%lld stop 1 end\n", 11LL * MS, 2990LL * MS);
		acquire(1, LOCK, 10 * MS, 3000 * MS, 5, known ? 4000 * MS : 0);
		release(1, LOCK, 3010 * MS, 3011 * MS, 5, LK_ELOST);
		acquire(2, LOCK, 1500 * MS, 1501 * MS, 6, 2500 * MS);
		release(2, LOCK, 1510 * MS, 1511 * MS, 6, LK_OK);
		judge();
		if (known)
			BAD(PROMISE_ORDER);
		else
			GOOD();
	}
}
