/* SPDX-License-Identifier: MIT
 * Waits in virtual time: grant, queue, hand-off; what ends a wait at each of its steps; lost
 * messages and recovery.  No thread, no socket, no clock. */
#include "fixture.h"

#include <string.h>

/* ---- Grant, queue, hand-off --------------------------------------------------------------- */

TEST(free_lock_is_granted_by_one_request_and_given_back_by_another)
{
	start(10000);
	hold(a, pa);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	ck_assert_uint_ne(old_virt_fence(pa, 2), 0);
	release(a, pa);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_NONE);
	ck_assert_int_eq(v.model.runs[LK__ASK], 1);
	ck_assert_int_eq(v.model.runs[LK__LEAVE], 1);
	ck_assert_int_eq(v.model.runs[LK__RENEW], 0);
	end();
}

TEST(hand_off_takes_two_requests_an_acquisition)
{
	struct lk__op *waiter;

	start(10000);
	hold(a, pa);
	for (int i = 0; i < 10; i++) {
		struct old_virt_client *next = i & 1 ? a : b, *last = i & 1 ? b : a;
		struct lk__wait_queue *next_queue = i & 1 ? pa : pb, *last_place = i & 1 ? pb : pa;
		waiter = old_virt_acquire(next, next_queue, 2);
		old_virt_settle(&v);
		ck_assert(!waiter->done);
		release(last, last_place);
		assert_done(waiter, LK_OK);
	}
	ck_assert_int_eq(v.model.runs[LK__ASK], 11);
	ck_assert_int_eq(v.model.runs[LK__LEAVE], 10);
	ck_assert_int_eq(v.model.runs[LK__RENEW] + v.model.runs[LK__HAND], 0);
	release(a, pa);
	end();
}

TEST(waiters_are_served_in_order_of_arrival)
{
	struct lk__op *second, *third;

	start(10000);
	hold(a, pa);
	third = old_virt_acquire(c, pc, 2);
	old_virt_settle(&v);
	second = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	release(a, pa);
	assert_done(third, LK_OK);
	ck_assert(!second->done);
	release(c, pc);
	assert_done(second, LK_OK);
	release(b, pb);
	end();
}

TEST(five_seconds_of_waiting_take_at_most_three_requests)
{
	struct lk__op *waiter;

	start(10000);
	hold(a, pa);
	memset(v.model.runs, 0, sizeof(v.model.runs));
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_pass(&v, 5000);
	ck_assert_int_le(v.model.runs[LK__ASK], 2);
	old_virt_give_up(b, waiter, LK_ETIMEDOUT);
	old_virt_settle(&v);
	assert_done(waiter, LK_ETIMEDOUT);
	ck_assert_int_le(v.model.runs[LK__ASK] + v.model.runs[LK__LEAVE], 3);
	release(a, pa);
	end();
}

TEST(dead_waiter_is_skipped_within_the_release)
{
	struct lk__op *waiter;

	start(10000);
	hold(a, pa);
	old_virt_acquire(c, pc, 2);
	old_virt_settle(&v);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	/* c dies: its channel has no subscriber any more. */
	old_virt_link_down(c, LK_ECONN);
	release(a, pa);
	assert_done(waiter, LK_OK);
	release(b, pb);
	old_virt_link_up(c);
	old_virt_settle(&v);
	ck_assert_int_eq(old_virt_state(c, pc, 2), LK_STATE_HELD); /* it has repeated its ask */
	release(c, pc);
	end();
}

TEST(holder_that_dies_is_followed_when_its_lease_ends)
{
	struct lk__op *waiter;

	start(1000);
	hold(c, pc);
	c->subscribed = false;
	lk__core_link_down(&c->core, &c->session, v.now_ns, &(struct lk__why){.err = LK_ECONN}, 0);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_pass(&v, 1100);
	assert_done(waiter, LK_OK);
	release(b, pb);
	old_virt_link_up(c);
	old_virt_settle(&v);
	ck_assert_int_eq(old_virt_state(c, pc, 2), LK_STATE_LOST);
	assert_done(old_virt_release(c, pc, 2), LK_ELOST);
	end();
}

/* ---- The end of a wait, at each of its steps ---------------------------------------------- */

enum step { IN_LINE, UNDER_WAY, EXECUTED, QUEUED, GRANT_UNDER_WAY, STEPS };

