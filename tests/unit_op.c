/* SPDX-License-Identifier: MIT
 * Deadlines of calls in progress, in virtual time: each call ends within its wait plus one command
 * timeout, driven by lk__core_tick() alone. */
#include "core/query.h"
#include "virtual_fixture.h"

#include <string.h>

#define TIMEOUT_MS 500

static void start_timed(void)
{
	start(10000);
	a->core.command_timeout_ns = b->core.command_timeout_ns = TIMEOUT_MS * VIRT_MS;
	b->core.server = "one:6379";
}

/* The op is not done just before that time, and is done then. */
static void assert_ends_at(struct virt_client *client, const struct lk__op *op, int64_t ms,
                           lk_err err)
{
	assert_waits(op);
	ck_assert_int_eq(op->timer.due_ns, w.now_ns + ms * VIRT_MS);
	later(ms - 1);
	tick(client);
	ck_assert_msg(!op->done, "ended early with %s", lk_err_name(op->why.err));
	later(1);
	tick(client);
	assert_done(op, err);
	ck_assert_int_eq(op->timer.due_ns, LK__NEVER);
}

static struct lk__op *acquire_within(int64_t ms)
{
	struct lk__op *op = call_of(b, OWNER);

	op->until_ns = w.now_ns + ms * VIRT_MS;
	begin(b, op);
	return op;
}

/* The server was never asked: each waiter learns why. */
TEST_NOUNS(waits_behind_one_that_was_not_sent_end_with_its_reason)
{
	struct lk__op *first, *second;

	start_timed();
	virt_link_down(b, LK_ECONN);
	first = acquire_within(1000);
	second = acquire_within(500);
	later(500);
	tick(b);
	assert_done(second, LK_ECONN);
	later(500);
	tick(b);
	assert_done(first, LK_ECONN);
	virt_link_up(b);
	end();
}

TEST_NOUNS(wait_gives_up_at_its_end_and_the_store_confirms_it)
{
	struct lk__op *op;

	start_timed();
	hold(a);
	op = acquire_within(3000);
	virt_settle(&w);
	later(2999);
	tick(b);
	ck_assert_int_eq(op->awaits, LK__FOR_GRANT);
	later(1);
	tick(b);
	ck_assert_int_eq(op->awaits, LK__FOR_LEAVE);
	virt_settle(&w);
	assert_done(op, LK_ETIMEDOUT);
	release(a);
	end();
}

/* b's leave gets no answer until its wait has ended; then the answer arrives. */
static void end_unconfirmed(struct lk__op *op, struct virt_call *leave, int64_t ms)
{
	assert_ends_at(b, op, ms, LK_EUNKNOWN);
	virt_execute(b, leave);
	virt_answer(b, leave);
	release(a);
	end();
}

TEST_NOUNS(end_of_a_wait_that_is_not_confirmed_is_unknown_one_timeout_later)
{
	struct virt_call leave;
	struct lk__op *op;

	start_timed();
	hold(a);
	op = acquire_within(3000);
	virt_settle(&w);
	later(3000);
	tick(b);
	leave = take(b, LK__LEAVE);
	end_unconfirmed(op, &leave, TIMEOUT_MS);
}

TEST_NOUNS(cancelled_wait_has_one_timeout_for_its_end)
{
	struct virt_call leave;
	struct lk__op *op;

	start_timed();
	hold(a);
	op = acquire(b);
	virt_settle(&w);
	ck_assert_int_eq(op->timer.due_ns, LK__NEVER);
	lk__core_cancel(&b->core, w.now_ns, b->queue->name, b, LK_ECANCELED);
	leave = take(b, LK__LEAVE);
	end_unconfirmed(op, &leave, TIMEOUT_MS);
}

/* The wait is over and its leave is pending: a cancellation does not extend it. */
TEST_NOUNS(cancellation_does_not_put_off_an_end)
{
	struct virt_call leave;
	struct lk__op *op;

	start_timed();
	hold(a);
	op = acquire_within(1000);
	virt_settle(&w);
	later(1000);
	tick(b);
	leave = take(b, LK__LEAVE);
	later(TIMEOUT_MS / 2);
	lk__core_cancel(&b->core, w.now_ns, b->queue->name, b, LK_ECANCELED);
	end_unconfirmed(op, &leave, TIMEOUT_MS / 2);
}

