/* SPDX-License-Identifier: MIT
 * Check the change that a script made to a name, read from outside, and the change that every step
 * made to a client. */
#include "sim.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define QUIET_NS (25 * SIM_S) /* longer than a head of the queue may stay silent */

/* The first failure counts. */
void sim_fail(struct sim *sim, enum promise promise, const char *fmt, ...)
{
	struct sim_result *result = sim->result;
	va_list args;

	if (result->failed)
		return;
	va_start(args, fmt);
	vsnprintf(result->text, sizeof(result->text), fmt, args);
	va_end(args);
	if (sim->plan->only && !strstr(result->text, sim->plan->only))
		return;
	result->failed = true;
	result->at_ns = sim->now_ns - SIM_START_NS;
	result->check = promise_table[promise].id;
	result->sentence = promise_table[promise].sentence;
	sim_trace(sim, NULL, "FAILED %s: %s", result->check, result->text);
}

void sim_keep(struct sim *sim, enum promise promise, const char *wrong)
{
	if (wrong)
		sim_fail(sim, promise, "%s", wrong);
}

void sim_keep_of(struct sim *sim, const struct sim_name *name, enum promise promise,
                 const char *wrong)
{
	if (wrong)
		sim_fail(sim, promise, "%s: %s", name->text, wrong);
}

/* ---- Grants ------------------------------------------------------------------------------- */

/* Compare the ticket, too: a store whose counter and clock are both behind issues a fence again. */
struct sim_grant *sim_grant_of(struct sim_name *name, uint64_t fence, const char *nonce)
{
	int least = name->grant_count > SIM_GRANTS ? name->grant_count - SIM_GRANTS : 0;

	for (int i = name->grant_count - 1; i >= least; i--) {
		struct sim_grant *grant = &name->grants[i % SIM_GRANTS];
		if (grant->fence == fence && !strcmp(grant->nonce, nonce))
			return grant;
	}
	return NULL;
}

struct sim_grant *sim_grant_to(struct sim_name *name, uint64_t fence,
                               const struct sim_client *client)
{
	int least = name->grant_count > SIM_GRANTS ? name->grant_count - SIM_GRANTS : 0;

	for (int i = name->grant_count - 1; i >= least; i--) {
		struct sim_grant *grant = &name->grants[i % SIM_GRANTS];
		if (grant->fence == fence && grant->slot == client->slot &&
		    grant->life == client->life)
			return grant;
	}
	return NULL;
}

/* The changes made by one script. */
struct script {
	struct sim *sim;
	struct sim_name *name;
	const struct store_view *before, *after;
	const struct sim_call *call; /* NULL = from outside */
	struct lk__answer answer;
	struct promise_run run;
};

/* A break ends the waits of a quorum's ticket as well. */
static bool is_own(const struct script *script, const char *ticket)
{
	const char *own = script->call ? script->call->ticket : script->sim->quorum.broken;

	return store_is_same(own, ticket);
}

static void note_grant(const struct script *script, const struct store_ticket *hold)
{
	struct sim *sim = script->sim;
	struct sim_name *name = script->name;
	struct sim_grant *grant = &name->grants[name->grant_count++ % SIM_GRANTS];
	struct sim_pending *pending;

	*grant = (struct sim_grant){
		.fence = hold->fence,
		.epoch = name->epoch,
		.era = name->era,
		.regime = name->regime,
		.slot = sim_slot_of(hold),
		.life = sim_life_of(hold),
		.permits = hold->held,
		.lease_ms = hold->lease_ms,
		.granted_ns = sim->now_ns,
		.era_ns = sim->now_ns,
		.in_grace = script->call && script->call->kind == LK__LEAVE,
	};
	memcpy(grant->nonce, hold->nonce, sizeof(grant->nonce));
	if (sim->plan->quorum)
		sim->tally.legs++;
	else
		sim->tally.grants++;
	if (is_own(script, hold->text) || sim->pending_count == SIM_PENDING)
		return;
	pending = &sim->pending[sim->pending_count++];
	*pending = (struct sim_pending){name->index,         grant->slot, grant->life,
	                                sim->quorum.runs_at, sim->now_ns, {0}};
	memcpy(pending->nonce, hold->nonce, sizeof(pending->nonce));
}

