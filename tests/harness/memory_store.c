/* SPDX-License-Identifier: MIT
 * A store in this process' memory. */
#include "memory_store.h"

#include "base/os.h"
#include "store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A store need not look at all that it is given. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define NAMES 8
#define TICKETS 64
#define REPLIES 256

struct peer;

struct ticket {
	struct lk__ticket_id id;
	struct peer *peer;
};

struct name {
	char text[64];
	struct ticket holder; /* without a peer: free */
	uint64_t fence;
	int64_t until_ns;
	bool share;
	struct ticket queue[TICKETS];
	uint64_t arrivals[TICKETS];
	int waiting;
};

/* What came for a client: an answer, or an event. */
struct reply {
	struct lk__answer answer;
	struct lk__event event;
};

struct peer {
	struct lk__peer base; /* first */
	int fds[2];           /* by enum lk__side */
	struct reply replies[2][REPLIES];
	int first[2], count[2];
	bool closed;
};

/* A request as it goes over the wire. */
struct wire {
	struct lk__request request;
	char name[64];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards all below, and the replies */
static struct name names[NAMES];
static uint64_t last_fence;
static long long requests;

/* ---- The server --------------------------------------------------------------------------- */

static void push(struct peer *peer, enum lk__side side, const struct reply *reply)
{
	const uint64_t one = 1;

	if (peer->count[side] == REPLIES)
		abort();
	peer->replies[side][(peer->first[side] + peer->count[side]++) % REPLIES] = *reply;
	if (write(peer->fds[side], &one, sizeof(one)) < 0)
		abort();
}

static struct name *name_of(const char *text)
{
	for (int i = 0; i < NAMES; i++) {
		if (!names[i].text[0])
			memcpy(names[i].text, text, strlen(text) + 1);
		if (!strcmp(names[i].text, text))
			return &names[i];
	}
	abort();
}

static bool same(const struct ticket *ticket, const struct lk__request *request)
{
	return ticket->peer && !strcmp(ticket->id.nonce, request->ticket.nonce);
}

static void tell(const struct ticket *to, enum lk__message_kind kind, const struct name *name)
{
	struct reply reply = {.event = {.kind = LK__EVENT_MESSAGE}};
	struct lk__message *message = &reply.event.message;

	message->kind = kind;
	memcpy(message->nonce, to->id.nonce, sizeof(message->nonce));
	message->lease_ms = message->life_ms = to->id.lease_ms;
	message->fixed = to->id.fixed;
	message->fence = name->fence;
	message->waiting = name->waiting;
	message->store_us = lk__now_ns() / 1000;
	push(to->peer, LK__MESSAGES, &reply);
}

static void take_out(struct name *name, int i)
{
	name->waiting--;
	memmove(&name->queue[i], &name->queue[i + 1],
	        (size_t)(name->waiting - i) * sizeof(name->queue[0]));
	memmove(&name->arrivals[i], &name->arrivals[i + 1],
	        (size_t)(name->waiting - i) * sizeof(name->arrivals[0]));
}

static void grant(struct name *name, const struct ticket *to, bool share)
{
	uint64_t now_us = (uint64_t)lk__now_ns() / 1000;

	name->holder = *to;
	name->fence = last_fence = last_fence + 1 > now_us ? last_fence + 1 : now_us;
	name->until_ns = lk__now_ns() + to->id.lease_ms * LK__MS;
	name->share = share;
}

static void ask(struct name *name, const struct lk__request *request, struct peer *peer,
                struct lk__answer *answer)
{
	struct ticket asker = {request->ticket, peer};
	int rank = 0;

