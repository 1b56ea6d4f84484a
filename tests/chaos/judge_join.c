/* SPDX-License-Identifier: MIT
 * Joins records to calls, and calls to holds. */
#include "chaos/judge_parts.h"

#include <stdlib.h>
#include <string.h>

/* Maps that exist while the records are read. */
struct joins {
	struct judge_map processes; /* pid */
	struct judge_map calls;     /* process, call */
	struct judge_map holds;     /* name, fence */
};

static int64_t earlier(int64_t one, int64_t two)
{
	return one < two ? one : two;
}

static size_t process_of(struct judge *judge, struct joins *joins,
                         const struct history_record *record)
{
	size_t *at = judge_map_at(&joins->processes, record->pid, 0);

	/* The same pid again, after its last process ended: a new process. */
	if (*at == NONE || (record->op == HISTORY_START && judge->processes[*at].last_ns)) {
		judge->processes = judge_more(judge->processes, judge->process_count,
		                              &judge->process_room, sizeof(*judge->processes));
		*at = judge->process_count++;
		judge->processes[*at] = (struct process){.pid = record->pid,
		                                         .start_ns = record->at_ns,
		                                         .close_ns = NEVER,
		                                         .end_ns = NEVER,
		                                         .killed_ns = NEVER};
	}
	judge->processes[*at].last_ns = record->at_ns;
	return *at;
}

static struct hold *hold_of(struct judge *judge, struct joins *joins,
                            const struct history_record *record, size_t *index)
{
	size_t at = record->u.of.fence
	                    ? *judge_map_at(&joins->holds, record->name, record->u.of.fence)
	                    : NONE;

	*index = at;
	return at == NONE ? NULL : &judge->holds[at];
}

static void believe(struct hold *hold, const struct history_record *record)
{
	if (record->u.of.valid_until_ns > record->at_ns && record->at_ns > hold->seen_ns)
		hold->seen_ns = record->at_ns;
	if (record->u.of.valid_until_ns <= hold->valid_ns)
		return;
	hold->valid_ns = record->u.of.valid_until_ns;
	hold->proof = record;
}

static void new_hold(struct judge *judge, struct joins *joins, struct call *call)
{
	const struct history_record *got = call->end;
	struct hold hold = {.asked = call->begin,
	                    .got = got,
	                    .process = call->process,
	                    .fence = got->u.of.fence,
	                    .permits = got->permits > 0 ? got->permits : 1,
	                    .lease_ms = call->begin->u.of.amount,
	                    .valid_ns = got->u.of.valid_until_ns,
	                    .seen_ns = got->at_ns,
	                    .lost_ns = NEVER,
	                    .told_ns = NEVER,
	                    .taken_ns = NEVER,
	                    .let_ns = NEVER,
	                    .gone_ns = NEVER,
	                    .over_ns = NEVER,
	                    .let_err = -1,
	                    .part = NONE,
	                    .same_fence = NONE,
	                    .proof = got};
	size_t *at;

	judge->holds = judge_more(judge->holds, judge->hold_count, &judge->hold_room, sizeof(hold));
	judge->holds[judge->hold_count] = hold;
	call->hold = judge->hold_count++;
	if (!hold.fence) {
		if (!(got->flags & HISTORY_RATE))
			judge_accuse(judge, JUDGE_HISTORY, call->begin, got,
			             "a hold without a fence");
		return;
	}
	at = judge_map_at(&joins->holds, got->name, hold.fence);
	/* The faults, which are read later, decide whether that is possible. */
	judge->holds[call->hold].same_fence = *at;
	*at = call->hold;
}

/* The permits that a release releases; the last of them end the hold. */
static void let_go(struct judge *judge, const struct history_record *record, struct hold *hold,
                   size_t index)
{
	int64_t amount = record->u.of.amount;

	believe(hold, record);
	if (amount > 0 && amount < hold->permits) {
		int64_t sure = earlier(record->at_ns, hold->lost_ns);
		if (hold->valid_ns)
			sure = earlier(sure, hold->valid_ns);
		judge->parts = judge_more(judge->parts, judge->part_count, &judge->part_room,
		                          sizeof(*judge->parts));
		judge->parts[judge->part_count] = (struct part){.hold = index,
		                                                .next = hold->part,
		                                                .permits = amount,
		                                                .sure_ns = sure,
		                                                .free_ns = NEVER};
		hold->part = judge->part_count++;
		hold->permits -= amount;
	} else if (hold->let_ns == NEVER) {
		hold->let = record;
		hold->let_ns = record->at_ns;
	}
}

