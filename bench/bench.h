/* SPDX-License-Identifier: MIT
 * How the bench measures: contestants do the same work in short turns, one after the other, again
 * and again, and each round gives one ratio.  Noise of the machine disturbs neighbouring turns
 * alike, so the median of these ratios is more reliable than two figures from two runs. */
#ifndef BENCH_H
#define BENCH_H

#include "harness/server.h"

#include <stdbool.h>
#include <stdint.h>

#define CONTESTANTS_MAX 6
#define ROUNDS_MAX 64
#define SERVERS_MAX 8

/* The surroundings of a contestant: a server of the run's own, and the case's size. */
struct stage {
	const struct test_server *server; /* fresh for each contest */
	int size;                         /* contenders, threads, ..., by the case */
};

/* One way to do the work.  open() connects and warms up; it is not measured. */
struct contestant {
	const char *name; /* "latchkey", "bare hiredis" */
	void *(*open)(const struct stage *stage);
	/* Work until the clock (bench_now_ns) shows until_ns; return the number of operations.
	 * NULL = once() is repeated until then. */
	int64_t (*turn)(void *self, int64_t until_ns);
	void (*once)(void *self);
	void (*close)(void *self);
	/* CPU time of the client side until now, in all its processes, ns; NULL = that of this
	 * process. */
	int64_t (*cpu_ns)(void *self);
};

/* Of many rounds: the median and the range of most. */
struct spread {
	double median, low, high; /* 10th and 90th percentile */
};

/* The result of one contestant. */
struct performance {
	const char *name;
	struct spread rate;          /* operations a second */
	struct spread server_us;     /* CPU of the server, microseconds an operation */
	struct spread client_us;     /* CPU of the client side, microseconds an operation */
	double requests;             /* commands from clients that the server ran, an operation */
	double by_round[ROUNDS_MAX]; /* rate */
	double server_by_round[ROUNDS_MAX];
	double client_by_round[ROUNDS_MAX];
};

struct reading {
	int64_t requests, cpu_ns;
};

struct contest {
	const char *id;   /* "pair/threads/8": case, variant, size */
	const char *what; /* one line for the reader */
	int size;
	int rounds;                                            /* 0 = the run's (ROUNDS) */
	int64_t turn_ms;                                       /* 0 = the run's (TURN) */
	const char *const *server_args;                        /* more of them, or NULL */
	const struct contestant *contestants[CONTESTANTS_MAX]; /* NULL-ended; ours first */
	/* Find the servers whose CPU time and requests count for the contestant of that index, and
	 * return how many; 0 = the contest's own.  NULL = that for all. */
	int (*servers)(int contestant, const struct test_server *all[SERVERS_MAX]);
	/* If not NULL, the contest has no server of its own: the requests to others until now, and
	 * their CPU time. */
	struct reading (*read)(int contestant);
};

struct result {
	int rounds, count;
	struct performance of[CONTESTANTS_MAX];
};

struct bench; /* one run: options, results so far */

/* Hold a contest on a new server: in each round every contestant has a turn, in an order that is
 * reversed from round to round.  Tables and JSON have its rows. */
void bench_contest(struct bench *bench, const struct contest *contest, struct result *result);

/* of[a].rate / of[b].rate, or of server_us, client_us: round by round, then the median. */
struct spread ratio_of_rates(const struct result *result, int a, int b);
struct spread ratio_of_server_cpu(const struct result *result, int a, int b);
struct spread ratio_of_client_cpu(const struct result *result, int a, int b);
struct spread spread_of(const double *values, int count);

enum goal { AT_LEAST, AT_MOST, NO_GOAL };

/* Add a figure to the run, with its goal.  The id is for JSON: "pair.ratio.evalsha". */
void bench_figure(struct bench *bench, const char *id, const char *what, struct spread value,
                  const char *unit, enum goal goal, double bound);
/* Add a figure that has no spread. */
void bench_number(struct bench *bench, const char *id, const char *what, double value,
                  const char *unit, enum goal goal, double bound);
/* Add a point to the picture (bench/picture): the cost of an acquisition at that many clients. */
void bench_point(struct bench *bench, const char *series, int clients, double us, double requests);
/* Add a line for the reader: what was skipped and why. */
void bench_note(struct bench *bench, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Start a server for a case that is no contest. */
void bench_server(struct bench *bench, struct test_server *server, const char *const *args);

/* Is it one round only, that is a test and no measurement?  A case that is no contest then takes a
 * small size and a second at most. */
bool bench_brief(const struct bench *bench);
int64_t bench_now_ns(void);    /* CLOCK_MONOTONIC */
int64_t bench_cpu_ns(int pid); /* CPU time of a process of the run, 0 = this one */
/* Commands that clients sent until now.  A server also counts those that scripts run.  So where
 * scripts run, no data command is counted: a contestant sends all its data commands from scripts,
 * or runs no script at all. */
int64_t bench_requests(const struct test_server *server);
/* Print the error and end the run: the figures of a failed run are void. */
_Noreturn void bench_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A case: bench/case_NAME.c defines case_NAME and main.c lists it. */
struct bench_case {
	const char *name; /* make bench T=NAME */
	const char *what;
	void (*run)(struct bench *bench);
};

extern const struct bench_case case_pair;      /* acquire+release alone; server CPU; reentry */
extern const struct bench_case case_tls;       /* acquire+release by TLS */
extern const struct bench_case case_replicas;  /* acquire+release that replicas confirm */
extern const struct bench_case case_cluster;   /* the same in a Cluster, alone and contended */
extern const struct bench_case case_quorum;    /* a lock on three and five servers */
extern const struct bench_case case_etcd;      /* a lock in etcd, beside Go's Mutex */
extern const struct bench_case case_threads;   /* N threads, N names, one client */
extern const struct bench_case case_contended; /* P processes, one name */
extern const struct bench_case case_local;     /* threads of one process, one name */
extern const struct bench_case case_semaphore; /* as pair and contended */
extern const struct bench_case case_latch;     /* a thousand are released */
extern const struct bench_case case_held;      /* 10,000 held locks */
extern const struct bench_case case_counters;  /* what counting costs */
extern const struct bench_case case_command;   /* latchkey lock x -- true */

#endif