	while (rank < name->waiting && !same(&name->queue[rank], request))
		rank++;
	if (!name->holder.peer && (rank == 0 || !name->waiting)) {
		if (name->waiting)
			take_out(name, 0);
		grant(name, &asker, request->share);
	}
	if (same(&name->holder, request)) {
		*answer = (struct lk__answer){.kind = LK__GRANTED,
		                              .fence = name->fence,
		                              .store_us = lk__now_ns() / 1000,
		                              .waiting = name->waiting};
		return;
	}
	answer->free = !name->holder.peer;
	answer->kind = request->only_try ? LK__BUSY : LK__QUEUED;
	if (request->only_try)
		return;
	if (rank == name->waiting) {
		if (name->waiting == TICKETS)
			abort();
		name->arrivals[rank] = (uint64_t)lk__now_ns() / 1000;
		name->queue[name->waiting++] = asker;
		if (name->holder.peer && name->share)
			tell(&name->holder, LK__WANTED, name);
	}
	answer->arrival = name->arrivals[rank];
	answer->rank = rank;
	answer->left_ms = (name->until_ns - lk__now_ns()) / LK__MS;
}

static void leave(struct name *name, const struct lk__request *request, struct lk__answer *answer)
{
	answer->kind = LK__LEFT;
	for (int i = name->waiting - 1; i >= 0; i--)
		if (same(&name->queue[i], request))
			take_out(name, i);
	if (same(&name->holder, request)) {
		answer->mine = true;
		name->holder.peer = NULL;
		if (request->last_fence > last_fence)
			last_fence = request->last_fence;
	}
	while (!name->holder.peer && name->waiting) {
		struct ticket next = name->queue[0];
		take_out(name, 0);
		if (next.peer->closed)
			continue; /* nobody there: the next one */
		grant(name, &next, false);
		tell(&next, LK__GRANT, name);
	}
	answer->free = !name->holder.peer;
}

static void renew(struct name *name, const struct lk__request *request, struct lk__answer *answer)
{
	int64_t until_ns = lk__now_ns() + request->lease_ms * LK__MS;

	answer->kind = LK__GONE;
	if (!same(&name->holder, request) || (request->fence && request->fence != name->fence))
		return;
	if (request->last_fence > last_fence)
		last_fence = request->last_fence;
	if (name->until_ns < until_ns)
		name->until_ns = until_ns;
	name->share = request->share;
	*answer = (struct lk__answer){.kind = LK__KEPT,
	                              .fence = name->fence,
	                              .store_us = lk__now_ns() / 1000,
	                              .waiting = name->waiting};
}

static void execute(struct peer *peer, const struct wire *wire)
{
	struct reply reply = {.answer = {.kind = LK__DONE}};
	struct lk__answer *answer = &reply.answer;
	struct name *name;

	if (!lk__is_question(wire->request.kind)) {
		requests++;
		name = name_of(wire->name);
		if (name->holder.peer && name->until_ns <= lk__now_ns())
			name->holder.peer = NULL;
		if (wire->request.kind == LK__ASK)
			ask(name, &wire->request, peer, answer);
		else if (wire->request.kind == LK__RENEW)
			renew(name, &wire->request, answer);
		else
			leave(name, &wire->request, answer);
	}
	push(peer, LK__RESPONSES, &reply);
}

long long memory_store_requests(void)
{
	long long count;

	pthread_mutex_lock(&mutex);
	count = requests;
	pthread_mutex_unlock(&mutex);
	return count;
}

int memory_store_queue(const char *text)
{
	int waiting = -1;

	pthread_mutex_lock(&mutex);
	for (int i = 0; i < NAMES; i++)
		if (!strcmp(names[i].text, text))
			waiting = names[i].waiting;
	pthread_mutex_unlock(&mutex);
	return waiting;
}

/* ---- The client's end --------------------------------------------------------------------- */

static const struct lk__store_ops ops;

static struct lk__store *create(const struct lk__target *target, const char *client_id)
{
	struct lk__store *store = calloc(1, sizeof(*store));

