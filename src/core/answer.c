/* SPDX-License-Identifier: MIT
 * How each answer changes a ticket; message.c has the messages.
 *
 * Why a hold is valid: the store keeps a grant for its lease from a moment that is not before the
 * request was sent, so until "sent + lease - margin" on our clock no other client can hold it.  For
 * a grant by message that request is the ticket's first one.  An answer that arrives after that
 * moment neither makes nor revives a hold; the check compares times and does not rely on a timer.
 * docs/protocol.md has the whole argument. */
#include "core.h"

#include "counters.h"
#include "latch.h"
#include "query.h"
#include "quorum.h"

#define MS INT64_C(1000000)
#define RETRY_MS 100 /* after a transient error */
#define RANK_MS 20   /* further delay of an ask for each rank */
#define RANK_TIMED_MS 1
#define RANK_MAX 50
#define GRIDS 24 /* renewals of a lease fall on so many moments, so that they are batched */
#define TRY_HANDS_MAX 2
#define HANDS_DELAY_MAX 10
#define GRACE_MAX_MS 86400000

int64_t lk__margin_ns(int64_t lease_ms)
{
	return lease_ms * (MS / 100) + 2 * MS;
}

/* Renewals of one client meet on a grid, so that a thousand holds need a few batches. */
int64_t lk__ticket_renewal_ns(const struct lk__ticket *ticket)
{
	int64_t when = ticket->valid_until_ns - ticket->queue->lease_ms * MS / 3 * 2;
	int64_t grid = ticket->queue->lease_ms * MS / GRIDS;

	return ticket->queue->fixed ? LK__NEVER : when - when % grid;
}

bool lk__ticket_is_shrinking(const struct lk__ticket *ticket)
{
	return !ticket->is_leg && ticket->queue->hold->count < ticket->permits;
}

/* When a hold has a request to send. */
int64_t lk__ticket_next_ns(const struct lk__ticket *ticket, int64_t now_ns)
{
	if (ticket->head_unserved || ticket->is_forgotten || lk__ticket_is_shrinking(ticket))
		return now_ns;
	return lk__ticket_renewal_ns(ticket);
}

/* Granted too late to be used: end the grant, and start again for the calls that still wait. */
static void lapse(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	lk__pending_dequeue(core, &ticket->main);
	lk__leave_begin(now_ns, ticket);
	ticket->state = LK__LEAVING;
	ticket->head_unserved = false;
	ticket->next_ns = now_ns;
	lk__ticket_pursue(core, now_ns, ticket);
}

/* It has ended, but the head of the queue must still be served. */
void lk__ticket_serve(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	ticket->state = LK__SERVING;
	ticket->head_unserved = false;
	ticket->next_ns = now_ns;
	lk__ticket_pursue(core, now_ns, ticket);
}

static void granted(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                    const struct lk__pending *request, const struct lk__answer *answer)
{
	int64_t valid_until_ns = (answer->since_ns ? answer->since_ns : request->sent_ns) +
	                         ticket->queue->lease_ms * MS -
	                         lk__margin_ns(ticket->queue->lease_ms);

	if (lk__ticket_is_leaving(ticket))
		return; /* its leave follows this ask on the same connection */
	if (ticket->is_leg) {
		lk__leg_granted(core, now_ns, ticket, request, answer);
		return;
	}
	if (ticket->state == LK__HOLDING) {
		/* A message was faster; the first grant counts. */
		if (answer->fence != ticket->fence) {
			lk__hold_lose(core, now_ns, ticket->queue->hold, LK_LOST_TAKEN);
			return;
		}
		if (now_ns < ticket->valid_until_ns && ticket->valid_until_ns < valid_until_ns) {
			ticket->valid_until_ns = valid_until_ns;
			ticket->next_ns = lk__ticket_next_ns(ticket, now_ns);
		}
		lk__ticket_pursue(core, now_ns, ticket);
	} else if (valid_until_ns <= now_ns && !ticket->queue->final) {
		lapse(core, now_ns, ticket);
	} else {
		ticket->valid_until_ns = valid_until_ns;
		ticket->head_unserved = answer->more;
		/* Only the first ask is sure to have stored its share mark. */
		ticket->is_shared = request->shares && request->sent_ns == ticket->first_sent_ns;
		lk__ticket_take(core, now_ns, ticket, answer->fence, answer->store_us,
		                answer->waiting);
	}
}

