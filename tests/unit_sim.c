/* SPDX-License-Identifier: MIT
 * The simulator itself: a few seeds find nothing, the same seed is the same run, a failure shrinks;
 * and each of its checks can fail: with one script's text altered, the check that is named finds
 * it. `make sim` runs many seeds. */
#include "sim/sim_plan.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sim_plan plan;
static struct sim_result result;

/* One minute, little delay, all names, no faults. */
static void plan_calm(uint64_t seed)
{
	sim_plan_make(&plan, seed, 60 * SIM_S);
	plan.fault_count = 0;
	plan.delay_ns = 2 * SIM_MS;
	plan.idle_ns = 200 * SIM_MS;
	plan.hold_ns = 15 * SIM_MS;
	plan.capacity = 4;
	plan.threads = 4;
	plan.names = (1u << SIM_NAMES) - 1;
}

/* Some seed finds the bug, and it is that check that does. */
static void expect(const struct sim_bug *bug, const char *checks, bool calm)
{
	for (uint64_t seed = 1; seed <= 12; seed++) {
		if (calm)
			plan_calm(seed);
		else
			sim_plan_make(&plan, seed, 60 * SIM_S);
		plan.names = (1u << SIM_NAMES) - 1;
		plan.bug = bug;
		if (sim_run(&plan, &result, NULL))
			continue;
		ck_assert_msg(strstr(checks, result.check) != NULL, "%s found it: %s", result.check,
		              result.text);
		return;
	}
	ck_abort_msg("no check found it");
}

/* ---- Runs --------------------------------------------------------------------------------- */

TEST_LIMIT(seeds_find_nothing, 120)
{
	struct sim_tally sum = {0};

	for (uint64_t i = 0; i < 6; i++) {
		sim_plan_make(&plan, 1001 + i, 40 * SIM_S);
		ck_assert_msg(sim_run(&plan, &result, NULL),
		              "seed %llu at %.6f s: %s: %s (make sim SEED=%llu MINUTES=2)",
		              (unsigned long long)plan.seed, (double)result.at_ns / 1e9,
		              result.check, result.text, (unsigned long long)plan.seed);
		sim_tally_add(&sum, &result.tally);
	}
	/* Else they have explored nothing. */
	ck_assert_int_gt(sum.grants, 200);
	ck_assert_int_gt(sum.counted + sum.forgot + sum.handed_over, 20);
}

/* All faults are refusals, of all clients or of some: what could not be left meanwhile is left
 * afterwards. */
TEST_LIMIT(refused_leaves_leave_nothing_behind, 120)
{
	int refusals = 0;

	for (uint64_t seed = 1; seed <= 12; seed++) {
		sim_plan_make(&plan, seed, 40 * SIM_S);
		plan.names = (1u << SIM_NAMES) - 1;
		plan.fault_count = 40;
		for (int i = 0; i < plan.fault_count; i++)
			plan.faults[i] = (struct sim_fault){
				.kind = SIM_REFUSE,
				.at_ns = (i + 1) * SIM_S,
				.length_ns = 600 * SIM_MS + i * 1000,
				.chance = seed * 1000 + (uint64_t)i,
			};
		ck_assert_msg(sim_run(&plan, &result, NULL), "seed %llu at %.6f s: %s: %s",
		              (unsigned long long)seed, (double)result.at_ns / 1e9, result.check,
		              result.text);
		refusals += result.tally.faults[SIM_REFUSE];
	}
	ck_assert_int_gt(refusals, 300);
}

/* With faults of the network alone, and long ones: checks of links have something to look at. */
TEST_LIMIT(dead_links_are_noticed_and_others_dialled, 60)
{
	static const enum sim_fault_kind kinds[] = {SIM_CUT, SIM_STALL, SIM_CUT_OFF, SIM_STALL,
	                                            SIM_RESTART};
	long long stalls = 0;

	for (uint64_t seed = 1; seed <= 6; seed++) {
		sim_plan_make(&plan, seed, 60 * SIM_S);
		for (int i = 0; i < plan.fault_count; i++) {
			struct sim_fault *fault = &plan.faults[i];
			fault->kind = kinds[i % 5];
			fault->length_ns = (i % 4) * 3 * SIM_S / 2;
		}
		ck_assert_msg(sim_run(&plan, &result, NULL), "seed %llu: %s: %s",
		              (unsigned long long)seed, result.check, result.text);
		stalls += result.tally.faults[SIM_STALL];
	}
	ck_assert_int_gt(stalls, 10);
}

TEST_LIMIT(same_seed_is_the_same_run, 60)
{
	struct sim_result first;

	sim_plan_make(&plan, 7, 30 * SIM_S);
	sim_run(&plan, &first, NULL);
	sim_run(&plan, &result, NULL);
	ck_assert_mem_eq(&first, &result, sizeof(first));
}

