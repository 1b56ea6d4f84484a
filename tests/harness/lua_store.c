/* SPDX-License-Identifier: MIT
 * The commands that clients send to the Redis in memory: see lua_store.h. */
#include "lua_store.h"

#include "lua_store_parts.h"
#include "scripts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLACE_VARIABLE "LK_SCRIPT_REPLACE"

/* A text that EVAL or SCRIPT LOAD has sent, or may send. */
struct script {
	const struct lk__script *shipped; /* NULL = not one of the library's */
	char sha1[41];
	char *text; /* its own; NULL = shipped */
	size_t len;
	bool loaded;
	int compiled; /* 0 = not yet */
};

struct lua_store {
	struct lua_server server;
	struct lua_script_host *host;
	struct script *scripts; /* the library's first */
	size_t script_count, script_room;
	char *text; /* of the last reply */
};

/* ---- Scripts ------------------------------------------------------------------------------ */

static struct script *add_script(struct lua_store *store)
{
	if (store->script_count == store->script_room) {
		store->script_room = store->script_room * 2 + 32;
		store->scripts =
			realloc(store->scripts, store->script_room * sizeof(*store->scripts));
		if (!store->scripts)
			abort();
	}
	store->scripts[store->script_count] = (struct script){0};
	return &store->scripts[store->script_count++];
}

static struct lua_word text_of(const struct script *script)
{
	if (script->text)
		return (struct lua_word){script->text, script->len};
	return (struct lua_word){script->shipped->text, script->shipped->len};
}

/* Was it sent with that text?  A replaced script keeps its own digest. */
static bool came_as(const struct script *script, struct lua_word text)
{
	struct lua_word own = text_of(script);

	if (script->shipped)
		own = (struct lua_word){script->shipped->text, script->shipped->len};
	return own.len == text.len && !memcmp(own.bytes, text.bytes, text.len);
}

static struct script *find_text(struct lua_store *store, struct lua_word text)
{
	for (size_t i = 0; i < store->script_count; i++)
		if (came_as(&store->scripts[i], text))
			return &store->scripts[i];
	return NULL;
}

static struct script *find_digest(struct lua_store *store, struct lua_word digest)
{
	for (size_t i = 0; i < store->script_count; i++)
		if (lua_word_is(digest, store->scripts[i].sha1))
			return &store->scripts[i];
	return NULL;
}

static bool compile(struct lua_store *store, struct script *script, struct lk__buf *reply)
{
	if (!script->compiled)
		script->compiled = lua_script_compile(store->host, text_of(script), reply);
	return script->compiled != 0;
}

static void set_text(struct script *script, const char *bytes, size_t len)
{
	free(script->text);
	script->text = NULL;
	if (!bytes)
		return;
	script->text = malloc(len + 1);
	if (!script->text)
		abort();
	memcpy(script->text, bytes, len);
	script->text[len] = '\0';
	script->len = len;
}

/* The compiled script of that text; NULL if it does not compile: the reply has the error. */
static struct script *take_script(struct lua_store *store, struct lua_word text,
                                  struct lk__buf *reply)
{
	struct script *script = find_text(store, text);

	if (!script) {
		script = add_script(store);
		set_text(script, text.bytes, text.len);
		lua_sha1(text, script->sha1);
		if (!compile(store, script, reply)) {
			set_text(script, NULL, 0);
			store->script_count--;
			return NULL;
		}
	}
	script->loaded = true;
	return compile(store, script, reply) ? script : NULL;
}

/* False if there is no such script or the text does not compile. */
static bool replace(struct lua_store *store, const char *name, const char *text)
{
	struct lk__buf why = {0};

	for (size_t i = 0; i < store->script_count && store->scripts[i].shipped; i++) {
		struct script *script = &store->scripts[i];
		if (strcmp(name, script->shipped->name) != 0)
			continue;
		set_text(script, text, strlen(text));
		if (script->compiled)
			lua_script_forget(store->host, script->compiled);
		script->compiled = 0;
		compile(store, script, &why);
		lk__buf_fini(&why);
		return script->compiled != 0;
	}
	return false;
}

void lua_store_alter(struct lua_store *store, const char *name, const char *old,
                     const char *altered)
{
	for (int i = 0; lk__scripts[i]; i++) {
		const char *shipped = lk__scripts[i]->text, *at = strstr(shipped, old);
		char *text;
		if (strcmp(lk__scripts[i]->name, name) != 0 || !at)
			continue;
		if (asprintf(&text, "%.*s%s%s", (int)(at - shipped), shipped, altered,
		             at + strlen(old)) < 0 ||
		    !replace(store, name, text))
			break;
		free(text);
		return;
	}
	fprintf(stderr, "%s has no \"%s\", or does not compile without it\n", name, old);
	abort();
}

