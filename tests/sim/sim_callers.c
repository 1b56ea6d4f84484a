/* SPDX-License-Identifier: MIT
 * Threads that acquire, hold and release: they stand for lock.c, semaphore.c and the code that uses
 * them. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

/* Find the thread's act after the current one, NULL = none.  A new process skips acts in the
 * past. */
static const struct sim_act *next_act(const struct sim_caller *caller)
{
	const struct sim *sim = caller->client->sim;
	const struct sim_act *act = caller->act ? caller->act + 1 : sim->plan->acts;

	for (; act < sim->plan->acts + sim->plan->act_count; act++)
		if (act->client == caller->client->slot && act->thread == caller->index &&
		    (caller->act || SIM_START_NS + act->at_ns >= sim->now_ns))
			return act;
	return NULL;
}

void sim_caller_plan(struct sim_caller *caller, int64_t ns)
{
	struct sim *sim = caller->client->sim;

	if (sim->plan->acts && caller->doing == SIM_HOLDING) {
		caller->next_ns = sim->now_ns + caller->act->hold_ns;
	} else if (sim->plan->acts) {
		caller->act = next_act(caller);
		caller->next_ns = caller->act ? SIM_START_NS + caller->act->at_ns : LK__NEVER;
	} else if (caller->doing == SIM_HOLDING && !sim->ending && sim->pace == 1 &&
	           !sim_draw(&caller->random, 400)) {
		caller->next_ns = sim->now_ns + sim_within(&caller->random, 8 * SIM_S);
	} else {
		caller->next_ns = sim->now_ns + sim_within(&caller->random, ns / sim->pace);
	}
}

void sim_caller_begin(struct sim_caller *caller, enum sim_doing doing)
{
	struct sim_client *client = caller->client;
	struct sim *sim = client->sim;
	struct lk__session *session = caller->queue->name->session;

	for (int i = 0; i < sim->quorum.count; i++)
		if (!client->lanes[i].session.users)
			lk__session_wakes(&client->lanes[i].session, sim_local(client));
	if (!session->users)
		lk__session_wakes(session, sim_local(client));
	caller->waiter = (struct lk__op){
		.queue = caller->queue,
		.handle = caller,
		.owner = caller->owner,
		.reports_loss = true,
		.max_hold_ms = caller->waiter.max_hold_ms,
	};
	caller->doing = doing;
	sim->quorum.calls++;
	caller->cancel_ns = caller->next_ns = LK__NEVER;
	caller->waits = false;
	caller->until_ns = sim_local(client);
	caller->began_ns = sim->now_ns;
	caller->epoch = sim->names[caller->name].epoch;
	caller->step_number = 0;
	caller->nonce[0] = '\0';
	caller->gave_up = LK_OK;
}

void sim_caller_limit(struct sim_caller *caller, int64_t wait_ns)
{
	caller->waiter.only_try = !wait_ns;
	if (!wait_ns)
		return;
	caller->waits = true;
	caller->until_ns = wait_ns == LK__NEVER ? LK__NEVER : sim_local(caller->client) + wait_ns;
	caller->waiter.until_ns = caller->until_ns;
}

bool sim_caller_is_inside(const struct sim_caller *caller)
{
	return caller->doing != SIM_IDLE && caller->doing != SIM_HOLDING &&
	       (caller->doing != SIM_ASKING || caller->query);
}

void sim_caller_free(struct sim_caller *caller)
{
	free(caller->waiter.spare_ticket);
	free(caller->waiter.spare_hold);
	free(caller->waiter.spare_queue);
	free(caller->waiter.spare_step);
	lk__legs_free(caller->waiter.spare_legs);
	memset(&caller->waiter, 0, sizeof(caller->waiter));
	caller->doing = SIM_IDLE;
}

static void free_spares(struct sim_caller *caller)
{
	struct lk__op *waiter = &caller->waiter;

	free(waiter->spare_ticket);
	free(waiter->spare_hold);
	free(waiter->spare_queue);
	free(waiter->spare_step);
	lk__legs_free(waiter->spare_legs);
	waiter->spare_legs = NULL;
	waiter->spare_ticket = NULL;
	waiter->spare_hold = NULL;
	waiter->spare_queue = NULL;
	waiter->spare_step = NULL;
}

/* ---- Acquire ------------------------------------------------------------------------------ */

