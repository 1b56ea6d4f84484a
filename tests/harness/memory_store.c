/* SPDX-License-Identifier: MIT
 * A store in the memory of this process: streams of values between clients and models of
 * servers. */
#include "memory_store.h"

#include "base/os.h"
#include "model.h"
#include "store.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A store may ignore arguments. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

struct store {
	struct lk__store base; /* first */
	int client;
};

/* A reply, or an event on the message stream. */
struct reply {
	struct reply *next;
	struct lk__answer answer;
	struct lk__event event;
};

struct peer {
	struct lk__peer base; /* first */
	struct peer *next;
	int client;
	unsigned link;
	atomic_bool closed;
	int fds[2];               /* by enum lk__side */
	struct reply *replies[2]; /* oldest first */
};

atomic_llong memory_store_requests;
static atomic_uint links = 1;
static atomic_bool black_holes[MEMORY_STORE_LINKS_MAX];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static struct model servers[MEMORY_STORE_LINKS_MAX];
static char names[MODEL_NAMES][LK_NAME_MAX + 1];
static struct peer *peers; /* closed ones stay in the list */

/* ---- The servers, under the mutex ---------------------------------------------------------- */

static void push(struct peer *peer, enum lk__side side, const struct reply *reply)
{
	struct reply **end = &peer->replies[side];

	while (*end)
		end = &(*end)->next;
	if (!(*end = malloc(sizeof(**end))))
		abort();
	**end = *reply;
	eventfd_write(peer->fds[side], 1);
}

static int publish(void *server, int client, const struct lk__message *message)
{
	struct reply reply = {.event = {.kind = LK__EVENT_MESSAGE, .message = *message}};
	int heard = 0;

	for (struct peer *peer = peers; peer; peer = peer->next) {
		if (&servers[peer->link] != server || peer->client != client || peer->closed)
			continue;
		heard++;
		if (!black_holes[peer->link])
			push(peer, LK__MESSAGES, &reply);
	}
	return heard;
}

static void execute(struct peer *peer, const struct model_request *request)
{
	struct model *server = &servers[peer->link];
	struct reply reply = {.answer = {.kind = LK__DONE}};

	server->publish = publish;
	server->arg = server;
	server->now_us = lk__now_ns() / 1000;
	if (request->kind == LK__SHOW) {
		reply.answer.kind = LK__LISTED;
		reply.answer.waiting = server->locks[request->name].queued;
	} else if (!lk__is_query((uint8_t)request->kind)) {
		model_run(server, request, &reply.answer);
		memory_store_requests++;
	}
	push(peer, LK__RESPONSES, &reply);
}

/* ---- The client's end ---------------------------------------------------------------------- */

static const struct lk__store_ops ops;

static struct lk__store *create(const struct lk__target *target, const char *client_id)
{
	static atomic_int clients;
	struct store *store = calloc(1, sizeof(*store));

	if (!store)
		return NULL;
	*store = (struct store){{.ops = &ops, .links = links}, clients++};
	return &store->base;
}

static void destroy(struct lk__store *store)
{
	free(store);
}

static unsigned route(const struct lk__store *store, const char *name, size_t len)
{
	return (unsigned char)name[0] % store->links;
}

static lk_err dial(struct lk__store *store, unsigned link, const struct lk__target *place,
                   int64_t deadline_ns, int cancel_fd, struct lk__peer **result,
                   struct lk__why *why)
{
	struct peer *peer;

	if (black_holes[link]) {
		lk__poll2(cancel_fd, POLLIN, -1, deadline_ns);
		return lk__why_set(why, LK_ECONN, "memory: link %u does not answer", link);
	}
	if (!(peer = calloc(1, sizeof(*peer))))
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	*peer = (struct peer){.client = ((struct store *)store)->client, .link = link};
	for (int side = 0; side < 2; side++)
		peer->fds[side] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	pthread_mutex_lock(&mutex);
	peer->next = peers;
	peers = peer;
	pthread_mutex_unlock(&mutex);
	*result = &peer->base;
	return LK_OK;
}

static void shut_down(struct lk__peer *base)
{
	struct peer *peer = (struct peer *)base;

	pthread_mutex_lock(&mutex);
	if (!atomic_exchange(&peer->closed, true))
		eventfd_write(peer->fds[LK__MESSAGES], 1);
	pthread_mutex_unlock(&mutex);
}

static void close_peer(struct lk__peer *base)
{
	struct peer *peer = (struct peer *)base;

	pthread_mutex_lock(&mutex);
	peer->closed = true;
	close(peer->fds[LK__RESPONSES]);
	close(peer->fds[LK__MESSAGES]);
	pthread_mutex_unlock(&mutex);
}

