/* SPDX-License-Identifier: MIT
 * Waiting for a latch, in virtual time: messages, links and answers that are lost, refused or
 * malformed, and how waits recover or are given up. */
#include "latch_fixture.h"

/* ---- Losses ------------------------------------------------------------------------------- */

TEST(lost_message_delays_a_wait_by_at_most_ten_seconds)
{
	struct lk__op *waiter;

	start_latch(1);
	waiter = await_settled(a);
	a->subscribed = false; /* a server that forgot the subscription */
	set(0);
	virt_pass(&w, 9000);
	assert_waits(waiter);
	virt_pass(&w, 1100);
	assert_done(waiter, LK_OK);
	end();
}

TEST(removal_whose_message_was_lost_is_found)
{
	struct lk__op *content, *waits;

	start_latch(2);
	content = virt_await(a, false, true);
	waits = await_settled(a);
	a->subscribed = false;
	remove_latch();
	set(5);
	virt_pass(&w, 10100);
	assert_done(content, LK_OK);
	assert_waits(waits);
	virt_give_up(a, waits, LK_ETIMEDOUT);
	assert_done(waits, LK_ETIMEDOUT);
	end();
}

TEST(latch_in_its_last_millisecond_is_looked_at_again)
{
	struct lk__op *waiter;

	start_absent();
	virt_set_latch(a, 1, 60000, 5000);
	later(5000);
	ck_assert_str_eq(lua_store_text(w.store, "PTTL", "lk:{gate}", NULL), "0");
	waiter = virt_await(a, false, true);
	virt_settle(&w);
	assert_waits(waiter);
	virt_pass(&w, 2); /* it expires: no message */
	assert_done(waiter, LK_OK);
	end();
}

/* Meanwhile the latch opens, and perhaps counts again or expires: the store remembers the opening
 * for those that had seen the generation before. */
TEST(link_may_drop_at_every_step_of_a_wait)
{
	enum { OPEN, COUNTING, EXPIRED, STATES };

	for (int i = 0; i < 6 * STATES; i++) {
		const int steps = i % 6, state = i / 6;
		struct virt_call call = {0};
		struct lk__op *waiter;

		start_absent();
		virt_set_latch(a, 1, 1000, 0);
		waiter = await(a);
		if (steps > 0)
			call = take(a, LK__LOOK);
		if (steps > 1)
			virt_execute(a, &call);
		if (steps > 2)
			virt_answer(a, &call);
		if (steps > 3)
			ck_assert(virt_command(a));
		if (steps > 4)
			ck_assert(virt_hear(a));
		lose(a, &call);
		assert_no_request(a);
		count_down(b, 1);
		if (state == COUNTING)
			set(9);
		later(state == EXPIRED ? 5000 : 300);
		virt_link_up(a);
		virt_settle(&w);
		if (state != OPEN && steps <= 2) {
			assert_waits(waiter);
			virt_give_up(a, waiter, LK_ETIMEDOUT);
			assert_done(waiter, LK_ETIMEDOUT);
		}
		ck_assert_msg(waiter->done, "link dropped at step %d, state %d", steps, state);
		end();
	}
}

/* ---- Errors ------------------------------------------------------------------------------- */

TEST(retryable_errors_are_asked_again_and_others_end_the_wait)
{
	struct lk__op *waiter;
	struct virt_call call;

	start_absent();
	waiter = await(a);
	refuse(a, LK__LOOK, RETRYABLE);
	assert_waits(waiter);
	assert_no_request(a);
	later(100);
	tick(a);
	call = take(a, LK__LOOK);
	virt_refuse(a, &call, PERMANENT);
	assert_done(waiter, LK_EAUTH);
	end();
}

TEST(refused_subscription_ends_the_waits_and_is_asked_for_again)
{
	static const struct lk__why no_right = {.err = LK_EAUTH, .text = "NOPERM"};
	struct lk__op *waiter, *try, *next;
	bool subscribe;

	start_latch(1);
	waiter = await(a);
	step(a, LK__LOOK);
	ck_assert(lk__channels_next(&a->session.channels, &subscribe) && subscribe);
	try = virt_await(a, true, false);
	lk__channels_refused(&a->session.channels, virt_now(a), &no_right);
	assert_done(waiter, LK_EAUTH);
	ck_assert_str_eq(waiter->why.text, "NOPERM");
	assert_waits(try);
	next = await_settled(a);
	assert_done(try, LK_EBUSY);
	ck_assert_int_eq(a->topic_count, 1);
	set(0);
	virt_settle(&w);
	assert_done(next, LK_OK);
	end();
}

