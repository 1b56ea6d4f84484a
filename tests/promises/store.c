/* SPDX-License-Identifier: MIT
 * A name in the store, before and after a script. */
#include "promises.h"

#include <stdio.h>
#include <string.h>

const char *promise_fifo(const struct promise_waiter *queue, size_t count, const char *ticket,
                         int64_t arrival)
{
	static char text[2 * LK__TICKET_MAX + 40];

	for (size_t i = 0; i < count; i++) {
		const struct promise_waiter *other = &queue[i];
		if (!other->waits || other->arrival > arrival || !strcmp(other->ticket, ticket) ||
		    (other->arrival == arrival && strcmp(other->ticket, ticket) > 0))
			continue;
		snprintf(text, sizeof(text), "%s has overtaken %s", ticket, other->ticket);
		return text;
	}
	return NULL;
}

static const char *about(const char *format, const char *ticket)
{
	static char text[LK__TICKET_MAX + 80];

	snprintf(text, sizeof(text), "%s %s", ticket, format);
	return text;
}

const char *promise_fifo_place(const struct promise_run *run)
{
	const struct store_ticket *wait = store_wait(run->after, run->ticket);

	if (run->kind != LK__ASK || !wait || store_wait(run->before, run->ticket))
		return NULL;
	if (run->arrival_us && wait->arrival_us != run->arrival_us)
		return about("did not return to its queue position", run->ticket);
	for (int i = 0; !run->arrival_us && i < run->after->queued; i++)
		if (run->after->queue[i].arrival_us > wait->arrival_us)
			return about("came last and is not at the end of the queue", run->ticket);
	return NULL;
}

/* A leg of a quorum also ends by its yield, or by an ask of a later epoch. */
const char *promise_owner(const struct promise_run *run, const struct store_ticket *was)
{
	bool ends = run->kind == LK__LEAVE || run->kind == LK__YIELD ||
	            (run->kind == LK__ASK && strcmp(run->ticket, was->text) != 0);
	bool leaves = ends && store_is_same(run->ticket, was->text);
	/* In the grace, what was not taken back gives way; but permits that are never released
	 * stay: no client takes them back. */
	bool stale =
		run->kind == LK__RECLAIM && run->in_grace && !was->final && was->mark != run->mark;

	return was->end_us > run->now_us && !leaves && !stale
	               ? about("was removed before its expiry", was->text)
	               : NULL;
}

/* The lease may have been longer than the server grants at once: its clock was set back. */
const char *promise_lease(const struct store_ticket *was, const struct store_ticket *is,
                          int64_t now_us)
{
	return is->end_us < was->end_us && was->end_us <= now_us + is->force_ms * 1000
	               ? about("has a shorter lease", is->text)
	               : NULL;
}

const char *promise_permits_kept(const struct store_view *view)
{
	static char text[120];
	int64_t sum = 0;

	for (int i = 0; i < view->hold_count; i++) {
		const struct store_ticket *hold = &view->holds[i];
		sum += hold->held;
		if (hold->end_us < 0 || !hold->fence || hold->held < 1 ||
		    hold->held > hold->permits)
			return about("is half a hold", hold->text);
	}
	if (view->used == sum)
		return NULL;
	snprintf(text, sizeof(text), "the store counts %lld permits, its holds have %lld",
	         (long long)view->used, (long long)sum);
	return text;
}

const char *promise_permits_moved(const struct promise_run *run)
{
	bool granted = false;

	for (int i = 0; i < run->after->hold_count; i++) {
		const struct store_ticket *is = &run->after->holds[i];
		const struct store_ticket *was = store_hold(run->before, is->text);
		bool shrinks = run->kind == LK__SHRINK && !strcmp(run->ticket, is->text) &&
		               is->held == run->permits;
		bool new = !was || was->fence != is->fence;
		bool reclaims = run->kind == LK__RECLAIM && !strcmp(run->ticket, is->text) &&
		                is->held <= is->permits;
		granted |= new;
		if (reclaims && (new || is->held <= was->held))
			continue;
		if (new ? is->held != is->permits
		        : is->held > was->held || (is->held < was->held && !shrinks))
			return about("has another number of permits", is->text);
	}
	return granted ? promise_permits(run->after->used, run->after->capacity) : NULL;
}

/* A renewal does not serve, nor a reclaim; in the grace no script does.  An ask for permits that it
 * has releases none; the client that got "more" is about to serve. */
const char *promise_served(const struct promise_run *run)
{
	const struct store_view *view = run->after;
	const struct lk__answer *answer = run->answer;

	if (run->in_grace || run->kind == LK__RENEW || run->kind == LK__RECLAIM ||
	    (run->kind == LK__ASK && store_hold(run->before, run->ticket)) ||
	    (run->kind >= 0 && (answer->kind == LK__FAILED || answer->kind == LK__STALE ||
	                        answer->more || (answer->free && answer->kind != LK__LEFT))))
		return NULL;
	return view->there && view->queued && view->used + view->queue[0].permits <= view->capacity
	               ? about("is the head of the queue, fits, and was not served",
	                       view->queue[0].text)
	               : NULL;
}
