/* SPDX-License-Identifier: MIT
 * Locks of the library's clients on real etcd servers. */
#include "harness/etcd_server.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEASE_MS 4000
#define LONG_MS 20000 /* for what comes at once on a machine that is not loaded */

/* Three nodes for all tests that stop none. */
static struct etcd_servers shared;

static void start_shared(void)
{
	etcd_start(&shared, 3);
}

__attribute__((constructor)) static void prepare(void)
{
	test_before_all(start_shared);
}

static lk_client *client_of(const struct etcd_servers *servers)
{
	return client_at(etcd_url(servers, "", ""));
}

static uint64_t acquire(lk_lock *lock)
{
	uint64_t fence = 0;

	OK(lk_lock_acquire(lock, LONG_MS, &fence));
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	return fence;
}

/* How many tickets that lock has. */
static int tickets(const struct etcd_servers *servers, const char *name)
{
	const char *at = etcd_ctl(servers, "get --prefix lk/L/%s/ --keys-only", name);
	int count = 0;

	while ((at = strstr(at, "lk/L/"))) {
		count++;
		at++;
	}
	return count;
}

/* ---- One thread ----------------------------------------------------------------------------- */

TEST_LIMIT(lock_is_acquired_and_released, 60)
{
	lk_client *client = client_of(&shared);
	lk_lock *lock = lock_leased(client, "plain", LEASE_MS);
	uint64_t first = acquire(lock), second;
	lk_hold hold = hold_of(lock);

	ck_assert(hold.remaining_ms > 0 && hold.remaining_ms <= LEASE_MS);
	OK(lk_lock_release(lock));
	EXPECT(lk_lock_release(lock), LK_ENOTOWNER);
	second = acquire(lock);
	ck_assert_uint_gt(second, first);
	/* Again by the same owner. */
	ck_assert_uint_eq(acquire(lock), second);
	OK(lk_lock_release(lock));
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	OK(lk_lock_release(lock));
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_NONE);
	OK(lk_client_close(client));
}

TEST_LIMIT(try_and_wait_of_a_held_lock_end_in_time, 60)
{
	lk_client *clients[2] = {client_of(&shared), client_of(&shared)};
	lk_lock *locks[2];
	uint64_t fence;

	for (int i = 0; i < 2; i++)
		locks[i] = lock_leased(clients[i], "busy/name", LEASE_MS);
	acquire(locks[0]);
	EXPECT(lk_lock_acquire(locks[1], 0, &fence), LK_EBUSY);
	EXPECT(lk_lock_acquire(locks[1], 300, &fence), LK_ETIMEDOUT);
	OK(lk_lock_release(locks[0]));
	OK(lk_lock_acquire(locks[1], 0, &fence));
	EXPECT(lk_lock_acquire(locks[0], 0, &fence), LK_EBUSY);
	OK(lk_client_close(clients[1])); /* releases it */
	OK(lk_lock_acquire(locks[0], 0, &fence));
	OK(lk_client_close(clients[0]));
}

TEST_LIMIT(hold_is_renewed_beyond_its_lease, 60)
{
	lk_client *client = client_of(&shared);
	lk_lock *lock = lock_leased(client, "renewed", 2000);
	int64_t cpu_ms;

	acquire(lock);
	cpu_ms = proc_cpu_ms(0);
	for (int i = 0; i < 25; i++) {
		nap_ms(100);
		ck_assert(lk_lock_is_mine(lock));
	}
	ck_assert_int_lt(proc_cpu_ms(0) - cpu_ms, 500); /* nothing spins */
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}

/* etcd's leases are of whole seconds, and of two at least. */
TEST_LIMIT(renewed_lease_is_rounded_up, 60)
{
	static const struct {
		int64_t asked, in_force;
	} cases[] = {{100, 2000}, {2000, 2000}, {2001, 3000}, {3999, 4000}, {0, 10000}};
	lk_client *client = client_of(&shared);

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		lk_lock *lock = lock_leased(client, "rounded", cases[i].asked);

		acquire(lock);
		ck_assert_int_eq(hold_of(lock).lease_ms, cases[i].in_force);
		OK(lk_lock_release(lock));
		OK(lk_lock_close(lock));
	}
	OK(lk_client_close(client));
}

