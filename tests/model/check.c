/* SPDX-License-Identifier: MIT
 * The promises in every state of the model, after each script, and at the end of all calls. */
#include "etcd.h"

#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
/* The time to serve every waiter when there are no more faults: a lease, two asks of a waiter, a
 * dead head that counts as a receiver; with a second to spare. */
#define SERVED_MS (MODEL_EXTENSION_MS + 2 * LK__REASK_MAX_MS + LK__HEAD_PATIENCE_MS + 1000)
#define FORGOTTEN_MS 100000 /* all its keys have expired by then */
#define SETTLE_MAX 2000     /* events at the same moment */

/* ---- Around a script ---------------------------------------------------------------------- */

/* Of each server, the last one and the one before. */
static struct view {
	struct store_view looks[2];
	int last;
	bool is_known;
} views[MODEL_SERVERS];

void world_view_forget(void)
{
	for (int i = 0; i < MODEL_SERVERS; i++)
		views[i].is_known = false;
}

const struct store_view *world_view(const struct model_server *server)
{
	const struct store_keys keys = {server->world->bounds->kind, MODEL_KEY, MODEL_KEY ":q",
	                                MODEL_KEY ":h"};
	struct view *view = &views[world_server(server->world, server)];

	if (view->is_known)
		return &view->looks[view->last];
	view->is_known = true;
	view->last = !view->last;
	store_look(server->store, &keys, &view->looks[view->last]);
	return &view->looks[view->last];
}

/* Its client lives and would have received a grant, and this script did not have the task to
 * dequeue it. */
static bool must_wait(const struct model_world *world, const struct store_ticket *ticket,
                      const struct model_call *call)
{
	const struct model_client *client = &world->clients[world_owner(ticket)];
	bool leaves = call->kind == LK__LEAVE && !strcmp(ticket->nonce, call->nonce);

	return client->alive && client->links[0].heard && !leaves && call->kind != LK__RECLAIM;
}

static const char *order_wrong(const struct model_world *world, const struct store_view *before,
                               const struct store_view *after, const struct model_call *call)
{
	struct promise_waiter queue[STORE_TICKETS];
	const char *wrong = NULL;

	for (int i = 0; i < before->queued; i++) {
		const struct store_ticket *wait = &before->queue[i];
		queue[i] = (struct promise_waiter){wait->text, wait->arrival_us,
		                                   must_wait(world, wait, call) &&
		                                           !store_hold(after, wait->text)};
	}
	for (int i = 0; i < after->hold_count && !wrong; i++) {
		const char *ticket = after->holds[i].text;
		const struct store_ticket *wait = store_wait(before, ticket);
		/* An ask brings its queue position. */
		int64_t arrival_us = wait            ? wait->arrival_us
		                     : call->arrival ? (int64_t)call->arrival
		                                     : INT64_MAX;
		if (!store_hold(before, ticket))
			wrong = promise_fifo(queue, before->queued, ticket, arrival_us);
	}
	return wrong;
}

/* The text of the call's ticket, "" if it is not in the store. */
static const char *own_ticket(const struct store_view *view, const struct model_call *call)
{
	for (int i = 0; i < view->hold_count; i++)
		if (!strcmp(view->holds[i].nonce, call->nonce))
			return view->holds[i].text;
	for (int i = 0; i < view->queued; i++)
		if (!strcmp(view->queue[i].nonce, call->nonce))
			return view->queue[i].text;
	return "";
}

void world_check_run(struct model_world *world, const struct model_server *server,
                     const struct store_view *before, const struct model_call *call)
{
	const struct store_view *after = world_view(server);
	const char *ticket = own_ticket(before, call);
	const struct promise_run run = {before,
	                                after,
	                                call->kind,
	                                *ticket ? ticket : own_ticket(after, call),
	                                (int64_t)call->arrival,
	                                call->permits,
	                                lua_store_time(server->store),
	                                &call->answer,
	                                world_is_young(server),
	                                store_mark(store_marker(server->store, MODEL_MARKER))};

	world_keep(world, PROMISE_FIFO, order_wrong(world, before, after, call));
	/* More than exclusion and its kin need: a wrong variant is found by the harm that it does.
	 */
	if (world->rule != RULES_AS_SHIPPED)
		return;
	world_keep(world, PROMISE_FIFO, promise_fifo_place(&run));
	for (int i = 0; i < before->hold_count; i++) {
		const struct store_ticket *was = &before->holds[i];
		const struct store_ticket *is = store_hold(after, was->text);
		if (!is)
			world_keep(world, PROMISE_OWNER, promise_owner(&run, was));
		else if (is && is->fence == was->fence)
			world_keep(world, PROMISE_LEASE, promise_lease(was, is, run.now_us));
	}
	if (world->bounds->kind != LK_KIND_SEMAPHORE)
		return;
	world_keep(world, PROMISE_PERMITS, promise_permits_moved(&run));
	world_keep(world, PROMISE_SERVED, promise_served(&run));
}

