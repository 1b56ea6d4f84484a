/* SPDX-License-Identifier: MIT
 * Commands as contestants: each operation runs one to its end.  A failure ends the run. */
#ifndef BENCH_JOB_H
#define BENCH_JOB_H

#include "bench.h"

#define JOB_WORDS 12

/* Copy the words, NULL-ended, and run the command once. */
void *job_make(const char *const *words);
#define JOB(...) job_make((const char *const[]){__VA_ARGS__, NULL})
void job_run(void *job);
/* Of all commands of this process, too. */
int64_t job_cpu_ns(void *job);
void job_close(void *job);
/* How much longer a run of contestant a takes than a run of b. */
struct spread longer_ms(const struct result *result, int a, int b);

#endif
