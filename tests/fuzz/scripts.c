/* SPDX-License-Identifier: MIT
 * The shipped scripts over keys with any content: each replies with its own words, never with an
 * error of Lua or of a command; it leaves a foreign value unchanged, and a key of another type in
 * any case.  Arguments are valid ones of the library; keys have any content, mostly nearly valid,
 * because clearly foreign ones would be rejected at once. */
#include "core/core.h"
#include "fuzz.h"
#include "lua_store.h"
#include "lua_store_parts.h"
#include "redis/codec.h"
#include "scripts.h"
#include "scripts_keys.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGS_MAX 10
#define RUNS_MAX 4
#define WRONG_TYPE "WRONGTYPE "
#define EXACT_MAX (INT64_C(1) << 53)

static const struct plan {
	const struct lk__script *script;
	const char *keys;  /* which of script_keys[] */
	char type;         /* of the first */
	const char *args;  /* see add_argument() */
	const char *words; /* valid first words of a reply; * = also others */
	const char *idle;  /* with these, no key was changed; * = with all */
	bool decodes;      /* the codec reads it */
} plans[] = {
	{&lk__script_lock_ask, "0125", 's', "t1acsqmG", " granted queued busy epoch foreign fence ",
         " epoch foreign fence ", true},
	{&lk__script_lock_leave, "0125", 's', "TfC1mG", " left epoch foreign ", " foreign ", true},
	{&lk__script_lock_renew, "0125", 's', "tflfsmG", " held gone epoch foreign ",
         " gone epoch foreign ", true},
	{&lk__script_lock_show, "01", 's', "Tn", "*", "*", false},
	{&lk__script_semaphore_ask, "01235", 'h', "p1acPLqhmG",
         " granted queued busy limit epoch foreign fence ", " epoch foreign fence ", true},
	{&lk__script_semaphore_leave, "01235", 'h', "WkC1hmGf", " left epoch foreign ", " foreign ",
         true},
	{&lk__script_semaphore_renew, "01235", 'h', "pflmG", " held gone epoch foreign ",
         " gone epoch foreign ", true},
	{&lk__script_semaphore_set, "01235", 'h', "oPLchmG",
         " set mismatch absent epoch foreign fence ", " mismatch absent epoch foreign fence ",
         false},
	{&lk__script_semaphore_show, "0123", 'h', "Wnn", "*", "*", false},
	{&lk__script_latch_set, "0421", 'h', "n1LLc", " set counting foreign fence ",
         " counting foreign fence ", false},
	{&lk__script_latch_down, "04", 'h', "fiNPec", " stepped other foreign ", " other foreign ",
         true},
	{&lk__script_latch_show, "042", 'h', "", " absent counting open foreign ", "*", true},
	{&lk__script_latch_remove, "041", 'h', "c", " removed absent foreign ", " absent foreign ",
         false},
	{&lk__script_name_kind, "01", '*', "", " nothing lock semaphore latch foreign ", "*",
         false},
	{&lk__script_lock_reclaim, "0125", 's', "tFlfsmG", " held gone epoch foreign ",
         " gone epoch foreign ", true},
	{&lk__script_semaphore_reclaim, "01235", 'h', "pFlPPLmG", " held gone epoch foreign fence ",
         " epoch foreign fence ", true},
	{&lk__script_epoch_set, "5", 's', "MID", " epoch foreign ", " foreign ", true},
	{&lk__script_epoch_end, "5", 's', "m", " epoch ", "", true},
	{&lk__script_epoch_set, "5", 's', "MIDS1", " epoch foreign ", " foreign ", true},
	{&lk__script_quorum_ask, "0165", 's', "Q1fKcqmG",
         " granted queued busy young epoch foreign fence ", " young epoch foreign fence ", true},
	{&lk__script_quorum_leave, "0165", 's', "RfKC1RqmG", " left young epoch foreign ",
         " young epoch foreign ", true},
	{&lk__script_quorum_renew, "0165", 's', "QflfKmG", " held gone young epoch foreign ",
         " gone young epoch foreign ", true},
};
#define PLANS (sizeof(plans) / sizeof(*plans))

static int64_t one_of(struct fuzz_input *input, const int64_t *numbers, unsigned count)
{
	return numbers[fuzz_below(input, count)];
}

