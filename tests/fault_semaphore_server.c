/* SPDX-License-Identifier: MIT
 * Server faults for holders of permits and for waiters (S1 to S16 of the fault list): it dies,
 * loses its memory, stops, is full, or has foreign keys. */
#include "harness/handles.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include "scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct test_server server;
static struct redis *redis;

static void set_up(const struct server_options *options)
{
	server_start(&server, options);
	redis = redis_open(&server);
}

/* Kill and restart it, and check that it is a new process. */
static void restart(void)
{
	pid_t killed = server.pid;

	server_restart(&server);
	redis_close(redis);
	redis = redis_open(&server);
	ck_assert_int_ne(redis_info(redis, "process_id"), killed);
}

static lk_semaphore *watched(lk_client *client, int64_t capacity, int64_t lease_ms)
{
	return semaphore_watched(
		client, "a", (lk_semaphore_options){.capacity = capacity, .lease_ms = lease_ms});
}

/* ---- Death -------------------------------------------------------------------------------- */

TEST_LIMIT(s1_restart_with_aof_keeps_holds_and_order, 40)
{
	const struct server_options aof = {.appendonly = true};
	struct permit_wait waits[3];
	lk_semaphore *semaphore;
	lk_client *client;
	uint64_t one, three;

	set_up(&aof);
	client = client_at(server.url);
	semaphore = watched(client, 4, 1200);
	one = permits_of(semaphore, 1, 0);
	three = permits_of(semaphore, 3, 0);
	for (int i = 0; i < 3; i++)
		permit_wait_queue(&waits[i], redis, "a",
		                  semaphore_of(client_at(server.url), "a", 4, 10000), 4 - i, false);
	OK(lk_semaphore_release_some(semaphore, three, 1));
	restart();
	ck_assert_int_eq(permits_used(redis, "a"), 3);
	permits_stay_held(semaphore, three, 1500);
	ck_assert_int_eq(lk_semaphore_state(semaphore, one), LK_STATE_HELD);
	ck_assert_int_eq(hold_in(semaphore, three).count, 2);
	ck_assert(WITHIN(5000, permits_queue(redis, "a") == 3));
	permits_add_up(redis, "a");
	OK(lk_semaphore_release(semaphore, one));
	OK(lk_semaphore_release(semaphore, three));
	for (int i = 0; i < 3; i++) {
		OK(permit_wait_join(&waits[i]));
		ck_assert_uint_gt(waits[i].hold, i ? waits[i - 1].hold : three);
	}
	ck_assert(permits_at_rest(redis, "a", 4));
	OK(lk_client_close(client));
}

TEST(s2_empty_restart_is_a_loss_of_every_hold_and_begins_anew)
{
	lk_semaphore *semaphore, *other;
	lk_semaphore_status status;
	lk_client *client;
	uint64_t holds[2], next = 0;
	int64_t start_ms;

	set_up(NULL);
	client = client_at(server.url);
	semaphore = watched(client, 4, 900);
	other = semaphore_of(client_at(server.url), "a", 4, 0);
	holds[0] = permits_of(semaphore, 1, 0);
	holds[1] = permits_of(semaphore, 3, 0);
	start_ms = now_ms();
	restart();
	ck_assert(WITHIN(2000, permit_losses.count == 2));
	ck_assert_int_le(permit_losses.at_ms - start_ms, 900 + 50);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(lk_semaphore_state(semaphore, holds[i]), LK_STATE_LOST);
		EXPECT(lk_semaphore_release(semaphore, holds[i]), LK_ELOST);
	}
	/* The handles supply the capacity, and fences keep growing. */
	ck_assert(WITHIN(5000, lk_semaphore_acquire(other, 4, 1000, &next) == LK_OK));
	ck_assert_uint_gt(next, holds[1]);
	OK(lk_semaphore_query(semaphore, &status));
	ck_assert_int_eq(status.capacity, 4);
	ck_assert_int_eq(status.available, 0);
	OK(lk_semaphore_release(other, next));
	ck_assert(permits_at_rest(redis, "a", 4));
	OK(lk_client_close(client));
}

