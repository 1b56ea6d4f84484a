/* SPDX-License-Identifier: MIT
 * What a script may make of a semaphore in the store: the difference that it made, looked at from
 * outside. */
#include "permits_explorer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUIET_NS (25000 * PERMITS_MS) /* longer than the patience with the head of a queue */

/* What a check of one script is about. */
struct script {
	struct permits_explorer *explorer;
	int name;
	const struct permits_view *before, *after;
	const struct permits_call *call; /* NULL = from outside */
	const struct permits_actor *actor;
	struct lk__answer answer;
};

/* ---- What is known ------------------------------------------------------------------------ */

struct permits_grant *permits_grant_of(struct permits_explorer *explorer, int name, uint64_t fence)
{
	for (int i = explorer->grant_count - 1; i >= 0; i--)
		if (explorer->grants[i].name == name && explorer->grants[i].fence == fence)
			return &explorer->grants[i];
	return NULL;
}

static int64_t capacity_since(const struct permits_record *record, int64_t since_ns, bool least)
{
	int64_t best = 0;

	for (int i = record->capacity_count - 1; i >= 0; i--) {
		int64_t capacity = record->capacities[i].capacity;
		if (!best || (least ? capacity < best : capacity > best))
			best = capacity;
		if (record->capacities[i].since_ns < since_ns)
			break;
	}
	return best;
}

int64_t permits_capacity_since(const struct permits_explorer *explorer, int name, int64_t since_ns)
{
	return capacity_since(&explorer->records[name], since_ns, false);
}

int64_t permits_least_capacity_since(const struct permits_explorer *explorer, int name,
                                     int64_t since_ns)
{
	return capacity_since(&explorer->records[name], since_ns, true);
}

static void note_capacity(struct permits_explorer *explorer, int name)
{
	struct permits_record *record = &explorer->records[name];
	int count = record->capacity_count;

	if (!record->view.there || !record->view.capacity)
		return;
	if (count && record->capacities[count - 1].capacity == record->view.capacity)
		return;
	if (count == PERMITS_CAPACITIES)
		abort();
	record->capacities[record->capacity_count++] =
		(struct permits_capacity){explorer->world.now_ns, record->view.capacity};
}

void permits_check_forced(struct permits_explorer *explorer, int name)
{
	struct permits_record *record = &explorer->records[name];

	record->epoch++;
	record->torn = false;
	permits_look(&explorer->world, permits_name(name), &record->view);
	/* What was given out before may be given out again where the clock had stepped back. */
	explorer->fence_max = 0;
}

/* ---- Holds -------------------------------------------------------------------------------- */

static const struct permits_ticket *hold_in(const struct permits_view *view, const char *ticket)
{
	return permits_find(view->holds, view->hold_count, ticket);
}

static const struct permits_ticket *wait_in(const struct permits_view *view, const char *ticket)
{
	return permits_find(view->queue, view->queued, ticket);
}

static bool is_own(const struct script *script, const char *ticket)
{
	return script->call && !strcmp(script->call->ticket, ticket);
}

/* Both halves agree, and the sum is the store's. */
static void check_sum(const struct script *script)
{
	const struct permits_view *view = script->after;
	int64_t sum = 0;

	for (int i = 0; i < view->hold_count; i++) {
		sum += view->holds[i].held;
		if (view->holds[i].end_us < 0 || !view->holds[i].fence)
			permits_fail(script->explorer, "half a hold: %s", view->holds[i].text);
		if (view->holds[i].held < 1 || view->holds[i].held > view->holds[i].permits)
			permits_fail(script->explorer, "a hold of %u permits: %s",
			             view->holds[i].held, view->holds[i].text);
	}
	if (sum != view->used)
		permits_fail(script->explorer, "the store counts %lld, its holds have %lld",
		             (long long)view->used, (long long)sum);
}

/* Nobody who was in the queue before and still is came earlier. */
static void check_order(const struct script *script, const struct permits_ticket *hold)
{
	const struct permits_ticket *was = wait_in(script->before, hold->text);
	int64_t arrival_us = was ? was->arrival_us : INT64_MAX;

	if (!was && is_own(script, hold->text) && script->call->arrival_us)
		arrival_us = script->call->arrival_us; /* it returns to its place */
	for (int i = 0; i < script->before->queued; i++) {
		const struct permits_ticket *other = &script->before->queue[i];
		if (other->arrival_us < arrival_us && wait_in(script->after, other->text))
			permits_fail(script->explorer, "%s has overtaken %s", hold->text,
			             other->text);
	}
}

