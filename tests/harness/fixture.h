/* SPDX-License-Identifier: MIT
 * Shared by the tests of locks in virtual time: three clients a, b and c with one handle each on
 * the lock "a", and steps that tests would otherwise repeat.  All of it is static: the names are
 * short. */
#ifndef FIXTURE_H
#define FIXTURE_H

#include "test.h"
#include "virtual.h"

#define FIXTURE __attribute__((unused)) static

FIXTURE struct virt v;
FIXTURE struct virt_client *const a = &v.clients[0];
FIXTURE struct virt_client *const b = &v.clients[1];
FIXTURE struct virt_client *const c = &v.clients[2];
FIXTURE struct lk__wait_queue *pa, *pb, *pc;

FIXTURE void start_with(int64_t lease_ms, bool fixed)
{
	virt_init(&v, 3, test_seed());
	pa = virt_open(a, "a", lease_ms, fixed);
	pb = virt_open(b, "a", lease_ms, fixed);
	pc = virt_open(c, "a", lease_ms, fixed);
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
	virt_settle(&v);
	ck_assert_msg(virt_at_rest(&v), "something is left");
	virt_fini(&v);
}

FIXTURE void assert_done(const struct lk__op *waiter, lk_err err)
{
	ck_assert_msg(waiter->done, "not done, expected %s", lk_err_name(err));
	ck_assert_str_eq(lk_err_name(waiter->why.err), lk_err_name(err));
}

/* Owner 2 acquires and releases; everything pending is delivered. */
FIXTURE void hold(struct virt_client *client, struct lk__wait_queue *queue)
{
	struct lk__op *waiter = virt_acquire(client, queue, 2);

	virt_settle(&v);
	assert_done(waiter, LK_OK);
}

FIXTURE void release(struct virt_client *client, struct lk__wait_queue *queue)
{
	struct lk__op *waiter = virt_release(client, queue, 2);

	virt_settle(&v);
	assert_done(waiter, LK_OK);
}

/* Acknowledge a loss. */
FIXTURE void release_lost(struct virt_client *client, struct lk__wait_queue *queue)
{
	assert_done(virt_release(client, queue, 2), LK_ELOST);
	virt_settle(&v);
}

/* Let time pass and assert that nothing happens. */
FIXTURE void later(int64_t ms)
{
	virt_set_time(&v, v.now_ns + ms * VIRT_MS);
}

FIXTURE void tick(struct virt_client *client)
{
	lk__core_tick(&client->core, virt_now(client));
}

/* Send, execute and answer the next request; assert its kind. */
FIXTURE void step(struct virt_client *client, enum lk__request_kind kind)
{
	struct virt_call call;

	ck_assert_msg(virt_take(client, &call), "there is no request");
	ck_assert_int_eq(call.bytes.kind, kind);
	virt_execute(client, &call);
	virt_answer(client, &call);
}

/* The one unreported loss; it stays pending until lk__core_loss_reported(). */
FIXTURE struct lk__hold *next_loss(struct virt_client *client, lk_lost_reason reason)
{
	struct lk__hold *lost = lk__core_next_lost(&client->core);

	ck_assert_msg(lost != NULL, "no loss to report, expected %s", lk_lost_reason_name(reason));
	ck_assert_str_eq(lk_lost_reason_name(lost->lost), lk_lost_reason_name(reason));
	ck_assert_ptr_null(lk__core_next_lost(&client->core));
	return lost;
}

#endif
