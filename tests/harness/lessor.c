/* SPDX-License-Identifier: MIT
 * The steps of the world in lessor.h. */
#include "lessor.h"

#include <stdio.h>
#include <string.h>

#define TICK_NS INT64_C(1000000000)
#define PAUSE_NS TICK_NS

void el_begin(struct el_world *world, int member)
{
	memset(world, 0, sizeof(*world));
	for (int i = 0; i < EL_MEMBERS; i++)
		world->members[i] = (struct el_member){.term = 1};
	world->members[0].is_primary = true;
	world->members[0].left = EL_TTL;
	world->term = 1;
	world->has_begun = true;
	world->member = (uint8_t)member;
	lk__lease_granted(&world->lease, EL_NOW, EL_TTL, 1);
}

/* In touch with other members that are. */
static bool is_well(const struct el_world *world, int i)
{
	return !world->members[i].is_frozen && !world->members[i].is_cut;
}

static bool takes_itself_for_leader(const struct el_world *world, int i)
{
	return world->members[i].leader == i;
}

/* A majority confirms that this member leads: itself and the two that have elected it. */
static bool leads(const struct el_world *world, int i)
{
	return world->leader == i && world->members[i].term == world->term &&
	       takes_itself_for_leader(world, i) && is_well(world, i);
}

/* ---- members ---- */

static bool elect(struct el_world *world, int i)
{
	struct el_member *leader = &world->members[i];

	if (!world->elections || !is_well(world, i) || leads(world, i))
		return false;
	world->elections--;
	world->term++;
	world->leader = (uint8_t)i;
	world->has_begun = false;
	leader->term = world->term;
	leader->leader = (int8_t)i;
	leader->is_primary = true;
	leader->left = EL_TTL + EL_ELECTION;
	return true;
}

static bool learn(struct el_world *world, int i)
{
	struct el_member *member = &world->members[i];

	if (i == world->leader || !is_well(world, i) || !leads(world, world->leader) ||
	    (member->term == world->term && member->leader == world->leader))
		return false;
	member->term = world->term;
	member->leader = (int8_t)world->leader;
	member->is_primary = false;
	return true;
}

static bool commit(struct el_world *world, int i)
{
	if (world->has_begun || !leads(world, i))
		return false;
	return world->has_begun = true;
}

/* A leader answers, or finds the lease expired, without asking a majority whether it leads. */
static bool may_act(const struct el_world *world, const struct el_rules *rules, int i)
{
	if (!rules->asks_majority || (rules->if_it_stood && !world->members[i].is_frozen))
		return true;
	return leads(world, i) && world->has_begun;
}

static bool expire(struct el_world *world, const struct el_rules *rules, int i)
{
	struct el_member *member = &world->members[i];

	if (!member->is_primary || member->left || member->revokes || !may_act(world, rules, i))
		return false;
	return member->revokes = true;
}

static bool propose(struct el_world *world, int i)
{
	struct el_member *member = &world->members[i];

	if (!member->revokes || !is_well(world, i) || !leads(world, world->leader) ||
	    member->leader != world->leader || member->term != world->term)
		return false;
	member->revokes = false;
	world->is_gone = world->has_begun = true;
	return true;
}

static bool freeze(struct el_world *world, int i)
{
	struct el_member *member = &world->members[i];

	if (member->is_frozen)
		member->is_frozen = false;
	else if (world->freezes && world->freezes--)
		member->is_frozen = true;
	else
		return false;
	return true;
}

static bool cut(struct el_world *world, int i)
{
	if (!world->cuts)
		return false;
	world->cuts--;
	world->members[i].is_cut = 2 * EL_ELECTION + 1;
	return true;
}

static bool step_down(struct el_world *world, int i)
{
	struct el_member *member = &world->members[i];

	if (!(member->is_cut || member->term < world->term) || member->is_frozen ||
	    !takes_itself_for_leader(world, i))
		return false;
	member->leader = -1;
	member->is_primary = false;
	return true;
}

/* ---- the client and its member ---- */

static bool send(struct el_world *world)
{
	enum lk__lease_step step;

	if (world->request != EL_NONE)
		return false;
	step = lk__lease_next(&world->lease, EL_NOW);
	if (step == LK__LEASE_REST)
		return false;
	world->request = step == LK__LEASE_READ ? EL_READ : EL_KEEP_ALIVE;
	return true;
}

/* The member takes the keep-alive up. */
static bool arrive(struct el_world *world, const struct el_rules *rules)
{
	int i = world->member;
	const struct el_member *member = &world->members[i];

	if (world->request != EL_KEEP_ALIVE || member->leader < 0)
		return false;
	if (!takes_itself_for_leader(world, i)) {
		world->request = EL_FORWARDED;
		world->at = (uint8_t)member->leader;
	} else {
		if (!may_act(world, rules, i))
			return false;
		world->request = EL_CHECKED;
		world->at = (uint8_t)i;
	}
	return true;
}

static bool renew(struct el_world *world)
{
	struct el_member *member = &world->members[world->at];

	if (world->request != EL_CHECKED && world->request != EL_FORWARDED)
		return false;
	if (!member->is_primary) {
		world->request = EL_REFUSED;
	} else if (world->is_gone && world->at == world->leader) {
		world->request = EL_UNKNOWN;
	} else if (member->left) {
		member->left = EL_TTL;
		world->request = EL_RENEWED;
	} else {
		return false; /* waits until it is revoked */
	}
	return true;
}

