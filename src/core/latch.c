/* SPDX-License-Identifier: MIT
 * Latches: when to ask, and how each answer and message changes waiters and steps.
 *
 * Why no waiter is released early: a waiter has a stamp, from an answer to a request that was sent
 * after the wait began.  It is the generation that counted then, or, of an absent latch, the
 * smallest one that could be made next.  An opening of at least that generation happened during the
 * wait; an older message cannot reach the stamp, however late it arrives.  The one exception: a
 * store that lost its memory, and whose clock is behind, starts again with lower generations.  Then
 * a message from before the loss may end a wait.  A message counts only for the waits that receive
 * it: the next waiter knows nothing of the old generations.
 *
 * Why no waiter is missed: the store keeps the content of each message.  Each waiter is covered by
 * a request that was sent after the channel was confirmed, after each new connection and every ten
 * seconds; the store remembers the last opening, even of a removed latch. */
#include "latch.h"

#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define RETRY_MS 100 /* after a transient error */
#define JITTER 20    /* asks are up to one part in so many earlier: jitter */

/* ---- Life --------------------------------------------------------------------------------- */

struct lk__latch *lk__latch_new(const char *topic)
{
	struct lk__latch *latch = calloc(1, sizeof(*latch));

	if (latch && !(latch->channel = lk__channel_new(topic))) {
		free(latch);
		latch = NULL;
	}
	if (!latch)
		return NULL;
	lk__timer_init(&latch->timer);
	latch->steps_end = &latch->steps;
	latch->ask_ns = LK__NEVER;
	latch->ask.latch = latch->down.latch = latch;
	latch->ask.kind = LK__LOOK;
	latch->down.kind = LK__STEP;
	return latch;
}

void lk__latch_discard(struct lk__latch *latch)
{
	if (!latch)
		return;
	free(latch->channel);
	free(latch);
}

static void channel_on(struct lk__channel *channel, void *arg, int64_t now_ns);
static void channel_refused(struct lk__channel *channel, void *arg, int64_t now_ns,
                            const struct lk__why *why);
static void channel_message(struct lk__channel *channel, void *arg, int64_t now_ns,
                            const struct lk__message *message);
static void channel_off(struct lk__channel *channel, void *arg, int64_t now_ns);

static const struct lk__channel_events events = {channel_on, channel_refused, channel_message,
                                                 channel_off};

void lk__latch_channel(struct lk__latch *latch, struct lk__session *session,
                       struct lk__channel *channel)
{
	latch->channels = &session->channels;
	latch->channel = lk__channel_open(latch->channels, channel, &events, latch);
}

void lk__latch_open(struct lk__name *name, struct lk__latch *latch)
{
	if (name->latch) {
		lk__latch_discard(latch);
		return;
	}
	latch->name = name;
	lk__latch_channel(latch, name->session, latch->channel);
	name->latch = latch;
}

void lk__latch_free(struct lk__core *core, struct lk__latch *latch)
{
	lk__heap_set(&core->latch_timers, &latch->timer, LK__NEVER);
	lk__channel_close(latch->channels, latch->channel);
	lk__steps_free(latch);
	free(latch);
}

/* Update "busy": with waiters, steps or requests it references its name. */
static void mind_busy(struct lk__core *core, struct lk__latch *latch)
{
	bool busy = latch->first || latch->steps || latch->ask.state != LK__IDLE ||
	            latch->down.state != LK__IDLE;

	if (busy == latch->busy)
		return;
	latch->busy = busy;
	if (busy) {
		latch->name->session->users++;
		latch->name->refs++;
		latch->prev = NULL;
		latch->next = core->latches;
		if (latch->next)
			latch->next->prev = latch;
		core->latches = latch;
		return;
	}
	if (latch->prev)
		latch->prev->next = latch->next;
	else
		core->latches = latch->next;
	if (latch->next)
		latch->next->prev = latch->prev;
	latch->name->session->users--;
	lk__name_close(core, latch->name); /* perhaps frees the latch */
}

void lk__latches_fini(struct lk__core *core)
{
	while (core->latches) {
		struct lk__latch *latch = core->latches;
		latch->first = latch->last = NULL;
		lk__steps_free(latch);
		latch->ask.state = latch->down.state = LK__IDLE;
		mind_busy(core, latch);
	}
}

