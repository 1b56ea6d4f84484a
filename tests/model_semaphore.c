/* SPDX-License-Identifier: MIT
 * Every interleaving of the semaphore's protocol in small bounds, and a counter-example for each
 * rule that may look superfluous.  LK_MODEL=big widens the bounds. */
#include "semaphore_model.h"
#include "space.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_MAX_STEPS 200
#define SECONDS 900 /* of LK_MODEL=big; else a few */
/* States: of bounds that are explored to their end; where all are too many for every run of the
 * tests; and for those with time, half a gigabyte. */
#define STATES_BIG 4000000
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STATES 20000
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define STATES 20000
#endif
#endif
#ifdef STATES
#define STATES_ALL STATES
#else
#define STATES 100000
#define STATES_ALL 600000
#endif

struct run {
	struct semaphore_model model;
	struct space space;
	bool ways;         /* keep edges, look for ways to grants */
	const char *wrong; /* NULL = nothing was found */
	uint32_t wrong_at;
	bool by_step; /* the last step shows it: from the state that was expanded then */
	/* Telling a path: the next state of it, and how to get there. */
	const uint8_t *target;
	struct semaphore_state there;
	enum semaphore_step step;
	int client;
	bool told;
};

/* ---- Exploring ---------------------------------------------------------------------------- */

static void found(struct semaphore_model *model, struct semaphore_state *state,
                  enum semaphore_step step, int client)
{
	struct run *run = model->arg;
	uint8_t bytes[MODEL_WIDTH];
	const char *wrong;
	uint32_t index;

	if (run->wrong && !run->target)
		return;
	wrong = semaphore_state_wrong(state, model->bounds, model->rule);
	semaphore_state_number(state, model->bounds, model->rule);
	semaphore_state_pack(state, model->bounds, bytes);
	if (run->target) {
		if (!run->told && !memcmp(bytes, run->target, sizeof(bytes))) {
			run->told = true;
			run->there = *state;
			run->step = step;
			run->client = client;
		}
		return;
	}
	index = space_add(&run->space, bytes, semaphore_step_counts(step));
	if (wrong) {
		run->wrong = wrong;
		run->wrong_at = index;
		run->by_step = true;
	}
}

/* Ways to what a client waits for: a grant, or the word that it will not have one.  Without a
 * client: to all permits back.  Where a run is short, a lease that is over is back. */
static bool is_there(const struct run *run, uint32_t index, int client)
{
	struct semaphore_state state;

	semaphore_state_unpack(space_state(&run->space, index), run->model.bounds, &state);
	if (client >= 0)
		return !semaphore_client_waits(&state.client[client]);
	for (int i = 0; i < state.holds; i++)
		if (state.hold[i].left || !run->model.bounds->run)
			return false;
	return true;
}

static void check_ways(struct run *run, int client)
{
	uint8_t *marks = calloc(run->space.states, 1);

	ck_assert_ptr_nonnull(marks);
	for (uint32_t i = 0; i < run->space.states; i++)
		marks[i] = is_there(run, i, client);
	space_reach(&run->space, marks);
	for (uint32_t i = 0; i < run->space.states && !run->wrong; i++) {
		if (marks[i])
			continue;
		run->wrong = client < 0 ? "no way leads to all permits back"
		                        : "a wait from which no way leads to its end";
		run->wrong_at = i;
	}
	free(marks);
}

/* The steps to a state, told with the clients' names as they are on this path. */
static void tell(struct run *run, bool whole)
{
	static uint32_t path[PATH_MAX_STEPS];
	uint32_t last = run->by_step ? run->space.next - 1 : run->wrong_at;
	size_t steps = space_path(&run->space, last, path, PATH_MAX_STEPS);
	struct semaphore_state state;

	if (run->by_step && ++steps < PATH_MAX_STEPS)
		path[steps] = run->wrong_at;

	printf("    %s, %zu steps\n", run->wrong, steps);
	semaphore_state_first(&state, run->model.bounds);
	for (size_t i = 1; whole && i <= steps && i < PATH_MAX_STEPS; i++) {
		run->target = space_state(&run->space, path[i]);
		run->told = false;
		semaphore_model_steps(&run->model, &state);
		ck_assert(run->told);
		state = run->there;
		printf("  %2zu. %c %s\n", i, run->step >= STEP_RESIZE ? ' ' : 'A' + run->client,
		       semaphore_step_name(run->step));
		semaphore_state_print(&state, run->model.bounds);
	}
	run->target = NULL;
	fflush(stdout); /* a failed check ends the process */
}

