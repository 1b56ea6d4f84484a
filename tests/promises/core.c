/* SPDX-License-Identifier: MIT
 * What must be true of one client's state machine after every event, whatever a store replies. */
#include "promises.h"

#include "core/quorum.h"

#include <stdio.h>
#include <string.h>

/* In a Cluster: it asks when messages arrive, and the channel is being subscribed. */
static bool awaits_inbox(const struct lk__ticket *ticket)
{
	const struct lk__inbox *inbox = ticket->queue ? ticket->queue->name->inbox : NULL;

	return ticket->uses_inbox && ticket->state == LK__ASKING && inbox && inbox->channel &&
	       inbox->channel->users && !lk__channel_is_on(inbox->channel);
}

/* In a Cluster: it leaves after the answer to an ask that was redirected. */
static bool awaits_ask(const struct lk__ticket *ticket)
{
	return lk__ticket_is_leaving(ticket) && ticket->main.state == LK__IN_FLIGHT &&
	       ticket->main.link != ticket->session->index;
}

static bool has_leg(const struct lk__legs *legs)
{
	for (unsigned i = 0; i < legs->servers; i++)
		if (legs->leg[i])
			return true;
	return false;
}

/* A leg that may not ask: its server does not vote, a majority of servers does not, or its hold has
 * a fixed lease; or that has tried, and found the lock held. */
static bool rests(const struct lk__core *core, const struct lk__ticket *ticket)
{
	return ticket->is_leg &&
	       (!lk__leg_may_ask(core, ticket) || (ticket->state == LK__ASKING && ticket->is_busy));
}

/* Without a request or a timer it would never make progress.  A ticket of a quorum makes progress
 * by its legs, and ends without them. */
static const char *ticket_progress(const struct lk__core *core, const struct lk__ticket *ticket)
{
	static char text[120];
	const struct lk__pending *request =
		lk__ticket_is_leaving(ticket) ? &ticket->leave : &ticket->main;

	if (ticket->legs && ticket->state != LK__OVER)
		return has_leg(ticket->legs) ? NULL : "a ticket has no legs and has not ended";
	if (ticket->state == LK__OVER) {
		return ticket->main.state != LK__IN_FLIGHT && ticket->leave.state != LK__IN_FLIGHT
		               ? "a ticket has ended and has no pending request"
		               : NULL;
	}
	if (!lk__session_is_up(ticket->session) || request->state != LK__IDLE ||
	    (ticket->state == LK__HOLDING && ticket->queue->fixed && !ticket->is_forgotten &&
	     !ticket->is_doubted && !lk__ticket_is_shrinking(ticket)) ||
	    awaits_inbox(ticket) || awaits_ask(ticket) || rests(core, ticket))
		return NULL;
	if (ticket->next_ns != LK__NEVER && ticket->timer.due_ns <= ticket->next_ns)
		return NULL;
	snprintf(text, sizeof(text), "a ticket in state %d has no next event", ticket->state);
	return text;
}

static const char *latch_progress(const struct lk__latch *latch)
{
	if (!lk__session_is_up(latch->name->session))
		return NULL;
	if (latch->first && latch->ask.state == LK__IDLE && latch->ask_ns == LK__NEVER)
		return "no timer for the waiters of a latch";
	if (latch->steps && latch->down.state == LK__IDLE && latch->ask.state == LK__IDLE &&
	    latch->timer.due_ns == LK__NEVER)
		return "no timer for a step";
	return NULL;
}

const char *promise_progress(const struct lk__core *core)
{
	const char *wrong = NULL;

	for (const struct lk__ticket *ticket = core->all_tickets; ticket && !wrong;
	     ticket = ticket->next)
		wrong = ticket_progress(core, ticket);
	for (const struct lk__latch *latch = core->latches; latch && !wrong; latch = latch->next)
		wrong = latch_progress(latch);
	return wrong;
}

static const char *ticket_state(const struct lk__core *core, const struct lk__ticket *ticket)
{
	if (ticket->state > LK__OVER)
		return "a ticket is in no state";
	if (ticket->state == LK__OVER)
		return NULL;
	if (!ticket->legs && lk__ticket_find_at(core, ticket->nonce, ticket->session) != ticket)
		return "a ticket cannot be found";
	if (ticket->is_leg)
		return NULL;
	if (ticket->state != LK__HOLDING)
		return ticket->extenders ? "an extension without a hold" : NULL;
	if (!ticket->queue->hold || ticket->queue->hold->ticket != ticket)
		return "a ticket that holds has no hold";
	return NULL;
}

static const char *hold_state(const struct lk__hold *hold)
{
	const struct lk__ticket *ticket = hold->ticket;

	if (hold->lost)
		return ticket ? "a lost hold has a ticket" : NULL;
	if (!ticket || ticket->state != LK__HOLDING || ticket->queue->hold != hold)
		return "a hold and its ticket disagree";
	return hold->count ? NULL : "a hold of nothing";
}

