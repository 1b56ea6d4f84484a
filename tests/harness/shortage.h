/* SPDX-License-Identifier: MIT
 * Make the library's n-th request to the system fail, for each n that a use of everything reaches.
 * A test wraps the functions that shall fail (--wrap), and asks shortage_strikes(). */
#ifndef SHORTAGE_H
#define SHORTAGE_H

#include <stdatomic.h>
#include <stdbool.h>

struct shortage {
	atomic_int left;     /* the request that fails: 1 is the next one, 0 = none any more */
	atomic_int failures; /* requests so far */
	bool for_good;       /* so far */
	bool harmless;       /* the failure must have no effect: every call succeeds all the same */
	bool misreported;    /* as a bad certificate or file, which OpenSSL does */
	int step;            /* from one tried n to the next; LK_LONG=1 tries each */
};

/* Must this request fail?  Never one of the test's own thread outside a call of the library: the
 * test itself needs memory and sockets. */
bool shortage_strikes(struct shortage *shortage);

/* Use locks, permits and latches by a client of that URL (of the running server) with the first
 * request failing, then with the second, until no request is left.  Each call must succeed or
 * return an error, the result must agree with the store, and no key, descriptor or thread may be
 * left.  At least so many requests must have failed. */
struct test_server;
void shortage_everywhere(const struct test_server *server, const char *url,
                         struct shortage *shortage, int least);

#endif
