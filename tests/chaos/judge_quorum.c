/* SPDX-License-Identifier: MIT
 * A quorum's servers in the log of the nemesis.  While a minority of them fails, locks are served
 * as if all ran: such a fault excuses nothing.  While a majority does, it is one fault, "outage";
 * and while a majority certainly cannot vote, nothing is granted. */
#include "chaos/judge_parts.h"

#include <stdlib.h>
#include <string.h>

#define RENEWED_MS 1000 /* shorter leases may end on a busy machine */
#define LINK_MS                                                                                    \
	2000 /* for all clients to reach a server again, and to tell it what they owe it           \
	      */

struct span {
	int64_t from_ns, to_ns;
	int member;
};

struct spans {
	struct span *items;
	size_t count, room;
};

static void add(struct spans *spans, int64_t from_ns, int64_t to_ns, int member)
{
	spans->items = judge_more(spans->items, spans->count, &spans->room, sizeof(*spans->items));
	spans->items[spans->count++] = (struct span){from_ns, to_ns, member};
}

static int by_number(const void *left, const void *right)
{
	int64_t one = *(const int64_t *)left, two = *(const int64_t *)right;

	return one < two ? -1 : one > two;
}

static int members_at(const struct spans *spans, int64_t at_ns)
{
	unsigned seen = 0;

	for (size_t i = 0; i < spans->count; i++)
		if (spans->items[i].from_ns <= at_ns && at_ns < spans->items[i].to_ns)
			seen |= 1u << spans->items[i].member;
	return __builtin_popcount(seen);
}

/* The times when spans of so many members overlap. */
static struct spans overlaps(const struct spans *spans, int members)
{
	struct spans found = {0};
	int64_t *times = judge_zeroed(spans->count * 2, sizeof(*times));
	size_t count = 0;

	for (size_t i = 0; i < spans->count; i++) {
		times[count++] = spans->items[i].from_ns;
		times[count++] = spans->items[i].to_ns;
	}
	if (count)
		qsort(times, count, sizeof(*times), by_number);
	for (size_t i = 0; i + 1 < count; i++) {
		if (times[i] == times[i + 1] || members_at(spans, times[i]) < members)
			continue;
		if (found.count && found.items[found.count - 1].to_ns == times[i])
			found.items[found.count - 1].to_ns = times[i + 1];
		else
			add(&found, times[i], times[i + 1], 0);
	}
	free(times);
	return found;
}

static int64_t plus(int64_t at_ns, int64_t more_ns)
{
	return at_ns > NEVER - more_ns ? NEVER : at_ns + more_ns;
}

/* By how much the clock of that server was set forward then: it is young for less. */
static int64_t moved_ns(const struct judge *judge, int member, int64_t from_ns, int64_t to_ns)
{
	int64_t sum = 0;

	for (size_t i = 0; i < judge->fault_count; i++) {
		const struct fault *fault = &judge->faults[i];
		if (fault->members && fault->member == member && fault->clock_ms > 0 &&
		    fault->end_ns >= from_ns && fault->begin_ns <= to_ns)
			sum += fault->clock_ms * MS;
	}
	return sum;
}

/* Where it failed, and for a while longer. */
static void find_failures(struct judge *judge, struct spans *fails, struct spans *silent)
{
	for (size_t i = 0; i < judge->fault_count; i++) {
		const struct fault *fault = &judge->faults[i];
		int64_t up_ns = fault->up_ns ? fault->up_ns : fault->begin_ns;
		if (!fault->members)
			continue;
		judge->members = fault->members;
		add(fails, fault->begin_ns, plus(judge_over_ns(fault), LINK_MS * MS),
		    fault->member);
		up_ns = plus(up_ns, fault->grace_ms * MS);
		up_ns -= moved_ns(judge, fault->member, fault->begin_ns, up_ns);
		if (fault->down_ns && up_ns > fault->down_ns)
			add(silent, fault->down_ns, up_ns, fault->member);
	}
}

/* It had a majority when it began; of whose servers one after the other may have failed since. */
static void find_shaky(struct judge *judge, const struct spans *fails)
{
	for (size_t i = 0; i < judge->hold_count; i++) {
		struct hold *hold = &judge->holds[i];
		int64_t end_ns = hold->lost_ns < hold->let_ns ? hold->lost_ns : hold->let_ns;
		unsigned seen = 0;
		if (end_ns == NEVER)
			end_ns = hold->valid_ns;
		for (size_t j = 0; j < fails->count; j++)
			if (fails->items[j].from_ns <= end_ns &&
			    fails->items[j].to_ns >= hold->asked->at_ns)
				seen |= 1u << fails->items[j].member;
		hold->shaky = __builtin_popcount(seen) > judge->members / 2;
		/* It was valid then, if no longer. */
		if (hold->shaky && hold->seen_ns + 1 < hold->sure_ns)
			hold->sure_ns = hold->seen_ns + 1;
	}
}

