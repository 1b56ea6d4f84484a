/* SPDX-License-Identifier: MIT
 * Answers and messages of a server that a name has left make nothing: what was sent there is as
 * unknown as after a lost connection.  The same for a server that has lost its memory since. */
#include "test.h"
#include "virtual_cluster.h"

#define OWNER 2

static struct lk__wait_queue *lock;

/* A lock on link 0. */
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

/* Queued at link 0, with its inbox there. */
static struct lk__op *start_waiting(void)
{
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	vc_busy(vc_take(0, LK__ASK));
	vc_subscribed(0, "lk:c:{a}:me");
	vc_queued(vc_take(0, LK__ASK));
	return op;
}

/* Release it at that link, and end the test. */
static void end_held(int link)
{
	vc_release(lock, OWNER);
	vc_left(vc_take(link, LK__LEAVE), true, false);
	vc_end();
}

/* ---- Late answers -------------------------------------------------------------------------- */

TEST(late_grant_makes_no_hold)
{
	struct lk__pending *late;
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	late = vc_take(0, LK__ASK);
	vc_give("a", 1);
	vc_idle(1);
	vc_granted(late);
	vc_waits(op);
	vc_granted(vc_take(1, LK__ASK));
	vc_done(op, LK_OK);
	end_held(1);
}

TEST(late_answer_to_an_ask_changes_no_wait)
{
	struct lk__pending *late;
	struct lk__op *op;

	for (int i = 0; i < 2; i++) {
		op = start_waiting();
		vc_pass(9500);
		late = vc_take(0, LK__ASK);
		vc_give("a", 1);
		if (i)
			vc_queued(late);
		else
			vc_answer(late, (struct lk__answer){.kind = LK__QUEUED, .free = true});
		/* Nothing is heard at the new server yet. */
		ck_assert(vc_request(late = vc_take(1, LK__ASK)).only_try);
		vc_busy(late);
		vc_subscribed(1, "lk:c:{a}:me");
		ck_assert(!vc_request(late = vc_take(1, LK__ASK)).only_try);
		vc_granted(late);
		vc_done(op, LK_OK);
		end_held(1);
	}
}

TEST(late_busy_does_not_subscribe_at_the_old_server)
{
	struct lk__pending *late;
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	late = vc_take(0, LK__ASK);
	vc_give("a", 1);
	vc_busy(late);
	ck_assert(vc_no_command(0) && vc_no_command(1));
	vc_granted(vc_take(1, LK__ASK));
	vc_done(op, LK_OK);
	end_held(1);
}

TEST(late_answer_to_a_renewal_changes_no_hold)
{
	for (int i = 0; i < 2; i++) {
		struct lk__pending *late;
		int64_t left_ns;

		start_held();
		vc_pass(VC_LEASE_MS / 3 + 200);
		late = vc_take(0, LK__RENEW);
		vc_give("a", 1);
		left_ns = lk__hold_left_ns(lk__core_hold(lock->name, OWNER), vc.now_ns);
		if (i)
			vc_kept(late, 0);
		else
			vc_gone(late);
		ck_assert_int_eq(vc_state(lock, OWNER), LK_STATE_UNSURE);
		ck_assert_int_eq(lk__hold_left_ns(lk__core_hold(lock->name, OWNER), vc.now_ns),
		                 left_ns);
		vc_kept(vc_take(1, LK__RECLAIM), 0);
		ck_assert_int_eq(vc_state(lock, OWNER), LK_STATE_HELD);
		ck_assert_ptr_null(lk__core_next_lost(&vc.core));
		end_held(1);
	}
}

TEST(hold_that_the_new_server_does_not_take_back_is_lost)
{
	struct lk__hold *lost;

	start_held();
	vc_give("a", 1);
	vc_gone(vc_take(1, LK__RECLAIM));
	ck_assert_ptr_nonnull((lost = lk__core_next_lost(&vc.core)));
	ck_assert_int_eq(lost->lost, LK_LOST_TAKEN);
	lk__core_loss_reported(lost);
	vc_done(vc_release(lock, OWNER), LK_ELOST);
	vc_left(vc_take(1, LK__LEAVE), false, false);
	vc_end();
}

