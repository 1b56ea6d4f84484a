/* SPDX-License-Identifier: MIT
 * Read the server's own monitor: the queues, as the scripts write them, line by line.  A line is
 * written before its command runs, in the order of the commands; those of a script follow the line
 * that called it and contain "lua".  Expiring keys leave no line, so their expiry is tracked here,
 * on the server's clock, which each line has. */
#include "chaos/judge_monitor.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- one line ----------------------------------------------------------------------------------
 */

static int hex(char digit)
{
	return digit >= 'a' ? digit - 'a' + 10 : digit - '0';
}

/* A quoted word, unescaped in place; NULL if there is none. */
static char *next_word(char **at, size_t *len)
{
	char *from = *at, *to, *word;

	while (*from == ' ')
		from++;
	if (*from != '"')
		return NULL;
	word = to = ++from;
	while (*from && *from != '"') {
		if (*from != '\\') {
			*to++ = *from++;
			continue;
		}
		from++;
		if (from[0] == 'x' && isxdigit((unsigned char)from[1]) &&
		    isxdigit((unsigned char)from[2])) {
			*to++ = (char)(hex(from[1]) * 16 + hex(from[2]));
			from += 3;
		} else if (*from) {
			*to++ = *from == 'n'   ? '\n'
			        : *from == 'r' ? '\r'
			        : *from == 't' ? '\t'
			                       : *from;
			from++;
		}
	}
	*at = *from ? from + 1 : from;
	*to = 0;
	*len = (size_t)(to - word);
	return word;
}

static uint64_t hash_of(const char *text, size_t len, uint64_t hash)
{
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)text[i]) * UINT64_C(1099511628211);
	return hash;
}

static bool split(char *text, struct monitor_line *line)
{
	char *at, *end;
	long long seconds, micros;

	line->at_ns = strtoll(text, &at, 10);
	line->gap = strncmp(at, " gap", 4) == 0;
	line->count = 0;
	if (line->gap)
		return true;
	while (*at == ' ' || *at == '+')
		at++;
	seconds = strtoll(at, &at, 10);
	if (*at != '.')
		return false;
	micros = strtoll(at + 1, &at, 10);
	line->server_us = seconds * 1000000 + micros;
	at = strchr(at, '[');
	if (!at)
		return false;
	line->in_script = strncmp(at, "[0 lua]", 7) == 0;
	end = strstr(at, "] ");
	if (!end)
		return false;
	line->from = hash_of(at, (size_t)(end - at), UINT64_C(14695981039346656037));
	at = end + 2;
	while (line->count < MONITOR_WORDS &&
	       (line->words[line->count] = next_word(&at, &line->lens[line->count])))
		line->count++;
	return line->count > 0;
}

/* ---- what a key is -----------------------------------------------------------------------------
 */

/* "lk:{name}" and the part after the brace. */
static size_t name_of(const struct judge *judge, const char *key, const char **rest)
{
	const char *open = strchr(key, '{'), *close = open ? strrchr(open, '}') : NULL;

	if (!close)
		return NONE;
	*rest = close + 1;
	return judge_find_name(judge, open + 1, (size_t)(close - open - 1));
}

/* Two hashes of 64 bits represent the text: no two tickets of a run share both. */
static size_t ticket_of(struct monitor *monitor, const char *text, size_t len)
{
	size_t *at, id_len;
	struct ticket *ticket;
	const char *id;

	if (strncmp(text, "2:", 2) != 0)
		return NONE;
	at = judge_map_at(&monitor->known, hash_of(text, len, UINT64_C(14695981039346656037)),
	                  hash_of(text, len, UINT64_C(88172645463325252)));
	if (*at != NONE)
		return *at;
	monitor->tickets = judge_more(monitor->tickets, monitor->ticket_count,
	                              &monitor->ticket_room, sizeof(*monitor->tickets));
	id = text + 2;
	id_len = strcspn(id, ":");
	ticket = &monitor->tickets[monitor->ticket_count];
	*ticket = (struct ticket){.process = judge_find_client(monitor->judge, id, id_len)};
	ticket->client = hash_of(id, id_len, UINT64_C(14695981039346656037));
	snprintf(ticket->text, sizeof(ticket->text), "%.*s", (int)len, text);
	return *at = monitor->ticket_count++;
}

/* ---- the run of a script -----------------------------------------------------------------------
 */

static const struct lk__script *script_of(const struct monitor_line *line)
{
	bool by_text = line->count > 1 && strcasecmp(line->words[0], "EVAL") == 0;

	if (line->count < 2 || (!by_text && strcasecmp(line->words[0], "EVALSHA") != 0))
		return NULL;
	for (size_t i = 0; lk__scripts[i]; i++)
		if (strcmp(line->words[1], by_text ? lk__scripts[i]->text : lk__scripts[i]->sha1) ==
		    0)
			return lk__scripts[i];
	return NULL;
}

