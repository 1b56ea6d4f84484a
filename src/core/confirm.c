/* SPDX-License-Identifier: MIT
 * Grants that count only when enough replicas have them (replicas=k).
 *
 * WAIT counts the replicas that have all that its own connection wrote; on a connection that wrote
 * nothing it counts all of them, whatever they have.  So WAIT follows the requests that may grant,
 * renew or take back a hold in the same write, and their answers are kept until its own.  A grant
 * by message was written by another client's connection: it is always claimed, and the claim's
 * answer counts (message.c).  A leave needs no WAIT: no promise depends on it, and whatever it
 * granted is claimed.
 *
 * WAIT blocks its connection.  While one is in flight nothing is sent, since it would only age in
 * the server's buffer; the requests of that time share the next WAIT.  So no request is overdue
 * because of others, although each WAIT may take half a command timeout. */
#include "core.h"

#include <stdio.h>

bool lk__pending_makes_hold(const struct lk__pending *request)
{
	const struct lk__ticket *ticket = request->ticket;

	if (request->kind != LK__ASK && request->kind != LK__RENEW && request->kind != LK__RECLAIM)
		return false;
	return ticket->state != LK__OVER && !ticket->queue->final;
}

struct lk__pending *lk__confirm_next(struct lk__session *session)
{
	struct lk__pending *request = session->send_queue;

	if (session->confirm.state == LK__IN_FLIGHT)
		return NULL;
	if (request) {
		session->confirm_due |= session->replicas && lk__pending_makes_hold(request);
		return request;
	}
	if (!session->confirm_due)
		return NULL;
	session->confirm_due = false;
	session->confirm = (struct lk__pending){.session = session, .kind = LK__CONFIRM};
	return &session->confirm;
}

void lk__kept_add(struct lk__kept *kept, int64_t now_ns, struct lk__pending *request,
                  const struct lk__answer *answer)
{
	struct lk__ticket *ticket = request->ticket;

	request->fence = answer->fence;
	request->waited_for = answer->waiting > 0;
	request->more = answer->more;
	ticket->store_us = answer->store_us;
	if (ticket->state == LK__HOLDING)
		ticket->store_us_ns = now_ns;
	ticket->may_be_known = true;
	if (kept->first)
		kept->last->next = request;
	else
		kept->first = request;
	kept->last = request;
}

struct lk__answer lk__kept_answer(const struct lk__pending *request)
{
	return (struct lk__answer){
		.kind = request->kind == LK__ASK ? LK__GRANTED : LK__KEPT,
		.fence = request->fence,
		.store_us = request->ticket->store_us,
		.waiting = request->waited_for,
		.more = request->more,
	};
}

bool lk__confirm_keep(const struct lk__core *core, int64_t now_ns, struct lk__pending *request,
                      const struct lk__answer *answer)
{
	struct lk__session *session = core->links[request->link];

	if ((answer->kind != LK__GRANTED && answer->kind != LK__KEPT) || !session->replicas ||
	    !lk__pending_makes_hold(request))
		return false;
	lk__kept_add(&session->granted, now_ns, request, answer);
	return true;
}

void lk__confirm_forget(const struct lk__core *core, struct lk__session *session)
{
	lk__pending_dequeue(core, &session->confirm);
	session->confirm.state = LK__IDLE;
	session->confirm_due = false;
	session->granted.first = NULL;
}

/* What the answer to WAIT makes of a grant. */
static struct lk__answer judge(const struct lk__session *session, const struct lk__pending *request,
                               const struct lk__answer *count, struct lk__why *why)
{
	if (count->kind == LK__CONFIRMED && count->replicas >= session->replicas)
		return lk__kept_answer(request);
	if (count->kind == LK__CONFIRMED)
		lk__why_set(why, LK_EREPLICAS, "%s, but %lld of %u replicas confirmed in %lld ms",
		            request->extends ? "extended" : "granted", (long long)count->replicas,
		            session->replicas, (long long)session->replicas_ms);
	else
		lk__why_set(why, count->err, "replicas=%u needs the %s: %s", session->replicas,
		            count->err == LK_EAUTH ? "right +wait" : "command WAIT", count->text);
	return (struct lk__answer){.kind = LK__FAILED,
	                           .err = why->err,
	                           .retryable = count->retryable,
	                           .text = why->text};
}

void lk__confirm_answer(struct lk__core *core, int64_t now_ns, struct lk__session *session,
                        const struct lk__answer *answer)
{
	struct lk__pending *request = session->granted.first, *next;

	session->confirm.state = LK__IDLE;
	session->granted.first = NULL;
	for (; request; request = next) {
		struct lk__why why;
		struct lk__answer judged = judge(session, request, answer, &why);

		next = request->next;
		request->next = NULL;
		lk__vouch_answer(core, now_ns, request, &judged);
	}
}
