/* SPDX-License-Identifier: MIT
 * The transactions of a lock and of a semaphore in etcd, and what their answers mean.
 *
 * A lock's queue is the tickets with its prefix, ordered by the revision that created them.  The
 * first of them holds the lock, because it is the first: with its end the next one is the holder,
 * and nothing has to be written for that.  Messages only say so, to clients that sleep. Go's
 * concurrency.Mutex has the same order, so it and this exclude each other on one prefix.
 *
 * A ticket is put only in its client's era, which is a key that counts the client's set-ups.
 * What was sent over a connection that has broken may be executed later; without the era it could
 * put a ticket that the client has given up, and the client's lease would keep it for ever.
 *
 * A holder that knows its successor ends its ticket and writes the successor's mailbox in one
 * transaction.  What it has once read of the order stays true: a ticket that comes later is later.
 *
 * A semaphore's queue is ordered in the same way, and each ticket has permits.  A ticket is granted
 * as soon as the sum of the permits of all tickets up to it and with it is at most the capacity.
 * Tickets only leave, or shrink in their place, so what is granted stays granted until the capacity
 * changes; and there is no counter that a death could leave wrong.  A client that leaves reads the
 * queue in the same transaction, and so knows which tickets are granted by that. */
#ifndef LK__ETCD_LOCK_H
#define LK__ETCD_LOCK_H

#include "letter.h"
#include "messages.h"

#define LK__ETCD_FENCES 65536 /* of one ticket: from its revision times that on */
/* etcd has no clock: later than all that a client compares with it. */
#define LK__ETCD_LATE_US (INT64_MAX / 4)

/* One queue, and the client that asks. */
struct lk__etcd_queue {
	char kind; /* its letter */
	const char *prefix, *client, *name;
	size_t name_len;
	const char *era; /* as its key has it; only for an ask */
};

enum lk__etcd_task {
	LK__ETCD_ASK,   /* put the ticket, and get those before it */
	LK__ETCD_TRY,   /* put it if there is no other */
	LK__ETCD_MOVE,  /* put it under another lease, in its place */
	LK__ETCD_LOOK,  /* get those before it */
	LK__ETCD_LEAVE, /* end it, and serve its successor */
	LK__ETCD_SERVE, /* notify the first ticket that it holds the lock */
	LK__ETCD_BREAK, /* end the first ticket, which another client may have */
	/* Of a semaphore: */
	LK__ETCD_SHRINK, /* put it with fewer permits */
	LK__ETCD_SIZE,   /* put the semaphore */
};

#define LK__ETCD_TEXT_MAX (10 * LK__ETCD_KEY_MAX)
#define LK__ETCD_SEEN_MAX (LK__ETCD_NEXT_MAX + 1)

/* What is needed to understand the answer to a transaction. */
struct lk__etcd_plan {
	enum lk__etcd_task task;
	char kind;        /* the queue's */
	size_t queue_len; /* of the queue's key */
	bool compares;    /* its success depends on something */
	bool serves;      /* its success has put a letter */
};

/* A transaction, with the memory that it points into: not to be copied. */
struct lk__etcd_recipe {
	struct lk__etcd_plan plan;
	struct lk__etcd_txn txn;
	struct lk__etcd_compare compares[5];
	struct lk__etcd_op success[6], failure[6];
	struct lk__etcd_range ranges[9];
	struct lk__etcd_put put;
	struct lk__etcd_delete del;
	unsigned range_count;
	size_t used;
	char text[LK__ETCD_TEXT_MAX];
};

/* What a ticket's value says, and its lease. */
struct lk__etcd_terms {
	int64_t lease, ttl_s;
	bool fixed;
	uint32_t permits; /* of a semaphore's */
};

void lk__etcd_ask(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                  const char *nonce, bool only_try, const struct lk__etcd_terms *terms);
void lk__etcd_look(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                   const char *nonce);
/* Of both kinds. */
void lk__etcd_move(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                   const char *nonce, int64_t created, const struct lk__etcd_terms *terms);
/* created: the ticket's place, 0 = unknown.  next: the tickets after it, none left out; the first
 * is served.  Of a ticket that has never held the lock, and is not the first, there is none to
 * serve: count is 0. */
void lk__etcd_leave(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                    const char *nonce, int64_t created, const struct lk__etcd_ticket *next,
                    unsigned count);
/* next: the first ticket of the queue, and those after it. */
void lk__etcd_serve(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                    const struct lk__etcd_ticket *next, unsigned count);

/* End the holder, whose ticket has that key, and write its mailbox that it was broken, unless its
 * client is "".  If it has no mailbox, or is not there any more, nothing is done. */
