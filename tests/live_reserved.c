/* SPDX-License-Identifier: MIT
 * Structs that the library fills have reserved room at their end, which the library sets to 0, so
 * that a program can tell that no later version put a member there. */
#include "harness/handles.h"
#include "harness/latch_watch.h"
#include "harness/local_folder.h"
#include "harness/process.h"
#include "harness/server.h"
#include "harness/test.h"
#include "harness/watch.h"

#include <string.h>

/* Memory that a program passes contains other values than zeros. */
#define FILL(room) memset(&(room), 0xff, sizeof(room))
#define ZERO(room)                                                                                 \
	ck_assert_msg(is_zero((room).reserved, sizeof((room).reserved)), "%s.reserved is not 0",   \
	              #room)

static struct test_server server;

static bool is_zero(const int64_t *reserved, size_t size)
{
	static const int64_t zeros[8];

	return !memcmp(reserved, zeros, size);
}

TEST(reserved_room_of_locks_is_zero)
{
	lk_client *client, *other;
	lk_lock_status status;
	lk_counters counters;
	lk_server address;
	lk_party waiters[2];
	struct waiter waiter;
	lk_hold hold;
	lk_lock *lock;
	size_t count;

	server_start(&server, NULL);
	client = client_at(server.url);
	other = client_at(server.url);
	lock = lock_named(client, "a");
	FILL(hold);
	OK(lk_lock_snapshot(lock, &hold));
	ZERO(hold);
	OK(lk_lock_acquire(lock, 0, NULL));
	FILL(hold);
	OK(lk_lock_snapshot(lock, &hold));
	ZERO(hold);
	waiter_start(&waiter, lock_named(other, "a"), 10000, false);
	FILL(waiters);
	ck_assert(WITHIN(5000, lk_lock_waiters(lock, 2, waiters, &count) == LK_OK && count == 1));
	ZERO(waiters[0]);
	FILL(status);
	OK(lk_lock_query(lock, &status));
	ZERO(status);
	ZERO(status.holder);
	FILL(address);
	OK(lk_client_server(client, &address));
	ZERO(address);
	FILL(counters);
	OK(lk_client_counters(client, &counters));
	ZERO(counters);
	OK(lk_lock_release(lock));
	waiter_join(&waiter);
	FILL(status);
	OK(lk_lock_query(lock, &status));
	ZERO(status);
	ZERO(status.holder);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	server_stop(&server);
}

TEST(reserved_room_of_semaphores_and_latches_is_zero)
{
	lk_semaphore_status semaphore_status;
	lk_latch_status latch_status;
	lk_semaphore *semaphore;
	lk_ticket holders[2];
	lk_client *client;
	lk_latch_step step;
	lk_latch *latch;
	uint64_t hold_fence;
	lk_hold hold;
	size_t count;

	server_start(&server, NULL);
	client = client_at(server.url);
	semaphore = semaphore_of(client, "s", 3, 0);
	hold_fence = permits_of(semaphore, 2, 0);
	permits_of(semaphore, 1, 0);
	FILL(hold);
	OK(lk_semaphore_snapshot(semaphore, hold_fence, &hold));
	ZERO(hold);
	FILL(holders);
	OK(lk_semaphore_holders(semaphore, 2, holders, &count));
	ck_assert_uint_eq(count, 2);
	for (size_t i = 0; i < count; i++) {
		ZERO(holders[i]);
		ZERO(holders[i].party);
	}
	FILL(semaphore_status);
	OK(lk_semaphore_query(semaphore, &semaphore_status));
	ZERO(semaphore_status);
	latch = latch_named(client, "l");
	FILL(latch_status);
	OK(lk_latch_query(latch, &latch_status));
	ZERO(latch_status);
	OK(lk_latch_set(latch, 2, NULL));
	FILL(step);
	OK(lk_latch_down(latch, 1, "a", 0, &step));
	ZERO(step);
	FILL(latch_status);
	OK(lk_latch_query(latch, &latch_status));
	ZERO(latch_status);
	OK(lk_client_close(client));
	server_stop(&server);
}

static void check_finding(void *arg, const lk_finding *finding)
{
	int *findings = arg;

	ZERO(*finding);
	++*findings;
}

TEST(reserved_room_of_findings_and_of_local_is_zero)
{
	int findings = 0;
	lk_local_info info;

	server_start(&server, NULL);
	OK(lk_doctor(server.url, NULL, check_finding, &findings, NULL));
	ck_assert_int_gt(findings, 0);
	local_folder();
	FILL(info);
	OK(lk_local_status(&info));
	ZERO(info);
	server_stop(&server);
}
