/* SPDX-License-Identifier: MIT
 * Each promise of the library, once: an id, a sentence, and a function that says whether it was
 * kept.  The proofs (simulator, model, fuzzer, chaos judge) build what the function reads from
 * their own worlds, choose the moment, and leave out what a fault excuses.
 *
 *   promises.def the table: ids, sentences, and which proof checks what
 *   core.c       of one client's state machine, whatever a store replies
 *   holds.c      of holds: exclusion, permits, rates, fences
 *   store.c      of a name in the store, before and after a script
 *   results.c    of the results of calls, and of latches
 *
 * A function promise_<id>() returns NULL, or what is wrong: a text that the next call may
 * overwrite.  tests/unit_promises.c compares the table with the proofs' sources. */
#ifndef PROMISES_H
#define PROMISES_H

#include "core/core.h"
#include "redis/codec.h"
#include "store_view.h"

enum promise {
#define PROMISE(name, ...) PROMISE_##name,
#include "promises.def"
#undef PROMISE
	PROMISES
};

enum promise_proof { PROOF_SIM, PROOF_MODEL, PROOF_FUZZ, PROOF_CHAOS, PROOFS };

struct promise_row {
	const char *id, *sentence;
	/* Why this proof, whose folder is tests/<name>, does not check it; NULL = it does. */
	const char *unchecked[PROOFS];
};

extern const struct promise_row promise_table[PROMISES];
extern const char *const promise_proofs[PROOFS];

/* "id (sentence): wrong", in memory of its own for each promise; NULL if nothing is wrong. */
const char *promise_broken(enum promise promise, const char *wrong);

/* ---- One client's state machine (core.c) ---------------------------------------------------- */

/* Each ticket, wait and step has a pending request or a timer. */
const char *promise_progress(const struct lk__core *core);
/* Tickets, holds and latches refer to each other as they must. */
const char *promise_state(const struct lk__core *core);
/* Of a call that has not ended. */
const char *promise_state_call(const struct lk__op *op);
/* A call that must have ended by due_ns has not. */
const char *promise_deadline(int64_t due_ns, int64_t now_ns);
/* told: the fence of the last loss that was reported to the hold's owner; NULL = it has not asked
 * yet. */
const char *promise_loss(const struct lk__core *core, const struct lk__hold *hold,
                         const uint64_t *told);
/* lapsed: memory of the hold's owner, 0 at first. */
const char *promise_revival(const struct lk__hold *hold, int64_t now_ns, uint64_t *lapsed);
/* Nothing is left in a client whose calls have all ended. */
const char *promise_rest(const struct lk__core *core);
const char *promise_rest_queue(const struct lk__wait_queue *queue);

#define PROMISE_LEAVES 64

/* The tickets whose leave was sent, the last ones. */
struct promise_leaves {
	char nonces[PROMISE_LEAVES][LK__NONCE_SIZE];
	int count;
};

/* The client sends this request now. */
const char *promise_zombie(struct promise_leaves *leaves, const struct lk__pending *request);

/* ---- Holds (holds.c) ------------------------------------------------------------------------- */

/* Permits that are valid from one moment until another one, the hold of a lock being one permit. */
struct promise_use {
	int64_t from, to;
	int64_t permits;
};

/* The permits that are valid at that moment. */
int64_t promise_used(const struct promise_use *uses, size_t count, int64_t at);
const char *promise_exclusion(int64_t used);
const char *promise_permits(int64_t used, int64_t capacity);
const char *promise_rate(int64_t used, int64_t capacity);
/* last: the largest fence that was issued before. */
const char *promise_fence(uint64_t last, uint64_t fence);
/* Hand-overs in a row, while the holder's process knows that another one waits. */
const char *promise_hand_overs(int64_t in_a_row);
/* now_ns: what must have been granted, or known, by due_ns is not. */
const char *promise_wake_up(int64_t due_ns, int64_t now_ns);
/* The hold of an acquisition that succeeds now, NULL = there is none. */
const char *promise_grant(const struct lk__hold *hold, int64_t now_ns, uint32_t count);
/* kept: by the store; until: on one clock, in microseconds. */
const char *promise_validity(bool kept, int64_t kept_until, int64_t believed_until);

/* ---- A name in the store (store.c) ----------------------------------------------------------- */

struct promise_waiter {
	const char *ticket;
	int64_t arrival;
	bool waits; /* it is still in the queue, or alive and neither granted nor leaving */
};

/* A ticket is granted; arrival: its own, INT64_MAX = it was not in the queue. */
const char *promise_fifo(const struct promise_waiter *queue, size_t count, const char *ticket,
                         int64_t arrival);

/* A script ran, or an operator changed the name. */
struct promise_run {
	const struct store_view *before, *after;
	int kind;           /* enum lk__request_kind, -1 = from outside */
	const char *ticket; /* its own, "" = none */
	int64_t arrival_us; /* an ask brought that queue position, 0 = none */
	uint32_t permits;   /* LK__SHRINK: the rest */
	int64_t now_us;
	const struct lk__answer *answer;
	bool in_grace; /* the server grants nothing new */
	uint64_t mark; /* of its memory */
};

/* Its own ticket is in the queue where it belongs. */
const char *promise_fifo_place(const struct promise_run *run);
/* was: a hold that it removed. */
const char *promise_owner(const struct promise_run *run, const struct store_ticket *was);
/* A hold, before and after. */
const char *promise_lease(const struct store_ticket *was, const struct store_ticket *is,
                          int64_t now_us);
/* Of a semaphore: its counter is the sum of its holds, and each of them is whole. */
const char *promise_permits_kept(const struct store_view *view);
/* Holds grow only when they are granted, and within the capacity. */
const char *promise_permits_moved(const struct promise_run *run);
/* Of a semaphore: the head of the queue does not fit, or there is more to do. */
const char *promise_served(const struct promise_run *run);

/* ---- Results of calls, and latches (results.c) ----------------------------------------------- */

/* The reply to a script that the server knows. */
const char *promise_script(const struct lk__resp *reply);
/* A step is counted now; times: how often it was before. */
const char *promise_step(int64_t times);
/* What may have happened to a call: the causes of its possible results. */
struct promise_causes {
	bool success;        /* the store, or the client, is certain of it */
	bool loss;           /* of the hold */
	bool silence;        /* its request was sent and its reply is missing */
	bool unsent;         /* there was no link for it */
	bool refusal;        /* the server refused a request */
	bool close;          /* of its client */
	bool shortage;       /* too few replicas confirmed it */
	bool busy, limit;    /* it is a try; it wants more than there may be */
	bool absence, other; /* there is no latch; the keys are of another kind */
	lk_err gave_up;      /* its wait timed out, or was cancelled; LK_OK = neither */
};

const char *promise_result(const struct promise_causes *causes, lk_err err);
/* The op is done now; pending: it was not before. */
const char *promise_result_once(const struct lk__op *op, bool pending);
/* The result of a step, which was counted so many times. */
const char *promise_result_step(lk_err err, bool reported, int64_t times);
/* last: the last generation that was reported open. */
const char *promise_opening(uint64_t last, uint64_t generation);
/* The result of a wait for a latch, which was open, or not, during the wait. */
const char *promise_await(lk_err err, bool was_open);

#endif
