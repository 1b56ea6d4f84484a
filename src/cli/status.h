/* SPDX-License-Identifier: MIT
 * The command's exit statuses; latchkey(1) lists them. */
#ifndef STATUS_H
#define STATUS_H

#include <latchkey.h>

enum {
	STATUS_OTHERWISE = 1, /* no: not held, another holder, no such latch, not running */
	STATUS_USAGE = 64,
	STATUS_STORE = 69, /* the store is unreachable or unusable */
	STATUS_SYSTEM = 71,
	STATUS_BUSY = 75, /* not acquired in time; -E replaces it */
	STATUS_LOST = 79,
	STATUS_CANNOT_RUN = 126,
	STATUS_NOT_FOUND = 127,
	STATUS_SIGNAL = 128, /* plus the signal's number */
};

/* The exit status for an error of the library. */
int status_of(lk_err err);

#endif
