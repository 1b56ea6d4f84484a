/* SPDX-License-Identifier: MIT
 * Wake-ups, calls that never return, processes that crash, load, and the state at the end. */
#include "chaos/judge_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int64_t later(int64_t one, int64_t two)
{
	return one > two ? one : two;
}

/* ---- wake-ups ----------------------------------------------------------------------------------
 */

struct wake {
	struct hold *hold;
	const struct hold *before; /* the hold that had to end first, NULL = none */
	int64_t since_ns;
};

/* Permits in use, as far as their own processes know. */
struct out {
	const struct hold *hold;
	int64_t permits, free_ns;
};

static int by_free(const void *left, const void *right)
{
	const struct out *one = left, *two = right;

	return one->free_ns < two->free_ns ? -1 : one->free_ns > two->free_ns;
}

/* The first moment when so many permits are free. */
static int64_t fits_at(struct out *outs, size_t count, int64_t capacity, int64_t permits,
                       const struct hold **before)
{
	int64_t sum = permits, at_ns = 0;

	for (size_t i = 0; i < count; i++)
		sum += outs[i].permits;
	if (count)
		qsort(outs, count, sizeof(*outs), by_free);
	for (size_t i = 0; i < count && sum > capacity; i++) {
		sum -= outs[i].permits;
		at_ns = outs[i].free_ns;
		*before = outs[i].hold;
	}
	return at_ns;
}

/* Waiters before it that stopped waiting blocked it until then. */
static int64_t gave_up_at(const struct hold *hold, const struct call *const *failed, size_t count)
{
	int64_t at_ns = 0;

	for (size_t i = count; i-- > 0;) {
		const struct call *call = failed[i];
		if (call->end_ns > hold->got->at_ns)
			continue;
		if (call->end_ns < hold->asked->at_ns)
			break;
		at_ns = later(at_ns, call->end_ns);
	}
	return at_ns;
}

static int by_end(const void *left, const void *right)
{
	const struct call *one = *(const struct call *const *)left;
	const struct call *two = *(const struct call *const *)right;

	return one->end_ns < two->end_ns ? -1 : one->end_ns > two->end_ns;
}

/* Waits for permits that ended without any, by their end. */
static const struct call **failed_waits(const struct judge *judge, size_t name, size_t *count)
{
	const struct call **failed = judge_zeroed(judge->call_count, sizeof(*failed));

	*count = 0;
	for (size_t i = 0; i < judge->call_count; i++) {
		const struct call *call = &judge->calls[i];
		if (call->begin->op == HISTORY_ACQUIRE && call->begin->name == name && call->end &&
		    call->end->err != LK_OK)
			failed[(*count)++] = call;
	}
	qsort(failed, *count, sizeof(*failed), by_end);
	return failed;
}

static void add_outs(const struct judge *judge, const struct hold *hold, struct out **outs,
                     size_t *count, size_t *room)
{
	*outs = judge_more(*outs, *count, room, sizeof(**outs));
	(*outs)[(*count)++] =
		(struct out){.hold = hold, .permits = hold->permits, .free_ns = hold->free_ns};
	for (size_t i = hold->part; i != NONE; i = judge->parts[i].next) {
		const struct part *part = &judge->parts[i];
		*outs = judge_more(*outs, *count, room, sizeof(**outs));
		(*outs)[(*count)++] = (struct out){
			.hold = hold,
			.permits = part->permits,
			.free_ns = part->free_ns == NEVER ? hold->free_ns : part->free_ns};
	}
}

/* Neither a fault nor the grace after one concerned the name then. */
static bool is_quiet(const struct judge *judge, int64_t from_ns, int64_t to_ns, int64_t after_ns,
                     size_t name)
{
	return !judge_faulty(judge, from_ns, to_ns, after_ns, NONE, name) &&
	       !judge_grace_ns(judge, from_ns - after_ns, to_ns);
}

