/* SPDX-License-Identifier: MIT
 * A lock on etcd whose store is full, was restored, or has lost a mailbox, in virtual time. */
#include "harness/test.h"
#include "harness/virtual_etcd.h"

#include <stdio.h>
#include <string.h>

static const struct em_setup one = {.members = 1}, three = {.members = 3};

/* By itself, or with its lease.  The waiter would look by itself much later. */
TEST(mailbox_that_was_deleted_is_put_again)
{
	for (int with_lease = 0; with_lease < 2; with_lease++) {
		struct lk__op *op;
		char key[64];
		ve_start(&one, 2);
		ve_holds(0);
		ve_begin_waiting(1, &op);
		snprintf(key, sizeof(key), "lk/c/%s", ve.client[1].id);
		if (with_lease)
			ve_revoke(ve.client[1].session.home->id);
		else
			ve_delete(key);
		ve_pass(100);
		ve_releases(0);
		ve_done(op, LK_OK);
		ve_releases(1);
		ve_end();
	}
}

TEST(full_store_releases_and_renews)
{
	struct lk__op *ops[3];

	ve_start(&one, 3);
	ve_holds(0);
	for (int i = 1; i < 3; i++)
		ve_begin_waiting(i, &ops[i]);
	ve_releases(0);
	ve_done(ops[1], LK_OK);
	em_set_full(ve.model, true);
	ve_pass(3 * VE_LEASE_MS);
	ck_assert_int_eq(ve_state(1), LK_STATE_HELD);
	ve_releases(1); /* it knows the next one, and cannot write to it */
	ve_pass(200);
	ve_done(ops[2], LK_OK);
	ve_releases(2);
	ck_assert_int_eq(ve_tickets(), 0);
	em_set_full(ve.model, false);
	ve_end();
}

/* Nobody holds the lock: it is not busy. */
TEST(wait_in_a_full_store_ends_with_the_reason)
{
	for (int cuts = 0; cuts < 2; cuts++) {
		struct lk__op *op;
		ve_start(&one, 1);
		em_set_full(ve.model, true);
		op = ve_acquire(0);
		ve_pass(1000);
		if (cuts) { /* the ask may have been executed, as far as the client knows */
			ve_cut(0);
			ve_join(0, 0);
		}
		ve_pass(2000);
		ve_waits(op);
		ve_give_up(0, op, LK_ETIMEDOUT);
		ve_pass(1000);
		ve_done(op, LK_ESERVER);
		ck_assert_ptr_nonnull(strstr(op->why.text, "space exceeded"));
		em_set_full(ve.model, false);
		ve_holds(0);
		ve_releases(0);
		ve_end();
	}
}

TEST(cancelled_wait_in_a_full_store_was_cancelled)
{
	struct lk__op *op;

	ve_start(&one, 1);
	em_set_full(ve.model, true);
	op = ve_acquire(0);
	ve_pass(1000);
	ve_give_up(0, op, LK_ECANCELED);
	ve_pass(1000);
	ve_done(op, LK_ECANCELED);
	em_set_full(ve.model, false);
	ve_end();
}

/* The new connection has no era. */
TEST(full_store_releases_over_another_connection)
{
	struct lk__op *op;

	ve_start(&one, 2);
	ve_holds(0);
	ve_begin_waiting(1, &op);
	em_set_full(ve.model, true);
	ve_cut(0);
	ve_join(0, 0);
	ve_pass(3 * VE_LEASE_MS);
	ck_assert_int_eq(ve_state(0), LK_STATE_HELD);
	ve_releases(0);
	ve_pass(200);
	ve_done(op, LK_OK);
	em_set_full(ve.model, false);
	ve_releases(1);
	ve_pass(1000);
	ve_holds(0);
	ve_releases(0);
	ve_end();
}

/* As ask_that_is_executed_late_puts_no_ticket, but the store is full when its caller gives up. */
TEST(ask_of_before_the_store_was_full_puts_no_ticket)
{
	struct lk__op *op;

	ve_start(&three, 1);
	ve_join(0, 1);
	ve_pass(200);
	ve_holds(0);
	ve_releases(0);
	em_stop(ve.model, 0, true);
	op = ve_acquire(0);
	ve_pass(200);
	ve_waits(op);
	ve_cut(0);
	ck_assert(em_elect(ve.model, 2));
	em_set_full(ve.model, true);
	ve_give_up(0, op, LK_ETIMEDOUT);
	ve_join(0, 2);
	ve_pass(1000);
	ve_cut(0); /* before it puts its next era */
	em_set_full(ve.model, false);
	em_stop(ve.model, 0, false);
	ve_pass(1000);
	ck_assert_int_eq(ve_tickets(), 0);
	ve_join(0, 2);
	ve_pass(10000);
	ve_end();
}

TEST(restored_store_ends_what_it_has_of_the_client)
{
	ve_start(&one, 1);
	ve_holds(0);
	ve_pass(VE_LEASE_MS);
	ve.client[0].session.revision += 1000;
	ve_pass(VE_LEASE_MS / 2);
	ck_assert_int_eq(ve_state(0), LK_STATE_LOST);
	ck_assert_int_eq(ve_tickets(), 0);
	ve_release(0);
	ve_pass(200);
	ve_holds(0);
	ve_pass(2 * VE_LEASE_MS);
	ve_releases(0);
	ve_end();
}
