/* SPDX-License-Identifier: MIT
 * The picture: points go to a file, series by series, and bench/picture.gp draws them. */
#include "run.h"

#include "harness/process.h"

#include <errno.h>
#include <string.h>

#define REQUESTS ": requests"

static bool is_requests(const char *series)
{
	size_t len = strlen(series), tail = strlen(REQUESTS);

	return len > tail && !strcmp(series + len - tail, REQUESTS);
}

/* One block a series, its name at the top, two empty lines between: as gnuplot wants it.  How many
 * there are. */
static int write_points(const struct bench *bench, const char *path, bool requests)
{
	FILE *file = fopen(path, "we");
	int series = 0;

	if (!file)
		bench_fail("cannot write %s: %s", path, strerror(errno));
	for (int i = 0; i < bench->point_count; i++) {
		const char *name = bench->points[i].series;
		bool told = is_requests(name) != requests;

		for (int j = 0; j < i && !told; j++)
			told = !strcmp(bench->points[j].series, name);
		if (told)
			continue;
		fprintf(file, "%s\"%.*s\"\n", series ? "\n\n" : "",
		        (int)(strlen(name) - (requests ? strlen(REQUESTS) : 0)), name);
		series++;
		for (int j = i; j < bench->point_count; j++)
			if (!strcmp(bench->points[j].series, name))
				fprintf(file, "%g %g\n", bench->points[j].x, bench->points[j].y);
	}
	if (fclose(file))
		bench_fail("cannot write %s: %s", path, strerror(errno));
	return series;
}

void report_picture(struct bench *bench, const char *path)
{
	char folder[80], times[100], requests[100];
	int time_count, request_count, status;

	if (!bench->point_count) {
		bench_note(bench, "nothing to draw: %s is not written", path);
		return;
	}
	folder_make(folder, sizeof(folder));
	snprintf(times, sizeof(times), "%s/times", folder);
	snprintf(requests, sizeof(requests), "%s/requests", folder);
	time_count = write_points(bench, times, false);
	request_count = write_points(bench, requests, true);
	if (shell("command -v gnuplot >/dev/null"))
		bench_note(bench, "gnuplot is not there (make deps-bench): %s is not written",
		           path);
	else if ((status = shell("gnuplot -e \"times='%s'; time_count=%d; requests='%s'; "
	                         "request_count=%d; picture='%s'\" bench/picture.gp",
	                         times, time_count, requests, request_count, path)))
		bench_fail("gnuplot: exit status %d", status);
	folder_remove(folder);
}
