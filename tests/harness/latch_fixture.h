/* SPDX-License-Identifier: MIT
 * Shared by the tests of latches in virtual time: clients a and b with one handle each on the latch
 * "gate", and steps that tests would otherwise repeat. */
#ifndef LATCH_FIXTURE_H
#define LATCH_FIXTURE_H

#include "virtual_fixture.h"
#include "virtual_latch.h"

#include <stdio.h>

FIXTURE void set(int64_t count)
{
	virt_set_latch(a, count, 60000, 0);
}

FIXTURE void remove_latch(void)
{
	virt_remove_latch(a);
}

FIXTURE int64_t count(void)
{
	return virt_latch_count(a);
}

FIXTURE void start_absent(void)
{
	virt_init(&w, 2, test_seed());
	a->queue = virt_open_latch(a, "gate");
	b->queue = virt_open_latch(b, "gate");
}

FIXTURE void start_latch(int64_t steps)
{
	start_absent();
	set(steps);
}

FIXTURE struct lk__op *await(struct virt_client *client)
{
	return virt_await(client, false, false);
}

/* Await a latch that is not open; everything pending is delivered. */
FIXTURE struct lk__op *await_settled(struct virt_client *client)
{
	struct lk__op *waiter = await(client);

	virt_settle(&w);
	assert_waits(waiter);
	return waiter;
}

/* The channel's command is executed, and confirmed. */
FIXTURE void confirm(struct virt_client *client)
{
	ck_assert(virt_command(client));
	ck_assert(virt_hear(client));
}

/* A client counts down; only its own requests are delivered. */
FIXTURE void count_down(struct virt_client *client, uint32_t n)
{
	struct lk__op *waiter = virt_down(client, n, NULL);
	struct virt_call call;

	while (virt_take(client, &call)) {
		virt_execute(client, &call);
		virt_answer(client, &call);
	}
	assert_done(waiter, LK_OK);
}

/* The counter is ahead of the server's clock, so that the server may start again with lower
 * generations. */
FIXTURE void put_counter_ahead(void)
{
	char ahead[24];

	snprintf(ahead, sizeof(ahead), "%lld", (long long)virt_store_us(&w) + 3600000000);
	ck_assert_str_eq(lua_store_text(w.store, "SET", "lk:fence", ahead, NULL), "OK");
}

#endif
