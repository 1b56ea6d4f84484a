/* SPDX-License-Identifier: MIT
 * Server faults (S1 to S19 of the fault list), for holders and waiters of each primitive: it dies,
 * loses its memory, stops, is slow or full, or has foreign keys. */
#include "harness/primitive.h"
#include "harness/watch.h"

#include "scripts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- Death -------------------------------------------------------------------------------- */

TEST_OF(s1_restart_with_aof_keeps_holds_and_order, EVERY, 40)
{
	const struct server_options aof = {.appendonly = true};
	struct claims held, waits[3];
	lk_client *client;

	fault_set_up(&aof);
	client = client_at(server.url);
	claims_hold(&held, set, client, 1200);
	for (int i = 0; i < 3; i++)
		claims_queue(&waits[i], set, client_at(server.url), 10000, false);
	fault_restart();
	claims_expect_stored(&held);
	claims_stay_held(&held, 1500);
	ck_assert(WITHIN(BACK_MS, claims_waiting(set, 3)));
	claims_await_link(&held);
	claims_expect_held(&held);
	for (int i = 0; i < 3; i++)
		ck_assert(!claims_any_ended(&waits[i]));
	claims_release(&held);
	for (int i = 0; i < 3; i++)
		claims_join(&waits[i], LK_OK);
	for (int i = 0; i < 3; i++) {
		waits[i].set = set & LEASED;
		claims_expect_newer(&waits[i], i ? &waits[i - 1] : &held);
	}
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
}

/* The store loses everything: holders learn of it by that time, waiters continue, and what is held
 * next has a larger fence.  Each primitive alone, for they share the fence counter: one of them
 * would set it right for the others. */
static void lose_memory(unsigned set, void (*lose)(void), int64_t lease_ms, lk_lost_reason reason,
                        int64_t within_ms)
{
	struct claims held, waits[2];
	lk_client *client;
	int64_t start_ms;

	fault_set_up(NULL);
	client = client_at(server.url);
	claims_hold(&held, set, client, lease_ms);
	for (int i = 0; i < 2; i++)
		claims_queue(&waits[i], set, client_at(server.url), lease_ms, false);
	start_ms = now_ms();
	lose();
	claims_expect_lost(&held, reason, start_ms + within_ms);
	claims_release_absent(&held);
	for (int i = 0; i < 2; i++) {
		claims_expect_still_waiting(&waits[i], 2);
		waits[i].set = set & LEASED;
		claims_join(&waits[i], LK_OK);
		claims_expect_newer(&waits[i], &held);
	}
	ck_assert_int_le(now_ms() - start_ms, 4000);
	claims_hold_again(&held);
	for (int i = 0; i < 2; i++) {
		waits[i].set = set & ~LEASED;
		claims_join(&waits[i], LK_OK);
	}
	OK(lk_client_close(client));
	ck_assert(claims_at_rest(set));
}

TEST_EACH(s2_empty_restart_is_a_loss_and_fences_go_on, EVERY, 40)
{
	lose_memory(set, fault_restart, 900, 0, 900 + 50);
}

static void flush(void)
{
	redis_do(redis, "FLUSHALL");
	ck_assert_int_eq(redis_calls(redis, "flushall"), 1);
}

TEST_EACH(s10_flushall_is_a_loss_and_waiters_go_on, EVERY, 40)
{
	lose_memory(set, flush, 900, LK_LOST_TAKEN, 450 + 100);
}

/* Every key with a TTL is evicted, as the least recently used ones would be. */
static void evict(void)
{
	long long before = redis_info(redis, "evicted_keys");

	redis_do(redis, "CONFIG SET maxmemory-policy volatile-lru maxmemory 1");
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "SET more 1"), "-OOM"));
	ck_assert_int_gt(redis_info(redis, "evicted_keys"), before);
	ck_assert_str_eq(redis_text(redis, "KEYS lk:{*"), "");
	redis_do(redis, "CONFIG SET maxmemory 0");
}

TEST_OF(s12_eviction_is_a_loss_and_waiters_go_on, EVERY, 40)
{
	lose_memory(set, evict, 900, LK_LOST_TAKEN, 900 / 3 + 200); /* by the next renewal */
}

/* ---- Stopped and slow servers ------------------------------------------------------------- */

