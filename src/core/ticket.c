/* SPDX-License-Identifier: MIT
 * Tickets: their life, and the requests that they send. */
#include "latch.h"
#include "quorum.h"

#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define RETRY_MS 100
#define HELD_MS 100 /* then a hold listens for its break, in a Cluster */

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t lk__core_random(struct lk__core *core)
{
	uint64_t z = core->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* ---- Life of a ticket --------------------------------------------------------------------- */

void lk__nonce_new(struct lk__core *core, char nonce[LK__NONCE_SIZE])
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	uint64_t random = lk__core_random(core);

	for (int i = 0; i < LK__NONCE_SIZE - 1; i++, random >>= 6)
		nonce[i] = digits[random & 63];
	nonce[LK__NONCE_SIZE - 1] = '\0';
}

/* Give a new ticket a nonce, a spare one if there is one. */
static void take_nonce(struct lk__core *core, struct lk__ticket *ticket)
{
	if (core->spares.count)
		memcpy(ticket->nonce, core->spares.nonces[--core->spares.count], LK__NONCE_SIZE);
	else
		lk__nonce_new(core, ticket->nonce);
}

static void spare_nonce(struct lk__core *core, const struct lk__ticket *ticket)
{
	if (ticket->has_spare_nonce && core->spares.count < LK__SPARES_MAX)
		memcpy(core->spares.nonces[core->spares.count++], ticket->nonce, LK__NONCE_SIZE);
}

static void add_nonce(struct lk__core *core, struct lk__ticket *ticket)
{
	lk__table_add(&core->tickets, &ticket->node,
	              lk__hash(ticket->nonce, LK__NONCE_SIZE - 1, 1));
}

struct lk__ticket *lk__ticket_find_at(const struct lk__core *core, const char *nonce,
                                      const struct lk__session *session)
{
	struct lk__node *node =
		lk__table_first(&core->tickets, lk__hash(nonce, LK__NONCE_SIZE - 1, 1));

	for (; node; node = lk__table_next(node)) {
		struct lk__ticket *ticket =
			(struct lk__ticket *)((char *)node - offsetof(struct lk__ticket, node));
		if (!memcmp(ticket->nonce, nonce, LK__NONCE_SIZE) &&
		    (!session || session == ticket->session))
			return ticket;
	}
	return NULL;
}

struct lk__ticket *lk__ticket_find(const struct lk__core *core, const char *nonce)
{
	return lk__ticket_find_at(core, nonce, NULL);
}

/* A ticket with legs is found by theirs. */
void lk__ticket_add(struct lk__core *core, struct lk__ticket *ticket)
{
	lk__timer_init(&ticket->timer);
	ticket->main.ticket = ticket->leave.ticket = ticket;
	ticket->next = core->all_tickets;
	if (core->all_tickets)
		core->all_tickets->prev = ticket;
	core->all_tickets = ticket;
	if (ticket->legs)
		return;
	ticket->session->users++;
	add_nonce(core, ticket);
}

void lk__ticket_raise(struct lk__core *core, int64_t now_ns, struct lk__name *name,
                      struct lk__wait_queue *queue, struct lk__ticket *ticket, const char *nonce)
{
	queue->name = name;
	queue->next = name->queues;
	queue->refs = 1;
	name->queues = queue;
	name->refs++;
	if (!ticket->session)
		ticket->session = name->session;
	ticket->queue = queue;
	ticket->permits = queue->permits;
	ticket->may_be_known = true;
	ticket->next_ns = now_ns;
	lk__leave_begin(now_ns, ticket);
	ticket->state = LK__LEAVING;
	memcpy(ticket->nonce, nonce, LK__NONCE_SIZE);
	lk__ticket_add(core, ticket);
	lk__ticket_pursue(core, now_ns, ticket);
}

/* Start a ticket for the first waiter of a queue, from the memory that the waiter supplied. */
void lk__ticket_start(struct lk__core *core, int64_t now_ns, struct lk__wait_queue *queue)
{
	struct lk__ticket *ticket = queue->first->spare_ticket;

	if (core->quorum) {
		lk__quorum_start(core, now_ns, queue);
		return;
	}
	queue->first->spare_ticket = NULL;
	lk__vouch_run(queue->name->session, now_ns);
	*ticket = (struct lk__ticket){
		.session = queue->name->session,
		.queue = queue,
		.permits = queue->permits,
		.is_try = queue->first->only_try,
		.state = LK__ASKING,
		.next_ns = now_ns,
	};
	take_nonce(core, ticket);
	lk__ticket_add(core, ticket);
	queue->ticket = ticket;
	queue->refs++;
	lk__ticket_pursue(core, now_ns, ticket);
}

