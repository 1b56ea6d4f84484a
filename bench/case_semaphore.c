/* SPDX-License-Identifier: MIT
 * A semaphore: one permit alone against bare EVALSHA of the same scripts; then 2 to 128 processes
 * on one semaphore. */
#include "baseline_bare.h"
#include "baseline_permits.h"
#include "contended.h"

#include <latchkey.h>

#include <stdio.h>
#include <stdlib.h>

#define NAME "bench:semaphore"

struct ours {
	lk_client *client;
	lk_semaphore *semaphore;
	uint64_t hold;
};

static struct ours *ours_open(const struct stage *stage, const char *name, int capacity)
{
	const lk_semaphore_options options = {.capacity = capacity};
	struct ours *self = calloc(1, sizeof(*self));

	if (!self || lk_client_open(stage->server->url, NULL, &self->client) ||
	    lk_semaphore_open(self->client, name, 0, &options, &self->semaphore))
		bench_fail("latchkey: %s", lk_errmsg());
	return self;
}

static bool ours_acquire(void *arg, int64_t until_ns)
{
	struct ours *self = arg;

	(void)until_ns;
	if (lk_semaphore_acquire(self->semaphore, 1, LK_FOREVER, &self->hold))
		bench_fail("latchkey: %s", lk_errmsg());
	return true;
}

static void ours_release(void *arg)
{
	struct ours *self = arg;

	if (lk_semaphore_release(self->semaphore, self->hold))
		bench_fail("latchkey: %s", lk_errmsg());
}

static void ours_close(void *arg)
{
	struct ours *self = arg;

	lk_client_close(self->client);
	free(self);
}

/* ---- Alone --------------------------------------------------------------------------------- */

static void *alone_open(const struct stage *stage)
{
	return ours_open(stage, NAME, 1);
}

static void alone_pair(void *self)
{
	ours_acquire(self, 0);
	ours_release(self);
}

static void *evalsha_open(const struct stage *stage)
{
	return permits_open(stage->server, NAME ":bare", 1);
}

static void *ping_open(const struct stage *stage)
{
	return bare_open(stage->server, false, NAME ":ping");
}

static void run_alone(struct bench *bench)
{
	static const struct contestant ours = {
		.name = "latchkey", .open = alone_open, .once = alone_pair, .close = ours_close};
	static const struct contestant evalsha = {.name = "bare hiredis, EVALSHA twice",
	                                          .open = evalsha_open,
	                                          .once = permits_pair,
	                                          .close = permits_close};
	static const struct contestant ping = {.name = "bare hiredis, PING twice",
	                                       .open = ping_open,
	                                       .once = bare_pings,
	                                       .close = bare_close};
	const struct contest contest = {
		.id = "semaphore/alone",
		.what = "acquire + release of one permit, one thread",
		.size = 1,
		.contestants = {&ours, &evalsha, &ping},
	};
	struct result result;

	bench_contest(bench, &contest, &result);
	bench_figure(bench, "semaphore.ratio.evalsha", "semaphore: rate / two bare EVALSHA",
	             ratio_of_rates(&result, 0, 1), "", AT_LEAST, 0.95);
	bench_figure(bench, "semaphore.ratio.ping", "semaphore: rate / two PING",
	             ratio_of_rates(&result, 0, 2), "", NO_GOAL, 0);
	bench_number(bench, "semaphore.requests", "semaphore: requests", result.of[0].requests, "",
	             NO_GOAL, 0);
}

/* ---- Contended ----------------------------------------------------------------------------- */

/* Each contestant of a contest has a semaphore of its own. */
static void *worker_open(const struct stage *stage, int capacity)
{
	char name[64];

	snprintf(name, sizeof(name), NAME ":%d:%d", capacity, stage->size);
	return ours_open(stage, name, capacity);
}

static void *one_open(const struct stage *stage, int index)
{
	(void)index;
	return worker_open(stage, 1);
}

static void *three_open(const struct stage *stage, int index)
{
	(void)index;
	return worker_open(stage, 3);
}

static const struct work one = {
	.open = one_open, .acquire = ours_acquire, .release = ours_release, .close = ours_close};
static const struct work three = {
	.open = three_open, .acquire = ours_acquire, .release = ours_release, .close = ours_close};

static void run(struct bench *bench)
{
	const struct contended of_one = {
		.id = "semaphore/1",
		.what = "processes on a semaphore of 1 permit",
		.ours = &one,
		.permits = 1,
	};
	const struct contended of_three = {
		.id = "semaphore/3",
		.what = "processes on a semaphore of 3 permits",
		.ours = &three,
		.permits = 3,
	};

	run_alone(bench);
	contended_run(bench, &of_one);
	contended_run(bench, &of_three);
}

const struct bench_case case_semaphore = {
	"semaphore", "one permit alone; 2 to 128 processes on 1 and on 3 permits", run};
