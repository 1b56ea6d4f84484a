/* SPDX-License-Identifier: MIT
 * Messages in virtual time: grants that come early, late, twice or unasked; claims; "wanted" and
 * its limit on hand-overs between threads; "again"; "broken".  No thread, no socket, no clock. */
#include "fixture.h"

#include <string.h>

/* a holds, b waits: then a leaves, and the grant to b is in flight. */
static struct lk__op *grant_under_way(void)
{
	struct lk__op *waiter;

	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	old_virt_release(a, pa, 2);
	step(a, LK__LEAVE);
	ck_assert_int_eq(b->inbox_count, 1);
	ck_assert_int_eq(b->inbox[0].kind, LK__GRANT);
	return waiter;
}

static void hear_again(struct old_virt_client *client, struct lk__message message)
{
	lk__core_message(&client->core, v.now_ns, &message);
}

/* ---- Grants ------------------------------------------------------------------------------- */

TEST(grant_may_overtake_the_answer_to_its_ask)
{
	struct lk__op *waiter;
	struct old_virt_call ask;

	start(10000);
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	ck_assert(old_virt_take(b, &ask));
	old_virt_execute(b, &ask);
	old_virt_release(a, pa, 2);
	step(a, LK__LEAVE);
	ck_assert(old_virt_hear(b));
	assert_done(waiter, LK_OK);
	old_virt_answer(b, &ask); /* the old "queued" */
	ck_assert_int_eq(old_virt_state(b, pb, 2), LK_STATE_HELD);
	old_virt_pass(&v, 20000);
	ck_assert_int_eq(old_virt_state(b, pb, 2), LK_STATE_HELD);
	release(b, pb);
	end();
}

TEST(grant_by_message_is_valid_from_the_first_ask)
{
	int64_t asked_ns;

	start(10000);
	hold(a, pa);
	asked_ns = v.now_ns;
	old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	later(1000);
	old_virt_release(a, pa, 2);
	step(a, LK__LEAVE);
	ck_assert(old_virt_hear(b));
	ck_assert_int_eq(lk__hold_left_ns(lk__core_hold(pb->name, 2), v.now_ns),
	                 asked_ns + 10000 * OLD_VIRT_MS - lk__margin_ns(10000) - v.now_ns);
	release(b, pb);
	end();
}

TEST(second_grant_of_a_hold_changes_nothing)
{
	struct lk__message grant;
	int64_t left_ns;
	uint64_t fence;

	start(10000);
	grant_under_way();
	grant = b->inbox[0];
	ck_assert(old_virt_hear(b));
	fence = old_virt_fence(pb, 2);
	left_ns = lk__hold_left_ns(lk__core_hold(pb->name, 2), v.now_ns);
	hear_again(b, grant);
	grant.fence++;
	hear_again(b, grant);
	ck_assert_uint_eq(old_virt_fence(pb, 2), fence);
	ck_assert_int_eq(lk__hold_left_ns(lk__core_hold(pb->name, 2), v.now_ns), left_ns);
	release(b, pb);
	end();
}

TEST(stale_grant_makes_no_hold)
{
	struct lk__message grant;
	struct lk__op *waiter;

	start(10000);
	grant_under_way();
	grant = b->inbox[0];
	old_virt_settle(&v);
	release(b, pb);
	hear_again(b, grant);
	ck_assert_int_eq(old_virt_state(b, pb, 2), LK_STATE_NONE);
	/* Nor for a later wait on the same lock. */
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	hear_again(b, grant);
	ck_assert(!waiter->done);
	old_virt_give_up(b, waiter, LK_ETIMEDOUT);
	release(a, pa);
	end();
}

