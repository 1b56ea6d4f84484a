/* SPDX-License-Identifier: MIT
 * Threads of one client that share a lock, in virtual time: re-entry, a thread that would wait for
 * itself, hand-overs between threads and their limit.  No thread, no socket, no clock. */
#include "virtual_fixture.h"

/* ---- Re-entry ----------------------------------------------------------------------------- */

TEST(re_entry_costs_no_request_and_each_is_released)
{
	start(10000);
	hold(a);
	for (int i = 0; i < 3; i++)
		assert_done(acquire(a), LK_OK);
	ck_assert_uint_eq(held(a)->count, 4);
	ck_assert_ptr_null(a->session.send_queue);
	for (int i = 0; i < 3; i++)
		assert_done(begin_release(a), LK_OK);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	ck_assert_ptr_null(a->session.send_queue);
	assert_done(begin_release_of(a, 4), LK_ENOTOWNER);
	release(a);
	ck_assert_int_eq(w.runs[LK__ASK] + w.runs[LK__LEAVE], 2);
	end();
}

TEST(re_entry_through_a_handle_of_another_lease_is_the_same_hold)
{
	struct lk__op *again;

	start(10000);
	hold(a);
	a->queue = open_handle(a, "s", 5000, false);
	again = acquire(a);
	assert_done(again, LK_OK);
	ck_assert_uint_eq(again->fence, held(a)->fence);
	assert_done(begin_release(a), LK_OK);
	release(a);
	end();
}

TEST(re_entry_has_a_limit)
{
	start(10000);
	hold(a);
	held(a)->count = LK__COUNT_MAX;
	assert_done(acquire(a), LK_ELIMIT);
	ck_assert_uint_eq(held(a)->count, LK__COUNT_MAX);
	held(a)->count = 1;
	release(a);
	end();
}

/* ---- A thread that would wait for itself ------------------------------------------------- */

/* Thread OWNER waits through a handle that owns its holds, owner 3. */
static struct lk__op *acquire_by_handle(bool only_try)
{
	struct lk__op *waiter = call_of(a, 3);

	waiter->thread = OWNER;
	waiter->only_try = only_try;
	return begin(a, waiter);
}

TEST(wait_of_a_handle_for_its_own_thread_is_a_deadlock)
{
	struct lk__wait_queue *first, *longer;
	struct lk__op *waiter;

	start(1000);
	first = a->queue;
	longer = open_handle(a, "s", 5000, false);
	hold(a);
	assert_done(acquire_by_handle(false), LK_EDEADLOCK);
	a->queue = longer;
	assert_done(acquire_by_handle(false), LK_EDEADLOCK);
	a->queue = first;
	assert_done(acquire_by_handle(true), LK_EBUSY);
	/* A hold of another thread can end without this thread. */
	release(a);
	waiter = acquire_of(a, 4);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	waiter = acquire_by_handle(false);
	assert_waits(waiter);
	begin_release(a);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	begin_release_of(a, 3);
	end();
}

TEST(wait_of_a_handle_for_a_hold_that_ends_by_itself_is_none)
{
	struct lk__op *waiter;

	start_fixed(1000);
	hold(a);
	waiter = acquire_by_handle(false);
	assert_waits(waiter);
	virt_pass(&w, 1100);
	assert_done(waiter, LK_OK);
	begin_release_of(a, 3);
	release_lost(a);
	end();
	start(1000);
	waiter = call_of(a, OWNER);
	waiter->max_hold_ms = 500;
	begin(a, waiter);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	waiter = acquire_by_handle(false);
	assert_waits(waiter);
	virt_pass(&w, 600);
	assert_done(waiter, LK_OK);
	begin_release_of(a, 3);
	release_lost(a);
	end();
}

TEST(wait_of_a_handle_for_a_lost_hold_is_no_deadlock)
{
	struct lk__op *waiter;

	start(1000);
	hold(a);
	virt_link_down(a, LK_ECONN);
	later(1000);
	waiter = acquire_by_handle(false); /* before any timer noticed the end */
	assert_waits(waiter);
	virt_link_up(a);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	begin_release_of(a, 3);
	release_lost(a);
	end();
}

/* ---- Wanted, and the limit of hand-overs between threads ---------------------------------- */

/* With forty threads behind OWNER: the number of hand-overs that need no request. */
static int count_hand_overs(void)
{
	struct lk__op *waiters[40];
	uint64_t fence = held(a)->fence;
	int count = 0;

	for (int i = 0; i < 40; i++)
		waiters[i] = acquire_of(a, (uint64_t)(i + 2) * 2);
	virt_settle(&w);
	while (count < 40) {
		struct lk__op *waiter;
		virt_pass(&w, 1);
		waiter = begin_release(a);
		if (!waiters[count]->done)
			break;
		assert_done(waiter, LK_OK);
		count++;
		ck_assert_uint_eq(held(a)->owner, (uint64_t)(count + 1) * 2);
		ck_assert_uint_gt(held(a)->fence, fence);
		fence = held(a)->fence;
		ck_assert_int_le((int64_t)fence, virt_store_us(&w));
	}
	return count;
}

