/* SPDX-License-Identifier: MIT
 * A script and its world: a Lua 5.1 in which it sees what a server lets it see, and values on their
 * way between Lua and the protocol, as the server converts them.
 *
 * A Lua error is a jump: nothing that has to be freed may be alive where one can happen. */
#include "lua_store_parts.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSTRUCTIONS_MAX 5000000 /* more of them have no end */

struct lua_script_host {
	lua_State *lua;
	struct lua_server *server;
};

/* ---- From the protocol to Lua ------------------------------------------------------------- */

static const char *line_end(const char *at)
{
	while (*at != '\r')
		at++;
	return at;
}

static void push_field(lua_State *lua, const char *name, const char *bytes, size_t len)
{
	lua_newtable(lua);
	lua_pushlstring(lua, bytes, len);
	lua_setfield(lua, -2, name);
}

/* Push what begins at *at, and move on. */
static void push_reply(lua_State *lua, const char **at)
{
	const char *start = *at + 1, *end = line_end(start);
	char type = **at;
	long long number = strtoll(start, NULL, 10);

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
		lua_newtable(lua);
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

/* Write the value on top; it stays there. */
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
		lua_reply_number(reply, (int64_t)lua_tonumber(lua, -1));
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

/* The arguments as words; numbers become strings where they stand, so that they live. */
static int take_words(lua_State *lua, struct lua_word *words)
{
	int argc = lua_gettop(lua);

	if (!argc || argc > LUA_WORDS_MAX)
		luaL_error(lua, "Please specify at least one argument for this redis.call()");
	for (int i = 1; i <= argc; i++) {
		if (lua_type(lua, i) == LUA_TNUMBER) {
			char text[LUA_NUMBER_SIZE];
			size_t len = lua_number_text(lua_tonumber(lua, i), text);
			lua_pushlstring(lua, text, len);
			lua_replace(lua, i);
		}
		if (lua_type(lua, i) != LUA_TSTRING)
			luaL_error(lua, "Lua redis lib command arguments must be strings or "
			                "integers");
		words[i - 1].bytes = lua_tolstring(lua, i, &words[i - 1].len);
	}
	return argc;
}

/* Push the reply of the command that the arguments are. */
static void command(lua_State *lua)
{
	struct lua_script_host *host;
	struct lua_word words[LUA_WORDS_MAX];
	int argc = take_words(lua, words);
	struct lk__buf reply = {0};
	const char *at;

	lua_getfield(lua, LUA_REGISTRYINDEX, "host");
	host = lua_touserdata(lua, -1);
	lua_command_run(host->server, argc, words, &reply);
	/* A copy that Lua owns: what follows may jump. */
	lua_pushlstring(lua, reply.data, reply.len);
	lk__buf_fini(&reply);
	at = lua_tostring(lua, -1);
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
	command(lua);
	return is_error(lua) ? lua_error(lua) : 1;
}

static int redis_pcall(lua_State *lua)
{
	command(lua);
	return 1;
}

static int single_field(lua_State *lua, const char *name)
{
	size_t len;
	const char *text = luaL_checklstring(lua, 1, &len);

	push_field(lua, name, text, len);
	return 1;
}

static int redis_error_reply(lua_State *lua)
{
	return single_field(lua, "err");
}

static int redis_status_reply(lua_State *lua)
{
	return single_field(lua, "ok");
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

/* The table on top gives way to one through which it can be read only. */
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

static void add_redis(lua_State *lua)
{
	static const luaL_Reg functions[] = {{"call", redis_call},
	                                     {"pcall", redis_pcall},
	                                     {"error_reply", redis_error_reply},
	                                     {"status_reply", redis_status_reply},
	                                     {NULL, NULL}};

	lua_newtable(lua);
	for (const luaL_Reg *function = functions; function->name; function++) {
		lua_pushcfunction(lua, function->func);
		lua_setfield(lua, -2, function->name);
	}
	protect(lua);
	lua_setfield(lua, -2, "redis");
}

/* The table of globals, on top when this returns, and in the registry. */
static void make_globals(lua_State *lua)
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
	add_redis(lua);
	/* What is not there is an error to read. */
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
	/* Chance would make two runs differ. */
	lua_getglobal(lua, "math");
	lua_pushnil(lua);
	lua_setfield(lua, -2, "random");
	lua_pop(lua, 1);
	make_globals(lua);
	lua_pop(lua, 1);
	lua_pushlightuserdata(lua, host);
	lua_setfield(lua, LUA_REGISTRYINDEX, "host");
	lua_newtable(lua);
	lua_setfield(lua, LUA_REGISTRYINDEX, "compiled");
	return host;
}

void lua_script_host_free(struct lua_script_host *host)
{
	lua_close(host->lua);
	free(host);
}

/* ---- A run -------------------------------------------------------------------------------- */

/* Push the script's function, compiled once, or the message of its error. */
static bool push_function(lua_State *lua, struct lua_word text)
{
	bool good = true;

	lua_getfield(lua, LUA_REGISTRYINDEX, "compiled");
	lua_pushlstring(lua, text.bytes, text.len);
	lua_rawget(lua, -2);
	if (lua_isnil(lua, -1)) {
		lua_pop(lua, 1);
		good = !luaL_loadbuffer(lua, text.bytes, text.len, "@user_script");
		if (good) {
			lua_getfield(lua, LUA_REGISTRYINDEX, "globals");
			protect(lua);
			lua_setfenv(lua, -2);
			lua_pushlstring(lua, text.bytes, text.len);
			lua_pushvalue(lua, -2);
			lua_rawset(lua, -4);
		}
	}
	lua_remove(lua, -2);
	return good;
}

static void set_global(lua_State *lua, const char *name, int count, const struct lua_word *words)
{
	lua_getfield(lua, LUA_REGISTRYINDEX, "globals");
	lua_pushstring(lua, name);
	lua_newtable(lua);
	for (int i = 0; i < count; i++) {
		lua_pushlstring(lua, words[i].bytes, words[i].len);
		lua_rawseti(lua, -2, i + 1);
	}
	lua_rawset(lua, -3);
	lua_pop(lua, 1);
}

/* What the function on top ended with, as the server tells it. */
static void write_failure(lua_State *lua, const char *name, struct lk__buf *reply)
{
	char text[400];

	if (lua_istable(lua, -1) && string_field(lua, "err", text, sizeof(text)))
		lua_reply_error(reply, "%s script: %s, on @user_script.", text, name);
	else
		lua_reply_error(reply, "ERR %s script: %s, on @user_script.",
		                lua_isstring(lua, -1) ? lua_tostring(lua, -1) : "(error)", name);
}

void lua_script_run(struct lua_script_host *host, struct lua_word text, const char *name, int keys,
                    int argc, const struct lua_word *argv, struct lk__buf *reply)
{
	lua_State *lua = host->lua;

	lua_settop(lua, 0);
	if (!push_function(lua, text)) {
		lua_reply_error(reply, "ERR Error compiling script (new function): %s",
		                lua_tostring(lua, -1));
		return;
	}
	set_global(lua, "KEYS", keys, argv);
	set_global(lua, "ARGV", argc - keys, argv + keys);
	lua_sethook(lua, too_long, LUA_MASKCOUNT, INSTRUCTIONS_MAX);
	if (lua_pcall(lua, 0, 1, 0))
		write_failure(lua, name, reply);
	else
		write_value(lua, reply);
	lua_settop(lua, 0);
}
