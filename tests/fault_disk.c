/* SPDX-License-Identifier: MIT
 * A server that cannot write (S14, S15 of the fault list): snapshots fail, the disk is full.  A
 * refused write is reported with the reason, and a hold that cannot be renewed is lost on time. */
#include "harness/primitive.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEASE_MS 900

/* Before the disk fails. */
static lk_client *client, *other;
static struct claims held, waits, spare;

static void open_all(unsigned set)
{
	client = client_at(server.url);
	other = client_at(server.url);
	claims_init(&spare, set, client, 0);
	EACH (claim, &spare) {
		claim->name = claim->primitive->keys[0]; /* any other name */
		OK(claim->primitive->open(claim, false));
	}
	claims_hold(&held, set, client, LEASE_MS);
	claims_queue(&waits, set, other, LEASE_MS, false);
}

/* The server refuses writes from now on. */
static void expect_refusals(void)
{
	unsigned set = held.set;

	claims_expect_no_grant(set, client, "MISCONF");
	EACH (claim, &spare) {
		EXPECT(claim->primitive->hold(claim, LK_FOREVER), LK_ESERVER);
		ck_assert_msg(strstr(lk_errmsg(), "MISCONF") != NULL, "%s", lk_errmsg());
	}
	held.set = set & ~LEASED;
	EACH (claim, &held)
		EXPECT(claim->primitive->release(claim), LK_ESERVER);
	held.set = set;
	claims_await_link(&held); /* a query writes nothing */
	/* Renewals fail: the loss is reported at the end of the lease, not earlier. */
	claims_expect_expiry(&held);
	/* The waiter gets the reason. */
	waits.set = set & LEASED;
	claims_join(&waits, LK_ESERVER);
}

/* The server accepts writes again: no refused request took effect, or does so now. */
static void expect_all_is_well(void)
{
	unsigned set = held.set;

	claims_release_lost(&held);
	held.set = set & LEASED;
	claims_hold_again(&held);
	claims_hold_again(&spare);
	waits.set = held.set = set & ~LEASED;
	claims_expect_still_waiting(&waits, 1);
	claims_expect_held(&held);
	claims_release(&held);
	claims_join(&waits, LK_OK);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* The result of the last snapshot, "ok" or "err". */
static bool snapshot_is(const char *status)
{
	char line[64];

	snprintf(line, sizeof(line), "rdb_last_bgsave_status:%s", status);
	return strstr(redis_text(redis, "INFO persistence"), line) != NULL &&
	       redis_info(redis, "rdb_bgsave_in_progress") == 0;
}

TEST_OF(s14_failed_snapshot_refuses_grants_and_loses_in_time, EVERY, 20)
{
	char path[200];

	fault_set_up(NULL);
	open_all(set);
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
TEST_OF(s15_full_disk_refuses_grants_and_loses_in_time, EVERY, 20)
{
	char path[200];

	fault_set_up(NULL);
	redis_do(redis, "CONFIG SET appendfsync everysec appendonly yes");
	ck_assert(WITHIN(5000, redis_info(redis, "aof_rewrite_in_progress") == 0 &&
	                               redis_info(redis, "aof_enabled") == 1));
	open_all(set);
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