static void limit_wait(struct sim_caller *caller)
{
	struct sim_random *random = &caller->random;
	unsigned kind = (unsigned)sim_draw(random, 20);
	int64_t wait_ns = sim_within(random, kind < 12 ? 4 * SIM_S : 20 * SIM_S);
	bool cancels = sim_percent(random, 8);
	int64_t cancel_ns = sim_within(random, SIM_S);

	if (kind < 4)
		wait_ns = 0;
	else if (kind >= 18)
		wait_ns = LK__NEVER;
	else if (!wait_ns)
		wait_ns = 1;
	sim_caller_limit(caller, wait_ns);
	if (cancels && wait_ns)
		caller->cancel_ns = caller->client->sim->now_ns + cancel_ns;
}

/* Begin the acquisition that caller describes. */
static void start_call(struct sim_caller *caller, bool forgets)
{
	struct sim_client *client = caller->client;
	const struct sim_name *name = &client->sim->names[caller->name];
	struct lk__op *waiter = &caller->waiter;

	waiter->spare_ticket = malloc(sizeof(*waiter->spare_ticket));
	waiter->spare_hold = malloc(sizeof(*waiter->spare_hold));
	if (client->sim->plan->quorum)
		waiter->spare_legs = lk__legs_new((unsigned)client->sim->plan->quorum);
	sim_trace(client->sim, client, "thread %d %s %s, lease %lld ms %c", caller->index,
	          waiter->only_try ? "tries" : "wants", name->text,
	          (long long)caller->queue->lease_ms, caller->queue->fixed ? 'f' : 'r');
	if (name->kind == LK_KIND_LOCK) {
		lk__core_acquire(&client->core, sim_local(client), waiter);
		return;
	}
	waiter->permits = caller->count;
	waiter->forget = caller->queue->fixed && forgets && !client->sim->plan->etcd;
	waiter->spare_queue = malloc(sizeof(*waiter->spare_queue));
	lk__core_acquire_permits(&client->core, sim_local(client), waiter);
}

static void acquire(struct sim_caller *caller)
{
	struct sim_client *client = caller->client;
	const struct sim_plan *plan = client->sim->plan;
	const struct sim_name *name = &client->sim->names[caller->name];
	struct sim_random *random = &caller->random;
	uint32_t limit = sim_percent(random, 80) ? (plan->capacity + 1) / 2 : plan->capacity;
	bool second = sim_percent(random, name->rate ? 85 : 20) && !plan->crowd;
	bool forgets = sim_percent(random, plan->forget_percent);

	caller->waiter.max_hold_ms =
		sim_percent(random, 8) ? 1 + (int64_t)sim_draw(random, 2000) : 0;
	caller->queue = client->queues[caller->name][second];
	caller->owner = name->kind == LK_KIND_LOCK ? (uint64_t)caller->index + 1 : 0;
	caller->count = 1 + (uint32_t)sim_draw(random, limit);
	caller->depth = 0;
	sim_caller_begin(caller, SIM_ACQUIRING);
	limit_wait(caller);
	start_call(caller, forgets);
}

/* Begin the current act of a scene. */
static void act(struct sim_caller *caller)
{
	struct sim_client *client = caller->client;
	const struct sim_name *name = &client->sim->names[caller->act->name];

	caller->name = caller->act->name;
	if (name->kind == LK_KIND_LATCH) {
		sim_latch_act(caller, caller->act);
		return;
	}
	caller->waiter.max_hold_ms = 0;
	caller->queue = client->queues[caller->name][name->rate];
	caller->owner = name->kind == LK_KIND_LOCK ? (uint64_t)caller->index + 1 : 0;
	caller->count = 1;
	caller->depth = 0;
	sim_caller_begin(caller, SIM_ACQUIRING);
	sim_caller_limit(caller, caller->act->wait_ns);
	start_call(caller, true);
}

/* A quorum has locks only, and etcd no rates. */
static uint32_t names_of(const struct sim *sim)
{
	uint32_t rates = sim->plan->etcd ? 1u << SIM_RATE : 0;
	uint32_t known = sim->plan->quorum ? (1u << SIM_LOCKS) - 1 : ~rates;
	uint32_t names = sim->plan->names & known;

	return names ? names : 1;
}

