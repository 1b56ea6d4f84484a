/* SPDX-License-Identifier: MIT
 * Run scripts: a Lua 5.1 with the globals of a server's, and the conversion of values between Lua
 * and the protocol, as the server does it.  What our scripts do not use, such as cjson, bit,
 * loadstring and math.random, is missing.  A Lua error is a longjmp(): no memory that must be freed
 * may be held where one can happen. */
#include "lua_store_parts.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSTRUCTIONS_MAX 5000000 /* a script with more has an endless loop */

struct lua_script_host {
	lua_State *lua;
	struct lua_server *server;
	struct lk__buf reply; /* of the running command; kept, so that a jump leaks nothing */
};

/* ---- From the protocol to Lua ------------------------------------------------------------- */

/* The number in the line that begins there; move past the line's end. */
static long long take_number(const char *at, const char **end)
{
	bool negative = *at == '-';
	unsigned long long number = 0;

	for (at += negative; *at != '\r'; at++)
		number = number * 10 + (unsigned long long)(*at - '0');
	*end = at;
	return (long long)(negative ? -number : number);
}

static void push_field(lua_State *lua, const char *name, const char *bytes, size_t len)
{
	lua_newtable(lua);
	lua_pushlstring(lua, bytes, len);
	lua_setfield(lua, -2, name);
}

/* Push the value that begins at *at, and move past it. */
static void push_reply(lua_State *lua, const char **at)
{
	const char *start = *at + 1, *end;
	char type = **at;
	long long number = 0;

	if (type == '+' || type == '-')
		end = strchr(start, '\r');
	else
		number = take_number(start, &end);

	*at = end + 2;
	luaL_checkstack(lua, 4, "reply");
	switch (type) {
	case ':':
		lua_pushnumber(lua, (lua_Number)number);
		break;
	case '+':
		push_field(lua, "ok", start, (size_t)(end - start));
		break;
	case '-':
		push_field(lua, "err", start, (size_t)(end - start));
		break;
	case '$':
		if (number < 0) {
			lua_pushboolean(lua, 0);
		} else {
			lua_pushlstring(lua, *at, (size_t)number);
			*at += number + 2;
		}
		break;
	default:
		lua_createtable(lua, (int)number, 0);
		for (int i = 1; i <= (int)number; i++) {
			push_reply(lua, at);
			lua_rawseti(lua, -2, i);
		}
	}
}

/* ---- From Lua to the protocol ------------------------------------------------------------- */

/* The text of a field of the table on top, "" if it has none. */
static bool string_field(lua_State *lua, const char *name, char *text, size_t size)
{
	bool is;

	lua_pushstring(lua, name);
	lua_rawget(lua, -2);
	is = lua_type(lua, -1) == LUA_TSTRING;
	snprintf(text, size, "%s", is ? lua_tostring(lua, -1) : "");
	lua_pop(lua, 1);
	return is;
}

/* Truncated; a number out of range becomes INT64_MIN, as on the server's machines. */
static int64_t whole(double number)
{
	return number > -0x1p63 && number < 0x1p63 ? (int64_t)number : INT64_MIN;
}

static void write_value(lua_State *lua, struct lk__buf *reply);

static void write_table(lua_State *lua, struct lk__buf *reply)
{
	char text[400];
	size_t count = 0;

	if (string_field(lua, "err", text, sizeof(text))) {
		lua_reply_error(reply, "%s", text);
		return;
	}
	if (string_field(lua, "ok", text, sizeof(text))) {
		lua_reply_status(reply, text);
		return;
	}
	for (;; count++) {
		bool end;
		lua_rawgeti(lua, -1, (int)count + 1);
		end = lua_isnil(lua, -1);
		lua_pop(lua, 1);
		if (end)
			break;
	}
	lua_reply_array(reply, count);
	for (size_t i = 1; i <= count; i++) {
		lua_rawgeti(lua, -1, (int)i);
		write_value(lua, reply);
		lua_pop(lua, 1);
	}
}

