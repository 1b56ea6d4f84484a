/* SPDX-License-Identifier: MIT
 * The end of a ticket, until the store has confirmed it.
 *
 * A leave that the store refuses changes nothing there: the ticket may still be in the queue, and a
 * grant to it would block the lock.  So the ticket stays in the core and its leave is repeated with
 * a growing delay, or at once after a message that shows that the store still knows the ticket.  A
 * used grant (a rate's: the permit is in use until its lease ends) is never ended.  Such a ticket
 * is freed at its grant or serves the head of the queue, as after a confirmed leave; or its leave
 * names the grant, which stays.
 *
 * A ticket that is LEAVING or SERVING and still belongs to its queue has lapsed: its grant arrived
 * too late, and calls wait for another one.  After its end it asks again. */
#include "core.h"
#include "quorum.h"

#define MS INT64_C(1000000)
#define RETRY_MS 100           /* the first delay, and the one while a caller waits for the end */
#define RETRY_WAIT_MAX_MS 1000 /* for asks and other requests that a wait depends on */
#define RETRY_LEAVE_MAX_MS 5000
#define REFUSALS_MAX 6 /* that count */

/* When to repeat a refused request: with a growing delay. */
int64_t lk__refusal_retry_ns(const struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                             const struct lk__answer *answer)
{
	bool in_background = lk__ticket_is_leaving(ticket) && !lk__ticket_has_lapsed(ticket);
	int64_t most_ms = in_background ? RETRY_LEAVE_MAX_MS : RETRY_WAIT_MAX_MS;
	int64_t ms = RETRY_MS << ticket->refusals;
	/* In the background, a wait that has ended is not urgent, and there may be a thousand. */
	bool is_urgent = !in_background || ticket->fence || ticket->state == LK__SERVING;

	if (answer->divided && (is_urgent || ticket->leavers))
		return lk__divided_retry_ns(now_ns, ticket);
	if (lk__quorum_is_awaited(ticket) || core->closing) {
		ticket->refusals = 1;
		return now_ns + RETRY_MS * MS; /* a call waits for it, and not for long */
	}
	if (ticket->refusals < REFUSALS_MAX)
		ticket->refusals++;
	return now_ns + (ms < most_ms ? ms : most_ms) * MS;
}

/* The store ends a hold one lease from now, and expires a queue without asks. */
void lk__leave_begin(int64_t now_ns, struct lk__ticket *ticket)
{
	int64_t until_ns = now_ns + ticket->queue->lease_ms * MS;

	if (ticket->state == LK__HOLDING && ticket->valid_until_ns > until_ns)
		until_ns = ticket->valid_until_ns; /* it was extended */
	ticket->leave_until_ns = until_ns + LK__QUEUE_LIFE_MS * MS;
	ticket->refusals = 0;
	ticket->is_divided = false;
}

/* Was the answer, of an error or a try, returned before anything was written for the ticket? */
static bool changed_nothing(const struct lk__answer *answer)
{
	if (answer->kind == LK__STALE || answer->kind == LK__BUSY)
		return true;
	return answer->kind == LK__FAILED && !answer->ambiguous &&
	       (answer->retryable || answer->by_script || answer->err == LK_EFOREIGN ||
	        answer->err == LK_EAUTH);
}

/* Remember an error, and whether the ticket may be known. */
void lk__refusal_note(struct lk__core *core, struct lk__ticket *ticket,
                      const struct lk__answer *answer)
{
	if (!changed_nothing(answer))
		ticket->may_be_known = true;
	if (answer->kind != LK__FAILED) {
		ticket->refusals = 0;
		return;
	}
	ticket->refusal = (uint8_t)answer->err;
	lk__why_set(&core->refusal, answer->err, "%s", answer->text);
}

/* To the store: nothing was sent, or each ask was refused before it changed anything. */
bool lk__ticket_is_unknown(const struct lk__ticket *ticket)
{
	if (ticket->legs)
		return lk__quorum_is_unknown(ticket);
	if (ticket->epoch)
		return false;
	return !ticket->first_sent_ns ||
	       (!ticket->may_be_known && ticket->main.state != LK__IN_FLIGHT);
}

bool lk__ticket_is_used(const struct lk__ticket *ticket)
{
	return ticket->queue->final && ticket->fence;
}

/* Answers to earlier requests are ignored. */
bool lk__ticket_is_leaving(const struct lk__ticket *ticket)
{
	return ticket->state == LK__LEAVING || ticket->state == LK__SERVING;
}

bool lk__ticket_has_lapsed(const struct lk__ticket *ticket)
{
	return lk__ticket_is_leaving(ticket) && ticket->queue->ticket == ticket;
}

/* The store has expired it by now, and no call depends on it. */
bool lk__leave_is_overdue(const struct lk__ticket *ticket, int64_t now_ns)
{
	return lk__ticket_is_leaving(ticket) && !lk__ticket_has_lapsed(ticket) &&
	       !ticket->leavers && ticket->leave_until_ns <= now_ns;
}

/* Must its end be confirmed, because the store may keep something unknown to its caller?  A hold
 * that expired, or that the store does not have, was reported as a loss; a used grant stays.  A
 * ticket that never held may still be granted. */
