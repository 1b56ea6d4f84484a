/* SPDX-License-Identifier: MIT
 * A server that loses its memory (G1 to G5, G9 to G11 of the fault list): for a grace it grants
 * nothing new, and the holders reclaim their holds. */
#include "harness/grace.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HOLDS 3 /* of a lock and a semaphore, as the claims hold them */

static lk_counters counters_of(lk_client *client)
{
	lk_counters counters;

	OK(lk_client_counters(client, &counters));
	return counters;
}

/* ---- Holds survive ------------------------------------------------------------------------ */

/* The memory is lost while each is held and awaited.  The holds go on beyond the grace, in which
 * nothing is granted beside them, and then the waiters are served. */
static void survive(unsigned set, const char *url, void (*lose)(void))
{
	lk_client *client = client_at(url), *other = client_at(url);
	struct claims held, waits[2];

	claims_hold(&held, set, client, LEASE_MS);
	claims_queue(&waits[0], set, other, LEASE_MS, false);
	claims_queue(&waits[1], set, client_at(url), LEASE_MS, false);
	lose();
	ck_assert(WITHIN(LEASE_MS, counters_of(client).reclaimed == HOLDS));
	claims_expect_held(&held);
	ck_assert(WITHIN(BACK_MS, claims_waiting(set, 2)));
	ck_assert_int_gt(grace_left_ms(), 0);
	grace_expect_busy(set, other);
	grace_sit_out(&waits[0]);
	claims_stay_held(&held, LEASE_MS);
	for (int i = 0; i < 2; i++)
		ck_assert(!claims_any_ended(&waits[i]));
	claims_expect_held(&held);
	ck_assert_int_eq(counters_of(client).reclaimed, HOLDS);
	claims_release(&held);
	for (int i = 0; i < 2; i++) {
		claims_join(&waits[i], LK_OK);
		claims_expect_newer(&waits[i], &held);
	}
	claims_hold_again(&held);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_OF(g1_killed_server_keeps_one_holder, LEASED, 40)
{
	grace_set_up(NULL);
	survive(set, grace_url(server.port, GRACE_MS, ""), fault_restart);
}

static void flush(void)
{
	redis_do(redis, "FLUSHALL");
	ck_assert_int_eq(redis_calls(redis, "flushall"), 1);
}

TEST_OF(g3_flushall_keeps_one_holder, LEASED, 40)
{
	grace_set_up(NULL);
	survive(set, grace_url(server.port, GRACE_MS, ""), flush);
}

/* The connected clients have another database now, which is empty. */
static void swap_for_an_empty_one(void)
{
	redis_do(redis, "SWAPDB 0 1");
	ck_assert_int_eq(redis_int(redis, "DBSIZE"), 0);
}

TEST_OF(g3_swapped_database_keeps_one_holder, LEASED, 40)
{
	grace_set_up(NULL);
	survive(set, grace_url(server.port, GRACE_MS, ""), swap_for_an_empty_one);
}

/* Without a trace of the flush: only the clients know that there was a marker. */
static void flush_unseen(void)
{
	redis_do(redis, "MULTI");
	redis_do(redis, "FLUSHALL");
	redis_do(redis, "CONFIG RESETSTAT");
	redis_do(redis, "EXEC");
	ck_assert_ptr_null(strstr(redis_text(redis, "INFO commandstats"), "flushall"));
}

TEST_OF(g4_missing_marker_of_a_known_server_is_a_loss, LEASED, 40)
{
	grace_set_up(NULL);
	nap_ms(GRACE_MS + 500); /* the process is older than a grace */
	survive(set, grace_url(server.port, GRACE_MS, ""), flush_unseen);
}

/* The client that connects first after the flush did not know the server, which is older than a
 * grace.  The holder has no link. */
static void lose_before_a_new_client(void (*lose)(void))
{
	struct claims held;
	lk_client *client;

	fault_set_up_proxy();
	ck_assert(WITHIN(10000, redis_info(redis, "uptime_in_seconds") > GRACE_MS / 1000 + 1));
	client = client_at(grace_url(proxy.port, GRACE_MS, ""));
	claims_hold(&held, LEASED, client, LEASE_MS);
	proxy_refuse(&proxy, true);
	proxy_cut(&proxy, PROXY_COMMANDS, false);
	proxy_cut(&proxy, PROXY_MESSAGES, false);
	lose();
	grace_expect_busy(LEASED, grace_client());
	proxy_heal(&proxy);
	ck_assert(WITHIN(LEASE_MS, counters_of(client).reclaimed == HOLDS));
	claims_expect_held(&held);
	claims_release(&held);
	OK(lk_client_close(client));
}

TEST_LIMIT(g3_flushall_is_seen_by_a_new_client, 30)
{
	lose_before_a_new_client(flush);
}

/* The database of the clients is now another one, which has served clients, too, and is empty but
 * for their marker. */
static void swap(void)
{
	redis_do(redis, "COPY lk:epoch lk:epoch DB 1");
	redis_do(redis, "SWAPDB 0 1");
	ck_assert_int_eq(redis_int(redis, "DBSIZE"), 1);
}

TEST_LIMIT(g3_swapped_database_is_seen_by_a_new_client, 30)
{
	lose_before_a_new_client(swap);
}

/* Swapped back: the first memory is there again, with its marker, and does not know what was
 * granted meanwhile.  A client that has known it all the time, and asks first, is granted beside a
 * holder.
 */
TEST_OF(g3_database_that_is_swapped_back_makes_two_holders, LEASED, 30)
{
	struct claims held, beside;
	lk_client *known, *client;

	grace_set_up(NULL);
	known = grace_client();
	claims_warm_up(set, known);
	claims_open(&beside, set, known, LEASE_MS);
	swap_for_an_empty_one();
	client = grace_client();
	claims_hold_later(&held, set, client, LEASE_MS);
	redis_do(redis, "SWAPDB 0 1");
	EACH (claim, &beside)
		OK(claim->primitive->wait(claim, 0));
	EACH (claim, &held)
		ck_assert_int_gt(claim->primitive->remaining_ms(claim), 0);
	EACH (claim, &beside)
		ck_assert_int_gt(claim->primitive->remaining_ms(claim), 0);
	lk_client_close(client);
	lk_client_close(known);
}

TEST_OF(g11_restart_with_an_append_only_file_has_a_grace, LEASED, 40)
{
	const struct server_options aof = {.appendonly = true};

	grace_set_up(&aof);
	survive(set, grace_url(server.port, GRACE_MS, ""), fault_restart);
}

static void restart_from_snapshot(void)
{
	redis_do(redis, "SAVE");
	fault_restart();
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{lock}"), 1);
}

TEST_OF(g11_restart_from_a_snapshot_has_a_grace, LEASED, 40)
{
	grace_set_up(NULL);
	survive(set, grace_url(server.port, GRACE_MS, ""), restart_from_snapshot);
}

/* A user that may not call INFO: only a missing marker shows a loss. */
TEST_OF(g10_without_info_a_missing_marker_is_a_loss, LEASED, 40)
{
	static const char *const args[] = {"--user", "app",   "on",    ">secret", "~*",
	                                   "&*",     "+@all", "-info", NULL};
	const struct server_options options = {.args = args};
	char url[100];

	grace_set_up(&options);
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "ACL LIST"), "-info"));
	redis_do(redis, "SET lk:epoch %s", "1 - 1");
	snprintf(url, sizeof(url), "redis://app:secret@127.0.0.1:%d?grace=%d", server.port,
	         GRACE_MS);
	survive(set, url, fault_restart);
	ck_assert(!strncmp(redis_marker(redis), "1 - ", 4));
}

