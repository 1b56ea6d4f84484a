/* SPDX-License-Identifier: MIT
 * A lock on a quorum of three and of five servers: a pair alone, the time to hold on loopback and
 * on a slow network, a server that is stopped, and processes on one lock. */
#include "baseline_legs.h"
#include "baseline_quorum.h"
#include "contended.h"
#include "harness/proxy.h"
#include "ours.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME "bench:quorum"
#define SIZE_MAX_SERVERS 5
#define ROUNDS 9
#define CONTENDED_ROUNDS 25 /* of ratios that the machine's noise spreads by a half */
#define DELAY_MS 2
#define SLOW_MS 20
#define SETTLE_MS 30  /* after a server was stopped, or runs again */
#define SAMPLES 20000 /* in a turn, at most */
#define SPARE 1.1     /* of 2 N requests */
#define CONTENDERS 8  /* beside a stopped server */

/* The members. */
static struct quorum {
	int count;
	struct test_server servers[SIZE_MAX_SERVERS];
	struct proxy proxies[SIZE_MAX_SERVERS];
	int ports[SIZE_MAX_SERVERS]; /* of the proxies */
	char url[160], far_url[160]; /* far: by the proxies */
} quorum;

static void form_url(char url[160], const int *ports)
{
	int len = snprintf(url, 160, "redis+quorum://");

	for (int i = 0; i < quorum.count; i++)
		len += snprintf(url + len, 160 - (size_t)len, "%s127.0.0.1:%d", i ? "," : "",
		                ports ? ports[i] : quorum.servers[i].port);
}

static void start_quorum(struct bench *bench, int count)
{
	memset(&quorum, 0, sizeof(quorum));
	quorum.count = count;
	for (int i = 0; i < count; i++)
		bench_server(bench, &quorum.servers[i], NULL);
	form_url(quorum.url, NULL);
	/* No server is young. */
	if (lk_quorum_begin(quorum.url, NULL, 0))
		bench_fail("latchkey: %s", lk_errmsg());
}

static void stop_quorum(void)
{
	for (int i = 0; i < quorum.count; i++)
		server_stop(&quorum.servers[i]);
}

struct label {
	char id[64], what[160];
};

static struct label label(const char *id, const char *what)
{
	struct label label;

	snprintf(label.id, sizeof(label.id), "quorum.%d.%s", quorum.count, id);
	snprintf(label.what, sizeof(label.what), "%d servers: %s", quorum.count, what);
	return label;
}

static void figure(struct bench *bench, const char *id, const char *what, struct spread value,
                   const char *unit, enum goal goal, double bound)
{
	const struct label text = label(id, what);

	bench_figure(bench, text.id, text.what, value, unit, goal, bound);
}

static int members(const struct test_server *all[SERVERS_MAX])
{
	for (int i = 0; i < quorum.count; i++)
		all[i] = &quorum.servers[i];
	return quorum.count;
}

/* ---- Alone --------------------------------------------------------------------------------- */

static void *open_here(const struct stage *stage)
{
	(void)stage;
	return ours_open(quorum.url, NAME);
}

static void *open_bare(const struct stage *stage)
{
	(void)stage;
	return ballot_open(quorum.servers, NULL, quorum.count, NAME ":bare", 0);
}

static void *open_single(const struct stage *stage)
{
	return ours_open(stage->server->url, NAME);
}

static int servers_alone(int contestant, const struct test_server *all[SERVERS_MAX])
{
	return contestant < 2 ? members(all) : 0;
}

static void run_pair(struct bench *bench)
{
	static const struct contestant here = {.name = "latchkey, a quorum",
	                                       .open = open_here,
	                                       .once = ours_pair,
	                                       .close = ours_close};
	static const struct contestant bare = {.name = "bare scripts, a majority of answers",
	                                       .open = open_bare,
	                                       .once = ballot_pair,
	                                       .close = ballot_close};
	static const struct contestant single = {.name = "latchkey, a single server",
	                                         .open = open_single,
	                                         .once = ours_pair,
	                                         .close = ours_close};
	char id[64];
	const struct contest contest = {
		.id = id,
		.what = "acquire + release, one thread; CPU and requests of all servers",
		.size = quorum.count,
		.rounds = ROUNDS,
		.contestants = {&here, &bare, &single},
		.servers = servers_alone,
	};
	struct result result;
	struct label text;

	snprintf(id, sizeof(id), "quorum/pair/%d", quorum.count);
	bench_contest(bench, &contest, &result);
	text = label("pair.requests", "alone: requests an acquisition");
	bench_number(bench, text.id, text.what, result.of[0].requests, "", AT_MOST,
	             SPARE * 2 * quorum.count);
	figure(bench, "pair.ratio.bare", "alone: rate / bare scripts",
	       ratio_of_rates(&result, 0, 1), "", NO_GOAL, 0);
	figure(bench, "pair.ratio.single", "alone: rate / rate on one server",
	       ratio_of_rates(&result, 0, 2), "", NO_GOAL, 0);
}