static int64_t reask_ns(struct lk__core *core, const struct lk__ticket *ticket,
                        const struct lk__answer *answer)
{
	/* Where permits expire by themselves, each waiter knows its own time: keep their order. */
	bool timed = ticket->queue->permits && ticket->queue->fixed;
	/* A hold that ends in the grace may serve no waiter: ask at the end of it, too. */
	int64_t left_ms = answer->grace_ms ? answer->grace_ms : answer->left_ms;
	int64_t wait_ms = left_ms < LK__REASK_MAX_MS ? left_ms : LK__REASK_MAX_MS;
	int64_t rank = answer->rank < RANK_MAX ? answer->rank : RANK_MAX;
	int64_t jitter_ns = timed ? MS : (wait_ms / 50 + 2) * MS;

	return (wait_ms + 1 + rank * (timed ? RANK_TIMED_MS : RANK_MS)) * MS +
	       (int64_t)(lk__core_random(core) % (uint64_t)jitter_ns);
}

/* Remember for how long the ticket waits only because of the grace. */
static void note_grace(int64_t now_ns, struct lk__ticket *ticket, const struct lk__answer *answer)
{
	int64_t ms = answer->grace_ms < GRACE_MAX_MS ? answer->grace_ms : GRACE_MAX_MS;

	if (!ms)
		return;
	if (ms > ticket->session->grace_ms + 1000)
		lk__memory_ask(ticket->session); /* its clock was set back */
	if (ticket->grace_until_ns < now_ns)
		ticket->grace_from_ns = now_ns;
	ticket->grace_until_ns = now_ns + ms * MS;
}

static void plan_reask(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                       const struct lk__answer *answer)
{
	ticket->state = LK__WAITING;
	if (!ticket->is_leg)
		ticket->arrival = answer->arrival;
	else if (ticket->whole)
		ticket->whole->legs->was_queued = true;
	note_grace(now_ns, ticket, answer);
	if (ticket->next_ns != LK__NEVER)
		return; /* a message asked for an earlier moment meanwhile */
	if (!answer->free) {
		ticket->hands = 0;
		ticket->next_ns = now_ns + reask_ns(core, ticket, answer);
		return;
	}
	/* Free, but other tickets are first: their holder died.  Serve them, at once the first
	 * time. */
	ticket->head_unserved = true;
	ticket->next_ns = now_ns + ticket->hands * RETRY_MS * MS;
	if (ticket->hands < HANDS_DELAY_MAX)
		ticket->hands++;
}

static void queued(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                   const struct lk__answer *answer)
{
	if (ticket->state == LK__CLAIMING)
		ticket->next_ns = now_ns; /* asked before the grant: now claim it */
	else if (ticket->state == LK__ASKING || ticket->state == LK__WAITING)
		plan_reask(core, now_ns, ticket, answer);
	lk__ticket_pursue(core, now_ns, ticket);
}

/* A try found it held. */
static void busy(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                 const struct lk__pending *request, const struct lk__answer *answer)
{
	if (request->tries && !ticket->is_leg &&
	    (ticket->state == LK__ASKING || ticket->state == LK__WAITING)) {
		note_grace(now_ns, ticket, answer);
		lk__inbox_await(core, now_ns, ticket);
		return;
	}

	if (ticket->state != LK__ASKING) {
		lk__ticket_pursue(core, now_ns, ticket);
		return;
	}
	if (answer->free && ticket->hands++ < TRY_HANDS_MAX) {
		ticket->head_unserved = true;
		ticket->next_ns = now_ns;
		lk__ticket_pursue(core, now_ns, ticket);
		return;
	}
	if (ticket->is_leg)
		lk__leg_busy(core, now_ns, ticket);
	else
		lk__decide_busy(core, now_ns, ticket, answer);
}

