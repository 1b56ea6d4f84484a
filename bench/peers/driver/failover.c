/* SPDX-License-Identifier: MIT
 * Runs of the works "failover" and "cluster".  They mostly wait, so all contestants of a round run
 * at once: each has a process that watches it, and starts its service. */
#include "failover.h"

#include "harness/process.h"
#include "harness/redis.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define READY_MS 180000
#define BEFORE_MS 2000 /* of contention, before the long hold begins */
#define HOLD_MS 4000   /* until the long hold is granted, or refused */
#define GRANT_MS 2000  /* until the next short hold is granted */
#define COUNTED_MS 2000
#define CALM_PART 4   /* without a blow, so much less is observed */
#define REST_MS 60000 /* for what follows the last event */

struct watch {
	struct failover_run *run;
	struct peer peer;
};

static bool read_word(const char *word, struct event *event)
{
	static const struct {
		const char *word;
		enum event_kind kind;
		enum release release;
	} words[] = {{"asked", EVENT_ASKED, RELEASE_OK},
	             {"granted", EVENT_GRANTED, RELEASE_OK},
	             {"ended", EVENT_ENDED, RELEASE_OK},
	             {"released", EVENT_RELEASED, RELEASE_OK},
	             {"lost", EVENT_RELEASED, RELEASE_LOST},
	             {"unreleased", EVENT_RELEASED, RELEASE_FAILED},
	             {"failed", EVENT_FAILED, RELEASE_OK}};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcmp(words[i].word, word))
			continue;
		event->kind = words[i].kind;
		event->release = words[i].release;
		return true;
	}
	return false;
}

/* Read the next event; NULL if there is none until then, or none any more. */
static const struct event *next_event(struct watch *watch, int64_t end_ms)
{
	struct failover_run *run = watch->run;
	int64_t left = end_ms - now_ms();
	struct event event;
	const char *line;
	long long ns;
	char word[16];
	int used = 0;

	if (run->problem || left <= 0)
		return NULL;
	line = line_read(watch->peer.out, left);
	if (!line) {
		if (now_ms() < end_ms)
			run->problem = "ended before its time: no figure";
		return NULL;
	}
	if (sscanf(line, "%d %15s %lld%n", &event.worker, word, &ns, &used) != 3 || line[used] ||
	    event.worker < 0 || event.worker >= FAILOVER_ALL || !read_word(word, &event)) {
		run->problem = "its lines are malformed";
		return NULL;
	}
	if (run->count == FAILOVER_EVENTS_MAX) {
		run->problem = "has too many events: no figure";
		return NULL;
	}
	event.ns = ns;
	event.order = run->count;
	run->events[run->count] = event;
	return &run->events[run->count++];
}

/* Read events until the worker (-1 = a contender) is granted, or fails; false if it is not. */
static bool await_grant(struct watch *watch, int worker, int64_t ms)
{
	int64_t end_ms = now_ms() + ms;
	const struct event *event;

	while ((event = next_event(watch, end_ms)) != NULL) {
		bool meant =
			worker < 0 ? event->worker < FAILOVER_WORKERS : event->worker == worker;
		if (meant && event->kind == EVENT_GRANTED)
			return true;
		if (meant && worker >= 0 && event->kind == EVENT_FAILED)
			return false;
	}
	return false;
}

static void strike(struct watch *watch)
{
	struct failover_run *run = watch->run;

	run->service->prepare(run->blow);
	if (!line_write(watch->peer.in, "hold"))
		return;
	await_grant(watch, FAILOVER_HOLDER, HOLD_MS);
	await_grant(watch, -1, GRANT_MS);
	run->struck_ns = monotonic_ns();
	run->service->strike(run->blow);
}

/* The requests of clients to the master; the events of that time are read later. */
static void count_requests(struct failover_run *run)
{
	struct monitor *monitor = monitor_open(run->service->master);
	int64_t end_ms = now_ms() + COUNTED_MS;
	const char *line;

	run->counted_ns = monotonic_ns();
	while (now_ms() < end_ms)
		if ((line = monitor_next(monitor, 5)))
			run->requests += strstr(line, " lua]") == NULL;
	run->uncounted_ns = monotonic_ns();
	monitor_close(monitor);
}