/* No waiter that was in the queue before and still is arrived earlier. */
static void check_order(const struct script *script, const struct store_ticket *hold)
{
	const struct store_ticket *was = store_wait(script->before, hold->text);
	int64_t arrival_us = was                ? was->arrival_us
	                     : hold->arrival_us ? hold->arrival_us
	                                        : INT64_MAX;
	struct promise_waiter queue[STORE_TICKETS];

	/* It returns to its queue position; or to an earlier one than it got after the store forgot
	 * it, when the first reply arrives at last. */
	if (is_own(script, hold->text) && script->call->arrival_us &&
	    script->call->arrival_us < arrival_us)
		arrival_us = script->call->arrival_us;
	for (int i = 0; i < script->before->queued; i++) {
		const struct store_ticket *other = &script->before->queue[i];
		queue[i] = (struct promise_waiter){other->text, other->arrival_us,
		                                   store_wait(script->after, other->text)};
	}
	sim_keep_of(script->sim, script->name, PROMISE_FIFO,
	            promise_fifo(queue, script->before->queued, hold->text, arrival_us));
}

/* Nothing prevented the process of the last local fence from reporting it within its lease: it had
 * a link, and since then it has not died or been stopped, no request of it was lost, held up or
 * refused, no operator broke the hold, and the store has lost no memory.  (A lease as short as the
 * way to the store may end too early.) */
static bool was_able_to_report(const struct sim *sim, const struct sim_name *name)
{
	const struct sim_grant *grant = name->local;
	const struct sim_client *client = &sim->clients[grant->slot];

	return client->alive && client->life == grant->life && client->lane->link &&
	       !grant->broken && grant->epoch == name->epoch &&
	       client->disturbed_ns < name->local_ns &&
	       grant->lease_ms * SIM_MS >= 2 * sim_ways_ns(sim, 2);
}

/* The last local fence was never reported to the store, and the store's clock is behind it: the
 * store may issue the fence again. */
static bool is_unreported(const struct script *script, uint64_t fence)
{
	const struct sim_name *name = script->name;

	return fence > name->store_max && (uint64_t)sim_server_us(script->sim) <= name->fence_max &&
	       name->local && !was_able_to_report(script->sim, name);
}

/* A holder's leave or renewal reports its last local fence. */
static void note_report(const struct script *script)
{
	const struct sim_call *call = script->call;
	bool done = script->answer.kind == LK__LEFT || script->answer.kind == LK__KEPT;

	if (call && done && call->fence > script->name->store_max &&
	    (call->kind == LK__RECLAIM || store_hold(script->before, call->ticket)))
		script->name->store_max = call->fence;
}

static void check_new(const struct script *script, const struct store_ticket *hold)
{
	struct sim_name *name = script->name;
	const char *wrong;

	if (hold->fence <= name->fence_max && is_unreported(script, hold->fence)) {
		script->sim->tally.fences_again++;
		name->fence_max = 0;
		name->regime++;
	}
	wrong = promise_fence(name->fence_max, hold->fence);
	if (wrong)
		sim_fail(script->sim, PROMISE_FENCE, "%s: the store: %s", name->text, wrong);
	else
		name->fence_max = name->store_max = hold->fence;
	if (!script->sim->clock_was_back && !script->run.in_grace)
		sim_keep_of(script->sim, name, PROMISE_FENCE,
		            promise_fence(name->stale_max, hold->fence));
	if (hold->fence > script->sim->fence_max)
		script->sim->fence_max = hold->fence;
	check_order(script, hold);
	note_grant(script, hold);
}

/* ---- Holds that stay, and that go --------------------------------------------------------- */

/* The server's time at which a client stops believing in a hold. */
static int64_t belief_us(const struct sim_client *client, const struct lk__hold *hold)
{
	int64_t until_ns = sim_true(client, hold->ticket->valid_until_ns);

	return SIM_EPOCH_US + client->sim->store_offset_us + until_ns / 1000;
}

/* What the client knows of a ticket in the store, NULL = nothing. */
static const struct lk__ticket *ticket_of(const struct sim_client *client,
                                          const struct store_ticket *ticket)
{
	if (!client)
		return NULL;
	if (client->sim->plan->quorum)
		return sim_quorum_leg(client, ticket);
	return lk__ticket_find(&client->core, ticket->nonce);
}

static const struct lk__hold *hold_of_ticket(struct sim *sim, const struct store_ticket *ticket)
{
	const struct sim_client *client = sim_client_of(sim, ticket);
	const struct lk__ticket *own = ticket_of(client, ticket);

	return own && own->state == LK__HOLDING ? own->queue->hold : NULL;
}

