/* SPDX-License-Identifier: MIT
 * One worker: takes a batch, counts it, and merges the counts under the lock.  It trusts nobody,
 * not even itself: that the lock was lost meanwhile is for the file to notice, by the fence. */
#include "demo.h"

#include <errno.h>
#include <latchkey.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#if !defined(MSG_NOSIGNAL)
#define MSG_NOSIGNAL 0
#endif

bool channel_send(int fd, const void *message, size_t size)
{
	const char *bytes = message;
	ssize_t put;

	for (; size > 0; bytes += put, size -= (size_t)put) {
		do
			put = send(fd, bytes, size, MSG_NOSIGNAL);
		while (put < 0 && errno == EINTR);
		if (put <= 0)
			return false;
	}
	return true;
}

bool channel_receive(int fd, void *message, size_t size)
{
	char *bytes = message;
	ssize_t got;

	for (; size > 0; bytes += got, size -= (size_t)got) {
		do
			got = recv(fd, bytes, size, 0);
		while (got < 0 && errno == EINTR);
		if (got <= 0)
			return false;
	}
	return true;
}

/* Says that the lock is held and does not go on before it is told to.  The supervisor kills or
 * stops us here, so that it happens for sure while we hold it. */
static bool pause_holding(int channel, struct note *note)
{
	struct order order;

	note->kind = HOLDING;
	return channel_send(channel, note, sizeof(*note)) &&
	       channel_receive(channel, &order, sizeof(order));
}

/* One attempt.  False when this worker cannot go on. */
static bool merge_once(const struct demo *demo, int channel, lk_lock *lock, struct order *order,
                       const struct word *words, size_t count, struct note *note)
{
	char new_path[PATH_SIZE];
	int64_t start_us = now_us();

	memset(note, 0, sizeof(*note));
	note->batch = order->batch;
	snprintf(new_path, sizeof(new_path), "%.*s.%ld", (int)sizeof(new_path) - 24, demo->shared,
	         (long)getpid());
	if (lock) {
		if (lk_lock_acquire(lock, LK_FOREVER) != LK_OK)
			return complain("cannot acquire the lock", lk_errmsg());
		note->fence = lk_lock_fence(lock);
		note->wait_us = now_us() - start_us;
	}
	note->outcome =
		shared_prepare(demo->shared, new_path, note->fence, order->batch, words, count);
	if (order->pause && !pause_holding(channel, note))
		return false;
	order->pause = false;
	if (note->outcome == MERGED)
		note->outcome = shared_commit(demo->shared, new_path, note->fence);
	if (lock) {
		lk_err err = lk_lock_release(lock);

		note->lost = err == LK_ELOST;
		if (err != LK_OK && err != LK_ELOST && err != LK_EUNKNOWN)
			return complain("cannot release the lock", lk_errmsg());
	}
	note->kind = DONE;
	return note->outcome != FAILED;
}

static bool do_batch(const struct demo *demo, int channel, lk_lock *lock, struct words *words,
                     struct order *order)
{
	const struct word *sorted;
	struct note note;
	size_t count;

	words_clear(words);
	for (size_t i = (size_t)order->batch; i < demo->path_count; i += (size_t)demo->batch_count)
		if (!words_count_file(words, demo->paths[i]))
			return complain(demo->paths[i], "cannot be counted");
	sorted = words_sorted(words, &count);
	if (!sorted)
		return complain("out of memory", "sorting");
	/* Refused: what we read was old.  Once more, from the start, under a new hold. */
	do {
		if (!merge_once(demo, channel, lock, order, sorted, count, &note) ||
		    !channel_send(channel, &note, sizeof(note)))
			return false;
	} while (note.outcome == REFUSED);
	return true;
}

static bool work(const struct demo *demo, int channel, lk_lock *lock)
{
	struct note ready = {.kind = READY, .batch = -1};
	struct words *words = words_new();
	struct order order;
	bool ok = words && channel_send(channel, &ready, sizeof(ready));

	while (ok && (ok = channel_receive(channel, &order, sizeof(order))) &&
	       order.kind == DO_BATCH)
		ok = do_batch(demo, channel, lock, words, &order);
	words_free(words);
	return ok;
}

int worker_run(const struct demo *demo, int channel)
{
	lk_lock_options options = {.lease_ms = LEASE_MS};
	lk_client *client = NULL;
	lk_lock *lock = NULL;
	bool ok;

	if (demo->locked && (lk_client_open("local:", NULL, &client) != LK_OK ||
	                     lk_lock_open(client, "demo/counts", &options, &lock) != LK_OK)) {
		complain("cannot open the lock", lk_errmsg());
		lk_client_close(client);
		return 1;
	}
	ok = work(demo, channel, lock);
	lk_client_close(client);
	return ok ? 0 : 1;
}
