/* SPDX-License-Identifier: MIT
 * Queries: sent once, without retries. */
#include "query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)

struct lk__query *lk__query_new(enum lk__request_kind kind, lk_kind noun, const char *name,
                                size_t len)
{
	struct lk__query *query = calloc(1, sizeof(*query) + len + 1);

	if (!query)
		return NULL;
	query->request.kind = (uint8_t)kind;
	query->request.query = query;
	query->noun = (uint8_t)noun;
	query->name_len = (uint16_t)len;
	if (len)
		memcpy(query->name, name, len);
	return query;
}

static void discard(struct lk__query *query)
{
	if (query->request.kind == LK__TOPOLOGY)
		free(query->into);
	free(query->label);
	free(query);
}

static void unlist(struct lk__core *core, struct lk__query *query)
{
	if (query->prev)
		query->prev->next = query->next;
	else
		core->queries = query->next;
	if (query->next)
		query->next->prev = query->prev;
	query->next = query->prev = NULL;
}

static void enqueue(struct lk__core *core, struct lk__session *session, struct lk__query *query)
{
	struct lk__pending *request = &query->request;

	query->asked = true;
	query->session = session;
	request->by_text = true;
	lk__pending_enqueue(session, request);
	query->next = core->queries;
	if (query->next)
		query->next->prev = query;
	core->queries = query;
}

void lk__core_ask_detached(struct lk__core *core, struct lk__session *session,
                           struct lk__query *query)
{
	query->detached = true;
	enqueue(core, session, query);
}

/* Begin the op.  False when the client was closed: it is done. */
static bool begin(struct lk__core *core, int64_t now_ns, struct lk__op *op, size_t count)
{
	lk__op_begin(core, now_ns, op);
	if (core->closing) {
		lk__complete(core, op, LK_ECLOSED, "the client was closed");
		return false;
	}
	op->awaits = LK__FOR_QUERY;
	op->unanswered = count;
	if (!count)
		lk__complete(core, op, LK_OK, NULL);
	return true;
}

void lk__core_query(struct lk__core *core, struct lk__session *session, int64_t now_ns,
                    struct lk__op *op, struct lk__query *const *queries, size_t count)
{
	op->session = session;
	if (!begin(core, now_ns, op, count))
		return;
	for (size_t i = 0; i < count; i++) {
		queries[i]->op = op;
		enqueue(core, session, queries[i]);
	}
}

void lk__core_query_each(struct lk__core *core, struct lk__session *const *sessions, int64_t now_ns,
                         struct lk__op *op, struct lk__query *const *queries, size_t count)
{
	op->collects = true;
	if (!begin(core, now_ns, op, count))
		return;
	for (size_t i = 0; i < count; i++) {
		queries[i]->op = op;
		enqueue(core, sessions[i], queries[i]);
	}
}

/* Detach the op from its queries.  Returns the first of them without a response. */
static struct lk__query *detach(struct lk__core *core, const struct lk__op *op)
{
	struct lk__query *first = NULL;

	for (struct lk__query *query = core->queries; query; query = query->next) {
		if (query->op != op)
			continue;
		query->op = NULL;
		first = query; /* the list is in reverse order */
	}
	return first;
}

/* The question for the topology has its answer, or will have none. */
static void end_topology(struct lk__core *core, struct lk__query *query)
{
	query->session->topology_asked = false;
	if (query->why.err || query->answer.kind != LK__LISTED)
		return;
	free(core->topology);
	core->topology = query->into;
	core->topology_from = query->session;
	query->into = NULL;
}

static void end(struct lk__core *core, struct lk__query *query)
{
	struct lk__op *op = query->op;

	if (query->request.kind == LK__TOPOLOGY)
		end_topology(core, query);
	query->request.state = LK__IDLE;
	query->op = NULL;
	query->done = true;
	unlist(core, query);
	if (op && query->why.err && !op->collects) {
		detach(core, op);
		lk__complete(core, op, query->why.err, query->why.text);
	} else if (op && !--op->unanswered) {
		lk__complete(core, op, LK_OK, NULL);
	}
	if (query->detached)
		discard(query);
}

