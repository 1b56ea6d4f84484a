/* SPDX-License-Identifier: MIT
 * The clock of leases, and waiting on it. */
#ifndef CLOCK_H
#define CLOCK_H

#include <poll.h>
#include <signal.h>
#include <stdint.h>

#define MS INT64_C(1000000) /* nanoseconds */
#define NEVER INT64_MAX

/* CLOCK_BOOTTIME where the system has it: it advances while the machine sleeps, as leases do. */
int64_t clock_ns(void);

/* Wait until a descriptor is ready, a signal was handled, or the clock reaches deadline_ns.  fds[0]
 * is for the timer and is filled in here.  mask, if not NULL, applies during the wait.  A process
 * that was forked after the first call must not call it. */
void clock_wait(struct pollfd *fds, nfds_t count, int64_t deadline_ns, const sigset_t *mask);

#endif
