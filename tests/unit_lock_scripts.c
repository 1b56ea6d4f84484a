/* SPDX-License-Identifier: MIT
 * The scripts of a lock, as they ship, one rule of docs/protocol.md after the other, in a Redis in
 * memory: the test controls the clock and the subscriptions.  The other unit tests of locks use a
 * model of these scripts in C, so a bug in the scripts alone shows here first. */
#include "core/core.h"
#include "lua_store.h"
#include "redis/codec.h"
#include "scripts.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY "lk:{a}"
#define QUEUE "lk:{a}:q"
#define FENCE "lk:fence"
#define CHANNELS "lk:c:0:"
#define START_US INT64_C(1700000000000000)
#define MS_US INT64_C(1000)

/* Tickets of five clients, each with a lease of 10 s. */
#define TICKET(client) "1:" client ":nonce-" client ":10000:r"
#define A TICKET("a")
#define B TICKET("b")
#define C TICKET("c")
#define D TICKET("d")
#define E TICKET("e")

static struct lua_store *store;
static int64_t now_us;
static char messages[4096];   /* received messages, one "<client>: <text>" per line */
static const char *dead = ""; /* clients without a subscription, one letter each */

static int publish(void *arg, const char *channel, const char *text, size_t len)
{
	const char *client = channel + strlen(CHANNELS);
	size_t end = strlen(messages);

	(void)arg;
	ck_assert(!strncmp(channel, CHANNELS, strlen(CHANNELS)));
	if (strchr(dead, client[0]))
		return 0;
	snprintf(messages + end, sizeof(messages) - end, "%s: %.*s\n", client, (int)len, text);
	return 1;
}

static void start(void)
{
	store = lua_store_new(publish, NULL);
	now_us = START_US;
	lua_store_set_time(store, now_us);
}

static void end(void)
{
	lua_store_free(store);
}

static void later(int64_t ms)
{
	now_us += ms * MS_US;
	lua_store_set_time(store, now_us);
}

static const char *ask_with(const char *ticket, const char *wait, const char *arrival)
{
	return lua_store_text(store, "EVAL", lk__script_lock_ask.text, "3", KEY, QUEUE, FENCE,
	                      ticket, wait, arrival, CHANNELS, "-", "30000", NULL);
}

static const char *ask(const char *ticket)
{
	return ask_with(ticket, "1", "0");
}

static const char *leave(const char *ticket, uint64_t last_fence)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)last_fence);
	return lua_store_text(store, "EVAL", lk__script_lock_leave.text, "3", KEY, QUEUE, FENCE,
	                      ticket, text, CHANNELS, "0", NULL);
}

static const char *renew(const char *ticket, uint64_t fence, const char *lease_ms)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)fence);
	return lua_store_text(store, "EVAL", lk__script_lock_renew.text, "3", KEY, QUEUE, FENCE,
	                      ticket, text, lease_ms, text, "-", NULL);
}

static const char *command(const char *name, const char *key)
{
	return lua_store_text(store, name, key, NULL);
}

static void assert_begins(const char *answer, const char *what)
{
	size_t len = strlen(what);

	ck_assert_msg(!strncmp(answer, what, len) && (!answer[len] || answer[len] == '\n'),
	              "\"%s\", expected \"%s\"", answer, what);
}

static uint64_t fence_in(const char *answer)
{
	const char *number = strchr(answer, '\n');

	ck_assert_msg(number != NULL, "no fence in \"%s\"", answer);
	return strtoull(number + 1, NULL, 10);
}

/* Ask, and require a grant; returns the fence. */
static uint64_t take(const char *ticket)
{
	const char *answer = ask(ticket);

	assert_begins(answer, "granted");
	return fence_in(answer);
}

/* The fence of the hold with this ticket. */
static uint64_t fence_of(const char *ticket)
{
	const char *value = command("GET", KEY);
	size_t len = strlen(ticket);

	ck_assert_msg(!strncmp(value, ticket, len), "\"%s\" holds it, not \"%s\"", value, ticket);
	return strtoull(value + len, NULL, 10);
}

/* ---- Renewal ------------------------------------------------------------------------------ */

TEST(renewal_of_a_ticket_that_does_not_hold_is_gone)
{
	uint64_t fence;
	char value[200];

	start();
	fence = take(A);
	snprintf(value, sizeof(value), "%s", command("GET", KEY));
	later(4000);
	ck_assert_str_eq(renew(B, fence, "10000"), "gone");
	ck_assert_str_eq(renew(B, 0, "10000"), "gone");
	ck_assert_str_eq(command("PTTL", KEY), "6000");
	ck_assert_str_eq(command("GET", KEY), value);
	end();
}

