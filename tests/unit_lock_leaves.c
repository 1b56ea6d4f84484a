/* SPDX-License-Identifier: MIT
 * The end of a ticket in virtual time when the store refuses the leave: the ticket stays until a
 * leave is confirmed, and a late grant is left at once.  No thread, no socket, no clock. */
#include "fixture.h"

/* Answer the next request, which must be of that kind, with an error. */
static void refuse(struct old_virt_client *client, enum lk__request_kind kind, bool passes)
{
	struct old_virt_call call;

	ck_assert_msg(old_virt_take(client, &call), "there is no request");
	ck_assert_int_eq(call.bytes.kind, kind);
	old_virt_refuse(client, &call, passes ? LK_EAGAIN : LK_EAUTH, passes);
}

static void assert_no_request(struct old_virt_client *client)
{
	struct old_virt_call call;

	ck_assert_msg(!old_virt_take(client, &call), "a request of kind %d", call.bytes.kind);
}

/* End a queued wait whose leave is refused: its ghost stays in the queue. */
static void make_ghost(struct old_virt_client *client, struct lk__wait_queue *queue, bool passes)
{
	struct lk__op *waiter = old_virt_acquire(client, queue, 2);

	old_virt_settle(&v);
	ck_assert(!waiter->done);
	old_virt_give_up(client, waiter, LK_ETIMEDOUT);
	refuse(client, LK__LEAVE, passes);
	if (passes)
		old_virt_abandon(client, waiter);
	assert_done(waiter, LK_EUNKNOWN);
	ck_assert_str_eq(waiter->why.text, "refused");
	ck_assert_int_eq(client->core.unconfirmed, 1);
}

TEST(leave_that_was_refused_goes_on_in_the_background)
{
	struct lk__op *waiter, *other;

	for (int passes = 0; passes < 2; passes++) {
		start(10000);
		hold(a, pa);
		other = old_virt_acquire(b, pb, 2);
		old_virt_settle(&v);
		waiter = old_virt_release(a, pa, 2);
		refuse(a, LK__LEAVE, passes);
		if (passes)
			old_virt_abandon(a, waiter);
		assert_done(waiter, LK_EUNKNOWN);
		assert_no_request(a);
		old_virt_pass(&v, 100);
		assert_done(other, LK_OK);
		ck_assert_ptr_null(a->core.all_tickets);
		ck_assert_int_eq(a->core.unconfirmed, 0);
		release(b, pb);
		end();
	}
}

TEST(late_grant_of_a_wait_that_ended_is_left_at_once)
{
	struct lk__op *waiter;

	for (int passes = 0; passes < 2; passes++) {
		start(10000);
		hold(a, pa);
		make_ghost(b, pb, passes);
		waiter = old_virt_acquire(c, pc, 2);
		old_virt_pass(&v, 30);
		ck_assert(!waiter->done);
		release(a, pa); /* at once: granted to the ghost, which leaves, then to c */
		assert_done(waiter, LK_OK);
		ck_assert_ptr_null(b->core.all_tickets);
		release(c, pc);
		end();
	}
}

/* The same after the ask itself was refused permanently: its wait is over. */
TEST(ticket_of_a_refused_ask_is_left_until_that_is_confirmed)
{
	struct lk__op *waiter, *next;

	start(10000);
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	later(11000);
	tick(b);
	refuse(b, LK__ASK, false);
	assert_done(waiter, LK_EAUTH);
	refuse(b, LK__LEAVE, false);
	assert_no_request(b);
	next = old_virt_acquire(c, pc, 2);
	old_virt_settle(&v);
	assert_done(next, LK_OK); /* a's lease has ended: granted to b, and left */
	ck_assert_ptr_null(b->core.all_tickets);
	release(c, pc);
	tick(a);
	old_virt_settle(&v);
	release_lost(a, pa);
	end();
}

