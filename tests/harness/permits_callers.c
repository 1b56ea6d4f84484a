/* SPDX-License-Identifier: MIT
 * The callers of the explorer of permits: what semaphore.c and its users are to the state machine.
 */
#include "permits_explorer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void permits_caller_plan(struct permits_caller *caller, uint64_t ms)
{
	struct permits_explorer *explorer = caller->actor->explorer;

	caller->next_ns = explorer->world.now_ns + permits_within_ms(explorer, ms);
}

/* What semaphore.c's calls do. */
static void begin(struct permits_caller *caller, enum permits_state state)
{
	struct lk__waiter *waiter = &caller->waiter;

	*waiter = (struct lk__waiter){
		.place = caller->held,
		.handle = caller,
		.owner = caller->fence,
		.tell_loss = true,
		.max_hold_ms = waiter->max_hold_ms,
	};
	caller->state = state;
	caller->until_ns = caller->cancel_ns = caller->next_ns = LK__NEVER;
	caller->limit_ns = permits_now(caller->actor->client) + PERMITS_TIMEOUT_NS;
}

static void limit_wait(struct permits_caller *caller, unsigned kind)
{
	struct permits_explorer *explorer = caller->actor->explorer;

	caller->forever = kind > 7;
	caller->waiter.only_try = kind < 2;
	if (caller->waiter.only_try)
		return;
	caller->limit_ns = LK__NEVER;
	if (!caller->forever)
		caller->until_ns = permits_now(caller->actor->client) +
		                   permits_within_ms(explorer, kind < 5 ? 3000 : 15000);
	if (permits_percent(explorer, 10))
		caller->cancel_ns = explorer->world.now_ns + permits_within_ms(explorer, 1000);
}

static void acquire(struct permits_caller *caller)
{
	struct permits_actor *actor = caller->actor;
	struct permits_explorer *explorer = actor->explorer;
	struct lk__waiter *waiter = &caller->waiter;
	unsigned name = explorer->one_name ? 0 : (unsigned)permits_draw(explorer, PERMITS_NAMES);
	uint32_t limit = permits_percent(explorer, 60) ? (explorer->capacity_max + 1) / 2
	                                               : explorer->capacity_max;

	caller->held = actor->places[name * PERMITS_KINDS + permits_draw(explorer, PERMITS_KINDS)];
	waiter->max_hold_ms =
		permits_percent(explorer, 10) ? 1 + (int64_t)permits_draw(explorer, 2000) : 0;
	caller->fence = 0;
	begin(caller, PERMITS_ACQUIRING);
	caller->count = 1 + (uint32_t)permits_draw(explorer, limit);
	caller->asked_ns = explorer->world.now_ns;
	waiter->permits = caller->count;
	waiter->forget = caller->held->fixed && permits_percent(explorer, explorer->forget_percent);
	limit_wait(caller, (unsigned)permits_draw(explorer, 10));
	waiter->spare_ticket = malloc(sizeof(*waiter->spare_ticket));
	waiter->spare_hold = malloc(sizeof(*waiter->spare_hold));
	waiter->spare_place = malloc(sizeof(*waiter->spare_place));
	lk__core_acquire_permits(&actor->client->core, permits_now(actor->client), waiter);
}

/* The handle is closed. */
static void drop(struct permits_caller *caller)
{
	struct permits_actor *actor = caller->actor;

	lk__core_drop(&actor->client->core, permits_now(actor->client), caller->held->name, caller);
	caller->state = PERMITS_IDLE;
	permits_caller_plan(caller, caller->actor->explorer->idle_ms);
}

static const struct lk__hold *hold_of(const struct permits_caller *caller)
{
	return lk__core_hold(caller->held->name, caller->fence);
}

static void give_back(struct permits_caller *caller, uint32_t permits)
{
	struct permits_actor *actor = caller->actor;
	int64_t now_ns = permits_now(actor->client);
	const struct lk__hold *hold = hold_of(caller);

	caller->was_valid = hold && lk__hold_left_ns(hold, now_ns) > 0;
	begin(caller, PERMITS_RELEASING);
	caller->waiter.permits = permits;
	if (permits && permits < caller->count && caller->was_valid) {
		caller->count -= permits;
		actor->explorer->shrunk++;
	}
	lk__core_release_permits(&actor->client->core, now_ns, &caller->waiter);
}

