/* SPDX-License-Identifier: MIT
 * A Redis Cluster of three masters with a replica each, against one master with a replica: a pair
 * alone, processes on one lock; and a thousand names on one master of the Cluster and on three.
 * What a hand-off costs the nodes that do not have the name is measured against the same time
 * without work. */
#include "attach.h"
#include "base/slot.h"
#include "crew.h"
#include "harness/cluster_setup.h"
#include "ours.h"
#include "workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME "bench:cluster"
#define NAMES 1000
#define THREADS 8
#define REQUESTS_MAX 2.1
#define REST_MS 5 /* of the nodes, before they are measured at rest */

static struct cluster_setup setup;
static char url[200];
static struct cluster_view layout;
static struct test_server replica; /* of the contest's server */

static void start_cluster(void)
{
	cluster_setup_start(&setup, NULL);
	cluster_setup_view(&setup, 0, &layout);
	snprintf(url, sizeof(url), "%s?grace=0", setup.url);
}

static int owner_of(const char *name)
{
	return layout.owner[lk__slot_of(name, strlen(name))];
}

/* The next name of that series whose slot is at this master, -1 = at any. */
static void next_name(const char *series, int master, int *number, char *name, size_t size)
{
	do
		snprintf(name, size, "%s:%d", series, (*number)++);
	while (master >= 0 && owner_of(name) != master);
}

/* ---- Alone --------------------------------------------------------------------------------- */

static void *open_here(const struct stage *stage)
{
	(void)stage;
	return ours_open(url, NAME);
}

/* Of the first contestant the node of the name; of the other one the contest's server. */
static int node_of_name(int contestant, const struct test_server *all[SERVERS_MAX])
{
	if (contestant)
		return 0;
	all[0] = &setup.nodes[owner_of(NAME)];
	return 1;
}

static void *open_single(const struct stage *stage)
{
	replicas_attach(stage->server, &replica, 1);
	return ours_open(stage->server->url, NAME);
}

static void run_pair(struct bench *bench)
{
	static const struct contestant here = {.name = "latchkey, a Cluster",
	                                       .open = open_here,
	                                       .once = ours_pair,
	                                       .close = ours_close};
	static const struct contestant single = {.name = "latchkey, a master with a replica",
	                                         .open = open_single,
	                                         .once = ours_pair,
	                                         .close = ours_close};
	const struct contest contest = {
		.id = "cluster/pair",
		.what = "acquire + release, one thread; CPU and requests of the name's node",
		.size = 1,
		.contestants = {&here, &single},
		.server_args = replicas_soon,
		.servers = node_of_name,
	};
	struct result result;

	bench_contest(bench, &contest, &result);
	replicas_stop(&replica, 1);
	bench_figure(bench, "cluster.pair.ratio.single", "pair: rate / rate with one master",
	             ratio_of_rates(&result, 0, 1), "", NO_GOAL, 0);
	bench_figure(bench, "cluster.pair.server.single",
	             "pair: CPU of the name's node / CPU of one master",
	             ratio_of_server_cpu(&result, 0, 1), "", NO_GOAL, 0);
	bench_number(bench, "cluster.pair.requests", "pair: requests", result.of[0].requests, "",
	             AT_MOST, REQUESTS_MAX);
}

/* ---- Contended ----------------------------------------------------------------------------- */

static void *open_ours(const struct stage *stage, int index)
{
	(void)index;
	return ours_open(stage->server ? stage->server->url : url, NAME);
}

static const struct work contending = {
	.open = open_ours, .acquire = ours_acquire, .release = ours_release, .close = ours_close};

struct party {
	struct stage stage; /* without a server: the Cluster */
	struct workers *workers;
};

static struct party *party_open(const struct test_server *server, int size)
{
	struct party *party = calloc(1, sizeof(*party));

	if (!party)
		bench_fail("out of memory");
	party->stage = (struct stage){server, size};
	party->workers = workers_start(&party->stage, &contending, size, true);
	return party;
}

static void *party_here(const struct stage *stage)
{
	return party_open(NULL, stage->size);
}

static void *party_single(const struct stage *stage)
{
	replicas_attach(stage->server, &replica, 1);
	return party_open(stage->server, stage->size);
}

static int64_t party_turn(void *arg, int64_t until_ns)
{
	struct party *party = arg;
	struct tally tally;

	workers_begin(party->workers, &(struct order){until_ns, 0});
	workers_await(party->workers, &tally);
	return tally.ops;
}

static int64_t party_cpu(void *arg)
{
	struct party *party = arg;

	return workers_cpu_ns(party->workers);
}

static void party_close(void *arg)
{
	struct party *party = arg;

	workers_end(party->workers);
	free(party);
}

