/* SPDX-License-Identifier: MIT
 * 2 to 128 processes on one name.  The fewest processes that contend (two for a lock) have turns in
 * the same contest, on a name of their own: so the ratio of both is one of the same moment. */
#include "contended.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define REQUESTS_MAX 2.1
#define LARGEST 128
#define FEW_RATIO 0.9
#define TURN_MS 150 /* long enough for 128 to have several turns each */

/* The waits of a contestant, which the contest itself does not keep. */
struct waits {
	int turns;                                                       /* without the first */
	double longest[ROUNDS_MAX], p99[ROUNDS_MAX], passed[ROUNDS_MAX]; /* by the mean, a turn */
	double fewest[ROUNDS_MAX]; /* operations of one worker, by the mean */
};

struct party {
	struct stage stage;
	struct workers *workers;
	struct waits *waits;
};

/* The contestants. */
enum entrant { OURS, OURS_FEW, BARE, BARE_FEW, RETRY, ENTRANTS };

/* The current contest; contestants have no argument of their own. */
static const struct contended *now;
static struct waits all_waits[ENTRANTS];
static bool is_bare[ENTRANTS]; /* by the contestant's number in this contest */

static int few(void)
{
	return now->permits + 1;
}

static int servers_of(int contestant, const struct test_server *all[SERVERS_MAX])
{
	return now->servers(is_bare[contestant], all);
}

static struct party *party_open(const struct stage *stage, enum entrant entrant)
{
	const struct work *works[] = {now->ours, now->ours, now->bare, now->bare, now->retry};
	bool are_few = entrant == OURS_FEW || entrant == BARE_FEW;
	struct party *party = calloc(1, sizeof(*party));

	if (!party)
		bench_fail("out of memory");
	party->stage = (struct stage){stage->server, are_few ? few() : stage->size};
	party->waits = &all_waits[entrant];
	*party->waits = (struct waits){.turns = -1};
	party->workers = workers_start(&party->stage, works[entrant], party->stage.size, true);
	return party;
}

static void *ours_open(const struct stage *stage)
{
	return party_open(stage, OURS);
}

static void *ours_few_open(const struct stage *stage)
{
	return party_open(stage, OURS_FEW);
}

static void *bare_open(const struct stage *stage)
{
	return party_open(stage, BARE);
}

static void *bare_few_open(const struct stage *stage)
{
	return party_open(stage, BARE_FEW);
}

static void *retry_open(const struct stage *stage)
{
	return party_open(stage, RETRY);
}

static double ratio(int64_t a, int64_t b)
{
	return b ? (double)a / (double)b : 0;
}

static void keep(struct waits *waits, const struct tally *tally, int size)
{
	int turn = waits->turns++;
	double count = (double)tally->waits;

	if (turn < 0)
		return;
	waits->fewest[turn] = (double)tally->fewest * size / (double)tally->ops;
	waits->longest[turn] = ratio(tally->wait_max_ns, tally->wait_sum_ns) * count;
	waits->p99[turn] = ratio((int64_t)tally_wait_ns(tally, 0.99), tally->wait_sum_ns) * count;
	waits->passed[turn] = ratio(tally->passed_max, tally->passed_sum) * count;
}

