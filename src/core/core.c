/* SPDX-License-Identifier: MIT
 * The state machine's memory (names, wait queues) and its output. */
#include "core.h"

#include "counters.h"
#include "latch.h"
#include "query.h"
#include "quorum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)

bool lk__core_init(struct lk__core *core, uint64_t seed)
{
	memset(core, 0, sizeof(*core));
	core->random = seed;
	core->done_end = &core->done;
	core->lost_end = &core->lost;
	core->command_timeout_ns = LK__NEVER;
	core->server = "the server";
	if (!lk__table_init(&core->names))
		return false;
	if (lk__table_init(&core->tickets))
		return true;
	lk__table_fini(&core->names);
	return false;
}

bool lk__core_add_session(struct lk__core *core, struct lk__session *session)
{
	session->send_queue_end = &session->send_queue;
	session->why.err = LK_ECONN;
	if (core->link_count == LK__NODES_MAX || !lk__channels_init(&session->channels, core))
		return false;
	session->index = (uint8_t)core->link_count;
	core->links[core->link_count++] = session;
	session->next = core->sessions;
	core->sessions = session;
	return true;
}

static void free_name(struct lk__core *core, struct lk__name *name)
{
	lk__table_remove(&core->names, &name->node);
	lk__ghosts_forget(core, name);
	lk__inbox_close(core, name);
	free(name->inbox);
	if (name->latch)
		lk__latch_free(core, name->latch);
	free(name);
}

void lk__core_fini(struct lk__core *core)
{
	struct lk__hold *hold;

	while ((hold = lk__core_next_lost(core)))
		lk__core_loss_reported(hold);
	while (core->all_tickets) {
		core->all_tickets->main.state = core->all_tickets->leave.state = LK__IDLE;
		lk__ticket_end(core, core->all_tickets);
	}
	while (core->all_holds)
		lk__hold_free(core, core->all_holds);
	lk__latches_fini(core);
	lk__queries_fini(core);
	for (size_t i = 0; core->names.buckets && i < core->names.size; i++) {
		while (core->names.buckets[i]) {
			struct lk__name *name = (struct lk__name *)core->names.buckets[i];
			while (name->queues) {
				struct lk__wait_queue *queue = name->queues;
				name->queues = queue->next;
				free(queue);
			}
			free_name(core, name);
		}
	}
	lk__table_fini(&core->names);
	lk__table_fini(&core->tickets);
	free(core->route);
	free(core->quorum);
	free(core->topology);
	for (struct lk__session *session = core->sessions; session; session = session->next)
		lk__channels_fini(&session->channels);
}

/* ---- Names and wait queues ---------------------------------------------------------------- */

struct lk__name *lk__name_new(lk_kind kind, const char *bytes, size_t len)
{
	struct lk__name *name = calloc(1, offsetof(struct lk__name, bytes) + len + 1);

	if (name) {
		name->kind = (uint8_t)kind;
		name->len = (uint16_t)len;
		memcpy(name->bytes, bytes, len);
	}
	return name;
}

struct lk__wait_queue *lk__wait_queue_new(int64_t lease_ms, bool fixed)
{
	struct lk__wait_queue *queue = calloc(1, sizeof(*queue));

	if (queue) {
		queue->lease_ms = lease_ms;
		queue->fixed = fixed;
	}
	return queue;
}

static struct lk__name *find_name(struct lk__core *core, const struct lk__name *like, uint64_t hash)
{
	struct lk__node *node = lk__table_first(&core->names, hash);

	for (; node; node = lk__table_next(node)) {
		struct lk__name *name = (struct lk__name *)node;
		if (name->kind == like->kind && name->len == like->len &&
		    !memcmp(name->bytes, like->bytes, like->len))
			return name;
	}
	return NULL;
}

struct lk__wait_queue *lk__wait_queue_open(struct lk__core *core, struct lk__session *session,
                                           struct lk__name *name, struct lk__wait_queue *queue)
{
	uint64_t hash = lk__hash(name->bytes, name->len, 0);
	struct lk__name *known = find_name(core, name, hash);
	struct lk__wait_queue *other;

	if (known)
		free(name);
	else
		lk__table_add(&core->names, &name->node, hash);
	if (!known)
		lk__route_name(core, session, name);
	name = known ? known : name;
	for (other = name->queues; other; other = other->next) {
		if (name->kind == LK_KIND_LOCK && other->lease_ms == queue->lease_ms &&
		    other->fixed == queue->fixed) {
			free(queue);
			other->refs++;
			return other;
		}
	}
	queue->name = name;
	queue->next = name->queues;
	queue->refs = 1;
	name->queues = queue;
	name->refs++;
	return queue;
}

