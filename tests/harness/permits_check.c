/* SPDX-License-Identifier: MIT
 * What must hold at every step of the explorer of permits, and at its end. */
#include "permits_explorer.h"

#include "scripts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDLE_CALM_NS (1500 * PERMITS_MS)
#define IDLE_NS (13000 * PERMITS_MS)      /* a re-ask later */
#define IDLE_LONG_NS (40000 * PERMITS_MS) /* past the patience with a head that does not ask */
#define LOOK_NS (300 * PERMITS_MS)

/* The first failure counts. */
void permits_fail(struct permits_explorer *explorer, const char *fmt, ...)
{
	va_list args;
	int len;

	if (explorer->failure[0])
		return;
	len = snprintf(explorer->failure, sizeof(explorer->failure),
	               "seed %llu faults %u at %.6f s: ", (unsigned long long)explorer->seed,
	               explorer->faults, (double)explorer->world.now_ns / 1e9);
	va_start(args, fmt);
	vsnprintf(explorer->failure + len, sizeof(explorer->failure) - (size_t)len, fmt, args);
	va_end(args);
}

/* ---- Acquired ----------------------------------------------------------------------------- */

/* A caller has just got a hold. */
void permits_check_made(struct permits_explorer *explorer, struct permits_caller *caller)
{
	const struct lk__hold *hold = lk__core_hold(caller->held->name, caller->fence);
	int name = permits_name_of(caller->held->name->bytes);
	const struct permits_grant *grant = permits_grant_of(explorer, name, caller->fence);

	explorer->acquired++;
	if (!hold || hold->handle != caller)
		permits_fail(explorer, "acquired, but there is no hold");
	else if (!lk__hold_left_ns(hold, permits_now(caller->actor->client)))
		permits_fail(explorer, "acquired a hold that has lapsed");
	else if (hold->count != caller->count)
		permits_fail(explorer, "acquired %u instead of %u", hold->count, caller->count);
	else if (!grant || grant->permits != caller->count ||
	         grant->client != caller->actor->client->id)
		permits_fail(explorer, "a hold without a grant of the store");
}

/* Permits that are nobody's must last, from their grant, as long as their lease. */
void permits_check_forgotten(struct permits_explorer *explorer, struct permits_caller *caller)
{
	int name = permits_name_of(caller->held->name->bytes);
	struct permits_grant *grant = permits_grant_of(explorer, name, caller->fence);

	explorer->forgot++;
	if (!grant || grant->permits != caller->count) {
		permits_fail(explorer, "a permit without a grant of the store");
	} else if (!grant->whole) {
		permits_fail(explorer, "a permit whose grant is shorter than its lease");
	} else {
		grant->forgotten = true;
		grant->forgotten_ns = grant->counted_ns;
		explorer->forgotten[explorer->forgotten_count++] = (int)(grant - explorer->grants);
	}
	caller->fence = 0;
}

/* ---- Holds -------------------------------------------------------------------------------- */

/* What is valid at one moment, of one memory of the store. */
struct sum {
	int epoch;
	int64_t permits, oldest_ns;
};

static void add(struct sum *sum, const struct permits_grant *grant, uint32_t permits)
{
	if (grant->broken || grant->epoch != sum->epoch)
		return;
	sum->permits += permits;
	if (grant->granted_ns < sum->oldest_ns)
		sum->oldest_ns = grant->granted_ns;
}

static void add_holds(struct permits_explorer *explorer, struct sum sums[PERMITS_NAMES])
{
	for (int i = 0; i < explorer->world.client_count; i++) {
		const struct permits_actor *actor = &explorer->actors[i];
		const struct lk__hold *hold = actor->dead ? NULL : actor->client->core.all_holds;
		for (; hold; hold = hold->next) {
			int name = permits_name_of(hold->name->bytes);
			const struct permits_grant *grant =
				permits_grant_of(explorer, name, hold->fence);
			if (grant && lk__hold_left_ns(hold, permits_now(actor->client)))
				add(&sums[name], grant, hold->count);
		}
	}
}

/* Never are more permits valid at once than the semaphore has, or had when they were granted. */
static void check_sums(struct permits_explorer *explorer)
{
	struct sum sums[PERMITS_NAMES];

	for (int name = 0; name < PERMITS_NAMES; name++)
		sums[name] = (struct sum){explorer->records[name].epoch, 0, INT64_MAX};
	add_holds(explorer, sums);
	for (int i = explorer->forgotten_count - 1; i >= 0; i--) {
		const struct permits_grant *grant = &explorer->grants[explorer->forgotten[i]];
		if (explorer->world.now_ns < grant->forgotten_ns + grant->lease_ms * PERMITS_MS)
			add(&sums[grant->name], grant, grant->permits);
	}
	for (int name = 0; name < PERMITS_NAMES; name++)
		if (sums[name].permits >
		    permits_capacity_since(explorer, name, sums[name].oldest_ns))
			permits_fail(explorer, "%lld permits of %s are valid at once",
			             (long long)sums[name].permits, permits_name(name));
}

