/* SPDX-License-Identifier: MIT
 * A service of Sentinel as a store for the tests in tests/stores.  It is started once a program,
 * and empty for each test; a program that uses it calls sentinel_store_share() before main(). */
#ifndef SENTINEL_STORE_H
#define SENTINEL_STORE_H

#include "test_store.h"

extern const struct test_store store_by_sentinel;

/* Let the program start the service before its first test, and end it with the program. */
void sentinel_store_share(void);

#define SENTINEL_STORE_SHARED                                                                      \
	__attribute__((constructor)) static void share_store(void)                                 \
	{                                                                                          \
		sentinel_store_share();                                                            \
	}

#endif
