/* SPDX-License-Identifier: MIT
 * The judge of chaos and the servers of a quorum: faults of a minority excuse nothing, those of a
 * majority excuse delays and losses, and nothing is granted while no majority can vote. */
#include "chaos/judge_made.h"

#define AT(ms) ((ms)*MS)

/* A fault of a server, of three; the server certainly does not vote meanwhile. */
static void fails(const char *kind, int member, int64_t from_ms, int64_t to_ms, const char *words)
{
	note(nemesis, "%lld %s member%d begin member=%d/3 %s\n", (long long)AT(from_ms), kind,
	     member, member, words);
	note(nemesis, "%lld %s member%d down\n", (long long)AT(from_ms + 1), kind, member);
	note(nemesis, "%lld %s member%d up\n", (long long)AT(to_ms - 1), kind, member);
	note(nemesis, "%lld %s member%d end\n", (long long)AT(to_ms), kind, member);
}

/* Free from 100 ms on, and acquired late_ms later. */
static void late_wake_up(int64_t late_ms)
{
	begin_round();
	acquire(1, LOCK, AT(10), AT(20), 5, AT(1000));
	acquire(2, LOCK, AT(30), AT(100 + late_ms), 6, AT(100 + late_ms + 900));
	records[count - 2].u.of.valid_until_ns = AT(60000);
	release(1, LOCK, AT(90), AT(100), 5, LK_OK);
	release(2, LOCK, AT(110 + late_ms), AT(120 + late_ms), 6, LK_OK);
}

TEST(judge_excuses_no_delay_while_a_minority_fails)
{
	static const char *const kinds[] = {"member-stop", "restart-member", "member-cut"};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		late_wake_up(1500);
		fails(kinds[i], 1, 50, 2000, i == 1 ? "memory=lost grace=4000" : "");
		judge();
		ONLY(PROMISE_WAKE_UP);
		ck_assert_int_eq(verdict.minority_grants, 1);
		fails("member-stop", 2, 60, 1000, "");
		judge();
		GOOD();
	}
	/* The same server twice is no majority. */
	late_wake_up(1500);
	fails("member-stop", 1, 50, 200, "");
	fails("member-stop", 1, 300, 1000, "");
	judge();
	ONLY(PROMISE_WAKE_UP);
}

/* A restarted server is young for a while, and clients reach it again a while later. */
TEST(judge_knows_that_a_young_server_fails)
{
	for (int young = 0; young < 2; young++) {
		late_wake_up(1500);
		for (size_t i = 0; i < count; i++)
			records[i].at_ns += AT(5000);
		for (size_t i = 0; i < count; i++)
			if (records[i].u.of.valid_until_ns)
				records[i].u.of.valid_until_ns += AT(5000);
		fails("restart-member", 1, 10, 20, young ? "memory=lost grace=4000" : "");
		fails("member-stop", 2, 5050, 5060, "");
		judge();
		if (young)
			GOOD();
		else
			ONLY(PROMISE_WAKE_UP);
	}
}

TEST(judge_finds_a_grant_without_a_majority)
{
	static const struct {
		int64_t got_ms;
		bool is_young, is_stopped, found;
	} cases[] = {
		{99, false, false, false},   /* before */
		{500, false, false, true},   /* two are down */
		{1005, false, false, false}, /* one is back */
		{1005, true, false, true},   /* but has forgotten */
		{5005, true, false, false},  /* no longer young */
		{500, false, true, false},   /* granted before, and read later */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int64_t got_ms = cases[i].got_ms;
		begin_round();
		options.slack_ms = 5;
		acquire(1, LOCK, AT(10), AT(got_ms), 5, AT(got_ms + 100));
		records[0].u.of.valid_until_ns = AT(60000);
		release(1, LOCK, AT(got_ms + 10), AT(got_ms + 20), 5, LK_OK);
		fails("majority-stop", 0, 100, 6000, "");
		fails("restart-majority", 2, 100, 1000,
		      cases[i].is_young ? "memory=lost grace=4000" : "");
		if (cases[i].is_stopped)
			note(nemesis, "%lld stop 1 begin\n%lld stop 1 end\n", (long long)AT(90),
			     (long long)AT(499));
		judge();
		if (cases[i].found)
			ONLY(PROMISE_EXCLUSION);
		else
			GOOD();
	}
}