/* ---- Time to hold -------------------------------------------------------------------------- */

/* One that acquires again and again; only its acquisitions are timed. */
struct timed {
	void *self;
	void (*acquire)(void *self);
	void (*release)(void *self); /* NULL = none */
};

static void acquire_ours(void *self)
{
	ours_acquire(self, 0);
}

static struct timed timed_ours(const char *url)
{
	return (struct timed){ours_open(url, NAME), acquire_ours, ours_release};
}

/* The median of a turn, us. */
static double time_to_hold(const struct timed *timed, int64_t turn_ms)
{
	static double us[SAMPLES];
	int64_t until_ns = bench_now_ns() + turn_ms * 1000000, before_ns, now_ns;
	int count = 0;

	do {
		before_ns = bench_now_ns();
		timed->acquire(timed->self);
		now_ns = bench_now_ns();
		us[count++] = (double)(now_ns - before_ns) / 1e3;
		if (timed->release)
			timed->release(timed->self);
	} while (now_ns < until_ns && count < SAMPLES);
	return spread_of(us, count).median;
}

/* Both take turns; the ratio of their times. */
static void compare(struct bench *bench, const struct timed pair[2], double us[2][ROUNDS_MAX],
                    double ratio[ROUNDS_MAX], int rounds)
{
	int64_t turn_ms = bench_brief(bench) ? 20 : 100;

	for (int i = 0; i < 2; i++)
		time_to_hold(&pair[i], turn_ms);
	for (int round = 0; round < rounds; round++) {
		for (int i = 0; i < 2; i++) {
			int which = round & 1 ? 1 - i : i;
			us[which][round] = time_to_hold(&pair[which], turn_ms);
		}
		ratio[round] = us[0][round] / us[1][round];
	}
}

static void run_loopback(struct bench *bench, int rounds)
{
	const struct timed pair[2] = {timed_ours(quorum.url),
	                              {open_bare(NULL), ballot_acquire, ballot_release}};
	double us[2][ROUNDS_MAX], ratio[ROUNDS_MAX];

	compare(bench, pair, us, ratio, rounds);
	ours_close(pair[0].self);
	ballot_close(pair[1].self);
	figure(bench, "hold.loopback", "time to hold on loopback", spread_of(us[0], rounds), "us",
	       NO_GOAL, 0);
	figure(bench, "hold.loopback.bare", "bare scripts: the same", spread_of(us[1], rounds),
	       "us", NO_GOAL, 0);
	figure(bench, "hold.loopback.ratio", "time to hold / bare scripts",
	       spread_of(ratio, rounds), "", NO_GOAL, 0);
}

static void start_proxies(void)
{
	for (int i = 0; i < quorum.count; i++) {
		proxy_start(&quorum.proxies[i], &quorum.servers[i]);
		quorum.ports[i] = quorum.proxies[i].port;
	}
	form_url(quorum.far_url, quorum.ports);
}

/* The servers of a majority are so far away, and the others that far. */
static void delay(int64_t majority_ms, int64_t others_ms)
{
	for (int i = 0; i < quorum.count; i++) {
		const struct proxy_fault fault = {.delay_ms = i <= quorum.count / 2 ? majority_ms
		                                                                    : others_ms};
		proxy_set_all(&quorum.proxies[i], &fault);
	}
}

static void run_far(struct bench *bench, const struct timed pair[2], int rounds, int64_t others_ms,
                    const char *id, const char *what)
{
	double us[2][ROUNDS_MAX], ratio[ROUNDS_MAX];
	char text[120], name[64];

	delay(DELAY_MS, others_ms);
	compare(bench, pair, us, ratio, rounds);
	snprintf(text, sizeof(text), "time to hold, %s", what);
	snprintf(name, sizeof(name), "hold.%s", id);
	figure(bench, name, text, spread_of(us[0], rounds), "us", NO_GOAL, 0);
	snprintf(text, sizeof(text), "the same / round trip of the majority's slowest");
	snprintf(name, sizeof(name), "hold.%s.ratio", id);
	figure(bench, name, text, spread_of(ratio, rounds), "", AT_MOST, 1.3);
}

static void run_delayed(struct bench *bench, int rounds)
{
	struct timed pair[2];

	start_proxies();
	pair[0] = timed_ours(quorum.far_url);
	pair[1] = (struct timed){
		ballot_open(quorum.servers, quorum.ports, quorum.count, NAME ":ping", 0),
		ballot_ping, NULL};
	run_far(bench, pair, rounds, DELAY_MS, "far", "2 ms added each way");
	run_far(bench, pair, rounds, SLOW_MS, "slow", "2 ms added each way, 20 ms to the minority");
	delay(0, 0);
	ours_close(pair[0].self);
	ballot_close(pair[1].self);
	for (int i = 0; i < quorum.count; i++)
		proxy_stop(&quorum.proxies[i]);
}

/* ---- A stopped server ---------------------------------------------------------------------- */