/* Why the query has no answer yet. */
static void explain(const struct lk__core *core, const struct lk__query *query, struct lk__why *why)
{
	if (query->request.state == LK__IN_FLIGHT) {
		lk__why_set(why, LK_EUNKNOWN, "%s: no response within %lld ms", core->server,
		            (long long)(core->command_timeout_ns / MS));
	} else if (lk__session_is_up(query->session)) {
		/* Out of memory, or the socket's buffer is full. */
		lk__why_set(why, LK_ECONN, "%s: request not sent in time", core->server);
	} else {
		*why = query->session->why;
		why->err = lk__session_unasked(query->session);
	}
}

void lk__query_abandon(struct lk__core *core, struct lk__op *op)
{
	const struct lk__query *first;
	struct lk__why why;

	for (struct lk__query *query = core->queries; query && op->collects; query = query->next)
		if (query->op == op)
			explain(core, query, &query->why);
	first = detach(core, op);
	if (op->collects) {
		lk__complete(core, op, LK_OK, NULL);
		return;
	}
	explain(core, first, &why);
	lk__complete(core, op, why.err, why.text);
}

void lk__query_free(struct lk__core *core, struct lk__query *query)
{
	if (!query)
		return;
	if (query->request.state == LK__IN_FLIGHT) {
		if (query->request.kind != LK__TOPOLOGY) /* that has its own */
			query->into = NULL;
		query->detached = true;
		return;
	}
	if (query->asked)
		lk__pending_dequeue(core, &query->request);
	if (query->asked && !query->done)
		unlist(core, query);
	discard(query);
}

void lk__query_answer(struct lk__core *core, struct lk__query *query,
                      const struct lk__answer *answer)
{
	if (answer->kind == LK__STALE && query->request.kind != LK__END_GRACE) {
		query->request.state = LK__IDLE;
		query->stale = true;
		lk__memory_ask(query->session);
		return;
	}
	query->answer = *answer;
	query->answer.text = NULL;
	if (answer->kind == LK__FAILED)
		query->why.err = answer->ambiguous ? LK_EUNKNOWN : answer->err;
	if (answer->kind == LK__FAILED && answer->text)
		snprintf(query->why.text, sizeof(query->why.text), "%s", answer->text);
	end(core, query);
}

void lk__query_move(struct lk__query *query, struct lk__session *session)
{
	query->session = session;
	if (query->op)
		query->op->session = session;
}

void lk__queries_resume(struct lk__core *core, struct lk__session *session)
{
	for (struct lk__query *query = core->queries; query; query = query->next) {
		if (query->session != session || !query->stale)
			continue;
		query->stale = false;
		lk__pending_enqueue(session, &query->request);
	}
}

void lk__queries_unresumed(struct lk__core *core, struct lk__session *session,
                           const struct lk__answer *answer)
{
	struct lk__query *query = core->queries, *next;

	for (; query; query = next) {
		next = query->next;
		if (query->session == session && query->stale)
			lk__query_answer(core, query, answer);
	}
}

void lk__queries_link_down(struct lk__core *core, const struct lk__session *session,
                           const struct lk__why *why)
{
	struct lk__query *query = core->queries, *next;

	for (; query; query = next) {
		next = query->next;
		if (query->request.link != session->index)
			continue;
		/* For the question of the topology alone, no node is dialled: it may be gone. */
		if (query->request.kind == LK__TOPOLOGY)
			lk__pending_dequeue(core, &query->request);
		else if (query->request.state != LK__IN_FLIGHT)
			continue;
		query->why = *why;
		query->why.err = LK_EUNKNOWN;
		end(core, query);
	}
}

void lk__queries_refused(struct lk__core *core, struct lk__session *session)
{
	struct lk__query *query = core->queries, *next;

	for (; query; query = next) {
		next = query->next;
		if (query->session != session &&
		    (query->request.state != LK__TO_SEND || query->request.link != session->index))
			continue;
		lk__pending_dequeue(core, &query->request);
		query->why = session->why;
		end(core, query);
	}
}

void lk__queries_fini(struct lk__core *core)
{
	while (core->queries) {
		struct lk__query *query = core->queries;
		unlist(core, query);
		discard(query);
	}
}

/* ---- A list of names ---------------------------------------------------------------------- */

bool lk__names_grow(struct lk__names *names)
{
	size_t cap = names->cap ? names->cap * 2 : 64;
	struct lk__listed_name **list;

	if (names->count < names->cap)
		return true;
	list = realloc(names->list, cap * sizeof(struct lk__listed_name *));
	if (!list)
		return false;
	names->list = list;
	names->cap = cap;
	return true;
}
