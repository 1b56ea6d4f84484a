/* SPDX-License-Identifier: MIT
 * Latchkey and its peers at the same work, in short turns.
 *
 *   driver FOLDER [PEERS=folders] [CONTESTANTS=names] [T=works] [WORKERS=sizes] [SECONDS=number]
 *          [ROUNDS=number] [JSON=file]
 *
 * Exit status: 1 if a measurement failed or none was made, 2 for a wrong option.
 * In each round every contestant has a turn on a new server, in an order that is reversed from
 * round to round; then each has one more turn in which only its requests are counted.  The works
 * "failover" and "cluster" have rules of their own (failover.h).  They and "quorum" run only if T
 * names them. */
#include "driver.h"

#include "failover.h"
#include "harness/test.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct work works[] = {
	{"pairs", "acquire and release, without contention", .capacity = 1, .sizes = {1}},
	{"contend", "one name, held for 1 ms, asked for again at once", .capacity = 1,
         .sizes = {2, 8, 32, 64}},
	{"semaphore", "one of 3 permits, held for 1 ms, asked for again at once", .capacity = 3,
         .sizes = {8, 32}},
	{"latch", "all await one latch; hand-off and longest: from the count-down", .sizes = {100}},
	{"failover", "a service of Sentinel loses its master", .capacity = 1,
         .sizes = {FAILOVER_WORKERS}, .service = &service_sentinel},
	{"cluster", "a Cluster loses a master", .capacity = 1, .sizes = {FAILOVER_WORKERS},
         .service = &service_cluster},
	/* Of one name, so one after the other. */
	{"quorum", "a name on 3 servers, the rest as contend", .capacity = 1, .sizes = {1, 8, 32},
         .servers = 3},
	{"quorum", "a name on 5 servers, the rest as contend", .capacity = 1, .sizes = {1, 8, 32},
         .servers = 5},
};

#define WORK_COUNT (sizeof(works) / sizeof(works[0]))
#define TURN_S 1
#define TURN_ROUNDS 2
/* Some libraries pause for 200 ms when the votes are split. */
#define QUORUM_S 3
/* Two thirds of a minute show a waiter that is stuck for half of one. */
#define FAILOVER_S 45
#define FAILOVER_ROUNDS 3
#define CLUSTER_S 40
#define CLUSTER_ROUNDS 2

struct options {
	const char *root, *peers, *contestants, *works, *workers, *json;
	double seconds; /* 0 = as the work has it */
	int rounds;     /* the same */
};

__attribute__((format(printf, 2, 0))) static _Noreturn void end_with(int status, const char *fmt,
                                                                     va_list args)
{
	fflush(stdout);
	fprintf(stderr, "bench-peers: ");
	vfprintf(stderr, fmt, args);
	fprintf(stderr, "\n");
	exit(status);
}

void give_up(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	end_with(1, fmt, args);
}

void refuse(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	end_with(2, fmt, args);
}

/* The two functions that the harness' ck_assert() needs: here is no test around it. */
void _ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
{
	char text[512] = "";
	va_list args;

	if (msg) {
		va_start(args, msg);
		vsnprintf(text, sizeof(text), msg, args);
		va_end(args);
	}
	give_up("%s:%d: %s: %s", file, line, expr, text);
}

void _mark_point(const char *file, int line)
{
	(void)file;
	(void)line;
}

/* Of a shared Cluster, which tests have. */
void test_before_all(void (*begin)(void))
{
	(void)begin;
}

static bool chosen(const struct options *options, const struct work *work)
{
	return options->works ? word_in(options->works, work->name)
	                      : !work->service && !work->servers;
}

/* Is it the work before, on more servers? */
static bool is_repeated(size_t work)
{
	return work && !strcmp(works[work].name, works[work - 1].name);
}

static bool has_size(const struct work *work, const char *size)
{
	char text[16];

	for (int i = 0; i < SIZES_MAX && work->sizes[i]; i++) {
		snprintf(text, sizeof(text), "%d", work->sizes[i]);
		if (!strcmp(text, size))
			return true;
	}
	return false;
}

/* "contend 2 8 32 64, latch 100": of the works that are chosen, or, without options, of all. */
static const char *sizes_text(const struct options *options, char *text, size_t size)
{
	size_t len = 0;

	for (size_t i = 0; i < WORK_COUNT; i++) {
		if ((options && !chosen(options, &works[i])) || is_repeated(i))
			continue;
		len += (size_t)snprintf(text + len, size - len, "%s%s", len ? ", " : "",
		                        works[i].name);
		for (int k = 0; k < SIZES_MAX && works[i].sizes[k]; k++)
			len += (size_t)snprintf(text + len, size - len, " %d", works[i].sizes[k]);
	}
	return text;
}

