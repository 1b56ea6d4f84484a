/* SPDX-License-Identifier: MIT
 * A lock on etcd, in virtual time: harness/virtual_etcd.h. */
#include "harness/test.h"
#include "harness/virtual_etcd.h"

#include <stdio.h>
#include <string.h>

static const struct em_setup one = {.members = 1}, three = {.members = 3};

static int txns(void)
{
	return ve.calls[LK__ETCD_CALL_TXN];
}

static const char *ticket_key(int client)
{
	static char key[128];
	const struct lk__ticket *ticket = ve.client[client].queue->ticket;

	snprintf(key, sizeof(key), "lk/L/name/%s%s", ve.client[client].id, ticket->nonce);
	return key;
}

static const struct lk__etcd_lease *own_lease(int client)
{
	const struct lk__etcd_lease *lease = ve.client[client].session.leases;

	while (!lease->is_own)
		lease = lease->next;
	return lease;
}

/* ---- What a lock costs ---- */

TEST(free_lock_costs_two_transactions)
{
	int before;

	ve_start(&one, 1);
	ve_holds(0);
	ve_releases(0);
	before = txns();
	ve_holds(0);
	ve_releases(0);
	ck_assert_int_eq(txns() - before, 2);
	ve_end();
}

TEST(handed_on_lock_costs_two_transactions_and_one_in_eight)
{
	enum { ROUNDS = 64 };
	int before;

	ve_start(&one, VE_CLIENTS);
	for (int i = 0; i < VE_CLIENTS; i++)
		ve_acquire(i);
	ve_pass(500);
	before = txns();
	for (int round = 0; round < ROUNDS; round++) {
		int holder = -1;
		for (int i = 0; i < ve.clients; i++)
			if (ve_state(i) == LK_STATE_HELD)
				holder = i;
		ck_assert_int_ge(holder, 0);
		ve_release(holder);
		ve_acquire(holder);
		ve_settle();
	}
	printf("%d transactions for %d holds\n", txns() - before, ROUNDS);
	ck_assert_int_le(txns() - before, ROUNDS * 5 / 2);
	while (ve_tickets()) {
		for (int i = 0; i < ve.clients; i++)
			if (ve_state(i) == LK_STATE_HELD)
				ve_release(i);
		ve_settle();
	}
	ve_end();
}

/* ---- Waiting ---- */

TEST(waiters_get_the_lock_in_their_order)
{
	struct lk__op *ops[VE_CLIENTS];

	ve_start(&one, VE_CLIENTS);
	ve_holds(0);
	for (int i = 1; i < VE_CLIENTS; i++)
		ve_begin_waiting(i, &ops[i]);
	for (int i = 0; i < VE_CLIENTS - 1; i++) {
		ve_releases(i);
		ve_done(ops[i + 1], LK_OK);
	}
	ve_releases(VE_CLIENTS - 1);
	ve_end();
}

/* Each byte of its name is three in a key. */
TEST(longest_name_is_locked_and_handed_on)
{
	char name[LK_NAME_MAX + 1];
	struct lk__op *op;

	memset(name, '/', LK_NAME_MAX);
	name[LK_NAME_MAX] = '\0';
	ve_start(&one, 3);
	for (int i = 0; i < 3; i++)
		ve.client[i].queue = ve_open(i, name, VE_LEASE_MS, false);
	ve_holds(0);
	for (int i = 1; i < 3; i++) {
		op = ve_acquire(i);
		ve_pass(200);
		ck_assert(!op->done);
	}
	ve_pass(VE_LEASE_MS);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(ve_state(i), LK_STATE_HELD);
		ve_releases(i);
	}
	ve_end();
}

TEST(waiter_that_gives_up_is_skipped)
{
	struct lk__op *second, *third;

	ve_start(&one, 3);
	ve_holds(0);
	ve_begin_waiting(1, &second);
	ve_begin_waiting(2, &third);
	ve_give_up(1, second, LK_ETIMEDOUT);
	ve_pass(200);
	ve_done(second, LK_ETIMEDOUT);
	ck_assert_int_eq(ve_tickets(), 2);
	ve_releases(0);
	ve_done(third, LK_OK);
	ve_releases(2);
	ve_end();
}

