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
	const struct sim_view *view = &name->view;
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
	if (generation == name->count.published)
		sim_fail(sim, "latch", "generation %llu of %s opens twice",
		         (unsigned long long)generation, name->text);
	name->count.published = generation;
}

/* ---- Steps -------------------------------------------------------------------------------- */

static int times_counted(const struct sim_count *count, const struct sim_client *client,
                         uint64_t number)
{
	int times = 0;

	for (int i = 0; i < count->step_count && i < SIM_COUNTED; i++)
		times += count->steps[i].slot == client->slot &&
		         count->steps[i].life == client->life && count->steps[i].number == number;
	return times;
}

static void count_step(struct sim *sim, struct sim_name *name, const struct sim_view *before,
                       const struct sim_call *call)
{
	struct sim_count *count = &name->count;
	int64_t expected = before->count > call->n ? before->count - call->n : 0;

	sim->tally.counted++;
	if (call->generation != before->generation)
		sim_fail(sim, "latch", "a step of another generation was counted");
	if (name->view.count != expected)
		sim_fail(sim, "latch", "%lld of %s are left after a step of %u, instead of %lld",
		         (long long)name->view.count, name->text, call->n, (long long)expected);
	for (int i = 0; i < count->step_count && i < SIM_COUNTED; i++)
		if (count->steps[i].slot == call->slot && count->steps[i].life == call->life &&
		    count->steps[i].number == call->number)
			sim_fail(sim, "latch", "step %llu of c%02d.%d was counted twice",
			         (unsigned long long)call->number, call->slot, call->life);
	if (call->step_name && count->named[call->step_name])
		sim_fail(sim, "latch", "step \"%c\" was counted twice", 'a' + call->step_name);
	count->named[call->step_name] = call->step_name != 0;
	count->steps[count->step_count++ % SIM_COUNTED] =
		(struct sim_counted){call->slot, call->life, call->number};
	if (name->view.count)
		return;
	note_opening(sim, name, before->generation);
	if (count->published != before->generation)
		sim_fail(sim, "latch", "%s opened without a message", name->text);
}

static void begin_generation(struct sim *sim, struct sim_name *name, const struct sim_view *before)
{
	uint64_t published = name->count.published;

	if (name->view.generation <= name->fence_max)
		sim_fail(sim, "fence", "generation %llu of %s is not above %llu",
		         (unsigned long long)name->view.generation, name->text,
		         (unsigned long long)name->fence_max);
	(void)before;
	name->fence_max = name->view.generation;
	if (name->fence_max > sim->fence_max)
		sim->fence_max = name->fence_max;
	memset(&name->count, 0, sizeof(name->count));
	name->count.generation = name->view.generation;
	name->count.published = published;
	if (!name->view.count) {
		note_opening(sim, name, name->view.generation);
		if (published != name->view.generation)
			sim_fail(sim, "latch", "%s was made open without a message", name->text);
	}
}

void sim_check_latch(struct sim *sim, struct sim_name *name, const struct sim_view *before,
                     const struct sim_call *call, const struct lk__answer *answer)
{
	const struct sim_view *view = &name->view;
	bool step = call && call->kind == LK__STEP;

	if (view->there && (!before->there || view->generation != before->generation)) {
		if (call && call->kind != SIM_QUESTION)
			sim_fail(sim, "latch", "%s was made by a step or a look", name->text);
		begin_generation(sim, name, before);
	} else if (view->there && view->count != before->count) {
		if (!step)
			sim_fail(sim, "latch", "%s was counted without a step", name->text);
		else
			count_step(sim, name, before, call);
	} else if (step && call->request && answer->kind == LK__STEPPED && answer->counted &&
	           !times_counted(
			   &name->count,
			   &(const struct sim_client){.slot = call->slot, .life = call->life},
			   call->number) &&
	           name->count.step_count < SIM_COUNTED) {
		sim_fail(sim, "latch", "a step was reported as counted and was not");
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

/* The caller's wait ended with LK_OK. */
static void check_open(struct sim_caller *caller, const struct sim_name *name)
{
	struct sim *sim = caller->client->sim;

	if (name->open_ns >= caller->began_ns ||
	    (caller->waiter.absent_is_open && name->absent_ns >= caller->began_ns))
		return;
	if (is_late_opening(name, &caller->waiter))
		sim->tally.late_openings++;
	else
		sim_fail(sim, "latch", "thread %d of c%02d was let through %s, which was not open",
		         caller->index, caller->client->slot, name->text);
}

void sim_check_awaited(struct sim_caller *caller, lk_err err)
{
	struct sim *sim = caller->client->sim;
	struct sim_name *name = &sim->names[caller->name];

	sim_check_latch_now(sim, name);
	sim_check_gave_up(caller, err);
	if ((err == LK_ETIMEDOUT || err == LK_ECANCELED) && caller->gave_up != err)
		sim_fail(sim, "result", "an await ended too early with %s", lk_err_name(err));
	if (err == LK_OK)
		check_open(caller, name);
	if (err && err != LK_EBUSY && err != LK_ETIMEDOUT && err != LK_ECANCELED &&
	    err != LK_ECONN && err != LK_ECLOSED &&
	    ((err != LK_EAGAIN && err != LK_EAUTH && err != LK_ESERVER) ||
	     !sim->tally.faults[SIM_REFUSE]))
		sim_fail(sim, "result", "an await ended with %s", lk_err_name(err));
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
	    name->forced_ns >= name->opened_ns || sim->now_ns - name->opened_ns <= limit_ns ||
	    !sim_is_fine(client, limit_ns))
		return;
	sim_fail(sim, "wake-up", "thread %d of c%02d waits for %s, which opened %.3f s ago",
	         caller->index, client->slot, name->text,
	         (double)(sim->now_ns - name->opened_ns) / 1e9);
}

void sim_check_stepped(struct sim_caller *caller, lk_err err)
{
	struct sim *sim = caller->client->sim;
	const struct sim_name *name = &sim->names[caller->name];
	int times;

	if (err && err != LK_ECONN && err != LK_EUNKNOWN && err != LK_EABSENT &&
	    err != LK_ECLOSED && (err != LK_EFOREIGN || !sim->tally.faults[SIM_EVICT]) &&
	    ((err != LK_EAGAIN && err != LK_EAUTH && err != LK_ESERVER) ||
	     !sim->tally.faults[SIM_REFUSE]))
		sim_fail(sim, "result", "a step ended with %s", lk_err_name(err));
	if (caller->epoch != name->epoch || caller->step_generation != name->count.generation ||
	    !caller->step_number)
		return; /* its record is of another memory, or closed */
	times = times_counted(&name->count, caller->client, caller->step_number);
	if (err == LK_OK && times != (caller->waiter.counted ? 1 : 0) &&
	    name->count.step_count < SIM_COUNTED)
		sim_fail(sim, "latch",
		         "a step was reported as counted %d times and counted %d times",
		         caller->waiter.counted, times);
	else if (err && err != LK_EUNKNOWN && times)
		sim_fail(sim, "latch", "a step counted and its caller got %s", lk_err_name(err));
}