/* By the owner's clock; the store would keep it for longer, but the client then releases it. */
TEST_LIMIT(fixed_lease_ends_when_it_was_asked_to, 60)
{
	const lk_lock_options options = {.lease_ms = 500, .fixed = true};
	lk_client *clients[2] = {client_of(&shared), client_of(&shared)};
	lk_lock *lock = lock_with(clients[0], "short", &options);
	lk_lock *next = lock_leased(clients[1], "short", LEASE_MS);
	lk_hold hold;

	acquire(lock);
	hold = hold_of(lock);
	ck_assert_int_eq(hold.lease_ms, 500);
	ck_assert_int_le(hold.remaining_ms, 500);
	acquire(next);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(lk_lock_release(next));
	for (int i = 0; i < 2; i++)
		OK(lk_client_close(clients[i]));
}

TEST_LIMIT(fixed_hold_ends_unless_it_is_extended, 60)
{
	const lk_lock_options options = {.lease_ms = 2000, .fixed = true};
	lk_client *client = client_of(&shared);
	lk_lock *lock = lock_with(client, "fixed", &options);

	acquire(lock);
	nap_ms(1000);
	OK(lk_lock_extend(lock, 2000));
	nap_ms(1200);
	ck_assert(lk_lock_is_mine(lock));
	ck_assert(WITHIN(LONG_MS, lk_lock_state(lock) == LK_STATE_LOST));
	EXPECT(lk_lock_release(lock), LK_ELOST);
	acquire(lock);
	OK(lk_client_close(client));
}

TEST_LIMIT(hold_is_extended_beyond_its_lease, 60)
{
	const lk_lock_options options = {.lease_ms = 2000, .fixed = true};
	lk_client *client = client_of(&shared);
	lk_lock *lock = lock_with(client, "longer", &options);
	uint64_t fence = acquire(lock);

	OK(lk_lock_extend(lock, 60000));
	nap_ms(5000); /* the lease of 2 s has ended, also in the store */
	ck_assert(lk_lock_is_mine(lock));
	ck_assert_int_gt(hold_of(lock).remaining_ms, 20000);
	ck_assert_uint_eq(hold_of(lock).fence, fence);
	ck_assert_int_eq(tickets(&shared, "longer"), 1);
	OK(lk_lock_release(lock));
	ck_assert_int_eq(tickets(&shared, "longer"), 0);
	OK(lk_client_close(client));
}

TEST_LIMIT(what_is_not_there_yet_is_refused, 60)
{
	const lk_semaphore_options options = {.capacity = 3, .fixed = true};
	lk_client *client = client_of(&shared);
	lk_semaphore *semaphore;

	OK(lk_semaphore_open(client, "s", 0, &options, &semaphore));
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, NULL), LK_EUNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "no rate limit on etcd"));
	OK(lk_client_close(client));
}

TEST_LIMIT(child_process_leaves_its_parents_client_alone, 60)
{
	lk_client *client = client_of(&shared);
	lk_lock *lock = lock_leased(client, "forked", LEASE_MS);
	pid_t pid;
	int status;

	acquire(lock);
	pid = process_fork();
	if (!pid)
		_exit(lk_lock_release(lock) != LK_EFORKED || lk_client_close(client) != LK_EFORKED);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}

/* ---- Losses
 * --------------------------------------------------------------------------------- */

static atomic_int losses;

static void lost(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	(void)arg;
	(void)lock;
	(void)fence;
	(void)reason;
	atomic_fetch_add(&losses, 1);
}

/* Revoke each lease that there is. */
static void revoke_all(const struct etcd_servers *servers)
{
	char ids[64][20];
	int count = 0;
	const char *at = etcd_ctl(servers, "lease list");

	while ((at = strchr(at, '\n')) && at[1] && count < 64) {
		at++;
		if (strcspn(at, "\n") == 16)
			snprintf(ids[count++], sizeof(ids[0]), "%.16s", at);
	}
	for (int i = 0; i < count; i++)
		etcd_ctl(servers, "lease revoke %s 2>&1 || true", ids[i]);
}

TEST_LIMIT(lease_that_was_revoked_loses_the_hold, 60)
{
	const lk_lock_options options = {.lease_ms = LEASE_MS, .on_lost = lost};
	lk_client *client = client_of(&shared);
	lk_lock *lock = lock_with(client, "revoked", &options);

	acquire(lock);
	revoke_all(&shared);
	ck_assert(WITHIN(LONG_MS, atomic_load(&losses) == 1));
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_LOST);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	acquire(lock);
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}