/* Breadth first to the end, the limit, or a state that is wrong. */
static bool explore(struct run *run, uint32_t limit)
{
	const struct semaphore_bounds *bounds = run->model.bounds;
	uint8_t bytes[MODEL_WIDTH];
	struct semaphore_state state;
	bool cut = false;

	run->model.found = found;
	run->model.arg = run;
	space_init(&run->space, MODEL_WIDTH, run->ways);
	semaphore_state_first(&state, bounds);
	semaphore_state_pack(&state, bounds, bytes);
	space_add(&run->space, bytes, false);
	while (!run->wrong && !cut && space_next(&run->space, bytes)) {
		semaphore_state_unpack(bytes, bounds, &state);
		semaphore_model_steps(&run->model, &state);
		cut = run->space.states >= limit && run->space.next < run->space.states;
	}
	for (int i = -1; run->ways && !cut && !run->wrong && i < bounds->clients; i++)
		check_ways(run, i);
	printf("%s: %u states", bounds->name, run->space.states);
	if (cut)
		printf(", every run of %zu steps",
		       space_path(&run->space, run->space.next - 1, NULL, 0));
	else if (!run->wrong)
		printf(", all%s", run->ways ? ", and ways from each" : "");
	if (run->model.pruned)
		printf("; %llu steps left out, no room for what they send",
		       (unsigned long long)run->model.pruned);
	printf("\n");
	fflush(stdout);
	return !cut;
}

static bool is_big(void)
{
	const char *size = getenv("LK_MODEL");

	return size && !strcmp(size, "big");
}

static bool none_wrong(const struct semaphore_bounds *bounds, enum semaphore_rule rule, bool ways,
                       uint32_t limit)
{
	struct run run = {.model = {.bounds = bounds, .rule = rule}, .ways = ways};
	bool all = explore(&run, limit);

	if (run.wrong)
		tell(&run, true);
	ck_assert_msg(!run.wrong, "%s: %s", bounds->name, run.wrong);
	space_fini(&run.space);
	return all;
}

/* Nothing is wrong within bounds that are too wide for every run of the tests to see their end. */
static void holds(const struct semaphore_bounds *bounds)
{
	none_wrong(bounds, RULES_ALL, false, is_big() ? STATES_BIG : STATES);
}

static void holds_if_big(const struct semaphore_bounds *bounds)
{
	if (is_big())
		holds(bounds);
}

/* Nothing is wrong in any state within these bounds; with ways, nobody is stuck in any. */
static void all_hold(const struct semaphore_bounds *bounds, enum semaphore_rule rule, bool ways)
{
	bool all = none_wrong(bounds, rule, ways, is_big() ? STATES_BIG : STATES_ALL);

	ck_assert_msg(all || STATES_ALL == STATES, "%s: too many states", bounds->name);
}

/* Another rule leads to that harm. */
static void breaks(const struct semaphore_bounds *bounds, enum semaphore_rule rule,
                   const char *harm)
{
	struct run run = {.model = {.bounds = bounds, .rule = rule}};

	explore(&run, STATES_BIG);
	ck_assert_msg(run.wrong, "no counter-example");
	tell(&run, getenv("LK_MODEL_TRACE"));
	ck_assert_str_eq(run.wrong, harm);
	space_fini(&run.space);
}

/* ---- The protocol as it is ---------------------------------------------------------------- */

#define TOO_MANY "more permits in valid holds than there are"

/* What most of them have; each test says what else may happen. */
static struct semaphore_bounds two_clients(const char *name)
{
	return (struct semaphore_bounds){.name = name,
	                                 .clients = 2,
	                                 .capacity = 2,
	                                 .permits = {2, 1},
	                                 .lease = 2,
	                                 .claim_life = 1,
	                                 .notes = 1,
	                                 .cancels = 1,
	                                 .alike = 1};
}

