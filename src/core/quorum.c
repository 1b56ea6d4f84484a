/* SPDX-License-Identifier: MIT
 * The tickets of a quorum: their legs decide together.  majority.c counts what the legs amount to.
 *
 * A ticket is decided while a majority of its legs is valid.  It becomes a hold with the least
 * fence that no leg of a majority exceeds and that their counters have reached: then each later
 * hold, whose majority shares a server with this one, gets a larger fence.  Where the counters are
 * behind, the legs are renewed with that fence first.
 *
 * An undecided ticket yields each granted leg for which an older ticket waits: it gives the grant
 * back and waits in the queue of that server again, in the next epoch.  The oldest ticket yields
 * nothing, so it gets its majority.  A decided one keeps what it has. */
#include "quorum.h"

#include "counters.h"

#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define PROPOSAL_US 100000 /* how long the legs of a ticket propose the same fence */

/* ---- Memory ------------------------------------------------------------------------------- */

struct lk__legs *lk__legs_new(unsigned servers)
{
	struct lk__legs *legs = calloc(1, sizeof(*legs));

	if (!legs)
		return NULL;
	legs->servers = (uint8_t)servers;
	legs->majority = (uint8_t)(servers / 2 + 1);
	for (unsigned i = 0; i < servers; i++) {
		legs->leg[i] = calloc(1, sizeof(*legs->leg[i]));
		if (!legs->leg[i]) {
			lk__legs_free(legs);
			return NULL;
		}
	}
	return legs;
}

void lk__legs_free(struct lk__legs *legs)
{
	for (unsigned i = 0; legs && i < LK__SERVERS_MAX; i++)
		free(legs->leg[i]);
	free(legs);
}

void lk__quorum_start(struct lk__core *core, int64_t now_ns, struct lk__wait_queue *queue)
{
	struct lk__op *op = queue->first;
	struct lk__ticket *ticket = op->spare_ticket;
	struct lk__legs *legs = op->spare_legs;

	op->spare_ticket = NULL;
	op->spare_legs = NULL;
	*ticket = (struct lk__ticket){
		.queue = queue,
		.legs = legs,
		.is_try = op->only_try,
		.state = LK__ASKING,
		.next_ns = LK__NEVER,
	};
	lk__nonce_new(core, ticket->nonce);
	lk__ticket_add(core, ticket);
	queue->ticket = ticket;
	queue->refs++;
	for (unsigned i = 0; i < legs->servers; i++) {
		struct lk__ticket *leg = legs->leg[i];
		*leg = (struct lk__ticket){
			.session = core->links[i],
			.queue = queue,
			.whole = ticket,
			.is_leg = true,
			.is_try = ticket->is_try,
			.state = LK__ASKING,
			.next_ns = now_ns,
		};
		memcpy(leg->nonce, ticket->nonce, sizeof(leg->nonce));
		lk__ticket_add(core, leg);
		queue->refs++;
	}
	lk__quorum_pursue(core, now_ns, ticket);
}

void lk__quorum_touch(struct lk__core *core, struct lk__ticket *leg)
{
	struct lk__ticket *ticket = leg->legs ? leg : leg->whole;

	if (!ticket || ticket->legs->is_touched)
		return;
	ticket->legs->is_touched = true;
	ticket->legs->next_touched = core->quorum->touched;
	core->quorum->touched = ticket;
}

void lk__quorum_forget(struct lk__core *core, struct lk__ticket *ticket)
{
	struct lk__ticket **at = &core->quorum->touched;

	while (*at && *at != ticket)
		at = &(*at)->legs->next_touched;
	if (*at)
		*at = ticket->legs->next_touched;
	for (unsigned i = 0; i < ticket->legs->servers; i++)
		if (ticket->legs->leg[i])
			ticket->legs->leg[i]->whole = NULL;
	free(ticket->legs);
}

/* ---- Clocks ------------------------------------------------------------------------------- */