TEST_LIMIT(ticket_that_was_deleted_loses_the_hold, 60)
{
	lk_client *client = client_of(&shared);
	lk_lock *lock = lock_leased(client, "deleted", LEASE_MS);

	acquire(lock);
	etcd_ctl(&shared, "del --prefix lk/L/deleted/");
	ck_assert(WITHIN(LONG_MS, lk_lock_state(lock) == LK_STATE_LOST));
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(lk_client_close(client));
}

TEST_LIMIT(closed_client_leaves_nothing, 60)
{
	lk_client *clients[2] = {client_of(&shared), client_of(&shared)};
	char prefix[60];
	lk_lock *lock;

	for (int i = 0; i < 2; i++) {
		lock = lock_leased(clients[i], "left", LEASE_MS);
		acquire(lock);
		if (!i)
			OK(lk_lock_release(lock));
	}
	for (int i = 0; i < 2; i++) {
		snprintf(prefix, sizeof(prefix), "%s", lk_client_id(clients[i]));
		OK(lk_client_close(clients[i]));
		ck_assert(!strstr(etcd_ctl(&shared, "get --prefix lk/ --keys-only"), prefix));
	}
}

/* ---- Threads
 * -------------------------------------------------------------------------------- */

struct waiter {
	pthread_t thread;
	lk_lock *lock;
	int64_t wait_ms;
	lk_err err;
	uint64_t fence;
	atomic_bool done;
};

static void *wait_for(void *arg)
{
	struct waiter *waiter = arg;

	waiter->err = lk_lock_acquire(waiter->lock, waiter->wait_ms, &waiter->fence);
	if (!waiter->err && lk_lock_release(waiter->lock))
		waiter->err = LK_EUNKNOWN;
	atomic_store(&waiter->done, true);
	return NULL;
}

static void begin_waiting(struct waiter *waiter, lk_lock *lock, int64_t wait_ms)
{
	memset(waiter, 0, sizeof(*waiter));
	waiter->lock = lock;
	waiter->wait_ms = wait_ms;
	ck_assert(!pthread_create(&waiter->thread, NULL, wait_for, waiter));
}

static lk_err end_waiting(struct waiter *waiter)
{
	ck_assert(WITHIN(LONG_MS * 2, atomic_load(&waiter->done)));
	pthread_join(waiter->thread, NULL);
	return waiter->err;
}

TEST_LIMIT(lock_is_handed_on_in_order, 120)
{
	lk_client *clients[3];
	lk_lock *locks[3];
	struct waiter waiters[3];
	uint64_t fence;

	for (int i = 0; i < 3; i++) {
		clients[i] = client_of(&shared);
		locks[i] = lock_leased(clients[i], "queue", LEASE_MS);
	}
	fence = acquire(locks[0]);
	for (int i = 1; i < 3; i++) {
		begin_waiting(&waiters[i], locks[i], LK_FOREVER);
		ck_assert(WITHIN(LONG_MS, tickets(&shared, "queue") == i + 1));
	}
	OK(lk_lock_release(locks[0]));
	for (int i = 1; i < 3; i++) {
		OK(end_waiting(&waiters[i]));
		ck_assert_uint_gt(waiters[i].fence, fence);
		fence = waiters[i].fence;
	}
	for (int i = 0; i < 3; i++)
		OK(lk_client_close(clients[i]));
}

TEST_LIMIT(threads_of_a_client_share_its_connection, 120)
{
	enum { THREADS = 8, ROUNDS = 20 };
	lk_client *client = client_of(&shared);
	lk_lock *lock = lock_leased(client, "threads", LEASE_MS);
	struct waiter waiters[THREADS];

	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < THREADS; i++)
			begin_waiting(&waiters[i], lock, LONG_MS);
		for (int i = 0; i < THREADS; i++)
			OK(end_waiting(&waiters[i]));
	}
	OK(lk_client_close(client));
	ck_assert_int_eq(tickets(&shared, "threads"), 0);
}

TEST_LIMIT(wait_is_cancelled, 60)
{
	lk_client *clients[2] = {client_of(&shared), client_of(&shared)};
	lk_lock *locks[2];
	struct waiter waiter;

	for (int i = 0; i < 2; i++)
		locks[i] = lock_leased(clients[i], "cancelled", LEASE_MS);
	acquire(locks[0]);
	begin_waiting(&waiter, locks[1], LK_FOREVER);
	ck_assert(WITHIN(LONG_MS, tickets(&shared, "cancelled") == 2));
	OK(lk_lock_cancel(locks[1]));
	EXPECT(end_waiting(&waiter), LK_ECANCELED);
	ck_assert_int_eq(tickets(&shared, "cancelled"), 1);
	begin_waiting(&waiter, locks[1], LK_FOREVER);
	ck_assert(WITHIN(LONG_MS, tickets(&shared, "cancelled") == 2));
	OK(lk_client_close(clients[1]));
	EXPECT(end_waiting(&waiter), LK_ECLOSED);
	OK(lk_client_close(clients[0]));
	ck_assert_int_eq(tickets(&shared, "cancelled"), 0);
}