/* The release that was no hand-over has granted the other process. */
static void drain(struct lk__op *other)
{
	virt_settle(&w);
	assert_done(other, LK_OK);
	release(b);
	lk__core_close(&a->core, w.now_ns);
	end();
}

TEST(threads_hand_over_without_a_request_while_no_other_process_waits)
{
	start(10000);
	hold(a);
	ck_assert_int_eq(count_hand_overs(), 40);
	ck_assert_int_eq(w.runs[LK__LEAVE], 0);
	ck_assert_int_eq(w.runs[LK__ASK], 1);
	ck_assert_int_eq(w.runs[LK__RENEW], 1); /* which reported waiting threads */
	begin_release(a);
	end();
}

TEST(sixteen_hand_overs_when_another_process_waits)
{
	struct lk__op *other;

	start(10000);
	hold(a);
	other = wait_for(b);
	ck_assert_int_eq(count_hand_overs(), LK__HANDOVERS_MAX);
	drain(other);
}

TEST(sixteen_hand_overs_after_another_process_came)
{
	struct lk__op *other;

	start(10000);
	hold(a);
	acquire_of(a, 1000);
	virt_settle(&w); /* the store learns that threads wait */
	virt_pass(&w, 1);
	begin_release(a);
	ck_assert_uint_eq(held(a)->owner, 1000);
	other = acquire(b);
	step(b, LK__ASK);
	ck_assert_int_eq(a->inbox_count, 1);
	ck_assert_int_eq(virt_peek(a).kind, LK__WANTED);
	ck_assert(virt_hear(a));
	acquire(a);
	virt_pass(&w, 1);
	assert_done(begin_release(a), LK_OK);
	ck_assert_int_eq(count_hand_overs(), LK__HANDOVERS_MAX - 1);
	drain(other);
}

TEST(lost_wanted_is_replaced_by_the_next_renewal)
{
	struct lk__op *other, *next;

	start(3000);
	hold(a);
	next = acquire_of(a, 4);
	virt_settle(&w);
	ck_assert(a->queue->ticket->is_shared);
	other = acquire(b);
	step(b, LK__ASK);
	a->inbox_count = 0;
	ck_assert(!a->queue->ticket->is_wanted);
	virt_pass(&w, 1100);
	ck_assert(a->queue->ticket->is_wanted);
	begin_release(a);
	assert_done(next, LK_OK);
	begin_release(a);
	drain(other);
}

TEST(wanted_before_the_grant_is_kept)
{
	struct lk__message wanted = {.kind = LK__WANTED, .lease_ms = 10000};
	struct lk__op *waiter;
	struct virt_call ask;

	start(10000);
	waiter = acquire(a);
	acquire_of(a, 4);
	ask = reach(a, LK__ASK);
	memcpy(wanted.nonce, waiter->queue->ticket->nonce, LK__NONCE_SIZE);
	hear(a, wanted);
	virt_answer(a, &ask);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	ck_assert(a->queue->ticket->is_wanted);
	lk__core_close(&a->core, w.now_ns);
	end();
}

TEST(local_fence_never_runs_ahead_of_the_store)
{
	struct lk__op *next;

	start(10000);
	hold(a);
	next = acquire_of(a, 4);
	virt_settle(&w);
	/* At the very moment of the grant no number is free between it and the store's clock. */
	a->queue->ticket->store_us = (int64_t)a->queue->ticket->fence;
	a->queue->ticket->store_us_ns = w.now_ns;
	begin_release(a);
	assert_waits(next);
	virt_settle(&w);
	assert_done(next, LK_OK); /* through the store */
	ck_assert_int_eq(w.runs[LK__ASK], 2);
	begin_release(a);
	end();
}

TEST(next_grant_exceeds_local_fences)
{
	struct lk__op *other;
	uint64_t fence;

	start(10000);
	hold(a);
	acquire_of(a, 4);
	virt_settle(&w);
	virt_pass(&w, 5);
	begin_release(a);
	ck_assert_uint_eq(held(a)->owner, 4);
	fence = held(a)->fence;
	/* Even if the store's clock stepped back. */
	w.store_offset_us = -3600 * INT64_C(1000000);
	virt_set_time(&w, w.now_ns);
	other = acquire(b);
	step(b, LK__ASK);
	leave(a);
	ck_assert(virt_hear(b));
	assert_done(other, LK_OK);
	ck_assert_uint_gt(held(b)->fence, fence);
	release(b);
	end();
}
