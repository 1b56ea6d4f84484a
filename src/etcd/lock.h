/* SPDX-License-Identifier: MIT
 * The transactions of a lock in etcd, and what their answers mean.
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
 */
#ifndef LK__ETCD_LOCK_H
#define LK__ETCD_LOCK_H

#include "letter.h"
#include "messages.h"

#define LK__ETCD_FENCES 65536 /* of one ticket: from its revision times that on */
/* etcd has no clock: later than all that a client compares with it. */
#define LK__ETCD_LATE_US (INT64_MAX / 4)

/* One queue, and the client that asks. */
struct lk__etcd_queue {
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
};

#define LK__ETCD_TEXT_MAX (8 * LK__ETCD_KEY_MAX)
#define LK__ETCD_SEEN_MAX (LK__ETCD_NEXT_MAX + 1)

/* What is needed to understand the answer to a transaction. */
struct lk__etcd_plan {
	enum lk__etcd_task task;
	size_t queue_len; /* of the queue's key */
	bool compares;    /* its success depends on something */
	bool serves;      /* its success has put a letter */
};

/* A transaction, with the memory that it points into: not to be copied. */
struct lk__etcd_recipe {
	struct lk__etcd_plan plan;
	struct lk__etcd_txn txn;
	struct lk__etcd_compare compares[4];
	struct lk__etcd_op success[3], failure[5];
	struct lk__etcd_range ranges[6];
	struct lk__etcd_put put;
	struct lk__etcd_delete del;
	unsigned range_count;
	size_t used;
	char text[LK__ETCD_TEXT_MAX];
};

/* lease: the id of the ticket's; the value says its time to live, and whether it is fixed. */
void lk__etcd_ask(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                  const char *nonce, bool only_try, int64_t lease, int64_t ttl_s, bool fixed);
void lk__etcd_move(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                   const char *nonce, int64_t created, int64_t lease, int64_t ttl_s, bool fixed);
void lk__etcd_look(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                   const char *nonce);
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
};

/* False if it is no answer to that transaction. */
bool lk__etcd_see(const struct lk__etcd_plan *plan, const struct lk__etcd_queue *queue,
                  const char *nonce, const void *answer, size_t len, struct lk__etcd_seen *seen);

#endif
