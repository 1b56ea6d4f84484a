/* SPDX-License-Identifier: MIT
 * Is there one order of all calls on a name that explains each result?  The search of Wing and
 * Gong, done just in time as Lowe does it: all orders are followed together, from event to event.
 * A call is put into an order when one that returns needs it there; orders with the same outcome
 * are one state.  A state is the set of pending calls that have had their effect, the number of
 * permits held, and the last fence; a lock is one permit.  A release of unknown outcome, and the
 * end of a lost hold, may have its effect at any time from then on, or never.  An acquire of
 * unknown outcome is left out: no record shows its effect or its end, and it can only delay
 * others. */
#include "chaos/judge_parts.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 64
#define STATES_MAX 20000

enum effect { TAKE, GIVE, AGAIN };

struct op {
	enum effect effect;
	int64_t from_ns, to_ns; /* NEVER: it may also have no effect */
	int64_t permits;
	uint64_t fence;
	const struct history_record *begin, *end;
	int slot;
};

struct event {
	int64_t at_ns;
	size_t op;
	bool returns;
};

struct state {
	uint64_t done; /* of the slots */
	uint64_t last;
	int64_t used;
};

struct search {
	struct judge *judge;
	size_t name;
	int64_t capacity;
	bool is_lock;
	struct op *ops;
	size_t op_count, op_room;
	size_t slots[SLOTS]; /* NONE = free */
	struct state *states, *next, *stack;
	size_t state_count, next_count, stack_count;
};

static bool apply(const struct search *search, const struct op *op, struct state *state)
{
	switch (op->effect) {
	case TAKE:
		if (state->used + op->permits > search->capacity || op->fence <= state->last)
			return false;
		state->used += op->permits;
		state->last = op->fence;
		break;
	case AGAIN:
		if (!state->used || state->last != op->fence)
			return false;
		break;
	case GIVE:
		if (state->used < op->permits || (search->is_lock && state->last != op->fence))
			return false;
		state->used -= op->permits;
		break;
	}
	state->done |= UINT64_C(1) << op->slot;
	return true;
}

static bool add(struct state *states, size_t *count, const struct state *state)
{
	for (size_t i = 0; i < *count; i++)
		if (memcmp(&states[i], state, sizeof(*state)) == 0)
			return true;
	if (*count == STATES_MAX)
		return false;
	states[(*count)++] = *state;
	return true;
}

/* All states in which this call has had its effect.  False: too many. */
static bool take_in(struct search *search, const struct op *returning)
{
	uint64_t bit = UINT64_C(1) << returning->slot;

	search->next_count = 0;
	search->stack_count = search->state_count;
	memcpy(search->stack, search->states, search->state_count * sizeof(struct state));
	for (size_t at = 0; at < search->stack_count; at++) {
		struct state state = search->stack[at];
		if (state.done & bit) {
			if (!add(search->next, &search->next_count, &state))
				return false;
			continue;
		}
		for (int slot = 0; slot < SLOTS; slot++) {
			struct state after = state;
			if (search->slots[slot] == NONE || state.done >> slot & 1 ||
			    !apply(search, &search->ops[search->slots[slot]], &after))
				continue;
			if (!add(search->stack, &search->stack_count, &after))
				return false;
		}
	}
	return true;
}

/* The slot can be used again, once it is equal in all states. */
static void clear(struct search *search, int slot)
{
	for (size_t i = 0; i < search->state_count; i++)
		search->states[i].done &= ~(UINT64_C(1) << slot);
	search->slots[slot] = NONE;
}

static void clear_settled(struct search *search)
{
	uint64_t all = UINT64_MAX;

	for (size_t i = 0; i < search->state_count; i++)
		all &= search->states[i].done;
	for (int slot = 0; slot < SLOTS; slot++)
		if (search->slots[slot] != NONE && all >> slot & 1 &&
		    search->ops[search->slots[slot]].to_ns == NEVER)
			clear(search, slot);
}

static int free_slot(const struct search *search)
{
	for (int slot = 0; slot < SLOTS; slot++)
		if (search->slots[slot] == NONE)
			return slot;
	return -1;
}

