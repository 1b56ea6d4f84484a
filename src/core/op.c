/* SPDX-License-Identifier: MIT
 * How a call in progress ends.
 *
 * An acquisition, or the wait for a latch, may take as long as its caller allows: then it gives up,
 * and the store has one command timeout to confirm that, as after a cancel.  Any other call, also a
 * try, has one command timeout in total.  A call that is not done at its last deadline is
 * abandoned: the caller returns, and entries that may be left in the store are ended in the
 * background.  So each call ends by its wait plus one command timeout, whatever the store does and
 * whichever thread calls lk__core_tick(). */
#include "core.h"

#include "counters.h"
#include "latch.h"
#include "query.h"
#include "quorum.h"

#include <stdio.h>

#define GRACE_SLACK_NS INT64_C(1000000000)

/* ---- Begin and end ------------------------------------------------------------------------ */

/* One command timeout from now. */
static int64_t timeout_ns(const struct lk__core *core, int64_t now_ns)
{
	return core->command_timeout_ns < LK__NEVER - now_ns ? now_ns + core->command_timeout_ns
	                                                     : LK__NEVER;
}

static void begin(struct lk__core *core, int64_t now_ns, struct lk__op *op, int64_t deadline_ns)
{
	op->began_ns = now_ns;
	lk__timer_init(&op->timer);
	lk__heap_set(&core->op_timers, &op->timer, deadline_ns);
}

void lk__op_begin(struct lk__core *core, int64_t now_ns, struct lk__op *op)
{
	begin(core, now_ns, op, timeout_ns(core, now_ns));
}

void lk__op_begin_wait(struct lk__core *core, int64_t now_ns, struct lk__op *op)
{
	int64_t until_ns = op->until_ns ? op->until_ns : LK__NEVER;

	begin(core, now_ns, op, op->only_try ? timeout_ns(core, now_ns) : until_ns);
}

void lk__complete(struct lk__core *core, struct lk__op *op, lk_err err, const char *text)
{
	lk__count_end(&core->counters, op, err);
	lk__heap_set(&core->op_timers, &op->timer, LK__NEVER);
	op->awaits = LK__FOR_NOTHING;
	op->ticket = NULL;
	op->done = true;
	op->why.err = err;
	if (!text)
		op->why.text[0] = '\0';
	else if (text != op->why.text)
		snprintf(op->why.text, sizeof(op->why.text), "%s", text);
	op->next = NULL;
	*core->done_end = op;
	core->done_end = &op->next;
}

void lk__complete_lost(struct lk__core *core, struct lk__op *op, uint8_t reason)
{
	op->lost = reason;
	lk__complete(core, op, LK_ELOST, lk_lost_reason_name((lk_lost_reason)reason));
}

struct lk__op *lk__core_next_done(struct lk__core *core)
{
	struct lk__op *op = core->done;

	if (!op)
		return NULL;
	core->done = op->next;
	if (!core->done)
		core->done_end = &core->done;
	op->next = NULL;
	return op;
}

void lk__op_await_leave(struct lk__ticket *ticket, struct lk__op *op, lk_err err)
{
	op->awaits = LK__FOR_LEAVE;
	op->ticket = ticket;
	op->why.err = err;
	op->next = ticket->leavers;
	ticket->leavers = op;
}

/* ---- Giving up ---------------------------------------------------------------------------- */

static void remove_from(struct lk__op **at, struct lk__op *op)
{
	while (*at != op)
		at = &(*at)->next;
	*at = op->next;
	op->next = NULL;
}

static void leave_queue(struct lk__wait_queue *queue, struct lk__op *op)
{
	struct lk__op *last = NULL;

	remove_from(&queue->first, op);
	for (struct lk__op *other = queue->first; other; other = other->next)
		last = other;
	queue->last = last;
}

const char *lk__timed_out_text(const struct lk__op *op)
{
	if (op->met_doubt)
		return "not acquired in time: after a pause of this client, no sentinel confirmed "
		       "the master";
	return op->met_grace ? "not acquired in time: the server may have forgotten a holder, and "
	                       "granted nothing until its grace was over"
	                     : "not acquired in time";
}

