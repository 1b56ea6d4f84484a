/* SPDX-License-Identifier: MIT
 * The operations of one client that meets no other, a row each: the tests of their costs run them
 * all. */
#ifndef OPERATIONS_H
#define OPERATIONS_H

#include <latchkey.h>

#define OPERATIONS_EACH 48 /* in one run() */

struct operation {
	const char *name;
	void *(*open)(lk_client *client); /* and do it once: the server caches the scripts */
	void (*run)(void *handle);
	int requests;
	double allocations; /* at most */
};

extern const struct operation operations[]; /* name: NULL at the end */

#endif
