/* SPDX-License-Identifier: MIT
 * Bare hiredis sending the two scripts of a semaphore: acquire + release of one permit. */
#ifndef BASELINE_PERMITS_H
#define BASELINE_PERMITS_H

#include "bench.h"

struct permits; /* one connection; one thread at a time */

struct permits *permits_open(const struct test_server *server, const char *name, int capacity);
void permits_close(void *permits);
void permits_pair(void *permits);

#endif
