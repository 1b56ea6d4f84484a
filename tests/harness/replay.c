/* SPDX-License-Identifier: MIT
 * Both sides of a replay: see replay.h. */
#include "replay.h"

#include "lua_store_parts.h"
#include "process.h"
#include "redis.h"
#include "replay_sides.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MS 20000
#define START_US INT64_C(1700000000000000)
#define BEGAN_US (START_US - 7300000) /* the server's start */

uint64_t replay_draw(struct replay *replay, uint64_t below)
{
	uint64_t z = replay->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (z ^ (z >> 31)) % below;
}

/* ---- The server --------------------------------------------------------------------------- */

static void start_server(struct replay_sides *sides)
{
	char self[400], shim[500], file[120];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int64_t began_us = BEGAN_US;
	char *slash;
	int fd;

	if (len <= 0)
		abort();
	self[len] = '\0';
	slash = strrchr(self, '/');
	snprintf(shim, sizeof(shim), "%.*s/still_clock.so", (int)(slash - self), self);
	if (access(shim, R_OK))
		snprintf(shim, sizeof(shim), "%.*s/tests/still_clock.so", (int)(slash - self),
		         self);
	folder_make(sides->dir, sizeof(sides->dir));
	snprintf(file, sizeof(file), "%s/clock", sides->dir);
	fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (access(shim, R_OK) || fd < 0 ||
	    pwrite(fd, &began_us, sizeof(began_us), 0) != sizeof(began_us)) {
		fprintf(stderr, "%s or %s is missing\n", shim, file);
		abort();
	}
	sides->clock_us = mmap(NULL, sizeof(began_us), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (sides->clock_us == MAP_FAILED)
		abort();
	setenv("STILL_CLOCK_FILE", file, 1);
	setenv("LD_PRELOAD", shim, 1);
	server_start(&sides->server, &(struct server_options){.unix_only = true});
	unsetenv("LD_PRELOAD");
	unsetenv("STILL_CLOCK_FILE");
	sides->version = server_version(&sides->server);
}

static int open_connection(const struct replay_sides *sides)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(address.sun_path, sides->server.socket_path, sizeof(sides->server.socket_path));
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
		abort();
	return fd;
}

void replay_say(int fd, const struct lk__buf *bytes)
{
	for (size_t at = 0; at < bytes->len;) {
		ssize_t sent = send(fd, bytes->data + at, bytes->len - at, MSG_NOSIGNAL);
		if (sent <= 0 && errno != EINTR)
			abort();
		at += sent > 0 ? (size_t)sent : 0;
	}
}

/* Read as many bytes into "got"; fewer if no more arrive, or if they already differ: replies are
 * compared as they arrive, so a reply that is too short is not awaited. */
void replay_hear(struct replay_sides *sides, int fd, const struct lk__buf *wanted)
{
	static char bytes[1 << 16];

	sides->got.len = 0;
	while (sides->got.len < wanted->len) {
		struct pollfd ready = {fd, POLLIN, 0};
		size_t rest = wanted->len - sides->got.len;
		ssize_t got;
		if (poll(&ready, 1, ANSWER_MS) != 1)
			return;
		got = recv(fd, bytes, rest < sizeof(bytes) ? rest : sizeof(bytes), 0);
		if (got <= 0)
			return;
		lua_reply_bytes(&sides->got, bytes, (size_t)got);
		if (memcmp(sides->got.data + sides->got.len - got,
		           wanted->data + sides->got.len - got, (size_t)got) != 0)
			return;
	}
}

/* ---- Commands ----------------------------------------------------------------------------- */

static int channel_of(const struct replay *replay, const char *channel)
{
	for (int i = 0; i < REPLAY_CLIENTS; i++)
		if (!strncmp(channel, "lk:c:0:", 7) && !strcmp(channel + 7, replay->client[i]))
			return i;
	for (int i = 0; i < REPLAY_NAMES; i++)
		if (!strcmp(channel, replay->name[i].topic))
			return REPLAY_CLIENTS + i;
	return -1;
}

