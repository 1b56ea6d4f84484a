/* SPDX-License-Identifier: MIT
 * What comes late or twice on a quorum, in virtual time: harness/virtual_quorum.h. */
#include "harness/test.h"
#include "harness/virtual_quorum.h"

#include <stdio.h>
#include <string.h>

static void end_hold(int client)
{
	vq_release(client);
	vq_settle();
	vq_end();
}

/* Renewals were executed in time, but two of three replies come when the hold is over. */
TEST(late_replies_do_not_revive_a_hold)
{
	struct lk__op *op;

	vq_start(3, 2);
	vq_acquire(0);
	vq_settle();
	vq_set_time(vq.now_ns + VQ_LEASE_MS / 2 * VQ_MS);
	lk__core_tick(&vq.client[0].core, vq.now_ns);
	for (int i = 0; i < 3; i++)
		ck_assert(vq_send(0, i) && vq_execute(0, i));
	ck_assert(vq_reply(0, 0));
	vq_set_time(vq.now_ns + VQ_LEASE_MS * 6 / 10 * VQ_MS);
	for (int i = 1; i < 3; i++)
		vq_reply(0, i);
	ck_assert_int_eq(vq_state(0), LK_STATE_LOST);
	op = vq_release(0);
	vq_done(op, LK_ELOST);
	vq_settle();
	vq_end();
}

/* A leg is yielded; the message that granted it comes after that. */
TEST(late_grant_of_a_yielded_epoch_is_not_believed)
{
	struct lk__op *older, *younger;
	struct lk__message late = {
		.kind = LK__GRANT, .lease_ms = VQ_LEASE_MS, .life_ms = VQ_LEASE_MS};

	vq_start(3, 2);
	vq_down(2);
	older = vq_acquire(0);
	ck_assert(vq_send(0, 0) && vq_execute(0, 0) && vq_reply(0, 0));
	vq_set_time(vq.now_ns + VQ_MS);
	younger = vq_acquire(1);
	ck_assert(vq_send(1, 1) && vq_execute(1, 1) && vq_reply(1, 1));
	late.fence = vq_leg(1, 1)->fence;
	late.store_us = vq_store_us(1);
	late.from = &vq.client[1].links[1].session;
	late.priority = vq_leg(1, 1)->arrival;
	memcpy(late.nonce, vq_leg(1, 1)->nonce, sizeof(late.nonce));
	vq_settle();
	vq_done(older, LK_OK);
	ck_assert_int_eq(vq_leg(1, 1)->epoch, 1);
	lk__core_message(&vq.client[1].core, vq.now_ns, &late);
	ck_assert_int_ne(vq_leg(1, 1)->state, LK__HOLDING);
	vq_settle();
	vq_waits(younger);
	vq_release(0);
	vq_settle();
	vq_done(younger, LK_OK);
	vq_up(2);
	end_hold(1);
}

/* An ask of a lost connection is executed when its epoch is over, and is granted. */
TEST(grant_of_an_epoch_that_is_over_is_given_back)
{
	struct lk__op *op;
	char ticket[160];

	vq_start(3, 2);
	vq_down(1);
	vq_acquire(1);
	vq_settle();
	op = vq_acquire(0);
	vq_settle();
	vq_waits(op);
	/* The leg has yielded since. */
	vq_leg(0, 0)->epoch = 1;
	snprintf(ticket, sizeof(ticket), "q1:aclient_AAAAAAAAAAAAAA:%s:%d:r:%llu:0",
	         vq_leg(0, 0)->nonce, VQ_LEASE_MS, (unsigned long long)vq_leg(0, 0)->arrival);
	vq_release(1);
	vq_settle();
	vq_pass(100);
	vq_done(op, LK_OK);
	ck_assert_str_ne(vq_value(0), "");
	ck_assert_msg(strncmp(vq_value(0), ticket, strlen(ticket)) != 0, "%s", vq_value(0));
	vq_up(1);
	end_hold(0);
}

/* The younger client has yielded its leg on server 1, where the older one waits no longer: the lock
 * is granted to the next epoch of the leg, by a message that is not read yet. */
static struct lk__op *yield_and_get_back(void)
{
	struct lk__op *older, *younger;

	vq_start(3, 2);
	vq_down(2);
	older = vq_acquire(0);
	ck_assert(vq_send(0, 0) && vq_execute(0, 0) && vq_reply(0, 0));
	vq_set_time(vq.now_ns + VQ_MS);
	younger = vq_acquire(1);
	ck_assert(vq_send(1, 1) && vq_execute(1, 1) && vq_reply(1, 1));
	ck_assert(vq_send(0, 1) && vq_execute(0, 1) && vq_reply(0, 1));
	ck_assert(vq_hear(1, 1));
	ck_assert(vq_send(1, 1) && vq_execute(1, 1));
	vq_give_up(0, older, LK_ECANCELED);
	for (int i = 0; i < 2; i++)
		ck_assert(vq_send(0, i) && vq_execute(0, i) && vq_reply(0, i));
	ck_assert_int_eq(vq.client[1].links[1].message_count, 1);
	return younger;
}