static void words_check(const struct options *options)
{
	char word[64], text[400] = "";
	const char *at;

	for (at = options->works; at && word_next(&at, word, sizeof(word));) {
		bool known = false;

		for (size_t i = 0; i < WORK_COUNT; i++)
			known |= !strcmp(works[i].name, word);
		if (!known)
			refuse("T: there is no %s; there are, with their numbers of workers: %s",
			       word, sizes_text(NULL, text, sizeof(text)));
	}
	for (at = options->workers; at && word_next(&at, word, sizeof(word));) {
		bool known = false;

		for (size_t i = 0; i < WORK_COUNT; i++)
			known |= chosen(options, &works[i]) && has_size(&works[i], word);
		if (!known)
			refuse("WORKERS: no work is done by %s; there are: %s", word,
			       sizes_text(options, text, sizeof(text)));
	}
}

/* Check before the run that the file can be written.  A file that exists is kept until the run has
 * a result. */
static void json_check(const char *path)
{
	bool existed = !access(path, F_OK);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

	if (fd < 0)
		refuse("JSON: cannot write %s: %s", path, strerror(errno));
	close(fd);
	if (!existed)
		unlink(path);
}

static void options_read(struct options *options, int argc, char **argv)
{
	*options = (struct options){0};
	if (argc < 2)
		give_up("the folder of the peers is missing");
	options->root = argv[1];
	for (int i = 2; i < argc; i++) {
		const struct {
			const char *name, **value;
		} texts[] = {{"PEERS=", &options->peers},
		             {"CONTESTANTS=", &options->contestants},
		             {"T=", &options->works},
		             {"WORKERS=", &options->workers},
		             {"JSON=", &options->json}};
		bool known = false;
		char *value = strchr(argv[i], '='), *end = NULL;

		if (value)
			value += 1 + strspn(value + 1, " ");
		/* Empty means not given: make passes all of them. */
		if (value && !*value)
			continue;
		for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++)
			if (!strncmp(argv[i], texts[k].name, strlen(texts[k].name))) {
				*texts[k].value = value;
				known = true;
			}
		if (!strncmp(argv[i], "SECONDS=", 8)) {
			options->seconds = strtod(value, &end);
			if (!(options->seconds > 0 && options->seconds <= 60))
				refuse("SECONDS: must be above 0, at most 60");
		} else if (!strncmp(argv[i], "ROUNDS=", 7)) {
			options->rounds = (int)strtol(value, &end, 10);
			if (options->rounds < 1 || options->rounds > ROUNDS_MAX)
				refuse("ROUNDS: must be 1 to %d", ROUNDS_MAX);
		} else if (!known) {
			refuse("%s: unknown option", argv[i]);
		}
		if (end && *end)
			refuse("%s: not a number", argv[i]);
	}
	words_check(options);
	if (options->json)
		json_check(options->json);
}

/* The options with what the work has where they say nothing. */
static struct options options_for(const struct options *options, const struct work *work)
{
	struct options own = *options;

	if (!own.rounds)
		own.rounds = !work->service                      ? TURN_ROUNDS
		             : work->service == &service_cluster ? CLUSTER_ROUNDS
		                                                 : FAILOVER_ROUNDS;
	if (!(own.seconds > 0))
		own.seconds = work->servers                       ? QUORUM_S
		              : !work->service                    ? TURN_S
		              : work->service == &service_cluster ? CLUSTER_S
		                                                  : FAILOVER_S;
	return own;
}

static void count_requests(const struct options *options, const struct work *work, int workers,
                           const struct contestant *contestant, struct figures *figures)
{
	struct run run;

	figures->requests = -1;
	if (!run_contestant(contestant, work, workers, options->seconds, true, &run))
		return;
	figures->requests = (double)run.requests / (double)run.count;
	run_free(&run);
}