static void begin_script(struct monitor *monitor, const struct monitor_line *line)
{
	struct run *run = &monitor->run;
	const char *rest;
	int keys;

	*run = (struct run){.script = script_of(line),
	                    .ticket = NONE,
	                    .name = NONE,
	                    .granted = NONE,
	                    .at_ns = line->at_ns,
	                    .from = line->from};
	if (!run->script || line->count < 4)
		return;
	keys = atoi(line->words[2]);
	run->name = name_of(monitor->judge, line->words[3], &rest);
	if (run->name == NONE || 3 + keys >= line->count)
		return;
	run->is_leave = strstr(run->script->name, "_leave") != NULL;
	run->is_ask = strstr(run->script->name, "_ask") != NULL;
	run->is_renew = strstr(run->script->name, "_renew") != NULL;
	run->is_reclaim = strstr(run->script->name, "_reclaim") != NULL;
	if (run->is_leave || run->is_ask || run->is_renew || run->is_reclaim)
		run->ticket = ticket_of(monitor, line->words[3 + keys], line->lens[3 + keys]);
	if (run->ticket != NONE && !run->is_leave)
		monitor_asked(monitor, run->ticket, line);
	if (!run->is_leave || run->ticket == NONE || 3 + keys + 3 >= line->count)
		return;
	run->ends = strcmp(run->script->name, "lock_leave") == 0 ||
	            strcmp(line->words[3 + keys + 1], "0") == 0;
	run->breaks = strcmp(line->words[3 + keys + 3], "1") == 0;
}

/* A ticket that was dequeued and not granted has left, or was skipped. */
static void end_script(struct monitor *monitor)
{
	struct run *run = &monitor->run;

	for (size_t i = 0; i < run->removed_count; i++)
		if (!run->removed[i].granted)
			monitor_passed_over(monitor, run->name, run->removed[i].ticket,
			                    run->removed[i].at_ns);
	if (run->ends && !run->breaks && run->ticket != NONE) {
		monitor->tickets[run->ticket].left_ns = run->at_ns;
		monitor->tickets[run->ticket].left_from = run->from;
	}
	if (run->granted != NONE)
		monitor_check_room(monitor);
	*run = (struct run){.ticket = NONE, .name = NONE, .granted = NONE};
}

static void removed(struct monitor *monitor, size_t ticket, int64_t score, int64_t at_ns)
{
	struct run *run = &monitor->run;

	if (score < 0 || ticket == run->ticket || run->removed_count == MONITOR_REMOVED)
		return;
	run->removed[run->removed_count].ticket = ticket;
	run->removed[run->removed_count].score = score;
	run->removed[run->removed_count].at_ns = at_ns;
	run->removed[run->removed_count++].granted = false;
}

/* ---- commands of scripts -----------------------------------------------------------------------
 */

static void on_set(struct monitor *monitor, struct place *place, const struct monitor_line *line)
{
	char *value = line->words[2], *at = strchr(value, ' ');
	uint64_t fence;
	size_t ticket;

	if (!at)
		return;
	ticket = ticket_of(monitor, value, (size_t)(at - value));
	fence = strtoull(at + 1, NULL, 10);
	if (ticket == NONE)
		return;
	monitor_used(monitor, ticket, line);
	if (place->owner != ticket || place->fence != fence) {
		monitor_check_grace(monitor, monitor->run.name, ticket, fence, at, line);
		monitor_granted(monitor, monitor->run.name, ticket, fence, line);
	}
	place->owner = ticket;
	place->fence = fence;
}

static void on_hset(struct monitor *monitor, struct place *place, const struct monitor_line *line)
{
	for (int i = 2; i + 1 < line->count; i += 2) {
		unsigned long long permits, fence;
		size_t ticket;
		if (strcmp(line->words[i], "capacity") == 0)
			place->capacity = strtoll(line->words[i + 1], NULL, 10);
		ticket = ticket_of(monitor, line->words[i], line->lens[i]);
		if (ticket == NONE ||
		    sscanf(line->words[i + 1], "%llu %llu", &permits, &fence) != 2)
			continue;
		monitor_used(monitor, ticket, line);
		monitor->tickets[ticket].permits = (int64_t)permits;
		if (monitor->tickets[ticket].fence != fence)
			monitor_check_grace(monitor, monitor->run.name, ticket, fence, "", line);
		if (monitor->tickets[ticket].fence != fence || monitor->run.is_reclaim)
			monitor_granted(monitor, monitor->run.name, ticket, fence, line);
		monitor->tickets[ticket].fence = fence;
	}
}

static void on_zadd(struct monitor *monitor, struct place *place, const struct monitor_line *line,
                    const char *rest)
{
	size_t ticket = ticket_of(monitor, line->words[3], line->lens[3]);
	int64_t score = strtoll(line->words[2], NULL, 10);

	if (ticket == NONE)
		return;
	monitor_used(monitor, ticket, line);
	if (strcmp(rest, ":h") == 0)
		monitor_ends(monitor, monitor->run.name, ticket, score, line);
	else if (strcmp(rest, ":q") == 0)
		monitor_queued(monitor, place, ticket, score, line->at_ns);
}

