/* SPDX-License-Identifier: MIT
 * A Cluster as a store for the tests in tests/stores.  It is started once a program, and empty for
 * each test; a program that uses it says CLUSTER_STORE_SHARED. */
#ifndef CLUSTER_STORE_H
#define CLUSTER_STORE_H

#include "cluster_setup.h"
#include "test_store.h"

extern const struct test_store store_in_cluster;
extern const struct cluster_setup_options cluster_store_options;

#define CLUSTER_STORE_SHARED CLUSTER_SETUP_SHARED(&cluster_store_options)

#endif