void lk__wait_queue_close(struct lk__core *core, struct lk__wait_queue *queue)
{
	struct lk__name *name = queue->name;
	struct lk__wait_queue **at = &name->queues;

	if (--queue->refs)
		return;
	while (*at != queue)
		at = &(*at)->next;
	*at = queue->next;
	free(queue);
	lk__name_close(core, name);
}

void lk__name_close(struct lk__core *core, struct lk__name *name)
{
	if (!--name->refs)
		free_name(core, name);
}

bool lk__core_busy(const struct lk__core *core)
{
	return core->all_tickets || core->latches;
}

bool lk__core_has_requests(const struct lk__core *core)
{
	const struct lk__session *session = core->sessions;

	while (session && !session->send_queue)
		session = session->next;
	return session != NULL;
}

bool lk__core_stepping(const struct lk__core *core)
{
	const struct lk__latch *latch = core->latches;

	while (latch && !latch->steps)
		latch = latch->next;
	return latch != NULL;
}

bool lk__core_unconfirmed(const struct lk__core *core, int64_t since_ns)
{
	const struct lk__ticket *ticket = core->all_tickets;

	while (ticket && !lk__ticket_matters(ticket, since_ns))
		ticket = ticket->next;
	return ticket != NULL;
}

/* ---- Output ------------------------------------------------------------------------------- */

void lk__pending_enqueue(struct lk__session *session, struct lk__pending *request)
{
	request->state = LK__TO_SEND;
	request->link = session->index;
	request->next = NULL;
	*session->send_queue_end = request;
	session->send_queue_end = &request->next;
}

void lk__pending_dequeue(const struct lk__core *core, struct lk__pending *request)
{
	struct lk__session *session;
	struct lk__pending **at;

	if (request->state != LK__TO_SEND)
		return;
	session = core->links[request->link];
	at = &session->send_queue;
	while (*at != request)
		at = &(*at)->next;
	*at = request->next;
	if (!*at)
		session->send_queue_end = at;
	request->next = NULL;
	request->state = LK__IDLE;
}

struct lk__pending *lk__core_next_request(struct lk__core *core, struct lk__session *session,
                                          int64_t now_ns)
{
	struct lk__pending *request = lk__confirm_next(session);
	struct lk__op *waiter;
	struct lk__ticket *ticket;

	if (!request)
		return NULL;
	session->send_queue = request->next;
	if (!session->send_queue)
		session->send_queue_end = &session->send_queue;
	request->next = NULL;
	request->state = LK__IN_FLIGHT;
	request->link = session->index;
	lk__hops_pause(request, now_ns);
	request->sent_ns = now_ns;
	request->heard = 0;
	request->doubted = false;
	request->ahead = request->asking; /* which changes when the slot moves */
	if (lk__is_query(request->kind))
		return request;
	lk__count(&core->counters.requests, 1);
	if (request->kind == LK__EPOCH || request->kind == LK__CONFIRM)
		return request;
	if (lk__pending_is_latch(request)) {
		lk__latch_sent(core, request);
		return request;
	}
	ticket = request->ticket;
	if (request == &ticket->leave)
		return request;
	if ((request->kind == LK__ASK || request->kind == LK__YIELD) && !ticket->first_sent_ns)
		ticket->first_sent_ns = now_ns;
	if (request->extends && lk__ticket_extender(ticket))
		lk__ticket_extender(ticket)->sent = true;
	/* For the store: do threads wait here behind the holder, or behind the waiter that becomes
	 * it? */
	waiter = ticket->queue->first;
	if (ticket->state != LK__HOLDING && waiter)
		waiter = waiter->next;
	request->shares = waiter && !ticket->queue->fixed && !ticket->is_leg &&
	                  lk__inbox_is_on(core, ticket);
	return request;
}

struct lk__hold *lk__core_next_lost(struct lk__core *core)
{
	struct lk__hold *hold = core->lost;

	if (!hold)
		return NULL;
	core->lost = hold->next_lost;
	if (!core->lost)
		core->lost_end = &core->lost;
	hold->next_lost = NULL;
	return hold;
}

int64_t lk__core_due(const struct lk__core *core)
{
	const struct lk__timer *ticket = lk__heap_first(&core->timers);
	const struct lk__timer *latch = lk__heap_first(&core->latch_timers);
	int64_t due_ns = ticket ? ticket->due_ns : LK__NEVER;

	if (latch && latch->due_ns < due_ns)
		due_ns = latch->due_ns;
	for (const struct lk__session *session = core->sessions; session; session = session->next) {
		if (lk__channels_due(&session->channels) < due_ns)
			due_ns = lk__channels_due(&session->channels);
		if (lk__memory_due(core, session) < due_ns)
			due_ns = lk__memory_due(core, session);
		if (lk__vouch_due(session) < due_ns)
			due_ns = lk__vouch_due(session);
	}
	return due_ns;
}

/* ---- The link, and the clock -------------------------------------------------------------- */