void lk__ticket_end(struct lk__core *core, struct lk__ticket *ticket)
{
	struct lk__wait_queue *queue = ticket->queue;

	lk__pending_dequeue(core, &ticket->main);
	lk__pending_dequeue(core, &ticket->leave);
	lk__leave_forget(core, ticket);
	lk__heap_set(&core->timers, &ticket->timer, LK__NEVER);
	if (ticket->state != LK__OVER && !ticket->legs)
		lk__table_remove(&core->tickets, &ticket->node);
	ticket->state = LK__OVER;
	if (lk__ticket_whole(ticket))
		lk__leg_ended(core, ticket);
	if (queue) {
		lk__ghost_note(core, ticket);
		lk__inbox_unuse(core, core->seen_ns, ticket);
		if (queue->ticket == ticket)
			queue->ticket = NULL;
		ticket->queue = NULL; /* the name may be freed, and looks at all tickets */
		lk__wait_queue_close(core, queue);
	}
	if (ticket->main.state == LK__IN_FLIGHT || ticket->leave.state == LK__IN_FLIGHT)
		return;
	if (ticket->legs)
		lk__quorum_forget(core, ticket);
	else
		ticket->session->users--;
	if (ticket->prev)
		ticket->prev->next = ticket->next;
	else
		core->all_tickets = ticket->next;
	if (ticket->next)
		ticket->next->prev = ticket->prev;
	spare_nonce(core, ticket);
	free(ticket);
}

void lk__ticket_leave(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	if (ticket->legs) {
		lk__quorum_leave(core, now_ns, ticket);
		return;
	}
	if (ticket->queue->ticket == ticket)
		ticket->queue->ticket = NULL;
	while (!ticket->is_leg && ticket->extenders) {
		struct lk__op *waiter = ticket->extenders;
		ticket->extenders = waiter->next;
		lk__complete(core, waiter, LK_ELOST, "the hold was lost");
	}
	lk__pending_dequeue(core, &ticket->main);
	lk__leave_begin(now_ns, ticket);
	if (lk__ticket_is_leaving(ticket))
		return;
	if (lk__ticket_is_unknown(ticket)) {
		lk__ticket_end(core, ticket);
		return;
	}
	ticket->state = LK__LEAVING;
	ticket->head_unserved = false;
	ticket->next_ns = now_ns;
	lk__ticket_pursue(core, now_ns, ticket);
}

void lk__ticket_resume(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	if (ticket->state == LK__OVER) {
		lk__ticket_end(core, ticket);
		return;
	}
	ticket->next_ns = now_ns;
	lk__ticket_pursue(core, now_ns, ticket);
}

void lk__ticket_restart(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	lk__ghost_note(core, ticket);
	lk__table_remove(&core->tickets, &ticket->node);
	lk__nonce_new(core, ticket->nonce);
	add_nonce(core, ticket);
	ticket->state = LK__ASKING;
	ticket->is_wanted = ticket->is_shared = ticket->renewal_failed = false;
	ticket->granted_by_message = ticket->may_be_known = false;
	ticket->has_spare_nonce = false;
	ticket->is_forgotten = ticket->is_doubted = ticket->outlasts_grace = false;
	lk__leave_forget(core, ticket);
	ticket->refusals = 0;
	ticket->is_try = ticket->queue->first->only_try;
	ticket->first_sent_ns = 0;
	ticket->arrival = 0;
	ticket->leaves_sent = 0;
	ticket->hands = 0;
	ticket->next_ns = now_ns;
	lk__ticket_pursue(core, now_ns, ticket);
}

/* ---- Requests and their times ------------------------------------------------------------- */

/* Must an ask not be enqueued, although its ticket may wait, or will? */
static bool tries(const struct lk__core *core, const struct lk__ticket *ticket)
{
	return ticket->is_leg ? ticket->is_try : !ticket->is_try && !lk__inbox_is_on(core, ticket);
}

void lk__ticket_enqueue(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                        struct lk__pending *request, enum lk__request_kind kind)
{
	bool is_claim = ticket->state == LK__CLAIMING;

	if ((kind != LK__RENEW || is_claim) && kind != LK__SHRINK &&
	    lk__memory_is_old(core, ticket->session, now_ns))
		lk__memory_ask(ticket->session);

	request->kind = (uint8_t)kind;
	request->by_text = false;
	request->extends = false;
	request->claim = is_claim;
	if (kind == LK__ASK && !ticket->is_try && lk__inbox_is_on(core, ticket))
		lk__inbox_use(core, now_ns, ticket); /* else it would end while this waits */
	request->tries = kind == LK__ASK && tries(core, ticket);
	if (lk__ticket_whole(ticket)) /* the fence to commit */
		request->fence = ticket->whole->state == LK__HOLDING ? ticket->whole->fence
		                                                     : ticket->whole->legs->commit;
	request->narrow = request->asking = false;
	request->lease_ms = ticket->queue->lease_ms;
	lk__pending_enqueue(ticket->session, request);
	ticket->next_ns = LK__NEVER;
}

