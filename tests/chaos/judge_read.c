/* SPDX-License-Identifier: MIT
 * The table of names and the log of the nemesis; which calls a fault concerns and excuses. */
#include "chaos/judge_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 65536
#define LINE_SIZE 512

/* The next line without its end; false after the last one. */
static bool next_line(const char **text, char line[LINE_SIZE])
{
	const char *end;
	size_t len;

	if (!*text || !**text)
		return false;
	end = strchr(*text, '\n');
	len = end ? (size_t)(end - *text) : strlen(*text);
	snprintf(line, LINE_SIZE, "%.*s", (int)(len < LINE_SIZE ? len : LINE_SIZE - 1), *text);
	*text += len + (end ? 1 : 0);
	return true;
}

static bool kind_of(const char *word, enum name_kind *kind)
{
	static const char *const words[] = {"lock", "semaphore", "rate", "latch"};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		if (strcmp(word, words[i]) == 0) {
			*kind = (enum name_kind)i;
			return true;
		}
	}
	return false;
}

bool judge_read_names(struct judge *judge)
{
	const char *text = judge->input->names;
	char line[LINE_SIZE];

	if (!text) {
		fputs("judge: names.txt is missing\n", judge->report);
		return false;
	}
	judge->names = judge_zeroed(NAMES_MAX, sizeof(*judge->names));
	while (next_line(&text, line)) {
		struct name name = {.known = true};
		char kind[16];
		unsigned index;
		if (!*line)
			continue;
		if (sscanf(line, "%u %15s %" SCNd64 " %" SCNd64 " %127s", &index, kind,
		           &name.lease_ms, &name.capacity, name.text) != 5 ||
		    index >= NAMES_MAX || !kind_of(kind, &name.kind)) {
			fprintf(judge->report, "judge: names.txt: cannot read \"%s\"\n", line);
			return false;
		}
		judge->names[index] = name;
		if (index >= judge->name_count)
			judge->name_count = index + 1;
	}
	return true;
}

size_t judge_find_name(const struct judge *judge, const char *text, size_t len)
{
	for (size_t i = 0; i < judge->name_count; i++)
		if (judge->names[i].known && strlen(judge->names[i].text) == len &&
		    memcmp(judge->names[i].text, text, len) == 0)
			return i;
	return NONE;
}

size_t judge_find_client(const struct judge *judge, const char *id, size_t len)
{
	for (size_t i = judge->client_count; i-- > 0;)
		if (strlen(judge->clients[i].id) == len &&
		    memcmp(judge->clients[i].id, id, len) == 0)
			return judge->clients[i].process;
	return NONE;
}

/* ---- faults ------------------------------------------------------------------------------------
 */

static void note_kill(struct judge *judge, const struct fault *fault)
{
	for (size_t i = judge->process_count; i-- > 0;) {
		struct process *process = &judge->processes[i];
		if (process->pid != fault->pid || process->start_ns > fault->begin_ns)
			continue;
		if (process->killed_ns == NEVER)
			judge->verdict->killed++;
		if (fault->begin_ns < process->killed_ns)
			process->killed_ns = fault->begin_ns;
		return;
	}
}

static void read_words(struct fault *fault, const char *words)
{
	const char *clock = strstr(words, "clock="), *grace = strstr(words, "grace=");
	const char *member = strstr(words, "member=");

	fault->kill = strcmp(fault->kind, "kill") == 0;
	fault->stop = strcmp(fault->kind, "stop") == 0;
	fault->breaks = strcmp(fault->kind, "break") == 0;
	fault->fresh = strncmp(fault->kind, "restart", 7) == 0;
	fault->memory = strstr(words, "memory=old") || strstr(words, "memory=lost");
	fault->clock = clock != NULL;
	if (clock)
		fault->clock_ms = strtoll(clock + strlen("clock="), NULL, 10);
	if (grace)
		fault->grace_ms = strtoll(grace + strlen("grace="), NULL, 10);
	if (member && sscanf(member, "member=%d/%d", &fault->member, &fault->members) != 2)
		fault->members = 0;
}

static void read_target(struct judge *judge, struct fault *fault)
{
	char *end;
	unsigned long pid = strtoul(fault->target, &end, 10);

	fault->name = judge_find_name(judge, fault->target, strlen(fault->target));
	if (fault->name != NONE || *end || end == fault->target)
		return;
	/* A pid that is not a worker's is a server's: it concerns all processes. */
	for (size_t i = 0; i < judge->process_count; i++)
		if (judge->processes[i].pid == pid)
			fault->pid = (uint32_t)pid;
}

/* The beginning that belongs to this end. */
static struct fault *open_fault(struct judge *judge, const struct fault *line)
{
	for (size_t i = judge->fault_count; i-- > 0;) {
		struct fault *fault = &judge->faults[i];
		if (fault->end_ns == NEVER && strcmp(fault->kind, line->kind) == 0 &&
		    strcmp(fault->target, line->target) == 0)
			return fault;
	}
	return NULL;
}