static void expect_message(struct replay_sides *sides, const char *channel, const char *text,
                           size_t len)
{
	lua_reply_array(&sides->messages, 3);
	lua_reply_text(&sides->messages, "message", 7);
	lua_reply_text(&sides->messages, channel, strlen(channel));
	lua_reply_text(&sides->messages, text, len);
}

static int publish(void *arg, const char *channel, const char *text, size_t len)
{
	struct replay *replay = arg;
	int index = channel_of(replay, channel);

	if (index < 0 || !replay->sides->hears[index])
		return 0;
	expect_message(replay->sides, channel, text, len);
	replay->sums.messages++;
	return 1;
}

/* Append a command for the server to the batch. */
static struct replay_sent *add_request(struct replay_sides *sides, int argc,
                                       const char *const *argv)
{
	struct replay_sent *command = &sides->command[sides->count];

	if (sides->count++ == REPLAY_COMMANDS ||
	    !lk__resp_command(&sides->requests, argc, argv, NULL))
		abort();
	command->request_end = sides->requests.len;
	return command;
}

const char *replay_command(struct replay *replay, int argc, const char *const *argv)
{
	struct replay_sides *sides = replay->sides;
	size_t from = sides->requests.len;
	struct replay_sent *command = add_request(sides, argc, argv);

	sides->last_reply = sides->replies.len;
	lua_store_run(sides->store, sides->requests.data + from, sides->requests.len - from,
	              &sides->replies);
	server_version_reply(sides->version, &sides->replies, sides->last_reply);
	command->reply_end = sides->replies.len;
	replay->sums.commands++;
	replay->sums.errors += sides->replies.data[sides->last_reply] == '-';
	return replay_answer(replay, 0, sides->last, sizeof(sides->last));
}

/* Move from one value to the next. */
static const char *skip(const char *at)
{
	long count = strtol(at + 1, NULL, 10);
	char type = *at;

	at = strchr(at, '\n') + 1;
	if (type == '$' && count >= 0)
		return at + count + 2;
	for (long i = 0; type == '*' && i < count; i++)
		at = skip(at);
	return at;
}

const char *replay_answer(struct replay *replay, int index, char *text, size_t size)
{
	struct replay_sides *sides = replay->sides;
	const char *at, *line;
	size_t len;

	lua_reply_bytes(&sides->replies, "", 1);
	sides->replies.len--;
	at = sides->replies.data + sides->last_reply;
	text[0] = '\0';
	if (*at == '*') {
		if (index >= strtol(at + 1, NULL, 10))
			return text;
		at = strchr(at, '\n') + 1;
		for (; index > 0; index--)
			at = skip(at);
	}
	line = strchr(at, '\n') + 1;
	if (*at == '$')
		len = strtol(at + 1, NULL, 10) < 0 ? 0 : strtoul(at + 1, NULL, 10);
	else
		len = strcspn(at, "\r");
	snprintf(text, size, "%.*s", (int)len, *at == '$' ? line : at);
	return text;
}

const char *replay_peek(struct replay *replay, const char *command, const char *key,
                        const char *field)
{
	struct replay_sides *sides = replay->sides;

	snprintf(sides->last, sizeof(sides->last), "%s",
	         lua_store_text(sides->store, command, key, field, NULL));
	return sides->last;
}

static void count_answer(struct replay *replay, int script, const char *word)
{
	for (int i = 0; i < REPLAY_ANSWERS; i++) {
		size_t size = sizeof(replay->sums.answer[0][0].word);
		char *known = replay->sums.answer[script][i].word;
		if (!replay->sums.answer[script][i].count)
			snprintf(known, size, "%s", word);
		if (!strncmp(known, word, size - 1)) {
			replay->sums.answer[script][i].count++;
			return;
		}
	}
}

