/* SPDX-License-Identifier: MIT
 * Waiting for a latch, in virtual time: what ends a wait, and what must not.  Each relevant order
 * of answer, confirmation and message is written out here; the simulator (tests/sim) covers the
 * others.  What a wait returns on any store is in tests/stores/latch.h. */
#include "latch_fixture.h"

/* ---- Requests ----------------------------------------------------------------------------- */

TEST(try_takes_one_look_and_leaves_nothing)
{
	struct lk__op *waiter;

	start_absent();
	waiter = virt_await(a, true, false);
	virt_settle(&w);
	assert_done(waiter, LK_EBUSY);
	ck_assert_int_eq(w.runs[LK__LOOK], 1);
	ck_assert_int_eq(a->subscribes, 0);
	ck_assert(!lk__core_busy(&a->core));
	waiter = virt_await(a, true, true);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	end();
}

TEST(waiters_of_a_client_share_looks_subscription_and_message)
{
	enum { WAITERS = 200 };
	struct lk__op *waiters[WAITERS];

	start_latch(1);
	for (int i = 0; i < WAITERS; i++)
		waiters[i] = await(a);
	virt_settle(&w);
	ck_assert_int_le(w.runs[LK__LOOK], 3);
	ck_assert_int_eq(a->subscribes, 1);
	set(0);
	ck_assert_int_eq(a->inbox_count, 1);
	ck_assert(virt_hear(a));
	for (int i = 0; i < WAITERS; i++)
		assert_done(waiters[i], LK_OK);
	assert_no_request(a);
	end();
}

TEST(channel_stays_until_the_last_waiter_ends)
{
	struct lk__op *first, *second;

	start_latch(1);
	first = await(a);
	second = await_settled(a);
	virt_give_up(a, first, LK_ECANCELED);
	assert_done(first, LK_ECANCELED);
	virt_pass(&w, LK__LINGER_MS + 1000);
	ck_assert_int_eq(a->unsubscribes, 0);
	/* Ended by the message, not by a look of its own. */
	count_down(b, 1);
	ck_assert(virt_hear(a));
	assert_done(second, LK_OK);
	virt_pass(&w, LK__LINGER_MS + 1000);
	ck_assert_int_eq(a->topic_count, 0);
	end();
}

/* ---- Between check and subscription ------------------------------------------------------- */

TEST(latch_opened_between_look_and_subscription_is_found)
{
	struct lk__op *waiter;

	start_latch(1);
	waiter = await(a);
	step(a, LK__LOOK);
	set(0); /* no message */
	ck_assert_int_eq(a->inbox_count, 0);
	assert_waits(waiter);
	confirm(a);
	step(a, LK__LOOK);
	assert_done(waiter, LK_OK);
	end();
}

TEST(latch_opened_and_removed_between_look_and_subscription_is_found)
{
	struct lk__op *waiter;

	start_latch(1);
	waiter = await(a);
	step(a, LK__LOOK);
	set(0);
	remove_latch();
	set(5);
	confirm(a);
	step(a, LK__LOOK);
	assert_done(waiter, LK_OK);
	end();
}

TEST(look_in_flight_at_the_confirmation_is_not_trusted)
{
	struct lk__op *first, *second;
	struct virt_call call;

	start_latch(1);
	first = await(a);
	step(a, LK__LOOK);
	second = await(a);
	call = reach(a, LK__LOOK); /* it still counts */
	set(0);
	confirm(a); /* too late for the message */
	virt_answer(a, &call);
	assert_waits(first);
	assert_waits(second);
	step(a, LK__LOOK);
	assert_done(first, LK_OK);
	assert_done(second, LK_OK);
	end();
}

TEST(answer_to_an_earlier_look_ends_no_wait)
{
	struct lk__op *first, *second;
	struct virt_call call;

	start_latch(0);
	first = await(a);
	call = reach(a, LK__LOOK); /* open */
	set(3);
	second = await(a);
	virt_answer(a, &call);
	assert_done(first, LK_OK);
	assert_waits(second);
	virt_settle(&w);
	assert_waits(second);
	set(0);
	virt_settle(&w);
	assert_done(second, LK_OK);
	end();
}

TEST(message_that_overtakes_the_answer_counts)
{
	struct lk__op *first, *second;
	struct virt_call call;

	start_latch(1);
	first = await_settled(a);
	second = await(a);
	call = reach(a, LK__LOOK);
	count_down(b, 1);
	set(7);
	ck_assert(virt_hear(a));
	assert_done(first, LK_OK);
	assert_waits(second);
	virt_answer(a, &call);
	assert_done(second, LK_OK);
	end();
}

/* ---- Generations -------------------------------------------------------------------------- */

