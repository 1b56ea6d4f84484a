/* SPDX-License-Identifier: MIT
 * A semaphore on etcd in virtual time: harness/virtual_etcd.h.  At no time more permits are held
 * than there are. */
#include "harness/test.h"
#include "harness/virtual_etcd.h"

#include "etcd/session_parts.h"

#include <stdio.h>
#include <string.h>

#define CAPACITY 3

static const struct em_setup one = {.members = 1};
static struct lk__wait_queue *handles[VE_CLIENTS];
static int64_t most;

static void count(void)
{
	int64_t held = 0;

	for (int i = 0; i < ve.clients; i++)
		held += ve_permits(i);
	ck_assert_msg(held <= most, "%lld permits are held", (long long)held);
}

static void start(int clients, bool fixed)
{
	ve_start(&one, clients);
	most = CAPACITY;
	for (int i = 0; i < clients; i++)
		handles[i] = ve_open_permits(i, CAPACITY, VE_LEASE_MS, fixed);
	ve.also = count;
}

static struct lk__op *acquire(int client, uint32_t permits)
{
	struct lk__op *op = ve_acquire_permits(client, handles[client], permits, false);

	ve_pass(200);
	return op;
}

static uint64_t hold(int client, uint32_t permits)
{
	struct lk__op *op = acquire(client, permits);

	ve_done(op, LK_OK);
	return op->fence;
}

static struct lk__op *wait_for(int client, uint32_t permits)
{
	struct lk__op *op = acquire(client, permits);

	ve_waits(op);
	return op;
}

static void try(int client, uint32_t permits, lk_err err)
{
	struct lk__op *op = ve_acquire_permits(client, handles[client], permits, true);

	ve_pass(200);
	ve_done(op, err);
}

static void release(int client, uint64_t fence)
{
	struct lk__op *op = ve_release_permits(client, handles[client], fence, 0);

	ve_pass(200);
	ve_done(op, LK_OK);
}

static void release_some(int client, uint64_t fence, uint32_t permits)
{
	struct lk__op *op = ve_release_permits(client, handles[client], fence, permits);

	ve_pass(200);
	ve_done(op, LK_OK);
}

static void is_lost(int client, uint64_t fence)
{
	ve_done(ve_release_permits(client, handles[client], fence, 0), LK_ELOST);
}

static int calls(void)
{
	return ve.calls[LK__ETCD_CALL_TXN];
}

TEST(free_permits_cost_two_transactions)
{
	int before;

	start(1, false);
	release(0, hold(0, 1));
	before = calls();
	release(0, hold(0, 2));
	ck_assert_int_eq(calls(), before + 2);
	ve_end();
}

TEST(tries_leave_nothing_and_cost_two_transactions_when_free)
{
	struct lk__op *op;
	uint64_t fence;
	int before;

	start(2, false);
	release(0, hold(0, 1));
	before = calls();
	op = ve_acquire_permits(0, handles[0], 3, true);
	ve_pass(200);
	ve_done(op, LK_OK);
	release(0, op->fence);
	ck_assert_int_eq(calls(), before + 2);
	fence = hold(1, 2);
	before = calls();
	try(0, 2, LK_EBUSY);
	ck_assert_int_eq(calls(), before + 1); /* nothing was put */
	ck_assert_int_eq(ve_permit_tickets(), 1);
	op = wait_for(0, 2);
	try(1, 1, LK_EBUSY); /* it would fit, but is not the first */
	release(1, fence);
	ve_done(op, LK_OK);
	try(1, 4, LK_ELIMIT);
	release(0, op->fence);
	ve_end();
}

TEST(waiters_are_served_in_their_order_with_their_weights)
{
	struct lk__op *two, *one_more, *third;
	uint64_t a, b;

	start(4, false);
	a = hold(0, 2);
	b = hold(1, 1);
	two = wait_for(1, 2);
	one_more = wait_for(2, 1);
	third = wait_for(3, 1);
	release(1, b);
	ve_waits(two);
	ve_waits(one_more); /* it would fit */
	release(0, a);
	ve_done(two, LK_OK);
	ve_done(one_more, LK_OK);
	ve_waits(third);
	release(1, two->fence);
	ve_done(third, LK_OK);
	release(2, one_more->fence);
	release(3, third->fence);
	ve_end();
}

TEST(contended_permit_costs_three_transactions)
{
	struct lk__op *ops[4];
	uint64_t fence;
	int before;

	start(5, false);
	fence = hold(0, 3);
	for (int i = 1; i < 5; i++)
		ops[i - 1] = wait_for(i, 3);
	release(0, fence);
	before = calls();
	for (int i = 1; i < 4; i++) {
		ve_done(ops[i - 1], LK_OK);
		release(i, ops[i - 1]->fence);
	}
	ck_assert_int_eq(calls(), before + 3 * 2); /* the asks were before */
	ve_done(ops[3], LK_OK);
	release(4, ops[3]->fence);
	ve_end();
}

