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

/* Without snprintf(), which is slow for so many numbers. */
static void head(struct lk__buf *reply, char type, int64_t number)
{
	char text[32], *at = text + sizeof(text);
	uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;

	*--at = '\n';
	*--at = '\r';
	do
		*--at = (char)('0' + rest % 10);
	while (rest /= 10);
	if (number < 0)
		*--at = '-';
	*--at = type;
	lua_reply_bytes(reply, at, (size_t)(text + sizeof(text) - at));
}

void lua_reply_text(struct lk__buf *reply, const char *bytes, size_t len)
{
	head(reply, '$', (int64_t)len);
	lua_reply_bytes(reply, bytes, len);
	lua_reply_bytes(reply, "\r\n", 2);
}

void lua_reply_nil(struct lk__buf *reply)
{
	head(reply, '$', -1);
}

void lua_reply_number(struct lk__buf *reply, int64_t number)
{
	head(reply, ':', number);
}

void lua_reply_array(struct lk__buf *reply, size_t count)
{
	head(reply, '*', (int64_t)count);
}

/* As Redis 7.0 does, "%.17g"; later versions write the shortest text, which is the same for whole
 * numbers.  Nearly all are whole, and faster this way. */
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
	size_t len = lua_number_text(score == 0 ? 0 : score, text); /* no "-0" */

	lua_reply_text(reply, text, len);
}

/* One line: each CR or LF becomes a space. */
static void line(struct lk__buf *reply, char type, const char *text)
{
	size_t from = reply->len + 1;

	lua_reply_bytes(reply, &type, 1);
	lua_reply_bytes(reply, text, strlen(text));
	for (size_t i = from; i < reply->len; i++)
		if (reply->data[i] == '\r' || reply->data[i] == '\n')
			reply->data[i] = ' ';
	lua_reply_bytes(reply, "\r\n", 2);
}

void lua_reply_status(struct lk__buf *reply, const char *text)
{
	line(reply, '+', text);
}

void lua_reply_error(struct lk__buf *reply, const char *fmt, ...)
{
	char text[500];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	line(reply, '-', text);
}