static void conduct(struct watch *watch)
{
	struct failover_run *run = watch->run;
	double part = run->blow == BLOW_NONE ? CALM_PART : 1;
	int64_t end_ms = now_ms() + BEFORE_MS;

	if (!line_write(watch->peer.in, "go")) {
		run->problem = "does not read its input";
		return;
	}
	while (next_event(watch, end_ms))
		continue;
	strike(watch);
	if (run->blow == BLOW_NONE)
		count_requests(run);
	end_ms = now_ms() + (int64_t)(run->seconds * 1000 / part);
	while (next_event(watch, end_ms))
		continue;
	run->end_ns = monotonic_ns();
	if (!run->problem && !run->struck_ns)
		run->problem = "does not read its input";
}

/* In a process of its own. */
static int watch_run(void *arg, int in, int out)
{
	struct watch watch = {.run = arg};
	struct failover_run *run = arg;
	const char *ports;

	run->problem = "its service does not start";
	ports = run->service->start();
	peer_start(&watch.peer, run->contestant, run->service->work, ports, FAILOVER_WORKERS,
	           run->seconds);
	run->problem = peer_says(&watch.peer, "ready", READY_MS) ? NULL : "is not ready";
	/* All blows of a round fall when all are ready. */
	if (line_write(out, "ready") && line_read(in, READY_MS) && !run->problem)
		conduct(&watch);
	peer_end(&watch.peer, 0);
	run->service->stop();
	return 0;
}

static struct failover_run *run_make(const struct service *service,
                                     const struct contestant *contestant, enum blow blow,
                                     double seconds)
{
	struct failover_run *run = mmap(NULL, sizeof(*run), PROT_READ | PROT_WRITE,
	                                MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (run == MAP_FAILED)
		give_up("no memory for the events");
	run->service = service;
	run->contestant = contestant;
	run->blow = blow;
	run->seconds = seconds;
	return run;
}

/* Run all at once, and add what came out. */
static void round_run(const struct service *service, const struct contestant *contestants,
                      int count, enum blow blow, double seconds, struct failover_figures *of)
{
	struct failover_run *runs[CONTESTANTS_MAX];
	struct process watchers[CONTESTANTS_MAX];

	fflush(stdout);
	for (int i = 0; i < count; i++) {
		runs[i] = run_make(service, &contestants[i], blow, seconds);
		process_start(&watchers[i], watch_run, runs[i]);
	}
	for (int i = 0; i < count; i++)
		(void)line_read(watchers[i].out, READY_MS);
	for (int i = 0; i < count; i++)
		(void)line_write(watchers[i].in, "go");
	for (int i = 0; i < count; i++) {
		if (!process_succeeded(&watchers[i], (int64_t)(seconds * 1000) + REST_MS) &&
		    !runs[i]->problem)
			runs[i]->problem = "was not watched to its end";
		process_kill(&watchers[i]);
		if (runs[i]->problem) {
			printf("%s, %s: %s\n", contestants[i].name, service->work,
			       runs[i]->problem);
			of[i].failures++;
		} else {
			failover_judge(runs[i], &of[i]);
		}
		munmap(runs[i], sizeof(*runs[i]));
	}
}

bool failover_compare(const struct service *service, const struct contestant *contestants,
                      int count, int rounds, double seconds, struct json_t *rows)
{
	struct contestant able[CONTESTANTS_MAX];
	bool measured = false;
	int ables = 0;

	for (int i = 0; i < count; i++)
		if (word_in(contestants[i].works, service->work))
			able[ables++] = contestants[i];
	for (int k = 0; ables && k < service->blow_count; k++) {
		struct failover_figures of[CONTESTANTS_MAX] = {0};
		enum blow blow = service->blows[k];

		for (int round = 0; round < rounds; round++)
			round_run(service, able, ables, blow, seconds, of);
		for (int i = 0; i < ables; i++)
			measured |= of[i].rounds > 0;
		failover_table(service, blow, rounds,
		               blow == BLOW_NONE ? seconds / CALM_PART : seconds, able, of, ables,
		               rows);
	}
	return measured;
}
