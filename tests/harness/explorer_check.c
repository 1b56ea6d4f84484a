/* SPDX-License-Identifier: MIT
 * What must hold at every step of the explorer, and at its end. */
#include "explorer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FREE_MAX_NS (1500 * VIRT_MS)

/* The first failure counts. */
void explorer_fail(struct explorer *explorer, const char *fmt, ...)
{
	va_list args;
	int len;

	if (explorer->failure[0])
		return;
	len = snprintf(explorer->failure, sizeof(explorer->failure),
	               "seed %llu faults %u at %.6f s: ", (unsigned long long)explorer->seed,
	               explorer->faults, (double)explorer->virt.now_ns / 1e9);
	va_start(args, fmt);
	vsnprintf(explorer->failure + len, sizeof(explorer->failure) - (size_t)len, fmt, args);
	va_end(args);
}

static int name_of(const struct lk__name *name)
{
	return name->bytes[0] - 'a';
}

/* In which epoch the store granted it, -1 = never. */
static int epoch_of(const struct model_lock *lock, uint64_t fence)
{
	for (int i = lock->grant_count - 1; i >= 0; i--)
		if (lock->grants[i] == fence)
			return lock->grant_epochs[i];
	return -1;
}

/* ---- Fences ------------------------------------------------------------------------------- */

void explorer_check_grant(void *arg, int name, uint64_t fence)
{
	struct virt *virt = arg;
	struct explorer *explorer = (struct explorer *)virt; /* its first member */

	if (fence <= explorer->made_max[name])
		explorer_fail(explorer, "the store gave fence %llu again or after a greater one",
		              (unsigned long long)fence);
}

/* A caller has just got a hold. */
void explorer_check_made(struct explorer *explorer, struct caller *caller)
{
	const struct lk__hold *hold = lk__core_hold(caller->waiter.place->name, caller->owner);
	int name = name_of(caller->waiter.place->name), epoch;

	if (!hold) {
		explorer_fail(explorer, "acquired, but there is no hold");
		return;
	}
	if (hold->lost || !hold->ticket ||
	    !lk__hold_left_ns(hold, virt_now(caller->actor->client))) {
		explorer_fail(explorer, "acquired a hold that has lapsed");
		return;
	}
	explorer->acquired++;
	epoch = epoch_of(&explorer->virt.model.locks[name], hold->ticket->fence);
	if (epoch < 0 || epoch >= EXPLORER_EPOCHS) {
		explorer_fail(explorer, "a hold without a grant of the store");
		return;
	}
	if (hold->fence != hold->ticket->fence)
		explorer->handed_over++;
	if (hold->fence <= explorer->made_in_epoch[name][epoch])
		explorer_fail(explorer, "fence %llu is not above %llu",
		              (unsigned long long)hold->fence,
		              (unsigned long long)explorer->made_in_epoch[name][epoch]);
	explorer->made_in_epoch[name][epoch] = hold->fence;
	if (hold->fence > explorer->made_max[name])
		explorer->made_max[name] = hold->fence;
	if (hold->fence != hold->ticket->fence &&
	    (int64_t)hold->fence > explorer->virt.model.now_us)
		explorer_fail(explorer, "a local fence is ahead of the store's clock");
}

/* ---- Holds -------------------------------------------------------------------------------- */

/* Two holds are never valid at once but over a flush or a break between their grants. */
static void check_exclusion(struct explorer *explorer)
{
	const struct lk__hold *valid[MODEL_NAMES][16];
	int count[MODEL_NAMES] = {0};

	for (int i = 0; i < explorer->virt.client_count; i++) {
		const struct actor *actor = &explorer->actors[i];
		const struct lk__hold *hold = actor->dead ? NULL : actor->client->core.all_holds;
		for (; hold; hold = hold->next) {
			int name = name_of(hold->name);
			if (lk__hold_left_ns(hold, virt_now(actor->client)))
				valid[name][count[name]++] = hold;
		}
	}
	for (int name = 0; name < MODEL_NAMES; name++) {
		const struct model_lock *lock = &explorer->virt.model.locks[name];
		for (int i = 0; i < count[name]; i++)
			for (int j = 0; j < i; j++)
				if (valid[name][i]->fence == valid[name][j]->fence ||
				    epoch_of(lock, valid[name][i]->ticket->fence) ==
				            epoch_of(lock, valid[name][j]->ticket->fence))
					explorer_fail(
						explorer,
						"two holds are valid at once: fences %llu and %llu",
						(unsigned long long)valid[name][i]->fence,
						(unsigned long long)valid[name][j]->fence);
	}
}

