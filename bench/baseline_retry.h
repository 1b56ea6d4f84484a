/* SPDX-License-Identifier: MIT
 * The usual lock over Redis: SET NX PX by a script, a release publishes, and all waiters try
 * again.  Written as efficiently as we could. */
#ifndef BASELINE_RETRY_H
#define BASELINE_RETRY_H

#include "bench.h"

struct retry; /* two connections; one process or thread at a time */

struct retry *retry_open(const struct test_server *server, const char *name);
void retry_close(void *retry);
/* False if until_ns passed first. */
bool retry_acquire(void *retry, int64_t until_ns);
void retry_release(void *retry);

#endif
