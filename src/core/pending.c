/* SPDX-License-Identifier: MIT
 * Requests as values for a store, and the waiters for their answers. */
#include "latch.h"
#include "query.h"
#include "quorum.h"

#include <string.h>

struct lk__ticket_id lk__ticket_id(const struct lk__ticket *ticket)
{
	const struct lk__wait_queue *queue = ticket->queue;
	struct lk__ticket_id id = {
		.lease_ms = queue->lease_ms,
		.permits = queue->permits,
		.fixed = queue->fixed,
		.final = queue->final,
		.priority = ticket->is_leg ? ticket->arrival : 0,
		.epoch = ticket->epoch,
	};

	memcpy(id.nonce, ticket->nonce, sizeof(id.nonce));
	return id;
}

static void of_latch(const struct lk__pending *pending, struct lk__request *request)
{
	const struct lk__latch *latch = pending->latch;
	const struct lk__step *step = latch->steps;

	request->noun = LK_KIND_LATCH;
	request->name = latch->name->bytes;
	request->name_len = latch->name->len;
	if (pending->kind == LK__LOOK)
		return;
	request->generation = step->generation;
	request->number = step->number;
	request->n = step->n;
	request->is_repeated = step->may_be_counted;
	request->step = step->name;
	request->step_len = step->len;
	request->topic = latch->channel->topic;
	request->topic_len = latch->channel->len;
}

/* The memory of the server that gets the request: it may be asked once instead of the name's own.
 */
static const struct lk__epoch *epoch_of(const struct lk__pending *pending,
                                        const struct lk__session *session)
{
	const struct lk__core *core = session->channels.arg;

	return &core->links[pending->link]->epoch;
}

static void of_ticket(const struct lk__pending *pending, struct lk__request *request)
{
	const struct lk__ticket *ticket = pending->ticket;
	const struct lk__wait_queue *queue = ticket->queue;

	request->noun = queue->name->kind;
	request->name = queue->name->bytes;
	request->name_len = queue->name->len;
	request->epoch = epoch_of(pending, ticket->session);
	if (ticket->is_leg) {
		request->quorum = true;
		request->proposal = lk__quorum_proposal(ticket->session->channels.arg, pending);
	}
	if (pending->kind == LK__HAND)
		return;
	request->ticket = lk__ticket_id(ticket);
	if (pending->kind == LK__YIELD)
		request->ticket.epoch--; /* the one that ends */
	if (ticket->is_leg)
		request->last_fence = pending->kind == LK__RENEW ? pending->fence : 0;
	else
		request->last_fence = pending->claim ? 0 : ticket->last_fence;
	request->share = pending->shares;
	if (pending->kind == LK__ASK) {
		request->only_try = ticket->is_try || pending->tries;
		request->arrival = ticket->arrival;
		request->capacity = queue->capacity;
		request->ttl_ms = queue->ttl_ms;
	} else if (pending->kind == LK__RENEW) {
		request->fence = pending->claim ? 0 : ticket->fence;
		request->lease_ms = pending->lease_ms;
		request->extends = pending->extends;
	} else if (pending->kind == LK__RECLAIM) {
		request->fence = ticket->fence;
		request->lease_ms = pending->lease_ms;
		request->keep = queue->hold->count;
		request->capacity = queue->capacity;
		request->ttl_ms = queue->ttl_ms;
	} else if (pending->kind == LK__SHRINK) {
		request->keep = pending->permits;
	} else if (lk__ticket_is_used(ticket)) {
		request->fence = ticket->fence;
	}
}

static void of_query(const struct lk__query *query, struct lk__request *request)
{
	const struct lk__core *core = query->session->channels.arg;

	request->quorum = core->quorum != NULL;
	request->noun = query->noun;
	request->name = query->name;
	request->name_len = query->name_len;
	request->ticket = query->ticket;
	request->details = &query->details;
	request->proposal = query->details.proposal;
	request->epoch = epoch_of(&query->request, query->session);
}

/* The question for the marker. */
static void of_session(const struct lk__session *session, struct lk__request *request)
{
	const struct lk__core *core = session->channels.arg;

	request->epoch = &session->epoch;
	request->quorum = core->quorum != NULL;
	if (session->set[0] && !session->epoch.set[0])
		request->set = session->set;
	request->set_is_new = core->quorum && core->quorum->begins_ms;
}

static void of_confirm(const struct lk__session *session, struct lk__request *request)
{
	request->replicas = session->replicas;
	request->wait_ms = session->replicas_ms;
}

