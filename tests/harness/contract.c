/* SPDX-License-Identifier: MIT
 * The contract of a script with its caller: see contract.h. */
#include "contract.h"

#include "scripts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START_US INT64_C(1700000000000000)
#define WORDS 30
#define CHANNELS "lk:c:0:"
#define LATCH_CHANNEL "lk:l:{n}"

static struct lua_store *store;
static char messages[2000];
static int unheard;                    /* messages to the channels of dead clients */
static struct lk__buf saved;           /* all keys */
static char known[168], grace_end[24]; /* the marker that clients know; the end of the grace */

/* Of the call in a slot that moves: see run_while_slot_moves(). */
static struct lua_store *moving;
static char moved_answer[4000], moved_messages[2100];
static bool was_refused, refuses_marker, is_narrow;

static int publish(void *arg, const char *channel, const char *text, size_t len)
{
	size_t end = strlen(messages);

	(void)arg;
	if (!strncmp(channel, CHANNELS, strlen(CHANNELS)))
		channel += strlen(CHANNELS);
	else if (!strncmp(channel, "lk:c:{n}:", 9))
		channel += 9;
	else if (!strcmp(channel, LATCH_CHANNEL))
		channel = "bell";
	if (!strcmp(channel, "d")) {
		unheard++;
		return 0;
	}
	snprintf(messages + end, sizeof(messages) - end, " | %s %.*s", channel, (int)len, text);
	return 1;
}

void contract_start(void)
{
	store = lua_store_new(publish, NULL);
	moving = lua_store_new(publish, NULL);
	lua_store_set_migrating(moving, "1 127.0.0.1:1");
	contract_at(0);
	lua_store_text(store, "SET", "lk:epoch", "1 a 1", NULL);
	contract_epoch("1 a 1", "0");
}

void contract_stop(void)
{
	lua_store_free(store);
	lk__buf_fini(&saved);
	lua_store_free(moving);
}

void contract_at(int64_t ms)
{
	lua_store_set_time(store, START_US + ms * 1000);
}

void contract_full(bool full)
{
	lua_store_set_full(store, full);
	lua_store_set_full(moving, full);
}

void contract_refuse(const char *command, const char *key)
{
	lua_store_refuse(store, command, key);
	if (command && !strcmp(command, "PUBLISH"))
		command = "SPUBLISH";
	lua_store_refuse(moving, command, key);
	refuses_marker = key && !strcmp(key, "lk:epoch");
}

struct lua_store_process *contract_process(void)
{
	return lua_store_process(store);
}

void contract_narrow(bool narrow)
{
	is_narrow = narrow;
}

bool contract_moved(void)
{
	return !was_refused;
}

void contract_save(void)
{
	saved.len = 0;
	lua_store_dump(store, &saved);
}

void contract_is_unchanged(const char *file, int line)
{
	struct lk__buf now = {0};

	lua_store_dump(store, &now);
	if (now.len != saved.len || (now.len && memcmp(now.data, saved.data, now.len) != 0))
		ck_abort_msg("%s:%d: a key has changed", file, line);
	lk__buf_fini(&now);
}

/* Has the store of the moving slot the same keys as the other one? */
static void has_the_same_keys(const char *file, int line)
{
	struct lk__buf one = {0}, other = {0};

	lua_store_dump(store, &one);
	lua_store_dump(moving, &other);
	if (one.len != other.len || (one.len && memcmp(one.data, other.data, one.len) != 0))
		ck_abort_msg("%s:%d: other keys in a slot that moves", file, line);
	lk__buf_fini(&one);
	lk__buf_fini(&other);
}

static const struct lk__script *find(const char *name)
{
	for (int i = 0; lk__scripts[i]; i++)
		if (!strcmp(lk__scripts[i]->name, name))
			return lk__scripts[i];
	return NULL;
}

/* The scripts of a quorum: its servers are not nodes of a Cluster. */
static bool is_of_quorum(const struct lk__script *script)
{
	return script && !strncmp(script->name, "quorum", 6);
}

/* The keys of a script, as the library names them. */
static int add_keys(const struct lk__script *script, const char **argv)
{
	static const char *const lock[] = {"lk:{n}", "lk:{n}:q", "lk:fence", "lk:epoch"};
	static const char *const semaphore[] = {"lk:{n}", "lk:{n}:q", "lk:fence", "lk:{n}:h",
	                                        "lk:epoch"};
	static const char *const latch[] = {"lk:{n}", "lk:{n}:s", "lk:fence", "lk:{n}:q"};
	static const char *const removal[] = {"lk:{n}", "lk:{n}:s", "lk:{n}:q"};
	static const char *const quorum[] = {"lk:{n}", "lk:{n}:q", "lk:fences", "lk:epoch"};
	static const char *const client[] = {"lk:client:a"};
	const char *const *keys = lock;

	if (!strcmp(script->name, "latch_remove"))
		keys = removal;
	else if (!strncmp(script->name, "latch", 5))
		keys = latch;
	else if (!strncmp(script->name, "semaphore", 9))
		keys = semaphore;
	else if (is_of_quorum(script))
		keys = quorum;
	else if (!strncmp(script->name, "epoch", 5))
		keys = lock + 3;
	else if (script->keys == 1)
		keys = client;
	if (is_narrow) {
		argv[0] = keys[0];
		argv[1] = keys[3];
		return keys == semaphore ? 2 : 1;
	}
	memcpy(argv, keys, sizeof(*argv) * (size_t)script->keys);
	return script->keys;
}

/* Scripts that grant are told the marker that the client knows, and the end of the grace, behind so
 * many arguments. */
