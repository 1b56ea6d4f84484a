/* SPDX-License-Identifier: MIT
 * A latch on etcd and its steps, in virtual time: harness/virtual_etcd_latch.h. */
#include "harness/test.h"
#include "harness/virtual_etcd_latch.h"

#include <string.h>

static const struct em_setup one = {.members = 1}, three = {.members = 3};

static int txns(void)
{
	return ve.calls[LK__ETCD_CALL_TXN];
}

/* ---- Set, reset, remove ---- */

TEST(latch_is_set_shown_and_removed)
{
	struct lk__answer answer;
	uint64_t first;

	vel_start(&one, 2);
	vel_is(LK_LATCH_ABSENT, 0);
	answer = vel_set(0, 3, false, VEL_OPEN_MS, 0);
	ck_assert_int_eq(answer.kind, LK__MADE);
	ck_assert_int_eq(answer.latch_state, LK_LATCH_ABSENT);
	answer = vel_show(1);
	ck_assert_int_eq(answer.latch_state, LK_LATCH_COUNTING);
	ck_assert_int_eq(answer.initial, 3);
	ck_assert_int_eq(answer.left_ms, -1);
	first = answer.fence;
	ck_assert_uint_gt(first, 0);
	vel_downs(1, 1, NULL, 2, true);
	answer = vel_set(0, 9, false, VEL_OPEN_MS, 0);
	ck_assert_int_eq(answer.kind, LK__COUNTS);
	ck_assert_int_eq(answer.remaining, 2);
	ck_assert_int_eq(answer.initial, 3);
	answer = vel_set(0, 9, true, VEL_OPEN_MS, 0);
	ck_assert_int_eq(answer.kind, LK__MADE);
	ck_assert_int_eq(answer.latch_state, LK_LATCH_COUNTING);
	vel_is(LK_LATCH_COUNTING, 9);
	ck_assert_uint_gt(vel_show(0).fence, first);
	ck_assert_int_eq(vel_keys(), 1);
	ck_assert_int_eq(vel_remove(1).kind, LK__DONE);
	ck_assert_int_eq(vel_remove(1).kind, LK__ABSENT);
	vel_is(LK_LATCH_ABSENT, 0);
	ck_assert_int_eq(vel_keys(), 0);
	ve_end();
}

TEST(latch_of_none_is_open_at_once)
{
	struct lk__answer answer;

	vel_start(&one, 2);
	vel_make(0);
	answer = vel_show(0);
	ck_assert_int_eq(answer.latch_state, LK_LATCH_OPEN);
	ck_assert_int_gt(answer.left_ms, VEL_OPEN_MS - 3000);
	ck_assert_int_le(answer.left_ms, VEL_OPEN_MS);
	ck_assert_uint_eq(answer.opened, answer.fence);
	answer = vel_set(0, 1, false, VEL_OPEN_MS, 0);
	ck_assert_int_eq(answer.latch_state, LK_LATCH_OPEN);
	vel_is(LK_LATCH_COUNTING, 1);
	ve_end();
}

/* ---- Steps ---- */

TEST(step_costs_one_transaction_and_the_last_one_two)
{
	struct lk__op *op;
	int before;

	vel_start(&one, 2);
	vel_make(4);
	vel_downs(0, 1, NULL, 3, true);
	vel_downs(1, 1, NULL, 2, true);
	before = txns();
	op = vel_down(0, 1, NULL);
	ve_settle();
	ve_done(op, LK_OK);
	ck_assert_int_eq(txns() - before, 1);
	op = vel_down(0, 1, NULL);
	ve_settle();
	ve_done(op, LK_OK);
	ck_assert_int_eq(txns() - before, 3);
	ck_assert_int_eq(ve.calls[LK__ETCD_CALL_GRANT], 1); /* no lease of the client's own */
	vel_is(LK_LATCH_OPEN, 0);
	ck_assert_int_eq(vel_keys(), 1);
	ve_end();
}

TEST(steps_of_many_count_together)
{
	vel_start(&one, 3);
	vel_make(20);
	vel_downs(0, 1, NULL, 19, true);
	vel_downs(0, 3, NULL, 16, true);
	vel_downs(1, 5, NULL, 11, true);
	vel_downs(1, 1, NULL, 10, true);
	vel_downs(2, 1, NULL, 9, true);
	vel_downs(0, 1, NULL, 8, true);
	vel_downs(2, 1, NULL, 7, true);
	vel_is(LK_LATCH_COUNTING, 7);
	vel_downs(1, 100, NULL, 0, true);
	vel_downs(1, 1, NULL, 0, false);
	vel_is(LK_LATCH_OPEN, 0);
	ve_end();
}

