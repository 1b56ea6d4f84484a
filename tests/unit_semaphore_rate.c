/* SPDX-License-Identifier: MIT
 * Permits that cannot be released, in virtual time: their rate is exact in every window; and
 * changes of capacity. */
#include "virtual_fixture.h"

#define GRANTS_MAX 2000

/* The callers that received a permit, and when the store began to count it. */
static struct {
	int64_t at_us;
	uint32_t permits;
} grants[GRANTS_MAX];
static int grant_count;

/* No window as long as the lease has more grants than the capacity. */
static void assert_exact(int64_t lease_ms, uint32_t capacity)
{
	for (int i = 0; i < grant_count; i++) {
		uint32_t sum = 0;
		for (int j = 0; j < grant_count; j++)
			if (grants[j].at_us >= grants[i].at_us &&
			    grants[j].at_us < grants[i].at_us + lease_ms * 1000)
				sum += grants[j].permits;
		ck_assert_uint_le(sum, capacity);
	}
}

/* A grant that was just received: the store counts it from the beginning of its lease. */
static void note(const struct lk__op *waiter)
{
	look();
	for (int i = 0; i < view.hold_count; i++) {
		if (view.holds[i].fence != waiter->fence)
			continue;
		grants[grant_count].permits = view.holds[i].held;
		grants[grant_count++].at_us = view.holds[i].end_us - view.holds[i].lease_ms * 1000;
		ck_assert_int_lt(grant_count, GRANTS_MAX);
		return;
	}
	ck_abort_msg("the store does not know the grant");
}

/* A client acquires permits for ever, one wait after the other; each grant is recorded. */
struct taker {
	struct virt_client *client;
	struct lk__op *waiter;
	uint32_t permits;
};

static void take_on(struct taker *taker)
{
	if (taker->waiter && !taker->waiter->done)
		return;
	if (taker->waiter) {
		assert_done(taker->waiter, LK_OK);
		note(taker->waiter);
	}
	taker->waiter = forget_some(taker->client, taker->permits);
}

static void take_for(struct taker *takers, int count, int64_t ms)
{
	int64_t end_ns = w.now_ns + ms * VIRT_MS;

	while (w.now_ns < end_ns) {
		for (int i = 0; i < count; i++)
			take_on(&takers[i]);
		virt_pass(&w, 1);
	}
	for (int i = 0; i < count; i++)
		virt_give_up(takers[i].client, takers[i].waiter, LK_ETIMEDOUT);
	virt_pass(&w, 60000);
}

TEST(rate_is_exact_and_used_up)
{
	struct taker takers[3];

	start_fixed_permits(5, 1000);
	takers[0] = (struct taker){a, NULL, 1};
	takers[1] = (struct taker){b, NULL, 2};
	takers[2] = (struct taker){c, NULL, 1};
	take_for(takers, 3, 20000);
	assert_exact(1000, 5);
	/* Nearly all permits were used: each client asks again when its own expires. */
	ck_assert_int_ge(grant_count, 20 * 3);
	end();
}

static int64_t slow_ns(struct virt *virt)
{
	return virt->now_ns % 7 * 50 * VIRT_MS; /* sometimes past the claim window */
}

TEST(rate_is_exact_when_messages_are_slow)
{
	struct taker takers[3];

	start_fixed_permits(3, 400);
	w.delay_ns = slow_ns;
	takers[0] = (struct taker){a, NULL, 1};
	takers[1] = (struct taker){b, NULL, 3};
	takers[2] = (struct taker){c, NULL, 2};
	take_for(takers, 3, 20000);
	assert_exact(400, 3);
	ck_assert_int_ge(grant_count, 30);
	end();
}

