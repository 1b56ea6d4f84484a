/* SPDX-License-Identifier: MIT
 * Server faults for clients (S1 to S19 of the fault list): it dies, loses its memory, stops, is
 * slow or full, or has foreign keys. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"
#include "harness/watch.h"

#include "scripts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static struct test_server server;
static struct redis *redis;
static void redis_reopen(void)
{
	redis_close(redis);
	redis = redis_open(&server);
}

/* Queue for the lock with its own client. */
static void queue_up(struct waiter *waiter, const char *name, int64_t lease_ms)
{
	long long before = redis_int(redis, "ZCARD lk:{%s}:q", name);

	waiter_start(waiter, lock_of_handle(client_at(server.url), name, lease_ms), 15000, false);
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{%s}:q", name) == before + 1));
}

TEST_LIMIT(s1_restart_with_aof_keeps_hold_and_order, 40)
{
	const struct server_options aof = {.appendonly = true};
	struct waiter waiters[3];
	lk_client *client;
	lk_lock *lock;
	uint64_t fence;
	pid_t killed;

	server_start(&server, &aof);
	redis = redis_open(&server);
	client = client_at(server.url);
	lock = hold_watched(client, "a", 1200);
	fence = hold_of(lock).fence;
	for (int i = 0; i < 3; i++)
		queue_up(&waiters[i], "a", 10000);
	killed = server.pid;
	server_restart(&server);
	redis_reopen();
	ck_assert_int_ne(redis_info(redis, "process_id"), killed);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}"), 1);
	stays_held(lock, 1500);
	ck_assert_uint_eq(hold_of(lock).fence, fence);
	ck_assert(WITHIN(5000, redis_int(redis, "ZCARD lk:{a}:q") == 3));
	OK(lk_lock_release(lock));
	for (int i = 0; i < 3; i++) {
		OK(waiter_join(&waiters[i]));
		ck_assert_int_eq(waiters[i].order, i);
		ck_assert_uint_gt(waiters[i].fence, fence);
	}
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	OK(lk_client_close(client));
}

TEST(s2_empty_restart_is_a_loss_and_fences_go_on)
{
	lk_client *client;
	lk_lock *lock;
	uint64_t fence;
	int64_t start_ms;
	pid_t killed;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	lock = hold_watched(client, "a", 900);
	fence = hold_of(lock).fence;
	start_ms = now_ms();
	killed = server.pid;
	server_restart(&server);
	redis_reopen();
	ck_assert_int_ne(redis_info(redis, "process_id"), killed);
	ck_assert(WITHIN(2000, losses.count == 1));
	ck_assert_int_le(losses.at_ms - start_ms, 900 + 50);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_LOST);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	ck_assert(WITHIN(5000, lk_lock_acquire(lock, 1000, NULL) == LK_OK));
	ck_assert_uint_gt(hold_of(lock).fence, fence);
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}

TEST(s5_stopped_server_within_the_lease_loses_nothing)
{
	lk_client *client;
	lk_lock *lock;
	uint64_t fence;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	lock = hold_watched(client, "a", 1200);
	fence = hold_of(lock).fence;
	server_pause(&server);
	ck_assert_int_eq(proc_state(server.pid), 'T');
	stays_held(lock, 600); /* the first renewal is due after 400 and gets no answer */
	server_resume(&server);
	stays_held(lock, 1500);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	ck_assert_uint_eq(hold_of(lock).fence, fence);
	OK(lk_lock_release(lock));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	OK(lk_client_close(client));
}

TEST(s6_stopped_server_past_the_lease_revives_nothing)
{
	lk_client *client, *other;
	lk_lock *lock, *next;
	uint64_t fence;
	int64_t start_ms;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	other = client_at(server.url);
	lock = hold_watched(client, "a", 500);
	next = lock_named(other, "a");
	fence = hold_of(lock).fence;
	start_ms = now_ms();
	server_pause(&server);
	ck_assert_int_eq(proc_state(server.pid), 'T');
	nap_ms(1300);
	/* The loss was reported in time, while the server was stopped. */
	ck_assert_int_eq(losses.count, 1);
	ck_assert_int_eq(losses.reason, LK_LOST_EXPIRED);
	ck_assert_int_le(losses.at_ms - start_ms, 500 + 50);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_LOST);
	server_resume(&server);
	ck_assert(WITHIN(3000, lk_lock_acquire(next, 1000, NULL) == LK_OK));
	ck_assert_uint_gt(hold_of(next).fence, fence);
	nap_ms(300); /* late renewals would come now */
	ck_assert_int_eq(lk_lock_state(next), LK_STATE_HELD);
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "GET lk:{a}"), lk_client_id(other)));
	EXPECT(lk_lock_release(lock), LK_ELOST);
	ck_assert_int_eq(lk_lock_state(next), LK_STATE_HELD);
	OK(lk_lock_release(next));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* Requests of an earlier hold that the network delayed for long, executed by hand. */