	if (store)
		*store = (struct lk__store){.ops = &ops, .links = 1};
	return store;
}

static void destroy(struct lk__store *store)
{
	free(store);
}

static unsigned route(const struct lk__store *store, const char *name, size_t len)
{
	return 0;
}

static lk_err dial(struct lk__store *store, unsigned link, const struct lk__target *place,
                   int64_t deadline_ns, int cancel_fd, struct lk__peer **result,
                   struct lk__why *why)
{
	struct peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	for (int side = 0; side < 2; side++)
		peer->fds[side] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	*result = &peer->base;
	return LK_OK;
}

static void shut_down(struct lk__peer *peer)
{
	pthread_mutex_lock(&mutex);
	((struct peer *)peer)->closed = true;
	pthread_mutex_unlock(&mutex);
}

/* The peer's memory stays: a ticket in a queue may still point to it. */
static void close_peer(struct lk__peer *base)
{
	struct peer *peer = (struct peer *)base;

	shut_down(base);
	pthread_mutex_lock(&mutex);
	close(peer->fds[0]);
	close(peer->fds[1]);
	for (int i = 0; i < NAMES; i++)
		for (int j = names[i].waiting - 1; j >= 0; j--)
			if (names[i].queue[j].peer == peer)
				take_out(&names[i], j);
	for (int i = 0; i < NAMES; i++)
		if (names[i].holder.peer == peer)
			abort(); /* no test leaves a hold behind */
	pthread_mutex_unlock(&mutex);
	free(peer);
}

static int fd_of(const struct lk__peer *peer, enum lk__side side)
{
	return ((const struct peer *)peer)->fds[side];
}

static int64_t write_bytes(struct lk__peer *peer, enum lk__side side, const char *bytes, size_t len,
                           struct lk__why *why)
{
	const struct reply pong = {.event = {.kind = LK__EVENT_PONG}};
	struct wire wire;

	pthread_mutex_lock(&mutex);
	if (side == LK__MESSAGES)
		push((struct peer *)peer, side, &pong);
	for (size_t at = 0; side == LK__RESPONSES && at < len; at += sizeof(wire)) {
		memcpy(&wire, bytes + at, sizeof(wire));
		execute((struct peer *)peer, &wire);
	}
	pthread_mutex_unlock(&mutex);
	return (int64_t)len;
}

static int64_t read_bytes(struct lk__peer *peer, enum lk__side side, bool wait, struct lk__why *why)
{
	uint64_t count;

	if (((struct peer *)peer)->closed) {
		lk__why_set(why, LK_ECONN, "memory: closed");
		return -1;
	}
	return read(fd_of(peer, side), &count, sizeof(count)) > 0;
}

static bool append(struct lk__buf *buf, const void *bytes, size_t len)
{
	char *data = realloc(buf->data, buf->len + len);

	if (!data)
		return false;
	memcpy(data + buf->len, bytes, len);
	buf->data = data;
	buf->len += len;
	buf->cap = buf->len;
	return true;
}

static bool encode(struct lk__peer *peer, const struct lk__request *request, struct lk__buf *buf)
{
	struct wire wire = {.request = *request};

	memcpy(wire.name, request->name, request->name_len < 63 ? request->name_len : 63);
	return append(buf, &wire, sizeof(wire));
}

static bool ping(struct lk__peer *peer, struct lk__buf *buf)
{
	return append(buf, "p", 1);
}

static size_t parse(struct lk__peer *base, enum lk__side side, void **replies, size_t max,
                    lk_err *err, struct lk__why *why)
{
	struct peer *peer = (struct peer *)base;
	size_t count = 0;

	*err = LK_OK;
	pthread_mutex_lock(&mutex);
	for (; count < max && peer->count[side]; count++, peer->count[side]--) {
		struct reply *copy = malloc(sizeof(*copy));
		if (!copy)
			abort();
		*copy = peer->replies[side][peer->first[side]];
		peer->first[side] = (peer->first[side] + 1) % REPLIES;
		replies[count] = copy;
	}
	pthread_mutex_unlock(&mutex);
	return count;
}

static bool answer_of(struct lk__peer *peer, void *reply, const struct lk__request *question,
                      void *into, struct lk__answer *answer, struct lk__why *why)
{
	*answer = ((struct reply *)reply)->answer;
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

void memory_store_use(void)
{
	lk__store_use(&ops);
}
