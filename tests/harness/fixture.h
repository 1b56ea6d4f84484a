/* SPDX-License-Identifier: MIT
 * Shared by the tests of locks in virtual time: three clients a, b and c with one handle each on
 * the lock "a", and steps that tests would otherwise repeat.  All of it is static: the names are
 * short. */
#ifndef FIXTURE_H
#define FIXTURE_H

#include "test.h"
#include "old_virtual.h"

#define FIXTURE __attribute__((unused)) static

FIXTURE struct old_virt v;
FIXTURE struct old_virt_client *const a = &v.clients[0];
FIXTURE struct old_virt_client *const b = &v.clients[1];
FIXTURE struct old_virt_client *const c = &v.clients[2];
FIXTURE struct lk__wait_queue *pa, *pb, *pc;

FIXTURE void start_with(int64_t lease_ms, bool fixed)
{
	old_virt_init(&v, 3, test_seed());
	pa = old_virt_open(a, "a", lease_ms, fixed);
	pb = old_virt_open(b, "a", lease_ms, fixed);
	pc = old_virt_open(c, "a", lease_ms, fixed);
}

FIXTURE void start(int64_t lease_ms)
{
	start_with(lease_ms, false);
}

FIXTURE void start_fixed(int64_t lease_ms)
{
	start_with(lease_ms, true);
}

/* Assert that nothing is left. */
FIXTURE void end(void)
{
	old_virt_settle(&v);
	ck_assert_msg(old_virt_at_rest(&v), "something is left");
	old_virt_fini(&v);
}

FIXTURE void assert_done(const struct lk__op *waiter, lk_err err)
{
	ck_assert_msg(waiter->done, "not done, expected %s", lk_err_name(err));
	ck_assert_str_eq(lk_err_name(waiter->why.err), lk_err_name(err));
}

/* Owner 2 acquires and releases; everything pending is delivered. */
FIXTURE void hold(struct old_virt_client *client, struct lk__wait_queue *queue)
{
	struct lk__op *waiter = old_virt_acquire(client, queue, 2);

	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
}

FIXTURE void release(struct old_virt_client *client, struct lk__wait_queue *queue)
{
	struct lk__op *waiter = old_virt_release(client, queue, 2);

	old_virt_settle(&v);
	assert_done(waiter, LK_OK);
}

/* Acknowledge a loss. */
FIXTURE void release_lost(struct old_virt_client *client, struct lk__wait_queue *queue)
{
	assert_done(old_virt_release(client, queue, 2), LK_ELOST);
	old_virt_settle(&v);
}

/* Let time pass and assert that nothing happens. */
FIXTURE void later(int64_t ms)
{
	old_virt_set_time(&v, v.now_ns + ms * OLD_VIRT_MS);
}

FIXTURE void tick(struct old_virt_client *client)
{
	lk__core_tick(&client->core, old_virt_now(client));
}

/* Send, execute and answer the next request; assert its kind. */
FIXTURE void step(struct old_virt_client *client, enum lk__request_kind kind)
{
	struct old_virt_call call;

	ck_assert_msg(old_virt_take(client, &call), "there is no request");
	ck_assert_int_eq(call.bytes.kind, kind);
	old_virt_execute(client, &call);
	old_virt_answer(client, &call);
}

/* The one unreported loss; it stays pending until lk__core_loss_reported(). */
FIXTURE struct lk__hold *next_loss(struct old_virt_client *client, lk_lost_reason reason)
{
	struct lk__hold *lost = lk__core_next_lost(&client->core);

	ck_assert_msg(lost != NULL, "no loss to report, expected %s", lk_lost_reason_name(reason));
	ck_assert_str_eq(lk_lost_reason_name(lost->lost), lk_lost_reason_name(reason));
	ck_assert_ptr_null(lk__core_next_lost(&client->core));
	return lost;
}

#endif
