/* SPDX-License-Identifier: MIT
 * Waiting for a latch, in virtual time: what completes a wait, what must not, and lost messages.
 * Each relevant order of answer, confirmation and message is written out here; the simulator
 * (tests/sim) covers the others. */
#include "latch_world.h"
#include "test.h"

static struct world w;
static struct world_client *const a = &w.clients[0];
static struct world_client *const b = &w.clients[1];

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
static void look(struct world_client *client)
{
	struct world_call call;

	ck_assert(world_take(client, &call));
	ck_assert_int_eq(call.kind, LK__LOOK);
	world_execute(client, &call);
	world_answer(client, &call);
}

/* By another client: each request is executed and answered at once, for that client. */
static void count_down(struct world_client *client, int64_t n)
{
	struct lk__op *waiter = world_step(client, n, 0);
	struct world_call call;

	while (world_take(client, &call)) {
		world_execute(client, &call);
		world_answer(client, &call);
	}
	assert_done(waiter, LK_OK);
}

/* ---- Requests ----------------------------------------------------------------------------- */

TEST(await_of_an_open_latch_takes_one_request)
{
	struct lk__op *waiter;

	world_init(&w, 1);
	world_set(&w, 0, false);
	waiter = world_await(a, false, false);
	world_settle(&w);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(a->looks, 1);
	ck_assert_int_eq(a->subscribes, 0);
	end();
}

TEST(wait_takes_two_looks_and_one_subscription)
{
	struct lk__op *waiter;

	world_init(&w, 1);
	world_set(&w, 1, false);
	waiter = world_await(a, false, false);
	world_pass(&w, 5000);
	ck_assert(!waiter->done);
	ck_assert_int_eq(a->looks, 2);
	ck_assert_int_eq(a->subscribes, 1);
	world_set(&w, 0, true);
	world_settle(&w);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(a->looks, 2);
	end();
}

TEST(try_takes_one_look_and_leaves_nothing)
{
	struct lk__op *waiter;

	world_init(&w, 1);
	waiter = world_await(a, true, false);
	world_settle(&w);
	assert_done(waiter, LK_EBUSY);
	ck_assert_int_eq(a->looks, 1);
	ck_assert_int_eq(a->subscribes, 0);
	ck_assert(world_idle(&w));
	waiter = world_await(a, true, true);
	world_settle(&w);
	assert_done(waiter, LK_OK);
	end();
}

TEST(thousand_waiters_are_released_by_one_message)
{
	enum { WAITERS = 1000 };
	struct lk__op *waiters[WAITERS];
	int looks;

	world_init(&w, 1);
	world_set(&w, 1, false);
	for (int i = 0; i < WAITERS; i++)
		waiters[i] = world_await(a, false, false);
	world_settle(&w);
	looks = a->looks;
	ck_assert_int_le(looks, 3);
	ck_assert_int_eq(a->subscribes, 1);
	world_set(&w, 0, true);
	ck_assert_int_eq(a->inbox_count, 1);
	ck_assert(world_hear(a));
	for (int i = 0; i < WAITERS; i++)
		assert_done(waiters[i], LK_OK);
	ck_assert_int_eq(a->looks, looks);
	end();
}

/* ---- Between check and subscription ------------------------------------------------------- */

TEST(latch_opened_between_look_and_subscription_is_found)
{
	struct lk__op *waiter;

	world_init(&w, 1);
	world_set(&w, 1, false);
	waiter = world_await(a, false, false);
	look(a);
	world_set(&w, 0, true); /* no message */
	ck_assert_int_eq(a->inbox_count, 0);
	ck_assert(!waiter->done);
	ck_assert(world_command(a));
	ck_assert(world_hear(a));
	look(a);
	assert_done(waiter, LK_OK);
	end();
}

