/* SPDX-License-Identifier: MIT
 * The counters of a client's holds, in virtual time: each scenario with its exact numbers.  No
 * thread, no socket, no clock. */
#include "virtual_fixture.h"

#define COUNT(client, field, number) ck_assert_int_eq((client)->core.counters.field, (number))

static void lost(struct virt_client *client, lk_lost_reason reason)
{
	COUNT(client, lost[0], 1);
	COUNT(client, lost[reason], 1);
}

/* Each call that acquires is counted in exactly one of these. */
static void all_are(struct virt_client *client, int64_t calls)
{
	const struct lk_counters *counters = &client->core.counters;

	ck_assert_int_eq(counters->acquired + counters->reentered + counters->busy +
	                         counters->timed_out + counters->canceled + counters->failed,
	                 calls);
}

/* ---- Acquiring ---------------------------------------------------------------------------- */

TEST_NOUNS(uncontended_pair_is_counted)
{
	struct virt_call ask;

	start(3000);
	acquire(a);
	ask = reach(a, LK__ASK);
	later(20);
	virt_answer(a, &ask);
	later(30);
	release(a);
	COUNT(a, acquired, 1);
	COUNT(a, acquired_us, 20000);
	COUNT(a, by_thread, 0);
	COUNT(a, by_message, 0);
	COUNT(a, waited, 0);
	COUNT(a, waited_us, 0);
	COUNT(a, waited_max_us, 0);
	COUNT(a, holds, 1);
	COUNT(a, held_us, 30000);
	COUNT(a, held_max_us, 30000);
	COUNT(a, lost[0], 0);
	COUNT(a, renewed, 0);
	COUNT(a, requests, 2);
	COUNT(a, connected, 1);
	all_are(a, 1);
	end();
}

TEST_NOUNS(wait_ended_by_a_message_is_counted)
{
	struct lk__op *first, *second;

	start(3000);
	hold(a);
	first = acquire(b);
	virt_settle(&w);
	later(40);
	release(a);
	assert_done(first, LK_OK);
	second = acquire(a);
	virt_settle(&w);
	later(10);
	release(b);
	assert_done(second, LK_OK);
	COUNT(a, acquired, 2);
	COUNT(a, acquired_us, 10000);
	COUNT(a, waited, 1);
	COUNT(b, acquired, 1);
	COUNT(b, by_message, 1);
	COUNT(b, by_thread, 0);
	COUNT(b, waited, 1);
	COUNT(b, waited_us, 40000);
	COUNT(b, waited_max_us, 40000);
	release(a);
	end();
}

TEST_NOUNS(longest_of_two_waits_stays)
{
	start(3000);
	for (int i = 0; i < 2; i++) {
		hold(a);
		acquire(b);
		virt_settle(&w);
		later(i ? 10 : 70);
		release(a);
		later(5);
		release(b);
	}
	COUNT(b, waited, 2);
	COUNT(b, waited_us, 80000);
	COUNT(b, waited_max_us, 70000);
	COUNT(b, held_us, 10000);
	end();
}

/* The message brought the lock to the process; hand-overs between its threads are no messages. */
TEST(hand_over_between_threads_is_counted)
{
	struct lk__op *next;

	start(3000);
	hold(a);
	acquire(b);
	next = acquire_of(b, 4);
	virt_settle(&w);
	release(a);
	later(25);
	begin_release(b);
	assert_done(next, LK_OK);
	COUNT(b, acquired, 2);
	COUNT(b, by_message, 1);
	COUNT(b, by_thread, 1);
	COUNT(b, waited, 2);
	COUNT(b, waited_us, 25000);
	COUNT(b, holds, 1);
	COUNT(b, held_us, 25000);
	later(15);
	begin_release(b);
	virt_settle(&w);
	COUNT(b, holds, 2);
	COUNT(b, held_us, 40000);
	COUNT(b, held_max_us, 25000);
	end();
}

/* A thread reads the clock before it gets the mutex: a release may be older than the wait that it
 * ends, and a release older than the hand-over that it ends. */
