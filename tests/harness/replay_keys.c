/* SPDX-License-Identifier: MIT
 * All keys of either side as text: name, type, TTL, values, each ended by a NUL. */
#include "lua_store_parts.h"
#include "replay.h"

#include <stdio.h>
#include <string.h>

/* ARGV[1]: "" = the text's digest, else the text. */
const char replay_keys_script[] =
	"local out = {}\n"
	"local keys = redis.call('KEYS', '*')\n"
	"table.sort(keys)\n"
	"for _, key in ipairs(keys) do\n"
	"	local kind = redis.call('TYPE', key).ok\n"
	"	out[#out + 1] = key\n"
	"	out[#out + 1] = kind\n"
	"	out[#out + 1] = string.format('%.0f', redis.call('PTTL', key))\n"
	"	if kind == 'string' then\n"
	"		out[#out + 1] = redis.call('GET', key)\n"
	"	elseif kind == 'zset' then\n"
	"		for _, word in ipairs(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')) do\n"
	"			out[#out + 1] = word\n"
	"		end\n"
	"	else\n"
	"		local all, fields, values = redis.call('HGETALL', key), {}, {}\n"
	"		for i = 1, #all, 2 do\n"
	"			fields[#fields + 1] = all[i]\n"
	"			values[all[i]] = all[i + 1]\n"
	"		end\n"
	"		table.sort(fields)\n"
	"		for _, field in ipairs(fields) do\n"
	"			out[#out + 1] = field\n"
	"			out[#out + 1] = values[field]\n"
	"		end\n"
	"	end\n"
	"end\n"
	"local text = table.concat(out, '\\0') .. '\\0'\n"
	"return ARGV[1] == '' and redis.sha1hex(text) or text\n";

static void add(struct lk__buf *text, const char *bytes, size_t len)
{
	lua_reply_bytes(text, bytes, len);
	lua_reply_bytes(text, "", 1);
}

static void take(const char **at, void *value, size_t len)
{
	memcpy(value, *at, len);
	*at += len;
}

static void copy_word(const char **at, struct lk__buf *text)
{
	uint32_t len;

	take(at, &len, sizeof(len));
	add(text, *at, len);
	*at += len;
}

/* The dump has the score before the member, the text has it after. */
static void copy_member(const char **at, struct lk__buf *text)
{
	char number[LUA_NUMBER_SIZE];
	double score;

	take(at, &score, sizeof(score));
	copy_word(at, text);
	add(text, number, lua_number_text(score == 0 ? 0 : score, number));
}

void replay_keys_text(const struct lk__buf *dump, int64_t now_us, struct lk__buf *text)
{
	static const char *const types[] = {"string", "hash", "zset"};
	const char *at = dump->data, *end = at + dump->len;

	while (at < end) {
		char left[24];
		int64_t expires_ms;
		uint32_t count;
		uint8_t type;
		take(&at, &type, sizeof(type));
		take(&at, &expires_ms, sizeof(expires_ms));
		copy_word(&at, text);
		add(text, types[type], strlen(types[type]));
		/* A number, formatted as by the server's Lua. */
		snprintf(left, sizeof(left), "%.0f",
		         (double)(expires_ms < 0 ? -1 : expires_ms - now_us / 1000));
		add(text, left, strlen(left));
		if (type == LUA_STRING) {
			copy_word(&at, text);
			continue;
		}
		take(&at, &count, sizeof(count));
		for (uint32_t i = 0; i < count; i++) {
			if (type == LUA_ZSET) {
				copy_member(&at, text);
			} else {
				copy_word(&at, text);
				copy_word(&at, text);
			}
		}
	}
	if (!text->len)
		add(text, "", 0);
}
