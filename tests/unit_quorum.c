/* SPDX-License-Identifier: MIT
 * A lock over a quorum, in virtual time, with the shipped scripts: see harness/virtual_quorum.h. */
#include "harness/test.h"
#include "harness/virtual_quorum.h"

#include <stdio.h>
#include <string.h>

static void acquire_and_release(int client)
{
	struct lk__op *op = vq_acquire(client);

	vq_settle();
	vq_done(op, LK_OK);
	op = vq_release(client);
	vq_settle();
	vq_done(op, LK_OK);
}

static void delete_key(int server)
{
	lua_store_text(vq.server[server].store, "DEL", "lk:{name}", NULL);
}

/* ---- Grants ------------------------------------------------------------------------------- */

TEST(free_lock_costs_a_request_a_server)
{
	struct lk__op *op;

	vq_start(3, 1);
	op = vq_acquire(0);
	vq_settle();
	vq_done(op, LK_OK);
	ck_assert_uint_gt(op->fence, 0);
	ck_assert_int_eq(vq_state(0), LK_STATE_HELD);
	ck_assert_int_eq(vq.runs[LK__ASK], 3);
	ck_assert_int_eq(vq.runs[LK__RENEW], 0);
	op = vq_release(0);
	vq_settle();
	vq_done(op, LK_OK);
	ck_assert_int_eq(vq.runs[LK__LEAVE], 3);
	vq_end();
}

TEST(waiters_are_granted_in_order_by_messages)
{
	struct lk__op *ops[4];
	uint64_t fence = 0;

	vq_start(3, 4);
	for (int i = 0; i < 4; i++) {
		ops[i] = vq_acquire(i);
		vq_pass(10);
	}
	ck_assert_int_eq(vq.runs[LK__ASK], 12);
	for (int i = 0; i < 4; i++) {
		vq_done(ops[i], LK_OK);
		ck_assert_uint_gt(ops[i]->fence, fence);
		fence = ops[i]->fence;
		if (i < 3)
			vq_waits(ops[i + 1]);
		vq_release(i);
		vq_settle();
	}
	ck_assert_int_eq(vq.runs[LK__ASK], 12);
	ck_assert_int_eq(vq.runs[LK__LEAVE], 12);
	ck_assert_int_eq(vq.runs[LK__RENEW], 0);
	vq_end();
}

TEST(waiter_of_a_long_time_claims_its_grants)
{
	struct lk__op *op;

	vq_start(3, 2);
	vq_acquire(0);
	vq_settle();
	op = vq_acquire(1);
	vq_pass(8000);
	vq_waits(op);
	vq_release(0);
	vq_settle();
	vq_done(op, LK_OK);
	ck_assert_int_eq(vq_state(1), LK_STATE_HELD);
	vq_release(1);
	vq_settle();
	vq_end();
}

TEST(oldest_ticket_wins_a_split_vote)
{
	struct lk__op *ops[3];

	vq_start(3, 3);
	for (int i = 0; i < 3; i++) {
		ops[i] = vq_acquire(i);
		vq_set_time(vq.now_ns + VQ_MS);
		/* Each is granted one server. */
		ck_assert(vq_send(i, i) && vq_execute(i, i));
	}
	vq_settle();
	vq_done(ops[0], LK_OK);
	vq_waits(ops[1]);
	vq_waits(ops[2]);
	ck_assert_int_ge(vq.runs[LK__YIELD], 2);
	ck_assert_int_le(vq.runs[LK__YIELD], 4);
	for (int i = 0; i < 3; i++) {
		vq_done(ops[i], LK_OK);
		vq_release(i);
		vq_settle();
	}
	vq_end();
}

TEST(younger_ticket_with_a_majority_keeps_it)
{
	struct lk__op *older, *younger;

	vq_start(3, 2);
	older = vq_acquire(0);
	ck_assert(vq_send(0, 2) && vq_execute(0, 2));
	vq_set_time(vq.now_ns + VQ_MS);
	younger = vq_acquire(1);
	for (int i = 0; i < 2; i++) {
		ck_assert(vq_send(1, i) && vq_execute(1, i));
		vq_reply(1, i);
	}
	vq_done(younger, LK_OK);
	vq_settle();
	vq_waits(older);
	ck_assert_int_eq(vq_state(1), LK_STATE_HELD);
	vq_release(1);
	vq_settle();
	vq_done(older, LK_OK);
	vq_release(0);
	vq_settle();
	vq_end();
}

