/* SPDX-License-Identifier: MIT
 * A quorum as a store for the tests in tests/stores.  It has locks only; its servers are restarted
 * by tests of its own, since each is young for the longest lease afterwards. */
#ifndef QUORUM_STORE_H
#define QUORUM_STORE_H

#include "test_store.h"

extern const struct test_store store_on_quorum;

#endif