/* The clients of an emptied server may know that at any time afterwards. */
TEST(judge_finds_a_grant_by_a_server_that_was_emptied)
{
	for (int late = 0; late < 2; late++) {
		begin_round();
		acquire(1, LOCK, AT(10), AT(late ? 4200 : 2000), 5, AT(5000));
		records[0].u.of.valid_until_ns = AT(60000);
		release(1, LOCK, AT(4300), AT(4310), 5, LK_OK);
		for (int i = 0; i < 2; i++)
			note(nemesis,
			     "%lld member-flush member%d begin member=%d/3 memory=lost grace=4000\n"
			     "%lld member-flush member%d down\n%lld member-flush member%d end\n",
			     (long long)AT(100), i, i, (long long)AT(101), i, (long long)AT(101),
			     i);
		judge();
		if (late)
			GOOD();
		else
			ONLY(PROMISE_EXCLUSION);
	}
}

/* Lost at 300 ms, though the lease would have lasted until 1000 ms. */
static void early_loss(uint8_t flags)
{
	struct history_record *lost;

	begin_round();
	acquire(1, LOCK, AT(10), AT(20), 5, AT(1000));
	records[0].flags = records[1].flags = flags;
	lost = put(AT(300), 1, HISTORY_LOST, HISTORY_EVENT, LOCK);
	lost->u.of.fence = 5;
	lost->u.of.amount = LK_LOST_TAKEN;
	release(1, LOCK, AT(350), AT(360), 5, LK_ELOST);
}

TEST(judge_excuses_a_loss_only_where_a_majority_has_failed)
{
	/* One server after the other: the hold had a majority, which got smaller. */
	early_loss(HISTORY_FIXED);
	fails("restart-member", 0, 50, 100, "memory=lost grace=4000");
	judge();
	ONLY(PROMISE_OWNER);
	fails("member-flush", 2, 200, 210, "memory=lost grace=4000");
	judge();
	GOOD();
	ck_assert_int_eq(verdict.taken_excused, 1);
	/* That was after the loss. */
	early_loss(HISTORY_FIXED);
	fails("restart-member", 0, 50, 100, "memory=lost grace=4000");
	fails("member-flush", 2, 400, 410, "memory=lost grace=4000");
	judge();
	ONLY(PROMISE_OWNER);
}

/* A release finds a new memory that its process has not noticed: without spare legs it says that
 * the hold was lost. */
TEST(judge_excuses_a_loss_that_a_release_finds_at_an_emptied_server)
{
	for (int late = 0; late < 2; late++) {
		int64_t at_ms = late ? 200 : 95;
		begin_round();
		acquire(1, LOCK, AT(10), AT(20), 5, AT(1000));
		release(1, LOCK, AT(90), AT(100), 5, LK_ELOST);
		for (size_t j = 0; j < 3; j++)
			records[j].flags = HISTORY_FIXED;
		records[2].u.of.valid_until_ns = AT(1000); /* when its release begins */
		note(nemesis,
		     "%lld member-flush member1 begin member=1/3 memory=lost grace=4000\n"
		     "%lld member-flush member1 down\n%lld member-flush member1 end\n",
		     (long long)AT(at_ms), (long long)AT(at_ms + 1), (long long)AT(at_ms + 1));
		judge();
		if (late)
			ONLY(PROMISE_OWNER);
		else
			GOOD();
	}
}

TEST(judge_finds_a_renewed_hold_that_is_lost_with_a_minority)
{
	static const struct {
		int64_t lease_ms;
		bool fixed, majority, stopped, found;
	} cases[] = {
		{1000, false, false, false, true}, {1000, true, false, false, false},
		{1000, false, true, false, false}, {1000, false, false, true, false},
		{400, false, false, false, false}, /* perhaps a slow machine */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct history_record *lost;
		begin_round();
		acquire(1, LOCK, AT(10), AT(20), 5, AT(1000));
		records[0].u.of.amount = cases[i].lease_ms;
		records[0].flags = records[1].flags = cases[i].fixed ? HISTORY_FIXED : 0;
		lost = put(AT(1000), 1, HISTORY_LOST, HISTORY_EVENT, LOCK);
		lost->u.of.fence = 5;
		lost->u.of.amount = LK_LOST_EXPIRED;
		fails("member-stop", 0, 50, 3000, "");
		if (cases[i].majority)
			fails("member-stop", 1, 60, 3000, "");
		if (cases[i].stopped)
			note(nemesis, "%lld stop 1 begin\n%lld stop 1 end\n", (long long)AT(100),
			     (long long)AT(1500));
		judge();
		if (cases[i].found)
			ONLY(PROMISE_RENEWAL);
		else
			GOOD();
	}
}