/* The message that an older ticket waits is lost: the next renewal's answer says so. */
TEST(lost_message_of_an_older_waiter_is_made_good_by_a_renewal)
{
	struct lk__op *ops[2];

	vq_start(3, 2);
	ops[0] = vq_acquire(0);
	ck_assert(vq_send(0, 0) && vq_execute(0, 0));
	vq_set_time(vq.now_ns + VQ_MS);
	vq_down(2);
	ops[1] = vq_acquire(1);
	ck_assert(vq_send(1, 1) && vq_execute(1, 1) && vq_reply(1, 1));
	vq_waits(ops[1]);
	ck_assert(vq_send(0, 1) && vq_execute(0, 1));
	ck_assert_int_eq(vq.client[1].links[1].message_count, 1);
	vq.client[1].links[1].message_count = 0;
	vq_settle();
	vq_waits(ops[0]);
	vq_pass(VQ_LEASE_MS / 2);
	vq_done(ops[0], LK_OK);
	vq_release(0);
	vq_settle();
	vq_done(ops[1], LK_OK);
	vq_release(1);
	vq_settle();
	vq_end();
}

/* ---- Fences ------------------------------------------------------------------------------- */

static void raise_counter(int server, int64_t ahead_us)
{
	char class[16], fence[32];

	snprintf(class, sizeof(class), "%u", lk__slot_of("name", 4) % 1024);
	snprintf(fence, sizeof(fence), "%lld", (long long)(vq_store_us(server) + ahead_us));
	lua_store_text(vq.server[server].store, "HSET", "lk:fences", class, fence, NULL);
}

TEST(one_counter_that_is_ahead_costs_nothing)
{
	struct lk__op *op;

	vq_start(3, 1);
	raise_counter(2, 1000000);
	op = vq_acquire(0);
	vq_settle();
	vq_done(op, LK_OK);
	ck_assert_int_eq(vq.runs[LK__RENEW], 0);
	ck_assert_uint_lt(op->fence, (uint64_t)vq_store_us(2) + 1000000);
	vq_release(0);
	vq_settle();
	vq_end();
}

/* The client writes to one server after the other. */
static void send_slowly(int client)
{
	for (int i = 0; i < 3; i++) {
		ck_assert(vq_send(client, i));
		vq_set_time(vq.now_ns + VQ_MS / 10);
	}
	vq_settle();
}

TEST(requests_of_one_moment_propose_one_fence)
{
	struct lk__op *first, *second;

	vq_start(3, 2);
	first = vq_acquire(0);
	send_slowly(0);
	vq_done(first, LK_OK);
	ck_assert_int_eq(vq.runs[LK__RENEW], 0);
	second = vq_acquire(1);
	vq_settle();
	vq_pass(500);
	vq_release(0);
	send_slowly(0);
	vq_done(second, LK_OK);
	ck_assert_int_eq(vq.runs[LK__RENEW], 0);
	vq_release(1);
	vq_settle();
	vq_end();
}

TEST(counters_that_differ_are_raised_before_the_hold_begins)
{
	struct lk__op *op;

	vq_start(3, 1);
	raise_counter(1, 1000000);
	raise_counter(2, 2000000);
	op = vq_acquire(0);
	for (int i = 0; i < 3; i++) {
		ck_assert(vq_send(0, i) && vq_execute(0, i));
		vq_reply(0, i);
	}
	vq_waits(op);
	vq_settle();
	vq_done(op, LK_OK);
	ck_assert_uint_eq(op->fence, (uint64_t)vq_store_us(1) + 1000001);
	ck_assert_int_eq(vq.runs[LK__RENEW], 1);
	vq_release(0);
	vq_settle();
	acquire_and_release(0);
	vq_end();
}