/* The holder knows its successor, and does not know that it has given up. */
TEST(successor_that_has_given_up_is_skipped)
{
	struct lk__op *ops[4];

	ve_start(&one, 4);
	ve_holds(0);
	for (int i = 1; i < 4; i++)
		ve_begin_waiting(i, &ops[i]);
	ve_releases(0); /* client 1 has got the order with its letter */
	ve_done(ops[1], LK_OK);
	ve_give_up(2, ops[2], LK_ETIMEDOUT);
	ve_pass(200);
	ve_releases(1);
	ve_done(ops[3], LK_OK);
	ve_releases(3);
	ve_end();
}

TEST(try_of_a_held_lock_leaves_nothing)
{
	struct lk__op *op;

	ve_start(&one, 2);
	ve_holds(0);
	op = ve_try(1);
	ve_pass(200);
	ve_done(op, LK_EBUSY);
	ck_assert_int_eq(ve_tickets(), 1);
	ve_releases(0);
	op = ve_try(1);
	ve_pass(200);
	ve_done(op, LK_OK);
	ve_releases(1);
	ve_end();
}

TEST(fixed_lease_begins_with_its_grant)
{
	struct lk__wait_queue *queue;
	struct lk__op *op;

	ve_start(&one, 2);
	queue = ve_open(1, "name", 4000, true);
	ve_holds(0);
	op = ve_acquire_of(1, queue, false);
	ve_pass(20000);
	while (ve.now_ns - own_lease(1)->machine.since_ns < 1000 * VE_MS)
		ve_pass(100);
	ve_waits(op);
	ve_releases(0);
	ve_done(op, LK_OK);
	ve_pass(3500);
	ck_assert_int_gt(lk__hold_left_ns(ve.client[1].core.all_holds, ve.now_ns), 0);
	ve_pass(500);
	ck_assert_int_eq(ve_state(1), LK_STATE_LOST);
	ve_pass(3000);
	ck_assert_int_eq(ve_tickets(), 0);
	ve_release_of(1, queue);
	ve_pass(200);
	ve_end();
}

/* ---- Leases ---- */

TEST(client_that_ends_leaves_nothing)
{
	ve_start(&one, 1);
	ve_holds(0);
	ve_releases(0);
	ck_assert_int_gt(ve_keys(), 0);
	lk__etcd_session_end(&ve.client[0].session);
	ve_settle();
	ck_assert_int_eq(ve_keys(), 0);
	ve_end();
}

TEST(hold_is_renewed)
{
	struct lk__op *op;

	ve_start(&three, 2);
	ve_holds(0);
	ve_begin_waiting(1, &op);
	for (int i = 0; i < 60; i++) {
		ve_pass(500);
		ck_assert_int_eq(ve_state(0), LK_STATE_HELD);
	}
	ve_releases(0);
	ve_done(op, LK_OK);
	ve_releases(1);
	ve_end();
}

TEST(renewals_of_many_holds_are_one)
{
	struct lk__wait_queue *queues[40];
	char name[16];
	int before;

	ve_start(&one, 1);
	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "lock%d", i);
		queues[i] = ve_open(0, name, VE_LEASE_MS, false);
		ve_acquire_of(0, queues[i], false);
	}
	ve_pass(1000);
	before = ve.calls[LK__ETCD_CALL_KEEP_ALIVE];
	ve_pass(30000);
	printf("%d keep-alives\n", ve.calls[LK__ETCD_CALL_KEEP_ALIVE] - before);
	/* Of two leases, that of the tickets and that of the mailbox. */
	ck_assert_int_le(ve.calls[LK__ETCD_CALL_KEEP_ALIVE] - before, 40);
	for (int i = 0; i < 40; i++)
		ve_release_of(0, queues[i]);
	ve_pass(200);
	ve_end();
}

TEST(waiter_follows_a_holder_that_has_died)
{
	struct lk__op *op;

	ve_start(&one, 2);
	ve_holds(0);
	ve_begin_waiting(1, &op);
	ve_pass(2000);
	ve.client[0].is_stopped = true;
	ve_pass(VE_LEASE_MS - 2500);
	ve_waits(op);
	ve_pass(4000);
	ve_done(op, LK_OK);
	ve.client[0].is_stopped = false;
	ve_settle();
	ck_assert_int_eq(ve_state(0), LK_STATE_LOST);
	ve_release(0);
	ve_releases(1);
	ve_end();
}

