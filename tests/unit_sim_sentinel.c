/* SPDX-License-Identifier: MIT
 * Scenes of the simulator with a service of Sentinel: failovers with two masters, sentinels that
 * lie and are late.  Beside each scene in which the judge excuses something there is one in which
 * the same check finds a bug. */
#include "sim/sim_scene.h"

#define FOLLOWED_MS 13000 /* the grace with Sentinel */

/* Held by a client that must run: one that is idle asks the sentinels before it is granted
 * anything. */
#define AWAKE 1
#define AWAKE_TOO 0

static const struct sim_bug no_grace = {"lock_ask", "local young = grace(now, ARGV[8])",
                                        "local young = 0"};
static const struct sim_bug no_owner = {"lock_ask", "if not owner and young == 0 and (not head",
                                        "if young == 0 and (not head"};

static void plan_service(const struct sim_act *acts, int count)
{
	plan_scene(acts, count);
	plan.sentinels = true;
	plan.grace_ms = FOLLOWED_MS;
	plan.length_ns = 60 * SIM_S;
}

/* All sentinels are out of a client's reach: the mask is drawn from the fault's number. */
static void blind(int client, int64_t at_ns, int64_t length_ns)
{
	add_fault(SIM_BLIND, client, at_ns, length_ns);
	for (uint64_t chance = 1;; chance++) {
		struct sim_random random = {chance};
		sim_draw(&random, SIM_SENTINELS);
		if (1 + sim_draw(&random, 7) != 7)
			continue;
		plan.faults[plan.fault_count - 1].chance = chance;
		return;
	}
}

/* The old master takes writes for how long the fault's number says: find one for which the run has
 * what the test needs. */
static void find_chance(int fault, const long long *tally)
{
	for (uint64_t chance = 1; chance < 60; chance++) {
		plan.faults[fault].chance = chance;
		expect_nothing();
		if (*tally)
			return;
	}
	ck_abort_msg("no run has it");
}

/* ---- Failovers ------------------------------------------------------------------------------ */

/* The holder follows, and takes its lock back; those that wait get it afterwards. */
static void plan_followed(enum sim_fault_kind kind)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 20 * SIM_S, 0},
		{2 * SIM_S, 1, 0, LOCK, 60 * SIM_S, SIM_S, 0},
		{9 * SIM_S, 2, 0, LOCK, 60 * SIM_S, SIM_S, 0},
	};

	plan_service(acts, 3);
	add_fault(kind, 2, 5 * SIM_S, 500 * SIM_MS);
}

TEST_LIMIT(failover_is_followed_and_no_hold_is_lost, 60)
{
	static const enum sim_fault_kind kinds[] = {SIM_SWITCH, SIM_MASTER_KILL, SIM_MASTER_STOP};
	long long cuts = 0;

	for (int i = 0; i < 3; i++)
		for (uint64_t chance = 1; chance <= 12; chance++) {
			plan_followed(kinds[i]);
			plan.faults[0].chance = chance;
			expect_nothing();
			ck_assert_int_ge(result.tally.reclaimed, 1);
			ck_assert_int_eq(result.tally.losses, 0);
			ck_assert_int_eq(result.tally.grants, 3);
			ck_assert_int_eq(result.tally.stale_dual, 0);
			cuts += result.tally.cuts;
		}
	ck_assert_int_gt(cuts, 24);
}

/* The copy that is promoted does not know the holder, which still renews its lease at the old
 * master: it hears of the failover 2.5 s later. */
static void plan_late_news(int64_t blind_ns)
{
	static const struct sim_act acts[] = {
		{4800 * SIM_MS, 0, 0, LOCK, 0, 40 * SIM_S, 0},
		{6 * SIM_S, 1, 0, LOCK, 40 * SIM_S, 15 * SIM_S, 0},
	};

	plan_service(acts, 2);
	blind(0, 4900 * SIM_MS, blind_ns);
	add_fault(SIM_SWITCH, 2, 5 * SIM_S, 500 * SIM_MS);
}

