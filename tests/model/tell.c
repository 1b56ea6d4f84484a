/* SPDX-License-Identifier: MIT
 * Actions and states of the model as text. */
#include "etcd.h"

#include <stdio.h>
#include <string.h>

#define MS INT64_C(1000000)

static const char *const kinds[] = {
	[LK__ASK] = "ask",
	[LK__LEAVE] = "leave",
	[LK__HAND] = "hand",
	[LK__YIELD] = "yield",
	[LK__RENEW] = "renew",
	[LK__SHRINK] = "shrink",
	[LK__LOOK] = "look",
	[LK__STEP] = "step",
	[LK__RECLAIM] = "reclaim",
	[LK__EPOCH] = "question for the marker",
	[LK__CONFIRM] = "question for the replica",
};

static const char *const answers[] = {
	[LK__GRANTED] = "granted",   [LK__QUEUED] = "queued",
	[LK__BUSY] = "busy",         [LK__KEPT] = "held",
	[LK__GONE] = "gone",         [LK__LEFT] = "left",
	[LK__YOUNG] = "young",       [LK__SHOWN] = "shown",
	[LK__STEPPED] = "stepped",   [LK__OTHER] = "other",
	[LK__FAILED] = "failed",     [LK__STALE] = "epoch",
	[LK__MEMORY] = "the marker", [LK__CONFIRMED] = "how many replicas",
};

static const char *const messages[] = {
	[LK__GRANT] = "grant",   [LK__WANTED] = "wanted", [LK__REASK] = "again",
	[LK__BROKEN] = "broken", [LK__OPENED] = "open",   [LK__REMOVED] = "gone",
};

static const char *item_name(const struct model_item *item)
{
	if (item->kind == ITEM_SUBSCRIBED)
		return "subscribed";
	if (item->kind == ITEM_UNSUBSCRIBED)
		return "unsubscribed";
	return messages[item->message.kind];
}

static const char *const verbs[MODEL_VERBS] = {
	[DO_ACQUIRE] = "acquires",
	[DO_ACQUIRE_TWO] = "acquires two permits",
	[DO_TRY] = "tries",
	[DO_RELEASE] = "releases",
	[DO_RELEASE_ONE] = "releases one permit",
	[DO_EXTEND] = "extends its hold",
	[DO_AWAIT] = "awaits the latch",
	[DO_AWAIT_TRY] = "checks whether the latch is open",
	[DO_STEP] = "counts down",
	[DO_STEP_NAMED] = "counts down under a name",
	[DO_SET] = "sets the latch",
	[DO_REMOVE] = "removes the latch",
	[DO_GIVE_UP] = "waits no longer",
	[DO_ABANDON] = "does not wait for the reply",
	[DO_EXECUTE] = "the store runs its",
	[DO_SUBSCRIBE] = "the store executes its subscription",
	[DO_ANSWER] = "reads the answer:",
	[DO_HEAR] = "hears:",
	[DO_TIMER] = "sees its timer",
	[DO_STALL] = "stands still",
	[DO_SLOW] = "has a slow link",
	[DO_LATE_ANSWER] = "gets late the answer:",
	[DO_LATE_MESSAGE] = "gets late:",
	[DO_DOWN] = "- the server goes down",
	[DO_JUMP] = "- the server's clock is set forward",
	[DO_TIME] = "time goes by",
	[DO_CUT] = "loses its connections",
	[DO_LINK] = "is connected again",
	[DO_LATE] = "the store runs, of a lost connection, its",
	[DO_CRASH] = "dies",
	[DO_CRASH_UNSEEN] = "dies, and the store still counts it as a receiver",
	[DO_LOSE] = "a message to it is lost:",
	[DO_REFUSE] = "the store refuses its",
	[DO_PUT_OFF] = "the store puts off its",
	[DO_SHORT] = "no replica confirms in time its",
	[DO_FIRST] = "only the first replica confirms in time its",
	[DO_SECOND] = "only the second replica confirms in time its",
	[DO_COPY] = "- the store saves a copy",
	[DO_COPY_OTHER] = "- the store saves a copy for the second replica",
	[DO_FLUSH] = "- the store is emptied",
	[DO_RESTART] = "- the store begins anew, empty",
	[DO_RESTORE] = "- the store begins anew, from the copy",
	[DO_PROMOTE] = "- a replica takes the store's place, with the copy if there is one",
	[DO_PROMOTE_OTHER] = "- the second replica takes the store's place, with its copy",
	[DO_ELECT] = "- another member is elected",
	[DO_HALT] = "- the leader is stopped",
	[DO_FREEZE] = "- the leader's disk stands still",
	[DO_GO_ON] = "- that member goes on",
	[DO_REVOKE] = "loses its lease, which is revoked by hand",
};

void world_tell(const struct model_world *world, uint16_t action, char *text, size_t size)
{
	struct model_link *link = world_link_of(world, action);
	enum model_verb verb = world_verb_of(action);
	const char *what = "";

	if (world->etcd) {
		snprintf(text, size, "%c %s%s", 'A' + action / MODEL_SERVERS % MODEL_CLIENTS,
		         verbs[verb], verb == DO_EXECUTE || verb == DO_LATE ? " call" : "");
		return;
	}
	if (verb == DO_EXECUTE || (verb >= DO_REFUSE && verb <= DO_SECOND))
		what = kinds[world_next_call(link)->kind];
	else if (verb == DO_LATE)
		what = kinds[link->late[0].kind];
	else if (verb == DO_ANSWER || verb == DO_LATE_ANSWER)
		what = answers[link->calls[0].answer.kind];
	else if (verb == DO_HEAR || verb == DO_LOSE || verb == DO_LATE_MESSAGE)
		what = item_name(&link->inbox[0]);
	if (verb == DO_TIME) {
		snprintf(text, size, "- %d s go by", MODEL_TICK_MS / 1000);
		return;
	}
	snprintf(text, size, "%c %s%s%s", 'A' + world_index(world, link->client), verbs[verb],
	         *what ? " " : "", what);
	if (world->bounds->servers && world_is_of_server(verb))
		snprintf(text + strlen(text), size - strlen(text), " (server %d)",
		         1 + world_server(world, link->server));
}

/* ---- A state ------------------------------------------------------------------------------ */

static void print_store(const struct model_world *world, const struct model_server *server)
{
	const struct store_view *view = world_view(server);

	if (world->bounds->kind == LK_KIND_LATCH) {
		printf("store: count %lld;", (long long)(view->there ? view->count : -1));
		return;
	}
	printf("store: held by");
	for (int i = 0; i < view->hold_count; i++)
		printf(" %c", world_owner(&view->holds[i]) + 'A');
	printf(", queue");
	for (int i = 0; i < view->queued; i++)
		printf(" %c", world_owner(&view->queue[i]) + 'A');
	printf(";");
}

void world_print(const struct model_world *world)
{
	if (world->etcd) {
		etcd_print(world);
		return;
	}
	printf("           ");
	for (int i = 0; i < world->server_count; i++)
		print_store(world, &world->servers[i]);
	for (int i = 0; i < world->bounds->clients; i++) {
		const struct model_client *client = &world->clients[i];
		const struct lk__hold *hold = world_hold(client);
		if (hold)
			printf(" %c: fence ..%llu, %lld ms left;", 'A' + i,
			       (unsigned long long)(hold->fence % 10000000000),
			       (long long)(lk__hold_left_ns(hold, world->now_ns) / MS));
	}
	printf("\n");
}
