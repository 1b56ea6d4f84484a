/* SPDX-License-Identifier: MIT
 * Messages in virtual time: grants that come early, late, twice or unasked; claims;
 * "again"; "broken"; in every order with answers.  No thread, no socket, no clock. */
#include "virtual_fixture.h"

/* a holds, b waits: then a leaves, and the grant to b is in flight. */
static struct lk__op *grant_in_flight(void)
{
	struct lk__op *waiter;

	hold(a);
	waiter = wait_for(b);
	leave(a);
	ck_assert_int_eq(b->inbox_count, 1);
	ck_assert_int_eq(virt_peek(b).kind, LK__GRANT);
	return waiter;
}

/* The waiter asks once more, as it does when it has heard nothing for a while. */
static void ask_again(struct virt_client *client, const struct lk__op *waiter)
{
	struct lk__ticket *ticket = waiter->queue->ticket;

	ticket->next_ns = w.now_ns;
	lk__ticket_pursue(&client->core, w.now_ns, ticket);
}

/* A message to the waiter's ticket that the store never published. */
static struct lk__message forge(const struct lk__op *waiter, enum lk__message_kind kind)
{
	struct lk__message message = {
		.kind = kind,
		.lease_ms = waiter->queue->lease_ms,
		.life_ms = waiter->queue->lease_ms,
		.fixed = waiter->queue->fixed,
		.permits = waiter->permits,
		.fence = 7,
	};

	memcpy(message.nonce, waiter->queue->ticket->nonce, LK__NONCE_SIZE);
	return message;
}

/* ---- Grants ------------------------------------------------------------------------------- */

TEST_NOUNS(grant_may_overtake_the_answer_to_its_ask)
{
	struct lk__op *waiter;
	struct virt_call ask;

	start(10000);
	hold(a);
	waiter = acquire(b);
	ask = reach(b, LK__ASK);
	leave(a);
	ck_assert(virt_hear(b));
	assert_done(waiter, LK_OK);
	virt_answer(b, &ask); /* the old "queued" */
	ck_assert_int_eq(state(b), LK_STATE_HELD);
	virt_pass(&w, 20000);
	ck_assert_int_eq(state(b), LK_STATE_HELD);
	release(b);
	end();
}

TEST_NOUNS(grant_by_message_is_valid_from_the_first_ask)
{
	int64_t asked_ns;

	start(10000);
	hold(a);
	asked_ns = w.now_ns;
	acquire(b);
	virt_settle(&w);
	later(1000);
	leave(a);
	ck_assert(virt_hear(b));
	ck_assert_int_eq(left_ns(b), asked_ns + 10000 * VIRT_MS - lk__margin_ns(10000) - w.now_ns);
	release(b);
	end();
}

TEST_NOUNS(second_grant_of_a_hold_changes_nothing)
{
	struct lk__message grant;
	int64_t before_ns;
	uint64_t fence;

	start(10000);
	grant_in_flight();
	grant = virt_peek(b);
	ck_assert(virt_hear(b));
	fence = held(b)->fence;
	before_ns = left_ns(b);
	hear(b, grant);
	grant.fence++;
	hear(b, grant);
	ck_assert_uint_eq(held(b)->fence, fence);
	ck_assert_int_eq(left_ns(b), before_ns);
	release(b);
	end();
}

TEST_NOUNS(stale_grant_makes_no_hold)
{
	struct lk__message grant;
	struct lk__op *waiter;

	start(10000);
	grant_in_flight();
	grant = virt_peek(b);
	virt_settle(&w);
	release(b);
	hear(b, grant);
	ck_assert_int_eq(state(b), LK_STATE_NONE);
	/* Nor for a later wait on the same name. */
	hold(a);
	waiter = wait_for(b);
	hear(b, grant);
	assert_waits(waiter);
	virt_give_up(b, waiter, LK_ETIMEDOUT);
	release(a);
	end();
}

TEST_NOUNS(forged_grant_makes_no_hold)
{
	struct lk__message grant;
	struct lk__op *waiter;

	start(10000);
	hold(a);
	waiter = acquire(b);
	/* The right one, before any ask was sent. */
	grant = forge(waiter, LK__GRANT);
	hear(b, grant);
	assert_waits(waiter);
	virt_settle(&w);
	/* Another nonce, other permits, another lease, another kind. */
	grant.nonce[0] ^= 1;
	hear(b, grant);
	grant.nonce[0] ^= 1;
	grant.permits++;
	hear(b, grant);
	grant.permits--;
	grant.lease_ms = 20000;
	hear(b, grant);
	grant.lease_ms = 10000;
	grant.fixed = true;
	hear(b, grant);
	assert_waits(waiter);
	virt_give_up(b, waiter, LK_ETIMEDOUT);
	release(a);
	end();
}

