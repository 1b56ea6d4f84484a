/* SPDX-License-Identifier: MIT
 * What the legs of a quorum's ticket amount to: which are valid, until when a majority is, and with
 * which fence a hold may begin. */
#include "quorum.h"

#define MS INT64_C(1000000)
#define FRESH_PART 10 /* a fixed lease begins with legs that are younger than this part of it */

unsigned lk__legs_bits(uint8_t set)
{
	unsigned count = 0;

	for (; set; set &= (uint8_t)(set - 1))
		count++;
	return count;
}

/* Is there no majority without these servers? */
bool lk__legs_exclude(const struct lk__legs *legs, uint8_t set)
{
	return legs->servers - lk__legs_bits(set) < legs->majority;
}

bool lk__leg_is_valid(const struct lk__ticket *leg, int64_t now_ns)
{
	return leg && leg->state == LK__HOLDING && leg->valid_until_ns > now_ns;
}

unsigned lk__legs_valid(const struct lk__legs *legs, int64_t now_ns)
{
	unsigned count = 0;

	for (unsigned i = 0; i < legs->servers; i++)
		count += lk__leg_is_valid(legs->leg[i], now_ns);
	return count;
}

/* Until when a majority of the legs is valid: the Q-th largest of their times. */
int64_t lk__legs_valid_until_ns(const struct lk__legs *legs)
{
	int64_t times[LK__SERVERS_MAX] = {0};
	unsigned count = 0;

	for (unsigned i = 0; i < legs->servers; i++) {
		const struct lk__ticket *leg = legs->leg[i];
		unsigned at = count;
		if (!leg || leg->state != LK__HOLDING)
			continue;
		for (; at > 0 && times[at - 1] < leg->valid_until_ns; at--)
			times[at] = times[at - 1];
		times[at] = leg->valid_until_ns;
		count++;
	}
	return count >= legs->majority ? times[legs->majority - 1] : 0;
}

/* A fixed lease is not renewed, so its hold begins with legs that have most of it left, or that
 * were renewed after they had become a majority. */
bool lk__leg_is_fresh(const struct lk__ticket *leg, int64_t now_ns)
{
	int64_t lease_ns = leg->queue->lease_ms * MS;
	int64_t since_ns = leg->valid_until_ns + lk__margin_ns(leg->queue->lease_ms) - lease_ns;
	int64_t refreshed_ns = leg->whole->legs->refreshed_ns;

	return !leg->queue->fixed || since_ns >= now_ns - lease_ns / FRESH_PART ||
	       (refreshed_ns && since_ns >= refreshed_ns);
}

/* May a hold with that fence begin: do a majority's counters cover it, and no leg of theirs exceed
 * it? */
static bool is_committed(const struct lk__legs *legs, int64_t now_ns, uint64_t fence)
{
	unsigned count = 0;

	for (unsigned i = 0; i < legs->servers; i++) {
		const struct lk__ticket *leg = legs->leg[i];
		count += lk__leg_is_valid(leg, now_ns) && leg->fence <= fence &&
		         fence <= leg->last_fence && lk__leg_is_fresh(leg, now_ns);
	}
	return count >= legs->majority;
}

/* The least fence of a leg with which a hold may begin, 0 = none. */
uint64_t lk__legs_committed_fence(const struct lk__legs *legs, int64_t now_ns)
{
	uint64_t least = 0;

	for (unsigned i = 0; i < legs->servers; i++) {
		const struct lk__ticket *leg = legs->leg[i];
		if (lk__leg_is_valid(leg, now_ns) && (!least || leg->fence < least) &&
		    is_committed(legs, now_ns, leg->fence))
			least = leg->fence;
	}
	return least;
}

/* Can a majority's counters be raised to that fence, over the links that are up? */
static bool can_commit(const struct lk__legs *legs, int64_t now_ns, uint64_t fence)
{
	unsigned count = 0;

	for (unsigned i = 0; i < legs->servers; i++) {
		const struct lk__ticket *leg = legs->leg[i];
		count += lk__leg_is_valid(leg, now_ns) && leg->fence <= fence &&
		         (fence <= leg->last_fence || lk__session_is_up(leg->session));
	}
	return count >= legs->majority;
}