/* Bring b's wait to a step, and end it there. */
static void end_wait_at(enum step step, lk_err why, void (*finish)(struct lk__op *, lk_err))
{
	struct old_virt_call ask = {0}, leave;
	struct lk__op *waiter;

	start(10000);
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	if (step >= UNDER_WAY)
		ck_assert(old_virt_take(b, &ask));
	if (step >= EXECUTED)
		old_virt_execute(b, &ask);
	if (step >= QUEUED)
		old_virt_answer(b, &ask);
	if (step >= GRANT_UNDER_WAY) {
		struct lk__op *done = old_virt_release(a, pa, 2);
		ck_assert(old_virt_take(a, &leave));
		old_virt_execute(a, &leave);
		old_virt_answer(a, &leave);
		assert_done(done, LK_OK);
		ck_assert_int_eq(b->inbox_count, 1);
	}
	finish(waiter, why);
	ck_assert_int_eq(waiter->done, step == IN_LINE);
	/* The other answers arrive in the order of their requests. */
	if (step == UNDER_WAY)
		old_virt_execute(b, &ask);
	if (step == UNDER_WAY || step == EXECUTED)
		old_virt_answer(b, &ask);
	ck_assert_int_eq(waiter->done, step == IN_LINE);
	old_virt_settle(&v);
	assert_done(waiter, why);
	ck_assert_int_eq(old_virt_state(b, pb, 2), LK_STATE_NONE);
	ck_assert_int_eq(v.model.locks[0].queued, 0);
	if (step < GRANT_UNDER_WAY)
		release(a, pa);
	end();
}

static void give_up(struct lk__op *waiter, lk_err why)
{
	old_virt_give_up(b, waiter, why);
}

static void cancel(struct lk__op *waiter, lk_err why)
{
	(void)waiter;
	lk__core_cancel(&b->core, v.now_ns, pb->name, b, why);
}

static void close_client(struct lk__op *waiter, lk_err why)
{
	(void)waiter;
	(void)why;
	lk__core_close(&b->core, v.now_ns);
}

TEST(timeout_at_every_step_leaves_nothing)
{
	for (int step = 0; step < STEPS; step++)
		end_wait_at(step, LK_ETIMEDOUT, give_up);
}

TEST(cancel_at_every_step_leaves_nothing)
{
	for (int step = 0; step < STEPS; step++)
		end_wait_at(step, LK_ECANCELED, cancel);
}

TEST(close_at_every_step_leaves_nothing)
{
	for (int step = 0; step < STEPS; step++)
		end_wait_at(step, LK_ECLOSED, close_client);
}

TEST(cancel_concerns_one_handle)
{
	struct lk__op *mine, *other;

	start(10000);
	hold(a, pa);
	mine = old_virt_acquire(b, pb, 2);
	other = old_virt_waiter(b, pb, 4);
	other->handle = &other;
	lk__core_acquire(&b->core, v.now_ns, other);
	old_virt_settle(&v);
	lk__core_cancel(&b->core, v.now_ns, pb->name, b, LK_ECANCELED);
	old_virt_settle(&v);
	assert_done(mine, LK_ECANCELED);
	ck_assert(!other->done);
	/* The ticket that the first thread began is used for the other. */
	ck_assert_int_eq(v.model.locks[0].queued, 1);
	release(a, pa);
	assert_done(other, LK_OK);
	assert_done(old_virt_release(b, pb, 2), LK_ENOTOWNER);
	old_virt_release(b, pb, 4);
	end();
}

TEST(wait_that_was_not_confirmed_is_unknown_and_ends_later)
{
	struct lk__op *waiter;

	start(10000);
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	old_virt_link_down(b, LK_EUNKNOWN);
	old_virt_give_up(b, waiter, LK_ETIMEDOUT);
	ck_assert(!waiter->done);
	old_virt_abandon(b, waiter);
	assert_done(waiter, LK_EUNKNOWN);
	ck_assert_int_eq(v.model.locks[0].queued, 1);
	old_virt_link_up(b);
	old_virt_settle(&v);
	ck_assert_int_eq(v.model.locks[0].queued, 0);
	release(a, pa);
	end();
}

TEST(wait_that_asked_nothing_for_want_of_a_link_did_not_happen)
{
	struct lk__op *waiter;

	start(10000);
	old_virt_link_down(b, LK_EAUTH);
	waiter = old_virt_acquire(b, pb, 2);
	ck_assert(!waiter->done);
	old_virt_give_up(b, waiter, LK_ETIMEDOUT);
	assert_done(waiter, LK_EAUTH);
	old_virt_link_up(b);
	old_virt_link_down(b, LK_EUNKNOWN);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_give_up(b, waiter, LK_ETIMEDOUT);
	assert_done(waiter, LK_ECONN);
	end();
}

/* ---- Lost messages ------------------------------------------------------------------------ */

