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
	uint64_t walks; /* it is found by so many at most; 0 = every state is explored */
};

/* Each ends with one without a name. */
extern const struct model_plant model_plants[], model_quorum_plants[];

/* Each ends with one without a name: runs of a few seconds each; more of them for the night; and
 * runs of an hour. */
extern const struct model_bounds model_small[], model_night[], model_big[];

/* The same of a quorum (bounds_quorum.c), and those for walks. */
extern const struct model_bounds model_quorum_small[], model_quorum_night[], model_quorum_walks[];
/* The same of etcd (plants_etcd.c). */
extern const struct model_plant model_etcd_plants[];
extern const struct model_bounds model_etcd_small[], model_etcd_night[];
void model_etcd_bounds_tell(const struct model_bounds *bounds, char *text, size_t size);
void model_quorum_bounds_tell(const struct model_bounds *bounds, char *text, size_t size);

const struct model_plant *model_plant(const char *name);
/* Explore with it; the result as explore() gives it. */
void model_plant_explore(const struct model_plant *plant, struct explore_plan *plan,
                         struct explore_result *result);
/* Change some of them: "calls=2,cuts=0".  False if there is no such bound. */
bool model_bounds_set(struct model_bounds *bounds, const char *text);
/* Append ", <count> <what>" if that is not 0. */
void model_bounds_add(char *text, size_t size, unsigned count, const char *what);
/* The bounds as text, a line without its end. */
void model_bounds_tell(const struct model_bounds *bounds, char *text, size_t size);

#endif
