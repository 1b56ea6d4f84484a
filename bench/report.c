/* SPDX-License-Identifier: MIT
 * The tables on the terminal. */
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Three significant digits. */
static const char *number(char *text, size_t size, double value)
{
	double size_of = fabs(value);
	int places = size_of >= 99.95 || value == 0 ? 0
	             : size_of >= 9.995             ? 1
	             : size_of >= 0.9995            ? 2
	                                            : 3;

	if (!isfinite(value))
		snprintf(text, size, "-");
	else
		snprintf(text, size, "%.*f", places, value);
	return text;
}

static const char *range(char *text, size_t size, const struct spread *spread)
{
	char low[32], high[32];

	snprintf(text, size, "%s..%s", number(low, sizeof(low), spread->low),
	         number(high, sizeof(high), spread->high));
	return text;
}

void report_contest(const struct found_contest *contest)
{
	char rate[32], spread[72], server[32], client[32];

	printf("\n%s: %s (%d rounds of %lld ms)\n", contest->id, contest->what, contest->rounds,
	       (long long)contest->turn_ms);
	printf("  %-32s %10s %18s %9s %10s %10s\n", "", "op/s", "10..90 %", "requests", "server us",
	       "client us");
	for (int i = 0; i < contest->result.count; i++) {
		const struct performance *of = &contest->result.of[i];

		printf("  %-32s %10s %18s %9.3f %10s %10s\n", of->name,
		       number(rate, sizeof(rate), of->rate.median),
		       range(spread, sizeof(spread), &of->rate), of->requests,
		       number(server, sizeof(server), of->server_us.median),
		       number(client, sizeof(client), of->client_us.median));
	}
	fflush(stdout);
}

static void print_figures(FILE *out, const struct bench *bench)
{
	int missed = 0, goals = 0, width = 0;

	for (int i = 0; i < bench->figure_count; i++)
		if ((int)strlen(bench->figures[i].what) > width)
			width = (int)strlen(bench->figures[i].what);
	fprintf(out, "%-*s %8s %16s  %s\n", width, "figure", "value", "10..90 %", "goal");
	for (int i = 0; i < bench->figure_count; i++) {
		const struct figure *figure = &bench->figures[i];
		char value[32], spread[72] = "", bound[32];

		if (figure->has_spread)
			range(spread, sizeof(spread), &figure->value);
		fprintf(out, "%-*s %8s %16s ", width, figure->what,
		        number(value, sizeof(value), figure->value.median), spread);
		if (figure->goal != NO_GOAL) {
			goals++;
			missed += !figure_met(figure);
			fprintf(out, " %s %s%s%s: %s", figure->goal == AT_LEAST ? ">=" : "<=",
			        number(bound, sizeof(bound), figure->bound),
			        figure->unit[0] ? " " : "", figure->unit,
			        figure_met(figure) ? "met" : "MISSED");
		} else {
			fprintf(out, " %s", figure->unit);
		}
		fprintf(out, "\n");
	}
	fprintf(out, "\n%d goals, %d missed\n", goals, missed);
	fflush(out);
}

/* What bench/picture draws. */
static void print_points(FILE *out, const struct bench *bench)
{
	if (!bench->point_count)
		return;
	fprintf(out, "\n%-24s %9s %18s %9s\n", "series", "clients", "us an acquisition",
	        "requests");
	for (int i = 0; i < bench->point_count; i++) {
		const struct point *point = &bench->points[i];
		char us[32], requests[32];

		fprintf(out, "%-24s %9d %18s %9s\n", point->series, point->clients,
		        number(us, sizeof(us), point->us),
		        number(requests, sizeof(requests), point->requests));
	}
}

void report_figures(const struct bench *bench)
{
	const char *path = getenv("LK_EVIDENCE");
	FILE *evidence = path && path[0] ? fopen(path, "a") : NULL;

	printf("\n");
	print_figures(stdout, bench);
	if (!evidence)
		return;
	print_figures(evidence, bench);
	print_points(evidence, bench);
	fclose(evidence);
}
