/* SPDX-License-Identifier: MIT
 * Latchkey and its peers at the same work, in short turns.
 *
 *   driver FOLDER [PEERS=folders] [CONTESTANTS=names] [T=works] [WORKERS=sizes] [SECONDS=number]
 *          [ROUNDS=number] [JSON=file]
 *
 * Each round every contestant has a turn on a new server, in an order that is reversed from round
 * to round; then each has one more turn in which only its requests are counted. */
#include "driver.h"

#include <check.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct work works[] = {
	{"pairs", "acquire and release, nobody else there", 1, {1}},
	{"contend", "one name, held for 1 ms, asked for again at once", 1, {2, 8, 32, 64}},
	{"semaphore", "one of 3 permits, held for 1 ms, asked for again at once", 3, {8, 32}},
	{"latch", "all await one latch; hand-off and longest: from the count-down", 0, {100}},
};

struct options {
	const char *root, *peers, *contestants, *works, *workers, *json;
	double seconds;
	int rounds;
};

void give_up(const char *fmt, ...)
{
	va_list args;

	fflush(stdout);
	fprintf(stderr, "bench-peers: ");
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "\n");
	exit(1);
}

/* The two that the harness' ck_assert() needs: there is no test around it here. */
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

static void options_read(struct options *options, int argc, char **argv)
{
	*options = (struct options){.seconds = 1, .rounds = 2};
	if (argc < 2)
		give_up("say where the peers are");
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
		char *value = strchr(argv[i], '=');

		/* Empty is as not said: make passes all of them. */
		if (value && !*++value)
			continue;
		for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++)
			if (!strncmp(argv[i], texts[k].name, strlen(texts[k].name))) {
				*texts[k].value = value;
				known = true;
			}
		if (!strncmp(argv[i], "SECONDS=", 8))
			options->seconds = strtod(value, NULL);
		else if (!strncmp(argv[i], "ROUNDS=", 7))
			options->rounds = (int)strtol(value, NULL, 10);
		else if (!known)
			give_up("what is %s?", argv[i]);
	}
	if (options->seconds <= 0 || options->seconds > 60)
		give_up("SECONDS is above 0, up to 60");
	if (options->rounds < 1 || options->rounds > ROUNDS_MAX)
		give_up("ROUNDS is 1 to %d", ROUNDS_MAX);
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

static void compare(const struct options *options, const struct work *work, int workers,
                    const struct contestant *contestants, int count, json_t *rows)
{
	struct figures of[CONTESTANTS_MAX] = {0};

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
	for (int i = 0; i < count; i++)
		if (of[i].rounds)
			count_requests(options, work, workers, &contestants[i], &of[i]);
	table_print(work, workers, options->rounds, options->seconds, contestants, of, count, rows);
	for (int i = 0; i < count; i++)
		figures_free(&of[i]);
}

static void json_write(const struct options *options, json_t *rows)
{
	const char *commit = getenv("LK_COMMIT");
	json_t *all = json_pack("{s:s, s:f, s:i, s:i, s:O}", "commit", commit ? commit : "unknown",
	                        "seconds", options->seconds, "rounds", options->rounds,
	                        "processors", (int)sysconf(_SC_NPROCESSORS_ONLN), "rows", rows);

	if (!all || json_dump_file(all, options->json, JSON_INDENT(2) | JSON_REAL_PRECISION(6)))
		give_up("cannot write %s", options->json);
	json_decref(all);
}

int main(int argc, char **argv)
{
	static struct contestant contestants[CONTESTANTS_MAX];
	struct options options;
	json_t *rows = json_array();
	char size[16];
	int count;

	options_read(&options, argc, argv);
	count = contestants_find(options.root, options.peers, options.contestants, contestants,
	                         CONTESTANTS_MAX);
	for (int i = 0; i < count; i++)
		printf("%s: %s\n", contestants[i].name, contestants[i].what);
	printf("\nlongest wait in ms; turns: fewest and most of one worker in a round; client and "
	       "server: CPU, us an acquisition;\nothers: the most of the machine's CPU that went "
	       "to "
	       "neither: a figure beside much of it is disturbed\n");
	for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
		if (options.works && !word_in(options.works, works[i].name))
			continue;
		for (int k = 0; k < SIZES_MAX && works[i].sizes[k]; k++) {
			snprintf(size, sizeof(size), "%d", works[i].sizes[k]);
			if (!options.workers || word_in(options.workers, size))
				compare(&options, &works[i], works[i].sizes[k], contestants, count,
				        rows);
		}
	}
	if (options.json)
		json_write(&options, rows);
	json_decref(rows);
	return 0;
}
