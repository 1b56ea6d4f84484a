/* SPDX-License-Identifier: MIT
 * The explorer's callers: what lock.c and its users are to the state machine. */
#include "explorer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void caller_plan(struct caller *caller, uint64_t ms)
{
	struct explorer *explorer = caller->actor->explorer;

	caller->next_ns = explorer->virt.now_ns + explorer_within_ms(explorer, ms);
}

/* What lock.c's init_sleeper() and calls do. */
static void begin(struct caller *caller, enum caller_state state)
{
	struct lk__waiter *waiter = &caller->waiter;

	*waiter = (struct lk__waiter){
		.place = waiter->place,
		.handle = caller,
		.owner = caller->owner,
		.tell_loss = true,
		.max_hold_ms = waiter->max_hold_ms,
	};
	caller->state = state;
	caller->fresh = false;
	caller->until_ns = caller->cancel_ns = caller->next_ns = LK__NEVER;
	caller->limit_ns = virt_now(caller->actor->client) + COMMAND_TIMEOUT_NS;
}

static void acquire(struct caller *caller)
{
	struct actor *actor = caller->actor;
	struct explorer *explorer = actor->explorer;
	struct lk__waiter *waiter = &caller->waiter;
	int64_t now_ns = virt_now(actor->client);
	unsigned kind = (unsigned)explorer_draw(explorer, 10);

	/* Mostly the first kind, so that threads meet in one place. */
	waiter->place = actor->places[(explorer->one_name ? 0 : explorer_draw(explorer, 2)) +
	                              (explorer_percent(explorer, 20) ? 2 : 0)];
	waiter->max_hold_ms =
		explorer_percent(explorer, 10) ? 1 + (int64_t)explorer_draw(explorer, 2000) : 0;
	begin(caller, ACQUIRING);
	caller->fresh = true;
	caller->held = waiter->place;
	caller->forever = kind > 7;
	waiter->only_try = kind < 2;
	if (!waiter->only_try) {
		caller->limit_ns = LK__NEVER;
		if (!caller->forever)
			caller->until_ns = now_ns + explorer_within_ms(explorer, 3000);
		if (explorer_percent(explorer, 10))
			caller->cancel_ns =
				explorer->virt.now_ns + explorer_within_ms(explorer, 1000);
	}
	waiter->spare_ticket = malloc(sizeof(*waiter->spare_ticket));
	waiter->spare_hold = malloc(sizeof(*waiter->spare_hold));
	lk__core_acquire(&actor->client->core, now_ns, waiter);
}

static void drop(struct caller *caller)
{
	struct actor *actor = caller->actor;

	for (int i = 0; i < EXPLORER_PLACES; i++)
		lk__core_drop(&actor->client->core, virt_now(actor->client), actor->places[i]->name,
		              caller);
	caller->state = IDLE;
	caller_plan(caller, caller->actor->explorer->idle_ms);
}

/* It has a hold, or had one until a moment ago. */
static void use(struct caller *caller)
{
	struct actor *actor = caller->actor;
	struct lk__core *core = &actor->client->core;
	struct explorer *explorer = actor->explorer;
	int64_t now_ns = virt_now(actor->client);
	bool release = explorer->ending || explorer_percent(explorer, explorer->release_percent);
	unsigned kind = (unsigned)explorer_draw(explorer, 20);

	if (release) {
		const struct lk__hold *hold = lk__core_hold(caller->held->name, caller->owner);
		caller->was_valid = hold && lk__hold_left_ns(hold, now_ns) > 0;
		begin(caller, RELEASING);
		lk__core_release(core, now_ns, &caller->waiter);
	} else if (kind == 0) {
		lk__core_thread_ended(core, now_ns, caller->owner);
		caller->state = IDLE;
		caller_plan(caller, explorer->idle_ms);
	} else if (kind == 1) {
		drop(caller);
	} else if (kind < 6) {
		begin(caller, ACQUIRING); /* re-entry needs no memory */
		lk__core_acquire(core, now_ns, &caller->waiter);
	} else {
		begin(caller, EXTENDING);
		caller->waiter.lease_ms =
			caller->held->lease_ms / 2 * (int64_t)(1 + explorer_draw(explorer, 4));
		lk__core_extend(core, now_ns, &caller->waiter);
	}
}

void caller_give_up(struct caller *caller, lk_err why)
{
	const struct lk__place *place = caller->waiter.place;
	int64_t now_ns = virt_now(caller->actor->client);

	caller->nonce[0] = '\0';
	if (place->ticket && !place->hold && place->first == &caller->waiter &&
	    place->last == &caller->waiter)
		memcpy(caller->nonce, place->ticket->nonce, LK__NONCE_SIZE);
	caller->until_ns = caller->cancel_ns = LK__NEVER;
	lk__core_give_up(&caller->actor->client->core, now_ns, &caller->waiter, why);
	if (caller->limit_ns == LK__NEVER)
		caller->limit_ns = now_ns + COMMAND_TIMEOUT_NS;
}

