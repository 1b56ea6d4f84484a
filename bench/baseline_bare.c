/* SPDX-License-Identifier: MIT
 * Bare hiredis: sends commands, reads replies, and does nothing else. */
#include "baseline_bare.h"

#include "bare_marker.h"
#include "built_with.h"
#include "scripts.h"

#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#if LK__TLS
#include <openssl/ssl.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NONCE_LEN 11
#define FENCE_LEN 16
#define LEASE_MS "10000"
#define CLIENT_ID "BenchBareClientIdOf22ch"
#define NONCE_MARK "NoNceNoNceN"
#define FENCE_MARK "1700000000000000"

enum answer { GRANTED, LEFT, NIL, ONE };

/* One command as it is sent, and where in it the varying words are. */
struct command {
	char *text;
	size_t len;
	char *nonce, *fence; /* in text; NULL = none */
	enum answer expects;
};

struct bare {
	redisContext *context;
#if LK__TLS
	SSL *ssl; /* NULL = none */
#endif
	struct bare_marker marker;
	struct command ask, leave;
	struct command wait; /* behind ask; no text = none */
	int replicas;
	uint64_t tickets;
};

#if LK__TLS
static redisReply *take_tls(struct bare *bare)
{
	void *reply = NULL;
	char bytes[16384];

	while (redisGetReplyFromReader(bare->context, &reply) == REDIS_OK && !reply) {
		int got = SSL_read(bare->ssl, bytes, sizeof(bytes));
		if (got <= 0)
			bench_fail("bare OpenSSL: no answer");
		redisReaderFeed(bare->context->reader, bytes, (size_t)got);
	}
	return reply;
}
#endif

static redisReply *take(struct bare *bare)
{
	void *reply;

#if LK__TLS
	if (bare->ssl)
		return take_tls(bare);
#endif
	if (redisGetReply(bare->context, &reply) != REDIS_OK)
		bench_fail("bare hiredis: %s", bare->context->errstr);
	return reply;
}

static void give(struct bare *bare, const struct command *command)
{
#if LK__TLS
	if (bare->ssl) {
		if (SSL_write(bare->ssl, command->text, (int)command->len) != (int)command->len)
			bench_fail("bare OpenSSL: cannot write");
		return;
	}
#endif
	if (redisAppendFormattedCommand(bare->context, command->text, command->len) != REDIS_OK)
		bench_fail("bare hiredis: %s", bare->context->errstr);
}

static void load(struct bare *bare, const char *text, size_t len, const char *sha1, char made[41])
{
	const char *argv[] = {"SCRIPT", "LOAD", text};
	const size_t lens[] = {6, 4, len};
	redisReply *reply = redisCommandArgv(bare->context, 3, argv, lens);

	if (!reply || reply->type != REDIS_REPLY_STRING || reply->len != 40 ||
	    (sha1 && memcmp(reply->str, sha1, 40) != 0))
		bench_fail("bare hiredis: a script cannot be loaded");
	if (made)
		memcpy(made, reply->str, 41);
	freeReplyObject(reply);
}

static struct command format(enum answer expects, int argc, const char *const *argv)
{
	struct command command = {.expects = expects};
	const char *borrowed[16];
	int len;

	memcpy(borrowed, argv, sizeof(*argv) * (size_t)argc);
	len = redisFormatCommandArgv(&command.text, argc, borrowed, NULL);
	if (len < 0)
		bench_fail("out of memory");
	command.len = (size_t)len;
	command.nonce = strstr(command.text, NONCE_MARK);
	command.fence = strstr(command.text, FENCE_MARK);
	return command;
}

/* See src/redis/codec.c: the same words in the same order. */
static struct command ours(const struct bare *bare, const char *name, bool leaves)
{
	const struct lk__script *script = leaves ? &lk__script_lock_leave : &lk__script_lock_ask;
	char main_key[160], queue[160], keys[8];
	const char *argv[16] = {
		"EVALSHA",  script->sha1,
		keys,       main_key,
		queue,      "lk:fence",
		"lk:epoch", "2:" CLIENT_ID ":" NONCE_MARK ":" LEASE_MS ":r",
	};
	int argc = 8;

