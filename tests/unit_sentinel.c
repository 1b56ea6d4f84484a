/* SPDX-License-Identifier: MIT
 * The choice of the master in virtual time: sentinels that lie, disagree, are late or gone, know no
 * such service, refuse the password, name a replica.  And any reports in any order, by seeds. */
#include "core/sentinel.h"
#include "core/heap.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#define MS INT64_C(1000000)
#define S (1000 * MS)

static struct lk__watch watch;
static int64_t now_ns = 100 * S;

static void start(int count)
{
	lk__watch_init(&watch, "service", count, now_ns);
	for (int i = 0; i < count; i++)
		snprintf(watch.sentinels[i].text, sizeof(watch.sentinels[i].text), "s%d:26379", i);
	lk__watch_begin(&watch);
}

static struct lk__place place_of(const char *host)
{
	struct lk__place place = {.port = 6379};

	snprintf(place.host, sizeof(place.host), "%s", host);
	return place;
}

static void names(int i, const char *host)
{
	const struct lk__place place = place_of(host);

	lk__watch_named(&watch, i, watch.round, now_ns, &place);
}

static void fails(int i, lk_err err, const char *text)
{
	struct lk__why why;

	lk__why_about(&why, err, watch.sentinels[i].text, "%s", text);
	lk__watch_failed(&watch, i, watch.round, now_ns, &why);
}

static void unaware(int i)
{
	lk__watch_unaware(&watch, i, watch.round, now_ns);
}

#define EXPECT_WAIT() ck_assert_int_eq(lk__watch_advise(&watch, now_ns), LK__WATCH_WAIT)
#define EXPECT_DIAL(host_)                                                                         \
	do {                                                                                       \
		ck_assert_int_eq(lk__watch_advise(&watch, now_ns), LK__WATCH_DIAL);                \
		ck_assert_str_eq(watch.place.host, host_);                                         \
		ck_assert(!watch.is_cut);                                                          \
	} while (0)
#define EXPECT_FAIL(err_, text_)                                                                   \
	do {                                                                                       \
		struct lk__why why_ = {0};                                                         \
		ck_assert_int_eq(lk__watch_advise(&watch, now_ns), LK__WATCH_FAIL);                \
		ck_assert_int_eq(lk__watch_why(&watch, &why_), err_);                              \
		ck_assert_int_eq(why_.err, err_);                                                  \
		ck_assert_str_eq(why_.text, text_);                                                \
	} while (0)

/* Three sentinels that name a; the link leads there. */
static void start_at_a(void)
{
	start(3);
	for (int i = 0; i < 3; i++)
		names(i, "a");
	EXPECT_DIAL("a");
}

/* ---- The choice --------------------------------------------------------------------------- */

TEST(nothing_is_dialled_before_a_sentinel_answers)
{
	start(3);
	EXPECT_WAIT();
	ck_assert_int_eq(lk__watch_due(&watch), LK__NEVER);
	now_ns += 3600 * S;
	EXPECT_WAIT();
	ck_assert_int_eq(watch.place.port, 0);
}

TEST(majority_of_all_is_dialled_at_once)
{
	start(3);
	names(2, "a");
	EXPECT_WAIT();
	names(0, "a");
	EXPECT_DIAL("a");
	start(1);
	names(0, "b");
	EXPECT_DIAL("b");
}

TEST(sentinels_that_are_late_or_gone_delay_the_dial_by_300_ms)
{
	start(3);
	names(1, "a");
	now_ns += 300 * MS - 1;
	EXPECT_WAIT();
	ck_assert_int_eq(lk__watch_due(&watch), now_ns + 1);
	now_ns += 1;
	EXPECT_DIAL("a");
	/* A late one that agrees changes nothing. */
	names(0, "a");
	ck_assert(!watch.is_cut);
	/* One that fails is not waited for. */
	start(3);
	names(1, "a");
	fails(0, LK_ECONN, "connection refused");
	fails(2, LK_ECONN, "connection refused");
	EXPECT_DIAL("a");
}

TEST(one_sentinel_that_lies_is_outvoted)
{
	start(3);
	names(0, "liar");
	names(1, "a");
	EXPECT_WAIT();
	names(2, "a");
	EXPECT_DIAL("a");
	/* It lies on, and is asked again; the link stays. */
	for (int i = 0; i < 5; i++) {
		now_ns += S;
		names(0, "liar");
		ck_assert(!watch.is_cut);
	}
}

