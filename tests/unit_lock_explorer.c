/* SPDX-License-Identifier: MIT
 * The state machine of locks under everything at once: see harness/explorer.h.  Each test runs
 * seeds one after the other with the faults that it names.  A failure prints the seed of its run;
 * LK_SEED set to it starts with that run, LK_TRACE=1 prints its steps, LK_RUNS says how many runs.
 */
#include "explorer.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#define LIMIT 600 /* for LK_RUNS; by default a second or two */

static struct explorer explorer;

/* What all runs together have come by. */
struct tally {
	long long steps, acquired, handed_over, lost;
};

static void explore(unsigned faults)
{
	const char *text = getenv("LK_RUNS");
	int runs = text ? atoi(text) : 45;
	struct tally tally = {0};

	for (int i = 0; i < runs; i++) {
		bool good = explorer_run(&explorer, test_seed() + (unsigned)i, faults);
		ck_assert_msg(good, "%s", explorer.failure);
		tally.steps += explorer.steps;
		tally.acquired += explorer.acquired;
		tally.handed_over += explorer.handed_over;
		tally.lost += explorer.lost;
	}
	if (text)
		printf("faults %u: %d runs, %lld steps, %lld holds, %lld handed over, %lld lost\n",
		       faults, runs, tally.steps, tally.acquired, tally.handed_over, tally.lost);
	if (runs < 20)
		return;
	/* Else they have explored nothing. */
	ck_assert_int_gt(tally.acquired, 20 * runs);
	ck_assert_int_gt(tally.handed_over, runs);
	ck_assert_int_gt(tally.lost, runs);
}

TEST_LIMIT(calm_network_loses_nothing, LIMIT)
{
	explore(0);
}

TEST_LIMIT(links_that_break_or_hang, LIMIT)
{
	explore(FAULT_LINKS);
}

TEST_LIMIT(processes_that_stop_or_die, LIMIT)
{
	explore(FAULT_PAUSES | FAULT_CRASHES);
}

TEST_LIMIT(messages_that_are_lost, LIMIT)
{
	explore(FAULT_MESSAGES);
}

TEST_LIMIT(store_that_refuses_and_forgets_scripts, LIMIT)
{
	explore(FAULT_STORE | FAULT_LINKS);
}

TEST_LIMIT(all_faults_but_force, LIMIT)
{
	explore(FAULT_LINKS | FAULT_PAUSES | FAULT_CRASHES | FAULT_MESSAGES | FAULT_STORE);
}

TEST_LIMIT(flushes_restarts_and_breaks_leave_fences, LIMIT)
{
	explore(FAULT_LINKS | FAULT_PAUSES | FAULT_CRASHES | FAULT_MESSAGES | FAULT_STORE |
	        FAULT_FORCE);
}