void caller_step(struct caller *caller)
{
	struct actor *actor = caller->actor;
	int64_t now_ns = virt_now(actor->client);

	if (caller->state == IDLE && (actor->explorer->ending || actor->closed)) {
		caller->next_ns = LK__NEVER;
	} else if (caller->state == IDLE) {
		acquire(caller);
	} else if (caller->state == HOLDING) {
		use(caller);
	} else if (caller->limit_ns <= now_ns) {
		lk__core_abandon(&actor->client->core, now_ns, &caller->waiter);
		if (!caller->waiter.done)
			explorer_fail(actor->explorer, "a wait does not end when abandoned");
		caller->limit_ns = LK__NEVER;
	} else if (caller->until_ns <= now_ns) {
		caller_give_up(caller, LK_ETIMEDOUT);
	}
}

static bool store_knows(const struct explorer *explorer, const char *nonce)
{
	for (int name = 0; name < MODEL_NAMES; name++) {
		const struct model_lock *lock = &explorer->virt.model.locks[name];
		if (lock->held && !strcmp(lock->owner.nonce, nonce))
			return true;
		for (int i = 0; i < lock->queued; i++)
			if (!strcmp(lock->queue[i].ticket.nonce, nonce))
				return true;
	}
	return false;
}

static void check_result(struct caller *caller, enum caller_state was)
{
	struct explorer *explorer = caller->actor->explorer;
	lk_err err = caller->waiter.why.err;

	if (was == ACQUIRING && err != LK_OK && err != LK_EBUSY && err != LK_ETIMEDOUT &&
	    err != LK_ECANCELED && err != LK_ECONN && err != LK_EUNKNOWN && err != LK_ELOST &&
	    (err != LK_ECLOSED || !caller->actor->closed))
		explorer_fail(explorer, "acquire ended with %s", lk_err_name(err));
	if (!explorer->faults && (err == LK_ECONN || err == LK_EUNKNOWN))
		explorer_fail(explorer, "%s without a fault", lk_err_name(err));
	if (was == RELEASING && err == LK_OK && !caller->was_valid)
		explorer_fail(explorer, "the release of a lapsed hold succeeded");
	if (was == ACQUIRING && (err == LK_ETIMEDOUT || err == LK_ECANCELED || err == LK_ECLOSED) &&
	    caller->nonce[0] && store_knows(explorer, caller->nonce))
		explorer_fail(explorer, "a wait ended with %s and left its ticket",
		              lk_err_name(err));
	if (explorer->ending && caller->forever && was == ACQUIRING && err == LK_EBUSY)
		explorer_fail(explorer, "a wait ended with LK_EBUSY");
}

static void finish(struct caller *caller)
{
	struct explorer *explorer = caller->actor->explorer;
	enum caller_state was = caller->state;
	struct lk__hold *hold;

	check_result(caller, was);
	caller->nonce[0] = '\0';
	if (was == ACQUIRING && !caller->waiter.why.err && caller->fresh)
		explorer_check_made(explorer, caller);
	free(caller->waiter.spare_ticket);
	free(caller->waiter.spare_hold);
	caller->waiter.spare_ticket = NULL;
	caller->waiter.spare_hold = NULL;
	hold = lk__core_hold(caller->waiter.place->name, caller->owner);
	caller->state = hold ? HOLDING : IDLE;
	/* Soon, when only the end is waited for. */
	caller_plan(caller, !hold ? explorer->idle_ms : explorer->ending ? 50 : explorer->hold_ms);
}

/* Take out what the state machine has for its shell. */
void actor_settle(struct actor *actor)
{
	struct explorer *explorer = actor->explorer;
	struct lk__core *core = &actor->client->core;
	struct lk__waiter *waiter;
	struct lk__hold *hold;

	while ((waiter = lk__core_next_done(core)))
		finish((struct caller *)waiter);
	/* Sometimes a loss stands in line for a while, as when a callback blocks. */
	while ((explorer->ending || explorer_percent(explorer, 80)) &&
	       (hold = lk__core_next_lost(core))) {
		explorer->lost++;
		lk__core_told(hold);
	}
	if (!core->line || actor->flush_ns != LK__NEVER)
		return;
	actor->flush_ns = explorer->virt.now_ns;
	if (explorer_percent(explorer, 10))
		actor->flush_ns += explorer_within_ms(explorer, 5);
	else
		actor_send(actor);
}

void actor_close(struct actor *actor)
{
	actor->closed = true;
	actor->close_ns = LK__NEVER;
	lk__core_close(&actor->client->core, virt_now(actor->client));
	for (int i = 0; i < EXPLORER_THREADS; i++) {
		struct caller *caller = &actor->callers[i];
		caller->cancel_ns = LK__NEVER;
		if (caller->state == HOLDING)
			caller->state = IDLE;
		if (caller->state == ACQUIRING && caller->limit_ns == LK__NEVER)
			caller->limit_ns = virt_now(actor->client) + COMMAND_TIMEOUT_NS;
		caller->until_ns = LK__NEVER;
	}
}