TEST_NOUNS(grant_and_granted_answer_are_one_hold)
{
	struct lk__op *waiter;
	struct virt_call ask;
	uint64_t fence;

	start(10000);
	waiter = grant_in_flight();
	fence = virt_peek(b).fence;
	/* A repeated ask overtakes the message. */
	ask_again(b, waiter);
	ask = reach(b, LK__ASK);
	virt_answer(b, &ask);
	assert_done(waiter, LK_OK);
	ck_assert(virt_hear(b));
	ck_assert_uint_eq(held(b)->fence, fence);
	ck_assert_int_eq(state(b), LK_STATE_HELD);
	release(b);
	end();
}

TEST_NOUNS(granted_answer_revives_no_hold_that_lapsed)
{
	struct lk__op *waiter;
	struct virt_call ask;

	start(1000);
	waiter = grant_in_flight();
	later(500);
	ask_again(b, waiter);
	ask = take(b, LK__ASK);
	ck_assert(virt_hear(b));
	virt_execute(b, &ask); /* "mine already": the store restarts the lease */
	later(500);
	virt_answer(b, &ask);
	ck_assert_int_eq(state(b), LK_STATE_LOST);
	virt_settle(&w);
	release_lost(b);
	end();
}

TEST_NOUNS(message_before_the_granted_answer_is_one_hold)
{
	struct lk__op *waiter;
	struct virt_call ask;

	start(10000);
	waiter = grant_in_flight();
	ask_again(b, waiter);
	ask = take(b, LK__ASK);
	ck_assert(virt_hear(b));
	assert_done(waiter, LK_OK);
	virt_execute(b, &ask); /* "mine already" */
	virt_answer(b, &ask);
	ck_assert_int_eq(state(b), LK_STATE_HELD);
	ck_assert_uint_eq(only_stored()->fence, waiter->fence);
	release(b);
	end();
}

TEST_NOUNS(grant_without_a_waiter_is_handed_off)
{
	struct lk__op *waiter, *next;

	start(10000);
	waiter = grant_in_flight();
	next = acquire(c);
	virt_give_up(b, waiter, LK_ETIMEDOUT);
	virt_settle(&w);
	assert_done(waiter, LK_ETIMEDOUT);
	assert_done(next, LK_OK);
	release(c);
	end();
}

TEST(hold_granted_by_its_own_hand_request_is_renewed)
{
	struct lk__op *waiter;
	struct virt_call hand;

	start(1000);
	hold(a);
	wait_for(d);
	virt_link_down(d, LK_ECONN);
	later(1);
	waiter = acquire(b);
	lua_store_text(w.store, "DEL", virt_key("s", ""), NULL);
	step(b, LK__ASK); /* d stands before it, and the lock is free */
	hand = reach(b, LK__HAND);
	/* The grant comes before the answer to the hand request. */
	ck_assert(virt_hear(b));
	assert_done(waiter, LK_OK);
	virt_answer(b, &hand);
	ck_assert_int_lt(lk__core_due(&b->core), w.now_ns + 400 * VIRT_MS);
	take_away();
	tick_when_due(b);
	step(b, LK__RENEW);
	step(b, LK__EPOCH);
	release_lost(b);
	virt_pass(&w, 1000);
	release_lost(a);
	virt_link_up(d);
	virt_settle(&w);
	release(d);
	end();
}

/* ---- Claims ------------------------------------------------------------------------------- */

TEST_NOUNS(old_waiter_claims_a_short_grant)
{
	struct lk__op *waiter;
	uint64_t fence;

	start(10000);
	hold(a);
	waiter = wait_for(b);
	virt_pass(&w, 4000); /* past the claim window */
	leave(a);
	fence = virt_peek(b).fence;
	ck_assert(virt_peek(b).claim);
	ck_assert_int_eq(virt_peek(b).life_ms, 3000);
	ck_assert(virt_hear(b));
	assert_waits(waiter); /* not valid yet */
	step(b, LK__RENEW);
	assert_done(waiter, LK_OK);
	ck_assert_uint_eq(held(b)->fence, fence);
	ck_assert_int_eq(left_ns(b), 10000 * VIRT_MS - lk__margin_ns(10000));
	release(b);
	end();
}

TEST_NOUNS(claim_of_a_grant_that_is_gone_asks_again)
{
	struct lk__op *waiter, *next;

	start(10000);
	hold(a);
	waiter = wait_for(b);
	later(4000);
	next = wait_for(c);
	leave(a);
	ck_assert_int_eq(virt_peek(c).kind, LK__REASK);
	/* b is stopped for longer than the short grant lasts; c asks when it ends. */
	ck_assert(virt_hear(c));
	later(3100);
	tick(c);
	step(c, LK__ASK);
	assert_done(next, LK_OK);
	ck_assert(virt_hear(b));
	step(b, LK__RENEW);
	assert_waits(waiter);
	step(b, LK__ASK);
	ck_assert_int_eq(queued(), 1);
	release(c);
	assert_done(waiter, LK_OK);
	release(b);
	end();
}