uint64_t lk__quorum_time_us(const struct lk__core *core, int64_t now_ns)
{
	int64_t times[LK__SERVERS_MAX] = {0};
	unsigned count = 0;

	for (unsigned i = 0; i < core->link_count; i++) {
		const struct lk__session *session = core->links[i];
		int64_t time_us = session->clock_us + (now_ns - session->clock_ns) / 1000;
		unsigned at = count;
		if (!lk__session_is_up(session) || !lk__quorum_accepts(core, session))
			continue;
		for (; at > 0 && times[at - 1] > time_us; at--)
			times[at] = times[at - 1];
		times[at] = time_us;
		count++;
	}
	return count && times[count / 2] > 0 ? (uint64_t)times[count / 2] : 0;
}

uint64_t lk__quorum_proposal(const struct lk__core *core, const struct lk__pending *request)
{
	const struct lk__ticket *leg = request->ticket;
	uint64_t fence = lk__quorum_time_us(core, request->sent_ns);
	struct lk__legs *legs = leg->whole ? leg->whole->legs : NULL;

	/* The N requests of an event are sent one after the other: let them propose the same. */
	if (legs && fence - legs->proposal > PROPOSAL_US)
		legs->proposal = fence;
	if (legs)
		fence = legs->proposal;
	if (fence <= leg->last_fence)
		fence = leg->last_fence + 1;
	if (leg->whole && fence <= leg->whole->fence)
		fence = leg->whole->fence + 1;
	return fence;
}

/* The place in the queues, from the first moment when a majority votes. */
static void choose_priority(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	struct lk__legs *legs = ticket->legs;

	if (legs->priority || !lk__quorum_is_ready(core))
		return;
	legs->priority = lk__quorum_time_us(core, now_ns);
	for (unsigned i = 0; i < legs->servers; i++) {
		if (!legs->leg[i])
			continue;
		legs->leg[i]->arrival = legs->priority;
		lk__ticket_pursue(core, now_ns, legs->leg[i]);
	}
}

/* ---- Decisions before the hold ------------------------------------------------------------ */

/* Renew the legs that are behind, if no request of theirs is pending.  A refused renewal is
 * repeated when it is due. */
static void commit(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	struct lk__legs *legs = ticket->legs;

	legs->commit = lk__legs_fence_to_commit(legs, now_ns);
	if (ticket->queue->fixed && !legs->refreshed_ns)
		legs->refreshed_ns = now_ns;
	for (unsigned i = 0; i < legs->servers; i++) {
		struct lk__ticket *leg = legs->leg[i];
		bool behind = lk__leg_is_valid(leg, now_ns) &&
		              ((leg->fence <= legs->commit && leg->last_fence < legs->commit) ||
		               !lk__leg_is_fresh(leg, now_ns));
		if (!behind || leg->main.state != LK__IDLE || leg->renewal_failed)
			continue;
		leg->next_ns = now_ns;
		leg->head_unserved = false;
		lk__ticket_pursue(core, now_ns, leg);
	}
}

static void begin_hold(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                       uint64_t fence)
{
	struct lk__legs *legs = ticket->legs;

	ticket->fence = ticket->last_fence = fence;
	ticket->arrival = legs->was_queued ? legs->priority : 0;
	ticket->valid_until_ns = lk__legs_valid_until_ns(legs);
	ticket->store_us_ns = now_ns;
	for (unsigned i = 0; i < legs->servers; i++) {
		struct lk__ticket *leg = legs->leg[i];
		if (!leg)
			continue;
		ticket->granted_by_message |= leg->granted_by_message;
		/* A try's other legs may wait from now on. */
		leg->is_try = false;
		if (leg->is_busy)
			leg->next_ns = now_ns;
		leg->is_busy = false;
	}
	lk__count_grant(&core->counters, now_ns, ticket, ticket->queue->first);
	ticket->state = LK__HOLDING;
	lk__hold_make(core, now_ns, ticket->queue);
	for (unsigned i = 0; i < legs->servers; i++)
		if (legs->leg[i])
			lk__ticket_pursue(core, now_ns, legs->leg[i]);
	lk__quorum_pursue(core, now_ns, ticket);
}