/* Leaving out a client or a fault changes no draw of the others. */
TEST(plan_is_read_as_it_was_written)
{
	static struct sim_plan other;
	char text[SIM_PLAN_TEXT], again[SIM_PLAN_TEXT];

	sim_plan_make(&plan, 3, 120 * SIM_S);
	sim_plan_make(&other, 3, 120 * SIM_S);
	for (int i = 0; i < plan.fault_count; i += 2)
		plan.faults[i].out = true;
	plan.clients_out = 5;
	plan.length_ns = 90 * SIM_S;
	sim_plan_text(&plan, text);
	ck_assert(sim_plan_cut(&other, text));
	sim_plan_text(&other, again);
	ck_assert_str_eq(text, again);
	ck_assert_mem_eq(&plan, &other, sizeof(plan));
	ck_assert(!sim_plan_cut(&other, "length=1,clients=0,names=0,keep=999"));
	ck_assert(!sim_plan_cut(&other, "anything"));
}

TEST_LIMIT(failure_shrinks, 120)
{
	static const struct sim_bug bug = {"lock_leave", "granted = held_by(ticket, value)",
	                                   "granted = string.match(value, ' (%d+) ')"};
	int left = 0;

	for (uint64_t seed = 1; seed < 20; seed++) {
		sim_plan_make(&plan, seed, 40 * SIM_S);
		plan.names |= 7;
		plan.bug = &bug;
		if (!sim_run(&plan, &result, NULL))
			break;
	}
	ck_assert(result.failed);
	sim_shrink(&plan, &result, 60, 30);
	for (int i = 0; i < plan.fault_count; i++)
		left += !plan.faults[i].out;
	ck_assert_int_le(left, 1);
	ck_assert_int_lt(plan.length_ns, 40 * SIM_S);
	ck_assert_uint_ne(plan.clients_out, 0);
	ck_assert(!sim_run(&plan, &result, NULL));
}

/* ---- Bugs that are found ------------------------------------------------------------------ */

TEST_LIMIT(leave_without_owner_check_is_found, 60)
{
	static const struct sim_bug bug = {"lock_leave", "granted = held_by(ticket, value)",
	                                   "granted = string.match(value, ' (%d+) ')"};

	expect(&bug, "owner", true);
}

TEST_LIMIT(grant_of_a_lock_that_is_held_is_found, 60)
{
	static const struct sim_bug bug = {"lock_ask", "if not owner and (not head",
	                                   "if (not head"};

	expect(&bug, "owner exclusion", true);
}

TEST_LIMIT(semaphore_that_counts_no_permits_is_found, 60)
{
	static const struct sim_bug bug = {"semaphore_ask", "	used = used + permits\n", "\n"};

	expect(&bug, "permits", true);
}

TEST_LIMIT(step_that_is_counted_twice_is_found, 60)
{
	static const struct sim_bug bug = {
		"latch_down", "if known[1] and tonumber(known[1]) >= tonumber(ARGV[3])",
		"if false"};

	expect(&bug, "latch", false);
}

TEST_LIMIT(named_step_that_is_counted_twice_is_found, 60)
{
	static const struct sim_bug bug = {"latch_down", "(ARGV[5] ~= '' and known[2])", "false"};

	expect(&bug, "latch", true);
}

TEST_LIMIT(fence_that_does_not_grow_is_found, 60)
{
	static const struct sim_bug bug = {"lock_ask", "if last - now >= 0 then fence =",
	                                   "fence = last if last == '' then fence ="};

	expect(&bug, "fence", true);
}

TEST_LIMIT(waiter_that_returns_to_the_end_is_found, 60)
{
	static const struct sim_bug bug = {"lock_ask", "arrival = ARGV[3]", "arrival = '0'"};

	expect(&bug, "fifo", false);
}

TEST_LIMIT(head_that_is_passed_is_found, 60)
{
	static const struct sim_bug bug = {"lock_leave",
	                                   "redis.call('ZRANGE', KEYS[2], '0', '0', 'WITH",
	                                   "redis.call('ZRANGE', KEYS[2], '-1', '-1', 'WITH"};

	expect(&bug, "fifo", true);
}

TEST_LIMIT(grant_that_nobody_is_told_is_found, 60)
{
	static const struct sim_bug bug = {"lock_leave", "redis.pcall('PUBLISH', ARGV[3] .. to",
	                                   "1 or redis.pcall('PUBLISH', ARGV[3] .. to"};

	expect(&bug, "wake-up", true);
}

TEST_LIMIT(release_that_serves_nobody_is_found, 60)
{
	static const struct sim_bug bug = {"semaphore_leave",
	                                   "if waiting > 0 and not unfenced then", "if false then"};

	expect(&bug, "served", true);
}

