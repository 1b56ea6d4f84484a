/* SPDX-License-Identifier: MIT
 * Releases of a hold that a majority of the servers had ended, and nothing told the holder; in
 * virtual time: harness/virtual_quorum.h. */
#include "harness/test.h"
#include "harness/virtual_quorum.h"

static void end_leg(int server)
{
	lua_store_text(vq.server[server].store, "DEL", "lk:{name}", NULL);
}

static void leave(int server)
{
	ck_assert(vq_send(0, server) && vq_execute(0, server) && vq_reply(0, server));
}

static void hold(void)
{
	vq_acquire(0);
	vq_settle();
}

/* Its two legs would make a majority with what the third server says. */
TEST(release_waits_for_the_server_that_decides_whether_the_hold_stood)
{
	struct lk__op *op;

	vq_start(3, 1);
	hold();
	end_leg(0);
	end_leg(1);
	op = vq_release(0);
	leave(2);
	leave(0);
	vq_waits(op);
	leave(1);
	vq_done(op, LK_ELOST);
	ck_assert_int_eq(op->lost, LK_LOST_TAKEN);
	ck_assert_int_eq(vq.client[0].core.counters.lost[LK_LOST_TAKEN], 1);
	vq_settle();
	vq_end();
}

TEST(release_of_a_hold_that_stood_is_successful_whoever_answers_first)
{
	struct lk__op *op;

	vq_start(3, 1);
	hold();
	end_leg(1);
	op = vq_release(0);
	leave(1);
	leave(0);
	vq_waits(op);
	leave(2);
	vq_done(op, LK_OK);
	vq_settle();
	vq_end();
}

/* The hold had no leg on the third server, and the second one hangs. */
TEST(release_waits_for_no_server_that_hangs_if_no_leg_is_missing)
{
	struct lk__wait_queue *queue;
	struct lk__op *op;

	vq_start(3, 1);
	queue = vq_open(0, "name", VQ_LEASE_MS, true);
	vq.client[0].queue = queue;
	vq_down(2);
	hold();
	vq_up(2);
	vq_settle();
	op = vq_release(0);
	while (vq_send(0, 2) && vq_execute(0, 2) && vq_reply(0, 2))
		;
	leave(0);
	vq_done(op, LK_OK);
	vq_settle();
	vq_end();
}

/* It cannot be known whether the server that hangs had the leg. */
TEST(release_is_unknown_if_a_leg_is_missing_and_another_server_hangs)
{
	struct lk__op *op;

	vq_start(3, 1);
	hold();
	end_leg(0);
	op = vq_release(0);
	leave(0);
	leave(2);
	vq_set_time(vq.now_ns + VQ_TIMEOUT_MS * VQ_MS - 1);
	lk__core_tick(&vq.client[0].core, vq.now_ns);
	vq_waits(op);
	vq_set_time(vq.now_ns + 1);
	lk__core_tick(&vq.client[0].core, vq.now_ns);
	vq_done(op, LK_EUNKNOWN);
	ck_assert(!lk__core_unconfirmed(&vq.client[0].core, vq.now_ns));
	vq_settle();
	vq_end();
}

/* Otherwise a release would take its whole time for as long as that server is down. */
TEST(release_waits_for_no_server_that_goes_down)
{
	struct lk__op *op;

	vq_start(3, 1);
	hold();
	end_leg(0);
	op = vq_release(0);
	leave(0);
	leave(2);
	vq_waits(op);
	vq_down(1);
	vq_done(op, LK_OK);
	vq_up(1);
	vq_settle();
	vq_end();
}

/* The second server is down; the first one has forgotten the leg, but has granted nothing since. */
TEST(release_waits_for_no_server_that_is_down_if_no_leg_is_missing)
{
	struct lk__op *op;

	vq_start(3, 1);
	hold();
	vq_restart_empty(0);
	op = vq_release(0);
	vq_down(1);
	vq_settle();
	vq_done(op, LK_OK);
	vq_up(1);
	vq_settle();
	vq_end();
}
