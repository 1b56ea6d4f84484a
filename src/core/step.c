/* SPDX-License-Identifier: MIT
 * Counting a latch down, exactly once.
 *
 * Why a step counts once: it is sent under one number and for one generation until its answer
 * arrives, and the store keeps each client's last number of the generation.  No other step of the
 * client overtakes it. */
#include "latch.h"

#include <stdlib.h>

#define MS INT64_C(1000000)
#define RETRY_MS 100  /* after a transient error */
#define KNOWN_MS 1000 /* an older known generation is asked for again */

void lk__steps_free(struct lk__latch *latch)
{
	struct lk__step *step;

	while ((step = latch->steps)) {
		latch->steps = step->next;
		free(step);
	}
}

/* Is it bound to the generation for which it was sent: because it may have been counted there, or
 * because its caller has returned? */
static bool is_bound(const struct lk__step *step)
{
	return step->may_be_counted || !step->waiter;
}

bool lk__step_asks(const struct lk__latch *latch)
{
	return latch->steps && !is_bound(latch->steps) && !latch->generation &&
	       latch->down.state != LK__IN_FLIGHT;
}

bool lk__step_can_go(const struct lk__latch *latch)
{
	return latch->steps && (is_bound(latch->steps) || latch->generation);
}

void lk__step_sent(struct lk__core *core, struct lk__latch *latch)
{
	struct lk__step *step = latch->steps;

	if (!step->number)
		step->number = ++core->step_number;
	if (!is_bound(step))
		step->generation = latch->generation;
}

void lk__core_step(struct lk__core *core, int64_t now_ns, struct lk__op *waiter)
{
	struct lk__latch *latch = waiter->queue->name->latch;
	struct lk__step *step = waiter->spare_step;

	lk__op_begin(core, now_ns, waiter);
	if (core->closing) {
		lk__complete(core, waiter, LK_ECLOSED, "the client is closed");
		return;
	}
	/* Its caller means the latch as it is now.  If it were bound to an earlier generation, it
	 * could not be repeated after a lost response. */
	if (!latch->steps && now_ns - latch->known_ns > KNOWN_MS * MS)
		latch->generation = 0;
	waiter->spare_step = NULL;
	waiter->awaits = LK__FOR_STEP;
	step->waiter = waiter;
	step->joined = latch->asks;
	step->next = NULL;
	*latch->steps_end = step;
	latch->steps_end = &step->next;
	if (lk__step_asks(latch))
		latch->ask_ns = now_ns;
	lk__latch_pursue(core, now_ns, latch);
}

static void remove_step(struct lk__latch *latch, struct lk__step *step)
{
	struct lk__step **at = &latch->steps;

	while (*at != step)
		at = &(*at)->next;
	*at = step->next;
	if (!*at)
		latch->steps_end = at;
	free(step);
}

/* May it have reached the store? */
static bool was_sent(const struct lk__latch *latch, const struct lk__step *step)
{
	return step->may_be_counted || (step == latch->steps && latch->down.state == LK__IN_FLIGHT);
}

/* Settle the first step. */
static void settle_step(struct lk__core *core, struct lk__latch *latch, lk_err err,
                        const char *text)
{
	struct lk__step *step = latch->steps;

	if (step->waiter)
		lk__complete(core, step->waiter, err, text);
	remove_step(latch, step);
	latch->step_ns = 0;
}

void lk__step_abandon(struct lk__core *core, struct lk__latch *latch, struct lk__op *waiter)
{
	struct lk__step *step = latch->steps;

	while (step->waiter != waiter)
		step = step->next;
	if (was_sent(latch, step)) {
		step->waiter = NULL;
		lk__complete(core, waiter, LK_EUNKNOWN,
		             "no response to a step in time: it continues in the background, "
		             "unless the latch is reset");
		return;
	}
	lk__latch_unheard(core, latch, waiter);
	remove_step(latch, step);
}

void lk__steps_end(struct lk__core *core, struct lk__latch *latch, const struct lk__why *why)
{
	struct lk__step *step = latch->steps, *next;

	for (; step; step = next) {
		next = step->next;
		if (was_sent(latch, step))
			continue;
		if (step->waiter)
			lk__complete(core, step->waiter, why->err, why->text);
		remove_step(latch, step);
	}
}

void lk__steps_end_asking(struct lk__core *core, struct lk__latch *latch, lk_err err,
                          const char *text)
{
	while (lk__step_asks(latch) && latch->steps->joined < latch->answered)
		settle_step(core, latch, err, text);
}

/* ---- Answers ------------------------------------------------------------------------------ */

/* The step was for another generation than the current one, and was not counted now.  Its waiter
 * meant the current latch, unless the step was counted before. */
static void other(struct lk__core *core, int64_t now_ns, struct lk__latch *latch,
                  const struct lk__answer *answer)
{
	struct lk__step *step = latch->steps;

	latch->generation = answer->fence;
	latch->known_ns = now_ns;
	if (step->may_be_counted)
		settle_step(core, latch, LK_EUNKNOWN,
		            "no response, and the latch was replaced since: the step may have been "
		            "counted");
	else if (!step->waiter)
		settle_step(core, latch, LK_OK, NULL);
	else if (!answer->fence)
		settle_step(core, latch, LK_EABSENT, "no such latch");
	if (lk__step_asks(latch))
		latch->ask_ns = now_ns;
}

static void step_failed(struct lk__core *core, int64_t now_ns, struct lk__latch *latch,
                        const struct lk__answer *answer)
{
	bool unknown = latch->steps->may_be_counted || answer->ambiguous;

	if (answer->retryable) {
		lk__why_set(&latch->trouble, answer->err, "%s", answer->text);
		latch->step_ns = now_ns + RETRY_MS * MS;
		latch->steps->may_be_counted = unknown;
	} else {
		settle_step(core, latch, unknown ? LK_EUNKNOWN : answer->err, answer->text);
	}
}

static void stepped(struct lk__core *core, int64_t now_ns, struct lk__latch *latch,
                    const struct lk__answer *answer)
{
	struct lk__op *waiter = latch->steps->waiter;

	latch->known_ns = now_ns;

	if (waiter) {
		waiter->remaining = answer->remaining;
		waiter->counted = answer->counted;
	}
	latch->trouble.err = LK_OK;
	settle_step(core, latch, LK_OK, NULL);
}

void lk__step_answer(struct lk__core *core, int64_t now_ns, struct lk__latch *latch,
                     const struct lk__answer *answer)
{
	if (answer->kind == LK__STEPPED)
		stepped(core, now_ns, latch, answer);
	else if (answer->kind == LK__OTHER)
		other(core, now_ns, latch, answer);
	else
		step_failed(core, now_ns, latch, answer);
}
