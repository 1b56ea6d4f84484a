/* SPDX-License-Identifier: MIT
 * Every interleaving of the lock protocol in small bounds, and a counter-example for each rule that
 * may look superfluous.  LK_MODEL=big widens the bounds. */
#include "space.h"
#include "lock_model.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_MAX_STEPS 200
#define LIMIT_BIG 16000000 /* 2 GB */
#define SECONDS 900 /* of LK_MODEL=big; else a few */
/* States, where all are too many for every run of the tests. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LIMIT 20000
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LIMIT 20000
#endif
#endif
#ifndef LIMIT
#define LIMIT 250000
#endif

struct run {
	struct lock_model model;
	struct space space;
	bool ways;         /* keep edges, look for ways to grants */
	const char *wrong; /* NULL = nothing was found */
	uint32_t wrong_at;
	/* Telling a path: the next state of it, and how to get there. */
	const uint8_t *target;
	struct lock_state there;
	enum lock_step step;
	int client;
	bool told;
};

/* ---- What must hold in every state -------------------------------------------------------- */

static bool is_valid(const struct model_client *client)
{
	return client->ticket == HOLDING && client->valid;
}

/* Linked, nothing under way for its ticket: then the next thing to do has its time. */
static bool forgot(const struct model_client *client)
{
	if (!client->linked || !client->ticket || client->armed)
		return false;
	if (client->ticket == HOLDING && !client->valid)
		return false; /* it ends by itself */
	for (int i = 0; i < client->entries; i++)
		if (client->entry[i].kind != LEAVE && client->entry[i].nonce == client->nonce)
			return false;
	return true;
}

/* All its tickets ended with the store's word for it, but the store knows one. */
static bool left_something(const struct lock_state *state, int index)
{
	const struct model_client *client = &state->client[index];

	if (!client->alive || client->ticket || client->leavers || client->entries)
		return false;
	for (int i = 0; i < state->queued; i++)
		if (state->queue[i].client == index)
			return true;
	return state->held && state->owner.client == index;
}

static const char *wrong_in(const struct lock_model *model, const struct lock_state *state)
{
	const struct lock_bounds *bounds = model->bounds;
	int valid = 0;

	for (int i = 0; i < bounds->clients; i++)
		valid += is_valid(&state->client[i]);
	if (valid > 1)
		return "two valid holds";
	if (state->wrong)
		return state->wrong;
	for (int i = 0; i < bounds->clients; i++) {
		const struct model_client *client = &state->client[i];
		/* Each valid hold is known to the store: stronger than what is promised, so that
		 * only the real rules have to keep it. */
		if (model->rule == RULES_ALL && is_valid(client) &&
		    (!state->held || state->owner.client != i ||
		     state->owner.nonce != client->nonce))
			return "a valid hold that the store does not know";
		if (forgot(client))
			return "a ticket with nothing under way and nothing planned";
		/* What is executed late comes after the store's word. */
		if (!bounds->late && left_something(state, i))
			return "an ended ticket is left in the store";
	}
	return NULL;
}

/* ---- Exploring ---------------------------------------------------------------------------- */

static void first_state(const struct lock_bounds *bounds, struct lock_state *state)
{
	memset(state, 0, sizeof(*state));
	state->drops = bounds->drops;
	for (int i = 0; i < bounds->clients; i++)
		state->client[i].alive = state->client[i].linked = state->client[i].heard = 1;
}

/* A way to the first client's grant may not count on faults, luck, or others. */
static bool counts(enum lock_step step, int client)
{
	switch (step) {
	case STEP_START:
	case STEP_RENEW:
	case STEP_EXTEND:
	case STEP_DROP:
	case STEP_UNHEARD:
	case STEP_CRASH:
		return false;
	case STEP_CANCEL:
		return client != 0;
	default:
		return true;
	}
}

static void found(struct lock_model *model, struct lock_state *state, enum lock_step step,
                  int client)
{
	struct run *run = model->arg;
	uint8_t bytes[MODEL_WIDTH];
	const char *wrong;
	uint32_t index;

	if (run->wrong && !run->target)
		return;
	lock_state_number(state, model->bounds, model->rule);
	lock_state_pack(state, model->bounds, bytes);
	if (run->target) {
		if (!run->told && !memcmp(bytes, run->target, sizeof(bytes))) {
			run->told = true;
			run->there = *state;
			run->step = step;
			run->client = client;
		}
		return;
	}
	index = space_add(&run->space, bytes, counts(step, client));
	wrong = wrong_in(model, state);
	if (wrong) {
		run->wrong = wrong;
		run->wrong_at = index;
	}
}

