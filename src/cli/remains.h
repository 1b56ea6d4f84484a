/* SPDX-License-Identifier: MIT
 * Releasing the hold of a latchkey that was killed. */
#ifndef REMAINS_H
#define REMAINS_H

#include "options.h"
#include "store.h"

#include <stdint.h>

/* What has to be known of the hold. */
struct remains {
	const struct options *options;
	const struct store *store;
	const char *holder;    /* its id */
	int64_t keep_until_ns; /* --min-hold: not earlier */
};

/* Release it by its id, which is that of no later hold.  Waits for --min-hold, then tries for one
 * lease at most, after which the hold has ended by itself.  For a process that has nothing else to
 * do: it closes the descriptors that latchkey was started with, and TERM, INT, HUP and QUIT end it
 * while it waits. */
void remains_release(const struct remains *remains);

#endif
