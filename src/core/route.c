/* SPDX-License-Identifier: MIT
 * The routes of a Cluster's names.
 *
 * Why a move is safe: whatever was sent to the old server and has no answer yet is unknown, as if
 * the link had broken, and is asked again at the new one; its late answer makes nothing.  A hold is
 * taken back at the new server: after a move of its slot it is there, and that only renews it;
 * after a failover it may have been forgotten, and then it is taken back in the grace, or lost. */
#include "core.h"
#include "latch.h"
#include "query.h"

#include <stdlib.h>
#include <string.h>

bool lk__redirect_parse(const char *text, struct lk__redirect *redirect)
{
	const char *at = text, *colon = NULL;
	unsigned long slot = 0, port = 0;
	size_t len;

	for (const char *byte = text; *byte; byte++)
		if (*byte == ':')
			colon = byte;
	for (; *at >= '0' && *at <= '9' && slot < LK__SLOTS; at++)
		slot = slot * 10 + (unsigned long)(*at - '0');
	if (at == text || *at != ' ' || slot >= LK__SLOTS || !colon || colon < at)
		return false;
	at++;
	len = (size_t)(colon - at);
	if (len >= sizeof(redirect->place.host))
		return false;
	for (const char *digit = colon + 1; *digit; digit++) {
		if (*digit < '0' || *digit > '9' || port > 65535)
			return false;
		port = port * 10 + (unsigned long)(*digit - '0');
	}
	if (port < 1 || port > 65535)
		return false;
	redirect->slot = (unsigned)slot;
	memcpy(redirect->place.host, at, len);
	redirect->place.host[len] = '\0';
	redirect->place.port = (int)port;
	return true;
}

/* ---- Routes ------------------------------------------------------------------------------- */

bool lk__core_use_route(struct lk__core *core)
{
	if (!core->route && (core->route = malloc(sizeof(*core->route))))
		memset(core->route->owner, LK__NO_OWNER, sizeof(core->route->owner));
	return core->route != NULL;
}

/* The link to the slot's owner; while it is unknown, any link that is up: its server answers with
 * the owner. */
static struct lk__session *link_of(const struct lk__core *core, unsigned slot)
{
	uint8_t owner = core->route->owner[slot];

	if (owner != LK__NO_OWNER)
		return core->links[owner];
	for (unsigned i = 0; i < core->link_count; i++)
		if (lk__session_is_up(core->links[i]))
			return core->links[i];
	return core->link_count ? core->links[0] : NULL;
}

struct lk__session *lk__core_route(const struct lk__core *core, const char *name, size_t len)
{
	return link_of(core, lk__slot_of(name, len));
}

bool lk__core_has_slots(const struct lk__core *core, const struct lk__session *session)
{
	for (int slot = 0; core->route && slot < LK__SLOTS; slot++)
		if (core->route->owner[slot] == session->index)
			return true;
	return !core->route;
}

void lk__route_name(const struct lk__core *core, struct lk__session *session, struct lk__name *name)
{
	name->session = session;
	if (!core->route)
		return;
	name->session = link_of(core, lk__slot_of(name->bytes, name->len));
}

bool lk__pending_is_late(const struct lk__pending *request, const struct lk__session *session)
{
	return !request->asking && request->link != session->index;
}

bool lk__pending_makes_nothing(const struct lk__pending *request, const struct lk__ticket *ticket)
{
	if (request->doubted || lk__pending_is_late(request, ticket->session))
		return true;
	return request->link != ticket->session->index && lk__ticket_is_leaving(ticket) &&
	       request->kind != LK__LEAVE && request->kind != LK__HAND;
}

/* ---- Moves -------------------------------------------------------------------------------- */

/* A request in flight on another link has an answer that makes nothing. */
static void note_unknown(struct lk__ticket *ticket)
{
	struct lk__op *extender = ticket->main.extends ? lk__ticket_extender(ticket) : NULL;

	if (ticket->main.state != LK__IN_FLIGHT)
		return;
	ticket->may_be_known = true;
	if (extender && extender->sent)
		extender->may_be_extended = true;
}

