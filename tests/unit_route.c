/* SPDX-License-Identifier: MIT
 * A Cluster's routes in virtual time: names move between links, and requests follow redirects. */
#include "base/slot.h"
#include "test.h"
#include "virtual_cluster.h"

#include <stdlib.h>
#include <string.h>

#define OWNER 2

/* ---- The text of a redirect ---------------------------------------------------------------- */

TEST(redirect_names_a_slot_and_a_place)
{
	struct lk__redirect redirect;

	ck_assert(lk__redirect_parse("12182 127.0.0.1:6381", &redirect));
	ck_assert_uint_eq(redirect.slot, 12182);
	ck_assert_str_eq(redirect.place.host, "127.0.0.1");
	ck_assert_int_eq(redirect.place.port, 6381);
	ck_assert(lk__redirect_parse("0 ::1:1", &redirect));
	ck_assert_str_eq(redirect.place.host, "::1");
	ck_assert_int_eq(redirect.place.port, 1);
	ck_assert(lk__redirect_parse("16383 :65535", &redirect));
	ck_assert_uint_eq(redirect.slot, 16383);
	ck_assert_str_eq(redirect.place.host, "");
	ck_assert_int_eq(redirect.place.port, 65535);
}

TEST(malformed_redirect_is_refused)
{
	static const char *const bad[] = {
		"",
		" ",
		"5",
		"5 ",
		"5 host",
		"5 host:",
		":7000",
		" host:7000",
		"5host:1",
		"-1 h:7",
		"16384 h:7000",
		"99999999999 h:1",
		"5 h:0",
		"5 h:65536",
		"5 h:7x",
		"5 h: 700",
		"5:7000",
		"5 h:99999999999999999999",
		"x h:70",
	};
	struct lk__redirect redirect;
	char longest[LK_HOST_SIZE + 16];

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ck_assert_msg(!lk__redirect_parse(bad[i], &redirect), "\"%s\"", bad[i]);
	memset(longest, 'h', sizeof(longest));
	memcpy(longest, "5 ", 2);
	memcpy(longest + 2 + LK_HOST_SIZE - 1, ":70", 4);
	ck_assert(lk__redirect_parse(longest, &redirect));
	memset(longest + 2, 'h', LK_HOST_SIZE);
	memcpy(longest + 2 + LK_HOST_SIZE, ":70", 4);
	ck_assert(!lk__redirect_parse(longest, &redirect));
}

/* ---- Routes -------------------------------------------------------------------------------- */

TEST(name_is_on_the_link_of_its_slots_owner)
{
	struct lk__wait_queue *one, *other;
	struct lk__op *first, *second;

	vc_start();
	vc_own("a", 1);
	vc_own("b", 2);
	ck_assert_ptr_eq(lk__core_route(&vc.core, "a", 1), &vc.links[1]);
	/* A slot without a known owner: any link that is up. */
	vc_link_down(0);
	ck_assert_ptr_eq(lk__core_route(&vc.core, "c", 1), &vc.links[1]);
	one = vc_open(LK_KIND_LOCK, "a", false);
	other = vc_open(LK_KIND_LOCK, "b", false);
	first = vc_acquire(one, OWNER);
	second = vc_acquire(other, OWNER);
	vc_granted(vc_take(1, LK__ASK));
	vc_granted(vc_take(2, LK__ASK));
	vc_done(first, LK_OK);
	vc_done(second, LK_OK);
	ck_assert_uint_eq(vc.links[0].users, 0);
	ck_assert_uint_eq(vc.links[1].users, 1);
	ck_assert_uint_eq(vc.links[2].users, 1);
	ck_assert(lk__core_has_slots(&vc.core, &vc.links[1]));
	ck_assert(!lk__core_has_slots(&vc.core, &vc.links[0]));
	vc_release(one, OWNER);
	vc_release(other, OWNER);
	vc_left(vc_take(1, LK__LEAVE), true, false);
	vc_left(vc_take(2, LK__LEAVE), true, false);
	vc_end();
}