TEST(s6_late_renewal_and_leave_touch_no_newer_hold)
{
	char ticket[200], fence[32], now_held[256];
	lk_client *client, *other;
	lk_lock *lock, *next;
	long long left;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	other = client_at(server.url);
	lock = hold_watched(client, "a", 60000);
	ck_assert_int_eq(sscanf(redis_text(redis, "GET lk:{a}"), "%199s %31s", ticket, fence), 2);
	OK(lk_lock_release(lock));
	next = lock_leased(other, "a", 30000);
	OK(lk_lock_acquire(next, 0, NULL));
	snprintf(now_held, sizeof(now_held), "%s", redis_text(redis, "GET lk:{a}"));
	ck_assert_ptr_null(strstr(now_held, ticket));
	for (int claim = 0; claim < 2; claim++) {
		redis_do(redis, "EVAL %s 3 lk:{a} lk:{a}:q lk:fence %s %s 60000 0 -",
		         lk__script_lock_renew.text, ticket, claim ? "0" : fence);
		ck_assert_str_eq(redis_text(redis, "GET lk:{a}"), now_held);
		left = redis_int(redis, "PTTL lk:{a}");
		ck_assert(left > 25000 && left <= 30000);
	}
	redis_do(redis, "EVAL %s 3 lk:{a} lk:{a}:q lk:fence %s %s lk:c:0: 0",
	         lk__script_lock_leave.text, ticket, fence);
	ck_assert_str_eq(redis_text(redis, "GET lk:{a}"), now_held);
	/* With its own ticket, only if the fence matches. */
	ck_assert_int_eq(sscanf(now_held, "%199s", ticket), 1);
	redis_do(redis, "EVAL %s 3 lk:{a} lk:{a}:q lk:fence %s 7 60000 0 -",
	         lk__script_lock_renew.text, ticket);
	ck_assert_int_le(redis_int(redis, "PTTL lk:{a}"), 30000);
	ck_assert_int_eq(lk_lock_state(next), LK_STATE_HELD);
	OK(lk_lock_release(next));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

static void *sleep_server(void *arg)
{
	redis_do(arg, "DEBUG SLEEP 2");
	return NULL;
}

TEST(s7_slow_server_is_an_unknown_answer_and_no_late_reply_is_matched)
{
	const lk_client_options options = {.command_timeout_ms = 500};
	struct redis *second;
	lk_client *client;
	lk_lock *held, *tried, *probe;
	lk_lock_status status;
	pthread_t thread;
	long long connections;
	int64_t start_ms;
	uint64_t fence;
	lk_err err;

	server_start(&server, NULL);
	redis = redis_open(&server);
	second = redis_open(&server);
	client = client_with(server.url, &options);
	held = hold_watched(client, "held", 10000);
	tried = lock_leased(client, "tried", 1000);
	probe = lock_named(client, "probe");
	fence = hold_of(held).fence;
	connections = redis_info(redis, "total_connections_received");
	pthread_create(&thread, NULL, sleep_server, second);
	nap_ms(100); /* the server sleeps from now on */
	start_ms = now_ms();
	err = lk_lock_acquire(tried, 0, NULL);
	ck_assert_msg(err == LK_EUNKNOWN, "%s: %s", lk_err_name(err), lk_errmsg());
	ck_assert_int_le(now_ms() - start_ms, 500 + 500);
	pthread_join(thread, NULL);
	/* The link was dropped, and on the new one each answer matches its request. */
	ck_assert(WITHIN(3000, lk_lock_query(probe, &status) == LK_OK));
	ck_assert(!status.held);
	ck_assert_int_gt(redis_info(redis, "total_connections_received"), connections);
	for (int i = 0; i < 20; i++) {
		OK(lk_lock_query(held, &status));
		ck_assert(status.held);
		ck_assert_uint_eq(status.fence, fence);
		OK(lk_lock_query(probe, &status));
		ck_assert(!status.held);
	}
	ck_assert_int_eq(lk_lock_state(held), LK_STATE_HELD);
	/* An unused grant ends with its lease, or before. */
	ck_assert(WITHIN(1500, redis_int(redis, "EXISTS lk:{tried}") == 0));
	OK(lk_client_close(client));
}

/* ---- Operators' actions ------------------------------------------------------------------- */

static atomic_bool load_ends;
static atomic_int load_rounds;

static void *load_thread(void *arg)
{
	lk_client *client = client_at(server.url);
	lk_lock *lock = lock_named(client, "load");

	(void)arg;
	while (!load_ends) {
		OK(lk_lock_acquire(lock, 5000, NULL));
		load_rounds++;
		OK(lk_lock_release(lock));
	}
	OK(lk_client_close(client));
	return NULL;
}

TEST(s9_script_flush_goes_unnoticed)
{
	pthread_t threads[4];

	server_start(&server, NULL);
	redis = redis_open(&server);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, load_thread, NULL);
	for (int i = 0; i < 50; i++) {
		int rounds = load_rounds;
		redis_do(redis, "SCRIPT FLUSH");
		ck_assert(WITHIN(5000, load_rounds >= rounds + 4));
	}
	load_ends = true;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(redis_calls(redis, "script|flush"), 50);
	ck_assert_int_gt(redis_calls(redis, "eval"), 50);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{load} lk:{load}:q"), 0);
}