static void begin_call(struct judge *judge, struct joins *joins,
                       const struct history_record *record, size_t process)
{
	struct call call = {.begin = record,
	                    .process = process,
	                    .hold = NONE,
	                    .end_ns = NEVER,
	                    .cancel_ns = NEVER};
	size_t *at = judge_map_at(&joins->calls, process, record->call);
	struct hold *hold;

	if (*at != NONE) {
		judge_accuse(judge, JUDGE_HISTORY, judge->calls[*at].begin, record,
		             "one number for two calls");
		return;
	}
	if (record->op == HISTORY_CLOSE)
		judge->processes[process].close_ns = record->at_ns;
	if (record->op == HISTORY_RELEASE || record->op == HISTORY_EXTEND) {
		hold = hold_of(judge, joins, record, &call.hold);
		if (!hold && record->u.of.fence)
			judge_accuse(judge, JUDGE_HISTORY, record, NULL,
			             "a call on a hold that was never granted");
		else if (hold && record->op == HISTORY_RELEASE &&
		         !(record->flags & HISTORY_REENTRY))
			let_go(judge, record, hold, call.hold);
	}
	judge->calls = judge_more(judge->calls, judge->call_count, &judge->call_room, sizeof(call));
	*at = judge->call_count;
	judge->calls[judge->call_count++] = call;
}

static void end_release(struct judge *judge, const struct call *call, struct hold *hold)
{
	if (call->begin->flags & HISTORY_REENTRY)
		return;
	if (hold->let != call->begin) {
		size_t part = hold->part;
		while (part != NONE && judge->parts[part].free_ns != NEVER)
			part = judge->parts[part].next;
		if (part != NONE && call->end->err == LK_OK)
			judge->parts[part].free_ns = call->end_ns;
		return;
	}
	hold->let_err = call->end->err;
	if (call->end->err == LK_OK)
		hold->gone_ns = call->end_ns;
	else if (call->end->err == LK_ELOST)
		hold->lost_ns = earlier(hold->lost_ns, call->end_ns);
	/* Its owner had seen it valid for longer, and its process did not wait. */
	if (call->end->err == LK_ELOST && call->end_ns < call->begin->u.of.valid_until_ns)
		hold->taken_ns = earlier(hold->taken_ns, call->end_ns);
}

static void end_cancel(struct judge *judge, struct joins *joins, const struct call *call)
{
	size_t at = *judge_map_at(&joins->calls, call->process, call->begin->u.of.fence);

	if (at == NONE)
		judge_accuse(judge, JUDGE_HISTORY, call->begin, NULL, "a cancel without a wait");
	else if (call->end->err == LK_OK)
		judge->calls[at].cancel_ns = earlier(judge->calls[at].cancel_ns, call->end_ns);
}

static void end_call(struct judge *judge, struct joins *joins, const struct history_record *record,
                     size_t process)
{
	size_t at = *judge_map_at(&joins->calls, process, record->call);
	struct call *call;

	if (at == NONE || judge->calls[at].end || judge->calls[at].begin->op != record->op ||
	    judge->calls[at].begin->name != record->name) {
		judge_accuse(judge, JUDGE_HISTORY, at == NONE ? NULL : judge->calls[at].begin,
		             record, "an end without a call");
		return;
	}
	call = &judge->calls[at];
	call->end = record;
	call->end_ns = record->at_ns;
	if (record->err == LK_EUNKNOWN)
		judge->verdict->unknown++;
	if (record->op == HISTORY_ACQUIRE) {
		judge->verdict->waits++;
		if (record->err != LK_OK || record->flags & HISTORY_REENTRY)
			return;
		judge->verdict->grants++;
		new_hold(judge, joins, call);
	} else if (call->hold != NONE && record->op == HISTORY_EXTEND && record->err == LK_OK) {
		struct hold *hold = &judge->holds[call->hold];
		if (hold->got->flags & HISTORY_FIXED && hold->valid_ns &&
		    call->begin->at_ns > hold->valid_ns + JUDGE_CLOSE_NS)
			judge_accuse(judge, PROMISE_LOSS, hold->proof, record,
			             "a hold of %s was extended after its end",
			             judge_name(judge, record->name));
		believe(hold, record);
		if (call->begin->u.of.amount > hold->lease_ms)
			hold->lease_ms = call->begin->u.of.amount;
	} else if (record->op == HISTORY_AWAIT) {
		judge->verdict->waits++;
	} else if (call->hold != NONE && record->op == HISTORY_RELEASE) {
		end_release(judge, call, &judge->holds[call->hold]);
	} else if (record->op == HISTORY_CANCEL) {
		end_cancel(judge, joins, call);
	}
}