/* Write the value on top, and leave it there. */
static void write_value(lua_State *lua, struct lk__buf *reply)
{
	const char *bytes;
	size_t len;

	switch (lua_type(lua, -1)) {
	case LUA_TSTRING:
		bytes = lua_tolstring(lua, -1, &len);
		lua_reply_text(reply, bytes, len);
		break;
	case LUA_TNUMBER:
		lua_reply_number(reply, whole(lua_tonumber(lua, -1)));
		break;
	case LUA_TBOOLEAN:
		if (lua_toboolean(lua, -1))
			lua_reply_number(reply, 1);
		else
			lua_reply_nil(reply);
		break;
	case LUA_TTABLE:
		write_table(lua, reply);
		break;
	default:
		lua_reply_nil(reply);
	}
}

/* ---- redis.call --------------------------------------------------------------------------- */

/* Push {err = text}. "-CODE text" and, from the server itself, "CODE text" have a code; other texts
 * get one. */
static void push_error(lua_State *lua, const char *text)
{
	const char *space = strchr(text, ' ');

	if (text[0] == '-' && space)
		lua_pushstring(lua, text + 1);
	else
		lua_pushfstring(lua, "ERR %s", text + (text[0] == '-'));
	lua_newtable(lua);
	lua_insert(lua, -2);
	lua_setfield(lua, -2, "err");
}

/* The arguments as words; numbers are converted in place, so that the strings stay alive. 0 if they
 * are not a command: an error was pushed. */
static int take_words(lua_State *lua, struct lua_word *words)
{
	int argc = lua_gettop(lua);

	if (!argc || argc > LUA_WORDS_MAX) {
		push_error(lua, "Please specify at least one argument for this redis lib call");
		return 0;
	}
	for (int i = 1; i <= argc; i++) {
		if (lua_type(lua, i) == LUA_TNUMBER) {
			char text[LUA_NUMBER_SIZE];
			size_t len = lua_number_text(lua_tonumber(lua, i), text);
			lua_pushlstring(lua, text, len);
			lua_replace(lua, i);
		}
		if (lua_type(lua, i) != LUA_TSTRING) {
			push_error(lua,
			           "Lua redis lib command arguments must be strings or integers");
			return 0;
		}
		words[i - 1].bytes = lua_tolstring(lua, i, &words[i - 1].len);
	}
	return argc;
}

static bool is_refused(const struct lua_server *server, const struct lua_word *words, int argc)
{
	if (!server->refused || !lua_word_is(words[0], server->refused))
		return false;
	return !server->refused_key || (argc > 1 && lua_word_is(words[1], server->refused_key));
}

/* Push the reply of the command in the arguments.  The host is the function's upvalue. */
static void push_answer(lua_State *lua)
{
	struct lua_script_host *host = lua_touserdata(lua, lua_upvalueindex(1));
	struct lua_word words[LUA_WORDS_MAX];
	const struct lua_command *command;
	int argc = take_words(lua, words);
	const char *at;

	if (!argc)
		return;
	command = lua_command_find(host->server, words[0]);
	if (!command || !lua_command_takes(command, argc)) {
		push_error(lua, command ? "Wrong number of args calling Redis command from script"
		                        : "Unknown Redis command called from script");
		return;
	}
	if (is_refused(host->server, words, argc)) {
		push_error(lua, "-" LUA_REFUSED);
		return;
	}
	/* A script that has written runs on. */
	if (host->server->full && command->effect == LUA_GROWS && !host->server->wrote) {
		push_error(lua, "-" LUA_FULL);
		return;
	}
	host->server->wrote = host->server->wrote || command->effect != LUA_READS;
	if (host->server->target && lua_command_misses(host->server, command, argc, words)) {
		push_error(lua, "-" LUA_AWAY);
		return;
	}
	host->reply.len = 0;
	command->run(host->server, argc, words, &host->reply);
	lua_reply_bytes(&host->reply, "", 1);
	at = host->reply.data;
	push_reply(lua, &at);
}

static bool is_error(lua_State *lua)
{
	bool is;

	if (!lua_istable(lua, -1))
		return false;
	lua_getfield(lua, -1, "err");
	is = lua_isstring(lua, -1);
	lua_pop(lua, 1);
	return is;
}

static int redis_call(lua_State *lua)
{
	push_answer(lua);
	return is_error(lua) ? lua_error(lua) : 1;
}

static int redis_pcall(lua_State *lua)
{
	push_answer(lua);
	return 1;
}

