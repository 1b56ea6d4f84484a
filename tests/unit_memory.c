/* SPDX-License-Identifier: MIT
 * Losses of the server's memory, in virtual time: a hold that the server does not have is doubted
 * until its marker is known, and is then lost or taken back. */
#include "memory_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Another client's hold, as an older copy of the memory may have it. */
static void store_other_hold(const char *fence)
{
	char value[80];

	snprintf(value, sizeof(value), "2:stranger:n:5000:r %s 5000 -", fence);
	lua_store_text(w.store, "SET", virt_key("s", ""), value, "PX", "5000", NULL);
}

/* ---- Was it taken, or forgotten? ---------------------------------------------------------------
 */

TEST_NOUNS(hold_that_the_same_memory_does_not_have_is_lost_once)
{
	start_with_grace(LEASE);
	hold(a);
	take_away();
	tick_when_due(a);
	step(a, LK__RENEW);
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	ck_assert_ptr_null(lk__core_next_lost(&a->core));
	step(a, LK__EPOCH);
	ck_assert_int_eq(state(a), LK_STATE_LOST);
	assert_lost(a, LK_LOST_TAKEN);
	virt_pass(&w, LEASE);
	ck_assert_ptr_null(lk__core_next_lost(&a->core));
	ck_assert_int_eq(a->core.counters.lost[0], 1);
	ck_assert_int_eq(runs(LK__RECLAIM), 0);
	release_lost(a);
	end();
}

TEST_NOUNS(hold_that_another_memory_does_not_have_is_taken_back)
{
	struct virt_call call;
	uint64_t fence;
	int64_t sent_ns;

	start_with_grace(LEASE);
	fence = hold_forgotten();
	sent_ns = w.now_ns;
	call = reach(a, LK__RECLAIM);
	later(300);
	virt_answer(a, &call);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	ck_assert_uint_eq(held(a)->fence, fence);
	ck_assert_uint_eq(only_stored()->fence, fence);
	/* The lease counts from the sending. */
	ck_assert_int_eq(left_ns(a), sent_ns + LEASE * VIRT_MS - lk__margin_ns(LEASE) - w.now_ns);
	ck_assert_int_eq(a->core.counters.reclaimed, 1);
	ck_assert_int_eq(a->core.counters.lost[0], 0);
	virt_pass(&w, 5 * LEASE);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	ck_assert_int_eq(runs(LK__RECLAIM), 1);
	release(a);
	end();
}

TEST_NOUNS(hold_that_cannot_be_taken_back_is_lost_once)
{
	start(LEASE);
	give_grace(100);
	hold_forgotten();
	later(100); /* then others may be granted it */
	step(a, LK__RECLAIM);
	ck_assert_int_eq(state(a), LK_STATE_LOST);
	assert_lost(a, LK_LOST_TAKEN);
	virt_pass(&w, LEASE);
	ck_assert_ptr_null(lk__core_next_lost(&a->core));
	ck_assert_int_eq(a->core.counters.lost[0], 1);
	ck_assert_int_eq(a->core.counters.reclaimed, 0);
	release_lost(a);
	end();
}

/* No grace: nobody waits for it to be taken back. */
TEST_NOUNS(forgotten_hold_is_lost_without_a_grace)
{
	start(LEASE);
	hold_forgotten();
	step(a, LK__RECLAIM);
	assert_lost(a, LK_LOST_TAKEN);
	release_lost(a);
	end();
}

TEST(hold_with_the_greater_fence_wins)
{
	start_with_grace(LEASE);
	hold_forgotten();
	store_other_hold("1800000000000000");
	step(a, LK__RECLAIM);
	assert_lost(a, LK_LOST_TAKEN);
	release_lost(a);
	lua_store_text(w.store, "DEL", virt_key("s", ""), NULL);

	forget_without_link(); /* the grace begins anew */
	virt_pass(&w, GRACE);
	hold_forgotten();
	store_other_hold("5");
	step(a, LK__RECLAIM);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	release(a);
	end();
}

