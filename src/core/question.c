/* SPDX-License-Identifier: MIT
 * Questions: asked once and answered once. */
#include "question.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)

struct lk__question *lk__question_new(enum lk__request_kind kind, lk_kind noun, const char *name,
                                      size_t len)
{
	struct lk__question *question = calloc(1, sizeof(*question) + len + 1);

	if (!question)
		return NULL;
	question->request.kind = (uint8_t)kind;
	question->request.question = question;
	question->noun = (uint8_t)noun;
	question->name_len = (uint16_t)len;
	if (len)
		memcpy(question->name, name, len);
	return question;
}

static void discard(struct lk__question *question)
{
	free(question->label);
	free(question);
}

static void unlist(struct lk__core *core, struct lk__question *question)
{
	if (question->prev)
		question->prev->next = question->next;
	else
		core->questions = question->next;
	if (question->next)
		question->next->prev = question->prev;
	question->next = question->prev = NULL;
}

static void enqueue(struct lk__core *core, struct lk__session *session,
                    struct lk__question *question)
{
	struct lk__pending *request = &question->request;

	question->asked = true;
	question->session = session;
	request->by_text = true;
	lk__pending_enqueue(session, request);
	question->next = core->questions;
	if (question->next)
		question->next->prev = question;
	core->questions = question;
}

void lk__core_ask_detached(struct lk__core *core, struct lk__session *session,
                           struct lk__question *question)
{
	question->detached = true;
	enqueue(core, session, question);
}

void lk__core_query(struct lk__core *core, struct lk__session *session, int64_t now_ns,
                    struct lk__op *op, struct lk__question *const *questions, size_t count)
{
	op->session = session;
	lk__op_begin(core, now_ns, op);
	if (core->closing) {
		lk__complete(core, op, LK_ECLOSED, "the client was closed");
		return;
	}
	op->where = LK__FOR_QUESTION;
	op->unanswered = count;
	for (size_t i = 0; i < count; i++) {
		questions[i]->op = op;
		enqueue(core, session, questions[i]);
	}
	if (!count)
		lk__complete(core, op, LK_OK, NULL);
}

/* The op waits for none of its questions any more.  The first of them that has no answer. */
static struct lk__question *let_go(struct lk__core *core, const struct lk__op *op)
{
	struct lk__question *first = NULL;

	for (struct lk__question *question = core->questions; question; question = question->next) {
		if (question->op != op)
			continue;
		question->op = NULL;
		first = question; /* the latest one stands first in the list */
	}
	return first;
}

static void end(struct lk__core *core, struct lk__question *question)
{
	struct lk__op *op = question->op;

	question->request.where = LK__AT_REST;
	question->op = NULL;
	question->done = true;
	unlist(core, question);
	if (op && question->why.err) {
		let_go(core, op);
		lk__complete(core, op, question->why.err, question->why.text);
	} else if (op && !--op->unanswered) {
		lk__complete(core, op, LK_OK, NULL);
	}
	if (question->detached)
		discard(question);
}

void lk__question_abandon(struct lk__core *core, struct lk__op *op)
{
	const struct lk__question *first = let_go(core, op);
	struct lk__why why;

	if (first->request.where == LK__UNDER_WAY) {
		lk__why_set(&why, LK_EUNKNOWN, "%s: no answer within %lld ms", core->server,
		            (long long)(core->command_timeout_ns / MS));
	} else if (lk__session_is_up(first->session)) {
		/* Want of memory, or a socket that takes nothing. */
		lk__why_set(&why, LK_ECONN, "%s: it could not be sent in time", core->server);
	} else {
		why = first->session->why;
		if (why.err == LK_EUNKNOWN || !why.err)
			why.err = LK_ECONN;
	}
	lk__complete(core, op, why.err, why.text);
}

void lk__question_free(struct lk__core *core, struct lk__question *question)
{
	if (!question)
		return;
	if (question->request.where == LK__UNDER_WAY) {
		question->into = NULL;
		question->detached = true;
		return;
	}
	if (question->asked)
		lk__pending_dequeue(question->session, &question->request);
	if (question->asked && !question->done)
		unlist(core, question);
	discard(question);
}

void lk__question_answer(struct lk__core *core, struct lk__question *question,
                         const struct lk__answer *answer)
{
	question->answer = *answer;
	question->answer.text = NULL;
	if (answer->kind == LK__FAILED)
		question->why.err = answer->err;
	if (answer->kind == LK__FAILED && answer->text)
		snprintf(question->why.text, sizeof(question->why.text), "%s", answer->text);
	end(core, question);
}

void lk__questions_link_down(struct lk__core *core, const struct lk__session *session,
                             const struct lk__why *why)
{
	struct lk__question *question = core->questions, *next;

	for (; question; question = next) {
		next = question->next;
		if (question->session != session || question->request.where != LK__UNDER_WAY)
			continue;
		question->why = *why;
		question->why.err = LK_EUNKNOWN;
		end(core, question);
	}
}

void lk__questions_fini(struct lk__core *core)
{
	while (core->questions) {
		struct lk__question *question = core->questions;
		unlist(core, question);
		discard(question);
	}
}