/* It survived a loss of memory, and the store keeps it for as long as its holder believes in it:
 * from now on it counts like any other. */
static void adopt(const struct script *script, struct sim_grant *grant,
                  const struct store_ticket *is)
{
	struct sim *sim = script->sim;
	const struct lk__hold *hold = hold_of_ticket(sim, is);

	if (grant->epoch == script->name->epoch || !hold ||
	    sim_check_kept_us(sim, is) < belief_us(sim_client_of(sim, is), hold))
		return;
	sim_check_join(sim, script->name, grant);
}

static void check_same(const struct script *script, const struct store_ticket *was,
                       const struct store_ticket *is)
{
	struct sim *sim = script->sim;
	int64_t now_us = sim_server_us(sim);
	struct sim_grant *grant = sim_grant_of(script->name, is->fence, is->nonce);

	sim_keep_of(sim, script->name, PROMISE_LEASE, promise_lease(was, is, now_us));
	if (!grant)
		return;
	if (is->end_us - now_us >= is->lease_ms * 1000) {
		grant->counted_ns = sim->now_ns;
		grant->whole = true;
	}
	if (is->end_us > was->end_us && !sim->plan->quorum)
		adopt(script, grant, is);
}

/* Its own reclaim brings a hold back that the store had granted once; the fence stays. */
static void check_reclaimed(const struct script *script, const struct store_ticket *is)
{
	struct sim_grant *grant = sim_grant_of(script->name, is->fence, is->nonce);

	if (grant && !grant->forgotten)
		adopt(script, grant, is);
	else
		sim_fail(script->sim, PROMISE_GRANT, "a reclaim of what was never granted: %s",
		         is->text);
}

/* A later holder takes the lock back from an earlier one, which an older copy brought back.  Where
 * the grace is meant for the loss, the earlier one does not believe in its hold any more. */
static bool is_superseded(const struct script *script, const struct store_ticket *was,
                          struct sim_grant *grant)
{
	const struct store_ticket *is = script->call && script->call->kind == LK__RECLAIM
	                                        ? store_hold(script->after, script->call->ticket)
	                                        : NULL;
	const struct sim_grant *later =
		is ? sim_grant_of(script->name, is->fence, is->nonce) : NULL;
	const struct lk__hold *hold = hold_of_ticket(script->sim, was);

	if (script->name->kind != LK_KIND_LOCK || !later || is->fence <= was->fence)
		return false;
	if (!grant)
		return true;
	if (hold && sim_check_excludes(grant, later) &&
	    lk__hold_left_ns(hold, sim_local(sim_client_of(script->sim, was))))
		return false;
	sim_check_excuse(script->sim, script->name, grant);
	grant->broken = true;
	return true;
}

/* A hold of an older copy makes room.  Its holder may believe in it, and takes it back then.  A
 * client without a grace, which was granted permits in that of others, cannot. */
static bool is_stale(const struct script *script, const struct store_ticket *was,
                     struct sim_grant *grant)
{
	struct sim *sim = script->sim;

	if (!script->call || script->call->kind != LK__RECLAIM || !grant || was->final ||
	    was->mark == script->run.mark || !script->run.in_grace)
		return false;
	sim_check_excuse(sim, script->name, grant);
	grant->epoch = script->name->epoch - 1;
	grant->broken |= sim->plan->graceless >> grant->slot & 1;
	return true;
}

static void check_gone(const struct script *script, const struct store_ticket *was)
{
	struct sim *sim = script->sim;
	struct sim_grant *grant = sim_grant_of(script->name, was->fence, was->nonce);
	const struct lk__hold *hold = hold_of_ticket(sim, was);
	const char *wrong;

	if (is_superseded(script, was, grant) || is_stale(script, was, grant))
		return;
	if (!script->call || (grant && (grant->broken || grant->epoch != script->name->epoch)))
		return;
	wrong = promise_owner(&script->run, was);
	if (wrong)
		sim_keep_of(sim, script->name, PROMISE_OWNER, wrong);
	else if (sim->plan->quorum)
		return; /* sim_quorum_check_client() looks at each leg */
	else if (hold && lk__hold_left_ns(hold, sim_local(sim_client_of(sim, was))))
		sim_fail(sim, PROMISE_OWNER, "the store ended %s and its holder believes in it",
		         was->text);
	else if (grant && grant->forgotten && was->end_us > sim_server_us(sim))
		sim_fail(sim, PROMISE_OWNER, "a leave for detached permits: %s", was->text);
}