TEST(link_on_demand_is_dialled_only_while_it_is_needed)
{
	struct lk__wait_queue *lock;
	struct lk__op *op;

	vc_start();
	vc_own("a", 3);
	ck_assert_int_eq(lk__session_due(&vc.links[3], LK__NEVER), LK__NEVER);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	ck_assert_int_eq(lk__session_due(&vc.links[3], LK__NEVER), LK__NEVER);
	op = vc_acquire(lock, OWNER);
	ck_assert_int_eq(lk__session_next(&vc.links[3], vc.now_ns, LK__NEVER), LK__DUTY_DIAL);
	vc_link_up(3);
	vc_granted(vc_take(3, LK__ASK));
	vc_release(lock, OWNER);
	vc_left(vc_take(3, LK__LEAVE), true, false);
	vc_done(op, LK_OK);
	vc_link_down(3);
	ck_assert_int_eq(lk__session_due(&vc.links[3], LK__NEVER), LK__NEVER);
	vc_end();
}

/* ---- MOVED --------------------------------------------------------------------------------- */

TEST(moved_request_is_sent_to_the_new_link_once)
{
	struct lk__wait_queue *lock;
	struct lk__op *op;

	vc_start();
	vc_own("a", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	op = vc_acquire(lock, OWNER);
	vc_moved(vc_take(0, LK__ASK), 1);
	vc_idle(0);
	vc_granted(vc_take(1, LK__ASK));
	vc_idle(1);
	vc_done(op, LK_OK);
	ck_assert_uint_eq(vc.links[0].users, 0);
	ck_assert_uint_eq(vc.links[1].users, 1);
	vc_release(lock, OWNER);
	vc_moved(vc_take(1, LK__LEAVE), 2);
	vc_idle(1);
	/* It was not run at the old one: this one shows no loss. */
	op = vc_op(lock, OWNER);
	vc_left(vc_take(2, LK__LEAVE), true, false);
	vc_end();
}

TEST(loss_before_a_redirected_release_is_reported)
{
	struct lk__wait_queue *lock;
	struct lk__op *op;

	vc_start();
	vc_own("a", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	vc_acquire(lock, OWNER);
	vc_granted(vc_take(0, LK__ASK));
	op = vc_release(lock, OWNER);
	/* Sent there this time only, which is not a second leave. */
	vc_asked(vc_take(0, LK__LEAVE), 1);
	vc_left(vc_take(1, LK__LEAVE), false, false);
	vc_done(op, LK_ELOST);
	vc_end();
}

TEST(all_names_of_a_moved_slot_move_and_no_others)
{
	struct lk__wait_queue *lock, *twin, *other;

	vc_start();
	vc_own("a", 0);
	vc_own("b", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	twin = vc_open(LK_KIND_LOCK, vc_twin("a"), false);
	other = vc_open(LK_KIND_LOCK, "b", false);
	vc_acquire(twin, OWNER);
	vc_granted(vc_take(0, LK__ASK));
	vc_acquire(other, OWNER);
	vc_granted(vc_take(0, LK__ASK));
	vc_acquire(lock, OWNER);
	vc_moved(vc_take(0, LK__ASK), 1);
	ck_assert_ptr_eq(twin->name->session, &vc.links[1]);
	ck_assert_ptr_eq(other->name->session, &vc.links[0]);
	ck_assert_int_eq(vc_state(twin, OWNER), LK_STATE_UNSURE);
	ck_assert_int_eq(vc_state(other, OWNER), LK_STATE_HELD);
	/* In the order of the tickets: the newest first. */
	vc_granted(vc_take(1, LK__ASK));
	vc_kept(vc_take(1, LK__RECLAIM), 0);
	ck_assert_int_eq(vc_state(twin, OWNER), LK_STATE_HELD);
	vc_idle(0);
	vc_idle(1);
	vc_release(lock, OWNER);
	vc_release(twin, OWNER);
	vc_release(other, OWNER);
	vc_left(vc_take(1, LK__LEAVE), true, false);
	vc_left(vc_take(1, LK__LEAVE), true, false);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_end();
}

/* What has no known owner is found by asking any server; the one that has it need not be left. */
TEST(hold_in_a_slot_without_a_known_owner_stays_on_its_link)
{
	struct lk__wait_queue *lock;

	vc_start();
	vc_link_down(0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	vc_acquire(lock, OWNER);
	vc_granted(vc_take(1, LK__ASK));
	vc_link_up(0);
	vc_give("b", 2);
	ck_assert_ptr_eq(lock->name->session, &vc.links[1]);
	ck_assert_int_eq(vc_state(lock, OWNER), LK_STATE_HELD);
	vc_release(lock, OWNER);
	vc_left(vc_take(1, LK__LEAVE), true, false);
	vc_end();
}

/* ---- Loops --------------------------------------------------------------------------------- */

static int follow(enum lk__request_kind kind, bool asked)
{
	int hops = 0, at = 0;

	for (; lk__core_has_requests(&vc.core) && hops < 50; hops++, at = !at) {
		struct lk__pending *request = vc_take(at, kind);
		if (asked)
			vc_asked(request, !at);
		else
			vc_moved(request, !at);
		vc_idle(at);
	}
	return hops;
}

TEST(redirects_in_a_circle_end_with_a_delay)
{
	struct lk__wait_queue *lock;
	struct lk__op *op;

	vc_start();
	vc_own("a", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	op = vc_acquire(lock, OWNER);
	ck_assert_int_eq(follow(LK__ASK, false), LK__HOPS_MAX + 1);
	ck_assert(strstr(vc.core.refusal.text, "redirect to each other"));
	vc_waits(op);
	vc_pass(50);
	vc_idle(0);
	vc_idle(1);
	vc_pass(60);
	vc_granted(vc_take(0, LK__ASK)); /* the last redirect counts, too */
	vc_done(op, LK_OK);
	vc_release(lock, OWNER);
	/* It counts anew after an answer. */
	for (int i = 0; i < LK__HOPS_MAX; i++)
		vc_moved(vc_take(i % 2, LK__LEAVE), !(i % 2));
	vc_left(vc_take(1, LK__LEAVE), true, false);
	vc_end();
}

TEST(redirects_count_anew_after_a_pause)
{
	struct lk__wait_queue *lock;
	struct lk__op *op;

	vc_start();
	vc_own("a", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	op = vc_acquire(lock, OWNER);
	ck_assert_int_eq(follow(LK__ASK, false), LK__HOPS_MAX + 1);
	vc_pass(110);
	ck_assert_int_eq(follow(LK__ASK, false), LK__HOPS_MAX + 1);
	vc_waits(op);
	vc_pass(210);
	vc_granted(vc_take(0, LK__ASK));
	vc_done(op, LK_OK);
	vc_release(lock, OWNER);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_end();
}

TEST(circle_of_asks_ends_with_a_delay)
{
	struct lk__wait_queue *lock;
	struct lk__op *op;

	vc_start();
	vc_own("a", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	op = vc_acquire(lock, OWNER);
	ck_assert_int_eq(follow(LK__ASK, true), LK__HOPS_MAX + 1);
	vc_waits(op);
	vc_pass(50);
	vc_idle(0);
	vc_pass(60);
	vc_granted(vc_take(0, LK__ASK));
	vc_release(lock, OWNER);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_end();
}

TEST(query_follows_redirects_until_they_are_too_many)
{
	struct lk__query *query = lk__query_new(LK__KIND, LK_KIND_NONE, "a", 1);
	struct lk__query *lost = lk__query_new(LK__KIND, LK_KIND_NONE, "a", 1);
	struct lk__op op = {0}, other = {0};
	struct lk__pending *request;

	vc_start();
	vc_own("a", 0);
	lk__core_query(&vc.core, &vc.links[0], vc.now_ns, &op, &query, 1);
	request = vc_take(0, LK__KIND);
	vc_asked(request, 1);
	request = vc_take(1, LK__KIND);
	ck_assert(vc_request(request).asking && vc_request(request).by_text);
	vc_moved(request, 2);
	request = vc_take(2, LK__KIND);
	ck_assert(!vc_request(request).asking && vc_request(request).by_text);
	vc_answer(request, (struct lk__answer){.kind = LK__IS, .noun = LK_KIND_LOCK});
	ck_assert(op.done && op.why.err == LK_OK);
	lk__core_query(&vc.core, &vc.links[0], vc.now_ns, &other, &lost, 1);
	ck_assert_int_eq(follow(LK__KIND, false), LK__HOPS_MAX + 1);
	ck_assert(other.done && other.why.err == LK_EAGAIN);
	ck_assert(strstr(other.why.text, "redirect to each other"));
	lk__query_free(&vc.core, query);
	lk__query_free(&vc.core, lost);
	vc_end();
}

TEST(moved_question_for_the_marker_is_answered_as_transient)
{
	struct lk__wait_queue *lock;

	vc_start();
	vc_own("a", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	vc_acquire(lock, OWNER);
	lk__memory_ask(&vc.links[0]);
	vc_granted(vc_take(0, LK__ASK));
	vc_pass(2600);
	lk__core_moved(&vc.core, vc.now_ns, vc_take(0, LK__EPOCH), lk__slot_of("a", 1),
	               &vc.links[1]);
	ck_assert_int_eq(vc.links[0].memory.state, LK__IDLE);
	ck_assert_ptr_eq(lock->name->session, &vc.links[1]);
	ck_assert_ptr_null(lk__core_next_lost(&vc.core));
	vc_release(lock, OWNER);
	vc_left(vc_take(1, LK__LEAVE), true, false);
	vc_end();
}

/* ---- Latches ------------------------------------------------------------------------------- */

TEST(latch_follows_redirects)
{
	struct lk__wait_queue *latch;
	struct lk__op *waiter, *step;
	struct lk__pending *request;

	vc_start();
	vc_own("l", 0);
	latch = vc_open(LK_KIND_LATCH, "l", false);
	waiter = vc_await(latch);
	vc_moved(vc_take(0, LK__LOOK), 1);
	vc_idle(0);
	vc_shown(vc_take(1, LK__LOOK), LK_LATCH_COUNTING, 7);
	vc_subscribed(1, "lk:l:{l}");
	vc_shown(vc_take(1, LK__LOOK), LK_LATCH_COUNTING, 7);
	ck_assert_uint_eq(vc.links[0].users, 0);
	ck_assert_uint_eq(vc.links[1].users, 1);
	step = vc_step(latch);
	vc_asked(vc_take(1, LK__STEP), 2);
	request = vc_take(2, LK__STEP);
	ck_assert(vc_request(request).asking);
	ck_assert_uint_eq(vc_request(request).number, 1);
	vc_answer(request, (struct lk__answer){.kind = LK__STEPPED, .counted = true});
	vc_done(step, LK_OK);
	ck_assert(step->counted);
	ck_assert_ptr_eq(latch->name->session, &vc.links[1]);
	vc_idle(1);
	step = vc_step(latch);
	vc_moved(vc_take(1, LK__STEP), 2);
	vc_idle(1);
	vc_shown(vc_take(2, LK__LOOK), LK_LATCH_OPEN, 7);
	vc_answer(vc_take(2, LK__STEP), (struct lk__answer){.kind = LK__STEPPED, .counted = true});
	vc_done(step, LK_OK);
	vc_idle(2);
	vc_done(waiter, LK_OK);
	vc_end();
}

/* ---- ASK ----------------------------------------------------------------------------------- */

TEST(asked_request_is_sent_there_once_and_the_next_one_is_not)
{
	struct lk__wait_queue *lock;
	struct lk__pending *request;
	struct lk__op *op;

	vc_start();
	vc_own("a", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	op = vc_acquire(lock, OWNER);
	vc_asked(vc_take(0, LK__ASK), 1);
	vc_idle(0);
	request = vc_take(1, LK__ASK);
	ck_assert(vc_request(request).asking);
	vc_granted(request);
	vc_idle(1);
	vc_done(op, LK_OK);
	ck_assert_ptr_eq(lock->name->session, &vc.links[0]);
	ck_assert_uint_eq(vc.links[1].users, 0);
	vc_pass(VC_LEASE_MS / 3 + 200);
	request = vc_take(0, LK__RENEW);
	ck_assert(!vc_request(request).asking);
	vc_kept(request, 0);
	vc_release(lock, OWNER);
	request = vc_take(0, LK__LEAVE);
	ck_assert(!vc_request(request).asking);
	vc_left(request, true, false);
	vc_end();
}

TEST(asked_request_whose_link_is_lost_is_asked_again_at_the_old_one)
{
	struct lk__wait_queue *lock;
	struct lk__op *op;

	vc_start();
	vc_own("a", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	op = vc_acquire(lock, OWNER);
	vc_asked(vc_take(0, LK__ASK), 1);
	vc_take(1, LK__ASK);
	vc_link_down(1); /* in flight */
	vc_link_up(1);
	vc_idle(1);
	vc_asked(vc_take(0, LK__ASK), 1);
	vc_link_down(1); /* queued there */
	vc_idle(1);
	ck_assert(!vc_request(vc_take(0, LK__ASK)).asking);
	/* The old link instead, while it is asked elsewhere: it only waits there. */
	vc_asked(&lock->ticket->main, 2);
	vc_link_down(0);
	vc_granted(vc_take(2, LK__ASK));
	vc_done(op, LK_OK);
	vc_link_up(0);
	vc_kept(vc_take(0, LK__RENEW), 0);
	vc_release(lock, OWNER);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_end();
}

TEST(asked_request_waits_for_a_dial_and_returns_if_it_fails)
{
	struct lk__wait_queue *lock, *latch;
	struct lk__op *op, *waiter;

	vc_start();
	vc_own("a", 0);
	vc_own("l", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	latch = vc_open(LK_KIND_LATCH, "l", false);
	op = vc_acquire(lock, OWNER);
	waiter = vc_await(latch);
	vc_asked(vc_take(0, LK__ASK), 3);
	vc_asked(vc_take(0, LK__LOOK), 3);
	ck_assert_int_eq(lk__session_next(&vc.links[3], vc.now_ns, LK__NEVER), LK__DUTY_DIAL);
	lk__session_dial_failed(&vc.links[3], vc.now_ns, &(struct lk__why){.err = LK_ECONN}, 0);
	lk__core_link_unreached(&vc.core, &vc.links[3], vc.now_ns);
	ck_assert_int_eq(lk__session_due(&vc.links[3], LK__NEVER), LK__NEVER);
	vc_granted(vc_take(0, LK__ASK));
	vc_shown(vc_take(0, LK__LOOK), LK_LATCH_OPEN, 7);
	vc_done(op, LK_OK);
	vc_done(waiter, LK_OK);
	vc_release(lock, OWNER);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_end();
}

TEST(wait_that_ends_while_it_is_asked_elsewhere_leaves_after_the_answer)
{
	struct lk__wait_queue *lock;
	struct lk__pending *request;
	struct lk__op *op;

	vc_start();
	vc_own("a", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	op = vc_acquire(lock, OWNER);
	vc_asked(vc_take(0, LK__ASK), 1);
	request = vc_take(1, LK__ASK);
	vc_give_up(op);
	/* A leave would overtake the ask, which goes over another connection. */
	vc_idle(0);
	vc_idle(1);
	vc_granted(request);
	vc_asked(vc_take(0, LK__LEAVE), 1);
	request = vc_take(1, LK__LEAVE);
	ck_assert(vc_request(request).asking);
	vc_left(request, true, false);
	vc_done(op, LK_ECANCELED);
	vc_end();
}

/* The store does not know the script: the ask was not run, and is not repeated. */
TEST(wait_that_ends_while_it_is_asked_elsewhere_leaves_though_the_ask_was_not_run)
{
	struct lk__wait_queue *lock;
	struct lk__pending *request;
	struct lk__op *op;

	vc_start();
	vc_own("a", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	op = vc_acquire(lock, OWNER);
	vc_asked(vc_take(0, LK__ASK), 1);
	request = vc_take(1, LK__ASK);
	vc_give_up(op);
	vc_idle(0);
	ck_assert(!lk__core_resend(&vc.core, request));
	vc_idle(1);
	vc_left(vc_take(0, LK__LEAVE), false, false);
	vc_done(op, LK_ECANCELED);
	vc_end();
}

TEST(release_while_its_hand_is_asked_elsewhere_leaves_though_that_was_refused)
{
	struct lk__wait_queue *lock;
	struct lk__pending *request;
	struct lk__op *op;

	vc_start();
	vc_own("a", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	vc_acquire(lock, OWNER);
	vc_answer(vc_take(0, LK__ASK), (struct lk__answer){.kind = LK__GRANTED,
	                                                   .fence = ++vc.fence,
	                                                   .store_us = vc_store_us(),
	                                                   .more = true});
	vc_asked(vc_take(0, LK__HAND), 1);
	request = vc_take(1, LK__HAND);
	op = vc_release(lock, OWNER);
	vc_idle(0);
	vc_divided(request);
	vc_left(vc_take(0, LK__LEAVE), true, false);
	vc_done(op, LK_OK);
	vc_end();
}

TEST(ask_of_a_wait_that_has_ended_is_not_redirected)
{
	struct lk__wait_queue *lock;
	struct lk__pending *request;

	vc_start();
	vc_own("a", 0);
	lock = vc_open(LK_KIND_LOCK, "a", false);
	vc_give_up((vc_acquire(lock, OWNER)));
	vc_idle(0);
	vc_acquire(lock, OWNER);
	request = vc_take(0, LK__ASK);
	vc_give_up(vc.ops[1]);
	vc_asked(request, 1);
	vc_idle(1);
	vc_left(vc_take(0, LK__LEAVE), false, false);
	vc_done(vc.ops[1], LK_ECANCELED);
	vc_end();
}
