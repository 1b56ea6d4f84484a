/* SPDX-License-Identifier: MIT
 * One call with queries to several servers: it ends when each has an answer or an error. */
#include "core/query.h"
#include "core/session.h"
#include "harness/test.h"

#include <string.h>

#define SERVERS 3
#define TIMEOUT_NS INT64_C(2000000000)

static struct lk__core core;
static struct lk__session sessions[SERVERS];
static struct lk__query *queries[SERVERS];
static struct lk__op op;

/* The first servers are up; each has a query. */
static void ask(unsigned up)
{
	struct lk__session *to[SERVERS];

	ck_assert(lk__core_init(&core, 1));
	core.command_timeout_ns = TIMEOUT_NS;
	for (unsigned i = 0; i < SERVERS; i++) {
		lk__session_init(&sessions[i], TIMEOUT_NS, TIMEOUT_NS);
		ck_assert(lk__core_add_session(&core, &sessions[i]));
		to[i] = &sessions[i];
		if (i < up)
			lk__core_link_up(&core, &sessions[i], 1);
		else
			sessions[i].why = (struct lk__why){LK_ECONN, "refused"};
		queries[i] = lk__query_new(LK__KIND, LK_KIND_NONE, "a", 1);
		ck_assert_ptr_nonnull(queries[i]);
	}
	lk__core_query_each(&core, to, 1, &op, queries, SERVERS);
	for (unsigned i = 0; i < up; i++)
		ck_assert_ptr_eq(lk__core_next_request(&core, &sessions[i], 2),
		                 &queries[i]->request);
}

static void answer(unsigned server, enum lk__answer_kind kind)
{
	const struct lk__answer said = {.kind = kind, .err = LK_EAUTH, .text = "no right"};

	lk__core_answer(&core, 3, &queries[server]->request, &said);
}

static void end(void)
{
	for (unsigned i = 0; i < SERVERS; i++)
		lk__query_free(&core, queries[i]);
	lk__core_fini(&core);
}

TEST(call_waits_for_each_answer)
{
	ask(SERVERS);
	answer(1, LK__IS);
	answer(0, LK__IS);
	ck_assert(!op.done);
	answer(2, LK__IS);
	ck_assert(op.done && !op.why.err);
	end();
}

TEST(error_of_one_server_does_not_end_the_call)
{
	ask(SERVERS);
	answer(1, LK__FAILED);
	answer(0, LK__IS);
	ck_assert(!op.done);
	answer(2, LK__IS);
	ck_assert(op.done && !op.why.err);
	ck_assert(!queries[0]->why.err && !queries[2]->why.err);
	ck_assert_int_eq(queries[1]->why.err, LK_EAUTH);
	ck_assert_str_eq(queries[1]->why.text, "no right");
	end();
}

TEST(lost_link_ends_its_query_alone)
{
	const struct lk__why why = {LK_ECONN, "lost"};

	ask(SERVERS);
	answer(0, LK__IS);
	answer(1, LK__IS);
	lk__core_link_down(&core, &sessions[2], 3, &why, 0);
	ck_assert(op.done && !op.why.err);
	ck_assert_int_eq(queries[2]->why.err, LK_EUNKNOWN);
	end();
}

TEST(deadline_ends_the_call_and_gives_each_query_its_reason)
{
	ask(2);
	answer(0, LK__IS);
	lk__core_tick(&core, 1 + TIMEOUT_NS - 1);
	ck_assert(!op.done);
	lk__core_tick(&core, 1 + TIMEOUT_NS);
	ck_assert(op.done && !op.why.err);
	ck_assert(!queries[0]->why.err);
	ck_assert_int_eq(queries[1]->why.err, LK_EUNKNOWN);
	ck_assert_int_eq(queries[2]->why.err, LK_ECONN);
	ck_assert_str_eq(queries[2]->why.text, "refused");
	/* A late answer is for no call. */
	answer(1, LK__IS);
	end();
}