static const struct {
	const char *script;
	int args;
} told[] = {
	{"lock_ask", 6},      {"lock_leave", 4},      {"lock_renew", 5},
	{"semaphore_ask", 8}, {"semaphore_leave", 5}, {"semaphore_renew", 3},
	{"semaphore_set", 5}, {"lock_reclaim", 5},    {"semaphore_reclaim", 6},
	{"quorum_ask", 6},    {"quorum_leave", 7},    {"quorum_renew", 5},
};

void contract_epoch(const char *marker, const char *end_us)
{
	snprintf(known, sizeof(known), "%s", marker);
	snprintf(grace_end, sizeof(grace_end), "%s", end_us);
}

/* Insert them; returns the number of arguments. */
static int tell(const char *script, const char **argv, int first, int argc)
{
	for (size_t i = 0; i < sizeof(told) / sizeof(*told); i++) {
		int at = first + told[i].args;
		if (strcmp(script, told[i].script) != 0 || at > argc)
			continue;
		memmove(argv + at + 2, argv + at, sizeof(*argv) * (size_t)(argc - at));
		argv[at] = known;
		argv[at + 1] = grace_end;
		return argc + 2;
	}
	return argc;
}

/* In a Cluster the channels of a name are sharded, and the marker is no key of a script's: the
 * client compares it.  Returns the number of words. */
static int as_in_cluster(int argc, const char *const *argv, const char **words)
{
	int marker = 2 + atoi(argv[2]), count = 0;

	if (marker == 3 || refuses_marker || strcmp(argv[marker], "lk:epoch") != 0 ||
	    strcmp(lua_store_text(store, "GET", "lk:epoch", NULL), known) != 0)
		marker = 0;
	for (int i = 0; i < argc; i++) {
		if (marker && i == marker)
			continue;
		words[count++] = !strcmp(argv[i], CHANNELS) ? "lk:c:{n}:"
		                 : !strcmp(argv[i], "bell") ? LATCH_CHANNEL
		                                            : argv[i];
	}
	if (marker)
		words[2] = marker == 6 ? "3" : "4";
	return count;
}

/* The same call in a slot that moves, with the same keys: if all that the script declares exist,
 * the answer, the messages and the keys must be those of a server whose slots stay; if not, nothing
 * may change. */
static void run_while_slot_moves(const char *file, int line, int argc, const char *const *argv)
{
	struct lua_store_image *image = lua_store_save(store);
	const char *words[WORDS + 2];

	lua_store_set_time(moving, lua_store_time(store));
	lua_store_load(moving, image);
	lua_store_image_free(image);
	*lua_store_process(moving) = *lua_store_process(store);
	messages[0] = '\0';
	unheard = 0;
	argc = as_in_cluster(argc, argv, words);
	snprintf(moved_answer, sizeof(moved_answer), "%s",
	         lua_store_ask(moving, argc, words, NULL));
	snprintf(moved_messages, sizeof(moved_messages), "%s/%d", messages, unheard);
	was_refused = !strncmp(moved_answer, "-ASK ", 5) ||
	              !strncmp(moved_answer, "-TRYAGAIN ", 10) ||
	              !strncmp(moved_answer, "foreign", 7);
	if (was_refused)
		has_the_same_keys(file, line);
}

static void did_the_same(const char *file, int line, const char *answer)
{
	char all[sizeof(moved_messages)];

	if (was_refused)
		return;
	snprintf(all, sizeof(all), "%s/%d", messages, unheard);
	if (strcmp(answer, moved_answer) != 0 || strcmp(all, moved_messages) != 0)
		ck_abort_msg("%s:%d: in a slot that moves, the answer is\n%s%s\nand not\n%s%s",
		             file, line, moved_answer, moved_messages, answer, all);
	has_the_same_keys(file, line);
}

void contract_says(const char *file, int line, const char *expected, const char *word, ...)
{
	const struct lk__script *script = find(word);
	const char *argv[WORDS] = {word};
	char answer[4000], keys[8];
	int argc = 1, key_count = 0;
	va_list args;

	if (script) {
		key_count = add_keys(script, argv + 3);
		snprintf(keys, sizeof(keys), "%d", key_count);
		argv[0] = "EVAL";
		argv[1] = script->text;
		argv[2] = keys;
		argc = 3 + key_count;
	}
	va_start(args, word);
	while (argc < WORDS - 2 && (argv[argc] = va_arg(args, const char *)))
		argc++;
	va_end(args);
	if (script)
		argc = tell(script->name, argv, 3 + key_count, argc);
	if (script && !is_of_quorum(script))
		run_while_slot_moves(file, line, argc, argv);
	messages[0] = '\0';
	unheard = 0;
	snprintf(answer, sizeof(answer), "%s", lua_store_ask(store, argc, argv, NULL));
	if (script && !is_of_quorum(script))
		did_the_same(file, line, answer);
	if (strstr(answer, " script: "))
		*strstr(answer, " script: ") = '\0';
	for (char *at = answer; *at; at++)
		*at = *at == '\n' ? ' ' : *at;
	snprintf(answer + strlen(answer), sizeof(answer) - strlen(answer), "%s", messages);
	if (unheard)
		snprintf(answer + strlen(answer), sizeof(answer) - strlen(answer), " | d %d",
		         unheard);
	if (getenv("LK_RECORD")) {
		printf("%s:%d:%s\n", file, line, answer);
		fflush(stdout);
		return;
	}
	if (strcmp(answer, expected) != 0)
		ck_abort_msg("%s:%d: %s says\n%s\nand not\n%s", file, line, word, answer, expected);
}