static bool is_reachable(const struct lk__core *core, const struct lk__ticket *ticket)
{
	return lk__session_is_up(ticket->session) &&
	       (!ticket->is_leg || lk__leg_may_ask(core, ticket));
}

static bool due(const struct lk__core *core, const struct lk__ticket *ticket, int64_t now_ns,
                const struct lk__pending *request)
{
	return is_reachable(core, ticket) && request->state == LK__IDLE &&
	       ticket->next_ns <= now_ns;
}

/* Should a renewal report that threads wait here for this hold?  The store does not know it yet,
 * and no remote waiter is known: the store will then notify us of the first one.  Not while
 * renewals fail: they would be repeated without a pause. */
static bool share_is_news(const struct lk__core *core, const struct lk__ticket *ticket)
{
	return lk__inbox_is_on(core, ticket) && !ticket->queue->fixed && ticket->queue->first &&
	       !ticket->is_wanted && !ticket->is_shared && !ticket->renewal_failed;
}

/* Send the request of a hold: a due renewal first, then the serving of others. */
static void keep(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	bool renewal_due = lk__ticket_renewal_ns(ticket) <= now_ns;

	if (ticket->is_doubted) {
		lk__memory_ask(ticket->session);
		ticket->next_ns = now_ns + RETRY_MS * MS;
		return;
	}
	if (ticket->is_forgotten) {
		int64_t left_ms = (ticket->valid_until_ns - now_ns) / MS;
		lk__ticket_enqueue(core, now_ns, ticket, &ticket->main, LK__RECLAIM);
		/* At least so long that the hold ends no sooner than it would have. */
		left_ms += left_ms / 99 + 3;
		if (ticket->queue->fixed || ticket->main.lease_ms < left_ms)
			ticket->main.lease_ms = left_ms;
		return;
	}
	if (ticket->head_unserved && !renewal_due) {
		lk__ticket_enqueue(core, now_ns, ticket, &ticket->main, LK__HAND);
		return;
	}
	/* An extender must not repeat a refused release before its time, nor wait for it. */
	if (lk__ticket_is_shrinking(ticket) && !renewal_due && ticket->next_ns <= now_ns) {
		lk__ticket_enqueue(core, now_ns, ticket, &ticket->main, LK__SHRINK);
		ticket->main.permits = ticket->queue->hold->count;
		return;
	}
	lk__ticket_enqueue(core, now_ns, ticket, &ticket->main, LK__RENEW);
	if (ticket->extenders) {
		ticket->main.extends = true;
		ticket->main.lease_ms = ticket->extenders->lease_ms;
	}
}

/* When a hold needs messages, from this client's inbox for its name: of waiters, once threads wait
 * behind it; of a break, once it has lasted for a while.  LK__NEVER without an inbox. */
static int64_t inbox_ns(const struct lk__core *core, const struct lk__ticket *ticket)
{
	if (!core->route || ticket->uses_inbox || ticket->queue->name->inbox->is_refused)
		return LK__NEVER;
	return ticket->queue->first ? 0 : ticket->store_us_ns + HELD_MS * MS;
}

static void mind_inbox(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	if (inbox_ns(core, ticket) <= now_ns && !lk__inbox_use(core, now_ns, ticket))
		ticket->queue->name->inbox->is_refused = true; /* out of memory */
}

/* False when the hold ended. */
static bool pursue_hold(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	struct lk__hold *hold = ticket->queue->hold;

	if (ticket->valid_until_ns <= now_ns) {
		lk__hold_lose(core, now_ns, hold, LK_LOST_EXPIRED);
		return false;
	}
	if (hold->max_until_ns <= now_ns) {
		lk__hold_lose(core, now_ns, hold, LK_LOST_MAX_HOLD);
		return false;
	}
	mind_inbox(core, now_ns, ticket);
	if (lk__session_is_up(ticket->session) && ticket->main.state == LK__IDLE &&
	    (ticket->next_ns <= now_ns || (!ticket->is_forgotten && !ticket->is_doubted &&
	                                   (ticket->extenders || share_is_news(core, ticket)))))
		keep(core, now_ns, ticket);
	return true;
}

