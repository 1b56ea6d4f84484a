/* SPDX-License-Identifier: MIT
 * Replicas that must confirm a grant, in virtual time: what counts, and what becomes of the rest.
 * The model (tests/model) shows that a promoted replica then forgets no hold. */
#include "virtual_fixture.h"

#include "memory_fixture.h"

#include <string.h>

#define NEEDED 2

/* How many replicas have all that was written. */
static void follow(int64_t replicas)
{
	lua_store_process(w.store)->replicas = replicas;
}

static void start_replicated(int64_t lease_ms)
{
	start(lease_ms);
	for (int i = 0; i < w.client_count; i++) {
		w.clients[i].session.replicas = NEEDED;
		w.clients[i].session.replicas_ms = 500;
	}
	follow(NEEDED);
}

static void assert_text(const struct lk__op *op, lk_err err, const char *text)
{
	assert_done(op, err);
	ck_assert_str_eq(op->why.text, text);
}

/* ---- Grants ------------------------------------------------------------------------------- */

TEST_NOUNS(without_replicas_no_count_is_asked)
{
	start(10000);
	hold(a);
	virt_pass(&w, 4000);
	ck_assert_int_gt(w.runs[LK__RENEW], 0);
	release(a);
	ck_assert_int_eq(w.runs[LK__CONFIRM], 0);
	end();
}

TEST_NOUNS(grant_waits_for_the_replicas)
{
	struct lk__op *waiter;
	int64_t sent_ns;

	start_replicated(10000);
	waiter = acquire(a);
	sent_ns = w.now_ns;
	step(a, LK__ASK);
	assert_waits(waiter);
	ck_assert_ptr_null(held(a));
	later(100);
	step(a, LK__CONFIRM);
	assert_done(waiter, LK_OK);
	/* The lease counts from the request, as ever. */
	ck_assert_int_eq(left_ns(a), sent_ns + 10000 * VIRT_MS - lk__margin_ns(10000) - w.now_ns);
	release(a);
	ck_assert_int_eq(w.runs[LK__CONFIRM], 1);
	end();
}

TEST_NOUNS(grant_that_too_few_replicas_have_is_left)
{
	struct lk__op *waiter;

	start_replicated(10000);
	follow(1);
	waiter = acquire(a);
	step(a, LK__ASK);
	ck_assert_int_gt(used(), 0);
	step(a, LK__CONFIRM);
	assert_text(waiter, LK_EREPLICAS, "granted, but 1 of 2 replicas confirmed in 500 ms");
	ck_assert_ptr_null(held(a));
	virt_settle(&w);
	ck_assert_int_eq(used(), 0);
	end();
}