/* ---- Stopped servers ---------------------------------------------------------------------- */

TEST(s6_stopped_server_past_the_lease_revives_nothing)
{
	lk_semaphore *semaphore, *other;
	lk_client *client;
	uint64_t hold, next = 0;
	int64_t start_ms;

	set_up(NULL);
	client = client_at(server.url);
	semaphore = watched(client, 4, 500);
	other = semaphore_of(client_at(server.url), "a", 4, 10000);
	hold = permits_of(semaphore, 3, 0);
	start_ms = now_ms();
	server_pause(&server);
	ck_assert_int_eq(proc_state(server.pid), 'T');
	nap_ms(1300);
	/* The loss was reported in time, while the server was stopped. */
	ck_assert_int_eq(permit_losses.count, 1);
	ck_assert_int_eq(permit_losses.reason, LK_LOST_EXPIRED);
	ck_assert_int_le(permit_losses.at_ms - start_ms, 500 + 50);
	EXPECT(lk_semaphore_release_some(semaphore, hold, 1), LK_ELOST);
	server_resume(&server);
	ck_assert(WITHIN(3000, lk_semaphore_acquire(other, 4, 1000, &next) == LK_OK));
	ck_assert_uint_gt(next, hold);
	nap_ms(300); /* late renewals would come now */
	ck_assert_int_eq(permits_used(redis, "a"), 4);
	ck_assert_int_eq(permits_holds(redis, "a"), 1);
	permits_add_up(redis, "a");
	EXPECT(lk_semaphore_release(semaphore, hold), LK_ELOST);
	ck_assert_int_eq(permits_used(redis, "a"), 4);
	OK(lk_semaphore_release(other, next));
	ck_assert(permits_at_rest(redis, "a", 4));
	OK(lk_client_close(client));
}

/* The call returns LK_EUNKNOWN, no later than that. */
#define UNKNOWN_WITHIN(ms, call)                                                                   \
	do {                                                                                       \
		int64_t unknown_start_ = now_ms();                                                 \
		EXPECT(call, LK_EUNKNOWN);                                                         \
		ck_assert_int_le(now_ms() - unknown_start_, ms);                                   \
	} while (0)

