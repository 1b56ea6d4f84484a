/* SPDX-License-Identifier: MIT
 * A link's policy in virtual time: connecting and backing off, silence, overdue responses, a
 * suspended machine. */
#include "core/core.h"
#include "test.h"

#define MS INT64_C(1000000)
#define S (1000 * MS)

static struct lk__session session;

static void init(void)
{
	lk__session_init(&session, 2 * S, 1 * S);
	session.users = 1;
}

static void link_up(int64_t now_ns)
{
	lk__session_dial(&session);
	lk__session_up(&session, now_ns);
}

static void dial_failed(int64_t now_ns, lk_err err, uint64_t random)
{
	lk__session_dial_failed(&session, now_ns, &(struct lk__why){.err = err, .text = "no"},
	                        random);
}

static enum lk__duty next(int64_t now_ns)
{
	return lk__session_next(&session, now_ns, LK__NEVER);
}

TEST(session_dials_at_once_and_only_once)
{
	init();
	ck_assert_int_eq(next(5 * S), LK__DUTY_DIAL);
	ck_assert_int_eq(next(50 * S), LK__DUTY_NONE);
	ck_assert_int_eq(lk__session_due(&session, LK__NEVER), LK__NEVER);
}

TEST(session_backs_off_from_20_to_500_ms)
{
	static const int64_t pauses_ms[] = {20, 40, 80, 160, 320, 500, 500};
	int64_t now_ns = 7 * S, due_ns;

	init();
	for (int i = 0; i < 7; i++) {
		ck_assert_int_eq(next(now_ns), LK__DUTY_DIAL);
		dial_failed(now_ns, LK_ECONN, UINT64_MAX - (uint64_t)i);
		due_ns = lk__session_due(&session, LK__NEVER);
		ck_assert_int_ge(due_ns, now_ns + pauses_ms[i] * MS / 2);
		ck_assert_int_lt(due_ns, now_ns + pauses_ms[i] * MS);
		ck_assert_int_eq(next(due_ns - 1), LK__DUTY_NONE);
		now_ns = due_ns;
	}
}

TEST(session_asks_seldom_with_credentials_that_were_refused)
{
	int64_t now_ns = 7 * S;

	init();
	for (int i = 0; i < 7; i++)
		dial_failed(now_ns, LK_EAUTH, 0);
	ck_assert_int_ge(lk__session_due(&session, LK__NEVER), now_ns + 2500 * MS);
}

TEST(session_redials_at_once_after_a_link_that_lasted)
{
	init();
	for (int i = 0; i < 7; i++)
		dial_failed(0, LK_ECONN, 0);
	link_up(10 * S);
	lk__session_down(&session, 11 * S + 1, 0);
	ck_assert_int_eq(next(11 * S + 1), LK__DUTY_DIAL);
	/* And the next pause is the initial one again. */
	dial_failed(12 * S, LK_ECONN, 0);
	ck_assert_int_eq(lk__session_due(&session, LK__NEVER), 12 * S + 10 * MS);
}

TEST(session_backs_off_after_a_link_that_did_not_last)
{
	init();
	link_up(10 * S);
	lk__session_down(&session, 11 * S, 0);
	ck_assert_int_eq(next(11 * S), LK__DUTY_NONE);
	ck_assert_int_eq(lk__session_due(&session, LK__NEVER), 11 * S + 10 * MS);
}

TEST(session_pings_a_silent_link_within_a_third_of_the_shortest_lease)
{
	init();
	link_up(10 * S);
	ck_assert_int_eq(lk__session_due(&session, LK__NEVER), 15 * S);
	lk__session_mind_lease(&session, 6000);
	lk__session_mind_lease(&session, 60000);
	ck_assert_int_eq(next(12 * S - 1), LK__DUTY_NONE);
	ck_assert_int_eq(next(12 * S), LK__DUTY_PING);
	lk__session_heard(&session, 12 * S + 5 * MS);
	ck_assert_int_eq(lk__session_due(&session, LK__NEVER), 14 * S + 5 * MS);
	/* Never more often than every 100 ms. */
	lk__session_mind_lease(&session, 100);
	ck_assert_int_eq(lk__session_due(&session, LK__NEVER), 12 * S + 105 * MS);
}

TEST(session_gives_a_link_up_that_does_not_answer_a_ping)
{
	init();
	link_up(10 * S);
	ck_assert_int_eq(next(15 * S), LK__DUTY_PING);
	ck_assert_int_eq(next(15 * S), LK__DUTY_NONE);
	ck_assert_int_eq(next(16 * S - 1), LK__DUTY_NONE);
	ck_assert_int_eq(next(16 * S), LK__DUTY_SILENT);
}

TEST(session_leaves_an_idle_link_alone)
{
	init();
	session.users = 0;
	link_up(10 * S);
	ck_assert_int_eq(lk__session_due(&session, LK__NEVER), LK__NEVER);
	ck_assert_int_eq(lk__session_next(&session, 100 * S, LK__NEVER), LK__DUTY_NONE);
	/* Its silence until a call begins proves nothing. */
	lk__session_wakes(&session, 100 * S);
	session.users = 1;
	ck_assert_int_eq(lk__session_due(&session, LK__NEVER), 105 * S);
}

