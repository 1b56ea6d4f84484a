/* SPDX-License-Identifier: MIT
 * Links of the store in Redis without a client: dial a server, send one request at a time, read
 * messages.  Each function fails the test where it cannot do so. */
#ifndef STORE_LINK_H
#define STORE_LINK_H

#include "redis/redis_store.h"

#define STORE_LINK_CLIENT "aaaaaaaaaaaaaaaaaaaaaa"

/* A store, and the last dial of it. */
struct store_link {
	struct lk__target target;
	struct lk__store *store;
	struct lk__peer *peer;
	struct lk__epoch epoch;
	struct lk__why why;
};

/* A link to this server, as redis: or redis+cluster: (then aimed at the node), not dialled yet.
 * path: of the URL, "" or "/db". */
struct store_link link_to(int port, bool cluster, const char *path);
/* The same as a member of a quorum, of which it is the only server. */
struct store_link link_to_member(int port);
lk_err link_dial(struct store_link *link);
void link_dial_ok(struct store_link *link);
void link_end(struct store_link *link);
/* Free the target of a link that was not dialled. */
void link_forget(struct lk__target *target);
const struct lk__member *link_node(const struct store_link *link);

/* A request about a lock. */
struct lk__request link_request(enum lk__request_kind kind, const char *name);
/* Send a request, and its script's text if the server wants it; wait for the answer. */
struct lk__answer link_answer(struct store_link *link, struct lk__request request, void *into);

void link_subscribe(struct store_link *link, const char *topic, bool on);
/* The next event, and its reply, which the caller discards. */
void *link_next_event(struct store_link *link, struct lk__event *event);
/* The next event is of this kind. */
void link_expect(struct store_link *link, enum lk__event_kind kind, bool subscribed);

#endif