static void kept(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                 const struct lk__pending *request, const struct lk__answer *answer)
{
	int64_t valid_until_ns = (answer->since_ns ? answer->since_ns : request->sent_ns) +
	                         request->lease_ms * MS - lk__margin_ns(request->lease_ms);
	struct lk__op *waiter = ticket->extenders;
	bool awaited = request->extends && waiter && waiter->sent;
	bool is_unextended = request->kind == LK__RECLAIM && ticket->queue->fixed;

	if (ticket->is_leg) {
		lk__leg_kept(core, now_ns, ticket, request, answer);
		return;
	}
	if (ticket->state == LK__CLAIMING && valid_until_ns <= now_ns) {
		lapse(core, now_ns, ticket);
	} else if (ticket->state == LK__CLAIMING) {
		ticket->valid_until_ns = valid_until_ns;
		ticket->is_shared = request->shares;
		ticket->is_divided = request->narrow;
		lk__ticket_take(core, now_ns, ticket, answer->fence, answer->store_us,
		                answer->waiting);
	} else if (ticket->state == LK__HOLDING && now_ns < ticket->valid_until_ns) {
		lk__count_renewal(&core->counters, now_ns, ticket, request);
		if (request->lease_ms > ticket->session->grace_ms)
			ticket->outlasts_grace = true;
		/* The store never shortens a lease: only an extension to a shorter one does so
		 * here.  A fixed lease that was reclaimed ends when it would have ended. */
		if (awaited || (ticket->valid_until_ns < valid_until_ns && !is_unextended))
			ticket->valid_until_ns = valid_until_ns;
		if (request->kind == LK__RECLAIM) {
			ticket->is_forgotten = false;
			lk__memory_reclaimed(core, now_ns, ticket, answer);
		}
		ticket->next_ns = lk__ticket_next_ns(ticket, now_ns);
		ticket->renewal_failed = false;
		ticket->session->news.is_refused = ticket->session->news.refusal_logged = false;
		ticket->is_divided = request->narrow;
		ticket->is_shared = request->shares;
		/* An answer from before a message does not include the new waiter. */
		ticket->is_wanted = answer->waiting > 0 || lk__pending_heard(request, LK__WANTED);
		ticket->store_us = answer->store_us;
		ticket->store_us_ns = now_ns;
		if (!ticket->is_wanted)
			ticket->hand_overs = 0;
		if (awaited) {
			ticket->extenders = waiter->next;
			lk__complete(core, waiter, LK_OK, NULL);
		}
		lk__ticket_pursue(core, now_ns, ticket);
	} else {
		/* Too late: the hold ends there. */
		lk__ticket_pursue(core, now_ns, ticket);
	}
}

static void gone(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                 const struct lk__pending *request)
{
	if (ticket->is_leg) {
		lk__leg_gone(core, now_ns, ticket);
		return;
	}
	if (ticket->state == LK__HOLDING && request->kind == LK__RECLAIM) {
		lk__ticket_lose(core, now_ns, ticket, LK_LOST_TAKEN);
		return;
	}
	if (ticket->state == LK__HOLDING) {
		lk__ticket_doubt(core, now_ns, ticket);
		return;
	}
	if (ticket->state == LK__CLAIMING) {
		ticket->state = LK__ASKING;
		ticket->next_ns = now_ns;
	}
	lk__ticket_pursue(core, now_ns, ticket);
}

/* The hold will be lost unless that ends.  Of one link, the first refusal is logged. */
static void renewal_refused(struct lk__core *core, struct lk__session *session,
                            const struct lk__answer *answer)
{
	struct lk__news *news = &session->news;

	if (news->is_refused || answer->ambiguous || !answer->text)
		return;
	news->is_refused = true;
	lk__why_set(&news->why, answer->err, "%s", answer->text);
	core->has_news = true;
}

static void failed(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                   const struct lk__pending *request, const struct lk__answer *answer)
{
	struct lk__op *waiter = ticket->extenders;

	if (ticket->is_leg) {
		lk__leg_failed(core, now_ns, ticket, request, answer);
		return;
	}
	if (ticket->state == LK__HOLDING) {
		if (request->kind == LK__RENEW && !request->extends)
			renewal_refused(core, ticket->session, answer);
		ticket->renewal_failed = ticket->renewal_failed || request->kind == LK__RENEW ||
		                         request->kind == LK__RECLAIM;
		ticket->head_unserved = false;
		ticket->next_ns = now_ns + (ticket->queue->lease_ms / 20 + 10) * MS;
		if (lk__ticket_is_shrinking(ticket))
			ticket->next_ns = now_ns + RETRY_MS * MS;
		else if (ticket->queue->fixed && !ticket->is_forgotten)
			ticket->next_ns = LK__NEVER;
		if (request->extends && waiter && waiter->sent) {
			bool unknown = waiter->may_be_extended || answer->ambiguous;
			ticket->extenders = waiter->next;
			lk__complete(core, waiter, unknown ? LK_EUNKNOWN : answer->err,
			             answer->text);
		}
		if (answer->err == LK_EFOREIGN)
			lk__ticket_lose(core, now_ns, ticket, LK_LOST_TAKEN);
		else
			lk__ticket_pursue(core, now_ns, ticket);
	} else if (lk__ticket_is_leaving(ticket)) {
		lk__ticket_pursue(core, now_ns, ticket); /* its leave may wait for it */
	} else if (answer->retryable || request->kind == LK__HAND) {
		ticket->head_unserved = false;
		/* A grant by message overtook the refusal of its ask: claim it while it stands. */
		if (ticket->state != LK__CLAIMING || request->kind != LK__ASK)
			ticket->next_ns = lk__refusal_retry_ns(core, now_ns, ticket, answer);
		lk__ticket_pursue(core, now_ns, ticket);
	} else {
		lk__ticket_fail(core, now_ns, ticket, answer);
	}
}