TEST(part_of_a_hold_is_given_back)
{
	struct lk__op *op, *other;
	uint64_t fence;

	start(3, false);
	fence = hold(0, 3);
	op = wait_for(1, 1);
	other = wait_for(2, 1);
	release_some(0, fence, 1);
	ve_done(op, LK_OK);
	ve_waits(other);
	ve_pass(3 * VE_LEASE_MS); /* renewed */
	ck_assert_int_eq(ve_permits(0), 2);
	release_some(0, fence, 1);
	ve_done(other, LK_OK);
	release(0, fence);
	release(1, op->fence);
	release(2, other->fence);
	ve_end();
}

TEST(extended_hold_keeps_what_it_gave_back_away)
{
	struct lk__op *op, *extension;
	uint64_t fence;

	start(2, false);
	fence = hold(0, 3);
	op = wait_for(1, 2);
	release_some(0, fence, 2);
	ve_done(op, LK_OK);
	extension = ve_extend_permits(0, handles[0], fence, 10 * VE_LEASE_MS);
	ve_pass(500);
	ve_done(extension, LK_OK);
	ck_assert_int_eq(ve_permits(0), 1);
	release(1, op->fence);
	release(0, fence);
	ve_end();
}

TEST(dead_holder_is_noticed_by_the_first_waiter)
{
	struct lk__op *first, *second;
	uint64_t dead[2];
	int64_t before_ns;

	start(4, false);
	dead[0] = hold(0, 2);
	dead[1] = hold(1, 1);
	first = wait_for(2, 2);
	second = wait_for(3, 1);
	ve_pass(3000);
	ve.client[0].is_stopped = true;
	before_ns = ve.now_ns;
	for (int i = 0; i < 40 && !first->done; i++)
		ve_pass(250);
	ve_done(first, LK_OK);
	ck_assert_int_le(ve.now_ns - before_ns, (VE_LEASE_MS + 2000) * VE_MS);
	ve_waits(second);
	ve.client[1].is_stopped = true;
	before_ns = ve.now_ns;
	for (int i = 0; i < 40 && !second->done; i++)
		ve_pass(250);
	ve_done(second, LK_OK); /* it is the first one now */
	ck_assert_int_le(ve.now_ns - before_ns, (VE_LEASE_MS + 2000) * VE_MS);
	ve.client[0].is_stopped = ve.client[1].is_stopped = false;
	ve_join(0, 0);
	ve_join(1, 0);
	ve_pass(3000);
	is_lost(0, dead[0]);
	is_lost(1, dead[1]);
	release(2, first->fence);
	release(3, second->fence);
	ve_end();
}

/* With a first waiter that keeps permits idle. */
TEST(dead_waiter_does_not_block_others)
{
	struct lk__op *first, *second, *third;
	uint64_t fence;

	start(4, false);
	fence = hold(0, 2);
	first = wait_for(1, 2);
	second = wait_for(2, 1);
	third = wait_for(3, 1);
	ve_pass(2000);
	ve.client[1].is_stopped = true;
	for (int i = 0; i < 60 && !second->done; i++)
		ve_pass(250);
	ve_done(second, LK_OK);
	ve_waits(third);
	release(0, fence);
	ve_done(third, LK_OK);
	ve.client[1].is_stopped = false;
	ve_join(1, 0);
	ve_pass(3000);
	release(2, second->fence);
	release(3, third->fence);
	if (!first->done)
		ve_give_up(1, first, LK_ETIMEDOUT);
	ve_pass(2000);
	if (first->why.err == LK_OK)
		release(1, first->fence);
	ve_pass(2000);
	ve_end();
}

TEST(waiter_that_gives_up_serves_those_after_it)
{
	struct lk__op *first, *second;
	uint64_t fence;

	start(3, false);
	fence = hold(0, 2);
	first = wait_for(1, 2);
	second = wait_for(2, 1);
	ve_give_up(1, first, LK_ETIMEDOUT);
	ve_pass(200);
	ve_done(first, LK_ETIMEDOUT);
	ve_done(second, LK_OK);
	release(0, fence);
	release(2, second->fence);
	ve_end();
}

TEST(fixed_hold_begins_at_its_grant)
{
	struct lk__op *op;
	uint64_t fence;

	start(2, true);
	fence = hold(0, 3);
	op = wait_for(1, 3);
	ve_pass(3000);
	release(0, fence);
	ve_done(op, LK_OK);
	ve_pass(VE_LEASE_MS - 800);
	ck_assert_int_eq(ve_permits(1), 3);
	ve_pass(1000);
	ck_assert_int_eq(ve_permits(1), 0);
	ve_pass(3000);
	ck_assert_int_eq(ve_permit_tickets(), 0);
	is_lost(1, op->fence);
	ve_end();
}

