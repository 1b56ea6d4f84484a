/* SPDX-License-Identifier: MIT
 * The promises in every state of the model, after each script, and at the end of all calls. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
/* The time to serve every waiter when there are no more faults: a lease, two asks of a waiter, a
 * dead head that counts as a receiver; with a second to spare. */
#define SERVED_MS (MODEL_EXTENSION_MS + 2 * LK__REASK_MAX_MS + LK__HEAD_PATIENCE_MS + 1000)
#define FORGOTTEN_MS 100000 /* all its keys have expired by then */
#define SETTLE_MAX 2000     /* events at the same moment */

/* ---- Around a script ---------------------------------------------------------------------- */

/* The lines of the store's last reply; each one, or a score after each. */
static int take_lines(const char *at, char tickets[][LK__TICKET_MAX], uint64_t *scores)
{
	int count = 0;

	while (*at && count < MODEL_ORDER) {
		size_t len = strcspn(at, "\n");
		snprintf(tickets[count], LK__TICKET_MAX, "%.*s", (int)len, at);
		at += len + (at[len] == '\n');
		if (scores) {
			scores[count] = strtoull(at, NULL, 10);
			len = strcspn(at, "\n");
			at += len + (at[len] == '\n');
		}
		count++;
	}
	return count;
}

static struct model_order known;
static bool is_order_known;

void world_order_forget(void)
{
	is_order_known = false;
}

const struct model_order *world_order(const struct model_world *world)
{
	struct model_order *order = &known;

	if (is_order_known)
		return order;
	is_order_known = true;
	memset(order, 0, sizeof(*order));
	order->count =
		take_lines(world_text(world, "ZRANGE", world_key(":q"), "0", "-1", "WITHSCORES"),
	                   order->queue, order->arrivals);
	if (world->bounds->kind == LK_KIND_SEMAPHORE) {
		order->owner_count =
			take_lines(world_text(world, "ZRANGE", world_key(":h"), "0", "-1"),
		                   order->owners, NULL);
	} else {
		const char *value = world_text(world, "GET", world_key(""));
		order->owner_count = *value != '\0';
		snprintf(order->owners[0], LK__TICKET_MAX, "%.*s", (int)strcspn(value, " "), value);
	}
	return order;
}

static int find(const char tickets[][LK__TICKET_MAX], int count, const char *ticket)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(tickets[i], ticket))
			return i;
	return -1;
}

/* Its client lives and would have received a grant. */
static bool is_live(const struct model_world *world, const char *ticket)
{
	const struct model_client *client = &world->clients[ticket[2] - 'a'];

	return client->alive && client->heard;
}

/* This script had the task to dequeue it. */
static bool is_leaving(const struct model_call *call, const char *ticket)
{
	return call->kind == LK__LEAVE && strstr(ticket, call->nonce);
}

const char *world_order_wrong(const struct model_world *world, const struct model_order *before,
                              const struct model_order *after, const struct model_call *call)
{
	struct promise_waiter queue[MODEL_ORDER];
	const char *wrong = NULL;

	for (int i = 0; i < before->count; i++)
		queue[i] = (struct promise_waiter){
			before->queue[i], (int64_t)before->arrivals[i],
			!is_leaving(call, before->queue[i]) && is_live(world, before->queue[i]) &&
				find(after->owners, after->owner_count, before->queue[i]) < 0};
	for (int i = 0; i < after->owner_count && !wrong; i++) {
		const char *owner = after->owners[i];
		int place = find(before->queue, before->count, owner);
		/* An ask brings its queue position. */
		int64_t arrival = place >= 0      ? queue[place].arrival
		                  : call->arrival ? (int64_t)call->arrival
		                                  : INT64_MAX;
		if (find(before->owners, before->owner_count, owner) < 0)
			wrong = promise_fifo(queue, before->count, owner, arrival);
	}
	return wrong;
}

/* ---- In each state ------------------------------------------------------------------------ */

/* The store has each valid hold: more than is promised, so only the shipped code must satisfy
 * it. */