/* ---- The link breaks ---------------------------------------------------------------------------
 */

TEST_NOUNS(forgotten_hold_is_taken_back_first_when_the_link_is_back)
{
	start_with_grace(LEASE);
	hold(a);
	later(LEASE / 2); /* a renewal is due, too */
	forget_without_link();
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	step(a, LK__RECLAIM);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	assert_no_request(a);
	virt_pass(&w, LEASE);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	release(a);
	end();
}

TEST_NOUNS(extension_follows_when_the_hold_is_taken_back)
{
	struct lk__op *extension;

	start_with_grace(LEASE);
	hold(a);
	virt_link_down(a, LK_ECONN);
	extension = extend(a, 4 * LEASE);
	flush();
	virt_link_up(a);
	step(a, LK__RECLAIM);
	assert_waits(extension);
	ck_assert_int_lt(left_ns(a), LEASE * VIRT_MS);
	step(a, LK__RENEW);
	assert_done(extension, LK_OK);
	ck_assert_int_gt(left_ns(a), 3 * LEASE * VIRT_MS);
	release(a);
	end();
}

/* An extended lease does not get shorter by being taken back. */
TEST_NOUNS(extended_lease_is_taken_back_whole)
{
	struct lk__op *extension;
	int64_t left;

	start_with_grace(LEASE);
	hold(a);
	extension = extend(a, 5 * LEASE);
	step(a, LK__RENEW);
	assert_done(extension, LK_OK);
	forget_without_link();
	left = left_ns(a);
	step(a, LK__RECLAIM);
	ck_assert_int_ge(left_ns(a), left);
	ck_assert_int_lt(left_ns(a), left + 10 * VIRT_MS);
	ck_assert_int_ge(only_stored()->end_us, virt_store_us(&w) + left / 1000);
	release(a);
	end();
}

TEST(partial_release_follows_when_the_hold_is_taken_back)
{
	struct lk__op *some;
	uint64_t fence;

	start_permits(5, LEASE);
	give_grace(GRACE);
	fence = hold_some(a, 5);
	virt_link_down(a, LK_ECONN);
	some = begin_release_some(a, fence, 2);
	flush();
	virt_link_up(a);
	step(a, LK__RECLAIM);
	ck_assert_int_eq(used(), 3); /* as many as are still in use */
	assert_waits(some);
	step(a, LK__SHRINK);
	assert_done(some, LK_OK);
	ck_assert_int_eq(used(), 3);
	ck_assert_uint_eq(permits_of(a, fence), 3);
	release_of(a, fence);
	end();
}

TEST(partial_release_that_finds_nothing_is_a_doubt)
{
	struct lk__op *some;
	uint64_t fence;

	start_permits(5, LEASE);
	give_grace(GRACE);
	fence = hold_some(a, 5);
	flush();
	some = begin_release_some(a, fence, 2);
	step(a, LK__SHRINK);
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	step(a, LK__EPOCH);
	step(a, LK__RECLAIM);
	step(a, LK__SHRINK);
	assert_done(some, LK_OK);
	ck_assert_int_eq(used(), 3);
	release_of(a, fence);
	end();
}

TEST_NOUNS(link_that_breaks_in_a_doubt_leads_to_the_same_end)
{
	struct virt_call call;

	start_with_grace(LEASE);
	hold_in_doubt();
	call = take(a, LK__EPOCH);
	lose(a, &call);
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	virt_link_up(a);
	step(a, LK__RECLAIM);
	ck_assert_int_eq(state(a), LK_STATE_HELD);

	take_away();
	tick_when_due(a);
	step(a, LK__RENEW);
	virt_link_down(a, LK_ECONN);
	virt_link_up(a); /* the marker is the same */
	assert_lost(a, LK_LOST_TAKEN);
	release_lost(a);
	end();
}