/* A loss is told in time by the timer alone. */
static void check_hold(struct permits_explorer *explorer, const struct permits_actor *actor,
                       const struct lk__hold *hold)
{
	const struct lk__ticket *ticket = hold->ticket;
	int64_t due_ns = lk__core_due(&actor->client->core);
	struct permits_caller *caller = hold->handle;

	if (hold->lost) {
		if (!explorer->faults &&
		    (hold->lost == LK_LOST_TAKEN || hold->lost == LK_LOST_BROKEN ||
		     (hold->lost == LK_LOST_EXPIRED && !caller->held->fixed)))
			permits_fail(explorer, "a hold was lost without a fault: %s",
			             lk_lost_reason_name(hold->lost));
		return;
	}
	if (!ticket) {
		permits_fail(explorer, "a hold has no ticket");
		return;
	}
	if (ticket->state != LK__HOLDING || ticket->place->hold != hold)
		permits_fail(explorer, "a hold and its ticket disagree");
	if (!lk__hold_left_ns(hold, permits_now(actor->client)))
		caller->lapsed = hold->fence;
	else if (caller->lapsed == hold->fence)
		permits_fail(explorer, "a hold that had lapsed is valid again");
	if (caller->state == PERMITS_HOLDING && caller->fence == hold->fence &&
	    hold->count != caller->count)
		permits_fail(explorer, "a hold has %u permits instead of %u", hold->count,
		             caller->count);
	if (due_ns > ticket->valid_until_ns || due_ns > hold->max_until_ns)
		permits_fail(explorer, "no timer for the end of a hold");
}

/* Each ticket has something under way or a timer, else nothing would ever happen to it. */
static void check_ticket(struct permits_explorer *explorer, const struct permits_actor *actor,
                         const struct lk__ticket *ticket)
{
	bool leaving = ticket->state == LK__LEAVING;
	const struct lk__request *request = leaving ? &ticket->leave : &ticket->main;

	if (ticket->state == LK__OVER) {
		if (ticket->main.where != LK__UNDER_WAY && ticket->leave.where != LK__UNDER_WAY)
			permits_fail(explorer, "a ticket is over and waits for no answer");
		return;
	}
	if (!actor->client->core.linked || request->where != LK__AT_REST)
		return;
	if (ticket->state == LK__HOLDING && ticket->fixed && !ticket->shrinking)
		return;
	if (ticket->next_ns == LK__NEVER || ticket->timer.due_ns > ticket->next_ns)
		permits_fail(explorer, "a ticket in state %d has nothing to come", ticket->state);
}

/* ---- The store ---------------------------------------------------------------------------- */

/* Whatever stands in the store for a living client is known to it, or was forgotten. */
static void check_orphan(struct permits_explorer *explorer, int name,
                         const struct permits_ticket *ticket)
{
	const struct permits_actor *actor = &explorer->actors[ticket->client];
	const struct permits_grant *grant;

	if (actor->dead || lk__ticket_find(&actor->client->core, ticket->nonce))
		return;
	grant = permits_grant_of(explorer, name, ticket->fence);
	if (!grant || !grant->forgotten)
		permits_fail(explorer, "the store knows a ticket that its client has forgotten: %s",
		             ticket->text);
}

/* The first in the queue who hears and asks, if it fits; NULL if there is none.  *head tells
 * whether nobody is before it. */
static const struct permits_ticket *who_fits(struct permits_explorer *explorer, int name,
                                             bool *head)
{
	const struct permits_view *view = &explorer->records[name].view;
	int64_t used = 0;

	for (int i = 0; i < view->hold_count; i++)
		if (view->holds[i].end_us > permits_store_us(&explorer->world))
			used += view->holds[i].held;
	for (int i = 0; i < view->queued; i++) {
		const struct permits_ticket *wait = &view->queue[i];
		const struct permits_actor *actor = &explorer->actors[wait->client];
		const struct lk__ticket *ticket;
		if (!permits_actor_is_fine(actor, 0))
			continue;
		ticket = lk__ticket_find(&actor->client->core, wait->nonce);
		*head = i == 0;
		if (ticket)
			return used + wait->permits <= view->capacity ? wait : NULL;
	}
	return NULL;
}

/* Permits do not lie idle for long while somebody waits who may have them. */
static void check_idle(struct permits_explorer *explorer, int name)
{
	struct permits_record *record = &explorer->records[name];
	const struct permits_ticket *wait;
	int64_t limit_ns;
	bool head = false;

	if (explorer->world.now_ns - record->view_ns > LOOK_NS) {
		permits_look(&explorer->world, permits_name(name), &record->view);
		record->view_ns = explorer->world.now_ns;
	}
	wait = record->torn ? NULL : who_fits(explorer, name, &head);
	if (!wait || strcmp(record->idle, wait->text) ||
	    !permits_actor_is_fine(&explorer->actors[wait->client],
	                           explorer->world.now_ns - record->idle_since_ns)) {
		record->idle_since_ns = explorer->world.now_ns;
		snprintf(record->idle, sizeof(record->idle), "%s", wait ? wait->text : "");
		return;
	}
	/* Where leases run out by themselves the head may have been told a time that has become
	 * earlier since. */
	if (!explorer->faults)
		limit_ns = explorer->any_fixed ? IDLE_NS : IDLE_CALM_NS;
	else
		limit_ns = head ? IDLE_NS : IDLE_LONG_NS;
	if (explorer->world.now_ns - record->idle_since_ns > limit_ns)
		permits_fail(explorer, "%s waits for permits that are free", wait->text);
}

