/* SPDX-License-Identifier: MIT
 * Waits in virtual time: grant, queue, hand-off; what ends a wait at each of its steps; lost
 * messages and recovery.  No thread, no socket, no clock. */
#include "virtual_fixture.h"

/* ---- Grant, queue, hand-off --------------------------------------------------------------- */

TEST_NOUNS(free_name_is_acquired_by_one_request_and_released_by_another)
{
	start(10000);
	hold(a);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	ck_assert_uint_ne(held(a)->fence, 0);
	release(a);
	ck_assert_int_eq(state(a), LK_STATE_NONE);
	ck_assert_int_eq(used(), 0);
	ck_assert_int_eq(w.runs[LK__ASK], 1);
	ck_assert_int_eq(w.runs[LK__LEAVE], 1);
	ck_assert_int_eq(w.runs[LK__RENEW], 0);
	end();
}

TEST_NOUNS(hand_off_takes_two_requests_an_acquisition)
{
	struct lk__op *waiter;

	start(10000);
	hold(a);
	for (int i = 0; i < 10; i++) {
		struct virt_client *next = i & 1 ? a : b, *last = i & 1 ? b : a;
		waiter = wait_for(next);
		release(last);
		assert_done(waiter, LK_OK);
	}
	ck_assert_int_eq(w.runs[LK__ASK], 11);
	ck_assert_int_eq(w.runs[LK__LEAVE], 10);
	ck_assert_int_eq(w.runs[LK__RENEW] + w.runs[LK__HAND], 0);
	release(a);
	end();
}

TEST_NOUNS(waiters_are_served_in_order_of_arrival)
{
	struct lk__op *second, *third;

	start(10000);
	hold(a);
	third = wait_for(c);
	second = wait_for(b);
	release(a);
	assert_done(third, LK_OK);
	assert_waits(second);
	release(c);
	assert_done(second, LK_OK);
	release(b);
	end();
}

TEST_NOUNS(five_seconds_of_waiting_take_at_most_three_requests)
{
	struct lk__op *waiter;

	start(10000);
	hold(a);
	memset(w.runs, 0, sizeof(w.runs));
	waiter = acquire(b);
	virt_pass(&w, 5000);
	ck_assert_int_le(w.runs[LK__ASK], 2);
	virt_give_up(b, waiter, LK_ETIMEDOUT);
	virt_settle(&w);
	assert_done(waiter, LK_ETIMEDOUT);
	ck_assert_int_le(w.runs[LK__ASK] + w.runs[LK__LEAVE], 3);
	release(a);
	end();
}

TEST_NOUNS(dead_waiter_is_skipped_within_the_release)
{
	struct lk__op *waiter;

	start(10000);
	hold(a);
	wait_for(c);
	waiter = wait_for(b);
	/* c dies: its channel has no subscriber any more. */
	virt_link_down(c, LK_ECONN);
	release(a);
	assert_done(waiter, LK_OK);
	release(b);
	virt_link_up(c);
	virt_settle(&w);
	ck_assert_int_eq(state(c), LK_STATE_HELD); /* it has repeated its ask */
	release(c);
	end();
}

/* ---- The end of a wait, at each of its steps ---------------------------------------------- */

enum stage { TO_SEND, IN_FLIGHT, EXECUTED, QUEUED, GRANTED, STAGES };

/* Bring b's wait to a step, and end it there. */
static void end_wait_at(enum stage stage, lk_err why, void (*finish)(struct lk__op *, lk_err))
{
	struct lk__op *waiter, *next;
	struct virt_call ask = {0};

	start(10000);
	hold(a);
	waiter = acquire(b);
	if (stage >= IN_FLIGHT)
		ask = take(b, LK__ASK);
	if (stage >= EXECUTED)
		virt_execute(b, &ask);
	if (stage >= QUEUED)
		virt_answer(b, &ask);
	if (stage >= GRANTED) {
		leave(a);
		ck_assert_int_eq(b->inbox_count, 1);
	}
	next = acquire(c);
	step(c, LK__ASK);
	finish(waiter, why);
	ck_assert_int_eq(waiter->done, stage == TO_SEND);
	if (stage == TO_SEND)
		assert_no_request(b);
	/* The other answers arrive in the order of their requests. */
	if (stage == IN_FLIGHT)
		virt_execute(b, &ask);
	if (stage == IN_FLIGHT || stage == EXECUTED)
		virt_answer(b, &ask);
	ck_assert_int_eq(waiter->done, stage == TO_SEND);
	virt_settle(&w);
	assert_done(waiter, why);
	ck_assert_int_eq(state(b), LK_STATE_NONE);
	ck_assert_int_eq(queued(), stage < GRANTED);
	if (stage < GRANTED)
		release(a);
	assert_done(next, LK_OK);
	release(c);
	end();
}