bool lk__ticket_matters(const struct lk__ticket *ticket, int64_t since_ns)
{
	int64_t end_ns = ticket->valid_until_ns;

	if (ticket->state == LK__OVER || ticket->state == LK__SERVING ||
	    lk__ticket_is_used(ticket) || ticket->legs || ticket->is_minor)
		return false;
	if (!ticket->fence)
		return true;
	if (lk__ticket_is_leaving(ticket) && ticket->is_divided)
		return false; /* a narrow leave has ended it */
	/* The last renewal of a released hold may have been executed without a response. */
	if (ticket->released && end_ns < ticket->main.sent_ns + ticket->main.lease_ms * MS)
		end_ns = ticket->main.sent_ns + ticket->main.lease_ms * MS;
	return since_ns < end_ns;
}

/* Stop counting it as unconfirmed. */
void lk__leave_forget(struct lk__core *core, struct lk__ticket *ticket)
{
	if (ticket->leave_refused)
		core->unconfirmed--;
	ticket->leave_refused = false;
}

static bool count(struct lk__core *core, struct lk__ticket *ticket)
{
	if (ticket->leave_refused)
		return true;
	if (core->unconfirmed == LK__UNCONFIRMED_MAX)
		return false;
	ticket->leave_refused = true;
	core->unconfirmed++;
	return true;
}

/* Must the refused request be repeated? */
static bool is_repeated(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                        const struct lk__answer *answer)
{
	if (lk__leave_is_overdue(ticket, now_ns))
		return false;
	if (ticket->state == LK__SERVING)
		return true; /* only transient errors come here */
	if (answer->err == LK_EFOREIGN && ticket->fence)
		return false; /* it was a hold, and its key now has another type */
	if (core->closing && !answer->retryable) {
		core->leave_given_up |= lk__ticket_matters(ticket, now_ns);
		return false; /* otherwise the close would wait for it */
	}
	return count(core, ticket) || lk__ticket_has_lapsed(ticket) ||
	       lk__quorum_is_awaited(ticket);
}

/* The store answered the leave, or the serving after it, with an error.  Complete the callers,
 * unless the same request may succeed soon. */
void lk__leave_refused(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                       const struct lk__answer *answer)
{
	if (lk__ticket_whole(ticket) && !answer->retryable)
		lk__leg_left(core, ticket, answer);
	while (!answer->retryable && ticket->leavers) {
		struct lk__op *waiter = ticket->leavers;
		ticket->leavers = waiter->next;
		lk__complete(core, waiter, LK_EUNKNOWN, answer->text);
	}
	if (!is_repeated(core, now_ns, ticket, answer)) {
		lk__ticket_end(core, ticket);
		return;
	}
	ticket->next_ns = lk__refusal_retry_ns(core, now_ns, ticket, answer);
	if (!lk__ticket_has_lapsed(ticket) && ticket->leave_until_ns > now_ns &&
	    ticket->leave_until_ns < ticket->next_ns)
		ticket->next_ns = ticket->leave_until_ns; /* for the last time */
	lk__ticket_pursue(core, now_ns, ticket);
}

/* Does a confirmed leave show that its hold was lost before its release?  A second leave finds
 * nothing if the first one was executed.  A memory that began during the hold knows nothing of it,
 * but no other ticket can have been granted anything while it was valid. */
bool lk__leave_shows_loss(const struct lk__ticket *ticket, const struct lk__answer *answer)
{
	bool is_covered = ticket->is_forgotten && !ticket->outlasts_grace &&
	                  ticket->queue->lease_ms <= ticket->session->grace_ms;

	if (ticket->state != LK__LEAVING)
		return false; /* it serves others behind its leave */
	return !answer->mine && ticket->leaves_sent == 1 && !is_covered;
}

/* True when another leave is sent: the ticket was granted after the confirmed one had run, by an
 * ask that a lost connection delivered late. */
bool lk__leave_confirmed(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                         const struct lk__answer *answer)
{
	lk__leave_forget(core, ticket);
	if (!lk__pending_heard(&ticket->leave, LK__GRANT) || answer->mine ||
	    ticket->state == LK__SERVING)
		return false;
	ticket->next_ns = now_ns;
	lk__ticket_pursue(core, now_ns, ticket);
	return true;
}

/* Send the leave again, before its time. */
void lk__leave_now(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	if (ticket->leave.state != LK__IDLE)
		return;
	ticket->next_ns = now_ns;
	lk__ticket_pursue(core, now_ns, ticket);
}

/* The store accepts requests for that ticket's name again, and it waits behind unconfirmed ones. */
void lk__leave_ghosts(struct lk__core *core, int64_t now_ns, const struct lk__ticket *waiter)
{
	struct lk__ticket *ticket = core->unconfirmed ? core->all_tickets : NULL;

	for (; ticket; ticket = ticket->next)
		if (ticket->leave_refused && ticket->queue->name == waiter->queue->name &&
		    ticket->session == waiter->session)
			lk__leave_now(core, now_ns, ticket);
}

/* The client closes: repeat refused leaves once more, where there is a connection. */
void lk__leave_close(struct lk__core *core, int64_t now_ns)
{
	struct lk__ticket *ticket = core->all_tickets, *next;

	for (; ticket; ticket = next) {
		next = ticket->next;
		if (!ticket->leave_refused)
			continue;
		if (lk__session_is_up(ticket->session) || lk__quorum_is_awaited(ticket)) {
			lk__leave_now(core, now_ns, ticket);
		} else {
			core->leave_given_up |= lk__ticket_matters(ticket, now_ns);
			lk__ticket_end(core, ticket);
		}
	}
}