/* The question for the marker that broke off with the link is not awaited for ever. */
TEST_NOUNS(memory_that_is_lost_after_a_broken_link_is_noticed)
{
	struct virt_call call;

	start_with_grace(LEASE);
	hold_in_doubt();
	call = take(a, LK__EPOCH);
	lose(a, &call);
	virt_link_up(a);
	step(a, LK__RECLAIM);
	later(100);
	flush();
	tick_when_due(a);
	step(a, LK__RENEW);
	step(a, LK__EPOCH);
	step(a, LK__RECLAIM);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	ck_assert_int_eq(a->core.counters.reclaimed, 2);
	release(a);
	end();
}

TEST_NOUNS(reclaim_whose_answer_is_lost_is_repeated)
{
	struct virt_call call;
	uint64_t fence;

	start_with_grace(LEASE);
	fence = hold_forgotten();
	call = reach(a, LK__RECLAIM);
	lose(a, &call);
	later(200);
	virt_link_up(a);
	step(a, LK__RECLAIM);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	ck_assert_uint_eq(only_stored()->fence, fence);
	ck_assert_int_eq(a->core.counters.reclaimed, 1);
	release(a);
	end();
}

TEST_NOUNS(memory_that_is_lost_twice_is_asked_for_twice)
{
	start_with_grace(LEASE);
	hold_forgotten();
	flush();
	later(100); /* the next marker is another one */
	step(a, LK__RECLAIM);
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	step(a, LK__EPOCH);
	step(a, LK__RECLAIM);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	ck_assert_int_eq(a->core.counters.reclaimed, 1);
	release(a);
	end();
}

/* ---- Fixed leases, used permits ----------------------------------------------------------------
 */

TEST_NOUNS(fixed_lease_that_is_taken_back_does_not_get_longer)
{
	int64_t left;

	start_fixed(LEASE);
	give_grace(GRACE);
	hold(a);
	later(1000);
	forget_without_link();
	left = left_ns(a);
	step(a, LK__RECLAIM);
	ck_assert_int_eq(left_ns(a), left);
	ck_assert_int_ge(only_stored()->end_us, virt_store_us(&w) + left / 1000);
	ck_assert_int_eq(a->core.counters.reclaimed, 1);
	assert_no_request(a);
	later(left / VIRT_MS + 1);
	tick(a);
	assert_lost(a, LK_LOST_EXPIRED);
	release_lost(a);
	virt_pass(&w, LEASE);
	end();
}

TEST_NOUNS(fixed_lease_is_taken_back_though_the_first_reclaim_is_refused)
{
	start_fixed(LEASE);
	give_grace(GRACE);
	hold(a);
	forget_without_link();
	refuse(a, LK__RECLAIM, RETRYABLE);
	tick_when_due(a);
	step(a, LK__RECLAIM);
	ck_assert_int_eq(only_stored()->fence, (int64_t)held(a)->fence);
	release(a);
	end();
}

/* A rate's permits: its client keeps no hold. */
TEST(used_permits_are_not_taken_back)
{
	start_fixed_permits(5, LEASE);
	give_grace(GRACE);
	forget_some(a, 2);
	virt_settle(&w);
	ck_assert_int_eq(used(), 2);
	forget_without_link();
	assert_no_request(a);
	end();
}

/* ---- Ends in a doubt, or while forgotten -------------------------------------------------------
 */

TEST_NOUNS(release_in_a_doubt_is_decided_by_the_marker)
{
	struct lk__op *op;

	start_with_grace(LEASE);
	hold(a);
	take_away();
	tick_when_due(a);
	step(a, LK__RENEW);
	op = begin_release(a);
	virt_settle(&w);
	assert_done(op, LK_ELOST);

	hold_forgotten();
	op = begin_release(a);
	virt_settle(&w);
	assert_done(op, LK_OK); /* nobody else can have been granted it */
	end();
}

