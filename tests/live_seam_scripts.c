/* SPDX-License-Identifier: MIT
 * The seam: semaphores and latches over the scripts in this process, without a server. */
#define STORE store_in_lua

#include "stores/latch.h"
#include "stores/semaphore.h"
