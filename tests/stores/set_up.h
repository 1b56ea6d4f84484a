/* SPDX-License-Identifier: MIT
 * The common start of the tests on any store. */
#ifndef STORES_SET_UP_H
#define STORES_SET_UP_H

#include "harness/handles.h"
#include "harness/noun.h"
#include "harness/process.h"
#include "harness/test.h"
#include "harness/test_store.h"

#include <string.h>

#define STORE_HAS(needs) (!((unsigned)(needs) & ~STORE.has))
/* A test that needs this of the store. */
#define TEST_STORE(name, seconds, needs) TEST_IF(name, seconds, STORE_HAS(needs))

/* A test of what each noun with holds promises: TEST_NOUN(x, 20, 0) { ... } uses the argument
 * noun, and is x:lock and x:semaphore. */
#define TEST_NOUN(name, seconds, needs)                                                            \
	static void name(const struct noun *noun);                                                 \
	TEST_ROW(name##_lock, #name ":lock", seconds, STORE_HAS(STORE_LOCKS | (needs)))            \
	{                                                                                          \
		name(&noun_lock);                                                                  \
	}                                                                                          \
	TEST_ROW(name##_semaphore, #name ":semaphore", seconds,                                    \
	         STORE_HAS(STORE_SEMAPHORES | (needs)))                                            \
	{                                                                                          \
		name(&noun_semaphore);                                                             \
	}                                                                                          \
	static void name(const struct noun *noun)

static const char *url;
static struct redis *redis; /* NULL if the store has no keys to look at */

/* Start a store, a connection to look at its keys, and a client. */
static inline lk_client *set_up(void)
{
	url = STORE.start();
	redis = STORE.look();
	return client_at(url);
}

/* The lease in the store of a handle that asks for that one, which is not renewed or is. */
static inline int64_t lease_of(int64_t lease_ms)
{
	return lease_ms < STORE.least_lease_ms ? STORE.least_lease_ms : lease_ms;
}

/* Return when the client that holds the name gets the messages about it: then it learns of a break
 * at once. */
static inline void await_hearing(lk_client *client, const char *name)
{
	ck_assert(!STORE.hears || WITHIN(2000, STORE.hears(lk_client_id(client), name)));
}

/* There is no hold of "a" and no wait for it. */
static inline bool is_at_rest(const struct noun *noun, void *handle)
{
	lk_lock_status status = noun_status(noun, handle);

	return !status.held && !status.queue_len && (!redis || noun->at_rest(redis, "a"));
}

#endif
