/* SPDX-License-Identifier: MIT
 * The counters of a client's locks, in virtual time: each scenario with its exact numbers.  No
 * thread, no socket, no clock. */
#include "fixture.h"

#define COUNT(client, field, number) ck_assert_int_eq((client)->core.counters.field, (number))

static void lost(struct old_virt_client *client, lk_lost_reason reason)
{
	COUNT(client, lost[0], 1);
	COUNT(client, lost[reason], 1);
}

/* Each call that acquires is counted in exactly one of these. */
static void all_are(struct old_virt_client *client, int64_t calls)
{
	const struct lk_counters *counters = &client->core.counters;

	ck_assert_int_eq(counters->acquired + counters->reentered + counters->busy +
	                         counters->timed_out + counters->canceled + counters->failed,
	                 calls);
}

/* ---- Acquiring ---------------------------------------------------------------------------- */

TEST(uncontended_pair_is_counted)
{
	struct old_virt_call ask;

	start(3000);
	old_virt_acquire(a, pa, 2);
	ck_assert(old_virt_take(a, &ask));
	old_virt_execute(a, &ask);
	later(20);
	old_virt_answer(a, &ask);
	later(30);
	release(a, pa);
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

TEST(wait_ended_by_a_message_is_counted)
{
	struct lk__op *first, *second;

	start(3000);
	hold(a, pa);
	first = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	later(40);
	release(a, pa);
	assert_done(first, LK_OK);
	second = old_virt_acquire(a, pa, 2);
	old_virt_settle(&v);
	later(10);
	release(b, pb);
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
	release(a, pa);
	end();
}

TEST(longest_of_two_waits_stays)
{
	start(3000);
	for (int i = 0; i < 2; i++) {
		hold(a, pa);
		old_virt_acquire(b, pb, 2);
		old_virt_settle(&v);
		later(i ? 10 : 70);
		release(a, pa);
		later(5);
		release(b, pb);
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
	hold(a, pa);
	old_virt_acquire(b, pb, 2);
	next = old_virt_acquire(b, pb, 4);
	old_virt_settle(&v);
	release(a, pa);
	later(25);
	old_virt_release(b, pb, 2);
	assert_done(next, LK_OK);
	COUNT(b, acquired, 2);
	COUNT(b, by_message, 1);
	COUNT(b, by_thread, 1);
	COUNT(b, waited, 2);
	COUNT(b, waited_us, 25000);
	COUNT(b, holds, 1);
	COUNT(b, held_us, 25000);
	later(15);
	old_virt_release(b, pb, 4);
	old_virt_settle(&v);
	COUNT(b, holds, 2);
	COUNT(b, held_us, 40000);
	COUNT(b, held_max_us, 25000);
	end();
}

/* The client receives no message: it asks when the dead holder's lease has ended. */
/* A thread reads the clock before it gets the mutex: a release may be older than the wait that it
 * ends, and a release older than the hand-over that it ends. */
TEST(no_time_is_negative)
{
	int64_t early_ns;
	struct lk__op *second;

	start(3000);
	hold(a, pa);
	later(20);
	early_ns = v.now_ns;
	later(1);
	second = old_virt_acquire(a, pa, 3);
	v.now_ns = early_ns;
	release(a, pa);
	assert_done(second, LK_OK);
	COUNT(a, by_thread, 1);
	COUNT(a, acquired_us, 0);
	COUNT(a, waited_us, 0);
	v.now_ns = early_ns - OLD_VIRT_MS;
	old_virt_release(a, pa, 3);
	v.now_ns = early_ns;
	old_virt_settle(&v);
	COUNT(a, holds, 2);
	COUNT(a, held_us, 20000);
	end();
}

TEST(wait_for_a_dead_holder_is_no_message)
{
	struct lk__op *waiter;

	start(3000);
	hold(a, pa);
	old_virt_link_down(a, LK_ECONN);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_pass(&v, 4000);
	assert_done(waiter, LK_OK);
	COUNT(b, acquired, 1);
	COUNT(b, by_message, 0);
	COUNT(b, waited, 1);
	ck_assert_int_ge(b->core.counters.waited_us, 3000000);
	ck_assert_int_le(b->core.counters.waited_us, 3200000);
	lost(a, LK_LOST_EXPIRED);
	old_virt_link_up(a);
	old_virt_settle(&v);
	COUNT(a, connected, 2);
	release_lost(a, pa);
	release(b, pb);
	end();
}

TEST(reentry_is_no_acquisition)
{
	start(3000);
	hold(a, pa);
	hold(a, pa);
	later(10);
	release(a, pa);
	later(10);
	release(a, pa);
	COUNT(a, acquired, 1);
	COUNT(a, reentered, 1);
	COUNT(a, holds, 1);
	COUNT(a, held_us, 20000);
	COUNT(a, requests, 2);
	all_are(a, 2);
	end();
}

TEST(each_end_of_an_acquire_has_its_count)
{
	struct lk__op *waiter;
	struct old_virt_call call;

	start(3000);
	hold(a, pa);
	old_virt_try(a, pa, 4); /* held by a thread of this process */
	old_virt_try(b, pb, 2);
	old_virt_settle(&v);
	COUNT(a, busy, 1);
	COUNT(b, busy, 1);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	old_virt_give_up(b, waiter, LK_ETIMEDOUT);
	COUNT(b, timed_out, 0); /* the store has not confirmed it */
	old_virt_settle(&v);
	COUNT(b, timed_out, 1);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	old_virt_give_up(b, waiter, LK_ECANCELED);
	old_virt_settle(&v);
	COUNT(b, canceled, 1);
	old_virt_acquire(b, pb, 2);
	ck_assert(old_virt_take(b, &call));
	old_virt_refuse(b, &call, LK_ESERVER, false);
	old_virt_settle(&v);
	COUNT(b, failed, 1);
	old_virt_acquire(b, pb, 2);
	lk__core_close(&b->core, old_virt_now(b));
	old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	COUNT(b, canceled, 3);
	COUNT(b, acquired, 0);
	COUNT(b, waited, 0);
	all_are(a, 2);
	all_are(b, 6);
	release(a, pa);
	end();
}

TEST(wait_without_confirmation_has_failed)
{
	struct lk__op *waiter;
	struct old_virt_call call;

	start(3000);
	waiter = old_virt_acquire(a, pa, 2);
	ck_assert(old_virt_take(a, &call));
	old_virt_give_up(a, waiter, LK_ETIMEDOUT);
	old_virt_abandon(a, waiter);
	assert_done(waiter, LK_EUNKNOWN);
	COUNT(a, failed, 1);
	COUNT(a, timed_out, 0);
	old_virt_execute(a, &call);
	old_virt_answer(a, &call);
	end();
}

/* ---- Losses ------------------------------------------------------------------------------- */

TEST(hold_that_expires_is_counted_when_it_is_seen)
{
	start(1000);
	hold(a, pa);
	later(2000);
	release_lost(a, pa);
	lost(a, LK_LOST_EXPIRED);
	COUNT(a, holds, 1);
	COUNT(a, held_us, 2000000);
	end();
}

TEST(renewal_that_finds_nothing_is_a_loss)
{
	start(3000);
	hold(a, pa);
	model_flush(&v.model);
	old_virt_pass(&v, 2000);
	lost(a, LK_LOST_TAKEN);
	COUNT(a, renewed, 0);
	COUNT(a, holds, 1);
	release_lost(a, pa);
	end();
}

/* The loss was not reported before: the release detects it. */
TEST(release_that_finds_nothing_is_a_loss)
{
	struct lk__op *waiter;

	start(3000);
	hold(a, pa);
	model_flush(&v.model);
	waiter = old_virt_release(a, pa, 2);
	old_virt_settle(&v);
	assert_done(waiter, LK_ELOST);
	lost(a, LK_LOST_TAKEN);
	COUNT(a, holds, 1);
	end();
}

TEST(loss_is_counted_once)
{
	start_with(3000, false);
	hold(a, pa);
	lk__core_thread_ended(&a->core, old_virt_now(a), 2);
	old_virt_settle(&v);
	lost(a, LK_LOST_THREAD);
	COUNT(a, holds, 1);
	end();
}

/* ---- Renewals ----------------------------------------------------------------------------- */

/* Granted at 1,000 ms and valid until 3,968 ms, so due at 1,968 ms, which the grid makes 1,875
 * ms. */
TEST(renewal_in_time_is_not_late)
{
	start(3000);
	hold(a, pa);
	ck_assert_int_eq(v.now_ns, 1000 * OLD_VIRT_MS);
	old_virt_pass(&v, 900);
	COUNT(a, renewed, 1);
	COUNT(a, late_us, 0);
	COUNT(a, late_max_us, 0);
	COUNT(a, lease_max_permille, 303);
	COUNT(a, requests, 2);
	release(a, pa);
	end();
}

TEST(late_renewal_is_counted_by_how_late_it_was_sent)
{
	struct old_virt_call renewal;

	start(3000);
	hold(a, pa);
	later(1375);
	tick(a);
	ck_assert(old_virt_take(a, &renewal));
	old_virt_execute(a, &renewal);
	later(100);
	COUNT(a, renewed, 0);
	old_virt_answer(a, &renewal);
	COUNT(a, renewed, 1);
	COUNT(a, late_us, 500000);
	COUNT(a, late_max_us, 500000);
	COUNT(a, lease_max_permille, 503);
	/* The next one is in time. */
	old_virt_pass(&v, 1100);
	COUNT(a, renewed, 2);
	COUNT(a, late_us, 500000);
	COUNT(a, lease_max_permille, 503);
	release(a, pa);
	end();
}

/* The renewal counts from the first ask, so it was due before there was a hold. */
TEST(renewal_after_a_grant_by_message_is_not_late)
{
	start(3000);
	hold(a, pa);
	old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	later(1200);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	release(a, pa);
	COUNT(b, by_message, 1);
	COUNT(b, renewed, 1);
	COUNT(b, late_us, 0);
	COUNT(b, lease_max_permille, 411);
	release(b, pb);
	end();
}

TEST(claim_is_no_renewal)
{
	struct lk__op *waiter;

	start(3000);
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_pass(&v, 2800);
	release(a, pa);
	assert_done(waiter, LK_OK);
	COUNT(b, by_message, 1);
	COUNT(b, renewed, 0);
	COUNT(b, waited_us, 2800000);
	release(b, pb);
	end();
}

TEST(extended_fixed_hold_is_no_renewal)
{
	struct lk__op *waiter;

	start_fixed(3000);
	hold(a, pa);
	later(2500);
	waiter = old_virt_extend(a, pa, 2, 3000);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	COUNT(a, renewed, 0);
	COUNT(a, lease_max_permille, 0);
	release(a, pa);
	end();
}
