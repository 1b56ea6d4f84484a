/* SPDX-License-Identifier: MIT
 * The contract of each noun on a service of Sentinel: the calls and their results.  Order, losses
 * and costs do not depend on how the server was found: live_contract has them. */
#include "harness/sentinel_store.h"

#define STORE store_by_sentinel
#include "stores/hold.h"
#include "stores/latch.h"
#include "stores/lock.h"
#include "stores/semaphore.h"

SENTINEL_STORE_SHARED