static void begin(struct sim_caller *caller)
{
	struct sim *sim = caller->client->sim;
	int name;

	if (sim->plan->acts) {
		act(caller);
		return;
	}
	name = (int)sim_draw(&caller->random, SIM_NAMES);
	/* A thread that waits for a rate or a latch acquires nothing else meanwhile. */
	if (name > 4 && sim->pace >= 8 && sim_percent(&caller->random, 85))
		name = (int)sim_draw(&caller->random, 4);
	while (!(names_of(sim) >> name & 1))
		name = (name + 1) % SIM_NAMES;
	if (sim->plan->names_out >> name & 1) {
		sim_caller_plan(caller, sim->plan->idle_ns);
		return;
	}
	caller->name = name;
	if (sim->names[name].kind == LK_KIND_LATCH)
		sim_latch_begin(caller);
	else
		acquire(caller);
}

/* ---- Hold --------------------------------------------------------------------------------- */

static const struct lk__hold *hold_of(const struct sim_caller *caller)
{
	return lk__core_hold(caller->queue->name, caller->owner);
}

static void go_idle(struct sim_caller *caller)
{
	caller->doing = SIM_IDLE;
	sim_caller_plan(caller, caller->client->sim->plan->idle_ns);
}

static bool is_valid(const struct sim_caller *caller)
{
	const struct lk__hold *hold = hold_of(caller);

	return hold && lk__hold_left_ns(hold, sim_local(caller->client)) > 0;
}

/* The handle is closed, or the thread ends. */
static void drop(struct sim_caller *caller, bool thread)
{
	struct sim_client *client = caller->client;
	int64_t now_ns = sim_local(client);

	sim_trace(client->sim, client, "thread %d %s", caller->index,
	          thread ? "ends" : "closes its handle");
	if (thread)
		lk__core_thread_ended(&client->core, now_ns, caller->owner);
	else
		lk__core_drop(&client->core, now_ns, caller->queue->name, caller);
	go_idle(caller);
}

static void give_back(struct sim_caller *caller, uint32_t permits)
{
	struct sim_client *client = caller->client;
	int64_t now_ns = sim_local(client);

	caller->was_valid = is_valid(caller);
	caller->least = caller->count;
	sim_caller_begin(caller, SIM_RELEASING);
	if (client->sim->plan->quorum)
		sim_quorum_check_release(caller);
	sim_trace(client->sim, client, "thread %d releases %s%s", caller->index,
	          caller->queue->name->bytes, permits ? " in part" : "");
	if (client->sim->names[caller->name].kind == LK_KIND_LOCK) {
		lk__core_release(&client->core, now_ns, &caller->waiter);
		return;
	}
	caller->waiter.permits = permits;
	if (permits && permits < caller->count && caller->was_valid)
		caller->count -= permits;
	lk__core_release_permits(&client->core, now_ns, &caller->waiter);
}

static void extend(struct sim_caller *caller)
{
	struct sim_client *client = caller->client;

	caller->was_valid = is_valid(caller);
	sim_caller_begin(caller, SIM_EXTENDING);
	if (client->sim->plan->quorum)
		sim_quorum_check_release(caller);
	caller->waiter.lease_ms =
		caller->queue->lease_ms / 2 * (int64_t)(1 + sim_draw(&caller->random, 4));
	if (client->sim->plan->quorum && caller->waiter.lease_ms > SIM_LONGEST_MS)
		caller->waiter.lease_ms = SIM_LONGEST_MS;
	/* Longer ones are not supported. */
	if (client->sim->plan->etcd && caller->waiter.lease_ms > caller->queue->lease_ms)
		caller->waiter.lease_ms = caller->queue->lease_ms;
	lk__core_extend(&client->core, sim_local(client), &caller->waiter);
}

/* Re-enter a lock; release some of the permits. */
static void use_otherwise(struct sim_caller *caller)
{
	struct sim_client *client = caller->client;
	struct sim_random *random = &caller->random;

	if (client->sim->names[caller->name].kind == LK_KIND_LOCK) {
		caller->was_valid = is_valid(caller);
		sim_caller_begin(caller, SIM_ACQUIRING); /* re-entry needs no allocation */
		caller->depth++;
		lk__core_acquire(&client->core, sim_local(client), &caller->waiter);
	} else if (sim_percent(random, 5)) {
		give_back(caller, caller->count + 1); /* more than it has */
	} else {
		give_back(caller, 1 + (uint32_t)sim_draw(random, caller->count));
	}
}

