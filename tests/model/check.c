/* SPDX-License-Identifier: MIT
 * The invariants in every state of the model, after each script, and at the end of all calls. */
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
	for (int i = 0; i < after->owner_count; i++) {
		const char *owner = after->owners[i];
		int ahead = find(before->queue, before->count, owner);
		if (find(before->owners, before->owner_count, owner) >= 0)
			continue;
		if (ahead < 0 && call->arrival) {
			/* Its ask had its queue position. */
			for (ahead = 0; ahead < before->count; ahead++)
				if (before->arrivals[ahead] > call->arrival)
					break;
		} else if (ahead < 0) {
			ahead = before->count;
		}
		for (int j = 0; j < ahead; j++)
			if (!is_leaving(call, before->queue[j]) &&
			    is_live(world, before->queue[j]) &&
			    find(after->owners, after->owner_count, before->queue[j]) < 0)
				return "one who came later is served first";
	}
	return NULL;
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

static bool is_under_way(const struct lk__pending *request)
{
	return request->state != LK__IDLE;
}

/* It has no pending request and no timer: it would be forgotten. */
static bool is_forgotten(const struct model_client *client)
{
	for (const struct lk__ticket *ticket = client->core.all_tickets; ticket;
	     ticket = ticket->next)
		if (!is_under_way(&ticket->main) && !is_under_way(&ticket->leave) &&
		    ticket->timer.due_ns == LK__NEVER)
			return true;
	return false;
}

/* It has expired, the client has nothing more to do now, and its owner does not know. */
static bool is_untold(const struct model_world *world, const struct model_client *client)
{
	const struct lk__hold *hold = world_hold(client);

	return hold && !world_valid(world, client) && lk__core_due(&client->core) > world->now_ns &&
	       client->told != hold->fence;
}

/* ---- Permits that are never released ------------------------------------------------------ */

/* Grants of one microsecond have consecutive fences. */
#define SLACK_US 100

/* The uses whose lease includes that moment. */
static uint32_t used_at(const struct model_world *world, int64_t at_us)
{
	uint32_t sum = 0;

	for (int i = 0; i < world->use_count; i++) {
		int64_t from_us = (int64_t)world->uses[i].fence - SLACK_US;
		if (from_us <= at_us && at_us < from_us + MODEL_LEASE_MS * 1000)
			sum += world->uses[i].permits;
	}
	return sum;
}

