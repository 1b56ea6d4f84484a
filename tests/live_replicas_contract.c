/* SPDX-License-Identifier: MIT
 * The contract of each noun with a replica that must confirm each grant: the calls and their
 * results. */
#include "harness/replicated.h"

#define STORE store_with_replica
#include "stores/hold.h"
#include "stores/lock.h"
#include "stores/semaphore.h"