/* ---- In each state ------------------------------------------------------------------------ */

/* The store has each valid hold: more than is promised, so only the shipped code must satisfy
 * it. */
static const char *validity_wrong(const struct model_world *world,
                                  const struct model_client *client)
{
	const struct lk__hold *hold = world_hold(client);
	int64_t now_us = lua_store_time(world->servers[0].store);
	char ticket[LK__TICKET_MAX];
	const struct store_ticket *kept;

	world_ticket(world, client, hold->ticket, ticket);
	kept = store_hold(world_view(world->servers), ticket);
	if (kept && (kept->end_us <= now_us || kept->held < hold->count ||
	             (world->bounds->kind == LK_KIND_LOCK && kept->fence != hold->fence)))
		kept = NULL;
	return promise_validity(kept, kept ? kept->end_us : 0,
	                        now_us + lk__hold_left_ns(hold, world->now_ns) / 1000);
}

void world_check_replica(struct model_world *world)
{
	for (int i = 0; i < world->bounds->clients; i++)
		if (world_valid(world, &world->clients[i]))
			world_keep(world, PROMISE_VALIDITY,
			           validity_wrong(world, &world->clients[i]));
}

/* ---- Permits that are never released ------------------------------------------------------ */

/* Grants of one microsecond have consecutive fences. */
#define SLACK_US 100

static int64_t used_at(const struct model_world *world, int64_t at_us)
{
	struct promise_use uses[MODEL_USES];

	for (int i = 0; i < world->use_count; i++) {
		int64_t from_us = (int64_t)world->uses[i].fence - SLACK_US;
		uses[i] = (struct promise_use){from_us, from_us + MODEL_LEASE_MS * 1000,
		                               world->uses[i].permits};
	}
	return promise_used(uses, world->use_count, at_us);
}

void world_use(struct model_world *world, uint64_t fence, uint32_t permits)
{
	int at = world->use_count++;

	if (at == MODEL_USES)
		abort();
	for (; at && world->uses[at - 1].fence > fence; at--)
		world->uses[at] = world->uses[at - 1];
	world->uses[at] = (struct model_use){fence, permits};
	for (int i = 0; i < world->use_count; i++) {
		if (i)
			world_keep(world, PROMISE_FENCE,
			           promise_fence(world->uses[i - 1].fence, world->uses[i].fence));
		world_keep(world, PROMISE_RATE,
		           promise_rate(used_at(world, (int64_t)world->uses[i].fence),
		                        MODEL_CAPACITY));
	}
}

static bool is_used(const struct model_world *world, const struct store_ticket *hold)
{
	for (int i = 0; i < world->use_count; i++)
		if (world->uses[i].fence == hold->fence)
			return true;
	return false;
}

/* ---- What is left ------------------------------------------------------------------------- */

/* All its tickets have ended with the store's reply, but the store has one that is not a use of
 * permits that are never released. */
static bool is_left(const struct model_world *world, int index)
{
	const struct model_client *client = &world->clients[index];
	const struct model_link *link = &client->links[0];
	const struct store_view *view;

	if (!client->alive || client->core.all_tickets || link->call_count || link->late_count ||
	    world->used[DO_LATE] || world->is_older)
		return false;
	view = world_view(world->servers);
	for (int i = 0; i < view->queued; i++)
		if (world_owner(&view->queue[i]) == index)
			return true;
	for (int i = 0; i < view->hold_count; i++)
		if (world_owner(&view->holds[i]) == index &&
		    !(world->bounds->finals && is_used(world, &view->holds[i])))
			return true;
	return false;
}

static const char *core_wrong(const struct model_client *client)
{
	const struct lk__hold *hold = world_hold(client);
	const char *wrong;

	if ((wrong = promise_progress(&client->core)))
		return promise_broken(PROMISE_PROGRESS, wrong);
	if ((wrong = promise_state(&client->core)))
		return promise_broken(PROMISE_STATE, wrong);
	if (client->waiter && (wrong = promise_state_call(client->waiter)))
		return promise_broken(PROMISE_STATE, wrong);
	return hold ? promise_broken(PROMISE_LOSS, promise_loss(&client->core, hold, &client->told))
	            : NULL;
}

