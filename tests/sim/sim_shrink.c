/* SPDX-License-Identifier: MIT
 * Find the smallest plan that fails in the same way, that is, in the same check: end it at the
 * failure, and leave out what it does not need: faults, halves of them first, then clients, then
 * names. */
#include "sim_plan.h"

#include <string.h>
#include <time.h>

struct search {
	struct sim_plan best;
	struct sim_result result;
	int runs;
	int64_t until_ns; /* of real time */
};

static struct search search;
static struct sim_plan trial;

static int64_t real_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * SIM_S + time.tv_nsec;
}

/* Does the trial fail in the same way?  Then it is the best so far. */
static bool try_it(void)
{
	static struct sim_result result;

	if (search.runs <= 0 || real_ns() >= search.until_ns) {
		search.runs = 0;
		return false;
	}
	search.runs--;
	if (sim_run(&trial, &result, NULL) || strcmp(result.check, search.result.check) != 0)
		return false;
	search.best = trial;
	search.result = result;
	return true;
}

static void shorten(void)
{
	int64_t end_ns = (search.result.at_ns / SIM_S + 1) * SIM_S;

	if (end_ns >= search.best.length_ns)
		return;
	trial = search.best;
	trial.length_ns = end_ns;
	try_it();
}

/* Leave out so many of the remaining faults, from the first-th on.  False if there are none. */
static bool leave_out(int first, int count)
{
	int seen = 0, left_out = 0;

	trial = search.best;
	for (int i = 0; i < trial.fault_count; i++) {
		if (trial.faults[i].out)
			continue;
		if (seen >= first && seen < first + count) {
			trial.faults[i].out = true;
			left_out++;
		}
		seen++;
	}
	return left_out > 0;
}

static int faults_left(void)
{
	int left = 0;

	for (int i = 0; i < search.best.fault_count; i++)
		left += !search.best.faults[i].out;
	return left;
}

static bool shrink_faults(void)
{
	bool smaller = false;

	for (int count = (faults_left() + 1) / 2; count > 0; count = count > 1 ? count / 2 : 0) {
		int first = 0;
		while (leave_out(first, count)) {
			if (try_it())
				smaller = true;
			else
				first += count;
		}
	}
	return smaller;
}

static bool shrink_bits(uint32_t *bits, uint32_t *best_bits, int count)
{
	bool smaller = false;

	for (int i = 0; i < count; i++) {
		trial = search.best;
		if (*best_bits >> i & 1)
			continue;
		*bits |= 1u << i;
		smaller = try_it() || smaller;
	}
	return smaller;
}

void sim_shrink(struct sim_plan *plan, struct sim_result *result, int runs, int seconds)
{
	bool smaller = true;

	search.best = *plan;
	search.result = *result;
	search.runs = runs;
	search.until_ns = real_ns() + seconds * SIM_S;
	/* Calls that end before a fault do not need it. */
	while (smaller && search.runs > 0) {
		shorten();
		smaller = shrink_faults();
		smaller =
			shrink_bits(&trial.names_out, &search.best.names_out, SIM_NAMES) || smaller;
		smaller = shrink_bits(&trial.clients_out, &search.best.clients_out,
		                      search.best.clients) ||
		          smaller;
	}
	for (int i = 0; i < search.best.fault_count; i++)
		if (search.best.faults[i].at_ns >= search.best.length_ns)
			search.best.faults[i].out = true;
	*plan = search.best;
	*result = search.result;
}
