/* SPDX-License-Identifier: MIT
 * A client that was stopped before a planned failover, and goes on after it (F13 of the fault
 * list), at a real service.  The old master takes writes for some seconds more, and has forgotten
 * holds that moved to the new one; the sentinels' news reaches the client only after a while. */
#include "harness/grace.h"
#include "harness/process.h"
#include "harness/sentinel_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELD_LEASE_MS 6000 /* longer than a failover, and than a stall of a busy machine */
#define FOLLOW_MS 3000     /* of each grace: it covers leases that are so much shorter */
#define WAIT_MS 60000
#define ANSWER_MS 20000
#define LATE_NEWS_MS 1000   /* far more than a grant takes */
#define LONG_LEASE_MS 10000 /* longer than this pause, also on a busy machine: */
#define PAUSE_MS 2500
#define SHORT_WAIT_MS 1000

static struct sentinel_setup setup;
static struct proxy ways[SETUP_SENTINELS]; /* from the client that is stopped to the sentinels */
static struct process stopped;
static lk_client *other;
static struct claims held;
static char url[200];

/* ---- The client that is stopped, in a process of its own ------------------------------------- */

static struct claims own, waits;

static int count_ended(void)
{
	int ended = 0;

	EACH (claim, &waits)
		ended += claim->ended;
	return ended;
}

/* Each wait in the calling thread; the last error. */
static void wait_here(int64_t wait_ms, int out)
{
	lk_err err = LK_OK;

	EACH (claim, &waits)
		err = claim->primitive->wait(claim, wait_ms);
	line_write(out, "%s: %s", lk_err_name(err), err ? lk_errmsg() : "");
}

/* Obey one line, and write another one. */
static void obey(lk_client *client, unsigned set, const char *word, int out)
{
	if (!strcmp(word, "open")) {
		grace_open_free(&waits, set, client);
	} else if (!strcmp(word, "wait")) {
		claims_open(&waits, set, client, HELD_LEASE_MS);
		claims_start(&waits, WAIT_MS, true);
	} else if (!strcmp(word, "join")) {
		claims_join(&waits, LK_OK);
	} else if (!strcmp(word, "hold")) {
		claims_hold(&own, set, client, LONG_LEASE_MS);
	} else if (!strcmp(word, "release")) {
		EACH (claim, &own)
			ck_assert(WITHIN(LONG_LEASE_MS,
			                 claim->primitive->state(claim) == LK_STATE_HELD));
		claims_release(&own);
	} else if (!strcmp(word, "wait here")) {
		wait_here(SHORT_WAIT_MS, out);
		return;
	} else if (!strcmp(word, "try")) {
		wait_here(0, out);
		return;
	}
	line_write(out, "%d", count_ended());
}

static int run(void *arg, int in, int out)
{
	const unsigned set = *(const unsigned *)arg;
	const char *line = line_read(in, ANSWER_MS);
	lk_client *client;

	if (!line)
		return 1;
	client = client_at(line);
	claims_warm_up(set, client);
	line_write(out, "is ready");
	while ((line = line_read(in, WAIT_MS)) && *line)
		obey(client, set, line, out);
	return lk_client_close(client) != LK_OK;
}

static const char *say(const char *word)
{
	ck_assert(line_write(stopped.in, "%s", word));
	return line_read(stopped.out, ANSWER_MS);
}

static int ended(void)
{
	const char *count = say("count");

	ck_assert_ptr_nonnull(count);
	return atoi(count);
}

/* ---- Around it ------------------------------------------------------------------------------- */

static void look_at(int i)
{
	if (redis)
		redis_close(redis);
	redis = redis_open(&setup.servers[i]);
}

/* Start the service, whose grace has passed, and both clients. */
static void set_up(unsigned set)
{
	const int grace_ms = HELD_LEASE_MS + FOLLOW_MS;

	process_start(&stopped, run, &set);
	sentinel_setup_start(&setup, NULL);
	look_at(0);
	grace_pass();
	for (int i = 0; i < SETUP_SENTINELS; i++)
		proxy_start_at_port(&ways[i], setup.sentinels[i].port);
	snprintf(url, sizeof(url),
	         "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/%s?grace=%d",
	         ways[0].port, ways[1].port, ways[2].port, SETUP_SERVICE, grace_ms);
	ck_assert_str_eq(say(url), "is ready");
	snprintf(url, sizeof(url), "%s?grace=%d", setup.url, grace_ms);
	other = client_at(url);
}

