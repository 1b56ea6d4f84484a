/* SPDX-License-Identifier: MIT
 * Failovers and partitions of a real Cluster (R8 to R13 of the fault list): clients take their
 * holds to the new master, no two hold at once meanwhile, and a master that has been replaced, or
 * cannot know, makes nothing. */
#include "harness/cluster_fault.h"
#include "harness/grace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLD_LEASE_MS 12000 /* longer than a failover on a busy machine */
#define RIVAL_LEASE_MS 8000
#define LONG_GRACE_MS 6000 /* so long that a busy machine leaves something of it */
#define SERVED_MS 10000    /* for the rivals to go on */
#define BELIEF_MS                                                                                  \
	1100          /* a client asks a server that it has not looked at for so long who it is    \
	               */
#define ALONE_MS 5000 /* for a master without peers to notice: 1.5 node timeouts */

CLUSTER_SETUP_SHARED(NULL)

static lk_client *holder, *waiter;
static struct claims held, waits;
static struct rivals rivals[2];

/* Hold and await something of each primitive at this master, and let rivals hold others in turn. */
static void begin(unsigned set, int master)
{
	cluster_fault_set_up(master);
	holder = client_at(cluster_url);
	waiter = client_at(cluster_url);
	claims_hold(&held, set, holder, HOLD_LEASE_MS);
	claims_queue(&waits, set, waiter, HOLD_LEASE_MS, false);
	rivals_start(&rivals[0], &noun_lock, cluster_url, RIVAL_LEASE_MS);
	rivals_start(&rivals[1], &noun_semaphore, cluster_url, RIVAL_LEASE_MS);
	for (int i = 0; i < 2; i++)
		rivals_go_on(&rivals[i], SERVED_MS);
	cluster_setup_await_sync(cluster); /* with the holds; the rivals go on */
}

/* Has the holder taken all its holds to another memory? */
static bool has_reclaimed(void)
{
	lk_counters counters;
	int64_t holds = 0;

	EACH (claim, &held)
		holds += !claim->primitive->is_leased ? 0 : claim->first ? 2 : 1;
	OK(lk_client_counters(holder, &counters));
	return counters.reclaimed >= holds;
}

static void expect_no_loss(void)
{
	EACH (claim, &held)
		ck_assert_int_eq(claim->lost.count, 0);
}

/* The holds have moved to the new master; nothing was granted beside them, and all goes on. */
static void finish(void)
{
	ck_assert(WITHIN(HOLD_LEASE_MS, has_reclaimed()));
	claims_expect_held(&held);
	ck_assert(!claims_any_ended(&waits));
	expect_no_loss();
	claims_release(&held);
	claims_join(&waits, LK_OK);
	waits.set &= LEASED;
	claims_expect_newer(&waits, &held);
	for (int i = 0; i < 2; i++)
		rivals_go_on(&rivals[i], SERVED_MS);
	for (int i = 0; i < 2; i++)
		rivals_stop(&rivals[i]);
	OK(lk_client_close(holder));
	OK(lk_client_close(waiter));
}

/* ---- R8, R9 ---------------------------------------------------------------------------------- */

TEST_OF(r8_planned_failover_moves_what_is_held_and_awaited, EVERY, 60)
{
	begin(set, 0);
	ck_assert_int_eq(cluster_setup_failover(cluster, 0, ""), 3);
	ck_assert(!cluster_setup_is_master(cluster, 0));
	finish();
}

TEST_OF(r8_takeover_moves_what_is_held_and_awaited, EVERY, 60)
{
	begin(set, 1);
	ck_assert_int_eq(cluster_setup_failover(cluster, 1, "TAKEOVER"), 4);
	ck_assert(!cluster_setup_is_master(cluster, 1));
	finish();
}

TEST_OF(r9_killed_master_grants_nothing_new_in_the_grace, EVERY, 60)
{
	int64_t left_ms;
	int tries = 0;

	cluster_grace_ms = LONG_GRACE_MS;
	begin(set, 2);
	cluster_setup_kill(cluster, 2);
	ck_assert(WITHIN(CLUSTER_SETTLED_MS, cluster_setup_is_master(cluster, 5)));
	ck_assert(WITHIN(HOLD_LEASE_MS, has_reclaimed()));
	claims_await_link(&waits);
	for (;;) {
		bool ended = claims_any_ended(&waits);
		left_ms = cluster_grace_left_ms(5);
		if (left_ms <= 500)
			break;
		ck_assert(!ended);
		grace_expect_busy(set & LEASED, waiter);
		tries++;
		nap_ms(100);
	}
	printf("%d tries were refused in the grace\n", tries);
	ck_assert_int_gt(tries, 0);
	ck_assert_int_eq(cluster_setup_await_promotion(cluster, 2), 5);
	ck_assert(WITHIN(BACK_MS, cluster_grace_left_ms(5) <= 0));
	finish();
}

