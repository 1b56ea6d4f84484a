/* SPDX-License-Identifier: MIT
 * A call in progress: what it asks for, how long it may take, what came of it.  The core has its
 * deadline in a heap of its own: the thread of the call calls lk__core_tick() then, so that its end
 * depends on no other thread, and a background thread need not wake for it. */
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
	struct lk__timer timer; /* first: a due timer is its op; its present deadline */
	struct lk__op *next;
	struct lk__session *session; /* the link over which its requests go */
	/* To be called once the op is done and taken out: see lk__core_next_done(). */
	void (*on_done)(struct lk__op *op, void *arg);
	void *on_done_arg;
	struct lk__wait_queue *queue;
	void *handle;
	uint64_t owner;
	uint64_t thread;     /* acquire by a handle: the calling thread as an owner, else 0 */
	int64_t max_hold_ms; /* 0 = no limit */
	int64_t lease_ms;    /* extend */
	int64_t began_ns;
	int64_t until_ns; /* acquire, await: until when it waits, 0 = without limit */
	uint32_t permits; /* to acquire, to give back */
	bool only_try;
	bool acquires;
	bool was_queued;   /* behind another call of this process */
	bool forget;       /* the permits cannot be released; they expire with the lease */
	bool reports_loss; /* the handle has a loss callback */
	/* Brought along; taken when used, else the caller frees them. */
	struct lk__ticket *spare_ticket;
	struct lk__hold *spare_hold;
	struct lk__wait_queue *spare_queue; /* permits */
	struct lk__step *spare_step;        /* of a latch */
	/* Of a latch. */
	uint64_t joined, stamp;   /* see latch.c */
	uint64_t opened, removed; /* the last ones that it heard of */
	bool absent_is_open, late;
	/* Out. */
	uint64_t fence;            /* of the permits */
	struct lk__ticket *ticket; /* FOR_LEAVE, FOR_EXTEND */
	bool sent;                 /* FOR_EXTEND: its request went out */
	int64_t remaining;         /* FOR_STEP, and counted */
	bool counted;
	size_t unanswered; /* FOR_QUERY: of its queries */
	uint8_t awaits;    /* enum lk__op_awaits */
	bool done;
	struct lk__why why; /* the result, with its sentence */
};

/* ---- Between the core's files ---------------------------------------------------------------- */

/* A call begins: it has one command timeout; a wait what its caller says. */
void lk__op_begin(struct lk__core *core, int64_t now_ns, struct lk__op *op);
void lk__op_begin_wait(struct lk__core *core, int64_t now_ns, struct lk__op *op);
/* The op is done when the ticket's end is confirmed, with err unless the store says otherwise. */
void lk__op_await_leave(struct lk__ticket *ticket, struct lk__op *op, lk_err err);
/* The op is done: it has no deadline any more. */
void lk__complete(struct lk__core *core, struct lk__op *op, lk_err err, const char *text);
/* End what has reached its deadline. */
void lk__ops_tick(struct lk__core *core, int64_t now_ns);

#endif