/* The fence to commit, the least one of a valid leg; 0 = none before a link is up.  One server
 * whose counter is far ahead does not raise those of the others. */
uint64_t lk__legs_fence_to_commit(const struct lk__legs *legs, int64_t now_ns)
{
	uint64_t least = 0;

	for (unsigned i = 0; i < legs->servers; i++) {
		const struct lk__ticket *leg = legs->leg[i];
		if (lk__leg_is_valid(leg, now_ns) && (!least || leg->fence < least) &&
		    can_commit(legs, now_ns, leg->fence))
			least = leg->fence;
	}
	return least;
}

/* A majority that has ended the hold shares a server with each majority that still had it.  Without
 * a missing leg there is no sign of that.  A server that is down is not waited for: it may stay so.
 */
bool lk__legs_may_be_lost(const struct lk__ticket *ticket)
{
	const struct lk__legs *legs = ticket->legs;
	uint8_t unanswered = legs->held & (uint8_t) ~(legs->left | legs->unleft);

	if (!ticket->released || !legs->missing || lk__legs_bits(legs->stood) >= legs->majority)
		return false;
	for (unsigned i = 0; i < legs->servers; i++)
		if (unanswered >> i & 1 && lk__session_is_up(legs->leg[i]->session))
			return true;
	return false;
}

/* Were so many legs of a released hold missing that it was lost before? */
bool lk__legs_were_lost(const struct lk__ticket *ticket)
{
	const struct lk__legs *legs = ticket->legs;

	return ticket->released && legs->missing &&
	       lk__legs_bits(legs->held) - lk__legs_bits(legs->missing) < legs->majority;
}

/* ---- Responses that decide nothing yet ----------------------------------------------------- */

static const struct lk__legs *legs_of(const struct lk__op *op)
{
	const struct lk__ticket *ticket = NULL;

	if (op->awaits == LK__FOR_GRANT)
		ticket = op->queue->ticket;
	else if (op->awaits == LK__FOR_LEAVE)
		ticket = op->ticket;
	return ticket ? ticket->legs : NULL;
}

/* Is the leg's response in flight, on which the op may depend? */
static bool is_pending(const struct lk__op *op, const struct lk__ticket *leg, int64_t now_ns)
{
	if (!leg)
		return false;
	if (op->awaits == LK__FOR_LEAVE)
		return leg->leave.state == LK__IN_FLIGHT;
	return leg->main.state == LK__IN_FLIGHT && !lk__leg_is_valid(leg, now_ns);
}

/* Has the server answered what counts against the op? */
static bool is_against(const struct lk__op *op, const struct lk__legs *legs, unsigned server,
                       int64_t now_ns)
{
	const struct lk__ticket *leg = legs->leg[server];

	if (op->awaits == LK__FOR_LEAVE)
		return legs->unleft >> server & 1;
	if (op->only_try)
		return !lk__leg_is_valid(leg, now_ns) && !is_pending(op, leg, now_ns);
	return leg && leg->is_refused;
}

/* A majority decides for the op, and a majority against it, since the number of servers is odd. */
uint8_t lk__quorum_spared(const struct lk__op *op, int64_t now_ns)
{
	const struct lk__legs *legs = legs_of(op);
	unsigned pro, against = 0, decided;
	uint8_t spared = 0;

	if (!legs)
		return 0;
	pro = op->awaits == LK__FOR_LEAVE ? lk__legs_bits(legs->left)
	                                  : lk__legs_valid(legs, now_ns);
	for (unsigned i = 0; i < legs->servers; i++)
		against += is_against(op, legs, i, now_ns);
	decided = pro > against ? pro : against;
	/* One more response decides nothing before a majority lacks one.  The first ones: they were
	 * sent first. */
	for (unsigned i = 0; i < legs->servers && decided + 1 < legs->majority; i++) {
		if (!is_pending(op, legs->leg[i], now_ns))
			continue;
		spared |= (uint8_t)(1U << i);
		decided++;
	}
	return spared;
}
