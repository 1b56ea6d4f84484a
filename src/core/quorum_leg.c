/* SPDX-License-Identifier: MIT
 * How each answer and message changes a leg: a ticket's part on one server of a quorum.  A leg is a
 * ticket as any other: it asks, waits and leaves by the code of those.  But its grant is no hold:
 * whatever changes a leg has its ticket decided when the event is over (quorum.c).
 *
 * A leg is valid for as long as the server keeps its grant, counted from the sending of the request
 * that was granted, or of the epoch's first one if a message grants it.  It is not valid any more
 * from the moment when its client decides to yield it: the next epoch has another name, so no late
 * answer or message makes the old one valid. */
#include "quorum.h"

#include "counters.h"

#define MS INT64_C(1000000)
#define RETRY_MS 20
#define YOUNG_JITTER_MS 20

static uint8_t bit_of(const struct lk__ticket *leg)
{
	return (uint8_t)(1U << leg->session->index);
}

static bool whole_holds(const struct lk__ticket *leg)
{
	return leg->whole && leg->whole->state == LK__HOLDING;
}

/* May it ask its server?  A hold with a fixed lease needs no further legs: they would only outlive
 * it. */
bool lk__leg_may_ask(const struct lk__core *core, const struct lk__ticket *leg)
{
	if (lk__ticket_is_leaving(leg))
		return true;
	if (!leg->arrival || !lk__quorum_accepts(core, leg->session))
		return false;
	return leg->state == LK__HOLDING || !leg->queue->fixed || !whole_holds(leg);
}

void lk__leg_note(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg,
                  const struct lk__answer *answer)
{
	if (answer->store_us) {
		leg->session->clock_us = answer->store_us;
		leg->session->clock_ns = now_ns;
	}
	if (answer->kind != LK__FAILED)
		leg->is_refused = false;
	lk__quorum_expire(core, now_ns, leg);
	/* Whatever it says: a decision may have waited until no request of the leg is pending. */
	if (leg->state == LK__HOLDING)
		lk__quorum_touch(core, leg);
}

void lk__leg_dropped(struct lk__core *core, struct lk__ticket *leg)
{
	leg->whole->legs->extending &= (uint8_t)~bit_of(leg);
	leg->is_refused = false;
	lk__quorum_touch(core, leg);
}

/* ---- Grants ------------------------------------------------------------------------------- */

/* The server does not have the leg any more, or not for us: ask again, at that time. */
static void restart(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg, int64_t next_ns)
{
	struct lk__legs *legs = leg->whole->legs;

	/* An extension of the grant that is over does not count, and is sent again. */
	legs->extending &= (uint8_t)~bit_of(leg);
	legs->extended &= (uint8_t)~bit_of(leg);
	leg->state = LK__ASKING;
	leg->valid_until_ns = 0;
	leg->fence = leg->last_fence = 0;
	leg->renewal_failed = leg->head_unserved = leg->granted_by_message = false;
	leg->next_ns = next_ns;
	lk__quorum_touch(core, leg);
	lk__ticket_pursue(core, now_ns, leg);
}

/* Granted, but for how long is not known to be enough: renew it first. */
static void claim(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg, int64_t next_ns)
{
	leg->state = LK__CLAIMING;
	leg->next_ns = next_ns;
	lk__quorum_touch(core, leg);
	lk__ticket_pursue(core, now_ns, leg);
}

/* The server has granted it, until valid_until_ns. */
void lk__leg_take(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg, uint64_t fence,
                  int64_t store_us)
{
	leg->fence = fence;
	if (leg->last_fence < fence)
		leg->last_fence = fence;
	leg->store_us = store_us;
	leg->store_us_ns = now_ns;
	leg->renewal_failed = false;
	leg->hands = 0;
	leg->whole->legs->forgotten &= (uint8_t)~bit_of(leg);
	leg->state = LK__HOLDING;
	leg->next_ns = lk__ticket_next_ns(leg, now_ns);
	lk__quorum_touch(core, leg);
	lk__ticket_pursue(core, now_ns, leg);
}