static void give_up(struct lk__op *waiter, lk_err why)
{
	virt_give_up(b, waiter, why);
}

static void cancel(struct lk__op *waiter, lk_err why)
{
	(void)waiter;
	lk__core_cancel(&b->core, w.now_ns, b->queue->name, b, why);
}

static void close_client(struct lk__op *waiter, lk_err why)
{
	(void)waiter;
	(void)why;
	lk__core_close(&b->core, w.now_ns);
}

TEST_NOUNS(timeout_at_every_step_leaves_nothing)
{
	for (int stage = 0; stage < STAGES; stage++)
		end_wait_at(stage, LK_ETIMEDOUT, give_up);
}

TEST_NOUNS(cancel_at_every_step_leaves_nothing)
{
	for (int stage = 0; stage < STAGES; stage++)
		end_wait_at(stage, LK_ECANCELED, cancel);
}

TEST_NOUNS(close_at_every_step_leaves_nothing)
{
	for (int stage = 0; stage < STAGES; stage++)
		end_wait_at(stage, LK_ECLOSED, close_client);
}

TEST_NOUNS(cancel_concerns_one_handle)
{
	struct lk__op *mine, *other;

	start(10000);
	hold(a);
	mine = acquire(b);
	other = call_of(b, 4);
	other->handle = &other;
	begin(b, other);
	virt_settle(&w);
	lk__core_cancel(&b->core, w.now_ns, b->queue->name, b, LK_ECANCELED);
	virt_settle(&w);
	assert_done(mine, LK_ECANCELED);
	assert_waits(other);
	/* Of a lock, the ticket that the first thread began is used for the other. */
	ck_assert_int_eq(queued(), 1);
	release(a);
	assert_done(other, LK_OK);
	assert_done(begin_release_of(b, OWNER), LK_ENOTOWNER);
	release(b);
	end();
}

TEST_NOUNS(cancel_while_it_claims_gives_the_grant_back)
{
	struct lk__op *waiter;
	struct virt_call claim;

	start(10000);
	hold(a);
	waiter = wait_for(b);
	virt_pass(&w, 4000); /* its grant will be short */
	leave(a);
	ck_assert(virt_hear(b));
	claim = reach(b, LK__RENEW);
	virt_give_up(b, waiter, LK_ECANCELED);
	virt_answer(b, &claim);
	step(b, LK__LEAVE);
	assert_done(waiter, LK_ECANCELED);
	end();
}

TEST_NOUNS(cancel_without_a_link_is_done_when_it_is_back)
{
	struct lk__op *waiter;

	start(10000);
	hold(a);
	waiter = wait_for(b);
	virt_link_down(b, LK_ECONN);
	virt_give_up(b, waiter, LK_ECANCELED);
	assert_waits(waiter);
	assert_no_request(b);
	virt_link_up(b);
	virt_settle(&w);
	assert_done(waiter, LK_ECANCELED);
	release(a);
	end();
}

TEST_NOUNS(wait_that_was_not_confirmed_is_unknown_and_ends_later)
{
	struct lk__op *waiter;

	start(10000);
	hold(a);
	waiter = wait_for(b);
	virt_link_down(b, LK_EUNKNOWN);
	virt_give_up(b, waiter, LK_ETIMEDOUT);
	assert_waits(waiter);
	virt_abandon(b, waiter);
	assert_done(waiter, LK_EUNKNOWN);
	ck_assert_int_eq(queued(), 1);
	virt_link_up(b);
	virt_settle(&w);
	ck_assert_int_eq(queued(), 0);
	release(a);
	end();
}

