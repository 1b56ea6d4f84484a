/* SPDX-License-Identifier: MIT
 * Threads of one contestant: parked between turns, all working within one. */
#ifndef BENCH_CREW_H
#define BENCH_CREW_H

#include <stdint.h>

struct crew;

/* Work as thread `number` until the clock shows until_ns; return the number of operations. */
typedef int64_t crew_fn(void *arg, int number, int64_t until_ns);

struct crew *crew_start(int count, crew_fn *fn, void *arg);
/* Run a turn of all threads; return the sum of their operations. */
int64_t crew_turn(struct crew *crew, int64_t until_ns);
void crew_stop(struct crew *crew);

#endif
