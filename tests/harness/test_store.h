/* SPDX-License-Identifier: MIT
 * The stores for the tests in tests/stores, which need only features that each store has.  A
 * program names its store and includes them:
 *
 *     #define STORE store_on_server
 *     #include "stores/lock.h" */
#ifndef TEST_STORE_H
#define TEST_STORE_H

#include "redis.h"

struct test_store {
	/* Start an empty store, which ends with the test; returns its URL. */
	const char *(*start)(void);
	/* A connection to examine its keys; NULL if it has none. */
	struct redis *(*look)(void);
	/* The number of executed requests of calls, of all clients. */
	long long (*requests)(void);
};

extern const struct test_store store_on_server; /* a redis-server */
extern const struct test_store store_in_lua;    /* lua_seam.h: the scripts in this process */

#endif
