/* SPDX-License-Identifier: MIT
 * The names of keys in etcd, and the texts of their values.
 *
 *   lk/L/<name>/<client><nonce>   a ticket of a lock; the one that was created first holds it
 *   lk/S/<name>/<client><nonce>   a ticket of a semaphore
 *   lk/S<name>                    a semaphore
 *   lk/D<name>                    a latch
 *   lk/D/<name>/1<client>         the first step of a client, if it counted one
 *   lk/D/<name>/c<client>         its other steps
 *   lk/D/<name>/n<step>           the name of a step that has counted
 *   lk/c/<client>                 the mailbox of a client: its last message
 *   lk/e/<client>                 its era: counts the set-ups of its connections
 *   lk/i/<client>                 its details, for people
 *   lk/i/<client>/<name>          its label for that name
 *
 * A name is encoded as in Redis, and '/' as %2F: otherwise the tickets of "a/b" would be among
 * those of "a".  The letter is that of the kind, so one name has keys of each kind at known places.
 */
#ifndef LK__ETCD_KEYS_H
#define LK__ETCD_KEYS_H

#include "pb.h"

#include "../core/request.h"
#include "../store.h"

#define LK__ETCD_PREFIX_MAX 32
#define LK__ETCD_NAME_MAX (3 * LK_NAME_MAX)
/* prefix/L/name/client nonce, with its NUL */
#define LK__ETCD_KEY_MAX                                                                           \
	(LK__ETCD_PREFIX_MAX + LK__ETCD_NAME_MAX + LK__CLIENT_ID_SIZE + LK__NONCE_SIZE + 4)
#define LK__ETCD_STEP_KEY_MAX (LK__ETCD_KEY_MAX + 3 * LK_STEP_MAX)
#define LK__ETCD_OWN_MAX (LK__ETCD_PREFIX_MAX + 3 + LK__CLIENT_ID_SIZE)

/* The letters of kinds. */
#define LK__ETCD_LOCK 'L'
#define LK__ETCD_SEMAPHORE 'S'
#define LK__ETCD_LATCH 'D'

/* A ticket in a queue: of this client, or of another one. */
struct lk__etcd_ticket {
	char client[LK__CLIENT_ID_SIZE]; /* "" = made by something else, as Go's concurrency.Mutex
	                                  */
	char nonce[LK__NONCE_SIZE];
	int64_t created; /* the revision, which is its place; 0 = unknown */
};

/* Each writes a NUL-ended key and returns its length.  A queue's key ends in '/' and is the prefix
 * of its tickets' keys. */
size_t lk__etcd_queue_key(char key[LK__ETCD_KEY_MAX], const char *prefix, char kind,
                          const char *name, size_t len);
size_t lk__etcd_ticket_key(char key[LK__ETCD_KEY_MAX], const char *queue, const char *client,
                           const char *nonce);
size_t lk__etcd_noun_key(char key[LK__ETCD_KEY_MAX], const char *prefix, char kind,
                         const char *name, size_t len);
/* A step in the queue of a latch: of that client, or of that name. */
size_t lk__etcd_step_key(char key[LK__ETCD_STEP_KEY_MAX], const char *queue, char kind,
                         const char *name, size_t len);
/* That which shows the kind of the name: a lock has only its queue. */
size_t lk__etcd_kind_key(char key[LK__ETCD_KEY_MAX], const char *prefix, char kind,
                         const char *name, size_t len);
size_t lk__etcd_mailbox_key(char key[LK__ETCD_OWN_MAX], const char *prefix, const char *client);
size_t lk__etcd_era_key(char key[LK__ETCD_OWN_MAX], const char *prefix, const char *client);
/* len 0: without a name. */
size_t lk__etcd_details_key(char key[LK__ETCD_KEY_MAX], const char *prefix, const char *client,
                            const char *name, size_t len);

/* Change a copy of a prefix into the end of the range of all keys with it. */
void lk__etcd_range_end(char *end, size_t len);

/* Which ticket has that key, in the queue with the key of that length. */
void lk__etcd_read_ticket(struct lk__etcd_ticket *ticket, struct lk__bytes key, size_t queue_len);
/* The name in the key of a queue or a noun, after its kind: out needs the length of the text + 1.
 * False if no name has that key. */
bool lk__etcd_read_name(char *out, size_t *len, const char *text, size_t text_len);

#endif