TEST(renewal_of_an_earlier_grant_is_gone)
{
	uint64_t first, second;

	start();
	first = take(A);
	command("DEL", KEY);
	later(1);
	second = take(A);
	later(4000);
	ck_assert_str_eq(renew(A, first, "10000"), "gone");
	ck_assert_str_eq(command("PTTL", KEY), "6000");
	assert_begins(renew(A, second, "10000"), "held");
	ck_assert_str_eq(command("PTTL", KEY), "10000");
	/* A claim does not know its fence yet; the answer has it. */
	ck_assert_uint_eq(fence_in(renew(A, 0, "10000")), second);
	end();
}

TEST(renewal_never_brings_the_end_nearer)
{
	uint64_t fence;

	start();
	fence = take(A);
	assert_begins(renew(A, fence, "60000"), "held");
	later(1000);
	assert_begins(renew(A, fence, "10000"), "held");
	ck_assert_str_eq(command("PTTL", KEY), "59000");
	/* The length of the lease in force is also kept. */
	assert_begins(ask(B), "queued");
	ck_assert_str_eq(command("PTTL", KEY), "59000");
	end();
}

/* ---- Asking ------------------------------------------------------------------------------- */

TEST(repeated_ask_keeps_the_fence_and_never_shortens)
{
	uint64_t fence;

	start();
	fence = take(A);
	later(4000);
	ck_assert_uint_eq(take(A), fence);
	ck_assert_uint_eq(fence_of(A), fence);
	ck_assert_str_eq(command("PTTL", KEY), "10000");
	assert_begins(renew(A, fence, "60000"), "held");
	ck_assert_uint_eq(take(A), fence);
	ck_assert_str_eq(command("PTTL", KEY), "60000");
	end();
}

TEST(try_never_queues)
{
	start();
	take(A);
	ck_assert_str_eq(ask_with(B, "0", "0"), "busy\n0");
	ck_assert_str_eq(command("ZCARD", QUEUE), "0");
	end();
}

TEST(free_lock_is_only_for_the_head_of_its_queue)
{
	const char *answer;

	start();
	take(A);
	assert_begins(ask(B), "queued");
	later(10001); /* the end of its lease */
	answer = ask(C);
	assert_begins(answer, "queued");
	ck_assert_str_eq(strrchr(answer, '\n'), "\n1"); /* request a hand-off to the head */
	ck_assert_str_eq(ask_with(D, "0", "0"), "busy\n1");
	ck_assert_str_eq(command("EXISTS", KEY), "0");
	take(B);
	end();
}

TEST(who_returns_stands_at_its_old_place)
{
	char arrival[24];
	const char *answer;

	start();
	take(A);
	answer = ask(B);
	assert_begins(answer, "queued");
	snprintf(arrival, sizeof(arrival), "%llu", (unsigned long long)fence_in(answer));
	later(1);
	ask(C);
	command("DEL", QUEUE);
	ask(C);
	answer = ask_with(B, "1", arrival);
	ck_assert_msg(strstr(answer, "\n0\n") != NULL, "not the first: %s", answer);
	end();
}

/* ---- Leaving ------------------------------------------------------------------------------ */

/* Its own repeated ask came late, after the hold was over and another had begun. */
TEST(release_removes_its_own_ticket_from_the_queue)
{
	uint64_t fence;

	start();
	fence = take(A);
	later(10001);
	take(B);
	assert_begins(ask(A), "queued");
	ck_assert_str_eq(leave(A, fence), "left\n0\n0\n0");
	ck_assert_str_eq(command("ZCARD", QUEUE), "0");
	assert_begins(leave(B, 0), "left\n1");
	ck_assert_str_eq(command("EXISTS", KEY), "0");
	end();
}

TEST(wait_that_ends_serves_nobody_while_the_lock_is_held)
{
	uint64_t fence;

	start();
	fence = take(A);
	ask(B);
	ask(C);
	ck_assert_str_eq(leave(C, 0), "left\n0\n0\n0");
	ck_assert_str_eq(leave("", 0), "left\n0\n0\n0");
	ck_assert_uint_eq(fence_of(A), fence);
	ck_assert_str_eq(command("ZCARD", QUEUE), "1");
	ck_assert_str_eq(messages, "");
	end();
}

TEST(dead_waiters_are_skipped_in_one_run)
{
	uint64_t fence;

	start();
	fence = take(A);
	ask(B);
	ask(C);
	ask(D);
	ask(E);
	later(1);
	dead = "bcd";
	ck_assert_str_eq(leave(A, fence), "left\n1\n0\n0");
	ck_assert_uint_gt(fence_of(E), fence);
	ck_assert_str_eq(command("PTTL", KEY), "10000");
	ck_assert_str_eq(command("ZCARD", QUEUE), "0");
	end();
}

