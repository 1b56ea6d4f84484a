/* SPDX-License-Identifier: MIT
 * --json: the machine, each contest with all its rounds, each figure, each point. */
#include "run.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define DIGITS 6

/* JSON has no NaN. */
static json_t *number(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

static json_t *spread_json(const struct spread *spread)
{
	return json_pack("{s:o, s:o, s:o}", "median", number(spread->median), "low",
	                 number(spread->low), "high", number(spread->high));
}

static json_t *rounds_json(const double *values, int count)
{
	json_t *array = json_array();

	for (int i = 0; i < count; i++)
		json_array_append_new(array, number(values[i]));
	return array;
}

static json_t *contests_json(const struct bench *bench)
{
	json_t *array = json_array();

	for (int i = 0; i < bench->contest_count; i++) {
		const struct found_contest *contest = &bench->contests[i];
		const struct result *result = &contest->result;
		json_t *rows = json_array();

		for (int j = 0; j < result->count; j++) {
			const struct performance *of = &result->of[j];

			json_array_append_new(
				rows, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name",
			                        of->name, "rate", spread_json(&of->rate),
			                        "server_us", spread_json(&of->server_us),
			                        "client_us", spread_json(&of->client_us),
			                        "requests", number(of->requests), "rate_by_round",
			                        rounds_json(of->by_round, result->rounds),
			                        "server_us_by_round",
			                        rounds_json(of->server_by_round, result->rounds),
			                        "client_us_by_round",
			                        rounds_json(of->client_by_round, result->rounds)));
		}
		json_array_append_new(array,
		                      json_pack("{s:s, s:s, s:i, s:i, s:I, s:o}", "id", contest->id,
		                                "what", contest->what, "size", contest->size,
		                                "rounds", contest->rounds, "turn_ms",
		                                (json_int_t)contest->turn_ms, "contestants", rows));
	}
	return array;
}

static json_t *figures_json(const struct bench *bench)
{
	static const char *const goals[] = {"at least", "at most"};
	json_t *array = json_array();

	for (int i = 0; i < bench->figure_count; i++) {
		const struct figure *figure = &bench->figures[i];
		json_t *row =
			json_pack("{s:s, s:s, s:o, s:s}", "id", figure->id, "what", figure->what,
		                  "value", number(figure->value.median), "unit", figure->unit);

		if (figure->has_spread) {
			json_object_set_new(row, "low", number(figure->value.low));
			json_object_set_new(row, "high", number(figure->value.high));
		}
		if (figure->goal != NO_GOAL) {
			json_object_set_new(row, "goal", json_string(goals[figure->goal]));
			json_object_set_new(row, "bound", number(figure->bound));
			json_object_set_new(row, "met", json_boolean(figure_met(figure)));
		}
		json_array_append_new(array, row);
	}
	return array;
}

static json_t *points_json(const struct bench *bench)
{
	json_t *array = json_array();

	for (int i = 0; i < bench->point_count; i++) {
		const struct point *point = &bench->points[i];

		json_array_append_new(array,
		                      json_pack("{s:s, s:i, s:o, s:o}", "series", point->series,
		                                "clients", point->clients, "us", number(point->us),
		                                "requests", number(point->requests)));
	}
	return array;
}

static json_t *notes_json(const struct bench *bench)
{
	json_t *array = json_array();

	for (int i = 0; i < bench->note_count; i++)
		json_array_append_new(array, json_string(bench->notes[i]));
	return array;
}

static void cpu_model(char *text, size_t size)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(text, size, "unknown");
	while (file && fgets(line, sizeof(line), file)) {
		const char *at = strchr(line, ':');

		if (strncmp(line, "model name", 10) || !at)
			continue;
		at += 1 + strspn(at + 1, " ");
		snprintf(text, size, "%.*s", (int)strcspn(at, "\n"), at);
		break;
	}
	if (file)
		fclose(file);
}

static json_t *machine_json(const struct bench *bench)
{
	const char *commit = getenv("LK_COMMIT");
	char model[128], kernel[200], date[40] = "", hiredis[32];
	struct utsname name;
	struct tm parts;
	time_t now;
	struct timespec real;

	cpu_model(model, sizeof(model));
	uname(&name);
	snprintf(kernel, sizeof(kernel), "%s %s %s", name.sysname, name.release, name.machine);
	snprintf(hiredis, sizeof(hiredis), "%d.%d.%d", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
	clock_gettime(CLOCK_REALTIME, &real);
	now = real.tv_sec;
	if (gmtime_r(&now, &parts))
		strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &parts);
	return json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:s}", "cores",
	                 (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "cpu", model, "kernel", kernel,
	                 "server", bench->server_version, "hiredis", hiredis, "commit",
	                 commit && *commit ? commit : "unknown", "date", date);
}

void report_json(const struct bench *bench, const char *path)
{
	json_t *all = json_pack("{s:o, s:{s:i, s:I}, s:o, s:o, s:o, s:o}", "machine",
	                        machine_json(bench), "run", "rounds", bench->options.rounds,
	                        "turn_ms", (json_int_t)bench->options.turn_ms, "contests",
	                        contests_json(bench), "figures", figures_json(bench), "points",
	                        points_json(bench), "notes", notes_json(bench));

	if (!all)
		bench_fail("cannot write JSON: out of memory, or text that is no UTF-8");
	if (json_dump_file(all, path, JSON_INDENT(1) | JSON_REAL_PRECISION(DIGITS)))
		bench_fail("cannot write %s: %s", path, strerror(errno));
	json_decref(all);
}
