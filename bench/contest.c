/* SPDX-License-Identifier: MIT
 * Contests: short turns in alternating order, the result of each round, and their median. */
#include "measure.h"
#include "run.h"

#include "harness/redis.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000
#define TRIES_MAX 4 /* of a turn without an operation */

/* Readings before and after one turn. */
struct turn {
	double rate, server_us, client_us;
	int64_t ops, requests;
};

struct entrant {
	const struct contestant *contestant;
	void *self;
	int index;
	struct reading (*read)(int contestant); /* NULL = of the servers */
	const struct test_server *servers[SERVERS_MAX];
	int server_count;
	int64_t ops, requests; /* of all rounds */
	double rate[ROUNDS_MAX], server_us[ROUNDS_MAX], client_us[ROUNDS_MAX];
};

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Interpolate where the rank falls between two values. */
static double at_share(const double *sorted, int count, double share)
{
	double place = share * (count - 1);
	int below = (int)place;

	if (below + 1 >= count)
		return sorted[count - 1];
	return sorted[below] + (place - below) * (sorted[below + 1] - sorted[below]);
}

struct spread spread_of(const double *values, int count)
{
	double *sorted = malloc(sizeof(*sorted) * (size_t)(count > 0 ? count : 1));
	struct spread spread = {NAN, NAN, NAN};

	if (!sorted)
		bench_fail("out of memory");
	if (count > 0) {
		memcpy(sorted, values, sizeof(*sorted) * (size_t)count);
		qsort(sorted, (size_t)count, sizeof(*sorted), by_value);
		spread.median = at_share(sorted, count, 0.5);
		spread.low = at_share(sorted, count, 0.1);
		spread.high = at_share(sorted, count, 0.9);
	}
	free(sorted);
	return spread;
}

static struct spread ratios(const double *a, const double *b, int count)
{
	double ratio[ROUNDS_MAX];

	for (int i = 0; i < count; i++)
		ratio[i] = a[i] / b[i];
	return spread_of(ratio, count);
}

struct spread ratio_of_rates(const struct result *result, int a, int b)
{
	return ratios(result->of[a].by_round, result->of[b].by_round, result->rounds);
}

struct spread ratio_of_server_cpu(const struct result *result, int a, int b)
{
	return ratios(result->of[a].server_by_round, result->of[b].server_by_round, result->rounds);
}

struct spread ratio_of_client_cpu(const struct result *result, int a, int b)
{
	return ratios(result->of[a].client_by_round, result->of[b].client_by_round, result->rounds);
}

void bench_server(struct bench *bench, struct test_server *server, const char *const *args)
{
	struct server_options options = {.args = args};

	server_start(server, &options);
	if (!bench->server_version[0]) {
		struct redis *redis = redis_open(server);
		const char *info = redis_text(redis, "INFO server");
		const char *at = strstr(info, "redis_version:");

		if (at)
			snprintf(bench->server_version, sizeof(bench->server_version), "%.*s",
			         (int)strcspn(at + 14, "\r\n"), at + 14);
		redis_close(redis);
	}
}

bool bench_brief(const struct bench *bench)
{
	return bench->options.rounds == 1;
}

static int64_t client_cpu(const struct entrant *entrant)
{
	const struct contestant *contestant = entrant->contestant;

	return contestant->cpu_ns ? contestant->cpu_ns(entrant->self) : bench_cpu_ns(0);
}

static void find_servers(struct entrant *entrant, const struct contest *contest, int index,
                         const struct test_server *own)
{
	entrant->index = index;
	entrant->read = contest->read;
	if (contest->read)
		return;
	if (contest->servers)
		entrant->server_count = contest->servers(index, entrant->servers);
	if (entrant->server_count)
		return;
	entrant->servers[0] = own;
	entrant->server_count = 1;
}

static int64_t work(const struct entrant *entrant, int64_t until_ns)
{
	const struct contestant *contestant = entrant->contestant;
	int64_t ops = 0;

	if (contestant->turn)
		return contestant->turn(entrant->self, until_ns);
	do {
		contestant->once(entrant->self);
		ops++;
	} while (bench_now_ns() < until_ns);
	return ops;
}

static int64_t servers_cpu(const struct entrant *entrant)
{
	int64_t ns = 0;

	for (int i = 0; i < entrant->server_count; i++)
		ns += bench_cpu_ns(entrant->servers[i]->pid);
	return ns;
}

