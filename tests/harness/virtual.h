/* SPDX-License-Identifier: MIT
 * Clients in virtual time: the state machine of each, the real bytes of its requests, the library's
 * scripts on a Redis in memory, and a simulated network between them.  No thread, no socket, no
 * clock. */
#ifndef VIRTUAL_H
#define VIRTUAL_H

#include "core/core.h"
#include "lua_store.h"
#include "redis/codec.h"

#define VIRT_CLIENTS 5
#define VIRT_INBOX 256
#define VIRT_MESSAGE_MAX 200
#define VIRT_TOPICS 4
#define VIRT_TOPIC_MAX 64
#define VIRT_MS INT64_C(1000000)
#define VIRT_EPOCH_US INT64_C(1700000000000000)

struct virt;

/* A pending request: its bytes, and those of the reply after its execution. */
struct virt_call {
	struct lk__pending *request;
	struct lk__buf bytes, reply;
	uint8_t kind; /* enum lk__request_kind */
};

/* An item for a client on its messages connection. */
struct virt_message {
	enum {
		VIRT_MESSAGE,   /* to this client */
		VIRT_PUBLISHED, /* on a topic, as are the others */
		VIRT_SUBSCRIBED,
		VIRT_UNSUBSCRIBED
	} kind;
	int64_t at_ns; /* its arrival time */
	size_t len;
	char topic[VIRT_TOPIC_MAX];
	char text[VIRT_MESSAGE_MAX];
};

struct virt_client {
	struct virt *virt;
	int id;
	struct lk__core core;
	struct lk__session session; /* its only link */
	struct lk__space space;
	struct lk__wait_queue *queue;             /* its handle in a fixture */
	bool subscribed;                          /* the store counts it as a receiver */
	char topics[VIRT_TOPICS][VIRT_TOPIC_MAX]; /* which it receives, too */
	int topic_count;
	int subscribes, unsubscribes; /* executed */
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
	int runs[LK__PING + 1]; /* requests executed, by kind */
};

/* Clients with links and subscriptions, on a server that has the scripts loaded. */
void virt_init(struct virt *virt, int clients, uint64_t seed);
void virt_fini(struct virt *virt);
int64_t virt_now(const struct virt_client *client);
void virt_set_time(struct virt *virt, int64_t now_ns);
int64_t virt_store_us(const struct virt *virt);

/* ---- Callers ------------------------------------------------------------------------------ */

/* An op that has not called yet; freed with the world. */
struct lk__op *virt_waiter(struct virt_client *client, struct lk__wait_queue *queue);
void virt_give_up(struct virt_client *client, struct lk__op *waiter, lk_err why);
void virt_abandon(struct virt_client *client, struct lk__op *waiter);

/* ---- The network, step by step ------------------------------------------------------------ */

/* The next request, sent but not executed.  False if there is none. */
bool virt_take(struct virt_client *client, struct virt_call *call);
void virt_execute(struct virt_client *client, struct virt_call *call);
/* The call must not be used after this. */
void virt_answer(struct virt_client *client, struct virt_call *call);
/* Reply with these bytes instead; with an error. */
void virt_reply(struct virt_client *client, struct virt_call *call, const char *bytes);
void virt_refuse(struct virt_client *client, struct virt_call *call, const char *error);
void virt_call_fini(struct virt_call *call);
/* Execute the next SUBSCRIBE or UNSUBSCRIBE; its confirmation is a message.  False if there is
 * none. */
bool virt_command(struct virt_client *client);
/* The oldest message, which stays where it is; it must have arrived, and confirm nothing. */
struct lk__message virt_peek(const struct virt_client *client);
/* Deliver the oldest message.  False if none has arrived. */
bool virt_hear(struct virt_client *client);
void virt_link_down(struct virt_client *client, lk_err err);
void virt_link_up(struct virt_client *client);

/* ---- The network, whole ------------------------------------------------------------------- */

/* Send, execute, reply and deliver at this moment until nothing is pending. */
void virt_settle(struct virt *virt);
/* Let time pass; each event happens when it is due. */
void virt_pass(struct virt *virt, int64_t ms);

#endif
