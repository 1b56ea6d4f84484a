/* SPDX-License-Identifier: MIT
 * The results as tables and as JSON. */
#include "driver.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Of the rounds with a figure: median, least, most. */
struct middle {
	double median, low, high;
};

static struct middle middle_of(const double *values, int count)
{
	double some[ROUNDS_MAX];
	struct middle middle;
	size_t used = 0;

	for (int i = 0; i < count; i++)
		if (values[i] > 0)
			some[used++] = values[i];
	middle.low = quantile(some, used, 0);
	middle.high = quantile(some, used, 1);
	/* Of an even number: the mean of the two in the middle. */
	middle.median = used ? (some[(used - 1) / 2] + some[used / 2]) / 2 : 0;
	return middle;
}

/* Rate against the first contestant's in the same round: the median of the ratios. */
static double against_first(const struct figures *first, const struct figures *figures, int rounds)
{
	double ratios[ROUNDS_MAX] = {0};

	for (int i = 0; i < rounds; i++)
		if (first->rate[i] > 0)
			ratios[i] = figures->rate[i] / first->rate[i];
	return middle_of(ratios, rounds).median;
}

static json_t *row(const struct work *work, int workers, const struct contestant *contestant,
                   struct figures *figures, struct middle rate, double ratio)
{
	json_t *row =
		json_pack("{s:s, s:i, s:s, s:s, s:i, s:i, s:i, s:I}", "work", work->name, "workers",
	                  workers, "contestant", contestant->name, "settings", contestant->what,
	                  "rounds", figures->rounds, "hung", figures->hung, "failures",
	                  figures->failures, "overlaps", (json_int_t)figures->overlaps);
	int bad = json_object_update_new(
		row,
		json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "servers",
	                  work->servers ? work->servers : 1, "acquisitions", figures->acquisitions,
	                  "requests", figures->requests, "longest_ms", figures->longest_ms,
	                  "client_cpu_us", figures->client_cpu_us, "server_cpu_us",
	                  figures->server_cpu_us, "others_cpu", figures->others));

	if (work->capacity)
		bad |= json_object_update_new(
			row,
			json_pack("{s:{s:f, s:f, s:f}, s:f, s:{s:I, s:I}, s:f}", "rate", "median",
		                  rate.median, "low", rate.low, "high", rate.high, "rate_to_first",
		                  ratio, "turns", "fewest", (json_int_t)figures->fewest, "most",
		                  (json_int_t)figures->most, "hold_us",
		                  quantile(figures->hold_us, figures->hold_count, 0.5)));
	if (figures->handoff_count)
		bad |= json_object_set_new(
			row, "handoff_us",
			json_pack("{s:f, s:f}", "median",
		                  quantile(figures->handoff_us, figures->handoff_count, 0.5), "p99",
		                  quantile(figures->handoff_us, figures->handoff_count, 0.99)));
	if (!row || bad)
		give_up("out of memory");
	return row;
}

static const char *number(char text[16], double value, int digits)
{
	snprintf(text, 16, "%.*f", digits, value);
	return text;
}

static void line_print(const struct work *work, const struct contestant *contestant,
                       struct figures *figures, struct middle rate, double ratio)
{
	char rates[48] = "-", turns[48] = "-", of_first[16] = "-", half[16] = "-", late[16] = "-";
	char requests[16] = "-";

	if (work->capacity) {
		snprintf(rates, sizeof(rates), "%.0f (%.0f-%.0f)", rate.median, rate.low,
		         rate.high);
		snprintf(of_first, sizeof(of_first), "%.2f", ratio);
		snprintf(turns, sizeof(turns), "%lld-%lld", (long long)figures->fewest,
		         (long long)figures->most);
	}
	if (figures->handoff_count) {
		number(half, quantile(figures->handoff_us, figures->handoff_count, 0.5), 0);
		number(late, quantile(figures->handoff_us, figures->handoff_count, 0.99), 0);
	}
	if (figures->requests >= 0)
		number(requests, figures->requests, 2);
	printf("  %-25s %20s %6s %8s %8s %8s %9.1f %12s %8.1f %8.1f %5.0f%%\n", contestant->name,
	       rates, of_first, requests, half, late, figures->longest_ms, turns,
	       figures->client_cpu_us, figures->server_cpu_us, figures->others * 100);
	if (figures->failures)
		printf("  %-25s %d of its runs have no figure, %d of these because a wait did not "
		       "end within 30 s\n",
		       "", figures->failures, figures->hung);
	if (figures->overlaps)
		printf("  %-25s !!!!!! NO EXCLUSION: %lld TIMES GRANTED TOO EARLY !!!!!!\n", "",
		       (long long)figures->overlaps);
}

void table_print(const struct work *work, int workers, int rounds, double seconds,
                 const struct contestant *contestants, struct figures *of, int count, json_t *rows)
{
	int first = 0;

	while (first < count && !of[first].rounds)
		first++;
	if (first == count)
		return;
	printf("\n%s, %d: %s; turns of %g s, %d rounds\n", work->name, workers, work->what, seconds,
	       rounds);
	printf("  %-25s %20s %6s %8s %8s %8s %9s %12s %8s %8s %6s\n", "", "rate/s (low-high)",
	       "to 1st", "requests", "handoff", "p99 us", "longest", "turns of one", "client",
	       "server", "others");
	for (int i = first; i < count; i++) {
		struct middle rate = middle_of(of[i].rate, rounds);
		double ratio = against_first(&of[first], &of[i], rounds);

		if (!of[i].rounds && of[i].failures)
			printf("  %-25s has no figure\n", contestants[i].name);
		if (!of[i].rounds)
			continue;
		line_print(work, &contestants[i], &of[i], rate, ratio);
		if (rows && json_array_append_new(
				    rows, row(work, workers, &contestants[i], &of[i], rate, ratio)))
			give_up("out of memory");
	}
	fflush(stdout);
}
