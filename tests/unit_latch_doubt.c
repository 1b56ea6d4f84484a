/* SPDX-License-Identifier: MIT
 * Waiting for a latch and counting it down, in virtual time, when the client's knowledge is wrong
 * or outdated: answers of the wrong kind, a store that lost its memory, a link that was down. */
#include "latch_world.h"
#include "test.h"

#define HOUR_US UINT64_C(3600000000)

static struct world w;
static struct world_client *const a = &w.clients[0];
static const struct lk__why no_right = {.err = LK_EAUTH, .text = "NOPERM"};

static void assert_done(const struct lk__op *waiter, lk_err err)
{
	ck_assert_msg(waiter->done, "not done, expected %s", lk_err_name(err));
	ck_assert_msg(waiter->why.err == err, "%s, expected %s: %s", lk_err_name(waiter->why.err),
	              lk_err_name(err), waiter->why.text);
}

static void end(void)
{
	world_settle(&w);
	ck_assert_msg(world_idle(&w), "something is left");
	world_fini(&w);
}

/* Take, execute and answer the only request. */
static void look(void)
{
	struct world_call call;

	ck_assert(world_take(a, &call));
	ck_assert_int_eq(call.kind, LK__LOOK);
	world_execute(a, &call);
	world_answer(a, &call);
}

static void answer_with(const struct world_call *call, const struct lk__answer *answer)
{
	lk__core_answer(&a->core, w.now_ns, call->request, answer);
}

/* ---- The store began anew, with a clock that is behind ------------------------------------- */

TEST(new_wait_knows_nothing_of_generations_before_the_store_began_anew)
{
	struct lk__op *waiter;

	world_init(&w, 1);
	w.fence = (uint64_t)w.now_ns / 1000 + HOUR_US;
	world_set(&w, 1, false);
	waiter = world_await(a, false, false);
	world_settle(&w);
	world_set(&w, 0, true);
	world_settle(&w);
	assert_done(waiter, LK_OK);
	world_link_down(a);
	world_flush(&w);
	world_link_up(a);
	world_set(&w, 3, false);
	world_settle(&w);
	waiter = world_await(a, false, false);
	world_settle(&w);
	ck_assert_msg(!waiter->done, "%s while 3 of 3 are left", lk_err_name(waiter->why.err));
	world_set(&w, 0, true);
	world_settle(&w);
	assert_done(waiter, LK_OK);
	end();
}

TEST(forged_message_releases_nobody_who_comes_later)
{
	const struct lk__message forged = {.kind = LK__OPENED, .fence = UINT64_C(1) << 53};
	struct lk__op *first, *later;

	world_init(&w, 1);
	world_set(&w, 1, false);
	first = world_await(a, false, false);
	world_settle(&w);
	lk__channels_published(&a->session.channels, w.now_ns,
	                       a->queue->name->latch->channel->topic,
	                       a->queue->name->latch->channel->len, &forged);
	assert_done(first, LK_OK); /* any client with the right to publish may do that */
	later = world_await(a, false, false);
	world_settle(&w);
	ck_assert(!later->done);
	world_set(&w, 0, true);
	world_settle(&w);
	assert_done(later, LK_OK);
	end();
}

TEST(opening_with_a_lower_generation_is_looked_at_at_once)
{
	struct lk__op *waiter;

	world_init(&w, 1);
	w.fence = (uint64_t)w.now_ns / 1000 + HOUR_US;
	waiter = world_await(a, false, false);
	world_settle(&w);
	world_flush(&w);
	world_set(&w, 0, true);
	ck_assert(world_hear(a)); /* its generation is below the stamp */
	ck_assert(!waiter->done);
	look();
	assert_done(waiter, LK_OK);
	end();
}

TEST(opening_is_looked_at_again_if_a_look_is_under_way)
{
	struct lk__op *waiter;
	struct world_call call;

	world_init(&w, 1);
	w.fence = (uint64_t)w.now_ns / 1000 + HOUR_US;
	waiter = world_await(a, false, false);
	look();
	ck_assert(world_command(a));
	ck_assert(world_hear(a)); /* subscribed: another look follows */
	ck_assert(world_take(a, &call));
	world_flush(&w);
	world_execute(a, &call);
	world_set(&w, 0, true);
	ck_assert(world_hear(a));
	world_answer(a, &call); /* outdated */
	ck_assert(!waiter->done);
	look();
	assert_done(waiter, LK_OK);
	end();
}

TEST(opening_that_releases_all_is_not_looked_at)
{
	struct lk__op *waiter;
	struct world_call call;

	world_init(&w, 1);
	world_set(&w, 1, false);
	waiter = world_await(a, false, false);
	world_settle(&w);
	world_set(&w, 0, true);
	ck_assert(world_hear(a));
	assert_done(waiter, LK_OK);
	ck_assert(!world_take(a, &call));
	end();
}

/* ---- Answers of the wrong kind ------------------------------------------------------------- */

TEST(answer_of_another_kind_ends_no_wait_well)
{
	static const enum lk__answer_kind kinds[] = {LK__STEPPED, LK__OTHER, LK__GRANTED, LK__LEFT};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const struct lk__answer answer = {.kind = kinds[i], .fence = 7};
		struct lk__op *waiter;
		struct world_call call;

		world_init(&w, 1);
		world_set(&w, 1, false);
		waiter = world_await(a, false, false);
		ck_assert(world_take(a, &call));
		answer_with(&call, &answer);
		assert_done(waiter, LK_ESERVER);
		end();
	}
}

