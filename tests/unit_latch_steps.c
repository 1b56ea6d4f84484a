/* SPDX-License-Identifier: MIT
 * Counting down, in virtual time: exactly once, despite lost, late and reordered messages. */
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

static void assert_step(const struct lk__op *waiter, int64_t remaining, bool counted)
{
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(waiter->remaining, remaining);
	ck_assert_int_eq(waiter->counted, counted);
}

static void end(void)
{
	world_settle(&w);
	ck_assert_msg(world_idle(&w), "something is left");
	world_fini(&w);
}

static void take(struct world_client *client, enum lk__request_kind kind, struct world_call *call)
{
	ck_assert_msg(world_take(client, call), "there is no request");
	ck_assert_int_eq(call->kind, kind);
}

/* a knows the generation, so its next request is the step. */
static void start(int64_t count)
{
	struct lk__op *waiter;

	world_init(&w, 2);
	world_set(&w, count + 1, false);
	waiter = world_step(a, 1, 0);
	world_settle(&w);
	assert_step(waiter, count, true);
}

TEST(step_takes_one_request_once_the_generation_is_known)
{
	struct lk__op *waiter;

	world_init(&w, 1);
	world_set(&w, 3, false);
	for (int i = 0; i < 2; i++) {
		waiter = world_step(a, 1, 0);
		world_settle(&w);
		assert_step(waiter, 2 - i, true);
	}
	ck_assert_int_eq(a->looks, 1);
	ck_assert_int_eq(a->steps, 2);
	waiter = world_step(a, LK_COUNT_MAX, 0);
	world_settle(&w);
	assert_step(waiter, 0, true);
	ck_assert_int_eq(w.published, 1);
	waiter = world_step(a, 1, 0);
	world_settle(&w);
	assert_step(waiter, 0, false); /* it was open before */
	end();
}

TEST(step_of_an_absent_latch_counts_nothing)
{
	struct lk__op *waiter;

	world_init(&w, 1);
	waiter = world_step(a, 1, 0);
	world_settle(&w);
	assert_done(waiter, LK_EABSENT);
	ck_assert_int_eq(a->steps, 0);
	world_set(&w, 2, false);
	waiter = world_step(a, 1, 0);
	world_settle(&w);
	assert_step(waiter, 1, true);
	world_remove(&w); /* the client is not aware yet */
	waiter = world_step(a, 1, 0);
	world_settle(&w);
	assert_done(waiter, LK_EABSENT);
	end();
}

TEST(name_counts_once_whoever_says_it)
{
	struct lk__op *waiter;

	start(5);
	waiter = world_step(a, 1, 3);
	world_settle(&w);
	assert_step(waiter, 4, true);
	waiter = world_step(b, 1, 3);
	world_settle(&w);
	assert_step(waiter, 4, false);
	waiter = world_step(a, 1, 3);
	world_settle(&w);
	assert_step(waiter, 4, false);
	world_set(&w, 2, true);
	waiter = world_step(b, 1, 3);
	world_settle(&w);
	assert_step(waiter, 1, true);
	end();
}

TEST(lost_answer_does_not_count_twice)
{
	for (int executed = 0; executed < 2; executed++) {
		for (int name = 0; name < 2; name++) {
			struct lk__op *waiter;
			struct world_call call;

			start(5);
			waiter = world_step(a, 2, name);
			take(a, LK__STEP, &call);
			if (executed)
				world_execute(a, &call);
			world_link_down(a);
			ck_assert(!waiter->done);
			world_link_up(a);
			world_settle(&w);
			assert_step(waiter, 3, true); /* by this call's step */
			ck_assert_int_eq(a->counted[call.number], 1);
			end();
		}
	}
}

TEST(lost_answer_to_the_step_that_opened_is_counted_still)
{
	struct lk__op *waiter;
	struct world_call call;

	start(1);
	waiter = world_step(a, 1, 0);
	take(a, LK__STEP, &call);
	world_execute(a, &call);
	world_link_down(a);
	world_link_up(a);
	world_settle(&w);
	assert_step(waiter, 0, true);
	ck_assert_int_eq(w.published, 1);
	end();
}

TEST(request_that_comes_late_counts_nothing)
{
	struct lk__op *waiter, *next;
	struct world_call late, call;

	start(5);
	waiter = world_step(a, 1, 0);
	take(a, LK__STEP, &late);
	world_link_down(a);
	world_link_up(a);
	world_settle(&w);
	assert_step(waiter, 4, true);
	world_execute(a, &late); /* a request that the network delayed */
	ck_assert_int_eq(w.count, 4);
	next = world_step(a, 1, 0);
	world_settle(&w);
	assert_step(next, 3, true);
	call = late;
	world_execute(a, &call);
	ck_assert_int_eq(w.count, 3);
	/* Nor on a latch that was set again. */
	world_set(&w, 8, true);
	world_execute(a, &late);
	ck_assert_int_eq(w.count, 8);
	end();
}

