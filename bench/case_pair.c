/* SPDX-License-Identifier: MIT
 * Acquire + release without contention: the rate against bare hiredis, the server's CPU against
 * Redisson's steps, and the cost of re-entry. */
#include "baseline_bare.h"
#include "ours.h"

#include <stdlib.h>

#define NAME "bench:pair"
#define REENTRIES 1000 /* between two readings of the clock */

/* ---- Latchkey ------------------------------------------------------------------------------ */

static void *open_tcp(const struct stage *stage)
{
	return ours_open(stage->server->url, NAME);
}

static void *open_unix(const struct stage *stage)
{
	return ours_open(stage->server->unix_url, NAME);
}

static void *reentry_open(const struct stage *stage)
{
	struct ours *self = ours_open(stage->server->url, NAME);

	ours_acquire(self, 0);
	return self;
}

static int64_t reentry_turn(void *arg, int64_t until_ns)
{
	int64_t pairs = 0;

	do {
		for (int i = 0; i < REENTRIES; i++)
			ours_pair(arg);
		pairs += REENTRIES;
	} while (bench_now_ns() < until_ns);
	return pairs;
}

/* ---- Bare hiredis -------------------------------------------------------------------------- */

static void *bare_open_tcp(const struct stage *stage)
{
	return bare_open(stage->server, false, NAME ":bare");
}

static void *bare_open_unix(const struct stage *stage)
{
	return bare_open(stage->server, true, NAME ":bare");
}

/* ---- Pipelined ----------------------------------------------------------------------------- */

struct pipe {
	struct bare *bare;
	struct bare_batch *batch;
};

static struct pipe *pipe_open(const struct stage *stage)
{
	struct pipe *self = calloc(1, sizeof(*self));

	if (!self)
		bench_fail("out of memory");
	self->bare = bare_open(stage->server, false, NAME);
	return self;
}

static void *pipe_open_ours(const struct stage *stage)
{
	struct pipe *self = pipe_open(stage);

	self->batch = bare_batch_ours(self->bare, NAME);
	return self;
}

static void *pipe_open_redisson(const struct stage *stage)
{
	struct pipe *self = pipe_open(stage);

	self->batch = bare_batch_redisson(self->bare, NAME ":redisson", false);
	return self;
}

static void *pipe_open_redisson_today(const struct stage *stage)
{
	struct pipe *self = pipe_open(stage);

	self->batch = bare_batch_redisson(self->bare, NAME ":today", true);
	return self;
}

static int64_t pipe_turn(void *arg, int64_t until_ns)
{
	struct pipe *self = arg;
	int64_t pairs = 0;

	do
		pairs += bare_batch_run(self->bare, self->batch);
	while (bench_now_ns() < until_ns);
	return pairs;
}

static void pipe_close(void *arg)
{
	struct pipe *self = arg;

	bare_batch_free(self->batch);
	bare_close(self->bare);
	free(self);
}

/* ---- The case ------------------------------------------------------------------------------ */

