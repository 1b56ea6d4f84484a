/* SPDX-License-Identifier: MIT
 * The bounds of the runs over the shipped code.  Faults multiply the states most, so each kind of
 * run has its own: one with many calls and no fault, others with one fault of some kinds. */
#include "plants.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOCK(...)                                                                                  \
	{                                                                                          \
		.name = "lock", .kind = LK_KIND_LOCK, __VA_ARGS__                                  \
	}
#define SEMAPHORE(...)                                                                             \
	{                                                                                          \
		.name = "semaphore", .kind = LK_KIND_SEMAPHORE, __VA_ARGS__                        \
	}
#define RATE(...)                                                                                  \
	{                                                                                          \
		.name = "rate", .kind = LK_KIND_SEMAPHORE, .fixed = true, __VA_ARGS__              \
	}
#define LATCH(...)                                                                                 \
	{                                                                                          \
		.name = "latch", .kind = LK_KIND_LATCH, __VA_ARGS__                                \
	}
#define TWO .clients = 2, .steps = 4
#define THREE .clients = 3, .steps = 6

const struct model_bounds model_small[] = {
	LOCK(TWO, .ticks = 3, .stalls = 1, .calls = 1, .give_ups = 1, .cuts = 1, .crashes = 1,
             .losses = 1, .faults = 1),
	LOCK(TWO, .ticks = 2, .stalls = 1, .calls = 1, .cuts = 1, .lates = 1, .faults = 1),
	LOCK(TWO, .ticks = 2, .calls = 2, .give_ups = 1, .refusals = 1, .put_offs = 1, .faults = 1),
	LOCK(TWO, .strangers = 1, .ticks = 3, .stalls = 1, .calls = 1, .flushes = 1, .restarts = 1,
             .faults = 1),
	LOCK(TWO, .ticks = 2, .calls = 1, .flushes = 1, .cuts = 1, .lates = 1, .faults = 2),
	LOCK(TWO, .ticks = 2, .stalls = 1, .calls = 1, .promotions = 1, .copies = 1, .behind = 2,
             .faults = 1),
	LOCK(TWO, .ticks = 2, .calls = 1, .restarts = 1, .promotions = 1, .copies = 1, .faults = 1),
	LOCK(TWO, .ticks = 3, .calls = 1, .extends = 1, .flushes = 1, .restarts = 1, .faults = 1),
	LOCK(TWO, .fixed = true, .ticks = 3, .stalls = 1, .calls = 1, .flushes = 1, .restarts = 1,
             .faults = 1),
	LOCK(.clients = 3, .steps = 2, .ticks = 2, .calls = 1, .promotions = 1, .copies = 1,
             .faults = 1),
	LOCK(.clients = 3, .steps = 3, .ticks = 2, .calls = 1, .flushes = 1, .faults = 1),
	LOCK(.clients = 2, .steps = 3, .ticks = 2, .calls = 1, .replicas = 1, .shorts = 1,
             .promotions = 1, .copies = 1, .faults = 1),
	LOCK(.clients = 2, .steps = 3, .ticks = 1, .calls = 1, .replicas = 1, .second = 1,
             .better = 1, .shorts = 1, .promotions = 1, .copies = 1, .faults = 1),
	LOCK(.clients = 2, .steps = 3, .ticks = 1, .calls = 1, .replicas = 1, .second = 1,
             .grace = 2, .promotions = 1, .copies = 1, .faults = 1),
	LOCK(.clients = 2, .steps = 3, .ticks = 1, .calls = 1, .replicas = 2, .second = 1,
             .shorts = 1, .promotions = 1, .copies = 1, .faults = 1),
	LOCK(.clients = 2, .steps = 3, .calls = 1, .second = 1, .promotions = 2, .copies = 1,
             .faults = 2),
	SEMAPHORE(.clients = 2, .steps = 3, .calls = 1, .twos = 1, .replicas = 2, .second = 1,
                  .shorts = 1, .promotions = 1, .copies = 1, .faults = 1),
	SEMAPHORE(TWO, .ticks = 3, .calls = 1, .twos = 1, .flushes = 1, .faults = 1),
	SEMAPHORE(TWO, .ticks = 2, .calls = 1, .restarts = 1, .copies = 1, .grace = 1, .faults = 1),
	SEMAPHORE(.clients = 2, .steps = 3, .ticks = 1, .calls = 1, .twos = 1, .shrinks = 1,
                  .restarts = 1, .copies = 1, .faults = 1),
	SEMAPHORE(.clients = 2, .steps = 3, .calls = 2, .twos = 1, .promotions = 1, .copies = 1,
                  .faults = 1),
	SEMAPHORE(.clients = 3, .steps = 2, .calls = 1, .twos = 1, .restarts = 1, .faults = 1),
	SEMAPHORE(TWO, .ticks = 3, .stalls = 1, .calls = 1, .twos = 1, .shrinks = 1),
	SEMAPHORE(TWO, .ticks = 3, .calls = 1, .twos = 2, .shrinks = 1, .cuts = 1, .crashes = 1,
                  .losses = 1, .faults = 1),
	SEMAPHORE(TWO, .ticks = 2, .calls = 1, .twos = 1, .cuts = 1, .lates = 1, .faults = 1),
	SEMAPHORE(TWO, .ticks = 2, .calls = 1, .twos = 2, .give_ups = 1, .refusals = 1,
                  .put_offs = 1, .faults = 1),
	LATCH(TWO, .ticks = 2, .calls = 1, .sets = 1, .removes = 1, .count = 1, .cuts = 1,
              .losses = 1, .faults = 1),
	LATCH(TWO, .ticks = 1, .calls = 1, .sets = 1, .count = 1, .cuts = 1, .lates = 1,
              .faults = 1),
	LATCH(TWO, .ticks = 2, .stalls = 1, .calls = 1, .sets = 1, .count = 2, .cuts = 1,
              .losses = 1, .faults = 1),
	RATE(TWO, .finals = 2, .ticks = 4, .stalls = 2, .calls = 2, .twos = 2),
	RATE(TWO, .finals = 1, .ticks = 4, .stalls = 2, .calls = 1, .twos = 2, .give_ups = 1),
	RATE(TWO, .finals = 1, .ticks = 3, .stalls = 1, .calls = 1, .twos = 2, .cuts = 1,
             .crashes = 1, .losses = 1, .faults = 1),
	RATE(TWO, .finals = 1, .ticks = 3, .calls = 1, .twos = 1, .flushes = 1, .restarts = 1,
             .faults = 1),
	RATE(TWO, .finals = 2, .ticks = 4, .calls = 1, .twos = 1, .cuts = 1, .lates = 1,
             .faults = 1),
	{.name = NULL},
};

