/* SPDX-License-Identifier: MIT
 * The judge of `make bench-peers T=failover`: what it makes of events. */
#include "../bench/peers/driver/failover_judge.c"

#include "harness/test.h"

#include <string.h>

#define S INT64_C(1000000000)
#define STRUCK (100 * S)
#define END (150 * S)

static struct failover_run run;
static struct failover_figures figures;

/* The times are seconds from the blow on. */
static void event(int worker, enum event_kind kind, double at_s)
{
	run.events[run.count] = (struct event){.ns = STRUCK + (int64_t)(at_s * 1e9),
	                                       .order = run.count,
	                                       .worker = worker,
	                                       .kind = kind};
	run.count++;
}

static void hold(int worker, double asked_s, double granted_s, double ended_s)
{
	event(worker, EVENT_ASKED, asked_s);
	event(worker, EVENT_GRANTED, granted_s);
	event(worker, EVENT_ENDED, ended_s);
	event(worker, EVENT_RELEASED, ended_s);
}

static void release_of_last(enum release release)
{
	run.events[run.count - 1].release = release;
}

static void judge(void)
{
	run.struck_ns = STRUCK;
	run.end_ns = END;
	failover_judge(&run, &figures);
	run.count = 0;
}

TEST(longest_time_without_a_grant_begins_at_the_blow)
{
	hold(0, -2, -1, -0.5);
	hold(1, -2, 20, 20.1);
	hold(0, 1, 20.2, 20.3);
	for (int i = 3; i < 7; i++)
		hold(1, 20 + 5 * (i - 3), 15 + 5 * i, 15.1 + 5 * i);
	judge();
	ck_assert(figures.no_grant_s[0] > 19.99 && figures.no_grant_s[0] < 20.01);
	ck_assert_int_eq(figures.fewest, 0);
	ck_assert_int_eq(figures.most, 5);
	/* To the end, if nothing is granted any more. */
	hold(0, -2, 1, 1.1);
	judge();
	ck_assert(figures.no_grant_s[1] > 48.99 && figures.no_grant_s[1] < 49.01);
	ck_assert_int_eq(figures.rounds, 2);
	ck_assert_int_eq(figures.overlaps, 0);
}

TEST(grant_during_another_hold_is_an_overlap)
{
	/* Read in another order than that of the clocks. */
	hold(1, 0, 1.01, 1.03);
	hold(0, 0, 1, 1.02);
	hold(2, 0, 1.03, 1.04);
	judge();
	ck_assert_int_eq(figures.overlaps, 1);
	/* The locks of contenders and of the holder are two. */
	hold(FAILOVER_HOLDER, -1, -0.5, 20);
	hold(3, 0, 1, 2);
	judge();
	ck_assert_int_eq(figures.overlaps, 1);
}

TEST(waiter_is_stuck_after_30_s_also_if_its_calls_fail)
{
	event(0, EVENT_ASKED, -40);
	event(0, EVENT_GRANTED, 29);
	event(1, EVENT_ASKED, -40);
	event(1, EVENT_FAILED, -20);
	event(1, EVENT_FAILED, 10);
	event(1, EVENT_ASKED, 10.1);
	event(1, EVENT_GRANTED, 31);
	event(2, EVENT_ASKED, 15);
	event(3, EVENT_ASKED, 25);
	event(FAILOVER_RIVAL, EVENT_ASKED, -1);
	judge();
	ck_assert_int_eq(figures.stuck, 2); /* 1 and 2 */
	ck_assert_int_eq(figures.failed_calls, 1);
}

TEST(end_of_the_long_hold_is_told_apart)
{
	/* Kept: the rival follows. */
	hold(FAILOVER_HOLDER, -1, -0.5, 18);
	hold(FAILOVER_RIVAL, -0.4, 18.1, 18.2);
	judge();
	/* Kept: the release had no response. */
	hold(FAILOVER_HOLDER, -1, -0.5, 18);
	release_of_last(RELEASE_FAILED);
	judge();
	ck_assert_int_eq(figures.long_holds[LONG_KEPT], 2);
	/* Reported: its holder knows before the rival is granted. */
	hold(FAILOVER_HOLDER, -1, -0.5, 5);
	release_of_last(RELEASE_LOST);
	hold(FAILOVER_RIVAL, -0.4, 5.1, 5.2);
	judge();
	ck_assert_int_eq(figures.long_holds[LONG_REPORTED], 1);
	ck_assert_int_eq(figures.overlaps, 0);
	/* Doubled: it learns of the loss by its release. */
	hold(FAILOVER_HOLDER, -1, -0.5, 18);
	release_of_last(RELEASE_LOST);
	hold(FAILOVER_RIVAL, -0.4, 5.1, 5.2);
	judge();
	ck_assert_int_eq(figures.long_holds[LONG_DOUBLED], 1);
	ck_assert_int_eq(figures.overlaps, 1);
	/* Refused: not granted before the blow. */
	hold(FAILOVER_HOLDER, -1, 2, 18);
	judge();
	ck_assert_int_eq(figures.long_holds[LONG_REFUSED], 1);
}
