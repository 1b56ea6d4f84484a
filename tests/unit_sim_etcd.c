/* SPDX-License-Identifier: MIT
 * The simulator with etcd: a few seeds find nothing, and with leaders that do not ask whether they
 * still lead, as before etcd 3.4.31 and 3.5.13, it finds leases that have ended too early. */
#include "harness/test.h"
#include "sim/sim_plan.h"

#include <stdio.h>
#include <string.h>

static struct sim_plan plan;
static struct sim_result result;

/* Whole seeds, with all their faults: of 3 members and of 5. */
TEST_LIMIT(seeds_find_nothing, 240)
{
	struct sim_tally sum = {0};

	for (uint64_t i = 0; i < 6; i++) {
		sim_plan_make(&plan, 3001 + 5 * i, 30 * SIM_S);
		sim_plan_etcd(&plan);
		ck_assert_msg(sim_run(&plan, &result, NULL),
		              "seed %llu at %.6f s: %s: %s (make sim SEED=%llu STORE=etcd)",
		              (unsigned long long)plan.seed, (double)result.at_ns / 1e9,
		              result.check, result.text, (unsigned long long)plan.seed);
		sim_tally_add(&sum, &result.tally);
	}
	/* Otherwise they have explored nothing. */
	ck_assert_int_gt(sum.grants, 300);
	ck_assert_int_gt(sum.waits, 100);
	ck_assert_int_gt(sum.openings, 20);
	ck_assert_int_gt(sum.counted, 100);
	ck_assert_int_gt(sum.released, 100);
	ck_assert_int_gt(sum.losses, 0);
	ck_assert_int_gt(sum.faults[SIM_HALT] + sum.faults[SIM_FREEZE] + sum.faults[SIM_APART], 5);
	ck_assert_int_gt(sum.faults[SIM_ELECT] + sum.faults[SIM_RESTART], 2);
	ck_assert_int_gt(sum.faults[SIM_REVOKE] + sum.faults[SIM_BREAK], 0);
	ck_assert_int_gt(sum.faults[SIM_RESIZE] + sum.faults[SIM_RESET], 0);
}

TEST_LIMIT(same_seed_is_the_same_run, 120)
{
	struct sim_result first;

	for (int i = 0; i < 2; i++) {
		sim_plan_make(&plan, 3031, 10 * SIM_S);
		sim_plan_etcd(&plan);
		sim_run(&plan, &result, NULL);
		if (!i)
			first = result;
	}
	ck_assert_mem_eq(&first, &result, sizeof(first));
}

TEST(every_sixteenth_seed_uses_etcd)
{
	int count = 0;

	for (uint64_t seed = 0; seed < 64; seed++) {
		sim_plan_make(&plan, seed, SIM_S);
		count += plan.etcd != 0;
	}
	ck_assert_int_eq(count, 4);
}

TEST_LIMIT(leader_that_does_not_know_its_end_is_found, 240)
{
	for (uint64_t seed = 17; seed <= 40; seed++) {
		sim_plan_make(&plan, seed, 60 * SIM_S);
		sim_plan_etcd(&plan);
		plan.etcd_is_old = true;
		if (sim_run(&plan, &result, NULL))
			continue;
		printf("seed %d: %s: %s\n", (int)seed, result.check, result.text);
		ck_assert_msg(strstr("validity owner exclusion", result.check) != NULL,
		              "%s found it: %s", result.check, result.text);
		return;
	}
	ck_abort_msg("no check found it");
}
