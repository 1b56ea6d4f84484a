/* SPDX-License-Identifier: MIT
 * Leases over a quorum that are not renewed, in virtual time: harness/virtual_quorum.h. */
#include "harness/test.h"
#include "harness/virtual_quorum.h"

#include <stdio.h>

static struct lk__wait_queue *queue;

static void start(int servers, int clients)
{
	vq_start(servers, clients);
	/* Instead of the client's own handle: vq_hold() and others take this one. */
	queue = vq_open(0, "name", VQ_LEASE_MS, true);
	vq.client[0].queue = queue;
}

TEST(fixed_lease_ends_after_its_length)
{
	struct lk__op *op;

	start(3, 2);
	op = vq_acquire(0);
	vq_settle();
	vq_done(op, LK_OK);
	ck_assert_int_eq(vq.runs[LK__RENEW], 0);
	op = vq_acquire(1);
	vq_pass(VQ_LEASE_MS - 100);
	ck_assert_int_eq(vq_state(0), LK_STATE_HELD);
	vq_waits(op);
	vq_pass(300);
	ck_assert_int_eq(vq_state(0), LK_STATE_LOST);
	vq_done(op, LK_OK);
	vq_release(0);
	vq_release(1);
	vq_settle();
	vq_end();
}

/* A leg is granted long before the majority is: the hold must not begin with what is left of it. */
TEST(fixed_lease_begins_whole)
{
	struct lk__op *op;
	char class[16], fence[32];

	start(3, 1);
	vq_down(1);
	vq_down(2);
	vq_up(1);
	/* So the first leg needs no commit, which would renew it. */
	snprintf(class, sizeof(class), "%u", lk__slot_of("name", 4) % 1024);
	snprintf(fence, sizeof(fence), "%lld", (long long)vq_store_us(0) + 4000000);
	lua_store_text(vq.server[0].store, "HSET", "lk:fences", class, fence, NULL);
	op = vq_acquire(0);
	ck_assert(vq_send(0, 0) && vq_execute(0, 0) && vq_reply(0, 0));
	vq_set_time(vq.now_ns + VQ_LEASE_MS / 2 * VQ_MS);
	vq_settle();
	vq_done(op, LK_OK);
	ck_assert_int_gt(lk__hold_left_ns(vq_hold(0), vq.now_ns), VQ_LEASE_MS * 8 / 10 * VQ_MS);
	vq_up(2);
	vq_release(0);
	vq_settle();
	vq_end();
}

/* Each round trip takes longer than a tenth of the lease. */
TEST(fixed_lease_begins_over_a_slow_network)
{
	struct lk__op *op;

	start(3, 1);
	op = vq_acquire(0);
	for (int i = 0; i < 4 && !op->done; i++) {
		for (int j = 0; j < 3; j++)
			if (vq_send(0, j))
				vq_execute(0, j);
		vq_set_time(vq.now_ns + VQ_LEASE_MS / 5 * VQ_MS);
		lk__core_tick(&vq.client[0].core, vq.now_ns);
		for (int j = 0; j < 3; j++)
			vq_reply(0, j);
	}
	vq_done(op, LK_OK);
	vq_settle();
	vq_release(0);
	vq_settle();
	vq_end();
}

TEST(fixed_hold_asks_no_further_server)
{
	struct lk__op *op;

	start(3, 1);
	vq_down(2);
	op = vq_acquire(0);
	vq_settle();
	vq_done(op, LK_OK);
	vq_up(2);
	vq_pass(VQ_LEASE_MS / 2);
	ck_assert_str_eq(vq_value(2), "");
	ck_assert_int_eq(vq_state(0), LK_STATE_HELD);
	vq_release(0);
	vq_settle();
	vq_end();
}

TEST(fixed_hold_can_be_extended)
{
	struct lk__op *op;

	start(3, 1);
	vq_acquire(0);
	vq_settle();
	vq_pass(VQ_LEASE_MS - 500);
	op = vq_extend(0, VQ_LEASE_MS);
	vq_settle();
	vq_done(op, LK_OK);
	vq_pass(VQ_LEASE_MS - 200);
	ck_assert_int_eq(vq_state(0), LK_STATE_HELD);
	vq_release(0);
	vq_settle();
	vq_end();
}

TEST(refused_renewals_are_not_repeated_at_once)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_down(2);
	lua_store_text(vq.server[0].store, "HSET", "lk:fences", "x", "1", NULL);
	op = vq_acquire(0);
	vq_settle();
	vq_done(op, LK_OK);
	lua_store_refuse(vq.server[0].store, "PTTL", NULL);
	vq_pass(VQ_LEASE_MS / 2);
	lua_store_refuse(vq.server[0].store, NULL, NULL);
	ck_assert_int_le(vq.runs[LK__RENEW], 12);
	vq_pass(VQ_LEASE_MS);
	ck_assert_int_eq(vq_state(0), LK_STATE_HELD);
	vq_up(2);
	vq_release(0);
	vq_settle();
	vq_end();
}

TEST(lost_renewal_is_sent_again)
{
	vq_start(3, 1);
	vq_down(2);
	vq_acquire(0);
	vq_settle();
	vq_set_time(vq.now_ns + VQ_LEASE_MS / 2 * VQ_MS);
	lk__core_tick(&vq.client[0].core, vq.now_ns);
	ck_assert(vq_send(0, 0));
	vq_cut(0, 0, false);
	vq_join(0, 0);
	vq_settle();
	ck_assert_int_eq(vq_state(0), LK_STATE_HELD);
	vq_up(2);
	vq_release(0);
	vq_settle();
	vq_end();
}