static void run_rates(struct bench *bench, bool by_unix)
{
	const struct contestant ours = {.name = "latchkey",
	                                .open = by_unix ? open_unix : open_tcp,
	                                .once = ours_pair,
	                                .close = ours_close};
	const struct contestant evalsha = {.name = "bare hiredis, EVALSHA twice",
	                                   .open = by_unix ? bare_open_unix : bare_open_tcp,
	                                   .once = bare_pair,
	                                   .close = bare_close};
	const struct contestant ping = {.name = "bare hiredis, PING twice",
	                                .open = by_unix ? bare_open_unix : bare_open_tcp,
	                                .once = bare_pings,
	                                .close = bare_close};
	const struct contest contest = {
		.id = by_unix ? "pair/unix" : "pair/tcp",
		.what = by_unix ? "acquire + release, one thread, Unix socket"
	                        : "acquire + release, one thread, TCP",
		.size = 1,
		.contestants = {&ours, &evalsha, &ping},
	};
	struct result result;

	bench_contest(bench, &contest, &result);
	bench_figure(bench, by_unix ? "pair.unix.ratio.evalsha" : "pair.tcp.ratio.evalsha",
	             by_unix ? "pair: rate / two bare EVALSHA, Unix socket"
	                     : "pair: rate / two bare EVALSHA, TCP",
	             ratio_of_rates(&result, 0, 1), "", AT_LEAST, 0.95);
	bench_figure(bench, by_unix ? "pair.unix.ratio.ping" : "pair.tcp.ratio.ping",
	             by_unix ? "pair: rate / two PING, Unix socket" : "pair: rate / two PING, TCP",
	             ratio_of_rates(&result, 0, 2), "", NO_GOAL, 0);
	bench_figure(bench, by_unix ? "pair.unix.client.evalsha" : "pair.tcp.client.evalsha",
	             by_unix ? "pair: client CPU / two bare EVALSHA, Unix socket"
	                     : "pair: client CPU / two bare EVALSHA, TCP",
	             ratio_of_client_cpu(&result, 0, 1), "", NO_GOAL, 0);
	bench_number(bench, by_unix ? "pair.unix.requests" : "pair.tcp.requests",
	             by_unix ? "pair: requests, Unix socket" : "pair: requests, TCP",
	             result.of[0].requests, "", NO_GOAL, 0);
}

static void run_server(struct bench *bench)
{
	static const struct contestant ours = {
		"latchkey's scripts", pipe_open_ours, pipe_turn, NULL, pipe_close, NULL};
	static const struct contestant redisson = {
		"redisson's steps", pipe_open_redisson, pipe_turn, NULL, pipe_close, NULL};
	static const struct contestant today = {"redisson's steps of today",
	                                        pipe_open_redisson_today,
	                                        pipe_turn,
	                                        NULL,
	                                        pipe_close,
	                                        NULL};
	const struct contest contest = {
		.id = "pair/server",
		.what = "the scripts of acquire + release, pipelined, by bare hiredis",
		.size = 1,
		.contestants = {&ours, &redisson, &today},
	};
	struct result result;

	bench_contest(bench, &contest, &result);
	bench_figure(bench, "pair.server.ratio.redisson",
	             "pair: server CPU / Redisson's steps, both pipelined",
	             ratio_of_server_cpu(&result, 0, 1), "", AT_MOST, 1.15);
	bench_figure(bench, "pair.server.ratio.redisson_today",
	             "pair: server CPU / what Redisson sends today",
	             ratio_of_server_cpu(&result, 0, 2), "", NO_GOAL, 0);
}

static void run_reentry(struct bench *bench)
{
	static const struct contestant ours = {"latchkey", reentry_open, reentry_turn,
	                                       NULL,       ours_close,   NULL};
	const struct contest contest = {
		.id = "pair/reentry",
		.what = "acquire + release of a lock that the thread holds",
		.size = 1,
		.contestants = {&ours},
	};
	struct result result;
	struct spread cost;

	bench_contest(bench, &contest, &result);
	/* It never waits, so CPU time measures it, also on a busy machine. */
	cost = result.of[0].client_us;
	cost = (struct spread){cost.median * 1e3, cost.low * 1e3, cost.high * 1e3};
	bench_figure(bench, "pair.reentry.ns", "pair: re-entering, acquire + release", cost, "ns",
	             AT_MOST, 100);
	bench_number(bench, "pair.reentry.requests", "pair: re-entering, requests",
	             result.of[0].requests, "", AT_MOST, 0.001);
}

static void run(struct bench *bench)
{
	run_rates(bench, false);
	run_rates(bench, true);
	run_server(bench);
	run_reentry(bench);
}

const struct bench_case case_pair = {
	"pair", "acquire + release alone; CPU of the server; re-entering", run};