const char *replay_script(struct replay *replay, const struct lk__script *script,
                          const char *const *keys, const char *const *args)
{
	const char *argv[REPLAY_WORDS] = {"EVALSHA", script->sha1};
	char count[8];
	int argc = 3, index = 0;
	const char *answer;

	snprintf(count, sizeof(count), "%d", script->keys);
	argv[2] = count;
	for (int i = 0; i < script->keys; i++)
		argv[argc++] = keys[i];
	for (; *args && argc < REPLAY_WORDS; args++)
		argv[argc++] = *args;
	answer = replay_command(replay, argc, argv);
	while (lk__scripts[index] != script)
		index++;
	replay->sums.script[index]++;
	replay->sums.calls++;
	/* Numbers and replies without a word are of one kind. */
	count_answer(replay, index,
	             answer[0] >= 'a' && answer[0] <= 'z' ? answer
	             : answer[0] == '-'                   ? "error"
	                                                  : "value");
	if (answer[0] == '-' && !strncmp(answer, "-NOSCRIPT", 9)) {
		const char *load[] = {"SCRIPT", "LOAD", script->text};
		replay_command(replay, 3, load);
	}
	return answer;
}

/* ---- Batches ------------------------------------------------------------------------------ */

/* The store's replies to the batch are known; send all of it to the server at once. */
static void compare_batch(struct replay *replay, const struct lk__buf *keys)
{
	struct replay_sides *sides = replay->sides;

	replay_say(sides->fd, &sides->requests);
	replay_hear(sides, sides->fd, &sides->replies);
	if (sides->got.len < sides->replies.len ||
	    memcmp(sides->got.data, sides->replies.data, sides->replies.len) != 0) {
		size_t at = replay_same(&sides->got, &sides->replies);
		sides->failed = true;
		if (at < sides->command[sides->count - 2].reply_end)
			replay_show_reply(replay, at);
		else
			replay_show_keys(replay, keys);
		return;
	}
	replay->sums.replies += sides->count;
	replay_hear(sides, sides->subscriber_fd, &sides->messages);
	if (sides->got.len < sides->messages.len ||
	    memcmp(sides->got.data, sides->messages.data, sides->messages.len) != 0) {
		sides->failed = true;
		fprintf(sides->out, "messages differ at %" PRId64 " us after:\n", replay->now_us);
		for (int i = 0; i < sides->count; i++)
			replay_show_command(sides, i);
		fputs("the server: ", sides->out);
		replay_show_bytes(sides->out, sides->got.data, sides->got.len);
		fputs("the store:  ", sides->out);
		replay_show_bytes(sides->out, sides->messages.data, sides->messages.len);
	}
}

/* End the batch: remove expired keys on both sides (the clock may step back), send the subscriber a
 * message that marks the end, and compare the digests of all keys. */
static void settle(struct replay *replay)
{
	const char *exists[REPLAY_NAMES * 4 + REPLAY_CLIENTS + 4] = {"EXISTS", "lk:fence",
	                                                             "lk:fences", "lk:epoch"};
	const char *keys_of[] = {"EVAL", replay_keys_script, "0", ""};
	struct replay_sides *sides = replay->sides;
	struct lk__buf dump = {0}, text = {0};
	char number[24], hex[41];
	struct replay_sent *command;
	int argc = 4;

	for (int i = 0; i < REPLAY_NAMES; i++) {
		exists[argc++] = replay->name[i].main;
		exists[argc++] = replay->name[i].queue;
		exists[argc++] = replay->name[i].holds;
		exists[argc++] = replay->name[i].memory;
	}
	for (int i = 0; i < REPLAY_CLIENTS; i++)
		exists[argc++] = replay->client_key[i];
	replay_command(replay, argc, exists);
	snprintf(number, sizeof(number), "%lld", ++sides->syncs);
	command = add_request(sides, 3, (const char *const[]){"PUBLISH", "sync", number});
	lua_reply_number(&sides->replies, 1);
	command->reply_end = sides->replies.len;
	expect_message(sides, "sync", number, strlen(number));
	lua_store_dump(sides->store, &dump);
	replay_keys_text(&dump, replay->now_us, &text);
	server_version_text(sides->version, NULL, &text);
	lua_sha1((struct lua_word){text.data, text.len}, hex);
	command = add_request(sides, 4, keys_of);
	lua_reply_text(&sides->replies, hex, 40);
	command->reply_end = sides->replies.len;
	compare_batch(replay, &text);
	for (size_t i = 0; i < text.len; i++)
		replay->sums.values += text.data[i] == '\0';
	lk__buf_fini(&dump);
	lk__buf_fini(&text);
	sides->requests.len = sides->replies.len = sides->messages.len = 0;
	sides->count = 0;
	replay->sums.batches++;
}

