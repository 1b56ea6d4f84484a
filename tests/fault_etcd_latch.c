/* SPDX-License-Identifier: MIT
 * Latches on nodes of etcd that fail: no step counts twice or is lost, no waiter is forgotten (E4,
 * E5, E7 to E10 and E16 of the fault list). */
#include "harness/etcd_fault.h"
#include "harness/latch_watch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 4
#define SLOW_MS 5000 /* what a loaded machine may add */

static lk_client *client, *rival;
static lk_latch *latch;
static struct awaiter awaiter;
static uint64_t generation;

/* Two of the steps are counted, and a client waits. */
static void count_and_wait(lk_client *counts, lk_client *waits)
{
	client = counts;
	rival = waits;
	latch = latch_named(client, "a");
	ck_assert(WITHIN(ETCD_SOON_MS, lk_latch_set(latch, COUNT, NULL) == LK_OK));
	ck_assert(WITHIN(ETCD_SOON_MS, lk_latch_down(latch, 1, "one", 0, NULL) == LK_OK));
	ck_assert(WITHIN(ETCD_SOON_MS, lk_latch_down(latch, 1, "two", 0, NULL) == LK_OK));
	generation = latch_status(latch).generation;
	awaiter_start(&awaiter, latch_named(rival, "a"), LK_FOREVER);
	nap_ms(200); /* it watches, as a rule */
}

/* A named step, again and again until it is counted.  Returns what remains. */
static int64_t count(const char *name)
{
	lk_latch_step step = {.remaining = -1};

	ck_assert(WITHIN(2 * ETCD_SOON_MS, lk_latch_down(latch, 1, name, 0, &step) == LK_OK));
	return step.remaining;
}

/* What was counted is counted, once, and the last step ends the wait. */
static void expect_rest(void)
{
	int64_t opened_ms;

	ck_assert_int_eq(count("one"), 2);
	ck_assert_uint_eq(latch_status(latch).generation, generation);
	ck_assert(!awaiter.ended);
	ck_assert_int_eq(count("three"), 1);
	ck_assert_int_eq(count("three"), 1);
	ck_assert(!awaiter.ended);
	ck_assert_int_eq(count("four"), 0);
	opened_ms = now_ms();
	OK(awaiter_join(&awaiter));
	ck_assert_int_le(now_ms() - opened_ms, SLOW_MS); /* not its next look, after 10 s */
	OK(lk_client_close(client));
	OK(lk_client_close(rival));
}

TEST_LIMIT(e4_killed_leader_costs_no_step_and_no_wait, 240)
{
	etcd_fault_set_up();
	etcd_lead(0);
	count_and_wait(etcd_client_at(0), etcd_client(ETCD_ALL));
	etcd_kill(&etcd, 0);
	ck_assert_int_eq(count("two"), 2);
	etcd_restart(&etcd, 0);
	expect_rest();
	etcd_stop(&etcd);
}

TEST_LIMIT(e9_lost_majority_costs_no_step_and_no_wait, 240)
{
	int64_t began_ms;
	lk_err err;

	etcd_fault_set_up();
	count_and_wait(etcd_client(ETCD_ALL), etcd_client(ETCD_ALL));
	etcd_kill(&etcd, 1);
	etcd_kill(&etcd, 2);
	began_ms = now_ms();
	err = lk_latch_down(latch, 1, "three", 0, NULL);
	ck_assert_msg(err == LK_ECONN || err == LK_EUNKNOWN || err == LK_EAGAIN, "%s",
	              lk_err_name(err));
	ck_assert_int_le(now_ms() - began_ms, 2000 + SLOW_MS);
	ck_assert(!awaiter.ended);
	etcd_restart_dead(&etcd);
	ck_assert_int_eq(count("three"), 1);
	ck_assert_int_eq(count("one"), 1);
	ck_assert_uint_eq(latch_status(latch).generation, generation);
	ck_assert(!awaiter.ended);
	ck_assert_int_eq(count("four"), 0);
	OK(awaiter_join(&awaiter));
	OK(lk_client_close(client));
	OK(lk_client_close(rival));
	etcd_stop(&etcd);
}

TEST_LIMIT(e10_restart_of_all_nodes_costs_no_step_and_no_wait, 240)
{
	etcd_fault_set_up();
	count_and_wait(etcd_client(ETCD_ALL), etcd_client(ETCD_ALL));
	for (int i = 0; i < etcd.count; i++)
		etcd_kill(&etcd, i);
	etcd_restart_dead(&etcd);
	expect_rest();
	etcd_stop(&etcd);
}

