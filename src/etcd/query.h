/* SPDX-License-Identifier: MIT
 * The transactions of queries in etcd, and what their answers show.  None of them changes a queue.
 *
 *   lk/i/<client>          the details of a client, under its lease
 *   lk/i/<client>/<name>   its label for that name
 *
 * Their text is "1", then those that are known: host=, user=, program=, pid=, label=, each after a
 * space and encoded as a name.
 *
 * Range answers have limits: a listing shows the first tickets, and names come in pages. */
#ifndef LK__ETCD_QUERY_H
#define LK__ETCD_QUERY_H

#include "lock.h"

#define LK__ETCD_NAMES_PAGE 500 /* keys */
#define LK__ETCD_RANK_MAX 1000  /* a rank is looked for among so many tickets */
#define LK__ETCD_DETAILS_MAX 3072

/* A transaction of reads, or of one put, with the memory that it points into: not to be copied. */
struct lk__etcd_query {
	struct lk__etcd_txn txn;
	struct lk__etcd_op ops[4];
	struct lk__etcd_range ranges[4];
	struct lk__etcd_put put;
	size_t used;
	char text[LK__ETCD_DETAILS_MAX + 8 * LK__ETCD_KEY_MAX];
};

/* ---- Holder and waiters --------------------------------------------------------------------- */

struct lk__etcd_shown {
	char other_kind; /* the letter of the name's kind, if it is no lock's; 0 = none */
	bool is_held;
	int64_t lease; /* of the holder's ticket, 0 = none */
};

/* The first tickets of the lock, up to limit. */
void lk__etcd_show(struct lk__etcd_query *query, const struct lk__etcd_queue *queue, int64_t limit);
/* listing, if not NULL: filled, but for left_ms; nonce: of the client's ticket whose rank is
 * wanted, "" = none.  False if it is no answer to that transaction. */
bool lk__etcd_see_show(const struct lk__etcd_queue *queue, const char *nonce, const void *answer,
                       size_t len, struct lk__etcd_shown *shown, struct lk__listing *listing);

/* The first ticket and its key, which points into the answer.  False if there is none. */
bool lk__etcd_see_holder(const struct lk__etcd_queue *queue, const void *answer, size_t len,
                         struct lk__bytes *key, struct lk__etcd_ticket *holder);

/* All tickets of the semaphore that may hold permits. */
void lk__etcd_show_permits(struct lk__etcd_query *query, const struct lk__etcd_queue *queue);

#define LK__ETCD_TIMES_MAX 33

/* A lease, and how long it has left; 0 = unknown. */
struct lk__etcd_time {
	int64_t lease, left_ms;
};

/* What is wanted of a semaphore. */
struct lk__etcd_wanted {
	size_t holders, waiters; /* that are listed */
	const char *only;        /* the party of the only hold to list, NULL = any */
	const char *nonce;       /* of the client's ticket whose rank is wanted, "" = none */
};

struct lk__etcd_shown_permits {
	bool is_there;
	bool is_other_kind; /* a lock or a latch */
	/* The leases of the semaphore and of the listed holds, each once. */
	size_t time_count;
	struct lk__etcd_time times[LK__ETCD_TIMES_MAX];
};

/* shown->times: what is known of leases so far; the others are added.  listing is zeroed, but for
 * its room. */
bool lk__etcd_see_permits(const struct lk__etcd_queue *queue, const struct lk__etcd_wanted *wanted,
                          const void *answer, size_t len, struct lk__etcd_shown_permits *shown,
                          struct lk__listing *listing);
/* The id of a hold of a semaphore, as lk__entry has it: which ticket it is. */
bool lk__etcd_read_entry_id(struct lk__etcd_ticket *ticket, const char *id);

/* ---- Names ---------------------------------------------------------------------------------- */

void lk__etcd_kind(struct lk__etcd_query *query, const struct lk__etcd_queue *queue);
bool lk__etcd_see_kind(const void *answer, size_t len, lk_kind *kind);

/* A page of names, from names->cursor on. */
void lk__etcd_list(struct lk__etcd_query *query, const char *prefix, const char *cursor);
/* Append those of the page to names, and advance the cursor.  LK_OK, LK_ENOMEM, LK_ESERVER. */
lk_err lk__etcd_see_list(const char *prefix, const void *answer, size_t len,
                         struct lk__names *names);

/* ---- Details of clients --------------------------------------------------------------------- */

/* Write the text of these details; returns its length. */
size_t lk__etcd_details_write(char text[LK__ETCD_DETAILS_MAX], const struct lk__details *details);

/* name_len 0: of no name. */
void lk__etcd_introduce(struct lk__etcd_query *query, const struct lk__etcd_queue *queue,
                        const char *details, int64_t lease);
/* The client of that id, and its label for the queue's name. */
void lk__etcd_describe(struct lk__etcd_query *query, const struct lk__etcd_queue *queue,
                       const char *client);
/* Fill in what is known; the rest stays. */
void lk__etcd_see_describe(const void *answer, size_t len, lk_party *party);

/* The client in the id of a party; false if its ticket was made by another program. */
bool lk__etcd_client_of(char client[LK__CLIENT_ID_SIZE], const char *party);

#endif