TEST(forgotten_permits_send_nothing_and_no_end_takes_them)
{
	struct lk__op *waiter, *other;

	start_fixed_permits(2, 1000);
	waiter = forget_some(a, 2);
	step(a, LK__ASK);
	assert_done(waiter, LK_OK);
	ck_assert_uint_gt(waiter->fence, 0);
	assert_no_request(a);
	ck_assert_ptr_null(a->core.all_tickets);
	ck_assert_ptr_null(a->core.all_holds);
	/* Neither the end of the handle nor that of the client releases them. */
	lk__core_drop(&a->core, w.now_ns, a->queue->name, a);
	lk__core_close(&a->core, w.now_ns);
	virt_settle(&w);
	ck_assert_int_eq(used(), 2);
	other = try_some(b, 1);
	virt_settle(&w);
	assert_done(other, LK_EBUSY);
	later(1000);
	other = try_some(b, 1);
	virt_settle(&w);
	assert_done(other, LK_OK);
	release_of(b, other->fence);
	end();
}

/* b's wait is older than the claim window when a's release grants it. */
static struct lk__op *granted_when_old(struct lk__op *(*wait)(struct virt_client *, uint32_t))
{
	struct lk__op *waiter;
	uint64_t fence;

	start_fixed_permits(2, 1000);
	fence = hold_some(a, 2);
	later(100);
	waiter = wait(b, 2);
	virt_settle(&w);
	later(700);
	begin_release_of(a, fence);
	step(a, LK__LEAVE);
	look();
	ck_assert_int_eq(view.hold_count, 1);
	return waiter;
}

TEST(grant_that_is_never_released_is_whole_and_needs_no_claim)
{
	struct lk__op *waiter = granted_when_old(forget_some);

	ck_assert_int_eq(view.holds[0].end_us, virt_store_us(&w) + 1000000);
	later(100);
	ck_assert(virt_hear(b));
	assert_done(waiter, LK_OK);
	ck_assert_uint_eq(waiter->fence, view.holds[0].fence);
	assert_no_request(b);
	ck_assert_ptr_null(b->core.all_tickets);
	later(900);
	end();
}

/* The same with permits that the caller may release: the caller would otherwise have a hold that
 * ends at half of its lease. */
TEST(short_grant_of_a_fixed_lease_is_claimed_for_its_whole_length)
{
	struct lk__op *waiter = granted_when_old(acquire_some);

	ck_assert_int_eq(view.holds[0].end_us, virt_store_us(&w) + 500000);
	later(100);
	ck_assert(virt_hear(b));
	assert_waits(waiter);
	step(b, LK__RENEW);
	assert_done(waiter, LK_OK);
	look();
	ck_assert_int_eq(view.holds[0].end_us, virt_store_us(&w) + 1000000);
	release_of(b, waiter->fence);
	end();
}

/* A dead waiter that seems alive costs one turn; then the next waiter is granted. */
TEST(dead_waiter_for_a_rate_costs_one_turn)
{
	struct lk__op *waiter = granted_when_old(forget_some), *next;

	virt_link_down(b, LK_ECONN); /* it never receives the message */
	next = forget_some(c, 2);
	virt_settle(&w);
	assert_waits(next);
	virt_pass(&w, 1005);
	assert_done(next, LK_OK);
	assert_waits(waiter);
	virt_link_up(b);
	virt_pass(&w, 1005);
	assert_done(waiter, LK_OK);
	later(1000);
	end();
}

/* The answer takes longer than the lease, and so does the message. */
TEST(late_message_of_a_grant_is_a_grant)
{
	struct lk__op *waiter;
	struct virt_call ask;

	start_fixed_permits(2, 1000);
	waiter = forget_some(a, 1);
	ask = reach(a, LK__ASK);
	later(5000);
	virt_answer(a, &ask);
	assert_done(waiter, LK_OK);
	assert_no_request(a);
	virt_fini(&w);
	waiter = granted_when_old(forget_some);
	later(5000);
	ck_assert(virt_hear(b));
	assert_done(waiter, LK_OK);
	virt_settle(&w);
	ck_assert_int_eq(waiter->fence, view.holds[0].fence);
	end();
}