static const char *wrong_of(const struct model_world *world, int index)
{
	const struct model_client *client = &world->clients[index];
	const char *wrong = NULL;

	if (world->bounds->servers)
		return client->alive ? core_wrong(client) : NULL;
	if ((world->rule == RULES_AS_SHIPPED || world->has_lost) && world_valid(world, client) &&
	    world_is_confirmed(world, client))
		wrong = promise_broken(PROMISE_VALIDITY, validity_wrong(world, client));
	if (!wrong && client->alive)
		wrong = core_wrong(client);
	if (!wrong && world->bounds->kind != LK_KIND_LATCH && is_left(world, index))
		wrong = promise_broken(PROMISE_REST, "a ticket that has ended is in the store");
	return wrong;
}

static const char *used_wrong(const struct model_world *world)
{
	int64_t used = used_at(world, lua_store_time(world->servers[0].store));

	for (int i = 0; i < world->bounds->clients; i++)
		if (world_valid(world, &world->clients[i]))
			used += world_hold(&world->clients[i])->count;
	return world->bounds->kind == LK_KIND_LOCK
	               ? promise_broken(PROMISE_EXCLUSION, promise_exclusion(used))
	               : promise_broken(PROMISE_PERMITS, promise_permits(used, MODEL_CAPACITY));
}

const char *world_wrong(struct model_world *world)
{
	const char *wrong;

	if (world->etcd)
		return etcd_wrong(world);
	wrong = world->bounds->servers ? world_quorum_wrong(world) : used_wrong(world);
	if (!wrong)
		wrong = world->wrong;
	if (!wrong && world->bounds->kind == LK_KIND_SEMAPHORE)
		wrong = promise_broken(PROMISE_PERMITS,
		                       promise_permits_kept(world_view(world->servers)));
	for (int i = 0; i < world->bounds->clients && !wrong; i++)
		wrong = wrong_of(world, i);
	return wrong;
}

const char *world_result_wrong(const struct model_world *world, const struct model_client *client,
                               lk_err err)
{
	const struct lk__hold *hold = world_hold(client);
	const struct model_call *reply = world->answered;
	struct promise_causes causes = {.silence = client->gave_up || client->refused,
	                                .unsent = client->gave_up,
	                                .refusal = client->refused && !client->gave_up};
	bool owned = reply && reply->kind == LK__LEAVE && reply->owned;
	bool release = client->verb == DO_RELEASE;

	if (!client->gave_up && release && world->bounds->servers) {
		causes.success = client->was_valid;
		causes.loss = !client->was_valid || client->denied;
	} else if (!client->gave_up && release) {
		/* A leave that was sent twice finds nothing the second time. */
		causes.success =
			client->was_valid && reply &&
			(owned || world->used[DO_CUT] || client->refused || world->has_lost);
		causes.loss = !client->was_valid || (reply && !owned);
	} else if (!client->gave_up) {
		bool extends = client->verb == DO_EXTEND;
		causes.success = reply && (!extends || world_valid(world, client));
		causes.loss = !hold || hold->lost;
		causes.silence |= extends && !reply;
		causes.unsent |= extends && !reply;
	}
	return promise_result(&causes, err);
}

/* ---- At the end --------------------------------------------------------------------------- */

static bool link_rests(const struct model_link *link)
{
	if (link->stalled || link->server->down)
		return true;
	return link->linked && (!link->call_count || link->is_answer_late) &&
	       !world_next_call((struct model_link *)(uintptr_t)link) &&
	       (!link->inbox_count || link->is_message_late) && !link->session.channels.queue;
}

bool world_rests(const struct model_world *world, const struct model_client *client)
{
	if (!client->alive || world_is_stranger(client))
		return true;
	for (int i = 0; i < world->server_count; i++)
		if (!link_rests(&client->links[i]))
			return false;
	return lk__core_due(&client->core) > world->now_ns;
}

bool world_quiet(const struct model_world *world)
{
	if (world->etcd)
		return etcd_quiet(world);
	for (int i = 0; i < world->bounds->clients; i++)
		if (!world_rests(world, &world->clients[i]))
			return false;
	return true;
}

/* One possible action of this link now. */
static bool move_link(struct model_world *world, struct model_link *link)
{
	if (world_next_call(link))
		world_execute(world, link, world_replicas(world));
	else if (link->call_count)
		world_answer(world, link);
	else if (link->session.channels.queue)
		world_subscribe(world, link);
	else if (link->inbox_count)
		world_hear(world, link);
	else
		return false;
	return true;
}