static void *open_contender(const struct stage *stage, int index)
{
	(void)stage;
	(void)index;
	return ours_open(quorum.url, NAME ":contended");
}

static const struct work contending = {.open = open_contender,
                                       .acquire = ours_acquire,
                                       .release = ours_release,
                                       .close = ours_close};

static double us_of_crowd(struct workers *workers, int64_t turn_ms)
{
	struct tally tally;
	int64_t start_ns = bench_now_ns();

	workers_begin(workers, &(struct order){start_ns + turn_ms * 1000000, 0});
	workers_await(workers, &tally);
	return (double)(bench_now_ns() - start_ns) / 1e3 / (double)tally.ops;
}

static void stop_one(bool on)
{
	const struct timespec settle = {0, SETTLE_MS * 1000000L};
	struct test_server *server = &quorum.servers[quorum.count - 1];

	(on ? server_pause : server_resume)(server);
	nanosleep(&settle, NULL);
}

/* With all servers, and without one of them. */
static void run_stopped(struct bench *bench, int rounds)
{
	const struct stage stage = {NULL, CONTENDERS};
	int64_t turn_ms = bench_brief(bench) ? 20 : 100;
	struct workers *workers = workers_start(&stage, &contending, CONTENDERS, true);
	const struct timed timed = timed_ours(quorum.url);
	double alone[ROUNDS_MAX], crowd[ROUNDS_MAX];

	us_of_crowd(workers, turn_ms);
	for (int round = 0; round < rounds; round++) {
		double us[2], crowd_us[2];

		for (int i = 0; i < 2; i++) {
			int stopped = (round & 1) ^ i;
			if (stopped)
				stop_one(true);
			time_to_hold(&timed, turn_ms / 5); /* gets used to it */
			us[stopped] = time_to_hold(&timed, turn_ms);
			us_of_crowd(workers, turn_ms / 5);
			crowd_us[stopped] = us_of_crowd(workers, turn_ms);
			if (stopped)
				stop_one(false);
		}
		alone[round] = us[1] / us[0];
		crowd[round] = crowd_us[1] / crowd_us[0];
	}
	workers_end(workers);
	ours_close(timed.self);
	figure(bench, "stopped.ratio", "time to hold with one server stopped / with all",
	       spread_of(alone, rounds), "", AT_MOST, 1.3);
	figure(bench, "stopped.contended.ratio",
	       "8 processes, time an acquisition with one server stopped / with all",
	       spread_of(crowd, rounds), "", AT_MOST, 1.3);
}

/* ---- Contended ----------------------------------------------------------------------------- */

static void *open_crowd(const struct stage *stage, int index)
{
	char name[64];

	(void)index;
	snprintf(name, sizeof(name), NAME ":%d", stage->size);
	return ours_open(quorum.url, name);
}

/* The control: the whole protocol by bare hiredis, as in the other contended cases.  It has the
 * same requests, messages, connections and processes. */
static void *legs_open_here(const struct stage *stage, int index)
{
	char name[64];

	snprintf(name, sizeof(name), NAME ":bare:%d", stage->size);
	return legs_open(quorum.servers, quorum.count, name, index);
}

static int servers_contended(bool of_bare, const struct test_server *all[SERVERS_MAX])
{
	(void)of_bare;
	return members(all);
}

static void run_contended(struct bench *bench)
{
	static const struct work ours = {.open = open_crowd,
	                                 .acquire = ours_acquire,
	                                 .release = ours_release,
	                                 .close = ours_close};
	static const struct work bare = {.open = legs_open_here,
	                                 .acquire = legs_acquire,
	                                 .release = legs_release,
	                                 .close = legs_close};
	char id[40], what[80], title[40];
	const struct contended contended = {
		.id = id,
		.what = what,
		.title = title,
		.ours = &ours,
		.bare = &bare,
		.permits = 1,
		.rounds = CONTENDED_ROUNDS,
		.largest = bench_brief(bench) ? 8 : 64,
		.requests_max = SPARE * 2 * quorum.count,
		.longest_from = 32,
		.few = {64, 0.8, .or_bare = true},
		.servers = servers_contended,
	};

	snprintf(id, sizeof(id), "quorum.%d.contended", quorum.count);
	snprintf(what, sizeof(what), "processes on one lock of %d servers", quorum.count);
	snprintf(title, sizeof(title), "%d servers, processes", quorum.count);
	contended_run(bench, &contended);
}

static void run(struct bench *bench)
{
	int rounds = bench_brief(bench) ? 1 : ROUNDS;

	for (int count = 3; count <= (bench_brief(bench) ? 3 : SIZE_MAX_SERVERS); count += 2) {
		start_quorum(bench, count);
		run_pair(bench);
		run_loopback(bench, rounds);
		run_delayed(bench, rounds);
		run_stopped(bench, rounds);
		run_contended(bench);
		stop_quorum();
	}
}

const struct bench_case case_quorum = {
	"quorum", "a quorum of 3 and 5 servers: alone, far away, one stopped, contended", run};
