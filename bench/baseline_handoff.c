/* SPDX-License-Identifier: MIT
 * Latchkey's protocol for a contended lock without Latchkey: ask, wait for the message that grants,
 * leave.  No renewal, no deadline, no repetition, no sharing between threads. */
#include "baseline_handoff.h"

#include "bare_command.h"
#include "bare_marker.h"
#include "scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

struct handoff {
	redisContext *commands, *messages;
	struct command ask, leave;
	uint64_t tickets;
};

/* See src/redis/codec.c: the same words in the same order. */
static void format_both(struct handoff *handoff, const struct bare_marker *marker, const char *name,
                        const char *id)
{
	char main_key[160], queue[160], ticket[80];
	const char *ask[] = {"EVALSHA",  lk__script_lock_ask.sha1,
	                     "4",        main_key,
	                     queue,      "lk:fence",
	                     "lk:epoch", ticket,
	                     "1",        "0",
	                     "lk:c:0:",  "-",
	                     "30000",    marker->text,
	                     marker->end};
	const char *leave[] = {"EVALSHA",  lk__script_lock_leave.sha1,
	                       "4",        main_key,
	                       queue,      "lk:fence",
	                       "lk:epoch", ticket,
	                       "0",        "lk:c:0:",
	                       "0",        marker->text,
	                       marker->end};

	snprintf(main_key, sizeof(main_key), "lk:{%s}", name);
	snprintf(queue, sizeof(queue), "lk:{%s}:q", name);
	snprintf(ticket, sizeof(ticket), "2:%s:" NONCE_MARK ":10000:r", id);
	handoff->ask = bare_format(sizeof(ask) / sizeof(ask[0]), ask);
	handoff->leave = bare_format(sizeof(leave) / sizeof(leave[0]), leave);
}

struct handoff *handoff_open(const struct test_server *server, const char *name, int index)
{
	struct handoff *handoff = calloc(1, sizeof(*handoff));
	struct bare_marker marker;
	redisReply *reply;
	uint64_t random;
	char id[23];

	if (!handoff || getrandom(&random, sizeof(random), 0) != sizeof(random))
		bench_fail("bare hand-off: no memory, or no random bytes");
	/* 22 characters, as the id of a client has. */
	snprintf(id, sizeof(id), "%016llx%06u", (unsigned long long)random,
	         (unsigned)index % 1000000);
	handoff->commands = bare_dial(server, "bare hand-off");
	handoff->messages = bare_dial(server, "bare hand-off");
	bare_load_ours(handoff->commands, &lk__script_lock_ask);
	bare_load_ours(handoff->commands, &lk__script_lock_leave);
	bare_marker_find(server, &marker);
	format_both(handoff, &marker, name, id);
	reply = redisCommand(handoff->messages, "SUBSCRIBE lk:c:0:%s", id);
	if (!reply || reply->type != REDIS_REPLY_ARRAY)
		bench_fail("bare hand-off: cannot subscribe");
	freeReplyObject(reply);
	return handoff;
}

void handoff_close(void *self)
{
	struct handoff *handoff = self;

	redisFree(handoff->commands);
	redisFree(handoff->messages);
	free(handoff->ask.text);
	free(handoff->leave.text);
	free(handoff);
}

/* True if the reply begins with the one word, false if with the other. */
static bool answered(struct handoff *handoff, const struct command *command, const char *yes,
                     const char *no)
{
	redisReply *reply = bare_ask(handoff->commands, command);
	bool is_yes;

	if (reply->type != REDIS_REPLY_ARRAY || !reply->elements ||
	    reply->element[0]->type != REDIS_REPLY_STRING)
		bench_fail("bare hand-off: answered %s", reply->str ? reply->str : "else");
	is_yes = !strcmp(reply->element[0]->str, yes);
	if (!is_yes && strcmp(reply->element[0]->str, no) != 0)
		bench_fail("bare hand-off: answered %s", reply->element[0]->str);
	freeReplyObject(reply);
	return is_yes;
}

/* Read one message, which must be for this ticket. */
static void await_grant(struct handoff *handoff)
{
	char bytes[512];
	ssize_t got = read(handoff->messages->fd, bytes, sizeof(bytes));

	if (got <= 0 || !memmem(bytes, (size_t)got, "grant ", 6) ||
	    !memmem(bytes, (size_t)got, handoff->ask.nonce, NONCE_LEN))
		bench_fail("bare hand-off: another message than expected");
}

bool handoff_acquire(void *self, int64_t until_ns)
{
	struct handoff *handoff = self;
	uint64_t left = ++handoff->tickets;

	(void)until_ns;
	for (int i = NONCE_LEN - 1; i >= 0; i--, left /= 26)
		handoff->ask.nonce[i] = (char)('A' + left % 26);
	memcpy(handoff->leave.nonce, handoff->ask.nonce, NONCE_LEN);
	if (!answered(handoff, &handoff->ask, "granted", "queued"))
		await_grant(handoff);
	return true;
}

void handoff_release(void *self)
{
	struct handoff *handoff = self;

	answered(handoff, &handoff->leave, "left", "left");
}
