/* SPDX-License-Identifier: MIT
 * What a primitive asks of shared state, and what it hears: requests, answers, messages.  A store
 * (redis/) turns them into bytes and back; the core knows nothing of it. */
#ifndef LK__STORE_H
#define LK__STORE_H

#include <latchkey.h>

#include <stdbool.h>
#include <stdint.h>

#define LK__NONCE_SIZE 12 /* 11 characters and a NUL */

struct lk__ticket;
struct lk__latch;

enum lk__request_kind {
	LK__ASK,    /* acquire, or stand in the queue */
	LK__LEAVE,  /* end a wait or a hold, serve the next */
	LK__HAND,   /* serve the next of a lock that is free */
	LK__RENEW,  /* keep a hold, extend it, or claim a grant */
	LK__SHRINK, /* give back some permits of a hold, serve the next */
	LK__LOOK,   /* how is the latch? */
	LK__STEP,   /* count it down */
};

struct lk__request {
	struct lk__request *next; /* in the core's line, then in the link's */
	union {
		struct lk__ticket *ticket;
		struct lk__latch *latch; /* LK__LOOK, LK__STEP */
	};
	int64_t sent_ns;  /* taken from the line, thus before any byte was sent */
	int64_t lease_ms; /* LK__RENEW: from then on */
	uint8_t kind;     /* enum lk__request_kind */
	uint8_t where;    /* enum lk__request_where */
	bool by_text;     /* the store did not know the script: send its text */
	bool claim;       /* LK__RENEW: whichever fence the grant has */
	bool extends;     /* LK__RENEW: for the first of those who extend */
	uint32_t permits; /* LK__SHRINK: that the hold keeps */
};

enum lk__request_where { LK__AT_REST, LK__IN_LINE, LK__UNDER_WAY };

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
