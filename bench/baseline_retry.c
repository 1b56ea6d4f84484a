/* SPDX-License-Identifier: MIT
 * The usual lock over Redis: a client that fails to acquire it waits for a message, as with
 * Redisson and others, and on each message every waiter tries again.  The subscription is
 * permanent, and messages are not parsed: their arrival is enough. */
#include "baseline_retry.h"

#include "bare_command.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#define LEASE "10000"
#define OWNER_LEN 32
#define LOOK_MS 20 /* how often a waiter checks whether the turn is over */

/* KEYS: the lock.  ARGV: owner, lease in ms.  Returns nil, or the rest of the holder's lease, ms.
 */
static const char acquire_text[] =
	"if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return nil end\n"
	"return redis.call('pttl', KEYS[1])\n";
/* KEYS: the lock.  ARGV: owner, channel. */
static const char release_text[] = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end\n"
				   "redis.call('del', KEYS[1])\n"
				   "redis.call('publish', ARGV[2], '')\n"
				   "return 1\n";

struct retry {
	redisContext *commands, *messages;
	struct command acquire, release;
};

static void name_owner(char owner[OWNER_LEN + 1])
{
	uint64_t random[2];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		bench_fail("no random bytes");
	snprintf(owner, OWNER_LEN + 1, "%016llx%016llx", (unsigned long long)random[0],
	         (unsigned long long)random[1]);
}

struct retry *retry_open(const struct test_server *server, const char *name)
{
	char owner[OWNER_LEN + 1], channel[200], acquire_sha[41], release_sha[41];
	const char *acquire[] = {"EVALSHA", acquire_sha, "1", name, owner, LEASE};
	const char *release[] = {"EVALSHA", release_sha, "1", name, owner, channel};
	struct retry *retry = calloc(1, sizeof(*retry));
	redisReply *reply;

	if (!retry)
		bench_fail("out of memory");
	snprintf(channel, sizeof(channel), "%s:channel", name);
	name_owner(owner);
	retry->commands = bare_dial(server, "retry");
	retry->messages = bare_dial(server, "retry");
	bare_load(retry->commands, acquire_text, sizeof(acquire_text) - 1, acquire_sha);
	bare_load(retry->commands, release_text, sizeof(release_text) - 1, release_sha);
	retry->acquire = bare_format(6, acquire);
	retry->release = bare_format(6, release);
	reply = redisCommand(retry->messages, "SUBSCRIBE %s", channel);
	if (!reply || reply->type != REDIS_REPLY_ARRAY)
		bench_fail("retry: cannot subscribe");
	freeReplyObject(reply);
	return retry;
}

void retry_close(void *self)
{
	struct retry *retry = self;

	redisFree(retry->commands);
	redisFree(retry->messages);
	free(retry->acquire.text);
	free(retry->release.text);
	free(retry);
}

static redisReply *ask(struct retry *retry, const struct command *command)
{
	redisReply *reply = bare_ask(retry->commands, command);

	if (reply->type == REDIS_REPLY_ERROR)
		bench_fail("retry: %s", reply->str);
	return reply;
}

/* Discard the messages that arrived before a try. */
static void forget_messages(struct retry *retry)
{
	char bytes[16384];
	ssize_t got;

	do
		got = recv(retry->messages->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	while (got == (ssize_t)sizeof(bytes));
	if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
		bench_fail("retry: the subscription is lost");
}

bool retry_acquire(void *self, int64_t until_ns)
{
	struct retry *retry = self;
	struct pollfd ready = {.fd = retry->messages->fd, .events = POLLIN};
	int64_t again_ns;

	for (;;) {
		redisReply *reply;

		forget_messages(retry);
		reply = ask(retry, &retry->acquire);
		if (reply->type == REDIS_REPLY_NIL) {
			freeReplyObject(reply);
			return true;
		}
		/* By then the lease has expired, even if the message was lost. */
		again_ns = bench_now_ns() + reply->integer * 1000000;
		freeReplyObject(reply);
		while (!poll(&ready, 1, LOOK_MS)) {
			int64_t now_ns = bench_now_ns();

			if (now_ns >= until_ns)
				return false;
			if (now_ns >= again_ns)
				break;
		}
		if (bench_now_ns() >= until_ns)
			return false;
	}
}

void retry_release(void *self)
{
	struct retry *retry = self;
	redisReply *reply = ask(retry, &retry->release);

	if (reply->type != REDIS_REPLY_INTEGER || reply->integer != 1)
		bench_fail("retry: it was not ours to release");
	freeReplyObject(reply);
}
