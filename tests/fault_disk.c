/* SPDX-License-Identifier: MIT
 * A server without room (S12, S14, S15 of the fault list): keys are evicted, snapshots fail, the
 * disk is full.  A refused write is reported with the reason, and a hold that cannot be renewed is
 * lost on time. */
#include "harness/handles.h"
#include "harness/latch_watch.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"
#include "harness/watch.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEASE_MS 900
#define BACK_MS 5000

static struct test_server server;
static struct redis *redis;

static void set_up(const struct server_options *options)
{
	server_start(&server, options);
	redis = redis_open(&server);
}

/* ---- S12: eviction ------------------------------------------------------------------------ */

/* Every key with a TTL is evicted, as the least recently used ones would be. */
static void evict_all(void)
{
	long long before = redis_info(redis, "evicted_keys");

	redis_do(redis, "CONFIG SET maxmemory-policy volatile-lru maxmemory 1");
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "SET more 1"), "-OOM"));
	ck_assert_int_gt(redis_info(redis, "evicted_keys"), before);
	redis_do(redis, "CONFIG SET maxmemory 0");
}

TEST(s12_evicted_lock_is_a_loss_and_waiters_go_on)
{
	struct waiter waiter;
	lk_client *client, *other;
	lk_lock *lock;
	uint64_t fence;
	int64_t start_ms;

	set_up(NULL);
	client = client_at(server.url);
	other = client_at(server.url);
	lock = hold_watched(client, "a", LEASE_MS);
	fence = hold_of(lock).fence;
	waiter_start(&waiter, lock_of_handle(other, "a", LEASE_MS), 10000, false);
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	start_ms = now_ms();
	evict_all();
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	ck_assert(WITHIN(2000, losses.count == 1));
	ck_assert_int_eq(losses.reason, LK_LOST_TAKEN);
	ck_assert_int_le(losses.at_ms - start_ms, LEASE_MS / 3 + 200); /* by the next renewal */
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(waiter_join(&waiter));
	ck_assert_int_le(now_ms() - start_ms, LEASE_MS + 1000);
	ck_assert_uint_gt(waiter.fence, fence);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST(s12_evicted_permits_are_lost_and_evicted_latches_absent)
{
	struct awaiter awaiter;
	lk_semaphore *semaphore;
	lk_client *client;
	lk_latch *latch;
	uint64_t hold, all;

	set_up(NULL);
	client = client_at(server.url);
	semaphore = semaphore_watched(client, "s",
	                              (lk_semaphore_options){.capacity = 3, .lease_ms = LEASE_MS});
	hold = permits_of(semaphore, 2, 0);
	latch = latch_with(client, "l", &(lk_latch_options){.counting_ttl_ms = 60000});
	OK(lk_latch_set(latch, 2, NULL));
	latch_down(latch, 1, NULL);
	awaiter_start(&awaiter, latch, 15000);
	evict_all();
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{s} lk:{s}:h lk:{l} lk:{l}:s"), 0);
	EXPECT(lk_latch_down(latch, 1, NULL, 0, NULL), LK_EABSENT);
	ck_assert(WITHIN(2000, permit_losses.count == 1));
	ck_assert_int_eq(permit_losses.reason, LK_LOST_TAKEN);
	EXPECT(lk_semaphore_release(semaphore, hold), LK_ELOST);
	/* The handle has the capacity; no permit is held. */
	all = permits_of(semaphore, 3, 1000);
	ck_assert_uint_gt(all, hold);
	OK(lk_semaphore_release(semaphore, all));
	ck_assert(permits_at_rest(redis, "s", 3));
	/* The waiter for the latch waits until the latch is set again and opened. */
	ck_assert(!awaiter.ended);
	OK(lk_latch_set(latch, 1, NULL));
	ck_assert(!awaiter.ended);
	latch_down(latch, 1, NULL);
	OK(awaiter_join(&awaiter));
	OK(lk_client_close(client));
}

/* ---- S14, S15: all writes fail ------------------------------------------------------------ */

/* All objects, before the disk fails. */
static struct {
	lk_client *client, *other;
	lk_lock *lock, *free_lock;
	lk_semaphore *semaphore;
	lk_latch *latch;
	struct waiter waiter;
	struct awaiter awaiter;
	uint64_t fence, hold;
} all;

static void open_all(void)
{
	all.client = client_at(server.url);
	all.other = client_at(server.url);
	all.free_lock = lock_named(all.client, "b");
	all.latch = latch_named(all.client, "l");
	OK(lk_latch_set(all.latch, 3, NULL));
	latch_down(all.latch, 1, NULL);
	awaiter_start(&all.awaiter, latch_named(all.other, "l"), 18000);
	all.semaphore = semaphore_watched(
		all.client, "s", (lk_semaphore_options){.capacity = 3, .lease_ms = LEASE_MS});
	all.hold = permits_of(all.semaphore, 2, 0);
	all.lock = hold_watched(all.client, "a", LEASE_MS);
	all.fence = hold_of(all.lock).fence;
	waiter_start(&all.waiter, lock_of_handle(all.other, "a", LEASE_MS), LK_FOREVER, false);
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
}

#define EXPECT_REFUSED(call)                                                                       \
	do {                                                                                       \
		EXPECT(call, LK_ESERVER);                                                          \
		ck_assert_msg(strstr(lk_errmsg(), "MISCONF") != NULL, "%s", lk_errmsg());          \
	} while (0)

/* The server refuses writes from now on. */
static void expect_refusals(void)
{
	int64_t until_ms = now_ms() + hold_of(all.lock).remaining_ms;
	lk_semaphore *none = NULL;
	uint64_t permit = 0;

	EXPECT_REFUSED(lk_lock_acquire(all.free_lock, 0, NULL));
	EXPECT_REFUSED(lk_lock_acquire(all.free_lock, LK_FOREVER, NULL));
	EXPECT_REFUSED(lk_semaphore_acquire(all.semaphore, 1, 0, &permit));
	EXPECT_REFUSED(lk_semaphore_open(all.client, "t", 0, &(lk_semaphore_options){.capacity = 1},
	                                 &none));
	EXPECT_REFUSED(lk_latch_down(all.latch, 1, NULL, 0, NULL));
	EXPECT_REFUSED(lk_latch_set(latch_named(all.client, "m"), 1, NULL));
	EXPECT(lk_latch_await(all.latch, 0), LK_EBUSY); /* a query writes nothing */
	/* Renewals fail: the loss is reported at the end of the lease, not earlier. */
	ck_assert_int_eq(losses.count + permit_losses.count, 0);
	while (lk_lock_is_mine(all.lock)) {
		until_ms = now_ms() + hold_of(all.lock).remaining_ms;
		nap_ms(1);
	}
	ck_assert(WITHIN(200, losses.count == 1 && permit_losses.count == 1));
	ck_assert_int_eq(losses.reason, LK_LOST_EXPIRED);
	ck_assert_int_ge(losses.at_ms, until_ms - 5);
	ck_assert_int_le(losses.at_ms, until_ms + 50);
	ck_assert_int_eq(permit_losses.reason, LK_LOST_EXPIRED);
	/* The waiter gets the reason. */
	EXPECT(waiter_join(&all.waiter), LK_ESERVER);
}

/* The server accepts writes again. */
static void expect_all_is_well(void)
{
	uint64_t permits;

	EXPECT(lk_lock_release(all.lock), LK_ELOST);
	EXPECT(lk_semaphore_release(all.semaphore, all.hold), LK_ELOST);
	ck_assert(WITHIN(BACK_MS, lk_lock_acquire(all.lock, 1000, NULL) == LK_OK));
	ck_assert_uint_gt(hold_of(all.lock).fence, all.fence);
	OK(lk_lock_release(all.lock));
	permits = permits_of(all.semaphore, 3, 2000);
	ck_assert_uint_gt(permits, all.hold);
	OK(lk_semaphore_release(all.semaphore, permits));
	ck_assert(permits_at_rest(redis, "s", 3));
	/* No refused request took effect, or does so now. */
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{b} lk:{b}:q lk:{t} lk:{m}"), 0);
	ck_assert(!all.awaiter.ended);
	ck_assert_int_eq(latch_down(all.latch, 1, NULL), 1);
	ck_assert_int_eq(latch_down(all.latch, 1, NULL), 0);
	OK(awaiter_join(&all.awaiter));
	OK(lk_client_close(all.client));
	OK(lk_client_close(all.other));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
}

/* The result of the last snapshot, "ok" or "err". */
static bool snapshot_is(const char *status)
{
	char line[64];

	snprintf(line, sizeof(line), "rdb_last_bgsave_status:%s", status);
	return strstr(redis_text(redis, "INFO persistence"), line) != NULL &&
	       redis_info(redis, "rdb_bgsave_in_progress") == 0;
}

TEST(s14_failed_snapshot_refuses_grants_and_loses_in_time)
{
	char path[200];

	set_up(NULL);
	open_all();
	/* A folder has the snapshot's name: the server cannot write there, whatever its user. */
	snprintf(path, sizeof(path), "%s/dump.rdb", server.dir);
	ck_assert(!mkdir(path, 0700));
	redis_do(redis, "CONFIG SET save %s", "3600 1");
	redis_do(redis, "BGSAVE");
	ck_assert(WITHIN(5000, snapshot_is("err")));
	ck_assert(!strncmp(redis_text(redis, "SET more 1"), "-MISCONF", 8));
	expect_refusals();
	ck_assert(!rmdir(path));
	redis_do(redis, "BGSAVE");
	ck_assert(WITHIN(5000, snapshot_is("ok")));
	expect_all_is_well();
}

/* The append-only file is on a device without room. */
TEST(s15_full_disk_refuses_grants_and_loses_in_time)
{
	char path[200];

	set_up(NULL);
	redis_do(redis, "CONFIG SET appendfsync everysec appendonly yes");
	ck_assert(WITHIN(5000, redis_info(redis, "aof_rewrite_in_progress") == 0 &&
	                               redis_info(redis, "aof_enabled") == 1));
	open_all();
	snprintf(path, sizeof(path), "%s/appendonlydir/appendonly.aof.2.incr.aof", server.dir);
	ck_assert(!symlink("/dev/full", path));
	redis_do(redis, "BGREWRITEAOF");
	ck_assert(WITHIN(5000, !strncmp(redis_text(redis, "SET more 1"), "-MISCONF", 8)));
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "SET more 1"), "No space left"));
	expect_refusals();
	/* The next part of the file is a regular one again. */
	redis_do(redis, "BGREWRITEAOF");
	ck_assert(WITHIN(5000, !strncmp(redis_text(redis, "SET more 1"), "OK", 2)));
	expect_all_is_well();
}
