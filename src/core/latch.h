/* SPDX-License-Identifier: MIT
 * Latches in the state machine: waits for their opening, and the steps that count them down.
 *
 *   latch  one name in this client: its waiters, its steps, one request of each kind
 *   step   one count-down.  It has a number that is new in this client, and is bound to one
 *          generation while it may have been counted; one is in flight at a time, the others are
 *          queued behind it
 *
 * The call that opens the name supplies the latch's memory, a step's caller that of the step. */
#ifndef LK__LATCH_H
#define LK__LATCH_H

#include "channel.h"
#include "core.h"

/* NULL when out of memory. */
struct lk__latch *lk__latch_new(const char *topic);
/* Free it before it was passed to lk__latch_open(). */
void lk__latch_discard(struct lk__latch *latch);
/* Give the name a latch; frees the argument if there is one already. */
void lk__latch_open(struct lk__name *name, struct lk__latch *latch);
/* The name is freed, and no request of the latch is in flight. */
void lk__latch_free(struct lk__core *core, struct lk__latch *latch);

/* ---- Calls: op->queue names the latch --------------------------------------------------- */

void lk__core_await(struct lk__core *core, int64_t now_ns, struct lk__op *waiter);
/* Takes waiter->step. */
void lk__core_step(struct lk__core *core, int64_t now_ns, struct lk__op *waiter);

/* ---- Between the core's files ---------------------------------------------------------------- */

void lk__latch_give_up(struct lk__core *core, int64_t now_ns, struct lk__op *waiter, lk_err why);
void lk__latch_abandon(struct lk__core *core, int64_t now_ns, struct lk__op *waiter);
/* End every wait of that handle. */
void lk__latch_cancel(struct lk__core *core, int64_t now_ns, struct lk__latch *latch, void *handle,
                      lk_err why);
/* End every wait over that link (NULL = any) with why, and every step that was never sent. */
void lk__latches_end(struct lk__core *core, const struct lk__session *session, int64_t now_ns,
                     const struct lk__why *why);
void lk__latches_fini(struct lk__core *core);
void lk__latches_link_up(struct lk__core *core, struct lk__session *session, int64_t now_ns);
void lk__latches_link_down(struct lk__core *core, struct lk__session *session, int64_t now_ns);
/* In a Cluster: the latch's name belongs to another link now; the name is changed after it.  Then
 * the latches that were moved ask there. */
void lk__latch_move(struct lk__core *core, struct lk__latch *latch, struct lk__session *session);
void lk__latches_settle(struct lk__core *core, int64_t now_ns);
/* latch.c: its channel, on that link; its last answers may be of another memory. */
void lk__latch_channel(struct lk__latch *latch, struct lk__session *session,
                       struct lk__channel *channel);
void lk__latch_doubt(struct lk__latch *latch);
/* The request was not run, or its answer makes nothing. */
void lk__latch_unrun(struct lk__core *core, int64_t now_ns, struct lk__pending *request);
void lk__latches_tick(struct lk__core *core, int64_t now_ns);
/* The request is in flight from now on. */
void lk__latch_sent(struct lk__core *core, struct lk__pending *pending);
void lk__latch_answer(struct lk__core *core, int64_t now_ns, struct lk__pending *pending,
                      const struct lk__answer *answer);
/* Send due requests.  Call it last in every event: the latch may be freed when it returns. */
void lk__latch_pursue(struct lk__core *core, int64_t now_ns, struct lk__latch *latch);
/* The store did not respond: end the waiter with the reason. */
void lk__latch_unheard(struct lk__core *core, struct lk__latch *latch, struct lk__op *waiter);

/* ---- Steps (step.c) ------------------------------------------------------------------------- */

/* Does the first step need the generation?  Can it be sent? */
bool lk__step_asks(const struct lk__latch *latch);
bool lk__step_can_go(const struct lk__latch *latch);
void lk__step_sent(struct lk__core *core, struct lk__latch *latch);
void lk__step_answer(struct lk__core *core, int64_t now_ns, struct lk__latch *latch,
                     const struct lk__answer *answer);
void lk__step_abandon(struct lk__core *core, struct lk__latch *latch, struct lk__op *waiter);
/* End the steps that have asked for the generation in vain. */
void lk__steps_end_asking(struct lk__core *core, struct lk__latch *latch, lk_err err,
                          const char *text);
/* End the steps that were never sent, with why. */
void lk__steps_end(struct lk__core *core, struct lk__latch *latch, const struct lk__why *why);
void lk__steps_free(struct lk__latch *latch);

#endif
