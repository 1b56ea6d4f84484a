/* SPDX-License-Identifier: MIT
 * The Redis in memory that the tests of permits use: the commands of its scripts, and random calls
 * of the library's scripts on it and on a real server, which must give the same answers and leave
 * the same keys. */
#include "lua_store.h"
#include "test.h"

#include <string.h>

static struct lua_store *store;

static const char *eval(const char *text)
{
	return lua_store_text(store, "EVAL", text, "1", "k", "a", NULL);
}

static void start(void)
{
	store = lua_store_new(NULL, NULL);
	lua_store_set_time(store, INT64_C(1700000000123456));
}

static void assert_error(const char *answer, const char *what)
{
	ck_assert_msg(answer[0] == '-' && strstr(answer, what), "%s", answer);
}

TEST(values_come_back_as_the_server_converts_them)
{
	start();
	ck_assert_str_eq(eval("return {1, 2.9, 'x', true, KEYS[1], ARGV[1]}"), "1\n2\nx\n1\nk\na");
	ck_assert_str_eq(eval("return {1, nil, 3}"), "1");
	ck_assert_str_eq(eval("return false"), "");
	ck_assert_str_eq(eval("return {err = 'NO way'}"), "-NO way");
	ck_assert_str_eq(eval("return redis.call('SET', KEYS[1], 1.5)"), "OK");
	ck_assert_str_eq(eval("return redis.call('GET', KEYS[1])"), "1.5");
	ck_assert_str_eq(eval("return redis.call('GET', 'none') == false and 'false' or 'else'"),
	                 "false");
	ck_assert_str_eq(eval("return redis.call('TYPE', KEYS[1]).ok"), "string");
	ck_assert_str_eq(eval("return redis.call('TIME')"), "1700000000\n123456");
	ck_assert_str_eq(eval("return redis.call('ZADD', 'z', 1700000000123456, 'm')"), "1");
	ck_assert_str_eq(eval("return redis.call('ZSCORE', 'z', 'm')"), "1700000000123456");
	lua_store_free(store);
}

TEST(script_sees_no_more_than_in_the_server)
{
	start();
	assert_error(eval("return os.time()"), "nonexistent global variable 'os'");
	assert_error(eval("return require('x')"), "nonexistent global variable 'require'");
	assert_error(eval("return print('x')"), "nonexistent global variable 'print'");
	assert_error(eval("x = 1"), "readonly");
	assert_error(eval("string.format = nil"), "readonly");
	assert_error(eval("redis.call = nil"), "readonly");
	assert_error(eval("while true do end"), "no end");
	assert_error(eval("return 1 +"), "compiling");
	assert_error(eval("redis.call('GET')"), "Wrong number of args");
	assert_error(eval("redis.call('FLY')"), "Unknown Redis command");
	lua_store_free(store);
}

TEST(error_of_a_command_ends_the_script_or_is_a_table)
{
	start();
	eval("return redis.call('HSET', KEYS[1], 'f', 'v')");
	assert_error(eval("return redis.call('GET', KEYS[1])"), "WRONGTYPE");
	assert_error(eval("return redis.pcall('GET', KEYS[1])"), "WRONGTYPE");
	ck_assert_str_eq(eval("return string.sub(redis.pcall('GET', KEYS[1]).err, 1, 9)"),
	                 "WRONGTYPE");
	lua_store_free(store);
}

TEST(key_ends_with_its_time_and_with_its_last_item)
{
	start();
	lua_store_text(store, "SET", "s", "1", "PX", "100", NULL);
	ck_assert_str_eq(lua_store_text(store, "PTTL", "s", NULL), "100");
	lua_store_set_time(store, lua_store_time(store) + 100000);
	ck_assert_str_eq(lua_store_text(store, "PTTL", "s", NULL), "0");
	lua_store_set_time(store, lua_store_time(store) + 1000);
	ck_assert_str_eq(lua_store_text(store, "PTTL", "s", NULL), "-2");
	lua_store_text(store, "HSET", "h", "f", "v", NULL);
	ck_assert_str_eq(lua_store_text(store, "HDEL", "h", "f", NULL), "1");
	ck_assert_str_eq(lua_store_text(store, "EXISTS", "h", NULL), "0");
	lua_store_free(store);
}
