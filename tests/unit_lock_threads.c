/* SPDX-License-Identifier: MIT
 * Threads of one client that share a lock, in virtual time: re-entry, and a thread that would wait
 * for itself.  No thread, no socket, no clock. */
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
