/* SPDX-License-Identifier: MIT
 * Faults of a cluster of etcd with three members: the leader, or any member, is killed and started
 * again, or stopped and goes on; another member is elected.  A fault ends when each member has a
 * leader again, and clients have had the time to find it.
 *
 * A leader before 3.4.31 and 3.5.13 that is stopped, replaced, and goes on, revokes leases that
 * were renewed meanwhile.  No rule of a client helps, so such a leader is not stopped. */
#include "chaos/nemesis.h"

#include "built_with.h"
#include "harness/process.h"

#if LK__ETCD
#include "harness/etcd_fault.h"

#include <signal.h>

#define SETTLE_MS 3000 /* elections, dials, and leases that began anew */

bool nemesis_etcd_start(struct round *round)
{
	etcd_start(&etcd, ETCD_NODES_MAX);
	snprintf(round->url, sizeof(round->url), "%s", etcd_url_of(ETCD_ALL, false, ""));
	return true;
}

void nemesis_etcd_stop(struct round *round)
{
	for (int i = 0; i < etcd.count && round->result->bad; i++)
		shell("cp %s/n%d.log %s/ 2>/dev/null", etcd.dir, i, round->folder);
	etcd_stop(&etcd);
}

static void settle(void)
{
	for (int i = 0; i < etcd.count; i++)
		ck_assert(WITHIN(ETCD_SOON_MS, etcd_is_healthy(&etcd, i)));
	nap_ms(SETTLE_MS);
}

bool nemesis_etcd_begin(struct round *round, struct nemesis_fault *fault)
{
	int leader = etcd_leader_but(-1);
	struct etcd_view view;

	if (leader < 0)
		return false;
	fault->node = chaos_once_in(&round->dice, 3)
	                      ? (int)chaos_between(&round->dice, 0, etcd.count - 1)
	                      : leader;
	if (fault->kind == NEMESIS_ETCD_STOP && fault->node == leader &&
	    !(etcd_look(leader, &view) && view.is_safe))
		fault->node = (leader + 1) % etcd.count;
	if (fault->kind == NEMESIS_ETCD_KILL) {
		etcd_kill(&etcd, fault->node);
	} else if (fault->kind == NEMESIS_ETCD_STOP) {
		etcd_pause(&etcd, fault->node);
	} else if (fault->kind == NEMESIS_ETCD_MAJORITY) {
		etcd_kill(&etcd, leader);
		etcd_kill(&etcd, (leader + 1) % etcd.count);
	} else {
		etcd_lead((leader + 1) % etcd.count);
		settle();
	}
	return true;
}

void nemesis_etcd_end(struct round *round, struct nemesis_fault *fault)
{
	(void)round;
	if (fault->kind == NEMESIS_ETCD_STOP)
		kill(etcd.nodes[fault->node].pid, SIGCONT);
	else
		etcd_restart_dead(&etcd);
	settle();
}

void nemesis_etcd_plant(struct round *round)
{
	int leader = etcd_leader_but(-1);

	const char *prefix = round->options->loses_steps ? "lk/D/" : "lk/L/";

	if (leader >= 0 && chaos_once_in(&round->dice, 2) && etcd_keys(leader, prefix) > 0)
		etcd_delete(leader, prefix);
}

bool nemesis_etcd_is_clear(void)
{
	return etcd_keys(0, "lk/L/") == 0;
}
#else
bool nemesis_etcd_start(struct round *round)
{
	round_complain(round, "built without etcd");
	return false;
}

void nemesis_etcd_stop(struct round *round)
{
	(void)round;
}

bool nemesis_etcd_begin(struct round *round, struct nemesis_fault *fault)
{
	(void)round;
	(void)fault;
	return false;
}

void nemesis_etcd_end(struct round *round, struct nemesis_fault *fault)
{
	(void)round;
	(void)fault;
}

void nemesis_etcd_plant(struct round *round)
{
	(void)round;
}

bool nemesis_etcd_is_clear(void)
{
	return true;
}
#endif