TEST(forged_grant_makes_no_hold)
{
	struct lk__message grant = {
		.kind = LK__GRANT, .lease_ms = 10000, .life_ms = 10000, .fence = 7};
	struct lk__op *waiter;

	start(10000);
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	/* The right nonce, before any ask was sent. */
	memcpy(grant.nonce, pb->ticket->nonce, LK__NONCE_SIZE);
	hear_again(b, grant);
	ck_assert(!waiter->done);
	old_virt_settle(&v);
	/* Another nonce, another lease, another kind. */
	grant.nonce[0] ^= 1;
	hear_again(b, grant);
	grant.nonce[0] ^= 1;
	grant.lease_ms = 20000;
	hear_again(b, grant);
	grant.lease_ms = 10000;
	grant.fixed = true;
	hear_again(b, grant);
	ck_assert(!waiter->done);
	old_virt_give_up(b, waiter, LK_ETIMEDOUT);
	release(a, pa);
	end();
}

TEST(grant_and_granted_answer_are_one_hold)
{
	struct lk__op *waiter;
	struct old_virt_call ask;
	uint64_t fence;

	start(10000);
	waiter = grant_under_way();
	fence = b->inbox[0].fence;
	/* A repeated ask overtakes the message. */
	pb->ticket->next_ns = v.now_ns;
	lk__ticket_pursue(&b->core, v.now_ns, pb->ticket);
	ck_assert(old_virt_take(b, &ask));
	old_virt_execute(b, &ask);
	ck_assert_int_eq(ask.answer.kind, LK__GRANTED);
	old_virt_answer(b, &ask);
	assert_done(waiter, LK_OK);
	ck_assert(old_virt_hear(b));
	ck_assert_uint_eq(old_virt_fence(pb, 2), fence);
	ck_assert_int_eq(old_virt_state(b, pb, 2), LK_STATE_HELD);
	release(b, pb);
	end();
}

TEST(granted_answer_revives_no_hold_that_lapsed)
{
	struct old_virt_call ask;

	start(1000);
	grant_under_way();
	later(500);
	pb->ticket->next_ns = v.now_ns;
	lk__ticket_pursue(&b->core, v.now_ns, pb->ticket);
	ck_assert(old_virt_take(b, &ask));
	ck_assert(old_virt_hear(b));
	old_virt_execute(b, &ask); /* "mine already": the store restarts the lease */
	later(500);
	old_virt_answer(b, &ask);
	ck_assert_int_eq(old_virt_state(b, pb, 2), LK_STATE_LOST);
	release_lost(b, pb);
	end();
}

TEST(grant_that_nobody_waits_for_goes_on_to_the_next)
{
	struct lk__op *waiter, *next;

	start(10000);
	waiter = grant_under_way();
	next = old_virt_acquire(c, pc, 2);
	old_virt_give_up(b, waiter, LK_ETIMEDOUT);
	old_virt_settle(&v);
	assert_done(waiter, LK_ETIMEDOUT);
	assert_done(next, LK_OK);
	release(c, pc);
	end();
}

TEST(hand_that_serves_oneself_leaves_a_hold_that_is_renewed)
{
	struct lk__message grant = {.kind = LK__GRANT, .lease_ms = 1000, .life_ms = 1000};
	struct old_virt_call call;
	struct lk__op *waiter;

	start(1000);
	hold(c, pc);
	waiter = old_virt_acquire(b, pb, 2);
	ck_assert(old_virt_take(b, &call));
	call.answer =
		(struct lk__answer){.kind = LK__QUEUED, .arrival = 1, .rank = 1, .free = true};
	old_virt_answer(b, &call);
	ck_assert(old_virt_take(b, &call));
	ck_assert_int_eq(call.bytes.kind, LK__HAND);
	/* The grant comes before the answer to the hand request. */
	model_flush(&v.model);
	grant.fence = (uint64_t)v.model.now_us;
	memcpy(grant.nonce, pb->ticket->nonce, LK__NONCE_SIZE);
	hear_again(b, grant);
	assert_done(waiter, LK_OK);
	call.answer = (struct lk__answer){.kind = LK__LEFT};
	old_virt_answer(b, &call);
	ck_assert_int_lt(lk__core_due(&b->core), v.now_ns + 400 * OLD_VIRT_MS);
	old_virt_set_time(&v, lk__core_due(&b->core));
	tick(b);
	ck_assert(old_virt_take(b, &call));
	ck_assert_int_eq(call.bytes.kind, LK__RENEW);
	call.answer = (struct lk__answer){.kind = LK__GONE};
	old_virt_answer(b, &call);
	release_lost(b, pb);
	old_virt_pass(&v, 1000);
	release_lost(c, pc);
	end();
}

