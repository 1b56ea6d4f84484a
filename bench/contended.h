/* SPDX-License-Identifier: MIT
 * Shared by the contended cases: 2 to 128 processes on one name. */
#ifndef BENCH_CONTENDED_H
#define BENCH_CONTENDED_H

#include "workers.h"

struct contended {
	const char *id, *what; /* "contended", "processes on one lock" */
	const char *title;     /* of the figures, NULL = the id */
	int permits;           /* holders at once */
	const struct work *ours;
	const struct work *bare;  /* the same protocol without Latchkey, NULL = none */
	const struct work *retry; /* the usual lock over Redis, NULL = none */
	bool draw;                /* into the picture */
	/* Zero or NULL: the values of a lock on one server. */
	int rounds;          /* the run's (ROUNDS) */
	int largest;         /* number of processes: 128 */
	double requests_max; /* goal, an acquisition: 2.1 */
	int longest_from;    /* the longest wait has a goal from that number of processes on: 2 */
	struct {
		int size; /* 128 */
		double ratio;
		bool or_bare; /* or the ratio of the control, if that is less */
	} few;                /* goal: rate of so many / rate of the fewest: 0.9 */
	/* Find the servers whose requests and CPU count, and return how many. */
	int (*servers)(bool of_bare, const struct test_server *all[SERVERS_MAX]);
};

/* Run a contest for each number of processes, and report its figures. */
void contended_run(struct bench *bench, const struct contended *contended);

#endif