TEST(s6_calls_keep_their_deadlines_while_the_server_stands_still)
{
	const lk_client_options options = {.command_timeout_ms = 400};
	struct permit_wait wait;
	lk_semaphore *semaphore, *waits;
	lk_semaphore_status status;
	lk_client *client, *other;
	uint64_t holds[2], none = 77;

	set_up(NULL);
	client = client_with(server.url, &options);
	other = client_with(server.url, &options);
	semaphore = semaphore_of(client, "a", 4, 10000);
	waits = semaphore_of(other, "a", 4, 10000);
	for (int i = 0; i < 2; i++)
		holds[i] = permits_of(semaphore, 2, 0);
	permit_wait_queue(&wait, redis, "a", waits, 3, true);
	nap_ms(50); /* the client has introduced itself */
	server_pause(&server);
	UNKNOWN_WITHIN(300 + 400 + 200, lk_semaphore_acquire(semaphore, 1, 300, &none));
	ck_assert_uint_eq(none, 77);
	OK(lk_semaphore_cancel(waits));
	EXPECT(permit_wait_join(&wait), LK_EUNKNOWN);
	/* The link was given up by now: no request is sent, or none answered. */
	ck_assert_int_ne(lk_semaphore_query(semaphore, &status), LK_OK);
	ck_assert_int_ne(lk_semaphore_resize(semaphore, 5), LK_OK);
	UNKNOWN_WITHIN(400 + 200, lk_semaphore_release_some(semaphore, holds[0], 1));
	ck_assert_int_eq(hold_in(semaphore, holds[0]).count, 1);
	UNKNOWN_WITHIN(400 + 200, lk_semaphore_release(semaphore, holds[1]));
	ck_assert_int_eq(proc_state(server.pid), 'T');
	server_resume(&server);
	/* All of it is executed in the background. */
	ck_assert(WITHIN(5000, permits_used(redis, "a") == 1));
	ck_assert_int_eq(permits_queue(redis, "a"), 0);
	permits_add_up(redis, "a");
	ck_assert_int_gt(hold_in(semaphore, holds[0]).remaining_ms, 0);
	OK(lk_semaphore_release(semaphore, holds[0]));
	ck_assert_int_eq(permits_used(redis, "a"), 0);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* Requests of an earlier hold that the network delayed for long, executed by hand. */
TEST(s6_late_requests_of_a_hold_that_is_over_touch_no_newer_one)
{
	char ticket[200] = "", before[1000], ends[200];
	lk_semaphore *semaphore, *other;
	uint64_t hold, next;

	set_up(NULL);
	semaphore = watched(client_at(server.url), 4, 60000);
	other = semaphore_of(client_at(server.url), "a", 4, 30000);
	hold = permits_of(semaphore, 3, 0);
	snprintf(ticket, sizeof(ticket), "%s", redis_text(redis, "ZRANGE lk:{a}:h 0 0"));
	OK(lk_semaphore_release(semaphore, hold));
	next = permits_of(other, 2, 0);
	snprintf(before, sizeof(before), "%s", redis_text(redis, "HGETALL lk:{a}"));
	snprintf(ends, sizeof(ends), "%s", redis_text(redis, "ZRANGE lk:{a}:h 0 -1 WITHSCORES"));
	ck_assert_ptr_null(strstr(before, ticket));
	ck_assert_str_ne(ticket, "");
	/* A renewal, a claim, a partial release, a release, a break. */
	redis_do(redis, "EVAL %s 4 lk:{a} lk:{a}:q lk:fence lk:{a}:h %s %lld 60000",
	         lk__script_semaphore_renew.text, ticket, (long long)hold);
	redis_do(redis, "EVAL %s 4 lk:{a} lk:{a}:q lk:fence lk:{a}:h %s 0 60000",
	         lk__script_semaphore_renew.text, ticket);
	for (int keep = 0; keep < 3; keep++)
		redis_do(redis,
		         "EVAL %s 4 lk:{a} lk:{a}:q lk:fence lk:{a}:h %s %lld lk:c:0: 1 21000",
		         lk__script_semaphore_leave.text, ticket, (long long)keep);
	ck_assert_str_eq(redis_text(redis, "HGETALL lk:{a}"), before);
	ck_assert_str_eq(redis_text(redis, "ZRANGE lk:{a}:h 0 -1 WITHSCORES"), ends);
	/* A renewal with another fence does not concern the newer hold. */
	snprintf(ticket, sizeof(ticket), "%s", redis_text(redis, "ZRANGE lk:{a}:h 0 0"));
	redis_do(redis, "EVAL %s 4 lk:{a} lk:{a}:q lk:fence lk:{a}:h %s 7 60000",
	         lk__script_semaphore_renew.text, ticket);
	ck_assert_str_eq(redis_text(redis, "ZRANGE lk:{a}:h 0 -1 WITHSCORES"), ends);
	/* For a hold whose lease is over, before any request has noticed. */
	OK(lk_semaphore_release(other, next));
	other = semaphore_with(
		client_at(server.url), "a",
		&(lk_semaphore_options){.capacity = 4, .lease_ms = 100, .fixed = true});
	OK(lk_semaphore_acquire(other, 2, 0, NULL));
	snprintf(ticket, sizeof(ticket), "%s", redis_text(redis, "ZRANGE lk:{a}:h 0 0"));
	nap_ms(110);
	ck_assert_str_eq(redis_text(redis, "EVAL %s 4 lk:{a} lk:{a}:q lk:fence lk:{a}:h %s 0 60000",
	                            lk__script_semaphore_renew.text, ticket),
	                 "gone");
	/* A hold never regains permits: released ones stay released. */
	other = semaphore_of(client_at(server.url), "a", 4, 30000);
	next = permits_of(other, 2, 0);
	snprintf(ticket, sizeof(ticket), "%s", redis_text(redis, "ZRANGE lk:{a}:h 0 0"));
	OK(lk_semaphore_release_some(other, next, 1));
	redis_do(redis, "EVAL %s 4 lk:{a} lk:{a}:q lk:fence lk:{a}:h %s 2 lk:c:0: 0 21000",
	         lk__script_semaphore_leave.text, ticket);
	ck_assert_int_eq(permits_used(redis, "a"), 1);
	permits_add_up(redis, "a");
	OK(lk_semaphore_release(other, next));
	ck_assert(permits_at_rest(redis, "a", 4));
}

/* ---- Operators' actions ------------------------------------------------------------------- */

static atomic_bool load_ends;
static atomic_int load_rounds;

static void *load_thread(void *arg)
{
	lk_client *client = client_at(server.url);
	lk_semaphore *semaphore = semaphore_of(client, "a", 3, 0);

	(void)arg;
	while (!load_ends) {
		uint64_t hold = permits_of(semaphore, 2, 5000);
		OK(lk_semaphore_release_some(semaphore, hold, 1));
		load_rounds++;
		OK(lk_semaphore_release(semaphore, hold));
	}
	OK(lk_client_close(client));
	return NULL;
}

TEST(s9_script_flush_goes_unnoticed)
{
	pthread_t threads[4];

	set_up(NULL);
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
	ck_assert(permits_at_rest(redis, "a", 3));
}

TEST(s10_flushall_is_a_loss_and_waiters_go_on)
{
	struct permit_wait waits[2];
	lk_semaphore *semaphore;
	lk_client *client;
	uint64_t hold;
	int64_t start_ms;

	set_up(NULL);
	client = client_at(server.url);
	semaphore = watched(client, 4, 900);
	hold = permits_of(semaphore, 4, 0);
	for (int i = 0; i < 2; i++)
		permit_wait_queue(&waits[i], redis, "a",
		                  semaphore_of(client_at(server.url), "a", 4, 900), i + 2, false);
	start_ms = now_ms();
	redis_do(redis, "FLUSHALL");
	ck_assert_int_eq(redis_calls(redis, "flushall"), 1);
	ck_assert(WITHIN(2000, permit_losses.count == 1));
	ck_assert_int_eq(permit_losses.reason, LK_LOST_TAKEN);
	ck_assert_int_le(permit_losses.at_ms - start_ms, 450 + 100);
	EXPECT(lk_semaphore_release(semaphore, hold), LK_ELOST);
	for (int i = 0; i < 2; i++) {
		OK(permit_wait_join(&waits[i]));
		ck_assert_uint_gt(waits[i].hold, hold);
	}
	ck_assert_int_le(now_ms() - start_ms, 4000);
	ck_assert(permits_at_rest(redis, "a", 4));
	OK(lk_client_close(client));
}

/* One key of four; the others are incomplete then, and must not be misread. */
TEST_LIMIT(s10_any_key_may_be_deleted_at_any_time, 60)
{
	static const char *const keys[] = {"lk:{a}", "lk:{a}:h", "lk:{a}:q", "lk:fence"};

	set_up(NULL);
	for (int i = 0; i < 4; i++) {
		lk_client *client = client_at(server.url), *other = client_at(server.url);
		lk_semaphore *semaphore = semaphore_of(client, "a", 4, 600);
		struct permit_wait wait;
		uint64_t hold = permits_of(semaphore, 3, 5000);
		lk_err err;
		permit_wait_queue(&wait, redis, "a", semaphore_of(other, "a", 4, 600), 4, false);
		ck_assert_int_eq(redis_int(redis, "DEL %s", keys[i]), 1);
		/* Two of the four are the hold itself. */
		if (i < 2)
			ck_assert(
				WITHIN(1500, lk_semaphore_state(semaphore, hold) == LK_STATE_LOST));
		else
			permits_stay_held(semaphore, hold, 1000);
		err = lk_semaphore_release(semaphore, hold);
		ck_assert_msg(err == (i < 2 ? LK_ELOST : LK_OK), "%s: %s", keys[i],
		              lk_err_name(err));
		OK(permit_wait_join(&wait));
		ck_assert_msg(wait.hold > hold, "%s", keys[i]);
		ck_assert(WITHIN(1000, permits_at_rest(redis, "a", 4)));
		OK(lk_client_close(client));
		OK(lk_client_close(other));
	}
}

/* The same, and the holder is dead: no client cleans up after it. */
TEST(s10_holds_without_ends_or_ends_without_holds_are_nobodys)
{
	static const char ticket[] = "1:AAAAAAAAAAAAAAAAAAAAAA:BBBBBBBBBBB:60000:r:3";
	lk_semaphore *semaphore;
	lk_semaphore_status status;
	lk_client *client;

	set_up(NULL);
	client = client_at(server.url);
	semaphore = semaphore_of(client, "a", 4, 0);
	redis_do(redis, "HSET lk:{a} used 3 %s %s", ticket, "3 5 60000");
	OK(lk_semaphore_query(semaphore, &status));
	ck_assert_int_eq(status.available, 4);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 4, 0)));
	permits_add_up(redis, "a");
	ck_assert(permits_at_rest(redis, "a", 4));
	redis_do(redis, "DEL lk:{a}");
	redis_do(redis, "ZADD lk:{a}:h 9000000000000000 %s", ticket);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 4, 0)));
	permits_add_up(redis, "a");
	ck_assert(permits_at_rest(redis, "a", 4));
	OK(lk_client_close(client));
}

