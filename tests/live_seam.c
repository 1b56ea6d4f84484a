/* SPDX-License-Identifier: MIT
 * The seam of src/store.h: each primitive over the scripts in this process, without a server. */
#define STORE store_in_lua

#include "stores/fifo.h"
#include "stores/latch.h"
#include "stores/lock.h"
#include "stores/semaphore.h"
