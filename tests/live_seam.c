/* SPDX-License-Identifier: MIT
 * The seam of src/store.h: the contract of each noun over the scripts in this process, without a
 * server. */
#define STORE store_in_process
#include "stores/all.h"
