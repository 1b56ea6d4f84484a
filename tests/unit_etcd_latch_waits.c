/* SPDX-License-Identifier: MIT
 * Waits for a latch on etcd, in virtual time: harness/virtual_etcd_latch.h. */
#include "harness/test.h"
#include "harness/virtual_etcd_latch.h"

static const struct em_setup one = {.members = 1};

static int txns(void)
{
	return ve.calls[LK__ETCD_CALL_TXN];
}

/* ---- Waits ---- */

TEST(look_costs_one_transaction_and_an_opening_none)
{
	struct lk__op *ops[4];
	int before;

	vel_start(&one, 4);
	vel_make(1);
	before = txns();
	ck_assert_int_eq(ve.calls[LK__ETCD_CALL_GRANT], 0);
	for (int i = 1; i < 4; i++)
		ops[i] = vel_waits(i, false);
	ck_assert_int_eq(txns() - before, 6); /* before the subscription, and after it */
	vel_downs(0, 1, NULL, 0, true);
	for (int i = 1; i < 4; i++)
		ve_done(ops[i], LK_OK);
	ck_assert_int_eq(txns() - before, 6 + 3); /* a look for the generation, and two */
	before = txns();
	ops[1] = vel_await(1, false, false);
	ve_settle();
	ve_done(ops[1], LK_OK);
	ck_assert_int_eq(txns() - before, 1);
	ve_end();
}

TEST(wait_ends_with_the_opening_of_its_generation_or_a_later_one)
{
	struct lk__op *waits, *content, *absent, *tries;

	vel_start(&one, 3);
	tries = vel_await(1, true, false);
	absent = vel_await(1, false, true);
	ve_pass(100);
	ve_done(tries, LK_EBUSY);
	ve_done(absent, LK_OK);
	waits = vel_waits(1, false);
	vel_make(2);
	content = vel_waits(2, true);
	vel_make(3);
	ve_pass(100);
	ve_waits(content);
	ck_assert_int_eq(vel_remove(0).kind, LK__DONE);
	ve_pass(100);
	ve_done(content, LK_OK);
	ve_waits(waits);
	vel_make(1);
	vel_downs(0, 1, NULL, 0, true);
	ve_done(waits, LK_OK);
	waits = vel_await(1, false, false);
	ve_pass(100);
	ve_done(waits, LK_OK);
	vel_make(1);
	ve_end();
}

TEST(waiter_that_was_cut_off_hears_of_what_it_has_missed)
{
	struct lk__op *waits, *content;

	vel_start(&one, 3);
	vel_make(1);
	waits = vel_waits(1, false);
	content = vel_waits(2, true);
	ve_cut(1);
	ve_cut(2);
	vel_downs(0, 1, NULL, 0, true);
	ck_assert_int_eq(vel_remove(0).kind, LK__DONE);
	vel_make(5);
	ve_join(1, 0);
	ve_join(2, 0);
	ve_pass(500);
	ve_done(waits, LK_OK);
	ve_done(content, LK_OK);
	ve_end();
}

/* Client 1 waits for a latch of one step, and has no connection any more. */
static struct lk__op *wait_amid_a_cut(void)
{
	struct lk__op *waits;

	vel_start(&one, 2);
	vel_make(1);
	waits = vel_waits(1, false);
	ve_cut(1);
	return waits;
}

/* The same, while nothing is there any more. */
TEST(waiter_that_was_cut_off_hears_of_a_latch_that_is_gone)
{
	struct lk__op *waits = wait_amid_a_cut();

	vel_downs(0, 1, NULL, 0, true);
	ck_assert_int_eq(vel_remove(0).kind, LK__DONE);
	ve_join(1, 0);
	ve_pass(500);
	ve_done(waits, LK_OK);
	ve_end();
}

static void compact(void)
{
	uint64_t connection = em_connect(ve.model, 0);
	unsigned char bytes[16];
	struct lk__pb_writer writer;

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__pb_put_number(&writer, 1, (uint64_t)em_revision(ve.model));
	em_call(ve.model, connection, "/etcdserverpb.KV/Compact",
	        &(struct em_metadata){.has_leader = true},
	        (struct lk__bytes){writer.data, writer.len});
	ve_settle();
	em_disconnect(ve.model, connection);
}

/* What was compacted is not heard of; the state is. */
TEST(waiter_whose_history_was_compacted_looks_again)
{
	struct lk__op *waits = wait_amid_a_cut();

	vel_make(2);
	vel_downs(0, 1, NULL, 1, true);
	compact();
	ve_join(1, 0);
	ve_pass(500);
	ve_waits(waits);
	vel_downs(0, 1, NULL, 0, true);
	ve_done(waits, LK_OK);
	ve_end();
}

