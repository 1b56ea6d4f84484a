/* SPDX-License-Identifier: MIT
 * Scenes of the simulator, call by call: for the tests that are made of them. */
#ifndef SIM_SCENE_H
#define SIM_SCENE_H

#include "sim_plan.h"
#include "test.h"

#include <string.h>

static struct sim_plan plan;
static struct sim_result result;

#define LOCK 2
#define POOL 3
#define RATE 5
#define LATCH 6
#define GRACE_NS (10 * SIM_S)
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
	plan.grace_ms = GRACE_NS / SIM_MS;
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

/* The check with that text finds the bug; other checks may report it earlier, and are ignored. */
__attribute__((unused)) static void expect_only(const struct sim_bug *bug, const char *check,
                                                const char *only)
{
	plan.bug = bug;
	plan.only = only;
	ck_assert_msg(!sim_run(&plan, &result, NULL), "\"%s\" does not fire", only);
	ck_assert_str_eq(result.check, check);
}

#endif
