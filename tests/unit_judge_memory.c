/* SPDX-License-Identifier: MIT
 * The judge of chaos and the grace after a loss of the server's memory: what the grace protects is
 * not excused, and what a client took back goes on. */
#include "chaos/judge_made.h"

#define FLUSHED "flushall server at memory=lost grace=1000"

/* ---- histories ---------------------------------------------------------------------------------
 */

/* Process 1 holds until its lease ends at 1000 ms or later, process 2 gets the lock meanwhile. */
static void overlap(const char *fault)
{
	begin_round();
	acquire(1, LOCK, 10 * MS, 20 * MS, 5, 1000 * MS);
	note(nemesis, "%lld %s\n", 22LL * MS, fault);
	acquire(2, LOCK, 23 * MS, 25 * MS, 6, 1000 * MS);
	release(1, LOCK, 30 * MS, 40 * MS, 5, LK_OK);
	release(2, LOCK, 50 * MS, 60 * MS, 6, LK_OK);
}

/* The permits of the first are still in use. */
static void too_many(const char *fault)
{
	begin_round();
	acquire(1, POOL, 10 * MS, 20 * MS, 5, 1000 * MS);
	records[count - 1].permits = 2;
	note(nemesis, "%lld %s\n", 22LL * MS, fault);
	acquire(2, POOL, 23 * MS, 25 * MS, 6, 1000 * MS);
	records[count - 1].permits = 2;
	release(1, POOL, 30 * MS, 40 * MS, 5, LK_OK);
	release(2, POOL, 50 * MS, 60 * MS, 6, LK_OK);
}