TEST(lease_that_was_revoked_loses_the_hold)
{
	ve_start(&one, 1);
	ve_holds(0);
	ve_revoke(ve.client[0].session.leases->ttl_s == 6 ? ve.client[0].session.leases->id
	                                                  : ve.client[0].session.home->id);
	ve_pass(VE_LEASE_MS / 2);
	ck_assert_int_eq(ve_state(0), LK_STATE_LOST);
	ve_release(0);
	ve_pass(200);
	ve_end();
}

TEST(ticket_that_was_deleted_loses_the_hold)
{
	ve_start(&one, 1);
	ve_holds(0);
	ve_delete(ticket_key(0));
	ve_pass(VE_LEASE_MS / 2);
	ck_assert_int_eq(ve_state(0), LK_STATE_LOST);
	ve_release(0);
	ve_pass(200);
	ve_end();
}

TEST(waiter_whose_lease_was_revoked_begins_again)
{
	struct lk__op *op;

	ve_start(&one, 2);
	ve_holds(0);
	ve_begin_waiting(1, &op);
	for (struct lk__etcd_lease *lease = ve.client[1].session.leases; lease; lease = lease->next)
		if (lease != ve.client[1].session.home)
			ve_revoke(lease->id);
	ck_assert_int_eq(ve_tickets(), 1);
	ve_pass(15000);
	ve_waits(op);
	ck_assert_int_eq(ve_tickets(), 2);
	ve_releases(0);
	ve_done(op, LK_OK);
	ve_releases(1);
	ve_end();
}

/* A lease that has ended for the client, and not yet in the store, has the ticket still. */
TEST(ticket_under_an_ended_lease_is_moved_before_it_counts)
{
	struct lk__op *op;
	int64_t end_ns = 0;

	ve_start(&one, 2);
	ve_holds(0);
	ve_begin_waiting(1, &op);
	for (const struct lk__etcd_lease *lease = ve.client[1].session.leases; lease;
	     lease = lease->next)
		if (lease->ttl_s * 1000 == VE_LEASE_MS)
			end_ns = lk__lease_end_ns(&lease->machine);
	ve_cut(1);
	ve_releases(0);
	ve_pass((end_ns - ve.now_ns) / VE_MS + 1);
	ck_assert_int_eq(ve_tickets(), 1);
	ve_join(1, 0);
	ve_pass(200);
	ve_done(op, LK_OK);
	ve_acquire(0);
	ve_pass(VE_LEASE_MS);
	ck_assert_int_eq(ve_state(1), LK_STATE_HELD);
	ve_releases(1);
	ve_releases(0);
	ve_end();
}

/* ---- Connections ---- */

TEST(hold_outlives_its_connection)
{
	struct lk__op *op;

	ve_start(&three, 2);
	ve_holds(0);
	ve_begin_waiting(1, &op);
	for (int i = 1; i < 10; i++) {
		ve_cut(0);
		ve_pass(300);
		ve_join(0, i % 3);
		ve_pass(VE_LEASE_MS / 2);
		ck_assert_int_eq(ve_state(0), LK_STATE_HELD);
	}
	ve_releases(0);
	ve_done(op, LK_OK);
	ve_releases(1);
	ve_end();
}

TEST(waiter_outlives_its_connection)
{
	struct lk__op *op;

	ve_start(&three, 2);
	ve_holds(0);
	ve_begin_waiting(1, &op);
	ve_cut(1);
	ve_releases(0); /* the letter arrives while nobody reads it */
	ve_waits(op);
	ve_join(1, 1);
	ve_pass(200);
	ve_done(op, LK_OK);
	ve_releases(1);
	ve_end();
}

