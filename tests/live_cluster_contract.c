/* SPDX-License-Identifier: MIT
 * The contract of each noun in a Cluster: the calls and their results.  Order, losses and costs do
 * not depend on how the master was found: live_contract has them. */
#include "harness/cluster_store.h"

#define STORE store_in_cluster
#include "stores/hold.h"
#include "stores/latch.h"
#include "stores/lock.h"
#include "stores/semaphore.h"

CLUSTER_STORE_SHARED
