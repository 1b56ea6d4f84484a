/* SPDX-License-Identifier: MIT
 * The seam of src/store.h: the threads, the state machines and the public calls over a store
 * without Redis and without a server. */
#define STORE store_in_memory

#include "harness/memory_store.h"
#include "stores/fifo.h"
#include "stores/lock.h"

TEST(black_hole_ends_calls_in_time_and_its_end_is_noticed)
{
	const lk_client_options options = {.connect_timeout_ms = 300, .command_timeout_ms = 300};
	const char *url = STORE.start();
	lk_client *client = client_with(url, &options), *other = NULL;
	lk_lock *lock = lock_named(client, "a");
	int64_t start_ms;

	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_release(lock));
	memory_store_black_hole(0, true);
	start_ms = now_ms();
	ck_assert_int_ne(lk_lock_acquire(lock, 0, NULL), LK_OK);
	EXPECT(lk_client_open(url, &options, &other), LK_ECONN);
	ck_assert_int_ge(now_ms() - start_ms, 300);
	ck_assert_int_le(now_ms() - start_ms, 1500);
	memory_store_black_hole(0, false);
	ck_assert(WITHIN(5000, lk_lock_acquire(lock, 1000, NULL) == LK_OK));
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}
