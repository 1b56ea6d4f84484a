/* SPDX-License-Identifier: MIT
 * Clients, locks and semaphores of a test in one line each.  Whatever is not the subject of the
 * test must succeed. */
#ifndef HANDLES_H
#define HANDLES_H

#include <check.h>
#include <latchkey.h>

#include <stdlib.h>

/* Assert that err is the expected one; a failure shows the names of both and the detail. */
#define EXPECT(call, expected)                                                                     \
	do {                                                                                       \
		lk_err expect_err_ = (call);                                                       \
		ck_assert_msg(expect_err_ == (expected), "%s is %s, not %s: %s", #call,            \
		              lk_err_name(expect_err_), #expected, lk_errmsg());                   \
	} while (0)
#define OK(call) EXPECT(call, LK_OK)
/* The same for tests that count each system call and allocation: Check's assertions make some. */
#define DO(call)                                                                                   \
	do {                                                                                       \
		if ((call) != LK_OK)                                                               \
			abort();                                                                   \
	} while (0)

static inline lk_client *client_with(const char *url, const lk_client_options *options)
{
	lk_client *client = NULL;

	OK(lk_client_open(url, options, &client));
	return client;
}

static inline lk_client *client_at(const char *url)
{
	return client_with(url, NULL);
}

static inline lk_lock *lock_with(lk_client *client, const char *name,
                                 const lk_lock_options *options)
{
	lk_lock *lock = NULL;

	OK(lk_lock_open(client, name, 0, options, &lock));
	return lock;
}

static inline lk_lock *lock_named(lk_client *client, const char *name)
{
	return lock_with(client, name, NULL);
}

/* A lock with a lease of that many milliseconds. */
static inline lk_lock *lock_leased(lk_client *client, const char *name, int64_t lease_ms)
{
	lk_lock_options options = {.lease_ms = lease_ms};

	return lock_with(client, name, &options);
}

static inline lk_semaphore *semaphore_with(lk_client *client, const char *name,
                                           const lk_semaphore_options *options)
{
	lk_semaphore *semaphore = NULL;

	OK(lk_semaphore_open(client, name, 0, options, &semaphore));
	return semaphore;
}

/* A semaphore with that many permits and a lease of that many milliseconds, 0 = the default. */
static inline lk_semaphore *semaphore_of(lk_client *client, const char *name, int64_t capacity,
                                         int64_t lease_ms)
{
	lk_semaphore_options options = {.capacity = capacity, .lease_ms = lease_ms};

	return semaphore_with(client, name, &options);
}

/* Acquire permits; the hold. */
static inline uint64_t permits_of(lk_semaphore *semaphore, int64_t permits, int64_t wait_ms)
{
	uint64_t hold = 0;

	OK(lk_semaphore_acquire(semaphore, permits, wait_ms, &hold));
	ck_assert_uint_ne(hold, 0);
	return hold;
}

/* The snapshot of the caller's hold on the lock; of that hold of the semaphore. */
static inline lk_hold hold_of(lk_lock *lock)
{
	lk_hold hold;

	OK(lk_lock_snapshot(lock, &hold));
	return hold;
}

static inline lk_hold hold_in(lk_semaphore *semaphore, uint64_t hold_fence)
{
	lk_hold hold;

	OK(lk_semaphore_snapshot(semaphore, hold_fence, &hold));
	return hold;
}

#endif
