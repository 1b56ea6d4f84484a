/* SPDX-License-Identifier: MIT
 * A slot that is being moved, in virtual time: scripts that declare all keys of a name do not run,
 * and no hold is lost by that. */
#include "test.h"
#include "virtual_cluster.h"

#define OWNER 2

static struct lk__wait_queue *lock;

static void start(void)
{
	vc_start();
	vc_own("a", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
}

static void start_held(void)
{
	start();
	vc_acquire(lock, OWNER);
	vc_granted(vc_take(0, LK__ASK));
}

static void end_held(void)
{
	vc_release(lock, OWNER);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_end();
}

/* Its next renewal, when it is due. */
static struct lk__pending *renewal(void)
{
	vc_pass(VC_LEASE_MS / 3 + 200);
	return vc_take(0, LK__RENEW);
}

/* The same, by the keys of the hold only. */
static struct lk__pending *narrow(enum lk__request_kind kind)
{
	struct lk__pending *request = vc_take(0, kind);

	ck_assert(vc_request(request).narrow);
	return request;
}

static void renew_narrowly(void)
{
	struct lk__pending *request = renewal();

	ck_assert(!vc_request(request).narrow);
	vc_divided(request);
	request = narrow(LK__RENEW);
	vc_idle(0);
	vc_kept(request, 1);
}

/* The request comes again after that delay, and not before. */
static struct lk__pending *after(int64_t ms, enum lk__request_kind kind)
{
	vc_pass(ms - 1);
	vc_idle(0);
	vc_pass(1);
	return vc_take(0, kind);
}

/* It is refused with growing delays up to 100 ms, some of which are over; the last repetition. */
static struct lk__pending *repeated(struct lk__pending *request, size_t i)
{
	static const int64_t delays[] = {5, 10, 20, 40, 80, 100, 100, 100};
	enum lk__request_kind kind = request->kind;

	for (; i < sizeof(delays) / sizeof(*delays); i++) {
		vc_divided(request);
		request = after(delays[i], kind);
		ck_assert(!vc_request(request).narrow);
	}
	return request;
}

/* ---- Renewals ------------------------------------------------------------------------------ */

TEST(hold_in_a_divided_slot_is_kept_for_many_leases)
{
	start_held();
	for (int i = 0; i < 20; i++) {
		renew_narrowly();
		ck_assert_int_eq(vc_state(lock, OWNER), LK_STATE_HELD);
	}
	vc_kept(renewal(), 0);
	vc_idle(0);
	ck_assert_ptr_null(lk__core_next_lost(&vc.core));
	end_held();
}

/* The slot's keys leave one by one: the narrow renewal follows the key of the hold. */
TEST(narrow_renewal_follows_the_key_of_its_hold)
{
	struct lk__pending *request;

	start_held();
	vc_divided(renewal());
	vc_asked(narrow(LK__RENEW), 1);
	request = vc_take(1, LK__RENEW);
	ck_assert(vc_request(request).narrow && vc_request(request).asking);
	ck_assert_uint_eq(vc_request(request).fence, vc.fence);
	vc_kept(request, 1);
	ck_assert_int_eq(vc_state(lock, OWNER), LK_STATE_HELD);
	vc_give("a", 1);
	request = vc_take(1, LK__RECLAIM);
	vc_kept(request, 0);
	vc_release(lock, OWNER);
	vc_left(vc_take(1, LK__LEAVE), true, false);
	vc_end();
}

TEST(refused_narrow_renewal_is_repeated_as_any_other)
{
	start_held();
	vc_divided(renewal());
	vc_divided(narrow(LK__RENEW));
	vc_idle(0);
	vc_pass(200);
	vc_kept(vc_take(0, LK__RENEW), 0);
	ck_assert_int_eq(vc_state(lock, OWNER), LK_STATE_HELD);
	end_held();
}

TEST(extension_in_a_divided_slot_is_narrow)
{
	struct lk__pending *request;
	struct lk__op *op;

	start_held();
	op = vc_op(lock, OWNER);
	op->lease_ms = 8000;
	lk__core_extend(&vc.core, vc.now_ns, op);
	vc_divided(vc_take(0, LK__RENEW));
	request = narrow(LK__RENEW);
	ck_assert_int_eq(vc_request(request).lease_ms, 8000);
	vc_kept(request, 1);
	vc_done(op, LK_OK);
	end_held();
}

/* The store would not learn the fence of the next thread. */
TEST(no_thread_hands_over_what_was_renewed_narrowly)
{
	struct lk__op *op, *released;

	start_held();
	vc_pass(150);
	vc_subscribed(0, "lk:c:{a}:me");
	op = vc_acquire(lock, OWNER + 1);
	vc_kept(vc_take(0, LK__RENEW), 0);
	renew_narrowly();
	vc_pass(10);
	released = vc_release(lock, OWNER);
	vc_waits(op);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_done(released, LK_OK);
	vc_granted(vc_take(0, LK__ASK));
	vc_done(op, LK_OK);
	vc_release(lock, OWNER + 1);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_end();
}

TEST(whole_renewal_allows_the_hand_over_again)
{
	struct lk__op *op;

	start_held();
	vc_pass(150);
	vc_subscribed(0, "lk:c:{a}:me");
	op = vc_acquire(lock, OWNER + 1);
	vc_kept(vc_take(0, LK__RENEW), 0);
	renew_narrowly();
	vc_kept(renewal(), 0);
	vc_pass(10);
	vc_done(vc_release(lock, OWNER), LK_OK);
	vc_done(op, LK_OK);
	vc_release(lock, OWNER + 1);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_end();
}

/* ---- Claims -------------------------------------------------------------------------------- */

/* Granted by a message that has to be claimed, while another thread waits. */
static struct lk__pending *claim(struct lk__op **first, struct lk__op **second)
{
	start();
	*first = vc_acquire(lock, OWNER);
	vc_busy(vc_take(0, LK__ASK));
	vc_subscribed(0, "lk:c:{a}:me");
	vc_queued(vc_take(0, LK__ASK));
	*second = vc_acquire(lock, OWNER + 1);
	vc_pass(1500);
	vc_grant_message(0, lock->ticket);
	return vc_take(0, LK__RENEW);
}

TEST(claim_in_a_divided_slot_is_narrow_and_hands_nothing_over)
{
	struct lk__op *first, *second;
	struct lk__pending *request = claim(&first, &second);

	vc_divided(request);
	request = narrow(LK__RENEW);
	ck_assert_uint_eq(vc_request(request).fence, 0);
	vc_answer(request, (struct lk__answer){.kind = LK__KEPT,
	                                       .fence = vc.fence,
	                                       .store_us = vc_store_us(),
	                                       .waiting = 1});
	vc_done(first, LK_OK);
	vc_pass(10);
	vc_release(lock, OWNER);
	vc_waits(second);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_granted(vc_take(0, LK__ASK));
	vc_done(second, LK_OK);
	vc_release(lock, OWNER + 1);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_end();
}

/* ---- Releases ------------------------------------------------------------------------------ */

TEST(release_in_a_divided_slot_completes_narrowly_and_the_whole_leave_follows)
{
	struct lk__pending *request;
	struct lk__op *op;

	start_held();
	op = vc_release(lock, OWNER);
	vc_divided(vc_take(0, LK__LEAVE));
	request = narrow(LK__LEAVE);
	vc_waits(op);
	vc_left(request, true, true);
	vc_done(op, LK_OK);
	/* Nothing of it can be left in the store, unlike after a refused leave. */
	ck_assert(!lk__core_unconfirmed(&vc.core, vc.now_ns));
	ck_assert(lk__core_busy(&vc.core));
	request = repeated(after(5, LK__LEAVE), 1);
	vc_left(request, false, false);
	vc_end();
}

TEST(narrow_leave_that_finds_nothing_shows_a_loss)
{
	struct lk__op *op;

	start_held();
	op = vc_release(lock, OWNER);
	vc_divided(vc_take(0, LK__LEAVE));
	vc_left(narrow(LK__LEAVE), false, true);
	vc_done(op, LK_ELOST);
	vc_left(after(5, LK__LEAVE), false, false);
	vc_end();
}

TEST(whole_leave_is_repeated_until_the_store_has_expired_its_queue)
{
	struct lk__pending *request;

	start_held();
	vc_release(lock, OWNER);
	vc_divided(vc_take(0, LK__LEAVE));
	vc_left(narrow(LK__LEAVE), true, true);
	vc_pass(5);
	for (int i = 0; vc.core.all_tickets && i < 1000; i++) {
		request = vc_take(0, LK__LEAVE);
		vc_divided(request);
		vc_pass(100);
	}
	ck_assert_ptr_null(vc.core.all_tickets);
	vc_end();
}

/* A ticket in the queue is no key of its own. */
TEST(leave_of_a_wait_in_a_divided_slot_is_repeated_whole)
{
	struct lk__pending *request;
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	vc_busy(vc_take(0, LK__ASK));
	vc_subscribed(0, "lk:c:{a}:me");
	vc_queued(vc_take(0, LK__ASK));
	vc_give_up(op);
	request = repeated(vc_take(0, LK__LEAVE), 0);
	vc_waits(op);
	vc_left(request, false, false);
	vc_done(op, LK_ECANCELED);
	vc_end();
}

/* A crowd of them would be a storm.  What a message shows to be known still leaves at once. */
TEST(leave_of_a_wait_without_a_caller_is_repeated_seldom)
{
	const struct lk__answer refused = {
		.kind = LK__FAILED, .err = LK_ESERVER, .text = "MISCONF no disk"};
	struct lk__pending *request = NULL;
	struct lk__op *op;
	int times = 0;

	start();
	op = vc_acquire(lock, OWNER);
	vc_busy(vc_take(0, LK__ASK));
	vc_subscribed(0, "lk:c:{a}:me");
	vc_queued(vc_take(0, LK__ASK));
	vc_pass(9500);
	vc_answer(vc_take(0, LK__ASK), refused);
	vc_done(op, LK_ESERVER);
	for (int64_t end_ns = vc.now_ns + 5000 * VC_MS; vc.now_ns < end_ns; vc_pass(5)) {
		request = lk__core_next_request(&vc.core, &vc.links[0], vc.now_ns);
		if (request && request->kind == LK__LEAVE)
			vc_divided(request);
		times += request && request->kind == LK__LEAVE;
	}
	ck_assert_int_ge(times, 3);
	ck_assert_int_le(times, 8);
	vc_grant_message(0, vc.core.all_tickets);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_end();
}

/* ---- Asks ---------------------------------------------------------------------------------- */

TEST(ask_in_a_divided_slot_is_repeated_until_it_runs)
{
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	vc_granted(repeated(vc_take(0, LK__ASK), 0));
	vc_done(op, LK_OK);
	end_held();
}

TEST(wait_whose_asks_were_refused_leaves_nothing)
{
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	vc_divided(vc_take(0, LK__ASK));
	vc_give_up(op);
	vc_idle(0);
	vc_done(op, LK_ECANCELED);
	vc_end();
}

/* ---- Permits ------------------------------------------------------------------------------- */

TEST(partial_release_in_a_divided_slot_is_repeated_until_it_runs)
{
	struct lk__wait_queue *permits;
	struct lk__pending *request;
	struct lk__op *held, *op, *extension;

	vc_start();
	vc_own("a", 0);
	permits = vc_open(LK_KIND_SEMAPHORE, "a", false);
	held = vc_acquire_permits(permits, 3);
	vc_granted(vc_take(0, LK__ASK));
	op = vc_release_permits(permits, held->fence, 1);
	vc_divided(vc_take(0, LK__SHRINK));
	vc_idle(0);
	vc_waits(op);
	/* An extension does not wait for it. */
	extension = vc_op(permits, held->fence);
	extension->lease_ms = VC_LEASE_MS;
	lk__core_extend(&vc.core, vc.now_ns, extension);
	vc_divided(vc_take(0, LK__RENEW));
	request = narrow(LK__RENEW);
	vc_kept(request, 1);
	vc_done(extension, LK_OK);
	request = vc_take(0, LK__SHRINK);
	ck_assert_uint_eq(vc_request(request).keep, 2);
	vc_divided(request);
	vc_pass(99);
	vc_idle(0);
	vc_pass(1);
	vc_left(vc_take(0, LK__SHRINK), true, false);
	vc_done(op, LK_OK);
	vc_release_permits(permits, held->fence, 0);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_end();
}
