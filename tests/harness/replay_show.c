/* SPDX-License-Identifier: MIT
 * Print the differences of a replay. */
#include "lua_store_parts.h"
#include "replay_sides.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_BEFORE 6 /* commands of the batch that are printed before the one that differs */

void replay_show_bytes(FILE *out, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (bytes[i] == '\n' || bytes[i] == '\0')
			fputc(' ', out);
		else if (bytes[i] != '\r')
			fputc(bytes[i], out);
	}
	fputc('\n', out);
}

/* A request without its lengths. */
static void show_request(FILE *out, const char *bytes, size_t len)
{
	const char *at = bytes, *end = bytes + len;

	while (at < end && *at != '\n')
		at++;
	while (++at < end) {
		char *rest;
		size_t size = strtoul(at + 1, &rest, 10);
		bool text = size > 400;
		fprintf(out, " %.*s%s", text ? 20 : (int)size, rest + 2, text ? "..." : "");
		at = rest + 2 + size + 1;
	}
	fputc('\n', out);
}

size_t replay_same(const struct lk__buf *one, const struct lk__buf *other)
{
	size_t len = one->len < other->len ? one->len : other->len, at = 0;

	while (at < len && one->data[at] == other->data[at])
		at++;
	return at;
}

void replay_show_command(const struct replay_sides *sides, int i)
{
	size_t from = i ? sides->command[i - 1].request_end : 0;

	fprintf(sides->out, "  %3d", i);
	show_request(sides->out, sides->requests.data + from, sides->command[i].request_end - from);
}

/* Find the reply of the batch that differs, and print both. */
void replay_show_reply(struct replay *replay, size_t at)
{
	struct replay_sides *sides = replay->sides;
	size_t from;
	int i = 0;

	while (i < sides->count - 1 && sides->command[i].reply_end <= at)
		i++;
	from = i ? sides->command[i - 1].reply_end : 0;
	fprintf(sides->out, "a reply differs; the last commands at %" PRId64 " us:\n",
	        replay->now_us);
	for (int j = i < SHOWN_BEFORE ? 0 : i - SHOWN_BEFORE; j <= i; j++)
		replay_show_command(sides, j);
	fputs("the server: ", sides->out);
	replay_show_bytes(sides->out, sides->got.data + from, sides->got.len - from);
	fputs("the store:  ", sides->out);
	replay_show_bytes(sides->out, sides->replies.data + from,
	                  sides->command[i].reply_end - from);
}

void replay_show_keys(struct replay *replay, const struct lk__buf *text)
{
	struct replay_sides *sides = replay->sides;
	struct lk__buf request = {0};
	const char *argv[] = {"EVAL", replay_keys_script, "0", "text"};
	size_t at, from;

	fprintf(sides->out, "the keys differ at %" PRId64 " us after:\n", replay->now_us);
	for (int i = 0; i < sides->count; i++)
		replay_show_command(sides, i);
	lk__resp_command(&request, 4, argv, NULL);
	replay_say(sides->fd, &request);
	lk__buf_fini(&request);
	sides->got.len = 0;
	lua_reply_text(&request, text->data, text->len);
	replay_hear(sides, sides->fd, &request);
	lk__buf_fini(&request);
	/* From the reply's first byte after its length. */
	at = 0;
	while (at < sides->got.len && sides->got.data[at++] != '\n')
		continue;
	memmove(sides->got.data, sides->got.data + at, sides->got.len -= at);
	at = replay_same(&sides->got, text);
	from = at < 300 ? 0 : at - 300;
	fputs("the server: ", sides->out);
	replay_show_bytes(sides->out, sides->got.data + from,
	                  sides->got.len - from < 600 ? sides->got.len - from : 600);
	fputs("the store:  ", sides->out);
	replay_show_bytes(sides->out, text->data + from,
	                  text->len - from < 600 ? text->len - from : 600);
}
