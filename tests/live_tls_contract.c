/* SPDX-License-Identifier: MIT
 * The contract of each noun on a redis-server over TLS. */
#include "harness/tls_store.h"

#define STORE store_over_tls
#include "stores/all.h"
