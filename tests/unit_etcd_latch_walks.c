/* SPDX-License-Identifier: MIT
 * Clients of a latch on etcd, and members that fail, at random: harness/virtual_etcd_latch.h.
 *
 * What the calls report must fit the state of the latch: those steps that have counted, and at most
 * those which may have, are missing from its count; and no wait outlasts an opening. */
#include "harness/random_walk.h"
#include "harness/test.h"
#include "harness/virtual_etcd_latch.h"

#include <stdio.h>
#include <string.h>

#define ROUNDS 12
#define WALKS 60
#define CLIENTS 4

static uint64_t state;

static unsigned below(unsigned limit)
{
	return random_below(&state, limit);
}

static struct lk__op *steps[CLIENTS], *waits[CLIENTS];
static uint32_t sizes[CLIENTS];
static int64_t counted, perhaps; /* of the present generation */

/* Take the results of steps that have ended. */
static void settle(void)
{
	for (int i = 0; i < CLIENTS; i++) {
		const struct lk__op *op = steps[i];

		if (!op || !op->done)
			continue;
		steps[i] = NULL;
		if (!op->why.err && op->counted)
			counted += sizes[i];
		else if (op->why.err == LK_EUNKNOWN)
			perhaps += sizes[i];
	}
}

static void network_does(int members)
{
	static const enum em_fault faults[] = {EM_LOSE_ANSWER,   EM_CUT_BEFORE, EM_CUT_AFTER,
	                                       EM_TIME_OUT_DONE, EM_TOO_MANY,   EM_CHANGED};
	int i = (int)below(CLIENTS), member = (int)below((unsigned)members);

	switch (below(8)) {
	case 0:
		ve_cut(i);
		break;
	case 1:
	case 2:
	case 3:
		ve_join(i, member);
		break;
	case 4:
		em_elect(ve.model, member);
		break;
	case 5:
		em_cut(ve.model, member, below(3) == 0);
		break;
	case 6:
		em_stop(ve.model, member, below(3) == 0);
		break;
	default:
		em_fault(ve.model, faults[below(sizeof(faults) / sizeof(*faults))], NULL,
		         (int)below(3));
		break;
	}
}

static void client_does(int i)
{
	char name[8];

	if (ve.client[i].op_count > VE_OPS - 16)
		return;
	if (!waits[i] && below(3) == 0) {
		waits[i] = vel_await(i, false, false);
	} else if (!steps[i]) {
		snprintf(name, sizeof(name), "%u", below(30));
		sizes[i] = below(3) ? 1 : 1 + below(3);
		steps[i] = vel_down(i, sizes[i], below(3) ? NULL : name);
	}
}

static void mend(int members)
{
	for (int i = 0; i < members; i++) {
		em_cut(ve.model, i, false);
		em_stop(ve.model, i, false);
	}
	ve_pass(5000);
	if (em_leader(ve.model) < 0)
		em_elect(ve.model, 0);
	for (int turn = 0; turn < 12; turn++) { /* faults that waited may cut connections */
		for (int i = 0; i < CLIENTS; i++)
			if (!ve.client[i].connection || !turn)
				ve_join(i, i % members);
		ve_pass(1000);
	}
	settle();
}

/* Queries are sent once, and faults that waited may meet them. */
static struct lk__answer ask(enum lk__request_kind kind, int64_t count)
{
	struct lk__answer answer = {.kind = LK__FAILED};

	for (int i = 0; i < 20 && answer.kind == LK__FAILED; i++) {
		struct vel_query query;

		if (!ve.client[0].connection)
			ve_join(0, 0);
		query = vel_begin(0, kind, count, true, VEL_OPEN_MS, 0);
		answer = vel_end(0, &query);
	}
	ck_assert_int_ne(answer.kind, LK__FAILED);
	return answer;
}

/* All that the calls have reported, against the latch. */
static void check(int64_t count)
{
	struct lk__answer shown = ask(LK__SHOW, 0);

	for (int i = 0; i < CLIENTS; i++)
		ck_assert_msg(!steps[i], "a step has not ended");
	if (shown.latch_state == LK_LATCH_COUNTING) {
		ck_assert_msg(count - shown.remaining >= counted, "a step is lost");
		ck_assert_msg(count - shown.remaining <= counted + perhaps, "a step counts twice");
	} else {
		ck_assert_int_eq(shown.latch_state, LK_LATCH_OPEN);
		ck_assert_msg(counted + perhaps >= count, "it opened early");
	}
}

/* How many generations opened. */
static int walk(uint64_t seed, int members)
{
	const struct em_setup setup = {.members = members};
	int opened = 0;

	state = seed;
	vel_start(&setup, CLIENTS);
	memset(waits, 0, sizeof(waits));
	memset(steps, 0, sizeof(steps));
	for (int round = 0; round < ROUNDS; round++) {
		int64_t count = 1 + below(12);
		bool is_open;

		counted = perhaps = 0;
		ask(LK__SET, count);
		for (int i = 0; i < 25; i++) {
			if (below(3))
				client_does((int)below(CLIENTS));
			else
				network_does(members);
			ve_pass(below(4) ? below(50) : below(1500));
			settle();
		}
		mend(members);
		check(count);
		is_open = ask(LK__SHOW, 0).latch_state == LK_LATCH_OPEN;
		opened += is_open;
		for (int i = 0; i < CLIENTS; i++) {
			if (is_open && waits[i])
				ve_done(waits[i], LK_OK);
			if (waits[i] && waits[i]->done)
				waits[i] = NULL;
		}
	}
	ask(LK__SET, 0);
	mend(members);
	for (int i = 0; i < CLIENTS; i++)
		if (waits[i])
			ve_done(waits[i], LK_OK);
	ve_end();
	return opened;
}

static void walks(int members)
{
	int opened = 0;

	for (int i = 0; i < WALKS; i++)
		opened += walk(test_seed() + (uint64_t)i, members);
	printf("%d openings in %d walks\n", opened, WALKS);
	ck_assert_int_gt(opened, WALKS);
}

TEST_LIMIT(latch_of_one_member, 120)
{
	walks(1);
}

TEST_LIMIT(latch_of_three_members, 120)
{
	walks(3);
}