/* From every state in which the first client waits there is a way to its grant. */
static void check_ways(struct run *run)
{
	uint8_t *marks = calloc(run->space.states, 1);
	struct lock_state state;

	ck_assert_ptr_nonnull(marks);
	for (uint32_t i = 0; i < run->space.states; i++) {
		lock_state_unpack(space_state(&run->space, i), run->model.bounds, &state);
		marks[i] = is_valid(&state.client[0]);
	}
	space_reach(&run->space, marks);
	for (uint32_t i = 0; i < run->space.states && !run->wrong; i++) {
		bool waits;
		lock_state_unpack(space_state(&run->space, i), run->model.bounds, &state);
		waits = state.client[0].ticket && state.client[0].ticket != HOLDING;
		for (int j = 0; j < state.client[0].leavers; j++)
			waits |= state.client[0].leaver[j].again;
		if (waits && !marks[i]) {
			run->wrong = "a wait from which no way leads to a grant";
			run->wrong_at = i;
		}
	}
	free(marks);
}

/* The steps to a state, told with the clients' names as they are on this path. */
static size_t tell(struct run *run, bool whole)
{
	static uint32_t path[PATH_MAX_STEPS];
	size_t steps = space_path(&run->space, run->wrong_at, path, PATH_MAX_STEPS);
	struct lock_state state;

	printf("    %s, %zu steps\n", run->wrong, steps);
	first_state(run->model.bounds, &state);
	for (size_t i = 1; whole && i <= steps && i < PATH_MAX_STEPS; i++) {
		run->target = space_state(&run->space, path[i]);
		run->told = false;
		lock_model_steps(&run->model, &state);
		ck_assert(run->told);
		state = run->there;
		printf("  %2zu. %c %s\n", i, run->step == STEP_TICK ? ' ' : 'A' + run->client,
		       lock_step_name(run->step));
		lock_state_print(&state, run->model.bounds);
	}
	run->target = NULL;
	return steps;
}

/* Breadth first to the end, the limit, or a state that is wrong. */
static void explore(struct run *run, uint32_t limit)
{
	const struct lock_bounds *bounds = run->model.bounds;
	uint8_t bytes[MODEL_WIDTH];
	struct lock_state state;
	bool cut = false;

	run->model.found = found;
	run->model.arg = run;
	space_init(&run->space, MODEL_WIDTH, run->ways);
	first_state(bounds, &state);
	lock_state_pack(&state, bounds, bytes);
	space_add(&run->space, bytes, false);
	while (!run->wrong && space_next(&run->space, bytes)) {
		lock_state_unpack(bytes, bounds, &state);
		lock_model_steps(&run->model, &state);
		cut = run->space.states >= limit;
		if (cut)
			break;
	}
	printf("%s: %u states", bounds->name, run->space.states);
	if (cut)
		printf(", every run of %zu steps",
		       space_path(&run->space, run->space.next - 1, NULL, 0));
	else if (!run->wrong)
		printf(", all");
	if (run->model.pruned)
		printf("; %llu steps left out, no room for what they send",
		       (unsigned long long)run->model.pruned);
	printf("\n");
	if (run->ways && !cut && !run->wrong)
		check_ways(run);
	fflush(stdout);
}

static bool is_big(void)
{
	const char *size = getenv("LK_MODEL");

	return size && !strcmp(size, "big");
}

static void one_holds(const struct lock_bounds *bounds, enum lock_rule rule, bool ways,
                      uint32_t limit)
{
	struct run run = {.model = {.bounds = bounds, .rule = rule}, .ways = ways};

	explore(&run, limit);
	if (run.wrong)
		tell(&run, true);
	ck_assert_msg(!run.wrong, "%s: %s", bounds->name, run.wrong);
	space_fini(&run.space);
}

/* Nothing is wrong within the bounds; with LK_MODEL=big within the wider ones, too. */
static void holds(const struct lock_bounds *bounds, const struct lock_bounds *wide)
{
	one_holds(bounds, RULES_ALL, !bounds->alike, is_big() ? LIMIT_BIG : LIMIT);
	if (is_big() && wide)
		one_holds(wide, RULES_ALL, false, LIMIT_BIG);
}

/* Another rule leads to that harm. */
static void breaks(const struct lock_bounds *bounds, enum lock_rule rule, const char *harm)
{
	struct run run = {.model = {.bounds = bounds, .rule = rule}};

	explore(&run, LIMIT_BIG);
	ck_assert_msg(run.wrong, "no counter-example");
	tell(&run, getenv("LK_MODEL_TRACE"));
	ck_assert_str_eq(run.wrong, harm);
	space_fini(&run.space);
}