/* True if there was a figure. */
static bool compare(const struct options *options, const struct work *work, int workers,
                    const struct contestant *contestants, int count, json_t *rows)
{
	struct figures of[CONTESTANTS_MAX] = {0};
	bool measured = false;

	for (int round = 0; round < options->rounds; round++) {
		for (int i = 0; i < count; i++) {
			int at = round % 2 ? count - 1 - i : i;
			struct run run;

			if (!word_in(contestants[at].works, work->name))
				continue;
			if (!run_contestant(&contestants[at], work, workers, options->seconds,
			                    false, &run)) {
				of[at].failures++;
				of[at].hung += run.hung;
				continue;
			}
			figures_add(&of[at], round, work, &run);
			run_free(&run);
		}
	}
	for (int i = 0; i < count; i++) {
		if (!of[i].rounds)
			continue;
		count_requests(options, work, workers, &contestants[i], &of[i]);
		measured = true;
	}
	table_print(work, workers, options->rounds, options->seconds, contestants, of, count, rows);
	for (int i = 0; i < count; i++)
		figures_free(&of[i]);
	return measured;
}

static void json_write(const struct options *options, json_t *rows)
{
	const char *commit = getenv("LK_COMMIT");
	struct options own = options_for(options, &works[0]);
	json_t *all = json_pack("{s:s, s:f, s:i, s:i, s:O}", "commit", commit ? commit : "unknown",
	                        "seconds", own.seconds, "rounds", own.rounds, "processors",
	                        (int)sysconf(_SC_NPROCESSORS_ONLN), "rows", rows);

	if (!all || json_dump_file(all, options->json, JSON_INDENT(2) | JSON_REAL_PRECISION(6)))
		give_up("cannot write %s", options->json);
	json_decref(all);
}

/* Run all sizes of a work that are asked for; true if there was a figure. */
static bool work_run(const struct options *options, const struct work *work,
                     const struct contestant *contestants, int count, json_t *rows)
{
	struct options own = options_for(options, work);
	bool measured = false;
	char size[16];

	for (int i = 0; i < SIZES_MAX && work->sizes[i]; i++) {
		snprintf(size, sizeof(size), "%d", work->sizes[i]);
		if (own.workers && !word_in(own.workers, size))
			continue;
		if (work->service)
			measured |= failover_compare(work->service, contestants, count, own.rounds,
			                             own.seconds, rows);
		else
			measured |= compare(&own, work, work->sizes[i], contestants, count, rows);
	}
	return measured;
}

/* Is the work chosen, but WORKERS has none of its sizes? */
static bool left_out(const struct options *options, const struct work *work)
{
	const char *at = options->workers;
	char size[64];

	if (!at)
		return false;
	while (word_next(&at, size, sizeof(size)))
		if (has_size(work, size))
			return false;
	return true;
}

/* Has it any work that is chosen? */
static bool has_chosen(const struct options *options, const struct contestant *contestant)
{
	for (size_t i = 0; i < WORK_COUNT; i++)
		if (chosen(options, &works[i]) && word_in(contestant->works, works[i].name))
			return true;
	return false;
}

static void explain(const struct options *options)
{
	bool turns = false, failovers = false;

	for (size_t i = 0; i < WORK_COUNT; i++) {
		if (!chosen(options, &works[i]))
			continue;
		turns |= !works[i].service;
		failovers |= works[i].service != NULL;
	}
	if (failovers)
		failover_explain();
	if (turns)
		printf("\nlongest wait in ms; turns: fewest and most of one worker in a round; "
		       "client and server: CPU, us an acquisition;\nothers: the largest share of "
		       "the machine's CPU that other programs used; a large one disturbs the "
		       "figures\n");
}

static int run(void *arg)
{
	static struct contestant contestants[CONTESTANTS_MAX];
	const struct options *options = arg;
	json_t *rows = json_array();
	bool measured = false;
	int count;

	count = contestants_find(options->root, options->peers, options->contestants, contestants,
	                         CONTESTANTS_MAX);
	if (!count)
		give_up("nothing was measured");
	for (int i = 0; i < count; i++)
		if (has_chosen(options, &contestants[i]))
			printf("%s: %s\n", contestants[i].name, contestants[i].what);
	for (size_t i = 0; i < WORK_COUNT; i++)
		if (chosen(options, &works[i]) && !is_repeated(i) && left_out(options, &works[i]))
			printf("left out: %s: WORKERS=\"%s\" has none of its sizes\n",
			       works[i].name, options->workers);
	explain(options);
	for (size_t i = 0; i < WORK_COUNT; i++)
		if (chosen(options, &works[i]))
			measured |= work_run(options, &works[i], contestants, count, rows);
	if (!measured)
		give_up("nothing was measured");
	if (options->json)
		json_write(options, rows);
	json_decref(rows);
	return 0;
}

int main(int argc, char **argv)
{
	struct options options;

	options_read(&options, argc, argv);
	return guarded(run, &options);
}
