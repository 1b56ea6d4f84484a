/* SPDX-License-Identifier: MIT
 * Replicas of a contest's server. */
#ifndef BENCH_ATTACH_H
#define BENCH_ATTACH_H

#include "harness/server.h"

/* Start that many replicas, and wait until all confirm what the master executes. */
void replicas_attach(const struct test_server *master, struct test_server *replicas, int count);
void replicas_stop(struct test_server *replicas, int count);
/* For a contest's server_args: replicas are in sync sooner. */
extern const char *const replicas_soon[];

#endif
