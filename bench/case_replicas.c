/* SPDX-License-Identifier: MIT
 * Acquire + release with replicas that confirm each grant: against the same two scripts and WAIT by
 * bare hiredis, and against Latchkey without that option, on the same master. */
#include "attach.h"
#include "baseline_bare.h"
#include "ours.h"

#include <stdio.h>
#include <stdlib.h>

#define NAME "bench:replicas"
#define REPLICAS 2

static struct test_server replicas[REPLICAS];

static struct ours *open_with(const struct stage *stage, int needed)
{
	char url[120];

	snprintf(url, sizeof(url), "%s&replicas=%d", stage->server->url, needed);
	return ours_open(url, NAME);
}

static void *open_two(const struct stage *stage)
{
	replicas_attach(stage->server, replicas, REPLICAS);
	return open_with(stage, 2);
}

static void *open_one(const struct stage *stage)
{
	return open_with(stage, 1);
}

static void *open_none(const struct stage *stage)
{
	return open_with(stage, 0);
}

static void *open_bare(const struct stage *stage)
{
	struct bare *bare = bare_open(stage->server, false, NAME ":bare");

	bare_need_replicas(bare, REPLICAS);
	return bare;
}

static void run(struct bench *bench)
{
	static const struct contestant two = {.name = "latchkey, replicas=2",
	                                      .open = open_two,
	                                      .once = ours_pair,
	                                      .close = ours_close};
	static const struct contestant bare = {.name = "bare hiredis, 2 EVALSHA and WAIT 2",
	                                       .open = open_bare,
	                                       .once = bare_pair,
	                                       .close = bare_close};
	static const struct contestant one = {.name = "latchkey, replicas=1",
	                                      .open = open_one,
	                                      .once = ours_pair,
	                                      .close = ours_close};
	static const struct contestant none = {.name = "latchkey, replicas=0",
	                                       .open = open_none,
	                                       .once = ours_pair,
	                                       .close = ours_close};
	const struct contest contest = {
		.id = "replicas/pair",
		.what = "acquire + release, one thread, a master with 2 replicas",
		.size = 1,
		.server_args = replicas_soon,
		.contestants = {&two, &bare, &one, &none},
	};
	struct result result;

	bench_contest(bench, &contest, &result);
	replicas_stop(replicas, REPLICAS);
	bench_figure(bench, "replicas.ratio.evalsha",
	             "replicas=2: rate / two bare EVALSHA and WAIT", ratio_of_rates(&result, 0, 1),
	             "", AT_LEAST, 0.9);
	bench_figure(bench, "replicas.ratio.none", "replicas=2: rate / the same with replicas=0",
	             ratio_of_rates(&result, 0, 3), "", NO_GOAL, 0);
	bench_figure(bench, "replicas.ratio.one", "replicas=1: rate / the same with replicas=0",
	             ratio_of_rates(&result, 2, 3), "", NO_GOAL, 0);
	bench_number(bench, "replicas.requests", "replicas=2: requests, with 2 of replicas",
	             result.of[0].requests, "", NO_GOAL, 0);
}

const struct bench_case case_replicas = {"replicas", "acquire + release that replicas confirm",
                                         run};
