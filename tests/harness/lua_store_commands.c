/* SPDX-License-Identifier: MIT
 * The commands of the Redis in memory: those of keys and strings, TIME and PUBLISH. Commands that
 * no script uses are missing; a command for a new script needs one function and one row. */
#include "lua_store_parts.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char not_integer[] = "ERR value is not an integer or out of range";

bool lua_word_is(struct lua_word word, const char *text)
{
	return word.len == strlen(text) && !strncasecmp(word.bytes, text, word.len);
}

/* As strict as the server: rejects "09", "+1", "-0" and numbers that are too big. */
bool lua_word_number(struct lua_word word, int64_t *number)
{
	bool negative = word.len && word.bytes[0] == '-';
	size_t first = negative, digits = word.len - first;
	uint64_t sum = 0, limit = (uint64_t)INT64_MAX + negative;

	if (!digits || (word.bytes[first] == '0' && word.len > 1))
		return false;
	for (size_t i = first; i < word.len; i++) {
		unsigned digit = (unsigned char)word.bytes[i] - '0';
		if (digit > 9 || sum > (limit - digit) / 10)
			return false;
		sum = sum * 10 + digit;
	}
	*number = negative ? (int64_t)-sum : (int64_t)sum;
	return true;
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

const char *lua_type_name(enum lua_type type)
{
	static const char *const names[] = {
		[LUA_STRING] = "string", [LUA_HASH] = "hash", [LUA_ZSET] = "zset"};

	return names[type];
}

static void run_type(struct lua_server *server, int argc, const struct lua_word *argv,
                     struct lk__buf *reply)
{
	const struct lua_key *key = lua_keys_find(&server->keys, argv[1]);

	(void)argc;
	lua_reply_status(reply, key ? lua_type_name(key->type) : "none");
}

/* The expiry that many ms from now; false if it is out of range. */
static bool end_of(const struct lua_server *server, int64_t ms, int64_t *expires_ms)
{
	return !__builtin_add_overflow(lua_keys_now_ms(&server->keys), ms, expires_ms);
}

/* An expiry in the past removes the key at once. */
static void run_pexpire(struct lua_server *server, int argc, const struct lua_word *argv,
                        struct lk__buf *reply)
{
	struct lua_key *key = lua_keys_find(&server->keys, argv[1]);
	int64_t ms, expires_ms;

	(void)argc;
	if (!lua_word_number(argv[2], &ms)) {
		lua_reply_error(reply, "%s", not_integer);
		return;
	}
	if (!end_of(server, ms, &expires_ms)) {
		lua_reply_error(reply, "ERR invalid expire time in 'pexpire' command");
		return;
	}
	if (key && expires_ms <= lua_keys_now_ms(&server->keys))
		lua_keys_remove(&server->keys, key);
	else if (key)
		lua_keys_set_end(&server->keys, key, expires_ms);
	lua_reply_number(reply, key != NULL);
}

static void run_persist(struct lua_server *server, int argc, const struct lua_word *argv,
                        struct lk__buf *reply)
{
	struct lua_key *key = lua_keys_find(&server->keys, argv[1]);
	bool had = key && key->expires_ms >= 0;

	(void)argc;
	if (had)
		lua_keys_set_end(&server->keys, key, -1);
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
	int64_t ms = 0, expires_ms = -1;

	if (argc != 3 && (argc != 5 || !lua_word_is(argv[3], "PX"))) {
		lua_reply_error(reply, "ERR syntax error");
		return;
	}
	if (argc == 5 && !lua_word_number(argv[4], &ms)) {
		lua_reply_error(reply, "%s", not_integer);
		return;
	}
	if (argc == 5 && (ms <= 0 || !end_of(server, ms, &expires_ms))) {
		lua_reply_error(reply, "ERR invalid expire time in 'set' command");
		return;
	}
	if (key)
		lua_keys_remove(&server->keys, key);
	key = lua_keys_make(&server->keys, argv[1], LUA_STRING);
	lua_key_set_text(key, argv[2]);
	lua_keys_set_end(&server->keys, key, expires_ms);
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
	server->process.flushed = true;
	lua_reply_status(reply, "OK");
}

static void run_wait(struct lua_server *server, int argc, const struct lua_word *argv,
                     struct lk__buf *reply)
{
	(void)argc;
	(void)argv;
	lua_reply_number(reply, server->process.replicas);
}

/* ---- The table ---------------------------------------------------------------------------- */

static const struct lua_command plain_commands[] = {
	{"DEL", -2, run_del, LUA_WRITES, LUA_ALL_KEYS},
	{"EXISTS", -2, run_exists, LUA_READS, LUA_ALL_KEYS},
	{"TYPE", 2, run_type, LUA_READS, LUA_ONE_KEY},
	{"PEXPIRE", 3, run_pexpire, LUA_WRITES, LUA_ONE_KEY},
	{"PERSIST", 2, run_persist, LUA_WRITES, LUA_ONE_KEY},
	{"PTTL", 2, run_pttl, LUA_READS, LUA_ONE_KEY},
	{"GET", 2, run_get, LUA_READS, LUA_ONE_KEY},
	{"SET", -3, run_set, LUA_GROWS, LUA_ONE_KEY},
	{"TIME", 1, run_time, LUA_READS, LUA_NO_KEY},
	{"PUBLISH", 3, run_publish, LUA_READS, LUA_NO_KEY},
	{"SPUBLISH", 3, run_publish, LUA_READS, LUA_NO_KEY},
	{"FLUSHALL", 1, run_flushall, LUA_WRITES, LUA_NO_KEY},
	{"INFO", -1, lua_run_info, LUA_READS, LUA_NO_KEY},
	{"WAIT", 3, run_wait, LUA_READS, LUA_NO_KEY},
	{NULL, 0, NULL, LUA_READS, LUA_NO_KEY},
};

/* The slot of a command; an empty one if it is unknown. */
static size_t slot_of(const struct lua_server *server, struct lua_word name)
{
	size_t slot = name.len;

	for (size_t i = 0; i < name.len; i++)
		slot = slot * 31 + (size_t)(name.bytes[i] | 0x20); /* letters in lower case */
	slot &= LUA_COMMAND_SLOTS - 1;
	while (server->commands[slot] && !lua_word_is(name, server->commands[slot]->name))
		slot = (slot + 1) & (LUA_COMMAND_SLOTS - 1);
	return slot;
}

static void add(struct lua_server *server, const struct lua_command *commands)
{
	for (; commands->name; commands++) {
		struct lua_word name = {commands->name, strlen(commands->name)};
		server->commands[slot_of(server, name)] = commands;
	}
}

void lua_commands_init(struct lua_server *server)
{
	add(server, plain_commands);
	add(server, lua_item_commands);
}

const struct lua_command *lua_command_find(const struct lua_server *server, struct lua_word name)
{
	return server->commands[slot_of(server, name)];
}

bool lua_command_takes(const struct lua_command *command, int argc)
{
	return command->arity < 0 ? argc >= -command->arity : argc == command->arity;
}

bool lua_command_misses(const struct lua_server *server, const struct lua_command *command,
                        int argc, const struct lua_word *argv)
{
	int last = command->keys == LUA_ALL_KEYS ? argc - 1 : command->keys == LUA_ONE_KEY;

	for (int i = 1; i <= last; i++)
		if (!lua_keys_find(&server->keys, argv[i]))
			return true;
	return false;
}

void lua_command_run(struct lua_server *server, int argc, const struct lua_word *argv,
                     struct lk__buf *reply)
{
	const struct lua_command *command = lua_command_find(server, argv[0]);

	if (!command)
		lua_reply_error(reply, "ERR unknown command '%.*s'", (int)argv[0].len,
		                argv[0].bytes);
	else if (!lua_command_takes(command, argc))
		lua_reply_error(reply, "ERR wrong number of arguments for '%s' command",
		                command->name);
	else if (server->full && command->effect == LUA_GROWS)
		lua_reply_error(reply, "%s", LUA_FULL);
	else
		command->run(server, argc, argv, reply);
}
