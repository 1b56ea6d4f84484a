/* SPDX-License-Identifier: MIT
 * The contract of each noun on a redis-server over TLS: the calls and their results.  Order, losses
 * and costs do not depend on the bytes' way: live_contract has them. */
#include "harness/tls_store.h"

#define STORE store_over_tls
#include "stores/hold.h"
#include "stores/latch.h"
#include "stores/lock.h"
#include "stores/semaphore.h"