const struct model_bounds model_night[] = {
	LOCK(TWO, .ticks = 2, .stalls = 1, .calls = 1, .replicas = 1, .shorts = 1, .promotions = 1,
             .copies = 1, .faults = 1),
	SEMAPHORE(TWO, .ticks = 1, .calls = 1, .twos = 1, .replicas = 1, .shorts = 1,
                  .promotions = 1, .copies = 1, .faults = 1),
	LOCK(TWO, .ticks = 2, .calls = 1, .replicas = 1, .second = 1, .better = 1, .shorts = 1,
             .promotions = 1, .copies = 1, .faults = 1),
	LOCK(TWO, .ticks = 2, .calls = 1, .replicas = 1, .second = 1, .grace = 2, .promotions = 1,
             .copies = 1, .faults = 1),
	LOCK(TWO, .ticks = 2, .calls = 1, .replicas = 2, .second = 1, .shorts = 1, .promotions = 1,
             .copies = 1, .faults = 1),
	SEMAPHORE(TWO, .ticks = 1, .calls = 1, .twos = 1, .replicas = 2, .second = 1, .shorts = 1,
                  .promotions = 1, .copies = 1, .faults = 1),
	SEMAPHORE(TWO, .ticks = 1, .calls = 2, .twos = 1, .shrinks = 1, .promotions = 1,
                  .copies = 1, .faults = 1),
	SEMAPHORE(.clients = 3, .steps = 2, .calls = 1, .twos = 1, .promotions = 1, .copies = 1,
                  .faults = 1),
	{.name = NULL},
};

