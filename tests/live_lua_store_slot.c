/* SPDX-License-Identifier: MIT
 * A slot that moves to another node of a Cluster: the Redis in memory compared with a real node.
 * Small scripts for each limit of what a script can do there, and the library's own with narrow
 * keys. */
#include "lua_store_parts.h"
#include "redis.h"
#include "server_version.h"
#include "test.h"
#include "process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 8

/* "a{n}" is a string, "h{n}" a hash with one field, "z{n}" a sorted set with one member; others are
 * missing.  Their keys are those before the script. */
static const struct {
	const char *keys, *script;
} probes[] = {
	/* redirections */
	{"a{n}", "return 1"},
	{"a{n} h{n} z{n}", "return 1"},
	{"b{n}", "return 1"},
	{"b{n} c{n}", "return 1"},
	{"a{n} b{n}", "return 1"},
	{"b{n} a{n}", "return 1"},
	/* keys that are missing */
	{"a{n}", "return redis.call('GET', 'b{n}')"},
	{"a{n}", "return redis.pcall('GET', 'b{n}')"},
	{"a{n}", "return redis.pcall('SET', 'b{n}', '1')"},
	{"a{n}", "return redis.pcall('TYPE', 'b{n}')"},
	{"a{n}", "return redis.pcall('PTTL', 'b{n}')"},
	{"a{n}", "return redis.pcall('PEXPIRE', 'b{n}', 1000)"},
	{"a{n}", "return redis.pcall('EXISTS', 'b{n}')"},
	{"a{n}", "return redis.pcall('EXISTS', 'a{n}', 'b{n}')"},
	{"a{n}", "return redis.pcall('DEL', 'b{n}')"},
	{"a{n}", "return redis.pcall('DEL', 'a{n}', 'b{n}')"},
	{"h{n}", "return redis.pcall('HGET', 'b{n}', 'f')"},
	{"h{n}", "return redis.pcall('HMGET', 'b{n}', 'f', 'g')"},
	{"h{n}", "return redis.pcall('HSET', 'b{n}', 'f', '1')"},
	{"h{n}", "return redis.pcall('HSETNX', 'b{n}', 'f', '1')"},
	{"h{n}", "return redis.pcall('HDEL', 'b{n}', 'f')"},
	{"z{n}", "return redis.pcall('ZADD', 'b{n}', 1, 'm')"},
	{"z{n}", "return redis.pcall('ZREM', 'b{n}', 'm')"},
	{"z{n}", "return redis.pcall('ZCARD', 'b{n}')"},
	{"z{n}", "return redis.pcall('ZSCORE', 'b{n}', 'm')"},
	{"z{n}", "return redis.pcall('ZRANK', 'b{n}', 'm')"},
	{"z{n}", "return redis.pcall('ZRANGE', 'b{n}', 0, 0)"},
	{"z{n}", "return redis.pcall('ZREVRANGE', 'b{n}', 0, 0)"},
	{"z{n}", "return redis.pcall('ZRANGEBYSCORE', 'b{n}', 0, 0)"},
	{"a{n}", "return redis.pcall('HGET', 'b{n}')"},
	{"a{n}", "redis.call('SET', 'a{n}', '2') error('after a write')"},
	/* keys that the script removes */
	{"a{n}", "return redis.call('DEL', 'a{n}')"},
	{"a{n}", "redis.call('DEL', 'a{n}') return redis.call('SET', 'a{n}', '1')"},
	{"a{n}", "redis.call('DEL', 'a{n}') return redis.pcall('GET', 'a{n}')"},
	{"h{n}", "redis.call('HDEL', 'h{n}', 'f') return redis.pcall('HSET', 'h{n}', 'f', '1')"},
	{"h{n}", "redis.call('HDEL', 'h{n}', 'x') return redis.pcall('HGET', 'h{n}', 'f')"},
	{"z{n}", "redis.call('ZREM', 'z{n}', 'm') return redis.pcall('ZCARD', 'z{n}')"},
	{"z{n}", "redis.call('ZREM', 'z{n}', 'm') return redis.pcall('ZADD', 'z{n}', 1, 'm')"},
	{"z{n}", "redis.call('PEXPIRE', 'z{n}', 0) return redis.pcall('ZCARD', 'z{n}')"},
	{"a{n} h{n}", "return redis.call('DEL', 'a{n}', 'h{n}')"},
	{"a{n}", "redis.call('SET', 'a{n}', '2') redis.call('DEL', 'a{n}') "
                 "return redis.pcall('DEL', 'a{n}')"},
	/* no keys */
	{"a{n}", "return redis.call('PUBLISH', 'x', 'y')"},
	{"a{n}", "return redis.call('SPUBLISH', 'x{n}', 'y')"},
	{"a{n}", "redis.call('DEL', 'a{n}') return redis.call('SPUBLISH', 'x{n}', 'y')"},
	{"a{n}", "return #redis.call('TIME')"},
};