/* One possible action of this client now. */
static bool move(struct model_world *world, struct model_client *client)
{
	if (!client->alive)
		return false;
	for (int i = 0; i < world->server_count; i++) {
		if (!client->links[i].linked && !client->links[i].server->down) {
			world_link(world, &client->links[i]);
			return true;
		}
	}
	if (lk__core_due(&client->core) <= world->now_ns) {
		world_timer(world, client);
		return true;
	}
	for (int i = 0; i < world->server_count; i++)
		if (move_link(world, &client->links[i]))
			return true;
	if (!client->owner || client->waiter)
		return false;
	world_call(world, client, DO_RELEASE);
	return true;
}

/* All possible actions now. */
static const char *settle(struct model_world *world)
{
	bool moved = true;

	for (int events = 0; moved; events++) {
		moved = false;
		for (int i = 0; i < world->bounds->clients; i++)
			moved |= move(world, &world->clients[i]);
		if (world_wrong(world))
			return world_wrong(world);
		if (events == SETTLE_MAX)
			return promise_broken(PROMISE_PROGRESS, "requests without end");
	}
	return NULL;
}

/* All events of so many ms, or until there is no waiter. */
static const char *pass(struct model_world *world, int64_t ms, bool while_waiting)
{
	int64_t end_ns = world->now_ns + ms * MS;

	for (;;) {
		const char *wrong = settle(world);
		int64_t next_ns = end_ns;
		bool waits = false;
		if (wrong)
			return wrong;
		for (int i = 0; i < world->bounds->clients; i++) {
			const struct model_client *client = &world->clients[i];
			int64_t due_ns;
			if (!client->alive)
				continue;
			waits |= client->waiter != NULL;
			due_ns = lk__core_due(&client->core);
			if (due_ns < next_ns)
				next_ns = due_ns;
		}
		if (world->now_ns >= end_ns || (while_waiting && !waits))
			return NULL;
		/* The store has whole milliseconds. */
		world_time(world, (next_ns - world->now_ns + MS - 1) / MS * MS);
	}
}

static const char *waits_too_long(const struct model_world *world, int64_t due_ns)
{
	for (int i = 0; i < world->bounds->clients; i++) {
		const struct model_client *client = &world->clients[i];
		if (!client->waiter)
			continue;
		/* A latch may never open. */
		if (client->verb != DO_AWAIT || world->opened >= client->waiter->stamp)
			return promise_broken(PROMISE_WAKE_UP,
			                      promise_wake_up(due_ns, world->now_ns + 1));
	}
	return NULL;
}

static const char *left_over(const struct model_world *world)
{
	const struct store_view *view;

	for (int i = 0; i < world->bounds->clients; i++) {
		const struct model_client *client = &world->clients[i];
		const char *wrong = NULL;
		if (client->alive && world->bounds->servers)
			wrong = world_quorum_rest(world, client);
		else if (client->alive)
			wrong = promise_rest(&client->core);
		if (client->alive && !wrong)
			wrong = promise_rest_queue(client->queue);
		if (wrong)
			return wrong;
	}
	if (world->bounds->servers)
		return world_quorum_is_left(world) ? "a key is left" : NULL;
	view = world_view(world->servers);
	if (world->bounds->kind == LK_KIND_LATCH)
		return view->there && !view->count ? "an open latch is left" : NULL;
	if (view->there || view->hold_count || view->queued)
		return "a key is left";
	return NULL;
}

const char *world_finish(struct model_world *world, int64_t *longest)
{
	int64_t begun_ns = world->now_ns, abandoned_ns, served_ms = SERVED_MS;
	const char *wrong;

	if (world->etcd)
		return etcd_finish(world, longest);
	if (world->bounds->servers)
		served_ms = world_quorum_served_ms(world, served_ms);
	world->free_run = true;
	if ((wrong = pass(world, served_ms, true)))
		return wrong;
	if ((wrong = waits_too_long(world, begun_ns + served_ms * MS)))
		return wrong;
	if (world->bounds->kind != LK_KIND_LATCH && (world->now_ns - begun_ns) / MS > *longest)
		*longest = (world->now_ns - begun_ns) / MS;
	abandoned_ns = world->now_ns;
	for (int i = 0; i < world->bounds->clients; i++)
		if (world->clients[i].waiter)
			world_call(world, &world->clients[i], DO_ABANDON);
	if ((wrong = pass(world, FORGOTTEN_MS, false)))
		return wrong;
	for (int i = 0; i < world->bounds->clients; i++)
		if (world->clients[i].waiter)
			return promise_broken(PROMISE_DEADLINE,
			                      promise_deadline(abandoned_ns, world->now_ns));
	return promise_broken(PROMISE_REST, left_over(world));
}
