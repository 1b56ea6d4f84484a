/* SPDX-License-Identifier: MIT
 * The store in one Redis server. */
#ifndef LK__REDIS_STORE_H
#define LK__REDIS_STORE_H

#include "../store.h"

extern const struct lk__store_ops lk__redis_store;

#endif