/* ---- The member ----------------------------------------------------------------------------- */

/* The URL names three, in any order that the client chooses. */
TEST_LIMIT(client_names_the_member_that_it_uses, 60)
{
	lk_client *client = client_of(&shared);
	lk_server server;
	int port = 0;
	bool found = false;

	OK(lk_client_server(client, &server));
	ck_assert_int_eq(sscanf(server.address, "127.0.0.1:%d", &port), 1);
	ck_assert_ptr_null(strchr(server.address, ','));
	for (int i = 0; i < shared.count; i++)
		found = found || shared.nodes[i].port == port;
	ck_assert(found);
	ck_assert_str_eq(server.service, "");
	OK(lk_client_close(client));
}

static char logged[2000];

static void note(void *arg, lk_log_level level, const char *line)
{
	(void)arg;
	(void)level;
	snprintf(logged + strlen(logged), sizeof(logged) - strlen(logged), "%s\n", line);
}

TEST_LIMIT(old_version_is_logged_with_its_member, 60)
{
	const lk_client_options options = {.log = note};
	lk_client *client = client_with(etcd_url(&shared, "", ""), &options);
	lk_server server;
	int minor, patch;
	bool is_old;

	OK(lk_client_server(client, &server));
	ck_assert_int_eq(
		sscanf(etcd_ctl(&shared, "version"), "etcdctl version: 3.%d.%d", &minor, &patch),
		2);
	is_old = minor < 4 || (minor == 4 && patch < 31) || (minor == 5 && patch < 13);
	OK(lk_client_close(client)); /* the line comes from another thread */
	ck_assert_msg(is_old == !!strstr(logged, "may end a renewed lease early"), "%s", logged);
	ck_assert_msg(!is_old || !strncmp(logged, server.address, strlen(server.address)), "%s",
	              logged);
}

TEST_LIMIT(error_names_a_member_when_none_can_be_used, 60)
{
	lk_client *client;

	EXPECT(lk_client_open("etcd://127.0.0.1:1,127.0.0.1:2", NULL, &client), LK_ECONN);
	ck_assert_msg(strstr(lk_errmsg(), "127.0.0.1:1,...: no member can be used: 127.0.0.1:"),
	              "%s", lk_errmsg());
}

/* ---- Processes ------------------------------------------------------------------------------ */

#define ROUNDS 200

/* Acquire in turn with another process; a file that both create shows an overlap. */
static int contend(void *arg, int in, int out)
{
	const char *path = arg;
	lk_client *client;
	lk_lock *lock;
	const lk_lock_options options = {.lease_ms = LEASE_MS};

	(void)in;
	if (lk_client_open(etcd_url(&shared, "", ""), NULL, &client) ||
	    lk_lock_open(client, "contest", 0, &options, &lock))
		return 2;
	for (int i = 0; i < ROUNDS; i++) {
		int fd;
		if (lk_lock_acquire(lock, LK_FOREVER, NULL)) {
			line_write(out, "%s", lk_errmsg());
			return 3;
		}
		fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
		if (fd < 0) {
			line_write(out, "two holders");
			return 4;
		}
		close(fd);
		unlink(path);
		if (lk_lock_release(lock)) {
			line_write(out, "%s", lk_errmsg());
			return 5;
		}
	}
	return lk_client_close(client) ? 6 : 0;
}

TEST_LIMIT(processes_exclude_each_other, 240)
{
	struct process processes[2];
	char folder[80], path[100];

	folder_make(folder, sizeof(folder));
	snprintf(path, sizeof(path), "%s/held", folder);
	for (int i = 0; i < 2; i++)
		process_start(&processes[i], contend, path);
	for (int i = 0; i < 2; i++) {
		int status = process_wait(&processes[i], 200000);
		ck_assert_msg(!status, "%x: %s", (unsigned)status, line_read(processes[i].out, 0));
	}
	ck_assert_int_eq(tickets(&shared, "contest"), 0);
}
