/* SPDX-License-Identifier: MIT
 * The test's own commands to a server: one command, its reply as text or number. */
#include "redis.h"

#include "process.h"

#include <check.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct redis {
	struct redis *next;
	redisContext *context; /* NULL: run() executes the commands */
	redis_run_fn *run;
	char *text; /* of the last reply */
	char marker[128];
};

/* Those still open: a test may leave one open until its process ends.  Threads open some, too. */
static struct redis *all_open;
static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct redis *open_by(redisContext *context, redis_run_fn *run)
{
	struct redis *redis = calloc(1, sizeof(*redis));

	ck_assert_ptr_nonnull(redis);
	redis->context = context;
	redis->run = run;
	pthread_mutex_lock(&open_mutex);
	redis->next = all_open;
	all_open = redis;
	pthread_mutex_unlock(&open_mutex);
	return redis;
}

struct redis *redis_open(const struct test_server *server)
{
	redisContext *context = redisConnectUnix(server->socket_path);

	ck_assert_msg(context && !context->err, "cannot connect to %s", server->socket_path);
	return open_by(context, NULL);
}

struct redis *redis_open_in_process(redis_run_fn *run)
{
	return open_by(NULL, run);
}

void redis_close(struct redis *redis)
{
	struct redis **at = &all_open;

	pthread_mutex_lock(&open_mutex);
	while (*at != redis)
		at = &(*at)->next;
	*at = redis->next;
	pthread_mutex_unlock(&open_mutex);
	if (redis->context)
		redisFree(redis->context);
	free(redis->text);
	free(redis);
}

static void answer_append(FILE *out, const redisReply *reply)
{
	switch (reply->type) {
	case REDIS_REPLY_ERROR:
		fputc('-', out);
		fwrite(reply->str, 1, (size_t)reply->len, out);
		break;
	case REDIS_REPLY_STRING:
	case REDIS_REPLY_STATUS:
		fwrite(reply->str, 1, (size_t)reply->len, out);
		break;
	case REDIS_REPLY_INTEGER:
		fprintf(out, "%lld", reply->integer);
		break;
	case REDIS_REPLY_ARRAY:
		for (size_t i = 0; i < reply->elements; i++) {
			if (i)
				fputc('\n', out);
			answer_append(out, reply->element[i]);
		}
		break;
	default:
		break;
	}
}

static redisReply *run_in_process(redis_run_fn *run, const char *fmt, va_list args)
{
	redisReader *reader = redisReaderCreate();
	void *reply = NULL;
	char *command, *answer;
	size_t answer_len;
	int len = redisvFormatCommand(&command, fmt, args);

	ck_assert(reader && len > 0);
	answer = run(command, (size_t)len, &answer_len);
	redisReaderFeed(reader, answer, answer_len);
	redisReaderGetReply(reader, &reply);
	redisFreeCommand(command);
	redisReaderFree(reader);
	free(answer);
	return reply;
}

static void set_text(struct redis *redis, const redisReply *reply)
{
	size_t size;
	FILE *out;

	free(redis->text);
	redis->text = NULL;
	out = open_memstream(&redis->text, &size);
	ck_assert_ptr_nonnull(out);
	answer_append(out, reply);
	fclose(out);
}

/* Store the text of the reply in redis->text. */
static redisReply *ask(struct redis *redis, const char *fmt, va_list args)
{
	redisReply *reply = redis->context ? redisvCommand(redis->context, fmt, args)
	                                   : run_in_process(redis->run, fmt, args);

	ck_assert_msg(reply != NULL, "%s: %s", fmt,
	              redis->context ? redis->context->errstr : "no answer");
	set_text(redis, reply);
	return reply;
}

const char *redis_text(struct redis *redis, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	freeReplyObject(ask(redis, fmt, args));
	va_end(args);
	return redis->text;
}

long long redis_int(struct redis *redis, const char *fmt, ...)
{
	va_list args;
	redisReply *reply;
	long long value = -1;
	char *end = NULL;

	va_start(args, fmt);
	reply = ask(redis, fmt, args);
	va_end(args);
	if (reply->type != REDIS_REPLY_NIL) {
		value = strtoll(redis->text, &end, 10);
		ck_assert_msg(*redis->text && !*end, "%s answers %s", fmt, redis->text);
	}
	freeReplyObject(reply);
	return value;
}

long long redis_size(struct redis *redis)
{
	return redis_int(redis, "DBSIZE") - redis_int(redis, "EXISTS lk:epoch");
}

const char *redis_marker(struct redis *redis)
{
	const char *text = redis_text(redis, "GET lk:epoch");

	snprintf(redis->marker, sizeof(redis->marker), "%s", text);
	return redis->marker;
}

