/* SPDX-License-Identifier: MIT
 * The scripts in src/redis/scripts in C, at a time that the caller passes: the store of the tests
 * of the state machine in virtual time.  Where script and model differ the
 * script is right; live tests run the script. */
#ifndef MODEL_H
#define MODEL_H

#include "core/core.h"

#define MODEL_NAMES 8
#define MODEL_QUEUE 32

struct model_ticket {
	int client;
	char nonce[LK__NONCE_SIZE];
	int64_t lease_ms;
	bool fixed;
};

struct model_waiter {
	struct model_ticket ticket;
	int64_t arrival;
};

struct model_lock {
	bool held;
	struct model_ticket owner;
	uint64_t fence;
	bool share;
	int64_t ends_ms;
	int64_t lease_ms;                       /* no lease expires later than this from now */
	struct model_waiter queue[MODEL_QUEUE]; /* by arrival */
	int queued;
	int64_t queue_ends_ms;
};

/* A request, parsed from its bytes, with its ticket's values at the time of sending. */
struct model_request {
	enum lk__request_kind kind;
	int name;
	struct model_ticket ticket; /* LK__HAND has none */
	bool wait, share;
	int64_t arrival;
	int64_t lease_ms;
	uint64_t fence, last_fence;
};

struct model {
	int64_t now_us;
	uint64_t fence;
	struct model_lock locks[MODEL_NAMES];
	/* The number of receivers. */
	int (*publish)(void *arg, int client, const struct lk__message *message);
	void *arg;
	int runs[LK__RENEW + 1]; /* requests by kind */
};

/* Run one script.  The reply has no text. */
void model_run(struct model *model, const struct model_request *request, struct lk__answer *answer);
/* lock_leave.lua for another client's hold. */
void model_break(struct model *model, int name);
void model_flush(struct model *model);
/* Remove expired keys. */
void model_expire(struct model *model);

#endif
