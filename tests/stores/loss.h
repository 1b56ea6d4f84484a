/* SPDX-License-Identifier: MIT
 * What locks and semaphores promise about how a hold lasts and ends, on any store: snapshots,
 * leases, losses and their reports. */
#ifndef STORES_LOSS_H
#define STORES_LOSS_H

#include "stores/set_up.h"

/* A handle that counts the losses of its holds. */
static void *watched(const struct noun *noun, lk_client *client, struct noun_options options)
{
	options.losses = &noun_losses;
	return noun_open(noun, client, "a", options);
}

/* The loss is reported once, with this reason and the hold's fence, and the hold stays lost until
 * its release.  Return the milliseconds from start_ms to the report. */
static int64_t expect_loss(const struct noun *noun, void *handle, uint64_t hold,
                           lk_lost_reason reason, int64_t start_ms)
{
	lk_hold snapshot;

	ck_assert_msg(WITHIN(3000, noun_losses.count > 0), "no loss was reported");
	nap_ms(20);
	ck_assert_int_eq(noun_losses.count, 1);
	ck_assert_msg(noun_losses.reason == reason, "%s, not %s",
	              lk_lost_reason_name(noun_losses.reason), lk_lost_reason_name(reason));
	ck_assert_uint_eq(noun_losses.fence, hold);
	snapshot = noun_snapshot(noun, handle, hold);
	ck_assert_int_eq(snapshot.state, LK_STATE_LOST);
	ck_assert_int_eq(noun->state(handle, hold), LK_STATE_LOST);
	ck_assert_int_eq(snapshot.lost, reason);
	ck_assert_int_eq(snapshot.remaining_ms, 0);
	ck_assert_int_eq(snapshot.lease_ms, 0);
	ck_assert_str_eq(snapshot.holder_id, "");
	ck_assert_uint_eq(snapshot.fence, hold);
	ck_assert_int_eq(snapshot.count, noun->count);
	EXPECT(noun->extend(handle, hold, 1000), LK_ELOST);
	EXPECT(noun->release(handle, hold), LK_ELOST);
	EXPECT(noun->release(handle, hold), LK_ENOTOWNER);
	EXPECT(noun->extend(handle, hold, 1000), LK_ENOTOWNER);
	noun_holds_nothing(noun, handle, hold);
	return noun_losses.at_ms - start_ms;
}