TEST_LIMIT(holder_that_hears_late_of_a_failover_is_alone, 60)
{
	plan_late_news(2500 * SIM_MS);
	find_chance(1, &result.tally.stale);
	ck_assert_int_eq(result.tally.losses, 0);
	ck_assert_int_eq(result.tally.uncovered, 0);
	expect_only(&no_grace, "exclusion", "holds are valid at once");
}

/* ---- Two masters ---------------------------------------------------------------------------- */

/* Case (a): it hears nothing for as long as the old master takes writes, and the grace is over
 * before its lease. */
TEST_LIMIT(holder_that_hears_of_no_failover_is_not_covered, 60)
{
	plan_late_news(30 * SIM_S);
	find_chance(1, &result.tally.uncovered);
	ck_assert_int_eq(result.tally.uncovered, 1);
}

/* Case (d): the grace must be longer than the lease by the 3 s in which clients follow.  Here the
 * old master renews a lease 2 s after the promotion. */
TEST_LIMIT(lease_that_is_as_long_as_the_grace_is_not_covered, 60)
{
	static const struct sim_act acts[] = {
		{3 * SIM_S, 0, 0, LOCK, 0, 40 * SIM_S, 0},
		{6 * SIM_S, 1, 0, LOCK, 40 * SIM_S, 15 * SIM_S, 0},
	};

	for (int64_t lease_ms = 9000; lease_ms <= 12000; lease_ms += 3000) {
		plan_service(acts, 2);
		plan.lease_ms = lease_ms;
		blind(0, 4900 * SIM_MS, 2500 * SIM_MS);
		add_fault(SIM_SWITCH, 2, 5 * SIM_S, 500 * SIM_MS);
		find_chance(1, &result.tally.stale);
		ck_assert_int_eq(result.tally.uncovered, lease_ms > 10000);
	}
}

/* Case (a): the holder has followed, with a lease of 1 s.  Its lease at the old master ends, and
 * that grants the lock to clients that have heard of nothing yet. */
static void plan_two_masters(void)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 20 * SIM_S, 0},
		{1 * SIM_S, 1, 1, AWAKE, 0, 15 * SIM_S, 0},
		{1 * SIM_S, 2, 1, AWAKE_TOO, 0, 15 * SIM_S, 0},
		{6 * SIM_S, 1, 0, LOCK, 3 * SIM_S, SIM_S / 2, 0},
		{6 * SIM_S, 2, 0, LOCK, 3 * SIM_S, SIM_S / 2, 0},
	};

	plan_service(acts, 5);
	plan.lease_ms = 1000;
	blind(1, 4900 * SIM_MS, 6 * SIM_S);
	blind(2, 4950 * SIM_MS, 6 * SIM_S);
	add_fault(SIM_SWITCH, 2, 5 * SIM_S, 0);
}

TEST_LIMIT(old_master_grants_beside_a_hold_that_was_taken_back, 60)
{
	plan_two_masters();
	find_chance(2, &result.tally.stale_dual);
	ck_assert_int_ge(result.tally.reclaimed, 1);
	ck_assert_int_eq(result.tally.uncovered, 0);
}

/* A client that was stopped before the failover goes on after it, and hears of it later: whatever
 * the old master grants it makes no hold.  It waits, or calls then. */
static void plan_pause(const struct sim_act *acts, int count, int64_t lease_ms)
{
	plan_service(acts, count);
	plan.lease_ms = lease_ms;
	add_fault(SIM_STOP, 1, 4800 * SIM_MS, 3 * SIM_S);
	blind(1, 4900 * SIM_MS, 4 * SIM_S);
	add_fault(SIM_SWITCH, 2, 5 * SIM_S, 0);
	find_chance(2, &result.tally.stale_grants);
	ck_assert_int_ge(result.tally.reclaimed, 1);
	ck_assert_int_eq(result.tally.stale_dual + result.tally.uncovered, 0);
}

