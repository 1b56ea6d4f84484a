/* SPDX-License-Identifier: MIT
 * The contract of a lock on etcd: the calls and their results, losses and the order of waiters.
 * What etcd has of its own is in live_etcd_lock. */
#include "harness/etcd_store.h"

SHARE_ETCD

#define STORE store_on_etcd
#include "stores/hold.h"
#include "stores/lock.h"
#include "stores/loss.h"
#include "stores/order.h"
