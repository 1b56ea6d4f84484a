/* SPDX-License-Identifier: MIT
 * Links that break at every possible point, in virtual time: between any two steps of the network,
 * losing what is in flight.  Callers must notice no more than a delay. */
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

/* Acquire, wait, extend, release: three clients exclude each other.  A waiter whose link is down
 * loses its turn to the next one. */
static void exclude(bool fixed, int64_t wait_ms)
{
	struct lk__op *waiters[2];

	start_of(noun_of_start, 12000, fixed);
	finish(acquire(a), LK_OK);
	for (int i = 0; i < 2; i++) {
		later(1);
		waiters[i] = acquire(&w.clients[1 + i]);
		pump();
	}
	assert_waits(waiters[0]);
	assert_waits(waiters[1]);
	later(wait_ms);
	finish(begin_release(a), LK_OK);
	pump();
	for (int i = 0; i < 110 && !waiters[0]->done && !waiters[1]->done; i++)
		virt_pass(&w, 100);
	for (int i = 0, first = !waiters[0]->done; i < 2; i++) {
		struct virt_client *client = &w.clients[1 + (first ^ i)];
		finish(waiters[first ^ i], LK_OK);
		ck_assert_uint_eq(only_stored()->fence, held(client)->fence);
		finish(extend(client, 20000), LK_OK);
		finish(begin_release(client), LK_OK);
	}
	end();
}

/* Permits: acquire, wait, partial release, extension, release. */
static void share(bool fixed, int64_t wait_ms)
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

static void cut_everywhere(void (*live)(bool, int64_t), bool fixed, int64_t wait_ms)
{
	int all = 0;

	for (int i = 0; i < 3; i++) {
		victim = &w.clients[i];
		points = cut_at = 0;
		while (points >= cut_at) {
			points = 0;
			cut_at++;
			live(fixed, wait_ms);
			all++;
		}
	}
	ck_assert_int_gt(all, 30);
}

TEST_NOUNS(link_may_break_at_every_point)
{
	cut_everywhere(exclude, false, 0);
	cut_everywhere(exclude, true, 0);
}

TEST_NOUNS(link_may_break_at_every_point_of_a_claim)
{
	cut_everywhere(exclude, false, 4000);
}

TEST(link_may_break_at_every_point_of_shared_permits)
{
	cut_everywhere(share, false, 0);
	cut_everywhere(share, true, 0);
	cut_everywhere(share, false, 4000);
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