TEST(ask_whose_answer_was_lost_is_repeated)
{
	struct lk__op *op;

	ve_start(&one, 1);
	ve_holds(0);
	ve_releases(0);
	em_fault(ve.model, EM_CUT_AFTER, "/etcdserverpb.KV/Txn", 0);
	op = ve_acquire(0);
	ve_pass(200);
	ve_waits(op);
	ck_assert_int_eq(ve_tickets(), 1);
	ve_join(0, 0);
	ve_pass(200);
	ve_done(op, LK_OK);
	ck_assert_int_eq(ve_tickets(), 1);
	ve_releases(0);
	ve_end();
}

TEST(release_whose_answer_was_lost_is_repeated)
{
	struct lk__op *op, *release;

	ve_start(&one, 2);
	ve_holds(0);
	ve_begin_waiting(1, &op);
	em_fault(ve.model, EM_CUT_AFTER, "/etcdserverpb.KV/Txn", 0);
	release = ve_release(0);
	ve_pass(200);
	ve_waits(release);
	ve_join(0, 0);
	ve_pass(200);
	ve_done(release, LK_OK);
	ve_done(op, LK_OK);
	ve_releases(1);
	ve_end();
}

/* Its lease is not granted yet, so the ask could not be sent. */
TEST(leave_does_not_overtake_the_ask)
{
	struct lk__wait_queue *other;
	struct lk__op *op;

	ve_start(&one, 1);
	other = ve_open(0, "other", 10000, false);
	ve_acquire_of(0, other, false);
	ve_pass(200);
	em_lag(ve.model, 0, true);
	op = ve_acquire(0);
	ve_settle();
	ve_give_up(0, op, LK_ETIMEDOUT);
	ve_settle();
	em_lag(ve.model, 0, false);
	ve_pass(1000);
	ve_done(op, LK_ETIMEDOUT);
	ck_assert_int_eq(ve_tickets(), 0);
	ve_release_of(0, other);
	ve_pass(200);
	ve_end();
}

/* A leader that was stopped executes it when it goes on: the client has given up long ago. */
TEST(ask_that_is_executed_late_puts_no_ticket)
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
	ve_join(0, 2);
	ve_pass(200);
	ve_done(op, LK_OK);
	ve_releases(0);
	em_stop(ve.model, 0, false);
	ve_pass(10000);
	ck_assert_int_eq(ve_tickets(), 0);
	ve_end();
}

TEST(waiter_asks_again_when_its_watch_was_compacted)
{
	struct lk__op *op;

	ve_start(&one, 2);
	ve_holds(0);
	ve_begin_waiting(1, &op);
	ve_cut(1);
	for (int i = 0; i < 20; i++)
		ve_put("other", "value");
	ve_join(1, 0);
	ve_releases(0);
	ve_pass(200);
	ve_done(op, LK_OK);
	ve_releases(1);
	ve_end();
}

/* ---- Others ---- */

TEST(ticket_of_another_program_is_waited_for)
{
	struct lk__op *op;

	ve_start(&one, 2);
	ve_put("lk/L/name/694d8a1b2c3d4e5f", "");
	ve_begin_waiting(1, &op);
	ve_pass(30000);
	ve_waits(op);
	ve_delete("lk/L/name/694d8a1b2c3d4e5f");
	ve_pass(200);
	ve_done(op, LK_OK);
	ve_releases(1);
	ve_end();
}

TEST(ticket_of_another_program_behind_is_left_alone)
{
	ve_start(&one, 1);
	ve_holds(0);
	ve_put("lk/L/name/694d8a1b2c3d4e5f", "");
	ve_releases(0);
	ck_assert_int_eq(ve_tickets(), 1);
	ve_delete("lk/L/name/694d8a1b2c3d4e5f");
	ve_end();
}

TEST(name_of_another_kind_is_refused)
{
	static const char *const keys[] = {"lk/Sname", "lk/Dname"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		struct lk__op *op;
		ve_start(&one, 1);
		ve_put(keys[i], "1");
		op = ve_acquire(0);
		ve_pass(200);
		ve_done(op, LK_EFOREIGN);
		ck_assert_int_eq(ve_tickets(), 0);
		op = ve_try(0);
		ve_pass(200);
		ve_done(op, LK_EFOREIGN);
		ve_delete(keys[i]);
		ve_holds(0);
		ve_releases(0);
		ve_end();
	}
}
