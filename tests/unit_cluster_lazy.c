/* SPDX-License-Identifier: MIT
 * A lazy client of a Cluster: a slot can bring holds and leaves to a link that was never up, and a
 * redirect can bring a request.  If that server refuses the client, its calls end, and nothing
 * else. */
#include "test.h"
#include "virtual_cluster.h"

#define OWNER 2
#define LAZY 3 /* the link that was never dialled */

static struct lk__wait_queue *lock;

static void start(void)
{
	vc_start();
	vc.links[LAZY].lazy = true;
	vc_own("a", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
}

static enum lk__duty duty(void)
{
	return lk__session_next(&vc.links[LAZY], vc.now_ns, LK__NEVER);
}

/* Its server does not want this client. */
static void dial_in_vain(void)
{
	const struct lk__why refused = {.err = LK_EAUTH, .text = "no such password"};

	ck_assert_int_eq(duty(), LK__DUTY_DIAL);
	lk__session_dial_failed(&vc.links[LAZY], vc.now_ns, &refused, 0);
	lk__core_link_unreached(&vc.core, &vc.links[LAZY], vc.now_ns);
}

/* What the runtime does until there is no duty: that ends. */
static void refuse(int times)
{
	for (int i = 0; i < times; i++) {
		ck_assert_int_eq(duty(), LK__DUTY_REFUSE);
		lk__core_link_refused(&vc.core, &vc.links[LAZY], vc.now_ns);
	}
	ck_assert_int_eq(duty(), LK__DUTY_NONE);
}

/* The next dial is due. */
static void dial(void)
{
	int64_t due_ns = lk__session_due(&vc.links[LAZY], LK__NEVER);

	ck_assert(due_ns > vc.now_ns && due_ns < LK__NEVER);
	vc_pass((due_ns - vc.now_ns) / VC_MS + 1);
	ck_assert_int_eq(duty(), LK__DUTY_DIAL);
	vc_link_up(LAZY);
}

TEST(hold_waits_for_a_link_that_is_refused)
{
	struct lk__op *waiter;

	start();
	vc_acquire(lock, OWNER);
	vc_granted(vc_take(0, LK__ASK));
	vc_give("a", LAZY);
	dial_in_vain();
	refuse(1);
	ck_assert_int_eq(vc_state(lock, OWNER), LK_STATE_UNSURE);
	/* A thread waits for the hold, and not for the link. */
	waiter = vc_acquire(lock, OWNER + 1);
	refuse(0);
	vc_waits(waiter);
	dial();
	vc_kept(vc_take(LAZY, LK__RECLAIM), 0);
	ck_assert_int_eq(vc_state(lock, OWNER), LK_STATE_HELD);
	vc_give_up(waiter);
	vc_release(lock, OWNER);
	vc_left(vc_take(LAZY, LK__LEAVE), true, false);
	vc_end();
}

TEST(leave_waits_for_a_link_that_is_refused)
{
	struct lk__op *op;

	start();
	vc_acquire(lock, OWNER);
	vc_granted(vc_take(0, LK__ASK));
	op = vc_release(lock, OWNER);
	vc_give("a", LAZY);
	dial_in_vain();
	refuse(1);
	vc_waits(op);
	dial();
	vc_left(vc_take(LAZY, LK__LEAVE), true, false);
	vc_done(op, LK_OK);
	vc_end();
}

TEST(wait_ends_with_the_refusal_and_its_ticket_leaves_later)
{
	struct lk__op *op;

	start();
	op = vc_acquire(lock, OWNER);
	vc_busy(vc_take(0, LK__ASK));
	vc_subscribed(0, "lk:c:{a}:me");
	vc_queued(vc_take(0, LK__ASK));
	vc_give("a", LAZY);
	dial_in_vain();
	refuse(1);
	vc_done(op, LK_EAUTH);
	/* So does a call that begins soon afterwards. */
	op = vc_acquire(lock, OWNER);
	refuse(1);
	vc_done(op, LK_EAUTH);
	dial();
	vc_left(vc_take(LAZY, LK__LEAVE), false, false);
	vc_end();
}

TEST(wait_whose_ask_is_at_the_old_server_ends_with_the_refusal)
{
	struct lk__pending *late;

	start();
	vc_acquire(lock, OWNER);
	late = vc_take(0, LK__ASK);
	vc_give("a", LAZY);
	dial_in_vain();
	refuse(1);
	vc_done(vc.ops[0], LK_EAUTH);
	dial();
	vc_idle(LAZY);
	vc_granted(late);
	vc_left(vc_take(LAZY, LK__LEAVE), true, false);
	vc_end();
}

TEST(request_that_is_asked_over_a_refused_link_returns)
{
	struct lk__query *query = lk__query_new(LK__KIND, LK_KIND_NONE, "a", 1);
	struct lk__op *op, asked = {0};

	start();
	op = vc_acquire(lock, OWNER);
	vc_asked(vc_take(0, LK__ASK), LAZY);
	dial_in_vain();
	vc_asked(vc_take(0, LK__ASK), LAZY);
	refuse(1);
	vc_granted(vc_take(0, LK__ASK));
	vc_done(op, LK_OK);
	lk__core_query(&vc.core, &vc.links[0], vc.now_ns, &asked, &query, 1);
	vc_asked(vc_take(0, LK__KIND), LAZY);
	refuse(1);
	ck_assert(asked.done && asked.why.err == LK_EAUTH);
	lk__query_free(&vc.core, query);
	vc_release(lock, OWNER);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_end();
}
