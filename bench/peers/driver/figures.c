/* SPDX-License-Identifier: MIT
 * From lines to figures: rates, hand-offs, waits and turns; and whether holds overlapped.
 *
 * With all grants and all releases in the order of time, grant k + capacity follows release k.  So
 * the time between both is that of a hand-off, and if it is negative, there were too many holders.
 */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

static int compare_ns(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

static int compare_values(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

double quantile(double *values, size_t count, double share)
{
	size_t at;

	if (!count)
		return 0;
	qsort(values, count, sizeof(*values), compare_values);
	at = (size_t)(share * (double)(count - 1) + 0.5);
	return values[at];
}

static void *grown(void *memory, size_t count, size_t size)
{
	memory = realloc(memory, count * size);
	if (!memory)
		give_up("out of memory");
	return memory;
}

/* Add hand-offs until `end`, when contenders begin to leave, and overlaps at any time. */
static void add_handoffs(struct figures *figures, const struct work *work, const struct run *run,
                         int64_t end)
{
	size_t capacity = (size_t)work->capacity, count = run->count;
	int64_t *granted = grown(NULL, count, sizeof(*granted));
	int64_t *released = grown(NULL, count, sizeof(*released));

	for (size_t i = 0; i < count; i++) {
		granted[i] = run->turns[i].granted;
		released[i] = run->turns[i].released;
	}
	qsort(granted, count, sizeof(*granted), compare_ns);
	qsort(released, count, sizeof(*released), compare_ns);
	figures->handoff_us = grown(figures->handoff_us, figures->handoff_count + count,
	                            sizeof(*figures->handoff_us));
	for (size_t i = capacity; i < count; i++) {
		int64_t gap = granted[i] - released[i - capacity];
		if (gap < 0)
			figures->overlaps++;
		else if (granted[i] < end)
			figures->handoff_us[figures->handoff_count++] = (double)gap / 1e3;
	}
	free(granted);
	free(released);
}

/* Of a latch: the time from the count-down to each return, which must not be earlier. */
static void add_openings(struct figures *figures, const struct run *run)
{
	figures->handoff_us = grown(figures->handoff_us, figures->handoff_count + run->count,
	                            sizeof(*figures->handoff_us));
	for (size_t i = 0; i < run->count; i++) {
		int64_t gap = run->turns[i].granted - run->turns[i].released;
		if (gap < 0)
			figures->overlaps++;
		else
			figures->handoff_us[figures->handoff_count++] = (double)gap / 1e3;
		if ((double)gap / 1e6 > figures->longest_ms)
			figures->longest_ms = (double)gap / 1e6;
	}
}

static void add_turns(struct figures *figures, const struct run *run, int64_t end, int round)
{
	int64_t *of = calloc((size_t)run->workers, sizeof(*of));
	int64_t inside = 0;

	if (!of)
		give_up("out of memory");
	figures->hold_us = grown(figures->hold_us, figures->hold_count + run->count,
	                         sizeof(*figures->hold_us));
	for (size_t i = 0; i < run->count; i++) {
		const struct turn *turn = &run->turns[i];
		double waited = (double)(turn->granted - turn->asked) / 1e6;

		if (waited > figures->longest_ms)
			figures->longest_ms = waited;
		figures->hold_us[figures->hold_count++] =
			(double)(turn->released - turn->granted) / 1e3;
		if (turn->granted >= end)
			continue;
		inside++;
		of[turn->worker]++;
	}
	for (int i = 0; i < run->workers; i++) {
		if (!figures->rounds && !i)
			figures->fewest = figures->most = of[i];
		figures->fewest = of[i] < figures->fewest ? of[i] : figures->fewest;
		figures->most = of[i] > figures->most ? of[i] : figures->most;
	}
	figures->rate[round] = (double)inside / run->seconds;
	free(of);
}

void figures_add(struct figures *figures, int round, const struct work *work, const struct run *run)
{
	double before = figures->acquisitions, now = (double)run->count;
	int64_t start = run->turns[0].asked, end;

	for (size_t i = 0; i < run->count; i++)
		if (run->turns[i].asked < start)
			start = run->turns[i].asked;
	end = start + (int64_t)(run->seconds * 1e9);
	if (work->capacity) {
		add_turns(figures, run, end, round);
		if (!strcmp(work->name, "pairs"))
			figures->handoff_count = 0;
		else
			add_handoffs(figures, work, run, end);
	} else {
		add_openings(figures, run);
	}
	figures->acquisitions += now;
	figures->client_cpu_us =
		(figures->client_cpu_us * before + (double)run->client_cpu_ns / 1e3) /
		figures->acquisitions;
	figures->server_cpu_us =
		(figures->server_cpu_us * before + (double)run->server_cpu_ns / 1e3) /
		figures->acquisitions;
	if (run->others > figures->others)
		figures->others = run->others;
	figures->rounds++;
}

void figures_free(struct figures *figures)
{
	free(figures->handoff_us);
	free(figures->hold_us);
	memset(figures, 0, sizeof(*figures));
}
