/* SPDX-License-Identifier: MIT
 * Links of a semaphore's clients that break at every possible point, in virtual time: between any
 * two steps of the network, losing what is in flight.  Callers must notice no more than a delay. */
#include "virtual_fixture.h"

static struct virt_client *victim;
static int points, cut_at;

/* Count one more step; at the chosen one, break the link, and restore it a little later. */
static bool cut(const struct virt_client *client)
{
	if (client != victim || ++points != cut_at)
		return false;
	virt_link_down(victim, LK_EUNKNOWN);
	later(5);
	virt_link_up(victim);
	return true;
}

/* Send, execute and answer the client's next request. */
static bool send_one(struct virt_client *client)
{
	struct virt_call call;

	if (!virt_take(client, &call))
		return false;
	if (!cut(client)) {
		virt_execute(client, &call);
		if (!cut(client)) {
			virt_answer(client, &call);
			cut(client);
			return true;
		}
	}
	virt_call_fini(&call);
	return true;
}

static void pump(void)
{
	bool busy = true;

	while (busy) {
		busy = false;
		for (int i = 0; i < w.client_count; i++) {
			while (send_one(&w.clients[i]))
				busy = true;
			while (w.clients[i].inbox_count) {
				busy = true;
				if (!cut(&w.clients[i]))
					virt_hear(&w.clients[i]);
				cut(&w.clients[i]);
			}
		}
	}
}

/* Run until it is done, or overdue. */
static void finish(const struct lk__op *waiter, lk_err err)
{
	pump();
	for (int i = 0; i < 110 && !waiter->done; i++)
		virt_pass(&w, 100);
	assert_done(waiter, err);
}

/* Acquire, wait, partial release, extension, release: three clients, one semaphore. */
static void live_through(bool fixed, int64_t wait_ms)
{
	struct lk__op *holder, *waiter, *other;

	start_permits_with(4, 12000, fixed);
	holder = acquire_some(a, 3);
	finish(holder, LK_OK);
	later(1);
	waiter = acquire_some(b, 2);
	pump();
	later(1);
	other = acquire_some(c, 1);
	pump();
	assert_waits(waiter);
	assert_waits(other);
	later(wait_ms);
	finish(begin_release_some(a, holder->fence, 2), LK_OK);
	finish(waiter, LK_OK);
	finish(other, LK_OK);
	ck_assert_int_eq(used(), 4);
	finish(extend_of(b, waiter->fence, 20000), LK_OK);
	finish(begin_release_some(b, waiter->fence, 1), LK_OK);
	ck_assert_int_eq(used(), 3);
	ck_assert_uint_eq(permits_of(a, holder->fence), 1);
	ck_assert_uint_eq(permits_of(b, waiter->fence), 1);
	finish(begin_release_of(a, holder->fence), LK_OK);
	finish(begin_release_of(b, waiter->fence), LK_OK);
	finish(begin_release_of(c, other->fence), LK_OK);
	end();
}

static void cut_everywhere(bool fixed, int64_t wait_ms)
{
	int all = 0;

	for (int i = 0; i < 3; i++) {
		victim = &w.clients[i];
		points = cut_at = 0;
		while (points >= cut_at) {
			points = 0;
			cut_at++;
			live_through(fixed, wait_ms);
			all++;
		}
	}
	ck_assert_int_gt(all, 30);
}

TEST(link_may_break_at_every_point)
{
	cut_everywhere(false, 0);
}

TEST(link_may_break_at_every_point_of_a_claim)
{
	cut_everywhere(false, 4000);
}

TEST(link_may_break_at_every_point_with_fixed_leases)
{
	cut_everywhere(true, 0);
}

/* Permits that cannot be released: wherever the link breaks, they are granted once and stay
 * granted. */
TEST(link_may_break_at_every_point_of_a_forgotten_grant)
{
	victim = a;
	points = cut_at = 0;
	while (points >= cut_at) {
		struct lk__op *first, *second;

		points = 0;
		cut_at++;
		start_fixed_permits(2, 5000);
		first = forget_some(a, 2);
		finish(first, LK_OK);
		second = forget_some(a, 1);
		finish(second, LK_OK);
		ck_assert_int_eq(used(), 1);
		assert_no_request(a);
		virt_pass(&w, 5000);
		end();
	}
	ck_assert_int_gt(cut_at, 5);
}
