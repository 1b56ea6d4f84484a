/* SPDX-License-Identifier: MIT
 * The simulator with quorums: a few seeds find nothing, a clock that is set forward leaves two
 * holders where docs/quorum.md says so and not elsewhere, and with one script altered, the named
 * check finds the bug. */
#include "sim/sim_scene.h"

/* Whole seeds, with all their faults: of 3 members and of 5. */
TEST_LIMIT(seeds_find_nothing, 240)
{
	struct sim_tally sum = {0};

	for (uint64_t i = 0; i < 4; i++) {
		sim_plan_make(&plan, 3001 + 5 * i, 20 * SIM_S);
		sim_plan_quorum(&plan);
		ck_assert_msg(sim_run(&plan, &result, NULL),
		              "seed %llu at %.6f s: %s: %s (make sim SEED=%llu STORE=quorum)",
		              (unsigned long long)plan.seed, (double)result.at_ns / 1e9,
		              result.check, result.text, (unsigned long long)plan.seed);
		sim_tally_add(&sum, &result.tally);
	}
	/* Otherwise they have explored nothing. */
	ck_assert_int_gt(sum.grants, 200);
	ck_assert_int_gt(sum.legs, 2 * sum.grants);
	ck_assert_int_gt(sum.yields, 5);
	ck_assert_int_gt(sum.waits, 50);
	ck_assert_int_gt(sum.faults[SIM_RESTART] + sum.faults[SIM_EMPTY] + sum.faults[SIM_OLD] +
	                         sum.faults[SIM_FLUSH_ALL],
	                 0);
	ck_assert_int_gt(sum.faults[SIM_HALT] + sum.faults[SIM_SLOW] + sum.faults[SIM_APART], 5);
}

TEST_LIMIT(same_seed_is_the_same_run, 120)
{
	struct sim_result first;

	for (int i = 0; i < 2; i++) {
		sim_plan_make(&plan, 3031, 10 * SIM_S);
		sim_plan_quorum(&plan);
		sim_run(&plan, &result, NULL);
		if (!i)
			first = result;
	}
	ck_assert_mem_eq(&first, &result, sizeof(first));
}

/* ---- A clock that is set forward ---------------------------------------------------------- */

#define TRIES 20
#define REFUSALS 10

static struct sim_act acts[1 + TRIES];

/* One holds; from 7 s on, another one tries every 100 ms. */
static void plan_tries(void)
{
	acts[0] = (struct sim_act){SIM_S, 0, 0, LOCK, 0, 15 * SIM_S, 0};
	for (int i = 0; i < TRIES; i++)
		acts[1 + i] =
			(struct sim_act){(70 + i) * SIM_S / 10, 1, 0, LOCK, 0, 20 * SIM_MS, 0};
	plan_scene(acts, 1 + TRIES);
	plan.quorum = 3;
}

/* The fault is of that member; fits: its further draws are as wanted, NULL = any. */
static void add_fault_at(int place, enum sim_fault_kind kind, int64_t at_ns, int64_t length_ns,
                         bool fits(struct sim_random random))
{
	add_fault(kind, 2, at_ns, length_ns);
	for (uint64_t chance = 7;; chance++) {
		if (chance / 7 % 3 != (uint64_t)place ||
		    (fits && !fits((struct sim_random){chance})))
			continue;
		plan.faults[plan.fault_count - 1].chance = chance;
		return;
	}
}

/* The member is apart from the first client, all ways, and not from the second one. */
static bool parts_the_first(struct sim_random random)
{
	unsigned share = sim_percent(&random, 50) ? 100 : 20 + (unsigned)sim_draw(&random, 60);
	bool all_ways = sim_percent(&random, 50), first = sim_percent(&random, share);

	return all_ways && first && !sim_percent(&random, share);
}

TEST_LIMIT(hold_on_a_bare_majority_survives_no_clock_set_forward, 60)
{
	plan_tries();
	add_fault_at(0, SIM_APART, 3 * SIM_S, 12 * SIM_S, parts_the_first);
	add_fault_at(1, SIM_CLOCK_ON, 7550 * SIM_MS, 10 * SIM_S, NULL);
	expect_nothing();
	ck_assert_int_ge(result.tally.overlaps, 1);
	ck_assert_int_ge(result.tally.grants, 2);
}

TEST_LIMIT(hold_on_all_members_survives_one_clock_set_forward, 60)
{
	plan_tries();
	add_fault_at(1, SIM_CLOCK_ON, 7550 * SIM_MS, 10 * SIM_S, NULL);
	expect_nothing();
	ck_assert_int_eq(result.tally.overlaps, 0);
	ck_assert_int_eq(result.tally.losses, 0);
	ck_assert_int_eq(result.tally.grants, 1);
}