/* Give the leg back to an older ticket, and wait for it in the next epoch. */
static void yield(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg)
{
	leg->epoch++;
	leg->yields = true;
	leg->state = LK__ASKING;
	leg->valid_until_ns = leg->first_sent_ns = 0;
	leg->fence = leg->last_fence = 0;
	leg->is_wanted = leg->granted_by_message = leg->head_unserved = false;
	leg->renewal_failed = false;
	leg->next_ns = now_ns;
	lk__ticket_pursue(core, now_ns, leg);
}

static void yield_all(struct lk__core *core, int64_t now_ns, const struct lk__legs *legs)
{
	for (unsigned i = 0; i < legs->servers; i++) {
		struct lk__ticket *leg = legs->leg[i];
		if (leg && leg->state == LK__HOLDING && leg->is_wanted && !leg->is_try &&
		    leg->main.state == LK__IDLE && leg->epoch < UINT16_MAX)
			yield(core, now_ns, leg);
	}
}

/* How many servers cannot grant: they are young, refuse for good, or do not vote. */
struct obstacles {
	unsigned busy, young, refused, out;
	int64_t from_ns, until_ns; /* of the young ones: the time of the first that votes again */
	const struct lk__ticket *refuser;
};

static void count_obstacle(const struct lk__core *core, int64_t now_ns,
                           const struct lk__ticket *leg, struct obstacles *found)
{
	if (leg && leg->is_refused) {
		found->refused++;
		found->refuser = leg;
	} else if (!leg || !lk__session_is_up(leg->session) ||
	           !lk__quorum_accepts(core, leg->session)) {
		found->out++;
	} else if (leg->is_busy) {
		found->busy++;
	} else if (leg->grace_until_ns > now_ns && !lk__leg_is_valid(leg, now_ns)) {
		found->young++;
		if (!found->until_ns || leg->grace_until_ns < found->until_ns)
			found->until_ns = leg->grace_until_ns;
		found->from_ns = leg->grace_from_ns;
	}
}

/* A majority refuses the requests, or a lazy client's links: no waiting mends that. */
static void refuse(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                   const struct lk__ticket *refuser)
{
	struct lk__why why;

	if (lk__session_is_up(refuser->session) || !lk__quorum_explain(core, &why))
		lk__why_set(&why, (lk_err)refuser->refusal, "%s", core->refusal.text);
	lk__ticket_refuse(core, now_ns, ticket, why.err, why.text);
}

/* No majority of the servers can grant it now: a try ends, also a wait that a majority refuses. */
static void mind_obstacles(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	struct lk__legs *legs = ticket->legs;
	const unsigned spare = legs->servers - legs->majority;
	struct obstacles found = {0};
	struct lk__answer busy = {.kind = LK__BUSY};

	for (unsigned i = 0; i < legs->servers; i++)
		count_obstacle(core, now_ns, legs->leg[i], &found);
	if (found.young > spare) {
		ticket->grace_from_ns = found.from_ns;
		ticket->grace_until_ns = found.until_ns;
	}
	if (found.refused > spare) {
		refuse(core, now_ns, ticket, found.refuser);
		return;
	}
	if (!ticket->is_try || !(found.busy || found.young > spare) ||
	    found.busy + found.young + found.refused + found.out <= spare)
		return;
	if (!found.busy)
		busy.grace_ms = (found.until_ns - now_ns) / MS + 1;
	lk__decide_busy(core, now_ns, ticket, &busy);
}

/* A lease that a server could forget, and vote before its end. */
static bool is_too_long(const struct lk__core *core, const struct lk__ticket *ticket)
{
	return core->quorum->longest_ms && ticket->queue->lease_ms > core->quorum->longest_ms;
}

static void refuse_lease(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	struct lk__why why;

	lk__why_set(&why, LK_EINVALID, "lease_ms: must be at most %lld, the quorum's longest lease",
	            (long long)core->quorum->longest_ms);
	lk__ticket_refuse(core, now_ns, ticket, why.err, why.text);
}

