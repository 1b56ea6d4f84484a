/* SPDX-License-Identifier: MIT
 * From the events of a failover to figures: the time without grants, overlaps, lost holds and stuck
 * waiters.  Only the contestants' own clocks count: a hold begins when acquire has returned, and
 * ends before release is called or when its holder learns of its loss. */
#include "failover.h"

#include <stdlib.h>

/* What is known of the workers at one moment. */
struct scene {
	int64_t asked_ns[FAILOVER_ALL];  /* the first try of a wait; 0 = does not wait */
	bool holds[FAILOVER_ALL];        /* by its own knowledge */
	int64_t grants[FAILOVER_ALL];    /* after the blow */
	bool is_stuck[FAILOVER_WORKERS]; /* waited too long at least once */
	int64_t last_ns;                 /* of the blow, or the last grant after it */
	int64_t gap_ns;
	bool long_granted, long_lost, long_doubled;
};

static int compare_events(const void *a, const void *b)
{
	const struct event *left = a, *right = b;

	if (left->ns != right->ns)
		return left->ns < right->ns ? -1 : 1;
	return (left->order > right->order) - (left->order < right->order);
}

static bool is_contender(int worker)
{
	return worker < FAILOVER_WORKERS;
}

/* Does another worker hold the same lock? */
static bool other_holds(const struct scene *scene, int worker)
{
	int first = is_contender(worker) ? 0 : FAILOVER_HOLDER;
	int end = is_contender(worker) ? FAILOVER_WORKERS : FAILOVER_ALL;

	for (int i = first; i < end; i++)
		if (i != worker && scene->holds[i])
			return true;
	return false;
}

/* A wait reached `now`: was the part after the blow too long? */
static void check_wait(struct scene *scene, int worker, int64_t struck_ns, int64_t now)
{
	int64_t since = scene->asked_ns[worker];

	if (!since || !is_contender(worker))
		return;
	if (since < struck_ns)
		since = struck_ns;
	if (now - since >= FAILOVER_STUCK_S * INT64_C(1000000000))
		scene->is_stuck[worker] = true;
}

static void check_gap(struct scene *scene, int64_t now)
{
	if (now - scene->last_ns > scene->gap_ns)
		scene->gap_ns = now - scene->last_ns;
	scene->last_ns = now;
}

static void grant(struct scene *scene, const struct failover_run *run, const struct event *event,
                  struct failover_figures *figures)
{
	int worker = event->worker;

	check_wait(scene, worker, run->struck_ns, event->ns);
	scene->asked_ns[worker] = 0;
	if (other_holds(scene, worker)) {
		figures->overlaps++;
		scene->long_doubled |= worker == FAILOVER_RIVAL;
	}
	scene->holds[worker] = true;
	if (event->ns < run->struck_ns) {
		scene->long_granted |= worker == FAILOVER_HOLDER;
		return;
	}
	scene->grants[worker]++;
	figures->counted += event->ns >= run->counted_ns && event->ns < run->uncounted_ns;
	if (is_contender(worker))
		check_gap(scene, event->ns);
}

static void step(struct scene *scene, const struct failover_run *run, const struct event *event,
                 struct failover_figures *figures)
{
	int worker = event->worker;

	switch (event->kind) {
	case EVENT_ASKED:
		if (!scene->asked_ns[worker])
			scene->asked_ns[worker] = event->ns;
		break;
	case EVENT_GRANTED:
		grant(scene, run, event, figures);
		break;
	case EVENT_ENDED:
		scene->holds[worker] = false;
		break;
	case EVENT_RELEASED:
		scene->long_lost |= worker == FAILOVER_HOLDER && event->release == RELEASE_LOST;
		figures->failed_calls +=
			event->release != RELEASE_OK && event->ns >= run->struck_ns;
		break;
	case EVENT_FAILED:
		figures->failed_calls += event->ns >= run->struck_ns;
		break;
	}
}

static enum long_hold long_hold_of(const struct scene *scene)
{
	if (!scene->long_granted)
		return LONG_REFUSED;
	if (scene->long_doubled)
		return LONG_DOUBLED;
	return scene->long_lost ? LONG_REPORTED : LONG_KEPT;
}

static void add(struct failover_figures *figures, const struct scene *scene)
{
	figures->no_grant_s[figures->rounds] = (double)scene->gap_ns / 1e9;
	figures->long_holds[long_hold_of(scene)]++;
	for (int i = 0; i < FAILOVER_WORKERS; i++) {
		if (!figures->rounds && !i)
			figures->fewest = figures->most = scene->grants[i];
		if (scene->grants[i] < figures->fewest)
			figures->fewest = scene->grants[i];
		if (scene->grants[i] > figures->most)
			figures->most = scene->grants[i];
		figures->stuck += scene->is_stuck[i];
	}
	figures->rounds++;
}

void failover_judge(struct failover_run *run, struct failover_figures *figures)
{
	struct scene scene = {.last_ns = run->struck_ns};

	qsort(run->events, run->count, sizeof(*run->events), compare_events);
	for (size_t i = 0; i < run->count && run->events[i].ns < run->end_ns; i++)
		step(&scene, run, &run->events[i], figures);
	figures->requests += run->requests;
	check_gap(&scene, run->end_ns);
	for (int i = 0; i < FAILOVER_WORKERS; i++)
		check_wait(&scene, i, run->struck_ns, run->end_ns);
	add(figures, &scene);
}