/* ---- R10 ------------------------------------------------------------------------------------- */

/* The master is replaced and returns: it has another memory, and a grace; a client that did not
 * look believes the one of before. */
TEST_OF(r10_idle_client_does_not_believe_a_master_that_returned, LEASED, 60)
{
	struct claims tries;
	lk_client *idle;
	lk_counters before, after;

	cluster_fault_set_up(1);
	holder = client_at(cluster_url);
	idle = client_at(cluster_url);
	claims_hold(&held, set, holder, HOLD_LEASE_MS);
	claims_open(&tries, set, idle, HOLD_LEASE_MS);
	EACH (claim, &tries)
		OK(claim->primitive->query(claim));
	OK(lk_client_counters(idle, &before));
	nap_ms(BELIEF_MS);
	cluster_setup_failover(cluster, 1, "TAKEOVER");
	cluster_setup_await_sync(cluster);
	ck_assert_int_eq(cluster_setup_failover(cluster, 4, "TAKEOVER"), 1);
	OK(lk_client_counters(idle, &after));
	printf("the idle client has connected %lld times meanwhile\n",
	       (long long)(after.connected - before.connected));
	EACH (claim, &tries)
		EXPECT(claim->primitive->wait(claim, 0), LK_EBUSY);
	grace_expect_busy(set, idle);
	ck_assert(WITHIN(HOLD_LEASE_MS, has_reclaimed()));
	claims_expect_held(&held);
	expect_no_loss();
	claims_release(&held);
	/* The grace passes, and the idle client is served. */
	EACH (claim, &tries) {
		OK(claim->primitive->wait(claim, cluster_grace_ms + BACK_MS));
		OK(claim->primitive->release(claim));
	}
	claims_expect_newer(&tries, &held);
	OK(lk_client_close(idle));
	OK(lk_client_close(holder));
}

/* ---- R11 ------------------------------------------------------------------------------------- */

/* Does the node refuse what clients send? */
static bool is_down(int node)
{
	struct redis *own = redis_open(&cluster->nodes[node]);
	bool is = strstr(redis_text(own, "CLUSTER INFO"), "cluster_state:fail") != NULL;

	redis_close(own);
	return is;
}

/* Stop all nodes but master 0: replicas first, so that none is promoted. */
static void isolate(bool on)
{
	for (int i = CLUSTER_NODES - 1; i > 0; i--)
		(on ? cluster_setup_pause : cluster_setup_resume)(cluster, i);
	if (on)
		ck_assert(WITHIN(ALONE_MS, is_down(0)));
	else
		cluster_setup_await_ok(cluster);
}

TEST_OF(r11_master_without_peers_within_the_lease_loses_nothing, EVERY, 60)
{
	cluster_fault_set_up(0);
	holder = client_at(cluster_url);
	waiter = client_at(cluster_url);
	claims_hold(&held, set, holder, HOLD_LEASE_MS);
	claims_queue(&waits, set, waiter, HOLD_LEASE_MS, false);
	isolate(true);
	ck_assert(!claims_any_ended(&waits));
	isolate(false);
	claims_expect_held(&held);
	ck_assert(!claims_any_ended(&waits));
	expect_no_loss();
	claims_release(&held);
	claims_join(&waits, LK_OK);
	OK(lk_client_close(holder));
	OK(lk_client_close(waiter));
}

