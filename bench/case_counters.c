/* SPDX-License-Identifier: MIT
 * What counting costs: acquire + release by the library as it is, and by one that counts nothing
 * (tests/mutants/nothing-counted.mutant, built by bench/counters/rules.mk).  The difference is far
 * below the noise of a round trip, so the rates are only an upper bound.  Callgrind also counts the
 * instructions of the client.  Their share of the client's own work, which is less than half of a
 * pair, is the stricter figure, and the one to trust. */
#include "bench.h"

#include "counters/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_SIZE 512
#define WITHOUT "mutant-nothing-counted/build/liblatchkey.so"
#define TURN_MS 30
#define PAIRS 2000
#define AT_MOST_PERCENT 2.0

static const char *in_build(char path[PATH_SIZE], const char *name)
{
	const char *build = getenv("LK_BUILD");

	snprintf(path, PATH_SIZE, "%s/%s", build ? build : "build", name);
	return path;
}

/* ---- By the clock -------------------------------------------------------------------------- */

struct pairs {
	struct library library;
	lk_client *client;
	lk_lock *lock;
};

static void *pairs_open(const struct stage *stage, const char *name)
{
	struct pairs *self = calloc(1, sizeof(*self));
	char path[PATH_SIZE];

	if (!self || !library_load(&self->library, in_build(path, name)))
		bench_fail("%s: %s", name, self ? dlerror() : "out of memory");
	if (self->library.client_open(stage->server->unix_url, NULL, &self->client) ||
	    self->library.lock_open(self->client, "bench:counters", 0, NULL, &self->lock))
		bench_fail("%s: cannot open a lock", path);
	return self;
}

static void *with_open(const struct stage *stage)
{
	return pairs_open(stage, "liblatchkey.so");
}

static void *without_open(const struct stage *stage)
{
	return pairs_open(stage, WITHOUT);
}

static void pairs_once(void *arg)
{
	struct pairs *self = arg;

	if (self->library.acquire(self->lock, LK_FOREVER, NULL) ||
	    self->library.release(self->lock))
		bench_fail("a pair failed");
}

/* Check that the one counts and the other does not: else the case compares nothing. */
static void pairs_close(struct pairs *self, bool counts)
{
	lk_counters counters;

	if (self->library.counters(self->client, &counters) || (counters.acquired > 0) != counts)
		bench_fail("a library %s", counts ? "counts nothing" : "counts all the same");
	self->library.client_close(self->client);
	free(self);
}

static void with_close(void *arg)
{
	pairs_close(arg, true);
}

static void without_close(void *arg)
{
	pairs_close(arg, false);
}

static void run_rates(struct bench *bench)
{
	static const struct contestant with = {"latchkey", with_open,  NULL,
	                                       pairs_once, with_close, NULL};
	static const struct contestant without = {
		"the same without counters", without_open, NULL, pairs_once, without_close, NULL};
	const struct contest contest = {
		.id = "counters/pair",
		.what = "acquire + release, one thread, Unix socket",
		.size = 1,
		.rounds = ROUNDS_MAX,
		.turn_ms = TURN_MS,
		.contestants = {&with, &without},
	};
	struct result result;

	bench_contest(bench, &contest, &result);
	bench_figure(bench, "counters.ratio.rate", "counters: rate with / without them",
	             ratio_of_rates(&result, 0, 1), "", AT_LEAST, 1 - AT_MOST_PERCENT / 100);
	bench_number(bench, "counters.cpu.more", "counters: CPU that counting adds to a pair",
	             (result.of[0].client_us.median / result.of[1].client_us.median - 1) * 100, "%",
	             NO_GOAL, 0);
}

/* ---- By instructions ----------------------------------------------------------------------- */

/* Instructions of a pair, inside the two calls and outside the kernel; 0 = callgrind is missing. */
static double instructions(const char *library, const char *url)
{
	static const char collected[] = "Collected : ";
	char program[PATH_SIZE], path[PATH_SIZE], line[3 * PATH_SIZE];
	double count = 0;
	FILE *pipe;

	snprintf(line, sizeof(line),
	         "exec valgrind --tool=callgrind --callgrind-out-file=/dev/null "
	         "--toggle-collect=lk_lock_acquire --toggle-collect=lk_lock_release %s %s %s %d "
	         "2>&1",
	         in_build(program, "bench/counters/pairs"), in_build(path, library), url, PAIRS);
	pipe = popen(line, "r");
	if (!pipe)
		return 0;
	while (fgets(line, sizeof(line), pipe)) {
		const char *at = strstr(line, collected);
		if (at)
			count = strtod(at + strlen(collected), NULL);
	}
	return pclose(pipe) ? 0 : count / PAIRS;
}

static void run_instructions(struct bench *bench)
{
	struct test_server server;
	double with, without;

	bench_server(bench, &server, NULL);
	/* The first client of a server loads the scripts, and its heap then differs from that of
	 * others: malloc() takes hundreds of instructions more or less. */
	(void)instructions("liblatchkey.so", server.unix_url);
	with = instructions("liblatchkey.so", server.unix_url);
	without = instructions(WITHOUT, server.unix_url);
	server_stop(&server);
	if (with <= 0 || without <= 0) {
		bench_note(bench, "instructions were not counted: no valgrind");
		return;
	}
	bench_number(bench, "counters.instructions", "counters: instructions of a pair, with them",
	             with, "", NO_GOAL, 0);
	bench_number(bench, "counters.instructions.without",
	             "counters: instructions of a pair, without", without, "", NO_GOAL, 0);
	bench_number(bench, "counters.instructions.more",
	             "counters: instructions that counting adds to a pair",
	             (with / without - 1) * 100, "%", AT_MOST, AT_MOST_PERCENT);
}

static void run(struct bench *bench)
{
	char path[PATH_SIZE];

	if (access(in_build(path, WITHOUT), R_OK)) {
		bench_note(bench, "skipped: no build without counters (%s)", path);
		return;
	}
	run_rates(bench);
	run_instructions(bench);
}

const struct bench_case case_counters = {"counters", "what a client's counters cost", run};
