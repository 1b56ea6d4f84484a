/* SPDX-License-Identifier: MIT
 * The model with etcd can fail: wrong variants are found.  Without them nothing is.
 *
 * LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=lk__core_random
 */
#include "model_check.h"

#include <string.h>

#define SECONDS 300 /* on a heavily loaded machine; otherwise a few */
#define ETCD .name = "etcd", .kind = LK_KIND_LOCK, .clients = 2, .steps = 255, .members = 3

TEST_LIMIT(an_ask_of_a_past_era_is_found, SECONDS)
{
	finds("etcd-one-era", PROMISE_REST, "a ticket is left in the store");
}

TEST_LIMIT(a_leader_that_does_not_know_its_end_is_found, SECONDS)
{
	finds("etcd-leader-asks-nobody", PROMISE_VALIDITY, "is not in the store");
}

TEST_LIMIT(what_ships_is_clean_without_faults, SECONDS)
{
	static const struct model_bounds runs[] = {
		{ETCD, .calls = 1, .any_order = 1, .tries = 1, .give_ups = 1},
		{ETCD, .calls = 1, .ticks = 1, .stalls = 1},
	};

	for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++)
		is_clean(&runs[i]);
}

TEST_LIMIT(what_ships_is_clean_with_a_fault, SECONDS)
{
	static const struct model_bounds runs[] = {
		{ETCD, .calls = 1, .cuts = 1, .lates = 1, .faults = 1},
		{ETCD, .calls = 1, .ticks = 2, .crashes = 1, .faults = 1},
		{ETCD, .calls = 1, .ticks = 1, .revokes = 1, .faults = 1},
	};

	for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++)
		is_clean(&runs[i]);
}
