/* SPDX-License-Identifier: MIT
 * Every state of the model: from the first one on each action that may happen, states deduplicated
 * by the hash of their one form, until none is new.  Two states whose hashes of 64 bits agree by
 * chance would be taken for one: among n states that happens with a probability of n^2 / 2^65. */
#ifndef MODEL_EXPLORE_H
#define MODEL_EXPLORE_H

#include "world.h"

/* A run. */
struct explore_plan {
	const struct model_bounds *bounds;
	enum model_rule rule;
	const char *script, *old,
		*new;         /* a script in which one text stands for another; NULL: none */
	bool every_order;     /* also those of which another one leads to the same: see actions.c */
	bool deep;            /* depth first, for want of memory; else a trace is a shortest one */
	uint64_t states_most; /* 0 = all */
	int64_t seconds_most; /* 0 = any */
	int64_t report_s;     /* a line of progress so often, 0 = never */
};

struct explore_result {
	uint64_t states, transitions,
		ends;             /* ends: states from which everything was let come to its end */
	uint64_t depth, frontier; /* the largest */
	int64_t longest_ms;       /* the longest wait at an end */
	double seconds;
	bool cut;          /* by a limit: there are more */
	const char *wrong; /* NULL = nothing */
	bool at_end;       /* when everything was let come to its end from there */
	uint8_t *path;     /* the actions to it; free with explore_fini() */
	size_t path_len;
};

void explore(const struct explore_plan *plan, struct explore_result *result);
void explore_fini(struct explore_result *result);
/* The actions to what is wrong, a line each, and what they lead to. */
void explore_tell(const struct explore_plan *plan, const struct explore_result *result);

#endif