/* NAME:FILE */
static bool replace_from_file(struct lua_store *store, const char *what)
{
	const char *path = strchr(what, ':');
	FILE *file = path ? fopen(path + 1, "re") : NULL;
	char *name = path ? strndup(what, (size_t)(path - what)) : NULL, *text = NULL;
	size_t size = 0;
	bool good = file && name && getdelim(&text, &size, '\0', file) >= 0 &&
	            replace(store, name, text);

	if (file)
		fclose(file);
	free(name);
	free(text);
	return good;
}

static void replace_all(struct lua_store *store, const char *list)
{
	char *copy = strdup(list), *rest = copy, *what;

	if (!copy)
		abort();
	while ((what = strsep(&rest, ","))) {
		if (!replace_from_file(store, what)) {
			fprintf(stderr, REPLACE_VARIABLE ": cannot do %s\n", what);
			exit(2);
		}
	}
	free(copy);
}

struct lua_store *lua_store_new(lua_store_publish_fn *publish, void *arg)
{
	struct lua_store *store = calloc(1, sizeof(*store));
	const char *what = getenv(REPLACE_VARIABLE);

	if (!store)
		abort();
	store->server.publish = publish;
	store->server.arg = arg;
	lua_commands_init(&store->server);
	store->host = lua_script_host_new(&store->server);
	for (int i = 0; lk__scripts[i]; i++) {
		struct script *script = add_script(store);
		script->shipped = lk__scripts[i];
		memcpy(script->sha1, lk__scripts[i]->sha1, sizeof(script->sha1));
	}
	if (what)
		replace_all(store, what);
	store->server.process = (struct lua_store_process){.run = 1, .replid = 1000};
	return store;
}

void lua_store_free(struct lua_store *store)
{
	if (!store)
		return;
	lua_script_host_free(store->host);
	lua_keys_flush(&store->server.keys);
	for (size_t i = 0; i < store->script_count; i++)
		free(store->scripts[i].text);
	free(store->scripts);
	free(store->text);
	free(store);
}

