/* SPDX-License-Identifier: MIT
 * The simulator itself: a few seeds find nothing, the same seed gives the same run, a failure
 * shrinks; and each of its checks can fail: with one script altered, the named check finds the bug.
 * `make sim` runs many seeds. */
#include "sim/sim_plan.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sim_plan plan;
static struct sim_result result;

/* One minute, short delays, all names, no faults. */
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

/* Some seed finds the bug, by this check. */
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
	/* Otherwise they have explored nothing. */
	ck_assert_int_gt(sum.grants, 200);
	ck_assert_int_gt(sum.counted + sum.forgot + sum.handed_over, 20);
}

/* All faults are refusals, for all clients or some: tickets whose leave was refused are left
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

/* With network faults only, and long ones, so that the checks of links have work. */
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
	static const struct sim_bug bug = {"lock_leave",
	                                   "granted, _, _, mark = held_by(ticket, value)",
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

/* ---- Bugs that must be found -------------------------------------------------------------- */

TEST_LIMIT(leave_without_owner_check_is_found, 60)
{
	static const struct sim_bug bug = {"lock_leave",
	                                   "granted, _, _, mark = held_by(ticket, value)",
	                                   "granted = string.match(value, ' (%d+) ')"};

	expect(&bug, "owner", true);
}

TEST_LIMIT(grant_of_a_lock_that_is_held_is_found, 60)
{
	static const struct sim_bug bug = {"lock_ask", "if not owner and young == 0 and (not head",
	                                   "if young == 0 and (not head"};

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

	expect(&bug, "step", false);
}

TEST_LIMIT(named_step_that_is_counted_twice_is_found, 60)
{
	static const struct sim_bug bug = {"latch_down", "(ARGV[5] ~= '' and known[2])", "false"};

	expect(&bug, "step", true);
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
	static const struct sim_bug bug = {"lock_leave", "publish(ARGV[3] .. to, 'grant",
	                                   "1 or publish(ARGV[3] .. to, 'grant"};

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
	static const struct sim_bug bug = {"latch_down", "publish(ARGV[6], 'open ' .. gen)",
	                                   "gen = gen"};

	expect(&bug, "opening", true);
}

TEST_LIMIT(renewal_that_shortens_a_lease_is_found, 60)
{
	static const struct sim_bug bug = {"lock_renew", "if left < tonumber(ARGV[3]) then",
	                                   "if true then"};

	expect(&bug, "lease validity", true);
}

TEST_LIMIT(renewal_that_renews_nothing_is_found, 60)
{
	static const struct sim_bug bug = {"lock_renew", "change('PEXPIRE', KEYS[1], left)",
	                                   "local _ = left"};

	expect(&bug, "validity", true);
}

TEST_LIMIT(short_grant_without_a_claim_is_found, 60)
{
	static const struct sim_bug bug = {"lock_leave", "life ..\n\t\t(old and ' 1 ' or ' 0 ')",
	                                   "lease .. ' 0 '"};

	expect(&bug, "validity exclusion", false);
}
