/* SPDX-License-Identifier: MIT
 * Faults of a Cluster: slots of names that move, at once or slowly, or nearly; planned failovers
 * and those that a replica decides alone; masters killed, restarted and stopped. */
#include "chaos/nemesis.h"

#include "harness/cluster_slots.h"
#include "harness/process.h"
#include "harness/redis.h"

#include <string.h>

#define LAG_MIN_MS 300
#define LAG_MAX_MS CHAOS_LEASE_MAX_MS /* what the replica knows has expired by then */
#define KEYS_MAX 6                    /* of a name, and a few more */

static int slot_of(const struct round *round, int name)
{
	char key[40];

	snprintf(key, sizeof(key), "{%s}", chaos_names[name].name);
	return cluster_slot_of(&round->cluster, key);
}

/* Any master, -1 if it is not known. */
static int choose_master(struct round *round)
{
	int node = (int)chaos_between(&round->dice, 0, CLUSTER_MASTERS - 1);

	if (!cluster_setup_is_master(&round->cluster, node))
		node = cluster_setup_other(node);
	return cluster_setup_is_master(&round->cluster, node) ? node : -1;
}

/* A failover may have happened after the end of the fault that caused it. */
bool nemesis_cluster_ready(struct round *round, struct nemesis_fault *fault)
{
	bool is_slot = fault->kind == NEMESIS_SLOT_MOVE || fault->kind == NEMESIS_SLOT_MIGRATE;

	fault->node = choose_master(round);
	fault->target = fault->node;
	if (is_slot)
		fault->target = (int)chaos_between(&round->dice, 0, CHAOS_NAMES - 1);
	return fault->node >= 0 &&
	       (!is_slot ||
	        cluster_setup_owner(&round->cluster, slot_of(round, fault->target)) != fault->node);
}

void nemesis_cluster_settle(struct round *round)
{
	cluster_setup_await_ok(&round->cluster);
	cluster_setup_await_sync(&round->cluster);
	round->grace_over_ns =
		round->lost ? history_now_ns() + (chaos_pause_ms(round->options) + 1000) * CHAOS_MS
			    : 0;
}

/* By itself, in half of the cases of a dead master whose last commands never reached it. */
static void take_over(struct round *round, int master)
{
	struct cluster_setup *cluster = &round->cluster;
	int replica = cluster_setup_other(master);
	int64_t lag_ms = chaos_between(&round->dice, LAG_MIN_MS, LAG_MAX_MS);
	struct redis *redis;

	if (!round->options->without_grace && chaos_once_in(&round->dice, 2)) {
		cluster_setup_failover(cluster, master, "TAKEOVER");
		return;
	}
	cluster_setup_pause(cluster, replica);
	redis = redis_open(&cluster->nodes[master]);
	redis_text(redis, "CLIENT KILL TYPE replica");
	redis_close(redis);
	nap_ms(lag_ms);
	round_note(round, "the replica lags by ms", lag_ms);
	cluster_setup_kill(cluster, master);
	cluster_setup_resume(cluster, replica);
	cluster_setup_failover(cluster, master, "TAKEOVER");
	cluster_setup_restart(cluster, master);
}

bool nemesis_cluster_begin(struct round *round, struct nemesis_fault *fault)
{
	struct cluster_setup *cluster = &round->cluster;
	int slot;

	switch (fault->kind) {
	case NEMESIS_SLOT_MOVE:
		cluster_slot_move(cluster, slot_of(round, fault->target), fault->node);
		return true;
	case NEMESIS_SLOT_MIGRATE:
		slot = slot_of(round, fault->target);
		cluster_slot_open(cluster, slot, fault->node);
		cluster_slot_move_keys(cluster, slot, fault->node,
		                       (int)chaos_between(&round->dice, 0, KEYS_MAX));
		return true;
	case NEMESIS_NODE_FAILOVER:
		cluster_setup_failover(cluster, fault->target, "");
		break;
	case NEMESIS_NODE_TAKEOVER:
		take_over(round, fault->target);
		break;
	case NEMESIS_NODE_RESTART:
		cluster_setup_kill(cluster, fault->target);
		cluster_setup_restart(cluster, fault->target);
		break;
	case NEMESIS_NODE_KILL:
		cluster_setup_kill(cluster, fault->target);
		return true;
	case NEMESIS_NODE_STOP:
		cluster_setup_pause(cluster, fault->target);
		return true;
	default:
		return false;
	}
	nemesis_cluster_settle(round);
	return true;
}

/* Only the replica has the memory of a killed master. */
void nemesis_cluster_end(struct round *round, struct nemesis_fault *fault)
{
	struct cluster_setup *cluster = &round->cluster;
	int slot;

	switch (fault->kind) {
	case NEMESIS_SLOT_MIGRATE:
		slot = slot_of(round, fault->target);
		if (chaos_once_in(&round->dice, 2)) {
			cluster_slot_undo(cluster, slot, fault->node);
			return;
		}
		cluster_slot_move_keys(cluster, slot, fault->node, CLUSTER_ALL_KEYS);
		cluster_slot_close(cluster, slot, fault->node);
		return;
	case NEMESIS_NODE_KILL:
		cluster_setup_await_promotion(cluster, fault->target);
		cluster_setup_restart(cluster, fault->target);
		break;
	case NEMESIS_NODE_STOP:
		cluster_setup_resume(cluster, fault->target);
		break;
	default:
		return;
	}
	nemesis_cluster_settle(round);
}

/* True if the node has a marker now, of a memory that is old enough. */
static bool end_grace_at(const struct round *round, int node)
{
	struct redis *redis = redis_open(&round->cluster.nodes[node]);
	char keys[1000], id[100];
	long long since_us;
	bool done = false;

	/* The marker, and a copy in another slot. */
	snprintf(keys, sizeof(keys), "%s", redis_text(redis, "KEYS lk:epoch:*"));
	for (char *key = keys, *end; *key; key = end) {
		char marker[150];
		end = key + strcspn(key, "\n");
		if (*end)
			*end++ = '\0';
		if (sscanf(redis_text(redis, "GET %s", key), "1 %99s %lld", id, &since_us) != 2)
			continue;
		snprintf(marker, sizeof(marker), "1 %s %lld", id,
		         since_us - (long long)round->options->grace_ms * 1000);
		done = !strcmp(redis_text(redis, "SET %s %s", key, marker), "OK");
	}
	redis_close(redis);
	return done;
}

bool nemesis_cluster_grace_end(struct round *round)
{
	for (int i = 0; i < CLUSTER_MASTERS; i++)
		if (!end_grace_at(round, i))
			return false;
	return true;
}
