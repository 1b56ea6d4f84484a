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

static struct lua_store *store;
static char messages[2000];
static int unheard; /* messages to the channels of dead clients */
static struct lk__buf saved; /* all keys */

static int publish(void *arg, const char *channel, const char *text, size_t len)
{
	size_t end = strlen(messages);

	(void)arg;
	if (!strncmp(channel, CHANNELS, strlen(CHANNELS)))
		channel += strlen(CHANNELS);
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
	contract_at(0);
	lua_store_text(store, "SET", "lk:epoch", "1 a 1", NULL);
	contract_epoch("1 a 1", "0");
}

void contract_stop(void)
{
	lua_store_free(store);
	lk__buf_fini(&saved);
}

void contract_at(int64_t ms)
{
	lua_store_set_time(store, START_US + ms * 1000);
}

void contract_full(bool full)
{
	lua_store_set_full(store, full);
}

void contract_refuse(const char *command, const char *key)
{
	lua_store_refuse(store, command, key);
}

struct lua_store_process *contract_process(void)
{
	return lua_store_process(store);
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

static const struct lk__script *find(const char *name)
{
	for (int i = 0; lk__scripts[i]; i++)
		if (!strcmp(lk__scripts[i]->name, name))
			return lk__scripts[i];
	return NULL;
}

/* The keys of a script, as the library names them. */
static int add_keys(const struct lk__script *script, const char **argv)
{
	static const char *const lock[] = {"lk:{n}", "lk:{n}:q", "lk:fence", "lk:epoch"};
	static const char *const semaphore[] = {"lk:{n}", "lk:{n}:q", "lk:fence", "lk:{n}:h",
	                                        "lk:epoch"};
	static const char *const latch[] = {"lk:{n}", "lk:{n}:s", "lk:fence", "lk:{n}:q"};
	static const char *const removal[] = {"lk:{n}", "lk:{n}:s", "lk:{n}:q"};
	static const char *const client[] = {"lk:client:a"};
	const char *const *keys = lock;

	if (!strcmp(script->name, "latch_remove"))
		keys = removal;
	else if (!strncmp(script->name, "latch", 5))
		keys = latch;
	else if (!strncmp(script->name, "semaphore", 9))
		keys = semaphore;
	else if (!strncmp(script->name, "epoch", 5))
		keys = lock + 3;
	else if (script->keys == 1)
		keys = client;
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
};

static char known[120], grace_end[24];

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

void contract_says(const char *file, int line, const char *expected, const char *word, ...)
{
	const struct lk__script *script = find(word);
	const char *argv[WORDS] = {word};
	char answer[4000], keys[8];
	int argc = 1;
	va_list args;

	if (script) {
		snprintf(keys, sizeof(keys), "%d", script->keys);
		argv[0] = "EVAL";
		argv[1] = script->text;
		argv[2] = keys;
		argc = 3 + add_keys(script, argv + 3);
	}
	va_start(args, word);
	while (argc < WORDS - 2 && (argv[argc] = va_arg(args, const char *)))
		argc++;
	va_end(args);
	if (script)
		argc = tell(script->name, argv, 3 + script->keys, argc);
	messages[0] = '\0';
	unheard = 0;
	snprintf(answer, sizeof(answer), "%s", lua_store_ask(store, argc, argv, NULL));
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