/* Latch after latch is counted down meanwhile, by steps that are repeated until they are confirmed.
 */
TEST_LIMIT(e5_leader_that_moves_each_second_costs_no_step, 240)
{
	int64_t end_ms = now_ms() + (getenv("LK_LONG") ? 60000 : 5000), move_ms = 0;

	etcd_fault_set_up();
	count_and_wait(etcd_client(ETCD_ALL), etcd_client(ETCD_ALL));
	for (int round = 1; now_ms() < end_ms; round++) {
		char name[20];
		if (now_ms() >= move_ms) {
			etcd_lead((int)(move_ms / 1000 % ETCD_NODES_MAX));
			move_ms = now_ms() + 1000;
		}
		ck_assert_int_eq(count("three"), 1);
		ck_assert(!awaiter.ended);
		snprintf(name, sizeof(name), "last/%d", round);
		ck_assert_int_eq(count(name), 0);
		OK(awaiter_join(&awaiter));
		ck_assert(WITHIN(ETCD_SOON_MS, lk_latch_reset(latch, COUNT, NULL) == LK_OK));
		ck_assert(latch_status(latch).generation > generation);
		generation = latch_status(latch).generation;
		ck_assert_int_eq(count("one"), 3);
		ck_assert_int_eq(count("two"), 2);
		awaiter_start(&awaiter, awaiter.latch, LK_FOREVER);
	}
	expect_rest();
	etcd_stop(&etcd);
}

/* ---- The network ---------------------------------------------------------------------------- */

static void lose(int node, bool requests)
{
	const struct proxy_fault drop = {.drop = true};

	if (requests)
		proxy_set(&etcd_proxies[node], PROXY_COMMANDS, PROXY_TO_SERVER, &drop);
	proxy_set(&etcd_proxies[node], PROXY_COMMANDS, PROXY_TO_CLIENT, &drop);
}

/* No network delivers bytes after it lost some. */
static void heal(void)
{
	for (int i = 0; i < etcd.count; i++) {
		proxy_cut(&etcd_proxies[i], PROXY_COMMANDS, false);
		proxy_heal(&etcd_proxies[i]);
	}
}

/* The latch opens while nothing arrives from the waiter's node. */
TEST_LIMIT(e7_waiter_without_its_node_learns_of_the_opening, 120)
{
	etcd_fault_set_up();
	count_and_wait(etcd_client(ETCD_ALL), etcd_client_at(0));
	lose(0, true);
	ck_assert_int_eq(count("three"), 1);
	ck_assert_int_eq(count("four"), 0);
	ck_assert(WITHIN(2 * ETCD_SOON_MS, awaiter.ended));
	OK(awaiter_join(&awaiter));
	heal();
	OK(lk_client_close(client));
	OK(lk_client_close(rival));
	etcd_stop(&etcd);
}

TEST_LIMIT(e8_step_without_an_answer_counts_once, 120)
{
	etcd_fault_set_up();
	count_and_wait(etcd_client_at(0), etcd_client(ETCD_ALL));
	for (int i = 0; i < etcd.count; i++)
		lose(i, false);
	EXPECT(lk_latch_down(latch, 1, NULL, 0, NULL), LK_EUNKNOWN);
	ck_assert(!awaiter.ended);
	heal();
	/* The library repeats it by itself. */
	ck_assert_int_eq(count("one"), 1);
	ck_assert(!awaiter.ended);
	ck_assert_int_eq(count("four"), 0);
	OK(awaiter_join(&awaiter));
	OK(lk_client_close(client));
	OK(lk_client_close(rival));
	etcd_stop(&etcd);
}

TEST_LIMIT(e16_compactions_cost_no_opening, 120)
{
	int64_t end_ms;

	etcd_fault_set_up();
	count_and_wait(etcd_client(ETCD_ALL), etcd_client_at(0));
	for (end_ms = now_ms() + 1000; now_ms() < end_ms;) {
		etcd_write(0);
		etcd_compact(0);
	}
	/* It opens and is compacted before the waiter watches again. */
	for (int i = 0; i < etcd.count; i++)
		proxy_refuse(&etcd_proxies[i], true);
	proxy_cut(&etcd_proxies[0], PROXY_COMMANDS, false);
	ck_assert_int_eq(count("three"), 1);
	ck_assert_int_eq(count("four"), 0);
	etcd_compact(0);
	heal();
	OK(awaiter_join(&awaiter));
	OK(lk_client_close(client));
	OK(lk_client_close(rival));
	etcd_stop(&etcd);
}
