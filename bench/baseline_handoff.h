/* SPDX-License-Identifier: MIT
 * Latchkey's protocol for a contended lock without Latchkey: the same scripts and messages by bare
 * hiredis.  Time that this takes, too, is that of the server and the machine. */
#ifndef BASELINE_HANDOFF_H
#define BASELINE_HANDOFF_H

#include "bench.h"

struct handoff; /* two connections; one process at a time */

/* The index distinguishes processes that share a name. */
struct handoff *handoff_open(const struct test_server *server, const char *name, int index);
void handoff_close(void *handoff);
/* Waits as long as it takes: true. */
bool handoff_acquire(void *handoff, int64_t until_ns);
void handoff_release(void *handoff);

#endif
