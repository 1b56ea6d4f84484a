/* SPDX-License-Identifier: MIT
 * Clients of a lock in virtual time: the state machine of each, the model of the store, and a
 * simulated network between them.  No thread, no socket, no clock. */
#ifndef VIRTUAL_H
#define VIRTUAL_H

#include "model.h"

#define VIRT_CLIENTS 5
#define VIRT_INBOX 256
#define VIRT_MS INT64_C(1000000)
#define VIRT_EPOCH_US INT64_C(1700000000000000)

struct virt;

/* A pending request, with the content of its bytes. */
struct virt_call {
	struct lk__pending *request;
	struct model_request bytes;
	struct lk__answer answer;
};

struct virt_client {
	struct virt *virt;
	int id;
	struct lk__core core;
	struct lk__session session; /* its only link */
	bool subscribed;            /* the store counts it as a receiver */
	struct lk__message inbox[VIRT_INBOX];
	int inbox_count;
	struct lk__op *waiters[256]; /* freed at the end */
	int waiter_count;
};

struct virt {
	struct model model;
	int64_t now_ns;
	int client_count;
	struct virt_client clients[VIRT_CLIENTS];
};

/* Clients with links and subscriptions. */
void virt_init(struct virt *virt, int clients, uint64_t seed);
void virt_fini(struct virt *virt);
int64_t virt_now(const struct virt_client *client);
void virt_set_time(struct virt *virt, int64_t now_ns);

/* ---- Callers ------------------------------------------------------------------------------ */

struct lk__wait_queue *virt_open(struct virt_client *client, const char *name, int64_t lease_ms,
                                 bool fixed);
/* A waiter that has not called yet. */
struct lk__op *virt_waiter(struct virt_client *client, struct lk__wait_queue *queue,
                           uint64_t owner);
struct lk__op *virt_acquire(struct virt_client *client, struct lk__wait_queue *queue,
                            uint64_t owner);
struct lk__op *virt_try(struct virt_client *client, struct lk__wait_queue *queue, uint64_t owner);
struct lk__op *virt_release(struct virt_client *client, struct lk__wait_queue *queue,
                            uint64_t owner);
struct lk__op *virt_extend(struct virt_client *client, struct lk__wait_queue *queue, uint64_t owner,
                           int64_t lease_ms);
void virt_give_up(struct virt_client *client, struct lk__op *waiter, lk_err why);
void virt_abandon(struct virt_client *client, struct lk__op *waiter);
lk_state virt_state(const struct virt_client *client, const struct lk__wait_queue *queue,
                    uint64_t owner);
/* 0 = holds nothing. */
uint64_t virt_fence(const struct lk__wait_queue *queue, uint64_t owner);

/* ---- The network, step by step ------------------------------------------------------------ */

/* The next request, sent but not executed.  False if there is none. */
bool virt_take(struct virt_client *client, struct virt_call *call);
void virt_execute(struct virt_client *client, struct virt_call *call);
void virt_answer(struct virt_client *client, const struct virt_call *call);
/* Reply with a failure instead. */
void virt_refuse(struct virt_client *client, const struct virt_call *call, lk_err err, bool passes);
/* Deliver the oldest message.  False if there is none. */
bool virt_hear(struct virt_client *client);
void virt_forget(struct virt_client *client); /* the messages in flight */
void virt_link_down(struct virt_client *client, lk_err err);
void virt_link_up(struct virt_client *client);

/* ---- The network, whole ------------------------------------------------------------------- */

/* Send, execute, reply and deliver at this moment until nothing is pending. */
void virt_settle(struct virt *virt);
/* Let time pass; each event happens when it is due. */
void virt_pass(struct virt *virt, int64_t ms);

/* Assert that nothing is left: neither in a state machine nor, except the fence, in the store. */
bool virt_at_rest(const struct virt *virt);

#endif
