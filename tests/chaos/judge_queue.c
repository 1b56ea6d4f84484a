/* SPDX-License-Identifier: MIT
 * Order, hand-overs, permits and zombies, from the server's monitor. */
#include "chaos/judge_monitor.h"

#include <stdlib.h>
#include <string.h>

#define AWAY_MS 12000   /* from a fault's end until its connections are certainly up again */
#define SILENT_MS 33000 /* a head of a semaphore's queue is skipped after so long a silence */
#define CLOSE_US 20000  /* a line has its own time, not that of the script's start */
#define KNOWN_MS 500    /* by then a holder has certainly learned that another process waits */
#define UNSEEN_MS 15000 /* by then each waiter has asked again after a gap */
#define LATE_MS 5000    /* how long a network may keep bytes that were sent before a leave */

/* ---- queues ------------------------------------------------------------------------------------
 */

static struct place *place_of(struct monitor *monitor, size_t name)
{
	return &monitor->places[name];
}

/* Is there a waiter of another process than the owner's? */
static void mark(struct monitor *monitor, struct place *place, int64_t at_ns)
{
	int64_t last_ns = place->mark_count ? place->marks[place->mark_count - 1].since_ns : 0;
	bool others = false;

	for (size_t i = 0; place->owner != NONE && i < place->queue_count && !others; i++)
		others = monitor->tickets[place->queue[i].ticket].client !=
		         monitor->tickets[place->owner].client;
	if (others == (last_ns != 0))
		return;
	place->marks = judge_more(place->marks, place->mark_count, &place->mark_room,
	                          sizeof(*place->marks));
	place->marks[place->mark_count++] =
		(struct mark){.at_ns = at_ns, .since_ns = others ? at_ns : 0};
}

static struct waiting *find(struct place *place, size_t ticket)
{
	for (size_t i = 0; i < place->queue_count; i++)
		if (place->queue[i].ticket == ticket)
			return &place->queue[i];
	return NULL;
}

void monitor_queued(struct monitor *monitor, struct place *place, size_t ticket, int64_t score,
                    int64_t at_ns)
{
	struct waiting *waiting = find(place, ticket);

	if (!waiting) {
		place->queue = judge_more(place->queue, place->queue_count, &place->queue_room,
		                          sizeof(*place->queue));
		waiting = &place->queue[place->queue_count++];
	}
	*waiting = (struct waiting){.ticket = ticket, .score = score};
	mark(monitor, place, at_ns);
}

int64_t monitor_unqueued(struct monitor *monitor, struct place *place, size_t ticket, int64_t at_ns)
{
	struct waiting *waiting = find(place, ticket);
	int64_t score;

	if (!waiting)
		return -1;
	score = waiting->score;
	*waiting = place->queue[--place->queue_count];
	if (!place->queue_count)
		place->queue_over_us = 0;
	mark(monitor, place, at_ns);
	return score;
}

/* A queue without asks expires.  Near its expiry the state is unknown, so it is forgotten. */
void monitor_expire(struct monitor *monitor, struct place *place, const struct monitor_line *line)
{
	if (!place->queue_over_us || line->server_us + SECOND / 1000 < place->queue_over_us)
		return;
	place->queue_count = 0;
	place->queue_over_us = 0;
	mark(monitor, place, line->at_ns);
}

void monitor_forget(struct monitor *monitor, size_t name, int64_t at_ns)
{
	for (size_t i = 0; i < monitor->judge->name_count; i++) {
		struct place *place = &monitor->places[i];
		if (name != NONE && name != i)
			continue;
		place->owner = NONE;
		place->fence = 0;
		place->queue_count = place->hold_count = 0;
		place->queue_over_us = 0;
		mark(monitor, place, at_ns);
	}
}

/* One of its keys is lost, and the others keep their content. */
void monitor_forget_key(struct monitor *monitor, size_t name, const char *rest, int64_t at_ns)
{
	struct place *place = place_of(monitor, name);

	if (strcmp(rest, ":q") == 0) {
		place->queue_count = 0;
		place->queue_over_us = 0;
	} else {
		place->owner = NONE;
		place->fence = 0;
		place->hold_count = 0;
	}
	mark(monitor, place, at_ns);
}

/* ---- order -------------------------------------------------------------------------------------
 */

static const struct history_record *record_of(const struct monitor *monitor, size_t name,
                                              uint64_t fence)
{
	struct judge *judge = monitor->judge;
	size_t at = *judge_map_at(&judge->owners, name, fence);

	return at == NONE ? NULL : judge->holds[at].got;
}