const char *world_use(struct model_world *world, uint64_t fence, uint32_t permits)
{
	int at = world->use_count++;

	if (at == MODEL_USES)
		abort();
	for (; at && world->uses[at - 1].fence > fence; at--)
		world->uses[at] = world->uses[at - 1];
	world->uses[at] = (struct model_use){fence, permits};
	for (int i = 0; i < world->use_count; i++) {
		if (i && world->uses[i].fence == world->uses[i - 1].fence)
			return "one grant is used twice";
		if (used_at(world, (int64_t)world->uses[i].fence) > MODEL_CAPACITY)
			return "more permits are used in a window than the capacity";
	}
	return NULL;
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

static const char *wrong_of(const struct model_world *world, int index)
{
	const struct model_client *client = &world->clients[index];
	bool latch = world->bounds->kind == LK_KIND_LATCH;

	if (world->rule == RULES_AS_SHIPPED && world_valid(world, client) &&
	    !is_known(world, client))
		return "a valid hold that the store does not have";
	if (is_untold(world, client))
		return "a loss that is not told";
	if (client->alive && client->linked && is_forgotten(client))
		return "a ticket with nothing under way and nothing planned";
	if (!latch && is_left(world, index))
		return "a ticket that has ended is left in the store";
	return NULL;
}

/* The semaphore's counter equals the sum of its holds. */
static bool is_conserved(const struct model_world *world)
{
	const struct model_order *order;
	unsigned long used, sum = 0;

	order = world_order(world);
	used = strtoul(world_text(world, "HGET", world_key(""), "used"), NULL, 10);
	for (int i = 0; i < order->owner_count; i++)
		sum += strtoul(world_text(world, "HGET", world_key(""), order->owners[i]), NULL,
		               10);
	return used == sum;
}

const char *world_wrong(const struct model_world *world)
{
	uint32_t valid = 0;

	for (int i = 0; i < world->bounds->clients; i++)
		if (world_valid(world, &world->clients[i]))
			valid += world_hold(&world->clients[i])->count;
	valid += used_at(world, lua_store_time(world->store));
	if (world->bounds->kind == LK_KIND_LOCK && valid > 1)
		return "two valid holds";
	if (valid > MODEL_CAPACITY)
		return "more valid permits than the capacity";
	if (world->wrong)
		return world->wrong;
	if (world->bounds->kind == LK_KIND_SEMAPHORE && !is_conserved(world))
		return "permits that no hold has are not free";
	for (int i = 0; i < world->bounds->clients; i++) {
		const char *wrong = wrong_of(world, i);
		if (wrong)
			return wrong;
	}
	return NULL;
}

/* The release of a hold that the store still had. */
static const char *release_wrong(const struct model_world *world, const struct model_client *client,
                                 lk_err err)
{
	const struct model_call *leave = world->answered;
	bool owned = leave && leave->kind == LK__LEAVE && leave->owned;

	if (!client->was_valid)
		return err == LK_ELOST ? NULL : "the release of a lost hold without LK_ELOST";
	if (err == LK_ELOST && (!leave || owned))
		return "a release that tells of a loss, and there was none";
	if (!err && !leave)
		return "a release that succeeds before the store has it";
	/* A leave that was sent twice finds nothing the second time. */
	if (!err && !owned && !world->used[DO_CUT] && !client->refused)
		return "a release that succeeds, of a hold that the store no longer had";
	return NULL;
}

const char *world_result_wrong(const struct model_world *world, const struct model_client *client,
                               lk_err err)
{
	const struct lk__hold *hold = world_hold(client);

	if (client->gave_up)
		return err == LK_EUNKNOWN || err == LK_ECONN ? NULL
		                                             : "an abandoned call with a result";
	if (client->refused && (err == LK_EUNKNOWN || err == LK_EAUTH || err == LK_EAGAIN))
		return NULL;
	if (err && err != LK_ELOST && (world->answered || client->verb != DO_EXTEND))
		return "a call that does not know its result, though the answer came";
	if (client->verb == DO_RELEASE)
		return release_wrong(world, client, err);
	if (err == LK_ELOST && hold && !hold->lost)
		return "a call that tells of a loss, and there was none";
	if (!err && !world->answered)
		return "a call that succeeds before the store has it";
	if (!err && client->verb == DO_EXTEND && !world_valid(world, client))
		return "an extension that succeeds, of an ended hold";
	return NULL;
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
			return "requests without end";
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

static const char *waits_too_long(const struct model_world *world)
{
	for (int i = 0; i < world->bounds->clients; i++) {
		const struct model_client *client = &world->clients[i];
		if (!client->waiter)
			continue;
		if (client->verb != DO_AWAIT)
			return "a call that does not end";
		if (world->opened >= client->waiter->stamp)
			return "the latch has opened, and a waiter does not know";
	}
	return NULL;
}

static const char *left_over(const struct model_world *world)
{
	const char *value;

	for (int i = 0; i < world->bounds->clients; i++)
		if (world->clients[i].alive &&
		    (world->clients[i].core.all_tickets || world->clients[i].core.all_holds ||
		     world->clients[i].core.latches))
			return "an idle client keeps something";
	if (world->bounds->kind == LK_KIND_LATCH) {
		value = world_text(world, "HGET", world_key(""), "count");
		return !strcmp(value, "0") ? "an open latch is left" : NULL;
	}
	for (int i = 0; i < 3; i++) {
		static const char *const suffixes[] = {"", ":q", ":h"};
		if (strcmp(world_text(world, "EXISTS", world_key(suffixes[i])), "0") != 0)
			return "a key is left";
	}
	return NULL;
}

const char *world_finish(struct model_world *world, int64_t *longest)
{
	int64_t begun_ns = world->now_ns;
	const char *wrong;

	world->free_run = true;
	if ((wrong = pass(world, SERVED_MS, true)))
		return wrong;
	if ((wrong = waits_too_long(world)))
		return wrong;
	if (world->bounds->kind != LK_KIND_LATCH && (world->now_ns - begun_ns) / MS > *longest)
		*longest = (world->now_ns - begun_ns) / MS;
	for (int i = 0; i < world->bounds->clients; i++)
		if (world->clients[i].waiter)
			world_call(world, &world->clients[i], DO_ABANDON);
	if ((wrong = pass(world, FORGOTTEN_MS, false)))
		return wrong;
	for (int i = 0; i < world->bounds->clients; i++)
		if (world->clients[i].waiter)
			return "a call that does not end";
	return left_over(world);
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
