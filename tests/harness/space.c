/* SPDX-License-Identifier: MIT
 * The set of states, the shortest way to each, and the ways back. */
#include "space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_STATES 4096
#define FIRST_EDGES 4096

static void *grown(void *old, size_t count, size_t size)
{
	void *larger = realloc(old, count * size);

	if (!larger) {
		fprintf(stderr, "space: out of memory\n");
		abort();
	}
	return larger;
}

/* FNV-1a over words, then the finish of splitmix64: the low bits choose the place. */
static uint64_t hash(const uint8_t *bytes, size_t width)
{
	uint64_t sum = UINT64_C(0xcbf29ce484222325), word;

	for (size_t i = 0; i < width; i += sizeof(word)) {
		memcpy(&word, bytes + i, sizeof(word));
		sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		sum ^= sum >> 29;
	}
	sum = (sum ^ (sum >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	return sum ^ (sum >> 31);
}

static uint32_t *place_of(const struct space *space, const uint8_t *state)
{
	uint32_t at = (uint32_t)hash(state, space->width) & (space->table_max - 1);

	while (space->table[at] &&
	       memcmp(space_state(space, space->table[at] - 1), state, space->width))
		at = (at + 1) & (space->table_max - 1);
	return &space->table[at];
}

static void make_room(struct space *space)
{
	if (space->states < space->states_max)
		return;
	space->states_max = space->states_max ? space->states_max * 2 : FIRST_STATES;
	space->bytes = grown(space->bytes, space->states_max, space->width);
	space->parents = grown(space->parents, space->states_max, sizeof(*space->parents));
	free(space->table);
	space->table_max = space->states_max * 2;
	space->table = calloc(space->table_max, sizeof(*space->table));
	if (!space->table) {
		fprintf(stderr, "space: out of memory\n");
		abort();
	}
	for (uint32_t i = 0; i < space->states; i++)
		*place_of(space, space_state(space, i)) = i + 1;
}

void space_init(struct space *space, size_t width, bool edges_wanted)
{
	*space = (struct space){.width = width, .edges_wanted = edges_wanted};
	if (width % sizeof(uint64_t))
		abort(); /* the hash takes whole words */
	make_room(space);
}

void space_fini(struct space *space)
{
	free(space->bytes);
	free(space->parents);
	free(space->table);
	free(space->edges);
	*space = (struct space){0};
}

uint32_t space_add(struct space *space, const uint8_t *state, bool counts)
{
	uint32_t *place, index;

	make_room(space);
	place = place_of(space, state);
	if (!*place) {
		memcpy(space->bytes + space->states * space->width, state, space->width);
		space->parents[space->states] = space->next - 1;
		*place = ++space->states;
	}
	index = *place - 1;
	if (!space->edges_wanted || !counts || !space->next || index == space->next - 1)
		return index;
	if (space->edge_count == space->edges_max) {
		space->edges_max = space->edges_max ? space->edges_max * 2 : FIRST_EDGES;
		space->edges = grown(space->edges, space->edges_max, sizeof(*space->edges));
	}
	space->edges[space->edge_count][0] = space->next - 1;
	space->edges[space->edge_count++][1] = index;
	return index;
}

bool space_next(struct space *space, uint8_t *state)
{
	if (space->next == space->states)
		return false;
	memcpy(state, space_state(space, space->next++), space->width);
	return true;
}

const uint8_t *space_state(const struct space *space, uint32_t index)
{
	return space->bytes + index * space->width;
}

size_t space_path(const struct space *space, uint32_t index, uint32_t *path, size_t max)
{
	size_t steps = 0, at;

	for (uint32_t i = index; i; i = space->parents[i])
		steps++;
	at = steps;
	for (uint32_t i = index;; i = space->parents[i], at--) {
		if (at < max)
			path[at] = i;
		if (!i)
			break;
	}
	return steps;
}

void space_reach(const struct space *space, uint8_t *marks)
{
	uint32_t *starts = calloc((size_t)space->states + 2, sizeof(*starts));
	uint32_t *from = grown(NULL, space->edge_count + 1, sizeof(*from));
	uint32_t *todo = grown(NULL, (size_t)space->states + 1, sizeof(*todo));
	size_t count = 0;

	if (!starts)
		abort();
	/* Edges by where they lead to: starts[i + 1] runs from the begin to the end of i's. */
	for (size_t i = 0; i < space->edge_count; i++)
		starts[space->edges[i][1] + 2]++;
	for (uint32_t i = 1; i <= space->states; i++)
		starts[i + 1] += starts[i];
	for (size_t i = 0; i < space->edge_count; i++)
		from[starts[space->edges[i][1] + 1]++] = space->edges[i][0];
	for (uint32_t i = 0; i < space->states; i++)
		if (marks[i])
			todo[count++] = i;
	while (count) {
		uint32_t to = todo[--count];
		for (uint32_t i = starts[to]; i < starts[to + 1]; i++) {
			if (marks[from[i]])
				continue;
			marks[from[i]] = 1;
			todo[count++] = from[i];
		}
	}
	free(starts);
	free(from);
	free(todo);
}
