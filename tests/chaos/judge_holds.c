/* SPDX-License-Identifier: MIT
 * Exclusion, permits, rates, fences and losses, from the histories alone.  They use only certain
 * facts: a hold is certain from the return of acquire until its release begins, its valid_until
 * passes or its loss is reported, whichever comes first. */
#include "chaos/judge_parts.h"

#include <stdlib.h>

static int by_time(int64_t one_ns, int64_t two_ns, const struct hold *one, const struct hold *two)
{
	if (one_ns != two_ns)
		return one_ns < two_ns ? -1 : 1;
	return one < two ? -1 : one > two;
}

static int by_got(const void *left, const void *right)
{
	const struct hold *one = *(struct hold *const *)left, *two = *(struct hold *const *)right;

	return by_time(one->got->at_ns, two->got->at_ns, one, two);
}

static int by_asked(const void *left, const void *right)
{
	const struct hold *one = *(struct hold *const *)left, *two = *(struct hold *const *)right;

	return by_time(one->asked->at_ns, two->asked->at_ns, one, two);
}

static void sort(struct judge_list *list, int (*compare)(const void *, const void *))
{
	qsort(list->items, list->count, sizeof(struct hold *), compare);
}

/* ---- what is valid at a moment -----------------------------------------------------------------
 */

/* Permits that were certainly valid at the same time. */
struct uses {
	struct promise_use *items;
	const struct hold **of;
	size_t count, room, of_room;
};

static void add_use(struct uses *uses, const struct hold *hold, int64_t permits, int64_t to_ns)
{
	uses->items = judge_more(uses->items, uses->count, &uses->room, sizeof(*uses->items));
	uses->of = judge_more(uses->of, uses->count, &uses->of_room, sizeof(*uses->of));
	uses->of[uses->count] = hold;
	uses->items[uses->count++] = (struct promise_use){hold->got->at_ns, to_ns, permits};
}

/* A hold is certain until its end.  The permits of a rate were granted after they were asked for,
 * and are valid for a window from then on. */
static void add_uses(const struct judge *judge, struct uses *uses, const struct hold *hold,
                     const struct name *name)
{
	if (name->kind == NAME_RATE) {
		add_use(uses, hold, hold->permits, hold->asked->at_ns + name->lease_ms * MS);
		return;
	}
	add_use(uses, hold, name->kind == NAME_LOCK ? 1 : hold->permits, hold->sure_ns);
	for (size_t i = hold->part; i != NONE; i = judge->parts[i].next)
		add_use(uses, hold, judge->parts[i].permits, judge->parts[i].sure_ns);
}

/* The oldest hold that is valid at this moment, and the permits that the store may have lost by
 * then; discards the ended ones. */
static const struct hold *oldest_at(const struct judge *judge, struct uses *uses, int64_t at_ns,
                                    int64_t *stale)
{
	const struct hold *oldest = NULL;
	size_t kept = 0;

	*stale = 0;
	for (size_t i = 0; i < uses->count; i++) {
		const struct hold *hold = uses->of[i];
		if (uses->items[i].to <= at_ns)
			continue;
		if (judge_is_stale(judge, hold, at_ns))
			*stale += uses->items[i].permits;
		if (!oldest || hold->asked->at_ns < oldest->asked->at_ns)
			oldest = hold;
		uses->items[kept] = uses->items[i];
		uses->of[kept++] = hold;
	}
	uses->count = kept;
	return oldest;
}

