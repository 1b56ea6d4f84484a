/* SPDX-License-Identifier: MIT
 * etcd as a store for the tests in tests/stores: one node for all tests of a program, each with a
 * prefix of its own. */
#ifndef ETCD_TEST_STORE_H
#define ETCD_TEST_STORE_H

#include "test_store.h"

extern const struct test_store store_on_etcd;

void etcd_store_share(void);

/* A line of the program's. */
#define SHARE_ETCD                                                                                 \
	__attribute__((constructor)) static void share_etcd(void)                                  \
	{                                                                                          \
		etcd_store_share();                                                                \
	}

#endif
