/* SPDX-License-Identifier: MIT
 * Latches: no step counts twice or is lost, no waiter returns early or is forgotten.  A generation
 * lives from the beginning of the call that set it to the return of the next one.  A step that may
 * have met two of them is certain in none.  A step of unknown outcome may count at any time. */
#include "chaos/judge_parts.h"

#include <stdlib.h>

struct step {
	const struct call *call;
	int64_t permits;
	bool sure; /* it counted, and on this generation */
};

struct generation {
	const struct call *set;
	int64_t from_ns, ready_ns; /* set began; returned */
	int64_t over_ns, until_ns; /* the next one began; returned (or never) */
	int64_t count;
	bool sure; /* it was certainly set */
	struct step *steps;
	size_t step_count;
	int64_t open_ns;  /* all its certain steps had returned; NEVER if some are missing */
	int64_t first_ns; /* no client can have seen it open before */
};

static bool may_have(const struct call *call)
{
	return !call->end || call->end->err == LK_OK || call->end->err == LK_EUNKNOWN;
}

static bool did(const struct call *call)
{
	return call->end && call->end->err == LK_OK;
}

static int by_time(const void *left, const void *right)
{
	const struct step *one = left, *two = right;

	if (one->call->begin->at_ns != two->call->begin->at_ns)
		return one->call->begin->at_ns < two->call->begin->at_ns ? -1 : 1;
	return one->call < two->call ? -1 : one->call > two->call;
}

/* The end of the possible effect of an ambiguous result: never. */
static int64_t end_of(const struct call *call)
{
	return did(call) ? call->end_ns : NEVER;
}

/* The last moment when a step can have met a generation.  After its caller has ended it counts for
 * the generation that it was bound to, or not at all. */
static int64_t met_until(const struct judge *judge, const struct call *call)
{
	return call->end ? call->end_ns : judge->processes[call->process].killed_ns;
}

static bool of_another(const struct call *step, const struct call *set)
{
	return did(step) && step->end->u.of.fence && set->end && set->end->u.of.fence &&
	       step->end->u.of.fence != set->end->u.of.fence;
}

static void add_steps(const struct judge *judge, struct generation *generation,
                      const struct call *const *downs, size_t count)
{
	size_t kept = 0;

	for (int pass = 0; pass < 2; pass++) {
		if (pass)
			generation->steps = judge_zeroed(kept, sizeof(*generation->steps));
		kept = 0;
		for (size_t i = 0; i < count; i++) {
			const struct call *call = downs[i];
			struct step *step;
			if (call->begin->at_ns > generation->until_ns ||
			    met_until(judge, call) < generation->from_ns ||
			    of_another(call, generation->set))
				continue;
			if (!pass) {
				kept++;
				continue;
			}
			step = &generation->steps[kept++];
			*step = (struct step){.call = call, .permits = call->begin->permits};
			step->sure = did(call) && generation->sure &&
			             call->begin->at_ns > generation->ready_ns &&
			             call->end_ns < generation->over_ns;
		}
	}
	generation->step_count = kept;
	if (kept)
		qsort(generation->steps, kept, sizeof(*generation->steps), by_time);
}

/* When it was certainly open, and before when it certainly was not. */
static void find_opening(struct generation *generation)
{
	int64_t sum = 0, possible = 0;

	generation->open_ns = generation->count ? NEVER : generation->ready_ns;
	generation->first_ns = generation->count ? NEVER : generation->from_ns;
	for (size_t i = 0; i < generation->step_count; i++) {
		const struct step *step = &generation->steps[i];
		possible += step->permits;
		if (possible >= generation->count && generation->first_ns == NEVER)
			generation->first_ns = step->call->begin->at_ns;
		if (!step->sure)
			continue;
		sum += step->permits;
		if (step->call->end->u.of.amount == 0 && step->call->end_ns < generation->open_ns)
			generation->open_ns = step->call->end_ns;
	}
	if (sum >= generation->count && generation->count) {
		int64_t last = 0;
		for (size_t i = 0; i < generation->step_count; i++)
			if (generation->steps[i].sure && generation->steps[i].call->end_ns > last)
				last = generation->steps[i].call->end_ns;
		if (last < generation->open_ns)
			generation->open_ns = last;
	}
	if (generation->first_ns < generation->from_ns)
		generation->first_ns = generation->from_ns;
}