static int64_t party_turn(void *arg, int64_t until_ns)
{
	struct party *party = arg;
	struct tally tally;

	workers_begin(party->workers, &(struct order){until_ns, 0});
	workers_await(party->workers, &tally);
	keep(party->waits, &tally, party->stage.size);
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

/* ---- Figures ------------------------------------------------------------------------------- */

struct label {
	char id[64], what[160];
};

static struct label label(int size, const char *id, const char *what)
{
	struct label label;

	snprintf(label.id, sizeof(label.id), "%s.%d.%s", now->id, size, id);
	snprintf(label.what, sizeof(label.what), "%s, %d: %s", now->title ? now->title : now->id,
	         size, what);
	return label;
}

static double worst_of(const double *values, int count)
{
	double worst = 0;

	for (int i = 0; i < count; i++)
		if (values[i] > worst)
			worst = values[i];
	return worst;
}

static void report_waits(struct bench *bench, int size)
{
	const struct waits *waits = &all_waits[OURS];
	struct label text = label(size, "longest", "longest wait / mean wait");

	bench_figure(bench, text.id, text.what, spread_of(waits->longest, waits->turns), "",
	             size >= now->longest_from ? AT_MOST : NO_GOAL, 2);
	text = label(size, "longest.worst", "the same in the worst turn");
	bench_number(bench, text.id, text.what, worst_of(waits->longest, waits->turns), "", NO_GOAL,
	             0);
	text = label(size, "p99", "99th percentile of waits / mean wait");
	bench_figure(bench, text.id, text.what, spread_of(waits->p99, waits->turns), "", NO_GOAL,
	             0);
	text = label(size, "passed", "most grants of others in a wait / mean");
	/* Of two, one that waits for one grant more has twice the mean already. */
	bench_figure(bench, text.id, text.what, spread_of(waits->passed, waits->turns), "",
	             size > few() ? AT_MOST : NO_GOAL, 2);
	text = label(size, "fewest", "fewest turns of a process / mean");
	bench_figure(bench, text.id, text.what, spread_of(waits->fewest, waits->turns), "", NO_GOAL,
	             0);
}

/* Compared with two processes, and with the same protocol without the library. */
static void report_rates(struct bench *bench, int size, const struct result *result,
                         const int at[ENTRANTS])
{
	const int goal_at = now->few.size ? now->few.size : LARGEST;
	double few_ratio = now->few.size ? now->few.ratio : FEW_RATIO;
	struct label text;
	char what[64];

	if (now->few.or_bare && at[BARE_FEW])
		few_ratio = fmin(few_ratio, ratio_of_rates(result, at[BARE], at[BARE_FEW]).median);
	if (at[OURS_FEW]) {
		snprintf(what, sizeof(what), "rate / rate of %d processes", few());
		text = label(size, "ratio.few", what);
		bench_figure(bench, text.id, text.what, ratio_of_rates(result, 0, at[OURS_FEW]), "",
		             size == goal_at ? AT_LEAST : NO_GOAL, few_ratio);
	}
	if (at[BARE_FEW]) {
		snprintf(what, sizeof(what), "bare hiredis: rate / rate of %d processes", few());
		text = label(size, "bare.ratio.few", what);
		bench_figure(bench, text.id, text.what,
		             ratio_of_rates(result, at[BARE], at[BARE_FEW]), "", NO_GOAL, 0);
	}
	if (at[BARE]) {
		text = label(size, "ratio.bare", "rate / bare hiredis by the same scripts");
		bench_figure(bench, text.id, text.what, ratio_of_rates(result, 0, at[BARE]), "",
		             NO_GOAL, 0);
	}
	if (at[RETRY]) {
		text = label(size, "ratio.retry", "rate / publish, and all try again");
		bench_figure(bench, text.id, text.what, ratio_of_rates(result, 0, at[RETRY]), "",
		             size == 64 ? AT_LEAST : NO_GOAL, 10);
		text = label(size, "retry.fewest",
		             "all try again: fewest turns of a process / mean");
		bench_figure(bench, text.id, text.what,
		             spread_of(all_waits[RETRY].fewest, all_waits[RETRY].turns), "",
		             NO_GOAL, 0);
	}
}

static void run_size(struct bench *bench, int size)
{
	static const struct contestant all[ENTRANTS] = {
		{"latchkey", ours_open, party_turn, NULL, party_close, party_cpu},
		{"latchkey, the fewest", ours_few_open, party_turn, NULL, party_close, party_cpu},
		{"bare hand-off", bare_open, party_turn, NULL, party_close, party_cpu},
		{"bare hand-off, the fewest", bare_few_open, party_turn, NULL, party_close,
	         party_cpu},
		{"all retry", retry_open, party_turn, NULL, party_close, party_cpu},
	};
	const bool are_more = size > few();
	const bool takes_part[ENTRANTS] = {true, are_more, now->bare, now->bare && are_more,
	                                   now->retry};
	struct contest contest = {.what = now->what,
	                          .size = size,
	                          .rounds = now->rounds,
	                          .turn_ms = TURN_MS,
	                          .servers = now->servers ? servers_of : NULL};
	struct label text;
	struct result result;
	int count = 0, at[ENTRANTS] = {0}; /* 0 = not there, but for ours */
	char id[64];

	for (int i = 0; i < ENTRANTS; i++) {
		if (!takes_part[i])
			continue;
		at[i] = count;
		is_bare[count] = i == BARE || i == BARE_FEW;
		contest.contestants[count++] = &all[i];
	}
	snprintf(id, sizeof(id), "%s/%d", now->id, size);
	contest.id = id;
	bench_contest(bench, &contest, &result);
	text = label(size, "requests", "requests an acquisition");
	bench_number(bench, text.id, text.what, result.of[0].requests, "", AT_MOST,
	             now->requests_max > 0 ? now->requests_max : REQUESTS_MAX);
	report_rates(bench, size, &result, at);
	if (size > now->permits)
		report_waits(bench, size);
	for (int i = 0; now->draw && i < ENTRANTS; i++)
		if (takes_part[i] && i != OURS_FEW && i != BARE_FEW)
			bench_point(bench, all[i].name, size, 1e6 / result.of[at[i]].rate.median,
			            result.of[at[i]].requests);
}

void contended_run(struct bench *bench, const struct contended *contended)
{
	static const int sizes[] = {2, 8, 32, 64, LARGEST};
	const int count = bench_brief(bench) ? 3 : sizeof(sizes) / sizeof(sizes[0]);
	const int largest = contended->largest ? contended->largest : LARGEST;

	now = contended;
	for (int i = 0; i < count && sizes[i] <= largest; i++)
		run_size(bench, sizes[i]);
}
