/* SPDX-License-Identifier: MIT
 * The leader of etcd fails, or another node becomes it (E3 to E6 of the fault list). */
#include "harness/etcd_fault.h"
#include "harness/own_network.h"
#include "harness/rights.h"
#include "harness/rivals.h"

#include <signal.h>
#include <stdlib.h>

#define GROUP 61000 /* of node 0's process */

static struct etcd_scene scene;

TEST_LIMIT(e3_stopped_leader_that_goes_on_revives_nothing, 240)
{
	etcd_fault_set_up();
	etcd_scene_begin(&scene);
	etcd_pause(&etcd, 0);
	etcd_scene_failed(&scene);
	ck_assert(!kill(etcd.nodes[0].pid, SIGCONT));
	etcd_scene_end(&scene);
}

TEST_LIMIT(e4_killed_leader_costs_only_its_own_clients, 240)
{
	etcd_fault_set_up();
	etcd_scene_begin(&scene);
	etcd_kill(&etcd, 0);
	etcd_scene_failed(&scene);
	etcd_restart(&etcd, 0);
	etcd_scene_end(&scene);
}

TEST_LIMIT(e5_leader_that_moves_each_second_costs_no_hold, 240)
{
	int64_t end_ms = now_ms() + (getenv("LK_LONG") ? 60000 : 6000);
	struct rivals rivals;
	lk_client *client;
	lk_lock *lock;

	etcd_fault_set_up();
	client = etcd_client(ETCD_ALL);
	lock = hold_watched(client, "a", 6000);
	rivals_start(&rivals, &noun_lock, etcd_url_of(ETCD_ALL, false, "?command_timeout=1000"),
	             3000);
	for (int i = 1; now_ms() < end_ms; i++) {
		etcd_lead(i % ETCD_NODES_MAX);
		stays_held(lock, 1000);
	}
	rivals_go_on(&rivals, ETCD_SOON_MS);
	rivals_stop(&rivals);
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_is_clear(0)));
	etcd_stop(&etcd);
}

/* Mark the connections of node 0 to the others, and theirs to it. */
static void mark_peers(struct etcd_servers *servers)
{
	const struct etcd_node *nodes = servers->nodes;

	ck_assert_msg(
		!shell("nft 'add table inet faults; add chain inet faults out "
	               "{ type filter hook output priority 0; }; "
	               "add rule inet faults out meta skgid %d tcp dport { %d, %d } ct mark set 1; "
	               "add rule inet faults out tcp dport %d ct mark set 1'",
	               GROUP, nodes[1].peer_port, nodes[2].peer_port, nodes[0].peer_port),
		"nft does not work: install nftables");
}

TEST_LIMIT(e6_leader_without_peers_renews_nothing, 240)
{
	NEEDS_ROOT;
	NEEDS_PACKETS;
	own_network_enter();
	etcd.prepare = mark_peers;
	etcd.first_group = GROUP;
	etcd_fault_set_up();
	etcd_scene_begin(&scene);
	ck_assert(!shell("nft add rule inet faults out ct mark 1 counter drop"));
	etcd_scene_failed(&scene);
	ck_assert(!shell("nft list table inet faults | grep -q 'counter packets [1-9]'"));
	ck_assert(!shell("nft delete table inet faults"));
	etcd_scene_end(&scene);
}
