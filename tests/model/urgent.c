/* SPDX-License-Identifier: MIT
 * The order of events in a quorum.  Requests reach the servers in any order, since each server has
 * a link of its own.  But a reply, a message or a timer comes at once, before any other event,
 * unless it is late: that is a fault, and one may be late for any length of time.  With any_order
 * in the bounds everything comes in any order; the walks use that. */
#include "world.h"

static bool is_early(const struct model_link *link)
{
	return link->client->alive && !link->client->stalled && !link->stalled;
}

static bool has_reply(const struct model_link *link)
{
	return is_early(link) && link->call_count && link->calls[0].executed &&
	       !link->is_answer_late;
}

/* For the marker: a script that grants nothing. */
static bool has_question(struct model_link *link)
{
	const struct model_call *call = world_next_call(link);

	return is_early(link) && call && call->kind == LK__EPOCH;
}

static bool has_message(const struct model_link *link)
{
	return is_early(link) && link->inbox_count && !link->is_message_late;
}

/* Those of these that are possible, with that link. */
static int choose(const struct model_world *world, struct model_link *link,
                  const enum model_verb *verbs, int count, uint16_t *actions)
{
	int found = 0;

	for (int i = 0; i < count; i++) {
		struct model_link *of =
			world_is_of_server(verbs[i]) ? link : &link->client->links[0];
		if (world_may(world, of, verbs[i]))
			actions[found++] = world_action(world, of, verbs[i]);
	}
	return found;
}

int world_urgent(const struct model_world *world, uint16_t *actions)
{
	static const enum model_verb again[] = {DO_LINK}, question[] = {DO_EXECUTE};
	static const enum model_verb timer[] = {DO_TIMER, DO_STALL, DO_CRASH, DO_CRASH_UNSEEN};
	static const enum model_verb reply[] = {DO_ANSWER, DO_LATE_ANSWER, DO_CUT,
	                                        DO_STALL,  DO_CRASH,       DO_CRASH_UNSEEN};
	static const enum model_verb message[] = {DO_HEAR,  DO_LATE_MESSAGE, DO_LOSE,        DO_CUT,
	                                          DO_STALL, DO_CRASH,        DO_CRASH_UNSEEN};

	for (int i = 0; i < world->bounds->clients; i++) {
		const struct model_client *client = &world->clients[i];
		if (world_may(world, &client->links[0], DO_TIMER))
			return choose(world, &client->links[0], timer, 4, actions);
		for (int j = 0; j < world->server_count; j++) {
			if (is_early(&client->links[j]) && client->links[j].returns)
				return choose(world, &client->links[j], again, 1, actions);
			if (has_question(&client->links[j]))
				return choose(world, &client->links[j], question, 1, actions);
			if (has_reply(&client->links[j]))
				return choose(world, &client->links[j], reply, 6, actions);
			if (has_message(&client->links[j]))
				return choose(world, &client->links[j], message, 7, actions);
		}
	}
	return 0;
}