TEST(s10_flushall_is_a_loss_and_waiters_go_on)
{
	struct waiter waiters[2];
	lk_client *client;
	lk_lock *lock;
	uint64_t fence;
	int64_t start_ms;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	lock = hold_watched(client, "a", 900);
	fence = hold_of(lock).fence;
	for (int i = 0; i < 2; i++)
		queue_up(&waiters[i], "a", 900);
	start_ms = now_ms();
	redis_do(redis, "FLUSHALL");
	ck_assert_int_eq(redis_calls(redis, "flushall"), 1);
	ck_assert(WITHIN(2000, losses.count == 1));
	ck_assert_int_eq(losses.reason, LK_LOST_TAKEN);
	ck_assert_int_le(losses.at_ms - start_ms, 450 + 100);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	for (int i = 0; i < 2; i++) {
		OK(waiter_join(&waiters[i]));
		ck_assert_uint_gt(waiters[i].fence, fence);
	}
	ck_assert_int_le(now_ms() - start_ms, 4000);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	OK(lk_client_close(client));
}

TEST(s13_full_server_renews_and_releases)
{
	struct waiter waiter;
	lk_client *client;
	lk_lock *lock, *refused;
	uint64_t fence;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	lock = hold_watched(client, "a", 600);
	refused = lock_named(client, "b");
	fence = hold_of(lock).fence;
	queue_up(&waiter, "a", 600);
	redis_do(redis, "CONFIG SET maxmemory-policy noeviction maxmemory 1");
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "SET more 1"), "-OOM"));
	EXPECT(lk_lock_acquire(refused, 0, NULL), LK_ESERVER);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "OOM"));
	stays_held(lock, 1500);
	ck_assert_uint_eq(hold_of(lock).fence, fence);
	/* The release works, and so does the hand-off. */
	OK(lk_lock_release(lock));
	OK(waiter_join(&waiter));
	ck_assert_uint_gt(waiter.fence, fence);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{b} lk:{b}:q"), 0);
	redis_do(redis, "CONFIG SET maxmemory 0");
	OK(lk_lock_acquire(refused, 1000, NULL));
	OK(lk_client_close(client));
}

/* ---- Foreign keys ------------------------------------------------------------------------- */

/* Acquire fails with LK_EFOREIGN, names the key, and writes nothing. */
static void expect_foreign(lk_lock *lock, const char *key, int64_t wait_ms)
{
	char before[64];

	snprintf(before, sizeof(before), "%s", redis_text(redis, "DEBUG DIGEST"));
	EXPECT(lk_lock_acquire(lock, wait_ms, NULL), LK_EFOREIGN);
	ck_assert_msg(strstr(lk_errmsg(), key) != NULL, "%s does not name %s", lk_errmsg(), key);
	ck_assert_str_eq(redis_text(redis, "DEBUG DIGEST"), before);
}

TEST(s16_key_of_another_type_is_named_and_left_alone)
{
	lk_client *client;
	lk_lock *lock;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	lock = lock_named(client, "a");
	OK(lk_lock_acquire(lock, 0, NULL)); /* so that the client's description exists */
	OK(lk_lock_release(lock));
	nap_ms(50);
	redis_do(redis, "LPUSH lk:{a} x");
	expect_foreign(lock, "lk:{a}", 0);
	expect_foreign(lock, "lk:{a}", 500);
	redis_do(redis, "DEL lk:{a}");
	redis_do(redis, "LPUSH lk:{a}:q x");
	expect_foreign(lock, "lk:{a}:q", 0);
	expect_foreign(lock, "lk:{a}:q", 500);
	redis_do(redis, "DEL lk:{a}:q");
	redis_do(redis, "DEL lk:fence");
	redis_do(redis, "LPUSH lk:fence x");
	expect_foreign(lock, "lk:fence", 0);
	redis_do(redis, "DEL lk:fence");
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_client_close(client));
}

TEST(s16_key_that_changes_its_type_while_held_is_a_loss)
{
	lk_client *client;
	lk_lock *lock;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	lock = hold_watched(client, "a", 600);
	redis_do(redis, "DEL lk:{a}");
	redis_do(redis, "LPUSH lk:{a} x");
	ck_assert(WITHIN(1500, losses.count == 1));
	EXPECT(lk_lock_release(lock), LK_ELOST);
	ck_assert_int_eq(redis_int(redis, "LLEN lk:{a}"), 1);
	OK(lk_client_close(client));
}

