/* SPDX-License-Identifier: MIT
 * The results of "failover" and "cluster" as tables and as JSON. */
#include "failover.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const char *const long_words[LONG_ENDS] = {"refused", "kept", "reported", "doubled"};

static const struct {
	const char *name, *what;
} blows[BLOWS] = {
	{"kill", "kill -9 of the master"},
	{"lag", "kill -9 of the master, whose last requests reached no replica"},
	{"planned", "all servers run on"},
	{"calm", "no failover"},
};

void failover_explain(void)
{
	printf("\nfailover, cluster: %d workers contend for one lock by holds of 20 ms; another "
	       "worker "
	       "begins a long hold of another lock just before the blow\nno grant: the longest "
	       "time without a grant from the blow on, median (low-high) of the rounds; two "
	       "holders: grants during another hold, of all rounds;\nlong hold: kept; reported "
	       "lost in time; doubled, granted "
	       "to its rival as well; refused, not granted at all;\nstuck: waits of %d s and more; "
	       "failed: calls that ended with an error; turns of one worker after the "
	       "blow;\nrequests: those to the lock's master an acquisition, without a failover\n",
	       FAILOVER_WORKERS, FAILOVER_STUCK_S);
}

/* "2 kept, 1 doubled" */
static void long_text(const struct failover_figures *figures, char *text, size_t size)
{
	size_t len = 0;

	for (int end = 0; end < LONG_ENDS; end++)
		if (figures->long_holds[end] && len < size)
			len += (size_t)snprintf(text + len, size - len, "%s%d %s", len ? ", " : "",
			                        figures->long_holds[end], long_words[end]);
}

static json_t *row(const struct service *service, enum blow blow, double seconds,
                   const struct contestant *contestant, const struct failover_figures *figures,
                   const double none[3])
{
	json_t *ends = json_object();
	json_t *row;

	for (int end = 0; end < LONG_ENDS; end++)
		json_object_set_new(ends, long_words[end], json_integer(figures->long_holds[end]));
	row = json_pack("{s:s, s:s, s:i, s:s, s:s, s:i, s:i, s:{s:f, s:f, s:f}, s:I, s:o, "
	                "s:i, s:I, s:{s:I, s:I}, s:f}",
	                "work", service->work, "blow", blows[blow].name, "workers",
	                FAILOVER_WORKERS, "contestant", contestant->name, "settings",
	                contestant->what, "rounds", figures->rounds, "failures", figures->failures,
	                "no_grant_s", "median", none[1], "low", none[0], "high", none[2],
	                "overlaps", (json_int_t)figures->overlaps, "long_holds", ends, "stuck",
	                figures->stuck, "failed_calls", (json_int_t)figures->failed_calls, "turns",
	                "fewest", (json_int_t)figures->fewest, "most", (json_int_t)figures->most,
	                "seconds", seconds);
	if (!row)
		give_up("out of memory");
	if (figures->counted)
		json_object_set_new(
			row, "requests",
			json_real((double)figures->requests / (double)figures->counted));
	return row;
}

static void line_print(const struct contestant *contestant, const struct failover_figures *figures,
                       const double none[3])
{
	char gap[48], overlaps[48] = "never", ends[64] = "-", turns[48];

	snprintf(gap, sizeof(gap), "%.1f (%.1f-%.1f)", none[1], none[0], none[2]);
	if (figures->overlaps)
		snprintf(overlaps, sizeof(overlaps), "%lld times", (long long)figures->overlaps);
	long_text(figures, ends, sizeof(ends));
	snprintf(turns, sizeof(turns), "%lld-%lld", (long long)figures->fewest,
	         (long long)figures->most);
	printf("  %-20s %18s %12s  %22s %6d %8lld %12s", contestant->name, gap, overlaps, ends,
	       figures->stuck, (long long)figures->failed_calls, turns);
	if (figures->counted)
		printf(" %9.2f", (double)figures->requests / (double)figures->counted);
	printf("\n");
}

void failover_table(const struct service *service, enum blow blow, int rounds, double seconds,
                    const struct contestant *contestants, const struct failover_figures *of,
                    int count, json_t *rows)
{
	printf("\n%s, %s: %s%s%s; %d rounds, observed for %g s\n", service->work, blows[blow].name,
	       blow == BLOW_PLANNED ? service->planned : "", blow == BLOW_PLANNED ? ", " : "",
	       blows[blow].what, rounds, seconds);
	printf("  %-20s %18s %12s  %22s %6s %8s %12s%s\n", "", "no grant, s", "two holders",
	       "long hold", "stuck", "failed", "turns of one",
	       blow == BLOW_NONE ? "  requests" : "");
	for (int i = 0; i < count; i++) {
		double sorted[ROUNDS_MAX], none[3];
		size_t rounds_used = (size_t)of[i].rounds;

		if (of[i].failures)
			printf("  %-20s %d of its runs have no figure\n", contestants[i].name,
			       of[i].failures);
		if (!of[i].rounds)
			continue;
		memcpy(sorted, of[i].no_grant_s, sizeof(sorted));
		none[0] = quantile(sorted, rounds_used, 0);
		none[1] = quantile(sorted, rounds_used, 0.5);
		none[2] = quantile(sorted, rounds_used, 1);
		line_print(&contestants[i], &of[i], none);
		if (rows && json_array_append_new(rows, row(service, blow, seconds, &contestants[i],
		                                            &of[i], none)))
			give_up("out of memory");
	}
	fflush(stdout);
}