/* The first holder loses its hold early, and records that late: it is certain only as far as it was
 * seen.  The second one enters, and finds it inside. */
TEST(judge_trusts_a_shaky_hold_as_far_as_it_was_seen)
{
	for (int seen = 0; seen < 2; seen++) {
		for (int majority = 0; majority < 2; majority++) {
			struct history_record *record;
			begin_round();
			acquire(1, LOCK, AT(10), AT(20), 5, AT(1000));
			records[0].flags = records[1].flags = HISTORY_FIXED;
			record = put(AT(seen ? 240 : 180), 1, HISTORY_SEEN, HISTORY_EVENT, LOCK);
			record->u.of.fence = 5;
			record->u.of.valid_until_ns = AT(1000);
			acquire(2, LOCK, AT(100), AT(200), 6, AT(1000));
			record = put(AT(210), 2, HISTORY_ENTER, HISTORY_EVENT, LOCK);
			record->u.of.fence = 6;
			record->err = 1;
			record->u.of.amount = 1;
			record = put(AT(300), 1, HISTORY_LOST, HISTORY_EVENT, LOCK);
			record->u.of.fence = 5;
			record->u.of.amount = LK_LOST_TAKEN;
			release(2, LOCK, AT(310), AT(320), 6, LK_OK);
			fails("member-stop", 0, 50, 400, "");
			if (majority)
				fails("member-stop", 1, 30, 60, "");
			judge();
			if (majority && !seen)
				GOOD();
			else {
				BAD(PROMISE_EXCLUSION);
				BAD(PROMISE_CANARY);
			}
			ck_assert_int_eq(verdict.canaries_excused, majority && !seen);
		}
	}
}

/* Such a hold may get its leg again, and last. */
TEST(judge_excuses_a_meeting_with_a_hold_that_goes_on)
{
	for (int late = 0; late < 2; late++) {
		int64_t got_ms = late ? 1200 : 200;
		struct history_record *seen;
		begin_round();
		acquire(1, LOCK, AT(10), AT(20), 5, AT(1000));
		seen = put(AT(900), 1, HISTORY_SEEN, HISTORY_EVENT, LOCK);
		seen->u.of.fence = 5;
		seen->u.of.valid_until_ns = AT(1900);
		acquire(2, LOCK, AT(160), AT(got_ms), 6, AT(got_ms + 1000));
		release(2, LOCK, AT(got_ms + 10), AT(got_ms + 20), 6, LK_OK);
		release(1, LOCK, AT(1500), AT(1510), 5, LK_OK);
		note(nemesis, "%lld member-clock member0 at member=0/3 clock=900\n",
		     (long long)AT(150));
		judge();
		if (late)
			BAD(PROMISE_EXCLUSION);
		else
			GOOD();
		ck_assert_int_eq(verdict.excused, !late);
	}
}

/* A clock that is set forward ends leases, and the youth of its server, so much earlier. */
TEST(judge_excuses_what_a_clock_set_forward_may_cause)
{
	for (int moved = 0; moved < 2; moved++) {
		begin_round();
		acquire(1, LOCK, AT(10), AT(20), 5, AT(1000));
		acquire(2, LOCK, AT(100), AT(200), 6, AT(1000));
		release(2, LOCK, AT(310), AT(320), 6, LK_OK);
		release(1, LOCK, AT(330), AT(340), 5, LK_OK);
		note(nemesis, "%lld member-clock member0 at member=0/3%s\n", (long long)AT(150),
		     moved ? " clock=900" : "");
		judge();
		if (moved)
			GOOD();
		else
			BAD(PROMISE_EXCLUSION);
		ck_assert_int_eq(verdict.excused, moved);
	}
	for (int moved = 0; moved < 2; moved++) {
		begin_round();
		acquire(1, LOCK, AT(10), AT(4500), 5, AT(4900));
		records[0].u.of.valid_until_ns = AT(60000);
		release(1, LOCK, AT(4510), AT(4520), 5, LK_OK);
		fails("restart-majority", 0, 100, 1000, "memory=lost grace=4000");
		fails("restart-majority", 1, 100, 1000, "memory=lost grace=4000");
		note(nemesis, "%lld member-clock member0 at member=0/3%s\n", (long long)AT(2000),
		     moved ? " clock=900" : "");
		judge();
		if (moved)
			GOOD();
		else
			ONLY(PROMISE_EXCLUSION);
	}
}
