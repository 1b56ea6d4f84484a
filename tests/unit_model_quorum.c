/* SPDX-License-Identifier: MIT
 * The model of a quorum can fail: each wrong variant of a script is found, and so is each bug that
 * tests/mutants plants in src/core for a test of this program.  Without them nothing is found.
 *
 * LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=lk__core_random
 */
#include "model_check.h"

#include <string.h>

#define SECONDS 300 /* on a heavily loaded machine; otherwise a few */
#define QUORUM                                                                                     \
	.name = "quorum", .kind = LK_KIND_LOCK, .servers = 3, .steps = 255, .calls = 1, .clients = 2

/* excused: so many states at least in which a clock that was set forward lets two be decided. */
static void walks_are_clean(const struct model_bounds *bounds, uint64_t walks, uint64_t excused)
{
	struct explore_plan plan = {.bounds = bounds, .walks = walks, .seed = 1};
	struct explore_result result;

	explore_walk(&plan, &result);
	if (result.wrong)
		explore_tell(&plan, &result);
	ck_assert_msg(!result.wrong, "%s", result.wrong);
	ck_assert_uint_eq(result.ends, walks);
	ck_assert_uint_ge(result.excused, excused);
	explore_fini(&result);
}

TEST_LIMIT(memory_that_is_lost_and_not_noticed_is_found, SECONDS)
{
	finds("quorum-amnesia-without-youth", PROMISE_EXCLUSION, "2 holds are valid at once, of 1");
	finds("quorum-memory-not-compared", PROMISE_EXCLUSION, "2 holds are valid at once, of 1");
}

TEST_LIMIT(legs_that_are_not_given_back_are_found, SECONDS)
{
	finds("quorum-wanted-never-told", PROMISE_WAKE_UP, "its waiter does not know");
	finds("quorum-never-yields", PROMISE_WAKE_UP, "its waiter does not know");
	finds("quorum-yield-without-successor", PROMISE_WAKE_UP, "its waiter does not know");
}

TEST_LIMIT(an_order_of_arrival_is_found, SECONDS)
{
	finds("quorum-order-of-arrival", PROMISE_FIFO, "has overtaken");
}

TEST_LIMIT(a_leg_that_counts_after_its_yield_is_found, SECONDS)
{
	finds("quorum-yield-believed", PROMISE_EXCLUSION, "2 holds are valid at once, of 1");
}

TEST_LIMIT(epochs_that_are_mixed_up_are_found, SECONDS)
{
	finds("quorum-leave-of-one-epoch", PROMISE_RESULT, "a leave denies its client's hold");
	finds("quorum-late-yield-ends-its-successor", PROMISE_EXCLUSION,
	      "2 holds are valid at once, of 1");
}

TEST_LIMIT(fences_that_are_not_committed_are_found, SECONDS)
{
	finds("quorum-commit-not-stored", PROMISE_FENCE, "is not new");
	finds("quorum-uncommitted", PROMISE_FENCE, "is not new");
	finds("quorum-fence-beside-the-counter", PROMISE_FENCE, "is not new");
}

TEST_LIMIT(a_grant_of_a_leg_that_is_held_is_found, SECONDS)
{
	finds("quorum-ask-grants-what-is-held", PROMISE_EXCLUSION,
	      "2 holds are valid at once, of 1");
}

TEST_LIMIT(what_ships_is_clean_in_every_state, SECONDS)
{
	static const struct model_bounds runs[] = {
		{QUORUM, .yields = 2, .held = 3, .delays = 1, .faults = 1},
		{QUORUM, .yields = 2, .held = 3, .restarts = 1, .faults = 1},
		{QUORUM, .yields = 1, .held = 2, .tries = 1},
		{QUORUM, .yields = 1, .held = 3, .ticks = 2, .fixed = true},
	};

	for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++)
		is_clean(&runs[i]);
}

TEST_LIMIT(what_ships_is_clean_in_walks, SECONDS)
{
	for (int i = 0; model_quorum_walks[i].name; i++)
		if (!model_quorum_walks[i].jumps)
			walks_are_clean(&model_quorum_walks[i], 100, 0);
}

/* Else the check of what is excused could not fail. */
TEST_LIMIT(clock_that_is_set_forward_decides_two, SECONDS)
{
	for (int i = 0; model_quorum_walks[i].name; i++)
		if (model_quorum_walks[i].jumps)
			walks_are_clean(&model_quorum_walks[i], 800, 1);
}
