/* SPDX-License-Identifier: MIT
 * Counting down, in virtual time: exactly once, despite lost, late and reordered messages. */
#include "latch_fixture.h"

static void assert_step(const struct lk__op *waiter, int64_t remaining, bool counted)
{
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(waiter->remaining, remaining);
	ck_assert_int_eq(waiter->counted, counted);
}

static struct lk__op *down(struct virt_client *client)
{
	return virt_down(client, 1, NULL);
}

/* a knows the generation, so its next request is the step. */
static void start_known(int64_t steps)
{
	start_latch(steps + 1);
	count_down(a, 1);
}

TEST(step_takes_one_request_once_the_generation_is_known)
{
	struct lk__op *waiter;

	start_latch(3);
	for (int i = 0; i < 2; i++) {
		waiter = down(a);
		virt_settle(&w);
		assert_step(waiter, 2 - i, true);
	}
	ck_assert_int_eq(w.runs[LK__LOOK], 1);
	ck_assert_int_eq(w.runs[LK__STEP], 2);
	end();
}

TEST(lost_answer_does_not_count_twice)
{
	for (int executed = 0; executed < 2; executed++) {
		for (int named = 0; named < 2; named++) {
			struct lk__op *waiter;
			struct virt_call call;

			start_known(5);
			waiter = virt_down(a, 2, named ? "x" : NULL);
			call = take(a, LK__STEP);
			if (executed)
				virt_execute(a, &call);
			lose(a, &call);
			assert_waits(waiter);
			virt_link_up(a);
			virt_settle(&w);
			assert_step(waiter, 3, true); /* by this call's step */
			ck_assert_int_eq(count(), 3);
			end();
		}
	}
}

TEST(steps_of_a_client_are_settled_one_after_the_other)
{
	struct lk__op *waiters[10];
	struct virt_call call;

	start_known(20);
	for (int i = 0; i < 10; i++)
		waiters[i] = down(a);
	for (int i = 0; i < 10; i++) {
		call = reach(a, LK__STEP);
		assert_no_request(a);
		virt_answer(a, &call);
		assert_step(waiters[i], 19 - i, true);
	}
	end();
}

TEST(detached_step_is_settled_in_the_background)
{
	for (int executed = 0; executed < 2; executed++) {
		struct lk__op *gone, *next;
		struct virt_call call;

		start_known(5);
		gone = down(a);
		next = down(a);
		call = take(a, LK__STEP);
		if (executed)
			virt_execute(a, &call);
		virt_abandon(a, gone);
		assert_done(gone, LK_EUNKNOWN);
		ck_assert(lk__core_stepping(&a->core));
		lose(a, &call);
		virt_link_up(a);
		virt_settle(&w);
		assert_step(next, 3, true);
		end();
	}
}

TEST(step_that_was_never_sent_is_withdrawn)
{
	struct lk__op *waiter;
	struct virt_call call;

	start_known(5);
	virt_link_down(a, LK_EUNKNOWN);
	waiter = down(a);
	virt_abandon(a, waiter);
	assert_done(waiter, LK_ECONN);
	ck_assert_str_eq(waiter->why.text, "the link is down");
	virt_link_up(a);
	assert_no_request(a);
	/* Also a step that is queued behind another. */
	down(a);
	waiter = down(a);
	call = take(a, LK__STEP);
	virt_abandon(a, waiter);
	assert_done(waiter, LK_ECONN);
	virt_execute(a, &call);
	virt_answer(a, &call);
	ck_assert_int_eq(count(), 4);
	end();
}

/* ---- Another generation ------------------------------------------------------------------- */

TEST(step_for_a_latch_reset_meanwhile_counts_on_the_new_one)
{
	struct lk__op *waiter;

	start_known(5);
	set(9);
	waiter = down(a);
	virt_settle(&w);
	assert_step(waiter, 8, true);
	end();
}

TEST(step_for_a_latch_removed_meanwhile_is_refused)
{
	struct lk__op *waiter;

	start_known(5);
	remove_latch();
	waiter = down(a);
	step(a, LK__STEP);
	assert_done(waiter, LK_EABSENT);
	end();
}

/* A step bound to an old generation would be lost if its answer were: the caller means the present
 * latch. */
TEST(step_does_not_trust_a_generation_of_long_ago)
{
	struct lk__op *waiter;
	struct virt_call call;

	start_known(5);
	set(9);
	virt_pass(&w, 1500);
	waiter = down(a);
	step(a, LK__LOOK);
	call = reach(a, LK__STEP); /* its answer is lost */
	lose(a, &call);
	virt_link_up(a);
	virt_settle(&w);
	assert_step(waiter, 8, true);
	end();
}