/* The remaining count in a step's result: at least the rest if all steps that may have counted did,
 * and at most the rest after those that certainly counted before it began. */
static void check_step(struct judge *judge, const struct generation *generation,
                       const struct step *step, size_t name)
{
	int64_t low = step->permits, high = 0, taken;

	if (!step->sure)
		return;
	for (size_t i = 0; i < generation->step_count; i++) {
		const struct step *other = &generation->steps[i];
		if (other->call->begin->at_ns < step->call->end_ns)
			high += other->permits;
		if (other != step && other->sure && other->call->end_ns < step->call->begin->at_ns)
			low += other->permits;
	}
	taken = generation->count - step->call->end->u.of.amount;
	if (low > generation->count)
		low = generation->count;
	if (taken < low || taken > high)
		judge_accuse(judge, PROMISE_STEP, generation->set->begin, step->call->end,
		             "%s: after this step %lld are counted; between %lld and %lld can be",
		             judge_name(judge, name), (long long)taken, (long long)low,
		             (long long)high);
}

/* A step whose reply was lost gets the remaining count later, so only calls without a fault are
 * checked. */
static void check_remaining(struct judge *judge, const struct generation *generation, size_t name)
{
	struct judge_map seen = {0}, named = {0};

	for (size_t i = 0; i < generation->step_count; i++) {
		const struct step *step = &generation->steps[i];
		const struct call *call = step->call;
		const char *wrong;
		size_t *at;
		check_step(judge, generation, step, name);
		if (!step->sure)
			continue;
		if (call->begin->flags & HISTORY_NAMED) {
			at = judge_map_at(&named, (uint64_t)call->begin->u.of.valid_until_ns, 0);
			wrong = promise_step(*at != NONE);
			if (wrong)
				judge_accuse(judge, PROMISE_STEP, generation->steps[*at].call->end,
				             call->end, "%s: %s", judge_name(judge, name), wrong);
			*at = i;
		}
		if (judge_faulty(judge, call->begin->at_ns, call->end_ns, SECOND, NONE, NONE))
			continue;
		at = judge_map_at(&seen, (uint64_t)call->end->u.of.amount, 0);
		if (*at != NONE)
			judge_accuse(judge, PROMISE_STEP, generation->steps[*at].call->end,
			             call->end, "%s: after two steps the same remains",
			             judge_name(judge, name));
		*at = i;
	}
	judge_map_free(&seen);
	judge_map_free(&named);
}

/* ---- waits -------------------------------------------------------------------------------------
 */

static void check_await(struct judge *judge, const struct call *call,
                        const struct generation *generations, size_t count)
{
	const struct judge_options *options = judge->options;
	int64_t begin_ns = call->begin->at_ns, bound_ns, from_ns, newest_ns = 0;
	size_t name = call->begin->name;
	bool possible = false;
	const char *wrong;
	int faults;

	for (size_t i = 0; i < count; i++) {
		const struct generation *generation = &generations[i];
		possible |= generation->first_ns < call->end_ns && generation->until_ns > begin_ns;
		if (generation->sure && generation->ready_ns <= begin_ns &&
		    generation->from_ns > newest_ns)
			newest_ns = generation->from_ns;
		if (generation->open_ns >= generation->over_ns ||
		    call->end_ns < generation->open_ns)
			continue;
		/* It was open from then on, and the wait had the rest of its time to notice. */
		from_ns = generation->open_ns > begin_ns ? generation->open_ns : begin_ns;
		bound_ns = options->quiet_wake_ms * MS;
		if (judge_faulty(judge, begin_ns, from_ns + bound_ns, options->claim_ms * MS,
		                 call->process, name))
			bound_ns =
				(options->ask_ms + options->slack_ms + options->command_ms) * MS +
				judge_fault_ns(judge, begin_ns, call->end_ns, call->process, name,
			                       &faults);
		if (from_ns + bound_ns >= generation->over_ns ||
		    from_ns + bound_ns > judge->end_ns ||
		    from_ns + bound_ns >= judge->processes[call->process].killed_ns ||
		    from_ns >= generation->until_ns)
			continue;
		if (call->end_ns > from_ns + bound_ns &&
		    !judge_excused(judge, generation->from_ns, call->end_ns, 0, name))
			judge_accuse(judge, PROMISE_AWAIT, call->begin, call->end,
			             "%s was open from %.9f, and a wait went on for %.3f ms",
			             judge_name(judge, name),
			             judge_clock(judge, generation->open_ns),
			             call->end ? (double)(call->end_ns - from_ns) / 1e6 : -1.0);
	}
	/* In an older copy a latch may be open until it is set. */
	wrong = call->end ? promise_await((lk_err)call->end->err, possible) : NULL;
	if (wrong && !judge_forgot(judge, newest_ns, call->end_ns, name))
		judge_accuse(judge, PROMISE_AWAIT, call->begin, call->end, "%s: %s",
		             judge_name(judge, name), wrong);
}