static int redis_error_reply(lua_State *lua)
{
	const char *text;

	if (lua_gettop(lua) != 1 || lua_type(lua, 1) != LUA_TSTRING) {
		push_error(lua, "wrong number or type of arguments");
		return 1;
	}
	text = lua_tostring(lua, 1);
	push_error(lua, text[0] == '-' ? text : lua_pushfstring(lua, "-%s", text));
	return 1;
}

static int redis_status_reply(lua_State *lua)
{
	if (lua_gettop(lua) != 1 || lua_type(lua, 1) != LUA_TSTRING) {
		push_error(lua, "wrong number or type of arguments");
		return 1;
	}
	lua_newtable(lua);
	lua_pushvalue(lua, 1);
	lua_setfield(lua, -2, "ok");
	return 1;
}

/* pcall() gets only the text of an error of redis.call(). */
static int script_pcall(lua_State *lua)
{
	luaL_checkany(lua, 1);
	lua_pushboolean(lua, !lua_pcall(lua, lua_gettop(lua) - 1, LUA_MULTRET, 0));
	lua_insert(lua, 1);
	if (!lua_toboolean(lua, 1) && is_error(lua)) {
		lua_getfield(lua, -1, "err");
		lua_replace(lua, -2);
	}
	return lua_gettop(lua);
}

/* ---- What a script sees ------------------------------------------------------------------- */

static int refuse_write(lua_State *lua)
{
	return luaL_error(lua, "Attempt to modify a readonly table");
}

static int refuse_read(lua_State *lua)
{
	return luaL_error(lua, "Script attempted to access nonexistent global variable '%s'",
	                  lua_tostring(lua, 2));
}

/* Replace the table on top by a read-only proxy of it. */
static void protect(lua_State *lua)
{
	lua_newtable(lua);
	lua_newtable(lua);
	lua_pushvalue(lua, -3);
	lua_setfield(lua, -2, "__index");
	lua_pushcfunction(lua, refuse_write);
	lua_setfield(lua, -2, "__newindex");
	lua_pushboolean(lua, 0);
	lua_setfield(lua, -2, "__metatable");
	lua_setmetatable(lua, -2);
	lua_remove(lua, -2);
}

static void add_redis(lua_State *lua, struct lua_script_host *host)
{
	static const luaL_Reg functions[] = {{"call", redis_call},
	                                     {"pcall", redis_pcall},
	                                     {"error_reply", redis_error_reply},
	                                     {"status_reply", redis_status_reply},
	                                     {NULL, NULL}};

	lua_newtable(lua);
	for (const luaL_Reg *function = functions; function->name; function++) {
		lua_pushlightuserdata(lua, host);
		lua_pushcclosure(lua, function->func, 1);
		lua_setfield(lua, -2, function->name);
	}
	protect(lua);
	lua_setfield(lua, -2, "redis");
}

/* The table of globals, on top when this returns, and in the registry. */
static void make_globals(lua_State *lua, struct lua_script_host *host)
{
	static const char *const functions[] = {"assert",   "error", "ipairs", "next",
	                                        "pairs",    "pcall", "select", "tonumber",
	                                        "tostring", "type",  "unpack", "xpcall"};
	static const char *const libraries[] = {"string", "table", "math"};

	lua_newtable(lua);
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		lua_getglobal(lua, functions[i]);
		lua_setfield(lua, -2, functions[i]);
	}
	for (size_t i = 0; i < sizeof(libraries) / sizeof(*libraries); i++) {
		lua_getglobal(lua, libraries[i]);
		protect(lua);
		lua_setfield(lua, -2, libraries[i]);
	}
	lua_pushcfunction(lua, script_pcall);
	lua_setfield(lua, -2, "pcall");
	add_redis(lua, host);
	/* Reading a missing global is an error. */
	lua_newtable(lua);
	lua_pushcfunction(lua, refuse_read);
	lua_setfield(lua, -2, "__index");
	lua_setmetatable(lua, -2);
	lua_pushvalue(lua, -1);
	lua_setfield(lua, LUA_REGISTRYINDEX, "globals");
}

static void too_long(lua_State *lua, lua_Debug *debug)
{
	(void)debug;
	luaL_error(lua, "the script has no end");
}

struct lua_script_host *lua_script_host_new(struct lua_server *server)
{
	struct lua_script_host *host = calloc(1, sizeof(*host));
	lua_State *lua = luaL_newstate();

