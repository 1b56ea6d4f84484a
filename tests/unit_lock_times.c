/* SPDX-License-Identifier: MIT
 * When the time of a hold begins, in virtual time: no delay lengthens a hold, and no old message
 * makes one.  No thread, no socket, no clock. */
#include "fixture.h"

static int64_t left_ns(void)
{
	return lk__hold_left_ns(lk__core_hold(pa->name, 2), v.now_ns);
}

TEST(renewal_is_valid_from_when_it_was_sent)
{
	struct old_virt_call renewal;

	start(3000);
	hold(a, pa);
	later(1100);
	tick(a);
	ck_assert(old_virt_take(a, &renewal));
	ck_assert_int_eq(renewal.bytes.kind, LK__RENEW);
	old_virt_execute(a, &renewal);
	later(700);
	old_virt_answer(a, &renewal);
	ck_assert_int_eq(left_ns(), 2300 * OLD_VIRT_MS - lk__margin_ns(3000));
	release(a, pa);
	end();
}

/* The clock decides, even before the timer runs. */
TEST(snapshot_knows_a_loss_before_the_timer_runs)
{
	const struct lk__hold *held;
	lk_hold snapshot;

	start_fixed(3000);
	hold(a, pa);
	held = lk__core_hold(pa->name, 2);
	lk__hold_snapshot(held, v.now_ns, &snapshot);
	ck_assert_int_eq(snapshot.state, LK_STATE_HELD);
	ck_assert_int_eq(snapshot.lost, 0);
	ck_assert_int_eq(snapshot.remaining_ms, left_ns() / OLD_VIRT_MS);
	lk__hold_snapshot(held, v.now_ns + left_ns(), &snapshot);
	ck_assert_int_eq(held->lost, 0);
	ck_assert_int_eq(snapshot.state, LK_STATE_LOST);
	ck_assert_int_eq(snapshot.lost, LK_LOST_EXPIRED);
	ck_assert_int_eq(snapshot.remaining_ms, 0);
	ck_assert_int_eq(snapshot.count, 1);
	ck_assert_uint_eq(snapshot.fence, held->fence);
	release(a, pa);
	end();
}

TEST(snapshot_knows_the_end_of_the_maximum_hold)
{
	struct lk__hold *held;
	lk_hold snapshot;

	start_fixed(3000);
	hold(a, pa);
	held = lk__core_hold(pa->name, 2);
	held->max_until_ns = v.now_ns + 500 * OLD_VIRT_MS;
	lk__hold_snapshot(held, v.now_ns, &snapshot);
	ck_assert_int_eq(snapshot.remaining_ms, 500);
	lk__hold_snapshot(held, held->max_until_ns, &snapshot);
	ck_assert_int_eq(snapshot.state, LK_STATE_LOST);
	ck_assert_int_eq(snapshot.lost, LK_LOST_MAX_HOLD);
	release(a, pa);
	end();
}

/* After a third of the lease since the request was sent, however long its answer took. */
TEST(renewal_is_due_by_when_the_grant_was_asked_for)
{
	struct old_virt_call ask;
	int64_t sent_ns;

	start(3000);
	old_virt_acquire(a, pa, 2);
	sent_ns = v.now_ns;
	ck_assert(old_virt_take(a, &ask));
	old_virt_execute(a, &ask);
	later(500);
	old_virt_answer(a, &ask);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	ck_assert_int_le(lk__core_due(&a->core), sent_ns + 1000 * OLD_VIRT_MS);
	release(a, pa);
	end();
}

/* b waits and repeats its ask, until much more than a lease has passed since its first ask. */
static struct lk__op *old_waiter(void)
{
	struct lk__op *waiter;

	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	old_virt_pass(&v, 25000);
	ck_assert_int_gt(v.model.runs[LK__ASK], 2 + 1);
	old_virt_release(a, pa, 2);
	step(a, LK__LEAVE);
	ck_assert_int_eq(b->inbox_count, 1);
	ck_assert_int_eq(b->inbox[0].kind, LK__GRANT);
	return waiter;
}

/* A store that requires no claim cannot know the ticket's age; and the message may be from before
 * the last ask, with its grant long over. */
TEST(grant_by_message_is_counted_from_the_first_ask_of_many)
{
	struct lk__op *waiter;

	start(10000);
	waiter = old_waiter();
	b->inbox[0].claim = false;
	b->inbox[0].life_ms = 10000;
	ck_assert(old_virt_hear(b));
	ck_assert_msg(!waiter->done, "a grant that was over is a hold");
	old_virt_settle(&v); /* the claim */
	assert_done(waiter, LK_OK);
	release(b, pb);
	end();
}

/* The message is of an earlier grant of the same ticket than the claimed one. */
TEST(claim_takes_the_fence_of_the_store)
{
	struct lk__op *waiter;

	start(10000);
	waiter = old_waiter();
	ck_assert(b->inbox[0].claim);
	b->inbox[0].fence -= 7;
	ck_assert(old_virt_hear(b));
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	ck_assert_uint_eq(old_virt_fence(pb, 2), v.model.locks[0].fence);
	release(b, pb);
	end();
}

/* The answer to a renewal, sent before another process began to wait, reports no waiters. */
TEST(wanted_is_not_forgotten_for_an_answer_of_before)
{
	struct lk__op *other, *next;
	struct old_virt_call renewal;

	start(3000);
	hold(a, pa);
	next = old_virt_acquire(a, pa, 4);
	old_virt_settle(&v);
	old_virt_extend(a, pa, 2, 3000);
	ck_assert(old_virt_take(a, &renewal));
	old_virt_execute(a, &renewal);
	other = old_virt_acquire(b, pb, 2);
	step(b, LK__ASK);
	ck_assert(old_virt_hear(a));
	ck_assert(pa->ticket->is_wanted);
	old_virt_answer(a, &renewal);
	ck_assert(pa->ticket->is_wanted);
	old_virt_pass(&v, 1);
	old_virt_release(a, pa, 2);
	assert_done(next, LK_OK);
	old_virt_release(a, pa, 4);
	old_virt_settle(&v);
	assert_done(other, LK_OK);
	release(b, pb);
	end();
}
