/* SPDX-License-Identifier: MIT
 * The ends of calls on a quorum, tries, extensions and threads, in virtual time:
 * harness/virtual_quorum.h. */
#include "harness/test.h"
#include "harness/virtual_quorum.h"

#include <stdio.h>
#include <string.h>

/* ---- Ends of waits ------------------------------------------------------------------------ */

TEST(wait_that_times_out_leaves_nothing)
{
	struct lk__op *op;

	vq_start(3, 2);
	vq_acquire(0);
	vq_settle();
	op = vq_acquire(1);
	vq_settle();
	vq_give_up(1, op, LK_ETIMEDOUT);
	vq_waits(op);
	vq_settle();
	vq_done(op, LK_ETIMEDOUT);
	ck_assert_int_eq(vq_waiting(0), 0);
	vq_release(0);
	vq_settle();
	vq_end();
}

TEST(wait_without_a_majority_ends_with_the_reason)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_down(0);
	vq_down(2);
	op = vq_acquire(0);
	vq_pass(50);
	vq_give_up(0, op, LK_ETIMEDOUT);
	vq_settle();
	vq_done(op, LK_ECONN);
	ck_assert_msg(strstr(op->why.text, "1 of 3 servers vote, 2 are needed") != NULL, "%s",
	              op->why.text);
	vq_up(0);
	op = vq_acquire(0);
	vq_settle();
	vq_done(op, LK_OK);
	vq_up(2);
	vq_release(0);
	vq_settle();
	vq_end();
}

TEST(majority_that_refuses_ends_the_wait)
{
	struct lk__op *op;

	vq_start(3, 1);
	op = vq_acquire(0);
	vq_refuse(0, 0, "NOPERM no right");
	vq_waits(op);
	vq_refuse(0, 1, "NOPERM no right");
	vq_done(op, LK_EAUTH);
	vq_settle();
	vq_end();
}

TEST(minority_that_refuses_is_asked_again_after_a_while)
{
	struct lk__op *op;

	vq_start(3, 1);
	op = vq_acquire(0);
	vq_refuse(0, 0, "NOPERM no right");
	vq_settle();
	vq_done(op, LK_OK);
	ck_assert_str_eq(vq_value(0), "");
	vq_pass(LK__REASK_MAX_MS + 100);
	ck_assert(vq_value(0)[0]);
	vq_release(0);
	vq_settle();
	vq_end();
}

/* ---- Yields ------------------------------------------------------------------------------- */

/* A majority is granted, and its counters differ: an older ticket comes before they are raised. */
TEST(decided_ticket_yields_nothing)
{
	struct lk__op *older, *younger;
	char class[16], fence[32];

	vq_start(3, 2);
	vq_down(2);
	snprintf(class, sizeof(class), "%u", lk__slot_of("name", 4) % 1024);
	snprintf(fence, sizeof(fence), "%lld", (long long)vq_store_us(1) + 1000000);
	lua_store_text(vq.server[1].store, "HSET", "lk:fences", class, fence, NULL);
	older = vq_acquire(0);
	vq_set_time(vq.now_ns + VQ_MS);
	younger = vq_acquire(1);
	for (int i = 0; i < 2; i++)
		ck_assert(vq_send(1, i) && vq_execute(1, i));
	for (int i = 0; i < 2; i++)
		ck_assert(vq_send(0, i) && vq_execute(0, i));
	for (int i = 0; i < 2; i++)
		ck_assert(vq_reply(1, i));
	vq_waits(younger);
	for (int i = 0; i < 2; i++)
		ck_assert(vq_hear(1, i));
	vq_settle();
	vq_done(younger, LK_OK);
	ck_assert_int_eq(vq.runs[LK__YIELD], 0);
	vq_release(1);
	vq_settle();
	vq_done(older, LK_OK);
	vq_up(2);
	vq_release(0);
	vq_settle();
	vq_end();
}

/* ---- Tries -------------------------------------------------------------------------------- */

TEST(try_is_granted_or_busy)
{
	struct lk__op *op;

	vq_start(3, 2);
	op = vq_try(0);
	vq_settle();
	vq_done(op, LK_OK);
	op = vq_try(1);
	vq_settle();
	vq_done(op, LK_EBUSY);
	vq_release(0);
	vq_settle();
	vq_end();
}

TEST(try_that_can_get_no_majority_ends_at_once)
{
	struct lk__op *op;

	vq_start(3, 2);
	vq_acquire(0);
	vq_settle();
	vq_down(2);
	op = vq_try(1);
	ck_assert(vq_send(1, 0) && vq_execute(1, 0) && vq_reply(1, 0));
	vq_done(op, LK_EBUSY);
	vq_release(0);
	vq_up(2);
	vq_settle();
	vq_end();
}

