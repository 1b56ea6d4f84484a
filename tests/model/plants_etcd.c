/* SPDX-License-Identifier: MIT
 * The bounds of the runs over the shipped code on etcd, and wrong variants that the model finds.
 * More of them are planted bugs in tests/mutants. */
#include "plants.h"

#include <stdio.h>
#include <string.h>

#define ETCD(...)                                                                                  \
	{                                                                                          \
		.name = "etcd", .kind = LK_KIND_LOCK, .clients = 2, .steps = 255, .members = 3,    \
		__VA_ARGS__                                                                        \
	}

const struct model_bounds model_etcd_small[] = {
	ETCD(.calls = 1, .any_order = 1, .tries = 1, .give_ups = 1),
	ETCD(.calls = 1, .ticks = 1, .stalls = 1),
	ETCD(.calls = 1, .ticks = 3, .crashes = 1, .faults = 1),
	ETCD(.calls = 1, .cuts = 1, .lates = 1, .give_ups = 1, .faults = 1),
	ETCD(.calls = 1, .ticks = 1, .elects = 1, .faults = 1),
	ETCD(.calls = 1, .idle = 1, .ticks = 3, .halts = 1, .faults = 1),
	ETCD(.calls = 1, .ticks = 1, .revokes = 1, .faults = 1),
	{.name = NULL},
};

const struct model_bounds model_etcd_night[] = {
	ETCD(.calls = 2, .tries = 1, .give_ups = 1),
	ETCD(.calls = 1, .ticks = 4, .stalls = 2),
	ETCD(.calls = 1, .ticks = 3, .fixed = true, .stalls = 1),
	ETCD(.calls = 1, .ticks = 4, .halts = 1, .faults = 1),
	ETCD(.calls = 1, .ticks = 4, .freezes = 1, .faults = 1),
	ETCD(.calls = 1, .ticks = 2, .cuts = 1, .lates = 1, .faults = 1),
	ETCD(.calls = 1, .ticks = 3, .crashes = 1, .cuts = 1, .faults = 2),
	ETCD(.calls = 1, .ticks = 2, .revokes = 1, .stalls = 1, .faults = 1),
	{.name = NULL},
};

const struct model_plant model_etcd_plants[] = {
	{
		.name = "etcd-one-era",
		.what = "an ask is executed whatever the era of its connection",
		.rule = RULE_ETCD_ERA,
		.bounds = ETCD(.calls = 1, .cuts = 1, .lates = 1, .give_ups = 1, .faults = 1),
	},
	{
		.name = "etcd-leader-asks-nobody",
		.what = "a leader that was replaced revokes leases, as before etcd 3.5.13",
		.rule = RULE_ETCD_OLD,
		.bounds = ETCD(.calls = 1, .idle = 1, .ticks = 5, .freezes = 1, .faults = 1),
	},
	{.name = NULL},
};

void model_etcd_bounds_tell(const struct model_bounds *bounds, char *text, size_t size)
{
	snprintf(text, size, "%s: %u members, %u clients, %u calls each, %u ticks of half a lease",
	         bounds->name, bounds->members, bounds->clients, bounds->calls, bounds->ticks);
	model_bounds_add(text, size, bounds->idle, "idle client");
	if (!bounds->any_order)
		snprintf(text + strlen(text), size - strlen(text), ", answers at once");
	model_bounds_add(text, size, bounds->elects, "elections");
	model_bounds_add(text, size, bounds->halts, "stopped leaders");
	model_bounds_add(text, size, bounds->freezes, "frozen leaders");
	model_bounds_add(text, size, bounds->revokes, "revoked leases");
}
