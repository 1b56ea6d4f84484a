/* SPDX-License-Identifier: MIT
 * A client of Sentinel that was stopped, in virtual time: until the sentinels have named its server
 * again, nothing that makes or prolongs a hold counts. */
#include "virtual_fixture.h"

#include "memory_fixture.h"

#include <string.h>

#define LONG 10000
#define PAUSE 2000

static void start_watched(int64_t lease_ms)
{
	start(lease_ms);
	for (int i = 0; i < w.client_count; i++)
		lk__vouch_begin(&w.clients[i].session, w.now_ns);
}

static void vouched(struct virt_client *client)
{
	lk__core_vouched(&client->core, &client->session, w.now_ns);
}

static void unvouched(struct virt_client *client)
{
	const struct lk__why why = {.err = LK_ECONN, .text = "no sentinel, refused"};

	lk__core_unvouched(&client->core, &client->session, w.now_ns, &why);
}

/* The client waits, and what it waits for is free when it goes on after a pause. */
static struct lk__op *wait_through_a_pause(void)
{
	struct lk__op *waiter;

	hold(b);
	waiter = wait_for(a);
	stop(a);
	query_break(w.store, noun->kind, "s", "");
	later(LK__REASK_MAX_MS + PAUSE);
	a->session.state = LK__SESSION_UP;
	return waiter;
}

TEST_NOUNS(client_that_runs_is_granted_at_once)
{
	start_watched(LONG);
	later(1000);
	hold(a);
	virt_pass(&w, 60000);
	ck_assert_int_eq(a->session.vouch.pauses, 0);
	release(a);
	end();
}

TEST_NOUNS(caller_after_a_pause_is_granted_when_sentinels_have_named_the_server)
{
	struct lk__op *waiter;
	int64_t sent_ns;

	start_watched(LONG);
	later(PAUSE);
	waiter = acquire(a);
	sent_ns = w.now_ns;
	ck_assert_int_eq(a->session.vouch.pauses, 1);
	step(a, LK__ASK);
	later(100);
	assert_waits(waiter);
	ck_assert_ptr_null(held(a));
	assert_no_request(a);
	vouched(a);
	assert_done(waiter, LK_OK);
	/* The lease counts from the request, as ever. */
	ck_assert_int_eq(left_ns(a), sent_ns + LONG * VIRT_MS - lk__margin_ns(LONG) - w.now_ns);
	release(a);
	end();
}

TEST_NOUNS(waiter_after_a_pause_is_granted_when_sentinels_have_named_the_server)
{
	struct lk__op *waiter;

	start_watched(LONG);
	waiter = wait_through_a_pause();
	tick(a);
	step(a, LK__ASK);
	assert_waits(waiter);
	vouched(a);
	assert_done(waiter, LK_OK);
	release(a);
	release_lost(b);
	end();
}

