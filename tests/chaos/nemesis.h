/* SPDX-License-Identifier: MIT
 * One round of chaos: its processes and their faults.  The process that runs a round is the parent
 * of all others in it, so that it ends each by its id and collects its status. */
#ifndef NEMESIS_H
#define NEMESIS_H

#include "chaos/chaos.h"

#include "harness/cluster_setup.h"
#include "harness/proxy.h"
#include "harness/sentinel_setup.h"
#include "harness/server.h"

/* Kind of a fault, its precondition, its duration (ms; 0, 0 = an event). */
#define NEMESIS_KINDS(X)                                                                           \
	X(WORKER_KILL, "kill", 0, 0, 0)                                                            \
	X(WORKER_STOP, "stop", 0, 100, 6000)                                                       \
	X(SERVER_STOP, "server-stop", 0, 100, 2500)                                                \
	X(RESTART, "restart", NEEDS_KEEPS, 0, 0)                                                   \
	X(SCRIPT_FLUSH, "script-flush", 0, 0, 0)                                                   \
	X(CLIENT_PAUSE, "client-pause", 0, 100, 2000)                                              \
	X(KILL_MESSAGES, "client-kill-pubsub", 0, 0, 0)                                            \
	X(KILL_COMMANDS, "client-kill-normal", 0, 0, 0)                                            \
	X(OUT_OF_MEMORY, "out-of-memory", 0, 300, 1500)                                            \
	X(BUSY_SCRIPT, "busy-script", 0, 1000, 1000)                                               \
	X(DELAY, "delay", 0, 500, 2500)                                                            \
	X(JITTER, "jitter", 0, 500, 2500)                                                          \
	X(SLICE, "slice", 0, 500, 2500)                                                            \
	X(STALL, "stall", 0, 200, 2500)                                                            \
	X(DROP, "drop", 0, 200, 2500)                                                              \
	X(CUT, "cut", 0, 0, 0)                                                                     \
	X(CUT_AT_BYTE, "cut-at-byte", 0, 300, 1000)                                                \
	X(REFUSE, "refuse", 0, 300, 2000)                                                          \
	X(BLACK_HOLE, "black-hole", 0, 300, 2000)                                                  \
	X(PACKETS_UP, "packets-to-server", NEEDS_NAMESPACE, 200, 2500)                             \
	X(PACKETS_DOWN, "packets-to-client", NEEDS_NAMESPACE, 200, 2500)                           \
	X(PACKETS_RESET, "packets-reset", NEEDS_NAMESPACE, 200, 1500)                              \
	X(FLUSH_ALL, "flushall", NEEDS_LOSES, 0, 0)                                                \
	X(DELETE, "delete", NEEDS_LOSES | NEEDS_DELETES, 0, 0)                                     \
	X(SAVE, "save", NEEDS_LOSES, 0, 0)                                                         \
	X(RESTART_EMPTY, "restart-empty", NEEDS_LOSES, 0, 0)                                       \
	X(RESTART_OLD, "restart-old", NEEDS_LOSES, 0, 0)                                           \
	X(CLOCK, "clock", NEEDS_LOSES | NEEDS_CLOCK, 0, 0)                                         \
	X(FAILOVER, "restart-failover", NEEDS_SENTINEL, 1000, 1000)                                \
	X(MASTER_KILL, "restart-master-kill", NEEDS_SENTINEL, 1500, 3000)                          \
	X(MASTER_STOP, "restart-master-stop", NEEDS_SENTINEL, 300, 9000)                           \
	X(REPLICA_KILL, "replica-kill", NEEDS_SENTINEL, 300, 2000)                                 \
	X(REPLICA_STOP, "replica-stop", NEEDS_SENTINEL, 300, 3000)                                 \
	X(SENTINEL_KILL, "sentinel-kill", NEEDS_SENTINEL, 300, 4000)                               \
	X(SENTINEL_STOP, "sentinel-stop", NEEDS_SENTINEL, 300, 4000)                               \
	X(SLOT_MOVE, "slot-move", NEEDS_CLUSTER, 0, 0)                                             \
	X(SLOT_MIGRATE, "slot-migrate", NEEDS_CLUSTER, 200, 4000)                                  \
	X(NODE_FAILOVER, "restart-failover", NEEDS_CLUSTER, 0, 0)                                  \
	X(NODE_TAKEOVER, "restart-takeover", NEEDS_CLUSTER, 0, 0)                                  \
	X(NODE_RESTART, "restart-node", NEEDS_CLUSTER, 0, 0)                                       \
	X(NODE_KILL, "restart-node-kill", NEEDS_CLUSTER, 500, 3000)                                \
	X(NODE_STOP, "restart-node-stop", NEEDS_CLUSTER, 300, 9000)                                \
	X(MEMBER_KILL, "restart-member", NEEDS_QUORUM, 100, 2500)                                  \
	X(MEMBER_FLUSH, "member-flush", NEEDS_QUORUM, 0, 0)                                        \
	X(MEMBER_STOP, "member-stop", NEEDS_QUORUM, 100, 5000)                                     \
	X(MEMBER_CUT, "member-cut", NEEDS_QUORUM, 100, 5000)                                       \
	X(MEMBER_CLOCK, "member-clock", NEEDS_QUORUM | NEEDS_CLOCK, 0, 0)                          \
	X(MAJORITY_KILL, "restart-majority", NEEDS_QUORUM, 100, 1500)                              \
	X(MAJORITY_STOP, "majority-stop", NEEDS_QUORUM, 200, 5000)                                 \
	X(MAJORITY_CUT, "majority-cut", NEEDS_QUORUM, 200, 5000)                                   \
	X(ETCD_KILL, "restart-etcd", NEEDS_ETCD, 100, 3000)                                        \
	X(ETCD_STOP, "restart-etcd-stop", NEEDS_ETCD, 500, 9000)                                   \
	X(ETCD_MOVE, "restart-etcd-leader", NEEDS_ETCD, 0, 0)                                      \
	X(ETCD_MAJORITY, "restart-etcd-majority", NEEDS_ETCD, 100, 9000)

