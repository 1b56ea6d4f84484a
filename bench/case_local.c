/* SPDX-License-Identifier: MIT
 * Threads of one process on one name: the lock is handed over without a request, and another
 * process still gets its turn. */
#include "baseline_fifo.h"
#include "ours.h"
#include "workers.h"

#include <stdio.h>
#include <stdlib.h>

#define NAME "bench:local"
#define GUEST_TURNS 5
#define GUEST_TURN_MS 400
#define GUEST_REST_US 5000

/* ---- Latchkey: one client, one handle, for all threads ------------------------------------- */

struct team {
	struct ours *ours;
	struct stage stage;
	struct workers *workers;
};

static struct ours *shared; /* by the workers that are being started */

static void *team_join(const struct stage *stage, int index)
{
	(void)stage;
	(void)index;
	return shared;
}

static void team_part(void *self)
{
	(void)self;
}

static const struct work team_work = {
	.open = team_join, .acquire = ours_acquire, .release = ours_release, .close = team_part};

static void *team_open(const struct stage *stage)
{
	struct team *self = calloc(1, sizeof(*self));

	if (!self)
		bench_fail("out of memory");
	self->stage = *stage;
	self->ours = shared = ours_open(stage->server->url, NAME);
	self->workers = workers_start(&self->stage, &team_work, stage->size, false);
	return self;
}

static void team_close(void *arg)
{
	struct team *self = arg;

	workers_end(self->workers);
	ours_close(self->ours);
	free(self);
}

/* Hold the lock until all threads wait for it: a thread that runs before the others have woken up
 * would acquire it again and again, without a hand-over. */
static int64_t team_turn(void *arg, int64_t until_ns)
{
	struct team *self = arg;
	struct tally tally;

	ours_acquire(self->ours, until_ns);
	workers_begin(self->workers, &(struct order){until_ns, 0});
	workers_line_up(self->workers);
	ours_release(self->ours);
	workers_await(self->workers, &tally);
	return tally.ops;
}

/* ---- A bare queue -------------------------------------------------------------------------- */

static struct fifo fifo;

static void *fifo_join(const struct stage *stage, int index)
{
	struct fifo_thread *me = calloc(1, sizeof(*me));

	(void)stage;
	(void)index;
	if (!me || pthread_cond_init(&me->cond, NULL))
		bench_fail("out of memory");
	return me;
}

static bool fifo_take(void *me, int64_t until_ns)
{
	(void)until_ns;
	fifo_acquire(&fifo, me);
	return true;
}

static void fifo_give(void *me)
{
	(void)me;
	fifo_release(&fifo);
}

static void fifo_part(void *arg)
{
	struct fifo_thread *me = arg;

	pthread_cond_destroy(&me->cond);
	free(me);
}

static const struct work fifo_work = {
	.open = fifo_join, .acquire = fifo_take, .release = fifo_give, .close = fifo_part};

static void *fifo_open(const struct stage *stage)
{
	fifo_init(&fifo);
	return workers_start(stage, &fifo_work, stage->size, false);
}

static int64_t fifo_turn(void *workers, int64_t until_ns)
{
	struct fifo_thread me = {.cond = PTHREAD_COND_INITIALIZER};
	struct tally tally;

	fifo_acquire(&fifo, &me);
	workers_begin(workers, &(struct order){until_ns, 0});
	workers_line_up(workers);
	fifo_release(&fifo);
	workers_await(workers, &tally);
	return tally.ops;
}

static void fifo_close(void *workers)
{
	workers_end(workers);
}

/* ---- Over the network ---------------------------------------------------------------------- */

static void *pair_open(const struct stage *stage)
{
	return ours_open(stage->server->url, NAME ":pair");
}

/* ---- The figures --------------------------------------------------------------------------- */

