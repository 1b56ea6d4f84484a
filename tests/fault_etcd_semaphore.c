/* SPDX-License-Identifier: MIT
 * Semaphores on nodes of etcd that fail, and their clients that die (E5, E9, E10, E13 and E16 of
 * the fault list): permits are neither lost nor out twice, and waiters keep their order. */
#include "harness/etcd_fault.h"
#include "harness/permit_watch.h"
#include "harness/rivals.h"

#include <stdlib.h>
#include <string.h>

#define LEASE_MS 3000
#define LONG_LEASE_MS 60000
#define CAPACITY 3
#define SLOW_MS 6000 /* what etcd and a loaded machine may add */

static lk_client *clients[4];
static lk_semaphore *semaphores[4];
static struct permit_wait waits[4];
static uint64_t holds[4];

static void open_all(const char *name, int64_t lease_ms)
{
	const lk_semaphore_options options = {.capacity = CAPACITY, .lease_ms = lease_ms};

	for (int i = 0; i < 4; i++) {
		clients[i] = etcd_client(ETCD_ALL);
		semaphores[i] = semaphore_watched(clients[i], name, options);
	}
}

static int64_t waiting(const char *name)
{
	lk_semaphore_status status;

	(void)name;
	return lk_semaphore_query(semaphores[0], &status) ? -1 : status.queue_len;
}

/* The first client has two permits, the second one has one, and two others wait for two each. */
static void hold_and_wait(int64_t lease_ms)
{
	open_all("s", lease_ms);
	OK(lk_semaphore_acquire(semaphores[0], 2, ETCD_SOON_MS, &holds[0]));
	OK(lk_semaphore_acquire(semaphores[1], 1, ETCD_SOON_MS, &holds[1]));
	for (int i = 2; i < 4; i++) {
		permit_wait_start(&waits[i], semaphores[i], 2, LK_FOREVER, true);
		ck_assert(WITHIN(ETCD_SOON_MS, waiting("s") == i - 1));
	}
}

static lk_state state_of(int i)
{
	return lk_semaphore_state(semaphores[i], holds[i]);
}

/* They get their permits one after the other. */
static void serve_waiters(void)
{
	OK(permit_wait_join(&waits[2]));
	ck_assert_uint_gt(waits[2].hold, holds[1]);
	nap_ms(100);
	ck_assert(!waits[3].ended);
	OK(lk_semaphore_release(semaphores[2], waits[2].hold));
	OK(permit_wait_join(&waits[3]));
	ck_assert_uint_gt(waits[3].hold, waits[2].hold);
	OK(lk_semaphore_release(semaphores[3], waits[3].hold));
}

/* All permits are free: one client gets them. */
static void end(void)
{
	OK(lk_semaphore_acquire(semaphores[0], CAPACITY, 2 * ETCD_SOON_MS, &holds[0]));
	OK(lk_semaphore_release(semaphores[0], holds[0]));
	for (int i = 0; i < 4; i++)
		OK(lk_client_close(clients[i]));
	etcd_stop(&etcd);
}

TEST_LIMIT(e9_lost_majority_ends_permits_in_time_and_revives_none, 240)
{
	int64_t began_ms;

	etcd_fault_set_up();
	hold_and_wait(LEASE_MS);
	began_ms = now_ms();
	etcd_kill(&etcd, 1);
	etcd_kill(&etcd, 2);
	ck_assert(WITHIN(ETCD_SOON_MS, permit_losses.count == 2));
	ck_assert_int_le(permit_losses.at_ms - began_ms, LEASE_MS + SLOW_MS);
	ck_assert(!waits[2].ended && !waits[3].ended);
	etcd_restart_dead(&etcd);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(state_of(i), LK_STATE_LOST);
		EXPECT(lk_semaphore_release(semaphores[i], holds[i]), LK_ELOST);
	}
	for (int i = 2; i < 4; i++) {
		OK(permit_wait_join(&waits[i]));
		ck_assert_uint_gt(waits[i].hold, holds[1]);
		OK(lk_semaphore_release(semaphores[i], waits[i].hold));
	}
	end();
}

