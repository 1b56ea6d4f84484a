/* SPDX-License-Identifier: MIT
 * Scenes of the simulator in a Cluster: slots that move under holders and waiters, and failovers.
 */
#include "sim/sim_scene.h"

static const struct sim_bug no_grace = {"lock_ask", "local young = grace(now, ARGV[8])",
                                        "local young = 0"};

static void plan_nodes(const struct sim_act *acts, int count)
{
	plan_scene(acts, count);
	plan.cluster = true;
	plan.length_ns = 60 * SIM_S;
}

/* The fault happens to the lock's slot, or to its master. */
static void add_fault_of_lock(enum sim_fault_kind kind, int64_t at_ns, int64_t length_ns)
{
	add_fault(kind, 2, at_ns, length_ns);
	for (uint64_t chance = 1;; chance++) {
		struct sim_random random = {chance};
		bool other = sim_draw(&random, 3) != LOCK % 3;
		if (kind == SIM_SLOT_MOVE)
			other = sim_draw(&random, SIM_NAMES) != LOCK;
		if (other)
			continue;
		plan.faults[plan.fault_count - 1].chance = chance;
		return;
	}
}

/* One holds while another one waits, and a third one comes later. */
static void plan_followed(enum sim_fault_kind kind, int64_t length_ns)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 20 * SIM_S, 0},
		{2 * SIM_S, 1, 0, LOCK, 60 * SIM_S, SIM_S, 0},
		{9 * SIM_S, 2, 0, LOCK, 60 * SIM_S, SIM_S, 0},
	};

	plan_nodes(acts, 3);
	add_fault_of_lock(kind, 15 * SIM_S, length_ns);
}

/* The second wait begins on a channel that lingers, and lasts longer than that. */
TEST_LIMIT(wait_after_a_wait_keeps_its_inbox, 60)
{
	static const struct sim_act acts[] = {
		{1000 * SIM_MS, 0, 0, LOCK, 0, 25 * SIM_S, 0},
		{1500 * SIM_MS, 1, 0, LOCK, 60 * SIM_S, SIM_S / 2, 0},
		{26200 * SIM_MS, 0, 0, LOCK, 60 * SIM_S, 6500 * SIM_MS, 0},
		{27000 * SIM_MS, 1, 0, LOCK, 60 * SIM_S, SIM_S, 0},
		{27500 * SIM_MS, 2, 0, LOCK, 60 * SIM_S, SIM_S, 0},
	};

	plan_nodes(acts, 5);
	expect_nothing();
	ck_assert_int_eq(result.tally.grants, 5);
}

TEST_LIMIT(slot_that_moves_costs_no_hold, 60)
{
	plan_followed(SIM_SLOT_MOVE, SIM_S);
	expect_nothing();
	ck_assert_int_ge(result.tally.moved, 1);
	ck_assert_int_eq(result.tally.losses, 0);
	ck_assert_int_eq(result.tally.grants, 3);
}

/* Two leases. */
TEST_LIMIT(slot_that_is_left_between_costs_no_hold, 60)
{
	plan_followed(SIM_SLOT_MOVE, 20 * SIM_S);
	expect_nothing();
	ck_assert_int_ge(result.tally.divided, 1);
	ck_assert_int_eq(result.tally.losses, 0);
	ck_assert_int_eq(result.tally.grants, 3);
}

TEST_LIMIT(planned_failover_costs_no_hold, 60)
{
	plan_followed(SIM_TAKEOVER, 0);
	expect_nothing();
	ck_assert_int_ge(result.tally.reclaimed, 1);
	ck_assert_int_eq(result.tally.losses, 0);
	ck_assert_int_eq(result.tally.grants, 3);
}

/* The replica does not know the holder. */
static void plan_killed(enum sim_fault_kind kind)
{
	static const struct sim_act acts[] = {
		{14800 * SIM_MS, 0, 0, LOCK, 0, 20 * SIM_S, 0},
		{16 * SIM_S, 1, 0, LOCK, 60 * SIM_S, 15 * SIM_S, 0},
	};

	plan_nodes(acts, 2);
	add_fault_of_lock(kind, 15 * SIM_S, 500 * SIM_MS);
}

