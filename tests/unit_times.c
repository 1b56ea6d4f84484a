/* SPDX-License-Identifier: MIT
 * When the time of a hold begins, in virtual time: no delay lengthens a hold, and no old message
 * makes one.  No thread, no socket, no clock. */
#include "virtual_fixture.h"

TEST_NOUNS(renewal_is_valid_from_when_it_was_sent)
{
	struct virt_call renewal;

	start(3000);
	hold(a);
	later(1100);
	tick(a);
	renewal = reach(a, LK__RENEW);
	later(700);
	virt_answer(a, &renewal);
	ck_assert_int_eq(left_ns(a), 2300 * VIRT_MS - lk__margin_ns(3000));
	release(a);
	end();
}

/* The clock decides, even before the timer runs. */
TEST_NOUNS(snapshot_knows_a_loss_before_the_timer_runs)
{
	const struct lk__hold *first;
	lk_hold snapshot;

	start_fixed(3000);
	hold(a);
	first = held(a);
	lk__hold_snapshot(first, w.now_ns, &snapshot);
	ck_assert_int_eq(snapshot.state, LK_STATE_HELD);
	ck_assert_int_eq(snapshot.lost, 0);
	ck_assert_int_eq(snapshot.remaining_ms, left_ns(a) / VIRT_MS);
	lk__hold_snapshot(first, w.now_ns + left_ns(a), &snapshot);
	ck_assert_int_eq(first->lost, 0);
	ck_assert_int_eq(snapshot.state, LK_STATE_LOST);
	ck_assert_int_eq(snapshot.lost, LK_LOST_EXPIRED);
	ck_assert_int_eq(snapshot.remaining_ms, 0);
	ck_assert_int_eq(snapshot.count, first->count);
	ck_assert_uint_eq(snapshot.fence, first->fence);
	release(a);
	end();
}

TEST_NOUNS(snapshot_knows_the_end_of_the_maximum_hold)
{
	struct lk__hold *first;
	lk_hold snapshot;

	start_fixed(3000);
	hold(a);
	first = held(a);
	first->max_until_ns = w.now_ns + 500 * VIRT_MS;
	lk__hold_snapshot(first, w.now_ns, &snapshot);
	ck_assert_int_eq(snapshot.remaining_ms, 500);
	lk__hold_snapshot(first, first->max_until_ns, &snapshot);
	ck_assert_int_eq(snapshot.state, LK_STATE_LOST);
	ck_assert_int_eq(snapshot.lost, LK_LOST_MAX_HOLD);
	release(a);
	end();
}

/* After a third of the lease since the request was sent, however long its answer took. */
TEST_NOUNS(renewal_is_due_by_when_the_grant_was_asked_for)
{
	struct virt_call ask;
	int64_t sent_ns;

	start(3000);
	acquire(a);
	sent_ns = w.now_ns;
	ask = reach(a, LK__ASK);
	later(500);
	virt_answer(a, &ask);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	ck_assert_int_le(lk__core_due(&a->core), sent_ns + 1000 * VIRT_MS);
	release(a);
	end();
}

/* b waits and repeats its ask, until much more than a lease has passed since its first ask. */
static struct lk__op *grant_an_old_waiter(struct lk__message *grant)
{
	struct lk__op *waiter;

	hold(a);
	waiter = acquire(b);
	virt_settle(&w);
	virt_pass(&w, 25000);
	ck_assert_int_gt(w.runs[LK__ASK], 2 + 1);
	leave(a);
	*grant = virt_peek(b);
	b->inbox_count = 0;
	ck_assert_int_eq(grant->kind, LK__GRANT);
	ck_assert(grant->claim);
	return waiter;
}

/* A store that requires no claim cannot know the ticket's age; and the message may be from before
 * the last ask, with its grant long over. */
TEST_NOUNS(grant_by_message_is_counted_from_the_first_ask_of_many)
{
	struct lk__message grant;
	struct lk__op *waiter;

	start(10000);
	waiter = grant_an_old_waiter(&grant);
	grant.claim = false;
	grant.life_ms = 10000;
	hear(b, grant);
	ck_assert_msg(!waiter->done, "a grant that was over is a hold");
	virt_settle(&w); /* the claim */
	assert_done(waiter, LK_OK);
	release(b);
	end();
}

/* The message is of an earlier grant of the same ticket than the claimed one. */
TEST_NOUNS(claim_takes_the_fence_of_the_store)
{
	struct lk__message grant;
	struct lk__op *waiter;

	start(10000);
	waiter = grant_an_old_waiter(&grant);
	grant.fence -= 7;
	hear(b, grant);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	ck_assert_uint_eq(held(b)->fence, only_stored()->fence);
	release(b);
	end();
}

/* The answer to a renewal, sent before another process began to wait, reports no waiters. */
TEST(wanted_is_not_forgotten_for_an_answer_of_before)
{
	struct lk__op *other, *next;
	struct virt_call renewal;

	start(3000);
	hold(a);
	next = acquire_of(a, 4);
	virt_settle(&w);
	extend(a, 3000);
	renewal = reach(a, LK__RENEW);
	other = acquire(b);
	step(b, LK__ASK);
	ck_assert(virt_hear(a));
	ck_assert(a->queue->ticket->is_wanted);
	virt_answer(a, &renewal);
	ck_assert(a->queue->ticket->is_wanted);
	virt_pass(&w, 1);
	begin_release(a);
	assert_done(next, LK_OK);
	begin_release(a);
	virt_settle(&w);
	assert_done(other, LK_OK);
	release(b);
	end();
}
