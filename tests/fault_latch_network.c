/* SPDX-License-Identifier: MIT
 * Network faults that concern latches only (N2, N4, N5, N6, N16, S8 of the fault list): steps that
 * count once, openings that are found later.  fault_network.c has the others. */
#include "harness/lanes.h"
#include "harness/latch_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 300

static lk_client *far, *near; /* through the proxy, and directly */

static void set_up(void)
{
	const lk_client_options quick = {.command_timeout_ms = TIMEOUT_MS};

	fault_set_up_proxy();
	far = client_with(proxy.url, &quick);
	near = client_at(server.url);
}

static void tear_down(void)
{
	proxy_heal(&proxy);
	OK(lk_client_close(far));
	OK(lk_client_close(near));
}

static int subscribers(void)
{
	const char *text = redis_text(redis, "PUBSUB NUMSUB lk:l:0:{a}");

	return atoi(text + strcspn(text, "\n"));
}

static long long count_now(void)
{
	return redis_int(redis, "HGET lk:{a} count");
}

/* The client is connected again. */
static bool answers(lk_latch *latch)
{
	lk_latch_status status;

	return lk_latch_query(latch, &status) == LK_OK;
}

TEST_LIMIT(n2_lost_replies_count_once, 60)
{
	const struct proxy_fault drop = {.drop = true};
	long long count = 100;
	lk_latch *latch;

	set_up();
	latch = latch_named(far, "a");
	OK(lk_latch_set(latch, count, NULL));
	latch_down(latch, 1, NULL);
	count--;
	for (int i = 0; i < 3; i++) {
		int64_t dropped = proxy_count(&proxy).dropped[PROXY_COMMANDS][PROXY_TO_CLIENT];
		proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &drop);
		EXPECT(lk_latch_down(latch, 1, i ? "named" : NULL, 0, NULL), LK_EUNKNOWN);
		ck_assert_int_gt(proxy_count(&proxy).dropped[PROXY_COMMANDS][PROXY_TO_CLIENT],
		                 dropped);
		count -= i < 2; /* the last one's name had been counted */
		ck_assert_int_eq(count_now(), count);
		proxy_heal(&proxy);
		ck_assert(WITHIN(BACK_MS, answers(latch)));
		/* It is queued behind the steps that are settled in the background. */
		ck_assert(WITHIN(BACK_MS, lk_latch_down(latch, 1, NULL, 0, NULL) == LK_OK));
		count--;
		ck_assert_int_eq(count_now(), count);
	}
	tear_down();
}

/* ---- N4: cut after each byte -------------------------------------------------------------- */

#define LANE_STEPS 10000

static bool is_count(struct lane *lane)
{
	return redis_int(redis, "HGET lk:{%s} count", lane->name) == LANE_STEPS - lane->count;
}

/* One step while the link is cut after k bytes; returns whether it was cut. */
static bool down_step(struct lane *lane, int k)
{
	lk_latch_step step = {.remaining = -1};
	int64_t cuts;
	bool cut;
	lk_err err;

	if (!lane->count) {
		OK(lk_latch_set(lane->mine.latch, LANE_STEPS, NULL));
		latch_down(lane->mine.latch, ++lane->count, NULL);
	}
	cuts = lane_arm(lane, k);
	err = lk_latch_down(lane->mine.latch, 1, NULL, 0, &step);
	cut = lane_disarm(lane, cuts);
	if (err == LK_OK) {
		ck_assert(step.counted);
		lane->count++;
		ck_assert_int_eq(step.remaining, LANE_STEPS - lane->count);
	} else {
		ck_assert_msg(err == LK_EUNKNOWN || err == LK_ECONN, "%s: %s", lk_err_name(err),
		              lk_errmsg());
		lane->count += err == LK_EUNKNOWN; /* in the background */
	}
	ck_assert_msg(WITHIN(BACK_MS, is_count(lane)), "cut after %d bytes", k);
	if (!cut) {
		nap_ms(200); /* a repeated request would count twice now */
		ck_assert(is_count(lane));
	}
	return cut;
}

/* The confirmation of the subscription, or the message, is cut. */
static bool await_step(struct lane *lane, int k)
{
	int64_t cuts;

	OK(lk_latch_reset(lane->theirs.latch, 1, NULL));
	cuts = lane_arm(lane, k);
	claim_start(&lane->mine, 15000, false);
	nap_ms(20);
	ck_assert(!lane->mine.ended);
	latch_down(lane->theirs.latch, 1, NULL);
	ck_assert_msg(WITHIN(BACK_MS, lane->mine.ended), "cut after %d bytes", k);
	OK(claim_join(&lane->mine));
	lane_disarm(lane, cuts);
	return k < 140; /* some of the first bytes come once in five seconds: not every k cuts */
}

