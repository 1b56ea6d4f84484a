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
}

void contract_stop(void)
{
	lua_store_free(store);
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
	static const char *const lock[] = {"lk:{n}", "lk:{n}:q", "lk:fence", "lk:{n}:h"};
	static const char *const latch[] = {"lk:{n}", "lk:{n}:s", "lk:fence", "lk:{n}:q"};
	static const char *const removal[] = {"lk:{n}", "lk:{n}:s", "lk:{n}:q"};
	static const char *const client[] = {"lk:client:a"};
	const char *const *keys = lock;

	if (!strcmp(script->name, "latch_remove"))
		keys = removal;
	else if (!strncmp(script->name, "latch", 5))
		keys = latch;
	else if (script->keys == 1)
		keys = client;
	memcpy(argv, keys, sizeof(*argv) * (size_t)script->keys);
	return script->keys;
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
	while (argc < WORDS && (argv[argc] = va_arg(args, const char *)))
		argc++;
	va_end(args);
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
