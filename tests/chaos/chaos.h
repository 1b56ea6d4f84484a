/* SPDX-License-Identifier: MIT
 * Shared by the parts of the chaos program: the names that workers compete for, the page of memory
 * that all processes map, and the entry points of the parts. */
#ifndef CHAOS_H
#define CHAOS_H

#include "chaos/history.h"

#include <latchkey.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define CHAOS_MS INT64_C(1000000)
#define CHAOS_WORKERS 10
#define CHAOS_THREADS 3
#define CHAOS_SLOTS (CHAOS_WORKERS * CHAOS_THREADS)
#define CHAOS_PROXIES 4
#define CHAOS_MEMBERS_MAX 5 /* servers of a quorum */
#define CHAOS_SIDES 2 /* groups of workers, which reach each of them by a proxy of their own */
#define CHAOS_RING 16
#define CHAOS_WAIT_MS 3000
#define CHAOS_COMMAND_MS 1000
#define CHAOS_LEASE_MAX_MS 3000
#define CHAOS_ETCD_LEASE_MS 8000 /* the end of one, after an election in between */
#define CHAOS_GRACE_MS 10000     /* the library's default */
#define CHAOS_LONGEST_MS 4000    /* the longest lease of the quorum */

/* ---- names -------------------------------------------------------------------------------- */

enum chaos_sort { CHAOS_LOCK, CHAOS_SEMAPHORE, CHAOS_RATE, CHAOS_LATCH };

struct chaos_name {
	const char *name;
	enum chaos_sort sort;
	int64_t capacity;
	int64_t lease_ms; /* of a rate: its window */
};

#define CHAOS_NAMES 8
#define CHAOS_NAMES_ALL 11 /* with further locks, for a quorum, which has only these */
extern const struct chaos_name chaos_names[CHAOS_NAMES_ALL];
const char *chaos_sort_name(enum chaos_sort sort);
/* Do rounds with a quorum, which has only locks, with etcd, which has no rates, or with neither
 * have that name? */
static inline bool chaos_has_name(bool quorum, bool etcd, int name)
{
	enum chaos_sort sort = chaos_names[name].sort;

	if (quorum)
		return sort == CHAOS_LOCK;
	return name < CHAOS_NAMES && !(etcd && sort == CHAOS_RATE);
}

/* ---- random numbers -------------------------------------------------------------------- */

struct chaos_dice {
	uint64_t state;
};

uint64_t chaos_next(struct chaos_dice *dice);
/* low..high, both included. */
int64_t chaos_between(struct chaos_dice *dice, int64_t low, int64_t high);
/* True once in so many calls, at random. */
bool chaos_once_in(struct chaos_dice *dice, int64_t times);

/* ---- the shared page ---------------------------------------------------------------------- */

/* A stay inside, of the thread that has the slot.  Only its owner writes it, before it enters. */
struct chaos_stay {
	_Atomic uint64_t serial;
	_Atomic int64_t valid_until_ns;
	_Atomic uint32_t pid;
	_Atomic bool sure;  /* the hold was still valid after the entry */
	_Atomic bool wrote; /* and after the write */
};

struct chaos_slot {
	_Atomic uint64_t serial; /* continues when another process takes the slot */
	struct chaos_stay ring[CHAOS_RING];
};

struct chaos_permits {
	_Atomic uint64_t serial;
	_Atomic int64_t permits;
	_Atomic int64_t valid_until_ns;
};

struct chaos_place {
	_Atomic uint64_t owner; /* of a lock: serial and slot of the thread inside, 0 = none */
	_Atomic uint64_t value, writer; /* the store without fences */
	_Atomic uint64_t fence;         /* the store with fences: the highest fence so far */
	struct chaos_permits permits[CHAOS_SLOTS];
};

#define CHAOS_STALLS 64

/* When the machine stalled: no runnable process ran. */
struct chaos_stall {
	int64_t from_ns, to_ns;
};

struct chaos_page {
	_Atomic bool stop;      /* begin no more calls */
	_Atomic bool quiet;     /* begin no more faults */
	_Atomic bool loses;     /* the memory: some holds must be valid then */
	_Atomic bool may_break; /* holds may be broken */
	_Atomic int64_t lease_max_ms;
	_Atomic int64_t pairs, quiet_pairs, waits, openings, steps, refused, lost_writes;
	_Atomic int64_t losses, violations, starts, breaks, reclaimed, unconfirmed;
	_Atomic int64_t crowd_until_ns; /* some workers prefer this name until then */
	_Atomic int crowd_name;
	_Atomic int stall_count; /* set when the entry is complete */
	struct chaos_stall stalls[CHAOS_STALLS];
	struct chaos_slot slots[CHAOS_SLOTS];
	struct chaos_place places[CHAOS_NAMES_ALL];
};