enum nemesis_needs {
	NEEDS_KEEPS = 1,
	NEEDS_LOSES = 2,
	NEEDS_NAMESPACE = 4,
	NEEDS_CLOCK = 8,
	NEEDS_DELETES = 16,
	NEEDS_SENTINEL = 32,
	NEEDS_CLUSTER = 64,
	NEEDS_QUORUM = 128,
	NEEDS_ETCD = 256
};

enum nemesis_kind {
#define NEMESIS_ENUM(id, name, needs, low, high) NEMESIS_##id,
	NEMESIS_KINDS(NEMESIS_ENUM)
#undef NEMESIS_ENUM
		NEMESIS_COUNT
};

const char *nemesis_kind_name(int kind);

struct round_worker {
	pid_t pid; /* 0 = none */
	int births;
	bool killed, stopped;
};

#define CHAOS_PROXIES_MAX (CHAOS_SIDES * CHAOS_MEMBERS_MAX)

/* A fault in progress. */
struct nemesis_fault {
	enum nemesis_kind kind;
	int target;       /* a worker's, proxy's, name's or node's index, -1 = the server */
	int node;         /* to which a slot moves */
	unsigned members; /* of a quorum: bits */
	int step_ms;      /* of the clock of a quorum's server */
	pid_t pid;        /* of the worker; of the process that runs the busy script */
	int64_t ends_ns;
	bool active;
};

#define NEMESIS_FAULTS 12

struct round {
	const struct chaos_options *options;
	struct chaos_result *result;
	struct chaos_page *page;
	struct chaos_dice dice;
	char folder[256];
	char self[512]; /* this program */
	char query[32]; /* of the clients' URLs */
	struct test_server server;
	struct sentinel_setup service; /* with Sentinel, instead of the server and proxies */
	int master;                    /* of the service */
	struct cluster_setup cluster;  /* the same as a Cluster */
	struct test_server members[CHAOS_MEMBERS_MAX]; /* the same as a quorum */
	int64_t young_until_ns[CHAOS_MEMBERS_MAX];
	int64_t member_clock_ms[CHAOS_MEMBERS_MAX];
	char member_of[CHAOS_MEMBERS_MAX][80]; /* the end of each marker: its set */
	char sides[CHAOS_SIDES][300];          /* of a quorum: the URLs of the workers */
	char url[300];                         /* of either, with the query */
	struct proxy proxies[CHAOS_PROXIES_MAX];
	int proxy_count;
	struct round_worker workers[CHAOS_WORKERS];
	pid_t recorder, pulse;
	FILE *log;    /* nemesis.log */
	int clock_fd; /* the offset of the server's clock in ms */
	int64_t clock_ms;
	bool stopping; /* start no workers any more */
	bool saved;
	int64_t saved_ns;
	bool lost;             /* the memory, once or more */
	int64_t grace_over_ns; /* the grace of the last new memory has certainly ended */
	int complaints;
	int stalls; /* logged faults */
	struct nemesis_fault faults[NEMESIS_FAULTS];
	int64_t begun_ns;
	int64_t next_ns; /* when the next fault begins */
};