static const char *text_of(const struct lk__op *op, lk_err why)
{
	const char *text = op->queue->name->session->why.text;

	if (op->why.text[0])
		return op->why.text; /* see explain() */
	switch (why) {
	case LK_ETIMEDOUT:
		return lk__timed_out_text(op);
	case LK_ECANCELED:
		return "the wait was cancelled";
	case LK_ECLOSED:
		return "the client was closed";
	case LK_EUNKNOWN:
		return op->met_doubt ? "after a pause of this client, no sentinel confirmed the "
		                       "master in time"
		                     : "no response to a request in time";
	default:
		return text[0] ? text : "not connected";
	}
}

/* The server's text of the last error for a ticket. */
static const char *refusal_text(const struct lk__core *core, const struct lk__ticket *ticket)
{
	lk_err err = (lk_err)ticket->refusal;

	return core->refusal.err == err ? core->refusal.text : lk_err_text(err);
}

/* A try that the server refused each time ends with the server's error, not with a time-out; a wait
 * quotes it. */
static void complete_refused(struct lk__core *core, struct lk__op *op,
                             const struct lk__ticket *ticket, lk_err why)
{
	struct lk__why timed_out;
	bool refused;

	if (ticket && ticket->legs)
		ticket = lk__quorum_refused(ticket);
	refused = why == LK_ETIMEDOUT && ticket && ticket->state == LK__ASKING && ticket->refusals;
	if (!refused) {
		lk__complete(core, op, why, text_of(op, why));
	} else if (op->only_try) {
		lk__complete(core, op, (lk_err)ticket->refusal, refusal_text(core, ticket));
	} else {
		lk__why_set(&timed_out, why, "%s: %s", text_of(op, why),
		            refusal_text(core, ticket));
		lk__complete(core, op, why, timed_out.text);
	}
}

/* A wait whose requests the store refused for something that an operator has to mend, as etcd does
 * when it is full, ends with that error: the lock is not busy.  They are repeated all the same. */
static lk_err refusal_of(const struct lk__core *core, struct lk__op *op,
                         const struct lk__ticket *ticket, lk_err why)
{
	if (why != LK_ETIMEDOUT || ticket->state != LK__ASKING || !ticket->refusals ||
	    ticket->refusal != LK_ESERVER)
		return why;
	return lk__why_set(&op->why, LK_ESERVER, "%s", refusal_text(core, ticket));
}

/* A majority of the quorum's servers does not vote: say why.  Keep the error of a wait, unless it
 * has asked none. */
static lk_err explain(const struct lk__core *core, struct lk__op *op, lk_err why, bool unasked)
{
	struct lk__why votes;
	lk_err err = core->quorum && why == LK_ETIMEDOUT ? lk__quorum_explain(core, &votes) : LK_OK;

	if (!err)
		return why;
	if (!unasked)
		err = why;
	lk__why_set(&op->why, err, "%s%s%s", err == LK_ETIMEDOUT ? lk__timed_out_text(op) : "",
	            err == LK_ETIMEDOUT ? ": " : "", votes.text);
	return err;
}

static void give_up_grant(struct lk__core *core, int64_t now_ns, struct lk__op *op, lk_err why)
{
	struct lk__wait_queue *queue = op->queue;
	struct lk__ticket *ticket = queue->ticket;
	bool unasked = ticket && lk__ticket_is_unknown(ticket) && !lk__ticket_is_leaving(ticket);

	leave_queue(queue, op);
	if (ticket) {
		lk__count_grace(&core->counters, now_ns, ticket, op);
		op->met_doubt = ticket->session && ticket->session->vouch.is_doubted;
		/* The wait may have been about as long as the grace.  A quorum has none. */
		op->met_grace = !ticket->legs && ticket->grace_until_ns &&
		                now_ns < ticket->grace_until_ns + GRACE_SLACK_NS;
	}
	if (ticket && ticket->legs)
		why = explain(core, op, why, unasked);
	else if (unasked && why == LK_ETIMEDOUT && !lk__session_is_up(ticket->session))
		why = lk__session_unasked(ticket->session);
	else if (ticket)
		why = refusal_of(core, op, ticket, why);
	if (queue->first || queue->hold || !ticket) {
		complete_refused(core, op, ticket, why);
		return;
	}
	/* The last waiter: end the ticket, too. */
	if (unasked) {
		complete_refused(core, op, ticket, why);
		lk__ticket_leave(core, now_ns, ticket);
		return;
	}
	lk__op_await_leave(ticket, op, why);
	lk__ticket_leave(core, now_ns, ticket);
}