TEST(latch_opened_and_removed_between_look_and_subscription_is_found)
{
	struct lk__op *waiter;

	world_init(&w, 1);
	world_set(&w, 1, false);
	waiter = world_await(a, false, false);
	look(a);
	world_set(&w, 0, true);
	world_remove(&w);
	world_set(&w, 5, false);
	ck_assert(world_command(a));
	ck_assert(world_hear(a));
	look(a);
	assert_done(waiter, LK_OK);
	end();
}

TEST(look_under_way_at_the_confirmation_is_not_trusted)
{
	struct lk__op *first, *second;
	struct world_call call;

	world_init(&w, 1);
	world_set(&w, 1, false);
	first = world_await(a, false, false);
	look(a);
	second = world_await(a, false, false);
	ck_assert(world_take(a, &call));
	world_execute(a, &call); /* it still counts */
	world_set(&w, 0, true);
	ck_assert(world_command(a)); /* too late for the message */
	ck_assert(world_hear(a));
	world_answer(a, &call);
	ck_assert(!first->done && !second->done);
	look(a);
	assert_done(first, LK_OK);
	assert_done(second, LK_OK);
	end();
}

TEST(message_that_overtakes_the_answer_counts)
{
	struct lk__op *first, *second;
	struct world_call call;

	world_init(&w, 2);
	world_set(&w, 1, false);
	first = world_await(a, false, false);
	world_settle(&w);
	second = world_await(a, false, false);
	ck_assert(world_take(a, &call));
	world_execute(a, &call);
	count_down(b, 1);
	world_set(&w, 7, false);
	ck_assert(world_hear(a));
	assert_done(first, LK_OK);
	ck_assert(!second->done);
	world_answer(a, &call);
	assert_done(second, LK_OK);
	end();
}

/* ---- Generations -------------------------------------------------------------------------- */

TEST(old_message_releases_nobody_who_came_later)
{
	struct lk__op *old, *young;
	struct world_call call;

	world_init(&w, 2);
	world_set(&w, 1, false);
	old = world_await(a, false, false);
	world_settle(&w);
	count_down(b, 1); /* its message is delayed */
	ck_assert_int_eq(a->inbox_count, 1);
	world_later(&w, 50);
	world_set(&w, 3, false);
	young = world_await(a, false, false);
	ck_assert(world_take(a, &call));
	world_execute(a, &call);
	world_answer(a, &call);
	assert_done(old, LK_OK); /* the answer names the opened generation */
	ck_assert(!young->done);
	ck_assert(world_hear(a));
	world_settle(&w);
	ck_assert(!young->done);
	count_down(b, 3);
	world_settle(&w);
	assert_done(young, LK_OK);
	end();
}

TEST(old_message_before_the_first_answer_releases_nobody)
{
	struct lk__op *first, *young;

	world_init(&w, 2);
	world_set(&w, 1, false);
	first = world_await(a, false, false);
	world_settle(&w);
	count_down(b, 1);
	world_set(&w, 3, false);
	young = world_await(a, false, false);
	ck_assert(world_hear(a)); /* of the old generation, before young has asked */
	assert_done(first, LK_OK);
	world_settle(&w);
	ck_assert(!young->done);
	count_down(b, 3);
	world_settle(&w);
	assert_done(young, LK_OK);
	end();
}

TEST(old_message_of_a_counter_ahead_of_the_clock_releases_nobody)
{
	struct lk__op *first, *young;

	world_init(&w, 2);
	w.fence = (uint64_t)(w.now_ns / 1000) + 1000000000;
	world_set(&w, 1, false);
	first = world_await(a, false, false);
	world_settle(&w);
	count_down(b, 1);
	world_remove(&w);
	young = world_await(a, false, false);
	look(a); /* absent */
	assert_done(first, LK_OK);
	ck_assert(world_hear(a));
	ck_assert(world_hear(a));
	world_settle(&w);
	ck_assert(!young->done);
	world_set(&w, 0, false);
	world_settle(&w);
	assert_done(young, LK_OK);
	end();
}