TEST_OF(s5_stopped_server_within_the_lease_loses_nothing, EVERY, 20)
{
	struct claims held;
	lk_client *client;

	fault_set_up(NULL);
	client = client_at(server.url);
	claims_hold(&held, set, client, 1200);
	server_pause(&server);
	ck_assert_int_eq(proc_state(server.pid), 'T');
	claims_stay_held(&held, 600); /* the first renewal is due after 400 and gets no answer */
	server_resume(&server);
	claims_stay_held(&held, 1500);
	claims_expect_held(&held);
	claims_release(&held);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
}

TEST_OF(s6_stopped_server_past_the_lease_revives_nothing, EVERY, 20)
{
	struct claims held, next;
	lk_client *client, *other;
	int64_t start_ms;

	fault_set_up(NULL);
	client = client_at(server.url);
	other = client_at(server.url);
	claims_hold(&held, set, client, 500);
	start_ms = now_ms();
	server_pause(&server);
	ck_assert_int_eq(proc_state(server.pid), 'T');
	nap_ms(1300);
	/* The loss was reported in time, while the server was stopped. */
	claims_expect_lost(&held, LK_LOST_EXPIRED, start_ms + 500 + 50);
	server_resume(&server);
	claims_hold(&next, set & LEASED, other, 0);
	claims_expect_newer(&next, &held);
	nap_ms(300); /* late renewals would come now */
	claims_expect_held(&next);
	claims_release_lost(&held);
	claims_expect_held(&next);
	claims_release(&next);
	/* What has no lease lost nothing. */
	held.set = set & ~LEASED;
	claims_await_link(&held);
	claims_expect_held(&held);
	claims_release(&held);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* Requests of an earlier hold that the network delayed for long, executed by hand. */
TEST(s6_late_renewal_and_leave_touch_no_newer_hold)
{
	char ticket[200], fence[32], now_held[256];
	lk_client *client, *other;
	lk_lock *lock, *next;
	const char *marker;
	long long left;

	fault_set_up(NULL);
	client = client_at(server.url);
	other = client_at(server.url);
	marker = redis_marker(redis);
	lock = hold_watched(client, "a", 60000);
	ck_assert_int_eq(sscanf(redis_text(redis, "GET lk:{a}"), "%199s %31s", ticket, fence), 2);
	OK(lk_lock_release(lock));
	next = lock_leased(other, "a", 30000);
	OK(lk_lock_acquire(next, 0, NULL));
	snprintf(now_held, sizeof(now_held), "%s", redis_text(redis, "GET lk:{a}"));
	ck_assert_ptr_null(strstr(now_held, ticket));
	for (int claim = 0; claim < 2; claim++) {
		redis_do(redis, "EVAL %s 4 lk:{a} lk:{a}:q lk:fence lk:epoch %s %s 60000 0 - %s 0",
		         lk__script_lock_renew.text, ticket, claim ? "0" : fence, marker);
		ck_assert_str_eq(redis_text(redis, "GET lk:{a}"), now_held);
		left = redis_int(redis, "PTTL lk:{a}");
		ck_assert(left > 25000 && left <= 30000);
	}
	redis_do(redis, "EVAL %s 4 lk:{a} lk:{a}:q lk:fence lk:epoch %s %s lk:c:0: 0 %s 0",
	         lk__script_lock_leave.text, ticket, fence, marker);
	ck_assert_str_eq(redis_text(redis, "GET lk:{a}"), now_held);
	/* With its own ticket, only if the fence matches. */
	ck_assert_int_eq(sscanf(now_held, "%199s", ticket), 1);
	redis_do(redis, "EVAL %s 4 lk:{a} lk:{a}:q lk:fence lk:epoch %s 7 60000 0 - %s 0",
	         lk__script_lock_renew.text, ticket, marker);
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

	fault_set_up(NULL);
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

#define LOADS 2 /* of each primitive */

static atomic_bool load_ends;
static atomic_int load_rounds;

static void *load_thread(void *arg)
{
	struct claim *claim = arg;

	claim->client = client_at(server.url);
	claim->waits = true;
	OK(claim->primitive->open(claim, false));
	while (!load_ends) {
		OK(claim->primitive->wait(claim, 5000));
		load_rounds++;
		OK(claim->primitive->release(claim));
	}
	OK(lk_client_close(claim->client));
	return NULL;
}

TEST_OF(s9_script_flush_goes_unnoticed, LEASED, 20)
{
	struct claims loads[LOADS];

	fault_set_up(NULL);
	for (int i = 0; i < LOADS; i++) {
		claims_init(&loads[i], set, NULL, 0);
		EACH (claim, &loads[i])
			pthread_create(&claim->thread, NULL, load_thread, claim);
	}
	for (int i = 0; i < 50; i++) {
		int rounds = load_rounds;
		redis_do(redis, "SCRIPT FLUSH");
		ck_assert(WITHIN(5000, load_rounds >= rounds + 4));
	}
	load_ends = true;
	for (int i = 0; i < LOADS; i++)
		EACH (claim, &loads[i])
			pthread_join(claim->thread, NULL);
	ck_assert_int_eq(redis_calls(redis, "script|flush"), 50);
	ck_assert_int_gt(redis_calls(redis, "eval"), 50);
	ck_assert(claims_at_rest(set));
}

/* One key of some; the others are incomplete then, and must not be misread. */
TEST_OF(s10_any_key_may_be_deleted_at_any_time, EVERY, 60)
{
	fault_set_up(NULL);
	for (int i = 0; i < PRIMITIVE_KEYS_MAX - 1; i++) {
		lk_client *client = client_at(server.url), *other = client_at(server.url);
		struct claims held, waits;
		unsigned lost = 0;

		claims_hold(&held, set, client, 600);
		claims_queue(&waits, set, other, 600, false);
		EACH (claim, &held) {
			if (claim->primitive->keys[i])
				ck_assert_int_eq(
					redis_int(redis, "DEL %s", claim->primitive->keys[i]), 1);
			/* The first ones are the hold itself. */
			if (i < claim->primitive->hold_keys)
				lost |= 1u << (claim - held.of);
		}
		held.set = lost;
		claims_expect_lost(&held, 0, now_ms() + 1500);
		claims_release_absent(&held);
		held.set = set & ~lost;
		if (held.set)
			claims_stay_held(&held, 1000);
		claims_release(&held);
		/* A latch that is lost is set anew. */
		held.set = lost & ~LEASED;
		if (held.set)
			claims_expect_still_waiting(&waits, 1);
		claims_hold_again(&held);
		claims_join(&waits, LK_OK);
		waits.set = set & LEASED;
		claims_expect_newer(&waits, &held);
		ck_assert(WITHIN(1000, claims_at_rest(set)));
		OK(lk_client_close(client));
		OK(lk_client_close(other));
	}
}

TEST_OF(s13_full_server_grants_nothing_but_renews_and_hands_off, EVERY, 20)
{
	struct claims held, waits;
	lk_client *client;

	fault_set_up(NULL);
	client = client_at(server.url);
	claims_hold(&held, set, client, 600);
	claims_queue(&waits, set, client_at(server.url), 600, true);
	redis_do(redis, "CONFIG SET maxmemory-policy noeviction maxmemory 1");
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "SET more 1"), "-OOM"));
	claims_expect_no_grant(set, client, "OOM");
	claims_stay_held(&held, 1500);
	claims_expect_held(&held);
	claims_release(&held);
	claims_join(&waits, LK_OK);
	claims_stay_held(&waits, 700);
	waits.set = set & LEASED;
	claims_expect_newer(&waits, &held);
	claims_expect_held(&waits);
	claims_release(&waits);
	ck_assert(claims_at_rest(set));
	redis_do(redis, "CONFIG SET maxmemory 0");
	claims_hold_again(&held);
	OK(lk_client_close(client));
}

