/* SPDX-License-Identifier: MIT
 * Ten processes call a service that allows 200 calls in any two seconds: rate_limit [URL]
 *
 *   main    starts the server and the callers, and judges
 *   caller  a process: a permit, a call, a permit, a call
 *   server  the service, which writes down when each call came
 *
 * The limit is a semaphore of 200 permits with a fixed lease that nobody gives back: in any time
 * as long as the lease at most 200 are granted.  That is exact by the time of the grant, and the
 * service counts by the time of arrival.  A call that is granted at 0.00 s, is slow and arrives at
 * 0.05 s may meet those that are granted when its permit has come back, at 2.00 s, and arrive at
 * once: 1.95 s after it.
 *
 * So a permit must not come back before two seconds after the *arrival* of its call.  Nobody knows
 * that time beforehand.  But if no call arrives later than D after its grant, a lease of two
 * seconds plus D does it: the permit comes back at grant + D + 2 s, which is not before arrival + 2
 * s.  Each caller measures D at first, takes more than it has measured, and says in the end if a
 * call took longer all the same. */
#ifndef RATE_LIMIT_H
#define RATE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define LIMIT 200      /* calls ... */
#define WINDOW_MS 2000 /* ... in any time of this length, says the service */
#define CALLERS 10
#define CALLS 1000 /* of all callers together */

/* CLOCK_MONOTONIC. */
int64_t now_us(void);

/* ---- server.c */

/* Listen on a free port of the loopback; nothing is answered yet.  Returns a socket or -1. */
int server_listen(int *port);
/* Answer on a thread of the server. */
bool server_start(int listener);
void server_stop(void);
/* Calls that came (but for /warm-up), and the most of them in any time of window_us. */
int server_calls(void);
int server_most_calls(int64_t window_us);

/* ---- caller.c */
struct caller {
	int64_t measured_us; /* the longest warm-up */
	int64_t allowed_us;  /* by which the window was made longer */
	int64_t longest_us;  /* of the calls that count, from grant to answer */
};

/* Make that many calls, and tell how long they took. */
bool caller_run(const char *store, int port, int calls, struct caller *caller);

#endif