static void note_grant(const struct script *script, const struct permits_ticket *hold)
{
	struct permits_explorer *explorer = script->explorer;
	struct permits_grant *grant = &explorer->grants[explorer->grant_count];

	if (explorer->grant_count == PERMITS_GRANTS)
		abort();
	explorer->grant_count++;
	*grant = (struct permits_grant){
		.fence = hold->fence,
		.name = script->name,
		.epoch = explorer->records[script->name].epoch,
		.client = hold->client,
		.permits = hold->held,
		.lease_ms = hold->lease_ms,
		.granted_ns = explorer->world.now_ns,
	};
	memcpy(grant->ticket, hold->text, sizeof(grant->ticket));
}

static void check_new(const struct script *script, const struct permits_ticket *hold)
{
	struct permits_explorer *explorer = script->explorer;

	if (hold->fence <= explorer->fence_max)
		permits_fail(explorer, "the store gave fence %llu again or after a greater one",
		             (unsigned long long)hold->fence);
	else
		explorer->fence_max = hold->fence;
	if (script->after->used > script->after->capacity)
		permits_fail(explorer, "granted %u, and %lld of %lld are used", hold->held,
		             (long long)script->after->used, (long long)script->after->capacity);
	if (hold->held != hold->permits)
		permits_fail(explorer, "granted %u instead of %u", hold->held, hold->permits);
	check_order(script, hold);
	note_grant(script, hold);
}

/* The same hold before and after. */
static void check_same(const struct script *script, const struct permits_ticket *was,
                       const struct permits_ticket *is)
{
	struct permits_explorer *explorer = script->explorer;
	int64_t now_us = permits_store_us(&explorer->world);
	bool shrinks = is_own(script, is->text) && script->call->kind == LK__SHRINK;

	if (is->held > was->held)
		permits_fail(explorer, "a hold grew from %u to %u", was->held, is->held);
	if (is->held < was->held && (!shrinks || is->held != script->call->permits))
		permits_fail(explorer, "a hold shrank from %u to %u", was->held, is->held);
	if (is->end_us < was->end_us && was->end_us <= now_us + is->force_ms * 1000)
		permits_fail(explorer, "a lease was shortened by %lld us",
		             (long long)(was->end_us - is->end_us));
}

static void note_lease(const struct script *script, const struct permits_ticket *hold)
{
	struct permits_explorer *explorer = script->explorer;
	struct permits_grant *grant = permits_grant_of(explorer, script->name, hold->fence);

	if (!grant || hold->end_us - permits_store_us(&explorer->world) < hold->lease_ms * 1000)
		return;
	grant->counted_ns = explorer->world.now_ns;
	grant->whole = true;
}

static void check_gone(const struct script *script, const struct permits_ticket *was)
{
	struct permits_explorer *explorer = script->explorer;
	const struct permits_grant *grant = permits_grant_of(explorer, script->name, was->fence);

	if (was->end_us <= permits_store_us(&explorer->world) || !script->call)
		return;
	if (!is_own(script, was->text) || script->call->kind != LK__LEAVE)
		permits_fail(explorer, "%s was taken away before its end", was->text);
	else if (grant && grant->forgotten)
		permits_fail(explorer, "a leave for permits that are nobody's: %s", was->text);
}

static void check_holds(const struct script *script)
{
	for (int i = 0; i < script->after->hold_count; i++) {
		const struct permits_ticket *is = &script->after->holds[i];
		const struct permits_ticket *was = hold_in(script->before, is->text);
		if (was && was->fence == is->fence)
			check_same(script, was, is);
		else
			check_new(script, is);
		note_lease(script, is);
	}
	for (int i = 0; i < script->before->hold_count; i++)
		if (!hold_in(script->after, script->before->holds[i].text))
			check_gone(script, &script->before->holds[i]);
}

/* ---- The queue ---------------------------------------------------------------------------- */

