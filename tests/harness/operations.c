/* SPDX-License-Identifier: MIT
 * The operations of one client, and what each may cost. */
#include "operations.h"

#include "handles.h"
#include "latch_watch.h"

static void *open_lock(lk_client *client)
{
	lk_lock *lock = lock_named(client, "a");

	OK(lk_lock_acquire(lock, 1000, NULL));
	OK(lk_lock_release(lock));
	return lock;
}

static void *open_held_lock(lk_client *client)
{
	lk_lock *lock = lock_named(client, "held");

	OK(lk_lock_acquire(lock, 1000, NULL));
	return lock;
}

static void use_lock(void *lock)
{
	for (int i = 0; i < OPERATIONS_EACH; i++) {
		DO(lk_lock_acquire(lock, i & 1 ? 0 : LK_FOREVER, NULL));
		DO(lk_lock_release(lock));
	}
}

static void extend_lock(void *lock)
{
	for (int i = 0; i < OPERATIONS_EACH; i++)
		DO(lk_lock_extend(lock, 10000));
}

static void *open_semaphore(lk_client *client)
{
	lk_semaphore *semaphore = semaphore_of(client, "s", 3, 0);

	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 1, 1000)));
	return semaphore;
}

static void use_semaphore(void *semaphore)
{
	uint64_t hold;

	for (int i = 0; i < OPERATIONS_EACH; i++) {
		DO(lk_semaphore_acquire(semaphore, 1 + i % 3, i & 1 ? 0 : 1000, &hold));
		DO(lk_semaphore_release(semaphore, hold));
	}
}

static void *open_latch(lk_client *client)
{
	lk_latch *latch = latch_named(client, "open");

	OK(lk_latch_set(latch, 0, NULL));
	OK(lk_latch_await(latch, 1000));
	return latch;
}

static void await_latch(void *latch)
{
	for (int i = 0; i < OPERATIONS_EACH; i++)
		DO(lk_latch_await(latch, i & 1 ? 0 : 1000));
}

static void *open_counting_latch(lk_client *client)
{
	lk_latch *latch = latch_named(client, "counting");

	OK(lk_latch_set(latch, 1000000, NULL));
	OK(lk_latch_down(latch, 1, NULL, 0, NULL));
	return latch;
}

static void count_down(void *latch)
{
	for (int i = 0; i < OPERATIONS_EACH; i++)
		DO(lk_latch_down(latch, 1, NULL, 0, NULL));
}

const struct operation operations[] = {
	{"pair of a lock", open_lock, use_lock, 2, 4}, /* a ticket, a hold, two responses */
	{"re-entry", open_held_lock, use_lock, 0, 0},
	{"extension", open_held_lock, extend_lock, 1, 1},
	{"pair of a semaphore", open_semaphore, use_semaphore, 2, 5}, /* also a queue entry */
	{"await", open_latch, await_latch, 1, 1},
	{"step", open_counting_latch, count_down, 1, 2}, /* the step, the response */
	{NULL, NULL, NULL, 0, 0},
};
