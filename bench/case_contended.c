/* SPDX-License-Identifier: MIT
 * Processes that want one lock: what an acquisition costs as their number grows, how long the
 * longest wait is, and how the usual "publish, and all try again" compares. */
#include "baseline_handoff.h"
#include "baseline_retry.h"
#include "contended.h"
#include "ours.h"

#include <stdio.h>

#define NAME "bench:contended"

static void *open_ours(const struct stage *stage, int index)
{
	char name[64];

	(void)index;
	snprintf(name, sizeof(name), NAME ":%d", stage->size);
	return ours_open(stage->server->url, name);
}

static const struct work ours = {
	.open = open_ours, .acquire = ours_acquire, .release = ours_release, .close = ours_close};

static void *bare_open(const struct stage *stage, int index)
{
	char name[64];

	snprintf(name, sizeof(name), NAME ":bare:%d", stage->size);
	return handoff_open(stage->server, name, index);
}

static const struct work bare = {.open = bare_open,
                                 .acquire = handoff_acquire,
                                 .release = handoff_release,
                                 .close = handoff_close};

static void *all_open(const struct stage *stage, int index)
{
	(void)index;
	return retry_open(stage->server, NAME ":retry");
}

static const struct work all_retry = {
	.open = all_open, .acquire = retry_acquire, .release = retry_release, .close = retry_close};

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
