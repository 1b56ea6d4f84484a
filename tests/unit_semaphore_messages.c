/* SPDX-License-Identifier: MIT
 * Messages to waiters for permits, in virtual time: grants that come early, late, twice or unasked,
 * and their claims; "again"; in every order with answers. */
#include "virtual_fixture.h"

#include <stdio.h>

/* a holds all, b waits: then a leaves, and the grant to b is in flight. */
static struct lk__op *grant_under_way(void)
{
	struct lk__op *waiter;
	uint64_t fence = hold_some(a, 2);

	waiter = wait_for_some(b, 1);
	begin_release_of(a, fence);
	step(a, LK__LEAVE);
	ck_assert_int_eq(b->inbox_count, 1);
	return waiter;
}

/* Deliver the same bytes again, with one word after the ticket replaced, NULL = unchanged. */
static void hear_again(const struct virt_message *copy, const char *fence)
{
	struct virt_message *message = &b->inbox[b->inbox_count++];
	char verb[16], ticket[80], old[40], rest[80];

	*message = *copy;
	if (fence) {
		ck_assert_int_eq(
			sscanf(copy->text, "%15s %79s %39s %79[^\n]", verb, ticket, old, rest), 4);
		snprintf(message->text, sizeof(message->text), "%s %s %s %.*s", verb, ticket, fence,
		         (int)(copy->len - strlen(verb) - strlen(ticket) - strlen(old) - 3), rest);
		message->len = copy->len - strlen(old) + strlen(fence);
	}
	ck_assert(virt_hear(b));
}

TEST(grant_may_overtake_the_answer_to_its_ask)
{
	struct lk__op *waiter;
	struct virt_call ask;
	uint64_t fence;

	start_permits(2, 10000);
	fence = hold_some(a, 2);
	later(1);
	waiter = acquire_some(b, 1);
	ask = reach(b, LK__ASK);
	later(1);
	begin_release_of(a, fence);
	step(a, LK__LEAVE);
	ck_assert(virt_hear(b));
	assert_done(waiter, LK_OK);
	virt_answer(b, &ask); /* the old "queued" */
	virt_pass(&w, 20000);
	ck_assert_int_eq(state_of(b, waiter->fence), LK_STATE_HELD);
	release_of(b, waiter->fence);
	end();
}

TEST(grant_by_message_is_valid_from_the_first_ask)
{
	struct lk__op *waiter;
	int64_t asked_ns;
	uint64_t fence;

	start_permits(2, 10000);
	fence = hold_some(a, 2);
	waiter = wait_for_some(b, 1);
	asked_ns = w.now_ns;
	later(1000);
	begin_release_of(a, fence);
	step(a, LK__LEAVE);
	ck_assert(virt_hear(b));
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(lk__hold_left_ns(lk__core_hold(b->queue->name, waiter->fence), w.now_ns),
	                 asked_ns + 10000 * VIRT_MS - lk__margin_ns(10000) - w.now_ns);
	release_of(b, waiter->fence);
	end();
}

TEST(second_grant_of_a_hold_changes_nothing)
{
	struct virt_message grant;
	struct lk__op *waiter;

	start_permits(2, 10000);
	waiter = grant_under_way();
	grant = b->inbox[0];
	ck_assert(virt_hear(b));
	assert_done(waiter, LK_OK);
	hear_again(&grant, NULL);
	hear_again(&grant, "1900000000000000");
	ck_assert_uint_eq(permits_of(b, waiter->fence), 1);
	assert_no_request(b);
	release_of(b, waiter->fence);
	/* Nor does it grant a later wait. */
	waiter = acquire_some(b, 1);
	hear_again(&grant, NULL);
	assert_waits(waiter);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	release_of(b, waiter->fence);
	end();
}