/* The default grace, with the longest leases that it covers. */
TEST_OF(g1_default_grace_keeps_one_holder, LEASED, 60)
{
	struct claims held, waits;
	lk_client *client, *other;
	char url[60];
	int64_t start_ms;

	grace_set_up(NULL);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d", server.port);
	client = client_at(url);
	other = client_at(url);
	claims_hold(&held, set, client, 10000);
	fault_restart();
	start_ms = now_ms();
	grace_open_free(&waits, set, other);
	claims_start(&waits, LK_FOREVER, false);
	while (now_ms() < start_ms + 8500) {
		EACH (claim, &waits)
			ck_assert_msg(!claim->ended, "%s: %s after %lld ms", claim->primitive->name,
			              lk_err_name(claim->err), (long long)claim->took_ms);
		nap_ms(10);
	}
	claims_join(&waits, LK_OK);
	ck_assert_int_lt(now_ms() - start_ms, 10000 + LATE_MS);
	claims_expect_held(&held);
	ck_assert_int_eq(counters_of(client).reclaimed, HOLDS);
	claims_release(&held);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* ---- There is no holder -------------------------------------------------------------------------
 */

/* A client waits for the rest of the grace, one without a grace does not, and the error of a try
 * names the reason. */
TEST_OF(g1_grace_ends_by_itself, LEASED, 40)
{
	struct claims waits, now;
	lk_client *client, *hasty, *brief;
	lk_counters counters;
	int64_t since_us, late_us;

	fault_set_up(NULL);
	client = grace_client();
	since_us = grace_since_us();
	claims_open(&waits, set, client, LEASE_MS);
	claims_start(&waits, LK_FOREVER, false);
	ck_assert(WITHIN(2000, claims_waiting(set, 1)));
	grace_expect_busy(set, client);
	hasty = client_at(server.url);
	grace_open_free(&now, set, hasty);
	EACH (claim, &now) {
		OK(claim->primitive->wait(claim, 0));
		OK(claim->primitive->release(claim));
	}
	brief = grace_client();
	grace_open_free(&now, set, brief);
	EACH (claim, &now)
		EXPECT(claim->primitive->wait(claim, 300), LK_ETIMEDOUT);
	ck_assert_int_gt(counters_of(brief).grace_us, 2 * 200 * 1000);
	ck_assert_int_le(counters_of(brief).grace_us, 2 * 350 * 1000);
	grace_sit_out(&waits);
	claims_join(&waits, LK_OK);
	late_us = grace_now_us() - since_us - GRACE_MS * 1000;
	ck_assert_int_lt(late_us, LATE_MS * 1000);
	counters = counters_of(client);
	ck_assert_int_eq(counters.reclaimed, 0);
	ck_assert_int_eq(counters.busy, 2);
	/* Two calls waited for about a grace, and not for more. */
	ck_assert_int_gt(counters.grace_us, 2 * (GRACE_MS * 1000 - LATE_MS * 300));
	ck_assert_int_le(counters.grace_us, 2 * (GRACE_MS + 50) * 1000);
	ck_assert_int_le(counters.grace_us, counters.waited_us);
	ck_assert_int_eq(counters_of(hasty).grace_us, 0);
	OK(lk_client_close(client));
	OK(lk_client_close(hasty));
	OK(lk_client_close(brief));
}

/* ---- Since when --------------------------------------------------------------------------- */

static int64_t wall_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

/* The uptime of a server is the difference of two times in whole seconds, and so may be too long.
 * Each prefix has a marker of its own, written at another time of the second. */
TEST_LIMIT(g2_memory_is_not_older_than_its_process, 30)
{
	int64_t before_us, started_us;

	before_us = wall_us();
	fault_set_up(NULL);
	started_us = wall_us();
	for (int i = 0; i < 12; i++) {
		char more[20], key[20];
		int64_t since_us;
		snprintf(more, sizeof(more), "&prefix=p%d", i);
		snprintf(key, sizeof(key), "p%d:epoch", i);
		OK(lk_client_close(client_at(grace_url(server.port, GRACE_MS, more))));
		since_us = strtoll(strrchr(redis_text(redis, "GET %s", key), ' '), NULL, 10);
		ck_assert_int_ge(since_us, before_us);
		ck_assert_int_le(since_us, started_us + 2000000);
		nap_ms(150);
	}
}

TEST_LIMIT(g2_server_that_is_older_than_a_grace_grants_at_once, 20)
{
	struct claims held;
	lk_client *client;

	fault_set_up(NULL);
	ck_assert(WITHIN(10000, redis_info(redis, "uptime_in_seconds") > GRACE_MS / 1000 + 1));
	client = grace_client();
	claims_hold(&held, LEASED, client, LEASE_MS);
	claims_release(&held);
	ck_assert_int_eq(counters_of(client).grace_us, 0);
	OK(lk_client_close(client));
}

/* The server's clock was set back after the marker was written: the grace begins again, and does
 * not last until the clock is there. */
TEST_LIMIT(g2_memory_that_begins_in_the_future_begins_now, 20)
{
	struct claims held;
	lk_client *known, *client;
	char marker[128];

	fault_set_up(NULL);
	known = client_at(grace_url(server.port, 500, ""));
	snprintf(marker, sizeof(marker), "%.42s %lld", redis_marker(redis),
	         (long long)grace_now_us() + 3600000000);
	redis_do(redis, "SET lk:epoch %s", marker);
	client = client_at(grace_url(server.port, 500, ""));
	ck_assert_int_le(grace_since_us(), grace_now_us());
	grace_open_free(&held, LEASED, known);
	EACH (claim, &held) {
		OK(claim->primitive->wait(claim, 5000));
		OK(claim->primitive->release(claim));
	}
	OK(lk_client_close(client));
	OK(lk_client_close(known));
}

/* ---- The marker --------------------------------------------------------------------------- */

#define CLIENTS 8

static pthread_barrier_t barrier;

static void *connect_at_once(void *arg)
{
	lk_client **client = arg;

	pthread_barrier_wait(&barrier);
	OK(lk_client_open(server.url, NULL, client));
	return NULL;
}

/* The first one counts: no client is answered later that the memory is another one. */
TEST_LIMIT(g5_clients_that_write_the_marker_at_once_agree, 30)
{
	pthread_t threads[CLIENTS];
	lk_client *clients[CLIENTS];
	char marker[128];

	for (int round = 0; round < 5; round++) {
		if (round)
			server_stop(&server);
		fault_set_up(NULL);
		ck_assert(!pthread_barrier_init(&barrier, NULL, CLIENTS));
		for (int i = 0; i < CLIENTS; i++)
			ck_assert(!pthread_create(&threads[i], NULL, connect_at_once, &clients[i]));
		for (int i = 0; i < CLIENTS; i++)
			pthread_join(threads[i], NULL);
		snprintf(marker, sizeof(marker), "%s", redis_marker(redis));
		for (int i = 0; i < CLIENTS; i++) {
			char name[20];
			lk_lock *lock;
			snprintf(name, sizeof(name), "n%d", i);
			lock = lock_named(clients[i], name);
			OK(lk_lock_acquire(lock, 0, NULL));
			OK(lk_lock_release(lock));
			ck_assert_int_eq(counters_of(clients[i]).requests, 2);
			OK(lk_client_close(clients[i]));
		}
		ck_assert_str_eq(redis_marker(redis), marker);
		redis_close(redis);
	}
}

/* ---- No loss ------------------------------------------------------------------------------ */

static char *replid(char text[48])
{
	const char *at = strstr(redis_text(redis, "INFO replication"), "\nmaster_replid:");

	ck_assert_ptr_nonnull(at);
	ck_assert_int_eq(sscanf(at, "\nmaster_replid:%40[0-9a-f]", text), 1);
	return text;
}

static bool replid_differs(const char *from)
{
	char now[48];

	return strcmp(replid(now), from) != 0;
}

/* A client that did not know the server finds the same memory, and acquires at once. */
static void expect_no_grace(const char *marker)
{
	struct claims held;
	lk_client *client = grace_client();

	claims_hold(&held, LEASED, client, LEASE_MS);
	claims_release(&held);
	OK(lk_client_close(client));
	ck_assert_str_eq(redis_marker(redis), marker);
}

/* The replication id changes when the first replica attaches, and when the backlog is freed. */
TEST_LIMIT(g9_replica_that_comes_or_goes_is_no_loss, 40)
{
	struct test_server replica;
	struct redis *to_replica;
	char marker[128], id[48];

	grace_set_up(NULL);
	OK(lk_client_close(grace_client()));
	snprintf(marker, sizeof(marker), "%s", redis_marker(redis));
	replid(id);
	server_start(&replica, NULL);
	to_replica = redis_open(&replica);
	redis_do(to_replica, "REPLICAOF 127.0.0.1 %lld", (long long)server.port);
	ck_assert(WITHIN(10000, redis_info(to_replica, "master_sync_in_progress") == 0 &&
	                                redis_info(redis, "connected_slaves") == 1));
	ck_assert(replid_differs(id));
	expect_no_grace(marker);
	replid(id);
	redis_do(redis, "CONFIG SET repl-backlog-ttl 1");
	redis_do(to_replica, "REPLICAOF NO ONE");
	ck_assert(WITHIN(10000, replid_differs(id)));
	expect_no_grace(marker);
	redis_close(to_replica);
	server_stop(&replica);
}
