/* SPDX-License-Identifier: MIT
 * While a callback blocks, the client's other calls continue, because no mutex is held. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/server.h"
#include "harness/test.h"

#include <latchkey.h>
#include <stdatomic.h>

static atomic_bool inside, called;
static bool was_called;

/* Block until the other thread's calls are done, for a second at most. */
static void blocking_callback(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	(void)arg;
	(void)lock;
	(void)fence;
	(void)reason;
	inside = true;
	was_called = WITHIN(1000, called);
	inside = false;
}

TEST(calls_of_other_threads_go_on_during_a_callback)
{
	const lk_lock_options options = {.on_lost = blocking_callback};
	struct test_server server;
	lk_client *client;
	lk_lock *lost, *other;

	server_start(&server, NULL);
	client = client_at(server.url);
	lost = lock_with(client, "lost", &options);
	other = lock_named(client, "other");
	OK(lk_lock_acquire(lost, 0, NULL));
	OK(lk_lock_break(lost, NULL));
	ck_assert(WITHIN(2000, inside));
	OK(lk_lock_acquire(other, 0, NULL));
	OK(lk_lock_release(other));
	called = true;
	ck_assert(WITHIN(2000, !inside));
	ck_assert_msg(was_called, "no call came through while a callback ran");
	EXPECT(lk_lock_release(lost), LK_ELOST);
	OK(lk_client_close(client));
	server_stop(&server);
}
