/* SPDX-License-Identifier: MIT
 * Failovers of a real service (F1 to F3 of the fault list): one master, two replicas, three
 * sentinels.  Clients leave the old master, take their holds to the new one, and no two hold at
 * once meanwhile. */
#include "harness/grace.h"
#include "harness/rivals.h"
#include "harness/sentinel_setup.h"

#include <stdio.h>
#include <string.h>

#define FAILOVER_GRACE_MS 4000
#define HOLD_LEASE_MS 12000 /* longer than a failover on a busy machine */
#define RIVAL_LEASE_MS 8000
#define CUT_MS 2500     /* after the beginning of a planned failover */
#define HEARD_MS 500    /* after the first sentinel names another master */
#define SERVED_MS 10000 /* for the rivals to go on */
#define AGAIN_MS 30000  /* after a failover: a busy machine makes several of one */

static struct sentinel_setup setup;
static char url[200];
static lk_client *holder, *waiter;
static struct claims held, waits;
static struct rivals rivals[2];

static void look_at(int i)
{
	if (redis)
		redis_close(redis);
	redis = redis_open(&setup.servers[i]);
}

/* Start the service; the grace of its memory has passed. */
static void set_up(void)
{
	sentinel_setup_start(&setup, NULL);
	look_at(0);
	grace_pass();
	snprintf(url, sizeof(url), "%s?grace=%d", setup.url, FAILOVER_GRACE_MS);
}

/* Hold and await something of each primitive, and let rivals hold others in turn. */
static void begin(unsigned set)
{
	holder = client_at(url);
	waiter = client_at(url);
	claims_hold(&held, set, holder, HOLD_LEASE_MS);
	claims_queue(&waits, set, waiter, HOLD_LEASE_MS, false);
	rivals_start(&rivals[0], &noun_lock, url, RIVAL_LEASE_MS);
	rivals_start(&rivals[1], &noun_semaphore, url, RIVAL_LEASE_MS);
	for (int i = 0; i < 2; i++)
		rivals_go_on(&rivals[i], SERVED_MS);
}

/* Has the holder taken all its holds to another memory? */
static bool has_reclaimed(void)
{
	lk_counters counters;
	int64_t holds = 0;

	EACH (claim, &held)
		holds += claim->first ? 2 : 1;
	OK(lk_client_counters(holder, &counters));
	return counters.reclaimed >= holds; /* more if there was another failover */
}

/* The connections of this library's clients to that server. */
static long long clients_at(int i)
{
	struct redis *own = redis_open(&setup.servers[i]);
	const char *list = redis_text(own, "CLIENT LIST");
	long long count = 0;

	for (const char *at = list; (at = strstr(at, "name=latchkey")); at++)
		count++;
	redis_close(own);
	return count;
}

static long long scripts_at(int i)
{
	struct redis *own = redis_open(&setup.servers[i]);
	long long count = redis_script_calls(own);

	redis_close(own);
	return count;
}

/* The holds have moved to the master that the sentinels name; nothing was granted beside them, and
 * all goes on there. */
static void finish(void)
{
	look_at(sentinel_setup_await_switch(&setup, 0));
	ck_assert(WITHIN(HOLD_LEASE_MS, has_reclaimed()));
	claims_expect_held(&held);
	ck_assert(!claims_any_ended(&waits));
	EACH (claim, &held)
		ck_assert_int_eq(claim->lost.count, 0);
	claims_release(&held);
	claims_join(&waits, LK_OK);
	claims_expect_newer(&waits, &held);
	for (int i = 0; i < 2; i++)
		rivals_go_on(&rivals[i], AGAIN_MS);
	for (int i = 0; i < 2; i++)
		rivals_stop(&rivals[i]);
	OK(lk_client_close(holder));
	OK(lk_client_close(waiter));
	sentinel_setup_stop(&setup);
}