static void move_clock(struct replay *replay)
{
	int64_t step_us = 0;

	switch (replay_draw(replay, 24)) {
	case 0:
		step_us =
			-(int64_t)replay_draw(replay, replay_draw(replay, 4) ? 3000000 : 60000000);
		break;
	case 1:
		step_us = (int64_t)replay_draw(replay, 120000000);
		break;
	case 2:
	case 3:
	case 4:
		step_us = (int64_t)replay_draw(replay, 5000000);
		break;
	case 5:
		/* Exactly at an expiry: leases are whole ms. */
		step_us = (int64_t)replay_draw(replay, 500) * 1000;
		break;
	default:
		step_us = (int64_t)replay_draw(replay, 30000);
	}
	replay->now_us += step_us;
	*replay->sides->clock_us = replay->now_us;
	lua_store_set_time(replay->sides->store, replay->now_us);
}

/* Subscribe to a channel or unsubscribe; both sides apply it before the next batch. */
static void move_subscription(struct replay *replay, int index, bool hears)
{
	struct replay_sides *sides = replay->sides;
	const char *argv[2] = {hears ? "SUBSCRIBE" : "UNSUBSCRIBE"};
	struct lk__buf request = {0}, reply = {0};
	char channel[80];
	int count = 1; /* "sync" */

	if (index < REPLAY_CLIENTS)
		snprintf(channel, sizeof(channel), "lk:c:0:%s", replay->client[index]);
	else
		snprintf(channel, sizeof(channel), "%s",
		         replay->name[index - REPLAY_CLIENTS].topic);
	sides->hears[index] = hears;
	for (int i = 0; i < REPLAY_CLIENTS + REPLAY_NAMES; i++)
		count += sides->hears[i];
	argv[1] = channel;
	lk__resp_command(&request, 2, argv, NULL);
	replay_say(sides->subscriber_fd, &request);
	lua_reply_array(&reply, 3);
	lua_reply_text(&reply, hears ? "subscribe" : "unsubscribe", hears ? 9 : 11);
	lua_reply_text(&reply, channel, strlen(channel));
	lua_reply_number(&reply, count);
	replay_hear(sides, sides->subscriber_fd, &reply);
	if (sides->got.len != reply.len || memcmp(sides->got.data, reply.data, reply.len) != 0)
		abort();
	lk__buf_fini(&request);
	lk__buf_fini(&reply);
}

/* No subscribers for a while: all waiters are dead. */
static void silence(struct replay *replay)
{
	for (int i = 0; i < REPLAY_CLIENTS + REPLAY_NAMES; i++)
		move_subscription(replay, i, false);
}

static void move_subscriptions(struct replay *replay)
{
	int all = REPLAY_CLIENTS + REPLAY_NAMES;

	if (!replay_draw(replay, 30))
		for (int i = 0; i < all; i++)
			move_subscription(replay, i, true);
	else if (!replay_draw(replay, 10))
		move_subscription(replay, (int)replay_draw(replay, (uint64_t)all),
		                  replay_draw(replay, 4) > 0);
}

/* Make the server full, or not full; both sides apply it before the next batch. */
static void move_memory(struct replay *replay, bool full)
{
	struct replay_sides *sides = replay->sides;
	const char *argv[] = {"CONFIG", "SET", "maxmemory", full ? "1" : "0"};
	struct lk__buf request = {0}, reply = {0};

	lk__resp_command(&request, 4, argv, NULL);
	replay_say(sides->fd, &request);
	lua_reply_status(&reply, "OK");
	replay_hear(sides, sides->fd, &reply);
	if (sides->got.len != reply.len)
		abort();
	lua_store_set_full(sides->store, full);
	lk__buf_fini(&request);
	lk__buf_fini(&reply);
}

