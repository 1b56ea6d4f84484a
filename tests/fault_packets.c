/* SPDX-License-Identifier: MIT
 * Packets that the kernel drops (N1 to N3 of the fault list): no reset, no end, only silence.  Each
 * test has its own network namespace, which ends with it, so that its rules affect no other
 * program. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/rights.h"
#include "harness/server.h"
#include "harness/test.h"
#include "harness/watch.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static struct test_server server;
static struct redis *redis; /* over the Unix socket, which always works */

static void file_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	ck_assert_msg(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "%s",
	              path);
	close(fd);
}

/* A private loopback interface, with or without root. */
static void enter_namespace(void)
{
	struct ifreq lo = {.ifr_name = "lo"};
	char map[64];
	unsigned uid = getuid(), gid = getgid();
	int fd;

	if (unshare(CLONE_NEWNET)) {
		ck_assert_msg(!unshare(CLONE_NEWUSER | CLONE_NEWNET),
		              "no network namespace: run as root, or allow user namespaces");
		file_write("/proc/self/setgroups", "deny");
		snprintf(map, sizeof(map), "0 %u 1", uid);
		file_write("/proc/self/uid_map", map);
		snprintf(map, sizeof(map), "0 %u 1", gid);
		file_write("/proc/self/gid_map", map);
	}
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	lo.ifr_flags = IFF_UP | IFF_RUNNING;
	ck_assert_msg(!ioctl(fd, SIOCSIFFLAGS, &lo), "cannot bring the loopback up");
	close(fd);
}

static void set_up(void)
{
	setenv("PATH", "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin:/usr/local/bin", 1);
	enter_namespace();
	server_start(&server, NULL);
	redis = redis_open(&server);
}

/* Drop packets to ("dport") or from ("sport") the server. */
static void drop(const char *which)
{
	ck_assert_msg(!shell("nft 'add table inet faults; add chain inet faults in "
	                     "{ type filter hook input priority 0; }; "
	                     "add rule inet faults in tcp %s %d counter drop'",
	                     which, server.port),
	              "nft does not work: install nftables");
}

/* Drop both: the other machine is gone, without notice. */
static void vanish(void)
{
	drop("dport");
	ck_assert(!shell("nft add rule inet faults in tcp sport %d counter drop", server.port));
}

/* End the drop; returns the number of dropped packets. */
static long heal(void)
{
	FILE *rules = popen("nft list table inet faults", "re");
	char line[512];
	long packets = -1;

	ck_assert_ptr_nonnull(rules);
	while (fgets(line, sizeof(line), rules)) {
		const char *at = strstr(line, "counter packets ");
		if (at)
			packets = strtol(at + strlen("counter packets "), NULL, 10);
	}
	pclose(rules);
	ck_assert_int_eq(shell("nft delete table inet faults"), 0);
	return packets;
}

static lk_client *client_open(int64_t command_timeout_ms)
{
	const lk_client_options options = {.command_timeout_ms = command_timeout_ms};

	return client_with(server.url, &options);
}

/* Connections to the server that this process believes alive. */
static int established(void)
{
	FILE *table = fopen("/proc/self/net/tcp", "re");
	char line[512];
	int count = 0;

	ck_assert_ptr_nonnull(table);
	while (fgets(line, sizeof(line), table)) {
		unsigned port, state;
		if (sscanf(line, " %*d: %*x:%*x %*x:%x %x", &port, &state) == 2)
			count += (int)port == server.port && state == 1;
	}
	fclose(table);
	return count;
}

TEST_LIMIT(n1_dropped_requests_lose_a_hold_at_its_deadline_not_before, 40)
{
	lk_client *client;
	lk_lock *lock, *other;
	int64_t until_ms = 0, start_ms;
	uint64_t fence;

	NEEDS_PACKETS;
	set_up();
	client = client_open(300);
	other = lock_named(client, "b");
	lock = hold_watched(client, "a", 1200);
	fence = hold_of(lock).fence;
	drop("dport");
	while (lk_lock_is_mine(lock)) {
		until_ms = now_ms() + hold_of(lock).remaining_ms;
		nap_ms(1);
	}
	ck_assert_int_ge(now_ms(), until_ms - 5);
	ck_assert(WITHIN(200, losses.count == 1));
	ck_assert_int_ge(losses.at_ms, until_ms - 5);
	ck_assert_int_le(losses.at_ms, until_ms + 50);
	ck_assert_int_eq(losses.reason, LK_LOST_EXPIRED);
	ck_assert_uint_eq(losses.fence, fence);
	start_ms = now_ms();
	EXPECT(lk_lock_acquire(other, 200, NULL), LK_ECONN);
	ck_assert_int_le(now_ms() - start_ms, 200 + 300 + 50);
	ck_assert(WITHIN(2000, redis_int(redis, "EXISTS lk:{a} lk:{b} lk:{b}:q") == 0));
	ck_assert_int_gt(heal(), 0);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	ck_assert(WITHIN(8000, lk_lock_acquire(lock, 1000, NULL) == LK_OK));
	ck_assert_uint_gt(hold_of(lock).fence, fence);
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}

