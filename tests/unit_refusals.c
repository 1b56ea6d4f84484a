/* SPDX-License-Identifier: MIT
 * Requests that the store refuses, in virtual time: asks are repeated; after a refused leave the
 * ticket stays until a leave is confirmed, and a late grant is left at once.  No thread, no socket,
 * no clock. */
#include "virtual_fixture.h"

/* Either may happen to a leave.  A call that waits for it sees only a permanent refusal itself. */
static const char *const refusals[] = {PERMANENT, RETRYABLE};

static void refuse_leave(struct virt_client *client, struct lk__op *op, const char *error)
{
	refuse(client, LK__LEAVE, error);
	if (error == refusals[1])
		virt_abandon(client, op);
	assert_done(op, LK_EUNKNOWN);
}

/* End a queued wait whose leave is refused: its ghost stays in the queue. */
static void make_ghost(struct virt_client *client, const char *error)
{
	struct lk__op *waiter = wait_for(client);

	virt_give_up(client, waiter, LK_ETIMEDOUT);
	refuse_leave(client, waiter, error);
	assert_refused(waiter);
	ck_assert_int_eq(client->core.unconfirmed, 1);
}

TEST_NOUNS(refused_leave_is_repeated_in_the_background)
{
	struct lk__op *waiter, *other;

	for (int i = 0; i < 2; i++) {
		start(10000);
		hold(a);
		other = wait_for(b);
		waiter = begin_release(a);
		refuse_leave(a, waiter, refusals[i]);
		assert_no_request(a);
		virt_pass(&w, 100);
		assert_done(other, LK_OK);
		ck_assert_ptr_null(a->core.all_tickets);
		ck_assert_int_eq(a->core.unconfirmed, 0);
		release(b);
		end();
	}
}

TEST_NOUNS(late_grant_of_a_wait_that_ended_is_left_at_once)
{
	struct lk__op *waiter;

	for (int i = 0; i < 2; i++) {
		start(10000);
		hold(a);
		make_ghost(b, refusals[i]);
		waiter = acquire(c);
		virt_pass(&w, 30);
		assert_waits(waiter);
		release(a); /* at once: granted to the ghost, which leaves, then to c */
		assert_done(waiter, LK_OK);
		ck_assert_ptr_null(b->core.all_tickets);
		release(c);
		end();
	}
}

/* The same after the ask itself was refused permanently: its wait is over. */
TEST_NOUNS(ticket_of_a_refused_ask_is_left_until_that_is_confirmed)
{
	struct lk__op *waiter, *next;

	start(10000);
	hold(a);
	waiter = wait_for(b);
	later(11000);
	tick(b);
	refuse(b, LK__ASK, PERMANENT);
	assert_done(waiter, LK_EAUTH);
	refuse(b, LK__LEAVE, PERMANENT);
	assert_no_request(b);
	next = acquire(c);
	virt_settle(&w);
	assert_done(next, LK_OK); /* a's lease has ended: granted to b, and left */
	ck_assert_ptr_null(b->core.all_tickets);
	release(c);
	tick(a);
	virt_settle(&w);
	release_lost(a);
	end();
}

/* A server that keeps refusing is not flooded, and not asked for ever. */
TEST_NOUNS(refused_leave_is_repeated_less_and_less_and_ends)
{
	int64_t begun_ns, gap_ns, last_ns;
	struct virt_call call;
	int leaves = 1;

	start(10000);
	hold(a);
	make_ghost(b, refusals[0]);
	begun_ns = last_ns = w.now_ns;
	gap_ns = 0;
	while (b->core.all_tickets) {
		ck_assert_int_ne(lk__core_due(&b->core), LK__NEVER);
		ck_assert_int_lt(leaves, 1000);
		tick_when_due(b);
		call = take(b, LK__LEAVE);
		ck_assert_int_ge(w.now_ns - last_ns, leaves == 1 ? 0 : 100 * VIRT_MS);
		if (w.now_ns - last_ns > gap_ns)
			gap_ns = w.now_ns - last_ns;
		last_ns = w.now_ns;
		leaves++;
		virt_refuse(b, &call, PERMANENT);
		assert_no_request(b);
	}
	ck_assert_int_eq(gap_ns, 5000 * VIRT_MS);
	ck_assert_int_eq(w.now_ns - begun_ns, (10000 + 30000) * VIRT_MS);
	ck_assert_int_le(leaves, 16);
	ck_assert_int_eq(b->core.unconfirmed, 0);
	virt_pass(&w, 60000);
	release_lost(a);
	end();
}