/* ---- Claims ------------------------------------------------------------------------------- */

TEST(old_waiter_claims_a_short_grant)
{
	struct lk__op *waiter;
	uint64_t fence;

	start(10000);
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_pass(&v, 4000); /* past the claim window */
	old_virt_release(a, pa, 2);
	step(a, LK__LEAVE);
	fence = b->inbox[0].fence;
	ck_assert(b->inbox[0].claim);
	ck_assert_int_eq(b->inbox[0].life_ms, 3000);
	ck_assert(old_virt_hear(b));
	ck_assert(!waiter->done); /* not valid yet */
	step(b, LK__RENEW);
	assert_done(waiter, LK_OK);
	ck_assert_uint_eq(old_virt_fence(pb, 2), fence);
	ck_assert_int_eq(lk__hold_left_ns(lk__core_hold(pb->name, 2), v.now_ns),
	                 10000 * OLD_VIRT_MS - lk__margin_ns(10000));
	release(b, pb);
	end();
}

TEST(claim_of_a_grant_that_is_gone_asks_again)
{
	struct lk__op *waiter, *next;

	start(10000);
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	later(4000);
	next = old_virt_acquire(c, pc, 2);
	old_virt_settle(&v);
	old_virt_release(a, pa, 2);
	step(a, LK__LEAVE);
	ck_assert_int_eq(c->inbox[0].kind, LK__REASK);
	/* b is stopped for longer than the short grant lasts; c checks on the lock. */
	ck_assert(old_virt_hear(c));
	later(3100);
	tick(c);
	step(c, LK__ASK);
	assert_done(next, LK_OK);
	ck_assert(old_virt_hear(b));
	step(b, LK__RENEW);
	ck_assert(!waiter->done);
	step(b, LK__ASK);
	ck_assert_int_eq(v.model.locks[0].queued, 1);
	release(c, pc);
	assert_done(waiter, LK_OK);
	release(b, pb);
	end();
}

TEST(fixed_lease_is_claimed_to_last_its_whole_length)
{
	struct lk__op *waiter;

	start_fixed(2000);
	hold(a, pa);
	waiter = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	later(900);
	old_virt_release(a, pa, 2);
	step(a, LK__LEAVE);
	ck_assert(!b->inbox[0].claim);
	ck_assert(old_virt_hear(b));
	ck_assert(!waiter->done);
	step(b, LK__RENEW);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(lk__hold_left_ns(lk__core_hold(pb->name, 2), v.now_ns),
	                 2000 * OLD_VIRT_MS - lk__margin_ns(2000));
	release(b, pb);
	end();
}

TEST(claim_answered_too_late_is_none)
{
	struct lk__op *waiter;
	struct old_virt_call claim;

	start_fixed(1000);
	waiter = grant_under_way();
	ck_assert(old_virt_hear(b));
	ck_assert(old_virt_take(b, &claim));
	old_virt_execute(b, &claim);
	later(990);
	old_virt_answer(b, &claim);
	ck_assert(!waiter->done);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK); /* anew */
	release(b, pb);
	end();
}

/* ---- Again -------------------------------------------------------------------------------- */

TEST(again_may_overtake_the_answer_to_its_ask)
{
	struct lk__message again = {.kind = LK__REASK, .in_ms = 300};
	struct old_virt_call ask;

	start(10000);
	hold(a, pa);
	old_virt_acquire(b, pb, 2);
	ck_assert(old_virt_take(b, &ask));
	old_virt_execute(b, &ask);
	memcpy(again.nonce, ask.bytes.ticket.nonce, LK__NONCE_SIZE);
	hear_again(b, again);
	old_virt_answer(b, &ask);
	ck_assert_int_eq(lk__core_due(&b->core), v.now_ns + 300 * OLD_VIRT_MS);
	lk__core_close(&b->core, v.now_ns);
	release(a, pa);
	end();
}

