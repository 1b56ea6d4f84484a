/* SPDX-License-Identifier: MIT
 * The stores for the tests in tests/stores: a row for each.  A program names one and runs them:
 *
 *     #define STORE store_on_server
 *     #include "stores/all.h" */
#ifndef TEST_STORE_H
#define TEST_STORE_H

#include "redis.h"

/* What a test needs; a test that needs more than the store has is no part of the program. */
enum {
	STORE_LOCKS = 1,
	STORE_SEMAPHORES = 2,
	STORE_LATCHES = 4,
	STORE_KEYS = 8,    /* look() examines its keys */
	STORE_SHARED = 16, /* other processes reach it */
	STORE_DATABASES = 32,
	STORE_RESTARTS = 64,    /* restart() works */
	STORE_HANDS_OVER = 128, /* threads hand a lock over to each other without requests */
	STORE_PREFIXES = 512,   /* several prefixes can be used at once */
	STORE_FENCES = 256,     /* a query returns the holder's fence, and not a smaller one */
	STORE_SKIPS = 1024,     /* waiters whose connection is closed are skipped at once */
	STORE_QUICK = 2048,     /* ten thousand grants take seconds */
	STORE_CLOCK = 4096,     /* a query returns since when a hold lasts */
	STORE_OF_SERVER = STORE_LOCKS | STORE_SEMAPHORES | STORE_LATCHES | STORE_KEYS |
	                  STORE_SHARED | STORE_DATABASES | STORE_RESTARTS | STORE_HANDS_OVER |
	                  STORE_PREFIXES | STORE_FENCES | STORE_SKIPS | STORE_QUICK | STORE_CLOCK,
};

struct test_store {
	unsigned has;
	int64_t least_lease_ms; /* shorter ones of renewed holds are rounded up to it */
	/* Start an empty store, which ends with the test; returns its URL. */
	const char *(*start)(void);
	/* Start it again without its data; its connections end. */
	void (*restart)(void);
	/* Let it answer no request until it is resumed. */
	void (*pause)(bool on);
	/* A connection to examine its keys; NULL if it has none. */
	struct redis *(*look)(void);
	/* The number of executed requests of calls, of all clients. */
	long long (*requests)(void);
	/* Does the client get the messages about a name that it holds?  NULL = always. */
	bool (*hears)(const char *client_id, const char *name);
};

extern const struct test_store store_on_server;  /* a redis-server: test_store_server */
extern const struct test_store store_in_process; /* lua_seam.h: the scripts in this process */
extern struct test_server test_store_server;

#endif
