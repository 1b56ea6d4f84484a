/* SPDX-License-Identifier: MIT
 * The commands of the Redis in memory: those of keys and strings, TIME and PUBLISH.  What the
 * scripts do not use is not there; a command that a new script needs is one function and one row.
 */
#include "lua_store_parts.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char not_integer[] = "ERR value is not an integer or out of range";

bool lua_word_is(struct lua_word word, const char *text)
{
	return word.len == strlen(text) && !strncasecmp(word.bytes, text, word.len);
}

bool lua_word_number(struct lua_word word, int64_t *number)
{
	char text[32], *end;

	if (!word.len || word.len >= sizeof(text) || strspn(word.bytes, "-0123456789") < word.len)
		return false;
	memcpy(text, word.bytes, word.len);
	text[word.len] = '\0';
	*number = strtoll(text, &end, 10);
	return !*end;
}

bool lua_key_of(const struct lua_server *server, struct lua_word name, enum lua_type type,
                struct lua_key **key, struct lk__buf *reply)
{
	*key = lua_keys_find(&server->keys, name);
	if (!*key || (*key)->type == type)
		return true;
	lua_reply_error(reply, "WRONGTYPE Operation against a key holding the wrong kind of value");
	return false;
}

/* ---- Keys --------------------------------------------------------------------------------- */

static void run_del(struct lua_server *server, int argc, const struct lua_word *argv,
                    struct lk__buf *reply)
{
	int64_t count = 0;

	for (int i = 1; i < argc; i++) {
		struct lua_key *key = lua_keys_find(&server->keys, argv[i]);
		if (key) {
			lua_keys_remove(&server->keys, key);
			count++;
		}
	}
	lua_reply_number(reply, count);
}

static void run_exists(struct lua_server *server, int argc, const struct lua_word *argv,
                       struct lk__buf *reply)
{
	int64_t count = 0;

	for (int i = 1; i < argc; i++)
		count += lua_keys_find(&server->keys, argv[i]) != NULL;
	lua_reply_number(reply, count);
}

static void run_type(struct lua_server *server, int argc, const struct lua_word *argv,
                     struct lk__buf *reply)
{
	static const char *const names[] = {
		[LUA_STRING] = "string", [LUA_HASH] = "hash", [LUA_ZSET] = "zset"};
	const struct lua_key *key = lua_keys_find(&server->keys, argv[1]);

	(void)argc;
	lua_reply_status(reply, key ? names[key->type] : "none");
}

/* An end that has passed is the key's end at once. */
static void set_end(struct lua_server *server, struct lua_key *key, int64_t expires_ms)
{
	if (expires_ms <= lua_keys_now_ms(&server->keys))
		lua_keys_remove(&server->keys, key);
	else
		key->expires_ms = expires_ms;
}

static void run_pexpire(struct lua_server *server, int argc, const struct lua_word *argv,
                        struct lk__buf *reply)
{
	struct lua_key *key = lua_keys_find(&server->keys, argv[1]);
	int64_t ms;

	(void)argc;
	if (!lua_word_number(argv[2], &ms)) {
		lua_reply_error(reply, "%s", not_integer);
		return;
	}
	if (key)
		set_end(server, key, lua_keys_now_ms(&server->keys) + ms);
	lua_reply_number(reply, key != NULL);
}

static void run_persist(struct lua_server *server, int argc, const struct lua_word *argv,
                        struct lk__buf *reply)
{
	struct lua_key *key = lua_keys_find(&server->keys, argv[1]);
	bool had = key && key->expires_ms >= 0;

	(void)argc;
	if (had)
		key->expires_ms = -1;
	lua_reply_number(reply, had);
}

static void run_pttl(struct lua_server *server, int argc, const struct lua_word *argv,
                     struct lk__buf *reply)
{
	const struct lua_key *key = lua_keys_find(&server->keys, argv[1]);
	int64_t left_ms = -2;

	(void)argc;
	if (key)
		left_ms =
			key->expires_ms < 0 ? -1 : key->expires_ms - lua_keys_now_ms(&server->keys);
	lua_reply_number(reply, left_ms);
}

/* ---- Strings ------------------------------------------------------------------------------ */

static void run_get(struct lua_server *server, int argc, const struct lua_word *argv,
                    struct lk__buf *reply)
{
	struct lua_key *key;

