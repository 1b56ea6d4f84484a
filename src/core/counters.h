/* SPDX-License-Identifier: MIT
 * The counters: plain additions under the client's mutex.  All use the first two functions; with
 * these empty the compiler removes everything, which is how the cost is measured
 * (bench/case_counters.c). */
#ifndef LK__COUNTERS_H
#define LK__COUNTERS_H

#include "core.h"

static inline void lk__count(int64_t *counter, int64_t more)
{
	*counter += more;
}

static inline void lk__count_most(int64_t *most, int64_t value)
{
	if (*most < value)
		*most = value;
}

/* Rounded, so that a sum of many is unbiased.  Not negative: a thread reads the clock before it
 * gets the mutex, so the end of a time may be older than its beginning. */
static inline int64_t lk__count_us(int64_t ns)
{
	return ns < 0 ? 0 : (ns + 500) / 1000;
}

/* Count the end of a wait for the ticket: the part of it that was spent in a grace. */
static inline void lk__count_grace(struct lk_counters *counters, int64_t now_ns,
                                   const struct lk__ticket *ticket, const struct lk__op *waiter)
{
	int64_t from_ns = ticket->grace_from_ns, until_ns = ticket->grace_until_ns;

	if (from_ns < waiter->began_ns)
		from_ns = waiter->began_ns;
	if (until_ns > now_ns)
		until_ns = now_ns;
	lk__count(&counters->grace_us, lk__count_us(until_ns - from_ns));
}

/* Count the grant of the ticket to the waiter: see ticket->granted_by_message. */
static inline void lk__count_grant(struct lk_counters *counters, int64_t now_ns,
                                   const struct lk__ticket *ticket, const struct lk__op *waiter)
{
	int64_t us = lk__count_us(now_ns - waiter->began_ns);

	lk__count(&counters->acquired, 1);
	lk__count(&counters->acquired_us, us);
	lk__count_grace(counters, now_ns, ticket, waiter);
	if (ticket->granted_by_message)
		lk__count(&counters->by_message, 1);
	if (waiter->was_queued || ticket->granted_by_message || ticket->arrival) {
		lk__count(&counters->waited, 1);
		lk__count(&counters->waited_us, us);
		lk__count_most(&counters->waited_max_us, us);
	}
}

/* Count the end of a wait of any kind. */
static inline void lk__count_end(struct lk_counters *counters, const struct lk__op *waiter,
                                 lk_err err)
{
	if (err == LK_OK) {
		if (waiter->awaits == LK__FOR_OPEN)
			lk__count(&counters->awaited, 1);
		else if (waiter->awaits == LK__FOR_STEP)
			lk__count(&counters->stepped, 1);
	} else if (waiter->acquires) {
		lk__count(err == LK_EBUSY                            ? &counters->busy
		          : err == LK_ETIMEDOUT                      ? &counters->timed_out
		          : err == LK_ECANCELED || err == LK_ECLOSED ? &counters->canceled
		                                                     : &counters->failed,
		          1);
	}
}

/* Count a hold that ends now. */
static inline void lk__count_hold(struct lk_counters *counters, int64_t now_ns,
                                  const struct lk__hold *hold)
{
	int64_t us = lk__count_us(now_ns - hold->since_ns);

	lk__count(&counters->holds, 1);
	lk__count(&counters->held_us, us);
	lk__count_most(&counters->held_max_us, us);
}

static inline void lk__count_loss(struct lk_counters *counters, lk_lost_reason reason)
{
	lk__count(&counters->lost[0], 1);
	lk__count(&counters->lost[reason], 1);
}

/* Count the answer to a renewal, before it is applied. */
static inline void lk__count_renewal(struct lk_counters *counters, int64_t now_ns,
                                     const struct lk__ticket *ticket,
                                     const struct lk__pending *request)
{
	int64_t due_ns = lk__ticket_renewal_ns(ticket), late_us, gone;

	if (ticket->queue->fixed)
		return;
	/* A grant by message counts from the first ask, and may have been due at once. */
	if (due_ns < ticket->store_us_ns)
		due_ns = ticket->store_us_ns;
	late_us = request->sent_ns > due_ns ? lk__count_us(request->sent_ns - due_ns) : 0;
	gone = 1000 - (ticket->valid_until_ns - now_ns) / (ticket->queue->lease_ms * 1000);
	lk__count(&counters->renewed, 1);
	lk__count(&counters->late_us, late_us);
	lk__count_most(&counters->late_max_us, late_us);
	lk__count_most(&counters->lease_max_permille, gone);
}

#endif