/* An ask is in flight when the message comes, and runs when the grant is over: the second grant is
 * left, and no ticket stays in the queue. */
TEST(ask_that_is_run_after_a_grant_that_was_used_leaves_nothing)
{
	struct lk__op *waiter = granted_when_old(forget_some);
	struct virt_call ask;

	later(210); /* a's permits would have expired by now */
	tick(b);
	ask = take(b, LK__ASK);
	ck_assert(virt_hear(b));
	assert_done(waiter, LK_OK);
	later(1000);
	virt_execute(b, &ask);
	ck_assert_int_eq(used(), 2);
	step(b, LK__LEAVE);
	ck_assert_int_eq(used(), 0);
	virt_answer(b, &ask);
	end();
}

/* The same, while other clients hold the permits. */
TEST(ask_that_is_run_after_a_grant_that_was_used_is_not_queued)
{
	struct lk__op *waiter = granted_when_old(forget_some), *other;
	struct virt_call ask;

	later(210);
	tick(b);
	ask = take(b, LK__ASK);
	ck_assert(virt_hear(b));
	assert_done(waiter, LK_OK);
	later(1000);
	other = acquire_some(c, 2);
	step(c, LK__ASK);
	assert_done(other, LK_OK);
	virt_execute(b, &ask);
	look();
	ck_assert_int_eq(view.queued, 1);
	step(b, LK__LEAVE);
	look();
	ck_assert_int_eq(view.queued, 0);
	ck_assert_int_eq(used(), 2);
	virt_answer(b, &ask);
	release_of(c, other->fence);
	end();
}

/* The usual case: the ask runs while the grant exists, and does not change it. */
TEST(ask_that_crosses_a_grant_that_was_used_changes_nothing)
{
	struct lk__op *waiter = granted_when_old(forget_some);
	struct virt_call ask;
	int64_t end_us = view.holds[0].end_us;

	later(210);
	tick(b);
	ask = take(b, LK__ASK);
	ck_assert(virt_hear(b));
	assert_done(waiter, LK_OK);
	virt_execute(b, &ask);
	step(b, LK__LEAVE);
	virt_answer(b, &ask);
	look();
	ck_assert_int_eq(view.hold_count, 1);
	ck_assert_uint_eq(view.holds[0].fence, waiter->fence);
	ck_assert_int_eq(view.holds[0].end_us, end_us);
	ck_assert_int_eq(used(), 2);
	later(1000);
	end();
}

/* The message was delayed while the ticket asked and was queued again. */
TEST(message_that_is_older_than_its_lease_leaves_no_ticket_behind)
{
	struct lk__op *waiter = granted_when_old(forget_some), *other;

	later(1001);
	other = acquire_some(c, 2);
	step(c, LK__ASK);
	assert_done(other, LK_OK);
	tick(b);
	step(b, LK__ASK);
	assert_waits(waiter);
	ck_assert(virt_hear(b));
	assert_done(waiter, LK_OK);
	step(b, LK__LEAVE);
	look();
	ck_assert_int_eq(view.queued, 0);
	release_of(c, other->fence);
	end();
}

TEST(wait_that_ends_before_the_message_of_its_grant_releases_it)
{
	struct lk__op *waiter = granted_when_old(forget_some);

	virt_give_up(b, waiter, LK_ETIMEDOUT);
	step(b, LK__LEAVE);
	assert_done(waiter, LK_ETIMEDOUT);
	ck_assert_int_eq(used(), 0);
	ck_assert(virt_hear(b));
	end();
}

