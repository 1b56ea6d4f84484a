/* SPDX-License-Identifier: MIT
 * The Redis in memory compared with a real one: small scripts for each limit of what a script can
 * see and do, and random calls of the library's own (harness/replay.h; many more: make replay). */
#include "lua_store.h"
#include "lua_store_parts.h"
#include "redis.h"
#include "replay.h"
#include "server_version.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#define CALLS 10000

/* Each probe gets KEYS[1], a key that does not exist, and ARGV[1], "a".  Reply and text must be
 * equal, including the digests and lines of errors. */
static const char *const probes[] = {
	/* undefined variables, and read-only tables */
	"x = 1",
	"\n\nx = 1",
	"function f() end",
	"return y",
	"return os.time()",
	"return io",
	"return print('x')",
	"return require('x')",
	"return dofile('x')",
	"return loadfile",
	"return debug",
	"return package",
	"return module",
	"return tostring(nothing)",
	"string.x = 1",
	"table.insert = nil",
	"math.huge = 1",
	"redis.x = 1",
	"redis.call = nil",
	"KEYS = nil",
	"ARGV = {}",
	"KEYS[1] = 'b' return KEYS[1]",
	"return {KEYS[1], ARGV[1], #KEYS, #ARGV}",
	"return {KEYS[2], ARGV[2]}",
	/* errors */
	"error('boom')",
	"error('boom', 0)",
	"error('boom', 2)",
	"error({err = 'MY boom'})",
	"error({err = 'boom'})",
	"local function f() error('deep') end\n\nf()",
	"local t = nil\nreturn t.x",
	"local t = nil t()",
	"return 1 + {}",
	"return 'a' < 1",
	"return 'a' .. {}",
	"return #5",
	"return 1 +",
	"return 'a",
	"local t = {} for i = 1, 5 do t[i] = i end return unpack(t, 1, 1e8)",
	"local function f() return f() + 1 end return f()",
	"return string.rep()",
	"return ('x'):rep(3)",
	"return string.format('%d', 'x')",
	"return tonumber({})",
	"assert(false)",
	"assert(nil, 'told')",
	"return select('#', 1, nil, nil)",
	/* redis.call, redis.pcall and their errors */
	"return redis.call('FLY')",
	"return redis.call('GET')",
	"return redis.call('get', KEYS[1])",
	"return redis.call()",
	"return redis.call({})",
	"return redis.call('GET', true)",
	"return redis.call('GET', nil)",
	"return redis.pcall('FLY')",
	"return redis.pcall('FLY').err",
	"return redis.pcall('GET')",
	"return redis.pcall()",
	"return redis.pcall('GET', {})",
	"redis.call('SET', KEYS[1], 'x') return redis.call('HGET', KEYS[1], 'f')",
	"redis.call('SET', KEYS[1], 'x') return redis.pcall('HGET', KEYS[1], 'f')",
	"redis.call('SET', KEYS[1], 'x') return redis.pcall('ZADD', KEYS[1], 1, 'm').err",
	"redis.call('SET', KEYS[1], 'x') local good, e = pcall(redis.call, 'HGET', KEYS[1], 'f') "
	"return {tostring(good), type(e), e}",
	"local good, e = pcall(redis.call, 'FLY') return {tostring(good), type(e), e}",
	"local good, e = pcall(error, 'x') return {tostring(good), e}",
	"local good, e = pcall(function() error('x') end) return {tostring(good), e}",
	"local good, e = pcall(function() return zz end) return {tostring(good), e}",
	"local good, e = xpcall(function() error('x') end, function(e) return 'seen ' .. e end) "
	"return {tostring(good), e}",
	"redis.call('SET', KEYS[1], 'x') error('after a write')",
	/* replies made by a script */
	"return {err = 'x'}",
	"return {err = 'A x'}",
	"return {ok = 'fine'}",
	"return {ok = 'x\\r\\ny'}",
	"return {err = 'x\\r\\ny'}",
	"return redis.error_reply('x')",
	"return redis.error_reply('MY x')",
	"return redis.error_reply('-MY x')",
	"return redis.error_reply()",
	"return redis.error_reply(1)",
	"return redis.error_reply('a', 'b')",
	"return redis.status_reply('x')",
	"return redis.status_reply()",
	/* conversions to Lua and back */
	"return 3.99",
	"return -3.99",
	"return 1e300",
	"return 0/0",
	"return 9007199254740993",
	"return true",
	"return false",
	"return nil",
	"return function() end",
	"return {1, 2, nil, 4}",
	"return {1, {2, {3, nil, 4}}, 'x'}",
	"return {false, true, 1.5, 'x', {}}",
	"return {a = 1}",
	"return 'x\\r\\n\\0y'",
	"return tostring(1700000000123456)",
	"return 1e15 .. ''",
	"return string.format('%.0f', 1700000000123456)",
	"return string.format('%d %s %5.2f %q', 7.9, 'x', 1/3, 'a\\nb')",
	"return tonumber('0x10') + tonumber(' 7 ') + (tonumber('7x') or 0)",
	"redis.call('SET', KEYS[1], 1700000000123456) return redis.call('GET', KEYS[1])",
	"redis.call('SET', KEYS[1], 1.5) return redis.call('GET', KEYS[1])",
	"redis.call('SET', KEYS[1], 0.1) return redis.call('GET', KEYS[1])",
	"redis.call('SET', KEYS[1], 1e16) return redis.call('GET', KEYS[1])",
	"redis.call('SET', KEYS[1], 1e300) return redis.call('GET', KEYS[1])",
	"redis.call('SET', KEYS[1], -0.0) return redis.call('GET', KEYS[1])",
	"redis.call('SET', KEYS[1], 0/0) return redis.call('GET', KEYS[1])",
	"redis.call('SET', KEYS[1], 1/0) return redis.call('GET', KEYS[1])",
	"return redis.call('SET', KEYS[1], 'x').ok",
	"return {type(redis.call('GET', KEYS[1])), tostring(redis.call('GET', KEYS[1]))}",
	"return redis.call('HMGET', KEYS[1], 'a', 'b')",
	"return #redis.call('ZRANGE', KEYS[1], 0, -1)",
	"return redis.call('TYPE', KEYS[1]).ok",
	/* keys and their expiry */
	"return redis.call('PTTL', KEYS[1])",
	"redis.call('SET', KEYS[1], 'x') return redis.call('PTTL', KEYS[1])",
	"redis.call('SET', KEYS[1], 'x', 'PX', 100000) redis.call('SET', KEYS[1], 'y') "
	"return redis.call('PTTL', KEYS[1])",
	"redis.call('SET', KEYS[1], 'x', 'px', 100000) return redis.call('PERSIST', KEYS[1])",
	"return redis.call('PERSIST', KEYS[1])",
	"return redis.call('PEXPIRE', KEYS[1], 5)",
	"return redis.call('PEXPIRE', KEYS[1], 1.5)",
	"return redis.call('PEXPIRE', KEYS[1], 'x')",
	"redis.call('SET', KEYS[1], 'x') return redis.call('PEXPIRE', KEYS[1], "
	"9223372036854775807)",
	"redis.call('SET', KEYS[1], 'x') return redis.call('PEXPIRE', KEYS[1], "
	"'9223372036854775807')",
	"redis.call('SET', KEYS[1], 'x') return redis.call('PEXPIRE', KEYS[1], '09')",
	"redis.call('SET', KEYS[1], 'x') return redis.call('PEXPIRE', KEYS[1], '+9')",
	"redis.call('SET', KEYS[1], 'x') return {redis.call('PEXPIRE', KEYS[1], -5), "
	"redis.call('EXISTS', KEYS[1])}",
	"redis.call('SET', KEYS[1], 'x') return {redis.call('PEXPIRE', KEYS[1], 0), "
	"redis.call('EXISTS', KEYS[1])}",
	"return redis.call('SET', KEYS[1], 'x', 'PX', 0)",
	"return redis.call('SET', KEYS[1], 'x', 'PX', -1)",
	"return redis.call('SET', KEYS[1], 'x', 'PX', '9223372036854775807')",
	"return redis.call('SET', KEYS[1], 'x', 'PX', 1e18)",
	"return redis.call('SET', KEYS[1], 'x', 'QQ')",
	"redis.call('HSET', KEYS[1], 'f', 1) return {redis.call('HDEL', KEYS[1], 'f', 'g'), "
	"redis.call('EXISTS', KEYS[1])}",
	"redis.call('ZADD', KEYS[1], 1, 'm') return {redis.call('ZREM', KEYS[1], 'm'), "
	"redis.call('EXISTS', KEYS[1], KEYS[1])}",
	"redis.call('SET', KEYS[1], 'x') return redis.call('DEL', KEYS[1], KEYS[1], 'none')",
	"redis.call('HSET', KEYS[1], 'f', 1) redis.call('SET', KEYS[1], 'x') "
	"return redis.call('TYPE', KEYS[1])",
	/* hashes and sorted sets */
	"return redis.call('HSET', KEYS[1], 'a', 'b', 'c')",
	"return redis.call('HSET', KEYS[1], 'a')",
	"return redis.call('HSET', KEYS[1], 'a', 1, 'b', 2, 'a', 3)",
	"return {redis.call('HSETNX', KEYS[1], 'a', 1), redis.call('HSETNX', KEYS[1], 'a', 2), "
	"redis.call('HGET', KEYS[1], 'a')}",
	"return redis.call('ZADD', KEYS[1], 'nan', 'm')",
	"return redis.call('ZADD', KEYS[1], 'x', 'm')",
	"return redis.call('ZADD', KEYS[1], '', 'm')",
	"return redis.call('ZADD', KEYS[1], '1', 'm', '2')",
	"return redis.call('ZADD', KEYS[1], 1, 'm', 2, 'm', 3, 'n')",
	"redis.call('ZADD', KEYS[1], '1e3', 'm') return redis.call('ZSCORE', KEYS[1], 'm')",
	"redis.call('ZADD', KEYS[1], '0.1', 'm') return redis.call('ZSCORE', KEYS[1], 'm')",
	"redis.call('ZADD', KEYS[1], 'inf', 'm') return redis.call('ZSCORE', KEYS[1], 'm')",
	"redis.call('ZADD', KEYS[1], '-inf', 'm') return redis.call('ZSCORE', KEYS[1], 'm')",
	"redis.call('ZADD', KEYS[1], 1e300, 'm') return redis.call('ZSCORE', KEYS[1], 'm')",
	"redis.call('ZADD', KEYS[1], '12345678901234567890', 'm') "
	"return redis.call('ZSCORE', KEYS[1], 'm')",
	"redis.call('ZADD', KEYS[1], '1700000000500000.25', 'm') "
	"return redis.call('ZSCORE', KEYS[1], 'm')",
	"redis.call('ZADD', KEYS[1], '-0', 'm') return redis.call('ZSCORE', KEYS[1], 'm')",
	"redis.call('ZADD', KEYS[1], 1, 'b', 1, 'a', 1, 'aa', 1, '', 0, 'z') "
	"return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')",
	"redis.call('ZADD', KEYS[1], 1, 'b', 1, 'a', 0, 'z') "
	"return redis.call('ZREVRANGE', KEYS[1], 0, 1, 'withscores')",
	"redis.call('ZADD', KEYS[1], 1, 'a', 2, 'b', 3, 'c') "
	"return {redis.call('ZRANGE', KEYS[1], -2, -1), redis.call('ZRANGE', KEYS[1], -9, 0), "
	"redis.call('ZRANGE', KEYS[1], 2, 1), redis.call('ZRANGE', KEYS[1], 3, 9)}",
	"redis.call('ZADD', KEYS[1], 1, 'a', 2, 'b', 3, 'c') "
	"return {redis.call('ZRANGEBYSCORE', KEYS[1], '(1', '+inf'), "
	"redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(3', 'LIMIT', 1, 9), "
	"redis.call('ZRANGEBYSCORE', KEYS[1], 1, 3, 'WITHSCORES', 'LIMIT', 0, 2), "
	"redis.call('ZRANGEBYSCORE', KEYS[1], 1, 3, 'LIMIT', 0, -1)}",
	"redis.call('ZADD', KEYS[1], 1, 'a', 2, 'b') "
	"return {redis.call('ZRANK', KEYS[1], 'b'), redis.call('ZRANK', KEYS[1], 'c')}",
	"return redis.call('ZRANK', KEYS[1], 'b')",
	"return redis.call('ZRANGE', KEYS[1], 'a', 0)",
	"return redis.call('ZRANGE', KEYS[1], 0, 0, 'FOO')",
	"return redis.call('ZRANGEBYSCORE', KEYS[1], 'x', 'y')",
	"return redis.call('ZRANGEBYSCORE', KEYS[1], '(1', '+inf', 'LIMIT', 0)",
	"return redis.call('ZRANGEBYSCORE', KEYS[1], '(1', '+inf', 'LIMIT', 'a', 1)",
	"return redis.call('PUBLISH', 'nobody', 'x')",
	"return #redis.call('TIME')",
	/* INFO: the fields that the marker of a memory depends on */
	"return type(redis.call('INFO', 'server'))",
	"return #string.match(redis.call('INFO', 'server'), 'run_id:(%x+)\\r\\n')",
	"return type(tonumber(string.match(redis.call('INFO', 'server'), "
	"'uptime_in_seconds:(%d+)')))",
	"return string.match(redis.call('INFO', 'replication'), 'role:(%l+)')",
	"return #string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)\\r\\n')",
	"return string.match(redis.call('INFO', 'replication'), 'master_replid2:(%x+)\\r\\n')",
	"return string.match(redis.call('INFO', 'stats'), 'evicted_keys:(%d+)\\r\\n')",
	"return string.match(redis.call('INFO', 'commandstats'), 'cmdstat_flushall:')",
	"return string.match(redis.call('INFO', 'commandstats'), 'cmdstat_flushdb:')",
	"return string.match(redis.call('INFO', 'commandstats'), 'cmdstat_replicaof:')",
	"return string.match(redis.call('INFO', 'commandstats'), 'cmdstat_slaveof:')",
};

