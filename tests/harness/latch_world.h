/* SPDX-License-Identifier: MIT
 * One latch, its store and its clients in virtual time.  The store does the same as the scripts
 * src/redis/scripts/latch_*.lua, and records how often it counted each step.  Where the two differ
 * the scripts are right; live tests run them. */
#ifndef LATCH_WORLD_H
#define LATCH_WORLD_H

#include "core/latch.h"

#define WORLD_MS INT64_C(1000000)
#define WORLD_CLIENTS 4
#define WORLD_STEPS 4096 /* of a client, in a run */
#define WORLD_NAMES 8
#define WORLD_INBOX 256
#define WORLD_WAITERS 2048 /* calls in a run without one_by_one */

/* An item for a client on its messages connection. */
struct world_item {
	enum {
		WORLD_SUBSCRIBED,
		WORLD_UNSUBSCRIBED,
		WORLD_PUT_OFF,
		WORLD_OPENED,
		WORLD_REMOVED
	} kind;
	uint64_t generation;
};

/* A request, parsed from its bytes. */
struct world_call {
	struct lk__pending *request;
	enum lk__request_kind kind;
	uint64_t generation, number;
	int64_t n;
	int name; /* of the step, 0 = none */
	struct lk__answer answer;
};

struct world_client {
	struct world *world;
	int id;
	struct lk__core core;
	struct lk__session session;   /* its only link */
	struct lk__wait_queue *queue; /* of the handle */
	bool subscribed;
	struct world_item inbox[WORLD_INBOX];
	int inbox_count;
	uint64_t last; /* the store's: the number of the client's last counted step */
	int subscribes, unsubscribes, looks, steps; /* seen by the store */
	uint8_t counted[WORLD_STEPS];               /* how often each step counted, by its number */
};

struct world {
	int64_t now_ns;
	struct world_client clients[WORLD_CLIENTS];
	int client_count;
	/* The store. */
	uint64_t fence, generation, opened, removed;
	int64_t count;   /* of the latch, if generation */
	int64_t ends_ns; /* when it expires, or LK__NEVER */
	int64_t open_ttl_ms;
	bool named[WORLD_NAMES];
	int published;                         /* how often it opened */
	struct lk__op *waiters[WORLD_WAITERS]; /* freed by world_fini() */
	int waiter_count;
	bool busy; /* the store puts off the commands on the messages connection */
};

void world_init(struct world *world, int clients);
void world_fini(struct world *world);
/* A handle on the latch; each client has one from the start.  lk__place_close() closes it. */
void world_open(struct world_client *client);
/* Let time pass; the store removes expired keys. */
void world_later(struct world *world, int64_t ms);

/* The store's part of requests that are sent once.  False if the step was counted before. */
bool world_set(struct world *world, int64_t count, bool anew);
bool world_remove(struct world *world);
/* Remove all data of the store. */
void world_flush(struct world *world);

struct lk__op *world_await(struct world_client *client, bool only_try, bool absent_is_open);
struct lk__op *world_step(struct world_client *client, int64_t n, int name);

/* The network, step by step. take: false if there is no request. */
bool world_take(struct world_client *client, struct world_call *call);
void world_execute(struct world_client *client, struct world_call *call);
void world_answer(struct world_client *client, const struct world_call *call);
void world_refuse(struct world_client *client, const struct world_call *call, lk_err err,
                  bool passes);
/* Execute the next command of the messages connection; false if there is none. */
bool world_command(struct world_client *client);
/* Deliver the next item to the client; false if there is none. */
bool world_hear(struct world_client *client);
void world_link_down(struct world_client *client);
void world_link_up(struct world_client *client);
void world_tick(struct world_client *client);
/* Deliver everything until nothing is pending. */
void world_settle(struct world *world);
/* The same while time passes. */
void world_pass(struct world *world, int64_t ms);
bool world_idle(const struct world *world);

#endif