static void take_line(struct judge *judge, struct fault *line, const char *phase)
{
	struct fault *fault = open_fault(judge, line);

	if (strcmp(phase, "end") == 0) {
		if (fault)
			fault->end_ns = line->begin_ns;
		return;
	}
	if (strcmp(phase, "down") == 0 || strcmp(phase, "up") == 0) {
		if (fault)
			*(*phase == 'd' ? &fault->down_ns : &fault->up_ns) = line->begin_ns;
		return;
	}
	line->end_ns = strcmp(phase, "begin") == 0 ? NEVER : line->begin_ns;
	read_target(judge, line);
	if (line->kill && line->pid)
		note_kill(judge, line);
	judge->faults =
		judge_more(judge->faults, judge->fault_count, &judge->fault_room, sizeof(*line));
	judge->faults[judge->fault_count++] = *line;
}

/* "# <ns> worker <pid> <link>": the first process of that pid from then on.  A log without such
 * lines is from another program, and its faults of links may concern any process. */
static void note_link(struct judge *judge, const char *line)
{
	int64_t at_ns;
	unsigned pid;
	char link[16];

	if (sscanf(line, "# %" SCNd64 " worker %u %15s", &at_ns, &pid, link) != 3)
		return;
	for (size_t i = 0; i < judge->process_count; i++) {
		struct process *process = &judge->processes[i];
		if (process->pid != pid || process->start_ns < at_ns)
			continue;
		memcpy(process->link, link, sizeof(link));
		return;
	}
}

static void find_links(struct judge *judge)
{
	for (size_t i = 0; i < judge->fault_count; i++)
		for (size_t j = 0; j < judge->process_count && !judge->faults[i].link; j++)
			judge->faults[i].link =
				strcmp(judge->faults[i].target, judge->processes[j].link) == 0;
}

static int by_begin(const void *left, const void *right)
{
	const struct fault *one = left, *two = right;

	return one->begin_ns < two->begin_ns ? -1 : one->begin_ns > two->begin_ns;
}

bool judge_read_faults(struct judge *judge)
{
	const char *text = judge->input->nemesis;
	char line[LINE_SIZE], phase[16];

	while (next_line(&text, line)) {
		struct fault fault = {.name = NONE};
		int used = 0;
		if (*line == '#')
			note_link(judge, line);
		if (!*line || *line == '#')
			continue;
		if (sscanf(line, "%" SCNd64 " %23s %63s %15s%n", &fault.begin_ns, fault.kind,
		           fault.target, phase, &used) != 4) {
			fprintf(judge->report, "judge: nemesis.log: cannot read \"%s\"\n", line);
			return false;
		}
		read_words(&fault, line + used);
		take_line(judge, &fault, phase);
	}
	judge->verdict->faults = (int64_t)judge->fault_count;
	judge_read_members(judge);
	if (judge->fault_count)
		qsort(judge->faults, judge->fault_count, sizeof(*judge->faults), by_begin);
	find_links(judge);
	return true;
}

bool judge_concerns(const struct judge *judge, const struct fault *fault, size_t process,
                    size_t name)
{
	if (fault->pid && process != NONE && judge->processes[process].pid != fault->pid)
		return false;
	if (fault->link && process != NONE && *judge->processes[process].link &&
	    strcmp(fault->target, judge->processes[process].link) != 0)
		return false;
	return fault->name == NONE || name == NONE || fault->name == name;
}

static int64_t plus(int64_t at_ns, int64_t more_ns)
{
	return at_ns > NEVER - more_ns ? NEVER : at_ns + more_ns;
}

bool judge_faulty(const struct judge *judge, int64_t from_ns, int64_t to_ns, int64_t after_ns,
                  size_t process, size_t name)
{
	for (size_t i = 0; i < judge->fault_count && judge->faults[i].begin_ns <= to_ns; i++)
		if (plus(judge->faults[i].end_ns, after_ns) >= from_ns &&
		    !judge->faults[i].members &&
		    judge_concerns(judge, &judge->faults[i], process, name))
			return true;
	return false;
}

int64_t judge_fault_ns(const struct judge *judge, int64_t from_ns, int64_t to_ns, size_t process,
                       size_t name, int *count)
{
	int64_t sum = 0;

	*count = 0;
	for (size_t i = 0; i < judge->fault_count && judge->faults[i].begin_ns <= to_ns; i++) {
		const struct fault *fault = &judge->faults[i];
		int64_t begin = fault->begin_ns > from_ns ? fault->begin_ns : from_ns;
		int64_t end = fault->end_ns < to_ns ? fault->end_ns : to_ns;
		if (end < begin || fault->members || !judge_concerns(judge, fault, process, name))
			continue;
		sum += end - begin;
		(*count)++;
	}
	return sum;
}

int64_t judge_stopped_ns(const struct judge *judge, int64_t from_ns, int64_t to_ns, size_t process)
{
	int64_t sum = 0;

	for (size_t i = 0; i < judge->fault_count && judge->faults[i].begin_ns <= to_ns; i++) {
		const struct fault *fault = &judge->faults[i];
		int64_t begin = fault->begin_ns > from_ns ? fault->begin_ns : from_ns;
		int64_t end = fault->end_ns < to_ns ? fault->end_ns : to_ns;
		if (end > begin && fault->stop && fault->pid == judge->processes[process].pid)
			sum += end - begin;
	}
	return sum;
}