/* The round failed: record the reason. */
void round_complain(struct round *round, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* A fault in nemesis.log, in judge.h's format; round_note() is for readers. */
void round_log(struct round *round, const char *kind, const char *target, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

void round_note(struct round *round, const char *text, int64_t number);

/* Start the server, with its clock; options NULL = restart it. */
void round_server(struct round *round, const struct server_options *options);
/* The processes that are started in between have a clock of their own, whose offset is in the file
 * of that name, in the folder. */
void round_clock_begin(const struct round *round, const char *name);
void round_clock_end(void);
/* Start the worker of that index. */
void round_worker_start(struct round *round, int index);
/* Collect workers that have ended, and start others instead.  Returns how many still run. */
int round_reap(struct round *round);
/* Run this program in another role, with its output in a file of the folder. */
pid_t round_spawn(struct round *round, const char *const *args);

/* End faults that are over and begin faults that are due. */
void nemesis_step(struct round *round);
/* End the grace of a server that has just begun: nothing is held there. */
bool nemesis_grace_end(struct round *round);
/* End all faults. */
void nemesis_heal(struct round *round);

/* Each begins or ends a fault of a server, a link or a process.  Beginning returns false if there
 * is no suitable target. */
bool nemesis_server_begin(struct round *round, struct nemesis_fault *fault, int64_t ms);
void nemesis_server_end(struct round *round, struct nemesis_fault *fault);
bool nemesis_network_begin(struct round *round, struct nemesis_fault *fault, int64_t ms);
void nemesis_network_end(struct round *round, struct nemesis_fault *fault);

/* The same of a service of Sentinel.  It is ready if the sentinels agree on a master, and for
 * faults of the master if a replica has its data. */
bool nemesis_sentinel_ready(struct round *round, enum nemesis_kind kind);
/* Wait for an election that has begun, and for the sentinels' agreement. */
void nemesis_sentinel_settle(struct round *round);
/* The same, and for all replicas if grants need them. */
void nemesis_sentinel_heal(struct round *round);
bool nemesis_sentinel_begin(struct round *round, struct nemesis_fault *fault);
void nemesis_sentinel_end(struct round *round, struct nemesis_fault *fault);

/* The same of a Cluster, and of the slots of names. */
bool nemesis_cluster_ready(struct round *round, struct nemesis_fault *fault);
void nemesis_cluster_settle(struct round *round);
bool nemesis_cluster_begin(struct round *round, struct nemesis_fault *fault);
void nemesis_cluster_end(struct round *round, struct nemesis_fault *fault);
/* End the grace of all its masters. */
bool nemesis_cluster_grace_end(struct round *round);

/* The same of a quorum, of a minority of its servers or of a majority. */
bool nemesis_quorum_start(struct round *round);
void nemesis_quorum_stop(struct round *round);
/* Nothing fails now but a minority of its servers: the judge expects that all goes on. */
bool nemesis_quorum_is_calm(const struct round *round);
bool nemesis_quorum_ready(struct round *round, struct nemesis_fault *fault);
bool nemesis_quorum_begin(struct round *round, struct nemesis_fault *fault);
void nemesis_quorum_end(struct round *round, struct nemesis_fault *fault);
/* Log it for each of its servers; words go to the first line of each. */
void nemesis_quorum_log(struct round *round, const struct nemesis_fault *fault, const char *phase);

/* The same of a cluster of etcd. */
bool nemesis_etcd_start(struct round *round);
void nemesis_etcd_stop(struct round *round);
bool nemesis_etcd_begin(struct round *round, struct nemesis_fault *fault);
void nemesis_etcd_end(struct round *round, struct nemesis_fault *fault);
/* The planted bug: holders' tickets go, as if leases ended too early, and the judge is not told. */
void nemesis_etcd_plant(struct round *round);
/* No ticket is left. */
bool nemesis_etcd_is_clear(void);

/* A network namespace for this process and its children; false if the machine refuses, and the
 * reason. */
bool nemesis_namespace(const char **why);

#endif
