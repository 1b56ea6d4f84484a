/* SPDX-License-Identifier: MIT
 * Questions: requests that are asked once and answered once.  Unlike those of tickets and latches
 * they are never repeated: when the link breaks, a question in flight ends with LK_EUNKNOWN, and
 * one that was not sent stays in line. */
#ifndef LK__QUESTION_H
#define LK__QUESTION_H

#include "core.h"

struct lk__question {
	struct lk__pending request;       /* first */
	struct lk__question *next, *prev; /* those that have no answer */
	struct lk__session *session;      /* the link over which it goes */
	struct lk__op *op;                /* the call that waits for it, NULL if none */
	struct lk__details details;
	struct lk__ticket_id ticket; /* LK__SHOW: whose rank is wanted; no nonce = none */
	void *into;                  /* what the answer fills in, NULL = nothing */
	struct lk__answer answer;    /* text is not in it: see why */
	struct lk__why why;          /* why it failed, LK_OK = it did not */
	char *label;                 /* a copy of details.label */
	bool asked, done;
	bool detached; /* its caller has gone: freed when it is done */
	uint8_t noun;  /* lk_kind */
	uint16_t name_len;
	char name[];
};

/* The name is copied.  NULL when out of memory. */
struct lk__question *lk__question_new(enum lk__request_kind kind, lk_kind noun, const char *name,
                                      size_t len);
/* Send the questions over that link; they stay the caller's, until lk__question_free().  The op is
 * done when each has its answer, or with why of the first that failed. */
void lk__core_query(struct lk__core *core, struct lk__session *session, int64_t now_ns,
                    struct lk__op *op, struct lk__question *const *questions, size_t count);
/* Send a question without waiting for its answer; it is taken. */
void lk__core_ask_detached(struct lk__core *core, struct lk__session *session,
                           struct lk__question *question);
/* The caller is done with it (NULL: nothing): one in flight is freed when its answer comes. */
void lk__question_free(struct lk__core *core, struct lk__question *question);

/* ---- Between the core's files ---------------------------------------------------------------- */

void lk__question_answer(struct lk__core *core, struct lk__question *question,
                         const struct lk__answer *answer);
/* The deadline of a query: it ends with the reason why there is no answer. */
void lk__question_abandon(struct lk__core *core, struct lk__op *op);
void lk__questions_link_down(struct lk__core *core, const struct lk__session *session,
                             const struct lk__why *why);
void lk__questions_fini(struct lk__core *core);

#endif