void judge_read_members(struct judge *judge)
{
	struct spans fails = {0}, silent = {0}, outages, silences;

	find_failures(judge, &fails, &silent);
	if (judge->members)
		find_shaky(judge, &fails);
	outages = overlaps(&fails, judge->members / 2 + 1);
	silences = overlaps(&silent, judge->members / 2 + 1);
	for (size_t i = 0; i < outages.count; i++) {
		struct fault outage = {.kind = "outage",
		                       .target = "majority",
		                       .name = NONE,
		                       .begin_ns = outages.items[i].from_ns,
		                       .end_ns = outages.items[i].to_ns};
		judge->faults = judge_more(judge->faults, judge->fault_count, &judge->fault_room,
		                           sizeof(outage));
		judge->faults[judge->fault_count++] = outage;
	}
	for (size_t i = 0; i < silences.count; i++) {
		judge->silences = judge_more(judge->silences, judge->silence_count,
		                             &judge->silence_room, sizeof(*judge->silences));
		judge->silences[judge->silence_count++] =
			(struct silence){silences.items[i].from_ns, silences.items[i].to_ns};
	}
	free(fails.items);
	free(silent.items);
	free(outages.items);
	free(silences.items);
}

bool judge_may_be_over(const struct judge *judge, uint32_t pid, size_t name, int64_t at_ns)
{
	bool may = false;

	for (size_t i = 0; i < judge->hold_count; i++) {
		const struct hold *hold = &judge->holds[i];
		if (hold->got->pid != pid || hold->got->name != name || hold->got->at_ns > at_ns ||
		    hold->let_ns < at_ns || hold->valid_ns < at_ns)
			continue;
		if (!hold->shaky || hold->sure_ns > at_ns)
			return false;
		may = true;
	}
	return may;
}

bool judge_lacks_member(const struct judge *judge, int64_t at_ns)
{
	for (size_t i = 0; i < judge->fault_count && judge->faults[i].begin_ns <= at_ns; i++)
		if (judge->faults[i].members && judge->faults[i].end_ns >= at_ns)
			return true;
	return false;
}

/* A process may read later what was granted before. */
static void check_silence(struct judge *judge, const struct silence *silence)
{
	int64_t from_ns = silence->from_ns + judge->options->slack_ms * MS;

	if (silence->to_ns > from_ns)
		judge->verdict->silent_ns += silence->to_ns - from_ns;
	for (size_t i = 0; i < judge->hold_count; i++) {
		const struct hold *hold = &judge->holds[i];
		int64_t at_ns = hold->got->at_ns;
		if (at_ns >= silence->to_ns || at_ns < from_ns ||
		    at_ns - judge_stopped_ns(judge, silence->from_ns, at_ns, hold->process) <
		            from_ns)
			continue;
		judge_accuse(judge, PROMISE_EXCLUSION, hold->asked, hold->got,
		             "%s was granted, but from %.9f to %.9f no majority of the servers "
		             "could vote",
		             judge_name(judge, hold->got->name),
		             judge_clock(judge, silence->from_ns),
		             judge_clock(judge, silence->to_ns));
	}
}

/* While no majority fails, a renewed hold lasts. */
static void check_renewed(struct judge *judge, const struct hold *hold)
{
	int64_t lease_ns = hold->lease_ms * MS;

	if (hold->got->flags & HISTORY_FIXED || hold->shaky || hold->lease_ms < RENEWED_MS ||
	    hold->lost_ns == NEVER || (hold->lost_ns > hold->let_ns && hold->let_err != LK_ELOST))
		return;
	if (judge_stopped_ns(judge, hold->got->at_ns - lease_ns, hold->lost_ns, hold->process))
		return;
	judge_accuse(judge, PROMISE_RENEWAL, hold->got, hold->let,
	             "a renewed hold of %s was lost at %.9f, and a majority of the servers ran",
	             judge_name(judge, hold->got->name), judge_clock(judge, hold->lost_ns));
}

void judge_check_quorum(struct judge *judge)
{
	for (size_t i = 0; i < judge->silence_count; i++)
		check_silence(judge, &judge->silences[i]);
	for (size_t i = 0; i < judge->hold_count && judge->members; i++)
		check_renewed(judge, &judge->holds[i]);
}