TEST(fences_grow_through_any_two_majorities)
{
	vq_start(3, 2);
	for (int i = 0; i < 12; i++) {
		vq_down(i % 3);
		acquire_and_release(i % 2); /* vq_check() compares the fences */
		vq_up(i % 3);
		vq_pass(5);
	}
	vq_end();
}

/* ---- Holds -------------------------------------------------------------------------------- */

TEST(hold_is_renewed_at_each_server)
{
	struct lk__op *op;

	vq_start(3, 2);
	vq_acquire(0);
	vq_pass(20000);
	ck_assert_int_eq(vq_state(0), LK_STATE_HELD);
	ck_assert_int_ge(vq.runs[LK__RENEW], 3 * 18);
	ck_assert_int_le(vq.runs[LK__RENEW], 3 * 24);
	op = vq_release(0);
	vq_settle();
	vq_done(op, LK_OK);
	vq_end();
}

TEST(minority_that_is_down_is_not_missed)
{
	struct lk__op *op;

	vq_start(3, 2);
	vq_down(1);
	acquire_and_release(0);
	op = vq_acquire(0);
	vq_settle();
	vq_done(op, LK_OK);
	op = vq_acquire(1);
	vq_pass(5000);
	vq_waits(op);
	vq_up(1);
	vq_pass(5000);
	ck_assert_int_eq(vq_leg(0, 1)->state, LK__HOLDING);
	vq_release(0);
	vq_settle();
	vq_done(op, LK_OK);
	vq_release(1);
	vq_settle();
	vq_end();
}

TEST(hold_that_loses_its_majority_is_lost_in_time)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_acquire(0);
	vq_pass(100);
	vq_down(0);
	vq_pass(VQ_LEASE_MS + 100);
	ck_assert_int_eq(vq_state(0), LK_STATE_HELD);
	vq_down(2);
	ck_assert_int_eq(vq_state(0), LK_STATE_UNSURE);
	vq_pass(VQ_LEASE_MS / 3);
	ck_assert_int_eq(vq_state(0), LK_STATE_UNSURE);
	vq_pass(VQ_LEASE_MS);
	ck_assert_int_eq(vq_state(0), LK_STATE_LOST);
	vq_up(0);
	vq_up(2);
	op = vq_release(0);
	vq_done(op, LK_ELOST);
	ck_assert_int_eq(op->lost, LK_LOST_EXPIRED);
	vq_pass(VQ_LEASE_MS);
	vq_end();
}

TEST(leg_that_another_program_deletes_is_acquired_again)
{
	vq_start(3, 1);
	vq_acquire(0);
	vq_settle();
	delete_key(1);
	vq_pass(VQ_LEASE_MS / 2);
	ck_assert_int_eq(vq_state(0), LK_STATE_HELD);
	ck_assert(vq_value(1)[0]);
	vq_release(0);
	vq_settle();
	vq_end();
}

TEST(majority_of_deleted_legs_is_a_loss)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_acquire(0);
	vq_settle();
	for (int i = 0; i < 2; i++)
		lua_store_text(vq.server[i].store, "SET", "lk:{name}",
		               "q1:bclient_AAAAAAAAAAAAAA:AAAAAAAAAAA:3000:r:1:0 9 3000 -", "PX",
		               "1000", NULL);
	vq_pass(VQ_LEASE_MS / 2);
	op = vq_release(0);
	vq_done(op, LK_ELOST);
	ck_assert_int_eq(op->lost, LK_LOST_TAKEN);
	vq_pass(VQ_LEASE_MS);
	vq_end();
}

TEST(release_reports_a_hold_that_was_lost_before)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_acquire(0);
	vq_settle();
	delete_key(0);
	op = vq_release(0);
	vq_settle();
	vq_done(op, LK_OK);
	vq_acquire(0);
	vq_settle();
	delete_key(0);
	delete_key(1);
	op = vq_release(0);
	vq_settle();
	vq_done(op, LK_ELOST);
	ck_assert_int_eq(vq.client[0].core.counters.lost[LK_LOST_TAKEN], 1);
	vq_end();
}