TEST(grant_whose_answer_is_lost_is_found_by_asking_again)
{
	struct old_virt_call call;
	struct lk__op *waiter;
	uint64_t fence;

	start(10000);
	waiter = old_virt_acquire(a, pa, 2);
	ck_assert(old_virt_take(a, &call));
	old_virt_execute(a, &call);
	fence = call.answer.fence;
	old_virt_link_down(a, LK_EUNKNOWN);
	ck_assert(!waiter->done);
	old_virt_set_time(&v, v.now_ns + 300 * OLD_VIRT_MS);
	old_virt_link_up(a);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	ck_assert_uint_eq(old_virt_fence(pa, 2), fence);
	release(a, pa);
	end();
}

TEST(grant_whose_message_is_lost_is_found_by_asking_again)
{
	struct old_virt_call leave;
	struct lk__op *waiter;

	start(2000);
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	old_virt_release(a, pa, 2);
	ck_assert(old_virt_take(a, &leave));
	old_virt_execute(a, &leave);
	old_virt_answer(a, &leave);
	old_virt_forget(b);
	old_virt_pass(&v, 1000);
	ck_assert(!waiter->done);
	old_virt_pass(&v, 1300);
	assert_done(waiter, LK_OK);
	release(b, pb);
	end();
}

/* README's bound for two losses: the lease (10 s at most), 1.2 s for rank and jitter, and a command
 * timeout, after which the runtime takes the link for dead. */
TEST(two_losses_cost_a_lease_and_a_command_timeout)
{
	const int64_t timeout_ms = 2000;
	struct old_virt_call leave, ask;
	struct lk__op *waiter;
	int64_t lost_ns;

	start(60000);
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	old_virt_release(a, pa, 2);
	ck_assert(old_virt_take(a, &leave));
	old_virt_execute(a, &leave);
	old_virt_answer(a, &leave);
	old_virt_forget(b);
	lost_ns = v.now_ns;
	while (!old_virt_take(b, &ask)) {
		later(10);
		tick(b);
		ck_assert_int_le(v.now_ns - lost_ns, 11200 * OLD_VIRT_MS);
	}
	ck_assert_int_eq(ask.bytes.kind, LK__ASK);
	later(timeout_ms);
	ck_assert(!waiter->done);
	old_virt_link_down(b, LK_EUNKNOWN);
	old_virt_link_up(b);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	ck_assert_int_le(v.now_ns - lost_ns, (11200 + timeout_ms) * OLD_VIRT_MS);
	release(b, pb);
	end();
}

TEST(hold_outlives_a_link_that_comes_back)
{
	uint64_t fence;

	start(3000);
	hold(a, pa);
	fence = old_virt_fence(pa, 2);
	for (int i = 0; i < 5; i++) {
		old_virt_link_down(a, LK_ECONN);
		ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_UNSURE);
		old_virt_pass(&v, 2000);
		ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_UNSURE);
		old_virt_link_up(a);
		old_virt_settle(&v);
		ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	}
	ck_assert_uint_eq(old_virt_fence(pa, 2), fence);
	release(a, pa);
	end();
}

TEST(waiter_that_an_emptied_store_forgot_returns_to_its_place)
{
	struct lk__op *first, *second;

	start(10000);
	hold(a, pa);
	first = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	second = old_virt_acquire(c, pc, 2);
	old_virt_settle(&v);
	v.model.locks[0].queued = 0;
	old_virt_link_down(c, LK_ECONN);
	old_virt_link_up(c);
	old_virt_settle(&v);
	old_virt_link_down(b, LK_ECONN);
	old_virt_link_up(b);
	old_virt_settle(&v);
	release(a, pa);
	assert_done(first, LK_OK);
	ck_assert(!second->done);
	release(b, pb);
	assert_done(second, LK_OK);
	release(c, pc);
	end();
}

TEST(release_whose_answer_is_lost_goes_on_in_the_background)
{
	struct old_virt_call call;
	struct lk__op *waiter;

	start(10000);
	hold(a, pa);
	waiter = old_virt_release(a, pa, 2);
	ck_assert(old_virt_take(a, &call));
	old_virt_link_down(a, LK_EUNKNOWN); /* before it was executed */
	old_virt_abandon(a, waiter);
	assert_done(waiter, LK_EUNKNOWN);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_NONE);
	ck_assert(v.model.locks[0].held);
	old_virt_link_up(a);
	end();
}

TEST(release_that_was_done_and_not_answered_succeeds_the_second_time)
{
	struct old_virt_call call;
	struct lk__op *waiter;

	start(10000);
	hold(a, pa);
	waiter = old_virt_release(a, pa, 2);
	ck_assert(old_virt_take(a, &call));
	old_virt_execute(a, &call);
	old_virt_link_down(a, LK_EUNKNOWN);
	old_virt_link_up(a);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK); /* it finds no ticket, but may have removed it itself */
	end();
}

