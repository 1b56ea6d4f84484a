/* SPDX-License-Identifier: MIT
 * latchkey show and break, for each kind of name; the JSON of each. */
#include "command_server.h"
#include "process.h"
#include "redis.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct command cmd, one, two, three, four;

static void hold(struct command *command, const char *label, const char *units)
{
	command_hold(command, "sem --permits 3 --label '%s' -k '%s' s sleep 97", label, units);
}

static void wait_behind(struct command *command, const char *label, const char *units, int place)
{
	START(command, "latchkey", "sem", "--permits", "3", "--label", label, "-k", units, "s",
	      "true");
	ck_assert(WITHIN(5000, command_waiting_is("s", place)));
}

/* Compare the value at path, as parsed by sqlite's own parser. */
static void assert_json(const char *args, const char *path, const char *value)
{
	ck_assert_int_eq(shell("latchkey show --json %s >%s", args, command_file("json")), 0);
	ck_assert_int_eq(shell("test 1 = $(sqlite3 :memory: \"SELECT json_valid(readfile('%s'))\")",
	                       command_file("json")),
	                 0);
	ck_assert_msg(shell("test '%s' = \"$(sqlite3 :memory: "
	                    "\"SELECT json_extract(readfile('%s'), '%s')\")\"",
	                    value, command_file("json"), path) == 0,
	              "%s of %s", path, command_read("json"));
}

static double json_number(const char *name, const char *key)
{
	char text[64];
	const char *at;

	RUNS(0, &cmd, "latchkey", "show", "--json", name);
	snprintf(text, sizeof(text), "\"%s\":", key);
	at = strstr(cmd.out, text);
	ck_assert_ptr_nonnull(at);
	return strtod(at + strlen(text), NULL);
}

TEST(show_tells_of_a_semaphore_who_holds_and_who_waits)
{
	char text[128];
	const char *holders, *waiters;

	begin();
	hold(&one, "first", "2");
	wait_behind(&two, "second", "3", 1);
	wait_behind(&three, "third", "1", 2);
	/* The waiters' descriptions arrive in the background. */
	ck_assert(WITHIN(3000, RUN(&cmd, "latchkey", "show", "s") == 0 &&
	                               strstr(cmd.out, "second") && strstr(cmd.out, "third")));
	ck_assert_ptr_nonnull(
		strstr(cmd.out, "name     s\nkind     semaphore\npermits  3\nfree     1\n"));
	snprintf(text, sizeof(text), "(pid %d, first), 2 permits\n         for ", (int)one.pid);
	ck_assert_ptr_nonnull(strstr(cmd.out, text));
	holders = strstr(cmd.out, "holders  1\n");
	waiters = strstr(cmd.out, "waiting  2\n");
	ck_assert(holders && waiters && holders < waiters);
	ck_assert_ptr_nonnull(strstr(holders, ", lease "));
	ck_assert_ptr_nonnull(strstr(waiters, "second), 3 permits\n"));
	ck_assert(strstr(waiters, "second), 3 permits\n") < strstr(waiters, "third), 1 permit\n"));
	assert_json("s", "$.kind", "semaphore");
	assert_json("s", "$.capacity", "3");
	assert_json("s", "$.available", "1");
	assert_json("s", "$.holding", "1");
	assert_json("s", "$.holders[0].label", "first");
	assert_json("s", "$.holders[0].permits", "2");
	assert_json("s", "$.waiting", "2");
	assert_json("s", "$.waiters[0].label", "second");
	assert_json("s", "$.waiters[1].permits", "1");
	server_stop(&server);
}

TEST(show_tells_of_a_latch_how_far_it_is)
{
	begin();
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "--ttl", "100", "l", "5");
	RUNS(0, &cmd, "latchkey", "latch", "down", "-q", "l", "2");
	RUNS(0, &cmd, "latchkey", "show", "l");
	ck_assert_ptr_nonnull(strstr(
		cmd.out, "name     l\nkind     latch\nstate    counting\nremain   3 of 5\n"));
	assert_json("l", "$.kind", "latch");
	assert_json("l", "$.state", "counting");
	assert_json("l", "$.count", "3");
	assert_json("l", "$.initial", "5");
	ck_assert_double_gt(json_number("l", "ttl_seconds"), 90);
	ck_assert_double_le(json_number("l", "ttl_seconds"), 100);
	RUNS(0, &cmd, "latchkey", "latch", "down", "-q", "l", "3");
	assert_json("l", "$.state", "open");
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "m", "5");
	assert_json("m", "$.ttl_seconds", "");
	RUNS(0, &cmd, "latchkey", "latch", "show", "--json", "absent");
	ck_assert_str_eq(cmd.out, "{\"name\":\"absent\",\"kind\":\"latch\",\"state\":\"absent\","
	                          "\"count\":0,\"initial\":0,\"generation\":0,"
	                          "\"ttl_seconds\":null}\n");
	server_stop(&server);
}