TEST(release_without_a_majority_is_unknown)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_acquire(0);
	vq_settle();
	vq_down(0);
	vq_down(1);
	op = vq_release(0);
	vq_pass(VQ_TIMEOUT_MS - 1);
	vq_waits(op);
	vq_pass(1);
	vq_done(op, LK_EUNKNOWN);
	vq_up(0);
	vq_up(1);
	vq_settle();
	vq_end();
}

TEST(release_is_confirmed_by_a_majority)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_acquire(0);
	vq_settle();
	op = vq_release(0);
	for (int i = 0; i < 2; i++) {
		vq_waits(op);
		ck_assert(vq_send(0, i) && vq_execute(0, i) && vq_reply(0, i));
	}
	vq_done(op, LK_OK);
	ck_assert(!lk__core_unconfirmed(&vq.client[0].core, vq.now_ns));
	ck_assert(lk__core_busy(&vq.client[0].core));
	vq_settle();
	vq_end();
}

/* ---- Memory ------------------------------------------------------------------------------- */

TEST(server_that_restarts_empty_grants_nothing_for_the_longest_lease)
{
	struct lk__op *op;

	vq_start(3, 2);
	vq_acquire(0);
	vq_settle();
	vq_restart_empty(1);
	vq_pass(1000);
	ck_assert_int_eq(vq_state(0), LK_STATE_HELD);
	ck_assert_str_eq(vq_value(1), "");
	vq_down(2);
	op = vq_acquire(1); /* must not get the young server */
	vq_pass(VQ_LEASE_MS * 2);
	vq_waits(op);
	ck_assert_str_eq(vq_value(1), "");
	vq_up(2);
	vq_release(0);
	vq_settle();
	vq_pass(VQ_LEASE_MS);
	vq_done(op, LK_OK);
	vq_pass(VQ_LONGEST_MS);
	ck_assert(vq_value(1)[0]);
	vq_release(1);
	vq_settle();
	vq_end();
}

TEST(majority_that_restarts_empty_ends_the_hold)
{
	struct lk__op *op;

	vq_start(3, 2);
	vq_acquire(0);
	vq_settle();
	vq_restart_empty(0);
	ck_assert_int_eq(vq_state(0), LK_STATE_HELD);
	vq_restart_empty(1);
	ck_assert_int_eq(vq_state(0), LK_STATE_LOST);
	vq_settle();
	op = vq_acquire(1);
	vq_pass(VQ_LONGEST_MS - 1000);
	vq_waits(op);
	vq_pass(2000);
	vq_done(op, LK_OK);
	op = vq_release(0);
	vq_done(op, LK_ELOST);
	ck_assert_int_eq(op->lost, LK_LOST_TAKEN);
	vq_release(1);
	vq_settle();
	vq_end();
}

/* The others are down: it ends with its lease. */
TEST(minority_that_restarts_empty_takes_no_hold)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_acquire(0);
	vq_settle();
	vq_restart_empty(0);
	vq_settle();
	vq_down(1);
	vq_down(2);
	ck_assert_int_ne(vq_state(0), LK_STATE_LOST);
	vq_pass(VQ_LEASE_MS);
	ck_assert_int_eq(vq_state(0), LK_STATE_LOST);
	vq_up(1);
	vq_up(2);
	op = vq_release(0);
	vq_done(op, LK_ELOST);
	ck_assert_int_eq(op->lost, LK_LOST_EXPIRED);
	vq_pass(VQ_LEASE_MS);
	vq_end();
}

/* ---- Breaks ------------------------------------------------------------------------------- */

TEST(break_at_one_server_ends_the_hold)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_acquire(0);
	vq_settle();
	lk__core_message(&vq.client[0].core, vq.now_ns, &(struct lk__message){0});
	{
		struct lk__message broken = {.kind = LK__BROKEN,
		                             .lease_ms = VQ_LEASE_MS,
		                             .from = &vq.client[0].links[1].session};
		memcpy(broken.nonce, vq.client[0].queue->ticket->nonce, sizeof(broken.nonce));
		lk__core_message(&vq.client[0].core, vq.now_ns, &broken);
	}
	op = vq_release(0);
	vq_done(op, LK_ELOST);
	ck_assert_int_eq(op->lost, LK_LOST_BROKEN);
	vq_settle();
	vq_end();
}
