/* SPDX-License-Identifier: MIT
 * The explorer: a set of hashes, the states still to expand, and the path from the first one.  A
 * state to expand is stored as the words of the arena that differ from the first state's. */
#include "explore.h"

#include "arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FIRST_NODES 65536
#define WORDS_MAX 65536
#define RUN_MAX 60000 /* words of one run */
#define CLOCK_EVERY 256

struct node {
	uint64_t hash;
	uint32_t parent;
	uint16_t action, depth;
};

/* Hashes, and with nodes the path to each. */
struct set {
	uint32_t count, room;
	struct node *nodes;
	uint32_t *table; /* index + 1, 0 = empty; twice the number of nodes */
};

struct image {
	struct image *next;
	uint32_t node, len;
	uint64_t words[];
};

struct explorer {
	const struct explore_plan *plan;
	struct explore_result *result;
	struct model_world *world;
	struct set seen, ended;
	uint64_t *base; /* the first state */
	size_t base_words;
	struct image *first, **last;
	uint64_t waiting; /* images */
	double begun, reported;
	uint32_t wrong_at;
};

double explore_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- The set ------------------------------------------------------------------------------ */

static void grow(struct set *set)
{
	set->room = set->room ? set->room * 2 : FIRST_NODES;
	set->nodes = outside_realloc(set->nodes, set->room * sizeof(*set->nodes));
	outside_free(set->table);
	set->table = outside_realloc(NULL, (size_t)set->room * 2 * sizeof(*set->table));
	memset(set->table, 0, (size_t)set->room * 2 * sizeof(*set->table));
	for (uint32_t i = 0; i < set->count; i++) {
		size_t at = set->nodes[i].hash & ((size_t)set->room * 2 - 1);
		while (set->table[at])
			at = (at + 1) & ((size_t)set->room * 2 - 1);
		set->table[at] = i + 1;
	}
}

/* True if it is new; it is then the last one. */
static bool add(struct set *set, uint64_t hash, uint32_t parent, uint16_t action)
{
	size_t at;

	if (set->count == set->room)
		grow(set);
	at = hash & ((size_t)set->room * 2 - 1);
	while (set->table[at]) {
		if (set->nodes[set->table[at] - 1].hash == hash)
			return false;
		at = (at + 1) & ((size_t)set->room * 2 - 1);
	}
	set->nodes[set->count] = (struct node){
		.hash = hash,
		.parent = parent,
		.action = action,
		.depth = set->count ? (uint16_t)(set->nodes[parent].depth + 1) : 0,
	};
	set->table[at] = ++set->count;
	return true;
}

static void free_set(struct set *set)
{
	outside_free(set->nodes);
	outside_free(set->table);
}

/* ---- Images ------------------------------------------------------------------------------- */

/* Runs of equal words are left out: a count of equal words, a count of different ones, these
 * words. */
static struct image *save(const struct explorer *explorer, uint32_t node)
{
	static uint64_t out[WORDS_MAX];
	const uint64_t *words = arena_base();
	size_t count = (arena_used() + 7) / 8, base = explorer->base_words, len = 0, at = 0;
	struct image *image;

	while (at < count) {
		size_t same = 0, start;
		while (at < count && same < RUN_MAX &&
		       words[at] == (at < base ? explorer->base[at] : 0)) {
			at++;
			same++;
		}
		start = at;
		while (at < count && at - start < RUN_MAX &&
		       words[at] != (at < base ? explorer->base[at] : 0))
			at++;
		out[len++] = same << 32 | (at - start);
		memcpy(out + len, words + start, (at - start) * 8);
		len += at - start;
	}
	image = outside_realloc(NULL, sizeof(*image) + len * 8);
	image->next = NULL;
	image->node = node;
	image->len = (uint32_t)len;
	memcpy(image->words, out, len * 8);
	return image;
}

static void load(const struct explorer *explorer, const struct image *image)
{
	uint64_t *words = arena_base();
	size_t at = 0;

	world_view_forget();
	memcpy(words, explorer->base, explorer->base_words * 8);
	for (size_t i = 0; i < image->len;) {
		size_t same = image->words[i] >> 32, differ = image->words[i] & 0xffffffff;
		if (at + same > explorer->base_words && at < explorer->base_words)
			memset(words + explorer->base_words, 0,
			       (at + same - explorer->base_words) * 8);
		else if (at >= explorer->base_words)
			memset(words + at, 0, same * 8);
		at += same;
		memcpy(words + at, image->words + i + 1, differ * 8);
		at += differ;
		i += 1 + differ;
	}
}

static void push(struct explorer *explorer, struct image *image)
{
	if (explorer->plan->deep) {
		image->next = explorer->first;
		explorer->first = image;
	} else {
		*explorer->last = image;
		explorer->last = &image->next;
	}
	if (++explorer->waiting > explorer->result->frontier)
		explorer->result->frontier = explorer->waiting;
}

static struct image *pop(struct explorer *explorer)
{
	struct image *image = explorer->first;

	if (!image)
		return NULL;
	explorer->first = image->next;
	if (!explorer->first)
		explorer->last = &explorer->first;
	explorer->waiting--;
	return image;
}

/* ---- Expanding ---------------------------------------------------------------------------- */

static void found_wrong(struct explorer *explorer, uint32_t node, const char *wrong, bool at_end)
{
	if (explorer->result->wrong)
		return;
	explorer->result->wrong = wrong;
	explorer->result->at_end = at_end;
	explorer->wrong_at = node;
}

/* Let all calls end from this state, without new calls and faults: once for all states that differ
 * only in the rest of the bounds.  True if the world was changed. */