TEST(absent_latch_is_waited_for_until_it_is_made_and_opened)
{
	struct lk__op *waiter;

	world_init(&w, 2);
	waiter = world_await(a, false, false);
	world_pass(&w, 100);
	ck_assert(!waiter->done);
	world_set(&w, 2, false);
	world_pass(&w, 100);
	ck_assert(!waiter->done);
	count_down(b, 2);
	world_settle(&w);
	assert_done(waiter, LK_OK);
	end();
}

TEST(latch_removed_while_awaited_is_waited_for)
{
	struct lk__op *waits, *content;

	world_init(&w, 2);
	world_set(&w, 2, false);
	waits = world_await(a, false, false);
	content = world_await(a, false, true);
	world_settle(&w);
	ck_assert(!waits->done && !content->done);
	world_remove(&w);
	world_settle(&w);
	assert_done(content, LK_OK); /* an absent latch counts as open for it */
	world_pass(&w, 30000);
	ck_assert(!waits->done);
	world_set(&w, 1, false);
	count_down(b, 1);
	world_settle(&w);
	assert_done(waits, LK_OK);
	end();
}

TEST(removal_that_nobody_heard_of_is_found)
{
	struct lk__op *content, *waits;

	world_init(&w, 1);
	world_set(&w, 2, false);
	content = world_await(a, false, true);
	waits = world_await(a, false, false);
	world_settle(&w);
	a->subscribed = false; /* a server that forgot the subscription */
	world_remove(&w);
	world_set(&w, 5, false);
	world_pass(&w, 10100);
	assert_done(content, LK_OK);
	ck_assert(!waits->done);
	lk__core_give_up(&a->core, w.now_ns, waits, LK_ETIMEDOUT);
	assert_done(waits, LK_ETIMEDOUT);
	end();
}

TEST(old_removal_message_releases_nobody)
{
	struct lk__op *first, *content;

	world_init(&w, 1);
	world_set(&w, 1, false);
	first = world_await(a, false, false);
	world_settle(&w);
	world_remove(&w); /* its message is delayed */
	world_set(&w, 2, false);
	content = world_await(a, false, true);
	look(a);
	ck_assert(world_hear(a));
	world_settle(&w);
	ck_assert(!content->done && !first->done);
	world_set(&w, 0, true);
	world_settle(&w);
	assert_done(content, LK_OK);
	assert_done(first, LK_OK);
	end();
}

TEST(reset_while_awaited_is_waited_for)
{
	struct lk__op *waiter;

	world_init(&w, 2);
	world_set(&w, 2, false);
	waiter = world_await(a, false, false);
	world_settle(&w);
	count_down(b, 1);
	world_set(&w, 3, true);
	world_pass(&w, 20000);
	ck_assert(!waiter->done);
	count_down(b, 3);
	world_settle(&w);
	assert_done(waiter, LK_OK);
	end();
}

TEST(waiter_of_the_old_generation_is_released_though_it_counts_again)
{
	struct lk__op *waiter;

	world_init(&w, 2);
	world_set(&w, 1, false);
	waiter = world_await(a, false, false);
	world_settle(&w);
	world_link_down(a);
	count_down(b, 1);
	world_set(&w, 9, false);
	ck_assert(!waiter->done);
	world_link_up(a);
	world_settle(&w);
	assert_done(waiter, LK_OK);
	end();
}

TEST(latch_that_opened_and_ran_out_is_found)
{
	struct lk__op *waiter;

	world_init(&w, 2);
	w.open_ttl_ms = 1000;
	world_set(&w, 1, false);
	waiter = world_await(a, false, false);
	world_settle(&w);
	world_link_down(a);
	count_down(b, 1);
	world_later(&w, 5000);
	ck_assert_uint_eq(w.generation, 0);
	world_link_up(a);
	world_settle(&w);
	assert_done(waiter, LK_OK);
	end();
}