TEST(no_time_is_negative)
{
	int64_t early_ns;
	struct lk__op *second;

	start(3000);
	hold(a);
	later(20);
	early_ns = w.now_ns;
	later(1);
	second = acquire_of(a, 3);
	w.now_ns = early_ns;
	release(a);
	assert_done(second, LK_OK);
	COUNT(a, by_thread, 1);
	COUNT(a, acquired_us, 0);
	COUNT(a, waited_us, 0);
	w.now_ns = early_ns - VIRT_MS;
	begin_release_of(a, 3);
	w.now_ns = early_ns;
	virt_settle(&w);
	COUNT(a, holds, 2);
	COUNT(a, held_us, 20000);
	end();
}

/* The client receives no message: it asks when the dead holder's lease has ended. */
TEST_NOUNS(wait_for_a_dead_holder_is_no_message)
{
	struct lk__op *waiter;

	start(3000);
	hold(a);
	virt_link_down(a, LK_ECONN);
	waiter = acquire(b);
	virt_pass(&w, 4000);
	assert_done(waiter, LK_OK);
	COUNT(b, acquired, 1);
	COUNT(b, by_message, 0);
	COUNT(b, waited, 1);
	ck_assert_int_ge(b->core.counters.waited_us, 3000000);
	ck_assert_int_le(b->core.counters.waited_us, 3200000);
	lost(a, LK_LOST_EXPIRED);
	virt_link_up(a);
	virt_settle(&w);
	COUNT(a, connected, 2);
	release_lost(a);
	release(b);
	end();
}

TEST(reentry_is_no_acquisition)
{
	start(3000);
	hold(a);
	hold(a);
	later(10);
	release(a);
	later(10);
	release(a);
	COUNT(a, acquired, 1);
	COUNT(a, reentered, 1);
	COUNT(a, holds, 1);
	COUNT(a, held_us, 20000);
	COUNT(a, requests, 2);
	all_are(a, 2);
	end();
}

TEST_NOUNS(each_end_of_an_acquire_has_its_count)
{
	struct lk__op *waiter;

	start(3000);
	hold(a);
	try_of(a, 4); /* held by a thread of this process */
	try(b);
	virt_settle(&w);
	COUNT(a, busy, 1);
	COUNT(b, busy, 1);
	waiter = acquire(b);
	virt_settle(&w);
	virt_give_up(b, waiter, LK_ETIMEDOUT);
	COUNT(b, timed_out, 0); /* the store has not confirmed it */
	virt_settle(&w);
	COUNT(b, timed_out, 1);
	waiter = acquire(b);
	virt_settle(&w);
	virt_give_up(b, waiter, LK_ECANCELED);
	virt_settle(&w);
	COUNT(b, canceled, 1);
	acquire(b);
	refuse(b, LK__ASK, "ERR refused");
	virt_settle(&w);
	COUNT(b, failed, 1);
	acquire(b);
	lk__core_close(&b->core, w.now_ns);
	acquire(b);
	virt_settle(&w);
	COUNT(b, canceled, 3);
	COUNT(b, acquired, 0);
	COUNT(b, waited, 0);
	all_are(a, 2);
	all_are(b, 6);
	release(a);
	end();
}

TEST_NOUNS(wait_without_confirmation_has_failed)
{
	struct lk__op *waiter;
	struct virt_call call;

	start(3000);
	waiter = acquire(a);
	ck_assert(virt_take(a, &call));
	virt_give_up(a, waiter, LK_ETIMEDOUT);
	virt_abandon(a, waiter);
	assert_done(waiter, LK_EUNKNOWN);
	COUNT(a, failed, 1);
	COUNT(a, timed_out, 0);
	virt_execute(a, &call);
	virt_answer(a, &call);
	end();
}

/* ---- Losses ------------------------------------------------------------------------------- */

TEST_NOUNS(hold_that_expires_is_counted_when_it_is_seen)
{
	start(1000);
	hold(a);
	later(2000);
	release_lost(a);
	lost(a, LK_LOST_EXPIRED);
	COUNT(a, holds, 1);
	COUNT(a, held_us, 2000000);
	end();
}

