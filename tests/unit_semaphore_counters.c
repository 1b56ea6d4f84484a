/* SPDX-License-Identifier: MIT
 * The counters of a client's permits, in virtual time: each scenario with its exact numbers.  No
 * thread, no socket, no clock. */
#include "virtual_fixture.h"

#define COUNT(client, field, number) ck_assert_int_eq((client)->core.counters.field, (number))

TEST(permits_of_one_call_are_one_acquisition)
{
	struct lk__op *waiter;
	uint64_t held;

	start_permits(3, 3000);
	held = hold_some(a, 3);
	waiter = wait_for_some(b, 2);
	later(30);
	release_of(a, held);
	assert_done(waiter, LK_OK);
	COUNT(a, acquired, 1);
	COUNT(a, waited, 0);
	COUNT(a, holds, 1);
	COUNT(a, held_us, 31000);
	COUNT(b, acquired, 1);
	COUNT(b, by_message, 1);
	COUNT(b, waited, 1);
	COUNT(b, waited_us, 30000);
	release_of(b, waiter->fence);
	end();
}

/* Permits that are released in parts count as one hold. */
TEST(hold_ends_with_its_last_permit)
{
	struct lk__op *waiter;
	uint64_t held;

	start_permits(3, 3000);
	held = hold_some(a, 3);
	later(10);
	waiter = begin_release_some(a, held, 2);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	COUNT(a, holds, 0);
	later(10);
	release_of(a, held);
	COUNT(a, holds, 1);
	COUNT(a, held_us, 20000);
	COUNT(a, requests, 3);
	end();
}

TEST(permits_that_are_nobodys_make_no_hold)
{
	struct lk__op *waiter;

	start_fixed_permits(1, 1000);
	waiter = forget_some(a, 1);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	waiter = forget_some(a, 1);
	virt_pass(&w, 1200);
	assert_done(waiter, LK_OK);
	COUNT(a, acquired, 2);
	COUNT(a, waited, 1);
	COUNT(a, by_message, 0);
	virt_pass(&w, 1200);
	permits_resize(&w, "s", 1); /* removes expired holds */
	COUNT(a, lost[0], 0);
	COUNT(a, holds, 0);
	end();
}

/* Waiting for more permits than there are ends with an error that has no counter of its own. */
TEST(too_large_a_wait_has_failed)
{
	struct lk__op *waiter;

	start_permits(1, 3000);
	waiter = acquire_some(a, 2);
	virt_settle(&w);
	assert_done(waiter, LK_ELIMIT);
	COUNT(a, failed, 1);
	COUNT(a, acquired, 0);
	end();
}

TEST(broken_permits_are_counted_once)
{
	struct lk__op *part;
	struct virt_call call;
	uint64_t held;

	start_permits(3, 3000);
	held = hold_some(a, 3);
	/* A partial release is in flight when the store loses the hold. */
	part = begin_release_some(a, held, 1);
	call = take(a, LK__SHRINK);
	look();
	virt_break(&w, noun, "s", view.holds[0].text);
	virt_execute(a, &call);
	virt_answer(a, &call);
	virt_settle(&w);
	ck_assert(part->done);
	COUNT(a, lost[0], 1);
	COUNT(a, holds, 1);
	release_lost_of(a, held);
	end();
}
