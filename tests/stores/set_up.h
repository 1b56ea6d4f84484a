/* SPDX-License-Identifier: MIT
 * The common start of the tests on any Redis. */
#ifndef STORES_SET_UP_H
#define STORES_SET_UP_H

#include "harness/handles.h"
#include "harness/process.h"
#include "harness/test.h"
#include "harness/test_store.h"

static const char *url;
static struct redis *redis;

/* Start a store, a connection to look at its keys, and a client. */
static lk_client *set_up(void)
{
	url = STORE.start();
	redis = STORE.look();
	return client_at(url);
}

#endif
