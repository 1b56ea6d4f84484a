/* SPDX-License-Identifier: MIT
 * Scenes of the simulator, call by call.  Most come from seeds that a check once reported: one more
 * random draw changes the run of a seed, but not a scene. */
#include "sim/sim_scene.h"

/* An operator breaks a grant of a rate.  Its permit is free at once: the rate grants one more. */
TEST(broken_grant_of_a_rate_makes_room)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, RATE, 0, 0, 0},
		{3 * SIM_S, 1, 0, RATE, 0, 0, 0},
		{4 * SIM_S, 2, 0, RATE, 0, 0, 0},
	};

	plan_scene(acts, 3);
	expect_nothing();
	ck_assert_int_eq(result.tally.forgot, 1);
	/* The operator chooses a name at random; repeat until it is the rate. */
	add_fault(SIM_BREAK, 0, 2 * SIM_S, 0);
	for (uint64_t chance = 1; chance < 100 && !result.tally.faults[SIM_BREAK]; chance++) {
		plan.faults[0].chance = chance;
		expect_nothing();
	}
	ck_assert_int_eq(result.tally.faults[SIM_BREAK], 1);
	ck_assert_int_eq(result.tally.forgot, 2);
}

/* Seed 300406.  The server counts whole microseconds: it grants again in the microsecond in which a
 * window ends, though up to 999 ns of the window are left.  (Nothing delays these calls.) */
TEST(windows_of_a_rate_meet_in_a_microsecond)
{
	static const struct sim_act acts[] = {
		{5 * SIM_S + 900, 0, 0, RATE, 0, 0, 0},
		{5 * SIM_S + 400 + WINDOW_NS, 1, 0, RATE, 0, 0, 0},
	};

	plan_scene(acts, 2);
	plan.delay_ns = 0;
	expect_nothing();
	ck_assert_int_eq(result.tally.forgot, 2);
}

TEST(grant_one_microsecond_before_a_window_ends_is_found)
{
	static const struct sim_bug bug = {
		"semaphore_ask",
		"first_us > now then return end\n"
		"\tlocal over = redis.call('ZRANGEBYSCORE', ENDS, '-inf', now_text,",
		"first_us > now + 1 then return end\n"
		"\tlocal over = redis.call('ZRANGEBYSCORE', ENDS, '-inf', text(now + 1),"};
	static const struct sim_act acts[] = {
		{5 * SIM_S, 0, 0, RATE, 0, 0, 0},
		{5 * SIM_S - 1000 + WINDOW_NS, 1, 0, RATE, 0, 0, 0},
	};

	plan_scene(acts, 2);
	plan.delay_ns = 0;
	expect_nothing();
	ck_assert_int_eq(result.tally.forgot, 1);
	expect_only(&bug, "rate", "permits of a window");
}

/* Clients without a grace.  A holder is cut off; a failover loses its grant and the fence; another
 * client gets the lock while the holder still believes in its hold, and hands it over between
 * threads. */
static void plan_forgotten_fence(int64_t back_ns)
{
	static const struct sim_act acts[] = {
		{5 * SIM_S, 0, 0, LOCK, 0, SIM_S / 10, 0},
		{8 * SIM_S, 0, 1, LOCK, 0, 20 * SIM_S, 0},
		{9 * SIM_S, 1, 0, LOCK, 6 * SIM_S, 3 * SIM_S, 0},
		{9 * SIM_S, 1, 1, LOCK, 20 * SIM_S, SIM_S, 0},
	};

	plan_scene(acts, 4);
	plan.graceless = 7;
	if (back_ns)
		add_fault(SIM_CLOCK_BACK, 2, 6 * SIM_S, back_ns);
	add_fault(SIM_CUT_OFF, 0, 8300 * SIM_MS, 8 * SIM_S);
	add_fault(SIM_FAILOVER, 2, 8500 * SIM_MS, SIM_S);
}

/* Seed 300329.  With the server's clock set back before, the fence of the lost grant is used again,
 * as docs/redis.md says. */
TEST(fence_comes_again_if_counter_and_clock_are_behind)
{
	plan_forgotten_fence(20 * SIM_S);
	expect_nothing();
	ck_assert_int_eq(result.tally.fences_again, 1);
}

/* The same without the step of the clock, and a script that only increments. */
TEST(fence_that_comes_again_is_found)
{
	static const struct sim_bug bug = {
		"lock_ask", "if last - now >= 0 then fence =", "if last then fence ="};

	plan_forgotten_fence(0);
	expect_nothing();
	ck_assert_int_eq(result.tally.fences_again, 0);
	expect_only(&bug, "fence", "two valid holds of lock2");
}