/* Simulator, seed 1041 with sentinels.  The ask is refused, and its response follows the grant:
 * the back-off is not that of the claim, for which the store waits half a second only. */
TEST_NOUNS(grant_that_overtakes_a_refusal_is_claimed_at_once)
{
	struct virt_call ask;
	struct lk__op *waiter;

	start(3000);
	hold(a);
	waiter = wait_for(b);
	virt_pass(&w, 7000);
	while (!virt_take(b, &ask))
		tick_when_due(b);
	ck_assert_int_eq(ask.kind, LK__ASK);
	leave(a);
	ck_assert(virt_hear(b));
	assert_waits(waiter);
	virt_refuse(b, &ask, RETRYABLE);
	step(b, LK__RENEW);
	assert_done(waiter, LK_OK);
	release(b);
	end();
}

TEST_NOUNS(retryable_refusal_only_delays_a_wait)
{
	struct lk__op *waiter;

	start(10000);
	waiter = acquire(a);
	refuse(a, LK__ASK, RETRYABLE);
	assert_no_request(a);
	virt_pass(&w, 150);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

TEST(permanent_refusal_ends_every_wait_of_the_queue)
{
	struct lk__op *first, *second;

	start(10000);
	lua_store_text(w.store, "SET", virt_key("s", ""), "theirs", NULL);
	first = acquire(a);
	second = acquire_of(a, 4);
	step(a, LK__ASK);
	assert_done(first, LK_EFOREIGN);
	assert_done(second, LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(first->why.text, virt_key("s", "")));
	lua_store_text(w.store, "DEL", virt_key("s", ""), NULL);
	end();
}

TEST_NOUNS(refused_ask_is_repeated_less_often_and_waits_on)
{
	struct lk__op *waiter;
	struct virt_call call;
	int asks = 0;

	start(10000);
	waiter = acquire(a);
	for (int64_t end_ns = w.now_ns + 60000 * VIRT_MS; w.now_ns < end_ns;) {
		tick(a);
		while (virt_take(a, &call)) {
			virt_refuse(a, &call, RETRYABLE);
			asks++;
		}
		virt_set_time(&w, lk__core_due(&a->core));
	}
	ck_assert_int_ge(asks, 60);
	ck_assert_int_le(asks, 66);
	assert_waits(waiter);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

/* It was certainly not granted. */
TEST_NOUNS(try_that_is_refused_ends_with_the_error)
{
	struct lk__op *waiter;

	start(10000);
	waiter = try(a);
	refuse(a, LK__ASK, RETRYABLE);
	later(100);
	tick(a);
	refuse(a, LK__ASK, RETRYABLE);
	later(50);
	virt_abandon(a, waiter);
	assert_done(waiter, LK_EAGAIN);
	assert_refused(waiter);
	assert_no_request(a);
	end();
}

TEST_NOUNS(wait_whose_asks_were_all_refused_leaves_only_if_one_may_have_run)
{
	struct lk__op *waiter;
	struct virt_call ask;

	start(10000);
	hold(b);
	for (int i = 0; i < 3; i++) {
		waiter = acquire(a);
		refuse(a, LK__ASK, RETRYABLE);
		tick_when_due(a);
		if (i == 1) {
			/* An ask without an answer may have run. */
			ask = take(a, LK__ASK);
			lose(a, &ask);
			virt_link_up(a);
			refuse(a, LK__ASK, RETRYABLE);
		} else if (i == 2) {
			ask = take(a, LK__ASK); /* or may still run */
		}
		virt_give_up(a, waiter, LK_ETIMEDOUT);
		if (i == 0)
			assert_no_request(a);
		else
			step(a, LK__LEAVE);
		assert_done(waiter, LK_ETIMEDOUT);
		if (i == 2)
			virt_refuse(a, &ask, RETRYABLE);
	}
	release(b);
	end();
}

/* The same client waits again, behind its own ghost. */
TEST_NOUNS(own_ghost_goes_when_the_store_answers_again)
{
	struct lk__op *waiter;
	uint64_t fence;

	start(30000);
	fence = hold(a);
	waiter = begin_release(a);
	refuse_leave(a, waiter, PERMANENT);
	for (int i = 0; i < 5; i++) {
		tick_when_due(a);
		refuse(a, LK__LEAVE, PERMANENT);
	}
	ck_assert_int_gt(lk__core_due(&a->core), w.now_ns + 3000 * VIRT_MS);
	waiter = acquire(a);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	ck_assert_uint_gt(waiter->fence, fence);
	release(a);
	end();
}

/* An ask from a lost connection runs after the leave, and is granted before the client has read the
 * answer to that leave. */
TEST_NOUNS(grant_after_its_leave_is_left_again)
{
	struct virt_call ask, end_of_b;
	struct lk__op *waiter, *next;

	start(10000);
	hold(a);
	waiter = acquire(b);
	ask = take(b, LK__ASK);
	virt_link_down(b, LK_EUNKNOWN);
	virt_give_up(b, waiter, LK_ETIMEDOUT);
	virt_link_up(b);
	end_of_b = reach(b, LK__LEAVE);
	virt_execute(b, &ask); /* from the old connection */
	virt_call_fini(&ask);
	next = acquire(c);
	step(c, LK__ASK);
	leave(a);
	ck_assert(virt_hear(b)); /* granted */
	virt_answer(b, &end_of_b);
	assert_done(waiter, LK_ETIMEDOUT);
	virt_settle(&w);
	assert_done(next, LK_OK);
	release(c);
	end();
}

/* A grant that the leave has ended needs no second leave. */
TEST_NOUNS(grant_before_its_leave_costs_nothing_more)
{
	struct lk__op *waiter;
	struct virt_call end_of_b;

	start(10000);
	hold(a);
	waiter = wait_for(b);
	leave(a);
	virt_give_up(b, waiter, LK_ETIMEDOUT);
	end_of_b = take(b, LK__LEAVE);
	ck_assert(virt_hear(b));
	virt_execute(b, &end_of_b);
	virt_answer(b, &end_of_b);
	assert_done(waiter, LK_ETIMEDOUT);
	assert_no_request(b);
	end();
}

/* A hold was granted too late, and its leave is refused permanently: the waiters get the error. */
TEST_NOUNS(refused_leave_of_a_lapse_ends_its_waits)
{
	struct lk__op *waiter;
	struct virt_call ask;

	start(1000);
	waiter = acquire(a);
	ask = reach(a, LK__ASK);
	later(1100);
	virt_answer(a, &ask);
	refuse(a, LK__LEAVE, RETRYABLE);
	assert_waits(waiter);
	tick_when_due(a);
	refuse(a, LK__LEAVE, PERMANENT);
	assert_done(waiter, LK_EAUTH);
	ck_assert_ptr_null(a->queue->ticket);
	/* The next call gets its own ticket. */
	waiter = acquire(a);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	release(a);
	virt_pass(&w, 200);
	end();
}

TEST_NOUNS(close_sends_a_refused_leave_once_more_and_waits_for_no_other)
{
	start(10000);
	hold(a);
	make_ghost(b, refusals[0]);
	lk__core_close(&b->core, w.now_ns);
	refuse(b, LK__LEAVE, PERMANENT);
	ck_assert(!lk__core_busy(&b->core));
	ck_assert(b->core.leave_given_up);
	release(a);
	virt_pass(&w, 30000);
	end();
	/* And no request at all while the link is down. */
	start(10000);
	hold(a);
	make_ghost(b, refusals[1]);
	virt_link_down(b, LK_ECONN);
	ck_assert(lk__core_busy(&b->core));
	lk__core_close(&b->core, w.now_ns);
	ck_assert(!lk__core_busy(&b->core));
	release(a);
	virt_pass(&w, 30000);
	end();
}

/* The loss was reported already: the close that finds the refused leave has nothing to add. */
TEST_NOUNS(close_after_a_loss_leaves_nothing_behind_though_the_leave_was_refused)
{
	for (int linked = 0; linked < 2; linked++) {
		start(1000);
		hold(a);
		later(400);
		tick(a);
		refuse(a, LK__RENEW, PERMANENT);
		later(700); /* past the lease */
		tick(a);
		assert_lost(a, LK_LOST_EXPIRED);
		refuse(a, LK__LEAVE, PERMANENT);
		ck_assert_int_eq(a->core.unconfirmed, 1);
		if (!linked)
			virt_link_down(a, LK_ECONN);
		lk__core_close(&a->core, w.now_ns);
		if (linked)
			refuse(a, LK__LEAVE, PERMANENT);
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
	waiter = try(a);
	other = acquire_of(a, 4);
	refuse(a, LK__ASK, RETRYABLE);
	later(50);
	virt_abandon(a, waiter);
	assert_done(waiter, LK_EAGAIN);
	assert_refused(waiter);
	assert_waits(other);
	virt_pass(&w, 2000);
	assert_done(other, LK_OK);
	begin_release(a);
	virt_settle(&w);
	end();
}

/* The key is foreign now: nothing is left of the hold. */
TEST_NOUNS(refused_leave_of_a_hold_whose_key_is_foreign_ends_it)
{
	struct lk__op *waiter;

	start(10000);
	hold(a);
	flush();
	lua_store_text(w.store, "SET", virt_key("s", ""), "theirs", NULL);
	waiter = begin_release(a);
	step(a, LK__LEAVE);
	assert_done(waiter, LK_EUNKNOWN);
	ck_assert(!lk__core_busy(&a->core));
	flush();
	hold(b);
	release(b);
	end();
}

/* The last handle of its name is closed before. */
TEST_NOUNS(refused_leave_outlives_its_handle)
{
	start(10000);
	hold(a);
	make_ghost(b, refusals[0]);
	lk__core_drop(&b->core, w.now_ns, b->queue->name, b);
	lk__wait_queue_close(&b->core, b->queue);
	ck_assert_uint_eq(b->core.names.count, 1);
	release(a);
	ck_assert_ptr_null(b->core.all_tickets);
	ck_assert_uint_eq(b->core.names.count, 0);
	end();
}

TEST_NOUNS(lost_connection_after_the_bound_ends_it)
{
	start(10000);
	hold(a);
	make_ghost(b, refusals[0]);
	virt_link_down(b, LK_ECONN);
	later(39000);
	virt_link_up(b);
	later(2000);
	virt_link_down(b, LK_ECONN);
	ck_assert_ptr_null(b->core.all_tickets);
	tick(a);
	release_lost(a);
	end();
}

TEST_NOUNS(unconfirmed_tickets_have_a_limit)
{
	struct lk__op *waiter;

	start(10000);
	hold(a);
	for (int i = 0; i < 3; i++) {
		b->core.unconfirmed = LK__UNCONFIRMED_MAX - 1; /* of other names */
		waiter = acquire(b);
		step(b, LK__ASK);
		if (i)
			refuse(b, LK__LEAVE, PERMANENT); /* the first one's */
		virt_give_up(b, waiter, LK_ETIMEDOUT);
		b->core.unconfirmed += i > 0;
		refuse(b, LK__LEAVE, PERMANENT);
		assert_done(waiter, LK_EUNKNOWN);
		ck_assert_int_eq(b->core.unconfirmed, LK__UNCONFIRMED_MAX);
		ck_assert(b->core.all_tickets && !b->core.all_tickets->next);
	}
	b->core.unconfirmed = 1;
	release(a);
	virt_pass(&w, 60000);
	ck_assert_int_eq(b->core.unconfirmed, 0);
	end();
}
