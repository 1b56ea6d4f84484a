/* SPDX-License-Identifier: MIT
 * A latch opens and releases a thousand processes or threads: the time from the call of down() to
 * the last return, compared with a bare PUBLISH to as many bare subscribers. */
#include "harness/redis.h"
#include "workers.h"

#include <latchkey.h>

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define COUNT 1000
#define COUNT_BRIEF 50
#define ROUNDS 9
#define NAME "bench:latch"
#define BARE_CHANNEL "lk:l:0:{bench:bares}"
#define BARE_MESSAGE "open 1700000000000000"
#define BARE_WHOLE "*3\r\n$7\r\nmessage\r\n$20\r\n" BARE_CHANNEL "\r\n$21\r\n" BARE_MESSAGE "\r\n"
#define QUIET_NS 100000000 /* without a request for this long, all are waiting */
#define NAP_NS 5000000
#define FDS_SPARE 100

enum way { LATCH, PUBLISH, BROADCAST, WAYS };

/* The number of waiters. */
static int crowd_size = COUNT;

/* ---- Waiters ------------------------------------------------------------------------------- */

struct waiter {
	lk_client *client; /* NULL: all share one */
	lk_latch *latch;
	redisContext *bare;
};

/* For threads. */
static lk_latch *shared_latch;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static int64_t openings;

static lk_latch *latch_open(const struct test_server *server, lk_client **client)
{
	lk_latch *latch;

	if (lk_client_open(server->url, NULL, client) ||
	    lk_latch_open(*client, NAME, 0, NULL, &latch))
		bench_fail("latchkey: %s", lk_errmsg());
	return latch;
}

static redisContext *bare_dial(const struct test_server *server)
{
	redisContext *context = redisConnect("127.0.0.1", server->port);

	if (!context || context->err)
		bench_fail("bare hiredis: %s", context ? context->errstr : "out of memory");
	return context;
}

static void *waiter_open(const struct stage *stage, bool alone)
{
	struct waiter *self = calloc(1, sizeof(*self));
	redisReply *reply;

	if (!self)
		bench_fail("out of memory");
	self->latch = alone ? latch_open(stage->server, &self->client) : shared_latch;
	self->bare = bare_dial(stage->server);
	reply = redisCommand(self->bare, "SUBSCRIBE %s", BARE_CHANNEL);
	if (!reply || reply->type != REDIS_REPLY_ARRAY)
		bench_fail("bare hiredis: cannot subscribe");
	freeReplyObject(reply);
	return self;
}

static void *process_open(const struct stage *stage, int index)
{
	(void)index;
	return waiter_open(stage, true);
}

static void *thread_open(const struct stage *stage, int index)
{
	(void)index;
	return waiter_open(stage, false);
}

/* Read a message of that length without parsing it. */
static void await_message(int fd)
{
	char bytes[sizeof(BARE_WHOLE)];
	size_t have = 0;

	while (have < sizeof(BARE_WHOLE) - 1) {
		ssize_t got = read(fd, bytes + have, sizeof(BARE_WHOLE) - 1 - have);

		if (got <= 0)
			bench_fail("bare subscriber: the connection is lost");
		have += (size_t)got;
	}
	if (memcmp(bytes, BARE_WHOLE, have) != 0)
		bench_fail("bare subscriber: another message than expected");
}

static void await_broadcast(void)
{
	int64_t before;

	pthread_mutex_lock(&mutex);
	before = openings;
	while (openings == before)
		pthread_cond_wait(&opened, &mutex);
	pthread_mutex_unlock(&mutex);
}

static void waiter_turn(void *arg, const struct order *order)
{
	struct waiter *self = arg;

	if (order->number == PUBLISH)
		await_message(self->bare->fd);
	else if (order->number == BROADCAST)
		await_broadcast();
	else if (lk_latch_await(self->latch, LK_FOREVER))
		bench_fail("latchkey: %s", lk_errmsg());
}

static void waiter_close(void *arg)
{
	struct waiter *self = arg;

	if (self->client)
		lk_client_close(self->client);
	redisFree(self->bare);
	free(self);
}

/* ---- Releasing them ------------------------------------------------------------------------ */

struct crowd {
	struct workers *workers;
	lk_client *client;
	lk_latch *latch;
	redisContext *bare;
	struct redis *redis;
};

/* Wait until the server had no request for a while: all waiters sleep. */
static void await_quiet(struct crowd *crowd)
{
	int64_t since_ns = bench_now_ns();
	long long calls = -1, seen;

	while (bench_now_ns() - since_ns < QUIET_NS) {
		seen = redis_calls(crowd->redis, "evalsha") +
		       redis_calls(crowd->redis, "subscribe");
		if (seen != calls)
			since_ns = bench_now_ns();
		calls = seen;
		nanosleep(&(struct timespec){0, NAP_NS}, NULL);
	}
}

static void publish(struct crowd *crowd)
{
	redisReply *reply = redisCommand(crowd->bare, "PUBLISH %s %s", BARE_CHANNEL, BARE_MESSAGE);

	if (!reply || reply->integer != crowd_size)
		bench_fail("bare PUBLISH did not reach all");
	freeReplyObject(reply);
}

static void broadcast(void)
{
	pthread_mutex_lock(&mutex);
	openings++;
	pthread_mutex_unlock(&mutex);
	pthread_cond_broadcast(&opened);
}

