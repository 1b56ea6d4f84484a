/* SPDX-License-Identifier: MIT
 * The contract of each primitive on any store: see harness/test_store.h. */
#ifndef STORES_ALL_H
#define STORES_ALL_H

#include "stores/cost.h"
#include "stores/hold.h"
#include "stores/kind.h"
#include "stores/latch.h"
#include "stores/latch_cost.h"
#include "stores/lock.h"
#include "stores/loss.h"
#include "stores/order.h"
#include "stores/permits.h"
#include "stores/semaphore.h"

#endif
