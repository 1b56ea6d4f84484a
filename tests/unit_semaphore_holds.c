/* SPDX-License-Identifier: MIT
 * Holds of permits in virtual time: partial and full release, extension, loss; and the permits of
 * dead holders. */
#include "virtual_fixture.h"

/* The store's permits for a hold, 0 = no such hold. */
static uint32_t stored(uint64_t fence)
{
	look();
	for (int i = 0; i < view.hold_count; i++)
		if (view.holds[i].fence == fence)
			return view.holds[i].held;
	return 0;
}

/* ---- Partial release ---------------------------------------------------------------------- */

TEST(partial_release_grants_the_waiters_that_fit)
{
	struct lk__op *waiter, *some;
	uint64_t fence;

	start_permits(5, 10000);
	fence = hold_some(a, 5);
	waiter = wait_for_some(b, 2);
	some = begin_release_some(a, fence, 2);
	ck_assert_uint_eq(permits_of(a, fence), 3); /* at once */
	step(a, LK__SHRINK);
	assert_done(some, LK_OK);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(used(), 5);
	release_of(a, fence);
	release_of(b, waiter->fence);
	end();
}

TEST(release_of_more_than_it_has_changes_nothing)
{
	uint64_t fence;

	start_permits(5, 10000);
	fence = hold_some(a, 2);
	assert_done(begin_release_some(a, fence, 3), LK_ELIMIT);
	assert_done(begin_release_some(a, fence, UINT32_MAX), LK_ELIMIT);
	assert_done(begin_release_some(a, fence + 1, 1), LK_ENOTOWNER);
	assert_no_request(a);
	ck_assert_uint_eq(permits_of(a, fence), 2);
	release_of(a, fence);
	assert_done(begin_release_of(a, fence), LK_ENOTOWNER);
	end();
}

TEST(release_of_all_by_number_ends_the_hold)
{
	struct lk__op *all;
	uint64_t fence;

	start_permits(5, 10000);
	fence = hold_some(a, 3);
	all = begin_release_some(a, fence, 3);
	step(a, LK__LEAVE);
	assert_done(all, LK_OK);
	ck_assert_uint_eq(permits_of(a, fence), 0);
	end();
}

TEST(partial_release_whose_answer_is_lost_is_repeated_and_counts_once)
{
	struct lk__op *some;
	struct virt_call shrink;
	uint64_t fence;

	start_permits(5, 10000);
	fence = hold_some(a, 4);
	some = begin_release_some(a, fence, 1);
	shrink = reach(a, LK__SHRINK);
	lose(a, &shrink);
	assert_waits(some);
	ck_assert_uint_eq(stored(fence), 3);
	virt_link_up(a);
	step(a, LK__SHRINK);
	assert_done(some, LK_OK);
	ck_assert_uint_eq(stored(fence), 3);
	ck_assert_uint_eq(permits_of(a, fence), 3);
	release_of(a, fence);
	end();
}

TEST(partial_release_that_was_never_sent_is_sent_when_the_link_is_back)
{
	struct lk__op *some;
	uint64_t fence;

	start_fixed_permits(5, 10000); /* otherwise it would have nothing to send */
	fence = hold_some(a, 4);
	virt_link_down(a, LK_ECONN);
	some = begin_release_some(a, fence, 3);
	assert_waits(some);
	assert_no_request(a);
	virt_link_up(a);
	step(a, LK__SHRINK);
	assert_done(some, LK_OK);
	ck_assert_uint_eq(stored(fence), 1);
	release_of(a, fence);
	end();
}

TEST(partial_release_continues_after_its_caller_gave_up)
{
	struct lk__op *some;
	uint64_t fence;

	start_permits(5, 10000);
	fence = hold_some(a, 4);
	virt_link_down(a, LK_ECONN);
	some = begin_release_some(a, fence, 2);
	virt_abandon(a, some);
	assert_done(some, LK_EUNKNOWN);
	virt_link_up(a);
	virt_settle(&w);
	ck_assert_uint_eq(stored(fence), 2);
	release_of(a, fence);
	end();
}

TEST(partial_releases_at_once_are_each_confirmed_by_their_own)
{
	struct lk__op *first, *second;
	struct virt_call shrink;
	uint64_t fence;

	start_permits(5, 10000);
	fence = hold_some(a, 5);
	first = begin_release_some(a, fence, 1);
	shrink = reach(a, LK__SHRINK);
	second = begin_release_some(a, fence, 2);
	assert_no_request(a); /* one at a time */
	virt_answer(a, &shrink);
	assert_done(first, LK_OK);
	assert_waits(second);
	ck_assert_uint_eq(stored(fence), 4);
	step(a, LK__SHRINK);
	assert_done(second, LK_OK);
	ck_assert_uint_eq(stored(fence), 2);
	release_of(a, fence);
	end();
}

TEST(partial_release_that_comes_late_gives_nothing_back_again)
{
	struct virt_call late;
	uint64_t fence;

	start_permits(5, 10000);
	fence = hold_some(a, 5);
	begin_release_some(a, fence, 1);
	late = take(a, LK__SHRINK); /* delayed in the network */
	virt_link_down(a, LK_EUNKNOWN);
	virt_link_up(a);
	virt_settle(&w);
	begin_release_some(a, fence, 2);
	virt_settle(&w);
	ck_assert_uint_eq(stored(fence), 2);
	virt_execute(a, &late); /* "keep 4" */
	virt_call_fini(&late);
	ck_assert_uint_eq(stored(fence), 2);
	ck_assert_int_eq(used(), 2);
	release_of(a, fence);
	end();
}

