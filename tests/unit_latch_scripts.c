/* SPDX-License-Identifier: MIT
 * The scripts of a latch, as they ship, one rule of docs/protocol.md after the other, in a Redis in
 * memory.  The other unit tests of latches use a model of these scripts in C, so a bug in the
 * scripts alone shows here first. */
#include "lua_store.h"
#include "scripts.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#define LATCH "lk:{a}"
#define MEMORY "lk:{a}:s"
#define FENCE "lk:fence"
#define QUEUE "lk:{a}:q"
#define CHANNEL "lk:l:0:{a}"
#define START_US INT64_C(1700000000000000)

static struct lua_store *store;
static int64_t now_us;
static char messages[1024]; /* one per line */

static int publish(void *arg, const char *channel, const char *text, size_t len)
{
	size_t end = strlen(messages);

	(void)arg;
	ck_assert_str_eq(channel, CHANNEL);
	snprintf(messages + end, sizeof(messages) - end, "%.*s\n", (int)len, text);
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
	now_us += ms * 1000;
	lua_store_set_time(store, now_us);
}

/* Start a new generation; returns it. */
static const char *make(const char *count)
{
	static char gen[2][24];
	static int which;

	later(1);
	which = !which;
	lua_store_text(store, "EVAL", lk__script_latch_set.text, "4", LATCH, MEMORY, FENCE, QUEUE,
	               count, "1", "86400000", "0", CHANNEL, NULL);
	snprintf(gen[which], sizeof(gen[which]), "%s",
	         lua_store_text(store, "HGET", LATCH, "gen", NULL));
	return gen[which];
}

static const char *down(const char *gen, const char *client, const char *number, const char *name)
{
	return lua_store_text(store, "EVAL", lk__script_latch_down.text, "2", LATCH, MEMORY, gen,
	                      client, number, "1", name, CHANNEL, NULL);
}

static const char *count(void)
{
	return lua_store_text(store, "HGET", LATCH, "count", NULL);
}

TEST(step_of_another_generation_counts_nothing)
{
	const char *first, *second;
	char other[40];

	start();
	first = make("2");
	second = make("2");
	snprintf(other, sizeof(other), "other\n%s", second);
	ck_assert_str_eq(down(first, "a", "1", ""), other);
	ck_assert_str_eq(count(), "2");
	ck_assert_str_eq(down(second, "a", "2", ""), "stepped\n1\n1");
	end();
}

TEST(step_counts_once_however_often_it_comes)
{
	const char *gen;

	start();
	gen = make("3");
	for (int i = 0; i < 3; i++)
		ck_assert_str_eq(down(gen, "a", "1", ""), "stepped\n2\n1");
	ck_assert_str_eq(down(gen, "a", "2", ""), "stepped\n1\n1");
	/* A step that the network delayed, below the last one. */
	ck_assert_str_eq(down(gen, "a", "1", ""), "stepped\n1\n1");
	/* Each client numbers its own steps. */
	ck_assert_str_eq(down(gen, "b", "1", ""), "stepped\n0\n1");
	ck_assert_str_eq(down(gen, "b", "1", ""), "stepped\n0\n1");
	end();
}

TEST(name_of_a_step_counts_once_whoever_says_it)
{
	const char *gen;

	start();
	gen = make("3");
	ck_assert_str_eq(down(gen, "a", "1", "loader"), "stepped\n2\n1");
	ck_assert_str_eq(down(gen, "b", "1", "loader"), "stepped\n2\n0");
	ck_assert_str_eq(down(gen, "a", "2", "loader"), "stepped\n2\n0");
	ck_assert_str_eq(down(gen, "b", "2", "other"), "stepped\n1\n1");
	/* A new generation counts it again. */
	gen = make("3");
	ck_assert_str_eq(down(gen, "b", "3", "loader"), "stepped\n2\n1");
	end();
}

TEST(latch_that_lost_its_steps_counts_no_more)
{
	const char *gen;

	start();
	gen = make("3");
	down(gen, "a", "1", "");
	lua_store_text(store, "DEL", MEMORY, NULL);
	ck_assert_str_eq(down(gen, "a", "1", ""),
	                 "foreign\n" LATCH "\na latch whose steps were lost: reset it");
	ck_assert_str_eq(count(), "2");
	end();
}

TEST(latch_opens_once_and_says_so_once)
{
	const char *gen;
	char open[40];

	start();
	gen = make("2");
	down(gen, "a", "1", "");
	ck_assert_str_eq(messages, "");
	for (int i = 0; i < 3; i++)
		ck_assert_str_eq(down(gen, "b", "1", ""), "stepped\n0\n1");
	down(gen, "c", "1", "");
	snprintf(open, sizeof(open), "open %s\n", gen);
	ck_assert_str_eq(messages, open);
	end();
}

TEST(opening_is_remembered_past_the_removal)
{
	const char *gen, *shown;
	char memory[80];

	start();
	gen = make("1");
	down(gen, "a", "1", "");
	ck_assert_str_eq(lua_store_text(store, "EVAL", lk__script_latch_remove.text, "3", LATCH,
	                                MEMORY, QUEUE, CHANNEL, NULL),
	                 "removed");
	later(59000);
	shown = lua_store_text(store, "EVAL", lk__script_latch_show.text, "3", LATCH, MEMORY, FENCE,
	                       NULL);
	snprintf(memory, sizeof(memory), "absent\n0\n0\n0\n-1\n%s\n%s\n", gen, gen);
	ck_assert_msg(!strncmp(shown, memory, strlen(memory)), "%s", shown);
	end();
}

TEST(generations_grow_without_memory_and_without_clock)
{
	char first[24];

	start();
	snprintf(first, sizeof(first), "%s", make("1"));
	later(-3600000);
	ck_assert_str_gt(make("1"), first); /* the same number of digits */
	snprintf(first, sizeof(first), "%s", make("1"));
	lua_store_text(store, "FLUSHALL", NULL);
	later(3600001);
	ck_assert_str_gt(make("1"), first);
	end();
}
