/* SPDX-License-Identifier: MIT
 * A real master with replicas that confirm what it executes. */
#ifndef REPLICATED_H
#define REPLICATED_H

#include "server.h"
#include "test_store.h"

#define REPLICATED_MAX 2

struct replicated {
	struct test_server master, replicas[REPLICATED_MAX];
	struct redis *redis; /* to the master */
	int count;
};

/* Start the master and so many replicas, and wait until all confirm a write. */
void replicated_start(struct replicated *replicated, int count);
/* Wait until all replicas have confirmed all that the master has executed. */
void replicated_sync(struct replicated *replicated);
void replicated_stop(struct replicated *replicated);
/* Stop the first ones of the replicas, so that they confirm nothing; let them run again. */
void replicated_pause(struct replicated *replicated, int count);
void replicated_resume(struct replicated *replicated, int count);

/* For tests/stores: a master whose only replica must confirm each grant. */
extern const struct test_store store_with_replica;

#endif