/* A loss is told in time by the timer alone. */
static void check_hold(struct explorer *explorer, const struct actor *actor,
                       const struct lk__hold *hold)
{
	const struct lk__ticket *ticket = hold->ticket;
	int64_t due_ns = lk__core_due(&actor->client->core);
	struct caller *caller = hold->handle;

	if (hold->lost) {
		if (!explorer->faults &&
		    (hold->lost == LK_LOST_TAKEN || hold->lost == LK_LOST_BROKEN ||
		     (hold->lost == LK_LOST_EXPIRED && !caller->held->fixed)))
			explorer_fail(explorer, "a hold was lost without a fault: %s",
			              lk_lost_reason_name(hold->lost));
		return;
	}
	if (!ticket) {
		explorer_fail(explorer, "a hold has no ticket");
		return;
	}
	if (ticket->state != LK__HOLDING || ticket->place->hold != hold)
		explorer_fail(explorer, "a hold and its ticket disagree");
	if (!lk__hold_left_ns(hold, virt_now(actor->client)))
		caller->lapsed = hold->fence;
	else if (caller->lapsed == hold->fence)
		explorer_fail(explorer, "a hold that had lapsed is valid again");
	if (due_ns > ticket->valid_until_ns || due_ns > hold->max_until_ns)
		explorer_fail(explorer, "no timer for the end of a hold");
}

/* Each ticket has something under way or a timer, else nothing would ever happen to it. */
static void check_ticket(struct explorer *explorer, const struct actor *actor,
                         const struct lk__ticket *ticket)
{
	bool leaving = ticket->state == LK__LEAVING;
	const struct lk__request *request = leaving ? &ticket->leave : &ticket->main;

	if (ticket->state == LK__OVER) {
		if (ticket->main.where != LK__UNDER_WAY && ticket->leave.where != LK__UNDER_WAY)
			explorer_fail(explorer, "a ticket is over and waits for no answer");
		return;
	}
	if (!actor->client->core.linked || request->where != LK__AT_REST)
		return;
	if (ticket->state == LK__HOLDING && ticket->fixed)
		return;
	if (ticket->next_ns == LK__NEVER || ticket->timer.due_ns > ticket->next_ns)
		explorer_fail(explorer, "a ticket in state %d has nothing to come", ticket->state);
}

/* Whatever stands in the store for a living client is known to it. */
static void check_orphan(struct explorer *explorer, const struct model_ticket *ticket)
{
	const struct actor *actor = &explorer->actors[ticket->client];

	if (!actor->dead && !lk__ticket_find(&actor->client->core, ticket->nonce))
		explorer_fail(explorer, "the store knows a ticket that its client has forgotten");
}

static void check_store(struct explorer *explorer, int name)
{
	const struct model_lock *lock = &explorer->virt.model.locks[name];

	if (lock->held)
		check_orphan(explorer, &lock->owner);
	for (int i = 0; i < lock->queued; i++)
		check_orphan(explorer, &lock->queue[i].ticket);
	/* Without a fault a lock is not free for long while somebody waits. */
	if (lock->held || !lock->queued)
		explorer->free_since_ns[name] = explorer->virt.now_ns;
	else if (!explorer->faults &&
	         explorer->virt.now_ns - explorer->free_since_ns[name] > FREE_MAX_NS)
		explorer_fail(explorer, "somebody waits for a free lock");
}

void explorer_check_step(struct explorer *explorer)
{
	for (int i = 0; i < explorer->virt.client_count; i++) {
		const struct actor *actor = &explorer->actors[i];
		const struct lk__ticket *ticket = actor->client->core.all_tickets;
		const struct lk__hold *hold = actor->client->core.all_holds;
		if (actor->dead)
			continue;
		for (; ticket; ticket = ticket->next)
			check_ticket(explorer, actor, ticket);
		for (; hold; hold = hold->next)
			check_hold(explorer, actor, hold);
	}
	for (int name = 0; name < MODEL_NAMES; name++)
		check_store(explorer, name);
	check_exclusion(explorer);
}

void explorer_check_end(struct explorer *explorer)
{
	for (int i = 0; i < explorer->virt.client_count; i++) {
		const struct actor *actor = &explorer->actors[i];
		const struct lk__core *core = &actor->client->core;
		if (actor->dead)
			continue;
		if (core->all_tickets || core->tickets.count)
			explorer_fail(explorer, "client %d has a ticket left in state %d", i,
			              core->all_tickets->state);
		if (core->all_holds)
			explorer_fail(explorer, "client %d has a hold left", i);
		if (core->line || core->done || core->lost || lk__core_due(core) != LK__NEVER)
			explorer_fail(explorer, "client %d has something left in line", i);
		for (int j = 0; j < EXPLORER_PLACES; j++)
			if (actor->places[j]->first || actor->places[j]->hold ||
			    actor->places[j]->ticket)
				explorer_fail(explorer, "client %d has something left in a place",
				              i);
	}
	for (int name = 0; name < MODEL_NAMES; name++) {
		const struct model_lock *lock = &explorer->virt.model.locks[name];
		if (lock->held || lock->queued)
			explorer_fail(explorer, "the store has %s left",
			              lock->held ? "a hold" : "a queue");
	}
}
