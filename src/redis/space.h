/* SPDX-License-Identifier: MIT
 * The names of keys and channels. */
#ifndef LK__SPACE_H
#define LK__SPACE_H

#include "../store.h"

#define LK__KEY_MAX (32 + 3 * LK_NAME_MAX + 8) /* prefix:{name}:q and a NUL */
#define LK__CHANNEL_MAX 80
#define LK__CLASSES 1024 /* of names in a quorum, each with a counter of fences */
#define LK__MARKER_MAX 96 /* prefix:epoch:{tag}:node and a NUL */

/* The names of one client's keys and channels, fixed for its life.  In a Cluster all keys and
 * channels of a name are in its slot, and messages to a client have a channel for each name. */
struct lk__space {
	char prefix[33];
	char client_id[LK__CLIENT_ID_SIZE];
	bool cluster;
	bool quorum; /* its servers are members of a quorum */
	char channels[56];             /* prefix:c:db:, in a Cluster prefix:c: */
	char channel[LK__CHANNEL_MAX]; /* channels and our id; none in a Cluster */
	char broadcasts[56];           /* prefix:l:db:, in a Cluster prefix:l: */
	char fence[48];                /* prefix:fence: the key of all names; of a Cluster's
	                                * slot, prefix:fence:{tag} */
	char fences[48];               /* prefix:fences: the counters of a quorum's server */
	char epoch[48];                /* prefix:epoch: the marker of the server's memory */
	uint8_t prefix_len, client_id_len, channels_len, fence_len, fences_len, epoch_len;
	int db;
	int64_t grace_ms; /* 0 unless set: none */
};

void lk__space_init(struct lk__space *space, const char *prefix, int db, const char *client_id);
/* Make it the names in a Cluster, of its only database. */
void lk__space_divide(struct lk__space *space);
/* All keys that a name can have; its kind determines which are used. */
struct lk__keys {
	char main[LK__KEY_MAX];
	char queue[LK__KEY_MAX];  /* of a lock, a semaphore */
	char holds[LK__KEY_MAX];  /* of a semaphore */
	char memory[LK__KEY_MAX]; /* of a latch */
	char fence[48];           /* of all names, or of all in the slot */
};
void lk__space_keys(const struct lk__space *space, const char *name, size_t len,
                    struct lk__keys *keys);
/* prefix:{name}, the first of them, without a NUL.  Returns the length. */
size_t lk__space_main_key(const struct lk__space *space, const char *name, size_t len, char *key);
/* The key of the counter of a name's fences, without a NUL.  Returns the length. */
size_t lk__space_fence(const struct lk__space *space, const char *name, size_t len, char *key);
/* What the ids of clients are appended to, for messages about the name of that first key:
 * prefix:c:db: or prefix:c:{name}:, without a NUL.  Returns the length, less than LK__TOPIC_MAX. */
size_t lk__space_channels(const struct lk__space *space, const char *main_key, size_t len,
                          char *text);
/* prefix:l:db:{name}, or prefix:l:{name}: the channel of a latch. */
void lk__space_topic(const struct lk__space *space, const char *name, size_t len,
                     char topic[LK__TOPIC_MAX]);
/* prefix:c:{name}:id: the channel for messages to this client about a name.  False if there is
 * none, since all its messages have one channel. */
bool lk__space_inbox(const struct lk__space *space, const char *name, size_t len,
                     char topic[LK__TOPIC_MAX]);
/* prefix:client:id: a client's details; in a Cluster prefix:client:id:{tag}, for names of a slot.
 */
void lk__space_client_key(const struct lk__space *space, const char *client_id, unsigned slot,
                          char key[LK__CHANNEL_MAX]);
/* prefix:c:{tag}:id: a channel of this client in a slot of a Cluster. */
void lk__space_slot_channel(const struct lk__space *space, unsigned slot,
                            char channel[LK__CHANNEL_MAX]);
/* prefix:epoch:{tag}:node: the marker of the memory of a Cluster's node, in a slot that it owns. */
void lk__space_marker(const struct lk__space *space, unsigned slot, const char *node,
                      char key[LK__MARKER_MAX]);

#endif
