/* SPDX-License-Identifier: MIT
 * The contract of a lock on a quorum of three servers: the calls and their results, losses and the
 * order of waiters.  What a quorum has of its own is in live_quorum. */
#include "harness/quorum_store.h"

#define STORE store_on_quorum
#include "stores/hold.h"
#include "stores/lock.h"
#include "stores/loss.h"
#include "stores/order.h"
