/* SPDX-License-Identifier: MIT
 * Packets that the kernel drops (N1 to N3 of the fault list): no reset, no end, only silence.  Each
 * test has its own network namespace, which ends with it, so that its rules affect no other
 * program. */
#include "harness/own_network.h"
#include "harness/primitive.h"
#include "harness/rights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_up(void)
{
	own_network_enter();
	fault_set_up(NULL);
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

TEST_OF(n1_dropped_requests_lose_a_hold_at_its_deadline_not_before, EVERY, 40)
{
	struct claims held, others;
	lk_client *client;

	NEEDS_PACKETS;
	set_up();
	client = client_open(300);
	claims_open(&others, set, client, 0);
	claims_hold(&held, set, client, 1200);
	drop("dport");
	claims_expect_expiry(&held);
	claims_start(&others, 200, true);
	claims_join(&others, LK_ECONN);
	EACH (claim, &others)
		ck_assert_int_le(claim->took_ms, 200 + 300 + 50);
	ck_assert(WITHIN(2000, claims_at_rest(set & LOCK))); /* permits: at the next request */
	ck_assert_int_gt(heal(), 0);
	claims_release_lost(&held);
	held.set = set & LEASED;
	claims_hold_again(&held);
	held.set = set & ~LEASED;
	claims_expect_held(&held);
	claims_release(&held);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
}

/* Each alone, so that the waiting thread itself reads the link. */
TEST_EACH(n1_request_that_is_dropped_is_unknown_in_time, LEASED, 40)
{
	struct claims claims;
	lk_client *client;

	NEEDS_PACKETS;
	set_up();
	client = client_open(300);
	claims_warm_up(set, client);
	claims_open(&claims, set, client, 0);
	drop("dport");
	claims_start(&claims, 0, true);
	claims_join(&claims, LK_EUNKNOWN); /* the first calls cannot know */
	EACH (claim, &claims)
		ck_assert_int_le(claim->took_ms, 300 + 100);
	ck_assert_int_gt(heal(), 0);
	claims_hold_again(&claims);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
}

TEST_OF(n2_acquire_whose_answer_is_dropped_becomes_one_hold, LEASED, 40)
{
	struct claims claims;
	lk_client *client;
	long long fence;

	NEEDS_PACKETS;
	set_up();
	client = client_open(300);
	claims_open(&claims, set, client, 10000);
	drop("sport");
	claims_start(&claims, 10000, true);
	ck_assert(WITHIN(2000, claims_in_use(set)));
	fence = redis_int(redis, "GET lk:fence"); /* the last grant's */
	ck_assert(!WITHIN(600, claims_any_ended(&claims)));
	ck_assert_int_gt(heal(), 0);
	claims_join(&claims, LK_OK);
	EACH (claim, &claims)
		ck_assert_int_le((long long)claim->fence, fence);
	claims_expect_held(&claims);
	ck_assert(claims_waiting(set, 0));
	claims_release(&claims);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
}

TEST_OF(n2_acquire_that_is_given_up_unanswered_ends_with_its_lease, LEASED, 40)
{
	struct claims claims;
	lk_client *client, *other;

	NEEDS_PACKETS;
	set_up();
	client = client_open(300);
	claims_open(&claims, set, client, 900);
	drop("sport");
	claims_start(&claims, 200, true);
	ck_assert(WITHIN(200, claims_in_use(set))); /* there is a grant */
	claims_join(&claims, LK_EUNKNOWN);
	EACH (claim, &claims) {
		ck_assert_int_le(claim->took_ms, 200 + 300 + 100);
		ck_assert_int_eq(claim->primitive->state(claim), LK_STATE_NONE);
	}
	/* The leave that followed released it; had that been dropped, the lease would have ended
	 * it. */
	ck_assert(WITHIN(1200, claims_at_rest(set)));
	ck_assert_int_gt(heal(), 0);
	other = client_open(300);
	claims_hold_later(&claims, set, other, 0);
	OK(lk_client_close(other));
	lk_client_close(client);
}

/* The server's machine vanishes: no FIN, no RST, and the server's side stays open. */
TEST_OF(n3_vanished_server_is_noticed_on_both_connections, EVERY, 40)
{
	struct claims held, waits;
	lk_client *client, *near;
	int64_t start_ms;

	NEEDS_PACKETS;
	set_up();
	near = client_at(server.unix_url);
	claims_hold(&held, set, near, 0);
	client = client_open(300);
	claims_queue(&waits, set, client, 900, true);
	nap_ms(50);
	ck_assert_int_eq(established(), 2);
	vanish();
	start_ms = now_ms();
	/* A PING after a third of the lease without data; given up after a command timeout. */
	ck_assert(WITHIN(2000, established() == 0));
	ck_assert_int_le(now_ms() - start_ms, 900 / 3 + 300 + 150);
	ck_assert_int_ge(redis_info(redis, "connected_clients"), 4); /* they are still open */
	/* The grant goes to a stale connection; the wait does not lose it. */
	claims_release(&held);
	nap_ms(50);
	ck_assert(!claims_any_ended(&waits));
	ck_assert_int_gt(heal(), 0);
	start_ms = now_ms();
	claims_join(&waits, LK_OK);
	ck_assert_int_le(now_ms() - start_ms, 3000);
	claims_release(&waits);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
	OK(lk_client_close(near));
}
