/* SPDX-License-Identifier: MIT
 * The semaphore's contract on a real server. */
#define STORE store_on_server

#include "stores/semaphore.h"