TEST(one_lie_that_changes_cuts_the_link_and_is_outvoted_again)
{
	start(3);
	names(0, "liar");
	names(1, "a");
	names(2, "a");
	EXPECT_DIAL("a");
	names(0, "other");
	ck_assert(watch.is_cut);
	lk__watch_begin(&watch);
	names(0, "other");
	names(1, "a");
	names(2, "a");
	EXPECT_DIAL("a");
	names(0, "other");
	ck_assert(!watch.is_cut);
}

TEST(tie_goes_to_the_latest_change)
{
	start(2);
	names(0, "a");
	names(1, "a");
	EXPECT_DIAL("a");
	now_ns += S;
	names(0, "b");
	ck_assert(watch.is_cut);
	lk__watch_begin(&watch);
	names(1, "a");
	EXPECT_WAIT();
	names(0, "b");
	EXPECT_DIAL("b");
	/* The other one learns of it later. */
	now_ns += S;
	names(1, "a");
	ck_assert(!watch.is_cut);
	names(1, "b");
	ck_assert(!watch.is_cut);
}

TEST(sentinel_that_returns_with_old_news_wins_no_tie)
{
	start(2);
	names(0, "a");
	fails(1, LK_ECONN, "connection refused");
	EXPECT_DIAL("a");
	now_ns += S;
	names(1, "b");
	ck_assert(watch.is_cut);
	fails(0, LK_ECONN, "connection refused");
	lk__watch_begin(&watch);
	names(1, "b");
	now_ns += S;
	names(0, "a"); /* it was gone when the others changed */
	EXPECT_DIAL("b");
}

/* ---- The cut ------------------------------------------------------------------------------ */

TEST(one_sentinel_that_names_another_master_cuts_the_link)
{
	struct lk__why why;

	start_at_a();
	names(1, "a");
	ck_assert(!watch.is_cut);
	names(2, "b");
	ck_assert(watch.is_cut);
	lk__watch_cut_why(&watch, &why);
	ck_assert_str_eq(why.text, "service: sentinel s2:26379 names b:6379 instead of a:6379");
	ck_assert_int_eq(why.err, LK_EUNKNOWN);
}

TEST(another_port_is_another_master)
{
	struct lk__place place = place_of("a");

	start_at_a();
	place.port = 6380;
	lk__watch_named(&watch, 0, watch.round, now_ns, &place);
	ck_assert(watch.is_cut);
}

TEST(report_during_the_dial_cuts_it)
{
	start(3);
	names(0, "a");
	names(1, "a");
	EXPECT_DIAL("a");
	/* The third one was asked as well, and knows more. */
	names(2, "b");
	ck_assert(watch.is_cut);
	lk__watch_begin(&watch);
	ck_assert(!watch.is_cut);
	names(2, "b");
	names(1, "b");
	EXPECT_DIAL("b");
}

TEST(report_from_before_the_attempt_is_no_vote)
{
	const struct lk__place a = place_of("a");

	start_at_a();
	lk__watch_begin(&watch);
	for (int i = 0; i < 3; i++)
		lk__watch_named(&watch, i, watch.round - 1, now_ns, &a);
	now_ns += 10 * S;
	EXPECT_WAIT();
	names(0, "b");
	now_ns += S;
	EXPECT_DIAL("b");
	/* Nor does an old report cut the link when it is repeated. */
	names(1, "a");
	ck_assert(!watch.is_cut);
}

TEST(stale_place_is_forgotten_with_the_link)
{
	start_at_a();
	lk__watch_leave(&watch);
	names(0, "b");
	ck_assert(!watch.is_cut);
	EXPECT_DIAL("a");
}

/* A dialled server says that it is a replica: the same sentinels are asked again, and again. */
TEST(sentinels_that_name_a_replica_are_asked_again)
{
	start_at_a();
	for (int i = 0; i < 3; i++) {
		lk__watch_begin(&watch);
		EXPECT_WAIT();
		names(0, "a");
		names(1, "a");
		EXPECT_DIAL("a");
		ck_assert_str_eq(lk__watch_witness(&watch)->text, "s0:26379");
	}
	lk__watch_begin(&watch);
	names(0, "b");
	names(1, "b");
	EXPECT_DIAL("b");
}

/* ---- After a pause ------------------------------------------------------------------------ */

#define EXPECT_AGAIN(advice) ck_assert_int_eq(lk__watch_recheck(&watch, now_ns), advice)

