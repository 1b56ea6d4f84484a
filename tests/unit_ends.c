/* SPDX-License-Identifier: MIT
 * Holds in virtual time: changes of their end, involuntary ends and their reports.  No thread, no
 * socket, no clock. */
#include "virtual_fixture.h"

/* ---- Extension ---------------------------------------------------------------------------- */

TEST_NOUNS(fixed_hold_ends_with_its_lease)
{
	start_fixed(1000);
	hold(a);
	virt_pass(&w, 900);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	ck_assert_int_eq(w.runs[LK__RENEW], 0);
	virt_pass(&w, 100);
	ck_assert_int_eq(state(a), LK_STATE_LOST);
	release_lost(a);
	end();
}

TEST_NOUNS(extension_moves_the_end_of_a_fixed_hold)
{
	struct lk__op *waiter;

	start_fixed(1000);
	hold(a);
	virt_pass(&w, 500);
	waiter = extend(a, 5000);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	/* A waiter's ask does not shorten it to the first lease. */
	waiter = acquire(b);
	virt_pass(&w, 4800);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	assert_waits(waiter);
	virt_pass(&w, 200);
	ck_assert_int_eq(state(a), LK_STATE_LOST);
	virt_pass(&w, 300);
	assert_done(waiter, LK_OK);
	release_lost(a);
	release(b);
	end();
}

/* An extension that the server executes; its response is still to come. */
static struct lk__op *extend_executed(int64_t lease_ms, struct virt_call *call)
{
	struct lk__op *waiter;

	start_fixed(3000);
	hold(a);
	waiter = extend(a, lease_ms);
	*call = reach(a, LK__RENEW);
	return waiter;
}

TEST_NOUNS(extension_without_an_answer_leaves_the_old_end)
{
	struct virt_call call;
	struct lk__op *waiter;

	waiter = extend_executed(500, &call);
	virt_abandon(a, waiter);
	assert_done(waiter, LK_EUNKNOWN);
	later(495);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	virt_answer(a, &call); /* no call waits for it any more */
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	later(2500);
	ck_assert_int_eq(state(a), LK_STATE_LOST);
	release_lost(a);
	end();
}

TEST_NOUNS(extension_of_a_hold_that_ended_is_a_loss)
{
	start_fixed(1000);
	hold(a);
	later(1000);
	assert_done(extend(a, 5000), LK_ELOST);
	assert_lost(a, LK_LOST_EXPIRED);
	release_lost(a);
	end();
}

TEST_NOUNS(extension_that_was_not_sent_did_not_happen)
{
	struct lk__op *waiter;

	start_fixed(3000);
	hold(a);
	virt_link_down(a, LK_ECONN);
	waiter = extend(a, 5000);
	assert_waits(waiter);
	virt_abandon(a, waiter);
	assert_done(waiter, LK_ECONN);
	virt_link_up(a);
	virt_settle(&w);
	ck_assert_int_eq(w.runs[LK__RENEW], 0);
	release(a);
	end();
}

/* The server executes the request, the response is lost, and the repeated request is refused. */
TEST_NOUNS(extension_that_was_refused_the_second_time_is_unknown)
{
	static const char *const errors[] = {RETRYABLE, PERMANENT};
	struct virt_call call;
	struct lk__op *waiter;

	for (int i = 0; i < 2; i++) {
		waiter = extend_executed(60000, &call);
		lose(a, &call);
		assert_waits(waiter);
		virt_link_up(a);
		call = take(a, LK__RENEW);
		virt_refuse(a, &call, errors[i]);
		assert_done(waiter, LK_EUNKNOWN);
		release(a);
		end();
	}
}

TEST_NOUNS(extension_with_an_unreadable_response_is_unknown)
{
	struct virt_call call;
	struct lk__op *waiter;

	waiter = extend_executed(60000, &call);
	virt_reply(a, &call, "+odd\r\n");
	assert_done(waiter, LK_EUNKNOWN);
	release(a);
	end();
}

