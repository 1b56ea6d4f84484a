/* SPDX-License-Identifier: MIT
 * A slot that is being moved: some keys of a name are on one server and some on the other, so that
 * no script runs which declares them all, for as long as the move lasts (an aborted one: for
 * hours). A hold must not be lost by that.  It is renewed, and ended, by narrow requests, which
 * declare only the keys that exist while it is held.
 *
 * A narrow renewal cannot store fences that this client has issued itself, so no thread hands its
 * hold over to another one until a whole renewal has succeeded.  A narrow leave does not serve the
 * queue; the whole leave follows until it runs. */
#include "core.h"

#define MS INT64_C(1000000)
#define RETRY_FIRST_MS 5
#define RETRY_MAX_MS 100
#define DOUBLINGS_MAX 5

int64_t lk__divided_retry_ns(int64_t now_ns, struct lk__ticket *ticket)
{
	int64_t ms = (int64_t)RETRY_FIRST_MS << ticket->refusals;

	if (ticket->refusals < DOUBLINGS_MAX)
		ticket->refusals++;
	return now_ns + (ms < RETRY_MAX_MS ? ms : RETRY_MAX_MS) * MS;
}

bool lk__divided_narrows(const struct lk__ticket *ticket, const struct lk__pending *request,
                         const struct lk__answer *answer)
{
	if (!answer->divided || request->narrow)
		return false;
	if (request->kind == LK__RENEW)
		return ticket->state == LK__HOLDING || ticket->state == LK__CLAIMING;
	/* Only a hold is ended so, once; a waiter's ticket is in the queue.  A narrow leave cannot
	 * store fences that this client has issued itself. */
	return request->kind == LK__LEAVE && ticket->fence && !ticket->is_divided &&
	       ticket->last_fence == ticket->fence && !lk__ticket_is_used(ticket);
}

void lk__divided_narrow(struct lk__ticket *ticket, struct lk__pending *request)
{
	request->narrow = true;
	request->asking = request->by_text = false;
	lk__pending_enqueue(ticket->session, request);
}
