/* SPDX-License-Identifier: MIT
 * What a client does about sentinels, and what it believes because of a master that was replaced.
 *
 * The grants of a replaced master belong to a memory that goes on beside that of the new one.  They
 * exclude each other, and whatever the new master grants after its grace.  Two things are excused,
 * as cases (a) and (d) of docs/redis.md:
 *
 *   - its grants beside holds from before, which the new master has given back or, inside the
 *     grace, handed on: clients hear of a failover one after the other, and the old master serves
 *     those that have not
 *   - a belief that outlasts the grace, if no sentinel had named another server on that link when
 *     the old master confirmed the hold, or if its lease is too long to be covered */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

/* A client that does nothing for longer has paused, whatever its clock's drift. */
#define PAUSE_NS (1600 * SIM_MS)

static struct store_view before, after;

/* ---- Reports, and links --------------------------------------------------------------------- */

static bool leads_elsewhere(const struct sim_client *client, int place)
{
	const struct sim_watch *watch = &client->watch;

	if (place == SIM_UNAWARE || place == watch->place)
		return false;
	return client->lane->link || watch->dialing == SIM_CONNECTING;
}

void sim_check_report(struct sim_client *client, int sentinel, enum sim_saying saying, int place)
{
	struct sim_watch *watch = &client->watch;
	struct sim_watcher *watcher = &watch->watchers[sentinel];

	watch->had_link = client->lane->link;
	watch->must_cut = place != watcher->named && leads_elsewhere(client, place);
	if (watch->must_cut)
		watch->told_ns = client->sim->now_ns;
	if (saying == SIM_ANSWERS)
		watcher->answered = watcher->asked_round;
	if (saying == SIM_ANSWERS && place == watch->place && watcher->sent_ns > watch->named_ns)
		watch->named_ns = watcher->sent_ns;
	watcher->says = place;
	if (place != SIM_UNAWARE)
		watcher->named = place;
}

void sim_check_reported(struct sim_client *client, int sentinel)
{
	struct sim_watch *watch = &client->watch;

	if (watch->must_cut && leads_elsewhere(client, watch->watchers[sentinel].named))
		sim_fail(client->sim, PROMISE_LINK,
		         "client %d stays at server %d, and sentinel %d names server %d",
		         client->slot, watch->place, sentinel, watch->watchers[sentinel].named);
	if (!watch->must_cut && watch->had_link && !client->lane->link)
		sim_fail(client->sim, PROMISE_LINK,
		         "client %d leaves server %d, and sentinel %d says nothing new",
		         client->slot, watch->place, sentinel);
	watch->must_cut = watch->had_link = false;
}

void sim_check_ran(struct sim_client *client, int event)
{
	struct sim_watch *watch = &client->watch;
	int64_t now_ns = client->sim->now_ns;

	if (event == SIM_EXECUTE || event == SIM_PROBE || event == SIM_ORDER || event == SIM_ASKED)
		return; /* elsewhere */
	if (now_ns - watch->ran_ns > PAUSE_NS)
		watch->paused_ns = now_ns;
	watch->ran_ns = now_ns;
}

void sim_check_vouched(const struct sim_client *client, const struct lk__ticket *ticket)
{
	const struct sim_watch *watch = &client->watch;

	if (client->sim->plan->sentinels && watch->paused_ns > watch->named_ns &&
	    ticket->fence == ticket->last_fence) /* not handed over inside the client */
		sim_fail(client->sim, PROMISE_GRANT,
		         "client %d is granted by server %d, which no sentinel has named since its "
		         "pause",
		         client->slot, watch->place);
}

/* Of the sentinels that have answered a question of this attempt. */
static int votes_for(const struct sim_client *client, int place)
{
	int votes = 0;

	for (int i = 0; i < SIM_SENTINELS; i++) {
		const struct sim_watcher *watcher = &client->watch.watchers[i];
		votes += watcher->answered == client->watch.core.round && watcher->says == place;
	}
	return votes;
}