void lk__leg_granted(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg,
                     const struct lk__pending *request, const struct lk__answer *answer)
{
	int64_t valid_until_ns =
		request->sent_ns + leg->queue->lease_ms * MS - lk__margin_ns(leg->queue->lease_ms);

	if (leg->yields)
		return; /* of an epoch that is over */
	leg->is_busy = false;
	leg->is_wanted |= answer->older;
	if (leg->state == LK__HOLDING && answer->fence != leg->fence) {
		restart(core, now_ns, leg, now_ns);
		return;
	}
	if (leg->state == LK__HOLDING && leg->valid_until_ns > valid_until_ns)
		valid_until_ns = leg->valid_until_ns; /* a message was faster */
	leg->valid_until_ns = valid_until_ns;
	leg->head_unserved = answer->more;
	leg->last_fence = answer->last;
	if (valid_until_ns <= now_ns)
		claim(core, now_ns, leg, now_ns);
	else
		lk__leg_take(core, now_ns, leg, answer->fence, answer->store_us);
}

/* An answer to the request of the first extender. */
static void extend(struct lk__ticket *leg, const struct lk__pending *request, bool is_confirmed,
                   bool is_ambiguous)
{
	struct lk__legs *legs = leg->whole->legs;

	if (!request->extends || !(legs->extending & bit_of(leg)))
		return; /* of an extender that is gone */
	legs->extending &= (uint8_t)~bit_of(leg);
	leg->whole->extenders->may_be_extended |= is_ambiguous;
	if (is_confirmed)
		legs->extended |= bit_of(leg);
	else
		legs->unextended |= bit_of(leg);
}

/* A renewal has failed, or has not committed the fence: repeat it after a pause. */
static void retry_later(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg)
{
	leg->next_ns = now_ns + (leg->queue->lease_ms / 20 + 10) * MS;
	if (leg->queue->fixed && whole_holds(leg) && !leg->whole->extenders)
		leg->next_ns = LK__NEVER;
	lk__quorum_touch(core, leg);
	lk__ticket_pursue(core, now_ns, leg);
}

void lk__leg_kept(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg,
                  const struct lk__pending *request, const struct lk__answer *answer)
{
	int64_t valid_until_ns =
		request->sent_ns + request->lease_ms * MS - lk__margin_ns(request->lease_ms);
	bool awaited = request->extends && (leg->whole->legs->extending & bit_of(leg));

	if (leg->state != LK__CLAIMING && leg->state != LK__HOLDING) {
		lk__ticket_pursue(core, now_ns, leg);
		return;
	}
	/* An answer from before a message does not include the new waiter. */
	leg->is_wanted = answer->older || lk__pending_heard(request, LK__WANTED);
	if (leg->last_fence < answer->last)
		leg->last_fence = answer->last;
	if (leg->state == LK__HOLDING && whole_holds(leg))
		lk__count_renewal(&core->counters, now_ns, leg, request);
	/* As on one server: only an extension to a shorter lease shortens it here. */
	if (awaited || leg->state == LK__CLAIMING || leg->valid_until_ns < valid_until_ns)
		leg->valid_until_ns = valid_until_ns;
	extend(leg, request, true, false);
	if (leg->valid_until_ns <= now_ns)
		claim(core, now_ns, leg, now_ns + RETRY_MS * MS);
	else
		lk__leg_take(core, now_ns, leg, answer->fence, answer->store_us);
	/* The counter is damaged. */
	if (leg->state == LK__HOLDING && !whole_holds(leg) && leg->last_fence < request->fence) {
		leg->renewal_failed = true;
		retry_later(core, now_ns, leg);
	}
}

/* ---- No grant ----------------------------------------------------------------------------- */

/* The server does not have the grant. */
void lk__leg_gone(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg)
{
	if (leg->state != LK__HOLDING && leg->state != LK__CLAIMING) {
		lk__ticket_pursue(core, now_ns, leg);
		return;
	}
	leg->whole->legs->was_taken |= leg->state == LK__HOLDING;
	restart(core, now_ns, leg, now_ns);
}