/* ---- Lazy: it connects for calls only ------------------------------------------------------- */

static void init_lazy(void)
{
	init();
	session.lazy = true;
	session.users = 0;
}

TEST(lazy_session_dials_when_a_call_needs_it)
{
	struct lk__pending query;

	init_lazy();
	ck_assert_int_eq(lk__session_due(&session, LK__NEVER), LK__NEVER);
	ck_assert_int_eq(next(5 * S), LK__DUTY_NONE);
	session.users = 1;
	ck_assert_int_le(lk__session_due(&session, LK__NEVER), 5 * S);
	ck_assert_int_eq(next(5 * S), LK__DUTY_DIAL);
	ck_assert_int_eq(next(5 * S), LK__DUTY_NONE);
	/* A query is a call, too. */
	init_lazy();
	session.send_queue = &query;
	ck_assert_int_eq(next(5 * S), LK__DUTY_DIAL);
}

TEST(lazy_session_backs_off_while_a_call_waits)
{
	init_lazy();
	session.users = 1;
	ck_assert_int_eq(next(5 * S), LK__DUTY_DIAL);
	dial_failed(5 * S, LK_ECONN, 0);
	ck_assert_int_eq(lk__session_due(&session, LK__NEVER), 5 * S + 10 * MS);
	ck_assert_int_eq(next(5 * S), LK__DUTY_NONE);
	session.users = 0;
	ck_assert_int_eq(next(9 * S), LK__DUTY_NONE);
	session.users = 1;
	ck_assert_int_eq(next(9 * S), LK__DUTY_DIAL);
}

TEST(lazy_session_does_not_wait_out_what_waiting_cannot_cure)
{
	static const lk_err errs[] = {LK_EAUTH, LK_ESERVER, LK_ENOSERVER, LK_EINVALID};

	for (size_t i = 0; i < sizeof(errs) / sizeof(*errs); i++) {
		init_lazy();
		session.users = 1;
		ck_assert_int_eq(next(5 * S), LK__DUTY_DIAL);
		dial_failed(5 * S, errs[i], 0);
		ck_assert_int_eq(next(5 * S), LK__DUTY_REFUSE);
		session.users = 0; /* ended by the refusal */
		ck_assert_int_eq(lk__session_due(&session, LK__NEVER), LK__NEVER);
		/* A call that begins soon afterwards ends with the known error. */
		session.users = 1;
		ck_assert_int_eq(next(5 * S + 10 * MS - 1), LK__DUTY_REFUSE);
		ck_assert_int_eq(lk__session_unasked(&session), errs[i]);
		ck_assert_int_eq(next(5 * S + 10 * MS), LK__DUTY_DIAL);
	}
}

TEST(lazy_session_that_was_up_is_like_any_other)
{
	init_lazy();
	link_up(10 * S);
	lk__session_down(&session, 12 * S, 0);
	ck_assert_int_eq(next(12 * S), LK__DUTY_DIAL);
	session.users = 1;
	dial_failed(12 * S, LK_EAUTH, 0);
	ck_assert_int_eq(next(12 * S), LK__DUTY_NONE);
	ck_assert_int_eq(next(12 * S + 10 * MS), LK__DUTY_DIAL);
}

/* ---- Others --------------------------------------------------------------------------------- */

TEST(session_notices_that_a_response_is_overdue)
{
	init();
	session.users = 0;
	link_up(10 * S);
	ck_assert_int_eq(lk__session_due(&session, 12 * S), 13 * S);
	ck_assert_int_eq(lk__session_next(&session, 13 * S - 1, 12 * S), LK__DUTY_NONE);
	ck_assert_int_eq(lk__session_next(&session, 13 * S, 12 * S), LK__DUTY_OVERDUE);
}

TEST(session_reports_the_loss_once_an_outage)
{
	init();
	link_up(10 * S);
	lk__session_down(&session, 12 * S, 0);
	ck_assert(lk__session_report_loss(&session));
	ck_assert(!lk__session_report_loss(&session));
	dial_failed(13 * S, LK_ECONN, 0);
	ck_assert(!lk__session_report_loss(&session));
	link_up(14 * S);
	ck_assert(lk__session_report_loss(&session));
}

TEST(suspension_is_noticed_once)
{
	int64_t suspended_ns = 0;

	ck_assert(lk__suspend_noticed(&suspended_ns, 100 * S, 60 * S));
	ck_assert(!lk__suspend_noticed(&suspended_ns, 101 * S, 61 * S));
	ck_assert(!lk__suspend_noticed(&suspended_ns, 102 * S, 62 * S - 49 * MS));
	ck_assert(lk__suspend_noticed(&suspended_ns, 103 * S, 62 * S));
	ck_assert(!lk__suspend_noticed(&suspended_ns, 104 * S, 63 * S));
}
