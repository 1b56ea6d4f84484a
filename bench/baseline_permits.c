/* SPDX-License-Identifier: MIT
 * Bare hiredis sending the two scripts of a semaphore, with the words that src/redis/codec.c sends:
 * a blocking socket, commands formatted once, a new ticket a pair. */
#include "baseline_permits.h"

#include "bare_command.h"
#include "bare_marker.h"
#include "core/core.h"
#include "scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT_ID "BenchBareClientIdOf22c"
struct permits {
	redisContext *context;
	struct command ask, leave;
	uint64_t tickets;
};

static void format_both(struct permits *permits, const struct bare_marker *marker, const char *name,
                        int capacity)
{
	static const char ticket[] = "2:" CLIENT_ID ":" NONCE_MARK ":10000:r:1";
	char state[160], queue[160], holds[160], permits_text[16], ttl[24], life[24], patience[24];
	const char *ask[] = {"EVALSHA",    lk__script_semaphore_ask.sha1,
	                     "5",          state,
	                     queue,        "lk:fence",
	                     holds,        "lk:epoch",
	                     ticket,       "1",
	                     "0",          "lk:c:0:",
	                     permits_text, ttl,
	                     life,         patience,
	                     marker->text, marker->end};
	const char *leave[] = {"EVALSHA",  lk__script_semaphore_leave.sha1,
	                       "5",        state,
	                       queue,      "lk:fence",
	                       holds,      "lk:epoch",
	                       ticket,     "0",
	                       "lk:c:0:",  "0",
	                       patience,   marker->text,
	                       marker->end};

	snprintf(state, sizeof(state), "lk:{%s}", name);
	snprintf(queue, sizeof(queue), "lk:{%s}:q", name);
	snprintf(holds, sizeof(holds), "lk:{%s}:h", name);
	snprintf(permits_text, sizeof(permits_text), "%d", capacity);
	snprintf(ttl, sizeof(ttl), "%d", LK_TTL_DEFAULT_MS);
	snprintf(life, sizeof(life), "%d", LK__QUEUE_LIFE_MS);
	snprintf(patience, sizeof(patience), "%d", LK__HEAD_PATIENCE_MS);
	permits->ask = bare_format(sizeof(ask) / sizeof(ask[0]), ask);
	permits->leave = bare_format(sizeof(leave) / sizeof(leave[0]), leave);
}

struct permits *permits_open(const struct test_server *server, const char *name, int capacity)
{
	struct permits *permits = calloc(1, sizeof(*permits));
	struct bare_marker marker;

	if (!permits)
		bench_fail("out of memory");
	permits->context = bare_dial(server, "bare semaphore");
	bare_load_ours(permits->context, &lk__script_semaphore_ask);
	bare_load_ours(permits->context, &lk__script_semaphore_leave);
	bare_marker_find(server, &marker);
	format_both(permits, &marker, name, capacity);
	return permits;
}

void permits_close(void *self)
{
	struct permits *permits = self;

	redisFree(permits->context);
	free(permits->ask.text);
	free(permits->leave.text);
	free(permits);
}

static void send_one(struct permits *permits, const struct command *command, const char *answer)
{
	redisReply *reply = bare_ask(permits->context, command);

	if (reply->type != REDIS_REPLY_ARRAY || !reply->elements ||
	    reply->element[0]->type != REDIS_REPLY_STRING ||
	    strcmp(reply->element[0]->str, answer) != 0)
		bench_fail("bare semaphore: not %s: %s", answer, reply->str ? reply->str : "");
	freeReplyObject(reply);
}

void permits_pair(void *self)
{
	struct permits *permits = self;
	uint64_t left = ++permits->tickets;

	for (int i = NONCE_LEN - 1; i >= 0; i--, left /= 26)
		permits->ask.nonce[i] = (char)('A' + left % 26);
	memcpy(permits->leave.nonce, permits->ask.nonce, NONCE_LEN);
	send_one(permits, &permits->ask, "granted");
	send_one(permits, &permits->leave, "left");
}
