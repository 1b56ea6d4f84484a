/* SPDX-License-Identifier: MIT
 * Holds in virtual time: changes of their end, involuntary ends and their reports; re-entry.  No
 * thread, no socket, no clock. */
#include "fixture.h"

/* ---- Extension ---------------------------------------------------------------------------- */

TEST(fixed_hold_ends_with_its_lease)
{
	start_fixed(1000);
	hold(a, pa);
	old_virt_pass(&v, 900);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	ck_assert_int_eq(v.model.runs[LK__RENEW], 0);
	old_virt_pass(&v, 100);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_LOST);
	release_lost(a, pa);
	end();
}

TEST(extension_moves_the_end_of_a_fixed_hold)
{
	struct lk__op *waiter;

	start_fixed(1000);
	hold(a, pa);
	old_virt_pass(&v, 500);
	waiter = old_virt_extend(a, pa, 2, 5000);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	/* A waiter's ask does not shorten it to the first lease. */
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_pass(&v, 4800);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	ck_assert(!waiter->done);
	old_virt_pass(&v, 200);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_LOST);
	old_virt_pass(&v, 300);
	assert_done(waiter, LK_OK);
	release_lost(a, pa);
	release(b, pb);
	end();
}

/* An extension that the server executes; its response is still to come. */
static struct lk__op *extend_executed(int64_t lease_ms, struct old_virt_call *call)
{
	struct lk__op *waiter;

	start_fixed(3000);
	hold(a, pa);
	waiter = old_virt_extend(a, pa, 2, lease_ms);
	ck_assert(old_virt_take(a, call));
	old_virt_execute(a, call);
	return waiter;
}

TEST(extension_without_an_answer_leaves_the_old_end)
{
	struct old_virt_call call;
	struct lk__op *waiter;

	waiter = extend_executed(500, &call);
	old_virt_abandon(a, waiter);
	assert_done(waiter, LK_EUNKNOWN);
	later(495);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	old_virt_answer(a, &call); /* no call waits for it any more */
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	later(2500);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_LOST);
	release_lost(a, pa);
	end();
}

TEST(extension_that_was_not_sent_did_not_happen)
{
	struct lk__op *waiter;

	start_fixed(3000);
	hold(a, pa);
	old_virt_link_down(a, LK_ECONN);
	waiter = old_virt_extend(a, pa, 2, 5000);
	ck_assert(!waiter->done);
	old_virt_abandon(a, waiter);
	assert_done(waiter, LK_ECONN);
	old_virt_link_up(a);
	old_virt_settle(&v);
	ck_assert_int_eq(v.model.runs[LK__RENEW], 0);
	release(a, pa);
	end();
}

/* The server executes the request, the response is lost, and the repeated request is refused. */
TEST(extension_that_was_refused_the_second_time_is_unknown)
{
	static const lk_err errs[] = {LK_EAGAIN, LK_EAUTH};
	struct old_virt_call call;
	struct lk__op *waiter;

	for (int i = 0; i < 2; i++) {
		waiter = extend_executed(60000, &call);
		old_virt_link_down(a, LK_EUNKNOWN);
		ck_assert(!waiter->done);
		old_virt_link_up(a);
		ck_assert(old_virt_take(a, &call));
		old_virt_refuse(a, &call, errs[i], errs[i] == LK_EAGAIN);
		assert_done(waiter, LK_EUNKNOWN);
		release(a, pa);
		end();
	}
}

TEST(extension_with_an_unreadable_response_is_unknown)
{
	static const struct lk__answer malformed = {
		.kind = LK__FAILED, .err = LK_ESERVER, .ambiguous = true, .text = "odd"};
	struct old_virt_call call;
	struct lk__op *waiter;

	waiter = extend_executed(60000, &call);
	lk__core_answer(&a->core, v.now_ns, call.request, &malformed);
	assert_done(waiter, LK_EUNKNOWN);
	release(a, pa);
	end();
}

TEST(extensions_of_one_hold_are_answered_each_by_its_own)
{
	struct lk__op *first, *second;
	struct old_virt_call call;

	start_fixed(3000);
	hold(a, pa);
	first = old_virt_extend(a, pa, 2, 4000);
	ck_assert(old_virt_take(a, &call));
	second = old_virt_extend(a, pa, 2, 6000);
	old_virt_execute(a, &call);
	old_virt_answer(a, &call);
	assert_done(first, LK_OK);
	ck_assert(!second->done);
	old_virt_settle(&v);
	assert_done(second, LK_OK);
	ck_assert_int_eq(v.model.runs[LK__RENEW], 2);
	release(a, pa);
	end();
}