/* ---- The protocol as it is ---------------------------------------------------------------- */

#define TWO_VALID "two valid holds"

static const struct lock_bounds two = {"2 clients", .clients = 2, .lease = 2, .claim_life = 1,
                                       .notes = 2,  .cancels = 1, .alike = 1};
static const struct lock_bounds two_extend = {"2 clients, extension, 1 drop",
                                              .clients = 2,
                                              .lease = 2,
                                              .claim_life = 1,
                                              .extension = 3,
                                              .waits = 2,
                                              .drops = 1,
                                              .notes = 1,
                                              .cancels = 1,
                                              .alike = 1};
static const struct lock_bounds one_extend = {"2 clients, 1 wait each, extension",
                                              .clients = 2,
                                              .lease = 2,
                                              .claim_life = 1,
                                              .extension = 3,
                                              .waits = 1,
                                              .notes = 1,
                                              .alike = 1};
static const struct lock_bounds two_late = {"2 clients, extension, 1 drop, 1 late request",
                                            .clients = 2,
                                            .lease = 2,
                                            .claim_life = 1,
                                            .extension = 3,
                                            .waits = 1,
                                            .drops = 1,
                                            .late = 1,
                                            .notes = 1,
                                            .cancels = 1,
                                            .alike = 1};

TEST_LIMIT(two_clients_are_safe, SECONDS)
{
	static const struct lock_bounds near = {
		"2 clients, lease 3", .clients = 2, .lease = 3, .claim_life = 1,
		.notes = 2,           .cancels = 1, .alike = 1};
	static const struct lock_bounds wide = {"2 clients, lease 4, claim 2",
	                                        .clients = 2,
	                                        .lease = 4,
	                                        .claim_life = 2,
	                                        .notes = 2,
	                                        .cancels = 1,
	                                        .alike = 1};

	holds(&near, &wide);
}

TEST_LIMIT(any_number_of_drops_and_a_crash_are_safe, SECONDS)
{
	static const struct lock_bounds near = {"2 clients, any drops, 1 crash",
	                                        .clients = 2,
	                                        .lease = 2,
	                                        .claim_life = 1,
	                                        .drops = MODEL_ANY,
	                                        .crashes = 1,
	                                        .notes = 1,
	                                        .cancels = 1,
	                                        .alike = 1};
	static const struct lock_bounds wide = {"2 clients, lease 3, any drops, 1 crash",
	                                        .clients = 2,
	                                        .lease = 3,
	                                        .claim_life = 1,
	                                        .drops = MODEL_ANY,
	                                        .crashes = 1,
	                                        .notes = 1,
	                                        .cancels = 1,
	                                        .alike = 1};

	holds(&near, &wide);
}

TEST_LIMIT(a_wait_that_begins_before_the_last_one_ended_is_safe, SECONDS)
{
	static const struct lock_bounds near = {"2 clients, overlapping tickets, 1 drop",
	                                        .clients = 2,
	                                        .lease = 2,
	                                        .claim_life = 1,
	                                        .waits = 1,
	                                        .drops = 1,
	                                        .notes = 1,
	                                        .overlap = 1,
	                                        .cancels = 1,
	                                        .alike = 1};
	static const struct lock_bounds wide = {"2 clients, 2 waits, overlapping tickets, 1 drop",
	                                        .clients = 2,
	                                        .lease = 2,
	                                        .claim_life = 1,
	                                        .waits = 2,
	                                        .drops = 1,
	                                        .notes = 1,
	                                        .overlap = 1,
	                                        .cancels = 1,
	                                        .alike = 1};

	holds(&near, &wide);
}

TEST_LIMIT(an_extended_hold_is_safe, SECONDS)
{
	static const struct lock_bounds wide = {"2 clients, extension 4, any drops",
	                                        .clients = 2,
	                                        .lease = 2,
	                                        .claim_life = 1,
	                                        .extension = 4,
	                                        .drops = MODEL_ANY,
	                                        .notes = 1,
	                                        .cancels = 1,
	                                        .alike = 1};

	holds(&two_extend, &wide);
}