TEST_LIMIT(forgotten_hold_is_taken_back_in_the_grace, 60)
{
	static const enum sim_fault_kind kinds[] = {SIM_NODE_KILL, SIM_NODE_STOP};

	for (int i = 0; i < 2; i++) {
		plan_killed(kinds[i]);
		expect_nothing();
		ck_assert_int_ge(result.tally.reclaimed, 1);
		ck_assert_int_eq(result.tally.losses, 0);
	}
}

TEST_LIMIT(new_master_without_a_grace_is_noticed, 60)
{
	plan_killed(SIM_NODE_KILL);
	add_fault(SIM_CUT_OFF, 0, 15100 * SIM_MS, 6 * SIM_S); /* it is late to take it back */
	expect_only(&no_grace, "exclusion", "holds are valid at once");
}

/* A slot moves to a master that is in its grace: there, a release serves no waiter. */
static void plan_move_into_a_grace(void)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, POOL, 0, 19 * SIM_S, 1},
		{2 * SIM_S, 1, 0, POOL, 60 * SIM_S, SIM_S, 1},
	};
	const int source = POOL % 3, target = (source + 1) % 3;
	uint64_t chance = 0;
	struct sim_random random;

	plan_nodes(acts, 2);
	add_fault(SIM_TAKEOVER, 0, 15 * SIM_S, 0);
	do
		random.state = ++chance;
	while (sim_draw(&random, 3) != (uint64_t)target);
	plan.faults[0].chance = chance;
	add_fault(SIM_SLOT_MOVE, 0, 16 * SIM_S, 8 * SIM_S);
	do { /* all keys are there long before the release */
		random.state = ++chance;
		sim_draw(&random, 3);
	} while (sim_draw(&random, SIM_NAMES) != POOL || sim_draw(&random, 2) ||
	         sim_percent(&random, 20) || sim_within(&random, 2 * SIM_S) > SIM_S / 2);
	plan.faults[1].chance = chance;
}

TEST_LIMIT(slot_that_moves_into_a_grace_serves_no_waiter_there, 60)
{
	static const struct sim_bug bug = {"semaphore_leave",
	                                   "if known and grace(now, ARGV[7]) == 0 then",
	                                   "if not known then"};

	plan_move_into_a_grace();
	expect_nothing();
	ck_assert_int_ge(result.tally.asked, 1);
	ck_assert_int_eq(result.tally.losses, 0);
	ck_assert_int_eq(result.tally.grants, 2);
	/* Outside of a grace, the check detects a release that serves no waiter. */
	plan.fault_count = 0;
	expect_only(&bug, "served", "was not served");
}

/* Whole seeds, with all their faults. */
TEST_LIMIT(seeds_find_nothing, 120)
{
	struct sim_tally sum = {0};

	for (uint64_t i = 0; i < 4; i++) {
		sim_plan_make(&plan, 2001 + i, 30 * SIM_S);
		sim_plan_cluster(&plan);
		ck_assert_msg(sim_run(&plan, &result, NULL),
		              "seed %llu at %.6f s: %s: %s (make sim SEED=%llu STORE=cluster)",
		              (unsigned long long)plan.seed, (double)result.at_ns / 1e9,
		              result.check, result.text, (unsigned long long)plan.seed);
		sim_tally_add(&sum, &result.tally);
	}
	/* Otherwise they have explored nothing. */
	ck_assert_int_gt(sum.grants, 200);
	ck_assert_int_gt(sum.moved, 20);
	ck_assert_int_gt(sum.asked, 20);
	ck_assert_int_gt(sum.divided, 20);
	ck_assert_int_gt(sum.faults[SIM_TAKEOVER] + sum.faults[SIM_NODE_KILL] +
	                         sum.faults[SIM_NODE_STOP],
	                 0);
}