TEST(named_step_counts_once_whoever_sends_it)
{
	vel_start(&one, 3);
	vel_make(9);
	vel_downs(0, 1, "a/b", 8, true);
	vel_downs(0, 1, "a/b", 8, false);
	vel_downs(1, 2, "a/b", 8, false);
	vel_downs(1, 2, "a", 6, true);
	vel_downs(2, 1, "a", 6, false);
	vel_downs(2, 1, NULL, 5, true);
	vel_make(3);
	vel_downs(1, 1, "a", 2, true);
	vel_downs(1, 1, "b", 1, true);
	vel_downs(2, 1, "c", 0, true);
	vel_downs(2, 1, "c", 0, false);
	ve_end();
}

TEST(step_without_a_latch_is_told)
{
	struct lk__op *op;

	vel_start(&one, 1);
	op = vel_down(0, 1, NULL);
	ve_pass(200);
	ve_done(op, LK_EABSENT);
	ve_end();
}

/* The caller means the latch as it is now. */
TEST(step_that_finds_another_generation_counts_there)
{
	struct lk__op *op;

	vel_start(&one, 2);
	vel_make(3);
	vel_downs(1, 1, NULL, 2, true);
	vel_make(5);
	op = vel_down(1, 1, NULL); /* it knows the former one */
	ve_pass(200);
	ve_done(op, LK_OK);
	ck_assert_int_eq(op->remaining, 4);
	ve_end();
}

TEST(step_whose_answer_is_lost_counts_once)
{
	static const enum em_fault faults[] = {EM_CUT_AFTER, EM_CUT_BEFORE, EM_TIME_OUT_DONE,
	                                       EM_TIME_OUT, EM_LOSE_ANSWER};

	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
		struct lk__op *op;

		vel_start(&one, 2);
		vel_make(10);
		vel_downs(1, 1, NULL, 9, true);
		em_fault(ve.model, faults[i], "/etcdserverpb.KV/Txn", 0);
		op = vel_down(1, 2, i % 2 ? "x" : NULL);
		ve_pass(100);
		ve_cut(1);
		ve_join(1, 0);
		ve_pass(500);
		ve_done(op, LK_OK);
		ck_assert_int_eq(op->remaining, 7);
		ck_assert_int_eq(op->counted, true);
		vel_is(LK_LATCH_COUNTING, 7);
		ve_end();
	}
}

/* A look that comes before its repetition shows it. */
TEST(step_whose_answer_is_lost_counts_once_beside_a_wait)
{
	for (int skip = 0; skip < 2; skip++) {
		struct lk__op *op, *waits;

		vel_start(&one, 2);
		vel_make(10);
		waits = vel_waits(1, false);
		em_fault(ve.model, EM_CUT_AFTER, "/etcdserverpb.KV/Txn", 0);
		op = vel_down(1, 1, NULL);
		ve_pass(100);
		em_fault(ve.model, EM_CUT_BEFORE, "/etcdserverpb.KV/Txn", skip);
		ve_join(1, 0);
		ve_pass(100);
		ve_join(1, 0);
		ve_pass(1000);
		ck_assert_int_eq(em_faults_left(ve.model), 0);
		ve_done(op, LK_OK);
		ck_assert_int_eq(op->remaining, 9);
		vel_downs(0, 9, NULL, 0, true);
		ve_pass(500);
		ve_done(waits, LK_OK);
		ve_end();
	}
}

/* It came after the last one, which had not opened the latch yet. */
TEST(step_beyond_the_last_one_does_not_count_if_its_answer_is_lost)
{
	struct lk__op *op;

	vel_start(&one, 3);
	vel_make(3);
	vel_downs(1, 1, NULL, 2, true);
	vel_downs(2, 1, NULL, 1, true);
	em_fault(ve.model, EM_CUT_AFTER, "/etcdserverpb.KV/Txn", 0);
	vel_down(2, 1, NULL);
	ve_pass(10);
	ve.client[2].is_stopped = true;
	em_fault(ve.model, EM_CUT_AFTER, "/etcdserverpb.KV/Txn", 0);
	op = vel_down(1, 1, NULL);
	ve_pass(10);
	ve_join(1, 0);
	ve_pass(500);
	ve_done(op, LK_OK);
	ck_assert_int_eq(op->remaining, 0);
	ck_assert_int_eq(op->counted, false);
	ve.client[2].is_stopped = false;
	ve_join(2, 0);
	ve_pass(500);
	vel_is(LK_LATCH_OPEN, 0);
	ve_end();
}

