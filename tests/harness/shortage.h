/* SPDX-License-Identifier: MIT
 * The n-th time that the library asks the system for something, it fails: for every n that a use of
 * everything comes to.  A test wraps what it wants to fail (--wrap), and asks shortage_strikes().
 */
#ifndef SHORTAGE_H
#define SHORTAGE_H

#include <stdatomic.h>
#include <stdbool.h>

struct shortage {
	atomic_int left;     /* which request fails: 1 is the next one, 0 none any more */
	atomic_int failures; /* so far */
	bool for_good;       /* and all after it */
	bool harmless;       /* nothing may come of it: every call does its work all the same */
	int step;            /* not each n, but each so manieth; LK_LONG=1 tries each */
};

/* This request fails.  Never one of the test's own thread while it is in no call of the library:
 * the test, too, needs memory and sockets. */
bool shortage_strikes(struct shortage *shortage);

/* Use locks, permits and latches by a client of that URL (of the server that runs) with the first
 * request failing, then with the second, until there is none any more.  Each call must do its work
 * or say why not, what it says must be true of the store, and no key, descriptor or thread may be
 * left. At least so many requests must have failed. */
struct test_server;
void shortage_everywhere(const struct test_server *server, const char *url,
                         struct shortage *shortage, int least);

#endif