TEST_LIMIT(a_request_that_outlives_its_connection_is_safe, SECONDS)
{
	static const struct lock_bounds near = {"2 clients, 1 wait each, 1 drop, 1 late request",
	                                        .clients = 2,
	                                        .lease = 2,
	                                        .claim_life = 1,
	                                        .waits = 1,
	                                        .drops = 1,
	                                        .late = 1,
	                                        .notes = 1,
	                                        .cancels = 1,
	                                        .alike = 1};
	static const struct lock_bounds wide = {"2 clients, 1 drop, 1 late request",
	                                        .clients = 2,
	                                        .lease = 2,
	                                        .claim_life = 1,
	                                        .drops = 1,
	                                        .late = 1,
	                                        .notes = 1,
	                                        .cancels = 1,
	                                        .alike = 1};

	holds(&near, &wide);
}

TEST_LIMIT(three_clients_are_safe, SECONDS)
{
	static const struct lock_bounds near = {"3 clients, 1 wait each",
	                                        .clients = 3,
	                                        .lease = 2,
	                                        .claim_life = 1,
	                                        .waits = 1,
	                                        .notes = 1,
	                                        .cancels = 1,
	                                        .alike = 1};
	static const struct lock_bounds wide = {"3 clients, 1 wait each, 1 drop",
	                                        .clients = 3,
	                                        .lease = 2,
	                                        .claim_life = 1,
	                                        .waits = 1,
	                                        .drops = 1,
	                                        .notes = 1,
	                                        .cancels = 0,
	                                        .alike = 1};

	holds(&near, &wide);
}

TEST_LIMIT(every_wait_has_a_way_to_its_grant, SECONDS)
{
	static const struct lock_bounds near = {"2 clients, 1 crash, ways",
	                                        .clients = 2,
	                                        .lease = 2,
	                                        .claim_life = 1,
	                                        .crashes = 1,
	                                        .notes = 1,
	                                        .cancels = 1};
	static const struct lock_bounds wide = {"2 clients, any drops, 1 crash, ways",
	                                        .clients = 2,
	                                        .lease = 2,
	                                        .claim_life = 1,
	                                        .drops = MODEL_ANY,
	                                        .crashes = 1,
	                                        .notes = 1,
	                                        .cancels = 1};

	holds(&near, NULL);
	if (is_big())
		one_holds(&wide, RULES_ALL, true, LIMIT_BIG);
}

/* ---- Rules that are needed ---------------------------------------------------------------- */

TEST_LIMIT(validity_counts_from_the_first_ask, SECONDS)
{
	breaks(&two, VALID_FROM_LAST_QUEUED, TWO_VALID);
}

TEST_LIMIT(a_lapsed_hold_is_not_revived_by_an_answer, SECONDS)
{
	breaks(&two, GRANTED_REVIVES, "a lapsed hold is valid again");
}

TEST_LIMIT(a_claim_takes_the_fence_of_its_answer, SECONDS)
{
	breaks(&two, FENCE_OF_MESSAGE, "a hold's fence is not above an earlier hold's");
}

TEST_LIMIT(a_release_leaves_the_queue, SECONDS)
{
	breaks(&two, RELEASE_STAYS_QUEUED, "an ended ticket is left in the store");
}

TEST_LIMIT(an_answer_after_its_time_is_no_grant, SECONDS)
{
	breaks(&two, LATE_ANSWER_HOLDS, TWO_VALID);
}

TEST_LIMIT(a_hand_serves_only_a_free_lock, SECONDS)
{
	breaks(&two, HAND_UNCHECKED, TWO_VALID);
}

TEST_LIMIT(a_hand_answered_after_the_grant_keeps_the_timer, SECONDS)
{
	breaks(&two, HAND_FORGETS_TIMER, "a ticket with nothing under way and nothing planned");
}

TEST_LIMIT(an_ask_does_not_cut_an_extended_lease, SECONDS)
{
	breaks(&one_extend, ASK_CUTS_EXTENSION, TWO_VALID);
}

TEST_LIMIT(a_shorter_renewal_ends_the_extension_when_sent, SECONDS)
{
	breaks(&one_extend, RENEWAL_SHORTENS, TWO_VALID);
}

/* The one thing that SO_LINGER 0 alone stands against: the store would have to execute a request of
 * a dropped connection after those of its successor. */
TEST_LIMIT(a_late_renewal_would_cut_an_extended_lease, SECONDS)
{
	breaks(&two_late, LATE_AS_IT_IS, TWO_VALID);
}

TEST_LIMIT(a_store_that_never_shortens_stands_a_late_renewal, SECONDS)
{
	one_holds(&two_late, STORE_NEVER_SHORTENS, false, is_big() ? LIMIT_BIG : LIMIT);
}