TEST_OF(r11_master_without_peers_renews_nothing, LEASED, 60)
{
	const lk_client_options options = {.command_timeout_ms = 500};
	struct claims tries;
	long long refused;

	cluster_fault_set_up(0);
	holder = client_at(cluster_url);
	waiter = client_with(cluster_url, &options);
	claims_open(&tries, set, waiter, HOLD_LEASE_MS);
	EACH (claim, &tries)
		OK(claim->primitive->query(claim));
	claims_hold(&held, set, holder, HOLD_LEASE_MS / 2);
	isolate(true);
	refused = cluster_errors_at(0, "CLUSTERDOWN");
	EACH (claim, &tries) {
		int64_t began_ms = now_ms();
		lk_err err = claim->primitive->wait(claim, 300);
		ck_assert_msg(err != LK_OK, "granted by a master without peers");
		ck_assert_int_le(now_ms() - began_ms, 300 + 2 * options.command_timeout_ms);
		printf("%s: %s: %s\n", claim->name, lk_err_name(err), lk_errmsg());
	}
	EACH (claim, &held)
		ck_assert(WITHIN(HOLD_LEASE_MS / 2, claim->primitive->remaining_ms(claim) == 0));
	claims_expect_lost(&held, LK_LOST_EXPIRED, now_ms() + 1000);
	ck_assert_int_gt(cluster_errors_at(0, "CLUSTERDOWN"), refused);
	isolate(false);
	claims_release_lost(&held);
	claims_hold_again(&tries);
	OK(lk_client_close(holder));
	OK(lk_client_close(waiter));
}

/* ---- R12 ------------------------------------------------------------------------------------- */

TEST_OF(r12_stopped_master_that_wakes_up_after_its_promotion_makes_nothing, LEASED, 60)
{
	struct claims late;

	begin(set, 1);
	grace_open_free(&late, set, waiter);
	EACH (claim, &late)
		OK(claim->primitive->query(claim));
	cluster_setup_pause(cluster, 1);
	/* These asks lie in its buffers. */
	EACH (claim, &late)
		ck_assert(claim->primitive->wait(claim, 200) != LK_OK);
	ck_assert_int_eq(cluster_setup_await_promotion(cluster, 1), 4);
	ck_assert(WITHIN(HOLD_LEASE_MS, has_reclaimed()));
	cluster_setup_resume(cluster, 1);
	ck_assert(WITHIN(BACK_MS, !cluster_setup_is_master(cluster, 1)));
	cluster_setup_await_ok(cluster);
	ck_assert(WITHIN(BACK_MS, cluster_clients_at(1) == 0));
	EACH (claim, &late) {
		ck_assert_int_le(claim->primitive->remaining_ms(claim), 0);
		ck_assert_str_eq(redis_text(redis, "GET lk:{%s}", "free%20lock"), "");
	}
	finish();
}

/* ---- R13 ------------------------------------------------------------------------------------- */

static void set_owner(int node, int slot, int owner)
{
	struct redis *own = redis_open(&cluster->nodes[node]);

	redis_do(own, "CLUSTER SETSLOT %d NODE %s", slot, cluster->ids[owner]);
	redis_close(own);
}

TEST_EACH(r13_redirections_in_a_circle_end_and_are_reported, EVERY, 40)
{
	long long moved;

	cluster_fault_set_up(1);
	holder = client_at(cluster_url);
	claims_init(&held, set, holder, HOLD_LEASE_MS);
	/* 0 names 1, and 1 names 0. */
	EACH (claim, &held)
		set_owner(1, cluster_slot_of_name(claim->name), 0);
	moved = cluster_errors("MOVED");
	EACH (claim, &held) {
		int64_t began_ms = now_ms();
		lk_err err = claim->primitive->open(claim, false);
		if (!err)
			err = claim->primitive->hold(claim, 1000);
		ck_assert(err != LK_OK);
		ck_assert_int_le(now_ms() - began_ms, 4000);
		printf("%s: %s: %s; %lld redirects\n", claim->name, lk_err_name(err), lk_errmsg(),
		       cluster_errors("MOVED") - moved);
		ck_assert_msg(strstr(lk_errmsg(), "redirect to each other"), "%s", lk_errmsg());
	}
	ck_assert_int_ge(cluster_errors("MOVED"), moved + 5);
	ck_assert_int_le(cluster_errors("MOVED"), moved + 400);
	EACH (claim, &held) {
		set_owner(1, cluster_slot_of_name(claim->name), 1);
		ck_assert(WITHIN(BACK_MS,
		                 claim->handle || claim->primitive->open(claim, false) == LK_OK));
		ck_assert(WITHIN(BACK_MS, claim->primitive->hold(claim, 1000) == LK_OK));
		OK(claim->primitive->release(claim));
	}
	OK(lk_client_close(holder));
}