TEST(hold_of_a_try_gets_its_other_legs)
{
	struct lk__op *op;

	vq_start(3, 2);
	vq_down(2);
	op = vq_try(0);
	vq_settle();
	vq_done(op, LK_OK);
	vq_up(2);
	vq_settle();
	ck_assert_int_eq(vq_leg(0, 2)->state, LK__HOLDING);
	vq_release(0);
	vq_settle();
	vq_end();
}

TEST(hold_of_a_try_waits_for_the_leg_that_was_busy)
{
	struct lk__op *op;

	vq_start(3, 2);
	lua_store_text(vq.server[2].store, "SET", "lk:{name}",
	               "q1:bclient_AAAAAAAAAAAAAA:AAAAAAAAAAA:3000:r:1:0 9 3000 -", "PX", "1000",
	               NULL);
	op = vq_try(0);
	vq_settle();
	vq_done(op, LK_OK);
	ck_assert_int_eq(vq_waiting(2), 1);
	vq_pass(1500);
	ck_assert_int_eq(vq_leg(0, 2)->state, LK__HOLDING);
	vq_release(0);
	vq_settle();
	vq_end();
}

TEST(waiter_behind_a_try_that_is_busy_waits)
{
	struct lk__op *tries, *waits;

	vq_start(3, 2);
	vq_acquire(0);
	vq_settle();
	tries = vq_try(1);
	waits = vq_acquire(1);
	vq_settle();
	vq_done(tries, LK_EBUSY);
	vq_waits(waits);
	vq_release(0);
	vq_settle();
	vq_done(waits, LK_OK);
	vq_release(1);
	vq_settle();
	vq_end();
}

/* ---- Extensions --------------------------------------------------------------------------- */

TEST(extension_is_confirmed_by_a_majority)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_acquire(0);
	vq_settle();
	vq_down(1);
	op = vq_extend(0, 9000);
	vq_settle();
	vq_done(op, LK_OK);
	ck_assert_int_gt(lk__hold_left_ns(vq_hold(0), vq.now_ns), 8800 * VQ_MS);
	vq_up(1);
	vq_release(0);
	vq_settle();
	vq_end();
}

TEST(extension_that_one_server_confirms_is_unknown)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_acquire(0);
	vq_settle();
	vq_down(1);
	vq_down(2);
	op = vq_extend(0, 9000);
	vq_pass(VQ_TIMEOUT_MS);
	vq_done(op, LK_EUNKNOWN);
	vq_up(1);
	vq_up(2);
	vq_pass(100);
	vq_release(0);
	vq_settle();
	vq_end();
}

TEST(abandoned_extension_does_not_confirm_the_next_one)
{
	struct lk__op *first, *second;

	vq_start(3, 1);
	vq_acquire(0);
	vq_settle();
	first = vq_extend(0, 9000);
	for (int i = 0; i < 2; i++)
		ck_assert(vq_send(0, i) && vq_execute(0, i));
	second = vq_extend(0, 12000);
	lk__core_abandon(&vq.client[0].core, vq.now_ns, first);
	vq_done(first, LK_EUNKNOWN);
	ck_assert(vq_reply(0, 0) && vq_reply(0, 1));
	vq_waits(second);
	vq_settle();
	vq_done(second, LK_OK);
	ck_assert_int_gt(lk__hold_left_ns(vq_hold(0), vq.now_ns), 11000 * VQ_MS);
	vq_release(0);
	vq_settle();
	vq_end();
}

/* ---- Threads ------------------------------------------------------------------------------ */

TEST(threads_of_a_client_share_a_ticket_and_exclude_each_other)
{
	struct lk__op *first, *second;

	vq_start(3, 1);
	first = vq_acquire_of(0, vq.client[0].queue, 1);
	second = vq_acquire_of(0, vq.client[0].queue, 2);
	vq_settle();
	vq_done(first, LK_OK);
	vq_waits(second);
	ck_assert_int_eq(vq.runs[LK__ASK], 3);
	vq_release_of(0, vq.client[0].queue, 1);
	vq_settle();
	vq_done(second, LK_OK);
	ck_assert_uint_gt(second->fence, first->fence);
	ck_assert_int_eq(vq.runs[LK__ASK], 6); /* the fence of a hand-over would not be committed */
	vq_release_of(0, vq.client[0].queue, 2);
	vq_settle();
	vq_end();
}

TEST(reentry_costs_nothing)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_acquire(0);
	vq_settle();
	op = vq_acquire(0);
	vq_done(op, LK_OK);
	vq_done(vq_release(0), LK_OK);
	ck_assert_int_eq(vq_state(0), LK_STATE_HELD);
	vq_release(0);
	vq_settle();
	ck_assert_int_eq(vq.runs[LK__ASK], 3);
	vq_end();
}