TEST(forgotten_grant_whose_answer_is_lost_is_one_grant)
{
	struct lk__op *waiter;
	struct virt_call ask;
	int64_t end_us;

	start_fixed_permits(3, 1000);
	waiter = forget_some(a, 1);
	ask = reach(a, LK__ASK);
	end_us = virt_store_us(&w) + 1000000;
	lose(a, &ask);
	later(300);
	virt_link_up(a);
	step(a, LK__ASK);
	assert_done(waiter, LK_OK);
	/* It counts from the grant on, however late the client receives it. */
	look();
	ck_assert_int_eq(view.hold_count, 1);
	ck_assert_int_eq(view.holds[0].end_us, end_us);
	later(700);
	end();
}

TEST(forgotten_grant_that_serves_others_needs_no_leave)
{
	struct lk__op *waiter;
	struct virt_call ask;

	start_fixed_permits(3, 1000);
	waiter = forget_some(a, 1);
	ask = reach(a, LK__ASK);
	/* As if the run had reached its limit. */
	ck_assert_mem_eq(ask.reply.data + ask.reply.len - 4, ":0\r\n", 4);
	ask.reply.data[ask.reply.len - 3] = '1';
	virt_answer(a, &ask);
	assert_done(waiter, LK_OK);
	step(a, LK__HAND);
	assert_no_request(a);
	ck_assert_ptr_null(a->core.all_tickets);
	ck_assert_int_eq(used(), 1);
	later(1000);
	end();
}

/* A permit in use is never left, whatever message comes for its ticket. */
TEST(late_grant_leaves_no_used_permit)
{
	struct lk__message grant = {
		.kind = LK__GRANT, .lease_ms = 1000, .fixed = true, .permits = 1, .life_ms = 1000};
	struct lk__op *waiter;
	struct virt_call ask, hand;

	start_fixed_permits(3, 1000);
	waiter = forget_some(a, 1);
	ask = reach(a, LK__ASK);
	memcpy(grant.nonce, a->core.all_tickets->nonce, LK__NONCE_SIZE);
	ask.reply.data[ask.reply.len - 3] = '1'; /* as if the run had reached its limit */
	virt_answer(a, &ask);
	assert_done(waiter, LK_OK);
	grant.fence = waiter->fence;
	/* While its queue grants others: before that request is sent, in flight, and to be
	 * repeated. */
	lk__core_message(&a->core, w.now_ns, &grant);
	hand = take(a, LK__HAND);
	lk__core_message(&a->core, w.now_ns, &grant);
	virt_refuse(a, &hand, "LOADING the dataset");
	lk__core_message(&a->core, w.now_ns, &grant);
	assert_no_request(a);
	later(100);
	tick(a);
	hand = reach(a, LK__HAND);
	lk__core_message(&a->core, w.now_ns, &grant);
	virt_answer(a, &hand);
	assert_no_request(a);
	ck_assert_ptr_null(a->core.all_tickets);
	/* And after that. */
	lk__core_message(&a->core, w.now_ns, &grant);
	assert_no_request(a);
	ck_assert_int_eq(used(), 1);
	later(1000);
	end();
}

/* An unused grant, of a wait that ended while the store refused requests, is left. */
TEST(late_grant_of_a_rate_is_left_when_its_wait_has_ended)
{
	struct lk__op *waiter, *other;
	struct virt_call leave;

	start_fixed_permits(1, 1000);
	waiter = forget_some(a, 1);
	step(a, LK__ASK);
	assert_done(waiter, LK_OK);
	waiter = forget_some(b, 1);
	virt_settle(&w);
	virt_give_up(b, waiter, LK_ETIMEDOUT);
	for (int i = 0; i < 4; i++) {
		leave = take(b, LK__LEAVE);
		virt_refuse(b, &leave, "NOPERM this user has no permissions");
		if (i < 3)
			virt_set_time(&w, lk__core_due(&b->core));
		tick(b);
	}
	assert_done(waiter, LK_EUNKNOWN);
	other = forget_some(c, 1);
	virt_settle(&w);
	assert_waits(other);
	later(700); /* a's permit has expired; b's leave is not due yet */
	ck_assert_int_gt(lk__core_due(&b->core), w.now_ns);
	resize(1);
	virt_settle(&w);
	assert_done(other, LK_OK);
	ck_assert_int_eq(used(), 1);
	ck_assert_ptr_null(b->core.all_tickets);
	later(1000);
	end();
}

