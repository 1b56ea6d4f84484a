/* SPDX-License-Identifier: MIT
 * A set of packed states, breadth first: what every explicit-state model needs, and no more.  The
 * model packs its states (the same state to the same bytes) and knows its steps. */
#ifndef SPACE_H
#define SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct space {
	size_t width; /* bytes of a state */
	bool edges_wanted;
	uint32_t states;                        /* found */
	uint32_t next;                          /* to expand */
	uint32_t states_max, table_max, *table; /* open addressing; 0 = empty, else index + 1 */
	uint8_t *bytes;
	uint32_t *parents;
	uint32_t (*edges)[2];
	size_t edge_count, edges_max;
};

void space_init(struct space *space, size_t width, bool edges_wanted);
void space_fini(struct space *space);

/* A state found while expanding the one of space_next(); its index.  An edge that counts is one
 * that space_reach() may go. */
uint32_t space_add(struct space *space, const uint8_t *state, bool counts);

/* The next one to expand, copied; false when all were. */
bool space_next(struct space *space, uint8_t *state);

const uint8_t *space_state(const struct space *space, uint32_t index);

/* The shortest path from the first state; its length in steps.  path has room for max indices. */
size_t space_path(const struct space *space, uint32_t index, uint32_t *path, size_t max);

/* Mark every state from which a marked one can be reached over edges that count. */
void space_reach(const struct space *space, uint8_t *marks);

#endif
