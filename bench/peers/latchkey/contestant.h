/* SPDX-License-Identifier: MIT
 * Latchkey as a contestant: state that its workers share, processes or threads. */
#ifndef CONTESTANT_H
#define CONTESTANT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum work { WORK_PAIRS, WORK_CONTEND, WORK_SEMAPHORE, WORK_LATCH, WORK_QUORUM };

struct turn {
	int64_t asked, granted, released;
};

/* In memory that all processes share. */
struct job {
	enum work work;
	char url[200];
	char name[256];
	int workers;
	int64_t length_ns, end_ns; /* end_ns is set before the start */
	/* All workers and the leader. */
	pthread_barrier_t step;
	_Atomic int asked;  /* in a round of a latch: workers that are about to await */
	int64_t opened;     /* just before its count-down */
	_Atomic bool over;  /* no more rounds */
	size_t room;        /* most turns of one worker */
	size_t *counts;     /* turns of each worker */
	struct turn *turns; /* `room` for each worker */
};

/* Set the URL, and make the quorum of these servers, which are new. */
void quorum_begin(struct job *job, const char *host, const char *ports);
/* Run a worker, from connecting to closing; a failure ends the program. */
void worker_run(struct job *job, int worker);
/* Lead all workers between "ready" and "done". */
void lead(struct job *job);

/* The work "failover", or "cluster", by processes, with the URL's grace or without one.  It runs
 * until the driver ends the program. */
_Noreturn void failover_run(bool cluster, bool grace, const char *host, const char *ports,
                            const char *name, int workers, double seconds);
/* Fork a worker; this process ends if the worker does so with an error. */
pid_t process_fork(void);
/* Memory that forked processes share. */
void *shared_memory(size_t size);

void meet(struct job *job); /* wait until all have called it */
/* Write a line and wait for the driver's. */
void say(const char *line);
int64_t now_ns(void);
void nap_ns(int64_t ns);

_Noreturn void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
