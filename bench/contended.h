/* SPDX-License-Identifier: MIT
 * Shared by the contended cases: 2 to 128 processes on one name. */
#ifndef BENCH_CONTENDED_H
#define BENCH_CONTENDED_H

#include "workers.h"

struct contended {
	const char *id, *what; /* "contended", "processes on one lock" */
	int permits;           /* holders at once */
	const struct work *ours;
	const struct work *bare;  /* the same protocol without Latchkey, NULL = none */
	const struct work *retry; /* the usual lock over Redis, NULL = none */
	bool draw;                /* into the picture */
};

/* Run a contest for each number of processes, and report its figures. */
void contended_run(struct bench *bench, const struct contended *contended);

#endif