/* ---- Requests and their times ------------------------------------------------------------- */

/* Is anything not covered by the last answer: a waiter that joined after its request was sent, or a
 * subscription that was confirmed after it? */
static bool must_ask(const struct lk__latch *latch)
{
	if (lk__step_asks(latch))
		return true;
	return latch->first &&
	       (latch->last->joined >= latch->answered ||
	        (lk__channel_is_on(latch->channel) && latch->confirmed >= latch->answered));
}

static void enqueue(struct lk__latch *latch, struct lk__pending *request)
{
	request->by_text = request->asking = false;
	lk__pending_enqueue(latch->name->session, request);
}

static bool is_linked(const struct lk__latch *latch)
{
	return lk__session_is_up(latch->name->session);
}

static void arm(struct lk__core *core, struct lk__latch *latch)
{
	int64_t when = LK__NEVER;

	if (is_linked(latch) && latch->ask.state == LK__IDLE)
		when = latch->ask_ns;
	if (is_linked(latch) && latch->down.state == LK__IDLE && lk__step_can_go(latch) &&
	    latch->step_ns < when)
		when = latch->step_ns;
	lk__heap_set(&core->latch_timers, &latch->timer, when);
}

/* Call it last in every event: the latch may be freed when it returns. */
void lk__latch_pursue(struct lk__core *core, int64_t now_ns, struct lk__latch *latch)
{
	bool asks = latch->first || lk__step_asks(latch);

	if (latch->ask_ns == LK__NEVER && latch->ask.state == LK__IDLE && must_ask(latch))
		latch->ask_ns = now_ns;
	if (!asks) {
		latch->ask_ns = LK__NEVER;
		lk__pending_dequeue(core, &latch->ask);
	} else if (is_linked(latch) && latch->ask.state == LK__IDLE && latch->ask_ns <= now_ns) {
		enqueue(latch, &latch->ask);
		latch->ask_ns = LK__NEVER;
	}
	if (!lk__step_can_go(latch))
		lk__pending_dequeue(core, &latch->down);
	else if (is_linked(latch) && latch->down.state == LK__IDLE && latch->step_ns <= now_ns)
		enqueue(latch, &latch->down);
	if (latch->using_channel && !latch->first) {
		latch->using_channel = false;
		lk__channel_unuse(latch->channels, now_ns, latch->channel);
	}
	arm(core, latch);
	mind_busy(core, latch);
}

static void use_channel(int64_t now_ns, struct lk__latch *latch)
{
	if (!latch->using_channel) {
		latch->using_channel = true;
		lk__channel_use(latch->channels, now_ns, latch->channel);
	}
}

void lk__latch_sent(struct lk__core *core, struct lk__pending *request)
{
	struct lk__latch *latch = request->latch;

	if (request == &latch->ask)
		latch->asks++;
	else
		lk__step_sent(core, latch);
}

bool lk__pending_is_latch(const struct lk__pending *request)
{
	return request->kind == LK__LOOK || request->kind == LK__STEP;
}

/* ---- Waiters ------------------------------------------------------------------------------ */

void lk__core_await(struct lk__core *core, int64_t now_ns, struct lk__op *waiter)
{
	struct lk__latch *latch = waiter->queue->name->latch;

	lk__op_begin_wait(core, now_ns, waiter);
	if (core->closing) {
		lk__complete(core, waiter, LK_ECLOSED, "the client is closed");
		return;
	}
	waiter->awaits = LK__FOR_OPEN;
	waiter->joined = latch->asks;
	waiter->next = NULL;
	if (latch->last)
		latch->last->next = waiter;
	else
		latch->first = waiter;
	latch->last = waiter;
	latch->ask_ns = now_ns;
	/* Using a lingering channel costs nothing, and saves the second request. */
	if (!waiter->only_try && lk__channel_is_on(latch->channel))
		use_channel(now_ns, latch);
	lk__latch_pursue(core, now_ns, latch);
}

