/* SPDX-License-Identifier: MIT
 * Holds in virtual time: how long they are valid, and how they are renewed.  No thread, no socket,
 * no clock. */
#include "fixture.h"

#include <stdio.h>
#include <string.h>

/* ---- Validity ----------------------------------------------------------------------------- */

TEST(validity_counts_from_before_the_request_was_sent)
{
	struct old_virt_call call;
	struct lk__op *waiter;
	int64_t sent_ns, valid_ns = 1000 * OLD_VIRT_MS - lk__margin_ns(1000);

	start(1000);
	waiter = old_virt_acquire(a, pa, 2);
	sent_ns = v.now_ns;
	ck_assert(old_virt_take(a, &call));
	later(200);
	old_virt_execute(a, &call);
	later(200);
	old_virt_answer(a, &call);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(lk__hold_left_ns(lk__core_hold(pa->name, 2), v.now_ns),
	                 sent_ns + valid_ns - v.now_ns);
	release(a, pa);
	end();
}

TEST(margin_covers_a_hundredth_of_drift)
{
	ck_assert_int_eq(lk__margin_ns(10000), 102 * OLD_VIRT_MS);
	ck_assert_int_eq(lk__margin_ns(100), 3 * OLD_VIRT_MS);
}

TEST(grant_that_arrives_too_late_is_none)
{
	struct old_virt_call call;
	struct lk__op *waiter;
	char nonce[LK__NONCE_SIZE];

	start(1000);
	waiter = old_virt_acquire(a, pa, 2);
	ck_assert(old_virt_take(a, &call));
	old_virt_execute(a, &call);
	memcpy(nonce, call.bytes.ticket.nonce, sizeof(nonce));
	later(990);
	old_virt_answer(a, &call);
	ck_assert(!waiter->done);
	/* The client leaves it, and asks anew with another nonce. */
	ck_assert(old_virt_take(a, &call));
	ck_assert_int_eq(call.bytes.kind, LK__LEAVE);
	ck_assert_str_eq(call.bytes.ticket.nonce, nonce);
	old_virt_execute(a, &call);
	old_virt_answer(a, &call);
	ck_assert(old_virt_take(a, &call));
	ck_assert_int_eq(call.bytes.kind, LK__ASK);
	ck_assert_str_ne(call.bytes.ticket.nonce, nonce);
	old_virt_execute(a, &call);
	old_virt_answer(a, &call);
	assert_done(waiter, LK_OK);
	release(a, pa);
	end();
}

TEST(wait_that_ends_during_a_lapse_leaves_nothing)
{
	struct old_virt_call call;
	struct lk__op *waiter;

	start(1000);
	waiter = old_virt_acquire(a, pa, 2);
	ck_assert(old_virt_take(a, &call));
	old_virt_execute(a, &call);
	later(990);
	old_virt_answer(a, &call);
	old_virt_give_up(a, waiter, LK_ETIMEDOUT);
	old_virt_settle(&v);
	assert_done(waiter, LK_ETIMEDOUT);
	end();
}

TEST(renewal_answered_too_late_revives_nothing)
{
	struct old_virt_call call;
	struct lk__op *waiter;

	start(1000);
	hold(a, pa);
	later(400);
	tick(a);
	ck_assert(old_virt_take(a, &call));
	ck_assert_int_eq(call.bytes.kind, LK__RENEW);
	old_virt_execute(a, &call);
	waiter = old_virt_acquire(b, pb, 2);
	later(600);
	/* No timer has run: the clock alone decides. */
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_LOST);
	old_virt_answer(a, &call);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_LOST);
	lk__core_loss_reported(next_loss(a, LK_LOST_EXPIRED));
	old_virt_settle(&v);
	assert_done(waiter, LK_OK); /* the loss released it */
	release_lost(a, pa);
	release(b, pb);
	end();
}

TEST(lapsed_hold_is_lost_to_every_call_before_any_timer)
{
	start(1000);
	hold(a, pa);
	later(2000);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_LOST);
	assert_done(old_virt_acquire(a, pa, 2), LK_ELOST);
	assert_done(old_virt_extend(a, pa, 2, 1000), LK_ELOST);
	assert_done(old_virt_release(a, pa, 2), LK_ELOST);
	assert_done(old_virt_release(a, pa, 2), LK_ENOTOWNER);
	end();
}