TEST(wait_for_a_rate_that_is_cancelled_gives_its_grant_back)
{
	struct lk__op *waiter;
	struct virt_call ask;

	start_fixed_permits(1, 10000);
	waiter = forget_some(a, 1);
	ask = reach(a, LK__ASK);
	virt_give_up(a, waiter, LK_ECANCELED);
	virt_answer(a, &ask);
	step(a, LK__LEAVE);
	assert_done(waiter, LK_ECANCELED);
	end();
}

/* ---- Other capacities --------------------------------------------------------------------- */

TEST(resize_up_grants_at_once)
{
	struct lk__op *waiters[2];
	uint64_t fence;

	start_permits(2, 10000);
	fence = hold_some(a, 2);
	waiters[0] = wait_for_some(b, 2);
	waiters[1] = wait_for_some(c, 1);
	resize(5);
	ck_assert(virt_hear(b));
	ck_assert(virt_hear(c));
	assert_done(waiters[0], LK_OK);
	assert_done(waiters[1], LK_OK);
	release_of(a, fence);
	release_of(b, waiters[0]->fence);
	release_of(c, waiters[1]->fence);
	end();
}

TEST(resize_down_takes_nothing_and_grants_nothing_until_it_fits)
{
	struct lk__op *waiter;
	uint64_t first, second;

	start_permits(4, 10000);
	first = hold_some(a, 2);
	second = hold_some(a, 2);
	resize(2);
	waiter = wait_for_some(b, 1);
	ck_assert_int_eq(used(), 4);
	virt_pass(&w, 20000);
	ck_assert_int_eq(state_of(a, first), LK_STATE_HELD);
	release_of(a, first);
	assert_waits(waiter);
	begin_release_some(a, second, 1);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(used(), 2);
	release_of(a, second);
	release_of(b, waiter->fence);
	end();
}

TEST(resize_down_ends_a_wait_that_became_impossible)
{
	struct lk__op *large, *small;
	uint64_t fence;

	start_permits(4, 10000);
	fence = hold_some(a, 1);
	large = wait_for_some(b, 4);
	small = wait_for_some(c, 2);
	resize(3);
	virt_settle(&w);
	virt_pass(&w, 5);
	assert_done(large, LK_ELIMIT);
	assert_done(small, LK_OK);
	release_of(a, fence);
	release_of(c, small->fence);
	end();
}

TEST(resize_down_finds_a_wait_deep_in_the_queue_when_its_turn_comes)
{
	struct lk__op *first, *large;
	uint64_t fence;

	start_permits(4, 10000);
	fence = hold_some(a, 3);
	first = wait_for_some(b, 2);
	large = wait_for_some(c, 4);
	resize(3);
	virt_settle(&w);
	assert_waits(large);
	release_of(a, fence);
	virt_pass(&w, 5);
	assert_done(first, LK_OK);
	assert_done(large, LK_ELIMIT);
	release_of(b, first->fence);
	end();
}

/* The answer to its first ask was lost, so its permits may be used up. */
TEST(refused_rate_is_unknown_if_an_earlier_ask_may_have_been_granted)
{
	struct lk__op *surely, *perhaps;
	struct virt_call call;

	start_fixed_permits(3, 1000);
	surely = forget_some(a, 1);
	refuse(a, LK__ASK, PERMANENT);
	assert_done(surely, LK_EAUTH);
	perhaps = forget_some(a, 1);
	call = reach(a, LK__ASK);
	lose(a, &call);
	virt_link_up(a);
	refuse(a, LK__ASK, PERMANENT);
	assert_done(perhaps, LK_EUNKNOWN);
	virt_fini(&w);
}
