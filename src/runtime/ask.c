/* SPDX-License-Identifier: MIT
 * Questions: what a call asks the store once. */
#include "client.h"

void lk__ask_detached(struct lk__link *link, struct lk__question *question)
{
	if (!question)
		return;
	question->detached = true;
	lk__core_ask(&link->client->core, &link->session, question);
}

struct lk__question *lk__handle_question(const struct lk__handle *handle,
                                         enum lk__request_kind kind)
{
	return lk__question_new(kind, (lk_kind)handle->kind, handle->name->bytes,
	                        handle->name->len);
}

/* Why it has no answer: it was sent, or it was not. */
static void explain(const struct lk__link *link, struct lk__question *question)
{
	const struct lk__target *target = &link->client->target;
	struct lk__why *why = &question->why;

	if (question->request.where == LK__UNDER_WAY) {
		lk__why_set(why, LK_EUNKNOWN, "%s: no answer within %lld ms", target->text,
		            (long long)(target->command_timeout_ns / LK__MS));
	} else if (link->connection) {
		/* Want of memory, or a socket that takes nothing. */
		lk__why_set(why, LK_ECONN, "%s: it could not be sent in time", target->text);
	} else {
		*why = link->session.why;
		if (why->err == LK_EUNKNOWN || !why->err)
			why->err = LK_ECONN;
	}
}

static void wait_for(struct lk__link *link, struct lk__question *question, int64_t deadline_ns)
{
	struct lk__sleeper sleeper = {.waiter.session = &link->session};
	struct lk_client *client = link->client;

	if (lk__park_init(&sleeper.park)) {
		lk__question_await(&client->core, question, &sleeper.waiter);
		lk__wire_wait(client, &sleeper, deadline_ns);
		question->waiter = NULL;
		lk__park_fini(&sleeper.park);
	}
	if (!question->done)
		explain(link, question);
	lk__wire_settle(client);
}

lk_err lk__ask_all(struct lk__link *link, struct lk__question *const *questions, size_t count)
{
	struct lk_client *client = link->client;
	int64_t deadline_ns = lk__now_ns() + client->target.command_timeout_ns;
	struct lk__why why = {0};

	if (client->core.closing)
		return lk__failf(LK_ECLOSED, "the client was closed");
	for (size_t i = 0; i < count; i++)
		lk__core_ask(&client->core, &link->session, questions[i]);
	for (size_t i = 0; i < count; i++) {
		if (!questions[i]->done)
			wait_for(link, questions[i], why.err ? 0 : deadline_ns);
		if (questions[i]->why.err && !why.err)
			why = questions[i]->why;
	}
	return why.err ? lk__fail(&why) : LK_OK;
}

lk_err lk__ask(struct lk__link *link, struct lk__question *question)
{
	if (!question)
		return lk__failf(LK_ENOMEM, "out of memory");
	return lk__ask_all(link, &question, 1);
}

lk_err lk__odd_answer(const struct lk_client *client)
{
	return lk__failf(LK_ESERVER, "%s: answered a script with something else",
	                 client->target.text);
}