TEST(loss_is_told_at_its_moment_without_a_link)
{
	int64_t valid_ns;

	start(1000);
	hold(a, pa);
	valid_ns = v.now_ns + 1000 * OLD_VIRT_MS - lk__margin_ns(1000);
	old_virt_link_down(a, LK_ECONN);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_UNSURE);
	ck_assert_int_eq(lk__core_due(&a->core), valid_ns);
	old_virt_set_time(&v, valid_ns - 1);
	tick(a);
	ck_assert_ptr_null(lk__core_next_lost(&a->core));
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_UNSURE);
	old_virt_set_time(&v, valid_ns);
	tick(a);
	lk__core_loss_reported(next_loss(a, LK_LOST_EXPIRED));
	release_lost(a, pa);
	old_virt_link_up(a);
	end();
}

/* ---- Renewal ------------------------------------------------------------------------------ */

TEST(hold_is_renewed_with_two_thirds_left)
{
	start(3000);
	hold(a, pa);
	old_virt_pass(&v, 850);
	ck_assert_int_eq(v.model.runs[LK__RENEW], 0);
	old_virt_pass(&v, 200);
	ck_assert_int_eq(v.model.runs[LK__RENEW], 1);
	old_virt_pass(&v, 30000);
	ck_assert_int_ge(v.model.runs[LK__RENEW], 30);
	ck_assert_int_le(v.model.runs[LK__RENEW], 36);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	release(a, pa);
	end();
}

/* Confirm all requests, without the store. */
static int say_yes(void)
{
	struct lk__answer yes = {.waiting = 0};
	struct old_virt_call call;
	int count = 0;

	while (old_virt_take(a, &call)) {
		yes.kind = call.bytes.kind == LK__ASK ? LK__GRANTED : LK__KEPT;
		yes.fence = (uint64_t)v.model.now_us;
		yes.store_us = v.model.now_us;
		if (call.bytes.kind == LK__LEAVE)
			yes.kind = LK__LEFT;
		lk__core_answer(&a->core, v.now_ns, call.request, &yes);
		count++;
	}
	return count;
}

TEST(hundred_holds_are_renewed_in_a_few_batches)
{
	struct lk__wait_queue *queues[100];
	int64_t first_ns, end_ns;
	int batches = 0, renewals = 0;

	start(3000);
	for (int i = 0; i < 100; i++) {
		char name[16];
		snprintf(name, sizeof(name), "n%d", i);
		queues[i] = old_virt_open(a, name, 3000, false);
		old_virt_acquire(a, queues[i], 2);
		old_virt_set_time(&v, v.now_ns + 13 * OLD_VIRT_MS);
		tick(a);
		say_yes();
	}
	/* Ten periods of a third of the lease each. */
	first_ns = v.now_ns;
	end_ns = first_ns + 10000 * OLD_VIRT_MS;
	while (lk__core_due(&a->core) < end_ns) {
		int count;
		old_virt_set_time(&v, lk__core_due(&a->core));
		tick(a);
		count = say_yes();
		renewals += count;
		batches += count > 0;
	}
	ck_assert_int_ge(renewals, 1000);
	ck_assert_int_le(batches, 10 * 10);
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(old_virt_state(a, queues[i], 2), LK_STATE_HELD);
		old_virt_release(a, queues[i], 2);
	}
	say_yes();
	end();
}

TEST(release_kills_a_renewal_in_line)
{
	struct old_virt_call call;

	start(3000);
	hold(a, pa);
	later(1500);
	tick(a); /* queued, not sent */
	old_virt_release(a, pa, 2);
	ck_assert(old_virt_take(a, &call));
	ck_assert_int_eq(call.bytes.kind, LK__LEAVE);
	old_virt_execute(a, &call);
	old_virt_answer(a, &call);
	old_virt_pass(&v, 10000);
	ck_assert_int_eq(v.model.runs[LK__RENEW], 0);
	end();
}

TEST(renewal_under_way_does_not_outlive_a_release)
{
	struct old_virt_call renew, leave;
	struct lk__op *waiter, *next;

	start(3000);
	hold(a, pa);
	later(1500);
	tick(a);
	ck_assert(old_virt_take(a, &renew));
	waiter = old_virt_release(a, pa, 2);
	ck_assert(old_virt_take(a, &leave));
	/* Also if another thread has started a wait. */
	next = old_virt_acquire(a, pa, 4);
	old_virt_execute(a, &renew);
	old_virt_execute(a, &leave);
	old_virt_answer(a, &renew);
	ck_assert(!waiter->done);
	old_virt_answer(a, &leave);
	assert_done(waiter, LK_OK);
	old_virt_settle(&v);
	assert_done(next, LK_OK);
	ck_assert_uint_ne(old_virt_fence(pa, 4), renew.bytes.fence);
	old_virt_release(a, pa, 4);
	end();
}

