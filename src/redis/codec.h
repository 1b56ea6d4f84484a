/* SPDX-License-Identifier: MIT
 * The store in Redis: requests to commands, replies to answers, payloads to messages. */
#ifndef LK__CODEC_H
#define LK__CODEC_H

#include "../store.h"
#include "resp.h"
#include "script.h"

#define LK__KEY_MAX (32 + 3 * LK_NAME_MAX + 8) /* prefix:{name}:q and a NUL */
#define LK__TICKET_MAX 64                      /* 1:client:nonce:lease:mode:permits and a NUL */
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
/* prefix:l:db:{name}: the channel of a latch. */
void lk__space_topic(const struct lk__space *space, const char *name, size_t len,
                     char topic[LK__TOPIC_MAX]);
void lk__space_client_key(const struct lk__space *space, const char *client_id,
                          char key[LK__CHANNEL_MAX]);
/* Returns the length. */
size_t lk__ticket_text(const struct lk__space *space, const struct lk__ticket_id *ticket,
                       char text[LK__TICKET_MAX]);

/* Append the command of a request.  False when out of memory. */
bool lk__codec_request(struct lk__buf *buf, const struct lk__space *space,
                       const struct lk__request *request);
/* Append the command of a query. */
bool lk__codec_query(struct lk__buf *buf, const struct lk__space *space,
                     const struct lk__request *query);
/* Append EVAL (by_text) or EVALSHA of a script with that many keys and other arguments. */
bool lk__codec_eval(struct lk__buf *buf, const struct lk__script *script, bool by_text, int count,
                    const char *const *args, const size_t *lens);

/* The server does not have the script: nothing was run. */
bool lk__codec_unknown_script(const struct lk__resp *resp);
/* Decode a reply.  what: names the server in why.  answer->text borrows why->text. */
void lk__codec_answer(const struct lk__resp *resp, const char *what, struct lk__answer *answer,
                      struct lk__why *why);
/* Decode a query's reply; into: the structure for lk__core_into(). */
void lk__codec_query_answer(const struct lk__resp *resp, const char *what,
                            const struct lk__space *space, const struct lk__request *query,
                            void *into, struct lk__answer *answer, struct lk__why *why);
/* Parse a message.  False when it is not one of this protocol to this client. */
bool lk__codec_message(const struct lk__space *space, const char *text, size_t len,
                       struct lk__message *message);
/* Parse a message on a latch's channel. */
bool lk__codec_broadcast(const char *text, size_t len, struct lk__message *message);
/* Decode a reply of epoch_set with the marker.  False when it is another reply. */
bool lk__codec_epoch(const struct lk__resp *resp, struct lk__epoch *epoch);
/* Decode {"foreign", key, type}: fills why and returns LK_EFOREIGN, else LK_OK. */
lk_err lk__codec_foreign(const struct lk__resp *resp, struct lk__why *why);

#endif