TEST_NOUNS(wait_without_a_link_reports_why_there_is_none)
{
	struct lk__op *waiter;

	start(10000);
	virt_link_down(b, LK_EAUTH);
	waiter = acquire(b);
	assert_waits(waiter);
	virt_give_up(b, waiter, LK_ETIMEDOUT);
	assert_done(waiter, LK_EAUTH);
	virt_link_up(b);
	virt_link_down(b, LK_EUNKNOWN);
	waiter = acquire(b);
	virt_give_up(b, waiter, LK_ETIMEDOUT);
	assert_done(waiter, LK_ECONN);
	end();
}

/* ---- Lost messages ------------------------------------------------------------------------ */

TEST_NOUNS(grant_whose_answer_is_lost_is_found_by_asking_again)
{
	struct virt_call call;
	struct lk__op *waiter;
	uint64_t fence;

	start(10000);
	waiter = acquire(a);
	call = reach(a, LK__ASK);
	fence = only_stored()->fence;
	lose(a, &call);
	assert_waits(waiter);
	later(300);
	virt_link_up(a);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	ck_assert_uint_eq(held(a)->fence, fence);
	ck_assert_uint_eq(only_stored()->fence, fence);
	release(a);
	end();
}

TEST_NOUNS(grant_whose_message_is_lost_is_found_by_asking_again)
{
	struct lk__op *waiter;

	start(2000);
	hold(a);
	waiter = wait_for(b);
	leave(a);
	b->inbox_count = 0;
	virt_pass(&w, 1000);
	assert_waits(waiter);
	virt_pass(&w, 1300);
	assert_done(waiter, LK_OK);
	release(b);
	end();
}

/* README's bound for two losses: the lease (10 s at most), 1.2 s for rank and jitter, and a command
 * timeout, after which the runtime takes the link for dead. */
TEST_NOUNS(two_losses_cost_a_lease_and_a_command_timeout)
{
	const int64_t timeout_ms = 2000;
	struct virt_call ask;
	struct lk__op *waiter;
	int64_t lost_ns;

	start(60000);
	hold(a);
	waiter = wait_for(b);
	leave(a);
	b->inbox_count = 0;
	lost_ns = w.now_ns;
	while (!virt_take(b, &ask)) {
		later(10);
		tick(b);
		ck_assert_int_le(w.now_ns - lost_ns, 11200 * VIRT_MS);
	}
	ck_assert_int_eq(ask.kind, LK__ASK);
	later(timeout_ms);
	assert_waits(waiter);
	lose(b, &ask);
	virt_link_up(b);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	ck_assert_int_le(w.now_ns - lost_ns, (11200 + timeout_ms) * VIRT_MS);
	release(b);
	end();
}

TEST_NOUNS(hold_outlives_a_link_that_comes_back)
{
	uint64_t fence;

	start(3000);
	hold(a);
	fence = held(a)->fence;
	for (int i = 0; i < 5; i++) {
		virt_link_down(a, LK_ECONN);
		ck_assert_int_eq(state(a), LK_STATE_UNSURE);
		virt_pass(&w, 2000);
		ck_assert_int_eq(state(a), LK_STATE_UNSURE);
		virt_link_up(a);
		virt_settle(&w);
		ck_assert_int_eq(state(a), LK_STATE_HELD);
	}
	ck_assert_uint_eq(held(a)->fence, fence);
	release(a);
	end();
}

TEST_NOUNS(waiter_of_a_lost_queue_returns_to_its_rank)
{
	struct lk__op *first, *second;

	start(10000);
	hold(a);
	first = wait_for(b);
	second = wait_for(c);
	lua_store_text(w.store, "DEL", virt_key("s", ":q"), NULL);
	virt_link_down(c, LK_ECONN);
	virt_link_up(c);
	virt_settle(&w);
	virt_link_down(b, LK_ECONN);
	virt_link_up(b);
	virt_settle(&w);
	release(a);
	assert_done(first, LK_OK);
	assert_waits(second);
	release(b);
	assert_done(second, LK_OK);
	release(c);
	end();
}

TEST_NOUNS(waits_go_on_after_the_server_was_emptied)
{
	struct lk__op *waiter;

	start(10000);
	hold(a);
	waiter = wait_for(b);
	flush();
	virt_pass(&w, 11000);
	/* Its renewal found nothing, and the waiter that asked again has the permits. */
	release_lost(a);
	assert_done(waiter, LK_OK);
	release(b);
	end();
}