static void add_op(struct search *search, const struct op *op)
{
	search->ops = judge_more(search->ops, search->op_count, &search->op_room, sizeof(*op));
	search->ops[search->op_count++] = *op;
}

/* Start at from_ns; earlier calls that have not returned may have had their effect, or not. */
static void add_hold(struct search *search, const struct hold *hold, int64_t from_ns)
{
	bool old = hold->got->at_ns < from_ns;
	struct op op = {.effect = TAKE,
	                .from_ns = hold->asked->at_ns,
	                .to_ns = hold->got->at_ns,
	                .permits = hold->permits,
	                .fence = hold->fence,
	                .begin = hold->asked,
	                .end = hold->got};

	/* It is not known how much of a hold was released before. */
	if (old && (hold->part != NONE || hold->gone_ns < from_ns ||
	            (hold->gone_ns == NEVER && hold->sure_ns < from_ns)))
		return;
	for (size_t i = hold->part; i != NONE; i = search->judge->parts[i].next)
		op.permits += search->judge->parts[i].permits;
	if (op.from_ns < from_ns)
		op.from_ns = from_ns;
	if (old)
		op.to_ns = NEVER;
	add_op(search, &op);
	op = (struct op){.effect = GIVE,
	                 .from_ns = hold->gone_ns == NEVER ? hold->sure_ns : hold->let_ns,
	                 .to_ns = hold->gone_ns,
	                 .permits = hold->permits,
	                 .fence = hold->fence,
	                 .begin = hold->let ? hold->let : hold->got};
	/* A hold that ended before its acquire returned ended inside that call.  One that nobody
	 * saw valid may have: its process may have stood still between grant and return. */
	if (op.from_ns < hold->asked->at_ns || !hold->valid_ns)
		op.from_ns = hold->asked->at_ns;
	if (op.from_ns < from_ns)
		op.from_ns = from_ns;
	add_op(search, &op);
	for (size_t i = hold->part; i != NONE; i = search->judge->parts[i].next) {
		const struct part *part = &search->judge->parts[i];
		op.permits = part->permits;
		op.from_ns = part->sure_ns > hold->got->at_ns ? part->sure_ns : hold->got->at_ns;
		op.to_ns = part->free_ns;
		add_op(search, &op);
	}
}

static void add_again(struct search *search, int64_t from_ns)
{
	for (size_t i = 0; i < search->judge->call_count; i++) {
		const struct call *call = &search->judge->calls[i];
		if (call->begin->op == HISTORY_ACQUIRE && call->begin->flags & HISTORY_REENTRY &&
		    call->begin->name == search->name && call->end && call->end->err == LK_OK &&
		    call->begin->at_ns >= from_ns && call->end->u.of.fence)
			add_op(search, &(struct op){.effect = AGAIN,
			                            .from_ns = call->begin->at_ns,
			                            .to_ns = call->end_ns,
			                            .fence = call->end->u.of.fence,
			                            .begin = call->begin,
			                            .end = call->end});
	}
}

static int by_time(const void *left, const void *right)
{
	const struct event *one = left, *two = right;

	if (one->at_ns != two->at_ns)
		return one->at_ns < two->at_ns ? -1 : 1;
	if (one->returns != two->returns)
		return one->returns ? 1 : -1;
	return one->op < two->op ? -1 : one->op > two->op;
}

static struct event *events_of(const struct search *search, int64_t until_ns, size_t *count)
{
	struct event *events = judge_zeroed(search->op_count * 2, sizeof(*events));

	*count = 0;
	for (size_t i = 0; i < search->op_count; i++) {
		const struct op *op = &search->ops[i];
		if (op->from_ns >= until_ns)
			continue;
		events[(*count)++] = (struct event){.at_ns = op->from_ns, .op = i};
		if (op->to_ns < until_ns)
			events[(*count)++] =
				(struct event){.at_ns = op->to_ns, .op = i, .returns = true};
	}
	qsort(events, *count, sizeof(*events), by_time);
	return events;
}