TEST(late_answer_to_a_leave_ends_nothing_and_its_repetition_shows_no_loss)
{
	struct lk__pending *late;
	struct lk__op *op;

	start_held();
	op = vc_release(lock, OWNER);
	late = vc_take(0, LK__LEAVE);
	vc_give("a", 1);
	vc_left(late, true, false);
	vc_waits(op);
	/* The first one ran, and its effect moved with the slot. */
	vc_left(vc_take(1, LK__LEAVE), false, false);
	vc_done(op, LK_OK);
	vc_end();
}

TEST(leave_after_a_move_of_a_hold_shows_no_loss)
{
	struct lk__op *op;

	start_held();
	vc_link_down(1);
	op = vc_release(lock, OWNER);
	vc_give("a", 1); /* queued at the old server only */
	vc_idle(0);
	vc_link_up(1);
	/* A failover may have forgotten it, which covers the release. */
	vc_left(vc_take(1, LK__LEAVE), false, false);
	vc_done(op, LK_OK);
	vc_end();
}

TEST(answer_behind_the_end_of_its_ticket_frees_it)
{
	struct lk__pending *late;
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	late = vc_take(0, LK__ASK);
	vc_give_up(op);
	vc_give("a", 1);
	ck_assert_uint_eq(vc.links[0].users, 0);
	vc_idle(1); /* the ask may be redirected, and run after the leave */
	vc_queued(late);
	vc_left(vc_take(1, LK__LEAVE), false, false);
	vc_done(op, LK_ECANCELED);
	vc_end();
}

TEST(link_that_is_lost_after_a_move_ends_what_was_sent_there)
{
	struct lk__pending *late;
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	vc_take(0, LK__ASK);
	vc_give("a", 1);
	vc_idle(1);
	vc_link_down(0);
	vc_granted(vc_take(1, LK__ASK));
	vc_done(op, LK_OK);
	vc_pass(VC_LEASE_MS / 3 + 200);
	late = vc_take(1, LK__RENEW);
	/* The hold's own link is up, and the lost one concerns it no more. */
	vc_link_up(0);
	vc_link_down(0);
	vc_kept(late, 0);
	ck_assert_int_eq(vc_state(lock, OWNER), LK_STATE_HELD);
	end_held(1);
}

/* It went by ASK to a server that the name has left, or never was on. */
TEST(late_answer_to_an_asked_request_makes_nothing)
{
	struct lk__pending *late;
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	vc_asked(vc_take(0, LK__ASK), 1);
	late = vc_take(1, LK__ASK);
	vc_give("a", 2);
	vc_granted(late);
	vc_waits(op);
	vc_granted(vc_take(2, LK__ASK));
	vc_done(op, LK_OK);
	end_held(2);
}

TEST(asked_request_counts_at_the_server_to_which_the_slot_moves)
{
	struct lk__pending *asked;
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	vc_asked(vc_take(0, LK__ASK), 1);
	asked = vc_take(1, LK__ASK);
	vc_give("a", 1);
	vc_granted(asked);
	vc_done(op, LK_OK);
	end_held(1);
}

/* Two replies are still to come, and that to ASKING is the first of them. */
TEST(move_leaves_the_reply_to_asking_expected)
{
	struct lk__pending *asked;
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	asked = vc_take(0, LK__ASK);
	ck_assert(!asked->ahead);
	vc_asked(asked, 1);
	asked = vc_take(1, LK__ASK);
	ck_assert(asked->ahead);
	vc_give("a", 1);
	ck_assert(asked->ahead);
	asked->ahead = false; /* it was read */
	vc_granted(asked);
	vc_done(op, LK_OK);
	end_held(1);
}

TEST(late_redirect_by_ask_is_not_followed)
{
	struct lk__pending *late;
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	late = vc_take(0, LK__ASK);
	vc_give("a", 2);
	vc_asked(late, 1);
	vc_idle(1);
	vc_granted(vc_take(2, LK__ASK));
	vc_done(op, LK_OK);
	end_held(2);
}

