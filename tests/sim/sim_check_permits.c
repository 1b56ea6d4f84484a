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
		if (call && call->kind == LK__ASK && answer->kind != LK__FAILED &&
		    answer->kind != LK__STALE)
			sim_fail(sim, PROMISE_PERMITS,
			         "the incomplete keys of %s were not repaired", name->text);
		return;
	}
	sim_check_adopt(sim, name, call);
}

void sim_check_permits(struct sim *sim, struct sim_name *name, const struct sim_call *call,
                       const struct promise_run *run)
{
	note_capacity(sim, name);
	if (name->torn) {
		check_torn(sim, name, call, run->answer);
		return;
	}
	sim_keep_of(sim, name, PROMISE_PERMITS, promise_permits_kept(run->after));
	sim_keep_of(sim, name, PROMISE_PERMITS, promise_permits_moved(run));
	sim_keep_of(sim, name, PROMISE_SERVED, promise_served(run));
}