/* It has a hold, or had one until a moment ago. */
static void use(struct permits_caller *caller)
{
	struct permits_actor *actor = caller->actor;
	struct permits_explorer *explorer = actor->explorer;
	unsigned kind = (unsigned)permits_draw(explorer, 20);

	if (caller->count > 2 && permits_percent(explorer, 40)) {
		give_back(caller, 1); /* one after the other */
	} else if (explorer->ending || permits_percent(explorer, explorer->release_percent)) {
		give_back(caller, permits_percent(explorer, 50) ? 0 : caller->count);
	} else if (kind == 0) {
		drop(caller);
	} else if (kind == 1) {
		give_back(caller, caller->count + 1); /* more than it has */
	} else if (kind < 10) {
		give_back(caller, 1 + (uint32_t)permits_draw(explorer, caller->count));
	} else {
		begin(caller, PERMITS_EXTENDING);
		caller->waiter.lease_ms =
			caller->held->lease_ms / 2 * (int64_t)(1 + permits_draw(explorer, 4));
		lk__core_extend(&actor->client->core, permits_now(actor->client), &caller->waiter);
	}
}

void permits_caller_give_up(struct permits_caller *caller, lk_err why)
{
	const struct lk__place *place = caller->waiter.place;
	int64_t now_ns = permits_now(caller->actor->client);

	caller->nonce[0] = '\0';
	if (caller->waiter.where == LK__IN_PLACE)
		memcpy(caller->nonce, place->ticket->nonce, LK__NONCE_SIZE);
	caller->until_ns = caller->cancel_ns = LK__NEVER;
	lk__core_give_up(&caller->actor->client->core, now_ns, &caller->waiter, why);
	if (caller->limit_ns == LK__NEVER)
		caller->limit_ns = now_ns + PERMITS_TIMEOUT_NS;
}

void permits_caller_step(struct permits_caller *caller)
{
	struct permits_actor *actor = caller->actor;
	int64_t now_ns = permits_now(actor->client);

	if (caller->state == PERMITS_IDLE && (actor->explorer->ending || actor->closed)) {
		caller->next_ns = LK__NEVER;
	} else if (caller->state == PERMITS_IDLE) {
		acquire(caller);
	} else if (caller->state == PERMITS_HOLDING) {
		use(caller);
	} else if (caller->limit_ns <= now_ns) {
		lk__core_abandon(&actor->client->core, now_ns, &caller->waiter);
		if (!caller->waiter.done)
			permits_fail(actor->explorer, "a wait does not end when abandoned");
		caller->limit_ns = LK__NEVER;
	} else if (caller->until_ns <= now_ns) {
		permits_caller_give_up(caller, LK_ETIMEDOUT);
	}
}

/* ---- Results ------------------------------------------------------------------------------ */

static bool store_knows(struct permits_explorer *explorer, int name, const char *nonce)
{
	static struct permits_view view;

	permits_look(&explorer->world, permits_name(name), &view);
	for (int i = 0; i < view.hold_count; i++)
		if (view.holds[i].fence && !strcmp(view.holds[i].nonce, nonce))
			return true;
	for (int i = 0; i < view.queued; i++)
		if (!strcmp(view.queue[i].nonce, nonce))
			return true;
	return false;
}

static void check_acquired(struct permits_caller *caller, lk_err err)
{
	struct permits_explorer *explorer = caller->actor->explorer;
	int name = permits_name_of(caller->held->name->bytes);

	if (err != LK_OK && err != LK_EBUSY && err != LK_ETIMEDOUT && err != LK_ECANCELED &&
	    err != LK_ECONN && err != LK_EUNKNOWN && err != LK_ELIMIT &&
	    (err != LK_ECLOSED || !caller->actor->closed))
		permits_fail(explorer, "acquire ended with %s", lk_err_name(err));
	if (err == LK_ELIMIT &&
	    permits_least_capacity_since(explorer, name, caller->asked_ns) >= caller->count)
		permits_fail(explorer, "acquire of %u ended with LK_ELIMIT", caller->count);
	if ((err == LK_ETIMEDOUT || err == LK_ECANCELED || err == LK_ECLOSED) && caller->nonce[0] &&
	    !(explorer->faults & PERMITS_LATECOMERS) && store_knows(explorer, name, caller->nonce))
		permits_fail(explorer, "a wait ended with %s and left its ticket",
		             lk_err_name(err));
	if (err == LK_EBUSY && !caller->waiter.only_try)
		permits_fail(explorer, "a wait ended with LK_EBUSY");
	explorer->limited += err == LK_ELIMIT;
}

