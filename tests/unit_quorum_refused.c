/* SPDX-License-Identifier: MIT
 * Servers of a quorum that refuse requests, lose links or legs, or answer for another epoch, in
 * virtual time: harness/virtual_quorum.h. */
#include "harness/test.h"
#include "harness/virtual_quorum.h"

#include <stdio.h>
#include <string.h>

/* ---- Counters ----------------------------------------------------------------------------- */

TEST(release_counts_no_loss_for_a_leg_that_was_not_granted)
{
	struct lk__op *op;

	vq_start(3, 1);
	lua_store_text(vq.server[2].store, "SET", "lk:{name}",
	               "q1:bclient_AAAAAAAAAAAAAA:AAAAAAAAAAA:3000:r:1:0 9 3000 -", "PX", "1000",
	               NULL);
	vq_acquire(0);
	vq_settle();
	op = vq_release(0);
	vq_settle();
	vq_done(op, LK_OK);
	ck_assert_int_eq(vq.client[0].core.counters.lost[0], 0);
	lua_store_text(vq.server[2].store, "DEL", "lk:{name}", NULL);
	vq_end();
}
