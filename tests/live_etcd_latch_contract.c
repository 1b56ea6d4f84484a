/* SPDX-License-Identifier: MIT
 * The contract of a latch on etcd.  What etcd has of its own is in live_etcd_latch. */
#include "harness/etcd_store.h"

SHARE_ETCD

#define STORE store_on_etcd
#include "stores/latch_cost.h"
