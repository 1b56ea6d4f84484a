/* SPDX-License-Identifier: MIT
 * A call in progress: its request, its deadline, its result.  The core keeps the deadlines in a
 * heap of their own: the thread of the call calls lk__core_tick() at its deadline, so that its end
 * depends on no other thread, and no background thread wakes for it. */
#ifndef LK__OP_H
#define LK__OP_H

#include "../base/error.h"
#include "heap.h"

struct lk__core;
struct lk__hold;
struct lk__wait_queue;
struct lk__session;
struct lk__step;
struct lk__ticket;

enum lk__op_awaits {
	LK__FOR_NOTHING,
	LK__FOR_GRANT,
	LK__FOR_LEAVE,
	LK__FOR_EXTEND,
	LK__FOR_OPEN, /* until the latch is open */
	LK__FOR_STEP,
	LK__FOR_QUERY,
};

struct lk__op {
	struct lk__timer timer; /* first: a due timer is its op; its current deadline */
	struct lk__op *next;
	struct lk__session *session; /* the link for its requests */
	/* Called once the op is done and dequeued: see lk__core_next_done(). */
	void (*on_done)(struct lk__op *op, void *arg);
	void *on_done_arg;
	struct lk__wait_queue *queue;
	void *handle;
	uint64_t owner;
	uint64_t thread;     /* acquire by a handle: the calling thread as an owner, else 0 */
	int64_t max_hold_ms; /* 0 = no limit */
	int64_t lease_ms;    /* extend */
	int64_t began_ns;
	int64_t until_ns; /* acquire, await: the end of the wait, 0 = no limit */
	uint32_t permits; /* to acquire or release */
	bool only_try;
	bool acquires;
	bool was_queued;   /* behind another call of this process */
	bool forget;       /* the permits cannot be released; they expire with the lease */
	bool reports_loss; /* the handle has a loss callback */
	bool met_grace;    /* its wait was too short for the rest of a grace */
	bool met_doubt;    /* ... for the sentinels' answers after a pause */
	/* Supplied by the caller; set to NULL when used, otherwise the caller frees them. */
	struct lk__ticket *spare_ticket;
	struct lk__hold *spare_hold;
	struct lk__legs *spare_legs;        /* of a quorum */
	struct lk__wait_queue *spare_queue; /* permits */
	struct lk__step *spare_step;        /* of a latch */
	/* Of a latch. */
	uint64_t joined, stamp;   /* see latch.c */
	uint64_t opened, removed; /* the last ones that it knows of */
	bool absent_is_open, late;
	/* Out. */
	uint64_t fence;            /* of the grant */
	uint8_t lost;              /* LK_ELOST: lk_lost_reason */
	struct lk__ticket *ticket; /* FOR_LEAVE, FOR_EXTEND */
	bool sent;                 /* FOR_EXTEND: its request was sent */
	bool may_be_extended;      /* FOR_EXTEND: a request got no response */
	int64_t remaining;         /* FOR_STEP, and counted */
	bool counted;
	size_t unanswered; /* FOR_QUERY: of its queries */
	bool collects;     /* FOR_QUERY: a failed query does not end it; each has its error */
	uint8_t awaits;    /* enum lk__op_awaits */
	bool done;
	struct lk__why why; /* the result, with its text */
};

/* ---- Between the core's files ---------------------------------------------------------------- */

/* Begin a call: it has one command timeout; a wait has the time that its caller allows. */
void lk__op_begin(struct lk__core *core, int64_t now_ns, struct lk__op *op);
void lk__op_begin_wait(struct lk__core *core, int64_t now_ns, struct lk__op *op);
/* Why a wait was too short. */
const char *lk__timed_out_text(const struct lk__op *op);
/* Complete the op when the ticket's end is confirmed, with err unless the store reports a loss. */
void lk__op_await_leave(struct lk__ticket *ticket, struct lk__op *op, lk_err err);
/* Complete the op: it has no deadline any more. */
void lk__complete(struct lk__core *core, struct lk__op *op, lk_err err, const char *text);
/* Complete the op with LK_ELOST. */
void lk__complete_lost(struct lk__core *core, struct lk__op *op, uint8_t reason);
/* End the ops that have reached their deadline. */
void lk__ops_tick(struct lk__core *core, int64_t now_ns);

#endif
