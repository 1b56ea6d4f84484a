/* SPDX-License-Identifier: MIT
 * Waiting for a latch, in virtual time: lost messages and how waits recover, and how waits are
 * given up. */
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

/* ---- Losses ------------------------------------------------------------------------------- */

TEST(lost_message_is_made_good_within_ten_seconds)
{
	struct lk__op *waiter;

	world_init(&w, 1);
	world_set(&w, 1, false);
	waiter = world_await(a, false, false);
	world_settle(&w);
	a->subscribed = false;
	world_set(&w, 0, true);
	world_pass(&w, 9000);
	ck_assert(!waiter->done);
	world_pass(&w, 1100);
	assert_done(waiter, LK_OK);
	end();
}

/* A message from a closed connection may be of a memory that the store has lost since. */
TEST(opening_of_a_lost_memory_lets_nobody_through)
{
	struct lk__op *first, *second;
	uint64_t older;

	world_init(&w, 1);
	world_set(&w, 2, false);
	older = w.generation;
	world_set(&w, 1, true);
	first = world_await(a, false, false);
	world_settle(&w);
	world_set(&w, 0, true); /* its message is in flight */
	second = world_await(a, false, false);
	while (world_hear(a))
		;
	assert_done(first, LK_OK);
	ck_assert(!second->done);
	world_link_down(a);
	w.generation = older; /* an old memory is back */
	w.count = 2;
	w.opened = w.removed = 0;
	world_link_up(a);
	world_settle(&w);
	ck_assert(!second->done);
	w.count = 1;
	count_down(a, 1);
	world_settle(&w);
	assert_done(second, LK_OK);
	end();
}

TEST(link_may_drop_at_every_step_of_a_wait)
{
	for (int steps = 0; steps < 6; steps++) {
		struct lk__op *waiter;
		struct world_call call;

		world_init(&w, 2);
		world_set(&w, 1, false);
		waiter = world_await(a, false, false);
		if (steps > 0)
			ck_assert(world_take(a, &call));
		if (steps > 1)
			world_execute(a, &call);
		if (steps > 2)
			world_answer(a, &call);
		if (steps > 3)
			ck_assert(world_command(a));
		if (steps > 4)
			ck_assert(world_hear(a));
		world_link_down(a);
		ck_assert(!world_take(a, &call));
		count_down(b, 1);
		world_later(&w, 300);
		world_link_up(a);
		world_settle(&w);
		assert_done(waiter, LK_OK);
		end();
	}
}

TEST(errors_that_pass_are_asked_again_and_others_end_the_wait)
{
	struct lk__op *waiter;
	struct world_call call;

	world_init(&w, 1);
	waiter = world_await(a, false, false);
	ck_assert(world_take(a, &call));
	world_refuse(a, &call, LK_EAGAIN, true);
	ck_assert(!waiter->done);
	ck_assert(!world_take(a, &call));
	world_later(&w, 100);
	world_tick(a);
	ck_assert(world_take(a, &call));
	world_refuse(a, &call, LK_EFOREIGN, false);
	assert_done(waiter, LK_EFOREIGN);
	end();
}

TEST(refused_subscription_ends_the_waits_with_its_reason)
{
	const struct lk__why why = {.err = LK_EAUTH, .text = "NOPERM"};
	struct lk__op *waiter;
	bool subscribe;

	world_init(&w, 1);
	world_set(&w, 1, false);
	waiter = world_await(a, false, false);
	look(a);
	ck_assert(lk__channels_next(&a->session.channels, &subscribe) && subscribe);
	lk__channels_refused(&a->session.channels, w.now_ns, &why);
	assert_done(waiter, LK_EAUTH);
	ck_assert_str_eq(waiter->why.text, "NOPERM");
	/* The next one tries again. */
	waiter = world_await(a, false, false);
	world_settle(&w);
	ck_assert(!waiter->done);
	world_set(&w, 0, true);
	world_settle(&w);
	assert_done(waiter, LK_OK);
	end();
}

/* ---- Giving up ---------------------------------------------------------------------------- */

TEST(giving_up_completes_at_once_and_says_what_is_known)
{
	struct lk__op *waiter;

	world_init(&w, 1);
	world_set(&w, 1, false);
	waiter = world_await(a, false, false);
	world_settle(&w);
	lk__core_give_up(&a->core, w.now_ns, waiter, LK_ETIMEDOUT);
	assert_done(waiter, LK_ETIMEDOUT);
	world_link_down(a);
	waiter = world_await(a, false, false);
	world_later(&w, 100);
	lk__core_give_up(&a->core, w.now_ns, waiter, LK_ETIMEDOUT);
	assert_done(waiter, LK_ECONN); /* nothing is known, and no request was sent */
	ck_assert_str_eq(waiter->why.text, "the link is down");
	waiter = world_await(a, false, false);
	lk__core_give_up(&a->core, w.now_ns, waiter, LK_ECANCELED);
	assert_done(waiter, LK_ECANCELED);
	end();
}

TEST(giving_up_before_the_first_answer_waits_for_it)
{
	struct lk__op *open_one, *other, *none;
	struct world_call call;

	world_init(&w, 1);
	world_set(&w, 0, false);
	open_one = world_await(a, false, false);
	ck_assert(world_take(a, &call));
	lk__core_give_up(&a->core, w.now_ns, open_one, LK_ETIMEDOUT);
	ck_assert(!open_one->done);
	world_execute(a, &call);
	world_answer(a, &call);
	assert_done(open_one, LK_OK);

	world_set(&w, 4, true);
	other = world_await(a, false, false);
	ck_assert(world_take(a, &call));
	lk__core_give_up(&a->core, w.now_ns, other, LK_ETIMEDOUT);
	world_execute(a, &call);
	world_answer(a, &call);
	assert_done(other, LK_ETIMEDOUT);

	none = world_await(a, false, false);
	ck_assert(world_take(a, &call));
	lk__core_give_up(&a->core, w.now_ns, none, LK_ETIMEDOUT);
	lk__core_abandon(&a->core, w.now_ns, none);
	assert_done(none, LK_ECONN);
	world_execute(a, &call);
	world_answer(a, &call);
	end();
}

TEST(cancel_and_close_end_every_wait)
{
	struct lk__op *one, *two;

	world_init(&w, 1);
	world_set(&w, 1, false);
	one = world_await(a, false, false);
	two = world_await(a, false, false);
	two->handle = &w; /* another one */
	world_settle(&w);
	lk__core_cancel(&a->core, w.now_ns, a->queue->name, a, LK_ECANCELED);
	assert_done(one, LK_ECANCELED);
	ck_assert(!two->done);
	lk__core_close(&a->core, w.now_ns);
	assert_done(two, LK_ECLOSED);
	assert_done(world_await(a, false, false), LK_ECLOSED);
	end();
}

TEST(latch_outlives_its_handle_as_long_as_something_is_under_way)
{
	struct lk__op *waiter;
	struct world_call call;

	world_init(&w, 1);
	world_set(&w, 1, false);
	waiter = world_await(a, false, false);
	ck_assert(world_take(a, &call));
	lk__core_give_up(&a->core, w.now_ns, waiter, LK_ECANCELED);
	lk__wait_queue_close(&a->core, a->queue);
	ck_assert(!world_idle(&w));
	world_execute(a, &call);
	world_answer(a, &call);
	ck_assert_uint_eq(a->core.names.count, 0);
	end();
}
