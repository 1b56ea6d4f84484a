/* SPDX-License-Identifier: MIT
 * The commands of the Redis in memory on hashes and sorted sets. */
#include "lua_store_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char not_integer[] = "ERR value is not an integer or out of range";

/* ---- Hashes ------------------------------------------------------------------------------- */

static void reply_value(struct lk__buf *reply, const struct lua_key *key, struct lua_word field)
{
	long index = lua_key_item(key, field);

	if (index < 0)
		lua_reply_nil(reply);
	else
		lua_reply_text(reply, key->items[index].value, key->items[index].value_len);
}

static bool set_field(struct lua_key *key, struct lua_word field, struct lua_word value)
{
	long index = lua_key_item(key, field);

	lua_item_set_value(index < 0 ? lua_key_add_item(key, field) : &key->items[index], value);
	return index < 0;
}

static void run_hset(struct lua_server *server, int argc, const struct lua_word *argv,
                     struct lk__buf *reply)
{
	struct lua_key *key;
	int64_t added = 0;

	if (argc % 2) {
		lua_reply_error(reply, "ERR wrong number of arguments for 'hset' command");
		return;
	}
	if (!lua_key_of(server, argv[1], LUA_HASH, &key, reply))
		return;
	if (!key)
		key = lua_keys_make(&server->keys, argv[1], LUA_HASH);
	for (int i = 2; i < argc; i += 2)
		added += set_field(key, argv[i], argv[i + 1]);
	lua_reply_number(reply, added);
}

static void run_hsetnx(struct lua_server *server, int argc, const struct lua_word *argv,
                       struct lk__buf *reply)
{
	struct lua_key *key;
	bool absent;

	(void)argc;
	if (!lua_key_of(server, argv[1], LUA_HASH, &key, reply))
		return;
	absent = lua_key_item(key, argv[2]) < 0;
	if (!key)
		key = lua_keys_make(&server->keys, argv[1], LUA_HASH);
	if (absent)
		set_field(key, argv[2], argv[3]);
	lua_reply_number(reply, absent);
}

static void run_hget(struct lua_server *server, int argc, const struct lua_word *argv,
                     struct lk__buf *reply)
{
	struct lua_key *key;

	(void)argc;
	if (lua_key_of(server, argv[1], LUA_HASH, &key, reply))
		reply_value(reply, key, argv[2]);
}

static void run_hmget(struct lua_server *server, int argc, const struct lua_word *argv,
                      struct lk__buf *reply)
{
	struct lua_key *key;

	if (!lua_key_of(server, argv[1], LUA_HASH, &key, reply))
		return;
	lua_reply_array(reply, (size_t)argc - 2);
	for (int i = 2; i < argc; i++)
		reply_value(reply, key, argv[i]);
}

static void run_hgetall(struct lua_server *server, int argc, const struct lua_word *argv,
                        struct lk__buf *reply)
{
	struct lua_key *key;

	(void)argc;
	if (!lua_key_of(server, argv[1], LUA_HASH, &key, reply))
		return;
	lua_reply_array(reply, key ? key->count * 2 : 0);
	for (size_t i = 0; key && i < key->count; i++) {
		lua_reply_text(reply, key->items[i].name, key->items[i].name_len);
		lua_reply_text(reply, key->items[i].value, key->items[i].value_len);
	}
}

/* HDEL and ZREM. */
static void remove_items(struct lua_server *server, enum lua_type type, int argc,
                         const struct lua_word *argv, struct lk__buf *reply)
{
	struct lua_key *key;
	int64_t removed = 0;

	if (!lua_key_of(server, argv[1], type, &key, reply))
		return;
	for (int i = 2; key && i < argc; i++) {
		long index = lua_key_item(key, argv[i]);
		if (index < 0)
			continue;
		removed++;
		if (key->count == 1) {
			lua_key_remove_item(&server->keys, key, index);
			key = NULL;
		} else {
			lua_key_remove_item(&server->keys, key, index);
		}
	}
	lua_reply_number(reply, removed);
}

static void run_hdel(struct lua_server *server, int argc, const struct lua_word *argv,
                     struct lk__buf *reply)
{
	remove_items(server, LUA_HASH, argc, argv, reply);
}

