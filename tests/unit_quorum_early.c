/* SPDX-License-Identifier: MIT
 * A lock over a quorum, in virtual time: a server's message arrives before its earlier reply, since
 * they come by two connections. */
#include "harness/test.h"
#include "harness/virtual_quorum.h"

#include <stdio.h>

static void raise_counter(int server, int64_t ahead_us)
{
	char class[16], fence[24];

	snprintf(class, sizeof(class), "%d", lk__slot_of("name", 4) % LK__CLASSES);
	snprintf(fence, sizeof(fence), "%lld", (long long)(vq_store_us(server) + ahead_us));
	lua_store_text(vq.server[server].store, "HSET", "lk:fences", class, fence, NULL);
}

/* The request runs, and its reply is still under way. */
static void run(int client, int server)
{
	ck_assert(vq_send(client, server) && vq_execute(client, server));
}

/* The counters of the legs differ, so a renewal has to raise one of them.  It cannot be sent while
 * the reply to the ask is missing. */
TEST(fence_is_committed_when_the_reply_to_the_ask_arrives)
{
	struct lk__op *op;

	vq_start(3, 2);
	vq_acquire(0);
	vq_settle();
	op = vq_acquire(1);
	for (int i = 0; i < 3; i++)
		run(1, i);
	raise_counter(1, 1000000);
	raise_counter(2, 2000000);
	vq_release(0);
	for (int i = 0; i < 3; i++) {
		run(0, i);
		ck_assert(vq_hear(1, i));
	}
	vq_waits(op);
	for (int i = 0; i < 3; i++)
		ck_assert(vq_reply(1, i));
	vq_settle();
	vq_done(op, LK_OK);
	vq_release(1);
	vq_settle();
	vq_end();
}