TEST_NOUNS(try_has_one_timeout_in_all)
{
	struct virt_call ask;
	struct lk__op *op;

	start_timed();
	op = try(b);
	ask = take(b, LK__ASK);
	assert_ends_at(b, op, TIMEOUT_MS, LK_EUNKNOWN);
	virt_execute(b, &ask);
	virt_answer(b, &ask);
	end();
}

TEST_NOUNS(release_and_extension_have_one_timeout_each)
{
	struct virt_call renew, leave;
	struct lk__op *op;

	start_timed();
	hold(b);
	op = extend(b, 10000);
	renew = take(b, LK__RENEW);
	assert_ends_at(b, op, TIMEOUT_MS, LK_EUNKNOWN);
	virt_execute(b, &renew);
	virt_answer(b, &renew);
	op = begin_release(b);
	leave = take(b, LK__LEAVE);
	assert_ends_at(b, op, TIMEOUT_MS, LK_EUNKNOWN);
	virt_execute(b, &leave);
	virt_answer(b, &leave);
	end();
}

TEST_NOUNS(calls_without_a_link_end_in_time)
{
	struct lk__op *waits, *extends;

	start_timed();
	hold(b);
	virt_link_down(b, LK_ECONN);
	extends = extend(b, 10000);
	waits = call_of(b, 4);
	waits->queue = open_handle(b, "b", 10000, false);
	begin(b, waits);
	assert_ends_at(b, extends, TIMEOUT_MS, LK_ECONN);
	lk__core_cancel(&b->core, w.now_ns, waits->queue->name, b, LK_ECANCELED);
	assert_done(waits, LK_ECANCELED);
	virt_link_up(b);
	release(b);
	end();
}

/* In one queue: each ends in its own time, and the others continue. */
TEST_NOUNS(waits_of_one_queue_end_in_the_order_of_their_deadlines)
{
	static const int64_t limits[] = {3000, 1000, 2000};
	struct lk__op *ops[3];

	start_timed();
	hold(a);
	for (int i = 0; i < 3; i++) {
		ops[i] = call_of(b, 2 + 2 * (uint64_t)i);
		ops[i]->until_ns = w.now_ns + limits[i] * VIRT_MS;
		begin(b, ops[i]);
	}
	virt_settle(&w);
	for (int second = 1; second <= 3; second++) {
		later(1000);
		virt_settle(&w);
		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(ops[i]->done, limits[i] <= second * 1000);
	}
	for (int i = 0; i < 3; i++)
		assert_done(ops[i], LK_ETIMEDOUT);
	release(a);
	end();
}

/* The calling thread wakes for its own deadline: the background thread has no timer for it. */
TEST_NOUNS(deadline_is_not_among_the_core_s_own_timers)
{
	struct lk__op *op;
	int64_t due_ns;

	start_timed();
	hold(a);
	op = acquire(b);
	virt_settle(&w);
	due_ns = lk__core_due(&b->core);
	virt_give_up(b, op, LK_ECANCELED);
	virt_settle(&w);
	op = acquire_within(20);
	virt_settle(&w);
	ck_assert_int_gt(lk__core_due(&b->core), op->timer.due_ns);
	ck_assert_int_gt(due_ns, op->timer.due_ns);
	later(20);
	virt_settle(&w);
	assert_done(op, LK_ETIMEDOUT);
	release(a);
	end();
}

/* ---- Queries ------------------------------------------------------------------------------ */

static struct lk__query *ask(struct lk__op *op, size_t count, struct lk__query **questions)
{
	for (size_t i = 0; i < count; i++)
		questions[i] = lk__query_new(LK__KIND, LK_KIND_NONE, "a", 1);
	memset(op, 0, sizeof(*op));
	lk__core_query(&b->core, &b->session, w.now_ns, op, questions, count);
	return questions[0];
}

static void answer(struct lk__pending *request, enum lk__answer_kind kind, lk_err err)
{
	struct lk__answer value = {.kind = kind, .err = err, .text = err ? "refused" : NULL};

	lk__core_answer(&b->core, w.now_ns, request, &value);
}