int64_t judge_over_ns(const struct fault *fault)
{
	/* The server's uptime, by which clients know its start, is in whole seconds. */
	return fault->grace_ms ? plus(fault->end_ns, fault->grace_ms * MS + SECOND) : fault->end_ns;
}

int64_t judge_grace_ns(const struct judge *judge, int64_t from_ns, int64_t to_ns)
{
	int64_t sum = 0, at_ns = from_ns;

	for (size_t i = 0; i < judge->fault_count && judge->faults[i].begin_ns <= to_ns; i++) {
		const struct fault *fault = &judge->faults[i];
		int64_t over_ns = judge_over_ns(fault);
		if (!fault->grace_ms || fault->members)
			continue;
		if (at_ns < fault->begin_ns)
			at_ns = fault->begin_ns;
		if (over_ns > to_ns)
			over_ns = to_ns;
		if (over_ns > at_ns) {
			sum += over_ns - at_ns;
			at_ns = over_ns;
		}
	}
	return sum;
}

/* The grace protects the holds of locks and semaphores from a loss of the whole memory, if no lease
 * is longer than it. */
static bool is_protected(const struct judge *judge, const struct fault *fault, size_t name)
{
	const struct name *about = &judge->names[name];

	return (about->kind == NAME_LOCK || about->kind == NAME_SEMAPHORE) && fault->memory &&
	       fault->name == NONE && about->lease_ms <= fault->grace_ms;
}

bool judge_disturbs(const struct judge *judge, const struct fault *fault, size_t name)
{
	return (fault->clock || fault->breaks ||
	        (fault->memory && !is_protected(judge, fault, name))) &&
	       judge_concerns(judge, fault, NONE, name);
}

int64_t judge_disturbed_until(const struct judge *judge, const struct fault *fault,
                              int64_t after_ns)
{
	int64_t until_ns = plus(fault->end_ns, after_ns);

	/* A client that believes in a hold which another one has now takes it back after a loss;
	 * its next renewal ends that. */
	for (size_t i = 0; i < judge->fault_count && judge->faults[i].begin_ns <= until_ns; i++) {
		const struct fault *later = &judge->faults[i];
		if (later->grace_ms && later->end_ns >= fault->begin_ns &&
		    plus(later->end_ns, after_ns) > until_ns)
			until_ns = plus(later->end_ns, after_ns);
	}
	return until_ns;
}

bool judge_excused(const struct judge *judge, int64_t from_ns, int64_t to_ns, int64_t after_ns,
                   size_t name)
{
	for (size_t i = 0; i < judge->fault_count && judge->faults[i].begin_ns <= to_ns; i++)
		if (judge_disturbs(judge, &judge->faults[i], name) &&
		    judge_disturbed_until(judge, &judge->faults[i], after_ns) >= from_ns)
			return true;
	return false;
}

bool judge_upset(const struct judge *judge, int64_t from_ns, int64_t to_ns, int64_t after_ns,
                 size_t name)
{
	for (size_t i = 0; i < judge->fault_count && judge->faults[i].begin_ns <= to_ns; i++) {
		const struct fault *fault = &judge->faults[i];
		if (!fault->breaks && judge_disturbs(judge, fault, name) &&
		    plus(fault->end_ns, after_ns) >= from_ns)
			return true;
	}
	return false;
}

bool judge_is_stale(const struct judge *judge, const struct hold *hold, int64_t at_ns)
{
	int64_t lease_ns = hold->root_lease_ms * MS;

	for (size_t i = 0; i < judge->fault_count && judge->faults[i].begin_ns <= at_ns; i++) {
		const struct fault *fault = &judge->faults[i];
		/* A hold of a quorum may go on: its client asks that server again. */
		int64_t until_ns = fault->members ? at_ns : hold->sure_ns;
		if (fault->end_ns >= hold->root_ns &&
		    judge_disturbs(judge, fault, hold->got->name) &&
		    until_ns <= judge_disturbed_until(judge, fault, lease_ns))
			return true;
	}
	return false;
}

bool judge_forgot(const struct judge *judge, int64_t from_ns, int64_t to_ns, size_t name)
{
	for (size_t i = 0; i < judge->fault_count && judge->faults[i].begin_ns <= to_ns; i++)
		if (judge->faults[i].end_ns >= from_ns && judge->faults[i].memory &&
		    judge_concerns(judge, &judge->faults[i], NONE, name))
			return true;
	return false;
}

bool judge_clock_back(const struct judge *judge, int64_t to_ns)
{
	for (size_t i = 0; i < judge->fault_count && judge->faults[i].begin_ns <= to_ns; i++)
		if (judge->faults[i].clock && judge->faults[i].clock_ms < 0)
			return true;
	return false;
}
