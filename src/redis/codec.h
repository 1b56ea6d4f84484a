/* SPDX-License-Identifier: MIT
 * The store in Redis: requests to commands, replies to answers, payloads to messages. */
#ifndef LK__CODEC_H
#define LK__CODEC_H

#include "../store.h"
#include "resp.h"
#include "script.h"
#include "space.h"

#define LK__TICKET_MAX 64 /* 2:client:nonce:lease:mode:permits and a NUL */

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