TEST_LIMIT(s11_flushall_under_a_thousand_waiters_leaves_none_behind, 120)
{
	enum { WAITERS = 1000, CLIENTS = 4 };
	static struct permit_wait waits[WAITERS];
	lk_semaphore *semaphores[CLIENTS], *held;
	int64_t start_ms;
	uint64_t hold;
	lk_err err;

	set_up(NULL);
	held = semaphore_of(client_at(server.url), "a", 4, 1000);
	hold = permits_of(held, 4, 0);
	for (int i = 0; i < CLIENTS; i++)
		semaphores[i] = semaphore_of(client_at(server.url), "a", 4, 1000);
	for (int i = 0; i < WAITERS; i++)
		permit_wait_start(&waits[i], semaphores[i % CLIENTS], 1 + i % 4, 40000, false);
	ck_assert(WITHIN(20000, permits_queue(redis, "a") == WAITERS));
	redis_do(redis, "FLUSHALL ASYNC");
	ck_assert_int_eq(redis_calls(redis, "flushall"), 1);
	start_ms = now_ms();
	err = lk_semaphore_release(held, hold);
	ck_assert(err == LK_ELOST || err == LK_OK);
	for (int i = 0; i < WAITERS; i++) {
		ck_assert_msg(WITHIN(60000, waits[i].ended), "the %dth hangs", i);
		OK(permit_wait_join(&waits[i]));
		ck_assert_uint_gt(waits[i].hold, hold);
	}
	printf("all waits granted after %lld ms\n", (long long)(now_ms() - start_ms));
	ck_assert(permits_at_rest(redis, "a", 4));
	for (int i = 0; i < CLIENTS; i++)
		OK(lk_semaphore_close(semaphores[i]));
}