TEST(forged_grant_makes_no_hold)
{
	struct lk__message grant = {
		.kind = LK__GRANT, .lease_ms = 10000, .life_ms = 10000, .permits = 2, .fence = 7};
	struct lk__op *waiter;
	uint64_t fence;

	start_permits(2, 10000);
	fence = hold_some(a, 2);
	waiter = wait_for_some(b, 1);
	memcpy(grant.nonce, b->core.all_tickets->nonce, LK__NONCE_SIZE);
	lk__core_message(&b->core, w.now_ns, &grant); /* other permits */
	grant.permits = 1;
	grant.fixed = true;
	lk__core_message(&b->core, w.now_ns, &grant);
	grant.fixed = false;
	grant.lease_ms = 5000;
	lk__core_message(&b->core, w.now_ns, &grant);
	assert_waits(waiter);
	release_of(a, fence);
	assert_done(waiter, LK_OK);
	release_of(b, waiter->fence);
	end();
}

TEST(old_waiter_claims_a_short_grant)
{
	struct lk__op *waiter;
	uint64_t fence;

	start_permits(2, 10000);
	fence = hold_some(a, 2);
	waiter = wait_for_some(b, 1);
	virt_pass(&w, 4000);
	begin_release_of(a, fence);
	step(a, LK__LEAVE);
	ck_assert(virt_hear(b));
	assert_waits(waiter);
	step(b, LK__RENEW);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(lk__hold_left_ns(lk__core_hold(b->queue->name, waiter->fence), w.now_ns),
	                 10000 * VIRT_MS - lk__margin_ns(10000));
	release_of(b, waiter->fence);
	end();
}

TEST(fixed_lease_is_claimed_to_last_its_whole_length)
{
	struct lk__op *waiter;
	uint64_t fence;

	start_fixed_permits(2, 2000);
	fence = hold_some(a, 2);
	waiter = wait_for_some(b, 1);
	later(900); /* the grant is not a short one */
	begin_release_of(a, fence);
	step(a, LK__LEAVE);
	ck_assert(virt_hear(b));
	assert_waits(waiter);
	step(b, LK__RENEW);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(lk__hold_left_ns(lk__core_hold(b->queue->name, waiter->fence), w.now_ns),
	                 2000 * VIRT_MS - lk__margin_ns(2000));
	release_of(b, waiter->fence);
	end();
}

TEST(short_grant_that_nobody_claims_goes_on)
{
	struct lk__op *next;
	int64_t granted_ns;
	uint64_t fence;

	start_permits(2, 10000);
	fence = hold_some(a, 2);
	wait_for_some(b, 2);
	next = wait_for_some(c, 1);
	virt_pass(&w, 4000);
	b->session.state = LK__SESSION_DOWN; /* it is stopped, but still counts as a receiver */
	begin_release_of(a, fence);
	step(a, LK__LEAVE);
	granted_ns = w.now_ns;
	while (!next->done && w.now_ns - granted_ns < 60000 * VIRT_MS)
		virt_pass(&w, 10);
	assert_done(next, LK_OK);
	ck_assert_int_ge(w.now_ns - granted_ns, 3000 * VIRT_MS);
	ck_assert_int_le(w.now_ns - granted_ns, 13100 * VIRT_MS); /* one repeated ask later */
	lk__core_close(&b->core, w.now_ns);
	virt_link_down(b, LK_ECONN);
	virt_link_up(b);
	virt_settle(&w);
	release_of(c, next->fence);
	end();
}

TEST(grant_and_granted_answer_are_one_hold)
{
	struct lk__op *waiter;
	struct lk__ticket *ticket;
	struct virt_call ask;

	start_permits(2, 10000);
	waiter = grant_under_way();
	/* A repeated ask overtakes the message. */
	ticket = b->core.all_tickets;
	ticket->next_ns = w.now_ns;
	lk__ticket_pursue(&b->core, w.now_ns, ticket);
	ask = reach(b, LK__ASK);
	virt_answer(b, &ask);
	assert_done(waiter, LK_OK);
	ck_assert(virt_hear(b));
	ck_assert_uint_eq(permits_of(b, waiter->fence), 1);
	ck_assert_int_eq(used(), 1);
	release_of(b, waiter->fence);
	end();
}