#define ONE_OF(...)                                                                                \
	one_of(input, (const int64_t[]){__VA_ARGS__},                                              \
	       sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static const char *word(struct fuzz_input *input, char letter)
{
	switch (letter) {
	case 's':
		return fuzz_below(input, 2) ? "s" : "-";
	case 'o':
		return fuzz_below(input, 2) ? "open" : "resize";
	case 'i':
		return SCRIPT_CLIENT;
	case 'e':
		return fuzz_below(input, 2) ? "step" : "";
	default:
		return "lk:c:0:";
	}
}

/* Write a ticket, a marker or a set.  False when the letter is for something else. */
static bool text_argument(struct fuzz_input *input, char letter, char *out, size_t size)
{
	switch (letter) {
	case 'T': /* a lock's ticket or none */
	case 't':
		if (letter == 't' || fuzz_below(input, 4))
			script_ticket(input, false, true, out, size);
		return true;
	case 'R': /* a leg's or none */
	case 'Q':
		if (letter == 'Q' || fuzz_below(input, 3))
			script_leg(input, true, out, size);
		return true;
	case 'S': /* a set of servers or none */
		if (fuzz_below(input, 3))
			snprintf(out, size, "%s", fuzz_below(input, 3) ? "s 1/3 60000" : "x");
		return true;
	case 'W': /* a semaphore's or none */
		if (!fuzz_below(input, 4))
			return true;
		/* fall through */
	case 'p':
		script_ticket(input, true, true, out, size);
		return true;
	case 'M': /* a marker or none */
		if (fuzz_below(input, 2))
			return true;
		/* fall through */
	case 'm':
		script_marker(input, out, size);
		return true;
	default:
		return false;
	}
}

static void argument(struct fuzz_input *input, char letter, char *out, size_t size)
{
	int64_t number = -1;

	out[0] = '\0';
	if (text_argument(input, letter, out, size))
		return;
	switch (letter) {
	case '1':
		number = fuzz_below(input, 2);
		break;
	case 'K': /* a class of names */
		number = 1 + fuzz_below(input, 3);
		break;
	case 'a': /* an arrival, a fence, a step's number */
	case 'f':
	case 'N':
		number = ONE_OF(0, 1, 7, SCRIPT_NOW_US - 1000, SCRIPT_NOW_US, SCRIPT_NOW_US + 1,
		                SCRIPT_NOW_US + 1000000, EXACT_MAX - 2, EXACT_MAX);
		break;
	case 'F': /* the fence of a grant */
		number = ONE_OF(1, SCRIPT_NOW_US - 1000, SCRIPT_NOW_US, EXACT_MAX - 2);
		break;
	case 'D': /* a database */
		number = fuzz_below(input, 4);
		break;
	case 'I': /* a process */
		number = ONE_OF(0, 17);
		break;
	case 'G': /* the end of the grace */
		number = ONE_OF(0, SCRIPT_NOW_US + 5000000, SCRIPT_NOW_US + 1, SCRIPT_NOW_US);
		break;
	case 'l':
		number = ONE_OF(LK_LEASE_MIN_MS, 1000, 10000, LK_LEASE_MAX_MS);
		break;
	case 'L':
		number = ONE_OF(LK_TTL_MIN_MS, 60000, LK_TTL_MAX_MS);
		break;
	case 'P': /* permits of all, a step */
	case 'n':
	case 'k':
		number = ONE_OF(1, 2, 3, 10, LK_PERMITS_MAX);
		number = letter == 'P' || fuzz_below(input, 3) ? number : 0;
		break;
	case 'q':
		number = LK__QUEUE_LIFE_MS;
		break;
	case 'h':
		number = LK__HEAD_PATIENCE_MS;
		break;
	default:
		break;
	}
	if (number >= 0)
		snprintf(out, size, "%lld", (long long)number);
	else
		snprintf(out, size, "%s", word(input, letter));
}

/* Is the word in a list that has a space around each? */
static bool listed(const char *list, const char *word)
{
	char spaced[64];

	snprintf(spaced, sizeof(spaced), " %s ", word);
	return *list == '*' || strstr(list, spaced);
}

/* One run of a script, and the content of the store before and after it. */
struct run {
	const struct plan *plan;
	char args[ARGS_MAX][SCRIPT_TEXT];
	struct script_saved before, after;
};

/* Print the whole case: its reader need not decode the input. */
static void fail(const struct run *run, const char *what, const char *answer)
{
	char text[400];

	for (int i = 0; i < SCRIPT_KEYS; i++)
		fprintf(stderr, "before: %s\n", run->before.keys[i]);
	for (int i = 0; i < SCRIPT_KEYS; i++)
		if (strcmp(run->before.keys[i], run->after.keys[i]))
			fprintf(stderr, "after:  %s\n", run->after.keys[i]);
	for (size_t i = 0; i < strlen(run->plan->args); i++)
		fprintf(stderr, "ARGV[%zu] %s\n", i + 1, run->args[i]);
	lk__escape(text, sizeof(text), answer, strlen(answer));
	fuzz_fail("%s: %s: %s", run->plan->script->name, what, text);
}

/* Then clients cannot connect, and scripts that compare the marker end with the command's error. */
static bool marker_is_foreign(const struct run *run)
{
	char type = run->before.keys[SCRIPT_MARKER][0];

	return type && type != 's' && run->plan->script != &lk__script_epoch_set;
}

static void check_reply(const struct run *run, const struct lk__resp *resp)
{
	const struct plan *plan = run->plan;
	struct lk__answer answer;
	struct lk__why why = {0};
	const char *word;

	if (resp->type == LK__RESP_ERROR && marker_is_foreign(run) && strstr(resp->str, WRONG_TYPE))
		return;
	if (resp->type == LK__RESP_ERROR)
		fail(run, "ended with an error", resp->str);
	if (resp->type != LK__RESP_ARRAY || !resp->len ||
	    resp->elements[0]->type != LK__RESP_STRING)
		fail(run, "no word", "");
	word = resp->elements[0]->str;
	if (!listed(plan->words, word))
		fail(run, "the reply of another script", word);
	for (int i = 0; i < SCRIPT_KEYS; i++)
		if (listed(plan->idle, word) && strcmp(run->before.keys[i], run->after.keys[i]))
			fail(run, "changed something", word);
	if (!strcmp(word, "foreign") && !lk__codec_foreign(resp, &why))
		fail(run, "does not name the foreign key", word);
	if (!plan->decodes)
		return;
	lk__codec_answer(resp, "store", &answer, &why);
	if (answer.ambiguous)
		fail(run, "the codec cannot read", word);
}

/* A script may write only to a key of its own type, or to a missing one. */
static void check_types(const struct run *run)
{
	for (int i = 0; i < SCRIPT_KEYS; i++) {
		char type = i ? script_types[i] : run->plan->type;
		if (run->before.keys[i][0] && run->before.keys[i][0] != type &&
		    strcmp(run->before.keys[i], run->after.keys[i]))
			fail(run, "wrote to a key of another type", script_keys[i]);
	}
}

static int publish(void *arg, const char *channel, const char *text, size_t len)
{
	FUZZ_MUST(!strncmp(channel, "lk:", 3) && len && text[0] != ' ', "a message to %s", channel);
	return fuzz_byte(arg) % 3;
}

static struct lk__resp *ask(struct lua_store *store, const struct run *run)
{
	const struct plan *plan = run->plan;
	const char *argv[3 + SCRIPT_KEYS + ARGS_MAX] = {"EVALSHA", plan->script->sha1};
	struct lk__buf command = {0}, reply = {0};
	struct lk__resp *resp;
	char count[24];
	int argc = 3;

	snprintf(count, sizeof(count), "%zu", strlen(plan->keys));
	argv[2] = count;
	for (const char *key = plan->keys; *key; key++)
		argv[argc++] = script_keys[*key - '0'];
	for (size_t i = 0; i < strlen(plan->args); i++)
		argv[argc++] = run->args[i];
	if (!lk__resp_command(&command, argc, argv, NULL))
		abort();
	lua_store_run(store, command.data, command.len, &reply);
	resp = lua_store_parse(&reply);
	lk__buf_fini(&command);
	lk__buf_fini(&reply);
	return resp;
}

static void run_one(struct lua_store *store, struct fuzz_input *input)
{
	struct run run = {.plan = &plans[fuzz_below(input, PLANS)]};
	struct lk__resp *resp;

	for (size_t i = 0; i < strlen(run.plan->args); i++)
		argument(input, run.plan->args[i], run.args[i], SCRIPT_TEXT);
	script_save(store, &run.before);
	resp = ask(store, &run);
	script_save(store, &run.after);
	check_reply(&run, resp);
	check_types(&run);
	lk__resp_free(resp);
	script_saved_free(&run.before);
	script_saved_free(&run.after);
}

/* The server's process, after the keys: the marker of its memory depends on it. */
static void start_process(struct fuzz_input *input, struct lua_store *store)
{
	unsigned choice = fuzz_byte(input);

	*lua_store_process(store) = (struct lua_store_process){
		.run = 0xa,
		.replid = 0xb,
		.replid2 = choice & 1 ? 0xc : 0,
		.began_us = choice & 2 ? SCRIPT_NOW_US - 3000000 : 0,
		.evicted = choice & 4 ? 1 : 0,
		.process_id = choice & 32 ? 17 : 18,
		.flushed = choice & 8,
		.was_replica = choice & 16,
	};
}

/* The keys, then some runs between which time passes. */
void fuzz_scripts(const uint8_t *data, size_t size)
{
	static struct fuzz_input input; /* it selects the published messages, too */
	static struct lua_store *store;
	int64_t now_us = SCRIPT_NOW_US;
	int runs;

	input = (struct fuzz_input){data, size};
	if (!store) {
		store = lua_store_new(publish, &input);
		lua_store_load_scripts(store);
	}
	lua_store_text(store, "FLUSHALL", NULL);
	lua_store_set_time(store, now_us);
	runs = 1 + (int)fuzz_below(&input, RUNS_MAX);
	script_fill(&input, store);
	start_process(&input, store);
	for (int i = 0; i < runs; i++) {
		run_one(store, &input);
		now_us += ((int64_t)fuzz_below(&input, 8) - 2) * 700000;
		lua_store_set_time(store, now_us);
	}
}
