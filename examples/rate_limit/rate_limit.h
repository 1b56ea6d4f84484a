/* SPDX-License-Identifier: MIT
 * Ten processes call a service that allows 200 calls in any two seconds: rate_limit [URL]
 *
 *   main    starts the server and the callers, and judges the run
 *   caller  a process that sends calls, each with a permit
 *   server  the service, which records when each call arrives
 *
 * The limit is a semaphore of 200 permits with a fixed lease that are never released: in any time
 * as long as the lease, at most 200 are granted.  This is exact by the time of the grant, but the
 * service counts by the time of arrival.  Suppose that a call is granted at 0.00 s and arrives at
 * 0.05 s.  Its permit comes back at 2.00 s, and calls that are granted then and arrive at once
 * follow it after only 1.95 s.
 *
 * So a permit must not come back before two seconds after the *arrival* of its call.  This time is
 * not known in advance.  But if each call arrives within D after its grant, a lease of two seconds
 * plus D is enough: the permit comes back at grant + D + 2 s, which is not before arrival + 2 s.
 * Each caller measures D at the start, uses more than it has measured, and reports at the end if a
 * call took longer. */
#ifndef RATE_LIMIT_H
#define RATE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define LIMIT 200      /* calls */
#define WINDOW_MS 2000 /* in any time of this length */
#define CALLERS 10
#define CALLS 1000 /* of all callers together */

/* CLOCK_MONOTONIC. */
int64_t now_us(void);

/* ---- server.c */

/* Listen on a free port of the loopback, without answering yet.  Returns a socket or -1. */
int server_listen(int *port);
/* Answer calls in a thread of the server. */
bool server_start(int listener);
void server_stop(void);
/* Count the calls except those of /warm-up, and the most of them in any time of window_us. */
int server_calls(void);
int server_most_calls(int64_t window_us);

/* ---- caller.c */
struct caller {
	int64_t measured_us; /* the longest warm-up */
	int64_t allowed_us;  /* added to the window */
	int64_t longest_us;  /* of the calls that count, from grant to response */
};

/* Make that many calls, and report how long they took. */
bool caller_run(const char *store, int port, int calls, struct caller *caller);

#endif