static bool read_now(struct el_world *world)
{
	const struct el_member *member = &world->members[world->member];

	if (world->request != EL_READ || !is_well(world, world->member) ||
	    member->term != world->term || member->leader != world->leader ||
	    !leads(world, world->leader) || !world->has_begun)
		return false;
	world->request = EL_WAS_READ;
	world->read_term = world->term;
	return true;
}

static bool deliver(struct el_world *world)
{
	int64_t since_ns = world->lease.since_ns;

	switch (world->request) {
	case EL_RENEWED:
		lk__lease_renewed(&world->lease, EL_NOW, EL_TTL);
		break;
	case EL_UNKNOWN:
		lk__lease_renewed(&world->lease, EL_NOW, 0);
		break;
	case EL_REFUSED:
		lk__lease_failed(&world->lease, EL_NOW, PAUSE_NS);
		break;
	case EL_WAS_READ:
		lk__lease_confirmed(&world->lease, EL_NOW, world->read_term);
		if (world->lease.since_ns > since_ns && world->read_term > 1)
			world->was_renewed = true;
		break;
	default:
		return false;
	}
	world->request = EL_NONE;
	world->read_term = world->at = 0;
	return true;
}

/* The connection ends, and another is opened. */
static bool move(struct el_world *world, int i)
{
	if (!world->moves)
		return false;
	world->moves--;
	world->member = (uint8_t)i;
	world->request = EL_NONE;
	world->read_term = world->at = 0;
	lk__lease_moved(&world->lease, EL_NOW);
	return true;
}

/* ---- time ---- */

static void age(int64_t *at_ns)
{
	int64_t oldest = EL_NOW - (EL_TTL + 1) * TICK_NS;

	if (*at_ns)
		*at_ns = *at_ns - TICK_NS < oldest ? oldest : *at_ns - TICK_NS;
}

/* Members that are in touch with each other learn within a second who leads. */
static bool all_know(const struct el_world *world)
{
	for (int i = 0; i < EL_MEMBERS; i++) {
		const struct el_member *member = &world->members[i];

		if (is_well(world, i) && leads(world, world->leader) &&
		    (member->term != world->term || member->leader != world->leader))
			return false;
		if (is_well(world, i) && takes_itself_for_leader(world, i) &&
		    member->term < world->term)
			return false;
	}
	return true;
}

static bool tick(struct el_world *world, const struct el_rules *rules)
{
	struct lk__lease *lease = &world->lease;

	if (!lk__lease_is_valid(lease, EL_NOW) && world->request == EL_NONE)
		return false; /* the client has done with the lease */
	if (rules->if_it_stood && !all_know(world))
		return false;
	for (int i = 0; i < EL_MEMBERS; i++)
		if (world->members[i].is_cut == 1 && takes_itself_for_leader(world, i) &&
		    !world->members[i].is_frozen)
			return false; /* it must have stepped down */
	for (int i = 0; i < EL_MEMBERS; i++) {
		struct el_member *member = &world->members[i];

		if (member->left)
			member->left--;
		if (member->is_cut > 1)
			member->is_cut--;
	}
	age(&lease->since_ns);
	age(&lease->sent_ns);
	age(&lease->keep_alive_ns);
	age(&lease->due_ns);
	if (lease->due_ns < EL_NOW)
		lease->due_ns = EL_NOW;
	return true;
}

/* ---- all steps ---- */

static const char *const kinds[] = {
	"learn",   "commit",    "expire",          "propose", "freeze or thaw",
	"cut off", "step down", "client moves to", "elect",
};

static const char *const single[] = {
	"a second",      "client sends", "member takes it up",
	"lessor renews", "member reads", "client gets the answer",
};

enum { KINDS = sizeof(kinds) / sizeof(*kinds), SINGLE = sizeof(single) / sizeof(*single) };

const char *el_step_name(int step)
{
	static char text[48];

	if (step < SINGLE)
		return single[step];
	step -= SINGLE;
	snprintf(text, sizeof(text), "%s: %d", kinds[step / EL_MEMBERS % KINDS], step % EL_MEMBERS);
	return text;
}

bool el_step(struct el_world *world, const struct el_rules *rules, int step)
{
	int i = (step - SINGLE) % EL_MEMBERS;

	_Static_assert(SINGLE + KINDS * EL_MEMBERS == EL_STEPS, "");
	switch (step) {
	case 0:
		return tick(world, rules);
	case 1:
		return send(world);
	case 2:
		return arrive(world, rules);
	case 3:
		return renew(world);
	case 4:
		return read_now(world);
	case 5:
		return deliver(world);
	default:
		break;
	}
	switch ((step - SINGLE) / EL_MEMBERS) {
	case 0:
		return learn(world, i);
	case 1:
		return commit(world, i);
	case 2:
		return expire(world, rules, i);
	case 3:
		return propose(world, i);
	case 4:
		return freeze(world, i);
	case 5:
		return cut(world, i);
	case 6:
		return step_down(world, i);
	case 7:
		return move(world, i);
	default:
		return elect(world, i);
	}
}

bool el_is_broken(const struct el_world *world)
{
	return world->is_gone && lk__lease_is_valid(&world->lease, EL_NOW);
}
