/* SPDX-License-Identifier: MIT
 * What a test of a fault of etcd has: three nodes, a proxy in front of each, and clients of chosen
 * ones; and the scene in which the node that a client uses fails. */
#ifndef ETCD_FAULT_H
#define ETCD_FAULT_H

#include "etcd_server.h"
#include "handles.h"
#include "process.h"
#include "proxy.h"
#include "test.h"
#include "watch.h"

#define ETCD_ALL 7u        /* sets of nodes: bits */
#define ETCD_SOON_MS 20000 /* for what comes soon on a machine that is not loaded */

extern struct etcd_servers etcd;
extern struct proxy etcd_proxies[ETCD_NODES_MAX];
extern const char *etcd_login; /* of clients, "user:password@" or "" */

/* Start the nodes, and the proxies. */
void etcd_fault_set_up(void);
/* The URL of these nodes, directly or by the proxies; options as "?name=value", static memory. */
const char *etcd_url_of(unsigned nodes, bool far, const char *options);
/* A client of these nodes, directly, and one of all by the proxies, which is connected to that node
 * first.  Their command timeout is a second. */
lk_client *etcd_client(unsigned nodes);
lk_client *etcd_client_at(int node);

/* Ask the node; false if it does not answer at once, or refuses. */
struct etcd_view {
	int leader;   /* -1 = it knows none */
	int minor;    /* its version is 3.minor */
	bool is_safe; /* of a version whose leaders revoke only while they lead */
	uint64_t term;
	int64_t revision;
};
bool etcd_look(int node, struct etcd_view *view);
/* The node leads, and the others know it. */
void etcd_lead(int node);
/* The leader that those other than `not` follow, -1 = none yet. */
int etcd_leader_but(int not_this);
/* How many keys with that prefix a node has, by its own memory; -1 = it does not answer. */
int64_t etcd_keys(int node, const char *prefix);
/* The tickets of a lock. */
int64_t etcd_tickets(int node, const char *name);
/* Delete the keys with that prefix; compact the store up to its revision. */
void etcd_delete(int node, const char *prefix);
/* Remove the node from the cluster, and let it be a learner. */
void etcd_replace_by_learner(int node);
/* Revoke all leases that there are. */
void etcd_revoke_all(void);
void etcd_compact(int node);
/* Ask the node to write something, and do not wait. */
void etcd_write(int node);
/* The node grants a lease, and renews it: its time to live in seconds, -1 = it does not. */
int64_t etcd_grant(int node, int64_t ttl_s);
int64_t etcd_renew(int node, int64_t lease);
/* Nothing of a client is left. */
bool etcd_is_clear(int node);

/* An acquire in a thread of its own.  At its grant, `other`, if it is set, must not be valid. */
struct etcd_waiter {
	lk_lock *lock, *other;
	int64_t wait_ms;
	lk_err err;
	uint64_t fence;
	bool was_valid; /* other, at the grant */
	int64_t took_ms;
	atomic_bool ended;
	pthread_t thread;
};
/* A lock whose handle owns the hold; its losses are in watch.h's. */
lk_lock *etcd_lock(lk_client *client, const char *name, int64_t lease_ms);
void etcd_waiter_start(struct etcd_waiter *waiter, lk_lock *lock, int64_t wait_ms);
lk_err etcd_waiter_join(struct etcd_waiter *waiter);

/* Node 0 leads and fails, between these two.  One holder knows only this node: it must lose its
 * hold in time. Another one knows all nodes: it keeps its hold, and its waiter does not get it.
 * Then the node returns, and all goes on. */
struct etcd_scene {
	lk_client *lonely, *roaming, *rival;
	lk_lock *lost, *kept;
	struct etcd_waiter waits_for_lost, waits_for_kept;
	int64_t failed_ms;
	uint64_t fence; /* of what is lost */
};
void etcd_scene_begin(struct etcd_scene *scene);
void etcd_scene_failed(struct etcd_scene *scene);
void etcd_scene_end(struct etcd_scene *scene);

#endif
