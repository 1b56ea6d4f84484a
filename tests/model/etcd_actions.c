/* SPDX-License-Identifier: MIT
 * What clients of etcd, and its members, may do next in the model. */
#include "etcd.h"

#include <string.h>

/* ---- Actions ------------------------------------------------------------------------------ */

static bool has_letters(const struct etcd_client *client)
{
	return client->alive &&
	       (client->in.count || (client->end.connection && client->end.out.count));
}

static bool may_fault(const struct model_world *world, enum model_verb verb, uint8_t most)
{
	return world->used[verb] < most && world->faults < world->bounds->faults;
}

/* Time passes when all but the stalled client have done what they can. */
static bool may_pass(const struct model_world *world, int stalled)
{
	for (int i = 0; i < ETCD_CLIENTS; i++)
		if (i != stalled && has_letters(&world->etcd->clients[i]))
			return false;
	return world->ticks < world->bounds->ticks &&
	       (stalled < 0 ||
	        (world->stalls < world->bounds->stalls && world->etcd->clients[stalled].alive));
}

static bool may_of_world(const struct model_world *world, enum model_verb verb)
{
	const struct model_etcd *etcd = world->etcd;
	const struct model_bounds *bounds = world->bounds;

	switch (verb) {
	case DO_TIME:
		return may_pass(world, -1);
	case DO_ELECT:
		return may_fault(world, verb, bounds->elects) && em_leader(etcd->model) >= 0;
	case DO_HALT:
		return may_fault(world, verb, bounds->halts) && em_leader(etcd->model) >= 0;
	case DO_FREEZE:
		return may_fault(world, verb, bounds->freezes) && em_leader(etcd->model) >= 0;
	case DO_GO_ON:
		return etcd->hurt;
	default:
		return false;
	}
}

static bool may(const struct model_world *world, enum model_verb verb, int index)
{
	const struct etcd_client *client = &world->etcd->clients[index];
	const struct model_bounds *bounds = world->bounds;

	if (!client->alive)
		return verb == DO_LATE && client->past.out.count;
	switch (verb) {
	case DO_ACQUIRE:
		return index >= bounds->idle && client->begun < bounds->calls && !client->waiter &&
		       !etcd_hold(client);
	case DO_TRY:
		return index >= bounds->idle && client->begun < bounds->calls && !client->waiter &&
		       !etcd_hold(client) && world->used[verb] < bounds->tries;
	case DO_RELEASE:
		return !client->waiter && etcd_hold(client);
	case DO_GIVE_UP:
		return client->waiter && !client->gave_up && client->verb == DO_ACQUIRE &&
		       world->used[verb] < bounds->give_ups;
	case DO_EXECUTE:
		return client->end.connection && client->end.out.count;
	case DO_ANSWER:
		return client->in.count;
	case DO_LATE:
		return client->past.out.count;
	case DO_LINK:
		return !client->end.connection;
	case DO_STALL:
		return may_pass(world, index);
	case DO_CUT:
		return client->end.connection && may_fault(world, verb, bounds->cuts);
	case DO_CRASH:
		return may_fault(world, verb, bounds->crashes);
	case DO_REVOKE:
		return may_fault(world, verb, bounds->revokes) && client->core.all_tickets;
	default:
		return false;
	}
}

static bool is_of_world(enum model_verb verb)
{
	return verb == DO_TIME || verb == DO_ELECT || verb == DO_HALT || verb == DO_FREEZE ||
	       verb == DO_GO_ON;
}

/* A client dials the leader, or the member after it. */
static bool may_dial(const struct model_world *world, int member)
{
	int leader = em_leader(world->etcd->model);

	return leader >= 0 &&
	       (member == leader || member == (leader + 1) % world->bounds->members) &&
	       world->etcd->hurt != member + 1;
}

/* The first client with an answer to read, -1 = none.  Unless the bounds have any order, it reads
 * it now, is stalled, or loses it by a fault. */
static int reader(const struct model_world *world)
{
	for (int i = 0; !world->bounds->any_order && i < ETCD_CLIENTS; i++)
		if (may(world, DO_ANSWER, i))
			return i;
	return -1;
}

static bool may_now(const struct model_world *world, enum model_verb verb, int index)
{
	int reads = reader(world);

	if (is_of_world(verb))
		return reads < 0 && !index && may_of_world(world, verb);
	if (reads >= 0 && (index != reads || (verb != DO_ANSWER && verb != DO_STALL &&
	                                      verb != DO_CUT && verb != DO_CRASH)))
		return false;
	return may(world, verb, index);
}

int etcd_actions(const struct model_world *world, uint16_t actions[MODEL_ACTIONS])
{
	int count = 0;

	for (int verb = 0; verb < MODEL_VERBS; verb++) {
		for (int i = 0; i < ETCD_CLIENTS; i++) {
			bool possible = may_now(world, verb, i);
			for (int member = 0; possible && member < world->bounds->members; member++)
				if (verb == DO_LINK ? may_dial(world, member) : !member)
					actions[count++] = (uint16_t)((verb * MODEL_CLIENTS + i) *
					                                      MODEL_SERVERS +
					                              member);
		}
	}
	return count;
}

/* ---- What they do ------------------------------------------------------------------------- */