/* ---- Extensions --------------------------------------------------------------------------- */

/* It happens though no majority is left, and renewals are refused as well: the server loads. */
static bool refuses_all(struct sim_random random)
{
	return sim_percent(&random, 10) && !sim_draw(&random, 4);
}

/* A hold has no other legs than two, and the server of one refuses for a moment: the extension is
 * asked for there again, and no call has to say that it does not know. */
TEST_LIMIT(extension_after_a_refusal_is_known, 60)
{
	/* Its calls are drawn: most of them extend, and some end the hold. */
	for (int i = 0; i < REFUSALS; i++)
		acts[i] = (struct sim_act){
			(2 + i) * SIM_S + 900 * SIM_MS, 0, 0, LOCK, 0, 50 * SIM_MS, 0};
	plan_scene(acts, REFUSALS);
	plan.quorum = 3;
	plan.release_percent = 0;
	add_fault_at(0, SIM_HALT, SIM_S, 30 * SIM_S, NULL);
	for (int i = 0; i < REFUSALS; i++)
		add_fault_at(1, SIM_REFUSE, (3 + i) * SIM_S, 301 * SIM_MS, refuses_all);
	expect_nothing();
	ck_assert_int_eq(result.tally.faults[SIM_REFUSE], REFUSALS);
	ck_assert_int_eq(result.tally.unknown, 0);
}

/* ---- Bugs that must be found -------------------------------------------------------------- */

/* Some seed finds the bug, by one of these checks. */
static void expect(const struct sim_bug *bug, const char *checks)
{
	for (uint64_t seed = 1; seed <= 16; seed++) {
		sim_plan_make(&plan, seed, 30 * SIM_S);
		sim_plan_quorum(&plan);
		plan.bug = bug;
		if (sim_run(&plan, &result, NULL))
			continue;
		ck_assert_msg(strstr(checks, result.check) != NULL, "%s found it: %s", result.check,
		              result.text);
		return;
	}
	ck_abort_msg("no check found it");
}

/* A member of the bare majority has lost its memory.  Until that is covered, it grants nothing. */
TEST_LIMIT(young_member_that_grants_is_found, 60)
{
	static const struct sim_bug bug = {"quorum_ask",
	                                   "if young > 0 then return {'young', young} end", ""};

	plan_tries();
	add_fault_at(0, SIM_APART, 3 * SIM_S, 12 * SIM_S, parts_the_first);
	add_fault_at(1, SIM_FLUSH_ALL, 7550 * SIM_MS, 0, NULL);
	expect_nothing();
	expect_only(&bug, "exclusion", "holds are valid at once");
}

TEST_LIMIT(held_lock_that_is_granted_is_found, 120)
{
	static const struct sim_bug bug = {
		"quorum_ask", "if not owner and not (waiting > 0 and has_older_head(ticket)) then",
		"if not has_older_head(ticket) then"};

	expect(&bug, "owner validity");
}

TEST_LIMIT(newcomer_that_overtakes_is_found, 120)
{
	static const struct sim_bug bug = {
		"quorum_ask", "if not owner and not (waiting > 0 and has_older_head(ticket)) then",
		"if not owner then"};

	expect(&bug, "fifo");
}

TEST_LIMIT(fence_that_is_not_committed_is_found, 120)
{
	static const struct sim_bug bug = {"quorum_renew", "change('HSET', KEYS[3], class, last)",
	                                   "local _ = last"};

	expect(&bug, "fence");
}

TEST_LIMIT(yield_that_loses_its_place_is_found, 120)
{
	static const struct sim_bug bug = {"quorum_leave",
	                                   "if successor ~= '' and serves and not is_late then",
	                                   "if false then"};

	expect(&bug, "fifo");
}

TEST_LIMIT(failure_shrinks, 240)
{
	static const struct sim_bug bug = {
		"quorum_ask", "if not owner and not (waiting > 0 and has_older_head(ticket)) then",
		"if not has_older_head(ticket) then"};
	int left = 0;

	sim_plan_make(&plan, 7, 20 * SIM_S);
	plan.bug = &bug;
	ck_assert_int_ne(plan.quorum, 0);
	ck_assert(!sim_run(&plan, &result, NULL));
	sim_shrink(&plan, &result, 60, 30);
	for (int i = 0; i < plan.fault_count; i++)
		left += !plan.faults[i].out;
	ck_assert_int_le(left, 1);
	ck_assert_uint_ne(plan.clients_out, 0);
	ck_assert(!sim_run(&plan, &result, NULL));
}
