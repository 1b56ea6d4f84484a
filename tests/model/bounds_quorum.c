/* SPDX-License-Identifier: MIT
 * The bounds of the runs over the shipped code with a quorum of servers.  Where a client holds legs
 * at first, the bounds leave out the ways to get there; others begin with an empty quorum. */
#include "plants.h"

#include <stdio.h>
#include <string.h>

#define QUORUM(...)                                                                                \
	{                                                                                          \
		.name = "quorum", .kind = LK_KIND_LOCK, .servers = 3, .steps = 255, __VA_ARGS__    \
	}
#define TWO .clients = 2, .calls = 1
#define MANY .clients = 3, .calls = 3, .any_order = 1

const struct model_bounds model_quorum_small[] = {
	QUORUM(TWO, .yields = 1),
	QUORUM(TWO, .yields = 2, .held = 3, .ticks = 2, .crashes = 1, .losses = 1, .faults = 1),
	QUORUM(TWO, .yields = 2, .held = 3, .delays = 1, .faults = 1),
	QUORUM(TWO, .yields = 2, .held = 3, .restarts = 1, .flushes = 1, .faults = 1),
	QUORUM(TWO, .yields = 1, .held = 3, .ticks = 2, .extends = 1),
	QUORUM(TWO, .yields = 1, .held = 3, .ticks = 2, .fixed = true),
	QUORUM(TWO, .yields = 1, .held = 2, .tries = 1),
	{.name = NULL},
};

const struct model_bounds model_quorum_night[] = {
	QUORUM(TWO, .yields = 2, .losses = 1, .faults = 1),
	QUORUM(TWO, .yields = 2, .delays = 1, .faults = 1),
	QUORUM(TWO, .yields = 1, .tries = 1),
	QUORUM(TWO, .yields = 2, .held = 2, .jumps = 1, .faults = 1),
	QUORUM(TWO, .yields = 2, .held = 3, .ticks = 1, .delays = 1, .faults = 1),
	QUORUM(TWO, .yields = 2, .held = 3, .ticks = 1, .restarts = 1, .faults = 1),
	QUORUM(TWO, .yields = 3, .ticks = 1, .crashes = 1, .faults = 1),
	QUORUM(TWO, .yields = 2, .cuts = 1, .faults = 1),
	QUORUM(TWO, .yields = 2, .give_ups = 1, .losses = 1, .faults = 1),
	QUORUM(TWO, .yields = 2, .held = 3, .ticks = 2, .cuts = 1, .lates = 1, .faults = 1),
	QUORUM(TWO, .yields = 2, .held = 3, .ticks = 2, .stalls = 1),
	QUORUM(TWO, .yields = 2, .held = 3, .ticks = 2, .slows = 1, .faults = 1),
	QUORUM(TWO, .yields = 2, .held = 2, .ticks = 2, .crashes = 1, .losses = 1, .faults = 1),
	QUORUM(TWO, .yields = 2, .held = 2, .ticks = 2, .restarts = 1, .flushes = 1, .faults = 1),
	QUORUM(TWO, .yields = 2, .held = 2, .ticks = 2, .downs = 1, .faults = 1),
	QUORUM(TWO, .yields = 2, .held = 3, .ticks = 4, .extends = 1, .losses = 1, .faults = 1),
	{.name = NULL},
};

/* At most N - Q servers are down or young, so that whoever waits is served. */
const struct model_bounds model_quorum_walks[] = {
	QUORUM(MANY, .ticks = 12, .stalls = 2, .tries = 2, .extends = 1, .give_ups = 1, .cuts = 2,
               .lates = 1, .crashes = 1, .losses = 2, .slows = 2, .restarts = 1, .faults = 3),
	QUORUM(MANY, .ticks = 8, .stalls = 1, .tries = 1, .give_ups = 1, .cuts = 1, .lates = 1,
               .losses = 1, .slows = 1, .downs = 1, .flushes = 1, .put_offs = 1, .faults = 3),
	QUORUM(MANY, .ticks = 8, .fixed = true, .stalls = 1, .tries = 1, .extends = 1, .cuts = 1,
               .crashes = 1, .losses = 1, .slows = 1, .restarts = 1, .faults = 2),
	QUORUM(MANY, .held = 2, .ticks = 8, .stalls = 1, .losses = 1, .jumps = 1, .faults = 2),
	{.name = "quorum",
         .kind = LK_KIND_LOCK,
         .servers = 5,
         .steps = 255,
         MANY,
         .ticks = 10,
         .stalls = 2,
         .tries = 1,
         .extends = 1,
         .give_ups = 1,
         .cuts = 2,
         .lates = 2,
         .crashes = 1,
         .losses = 2,
         .slows = 2,
         .restarts = 1,
         .downs = 1,
         .faults = 4},
	{.name = NULL},
};

void model_quorum_bounds_tell(const struct model_bounds *bounds, char *text, size_t size)
{
	snprintf(text, size, "%s: %u servers, %u clients, %u calls each, %u ticks of half a lease",
	         bounds->name, bounds->servers, bounds->clients, bounds->calls, bounds->ticks);
	if (!bounds->any_order)
		snprintf(text + strlen(text), size - strlen(text), ", replies at once");
	model_bounds_add(text, size, bounds->held, "legs held at first");
	model_bounds_add(text, size, bounds->yields, "yields of a leg at most");
	model_bounds_add(text, size, bounds->delays, "late replies or messages");
	model_bounds_add(text, size, bounds->slows, "slow links");
	model_bounds_add(text, size, bounds->downs, "servers down");
	model_bounds_add(text, size, bounds->jumps, "clocks set forward");
}
