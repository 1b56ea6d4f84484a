/* SPDX-License-Identifier: MIT
 * The semaphore's protocol as a model: a store with permits, a few clients, what is under way
 * between them, and a clock that ticks for all.  semaphore_model_steps.c and
 * semaphore_model_server.c have what may happen next, after src/core/ and
 * src/redis/scripts/semaphore_*.lua; semaphore_model_state.c brings a state into its one form.
 *
 * Time is what is left, as in lock_model.h: a lease is ticks to go, and a tick takes one from each.
 * A client that does not act while ticks pass is a paused one.  Each client has one wait or hold at
 * a time, and those that are on their way out; several waits of one process are several clients,
 * which are less bound to each other than the code's.
 *
 * Whatever the code does at a time of its own choice the model does at any time: asking again (so a
 * message "again" adds nothing), renewing, serving the head, the end of a queue that nobody asked
 * about, passing over a head that does not fit, taking a ticket for old, and where in the queue a
 * forgotten one returns to, behind those who had waited when it began.  So every run of the code is
 * one of the model's, and not the other way round.
 *
 * Left out: a store's clock that steps back (clamp() in the scripts), half a memory, and break. */
#ifndef SEMAPHORE_MODEL_H
#define SEMAPHORE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_CLIENTS 3
#define MODEL_NOBODY MODEL_CLIENTS /* whose hold no request will name */
#define MODEL_NONCES 4             /* of one client, known to anybody at one time */
#define MODEL_ENTRIES 5
#define MODEL_LATE 2
#define MODEL_NOTES 2
#define MODEL_QUEUE 6
#define MODEL_HOLDS 6
#define MODEL_PAST 3
#define MODEL_LEAVING 2
#define MODEL_FENCES 8 /* of one client, known to anybody at one time; 0 = none, any */
#define MODEL_WIDTH 80 /* bytes of a packed state */
#define MODEL_ANY 7    /* drops: no limit */

enum semaphore_kind {
	PERMITS_RENEWED,
	PERMITS_FIXED, /* not renewed; every grant by message is claimed */
	PERMITS_RATE,  /* the same, and nobody releases them */
};

struct semaphore_bounds {
	const char *name;
	enum semaphore_kind kind;
	uint8_t clients, capacity;
	uint8_t permits[MODEL_CLIENTS]; /* that each of them wants */
	uint8_t lease, claim_life;      /* ticks */
	uint8_t extension;              /* ticks, 0 = nobody extends */
	uint8_t run;                    /* tickets served, leases reclaimed; 0 = no limit */
	uint8_t waits;                  /* that a client begins, 0 = no limit */
	uint8_t drops;                  /* of connections, by all, MODEL_ANY = no limit */
	uint8_t crashes;
	uint8_t late;    /* requests of a dropped connection that are executed later, a client */
	uint8_t notes;   /* messages on their way to a client; more are lost */
	uint8_t overlap; /* tickets on their way out when the next wait begins */
	uint8_t smallest, largest; /* capacity after resizes; 0 = nobody resizes */
	bool cancels, tries, shrinks;
	bool prompt; /* the store executes a request when it is sent */
	bool loses;  /* single messages */
	bool ends;   /* the queue, when nobody asked for long */
	bool alike;  /* clients that want the same may be exchanged for each other */
};

/* One rule left out, or another one in its place. */
enum semaphore_rule {
	RULES_ALL,
	VALID_FROM_LAST_QUEUED,
	GRANTED_REVIVES,
	FENCE_OF_MESSAGE,
	RELEASE_STAYS_QUEUED,
	HAND_UNFITTED,
	SHRINK_SETS,
	FORGET_LEAVES,
	ASK_PASSES_QUEUE,
	RENEWAL_REVIVES,
	RENEWAL_UNENDED, /* does no harm */
	ASK_KEEPS_OWN,
	LINK_FORGETS_HAND,
};

enum model_kind { ASK, HAND, LEAVE, RENEW, SHRINK };
enum model_answer { UNANSWERED, GRANTED, QUEUED, BUSY, LIMIT, KEPT, GONE, LEFT };
enum model_ticket { NOTHING, WAITING, CLAIMING, HOLDING }; /* WAITING: or asking, no difference */

struct semaphore_entry {
	uint8_t kind, nonce, answer;
	uint8_t fence; /* asked for, then answered */
	uint8_t flag; /* ASK: arrival known; RENEW: an extension; LEAVE: a release; HAND: a leaver's
	               */
	uint8_t keep; /* SHRINK: permits; ASK: 1 = only a try */
	uint8_t more, mine;
};