static void check_result(struct permits_caller *caller, enum permits_state was)
{
	struct permits_explorer *explorer = caller->actor->explorer;
	lk_err err = caller->waiter.why.err;

	if (was == PERMITS_ACQUIRING)
		check_acquired(caller, err);
	if (!explorer->faults && (err == LK_ECONN || err == LK_EUNKNOWN))
		permits_fail(explorer, "%s without a fault", lk_err_name(err));
	if (was == PERMITS_RELEASING && err == LK_OK && !caller->was_valid)
		permits_fail(explorer, "the release of a lapsed hold succeeded");
	if (was == PERMITS_RELEASING && err == LK_ELOST && caller->was_valid && !explorer->faults &&
	    !caller->held->fixed)
		permits_fail(explorer, "the release of a valid hold found it lost");
}

static void finish(struct permits_caller *caller)
{
	struct permits_explorer *explorer = caller->actor->explorer;
	enum permits_state was = caller->state;
	const struct lk__hold *hold;

	check_result(caller, was);
	caller->nonce[0] = '\0';
	if (was == PERMITS_ACQUIRING && !caller->waiter.why.err) {
		caller->fence = caller->waiter.fence;
		explorer->waited += explorer->world.now_ns - caller->asked_ns > 100 * PERMITS_MS;
		if (caller->waiter.forget)
			permits_check_forgotten(explorer, caller);
		else
			permits_check_made(explorer, caller);
	}
	free(caller->waiter.spare_ticket);
	free(caller->waiter.spare_hold);
	free(caller->waiter.spare_place);
	caller->waiter.spare_ticket = NULL;
	caller->waiter.spare_hold = NULL;
	caller->waiter.spare_place = NULL;
	hold = caller->fence ? hold_of(caller) : NULL;
	caller->state = hold ? PERMITS_HOLDING : PERMITS_IDLE;
	if (!hold)
		permits_caller_plan(caller, explorer->idle_ms);
	else if (explorer->ending)
		permits_caller_plan(caller, 50); /* only the end is waited for */
	else if (was == PERMITS_RELEASING && permits_percent(explorer, 50))
		permits_caller_plan(caller, 5); /* some more of them */
	else
		permits_caller_plan(caller, explorer->hold_ms);
}

void permits_actor_settle(struct permits_actor *actor)
{
	struct permits_explorer *explorer = actor->explorer;
	struct lk__core *core = &actor->client->core;
	struct lk__waiter *waiter;
	struct lk__hold *hold;

	while ((waiter = lk__core_next_done(core)))
		finish((struct permits_caller *)waiter);
	/* Sometimes a loss stands in line for a while, as when a callback blocks. */
	while ((explorer->ending || permits_percent(explorer, 80)) &&
	       (hold = lk__core_next_lost(core))) {
		explorer->lost++;
		lk__core_told(hold);
	}
	if (!core->line || actor->flush_ns != LK__NEVER)
		return;
	actor->flush_ns = explorer->world.now_ns;
	if (permits_percent(explorer, 10))
		actor->flush_ns += permits_within_ms(explorer, 5);
	else
		permits_actor_send(actor);
}

void permits_actor_close(struct permits_actor *actor)
{
	actor->closed = true;
	actor->close_ns = LK__NEVER;
	lk__core_close(&actor->client->core, permits_now(actor->client));
	for (int i = 0; i < PERMITS_THREADS; i++) {
		struct permits_caller *caller = &actor->callers[i];
		caller->cancel_ns = LK__NEVER;
		if (caller->state == PERMITS_HOLDING)
			caller->state = PERMITS_IDLE;
		if (caller->state == PERMITS_ACQUIRING && caller->limit_ns == LK__NEVER)
			caller->limit_ns = permits_now(actor->client) + PERMITS_TIMEOUT_NS;
		caller->until_ns = LK__NEVER;
	}
}