static void run_contended(struct bench *bench, int size)
{
	static const struct contestant here = {.name = "latchkey, a Cluster",
	                                       .open = party_here,
	                                       .turn = party_turn,
	                                       .close = party_close,
	                                       .cpu_ns = party_cpu};
	static const struct contestant single = {.name = "latchkey, a master with a replica",
	                                         .open = party_single,
	                                         .turn = party_turn,
	                                         .close = party_close,
	                                         .cpu_ns = party_cpu};
	char id[64], what[160];
	struct contest contest = {.id = id,
	                          .what = "processes on one lock; CPU and requests of its node",
	                          .size = size,
	                          .contestants = {&here, &single},
	                          .server_args = replicas_soon,
	                          .servers = node_of_name};
	struct result result;

	snprintf(id, sizeof(id), "cluster/contended/%d", size);
	bench_contest(bench, &contest, &result);
	replicas_stop(&replica, 1);
	snprintf(id, sizeof(id), "cluster.contended.%d.requests", size);
	snprintf(what, sizeof(what), "contended, %d: requests an acquisition", size);
	bench_number(bench, id, what, result.of[0].requests, "", AT_MOST, REQUESTS_MAX);
	snprintf(id, sizeof(id), "cluster.contended.%d.ratio.single", size);
	snprintf(what, sizeof(what), "contended, %d: rate / rate with one master", size);
	bench_figure(bench, id, what, ratio_of_rates(&result, 0, 1), "", NO_GOAL, 0);
}

/* ---- A thousand names ------------------------------------------------------------------------ */

struct many {
	lk_client *client;
	lk_lock *locks[NAMES];
	int next[THREADS];
	struct crew *crew;
};

/* Each thread takes its names in turns. */
static int64_t many_work(void *arg, int number, int64_t until_ns)
{
	struct many *many = arg;
	int64_t pairs = 0;

	do {
		lk_lock *lock = many->locks[many->next[number]];
		if (lk_lock_acquire(lock, LK_FOREVER, NULL) || lk_lock_release(lock))
			bench_fail("latchkey: %s", lk_errmsg());
		many->next[number] = (many->next[number] + THREADS) % NAMES;
		pairs++;
	} while (bench_now_ns() < until_ns);
	return pairs;
}

static struct many *many_open(int master)
{
	struct many *many = calloc(1, sizeof(*many));
	char series[40], name[64];
	int number = 0;

	snprintf(series, sizeof(series), NAME ":%d", master);
	if (!many || lk_client_open(url, NULL, &many->client))
		bench_fail("latchkey: %s", lk_errmsg());
	for (int i = 0; i < NAMES; i++) {
		next_name(series, master, &number, name, sizeof(name));
		if (lk_lock_open(many->client, name, 0, NULL, &many->locks[i]))
			bench_fail("latchkey: %s", lk_errmsg());
	}
	for (int i = 0; i < THREADS; i++)
		many->next[i] = i;
	many->crew = crew_start(THREADS, many_work, many);
	return many;
}

static void *many_open_one(const struct stage *stage)
{
	(void)stage;
	return many_open(0);
}

static void *many_open_all(const struct stage *stage)
{
	(void)stage;
	return many_open(-1);
}

static int all_masters(int contestant, const struct test_server *all[SERVERS_MAX])
{
	(void)contestant;
	for (int i = 0; i < CLUSTER_MASTERS; i++)
		all[i] = &setup.nodes[i];
	return CLUSTER_MASTERS;
}

static int64_t many_turn(void *arg, int64_t until_ns)
{
	struct many *many = arg;

	return crew_turn(many->crew, until_ns);
}

static void many_close(void *arg)
{
	struct many *many = arg;

	crew_stop(many->crew);
	if (lk_client_close(many->client))
		bench_fail("latchkey: %s", lk_errmsg());
	free(many);
}

/* How the work of names that lie anywhere is spread over the masters. */
static void tell_share(struct bench *bench, int rounds)
{
	struct many *many = many_open(-1);
	double most[ROUNDS_MAX];

	many_turn(many, bench_now_ns());
	for (int round = 0; round < rounds; round++) {
		int64_t before[CLUSTER_MASTERS], all = 0, worst = 0;

		for (int i = 0; i < CLUSTER_MASTERS; i++)
			before[i] = bench_cpu_ns(setup.nodes[i].pid);
		many_turn(many, bench_now_ns() + 200 * 1000000);
		for (int i = 0; i < CLUSTER_MASTERS; i++) {
			int64_t ns = bench_cpu_ns(setup.nodes[i].pid) - before[i];
			all += ns;
			worst = ns > worst ? ns : worst;
		}
		most[round] = (double)worst * CLUSTER_MASTERS / (double)all;
	}
	many_close(many);
	bench_figure(bench, "cluster.names.share",
	             "1,000 names on three masters: CPU of the busiest / mean",
	             spread_of(most, rounds), "", NO_GOAL, 0);
}