static struct semaphore_bounds three_clients(const char *name)
{
	struct semaphore_bounds bounds = two_clients(name);

	bounds.clients = 3;
	bounds.permits[2] = 1;
	bounds.waits = 1;
	bounds.cancels = 0;
	return bounds;
}

/* No client is exchanged for another: each has ways of its own. */
static void have_ways(struct semaphore_bounds bounds)
{
	bounds.alike = 0;
	all_hold(&bounds, RULES_ALL, true);
}

TEST_LIMIT(two_clients_are_safe, SECONDS)
{
	struct semaphore_bounds near = two_clients("2 clients, lease 3, tries");
	struct semaphore_bounds wide;

	near.lease = 3;
	near.notes = 2;
	near.tries = 1;
	all_hold(&near, RULES_ALL, false);
	wide = near;
	wide.name = "2 clients, 2 and 2 of 3, lease 4, claim 2, tries";
	wide.capacity = 3;
	wide.permits[1] = 2;
	wide.lease = 4;
	wide.claim_life = 2;
	holds_if_big(&wide);
}

TEST_LIMIT(any_number_of_drops_and_a_crash_are_safe, SECONDS)
{
	struct semaphore_bounds near = two_clients("2 clients, any drops, 1 crash");
	struct semaphore_bounds wide;

	near.drops = MODEL_ANY;
	near.crashes = 1;
	holds(&near);
	wide = near;
	wide.name = "2 clients, lease 3, any drops, 1 crash";
	wide.lease = 3;
	holds_if_big(&wide);
}

TEST_LIMIT(lost_messages_and_queues_that_end_are_safe, SECONDS)
{
	struct semaphore_bounds near = two_clients("2 clients, messages lost, the queue ends");
	struct semaphore_bounds wide = three_clients("3 clients, messages lost, the queue ends");

	near.notes = 2;
	near.tries = 1;
	near.loses = near.ends = 1;
	all_hold(&near, RULES_ALL, false);
	wide.prompt = wide.loses = wide.ends = 1;
	holds_if_big(&wide);
}

TEST_LIMIT(a_wait_that_begins_before_the_last_one_ended_is_safe, SECONDS)
{
	struct semaphore_bounds near = two_clients("2 clients, 2 waits each that overlap");
	struct semaphore_bounds wide;

	near.waits = 2;
	near.overlap = 1;
	near.cancels = 0;
	all_hold(&near, RULES_ALL, false);
	wide = near;
	wide.name = "2 clients, 2 waits each that overlap, 1 drop";
	wide.drops = 1;
	holds_if_big(&wide);
}

TEST_LIMIT(an_extended_hold_is_safe, SECONDS)
{
	struct semaphore_bounds near = two_clients("2 clients, extension, 1 drop, 1 late request");
	struct semaphore_bounds wide;

	near.extension = 3;
	near.waits = 1;
	near.drops = near.late = 1;
	holds(&near);
	wide = near;
	wide.name = "2 clients, extension 4, any drops";
	wide.extension = 4;
	wide.waits = wide.late = 0;
	wide.drops = MODEL_ANY;
	holds_if_big(&wide);
	near.name = "2 clients, extension that is shorter, 1 drop, 1 late request";
	near.extension = 1;
	holds(&near);
}

TEST_LIMIT(a_request_that_outlives_its_connection_is_safe, SECONDS)
{
	struct semaphore_bounds silent = two_clients("2 clients, 1 wait each, no message arrives, "
	                                             "1 drop, 1 late request");
	struct semaphore_bounds near = two_clients("2 clients, runs of 1, 1 drop, 1 late request");
	struct semaphore_bounds wide;

	silent.drops = silent.late = near.drops = near.late = 1;
	silent.waits = 1;
	silent.cancels = false;
	silent.notes = 0;
	near.run = 1;
	all_hold(&silent, RULES_ALL, false);
	holds(&near);
	wide = near;
	wide.name = "2 clients, 2 waits, runs of 1, any drops, 2 late requests";
	wide.waits = wide.late = 2;
	wide.drops = MODEL_ANY;
	holds_if_big(&wide);
}