/* A try found it held. */
void lk__leg_busy(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg)
{
	leg->is_busy = leg->is_try;
	leg->next_ns = leg->is_try ? LK__NEVER : now_ns; /* the try has become a hold meanwhile */
	lk__quorum_touch(core, leg);
	lk__ticket_pursue(core, now_ns, leg);
}

/* The server may have forgotten a grant: it grants nothing yet. */
void lk__leg_young(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg,
                   const struct lk__answer *answer)
{
	int64_t ms = answer->grace_ms < core->quorum->longest_ms ? answer->grace_ms
	                                                         : core->quorum->longest_ms;
	int64_t jitter_ns = (int64_t)(lk__core_random(core) % (YOUNG_JITTER_MS * MS));

	if (leg->grace_until_ns <= now_ns)
		leg->grace_from_ns = now_ns;
	leg->grace_until_ns = now_ns + ms * MS;
	if (leg->state == LK__HOLDING) {
		leg->head_unserved = false;
		lk__ticket_pursue(core, now_ns, leg);
		return;
	}
	restart(core, now_ns, leg, leg->grace_until_ns + MS + jitter_ns);
}

/* The server refuses for good.  Ask again all the same, rarely: an operator may mend it. */
void lk__leg_refused(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg, lk_err err,
                     const char *text)
{
	if (lk__ticket_is_leaving(leg))
		return;
	leg->is_refused = true;
	leg->refusal = (uint8_t)err;
	lk__why_set(&core->refusal, err, "%s", text);
	restart(core, now_ns, leg, now_ns + LK__REASK_MAX_MS * MS);
}

void lk__leg_failed(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg,
                    const struct lk__pending *request, const struct lk__answer *answer)
{
	extend(leg, request, false, answer->ambiguous);
	if (request->kind == LK__HAND)
		leg->head_unserved = false;
	if (leg->state == LK__HOLDING && answer->err == LK_EFOREIGN) {
		leg->whole->legs->was_taken = true;
		lk__leg_refused(core, now_ns, leg, answer->err, answer->text);
	} else if (leg->state == LK__HOLDING) {
		leg->renewal_failed |= request->kind == LK__RENEW;
		retry_later(core, now_ns, leg);
	} else if (answer->retryable || request->kind == LK__HAND) {
		/* A grant by message overtook the refusal of its ask: claim it while it stands. */
		if (leg->state != LK__CLAIMING || request->kind != LK__ASK)
			leg->next_ns = lk__refusal_retry_ns(core, now_ns, leg, answer);
		lk__ticket_pursue(core, now_ns, leg);
	} else {
		lk__leg_refused(core, now_ns, leg, answer->ambiguous ? LK_EUNKNOWN : answer->err,
		                answer->text);
	}
}

/* The next epoch waits in the queue, unless the server could not store it. */
void lk__leg_yielded(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg,
                     const struct lk__answer *answer)
{
	leg->yields = false;
	if (leg->state == LK__ASKING) {
		leg->state = LK__WAITING;
		leg->next_ns = now_ns + (answer->more ? 0 : LK__REASK_MAX_MS * MS);
	}
	lk__quorum_touch(core, leg);
	lk__ticket_pursue(core, now_ns, leg);
}

/* Another client ended the hold, or an undecided ticket's grant. */
void lk__leg_broken(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg)
{
	if (whole_holds(leg))
		lk__ticket_lose(core, now_ns, leg->whole, LK_LOST_BROKEN);
	else
		restart(core, now_ns, leg, now_ns);
}

/* The server has lost its memory, and with it the leg. */
void lk__leg_forgotten(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg)
{
	leg->is_forgotten = false;
	if (leg->state == LK__HOLDING)
		leg->whole->legs->forgotten |= bit_of(leg);
	restart(core, now_ns, leg, now_ns);
}

/* ---- Messages of other epochs ------------------------------------------------------------- */

