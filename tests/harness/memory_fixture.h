/* SPDX-License-Identifier: MIT
 * Steps of the tests of losses of the server's memory in virtual time. */
#ifndef MEMORY_FIXTURE_H
#define MEMORY_FIXTURE_H

#include "virtual_fixture.h"

#define LEASE 3000
#define GRACE 10000

FIXTURE void give_grace(int64_t grace_ms)
{
	for (int i = 0; i < 4; i++)
		w.clients[i].session.grace_ms = w.clients[i].space.grace_ms = grace_ms;
}

FIXTURE void start_with_grace(int64_t lease_ms)
{
	start(lease_ms);
	give_grace(GRACE);
}

FIXTURE int runs(enum lk__request_kind kind)
{
	return w.runs[kind];
}

/* A hold of client a, and the server forgets everything; the next renewal finds nothing. */
FIXTURE uint64_t hold_in_doubt(void)
{
	uint64_t fence = hold(a);

	flush();
	tick_when_due(a);
	step(a, LK__RENEW);
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	ck_assert_ptr_null(lk__core_next_lost(&a->core));
	return fence;
}

/* The same; the client knows of the loss. */
FIXTURE uint64_t hold_forgotten(void)
{
	uint64_t fence = hold_in_doubt();

	step(a, LK__EPOCH);
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	ck_assert_ptr_null(lk__core_next_lost(&a->core));
	return fence;
}

/* The server forgets everything while client a has no link. */
FIXTURE void forget_without_link(void)
{
	virt_link_down(a, LK_ECONN);
	flush();
	later(100);
	virt_link_up(a);
}

#endif
