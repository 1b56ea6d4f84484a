/* SPDX-License-Identifier: MIT
 * Releasing the hold of a latchkey process that was killed, or whose release was not confirmed. */
#ifndef REMAINS_H
#define REMAINS_H

#include "options.h"
#include "store.h"

#include <stdint.h>

/* The hold to release. */
struct remains {
	const struct options *options;
	const struct store *store;
	const char *holder;    /* its id */
	int64_t keep_until_ns; /* --min-hold: not earlier */
	int64_t lease_ms;
};

/* Release it by its id, which no later hold can have.  Waits for --min-hold, then tries for one
 * lease at most, after which the hold has expired.  Call it in a process with nothing else to do:
 * it closes the descriptors that latchkey inherited, and TERM, INT, HUP and QUIT end it while it
 * waits. */
void remains_release(const struct remains *remains);

#endif