/* Walk the waiters: fn returns true if it has completed the waiter. */
typedef bool waiter_fn(struct lk__core *core, struct lk__latch *latch, struct lk__op *waiter,
                       const void *arg);

static void for_each(struct lk__core *core, struct lk__latch *latch, waiter_fn *fn, const void *arg)
{
	struct lk__op *waiter = latch->first, *last = NULL, **at = &latch->first;

	while (waiter) {
		struct lk__op *next = waiter->next;
		if (fn(core, latch, waiter, arg)) {
			*at = next;
		} else {
			last = waiter;
			at = &waiter->next;
		}
		waiter = next;
	}
	latch->last = last;
}

/* Did it open during the wait, or end in an equivalent way for this waiter? */
static bool is_over(const struct lk__op *waiter)
{
	return waiter->stamp && (waiter->opened >= waiter->stamp ||
	                         (waiter->absent_is_open && waiter->removed >= waiter->stamp));
}

static void note(struct lk__op *waiter, uint64_t opened, uint64_t removed)
{
	if (opened > waiter->opened)
		waiter->opened = opened;
	if (removed > waiter->removed)
		waiter->removed = removed;
}

/* Also note it for waiters without a first answer: that answer may be older. */
static bool apply_message(struct lk__core *core, struct lk__latch *latch, struct lk__op *waiter,
                          const void *arg)
{
	const struct lk__message *message = arg;

	(void)latch;
	note(waiter, message->kind == LK__OPENED ? message->fence : 0,
	     message->kind == LK__REMOVED ? message->fence : 0);
	if (!is_over(waiter))
		return false;
	lk__complete(core, waiter, LK_OK, NULL);
	return true;
}

/* Apply an answer to one waiter. */
static bool judge(struct lk__core *core, struct lk__latch *latch, struct lk__op *waiter,
                  const void *arg)
{
	const struct lk__answer *answer = arg;
	bool absent = answer->latch_state == LK_LATCH_ABSENT;

	if (waiter->joined >= latch->answered)
		return false; /* it joined after that request was sent */
	if (!waiter->stamp)
		waiter->stamp = absent ? answer->next : answer->fence;
	note(waiter, answer->opened, answer->removed);
	if (answer->latch_state == LK_LATCH_OPEN || is_over(waiter) ||
	    (absent && waiter->absent_is_open))
		lk__complete(core, waiter, LK_OK, NULL);
	else if (waiter->late)
		lk__complete(core, waiter, LK_ETIMEDOUT, "not open in time");
	else if (waiter->only_try)
		lk__complete(core, waiter, LK_EBUSY, absent ? "no such latch" : "not open");
	else
		return false;
	return true;
}

struct ending {
	void *handle; /* NULL: any */
	lk_err err;
	const char *text;
	bool covered; /* only those covered by the last request */
	bool patient; /* only those that do more than try */
};

static bool end_one(struct lk__core *core, struct lk__latch *latch, struct lk__op *waiter,
                    const void *arg)
{
	const struct ending *ending = arg;

	if ((ending->handle && waiter->handle != ending->handle) ||
	    (ending->covered && waiter->joined >= latch->answered) ||
	    (ending->patient && waiter->only_try))
		return false;
	lk__complete(core, waiter, ending->err, ending->text);
	return true;
}

void lk__latch_cancel(struct lk__core *core, int64_t now_ns, struct lk__latch *latch, void *handle,
                      lk_err why)
{
	const struct ending ending = {
		.handle = handle,
		.err = why,
		.text = "the wait was cancelled",
	};

	for_each(core, latch, end_one, &ending);
	lk__latch_pursue(core, now_ns, latch);
}

/* ---- Giving up ---------------------------------------------------------------------------- */

/* The store did not respond: find the reason. */
void lk__latch_unheard(struct lk__core *core, struct lk__latch *latch, struct lk__op *waiter)
{
	const struct lk__why *why = is_linked(latch) ? &latch->trouble : &latch->name->session->why;

	lk__complete(core, waiter, lk__why_unasked(why),
	             why->err && why->text[0] ? why->text
	             : is_linked(latch)       ? "no response to a request in time"
	                                      : "not connected");
}

