/* SPDX-License-Identifier: MIT
 * A core with two links, in virtual time: events of one link affect only its own requests. */
#include "core/latch.h"
#include "core/query.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define LEASE_MS 1000

static struct lk__core core;
static struct lk__session near, far;
static struct lk__wait_queue *on_near, *on_far;
static int64_t now_ns = 5000 * MS;
static uint64_t fence = 1000;

static struct lk__wait_queue *open_on(struct lk__session *session, const char *name)
{
	return lk__wait_queue_open(&core, session, lk__name_new(LK_KIND_LOCK, name, 1),
	                           lk__wait_queue_new(LEASE_MS, false));
}

static void start(void)
{
	lk__session_init(&near, 1000 * MS, 1000 * MS);
	lk__session_init(&far, 1000 * MS, 1000 * MS);
	ck_assert(lk__core_init(&core, 1));
	ck_assert(lk__core_add_session(&core, &near) && lk__core_add_session(&core, &far));
	on_near = open_on(&near, "a");
	on_far = open_on(&far, "b");
	lk__core_link_up(&core, &near, now_ns);
	lk__core_link_up(&core, &far, now_ns);
}

static void end(void)
{
	lk__core_fini(&core);
}

static void break_link(struct lk__session *session)
{
	lk__core_link_down(&core, session, now_ns, &(struct lk__why){.err = LK_ECONN}, 0);
}

static struct lk__op *acquire(struct lk__wait_queue *queue)
{
	struct lk__op *op = calloc(1, sizeof(*op));

	op->queue = queue;
	op->owner = 2;
	op->spare_ticket = malloc(sizeof(*op->spare_ticket));
	op->spare_hold = malloc(sizeof(*op->spare_hold));
	lk__core_acquire(&core, now_ns, op);
	return op;
}

/* Take the link's next request, which must be of that kind. */
static struct lk__pending *take(struct lk__session *session, enum lk__request_kind kind)
{
	struct lk__pending *pending = lk__core_next_request(&core, session, now_ns);

	ck_assert_ptr_nonnull(pending);
	ck_assert_int_eq(pending->kind, kind);
	return pending;
}

static void grant(struct lk__pending *ask)
{
	const struct lk__answer granted = {
		.kind = LK__GRANTED, .fence = ++fence, .store_us = now_ns / 1000};

	lk__core_answer(&core, now_ns, ask, &granted);
}

static lk_state state_of(const struct lk__wait_queue *queue)
{
	const struct lk__hold *hold = lk__core_hold(queue->name, 2);

	return hold ? lk__hold_state(hold, now_ns) : LK_STATE_NONE;
}

static void free_op(struct lk__op *op)
{
	free(op->spare_ticket);
	free(op->spare_hold);
	free(op);
}

TEST(requests_go_over_the_link_of_their_name)
{
	struct lk__op *first, *second;

	start();
	first = acquire(on_near);
	second = acquire(on_far);
	grant(take(&far, LK__ASK));
	ck_assert(second->done && !first->done);
	ck_assert_ptr_null(lk__core_next_request(&core, &far, now_ns));
	grant(take(&near, LK__ASK));
	ck_assert(first->done);
	ck_assert_int_eq(near.users, 1);
	ck_assert_int_eq(far.users, 1);
	end();
	free_op(first);
	free_op(second);
}

TEST(link_that_breaks_ends_nothing_of_another)
{
	struct lk__pending *ask;
	struct lk__op *held, *asked;

	start();
	held = acquire(on_near);
	grant(take(&near, LK__ASK));
	asked = acquire(on_far);
	ask = take(&far, LK__ASK);
	break_link(&near);
	ck_assert_int_eq(state_of(on_near), LK_STATE_UNSURE);
	/* In flight, so neither repeated nor dropped. */
	ck_assert_int_eq(ask->state, LK__IN_FLIGHT);
	ck_assert_ptr_null(lk__core_next_request(&core, &far, now_ns));
	grant(ask);
	ck_assert(asked->done);
	ck_assert_int_eq(state_of(on_far), LK_STATE_HELD);
	break_link(&far);
	ck_assert_int_eq(state_of(on_far), LK_STATE_UNSURE);
	lk__core_link_up(&core, &near, now_ns);
	take(&near, LK__RENEW);
	ck_assert_int_eq(state_of(on_far), LK_STATE_UNSURE);
	ck_assert_ptr_null(lk__core_next_request(&core, &far, now_ns));
	end();
	free_op(held);
	free_op(asked);
}

TEST(queued_request_of_one_link_waits_while_another_comes_and_goes)
{
	struct lk__op *op;

	start();
	break_link(&far);
	op = acquire(on_far);
	ck_assert(!lk__core_has_requests(&core));
	break_link(&near);
	lk__core_link_up(&core, &near, now_ns);
	ck_assert_ptr_null(lk__core_next_request(&core, &near, now_ns));
	ck_assert(!op->done);
	lk__core_link_up(&core, &far, now_ns);
	ck_assert_ptr_null(lk__core_next_request(&core, &near, now_ns));
	grant(take(&far, LK__ASK));
	ck_assert(op->done);
	end();
	free_op(op);
}