/* "grant <ticket> <fence> <life ms> <claim> <waiting> <clock>" */
static void assert_granted(const char *ticket, const char *client, const char *rest)
{
	char text[200];

	snprintf(text, sizeof(text), "%s: grant %s %llu %s %lld\n", client, ticket,
	         (unsigned long long)fence_of(ticket), rest, (long long)now_us);
	ck_assert_msg(strstr(messages, text) != NULL, "published \"%s\", not \"%s\"", messages,
	              text);
}

TEST(old_waiter_gets_the_claim_window_and_the_next_is_told)
{
	uint64_t fence;

	start();
	fence = take(A);
	ask(B);
	later(2000);
	ask(C);
	later(1001); /* b asked a claim window ago */
	leave(A, fence);
	assert_granted(B, "b", "3000 1 1");
	ck_assert_str_eq(command("PTTL", KEY), "3000");
	ck_assert(strstr(messages, "c: again " C " 3000\n") != NULL);
	/* b claims; and c asked recently, so it counts as alive. */
	fence = fence_in(renew(B, 0, "10000"));
	ck_assert_str_eq(command("PTTL", KEY), "10000");
	leave(B, fence);
	assert_granted(C, "c", "10000 0 0");
	ck_assert_str_eq(command("PTTL", KEY), "10000");
	end();
}

/* ---- Fences ------------------------------------------------------------------------------- */

TEST(fence_grows_without_memory_and_without_clock)
{
	uint64_t fence, next;

	start();
	fence = take(A);
	leave(A, fence);
	later(-3600000); /* the clock steps back */
	next = take(B);
	ck_assert_uint_gt(next, fence);
	fence = next;
	lua_store_text(store, "FLUSHALL", NULL);
	later(3600001);
	ck_assert_uint_gt(take(C), fence);
	end();
}

TEST(fence_of_a_hand_off_grows_without_memory_and_without_clock)
{
	uint64_t fence, next;

	start();
	fence = take(A);
	ask(B);
	later(1);
	command("DEL", FENCE);
	leave(A, 0);
	next = fence_of(B);
	ck_assert_uint_gt(next, fence);
	later(-3600000);
	ask(C);
	leave(B, next);
	ck_assert_uint_gt(fence_of(C), next);
	end();
}

TEST(release_tells_the_fences_that_were_given_locally)
{
	uint64_t fence;

	start();
	fence = take(A) + 1000000; /* so many hand-overs between threads */
	leave(A, fence);
	ck_assert_uint_gt(take(B), fence);
	end();
}

TEST(renewal_tells_the_fences_that_were_given_locally)
{
	uint64_t fence;
	char text[24];

	start();
	fence = take(A);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)fence + 1000000);
	assert_begins(lua_store_text(store, "EVAL", lk__script_lock_renew.text, "3", KEY, QUEUE,
	                             FENCE, A, "0", "10000", text, "-", NULL),
	              "held");
	command("DEL", KEY); /* lost */
	ck_assert_uint_gt(take(B), fence + 1000000);
	end();
}

/* ---- As the library sends it -------------------------------------------------------------- */

/* The request of a waiter, in the library's own bytes. */
static void ask_as_the_library(const char *nonce)
{
	struct lk__request ask = {
		.kind = LK__ASK,
		.noun = LK_KIND_LOCK,
		.by_text = true,
		.name = "a",
		.name_len = 1,
		.ticket = {.lease_ms = 10000},
	};
	struct lk__buf request = {0}, reply = {0};
	struct lk__space space;

	snprintf(ask.ticket.nonce, sizeof(ask.ticket.nonce), "%s", nonce);
	lk__space_init(&space, "lk", 0, "aaaaaaaaaaaaaaaaaaaaaa");
	ck_assert(lk__codec_request(&request, &space, &ask));
	lua_store_run(store, request.data, request.len, &reply);
	ck_assert_msg(reply.len && reply.data[0] == '*', "%.*s", (int)reply.len, reply.data);
	lk__buf_fini(&request);
	lk__buf_fini(&reply);
}

/* Every 10 s, with 2 % jitter, later ranks up to a second later: docs/protocol.md. */
TEST(queue_outlives_the_longest_time_between_two_asks)
{
	start();
	ask_as_the_library("nonce-of-11");
	ask_as_the_library("nonce-or-11");
	ck_assert_str_eq(command("ZCARD", QUEUE), "1");
	ck_assert_int_gt(atoll(command("PTTL", QUEUE)), 2 * 11200);
	end();
}