TEST_LIMIT(three_clients_are_safe, SECONDS)
{
	struct semaphore_bounds slow = three_clients("3 clients, 1 wait each");
	struct semaphore_bounds near = three_clients("3 clients, executed when sent");
	struct semaphore_bounds wide = slow;

	holds(&slow);
	near.waits = 0;
	near.prompt = 1;
	all_hold(&near, RULES_ALL, false);
	wide.name = "3 clients, 1 wait each, 1 drop";
	wide.drops = 1;
	holds_if_big(&wide);
}

TEST_LIMIT(runs_that_end_early_are_safe, SECONDS)
{
	struct semaphore_bounds near = three_clients("3 clients, runs of 1, 1 crash");
	struct semaphore_bounds wide = near;

	near.run = 1;
	near.crashes = 1;
	holds(&near);
	wide = near;
	wide.name = "3 clients, runs of 1, 1 crash, prompt";
	wide.prompt = 1;
	wide.cancels = 1;
	holds_if_big(&wide);
}

TEST_LIMIT(some_permits_given_back_are_safe, SECONDS)
{
	struct semaphore_bounds near = two_clients("2 clients, 3 and 1 of 3, some given back, "
	                                           "1 drop, 1 late request");
	struct semaphore_bounds wide;

	near.capacity = near.permits[0] = 3;
	near.waits = 1;
	near.drops = near.late = 1;
	near.shrinks = 1;
	near.cancels = 0;
	holds(&near);
	wide = near;
	wide.name = "2 clients, 3 and 2 of 3, some given back, any drops, 1 late request";
	wide.permits[1] = 2;
	wide.waits = 0;
	wide.drops = MODEL_ANY;
	holds_if_big(&wide);
}

TEST_LIMIT(a_resize_is_safe, SECONDS)
{
	struct semaphore_bounds near = two_clients("2 clients, capacity 1 to 2, some given back");
	struct semaphore_bounds wide = three_clients("3 clients, capacity 1 to 3, runs of 1");

	near.smallest = 1;
	near.largest = 2;
	near.shrinks = 1;
	all_hold(&near, RULES_ALL, false);
	wide.smallest = 1;
	wide.largest = 3;
	wide.run = 1;
	wide.shrinks = 1;
	holds_if_big(&wide);
}

TEST_LIMIT(fixed_leases_are_safe, SECONDS)
{
	struct semaphore_bounds near =
		two_clients("2 clients, fixed, runs of 1, some given back, 1 drop, 1 late request");
	struct semaphore_bounds wide;

	near.kind = PERMITS_FIXED;
	near.run = 1;
	near.drops = near.late = 1;
	near.shrinks = 1;
	holds(&near);
	wide = near;
	wide.name = "2 clients, fixed, extension, any drops, 1 late request, 1 crash";
	wide.run = 0;
	wide.extension = 3;
	wide.drops = MODEL_ANY;
	wide.crashes = 1;
	holds_if_big(&wide);
}

TEST_LIMIT(a_rate_is_exact, SECONDS)
{
	struct semaphore_bounds near = two_clients("2 clients, rate, 1 drop");
	struct semaphore_bounds more = three_clients("3 clients, rate, executed when sent");
	struct semaphore_bounds late = two_clients("2 clients, rate, lease 3, runs of 1, 1 drop, "
	                                           "1 late request");
	struct semaphore_bounds wide;

	near.kind = more.kind = late.kind = PERMITS_RATE;
	near.drops = 1;
	holds(&near);
	more.waits = 0;
	more.prompt = 1;
	all_hold(&more, RULES_ALL, false);
	late.lease = 3;
	late.run = 1;
	late.drops = late.late = 1;
	late.tries = 1;
	holds(&late);
	wide = more;
	wide.name = "3 clients, rate, any drops, 1 late request, 1 crash";
	wide.prompt = 0;
	wide.drops = MODEL_ANY;
	wide.late = wide.crashes = 1;
	holds_if_big(&wide);
}