void lua_store_load_scripts(struct lua_store *store)
{
	for (int i = 0; lk__scripts[i]; i++)
		lua_store_text(store, "SCRIPT", "LOAD", lk__scripts[i]->text, NULL);
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

const struct lua_keys *lua_store_keys(const struct lua_store *store)
{
	return &store->server.keys;
}

struct lua_store_process *lua_store_process(struct lua_store *store)
{
	return &store->server.process;
}

void lua_store_restart(struct lua_store *store)
{
	struct lua_store_process *process = &store->server.process;

	*process = (struct lua_store_process){
		.run = process->run + 1,
		.replid = process->replid + 1,
		.began_us = store->server.keys.now_us,
	};
}

void lua_store_set_full(struct lua_store *store, bool full)
{
	store->server.full = full;
}

void lua_store_set_migrating(struct lua_store *store, const char *target)
{
	store->server.target = target;
}

void lua_store_refuse(struct lua_store *store, const char *command, const char *key)
{
	store->server.refused = command;
	store->server.refused_key = key;
}

/* ---- All keys ----------------------------------------------------------------------------- */

struct lua_store_image *lua_store_save(const struct lua_store *store)
{
	return lua_keys_save(&store->server.keys);
}

void lua_store_load(struct lua_store *store, const struct lua_store_image *image)
{
	lua_keys_load(&store->server.keys, image);
	lua_keys_expire(&store->server.keys);
}

void lua_store_dump(const struct lua_store *store, struct lk__buf *out)
{
	lua_keys_dump(&store->server.keys, out);
}

void lua_store_each_key(const struct lua_store *store, lua_store_key_fn *fn, void *arg)
{
	struct lua_key **all = lua_keys_sorted(&store->server.keys);

	for (struct lua_key **key = all; *key; key++)
		fn(arg, (*key)->name, (*key)->name_len, lua_type_name((*key)->type),
		   (*key)->expires_ms);
	free(all);
}

/* ---- Commands of clients ------------------------------------------------------------------ */

/* Do the keys allow a script to run?  If not, the reply has the redirection. */
static bool has_keys(struct lua_store *store, int count, const struct lua_word *keys,
                     struct lk__buf *reply)
{
	int there = 0;

	for (int i = 0; i < count; i++)
		there += lua_keys_find(&store->server.keys, keys[i]) != NULL;
	if (!store->server.target || there == count)
		return true;
	if (there)
		lua_reply_error(reply, "TRYAGAIN Multiple keys request during rehashing of slot");
	else
		lua_reply_error(reply, "ASK %s", store->server.target);
	return false;
}

/* EVAL text keys ..., EVALSHA digest keys ... */
static void eval(struct lua_store *store, bool by_digest, int argc, const struct lua_word *argv,
                 struct lk__buf *reply)
{
	struct script *script;
	int64_t keys;

	if (argc < 3) {
		lua_reply_error(reply, "ERR wrong number of arguments for '%s' command",
		                by_digest ? "evalsha" : "eval");
		return;
	}
	if (!lua_word_number(argv[2], &keys)) {
		lua_reply_error(reply, "ERR value is not an integer or out of range");
		return;
	}
	if (keys > argc - 3 || keys < 0) {
		lua_reply_error(reply, keys < 0 ? "ERR Number of keys can't be negative"
		                                : "ERR Number of keys can't be greater than number "
		                                  "of args");
		return;
	}
	if (!has_keys(store, (int)keys, argv + 3, reply))
		return;
	script = by_digest ? find_digest(store, argv[1]) : take_script(store, argv[1], reply);
	if (script && script->loaded && compile(store, script, reply))
		lua_script_run(store->host, script->compiled, script->sha1, (int)keys, argc - 3,
		               argv + 3, reply);
	else if (by_digest)
		lua_reply_error(reply, "NOSCRIPT No matching script. Please use EVAL.");
}

/* SCRIPT LOAD text, SCRIPT EXISTS digest ..., SCRIPT FLUSH [ASYNC|SYNC] */
static void script_command(struct lua_store *store, int argc, const struct lua_word *argv,
                           struct lk__buf *reply)
{
	struct script *script;

	if (argc <= 3 && lua_word_is(argv[1], "FLUSH")) {
		for (size_t i = 0; i < store->script_count; i++)
			store->scripts[i].loaded = false;
		lua_reply_status(reply, "OK");
	} else if (argc == 3 && lua_word_is(argv[1], "LOAD")) {
		script = take_script(store, argv[2], reply);
		if (script)
			lua_reply_text(reply, script->sha1, 40);
	} else if (argc >= 3 && lua_word_is(argv[1], "EXISTS")) {
		lua_reply_array(reply, (size_t)argc - 2);
		for (int i = 2; i < argc; i++) {
			script = find_digest(store, argv[i]);
			lua_reply_number(reply, script && script->loaded);
		}
	} else {
		lua_reply_error(reply,
		                "ERR unknown subcommand or wrong number of arguments for "
		                "'%.*s'. Try SCRIPT HELP.",
		                (int)argv[1].len, argv[1].bytes);
	}
}

void lua_store_execute(struct lua_store *store, int argc, const struct lua_word *argv,
                       struct lk__buf *reply)
{
	lua_keys_expire(&store->server.keys);
	if (argc > 1 && lua_word_is(argv[0], "EVALSHA"))
		eval(store, true, argc, argv, reply);
	else if (argc > 1 && lua_word_is(argv[0], "EVAL"))
		eval(store, false, argc, argv, reply);
	else if (argc > 1 && lua_word_is(argv[0], "SCRIPT"))
		script_command(store, argc, argv, reply);
	else
		lua_command_run(&store->server, argc, argv, reply);
}

/* The number after a '*' or '$'; move on to the next line.  The bytes come from a client of ours;
 * malformed ones end the test. */
static size_t take_count(const char **at, const char *end, char type)
{
	size_t number = 0;

	if (*at >= end || **at != type)
		abort();
	for (++*at; *at < end && **at >= '0' && **at <= '9'; ++*at)
		number = number * 10 + (size_t)(**at - '0');
	if (end - *at < 2 || memcmp(*at, "\r\n", 2) != 0)
		abort();
	*at += 2;
	return number;
}

void lua_store_run(struct lua_store *store, const char *bytes, size_t len, struct lk__buf *reply)
{
	const char *at = bytes, *end = bytes + len;
	size_t count = take_count(&at, end, '*');
	struct lua_word words[LUA_WORDS_MAX];

	if (!count || count > LUA_WORDS_MAX)
		abort();
	for (size_t i = 0; i < count; i++) {
		words[i].len = take_count(&at, end, '$');
		words[i].bytes = at;
		if ((size_t)(end - at) < words[i].len + 2)
			abort();
		at += words[i].len + 2;
	}
	if (at != end)
		abort();
	store->server.wrote = false;
	lua_store_execute(store, (int)count, words, reply);
}

bool lua_store_wrote(const struct lua_store *store)
{
	return store->server.wrote;
}

/* ---- Commands of tests -------------------------------------------------------------------- */

struct lk__resp *lua_store_parse(const struct lk__buf *reply)
{
	struct lk__resp_reader *reader = lk__resp_reader_new();
	struct lk__resp *resp;
	struct lk__why why;

	if (!reader || lk__resp_feed(reader, reply->data, reply->len, &why) ||
	    lk__resp_next(reader, &resp, &why) || !resp)
		abort();
	lk__resp_reader_free(reader);
	return resp;
}

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
	lua_store_execute(store, argc, words, &reply);
	resp = lua_store_parse(&reply);
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