/* ---- Sorted sets -------------------------------------------------------------------------- */

static bool parse_score(struct lua_word word, double *score)
{
	char text[512], *end; /* 1e308 in full, with room to spare */

	if (!word.len || word.len >= sizeof(text))
		return false;
	memcpy(text, word.bytes, word.len);
	text[word.len] = '\0';
	*score = strtod(text, &end);
	return !*end && !isnan(*score);
}

static void run_zadd(struct lua_server *server, int argc, const struct lua_word *argv,
                     struct lk__buf *reply)
{
	struct lua_key *key;
	int64_t added = 0;
	double score;

	if (argc % 2) {
		lua_reply_error(reply, "ERR syntax error");
		return;
	}
	for (int i = 2; i < argc; i += 2) {
		if (!parse_score(argv[i], &score)) {
			lua_reply_error(reply, "ERR value is not a valid float");
			return;
		}
	}
	if (!lua_key_of(server, argv[1], LUA_ZSET, &key, reply))
		return;
	if (!key)
		key = lua_keys_make(&server->keys, argv[1], LUA_ZSET);
	for (int i = 2; i < argc; i += 2) {
		parse_score(argv[i], &score);
		added += lua_key_set_score(key, argv[i + 1], score);
	}
	lua_reply_number(reply, added);
}

static void run_zrem(struct lua_server *server, int argc, const struct lua_word *argv,
                     struct lk__buf *reply)
{
	remove_items(server, LUA_ZSET, argc, argv, reply);
}

static void run_zcard(struct lua_server *server, int argc, const struct lua_word *argv,
                      struct lk__buf *reply)
{
	struct lua_key *key;

	(void)argc;
	if (lua_key_of(server, argv[1], LUA_ZSET, &key, reply))
		lua_reply_number(reply, key ? (int64_t)key->count : 0);
}

static void run_zscore(struct lua_server *server, int argc, const struct lua_word *argv,
                       struct lk__buf *reply)
{
	struct lua_key *key;
	long index;

	(void)argc;
	if (!lua_key_of(server, argv[1], LUA_ZSET, &key, reply))
		return;
	index = lua_key_item(key, argv[2]);
	if (index < 0)
		lua_reply_nil(reply);
	else
		lua_reply_score(reply, key->items[index].score);
}

static void run_zrank(struct lua_server *server, int argc, const struct lua_word *argv,
                      struct lk__buf *reply)
{
	struct lua_key *key;
	long index;

	(void)argc;
	if (!lua_key_of(server, argv[1], LUA_ZSET, &key, reply))
		return;
	index = lua_key_item(key, argv[2]);
	if (index < 0)
		lua_reply_nil(reply);
	else
		lua_reply_number(reply, index);
}

/* Members from one index to another, counted from the last one if reversed. */
static void reply_members(struct lk__buf *reply, const struct lua_key *key, int64_t first,
                          int64_t last, bool reversed, bool scores)
{
	int64_t count = key ? (int64_t)key->count : 0;

	if (first > last || first >= count) {
		lua_reply_array(reply, 0);
		return;
	}
	if (last >= count)
		last = count - 1;
	lua_reply_array(reply, (size_t)(last - first + 1) * (scores ? 2 : 1));
	for (int64_t i = first; i <= last; i++) {
		const struct lua_item *item = &key->items[reversed ? count - 1 - i : i];
		lua_reply_text(reply, item->name, item->name_len);
		if (scores)
			lua_reply_score(reply, item->score);
	}
}

static void range(const struct lua_server *server, int argc, const struct lua_word *argv,
                  bool reversed, struct lk__buf *reply)
{
	int64_t first, last, count;
	struct lua_key *key;

	if (argc > 5 || (argc == 5 && !lua_word_is(argv[4], "WITHSCORES"))) {
		lua_reply_error(reply, "ERR syntax error");
		return;
	}
	if (!lua_word_number(argv[2], &first) || !lua_word_number(argv[3], &last)) {
		lua_reply_error(reply, "%s", not_integer);
		return;
	}
	if (!lua_key_of(server, argv[1], LUA_ZSET, &key, reply))
		return;
	count = key ? (int64_t)key->count : 0;
	first = first < 0 ? first + count : first;
	last = last < 0 ? last + count : last;
	reply_members(reply, key, first < 0 ? 0 : first, last, reversed, argc == 5);
}

