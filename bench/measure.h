/* SPDX-License-Identifier: MIT
 * Commands from clients, as well as a server can tell them from those of its scripts. */
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
/* What clients sent between the two: exact when no script ran meanwhile, or when clients sent no
 * data command beside their scripts. */
int64_t requests_between(const struct requests *before, const struct requests *after);

#endif