TEST(s13_full_server_renews_releases_and_hands_on)
{
	struct permit_wait wait;
	lk_semaphore *semaphore, *refused = NULL;
	lk_client *client;
	uint64_t hold, none = 77;

	set_up(NULL);
	client = client_at(server.url);
	semaphore = watched(client, 4, 600);
	hold = permits_of(semaphore, 4, 0);
	permit_wait_queue(&wait, redis, "a", semaphore_of(client_at(server.url), "a", 4, 600), 2,
	                  true);
	redis_do(redis, "CONFIG SET maxmemory-policy noeviction maxmemory 1");
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "SET more 1"), "-OOM"));
	EXPECT(lk_semaphore_open(client, "b", 0, &(lk_semaphore_options){.capacity = 1}, &refused),
	       LK_ESERVER);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "OOM"));
	permits_stay_held(semaphore, hold, 900);
	/* Release works, partial or full, and so does the hand-off. */
	OK(lk_semaphore_release_some(semaphore, hold, 1));
	ck_assert_int_eq(permits_used(redis, "a"), 3);
	OK(lk_semaphore_release_some(semaphore, hold, 1));
	OK(permit_wait_join(&wait));
	permits_add_up(redis, "a");
	permits_stay_held(wait.semaphore, wait.hold, 700);
	OK(lk_semaphore_release(semaphore, hold));
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, &none), LK_ESERVER);
	ck_assert_uint_eq(none, 77);
	OK(lk_semaphore_release(wait.semaphore, wait.hold));
	ck_assert_int_eq(permits_used(redis, "a"), 0);
	redis_do(redis, "CONFIG SET maxmemory 0");
	permits_of(semaphore, 4, 1000);
	OK(lk_client_close(client));
	ck_assert(permits_at_rest(redis, "a", 4));
}

