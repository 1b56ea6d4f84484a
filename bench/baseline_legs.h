/* SPDX-License-Identifier: MIT
 * Latchkey's protocol for a contended lock on a quorum without Latchkey: the same scripts and
 * messages by bare hiredis.  Time that this takes, too, is that of the servers and the machine. */
#ifndef BASELINE_LEGS_H
#define BASELINE_LEGS_H

#include "bench.h"

struct legs; /* two connections to each server; one process at a time */

/* The index distinguishes processes that share a name. */
struct legs *legs_open(const struct test_server *servers, int count, const char *name, int index);
void legs_close(void *legs);
/* Waits as long as it takes: true. */
bool legs_acquire(void *legs, int64_t until_ns);
void legs_release(void *legs);

#endif
