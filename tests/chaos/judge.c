/* SPDX-License-Identifier: MIT
 * The judge: runs all checks on a round, reports violations, and summarizes. */
#include "chaos/judge_parts.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const struct judge_options judge_defaults = {
	.min_rate = 50,
	.min_faults = 1,
	.slack_ms = 1000,
	.quiet_wake_ms = 1000,
	.command_ms = 2000,
	.ask_ms = 11200,
	.claim_ms = 3000,
	.evidence = 5,
};

const char *judge_check_name(int check)
{
	static const char *const conditions[] = {"load", "history"};

	return check < PROMISES ? promise_table[check].id : conditions[check - PROMISES];
}

static void *sure(void *memory)
{
	if (memory)
		return memory;
	fputs("judge: out of memory\n", stderr);
	exit(2);
}

void *judge_more(void *items, size_t count, size_t *room, size_t size)
{
	if (count < *room)
		return items;
	*room = *room ? *room * 2 : 64;
	return sure(realloc(items, *room * size));
}

void *judge_zeroed(size_t count, size_t size)
{
	return sure(calloc(count ? count : 1, size));
}

static struct judge_pair *pair_of(struct judge_map *map, uint64_t one, uint64_t two)
{
	uint64_t hash = (one * UINT64_C(0x9e3779b97f4a7c15)) ^ (two * UINT64_C(0xc2b2ae3d27d4eb4f));
	size_t at = (size_t)((hash ^ hash >> 29) * UINT64_C(0xbf58476d1ce4e5b9) >> 20) &
	            (map->room - 1);

	while (map->pairs[at].used && (map->pairs[at].one != one || map->pairs[at].two != two))
		at = (at + 1) & (map->room - 1);
	return &map->pairs[at];
}

size_t *judge_map_at(struct judge_map *map, uint64_t one, uint64_t two)
{
	struct judge_pair *pair;

	if (map->count * 2 >= map->room) {
		struct judge_map bigger = {.room = map->room ? map->room * 2 : 1024};
		bigger.pairs = judge_zeroed(bigger.room, sizeof(*bigger.pairs));
		bigger.count = map->count;
		for (size_t i = 0; i < map->room; i++)
			if (map->pairs[i].used)
				*pair_of(&bigger, map->pairs[i].one, map->pairs[i].two) =
					map->pairs[i];
		free(map->pairs);
		*map = bigger;
	}
	pair = pair_of(map, one, two);
	if (!pair->used) {
		*pair = (struct judge_pair){.one = one, .two = two, .value = NONE, .used = true};
		map->count++;
	}
	return &pair->value;
}

void judge_map_free(struct judge_map *map)
{
	free(map->pairs);
	*map = (struct judge_map){0};
}

/* ---- violations
 * ---------------------------------------------------------------------------------- */

double judge_clock(const struct judge *judge, int64_t at_ns)
{
	return at_ns == NEVER ? -1 : (double)(at_ns - judge->begin_ns) / 1e9;
}

const char *judge_name(const struct judge *judge, size_t name)
{
	return name < judge->name_count && judge->names[name].known ? judge->names[name].text : "?";
}

static void print_record(const struct judge *judge, const struct history_record *record)
{
	static const char *const ops[] = {"START", "ID",      "OPEN",   "CLOSE", "ACQUIRE", "ENTER",
	                                  "LEAVE", "RELEASE", "EXTEND", "LOST",  "SET",     "DOWN",
	                                  "AWAIT", "END",     "CANCEL", "SEEN"};
	static const char *const phases[] = {"?", "begins", "ends", "now"};
	bool whole = record->op <= HISTORY_SEEN && record->phase <= HISTORY_EVENT;

	fprintf(judge->report, "    %.9f  %u/%u #%llu %s %s %s", judge_clock(judge, record->at_ns),
	        record->pid, record->thread, (unsigned long long)record->call,
	        whole ? ops[record->op] : "?", whole ? phases[record->phase] : "?",
	        judge_name(judge, record->name));
	if (record->phase != HISTORY_BEGIN)
		fprintf(judge->report, " %s", lk_err_name((lk_err)record->err));
	if (record->op != HISTORY_ID)
		fprintf(judge->report,
		        " permits %d fence %llu valid until %.9f amount %lld flags %u",
		        record->permits, (unsigned long long)record->u.of.fence,
		        record->u.of.valid_until_ns
		                ? judge_clock(judge, record->u.of.valid_until_ns)
		                : 0,
		        (long long)record->u.of.amount, record->flags);
	fputc('\n', judge->report);
}

