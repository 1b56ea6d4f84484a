/* SPDX-License-Identifier: MIT
 * Connections and commands of the bare baselines. */
#include "bare_command.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#define WORDS_MAX 20

redisContext *bare_dial(const struct test_server *server, const char *baseline)
{
	redisContext *context = redisConnect("127.0.0.1", server->port);
	int one = 1;

	if (!context || context->err)
		bench_fail("%s: %s", baseline, context ? context->errstr : "out of memory");
	if (setsockopt(context->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		bench_fail("%s: no TCP_NODELAY", baseline);
	return context;
}

void bare_load(redisContext *context, const char *text, size_t len, char sha1[41])
{
	redisReply *reply = redisCommand(context, "SCRIPT LOAD %b", text, len);

	if (!reply || reply->type != REDIS_REPLY_STRING || reply->len != 40)
		bench_fail("bare hiredis: a script cannot be loaded");
	memcpy(sha1, reply->str, 41);
	freeReplyObject(reply);
}

void bare_load_ours(redisContext *context, const struct lk__script *script)
{
	char sha1[41];

	bare_load(context, script->text, script->len, sha1);
	if (strcmp(sha1, script->sha1) != 0)
		bench_fail("bare hiredis: a script has another digest");
}

struct command bare_format(int argc, const char *const *argv)
{
	struct command command = {0};
	const char *words[WORDS_MAX]; /* a copy: hiredis 0.14 may change it */
	int len;

	if (argc > WORDS_MAX)
		bench_fail("a command of %d words", argc);
	memcpy(words, argv, sizeof(*argv) * (size_t)argc);
	len = redisFormatCommandArgv(&command.text, argc, words, NULL);
	if (len < 0)
		bench_fail("out of memory");
	command.len = (size_t)len;
	command.nonce = strstr(command.text, NONCE_MARK);
	return command;
}

redisReply *bare_ask(redisContext *context, const struct command *command)
{
	void *reply;

	if (redisAppendFormattedCommand(context, command->text, command->len) != REDIS_OK ||
	    redisGetReply(context, &reply) != REDIS_OK)
		bench_fail("bare hiredis: %s", context->errstr);
	return reply;
}
