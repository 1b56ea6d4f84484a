/* SPDX-License-Identifier: MIT
 * Waits for permits in virtual time: their order, skipped waiters, and how each of them ends. */
#include "virtual_fixture.h"

/* ---- Order -------------------------------------------------------------------------------- */

TEST(small_waits_do_not_overtake_a_large_one)
{
	struct lk__op *large, *small;
	uint64_t first, second;

	start_permits(4, 10000);
	first = hold_some(a, 2);
	second = hold_some(a, 1);
	large = wait_for_some(b, 3);
	small = wait_for_some(c, 1); /* one is free, and it must still wait */
	virt_pass(&w, 60000);
	assert_waits(large);
	assert_waits(small);
	release_of(a, second);
	assert_waits(large);
	release_of(a, first);
	assert_done(large, LK_OK);
	assert_done(small, LK_OK);
	ck_assert_uint_lt(large->fence, small->fence);
	release_of(b, large->fence);
	release_of(c, small->fence);
	end();
}

TEST(one_release_serves_all_that_fit)
{
	struct lk__op *waiters[4];
	uint64_t fence;

	start_permits(5, 10000);
	fence = hold_some(a, 5);
	waiters[0] = wait_for_some(b, 2);
	waiters[1] = wait_for_some(c, 1);
	waiters[2] = wait_for_some(d, 2);
	waiters[3] = wait_for_some(b, 1);
	begin_release_of(a, fence);
	step(a, LK__LEAVE);
	ck_assert_int_eq(used(), 5);
	virt_settle(&w);
	for (int i = 0; i < 3; i++)
		assert_done(waiters[i], LK_OK);
	assert_waits(waiters[3]);
	release_of(c, waiters[1]->fence);
	assert_done(waiters[3], LK_OK);
	release_of(b, waiters[0]->fence);
	release_of(b, waiters[3]->fence);
	release_of(d, waiters[2]->fence);
	end();
}

TEST(large_head_keeps_its_rank_while_others_try)
{
	struct lk__op *large, *small;
	uint64_t fence;

	start_permits(4, 10000);
	fence = hold_some(a, 2);
	large = wait_for_some(b, 3);
	small = wait_for_some(c, 1);
	/* Each of them sends another message to the head. */
	for (int i = 0; i < 60; i++) {
		struct lk__op *other = try_some(d, 1);
		virt_pass(&w, 1000);
		assert_done(other, LK_EBUSY);
		assert_waits(large);
		assert_waits(small);
	}
	release_of(a, fence);
	assert_done(large, LK_OK);
	assert_done(small, LK_OK);
	release_of(b, large->fence);
	release_of(c, small->fence);
	end();
}

/* ---- Skipped waiters ---------------------------------------------------------------------- */

TEST(large_head_that_cancels_lets_small_ones_in)
{
	struct lk__op *large, *small[2];
	uint64_t fence;

	start_permits(4, 10000);
	fence = hold_some(a, 2);
	large = wait_for_some(b, 4);
	small[0] = wait_for_some(c, 1);
	small[1] = wait_for_some(d, 1);
	virt_give_up(b, large, LK_ECANCELED);
	virt_settle(&w);
	assert_done(large, LK_ECANCELED);
	assert_done(small[0], LK_OK);
	assert_done(small[1], LK_OK);
	release_of(a, fence);
	release_of(c, small[0]->fence);
	release_of(d, small[1]->fence);
	end();
}

TEST(large_dead_head_is_found_by_a_message)
{
	struct lk__op *small;
	uint64_t fences[2];

	start_permits(4, 10000);
	fences[0] = hold_some(a, 2);
	fences[1] = hold_some(a, 1);
	wait_for_some(b, 3);
	small = wait_for_some(c, 1);
	b->subscribed = false;
	virt_pass(&w, 3000); /* it received a message recently: not each time */
	assert_waits(small);
	/* It does not fit after this either, but permits are idle, and it cannot receive a
	 * message. */
	begin_release_of(a, fences[1]);
	step(a, LK__LEAVE);
	virt_hear(c);
	assert_done(small, LK_OK);
	lk__core_close(&b->core, w.now_ns);
	release_of(a, fences[0]);
	release_of(c, small->fence);
	end();
}

TEST(large_head_that_is_stopped_is_skipped_after_21_s)
{
	struct lk__op *small;
	uint64_t fence;
	int64_t ms;

	start_permits(4, 10000);
	fence = hold_some(a, 2);
	wait_for_some(b, 3);
	small = wait_for_some(c, 1);
	stop(b);
	ms = ms_until_done(small);
	ck_assert_int_ge(ms, 21000 - 1);
	ck_assert_int_le(ms, 32000);
	/* When it runs again it has kept its rank, and waits for the permits. */
	virt_link_down(b, LK_ECONN);
	virt_link_up(b);
	virt_settle(&w);
	release_of(a, fence);
	ck_assert_int_eq(used(), 4);
	release(b);
	release_of(c, small->fence);
	end();
}

/* It is the head, and it fits: it need not wait for another event. */
TEST(waiter_that_returns_to_the_head_is_granted_at_once)
{
	struct lk__op *first, *large;
	uint64_t fences[2];

	start_permits(4, 10000);
	fences[0] = hold_some(a, 3);
	fences[1] = hold_some(a, 1);
	first = wait_for_some(b, 1);
	large = wait_for_some(c, 2);
	virt_link_down(b, LK_ECONN);
	/* It cannot receive a message, and loses its turn to a ticket that does not fit. */
	release_of(a, fences[1]);
	ck_assert_int_eq(used(), 3);
	virt_link_up(b);
	step(b, LK__ASK);
	assert_done(first, LK_OK);
	assert_waits(large);
	release_of(a, fences[0]);
	release_of(b, first->fence);
	assert_done(large, LK_OK);
	release_of(c, large->fence);
	end();
}