static void check_turn(struct monitor *monitor, size_t name, size_t ticket, uint64_t fence,
                       const struct monitor_line *line)
{
	struct place *place = place_of(monitor, name);
	const struct waiting *own = find(place, ticket), *first = NULL;
	struct waiting taken = {.ticket = ticket};
	struct promise_waiter waiter;
	const char *wrong;

	for (size_t i = 0; i < place->queue_count; i++)
		if (place->queue[i].ticket != ticket &&
		    (!first || place->queue[i].score < first->score))
			first = &place->queue[i];
	for (size_t i = 0; i < monitor->run.removed_count; i++) {
		if (monitor->run.removed[i].ticket == ticket) {
			taken.score = monitor->run.removed[i].score;
			own = &taken;
		}
	}
	if (!first)
		return;
	waiter = (struct promise_waiter){monitor->tickets[first->ticket].text, first->score, true};
	wrong = promise_fifo(&waiter, 1, monitor->tickets[ticket].text,
	                     own ? own->score : INT64_MAX);
	/* It may have been enqueued in a gap. */
	if (!wrong || (!own && monitor->gap_ns && line->at_ns < monitor->gap_ns + UNSEEN_MS * MS))
		return;
	judge_accuse(monitor->judge, PROMISE_FIFO, record_of(monitor, name, fence), NULL,
	             "%s, at %.9f: %s", judge_name(monitor->judge, name),
	             judge_clock(monitor->judge, line->at_ns), wrong);
}

/* Another ticket's script dequeued it without a grant. */
void monitor_passed_over(struct monitor *monitor, size_t name, size_t ticket, int64_t at_ns)
{
	struct judge *judge = monitor->judge;
	const struct ticket *gone = &monitor->tickets[ticket];
	bool permits = judge->names[name].kind != NAME_LOCK;
	int64_t away_ns = (permits ? SILENT_MS : AWAY_MS) * MS;

	judge->verdict->passed_over++;
	if (gone->process != NONE) {
		const struct process *process = &judge->processes[gone->process];
		/* More than the capacity: its next ask returns that error. */
		bool never_fits = permits && strrchr(gone->text, ':') &&
		                  atoll(strrchr(gone->text, ':') + 1) > judge->names[name].capacity;
		bool away =
			judge_faulty(judge, at_ns - SECOND, at_ns, away_ns, gone->process, name);
		judge->verdict->passed_over_judged += !away;
		if (!never_fits && process->killed_ns > at_ns && process->close_ns > at_ns &&
		    process->end_ns > at_ns && !away)
			judge_accuse(judge, PROMISE_FIFO, NULL, NULL,
			             "%s (process %u) was skipped for %s at %.9f and was not away",
			             gone->text, process->pid, judge_name(judge, name),
			             judge_clock(judge, at_ns));
	}
}

/* ---- permits -----------------------------------------------------------------------------------
 */

static void add_hold(struct monitor *monitor, size_t name, size_t ticket, uint64_t fence,
                     const struct monitor_line *line)
{
	struct place *place = place_of(monitor, name);
	size_t kept = 0;

	for (size_t i = 0; i < place->hold_count; i++) {
		const struct ticket *hold = &monitor->tickets[place->holds[i]];
		if (place->holds[i] == ticket || hold->ends_us <= line->server_us + CLOSE_US)
			continue;
		place->holds[kept++] = place->holds[i];
	}
	place->hold_count = kept;
	place->holds =
		judge_more(place->holds, place->hold_count, &place->hold_room, sizeof(size_t));
	place->holds[place->hold_count++] = ticket;
	monitor->run.granted = ticket;
	monitor->run.fence = fence;
}

void monitor_check_room(struct monitor *monitor)
{
	const struct run *run = &monitor->run;
	struct judge *judge = monitor->judge;
	struct place *place = place_of(monitor, run->name);
	int64_t capacity = place->capacity ? place->capacity : judge->names[run->name].capacity;
	bool rate = judge->names[run->name].kind == NAME_RATE;
	int64_t sum = 0;
	const char *wrong;

	for (size_t i = 0; i < place->hold_count; i++)
		sum += monitor->tickets[place->holds[i]].permits;
	wrong = rate ? promise_rate(sum, capacity) : promise_permits(sum, capacity);
	if (wrong && !judge_upset(judge, run->at_ns, run->at_ns, 10 * SECOND, run->name))
		judge_accuse(judge, rate ? PROMISE_RATE : PROMISE_PERMITS,
		             record_of(monitor, run->name, run->fence), NULL,
		             "%s: the server granted at %.9f to %s: %s",
		             judge_name(judge, run->name), judge_clock(judge, run->at_ns),
		             monitor->tickets[run->granted].text, wrong);
}