static void judge_wake(struct judge *judge, size_t name, const struct wake *wake, int64_t **quiet,
                       size_t *quiet_count, size_t *quiet_room)
{
	const struct judge_options *options = judge->options;
	const struct hold *hold = wake->hold;
	int64_t lease_ns = judge->names[name].lease_ms * MS, got_ns = hold->got->at_ns;
	int64_t late_ns = got_ns - wake->since_ns, bound_ns, away_ns;
	int64_t after_ns = lease_ns + options->claim_ms * MS;
	const char *wrong;
	int count;

	if (late_ns < 0)
		late_ns = 0;
	if (is_quiet(judge, hold->asked->at_ns, got_ns, after_ns, name)) {
		*quiet = judge_more(*quiet, *quiet_count, quiet_room, sizeof(**quiet));
		(*quiet)[(*quiet_count)++] = late_ns;
		judge->verdict->quiet_max_ns = later(judge->verdict->quiet_max_ns, late_ns);
		judge->verdict->minority_grants += judge_lacks_member(judge, got_ns);
		wrong = promise_wake_up(options->quiet_wake_ms * MS, late_ns);
		if (wrong)
			judge_accuse(judge, PROMISE_WAKE_UP,
			             wake->before ? wake->before->got : hold->asked, hold->got,
			             "%s, from %.9f, without any fault: %s",
			             judge_name(judge, name), judge_clock(judge, wake->since_ns),
			             wrong);
		return;
	}
	judge->verdict->fault_max_ns = later(judge->verdict->fault_max_ns, late_ns);
	away_ns = judge_fault_ns(judge, wake->since_ns - after_ns, got_ns, NONE, name, &count);
	bound_ns = lease_ns + (options->ask_ms + options->slack_ms) * MS +
	           options->claim_ms * MS * (count + 1) + away_ns +
	           judge_grace_ns(judge, wake->since_ns - after_ns, got_ns);
	wrong = promise_wake_up(bound_ns, late_ns);
	if (wrong)
		judge_accuse(judge, PROMISE_WAKE_UP, wake->before ? wake->before->got : hold->asked,
		             hold->got, "%s, from %.9f, with %d faults: %s",
		             judge_name(judge, name), judge_clock(judge, wake->since_ns), count,
		             wrong);
}

static int by_number(const void *left, const void *right)
{
	int64_t one = *(const int64_t *)left, two = *(const int64_t *)right;

	return one < two ? -1 : one > two;
}

/* Grants in the server's order, which is that of the fences: each was possible once the previous
 * one was made and enough permits were free. */
static void check_name(struct judge *judge, size_t name, int64_t **quiet, size_t *quiet_count,
                       size_t *quiet_room)
{
	struct judge_list list = judge_holds_of(judge, name);
	const struct call **failed = NULL;
	struct out *outs = NULL;
	size_t count = 0, room = 0, failed_count = 0;
	int64_t last_ns = 0;

	if (judge->names[name].kind != NAME_LOCK)
		failed = failed_waits(judge, name, &failed_count);
	for (size_t i = 0; i < list.count; i++) {
		struct hold *hold = list.items[i];
		struct wake wake = {.hold = hold};
		size_t kept = 0;
		for (size_t j = 0; j < count; j++)
			if (outs[j].free_ns > last_ns)
				outs[kept++] = outs[j];
		count = kept;
		wake.since_ns = fits_at(outs, count, judge->names[name].capacity, hold->permits,
		                        &wake.before);
		wake.since_ns = later(wake.since_ns, later(hold->asked->at_ns, last_ns));
		if (failed)
			wake.since_ns =
				later(wake.since_ns, gave_up_at(hold, failed, failed_count));
		judge_wake(judge, name, &wake, quiet, quiet_count, quiet_room);
		last_ns = later(last_ns, hold->got->at_ns);
		add_outs(judge, hold, &outs, &count, &room);
	}
	free(list.items);
	free(failed);
	free(outs);
}

static bool is_vain(const struct call *call, size_t name)
{
	return call->begin->op == HISTORY_ACQUIRE && call->begin->name == name && call->end &&
	       call->end->err == LK_ETIMEDOUT;
}