static const char *told(char text[600], const char *answer)
{
	snprintf(text, 600, "%s", answer);
	return text;
}

/* The store's reply, to that script if it is not NULL, as that server formats it. */
static const char *told_as(enum server_version version, const char *script, char text[600],
                           const char *answer)
{
	struct lk__buf reply = {0};

	lua_reply_bytes(&reply, answer, strlen(answer) + 1);
	server_version_text(version, script, &reply);
	told(text, reply.data);
	lk__buf_fini(&reply);
	return text;
}

TEST(script_sees_and_does_in_memory_what_it_does_on_a_server)
{
	struct lua_store *store = lua_store_new(NULL, NULL);
	struct test_server server;
	struct redis *redis;
	enum server_version version;
	char one[600], other[600];
	int differ = 0;

	server_start(&server, NULL);
	version = server_version(&server);
	redis = redis_open(&server);
	lua_store_set_time(store, INT64_C(1700000000000000));
	for (size_t i = 0; i < sizeof(probes) / sizeof(*probes); i++) {
		redis_do(redis, "FLUSHALL");
		lua_store_text(store, "FLUSHALL", NULL);
		told(one, redis_text(redis, "EVAL %s 1 key a", probes[i]));
		told_as(version, probes[i], other,
		        lua_store_text(store, "EVAL", probes[i], "1", "key", "a", NULL));
		if (!strcmp(one, other))
			continue;
		printf("%s\nthe server answers\n%s\nand the store\n%s\n", probes[i], one, other);
		differ++;
	}
	fflush(stdout);
	ck_assert_int_eq(differ, 0);
	/* Lines and digests, for each way to send the text. */
	ck_assert_str_eq(told(one, redis_text(redis, "SCRIPT LOAD %s", "\nerror('x')")),
	                 lua_store_text(store, "SCRIPT", "LOAD", "\nerror('x')", NULL));
	ck_assert_str_eq(told(other, redis_text(redis, "EVALSHA %s 0", one)),
	                 lua_store_text(store, "EVALSHA", one, "0", NULL));
	ck_assert_str_eq(told(other, redis_text(redis, "SCRIPT EXISTS %s x", one)),
	                 lua_store_text(store, "SCRIPT", "EXISTS", one, "x", NULL));
	redis_do(redis, "SCRIPT FLUSH");
	lua_store_text(store, "SCRIPT", "FLUSH", NULL);
	ck_assert_str_eq(
		redis_text(redis, "EVALSHA %s 0", one),
		told_as(version, NULL, other, lua_store_text(store, "EVALSHA", one, "0", NULL)));
	ck_assert_int_eq(server_version_unused(version, false), 0);
	lua_store_free(store);
	redis_close(redis);
	server_stop(&server);
}