static bool try_end(struct explorer *explorer, uint32_t node, int actions)
{
	const char *wrong;

	if (actions && !world_quiet(explorer->world))
		return false;
	if (!add(&explorer->ended, world_hash(explorer->world, false), 0, 0))
		return false;
	explorer->result->ends++;
	wrong = world_finish(explorer->world, &explorer->result->longest_ms);
	if (wrong)
		found_wrong(explorer, node, wrong, true);
	return true;
}

/* Execute one action: the resulting state, if it is new, is to be expanded. */
static void step(struct explorer *explorer, uint32_t node, uint16_t action)
{
	struct set *seen = &explorer->seen;
	const char *wrong;
	uint64_t depth;

	world_do(explorer->world, action);
	explorer->result->transitions++;
	wrong = world_wrong(explorer->world);
	explorer->world->wrong = NULL;
	explorer->result->excused += explorer->world->excused;
	explorer->world->excused = false;
	if (!add(seen, world_hash(explorer->world, true), node, action) && !wrong)
		return;
	if (wrong) {
		/* Another path may lead to that state: its hash includes this. */
		add(seen, ~seen->nodes[node].hash ^ action, node, action);
		found_wrong(explorer, seen->count - 1, wrong, false);
		return;
	}
	depth = seen->nodes[seen->count - 1].depth;
	if (depth > explorer->result->depth)
		explorer->result->depth = depth;
	push(explorer, save(explorer, seen->count - 1));
}

static void expand(struct explorer *explorer, const struct image *image)
{
	uint16_t actions[MODEL_ACTIONS];
	int count;

	load(explorer, image);
	count = world_actions(explorer->world, !explorer->plan->every_order, actions);
	for (int i = 0; i < count && !explorer->result->wrong; i++) {
		if (i)
			load(explorer, image);
		step(explorer, image->node, actions[i]);
	}
	if (explorer->result->wrong)
		return;
	load(explorer, image);
	try_end(explorer, image->node, count);
}

static void report(struct explorer *explorer, double now)
{
	const struct explore_result *result = explorer->result;

	explorer->reported = now;
	printf("  %s: %.0f s, %u states, %llu transitions, %llu to expand, depth %llu, %llu ends\n",
	       explorer->plan->bounds->name, now - explorer->begun, explorer->seen.count,
	       (unsigned long long)result->transitions, (unsigned long long)explorer->waiting,
	       (unsigned long long)result->depth, (unsigned long long)result->ends);
	fflush(stdout);
}

/* Is a limit reached? */
static bool is_over(struct explorer *explorer)
{
	const struct explore_plan *plan = explorer->plan;
	double now = explore_seconds();

	if (plan->report_s && now - explorer->reported >= (double)plan->report_s)
		report(explorer, now);
	return (plan->states_most && explorer->seen.count >= plan->states_most) ||
	       (plan->seconds_most && now - explorer->begun >= (double)plan->seconds_most);
}

static void begin(struct explorer *explorer)
{
	const struct explore_plan *plan = explorer->plan;

	explorer->world = world_begin(plan->bounds, plan->rule, plan->script, plan->old, plan->new);
	explorer->base_words = (arena_used() + 7) / 8;
	explorer->base = outside_realloc(NULL, explorer->base_words * 8);
	memcpy(explorer->base, arena_base(), explorer->base_words * 8);
	explorer->last = &explorer->first;
	explorer->begun = explorer->reported = explore_seconds();
}

static void keep_path(struct explorer *explorer)
{
	struct explore_result *result = explorer->result;
	const struct node *nodes = explorer->seen.nodes;
	size_t at;

	result->path_len = nodes[explorer->wrong_at].depth;
	result->path = outside_realloc(NULL, (result->path_len + 1) * sizeof(*result->path));
	at = result->path_len;
	for (uint32_t i = explorer->wrong_at; i; i = nodes[i].parent)
		result->path[--at] = nodes[i].action;
}

void explore(const struct explore_plan *plan, struct explore_result *result)
{
	struct explorer explorer = {.plan = plan, .result = result};
	struct image *image;

	memset(result, 0, sizeof(*result));
	begin(&explorer);
	add(&explorer.seen, world_hash(explorer.world, true), 0, 0);
	push(&explorer, save(&explorer, 0));
	for (uint32_t i = 0; !result->wrong && (image = pop(&explorer)); i++) {
		expand(&explorer, image);
		outside_free(image);
		if (i % CLOCK_EVERY == 0 && is_over(&explorer)) {
			result->cut = explorer.first != NULL;
			break;
		}
	}
	result->states = explorer.seen.count;
	result->seconds = explore_seconds() - explorer.begun;
	if (result->wrong)
		keep_path(&explorer);
	while ((image = pop(&explorer)))
		outside_free(image);
	memcpy(arena_base(), explorer.base, explorer.base_words * 8);
	world_end(explorer.world);
	outside_free(explorer.base);
	free_set(&explorer.seen);
	free_set(&explorer.ended);
}

void explore_fini(struct explore_result *result)
{
	outside_free(result->path);
	result->path = NULL;
}

void explore_tell(const struct explore_plan *plan, const struct explore_result *result)
{
	struct model_world *world =
		world_begin(plan->bounds, plan->rule, plan->script, plan->old, plan->new);
	char line[120];

	printf("    %s, after %zu actions\n", result->wrong, result->path_len);
	for (size_t i = 0; i < result->path_len; i++) {
		world_tell(world, result->path[i], line, sizeof(line));
		world_do(world, result->path[i]);
		printf("    %3zu  %s\n", i + 1, line);
		world_print(world);
	}
	if (result->at_end)
		printf("         then, without new calls and faults, time goes "
		       "by\n");
	fflush(stdout);
	world_end(world);
}
