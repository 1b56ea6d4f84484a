/* SPDX-License-Identifier: MIT
 * Run the contestants of bench/peers one by one, on a new server each time, and compute figures
 * from the lines that they write.  ../README.md is the contract between both. */
#ifndef DRIVER_H
#define DRIVER_H

#include "harness/server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CONTESTANTS_MAX 32
#define ROUNDS_MAX 32
#define SIZES_MAX 8
#define SERVERS_MAX 5 /* of a quorum */

/* ---- what is run ------------------------------------------------------------------------------
 */

struct contestant {
	char peer[256];  /* path of its folder's script */
	char name[40];   /* "redsync" */
	char works[64];  /* "pairs contend" */
	char what[400];  /* library, version, settings */
	char server[16]; /* "redis" or "etcd" */
};

struct service;

struct work {
	const char *name;
	const char *what;
	int capacity; /* holders at once; 0 = a latch, without holders */
	int sizes[SIZES_MAX];
	const struct service *service; /* that loses its master (failover.h), else NULL */
	int servers;                   /* of a quorum, else 0 */
};

/* Find the contestants of these folders (NULL = all); print a line for each that is missing.
 * Latchkey's come first. */
int contestants_find(const char *root, const char *folders, const char *names,
                     struct contestant *found, int max);
bool word_in(const char *words, const char *word);
/* Copy the next word; false at the end. */
bool word_next(const char **words, char *word, size_t size);

/* ---- a store ----------------------------------------------------------------------------------
 */

struct store {
	struct test_server servers[SERVERS_MAX]; /* one, or those of a quorum; dir also for etcd */
	int count;
	bool etcd;
	char ports[64]; /* separated by commas */
};

bool store_exists(const char *server); /* "etcd": the binary is there */
bool store_start(struct store *store, const char *server, int count);
void store_stop(struct store *store);
int64_t store_cpu_ns(const struct store *store); /* of all its servers */
/* Messages that etcd's clients sent until now. */
int64_t etcd_requests(const struct store *store);

/* ---- a contestant's process -------------------------------------------------------------------
 */

/* The leader of a session to which all its children belong. */
struct peer {
	pid_t pid;
	int in, out;
};

/* The NAME of a run.  In a Cluster, it and NAME-long are at the first of three masters. */
#define PEER_NAME "bench23"

/* Run its script; port is what follows the host in the call of `peer run`. */
void peer_start(struct peer *peer, const struct contestant *contestant, const char *work,
                const char *port, int workers, double seconds);
/* Is its next line, within ms, this word? */
bool peer_says(struct peer *peer, const char *word, int64_t ms);
/* Wait ms for it to end by itself, then end all processes of its session, which is a process group
 * of this process.  True if it succeeded. */
bool peer_end(struct peer *peer, int64_t ms);

/* ---- one run ----------------------------------------------------------------------------------
 */

/* One line of a contestant: an acquisition, ns. */
struct turn {
	int64_t asked, granted, released;
	int worker;
};

struct run {
	struct turn *turns;
	size_t count;
	int workers;
	double seconds;
	bool hung;        /* a wait did not end: a failure that is counted by itself */
	int64_t requests; /* that clients sent; -1 = not counted in this run */
	int64_t client_cpu_ns, server_cpu_ns;
	double others; /* share of the machine that other programs used */
};

/* Run it; false, after a printed line, if there is no figure.  MONITOR counts the requests to
 * Redis, which takes time: no other figure of such a run is used.  Of a quorum, requests and CPU
 * are those of all servers. */
bool run_contestant(const struct contestant *contestant, const struct work *work, int workers,
                    double seconds, bool counted, struct run *run);
void run_free(struct run *run);

int64_t monotonic_ns(void);
int64_t process_cpu_ns(pid_t pid);
int64_t session_cpu_ns(pid_t session); /* of all its living processes */
/* CPU time of the whole machine until now, and how much of it was not idle. */
void machine_cpu_ns(int64_t *all, int64_t *busy);

/* ---- figures ----------------------------------------------------------------------------------
 */

/* The results of a contestant at one work and size, over all rounds. */
struct figures {
	int rounds;              /* that gave figures */
	double rate[ROUNDS_MAX]; /* acquisitions a second; 0 in a round that failed */
	double *handoff_us;      /* from a release to the next grant */
	size_t handoff_count;
	double *hold_us;
	size_t hold_count;
	double longest_ms;                   /* wait */
	int64_t fewest, most;                /* acquisitions of a worker in a round */
	double acquisitions;                 /* in the rounds that were timed */
	double client_cpu_us, server_cpu_us; /* an acquisition */
	double requests;                     /* an acquisition; -1 = not counted */
	double others;                       /* the worst of the rounds */
	int64_t overlaps; /* holds that began before the previous one had ended */
	int failures;     /* runs without figures */
	int hung;         /* of these: a wait did not end */
};

void figures_add(struct figures *figures, int round, const struct work *work,
                 const struct run *run);
void figures_free(struct figures *figures);
/* The value below which that share of the values is; reorders the values. */
double quantile(double *values, size_t count, double share);

/* ---- tables -----------------------------------------------------------------------------------
 */

struct json_t;
/* Print one table; `of` is in the order of the contestants.  Also append the rows to the list,
 * unless it is NULL. */
void table_print(const struct work *work, int workers, int rounds, double seconds,
                 const struct contestant *contestants, struct figures *of, int count,
                 struct json_t *rows);

/* Run in a process of its own and return the exit status.  However it ends, also by a signal to
 * this process, all processes that it started end with it. */
int guarded(int (*run)(void *arg), void *arg);

/* Print which option is wrong, and end with status 2. */
_Noreturn void refuse(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Print the error and end with status 1, without results. */
_Noreturn void give_up(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