TEST(query_in_flight_ends_as_unknown_and_its_answer_is_dropped)
{
	struct lk__query *questions[2];
	struct lk__pending *request, *other;
	struct lk__op op;

	start_timed();
	ask(&op, 2, questions);
	request = lk__core_next_request(&b->core, &b->session, w.now_ns);
	other = lk__core_next_request(&b->core, &b->session, w.now_ns);
	assert_ends_at(b, &op, TIMEOUT_MS, LK_EUNKNOWN);
	ck_assert_str_eq(op.why.text, "one:6379: no response within 500 ms");
	for (int i = 0; i < 2; i++)
		lk__query_free(&b->core, questions[i]);
	answer(request, LK__IS, LK_OK);
	answer(other, LK__IS, LK_OK);
	ck_assert_ptr_null(b->core.queries);
	end();
}

TEST(query_that_was_not_sent_ends_with_the_reason)
{
	struct lk__query *question;
	struct lk__op op;

	start_timed();
	ask(&op, 1, &question);
	assert_ends_at(b, &op, TIMEOUT_MS, LK_ECONN);
	ck_assert_str_eq(op.why.text, "one:6379: request not sent in time");
	lk__query_free(&b->core, question);
	ck_assert_ptr_eq(lk__core_next_done(&b->core), &op);
	virt_link_down(b, LK_EAUTH);
	ask(&op, 1, &question);
	assert_ends_at(b, &op, TIMEOUT_MS, LK_EAUTH);
	ck_assert_str_eq(op.why.text, "the link is down");
	lk__query_free(&b->core, question);
	virt_link_up(b);
	end();
}

TEST(query_is_done_with_its_last_answer_or_its_first_error)
{
	struct lk__query *questions[3];
	struct lk__pending *requests[3];
	struct lk__op op;

	start_timed();
	for (int failing = -1; failing < 3; failing++) {
		ask(&op, 3, questions);
		for (int i = 0; i < 3; i++)
			requests[i] = lk__core_next_request(&b->core, &b->session, w.now_ns);
		for (int i = 0; i < 3; i++) {
			ck_assert_int_eq(op.done, failing >= 0 && i > failing);
			answer(requests[i], i == failing ? LK__FAILED : LK__IS,
			       i == failing ? LK_EAUTH : LK_OK);
		}
		assert_done(&op, failing < 0 ? LK_OK : LK_EAUTH);
		ck_assert_str_eq(op.why.text, failing < 0 ? "" : "refused");
		ck_assert_ptr_eq(lk__core_next_done(&b->core), &op);
		ck_assert_ptr_null(lk__core_next_done(&b->core));
		for (int i = 0; i < 3; i++)
			lk__query_free(&b->core, questions[i]);
	}
	ask(&op, 0, questions);
	assert_done(&op, LK_OK);
	lk__core_next_done(&b->core);
	end();
}

TEST_NOUNS(calls_have_their_deadlines_after_a_loss_too)
{
	struct lk__hold *lost;
	struct lk__op *op;

	start_timed();
	hold(a);
	virt_link_down(a, LK_ECONN);
	later(10000);
	tick(a);
	lost = lk__core_next_lost(&a->core);
	ck_assert_ptr_nonnull(lost);
	lk__core_loss_reported(lost);
	op = try_of(a, 3);
	assert_ends_at(a, op, TIMEOUT_MS, LK_ECONN);
	virt_link_up(a);
	release_lost(a);
	end();
}

TEST_NOUNS(extension_that_was_not_sent_ends_with_the_reason_why)
{
	static const lk_err reasons[] = {LK_EAUTH, LK_ECONN, LK_EUNKNOWN};

	for (int i = 0; i < 3; i++) {
		struct lk__op *op;
		start_timed();
		hold(a);
		virt_link_down(a, reasons[i]);
		op = extend(a, 5000);
		assert_ends_at(a, op, TIMEOUT_MS, i == 0 ? LK_EAUTH : LK_ECONN);
		virt_link_up(a);
		virt_settle(&w);
		release(a);
		end();
	}
}

TEST_NOUNS(wait_that_was_refused_to_its_end_quotes_the_refusal)
{
	struct virt_call call;
	struct lk__op *op;

	start_timed();
	op = acquire_within(3000);
	for (int i = 0; i < 10 && !op->done; i++) {
		if (virt_take(b, &call))
			virt_refuse(b, &call, RETRYABLE);
		later(1000);
		tick(b);
	}
	assert_done(op, LK_ETIMEDOUT);
	ck_assert_str_eq(op->why.text, "not acquired in time: the store: " RETRYABLE);
	end();
}