void lk__core_request(const struct lk__pending *pending, struct lk__request *request)
{
	*request = (struct lk__request){
		.kind = pending->kind,
		.by_text = pending->by_text,
		.narrow = pending->narrow,
		.asking = pending->asking,
	};
	if (lk__is_query(pending->kind))
		of_query(pending->query, request);
	else if (pending->kind == LK__EPOCH)
		of_session(pending->session, request);
	else if (pending->kind == LK__CONFIRM)
		of_confirm(pending->session, request);
	else if (lk__pending_is_latch(pending))
		of_latch(pending, request);
	else
		of_ticket(pending, request);
}

bool lk__pending_fits(const struct lk__pending *request, const struct lk__answer *answer)
{
	switch (answer->kind) {
	case LK__FAILED:
		return true;
	case LK__GRANTED:
		return request->kind == LK__ASK;
	case LK__QUEUED:
		return request->kind == LK__ASK && !request->ticket->is_try && !request->tries;
	case LK__BUSY:
		return request->kind == LK__ASK && (request->ticket->is_try || request->tries);
	case LK__KEPT:
	case LK__GONE:
		return request->kind == LK__RENEW || request->kind == LK__RECLAIM;
	case LK__STALE:
		return request->kind == LK__ASK || request->kind == LK__HAND || request->claim ||
		       request->kind == LK__RECLAIM || request->kind == LK__YIELD;
	case LK__YOUNG:
		return request->ticket->is_leg &&
		       (request->kind == LK__ASK || request->kind == LK__HAND || request->claim);
	case LK__MEMORY:
		return request->kind == LK__EPOCH;
	case LK__CONFIRMED:
		return request->kind == LK__CONFIRM;
	case LK__LEFT:
		return request->kind == LK__LEAVE || request->kind == LK__HAND ||
		       request->kind == LK__YIELD || request->kind == LK__SHRINK;
	case LK__SHOWN:
		return request->kind == LK__LOOK;
	case LK__LISTED:
	case LK__SIZED:
	case LK__MISMATCH:
	case LK__MADE:
	case LK__COUNTS:
	case LK__IS:
	case LK__ABSENT:
	case LK__DONE:
		return false; /* to queries only */
	case LK__STEPPED:
	case LK__OTHER:
		return request->kind == LK__STEP;
	case LK__MOVED:
	case LK__ASKED:
		return false; /* of a Cluster */
	}
	return false;
}

void *lk__core_into(const struct lk__pending *pending)
{
	return lk__is_query(pending->kind) ? pending->query->into : NULL;
}

/* ---- Waiters ------------------------------------------------------------------------------ */

struct lk__op *lk__core_asker(const struct lk__pending *pending)
{
	const struct lk__ticket *ticket = pending->ticket;

	if (lk__is_query(pending->kind))
		return pending->query->op;
	if (pending->kind == LK__EPOCH)
		return NULL;
	if (pending->kind == LK__CONFIRM)
		return pending->session->granted.first
		               ? lk__core_asker(pending->session->granted.first)
		               : NULL;
	if (pending->kind == LK__STEP)
		return pending->latch->steps ? pending->latch->steps->waiter : NULL;
	if (pending->kind == LK__LOOK)
		return pending->latch->first;
	if (lk__ticket_whole(ticket))
		ticket = ticket->whole;
	if (pending == &pending->ticket->leave || pending->kind == LK__SHRINK)
		return ticket->leavers;
	if (pending->extends)
		return ticket->extenders;
	if (ticket->queue && ticket->queue->ticket == ticket)
		return ticket->queue->first;
	return NULL;
}

bool lk__op_expects_response(const struct lk__op *waiter)
{
	switch (waiter->awaits) {
	case LK__FOR_GRANT:
		return waiter->queue->first == waiter && waiter->queue->ticket &&
		       waiter->queue->ticket->main.state == LK__IN_FLIGHT;
	case LK__FOR_OPEN:
		return waiter->queue->name->latch->ask.state == LK__IN_FLIGHT;
	default:
		return waiter->awaits != LK__FOR_NOTHING;
	}
}

bool lk__op_is_patient(const struct lk__op *waiter)
{
	return waiter->awaits != LK__FOR_GRANT || waiter->queue->ticket->state == LK__ASKING;
}

bool lk__op_expects_message(const struct lk__op *waiter)
{
	return waiter->awaits == LK__FOR_GRANT || waiter->awaits == LK__FOR_OPEN;
}