/* Also if the latch has opened meanwhile: its history says what the step did. */
TEST(step_whose_answer_is_lost_is_found_in_an_open_latch)
{
	for (int number = 0; number < 2; number++) {
		struct lk__op *op;

		vel_start(&one, 2);
		vel_make(4);
		if (number)
			vel_downs(1, 1, NULL, 3, true);
		em_fault(ve.model, EM_CUT_AFTER, "/etcdserverpb.KV/Txn", number ? 0 : 1);
		op = vel_down(1, 1, NULL);
		ve_pass(100);
		ve_waits(op);
		vel_downs(0, 7, NULL, 0, true);
		ve_join(1, 0);
		ve_pass(500);
		ve_done(op, LK_OK);
		ck_assert_int_eq(op->remaining, 0);
		ck_assert_int_eq(op->counted, true);
		ve_end();
	}
}

/* Client 1 has counted one of four, and its connection ends amid its next step. */
static struct lk__op *step_amid_a_cut(enum em_fault fault)
{
	struct lk__op *op;

	vel_start(&one, 2);
	vel_make(4);
	vel_downs(1, 1, NULL, 3, true);
	em_fault(ve.model, fault, "/etcdserverpb.KV/Txn", 0);
	op = vel_down(1, 1, NULL);
	ve_pass(100);
	ve_waits(op);
	return op;
}

TEST(step_that_was_not_executed_does_not_count_in_an_open_latch)
{
	struct lk__op *op = step_amid_a_cut(EM_CUT_BEFORE);

	vel_downs(0, 7, NULL, 0, true);
	ve_join(1, 0);
	ve_pass(500);
	ve_done(op, LK_OK);
	ck_assert_int_eq(op->counted, false);
	ve_end();
}

TEST(step_of_a_former_generation_is_unknown)
{
	struct lk__op *op = step_amid_a_cut(EM_CUT_AFTER);

	vel_make(4);
	ve_join(1, 0);
	ve_pass(500);
	ve_done(op, LK_EUNKNOWN);
	vel_is(LK_LATCH_COUNTING, 4);
	ve_end();
}

/* A leader that was stopped executes it later: for the same generation it counts once, for the next
 * one not at all. */
TEST(step_that_is_executed_late_counts_once)
{
	for (int resets = 0; resets < 2; resets++) {
		struct lk__op *op;

		vel_start(&three, 2);
		ve_join(1, 1);
		vel_make(4);
		vel_downs(1, 1, NULL, 3, true);
		em_stop(ve.model, 0, true);
		op = vel_down(1, 1, NULL);
		ve_pass(7500);
		em_stop(ve.model, 0, false);
		if (em_leader(ve.model) < 0)
			em_elect(ve.model, 1);
		ve_join(0, 1);
		ve_join(1, 1);
		if (resets)
			vel_make(4);
		ve_pass(3000);
		ve_done(op, LK_EUNKNOWN); /* it continues in the background */
		ck_assert_int_eq(vel_show(0).remaining, resets ? 4 : 2);
		ve_end();
	}
}

/* The late copy of a step must not undo the next one. */
TEST(step_that_is_executed_late_undoes_nothing)
{
	vel_start(&three, 2);
	ve_join(1, 1);
	vel_make(20);
	vel_downs(1, 2, NULL, 18, true);
	em_stop(ve.model, 0, true);
	vel_down(1, 3, NULL);
	ve_pass(6000);
	em_elect(ve.model, 1);
	ve_join(0, 1);
	ve_join(1, 1);
	ve_pass(1000);
	vel_is(LK_LATCH_COUNTING, 15);
	vel_downs(1, 4, NULL, 11, true);
	em_stop(ve.model, 0, false);
	ve_pass(3000);
	vel_is(LK_LATCH_COUNTING, 11);
	ve_end();
}

/* ---- Other kinds, foreign keys, a full store ---- */

static const char *const keys_of_others[] = {"lk/L/gate/7", "lk/Sgate", "lk/S/gate/7"};