TEST_LIMIT(nobody_is_stuck_and_all_permits_come_back, SECONDS)
{
	struct semaphore_bounds runs = two_clients("2 clients, runs of 1, 1 crash");
	struct semaphore_bounds uses_up = two_clients("2 clients, rate, 1 crash");
	struct semaphore_bounds more = three_clients("3 clients, fixed, executed when sent");
	struct semaphore_bounds wide =
		two_clients("2 clients, capacity 1 to 2, any drops, 1 crash");

	runs.run = 1;
	runs.crashes = uses_up.crashes = wide.crashes = 1;
	uses_up.kind = PERMITS_RATE;
	more.kind = PERMITS_FIXED;
	more.prompt = 1;
	have_ways(runs);
	have_ways(uses_up);
	have_ways(more);
	wide.smallest = 1;
	wide.largest = 2;
	wide.drops = MODEL_ANY;
	if (is_big())
		have_ways(wide);
}

/* ---- Rules that are needed ---------------------------------------------------------------- */

static void pair_breaks(enum semaphore_rule rule, const char *harm)
{
	struct semaphore_bounds bounds = two_clients("2 clients");

	breaks(&bounds, rule, harm);
}

static void three_break(enum semaphore_rule rule, const char *harm)
{
	struct semaphore_bounds bounds = three_clients("3 clients, runs of 1");

	bounds.run = 1;
	breaks(&bounds, rule, harm);
}

TEST_LIMIT(validity_counts_from_the_first_ask, SECONDS)
{
	pair_breaks(VALID_FROM_LAST_QUEUED, TOO_MANY);
}

TEST_LIMIT(a_lapsed_hold_is_not_revived_by_an_answer, SECONDS)
{
	pair_breaks(GRANTED_REVIVES, "a lapsed hold is valid again");
}

TEST_LIMIT(a_claim_takes_the_fence_of_its_answer, SECONDS)
{
	pair_breaks(FENCE_OF_MESSAGE, "a valid hold has another fence than the store gave it");
}

TEST_LIMIT(a_release_leaves_the_queue, SECONDS)
{
	pair_breaks(RELEASE_STAYS_QUEUED, "an ended ticket is left in the store");
}

TEST_LIMIT(a_hand_serves_only_who_fits, SECONDS)
{
	three_break(HAND_UNFITTED, TOO_MANY);
}

TEST_LIMIT(a_partial_release_takes_the_least, SECONDS)
{
	struct semaphore_bounds bounds = two_clients("2 clients, 3 and 1 of 3, some given back, "
	                                             "1 drop, 1 late request");

	bounds.capacity = bounds.permits[0] = 3;
	bounds.drops = bounds.late = 1;
	bounds.shrinks = 1;
	breaks(&bounds, SHRINK_SETS, "permits that were given back are held again");
}

TEST_LIMIT(a_forgotten_ticket_sends_no_leave, SECONDS)
{
	struct semaphore_bounds bounds = two_clients("2 clients, rate");

	bounds.kind = PERMITS_RATE;
	breaks(&bounds, FORGET_LEAVES, "more permits were granted in a window than there are");
}

TEST_LIMIT(an_ask_does_not_pass_the_queue, SECONDS)
{
	three_break(ASK_PASSES_QUEUE,
	            "a wait was granted before one that stood in the queue when it began");
}

TEST_LIMIT(a_renewal_does_not_bring_a_hold_back, SECONDS)
{
	pair_breaks(RENEWAL_REVIVES, TOO_MANY);
}

/* A hold that is over and was not taken out yet counts as held: nobody else has its permits. */
TEST_LIMIT(a_renewal_of_what_nobody_took_out_would_do_no_harm, SECONDS)
{
	struct semaphore_bounds bounds = two_clients("2 clients, runs of 1, ended leases renewed");

	bounds.run = 1;
	all_hold(&bounds, RENEWAL_UNENDED, false);
}

/* This and the next one were bugs. */
TEST_LIMIT(an_ask_drops_its_own_ended_hold, SECONDS)
{
	three_break(ASK_KEEPS_OWN, "the store's sum is not what its holds have");
}

TEST_LIMIT(a_new_connection_takes_up_the_serving_of_the_queue, SECONDS)
{
	struct semaphore_bounds bounds = two_clients("2 clients, fixed, runs of 1, 1 drop");

	bounds.kind = PERMITS_FIXED;
	bounds.run = 1;
	bounds.drops = 1;
	breaks(&bounds, LINK_FORGETS_HAND, "a ticket with nothing under way and nothing planned");
}