void judge_accuse(struct judge *judge, int check, const struct history_record *one,
                  const struct history_record *two, const char *format, ...)
{
	va_list args;

	judge->verdict->violations++;
	if (++judge->verdict->of[check] > judge->options->evidence)
		return;
	if (check < PROMISES)
		fprintf(judge->report, "%s (%s): ", promise_table[check].id,
		        promise_table[check].sentence);
	else
		fprintf(judge->report, "%s: ", judge_check_name(check));
	va_start(args, format);
	vfprintf(judge->report, format, args);
	va_end(args);
	fputc('\n', judge->report);
	if (one)
		print_record(judge, one);
	if (two)
		print_record(judge, two);
}

/* ---- the verdict -------------------------------------------------------------------------------
 */

static void print_faults(const struct judge *judge)
{
	fprintf(judge->report, "faults: %lld", (long long)judge->verdict->faults);
	for (size_t i = 0; i < judge->fault_count; i++) {
		int count = 0;
		bool seen = false;
		for (size_t other = 0; other < judge->fault_count; other++) {
			if (strcmp(judge->faults[i].kind, judge->faults[other].kind) != 0)
				continue;
			seen |= other < i;
			count++;
		}
		if (!seen)
			fprintf(judge->report, ", %s %d", judge->faults[i].kind, count);
	}
	fputc('\n', judge->report);
}

