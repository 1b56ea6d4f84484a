/* SPDX-License-Identifier: MIT
 * Queries: requests that are sent once.  Unlike those of tickets and latches they are never
 * repeated: when the link breaks, a query in flight ends with LK_EUNKNOWN, and one that was not
 * sent stays in the queue. */
#ifndef LK__QUERY_H
#define LK__QUERY_H

#include "core.h"

struct lk__query {
	struct lk__pending request;    /* first */
	struct lk__query *next, *prev; /* list of those without a response */
	struct lk__session *session;   /* the link for it */
	struct lk__op *op;             /* the call that waits for it, NULL if none */
	struct lk__details details;
	struct lk__ticket_id ticket; /* LK__SHOW: of the wanted rank; no nonce = none */
	void *into;                  /* the structure that the answer fills, NULL = none */
	struct lk__answer answer;    /* without text: see why */
	struct lk__why why;          /* why it failed, LK_OK = it did not */
	char *label;                 /* a copy of details.label */
	bool asked, done;
	bool stale; /* it was for another memory of the server: sent again when the marker is known
	             */
	bool detached; /* its caller has returned: freed when it is done */
	uint8_t hops;  /* consecutive redirections, up to a limit */
	uint8_t noun;  /* lk_kind */
	uint16_t name_len;
	char name[];
};

/* Copies the name.  NULL when out of memory. */
struct lk__query *lk__query_new(enum lk__request_kind kind, lk_kind noun, const char *name,
                                size_t len);
/* Send the queries over that link; they belong to the caller, until lk__query_free().  The op is
 * done when each has its answer, or with the error of the first that failed. */
void lk__core_query(struct lk__core *core, struct lk__session *session, int64_t now_ns,
                    struct lk__op *op, struct lk__query *const *queries, size_t count);
/* Send each over its own link.  The op is done, without an error, when each has its answer or its
 * error; what has none at the deadline gets the reason as its error. */
void lk__core_query_each(struct lk__core *core, struct lk__session *const *sessions, int64_t now_ns,
                         struct lk__op *op, struct lk__query *const *queries, size_t count);
/* Send a query without waiting for its response, and take ownership of it. */
void lk__core_ask_detached(struct lk__core *core, struct lk__session *session,
                           struct lk__query *query);
/* Free a query (NULL: no-op): one in flight is freed when its response arrives. */
void lk__query_free(struct lk__core *core, struct lk__query *query);

/* ---- Between the core's files ---------------------------------------------------------------- */

void lk__query_answer(struct lk__core *core, struct lk__query *query,
                      const struct lk__answer *answer);
/* In a Cluster: it belongs to another link now. */
void lk__query_move(struct lk__query *query, struct lk__session *session);
/* The deadline of a query has passed: end it with the reason for the missing response. */
void lk__query_abandon(struct lk__core *core, struct lk__op *op);
void lk__queries_link_down(struct lk__core *core, const struct lk__session *session,
                           const struct lk__why *why);
/* The link was never up, and calls do not wait for it: they end with the reason. */
void lk__queries_refused(struct lk__core *core, struct lk__session *session);
/* The marker of the server's memory is known, or cannot be read. */
void lk__queries_resume(struct lk__core *core, struct lk__session *session);
void lk__queries_unresumed(struct lk__core *core, struct lk__session *session,
                           const struct lk__answer *answer);
void lk__queries_fini(struct lk__core *core);

#endif