/* A wait that timed out although the lock was certainly free for longer than a wake-up may take. */
static void check_vain(struct judge *judge, size_t name)
{
	struct judge_list list = judge_holds_of(judge, name);
	int64_t bound_ns = judge->options->quiet_wake_ms * MS, free_ns = judge->begin_ns;
	int64_t after_ns = (judge->names[name].lease_ms + judge->options->claim_ms) * MS;

	for (size_t j = 0; j < judge->call_count; j++) {
		const struct call *call = &judge->calls[j];
		if (is_vain(call, name) && call->end_ns - call->begin->at_ns > bound_ns &&
		    is_quiet(judge, call->begin->at_ns, call->end_ns, after_ns, name))
			judge->verdict->vain_judged++;
	}
	for (size_t i = 0; i <= list.count; i++) {
		int64_t next_ns = i < list.count ? list.items[i]->asked->at_ns : judge->end_ns;
		for (size_t j = 0; next_ns - free_ns > bound_ns && j < judge->call_count; j++) {
			const struct call *call = &judge->calls[j];
			int64_t from_ns = later(call->begin->at_ns, free_ns);
			int64_t to_ns = call->end_ns < next_ns ? call->end_ns : next_ns;
			if (!is_vain(call, name) || to_ns - from_ns <= bound_ns ||
			    !is_quiet(judge, call->begin->at_ns, to_ns, after_ns, name))
				continue;
			judge_accuse(judge, PROMISE_WAKE_UP, call->begin, call->end,
			             "%s was free for %.3f ms from %.9f, without any fault, and a "
			             "wait ended without it",
			             judge_name(judge, name), (double)(to_ns - from_ns) / 1e6,
			             judge_clock(judge, from_ns));
		}
		if (i < list.count)
			free_ns = later(free_ns, list.items[i]->free_ns);
	}
	free(list.items);
}

void judge_check_wakeups(struct judge *judge)
{
	int64_t *quiet = NULL;
	size_t count = 0, room = 0;

	for (size_t name = 0; name < judge->name_count; name++)
		if (judge->names[name].known && judge->names[name].kind != NAME_LATCH)
			check_name(judge, name, &quiet, &count, &room);
	for (size_t name = 0; name < judge->name_count; name++)
		if (judge->names[name].known && judge->names[name].kind == NAME_LOCK)
			check_vain(judge, name);
	judge->verdict->quiet_grants = (int64_t)count;
	if (count) {
		qsort(quiet, count, sizeof(*quiet), by_number);
		judge->verdict->quiet_p999_ns = quiet[count - 1 - count / 1000];
	}
	free(quiet);
}

/* ---- calls and processes -----------------------------------------------------------------------
 */

#define CONNECT_MS 5000

/* The latest time when a call must have returned, if its process can run; NEVER = no limit. */
static int64_t due(const struct judge *judge, const struct call *call)
{
	const struct history_record *begin = call->begin;
	int64_t limit_ns = begin->at_ns;

	if (begin->op == HISTORY_ACQUIRE || begin->op == HISTORY_AWAIT) {
		int64_t wait_ns = begin->u.of.valid_until_ns;
		if (!wait_ns || call->cancel_ns < wait_ns)
			wait_ns = call->cancel_ns;
		if (judge->processes[call->process].close_ns < wait_ns)
			wait_ns = judge->processes[call->process].close_ns;
		if (wait_ns == NEVER)
			return NEVER;
		limit_ns = later(limit_ns, wait_ns);
	}
	if (begin->op == HISTORY_OPEN)
		limit_ns += CONNECT_MS * MS;
	return limit_ns + (judge->options->command_ms + judge->options->slack_ms) * MS;
}

/* A wait without limit may last while others hold or faults go on.  Only if nothing is ever granted
 * again it certainly hangs. */
static bool waits_in_vain(const struct judge *judge, const struct call *call, int64_t until_ns)
{
	const struct judge_options *options = judge->options;
	const struct name *name = &judge->names[call->begin->name];
	int64_t patience_ns = name->lease_ms * MS + 2 * options->claim_ms * MS +
	                      (options->ask_ms + options->slack_ms) * MS;

	if (name->kind == NAME_LATCH)
		return false;
	if (!is_quiet(judge, until_ns - patience_ns, until_ns, 0, call->begin->name) ||
	    call->begin->at_ns > until_ns - patience_ns)
		return false;
	for (size_t i = 0; i < judge->hold_count; i++)
		if (judge->holds[i].got->name == call->begin->name &&
		    judge->holds[i].free_ns > until_ns - patience_ns)
			return false;
	return true;
}

