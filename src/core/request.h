/* SPDX-License-Identifier: MIT
 * What a store is asked and what it answers, as values: requests, answers, messages.  A store turns
 * them into bytes and back.  It knows nothing of the state machines behind them, and they nothing
 * of its bytes. */
#ifndef LK__REQUEST_H
#define LK__REQUEST_H

#include <latchkey.h>

#include <stdbool.h>
#include <stddef.h>
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
	/* Queries, asked once each: */
	LK__SHOW,      /* who holds and waits, or how a latch is */
	LK__DESCRIBE,  /* what a client says of itself */
	LK__BREAK,     /* end the hold of another */
	LK__SIZE,      /* give a semaphore its capacity */
	LK__SET,       /* make a latch count */
	LK__REMOVE,    /* remove a latch */
	LK__KIND,      /* what does a name stand for? */
	LK__LIST,      /* which names are there? */
	LK__INTRODUCE, /* say who this client is */
	LK__FORGET,    /* and that it is no more */
	LK__PING,
};

static inline bool lk__is_query(uint8_t kind)
{
	return kind >= LK__SHOW;
}

/* By what a store tells one ticket from another. */
struct lk__ticket_id {
	char nonce[LK__NONCE_SIZE];
	int64_t lease_ms;
	uint32_t permits; /* 0 = a lock's */
	bool fixed;
	bool final; /* never released: its grant is the whole lease at once */
};

/* One request.  What it points to is borrowed until it has been turned into bytes. */
struct lk__request {
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
	/* Queries. */
	const struct lk__details *details;
};

#define LK__ID_SIZE 64 /* of a hold or a wait, as the store writes it */

/* What else a query says. */
struct lk__details {
	/* LK__SHOW */
	size_t holders, waiters; /* so many are to be listed at most */
	const char *only;        /* the id of the one holder that is to be listed, NULL = any */
	/* LK__DESCRIBE: the party's id.  LK__BREAK: lk__entry.id, "" = only serve who can be. */
	const char *subject;
	/* LK__SIZE */
	bool must_exist; /* a resize; else it may be new, or have this capacity, 0 = any */
	int64_t capacity, ttl_ms;
	/* LK__SET */
	bool anew; /* also while it counts */
	int64_t count, open_ttl_ms, counting_ttl_ms;
	/* LK__INTRODUCE; text that is NULL is not said.  With a name the label alone. */
	const char *host, *user, *program, *label;
	int64_t pid, life_ms;
};

/* A hold or a wait. */
struct lk__entry {
	char party[LK_HOLDER_ID_SIZE];
	char id[LK__ID_SIZE];
	int64_t permits;
	uint64_t fence; /* of a hold */
	int64_t left_ms;
};

/* What LK__SHOW fills in of a lock or a semaphore: holds first, then waits. */
struct lk__listing {
	int64_t store_us;
	int64_t capacity, used, ttl_ms; /* of a semaphore */
	int64_t holders, waiting, rank; /* rank: of the ticket that was asked for, -1 = none */
	size_t held, count;             /* entries that are holds; all of them */
	size_t room;                    /* set by who asks */
	struct lk__entry entries[];
};

/* What LK__LIST fills in: names with their lengths, some of them perhaps twice. */
struct lk__names {
	char cursor[32]; /* "0" at first; the next query's, "0" again = these were the last */
	size_t count, cap;
	struct lk__listed_name {
		size_t len;
		char bytes[];
	} * *list;
};

enum lk__answer_kind {
	LK__GRANTED, /* to ask: fence, store_us, waiting, more */
	LK__QUEUED,  /* to ask: arrival, rank, left_ms, free */
	LK__BUSY,    /* to ask that only tries: free */
	LK__KEPT,    /* to renew: fence, store_us, waiting */
	LK__GONE,    /* to renew: the store knows no such hold */
	LK__LEFT,    /* to leave, hand and shrink: mine, more, free */
	LK__SHOWN,   /* to look, show: latch_state, fence, opened, removed, next, left_ms, counts */
	LK__STEPPED, /* to step: remaining, counted */
	LK__OTHER,   /* to step: fence is the latch's generation, 0 = there is none */
	/* To queries: */
	LK__LISTED,   /* to show, describe, list: what was to be filled in */
	LK__SIZED,    /* to size: capacity, more */
	LK__MISMATCH, /* to size: capacity */
	LK__MADE,     /* to set: latch_state is what it was before */
	LK__COUNTS,   /* to set: remaining, initial; nothing was changed */
	LK__IS,       /* to kind: noun */
	LK__ABSENT,   /* to show, size, remove: there is none */
	LK__DONE,     /* to remove, introduce, forget, ping */
	LK__FAILED,   /* err, passes, by_script, odd, text */
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
	int64_t remaining, initial;
	bool counted;
	int64_t capacity;
	lk_kind noun;
	lk_err err;
	bool passes;      /* the same request may succeed later */
	bool by_script;   /* the script refused it, before it wrote anything */
	bool odd;         /* it was done or not: the answer could not be read */
	const char *text; /* escaped; borrowed for the call */
};

enum lk__message_kind {
	LK__GRANT,  /* the lock is yours */
	LK__WANTED, /* somebody else waits for what you hold */
	LK__REASK,  /* ask again in in_ms */
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
	int64_t in_ms; /* LK__REASK */
};

#endif
