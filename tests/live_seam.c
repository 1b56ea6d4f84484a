/* SPDX-License-Identifier: MIT
 * The seam: the threads, the state machines and the public calls over a store that is no Redis and
 * no server. */
#define STORE store_in_memory

#include "stores/fifo.h"
#include "stores/lock.h"