static void move_ticket(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                        struct lk__session *session)
{
	lk__pending_dequeue(core, &ticket->main);
	if (ticket->leave.state == LK__TO_SEND && ticket->leave.kind == LK__LEAVE)
		ticket->leaves_sent--;
	lk__pending_dequeue(core, &ticket->leave);
	/* In flight to a third server: late, unless that has the slot now. */
	ticket->main.asking = ticket->leave.asking = false;
	ticket->uses_inbox = false; /* its channel is on the old link */
	ticket->session->users--;
	session->users++;
	ticket->session = session;
	if (ticket->state == LK__OVER)
		return;
	note_unknown(ticket);
	if (ticket->state == LK__HOLDING || ticket->released)
		ticket->is_forgotten = true;
	ticket->is_doubted = false;
	if (ticket->hops <= LK__HOPS_MAX || ticket->next_ns == LK__NEVER)
		ticket->next_ns = now_ns; /* else it pauses: the servers redirect to each other */
	lk__session_mind_lease(session, ticket->queue->lease_ms);
	lk__ticket_pursue(core, now_ns, ticket);
}

/* The link for a name that is open.  If the owner is not known, it stays: its server may be the
 * one. */
static struct lk__session *home_of(const struct lk__core *core, const struct lk__name *name)
{
	unsigned slot = name->inbox->slot;

	if (core->route->owner[slot] == LK__NO_OWNER && lk__session_is_up(name->session))
		return name->session;
	return link_of(core, slot);
}

/* Bring every name, latch and ticket to the link of its slot's owner. */
static void settle(struct lk__core *core, int64_t now_ns)
{
	struct lk__ticket *ticket = core->all_tickets, *next;
	struct lk__node *node = NULL;

	while ((node = lk__table_each(&core->names, node))) {
		struct lk__name *name = (struct lk__name *)node;
		struct lk__session *session = home_of(core, name);
		if (name->session == session)
			continue;
		lk__inbox_close(core, name);
		if (name->latch)
			lk__latch_move(core, name->latch, session);
		name->session = session;
	}
	for (; ticket; ticket = next) {
		next = ticket->next;
		if (ticket->queue && ticket->queue->name->session != ticket->session)
			move_ticket(core, now_ns, ticket, ticket->queue->name->session);
	}
	lk__latches_settle(core, now_ns);
}

void lk__core_topology(struct lk__core *core, int64_t now_ns, const uint8_t owner[LK__SLOTS])
{
	memcpy(core->route->owner, owner, sizeof(core->route->owner));
	settle(core, now_ns);
}

void lk__core_slot_moved(struct lk__core *core, int64_t now_ns, unsigned slot,
                         struct lk__session *session)
{
	if (core->route->owner[slot] == session->index)
		return;
	core->route->owner[slot] = session->index;
	settle(core, now_ns);
}

/* ---- Redirects ---------------------------------------------------------------------------- */

/* The request was redirected too often: an answer that says so, after which it is repeated with a
 * delay. */
static const struct lk__answer loop = {
	.kind = LK__FAILED,
	.err = LK_EAGAIN,
	.retryable = true,
	.text = "the servers of the Cluster redirect to each other: which one has the slot?",
};

static bool is_of_session(const struct lk__pending *request)
{
	return request->kind == LK__EPOCH || request->kind == LK__CONFIRM;
}

bool lk__answer_ends_hops(const struct lk__answer *answer)
{
	return answer->text != loop.text;
}

/* Count a redirect.  False if there were too many in a row: then each further one needs a pause,
 * until there is another answer. */
static bool may_hop(struct lk__pending *request)
{
	unsigned hops;

	if (lk__is_query(request->kind))
		return ++request->query->hops <= LK__HOPS_MAX;
	hops = lk__pending_is_latch(request) ? request->latch->hops : request->ticket->hops;
	if (hops > LK__HOPS_MAX)
		return false;
	if (lk__pending_is_latch(request))
		request->latch->hops++;
	else
		request->ticket->hops++;
	return hops < LK__HOPS_MAX;
}

void lk__hops_pause(struct lk__pending *request, int64_t now_ns)
{
	if (now_ns - request->sent_ns < LK__HOPS_PAUSE_NS || lk__is_query(request->kind) ||
	    is_of_session(request))
		return;
	if (lk__pending_is_latch(request))
		request->latch->hops = 0;
	else
		request->ticket->hops = 0;
}