TEST(show_lists_every_kind)
{
	begin();
	hold(&one, "first", "2");
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "l", "5");
	START(&two, "latchkey", "lock", "k", "sleep", "97");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 2));
	RUNS(0, &cmd, "latchkey", "show");
	ck_assert_ptr_nonnull(strstr(cmd.out, "\nk                        lock      "));
	ck_assert_ptr_nonnull(
		strstr(cmd.out, "\nl                        latch     counting, 5 of 5 remain"));
	ck_assert_ptr_nonnull(
		strstr(cmd.out, "\ns                        semaphore 1 holder, 1 of 3 free"));
	assert_json("", "$[0].kind", "lock");
	assert_json("", "$[0].held", "1");
	assert_json("", "$[1].kind", "latch");
	assert_json("", "$[2].kind", "semaphore");
	assert_json("", "$[2].holders[0].permits", "2");
	/* The store keeps an unused semaphore, but not an unused lock. */
	kill(one.pid, SIGTERM);
	kill(two.pid, SIGTERM);
	ck_assert(command_wait(&one, 5000) && command_wait(&two, 5000));
	RUNS(0, &cmd, "latchkey", "latch", "rm", "l");
	RUNS(0, &cmd, "latchkey", "show");
	ck_assert_ptr_nonnull(strstr(cmd.out, "semaphore 0 holders, 3 of 3 free"));
	ck_assert_ptr_null(strstr(cmd.out, "latch"));
	ck_assert_ptr_null(strstr(cmd.out, "lock"));
	assert_json("k", "$.kind", "nothing");
	server_stop(&server);
}

static void ends_lost(struct command *command)
{
	ck_assert(command_wait(command, 5000));
	ck_assert_int_eq(WEXITSTATUS(command->status), 79);
	ck_assert_ptr_nonnull(strstr(command->err, "broken"));
}

TEST(break_takes_the_one_hold_there_is)
{
	begin();
	hold(&one, "first", "3");
	wait_behind(&two, "second", "1", 1);
	RUNS(0, &cmd, "latchkey", "break", "s");
	ends_lost(&one);
	ck_assert(command_wait(&two, 5000));
	ck_assert_int_eq(WEXITSTATUS(two.status), 0);
	RUNS(1, &cmd, "latchkey", "break", "s");
	ck_assert_str_eq(cmd.err, "latchkey: cannot break \"s\": not held\n");
	server_stop(&server);
}

TEST(break_of_several_lists_them_and_takes_the_one_that_is_named)
{
	char id[64];
	const char *at;

	begin();
	hold(&one, "first", "1");
	hold(&two, "second", "1");
	ck_assert(WITHIN(3000, RUN(&cmd, "latchkey", "break", "s") == 1 &&
	                               strstr(cmd.err, "second") && strstr(cmd.err, "first")));
	ck_assert_ptr_nonnull(strstr(cmd.err, "cannot break \"s\": 2 holders"));
	ck_assert_ptr_nonnull(strstr(cmd.err, "--if-holder"));
	at = strstr(cmd.err, "second");
	while (at[-1] != '\n')
		at--;
	at += strlen("latchkey:   ");
	snprintf(id, sizeof(id), "%.*s", (int)strcspn(at, " "), at);
	RUNS(1, &cmd, "latchkey", "break", "--if-holder", "AAAAAAAAAAAAAAAAAAAAAA:AAAAAAAAAAA",
	     "s");
	ck_assert_ptr_nonnull(strstr(cmd.err, "no hold has this id"));
	RUNS(0, &cmd, "latchkey", "break", "--if-holder", id, "s");
	ends_lost(&two);
	ck_assert_int_eq(command_count_of("sleep"), 1);
	RUNS(1, &cmd, "latchkey", "break", "--if-holder", id, "s");
	RUNS(0, &cmd, "latchkey", "break", "-q", "s");
	ck_assert_str_eq(cmd.err, "");
	ends_lost(&one);
	server_stop(&server);
}

TEST(break_of_a_latch_names_what_does_it)
{
	begin();
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "l", "5");
	RUNS(1, &cmd, "latchkey", "break", "l");
	ck_assert_ptr_nonnull(strstr(cmd.err, "latchkey latch down"));
	ck_assert_ptr_nonnull(strstr(cmd.err, "latchkey latch rm"));
	RUNS(0, &cmd, "latchkey", "latch", "show", "l");
	ck_assert_ptr_nonnull(strstr(cmd.out, "remain   5 of 5\n"));
	server_stop(&server);
}

TEST(errors_of_the_store_have_their_statuses)
{
	struct redis *redis;

	begin();
	redis = redis_open(&server);
	RUNS(1, &cmd, "latchkey", "break", "a");
	ck_assert_str_eq(cmd.err, "latchkey: cannot break \"a\": not held\n");
	redis_do(redis, "SET lk:fence abc");
	RUNS(69, &cmd, "latchkey", "lock", "a", "true");
	ck_assert_ptr_nonnull(strstr(cmd.err, "the fence counter is "));
	redis_do(redis, "DEL lk:fence");
	redis_do(redis, "CONFIG SET min-replicas-to-write 1");
	RUNS(69, &cmd, "latchkey", "lock", "-n", "a", "true");
	ck_assert_ptr_nonnull(strstr(cmd.err, "NOREPLICAS"));
	RUNS(69, &cmd, "latchkey", "latch", "set", "l", "1");
	redis_do(redis, "CONFIG SET min-replicas-to-write 0");
	RUNS(0, &cmd, "latchkey", "lock", "-n", "a", "true");
	redis_close(redis);
	server_stop(&server);
}

/* A rate's turns have holders that no user can end; the last turn expires. */
TEST(show_tells_of_a_rate)
{
	begin();
	RUNS(0, &cmd, "latchkey", "rate", "--limit", "2", "--per", "60", "r");
	START(&four, "latchkey", "rate", "--limit", "2", "-k", "2", "--per", "60", "r");
	ck_assert(WITHIN(5000, command_waiting_is("r", 1)));
	assert_json("r", "$.available", "1");
	assert_json("r", "$.holding", "1");
	assert_json("r", "$.waiters[0].permits", "2");
	server_stop(&server);
}