	snprintf(main_key, sizeof(main_key), "lk:{%s}", name);
	snprintf(queue, sizeof(queue), "lk:{%s}:q", name);
	snprintf(keys, sizeof(keys), "%d", script->keys);
	if (leaves) {
		argv[argc++] = FENCE_MARK;
		argv[argc++] = "lk:c:0:";
		argv[argc++] = "0";
	} else {
		argv[argc++] = "1";
		argv[argc++] = "0";
		argv[argc++] = "lk:c:0:";
		argv[argc++] = "-";
		argv[argc++] = "30000";
	}
	argv[argc++] = bare->marker.text;
	argv[argc++] = bare->marker.end;
	return format(leaves ? LEFT : GRANTED, argc, argv);
}

/* Make the ticket unique by the digits of a count. */
static void ticket_next(struct bare *bare, char *nonce)
{
	uint64_t left = ++bare->tickets;

	for (int i = NONCE_LEN - 1; i >= 0; i--, left >>= 5)
		nonce[i] = (char)('A' + (left & 31) % 26 + ((left & 31) >= 26 ? 32 : 0));
}

struct bare *bare_open(const struct test_server *server, bool by_unix, const char *name)
{
	struct bare *bare = calloc(1, sizeof(*bare));
	int one = 1;

	if (!bare)
		bench_fail("out of memory");
	bare->context = by_unix ? redisConnectUnix(server->socket_path)
	                        : redisConnect("127.0.0.1", server->port);
	if (!bare->context || bare->context->err)
		bench_fail("bare hiredis: %s",
		           bare->context ? bare->context->errstr : "out of memory");
	if (!by_unix && setsockopt(bare->context->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		bench_fail("no TCP_NODELAY");
	load(bare, lk__script_lock_ask.text, lk__script_lock_ask.len, lk__script_lock_ask.sha1,
	     NULL);
	load(bare, lk__script_lock_leave.text, lk__script_lock_leave.len,
	     lk__script_lock_leave.sha1, NULL);
	bare_marker_find(server, &bare->marker);
	bare->ask = ours(bare, name, false);
	bare->leave = ours(bare, name, true);
	return bare;
}

#if LK__TLS
struct bare *bare_open_tls(const struct test_server *server, int port, const char *ca,
                           const char *name)
{
	struct bare *bare = bare_open(server, false, name); /* loads the scripts */
	SSL_CTX *settings = SSL_CTX_new(TLS_client_method());
	int one = 1;

	redisFree(bare->context);
	bare->context = redisConnect("127.0.0.1", port);
	if (!bare->context || bare->context->err || !settings ||
	    setsockopt(bare->context->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		bench_fail("bare OpenSSL: cannot connect");
	SSL_CTX_set_read_ahead(settings, 1);
	SSL_CTX_set_verify(settings, SSL_VERIFY_PEER, NULL);
	bare->ssl = SSL_new(settings);
	if (SSL_CTX_load_verify_locations(settings, ca, NULL) != 1 || !bare->ssl ||
	    SSL_set_fd(bare->ssl, bare->context->fd) != 1 || SSL_connect(bare->ssl) != 1)
		bench_fail("bare OpenSSL: no handshake");
	SSL_CTX_free(settings);
	return bare;
}
#endif

void bare_close(void *self)
{
	struct bare *bare = self;

#if LK__TLS
	SSL_free(bare->ssl);
#endif
	redisFree(bare->context);
	free(bare->ask.text);
	free(bare->leave.text);
	free(bare->wait.text);
	free(bare);
}

/* Is the reply an array with this first word? */
static bool begins_with(const redisReply *reply, const char *word)
{
	return reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2 &&
	       reply->element[0]->type == REDIS_REPLY_STRING &&
	       !strcmp(reply->element[0]->str, word);
}

static void check(const redisReply *reply, enum answer expects)
{
	static const char *const names[] = {"granted", "left", "nil", "1"};
	bool good = false;

	switch (expects) {
	case GRANTED:
		good = begins_with(reply, "granted") &&
		       reply->element[1]->type == REDIS_REPLY_STRING &&
		       reply->element[1]->len == FENCE_LEN;
		break;
	case LEFT:
		good = begins_with(reply, "left") &&
		       reply->element[1]->type == REDIS_REPLY_INTEGER &&
		       reply->element[1]->integer == 1;
		break;
	case NIL:
		good = reply->type == REDIS_REPLY_NIL;
		break;
	case ONE:
		good = reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
		break;
	}
	if (!good)
		bench_fail("bare hiredis: not the answer \"%s\": %s", names[expects],
		           reply->str ? reply->str : "another type");
}

/* Send one command and return its reply, which the caller frees. */
static redisReply *ask(struct bare *bare, const struct command *command)
{
	redisReply *reply;

	give(bare, command);
	reply = take(bare);
	check(reply, command->expects);
	return reply;
}

void bare_need_replicas(struct bare *bare, int replicas)
{
	char count[16];
	const char *argv[] = {"WAIT", count, "1000"};

	snprintf(count, sizeof(count), "%d", replicas);
	bare->wait = format(ONE, 3, argv);
	bare->replicas = replicas;
}

static redisReply *ask_replicas(struct bare *bare)
{
	redisReply *reply, *count;

	give(bare, &bare->ask);
	give(bare, &bare->wait);
	reply = take(bare);
	count = take(bare);
	check(reply, GRANTED);
	if (count->type != REDIS_REPLY_INTEGER || count->integer < bare->replicas)
		bench_fail("bare hiredis: too few replicas");
	freeReplyObject(count);
	return reply;
}

void bare_pair(void *self)
{
	struct bare *bare = self;
	redisReply *reply;

	ticket_next(bare, bare->ask.nonce);
	memcpy(bare->leave.nonce, bare->ask.nonce, NONCE_LEN);
	reply = bare->replicas ? ask_replicas(bare) : ask(bare, &bare->ask);
	memcpy(bare->leave.fence, reply->element[1]->str, FENCE_LEN);
	freeReplyObject(reply);
	freeReplyObject(ask(bare, &bare->leave));
}

void bare_pings(void *self)
{
	struct bare *bare = self;
	static char text[] = "*1\r\n$4\r\nPING\r\n";
	const struct command ping = {.text = text, .len = sizeof(text) - 1};

	for (int i = 0; i < 2; i++) {
		redisReply *reply;

		give(bare, &ping);
		reply = take(bare);
		if (reply->type != REDIS_REPLY_STATUS)
			bench_fail("bare hiredis: PING was not answered");
		freeReplyObject(reply);
	}
}

/* ---- Pipelined ----------------------------------------------------------------------------- */

#define STEPS_MAX 3

struct bare_batch {
	char *text;
	size_t len;
	int pairs, steps; /* commands of a pair */
	enum answer expects[STEPS_MAX];
	char *nonces[BARE_DEPTH][STEPS_MAX]; /* in text; NULL = none */
};

static struct bare_batch *batch_of(struct command *commands, int steps)
{
	struct bare_batch *batch = calloc(1, sizeof(*batch));
	size_t len = 0;

	for (int i = 0; i < steps; i++)
		len += commands[i].len;
	if (batch)
		batch->text = malloc(len * BARE_DEPTH);
	if (!batch || !batch->text)
		bench_fail("out of memory");
	batch->pairs = BARE_DEPTH / steps;
	batch->steps = steps;
	for (int i = 0; i < batch->pairs * steps; i++) {
		const struct command *command = &commands[i % steps];
		char *at = batch->text + batch->len;

		memcpy(at, command->text, command->len);
		if (command->nonce)
			batch->nonces[i / steps][i % steps] = at + (command->nonce - command->text);
		batch->len += command->len;
	}
	for (int i = 0; i < steps; i++) {
		batch->expects[i] = commands[i].expects;
		free(commands[i].text);
	}
	return batch;
}

struct bare_batch *bare_batch_ours(const struct bare *bare, const char *name)
{
	struct command commands[] = {ours(bare, name, false), ours(bare, name, true)};

	return batch_of(commands, 2);
}

/* KEYS: the lock, a hash of holder and count; the channel that publishes releases; the key that
 * keeps the reply of a release.
 * ARGV of acquire: lease in ms, holder.  ARGV of release: message, lease in ms, holder, and the
 * time to keep the reply, in ms. */
static const char redisson_acquire[] = "if redis.call('exists', KEYS[1]) == 0 or "
				       "redis.call('hexists', KEYS[1], ARGV[2]) == 1 then\n"
				       "	redis.call('hincrby', KEYS[1], ARGV[2], 1)\n"
				       "	redis.call('pexpire', KEYS[1], ARGV[1])\n"
				       "	return nil\n"
				       "end\n"
				       "return redis.call('pttl', KEYS[1])\n";
static const char redisson_release[] =
	"if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end\n"
	"if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then\n"
	"	redis.call('pexpire', KEYS[1], ARGV[2])\n"
	"	return 0\n"
	"end\n"
	"redis.call('del', KEYS[1])\n"
	"redis.call('publish', KEYS[2], ARGV[1])\n"
	"return 1\n";
static const char redisson_release_today[] =
	"local kept = redis.call('get', KEYS[3])\n"
	"if kept then return tonumber(kept) end\n"
	"if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end\n"
	"if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then\n"
	"	redis.call('pexpire', KEYS[1], ARGV[2])\n"
	"	redis.call('set', KEYS[3], 0, 'px', ARGV[4])\n"
	"	return 0\n"
	"end\n"
	"redis.call('del', KEYS[1])\n"
	"redis.call('publish', KEYS[2], ARGV[1])\n"
	"redis.call('set', KEYS[3], 1, 'px', ARGV[4])\n"
	"return 1\n";

struct bare_batch *bare_batch_redisson(struct bare *bare, const char *name, bool of_today)
{
	/* A UUID and a thread's number; the number of a request. */
	static const char holder[] = "6f1c1d52-0d3a-4d0e-9f5b-3f0c7c1d2a11:1";
	static const char request[] = "0b8e54f2d9a147c6a8f0c93d1e7b6a25";
	char acquire_sha[41], release_sha[41], channel[160], kept[200];
	const char *acquire[] = {"EVALSHA", acquire_sha, "1", name, "30000", holder};
	const char *release[] = {"EVALSHA", release_sha, "2", name, channel, "0", "30000", holder};
	const char *release_today[] = {"EVALSHA", release_sha, "3",     name,   channel,
	                               kept,      "0",         "30000", holder, "13500"};
	const char *forget[] = {"DEL", kept};
	struct command commands[STEPS_MAX];

	snprintf(channel, sizeof(channel), "redisson_lock__channel:{%s}", name);
	snprintf(kept, sizeof(kept), "redisson_unlock_latch:{%s}:%s", name, request);
	load(bare, redisson_acquire, sizeof(redisson_acquire) - 1, NULL, acquire_sha);
	commands[0] = format(NIL, 6, acquire);
	if (of_today) {
		load(bare, redisson_release_today, sizeof(redisson_release_today) - 1, NULL,
		     release_sha);
		commands[1] = format(ONE, 10, release_today);
		commands[2] = format(ONE, 2, forget);
	} else {
		load(bare, redisson_release, sizeof(redisson_release) - 1, NULL, release_sha);
		commands[1] = format(ONE, 8, release);
	}
	return batch_of(commands, of_today ? 3 : 2);
}

int bare_batch_run(struct bare *bare, struct bare_batch *batch)
{
	for (int i = 0; i < batch->pairs && batch->nonces[i][0]; i++) {
		ticket_next(bare, batch->nonces[i][0]);
		memcpy(batch->nonces[i][1], batch->nonces[i][0], NONCE_LEN);
	}
	if (redisAppendFormattedCommand(bare->context, batch->text, batch->len) != REDIS_OK)
		bench_fail("bare hiredis: %s", bare->context->errstr);
	for (int i = 0; i < batch->pairs * batch->steps; i++) {
		redisReply *reply = take(bare);

		check(reply, batch->expects[i % batch->steps]);
		freeReplyObject(reply);
	}
	return batch->pairs;
}

void bare_batch_free(struct bare_batch *batch)
{
	free(batch->text);
	free(batch);
}