TEST_LIMIT(old_master_grants_nothing_to_a_client_that_was_stopped, 60)
{
	static const struct sim_act waits[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 20 * SIM_S, 0},
		{4 * SIM_S, 1, 0, LOCK, 60 * SIM_S, SIM_S, 0},
	};
	static const struct sim_act calls[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 20 * SIM_S, 0},
		{1 * SIM_S, 1, 1, AWAKE, 0, 25 * SIM_S, 0},
		{5 * SIM_S, 1, 0, LOCK, 60 * SIM_S, SIM_S, 0},
	};

	plan_pause(waits, 2, 1000);
	plan_pause(calls, 3, 1000);
}

/* Its own grants exclude each other all the same. */
TEST_LIMIT(two_grants_of_an_old_master_are_found, 60)
{
	plan_two_masters();
	find_chance(2, &result.tally.stale_dual);
	expect_only(&no_owner, "exclusion", "holds are valid at once");
}

/* So do those of the new one, beside one of the old. */
TEST_LIMIT(new_grant_beside_one_of_the_old_master_is_found, 60)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 1, AWAKE, 0, 20 * SIM_S, 0},
		{6 * SIM_S, 0, 0, LOCK, 0, 10 * SIM_S, 0},
		{7 * SIM_S, 1, 0, LOCK, 20 * SIM_S, 10 * SIM_S, 0},
	};

	plan_service(acts, 3);
	blind(0, 4900 * SIM_MS, 6 * SIM_S);
	add_fault(SIM_SWITCH, 2, 5 * SIM_S, 0);
	find_chance(1, &result.tally.stale);
	ck_assert_int_eq(result.tally.stale_dual, 0);
	expect_only(&no_grace, "exclusion", "holds are valid at once");
}

/* Case (b): a request that a stopped master runs when it wakes makes no hold, since its client has
 * left that connection. */
TEST_LIMIT(late_request_at_a_master_that_wakes_makes_no_hold, 60)
{
	static const struct sim_act acts[] = {
		{5100 * SIM_MS, 0, 0, LOCK, 40 * SIM_S, SIM_S, 0},
		{5200 * SIM_MS, 1, 0, LOCK, 40 * SIM_S, SIM_S, 0},
	};
	long long late = 0;

	for (uint64_t seed = 1; seed <= 20; seed++) {
		plan_service(acts, 2);
		plan.seed = seed;
		add_fault(SIM_MASTER_STOP, 2, 5 * SIM_S, 0);
		plan.faults[0].chance = seed;
		expect_nothing();
		ck_assert_int_eq(result.tally.losses, 0);
		ck_assert_int_eq(result.tally.uncovered + result.tally.stale_dual, 0);
		late += result.tally.stale_grants;
	}
	ck_assert_int_gt(late, 0);
}

/* ---- What only the old master knows --------------------------------------------------------- */

/* The judge ignores failures with that text: the bug makes none. */
static void expect_excused(const struct sim_bug *bug, const char *only)
{
	plan.bug = bug;
	plan.only = only;
	ck_assert_msg(sim_run(&plan, &result, NULL), "%s: %s", result.check, result.text);
	plan.bug = NULL;
	plan.only = NULL;
}

/* A waiter leaves at the old master, and stays in the new one's copy; another one leaves there. */
TEST_LIMIT(ticket_that_left_at_the_old_master_stays_in_the_copy, 60)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 20 * SIM_S, 0},
		{2 * SIM_S, 1, 0, LOCK, 4500 * SIM_MS, 0, 0},
		{2500 * SIM_MS, 2, 0, LOCK, 8 * SIM_S, 0, 0},
	};
	static const struct sim_bug bug = {"lock_leave", "- change('ZREM', KEYS[2], ticket)", ""};

	plan_service(acts, 3);
	plan.length_ns = 15 * SIM_S;
	blind(1, 4900 * SIM_MS, 3 * SIM_S);
	add_fault(SIM_SWITCH, 2, 5 * SIM_S, 500 * SIM_MS);
	find_chance(1, &result.tally.stale);
	plan.forgets = true;
	expect_excused(&bug, "2:c01_");
	expect_only(&bug, "rest", "2:c02_");
}