TEST_NOUNS(message_after_a_pause_is_claimed_and_the_claim_is_kept)
{
	struct lk__op *waiter;

	start_watched(LONG);
	hold(b);
	waiter = wait_for(a);
	leave(b);
	later(PAUSE);
	virt_hear(a);
	assert_waits(waiter);
	step(a, LK__RENEW);
	assert_waits(waiter);
	vouched(a);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

TEST_NOUNS(grant_that_was_kept_is_forgotten_with_the_link)
{
	struct lk__op *waiter;

	start_watched(LONG);
	later(PAUSE);
	waiter = acquire(a);
	step(a, LK__ASK);
	virt_link_down(a, LK_EUNKNOWN); /* a sentinel has named another server */
	flush();
	vouched(a);
	assert_waits(waiter);
	ck_assert_ptr_null(held(a));
	lk__vouch_begin(&a->session, w.now_ns);
	virt_link_up(a);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

TEST_NOUNS(grant_that_was_kept_for_too_long_is_none)
{
	struct lk__op *waiter;

	start_watched(1000);
	later(PAUSE);
	waiter = acquire(a);
	step(a, LK__ASK);
	later(1000);
	vouched(a);
	assert_waits(waiter);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

TEST_NOUNS(wait_that_ends_before_the_sentinels_answer_leaves_and_says_why)
{
	struct lk__op *waiter;

	start_watched(LONG);
	later(PAUSE);
	waiter = acquire(a);
	step(a, LK__ASK);
	virt_give_up(a, waiter, LK_ETIMEDOUT);
	step(a, LK__LEAVE);
	assert_done(waiter, LK_ETIMEDOUT);
	ck_assert_str_eq(waiter->why.text, "not acquired in time: after a pause of this client, no "
	                                   "sentinel confirmed the master");
	ck_assert_int_eq(used(), 0);
	vouched(a);
	end();
}

TEST_NOUNS(second_pause_asks_the_sentinels_once_more)
{
	struct lk__op *waiter;

	start_watched(LONG);
	later(PAUSE);
	waiter = acquire(a);
	later(PAUSE);
	step(a, LK__ASK);
	ck_assert_int_eq(a->session.vouch.pauses, 2);
	later(PAUSE);
	unvouched(a);
	tick(a);
	ck_assert_int_eq(a->session.vouch.pauses, 3);
	ck_assert(!a->session.vouch.is_alone);
	assert_waits(waiter);
	vouched(a);
	virt_pass(&w, 1000);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

/* ---- Holds ---------------------------------------------------------------------------------- */

TEST_NOUNS(renewal_after_a_pause_prolongs_nothing_before_sentinels_answer)
{
	int64_t until_ns;

	start_watched(LONG);
	hold(a);
	until_ns = w.now_ns + left_ns(a);
	later(LONG / 2);
	tick(a);
	step(a, LK__RENEW);
	ck_assert_int_eq(w.now_ns + left_ns(a), until_ns);
	vouched(a);
	ck_assert_int_gt(w.now_ns + left_ns(a), until_ns);
	release(a);
	end();
}

TEST_NOUNS(hold_goes_on_without_sentinels)
{
	int64_t until_ns;

	start_watched(LONG);
	hold(a);
	until_ns = w.now_ns + left_ns(a);
	later(LONG / 2);
	tick(a);
	step(a, LK__RENEW);
	unvouched(a);
	ck_assert_int_gt(w.now_ns + left_ns(a), until_ns);
	virt_pass(&w, 2 * LONG);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	release(a);
	end();
}

/* It runs on, although nothing needs the link, so that it is not taken for one that was stopped. */
TEST_NOUNS(idle_client_whose_sentinels_are_gone_goes_on)
{
	start_watched(LONG);
	a->session.unwatched_ns = w.now_ns + 1000 * VIRT_MS;
	virt_pass(&w, 60000);
	hold(a);
	ck_assert_int_eq(a->session.vouch.pauses, 0);
	release(a);
	end();
}

/* So that stalls of a busy machine do not end it, when silent sentinels take a command timeout to
 * fail. */
TEST_NOUNS(hold_goes_on_at_once_if_sentinels_were_gone_before_the_pause)
{
	struct lk__op *attempt;
	int64_t until_ns;

	start_watched(LONG);
	hold(a);
	a->session.unwatched_ns = w.now_ns + 1000 * LONG * VIRT_MS;
	until_ns = w.now_ns + left_ns(a);
	later(LONG / 2);
	tick(a);
	step(a, LK__RENEW);
	ck_assert_int_gt(w.now_ns + left_ns(a), until_ns);
	release(a);
	attempt = try(a);
	virt_settle(&w);
	assert_done(attempt, LK_ECONN);
	vouched(a);
	end();
}

TEST_NOUNS(without_sentinels_nothing_new_is_granted)
{
	struct lk__op *waiter, *attempt;

	start_watched(LONG);
	later(PAUSE);
	waiter = acquire(a);
	step(a, LK__ASK);
	unvouched(a);
	assert_waits(waiter);
	virt_pass(&w, 3000);
	ck_assert_int_gt(w.runs[LK__ASK], 2); /* it is repeated */
	assert_waits(waiter);
	virt_give_up(a, waiter, LK_ETIMEDOUT);
	virt_settle(&w);
	assert_done(waiter, LK_ETIMEDOUT);
	attempt = try(a);
	virt_settle(&w);
	assert_done(attempt, LK_ECONN);
	ck_assert_str_eq(attempt->why.text, "no sentinel, refused");
	ck_assert_int_eq(used(), 0);
	vouched(a);
	hold(a);
	release(a);
	end();
}

TEST_NOUNS(grant_that_was_refused_counts_when_a_sentinel_answers)
{
	struct lk__op *waiter;

	start_watched(LONG);
	later(PAUSE);
	waiter = acquire(a);
	step(a, LK__ASK);
	unvouched(a);
	virt_pass(&w, 500);
	assert_waits(waiter);
	vouched(a);
	virt_pass(&w, 1000);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

/* ---- Both ----------------------------------------------------------------------------------- */

TEST_NOUNS(grant_that_replicas_have_confirmed_is_still_kept)
{
	struct lk__op *waiter;

	start_watched(LONG);
	lk__session_need_replicas(&a->session, 1);
	lua_store_process(w.store)->replicas = 1;
	later(PAUSE);
	waiter = acquire(a);
	step(a, LK__ASK);
	step(a, LK__CONFIRM);
	assert_waits(waiter);
	vouched(a);
	assert_done(waiter, LK_OK);
	release(a);
	end();
}

TEST_NOUNS(link_without_sentinels_knows_no_pause)
{
	start(LONG);
	later(100 * PAUSE);
	hold(a);
	ck_assert_int_eq(a->session.vouch.pauses, 0);
	release(a);
	end();
}