/* ---- Foreign keys ------------------------------------------------------------------------- */

TEST_OF(s16_key_of_another_type_is_named_and_left_alone, EVERY, 20)
{
	struct claims held;
	lk_client *client;
	char before[64];

	fault_set_up(NULL);
	client = client_at(server.url);
	claims_hold(&held, set, client, 0);
	claims_release(&held);
	nap_ms(50); /* the client has introduced itself */
	EACH (claim, &held) {
		for (const char *const *key = claim->primitive->keys; *key; key++) {
			redis_do(redis, "DEL %s", *key);
			redis_do(redis, "LPUSH %s x", *key);
			snprintf(before, sizeof(before), "%s", redis_text(redis, "DEBUG DIGEST"));
			claim->primitive->expect_refused(claim, LK_EFOREIGN, *key);
			ck_assert_str_eq(redis_text(redis, "DEBUG DIGEST"), before);
			redis_do(redis, "DEL %s", *key);
		}
		OK(claim->primitive->hold(claim, 0));
	}
	OK(lk_client_close(client));
}

TEST_OF(s16_key_that_changes_its_type_while_held_is_a_loss, LEASED, 20)
{
	fault_set_up(NULL);
	for (int i = 0; i < 2; i++) {
		lk_client *client = client_at(server.url);
		struct claims held;
		claims_hold(&held, set, client, 600);
		held.set = 0;
		for (int j = 0; j < PRIMITIVES; j++)
			if (i < primitives[j].hold_keys)
				held.set |= set & 1u << j;
		EACH (claim, &held) {
			redis_do(redis, "DEL %s", claim->primitive->keys[i]);
			redis_do(redis, "LPUSH %s x", claim->primitive->keys[i]);
		}
		claims_expect_lost(&held, 0, now_ms() + 1500);
		claims_release_lost(&held);
		EACH (claim, &held)
			ck_assert_int_eq(redis_int(redis, "LLEN %s", claim->primitive->keys[i]), 1);
		OK(lk_client_close(client));
		redis_do(redis, "FLUSHALL");
	}
}