TEST(query_in_flight_ends_with_its_own_link)
{
	struct lk__query *on_one = lk__query_new(LK__KIND, LK_KIND_NONE, "a", 1);
	struct lk__query *on_other = lk__query_new(LK__KIND, LK_KIND_NONE, "b", 1);
	struct lk__op one = {0}, other = {0};

	start();
	lk__core_query(&core, &near, now_ns, &one, &on_one, 1);
	lk__core_query(&core, &far, now_ns, &other, &on_other, 1);
	take(&near, LK__KIND);
	take(&far, LK__KIND);
	break_link(&far);
	ck_assert(!one.done);
	ck_assert(other.done);
	ck_assert_int_eq(other.why.err, LK_EUNKNOWN);
	break_link(&near);
	ck_assert(one.done);
	lk__query_free(&core, on_one);
	lk__query_free(&core, on_other);
	end();
}

/* Other queries are sent again, for the new memory; its caller has agreed only to the end of one
 * grace. */
TEST(end_of_a_grace_is_not_repeated_for_another_memory)
{
	const struct lk__answer stale = {.kind = LK__STALE};
	struct lk__query *query = lk__query_new(LK__END_GRACE, LK_KIND_NONE, NULL, 0);
	struct lk__query *other = lk__query_new(LK__RECALL, LK_KIND_NONE, NULL, 0);
	struct lk__op ends = {0}, asks = {0};

	start();
	lk__core_query(&core, &near, now_ns, &ends, &query, 1);
	lk__core_answer(&core, now_ns, take(&near, LK__END_GRACE), &stale);
	ck_assert(ends.done);
	ck_assert_int_eq(ends.why.err, LK_OK);
	ck_assert_int_eq(query->answer.kind, LK__STALE);
	ck_assert(!lk__core_has_requests(&core));
	lk__core_query(&core, &near, now_ns, &asks, &other, 1);
	lk__core_answer(&core, now_ns, take(&near, LK__RECALL), &stale);
	ck_assert(!asks.done);
	take(&near, LK__EPOCH);
	lk__query_free(&core, query);
	lk__query_free(&core, other);
	end();
}

TEST(only_a_link_that_is_used_is_checked)
{
	struct lk__op *op;

	start();
	op = acquire(on_far);
	grant(take(&far, LK__ASK));
	ck_assert_int_eq(lk__session_due(&near, LK__NEVER), LK__NEVER);
	ck_assert_int_lt(lk__session_due(&far, LK__NEVER), LK__NEVER);
	end();
	free_op(op);
}

static struct lk__op *await(struct lk__wait_queue *queue)
{
	struct lk__op *op = calloc(1, sizeof(*op));

	op->queue = queue;
	lk__core_await(&core, now_ns, op);
	return op;
}

static struct lk__op *count_down(struct lk__wait_queue *queue)
{
	struct lk__op *op = calloc(1, sizeof(*op));

	op->queue = queue;
	op->spare_step = calloc(1, sizeof(*op->spare_step));
	op->spare_step->n = 1;
	lk__core_step(&core, now_ns, op);
	return op;
}

static struct lk__wait_queue *latch_on(struct lk__session *session, const char *name)
{
	struct lk__wait_queue *queue =
		lk__wait_queue_open(&core, session, lk__name_new(LK_KIND_LATCH, name, 1),
	                            lk__wait_queue_new(LEASE_MS, false));

	lk__latch_open(queue->name, lk__latch_new(name));
	return queue;
}

TEST(refused_link_ends_every_call_that_waits_for_it_and_no_other)
{
	const struct lk__why refused = {.err = LK_EAUTH, .text = "no such password"};
	struct lk__query *query = lk__query_new(LK__KIND, LK_KIND_NONE, "a", 1);
	struct lk__query *detached = lk__query_new(LK__PING, LK_KIND_NONE, NULL, 0);
	struct lk__op asked = {0}, *ops[6], *other;
	struct lk__wait_queue *latch;

	start();
	break_link(&far);
	near.lazy = true;
	near.state = LK__SESSION_DOWN;
	latch = latch_on(&near, "l");
	ops[0] = acquire(on_near);
	ops[1] = acquire(on_near);
	ops[2] = acquire(open_on(&near, "c"));
	ops[3] = await(latch);
	ops[4] = await(latch);
	ops[5] = count_down(latch);
	lk__core_query(&core, &near, now_ns, &asked, &query, 1);
	lk__core_ask_detached(&core, &near, detached);
	other = acquire(on_far);
	ck_assert_int_eq(lk__session_next(&near, now_ns, LK__NEVER), LK__DUTY_DIAL);
	lk__session_dial_failed(&near, now_ns, &refused, 0);
	ck_assert_int_eq(lk__session_next(&near, now_ns, LK__NEVER), LK__DUTY_REFUSE);
	lk__core_link_refused(&core, &near, now_ns);
	ck_assert(asked.done && asked.why.err == LK_EAUTH);
	for (int i = 0; i < 6; i++) {
		ck_assert_msg(ops[i]->done && ops[i]->why.err == LK_EAUTH, "call %d", i);
		ck_assert_str_eq(ops[i]->why.text, refused.text);
		free_op(ops[i]);
	}
	ck_assert(!other->done);
	/* No call waits, and no request is left to send. */
	ck_assert_int_eq(lk__session_next(&near, now_ns, LK__NEVER), LK__DUTY_NONE);
	ck_assert_ptr_null(near.send_queue);
	ck_assert_uint_eq(near.users, 0);
	lk__query_free(&core, query);
	end();
	free_op(other);
}