TEST(judge_excuses_only_what_the_grace_does_not_protect)
{
	static const struct {
		const char *fault;
		bool found;
	} cases[] = {
		{FLUSHED, true},
		{"restart-empty server at memory=lost grace=1000", true},
		{"restart-old server at memory=lost grace=5000", true},
		{"restart server at grace=1000", true},
		/* The leases are longer than the grace, or there is none. */
		{"flushall server at memory=lost grace=999", false},
		{"flushall server at memory=lost", false},
		/* From these no grace protects. */
		{"delete %s at memory=lost grace=1000", false},
		{"break %s at", false},
		{"clock server at clock=5000", false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char fault[100];
		size_t at = strcspn(cases[i].fault, "%");
		const char *rest_of = cases[i].fault + at;
		snprintf(fault, sizeof(fault), "%.*s%s%s", (int)at, cases[i].fault,
		         *rest_of ? "job" : "", *rest_of ? rest_of + 2 : "");
		overlap(fault);
		judge();
		if (cases[i].found)
			BAD(PROMISE_EXCLUSION);
		else
			GOOD();
		ck_assert_int_eq(verdict.excused, !cases[i].found);
		snprintf(fault, sizeof(fault), "%.*s%s%s", (int)at, cases[i].fault,
		         *rest_of ? "pool" : "", *rest_of ? rest_of + 2 : "");
		too_many(fault);
		judge();
		if (cases[i].found)
			BAD(PROMISE_PERMITS);
		else
			GOOD();
	}
}

TEST(judge_finds_a_meeting_inside_after_a_loss)
{
	for (int protected = 0; protected < 2; protected ++) {
		struct history_record *met;
		begin_round();
		note(nemesis, "%lld %s\n", 12LL * MS,
		     protected ? FLUSHED : "flushall server at memory=lost");
		acquire(1, LOCK, 10 * MS, 20 * MS, 5, 1000 * MS);
		met = put(25 * MS, 1, HISTORY_ENTER, HISTORY_EVENT, LOCK);
		met->u.of.fence = 5;
		met->err = 1;
		release(1, LOCK, 30 * MS, 31 * MS, 5, LK_OK);
		judge();
		if (protected)
			ONLY(PROMISE_CANARY);
		else
			GOOD();
		ck_assert_int_eq(verdict.canaries_excused, !protected);
	}
}

/* A rate and a latch have no grace. */
TEST(judge_excuses_a_rate_in_the_grace)
{
	for (int flushed = 0; flushed < 2; flushed++) {
		begin_round();
		for (int i = 0; i < 3; i++) {
			acquire(1, TAP, (10 + i) * MS, (20 + i) * MS, 0, 0);
			records[count - 1].flags = records[count - 2].flags = HISTORY_RATE;
			records[count - 2].u.of.amount = 100;
		}
		if (flushed)
			note(nemesis, "%lld %s\n", 21LL * MS, FLUSHED);
		judge();
		if (flushed)
			GOOD();
		else
			ONLY(PROMISE_RATE);
	}
}

/* An older copy may have a latch that is open, until it is set again: not by a set that is refused,
 * nor by one during the wait. */
TEST(judge_lets_a_latch_be_open_in_an_older_copy)
{
	static const struct {
		int64_t from_ms;
		int err;
		bool found;
	} cases[] = {{200, LK_OK, true}, {200, LK_ESERVER, false}, {310, LK_OK, false}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		begin_round();
		set(10 * MS, 11 * MS, 2);
		note(nemesis, "%lld restart-old server at memory=old grace=1000\n", 100LL * MS);
		set(cases[i].from_ms * MS, (cases[i].from_ms + 1) * MS, 2);
		records[count - 1].err = cases[i].err;
		call(2, HISTORY_AWAIT, GATE, 300 * MS, 320 * MS, LK_OK);
		judge();
		if (cases[i].found)
			ONLY(PROMISE_AWAIT);
		else
			GOOD();
	}
}

/* Reclaimed, renewed and released: the next one has the lock after it, or too early. */
TEST(judge_lets_a_hold_go_on_over_a_restart)
{
	for (int early = 0; early < 2; early++) {
		begin_round();
		acquire(1, LOCK, 10 * MS, 20 * MS, 5, 1000 * MS);
		note(nemesis, "%lld restart-empty server begin memory=lost grace=1000\n",
		     500LL * MS);
		note(nemesis, "%lld restart-empty server end\n", 520LL * MS);
		put(1900 * MS, 1, HISTORY_SEEN, HISTORY_EVENT, LOCK)->u.of.fence = 5;
		records[count - 1].u.of.valid_until_ns = 2600 * MS;
		acquire(2, LOCK, 600 * MS, (early ? 1950 : 2010) * MS, 6, 3000 * MS);
		release(1, LOCK, 2000 * MS, 2005 * MS, 5, LK_OK);
		release(2, LOCK, 2020 * MS, 2030 * MS, 6, LK_OK);
		judge();
		/* All calls are in one order, over the restart. */
		ck_assert_int_eq(verdict.windows, 2);
		if (early)
			BAD(PROMISE_EXCLUSION);
		else
			GOOD();
		ck_assert_int_eq(verdict.excused, 0);
	}
}

/* A broken hold that is taken back after a loss lasts a lease from there on. */
TEST(judge_excuses_a_broken_hold_that_was_reclaimed)
{
	static const struct {
		int64_t lost_ms;
		bool excused;
	} cases[] = {{0, false}, {900, true}, {1100, false}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		begin_round();
		acquire(1, LOCK, 10 * MS, 20 * MS, 5, 1000 * MS);
		note(nemesis, "%lld break job at\n", 40LL * MS);
		if (cases[i].lost_ms)
			note(nemesis, "%lld %s\n", (long long)(cases[i].lost_ms * MS), FLUSHED);
		put(800 * MS, 1, HISTORY_SEEN, HISTORY_EVENT, LOCK)->u.of.fence = 5;
		records[count - 1].u.of.valid_until_ns = 1800 * MS;
		acquire(2, LOCK, 50 * MS, 1500 * MS, 6, 2500 * MS);
		release(1, LOCK, 1700 * MS, 1701 * MS, 5, LK_OK);
		release(2, LOCK, 1800 * MS, 1801 * MS, 6, LK_OK);
		judge();
		ck_assert_int_eq(verdict.of[PROMISE_EXCLUSION], !cases[i].excused);
	}
}

/* A hold ends before its lease: by an operator only. */
TEST(judge_wants_a_hold_kept_over_a_loss)
{
	static const struct {
		const char *fault;
		int name;
		bool found;
	} cases[] = {
		{FLUSHED, LOCK, true},
		{FLUSHED, POOL, true},
		{"restart-empty server at memory=lost grace=1000", POOL, true},
		{"restart-old server at memory=old grace=1000", LOCK, true},
		{"restart-old server at memory=old grace=1000", POOL, true},
		{"flushall server at memory=lost", LOCK, false},
		{"break job at", LOCK, false},
		{"break job at", POOL, true},
		{"clock server at clock=5000", POOL, false},
	};

	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(*cases); i++) {
		int name = cases[i / 2].name;
		bool found;
		begin_round();
		acquire(1, name, 10 * MS, 20 * MS, 5, 1000 * MS);
		note(nemesis, "%lld %s\n", 22LL * MS, cases[i / 2].fault);
		/* Two cases: on_lost reports it, or the release. */
		if (i % 2) {
			put(100 * MS, 1, HISTORY_LOST, HISTORY_EVENT, name)->u.of.fence = 5;
			records[count - 1].u.of.amount = LK_LOST_TAKEN;
		}
		release(1, name, 200 * MS, 201 * MS, 5, LK_ELOST);
		records[count - 2].u.of.valid_until_ns = i % 2 ? 0 : 1000 * MS;
		judge();
		/* A release may find what its process has not noticed. */
		found = cases[i / 2].found && (i % 2 || !strstr(cases[i / 2].fault, "flushall"));
		if (found)
			ONLY(PROMISE_OWNER);
		else
			GOOD();
		ck_assert_int_eq(verdict.taken_excused, !found);
	}
}