void lk__core_give_up(struct lk__core *core, int64_t now_ns, struct lk__op *op, lk_err why)
{
	const bool only_try = op->only_try; /* a try keeps its deadline */

	if (op->awaits == LK__FOR_OPEN)
		lk__latch_give_up(core, now_ns, op, why);
	else if (op->awaits == LK__FOR_GRANT)
		give_up_grant(core, now_ns, op, why);
	else
		return; /* its queue may have been freed */
	if (!op->done && !only_try)
		lk__heap_set(&core->op_timers, &op->timer, timeout_ns(core, now_ns));
}

/* The call's ticket if its latest answer was a transient error, else NULL. */
static const struct lk__ticket *refused_ticket(const struct lk__op *op)
{
	const struct lk__ticket *ticket = NULL;

	if (op->awaits == LK__FOR_GRANT)
		ticket = op->queue->ticket;
	else if (op->awaits == LK__FOR_LEAVE)
		ticket = op->ticket;
	return ticket && ticket->refusals ? ticket : NULL;
}

/* The error for a call of which nothing was sent. */
static lk_err unasked(const struct lk__core *core, struct lk__op *op)
{
	struct lk__why votes;
	lk_err err;

	if (!core->quorum)
		return lk__session_unasked(op->queue->name->session);
	err = lk__quorum_explain(core, &votes);
	if (err)
		op->why = votes;
	return err ? err : LK_ECONN;
}

void lk__core_abandon(struct lk__core *core, int64_t now_ns, struct lk__op *op)
{
	const struct lk__ticket *refused = refused_ticket(op);
	char text[sizeof(core->refusal.text)] = "";
	lk_err err = LK_EUNKNOWN;

	if (refused) /* it may be freed below */
		snprintf(text, sizeof(text), "%s", refusal_text(core, refused));
	if (op->awaits == LK__FOR_GRANT)
		lk__core_give_up(core, now_ns, op, LK_ETIMEDOUT);
	if (op->done)
		return;
	if (op->awaits == LK__FOR_QUERY) {
		lk__query_abandon(core, op);
		return;
	}
	if (op->awaits == LK__FOR_OPEN || op->awaits == LK__FOR_STEP) {
		lk__latch_abandon(core, now_ns, op);
		return;
	}
	if (op->awaits == LK__FOR_EXTEND) {
		if (op->ticket->legs && op->ticket->extenders == op)
			lk__quorum_next_extender(op->ticket);
		remove_from(&op->ticket->extenders, op);
		if (!op->sent)
			err = unasked(core, op);
	} else {
		remove_from(&op->ticket->leavers, op);
		if (op->ticket->legs)
			lk__quorum_touch(core, op->ticket); /* it may have waited for this call */
	}
	lk__complete(core, op, err, text[0] ? text : text_of(op, err));
}

void lk__ops_tick(struct lk__core *core, int64_t now_ns)
{
	struct lk__timer *timer;

	while ((timer = lk__heap_first(&core->op_timers)) && timer->due_ns <= now_ns) {
		struct lk__op *op = (struct lk__op *)timer;
		bool waits = op->awaits == LK__FOR_GRANT || op->awaits == LK__FOR_OPEN;
		if (waits && !op->only_try)
			lk__core_give_up(core, now_ns, op, LK_ETIMEDOUT);
		else
			lk__core_abandon(core, now_ns, op);
	}
}

void lk__core_cancel(struct lk__core *core, int64_t now_ns, struct lk__name *name, void *handle,
                     lk_err why)
{
	struct lk__wait_queue *queue = name->queues, *next_queue;

	if (name->latch)
		lk__latch_cancel(core, now_ns, name->latch, handle, why);
	for (; queue; queue = next_queue) {
		struct lk__op *op = queue->first, *next;

		next_queue = queue->next; /* the end of its only wait may free the queue */
		for (; op; op = next) {
			next = op->next;
			if (op->handle == handle)
				lk__core_give_up(core, now_ns, op, why);
		}
	}
}