TEST_NOUNS(renewal_that_finds_nothing_is_a_loss)
{
	start(3000);
	hold(a);
	flush();
	virt_pass(&w, 2000);
	lost(a, LK_LOST_TAKEN);
	COUNT(a, renewed, 0);
	COUNT(a, holds, 1);
	release_lost(a);
	end();
}

/* The loss was not reported before: the release detects it. */
TEST_NOUNS(release_that_finds_nothing_is_a_loss)
{
	struct lk__op *waiter;

	start(3000);
	hold(a);
	flush();
	waiter = begin_release(a);
	virt_settle(&w);
	assert_done(waiter, LK_ELOST);
	lost(a, LK_LOST_TAKEN);
	COUNT(a, holds, 1);
	end();
}

TEST(loss_is_counted_once)
{
	start(3000);
	hold(a);
	lk__core_thread_ended(&a->core, w.now_ns, OWNER);
	virt_settle(&w);
	lost(a, LK_LOST_THREAD);
	COUNT(a, holds, 1);
	end();
}

/* ---- Renewals ----------------------------------------------------------------------------- */

/* Granted at 1,000 ms and valid until 3,968 ms, so due at 1,968 ms, which the grid makes 1,875
 * ms. */
TEST_NOUNS(renewal_in_time_is_not_late)
{
	start(3000);
	hold(a);
	ck_assert_int_eq(w.now_ns, 1000 * VIRT_MS);
	virt_pass(&w, 900);
	COUNT(a, renewed, 1);
	COUNT(a, late_us, 0);
	COUNT(a, late_max_us, 0);
	COUNT(a, lease_max_permille, 303);
	COUNT(a, requests, 2);
	release(a);
	end();
}

TEST_NOUNS(late_renewal_is_counted_by_how_late_it_was_sent)
{
	struct virt_call renewal;

	start(3000);
	hold(a);
	later(1375);
	tick(a);
	renewal = reach(a, LK__RENEW);
	later(100);
	COUNT(a, renewed, 0);
	virt_answer(a, &renewal);
	COUNT(a, renewed, 1);
	COUNT(a, late_us, 500000);
	COUNT(a, late_max_us, 500000);
	COUNT(a, lease_max_permille, 503);
	/* The next one is in time. */
	virt_pass(&w, 1100);
	COUNT(a, renewed, 2);
	COUNT(a, late_us, 500000);
	COUNT(a, lease_max_permille, 503);
	release(a);
	end();
}

/* The renewal counts from the first ask, so it was due before there was a hold. */
TEST_NOUNS(renewal_after_a_grant_by_message_is_not_late)
{
	start(3000);
	hold(a);
	acquire(b);
	virt_settle(&w);
	later(1200);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	release(a);
	COUNT(b, by_message, 1);
	COUNT(b, renewed, 1);
	COUNT(b, late_us, 0);
	COUNT(b, lease_max_permille, 411);
	release(b);
	end();
}

TEST_NOUNS(claim_is_no_renewal)
{
	struct lk__op *waiter;

	start(3000);
	hold(a);
	waiter = acquire(b);
	virt_pass(&w, 2800);
	release(a);
	assert_done(waiter, LK_OK);
	COUNT(b, by_message, 1);
	COUNT(b, renewed, 0);
	COUNT(b, waited_us, 2800000);
	release(b);
	end();
}

TEST_NOUNS(extended_fixed_hold_is_no_renewal)
{
	struct lk__op *waiter;

	start_fixed(3000);
	hold(a);
	later(2500);
	waiter = extend(a, 3000);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	COUNT(a, renewed, 0);
	COUNT(a, lease_max_permille, 0);
	release(a);
	end();
}

/* ---- Permits ------------------------------------------------------------------------------ */

TEST(permits_of_one_call_are_one_acquisition)
{
	struct lk__op *waiter;
	uint64_t held;

	start_permits(3, 3000);
	held = hold_some(a, 3);
	waiter = wait_for_some(b, 2);
	later(30);
	release_of(a, held);
	assert_done(waiter, LK_OK);
	COUNT(a, acquired, 1);
	COUNT(a, waited, 0);
	COUNT(a, holds, 1);
	COUNT(a, held_us, 31000);
	COUNT(b, acquired, 1);
	COUNT(b, by_message, 1);
	COUNT(b, waited, 1);
	COUNT(b, waited_us, 30000);
	release_of(b, waiter->fence);
	end();
}

