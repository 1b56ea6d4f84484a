/* SPDX-License-Identifier: MIT
 * Questions: asked once and answered once. */
#include "question.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void lk__core_ask(struct lk__core *core, struct lk__session *session, struct lk__question *question)
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

static void end(struct lk__core *core, struct lk__question *question)
{
	struct lk__op *waiter = question->waiter;

	question->request.where = LK__AT_REST;
	question->waiter = NULL;
	question->done = true;
	unlist(core, question);
	if (question->detached)
		discard(question);
	else if (waiter)
		lk__complete(core, waiter, LK_OK, NULL);
}

void lk__question_await(struct lk__core *core, struct lk__question *question, struct lk__op *waiter)
{
	waiter->where = LK__FOR_QUESTION;
	waiter->resumes = true;
	if (question->done)
		lk__complete(core, waiter, LK_OK, NULL);
	else
		question->waiter = waiter;
}

void lk__question_free(struct lk__core *core, struct lk__question *question)
{
	if (!question)
		return;
	question->waiter = NULL;
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