/* A lock is handed over from one thread of a client to another.  The client dies, or its requests
 * are lost or refused; the lease ends, the clock is set back, and another client asks. */
static void plan_unreported_fence(enum sim_fault_kind kind, int64_t at_ns, bool back)
{
	static const struct sim_act acts[] = {
		{5 * SIM_S, 0, 0, LOCK, 0, SIM_S / 2, 0},
		{5100 * SIM_MS, 0, 1, LOCK, 5 * SIM_S, 20 * SIM_S, 0},
		{28 * SIM_S, 1, 0, LOCK, 0, SIM_S, 0},
	};

	plan_scene(acts, 3);
	add_fault(kind, 0, at_ns, 16 * SIM_S);
	if (back)
		add_fault(SIM_CLOCK_BACK, 2, 27 * SIM_S, 30 * SIM_S);
}

/* Seed 1044.  The hold ended before any report: its fence is used again, as docs/redis.md
 * says. */
TEST(fence_comes_again_if_it_was_not_reported_and_the_clock_is_behind)
{
	static const uint8_t kinds[] = {SIM_CRASH, SIM_STOP, SIM_REFUSE, SIM_BREAK};

	for (int i = 0; i < 4; i++) {
		plan_unreported_fence(kinds[i], 6 * SIM_S, true);
		plan.faults[0].chance = 6; /* the lock that the operator breaks */
		expect_nothing();
		ck_assert_int_eq(result.tally.fences_again, 1);
	}
}

/* Seed 2000492.  The holder's link is down before its threads hand the lock over, and the next
 * client has a link before the holder does; the grace is over before the clock has caught up. */
TEST(fence_comes_again_if_it_was_made_without_a_link_and_the_clock_is_behind)
{
	static const struct sim_act acts[] = {
		{5 * SIM_S, 0, 0, LOCK, 0, SIM_S / 2, 0},
		{5100 * SIM_MS, 0, 1, LOCK, 5 * SIM_S, 20 * SIM_S, 0},
		{20 * SIM_S, 1, 0, LOCK, 18 * SIM_S, SIM_S, 0},
	};

	plan_scene(acts, 3);
	add_fault(SIM_RESTART, 2, 5200 * SIM_MS, 16 * SIM_S);
	add_fault(SIM_CLOCK_BACK, 2, 19 * SIM_S, 30 * SIM_S);
	for (plan.seed = 1; plan.seed <= 16; plan.seed++) {
		expect_nothing();
		ck_assert_int_eq(result.tally.fences_again, 1);
	}
}

/* No request is lost (forgotten scripts are sent again), but a script ends the lease early. */
TEST(fence_that_could_have_been_reported_and_comes_again_is_found)
{
	static const struct sim_bug bug = {"lock_renew", "left, force = A", "left, force = 1, A"};

	plan_unreported_fence(SIM_FORGET, 6 * SIM_S, true);
	expect_nothing();
	expect_only(&bug, "fence", "the store: fence");
}

/* The client has reported the fence, and the script ignores that. */
TEST(fence_that_was_reported_and_comes_again_is_found)
{
	static const struct sim_bug bug = {"lock_renew", "change('SET', KEYS[3], ARGV[4])",
	                                   "last = ARGV[4]"};

	plan_unreported_fence(SIM_STOP, 10 * SIM_S, true);
	expect_nothing();
	ck_assert_int_eq(result.tally.fences_again, 0);
	expect_only(&bug, "fence", "the store: fence");
}

/* The clock is not set back, and the script only increments. */
TEST(unreported_fence_comes_again_with_the_clock_ahead_and_is_found)
{
	static const struct sim_bug bug = {
		"lock_ask", "if last - now >= 0 then fence =", "if last then fence ="};

	plan_unreported_fence(SIM_CRASH, 6 * SIM_S, false);
	expect_nothing();
	ck_assert_int_eq(result.tally.fences_again, 0);
	expect_only(&bug, "fence", "the store: fence");
}

/* A message about an opened latch is delayed.  Meanwhile the memory is lost, the clock is set back,
 * and the latch counts again, under a smaller generation; another wait begins. */
static void plan_late_opening(int count)
{
	static struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LATCH, 30 * SIM_S, 0, -1},
		{4 * SIM_S, 1, 0, LATCH, 0, 0, 0},
		{5 * SIM_S, 1, 0, LATCH, 0, 0, 3},
		{5500 * SIM_MS, 0, 1, LATCH, 5 * SIM_S, 0, -1},
	};

	acts[1].count = count; /* 0 = open */
	plan_scene(acts, 4);
	add_fault(SIM_STALL, 0, 3900 * SIM_MS, 2100 * SIM_MS);
	add_fault(SIM_CLOCK_BACK, 2, 4200 * SIM_MS, 20 * SIM_S);
	add_fault(SIM_FLUSH_ALL, 2, 4500 * SIM_MS, 0);
}