/* While the link was down, the store found no receiver for either grant. */
TEST(every_wait_of_a_client_asks_again_when_its_link_is_back)
{
	struct lk__op *waiters[2];
	uint64_t fence;

	start_permits(2, 10000);
	fence = hold_some(a, 2);
	for (int i = 0; i < 2; i++)
		waiters[i] = wait_for_some(b, 1);
	virt_link_down(b, LK_ECONN);
	release_of(a, fence);
	virt_link_up(b);
	virt_settle(&w); /* at once */
	for (int i = 0; i < 2; i++) {
		assert_done(waiters[i], LK_OK);
		release_of(b, waiters[i]->fence);
	}
	end();
}

/* ---- More work than one run of a script does ----------------------------------------------- */

TEST(many_that_fit_are_served_by_two_runs)
{
	struct lk__op *waiters[40];
	uint64_t fence;

	start_permits(40, 10000);
	fence = hold_some(a, 40);
	for (int i = 0; i < 40; i++)
		waiters[i] = wait_for_some(b, 1);
	begin_release_of(a, fence);
	step(a, LK__LEAVE);
	ck_assert_int_eq(used(), 32);
	step(a, LK__HAND);
	ck_assert_int_eq(used(), 40);
	assert_no_request(a);
	virt_settle(&w);
	for (int i = 0; i < 40; i++) {
		assert_done(waiters[i], LK_OK);
		release_of(b, waiters[i]->fence);
	}
	end();
}

/* A holder of all permits and forty waiters die, and their leases end. */
static void start_behind_the_dead(void)
{
	start_permits(2, 1000);
	hold_some(a, 2);
	for (int i = 0; i < 40; i++)
		wait_for_some(b, 1);
	kill_client(a);
	kill_client(b);
	later(1100);
}

static void end_behind_the_dead(const struct lk__op *waiter)
{
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	release(c);
	bury(a);
	bury(b);
	end();
}

TEST(many_dead_waiters_are_skipped_by_an_ask)
{
	struct lk__op *waiter;

	start_behind_the_dead();
	waiter = acquire_some(c, 1);
	step(c, LK__ASK); /* "queued", with more work left */
	assert_waits(waiter);
	step(c, LK__HAND);
	end_behind_the_dead(waiter);
}

TEST(many_dead_waiters_are_skipped_by_a_try)
{
	start_behind_the_dead();
	end_behind_the_dead(try_some(c, 2));
}

/* ---- How a wait ends ---------------------------------------------------------------------- */

TEST(try_is_busy_when_others_wait_though_it_would_fit)
{
	struct lk__op *large, *other;
	uint64_t fence;

	start_permits(3, 10000);
	fence = hold_some(a, 2);
	large = wait_for_some(b, 3);
	other = try_some(c, 1);
	virt_settle(&w);
	assert_done(other, LK_EBUSY);
	look();
	ck_assert_int_eq(view.queued, 1);
	release_of(a, fence);
	release_of(b, large->fence);
	end();
}

TEST(more_than_the_capacity_is_refused_at_once)
{
	struct lk__op *waiter;

	start_permits(3, 10000);
	waiter = acquire_some(a, 4);
	virt_settle(&w);
	assert_done(waiter, LK_ELIMIT);
	end();
}

TEST(end_of_a_wait_that_is_over_changes_nothing)
{
	struct lk__op *waiter;

	start_fixed_permits(2, 1000);
	waiter = forget_some(a, 1);
	virt_settle(&w);
	assert_done(waiter, LK_OK); /* and its ticket is removed */
	virt_give_up(a, waiter, LK_ECANCELED);
	virt_abandon(a, waiter);
	assert_done(waiter, LK_OK);
	later(1000);
	end();
}

/* A foreign key has the name of one of the semaphore's keys. */
static void meet_foreign(const char *suffix, bool sorted_set)
{
	struct lk__op *waiter;

	start_permits(2, 10000);
	if (sorted_set)
		lua_store_text(w.store, "ZADD", virt_key("s", suffix), "5", "theirs", NULL);
	else
		lua_store_text(w.store, "SET", virt_key("s", suffix), "theirs", NULL);
	waiter = acquire_some(a, 1);
	virt_settle(&w);
	assert_done(waiter, LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(waiter->why.text, virt_key("s", suffix)));
	lua_store_text(w.store, "DEL", virt_key("s", suffix), NULL);
	end();
}

TEST(foreign_keys_are_reported_and_left_alone)
{
	meet_foreign("", false);
	meet_foreign(":q", false);
	meet_foreign(":h", false);
	meet_foreign(":q", true);
	meet_foreign(":h", true);
}

/* The head received a late time; before that its request became impossible, and "again" reports
 * this. */
TEST(again_may_come_before_the_answer_to_its_ask)
{
	struct lk__op *waiter;
	struct virt_call ask;
	uint64_t fence;

	start_permits(2, 10000);
	fence = hold_some(a, 1);
	later(1);
	waiter = acquire_some(b, 2);
	ask = reach(b, LK__ASK);
	resize(1);
	ck_assert(virt_hear(b)); /* again, now */
	virt_answer(b, &ask);    /* "queued", for seconds */
	virt_pass(&w, 5);
	assert_done(waiter, LK_ELIMIT);
	release_of(a, fence);
	end();
}