/* Of another kind, or unreadable: a wait fails, and a step may have been counted. */
TEST(answer_that_does_not_fit_ends_no_call_well)
{
	static const struct {
		enum lk__request_kind kind;
		lk_err err;
		const char *reply;
	} rows[] = {
		{LK__LOOK, LK_ESERVER, "*3\r\n$7\r\nstepped\r\n:1\r\n:1\r\n"},
		{LK__LOOK, LK_ESERVER, "*2\r\n$5\r\nother\r\n:7\r\n"},
		{LK__LOOK, LK_ESERVER, "*4\r\n$7\r\ngranted\r\n:7\r\n:7\r\n:0\r\n"},
		{LK__LOOK, LK_ESERVER, "*4\r\n$4\r\nleft\r\n:1\r\n:0\r\n:0\r\n"},
		{LK__LOOK, LK_ESERVER, "+what?\r\n"},
		{LK__STEP, LK_EUNKNOWN,
	         "*8\r\n$4\r\nopen\r\n:7\r\n:0\r\n:1\r\n:-1\r\n:7\r\n:0\r\n:8\r\n"},
		{LK__STEP, LK_EUNKNOWN, "*4\r\n$7\r\ngranted\r\n:7\r\n:7\r\n:0\r\n"},
		{LK__STEP, LK_EUNKNOWN, "*4\r\n$4\r\nheld\r\n:7\r\n:7\r\n:0\r\n"},
		{LK__STEP, LK_EUNKNOWN, "*1\r\n$4\r\ngone\r\n"},
		{LK__STEP, LK_EUNKNOWN, "+what?\r\n"},
		{LK__STEP, LK_ESERVER, "-ERR what?\r\n"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct lk__op *waiter;
		struct virt_call call;

		start_latch(1);
		waiter = rows[i].kind == LK__STEP ? virt_down(a, 1, NULL) : await(a);
		if (rows[i].kind == LK__STEP)
			step(a, LK__LOOK);
		call = take(a, rows[i].kind);
		virt_reply(a, &call, rows[i].reply);
		assert_done(waiter, rows[i].err);
		end();
	}
}

/* ---- Giving up ---------------------------------------------------------------------------- */

TEST(giving_up_completes_at_once_with_what_is_known)
{
	struct lk__op *waiter, *other;

	start_latch(1);
	waiter = await_settled(a);
	other = await_settled(a);
	virt_give_up(a, waiter, LK_ETIMEDOUT);
	assert_done(waiter, LK_ETIMEDOUT);
	virt_link_down(a, LK_EUNKNOWN);
	set(0);
	waiter = await(a);
	later(60000);
	/* It opened a minute ago: nothing is known, whether a request was sent before or not. */
	virt_give_up(a, waiter, LK_ETIMEDOUT);
	assert_done(waiter, LK_ECONN);
	ck_assert_str_eq(waiter->why.text, "the link is down");
	virt_give_up(a, other, LK_ETIMEDOUT);
	assert_done(other, LK_ECONN);
	waiter = await(a);
	virt_give_up(a, waiter, LK_ECANCELED);
	assert_done(waiter, LK_ECANCELED);
	end();
}

TEST(giving_up_before_the_first_answer_waits_for_it)
{
	for (int open = 0; open < 2; open++) {
		struct lk__op *waiter, *none;
		struct virt_call call;

		start_latch(open ? 0 : 4);
		waiter = await(a);
		none = await(a);
		call = take(a, LK__LOOK);
		virt_give_up(a, waiter, LK_ETIMEDOUT);
		virt_give_up(a, none, LK_ETIMEDOUT);
		assert_waits(waiter);
		virt_abandon(a, none);
		assert_done(none, LK_ECONN);
		virt_execute(a, &call);
		virt_answer(a, &call);
		assert_done(waiter, open ? LK_OK : LK_ETIMEDOUT);
		end();
	}
}

TEST(timeout_right_after_the_link_came_back_waits_for_a_look)
{
	for (int open = 0; open < 2; open++) {
		struct lk__op *waiter;

		start_latch(1);
		waiter = await_settled(a);
		virt_link_down(a, LK_EUNKNOWN);
		if (open)
			set(0);
		later(1000);
		virt_link_up(a);
		virt_give_up(a, waiter, LK_ETIMEDOUT);
		assert_waits(waiter);
		step(a, LK__LOOK);
		assert_done(waiter, open ? LK_OK : LK_ETIMEDOUT);
		end();
	}
}

TEST(cancel_and_close_end_every_wait)
{
	struct lk__op *one, *two;

	start_latch(1);
	two = await(a);
	one = await(a);
	two->handle = &w; /* another one */
	virt_settle(&w);
	lk__core_cancel(&a->core, virt_now(a), a->queue->name, a, LK_ECANCELED);
	assert_done(one, LK_ECANCELED);
	assert_waits(two);
	lk__core_close(&a->core, virt_now(a));
	assert_done(two, LK_ECLOSED);
	assert_done(await(a), LK_ECLOSED);
	end();
}

TEST(latch_outlives_its_handle_until_its_request_is_answered)
{
	struct lk__op *waiter;
	struct virt_call call;

	start_latch(1);
	waiter = await(a);
	call = reach(a, LK__LOOK);
	virt_give_up(a, waiter, LK_ECANCELED);
	lk__wait_queue_close(&a->core, a->queue);
	ck_assert(lk__core_busy(&a->core));
	virt_answer(a, &call);
	ck_assert_uint_eq(a->core.names.count, 0);
	end();
}