/* The stall chooses its connection and direction at random; repeat until it is that of the
 * message. */
static void find_late_opening(void)
{
	plan_late_opening(0);
	for (uint64_t chance = 1; chance < 100 && !result.tally.late_openings; chance++) {
		plan.faults[0].chance = chance;
		expect_nothing();
	}
	ck_assert_int_eq(result.tally.late_openings, 1);
	ck_assert_int_eq(result.tally.released, 2);
}

/* Seed 800131.  The old opening ends the new wait, as docs/latch.md says. */
TEST(opening_of_a_lost_memory_comes_late)
{
	find_late_opening();
}

/* The memory stays, and the waiter is misled about the generation that counts. */
TEST(late_opening_that_ends_a_wait_is_found)
{
	static const struct sim_bug bug = {"latch_show", "'counting', gen, count",
	                                   "'counting', '1', count"};

	find_late_opening();
	plan.fault_count = 1;
	expect_nothing();
	ck_assert_int_eq(result.tally.late_openings, 0);
	expect_only(&bug, "await", "gate6: ");
}

/* The memory is lost, and the late message names a generation that never opened. */
TEST(late_opening_that_never_was_is_found)
{
	static const struct sim_bug bug = {"latch_set", "if ARGV[1] == '0' then\n\tchange('PEXP",
	                                   "if true then\n\tchange('PEXP"};
	uint64_t chance;

	find_late_opening();
	chance = plan.faults[0].chance;
	plan_late_opening(1);
	plan.faults[0].chance = chance;
	expect_nothing();
	ck_assert_int_eq(result.tally.late_openings, 0);
	expect_only(&bug, "await", "gate6: ");
}

/* Refuse commands from that time on, several times: the kind of refusal depends on the random
 * number and on the length. */
static void expect_repeated_leaves(int64_t from_ns, const long long *tally, int expected)
{
	int refused = 0;

	add_fault(SIM_REFUSE, 0, from_ns, 300 * SIM_MS);
	for (uint64_t chance = 1; chance <= 8; chance++) {
		plan.faults[0].chance = chance;
		plan.faults[0].length_ns += SIM_MS;
		expect_nothing();
		ck_assert_int_eq(*tally, expected);
		refused += result.tally.leaves_refused > 0;
	}
	ck_assert_int_ge(refused, 3);
}

/* Seed 300267.  A waiter gives up while the server refuses its leave.  The client repeats the leave
 * until the server confirms it: at the end no ticket is left in the queue. */
TEST(refused_leave_of_a_waiter_is_repeated)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, RATE, 0, 0, 0},
		{2 * SIM_S, 2, 0, RATE, 2 * SIM_S, 0, 0},
	};

	plan_scene(acts, 2);
	plan.length_ns = 9 * SIM_S;
	expect_repeated_leaves(3900 * SIM_MS, &result.tally.forgot, 1);
}

/* The same for a holder: the lock is free long before the lease ends. */
TEST(refused_leave_of_a_holder_is_repeated)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, SIM_S, 0},
		{6 * SIM_S, 1, 0, LOCK, 0, SIM_S, 0},
	};

	plan_scene(acts, 2);
	expect_repeated_leaves(1900 * SIM_MS, &result.tally.grants, 2);
}

/* A waiter leaves the queue after a while; at 10 s the memory of 4 s is restored.  The lock is held
 * until 71 s, with a waiter for a little longer; its queue lives as long. */
static void plan_old_queue(int64_t wait_ns)
{
	static struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 70 * SIM_S, 0},
		{3 * SIM_S, 1, 0, LOCK, 0, 0, 0},
		{3500 * SIM_MS, 2, 0, LOCK, 68 * SIM_S, SIM_S, 0},
	};

	acts[1].wait_ns = wait_ns;
	plan_scene(acts, 3);
	add_fault(SIM_OLD, 2, 10 * SIM_S, 6 * SIM_S);
}

/* Seed 2000159.  The waiter had left before; it is granted the lock long after, and no leave is
 * sent. */
TEST(old_memory_brings_a_waiter_back_for_as_long_as_its_queue_lives)
{
	plan_old_queue(2 * SIM_S);
	plan.length_ns = 60 * SIM_S;
	expect_nothing();
	ck_assert_int_eq(result.tally.faults[SIM_OLD], 1);
}

