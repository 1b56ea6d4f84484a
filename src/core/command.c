/* SPDX-License-Identifier: MIT
 * What requests ask, as values for a store, and who waits for their answers. */
#include "latch.h"
#include "question.h"

#include <string.h>

struct lk__ticket_id lk__ticket_id(const struct lk__ticket *ticket)
{
	struct lk__ticket_id id = {
		.lease_ms = ticket->lease_ms,
		.permits = ticket->place->permits,
		.fixed = ticket->fixed,
		.final = ticket->final,
	};

	memcpy(id.nonce, ticket->nonce, sizeof(id.nonce));
	return id;
}

static void of_latch(const struct lk__request *request, struct lk__command *command)
{
	const struct lk__latch *latch = request->latch;
	const struct lk__step *step = latch->steps;

	command->noun = LK_KIND_LATCH;
	command->name = latch->name->bytes;
	command->name_len = latch->name->len;
	if (request->kind == LK__LOOK)
		return;
	command->generation = step->generation;
	command->number = step->number;
	command->n = step->n;
	command->step = step->name;
	command->step_len = step->len;
	command->topic = latch->channel->topic;
	command->topic_len = latch->channel->len;
}

static void of_ticket(const struct lk__request *request, struct lk__command *command)
{
	const struct lk__ticket *ticket = request->ticket;
	const struct lk__place *place = ticket->place;

	command->noun = place->name->kind;
	command->name = place->name->bytes;
	command->name_len = place->name->len;
	if (request->kind == LK__HAND)
		return;
	command->ticket = lk__ticket_id(ticket);
	command->last_fence = request->claim ? 0 : ticket->last_fence;
	command->share = ticket->share_asked;
	if (request->kind == LK__ASK) {
		command->only_try = ticket->only_try;
		command->arrival = ticket->arrival;
		command->capacity = place->capacity;
		command->ttl_ms = place->ttl_ms;
	} else if (request->kind == LK__RENEW) {
		command->fence = request->claim ? 0 : ticket->fence;
		command->lease_ms = request->lease_ms;
	} else if (request->kind == LK__SHRINK) {
		command->keep = request->permits;
	} else if (ticket->used) {
		command->fence = ticket->fence;
	}
}

static void of_question(const struct lk__question *question, struct lk__command *command)
{
	command->noun = question->noun;
	command->name = question->name;
	command->name_len = question->name_len;
	command->ticket = question->ticket;
	command->details = &question->details;
}

void lk__core_command(const struct lk__request *request, struct lk__command *command)
{
	*command = (struct lk__command){.kind = request->kind, .by_text = request->by_text};
	if (lk__is_question(request->kind))
		of_question(request->question, command);
	else if (lk__request_is_latch(request))
		of_latch(request, command);
	else
		of_ticket(request, command);
}

void *lk__core_into(const struct lk__request *request)
{
	return lk__is_question(request->kind) ? request->question->into : NULL;
}

/* ---- Who waits ---------------------------------------------------------------------------- */

struct lk__waiter *lk__core_asker(const struct lk__request *request)
{
	const struct lk__ticket *ticket = request->ticket;

	if (lk__is_question(request->kind))
		return request->question->waiter;
	if (request->kind == LK__STEP)
		return request->latch->steps ? request->latch->steps->waiter : NULL;
	if (request->kind == LK__LOOK)
		return request->latch->first;
	if (request == &ticket->leave || request->kind == LK__SHRINK)
		return ticket->leavers;
	if (request->extends)
		return ticket->extenders;
	if (ticket->place && ticket->place->ticket == ticket)
		return ticket->place->first;
	return NULL;
}

bool lk__waiter_expects_response(const struct lk__waiter *waiter)
{
	switch (waiter->where) {
	case LK__IN_PLACE:
		return waiter->place->first == waiter && waiter->place->ticket &&
		       waiter->place->ticket->main.where == LK__UNDER_WAY;
	case LK__IN_LATCH:
		return waiter->place->name->latch->ask.where == LK__UNDER_WAY;
	default:
		return waiter->where != LK__NOWHERE;
	}
}

bool lk__waiter_is_patient(const struct lk__waiter *waiter)
{
	return waiter->where != LK__IN_PLACE || waiter->place->ticket->state == LK__ASKING;
}

bool lk__waiter_expects_message(const struct lk__waiter *waiter)
{
	return waiter->where == LK__IN_PLACE || waiter->where == LK__IN_LATCH;
}
