/* SPDX-License-Identifier: MIT
 * Commands from clients, as far as a server distinguishes them from those of its scripts. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "harness/server.h"

#include <stdint.h>

struct requests {
	int64_t all;             /* by clients and by scripts, without our own INFO */
	int64_t outside_scripts; /* without the data commands that scripts run */
	int64_t scripts;         /* EVAL and EVALSHA */
};

struct requests requests_of(const struct test_server *server);
/* Commands that clients sent between the two: exact if no script ran meanwhile, or if clients sent
 * no data command outside their scripts. */
int64_t requests_between(const struct requests *before, const struct requests *after);

#endif