TEST(s17_planted_key_blocks_nobody_for_ever)
{
	lk_client *client;
	lk_lock *lock;
	int64_t start_ms;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	lock = lock_named(client, "a");
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_release(lock));
	nap_ms(50);
	redis_do(redis, "SET lk:{a} planted");
	expect_foreign(lock, "lk:{a}", 0);
	expect_foreign(lock, "lk:{a}", LK_FOREVER);
	/* Another protocol version is foreign, too, and the text names it. */
	redis_do(redis, "SET lk:{a} %s", "2:abc 7");
	expect_foreign(lock, "lk:{a}", LK_FOREVER);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "version 2"));
	/* A key in the library's format without a TTL ends with the lease that it names. */
	redis_do(redis, "SET lk:{a} %s", "1:AAAAAAAAAAAAAAAAAAAAAA:BBBBBBBBBBB:400:r 5 400 -");
	ck_assert_int_eq(redis_int(redis, "PTTL lk:{a}"), -1);
	start_ms = now_ms();
	OK(lk_lock_acquire(lock, 5000, NULL));
	ck_assert_int_ge(now_ms() - start_ms, 390);
	ck_assert_int_le(now_ms() - start_ms, 1500);
	OK(lk_client_close(client));
}

/* ---- Pauses and limits -------------------------------------------------------------------- */

/* As S5, by CLIENT PAUSE: for longer than a renewal interval, or than the command timeout, and for
 * less than the lease. */
static void pause_clients(const char *kind, int pause_ms, int64_t timeout_ms)
{
	const lk_client_options options = {.command_timeout_ms = timeout_ms};
	lk_client *client;
	lk_lock *lock;
	uint64_t fence;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_with(server.url, &options);
	lock = hold_watched(client, "a", 1500);
	fence = hold_of(lock).fence;
	redis_do(redis, "CLIENT PAUSE %lld %s", (long long)pause_ms, kind);
	stays_held(lock, pause_ms + 1500);
	ck_assert_int_eq(redis_calls(redis, "client|pause"), 1);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	ck_assert_uint_eq(hold_of(lock).fence, fence);
	OK(lk_lock_release(lock));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	OK(lk_client_close(client));
}

TEST(s18_paused_clients_lose_nothing)
{
	pause_clients("ALL", 750, 0);
}

TEST(s18_clients_paused_past_their_command_timeout_lose_nothing)
{
	pause_clients("ALL", 850, 200);
}

TEST(s18_paused_writers_lose_nothing)
{
	pause_clients("WRITE", 750, 0);
}

/* The id of a connection by its name, for CLIENT KILL. */
static const char *connection_of(const char *name)
{
	static char id[32];
	char word[64];
	const char *list = redis_text(redis, "CLIENT LIST"), *at, *line;

	snprintf(word, sizeof(word), " name=%s ", name);
	at = strstr(list, word);
	ck_assert_ptr_nonnull(at);
	for (line = at; line > list && line[-1] != '\n'; line--)
		continue;
	ck_assert_int_eq(sscanf(line, "id=%31[0-9]", id), 1);
	return id;
}

TEST(s19_client_limit_refuses_newcomers_and_keeps_who_is_there)
{
	const lk_client_options options = {.connect_timeout_ms = 300};
	const lk_client_options named = {.client_name = "cut"};
	lk_client *client, *cut, *none = NULL;
	lk_lock *lock;
	long long rejected, again;
	lk_err err;

	server_start(&server, NULL);
	redis = redis_open(&server);
	cut = client_with(server.url, &named);
	client = client_at(server.url);
	lock = hold_watched(client, "a", 600);
	redis_do(redis, "CONFIG SET maxclients 3");
	err = lk_client_open(server.url, &options, &none);
	ck_assert_msg(err == LK_ECONN || err == LK_ESERVER, "%s: %s", lk_err_name(err),
	              lk_errmsg());
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "max number of clients"));
	ck_assert_ptr_null(none);
	rejected = redis_info(redis, "rejected_connections");
	ck_assert_int_ge(rejected, 1);
	/* A client that loses its connection retries, without a busy loop, and is connected
	 * later. */
	redis_do(redis, "CLIENT KILL ID %s", connection_of("cut"));
	stays_held(lock, 1500);
	again = redis_info(redis, "rejected_connections") - rejected;
	ck_assert_int_ge(again, 1);
	ck_assert_int_le(again, 60);
	redis_do(redis, "CONFIG SET maxclients 100");
	ck_assert(WITHIN(5000, lk_lock_acquire(lock_named(cut, "b"), 500, NULL) == LK_OK));
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	OK(lk_client_close(cut));
}