TEST(steps_of_a_client_are_settled_one_after_the_other)
{
	struct lk__op *waiters[10];
	struct world_call call;

	start(20);
	for (int i = 0; i < 10; i++)
		waiters[i] = world_step(a, 1, 0);
	for (int i = 0; i < 10; i++) {
		struct world_call other;
		take(a, LK__STEP, &call);
		ck_assert(!world_take(a, &other));
		world_execute(a, &call);
		world_answer(a, &call);
		assert_step(waiters[i], 19 - i, true);
	}
	end();
}

TEST(step_whose_caller_has_gone_is_settled_in_the_background)
{
	for (int executed = 0; executed < 2; executed++) {
		struct lk__op *gone, *next;
		struct world_call call;

		start(5);
		gone = world_step(a, 1, 0);
		next = world_step(a, 1, 0);
		take(a, LK__STEP, &call);
		if (executed)
			world_execute(a, &call);
		lk__core_abandon(&a->core, w.now_ns, gone);
		assert_done(gone, LK_EUNKNOWN);
		ck_assert(lk__core_stepping(&a->core));
		world_link_down(a);
		world_link_up(a);
		world_settle(&w);
		assert_step(next, 3, true);
		ck_assert_int_eq(a->counted[call.number], 1);
		end();
	}
}

TEST(step_that_was_never_sent_is_withdrawn)
{
	struct lk__op *waiter;
	struct world_call call;

	start(5);
	world_link_down(a);
	waiter = world_step(a, 1, 0);
	lk__core_abandon(&a->core, w.now_ns, waiter);
	assert_done(waiter, LK_ECONN);
	ck_assert_str_eq(waiter->why.text, "the link is down");
	world_link_up(a);
	ck_assert(!world_take(a, &call));
	/* Also a step that is queued behind another. */
	world_step(a, 1, 0);
	waiter = world_step(a, 1, 0);
	take(a, LK__STEP, &call);
	lk__core_abandon(&a->core, w.now_ns, waiter);
	assert_done(waiter, LK_ECONN);
	world_execute(a, &call);
	world_answer(a, &call);
	ck_assert_int_eq(w.count, 4);
	end();
}

/* ---- Another generation ------------------------------------------------------------------- */

TEST(step_for_a_latch_made_anew_meanwhile_counts_on_that)
{
	struct lk__op *waiter;

	start(5);
	world_set(&w, 9, true);
	waiter = world_step(a, 1, 0);
	world_settle(&w);
	assert_step(waiter, 8, true);
	end();
}

/* A step bound to an old generation would be lost if its answer were: the caller means the present
 * latch. */
TEST(step_does_not_trust_a_generation_of_long_ago)
{
	struct lk__op *waiter;
	struct world_call call;

	start(5);
	world_set(&w, 9, true);
	world_pass(&w, 1500);
	waiter = world_step(a, 1, 0);
	take(a, LK__LOOK, &call);
	world_execute(a, &call);
	world_answer(a, &call);
	take(a, LK__STEP, &call);
	world_execute(a, &call); /* its answer is lost */
	world_link_down(a);
	world_link_up(a);
	world_settle(&w);
	assert_step(waiter, 8, true);
	end();
}

TEST(doubted_step_never_counts_on_a_latch_made_anew)
{
	for (int executed = 0; executed < 2; executed++) {
		for (int removed = 0; removed < 2; removed++) {
			struct lk__op *waiter, *next;
			struct world_call call;

			start(5);
			waiter = world_step(a, 1, 0);
			take(a, LK__STEP, &call);
			if (executed)
				world_execute(a, &call);
			world_link_down(a);
			if (removed)
				world_remove(&w);
			else
				world_set(&w, 9, true);
			world_link_up(a);
			next = world_step(a, 1, 0);
			world_settle(&w);
			assert_done(waiter, LK_EUNKNOWN);
			if (removed)
				assert_done(next, LK_EABSENT);
			else
				assert_step(next, 8, true);
			end();
		}
	}
}

/* Even if the client learns of another generation before it can repeat the step. */
TEST(doubted_step_stays_bound_to_its_generation)
{
	struct lk__op *waiter, *look;
	struct world_call call, ask;

	start(5);
	waiter = world_step(a, 1, 0);
	take(a, LK__STEP, &call);
	world_execute(a, &call);
	world_link_down(a);
	world_link_up(a);
	take(a, LK__STEP, &call);
	world_refuse(a, &call, LK_EAGAIN, true);
	world_set(&w, 9, true);
	look = world_await(a, true, false);
	take(a, LK__LOOK, &ask);
	world_execute(a, &ask);
	world_answer(a, &ask);
	assert_done(look, LK_EBUSY);
	world_later(&w, 100);
	world_settle(&w);
	assert_done(waiter, LK_EUNKNOWN);
	ck_assert_int_eq(w.count, 9);
	end();
}