bool lk__leg_is_old(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg,
                    const struct lk__message *message)
{
	if (message->epoch == leg->epoch)
		return message->kind == LK__GRANT &&
		       message->store_us <= leg->session->epoch.since_us; /* was forgotten */
	/* A request of a lost connection came late, and was granted an epoch that is over: it would
	 * block the server for a lease.  An ask ends every epoch but its own.  Another yield would
	 * make the grant that may be on its way one of an old epoch, too, and so on. */
	if (message->kind == LK__GRANT && !leg->yields && leg->main.state == LK__IDLE &&
	    (leg->state == LK__ASKING || leg->state == LK__WAITING)) {
		leg->head_unserved = false;
		leg->next_ns = now_ns;
		lk__ticket_pursue(core, now_ns, leg);
	}
	return true;
}

/* ---- The end ------------------------------------------------------------------------------ */

/* A leave was answered, or refused for good. */
void lk__leg_left(struct lk__core *core, struct lk__ticket *leg, const struct lk__answer *answer)
{
	struct lk__legs *legs = leg->whole->legs;

	if (leg->state != LK__LEAVING)
		return;
	if (answer->kind != LK__LEFT)
		legs->unleft |= bit_of(leg);
	else
		legs->left |= bit_of(leg);
	if (answer->kind == LK__LEFT && answer->mine)
		legs->stood |= legs->held & bit_of(leg);
	if (answer->kind == LK__LEFT && !answer->mine && leg->leaves_sent == 1 &&
	    !leg->is_forgotten)
		legs->missing |= legs->held & bit_of(leg);
	lk__quorum_touch(core, leg);
}

/* The leg is freed: nothing of it is on its server, or it expires there. */
void lk__leg_ended(struct lk__core *core, struct lk__ticket *leg)
{
	struct lk__legs *legs = leg->whole->legs;

	if (!(legs->unleft & bit_of(leg)))
		legs->left |= bit_of(leg);
	legs->leg[leg->session->index] = NULL;
	if (!legs->is_leaving)
		lk__quorum_touch(core, leg);
	leg->whole = NULL;
}

/* ---- Requests ----------------------------------------------------------------------------- */

static bool has_extension_to_send(const struct lk__ticket *leg)
{
	const struct lk__legs *legs = leg->whole->legs;

	return whole_holds(leg) && leg->whole->extenders &&
	       !((legs->extended | legs->unextended | legs->extending) & bit_of(leg));
}

static void renew(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg)
{
	/* The server may have refused the extension for a moment only. */
	if (whole_holds(leg))
		leg->whole->legs->unextended &= (uint8_t)~bit_of(leg);
	lk__ticket_enqueue(core, now_ns, leg, &leg->main, LK__RENEW);
	if (has_extension_to_send(leg)) {
		leg->main.extends = true;
		leg->main.lease_ms = leg->whole->extenders->lease_ms;
		leg->whole->legs->extending |= bit_of(leg);
	}
}

void lk__leg_pursue(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg)
{
	if (leg->valid_until_ns <= now_ns) {
		/* The server may still have it. */
		if (leg->queue->fixed && whole_holds(leg))
			restart(core, now_ns, leg, LK__NEVER);
		else
			claim(core, now_ns, leg, now_ns);
		return;
	}
	if (!lk__session_is_up(leg->session) || !lk__quorum_accepts(core, leg->session) ||
	    leg->main.state != LK__IDLE)
		return;
	if (leg->queue->fixed && whole_holds(leg) && !leg->whole->extenders && !leg->head_unserved)
		leg->next_ns = LK__NEVER; /* the extension that it was to repeat has ended */
	if (leg->head_unserved && lk__ticket_renewal_ns(leg) > now_ns && leg->next_ns <= now_ns)
		lk__ticket_enqueue(core, now_ns, leg, &leg->main, LK__HAND);
	else if (leg->next_ns <= now_ns || has_extension_to_send(leg))
		renew(core, now_ns, leg);
}