/* It grants a permit of a rate for good; the ticket waits in the copy. */
TEST_LIMIT(permit_of_the_old_master_is_used_up, 60)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, RATE, 0, 0, 0},
		{3 * SIM_S, 1, 0, RATE, 12 * SIM_S, 0, 0},
	};

	plan_service(acts, 2);
	plan.length_ns = 20 * SIM_S;
	blind(1, 4900 * SIM_MS, 12 * SIM_S);
	add_fault(SIM_SWITCH, 2, 5 * SIM_S, 500 * SIM_MS);
	find_chance(1, &result.tally.stale_grants);
	ck_assert_int_eq(result.tally.forgot, 2);
}

/* It opens a latch, which the new one counts on. */
static void plan_latch(bool waiter_follows)
{
	static const struct sim_act acts[] = {
		{8500 * SIM_MS, 0, 0, LATCH, 20 * SIM_S, 0, -1},
		{1 * SIM_S, 1, 0, LATCH, 0, 0, 3},
		{9 * SIM_S, 1, 0, LATCH, 0, 0, 0},
	};

	plan_service(acts, 3);
	blind(1, 4900 * SIM_MS, 12 * SIM_S);
	if (!waiter_follows)
		blind(0, 4950 * SIM_MS, 12 * SIM_S);
	add_fault(SIM_SWITCH, 2, 5 * SIM_S, 500 * SIM_MS);
}

TEST_LIMIT(latch_that_the_old_master_opened_releases_its_waiters_only, 60)
{
	static const struct sim_bug bug = {"latch_show", "'counting', gen, count",
	                                   "'open', gen, count"};

	uint64_t chance;

	plan_latch(false);
	find_chance(2, &result.tally.released);
	expect_excused(&bug, "gate6: ");
	chance = plan.faults[2].chance;
	plan_latch(true);
	plan.faults[1].chance = chance;
	expect_nothing();
	ck_assert_int_eq(result.tally.released, 0);
	expect_only(&bug, "await", "gate6: ");
}

/* The holder that the old master chose follows, and has its lock from the new one; then its lease
 * at the old one ends, and that grants the lock again (seed 7108). */
TEST_LIMIT(old_master_grants_beside_its_own_hold_that_was_taken_back, 60)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 1, AWAKE, 0, 15 * SIM_S, 0},
		{1 * SIM_S, 1, 1, AWAKE_TOO, 0, 15 * SIM_S, 0},
		{5500 * SIM_MS, 0, 0, LOCK, 0, 10 * SIM_S, 0},
		{6 * SIM_S, 1, 0, LOCK, 6 * SIM_S, SIM_S / 2, 0},
	};

	plan_service(acts, 4);
	plan.lease_ms = 1000;
	blind(0, 4900 * SIM_MS, 2500 * SIM_MS);
	blind(1, 4950 * SIM_MS, 9 * SIM_S);
	add_fault(SIM_SWITCH, 2, 5 * SIM_S, 0);
	find_chance(2, &result.tally.stale_dual);
	ck_assert_int_eq(result.tally.uncovered, 0);
}

/* ---- Sentinels that are wrong --------------------------------------------------------------- */

/* One after the other lies, has old news, or is silent, while a lock is passed on: it is always
 * held by one client, and no hold is lost. */