/* Somebody who waits, hears and asks keeps its place. */
static void check_passed_over(const struct script *script, const struct permits_ticket *wait)
{
	const struct permits_actor *actor = &script->explorer->actors[wait->client];
	const struct lk__ticket *ticket;

	if (wait_in(script->after, wait->text) || hold_in(script->after, wait->text) ||
	    is_own(script, wait->text) || wait->permits > script->after->capacity ||
	    !permits_actor_is_fine(actor, QUIET_NS))
		return;
	ticket = lk__ticket_find(&actor->client->core, wait->nonce);
	if (ticket && (ticket->state == LK__ASKING || ticket->state == LK__WAITING))
		permits_fail(script->explorer, "%s lost its place", wait->text);
}

/* Somebody who returns, wherever it was meanwhile, stands at its old place. */
static void check_place(const struct script *script)
{
	const struct permits_ticket *wait;

	/* A first ask that came late may have put it at the end meanwhile. */
	if (!script->call || !script->call->arrival_us ||
	    (script->explorer->faults & PERMITS_LATECOMERS))
		return;
	wait = wait_in(script->after, script->call->ticket);
	if (wait && wait->arrival_us != script->call->arrival_us)
		permits_fail(script->explorer, "%s did not get its place back", wait->text);
}

/* Whoever reclaims or gives back serves the queue, or says that there is more to do. */
static void check_served(const struct script *script)
{
	const struct permits_view *view = script->after;

	if (script->call && (script->call->kind == LK__RENEW || script->answer.kind == LK__FAILED ||
	                     script->answer.more || script->answer.free))
		return;
	if (view->there && view->queued && view->used + view->queue[0].permits <= view->capacity)
		permits_fail(script->explorer, "the head of the queue fits, and was not served: %s",
		             view->queue[0].text);
}

/* ---- One script --------------------------------------------------------------------------- */

static struct permits_view before;

void permits_check_before(struct permits_explorer *explorer, int name)
{
	permits_look(&explorer->world, permits_name(name), &before);
}

static void read_answer(struct script *script)
{
	struct lk__resp_reader *reader = lk__resp_reader_new();
	const struct lk__buf *reply = &script->call->reply;
	struct lk__resp *resp;
	static struct lk__why why;

	if (!reader || lk__resp_feed(reader, reply->data, reply->len, &why) ||
	    lk__resp_next(reader, &resp, &why) || !resp)
		abort();
	lk__codec_answer(resp, "the store", &script->answer, &why);
	if (script->answer.kind == LK__FAILED && resp->type == LK__RESP_ERROR &&
	    !lk__codec_unknown_script(resp))
		permits_fail(script->explorer, "a script failed: %s", resp->str);
	/* To leave, it says that nobody waits. */
	if (script->answer.kind == LK__LEFT)
		script->answer.free = false;
	lk__resp_free(resp);
	lk__resp_reader_free(reader);
}

/* Half of the memory was evicted: the next one that asks makes it whole, and others may. */
static bool mended(const struct script *script)
{
	struct permits_record *record = &script->explorer->records[script->name];
	const struct permits_view *view = script->after;
	int64_t sum = 0;
	bool whole = true;

	for (int i = 0; i < view->hold_count; i++) {
		sum += view->holds[i].held;
		whole = whole && view->holds[i].end_us >= 0 && view->holds[i].fence;
	}
	record->torn = !whole || sum != view->used;
	if (record->torn && script->call && script->call->kind == LK__ASK &&
	    script->answer.kind != LK__FAILED)
		permits_fail(script->explorer, "half a memory was not mended");
	/* What it had before is nobody's. */
	before.hold_count = 0;
	return !record->torn;
}

void permits_check_after(struct permits_explorer *explorer, int name,
                         const struct permits_actor *actor, const struct permits_call *call)
{
	struct permits_record *record = &explorer->records[name];
	struct script script = {explorer, name, &before, &record->view, call, actor, {0}};

	permits_look(&explorer->world, permits_name(name), &record->view);
	record->view_ns = explorer->world.now_ns;
	note_capacity(explorer, name);
	if (call)
		read_answer(&script);
	if (record->torn && !mended(&script))
		return;
	check_sum(&script);
	check_holds(&script);
	for (int i = 0; i < before.queued; i++)
		check_passed_over(&script, &before.queue[i]);
	check_place(&script);
	check_served(&script);
}
