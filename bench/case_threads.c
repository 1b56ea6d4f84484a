/* SPDX-License-Identifier: MIT
 * N threads with N names: one client with its two connections, against a bare connection for each
 * thread. */
#include "baseline_bare.h"
#include "crew.h"
#include "harness/redis.h"

#include <latchkey.h>

#include <stdio.h>
#include <stdlib.h>

#define THREADS_MAX 128

/* ---- Latchkey ------------------------------------------------------------------------------ */

struct ours {
	lk_client *client;
	lk_lock *locks[THREADS_MAX];
	struct crew *crew;
};

/* Connections of the client, counted by the server after all threads have worked. */
static long long connections;

static int64_t ours_work(void *arg, int number, int64_t until_ns)
{
	const struct ours *self = arg;
	lk_lock *lock = self->locks[number];
	int64_t pairs = 0;

	do {
		if (lk_lock_acquire(lock, LK_FOREVER, NULL) || lk_lock_release(lock))
			bench_fail("latchkey: %s", lk_errmsg());
		pairs++;
	} while (bench_now_ns() < until_ns);
	return pairs;
}

static void *ours_open(const struct stage *stage)
{
	struct redis *redis = redis_open(stage->server);
	long long before = redis_info(redis, "connected_clients");
	struct ours *self = calloc(1, sizeof(*self));

	if (!self || lk_client_open(stage->server->url, NULL, &self->client))
		bench_fail("latchkey: %s", lk_errmsg());
	for (int i = 0; i < stage->size; i++) {
		char name[40];

		snprintf(name, sizeof(name), "bench:threads:%d", i);
		if (lk_lock_open(self->client, name, 0, NULL, &self->locks[i]))
			bench_fail("latchkey: %s", lk_errmsg());
	}
	self->crew = crew_start(stage->size, ours_work, self);
	crew_turn(self->crew, bench_now_ns());
	connections = redis_info(redis, "connected_clients") - before;
	redis_close(redis);
	return self;
}

static int64_t ours_turn(void *arg, int64_t until_ns)
{
	return crew_turn(((struct ours *)arg)->crew, until_ns);
}

static void ours_close(void *arg)
{
	struct ours *self = arg;

	crew_stop(self->crew);
	lk_client_close(self->client);
	free(self);
}

/* ---- Bare hiredis -------------------------------------------------------------------------- */

struct bares {
	int count;
	struct bare *of[THREADS_MAX];
	struct crew *crew;
};

static int64_t bares_work(void *arg, int number, int64_t until_ns)
{
	struct bare *bare = ((struct bares *)arg)->of[number];
	int64_t pairs = 0;

	do {
		bare_pair(bare);
		pairs++;
	} while (bench_now_ns() < until_ns);
	return pairs;
}

static void *bares_open(const struct stage *stage)
{
	struct bares *self = calloc(1, sizeof(*self));

	if (!self)
		bench_fail("out of memory");
	self->count = stage->size;
	for (int i = 0; i < stage->size; i++) {
		char name[40];

		snprintf(name, sizeof(name), "bench:threads:bare:%d", i);
		self->of[i] = bare_open(stage->server, false, name);
	}
	self->crew = crew_start(stage->size, bares_work, self);
	return self;
}

static int64_t bares_turn(void *arg, int64_t until_ns)
{
	return crew_turn(((struct bares *)arg)->crew, until_ns);
}

static void bares_close(void *arg)
{
	struct bares *self = arg;

	crew_stop(self->crew);
	for (int i = 0; i < self->count; i++)
		bare_close(self->of[i]);
	free(self);
}

/* ---- The case ------------------------------------------------------------------------------ */

static void run_size(struct bench *bench, int size)
{
	static const struct contestant ours = {
		"latchkey, one client", ours_open, ours_turn, NULL, ours_close, NULL};
	static const struct contestant bares = {
		"bare hiredis, a connection each", bares_open, bares_turn, NULL, bares_close, NULL};
	char id[40], what[80], figure_id[60];
	const struct contest contest = {
		.id = id,
		.what = what,
		.size = size,
		.contestants = {&ours, &bares},
	};
	struct result result;

	snprintf(id, sizeof(id), "threads/%d", size);
	snprintf(what, sizeof(what), "acquire + release, %d threads, %d names", size, size);
	bench_contest(bench, &contest, &result);
	snprintf(figure_id, sizeof(figure_id), "threads.%d.ratio.evalsha", size);
	snprintf(what, sizeof(what), "threads: rate / a bare connection each, %d threads", size);
	bench_figure(bench, figure_id, what, ratio_of_rates(&result, 0, 1), "", AT_LEAST, 0.95);
	snprintf(figure_id, sizeof(figure_id), "threads.%d.connections", size);
	snprintf(what, sizeof(what), "threads: connections, %d threads", size);
	bench_number(bench, figure_id, what, (double)connections, "", AT_MOST, 2);
}

static void run(struct bench *bench)
{
	static const int sizes[] = {2, 8, 32, 128};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		run_size(bench, sizes[i]);
}

const struct bench_case case_threads = {"threads", "N threads with N names, one client", run};