/* Never were more permits valid than the capacity: look when each hold begins. */
static void check_uses(struct judge *judge, size_t index, struct judge_list *list)
{
	const struct name *name = &judge->names[index];
	struct uses uses = {0};

	sort(list, by_got);
	for (size_t i = 0; i < list->count; i++) {
		const struct hold *hold = list->items[i], *oldest;
		int64_t at_ns = hold->got->at_ns, stale, used;
		enum promise promise = PROMISE_PERMITS;
		const char *wrong;
		bool excused;
		add_uses(judge, &uses, hold, name);
		oldest = oldest_at(judge, &uses, at_ns, &stale);
		used = promise_used(uses.items, uses.count, at_ns);
		excused = used - stale <= name->capacity;
		if (name->kind == NAME_LOCK) {
			promise = PROMISE_EXCLUSION;
			wrong = promise_exclusion(used);
		} else if (name->kind == NAME_RATE) {
			promise = PROMISE_RATE;
			wrong = promise_rate(used, name->capacity);
			excused = wrong &&
			          judge_excused(judge, oldest->asked->at_ns, at_ns, 0, index);
		} else {
			wrong = promise_permits(used, name->capacity);
		}
		if (wrong && excused)
			judge->verdict->excused++;
		else if (wrong)
			judge_accuse(judge, promise, oldest->got, hold->got, "%s: %s", name->text,
			             wrong);
	}
	free(uses.items);
	free(uses.of);
}

/* ---- canaries ----------------------------------------------------------------------------------
 */

static void check_canaries(struct judge *judge)
{
	const struct history_list *history = &judge->input->history;

	for (size_t i = 0; i < history->count; i++) {
		const struct history_record *record = &history->records[i];
		int64_t after_ns;
		if ((record->op != HISTORY_ENTER && record->op != HISTORY_LEAVE) || !record->err ||
		    record->name >= judge->name_count)
			continue;
		/* Fences may have been reset, and stay below the highest for as long as the clock
		 * was set back. */
		if (record->err == (record->op == HISTORY_ENTER ? 2 : 3) &&
		    judge_clock_back(judge, record->at_ns) &&
		    judge_forgot(judge, 0, record->at_ns, record->name)) {
			judge->verdict->canaries_excused++;
			continue;
		}
		/* The holder of a forgotten hold believes in it for a lease at most. */
		after_ns = judge->names[record->name].lease_ms * MS + SECOND;
		if (judge_excused(judge, record->at_ns, record->at_ns, after_ns, record->name) ||
		    judge_may_be_over(judge, (uint32_t)record->u.of.amount, record->name,
		                      record->at_ns))
			judge->verdict->canaries_excused++;
		else
			judge_accuse(judge, PROMISE_CANARY, record, NULL,
			             record->op == HISTORY_ENTER
			                     ? "two met inside %s"
			                     : "a thread met another one inside %s",
			             judge_name(judge, record->name));
	}
}

void judge_check_holds(struct judge *judge)
{
	for (size_t name = 0; name < judge->name_count; name++) {
		struct judge_list list;
		if (!judge->names[name].known || judge->names[name].kind == NAME_LATCH)
			continue;
		list = judge_holds_of(judge, name);
		check_uses(judge, name, &list);
		free(list.items);
	}
	check_canaries(judge);
}

/* ---- fences ------------------------------------------------------------------------------------
 */

/* A fence is issued once, unless fences were reset. */
static void check_twice(struct judge *judge, const struct hold *hold, size_t name)
{
	const struct hold *other;

	if (hold->same_fence == NONE)
		return;
	other = &judge->holds[hold->same_fence];
	if (!judge_clock_back(judge, hold->got->at_ns) ||
	    !judge_forgot(judge, other->asked->at_ns, hold->got->at_ns, name))
		judge_accuse(judge, PROMISE_FENCE, other->got, hold->got, "%s: %s",
		             judge_name(judge, name), promise_fence(other->fence, hold->fence));
}

/* A hold that was asked for after another's grant has the larger fence; only a store that forgot
 * and whose clock is behind may violate that. */