static void check_store(struct permits_explorer *explorer, int name)
{
	const struct permits_view *view = &explorer->records[name].view;

	check_idle(explorer, name);
	if (explorer->faults & PERMITS_LATECOMERS)
		return;
	for (int i = 0; i < view->hold_count && !explorer->records[name].torn; i++)
		check_orphan(explorer, name, &view->holds[i]);
	for (int i = 0; i < view->queued; i++)
		check_orphan(explorer, name, &view->queue[i]);
}

void permits_check_step(struct permits_explorer *explorer)
{
	for (int i = 0; i < explorer->world.client_count; i++) {
		const struct permits_actor *actor = &explorer->actors[i];
		const struct lk__ticket *ticket = actor->client->core.all_tickets;
		const struct lk__hold *hold = actor->client->core.all_holds;
		if (actor->dead)
			continue;
		for (; ticket; ticket = ticket->next)
			check_ticket(explorer, actor, ticket);
		for (; hold; hold = hold->next)
			check_hold(explorer, actor, hold);
	}
	for (int name = 0; name < PERMITS_NAMES; name++)
		check_store(explorer, name);
	check_sums(explorer);
}

/* ---- At the end --------------------------------------------------------------------------- */

/* In no window as long as the lease were more granted than the semaphore had. */
static void check_rates(struct permits_explorer *explorer)
{
	for (int i = 0; i < explorer->forgotten_count; i++) {
		const struct permits_grant *first = &explorer->grants[explorer->forgotten[i]];
		int64_t end_ns = first->forgotten_ns + first->lease_ms * PERMITS_MS;
		int64_t oldest_ns = first->granted_ns, sum = 0;
		for (int j = 0; j < explorer->forgotten_count; j++) {
			const struct permits_grant *grant =
				&explorer->grants[explorer->forgotten[j]];
			if (grant->name != first->name || grant->epoch != first->epoch ||
			    grant->broken || grant->forgotten_ns < first->forgotten_ns ||
			    grant->forgotten_ns >= end_ns || grant->lease_ms < first->lease_ms)
				continue;
			sum += grant->permits;
			if (grant->granted_ns < oldest_ns)
				oldest_ns = grant->granted_ns;
		}
		if (sum > permits_capacity_since(explorer, first->name, oldest_ns))
			permits_fail(explorer, "%lld permits in one window", (long long)sum);
	}
}

static void check_client(struct permits_explorer *explorer, const struct permits_actor *actor)
{
	const struct lk__core *core = &actor->client->core;
	int id = actor->client->id;

	if (core->all_tickets || core->tickets.count)
		permits_fail(explorer, "client %d has a ticket left", id);
	if (core->all_holds)
		permits_fail(explorer, "client %d has a hold left", id);
	if (core->line || core->done || core->lost || lk__core_due(core) != LK__NEVER)
		permits_fail(explorer, "client %d has something left in line", id);
	for (int i = 0; i < PERMITS_NAMES * PERMITS_KINDS; i++)
		if (actor->places[i]->refs != 1 || actor->places[i]->first ||
		    actor->places[i]->ticket || actor->places[i]->hold)
			permits_fail(explorer, "client %d has something left in a place", id);
}

/* At rest all permits are there. */
static void check_rest(struct permits_explorer *explorer, int name)
{
	const char *answer = lua_store_text(
		explorer->world.store, "EVAL", lk__script_semaphore_show.text, "4",
		permits_key(permits_name(name), ""), permits_key(permits_name(name), ":q"),
		"lk:fence", permits_key(permits_name(name), ":h"), "", "100", "100", NULL);
	long long capacity, used, holds, queued;

	if (!strcmp(answer, "absent"))
		return;
	if (sscanf(answer, "%lld\n%lld\n%lld\n%lld\n", &capacity, &used, &holds, &queued) != 4)
		permits_fail(explorer, "semaphore_show answers %.80s", answer);
	else if (used || holds || queued)
		permits_fail(explorer, "left: %lld of %lld used, %lld holds, %lld wait", used,
		             capacity, holds, queued);
}

void permits_check_end(struct permits_explorer *explorer)
{
	for (int i = 0; i < explorer->world.client_count; i++)
		if (!explorer->actors[i].dead)
			check_client(explorer, &explorer->actors[i]);
	for (int name = 0; name < PERMITS_NAMES; name++)
		check_rest(explorer, name);
	check_rates(explorer);
}