const char *promise_state(const struct lk__core *core)
{
	const char *wrong = NULL;

	for (const struct lk__ticket *ticket = core->all_tickets; ticket && !wrong;
	     ticket = ticket->next)
		wrong = ticket_state(core, ticket);
	for (const struct lk__hold *hold = core->all_holds; hold && !wrong; hold = hold->next)
		wrong = hold_state(hold);
	for (const struct lk__latch *latch = core->latches; latch && !wrong; latch = latch->next)
		wrong = latch->busy ? NULL : "a latch at rest is in the list";
	return wrong;
}

const char *promise_state_call(const struct lk__op *op)
{
	if (op->awaits == LK__FOR_NOTHING)
		return "a call that will never end";
	if (op->awaits == LK__FOR_GRANT && !op->queue->ticket)
		return "a call waits without a ticket";
	if (op->awaits == LK__FOR_GRANT && !op->spare_hold)
		return "a call waits without room for a hold";
	return NULL;
}

const char *promise_deadline(int64_t due_ns, int64_t now_ns)
{
	static char text[120];

	if (now_ns <= due_ns)
		return NULL;
	snprintf(text, sizeof(text), "a call does not end: overdue for %.3f s",
	         (double)(now_ns - due_ns) / 1e9);
	return text;
}

/* The timer alone reports a loss in time: no event of the network is necessary. */
const char *promise_loss(const struct lk__core *core, const struct lk__hold *hold,
                         const uint64_t *told)
{
	int64_t due_ns = lk__core_due(core);

	if (hold->lost)
		return told && *told != hold->fence ? "the loss of a hold was not reported" : NULL;
	if ((hold->ticket && due_ns > hold->ticket->valid_until_ns) || due_ns > hold->max_until_ns)
		return "no timer for the end of a hold";
	return NULL;
}

const char *promise_revival(const struct lk__hold *hold, int64_t now_ns, uint64_t *lapsed)
{
	if (!lk__hold_left_ns(hold, now_ns))
		*lapsed = hold->fence;
	else if (*lapsed == hold->fence)
		return "a hold that had lapsed is valid again";
	return NULL;
}

/* A client without sentinels looks at its clock, also while it is idle. */
static bool has_timer(const struct lk__core *core)
{
	int64_t due_ns = lk__core_due(core);

	for (const struct lk__session *session = core->sessions; session; session = session->next)
		if (lk__vouch_due(session) == due_ns)
			return false;
	return due_ns != LK__NEVER;
}

const char *promise_rest(const struct lk__core *core)
{
	if (core->all_tickets || core->tickets.count)
		return "a ticket is left in a client";
	if (core->all_holds)
		return "a hold is left in a client";
	if (core->quorum && core->quorum->touched)
		return "a ticket is left to be decided";
	if (core->latches)
		return "a step or a wait is left in a client";
	if (lk__core_has_requests(core) || core->done || core->lost || has_timer(core))
		return "a request, an event or a timer is left in a client";
	return NULL;
}

const char *promise_rest_queue(const struct lk__wait_queue *queue)
{
	return queue->first || queue->ticket || queue->hold ? "a handle is not at rest" : NULL;
}

static bool has_left(const struct promise_leaves *leaves, const char *nonce)
{
	for (int i = 0; i < PROMISE_LEAVES && i < leaves->count; i++)
		if (!memcmp(leaves->nonces[i], nonce, LK__NONCE_SIZE))
			return true;
	return false;
}

static void forget(struct promise_leaves *leaves, const char *nonce)
{
	for (int i = 0; i < PROMISE_LEAVES && i < leaves->count; i++)
		if (!memcmp(leaves->nonces[i], nonce, LK__NONCE_SIZE))
			leaves->nonces[i][0] = '\0';
}

const char *promise_zombie(struct promise_leaves *leaves, const struct lk__pending *request)
{
	const struct lk__ticket *ticket = request->ticket;

	if (lk__is_query(request->kind) || lk__pending_is_latch(request) ||
	    request->kind == LK__HAND || request->kind == LK__EPOCH || request->kind == LK__CONFIRM)
		return NULL;
	if (request->kind == LK__LEAVE)
		memcpy(leaves->nonces[leaves->count++ % PROMISE_LEAVES], ticket->nonce,
		       LK__NONCE_SIZE);
	else if (request->kind == LK__ASK && request->sent_ns &&
	         ticket->first_sent_ns == request->sent_ns)
		forget(leaves, ticket->nonce); /* the first one; its nonce may be used again */
	else if (has_left(leaves, ticket->nonce))
		return "a request of a ticket was sent after its leave";
	else if (((request->kind == LK__RENEW && !request->claim && !ticket->is_leg) ||
	          request->kind == LK__RECLAIM) &&
	         (ticket->state != LK__HOLDING || !ticket->queue->hold))
		return "a renewal or a reclaim of a ticket that is not a hold";
	return NULL;
}