	(void)argc;
	if (!lua_key_of(server, argv[1], LUA_STRING, &key, reply))
		return;
	if (key)
		lua_reply_text(reply, key->text, key->text_len);
	else
		lua_reply_nil(reply);
}

/* SET key value [PX ms] */
static void run_set(struct lua_server *server, int argc, const struct lua_word *argv,
                    struct lk__buf *reply)
{
	struct lua_key *key = lua_keys_find(&server->keys, argv[1]);
	int64_t ms = 0;

	if (argc != 3 && (argc != 5 || !lua_word_is(argv[3], "PX"))) {
		lua_reply_error(reply, "ERR syntax error");
		return;
	}
	if (argc == 5 && !lua_word_number(argv[4], &ms)) {
		lua_reply_error(reply, "%s", not_integer);
		return;
	}
	if (argc == 5 && ms <= 0) {
		lua_reply_error(reply, "ERR invalid expire time in 'set' command");
		return;
	}
	if (key)
		lua_keys_remove(&server->keys, key);
	key = lua_keys_make(&server->keys, argv[1], LUA_STRING);
	lua_key_set_text(key, argv[2]);
	if (argc == 5)
		key->expires_ms = lua_keys_now_ms(&server->keys) + ms;
	lua_reply_status(reply, "OK");
}

/* ---- The server --------------------------------------------------------------------------- */

static void reply_decimal(struct lk__buf *reply, int64_t number)
{
	struct lk__buf text = {0};

	lua_reply_number(&text, number); /* ":" digits and the line's end */
	lua_reply_text(reply, text.data + 1, text.len - 3);
	lk__buf_fini(&text);
}

static void run_time(struct lua_server *server, int argc, const struct lua_word *argv,
                     struct lk__buf *reply)
{
	(void)argc;
	(void)argv;
	lua_reply_array(reply, 2);
	reply_decimal(reply, server->keys.now_us / 1000000);
	reply_decimal(reply, server->keys.now_us % 1000000);
}

static void run_publish(struct lua_server *server, int argc, const struct lua_word *argv,
                        struct lk__buf *reply)
{
	char channel[300];
	size_t len = argv[1].len < sizeof(channel) ? argv[1].len : sizeof(channel) - 1;

	(void)argc;
	memcpy(channel, argv[1].bytes, len);
	channel[len] = '\0';
	lua_reply_number(reply, server->publish ? server->publish(server->arg, channel,
	                                                          argv[2].bytes, argv[2].len)
	                                        : 0);
}

static void run_flushall(struct lua_server *server, int argc, const struct lua_word *argv,
                         struct lk__buf *reply)
{
	(void)argc;
	(void)argv;
	lua_keys_flush(&server->keys);
	lua_reply_status(reply, "OK");
}

/* ---- The table ---------------------------------------------------------------------------- */

static const struct lua_command plain_commands[] = {
	{"DEL", -2, run_del},        {"EXISTS", -2, run_exists},    {"TYPE", 2, run_type},
	{"PEXPIRE", 3, run_pexpire}, {"PERSIST", 2, run_persist},   {"PTTL", 2, run_pttl},
	{"GET", 2, run_get},         {"SET", -3, run_set},          {"TIME", 1, run_time},
	{"PUBLISH", 3, run_publish}, {"FLUSHALL", 1, run_flushall}, {NULL, 0, NULL},
};

static const struct lua_command *find(const struct lua_command *commands, struct lua_word name)
{
	while (commands->name && !lua_word_is(name, commands->name))
		commands++;
	return commands->name ? commands : NULL;
}

void lua_command_run(struct lua_server *server, int argc, const struct lua_word *argv,
                     struct lk__buf *reply)
{
	const struct lua_command *command = find(plain_commands, argv[0]);

	if (!command)
		command = find(lua_item_commands, argv[0]);
	if (!command) {
		lua_reply_error(reply, "ERR unknown command '%.*s'", (int)argv[0].len,
		                argv[0].bytes);
		return;
	}
	if (argc < abs(command->arity) || (command->arity > 0 && argc > command->arity)) {
		lua_reply_error(reply, "ERR wrong number of arguments for '%s' command",
		                command->name);
		return;
	}
	command->run(server, argc, argv, reply);
}