TEST(message_before_the_granted_answer_is_one_hold)
{
	struct lk__op *waiter;
	struct lk__ticket *ticket;
	struct virt_call ask;

	start_permits(2, 10000);
	waiter = grant_under_way();
	ticket = b->core.all_tickets;
	ticket->next_ns = w.now_ns;
	lk__ticket_pursue(&b->core, w.now_ns, ticket);
	ask = take(b, LK__ASK);
	ck_assert(virt_hear(b));
	assert_done(waiter, LK_OK);
	virt_execute(b, &ask); /* "mine already" */
	virt_answer(b, &ask);
	ck_assert_int_eq(state_of(b, waiter->fence), LK_STATE_HELD);
	ck_assert_int_eq(used(), 1);
	release_of(b, waiter->fence);
	end();
}

TEST(granted_answer_revives_no_hold_that_lapsed)
{
	struct lk__op *waiter;
	struct lk__ticket *ticket;
	struct virt_call ask;

	start_permits(2, 1000);
	waiter = grant_under_way();
	later(500);
	ticket = b->core.all_tickets;
	ticket->next_ns = w.now_ns;
	lk__ticket_pursue(&b->core, w.now_ns, ticket);
	ask = take(b, LK__ASK);
	ck_assert(virt_hear(b));
	assert_done(waiter, LK_OK);
	virt_execute(b, &ask); /* the store restarts the lease */
	later(500);
	virt_answer(b, &ask);
	ck_assert_int_eq(state_of(b, waiter->fence), LK_STATE_LOST);
	virt_settle(&w);
	release_lost_of(b, waiter->fence);
	end();
}

TEST(lost_grant_is_found_by_the_next_ask)
{
	struct lk__op *waiter;

	start_permits(2, 10000);
	waiter = grant_under_way();
	b->inbox_count = 0;
	virt_pass(&w, 10500);
	/* The store had kept it for its lease, and the ask came within. */
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(used(), 1);
	release_of(b, waiter->fence);
	end();
}

TEST(broken_while_the_grant_is_on_its_way_asks_again)
{
	struct lk__op *waiter;

	start_permits(2, 10000);
	waiter = grant_under_way();
	look();
	ck_assert_int_eq(view.hold_count, 1);
	virt_break(&w, noun, "s", view.holds[0].text);
	ck_assert(virt_hear(b)); /* the grant */
	assert_done(waiter, LK_OK);
	ck_assert(virt_hear(b));
	assert_lost(b, LK_LOST_BROKEN);
	virt_settle(&w);
	release_lost_of(b, waiter->fence);
	end();
}

/* The head received a late time; before that its request became impossible, and "again" reports
 * this. */
TEST(again_may_come_before_the_answer_to_its_ask)
{
	struct lk__op *waiter;
	struct virt_call ask;
	uint64_t fence;

	start_permits(2, 10000);
	fence = hold_some(a, 1);
	later(1);
	waiter = acquire_some(b, 2);
	ask = reach(b, LK__ASK);
	permits_resize(&w, "s", 1);
	ck_assert(virt_hear(b)); /* again, now */
	virt_answer(b, &ask);    /* "queued", for seconds */
	virt_pass(&w, 5);
	assert_done(waiter, LK_ELIMIT);
	release_of(a, fence);
	end();
}

TEST(again_is_no_reason_to_ask_less_often)
{
	struct lk__op *waiter;
	uint64_t fence;

	start_permits(4, 10000);
	fence = hold_some(a, 2);
	waiter = wait_for_some(b, 3);
	for (int i = 0; i < 20; i++) {
		struct lk__message again = {
			.kind = LK__REASK, .lease_ms = 10000, .permits = 3, .in_ms = 10000};
		memcpy(again.nonce, b->core.all_tickets->nonce, LK__NONCE_SIZE);
		ck_assert_int_le(lk__core_due(&b->core), w.now_ns + 10300 * VIRT_MS);
		lk__core_message(&b->core, w.now_ns, &again);
		ck_assert_int_le(lk__core_due(&b->core),
		                 b->core.all_tickets->main.sent_ns + 10300 * VIRT_MS);
		virt_pass(&w, 3000);
	}
	release_of(a, fence);
	assert_done(waiter, LK_OK);
	release_of(b, waiter->fence);
	end();
}
