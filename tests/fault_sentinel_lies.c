/* SPDX-License-Identifier: MIT
 * Sentinels that are gone, lie, know another service or want a password, and servers that are not
 * ready (F4 to F6 of the fault list): one master, two replicas, three sentinels. */
#include "harness/fake_sentinel.h"
#include "harness/grace.h"
#include "harness/sentinel_setup.h"

#include <stdio.h>
#include <string.h>

#define LEASE_OF_HOLDS_MS 6000
#define SOON_MS 2000
#define SENTINEL_BACK_MS 8000 /* a client asks it again every 5 s at least */

static struct sentinel_setup setup;
static char url[250];

static void set_up(const struct sentinel_setup_options *options, const char *query)
{
	sentinel_setup_start(&setup, options);
	redis = redis_open(&setup.servers[0]);
	grace_pass();
	snprintf(url, sizeof(url), "%s?%s", setup.url, query);
}

static void tear_down(void)
{
	redis_close(redis);
	redis = NULL;
	sentinel_setup_stop(&setup);
}

/* An open ends with that error, soon, and the text names both parts. */
static void expect_no_open(const char *at, lk_err err, const char *part, const char *other)
{
	const lk_client_options options = {.connect_timeout_ms = SOON_MS};
	int64_t began_ms = now_ms();
	lk_client *client = NULL;

	EXPECT(lk_client_open(at, &options, &client), err);
	ck_assert_msg(strstr(lk_errmsg(), part) && strstr(lk_errmsg(), other), "%s", lk_errmsg());
	ck_assert_int_lt(now_ms() - began_ms, SOON_MS + 1000);
}

TEST_OF(f4_holds_go_on_without_sentinels_and_become_unsure, LEASED, 60)
{
	struct claims held;
	lk_client *client;

	set_up(NULL, "grace=1500");
	client = client_at(url);
	claims_hold(&held, set, client, LEASE_OF_HOLDS_MS);
	for (int i = 0; i < SETUP_SENTINELS; i++)
		server_kill(&setup.sentinels[i]);
	EACH (claim, &held)
		ck_assert(WITHIN(LEASE_OF_HOLDS_MS,
		                 claim->primitive->state(claim) == LK_STATE_UNSURE));
	expect_no_open(url, LK_ECONN, "no sentinel answers", "connection refused");
	/* They are renewed all the same, beyond their lease. */
	claims_stay_held(&held, LEASE_OF_HOLDS_MS + 1000);
	claims_expect_stored(&held);
	sentinel_setup_restart(&setup, 2);
	EACH (claim, &held)
		ck_assert(
			WITHIN(SENTINEL_BACK_MS, claim->primitive->state(claim) == LK_STATE_HELD));
	claims_release(&held);
	OK(lk_client_close(client));
	tear_down();
}

/* Beside two that tell the truth, it names a replica: first, and then as a change. */
TEST_OF(f4_sentinel_that_lies_moves_no_hold, LEASED, 60)
{
	static struct fake_sentinel liar;
	struct claims held;
	lk_counters counters;
	lk_client *client;
	int asked;

	sentinel_setup_start(&setup, NULL);
	redis = redis_open(&setup.servers[0]);
	grace_pass();
	fake_sentinel_start(&liar, 0, setup.servers[1].port);
	snprintf(url, sizeof(url),
	         "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/main?grace=1500",
	         liar.port, setup.sentinels[0].port, setup.sentinels[1].port);
	client = client_at(url);
	claims_hold(&held, set, client, LEASE_OF_HOLDS_MS);
	fake_sentinel_name(&liar, "127.0.0.1", setup.servers[0].port);
	asked = liar.asked;
	ck_assert(WITHIN(SENTINEL_BACK_MS, liar.asked > asked + 1));
	fake_sentinel_name(&liar, "127.0.0.1", setup.servers[2].port);
	claims_stay_held(&held, LEASE_OF_HOLDS_MS);
	claims_expect_held(&held);
	OK(lk_client_counters(client, &counters));
	ck_assert_int_eq(counters.reclaimed, 0);
	claims_release(&held);
	OK(lk_client_close(client));
	fake_sentinel_stop(&liar);
	tear_down();
}

TEST_LIMIT(f4_replica_and_unknown_service_are_named, 60)
{
	static struct fake_sentinel liar;
	char text[100];

	set_up(NULL, "grace=0");
	snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d/other",
	         setup.sentinels[0].port, setup.sentinels[1].port);
	expect_no_open(url, LK_EINVALID, "other: sentinel 127.0.0.1:", "knows no such service");
	fake_sentinel_start(&liar, 0, setup.servers[1].port);
	snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d/main", liar.port);
	snprintf(text, sizeof(text), "127.0.0.1:%d", setup.servers[1].port);
	expect_no_open(url, LK_ECONN, text, "is a replica");
	fake_sentinel_stop(&liar);
	tear_down();
}