struct semaphore_note {
	uint8_t nonce, fence, claim;
};

struct semaphore_leaver {
	uint8_t nonce;
	uint8_t again;    /* the wait goes on with a new ticket */
	uint8_t only_try; /* and is a try */
	uint8_t hand;     /* it has left: only the head is to be served */
};

struct semaphore_client {
	uint8_t alive, linked, heard; /* heard: the server counts it as a receiver */
	uint8_t begun;                /* waits */
	/* The ticket. */
	uint8_t ticket, nonce;
	uint8_t first, sent, valid; /* ticks left of a lease from then; of the hold */
	uint8_t fence;
	uint8_t count; /* permits that it believes in */
	uint8_t only_try, shrinking;
	uint8_t handing, known, due; /* known: arrival; due: next_ns set */
	uint8_t armed;               /* a timer for it */
	uint8_t leavers, entries, late, notes;
	struct semaphore_leaver leaver[MODEL_LEAVING];
	struct semaphore_entry entry[MODEL_ENTRIES]; /* sent, not answered or answer not read */
	struct semaphore_entry later[MODEL_LATE];    /* of a dropped connection */
	struct semaphore_note note[MODEL_NOTES];     /* grants by message */
};

struct semaphore_wait {
	uint8_t client, nonce;
	uint8_t after; /* clients whose wait began when this one stood in the queue, a bit each */
};

/* A field of the hash and its end.  One without time left is over, and not yet reclaimed. */
struct semaphore_hold {
	uint8_t client, nonce, permits, fence, left;
	uint8_t age;   /* of a rate: ticks since its grant, a lease at most */
	uint8_t taken; /* of a rate: its caller has been told */
};

struct semaphore_state {
	struct semaphore_client client[MODEL_CLIENTS];
	uint8_t capacity, used; /* used: as the store has written it */
	uint8_t ceiling;        /* the capacity, or what was held when it became less */
	uint8_t drops, holds, queued, past;
	struct semaphore_hold hold[MODEL_HOLDS];
	struct semaphore_wait queue[MODEL_QUEUE];
	struct semaphore_hold before[MODEL_PAST]; /* taken, and out of the store within a window */
	const char *wrong;                        /* what the step into it did, no part of it */
};

enum semaphore_step {
	STEP_START,
	STEP_TRY,
	STEP_ASK,
	STEP_HAND,
	STEP_CLAIM,
	STEP_RENEW,
	STEP_EXTEND,
	STEP_GIVE_SOME,
	STEP_SHRINK,
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
	STEP_RESIZE, /* from here on nobody's */
	STEP_QUEUE_ENDS,
	STEP_TICK,
};

const char *semaphore_step_name(enum semaphore_step step);
/* A way to a grant, or to all permits back, may go this step: it is no fault, no luck, no new
 * work. */
bool semaphore_step_counts(enum semaphore_step step);

struct semaphore_model {
	const struct semaphore_bounds *bounds;
	enum semaphore_rule rule;
	uint64_t pruned; /* steps that the fixed sizes above had no room for */
	void (*found)(struct semaphore_model *model, struct semaphore_state *state,
	              enum semaphore_step step, int client);
	void *arg;
};

/* found() for every state one step away; it may change the state it is given. */
void semaphore_model_steps(struct semaphore_model *model, const struct semaphore_state *state);

void semaphore_state_first(struct semaphore_state *state, const struct semaphore_bounds *bounds);
/* Forget what has no effect any more, number fences and nonces anew. */
void semaphore_state_number(struct semaphore_state *state, const struct semaphore_bounds *bounds,
                            enum semaphore_rule rule);
void semaphore_state_pack(const struct semaphore_state *state,
                          const struct semaphore_bounds *bounds, uint8_t *bytes);
void semaphore_state_unpack(const uint8_t *bytes, const struct semaphore_bounds *bounds,
                            struct semaphore_state *state);
void semaphore_state_print(const struct semaphore_state *state,
                           const struct semaphore_bounds *bounds);

/* What is wrong in a state, before it is numbered; NULL = nothing. */
const char *semaphore_state_wrong(const struct semaphore_state *state,
                                  const struct semaphore_bounds *bounds, enum semaphore_rule rule);
/* The client waits, for its first grant or through a grant that came too late. */
bool semaphore_client_waits(const struct semaphore_client *client);

#endif