/* A leave is answered: complete its callers, and continue for waiters after a lapse. */
static void left(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                 const struct lk__pending *request, const struct lk__answer *answer)
{
	bool confirmed = answer->kind == LK__LEFT;

	if (!confirmed && (answer->retryable || ticket->state == LK__LEAVING)) {
		if (!answer->retryable && lk__ticket_has_lapsed(ticket))
			lk__ticket_refuse(core, now_ns, ticket, answer->err, answer->text);
		lk__leave_refused(core, now_ns, ticket, answer);
		return;
	}
	if (confirmed && request->kind == LK__LEAVE) /* the last one counts */
		ticket->has_spare_nonce = answer->is_spare;
	if (lk__ticket_whole(ticket))
		lk__leg_left(core, ticket, answer);
	else if (!ticket->is_leg) /* a leg alone shows no loss, and its calls have ended */
		lk__decide_left(core, ticket, answer);
	if (confirmed && request->narrow) {
		ticket->is_divided = true; /* the hold has ended: now the whole leave */
		ticket->next_ns = lk__divided_retry_ns(now_ns, ticket);
		lk__ticket_pursue(core, now_ns, ticket);
		return;
	}
	if (confirmed && lk__leave_confirmed(core, now_ns, ticket, answer))
		return;
	if (confirmed && answer->more) {
		lk__ticket_serve(core, now_ns, ticket);
	} else if (lk__ticket_has_lapsed(ticket)) {
		lk__ticket_restart(core, now_ns, ticket);
	} else {
		lk__ticket_end(core, ticket);
	}
}

/* The head of a free lock was served on behalf of a waiting ticket.  Its own turn may have come by
 * that: send the requests that became due meanwhile. */
static void handed(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                   const struct lk__answer *answer)
{
	if (ticket->state == LK__HOLDING) {
		ticket->head_unserved = answer->more;
		ticket->next_ns = lk__ticket_next_ns(ticket, now_ns);
	} else if (ticket->state == LK__ASKING || ticket->state == LK__WAITING) {
		ticket->head_unserved = answer->more;
		ticket->next_ns = now_ns;
	}
	lk__ticket_pursue(core, now_ns, ticket);
}

/* The store has released some permits of a hold, or does not have the hold. */
static void shrunk(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                   const struct lk__pending *request, const struct lk__answer *answer)
{
	struct lk__op **at = &ticket->leavers;

	if (ticket->state != LK__HOLDING) {
		lk__ticket_pursue(core, now_ns, ticket);
		return;
	}
	if (!answer->mine) {
		lk__ticket_doubt(core, now_ns, ticket);
		return;
	}
	while (*at) {
		struct lk__op *waiter = *at;
		if (waiter->permits < request->permits) {
			at = &waiter->next; /* has released more since */
			continue;
		}
		*at = waiter->next;
		lk__complete(core, waiter, LK_OK, NULL);
	}
	ticket->permits = request->permits;
	handed(core, now_ns, ticket, answer);
}

/* True when the request is none of a ticket. */
static bool answered_elsewhere(struct lk__core *core, int64_t now_ns, struct lk__pending *request,
                               const struct lk__answer *answer)
{
	if (lk__is_query(request->kind))
		lk__query_answer(core, request->query, answer);
	else if (request->kind == LK__EPOCH)
		lk__memory_answer(core, now_ns, request->session, answer);
	else if (request->kind == LK__CONFIRM)
		lk__confirm_answer(core, now_ns, request->session, answer);
	else if (lk__pending_is_latch(request))
		lk__latch_answer(core, now_ns, request, answer);
	else
		return false;
	return true;
}

