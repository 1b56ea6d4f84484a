/* SPDX-License-Identifier: MIT
 * A Cluster: three masters with a replica each.  Each name of the run has a slot, whose keys are in
 * a store of their own; the slot's master decides whether a request may run there.  A node's own
 * store has the marker of its memory. */
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include "core/core.h"
#include "lua_store.h"
#include "sim_plan.h"

#define SIM_SHARDS 3
#define SIM_SLOT_KEYS 5 /* of a name: main, queue, holds, memory, fence */

struct sim;
struct sim_call;
struct sim_client;
struct sim_item;
struct sim_link;

struct sim_slot {
	struct lua_store *store;
	unsigned number;
	int shard;
	int target;                 /* it moves to that shard, -1 = it does not */
	uint32_t moved;             /* keys that are at the target already, by bit */
	int64_t next_ns;            /* when the next key moves, or the slot; LK__NEVER */
	int64_t gap_ns, end_ns;     /* between two keys; when the slot moves at the earliest */
	bool returns;               /* in the end it stays where it was */
	int before;                 /* the node that had it, as nodes believe that */
	int64_t told_ns[SIM_NODES]; /* ... and do not know better before then */
};

struct sim_node {
	struct lua_store *memory;
	int64_t since_us, marked_ns; /* of its marker */
	int64_t down_ns, stopped_ns; /* until then */
};

struct sim_shard {
	int master;
	int64_t up_ns; /* when its replica is promoted, LK__NEVER */
};

struct sim_cluster {
	struct sim_slot slots[SIM_NAMES];
	struct sim_node nodes[SIM_NODES];
	struct sim_shard shards[SIM_SHARDS];
	struct sim_random random;
	int runs_at; /* the node of the script that runs */
	int name;    /* the selected one */
	char key[96];
};

/* sim_cluster.c: the nodes */
void sim_cluster_init(struct sim *sim);
void sim_cluster_fini(struct sim *sim);
void sim_cluster_set_time(struct sim *sim);
void sim_cluster_load(struct sim *sim, bool forget);
/* sim->store is that of the name from now on, and the grace that of its master. */
void sim_cluster_select(struct sim *sim, int name);
/* The store with the marker of the node where the script runs; without a Cluster, that of all. */
struct lua_store *sim_memory(const struct sim *sim);
/* sim_server_in_grace() for the script that runs: while a slot moves, also at its new node. */
bool sim_script_in_grace(const struct sim *sim);
void sim_cluster_mark(struct sim *sim);
/* Its master runs, and has all its keys. */
bool sim_cluster_is_usable(const struct sim *sim, int name);
int sim_cluster_owner(const struct sim *sim, int name);
void sim_cluster_run(struct sim *sim, struct sim_call *call);
/* SSUBSCRIBE of a topic at that link's node: it confirms, or names the owner. */
void sim_cluster_order(struct sim *sim, struct sim_link *link, struct sim_item *item);
void sim_cluster_hurt(struct sim *sim, const struct sim_fault *fault, struct sim_random *random);
int64_t sim_cluster_due(const struct sim *sim);
void sim_cluster_happen(struct sim *sim);
void sim_cluster_heal(struct sim *sim);
struct lk__topology *sim_cluster_topology(const struct sim *sim, int node);
/* sim_server.c: of one name */
void sim_server_restore_name(struct sim *sim, int image, int name);

/* sim_nodes.c: a client's part, that of src/runtime/cluster.c */
void sim_nodes_start(struct sim_client *client);
void sim_nodes_open(struct sim_client *client, struct lk__name *name);
void sim_nodes_probe(struct sim_client *client);
void sim_nodes_adopt(struct sim_client *client);
void sim_nodes_refresh(struct sim_client *client);
/* pending: NULL for a subscription. */
void sim_nodes_redirect(struct sim_client *client, struct lk__pending *pending, bool is_asked,
                        const char *text);
bool sim_nodes_are_fine(const struct sim_client *client, int64_t since_ns);
/* A link for a fault to break. */
void sim_nodes_pick(struct sim_client *client, uint64_t chance);

#endif