static void decide_wait(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	struct lk__legs *legs = ticket->legs;
	struct lk__why why;
	uint64_t fence;

	if (!legs->priority && lk__quorum_misfits(core, &why)) {
		lk__ticket_refuse(core, now_ns, ticket, why.err, why.text);
		return;
	}
	/* The handle was opened before the longest lease was known. */
	if (is_too_long(core, ticket) && ticket->queue->by_default)
		ticket->queue->lease_ms = core->quorum->longest_ms;
	if (is_too_long(core, ticket)) {
		refuse_lease(core, now_ns, ticket);
		return;
	}
	choose_priority(core, now_ns, ticket);
	if (!ticket->queue->first)
		return;
	if (lk__legs_valid(legs, now_ns) < legs->majority) {
		legs->commit = 0;
		legs->refreshed_ns = 0;
		yield_all(core, now_ns, legs);
		mind_obstacles(core, now_ns, ticket);
		return;
	}
	fence = lk__legs_committed_fence(legs, now_ns);
	if (fence)
		begin_hold(core, now_ns, ticket, fence);
	else
		commit(core, now_ns, ticket);
}

/* ---- Decisions about a hold --------------------------------------------------------------- */

static void lose(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	const struct lk__legs *legs = ticket->legs;
	bool is_taken = legs->was_taken || lk__legs_exclude(legs, legs->forgotten);

	lk__hold_lose(core, now_ns, ticket->queue->hold,
	              is_taken ? LK_LOST_TAKEN : LK_LOST_EXPIRED);
}

/* A majority has confirmed the extension, or cannot confirm it any more. */
static void decide_extension(struct lk__core *core, struct lk__ticket *ticket)
{
	struct lk__legs *legs = ticket->legs;
	struct lk__op *op = ticket->extenders;
	bool confirmed = lk__legs_bits(legs->extended) >= legs->majority;

	if (!op || (!confirmed && !lk__legs_exclude(legs, legs->unextended)))
		return;
	ticket->extenders = op->next;
	lk__quorum_next_extender(ticket);
	if (confirmed)
		lk__complete(core, op, LK_OK, NULL);
	else
		lk__complete(core, op, op->may_be_extended ? LK_EUNKNOWN : core->refusal.err,
		             core->refusal.text);
}

void lk__quorum_next_extender(struct lk__ticket *ticket)
{
	struct lk__legs *legs = ticket->legs;

	legs->extended = legs->unextended = legs->extending = 0;
}

static void decide_hold(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	struct lk__legs *legs = ticket->legs;
	struct lk__hold *hold = ticket->queue->hold;

	ticket->valid_until_ns = lk__legs_valid_until_ns(legs);
	if (ticket->valid_until_ns <= now_ns) {
		lose(core, now_ns, ticket);
		return;
	}
	if (hold->max_until_ns <= now_ns) {
		lk__hold_lose(core, now_ns, hold, LK_LOST_MAX_HOLD);
		return;
	}
	if (lk__legs_valid(legs, now_ns) == legs->servers)
		legs->was_taken = false;
	decide_extension(core, ticket);
	for (unsigned i = 0; ticket->extenders && i < legs->servers; i++)
		if (lk__leg_is_valid(legs->leg[i], now_ns))
			lk__ticket_pursue(core, now_ns, legs->leg[i]);
	lk__heap_set(&core->timers, &ticket->timer,
	             hold->max_until_ns < ticket->valid_until_ns ? hold->max_until_ns
	                                                         : ticket->valid_until_ns);
}

/* ---- The end ------------------------------------------------------------------------------ */

/* A majority has confirmed the end: nothing of the ticket can be decided any more.  The other legs
 * leave in the background. */
static void decide_end(struct lk__core *core, struct lk__ticket *ticket)
{
	struct lk__legs *legs = ticket->legs;
	bool confirmed = lk__legs_bits(legs->left) >= legs->majority;
	bool lost = lk__legs_were_lost(ticket);

	if (legs->is_leaving || (!confirmed && !lk__legs_exclude(legs, legs->unleft)))
		return;
	if (confirmed && !lost && ticket->leavers && lk__legs_may_be_lost(ticket))
		return;
	if (confirmed && lost)
		lk__count_loss(&core->counters, LK_LOST_TAKEN);
	while (ticket->leavers) {
		struct lk__op *op = ticket->leavers;
		ticket->leavers = op->next;
		if (!confirmed)
			lk__complete(core, op, LK_EUNKNOWN, core->refusal.text);
		else if (lost && op->why.err == LK_OK)
			lk__complete_lost(core, op, LK_LOST_TAKEN);
		else
			lk__complete_ended(core, op);
	}
	for (unsigned i = 0; i < legs->servers; i++)
		if (legs->leg[i])
			legs->leg[i]->is_minor = confirmed;
	lk__ticket_end(core, ticket);
}