/* The reply to a yield comes when the grant to the next epoch is over. */
TEST(late_reply_to_a_yield_lets_the_leg_go_on)
{
	struct lk__op *op = yield_and_get_back();

	ck_assert(vq_hear(1, 1));
	ck_assert_int_eq(vq_leg(1, 1)->state, LK__HOLDING);
	vq_set_time(vq.now_ns + VQ_LEASE_MS * VQ_MS);
	lk__core_tick(&vq.client[1].core, vq.now_ns);
	ck_assert(vq_reply(1, 1));
	vq_pass(2 * VQ_LEASE_MS);
	vq_done(op, LK_OK);
	vq_up(2);
	end_hold(1);
}

/* Were it answered with another yield, the grant on its way would be of an old epoch, too. */
TEST(late_grant_of_an_old_epoch_makes_the_next_one_no_old_one)
{
	struct lk__message late = {
		.kind = LK__GRANT, .lease_ms = VQ_LEASE_MS, .life_ms = VQ_LEASE_MS};
	struct lk__op *op = yield_and_get_back();

	ck_assert(vq_reply(1, 1));
	late.fence = 1;
	late.store_us = vq_store_us(1);
	late.from = &vq.client[1].links[1].session;
	late.priority = vq_leg(1, 1)->arrival;
	memcpy(late.nonce, vq_leg(1, 1)->nonce, sizeof(late.nonce));
	lk__core_message(&vq.client[1].core, vq.now_ns, &late);
	while (vq_send(1, 1))
		ck_assert(vq_execute(1, 1) && vq_reply(1, 1));
	ck_assert(vq_hear(1, 1));
	ck_assert_int_eq(vq_leg(1, 1)->epoch, 1);
	ck_assert_int_eq(vq_leg(1, 1)->state, LK__HOLDING);
	vq_settle();
	vq_pass(VQ_LEASE_MS);
	vq_done(op, LK_OK);
	vq_up(2);
	end_hold(1);
}

/* The grant was made by the memory before, and is read after the new marker. */
TEST(grant_of_a_forgotten_memory_is_not_believed)
{
	struct lk__message late = {
		.kind = LK__GRANT, .lease_ms = VQ_LEASE_MS, .life_ms = VQ_LEASE_MS};
	struct lk__op *op;

	vq_start(3, 2);
	vq_acquire(1);
	vq_settle();
	op = vq_acquire(0);
	vq_settle();
	late.fence = 1;
	late.store_us = vq_store_us(0);
	late.from = &vq.client[0].links[0].session;
	memcpy(late.nonce, vq_leg(0, 0)->nonce, sizeof(late.nonce));
	vq_set_time(vq.now_ns + VQ_MS);
	vq_restart_empty(0);
	vq_settle();
	lk__core_message(&vq.client[0].core, vq.now_ns, &late);
	ck_assert_int_ne(vq_leg(0, 0)->state, LK__HOLDING);
	vq_waits(op);
	vq_release(1);
	vq_settle();
	vq_done(op, LK_OK);
	end_hold(0);
}

TEST(refused_commit_is_repeated_after_a_pause)
{
	char class[16], fence[32];
	struct lk__op *op;

	vq_start(3, 1);
	vq_down(2);
	snprintf(class, sizeof(class), "%u", lk__slot_of("name", 4) % 1024);
	snprintf(fence, sizeof(fence), "%lld", (long long)vq_store_us(1) + 1000000);
	lua_store_text(vq.server[1].store, "HSET", "lk:fences", class, fence, NULL);
	op = vq_acquire(0);
	for (int i = 0; i < 2; i++)
		ck_assert(vq_send(0, i) && vq_execute(0, i) && vq_reply(0, i));
	vq_refuse(0, 0, "LOADING not yet");
	vq_settle();
	vq_waits(op);
	vq_pass(300);
	vq_done(op, LK_OK);
	ck_assert_int_eq(vq.runs[LK__RENEW], 2);
	vq_up(2);
	end_hold(0);
}

/* The proposed fences lie at the median of the clocks. */
TEST(clocks_that_differ_cost_nothing)
{
	struct lk__op *op;

	vq_start(3, 1);
	for (int i = 0; i < 3; i++) {
		vq_cut(0, i, false);
		vq_set_clock(i, (i - 1) * INT64_C(1500000));
		vq_join(0, i);
	}
	vq_pass(VQ_LONGEST_MS + 5000); /* a clock that was set back makes a server young */
	vq.runs[LK__RENEW] = 0;
	op = vq_acquire(0);
	vq_settle();
	vq_done(op, LK_OK);
	ck_assert_int_eq(vq.runs[LK__RENEW], 0);
	ck_assert_uint_gt(op->fence, (uint64_t)vq_store_us(1) - 100000);
	ck_assert_uint_lt(op->fence, (uint64_t)vq_store_us(1) + 100000);
	end_hold(0);
}