TEST(ambiguous_step_never_counts_on_a_reset_latch)
{
	for (int executed = 0; executed < 2; executed++) {
		for (int removed = 0; removed < 2; removed++) {
			struct lk__op *waiter, *next;
			struct virt_call call;

			start_known(5);
			waiter = down(a);
			call = take(a, LK__STEP);
			if (executed)
				virt_execute(a, &call);
			lose(a, &call);
			if (removed)
				remove_latch();
			else
				set(9);
			virt_link_up(a);
			next = down(a);
			virt_settle(&w);
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
TEST(ambiguous_step_stays_bound_to_its_generation)
{
	struct lk__op *waiter, *look;
	struct virt_call call;

	start_known(5);
	waiter = down(a);
	call = reach(a, LK__STEP);
	lose(a, &call);
	virt_link_up(a);
	refuse(a, LK__STEP, RETRYABLE);
	set(9);
	look = virt_await(a, true, false);
	step(a, LK__LOOK);
	assert_done(look, LK_EBUSY);
	later(100);
	virt_settle(&w);
	assert_done(waiter, LK_EUNKNOWN);
	ck_assert_int_eq(count(), 9);
	end();
}

TEST(detached_step_stays_bound_to_its_generation)
{
	/* It arrives late; or it is refused, so not counted, but no caller is left that could mean
	 * the new generation. */
	for (int refused = 0; refused < 2; refused++) {
		struct lk__op *waiter;
		struct virt_call call;

		start_known(5);
		waiter = down(a);
		call = take(a, LK__STEP);
		virt_abandon(a, waiter);
		set(9);
		if (refused) {
			virt_refuse(a, &call, RETRYABLE);
		} else {
			virt_execute(a, &call);
			virt_answer(a, &call);
		}
		virt_await(a, true, false);
		virt_settle(&w);
		later(100);
		virt_settle(&w);
		ck_assert_int_eq(count(), 9);
		ck_assert(!lk__core_stepping(&a->core));
		end();
	}
}

/* ---- Errors and ends ---------------------------------------------------------------------- */

TEST(retryable_errors_are_sent_again_and_others_end_the_step)
{
	struct lk__op *waiter;
	struct virt_call call;

	start_known(5);
	waiter = down(a);
	refuse(a, LK__STEP, RETRYABLE);
	assert_no_request(a);
	later(100);
	virt_settle(&w);
	assert_step(waiter, 4, true);
	waiter = down(a);
	refuse(a, LK__STEP, PERMANENT);
	assert_done(waiter, LK_EAUTH);
	/* The first request may have been counted. */
	waiter = down(a);
	call = take(a, LK__STEP);
	lose(a, &call);
	virt_link_up(a);
	refuse(a, LK__STEP, PERMANENT);
	assert_done(waiter, LK_EUNKNOWN);
	end();
}

TEST(retryable_error_is_the_result_of_an_abandoned_step)
{
	struct lk__op *waiter;

	start_known(5);
	waiter = down(a);
	refuse(a, LK__STEP, RETRYABLE);
	virt_abandon(a, waiter);
	assert_done(waiter, LK_EAGAIN); /* it was not counted */
	ck_assert_int_eq(count(), 5);
	end();
}

TEST(refused_look_ends_the_steps_that_needed_it)
{
	struct lk__op *first, *second;
	struct virt_call call;

	start_absent();
	first = down(a);
	call = take(a, LK__LOOK);
	second = down(a);
	virt_refuse(a, &call, PERMANENT);
	assert_done(first, LK_EAUTH);
	assert_waits(second); /* the error was not for this step */
	virt_settle(&w);
	assert_done(second, LK_EABSENT);
	end();
}

TEST(close_ends_what_was_not_sent_and_settles_what_was)
{
	struct lk__op *sent, *waits;
	struct virt_call call;

	start_known(5);
	sent = down(a);
	waits = down(a);
	call = take(a, LK__STEP);
	lk__core_close(&a->core, virt_now(a));
	assert_done(waits, LK_ECLOSED);
	assert_done(down(a), LK_ECLOSED);
	assert_waits(sent);
	ck_assert(lk__core_stepping(&a->core));
	virt_execute(a, &call);
	virt_answer(a, &call);
	assert_step(sent, 4, true);
	ck_assert(!lk__core_stepping(&a->core));
	end();
}

TEST(step_outlives_its_handle)
{
	struct lk__op *waiter;
	struct virt_call call;

	start_known(5);
	waiter = down(a);
	call = take(a, LK__STEP);
	virt_abandon(a, waiter);
	lose(a, &call);
	lk__wait_queue_close(&a->core, a->queue);
	ck_assert(lk__core_stepping(&a->core));
	virt_link_up(a);
	virt_settle(&w);
	ck_assert_int_eq(virt_latch_count(b), 4);
	ck_assert_uint_eq(a->core.names.count, 0);
	end();
}

TEST(numbers_continue_when_a_latch_is_opened_again)
{
	struct lk__op *waiter;

	start_known(5);
	lk__wait_queue_close(&a->core, a->queue);
	ck_assert_uint_eq(a->core.names.count, 0);
	a->queue = virt_open_latch(a, "gate");
	waiter = down(a);
	virt_settle(&w);
	assert_step(waiter, 4, true);
	end();
}