/* Acquire fails with LK_EFOREIGN, names the key, and writes nothing. */
static void expect_foreign(lk_lock *lock, const char *key, int64_t wait_ms)
{
	char before[64];

	snprintf(before, sizeof(before), "%s", redis_text(redis, "DEBUG DIGEST"));
	EXPECT(lk_lock_acquire(lock, wait_ms, NULL), LK_EFOREIGN);
	ck_assert_msg(strstr(lk_errmsg(), key) != NULL, "%s does not name %s", lk_errmsg(), key);
	ck_assert_str_eq(redis_text(redis, "DEBUG DIGEST"), before);
}

TEST(s17_planted_key_blocks_nobody_for_ever)
{
	lk_client *client;
	lk_lock *lock;
	int64_t start_ms;

	fault_set_up(NULL);
	client = client_at(server.url);
	lock = lock_named(client, "a");
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_release(lock));
	nap_ms(50);
	redis_do(redis, "SET lk:{a} planted");
	expect_foreign(lock, "lk:{a}", 0);
	expect_foreign(lock, "lk:{a}", LK_FOREVER);
	/* Another protocol version is foreign, too, and the text names it. */
	redis_do(redis, "SET lk:{a} %s", "3:abc 7");
	expect_foreign(lock, "lk:{a}", LK_FOREVER);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "version 3"));
	/* A key in the library's format without a TTL ends with the lease that it names. */
	redis_do(redis, "SET lk:{a} %s", "2:AAAAAAAAAAAAAAAAAAAAAA:BBBBBBBBBBB:400:r 5 400 -");
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
static void pause_clients(unsigned set, const char *kind, int pause_ms, int64_t timeout_ms)
{
	const lk_client_options options = {.command_timeout_ms = timeout_ms};
	struct claims held;
	lk_client *client;

	fault_set_up(NULL);
	client = client_with(server.url, &options);
	claims_hold(&held, set, client, 1200);
	redis_do(redis, "CLIENT PAUSE %lld %s", (long long)pause_ms, kind);
	claims_stay_held(&held, pause_ms + 1200);
	ck_assert_int_eq(redis_calls(redis, "client|pause"), 1);
	claims_await_link(&held);
	claims_expect_held(&held);
	claims_release(&held);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
}

TEST_OF(s18_paused_clients_lose_nothing, EVERY, 20)
{
	pause_clients(set, "ALL", 600, 0);
}

TEST_OF(s18_clients_paused_past_their_command_timeout_lose_nothing, EVERY, 20)
{
	pause_clients(set, "ALL", 650, 200);
}

TEST_OF(s18_paused_writers_lose_nothing, EVERY, 20)
{
	pause_clients(set, "WRITE", 600, 0);
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

TEST_OF(s19_client_limit_refuses_newcomers_and_keeps_who_is_there, EVERY, 20)
{
	const lk_client_options options = {.connect_timeout_ms = 300};
	const lk_client_options named = {.client_name = "cut"};
	lk_client *client, *cut, *none = NULL;
	struct claims held, others;
	long long rejected, again;
	lk_err err;

	fault_set_up(NULL);
	cut = client_with(server.url, &named);
	client = client_at(server.url);
	claims_hold(&held, set, client, 600);
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
	claims_stay_held(&held, 1500);
	claims_expect_held(&held);
	again = redis_info(redis, "rejected_connections") - rejected;
	ck_assert_int_ge(again, 1);
	ck_assert_int_le(again, 60);
	claims_release(&held);
	redis_do(redis, "CONFIG SET maxclients 100");
	claims_init(&others, set, cut, 0);
	EACH (claim, &others)
		OK(claim->primitive->open(claim, false));
	claims_await_link(&others);
	claims_hold(&others, set, cut, 0);
	OK(lk_client_close(client));
	OK(lk_client_close(cut));
}
