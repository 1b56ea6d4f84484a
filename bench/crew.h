/* SPDX-License-Identifier: MIT
 * Threads of one contestant: parked between turns, all at work within one. */
#ifndef BENCH_CREW_H
#define BENCH_CREW_H

#include <stdint.h>

struct crew;

/* What thread number does until the clock shows until_ns; how many operations it did. */
typedef int64_t crew_fn(void *arg, int number, int64_t until_ns);

struct crew *crew_start(int count, crew_fn *fn, void *arg);
/* Let all work; the sum of what they did. */
int64_t crew_turn(struct crew *crew, int64_t until_ns);
void crew_stop(struct crew *crew);

#endif
