/* SPDX-License-Identifier: MIT
 * Ask all servers, wait for the grants of a majority, leave all servers, in the order of the
 * tickets' priorities; a client without a majority yields to an older one.  No renewal, no fence in
 * common, no deadline, no repetition, no sharing between threads. */
#include "baseline_legs.h"

#include "bare_command.h"
#include "bare_leg.h"
#include "scripts.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define LEGS_MAX 7
#define SENT_MAX 64   /* requests in flight to a server that is behind */
#define AFTER_NONCE 9 /* ":10000:r:" */
#define PRIORITY_LEN 16
#define EPOCH_LEN 3
#define REQUESTS_MAX 32 /* of a ticket, to a server */
#define TICKET_LEN (3 + 22 + 1 + NONCE_LEN + AFTER_NONCE + PRIORITY_LEN + 1 + EPOCH_LEN)
#define MARKS "1000000000000000:000" /* of the priority and the epoch */

enum kind { ASK, LEAVE, YIELD, KINDS };

/* The client's part on one server. */
struct leg {
	redisContext *commands, *messages;
	struct command command[KINDS];
	char *next; /* the nonce of the next epoch's ticket, in a yield */
	enum kind sent[SENT_MAX];
	int sent_count;
	unsigned epoch;
	bool granted, wanted;
};

struct legs {
	struct leg leg[LEGS_MAX];
	int count;
	uint64_t tickets, priority;
	char nonce[NONCE_LEN], id[23];
};

/* ---- Commands ------------------------------------------------------------------------------ */

static void format_all(struct leg *leg, const struct test_server *server, const char *name,
                       const char *id)
{
	char ticket[100];

	snprintf(ticket, sizeof(ticket), "q1:%s:" NONCE_MARK ":10000:r:" MARKS, id);
	bare_leg_format(server, name, ticket, &leg->command[ASK], &leg->command[LEAVE],
	                &leg->command[YIELD]);
	leg->next = strstr(leg->command[YIELD].nonce + NONCE_LEN, NONCE_MARK);
}

static void write_number(char *text, int len, uint64_t number)
{
	while (len > 0) {
		text[--len] = (char)('0' + number % 10);
		number /= 10;
	}
}

/* Complete a ticket in a command, from its nonce on. */
static void write_ticket(const struct legs *legs, char *nonce, unsigned epoch)
{
	memcpy(nonce, legs->nonce, NONCE_LEN);
	write_number(nonce + NONCE_LEN + AFTER_NONCE, PRIORITY_LEN, legs->priority);
	write_number(nonce + NONCE_LEN + AFTER_NONCE + PRIORITY_LEN + 1, EPOCH_LEN, epoch);
}

static void send_to(const struct legs *legs, struct leg *leg, enum kind kind)
{
	const struct command *command = &leg->command[kind];
	int done = 0;

	write_ticket(legs, command->nonce, leg->epoch);
	if (kind == YIELD)
		write_ticket(legs, leg->next, leg->epoch + 1);
	if (redisAppendFormattedCommand(leg->commands, command->text, command->len))
		bench_fail("bare legs: out of memory");
	while (!done)
		if (redisBufferWrite(leg->commands, &done) != REDIS_OK)
			bench_fail("bare legs: %s", leg->commands->errstr);
	leg->sent[leg->sent_count++] = kind;
}

/* ---- Answers and messages ------------------------------------------------------------------ */

static void take_answer(struct leg *leg, const redisReply *reply)
{
	const char *word = reply->str;
	enum kind kind = leg->sent[0];

	if (reply->type == REDIS_REPLY_ARRAY && reply->elements)
		word = reply->element[0]->str;
	if (!leg->sent_count || !word ||
	    (strcmp(word, "granted") != 0 && strcmp(word, "queued") != 0 &&
	     strcmp(word, "left") != 0))
		bench_fail("bare legs: answered %s", word ? word : "another type");
	memmove(leg->sent, leg->sent + 1, sizeof(leg->sent[0]) * (size_t)--leg->sent_count);
	/* An answer of an epoch that is over counts no more. */
	if (kind == ASK && !leg->epoch && !strcmp(word, "granted")) {
		leg->granted = true;
		leg->wanted |= reply->elements > 5 && reply->element[5]->integer == 1;
	}
}

/* "grant TICKET ..." or "wanted TICKET ..."; others are of tickets that are over. */
static void take_message(const struct legs *legs, struct leg *leg, const redisReply *reply)
{
	const char *text, *ticket;
	char ours[TICKET_LEN + 1];

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 || !reply->element[2]->str)
		bench_fail("bare legs: another message than expected");
	text = reply->element[2]->str;
	ticket = strchr(text, ' ');
	snprintf(ours, sizeof(ours), "q1:%s:" NONCE_MARK ":10000:r:" MARKS, legs->id);
	write_ticket(legs, strstr(ours, NONCE_MARK), leg->epoch);
	if (!ticket || strncmp(ticket + 1, ours, TICKET_LEN) != 0)
		return;
	leg->granted |= !strncmp(text, "grant ", 6);
	leg->wanted |= !strncmp(text, "wanted ", 7);
}