/* Does it have a hold, or did it until a moment ago? */
static void use(struct sim_caller *caller)
{
	struct sim *sim = caller->client->sim;
	struct sim_random *random = &caller->random;
	bool releases = sim_percent(random, sim->plan->release_percent) || sim->ending;
	unsigned kind = (unsigned)sim_draw(random, 20);

	if (releases)
		give_back(caller, 0);
	else if (kind == 0)
		drop(caller, false);
	else if (kind == 1 && sim->names[caller->name].kind == LK_KIND_LOCK)
		drop(caller, true);
	else if (kind < 11)
		use_otherwise(caller);
	else
		extend(caller);
}

/* ---- Ends --------------------------------------------------------------------------------- */

void sim_caller_note(struct sim_caller *caller, lk_err why)
{
	struct sim_client *client = caller->client;
	const struct lk__wait_queue *queue = caller->waiter.queue;

	if (caller->gave_up)
		return;
	if (caller->waiter.awaits == LK__FOR_GRANT && queue->ticket && !queue->hold &&
	    queue->first == &caller->waiter && queue->last == &caller->waiter)
		memcpy(caller->nonce, queue->ticket->nonce, LK__NONCE_SIZE);
	sim_trace(client->sim, client, "thread %d stops waiting: %s", caller->index,
	          lk_err_name(why));
	caller->cancel_ns = LK__NEVER;
	caller->gave_up = why;
	caller->gave_up_ns = client->sim->now_ns;
}

void sim_caller_cancel(struct sim_caller *caller)
{
	struct sim_client *client = caller->client;

	sim_caller_note(caller, LK_ECANCELED);
	lk__core_give_up(&client->core, sim_local(client), &caller->waiter, LK_ECANCELED);
}

void sim_caller_step(struct sim_caller *caller)
{
	struct sim_client *client = caller->client;

	if (caller->doing == SIM_IDLE && (client->sim->ending || client->closed))
		caller->next_ns = LK__NEVER;
	else if (caller->doing == SIM_IDLE)
		begin(caller);
	else if (caller->doing == SIM_HOLDING)
		use(caller);
	else /* it wakes up at its deadline by itself */
		sim_client_tick(client);
}

static void acquired(struct sim_caller *caller)
{
	struct sim *sim = caller->client->sim;

	if (sim->names[caller->name].kind != LK_KIND_LOCK)
		caller->owner = caller->waiter.fence;
	if (sim->now_ns - caller->began_ns > 2 * sim->plan->delay_ns)
		sim->tally.waits++;
	if (caller->waiter.forget)
		sim_check_forgotten(caller);
	else if (!caller->depth)
		sim_check_made(caller);
}

void sim_caller_done(struct sim_caller *caller)
{
	struct sim *sim = caller->client->sim;
	enum sim_doing was = caller->doing;
	lk_err err = caller->waiter.why.err;
	const struct lk__hold *hold;

	sim_trace(sim, caller->client, "thread %d returns %s", caller->index, lk_err_name(err));
	caller->cancel_ns = LK__NEVER;
	sim->tally.unknown += err == LK_EUNKNOWN;
	sim_check_counted(caller, was, err);
	if (was == SIM_ASKING) {
		sim_etcd_asked(caller, err);
		free_spares(caller);
		return;
	}
	if (was == SIM_AWAITING || was == SIM_STEPPING) {
		sim_latch_done(caller, was);
		free_spares(caller);
		go_idle(caller);
		return;
	}
	if (was == SIM_ACQUIRING && !caller->depth)
		sim_check_acquired(caller, err);
	else if (was == SIM_ACQUIRING)
		sim_check_reentered(caller, err);
	if (was == SIM_RELEASING)
		sim_check_released(caller, err);
	if (was == SIM_EXTENDING)
		sim_check_extended(caller, err);
	if (was == SIM_ACQUIRING && !err)
		acquired(caller);
	free_spares(caller);
	hold = caller->owner && !caller->waiter.forget ? hold_of(caller) : NULL;
	if (!hold) {
		go_idle(caller);
		return;
	}
	caller->doing = SIM_HOLDING;
	sim_caller_plan(caller, sim->ending ? 50 * SIM_MS : sim->plan->hold_ns);
}