TEST_LIMIT(e10_restart_of_all_nodes_costs_no_permit_and_no_place, 240)
{
	etcd_fault_set_up();
	hold_and_wait(LONG_LEASE_MS);
	for (int i = 0; i < etcd.count; i++)
		etcd_kill(&etcd, i);
	etcd_restart_dead(&etcd);
	for (int i = 0; i < 2; i++)
		ck_assert(WITHIN(ETCD_SOON_MS, state_of(i) == LK_STATE_HELD));
	ck_assert(!waits[2].ended && !waits[3].ended);
	OK(lk_semaphore_release(semaphores[1], holds[1])); /* one is too few */
	nap_ms(200);
	ck_assert(!waits[2].ended);
	OK(lk_semaphore_release(semaphores[0], holds[0]));
	serve_waiters();
	ck_assert_int_eq(permit_losses.count, 0);
	end();
}

TEST_LIMIT(e5_leader_that_moves_each_second_costs_no_permit, 240)
{
	int64_t end_ms = now_ms() + (getenv("LK_LONG") ? 60000 : 5000);
	struct rivals rivals;

	etcd_fault_set_up();
	hold_and_wait(LONG_LEASE_MS);
	rivals_start(&rivals, &noun_semaphore,
	             etcd_url_of(ETCD_ALL, false, "?command_timeout=1000"), 3000);
	for (int i = 1; now_ms() < end_ms; i++) {
		etcd_lead(i % ETCD_NODES_MAX);
		nap_ms(1000);
		ck_assert(state_of(0) != LK_STATE_LOST && state_of(1) != LK_STATE_LOST);
	}
	rivals_go_on(&rivals, ETCD_SOON_MS);
	rivals_stop(&rivals);
	ck_assert(!waits[2].ended && !waits[3].ended);
	OK(lk_semaphore_release(semaphores[0], holds[0]));
	OK(lk_semaphore_release(semaphores[1], holds[1]));
	serve_waiters();
	ck_assert_int_eq(permit_losses.count, 0);
	end();
}

TEST_LIMIT(e16_compactions_cost_no_wait_for_permits, 120)
{
	int64_t end_ms;

	etcd_fault_set_up();
	hold_and_wait(LONG_LEASE_MS);
	for (end_ms = now_ms() + 2000; now_ms() < end_ms;) {
		etcd_write(0);
		etcd_compact(0);
	}
	OK(lk_semaphore_release(semaphores[1], holds[1]));
	etcd_compact(0);
	OK(lk_semaphore_release(semaphores[0], holds[0]));
	serve_waiters();
	ck_assert_int_eq(permit_losses.count, 0);
	end();
}

/* ---- E13: killed ---------------------------------------------------------------------------- */

/* Orders: hold, quit. */
static int obey(void *arg, int in, int out)
{
	const lk_semaphore_options options = {.capacity = CAPACITY, .lease_ms = LEASE_MS};
	lk_client *client;
	lk_semaphore *semaphore;
	const char *order;
	uint64_t hold = 0;
	lk_err err;

	(void)arg;
	order = line_read(in, 60000);
	if (!order)
		return 3;
	client = etcd_client(ETCD_ALL);
	semaphore = semaphore_with(client, "s", &options);
	err = lk_semaphore_acquire(semaphore, 2, LK_FOREVER, &hold);
	line_write(out, "%s", lk_err_name(err));
	line_read(in, 60000);
	return 0;
}

TEST_LIMIT(e13_permits_and_places_of_killed_clients_go_to_the_next, 240)
{
	struct process holder = {0}, first = {0}, middle = {0};
	struct process *const all[] = {&holder, &first, &middle};
	int64_t died_ms;
	const char *line;

	etcd_fault_set_up();
	for (int i = 0; i < 3; i++)
		process_start(all[i], obey, NULL);
	open_all("s", LONG_LEASE_MS);
	ck_assert(line_write(holder.in, "hold"));
	line = line_read(holder.out, 2 * ETCD_SOON_MS);
	ck_assert(line && !strcmp(line, "LK_OK"));
	/* In the queue: the first process, a client, the other process, a client. */
	for (int i = 0; i < 2; i++) {
		ck_assert(line_write(all[i + 1]->in, "hold"));
		ck_assert(WITHIN(ETCD_SOON_MS, waiting("s") == 2 * i + 1));
		permit_wait_start(&waits[i + 2], semaphores[i + 2], 2, LK_FOREVER, true);
		ck_assert(WITHIN(ETCD_SOON_MS, waiting("s") == 2 * i + 2));
	}
	for (int i = 0; i < 3; i++)
		process_kill(all[i]);
	died_ms = now_ms();
	serve_waiters();
	ck_assert_int_le(now_ms() - died_ms, LEASE_MS + 1500 + SLOW_MS);
	end();
}