TEST_NOUNS(unclaimed_short_grant_expires_for_the_next)
{
	struct lk__op *next;
	int64_t ms;

	start(10000);
	hold(a);
	wait_for(b);
	next = wait_for(c);
	virt_pass(&w, 4000);
	stop(b);
	leave(a);
	ms = ms_until_done(next);
	ck_assert_int_ge(ms, 3000);
	ck_assert_int_le(ms, 13100); /* one repeated ask later */
	lk__core_close(&b->core, w.now_ns);
	virt_link_down(b, LK_ECONN);
	virt_link_up(b);
	virt_settle(&w);
	release(c);
	end();
}

TEST_NOUNS(fixed_lease_is_claimed_to_last_its_whole_length)
{
	struct lk__op *waiter;

	start_fixed(2000);
	hold(a);
	waiter = wait_for(b);
	later(900);
	leave(a);
	ck_assert(!virt_peek(b).claim);
	ck_assert(virt_hear(b));
	assert_waits(waiter);
	step(b, LK__RENEW);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(left_ns(b), 2000 * VIRT_MS - lk__margin_ns(2000));
	release(b);
	end();
}

TEST_NOUNS(claim_answered_too_late_is_none)
{
	struct lk__op *waiter;
	struct virt_call claim;

	start_fixed(1000);
	waiter = grant_in_flight();
	ck_assert(virt_hear(b));
	claim = reach(b, LK__RENEW);
	later(990);
	virt_answer(b, &claim);
	assert_waits(waiter);
	virt_settle(&w);
	assert_done(waiter, LK_OK); /* anew */
	release(b);
	end();
}

/* ---- Again -------------------------------------------------------------------------------- */

TEST_NOUNS(again_may_overtake_the_answer_to_its_ask)
{
	struct lk__message again;
	struct lk__op *waiter;
	struct virt_call ask;

	start(10000);
	hold(a);
	waiter = acquire(b);
	ask = reach(b, LK__ASK);
	again = forge(waiter, LK__REASK);
	again.in_ms = 300;
	hear(b, again);
	virt_answer(b, &ask);
	ck_assert_int_ge(lk__core_due(&b->core), w.now_ns + 300 * VIRT_MS);
	ck_assert_int_le(lk__core_due(&b->core), w.now_ns + 301 * VIRT_MS);
	lk__core_close(&b->core, w.now_ns);
	release(a);
	end();
}

TEST_NOUNS(again_is_no_reason_to_ask_less_often)
{
	struct lk__op *waiter;

	start(10000);
	hold(a);
	waiter = wait_for(b);
	for (int i = 0; i < 20; i++) {
		struct lk__message again = forge(waiter, LK__REASK);
		again.in_ms = 10000;
		ck_assert_int_le(lk__core_due(&b->core), w.now_ns + 10300 * VIRT_MS);
		hear(b, again);
		ck_assert_int_le(lk__core_due(&b->core),
		                 waiter->queue->ticket->main.sent_ns + 10300 * VIRT_MS);
		virt_pass(&w, 3000);
	}
	release(a);
	assert_done(waiter, LK_OK);
	release(b);
	end();
}

/* ---- Broken ------------------------------------------------------------------------------- */

TEST_NOUNS(break_that_overtakes_the_grants_answer_is_believed)
{
	struct lk__op *waiter, *other;
	struct virt_call ask;

	start(10000);
	waiter = acquire(a);
	ask = reach(a, LK__ASK);
	other = acquire(b);
	step(b, LK__ASK);
	break_hold();
	ck_assert(virt_hear(a)); /* before the answer */
	virt_answer(a, &ask);
	assert_waits(waiter);
	virt_settle(&w);
	assert_done(other, LK_OK);
	assert_waits(waiter);
	release(b);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

TEST_NOUNS(broken_while_the_grant_is_on_its_way_asks_again)
{
	struct lk__op *waiter;

	start(10000);
	waiter = grant_in_flight();
	break_hold();
	ck_assert(virt_hear(b)); /* the grant */
	assert_done(waiter, LK_OK);
	ck_assert(virt_hear(b));
	assert_lost(b, LK_LOST_BROKEN);
	virt_settle(&w);
	release_lost(b);
	end();
}

TEST_NOUNS(break_of_a_claim_asks_again)
{
	struct lk__op *waiter;
	struct virt_call claim;

	start_fixed(2000);
	waiter = grant_in_flight();
	ck_assert(virt_hear(b));
	claim = take(b, LK__RENEW);
	break_hold();
	ck_assert(virt_hear(b));
	virt_execute(b, &claim);
	virt_answer(b, &claim); /* "gone" */
	assert_waits(waiter);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	release(b);
	end();
}

TEST(message_for_no_ticket_is_ignored)
{
	struct lk__message message = {.nonce = "AAAAAAAAAAA", .lease_ms = 10000};

	start(10000);
	hold(a);
	for (int kind = LK__GRANT; kind <= LK__BROKEN; kind++) {
		message.kind = (enum lk__message_kind)kind;
		hear(a, message);
	}
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	release(a);
	end();
}
