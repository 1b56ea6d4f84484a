/* SPDX-License-Identifier: MIT
 * Everything that locks, semaphores and latches do, by two clients. */
#include "everything.h"

#include "latch_watch.h"
#include "process.h"
#include "test.h"

#include <pthread.h>
#include <string.h>

#define SOON_MS 10000 /* for what comes at once on a machine that is not loaded */

struct wait {
	lk_lock *lock;
	lk_err err;
};

static void *acquire(void *arg)
{
	struct wait *wait = arg;

	wait->err = lk_lock_acquire(wait->lock, 2 * SOON_MS, NULL);
	if (!wait->err)
		wait->err = lk_lock_release(wait->lock);
	return NULL;
}

static bool queued(lk_lock *lock)
{
	lk_lock_status status;

	return lk_lock_query(lock, &status) || status.queue_len == 1;
}

/* The waiter's client knows that it waits, and therefore queries its rank. */
static bool ranked(lk_lock *lock, lk_err *err)
{
	lk_lock_status status;

	return (*err = lk_lock_query(lock, &status)) || status.my_rank == 0;
}

/* Return the first failure; *step names the step that failed. */
static lk_err use_locks(lk_lock *mine, lk_lock *other, const char **step)
{
	struct wait wait = {.lock = other};
	lk_lock_status status;
	lk_party party;
	pthread_t thread;
	size_t count;
	lk_err err;

	*step = "acquire";
	if ((err = lk_lock_acquire(mine, SOON_MS, NULL)))
		return err;
	*step = "extend";
	if ((err = lk_lock_extend(mine, 20000)))
		return err;
	*step = "try";
	if ((err = lk_lock_acquire(other, 0, NULL)) != LK_EBUSY)
		return err;
	ck_assert_int_eq(pthread_create(&thread, NULL, acquire, &wait), 0);
	*step = "query";
	if (!(err = lk_lock_query(mine, &status)) && !WITHIN(SOON_MS, queued(mine)))
		err = LK_EUNKNOWN;
	*step = err ? *step : "waiters";
	if (!err)
		err = lk_lock_waiters(mine, 1, &party, &count);
	*step = err ? *step : "rank";
	if (!err && !WITHIN(SOON_MS, ranked(other, &err)))
		err = LK_EUNKNOWN;
	*step = err ? *step : "release";
	if (!err)
		err = lk_lock_release(mine);
	if (err && lk_lock_release(mine)) /* it may not wait yet */
		lk_lock_cancel(other);
	pthread_join(thread, NULL);
	*step = err ? *step : "hand-off";
	if (err || (err = wait.err))
		return err;
	*step = "break";
	if ((err = lk_lock_acquire(other, SOON_MS, NULL)) || (err = lk_lock_break(mine, NULL)))
		return err;
	ck_assert(WITHIN(SOON_MS, lk_lock_state(other) == LK_STATE_LOST));
	EXPECT(lk_lock_release(other), LK_ELOST);
	return LK_OK;
}

static lk_err use_semaphores(lk_client *client, lk_client *other, const char **step)
{
	const lk_semaphore_options options = {.capacity = 3};
	lk_semaphore *semaphore, *theirs;
	lk_semaphore_status status;
	lk_ticket permits;
	uint64_t hold, more, third;
	size_t count;
	lk_err err;

	*step = "semaphore";
	err = lk_semaphore_open(client, "s", 0, &options, &semaphore);
	if (err == LK_EUNSUPPORTED)
		return LK_OK;
	if (err || (err = lk_semaphore_open(other, "s", 0, &options, &theirs)) ||
	    (err = lk_semaphore_acquire(semaphore, 3, 1000, &hold)) ||
	    (err = lk_semaphore_extend(semaphore, hold, 20000)))
		return err;
	if ((err = lk_semaphore_acquire(theirs, 1, 50, &more)) != LK_ETIMEDOUT)
		return err ? err : LK_EUNKNOWN;
	if ((err = lk_semaphore_release_some(semaphore, hold, 2)) ||
	    (err = lk_semaphore_acquire(theirs, 1, 1000, &more)) ||
	    (err = lk_semaphore_acquire(theirs, 1, 1000, &third)) ||
	    (err = lk_semaphore_release(theirs, third)) ||
	    (err = lk_semaphore_query(semaphore, &status)) ||
	    (err = lk_semaphore_holders(semaphore, 1, &permits, &count)) ||
	    (err = lk_semaphore_waiters(semaphore, 1, &permits, &count)) ||
	    (err = lk_semaphore_release(theirs, more)) ||
	    (err = lk_semaphore_resize(semaphore, 4)) ||
	    (err = lk_semaphore_resize(semaphore, 3)) || (err = lk_semaphore_break(theirs, NULL)))
		return err;
	return LK_OK;
}

static lk_err use_latches(lk_client *client, lk_client *other, const char **step)
{
	lk_latch *latch, *theirs;
	lk_latch_status status;
	lk_kind kind;
	lk_err err;

	*step = "latch";
	err = lk_latch_open(client, "l", 0, NULL, &latch);
	if (err)
		return err == LK_EUNSUPPORTED ? LK_OK : err;
	theirs = latch_named(other, "l");
	if ((err = lk_latch_reset(latch, 3, NULL)) ||
	    (err = lk_latch_down(latch, 1, "x", 0, NULL)) ||
	    (err = lk_latch_query(theirs, &status)))
		return err;
	if ((err = lk_latch_await(theirs, 50)) != LK_ETIMEDOUT)
		return err ? err : LK_EUNKNOWN;
	*step = "kind";
	if ((err = lk_client_name_kind(client, "l", 0, &kind)))
		return err;
	*step = "open latch";
	if ((err = lk_latch_down(theirs, 2, NULL, 0, NULL)) ||
	    (err = lk_latch_await(latch, 1000)) || (err = lk_latch_remove(latch)))
		return err;
	return LK_OK;
}

lk_err use_everything(const char *url, const char **step)
{
	const lk_client_options options = {.user = "latchkey", .password = "SECRET"};
	lk_client *clients[2];
	lk_err err;

	*step = "open";
	if ((err = lk_client_open(url, &options, &clients[0])))
		return err;
	clients[1] = client_with(url, &options);
	err = use_locks(lock_named(clients[0], "a b"), lock_named(clients[1], "a b"), step);
	if (!err)
		err = use_semaphores(clients[0], clients[1], step);
	if (!err)
		err = use_latches(clients[0], clients[1], step);
	lk_client_close(clients[1]);
	lk_client_close(clients[0]);
	return err;
}