TEST_NOUNS(try_that_too_few_replicas_confirm_is_not_busy)
{
	struct lk__op *waiter;

	start_replicated(10000);
	follow(0);
	waiter = try(a);
	virt_settle(&w);
	assert_text(waiter, LK_EREPLICAS, "granted, but 0 of 2 replicas confirmed in 500 ms");
	follow(NEEDED);
	waiter = try(a);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

TEST_NOUNS(nothing_is_sent_while_replicas_are_awaited)
{
	struct lk__op *first, *second;
	struct virt_call call;

	start_replicated(10000);
	first = acquire(a);
	step(a, LK__ASK);
	call = reach(a, LK__CONFIRM);
	second = call_of(a, OWNER);
	second->queue = open_handle(a, "t", 10000, false);
	begin(a, second);
	assert_no_request(a);
	virt_answer(a, &call);
	assert_done(first, LK_OK);
	step(a, LK__ASK);
	step(a, LK__CONFIRM);
	assert_done(second, LK_OK);
	lk__core_close(&a->core, w.now_ns);
	end();
}

TEST(requests_of_one_write_share_a_question)
{
	struct lk__op *waiters[3];

	start_permits(3, 10000);
	a->session.replicas = NEEDED;
	a->session.replicas_ms = 500;
	follow(NEEDED);
	for (int i = 0; i < 3; i++)
		waiters[i] = acquire_some(a, 1);
	for (int i = 0; i < 3; i++)
		step(a, LK__ASK);
	step(a, LK__CONFIRM);
	for (int i = 0; i < 3; i++)
		assert_done(waiters[i], LK_OK);
	assert_no_request(a);
	for (int i = 0; i < 3; i++)
		release_of(a, waiters[i]->fence);
	end();
}

TEST_NOUNS(grant_by_message_is_claimed_first)
{
	struct lk__op *waiter;

	start_replicated(10000);
	hold(a);
	waiter = wait_for(b);
	leave(a);
	ck_assert(!virt_peek(b).claim);
	virt_hear(b);
	assert_waits(waiter);
	step(b, LK__RENEW);
	assert_waits(waiter);
	step(b, LK__CONFIRM);
	assert_done(waiter, LK_OK);
	release(b);
	end();
}

TEST_NOUNS(claim_that_too_few_replicas_have_is_left_to_the_next)
{
	struct lk__op *second, *third;

	start_replicated(10000);
	hold(a);
	second = wait_for(b);
	third = wait_for(c);
	leave(a);
	virt_hear(b);
	step(b, LK__RENEW);
	follow(1);
	step(b, LK__CONFIRM);
	assert_text(second, LK_EREPLICAS, "granted, but 1 of 2 replicas confirmed in 500 ms");
	follow(NEEDED);
	virt_settle(&w);
	assert_done(third, LK_OK);
	release(c);
	end();
}

TEST_NOUNS(wait_that_ends_before_the_replicas_confirm_leaves)
{
	struct lk__op *waiter;
	struct virt_call call;

	start_replicated(10000);
	waiter = acquire(a);
	step(a, LK__ASK);
	call = reach(a, LK__CONFIRM);
	virt_give_up(a, waiter, LK_ETIMEDOUT);
	virt_answer(a, &call);
	ck_assert_ptr_null(held(a));
	step(a, LK__LEAVE);
	assert_done(waiter, LK_ETIMEDOUT);
	ck_assert_int_eq(used(), 0);
	end();
}

TEST_NOUNS(grant_that_is_broken_before_the_replicas_confirm_is_none)
{
	struct lk__op *waiter;

	start_replicated(10000);
	waiter = acquire(a);
	step(a, LK__ASK);
	break_hold();
	virt_hear(a);
	step(a, LK__CONFIRM);
	assert_waits(waiter);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(w.runs[LK__ASK], 2);
	release(a);
	end();
}

TEST_NOUNS(grant_without_an_answer_about_replicas_is_asked_for_again)
{
	struct lk__op *waiter;
	struct virt_call call;

	start_replicated(10000);
	waiter = acquire(a);
	step(a, LK__ASK);
	call = reach(a, LK__CONFIRM);
	lose(a, &call);
	assert_waits(waiter);
	virt_link_up(a);
	/* The next count is not about the grant on the last connection. */
	refuse(a, LK__ASK, RETRYABLE);
	step(a, LK__CONFIRM);
	assert_waits(waiter);
	virt_pass(&w, 200);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

TEST_NOUNS(grant_whose_replicas_confirm_too_late_is_none)
{
	struct lk__op *waiter;

	start_replicated(1000);
	waiter = acquire(a);
	step(a, LK__ASK);
	later(1000);
	step(a, LK__CONFIRM);
	assert_waits(waiter);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

/* ---- Renewals ----------------------------------------------------------------------------- */

TEST_NOUNS(renewal_that_too_few_replicas_have_does_not_extend)
{
	int64_t until_ns;

	start_replicated(3000);
	hold(a);
	until_ns = w.now_ns + left_ns(a);
	follow(1);
	tick_when_due(a);
	step(a, LK__RENEW);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	step(a, LK__CONFIRM);
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	ck_assert_int_eq(w.now_ns + left_ns(a), until_ns);
	virt_pass(&w, 1000);
	ck_assert_int_gt(w.runs[LK__RENEW], 3); /* it is repeated */
	ck_assert_int_eq(w.now_ns + left_ns(a), until_ns);
	virt_set_time(&w, until_ns);
	tick(a);
	ck_assert_int_eq(state(a), LK_STATE_LOST);
	release_lost(a);
	end();
}

TEST_NOUNS(renewal_counts_again_when_the_replicas_follow)
{
	start_replicated(3000);
	hold(a);
	follow(0);
	virt_pass(&w, 1200);
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	follow(NEEDED);
	virt_pass(&w, 300);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	ck_assert_int_gt(left_ns(a), 2000 * VIRT_MS);
	release(a);
	end();
}

TEST_NOUNS(extension_that_too_few_replicas_have_does_not_count)
{
	struct lk__op *extension;

	start_replicated(3000);
	hold(a);
	follow(0);
	extension = extend(a, 60000);
	step(a, LK__RENEW);
	step(a, LK__CONFIRM);
	assert_text(extension, LK_EREPLICAS, "extended, but 0 of 2 replicas confirmed in 500 ms");
	ck_assert_int_lt(left_ns(a), 3000 * VIRT_MS);
	follow(NEEDED);
	release(a);
	end();
}

TEST_NOUNS(reclaim_that_too_few_replicas_have_is_repeated)
{
	int64_t until_ns;

	start_replicated(3000);
	give_grace(GRACE);
	hold(a);
	until_ns = w.now_ns + left_ns(a);
	forget_without_link();
	follow(1);
	step(a, LK__RECLAIM);
	step(a, LK__CONFIRM);
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	ck_assert_int_eq(w.now_ns + left_ns(a), until_ns);
	ck_assert_int_eq(a->core.counters.reclaimed, 0);
	follow(NEEDED);
	tick_when_due(a);
	step(a, LK__RECLAIM);
	step(a, LK__CONFIRM);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	ck_assert_int_eq(a->core.counters.reclaimed, 1);
	release(a);
	end();
}

/* ---- Refusals ----------------------------------------------------------------------------- */

TEST_NOUNS(refused_wait_names_the_right)
{
	struct lk__op *waiter;

	start_replicated(10000);
	waiter = acquire(a);
	step(a, LK__ASK);
	refuse(a, LK__CONFIRM, "NOPERM no permissions to run the 'wait' command");
	assert_done(waiter, LK_EAUTH);
	ck_assert_ptr_nonnull(strstr(waiter->why.text, "+wait"));
	virt_settle(&w);
	ck_assert_int_eq(used(), 0);
	end();
}

TEST_NOUNS(wait_that_is_refused_for_now_is_asked_again)
{
	struct lk__op *waiter;

	start_replicated(10000);
	waiter = acquire(a);
	step(a, LK__ASK);
	refuse(a, LK__CONFIRM, RETRYABLE);
	assert_waits(waiter);
	virt_pass(&w, 200);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

/* The master becomes a replica, and closes the connection. */
TEST_NOUNS(wait_that_a_demotion_ends_is_asked_again)
{
	struct lk__op *waiter;

	start_replicated(10000);
	waiter = acquire(a);
	step(a, LK__ASK);
	refuse(a, LK__CONFIRM,
	       "UNBLOCKED force unblock from blocking operation, instance state changed (master "
	       "-> replica?)");
	assert_waits(waiter);
	virt_link_down(a, LK_ECONN);
	virt_link_up(a);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

/* By a server that misbehaves: WAIT is no script. */
TEST_NOUNS(wait_that_is_refused_as_an_unknown_script_is_sent_again)
{
	struct lk__op *waiter;

	start_replicated(10000);
	waiter = acquire(a);
	step(a, LK__ASK);
	refuse(a, LK__CONFIRM, "NOSCRIPT no matching script");
	assert_waits(waiter);
	step(a, LK__CONFIRM);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

/* ---- What is not covered ------------------------------------------------------------------ */

TEST(permits_of_a_rate_are_not_counted_by_replicas)
{
	struct lk__op *waiter;

	start_fixed_permits(1, 1000);
	a->session.replicas = NEEDED;
	follow(0);
	waiter = forget_some(a, 1);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(w.runs[LK__CONFIRM], 0);
	virt_pass(&w, 2000);
	end();
}