/* The waiter leaves after that, and the script ignores it. */
TEST(waiter_that_stays_after_an_old_memory_is_found)
{
	static const struct sim_bug bug = {"lock_leave", "- change('ZREM', KEYS[2], ticket)", ""};

	plan_old_queue(20 * SIM_S);
	expect_nothing();
	plan.forgets = true;
	expect_only(&bug, "rest", "all calls have ended");
}

/* ---- The server loses its memory ------------------------------------------------------------ */

/* A lock is held for 20 s, others wait; the server is emptied. */
static void plan_flush(int64_t hold_ns)
{
	static struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 0, 0},
		{2 * SIM_S, 1, 0, LOCK, 60 * SIM_S, SIM_S, 0},
		{3 * SIM_S, 2, 0, LOCK, 60 * SIM_S, SIM_S, 0},
	};

	acts[0].hold_ns = hold_ns;
	plan_scene(acts, 3);
	add_fault(SIM_FLUSH_ALL, 2, 5 * SIM_S, 0);
}

/* The holder takes its lock back, and the waiters get it after it. */
TEST(emptied_server_gets_its_holder_back)
{
	plan_flush(20 * SIM_S);
	expect_nothing();
	ck_assert_int_eq(result.tally.reclaimed, 1);
	ck_assert_int_eq(result.tally.losses, 0);
	ck_assert_int_eq(result.tally.grants, 3);
}

/* It releases the lock before the server knows it again: the grace goes on. */
TEST(release_of_a_forgotten_hold_ends_no_grace)
{
	plan_flush(4200 * SIM_MS);
	expect_nothing();
	ck_assert_int_eq(result.tally.reclaimed, 0);
	ck_assert_int_eq(result.tally.grants, 3);
}

/* A holder's leave is carried out: the next client holds the lock.  The reply is lost, and a
 * replica is promoted that still has the first holder.  The leave comes again, before the second
 * holder reaches the server: a third client waits, and must not be served. */
TEST(leave_of_a_forgotten_hold_that_serves_is_found)
{
	static const struct sim_bug bug = {"lock_leave", "if young and mark ~= mark_of(ARGV[5])",
	                                   "if false"};
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 3 * SIM_S, 0},
		{2 * SIM_S, 1, 0, LOCK, 60 * SIM_S, 20 * SIM_S, 0},
		{7 * SIM_S, 2, 0, LOCK, 60 * SIM_S, SIM_S, 0},
	};
	int found = 0;

	plan_scene(acts, 3);
	plan.delay_ns = 40 * SIM_MS;
	add_fault(SIM_CUT_OFF, 0, 4012 * SIM_MS, 2500 * SIM_MS);
	add_fault(SIM_CUT_OFF, 1, 4250 * SIM_MS, 5 * SIM_S);
	add_fault(SIM_FAILOVER, 2, 4300 * SIM_MS, 3100 * SIM_MS);
	for (plan.seed = 1; plan.seed <= 32; plan.seed++) {
		plan.bug = NULL;
		expect_nothing();
		ck_assert_int_eq(result.tally.losses, 0);
		plan.bug = &bug;
		found += !sim_run(&plan, &result, NULL) && !strcmp(result.check, "exclusion");
	}
	ck_assert_int_gt(found, 0);
}

/* The holder dies, and with it the only memory of its hold: the others get in after the grace, not
 * before. */
TEST(nobody_gets_in_in_the_grace)
{
	static struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 30 * SIM_S, 0},
		{8 * SIM_S, 1, 0, LOCK, 0, SIM_S, 0},
	};

	for (int64_t wait_ns = 4 * SIM_S; wait_ns <= 12 * SIM_S; wait_ns += 8 * SIM_S) {
		acts[1].wait_ns = wait_ns;
		plan_scene(acts, 2);
		add_fault(SIM_CRASH, 0, 4 * SIM_S, 30 * SIM_S);
		add_fault(SIM_EMPTY, 2, 5 * SIM_S, 0);
		expect_nothing();
		ck_assert_int_eq(result.tally.grants, wait_ns < GRACE_NS ? 1 : 2);
	}
}

/* Without the grace, a second holder gets in while the first one cannot say anything. */
TEST(grant_in_the_grace_is_found)
{
	static const struct sim_bug bug = {"lock_ask", "local young = grace(now, ARGV[8])",
	                                   "local young = 0"};
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 30 * SIM_S, 0},
		{4 * SIM_S, 1, 0, LOCK, 30 * SIM_S, SIM_S, 0},
	};

	for (int kind = 0; kind < 2; kind++) {
		plan_scene(acts, 2);
		add_fault(SIM_CUT_OFF, 0, 2 * SIM_S, 4 * SIM_S);
		add_fault(kind ? SIM_FLUSH_ALL : SIM_EMPTY, 2, 3 * SIM_S, 0);
		expect_nothing();
		ck_assert_int_eq(result.tally.reclaimed, 1);
		expect_only(&bug, "exclusion", "holds are valid at once");
	}
}