void monitor_ends(struct monitor *monitor, size_t name, size_t ticket, int64_t ends_us,
                  const struct monitor_line *line)
{
	(void)name;
	(void)line;
	monitor->tickets[ticket].ends_us = ends_us;
}

void monitor_dropped(struct monitor *monitor, size_t name, size_t ticket,
                     const struct monitor_line *line)
{
	struct place *place = place_of(monitor, name);

	(void)line;
	monitor->tickets[ticket].fence = 0;
	for (size_t i = 0; i < place->hold_count; i++) {
		if (place->holds[i] != ticket)
			continue;
		place->holds[i] = place->holds[--place->hold_count];
		return;
	}
}

void monitor_granted(struct monitor *monitor, size_t name, size_t ticket, uint64_t fence,
                     const struct monitor_line *line)
{
	struct place *place = place_of(monitor, name);

	/* A hold that its client takes back has had its turn. */
	if (monitor->run.is_reclaim)
		monitor->judge->verdict->reclaimed++;
	else
		check_turn(monitor, name, ticket, fence, line);
	for (size_t i = 0; i < monitor->run.removed_count; i++)
		if (monitor->run.removed[i].ticket == ticket)
			monitor->run.removed[i].granted = true;
	place->grants = judge_more(place->grants, place->grant_count, &place->grant_room,
	                           sizeof(*place->grants));
	place->grants[place->grant_count++] = (struct grant){.fence = fence, .at_ns = line->at_ns};
	if (monitor->judge->names[name].kind != NAME_LOCK) {
		add_hold(monitor, name, ticket, fence, line);
		/* Dequeued in the next line; it was not skipped. */
		monitor_unqueued(monitor, place, ticket, line->at_ns);
		return;
	}
	place->owner = ticket;
	mark(monitor, place, line->at_ns);
}

/* ---- the grace ---------------------------------------------------------------------------------
 */

void monitor_epoch(struct monitor *monitor, const char *marker)
{
	long long since_us;

	if (sscanf(marker, "1%119[^\n]", monitor->mark) != 1 ||
	    sscanf(marker, "1 %*s %lld", &since_us) != 1) {
		monitor->since_us = 0;
		return;
	}
	/* A memory that was just lost cannot be older than its loss. */
	if (since_us > monitor->since_us)
		monitor->since_us = since_us;
}

/* In the grace only a hold that was reclaimed is handed off: the value of its next one is marked,
 * too. */
void monitor_check_grace(struct monitor *monitor, size_t name, size_t ticket, uint64_t fence,
                         const char *value, const struct monitor_line *line)
{
	struct judge *judge = monitor->judge;
	const struct run *run = &monitor->run;
	int64_t left_us = monitor->since_us + monitor->grace_ms * 1000 - line->server_us;
	size_t len = strlen(value), mark_len = strlen(monitor->mark);
	bool lock = judge->names[name].kind == NAME_LOCK;

	if (!monitor->since_us || left_us <= 0 || !(run->is_ask || run->is_leave) ||
	    (run->is_leave && run->ticket == ticket) ||
	    judge_upset(judge, line->at_ns, line->at_ns, monitor->grace_ms * MS + 10 * SECOND,
	                name))
		return;
	if (lock && run->is_leave && len > mark_len &&
	    strcmp(value + len - mark_len, monitor->mark) == 0)
		return;
	judge_accuse(judge, lock ? PROMISE_EXCLUSION : PROMISE_PERMITS,
	             record_of(monitor, name, fence), NULL,
	             "%s: the server granted at %.9f to %s, %.3f ms before the end of the grace",
	             judge_name(judge, name), judge_clock(judge, line->at_ns),
	             monitor->tickets[ticket].text, (double)left_us / 1000);
}

/* ---- zombies -----------------------------------------------------------------------------------
 */

/* A connection keeps its order: requests that arrive after a leave were sent after it, in every
 * case. */
void monitor_asked(struct monitor *monitor, size_t index, const struct monitor_line *line)
{
	struct ticket *ticket = &monitor->tickets[index];

	if (!ticket->left_ns || ticket->told || ticket->left_from != line->from)
		return;
	ticket->told = true;
	judge_accuse(monitor->judge, PROMISE_ZOMBIE, NULL, NULL,
	             "%s was called for %s of %s at %.9f, which had left by the same connection "
	             "at %.9f",
	             monitor->run.script->name, ticket->text,
	             judge_name(monitor->judge, monitor->run.name),
	             judge_clock(monitor->judge, line->at_ns),
	             judge_clock(monitor->judge, ticket->left_ns));
}