TEST(renewal_after_a_longer_extension_takes_nothing_back)
{
	struct lk__op *waiter;
	struct old_virt_call call;

	start(1000);
	hold(a, pa);
	waiter = old_virt_extend(a, pa, 2, 5000);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	old_virt_link_down(a, LK_ECONN);
	old_virt_link_up(a); /* it renews at once, with its own lease */
	ck_assert(old_virt_take(a, &call));
	ck_assert_int_eq(call.bytes.lease_ms, 1000);
	old_virt_execute(a, &call);
	old_virt_link_down(a, LK_EUNKNOWN);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_pass(&v, 3000);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_UNSURE);
	ck_assert(!waiter->done);
	old_virt_link_up(a);
	old_virt_settle(&v);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	release(a, pa);
	assert_done(waiter, LK_OK);
	release(b, pb);
	end();
}

/* ---- Involuntary ends --------------------------------------------------------------------- */

TEST(max_hold_ends_a_hold_that_is_renewed)
{
	struct lk__op *waiter;

	start(1000);
	waiter = old_virt_waiter(a, pa, 2);
	waiter->max_hold_ms = 2500;
	lk__core_acquire(&a->core, v.now_ns, waiter);
	old_virt_pass(&v, 2490);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	later(10);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_LOST);
	tick(a);
	lk__core_loss_reported(next_loss(a, LK_LOST_MAX_HOLD));
	old_virt_settle(&v);
	ck_assert(!v.model.locks[0].held);
	release_lost(a, pa);
	end();
}

TEST(break_tells_the_holder_and_serves_the_next)
{
	struct lk__op *waiter;

	start(10000);
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	model_break(&v.model, 0);
	ck_assert(old_virt_hear(a));
	lk__core_loss_reported(next_loss(a, LK_LOST_BROKEN));
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_LOST);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	release_lost(a, pa);
	release(b, pb);
	end();
}

TEST(thread_that_ends_gives_back_and_is_told)
{
	struct lk__op *waiter;

	start(10000);
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	lk__core_thread_ended(&a->core, v.now_ns, 4); /* another thread */
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	lk__core_thread_ended(&a->core, v.now_ns, 2);
	lk__core_loss_reported(next_loss(a, LK_LOST_THREAD));
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_NONE);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	release(b, pb);
	end();
}

TEST(drop_gives_back_what_its_handle_acquired_and_tells_nothing)
{
	int other;

	start(10000);
	hold(a, pa);
	lk__core_drop(&a->core, v.now_ns, pa->name, &other);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	lk__core_drop(&a->core, v.now_ns, pa->name, a);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_NONE);
	ck_assert_ptr_null(lk__core_next_lost(&a->core));
	end();
}

TEST(drop_forgets_a_loss_that_was_not_told)
{
	start(1000);
	hold(a, pa);
	later(2000);
	tick(a);
	lk__core_drop(&a->core, v.now_ns, pa->name, a);
	ck_assert_ptr_null(lk__core_next_lost(&a->core));
	end();
}

TEST(close_gives_back_and_keeps_what_is_still_to_tell)
{
	struct lk__hold *lost;

	start(1000);
	hold(a, pa);
	later(2000);
	tick(a);
	lk__core_close(&a->core, v.now_ns);
	lost = next_loss(a, LK_LOST_EXPIRED);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_NONE);
	lk__core_loss_reported(lost);
	assert_done(old_virt_acquire(a, pa, 2), LK_ECLOSED);
	hold(b, pb);
	lk__core_close(&b->core, v.now_ns);
	ck_assert_ptr_null(lk__core_next_lost(&b->core));
	end();
}

static bool unconfirmed(void)
{
	return lk__core_unconfirmed(&a->core, v.now_ns);
}

TEST(loss_that_the_store_knows_of_needs_no_confirmation)
{
	start(1000);
	hold(a, pa);
	ck_assert(unconfirmed());
	later(1000); /* expired */
	tick(a);
	ck_assert(!unconfirmed());
	lk__core_loss_reported(next_loss(a, LK_LOST_EXPIRED));
	release_lost(a, pa);

	hold(a, pa);
	model_break(&v.model, 0);
	ck_assert(old_virt_hear(a));
	ck_assert(!unconfirmed());
	lk__core_loss_reported(next_loss(a, LK_LOST_BROKEN));
	release_lost(a, pa);

	hold(a, pa);
	model_flush(&v.model);
	later(400);
	tick(a);
	step(a, LK__RENEW);
	ck_assert(!unconfirmed());
	lk__core_loss_reported(next_loss(a, LK_LOST_TAKEN));
	release_lost(a, pa);
	end();
}