static void check_holds(const struct script *script)
{
	for (int i = 0; i < script->before->hold_count; i++)
		if (!store_hold(script->after, script->before->holds[i].text))
			check_gone(script, &script->before->holds[i]);
	for (int i = 0; i < script->after->hold_count; i++) {
		const struct store_ticket *is = &script->after->holds[i];
		const struct store_ticket *was = store_hold(script->before, is->text);
		bool is_new = !was || was->fence != is->fence;
		if (is_new && script->call && script->call->kind == LK__RECLAIM &&
		    is_own(script, is->text))
			check_reclaimed(script, is);
		else if (is_new)
			check_new(script, is);
		check_same(script, was && was->fence == is->fence ? was : is, is);
	}
}

/* ---- The queue ---------------------------------------------------------------------------- */

/* It reaches the server, for so long. */
static bool was_there(const struct sim_client *client)
{
	const struct sim *sim = client->sim;

	if (sim->plan->quorum)
		return sim_quorum_is_linked(client, sim->quorum.runs_at, sim->now_ns - QUIET_NS);
	return sim_is_fine(client, QUIET_NS);
}

/* A waiter that receives and asks keeps its queue position. */
static void check_passed_over(const struct script *script, const struct store_ticket *wait)
{
	const struct sim_client *client = sim_client_of(script->sim, wait);
	const struct lk__ticket *ticket;

	if (!client || store_wait(script->after, wait->text) ||
	    store_hold(script->after, wait->text) || is_own(script, wait->text) ||
	    !was_there(client) || (wait->permits && wait->permits > script->after->capacity))
		return;
	ticket = ticket_of(client, wait);
	if (ticket && (ticket->state == LK__ASKING || ticket->state == LK__WAITING))
		sim_fail(script->sim, PROMISE_FIFO, "%s lost its queue position", wait->text);
}

/* ---- One script --------------------------------------------------------------------------- */

static struct store_view before;

/* The record of a name, of a quorum that of the member where the script runs. */
static struct sim_name *name_at(struct sim *sim, int index)
{
	return sim->plan->quorum ? sim_quorum_name(sim, sim->quorum.runs_at, index)
	                         : &sim->names[index];
}

void sim_look(struct sim *sim, const struct sim_name *name, struct store_view *view)
{
	const struct store_keys keys = {name->kind, name->main, name->queue, name->holds};

	if (sim->plan->cluster)
		sim_cluster_select(sim, name->index);
	store_look(sim->store, &keys, view);
	/* While the slot moves, a release may leave the end of its hold, over now. */
	for (int i = 0; sim->plan->cluster && i < view->hold_count; i++)
		if (!view->holds[i].fence && view->holds[i].end_us <= sim_server_us(sim))
			view->holds[i--] = view->holds[--view->hold_count];
}

void sim_check_before(struct sim *sim, int index)
{
	sim_look(sim, name_at(sim, index), &before);
	if (sim->names[index].kind == LK_KIND_LATCH)
		sim_check_latch_now(sim, &sim->names[index]);
}

static void read_answer(struct script *script)
{
	const struct lk__buf *reply = &script->call->reply;
	struct lk__resp *resp = lua_store_parse(reply);
	static struct lk__why why;

	if (!lk__codec_unknown_script(resp))
		sim_keep(script->sim, PROMISE_SCRIPT, promise_script(resp));
	if (script->call->kind == SIM_QUESTION)
		script->answer.kind = LK__FAILED;
	else
		lk__codec_answer(resp, "the store", &script->answer, &why);
	lk__resp_free(resp);
}

static void tell(struct sim *sim, const struct sim_name *name, const struct sim_call *call)
{
	if (!sim->trace)
		return;
	if (call)
		sim_trace(sim, NULL, "c%02d.%d: the store runs %s: %.*s", call->slot, call->life,
		          sim_call_name(call), (int)(call->reply.len > 90 ? 90 : call->reply.len),
		          sim_flat(call->reply.data, call->reply.len));
	else
		sim_trace(sim, NULL, "an operator was there");
	sim_trace_name(sim, name);
}

void sim_check_adopt(struct sim *sim, struct sim_name *name, const struct sim_call *call)
{
	const struct script script = {
		.sim = sim, .name = name, .before = &before, .after = &name->view, .call = call};

	before.hold_count = 0; /* its earlier permits are detached */
	for (int i = 0; i < name->view.hold_count; i++) {
		const struct store_ticket *hold = &name->view.holds[i];
		if (sim_grant_of(name, hold->fence, hold->nonce))
			continue;
		check_new(&script, hold);
		check_same(&script, hold, hold);
	}
}