TEST_LIMIT(n1_request_that_is_dropped_is_unknown_in_time, 40)
{
	lk_client *client;
	lk_lock *lock;
	int64_t start_ms;

	NEEDS_PACKETS;
	set_up();
	client = client_open(300);
	lock = lock_named(client, "a");
	OK(lk_lock_acquire(lock, 1000, NULL));
	OK(lk_lock_release(lock));
	drop("dport");
	start_ms = now_ms();
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EUNKNOWN); /* the first call cannot know */
	ck_assert_int_le(now_ms() - start_ms, 300 + 100);
	ck_assert_int_gt(heal(), 0);
	ck_assert(WITHIN(8000, lk_lock_acquire(lock, 1000, NULL) == LK_OK));
	OK(lk_lock_release(lock));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	OK(lk_client_close(client));
}

TEST_LIMIT(n2_acquire_whose_answer_is_dropped_becomes_one_hold, 40)
{
	struct waiter waiter;
	lk_client *client;
	lk_lock *lock;
	long long fence;
	char holder[200];

	NEEDS_PACKETS;
	set_up();
	client = client_open(300);
	lock = lock_of_handle(client, "a", 10000);
	drop("sport");
	waiter_start(&waiter, lock, 10000, true);
	ck_assert(WITHIN(2000, redis_int(redis, "EXISTS lk:{a}") == 1));
	fence = redis_int(redis, "GET lk:fence");
	snprintf(holder, sizeof(holder), "%s", redis_text(redis, "GET lk:{a}"));
	ck_assert(!WITHIN(600, waiter.ended));
	ck_assert_int_gt(heal(), 0);
	OK(waiter_join(&waiter));
	ck_assert_int_eq((long long)waiter.fence, fence);
	ck_assert_str_eq(redis_text(redis, "GET lk:{a}"), holder);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}:q"), 0);
	ck_assert_uint_eq(hold_of(lock).count, 1);
	OK(lk_lock_release(lock));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	OK(lk_client_close(client));
}

TEST_LIMIT(n2_acquire_that_is_given_up_unanswered_ends_with_its_lease, 40)
{
	lk_client *client, *other;
	lk_lock *lock;
	int64_t start_ms;

	NEEDS_PACKETS;
	set_up();
	client = client_open(300);
	lock = lock_leased(client, "a", 900);
	drop("sport");
	start_ms = now_ms();
	EXPECT(lk_lock_acquire(lock, 200, NULL), LK_EUNKNOWN);
	ck_assert_int_le(now_ms() - start_ms, 200 + 300 + 100);
	ck_assert(!lk_lock_is_mine(lock));
	ck_assert_int_gt(redis_int(redis, "GET lk:fence"), 0); /* there was a grant */
	/* The leave that followed released it; had that been dropped, the lease would have ended
	 * it. */
	ck_assert(WITHIN(1200, redis_int(redis, "EXISTS lk:{a}") == 0));
	ck_assert_int_gt(heal(), 0);
	other = client_open(300);
	OK(lk_lock_acquire(lock_named(other, "a"), 1000, NULL));
	OK(lk_client_close(other));
	lk_client_close(client);
}

/* The server's machine vanishes: no FIN, no RST, and the server's side stays open. */
TEST_LIMIT(n3_vanished_server_is_noticed_on_both_connections, 40)
{
	struct waiter waiter;
	lk_client *client, *near;
	lk_lock *held;
	int64_t start_ms;

	NEEDS_PACKETS;
	set_up();
	near = client_at(server.unix_url);
	held = lock_named(near, "a");
	OK(lk_lock_acquire(held, 0, NULL));
	client = client_open(300);
	waiter_start(&waiter, lock_of_handle(client, "a", 900), 15000, true);
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	nap_ms(50);
	ck_assert_int_eq(established(), 2);
	vanish();
	start_ms = now_ms();
	/* A PING after a third of the lease without data; given up after a command timeout. */
	ck_assert(WITHIN(2000, established() == 0));
	ck_assert_int_le(now_ms() - start_ms, 900 / 3 + 300 + 150);
	ck_assert_int_ge(redis_info(redis, "connected_clients"), 4); /* they are still open */
	/* The grant goes to a stale connection; the wait does not lose it. */
	OK(lk_lock_release(held));
	nap_ms(50);
	ck_assert(!waiter.ended);
	ck_assert_int_gt(heal(), 0);
	start_ms = now_ms();
	OK(waiter_join(&waiter));
	ck_assert_int_le(now_ms() - start_ms, 3000);
	OK(lk_lock_release(waiter.lock));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	OK(lk_client_close(client));
	OK(lk_client_close(near));
}