TEST(more_than_the_capacity_is_refused)
{
	struct lk__op *op;

	start(1, false);
	op = acquire(0, 4);
	ve_done(op, LK_ELIMIT);
	ck_assert_ptr_nonnull(strstr(op->why.text, "3"));
	release(0, hold(0, 3));
	op = acquire(0, 4);
	ve_done(op, LK_ELIMIT);
	ck_assert_int_eq(ve_permit_tickets(), 0);
	ve_end();
}

TEST(letters_to_many_tickets_of_one_client_are_merged)
{
	struct lk__op *ops[12];
	struct lk__wait_queue *more[2];
	uint64_t fence;
	int before;

	ve_start(&one, 2);
	most = 12;
	ve.also = count;
	for (int i = 0; i < 2; i++)
		more[i] = handles[i] = ve_open_permits(i, 12, VE_LEASE_MS, false);
	fence = hold(0, 12);
	for (int i = 0; i < 12; i++)
		ops[i] = ve_acquire_permits(1, more[1], 1, false);
	ve_pass(500);
	before = calls();
	release(0, fence);
	ck_assert_int_eq(calls(), before + 3);
	for (int i = 0; i < 12; i++) {
		ve_done(ops[i], LK_OK);
		release(1, ops[i]->fence);
	}
	ve_end();
}

TEST(mailbox_that_is_gone_stops_no_other_letter)
{
	struct lk__op *gone, *other;
	uint64_t fence;
	char key[64];

	start(3, false);
	fence = hold(0, 3);
	gone = wait_for(1, 1);
	other = wait_for(2, 2);
	ve.client[1].is_stopped = true;
	snprintf(key, sizeof(key), "lk/c/%s", ve.client[1].id);
	ve_delete(key);
	release(0, fence);
	ve_done(other, LK_OK);
	ve.client[1].is_stopped = false;
	ve_pass(VE_LEASE_MS * 3);
	ve_done(gone, LK_OK);
	release(2, other->fence);
	release(1, gone->fence);
	ve_end();
}

TEST(semaphore_that_has_vanished_is_made_again)
{
	struct lk__op *op;
	uint64_t fence;

	start(2, false);
	fence = hold(0, 3);
	op = wait_for(1, 3);
	ve_delete("lk/Sname");
	ve_pass(15000); /* the waiter has looked */
	ve_waits(op);
	release(0, fence);
	ve_done(op, LK_OK);
	ve_delete("lk/Sname");
	ve_pass(100);
	try(0, 1, LK_EBUSY); /* tickets that stand count */
	release(1, op->fence);
	ve_end();
}

/* By an operator, or since a backup without it was restored: its lease lives on. */
TEST(ticket_of_a_waiter_that_was_deleted_is_put_again)
{
	const struct lk__etcd_own_ticket *ticket = NULL;
	struct lk__op *op, *other;
	uint64_t fence;
	char key[100];

	start(2, false);
	fence = hold(0, 2);
	op = wait_for(1, 2);
	other = wait_for(1, 1);
	while ((ticket = lk__etcd_each(&ve.client[1].session, ticket)) && ticket->permits != 2)
		;
	ck_assert_ptr_nonnull(ticket);
	snprintf(key, sizeof(key), "lk/S/name/%s%s", ve.client[1].session.client, ticket->nonce);
	ve_delete(key);
	ve_pass(15000); /* it has looked */
	ve_waits(op);
	ve_done(other, LK_OK);
	ck_assert_int_eq(ve_permit_tickets(), 3);
	release(0, fence);
	ve_done(op, LK_OK);
	release(1, op->fence);
	release(1, other->fence);
	ve_end();
}

/* The key of a semaphore may end before its tickets do. */
TEST(name_is_the_semaphore_s_while_tickets_stand)
{
	struct lk__op *op;
	uint64_t fence;
	int before;

	start(2, false);
	fence = hold(0, 3);
	ve_delete("lk/Sname");
	op = ve_acquire(1);
	ve_pass(200);
	ve_done(op, LK_EFOREIGN);
	before = calls();
	op = ve_try(1);
	ve_settle();
	ve_done(op, LK_EFOREIGN);
	ck_assert_int_eq(calls(), before + 1);
	ck_assert_int_eq(ve_tickets(), 0);
	release(0, fence);
	ve_holds(1);
	try(0, 1, LK_EFOREIGN);
	ve_done(acquire(0, 1), LK_EFOREIGN);
	ve_releases(1);
	ve_put("lk/Dname", "1");
	try(0, 1, LK_EFOREIGN);
	ve_delete("lk/Dname");
	release(0, hold(0, 1));
	ve_end();
}