/* Milliseconds from the call to the last return. */
static double release(struct crowd *crowd, enum way way)
{
	int64_t start_ns;
	struct tally tally;

	if (way == LATCH && lk_latch_reset(crowd->latch, 1, NULL))
		bench_fail("latchkey: %s", lk_errmsg());
	workers_begin(crowd->workers, &(struct order){0, way});
	workers_line_up(crowd->workers);
	await_quiet(crowd);
	start_ns = bench_now_ns();
	if (way == PUBLISH)
		publish(crowd);
	else if (way == BROADCAST)
		broadcast();
	else if (lk_latch_down(crowd->latch, 1, NULL, 0, NULL))
		bench_fail("latchkey: %s", lk_errmsg());
	workers_await(crowd->workers, &tally);
	return (double)(tally.end_ns - start_ns) / 1e6;
}

/* ---- The figures --------------------------------------------------------------------------- */

/* A thousand connections in one process, and two thousand at the server. */
static bool fds_suffice(struct bench *bench)
{
	const rlim_t wanted = 3 * (rlim_t)crowd_size + FDS_SPARE;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		bench_fail("the limit of descriptors is not known");
	limit.rlim_cur = limit.rlim_max;
	if (!setrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur >= wanted)
		return true;
	bench_note(bench, "skipped: ulimit -n allows %lld descriptors, not %lld",
	           (long long)limit.rlim_cur, (long long)wanted);
	return false;
}

static void measure(struct crowd *crowd, bool processes, int rounds, double ms[WAYS][ROUNDS])
{
	const int ways = processes ? BROADCAST : WAYS;

	for (int round = -1; round < rounds; round++) {
		for (int i = 0; i < ways; i++) {
			int way = round & 1 ? ways - 1 - i : i;
			double took = release(crowd, (enum way)way);

			if (round >= 0)
				ms[way][round] = took;
		}
	}
}

static void report(struct bench *bench, bool processes, int rounds, double ms[WAYS][ROUNDS])
{
	const char *waiters = processes ? "processes" : "threads";
	double ratio[ROUNDS];
	char id[64], what[120];

	for (int i = 0; i < rounds; i++)
		ratio[i] = ms[LATCH][i] / ms[PUBLISH][i];
	snprintf(id, sizeof(id), "latch.%s.ratio.publish", waiters);
	snprintf(what, sizeof(what), "latch: %d %s released, time / bare PUBLISH", crowd_size,
	         waiters);
	bench_figure(bench, id, what, spread_of(ratio, rounds), "", AT_MOST, 1.3);
	snprintf(id, sizeof(id), "latch.%s.ms", waiters);
	snprintf(what, sizeof(what), "latch: %d %s, down() to the last return", crowd_size,
	         waiters);
	bench_figure(bench, id, what, spread_of(ms[LATCH], rounds), "ms", NO_GOAL, 0);
	snprintf(id, sizeof(id), "latch.%s.publish.ms", waiters);
	snprintf(what, sizeof(what), "latch: %d %s, PUBLISH to bare subscribers", crowd_size,
	         waiters);
	bench_figure(bench, id, what, spread_of(ms[PUBLISH], rounds), "ms", NO_GOAL, 0);
	if (processes)
		return;
	snprintf(what, sizeof(what), "latch: %d threads, a bare condition's broadcast", crowd_size);
	bench_figure(bench, "latch.threads.broadcast.ms", what, spread_of(ms[BROADCAST], rounds),
	             "ms", NO_GOAL, 0);
}

static void run_crowd(struct bench *bench, bool processes)
{
	const struct work work = {.open = processes ? process_open : thread_open,
	                          .turn = waiter_turn,
	                          .close = waiter_close};
	const int rounds = bench_brief(bench) ? 1 : ROUNDS;
	double ms[WAYS][ROUNDS];
	lk_client *shared = NULL;
	struct test_server server;
	struct stage stage = {.server = &server, .size = crowd_size};
	struct crowd crowd = {0};
	int64_t start_ns;

	bench_server(bench, &server, NULL);
	if (!processes)
		shared_latch = latch_open(&server, &shared);
	start_ns = bench_now_ns();
	crowd.workers = workers_start(&stage, &work, crowd_size, processes);
	bench_note(bench, "%d %s started in %.1f s", crowd_size,
	           processes ? "processes" : "threads", (double)(bench_now_ns() - start_ns) / 1e9);
	crowd.latch = latch_open(&server, &crowd.client);
	crowd.bare = bare_dial(&server);
	crowd.redis = redis_open(&server);
	measure(&crowd, processes, rounds, ms);
	redis_close(crowd.redis);
	redisFree(crowd.bare);
	lk_client_close(crowd.client);
	workers_end(crowd.workers);
	if (shared)
		lk_client_close(shared);
	server_stop(&server);
	report(bench, processes, rounds, ms);
}

static void run(struct bench *bench)
{
	if (bench_brief(bench))
		crowd_size = COUNT_BRIEF;
	if (!fds_suffice(bench))
		return;
	run_crowd(bench, true);
	run_crowd(bench, false);
}

const struct bench_case case_latch = {
	"latch", "1,000 processes, and 1,000 threads, wait for a latch that opens", run};