const struct model_bounds model_big[] = {
	LATCH(THREE, .ticks = 2, .calls = 1, .sets = 1, .removes = 1, .count = 2),
	LOCK(THREE, .ticks = 4, .stalls = 1, .calls = 1, .give_ups = 1, .tries = 1),
	SEMAPHORE(THREE, .ticks = 3, .calls = 1, .twos = 1, .give_ups = 1, .shrinks = 1),
	LATCH(THREE, .ticks = 1, .calls = 1, .sets = 1, .count = 2, .cuts = 1, .losses = 1,
              .crashes = 1, .faults = 1),
	LOCK(THREE, .ticks = 4, .calls = 1, .give_ups = 1, .cuts = 1, .crashes = 1, .losses = 1,
             .faults = 1),
	SEMAPHORE(THREE, .ticks = 2, .calls = 1, .twos = 1, .cuts = 1, .crashes = 1, .losses = 1,
                  .faults = 1),
	LATCH(THREE, .ticks = 1, .calls = 1, .sets = 1, .count = 2, .cuts = 1, .lates = 1,
              .faults = 1),
	LOCK(THREE, .ticks = 3, .calls = 1, .cuts = 1, .lates = 1, .faults = 1),
	SEMAPHORE(THREE, .ticks = 2, .calls = 1, .twos = 1, .cuts = 1, .lates = 1, .faults = 1),
	LOCK(THREE, .ticks = 3, .calls = 1, .give_ups = 1, .refusals = 2, .put_offs = 1,
             .faults = 2),
	LATCH(THREE, .ticks = 2, .stalls = 1, .calls = 2, .sets = 1, .count = 2),
	LOCK(THREE, .ticks = 4, .stalls = 1, .calls = 1, .extends = 1, .give_ups = 1,
             .abandons = 1),
	SEMAPHORE(THREE, .ticks = 3, .stalls = 1, .calls = 1, .twos = 1, .extends = 1),
	LOCK(THREE, .ticks = 3, .stalls = 1, .calls = 2),
	LOCK(THREE, .ticks = 3, .stalls = 1, .calls = 1, .cuts = 1, .crashes = 1, .losses = 1,
             .faults = 1),
	LATCH(THREE, .ticks = 2, .stalls = 1, .calls = 1, .twos = 2, .sets = 1, .count = 3,
              .cuts = 1, .faults = 1),
	SEMAPHORE(THREE, .ticks = 2, .stalls = 1, .calls = 1, .twos = 2, .shrinks = 1, .crashes = 1,
                  .losses = 1, .faults = 1),
	RATE(THREE, .finals = 3, .ticks = 4, .stalls = 1, .calls = 1, .twos = 2, .give_ups = 1),
	RATE(THREE, .finals = 2, .ticks = 3, .stalls = 1, .calls = 1, .twos = 2, .cuts = 1,
             .losses = 1, .faults = 1),
	{.name = NULL},
};

#define FIELD(name)                                                                                \
	{                                                                                          \
#name, offsetof(struct model_bounds, name)                                         \
	}

bool model_bounds_set(struct model_bounds *bounds, const char *text)
{
	static const struct {
		const char *name;
		size_t at;
	} fields[] = {
		FIELD(clients),  FIELD(steps),      FIELD(ticks),    FIELD(stalls),
		FIELD(calls),    FIELD(tries),      FIELD(twos),     FIELD(extends),
		FIELD(shrinks),  FIELD(give_ups),   FIELD(abandons), FIELD(cuts),
		FIELD(lates),    FIELD(crashes),    FIELD(losses),   FIELD(refusals),
		FIELD(put_offs), FIELD(faults),     FIELD(sets),     FIELD(removes),
		FIELD(count),    FIELD(finals),     FIELD(flushes),  FIELD(restarts),
		FIELD(copies),   FIELD(promotions), FIELD(behind),   FIELD(strangers),
		FIELD(grace),    FIELD(replicas),   FIELD(shorts),   FIELD(second),
		FIELD(better),   FIELD(servers),    FIELD(slows),    FIELD(downs),
		FIELD(jumps),    FIELD(yields),     FIELD(delays),   FIELD(any_order),
		FIELD(held),     FIELD(fixed),      FIELD(members),  FIELD(elects),
		FIELD(halts),    FIELD(freezes),    FIELD(revokes),  FIELD(idle),
	};
	const size_t known = sizeof(fields) / sizeof(*fields);

	while (*text) {
		size_t len = strcspn(text, "="), i = 0;
		while (i < known &&
		       (strlen(fields[i].name) != len || memcmp(fields[i].name, text, len) != 0))
			i++;
		if (i == known || !text[len])
			return false;
		((uint8_t *)bounds)[fields[i].at] = (uint8_t)strtoul(text + len + 1, NULL, 10);
		text += strcspn(text, ",");
		text += *text == ',';
	}
	return bounds->clients && bounds->clients <= MODEL_CLIENTS &&
	       bounds->servers <= MODEL_SERVERS;
}

