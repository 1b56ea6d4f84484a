/* SPDX-License-Identifier: MIT
 * Clients of a lock in virtual time: the state machine of each, the model of the store, and a
 * simulated network between them.  No thread, no socket, no clock. */
#ifndef OLD_VIRTUAL_H
#define OLD_VIRTUAL_H

#include "model.h"

#define OLD_VIRT_CLIENTS 5
#define OLD_VIRT_INBOX 256
#define OLD_VIRT_MS INT64_C(1000000)
#define OLD_VIRT_EPOCH_US INT64_C(1700000000000000)

struct old_virt;

/* A pending request, with the content of its bytes. */
struct old_virt_call {
	struct lk__pending *request;
	struct model_request bytes;
	struct lk__answer answer;
};

struct old_virt_client {
	struct old_virt *virt;
	int id;
	struct lk__core core;
	struct lk__session session; /* its only link */
	bool subscribed;            /* the store counts it as a receiver */
	struct lk__message inbox[OLD_VIRT_INBOX];
	int inbox_count;
	struct lk__op *waiters[256]; /* freed at the end */
	int waiter_count;
};

struct old_virt {
	struct model model;
	int64_t now_ns;
	int client_count;
	struct old_virt_client clients[OLD_VIRT_CLIENTS];
};

/* Clients with links and subscriptions. */
void old_virt_init(struct old_virt *virt, int clients, uint64_t seed);
void old_virt_fini(struct old_virt *virt);
int64_t old_virt_now(const struct old_virt_client *client);
void old_virt_set_time(struct old_virt *virt, int64_t now_ns);

/* ---- Callers ------------------------------------------------------------------------------ */

struct lk__wait_queue *old_virt_open(struct old_virt_client *client, const char *name,
                                     int64_t lease_ms, bool fixed);
/* A waiter that has not called yet. */
struct lk__op *old_virt_waiter(struct old_virt_client *client, struct lk__wait_queue *queue,
                               uint64_t owner);
struct lk__op *old_virt_acquire(struct old_virt_client *client, struct lk__wait_queue *queue,
                                uint64_t owner);
struct lk__op *old_virt_try(struct old_virt_client *client, struct lk__wait_queue *queue,
                            uint64_t owner);
struct lk__op *old_virt_release(struct old_virt_client *client, struct lk__wait_queue *queue,
                                uint64_t owner);
struct lk__op *old_virt_extend(struct old_virt_client *client, struct lk__wait_queue *queue,
                               uint64_t owner, int64_t lease_ms);
void old_virt_give_up(struct old_virt_client *client, struct lk__op *waiter, lk_err why);
void old_virt_abandon(struct old_virt_client *client, struct lk__op *waiter);
lk_state old_virt_state(const struct old_virt_client *client, const struct lk__wait_queue *queue,
                        uint64_t owner);
/* 0 = holds nothing. */
uint64_t old_virt_fence(const struct lk__wait_queue *queue, uint64_t owner);

/* ---- The network, step by step ------------------------------------------------------------ */

/* The next request, sent but not executed.  False if there is none. */
bool old_virt_take(struct old_virt_client *client, struct old_virt_call *call);
void old_virt_execute(struct old_virt_client *client, struct old_virt_call *call);
void old_virt_answer(struct old_virt_client *client, const struct old_virt_call *call);
/* Reply with a failure instead. */
void old_virt_refuse(struct old_virt_client *client, const struct old_virt_call *call, lk_err err,
                     bool passes);
/* Deliver the oldest message.  False if there is none. */
bool old_virt_hear(struct old_virt_client *client);
void old_virt_forget(struct old_virt_client *client); /* the messages in flight */
void old_virt_link_down(struct old_virt_client *client, lk_err err);
void old_virt_link_up(struct old_virt_client *client);

/* ---- The network, whole ------------------------------------------------------------------- */

/* Send, execute, reply and deliver at this moment until nothing is pending. */
void old_virt_settle(struct old_virt *virt);
/* Let time pass; each event happens when it is due. */
void old_virt_pass(struct old_virt *virt, int64_t ms);

/* Assert that nothing is left: neither in a state machine nor, except the fence, in the store. */
bool old_virt_at_rest(const struct old_virt *virt);

#endif