static void run_many(struct bench *bench, int rounds)
{
	static const struct contestant three = {.name = "on three masters",
	                                        .open = many_open_all,
	                                        .turn = many_turn,
	                                        .close = many_close};
	static const struct contestant one = {.name = "on one master",
	                                      .open = many_open_one,
	                                      .turn = many_turn,
	                                      .close = many_close};
	const struct contest contest = {
		.id = "cluster/names",
		.what = "1,000 names, 8 threads of one client; CPU and requests of all masters",
		.size = NAMES,
		.contestants = {&three, &one},
		.servers = all_masters,
	};
	struct result result;

	bench_contest(bench, &contest, &result);
	bench_figure(bench, "cluster.names.server.three",
	             "1,000 names on three masters: CPU of all masters, a pair",
	             result.of[0].server_us, "us", NO_GOAL, 0);
	bench_figure(bench, "cluster.names.server.one",
	             "1,000 names on one master: CPU of all masters, a pair",
	             result.of[1].server_us, "us", NO_GOAL, 0);
	bench_figure(bench, "cluster.names.ratio.server", "CPU of all masters: three / one",
	             ratio_of_server_cpu(&result, 0, 1), "", NO_GOAL, 0);
	bench_figure(bench, "cluster.names.ratio.rate", "rate: three masters / one",
	             ratio_of_rates(&result, 0, 1), "", NO_GOAL, 0);
	bench_number(bench, "cluster.names.requests", "1,000 names: requests a pair",
	             result.of[0].requests, "", AT_MOST, REQUESTS_MAX);
	tell_share(bench, rounds);
}

/* ---- The other nodes --------------------------------------------------------------------------
 */

/* CPU of the node that has the name, of its replica, of all others. */
enum part { OWNER, REPLICA, OTHERS, PARTS };

static void read_parts(int64_t ns[PARTS])
{
	int owner = owner_of(NAME);

	memset(ns, 0, sizeof(ns[0]) * PARTS);
	for (int i = 0; i < CLUSTER_NODES; i++) {
		enum part part = i == owner                        ? OWNER
		                 : i == cluster_setup_other(owner) ? REPLICA
		                                                   : OTHERS;
		ns[part] += bench_cpu_ns(setup.nodes[i].pid);
	}
}

static void rest_until(int64_t until_ns)
{
	const struct timespec rest = {0, REST_MS * 1000000L};

	while (bench_now_ns() < until_ns)
		nanosleep(&rest, NULL);
}

/* CPU of each part, us a hand-off, less what the same time takes at rest. */
static void one_round(struct party *party, double us[PARTS])
{
	const int64_t turn_ns = 300 * INT64_C(1000000);
	int64_t at[3][PARTS], begin_ns, busy_ns, ops;
	double rest;

	read_parts(at[0]);
	begin_ns = bench_now_ns();
	ops = party_turn(party, begin_ns + turn_ns);
	busy_ns = bench_now_ns() - begin_ns;
	read_parts(at[1]);
	rest_until(bench_now_ns() + busy_ns);
	read_parts(at[2]);
	if (ops <= 0)
		bench_fail("no hand-off in a turn");
	for (int i = 0; i < PARTS; i++) {
		rest = (double)(at[2][i] - at[1][i]);
		us[i] = ((double)(at[1][i] - at[0][i]) - rest) / 1e3 / (double)ops;
	}
}

static void run_others(struct bench *bench, int rounds)
{
	static const char *const ids[PARTS] = {"cluster.handoff.node", "cluster.handoff.replica",
	                                       "cluster.handoff.others"};
	static const char *const whats[PARTS] = {
		"hand-off, 2 processes: CPU of the name's master",
		"hand-off, 2 processes: CPU of that master's replica, above rest",
		"hand-off, 2 processes: CPU of the four other nodes, above rest"};
	struct party *party = party_open(NULL, 2);
	double us[PARTS][ROUNDS_MAX], now[PARTS];

	party_turn(party, bench_now_ns());
	for (int round = 0; round < rounds; round++) {
		one_round(party, now);
		for (int i = 0; i < PARTS; i++)
			us[i][round] = now[i];
	}
	party_close(party);
	for (int i = 0; i < PARTS; i++)
		bench_figure(bench, ids[i], whats[i], spread_of(us[i], rounds), "us", NO_GOAL, 0);
}

static void run(struct bench *bench)
{
	static const int sizes[] = {2, 8, 32};
	int rounds = bench_brief(bench) ? 1 : 9;

	start_cluster();
	run_pair(bench);
	for (int i = 0; i < (bench_brief(bench) ? 1 : 3); i++)
		run_contended(bench, sizes[i]);
	run_many(bench, rounds);
	run_others(bench, rounds);
	cluster_setup_stop(&setup);
}

const struct bench_case case_cluster = {
	"cluster", "a Redis Cluster: alone, contended, a thousand names, the other nodes", run};