void lk__quorum_leave(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	struct lk__legs *legs = ticket->legs;

	if (ticket->queue->ticket == ticket)
		ticket->queue->ticket = NULL;
	while (ticket->extenders) {
		struct lk__op *op = ticket->extenders;
		ticket->extenders = op->next;
		lk__complete(core, op, LK_ELOST, "the hold was lost");
	}
	if (ticket->state == LK__LEAVING)
		return;
	ticket->state = LK__LEAVING;
	lk__heap_set(&core->timers, &ticket->timer, LK__NEVER);
	legs->is_leaving = true;
	for (unsigned i = 0; i < legs->servers; i++) {
		struct lk__ticket *leg = legs->leg[i];
		if (!leg)
			continue;
		if (lk__leg_is_valid(leg, now_ns))
			legs->held |= (uint8_t)(1U << i);
		leg->released = ticket->released;
		lk__ticket_leave(core, now_ns, leg);
	}
	legs->is_leaving = false;
	decide_end(core, ticket);
}

bool lk__quorum_is_awaited(const struct lk__ticket *leg)
{
	return leg->leavers || (lk__ticket_whole(leg) && leg->whole->leavers);
}

/* ---- Events ------------------------------------------------------------------------------- */

void lk__quorum_pursue(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	if (ticket->state == LK__HOLDING)
		decide_hold(core, now_ns, ticket);
	else if (ticket->state == LK__LEAVING)
		decide_end(core, ticket);
	else
		decide_wait(core, now_ns, ticket);
}

void lk__quorum_settle(struct lk__core *core, int64_t now_ns)
{
	struct lk__ticket *ticket;

	while (core->quorum && (ticket = core->quorum->touched)) {
		core->quorum->touched = ticket->legs->next_touched;
		ticket->legs->is_touched = false;
		lk__quorum_pursue(core, now_ns, ticket);
	}
}

void lk__quorum_expire(struct lk__core *core, int64_t now_ns, const struct lk__ticket *leg)
{
	struct lk__ticket *ticket = leg->whole;

	if (ticket && ticket->state == LK__HOLDING && ticket->valid_until_ns <= now_ns)
		lose(core, now_ns, ticket);
}

bool lk__quorum_is_unknown(const struct lk__ticket *ticket)
{
	const struct lk__legs *legs = ticket->legs;

	for (unsigned i = 0; i < legs->servers; i++)
		if (legs->leg[i] && !lk__ticket_is_unknown(legs->leg[i]))
			return false;
	return true;
}

const struct lk__ticket *lk__quorum_refused(const struct lk__ticket *ticket)
{
	const struct lk__legs *legs = ticket->legs;
	const struct lk__ticket *found = NULL;
	uint8_t refused = 0;

	for (unsigned i = 0; i < legs->servers; i++) {
		const struct lk__ticket *leg = legs->leg[i];
		if (!leg || leg->state != LK__ASKING || !leg->refusals)
			continue;
		refused |= (uint8_t)(1U << i);
		found = leg;
	}
	return lk__legs_exclude(legs, refused) ? found : NULL;
}

/* Does a majority renew the hold? */
bool lk__quorum_is_sure(const struct lk__ticket *ticket)
{
	const struct lk__legs *legs = ticket->legs;
	unsigned count = 0;

	for (unsigned i = 0; i < legs->servers; i++) {
		const struct lk__ticket *leg = legs->leg[i];
		count += leg && leg->state == LK__HOLDING && !leg->renewal_failed &&
		         lk__session_is_up(leg->session);
	}
	return count >= legs->majority;
}

struct lk__op *lk__quorum_extender(const struct lk__ticket *leg)
{
	return leg->whole ? leg->whole->extenders : NULL;
}