/* A leave follows an ask on its own link only.  Has the ask been redirected, and has no answer? */
static bool must_wait(const struct lk__ticket *ticket)
{
	return lk__ticket_is_leaving(ticket) && ticket->main.state == LK__IN_FLIGHT &&
	       ticket->main.link != ticket->session->index;
}

static void arm(struct lk__core *core, struct lk__ticket *ticket)
{
	const struct lk__pending *request =
		lk__ticket_is_leaving(ticket) ? &ticket->leave : &ticket->main;
	int64_t when = LK__NEVER;

	if (is_reachable(core, ticket) && request->state == LK__IDLE && !must_wait(ticket))
		when = ticket->next_ns;
	if (ticket->state == LK__HOLDING && ticket->is_leg) {
		if (ticket->valid_until_ns < when)
			when = ticket->valid_until_ns;
	} else if (ticket->state == LK__HOLDING) {
		if (ticket->valid_until_ns < when)
			when = ticket->valid_until_ns;
		if (ticket->queue->hold->max_until_ns < when)
			when = ticket->queue->hold->max_until_ns;
		if (inbox_ns(core, ticket) < when)
			when = inbox_ns(core, ticket);
	}
	lk__heap_set(&core->timers, &ticket->timer, when);
}

/* The request of a ticket that waits. */
static enum lk__request_kind asks_by(const struct lk__ticket *ticket)
{
	if (ticket->yields)
		return LK__YIELD;
	return ticket->head_unserved ? LK__HAND : LK__ASK;
}

void lk__ticket_pursue(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	if (ticket->legs) {
		lk__quorum_pursue(core, now_ns, ticket);
		return;
	}
	switch (ticket->state) {
	case LK__ASKING:
	case LK__WAITING:
		if (due(core, ticket, now_ns, &ticket->main))
			lk__ticket_enqueue(core, now_ns, ticket, &ticket->main, asks_by(ticket));
		break;
	case LK__CLAIMING:
		if (due(core, ticket, now_ns, &ticket->main))
			lk__ticket_enqueue(core, now_ns, ticket, &ticket->main, LK__RENEW);
		break;
	case LK__HOLDING:
		if (ticket->is_leg)
			lk__leg_pursue(core, now_ns, ticket);
		else if (!pursue_hold(core, now_ns, ticket))
			return;
		break;
	case LK__LEAVING:
		if (due(core, ticket, now_ns, &ticket->leave) && !must_wait(ticket)) {
			lk__ticket_enqueue(core, now_ns, ticket, &ticket->leave, LK__LEAVE);
			ticket->leaves_sent++;
		}
		break;
	case LK__SERVING:
		if (due(core, ticket, now_ns, &ticket->leave))
			lk__ticket_enqueue(core, now_ns, ticket, &ticket->leave, LK__HAND);
		break;
	default:
		return;
	}
	arm(core, ticket);
}

struct lk__op *lk__ticket_extender(const struct lk__ticket *ticket)
{
	return ticket->is_leg ? lk__quorum_extender(ticket) : ticket->extenders;
}

/* Is it a request of a name that has left its link?  Then it is sent over the new one. */
static bool is_resent_elsewhere(struct lk__core *core, struct lk__pending *request)
{
	struct lk__ticket *ticket = request->ticket;
	bool of_latch = lk__pending_is_latch(request);

	if (of_latch && lk__pending_is_late(request, request->latch->name->session)) {
		lk__latch_unrun(core, core->seen_ns, request);
		return true;
	}
	if (of_latch || ticket->state == LK__OVER || !lk__pending_is_late(request, ticket->session))
		return false;
	request->state = LK__IDLE;
	lk__ticket_resume(core, core->seen_ns, ticket);
	return true;
}

bool lk__core_resend(struct lk__core *core, struct lk__pending *request)
{
	bool of_session = request->kind == LK__EPOCH || request->kind == LK__CONFIRM;
	struct lk__session *session = core->links[request->link];
	struct lk__ticket *ticket = request->ticket;

	if (!of_session && is_resent_elsewhere(core, request))
		return false;
	/* An ask whose wait is over would make a grant without a waiter. */
	if (!of_session && !lk__pending_is_latch(request) &&
	    (ticket->state == LK__OVER ||
	     (lk__ticket_is_leaving(ticket) && request == &ticket->main))) {
		request->state = LK__IDLE;
		request->asking = false;
		lk__ticket_resume(core, core->seen_ns, ticket); /* its leave may wait for it */
		return false;
	}
	request->state = LK__TO_SEND;
	request->by_text = true;
	request->next = session->send_queue;
	if (!session->send_queue)
		session->send_queue_end = &request->next;
	session->send_queue = request;
	return true;
}
