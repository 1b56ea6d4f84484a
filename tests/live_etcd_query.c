/* SPDX-License-Identifier: MIT
 * Queries and breaks of locks on real etcd servers. */
#include "harness/etcd_server.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/test.h"
#include "harness/watch.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LEASE_MS 4000
#define LONG_MS 20000 /* for what comes at once on a machine that is not loaded */

static struct etcd_servers shared;

static void start_shared(void)
{
	etcd_start(&shared, 1);
}

__attribute__((constructor)) static void prepare(void)
{
	test_before_all(start_shared);
}

static lk_client *labelled(const char *label)
{
	const lk_client_options options = {.label = label};
	lk_client *client;

	OK(lk_client_open(etcd_url(&shared, "", ""), &options, &client));
	return client;
}

/* A lock of a lease that is not renewed for long after the test. */
static lk_lock *leased(lk_client *client, const char *name)
{
	return lock_leased(client, name, LEASE_MS);
}

static void acquire(lk_lock *lock)
{
	OK(lk_lock_acquire(lock, LONG_MS, NULL));
}

/* ---- Waiting in another thread ---- */

static int64_t waiting(lk_lock *lock)
{
	lk_lock_status status;

	OK(lk_lock_query(lock, &status));
	return status.queue_len;
}

static void begin_waiting(struct waiter *waiter, lk_lock *lock)
{
	int64_t before = waiting(lock);

	waiter_start(waiter, lock, LK_FOREVER, false);
	ck_assert(WITHIN(LONG_MS, waiting(lock) == before + 1));
}

static lk_err end_waiting(struct waiter *waiter)
{
	ck_assert(WITHIN(LONG_MS, waiter->ended));
	return waiter_join(waiter);
}

/* ---- Holder and waiters ---- */

TEST_LIMIT(holder_and_waiters_are_shown, 120)
{
	lk_client *clients[3] = {labelled("first"), labelled("second"), labelled("third")};
	lk_lock *locks[3];
	struct waiter waiters[3];
	lk_lock_status status;
	lk_party parties[5];
	size_t count = 0;

	for (int i = 0; i < 3; i++)
		locks[i] = leased(clients[i], "shown/name");
	OK(lk_lock_query(locks[0], &status));
	ck_assert(!status.held);
	ck_assert_int_eq(status.queue_len, 0);
	ck_assert_int_eq(status.my_rank, -1);
	acquire(locks[0]);
	for (int i = 1; i < 3; i++)
		begin_waiting(&waiters[i], locks[i]);
	/* The details come a moment after the hold. */
	do {
		OK(lk_lock_query(locks[2], &status));
	} while (!status.holder.label[0]);
	ck_assert(status.held);
	ck_assert_str_eq(status.holder.id, hold_of(locks[0]).holder_id);
	ck_assert_str_eq(status.holder.label, "first");
	ck_assert_int_eq(status.holder.pid, getpid());
	ck_assert(status.holder.host[0] && status.holder.program[0]);
	ck_assert_uint_eq(status.fence, hold_of(locks[0]).fence);
	ck_assert_int_eq(status.held_ms, -1);
	ck_assert_int_gt(status.lease_left_ms, 0);
	ck_assert_int_le(status.lease_left_ms, LEASE_MS);
	ck_assert_int_eq(status.queue_len, 2);
	ck_assert_int_eq(status.my_rank, 1);
	ck_assert_int_eq(status.grace_ms, 0);
	OK(lk_lock_waiters(locks[0], 5, parties, &count));
	ck_assert_uint_eq(count, 2);
	OK(lk_lock_waiters(locks[0], 1, parties, &count));
	ck_assert_uint_eq(count, 1);
	ck_assert_int_eq(strncmp(parties[0].id, lk_client_id(clients[1]), 22), 0);
	OK(lk_lock_release(locks[0]));
	for (int i = 1; i < 3; i++)
		OK(end_waiting(&waiters[i]));
	for (int i = 0; i < 3; i++)
		OK(lk_client_close(clients[i]));
	ck_assert_str_eq(etcd_ctl(&shared, "get --prefix lk/i/ --keys-only"), "");
}

TEST_LIMIT(name_of_another_kind_is_foreign, 60)
{
	lk_client *client = labelled("x");
	lk_lock *lock = leased(client, "other");
	lk_lock_status status;
	lk_kind kind;

	etcd_ctl(&shared, "put lk/Sother 1");
	EXPECT(lk_lock_query(lock, &status), LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "lk/Sother is in other use: not a lock"));
	EXPECT(lk_lock_break(lock, NULL), LK_EFOREIGN);
	OK(lk_client_name_kind(client, "other", 0, &kind));
	ck_assert_int_eq(kind, LK_KIND_SEMAPHORE);
	etcd_ctl(&shared, "del lk/Sother");
	OK(lk_client_name_kind(client, "other", 0, &kind));
	ck_assert_int_eq(kind, LK_KIND_NONE);
	EXPECT(lk_lock_break(lock, NULL), LK_EABSENT);
	OK(lk_client_close(client));
}