TEST(name_of_a_lock_or_a_semaphore_is_no_latch)
{
	for (size_t i = 0; i < sizeof(keys_of_others) / sizeof(*keys_of_others); i++) {
		struct lk__op *op;

		vel_start(&one, 2);
		ve_put(keys_of_others[i], "1");
		ck_assert_int_eq(vel_set(0, 2, false, VEL_OPEN_MS, 0).err, LK_EFOREIGN);
		ck_assert_int_eq(vel_set(0, 2, true, VEL_OPEN_MS, 0).err, LK_EFOREIGN);
		ck_assert_int_eq(vel_remove(0).err, LK_EFOREIGN);
		ck_assert_int_eq(vel_show(0).err, LK_EFOREIGN);
		op = vel_await(1, false, true);
		ve_pass(100);
		ve_done(op, LK_EFOREIGN);
		ck_assert_ptr_nonnull(strstr(op->why.text, i ? "a semaphore" : "a lock"));
		op = vel_down(1, 1, NULL);
		ve_pass(100);
		ve_done(op, LK_EFOREIGN);
		ck_assert_int_eq(vel_keys(), 0);
		ve_delete(keys_of_others[i]);
		vel_make(1);
		ve_end();
	}
}

/* Between the read and the transaction that makes it. */
TEST(latch_is_not_made_beside_a_lock_that_comes_at_the_same_time)
{
	for (size_t i = 0; i < sizeof(keys_of_others) / sizeof(*keys_of_others); i++) {
		struct vel_query made;

		vel_start(&one, 1);
		ve_hold_back();
		made = vel_begin(0, LK__SET, 5, false, VEL_OPEN_MS, 0);
		ve_settle();
		ve_put(keys_of_others[i], "1");
		ve_let_go();
		ck_assert_int_eq(vel_end(0, &made).err, LK_EFOREIGN);
		ck_assert_int_eq(vel_keys(), 0);
		ve_delete(keys_of_others[i]);
		ve_end();
	}
}

TEST(foreign_key_is_left_alone)
{
	static const char *const values[] = {"", "x", "1 c", "1 c 3 x 0", "2 c 3 60000 0", "1 o 3"};

	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		vel_start(&one, 1);
		ve_put("lk/Dgate", values[i]);
		ck_assert_int_eq(vel_set(0, 2, true, VEL_OPEN_MS, 0).err, LK_EFOREIGN);
		ck_assert_int_eq(vel_remove(0).err, LK_EFOREIGN);
		ck_assert_int_eq(vel_show(0).err, LK_EFOREIGN);
		ck_assert_int_eq(vel_keys(), 1);
		ve_delete("lk/Dgate");
		ve_end();
	}
}

TEST(full_store_counts_nothing_and_removes)
{
	struct lk__op *op;

	vel_start(&one, 2);
	vel_make(2);
	vel_downs(1, 1, NULL, 1, true);
	em_set_full(ve.model, true);
	ck_assert_int_eq(vel_set(0, 7, true, VEL_OPEN_MS, 0).err, LK_ESERVER);
	op = vel_down(1, 1, NULL);
	ve_pass(300);
	ve_waits(op); /* and tries again */
	vel_is(LK_LATCH_COUNTING, 1);
	ve_pass(VE_TIMEOUT_MS);
	ck_assert(op->done);
	ck_assert_int_ne(op->why.err, LK_OK);
	ck_assert_int_ne(op->why.err, LK_EUNKNOWN);
	vel_is(LK_LATCH_COUNTING, 1);
	ck_assert_int_eq(vel_remove(0).kind, LK__DONE);
	em_set_full(ve.model, false);
	ve_end();
}

/* The count was complete when the store became full: that is not forgotten. */
TEST(last_step_in_a_store_that_becomes_full_is_not_denied)
{
	struct lk__op *op;

	vel_start(&one, 2);
	vel_make(2);
	vel_downs(1, 1, NULL, 1, true);
	ve_hold_back();
	op = vel_down(1, 1, NULL);
	ve_settle();
	em_set_full(ve.model, true);
	ve_let_go();
	ve_pass(VE_TIMEOUT_MS + 1000);
	ve_done(op, LK_EUNKNOWN);
	em_set_full(ve.model, false);
	ve_pass(500);
	vel_is(LK_LATCH_OPEN, 0);
	ve_end();
}