TEST(narrower_than_the_server_where_no_script_of_ours_goes)
{
	static const char *const absent[] = {"cjson",      "cmsgpack", "struct",  "bit",
	                                     "loadstring", "load",     "rawset",  "getfenv",
	                                     "coroutine",  "_G",       "setfenv", "rawget"};
	struct lua_store *store = lua_store_new(NULL, NULL);
	char text[100];

	for (size_t i = 0; i < sizeof(absent) / sizeof(*absent); i++) {
		snprintf(text, sizeof(text), "return %s", absent[i]);
		ck_assert(strstr(lua_store_text(store, "EVAL", text, "0", NULL), "nonexistent"));
	}
	ck_assert(strstr(lua_store_text(store, "EVAL", "return math.random()", "0", NULL), "-ERR"));
	ck_assert(strstr(lua_store_text(store, "EVAL", "while true do end", "0", NULL), "no end"));
	lua_store_free(store);
}

TEST(key_expires_by_the_clock_that_the_test_sets)
{
	struct lua_store *store = lua_store_new(NULL, NULL);

	lua_store_set_time(store, INT64_C(1700000000123456));
	ck_assert_str_eq(lua_store_text(store, "TIME", NULL), "1700000000\n123456");
	lua_store_text(store, "SET", "s", "1", "PX", "100", NULL);
	ck_assert_str_eq(lua_store_text(store, "PTTL", "s", NULL), "100");
	lua_store_set_time(store, lua_store_time(store) + 100000);
	ck_assert_str_eq(lua_store_text(store, "PTTL", "s", NULL), "0");
	lua_store_set_time(store, lua_store_time(store) + 1000);
	ck_assert_str_eq(lua_store_text(store, "PTTL", "s", NULL), "-2");
	lua_store_free(store);
}

TEST_LIMIT(scripts_do_the_same_in_memory_as_on_a_server, 120)
{
	struct replay_sums sums;

	ck_assert_msg(replay_run(test_seed(), CALLS, -1, &sums, stdout),
	              "make replay CALLS=%d SEED=%llu shows it again", CALLS, test_seed());
	for (int i = 0; lk__scripts[i]; i++)
		ck_assert_msg(sums.script[i] > 5, "%s was hardly called", lk__scripts[i]->name);
	ck_assert_int_gt(sums.messages, 100);
}
