/* SPDX-License-Identifier: MIT
 * One worker: takes a batch, counts it with a permit to read, and merges the counts under the lock.
 * It does not check whether it has lost the lock: the file does this, by the fence. */
#include "demo.h"

#include <errno.h>
#include <latchkey.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#if !defined(MSG_NOSIGNAL)
#define MSG_NOSIGNAL 0
#endif

#define START_LIMIT_MS 30000
#define RECLAIM_LIMIT_MS 60000
#define LOOK_MS 5

/* The state of a worker.  Without the lock there is no store, and the three handles are NULL; of
 * the last two also what the store lacks. */
struct self {
	const struct demo *demo;
	int number; /* from 0 */
	int channel;
	struct words *words;
	int64_t permit_us; /* when the last permit was granted */
	lk_client *client;
	lk_lock *lock;
	lk_semaphore *readers;
	lk_latch *start;
};

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

/* Report that the lock is held, and wait for an order to continue.  The supervisor kills or stops
 * the worker here, so that this certainly happens while it holds the lock. */
static bool pause_holding(int channel, struct note *note)
{
	struct order order;

	note->kind = HOLDING;
	return channel_send(channel, note, sizeof(*note)) &&
	       channel_receive(channel, &order, sizeof(order));
}

static int reclaimed(const struct self *self)
{
	lk_counters counters = {0};

	return self->client && lk_client_counters(self->client, &counters) == LK_OK
	               ? (int)counters.reclaimed
	               : 0;
}

/* Wait until the hold is taken back from the new master.  If it is lost instead, the release
 * reports it. */
static bool await_reclaim(const struct self *self, int before, struct note *note)
{
	int64_t end_us = now_us() + RECLAIM_LIMIT_MS * 1000LL;

	while (reclaimed(self) == before && lk_lock_state(self->lock) != LK_STATE_LOST) {
		if (now_us() > end_us)
			return complain("the hold", "neither taken back nor lost");
		nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
	}
	note->kind = RECLAIMED;
	note->reclaimed = reclaimed(self);
	return note->reclaimed == before || channel_send(self->channel, note, sizeof(*note));
}

/* Try once to merge.  False if this worker cannot continue. */
static bool merge_once(const struct self *self, struct order *order, const struct word *words,
                       size_t count, struct note *note)
{
	const struct demo *demo = self->demo;
	lk_lock *lock = self->lock;
	char new_path[PATH_SIZE];
	int64_t start_us = now_us();
	int before;

	memset(note, 0, sizeof(*note));
	note->batch = order->batch;
	snprintf(new_path, sizeof(new_path), "%.*s.%ld", (int)sizeof(new_path) - 24, demo->shared,
	         (long)getpid());
	if (lock) {
		if (lk_lock_acquire(lock, LK_FOREVER, &note->fence) != LK_OK)
			return complain("cannot acquire the lock", lk_errmsg());
		note->grants_us[GRANT_LOCK] = now_us();
		note->grants_us[GRANT_PERMIT] = self->permit_us;
		note->wait_us = note->grants_us[GRANT_LOCK] - start_us;
	}
	before = reclaimed(self);
	note->outcome =
		shared_prepare(demo->shared, new_path, note->fence, order->batch, words, count);
	if (order->pause && !pause_holding(self->channel, note))
		return false;
	if (order->reclaim && !await_reclaim(self, before, note))
		return false;
	order->pause = order->reclaim = false;
	if (note->outcome == MERGED)
		note->outcome = shared_commit(demo->shared, new_path, note->fence);
	if (lock) {
		lk_err err = lk_lock_release(lock);

		note->lost = err == LK_ELOST;
		if (err != LK_OK && err != LK_ELOST && err != LK_EUNKNOWN)
			return complain("cannot release the lock", lk_errmsg());
	}
	note->kind = DONE;
	note->reclaimed = reclaimed(self);
	return note->outcome != FAILED;
}

