/* SPDX-License-Identifier: MIT
 * The plan of a seed, and the results of its run. */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SIM_MS INT64_C(1000000)
#define SIM_S (1000 * SIM_MS)
#define SIM_CLIENTS 16
#define SIM_THREADS 5
#define SIM_NAMES 8 /* three locks, two semaphores, a rate, two latches */
#define SIM_LOCKS 3
#define SIM_RATE 5
#define SIM_HANDLES 2
#define SIM_FAULTS 400
#define SIM_SENTINELS 3
#define SIM_PLACES 3 /* of servers that sentinels watch: a master and two replicas */
#define SIM_NODES 6  /* of a Cluster: three masters, a replica each */
#define SIM_PLAN_TEXT 4096

/* ---- Chance (sim_plan.c) -------------------------------------------------------------------- */

struct sim_random {
	uint64_t state;
};

/* An independent stream for each purpose. */
struct sim_random sim_random_of(uint64_t seed, uint64_t purpose, uint64_t index);
uint64_t sim_draw(struct sim_random *random, uint64_t below);
bool sim_percent(struct sim_random *random, unsigned percents);
/* From 0 to ns, in whole microseconds. */
int64_t sim_within(struct sim_random *random, int64_t ns);

/* ---- The plan ------------------------------------------------------------------------------- */

enum sim_fault_kind {
	SIM_CUT,        /* a client's connections break */
	SIM_STALL,      /* one way of a connection, or more, is blocked for a while */
	SIM_CUT_OFF,    /* a client reaches no server for a while */
	SIM_CRASH,      /* a process is killed; another one may replace it */
	SIM_STOP,       /* a process stops, and continues later */
	SIM_LOSE,       /* a message is lost: the server closed a slow reader's connection */
	SIM_RESTART,    /* the server restarts, with its memory */
	SIM_EMPTY,      /* the server restarts, empty */
	SIM_OLD,        /* the server restarts, from an older image */
	SIM_SNAPSHOT,   /* its machine does, with the process as it was */
	SIM_FAILOVER,   /* fail-over to a replica that lags, and whose clock differs a little */
	SIM_EVICT,      /* a key is evicted */
	SIM_FLUSH_ALL,  /* all keys are removed */
	SIM_FORGET,     /* SCRIPT FLUSH */
	SIM_REFUSE,     /* the server refuses for a while */
	SIM_CLOCK_ON,   /* the server's clock steps forward */
	SIM_CLOCK_BACK, /* ... back */
	SIM_BREAK,      /* an operator breaks a hold */
	SIM_RESIZE,     /* ... gives a semaphore another capacity */
	SIM_RESET,      /* ... sets, resets or removes a latch */
	SIM_LEAVE,      /* a client is closed in order; another one replaces it */
	SIM_PLAIN_KINDS,
	/* With sentinels only: */
	SIM_SWITCH =
		SIM_PLAIN_KINDS, /* planned failover: the old master takes writes for a while */
	SIM_MASTER_KILL,         /* the master is killed, and a replica that lags promoted */
	SIM_MASTER_STOP, /* ... is stopped; it wakes after the promotion, and takes writes */
	SIM_MUTE,        /* a sentinel is killed or stopped, and has old news afterwards */
	SIM_LIE,         /* a sentinel names a wrong address, or knows no such service */
	SIM_BLIND,       /* nothing passes between a client and some sentinels */
	SIM_DEAF,        /* a replica, or both, receives nothing for a while */
	/* In a Cluster only: */
	SIM_SLOT_MOVE, /* a slot moves to another master, key by key; or stays between, or returns
	                */
	SIM_TAKEOVER,  /* planned failover of a master */
	SIM_NODE_KILL, /* a master is killed, and its replica that lags promoted */
	SIM_NODE_STOP, /* a master is stopped past its promotion, and wakes */
	/* In a quorum only; other faults of the server are those of one member there: */
	SIM_HALT,  /* a member stops, and continues later */
	SIM_SLOW,  /* a member takes longer for all it does */
	SIM_APART, /* nothing passes between a member and some clients, one way or both */
	/* In etcd only, beside those of a quorum's members: */
	SIM_ELECT,   /* another member is elected */
	SIM_FREEZE,  /* a member's disk stands still */
	SIM_COMPACT, /* the history is compacted */
	SIM_REVOKE,  /* ... an operator revokes a client's lease */
	SIM_FAULT_KINDS,
};

const char *sim_fault_name(enum sim_fault_kind kind);

struct sim_fault {
	int64_t at_ns; /* since the start */
	enum sim_fault_kind kind;
	int target;        /* a client, or a name */
	int64_t length_ns; /* its duration; of an image, its age */
	uint64_t chance;   /* its other parameter */
	bool out;          /* left out */
};

/* An altered script, to test that a check fails. */
struct sim_bug {
	const char *script, *from, *to;
};

