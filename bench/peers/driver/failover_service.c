/* SPDX-License-Identifier: MIT
 * What loses its master: a service of Sentinel, or a Cluster, whose first master has the names of
 * the run. */
#include "failover.h"

#include "harness/cluster_setup.h"
#include "harness/sentinel_setup.h"

#include <stdio.h>

#define NODE_TIMEOUT_MS 2000

/* ---- Sentinel ------------------------------------------------------------------------------ */

static struct sentinel_setup sentinel;

static const char *sentinel_start(void)
{
	static char ports[64];

	sentinel_setup_start(&sentinel, NULL);
	snprintf(ports, sizeof(ports), "%d,%d,%d", sentinel.sentinels[0].port,
	         sentinel.sentinels[1].port, sentinel.sentinels[2].port);
	return ports;
}

static void sentinel_prepare(enum blow blow)
{
	if (blow == BLOW_LAG)
		sentinel_setup_cut_replicas(&sentinel, 0);
}

static void sentinel_strike(enum blow blow)
{
	if (blow == BLOW_PLANNED)
		sentinel_setup_failover(&sentinel);
	else
		server_kill(&sentinel.servers[0]);
	for (int i = 1; blow == BLOW_LAG && i < SETUP_SERVERS; i++)
		server_resume(&sentinel.servers[i]);
}

static void sentinel_stop(void)
{
	sentinel_setup_stop(&sentinel);
}

const struct service service_sentinel = {
	.work = "failover",
	.blows = {BLOW_KILL, BLOW_LAG, BLOW_PLANNED},
	.blow_count = 3,
	.planned = "SENTINEL FAILOVER",
	.start = sentinel_start,
	.prepare = sentinel_prepare,
	.strike = sentinel_strike,
	.stop = sentinel_stop,
	.master = &sentinel.servers[0],
};

/* ---- Cluster ------------------------------------------------------------------------------- */

static struct cluster_setup cluster;

static const char *cluster_start(void)
{
	const struct cluster_setup_options options = {.node_timeout_ms = NODE_TIMEOUT_MS};
	static char ports[64];

	cluster_setup_start(&cluster, &options);
	snprintf(ports, sizeof(ports), "%d,%d,%d", cluster_setup_port(&cluster, 0),
	         cluster_setup_port(&cluster, 1), cluster_setup_port(&cluster, 2));
	return ports;
}

static void cluster_prepare(enum blow blow)
{
	(void)blow;
}

static void cluster_strike(enum blow blow)
{
	if (blow == BLOW_PLANNED)
		cluster_setup_failover(&cluster, 0, "");
	else if (blow == BLOW_KILL)
		cluster_setup_kill(&cluster, 0);
}

static void cluster_stop(void)
{
	cluster_setup_stop(&cluster);
}

const struct service service_cluster = {
	.work = "cluster",
	.blows = {BLOW_NONE, BLOW_KILL, BLOW_PLANNED},
	.blow_count = 3,
	.planned = "CLUSTER FAILOVER",
	.start = cluster_start,
	.prepare = cluster_prepare,
	.strike = cluster_strike,
	.stop = cluster_stop,
	.master = &cluster.nodes[0],
};