/* ---- Foreign keys ------------------------------------------------------------------------- */

TEST(s16_key_of_another_type_is_named_and_left_alone)
{
	static const char *const keys[] = {"lk:{a}", "lk:{a}:q", "lk:{a}:h", "lk:fence"};
	static const int64_t waits_ms[] = {0, 500, LK_FOREVER};
	lk_semaphore *semaphore;
	lk_client *client;
	uint64_t hold;

	set_up(NULL);
	client = client_at(server.url);
	semaphore = semaphore_of(client, "a", 3, 0);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 1, 0)));
	nap_ms(50); /* the client has introduced itself */
	for (int i = 0; i < 4; i++) {
		char before[64];
		redis_do(redis, "DEL %s", keys[i]);
		redis_do(redis, "LPUSH %s x", keys[i]);
		snprintf(before, sizeof(before), "%s", redis_text(redis, "DEBUG DIGEST"));
		for (int j = 0; j < 3; j++) {
			EXPECT(lk_semaphore_acquire(semaphore, 1, waits_ms[j], &hold), LK_EFOREIGN);
			ck_assert_msg(strstr(lk_errmsg(), keys[i]) != NULL, "%s does not name %s",
			              lk_errmsg(), keys[i]);
		}
		EXPECT(lk_semaphore_resize(semaphore, 9), LK_EFOREIGN);
		ck_assert_str_eq(redis_text(redis, "DEBUG DIGEST"), before);
		redis_do(redis, "DEL %s", keys[i]);
	}
	permits_of(semaphore, 3, 0);
	OK(lk_client_close(client));
}

TEST(s16_key_that_changes_its_type_while_held_is_a_loss)
{
	static const char *const keys[] = {"lk:{a}", "lk:{a}:h"};

	set_up(NULL);
	for (int i = 0; i < 2; i++) {
		lk_client *client = client_at(server.url);
		lk_semaphore *semaphore = watched(client, 3, 600);
		uint64_t hold = permits_of(semaphore, 2, 0);
		redis_do(redis, "DEL %s", keys[i]);
		redis_do(redis, "LPUSH %s x", keys[i]);
		ck_assert(WITHIN(1500, permit_losses.count == i + 1));
		EXPECT(lk_semaphore_release(semaphore, hold), LK_ELOST);
		ck_assert_int_eq(redis_int(redis, "LLEN %s", keys[i]), 1);
		OK(lk_client_close(client));
		redis_do(redis, "FLUSHALL");
	}
}