TEST(answers_from_before_a_pause_confirm_nothing)
{
	const struct lk__place a = place_of("a");

	start_at_a();
	lk__watch_doubt(&watch);
	ck_assert_str_eq(watch.place.host, "a");
	for (int i = 0; i < 3; i++)
		lk__watch_named(&watch, i, watch.round - 1, now_ns, &a);
	now_ns += 10 * S;
	EXPECT_AGAIN(LK__WATCH_WAIT);
	names(0, "a");
	EXPECT_AGAIN(LK__WATCH_WAIT);
	names(1, "a");
	EXPECT_AGAIN(LK__WATCH_DIAL);
}

TEST(after_a_pause_one_sentinel_is_enough_if_the_others_are_late_or_gone)
{
	start_at_a();
	lk__watch_doubt(&watch);
	names(2, "a");
	now_ns += 300 * MS - 1;
	EXPECT_AGAIN(LK__WATCH_WAIT);
	now_ns += 1;
	EXPECT_AGAIN(LK__WATCH_DIAL);
	lk__watch_doubt(&watch);
	names(2, "a");
	fails(0, LK_ECONN, "connection refused");
	unaware(1);
	EXPECT_AGAIN(LK__WATCH_DIAL);
}

TEST(after_a_pause_a_sentinel_that_names_another_master_cuts_the_link)
{
	start_at_a();
	lk__watch_doubt(&watch);
	names(1, "b");
	ck_assert(watch.is_cut);
	names(0, "a");
	names(2, "a");
	EXPECT_AGAIN(LK__WATCH_WAIT);
}

TEST(after_a_pause_no_sentinel_can_be_asked)
{
	struct lk__why why;

	start(4);
	names(3, "liar");
	for (int i = 0; i < 3; i++)
		names(i, "a");
	EXPECT_DIAL("a");
	lk__watch_doubt(&watch);
	fails(0, LK_ECONN, "connection refused");
	fails(1, LK_EAUTH, "NOAUTH Authentication required.");
	unaware(2);
	now_ns += 10 * S;
	EXPECT_AGAIN(LK__WATCH_WAIT);
	names(3, "liar");
	EXPECT_AGAIN(LK__WATCH_FAIL);
	ck_assert_int_eq(lk__watch_doubt_why(&watch, &why), LK_ECONN);
	ck_assert_str_eq(why.text,
	                 "service: after a pause of this client, no sentinel confirms the master: "
	                 "s0:26379: connection refused, s1:26379: NOAUTH Authentication required., "
	                 "s2:26379: does not name it, s3:26379: does not name it");
	names(2, "a");
	EXPECT_AGAIN(LK__WATCH_DIAL);
}

/* ---- No answer ---------------------------------------------------------------------------- */

TEST(no_sentinel_answers)
{
	start(2);
	fails(0, LK_ECONN, "connection refused");
	EXPECT_WAIT();
	fails(1, LK_ECONN, "connecting timed out");
	EXPECT_FAIL(LK_ECONN, "service: no sentinel answers: s0:26379: connection refused, "
	                      "s1:26379: connecting timed out");
	/* The text has its limit. */
	start(16);
	for (int i = 0; i < 16; i++)
		fails(i, LK_ECONN, "connection refused");
	ck_assert_int_eq(lk__watch_advise(&watch, now_ns), LK__WATCH_FAIL);
}

TEST(silent_sentinels_are_named_when_time_is_over)
{
	struct lk__why why;

	start(2);
	fails(0, LK_ECONN, "connection refused");
	ck_assert_int_eq(lk__watch_why(&watch, &why), LK_ECONN);
	ck_assert_str_eq(why.text, "service: no sentinel answers: s0:26379: connection refused, "
	                           "s1:26379: no response in time");
}

TEST(unknown_service_is_a_wrong_url)
{
	start(3);
	unaware(0);
	EXPECT_WAIT();
	unaware(1);
	EXPECT_WAIT(); /* the third one may know it */
	now_ns += 300 * MS;
	EXPECT_FAIL(LK_EINVALID, "service: sentinel s0:26379 knows no such service");
	start(2);
	fails(1, LK_ECONN, "connection refused");
	unaware(0);
	EXPECT_FAIL(LK_EINVALID, "service: sentinel s0:26379 knows no such service");
}

TEST(service_that_was_known_may_come_back)
{
	start_at_a();
	lk__watch_begin(&watch);
	for (int i = 0; i < 3; i++)
		unaware(i);
	EXPECT_FAIL(LK_ECONN, "service: sentinel s0:26379 knows no such service");
}

TEST(one_sentinel_that_knows_the_service_is_enough)
{
	start(3);
	unaware(0);
	unaware(1);
	names(2, "a");
	EXPECT_DIAL("a");
	/* One that forgets the service names no other master: the link stays. */
	unaware(2);
	ck_assert(!watch.is_cut);
}