static void print_verdict(const struct judge *judge)
{
	const struct judge_verdict *verdict = judge->verdict;
	FILE *report = judge->report;
	int64_t longest_ns = verdict->quiet_max_ns > verdict->fault_max_ns ? verdict->quiet_max_ns
	                                                                   : verdict->fault_max_ns;

	fprintf(report,
	        "round: %.1f s, %lld records of %zu processes, %lld lines of the monitor\n"
	        "load: %lld pairs (%.0f a second outside faults), %lld grants, %lld waits, %lld "
	        "latch "
	        "openings\n",
	        verdict->seconds, (long long)verdict->records, judge->process_count,
	        (long long)verdict->monitor_lines, (long long)verdict->pairs, verdict->rate,
	        (long long)verdict->grants, (long long)verdict->waits,
	        (long long)verdict->openings);
	print_faults(judge);
	fprintf(report,
	        "seen: %lld holds lost, %lld processes killed, %lld calls unknown, %lld "
	        "hand-overs, "
	        "%lld skipped while away, %lld holds reclaimed\n"
	        "excused: %lld overlaps, %lld in the canary, %lld holds taken: the store forgot or "
	        "its clock moved\n"
	        "longest wake-up: %.1f ms; of %lld in quiet times p99.9 %.1f ms, longest %.1f ms\n"
	        "one order: %lld calls in %lld windows, %lld windows not searched to the end\n"
	        "judged: %lld quiet waits in vain, %lld skipped in quiet, %lld holds past "
	        "their end, %lld losses, %lld looks at lost holds, %lld cancelled waits, "
	        "%lld and %lld hand-overs in a row\n",
	        (long long)verdict->lost, (long long)verdict->killed, (long long)verdict->unknown,
	        (long long)verdict->handovers, (long long)verdict->passed_over,
	        (long long)verdict->reclaimed, (long long)verdict->excused,
	        (long long)verdict->canaries_excused, (long long)verdict->taken_excused,
	        (double)longest_ns / 1e6, (long long)verdict->quiet_grants,
	        (double)verdict->quiet_p999_ns / 1e6, (double)verdict->quiet_max_ns / 1e6,
	        (long long)verdict->window_ops, (long long)verdict->windows,
	        (long long)verdict->windows_skipped, (long long)verdict->vain_judged,
	        (long long)verdict->passed_over_judged, (long long)verdict->ends_judged,
	        (long long)verdict->losses_judged, (long long)verdict->overs_judged,
	        (long long)verdict->cancels_judged, (long long)verdict->handovers_row,
	        (long long)verdict->handovers_known);
	if (verdict->minority_grants || verdict->silent_ns)
		fprintf(report,
		        "quorum: %lld wake-ups in time while a minority failed; for %.1f s no "
		        "majority could vote, and nothing was granted\n",
		        (long long)verdict->minority_grants, (double)verdict->silent_ns / 1e9);
	for (int check = 0; check < JUDGE_CHECKS; check++)
		if (verdict->of[check])
			fprintf(report, "%s: %d violations\n", judge_check_name(check),
			        verdict->of[check]);
	if (verdict->violations)
		fprintf(report, "judge: %d violations\n", verdict->violations);
	else
		fputs("judge: good\n", report);
	fprintf(report,
	        "violations=%d pairs=%lld grants=%lld waits=%lld openings=%lld faults=%lld "
	        "excused=%lld "
	        "canaries_excused=%lld lost=%lld killed=%lld unknown=%lld handovers=%lld "
	        "passed_over=%lld reclaimed=%lld quiet_max_ms=%.3f quiet_p999_ms=%.3f "
	        "fault_max_ms=%.3f "
	        "window_ops=%lld records=%lld monitor_lines=%lld rate=%.0f seconds=%.1f\n",
	        verdict->violations, (long long)verdict->pairs, (long long)verdict->grants,
	        (long long)verdict->waits, (long long)verdict->openings, (long long)verdict->faults,
	        (long long)verdict->excused, (long long)verdict->canaries_excused,
	        (long long)verdict->lost, (long long)verdict->killed, (long long)verdict->unknown,
	        (long long)verdict->handovers, (long long)verdict->passed_over,
	        (long long)verdict->reclaimed, (double)verdict->quiet_max_ns / 1e6,
	        (double)verdict->quiet_p999_ns / 1e6, (double)verdict->fault_max_ns / 1e6,
	        (long long)verdict->window_ops, (long long)verdict->records,
	        (long long)verdict->monitor_lines, verdict->rate, verdict->seconds);
}

bool judge_round(struct judge_input *input, const struct judge_options *options,
                 struct judge_verdict *verdict, FILE *report)
{
	struct judge judge = {
		.input = input, .options = options, .verdict = verdict, .report = report};
	const struct history_list *history = &input->history;
	bool ok = false;

	*verdict = (struct judge_verdict){.records = (int64_t)history->count};
	if (!history->count) {
		fputs("judge: no history has a record\n", report);
		return false;
	}
	judge.begin_ns = history->records[0].at_ns;
	judge.end_ns = history->records[history->count - 1].at_ns;
	verdict->seconds = judge_clock(&judge, judge.end_ns);
	if (judge_read_names(&judge)) {
		judge_read_calls(&judge);
		ok = judge_read_faults(&judge);
	}
	if (ok) {
		judge_check_holds(&judge);
		judge_check_quorum(&judge);
		judge_check_fences(&judge);
		judge_check_loss(&judge);
		judge_check_wakeups(&judge);
		judge_check_latches(&judge);
		judge_check_monitor(&judge);
		judge_check_order(&judge);
		judge_check_calls(&judge);
		print_verdict(&judge);
	}
	free(judge.names);
	free(judge.processes);
	free(judge.clients);
	free(judge.calls);
	free(judge.holds);
	free(judge.parts);
	free(judge.faults);
	free(judge.silences);
	judge_map_free(&judge.owners);
	return ok;
}
