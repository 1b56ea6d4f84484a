/* SPDX-License-Identifier: MIT
 * The lock protocol as a model: a store, a few clients, what is under way between them, and a
 * clock that ticks for all.  lock_steps.c and lock_server.c have what may happen next, after
 * src/core/ and src/redis/scripts/lock_*.lua; lock_state.c brings a state into its one form.
 *
 * Time is what is left: every moment that matters is a lease from the sending of some request, so
 * it is kept as ticks to go, and a tick takes one from each.  A client that does not act while
 * ticks pass is a paused one.  Whatever the code does at some time of its own choice (asking again,
 * renewing, claiming late) the model does at any time; whether the store takes a ticket for old,
 * and where in the queue a forgotten one returns to, is open, too.  So every run of the code is one
 * of the model's, and not the other way round. */
#ifndef LOCK_MODEL_H
#define LOCK_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_CLIENTS 3
#define MODEL_NONCES 4 /* of one client, known to anybody at one time */
#define MODEL_ENTRIES 5
#define MODEL_LATE 2
#define MODEL_NOTES 2
#define MODEL_QUEUE 6
#define MODEL_LEAVING 2
#define MODEL_FENCES 16
#define MODEL_WIDTH 56 /* bytes of a packed state */
#define MODEL_ANY 7    /* drops: no limit */

struct lock_bounds {
	const char *name;
	uint8_t clients, lease, claim_life; /* ticks */
	uint8_t extension;                  /* ticks, 0 = nobody extends */
	uint8_t waits;                      /* that a client begins, 0 = no limit */
	uint8_t drops;                      /* of connections, by all, MODEL_ANY = no limit */
	uint8_t crashes;
	uint8_t late;    /* requests of a dropped connection that are executed later, a client */
	uint8_t notes;   /* messages on their way to a client */
	uint8_t overlap; /* tickets on their way out when the next wait begins */
	bool cancels;
	bool alike; /* clients may be exchanged for each other */
};

/* One rule left out, or another one in its place. */
enum lock_rule {
	RULES_ALL,
	VALID_FROM_LAST_QUEUED,
	GRANTED_REVIVES,
	FENCE_OF_MESSAGE,
	RELEASE_STAYS_QUEUED,
	LATE_ANSWER_HOLDS,
	HAND_UNCHECKED,
	HAND_FORGETS_TIMER,
	ASK_CUTS_EXTENSION,
	RENEWAL_SHORTENS,
	LATE_AS_IT_IS,        /* all rules; promises alone are checked */
	STORE_NEVER_SHORTENS, /* a remedy */
};

enum model_kind { ASK, HAND, LEAVE, RENEW };
enum model_answer { UNANSWERED, GRANTED, QUEUED, QUEUED_FREE, KEPT, GONE, LEFT };
enum model_ticket { NOTHING, WAITING, CLAIMING, HOLDING }; /* WAITING: or asking, no difference */

struct model_entry {
	uint8_t kind, nonce, answer;
	uint8_t fence; /* asked for, then answered */
	uint8_t flag;  /* ASK: arrival known; RENEW: an extension; LEAVE: a release */
};

struct model_note {
	uint8_t nonce, fence, claim;
};

struct model_leaver {
	uint8_t nonce;
	uint8_t again; /* the wait goes on with a new ticket */
};

struct model_client {
	uint8_t alive, linked, heard; /* heard: the server counts it as a receiver */
	uint8_t begun;                /* waits */
	/* The place's ticket. */
	uint8_t ticket, nonce;
	uint8_t first, sent, valid; /* ticks left of a lease from then; of the hold */
	uint8_t fence;
	uint8_t handing, known, due,
		armed; /* known: arrival; due: next_ns set; armed: a timer for it */
	uint8_t leavers, entries, late, notes;
	struct model_leaver leaver[MODEL_LEAVING];
	struct model_entry entry[MODEL_ENTRIES]; /* sent, not answered or answer not read */
	struct model_entry later[MODEL_LATE];    /* of a dropped connection */
	struct model_note note[MODEL_NOTES];     /* grants by message */
};

struct model_ref {
	uint8_t client, nonce;
};

struct lock_state {
	struct model_client client[MODEL_CLIENTS];
	uint8_t held, fence, left; /* the lock, its fence, ticks until it ends */
	struct model_ref owner;
	uint8_t last; /* fence given */
	uint8_t seen; /* highest fence of a valid hold */
	uint8_t drops, queued;
	struct model_ref queue[MODEL_QUEUE];
	const char *wrong; /* what the step into it did, not part of the state */
};

enum lock_step {
	STEP_START,
	STEP_ASK,
	STEP_HAND,
	STEP_CLAIM,
	STEP_RENEW,
	STEP_EXTEND,
	STEP_RELEASE,
	STEP_CANCEL,
	STEP_LEAVE,
	STEP_EXECUTE,
	STEP_EXECUTE_LATE,
	STEP_FORGET_LATE,
	STEP_ANSWER,
	STEP_MESSAGE,
	STEP_DROP,
	STEP_LINK,
	STEP_UNHEARD,
	STEP_CRASH,
	STEP_TICK,
};

const char *lock_step_name(enum lock_step step);

struct lock_model {
	const struct lock_bounds *bounds;
	enum lock_rule rule;
	uint64_t pruned; /* steps that the fixed sizes above had no room for */
	void (*found)(struct lock_model *model, struct lock_state *state, enum lock_step step,
	              int client);
	void *arg;
};

/* found() for every state one step away; it may change the state it is given. */
void lock_model_steps(struct lock_model *model, const struct lock_state *state);

/* Forget what has no effect any more, number fences and nonces anew. */
void lock_state_number(struct lock_state *state, const struct lock_bounds *bounds,
                       enum lock_rule rule);
void lock_state_pack(const struct lock_state *state, const struct lock_bounds *bounds,
                     uint8_t *bytes);
void lock_state_unpack(const uint8_t *bytes, const struct lock_bounds *bounds,
                       struct lock_state *state);
void lock_state_print(const struct lock_state *state, const struct lock_bounds *bounds);

#endif
