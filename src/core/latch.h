/* SPDX-License-Identifier: MIT
 * Latches in the state machine: who waits for one to open, and the steps that count it down.
 *
 *   latch  what one client knows of one name: its waiters, its steps, one request of each kind
 *   step   one count-down.  It carries a number that is new in this client, and is bound to one
 *          generation as long as it may have been counted; one at a time is on its way, the others
 *          are queued behind it
 *
 * All of a latch's memory comes from who opens its name, and of a step from its caller. */
#ifndef LK__LATCH_H
#define LK__LATCH_H

#include "channel.h"
#include "core.h"

/* NULL when out of memory. */
struct lk__latch *lk__latch_new(const char *topic);
/* Before it was given to lk__latch_open(). */
void lk__latch_discard(struct lk__latch *latch);
/* The name has a latch from now on: the given one is taken or freed. */
void lk__latch_open(struct lk__name *name, struct lk__latch *latch);
/* The name goes, and nothing of the latch is in flight. */
void lk__latch_free(struct lk__core *core, struct lk__latch *latch);

/* ---- Calls: op->queue names the latch --------------------------------------------------- */

void lk__core_await(struct lk__core *core, int64_t now_ns, struct lk__op *waiter);
/* waiter->step is taken. */
void lk__core_step(struct lk__core *core, int64_t now_ns, struct lk__op *waiter);

/* ---- Between the core's files ---------------------------------------------------------------- */

void lk__latch_give_up(struct lk__core *core, int64_t now_ns, struct lk__op *waiter, lk_err why);
void lk__latch_abandon(struct lk__core *core, int64_t now_ns, struct lk__op *waiter);
/* Every wait of that handle. */
void lk__latch_cancel(struct lk__core *core, int64_t now_ns, struct lk__latch *latch, void *handle,
                      lk_err why);
/* Every wait over that link (NULL = any) ends so, and every step that was never sent. */
void lk__latches_end(struct lk__core *core, const struct lk__session *session, int64_t now_ns,
                     const struct lk__why *why);
void lk__latches_fini(struct lk__core *core);
void lk__latches_link_up(struct lk__core *core, struct lk__session *session, int64_t now_ns);
void lk__latches_link_down(struct lk__core *core, struct lk__session *session, int64_t now_ns);
void lk__latches_tick(struct lk__core *core, int64_t now_ns);
/* It is in flight from now on. */
void lk__latch_sent(struct lk__core *core, struct lk__pending *pending);
void lk__latch_answer(struct lk__core *core, int64_t now_ns, struct lk__pending *pending,
                      const struct lk__answer *answer);
/* After every event, as its last: send what is due.  The latch may be gone when it returns. */
void lk__latch_pursue(struct lk__core *core, int64_t now_ns, struct lk__latch *latch);
/* Nothing was heard of the store: the waiter ends with the reason. */
void lk__latch_unheard(struct lk__core *core, struct lk__latch *latch, struct lk__op *waiter);

/* ---- Steps (step.c) ------------------------------------------------------------------------- */

/* The first one has to know the generation; it can be sent. */
bool lk__step_asks(const struct lk__latch *latch);
bool lk__step_can_go(const struct lk__latch *latch);
void lk__step_sent(struct lk__core *core, struct lk__latch *latch);
void lk__step_answer(struct lk__core *core, int64_t now_ns, struct lk__latch *latch,
                     const struct lk__answer *answer);
void lk__step_abandon(struct lk__core *core, struct lk__latch *latch, struct lk__op *waiter);
/* Those that wait to know the generation, and have asked for it, end so. */
void lk__steps_end_asking(struct lk__core *core, struct lk__latch *latch, lk_err err,
                          const char *text);
/* Those that were never sent end so. */
void lk__steps_end(struct lk__core *core, struct lk__latch *latch, const struct lk__why *why);
void lk__steps_free(struct lk__latch *latch);

#endif
