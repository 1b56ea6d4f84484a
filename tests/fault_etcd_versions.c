/* SPDX-License-Identifier: MIT
 * Nodes of etcd of two versions (E27 of the fault list): a cluster is upgraded node by node while
 * locks are held, awaited and contended for.
 *
 *   LATCHKEY_ETCD_BEFORE  the folder of the earlier etcd, as `make test-etcd` sets it; without it
 *                         the nodes have one version, and are restarted one after the other
 */
#include "harness/etcd_fault.h"
#include "harness/rivals.h"

#include <stdlib.h>

#define LEASE_MS 9000

static lk_client *client, *rival;
static lk_lock *lock;
static struct etcd_waiter waiter;
static struct rivals rivals;

static int64_t end_of_hold(void)
{
	return now_ms() + hold_of(lock).remaining_ms;
}

/* The hold is renewed by the nodes as they are now, and the others make progress. */
static void all_goes_on(void)
{
	const int64_t end_ms = end_of_hold() + 1000; /* a renewal adds a third of the lease */

	rivals_go_on(&rivals, ETCD_SOON_MS);
	ck_assert(WITHIN(ETCD_SOON_MS, end_of_hold() > end_ms));
	ck_assert(lk_lock_is_mine(lock));
	ck_assert(!waiter.ended);
	ck_assert_int_eq(losses.count, 0);
}

static int minor_of(int node)
{
	struct etcd_view view;

	ck_assert(WITHIN(ETCD_SOON_MS, etcd_look(node, &view)));
	return view.minor;
}

static void replace(int node)
{
	etcd_kill(&etcd, node);
	etcd.nodes[node].folder = NULL;
	etcd_restart_dead(&etcd);
	all_goes_on();
}

TEST_LIMIT(e27_rolling_upgrade_costs_no_hold_and_no_place, 240)
{
	const char *before = getenv("LATCHKEY_ETCD_BEFORE");
	uint64_t fence;

	for (int i = 0; i < ETCD_NODES_MAX; i++)
		etcd.nodes[i].folder = before && *before ? before : NULL;
	etcd_fault_set_up();
	etcd_lead(0);
	client = etcd_client(ETCD_ALL);
	rival = etcd_client(ETCD_ALL);
	lock = etcd_lock(client, "a", LEASE_MS);
	OK(lk_lock_acquire(lock, ETCD_SOON_MS, &fence));
	waiter.other = lock;
	etcd_waiter_start(&waiter, etcd_lock(rival, "a", LEASE_MS), LK_FOREVER);
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_tickets(0, "a") == 2));
	rivals_start(&rivals, &noun_lock, etcd_url_of(ETCD_ALL, false, "?command_timeout=1000"),
	             3000);
	all_goes_on();
	replace(1); /* an old one leads */
	if (before && *before)
		ck_assert_int_ne(minor_of(0), minor_of(1));
	etcd_lead(1); /* and a new one */
	all_goes_on();
	replace(0);
	replace(2);
	ck_assert_int_eq(minor_of(0), minor_of(2));
	rivals_stop(&rivals);
	OK(lk_lock_release(lock));
	OK(etcd_waiter_join(&waiter));
	ck_assert_uint_gt(waiter.fence, fence);
	OK(lk_lock_release(waiter.lock));
	ck_assert_int_eq(losses.count, 0);
	OK(lk_client_close(client));
	OK(lk_client_close(rival));
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_is_clear(0)));
	etcd_stop(&etcd);
}