TEST(script_unknown_to_the_old_server_is_not_sent_there)
{
	struct lk__wait_queue *latch;
	struct lk__pending *late, *look;
	struct lk__op *op, *waiter;

	start();
	vc_own("l", 0);
	latch = vc_open(LK_KIND_LATCH, "l", false);
	op = vc_acquire(lock, OWNER);
	waiter = vc_await(latch);
	late = vc_take(0, LK__ASK);
	look = vc_take(0, LK__LOOK);
	vc_give("a", 1);
	vc_give("l", 1);
	ck_assert(!lk__core_resend(&vc.core, late));
	ck_assert(!lk__core_resend(&vc.core, look));
	vc_idle(0);
	vc_granted(vc_take(1, LK__ASK));
	vc_shown(vc_take(1, LK__LOOK), LK_LATCH_OPEN, 7);
	vc_done(op, LK_OK);
	vc_done(waiter, LK_OK);
	end_held(1);
}

/* ---- Replicas ------------------------------------------------------------------------------ */

static void need_a_replica(void)
{
	for (int i = 0; i < VC_LINKS; i++)
		lk__session_need_replicas(&vc.links[i], 1);
}

static void confirmed(int link, int64_t replicas)
{
	vc_answer(vc_take(link, LK__CONFIRM),
	          (struct lk__answer){.kind = LK__CONFIRMED, .replicas = replicas});
}

TEST(grant_is_confirmed_by_the_replicas_of_the_server_that_was_asked)
{
	struct lk__op *op;

	start();
	need_a_replica();
	op = vc_acquire(lock, OWNER);
	vc_asked(vc_take(0, LK__ASK), 1);
	confirmed(0, 1);
	vc_granted(vc_take(1, LK__ASK));
	vc_waits(op);
	confirmed(1, 1);
	vc_done(op, LK_OK);
	end_held(0);
}

TEST(confirmed_grant_of_the_old_server_makes_no_hold)
{
	struct lk__op *op;

	start();
	need_a_replica();
	op = vc_acquire(lock, OWNER);
	vc_granted(vc_take(0, LK__ASK));
	vc_give("a", 1);
	confirmed(0, 1);
	vc_waits(op);
	vc_granted(vc_take(1, LK__ASK));
	confirmed(1, 1);
	vc_done(op, LK_OK);
	end_held(1);
}

/* ---- Messages ------------------------------------------------------------------------------ */

TEST(message_of_the_old_server_is_ignored)
{
	struct lk__op *op = start_waiting();

	vc_give("a", 1);
	vc_grant_message(0, lock->ticket);
	vc_waits(op);
	/* The grant has moved with the slot. */
	vc_granted(vc_take(1, LK__ASK));
	vc_done(op, LK_OK);
	end_held(1);
}

/* ---- Latches ------------------------------------------------------------------------------- */

TEST(late_state_of_a_latch_ends_no_wait)
{
	struct lk__wait_queue *latch;
	struct lk__pending *late;
	struct lk__op *waiter;

	vc_start();
	vc_own("l", 0);
	latch = vc_open(LK_KIND_LATCH, "l", false);
	waiter = vc_await(latch);
	late = vc_take(0, LK__LOOK);
	vc_give("l", 1);
	vc_shown(late, LK_LATCH_OPEN, 7);
	vc_waits(waiter);
	vc_shown(vc_take(1, LK__LOOK), LK_LATCH_OPEN, 7);
	vc_done(waiter, LK_OK);
	vc_end();
}

static struct lk__op *step_in_flight(struct lk__pending **step)
{
	struct lk__wait_queue *latch;
	struct lk__op *op;

	vc_start();
	vc_own("l", 0);
	latch = vc_open(LK_KIND_LATCH, "l", false);
	op = vc_step(latch);
	vc_shown(vc_take(0, LK__LOOK), LK_LATCH_COUNTING, 7);
	*step = vc_take(0, LK__STEP);
	return op;
}