/* False: it cannot be followed any further, or need not be. */
static bool follow(struct search *search, const struct event *event)
{
	struct judge *judge = search->judge;
	struct op *op = &search->ops[event->op];
	struct state *swap;

	if (!event->returns) {
		clear_settled(search);
		op->slot = free_slot(search);
		if (op->slot < 0) {
			judge->verdict->windows_skipped++;
			return false;
		}
		search->slots[op->slot] = event->op;
		return true;
	}
	if (!take_in(search, op)) {
		judge->verdict->windows_skipped++;
		return false;
	}
	judge->verdict->window_ops++;
	if (!search->next_count) {
		judge_accuse(
			judge, PROMISE_ORDER, op->begin, op->end,
			"no order of the calls on %s explains this one; before it %lld permits "
			"were held and the last fence was %llu",
			judge_name(judge, search->name), (long long)search->states[0].used,
			(unsigned long long)search->states[0].last);
		return false;
	}
	swap = search->states;
	search->states = search->next;
	search->state_count = search->next_count;
	search->next = swap;
	clear(search, op->slot);
	return true;
}

/* Until the store forgets what no grace protects: from then on an order proves nothing. */
static int64_t remembers_until(const struct judge *judge, size_t name, int64_t from_ns)
{
	for (size_t i = 0; i < judge->fault_count; i++) {
		const struct fault *fault = &judge->faults[i];
		if (fault->begin_ns >= from_ns && judge_disturbs(judge, fault, name))
			return fault->begin_ns;
	}
	return NEVER;
}

/* A lease after it forgot: by then no client believes in a forgotten hold.  A clock that was set
 * back may make fences fall, and then no order exists. */
static int64_t remembers_again(const struct judge *judge, size_t name, int64_t forgets_ns)
{
	int64_t lease_ns = judge->names[name].lease_ms * MS + SECOND, from_ns = forgets_ns;

	for (size_t i = 0; i < judge->fault_count; i++) {
		const struct fault *fault = &judge->faults[i];
		int64_t until_ns = judge_disturbed_until(judge, fault, lease_ns);
		if (!judge_disturbs(judge, fault, name) || fault->end_ns < forgets_ns)
			continue;
		if (fault->begin_ns > from_ns)
			break;
		if ((fault->clock && fault->clock_ms < 0) || until_ns == NEVER)
			return NEVER;
		if (until_ns > from_ns)
			from_ns = until_ns;
	}
	return from_ns;
}

static void search_between(struct search *search, const struct judge_list *list, int64_t from_ns,
                           int64_t until_ns)
{
	struct event *events;
	size_t count;

	search->op_count = 0;
	for (size_t i = 0; i < list->count; i++)
		add_hold(search, list->items[i], from_ns);
	if (search->is_lock)
		add_again(search, from_ns);
	events = events_of(search, until_ns, &count);
	for (int slot = 0; slot < SLOTS; slot++)
		search->slots[slot] = NONE;
	search->states[0] = (struct state){0};
	search->state_count = 1;
	search->judge->verdict->windows++;
	for (size_t i = 0; i < count; i++)
		if (!follow(search, &events[i]))
			break;
	free(events);
}

static void search_name(struct search *search)
{
	struct judge *judge = search->judge;
	struct judge_list list = judge_holds_of(judge, search->name);
	int64_t from_ns = judge->begin_ns, until_ns;

	while (from_ns < judge->end_ns) {
		until_ns = remembers_until(judge, search->name, from_ns);
		search_between(search, &list, from_ns, until_ns);
		if (until_ns == NEVER)
			break;
		from_ns = remembers_again(judge, search->name, until_ns);
	}
	free(list.items);
	free(search->ops);
}

void judge_check_order(struct judge *judge)
{
	struct search search = {.judge = judge};

	search.states = judge_zeroed(STATES_MAX, sizeof(*search.states));
	search.next = judge_zeroed(STATES_MAX, sizeof(*search.next));
	search.stack = judge_zeroed(STATES_MAX, sizeof(*search.stack));
	for (size_t name = 0; name < judge->name_count; name++) {
		const struct name *about = &judge->names[name];
		if (!about->known || about->kind == NAME_LATCH || about->kind == NAME_RATE)
			continue;
		search.name = name;
		search.capacity = about->capacity;
		search.is_lock = about->kind == NAME_LOCK;
		search.ops = NULL;
		search.op_count = search.op_room = 0;
		search_name(&search);
	}
	free(search.states);
	free(search.next);
	free(search.stack);
}