static bool is(const struct monitor_line *line, const char *command, int words)
{
	return line->count >= words && strcasecmp(line->words[0], command) == 0;
}

static void in_script(struct monitor *monitor, const struct monitor_line *line)
{
	const char *rest = "";
	struct place *place;
	size_t name;

	if (is(line, "SET", 3) && strcmp(line->words[1], "lk:epoch") == 0)
		monitor_epoch(monitor, line->words[2]);
	if (line->count < 2 || monitor->run.name == NONE)
		return;
	name = name_of(monitor->judge, line->words[1], &rest);
	if (name == NONE || name != monitor->run.name)
		return;
	place = &monitor->places[name];
	monitor_expire(monitor, place, line);
	if (is(line, "SET", 3) && !*rest) {
		on_set(monitor, place, line);
	} else if (is(line, "HSET", 4) && !*rest) {
		on_hset(monitor, place, line);
	} else if (is(line, "ZADD", 4)) {
		on_zadd(monitor, place, line, rest);
	} else if (is(line, "ZREM", 3) && strcmp(rest, ":q") == 0) {
		size_t ticket = ticket_of(monitor, line->words[2], line->lens[2]);
		if (ticket != NONE)
			removed(monitor, ticket,
			        monitor_unqueued(monitor, place, ticket, line->at_ns), line->at_ns);
	} else if (is(line, "HDEL", 3) && !*rest) {
		size_t ticket = ticket_of(monitor, line->words[2], line->lens[2]);
		if (ticket != NONE)
			monitor_dropped(monitor, name, ticket, line);
	} else if (is(line, "DEL", 2) && !*rest) {
		place->owner = NONE;
	} else if (is(line, "PEXPIRE", 3) && strcmp(rest, ":q") == 0) {
		place->queue_over_us = line->server_us + strtoll(line->words[2], NULL, 10) * 1000;
	} else if (is(line, "PEXPIRE", 3) && !*rest && monitor->run.is_renew) {
		monitor_used(monitor, monitor->run.ticket, line);
	}
}

/* Commands of others that make the store forget. */
static void outside(struct monitor *monitor, const struct monitor_line *line)
{
	const char *rest;

	if (is(line, "FLUSHALL", 1) || is(line, "FLUSHDB", 1)) {
		monitor_forget(monitor, NONE, line->at_ns);
		monitor->since_us = line->server_us;
		return;
	}
	if (is(line, "SET", 3) && strcmp(line->words[1], "lk:epoch") == 0) {
		monitor->since_us = 0;
		monitor_epoch(monitor, line->words[2]);
		return;
	}
	if (!is(line, "DEL", 2) && !is(line, "UNLINK", 2))
		return;
	for (int i = 1; i < line->count; i++) {
		size_t name = name_of(monitor->judge, line->words[i], &rest);
		if (name != NONE)
			monitor_forget_key(monitor, name, rest, line->at_ns);
	}
}

static void on_gap(struct monitor *monitor, int64_t at_ns)
{
	if (monitor->ticket_count)
		monitor->gap_ns = at_ns;
	monitor->since_us = 0;
	monitor_forget(monitor, NONE, at_ns);
}

void judge_check_monitor(struct judge *judge)
{
	struct monitor monitor = {.judge = judge};
	char *at = judge->input->monitor, *end;
	struct monitor_line line = {0};

	if (!at)
		return;
	end = at + judge->input->monitor_len;
	monitor.run = (struct run){.ticket = NONE, .name = NONE, .granted = NONE};
	monitor.places = judge_zeroed(judge->name_count, sizeof(*monitor.places));
	for (size_t i = 0; i < judge->fault_count; i++)
		if (judge->faults[i].grace_ms > monitor.grace_ms)
			monitor.grace_ms = judge->faults[i].grace_ms;
	monitor_forget(&monitor, NONE, judge->begin_ns);
	while (at < end) {
		char *stop = memchr(at, '\n', (size_t)(end - at));
		if (!stop)
			break; /* The last line may be incomplete. */
		*stop = 0;
		judge->verdict->monitor_lines++;
		if (split(at, &line)) {
			if (!line.in_script)
				end_script(&monitor);
			if (line.gap)
				on_gap(&monitor, line.at_ns);
			else if (line.in_script)
				in_script(&monitor, &line);
			else if (line.words[0][0] == 'E' || line.words[0][0] == 'e')
				begin_script(&monitor, &line);
			else
				outside(&monitor, &line);
		}
		at = stop + 1;
	}
	end_script(&monitor);
	monitor_check_handovers(&monitor);
	monitor_free(&monitor);
}
