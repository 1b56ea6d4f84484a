/* SPDX-License-Identifier: MIT
 * What tests of the faults of a Cluster have: the shared Cluster, `redis` as a look at all its
 * nodes, clients with a grace, claims whose slots move, and counts of the answers that show that
 * the fault did happen. */
#ifndef CLUSTER_FAULT_H
#define CLUSTER_FAULT_H

#include "cluster_setup.h"
#include "cluster_slots.h"
#include "primitive.h"
#include "rivals.h"

extern struct cluster_setup *cluster;
extern char cluster_url[240]; /* with this grace */
extern int cluster_grace_ms;  /* 4 s; may be set before the set-up */

/* Set all of that up: the Cluster in its first layout, whose memories' graces have passed; gather
 * the slots of what claims and rivals use at this master, -1 = leave them. */
void cluster_fault_set_up(int master);
/* A connection that finds a key at whatever node has it, also in a slot that migrates; it answers
 * PUBSUB NUMSUB for a latch's channel.  Of one thread. */
struct redis *cluster_look(void);
/* Let the grace of each master's memory have passed.  It dials them. */
void cluster_pass_grace(void);
/* How long the grace of this master's memory lasts; at most 0 = it has passed, or has not begun. */
int64_t cluster_grace_left_ms(int master);

/* The slot of a name. */
int cluster_slot_of_name(const char *name);
/* How often that node has answered with this error: "MOVED", "ASK". */
long long cluster_errors_at(int node, const char *error);
/* The same of all nodes that run. */
long long cluster_errors(const char *error);
/* The connections of this library's clients to that node. */
long long cluster_clients_at(int node);
/* The subscriptions at that node to inboxes, or to the channel, of this name. */
long long cluster_subscriptions_at(int node, const char *name);

/* Slots that move together, of the names of claims: where they were, and where they go. */
struct cluster_move {
	unsigned set;
	int slot[PRIMITIVES], from[PRIMITIVES], to[PRIMITIVES];
};

/* Let each slot of these primitives migrate to the next master. */
void cluster_move_open(struct cluster_move *move, unsigned set);
/* Move the keys that a hold of each primitive has; all keys. */
void cluster_move_holds(const struct cluster_move *move);
void cluster_move_keys(const struct cluster_move *move);
/* Move the keys that are left; all slots have new owners. */
void cluster_move_close(const struct cluster_move *move);
/* How often the owners before the move, those after it, have answered with that error. */
long long cluster_move_errors(const struct cluster_move *move, const char *error, bool before);

#endif