/* A server restarts from a file that has an earlier holder. */
static void plan_earlier_holder(int name)
{
	static struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, 0, 0, 2 * SIM_S, 0},
		{4 * SIM_S, 1, 0, 0, 0, 30 * SIM_S, 0},
		{5 * SIM_S, 2, 0, 0, 60 * SIM_S, SIM_S, 0},
	};

	for (int i = 0; i < 3; i++)
		acts[i].name = name;
	plan_scene(acts, 3);
	add_fault(SIM_OLD, 2, 6 * SIM_S, 4 * SIM_S);
}

TEST(later_holder_takes_a_lock_from_an_earlier_one)
{
	static const struct sim_bug bug = {"lock_reclaim", "other - fence >= 0",
	                                   "other - fence < 0"};

	plan_earlier_holder(LOCK);
	expect_nothing();
	ck_assert_int_eq(result.tally.reclaimed, 1);
	ck_assert_int_eq(result.tally.losses, 0);
	ck_assert_int_eq(result.tally.grants, 3);
	expect_only(&bug, "owner", "is reported taken");
}

/* The permits of the earlier hold make room for the later one. */
TEST(reclaim_above_the_capacity_is_found)
{
	static const struct sim_bug bug = {"semaphore_reclaim",
	                                   "local free = capacity - used + (held or 0)",
	                                   "local free = permits"};

	plan_earlier_holder(POOL);
	expect_nothing();
	ck_assert_int_eq(result.tally.reclaimed, 1);
	ck_assert_int_eq(result.tally.losses, 0);
	expect_only(&bug, "permits", "permits are valid at once");
}

/* A holder that reaches the server only after the grace has reported its loss before, by its own
 * clock. */
TEST(holder_without_a_server_in_the_grace_loses_its_hold_in_time)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 30 * SIM_S, 0},
		{4 * SIM_S, 1, 0, LOCK, 30 * SIM_S, 10 * SIM_S, 0},
	};

	plan_scene(acts, 2);
	add_fault(SIM_CUT_OFF, 0, 2 * SIM_S, 12 * SIM_S);
	add_fault(SIM_EMPTY, 2, 3 * SIM_S, 0);
	expect_nothing();
	ck_assert_int_eq(result.tally.losses, 1);
	ck_assert_int_eq(result.tally.reclaimed, 0);
	ck_assert_int_eq(result.tally.grants, 2);
}

/* All permits of a semaphore are held, by several clients and threads, and one more waits. */
TEST(all_permits_are_taken_back)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, POOL, 0, 20 * SIM_S, 0},
		{1 * SIM_S, 0, 1, POOL, 0, 20 * SIM_S, 0},
		{2 * SIM_S, 1, 0, POOL, 0, 20 * SIM_S, 0},
		{3 * SIM_S, 2, 0, POOL, 60 * SIM_S, SIM_S, 0},
	};
	static const enum sim_fault_kind kinds[] = {SIM_FLUSH_ALL, SIM_EMPTY, SIM_OLD,
	                                            SIM_FAILOVER};

	for (int i = 0; i < 4; i++) {
		plan_scene(acts, 4);
		plan.capacity = 3;
		add_fault(kinds[i], 2, 5 * SIM_S, 3500 * SIM_MS);
		expect_nothing();
		ck_assert_int_eq(result.tally.reclaimed, 3);
		ck_assert_int_eq(result.tally.losses, 0);
		ck_assert_int_eq(result.tally.grants, 4);
	}
}

/* A lagging replica is promoted; later the former server is, as the same process or a new one. */
TEST(holds_outlive_two_promotions)
{
	plan_flush(35 * SIM_S);
	plan.length_ns = 60 * SIM_S;
	plan.fault_count = 0;
	add_fault(SIM_FAILOVER, 2, 5 * SIM_S, 500 * SIM_MS);
	add_fault(SIM_FAILOVER, 2, 9 * SIM_S, 500 * SIM_MS);
	for (uint64_t chance = 1; chance <= 8; chance++) {
		plan.faults[0].chance = chance;
		plan.faults[1].chance = 9 * chance;
		expect_nothing();
		ck_assert_int_eq(result.tally.reclaimed, 2);
		ck_assert_int_eq(result.tally.losses, 0);
		ck_assert_int_eq(result.tally.grants, 3);
	}
}
