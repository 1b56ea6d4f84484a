/* SPDX-License-Identifier: MIT
 * Walks: from the first state on, actions that are drawn, as many as the bounds permit; then all
 * calls run to their end.  For bounds with too many states to explore. */
#include "arena.h"
#include "explore.h"

#include <stdlib.h>
#include <string.h>

#define FAULT_ONE_IN 12 /* an action, if there are both */
#define LONGEST 3000    /* actions */
#define SHORTER 200

struct walk {
	struct model_world *world;
	struct explore_result *result;
	uint64_t random;
	uint16_t path[LONGEST];
	size_t len;
};

static uint32_t draw(struct walk *walk, uint32_t below)
{
	uint64_t z = walk->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((z ^ (z >> 31)) % below);
}

/* Faults come more rarely than other actions, though more of them are possible. */
static bool choose(struct walk *walk, uint16_t *action)
{
	uint16_t actions[MODEL_ACTIONS];
	int count = world_actions(walk->world, false, actions), faults = 0, first, number;

	for (int i = 0; i < count; i++) {
		uint16_t one = actions[i];
		if (!world_is_fault(world_verb_of(one)))
			continue;
		actions[i] = actions[faults];
		actions[faults++] = one;
	}
	if (!count)
		return false;
	first = faults == count || (faults && !draw(walk, FAULT_ONE_IN)) ? 0 : faults;
	number = first ? count - first : faults ? faults : count;
	*action = actions[first + (int)draw(walk, (uint32_t)number)];
	return true;
}

static void keep_path(struct walk *walk)
{
	walk->result->path_len = walk->len;
	walk->result->path = outside_realloc(NULL, (walk->len + 1) * sizeof(*walk->path));
	memcpy(walk->result->path, walk->path, walk->len * sizeof(*walk->path));
}

static const char *step(struct walk *walk, uint16_t action)
{
	const char *wrong;

	walk->path[walk->len++] = action;
	world_do(walk->world, action);
	wrong = world_wrong(walk->world);
	walk->result->transitions++;
	walk->result->excused += walk->world->excused;
	walk->world->excused = false;
	if (walk->len > walk->result->depth)
		walk->result->depth = walk->len;
	return wrong;
}

static void run(struct walk *walk)
{
	const char *wrong = NULL;
	/* Waits end well from any state, not only from one in which nothing is left to happen. */
	size_t most = draw(walk, 2) ? LONGEST : 1 + draw(walk, SHORTER);
	uint16_t action;

	walk->len = 0;
	while (!wrong && walk->len < most && choose(walk, &action))
		wrong = step(walk, action);
	walk->result->at_end = !wrong;
	if (!wrong)
		wrong = world_finish(walk->world, &walk->result->longest_ms);
	walk->result->ends++;
	walk->result->wrong = wrong;
	if (wrong)
		keep_path(walk);
}

void explore_walk(const struct explore_plan *plan, struct explore_result *result)
{
	struct walk *walk = outside_realloc(NULL, sizeof(*walk));
	double begun = explore_seconds();
	size_t size;
	void *base;

	memset(result, 0, sizeof(*result));
	memset(walk, 0, sizeof(*walk));
	walk->result = result;
	walk->world = world_begin(plan->bounds, plan->rule, plan->script, plan->old, plan->new);
	size = arena_used();
	base = outside_realloc(NULL, size);
	memcpy(base, arena_base(), size);
	for (uint64_t i = 0; i < plan->walks && !result->wrong; i++) {
		if (plan->seconds_most && explore_seconds() - begun > (double)plan->seconds_most) {
			result->cut = true;
			break;
		}
		result->seed = plan->seed + i;
		walk->random = result->seed * UINT64_C(1000003);
		world_view_forget();
		run(walk);
		memcpy(arena_base(), base, size);
	}
	result->seconds = explore_seconds() - begun;
	world_end(walk->world);
	outside_free(base);
	outside_free(walk);
}
