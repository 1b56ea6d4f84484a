/* SPDX-License-Identifier: MIT
 * A lock on etcd that the threads of a client pass on among themselves, in virtual time. */
#include "harness/test.h"
#include "harness/virtual_etcd.h"

#include "etcd/session_parts.h"

#include <stdio.h>

static const struct em_setup one = {.members = 1};

/* Another thread of client 0 waits, and the one that holds releases. */
static struct lk__op *pass_to_another_thread(void)
{
	uint64_t before = ve.owner++;
	struct lk__op *next = ve_acquire(0);

	ve.owner = before;
	ve_release(0);
	ve.owner++;
	return next;
}

/* The revision of the first ticket. */
static int64_t created(void)
{
	return lk__etcd_find(&ve.client[0].session, ve.client[0].queue->ticket->nonce)->created;
}

TEST(fences_of_threads_end_before_those_of_the_next_ticket)
{
	struct lk__op *op;
	uint64_t first;

	ve_start(&one, 1);
	ve_holds(0);
	first = lk__core_hold(ve.client[0].queue->name, ve.owner)->fence;
	ve.client[0].queue->ticket->last_fence |= 0xfffe;
	op = pass_to_another_thread();
	ve_settle();
	ve_done(op, LK_OK);
	ck_assert_uint_eq(op->fence, first | 0xffff);
	op = pass_to_another_thread();
	ve_pass(200);
	ve_done(op, LK_OK);
	/* With a ticket of its own. */
	ck_assert_uint_eq(op->fence, (uint64_t)created() << 16);
	ck_assert_uint_gt(op->fence, first | 0xffff);
	ve_releases(0);
	ve_end();
}

TEST(threads_of_a_client_do_not_keep_others_waiting)
{
	struct lk__op *op, *last = NULL;
	uint64_t last_owner;
	int passes;

	ve_start(&one, 2);
	ve_holds(0);
	op = ve_acquire(1);
	ve_pass(200);
	ve_waits(op);
	for (passes = 0; passes < 60 && !op->done; passes++) {
		last = pass_to_another_thread();
		ve_pass(100);
	}
	ve_done(op, LK_OK);
	ve_waits(last);
	ck_assert_int_gt(passes, 2); /* some of them are cheaper */
	last_owner = ve.owner;
	ve.owner = op->owner;
	ve_releases(1);
	ve_done(last, LK_OK);
	ve.owner = last_owner;
	ve_releases(0);
	ve_end();
}

static bool is_wanted(void)
{
	return ve.client[0].queue->ticket->is_wanted;
}

TEST(waiter_elsewhere_is_known_at_once_while_threads_wait)
{
	struct lk__op *op, *last;
	uint64_t last_owner;
	int passes = 0;

	ve_start(&one, 2);
	ve_holds(0);
	last = pass_to_another_thread();
	ve_settle();
	ve.owner++;
	op = ve_acquire(0); /* a thread waits: the session watches the queue */
	ve.owner--;
	ve_pass(200);
	ck_assert(!is_wanted());
	ck_assert_int_ne(
		lk__etcd_find(&ve.client[0].session, ve.client[0].queue->ticket->nonce)->wanted_id,
		0);
	ve_delete("lk/L/name/nothing");
	ck_assert(!is_wanted());
	last = ve_acquire(1);
	ve_settle();
	ck_assert(is_wanted());
	ve_release(0);
	ve_settle();
	ve_done(op, LK_OK);
	ve.owner++;
	for (; passes < 100 && !last->done; passes++) {
		op = pass_to_another_thread();
		ve_settle();
	}
	ve_done(last, LK_OK);
	ck_assert_int_le(passes, LK__HANDOVERS_MAX + 1);
	last_owner = ve.owner;
	ve.owner = last->owner;
	ve_releases(1);
	ve_done(op, LK_OK);
	ve.owner = last_owner;
	ve_releases(0);
	ve_end();
}

TEST(own_ticket_that_moves_to_another_lease_is_no_waiter)
{
	char key[100];
	const struct lk__etcd_own_ticket *ticket;
	struct lk__op *op;

	ve_start(&one, 1);
	ve_holds(0);
	ve.owner++;
	op = ve_acquire(0);
	ve.owner--;
	ve_pass(200);
	ticket = lk__etcd_find(&ve.client[0].session, ve.client[0].queue->ticket->nonce);
	ck_assert_int_ne(ticket->wanted_id, 0);
	snprintf(key, sizeof(key), "lk/L/name/%s%s", ve.client[0].id, ticket->nonce);
	ve_put(key, "1 6 r");
	ck_assert(!is_wanted());
	ve_put("lk/L/name/another", "");
	ck_assert(is_wanted());
	ck_assert_int_eq(ticket->wanted_id, 0);
	ve_delete("lk/L/name/another");
	ve_releases(0);
	ve_pass(2000);
	ve_done(op, LK_OK);
	ve.owner++;
	ve_releases(0);
	ve_delete(key);
	ve_end();
}