void judge_check_fences(struct judge *judge)
{
	for (size_t name = 0; name < judge->name_count; name++) {
		struct judge_list asked, got;
		const struct hold *top = NULL;
		size_t next = 0;
		if (!judge->names[name].known || judge->names[name].kind == NAME_LATCH)
			continue;
		asked = judge_holds_of(judge, name);
		got = judge_holds_of(judge, name);
		sort(&asked, by_asked);
		sort(&got, by_got);
		for (size_t i = 0; i < asked.count; i++) {
			const struct hold *hold = asked.items[i];
			const char *wrong;
			check_twice(judge, hold, name);
			while (next < got.count &&
			       got.items[next]->got->at_ns < hold->asked->at_ns) {
				if (!top || got.items[next]->fence > top->fence)
					top = got.items[next];
				next++;
			}
			wrong = hold->fence && top ? promise_fence(top->fence, hold->fence) : NULL;
			if (!wrong)
				continue;
			if (judge_clock_back(judge, hold->got->at_ns) &&
			    judge_forgot(judge, top->asked->at_ns, hold->got->at_ns, name))
				continue;
			/* Handed over from a forgotten hold: the store did not issue its fence. */
			if (hold->root_ns < hold->asked->at_ns &&
			    judge_is_stale(judge, hold, hold->got->at_ns))
				continue;
			judge_accuse(judge, PROMISE_FENCE, top->got, hold->got, "%s: %s",
			             judge_name(judge, name), wrong);
		}
		free(asked.items);
		free(got.items);
	}
}

/* ---- loss --------------------------------------------------------------------------------------
 */

#define TOLD_MS 200

/* When a loss at at_ns must have been reported at the latest; its process may have been stopped
 * since from_ns. */
static int64_t told_by(const struct judge *judge, const struct hold *hold, int64_t from_ns,
                       int64_t at_ns)
{
	int64_t late_ns = at_ns + (TOLD_MS + judge->options->slack_ms) * MS;

	return late_ns + judge_stopped_ns(judge, from_ns, late_ns + 60 * SECOND, hold->process);
}

/* Until when its process could report it, which went on with the hold until end_ns. */
static int64_t could_tell_until(const struct judge *judge, const struct hold *hold, int64_t end_ns)
{
	const struct process *process = &judge->processes[hold->process];

	if (process->close_ns < end_ns)
		end_ns = process->close_ns;
	if (process->killed_ns < end_ns)
		end_ns = process->killed_ns;
	return judge->end_ns < end_ns ? judge->end_ns : end_ns;
}

/* Renewals extend the lease without a record: only for a fixed hold is the known expiry the real
 * one. */
static void check_told(struct judge *judge, const struct hold *hold)
{
	int64_t late_ns, end_ns;

	if (!hold->valid_ns || !(hold->got->flags & HISTORY_FIXED) ||
	    hold->got->flags & HISTORY_RATE)
		return;
	late_ns = told_by(judge, hold, hold->got->at_ns, hold->valid_ns);
	end_ns = could_tell_until(judge, hold, hold->let_ns);
	judge->verdict->ends_judged += end_ns > late_ns;
	if (end_ns > late_ns && hold->lost_ns > late_ns)
		judge_accuse(judge, PROMISE_LOSS, hold->proof, hold->got,
		             "no report by %.9f that a hold of %s had ended at %.9f",
		             judge_clock(judge, late_ns), judge_name(judge, hold->got->name),
		             judge_clock(judge, hold->valid_ns));
}

/* Its owner checked it, it had ended, and the owner went on: then the loss is reported.  That is so
 * for a renewed hold, too. */
static void check_seen(struct judge *judge, const struct hold *hold)
{
	int64_t late_ns, end_ns;

	if (hold->over_ns == NEVER)
		return;
	late_ns = told_by(judge, hold, hold->over_ns, hold->over_ns);
	end_ns = could_tell_until(judge, hold, hold->let_ns);
	judge->verdict->overs_judged += end_ns > late_ns;
	if (hold->told_ns > late_ns && end_ns > late_ns)
		judge_accuse(judge, PROMISE_LOSS, hold->got, NULL,
		             "a hold of %s had ended at %.9f, and on_lost was not called by %.9f",
		             judge_name(judge, hold->got->name), judge_clock(judge, hold->over_ns),
		             judge_clock(judge, late_ns));
}

/* Its owner could see the loss before the release: then on_lost has run, or will run.  (A release
 * that finds the loss itself returns it, and on_lost does not run.) */