TEST(whole_release_ends_a_partial_one_in_flight)
{
	struct lk__op *some, *all;
	struct virt_call shrink;
	uint64_t fence;

	start_permits(5, 10000);
	fence = hold_some(a, 5);
	some = begin_release_some(a, fence, 1);
	shrink = reach(a, LK__SHRINK);
	all = begin_release_of(a, fence);
	virt_answer(a, &shrink);
	step(a, LK__LEAVE);
	assert_done(some, LK_OK);
	assert_done(all, LK_OK);
	ck_assert_int_eq(used(), 0);
	end();
}

TEST(partial_release_crosses_a_renewal)
{
	struct lk__op *some;
	struct virt_call renew;
	uint64_t fence;

	start_permits(5, 3000);
	fence = hold_some(a, 5);
	later(1000);
	tick(a);
	renew = reach(a, LK__RENEW);
	some = begin_release_some(a, fence, 2);
	assert_no_request(a);
	virt_answer(a, &renew);
	step(a, LK__SHRINK);
	assert_done(some, LK_OK);
	virt_pass(&w, 10000);
	ck_assert_int_eq(state_of(a, fence), LK_STATE_HELD);
	ck_assert_uint_eq(stored(fence), 3);
	release_of(a, fence);
	end();
}

TEST(partial_release_crosses_an_extension)
{
	struct lk__op *some, *extend;
	struct virt_call shrink;
	uint64_t fence;

	start_fixed_permits(5, 3000);
	fence = hold_some(a, 5);
	some = begin_release_some(a, fence, 2);
	shrink = reach(a, LK__SHRINK);
	extend = extend_of(a, fence, 9000);
	assert_no_request(a);
	virt_answer(a, &shrink);
	assert_done(some, LK_OK);
	step(a, LK__RENEW);
	assert_done(extend, LK_OK);
	virt_pass(&w, 8000);
	ck_assert_int_eq(state_of(a, fence), LK_STATE_HELD);
	ck_assert_uint_eq(stored(fence), 3);
	release_of(a, fence);
	end();
}

TEST(partial_release_of_a_hold_that_the_store_lost_is_a_loss)
{
	struct lk__op *some;
	uint64_t fence;

	start_permits(5, 10000);
	fence = hold_some(a, 5);
	take_away();
	some = begin_release_some(a, fence, 2);
	step(a, LK__SHRINK);
	ck_assert_ptr_null(lk__core_next_lost(&a->core));
	step(a, LK__EPOCH);
	assert_lost(a, LK_LOST_TAKEN);
	virt_settle(&w);
	assert_done(some, LK_ELOST);
	release_lost_of(a, fence);
	end();
}

TEST(partial_release_that_the_store_refuses_is_repeated)
{
	struct lk__op *some;
	uint64_t fence;

	start_fixed_permits(5, 10000);
	fence = hold_some(a, 5);
	some = begin_release_some(a, fence, 2);
	refuse(a, LK__SHRINK, "LOADING the dataset");
	assert_waits(some);
	virt_pass(&w, 600);
	assert_done(some, LK_OK);
	ck_assert_uint_eq(stored(fence), 3);
	release_of(a, fence);
	end();
}

/* ---- Losing ------------------------------------------------------------------------------- */

TEST(break_of_one_hold_leaves_the_client_s_other_one)
{
	struct lk__op *waiter;
	uint64_t fences[2];

	start_permits(4, 10000);
	fences[0] = hold_some(a, 2);
	fences[1] = hold_some(a, 2);
	waiter = wait_for_some(b, 2);
	look();
	ck_assert_uint_eq(view.holds[0].fence, fences[0]);
	query_break(w.store, noun->kind, "s", view.holds[0].text);
	ck_assert(virt_hear(a));
	assert_lost(a, LK_LOST_BROKEN);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(state_of(a, fences[1]), LK_STATE_HELD);
	release_lost_of(a, fences[0]);
	release_of(a, fences[1]);
	release_of(b, waiter->fence);
	end();
}

TEST(permits_of_many_dead_holders_come_back_in_bounded_runs)
{
	struct lk__op *waiter;

	start_permits(100, 1000);
	for (int i = 0; i < 80; i++)
		hold_some(a, 1);
	kill_client(a);
	later(1100);
	waiter = acquire_some(b, 100);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(used(), 100);
	release_of(b, waiter->fence);
	bury(a);
	end();
}

/* Its old hold is over, among more expired holds than one run reclaims. */
TEST(ask_of_a_ticket_whose_hold_is_over_counts_once)
{
	struct virt_call last = {0};

	start_permits(100, 1000);
	for (int i = 0; i < 80; i++) {
		acquire_some(a, 1);
		virt_call_fini(&last);
		last = reach(a, LK__ASK); /* no answer comes */
	}
	later(1100);
	virt_execute(b, &last);
	virt_call_fini(&last);
	used();
	lk__core_close(&a->core, w.now_ns);
	virt_link_down(a, LK_EUNKNOWN);
	virt_link_up(a);
	virt_pass(&w, 2000);
	end();
}

/* ---- The server's memory ------------------------------------------------------------------ */

static void evict(const char *suffix)
{
	uint64_t first, second;

	start_permits(3, 10000);
	first = hold_some(a, 2);
	lua_store_text(w.store, "DEL", virt_key("s", suffix), NULL);
	second = hold_some(b, 3); /* the store has lost its holds */
	ck_assert_int_eq(used(), 3);
	ck_assert_uint_gt(second, first);
	virt_pass(&w, 5000);
	release_lost_of(a, first);
	ck_assert_int_eq(state_of(b, second), LK_STATE_HELD);
	ck_assert_int_eq(used(), 3);
	release_of(b, second);
	end();
}

TEST(half_a_memory_starts_anew_without_its_state)
{
	evict("");
}

TEST(half_a_memory_starts_anew_without_its_ends)
{
	evict(":h");
}