/* A server that keeps refusing is not flooded, and not asked for ever. */
TEST(refused_leave_is_repeated_less_and_less_and_ends)
{
	int64_t begun_ns, gap_ns, last_ns;
	struct old_virt_call call;
	int leaves = 1;

	start(10000);
	hold(a, pa);
	make_ghost(b, pb, false);
	begun_ns = last_ns = v.now_ns;
	gap_ns = 0;
	while (b->core.all_tickets) {
		ck_assert_int_ne(lk__core_due(&b->core), LK__NEVER);
		ck_assert_int_lt(leaves, 1000);
		old_virt_set_time(&v, lk__core_due(&b->core));
		tick(b);
		ck_assert(old_virt_take(b, &call));
		ck_assert_int_eq(call.bytes.kind, LK__LEAVE);
		ck_assert_int_ge(v.now_ns - last_ns, leaves == 1 ? 0 : 100 * OLD_VIRT_MS);
		if (v.now_ns - last_ns > gap_ns)
			gap_ns = v.now_ns - last_ns;
		last_ns = v.now_ns;
		leaves++;
		old_virt_refuse(b, &call, LK_EAUTH, false);
		assert_no_request(b);
	}
	ck_assert_int_eq(gap_ns, 5000 * OLD_VIRT_MS);
	ck_assert_int_eq(v.now_ns - begun_ns, (10000 + 30000) * OLD_VIRT_MS);
	ck_assert_int_le(leaves, 16);
	ck_assert_int_eq(b->core.unconfirmed, 0);
	old_virt_pass(&v, 60000);
	release_lost(a, pa);
	end();
}

TEST(refused_ask_is_repeated_less_often_and_waits_on)
{
	struct lk__op *waiter;
	struct old_virt_call call;
	int asks = 0;

	start(10000);
	waiter = old_virt_acquire(a, pa, 2);
	for (int64_t end_ns = v.now_ns + 60000 * OLD_VIRT_MS; v.now_ns < end_ns;) {
		tick(a);
		while (old_virt_take(a, &call)) {
			old_virt_refuse(a, &call, LK_EAGAIN, true);
			asks++;
		}
		old_virt_set_time(&v, lk__core_due(&a->core));
	}
	ck_assert_int_ge(asks, 60);
	ck_assert_int_le(asks, 66);
	ck_assert(!waiter->done);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	release(a, pa);
	end();
}

/* It was certainly not granted. */
TEST(try_that_is_refused_ends_with_the_error)
{
	struct lk__op *waiter;

	start(10000);
	waiter = old_virt_try(a, pa, 2);
	refuse(a, LK__ASK, true);
	later(100);
	tick(a);
	refuse(a, LK__ASK, true);
	later(50);
	old_virt_abandon(a, waiter);
	assert_done(waiter, LK_EAGAIN);
	ck_assert_str_eq(waiter->why.text, "refused");
	assert_no_request(a);
	end();
}

TEST(wait_of_which_each_ask_was_refused_leaves_nothing_and_says_so)
{
	struct lk__op *waiter;
	struct old_virt_call ask;

	start(10000);
	hold(b, pb);
	for (int i = 0; i < 3; i++) {
		waiter = old_virt_acquire(a, pa, 2);
		refuse(a, LK__ASK, true);
		old_virt_set_time(&v, lk__core_due(&a->core));
		tick(a);
		if (i == 1) {
			/* An ask without an answer may have run. */
			ck_assert(old_virt_take(a, &ask));
			old_virt_link_down(a, LK_EUNKNOWN);
			old_virt_link_up(a);
			refuse(a, LK__ASK, true);
		} else if (i == 2) {
			ck_assert(old_virt_take(a, &ask)); /* or may still run */
		}
		old_virt_give_up(a, waiter, LK_ETIMEDOUT);
		if (i == 0)
			assert_no_request(a);
		else
			step(a, LK__LEAVE);
		assert_done(waiter, LK_ETIMEDOUT);
		if (i == 2)
			old_virt_refuse(a, &ask, LK_EAGAIN, true);
	}
	release(b, pb);
	end();
}

/* The same client waits again, behind its own ghost. */
TEST(own_ghost_goes_when_the_store_answers_again)
{
	struct lk__op *waiter;
	uint64_t fence;

	start(30000);
	hold(a, pa);
	fence = old_virt_fence(pa, 2);
	waiter = old_virt_release(a, pa, 2);
	refuse(a, LK__LEAVE, false);
	assert_done(waiter, LK_EUNKNOWN);
	for (int i = 0; i < 5; i++) {
		old_virt_set_time(&v, lk__core_due(&a->core));
		tick(a);
		refuse(a, LK__LEAVE, false);
	}
	ck_assert_int_gt(lk__core_due(&a->core), v.now_ns + 3000 * OLD_VIRT_MS);
	waiter = old_virt_acquire(a, pa, 2);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	ck_assert_uint_gt(waiter->fence, fence);
	release(a, pa);
	end();
}