static void run_threads(struct bench *bench, int size)
{
	static const struct contestant ours = {"latchkey", team_open,  team_turn,
	                                       NULL,       team_close, NULL};
	static const struct contestant queue = {
		"mutex and conditions", fifo_open, fifo_turn, NULL, fifo_close, NULL};
	static const struct contestant pair = {
		"latchkey, one thread", pair_open, NULL, ours_pair, ours_close, NULL};
	struct contest contest = {
		.what = "threads of one process on one name, by hand-over",
		.size = size,
		.contestants = {&ours, &queue, &pair},
	};
	char id[64], figure[64], what[120];
	struct result result;

	snprintf(id, sizeof(id), "local/%d", size);
	contest.id = id;
	bench_contest(bench, &contest, &result);
	snprintf(figure, sizeof(figure), "local.%d.requests", size);
	snprintf(what, sizeof(what), "local: requests a hand-over, %d threads", size);
	bench_number(bench, figure, what, result.of[0].requests, "", AT_MOST, 0.01);
	snprintf(figure, sizeof(figure), "local.%d.ratio.fifo", size);
	snprintf(what, sizeof(what), "local: rate / bare queue of threads, %d threads", size);
	bench_figure(bench, figure, what, ratio_of_rates(&result, 0, 1), "", AT_LEAST, 0.7);
	snprintf(figure, sizeof(figure), "local.%d.ratio.pair", size);
	snprintf(what, sizeof(what), "local: rate / one thread over the network, %d threads", size);
	bench_figure(bench, figure, what, ratio_of_rates(&result, 0, 2), "", AT_LEAST, 8);
}

/* ---- A guest from another process ---------------------------------------------------------- */

static void *guest_join(const struct stage *stage, int index)
{
	(void)index;
	return ours_open(stage->server->url, NAME);
}

/* The threads hand the lock over among themselves; another process asks for it now and then, and
 * counts their grants between its call and its return. */
static struct tally with_guest(struct bench *bench, int hold_us, double *median_us)
{
	struct work thread = team_work, process = {.open = guest_join,
	                                           .acquire = ours_acquire,
	                                           .release = ours_release,
	                                           .close = ours_close,
	                                           .rest_us = GUEST_REST_US};
	struct test_server server;
	struct stage stage = {.server = &server, .size = 8};
	struct workers *guest, *threads;
	const int turns = bench_brief(bench) ? 2 : GUEST_TURNS;
	struct tally sum = {0}, tally;
	double mean_us[GUEST_TURNS];
	int count = 0;

	thread.hold_us = hold_us;
	bench_server(bench, &server, NULL);
	guest = workers_start(&stage, &process, 1, true);
	shared = ours_open(server.url, NAME);
	threads = workers_start(&stage, &thread, stage.size, false);
	workers_share_grants(threads, guest);
	for (int turn = -1; turn < turns; turn++) {
		const struct order order = {bench_now_ns() + GUEST_TURN_MS * 1000000, 0};

		workers_begin(threads, &order);
		workers_begin(guest, &order);
		workers_await(guest, &tally);
		workers_await(threads, &(struct tally){0});
		if (turn < 0 || !tally.waits)
			continue;
		mean_us[count++] = (double)tally.wait_sum_ns / 1e3 / (double)tally.waits;
		sum.waits += tally.waits;
		sum.passed_sum += tally.passed_sum;
		if (tally.passed_max > sum.passed_max)
			sum.passed_max = tally.passed_max;
	}
	workers_end(threads);
	ours_close(shared);
	workers_end(guest);
	server_stop(&server);
	if (!sum.waits)
		bench_fail("a second process never had its turn");
	*median_us = spread_of(mean_us, count).median;
	return sum;
}

static void run_guest(struct bench *bench)
{
	double wait_us;
	struct tally tally = with_guest(bench, 1000, &wait_us);

	bench_number(bench, "local.guest.most",
	             "local: hand-overs before a second process has its turn, most, 1 ms holds",
	             (double)tally.passed_max, "", AT_MOST, 20);
	bench_number(bench, "local.guest.mean", "local: the same, mean",
	             (double)tally.passed_sum / (double)tally.waits, "", NO_GOAL, 0);
	tally = with_guest(bench, 0, &wait_us);
	/* With short holds most grants end before its request reaches the server. */
	bench_number(bench, "local.guest.busy.mean",
	             "local: hand-overs while a second process asks, no hold, mean",
	             (double)tally.passed_sum / (double)tally.waits, "", NO_GOAL, 0);
	bench_number(bench, "local.guest.busy.us", "local: its mean wait then", wait_us, "us",
	             NO_GOAL, 0);
}

static void run(struct bench *bench)
{
	run_threads(bench, 8);
	run_threads(bench, 64);
	run_guest(bench);
}

const struct bench_case case_local = {
	"local", "threads of one process on one name, and a guest from another process", run};
