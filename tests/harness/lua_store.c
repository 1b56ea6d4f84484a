/* SPDX-License-Identifier: MIT
 * What a client says to the Redis in memory: see lua_store.h. */
#include "lua_store.h"

#include "lua_store_parts.h"
#include "scripts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCRIPTS_MAX 64

struct lua_store {
	struct lua_server server;
	struct lua_script_host *host;
	bool loaded[SCRIPTS_MAX]; /* by index in lk__scripts */
	char *text;               /* of the last answer */
};

struct lua_store *lua_store_new(lua_store_publish_fn *publish, void *arg)
{
	struct lua_store *store = calloc(1, sizeof(*store));

	if (!store)
		abort();
	store->server.publish = publish;
	store->server.arg = arg;
	store->host = lua_script_host_new(&store->server);
	return store;
}

void lua_store_free(struct lua_store *store)
{
	if (!store)
		return;
	lua_script_host_free(store->host);
	lua_keys_flush(&store->server.keys);
	free(store->text);
	free(store);
}

void lua_store_set_time(struct lua_store *store, int64_t now_us)
{
	store->server.keys.now_us = now_us;
	lua_keys_expire(&store->server.keys);
}

int64_t lua_store_time(const struct lua_store *store)
{
	return store->server.keys.now_us;
}

/* ---- Commands of clients ------------------------------------------------------------------ */

static int known_script(struct lua_word word, bool by_digest)
{
	for (int i = 0; lk__scripts[i] && i < SCRIPTS_MAX; i++) {
		const char *bytes = by_digest ? lk__scripts[i]->sha1 : lk__scripts[i]->text;
		size_t len = by_digest ? 40 : lk__scripts[i]->len;
		if (len == word.len && !memcmp(bytes, word.bytes, len))
			return i;
	}
	return -1;
}

/* EVAL text keys ..., EVALSHA digest keys ... */
static void eval(struct lua_store *store, bool by_digest, int argc, const struct lua_word *argv,
                 struct lk__buf *reply)
{
	struct lua_word text = argv[1];
	int index = known_script(text, by_digest);
	int64_t keys;

	if (argc < 3 || !lua_word_number(argv[2], &keys) || keys < 0 || keys > argc - 3) {
		lua_reply_error(reply, "ERR Number of keys can't be greater than number of args");
		return;
	}
	if (by_digest && (index < 0 || !store->loaded[index])) {
		lua_reply_error(reply, "NOSCRIPT No matching script. Please use EVAL.");
		return;
	}
	if (index >= 0) {
		store->loaded[index] = true;
		text = (struct lua_word){lk__scripts[index]->text, lk__scripts[index]->len};
	}
	lua_script_run(store->host, text, index >= 0 ? lk__scripts[index]->name : "its own",
	               (int)keys, argc - 3, argv + 3, reply);
}

/* SCRIPT LOAD text, SCRIPT FLUSH */
static void script(struct lua_store *store, int argc, const struct lua_word *argv,
                   struct lk__buf *reply)
{
	int index = argc == 3 ? known_script(argv[2], false) : -1;

	if (argc == 2 && lua_word_is(argv[1], "FLUSH")) {
		memset(store->loaded, 0, sizeof(store->loaded));
		lua_reply_status(reply, "OK");
	} else if (index >= 0 && lua_word_is(argv[1], "LOAD")) {
		store->loaded[index] = true;
		lua_reply_text(reply, lk__scripts[index]->sha1, 40);
	} else {
		lua_reply_error(reply, "ERR the store in memory knows the library's scripts only");
	}
}

static void dispatch(struct lua_store *store, int argc, const struct lua_word *argv,
                     struct lk__buf *reply)
{
	lua_keys_expire(&store->server.keys);
	if (argc > 1 && lua_word_is(argv[0], "EVAL"))
		eval(store, false, argc, argv, reply);
	else if (argc > 1 && lua_word_is(argv[0], "EVALSHA"))
		eval(store, true, argc, argv, reply);
	else if (argc > 1 && lua_word_is(argv[0], "SCRIPT"))
		script(store, argc, argv, reply);
	else
		lua_command_run(&store->server, argc, argv, reply);
}

/* The one value in those bytes. */
static struct lk__resp *parse(const char *bytes, size_t len)
{
	struct lk__resp_reader *reader = lk__resp_reader_new();
	struct lk__resp *resp;
	struct lk__why why;

	if (!reader || lk__resp_feed(reader, bytes, len, &why) ||
	    lk__resp_next(reader, &resp, &why) || !resp)
		abort();
	lk__resp_reader_free(reader);
	return resp;
}

void lua_store_run(struct lua_store *store, const char *bytes, size_t len, struct lk__buf *reply)
{
	struct lk__resp *resp = parse(bytes, len);
	struct lua_word words[LUA_WORDS_MAX];

	if (resp->type != LK__RESP_ARRAY || !resp->len || resp->len > LUA_WORDS_MAX)
		abort();
	for (size_t i = 0; i < resp->len; i++)
		words[i] = (struct lua_word){resp->elements[i]->str, resp->elements[i]->len};
	dispatch(store, (int)resp->len, words, reply);
	lk__resp_free(resp);
}

/* ---- Commands of tests -------------------------------------------------------------------- */

static void append(FILE *out, const struct lk__resp *resp)
{
	switch (resp->type) {
	case LK__RESP_ERROR:
		fputc('-', out);
		fwrite(resp->str, 1, resp->len, out);
		break;
	case LK__RESP_STRING:
	case LK__RESP_STATUS:
		fwrite(resp->str, 1, resp->len, out);
		break;
	case LK__RESP_INTEGER:
		fprintf(out, "%lld", (long long)resp->integer);
		break;
	case LK__RESP_ARRAY:
		for (size_t i = 0; i < resp->len; i++) {
			if (i)
				fputc('\n', out);
			append(out, resp->elements[i]);
		}
		break;
	default:
		break;
	}
}

const char *lua_store_ask(struct lua_store *store, int argc, const char *const *argv,
                          const size_t *lens)
{
	struct lua_word words[LUA_WORDS_MAX];
	struct lk__buf reply = {0};
	struct lk__resp *resp;
	size_t size;
	FILE *out;

	if (argc > LUA_WORDS_MAX)
		abort();
	for (int i = 0; i < argc; i++)
		words[i] = (struct lua_word){argv[i], lens ? lens[i] : strlen(argv[i])};
	dispatch(store, argc, words, &reply);
	resp = parse(reply.data, reply.len);
	lk__buf_fini(&reply);
	free(store->text);
	store->text = NULL;
	out = open_memstream(&store->text, &size);
	if (!out)
		abort();
	append(out, resp);
	fclose(out);
	lk__resp_free(resp);
	return store->text;
}

const char *lua_store_text(struct lua_store *store, const char *word, ...)
{
	const char *argv[LUA_WORDS_MAX];
	va_list args;
	int argc = 0;

	va_start(args, word);
	for (; word && argc < LUA_WORDS_MAX; word = va_arg(args, const char *))
		argv[argc++] = word;
	va_end(args);
	return lua_store_ask(store, argc, argv, NULL);
}