/* " 2 give-ups", if the bound is not 0. */
void model_bounds_add(char *text, size_t size, unsigned count, const char *what)
{
	size_t len = strlen(text);

	if (count)
		snprintf(text + len, size - len, ", %u %s", count, what);
}

void model_bounds_tell(const struct model_bounds *bounds, char *text, size_t size)
{
	snprintf(text, size,
	         "%s: %u clients, %u steps each, %u calls each, %u ticks of half a lease",
	         bounds->name, bounds->clients, bounds->steps, bounds->calls, bounds->ticks);
	if (bounds->servers)
		model_quorum_bounds_tell(bounds, text, size);
	if (bounds->members)
		model_etcd_bounds_tell(bounds, text, size);
	model_bounds_add(text, size, bounds->finals, "that never release");
	if (bounds->fixed && bounds->kind == LK_KIND_LOCK)
		snprintf(text + strlen(text), size - strlen(text), ", fixed leases");
	model_bounds_add(text, size, bounds->strangers, "that connect later");
	model_bounds_add(text, size, bounds->stalls, "stalls");
	if (bounds->kind == LK_KIND_LATCH)
		model_bounds_add(text, size, bounds->count, "to count down");
	model_bounds_add(text, size, bounds->sets, "sets");
	model_bounds_add(text, size, bounds->removes, "removals");
	model_bounds_add(text, size, bounds->tries, "tries");
	model_bounds_add(text, size, bounds->twos,
	                 bounds->kind == LK_KIND_LATCH ? "named steps" : "waits for two permits");
	model_bounds_add(text, size, bounds->shrinks, "partial releases");
	model_bounds_add(text, size, bounds->extends, "extensions");
	model_bounds_add(text, size, bounds->give_ups, "give-ups");
	model_bounds_add(text, size, bounds->abandons, "abandoned calls");
	model_bounds_add(text, size, bounds->faults, "faults out of");
	model_bounds_add(text, size, bounds->cuts, "cuts");
	model_bounds_add(text, size, bounds->lates, "late requests");
	model_bounds_add(text, size, bounds->crashes, "crashes");
	model_bounds_add(text, size, bounds->losses, "lost messages");
	model_bounds_add(text, size, bounds->refusals, "refusals");
	model_bounds_add(text, size, bounds->put_offs, "refusals that pass");
	model_bounds_add(text, size, bounds->flushes, "flushes");
	model_bounds_add(text, size, bounds->restarts, "restarts");
	model_bounds_add(text, size, bounds->promotions, "promotions");
	model_bounds_add(text, size, bounds->copies, "copies");
	model_bounds_add(text, size, bounds->grace, "ticks of grace");
	model_bounds_add(text, size, bounds->replicas, "replicas to confirm");
	if (bounds->replicas && !bounds->grace)
		snprintf(text + strlen(text), size - strlen(text), " and no grace");
	if (bounds->second)
		snprintf(text + strlen(text), size - strlen(text),
		         ", of two replicas %s is promoted",
		         bounds->better ? "the better one" : "any");
	model_bounds_add(text, size, bounds->shorts, "times too late");
	model_bounds_add(text, size, bounds->behind,
	                 "ticks that a promoted server's clock is behind");
}