void sim_check_chosen(struct sim_client *client, int place)
{
	int votes = votes_for(client, place);

	if (!votes)
		sim_fail(client->sim, PROMISE_LINK,
		         "client %d dials server %d, which no sentinel names", client->slot, place);
	for (int i = 0; i < SIM_PLACES; i++)
		if (votes_for(client, i) > votes)
			sim_fail(client->sim, PROMISE_LINK,
			         "client %d dials server %d, and most sentinels name server %d",
			         client->slot, place, i);
}

/* Sentinels have told it that there is no such service, and none has named one yet. */
bool sim_check_is_unaware(const struct sim_client *client)
{
	bool is_unaware = false;

	if (!client->sim->plan->sentinels)
		return false;
	for (int i = 0; i < SIM_SENTINELS; i++) {
		if (client->watch.watchers[i].named >= 0)
			return false;
		is_unaware = is_unaware || client->watch.watchers[i].says == SIM_UNAWARE;
	}
	return is_unaware;
}

static int64_t later(int64_t one_ns, int64_t other_ns)
{
	return one_ns > other_ns ? one_ns : other_ns;
}

/* Since when that sentinel reaches the client and names the master; *news_ns: when what it says to
 * the client last changed. */
static int64_t right_since(const struct sim_client *client, int i, int64_t *news_ns)
{
	const struct sim *sim = client->sim;
	const struct sim_sentinel *sentinel = &sim->service.sentinels[i];
	const int64_t times[] = {sentinel->changed_ns, sentinel->mute_ns, sentinel->lie_ns,
	                         client->watch.watchers[i].blind_ns};
	int64_t since_ns = 0;

	for (int j = 0; j < 4; j++) {
		since_ns = later(since_ns, times[j]);
		if (times[j] <= sim->now_ns)
			*news_ns = later(*news_ns, times[j]);
	}
	return sentinel->named == sim->service.place ? since_ns : LK__NEVER;
}

int64_t sim_check_led_ns(const struct sim_client *client)
{
	int64_t first_ns = LK__NEVER, second_ns = LK__NEVER, news_ns = 0;

	for (int i = 0; i < SIM_SENTINELS; i++) {
		int64_t since_ns = right_since(client, i, &news_ns);
		if (since_ns < first_ns) {
			second_ns = first_ns;
			first_ns = since_ns;
		} else if (since_ns < second_ns) {
			second_ns = since_ns;
		}
	}
	return later(second_ns, news_ns);
}

/* ---- A replaced master ---------------------------------------------------------------------- */

static void look(const struct sim *sim, int index, struct store_view *view)
{
	const struct sim_name *name = &sim->names[index];
	const struct store_keys keys = {name->kind, name->main, name->queue, name->holds};

	store_look(sim->service.stale.store, &keys, view);
}

void sim_check_stale_before(struct sim *sim, const struct sim_call *call)
{
	look(sim, call->name, &before);
}

static int64_t grace_end_ns(const struct sim *sim)
{
	return sim->service.stale.since_ns + sim->plan->grace_ms * SIM_MS;
}

/* Its master has confirmed the hold: how long the client may believe in it by that. */
static void extend(struct sim *sim, struct sim_name *name, struct sim_grant *grant)
{
	const struct sim_client *client = &sim->clients[grant->slot];
	const struct lk__ticket *ticket;
	int64_t until_ns;

	if (sim_check_is_unanimous(sim))
		return; /* some replica will not confirm that */
	if (!client->alive || client->life != grant->life || !client->lane->link ||
	    client->lane->link->place != sim->service.stale.place)
		return; /* it will not hear of that */
	ticket = lk__ticket_find(&client->core, grant->nonce);
	if (!ticket)
		return;
	until_ns = sim_check_excused_until(client, ticket);
	if (!grant->excused || grant->excused_ns < until_ns)
		grant->excused_ns = until_ns;
	grant->is_kept = false;
	grant->excused = true;
	/* The new master's copy had it for as long; now it is of the old memory only. */
	if (grant->epoch != sim->service.stale.epochs[name->index])
		grant->era = sim->service.stale.eras[name->index];
	grant->epoch = sim->service.stale.epochs[name->index];
	if (until_ns <= grace_end_ns(sim) || grant->era == SIM_NO_ERA)
		return;
	if (until_ns - sim->now_ns <= (sim->plan->grace_ms - SIM_FOLLOW_MS) * SIM_MS &&
	    client->watch.told_ns >= client->lane->linked_ns)
		return;
	sim->tally.uncovered++;
	grant->era = SIM_NO_ERA;
}

