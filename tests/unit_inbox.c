/* SPDX-License-Identifier: MIT
 * Inboxes of a Cluster in virtual time: when a client subscribes to the messages about a name, and
 * what it does before they arrive. */
#include "test.h"
#include "virtual_cluster.h"

#include <string.h>

#define OWNER 2
#define TOPIC "lk:c:{a}:me"

static struct lk__wait_queue *lock;

static void start(void)
{
	vc_start();
	vc_own("a", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
}

/* Queued, with its inbox. */
static struct lk__op *wait_there(void)
{
	struct lk__op *op = vc_acquire(lock, OWNER);

	vc_busy(vc_take(0, LK__ASK));
	vc_subscribed(0, TOPIC);
	vc_queued(vc_take(0, LK__ASK));
	return op;
}

static void end_held(void)
{
	vc_release(lock, OWNER);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_end();
}

static struct lk__channel *inbox(void)
{
	return lock->name->inbox->channel;
}

/* ---- Waits --------------------------------------------------------------------------------- */

TEST(first_ask_only_tries_and_the_next_one_queues)
{
	struct lk__pending *ask;
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	ask = vc_take(0, LK__ASK);
	ck_assert(vc_request(ask).only_try);
	ck_assert(vc_no_command(0)); /* it may be free */
	vc_busy(ask);
	vc_waits(op);
	vc_idle(0); /* until messages arrive */
	vc_subscribed(0, TOPIC);
	ask = vc_take(0, LK__ASK);
	ck_assert(!vc_request(ask).only_try);
	vc_queued(ask);
	vc_waits(op);
	vc_grant_message(0, lock->ticket);
	vc_done(op, LK_OK);
	end_held();
}

TEST(loop_of_waits_subscribes_once)
{
	struct lk__op *op;

	start();
	wait_there();
	vc_grant_message(0, lock->ticket);
	vc_release(lock, OWNER);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	for (int i = 0; i < 5; i++) {
		vc_pass(500);
		op = vc_acquire(lock, OWNER);
		vc_queued(vc_take(0, LK__ASK));
		vc_grant_message(0, lock->ticket);
		vc_done(op, LK_OK);
		vc_release(lock, OWNER);
		vc_left(vc_take(0, LK__LEAVE), true, false);
		vc_idle(0);
		ck_assert(vc_no_command(0));
	}
	vc_end();
}

TEST(queued_answer_to_an_ask_that_tries_is_malformed)
{
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	vc_queued(vc_take(0, LK__ASK));
	vc_done(op, LK_EUNKNOWN);
	vc_left(vc_take(0, LK__LEAVE), false, false);
	vc_end();
}

TEST(wait_that_ends_before_its_inbox_is_on_leaves_nothing)
{
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	vc_busy(vc_take(0, LK__ASK));
	vc_give_up(op);
	vc_done(op, LK_ECANCELED);
	vc_idle(0); /* the store cannot know the ticket */
	ck_assert(vc_no_command(0));
	vc_end();
}

TEST(wait_that_was_queued_leaves_though_its_inbox_is_off)
{
	struct lk__op *op;

	start();
	op = wait_there();
	vc_link_down(0);
	vc_link_up(0);
	vc_busy(vc_take(0, LK__ASK));
	vc_give_up(op);
	vc_waits(op);
	vc_left(vc_take(0, LK__LEAVE), false, false);
	vc_done(op, LK_ECANCELED);
	vc_end();
}

TEST(refused_subscription_ends_waits_and_no_hold)
{
	struct lk__wait_queue *permits;
	struct lk__op *op, *held;

	start();
	permits = vc_open(LK_KIND_SEMAPHORE, "a", false);
	held = vc_acquire_permits(permits, 1);
	vc_granted(vc_take(0, LK__ASK));
	vc_pass(150);
	op = vc_acquire(lock, OWNER);
	vc_busy(vc_take(0, LK__ASK));
	vc_refused(0, TOPIC);
	vc_done(op, LK_EAUTH);
	vc_idle(0);
	ck_assert_int_eq(vc_state(permits, held->fence), LK_STATE_HELD);
	/* The hold does without, and does not ask for it again and again. */
	vc_pass(VC_LEASE_MS / 3 + 200);
	vc_kept(vc_take(0, LK__RENEW), 0);
	ck_assert(vc_no_command(0));
	/* A later wait tries once more. */
	op = vc_acquire(lock, OWNER);
	vc_busy(vc_take(0, LK__ASK));
	vc_subscribed(0, TOPIC);
	vc_granted(vc_take(0, LK__ASK));
	vc_done(op, LK_OK);
	vc_release_permits(permits, held->fence, 0);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	end_held();
}

TEST(end_of_a_subscription_makes_waiters_ask_at_once)
{
	struct lk__pending *ask;
	struct lk__op *op;

	start();
	op = wait_there();
	vc_pass(10);
	vc_dropped(0, TOPIC);
	ask = vc_take(0, LK__ASK);
	ck_assert(vc_request(ask).only_try);
	vc_busy(ask);
	vc_subscribed(0, TOPIC);
	ask = vc_take(0, LK__ASK);
	ck_assert(!vc_request(ask).only_try);
	vc_granted(ask);
	vc_done(op, LK_OK);
	end_held();
}

/* ---- Grants by message --------------------------------------------------------------------- */

TEST(grant_by_message_is_valid_at_once_on_a_fresh_belief)
{
	struct lk__op *op;

	start();
	op = wait_there();
	vc_pass(500);
	vc_grant_message(0, lock->ticket);
	vc_done(op, LK_OK);
	end_held();
}

TEST(grant_by_message_is_claimed_on_an_old_belief)
{
	struct lk__op *op;

	start();
	op = wait_there();
	vc_pass(1001);
	vc_grant_message(0, lock->ticket);
	vc_waits(op);
	vc_answer(vc_take(0, LK__EPOCH),
	          (struct lk__answer){.kind = LK__MEMORY, .epoch = vc.links[0].epoch});
	vc_kept(vc_take(0, LK__RENEW), 0);
	vc_done(op, LK_OK);
	end_held();
}

TEST(grant_by_message_in_the_grace_is_claimed)
{
	struct lk__op *op;

	start();
	vc_memory(0, "other");
	op = wait_there();
	vc_grant_message(0, lock->ticket);
	vc_waits(op);
	vc_kept(vc_take(0, LK__RENEW), 0);
	vc_done(op, LK_OK);
	end_held();
}

/* ---- Holds --------------------------------------------------------------------------------- */

TEST(hold_subscribes_after_a_while)
{
	start();
	vc_acquire(lock, OWNER);
	vc_granted(vc_take(0, LK__ASK));
	vc_pass(99);
	ck_assert(vc_no_command(0));
	vc_pass(2);
	vc_subscribed(0, TOPIC);
	vc_pass(500);
	ck_assert(vc_no_command(0));
	end_held();
}

TEST(hold_subscribes_at_once_when_threads_wait_behind_it)
{
	struct lk__pending *renew;
	struct lk__op *op;

	start();
	vc_acquire(lock, OWNER);
	vc_granted(vc_take(0, LK__ASK));
	op = vc_acquire(lock, OWNER + 1);
	/* The store would notify an inbox that is not there yet. */
	vc_idle(0);
	vc_subscribed(0, TOPIC);
	renew = vc_take(0, LK__RENEW);
	ck_assert(vc_request(renew).share);
	vc_kept(renew, 0);
	vc_idle(0);
	vc_pass(10);
	vc_done(vc_release(lock, OWNER), LK_OK);
	vc_done(op, LK_OK);
	vc_release(lock, OWNER + 1);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_end();
}

TEST(hold_that_moves_subscribes_at_the_new_server)
{
	start();
	vc_acquire(lock, OWNER);
	vc_granted(vc_take(0, LK__ASK));
	vc_pass(101);
	vc_subscribed(0, TOPIC);
	vc_give("a", 1);
	vc_subscribed(1, TOPIC);
	vc_kept(vc_take(1, LK__RECLAIM), 0);
	/* The old server ends the other one, and it is not asked for again. */
	vc_dropped(0, TOPIC);
	ck_assert(vc_no_command(0));
	ck_assert_ptr_null(vc.links[0].channels.all);
	vc_release(lock, OWNER);
	vc_left(vc_take(1, LK__LEAVE), true, false);
	vc_end();
}

/* The last reference to the name is that of a ticket, which ends: the address sanitizer sees what
 * the end of the inbox looks at. */
TEST(inbox_ends_with_the_last_ticket_of_a_closed_handle)
{
	struct lk__pending *leave;

	start();
	vc_acquire(lock, OWNER);
	vc_granted(vc_take(0, LK__ASK));
	vc_pass(101);
	vc_subscribed(0, TOPIC);
	vc_release(lock, OWNER);
	leave = vc_take(0, LK__LEAVE);
	lk__wait_queue_close(&vc.core, lock);
	vc_left(leave, true, false);
	ck_assert_ptr_null(vc.core.all_tickets);
	vc_pass(6000);
	vc_dropped(0, TOPIC);
	vc_end();
}

/* ---- Two kinds of one name ----------------------------------------------------------------- */

TEST(kinds_of_a_name_share_its_inbox_until_the_last_one_ends)
{
	struct lk__wait_queue *permits;
	struct lk__op *op;

	start();
	wait_there();
	vc_grant_message(0, lock->ticket);
	permits = vc_open(LK_KIND_SEMAPHORE, "a", false);
	op = vc_acquire_permits(permits, 1);
	/* It is on for the lock, but not asked for by this name yet. */
	vc_busy(vc_take(0, LK__ASK));
	ck_assert(vc_no_command(0));
	ck_assert_ptr_eq(permits->name->inbox->channel, inbox());
	vc_granted(vc_take(0, LK__ASK));
	vc_done(op, LK_OK);
	vc_release(lock, OWNER);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	lk__wait_queue_close(&vc.core, lock);
	ck_assert_ptr_nonnull(vc.links[0].channels.all);
	ck_assert_uint_eq(vc.links[0].channels.all->users, 1);
	vc_pass(300);
	vc_dropped(0, TOPIC); /* it is asked for again */
	vc_subscribed(0, TOPIC);
	ck_assert(lk__channel_is_on(permits->name->inbox->channel));
	vc_release_permits(permits, op->fence, 0);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	lk__wait_queue_close(&vc.core, permits);
	/* It lingers without an owner, and then is given up. */
	vc_dropped(0, TOPIC);
	ck_assert_ptr_null(vc.links[0].channels.all);
	vc_end();
}

TEST(inbox_of_both_kinds_moves_once)
{
	struct lk__wait_queue *permits;
	struct lk__op *op, *other;

	start();
	op = wait_there();
	permits = vc_open(LK_KIND_SEMAPHORE, "a", false);
	other = vc_acquire_permits(permits, 1);
	vc_busy(vc_take(0, LK__ASK));
	vc_queued(vc_take(0, LK__ASK));
	vc_give("a", 1);
	vc_busy(vc_take(1, LK__ASK));
	vc_busy(vc_take(1, LK__ASK));
	vc_subscribed(1, TOPIC);
	ck_assert(vc_no_command(1));
	vc_granted(vc_take(1, LK__ASK));
	vc_granted(vc_take(1, LK__ASK));
	vc_done(op, LK_OK);
	vc_done(other, LK_OK);
	vc_release(lock, OWNER);
	vc_release_permits(permits, other->fence, 0);
	vc_left(vc_take(1, LK__LEAVE), true, false);
	vc_left(vc_take(1, LK__LEAVE), true, false);
	vc_end();
}

/* ---- The end ------------------------------------------------------------------------------- */

TEST(close_while_names_move_ends_everything)
{
	struct lk__wait_queue *other;
	struct lk__op *op, *held;
	struct lk__pending *leave;

	start();
	vc_own("b", 0);
	other = vc_open(LK_KIND_LOCK, "b", false);
	op = wait_there();
	held = vc_acquire(other, OWNER);
	vc_granted(vc_take(0, LK__ASK));
	vc_done(held, LK_OK);
	lk__core_close(&vc.core, vc.now_ns);
	leave = vc_take(0, LK__LEAVE);
	vc_give("a", 1);
	vc_give("b", 1);
	vc_left(leave, true, false);
	ck_assert(lk__core_busy(&vc.core));
	vc_left(vc_take(1, LK__LEAVE), false, false);
	vc_left(vc_take(1, LK__LEAVE), false, false);
	ck_assert(op->done);
	ck_assert(!lk__core_busy(&vc.core));
	vc_end();
}