void lk__core_link_up(struct lk__core *core, struct lk__session *session, int64_t now_ns)
{
	struct lk__ticket *ticket = core->all_tickets, *next;

	lk__session_up(session, now_ns);
	lk__count(&core->counters.connected, 1);
	if (core->quorum)
		lk__members_judge(core, now_ns);
	for (; ticket; ticket = next) {
		next = ticket->next;
		if (ticket->session != session)
			continue;
		ticket->is_refused = false;
		if (ticket->state != LK__HOLDING || !ticket->queue->fixed ||
		    ticket->head_unserved || ticket->is_forgotten || ticket->is_doubted ||
		    lk__ticket_is_shrinking(ticket))
			ticket->next_ns = now_ns;
		lk__ticket_pursue(core, now_ns, ticket);
	}
	lk__latches_link_up(core, session, now_ns);
	lk__quorum_settle(core, now_ns);
}

bool lk__pending_drop(const struct lk__core *core, const struct lk__session *session,
                      struct lk__pending *request)
{
	if (request->state == LK__IDLE || request->link != session->index)
		return false;
	lk__pending_dequeue(core, request);
	request->state = LK__IDLE;
	request->asking = false;
	return true;
}

/* The requests of a ticket over a lost link.  False if the link does not concern it. */
static bool drop_requests(struct lk__core *core, const struct lk__session *session,
                          struct lk__ticket *ticket)
{
	bool asked = ticket->main.state == LK__IN_FLIGHT;
	bool dropped = lk__pending_drop(core, session, &ticket->main);

	if (dropped && asked) {
		struct lk__op *extender =
			ticket->main.extends ? lk__ticket_extender(ticket) : NULL;
		ticket->may_be_known = true;
		if (extender && extender->sent)
			extender->may_be_extended = true;
	}
	if (lk__ticket_whole(ticket) && ticket->session == session)
		lk__leg_dropped(core, ticket);
	dropped |= lk__pending_drop(core, session, &ticket->leave);
	return dropped || ticket->session == session;
}

void lk__core_link_down(struct lk__core *core, struct lk__session *session, int64_t now_ns,
                        const struct lk__why *why, uint64_t random)
{
	struct lk__ticket *ticket = core->all_tickets, *next;

	lk__session_down(session, now_ns, random);
	session->why = *why;
	lk__pending_dequeue(core, &session->memory);
	session->memory.state = LK__IDLE;
	lk__confirm_forget(core, session);
	lk__vouch_forget(session);
	for (; ticket; ticket = next) {
		next = ticket->next;
		if (!drop_requests(core, session, ticket))
			continue;
		if (ticket->state == LK__OVER || lk__leave_is_overdue(ticket, now_ns))
			lk__ticket_end(core, ticket);
		else if (ticket->session == session)
			lk__ticket_pursue(core, now_ns, ticket);
		else
			lk__ticket_resume(core, now_ns, ticket);
	}
	lk__latches_link_down(core, session, now_ns);
	lk__queries_link_down(core, session, why);
	lk__quorum_settle(core, now_ns);
}

/* Calls depend on it.  A hold, or a leave, may have come with its slot. */
static bool waits_for_link(const struct lk__ticket *ticket)
{
	return ticket->state != LK__OVER && ticket->state != LK__HOLDING &&
	       (!lk__ticket_is_leaving(ticket) || lk__ticket_has_lapsed(ticket));
}

void lk__core_link_refused(struct lk__core *core, struct lk__session *session, int64_t now_ns)
{
	struct lk__ticket *ticket = core->all_tickets, *next;

	for (; ticket; ticket = next) {
		next = ticket->next;
		if (ticket->session == session && waits_for_link(ticket))
			lk__ticket_refuse(core, now_ns, ticket, session->why.err,
			                  session->why.text);
	}
	lk__latches_end(core, session, now_ns, &session->why);
	lk__queries_refused(core, session);
	lk__core_link_unreached(core, session, now_ns);
	lk__session_refused(session);
	lk__quorum_settle(core, now_ns);
}

void lk__core_tick(struct lk__core *core, int64_t now_ns)
{
	struct lk__timer *timer;

	core->seen_ns = now_ns;
	for (struct lk__session *session = core->sessions; session; session = session->next)
		lk__vouch_run(session, now_ns);
	lk__ops_tick(core, now_ns);
	while ((timer = lk__heap_first(&core->timers)) && timer->due_ns <= now_ns)
		lk__ticket_pursue(core, now_ns, (struct lk__ticket *)timer);
	lk__quorum_settle(core, now_ns);
	lk__latches_tick(core, now_ns);
	for (struct lk__session *session = core->sessions; session; session = session->next) {
		lk__channels_tick(&session->channels, now_ns);
		if (lk__memory_due(core, session) <= now_ns)
			lk__memory_ask(session);
	}
}