static void note(struct sim *sim, struct sim_name *name, const struct store_ticket *hold)
{
	const struct sim_stale *stale = &sim->service.stale;
	struct sim_grant *grant = &name->grants[name->grant_count++ % SIM_GRANTS];

	*grant = (struct sim_grant){
		.fence = hold->fence,
		.epoch = stale->epochs[name->index],
		.era = stale->eras[name->index],
		.regime = -1,
		.slot = sim_slot_of(hold),
		.life = sim_life_of(hold),
		.permits = hold->held,
		.lease_ms = hold->lease_ms,
		.granted_ns = sim->now_ns,
		.era_ns = sim->now_ns,
		.counted_ns = sim->now_ns,
		.stale = true,
		.new_ns = stale->since_ns,
		.apart_ns = grace_end_ns(sim),
	};
	memcpy(grant->nonce, hold->nonce, sizeof(grant->nonce));
	sim->tally.grants++;
	sim->tally.stale_grants++;
	if (hold->fence > name->stale_max)
		name->stale_max = hold->fence;
	/* Its client forgets what it used up; in the new master's copy, the ticket waits. */
	if (strstr(hold->text, ":n:"))
		sim_check_ghost(sim, hold->text);
	extend(sim, name, grant);
}

/* What it counted, the new master does not know. */
static void forget_step(struct sim *sim, const struct sim_call *call)
{
	struct sim_client *client = &sim->clients[call->slot];

	for (int i = 0; i < SIM_THREADS; i++)
		if (client->life == call->life && client->callers[i].step_number == call->number)
			client->callers[i].epoch = -1;
}

static void check_reply(struct sim *sim, const struct sim_call *call)
{
	struct lk__resp *resp = lua_store_parse(&call->reply);

	if (!lk__codec_unknown_script(resp))
		sim_keep(sim, PROMISE_SCRIPT, promise_script(resp));
	lk__resp_free(resp);
}

void sim_check_stale_after(struct sim *sim, const struct sim_call *call)
{
	struct sim_name *name = &sim->names[call->name];

	sim_trace(sim, NULL, "c%02d.%d: the old master runs %s: %.*s", call->slot, call->life,
	          sim_call_name(call), (int)(call->reply.len > 90 ? 90 : call->reply.len),
	          sim_flat(call->reply.data, call->reply.len));
	check_reply(sim, call);
	if (call->kind == LK__STEP)
		forget_step(sim, call);
	else if (call->kind == LK__LEAVE)
		sim_check_ghost(sim, call->ticket); /* in the new master's copy it stays */
	if (name->kind == LK_KIND_LATCH)
		return;
	look(sim, call->name, &after);
	name->stale_capacity = after.capacity;
	for (int i = 0; i < after.hold_count; i++) {
		const struct store_ticket *is = &after.holds[i];
		const struct store_ticket *was = store_hold(&before, is->text);
		struct sim_grant *grant = sim_grant_of(name, is->fence, is->nonce);
		if (!grant && (!was || was->fence != is->fence))
			note(sim, name, is);
		else if (grant && call->request && !strcmp(call->ticket, is->text))
			extend(sim, name, grant);
	}
}