static bool count_batch(const struct self *self, int batch)
{
	const struct demo *demo = self->demo;

	words_clear(self->words);
	for (size_t i = (size_t)batch; i < demo->path_count; i += (size_t)demo->batch_count)
		if (!words_count_file(self->words, demo->paths[i]))
			return complain(demo->paths[i], "cannot be counted");
	return true;
}

/* Read files with a permit of the semaphore.  The loss of a permit does no harm here: the files do
 * not change, and the meter detects too many readers. */
static bool read_batch(struct self *self, int batch)
{
	uint64_t hold = 0;
	lk_err err;
	bool ok;

	if (self->readers && lk_semaphore_acquire(self->readers, 1, LK_FOREVER, &hold) != LK_OK)
		return complain("cannot get a permit to read", lk_errmsg());
	self->permit_us = now_us();
	meter_enter(self->demo->meter, self->number);
	ok = count_batch(self, batch);
	meter_leave(self->demo->meter, self->number);
	if (!self->readers)
		return ok;
	err = lk_semaphore_release(self->readers, hold);
	if (err != LK_OK && err != LK_ELOST && err != LK_EUNKNOWN)
		return complain("cannot release the permit", lk_errmsg());
	return ok;
}

static bool do_batch(struct self *self, struct order *order)
{
	const struct word *sorted;
	struct note note;
	size_t count;

	if (!read_batch(self, order->batch))
		return false;
	sorted = words_sorted(self->words, &count);
	if (!sorted)
		return complain("out of memory", "sorting");
	/* Refused: the file has changed since it was read.  Start again under a new hold. */
	do {
		if (!merge_once(self, order, sorted, count, &note) ||
		    !channel_send(self->channel, &note, sizeof(note)))
			return false;
	} while (note.outcome == REFUSED);
	return true;
}

/* Close the pipe's second end and wait until all have: then the pipe ends.  A dead worker has. */
static bool pass_barrier(const int ends[2])
{
	struct pollfd fd = {.fd = ends[0], .events = POLLIN};
	char byte;

	close(ends[1]);
	return poll(&fd, 1, START_LIMIT_MS) > 0 && read(ends[0], &byte, 1) == 0;
}

/* Count down and wait for the latch, so that no worker begins before all are ready. */
static bool start_together(const struct self *self)
{
	struct note ready = {.kind = READY, .batch = -1, .ready_us = now_us()};

	if (self->start && (lk_latch_down(self->start, 1, NULL, 0, NULL) != LK_OK ||
	                    lk_latch_await(self->start, START_LIMIT_MS) != LK_OK))
		return complain("cannot start together", lk_errmsg());
	if (self->demo->locked && !self->start && !pass_barrier(self->demo->barrier))
		return complain("cannot start together", "the pipe did not end");
	ready.begin_us = now_us();
	return channel_send(self->channel, &ready, sizeof(ready));
}

static bool work(struct self *self)
{
	struct order order;
	bool ok = start_together(self);

	while (ok && (ok = channel_receive(self->channel, &order, sizeof(order))) &&
	       order.kind == DO_BATCH)
		ok = do_batch(self, &order);
	return ok;
}

static bool open_store(struct self *self)
{
	lk_lock_options lock_options = {.lease_ms = self->demo->lease_ms};
	lk_semaphore_options readers_options = {.capacity = READERS};

	return (lk_client_open(self->demo->url, NULL, &self->client) == LK_OK &&
	        lk_lock_open(self->client, LOCK_NAME, 0, &lock_options, &self->lock) == LK_OK &&
	        (!self->demo->has_permits ||
	         lk_semaphore_open(self->client, "demo/readers", 0, &readers_options,
	                           &self->readers) == LK_OK) &&
	        (!self->demo->has_latch ||
	         lk_latch_open(self->client, "demo/start", 0, NULL, &self->start) == LK_OK)) ||
	       complain("cannot open the store", lk_errmsg());
}

int worker_run(const struct demo *demo, int number, int channel)
{
	struct self self = {
		.demo = demo, .number = number, .channel = channel, .words = words_new()};
	bool ok = self.words && (!demo->locked || open_store(&self)) && work(&self);

	words_free(self.words);
	lk_client_close(self.client);
	return ok ? 0 : 1;
}