TEST_OF(f1_killed_master_moves_holds, LEASED, 90)
{
	set_up();
	begin(set);
	server_kill(&setup.servers[0]);
	finish();
}

/* The replicas know an earlier holder: the later one takes the lock, or all permits, from it. */
TEST_OF(f1_promoted_replica_that_lags_keeps_one_holder, LEASED, 90)
{
	struct claims earlier;
	lk_client *first;

	set_up();
	first = client_at(url);
	claims_hold(&earlier, set, first, HOLD_LEASE_MS);
	sentinel_setup_await_sync(&setup, 0);
	sentinel_setup_cut_replicas(&setup, 0);
	claims_release(&earlier);
	OK(lk_client_close(first));
	begin(set);
	claims_expect_newer(&held, &earlier);
	server_kill(&setup.servers[0]);
	for (int i = 1; i < SETUP_SERVERS; i++)
		server_resume(&setup.servers[i]);
	finish();
}

TEST_OF(f2_planned_failover_moves_holds_while_both_are_masters, LEASED, 90)
{
	int64_t began_ms, named_ms, cut_ms;
	lk_client *idle;

	set_up();
	begin(set);
	idle = client_at(url);
	claims_warm_up(set, idle);
	ck_assert_int_gt(clients_at(0), 0);
	began_ms = now_ms();
	sentinel_setup_failover(&setup);
	ck_assert(WITHIN(SETUP_FAILOVER_MS, sentinel_setup_named(&setup, 0) > 0 ||
	                                            sentinel_setup_named(&setup, 1) > 0 ||
	                                            sentinel_setup_named(&setup, 2) > 0));
	named_ms = now_ms();
	ck_assert(WITHIN(SETUP_FAILOVER_MS, clients_at(0) == 0));
	cut_ms = now_ms();
	printf("a sentinel names another master after %lld ms; the old one has no client after "
	       "%lld "
	       "ms\n",
	       (long long)(named_ms - began_ms), (long long)(cut_ms - began_ms));
	ck_assert_int_le(cut_ms - named_ms, HEARD_MS);
	ck_assert_int_le(cut_ms - began_ms, CUT_MS);
	/* Only the sentinels could say so. */
	ck_assert(sentinel_setup_is_master(&setup, 0));
	ck_assert(WITHIN(HOLD_LEASE_MS, has_reclaimed()));
	ck_assert_int_eq(clients_at(0), 0);
	OK(lk_client_close(idle));
	finish();
}

TEST_OF(f3_stopped_master_that_wakes_up_has_no_clients, LEASED, 90)
{
	long long executed;

	set_up();
	begin(set);
	server_pause(&setup.servers[0]);
	sentinel_setup_await_switch(&setup, 0);
	ck_assert(WITHIN(HOLD_LEASE_MS, has_reclaimed()));
	server_resume(&setup.servers[0]);
	/* It executes what lay in its sockets' buffers, and is a master for some seconds more. */
	ck_assert(sentinel_setup_is_master(&setup, 0));
	ck_assert(WITHIN(2000, clients_at(0) == 0));
	executed = scripts_at(0);
	nap_ms(1500);
	ck_assert(sentinel_setup_is_master(&setup, 0));
	ck_assert_int_eq(clients_at(0), 0);
	ck_assert_int_eq(scripts_at(0), executed);
	finish();
}

TEST_LIMIT(f1_client_opened_in_a_failover_waits_for_its_end, 60)
{
	const lk_client_options options = {.connect_timeout_ms = SETUP_FAILOVER_MS};
	int64_t began_ms;

	set_up();
	server_kill(&setup.servers[0]);
	began_ms = now_ms();
	OK(lk_client_close(client_with(url, &options)));
	printf("opened %lld ms after the crash\n", (long long)(now_ms() - began_ms));
	ck_assert_int_gt(sentinel_setup_await_switch(&setup, 0), 0);
	sentinel_setup_stop(&setup);
}
