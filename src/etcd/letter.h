/* SPDX-License-Identifier: MIT
 * What a mailbox holds: the last message to its client.  Each is a version of the mailbox's key,
 * and its client, which watches the key, gets them all, in order.
 *
 *   1                          nothing yet
 *   1 g <nonce> <created> ...  the lock is granted to that ticket; the next tickets follow, each as
 *                              <client><nonce>:<created>
 *   1 b <nonce> <created>      that hold was broken
 *   1 s ...                    of a semaphore, each as <what><nonce>:<created>: what g, permits are
 *                              granted to that ticket; f, it is the first that waits; a, ask again
 */
#ifndef LK__ETCD_LETTER_H
#define LK__ETCD_LETTER_H

#include "keys.h"

#define LK__ETCD_NEXT_MAX 7
#define LK__ETCD_LETTER_MAX                                                                        \
	(32 + LK__NONCE_SIZE + LK__ETCD_NEXT_MAX * (LK__CLIENT_ID_SIZE + LK__NONCE_SIZE + 22))

enum lk__etcd_letter_kind {
	LK__LETTER_NONE,
	LK__LETTER_GRANT,
	LK__LETTER_BROKEN,
	LK__LETTER_PERMITS,
};

struct lk__etcd_letter {
	enum lk__etcd_letter_kind kind;
	char nonce[LK__NONCE_SIZE];
	int64_t created; /* the ticket's place */
	/* A grant: the tickets after it, none left out. */
	unsigned count;
	struct lk__etcd_ticket next[LK__ETCD_NEXT_MAX];
	/* Permits: the news of each of the next, which have no client. */
	char what[LK__ETCD_NEXT_MAX];
};

#define LK__NEWS_GRANT 'g'
#define LK__NEWS_FIRST 'f'
#define LK__NEWS_AGAIN 'a'

/* Write it, NUL-ended; returns the length. */
size_t lk__etcd_letter_write(char text[LK__ETCD_LETTER_MAX], const struct lk__etcd_letter *letter);
/* False if it is malformed, or of a newer version: the letter is then none. */
bool lk__etcd_letter_read(struct lk__etcd_letter *letter, struct lk__bytes text);

#endif
