/* SPDX-License-Identifier: MIT
 * Clients of etcd in virtual time: the state machines of each, the real bytes of its calls, and the
 * model of etcd.  There is one such world. */
#ifndef VIRTUAL_ETCD_H
#define VIRTUAL_ETCD_H

#include "core/core.h"
#include "etcd/session.h"
#include "etcd_model.h"

#define VE_MS INT64_C(1000000)
#define VE_CLIENTS 8
#define VE_OPS 256
#define VE_CALLS 256
#define VE_LEASE_MS 6000
#define VE_TIMEOUT_MS 5000

/* A call that the session has made. */
struct ve_call {
	uint32_t id;
	enum lk__etcd_method method;
	uint64_t call; /* of the model */
	int64_t sent_ns;
};

struct ve_client {
	struct lk__core core;
	struct lk__session link;
	struct lk__etcd_session session;
	char id[LK__CLIENT_ID_SIZE];
	int member;
	uint64_t connection, watch; /* 0 = none */
	struct ve_call calls[VE_CALLS];
	int call_count;
	struct lk__pending *sent[VE_CALLS]; /* requests without an answer, in order */
	int sent_count;
	struct lk__wait_queue *queue; /* of the lock "name" */
	struct lk__op *ops[VE_OPS];
	int op_count;
	bool is_stopped; /* it does nothing, and knows of nothing */
};

struct ve {
	struct etcd_model *model;
	int clients;
	int64_t now_ns;
	uint64_t owner; /* of the next ops: a thread of their client */
	struct ve_client client[VE_CLIENTS];
	uint64_t fence;                          /* of the latest hold */
	int calls[LK__ETCD_CALL_KEEP_ALIVE + 1]; /* made, by method */
	int holds;                               /* that began */
	void (*also)(void);                      /* checks more whenever holds are checked */
	bool holds_back;                         /* the next answer to a transaction */
	struct em_output late;                   /* which was held back */
	char late_bytes[8192];
};
extern struct ve ve;

/* Clients of member 0, all connected, with a handle of the lock "name". */
void ve_start(const struct em_setup *setup, int clients);
/* Assert that nothing is left in the clients and the store, but leases that end by themselves. */
void ve_end(void);
struct lk__wait_queue *ve_open(int client, const char *name, int64_t lease_ms, bool fixed);

/* Calls; ops are freed with the world. */
struct lk__op *ve_new_op(int client, struct lk__wait_queue *queue);
struct lk__op *ve_acquire(int client);
struct lk__op *ve_acquire_of(int client, struct lk__wait_queue *queue, bool tries);
struct lk__op *ve_try(int client);
struct lk__op *ve_release(int client);
struct lk__op *ve_release_of(int client, struct lk__wait_queue *queue);
struct lk__op *ve_extend(int client, int64_t lease_ms);
/* A handle of the semaphore "name", and calls on it.  hold: the fence of one. */
struct lk__wait_queue *ve_open_permits(int client, uint32_t capacity, int64_t lease_ms, bool fixed);
struct lk__op *ve_acquire_permits(int client, struct lk__wait_queue *queue, uint32_t permits,
                                  bool tries);
struct lk__op *ve_release_permits(int client, struct lk__wait_queue *queue, uint64_t hold,
                                  uint32_t permits);
struct lk__op *ve_extend_permits(int client, struct lk__wait_queue *queue, uint64_t hold,
                                 int64_t lease_ms);
/* How many a client holds, by its own clock. */
int64_t ve_permits(int client);
void ve_give_up(int client, struct lk__op *op, lk_err why);
lk_state ve_state(int client);
void ve_done(const struct lk__op *op, lk_err err);
void ve_waits(const struct lk__op *op);
/* Acquire at once, or release, and expect LK_OK. */
void ve_holds(int client);
void ve_releases(int client);
/* Acquire what another client holds. */
void ve_begin_waiting(int client, struct lk__op **op);

/* The connection ends, or another one is made. */
void ve_cut(int client);
void ve_join(int client, int member);

/* Hold the next answer to a transaction back, and let it go. */
void ve_hold_back(void);
void ve_let_go(void);

/* Until nothing is pending at this moment. */
void ve_settle(void);
/* Let time pass; each event happens when it is due. */
void ve_pass(int64_t ms);
/* What another program does, over a connection of its own to member 0. */
void ve_put(const char *key, const char *value);
void ve_delete(const char *key);
void ve_revoke(int64_t lease);
/* How many tickets the lock "name" has, or the semaphore of that name. */
int ve_tickets(void);
int ve_permit_tickets(void);
/* How many keys there are. */
int ve_keys(void);

#endif
