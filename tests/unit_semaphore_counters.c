/* SPDX-License-Identifier: MIT
 * The counters of a client's permits, in virtual time: each scenario with its exact numbers.  No
 * thread, no socket, no clock. */
#include "virtual_permits.h"

#define COUNT(client, field, number) ck_assert_int_eq((client)->core.counters.field, (number))

TEST(permits_of_one_call_are_one_acquisition)
{
	struct lk__op *waiter;
	uint64_t held;

	start(3, 3000);
	held = hold(a, pa, 3);
	waiter = wait_for(b, pb, 2);
	later(30);
	release(a, pa, held);
	assert_done(waiter, LK_OK);
	COUNT(a, acquired, 1);
	COUNT(a, waited, 0);
	COUNT(a, holds, 1);
	COUNT(a, held_us, 31000);
	COUNT(b, acquired, 1);
	COUNT(b, by_message, 1);
	COUNT(b, waited, 1);
	COUNT(b, waited_us, 30000);
	release(b, pb, waiter->fence);
	end();
}

/* Permits that are released in parts count as one hold. */
TEST(hold_ends_with_its_last_permit)
{
	struct lk__op *waiter;
	uint64_t held;

	start(3, 3000);
	held = hold(a, pa, 3);
	later(10);
	waiter = virt_release_some(a, pa, held, 2);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	COUNT(a, holds, 0);
	later(10);
	release(a, pa, held);
	COUNT(a, holds, 1);
	COUNT(a, held_us, 20000);
	COUNT(a, requests, 3);
	end();
}

TEST(permits_that_are_nobodys_make_no_hold)
{
	struct lk__op *waiter;

	start_fixed(1, 1000);
	waiter = virt_forget_permits(a, pa, 1);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	waiter = virt_forget_permits(a, pa, 1);
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

	start(1, 3000);
	waiter = virt_acquire_permits(a, pa, 2);
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

	start(3, 3000);
	held = hold(a, pa, 3);
	/* A partial release is in flight when the store loses the hold. */
	part = virt_release_some(a, pa, held, 1);
	call = take(a, LK__SHRINK);
	permits_look(&w, "s", &view);
	permits_break(&w, "s", view.holds[0].text);
	virt_execute(a, &call);
	virt_answer(a, &call);
	virt_settle(&w);
	ck_assert(part->done);
	COUNT(a, lost[0], 1);
	COUNT(a, holds, 1);
	release_lost(a, pa, held);
	end();
}
