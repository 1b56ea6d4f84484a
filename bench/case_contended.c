/* SPDX-License-Identifier: MIT
 * Processes that want one lock: what an acquisition costs as their number grows, how long the
 * longest wait is, and how the usual "publish, and all try again" compares. */
#include "baseline_handoff.h"
#include "baseline_retry.h"
#include "contended.h"

#include <latchkey.h>

#include <stdio.h>
#include <stdlib.h>

#define NAME "bench:contended"

struct ours {
	lk_client *client;
	lk_lock *lock;
};

static void *ours_open(const struct stage *stage, int index)
{
	struct ours *self = calloc(1, sizeof(*self));
	char name[64];

	(void)index;
	snprintf(name, sizeof(name), NAME ":%d", stage->size);
	if (!self || lk_client_open(stage->server->url, NULL, &self->client) ||
	    lk_lock_open(self->client, name, 0, NULL, &self->lock))
		bench_fail("latchkey: %s", lk_errmsg());
	return self;
}

static bool ours_acquire(void *arg, int64_t until_ns)
{
	struct ours *self = arg;

	(void)until_ns;
	if (lk_lock_acquire(self->lock, LK_FOREVER, NULL))
		bench_fail("latchkey: %s", lk_errmsg());
	return true;
}

static void ours_release(void *arg)
{
	struct ours *self = arg;

	if (lk_lock_release(self->lock))
		bench_fail("latchkey: %s", lk_errmsg());
}

static void ours_close(void *arg)
{
	struct ours *self = arg;

	lk_client_close(self->client);
	free(self);
}

static const struct work ours = {
	.open = ours_open, .acquire = ours_acquire, .release = ours_release, .close = ours_close};

static void *bare_open(const struct stage *stage, int index)
{
	char name[64];

	snprintf(name, sizeof(name), NAME ":bare:%d", stage->size);
	return handoff_open(stage->server, name, index);
}

static bool bare_acquire(void *self, int64_t until_ns)
{
	(void)until_ns;
	handoff_acquire(self);
	return true;
}

static void bare_release(void *self)
{
	handoff_release(self);
}

static void bare_close(void *self)
{
	handoff_close(self);
}

static const struct work bare = {
	.open = bare_open, .acquire = bare_acquire, .release = bare_release, .close = bare_close};

static void *all_open(const struct stage *stage, int index)
{
	(void)index;
	return retry_open(stage->server, NAME ":retry");
}

static bool all_acquire(void *self, int64_t until_ns)
{
	return retry_acquire(self, until_ns);
}

static void all_release(void *self)
{
	retry_release(self);
}

static void all_close(void *self)
{
	retry_close(self);
}

static const struct work all_retry = {
	.open = all_open, .acquire = all_acquire, .release = all_release, .close = all_close};

static void run(struct bench *bench)
{
	const struct contended contended = {
		.id = "contended",
		.what = "processes on one lock",
		.ours = &ours,
		.bare = &bare,
		.retry = &all_retry,
		.permits = 1,
		.draw = true,
	};

	contended_run(bench, &contended);
}

const struct bench_case case_contended = {"contended",
                                          "2 to 128 processes on one name, acquire + release", run};
