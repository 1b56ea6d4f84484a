/* SPDX-License-Identifier: MIT
 * Replies as a server writes them in RESP2. */
#include "lua_store_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lua_reply_bytes(struct lk__buf *reply, const char *bytes, size_t len)
{
	if (reply->len + len > reply->cap) {
		reply->cap = (reply->len + len) * 2 + 64;
		reply->data = realloc(reply->data, reply->cap);
		if (!reply->data)
			abort();
	}
	if (len)
		memcpy(reply->data + reply->len, bytes, len);
	reply->len += len;
}

static void head(struct lk__buf *reply, char type, long long number)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%c%lld\r\n", type, number);

	lua_reply_bytes(reply, text, (size_t)len);
}

void lua_reply_text(struct lk__buf *reply, const char *bytes, size_t len)
{
	head(reply, '$', (long long)len);
	lua_reply_bytes(reply, bytes, len);
	lua_reply_bytes(reply, "\r\n", 2);
}

void lua_reply_nil(struct lk__buf *reply)
{
	head(reply, '$', -1);
}

void lua_reply_number(struct lk__buf *reply, int64_t number)
{
	head(reply, ':', (long long)number);
}

void lua_reply_array(struct lk__buf *reply, size_t count)
{
	head(reply, '*', (long long)count);
}

/* As Redis 7.0 does, "%.17g"; later ones write the shortest text, which is the same for whole
 * numbers.  Those are nearly all, and quicker this way. */
size_t lua_number_text(double number, char text[LUA_NUMBER_SIZE])
{
	long long whole = number > -1e16 && number < 1e16 ? (long long)number : 0;

	if (whole && (double)whole == number)
		return (size_t)snprintf(text, LUA_NUMBER_SIZE, "%lld", whole);
	return (size_t)snprintf(text, LUA_NUMBER_SIZE, "%.17g", number);
}

void lua_reply_score(struct lk__buf *reply, double score)
{
	char text[LUA_NUMBER_SIZE];
	size_t len = lua_number_text(score, text);

	lua_reply_text(reply, text, len);
}

void lua_reply_status(struct lk__buf *reply, const char *text)
{
	lua_reply_bytes(reply, "+", 1);
	lua_reply_bytes(reply, text, strlen(text));
	lua_reply_bytes(reply, "\r\n", 2);
}

void lua_reply_error(struct lk__buf *reply, const char *fmt, ...)
{
	char text[500];
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	for (char *at = text; *at; at++)
		if (*at == '\r' || *at == '\n')
			*at = ' ';
	lua_reply_bytes(reply, "-", 1);
	lua_reply_bytes(reply, text, len < (int)sizeof(text) ? (size_t)len : sizeof(text) - 1);
	lua_reply_bytes(reply, "\r\n", 2);
}
