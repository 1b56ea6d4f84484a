/* SPDX-License-Identifier: MIT
 * Clients of a quorum in virtual time: the state machine of each, the real bytes of its requests,
 * the library's scripts on several Redis in memory, and a network of which the test takes every
 * step.  There is one such world. */
#ifndef VIRTUAL_QUORUM_H
#define VIRTUAL_QUORUM_H

#include "core/quorum.h"
#include "lua_store.h"
#include "redis/codec.h"

#define VQ_MS INT64_C(1000000)
#define VQ_SERVERS 5
#define VQ_CLIENTS 4
#define VQ_OPS 512
#define VQ_CALLS 64
#define VQ_MESSAGES 256
#define VQ_LEASE_MS 3000
#define VQ_LONGEST_MS 20000
#define VQ_TIMEOUT_MS 1000

/* A request that was sent. */
struct vq_call {
	struct lk__pending *request;
	struct lk__buf bytes, reply;
	bool executed;
};

/* The link of a client to a server. */
struct vq_link {
	struct lk__session session; /* first */
	struct vq_call calls[VQ_CALLS];
	int call_count;
	char messages[VQ_MESSAGES][200];
	int message_count;
	bool is_up;
};

struct vq_client {
	struct lk__core core;
	struct lk__space space;
	struct vq_link links[VQ_SERVERS];
	struct lk__wait_queue *queue; /* of the lock "name" */
	struct lk__op *ops[VQ_OPS];
	int op_count;
	bool is_stopped;
};

struct vq_server {
	struct lua_store *store;
	int64_t offset_us; /* of its clock */
	struct lk__buf
		late[VQ_CALLS]; /* requests of lost connections, which may still be executed */
	int late_count;
	bool is_down;
};

struct vq {
	int servers, clients;
	int64_t now_ns;
	struct vq_server server[VQ_SERVERS];
	struct vq_client client[VQ_CLIENTS];
	uint64_t fence;         /* of the latest hold */
	int runs[LK__PING + 1]; /* requests executed, by kind */
	int holds;              /* calls that acquired */
};
extern struct vq vq;

/* Servers of one set, whose longest lease is VQ_LONGEST_MS and of which none is young; clients with
 * links to all, and a handle of the lock "name". */
void vq_start(int servers, int clients);
/* The same, of servers that have no marks, and no links yet. */
void vq_start_unmarked(int servers, int clients);
/* Assert that nothing is left in the clients and, for the lock, on servers that are up. */
void vq_end(void);

struct lk__wait_queue *vq_open(int client, const char *name, int64_t lease_ms, bool fixed);

/* ---- Calls; ops are freed with the world -------------------------------------------------- */

struct lk__op *vq_op(int client, struct lk__wait_queue *queue);
struct lk__op *vq_acquire(int client);
struct lk__op *vq_acquire_of(int client, struct lk__wait_queue *queue, uint64_t owner);
struct lk__op *vq_try(int client);
struct lk__op *vq_release(int client);
struct lk__op *vq_release_of(int client, struct lk__wait_queue *queue, uint64_t owner);
struct lk__op *vq_extend(int client, int64_t lease_ms);
void vq_give_up(int client, struct lk__op *op, lk_err why);
lk_state vq_state(int client);
struct lk__hold *vq_hold(int client);
/* The call has ended so. */
void vq_done(const struct lk__op *op, lk_err err);
void vq_waits(const struct lk__op *op);
struct lk__ticket *vq_leg(int client, int server);

/* ---- Servers ------------------------------------------------------------------------------ */

int64_t vq_store_us(int server);
void vq_set_clock(int server, int64_t offset_us);
/* All its links are lost, and none is made again until vq_up(). */
void vq_down(int server);
void vq_up(int server);
/* A new process without keys; the links are lost, and come back. */
void vq_restart_empty(int server);
/* The value of the lock's key, and the number of its waiters. */
const char *vq_value(int server);
int vq_waiting(int server);

/* ---- The network, step by step ------------------------------------------------------------ */

/* The next request of the client is sent; the oldest one is executed; its reply arrives; the oldest
 * message arrives.  False if there is none. */
bool vq_send(int client, int server);
bool vq_execute(int client, int server);
bool vq_reply(int client, int server);
bool vq_hear(int client, int server);
/* Execute a request of a lost connection. */
bool vq_run_late(int server);
/* The link is lost: requests that were not executed are lost with it, unless they are late. */
void vq_cut(int client, int server, bool late);
void vq_join(int client, int server);
/* Drop a request's effect: the server answers the next request with that error. */
void vq_refuse(int client, int server, const char *error);

/* ---- The network, whole ------------------------------------------------------------------- */

/* Until nothing is pending at this moment. */
void vq_settle(void);
/* Let time pass; each event happens when it is due. */
void vq_pass(int64_t ms);
/* Assert that one client at most has a valid hold, and note the fences of new ones. */
void vq_check(void);
/* Set the time; timers do not run. */
void vq_set_time(int64_t now_ns);

#endif