/* An ask from a lost connection runs after the leave, and is granted before the client has read the
 * answer to that leave. */
TEST(grant_after_its_leave_is_left_again)
{
	struct old_virt_call ask, leave;
	struct lk__op *waiter, *next;

	start(10000);
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	ck_assert(old_virt_take(b, &ask));
	old_virt_link_down(b, LK_EUNKNOWN);
	old_virt_give_up(b, waiter, LK_ETIMEDOUT);
	old_virt_link_up(b);
	ck_assert(old_virt_take(b, &leave));
	ck_assert_int_eq(leave.bytes.kind, LK__LEAVE);
	old_virt_execute(b, &leave);
	old_virt_execute(b, &ask); /* from the old connection */
	next = old_virt_acquire(c, pc, 2);
	step(c, LK__ASK);
	old_virt_release(a, pa, 2);
	step(a, LK__LEAVE);
	ck_assert(old_virt_hear(b)); /* granted */
	old_virt_answer(b, &leave);
	assert_done(waiter, LK_ETIMEDOUT);
	old_virt_settle(&v);
	assert_done(next, LK_OK);
	release(c, pc);
	end();
}

/* A grant that the leave has ended needs no second leave. */
TEST(grant_before_its_leave_costs_nothing_more)
{
	struct lk__op *waiter;
	struct old_virt_call leave;

	start(10000);
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	old_virt_release(a, pa, 2);
	step(a, LK__LEAVE);
	old_virt_give_up(b, waiter, LK_ETIMEDOUT);
	ck_assert(old_virt_take(b, &leave));
	ck_assert(old_virt_hear(b));
	old_virt_execute(b, &leave);
	old_virt_answer(b, &leave);
	assert_done(waiter, LK_ETIMEDOUT);
	assert_no_request(b);
	end();
}

/* A hold was granted too late, and its leave is refused permanently: the waiters get the error. */
TEST(refused_leave_of_a_lapse_ends_its_waits)
{
	struct lk__op *waiter;
	struct old_virt_call ask;

	start(1000);
	waiter = old_virt_acquire(a, pa, 2);
	ck_assert(old_virt_take(a, &ask));
	old_virt_execute(a, &ask);
	later(1100);
	old_virt_answer(a, &ask);
	refuse(a, LK__LEAVE, true);
	ck_assert(!waiter->done);
	old_virt_set_time(&v, lk__core_due(&a->core));
	tick(a);
	refuse(a, LK__LEAVE, false);
	assert_done(waiter, LK_EAUTH);
	ck_assert_ptr_null(pa->ticket);
	/* The next call gets its own ticket. */
	waiter = old_virt_acquire(a, pa, 2);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	release(a, pa);
	old_virt_pass(&v, 200);
	end();
}

TEST(close_sends_a_refused_leave_once_more_and_waits_for_no_other)
{
	start(10000);
	hold(a, pa);
	make_ghost(b, pb, false);
	lk__core_close(&b->core, old_virt_now(b));
	refuse(b, LK__LEAVE, false);
	ck_assert(!lk__core_busy(&b->core));
	ck_assert(b->core.leave_given_up);
	release(a, pa);
	old_virt_pass(&v, 30000);
	end();
	/* And no request at all while the link is down. */
	start(10000);
	hold(a, pa);
	make_ghost(b, pb, true);
	old_virt_link_down(b, LK_ECONN);
	ck_assert(lk__core_busy(&b->core));
	lk__core_close(&b->core, old_virt_now(b));
	ck_assert(!lk__core_busy(&b->core));
	release(a, pa);
	old_virt_pass(&v, 30000);
	end();
}

