/* SPDX-License-Identifier: MIT
 * Servers in this process: see lua_seam.h.  The store in Redis writes and reads the bytes; this
 * file has the streams, the channels and the time. */
#include "lua_seam.h"

#include "find_epoch.h"

#include "base/os.h"
#include "lua_store_parts.h"
#include "redis/redis_store.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* A store may ignore arguments. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define DATABASES 16

struct topic {
	struct topic *next;
	char name[LK__TOPIC_MAX];
};

/* One side of a peer: commands to the server, and bytes for the client. */
struct stream {
	struct lk__resp_reader *commands;
	struct lk__buf out;
	int fd; /* an eventfd, readable if out has more */
};

struct peer {
	struct lk__redis_peer base; /* first; the client reads its replies with base.readers */
	struct peer *next;
	unsigned link;
	int db;
	atomic_bool closed;
	struct stream streams[2]; /* by enum lk__side */
	struct topic *topics;     /* its subscriptions */
	int64_t topic_count;
};

static atomic_uint links = 1;
static atomic_bool black_holes[LUA_SEAM_LINKS_MAX];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards all below, and the streams */
static struct lua_store *databases[LUA_SEAM_LINKS_MAX][DATABASES];
static struct peer *peers;
static struct {
	const char *name;
	long long calls;
} counts[] = {{"eval", 0},      {"evalsha", 0},     {"publish", 0},
              {"subscribe", 0}, {"unsubscribe", 0}, {"ping", 0}};

/* ---- The server, under the mutex ----------------------------------------------------------- */

static void count(const char *command)
{
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		counts[i].calls += !strcasecmp(counts[i].name, command);
}

static void reply_counts(struct lk__buf *reply)
{
	char text[1000];
	size_t len = 0;

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "cmdstat_%s:calls=%lld\n",
		                        counts[i].name, counts[i].calls);
	lua_reply_text(reply, text, len);
}

/* The topic, or the end of the list. */
static struct topic **find_topic(struct peer *peer, const char *name)
{
	struct topic **at = &peer->topics;

	while (*at && strcmp((*at)->name, name) != 0)
		at = &(*at)->next;
	return at;
}

static void subscribe(struct peer *peer, const char *name)
{
	struct topic **at = find_topic(peer, name);

	if (*at)
		return;
	*at = calloc(1, sizeof(**at));
	if (!*at)
		abort();
	snprintf((*at)->name, sizeof((*at)->name), "%s", name);
	peer->topic_count++;
}

static void unsubscribe(struct peer *peer, const char *name)
{
	struct topic **at = find_topic(peer, name), *topic = *at;

	if (!topic)
		return;
	*at = topic->next;
	free(topic);
	peer->topic_count--;
}

/* Of a script on the server whose databases those are. */
static int publish(void *server, const char *channel, const char *text, size_t len)
{
	int heard = 0;

	count("publish");
	for (struct peer *peer = peers; peer; peer = peer->next) {
		struct stream *stream = &peer->streams[LK__MESSAGES];
		if (databases[peer->link] != server || peer->closed || !*find_topic(peer, channel))
			continue;
		heard++;
		if (black_holes[peer->link])
			continue;
		lua_reply_array(&stream->out, 3);
		lua_reply_text(&stream->out, "message", 7);
		lua_reply_text(&stream->out, channel, strlen(channel));
		lua_reply_text(&stream->out, text, len);
		eventfd_write(stream->fd, 1);
	}
	return heard;
}

/* On the first server. */
static int count_subscribers(const char *channel)
{
	int subscribers = 0;

	for (struct peer *peer = peers; peer; peer = peer->next)
		subscribers += !peer->link && *find_topic(peer, channel);
	return subscribers;
}

static void add_key(void *arg, const char *name, size_t len, const char *type, int64_t expires_ms)
{
	++*(int64_t *)arg;
}

/* A database that uses the wall clock and has the library's scripts loaded. */
static struct lua_store *database(unsigned link, int db)
{
	struct lua_store **store = &databases[link][db];
	struct timespec now;