static void tear_down(void)
{
	ck_assert(line_write(stopped.in, "%s", ""));
	ck_assert(process_succeeded(&stopped, ANSWER_MS));
	OK(lk_client_close(other));
	for (int i = 0; i < SETUP_SENTINELS; i++)
		proxy_stop(&ways[i]);
	sentinel_setup_stop(&setup);
}

static void hide_sentinels(void)
{
	const struct proxy_fault silence = {.stall = true};

	for (int i = 0; i < SETUP_SENTINELS; i++)
		proxy_set_all(&ways[i], &silence);
}

static void show_sentinels(void)
{
	for (int i = 0; i < SETUP_SENTINELS; i++)
		proxy_heal(&ways[i]);
}

/* While the client is stopped: the holder follows to the new master, and its holds at the old one
 * end.  Stopped sentinels let the old one be a master for as long as this takes. */
static void fail_over_meanwhile(void)
{
	int64_t switched_ms;

	hide_sentinels();
	process_pause(&stopped);
	sentinel_setup_failover(&setup);
	look_at(sentinel_setup_await_switch(&setup, 0));
	switched_ms = now_ms();
	claims_expect_held(&held);
	for (int i = 0; i < SETUP_SENTINELS; i++)
		server_pause(&setup.sentinels[i]);
	ck_assert(sentinel_setup_is_master(&setup, 0));
	claims_stay_held(&held, switched_ms + HELD_LEASE_MS + 500 - now_ms());
}

/* Nothing is granted beside the holds, by either master; after them, by the new one. */
static void expect_one_holder(void)
{
	ck_assert(!WITHIN(LATE_NEWS_MS, ended() > 0));
	ck_assert(sentinel_setup_is_master(&setup, 0));
	for (int i = 0; i < SETUP_SENTINELS; i++)
		server_resume(&setup.sentinels[i]);
	show_sentinels();
	claims_stay_held(&held, LATE_NEWS_MS);
	ck_assert_int_eq(ended(), 0);
	claims_release(&held);
	ck_assert_ptr_nonnull(say("join"));
	tear_down();
}

TEST_OF(f13_waiter_that_was_stopped_is_not_granted_by_the_old_master, LEASED, 90)
{
	set_up(set);
	claims_hold(&held, set, other, HELD_LEASE_MS);
	ck_assert_ptr_nonnull(say("wait"));
	ck_assert(WITHIN(ANSWER_MS, claims_waiting(set, 1)));
	sentinel_setup_await_sync(&setup, 0);
	fail_over_meanwhile();
	process_continue(&stopped);
	expect_one_holder();
}

TEST_OF(f13_caller_that_was_stopped_is_not_granted_by_the_old_master, LEASED, 90)
{
	set_up(set);
	claims_hold(&held, set, other, HELD_LEASE_MS);
	sentinel_setup_await_sync(&setup, 0);
	fail_over_meanwhile();
	process_continue(&stopped);
	ck_assert_ptr_nonnull(say("wait"));
	expect_one_holder();
}

/* ---- No sentinel can be asked ---------------------------------------------------------------- */

static void refuse_to_connect(bool refuse)
{
	for (int i = 0; i < SETUP_SENTINELS; i++) {
		proxy_refuse(&ways[i], refuse);
		if (refuse) {
			proxy_cut(&ways[i], PROXY_COMMANDS, false);
			proxy_cut(&ways[i], PROXY_MESSAGES, false);
		}
	}
}

static void expect_said(const char *word, const char *err)
{
	const char *line = say(word);

	ck_assert_ptr_nonnull(line);
	ck_assert_msg(!strncmp(line, err, strlen(err)) &&
	                      strstr(line, "after a pause of this client, no sentinel confirm"),
	              "%s: %s", word, line);
}

static bool is_granted(void)
{
	const char *line = say("wait here");

	return line && !strncmp(line, "LK_OK", 5);
}

/* The client cannot know whether its server is still the master: it keeps what it holds, and gets
 * nothing new before a sentinel answers. */
TEST_OF(f13_stopped_client_without_sentinels_is_granted_nothing, LEASED, 60)
{
	set_up(set);
	ck_assert_ptr_nonnull(say("hold"));
	ck_assert_ptr_nonnull(say("open"));
	process_pause(&stopped);
	refuse_to_connect(true);
	nap_ms(PAUSE_MS);
	process_continue(&stopped);
	expect_said("wait here", "LK_ETIMEDOUT");
	expect_said("try", "LK_ECONN");
	ck_assert_ptr_nonnull(say("release"));
	refuse_to_connect(false);
	ck_assert(WITHIN(ANSWER_MS, is_granted()));
	tear_down();
}