static void revoke(struct model_etcd *etcd, const struct etcd_client *client)
{
	const struct lk__etcd_own_ticket *ticket =
		lk__etcd_find(&client->session, client->core.all_tickets->nonce);

	if (!ticket || !ticket->lease)
		return;
	for (const struct lk__ticket *own = client->core.all_tickets; own; own = own->next)
		memcpy(etcd->broken[etcd->broken_count++ % ETCD_BROKEN], own->nonce,
		       LK__NONCE_SIZE);
	em_revoke(etcd->model, ticket->lease->id);
	em_tick(etcd->model, etcd->world->now_ns);
	etcd_pump(etcd);
}

bool etcd_is_broken(const struct model_etcd *etcd, const struct lk__hold *hold)
{
	for (int i = 0; i < ETCD_BROKEN && i < etcd->broken_count; i++)
		if (hold->ticket && !strcmp(hold->ticket->nonce, etcd->broken[i]))
			return true;
	return false;
}

static void hurt(struct model_etcd *etcd, enum model_verb verb)
{
	int leader = em_leader(etcd->model);

	if (verb == DO_ELECT) {
		em_elect(etcd->model, (leader + 1) % etcd->world->bounds->members);
	} else {
		etcd->hurt = (uint8_t)(leader + 1);
		if (verb == DO_HALT)
			em_stop(etcd->model, leader, true);
		else
			em_freeze(etcd->model, leader, true);
	}
	etcd_pump(etcd);
}

static void go_on(struct model_etcd *etcd)
{
	int member = etcd->hurt - 1;

	if (member < 0)
		return;
	etcd->hurt = 0;
	em_stop(etcd->model, member, false);
	em_freeze(etcd->model, member, false);
	etcd_pump(etcd);
}

static void do_of_world(struct model_etcd *etcd, enum model_verb verb)
{
	if (verb == DO_GO_ON) {
		go_on(etcd);
		return;
	}
	if (verb != DO_TIME) {
		hurt(etcd, verb);
		return;
	}
	etcd->world->ticks++;
	etcd_pass(etcd, MODEL_TICK_MS * ETCD_MS);
	for (int i = 0; i < ETCD_CLIENTS; i++)
		etcd_turn(etcd, &etcd->clients[i]);
}

static void stall(struct model_etcd *etcd, int index)
{
	etcd->world->ticks++;
	etcd->world->stalls++;
	etcd_pass(etcd, MODEL_TICK_MS * ETCD_MS);
	for (int i = 0; i < ETCD_CLIENTS; i++)
		if (i != index)
			etcd_turn(etcd, &etcd->clients[i]);
}

static void crash(struct model_etcd *etcd, struct etcd_client *client)
{
	bool keeps = client->end.out.count && etcd->world->bounds->lates;

	if (client->waiter)
		lk__core_abandon(&client->core, etcd->world->now_ns, client->waiter);
	etcd_take_out(etcd, client);
	etcd_went_down(etcd, client, keeps);
	client->alive = false;
	lk__core_fini(&client->core);
	lk__etcd_session_fini(&client->session);
}

static void do_of_client(struct model_etcd *etcd, enum model_verb verb, int index, int member)
{
	struct etcd_client *client = &etcd->clients[index];
	int64_t now_ns = etcd->world->now_ns;

	switch (verb) {
	case DO_GIVE_UP:
		client->gave_up = true;
		lk__core_give_up(&client->core, now_ns, client->waiter, LK_ETIMEDOUT);
		break;
	case DO_EXECUTE:
		etcd_arrive(etcd, &client->end);
		return;
	case DO_LATE:
		etcd_arrive(etcd, &client->past);
		return;
	case DO_ANSWER:
		etcd_read_letter(etcd, client);
		break;
	case DO_LINK:
		etcd_link_up(etcd, client, member);
		break;
	case DO_CUT:
		etcd_went_down(etcd, client, etcd->world->bounds->lates);
		break;
	case DO_CRASH:
		crash(etcd, client);
		return;
	case DO_REVOKE:
		revoke(etcd, client);
		return;
	case DO_STALL:
		stall(etcd, index);
		return;
	default:
		etcd_call_of(etcd, index, verb);
	}
	etcd_turn(etcd, client);
}

void etcd_do(struct model_world *world, enum model_verb verb, int client, int member)
{
	bool is_fault = verb == DO_CUT || verb == DO_CRASH || verb == DO_REVOKE ||
	                verb == DO_ELECT || verb == DO_HALT || verb == DO_FREEZE;

	world->used[verb] += is_fault || verb == DO_TRY || verb == DO_GIVE_UP;
	world->faults += is_fault;
	if (is_of_world(verb))
		do_of_world(world->etcd, verb);
	else
		do_of_client(world->etcd, verb, client, member);
}

void etcd_mend(struct model_etcd *etcd)
{
	go_on(etcd);
	for (int i = 0; i < ETCD_CLIENTS; i++)
		etcd_drop_end(etcd, &etcd->clients[i].past);
	for (int i = 0; i < 20 && em_leader(etcd->model) < 0; i++)
		etcd_pass(etcd, 500 * ETCD_MS);
	for (int i = 0; i < ETCD_CLIENTS; i++) {
		struct etcd_client *client = &etcd->clients[i];
		if (client->alive && !client->end.connection)
			etcd_link_up(etcd, client, em_leader(etcd->model));
	}
	etcd_deliver(etcd);
}