/* ---- Wanted, and the limit of hand-overs between threads ---------------------------------- */

/* With forty threads behind owner 2: the number of hand-overs that need no request. */
static int count_hand_overs(void)
{
	struct lk__op *waiters[40];
	uint64_t fence = old_virt_fence(pa, 2);
	int count = 0;

	for (int i = 0; i < 40; i++)
		waiters[i] = old_virt_acquire(a, pa, (uint64_t)(i + 2) * 2);
	old_virt_settle(&v);
	while (count < 40) {
		struct lk__op *waiter;
		old_virt_pass(&v, 1);
		waiter = old_virt_release(a, pa, (uint64_t)(count + 1) * 2);
		if (!waiters[count]->done)
			break;
		assert_done(waiter, LK_OK);
		count++;
		ck_assert_uint_gt(old_virt_fence(pa, (uint64_t)(count + 1) * 2), fence);
		fence = old_virt_fence(pa, (uint64_t)(count + 1) * 2);
		ck_assert_int_le((int64_t)fence, v.model.now_us);
	}
	return count;
}

/* The release that was no hand-over has granted the other process. */
static void drain(struct lk__op *other)
{
	old_virt_settle(&v);
	assert_done(other, LK_OK);
	release(b, pb);
	lk__core_close(&a->core, v.now_ns);
	end();
}

TEST(threads_hand_over_without_a_request_while_nobody_else_waits)
{
	start(10000);
	hold(a, pa);
	ck_assert_int_eq(count_hand_overs(), 40);
	ck_assert_int_eq(v.model.runs[LK__LEAVE], 0);
	ck_assert_int_eq(v.model.runs[LK__ASK], 1);
	ck_assert_int_eq(v.model.runs[LK__RENEW], 1); /* which reported waiting threads */
	old_virt_release(a, pa, 41 * 2);
	end();
}

TEST(sixteen_hand_overs_when_another_process_waits)
{
	struct lk__op *other;

	start(10000);
	hold(a, pa);
	other = old_virt_acquire(b, pb, 2);
	old_virt_settle(&v);
	ck_assert_int_eq(count_hand_overs(), LK__HANDOVERS_MAX);
	drain(other);
}

TEST(sixteen_hand_overs_after_another_process_came)
{
	struct lk__op *other;

	start(10000);
	hold(a, pa);
	old_virt_acquire(a, pa, 1000);
	old_virt_settle(&v); /* the store learns that threads wait */
	old_virt_pass(&v, 1);
	old_virt_release(a, pa, 2);
	ck_assert_uint_ne(old_virt_fence(pa, 1000), 0);
	other = old_virt_acquire(b, pb, 2);
	step(b, LK__ASK);
	ck_assert_int_eq(a->inbox_count, 1);
	ck_assert_int_eq(a->inbox[0].kind, LK__WANTED);
	ck_assert(old_virt_hear(a));
	old_virt_acquire(a, pa, 2);
	old_virt_pass(&v, 1);
	assert_done(old_virt_release(a, pa, 1000), LK_OK);
	ck_assert_int_eq(count_hand_overs(), LK__HANDOVERS_MAX - 1);
	drain(other);
}

TEST(wanted_that_was_lost_is_told_by_the_next_renewal)
{
	struct lk__op *other, *next;

	start(3000);
	hold(a, pa);
	next = old_virt_acquire(a, pa, 4);
	old_virt_settle(&v);
	ck_assert(pa->ticket->is_shared);
	other = old_virt_acquire(b, pb, 2);
	step(b, LK__ASK);
	old_virt_forget(a);
	ck_assert(!pa->ticket->is_wanted);
	old_virt_pass(&v, 1100);
	ck_assert(pa->ticket->is_wanted);
	old_virt_release(a, pa, 2);
	assert_done(next, LK_OK);
	old_virt_release(a, pa, 4);
	drain(other);
}

