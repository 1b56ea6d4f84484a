/* SPDX-License-Identifier: MIT
 * The state machine and the scripts of semaphores under everything at once: see
 * harness/permits_explorer.h.  Each test runs seeds one after the other with the faults that it
 * names.  A failure prints the seed of its run; LK_SEED set to it starts with that run, LK_TRACE=1
 * prints its steps, LK_RUNS says how many runs. */
#include "permits_explorer.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#define LIMIT 600 /* for LK_RUNS; by default a second or two */

static struct permits_explorer explorer;

/* What all runs together have come by. */
struct tally {
	long long steps, acquired, forgot, shrunk, waited, lost, limited;
};

static void explore(unsigned faults)
{
	const char *text = getenv("LK_RUNS");
	int runs = text ? atoi(text) : 12;
	struct tally tally = {0};

	for (int i = 0; i < runs; i++) {
		bool good = permits_explore(&explorer, test_seed() + (unsigned)i, faults);
		ck_assert_msg(good, "%s", explorer.failure);
		tally.steps += explorer.steps;
		tally.acquired += explorer.acquired;
		tally.forgot += explorer.forgot;
		tally.shrunk += explorer.shrunk;
		tally.waited += explorer.waited;
		tally.lost += explorer.lost;
		tally.limited += explorer.limited;
	}
	if (text)
		printf("faults %u: %d runs, %lld steps, %lld holds, %lld forgotten, %lld shrunk, "
		       "%lld waited, %lld lost, %lld limited\n",
		       faults, runs, tally.steps, tally.acquired, tally.forgot, tally.shrunk,
		       tally.waited, tally.lost, tally.limited);
	if (runs < 12)
		return;
	/* Else they have explored nothing. */
	ck_assert_int_gt(tally.acquired, 5 * runs);
	ck_assert_int_gt(tally.forgot, runs);
	ck_assert_int_gt(tally.shrunk, runs);
	ck_assert_int_gt(tally.waited, runs);
	if (faults)
		ck_assert_int_gt(tally.lost, 0);
}

TEST_LIMIT(calm_network_loses_nothing, LIMIT)
{
	explore(0);
}

TEST_LIMIT(links_that_break_or_hang, LIMIT)
{
	explore(PERMITS_LINKS);
}

TEST_LIMIT(processes_that_stop_or_die, LIMIT)
{
	explore(PERMITS_PAUSES | PERMITS_CRASHES);
}

TEST_LIMIT(messages_that_are_lost, LIMIT)
{
	explore(PERMITS_MESSAGES);
}

TEST_LIMIT(store_that_refuses_and_forgets_scripts, LIMIT)
{
	explore(PERMITS_STORE | PERMITS_LINKS);
}

TEST_LIMIT(server_clock_that_steps_back, LIMIT)
{
	explore(PERMITS_CLOCK | PERMITS_PAUSES | PERMITS_LINKS);
}

TEST_LIMIT(requests_that_come_late, LIMIT)
{
	explore(PERMITS_LATECOMERS | PERMITS_LINKS | PERMITS_CRASHES);
}

TEST_LIMIT(all_faults_but_force, LIMIT)
{
	explore(PERMITS_LINKS | PERMITS_PAUSES | PERMITS_CRASHES | PERMITS_MESSAGES |
	        PERMITS_STORE | PERMITS_CLOCK | PERMITS_LATECOMERS);
}

TEST_LIMIT(flushes_evictions_and_breaks_leave_the_rest, LIMIT)
{
	explore(PERMITS_LINKS | PERMITS_PAUSES | PERMITS_CRASHES | PERMITS_MESSAGES |
	        PERMITS_STORE | PERMITS_CLOCK | PERMITS_FORCE);
}