TEST(old_message_releases_no_later_waiter)
{
	struct lk__op *old, *young;

	start_latch(1);
	old = await_settled(a);
	count_down(b, 1); /* its message is delayed */
	ck_assert_int_eq(a->inbox_count, 1);
	later(50);
	set(3);
	young = await(a);
	step(a, LK__LOOK);
	assert_done(old, LK_OK); /* the answer names the opened generation */
	assert_waits(young);
	ck_assert(virt_hear(a));
	virt_settle(&w);
	assert_waits(young);
	count_down(b, 3);
	virt_settle(&w);
	assert_done(young, LK_OK);
	end();
}

TEST(old_message_before_the_first_answer_releases_no_waiter)
{
	struct lk__op *first, *young;

	start_latch(1);
	first = await_settled(a);
	count_down(b, 1);
	set(3);
	young = await(a);
	ck_assert(virt_hear(a)); /* of the old generation, before young has asked */
	assert_done(first, LK_OK);
	virt_settle(&w);
	assert_waits(young);
	count_down(b, 3);
	virt_settle(&w);
	assert_done(young, LK_OK);
	end();
}

TEST(old_message_of_a_counter_ahead_of_the_clock_releases_no_waiter)
{
	struct lk__op *first, *young;

	start_absent();
	put_counter_ahead();
	set(1);
	first = await_settled(a);
	count_down(b, 1);
	remove_latch();
	young = await(a);
	step(a, LK__LOOK); /* absent */
	assert_done(first, LK_OK);
	ck_assert(virt_hear(a));
	ck_assert(virt_hear(a));
	virt_settle(&w);
	assert_waits(young);
	set(0);
	virt_settle(&w);
	assert_done(young, LK_OK);
	end();
}

TEST(old_removal_message_releases_no_waiter)
{
	struct lk__op *first, *content;

	start_latch(1);
	first = await_settled(a);
	remove_latch(); /* its message is delayed */
	set(2);
	content = virt_await(a, false, true);
	step(a, LK__LOOK);
	ck_assert(virt_hear(a));
	virt_settle(&w);
	assert_waits(content);
	assert_waits(first);
	set(0);
	virt_settle(&w);
	assert_done(content, LK_OK);
	assert_done(first, LK_OK);
	end();
}

/* ---- A store that began anew, with a clock that is behind ---------------------------------- */

TEST(new_wait_knows_nothing_of_generations_before_the_store_began_anew)
{
	struct lk__op *waiter;

	start_absent();
	put_counter_ahead();
	set(1);
	waiter = await_settled(a);
	set(0);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	virt_link_down(a, LK_EUNKNOWN);
	flush();
	virt_link_up(a);
	set(3);
	virt_settle(&w);
	waiter = await_settled(a);
	set(0);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	end();
}

TEST(forged_message_releases_no_later_waiter)
{
	struct lk__op *first, *young;

	start_latch(1);
	first = await_settled(a);
	lua_store_text(w.store, "PUBLISH", a->topics[0], "open 9007199254740992", NULL);
	virt_settle(&w);
	assert_done(first, LK_OK); /* any client with the right to publish may do that */
	young = await_settled(a);
	set(0);
	virt_settle(&w);
	assert_done(young, LK_OK);
	end();
}

TEST(opening_with_a_lower_generation_is_looked_at_at_once)
{
	struct lk__op *waiter;

	start_absent();
	put_counter_ahead();
	waiter = await_settled(a);
	flush();
	set(0);
	ck_assert(virt_hear(a)); /* its generation is below the stamp */
	assert_waits(waiter);
	step(a, LK__LOOK);
	assert_done(waiter, LK_OK);
	end();
}

TEST(opening_is_looked_at_again_if_a_look_is_in_flight)
{
	struct lk__op *waiter;
	struct virt_call call;

	start_absent();
	put_counter_ahead();
	waiter = await(a);
	step(a, LK__LOOK);
	confirm(a); /* another look follows */
	flush();
	call = reach(a, LK__LOOK);
	set(0);
	ck_assert(virt_hear(a));
	virt_answer(a, &call); /* outdated */
	assert_waits(waiter);
	step(a, LK__LOOK);
	assert_done(waiter, LK_OK);
	end();
}

/* A message from a closed connection may be of a memory that the store has lost since. */
TEST(opening_of_a_lost_memory_releases_no_waiter)
{
	struct lk__op *first, *second;
	struct lua_store_image *older;

	start_latch(2);
	older = lua_store_save(w.store);
	set(1);
	first = await_settled(a);
	set(0); /* its message is in flight */
	second = await(a);
	while (virt_hear(a))
		;
	assert_done(first, LK_OK);
	assert_waits(second);
	virt_link_down(a, LK_EUNKNOWN);
	lua_store_load(w.store, older);
	lua_store_image_free(older);
	virt_link_up(a);
	virt_settle(&w);
	assert_waits(second);
	count_down(b, 2);
	virt_settle(&w);
	assert_done(second, LK_OK);
	end();
}