/* After its leave nothing is sent for a ticket.  Bytes that a network kept may still arrive. */
void monitor_used(struct monitor *monitor, size_t index, const struct monitor_line *line)
{
	struct judge *judge = monitor->judge;
	struct ticket *ticket;

	if (index == NONE || index != monitor->run.ticket ||
	    !(monitor->run.is_ask || monitor->run.is_renew || monitor->run.is_reclaim))
		return;
	ticket = &monitor->tickets[index];
	if (!ticket->left_ns || ticket->told ||
	    judge_faulty(judge, ticket->left_ns - LATE_MS * MS, line->at_ns, LATE_MS * MS,
	                 ticket->process, NONE))
		return;
	ticket->told = true;
	judge_accuse(judge, PROMISE_ZOMBIE, NULL, NULL,
	             "%s ran for %s of %s at %.9f, which had left at %.9f",
	             monitor->run.script->name, ticket->text, judge_name(judge, monitor->run.name),
	             judge_clock(judge, line->at_ns), judge_clock(judge, ticket->left_ns));
}

/* ---- hand-overs --------------------------------------------------------------------------------
 */

static int by_fence(const void *left, const void *right)
{
	uint64_t one = ((const struct grant *)left)->fence;
	uint64_t two = ((const struct grant *)right)->fence;

	return one < two ? -1 : one > two;
}

/* Since when another client waited then, as far as the monitor showed; 0 = none did. */
static int64_t waited_since(const struct place *place, int64_t at_ns)
{
	size_t low = 0, high = place->mark_count;

	while (low < high) {
		size_t middle = (low + high) / 2;
		if (place->marks[middle].at_ns <= at_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? place->marks[low - 1].since_ns : 0;
}

/* A hold whose fence is not from the server was handed over inside its process. */
static void check_handovers(struct monitor *monitor, size_t name)
{
	struct judge *judge = monitor->judge;
	struct place *place = place_of(monitor, name);
	struct judge_list list = judge_holds_of(judge, name);
	int in_a_row = 0, known_row = 0;

	if (place->grant_count)
		qsort(place->grants, place->grant_count, sizeof(*place->grants), by_fence);
	for (size_t i = 0; i < list.count; i++) {
		const struct hold *hold = list.items[i];
		struct grant key = {.fence = hold->fence};
		int64_t known_ns = KNOWN_MS * MS, since_ns, away_ns;
		const char *wrong;
		int faults;
		if (!place->grant_count ||
		    bsearch(&key, place->grants, place->grant_count, sizeof(key), by_fence)) {
			in_a_row = known_row = 0;
			continue;
		}
		judge->verdict->handovers++;
		since_ns = waited_since(place, hold->got->at_ns);
		/* The message may be lost; the next reply to a renewal has the same content. */
		away_ns = judge_fault_ns(judge, since_ns - AWAY_MS * MS, hold->got->at_ns,
		                         hold->process, name, &faults);
		if (faults)
			known_ns += hold->root_lease_ms * MS + SECOND + away_ns;
		if (!since_ns || hold->asked->at_ns - since_ns < known_ns)
			known_row = 0;
		else if ((wrong = promise_hand_overs(++known_row)))
			judge_accuse(judge, PROMISE_HAND_OVERS, hold->got, NULL,
			             "%s: %s, since %.9f", judge_name(judge, name), wrong,
			             judge_clock(judge, since_ns));
		if (++in_a_row > judge->verdict->handovers_row)
			judge->verdict->handovers_row = in_a_row;
		if (known_row > judge->verdict->handovers_known)
			judge->verdict->handovers_known = known_row;
	}
	free(list.items);
}

void monitor_check_handovers(struct monitor *monitor)
{
	for (size_t name = 0; name < monitor->judge->name_count; name++)
		if (monitor->judge->names[name].known &&
		    monitor->judge->names[name].kind == NAME_LOCK)
			check_handovers(monitor, name);
}

void monitor_free(struct monitor *monitor)
{
	for (size_t i = 0; i < monitor->judge->name_count; i++) {
		free(monitor->places[i].queue);
		free(monitor->places[i].holds);
		free(monitor->places[i].marks);
		free(monitor->places[i].grants);
	}
	free(monitor->places);
	free(monitor->tickets);
	judge_map_free(&monitor->known);
}
