/* SPDX-License-Identifier: MIT
 * Clients of a semaphore in virtual time: the state machine of each, the real bytes of its
 * requests, the library's scripts on a Redis in memory, and a simulated network between them.  No
 * thread, no socket, no clock. */
#ifndef PERMITS_WORLD_H
#define PERMITS_WORLD_H

#include "core/core.h"
#include "lua_store.h"
#include "redis/codec.h"

#define PERMITS_CLIENTS 5
#define PERMITS_INBOX 256
#define PERMITS_MESSAGE_MAX 200
#define PERMITS_VIEW_MAX 128
#define PERMITS_MS INT64_C(1000000)
#define PERMITS_EPOCH_US INT64_C(1700000000000000)
#define PERMITS_TTL_MS 3600000 /* how long the keys of an idle semaphore are kept, by default */

struct permits_world;

/* A pending request: its bytes, and those of the reply after its execution. */
struct permits_call {
	struct lk__pending *request;
	struct lk__buf bytes, reply;
	uint8_t kind; /* enum lk__request_kind */
};

struct permits_message {
	int64_t at_ns; /* its arrival time */
	size_t len;
	char text[PERMITS_MESSAGE_MAX];
};

struct permits_client {
	struct permits_world *world;
	int id;
	struct lk__core core;
	struct lk__session session; /* its only link */
	struct lk__space space;
	bool subscribed; /* the store counts it as a receiver */
	struct permits_message inbox[PERMITS_INBOX];
	int inbox_count;
	struct lk__op *waiters[256]; /* freed at the end */
	int waiter_count;
};

struct permits_world {
	struct lua_store *store;
	int64_t now_ns;
	int64_t store_offset_us; /* the server's clock, less now_ns */
	int client_count;
	struct permits_client clients[PERMITS_CLIENTS];
	/* The latency of a message, NULL = none. */
	int64_t (*delay_ns)(struct permits_world *world);
};

/* Clients with links and subscriptions, on a server that has the scripts loaded. */
void permits_init(struct permits_world *world, int clients, uint64_t seed);
void permits_fini(struct permits_world *world);
int64_t permits_now(const struct permits_client *client);
void permits_set_time(struct permits_world *world, int64_t now_ns);
int64_t permits_store_us(const struct permits_world *world);

/* ---- Callers ------------------------------------------------------------------------------ */

struct lk__wait_queue *permits_open(struct permits_client *client, const char *name,
                                    uint32_t capacity, int64_t lease_ms, bool fixed);
/* A waiter that has not called yet; freed with the world. */
struct lk__op *permits_waiter(struct permits_client *client, struct lk__wait_queue *queue,
                              uint32_t permits);
struct lk__op *permits_acquire(struct permits_client *client, struct lk__wait_queue *queue,
                               uint32_t permits);
struct lk__op *permits_try(struct permits_client *client, struct lk__wait_queue *queue,
                           uint32_t permits);
/* Forget the permits: they cannot be released. */
struct lk__op *permits_forget(struct permits_client *client, struct lk__wait_queue *queue,
                              uint32_t permits);
/* Release all of a hold, or so many of its permits. */
struct lk__op *permits_release(struct permits_client *client, struct lk__wait_queue *queue,
                               uint64_t hold);
struct lk__op *permits_release_some(struct permits_client *client, struct lk__wait_queue *queue,
                                    uint64_t hold, uint32_t permits);
struct lk__op *permits_extend(struct permits_client *client, struct lk__wait_queue *queue,
                              uint64_t hold, int64_t lease_ms);
void permits_give_up(struct permits_client *client, struct lk__op *waiter, lk_err why);
void permits_abandon(struct permits_client *client, struct lk__op *waiter);
lk_state permits_state(const struct permits_client *client, const struct lk__wait_queue *queue,
                       uint64_t hold);
/* Permits in a hold, 0 if it is not held. */
uint32_t permits_count(const struct lk__wait_queue *queue, uint64_t hold);

/* ---- From outside ------------------------------------------------------------------------- */

/* The store's reply, formatted as by lua_store_text(); served until no more is to do. */
const char *permits_set(struct permits_world *world, const char *name, const char *how,
                        int64_t capacity);
void permits_resize(struct permits_world *world, const char *name, int64_t capacity);
void permits_break(struct permits_world *world, const char *name, const char *ticket);
/* One of a semaphore's keys: suffix "", ":q" or ":h". */
const char *permits_key(const char *name, const char *suffix);

/* The parts of a ticket. */
struct permits_ticket {
	char text[LK__TICKET_MAX];
	char nonce[LK__NONCE_SIZE];
	int client;
	int64_t lease_ms;
	bool fixed, final;
	uint32_t permits;
	/* Of a hold: its permits, fence and expiry. */
	uint32_t held;
	uint64_t fence;
	int64_t end_us;
};

/* The raw keys of a semaphore, including expired leases. */
struct permits_view {
	bool there;
	int64_t capacity, used;
	struct permits_ticket holds[PERMITS_VIEW_MAX];
	int hold_count;
	struct permits_ticket queue[PERMITS_VIEW_MAX];
	int queued;
};

void permits_look(struct permits_world *world, const char *name, struct permits_view *view);

/* ---- The network, step by step ------------------------------------------------------------ */

/* The next request, sent but not executed.  False if there is none. */
bool permits_take(struct permits_client *client, struct permits_call *call);
void permits_execute(struct permits_client *client, struct permits_call *call);
/* The call must not be used after this. */
void permits_answer(struct permits_client *client, struct permits_call *call);
/* Reply with a failure instead. */
void permits_refuse(struct permits_client *client, struct permits_call *call, const char *error);
void permits_call_fini(struct permits_call *call);
/* Deliver the oldest message.  False if none has arrived. */
bool permits_hear(struct permits_client *client);
void permits_link_down(struct permits_client *client, lk_err err);
void permits_link_up(struct permits_client *client);

/* ---- The network, whole ------------------------------------------------------------------- */

/* Send, execute, reply and deliver at this moment until nothing is pending. */
void permits_settle(struct permits_world *world);
/* Let time pass; each event happens when it is due. */
void permits_pass(struct permits_world *world, int64_t ms);
/* Assert that nothing is left in a state machine, and that there is no hold and no waiter. */
bool permits_nothing_left(struct permits_world *world, const char *name);

#endif