TEST(step_without_caller_is_dropped_with_its_generation)
{
	struct lk__op *waiter;
	struct world_call call;

	start(5);
	waiter = world_step(a, 1, 0);
	take(a, LK__STEP, &call);
	lk__core_abandon(&a->core, w.now_ns, waiter);
	world_set(&w, 9, true);
	world_execute(a, &call);
	world_answer(a, &call);
	world_settle(&w);
	ck_assert_int_eq(w.count, 9);
	end();
}

/* The step was refused, so not counted; but no caller is left that could mean the new
 * generation. */
TEST(step_without_caller_stays_bound_to_its_generation)
{
	struct lk__op *waiter;
	struct world_call call;

	start(5);
	waiter = world_step(a, 1, 0);
	take(a, LK__STEP, &call);
	lk__core_abandon(&a->core, w.now_ns, waiter);
	world_refuse(a, &call, LK_EAGAIN, true);
	world_set(&w, 9, true);
	world_await(a, true, false);
	world_settle(&w);
	world_later(&w, 100);
	world_settle(&w);
	ck_assert_int_eq(w.count, 9);
	ck_assert(!lk__core_stepping(&a->core));
	end();
}

/* ---- Errors and ends ---------------------------------------------------------------------- */

TEST(errors_that_pass_are_sent_again_and_others_end_the_step)
{
	struct lk__op *waiter;
	struct world_call call;

	start(5);
	waiter = world_step(a, 1, 0);
	take(a, LK__STEP, &call);
	world_refuse(a, &call, LK_EAGAIN, true);
	ck_assert(!world_take(a, &call));
	world_later(&w, 100);
	world_settle(&w);
	assert_step(waiter, 4, true);
	waiter = world_step(a, 1, 0);
	take(a, LK__STEP, &call);
	world_refuse(a, &call, LK_EAUTH, false);
	assert_done(waiter, LK_EAUTH);
	/* The first request may have been counted. */
	waiter = world_step(a, 1, 0);
	take(a, LK__STEP, &call);
	world_link_down(a);
	world_link_up(a);
	take(a, LK__STEP, &call);
	world_refuse(a, &call, LK_EAUTH, false);
	assert_done(waiter, LK_EUNKNOWN);
	end();
}

TEST(error_that_passes_is_told_to_who_gives_up)
{
	struct lk__op *waiter;
	struct world_call call;

	start(5);
	waiter = world_step(a, 1, 0);
	take(a, LK__STEP, &call);
	world_refuse(a, &call, LK_EAGAIN, true);
	lk__core_abandon(&a->core, w.now_ns, waiter);
	assert_done(waiter, LK_EAGAIN); /* it was not counted */
	ck_assert_int_eq(w.count, 5);
	end();
}

TEST(refused_look_ends_the_steps_that_needed_it)
{
	struct lk__op *first, *second;
	struct world_call call;

	world_init(&w, 1);
	first = world_step(a, 1, 0);
	take(a, LK__LOOK, &call);
	second = world_step(a, 1, 0);
	world_refuse(a, &call, LK_EFOREIGN, false);
	assert_done(first, LK_EFOREIGN);
	ck_assert(!second->done); /* the error was not for this step */
	world_settle(&w);
	assert_done(second, LK_EABSENT);
	end();
}

TEST(close_ends_what_was_not_sent_and_settles_what_was)
{
	struct lk__op *sent, *waits;
	struct world_call call;

	start(5);
	sent = world_step(a, 1, 0);
	waits = world_step(a, 1, 0);
	take(a, LK__STEP, &call);
	lk__core_close(&a->core, w.now_ns);
	assert_done(waits, LK_ECLOSED);
	ck_assert(!sent->done);
	ck_assert(lk__core_stepping(&a->core));
	world_execute(a, &call);
	world_answer(a, &call);
	assert_step(sent, 4, true);
	ck_assert(!lk__core_stepping(&a->core));
	end();
}

TEST(step_outlives_its_handle)
{
	struct lk__op *waiter;
	struct world_call call;

	start(5);
	waiter = world_step(a, 1, 0);
	take(a, LK__STEP, &call);
	lk__core_abandon(&a->core, w.now_ns, waiter);
	world_link_down(a);
	lk__wait_queue_close(&a->core, a->queue);
	ck_assert(lk__core_stepping(&a->core));
	world_link_up(a);
	world_settle(&w);
	ck_assert_int_eq(a->counted[call.number], 1);
	ck_assert_uint_eq(a->core.names.count, 0);
	end();
}

TEST(numbers_go_on_when_a_latch_is_opened_again)
{
	struct lk__op *waiter;

	start(5);
	lk__wait_queue_close(&a->core, a->queue);
	ck_assert_uint_eq(a->core.names.count, 0);
	world_open(a);
	waiter = world_step(a, 1, 0);
	world_settle(&w);
	assert_step(waiter, 4, true);
	end();
}
