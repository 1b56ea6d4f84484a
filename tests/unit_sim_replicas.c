/* SPDX-License-Identifier: MIT
 * Scenes of the simulator with replicas that must confirm each grant, are stopped, lag, and are
 * promoted.  They are also what planted bugs of src/core/confirm.c must break. */
#include "sim/sim_scene.h"

#define FOLLOWED_MS 13000 /* the grace with Sentinel */

static void plan_replicas(const struct sim_act *acts, int count, uint32_t replicas)
{
	plan_scene(acts, count);
	plan.sentinels = true;
	plan.replicas = replicas;
	plan.grace_ms = FOLLOWED_MS;
	plan.length_ns = 60 * SIM_S;
}

/* Both replicas are stopped: that is drawn from the fault's number. */
static void stop_both(int64_t at_ns, int64_t length_ns)
{
	add_fault(SIM_DEAF, 2, at_ns, length_ns);
	for (uint64_t chance = 1;; chance++) {
		struct sim_random random = {chance};
		sim_draw(&random, SIM_PLACES - 1);
		if (!sim_percent(&random, 30))
			continue;
		plan.faults[plan.fault_count - 1].chance = chance;
		return;
	}
}

/* ---- Failovers ------------------------------------------------------------------------------ */

/* A holder since long, whichever replica is promoted, although each lags by half a second. */
TEST_LIMIT(confirmed_hold_survives_every_failover, 60)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 20 * SIM_S, 0},
		{2 * SIM_S, 1, 0, LOCK, 60 * SIM_S, SIM_S, 0},
	};
	static const enum sim_fault_kind kinds[] = {SIM_SWITCH, SIM_MASTER_KILL, SIM_MASTER_STOP};

	for (int i = 0; i < 3; i++)
		for (uint64_t chance = 1; chance <= 12; chance++) {
			plan_replicas(acts, 2, SIM_PLACES - 1);
			add_fault(kinds[i], 2, 5 * SIM_S, 500 * SIM_MS);
			plan.faults[0].chance = chance;
			expect_nothing();
			ck_assert_int_eq(result.tally.kept, 1);
			ck_assert_int_eq(result.tally.stale_dual, 0);
		}
}

/* With one of two, only if the replica that is promoted is not behind the other one. */
TEST_LIMIT(better_replica_has_what_one_confirmed, 60)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 20 * SIM_S, 0},
		{4800 * SIM_MS, 1, 0, LOCK, 0, SIM_S, 0},
	};
	int kept = 0, excused = 0;

	for (uint64_t seed = 1; seed <= 24; seed++) {
		plan_replicas(acts, 2, 1);
		plan.seed = seed;
		add_fault(SIM_SWITCH, 2, 5 * SIM_S, 500 * SIM_MS);
		plan.faults[0].chance = seed;
		expect_nothing();
		kept += result.tally.kept == 1;
		excused += result.tally.kept == 0;
		ck_assert_int_eq(result.tally.unconfirmed, 0);
	}
	ck_assert_int_gt(kept, 0);
	ck_assert_int_gt(excused, 0);
}

/* The replica that is promoted 400 ms later receives nothing any more, so the grant does not count
 * until the failover; the client then has it from the new master. */
TEST_LIMIT(grant_that_the_promoted_replica_lacks_does_not_count, 60)
{
	static const struct sim_act acts[] = {
		{4600 * SIM_MS, 0, 0, LOCK, 50 * SIM_S, 2 * SIM_S, 0},
		{5 * SIM_S, 1, 0, LOCK, 50 * SIM_S, 2 * SIM_S, 0},
	};

	for (uint64_t chance = 1; chance <= 12; chance++) {
		plan_replicas(acts, 2, SIM_PLACES - 1);
		add_fault(SIM_SWITCH, 2, 5 * SIM_S, 500 * SIM_MS);
		plan.faults[0].chance = chance;
		expect_nothing();
		ck_assert_int_eq(result.tally.kept, 0);
	}
}

/* The holder hears of the failover late, and renews its lease at the old master meanwhile, which
 * has no replica any more. */
TEST_LIMIT(renewal_at_a_replaced_master_does_not_count, 60)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 30 * SIM_S, 0},
		{2 * SIM_S, 1, 0, LOCK, 50 * SIM_S, 2 * SIM_S, 0},
	};
	long long stale = 0;

	for (uint64_t chance = 1; chance <= 12; chance++) {
		plan_replicas(acts, 2, SIM_PLACES - 1);
		plan.lease_ms = 3000;
		for (int i = 0; i < 6; i++) {
			add_fault(SIM_BLIND, 0, 4900 * SIM_MS + i, 9 * SIM_S);
			plan.faults[i].chance = chance * 10 + (uint64_t)i;
		}
		add_fault(SIM_SWITCH, 2, 5 * SIM_S, 500 * SIM_MS);
		plan.faults[6].chance = chance;
		expect_nothing();
		ck_assert_int_eq(result.tally.kept, 1);
		stale += result.tally.stale;
	}
	ck_assert_int_gt(stale, 12);
}

/* ---- Stopped replicas ----------------------------------------------------------------------- */

/* The call ends at once, its ticket is left, and the next one finds the lock free. */
TEST_LIMIT(too_few_replicas_end_an_acquisition, 60)
{
	static const struct sim_act acts[] = {
		{4 * SIM_S, 0, 0, LOCK, 30 * SIM_S, 10 * SIM_S, 0},
		{4500 * SIM_MS, 1, 0, POOL, 30 * SIM_S, 10 * SIM_S, 0},
		{8 * SIM_S, 0, 0, LOCK, 0, SIM_S, 0},
		{8 * SIM_S, 1, 0, POOL, 0, SIM_S, 0},
	};

	for (uint32_t replicas = 1; replicas < SIM_PLACES; replicas++) {
		plan_replicas(acts, 4, replicas);
		plan.length_ns = 12 * SIM_S;
		stop_both(3 * SIM_S, 4 * SIM_S);
		expect_nothing();
		ck_assert_int_eq(result.tally.unconfirmed, 2);
		ck_assert_int_eq(result.tally.grants, 4);
	}
}

/* A hold whose lease is longer outlasts them; a shorter one ends at the time that was confirmed. */
TEST_LIMIT(hold_is_lost_if_replicas_are_stopped_for_its_lease, 60)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 20 * SIM_S, 0},
	};

	for (int64_t lease_ms = 3000; lease_ms <= 9000; lease_ms += 6000) {
		plan_replicas(acts, 1, 1);
		plan.lease_ms = lease_ms;
		stop_both(3 * SIM_S, 5 * SIM_S);
		expect_nothing();
		ck_assert_int_eq(result.tally.losses, lease_ms == 3000);
		ck_assert_int_gt(result.tally.short_counts, 0);
	}
}