static void run_zrange(struct lua_server *server, int argc, const struct lua_word *argv,
                       struct lk__buf *reply)
{
	range(server, argc, argv, false, reply);
}

static void run_zrevrange(struct lua_server *server, int argc, const struct lua_word *argv,
                          struct lk__buf *reply)
{
	range(server, argc, argv, true, reply);
}

/* A bound: a number, exclusive after "(", -inf, +inf. */
static bool parse_bound(struct lua_word word, double *bound, bool *excluded)
{
	*excluded = word.len && word.bytes[0] == '(';
	if (*excluded) {
		word.bytes++;
		word.len--;
	}
	return parse_score(word, bound);
}

/* ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count] */
static void run_zrangebyscore(struct lua_server *server, int argc, const struct lua_word *argv,
                              struct lk__buf *reply)
{
	int64_t offset = 0, limit = -1, first = 0, count = 0;
	bool scores = false, excluded_min, excluded_max;
	struct lua_key *key;
	double min, max;
	int at = 4;

	if (at < argc && lua_word_is(argv[at], "WITHSCORES"))
		scores = ++at;
	if (at + 3 == argc && lua_word_is(argv[at], "LIMIT")) {
		if (!lua_word_number(argv[at + 1], &offset) ||
		    !lua_word_number(argv[at + 2], &limit)) {
			lua_reply_error(reply, "%s", not_integer);
			return;
		}
		at += 3;
	}
	if (at != argc) {
		lua_reply_error(reply, "ERR syntax error");
		return;
	}
	if (!parse_bound(argv[2], &min, &excluded_min) ||
	    !parse_bound(argv[3], &max, &excluded_max)) {
		lua_reply_error(reply, "ERR min or max is not a float");
		return;
	}
	if (!lua_key_of(server, argv[1], LUA_ZSET, &key, reply))
		return;
	for (size_t i = 0; key && i < key->count; i++) {
		double score = key->items[i].score;
		if (score < min || (excluded_min && score == min))
			first++;
		else if (score < max || (!excluded_max && score == max))
			count++;
	}
	count = offset < count ? count - offset : 0;
	if (limit >= 0 && limit < count)
		count = limit;
	reply_members(reply, key, first + offset, first + offset + count - 1, false, scores);
}

const struct lua_command lua_item_commands[] = {
	{"HSET", -4, run_hset, LUA_GROWS, LUA_ONE_KEY},
	{"HSETNX", 4, run_hsetnx, LUA_GROWS, LUA_ONE_KEY},
	{"HGET", 3, run_hget, LUA_READS, LUA_ONE_KEY},
	{"HMGET", -3, run_hmget, LUA_READS, LUA_ONE_KEY},
	{"HGETALL", 2, run_hgetall, LUA_READS, LUA_ONE_KEY},
	{"HDEL", -3, run_hdel, LUA_WRITES, LUA_ONE_KEY},
	{"ZADD", -4, run_zadd, LUA_GROWS, LUA_ONE_KEY},
	{"ZREM", -3, run_zrem, LUA_WRITES, LUA_ONE_KEY},
	{"ZCARD", 2, run_zcard, LUA_READS, LUA_ONE_KEY},
	{"ZSCORE", 3, run_zscore, LUA_READS, LUA_ONE_KEY},
	{"ZRANK", 3, run_zrank, LUA_READS, LUA_ONE_KEY},
	{"ZRANGE", -4, run_zrange, LUA_READS, LUA_ONE_KEY},
	{"ZREVRANGE", -4, run_zrevrange, LUA_READS, LUA_ONE_KEY},
	{"ZRANGEBYSCORE", -4, run_zrangebyscore, LUA_READS, LUA_ONE_KEY},
	{NULL, 0, NULL, LUA_READS, LUA_NO_KEY},
};