static void check_tickets(struct script *script)
{
	const struct sim_call *call = script->call;
	struct sim_name *name = script->name;

	script->run =
		(struct promise_run){script->before,
	                             script->after,
	                             call ? call->kind : -1,
	                             call ? call->ticket : "",
	                             call ? call->arrival_us : 0,
	                             call ? call->permits : 0,
	                             sim_server_us(script->sim),
	                             &script->answer,
	                             sim_script_in_grace(script->sim),
	                             store_mark(store_marker(sim_memory(script->sim), "lk:epoch"))};
	if (name->kind == LK_KIND_SEMAPHORE && name->torn) {
		sim_check_permits(script->sim, name, call, &script->run);
		return;
	}
	note_report(script);
	check_holds(script);
	for (int i = 0; i < script->before->queued; i++)
		check_passed_over(script, &script->before->queue[i]);
	sim_keep_of(script->sim, script->name, PROMISE_FIFO, promise_fifo_place(&script->run));
	if (name->kind == LK_KIND_SEMAPHORE)
		sim_check_permits(script->sim, name, call, &script->run);
}

void sim_check_after(struct sim *sim, int index, const struct sim_call *call)
{
	struct sim_name *name = name_at(sim, index);
	struct script script = {
		.sim = sim, .name = name, .before = &before, .after = &name->view, .call = call};

	sim_look(sim, name, &name->view);
	tell(sim, name, call);
	if (call)
		read_answer(&script);
	if (name->kind == LK_KIND_LATCH)
		sim_check_latch(sim, name, &before, call, &script.answer);
	else
		check_tickets(&script);
	if (sim->plan->quorum && call)
		sim_quorum_check_script(sim, name, call, &script.answer);
}

void sim_check_forced(struct sim *sim, int index, bool covered)
{
	struct sim_name *name = &sim->names[index];

	if (sim->service.keeps)
		sim_check_kept(sim, name);
	else
		sim_check_excuse(sim, name, NULL);
	if (covered && !sim->plan->graceless)
		sim_check_uncovered(sim, name);
	else
		name->era++;
	name->epoch++;
	name->forced_ns = sim->now_ns;
	sim_look(sim, name, &name->view);
	/* It may have been incomplete before, and complete again now. */
	name->torn = name->kind == LK_KIND_SEMAPHORE && sim_check_is_torn(name);
	if (name->kind == LK_KIND_LATCH)
		sim_check_latch_forced(sim, name);
	else
		sim_check_ghosts(sim, name);
}

/* ---- Clients ------------------------------------------------------------------------------ */

static void check_hold(struct sim_client *client, const struct lk__hold *hold)
{
	struct sim *sim = client->sim;
	struct sim_caller *caller = hold->handle;

	sim_keep(sim, PROMISE_LOSS, promise_loss(&client->core, hold, &caller->told));
	if (hold->lost)
		return;
	sim_keep(sim, PROMISE_REVIVAL, promise_revival(hold, sim_local(client), &caller->lapsed));
	if (sim->plan->etcd)
		return; /* sim_etcd_check_names() looks at each hold */
	if (hold->ticket && !hold->ticket->legs && lk__hold_left_ns(hold, sim_local(client)))
		sim_check_backed(client, hold);
}

void sim_check_client(struct sim_client *client)
{
	if (!client->alive)
		return;
	sim_keep(client->sim, PROMISE_PROGRESS, promise_progress(&client->core));
	sim_keep(client->sim, PROMISE_STATE, promise_state(&client->core));
	for (const struct lk__hold *hold = client->core.all_holds; hold; hold = hold->next)
		check_hold(client, hold);
	if (client->sim->plan->quorum)
		sim_quorum_check_client(client);
	for (int i = 0; i < SIM_THREADS; i++) {
		if (client->callers[i].doing == SIM_AWAITING)
			sim_check_waiting(&client->callers[i]);
		sim_check_deadline(&client->callers[i]);
	}
	sim_check_link(client);
}

void sim_check_sent(struct sim_client *client, const struct lk__pending *request)
{
	sim_keep(client->sim, PROMISE_ZOMBIE, promise_zombie(&client->leaves, request));
	if (client->sim->plan->quorum)
		sim_quorum_check_sent(client, request);
}