	if (!host || !lua)
		abort();
	host->lua = lua;
	host->server = server;
	luaL_openlibs(lua);
	/* Without randomness, because two runs must not differ. */
	lua_getglobal(lua, "math");
	lua_pushnil(lua);
	lua_setfield(lua, -2, "random");
	lua_pop(lua, 1);
	make_globals(lua, host);
	lua_pop(lua, 1);
	return host;
}

void lua_script_host_free(struct lua_script_host *host)
{
	lua_close(host->lua);
	lk__buf_fini(&host->reply);
	free(host);
}

/* ---- A run -------------------------------------------------------------------------------- */

int lua_script_compile(struct lua_script_host *host, struct lua_word text, struct lk__buf *reply)
{
	lua_State *lua = host->lua;

	lua_settop(lua, 0);
	if (luaL_loadbuffer(lua, text.bytes, text.len, "@user_script")) {
		lua_reply_error(reply, "ERR Error compiling script (new function): %s",
		                lua_tostring(lua, -1));
		lua_settop(lua, 0);
		return 0;
	}
	lua_getfield(lua, LUA_REGISTRYINDEX, "globals");
	protect(lua);
	lua_setfenv(lua, -2);
	return luaL_ref(lua, LUA_REGISTRYINDEX);
}

void lua_script_forget(struct lua_script_host *host, int compiled)
{
	luaL_unref(host->lua, LUA_REGISTRYINDEX, compiled);
}

static void set_global(lua_State *lua, const char *name, int count, const struct lua_word *words)
{
	lua_getfield(lua, LUA_REGISTRYINDEX, "globals");
	lua_pushstring(lua, name);
	lua_createtable(lua, count, 0);
	for (int i = 0; i < count; i++) {
		lua_pushlstring(lua, words[i].bytes, words[i].len);
		lua_rawseti(lua, -2, i + 1);
	}
	lua_rawset(lua, -3);
	lua_pop(lua, 1);
}

/* Called where an error happens: converts it into a table that has the place. */
static int add_place(lua_State *lua)
{
	lua_Debug place;
	bool known = lua_getstack(lua, 1, &place) && lua_getinfo(lua, "Sl", &place);

	if (known && !strcmp(place.what, "C"))
		known = lua_getstack(lua, 2, &place) && lua_getinfo(lua, "Sl", &place);
	lua_settop(lua, 1);
	if (!is_error(lua)) {
		const char *text = lua_tostring(lua, 1);
		lua_pushfstring(lua, "ERR %s", text ? text : lua_typename(lua, lua_type(lua, 1)));
		lua_newtable(lua);
		lua_insert(lua, -2);
		lua_setfield(lua, -2, "err");
	}
	if (known) {
		lua_pushfstring(lua, "%s:%d", place.source, place.currentline);
		lua_setfield(lua, -2, "place");
	}
	return 1;
}

/* The error that ended the script, worded as by the server. */
static void write_failure(lua_State *lua, const char *digest, struct lk__buf *reply)
{
	char text[400] = "ERR no memory", place[100];

	if (lua_istable(lua, -1))
		string_field(lua, "err", text, sizeof(text));
	if (lua_istable(lua, -1) && string_field(lua, "place", place, sizeof(place)))
		lua_reply_error(reply, "%s script: %s, on %s.", text, digest, place);
	else
		lua_reply_error(reply, "%s", text);
}

void lua_script_run(struct lua_script_host *host, int compiled, const char *digest, int keys,
                    int argc, const struct lua_word *argv, struct lk__buf *reply)
{
	lua_State *lua = host->lua;

	host->server->wrote = false;
	lua_settop(lua, 0);
	set_global(lua, "KEYS", keys, argv);
	set_global(lua, "ARGV", argc - keys, argv + keys);
	lua_sethook(lua, too_long, LUA_MASKCOUNT, INSTRUCTIONS_MAX);
	lua_pushcfunction(lua, add_place);
	lua_rawgeti(lua, LUA_REGISTRYINDEX, compiled);
	if (lua_pcall(lua, 0, 1, 1))
		write_failure(lua, digest, reply);
	else
		write_value(lua, reply);
	lua_settop(lua, 0);
}
