/* SPDX-License-Identifier: MIT
 * The differences of servers from a Redis 7.0. */
#include "server_version.h"

#include "lua_store_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define REDIS_8 (1U << SERVER_REDIS_8)
#define VALKEY_8 (1U << SERVER_VALKEY_8)
#define IN_CLUSTER (1U << SERVER_VERSIONS) /* only there */

static const struct {
	unsigned versions;
	const char *script; /* only in the reply to this one */
	const char *redis_7, *other;
} differences[] = {
	/* The shortest text of a number instead of 17 digits. */
	{REDIS_8 | VALKEY_8, NULL, "0.10000000000000001", "0.1"},
	{REDIS_8 | VALKEY_8, NULL, "1.0000000000000001e+300", "1e+300"},
	{REDIS_8 | VALKEY_8, NULL, "1.2345678901234567e+19", "12345678901234567000"},
	{REDIS_8 | VALKEY_8, NULL, "1700000000500000.2", "1700000000500000.3"},
	{REDIS_8 | VALKEY_8, "redis.call('SET', KEYS[1], -0.0) return redis.call('GET', KEYS[1])",
         "-0", "0"},
	/* Lua's numbers as arguments: 1e18 is whole. */
	{REDIS_8 | VALKEY_8, "return redis.call('SET', KEYS[1], 'x', 'PX', 1e18)",
         "-ERR value is not an integer or out of range script: "
         "e75f849cf564b30dacf638027249e97084f97388, on @user_script:1.",
         "OK"},
	/* There is a table "os", with clock() alone. */
	{REDIS_8 | VALKEY_8, NULL, "Script attempted to access nonexistent global variable 'os'",
         "attempt to call field 'time' (a nil value)"},
	/* Texts of errors. */
	{VALKEY_8, NULL, "Unknown Redis command called", "Unknown command called"},
	{VALKEY_8, NULL, "args calling Redis command", "args calling command"},
	{VALKEY_8, NULL, "argument for this redis lib call", "argument for this call"},
	{VALKEY_8, NULL, "Lua redis lib command arguments", "Command arguments"},
	{VALKEY_8, NULL, "No matching script. Please use EVAL.", "No matching script."},
	/* A script names several keys of a slot that moves, and some are not there. */
	{REDIS_8 | VALKEY_8 | IN_CLUSTER, "return redis.pcall('EXISTS', 'a{n}', 'b{n}')", LUA_AWAY,
         "ERR Unable to execute command 'exists' in script because undeclared keys were accessed "
         "during rehashing of the slot"},
	{REDIS_8 | VALKEY_8 | IN_CLUSTER, "return redis.pcall('DEL', 'a{n}', 'b{n}')", LUA_AWAY,
         "ERR Unable to execute command 'del' in script because undeclared keys were accessed "
         "during rehashing of the slot"},
};
static bool used[COUNT(differences)];

enum server_version server_version(const struct test_server *server)
{
	struct redis *redis = redis_open(server);
	const char *info = redis_text(redis, "INFO server");
	const char *at = strstr(info, "redis_version:");
	enum server_version version = SERVER_REDIS_7;

	if (strstr(info, "valkey_version:"))
		version = SERVER_VALKEY_8;
	else if (at && atoi(at + strlen("redis_version:")) >= 8)
		version = SERVER_REDIS_8;
	redis_close(redis);
	return version;
}

/* Replace each "from" in the text by "to"; false if there is none. */
static bool replace(struct lk__buf *text, const char *from, const char *to)
{
	size_t from_len = strlen(from), at = 0;
	struct lk__buf out = {0};
	const char *hit;

	while ((hit = memmem(text->data + at, text->len - at, from, from_len))) {
		lua_reply_bytes(&out, text->data + at, (size_t)(hit - text->data) - at);
		lua_reply_bytes(&out, to, strlen(to));
		at = (size_t)(hit - text->data) + from_len;
	}
	if (!at)
		return false;
	lua_reply_bytes(&out, text->data + at, text->len - at);
	lk__buf_fini(text);
	*text = out;
	return true;
}

void server_version_text(enum server_version version, const char *script, struct lk__buf *text)
{
	for (size_t i = 0; i < COUNT(differences) && text->len; i++) {
		const char *only = differences[i].script;
		if (!(differences[i].versions & 1U << version) ||
		    (only && (!script || strcmp(only, script) != 0)))
			continue;
		used[i] |= replace(text, differences[i].redis_7, differences[i].other);
	}
}

void server_version_reply(enum server_version version, struct lk__buf *reply, size_t from)
{
	struct lk__buf out = {0}, text = {0};

	if (version == SERVER_REDIS_7)
		return;
	for (const char *at = reply->data + from, *end = reply->data + reply->len; at < end;) {
		const char *next = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1;
		long len = *at == '$' ? strtol(at + 1, NULL, 10) : -1;
		text.len = 0;
		if (len < 0) {
			lua_reply_bytes(&text, at, (size_t)(next - at));
			server_version_text(version, NULL, &text);
			lua_reply_bytes(&out, text.data, text.len);
			at = next;
		} else {
			lua_reply_bytes(&text, next, (size_t)len);
			server_version_text(version, NULL, &text);
			lua_reply_text(&out, text.data, text.len);
			at = next + len + 2;
		}
	}
	reply->len = from;
	lua_reply_bytes(reply, out.data, out.len);
	lk__buf_fini(&out);
	lk__buf_fini(&text);
}

int server_version_unused(enum server_version version, bool in_cluster)
{
	int count = 0;

	for (size_t i = 0; i < COUNT(differences); i++) {
		if (used[i] || !(differences[i].versions & 1U << version) ||
		    !(differences[i].versions & IN_CLUSTER) == in_cluster)
			continue;
		printf("no reply of the store had \"%s\"\n", differences[i].redis_7);
		count++;
	}
	return count;
}