TEST(wanted_before_the_grant_is_kept)
{
	struct lk__message wanted = {.kind = LK__WANTED};
	struct old_virt_call ask;

	start(10000);
	old_virt_acquire(a, pa, 2);
	old_virt_acquire(a, pa, 4);
	ck_assert(old_virt_take(a, &ask));
	old_virt_execute(a, &ask);
	memcpy(wanted.nonce, ask.bytes.ticket.nonce, LK__NONCE_SIZE);
	hear_again(a, wanted);
	old_virt_answer(a, &ask);
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	ck_assert(pa->ticket->is_wanted);
	lk__core_close(&a->core, v.now_ns);
	end();
}

TEST(local_fence_never_runs_ahead_of_the_store)
{
	struct lk__op *next;

	start(10000);
	hold(a, pa);
	next = old_virt_acquire(a, pa, 4);
	old_virt_settle(&v);
	/* At the very moment of the grant no number is free between it and the store's clock. */
	pa->ticket->store_us = (int64_t)pa->ticket->fence;
	pa->ticket->store_us_ns = v.now_ns;
	old_virt_release(a, pa, 2);
	ck_assert(!next->done);
	old_virt_settle(&v);
	assert_done(next, LK_OK); /* through the store */
	ck_assert_int_eq(v.model.runs[LK__ASK], 2);
	old_virt_release(a, pa, 4);
	end();
}

TEST(next_grant_exceeds_local_fences_that_were_told)
{
	struct lk__op *other;
	uint64_t fence;

	start(10000);
	hold(a, pa);
	old_virt_acquire(a, pa, 4);
	old_virt_settle(&v);
	old_virt_pass(&v, 5);
	old_virt_release(a, pa, 2);
	fence = old_virt_fence(pa, 4);
	ck_assert_uint_ne(fence, 0);
	/* Even if the store's clock stepped back. */
	v.model.now_us -= 3600 * 1000000LL;
	other = old_virt_acquire(b, pb, 2);
	step(b, LK__ASK);
	old_virt_release(a, pa, 4);
	step(a, LK__LEAVE);
	ck_assert(old_virt_hear(b));
	assert_done(other, LK_OK);
	ck_assert_uint_gt(old_virt_fence(pb, 2), fence);
	release(b, pb);
	old_virt_set_time(&v, v.now_ns);
	end();
}

/* ---- Broken ------------------------------------------------------------------------------- */

TEST(break_that_overtakes_the_grants_answer_is_believed)
{
	struct lk__op *waiter, *other;
	struct old_virt_call ask;

	start(10000);
	waiter = old_virt_acquire(a, pa, 2);
	ck_assert(old_virt_take(a, &ask));
	old_virt_execute(a, &ask);
	other = old_virt_acquire(b, pb, 2);
	step(b, LK__ASK);
	model_break(&v.model, 0);
	ck_assert(old_virt_hear(a)); /* before the answer */
	old_virt_answer(a, &ask);
	ck_assert(!waiter->done);
	old_virt_settle(&v);
	assert_done(other, LK_OK);
	ck_assert(!waiter->done);
	release(b, pb);
	assert_done(waiter, LK_OK);
	release(a, pa);
	end();
}

TEST(break_of_a_claim_asks_again)
{
	struct lk__op *waiter;
	struct old_virt_call claim;

	start_fixed(2000);
	waiter = grant_under_way();
	ck_assert(old_virt_hear(b));
	ck_assert(old_virt_take(b, &claim));
	model_break(&v.model, 0);
	ck_assert(old_virt_hear(b));
	old_virt_execute(b, &claim);
	old_virt_answer(b, &claim); /* "gone" */
	ck_assert(!waiter->done);
	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
	release(b, pb);
	end();
}

TEST(message_for_no_ticket_is_ignored)
{
	struct lk__message message = {.nonce = "AAAAAAAAAAA", .lease_ms = 10000};

	start(10000);
	hold(a, pa);
	for (int kind = LK__GRANT; kind <= LK__BROKEN; kind++) {
		message.kind = (enum lk__message_kind)kind;
		hear_again(a, message);
	}
	ck_assert_int_eq(old_virt_state(a, pa, 2), LK_STATE_HELD);
	release(a, pa);
	end();
}