static struct test_server source, target;
static struct redis *node, *other;
static struct lua_store *store;
static char move[100]; /* CLUSTER SETSLOT <slot> MIGRATING <id> */
static char place[60]; /* <slot> <host>:<port> */
static int slot;
static enum server_version version;

static bool is_ok(struct redis *redis)
{
	return strstr(redis_text(redis, "CLUSTER INFO"), "cluster_state:ok");
}

static void start(void)
{
	static const char *const args[] = {"--cluster-enabled", "yes", "--save", "", NULL};
	const struct server_options options = {.args = args};
	char id[60];

	server_start(&source, &options);
	server_start(&target, &options);
	version = server_version(&source);
	node = redis_open(&source);
	other = redis_open(&target);
	slot = atoi(redis_text(node, "CLUSTER KEYSLOT {n}"));
	redis_do(node, "CLUSTER ADDSLOTSRANGE 0 16383");
	redis_do(node, "CLUSTER MEET 127.0.0.1 %d", target.port);
	WITHIN(20000, is_ok(node) && is_ok(other));
	snprintf(id, sizeof(id), "%s", redis_text(node, "CLUSTER MYID"));
	redis_do(other, "CLUSTER SETSLOT %d IMPORTING %s", slot, id);
	snprintf(id, sizeof(id), "%s", redis_text(other, "CLUSTER MYID"));
	snprintf(move, sizeof(move), "CLUSTER SETSLOT %d MIGRATING %s", slot, id);
	snprintf(place, sizeof(place), "%d 127.0.0.1:%d", slot, target.port);
	store = lua_store_new(NULL, NULL);
	lua_store_set_time(store, INT64_C(1700000000000000));
}

static void stop(void)
{
	lua_store_free(store);
	redis_close(node);
	redis_close(other);
	server_stop(&source);
	server_stop(&target);
}

/* A command to both. */
static void both(const char *command)
{
	char words[200], *rest = words, *word;
	const char *argv[WORDS_MAX];
	int argc = 0;

	redis_text(node, command);
	snprintf(words, sizeof(words), "%s", command);
	while ((word = strsep(&rest, " ")) && argc < WORDS_MAX)
		argv[argc++] = word;
	lua_store_ask(store, argc, argv, NULL);
}

static void stays(void)
{
	redis_do(node, "CLUSTER SETSLOT %d STABLE", slot);
	lua_store_set_migrating(store, NULL);
}

static void moves(void)
{
	redis_do(node, move);
	lua_store_set_migrating(store, place);
}

/* The store's reply to a script, as that server formats it. */
static void tell(const char *script, char text[600], const char *answer)
{
	struct lk__buf reply = {0};

	lua_reply_bytes(&reply, answer, strlen(answer) + 1);
	server_version_text(version, script, &reply);
	snprintf(text, 600, "%s", reply.data);
	lk__buf_fini(&reply);
}

/* Run a script on both; true if the replies are the same. */
static bool same(const char *script, const char *keys)
{
	char words[200], command[300], text[2][600], *rest = words, *word;
	const char *argv[WORDS_MAX + 3] = {"EVAL", script, NULL};
	char count[8];
	int argc = 3;

	snprintf(words, sizeof(words), "%s", keys);
	while ((word = strsep(&rest, " ")))
		argv[argc++] = word;
	snprintf(count, sizeof(count), "%d", argc - 3);
	argv[2] = count;
	snprintf(command, sizeof(command), "EVAL %%s %s %s", count, keys);
	snprintf(text[0], sizeof(text[0]), "%s", redis_text(node, command, script));
	tell(script, text[1], lua_store_ask(store, argc, argv, NULL));
	if (!strcmp(text[0], text[1]))
		return true;
	printf("%s, keys %s\nthe server answers\n%s\nand the store\n%s\n", script, keys, text[0],
	       text[1]);
	return false;
}

TEST_LIMIT(script_in_a_slot_that_moves_does_in_memory_what_it_does_on_a_node, 60)
{
	static const char *const values = "local all = {} for _, key in ipairs(KEYS) do "
					  "all[#all + 1] = redis.call('TYPE', key) end return all";
	int differ = 0;

	start();
	for (size_t i = 0; i < sizeof(probes) / sizeof(*probes); i++) {
		stays();
		both("DEL a{n} b{n} c{n} h{n} z{n}");
		both("SET a{n} 1");
		both("HSET h{n} f 1");
		both("ZADD z{n} 1 m");
		moves();
		differ += !same(probes[i].script, probes[i].keys);
		stays();
		differ += !same(values, "a{n} b{n} c{n} h{n} z{n}");
	}
	fflush(stdout);
	ck_assert_int_eq(differ, 0);
	ck_assert_int_eq(server_version_unused(version, true), 0);
	stop();
}