TEST_NOUNS(close_in_a_doubt_or_while_forgotten_leaves_nothing)
{
	for (int i = 0; i < 3; i++) {
		struct virt_call call;

		start_with_grace(LEASE);
		if (i)
			hold_forgotten();
		else
			hold_in_doubt();
		if (i == 2)
			call = reach(a, LK__RECLAIM);
		lk__core_close(&a->core, w.now_ns);
		if (i == 2)
			virt_answer(a, &call);
		virt_settle(&w);
		ck_assert(!lk__core_busy(&a->core));
		end();
	}
}

TEST_NOUNS(wait_that_ends_after_a_loss_leaves_nothing)
{
	struct lk__op *waiter;

	start_with_grace(LEASE);
	flush();
	waiter = acquire(a);
	step(a, LK__ASK); /* it is for the old memory */
	virt_give_up(a, waiter, LK_ECANCELED);
	virt_settle(&w);
	assert_done(waiter, LK_ECANCELED);
	end();
}

/* It is valid by the client's clock, and nothing else is granted. */
TEST(forgotten_lock_is_handed_over)
{
	struct lk__op *second;

	start_with_grace(LEASE);
	hold(a);
	second = acquire_of(a, 77);
	later(100);
	forget_without_link();
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	begin_release(a);
	assert_done(second, LK_OK);
	virt_settle(&w);
	release_of(a, 77);
	end();
}

/* The server does not have it: perhaps it was broken, and another client has it. */
TEST(doubted_lock_is_not_handed_over)
{
	struct lk__op *second;

	start_with_grace(LEASE);
	hold(a);
	later(100);
	second = acquire_of(a, 77);
	step(a, LK__RENEW);
	take_away();
	tick_when_due(a);
	step(a, LK__RENEW);
	begin_release(a);
	assert_waits(second);
	virt_settle(&w);
	assert_done(second, LK_OK); /* a grant of its own */
	release_of(a, 77);
	end();
}

/* The server loads its data, for example. */
TEST_NOUNS(refused_reclaim_is_repeated_with_a_pause_though_a_call_extends)
{
	start_with_grace(LEASE);
	hold(a);
	forget_without_link();
	extend(a, 2 * LEASE);
	refuse(a, LK__RECLAIM, RETRYABLE);
	assert_no_request(a);
	virt_pass(&w, LEASE / 2);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	ck_assert(left_ns(a) > LEASE * VIRT_MS);
	release(a);
	end();
}

/* ---- What has happened to it ------------------------------------------------------------------
 */

/* The memory that the client finds after the known one, and what it takes that for. */
static void found(const char *known, const char *marker, enum lk__found expected)
{
	const char *const texts[] = {known, marker};

	for (int i = 0; i < 2; i++) {
		struct lk__epoch epoch = {.since_us = atoll(strrchr(texts[i], ' '))};
		epoch.len = (uint8_t)snprintf(epoch.text, sizeof(epoch.text), "%s", texts[i]);
		a->session.news.found = LK__FOUND_SAME;
		lk__core_memory(&a->core, &a->session, w.now_ns, &epoch);
	}
	ck_assert_int_eq(a->session.news.found, expected);
}

TEST(memory_of_the_same_process_was_flushed_and_not_restarted)
{
	start(LEASE);
	found("1 a 5", "1 a 5", LK__FOUND_SAME);
	found("1 a 5", "1 a 6", LK__FOUND_EMPTY);
	found("1 a 5", "1 a-1 6", LK__FOUND_EMPTY);
	found("1 a-1 5", "1 a-2 6", LK__FOUND_EMPTY);
	found("1 a+c-1 5", "1 a+c-2 6", LK__FOUND_EMPTY);
	found("1 a 5", "1 a 0", LK__FOUND_ENDED);
	found("1 a 5", "1 b 6", LK__FOUND_OTHER);
	found("1 a 5", "1 ab 6", LK__FOUND_OTHER);
	found("1 a-1 5", "1 b-1 6", LK__FOUND_OTHER);
	found("1 a 5", "1 a+c 6", LK__FOUND_PROMOTED);
	found("1 a+b-1 5", "1 a+c-1 6", LK__FOUND_PROMOTED);
	end();
}