static void leave_queue(struct lk__latch *latch, struct lk__op *waiter)
{
	struct lk__op **at = &latch->first, *last = NULL;

	for (; *at != waiter; at = &(*at)->next)
		last = *at;
	*at = waiter->next;
	if (latch->last == waiter)
		latch->last = last;
}

void lk__latch_give_up(struct lk__core *core, int64_t now_ns, struct lk__op *waiter, lk_err why)
{
	struct lk__latch *latch = waiter->queue->name->latch;
	bool knows = waiter->stamp && latch->heard;

	if (why == LK_ETIMEDOUT && !knows && is_linked(latch)) {
		/* An answer is in flight, and may report that it is open. */
		waiter->only_try = waiter->late = true;
		return;
	}
	leave_queue(latch, waiter);
	if (why == LK_ETIMEDOUT && !knows)
		lk__latch_unheard(core, latch, waiter);
	else
		lk__complete(core, waiter, why,
		             why == LK_ETIMEDOUT ? "not open in time" : "the wait was cancelled");
	lk__latch_pursue(core, now_ns, latch);
}

void lk__latch_abandon(struct lk__core *core, int64_t now_ns, struct lk__op *waiter)
{
	struct lk__latch *latch = waiter->queue->name->latch;

	if (waiter->awaits == LK__FOR_STEP) {
		lk__step_abandon(core, latch, waiter);
	} else {
		leave_queue(latch, waiter);
		lk__latch_unheard(core, latch, waiter);
	}
	lk__latch_pursue(core, now_ns, latch);
}

void lk__latches_end(struct lk__core *core, const struct lk__session *session, int64_t now_ns,
                     const struct lk__why *why)
{
	const struct ending ending = {.err = why->err, .text = why->text};
	struct lk__latch *latch = core->latches, *next;

	for (; latch; latch = next) {
		next = latch->next;
		if (session && latch->name->session != session)
			continue;
		lk__steps_end(core, latch, why);
		for_each(core, latch, end_one, &ending);
		lk__latch_pursue(core, now_ns, latch);
	}
}

/* ---- Answers ------------------------------------------------------------------------------ */

/* When to ask again without a message. */
static int64_t reask_ns(struct lk__core *core, const struct lk__answer *answer)
{
	int64_t wait_ms = LK__REASK_MAX_MS;

	if (answer->left_ms >= 0 && answer->left_ms < wait_ms)
		return (answer->left_ms + 1) * MS; /* it expires at that moment */
	return wait_ms * MS - (int64_t)(lk__core_random(core) % (uint64_t)(wait_ms * MS / JITTER));
}

static void shown(struct lk__core *core, int64_t now_ns, struct lk__latch *latch,
                  const struct lk__answer *answer)
{
	latch->answered = latch->asks;
	latch->heard = true;
	latch->trouble.err = LK_OK;
	latch->generation = answer->latch_state == LK_LATCH_ABSENT ? 0 : answer->fence;
	latch->known_ns = now_ns;
	for_each(core, latch, judge, answer);
	lk__steps_end_asking(core, latch, LK_EABSENT, "no such latch");
	if (latch->first && latch->first->stamp)
		use_channel(now_ns, latch);
	latch->ask_ns = must_ask(latch) ? now_ns : now_ns + reask_ns(core, answer);
}

static void look_failed(struct lk__core *core, int64_t now_ns, struct lk__latch *latch,
                        const struct lk__answer *answer)
{
	const struct ending ending = {.err = answer->err, .text = answer->text, .covered = true};

	if (answer->retryable) {
		lk__why_set(&latch->trouble, answer->err, "%s", answer->text);
		latch->ask_ns = now_ns + RETRY_MS * MS;
		return;
	}
	latch->answered = latch->asks;
	for_each(core, latch, end_one, &ending);
	lk__steps_end_asking(core, latch, answer->err, answer->text);
	latch->ask_ns = now_ns; /* for waiters that joined meanwhile */
}

