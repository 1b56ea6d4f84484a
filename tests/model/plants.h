/* SPDX-License-Identifier: MIT
 * Wrong scripts and wrong rules of the core that make the model fail, each with bounds in which
 * it is found, and the bounds in which the shipped code is explored. */
#ifndef MODEL_PLANTS_H
#define MODEL_PLANTS_H

#include "explore.h"

struct model_plant {
	const char *name;
	const char *what; /* the fault */
	enum model_rule rule;
	const char *script, *old, *new;
	struct model_bounds bounds;
};

/* Ends with one without a name. */
extern const struct model_plant model_plants[];

/* Each ends with one without a name: runs of a few seconds each; more of them for the night; and
 * runs of an hour. */
extern const struct model_bounds model_small[], model_night[], model_big[];

const struct model_plant *model_plant(const char *name);
/* Explore with it; the result as explore() gives it. */
void model_plant_explore(const struct model_plant *plant, struct explore_plan *plan,
                         struct explore_result *result);
/* Change some of them: "calls=2,cuts=0".  False if there is no such bound. */
bool model_bounds_set(struct model_bounds *bounds, const char *text);
/* The bounds as text, a line without its end. */
void model_bounds_tell(const struct model_bounds *bounds, char *text, size_t size);

#endif