/* An opening that a latch remembers is known after that, too. */
TEST(opening_before_a_reset_is_remembered_by_the_latch)
{
	struct lk__op *waits = wait_amid_a_cut();

	vel_downs(0, 1, NULL, 0, true);
	vel_make(2);
	compact();
	ve_join(1, 0);
	ve_pass(500);
	ve_done(waits, LK_OK);
	ve_end();
}

/* ---- Times to live ---- */

TEST(times_to_live_end_a_latch_and_its_steps)
{
	struct lk__op *content, *waits;

	vel_start(&one, 3);
	ck_assert_int_eq(vel_set(0, 2, true, 1500, 3000).kind, LK__MADE);
	ck_assert_int_gt(vel_show(0).left_ms, 1000);
	vel_downs(1, 1, "x", 1, true);
	content = vel_waits(1, true);
	waits = vel_waits(2, false);
	ck_assert_int_eq(vel_keys(), 3);
	ve_pass(5000);
	ck_assert_int_eq(vel_keys(), 0);
	ve_done(content, LK_OK);
	ve_waits(waits);
	vel_is(LK_LATCH_ABSENT, 0);
	ck_assert_int_eq(vel_set(0, 1, true, 1500, 3000).kind, LK__MADE);
	vel_downs(1, 1, "x", 0, true);
	ve_done(waits, LK_OK);
	vel_is(LK_LATCH_OPEN, 0);
	ve_pass(5000);
	ck_assert_int_eq(vel_keys(), 0);
	ve_end();
}

/* Its step is put under a lease that has ended meanwhile. */
TEST(step_on_a_latch_that_has_expired_is_told)
{
	struct lk__op *op;
	int before;

	vel_start(&one, 2);
	ck_assert_int_eq(vel_set(0, 20, true, VEL_OPEN_MS, 2000).kind, LK__MADE);
	vel_downs(1, 1, NULL, 19, true);
	do {
		before = txns();
		op = vel_down(1, 1, NULL);
		ve_pass(500);
		ck_assert(op->done);
	} while (!op->why.err);
	ve_done(op, LK_EABSENT);
	ck_assert_int_le(txns() - before, 2); /* the step, and why there is no lease */
	ve_end();
}

/* ---- Clients that die ---- */

/* The last step was counted, and its client has died before it could write that. */
TEST(opening_that_nobody_has_written_is_written_by_the_next_one)
{
	for (int what = 0; what < 5; what++) {
		struct lk__answer answer;
		struct lk__op *op, *waits;

		vel_start(&one, 3);
		vel_make(2);
		vel_downs(1, 1, NULL, 1, true);
		waits = vel_waits(2, false);
		em_fault(ve.model, EM_CUT_AFTER, "/etcdserverpb.KV/Txn", 0);
		vel_down(1, 1, NULL);
		ve_pass(100);
		ve.client[1].is_stopped = true;
		ve_waits(waits);
		switch (what) {
		case 0:
			break; /* a waiter */
		case 1:
			op = vel_down(0, 1, NULL);
			ve_pass(200);
			ve_done(op, LK_OK);
			ck_assert_int_eq(op->remaining, 0);
			ck_assert_int_eq(op->counted, false);
			break;
		case 2:
			answer = vel_set(0, 7, false, VEL_OPEN_MS, 0);
			ck_assert_int_eq(answer.kind, LK__MADE);
			ck_assert_int_eq(answer.latch_state, LK_LATCH_OPEN);
			break;
		case 3:
			ck_assert_int_eq(vel_remove(0).kind, LK__DONE);
			break;
		default:
			vel_is(LK_LATCH_OPEN, 0);
			break;
		}
		ve_pass(what ? 500 : 11000);
		ve_done(waits, LK_OK);
		ve.client[1].is_stopped = false;
		ve_join(1, 0);
		ve_pass(500);
		ve_end();
	}
}

/* A reset must not forget a last step that comes just before it. */
TEST(reset_sees_the_last_step_that_comes_before_it)
{
	struct vel_query reset;
	struct lk__op *waits, *op;

	vel_start(&one, 3);
	vel_make(2);
	vel_downs(1, 1, NULL, 1, true);
	waits = vel_waits(2, false);
	ve_hold_back();
	reset = vel_begin(0, LK__SET, 5, true, VEL_OPEN_MS, 0);
	ve_settle(); /* it has read */
	em_fault(ve.model, EM_CUT_AFTER, "/etcdserverpb.KV/Txn", 0);
	op = vel_down(1, 1, NULL);
	ve_settle(); /* it was counted, and has not opened the latch */
	ve.client[1].is_stopped = true;
	ve_let_go();
	ck_assert_int_eq(vel_end(0, &reset).kind, LK__MADE);
	ve_pass(200);
	ve_done(waits, LK_OK);
	vel_is(LK_LATCH_COUNTING, 5);
	ve.client[1].is_stopped = false;
	ve_join(1, 0);
	ve_pass(500);
	ve_done(op, LK_EUNKNOWN);
	ve_end();
}