TEST_NOUN(snapshot_has_all_that_a_hold_knows, 20, 0)
{
	lk_client *client = set_up(), *other = client_at(url);
	void *handle = noun_open(noun, client, "a", (struct noun_options){.lease_ms = 1000});
	void *seen = noun_named(noun, other, "a");
	uint64_t hold;
	lk_hold snapshot;

	noun_holds_nothing(noun, handle, 1);
	hold = noun_hold(noun, handle, 0);
	snapshot = noun_snapshot(noun, handle, hold);
	ck_assert_uint_eq(snapshot.fence, hold);
	ck_assert_int_eq(snapshot.count, noun->count);
	ck_assert_int_eq(snapshot.state, LK_STATE_HELD);
	ck_assert_int_eq(snapshot.lost, 0);
	ck_assert(snapshot.remaining_ms > 0 && snapshot.remaining_ms <= lease_of(1000));
	ck_assert_int_eq(snapshot.lease_ms, lease_of(1000));
	ck_assert_str_eq(snapshot.holder_id, noun_status(noun, seen).holder.id);
	for (int i = 0; i < 7; i++)
		ck_assert_int_eq(snapshot.reserved[i], 0);
	noun_holds_nothing(noun, seen, hold); /* another client holds nothing */
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* ---- Leases ------------------------------------------------------------------------------- */

TEST_NOUN(renewed_hold_outlives_its_lease, 20, 0)
{
	lk_client *client = set_up();
	void *handle = watched(noun, client, (struct noun_options){.lease_ms = 300});
	uint64_t hold = noun_hold(noun, handle, 0);

	for (int i = 0; i < 20; i++) {
		int64_t left_ms = noun_status(noun, handle).lease_left_ms;
		ck_assert(left_ms > 0 && left_ms <= lease_of(300));
		ck_assert_int_eq(noun->state(handle, hold), LK_STATE_HELD);
		left_ms = noun_snapshot(noun, handle, hold).remaining_ms;
		ck_assert(left_ms > 0 && left_ms <= lease_of(300));
		nap_ms(lease_of(300) / 6);
	}
	ck_assert_int_eq(noun_losses.count, 0);
	OK(noun->release(handle, hold));
	OK(lk_client_close(client));
}

TEST_NOUN(extension_moves_the_end_of_a_fixed_hold, 20, 0)
{
	static const int64_t wrong[] = {
		0, -1, LK_LEASE_MIN_MS - 1, LK_LEASE_MAX_MS + 1, INT64_MAX, INT64_MIN};
	lk_client *client = set_up();
	void *handle = watched(noun, client, (struct noun_options){.lease_ms = 300, .fixed = true});
	uint64_t hold = noun_hold(noun, handle, 0);

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		EXPECT(noun->extend(handle, hold, wrong[i]), LK_EINVALID);
	ck_assert_int_le(noun_status(noun, handle).lease_left_ms, lease_of(300));
	OK(noun->extend(handle, hold, 800));
	ck_assert_int_gt(noun_snapshot(noun, handle, hold).remaining_ms, 700);
	ck_assert_int_gt(noun_status(noun, handle).lease_left_ms, 700);
	nap_ms(500);
	ck_assert_int_eq(noun->state(handle, hold), LK_STATE_HELD);
	ck_assert_int_eq(noun_losses.count, 0);
	/* Less than is left: only the holder shortens it, and then releases it. */
	OK(noun->extend(handle, hold, 100));
	ck_assert_int_le(noun_snapshot(noun, handle, hold).remaining_ms, 100);
	expect_loss(noun, handle, hold, LK_LOST_EXPIRED, 0);
	ck_assert(WITHIN(500, is_at_rest(noun, handle)));
	OK(lk_client_close(client));
}

TEST_NOUN(extended_lease_is_cut_by_no_other_request, 20, 0)
{
	lk_client *client = set_up(), *other = client_at(url);

	for (int fixed = 0; fixed < 2; fixed++) {
		const struct noun_options options = {.lease_ms = 2000, .fixed = fixed};
		void *handle = noun_open(noun, client, "a", options);
		void *wanted = noun_open(noun, other, "a", options);
		uint64_t hold = noun_hold(noun, handle, 0), none;

		OK(noun->extend(handle, hold, 60000));
		EXPECT(noun->acquire(wanted, NOUN_ALONE, 0, &none), LK_EBUSY);
		ck_assert_int_gt(noun_status(noun, handle).lease_left_ms, 55000);
		EXPECT(noun->acquire(wanted, NOUN_ALONE, 50, &none), LK_ETIMEDOUT);
		ck_assert_int_gt(noun_status(noun, handle).lease_left_ms, 55000);
		ck_assert_int_gt(noun_snapshot(noun, handle, hold).remaining_ms, 55000);
		/* A late request from before an extension must not undo it, so the store does not
		 * shorten a lease; its holder does, or renews it as usual. */
		OK(noun->extend(handle, hold, 500));
		ck_assert_int_gt(noun_status(noun, handle).lease_left_ms, 55000);
		ck_assert_int_le(noun_snapshot(noun, handle, hold).remaining_ms,
		                 fixed ? 500 : 2000);
		OK(noun->release(handle, hold));
		OK(noun->close(wanted));
	}
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_NOUN(waiter_is_granted_when_a_fixed_lease_ends, 20, 0)
{
	lk_client *client = set_up(), *other = client_at(url);
	void *handle =
		noun_open(noun, client, "a", (struct noun_options){.lease_ms = 500, .fixed = true});
	uint64_t hold = noun_hold(noun, handle, 0);
	struct noun_wait wait;

	noun_wait_start(&wait, noun, noun_named(noun, other, "a"), LK_FOREVER, false);
	OK(noun_wait_join(&wait));
	ck_assert_int_ge(wait.took_ms, 350);
	ck_assert_int_le(wait.took_ms, 1500);
	EXPECT(noun->release(handle, hold), LK_ELOST);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* After a grant by message, the lease is counted from the start of the wait; a fixed one from its
 * claim. */
TEST_NOUN(fixed_hold_that_was_waited_for_has_its_whole_lease, 20, 0)
{
	const struct noun_options fixed = {.lease_ms = 1000, .fixed = true, .any_thread = true};
	lk_client *client = set_up(), *other = client_at(url);
	void *handle = noun_named(noun, client, "a");
	uint64_t hold = noun_hold(noun, handle, 0);
	struct noun_wait wait;

	noun_wait_queue(&wait, noun, noun_open(noun, other, "a", fixed), true);
	nap_ms(400);
	OK(noun->release(handle, hold));
	OK(noun_wait_join(&wait));
	ck_assert_int_gt(noun_snapshot(noun, wait.handle, wait.fence).remaining_ms, 850);
	ck_assert_int_gt(noun_status(noun, handle).lease_left_ms, 850);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* ---- Losses ------------------------------------------------------------------------------- */

TEST_NOUN(loss_by_the_end_of_a_lease_is_reported, 20, 0)
{
	lk_client *client = set_up();
	void *handle = watched(noun, client, (struct noun_options){.lease_ms = 200, .fixed = true});
	int64_t start_ms = now_ms();
	uint64_t hold = noun_hold(noun, handle, 0);

	ck_assert_int_le(expect_loss(noun, handle, hold, LK_LOST_EXPIRED, start_ms), 200 + 50);
	OK(lk_client_close(client));
}

TEST_NOUN(loss_by_a_silent_store_is_reported_in_time, 20, 0)
{
	lk_client *client = set_up();
	void *handle = watched(noun, client, (struct noun_options){.lease_ms = 400});
	int64_t start_ms = now_ms();
	uint64_t hold = noun_hold(noun, handle, 0);

	STORE.pause(true);
	ck_assert(WITHIN(lease_of(1000), noun->state(handle, hold) == LK_STATE_UNSURE));
	ck_assert_int_le(expect_loss(noun, handle, hold, LK_LOST_EXPIRED, start_ms),
	                 lease_of(400) + 50);
	STORE.pause(false);
	OK(lk_client_close(client));
}

TEST_NOUN(loss_of_the_keys_is_reported_at_the_next_renewal, 20, STORE_KEYS)
{
	static const char *const keys[] = {"lk:{a}", "lk:{a}:h"};
	lk_client *client = set_up();

	for (int i = 0; i < (noun == &noun_lock ? 1 : 2); i++) {
		void *handle = watched(noun, client, (struct noun_options){.lease_ms = 600});
		int64_t start_ms = now_ms();
		uint64_t hold = noun_hold(noun, handle, 0), next;

		redis_do(redis, "DEL %s", keys[i]);
		ck_assert_int_le(expect_loss(noun, handle, hold, LK_LOST_TAKEN, start_ms),
		                 300 + 100);
		next = noun_hold(noun, handle, 0); /* partial data counts as lost */
		ck_assert_uint_gt(next, hold);
		OK(noun->release(handle, next));
		ck_assert(is_at_rest(noun, handle));
		noun_losses.count = 0;
	}
	OK(lk_client_close(client));
}

TEST_NOUN(loss_by_a_break_is_reported_at_once, 20, 0)
{
	lk_client *client = set_up(), *other = client_at(url);
	void *handle = watched(noun, client, (struct noun_options){0});
	uint64_t hold = noun_hold(noun, handle, 0);
	int64_t start_ms = now_ms();

	OK(noun->break_hold(noun_named(noun, other, "a"), NULL));
	ck_assert_int_le(expect_loss(noun, handle, hold, LK_LOST_BROKEN, start_ms), 500);
	ck_assert(is_at_rest(noun, handle));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_NOUN(hold_ends_after_its_maximum_and_is_released, 20, 0)
{
	lk_client *client = set_up();
	void *handle =
		watched(noun, client, (struct noun_options){.lease_ms = 1200, .max_hold_ms = 500});
	int64_t start_ms = now_ms(), after_ms;
	uint64_t hold = noun_hold(noun, handle, 0);

	nap_ms(400);
	ck_assert_int_eq(noun->state(handle, hold), LK_STATE_HELD);
	ck_assert_int_le(noun_snapshot(noun, handle, hold).remaining_ms, 100);
	after_ms = expect_loss(noun, handle, hold, LK_LOST_MAX_HOLD, start_ms);
	ck_assert(after_ms >= 499 && after_ms <= 600);
	ck_assert(WITHIN(
		200, is_at_rest(noun, handle))); /* long before the lease's end, and renewed once */
	OK(lk_client_close(client));
}

TEST_NOUN(callback_is_not_called_for_a_release_or_a_close, 20, 0)
{
	lk_client *client = set_up();
	void *handle = watched(noun, client, (struct noun_options){.lease_ms = 100});

	OK(noun->release(handle, noun_hold(noun, handle, 0)));
	noun_hold(noun, handle, 0);
	OK(noun->close(handle));
	handle = watched(noun, client, (struct noun_options){.lease_ms = 100});
	noun_hold(noun, handle, 1000);
	OK(lk_client_close(client));
	nap_ms(150);
	ck_assert_int_eq(noun_losses.count, 0);
}

#endif