TEST_LIMIT(n4_cut_after_each_byte_of_the_answer_counts_once, 90)
{
	cut_everywhere(&(struct cut){.set = LATCH,
	                             .step = down_step,
	                             .link = PROXY_COMMANDS,
	                             .way = PROXY_TO_CLIENT,
	                             .least = 20});
}

TEST_LIMIT(n4_cut_within_the_request_counts_once, 90)
{
	cut_everywhere(&(struct cut){.set = LATCH,
	                             .step = down_step,
	                             .link = PROXY_COMMANDS,
	                             .way = PROXY_TO_SERVER,
	                             .every = 3,
	                             .least = 100});
}

/* The message link is cut within the confirmation and within the message. */
TEST_LIMIT(n4_cut_within_a_message_leaves_nobody_behind, 90)
{
	cut_everywhere(&(struct cut){.set = LATCH,
	                             .step = await_step,
	                             .link = PROXY_MESSAGES,
	                             .way = PROXY_TO_CLIENT,
	                             .every = 3,
	                             .least = 140});
}

/* ---- N5, N6: messages that do not arrive --------------------------------------------------- */

TEST_LIMIT(n5_opening_while_the_subscription_is_lost_is_found, 40)
{
	struct awaiter awaiters[2];
	lk_client *other;
	lk_latch *theirs;

	set_up();
	theirs = latch_named(near, "a");
	for (int i = 0; i < 2; i++) {
		OK(lk_latch_reset(theirs, 1, NULL));
		awaiter_start(&awaiters[i], latch_named(far, "a"), 15000);
		ck_assert(WITHIN(3000, subscribers() == 1));
		nap_ms(50);
		proxy_refuse(&proxy, true);
		if (i)
			redis_do(redis, "CLIENT KILL TYPE pubsub");
		else
			proxy_cut(&proxy, PROXY_MESSAGES, false);
		ck_assert(WITHIN(2000, subscribers() == 0));
		/* By a client whose links work. */
		other = client_at(server.url);
		latch_down(latch_named(other, "a"), 1, NULL);
		OK(lk_latch_set(latch_named(other, "a"), 7, NULL)); /* and it counts again */
		OK(lk_client_close(other));
		nap_ms(100);
		ck_assert(!awaiters[i].ended);
		proxy_heal(&proxy);
		ck_assert(WITHIN(BACK_MS, awaiters[i].ended));
		OK(awaiter_join(&awaiters[i]));
		ck_assert(WITHIN(BACK_MS, answers(theirs)));
	}
	tear_down();
}

/* A subscription that did not reach the server is not taken for confirmed. */
TEST_LIMIT(n6_stalled_subscription_is_found_out, 40)
{
	const struct proxy_fault stall = {.stall = true};
	struct awaiter awaiter;
	lk_latch *theirs;
	int64_t connections;

	set_up();
	theirs = latch_named(near, "a");
	OK(lk_latch_set(theirs, 1, NULL));
	lock_leased(far, "a", 900);
	proxy_set(&proxy, PROXY_MESSAGES, PROXY_TO_SERVER, &stall);
	awaiter_start(&awaiter, latch_named(far, "a"), 20000);
	ck_assert(WITHIN(2000, proxy_count(&proxy).held[PROXY_MESSAGES][PROXY_TO_SERVER] > 0));
	ck_assert_int_eq(subscribers(), 0);
	connections = proxy_count(&proxy).connections;
	latch_down(theirs, 1, NULL);
	ck_assert(WITHIN(2500, proxy_count(&proxy).connections > connections));
	ck_assert(!awaiter.ended);
	proxy_heal(&proxy);
	ck_assert(WITHIN(BACK_MS, awaiter.ended));
	OK(awaiter_join(&awaiter));
	tear_down();
}

/* A user without +ping: the reply to its PING is an error, which must not be matched to a
 * subscription. */
