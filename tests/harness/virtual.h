/* SPDX-License-Identifier: MIT
 * Clients in virtual time: the state machine of each, the real bytes of its
 * requests, the library's scripts on a Redis in memory, and a simulated network between them.  No
 * thread, no socket, no clock. */
#ifndef VIRTUAL_H
#define VIRTUAL_H

#include "core/core.h"
#include "lua_store.h"
#include "redis/codec.h"

#define VIRT_CLIENTS 5
#define VIRT_INBOX 256
#define VIRT_MESSAGE_MAX 200
#define PERMITS_VIEW_MAX 128
#define VIRT_MS INT64_C(1000000)
#define VIRT_EPOCH_US INT64_C(1700000000000000)
#define PERMITS_TTL_MS 3600000 /* how long the keys of an idle semaphore are kept, by default */

struct virt;

/* A pending request: its bytes, and those of the reply after its execution. */
struct virt_call {
	struct lk__pending *request;
	struct lk__buf bytes, reply;
	uint8_t kind; /* enum lk__request_kind */
};

struct virt_message {
	int64_t at_ns; /* its arrival time */
	size_t len;
	char text[VIRT_MESSAGE_MAX];
};

struct virt_client {
	struct virt *virt;
	int id;
	struct lk__core core;
	struct lk__session session; /* its only link */
	struct lk__space space;
	bool subscribed; /* the store counts it as a receiver */
	struct virt_message inbox[VIRT_INBOX];
	int inbox_count;
	struct lk__op *waiters[256]; /* freed at the end */
	int waiter_count;
};

struct virt {
	struct lua_store *store;
	int64_t now_ns;
	int64_t store_offset_us; /* the server's clock, less now_ns */
	int client_count;
	struct virt_client clients[VIRT_CLIENTS];
	/* The latency of a message, NULL = none. */
	int64_t (*delay_ns)(struct virt *virt);
};

/* Clients with links and subscriptions, on a server that has the scripts loaded. */
void virt_init(struct virt *virt, int clients, uint64_t seed);
void virt_fini(struct virt *virt);
int64_t virt_now(const struct virt_client *client);
void virt_set_time(struct virt *virt, int64_t now_ns);
int64_t virt_store_us(const struct virt *virt);

/* ---- Callers ------------------------------------------------------------------------------ */

struct lk__wait_queue *virt_open_semaphore(struct virt_client *client, const char *name,
                                           uint32_t capacity, int64_t lease_ms, bool fixed);
/* A waiter that has not called yet; freed with the world. */
struct lk__op *virt_waiter(struct virt_client *client, struct lk__wait_queue *queue);
struct lk__op *virt_permits_waiter(struct virt_client *client, struct lk__wait_queue *queue,
                                   uint32_t permits);
struct lk__op *virt_acquire_permits(struct virt_client *client, struct lk__wait_queue *queue,
                                    uint32_t permits);
struct lk__op *virt_try_permits(struct virt_client *client, struct lk__wait_queue *queue,
                                uint32_t permits);
/* Forget the permits: they cannot be released. */
struct lk__op *virt_forget_permits(struct virt_client *client, struct lk__wait_queue *queue,
                                   uint32_t permits);
/* Release all of a hold, or so many of its permits. */
struct lk__op *virt_release_permits(struct virt_client *client, struct lk__wait_queue *queue,
                                    uint64_t hold);
struct lk__op *virt_release_some(struct virt_client *client, struct lk__wait_queue *queue,
                                 uint64_t hold, uint32_t permits);
struct lk__op *virt_extend_hold(struct virt_client *client, struct lk__wait_queue *queue,
                                uint64_t hold, int64_t lease_ms);
void virt_give_up(struct virt_client *client, struct lk__op *waiter, lk_err why);
void virt_abandon(struct virt_client *client, struct lk__op *waiter);
lk_state virt_hold_state(const struct virt_client *client, const struct lk__wait_queue *queue,
                         uint64_t hold);
/* Permits in a hold, 0 if it is not held. */
uint32_t virt_hold_permits(const struct lk__wait_queue *queue, uint64_t hold);

/* ---- From outside ------------------------------------------------------------------------- */

/* The store's reply, formatted as by lua_store_text(); served until no more is to do. */
const char *permits_set(struct virt *virt, const char *name, const char *how, int64_t capacity);
void permits_resize(struct virt *virt, const char *name, int64_t capacity);
void permits_break(struct virt *virt, const char *name, const char *ticket);
/* One of a semaphore's keys: suffix "", ":q" or ":h". */
const char *virt_key(const char *name, const char *suffix);

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

void permits_look(struct virt *virt, const char *name, struct permits_view *view);

/* ---- The network, step by step ------------------------------------------------------------ */

/* The next request, sent but not executed.  False if there is none. */
bool virt_take(struct virt_client *client, struct virt_call *call);
void virt_execute(struct virt_client *client, struct virt_call *call);
/* The call must not be used after this. */
void virt_answer(struct virt_client *client, struct virt_call *call);
/* Reply with a failure instead. */
void virt_refuse(struct virt_client *client, struct virt_call *call, const char *error);
void virt_call_fini(struct virt_call *call);
/* Deliver the oldest message.  False if none has arrived. */
bool virt_hear(struct virt_client *client);
void virt_link_down(struct virt_client *client, lk_err err);
void virt_link_up(struct virt_client *client);

/* ---- The network, whole ------------------------------------------------------------------- */

/* Send, execute, reply and deliver at this moment until nothing is pending. */
void virt_settle(struct virt *virt);
/* Let time pass; each event happens when it is due. */
void virt_pass(struct virt *virt, int64_t ms);
/* Assert that nothing is left in a state machine, and that there is no hold and no waiter. */
bool virt_nothing_left(struct virt *virt, const char *name);

#endif
