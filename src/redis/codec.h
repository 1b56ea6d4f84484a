/* SPDX-License-Identifier: MIT
 * The store in Redis: requests to commands, replies to answers, payloads to messages. */
#ifndef LK__CODEC_H
#define LK__CODEC_H

#include "../store.h"
#include "resp.h"
#include "script.h"
#include "space.h"

/* 2:client:nonce:lease:mode:permits or q1:client:nonce:lease:mode:priority:epoch, and a NUL */
#define LK__TICKET_MAX 80

/* Returns the length. */
size_t lk__ticket_text(const struct lk__space *space, const struct lk__ticket_id *ticket,
                       char text[LK__TICKET_MAX]);

/* Append the command of a request.  False when out of memory. */
bool lk__codec_request(struct lk__buf *buf, const struct lk__space *space,
                       const struct lk__request *request);
/* Append the command of a query. */
bool lk__codec_query(struct lk__buf *buf, const struct lk__space *space,
                     const struct lk__request *query);

/* ---- Of a quorum, codec_quorum.c ---------------------------------------------------------- */

/* Does the request need a script of a quorum? */
bool lk__codec_is_of_quorum(const struct lk__request *request);
/* Append its command. */
bool lk__codec_quorum(struct lk__buf *buf, const struct lk__space *space,
                      const struct lk__request *request);
/* Fill in what the text of a marker says of a set of servers; "" if it says nothing. */
void lk__codec_set(struct lk__epoch *epoch);

/* Beyond it neither Lua's numbers nor ours are exact. */
#define LK__EXACT_MAX (INT64_C(1) << 53)

/* Append EVAL (by_text) or EVALSHA of a script with that many keys and other arguments. */
bool lk__codec_eval(struct lk__buf *buf, const struct lk__script *script, bool by_text, int count,
                    const char *const *args, const size_t *lens);

/* The same, of which only that many are keys: a script works with fewer than it declares. */
bool lk__codec_eval_keys(struct lk__buf *buf, const struct lk__script *script, bool by_text,
                         int keys, int count, const char *const *args, const size_t *lens);

/* The server does not have the script: nothing was run. */
bool lk__codec_unknown_script(const struct lk__resp *resp);
/* Decode a reply.  what: names the server in why.  answer->text borrows why->text. */
void lk__codec_answer(const struct lk__resp *resp, const char *what, struct lk__answer *answer,
                      struct lk__why *why);
/* Decode an error reply. */
void lk__codec_error(const struct lk__resp *resp, const char *what, struct lk__answer *answer,
                     struct lk__why *why);
/* Decode the reply to LK__TOPOLOGY.  A node whose place has no host is at the host that was asked.
 * False when it is another reply, or has more masters than LK__NODES_MAX: why. */
bool lk__codec_topology(const struct lk__resp *resp, const char *what,
                        struct lk__topology *topology, struct lk__why *why);
/* Does the reply to LK__TOPOLOGY name a replica of that id, or without one (NULL) at that place? */
bool lk__codec_has_replica(const struct lk__resp *resp, const char *id,
                           const struct lk__place *place);
/* Decode a replica in the reply to LK__TOPOLOGY, of that range, from 1.  False when there is none.
 */
bool lk__codec_replica(const struct lk__resp *resp, size_t range, size_t number,
                       struct lk__cluster_node *node);
/* Decode a query's reply; into: the structure for lk__core_into(). */
void lk__codec_query_answer(const struct lk__resp *resp, const char *what,
                            const struct lk__space *space, const struct lk__request *query,
                            void *into, struct lk__answer *answer, struct lk__why *why);
/* Decode the reply to LK__LIST.  LK_OK, LK_ESERVER, LK_ENOMEM. */
lk_err lk__codec_names(const struct lk__resp *resp, const struct lk__space *space,
                       struct lk__names *names);
/* Parse a message.  False when it is not one of this protocol to this client. */
bool lk__codec_message(const struct lk__space *space, const char *text, size_t len,
                       struct lk__message *message);
/* Parse a message on a latch's channel. */
bool lk__codec_broadcast(const char *text, size_t len, struct lk__message *message);
/* Decode a reply of epoch_set with the marker.  False when it is another reply. */
bool lk__codec_epoch(const struct lk__resp *resp, struct lk__epoch *epoch);
/* Is it the reply of epoch_set that the server is a node of a Cluster, which names did not allow
 * for? */
bool lk__codec_is_cluster(const struct lk__resp *resp);
/* Decode {"foreign", key, type}: fills why and returns LK_EFOREIGN, else LK_OK. */
lk_err lk__codec_foreign(const struct lk__resp *resp, struct lk__why *why);

#endif