TEST_LIMIT(wrong_sentinels_lead_no_client_astray, 60)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, 12 * SIM_S, 0},
		{2 * SIM_S, 1, 0, LOCK, 60 * SIM_S, 12 * SIM_S, 0},
		{3 * SIM_S, 2, 0, LOCK, 60 * SIM_S, 12 * SIM_S, 0},
	};
	long long cuts = 0;

	for (uint64_t chance = 1; chance <= 12; chance++) {
		plan_service(acts, 3);
		for (int i = 0; i < 9; i++) {
			add_fault(i % 3 ? SIM_LIE : SIM_MUTE, i % 3, (4 + 3 * i) * SIM_S,
			          2500 * SIM_MS);
			plan.faults[i].chance = chance * 100 + (uint64_t)i;
		}
		expect_nothing();
		ck_assert_int_eq(result.tally.losses, 0);
		ck_assert_int_eq(result.tally.grants, 3);
		ck_assert_int_eq(result.tally.stale, 0);
		cuts += result.tally.cuts;
	}
	ck_assert_int_gt(cuts, 12);
}

/* A failover while one sentinel is silent, and has old news when it is back. */
TEST_LIMIT(old_news_of_a_sentinel_is_outvoted, 60)
{
	for (uint64_t chance = 1; chance <= 16; chance++) {
		plan_followed(SIM_SWITCH);
		plan.fault_count = 0;
		add_fault(SIM_MUTE, 2, 4 * SIM_S, 5 * SIM_S);
		add_fault(SIM_SWITCH, 2, 5 * SIM_S, 500 * SIM_MS);
		add_fault(SIM_CUT, 0, 9500 * SIM_MS, 0);
		plan.faults[0].chance = chance;
		plan.faults[1].chance = 7 * chance;
		plan.faults[2].chance = chance;
		expect_nothing();
		ck_assert_int_eq(result.tally.losses, 0);
		ck_assert_int_eq(result.tally.grants, 3);
	}
}

/* A lazy client that has heard from no sentinel that knows the service has a wrong URL; another one
 * waits for it. */
TEST_LIMIT(service_that_no_sentinel_knows_is_a_wrong_url_for_lazy_clients, 60)
{
	static const struct sim_act acts[] = {
		{5 * SIM_S, 0, 0, LOCK, 1500 * SIM_MS, SIM_S, 0},
		{5 * SIM_S, 2, 0, LOCK, 1500 * SIM_MS, SIM_S, 0},
	};
	long long granted = 0, refused = 0;

	for (uint64_t chance = 1; chance <= 40; chance++) {
		plan_service(acts, 2);
		for (int i = 0; i < 6; i++) {
			add_fault(SIM_LIE, 2, 3 * SIM_S + i, 6 * SIM_S);
			plan.faults[i].chance = chance * 77 + (uint64_t)i;
		}
		expect_nothing();
		granted += result.tally.grants == 2;
		refused += result.tally.grants < 2;
	}
	ck_assert_int_gt(granted, 0);
	ck_assert_int_gt(refused, 0);
}

/* One that a client has used before may come back. */
TEST_LIMIT(service_that_was_known_is_no_wrong_url, 60)
{
	static const struct sim_act acts[] = {
		{1 * SIM_S, 0, 0, LOCK, 0, SIM_S, 0},
		{8 * SIM_S, 0, 0, LOCK, 1500 * SIM_MS, SIM_S, 0},
		{15 * SIM_S, 0, 0, LOCK, 1500 * SIM_MS, SIM_S, 0},
	};
	long long refused = 0;

	for (uint64_t chance = 1; chance <= 40; chance++) {
		plan_service(acts, 3);
		for (int i = 0; i < 6; i++) {
			add_fault(SIM_LIE, 2, 3 * SIM_S + i, 8 * SIM_S);
			plan.faults[i].chance = chance * 77 + (uint64_t)i;
		}
		add_fault(SIM_CUT, 0, 4 * SIM_S, 0);
		expect_nothing();
		refused += result.tally.grants == 2;
	}
	ck_assert_int_gt(refused, 0);
}
