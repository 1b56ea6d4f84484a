/* SPDX-License-Identifier: MIT
 * Shared by the tests of semaphores in virtual time: four clients a, b, c and d with one handle
 * each on the semaphore "s", and steps that tests would otherwise repeat.  All of it is static: the
 * names are short. */
#ifndef VIRTUAL_PERMITS_H
#define VIRTUAL_PERMITS_H

#include "virtual.h"
#include "test.h"

#include <string.h>

#define FIXTURE __attribute__((unused)) static

FIXTURE struct virt w;
FIXTURE struct virt_client *const a = &w.clients[0];
FIXTURE struct virt_client *const b = &w.clients[1];
FIXTURE struct virt_client *const c = &w.clients[2];
FIXTURE struct virt_client *const d = &w.clients[3];
FIXTURE struct lk__wait_queue *pa, *pb, *pc, *pd;
FIXTURE struct permits_view view;

FIXTURE void start_with(uint32_t capacity, int64_t lease_ms, bool fixed)
{
	virt_init(&w, 4, test_seed());
	pa = virt_open_semaphore(a, "s", capacity, lease_ms, fixed);
	pb = virt_open_semaphore(b, "s", capacity, lease_ms, fixed);
	pc = virt_open_semaphore(c, "s", capacity, lease_ms, fixed);
	pd = virt_open_semaphore(d, "s", capacity, lease_ms, fixed);
	permits_set(&w, "s", "open", capacity);
}

FIXTURE void start(uint32_t capacity, int64_t lease_ms)
{
	start_with(capacity, lease_ms, false);
}

FIXTURE void start_fixed(uint32_t capacity, int64_t lease_ms)
{
	start_with(capacity, lease_ms, true);
}

/* Assert that nothing is left. */
FIXTURE void end(void)
{
	virt_settle(&w);
	permits_look(&w, "s", &view);
	ck_assert_msg(virt_nothing_left(&w, "s"), "left: used %lld, %d holds, %d wait, %s",
	              (long long)view.used, view.hold_count, view.queued,
	              a->core.all_tickets || b->core.all_tickets ? "tickets" : "no tickets");
	virt_fini(&w);
}

FIXTURE void assert_done(const struct lk__op *waiter, lk_err err)
{
	ck_assert_msg(waiter->done, "not done, expected %s", lk_err_name(err));
	ck_assert_str_eq(lk_err_name(waiter->why.err), lk_err_name(err));
}

FIXTURE void assert_waits(const struct lk__op *waiter)
{
	ck_assert_msg(!waiter->done, "done with %s", lk_err_name(waiter->why.err));
}

/* A client acquires; everything pending is delivered. */
FIXTURE uint64_t hold(struct virt_client *client, struct lk__wait_queue *queue, uint32_t permits)
{
	struct lk__op *waiter = virt_acquire_permits(client, queue, permits);

	virt_settle(&w);
	assert_done(waiter, LK_OK);
	ck_assert_uint_eq(virt_hold_permits(queue, waiter->fence), permits);
	return waiter->fence;
}

FIXTURE void release(struct virt_client *client, struct lk__wait_queue *queue, uint64_t fence)
{
	struct lk__op *waiter = virt_release_permits(client, queue, fence);

	virt_settle(&w);
	assert_done(waiter, LK_OK);
}

/* Acknowledge a loss. */
FIXTURE void release_lost(struct virt_client *client, struct lk__wait_queue *queue, uint64_t fence)
{
	assert_done(virt_release_permits(client, queue, fence), LK_ELOST);
	virt_settle(&w);
}

/* Let time pass and assert that nothing happens. */
FIXTURE void later(int64_t ms)
{
	virt_set_time(&w, w.now_ns + ms * VIRT_MS);
}

/* Enqueue a waiter and deliver the reply; a moment later than the previous one. */
FIXTURE struct lk__op *wait_for(struct virt_client *client, struct lk__wait_queue *queue,
                                uint32_t permits)
{
	struct lk__op *waiter;

	later(1);
	waiter = virt_acquire_permits(client, queue, permits);
	virt_settle(&w);
	assert_waits(waiter);
	return waiter;
}

FIXTURE void tick(struct virt_client *client)
{
	lk__core_tick(&client->core, virt_now(client));
}

/* Take the next request; assert its kind. */
FIXTURE struct virt_call take(struct virt_client *client, enum lk__request_kind kind)
{
	struct virt_call call;

	ck_assert_msg(virt_take(client, &call), "there is no request");
	ck_assert_int_eq(call.kind, kind);
	return call;
}

/* The same; it is sent and executed. */
FIXTURE struct virt_call reach(struct virt_client *client, enum lk__request_kind kind)
{
	struct virt_call call = take(client, kind);

	virt_execute(client, &call);
	return call;
}

/* The same; the reply is delivered. */
FIXTURE void step(struct virt_client *client, enum lk__request_kind kind)
{
	struct virt_call call = reach(client, kind);

	virt_answer(client, &call);
}

FIXTURE void assert_no_request(struct virt_client *client)
{
	struct virt_call call;

	ck_assert_msg(!virt_take(client, &call), "a request of kind %d", call.kind);
}

/* Permits held, by the store's own counter, which must be the sum of its holds. */
FIXTURE int64_t used(void)
{
	int64_t sum = 0;

	permits_look(&w, "s", &view);
	for (int i = 0; i < view.hold_count; i++)
		sum += view.holds[i].held;
	ck_assert_int_eq(view.used, sum);
	return sum;
}

/* The one unreported loss. */
FIXTURE void assert_lost(struct virt_client *client, lk_lost_reason reason)
{
	struct lk__hold *lost = lk__core_next_lost(&client->core);

	ck_assert_msg(lost != NULL, "no loss to report, expected %s", lk_lost_reason_name(reason));
	ck_assert_str_eq(lk_lost_reason_name(lost->lost), lk_lost_reason_name(reason));
	ck_assert_ptr_null(lk__core_next_lost(&client->core));
	lk__core_loss_reported(lost);
}

#endif