/* Send it again, once, over that link. */
static void repeat(struct lk__pending *request, struct lk__session *session, bool asking)
{
	request->asking = asking;
	request->by_text = lk__is_query(request->kind);
	lk__pending_enqueue(session, request);
}

/* The ticket sends it again by itself. */
static void repeat_ticket(struct lk__core *core, int64_t now_ns, struct lk__pending *request)
{
	struct lk__ticket *ticket = request->ticket;

	request->state = LK__IDLE;
	request->asking = false;
	if (request->kind == LK__LEAVE && ticket->leaves_sent)
		ticket->leaves_sent--; /* it was not run */
	lk__ticket_resume(core, now_ns, ticket);
}

void lk__core_moved(struct lk__core *core, int64_t now_ns, struct lk__pending *request,
                    unsigned slot, struct lk__session *session)
{
	lk__topology_ask(core, core->links[request->link]);
	if (is_of_session(request)) {
		const struct lk__answer moved = {.kind = LK__FAILED,
		                                 .err = LK_EAGAIN,
		                                 .retryable = true,
		                                 .text = "the slot has moved"};
		lk__core_slot_moved(core, now_ns, slot, session);
		lk__core_answer(core, now_ns, request, &moved);
		return;
	}
	if (!may_hop(request)) {
		lk__core_answer(core, now_ns, request, &loop);
		lk__core_slot_moved(core, now_ns, slot, session);
		return;
	}
	if (lk__is_query(request->kind)) {
		lk__query_move(request->query, session);
		repeat(request, session, false);
	} else if (lk__pending_is_latch(request)) {
		lk__latch_unrun(core, now_ns, request);
	} else {
		repeat_ticket(core, now_ns, request);
	}
	lk__core_slot_moved(core, now_ns, slot, session);
}

void lk__core_asked(struct lk__core *core, int64_t now_ns, struct lk__pending *request,
                    struct lk__session *session)
{
	const struct lk__ticket *ticket = request->ticket;
	bool of_latch = lk__pending_is_latch(request);
	bool of_ticket = !lk__is_query(request->kind) && !of_latch && !is_of_session(request);

	if (is_of_session(request) || !may_hop(request)) {
		lk__core_answer(core, now_ns, request, &loop);
		return;
	}
	if (of_latch && lk__pending_is_late(request, request->latch->name->session)) {
		lk__latch_unrun(core, now_ns, request);
		return;
	}
	/* An ask of a ticket that leaves would make a grant without a waiter. */
	if (of_ticket &&
	    (lk__pending_is_late(request, ticket->session) || ticket->state == LK__OVER ||
	     (lk__ticket_is_leaving(ticket) && request == &ticket->main))) {
		repeat_ticket(core, now_ns, request);
		return;
	}
	/* The grace of that server counts, if it has lost its memory. */
	if (of_ticket && lk__memory_is_old(core, session, now_ns))
		lk__memory_ask(session);
	repeat(request, session, true);
}

void lk__core_link_unreached(struct lk__core *core, struct lk__session *session, int64_t now_ns)
{
	struct lk__pending *request = session->send_queue, *next;

	for (; request; request = next) {
		next = request->next;
		if (!request->asking || lk__is_query(request->kind))
			continue;
		lk__pending_dequeue(core, request);
		if (lk__pending_is_latch(request))
			lk__latch_unrun(core, now_ns, request);
		else
			repeat_ticket(core, now_ns, request);
		next = session->send_queue;
	}
}

/* ---- The topology ------------------------------------------------------------------------- */

void lk__topology_ask(struct lk__core *core, struct lk__session *session)
{
	struct lk__query *query;

	if (session->topology_asked || !lk__session_is_up(session))
		return;
	query = lk__query_new(LK__TOPOLOGY, LK_KIND_NONE, NULL, 0);
	if (query && !(query->into = malloc(sizeof(struct lk__topology)))) {
		free(query);
		query = NULL;
	}
	if (!query)
		return; /* the next redirect asks again */
	session->topology_asked = true;
	lk__core_ask_detached(core, session, query);
}

struct lk__topology *lk__core_take_topology(struct lk__core *core, struct lk__session **from)
{
	struct lk__topology *topology = core->topology;

	*from = core->topology_from;
	core->topology = NULL;
	return topology;
}