TEST_LIMIT(f5_real_sentinels_want_their_own_password, 60)
{
	const lk_client_options wrong = {.sentinel_password = "sesame"};
	const lk_client_options right = {.sentinel_password = "watchword"};
	lk_client *client;
	lk_lock *lock;

	set_up(&(struct sentinel_setup_options){.sentinel_password = "watchword"}, "grace=4000");
	EXPECT(lk_client_open(url, NULL, &client), LK_EAUTH);
	ck_assert_msg(strstr(lk_errmsg(), "sentinels' own password") != NULL, "%s", lk_errmsg());
	EXPECT(lk_client_open(url, &wrong, &client), LK_EAUTH);
	client = client_with(url, &right);
	lock = lock_leased(client, "a", 10000);
	OK(lk_lock_acquire(lock, 0, NULL));
	/* It is heard of by the same conversation. */
	server_kill(&setup.servers[0]);
	sentinel_setup_await_switch(&setup, 0);
	ck_assert(WITHIN(BACK_MS, lk_lock_state(lock) == LK_STATE_HELD));
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	tear_down();
}

/* Let the master refuse that request by that command, and then no more, while each is awaited. */
static void sit_out(unsigned set, const char *refuse, const char *request, const char *refusal,
                    const char *mend)
{
	lk_client *client = client_at(url);
	struct claims waits;

	claims_warm_up(set, client);
	claims_open(&waits, set, client, LEASE_OF_HOLDS_MS);
	redis_do(redis, refuse);
	ck_assert_msg(!strncmp(redis_text(redis, request), refusal, strlen(refusal)), "%s: %s",
	              refuse, redis_text(redis, request));
	claims_start(&waits, 15000, false);
	nap_ms(500);
	ck_assert(!claims_any_ended(&waits));
	redis_do(redis, mend);
	claims_join(&waits, LK_OK);
	OK(lk_client_close(client));
}

TEST_OF(f6_master_without_replicas_is_waited_for, LEASED, 60)
{
	set_up(NULL, "grace=1000");
	sit_out(set, "CONFIG SET min-replicas-to-write 3", "SET x 1", "-NOREPLICAS",
	        "CONFIG SET min-replicas-to-write 0");
	tear_down();
}

static void demote(unsigned set, const char *request, const char *refusal)
{
	char command[60];

	snprintf(command, sizeof(command), "REPLICAOF 127.0.0.1 %d", port_pick());
	sit_out(set, command, request, refusal, "REPLICAOF NO ONE");
	tear_down();
}

/* It is too short for the sentinels to notice. */
static const struct sentinel_setup_options patient = {.down_after_ms = 20000};

TEST_OF(f6_master_that_is_a_replica_for_a_while_is_waited_for, LEASED, 60)
{
	set_up(&patient, "grace=1000");
	demote(set, "SET x 1", "-READONLY");
}

TEST_OF(f6_replica_that_shows_nothing_is_waited_for, LEASED, 60)
{
	set_up(&patient, "grace=1000");
	redis_do(redis, "CONFIG SET replica-serve-stale-data no");
	demote(set, "GET x", "-MASTERDOWN");
}

static void *reload(void *arg)
{
	redis = redis_open(&setup.servers[0]); /* this thread's own */
	redis_do(redis, "DEBUG RELOAD");
	redis_close(redis);
	return arg;
}

TEST_OF(f6_master_that_loads_is_waited_for, LEASED, 60)
{
	struct claims held, waits;
	lk_client *client, *other;
	pthread_t thread;

	set_up(&patient, "grace=1000");
	client = client_at(url);
	other = client_at(url);
	claims_hold(&held, set, client, LEASE_OF_HOLDS_MS);
	/* To load these takes 2 s and more. */
	redis_do(redis, "EVAL %s 0", "for i = 1, 2000 do redis.call('SET', 'x' .. i, i) end");
	redis_do(redis, "CONFIG SET loading-process-events-interval-bytes 1024");
	redis_do(redis, "CONFIG SET key-load-delay 1000");
	claims_open(&waits, set, other, LEASE_OF_HOLDS_MS);
	ck_assert(!pthread_create(&thread, NULL, reload, NULL));
	ck_assert(WITHIN(SOON_MS, !strncmp(redis_text(redis, "SET x 1"), "-LOADING", 8)));
	claims_start(&waits, 15000, false);
	nap_ms(300);
	ck_assert(!strncmp(redis_text(redis, "SET x 1"), "-LOADING", 8));
	pthread_join(thread, NULL);
	claims_expect_held(&held);
	EACH (claim, &held)
		ck_assert_int_eq(claim->lost.count, 0);
	ck_assert(!claims_any_ended(&waits));
	claims_release(&held);
	claims_join(&waits, LK_OK);
	claims_expect_newer(&waits, &held);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	tear_down();
}
