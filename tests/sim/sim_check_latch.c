/* SPDX-License-Identifier: MIT
 * Invariants of a latch: each step counts once, it opens once a generation, at the last step, and
 * no waiter returns before it opened, or is forgotten after. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

/* A waiter for a generation that has opened learns it from the message, or from the look that each
 * waiter makes within 10 s (LK__REASK_MAX_MS), after a trip there and back. */
#define WAKE_NS (10 * SIM_S)

/* It was open, or absent, until now or until it expired. */
void sim_check_latch_now(struct sim *sim, struct sim_name *name)
{
	const struct store_view *view = &name->view;
	int64_t until_ns = sim->now_ns;
	bool over = view->there && view->end_us <= sim_server_us(sim);

	if (over)
		until_ns -= (sim_server_us(sim) - view->end_us) * 1000;
	if (view->there && !view->count)
		name->open_ns = until_ns;
	if (!view->there || over)
		name->absent_ns = sim->now_ns;
}

static void note_opening(struct sim *sim, struct sim_name *name, uint64_t generation)
{
	sim->tally.openings++;
	name->open_ns = name->opened_ns = sim->now_ns;
	if (generation > name->opened)
		name->opened = generation;
}

/* The message that PUBLISH sends to waiters. */
void sim_check_opened(struct sim *sim, int index, const char *text)
{
	struct sim_name *name = &sim->names[index];
	uint64_t generation;

	if (strncmp(text, "open ", 5) != 0)
		return;
	generation = strtoull(text + 5, NULL, 10);
	/* A restored memory may open an earlier one. */
	if (generation == name->count.published)
		sim_keep_of(sim, name, PROMISE_OPENING,
		            promise_opening(name->count.published, generation));
	name->count.published = generation;
}

/* ---- Steps -------------------------------------------------------------------------------- */

static int times_counted(const struct sim_count *count, int slot, int life, uint64_t number)
{
	int times = 0;

	for (int i = 0; i < count->step_count && i < SIM_COUNTED; i++)
		times += count->steps[i].slot == slot && count->steps[i].life == life &&
		         count->steps[i].number == number;
	return times;
}

void sim_check_count(struct sim *sim, struct sim_name *name, const struct store_view *before,
                     const struct sim_call *call)
{
	struct sim_count *count = &name->count;
	int64_t expected = before->count > call->n ? before->count - call->n : 0;

	sim->tally.counted++;
	if (call->generation != before->generation)
		sim_fail(sim, PROMISE_STEP, "a step of another generation was counted");
	if (name->view.count != expected)
		sim_fail(sim, PROMISE_STEP,
		         "%lld of %s are left after a step of %u, instead of %lld",
		         (long long)name->view.count, name->text, call->n, (long long)expected);
	sim_keep_of(sim, name, PROMISE_STEP,
	            promise_step(times_counted(count, call->slot, call->life, call->number)));
	sim_keep_of(sim, name, PROMISE_STEP, promise_step(count->named[call->step_name]));
	count->named[call->step_name] = call->step_name != 0;
	count->steps[count->step_count++ % SIM_COUNTED] =
		(struct sim_counted){call->slot, call->life, call->number};
	if (name->view.count)
		return;
	note_opening(sim, name, before->generation);
	if (count->published != before->generation)
		sim_fail(sim, PROMISE_OPENING, "%s opened without a message", name->text);
}

static void begin_generation(struct sim *sim, struct sim_name *name)
{
	uint64_t published = name->count.published;

	sim_keep_of(sim, name, PROMISE_FENCE,
	            promise_fence(name->fence_max, name->view.generation));
	name->fence_max = name->view.generation;
	if (name->fence_max > sim->fence_max)
		sim->fence_max = name->fence_max;
	memset(&name->count, 0, sizeof(name->count));
	name->count.generation = name->view.generation;
	name->count.published = published;
	if (!name->view.count) {
		note_opening(sim, name, name->view.generation);
		if (published != name->view.generation)
			sim_fail(sim, PROMISE_OPENING, "%s was made open without a message",
			         name->text);
	}
}