static struct turn try_turn(const struct entrant *entrant, int64_t turn_ns)
{
	struct requests requests[SERVERS_MAX], requests_end;
	struct reading before = {0}, after = {0};
	int64_t client_ns, start_ns, end_ns;
	struct turn turn = {0};

	for (int i = 0; i < entrant->server_count; i++)
		requests[i] = requests_of(entrant->servers[i]);
	if (entrant->read)
		before = entrant->read(entrant->index);
	else
		before.cpu_ns = servers_cpu(entrant);
	client_ns = client_cpu(entrant);
	start_ns = bench_now_ns();
	turn.ops = work(entrant, start_ns + turn_ns);
	end_ns = bench_now_ns();
	client_ns = client_cpu(entrant) - client_ns;
	if (entrant->read)
		after = entrant->read(entrant->index);
	else
		after.cpu_ns = servers_cpu(entrant);
	turn.requests = after.requests - before.requests;
	for (int i = 0; i < entrant->server_count; i++) {
		requests_end = requests_of(entrant->servers[i]);
		turn.requests += requests_between(&requests[i], &requests_end);
	}
	if (turn.ops <= 0)
		return turn;
	turn.rate = (double)turn.ops * 1e9 / (double)(end_ns - start_ns);
	turn.server_us = (double)(after.cpu_ns - before.cpu_ns) / 1e3 / (double)turn.ops;
	turn.client_us = (double)client_ns / 1e3 / (double)turn.ops;
	return turn;
}

/* A machine may stall for a whole turn: then repeat with a longer one. */
static struct turn take_turn(const struct entrant *entrant, int64_t turn_ns)
{
	for (int i = 0; i < TRIES_MAX; i++, turn_ns *= 4) {
		struct turn turn = try_turn(entrant, turn_ns);

		if (turn.ops > 0)
			return turn;
	}
	bench_fail("%s did nothing in its turn", entrant->contestant->name);
}

static void one_round(struct entrant *entrants, int count, int64_t turn_ns, int round)
{
	for (int i = 0; i < count; i++) {
		struct entrant *entrant = &entrants[round & 1 ? count - 1 - i : i];
		struct turn turn = take_turn(entrant, turn_ns);

		if (round < 0)
			continue;
		entrant->ops += turn.ops;
		entrant->requests += turn.requests;
		entrant->rate[round] = turn.rate;
		entrant->server_us[round] = turn.server_us;
		entrant->client_us[round] = turn.client_us;
	}
}

static void sum_up(const struct entrant *entrant, int rounds, struct performance *of)
{
	of->name = entrant->contestant->name;
	of->rate = spread_of(entrant->rate, rounds);
	of->server_us = spread_of(entrant->server_us, rounds);
	of->client_us = spread_of(entrant->client_us, rounds);
	of->requests = (double)entrant->requests / (double)entrant->ops;
	memcpy(of->by_round, entrant->rate, sizeof(of->by_round));
	memcpy(of->server_by_round, entrant->server_us, sizeof(of->server_by_round));
	memcpy(of->client_by_round, entrant->client_us, sizeof(of->client_by_round));
}

static void keep(struct bench *bench, const struct contest *contest, int64_t turn_ms,
                 const struct result *result)
{
	struct found_contest *found = &bench->contests[bench->contest_count];

	if (bench->contest_count == CONTESTS_MAX)
		bench_fail("more than %d contests", CONTESTS_MAX);
	bench->contest_count++;
	snprintf(found->id, sizeof(found->id), "%s", contest->id);
	snprintf(found->what, sizeof(found->what), "%s", contest->what);
	found->size = contest->size;
	found->rounds = result->rounds;
	found->turn_ms = turn_ms;
	found->result = *result;
	for (int i = 0; i < result->count; i++)
		if (!(found->result.of[i].name = strdup(result->of[i].name)))
			bench_fail("out of memory");
	report_contest(found);
}

/* Note, once a case, that ROUNDS or TURN were given and are not used. */
static void tell_own(struct bench *bench, const struct contest *contest)
{
	const struct bench_options *options = &bench->options;
	bool rounds = contest->rounds && options->rounds_said;
	bool turn = contest->turn_ms && options->turn_said;

	if (bench->own_case == bench->case_name || (!rounds && !turn))
		return;
	bench->own_case = bench->case_name;
	if (rounds)
		bench_note(bench, "has its own rounds, %d: ROUNDS is not used", contest->rounds);
	if (turn)
		bench_note(bench, "has its own turns, %lld ms: TURN is not used",
		           (long long)contest->turn_ms);
}

