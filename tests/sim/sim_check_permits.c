/* SPDX-License-Identifier: MIT
 * What a script may make of a semaphore, besides what every name has. */
#include "sim.h"

#include <string.h>

static void note_capacity(struct sim *sim, struct sim_name *name)
{
	const struct sim_capacity *last = NULL;

	if (!name->view.there || !name->view.capacity)
		return;
	if (name->capacity_count)
		last = &name->capacities[(name->capacity_count - 1) % SIM_CAPACITIES];
	if (last && last->capacity == name->view.capacity)
		return;
	name->capacities[name->capacity_count++ % SIM_CAPACITIES] =
		(struct sim_capacity){sim->now_ns, name->view.capacity};
}

/* Both keys agree, and the sum is the recorded one. */
static void check_sum(struct sim *sim, const struct store_view *view)
{
	int64_t sum = 0;

	for (int i = 0; i < view->hold_count; i++) {
		const struct store_ticket *hold = &view->holds[i];
		sum += hold->held;
		if (hold->end_us < 0 || !hold->fence)
			sim_fail(sim, PROMISE_PERMITS, "half a hold: %s", hold->text);
		if (hold->held < 1 || hold->held > hold->permits)
			sim_fail(sim, PROMISE_PERMITS, "a hold of %u permits: %s", hold->held,
			         hold->text);
	}
	sim_keep(sim, PROMISE_PERMITS, promise_permits_kept(view->used, sum));
}

static void check_holds(struct sim *sim, const struct store_view *view,
                        const struct store_view *before, const struct sim_call *call)
{
	bool granted = false;

	for (int i = 0; i < view->hold_count; i++) {
		const struct store_ticket *is = &view->holds[i];
		const struct store_ticket *was = store_hold(before, is->text);
		bool own = call && call->kind == LK__SHRINK && !strcmp(call->ticket, is->text);
		if (!was || was->fence != is->fence) {
			granted = true;
			if (is->held != is->permits)
				sim_fail(sim, PROMISE_PERMITS, "granted %u instead of %u", is->held,
				         is->permits);
		} else if (is->held > was->held) {
			sim_fail(sim, PROMISE_PERMITS, "a hold grew from %u to %u", was->held,
			         is->held);
		} else if (is->held < was->held && (!own || is->held != call->permits)) {
			sim_fail(sim, PROMISE_PERMITS, "a hold shrank from %u to %u", was->held,
			         is->held);
		}
	}
	if (granted)
		sim_keep(sim, PROMISE_PERMITS, promise_permits(view->used, view->capacity));
}

/* A call that reclaims or releases serves the queue, or reports that there is more to do. */
static void check_served(struct sim *sim, const struct sim_name *name,
                         const struct store_view *before, const struct sim_call *call,
                         const struct lk__answer *answer)
{
	const struct store_view *view = &name->view;

	/* It had the permits before: nothing is released, and the client that got "more" is about
	 * to serve. */
	if (call && call->kind == LK__ASK && store_hold(before, call->ticket))
		return;

	if (call && (call->kind == LK__RENEW || answer->kind == LK__FAILED || answer->more ||
	             (answer->free && answer->kind != LK__LEFT)))
		return;
	if (view->there && view->queued && view->used + view->queue[0].permits <= view->capacity)
		sim_fail(sim, PROMISE_SERVED,
		         "the head of the queue of %s fits, and was not served: %s", name->text,
		         view->queue[0].text);
}

bool sim_check_is_torn(const struct sim_name *name)
{
	const struct store_view *view = &name->view;
	int64_t sum = 0;
	bool whole = true;

	for (int i = 0; i < view->hold_count; i++) {
		sum += view->holds[i].held;
		whole = whole && view->holds[i].end_us >= 0 && view->holds[i].fence;
	}
	return !whole || sum != view->used;
}

/* Half of the memory was evicted: the next ask must repair it, other calls may. */
static void check_torn(struct sim *sim, struct sim_name *name, const struct sim_call *call,
                       const struct lk__answer *answer)
{
	name->torn = sim_check_is_torn(name);
	if (name->torn) {
		if (call && call->kind == LK__ASK && answer->kind != LK__FAILED)
			sim_fail(sim, PROMISE_PERMITS,
			         "the incomplete keys of %s were not repaired", name->text);
		return;
	}
	sim_check_adopt(sim, name, call);
}

void sim_check_permits(struct sim *sim, struct sim_name *name, const struct store_view *before,
                       const struct sim_call *call, const struct lk__answer *answer)
{
	note_capacity(sim, name);
	if (name->torn) {
		check_torn(sim, name, call, answer);
		return;
	}
	check_sum(sim, &name->view);
	check_holds(sim, &name->view, before, call);
	check_served(sim, name, before, call, answer);
}