static void note_event(struct judge *judge, struct joins *joins,
                       const struct history_record *record, size_t process)
{
	struct hold *hold;
	size_t index;

	if (record->op == HISTORY_ID) {
		struct client client = {.process = process};
		/* 22 characters; a NUL after them is there or is written here. */
		memcpy(client.id, record->u.text, sizeof(client.id) - 1);
		judge->clients = judge_more(judge->clients, judge->client_count,
		                            &judge->client_room, sizeof(client));
		judge->clients[judge->client_count++] = client;
	} else if (record->op == HISTORY_END) {
		judge->processes[process].end_ns = record->at_ns;
	} else if (record->op == HISTORY_LOST) {
		judge->verdict->lost++;
		hold = hold_of(judge, joins, record, &index);
		if (hold && hold->told_ns != NEVER && !judge_clock_back(judge, record->at_ns))
			judge_accuse(judge, PROMISE_LOSS, hold->got, record,
			             "the loss of a hold of %s was reported twice",
			             judge_name(judge, record->name));
		if (hold) {
			hold->lost_ns = earlier(hold->lost_ns, record->at_ns);
			hold->told_ns = earlier(hold->told_ns, record->at_ns);
			if (record->u.of.amount == LK_LOST_TAKEN)
				hold->taken_ns = earlier(hold->taken_ns, record->at_ns);
		}
	} else if (record->op == HISTORY_ENTER || record->op == HISTORY_LEAVE ||
	           record->op == HISTORY_SEEN) {
		hold = hold_of(judge, joins, record, &index);
		if (hold)
			believe(hold, record);
		if (hold && record->op == HISTORY_SEEN && !record->u.of.valid_until_ns)
			hold->over_ns = earlier(hold->over_ns, record->at_ns);
	}
}

/* A hand-over inside a process passes the next fence and the rest of the lease. */
static void find_roots(struct judge *judge, size_t name)
{
	struct judge_list list = judge_holds_of(judge, name);

	for (size_t i = 0; i < list.count; i++) {
		struct hold *hold = list.items[i];
		const struct hold *before = i ? list.items[i - 1] : NULL;
		int64_t left_ms = (hold->got->u.of.valid_until_ns - hold->got->at_ns) / MS + 1;
		hold->root_ns = hold->asked->at_ns;
		hold->root_lease_ms = hold->lease_ms;
		/* Another thread may have extended it before the hand-over. */
		if (left_ms > hold->root_lease_ms)
			hold->root_lease_ms = left_ms;
		if (!before || !hold->fence || before->fence + 1 != hold->fence ||
		    before->process != hold->process)
			continue;
		hold->root_ns = before->root_ns;
		if (before->root_lease_ms > hold->root_lease_ms)
			hold->root_lease_ms = before->root_lease_ms;
	}
	free(list.items);
}

/* Known only after all records: a loss may be reported while a release is pending. */
static void settle(struct judge *judge)
{
	for (size_t i = 0; i < judge->hold_count; i++) {
		struct hold *hold = &judge->holds[i];
		int64_t valid_ns = hold->valid_ns ? hold->valid_ns : hold->got->at_ns;
		struct name *name = &judge->names[hold->got->name];
		if (hold->lease_ms > name->lease_ms)
			name->lease_ms = hold->lease_ms;
		hold->sure_ns = earlier(hold->let_ns, hold->lost_ns);
		hold->sure_ns = earlier(hold->sure_ns, valid_ns);
		hold->free_ns = hold->gone_ns;
		if (hold->free_ns == NEVER)
			hold->free_ns = earlier(hold->lost_ns, valid_ns);
		if (hold->got->flags & HISTORY_RATE)
			hold->free_ns = hold->got->at_ns + hold->lease_ms * MS;
	}
}

void judge_read_calls(struct judge *judge)
{
	const struct history_list *history = &judge->input->history;
	struct joins joins = {0};

	for (size_t i = 0; i < history->count; i++) {
		const struct history_record *record = &history->records[i];
		size_t process = process_of(judge, &joins, record);
		bool named = record->name < judge->name_count && judge->names[record->name].known;
		if (record->op >= HISTORY_ACQUIRE && record->op <= HISTORY_AWAIT && !named)
			judge_accuse(judge, JUDGE_HISTORY, record, NULL,
			             "a name that names.txt does not have");
		else if (record->phase == HISTORY_BEGIN)
			begin_call(judge, &joins, record, process);
		else if (record->phase == HISTORY_DONE)
			end_call(judge, &joins, record, process);
		else
			note_event(judge, &joins, record, process);
	}
	settle(judge);
	for (size_t name = 0; name < judge->name_count; name++)
		find_roots(judge, name);
	judge->owners = joins.holds;
	judge_map_free(&joins.processes);
	judge_map_free(&joins.calls);
}

static int by_fence(const void *left, const void *right)
{
	const struct hold *one = *(struct hold *const *)left, *two = *(struct hold *const *)right;

	if (one->fence != two->fence)
		return one->fence < two->fence ? -1 : 1;
	return one->got->at_ns < two->got->at_ns ? -1 : one->got->at_ns > two->got->at_ns;
}

struct judge_list judge_holds_of(const struct judge *judge, size_t name)
{
	struct judge_list list = {0};

	for (size_t i = 0; i < judge->hold_count; i++)
		list.count += judge->holds[i].got->name == name;
	list.items = judge_zeroed(list.count, sizeof(struct hold *));
	list.count = 0;
	for (size_t i = 0; i < judge->hold_count; i++)
		if (judge->holds[i].got->name == name)
			list.items[list.count++] = &judge->holds[i];
	qsort(list.items, list.count, sizeof(struct hold *), by_fence);
	return list;
}