static bool is_known(const struct model_world *world, const struct model_client *client)
{
	const struct lk__hold *hold = world_hold(client);
	char ticket[LK__TICKET_MAX], start[LK__TICKET_MAX + 24];
	const char *value;

	world_ticket(world, client, hold->ticket, ticket);
	if (world->bounds->kind == LK_KIND_LOCK) {
		snprintf(start, sizeof(start), "%s %llu ", ticket, (unsigned long long)hold->fence);
		value = world_text(world, "GET", world_key(""));
		return !strncmp(value, start, strlen(start));
	}
	value = world_text(world, "ZSCORE", world_key(":h"), ticket);
	if (strtoll(value, NULL, 10) <= lua_store_time(world->store))
		return false;
	value = world_text(world, "HGET", world_key(""), ticket);
	return strtoul(value, NULL, 10) >= hold->count;
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

static bool is_used(const struct model_world *world, const char *ticket)
{
	unsigned long long fence;
	unsigned permits;

	if (sscanf(world_text(world, "HGET", world_key(""), ticket), "%u %llu", &permits, &fence) !=
	    2)
		return false;
	for (int i = 0; i < world->use_count; i++)
		if (world->uses[i].fence == fence)
			return true;
	return false;
}

/* ---- What is left ------------------------------------------------------------------------- */

/* All its tickets have ended with the store's reply, but the store has one that is not a use of
 * permits that are never released. */
static bool is_left(const struct model_world *world, int index)
{
	const struct model_client *client = &world->clients[index];
	const struct model_order *order;

	if (!client->alive || client->core.all_tickets || client->call_count ||
	    client->late_count || world->used[DO_LATE])
		return false;
	order = world_order(world);
	for (int i = 0; i < order->count; i++)
		if (order->queue[i][2] == 'a' + index)
			return true;
	for (int i = 0; i < order->owner_count; i++)
		if (order->owners[i][2] == 'a' + index &&
		    !(world->bounds->finals && is_used(world, order->owners[i])))
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

	if (world->rule == RULES_AS_SHIPPED && world_valid(world, client))
		wrong = promise_broken(PROMISE_VALIDITY,
		                       promise_validity(is_known(world, client), 0, 0));
	if (!wrong && client->alive)
		wrong = core_wrong(client);
	if (!wrong && world->bounds->kind != LK_KIND_LATCH && is_left(world, index))
		wrong = promise_broken(PROMISE_REST, "a ticket that has ended is in the store");
	return wrong;
}

/* The semaphore's counter equals the sum of its holds. */
static const char *kept_wrong(const struct model_world *world)
{
	const struct model_order *order = world_order(world);
	int64_t used = strtoll(world_text(world, "HGET", world_key(""), "used"), NULL, 10), sum = 0;

	for (int i = 0; i < order->owner_count; i++)
		sum += strtoll(world_text(world, "HGET", world_key(""), order->owners[i]), NULL,
		               10);
	return promise_broken(PROMISE_PERMITS, promise_permits_kept(used, sum));
}

static const char *used_wrong(const struct model_world *world)
{
	int64_t used = used_at(world, lua_store_time(world->store));

	for (int i = 0; i < world->bounds->clients; i++)
		if (world_valid(world, &world->clients[i]))
			used += world_hold(&world->clients[i])->count;
	return world->bounds->kind == LK_KIND_LOCK
	               ? promise_broken(PROMISE_EXCLUSION, promise_exclusion(used))
	               : promise_broken(PROMISE_PERMITS, promise_permits(used, MODEL_CAPACITY));
}

const char *world_wrong(const struct model_world *world)
{
	const char *wrong = used_wrong(world);

	if (!wrong)
		wrong = world->wrong;
	if (!wrong && world->bounds->kind == LK_KIND_SEMAPHORE)
		wrong = kept_wrong(world);
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

	if (!client->gave_up && client->verb == DO_RELEASE) {
		/* A leave that was sent twice finds nothing the second time. */
		causes.success = client->was_valid && reply &&
		                 (owned || world->used[DO_CUT] || client->refused);
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

bool world_rests(const struct model_world *world, const struct model_client *client)
{
	return !client->alive ||
	       (client->linked && !client->call_count && !client->inbox_count &&
	        !client->session.channels.queue && lk__core_due(&client->core) > world->now_ns);
}

bool world_quiet(const struct model_world *world)
{
	for (int i = 0; i < world->bounds->clients; i++)
		if (!world_rests(world, &world->clients[i]))
			return false;
	return true;
}

/* One possible action of this client now. */
static bool move(struct model_world *world, struct model_client *client)
{
	if (!client->alive)
		return false;
	if (!client->linked)
		world_link(world, client);
	else if (lk__core_due(&client->core) <= world->now_ns)
		world_timer(world, client);
	else if (world_next_call(client))
		world_execute(world, client);
	else if (client->call_count)
		world_answer(world, client);
	else if (client->session.channels.queue)
		world_subscribe(world, client);
	else if (client->inbox_count)
		world_hear(world, client);
	else if (client->owner && !client->waiter)
		world_call(world, client, DO_RELEASE);
	else
		return false;
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
	for (int i = 0; i < world->bounds->clients; i++) {
		const struct model_client *client = &world->clients[i];
		const char *wrong = NULL;
		if (client->alive && !(wrong = promise_rest(&client->core)))
			wrong = promise_rest_queue(client->queue);
		if (wrong)
			return wrong;
	}
	if (world->bounds->kind == LK_KIND_LATCH)
		return !strcmp(world_text(world, "HGET", world_key(""), "count"), "0")
		               ? "an open latch is left"
		               : NULL;
	for (int i = 0; i < 3; i++) {
		static const char *const suffixes[] = {"", ":q", ":h"};
		if (strcmp(world_text(world, "EXISTS", world_key(suffixes[i])), "0") != 0)
			return "a key is left";
	}
	return NULL;
}

const char *world_finish(struct model_world *world, int64_t *longest)
{
	int64_t begun_ns = world->now_ns, abandoned_ns;
	const char *wrong;

	world->free_run = true;
	if ((wrong = pass(world, SERVED_MS, true)))
		return wrong;
	if ((wrong = waits_too_long(world, begun_ns + SERVED_MS * MS)))
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

/* ---- As text ------------------------------------------------------------------------------ */

static void print_store(const struct model_world *world)
{
	const struct model_order *order;

	if (world->bounds->kind == LK_KIND_LATCH) {
		printf("store: count %s;", world_text(world, "HGET", world_key(""), "count"));
		return;
	}
	order = world_order(world);
	printf("store: held by");
	for (int i = 0; i < order->owner_count; i++)
		printf(" %c", order->owners[i][2] - 'a' + 'A');
	printf(", queue");
	for (int i = 0; i < order->count; i++)
		printf(" %c", order->queue[i][2] - 'a' + 'A');
	printf(";");
}

void world_print(const struct model_world *world)
{
	printf("           ");
	print_store(world);
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
