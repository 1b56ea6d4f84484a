/* SPDX-License-Identifier: MIT
 * What makes the model fail: scripts and rules of the core with one thing wrong, each with bounds
 * in which it is found, and the bounds in which what ships is explored. */
#ifndef MODEL_PLANTS_H
#define MODEL_PLANTS_H

#include "explore.h"

struct model_plant {
	const char *name;
	const char *what; /* is wrong */
	enum model_rule rule;
	const char *script, *old, *new;
	struct model_bounds bounds;
};

/* Up to one without a name. */
extern const struct model_plant model_plants[];

/* Up to one without a name: a few seconds each; and those of an hour. */
extern const struct model_bounds model_small[], model_big[];

const struct model_plant *model_plant(const char *name);
/* Explore with it; the result as explore() gives it. */
void model_plant_explore(const struct model_plant *plant, struct explore_plan *plan,
                         struct explore_result *result);
/* Some of them otherwise: "calls=2,cuts=0".  False if there is no such bound. */
bool model_bounds_set(struct model_bounds *bounds, const char *text);
/* The bounds in words, as a line without its end. */
void model_bounds_tell(const struct model_bounds *bounds, char *text, size_t size);

#endif