/* Map the page of a round's folder; NULL with errno set. */
struct chaos_page *chaos_page_map(const char *folder, bool create);
void chaos_page_unmap(struct chaos_page *page);

/* ---- the canary --------------------------------------------------------------------------- */

/* How long the caller's hold is certain, in ns of CLOCK_MONOTONIC; 0 = it is not. */
typedef int64_t canary_valid_fn(void *arg);

struct canary {
	struct chaos_page *page;
	int slot;
	int name;
	canary_valid_fn *valid;
	void *arg;
	/* since canary_enter() */
	struct chaos_stay *stay;
	uint64_t token;
	uint64_t read, writer; /* of the store without fences */
	uint32_t other;        /* pid of the thread that it met */
};

/* Enter a lock: 0, 1 = a thread with a valid hold was inside. canary_leave() ends the stay. */
int canary_enter(struct canary *canary, int64_t valid_until_ns);
/* Record that the hold was found valid until then. */
void canary_refresh(struct canary *canary, int64_t valid_until_ns);
/* Record that it is lost, though it was valid for longer. */
void canary_lost(struct canary *canary);
/* The fenced store: 0, 2 = a valid hold was refused. */
int canary_store(struct canary *canary, uint64_t fence);
/* Leave: 0, 1 = a thread with a valid hold entered meanwhile, 2 = one wrote. */
int canary_leave(struct canary *canary);

/* The same for permits: 1 = more of them are valid than the capacity. */
int canary_take(struct canary *canary, int64_t permits, int64_t capacity, int64_t valid_until_ns);
void canary_keep(struct canary *canary, int64_t permits, int64_t valid_until_ns);
void canary_give(struct canary *canary);

/* ---- roles: each a process of its own ----------------------------------------------------- */

/* chaos worker FOLDER URL SLOT SEED; chaos recorder FOLDER SOCKET */
int worker_main(int argc, char **argv);
int recorder_main(int argc, char **argv);

/* The results of a round. */
struct chaos_result {
	int64_t pairs, quiet_pairs, waits, openings, steps, refused, lost_writes, losses, starts,
		breaks, reclaimed, unconfirmed, stalls;
	int64_t quiet_ns, quiet_wake_us, fault_wake_us; /* the longest */
	int faults[64];                                 /* by kind, see nemesis_kind_name() */
	int64_t meetings;                               /* of valid holds, in the canary */
	int64_t overlaps;                               /* that the judge shows, from the records */
	int64_t excused; /* overlaps that a lost memory, a clock or an operator excuses */
	int64_t unvoted; /* the same: grants while no majority of a quorum could vote */
	bool bad;
	bool in_namespace;
	char folder[256]; /* kept if the round failed */
};

struct chaos_options {
	uint64_t seed;
	int64_t seconds;
	bool loses;       /* also faults that delete the store's memory */
	bool moves_clock; /* and some that set its clock */
	bool deletes;     /* and some that delete keys and break holds, as an operator may */
	bool sentinel;    /* a service of Sentinel; its faults, and those of workers */
	bool cluster;     /* a Cluster; the same */
	bool quorum;      /* a quorum of so many servers; the same, and faults of links to them */
	int servers;
	bool etcd;        /* a cluster of etcd; the same */
	int64_t grace_ms; /* of the workers' clients */
	int replicas;     /* that must confirm their grants, with Sentinel; 0 = none */
	/* A planted bug: the clients have no grace, the servers of a quorum are not young, but the
	 * judge believes that they have, that they are. */
	bool without_grace;
	bool loses_steps; /* another one, in etcd: its servers lose the steps of latches */
	bool wants_namespace;
	int number;
};

/* More than one server, and no record of MONITOR. */
static inline bool chaos_has_service(const struct chaos_options *options)
{
	return options->sentinel || options->cluster || options->quorum || options->etcd;
}

/* For how long the store grants nothing after a loss of its memory. */
static inline int64_t chaos_pause_ms(const struct chaos_options *options)
{
	return options->without_grace ? 0 : options->grace_ms;
}

/* Run one round in the calling process, which is the parent of all others. */
void round_run(const struct chaos_options *options, struct chaos_result *result);
/* Set by a signal: end as soon as possible. */
extern volatile sig_atomic_t round_interrupted;

#endif