/* The store says of its process what the server says. */
static void copy_process(struct replay *replay)
{
	struct replay_sides *sides = replay->sides;
	struct lua_store_process *process = lua_store_process(sides->store);
	struct redis *redis = redis_open(&sides->server);
	const char *run_id = strstr(redis_text(redis, "INFO server"), "run_id:");

	if (!run_id)
		abort();
	snprintf(sides->run_id, sizeof(sides->run_id), "%s", run_id + strlen("run_id:"));
	redis_close(redis);
	process->run_id = sides->run_id;
	process->began_us = BEGAN_US;
	process->process_id = sides->server.pid;
	snprintf(replay->process, sizeof(replay->process), "%lld", (long long)process->process_id);
}

static void start(struct replay *replay)
{
	static const char *const sync[] = {"SUBSCRIBE", "sync"};
	static const char reply[] = "*3\r\n$9\r\nsubscribe\r\n$4\r\nsync\r\n:1\r\n";
	struct replay_sides *sides = replay->sides;
	struct lk__buf request = {0}, wanted = {0};

	start_server(sides);
	sides->fd = open_connection(sides);
	sides->subscriber_fd = open_connection(sides);
	sides->store = lua_store_new(publish, replay);
	copy_process(replay);
	lk__resp_command(&request, 2, sync, NULL);
	replay_say(sides->subscriber_fd, &request);
	lua_reply_bytes(&wanted, reply, sizeof(reply) - 1);
	replay_hear(sides, sides->subscriber_fd, &wanted);
	lk__buf_fini(&request);
	lk__buf_fini(&wanted);
	replay->now_us = START_US;
	replay_calls_init(replay);
	for (int i = 0; i < REPLAY_CLIENTS + REPLAY_NAMES; i++)
		move_subscription(replay, i, i % 4 != 3);
}

static void stop(struct replay *replay)
{
	struct replay_sides *sides = replay->sides;

	lua_store_free(sides->store);
	close(sides->fd);
	close(sides->subscriber_fd);
	munmap((void *)(uintptr_t)sides->clock_us, sizeof(*sides->clock_us));
	server_stop(&sides->server);
	folder_remove(sides->dir);
	lk__buf_fini(&sides->requests);
	lk__buf_fini(&sides->replies);
	lk__buf_fini(&sides->messages);
	lk__buf_fini(&sides->got);
}

bool replay_run(uint64_t seed, long long calls, long long each, struct replay_sums *sums, FILE *out)
{
	struct replay *replay = calloc(1, sizeof(*replay));
	struct replay_sides *sides = calloc(1, sizeof(*sides));
	bool good;

	if (!replay || !sides)
		abort();
	replay->sides = sides;
	replay->random = seed;
	sides->out = out;
	start(replay);
	while (!sides->failed && replay->sums.calls < calls) {
		int count = 1 + (int)replay_draw(replay, REPLAY_BATCH);
		long long batch = each >= 0 && replay->sums.batches >= each;
		move_clock(replay);
		move_subscriptions(replay);
		if (!replay_draw(replay, 60))
			move_memory(replay, true);
		else if (!replay_draw(replay, 4))
			move_memory(replay, false);
		if (!replay_draw(replay, 60)) {
			replay_crowd(replay);
			settle(replay);
			if (!sides->failed)
				silence(replay);
		}
		for (int i = 0; i < count && !sides->failed; i++) {
			if (!replay_draw(replay, 30))
				replay_damage(replay);
			replay_call(replay);
			if (batch)
				settle(replay);
		}
		if (!batch)
			settle(replay);
	}
	good = !sides->failed;
	if (!good)
		fprintf(out, "batch %lld, call %lld, seed %" PRIu64 "\n", replay->sums.batches - 1,
		        replay->sums.calls, seed);
	fflush(out);
	*sums = replay->sums;
	stop(replay);
	free(sides);
	free(replay);
	return good;
}

void replay_print(const struct replay_sums *sums, FILE *out)
{
	for (int i = 0; lk__scripts[i]; i++) {
		fprintf(out, "%-16s %8lld:", lk__scripts[i]->name, sums->script[i]);
		for (int j = 0; j < REPLAY_ANSWERS && sums->answer[i][j].count; j++)
			fprintf(out, "%s %s %lld", j ? "," : "", sums->answer[i][j].word,
			        sums->answer[i][j].count);
		fputc('\n', out);
	}
}