void redis_do(struct redis *redis, const char *fmt, ...)
{
	va_list args;
	redisReply *reply;

	va_start(args, fmt);
	reply = ask(redis, fmt, args);
	va_end(args);
	ck_assert_msg(reply->type != REDIS_REPLY_ERROR, "%s answers %s", fmt, redis->text);
	freeReplyObject(reply);
}

/* What the server sends without a request, within ms; NULL if nothing comes. */
static redisReply *await_reply(redisContext *context, int64_t ms)
{
	int64_t end = now_ms() + ms;

	for (;;) {
		struct pollfd ready = {context->fd, POLLIN, 0};
		void *reply = NULL;
		int64_t left;

		ck_assert_int_eq(redisGetReplyFromReader(context, &reply), REDIS_OK);
		if (reply)
			return reply;
		left = end - now_ms();
		if (poll(&ready, 1, left > 0 ? (int)left : 0) < 1) {
			if (left <= 0)
				return NULL;
			continue;
		}
		ck_assert_int_eq(redisBufferRead(context), REDIS_OK);
	}
}

const char *redis_next(struct redis *redis, int64_t ms)
{
	redisReply *reply = await_reply(redis->context, ms);

	if (!reply)
		return NULL;
	set_text(redis, reply);
	freeReplyObject(reply);
	return redis->text;
}

char *redis_raw(struct redis *redis, const char *bytes, size_t len, size_t *reply_len)
{
	redisReader *reader = redisReaderCreate();
	void *reply = NULL;
	char *answer = NULL;
	FILE *out = open_memstream(&answer, reply_len);

	ck_assert(reader && out);
	ck_assert_int_eq(send(redis->context->fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
	while (!reply) {
		char some[4096];
		ssize_t got = recv(redis->context->fd, some, sizeof(some), 0);
		ck_assert_int_gt(got, 0);
		fwrite(some, 1, (size_t)got, out);
		ck_assert_int_eq(redisReaderFeed(reader, some, (size_t)got), REDIS_OK);
		ck_assert_int_eq(redisReaderGetReply(reader, &reply), REDIS_OK);
	}
	freeReplyObject(reply);
	redisReaderFree(reader);
	fclose(out);
	return answer;
}

/* The number after a name and a separator in an INFO section, 0 if the name is missing. */
static long long info_number(const char *text, const char *name, const char *rest)
{
	size_t len = strlen(name);

	for (const char *at = text; (at = strstr(at, name)); at += len)
		if ((at == text || at[-1] == '\n') && !strncmp(at + len, rest, strlen(rest)))
			return strtoll(at + len + strlen(rest), NULL, 10);
	return 0;
}

long long redis_calls(struct redis *redis, const char *command)
{
	char name[64];

	snprintf(name, sizeof(name), "cmdstat_%s", command);
	return info_number(redis_text(redis, "INFO commandstats"), name, ":calls=");
}

long long redis_script_calls(struct redis *redis)
{
	const char *text = redis_text(redis, "INFO commandstats");

	return info_number(text, "cmdstat_evalsha", ":calls=") +
	       info_number(text, "cmdstat_eval", ":calls=");
}

long long redis_info(struct redis *redis, const char *field)
{
	return info_number(redis_text(redis, "INFO everything"), field, ":");
}

struct monitor {
	struct monitor *next;
	redisContext *context;
	redisReply *reply;
};

static struct monitor *all_monitors; /* as all_open */

struct monitor *monitor_open(const struct test_server *server)
{
	struct monitor *monitor = calloc(1, sizeof(*monitor));

	ck_assert_ptr_nonnull(monitor);
	monitor->context = redisConnectUnix(server->socket_path);
	ck_assert(monitor->context && !monitor->context->err);
	monitor->reply = redisCommand(monitor->context, "MONITOR");
	ck_assert_ptr_nonnull(monitor->reply);
	pthread_mutex_lock(&open_mutex);
	monitor->next = all_monitors;
	all_monitors = monitor;
	pthread_mutex_unlock(&open_mutex);
	return monitor;
}

const char *monitor_next(struct monitor *monitor, int64_t ms)
{
	freeReplyObject(monitor->reply);
	monitor->reply = await_reply(monitor->context, ms);
	return monitor->reply ? monitor->reply->str : NULL;
}

void monitor_close(struct monitor *monitor)
{
	struct monitor **at = &all_monitors;

	pthread_mutex_lock(&open_mutex);
	while (*at != monitor)
		at = &(*at)->next;
	*at = monitor->next;
	pthread_mutex_unlock(&open_mutex);
	freeReplyObject(monitor->reply);
	redisFree(monitor->context);
	free(monitor);
}