/* But a grant that must not count blocks the lock, also for a holder that takes it back. */
static void ignore(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                   const struct lk__pending *request, const struct lk__answer *answer)
{
	bool grants = answer->kind == LK__GRANTED || answer->kind == LK__KEPT;

	ticket->may_be_known = true;
	if (request->doubted && grants && !lk__ticket_is_leaving(ticket) &&
	    ticket->state != LK__HOLDING)
		lapse(core, now_ns, ticket);
	else
		lk__ticket_resume(core, now_ns, ticket);
}

/* Did a break, or the end of a leg, make the answer meaningless? */
static bool is_outdated(const struct lk__ticket *ticket, const struct lk__pending *request,
                        const struct lk__answer *answer)
{
	if (lk__ticket_is_leaving(ticket))
		return ticket->is_leg;
	return lk__pending_heard(request, LK__BROKEN) &&
	       (answer->kind == LK__GRANTED || answer->kind == LK__KEPT); /* it asks again */
}

static void apply(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                  const struct lk__pending *request, const struct lk__answer *answer)
{
	switch (answer->kind) {
	case LK__GRANTED:
		granted(core, now_ns, ticket, request, answer);
		break;
	case LK__QUEUED:
		queued(core, now_ns, ticket, answer);
		break;
	case LK__BUSY:
		busy(core, now_ns, ticket, request, answer);
		break;
	case LK__KEPT:
		kept(core, now_ns, ticket, request, answer);
		break;
	case LK__GONE:
		gone(core, now_ns, ticket, request);
		break;
	case LK__LEFT:
		if (request->kind == LK__YIELD)
			lk__leg_yielded(core, now_ns, ticket, answer);
		else if (request->kind == LK__SHRINK)
			shrunk(core, now_ns, ticket, request, answer);
		else
			handed(core, now_ns, ticket, answer);
		break;
	case LK__YOUNG:
		lk__leg_young(core, now_ns, ticket, answer);
		break;
	case LK__FAILED:
		failed(core, now_ns, ticket, request, answer);
		break;
	default:
		break; /* of a latch */
	}
}

void lk__ticket_answer(struct lk__core *core, int64_t now_ns, struct lk__pending *request,
                       const struct lk__answer *answer)
{
	struct lk__ticket *ticket = request->ticket;
	struct lk__pending copy = *request;

	if (ticket->is_leg)
		lk__leg_note(core, now_ns, ticket, answer);
	request->state = LK__IDLE;
	request->asking = false;
	if (ticket->state == LK__OVER) {
		lk__ticket_end(core, ticket);
		return;
	}
	if (lk__pending_makes_nothing(&copy, ticket)) {
		ignore(core, now_ns, ticket, &copy, answer);
		return;
	}
	if (lk__answer_ends_hops(answer))
		ticket->hops = 0;
	if (lk__divided_narrows(ticket, &copy, answer)) {
		lk__divided_narrow(ticket, request);
		return;
	}
	lk__refusal_note(core, ticket, answer);
	if (answer->kind == LK__QUEUED || answer->kind == LK__BUSY)
		lk__leave_ghosts(core, now_ns, ticket);
	if (answer->kind == LK__STALE && lk__leave_is_overdue(ticket, now_ns)) {
		lk__ticket_end(core, ticket);
		return;
	}
	if (answer->kind == LK__STALE) {
		lk__ticket_stale(core, now_ns, ticket);
		return;
	}
	if (request == &ticket->leave) {
		left(core, now_ns, ticket, &copy, answer);
		return;
	}
	if (is_outdated(ticket, &copy, answer)) {
		lk__ticket_pursue(core, now_ns, ticket);
		return;
	}
	apply(core, now_ns, ticket, &copy, answer);
}

void lk__core_answer(struct lk__core *core, int64_t now_ns, struct lk__pending *request,
                     const struct lk__answer *answer)
{
	static const struct lk__answer malformed = {
		.kind = LK__FAILED,
		.err = LK_ESERVER,
		.ambiguous = true,
		.text = "unexpected response to a script",
	};

	core->seen_ns = now_ns;
	lk__vouch_run(core->links[request->link], now_ns);
	if (!lk__is_query(request->kind) && !lk__pending_fits(request, answer))
		answer = &malformed;
	if (!answered_elsewhere(core, now_ns, request, answer) &&
	    (lk__pending_is_late(request, request->ticket->session) ||
	     !lk__confirm_keep(core, now_ns, request, answer)))
		lk__vouch_answer(core, now_ns, request, answer);
	lk__quorum_settle(core, now_ns);
}