/* Permits that are released in parts count as one hold. */
TEST(hold_ends_with_its_last_permit)
{
	struct lk__op *waiter;
	uint64_t held;

	start_permits(3, 3000);
	held = hold_some(a, 3);
	later(10);
	waiter = begin_release_some(a, held, 2);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	COUNT(a, holds, 0);
	later(10);
	release_of(a, held);
	COUNT(a, holds, 1);
	COUNT(a, held_us, 20000);
	COUNT(a, requests, 3);
	end();
}

TEST(forgotten_permits_make_no_hold)
{
	struct lk__op *waiter;

	start_fixed_permits(1, 1000);
	waiter = forget_some(a, 1);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	waiter = forget_some(a, 1);
	virt_pass(&w, 1200);
	assert_done(waiter, LK_OK);
	COUNT(a, acquired, 2);
	COUNT(a, waited, 1);
	COUNT(a, by_message, 0);
	virt_pass(&w, 1200);
	COUNT(a, lost[0], 0);
	COUNT(a, holds, 0);
	end();
}

/* A wait counts as caused by the grace from the first answer that names it. */
TEST_NOUNS(wait_in_a_grace_is_counted)
{
	struct lk__op *brief, *waiter;

	start(3000);
	a->session.grace_ms = a->space.grace_ms = 1000;
	virt_link_down(a, LK_ECONN);
	flush();
	virt_link_up(a);
	brief = acquire(a);
	later(100);
	step(a, LK__ASK);
	later(300);
	virt_give_up(a, brief, LK_ETIMEDOUT);
	virt_settle(&w);
	assert_done(brief, LK_ETIMEDOUT);
	COUNT(a, grace_us, 300000);
	waiter = acquire(a);
	virt_settle(&w);
	assert_waits(waiter);
	ms_until_done(waiter);
	COUNT(a, grace_us, 300000 + 600000);
	ck_assert_int_gt(a->core.counters.waited_us, 600000);
	COUNT(a, reclaimed, 0);
	release(a);
	end();
}

/* Waiting for more permits than there are ends with an error that has no counter of its own. */
TEST(too_large_a_wait_has_failed)
{
	struct lk__op *waiter;

	start_permits(1, 3000);
	waiter = acquire_some(a, 2);
	virt_settle(&w);
	assert_done(waiter, LK_ELIMIT);
	COUNT(a, failed, 1);
	COUNT(a, acquired, 0);
	end();
}

TEST(broken_permits_are_counted_once)
{
	struct lk__op *part;
	struct virt_call call;
	uint64_t held;

	start_permits(3, 3000);
	held = hold_some(a, 3);
	/* A partial release is in flight when the store loses the hold. */
	part = begin_release_some(a, held, 1);
	call = take(a, LK__SHRINK);
	look();
	query_break(w.store, noun->kind, "s", view.holds[0].text);
	virt_execute(a, &call);
	virt_answer(a, &call);
	virt_settle(&w);
	ck_assert(part->done);
	COUNT(a, lost[0], 1);
	COUNT(a, holds, 1);
	release_lost_of(a, held);
	end();
}

/* The leave had its limit of dead waiters; the empty leave behind it finds no holder. */
TEST(serving_the_queue_after_a_release_is_no_loss)
{
	struct lk__op *op;
	struct virt_call call;

	start(3000);
	hold(a);
	op = begin_release(a);
	call = take(a, LK__LEAVE);
	virt_execute(a, &call);
	virt_reply(a, &call, "*4\r\n$4\r\nleft\r\n:1\r\n:1\r\n:0\r\n");
	assert_done(op, LK_OK);
	call = take(a, LK__HAND);
	virt_reply(a, &call, "*4\r\n$4\r\nleft\r\n:0\r\n:0\r\n:1\r\n");
	COUNT(a, lost[0], 0);
	end();
}
