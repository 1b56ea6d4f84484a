/* SPDX-License-Identifier: MIT
 * One run of the bench: its options and all results. */
#ifndef BENCH_RUN_H
#define BENCH_RUN_H

#include "bench.h"

#include <stdio.h>

#define CONTESTS_MAX 160
#define FIGURES_MAX 400
#define POINTS_MAX 400
#define NOTES_MAX 64
#define ID_SIZE 64
#define WHAT_SIZE 200

struct bench_options {
	const char *cases; /* names with spaces between, "" = all */
	int rounds;
	int64_t turn_ms;
	bool rounds_said, turn_said;
	const char *json_path; /* "" = none */
};

struct found_contest {
	char id[ID_SIZE], what[WHAT_SIZE];
	int size, rounds;
	int64_t turn_ms;
	struct result result;
};

struct figure {
	char id[ID_SIZE], what[WHAT_SIZE], unit[32];
	struct spread value;
	bool has_spread;
	enum goal goal;
	double bound;
};

struct point {
	char series[ID_SIZE];
	int clients;
	double us, requests; /* an acquisition */
};

struct bench {
	struct bench_options options;
	const char *case_name; /* the current one */
	const char *own_case;  /* the last case that was noted to have its own rounds or turns */
	char server_version[32];
	int contest_count, figure_count, point_count, note_count;
	struct found_contest contests[CONTESTS_MAX];
	struct figure figures[FIGURES_MAX];
	struct point points[POINTS_MAX];
	char notes[NOTES_MAX][WHAT_SIZE];
};

bool figure_met(const struct figure *figure);

/* Print the table: each contest as soon as it has ended, the figures at the end. */
void report_contest(const struct found_contest *contest);
void report_figures(const struct bench *bench);
/* Write all results as JSON. */
void report_json(const struct bench *bench, const char *path);

#endif
