/* SPDX-License-Identifier: MIT
 * The scripts of a semaphore, one rule of docs/protocol.md after the other, in a Redis in memory:
 * requests that the state machine would not send in this form. */
#include "lua_store.h"
#include "scripts.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS "4", "lk:{a}", "lk:{a}:q", "lk:fence", "lk:{a}:h"
#define ENDS "lk:{a}:h"
#define CHANNELS "lk:c:0:"
#define START_US INT64_C(1700000000000000)

/* A ticket for two permits with a lease of 10 s. */
#define A "1:a:nonce-a:10000:r:2"

static struct lua_store *store;
static int64_t now_us;

static void start(void)
{
	store = lua_store_new(NULL, NULL);
	now_us = START_US;
	lua_store_set_time(store, now_us);
}

static void end(void)
{
	lua_store_free(store);
}

static void later(int64_t ms)
{
	now_us += ms * 1000;
	lua_store_set_time(store, now_us);
}

/* Of three permits. */
static const char *ask(const char *ticket)
{
	return lua_store_text(store, "EVAL", lk__script_semaphore_ask.text, KEYS, ticket, "1", "0",
	                      CHANNELS, "3", "86400000", "30000", "21000", NULL);
}

static const char *leave(const char *ticket)
{
	return lua_store_text(store, "EVAL", lk__script_semaphore_leave.text, KEYS, ticket, "0",
	                      CHANNELS, "0", "21000", NULL);
}

static const char *renew(const char *ticket, const char *fence, const char *lease_ms)
{
	return lua_store_text(store, "EVAL", lk__script_semaphore_renew.text, KEYS, ticket, fence,
	                      lease_ms, NULL);
}

/* The end of a hold's lease, in microseconds of the store's clock; 0 = no such hold. */
static int64_t end_of(const char *ticket)
{
	return atoll(lua_store_text(store, "ZSCORE", ENDS, ticket, NULL));
}

static void assert_begins(const char *answer, const char *what)
{
	ck_assert_msg(!strncmp(answer, what, strlen(what)), "\"%s\", expected \"%s\"", answer,
	              what);
}

TEST(renewal_never_brings_the_end_nearer)
{
	start();
	assert_begins(ask(A), "granted");
	assert_begins(renew(A, "0", "60000"), "held");
	later(1000);
	assert_begins(renew(A, "0", "10000"), "held");
	ck_assert_int_eq(end_of(A), START_US + 60000 * 1000);
	end();
}

TEST(renewal_of_a_hold_that_is_over_is_gone)
{
	start();
	assert_begins(ask(A), "granted");
	later(10000);
	ck_assert_str_eq(renew(A, "0", "10000"), "gone");
	ck_assert_int_le(end_of(A), now_us);
	end();
}

TEST(renewal_of_an_earlier_grant_is_gone)
{
	char first[24];

	start();
	assert_begins(ask(A), "granted");
	snprintf(first, sizeof(first), "%lld", (long long)START_US);
	later(4000);
	assert_begins(leave(A), "left");
	assert_begins(ask(A), "granted");
	ck_assert_str_eq(renew(A, first, "20000"), "gone");
	ck_assert_int_eq(end_of(A), now_us + 10000 * 1000);
	end();
}
