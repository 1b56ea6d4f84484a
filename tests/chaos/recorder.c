/* SPDX-License-Identifier: MIT
 * The recorder: writes a server's MONITOR lines, as a second witness of a round.  It reconnects as
 * soon as the server is back, and marks the gaps. */
#include "chaos/chaos.h"

#include <hiredis/hiredis.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/time.h>

/* Commands that change nothing. */
static bool is_read(const char *line)
{
	static const char *const reads[] = {
		"time",          "get",    "exists", "type",   "pttl",   "hget",
		"hmget",         "zrange", "zrank",  "zcard",  "zscore", "zrevrange",
		"zrangebyscore", "ping",   "info",   "script", "client"};
	const char *at = strstr(line, "] \""), *end;

	if (!at)
		return true;
	at += 3;
	end = strchr(at, '"');
	if (!end)
		return true;
	for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++)
		if (strlen(reads[i]) == (size_t)(end - at) &&
		    !strncasecmp(at, reads[i], strlen(reads[i])))
			return true;
	return false;
}

static void watch(redisContext *context, FILE *log)
{
	for (;;) {
		void *reply = NULL;
		const redisReply *line;
		if (redisGetReplyFromReader(context, &reply) != REDIS_OK)
			return;
		if (!reply) {
			struct pollfd ready = {context->fd, POLLIN, 0};
			fflush(log);
			if (poll(&ready, 1, -1) > 0 && redisBufferRead(context) != REDIS_OK)
				return;
			continue;
		}
		line = reply;
		if (line->str && !is_read(line->str))
			fprintf(log, "%lld %s\n", (long long)history_now_ns(), line->str);
		freeReplyObject(reply);
	}
}

int recorder_main(int argc, char **argv)
{
	char path[300];
	FILE *log;

	if (argc != 2)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	snprintf(path, sizeof(path), "%s/monitor.log", argv[0]);
	log = fopen(path, "ae");
	if (!log)
		return 1;
	for (;;) {
		struct timeval limit = {1, 0};
		redisContext *context = redisConnectUnixWithTimeout(argv[1], limit);
		redisReply *reply = NULL;
		if (context && !context->err && redisSetTimeout(context, limit) == REDIS_OK)
			reply = redisCommand(context, "MONITOR");
		if (reply && reply->type == REDIS_REPLY_STATUS) {
			fprintf(log, "%lld gap\n", (long long)history_now_ns());
			fflush(log);
			watch(context, log);
			fprintf(log, "%lld gap\n", (long long)history_now_ns());
			fflush(log);
		} else {
			/* There is no notification of a restarted server: retry. */
			poll(NULL, 0, 2);
		}
		freeReplyObject(reply);
		if (context)
			redisFree(context);
	}
}