void lk__etcd_break_hold(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                         struct lk__bytes key, const struct lk__etcd_ticket *holder);

/* ---- Of a semaphore ------------------------------------------------------------------------- */

#define LK__ETCD_CAPACITY_MAX 10000 /* a queue is read up to the first ticket that waits */

/* What the key of a semaphore says. */
struct lk__etcd_noun {
	int64_t mod; /* the revision that wrote it, 0 = there is none */
	int64_t lease, capacity, ttl_ms;
	/* The tickets up to that place held their permits when the capacity was changed last. */
	int64_t granted_to;
};

/* The largest capacity of a semaphore of that name: the answers must not be too long. */
int64_t lk__etcd_capacity_max(const struct lk__etcd_queue *queue);
/* How many tickets show whether one is granted, and the one after the first that waits. */
int64_t lk__etcd_limit(const struct lk__etcd_queue *queue, const struct lk__etcd_noun *noun);

/* mod: of the semaphore, whose capacity they fit into.  Nothing is put if it is another one.
 * since: of a try, the revision of a read after which they fit; nothing is put if any ticket was
 * put later.  0 = it may wait. */
void lk__etcd_ask_permits(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                          const char *nonce, const struct lk__etcd_noun *noun, int64_t since,
                          const struct lk__etcd_terms *terms);
/* nonce "": only the queue, and what the name is. */
void lk__etcd_look_permits(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                           const char *nonce, int64_t limit);
void lk__etcd_leave_permits(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                            const char *nonce, int64_t limit);
void lk__etcd_shrink(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                     const char *nonce, int64_t created, const struct lk__etcd_terms *terms,
                     int64_t limit);
/* Put the semaphore, if it was last written at mod, 0 = if there is none, nor anything else of that
 * name.  Under noun->lease, 0 = under that which it has. */
void lk__etcd_size(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue, int64_t mod,
                   const struct lk__etcd_noun *noun, int64_t limit);
/* As lk__etcd_break_hold(), of the ticket of that client, nonce and place. */
void lk__etcd_break_permits(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                            const struct lk__etcd_ticket *holder, bool is_mute, int64_t limit);

bool lk__etcd_read_noun(struct lk__etcd_noun *noun, const struct lk__etcd_kv *kv);
/* The permits in a ticket's value; one that is malformed has all. */
int64_t lk__etcd_read_permits(struct lk__bytes value);

/* A walk over tickets in the order of the queue. */
struct lk__etcd_walk {
	struct lk__pb_list kvs;
	int64_t capacity, granted_to;
	size_t queue_len;
	/* Of the ticket that was read last: */
	struct lk__etcd_kv kv;
	struct lk__etcd_ticket ticket;
	int64_t permits, sum; /* sum: of those up to it and with it */
	bool is_granted;
};

/* False at the end. */
bool lk__etcd_walk(struct lk__etcd_walk *walk);

/* What an answer shows. */
struct lk__etcd_seen {
	bool is_past;       /* ask, move: it is of a past era; nothing was done */
	bool is_other_kind; /* ask: the name is one of a semaphore or a latch; nothing was done */
	bool has_put;       /* ask, move: by this transaction */
	int64_t created;    /* ask, look: the ticket's place, 0 = it is not there */
	int64_t lease;      /* and that under which it is; 0 after has_put */
	int64_t before;     /* ask, look: how many are before it, at most as far as is known */
	bool had;           /* leave: the ticket was there */
	bool is_served;     /* leave, serve: the successor has its letter, or there is none; break:
	                     * it was done */
	/* Ask: the ticket just before it, or the first; otherwise the first ones. */
	unsigned count;
	struct lk__etcd_ticket first[LK__ETCD_SEEN_MAX];
	uint64_t term;
	int64_t revision;
	/* Of a semaphore.  Ask, try, leave, shrink, size, break: */
	struct lk__etcd_noun noun; /* ask, try: only if nothing was put */
	int64_t used;              /* permits of all tickets that were read */
	int64_t granted_to;        /* the place of the last ticket that is granted, 0 = none */
	int64_t gone;              /* leave, break: permits of the ticket that has ended */
	int64_t rank;              /* ask, look: how many wait before it */
	bool is_short;             /* more would have to be read */
	bool is_granted, is_first; /* ask, look: the ticket is, or is the first that waits */
	struct lk__pb_list queue;  /* all of the tickets that were read */
};

/* False if it is no answer to that transaction.  noun: the semaphore that an ask compared, or that
 * was put. */
bool lk__etcd_see(const struct lk__etcd_plan *plan, const struct lk__etcd_queue *queue,
                  const char *nonce, const struct lk__etcd_noun *noun, const void *answer,
                  size_t len, struct lk__etcd_seen *seen);

#endif