TEST(answer_of_another_kind_leaves_a_step_unknown)
{
	static const enum lk__answer_kind kinds[] = {LK__SHOWN, LK__GRANTED, LK__KEPT, LK__GONE};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const struct lk__answer answer = {.kind = kinds[i], .fence = 5};
		struct lk__op *waiter;
		struct world_call call;

		world_init(&w, 1);
		world_set(&w, 1, false);
		waiter = world_step(a, 1, 0);
		look();
		ck_assert(world_take(a, &call));
		answer_with(&call, &answer);
		assert_done(waiter, LK_EUNKNOWN);
		end();
	}
}

TEST(unreadable_answer_leaves_a_step_unknown_and_an_error_does_not)
{
	for (int odd = 0; odd < 2; odd++) {
		const struct lk__answer answer = {
			.kind = LK__FAILED, .err = LK_ESERVER, .ambiguous = odd, .text = "what?"};
		struct lk__op *waiter;
		struct world_call call;

		world_init(&w, 1);
		world_set(&w, 1, false);
		waiter = world_step(a, 1, 0);
		look();
		ck_assert(world_take(a, &call));
		answer_with(&call, &answer);
		assert_done(waiter, odd ? LK_EUNKNOWN : LK_ESERVER);
		ck_assert_str_eq(waiter->why.text, "what?");
		end();
	}
}

/* ---- Refused subscriptions ------------------------------------------------------------------ */

TEST(refused_subscription_with_a_try_beside_is_asked_for_again)
{
	struct lk__op *waiter, *try, *next;
	bool subscribe;

	world_init(&w, 1);
	world_set(&w, 1, false);
	waiter = world_await(a, false, false);
	look();
	ck_assert(lk__channels_next(&a->session.channels, &subscribe) && subscribe);
	try = world_await(a, true, false);
	lk__channels_refused(&a->session.channels, w.now_ns, &no_right);
	assert_done(waiter, LK_EAUTH);
	ck_assert(!try->done);
	next = world_await(a, false, false);
	world_settle(&w);
	assert_done(try, LK_EBUSY);
	ck_assert(!next->done);
	ck_assert_msg(a->subscribed, "never subscribed again");
	world_set(&w, 0, true);
	world_settle(&w);
	assert_done(next, LK_OK);
	end();
}

TEST(subscription_that_is_put_off_ends_no_wait_and_is_made_good)
{
	struct lk__op *waiter;
	bool subscribe;

	world_init(&w, 1);
	world_set(&w, 1, false);
	waiter = world_await(a, false, false);
	look();
	ck_assert(lk__channels_next(&a->session.channels, &subscribe) && subscribe);
	lk__channels_put_off(&a->session.channels, w.now_ns);
	ck_assert(!waiter->done);
	world_set(&w, 0, true); /* no message */
	ck_assert(!a->subscribed);
	world_pass(&w, LK__PUT_OFF_MS + 1);
	ck_assert_int_eq(a->subscribes, 1);
	assert_done(waiter, LK_OK); /* by the look that follows */
	end();
}

/* ---- Giving up ------------------------------------------------------------------------------ */

TEST(timeout_while_the_link_is_down_says_so)
{
	struct lk__op *waiter;

	world_init(&w, 1);
	world_set(&w, 1, false);
	waiter = world_await(a, false, false);
	world_settle(&w);
	world_link_down(a);
	world_set(&w, 0, true);
	world_later(&w, 60000);
	lk__core_give_up(&a->core, w.now_ns, waiter, LK_ETIMEDOUT);
	assert_done(waiter, LK_ECONN); /* it opened a minute ago */
	ck_assert_str_eq(waiter->why.text, "the link is down");
	end();
}

TEST(timeout_right_after_the_link_came_back_waits_for_a_look)
{
	for (int open = 0; open < 2; open++) {
		struct lk__op *waiter;

		world_init(&w, 1);
		world_set(&w, 1, false);
		waiter = world_await(a, false, false);
		world_settle(&w);
		world_link_down(a);
		if (open)
			world_set(&w, 0, true);
		world_later(&w, 1000);
		world_link_up(a);
		lk__core_give_up(&a->core, w.now_ns, waiter, LK_ETIMEDOUT);
		ck_assert(!waiter->done);
		look();
		assert_done(waiter, open ? LK_OK : LK_ETIMEDOUT);
		end();
	}
}

/* ---- The end of a latch --------------------------------------------------------------------- */

TEST(latch_in_its_last_millisecond_is_looked_at_again)
{
	struct lk__op *waiter;
	struct world_call call;

	world_init(&w, 1);
	world_set(&w, 1, false);
	waiter = world_await(a, false, true);
	for (int i = 0; i < 2; i++) {
		ck_assert(world_take(a, &call));
		world_execute(a, &call);
		call.answer.left_ms = 0;
		world_answer(a, &call);
		if (i == 0)
			ck_assert(world_command(a) && world_hear(a));
	}
	world_remove(&w);
	a->inbox_count = 0; /* expired: no message */
	world_pass(&w, 2);
	assert_done(waiter, LK_OK);
	end();
}