TEST(late_step_is_repeated_under_its_number_since_it_may_have_counted)
{
	struct lk__pending *step;
	struct lk__op *op = step_in_flight(&step);
	uint64_t number = vc_request(step).number;

	vc_give("l", 1);
	vc_answer(step, (struct lk__answer){.kind = LK__STEPPED, .counted = true});
	vc_waits(op);
	step = vc_take(1, LK__STEP);
	ck_assert_uint_eq(vc_request(step).number, number);
	/* The failover lost it, and the latch is another one. */
	vc_answer(step, (struct lk__answer){.kind = LK__OTHER, .fence = 9});
	vc_done(op, LK_EUNKNOWN);
	vc_end();
}

TEST(late_answer_to_an_asked_step_makes_nothing)
{
	struct lk__pending *step, *late;
	struct lk__op *op = step_in_flight(&step);

	vc_asked(step, 1);
	late = vc_take(1, LK__STEP);
	vc_give("l", 2);
	vc_answer(late, (struct lk__answer){.kind = LK__STEPPED, .counted = true});
	vc_waits(op);
	vc_answer(vc_take(2, LK__STEP), (struct lk__answer){.kind = LK__STEPPED});
	vc_done(op, LK_OK);
	vc_end();
}

TEST(look_that_was_to_be_asked_elsewhere_is_a_plain_one_after_a_move)
{
	struct lk__wait_queue *latch;
	struct lk__pending *look;
	struct lk__op *waiter;

	vc_start();
	vc_own("l", 0);
	latch = vc_open(LK_KIND_LATCH, "l", false);
	waiter = vc_await(latch);
	vc_asked(vc_take(0, LK__LOOK), 1);
	vc_give("l", 1);
	look = vc_take(1, LK__LOOK);
	ck_assert(!vc_request(look).asking);
	vc_give("l", 2);
	vc_shown(look, LK_LATCH_OPEN, 7);
	vc_waits(waiter);
	vc_shown(vc_take(2, LK__LOOK), LK_LATCH_OPEN, 7);
	vc_done(waiter, LK_OK);
	vc_end();
}

/* ---- Memory -------------------------------------------------------------------------------- */

TEST(ask_in_flight_while_the_marker_changes_makes_no_hold)
{
	struct lk__pending *late;
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	late = vc_take(0, LK__ASK);
	vc_memory(0, "other");
	vc_granted(late);
	vc_waits(op);
	vc_left(vc_take(0, LK__LEAVE), true, false); /* it blocks the lock */
	vc_granted(vc_take(0, LK__ASK));
	vc_done(op, LK_OK);
	end_held(0);
}

TEST(claim_in_flight_while_the_marker_changes_makes_no_hold)
{
	struct lk__pending *late;
	struct lk__op *op = start_waiting();

	vc_pass(1500);
	vc_grant_message(0, lock->ticket);
	late = vc_take(0, LK__RENEW);
	vc_memory(0, "other");
	vc_kept(late, 0);
	vc_waits(op);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_granted(vc_take(0, LK__ASK));
	vc_done(op, LK_OK);
	end_held(0);
}

TEST(asked_server_is_asked_by_its_own_memory)
{
	struct lk__pending *request;
	struct lk__op *op;

	start();
	vc_memory(1, "other");
	op = vc_acquire(lock, OWNER);
	request = vc_take(0, LK__ASK);
	ck_assert_ptr_eq(vc_request(request).epoch, &vc.links[0].epoch);
	vc_asked(request, 1);
	request = vc_take(1, LK__ASK);
	ck_assert_ptr_eq(vc_request(request).epoch, &vc.links[1].epoch);
	/* It loses its memory again: the grant may be of the one before. */
	vc_memory(1, "third");
	vc_granted(request);
	vc_waits(op);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_granted(vc_take(0, LK__ASK));
	vc_done(op, LK_OK);
	end_held(0);
}

TEST(marker_of_the_asked_server_is_read_first_if_it_is_old)
{
	struct lk__op *op;

	start();
	vc_pass(1500);
	vc_memory(0, "m");
	op = vc_acquire(lock, OWNER);
	vc_asked(vc_take(0, LK__ASK), 1);
	vc_answer(vc_take(1, LK__EPOCH),
	          (struct lk__answer){.kind = LK__MEMORY, .epoch = vc.links[1].epoch});
	vc_granted(vc_take(1, LK__ASK));
	vc_done(op, LK_OK);
	end_held(0);
}