/* The lease ended during the release, or the loss was that of an expired lease. */
TEST(judge_knows_an_expired_hold_from_a_taken_one)
{
	for (int expired = 0; expired < 2; expired++) {
		begin_round();
		acquire(1, LOCK, 10 * MS, 20 * MS, 5, 1000 * MS);
		release(1, LOCK, 990 * MS, (expired ? 1001 : 999) * MS, 5, LK_ELOST);
		records[count - 2].u.of.valid_until_ns = 1000 * MS;
		judge();
		if (expired)
			GOOD();
		else
			ONLY(PROMISE_OWNER);
	}
	begin_round();
	acquire(1, LOCK, 10 * MS, 20 * MS, 5, 1000 * MS);
	put(1000 * MS, 1, HISTORY_LOST, HISTORY_EVENT, LOCK)->u.of.fence = 5;
	records[count - 1].u.of.amount = LK_LOST_EXPIRED;
	release(1, LOCK, 1100 * MS, 1101 * MS, 5, LK_ELOST);
	judge();
	GOOD();
}

/* ---- wake-ups ----------------------------------------------------------------------------------
 */

TEST(judge_waits_for_the_end_of_a_grace)
{
	static const struct {
		const char *fault;
		int64_t got_ms;
		bool found;
	} cases[] = {
		{"flushall server at memory=lost grace=10000", 10500, false},
		{"restart server at grace=10000", 10500, false},
		{"flushall server at memory=lost", 10500, true},
		/* A lease, an ask, a claim window, and 10.01 s of the grace and its second. */
		{"flushall server at memory=lost grace=10000", 30200, false},
		{"flushall server at memory=lost grace=10000", 30300, true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		begin_round();
		note(nemesis, "%lld %s\n", 10LL * MS, cases[i].fault);
		acquire(2, LOCK, 5000 * MS, cases[i].got_ms * MS, 6, 60000 * MS);
		records[count - 2].u.of.valid_until_ns = 0;
		release(2, LOCK, 40000 * MS, 40001 * MS, 6, LK_OK);
		judge();
		if (cases[i].found)
			ONLY(PROMISE_WAKE_UP);
		else
			GOOD();
	}
}

/* ---- the monitor -------------------------------------------------------------------------------
 */

/* Each process has asked; the memory is lost, and the first one takes its hold back. */
static void reclaimed(void)
{
	begin_round();
	for (uint32_t pid = 1; pid <= 3; pid++) {
		client(pid);
		put(5000 * MS, pid, HISTORY_END, HISTORY_EVENT, 0);
	}
	asks(10 * MS, 1, 1, 5);
	asks(11 * MS, 2, 2, 0);
	note(nemesis, "%lld %s\n", 20LL * MS, FLUSHED);
	others(20 * MS, "\"FLUSHALL\" \"SYNC\"");
	new_memory(21 * MS, 21 * MS);
	asks(22 * MS, 2, 2, 0);
	reclaims(23 * MS, 1, 1, 5, 21 * MS);
}

TEST(judge_finds_a_grant_in_the_grace)
{
	static const int64_t grants_ms[] = {24, 1020, 1022};

	for (size_t i = 0; i < sizeof(grants_ms) / sizeof(*grants_ms); i++) {
		bool early = i < 2;
		begin_round();
		client(1);
		client(2);
		asks(10 * MS, 1, 1, 5);
		note(nemesis, "%lld %s\n", 20LL * MS, FLUSHED);
		others(20 * MS, "\"FLUSHALL\" \"SYNC\"");
		new_memory(21 * MS, 21 * MS);
		asks(grants_ms[i] * MS, 2, 1, 6);
		judge();
		if (early)
			ONLY(PROMISE_EXCLUSION);
		else
			GOOD();
	}
}

/* A marker that is older than the loss does not shorten the grace; an operator may. */
TEST(judge_knows_how_long_the_grace_is)
{
	for (int how = 0; how < 3; how++) {
		begin_round();
		client(1);
		client(2);
		asks(10 * MS, 1, 1, 5);
		note(nemesis, "%lld %s\n", 20LL * MS, FLUSHED);
		others(20 * MS, "\"FLUSHALL\" \"SYNC\"");
		if (how == 0)
			new_memory(21 * MS, -2000 * MS);
		else if (how == 1)
			others(21 * MS, "\"SET\" \"lk:epoch\" \"1 ab 1699999998000000\"");
		else
			note(monitor, "%lld gap\n", 21LL * MS);
		asks(24 * MS, 2, 1, 6);
		judge();
		if (how == 0)
			ONLY(PROMISE_EXCLUSION);
		else
			GOOD();
	}
}

/* What a hold leaves to the next one in the grace is marked with this memory. */
TEST(judge_lets_a_reclaimed_hold_be_handed_off)
{
	static const struct {
		const char *mark;
		bool good;
	} cases[] = {{" ab 1700000000021000", true}, {"", false}, {" ab 1700000000020000", false}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		reclaimed();
		leaves(30 * MS, 1, 1);
		lua(30 * MS, "ZREM", 2, 2, "\"lk:{job}:q\" \"@\"");
		lua(30 * MS, "SET", 2, 2, "\"lk:{job}\" \"@ 6 1000 -%s\" \"PX\" \"1000\"",
		    cases[i].mark);
		judge();
		ck_assert_int_eq(verdict.reclaimed, 1);
		if (cases[i].good)
			GOOD();
		else
			ONLY(PROMISE_EXCLUSION);
	}
}

/* The hold had its turn; its request is one of a ticket, as the others are. */
TEST(judge_sees_a_zombie_that_reclaims)
{
	for (int left = 0; left < 2; left++) {
		reclaimed();
		if (left)
			leaves(30 * MS, 1, 1);
		reclaims(31 * MS, 1, 1, 5, 21 * MS);
		judge();
		if (left)
			ONLY(PROMISE_ZOMBIE);
		else
			GOOD();
	}
}

TEST(judge_counts_reclaimed_permits)
{
	for (int permits = 1; permits <= 2; permits++) {
		begin_round();
		client(1);
		client(2);
		note(nemesis, "%lld %s\n", 20LL * MS, FLUSHED);
		for (int64_t at_ns = 10 * MS; at_ns <= 30 * MS; at_ns += 20 * MS) {
			const struct lk__script *which = at_ns == 10 * MS
			                                         ? &lk__script_semaphore_ask
			                                         : &lk__script_semaphore_reclaim;
			if (at_ns > 10 * MS)
				others(20 * MS, "\"FLUSHALL\" \"SYNC\"");
			pool_script(at_ns, which, 1, 1);
			pool_holds(at_ns, 1, 1, 2, 5);
			if (at_ns == 10 * MS)
				continue;
			pool_script(at_ns + MS, which, 2, 1);
			pool_holds(at_ns + MS, 2, 1, permits, 6);
		}
		judge();
		ck_assert_int_eq(verdict.reclaimed, 2);
		if (permits == 1)
			GOOD();
		else
			ONLY(PROMISE_PERMITS);
	}
}

/* The script that hands permits over removes the hold before them last. */
TEST(judge_counts_permits_when_a_script_has_ended)
{
	for (int removed = 0; removed < 2; removed++) {
		begin_round();
		client(1);
		client(2);
		pool_script(10 * MS, &lk__script_semaphore_ask, 1, 1);
		pool_holds(10 * MS, 1, 1, 2, 5);
		pool_script(11 * MS, &lk__script_semaphore_leave, 1, 1);
		pool_holds(11 * MS, 2, 1, 2, 6);
		if (removed)
			lua(11 * MS, "HDEL", 1, 1, "\"lk:{pool}\" \"@\"");
		judge();
		if (removed)
			GOOD();
		else
			ONLY(PROMISE_PERMITS);
	}
}

/* No semaphore is served in the grace. */
TEST(judge_finds_permits_granted_in_the_grace)
{
	for (int early = 0; early < 2; early++) {
		begin_round();
		client(1);
		note(nemesis, "%lld %s\n", 20LL * MS, FLUSHED);
		others(20 * MS, "\"FLUSHALL\" \"SYNC\"");
		new_memory(21 * MS, 21 * MS);
		pool_script((early ? 1015 : 1025) * MS, &lk__script_semaphore_ask, 1, 1);
		pool_holds((early ? 1015 : 1025) * MS, 1, 1, 2, 5);
		judge();
		if (early)
			ONLY(PROMISE_PERMITS);
		else
			GOOD();
	}
}
