/* SPDX-License-Identifier: MIT
 * Every state of the model: from the first one on execute each possible action, with states
 * deduplicated by the hash of their canonical form, until none is new.  Two states whose 64-bit
 * hashes collide would be taken for one: among n states the probability is n^2 / 2^65. */
#ifndef MODEL_EXPLORE_H
#define MODEL_EXPLORE_H

#include "world.h"

/* A run. */
struct explore_plan {
	const struct model_bounds *bounds;
	enum model_rule rule;
	const char *script, *old, *new; /* a script with one text replaced by another; NULL: none */
	bool every_order;               /* also redundant orders of actions: see actions.c */
	bool deep;            /* depth first, to save memory; otherwise a trace is a shortest one */
	uint64_t states_most; /* 0 = all */
	int64_t seconds_most; /* 0 = any */
	uint64_t walks, seed; /* walks: so many from that seed on, one seed each */
	int64_t report_s;     /* a line of progress that often, 0 = never */
};

struct explore_result {
	uint64_t states, transitions,
		ends;             /* ends: states from which all calls were run to their end */
	uint64_t depth, frontier; /* the largest */
	int64_t longest_ms;       /* the longest wait at an end */
	uint64_t seed;            /* of the last walk */
	uint64_t
		excused; /* states in which a clock that was set forward made two tickets decided */
	double seconds;
	bool cut;          /* a limit was reached: there are more */
	const char *wrong; /* NULL = no failure */
	bool at_end;       /* found when all calls were run to their end from there */
	uint16_t *path;    /* the actions to it; free with explore_fini() */
	size_t path_len;
};

void explore(const struct explore_plan *plan, struct explore_result *result);
/* Only walks; transitions are their actions, and ends are walks. */
void explore_walk(const struct explore_plan *plan, struct explore_result *result);
double explore_seconds(void);
void explore_fini(struct explore_result *result);
/* Print the actions that lead to the failure, a line each, and their results. */
void explore_tell(const struct explore_plan *plan, const struct explore_result *result);

#endif
