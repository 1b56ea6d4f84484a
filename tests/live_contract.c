/* SPDX-License-Identifier: MIT
 * The contract of each noun on a redis-server. */
#define STORE store_on_server
#include "stores/all.h"