static int fd_of(const struct lk__peer *peer, enum lk__side side)
{
	return ((const struct peer *)peer)->fds[side];
}

static int64_t write_bytes(struct lk__peer *base, enum lk__side side, const char *bytes, size_t len,
                           struct lk__why *why)
{
	const struct reply pong = {.event = {.kind = LK__EVENT_PONG}};
	struct peer *peer = (struct peer *)base;
	struct model_request request;

	pthread_mutex_lock(&mutex);
	for (size_t at = 0; at < len && !black_holes[peer->link]; at += sizeof(request)) {
		memcpy(&request, bytes + at, sizeof(request));
		if (side == LK__MESSAGES)
			push(peer, side, &pong);
		else
			execute(peer, &request);
	}
	pthread_mutex_unlock(&mutex);
	return (int64_t)len;
}

static int64_t read_bytes(struct lk__peer *base, enum lk__side side, bool wait, struct lk__why *why)
{
	struct peer *peer = (struct peer *)base;
	eventfd_t count;

	if (!peer->closed)
		return !eventfd_read(peer->fds[side], &count);
	lk__why_set(why, LK_ECONN, "memory: closed");
	return -1;
}

/* The model's number of that name; any number if it has none. */
static int index_of(const char *name, size_t len)
{
	int i = 0;

	pthread_mutex_lock(&mutex);
	while (len && names[i][0] && (strncmp(names[i], name, len) || names[i][len]))
		if (++i == MODEL_NAMES)
			abort();
	memcpy(names[i], name, len);
	pthread_mutex_unlock(&mutex);
	return i;
}

static bool encode(struct lk__peer *peer, const struct lk__request *request, struct lk__buf *buf)
{
	struct model_request bytes = {.kind = request->kind,
	                              .name = index_of(request->name, request->name_len),
	                              .ticket = {.client = ((struct peer *)peer)->client,
	                                         .lease_ms = request->ticket.lease_ms,
	                                         .fixed = request->ticket.fixed},
	                              .wait = !request->only_try,
	                              .share = request->share,
	                              .arrival = (int64_t)request->arrival,
	                              .lease_ms = request->lease_ms,
	                              .fence = request->fence,
	                              .last_fence = request->last_fence};
	size_t len = buf->len + sizeof(bytes);
	char *data = realloc(buf->data, len);

	if (!data)
		return false;
	memcpy(bytes.ticket.nonce, request->ticket.nonce, LK__NONCE_SIZE);
	memcpy(data + buf->len, &bytes, sizeof(bytes));
	*buf = (struct lk__buf){data, len, len};
	return true;
}

static bool ping(struct lk__peer *peer, struct lk__buf *buf)
{
	return encode(peer, &(struct lk__request){.kind = LK__PING, .name = ""}, buf);
}

static size_t parse(struct lk__peer *peer, enum lk__side side, void **replies, size_t max,
                    lk_err *err, struct lk__why *why)
{
	struct reply **first = &((struct peer *)peer)->replies[side];
	size_t count = 0;

	*err = LK_OK;
	pthread_mutex_lock(&mutex);
	for (; count < max && *first; *first = (*first)->next)
		replies[count++] = *first;
	pthread_mutex_unlock(&mutex);
	return count;
}

static bool answer_of(struct lk__peer *peer, void *reply, const struct lk__request *question,
                      void *into, struct lk__answer *answer, struct lk__why *why)
{
	*answer = ((struct reply *)reply)->answer;
	if (answer->kind == LK__LISTED)
		((struct lk__listing *)into)->waiting = answer->waiting;
	free(reply);
	return true;
}

static void event_of(struct lk__peer *peer, const void *reply, bool awaits_pong,
                     struct lk__event *event)
{
	*event = ((const struct reply *)reply)->event;
}

static const struct lk__store_ops ops = {
	.create = create,
	.destroy = destroy,
	.route = route,
	.dial = dial,
	.shutdown = shut_down,
	.close = close_peer,
	.fd = fd_of,
	.write = write_bytes,
	.read = read_bytes,
	.encode = encode,
	.ping = ping,
	.parse = parse,
	.answer = answer_of,
	.event = event_of,
	.discard = free,
};

void memory_store_use(unsigned count)
{
	links = count;
	lk__store_use(&ops);
}

void memory_store_black_hole(unsigned link, bool on)
{
	black_holes[link] = on;
}
