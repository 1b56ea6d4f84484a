/* SPDX-License-Identifier: MIT
 * The names of keys and channels. */
#ifndef LK__SPACE_H
#define LK__SPACE_H

#include "../store.h"

#define LK__KEY_MAX (32 + 3 * LK_NAME_MAX + 8) /* prefix:{name}:q and a NUL */
#define LK__CHANNEL_MAX 80

/* The names of one client's keys and channels, fixed for its life. */
struct lk__space {
	char prefix[33];
	char client_id[LK__CLIENT_ID_SIZE];
	char channels[56];             /* prefix:c:db: */
	char channel[LK__CHANNEL_MAX]; /* channels and our id */
	char broadcasts[56];           /* prefix:l:db: */
	char fence[48];                /* prefix:fence: the key of all names */
	char epoch[48];                /* prefix:epoch: the marker of the server's memory */
	uint8_t prefix_len, client_id_len, channels_len, fence_len, epoch_len;
	int db;
	int64_t grace_ms; /* 0 unless set: none */
};

void lk__space_init(struct lk__space *space, const char *prefix, int db, const char *client_id);
/* All keys that a name can have; its kind determines which are used. */
struct lk__keys {
	char main[LK__KEY_MAX];
	char queue[LK__KEY_MAX];  /* of a lock, a semaphore */
	char holds[LK__KEY_MAX];  /* of a semaphore */
	char memory[LK__KEY_MAX]; /* of a latch */
	char fence[48];           /* of all names */
};
void lk__space_keys(const struct lk__space *space, const char *name, size_t len,
                    struct lk__keys *keys);
/* prefix:{name}, the first of them, without a NUL.  Returns the length. */
size_t lk__space_main_key(const struct lk__space *space, const char *name, size_t len, char *key);
/* prefix:l:db:{name}: the channel of a latch. */
void lk__space_topic(const struct lk__space *space, const char *name, size_t len,
                     char topic[LK__TOPIC_MAX]);
void lk__space_client_key(const struct lk__space *space, const char *client_id,
                          char key[LK__CHANNEL_MAX]);

#endif