TEST_LIMIT(n16_refused_pings_are_not_taken_for_refused_subscriptions, 40)
{
	const lk_client_options options = {.user = "ann", .password = "x"};
	const struct proxy_fault slow = {.delay_ms = 40};
	struct awaiter awaiter;
	char name[16];

	set_up();
	redis_do(redis, "ACL SETUSER ann on >x ~* &* +@all -ping");
	OK(lk_client_close(far));
	far = client_with(proxy.url, &options);
	proxy_set(&proxy, PROXY_MESSAGES, PROXY_TO_CLIENT, &slow);
	lock_leased(far, "a", 300); /* so that silence is checked after 100 ms */
	awaiter_start(&awaiter, latch_named(far, "a"), 6000);
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "l%d", i);
		EXPECT(lk_latch_await(latch_named(far, name), 140 + 4 * i), LK_ETIMEDOUT);
	}
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "ACL LOG"), "\nping\n"));
	OK(lk_latch_set(latch_named(near, "a"), 0, NULL));
	OK(awaiter_join(&awaiter));
	tear_down();
}

/* ---- Answers without a result ------------------------------------------------------------- */

static void *run_endless_script(void *arg)
{
	struct redis *own = redis_open(&server);

	(void)arg;
	redis_text(own, "EVAL %s 0", "while true do end");
	redis_close(own);
	return NULL;
}

static bool is_busy(void)
{
	return !strncmp(redis_text(redis, "PING"), "-BUSY", 5);
}

/* Another program's long script runs at the moment of the subscription. */
TEST_LIMIT(s8_busy_server_ends_no_wait_and_is_subscribed_later, 40)
{
	const struct proxy_fault stall = {.stall = true};
	struct awaiter awaiter;
	pthread_t script;
	int64_t heard;

	set_up();
	redis_do(redis, "CONFIG SET lua-time-limit 50");
	proxy_set(&proxy, PROXY_MESSAGES, PROXY_TO_SERVER, &stall);
	awaiter_start(&awaiter, latch_named(far, "a"), 20000);
	ck_assert(WITHIN(2000, proxy_count(&proxy).held[PROXY_MESSAGES][PROXY_TO_SERVER] > 0));
	ck_assert_int_eq(pthread_create(&script, NULL, run_endless_script, NULL), 0);
	ck_assert(WITHIN(3000, is_busy()));
	heard = proxy_count(&proxy).bytes[PROXY_MESSAGES][PROXY_TO_CLIENT];
	proxy_heal(&proxy);
	ck_assert(WITHIN(3000, proxy_count(&proxy).bytes[PROXY_MESSAGES][PROXY_TO_CLIENT] > heard));
	redis_do(redis, "SCRIPT KILL");
	pthread_join(script, NULL);
	ck_assert(WITHIN(BACK_MS, subscribers() == 1));
	ck_assert(!awaiter.ended);
	OK(lk_latch_set(latch_named(near, "a"), 0, NULL));
	OK(awaiter_join(&awaiter));
	tear_down();
}

static const char *const lies[] = {
	"*1\r\n$5\r\nhello\r\n",
	"*3\r\n$7\r\nstepped\r\n$1\r\nx\r\n:1\r\n",
	"*5\r\n$7\r\ngranted\r\n:1\r\n:1\r\n:0\r\n:0\r\n",
	"+OK\r\n",
};

TEST(n4_step_with_an_unreadable_answer_is_not_known)
{
	lk_latch *latch;
	int count = 9;

	set_up();
	latch = latch_named(far, "a");
	OK(lk_latch_set(latch, count, NULL));
	latch_down(latch, 1, NULL);
	count--;
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		proxy_lie(&proxy, PROXY_COMMANDS, lies[i], strlen(lies[i]));
		EXPECT(lk_latch_down(latch, 1, NULL, 0, NULL), LK_EUNKNOWN);
		ck_assert_int_eq(proxy_count(&proxy).lies, (int64_t)i + 1);
		ck_assert_int_eq(count_now(), --count); /* it was counted */
		ck_assert(WITHIN(BACK_MS, answers(latch)));
	}
	tear_down();
}

TEST(n4_set_with_an_unreadable_answer_is_not_known)
{
	lk_latch *latch;

	set_up();
	latch = latch_named(far, "a");
	OK(lk_latch_set(latch, 1, NULL));
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		proxy_lie(&proxy, PROXY_COMMANDS, lies[i], strlen(lies[i]));
		EXPECT(lk_latch_reset(latch, (int64_t)i + 2, NULL), LK_EUNKNOWN);
		ck_assert_int_eq(count_now(), (int64_t)i + 2); /* it took effect */
		ck_assert(WITHIN(BACK_MS, answers(latch)));
	}
	proxy_lie(&proxy, PROXY_COMMANDS, lies[0], strlen(lies[0]));
	EXPECT(lk_latch_remove(latch), LK_EUNKNOWN);
	ck_assert(WITHIN(BACK_MS, answers(latch)));
	ck_assert_int_eq(latch_status(latch).state, LK_LATCH_ABSENT);
	tear_down();
}