	if (!*store) {
		*store = lua_store_new(publish, databases[link]);
		lua_store_load_scripts(*store);
	}
	clock_gettime(CLOCK_REALTIME, &now);
	lua_store_set_time(*store, (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
	return *store;
}

/* Run a command that may publish to subscribers. */
static void run_subscriber(struct peer *peer, const struct lua_word *argv, struct lk__buf *reply)
{
	const bool on = lua_word_is(argv[0], "SUBSCRIBE");

	if (lua_word_is(argv[0], "PING")) {
		lua_reply_array(reply, 2);
		lua_reply_text(reply, "pong", 4);
		lua_reply_text(reply, "", 0);
		return;
	}
	(on ? subscribe : unsubscribe)(peer, argv[1].bytes);
	lua_reply_array(reply, 3);
	lua_reply_text(reply, on ? "subscribe" : "unsubscribe", on ? 9 : 11);
	lua_reply_text(reply, argv[1].bytes, argv[1].len);
	lua_reply_number(reply, peer->topic_count);
}

static void run_plain(struct lua_store *store, int argc, const struct lua_word *argv,
                      struct lk__buf *reply)
{
	int64_t keys = 0;

	if (lua_word_is(argv[0], "PING")) {
		lua_reply_status(reply, "PONG");
	} else if (lua_word_is(argv[0], "INFO")) {
		reply_counts(reply);
	} else if (lua_word_is(argv[0], "DBSIZE")) {
		lua_store_each_key(store, add_key, &keys);
		lua_reply_number(reply, keys);
	} else if (argc == 3 && lua_word_is(argv[1], "NUMSUB")) {
		lua_reply_array(reply, 2);
		lua_reply_text(reply, argv[2].bytes, argv[2].len);
		lua_reply_number(reply, count_subscribers(argv[2].bytes));
	} else {
		lua_store_execute(store, argc, argv, reply);
	}
}

/* Run the pending commands of a subscriber, or those for a store, and append the replies. */
static void run(struct lk__resp_reader *commands, struct peer *subscriber, struct lua_store *store,
                struct lk__buf *reply)
{
	struct lua_word argv[LUA_WORDS_MAX];
	struct lk__resp *command;

	while (!lk__resp_next(commands, &command, NULL) && command) {
		if (command->len > LUA_WORDS_MAX)
			abort();
		for (size_t i = 0; i < command->len; i++)
			argv[i] = (struct lua_word){command->elements[i]->str,
			                            command->elements[i]->len};
		count(argv[0].bytes);
		if (subscriber)
			run_subscriber(subscriber, argv, reply);
		else
			run_plain(store, (int)command->len, argv, reply);
		lk__resp_free(command);
	}
}

char *lua_seam_run(const char *bytes, size_t len, size_t *reply_len)
{
	struct lk__resp_reader *commands = lk__resp_reader_new();
	struct lk__buf reply = {0};

	if (!commands || lk__resp_feed(commands, bytes, len, NULL))
		abort();
	pthread_mutex_lock(&mutex);
	run(commands, NULL, database(0, 0), &reply);
	pthread_mutex_unlock(&mutex);
	lk__resp_reader_free(commands);
	*reply_len = reply.len;
	return reply.data;
}

/* ---- The client's end ---------------------------------------------------------------------- */

static struct lk__store_ops ops;

static struct lk__store *create(const struct lk__target *target, const char *client_id)
{
	struct lk__store *store = lk__redis_store.create(target, client_id);

	if (store) {
		store->ops = &ops;
		store->links = links;
	}
	return store;
}

static unsigned route(const struct lk__store *store, const char *name, size_t len)
{
	return (unsigned char)name[0] % store->links;
}

static lk_err dial(struct lk__store *store, unsigned link, const struct lk__target *place,
                   int64_t deadline_ns, int cancel_fd, struct lk__epoch *epoch,
                   struct lk__peer **result, struct lk__why *why)
{
	struct peer *peer;

	if (place->db >= DATABASES)
		return lk__why_set(why, LK_ESERVER, "%s: no such database", place->text);
	if (black_holes[link]) {
		lk__poll2(cancel_fd, POLLIN, -1, deadline_ns);
		return lk__why_set(why, LK_ECONN, "%s: link %u does not answer", place->text, link);
	}
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	peer->base.redis = (struct lk__redis *)store;
	peer->base.space = &peer->base.redis->space;
	memcpy(peer->base.text, place->text, sizeof(peer->base.text));
	peer->link = link;
	peer->db = place->db;
	for (int side = 0; side < 2; side++) {
		peer->base.readers[side] = lk__resp_reader_new();
		peer->streams[side].commands = lk__resp_reader_new();
		peer->streams[side].fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		if (!peer->base.readers[side] || !peer->streams[side].commands)
			abort();
	}
	pthread_mutex_lock(&mutex);
	find_epoch(database(link, place->db), &peer->base.redis->space, epoch);
	subscribe(peer, peer->base.redis->space.channel);
	peer->next = peers;
	peers = peer;
	pthread_mutex_unlock(&mutex);
	*result = &peer->base.peer;
	return LK_OK;
}

static void end_streams(struct peer *peer)
{
	peer->closed = true;
	eventfd_write(peer->streams[LK__RESPONSES].fd, 1);
	eventfd_write(peer->streams[LK__MESSAGES].fd, 1);
}

/* A test may shut down what the library closes as soon as it sees the first stream end. */
static void shut_down(struct lk__peer *base)
{
	pthread_mutex_lock(&mutex);
	end_streams((struct peer *)base);
	pthread_mutex_unlock(&mutex);
}

static void close_peer(struct lk__peer *base)
{
	struct peer *peer = (struct peer *)base, **at = &peers;

	pthread_mutex_lock(&mutex);
	while (*at != peer)
		at = &(*at)->next;
	*at = peer->next;
	pthread_mutex_unlock(&mutex);
	for (int side = 0; side < 2; side++) {
		lk__resp_reader_free(peer->base.readers[side]);
		lk__resp_reader_free(peer->streams[side].commands);
		lk__buf_fini(&peer->streams[side].out);
		close(peer->streams[side].fd);
	}
	while (peer->topics)
		unsubscribe(peer, peer->topics->name);
	free(peer);
}

static int fd_of(const struct lk__peer *peer, enum lk__side side)
{
	return ((const struct peer *)peer)->streams[side].fd;
}

static int64_t write_bytes(struct lk__peer *base, enum lk__side side, const char *bytes, size_t len,
                           struct lk__why *why)
{
	struct peer *peer = (struct peer *)base;
	struct stream *stream = &peer->streams[side];

	if (black_holes[peer->link])
		return (int64_t)len;
	if (lk__resp_feed(stream->commands, bytes, len, why))
		return -1;
	pthread_mutex_lock(&mutex);
	run(stream->commands, side == LK__MESSAGES ? peer : NULL, database(peer->link, peer->db),
	    &stream->out);
	if (stream->out.len)
		eventfd_write(stream->fd, 1);
	pthread_mutex_unlock(&mutex);
	return (int64_t)len;
}

static int64_t read_bytes(struct lk__peer *base, enum lk__side side, bool wait, struct lk__why *why)
{
	struct peer *peer = (struct peer *)base;
	struct stream *stream = &peer->streams[side];
	struct lk__buf bytes;
	eventfd_t times;
	size_t len;
	lk_err err;

	if (peer->closed) {
		lk__why_set(why, LK_ECONN, "%s: closed", peer->base.text);
		return -1;
	}
	if (eventfd_read(stream->fd, &times))
		return 0;
	pthread_mutex_lock(&mutex);
	bytes = stream->out;
	stream->out = (struct lk__buf){0};
	pthread_mutex_unlock(&mutex);
	len = bytes.len;
	err = len ? lk__resp_feed(peer->base.readers[side], bytes.data, len, why) : LK_OK;
	lk__buf_fini(&bytes);
	return err ? -1 : (int64_t)len;
}

void lua_seam_use(unsigned count)
{
	links = count;
	ops = lk__redis_store;
	ops.create = create;
	ops.route = route;
	ops.dial = dial;
	ops.shutdown = shut_down;
	ops.close = close_peer;
	ops.fd = fd_of;
	ops.write = write_bytes;
	ops.read = read_bytes;
	lk__store_use(&ops);
}

void lua_seam_black_hole(unsigned link, bool on)
{
	black_holes[link] = on;
}

void lua_seam_restart(void)
{
	pthread_mutex_lock(&mutex);
	for (int link = 0; link < LUA_SEAM_LINKS_MAX; link++)
		for (int db = 0; db < DATABASES; db++) {
			if (databases[link][db])
				lua_store_free(databases[link][db]);
			databases[link][db] = NULL;
		}
	for (struct peer *peer = peers; peer; peer = peer->next)
		end_streams(peer);
	pthread_mutex_unlock(&mutex);
}