static bool count_name(void *arg, const char *name, size_t len)
{
	int *counts = arg;

	counts[0]++;
	counts[1] += len == 3 && !memcmp(name, "a/b", 3);
	counts[2] += len == 6 && !memcmp(name, "listed", 6);
	return true;
}

TEST_LIMIT(there_is_no_grace_to_show_or_to_end, 60)
{
	lk_client *client = labelled("first");
	lk_memory memory;

	EXPECT(lk_client_memory(client, &memory), LK_EUNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "etcd has no grace"));
	EXPECT(lk_client_end_grace(client, NULL), LK_EUNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "etcd has no grace"));
	OK(lk_client_close(client));
}

TEST_LIMIT(names_are_listed, 60)
{
	lk_client *client = labelled("x");
	int counts[3] = {0};

	OK(lk_client_names(client, count_name, counts));
	ck_assert_int_eq(counts[0], 0);
	acquire(leased(client, "a/b"));
	acquire(leased(client, "listed"));
	for (int i = 0; i < 3; i++)
		etcd_ctl(&shared, "put lk/L/many/%d 1", i);
	OK(lk_client_names(client, count_name, counts));
	ck_assert_int_eq(counts[0], 3);
	ck_assert_int_eq(counts[1], 1);
	ck_assert_int_eq(counts[2], 1);
	etcd_ctl(&shared, "del --prefix lk/L/many/");
	OK(lk_client_close(client));
}

/* ---- Breaks ---- */

static atomic_int reason_of_loss;

static void lost(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	(void)arg;
	(void)lock;
	(void)fence;
	atomic_store(&reason_of_loss, (int)reason);
}

TEST_LIMIT(broken_hold_is_reported_and_handed_on, 120)
{
	const lk_lock_options options = {.lease_ms = 60000, .on_lost = lost};
	lk_client *clients[2] = {labelled("first"), labelled("second")};
	lk_lock *held = lock_with(clients[0], "broken", &options);
	lk_lock *other = leased(clients[1], "broken");
	struct waiter waiter;
	char id[LK_HOLDER_ID_SIZE];

	acquire(held);
	snprintf(id, sizeof(id), "%s", hold_of(held).holder_id);
	begin_waiting(&waiter, other);
	EXPECT(lk_lock_break(other, "another holder"), LK_EMISMATCH);
	OK(lk_lock_break(other, id));
	/* Long before the lease ends, and before a renewal. */
	OK(end_waiting(&waiter));
	ck_assert(WITHIN(LONG_MS, atomic_load(&reason_of_loss) == LK_LOST_BROKEN));
	EXPECT(lk_lock_release(held), LK_ELOST);
	EXPECT(lk_lock_break(other, id), LK_EABSENT);
	for (int i = 0; i < 2; i++)
		OK(lk_client_close(clients[i]));
}

static const char *first_key(const char *name)
{
	const char *keys = etcd_ctl(&shared, "get --prefix lk/L/%s/ --keys-only --limit 1", name);
	static char key[200];

	snprintf(key, sizeof(key), "%.*s", (int)strcspn(keys, "\n"), keys);
	return key;
}

/* Hold a lock as etcdctl and Go's concurrency.Mutex do, until that file is there. */
static int hold_by_etcdctl(void *arg, int in, int out)
{
	(void)in;
	(void)out;
	etcd_ctl(&shared, "lock lk/L/go -- sh -c 'while [ ! -e %s ]; do sleep 0.1; done' 2>&1",
	         (const char *)arg);
	return 0;
}

TEST_LIMIT(hold_of_etcdctl_is_shown_and_broken, 120)
{
	lk_client *client = labelled("x");
	lk_lock *lock = leased(client, "go");
	char folder[80], end[100];
	struct process etcdctl;
	struct waiter waiter;
	lk_lock_status status;
	FILE *file;

	folder_make(folder, sizeof(folder));
	snprintf(end, sizeof(end), "%s/end", folder);
	process_start(&etcdctl, hold_by_etcdctl, end);
	ck_assert(WITHIN(LONG_MS, *first_key("go")));
	OK(lk_lock_query(lock, &status));
	ck_assert(status.held);
	ck_assert_str_eq(status.holder.id, first_key("go") + strlen("lk/L/go/"));
	ck_assert_str_eq(status.holder.program, "not Latchkey");
	ck_assert_int_gt(status.lease_left_ms, 0);
	begin_waiting(&waiter, lock);
	OK(lk_lock_break(lock, status.holder.id));
	OK(end_waiting(&waiter));
	file = fopen(end, "w");
	ck_assert_ptr_nonnull(file);
	fclose(file);
	process_wait(&etcdctl, LONG_MS);
	OK(lk_client_close(client));
}