/* The loss was reported already: the close that finds the refused leave has nothing to add. */
TEST(close_after_a_loss_leaves_nothing_behind_though_the_leave_was_refused)
{
	for (int linked = 0; linked < 2; linked++) {
		start(1000);
		hold(a, pa);
		later(400);
		tick(a);
		refuse(a, LK__RENEW, false);
		later(700); /* past the lease */
		tick(a);
		lk__core_loss_reported(next_loss(a, LK_LOST_EXPIRED));
		refuse(a, LK__LEAVE, false);
		ck_assert_int_eq(a->core.unconfirmed, 1);
		if (!linked)
			old_virt_link_down(a, LK_ECONN);
		lk__core_close(&a->core, old_virt_now(a));
		if (linked)
			refuse(a, LK__LEAVE, false);
		ck_assert(!lk__core_busy(&a->core));
		ck_assert(!a->core.leave_given_up);
		end();
	}
}

/* Also a try with other waiters behind it. */
TEST(try_that_is_refused_ends_with_the_error_though_others_wait)
{
	struct lk__op *waiter, *other;

	start(10000);
	waiter = old_virt_try(a, pa, 2);
	other = old_virt_acquire(a, pa, 4);
	refuse(a, LK__ASK, true);
	later(50);
	old_virt_abandon(a, waiter);
	assert_done(waiter, LK_EAGAIN);
	ck_assert_str_eq(waiter->why.text, "refused");
	ck_assert(!other->done);
	old_virt_pass(&v, 2000);
	assert_done(other, LK_OK);
	old_virt_release(a, pa, 4);
	old_virt_settle(&v);
	end();
}

/* The key of the lock is foreign now: nothing is left of the hold. */
TEST(refused_leave_of_a_hold_whose_key_is_foreign_ends_it)
{
	struct lk__op *waiter;
	struct old_virt_call leave;

	start(10000);
	hold(a, pa);
	waiter = old_virt_release(a, pa, 2);
	ck_assert(old_virt_take(a, &leave));
	old_virt_refuse(a, &leave, LK_EFOREIGN, false);
	assert_done(waiter, LK_EUNKNOWN);
	ck_assert(!lk__core_busy(&a->core));
	old_virt_pass(&v, 20000); /* the lease of the foreign key */
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	release(b, pb);
	end();
}

/* The last handle of its name is closed before. */
TEST(refused_leave_outlives_its_handle)
{
	start(10000);
	hold(a, pa);
	make_ghost(b, pb, false);
	lk__core_drop(&b->core, old_virt_now(b), pb->name, pb);
	lk__wait_queue_close(&b->core, pb);
	ck_assert_uint_eq(b->core.names.count, 1);
	release(a, pa);
	ck_assert_ptr_null(b->core.all_tickets);
	ck_assert_uint_eq(b->core.names.count, 0);
	end();
}

TEST(lost_connection_after_the_bound_ends_it)
{
	start(10000);
	hold(a, pa);
	make_ghost(b, pb, false);
	old_virt_link_down(b, LK_ECONN);
	later(39000);
	old_virt_link_up(b);
	later(2000);
	old_virt_link_down(b, LK_ECONN);
	ck_assert_ptr_null(b->core.all_tickets);
	tick(a);
	release_lost(a, pa);
	end();
}

TEST(unconfirmed_tickets_have_a_limit)
{
	struct lk__op *waiter;

	start(10000);
	hold(a, pa);
	for (int i = 0; i < 3; i++) {
		b->core.unconfirmed = LK__UNCONFIRMED_MAX - 1; /* of other names */
		waiter = old_virt_acquire(b, pb, 2);
		step(b, LK__ASK);
		if (i)
			refuse(b, LK__LEAVE, false); /* the first one's */
		old_virt_give_up(b, waiter, LK_ETIMEDOUT);
		b->core.unconfirmed += i > 0;
		refuse(b, LK__LEAVE, false);
		assert_done(waiter, LK_EUNKNOWN);
		ck_assert_int_eq(b->core.unconfirmed, LK__UNCONFIRMED_MAX);
		ck_assert(b->core.all_tickets && !b->core.all_tickets->next);
	}
	b->core.unconfirmed = 1;
	release(a, pa);
	old_virt_pass(&v, 60000);
	ck_assert_int_eq(b->core.unconfirmed, 0);
	end();
}
