/* SPDX-License-Identifier: MIT
 * Which responses a call on a quorum need not read before another one: those without which a
 * majority cannot decide.  In virtual time: harness/virtual_quorum.h. */
#include "harness/test.h"
#include "harness/virtual_quorum.h"

/* All requests of that client are sent, and none is executed. */
static void send_all(int client)
{
	for (int i = 0; i < vq.servers; i++)
		while (vq_send(client, i))
			continue;
}

static void answer(int client, int server)
{
	ck_assert(vq_execute(client, server));
	ck_assert(vq_reply(client, server));
}

static void spares(const struct lk__op *op, unsigned servers)
{
	ck_assert_uint_eq(lk__quorum_spared(op, vq.now_ns), servers);
}

TEST(first_grants_are_read_with_the_one_that_decides)
{
	struct lk__op *op;

	vq_start(5, 1);
	op = vq_acquire(0);
	spares(op, 0); /* nothing is in flight */
	send_all(0);
	spares(op, 1 | 2);
	answer(0, 4);
	spares(op, 1);
	answer(0, 2);
	spares(op, 0);
	answer(0, 0);
	vq_done(op, LK_OK);
	vq_settle();
	vq_release(0);
	vq_settle();
	vq_end();
}

/* The grants come as messages then. */
TEST(last_answer_to_a_waiter_decides_nothing)
{
	struct lk__op *op;

	vq_start(3, 2);
	vq_acquire(0);
	vq_settle();
	op = vq_acquire(1);
	send_all(1);
	spares(op, 1);
	answer(1, 0);
	spares(op, 2);
	answer(1, 1);
	spares(op, 4);
	vq_release(0);
	send_all(0);
	answer(0, 0);
	ck_assert(vq_hear(1, 0));
	spares(op, 0);
	vq_settle();
	vq_done(op, LK_OK);
	vq_release(1);
	vq_settle();
	vq_end();
}

/* Two servers that are held decide against it, as two that grant do for it. */
TEST(try_reads_the_answer_that_may_end_it)
{
	struct lk__op *op;

	vq_start(3, 2);
	vq_acquire(0);
	vq_settle();
	op = vq_try(1);
	send_all(1);
	spares(op, 1);
	answer(1, 2);
	spares(op, 0);
	answer(1, 0);
	vq_settle();
	vq_done(op, LK_EBUSY);
	vq_release(0);
	vq_settle();
	vq_end();
}

TEST(server_that_is_down_is_not_waited_for)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_down(0);
	op = vq_acquire(0);
	send_all(0);
	spares(op, 2);
	answer(0, 2);
	spares(op, 0);
	answer(0, 1);
	vq_done(op, LK_OK);
	vq_up(0);
	vq_settle();
	vq_release(0);
	vq_settle();
	vq_end();
}

TEST(refusals_decide_as_grants_do)
{
	struct lk__op *op;

	vq_start(3, 1);
	op = vq_acquire(0);
	vq_refuse(0, 2, "NOPERM no right");
	send_all(0);
	spares(op, 0);
	vq_refuse(0, 1, "NOPERM no right");
	vq_settle();
	vq_done(op, LK_EAUTH);
	vq_end();
}

TEST(first_confirmations_of_a_release_are_read_with_the_one_that_decides)
{
	struct lk__op *op;

	vq_start(5, 1);
	vq_acquire(0);
	vq_settle();
	op = vq_release(0);
	send_all(0);
	spares(op, 1 | 2);
	answer(0, 0);
	spares(op, 2);
	answer(0, 1);
	spares(op, 0);
	answer(0, 2);
	vq_done(op, LK_OK);
	spares(op, 0);
	vq_settle();
	vq_end();
}

TEST(answers_to_an_extension_are_read_at_once)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_acquire(0);
	vq_settle();
	op = vq_extend(0, 5000);
	send_all(0);
	spares(op, 0);
	vq_settle();
	vq_done(op, LK_OK);
	vq_release(0);
	vq_settle();
	vq_end();
}
