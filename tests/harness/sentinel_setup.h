/* SPDX-License-Identifier: MIT
 * A real service of Sentinel: a master, two replicas and three sentinels, each in a folder of its
 * own, ended with the process that started them, however that ends.  It is ready in 2 to 3 s, the
 * time in which sentinels find each other. */
#ifndef SENTINEL_SETUP_H
#define SENTINEL_SETUP_H

#include "proxy.h"
#include "server.h"

#include <stdbool.h>
#include <stdint.h>

#define SETUP_SERVERS 3
#define SETUP_SENTINELS 3
#define SETUP_SERVICE "main"
#define SETUP_DOWN_AFTER_MS 1000
#define SETUP_FAILOVER_MS 12000 /* far more than a failover takes */

/* All of a struct test_server works for a sentinel, too: server_kill(), server_pause(),
 * server_resume(), redis_open(); sentinel_setup_restart() instead of server_restart(). */
struct sentinel_setup {
	struct test_server servers[SETUP_SERVERS]; /* the first one is the first master */
	struct test_server sentinels[SETUP_SENTINELS];
	char url[128]; /* redis+sentinel://127.0.0.1:p1,127.0.0.1:p2,127.0.0.1:p3/main */
	char password[40];
	int down_after_ms;
	int first_port; /* by which the first server is known */
};

struct sentinel_setup_options {
	int down_after_ms;             /* 0 = SETUP_DOWN_AFTER_MS */
	const char *sentinel_password; /* of the sentinels, NULL = none */
	const char *const *args;       /* of each server, NULL-ended; NULL = none */
	/* The replicas, the sentinels and their clients reach the first server through this proxy,
	 * which is started here and ends with the test; NULL = directly. */
	struct proxy *way;
};

/* Start all, and wait until each sentinel knows both replicas, which are in sync, and both other
 * sentinels; options may be NULL.  Fails the test on an error. */
void sentinel_setup_start(struct sentinel_setup *setup,
                          const struct sentinel_setup_options *options);
void sentinel_setup_stop(struct sentinel_setup *setup);
/* Start a killed sentinel again; it remembers what it knew. */
void sentinel_setup_restart(struct sentinel_setup *setup, int sentinel);

/* The index of the server that this sentinel names, -1 if none. */
int sentinel_setup_named(const struct sentinel_setup *setup, int sentinel);
/* The same, if all sentinels that run agree; else -1. */
int sentinel_setup_master(const struct sentinel_setup *setup);
/* Does the server say that it is a master? */
bool sentinel_setup_is_master(const struct sentinel_setup *setup, int server);
/* Let the sentinels begin a planned failover. */
void sentinel_setup_failover(const struct sentinel_setup *setup);
/* Wait until all sentinels that run name another server than that one; its index. */
int sentinel_setup_await_switch(const struct sentinel_setup *setup, int old_master);
/* Wait until the replicas have all that the master has executed. */
void sentinel_setup_await_sync(const struct sentinel_setup *setup, int master);
/* The replicas receive nothing from now on: they are stopped, and their links cut.  If they run
 * again (server_resume()) after the death of the master, what it executed meanwhile is lost. */
void sentinel_setup_cut_replicas(struct sentinel_setup *setup, int master);

#endif
