/* SPDX-License-Identifier: MIT
 * A quorum's scripts without Latchkey.  A connection a server, and one poll for all of them.
 * Answers that come after the majority are read with those of the next request. */
#include "baseline_quorum.h"

#include "bare_command.h"
#include "bare_leg.h"
#include "scripts.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMBERS_MAX 7
#define KINDS 3

struct member {
	redisContext *context;
	struct command commands[KINDS];
	int pending; /* answers */
};

struct ballot {
	struct member members[MEMBERS_MAX];
	int count;
	uint64_t tickets;
};

static void format_all(struct member *member, const struct test_server *server, const char *name,
                       int index)
{
	const char *ping[] = {"PING"};
	char ticket[100];

	snprintf(ticket, sizeof(ticket),
	         "q1:BenchBareClient%07d:" NONCE_MARK ":10000:r:1700000000000000:0", index);
	bare_leg_format(server, name, ticket, &member->commands[BALLOT_ASK],
	                &member->commands[BALLOT_LEAVE], NULL);
	member->commands[BALLOT_PING] = bare_format(1, ping);
}

struct ballot *ballot_open(const struct test_server *servers, const int *ports, int count,
                           const char *name, int index)
{
	struct ballot *ballot = calloc(1, sizeof(*ballot));

	if (!ballot || count > MEMBERS_MAX)
		bench_fail("bare scripts: no memory, or too many servers");
	ballot->count = count;
	for (int i = 0; i < count; i++) {
		struct member *member = &ballot->members[i];
		struct test_server place = servers[i];
		if (ports)
			place.port = ports[i];
		member->context = bare_dial(&place, "bare scripts");
		bare_load_ours(member->context, &lk__script_quorum_ask);
		bare_load_ours(member->context, &lk__script_quorum_leave);
		format_all(member, &servers[i], name, index);
	}
	return ballot;
}

void ballot_close(void *arg)
{
	struct ballot *ballot = arg;

	ballot_await(ballot, ballot->count);
	for (int i = 0; i < ballot->count; i++) {
		redisFree(ballot->members[i].context);
		for (int kind = 0; kind < KINDS; kind++)
			free(ballot->members[i].commands[kind].text);
	}
	free(ballot);
}

static void next_ticket(struct ballot *ballot)
{
	char nonce[NONCE_LEN];
	uint64_t left = ++ballot->tickets;

	for (int i = NONCE_LEN - 1; i >= 0; i--, left /= 26)
		nonce[i] = (char)('A' + left % 26);
	for (int i = 0; i < ballot->count; i++) {
		memcpy(ballot->members[i].commands[BALLOT_ASK].nonce, nonce, NONCE_LEN);
		memcpy(ballot->members[i].commands[BALLOT_LEAVE].nonce, nonce, NONCE_LEN);
	}
}

void ballot_send(struct ballot *ballot, enum ballot_kind kind)
{
	if (kind == BALLOT_ASK)
		next_ticket(ballot);
	for (int i = 0; i < ballot->count; i++) {
		struct member *member = &ballot->members[i];
		const struct command *command = &member->commands[kind];
		int done = 0;

		if (redisAppendFormattedCommand(member->context, command->text, command->len))
			bench_fail("bare scripts: out of memory");
		while (!done)
			if (redisBufferWrite(member->context, &done) != REDIS_OK)
				bench_fail("bare scripts: %s", member->context->errstr);
		member->pending++;
	}
}

static void check(const redisReply *reply)
{
	const char *word = reply->str;

	if (reply->type == REDIS_REPLY_ARRAY && reply->elements)
		word = reply->element[0]->str;
	if (!word || (strcmp(word, "granted") != 0 && strcmp(word, "left") != 0 &&
	              strcmp(word, "PONG") != 0))
		bench_fail("bare scripts: answered %s", word ? word : "another type");
}

/* Read what has come. */
static void read_answers(struct member *member)
{
	void *reply;

	if (redisBufferRead(member->context) != REDIS_OK)
		bench_fail("bare scripts: %s", member->context->errstr);
	for (;;) {
		if (redisGetReplyFromReader(member->context, &reply) != REDIS_OK)
			bench_fail("bare scripts: %s", member->context->errstr);
		if (!reply)
			return;
		check(reply);
		freeReplyObject(reply);
		member->pending--;
	}
}

void ballot_await(struct ballot *ballot, int answers)
{
	for (;;) {
		struct pollfd polls[MEMBERS_MAX];
		int at[MEMBERS_MAX], count = 0;

		for (int i = 0; i < ballot->count; i++) {
			if (!ballot->members[i].pending)
				continue;
			at[count] = i;
			polls[count++] = (struct pollfd){ballot->members[i].context->fd, POLLIN, 0};
		}
		if (ballot->count - count >= answers)
			return;
		if (poll(polls, (nfds_t)count, -1) < 0 && errno != EINTR)
			bench_fail("bare scripts: cannot poll: %s", strerror(errno));
		for (int i = 0; i < count; i++)
			if (polls[i].revents)
				read_answers(&ballot->members[at[i]]);
	}
}

static void decide(struct ballot *ballot, enum ballot_kind kind)
{
	ballot_send(ballot, kind);
	ballot_await(ballot, ballot->count / 2 + 1);
}

void ballot_acquire(void *ballot)
{
	decide(ballot, BALLOT_ASK);
}

void ballot_release(void *ballot)
{
	decide(ballot, BALLOT_LEAVE);
}

void ballot_ping(void *ballot)
{
	decide(ballot, BALLOT_PING);
}

void ballot_pair(void *ballot)
{
	ballot_acquire(ballot);
	ballot_release(ballot);
}