TEST(release_of_a_hold_that_the_store_forgot_is_lost)
{
	struct lk__op *waiter;

	start(10000);
	hold(a, pa);
	model_flush(&v.model);
	waiter = old_virt_release(a, pa, 2);
	old_virt_settle(&v);
	assert_done(waiter, LK_ELOST);
	end();
}

/* ---- Scripts that the store forgot -------------------------------------------------------- */

TEST(ask_with_an_unknown_script_is_sent_again_by_text)
{
	struct old_virt_call call, again;
	struct lk__op *waiter;

	start(10000);
	waiter = old_virt_acquire(a, pa, 2);
	ck_assert(old_virt_take(a, &call));
	ck_assert(lk__core_resend(&a->core, call.request));
	ck_assert(old_virt_take(a, &again));
	ck_assert(again.request->by_text);
	ck_assert_str_eq(again.bytes.ticket.nonce, call.bytes.ticket.nonce);
	old_virt_execute(a, &again);
	old_virt_answer(a, &again);
	assert_done(waiter, LK_OK);
	release(a, pa);
	end();
}

TEST(ask_whose_wait_is_over_is_not_sent_again)
{
	struct old_virt_call ask, leave;
	struct lk__op *waiter;

	start(10000);
	waiter = old_virt_acquire(a, pa, 2);
	ck_assert(old_virt_take(a, &ask));
	old_virt_give_up(a, waiter, LK_ECANCELED);
	ck_assert(old_virt_take(a, &leave));
	ck_assert_int_eq(leave.bytes.kind, LK__LEAVE);
	ck_assert(!lk__core_resend(&a->core, ask.request));
	old_virt_execute(a, &leave);
	old_virt_answer(a, &leave);
	assert_done(waiter, LK_ECANCELED);
	ck_assert_int_eq(v.model.runs[LK__ASK], 0);
	end();
}

/* ---- Refusals ----------------------------------------------------------------------------- */

TEST(refusal_that_passes_is_waited_out)
{
	struct old_virt_call call;
	struct lk__op *waiter;

	start(10000);
	waiter = old_virt_acquire(a, pa, 2);
	ck_assert(old_virt_take(a, &call));
	old_virt_refuse(a, &call, LK_EAGAIN, true);
	ck_assert(!old_virt_take(a, &call));
	old_virt_pass(&v, 150);
	assert_done(waiter, LK_OK);
	release(a, pa);
	end();
}

TEST(refusal_that_stays_ends_every_wait_of_the_place)
{
	struct old_virt_call call;
	struct lk__op *first, *second;

	start(10000);
	first = old_virt_acquire(a, pa, 2);
	second = old_virt_acquire(a, pa, 4);
	ck_assert(old_virt_take(a, &call));
	old_virt_refuse(a, &call, LK_EFOREIGN, false);
	assert_done(first, LK_EFOREIGN);
	assert_done(second, LK_EFOREIGN);
	end();
}

/* ---- Tries -------------------------------------------------------------------------------- */

TEST(try_of_a_held_lock_is_busy_and_never_queues)
{
	struct lk__op *waiter;

	start(10000);
	hold(a, pa);
	waiter = old_virt_try(b, pb, 2);
	old_virt_settle(&v);
	assert_done(waiter, LK_EBUSY);
	ck_assert_int_eq(v.model.locks[0].queued, 0);
	/* Among threads it is refused without a request. */
	v.model.runs[LK__ASK] = 0;
	waiter = old_virt_try(a, pa, 4);
	assert_done(waiter, LK_EBUSY);
	old_virt_settle(&v);
	ck_assert_int_eq(v.model.runs[LK__ASK], 0);
	release(a, pa);
	waiter = old_virt_try(b, pb, 2);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	release(b, pb);
	end();
}

TEST(who_comes_after_a_busy_try_waits_on)
{
	struct lk__op *only_try, *waiter;

	start(10000);
	hold(a, pa);
	only_try = old_virt_try(b, pb, 2);
	waiter = old_virt_acquire(b, pb, 4);
	old_virt_settle(&v);
	assert_done(only_try, LK_EBUSY);
	ck_assert(!waiter->done);
	release(a, pa);
	assert_done(waiter, LK_OK);
	old_virt_release(b, pb, 4);
	end();
}

TEST(try_of_a_free_lock_that_others_wait_for_has_them_served)
{
	struct lk__op *waiter, *only_try;

	start(1000);
	hold(c, pc);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	v.model.locks[0].held = false; /* its holder died, and the lease ended */
	only_try = old_virt_try(a, pa, 2);
	old_virt_settle(&v);
	assert_done(only_try, LK_EBUSY);
	assert_done(waiter, LK_OK);
	release(b, pb);
	old_virt_pass(&v, 500);
	assert_done(old_virt_release(c, pc, 2), LK_ELOST);
	end();
}