TEST(sentinels_that_refuse_say_why)
{
	start(2);
	fails(0, LK_EAUTH, "NOAUTH Authentication required.");
	fails(1, LK_ECONN, "connection refused");
	EXPECT_FAIL(LK_EAUTH, "s0:26379: NOAUTH Authentication required.");
	start(2);
	fails(0, LK_EAUTH, "NOAUTH Authentication required.");
	names(1, "a");
	EXPECT_DIAL("a");
}

TEST(loneliness_begins_with_the_last_sentinel_that_names_a_master)
{
	int64_t began_ns;

	start(2);
	ck_assert_int_eq(watch.alone_ns, now_ns);
	names(0, "a");
	ck_assert_int_eq(watch.alone_ns, LK__NEVER);
	names(1, "a");
	EXPECT_DIAL("a");
	fails(0, LK_ECONN, "connection closed");
	ck_assert_int_eq(watch.alone_ns, LK__NEVER);
	now_ns += S;
	began_ns = now_ns;
	fails(1, LK_ECONN, "connection closed");
	ck_assert_int_eq(watch.alone_ns, began_ns);
	now_ns += S;
	fails(0, LK_ECONN, "connection refused");
	unaware(1);
	ck_assert_int_eq(watch.alone_ns, began_ns);
	ck_assert(!watch.is_cut);
	names(1, "a");
	ck_assert_int_eq(watch.alone_ns, LK__NEVER);
}

/* ---- Any reports, in any order -------------------------------------------------------------- */

static uint64_t random_state;

static unsigned random_below(unsigned limit)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(random_state >> 33) % limit;
}

/* What each sentinel said last in this attempt, "" = nothing that names a place. */
static char said[LK__WATCHED_MAX][2], before[LK__WATCHED_MAX][2];

static int votes_for(const char *host, int count)
{
	int votes = 0;

	for (int i = 0; i < count; i++)
		votes += !strcmp(said[i], host);
	return votes;
}

static void check_choice(int count)
{
	int votes = votes_for(watch.place.host, count);

	ck_assert_int_gt(votes, 0); /* never an address that no sentinel names */
	for (char host[2] = "a"; host[0] <= 'd'; host[0]++)
		ck_assert_int_le(votes_for(host, count), votes);
}

/* A report of sentinel i; the link leads to the watch's place, if any. */
static void report(int i)
{
	char host[2] = {(char)('a' + (random_below(4) ? 0 : random_below(4))), 0};
	bool was_cut = watch.is_cut;
	unsigned kind = random_below(6);

	if (kind == 0) {
		fails(i, random_below(2) ? LK_ECONN : LK_EAUTH, "no");
		said[i][0] = '\0';
	} else if (kind == 1) {
		unaware(i);
		said[i][0] = '\0';
	} else {
		names(i, host);
		/* A change to another address cuts; a repeated report never does. */
		if (watch.place.port && strcmp(host, watch.place.host) && strcmp(host, before[i]))
			ck_assert(watch.is_cut);
		else
			ck_assert_int_eq(watch.is_cut, was_cut);
		memcpy(said[i], host, 2);
		memcpy(before[i], host, 2);
	}
}

TEST(any_reports_lead_to_a_named_address_or_a_reason)
{
	int dials = 0, cuts = 0, failures = 0;

	random_state = test_seed();
	for (int round = 0; round < 3000; round++) {
		int count = 1 + (int)random_below(LK__WATCHED_MAX);

		start(count);
		memset(said, 0, sizeof(said));
		memset(before, 0, sizeof(before));
		for (int step = 0; step < 60; step++) {
			enum lk__watch_advice advice;
			struct lk__why why = {0};

			now_ns += random_below(100) * MS;
			report((int)random_below((unsigned)count));
			if (watch.place.port && !watch.is_cut)
				continue;
			if (watch.is_cut || failures % 3 == 1) {
				cuts += watch.is_cut;
				failures++;
				lk__watch_begin(&watch);
				memset(said, 0, sizeof(said));
			}
			advice = lk__watch_advise(&watch, now_ns);
			if (advice == LK__WATCH_DIAL)
				check_choice(count);
			if (advice == LK__WATCH_FAIL)
				ck_assert(lk__watch_why(&watch, &why) && why.text[0]);
			dials += advice == LK__WATCH_DIAL;
			failures += advice == LK__WATCH_FAIL;
		}
	}
	ck_assert_int_gt(dials, 1000);
	ck_assert_int_gt(cuts, 1000);
	ck_assert_int_gt(failures, 100);
}