void bench_contest(struct bench *bench, const struct contest *contest, struct result *result)
{
	struct entrant *entrants = calloc(CONTESTANTS_MAX, sizeof(*entrants));
	bool own = !bench_brief(bench);
	int rounds = own && contest->rounds ? contest->rounds : bench->options.rounds;
	int64_t turn_ms = own && contest->turn_ms ? contest->turn_ms : bench->options.turn_ms;
	struct test_server server;
	struct stage stage = {.server = &server, .size = contest->size};
	int count = 0;

	if (!entrants || rounds > ROUNDS_MAX)
		bench_fail("%s: too many rounds, or no memory", contest->id);
	if (own)
		tell_own(bench, contest);
	if (!contest->read)
		bench_server(bench, &server, contest->server_args);
	for (; count < CONTESTANTS_MAX && contest->contestants[count]; count++) {
		entrants[count].contestant = contest->contestants[count];
		entrants[count].self = contest->contestants[count]->open(&stage);
		find_servers(&entrants[count], contest, count, &server);
	}
	/* The round before the first is discarded. */
	for (int round = -1; round < rounds; round++)
		one_round(entrants, count, turn_ms * MS, round);
	for (int i = count - 1; i >= 0; i--)
		entrants[i].contestant->close(entrants[i].self);
	if (!contest->read)
		server_stop(&server);
	memset(result, 0, sizeof(*result));
	result->rounds = rounds;
	result->count = count;
	for (int i = 0; i < count; i++)
		sum_up(&entrants[i], rounds, &result->of[i]);
	free(entrants);
	keep(bench, contest, turn_ms, result);
}

/* ---- Figures, points, notes ---------------------------------------------------------------- */

static struct figure *figure_add(struct bench *bench, const char *id, const char *what,
                                 const char *unit, enum goal goal, double bound)
{
	struct figure *figure = &bench->figures[bench->figure_count];

	if (bench->figure_count == FIGURES_MAX)
		bench_fail("more than %d figures", FIGURES_MAX);
	bench->figure_count++;
	snprintf(figure->id, sizeof(figure->id), "%s", id);
	snprintf(figure->what, sizeof(figure->what), "%s", what);
	snprintf(figure->unit, sizeof(figure->unit), "%s", unit ? unit : "");
	figure->goal = goal;
	figure->bound = bound;
	return figure;
}

void bench_figure(struct bench *bench, const char *id, const char *what, struct spread value,
                  const char *unit, enum goal goal, double bound)
{
	struct figure *figure = figure_add(bench, id, what, unit, goal, bound);

	figure->value = value;
	figure->has_spread = true;
}

void bench_number(struct bench *bench, const char *id, const char *what, double value,
                  const char *unit, enum goal goal, double bound)
{
	figure_add(bench, id, what, unit, goal, bound)->value =
		(struct spread){value, value, value};
}

bool figure_met(const struct figure *figure)
{
	double value = figure->value.median;

	/* Written so that NaN does not meet the goal. */
	return figure->goal == NO_GOAL || (figure->goal == AT_LEAST && value >= figure->bound) ||
	       (figure->goal == AT_MOST && value <= figure->bound);
}

void bench_point(struct bench *bench, const char *series, int clients, double us, double requests)
{
	struct point *point = &bench->points[bench->point_count];

	if (bench->point_count == POINTS_MAX)
		bench_fail("more than %d points", POINTS_MAX);
	bench->point_count++;
	snprintf(point->series, sizeof(point->series), "%s", series);
	point->clients = clients;
	point->us = us;
	point->requests = requests;
}

void bench_note(struct bench *bench, const char *fmt, ...)
{
	char *note = bench->notes[bench->note_count];
	int head = snprintf(note, WHAT_SIZE, "%s: ", bench->case_name);
	va_list args;

	va_start(args, fmt);
	vsnprintf(note + head, (size_t)(WHAT_SIZE - head), fmt, args);
	va_end(args);
	printf("note: %s\n", note);
	fflush(stdout);
	/* Too many to read: overwrite the last one. */
	if (bench->note_count < NOTES_MAX - 1)
		bench->note_count++;
}
