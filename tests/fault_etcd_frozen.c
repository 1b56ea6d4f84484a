/* SPDX-License-Identifier: MIT
 * The disk of etcd's leader stands still (E1 and E2 of the fault list). */
#include "harness/disk.h"
#include "harness/etcd_fault.h"

#include <stdio.h>

#define LEASE_MS 5000
#define QUIET_MS 500 /* etcd has written what it had */

static struct disk disk;

static void put_node_on_disk(struct etcd_servers *servers)
{
	char folder[120];

	snprintf(folder, sizeof(folder), "%s/n0", servers->dir);
	disk_mount(&disk, folder);
}

/* Freeze the disk of node 0, which leads, while the store writes nothing to it: in the midst of
 * that it would not answer at all. */
static void freeze_quiet(int64_t lease)
{
	for (int tries = 0; tries < 20; tries++) {
		nap_ms(QUIET_MS);
		etcd_lead(0); /* a loaded machine changes leaders */
		disk_freeze(&disk);
		if (etcd_renew(0, lease) > 0)
			return;
		disk_thaw(&disk);
	}
	ck_abort_msg("the leader's disk is never quiet");
}

/* Node 0 stands still; the others have another leader.  Of an old version, it goes on answering
 * keep-alives.  Returns whether it is a newer one. */
static bool freeze(void)
{
	struct etcd_view view;
	int64_t lease = etcd_grant(0, 600), ttl_s;

	freeze_quiet(lease);
	etcd_write(0);
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_leader_but(0) > 0));
	ttl_s = etcd_renew(0, lease);
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_look(1, &view)));
	ck_assert_int_eq(ttl_s, view.is_safe ? -1 : 600);
	return view.is_safe;
}

TEST_LIMIT(e1_frozen_leader_that_thaws_may_revoke_a_renewed_lease, 240)
{
	lk_client *client, *rival;
	struct etcd_waiter waiter = {0};
	lk_lock *lock;
	uint64_t fence;
	bool is_safe;

	NEEDS_DISK;
	etcd.prepare = put_node_on_disk;
	etcd_fault_set_up();
	client = etcd_client(6);
	rival = etcd_client(6);
	etcd_lead(0);
	lock = hold_watched(client, "a", LEASE_MS);
	fence = hold_of(lock).fence;
	etcd_waiter_start(&waiter, lock_of_handle(rival, "a", LEASE_MS), LK_FOREVER);
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_tickets(1, "a") == 2));
	etcd_lead(0);
	is_safe = freeze();
	/* The old leader has not heard of a renewal for so long. */
	stays_held(lock, LEASE_MS + 1500);
	ck_assert_int_eq(etcd_tickets(1, "a"), 2);
	disk_thaw(&disk);
	if (is_safe) {
		stays_held(lock, 3000);
		OK(lk_lock_release(lock));
	} else {
		/* Against this, no rule of a client helps. */
		ck_assert(WITHIN(ETCD_SOON_MS, losses.count == 1));
		EXPECT(lk_lock_release(lock), LK_ELOST);
	}
	OK(etcd_waiter_join(&waiter));
	ck_assert_uint_gt(waiter.fence, fence);
	OK(lk_lock_release(waiter.lock));
	OK(lk_client_close(client));
	OK(lk_client_close(rival));
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_is_clear(1)));
	etcd_stop(&etcd);
}

TEST_LIMIT(e2_frozen_leader_renews_nothing_that_counts, 240)
{
	struct etcd_scene scene;

	NEEDS_DISK;
	etcd.prepare = put_node_on_disk;
	etcd_fault_set_up();
	etcd_scene_begin(&scene);
	freeze();
	etcd_scene_failed(&scene);
	disk_thaw(&disk);
	etcd_scene_end(&scene);
}
