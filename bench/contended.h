/* SPDX-License-Identifier: MIT
 * What the contended cases have in common: 2 to 128 processes on one name. */
#ifndef BENCH_CONTENDED_H
#define BENCH_CONTENDED_H

#include "workers.h"

struct contended {
	const char *id, *what; /* "contended", "processes on one lock" */
	int permits;           /* so many have it at once */
	const struct work *ours;
	const struct work *bare;  /* the same protocol without Latchkey, NULL = none */
	const struct work *retry; /* the usual way, NULL = none */
	bool draw;                /* these are the points of the picture */
};

/* For each number of processes a contest, and its figures. */
void contended_run(struct bench *bench, const struct contended *contended);

#endif