static void check_called(struct judge *judge, const struct hold *hold)
{
	int64_t late_ns, end_ns;

	if (!hold->let || hold->let->u.of.valid_until_ns || hold->let_err != LK_ELOST ||
	    hold->got->flags & HISTORY_RATE || !hold->valid_ns ||
	    (hold->valid_ns - hold->let_ns < JUDGE_CLOSE_NS &&
	     hold->let_ns - hold->valid_ns < JUDGE_CLOSE_NS))
		return;
	late_ns = told_by(judge, hold, hold->let_ns, hold->let_ns);
	end_ns = could_tell_until(judge, hold, judge->end_ns);
	if (hold->told_ns <= end_ns || end_ns > late_ns)
		judge->verdict->losses_judged++;
	if (hold->told_ns > late_ns && end_ns > late_ns)
		judge_accuse(judge, PROMISE_LOSS, hold->got, hold->let,
		             "a hold of %s had been lost when it was released, and on_lost was not "
		             "called by %.9f",
		             judge_name(judge, hold->got->name), judge_clock(judge, late_ns));
}

/* A loss of memory during the hold may end it all the same: a release may find a new memory that
 * its process, whose link lasts, has not noticed. */
static bool may_be_forgotten(const struct judge *judge, const struct hold *hold)
{
	for (size_t i = 0; i < judge->fault_count; i++) {
		const struct fault *fault = &judge->faults[i];
		if (fault->memory && fault->begin_ns <= hold->taken_ns &&
		    fault->end_ns >= hold->root_ns && !fault->fresh && hold->told_ns == NEVER)
			return true;
	}
	return false;
}

/* It ended before its lease did: nobody may do that, but an operator. */
static void check_kept(struct judge *judge, const struct hold *hold)
{
	size_t name = hold->got->name;
	int64_t at_ns = hold->taken_ns, after_ns = judge->names[name].lease_ms * MS + SECOND;

	if (at_ns == NEVER)
		return;
	if (judge_excused(judge, at_ns, at_ns, after_ns, name) || may_be_forgotten(judge, hold) ||
	    hold->shaky) {
		judge->verdict->taken_excused++;
		return;
	}
	judge_accuse(judge, PROMISE_OWNER, hold->got, hold->let,
	             "a hold of %s was lost at %.9f, and its lease had not ended",
	             judge_name(judge, name), judge_clock(judge, at_ns));
}

static void check_believed(struct judge *judge, const struct call *call)
{
	const struct hold *hold = &judge->holds[call->hold];
	bool fixed = hold->got->flags & HISTORY_FIXED;

	if (!call->end || call->end->err != LK_OK)
		return;
	if (call->begin->at_ns > hold->lost_ns)
		judge_accuse(judge, PROMISE_LOSS, call->begin, call->end,
		             "a call on a hold of %s succeeded, which was reported lost at %.9f",
		             judge_name(judge, hold->got->name), judge_clock(judge, hold->lost_ns));
	else if (fixed && call->begin->op == HISTORY_RELEASE && hold->valid_ns &&
	         call->begin->at_ns > hold->valid_ns + JUDGE_CLOSE_NS)
		judge_accuse(judge, PROMISE_LOSS, hold->proof, call->begin,
		             "a release of %s succeeded after the hold had ended at %.9f",
		             judge_name(judge, hold->got->name),
		             judge_clock(judge, hold->valid_ns));
}

void judge_check_loss(struct judge *judge)
{
	for (size_t i = 0; i < judge->hold_count; i++) {
		check_told(judge, &judge->holds[i]);
		check_called(judge, &judge->holds[i]);
		check_seen(judge, &judge->holds[i]);
		check_kept(judge, &judge->holds[i]);
	}
	for (size_t i = 0; i < judge->call_count; i++)
		if (judge->calls[i].hold != NONE && (judge->calls[i].begin->op == HISTORY_RELEASE ||
		                                     judge->calls[i].begin->op == HISTORY_EXTEND))
			check_believed(judge, &judge->calls[i]);
}
