/* SPDX-License-Identifier: MIT
 * Every state of the world in harness/lessor.h, in small bounds: a client of etcd never
 * believes in a lease that is gone.  Breadth first, so what is found has the shortest way to it. */
#include "harness/lessor.h"
#include "harness/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START UINT32_MAX

static const struct el_rules older = {.asks_majority = false}; /* than 3.4.31, 3.5.13 */
static const struct el_rules asking = {.asks_majority = true};
static const struct el_rules newer = {.asks_majority = true, .if_it_stood = true};

static struct {
	struct el_world *worlds;
	uint32_t *before; /* the state that each was reached from */
	uint8_t *steps;   /* and the step */
	uint32_t *table;  /* indices + 1 by hash */
	size_t count, room, mask;
} found;

static uint64_t hash(const struct el_world *world)
{
	uint64_t words[sizeof(*world) / sizeof(uint64_t)], sum = 1;

	memcpy(words, world, sizeof(words));
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		sum = (sum ^ words[i]) * UINT64_C(0x9E3779B97F4A7C15);
		sum ^= sum >> 29;
	}
	return sum;
}

/* True if the state is new. */
static bool add(const struct el_world *world, uint32_t before, int step)
{
	size_t i = hash(world) & found.mask;

	for (; found.table[i]; i = (i + 1) & found.mask)
		if (memcmp(&found.worlds[found.table[i] - 1], world, sizeof(*world)) == 0)
			return false;
	ck_assert_msg(found.count < found.room, "more states than there is room for");
	found.worlds[found.count] = *world;
	found.before[found.count] = before;
	found.steps[found.count] = (uint8_t)step;
	found.table[i] = (uint32_t)++found.count;
	return true;
}

static void print_way(uint32_t state)
{
	if (found.before[state] == START) {
		printf("a client of member %d:\n", found.worlds[state].member);
		return;
	}
	print_way(found.before[state]);
	printf("  %s\n", el_step_name(found.steps[state]));
}

static void make_room(size_t room)
{
	found.room = room;
	found.mask = 2 * room - 1;
	found.worlds = malloc(room * sizeof(*found.worlds));
	found.before = malloc(room * sizeof(*found.before));
	found.steps = malloc(room);
	found.table = calloc(2 * room, sizeof(*found.table));
	ck_assert(found.worlds && found.before && found.steps && found.table);
}

/* Explore until all is seen, or a client is wrong.  Returns if one was. */
static bool explore(const struct el_rules *rules, struct el_world bounds, bool *was_renewed)
{
	make_room(1 << 21);
	*was_renewed = false;
	for (int i = 0; i < EL_MEMBERS; i++) {
		struct el_world world;

		el_begin(&world, i);
		world.elections = bounds.elections;
		world.freezes = bounds.freezes;
		world.cuts = bounds.cuts;
		world.moves = bounds.moves;
		add(&world, START, 0);
	}
	for (size_t i = 0; i < found.count; i++) {
		for (int step = 0; step < EL_STEPS; step++) {
			struct el_world world = found.worlds[i];

			if (!el_step(&world, rules, step) || !add(&world, (uint32_t)i, step))
				continue;
			*was_renewed |= world.was_renewed;
			if (el_is_broken(&world))
				return true;
		}
	}
	return false;
}

static void is_sound(const struct el_rules *rules, struct el_world bounds)
{
	bool was_renewed;

	if (explore(rules, bounds, &was_renewed)) {
		print_way((uint32_t)found.count - 1);
		ck_abort_msg("a client believes in a lease that is gone");
	}
	ck_assert_msg(was_renewed, "no lease was renewed in a later term");
	printf("%zu states\n", found.count);
}

TEST_LIMIT(lease_is_valid_beside_a_leader_whose_disk_stands_still, 120)
{
	is_sound(&asking, (struct el_world){.elections = 1, .freezes = 1});
}

TEST_LIMIT(lease_is_valid_after_a_change_of_member, 120)
{
	is_sound(&asking, (struct el_world){.elections = 1, .moves = 1});
}

TEST_LIMIT(lease_is_valid_beside_a_leader_without_its_peers, 120)
{
	is_sound(&asking, (struct el_world){.elections = 1, .cuts = 1});
}

TEST_LIMIT(lease_is_valid_over_two_elections, 120)
{
	is_sound(&asking, (struct el_world){.elections = 2});
}

TEST_LIMIT(lease_is_valid_on_newer_etcd_without_a_frozen_leader, 120)
{
	is_sound(&newer, (struct el_world){.elections = 1, .moves = 1});
}

TEST_LIMIT(lease_is_valid_on_newer_etcd_beside_a_leader_without_its_peers, 120)
{
	is_sound(&newer, (struct el_world){.elections = 1, .cuts = 1});
}

/* It asks only while its loop stands still.  When it goes on, it may revoke before it learns that
 * it was replaced: against that, only the fence helps. */
TEST_LIMIT(newer_etcd_ends_a_renewed_lease_when_a_frozen_leader_goes_on, 120)
{
	bool was_renewed;

	ck_assert(explore(&newer, (struct el_world){.elections = 1, .freezes = 1}, &was_renewed));
}

/* Why versions before 3.4.31 and 3.5.13 are not to be used for locks. */
TEST_LIMIT(older_etcd_ends_a_lease_that_was_renewed, 120)
{
	bool was_renewed;

	ck_assert(explore(&older, (struct el_world){.elections = 1, .freezes = 1}, &was_renewed));
}