TEST_LIMIT(opening_that_nobody_is_told_is_found, 60)
{
	static const struct sim_bug bug = {
		"latch_down", "redis.pcall('PUBLISH', ARGV[6], 'open ' .. gen)", "gen = gen"};

	expect(&bug, "latch", true);
}

TEST_LIMIT(renewal_that_shortens_a_lease_is_found, 60)
{
	static const struct sim_bug bug = {"lock_renew", "if left < tonumber(ARGV[3]) then",
	                                   "if true then"};

	expect(&bug, "lease validity", true);
}

TEST_LIMIT(renewal_that_renews_nothing_is_found, 60)
{
	static const struct sim_bug bug = {"lock_renew", "redis.call('PEXPIRE', KEYS[1], left)",
	                                   "local _ = left"};

	expect(&bug, "validity", true);
}

TEST_LIMIT(short_grant_without_a_claim_is_found, 60)
{
	static const struct sim_bug bug = {"lock_leave", "life ..\n\t\t(old and ' 1 ' or ' 0 ')",
	                                   "lease .. ' 0 '"};

	expect(&bug, "validity exclusion", false);
}

/* ---- Scenes ------------------------------------------------------------------------------- *
 *
 * Seeds that a check once called bad, call by call: a seed gives another run as soon as one more
 * draw is made, a scene does not. */
#define LOCK 2
#define RATE 5
#define LATCH 6
#define WINDOW_NS (10 * SIM_S) /* of the rate */

/* Three clients; one permit; locks have a lease of 10 s. */
static void plan_scene(const struct sim_act *acts, int count)
{
	memset(&plan, 0, sizeof(plan));
	plan.seed = 1;
	plan.length_ns = 40 * SIM_S;
	plan.clients = 3;
	plan.threads = 2;
	plan.delay_ns = 2 * SIM_MS;
	plan.idle_ns = plan.hold_ns = SIM_S;
	plan.release_percent = 100;
	plan.capacity = 1;
	plan.names = (1u << SIM_NAMES) - 1;
	plan.acts = acts;
	plan.act_count = count;
	plan.lease_ms = acts->name == RATE ? WINDOW_NS / SIM_MS / 2 : 10000;
}

/* In the order of their times. */
static void add_fault(enum sim_fault_kind kind, int target, int64_t at_ns, int64_t length_ns)
{
	plan.faults[plan.fault_count++] = (struct sim_fault){
		.at_ns = at_ns, .kind = kind, .target = target, .length_ns = length_ns};
}

static void expect_nothing(void)
{
	ck_assert_msg(sim_run(&plan, &result, NULL), "at %.6f s: %s: %s",
	              (double)result.at_ns / 1e9, result.check, result.text);
}

/* The check with that text finds the bug; other checks may find it earlier, and do not count. */
static void expect_only(const struct sim_bug *bug, const char *check, const char *only)
{
	plan.bug = bug;
	plan.only = only;
	ck_assert_msg(!sim_run(&plan, &result, NULL), "\"%s\" does not fire", only);
	ck_assert_str_eq(result.check, check);
}

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
	/* The operator chooses a name by chance, until it is the rate. */
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
	expect_only(&bug, "rate", "permits of rate5 are valid at once");
}

/* A holder is cut off; a failover loses its grant and the fence; another client gets the lock while
 * the holder still believes in its hold, and passes it on. */
static void plan_forgotten_fence(int64_t back_ns)
{
	static const struct sim_act acts[] = {
		{5 * SIM_S, 0, 0, LOCK, 0, SIM_S / 10, 0},
		{8 * SIM_S, 0, 1, LOCK, 0, 20 * SIM_S, 0},
		{9 * SIM_S, 1, 0, LOCK, 6 * SIM_S, 3 * SIM_S, 0},
		{9 * SIM_S, 1, 1, LOCK, 20 * SIM_S, SIM_S, 0},
	};

	plan_scene(acts, 4);
	if (back_ns)
		add_fault(SIM_CLOCK_BACK, 2, 6 * SIM_S, back_ns);
	add_fault(SIM_CUT_OFF, 0, 8300 * SIM_MS, 8 * SIM_S);
	add_fault(SIM_FAILOVER, 2, 8500 * SIM_MS, SIM_S);
}

/* Seed 300329.  With the server's clock set back before, the fence of the lost grant comes again,
 * as docs/protocol.md says. */
TEST(fence_comes_again_if_counter_and_clock_are_behind)
{
	plan_forgotten_fence(20 * SIM_S);
	expect_nothing();
	ck_assert_int_eq(result.tally.fences_again, 1);
}

/* The same without the step of the clock, and a script that only counts. */
TEST(fence_that_comes_again_is_found)
{
	static const struct sim_bug bug = {
		"lock_ask", "if last - now >= 0 then fence =", "if last then fence ="};

	plan_forgotten_fence(0);
	expect_nothing();
	ck_assert_int_eq(result.tally.fences_again, 0);
	expect_only(&bug, "fence", "two holds of lock2 have fence");
}

