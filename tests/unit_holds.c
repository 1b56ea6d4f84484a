/* SPDX-License-Identifier: MIT
 * Holds in virtual time: how long they are valid, and how they are renewed.  No thread, no socket,
 * no clock. */
#include "virtual_fixture.h"

#include <stdio.h>

/* ---- Validity ----------------------------------------------------------------------------- */

TEST_NOUNS(validity_counts_from_before_the_request_was_sent)
{
	struct virt_call call;
	struct lk__op *waiter;
	int64_t sent_ns, valid_ns = 1000 * VIRT_MS - lk__margin_ns(1000);

	start(1000);
	waiter = acquire(a);
	sent_ns = w.now_ns;
	call = take(a, LK__ASK);
	later(200);
	virt_execute(a, &call);
	later(200);
	virt_answer(a, &call);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(left_ns(a), sent_ns + valid_ns - w.now_ns);
	release(a);
	end();
}

TEST(margin_covers_a_hundredth_of_drift)
{
	ck_assert_int_eq(lk__margin_ns(10000), 102 * VIRT_MS);
	ck_assert_int_eq(lk__margin_ns(100), 3 * VIRT_MS);
}

TEST_NOUNS(grant_that_arrives_too_late_is_none)
{
	struct virt_call call;
	struct store_ticket first;
	struct lk__op *waiter;

	start(1000);
	waiter = acquire(a);
	call = reach(a, LK__ASK);
	first = *only_stored();
	later(990);
	virt_answer(a, &call);
	assert_waits(waiter);
	/* The client leaves it, and asks anew with another nonce. */
	step(a, LK__LEAVE);
	ck_assert_int_eq(used(), 0);
	step(a, LK__ASK);
	ck_assert_str_ne(only_stored()->nonce, first.nonce);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

TEST_NOUNS(wait_that_ends_during_a_lapse_leaves_nothing)
{
	struct virt_call call;
	struct lk__op *waiter;

	start(1000);
	waiter = acquire(a);
	call = reach(a, LK__ASK);
	later(990);
	virt_answer(a, &call);
	virt_give_up(a, waiter, LK_ETIMEDOUT);
	virt_settle(&w);
	assert_done(waiter, LK_ETIMEDOUT);
	end();
}

TEST_NOUNS(renewal_answered_too_late_revives_nothing)
{
	struct virt_call call;
	struct lk__op *waiter;

	start(1000);
	hold(a);
	later(400);
	tick(a);
	call = reach(a, LK__RENEW);
	waiter = acquire(b);
	later(600);
	/* No timer has run: the clock alone decides. */
	ck_assert_int_eq(state(a), LK_STATE_LOST);
	virt_answer(a, &call);
	ck_assert_int_eq(state(a), LK_STATE_LOST);
	assert_lost(a, LK_LOST_EXPIRED);
	virt_settle(&w);
	assert_done(waiter, LK_OK); /* the loss released it */
	release_lost(a);
	release(b);
	end();
}

TEST(lapsed_hold_is_lost_to_every_call_before_any_timer)
{
	start(1000);
	hold(a);
	later(2000);
	ck_assert_int_eq(state(a), LK_STATE_LOST);
	assert_done(acquire(a), LK_ELOST);
	assert_done(extend(a, 1000), LK_ELOST);
	assert_done(begin_release(a), LK_ELOST);
	assert_done(begin_release_of(a, OWNER), LK_ENOTOWNER);
	end();
}

TEST_NOUNS(loss_is_reported_in_time_without_a_link)
{
	int64_t valid_ns;

	start(1000);
	hold(a);
	valid_ns = w.now_ns + 1000 * VIRT_MS - lk__margin_ns(1000);
	virt_link_down(a, LK_ECONN);
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	ck_assert_int_eq(lk__core_due(&a->core), valid_ns);
	virt_set_time(&w, valid_ns - 1);
	tick(a);
	ck_assert_ptr_null(lk__core_next_lost(&a->core));
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	virt_set_time(&w, valid_ns);
	tick(a);
	assert_lost(a, LK_LOST_EXPIRED);
	release_lost(a);
	virt_link_up(a);
	end();
}

/* ---- Renewal ------------------------------------------------------------------------------ */

TEST_NOUNS(hold_is_renewed_with_two_thirds_left)
{
	start(3000);
	hold(a);
	virt_pass(&w, 850);
	ck_assert_int_eq(w.runs[LK__RENEW], 0);
	virt_pass(&w, 200);
	ck_assert_int_eq(w.runs[LK__RENEW], 1);
	virt_pass(&w, 30000);
	ck_assert_int_ge(w.runs[LK__RENEW], 30);
	ck_assert_int_le(w.runs[LK__RENEW], 36);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	release(a);
	end();
}

/* Serve the requests that are queued now. */
static int serve_batch(void)
{
	struct virt_call call;
	int count = 0;

	for (; virt_take(a, &call); count++) {
		virt_execute(a, &call);
		virt_answer(a, &call);
	}
	return count;
}

TEST_NOUNS(hundred_holds_are_renewed_in_a_few_batches)
{
	struct lk__wait_queue *queues[100];
	int64_t first_ns, end_ns;
	int batches = 0, renewals = 0;

	start(3000);
	for (int i = 0; i < 100; i++) {
		char name[16];
		snprintf(name, sizeof(name), "n%d", i);
		a->queue = open_handle(a, name, 3000, false);
		acquire(a);
		later(13);
		tick(a);
		serve_batch();
		queues[i] = a->queue;
	}
	/* Ten periods of a third of the lease each. */
	first_ns = w.now_ns;
	end_ns = first_ns + 10000 * VIRT_MS;
	while (lk__core_due(&a->core) < end_ns) {
		int count;
		tick_when_due(a);
		count = serve_batch();
		renewals += count;
		batches += count > 0;
	}
	ck_assert_int_ge(renewals, 1000);
	ck_assert_int_le(batches, 10 * 10);
	for (int i = 0; i < 100; i++) {
		a->queue = queues[i];
		ck_assert_int_eq(state(a), LK_STATE_HELD);
		release(a);
	}
	end();
}

TEST_NOUNS(release_removes_a_queued_renewal)
{
	start(3000);
	hold(a);
	later(1500);
	tick(a); /* queued, not sent */
	leave(a);
	virt_pass(&w, 10000);
	ck_assert_int_eq(w.runs[LK__RENEW], 0);
	end();
}

TEST_NOUNS(renewal_in_flight_does_not_outlive_a_release)
{
	struct virt_call renew, leave;
	struct lk__op *waiter, *next;
	uint64_t fence;

	start(3000);
	fence = hold(a);
	later(1500);
	tick(a);
	renew = take(a, LK__RENEW);
	waiter = begin_release(a);
	leave = take(a, LK__LEAVE);
	/* Also if another thread has started a wait. */
	next = acquire_of(a, 4);
	virt_execute(a, &renew);
	virt_execute(a, &leave);
	virt_answer(a, &renew);
	assert_waits(waiter);
	virt_answer(a, &leave);
	assert_done(waiter, LK_OK);
	virt_settle(&w);
	assert_done(next, LK_OK);
	ck_assert_uint_ne(next->fence, fence);
	release(a);
	end();
}

TEST_NOUNS(renewal_that_finds_nothing_is_a_loss)
{
	start(3000);
	hold(a);
	flush();
	virt_pass(&w, 1200);
	ck_assert_int_eq(state(a), LK_STATE_LOST);
	ck_assert_int_eq(held(a)->lost, LK_LOST_TAKEN);
	ck_assert_uint_ne(held(a)->fence, 0); /* readable until released */
	release_lost(a);
	end();
}

TEST_NOUNS(renewal_that_fails_is_tried_again_until_the_end)
{
	struct virt_call call;
	int tries = 0;

	start(1000);
	hold(a);
	while (state(a) != LK_STATE_LOST) {
		tick_when_due(a);
		while (virt_take(a, &call) && call.kind == LK__RENEW) {
			virt_refuse(a, &call, "ERR refused");
			tries++;
			ck_assert_int_eq(state(a), LK_STATE_UNSURE);
		}
	}
	ck_assert_int_ge(tries, 5);
	ck_assert_int_le(tries, 40);
	virt_execute(a, &call); /* its leave */
	virt_answer(a, &call);
	release_lost(a);
	virt_pass(&w, 2000);
	end();
}

TEST(renewal_that_fails_is_not_hurried_by_a_waiting_thread)
{
	struct lk__op *waiter;

	start(3000);
	hold(a);
	waiter = acquire_of(a, 4); /* which the renewal should report to the store */
	refuse(a, LK__RENEW, RETRYABLE);
	assert_no_request(a);
	ck_assert_int_gt(lk__core_due(&a->core), w.now_ns + 50 * VIRT_MS);
	virt_pass(&w, 1000);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	release(a);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

/* ---- Dead holders, and the server's clock ---------------------------------------------------- */

TEST_NOUNS(holder_that_dies_is_followed_when_its_lease_ends)
{
	struct lk__op *waiter;
	int64_t ms;

	start(4000);
	hold(a);
	waiter = wait_for(b);
	kill_client(a);
	ms = ms_until_done(waiter);
	ck_assert_int_ge(ms, 4000 - 1);
	ck_assert_int_le(ms, 4300);
	release(b);
	virt_link_down(a, LK_ECONN); /* it was only cut off */
	virt_link_up(a);
	virt_settle(&w);
	ck_assert_int_eq(state(a), LK_STATE_LOST);
	release_lost(a);
	end();
}

TEST_NOUNS(server_clock_that_steps_back_keeps_nothing_longer_than_its_lease)
{
	struct lk__op *waiter;
	int64_t ms;

	start(4000);
	hold(a);
	kill_client(a);
	w.store_offset_us = -3600000000; /* an hour */
	virt_set_time(&w, w.now_ns);
	waiter = wait_for(b);
	ms = ms_until_done(waiter);
	ck_assert_int_ge(ms, 4000 - 1); /* its whole lease */
	ck_assert_int_le(ms, 14500);
	release(b);
	bury(a);
	end();
}

TEST_NOUNS(server_clock_that_steps_back_takes_no_hold_away)
{
	struct lk__op *waiter;
	uint64_t fence;

	start(4000);
	fence = hold(a);
	w.store_offset_us = -3600000000;
	virt_set_time(&w, w.now_ns);
	waiter = wait_for(b);
	virt_pass(&w, 20000);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	assert_waits(waiter);
	release(a);
	assert_done(waiter, LK_OK);
	ck_assert_uint_gt(waiter->fence, fence);
	release(b);
	end();
}