TEST_NOUNS(extensions_of_one_hold_are_answered_each_by_its_own)
{
	struct lk__op *first, *second;
	struct virt_call call;

	start_fixed(3000);
	hold(a);
	first = extend(a, 4000);
	call = take(a, LK__RENEW);
	second = extend(a, 6000);
	virt_execute(a, &call);
	virt_answer(a, &call);
	assert_done(first, LK_OK);
	assert_waits(second);
	virt_settle(&w);
	assert_done(second, LK_OK);
	ck_assert_int_eq(w.runs[LK__RENEW], 2);
	release(a);
	end();
}

TEST_NOUNS(renewal_after_a_longer_extension_takes_nothing_back)
{
	struct lk__op *waiter;
	struct virt_call call;

	start(1000);
	hold(a);
	waiter = extend(a, 5000);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	virt_link_down(a, LK_ECONN);
	virt_link_up(a); /* it renews at once, with its own lease */
	call = reach(a, LK__RENEW);
	ck_assert_int_eq(call.request->lease_ms, 1000);
	lose(a, &call);
	waiter = acquire(b);
	virt_pass(&w, 3000);
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	assert_waits(waiter);
	virt_link_up(a);
	virt_settle(&w);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	release(a);
	assert_done(waiter, LK_OK);
	release(b);
	end();
}

/* ---- Involuntary ends --------------------------------------------------------------------- */

TEST_NOUNS(max_hold_ends_a_hold_that_is_renewed)
{
	struct lk__op *waiter;

	start(1000);
	waiter = call_of(a, OWNER);
	waiter->max_hold_ms = 2500;
	begin(a, waiter);
	virt_pass(&w, 2490);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	later(10);
	ck_assert_int_eq(state(a), LK_STATE_LOST);
	tick(a);
	assert_lost(a, LK_LOST_MAX_HOLD);
	virt_settle(&w);
	ck_assert_int_eq(used(), 0);
	release_lost(a);
	end();
}

TEST_NOUNS(break_notifies_the_holder_and_serves_the_next)
{
	struct lk__op *waiter;

	start(10000);
	hold(a);
	waiter = wait_for(b);
	break_hold();
	ck_assert(virt_hear(a));
	assert_lost(a, LK_LOST_BROKEN);
	ck_assert_int_eq(state(a), LK_STATE_LOST);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	release_lost(a);
	release(b);
	end();
}

TEST(thread_that_ends_releases_and_its_loss_is_reported)
{
	struct lk__op *waiter;

	start(10000);
	hold(a);
	waiter = wait_for(b);
	lk__core_thread_ended(&a->core, w.now_ns, OWNER + 2); /* another thread */
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	lk__core_thread_ended(&a->core, w.now_ns, OWNER);
	assert_lost(a, LK_LOST_THREAD);
	ck_assert_int_eq(state(a), LK_STATE_NONE);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	release(b);
	end();
}

TEST_NOUNS(drop_releases_its_handle_s_holds_and_reports_nothing)
{
	int other;

	start(10000);
	hold(a);
	lk__core_drop(&a->core, w.now_ns, a->queue->name, &other);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	lk__core_drop(&a->core, w.now_ns, a->queue->name, a);
	ck_assert_int_eq(state(a), LK_STATE_NONE);
	ck_assert_ptr_null(lk__core_next_lost(&a->core));
	end();
}

TEST_NOUNS(drop_removes_a_loss_that_was_not_reported)
{
	start(1000);
	hold(a);
	later(2000);
	tick(a);
	lk__core_drop(&a->core, w.now_ns, a->queue->name, a);
	ck_assert_ptr_null(lk__core_next_lost(&a->core));
	end();
}

TEST_NOUNS(close_releases_and_keeps_unreported_losses)
{
	struct lk__hold *lost;

	start(1000);
	hold(a);
	later(2000);
	tick(a);
	lk__core_close(&a->core, w.now_ns);
	lost = next_loss(a, LK_LOST_EXPIRED);
	ck_assert_int_eq(state(a), LK_STATE_NONE);
	lk__core_loss_reported(lost);
	assert_done(acquire(a), LK_ECLOSED);
	hold(b);
	lk__core_close(&b->core, w.now_ns);
	ck_assert_ptr_null(lk__core_next_lost(&b->core));
	end();
}

static bool unconfirmed(void)
{
	return lk__core_unconfirmed(&a->core, w.now_ns);
}

