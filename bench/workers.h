/* SPDX-License-Identifier: MIT
 * Workers: processes or threads that begin a turn all at once and sleep outside of it. */
#ifndef BENCH_WORKERS_H
#define BENCH_WORKERS_H

#include "bench.h"

/* Waits by their length: eight steps from one power of two to the next. */
#define WAIT_STEPS 320

/* The work of one worker in a turn, or of all. */
struct tally {
	int64_t ops;
	int64_t waits; /* without a worker's first, during which the queue still forms */
	int64_t wait_sum_ns, wait_max_ns;
	int64_t passed_sum, passed_max; /* grants of others while it waited: no clock in it */
	int64_t fewest, most;           /* operations of one worker */
	int64_t start_ns, end_ns;       /* of the turn's first and last operation */
	int32_t by_length[WAIT_STEPS];
};

/* The quantile (0.99) of the waits, ns, to the resolution of their steps; 0 without waits. */
double tally_wait_ns(const struct tally *tally, double share);

/* The order for a turn. */
struct order {
	int64_t until_ns;
	int number; /* an argument of the work */
};

/* The work of one worker.  A failure ends the run by bench_fail(). */
struct work {
	void *(*open)(const struct stage *stage, int index);
	/* False if the turn ended first. */
	bool (*acquire)(void *self, int64_t until_ns);
	void (*release)(void *self);
	/* Runs instead of the loop of acquire and release. */
	void (*turn)(void *self, const struct order *order);
	void (*close)(void *self);
	int hold_us; /* asleep between acquire and release */
	int rest_us; /* asleep after release */
};

struct workers;

/* Start them; each opens its own.  The stage must outlive them. */
struct workers *workers_start(const struct stage *stage, const struct work *work, int count,
                              bool processes);
/* Share a count of grants with these: their waiters count the grants of both. */
void workers_share_grants(struct workers *workers, const struct workers *with);
/* Begin a turn; wait until it has ended for all. */
void workers_begin(struct workers *workers, const struct order *order);
void workers_await(struct workers *workers, struct tally *tally);
/* Wait until all have begun their turn, and a moment longer. */
void workers_line_up(const struct workers *workers);
/* CPU time of all, ns; processes only. */
int64_t workers_cpu_ns(const struct workers *workers);
void workers_end(struct workers *workers);

#endif