TEST_NOUNS(release_without_a_response_continues_in_the_background)
{
	struct virt_call call;
	struct lk__op *waiter;

	start(10000);
	hold(a);
	waiter = begin_release(a);
	call = take(a, LK__LEAVE);
	lose(a, &call); /* before it was executed */
	virt_abandon(a, waiter);
	assert_done(waiter, LK_EUNKNOWN);
	ck_assert_int_eq(state(a), LK_STATE_NONE);
	ck_assert_int_ne(used(), 0);
	virt_link_up(a);
	end();
}

TEST_NOUNS(release_that_was_done_and_not_answered_succeeds_the_second_time)
{
	struct virt_call call;
	struct lk__op *waiter;

	start(10000);
	hold(a);
	waiter = begin_release(a);
	call = reach(a, LK__LEAVE);
	lose(a, &call);
	virt_link_up(a);
	virt_settle(&w);
	assert_done(waiter, LK_OK); /* it finds no ticket, but may have removed it itself */
	end();
}

TEST_NOUNS(release_of_a_hold_that_the_store_forgot_is_lost)
{
	struct lk__op *waiter;

	start(10000);
	hold(a);
	flush();
	waiter = begin_release(a);
	virt_settle(&w);
	assert_done(waiter, LK_ELOST);
	end();
}

/* ---- Scripts that the store forgot -------------------------------------------------------- */

TEST_NOUNS(script_that_the_server_forgot_is_sent_as_text)
{
	struct lk__ticket_id asked;
	struct lk__op *waiter;

	start(10000);
	lua_store_text(w.store, "SCRIPT", "FLUSH", NULL);
	waiter = acquire(a);
	asked = lk__ticket_id(waiter->queue->ticket);
	step(a, LK__ASK); /* unknown */
	assert_waits(waiter);
	step(a, LK__ASK);
	assert_done(waiter, LK_OK);
	ck_assert_str_eq(only_stored()->nonce, asked.nonce);
	release(a);
	end();
}

TEST_NOUNS(ask_whose_wait_is_over_is_not_sent_again)
{
	struct virt_call ask, leave;
	struct lk__op *waiter;

	start(10000);
	waiter = acquire(a);
	ask = take(a, LK__ASK);
	virt_give_up(a, waiter, LK_ECANCELED);
	leave = take(a, LK__LEAVE);
	lua_store_text(w.store, "SCRIPT", "FLUSH", NULL);
	virt_execute(a, &ask); /* unknown */
	virt_answer(a, &ask);
	assert_no_request(a);
	virt_execute(a, &leave);
	virt_answer(a, &leave);
	step(a, LK__LEAVE);
	assert_done(waiter, LK_ECANCELED);
	ck_assert_int_eq(w.runs[LK__ASK], 1);
	end();
}

/* ---- Tries -------------------------------------------------------------------------------- */

TEST(try_of_a_held_lock_is_busy_and_never_queues)
{
	struct lk__op *waiter;

	start(10000);
	hold(a);
	waiter = try(b);
	virt_settle(&w);
	assert_done(waiter, LK_EBUSY);
	ck_assert_int_eq(queued(), 0);
	/* Among threads it is refused without a request. */
	w.runs[LK__ASK] = 0;
	waiter = try_of(a, 4);
	assert_done(waiter, LK_EBUSY);
	virt_settle(&w);
	ck_assert_int_eq(w.runs[LK__ASK], 0);
	release(a);
	waiter = try(b);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	release(b);
	end();
}

TEST(waiter_after_a_busy_try_continues_to_wait)
{
	struct lk__op *only_try, *waiter;

	start(10000);
	hold(a);
	only_try = try(b);
	waiter = acquire_of(b, 4);
	virt_settle(&w);
	assert_done(only_try, LK_EBUSY);
	assert_waits(waiter);
	release(a);
	assert_done(waiter, LK_OK);
	release(b);
	end();
}

TEST(try_of_a_free_lock_that_others_wait_for_has_them_served)
{
	struct lk__op *waiter, *only_try;

	start(1000);
	hold(c);
	waiter = wait_for(b);
	/* Its holder died, and the lease ended. */
	lua_store_text(w.store, "DEL", virt_key("s", ""), NULL);
	only_try = try(a);
	virt_settle(&w);
	assert_done(only_try, LK_EBUSY);
	assert_done(waiter, LK_OK);
	release(b);
	virt_pass(&w, 500);
	release_lost(c);
	end();
}