/* A lock goes from one thread of a client to another.  The client dies, or its requests are lost or
 * refused; the lease ends, the clock is set back, and another client comes. */
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

/* Seed 1044.  The hold ended before any report: its fence comes again, as docs/protocol.md says. */
TEST(fence_comes_again_if_it_was_not_reported_and_the_clock_is_behind)
{
	static const uint8_t kinds[] = {SIM_CRASH, SIM_RESTART, SIM_STOP, SIM_REFUSE, SIM_BREAK};

	for (int i = 0; i < 5; i++) {
		plan_unreported_fence(kinds[i], 6 * SIM_S, true);
		plan.faults[0].chance = 6; /* which lock the operator breaks */
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
	expect_only(&bug, "fence", "the store gave fence");
}

/* The client has reported the fence, and the script ignores that. */
TEST(fence_that_was_reported_and_comes_again_is_found)
{
	static const struct sim_bug bug = {"lock_renew", "redis.call('SET', KEYS[3], ARGV[4])",
	                                   "last = ARGV[4]"};

	plan_unreported_fence(SIM_RESTART, 10 * SIM_S, true);
	expect_nothing();
	ck_assert_int_eq(result.tally.fences_again, 0);
	expect_only(&bug, "fence", "the store gave fence");
}

/* The clock is not set back, and the script only counts. */
TEST(unreported_fence_comes_again_with_the_clock_ahead_and_is_found)
{
	static const struct sim_bug bug = {
		"lock_ask", "if last - now >= 0 then fence =", "if last then fence ="};

	plan_unreported_fence(SIM_CRASH, 6 * SIM_S, false);
	expect_nothing();
	ck_assert_int_eq(result.tally.fences_again, 0);
	expect_only(&bug, "fence", "the store gave fence");
}

/* A message that a latch opened is held up.  Meanwhile the memory is lost, the clock is set back,
 * and the latch counts again, under a generation that is less; another wait begins. */
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

/* The stall chooses its connection and direction by chance, until it is that of the message. */
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

/* Seed 800131.  The old opening ends the new wait, as docs/protocol.md says. */
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
	expect_only(&bug, "latch", "was let through gate6");
}

/* The memory is lost, and the late message speaks of a generation that never opened. */
TEST(late_opening_that_never_was_is_found)
{
	static const struct sim_bug bug = {"latch_set",
	                                   "if ARGV[1] == '0' then\n\tredis.call('PEXP",
	                                   "if true then\n\tredis.call('PEXP"};
	uint64_t chance;

	find_late_opening();
	chance = plan.faults[0].chance;
	plan_late_opening(1);
	plan.faults[0].chance = chance;
	expect_nothing();
	ck_assert_int_eq(result.tally.late_openings, 0);
	expect_only(&bug, "latch", "was let through gate6");
}

/* How the server refuses is a matter of chance, and of the length. */
static void refuse_otherwise(uint64_t chance)
{
	plan.faults[0].chance = chance;
	plan.faults[0].length_ns += SIM_MS;
}

/* Seed 300267.  A waiter gives up while the server refuses its leave.  The client repeats the leave
 * until the server confirms it: at rest no ticket is left in the queue. */
TEST(refused_leave_of_a_waiter_is_repeated)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, RATE, 0, 0, 0},
		{2 * SIM_S, 2, 0, RATE, 2 * SIM_S, 0, 0},
	};
	int refused = 0;

	plan_scene(acts, 2);
	plan.length_ns = 9 * SIM_S;
	add_fault(SIM_REFUSE, 0, 3900 * SIM_MS, 300 * SIM_MS);
	for (uint64_t chance = 1; chance <= 8; chance++) {
		refuse_otherwise(chance);
		expect_nothing();
		ck_assert_int_eq(result.tally.forgot, 1);
		refused += result.tally.leaves_refused > 0;
	}
	ck_assert_int_ge(refused, 3);
}

/* The same of a holder: the lock is free long before the lease ends. */
TEST(refused_leave_of_a_holder_is_repeated)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, SIM_S, 0},
		{6 * SIM_S, 1, 0, LOCK, 0, SIM_S, 0},
	};
	int refused = 0;

	plan_scene(acts, 2);
	add_fault(SIM_REFUSE, 0, 1900 * SIM_MS, 300 * SIM_MS);
	for (uint64_t chance = 1; chance <= 8; chance++) {
		refuse_otherwise(chance);
		expect_nothing();
		ck_assert_int_eq(result.tally.grants, 2);
		refused += result.tally.leaves_refused > 0;
	}
	ck_assert_int_ge(refused, 3);
}
