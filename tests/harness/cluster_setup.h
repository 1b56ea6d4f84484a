/* SPDX-License-Identifier: MIT
 * A real Cluster: three masters with a replica each, ready in 2 to 3 s, and ended with the process
 * that started it, however that ends.  A program shares one among its tests, or a test starts its
 * own. */
#ifndef CLUSTER_SETUP_H
#define CLUSTER_SETUP_H

#include "process.h"
#include "server.h"

#include <stdbool.h>
#include <stdint.h>

#define CLUSTER_MASTERS 3
#define CLUSTER_NODES                                                                              \
	6 /* the first layout: nodes 0 to 2 are masters, node n + 3 is n's replica                 \
	   */
#define CLUSTER_SLOTS 16384
#define CLUSTER_TIMEOUT_MS 1000
#define CLUSTER_SETTLED_MS 20000 /* far more than a failover takes */

struct cluster_setup {
	struct test_server nodes[CLUSTER_NODES]; /* redis_open() works, server_kill() does not */
	char ids[CLUSTER_NODES][41];
	char url[160]; /* redis+cluster://127.0.0.1:p1,127.0.0.1:p2,127.0.0.1:p3 */
	int node_timeout_ms;
	bool tls, elections;
	bool paused[CLUSTER_NODES];
	int64_t elected_ms[CLUSTER_NODES]; /* when the node won its last election, 0 = never */
	bool promoted[CLUSTER_NODES];      /* elected_ms includes its last promotion */
	char timeout_text[16];
	const char *args[SERVER_ARGS_MAX]; /* of each node */
	pid_t parent;                      /* of the nodes */
	struct process servant;            /* the same with its pipes, if the Cluster is shared */
	int orders;                        /* sent to the servant so far */
};

struct cluster_setup_options {
	int node_timeout_ms; /* 0 = CLUSTER_TIMEOUT_MS */
	/* TLS between nodes, and in the URL; args name the certificate: --tls-cert-file, ... */
	bool tls;
	/* A replica may replace its master at any time.  Else it may only after
	 * cluster_setup_kill() or cluster_setup_pause() of its master, so that a busy machine
	 * causes no failover. */
	bool elections;
	const char *const *args; /* of each node, NULL-ended; NULL = none */
};

/* Start all, and wait until each node knows all others and each replica is in sync; options may be
 * NULL.  Fails the test on an error. */
void cluster_setup_start(struct cluster_setup *setup, const struct cluster_setup_options *options);
void cluster_setup_stop(struct cluster_setup *setup);

/* Let the program start a Cluster before its first test, and end it with the program; called before
 * main().  A process of its own is the parent of the nodes. */
void cluster_setup_share(const struct cluster_setup_options *options);
#define CLUSTER_SETUP_SHARED(options)                                                              \
	__attribute__((constructor)) static void share_cluster(void)                               \
	{                                                                                          \
		cluster_setup_share(options);                                                      \
	}
/* The Cluster of this program, after cluster_setup_reset(). */
struct cluster_setup *cluster_setup_shared(void);
/* Return to the first layout: all nodes run, all slots are back, no keys, no scripts, counters of
 * requests 0.  Cheap if little has changed.  Users and settings stay. */
void cluster_setup_reset(struct cluster_setup *setup);

/* ---- Nodes ----------------------------------------------------------------------------------- */

/* SIGKILL.  The replica of a killed or paused master may be elected, and a vote for a replica that
 * was elected in the last 4 node timeouts would not count: then this waits first. */
void cluster_setup_kill(struct cluster_setup *setup, int node);
/* As it was: with its id, port and arguments, without its keys; also while it runs. */
void cluster_setup_restart(struct cluster_setup *setup, int node);
void cluster_setup_pause(struct cluster_setup *setup, int node);
void cluster_setup_resume(struct cluster_setup *setup, int node);
/* Run this command at each node that runs; an error fails the test. */
void cluster_setup_each(const struct cluster_setup *setup, const char *command);
/* It is neither killed nor paused. */
bool cluster_setup_runs(const struct cluster_setup *setup, int node);
/* The other node of this node's shard. */
int cluster_setup_other(int node);
/* The port that clients and nodes use. */
int cluster_setup_port(const struct cluster_setup *setup, int node);
/* The number of scripts that clients have sent to this node, without those that it redirected. */
long long cluster_setup_requests(const struct cluster_setup *setup, int node);

/* ---- What nodes believe ---------------------------------------------------------------------- */

struct cluster_view {
	bool ok;                          /* it serves requests */
	int known;                        /* nodes of this Cluster */
	bool failed[CLUSTER_NODES];       /* FAIL or PFAIL */
	int master_of[CLUSTER_NODES];     /* -1 = it is a master */
	signed char owner[CLUSTER_SLOTS]; /* -1 = none */
	int open_slot;                    /* the first that this node migrates or imports, or -1 */
};

/* What this node believes, which must run. */
void cluster_setup_view(const struct cluster_setup *setup, int node, struct cluster_view *view);
/* The index of the master that owns the slot, if all nodes that run agree; else -1. */
int cluster_setup_owner(const struct cluster_setup *setup, int slot);
bool cluster_setup_is_master(const struct cluster_setup *setup, int node);
/* Wait until all nodes that run serve requests and agree on masters and slots. */
void cluster_setup_await_ok(const struct cluster_setup *setup);
/* Wait until each replica that runs has all that its master has executed. */
void cluster_setup_await_sync(const struct cluster_setup *setup);

/* ---- Failovers ------------------------------------------------------------------------------- */

/* Let the replica replace this master; how: "" (coordinated), "FORCE" (elected) or "TAKEOVER" (by
 * itself).  Wait until all agree.  Returns the new master. */
int cluster_setup_failover(struct cluster_setup *setup, int master, const char *how);
/* After cluster_setup_kill() or cluster_setup_pause(): wait until the replica has replaced this
 * master, and all that run agree.  Returns the new master. */
int cluster_setup_await_promotion(struct cluster_setup *setup, int master);

#endif
