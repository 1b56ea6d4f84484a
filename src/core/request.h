/* SPDX-License-Identifier: MIT
 * What a store is asked and what it answers, as values: requests, answers, messages.  A store turns
 * them into bytes and back.  It knows nothing of the state machines behind them, and they nothing
 * of its bytes. */
#ifndef LK__REQUEST_H
#define LK__REQUEST_H

#include <latchkey.h>

#include <stdbool.h>
#include <stdint.h>

#define LK__NONCE_SIZE 12 /* 11 characters and a NUL */

#define LK__QUEUE_LIFE_MS 30000    /* of a queue that no ticket asks about */
#define LK__HEAD_PATIENCE_MS 21000 /* with the head of a queue: two re-asks */

enum lk__request_kind {
	LK__ASK,    /* acquire, or stand in the queue */
	LK__LEAVE,  /* end a wait or a hold, serve the next */
	LK__HAND,   /* serve the next of a name that is free */
	LK__RENEW,  /* keep a hold, extend it, or claim a grant */
	LK__SHRINK, /* give back some permits of a hold, serve the next */
	LK__LOOK,   /* how is the latch? */
	LK__STEP,   /* count it down */
};

/* By what a store tells one ticket from another. */
struct lk__ticket_id {
	char nonce[LK__NONCE_SIZE];
	int64_t lease_ms;
	uint32_t permits; /* 0 = a lock's */
	bool fixed;
	bool final; /* never released: its grant is the whole lease at once */
};

/* One request.  What it points to is borrowed until it has been turned into bytes. */
struct lk__command {
	uint8_t kind; /* enum lk__request_kind */
	uint8_t noun; /* lk_kind of the name */
	bool by_text; /* the store did not know the script: send its text */
	uint16_t name_len;
	const char *name;
	struct lk__ticket_id ticket; /* all but LK__HAND, LK__LOOK, LK__STEP */
	/* LK__ASK */
	bool only_try;
	uint64_t arrival;  /* from an earlier answer, 0 = none */
	uint32_t capacity; /* of the semaphore, should the store not have it */
	int64_t ttl_ms;    /* of a semaphore's memory */
	/* LK__ASK, LK__RENEW */
	bool share; /* threads of the holder wait: it wants to hear of waiters elsewhere */
	/* LK__RENEW: 0 = a claim, whichever the grant has.  LK__LEAVE: of the grant that was used
	 * and stays, 0 = none. */
	uint64_t fence;
	/* LK__RENEW */
	int64_t lease_ms;
	/* LK__RENEW, LK__LEAVE of a lock */
	uint64_t last_fence; /* given out by the client itself */
	/* LK__SHRINK */
	uint32_t keep; /* permits that the hold keeps */
	/* LK__STEP */
	uint64_t generation, number;
	uint32_t n;
	uint16_t step_len, topic_len;
	const char *step;  /* its name, step_len bytes, 0 = none */
	const char *topic; /* of the latch */
};

enum lk__answer_kind {
	LK__GRANTED, /* to ask: fence, store_us, waiting, more */
	LK__QUEUED,  /* to ask: arrival, rank, left_ms, free */
	LK__BUSY,    /* to ask that only tries: free */
	LK__KEPT,    /* to renew: fence, store_us, waiting */
	LK__GONE,    /* to renew: the store knows no such hold */
	LK__LEFT,    /* to leave, hand and shrink: mine, more, free */
	LK__SHOWN,   /* to look: latch_state, fence, opened, removed, next, left_ms */
	LK__STEPPED, /* to step: remaining, counted */
	LK__OTHER,   /* to step: fence is the latch's generation, 0 = there is none */
	LK__FAILED,  /* err, passes, text */
};

struct lk__answer {
	enum lk__answer_kind kind;
	uint64_t fence;
	uint64_t arrival;
	int64_t store_us; /* the store's clock as it answered */
	int64_t waiting;  /* tickets in the queue */
	int64_t rank;
	int64_t left_ms; /* until leases have ended that are in the way */
	bool free;       /* nobody holds it: have the head served (ask), nobody waits (leave) */
	bool mine;       /* the ticket that left was a holder's */
	bool more;       /* the run had its limit: have the head served */
	lk_latch_state latch_state;
	uint64_t opened, removed; /* the last generation that was */
	uint64_t next;            /* no later generation is less */
	int64_t remaining;
	bool counted;
	lk_err err;
	bool passes;      /* the same request may succeed later */
	bool odd;         /* it was done or not: the answer could not be read */
	const char *text; /* escaped; borrowed for the call */
};

enum lk__message_kind {
	LK__GRANT,  /* the lock is yours */
	LK__WANTED, /* somebody else waits for what you hold */
	LK__AGAIN,  /* ask again in in_ms */
	LK__BROKEN, /* your hold was broken */
	/* On the channel of a latch; fence is its generation. */
	LK__OPENED,
	LK__REMOVED,
};

struct lk__message {
	enum lk__message_kind kind;
	char nonce[LK__NONCE_SIZE];
	int64_t lease_ms; /* the ticket's */
	bool fixed, final;
	uint32_t permits; /* 0 = a lock's */
	uint64_t fence;
	int64_t life_ms; /* LK__GRANT: how long the store keeps it */
	bool claim;      /* LK__GRANT: worth nothing until claimed */
	int64_t waiting;
	int64_t store_us;
	int64_t in_ms; /* LK__AGAIN */
};

#endif