void lk__latch_answer(struct lk__core *core, int64_t now_ns, struct lk__pending *request,
                      const struct lk__answer *answer)
{
	struct lk__latch *latch = request->latch;

	if (lk__pending_is_late(request, latch->name->session)) {
		lk__latch_unrun(core, now_ns, request);
		return;
	}
	request->state = LK__IDLE;
	request->asking = false;
	if (lk__answer_ends_hops(answer))
		latch->hops = 0;
	if (request == &latch->down)
		lk__step_answer(core, now_ns, latch, answer);
	else if (answer->kind == LK__SHOWN)
		shown(core, now_ns, latch, answer);
	else
		look_failed(core, now_ns, latch, answer);
	lk__latch_pursue(core, now_ns, latch);
}

/* ---- The channel, the link, the clock ----------------------------------------------------- */

static void channel_on(struct lk__channel *channel, void *arg, int64_t now_ns)
{
	struct lk__latch *latch = channel->owner;

	/* It may have opened between the last answer and this. */
	latch->confirmed = latch->asks;
	latch->ask_ns = now_ns;
	lk__latch_pursue(arg, now_ns, latch);
}

static void channel_refused(struct lk__channel *channel, void *arg, int64_t now_ns,
                            const struct lk__why *why)
{
	const struct ending ending = {.err = why->err, .text = why->text, .patient = true};
	struct lk__latch *latch = channel->owner;

	for_each(arg, latch, end_one, &ending);
	/* Tries may be left, which need no channel; the next longer wait subscribes again. */
	if (latch->using_channel) {
		latch->using_channel = false;
		lk__channel_unuse(latch->channels, now_ns, channel);
	}
	lk__latch_pursue(arg, now_ns, latch);
}

static void channel_message(struct lk__channel *channel, void *arg, int64_t now_ns,
                            const struct lk__message *message)
{
	struct lk__latch *latch = channel->owner;

	for_each(arg, latch, apply_message, message);
	if (latch->first && message->kind == LK__OPENED) {
		/* The remaining waiters have no answer yet; or the store started again with a clock
		 * that is behind, and the latch did open.  An answer in flight may be older. */
		latch->confirmed = latch->asks;
		latch->ask_ns = now_ns;
	}
	lk__latch_pursue(arg, now_ns, latch);
}

/* Messages may have been missed. */
static void channel_off(struct lk__channel *channel, void *arg, int64_t now_ns)
{
	struct lk__latch *latch = channel->owner;

	latch->ask_ns = now_ns;
	lk__latch_pursue(arg, now_ns, latch);
}

/* Its last answers may be of a memory that the store has lost since; those that come are
 * complete. */
void lk__latch_doubt(struct lk__latch *latch)
{
	latch->heard = false;
	latch->trouble.err = LK_OK;
	for (struct lk__op *waiter = latch->first; waiter; waiter = waiter->next)
		waiter->opened = waiter->removed = 0;
}

void lk__latches_link_up(struct lk__core *core, struct lk__session *session, int64_t now_ns)
{
	struct lk__latch *latch = core->latches, *next;

	lk__channels_link_up(&session->channels, now_ns);
	for (; latch; latch = next) {
		next = latch->next;
		if (latch->name->session != session)
			continue;
		latch->ask_ns = now_ns;
		latch->step_ns = 0;
		lk__latch_pursue(core, now_ns, latch);
	}
}

void lk__latches_link_down(struct lk__core *core, struct lk__session *session, int64_t now_ns)
{
	struct lk__latch *latch = core->latches, *next;
	bool asked;

	lk__channels_link_down(&session->channels);
	for (; latch; latch = next) {
		next = latch->next;
		asked = lk__pending_drop(core, session, &latch->ask);
		if (latch->down.state == LK__IN_FLIGHT && latch->down.link == session->index)
			latch->steps->may_be_counted = true;
		asked |= lk__pending_drop(core, session, &latch->down);
		if (latch->name->session == session)
			lk__latch_doubt(latch);
		else if (asked)
			latch->ask_ns = now_ns;
		if (latch->name->session == session || asked)
			lk__latch_pursue(core, now_ns, latch);
	}
}

void lk__latches_tick(struct lk__core *core, int64_t now_ns)
{
	struct lk__timer *timer;

	while ((timer = lk__heap_first(&core->latch_timers)) && timer->due_ns <= now_ns)
		lk__latch_pursue(core, now_ns, (struct lk__latch *)timer);
}