TEST(renewal_that_finds_nothing_is_a_loss)
{
	start(3000);
	hold(a, pa);
	model_flush(&v.model);
	old_virt_pass(&v, 1200);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_LOST);
	ck_assert_int_eq(lk__core_hold(pa->name, 2)->lost, LK_LOST_TAKEN);
	ck_assert_uint_ne(old_virt_fence(pa, 2), 0); /* readable until released */
	release_lost(a, pa);
	end();
}

TEST(renewal_that_fails_is_tried_again_until_the_end)
{
	struct old_virt_call call;
	int tries = 0;

	start(1000);
	hold(a, pa);
	while (old_virt_state(a, pa, 2) != LK_STATE_LOST) {
		old_virt_set_time(&v, lk__core_due(&a->core));
		tick(a);
		while (old_virt_take(a, &call) && call.bytes.kind == LK__RENEW) {
			old_virt_refuse(a, &call, LK_ESERVER, false);
			tries++;
			ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_UNSURE);
		}
	}
	ck_assert_int_ge(tries, 5);
	ck_assert_int_le(tries, 40);
	old_virt_answer(
		a, &(struct old_virt_call){.request = call.request, .answer = {.kind = LK__LEFT}});
	release_lost(a, pa);
	old_virt_pass(&v, 2000);
	end();
}

TEST(renewal_that_fails_is_not_hurried_by_a_waiting_thread)
{
	struct old_virt_call call;
	struct lk__op *waiter;

	start(3000);
	hold(a, pa);
	waiter = old_virt_acquire(a, pa, 4); /* which the renewal should report to the store */
	ck_assert(old_virt_take(a, &call));
	ck_assert_int_eq(call.bytes.kind, LK__RENEW);
	old_virt_refuse(a, &call, LK_EAGAIN, true);
	ck_assert(!old_virt_take(a, &call));
	ck_assert_int_gt(lk__core_due(&a->core), v.now_ns + 50 * OLD_VIRT_MS);
	old_virt_pass(&v, 1000);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	release(a, pa);
	assert_done(waiter, LK_OK);
	old_virt_release(a, pa, 4);
	end();
}

/* ---- A thread that would wait for itself ------------------------------------------------------
 */

/* Thread 2 waits through a handle that owns its holds, owner 3. */
static struct lk__op *acquire_by_handle(struct lk__wait_queue *queue, bool only_try)
{
	struct lk__op *waiter = old_virt_waiter(a, queue, 3);

	waiter->thread = 2;
	waiter->only_try = only_try;
	lk__core_acquire(&a->core, old_virt_now(a), waiter);
	return waiter;
}

TEST(wait_of_a_handle_for_its_own_thread_is_a_deadlock)
{
	struct lk__wait_queue *longer;
	struct lk__op *waiter;

	start(1000);
	longer = old_virt_open(a, "a", 5000, false);
	hold(a, pa);
	assert_done(acquire_by_handle(pa, false), LK_EDEADLOCK);
	assert_done(acquire_by_handle(longer, false), LK_EDEADLOCK);
	assert_done(acquire_by_handle(pa, true), LK_EBUSY);
	/* A hold of another thread can end without this thread. */
	release(a, pa);
	waiter = old_virt_acquire(a, pa, 4);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	waiter = acquire_by_handle(pa, false);
	ck_assert(!waiter->done);
	old_virt_release(a, pa, 4);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	old_virt_release(a, pa, 3);
	end();
}

TEST(wait_of_a_handle_for_a_hold_that_ends_by_itself_is_none)
{
	struct lk__op *waiter;

	start_fixed(1000);
	hold(a, pa);
	waiter = acquire_by_handle(pa, false);
	ck_assert(!waiter->done);
	old_virt_pass(&v, 1100);
	assert_done(waiter, LK_OK);
	old_virt_release(a, pa, 3);
	release_lost(a, pa);
	end();
	start(1000);
	waiter = old_virt_waiter(a, pa, 2);
	waiter->max_hold_ms = 500;
	lk__core_acquire(&a->core, old_virt_now(a), waiter);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	waiter = acquire_by_handle(pa, false);
	ck_assert(!waiter->done);
	old_virt_pass(&v, 600);
	assert_done(waiter, LK_OK);
	old_virt_release(a, pa, 3);
	release_lost(a, pa);
	end();
}

TEST(wait_of_a_handle_for_a_lost_hold_is_no_deadlock)
{
	struct lk__op *waiter;

	start(1000);
	hold(a, pa);
	old_virt_link_down(a, LK_ECONN);
	later(1000);
	waiter = acquire_by_handle(pa, false); /* before any timer noticed the end */
	ck_assert(!waiter->done);
	old_virt_link_up(a);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	old_virt_release(a, pa, 3);
	release_lost(a, pa);
	end();
}