/* One call of a scene.  A scene is a plan that lists its calls; none is drawn at random.  Its
 * callers acquire a lock or permits; they forget those of the rate, and release every other hold
 * after hold_ns.  A latch they await (count is -1) or set. */
struct sim_act {
	int64_t at_ns; /* since the start; each thread's acts are in this order */
	int client, thread, name;
	int64_t wait_ns; /* 0 = a try */
	int64_t hold_ns;
	int count;
};

struct sim_plan {
	uint64_t seed;
	int64_t length_ns;
	int clients;
	uint32_t clients_out; /* left out, by bit */
	uint32_t names_out;
	struct sim_fault faults[SIM_FAULTS];
	int fault_count;
	/* The load. */
	int64_t delay_ns; /* of a request in flight, mostly less */
	int64_t idle_ns, hold_ns;
	unsigned release_percent, forget_percent, fixed_percent;
	uint32_t capacity;
	int64_t grace_ms;   /* of all clients but these: */
	uint32_t graceless; /* clients without a grace, by bit */
	int threads;
	uint32_t names;    /* in use, by bit */
	bool crowd;        /* all want one lock, by one handle each */
	bool sentinels;    /* clients follow the master that these name */
	bool cluster;      /* clients follow the slots of a Cluster */
	int quorum;        /* locks are held at a majority of so many servers, 0 = at one */
	int etcd;          /* clients use a cluster of etcd with so many members, 0 = none */
	bool etcd_is_old;  /* a bug: its leaders do not ask whether they still lead */
	uint32_t replicas; /* ... so many of which must confirm each grant, 0 = none */
	const struct sim_act *acts; /* makes it a scene */
	int act_count;
	int64_t lease_ms; /* of first handles; second ones have twice that; 0 = drawn */
	const struct sim_bug *bug;
	const char *only; /* ignore failures without this in their text; NULL = ignore none */
	bool forgets;     /* another bug: clients forget the waits that they have ended */
};

void sim_plan_make(struct sim_plan *plan, uint64_t seed, int64_t length_ns);
/* The same with sentinels, which every eighth seed has anyway. */
void sim_plan_sentinels(struct sim_plan *plan);
/* The same in a Cluster. */
void sim_plan_cluster(struct sim_plan *plan);
/* The same over a quorum, with locks only; also of a plan without faults. */
void sim_plan_quorum(struct sim_plan *plan);
/* The same in etcd, without a rate. */
void sim_plan_etcd(struct sim_plan *plan);
/* The parts that were left out, as text for sim_plan_cut(). */
void sim_plan_text(const struct sim_plan *plan, char text[SIM_PLAN_TEXT]);
bool sim_plan_cut(struct sim_plan *plan, const char *text);

/* ---- A run ---------------------------------------------------------------------------------- */

struct sim_tally {
	double seconds; /* simulated */
	double client_seconds;
	double grace_seconds;     /* in which nothing new is granted */
	double following_seconds; /* the others of runs with sentinels, or over a quorum */
	long long steps, scripts, grants, forgot, handed_over, waits, losses, openings, counted,
		released, unknown, faults[SIM_FAULT_KINDS];
	long long reclaimed;
	long long cuts;  /* of links to a master that a sentinel named no more */
	long long stale; /* scripts that a replaced master ran */
	long long stale_grants;
	long long uncovered;  /* beliefs that outlast the grace by what it confirmed: (a), (d) */
	long long stale_dual; /* its grants beside those of the new master: case (a) */
	long long moved, asked, divided; /* requests that nodes redirected, or told to try again */
	long long counts, short_counts;  /* of replicas: of them, too few */
	long long unconfirmed;           /* acquisitions that ended because of that */
	long long kept;          /* beliefs that a failover had to keep, as it was confirmed */
	long long fences_again;  /* granted, or held, twice, as docs/redis.md allows */
	long long late_openings; /* released a waiter, as docs/latch.md allows */
	long long leaves_refused;
	long long requests;     /* of a quorum's clients */
	long long legs, yields; /* of a quorum: grants of its members, those given back again */
	long long early,
		overlaps; /* holds that clocks had left without a majority; beside others */
	double longest_grant_ms, longest_idle_ms; /* of undisturbed clients */
};

struct sim_result {
	bool failed;
	const char *check, *sentence; /* of the broken promise */
	char text[400];
	int64_t at_ns; /* since the start */
	struct sim_tally tally;
};

/* trace: the file for each event, NULL = none.  False if a check failed. */
bool sim_run(const struct sim_plan *plan, struct sim_result *result, FILE *trace);
void sim_tally_add(struct sim_tally *sum, const struct sim_tally *tally);

/* Leave out what the failure does not need, in at most so many tries and seconds of real time, plus
 * one try. */
void sim_shrink(struct sim_plan *plan, struct sim_result *result, int runs, int seconds);

/* Did the run have enough clients, grants and faults to be meaningful? */
bool sim_tally_is_full(const struct sim_tally *tally);

#endif
