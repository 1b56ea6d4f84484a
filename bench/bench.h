/* SPDX-License-Identifier: MIT
 * How something is measured here: contestants do the same work in short turns, one after the other,
 * again and again, and each round gives one ratio.  A noisy machine disturbs neighbours in time
 * alike, so the median of these ratios says more than two figures from two runs. */
#ifndef BENCH_H
#define BENCH_H

#include "harness/server.h"

#include <stdbool.h>
#include <stdint.h>

#define CONTESTANTS_MAX 6
#define ROUNDS_MAX 64

/* What contestants work with: a server of the run's own, and the case's size. */
struct stage {
	const struct test_server *server; /* fresh for each contest */
	int size;                         /* contenders, threads, ...: what the case says */
};

/* One way to do the work.  open() connects and warms up; what it does is not measured. */
struct contestant {
	const char *name; /* "latchkey", "bare hiredis" */
	void *(*open)(const struct stage *stage);
	/* Work until the clock (bench_now_ns) shows until_ns; how many operations were done. */
	int64_t (*turn)(void *self, int64_t until_ns);
	void (*close)(void *self);
	/* CPU time that the client side took until now, in all its processes, ns; NULL = this
	 * process' own. */
	int64_t (*cpu_ns)(void *self);
};

/* Of many rounds: the middle one and where most lie. */
struct spread {
	double median, low, high; /* 10th and 90th percentile */
};

/* What one contestant did. */
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

struct contest {
	const char *id;   /* "pair/threads/8": case, variant, size */
	const char *what; /* one line for people */
	int size;
	int rounds;                                            /* 0 = the run's (--rounds) */
	int64_t turn_ms;                                       /* 0 = the run's (--turn) */
	const struct contestant *contestants[CONTESTANTS_MAX]; /* NULL-ended; ours first */
};

struct result {
	int rounds, count;
	struct performance of[CONTESTANTS_MAX];
};

struct bench; /* one run: options, what was found so far */

/* Hold a contest on a new server: each round every contestant has a turn, in an order that is
 * reversed from round to round.  The rows come into the tables and into --json. */
void bench_contest(struct bench *bench, const struct contest *contest, struct result *result);

/* of[a].rate / of[b].rate, or of server_us, client_us: round by round, then the median. */
struct spread ratio_of_rates(const struct result *result, int a, int b);
struct spread ratio_of_server_cpu(const struct result *result, int a, int b);
struct spread ratio_of_client_cpu(const struct result *result, int a, int b);
struct spread spread_of(const double *values, int count);

enum goal { AT_LEAST, AT_MOST, NO_GOAL };

/* One figure of the run, with what is wanted of it.  id is for --json: "pair.ratio.evalsha". */
void bench_figure(struct bench *bench, const char *id, const char *what, struct spread value,
                  const char *unit, enum goal goal, double bound);
/* The same for a plain number. */
void bench_number(struct bench *bench, const char *id, const char *what, double value,
                  const char *unit, enum goal goal, double bound);
/* A point of the picture (bench/picture): what an acquisition costs when so many clients want it.
 */
void bench_point(struct bench *bench, const char *series, int clients, double us, double requests);
/* A line for people: what was skipped and why. */
void bench_note(struct bench *bench, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A server of the run's own for a case that is no contest. */
void bench_server(struct bench *bench, struct test_server *server, const char *const *args);

/* One round only: a test that all of it works, not a measurement.  What is no contest takes a small
 * size then and a second at most. */
bool bench_brief(const struct bench *bench);
int64_t bench_now_ns(void);    /* CLOCK_MONOTONIC */
int64_t bench_cpu_ns(int pid); /* CPU time of a process of ours, 0 = this one */
/* Commands that clients sent until now.  A server counts those that scripts run as well: where
 * scripts run, what is left out is every data command, so a contestant has scripts send all its
 * data commands, or runs no script at all. */
int64_t bench_requests(const struct test_server *server);
/* Say what went wrong and end the run: a figure from a broken run is none. */
_Noreturn void bench_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A case: bench/case_NAME.c defines case_NAME and main.c lists it. */
struct bench_case {
	const char *name; /* make bench T=NAME */
	const char *what;
	void (*run)(struct bench *bench);
};

extern const struct bench_case case_pair;      /* acquire+release alone; server CPU; reentry */
extern const struct bench_case case_threads;   /* N threads, N names, one client */
extern const struct bench_case case_contended; /* P processes, one name */
extern const struct bench_case case_local;     /* threads of one process, one name */
extern const struct bench_case case_semaphore; /* as pair and contended */
extern const struct bench_case case_latch;     /* a thousand are released */
extern const struct bench_case case_held;      /* 10,000 held locks */
extern const struct bench_case case_counters;  /* what counting costs */
extern const struct bench_case case_command;   /* latchkey lock x -- true */

#endif