void sim_check_latch(struct sim *sim, struct sim_name *name, const struct store_view *before,
                     const struct sim_call *call, const struct lk__answer *answer)
{
	const struct store_view *view = &name->view;
	bool step = call && call->kind == LK__STEP;

	if (view->there && (!before->there || view->generation != before->generation)) {
		if (call && call->kind != SIM_QUESTION)
			sim_fail(sim, PROMISE_OPENING, "%s was made by a step or a look",
			         name->text);
		begin_generation(sim, name);
	} else if (view->there && view->count != before->count) {
		if (!step)
			sim_fail(sim, PROMISE_STEP, "%s was counted without a step", name->text);
		else
			sim_check_count(sim, name, before, call);
	} else if (step && call->request && answer->kind == LK__STEPPED && answer->counted &&
	           name->count.step_count < SIM_COUNTED) {
		sim_keep_of(sim, name, PROMISE_RESULT,
		            promise_result_step(LK_OK, true,
		                                times_counted(&name->count, call->slot, call->life,
		                                              call->number)));
	}
	if (before->there && !view->there)
		name->removed_ns = sim->now_ns;
	sim_check_latch_now(sim, name);
}

/* Its memory was lost, or an old one was restored. */
void sim_check_latch_forced(struct sim *sim, struct sim_name *name)
{
	if (!name->view.there)
		name->absent_ns = sim->now_ns;
	/* A restored memory may report that a generation has opened, as it once had. */
	name->open_ns = sim->now_ns;
	sim_check_latch_now(sim, name);
}

/* ---- Callers ------------------------------------------------------------------------------ */

/* The waiter learned late of an opening from before the counter was lost and the clock was set
 * back: its generation is above all later ones. */
static bool is_late_opening(const struct sim_name *name, const struct lk__op *waiter)
{
	return waiter->opened > name->fence_max && waiter->opened <= name->opened;
}

static void check_open(struct sim_caller *caller, const struct sim_name *name, lk_err err)
{
	struct sim *sim = caller->client->sim;
	const char *wrong = promise_await(err, name->open_ns >= caller->began_ns ||
	                                               (caller->waiter.absent_is_open &&
	                                                name->absent_ns >= caller->began_ns));

	if (wrong && caller->client->stale_ns >= caller->began_ns)
		sim->tally.stale_dual++; /* a replaced master opened it */
	else if (wrong && is_late_opening(name, &caller->waiter))
		sim->tally.late_openings++;
	else if (wrong)
		sim_keep_of(sim, name, PROMISE_AWAIT, wrong);
}

void sim_check_awaited(struct sim_caller *caller, lk_err err)
{
	struct sim *sim = caller->client->sim;
	const struct promise_causes causes = {
		.success = true,
		.unsent = true,
		.refusal = sim->tally.faults[SIM_REFUSE] > 0 ||
	                   ((sim->plan->cluster || sim->plan->etcd) &&
	                    !sim_is_fine(caller->client, sim->now_ns - caller->began_ns)),
		.close = true,
		.busy = true,
		.gave_up = caller->gave_up,
	};
	struct sim_name *name = &sim->names[caller->name];

	sim_check_latch_now(sim, name);
	sim_check_gave_up(caller);
	check_open(caller, name, err);
	sim_keep_result(caller, &causes, err);
}

/* Its generation has opened; it must soon return. */
void sim_check_waiting(struct sim_caller *caller)
{
	struct sim_client *client = caller->client;
	struct sim *sim = client->sim;
	const struct sim_name *name = &sim->names[caller->name];
	int64_t limit_ns =
		WAKE_NS + 4 * (sim->plan->delay_ns * 21 / 20 + 5 * SIM_MS) + 200 * SIM_MS;

	if (!caller->waiter.stamp || caller->waiter.stamp > name->opened ||
	    name->forced_ns >= name->opened_ns || !sim_is_fine(client, limit_ns))
		return;
	sim_keep_of(sim, name, PROMISE_WAKE_UP,
	            promise_wake_up(name->opened_ns + limit_ns, sim->now_ns));
}

void sim_check_stepped(struct sim_caller *caller, lk_err err)
{
	struct sim *sim = caller->client->sim;
	const struct promise_causes causes = {
		.success = true,
		.silence = true,
		.unsent = true,
		.refusal = sim->tally.faults[SIM_REFUSE] > 0 ||
	                   ((sim->plan->cluster || sim->plan->etcd) &&
	                    !sim_is_fine(caller->client, sim->now_ns - caller->began_ns)),
		.close = true,
		.absence = true,
		.other = sim->tally.faults[SIM_EVICT] > 0,
	};
	const struct sim_name *name = &sim->names[caller->name];
	int times;

	sim_keep_result(caller, &causes, err);
	if (caller->epoch != name->epoch || caller->step_generation != name->count.generation ||
	    !caller->step_number)
		return; /* its record is of another memory, or closed */
	times = times_counted(&name->count, caller->client->slot, caller->client->life,
	                      caller->step_number);
	/* Its record has the last ones only. */
	if (err || name->count.step_count < SIM_COUNTED)
		sim_keep_of(sim, name, PROMISE_RESULT,
		            promise_result_step(err, caller->waiter.counted, times));
}