static void limit(struct generation *generations, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		for (size_t j = 0; j < count; j++) {
			const struct generation *next = &generations[j];
			if (next->from_ns <= generations[i].from_ns)
				continue;
			if (next->from_ns < generations[i].over_ns)
				generations[i].over_ns = next->from_ns;
			if (next->ready_ns < generations[i].until_ns)
				generations[i].until_ns = next->ready_ns;
		}
	}
}

/* Calls of one latch. */
struct calls {
	const struct call **sets, **downs, **awaits;
	size_t set_count, down_count, await_count;
};

static void check_calls(struct judge *judge, size_t name, const struct calls *calls)
{
	struct generation *generations = judge_zeroed(calls->set_count, sizeof(*generations));

	for (size_t i = 0; i < calls->set_count; i++) {
		const struct call *set = calls->sets[i];
		generations[i] = (struct generation){.set = set,
		                                     .from_ns = set->begin->at_ns,
		                                     .ready_ns = end_of(set),
		                                     .over_ns = NEVER,
		                                     .until_ns = NEVER,
		                                     .count = set->begin->u.of.amount,
		                                     .sure = did(set)};
	}
	limit(generations, calls->set_count);
	for (size_t i = 0; i < calls->set_count; i++) {
		struct generation *generation = &generations[i];
		int64_t over_ns = generation->over_ns;
		add_steps(judge, generation, calls->downs, calls->down_count);
		find_opening(generation);
		judge->verdict->openings += generation->open_ns != NEVER;
		if (over_ns > judge->end_ns)
			over_ns = judge->end_ns;
		if (!judge_forgot(judge, generation->from_ns, over_ns, name))
			check_remaining(judge, generation, name);
	}
	for (size_t i = 0; i < calls->await_count; i++)
		check_await(judge, calls->awaits[i], generations, calls->set_count);
	for (size_t i = 0; i < calls->set_count; i++)
		free(generations[i].steps);
	free(generations);
}

void judge_check_latches(struct judge *judge)
{
	struct calls calls;
	size_t all = 0;

	for (size_t i = 0; i < judge->call_count; i++)
		all += judge->calls[i].begin->op >= HISTORY_SET;
	calls.sets = judge_zeroed(all, sizeof(*calls.sets));
	calls.downs = judge_zeroed(all, sizeof(*calls.downs));
	calls.awaits = judge_zeroed(all, sizeof(*calls.awaits));
	for (size_t name = 0; name < judge->name_count; name++) {
		if (!judge->names[name].known || judge->names[name].kind != NAME_LATCH)
			continue;
		calls.set_count = calls.down_count = calls.await_count = 0;
		for (size_t i = 0; i < judge->call_count; i++) {
			const struct call *call = &judge->calls[i];
			bool again = did(call) && call->end->flags & HISTORY_AGAIN;
			if (call->begin->name != name || call->begin->op < HISTORY_SET)
				continue;
			if (call->begin->op == HISTORY_AWAIT)
				calls.awaits[calls.await_count++] = call;
			else if (may_have(call) && call->begin->op == HISTORY_SET)
				calls.sets[calls.set_count++] = call;
			else if (may_have(call) && call->begin->op == HISTORY_DOWN && !again)
				calls.downs[calls.down_count++] = call;
		}
		check_calls(judge, name, &calls);
	}
	free(calls.sets);
	free(calls.downs);
	free(calls.awaits);
}
