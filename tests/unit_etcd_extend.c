/* SPDX-License-Identifier: MIT
 * Extensions of holds on etcd, in virtual time: harness/virtual_etcd.h. */
#include "harness/test.h"
#include "harness/virtual_etcd.h"

static const struct em_setup one = {.members = 1};

static const struct lk__etcd_lease *own_lease(int client)
{
	const struct lk__etcd_lease *lease = ve.client[client].session.leases;

	while (!lease->is_own)
		lease = lease->next;
	return lease;
}

/* How many leases of the client are there for tickets? */
static int leases(int client)
{
	int count = 0;

	for (const struct lk__etcd_lease *lease = ve.client[client].session.leases; lease;
	     lease = lease->next)
		count += lease->tickets > 0;
	return count;
}

TEST(hold_is_extended)
{
	struct lk__op *op;

	ve_start(&one, 1);
	ve.client[0].queue = ve_open(0, "name", VE_LEASE_MS, true);
	ve_holds(0);
	ve_pass(VE_LEASE_MS - 1000);
	op = ve_extend(0, VE_LEASE_MS);
	ve_pass(200);
	ve_done(op, LK_OK);
	ve_pass(VE_LEASE_MS - 1000);
	ck_assert_int_eq(ve_state(0), LK_STATE_HELD);
	ve_pass(800);
	ck_assert_int_ne(ve_state(0), LK_STATE_HELD);
	ve_release(0);
	ve_pass(200);
	ve_end();
}

/* A lease cannot grow: the ticket is moved to a longer one, and the place and the fence stay. */
TEST(hold_is_extended_beyond_its_lease)
{
	struct lk__op *op, *waiter;
	uint64_t fence;

	ve_start(&one, 2);
	ve.client[0].queue = ve_open(0, "name", VE_LEASE_MS, true);
	ve_holds(0);
	fence = ve.fence;
	ve_begin_waiting(1, &waiter);
	op = ve_extend(0, 60000);
	ve_pass(200);
	ve_done(op, LK_OK);
	ck_assert_int_eq(leases(0), 1);
	ck_assert_int_eq(own_lease(0)->ttl_s, 60);
	for (int i = 0; i < 58; i++) {
		ve_pass(1000);
		ck_assert_int_eq(ve_state(0), LK_STATE_HELD);
		ck_assert_int_eq(ve_tickets(), 2);
	}
	/* Again, to less than its lease has: the client ends it in time. */
	op = ve_extend(0, 3000);
	ve_pass(200);
	ve_done(op, LK_OK);
	ck_assert_int_eq(own_lease(0)->ttl_s, 60);
	ck_assert_uint_eq(ve.fence, fence);
	ve_waits(waiter);
	ve_pass(4000);
	ck_assert_int_eq(ve_state(0), LK_STATE_LOST);
	ve_done(waiter, LK_OK);
	ve_release(0);
	ve_releases(1);
	ve_end();
}

TEST(renewed_hold_is_extended_beyond_its_lease)
{
	struct lk__op *op;

	ve_start(&one, 1);
	ve_holds(0);
	for (int lease_ms = 20000; lease_ms <= 40000; lease_ms += 20000) {
		op = ve_extend(0, lease_ms);
		ve_pass(200);
		ve_done(op, LK_OK);
		ck_assert_int_eq(own_lease(0)->ttl_s, lease_ms / 1000);
	}
	ve_cut(0);
	ve_pass(39000);
	ck_assert_int_eq(ve_tickets(), 1);
	ck_assert_int_gt(lk__hold_left_ns(ve.client[0].core.all_holds, ve.now_ns), 0);
	ve_join(0, 0);
	ve_pass(60000); /* it is renewed as before */
	ck_assert_int_eq(ve_state(0), LK_STATE_HELD);
	ve_releases(0);
	ck_assert_int_eq(leases(0), 0);
	ve_end();
}

/* Nobody knows which lease the ticket is under: the extension is not promised, and before anything
 * else is, the ticket is moved back. */
static void extend_without_an_answer(enum em_fault fault, int skipped)
{
	struct lk__op *op;

	ve_start(&one, 2);
	ve_holds(0);
	em_fault(ve.model, fault, "/etcdserverpb.KV/Txn", skipped);
	op = ve_extend(0, 20000);
	ve_pass(200);
	if (!op->done) /* its time is over */
		lk__core_abandon(&ve.client[0].core, ve.now_ns, op);
	ck_assert(op->done);
	ve_join(0, 0);
	ve_pass(200);
	for (int i = 0; i < 60; i++) {
		ve_pass(1000);
		if (!ve.client[0].connection) /* the fault waited for a renewal */
			ve_join(0, 0);
		ve_pass(200);
		ck_assert_int_eq(ve_state(0), LK_STATE_HELD);
		ck_assert_int_eq(ve_tickets(), 1);
	}
	op = ve_extend(0, 30000);
	ve_pass(200);
	ve_done(op, LK_OK);
	ve_cut(0);
	ve_pass(29000);
	ck_assert_int_eq(ve_tickets(), 1);
	ve_join(0, 0);
	ve_pass(200);
	ve_releases(0);
	ck_assert_int_eq(leases(0), 0);
	ve_end();
}

TEST(extension_whose_answer_was_lost_leaves_the_hold)
{
	for (int skipped = 0; skipped < 3; skipped++) {
		extend_without_an_answer(EM_CUT_AFTER, skipped);
		extend_without_an_answer(EM_CUT_BEFORE, skipped);
	}
}

TEST(extension_that_is_refused_leaves_the_hold)
{
	struct lk__op *op;

	ve_start(&one, 1);
	ve_holds(0);
	em_fault(ve.model, EM_BAD_TOKEN, "/etcdserverpb.KV/Txn", 0);
	op = ve_extend(0, 20000);
	ve_pass(200);
	ve_done(op, LK_EAUTH);
	ve_pass(60000);
	ck_assert_int_eq(ve_state(0), LK_STATE_HELD);
	ve_releases(0);
	ve_end();
}