static void check_hang(struct judge *judge, const struct call *call)
{
	const struct process *process = &judge->processes[call->process];
	int64_t due_ns = due(judge, call), until_ns = call->end_ns, stopped_ns;
	const char *wrong;

	if (until_ns == NEVER) {
		until_ns = judge->end_ns;
		if (process->killed_ns < until_ns)
			until_ns = process->killed_ns;
	}
	if (due_ns == NEVER) {
		if (!call->end && process->killed_ns == NEVER &&
		    waits_in_vain(judge, call, until_ns))
			judge_accuse(judge, PROMISE_DEADLINE, call->begin, NULL,
			             "a wait never ended although %s was not held any more",
			             judge_name(judge, call->begin->name));
		return;
	}
	judge->verdict->cancels_judged += call->cancel_ns != NEVER && until_ns > call->cancel_ns;
	if (until_ns <= due_ns)
		return;
	stopped_ns = judge_stopped_ns(judge, call->begin->at_ns, until_ns, call->process);
	wrong = promise_deadline(due_ns, until_ns - stopped_ns);
	if (wrong)
		judge_accuse(judge, PROMISE_DEADLINE, call->begin, call->end,
		             "%s, %.3f s stopped%s", wrong, (double)stopped_ns / 1e9,
		             call->end ? "" : ", and it has not ended");
}

static void check_crashes(struct judge *judge)
{
	for (size_t i = 0; i < judge->process_count; i++) {
		const struct process *process = &judge->processes[i];
		if (process->end_ns != NEVER || process->killed_ns != NEVER)
			continue;
		judge_accuse(
			judge, PROMISE_CRASH, NULL, NULL,
			"process %u wrote its last record at %.9f, did not end by itself and was "
			"not killed",
			process->pid, judge_clock(judge, process->last_ns));
	}
}

/* ---- load --------------------------------------------------------------------------------------
 */

/* The time without any fault, and the pairs that ended in it. */
static void check_load(struct judge *judge)
{
	struct judge_verdict *verdict = judge->verdict;
	int64_t quiet_ns = 0, at_ns = judge->begin_ns, quiet_pairs = 0;

	for (size_t i = 0; i < judge->fault_count; i++) {
		if (judge->faults[i].members)
			continue;
		quiet_ns += later(judge->faults[i].begin_ns - at_ns, 0);
		at_ns = later(at_ns, judge_over_ns(&judge->faults[i]));
	}
	quiet_ns += later(judge->end_ns - at_ns, 0);
	for (size_t i = 0; i < judge->hold_count; i++) {
		const struct hold *hold = &judge->holds[i];
		bool rate = hold->got->flags & HISTORY_RATE;
		int64_t done_ns = rate ? hold->got->at_ns : hold->gone_ns;
		if (done_ns == NEVER)
			continue;
		verdict->pairs++;
		quiet_pairs += is_quiet(judge, done_ns, done_ns, 0, NONE);
	}
	if (quiet_ns < SECOND) {
		quiet_ns = judge->end_ns - judge->begin_ns;
		quiet_pairs = verdict->pairs;
	}
	verdict->rate = quiet_ns > 0 ? (double)quiet_pairs * 1e9 / (double)quiet_ns : 0;
	if (verdict->rate < judge->options->min_rate)
		judge_accuse(judge, JUDGE_LOAD, NULL, NULL,
		             "not enough load: %.1f pairs a second outside faults, %.1f are wanted",
		             verdict->rate, judge->options->min_rate);
	if (verdict->faults < judge->options->min_faults)
		judge_accuse(judge, JUDGE_LOAD, NULL, NULL,
		             "not enough load: %lld faults, %d are wanted",
		             (long long)verdict->faults, judge->options->min_faults);
}

/* ---- the end -----------------------------------------------------------------------------------
 */

static void check_final(struct judge *judge)
{
	const char *text = judge->input->final;

	while (text && *text) {
		char name[128];
		int64_t available, capacity, queued;
		size_t index;
		const char *end = strchr(text, '\n');
		if (sscanf(text, "%127s %" SCNd64 " %" SCNd64 " %" SCNd64, name, &available,
		           &capacity, &queued) == 4) {
			index = judge_find_name(judge, name, strlen(name));
			if (queued || (available != capacity &&
			               (index == NONE || judge->names[index].kind != NAME_RATE)))
				judge_accuse(judge, PROMISE_REST, NULL, NULL,
				             "at rest %s has %lld of %lld free and %lld waiting",
				             name, (long long)available, (long long)capacity,
				             (long long)queued);
		}
		text = end ? end + 1 : NULL;
	}
}

void judge_check_calls(struct judge *judge)
{
	for (size_t i = 0; i < judge->call_count; i++)
		check_hang(judge, &judge->calls[i]);
	check_crashes(judge);
	check_final(judge);
	check_load(judge);
}