TEST_NOUNS(loss_that_the_store_knows_of_needs_no_confirmation)
{
	start(1000);
	hold(a);
	ck_assert(unconfirmed());
	later(1000); /* expired */
	tick(a);
	ck_assert(!unconfirmed());
	assert_lost(a, LK_LOST_EXPIRED);
	release_lost(a);

	hold(a);
	break_hold();
	ck_assert(virt_hear(a));
	ck_assert(!unconfirmed());
	assert_lost(a, LK_LOST_BROKEN);
	release_lost(a);

	hold(a);
	take_away();
	later(400);
	tick(a);
	step(a, LK__RENEW);
	ck_assert(unconfirmed()); /* the server may have lost its memory */
	step(a, LK__EPOCH);
	ck_assert(!unconfirmed());
	assert_lost(a, LK_LOST_TAKEN);
	release_lost(a);
	end();
}

/* The server loses its memory while the client has no link, and the owner releases the hold before
 * the client learns of it. */
static struct lk__op *release_what_the_server_forgot(int64_t grace_ms, int64_t extended_ms)
{
	struct lk__op *release;

	start(1000);
	a->session.grace_ms = a->space.grace_ms = grace_ms;
	hold(a);
	if (extended_ms) {
		(void)extend(a, extended_ms);
		step(a, LK__RENEW);
	}
	virt_link_down(a, LK_ECONN);
	flush();
	later(100);
	release = begin_release(a);
	virt_link_up(a);
	step(a, LK__LEAVE);
	return release;
}

TEST_NOUNS(release_of_a_forgotten_hold_is_no_loss_while_nobody_else_can_hold)
{
	assert_done(release_what_the_server_forgot(1000, 0), LK_OK);
	ck_assert_int_eq(a->core.counters.lost[0], 0);
	end();
}

TEST_NOUNS(release_of_a_forgotten_hold_is_a_loss_if_its_lease_is_longer_than_the_grace)
{
	assert_done(release_what_the_server_forgot(999, 0), LK_ELOST);
	end();
	assert_done(release_what_the_server_forgot(1000, 1001), LK_ELOST);
	end();
	assert_done(release_what_the_server_forgot(0, 0), LK_ELOST);
	end();
}

/* The client ended these while the store still keeps them. */
TEST(hold_that_its_client_ended_needs_confirmation)
{
	struct lk__op *waiter;

	start(1000);
	waiter = call_of(a, OWNER);
	waiter->max_hold_ms = 200;
	begin(a, waiter);
	virt_settle(&w);
	later(200);
	tick(a);
	assert_lost(a, LK_LOST_MAX_HOLD);
	ck_assert(unconfirmed());
	step(a, LK__LEAVE);
	ck_assert(!unconfirmed());
	release_lost(a);

	hold(a);
	lk__core_thread_ended(&a->core, w.now_ns, OWNER);
	assert_lost(a, LK_LOST_THREAD);
	ck_assert(unconfirmed());
	step(a, LK__LEAVE);
	ck_assert(!unconfirmed());
	end();
}

TEST_NOUNS(released_hold_needs_confirmation_while_a_renewal_may_keep_it)
{
	struct virt_call renewal;
	struct lk__op *waiter;

	start(1000);
	hold(a);
	later(400);
	tick(a);
	renewal = take(a, LK__RENEW); /* never answered */
	lose(a, &renewal);
	waiter = begin_release(a);
	virt_abandon(a, waiter);
	assert_done(waiter, LK_EUNKNOWN);
	later(700); /* past the confirmed lease */
	ck_assert(unconfirmed());
	later(300);
	ck_assert(!unconfirmed());
	virt_link_up(a);
	end();
}

TEST_NOUNS(wait_that_was_given_up_needs_confirmation)
{
	struct lk__op *waiter;

	start(1000);
	hold(b);
	waiter = wait_for(a);
	virt_link_down(a, LK_EUNKNOWN);
	virt_give_up(a, waiter, LK_ETIMEDOUT);
	virt_abandon(a, waiter);
	assert_done(waiter, LK_EUNKNOWN);
	later(300);
	ck_assert(unconfirmed()); /* a queued ticket may be granted */
	virt_link_up(a);
	virt_settle(&w);
	ck_assert(!unconfirmed());
	release(b);
	end();
}