/* The client ended these while the store still keeps them. */
TEST(hold_that_its_client_ended_needs_confirmation)
{
	struct lk__op *waiter;

	start(1000);
	waiter = old_virt_waiter(a, pa, 2);
	waiter->max_hold_ms = 200;
	lk__core_acquire(&a->core, v.now_ns, waiter);
	old_virt_settle(&v);
	later(200);
	tick(a);
	lk__core_loss_reported(next_loss(a, LK_LOST_MAX_HOLD));
	ck_assert(unconfirmed());
	step(a, LK__LEAVE);
	ck_assert(!unconfirmed());
	release_lost(a, pa);

	hold(a, pa);
	lk__core_thread_ended(&a->core, v.now_ns, 2);
	lk__core_loss_reported(next_loss(a, LK_LOST_THREAD));
	ck_assert(unconfirmed());
	step(a, LK__LEAVE);
	ck_assert(!unconfirmed());
	end();
}

TEST(released_hold_needs_confirmation_while_a_renewal_may_keep_it)
{
	struct old_virt_call renewal;
	struct lk__op *waiter;

	start(1000);
	hold(a, pa);
	later(400);
	tick(a);
	ck_assert(old_virt_take(a, &renewal)); /* never answered */
	old_virt_link_down(a, LK_EUNKNOWN);
	waiter = old_virt_release(a, pa, 2);
	old_virt_abandon(a, waiter);
	assert_done(waiter, LK_EUNKNOWN);
	later(700); /* past the confirmed lease */
	ck_assert(unconfirmed());
	later(300);
	ck_assert(!unconfirmed());
	old_virt_link_up(a);
	end();
}

TEST(wait_that_was_given_up_needs_confirmation)
{
	struct lk__op *waiter;

	start(1000);
	hold(b, pb);
	waiter = old_virt_acquire(a, pa, 2);
	old_virt_settle(&v);
	old_virt_link_down(a, LK_EUNKNOWN);
	old_virt_give_up(a, waiter, LK_ETIMEDOUT);
	old_virt_abandon(a, waiter);
	assert_done(waiter, LK_EUNKNOWN);
	later(300);
	ck_assert(unconfirmed()); /* a queued ticket may be granted */
	old_virt_link_up(a);
	old_virt_settle(&v);
	ck_assert(!unconfirmed());
	release(b, pb);
	end();
}

/* ---- Re-entry ----------------------------------------------------------------------------- */

TEST(re_entry_costs_no_request_and_each_is_released)
{
	start(10000);
	hold(a, pa);
	for (int i = 0; i < 3; i++)
		assert_done(old_virt_acquire(a, pa, 2), LK_OK);
	ck_assert_uint_eq(lk__core_hold(pa->name, 2)->count, 4);
	ck_assert_ptr_null(a->session.send_queue);
	for (int i = 0; i < 3; i++)
		assert_done(old_virt_release(a, pa, 2), LK_OK);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	ck_assert_ptr_null(a->session.send_queue);
	assert_done(old_virt_release(a, pa, 4), LK_ENOTOWNER);
	release(a, pa);
	ck_assert_int_eq(v.model.runs[LK__ASK] + v.model.runs[LK__LEAVE], 2);
	end();
}

TEST(re_entry_through_a_handle_of_another_lease_is_the_same_hold)
{
	struct lk__wait_queue *other;

	start(10000);
	other = old_virt_open(a, "a", 5000, false);
	hold(a, pa);
	assert_done(old_virt_acquire(a, other, 2), LK_OK);
	ck_assert_uint_eq(old_virt_fence(other, 2), old_virt_fence(pa, 2));
	assert_done(old_virt_release(a, other, 2), LK_OK);
	release(a, other);
	end();
}

TEST(re_entry_has_a_limit)
{
	start(10000);
	hold(a, pa);
	lk__core_hold(pa->name, 2)->count = LK__COUNT_MAX;
	assert_done(old_virt_acquire(a, pa, 2), LK_ELIMIT);
	ck_assert_uint_eq(lk__core_hold(pa->name, 2)->count, LK__COUNT_MAX);
	lk__core_hold(pa->name, 2)->count = 1;
	release(a, pa);
	end();
}