static void read_from(const struct legs *legs, struct leg *leg, redisContext *context)
{
	void *reply;

	if (redisBufferRead(context) != REDIS_OK)
		bench_fail("bare legs: %s", context->errstr);
	for (;;) {
		if (redisGetReplyFromReader(context, &reply) != REDIS_OK)
			bench_fail("bare legs: %s", context->errstr);
		if (!reply)
			return;
		if (context == leg->messages)
			take_message(legs, leg, reply);
		else
			take_answer(leg, reply);
		freeReplyObject(reply);
	}
}

/* Wait for answers, and messages, and read all that have come. */
static void read_all(struct legs *legs)
{
	struct pollfd polls[2 * LEGS_MAX];

	for (int i = 0; i < legs->count; i++) {
		polls[2 * i] = (struct pollfd){legs->leg[i].commands->fd, POLLIN, 0};
		polls[2 * i + 1] = (struct pollfd){legs->leg[i].messages->fd, POLLIN, 0};
	}
	if (poll(polls, (nfds_t)(2 * legs->count), -1) < 0) {
		if (errno != EINTR)
			bench_fail("bare legs: cannot poll: %s", strerror(errno));
		return;
	}
	for (int i = 0; i < legs->count; i++) {
		if (polls[2 * i].revents)
			read_from(legs, &legs->leg[i], legs->leg[i].commands);
		if (polls[2 * i + 1].revents)
			read_from(legs, &legs->leg[i], legs->leg[i].messages);
	}
}

/* ---- The lock ------------------------------------------------------------------------------ */

static bool has_majority(const struct legs *legs)
{
	int granted = 0;

	for (int i = 0; i < legs->count; i++)
		granted += legs->leg[i].granted;
	return granted > legs->count / 2;
}

static void yield(const struct legs *legs, struct leg *leg)
{
	if (leg->epoch + 2 >= REQUESTS_MAX)
		bench_fail("bare legs: too many yields");
	send_to(legs, leg, YIELD);
	leg->epoch++;
	leg->granted = leg->wanted = false;
}

static void next_ticket(struct legs *legs)
{
	uint64_t left = ++legs->tickets;
	struct timespec now;

	for (int i = NONCE_LEN - 1; i >= 0; i--, left /= 26)
		legs->nonce[i] = (char)('A' + left % 26);
	clock_gettime(CLOCK_REALTIME, &now);
	legs->priority = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

bool legs_acquire(void *self, int64_t until_ns)
{
	struct legs *legs = self;

	(void)until_ns;
	next_ticket(legs);
	for (int i = 0; i < legs->count; i++) {
		struct leg *leg = &legs->leg[i];
		while (leg->sent_count > SENT_MAX - REQUESTS_MAX)
			read_all(legs);
		leg->epoch = 0;
		leg->granted = leg->wanted = false;
		send_to(legs, leg, ASK);
	}
	while (!has_majority(legs)) {
		read_all(legs);
		for (int i = 0; i < legs->count && !has_majority(legs); i++)
			if (legs->leg[i].granted && legs->leg[i].wanted)
				yield(legs, &legs->leg[i]);
	}
	return true;
}

static int count_left(const struct legs *legs)
{
	int left = 0;

	for (int i = 0; i < legs->count; i++) {
		const struct leg *leg = &legs->leg[i];
		left += !leg->sent_count || leg->sent[leg->sent_count - 1] != LEAVE;
	}
	return left;
}

void legs_release(void *self)
{
	struct legs *legs = self;

	for (int i = 0; i < legs->count; i++)
		send_to(legs, &legs->leg[i], LEAVE);
	while (count_left(legs) <= legs->count / 2)
		read_all(legs);
}

/* ---- Connections --------------------------------------------------------------------------- */

struct legs *legs_open(const struct test_server *servers, int count, const char *name, int index)
{
	struct legs *legs = calloc(1, sizeof(*legs));
	uint64_t random;

	if (!legs || count > LEGS_MAX || getrandom(&random, sizeof(random), 0) != sizeof(random))
		bench_fail("bare legs: no memory, no random bytes, or too many servers");
	legs->count = count;
	/* 22 characters, as the id of a client has. */
	snprintf(legs->id, sizeof(legs->id), "%016llx%06u", (unsigned long long)random,
	         (unsigned)index % 1000000);
	for (int i = 0; i < count; i++) {
		struct leg *leg = &legs->leg[i];
		redisReply *reply;

		leg->commands = bare_dial(&servers[i], "bare legs");
		leg->messages = bare_dial(&servers[i], "bare legs");
		bare_load_ours(leg->commands, &lk__script_quorum_ask);
		bare_load_ours(leg->commands, &lk__script_quorum_leave);
		format_all(leg, &servers[i], name, legs->id);
		reply = redisCommand(leg->messages, "SUBSCRIBE lk:c:0:%s", legs->id);
		if (!reply || reply->type != REDIS_REPLY_ARRAY)
			bench_fail("bare legs: cannot subscribe");
		freeReplyObject(reply);
	}
	return legs;
}

void legs_close(void *self)
{
	struct legs *legs = self;

	for (int i = 0; i < legs->count; i++) {
		redisFree(legs->leg[i].commands);
		redisFree(legs->leg[i].messages);
		for (int kind = 0; kind < KINDS; kind++)
			free(legs->leg[i].command[kind].text);
	}
	free(legs);
}
