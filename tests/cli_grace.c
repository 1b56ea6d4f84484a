/* SPDX-License-Identifier: MIT
 * The command after the server has lost its memory: it says why nothing is granted and for how
 * long, and latchkey grace end is the way out. */
#include "command.h"
#include "process.h"
#include "redis.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORGOTTEN "the server may have forgotten a holder: nothing is granted for "

static struct test_server server;
static struct command cmd, other;
static struct redis *redis;

/* A server that has just begun, and a URL with that grace. */
static void begin_grace(const char *grace_ms)
{
	char url[80];

	server_start(&server, NULL);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d?grace=%s", server.port, grace_ms);
	command_setup(url);
	redis = redis_open(&server);
}

static void finish(void)
{
	redis_close(redis);
	server_stop(&server);
}

static bool has(const char *text, const char *part)
{
	if (!strstr(text, part))
		printf("no \"%s\" in: %s", part, text);
	return strstr(text, part) != NULL;
}

TEST(try_in_a_grace_is_busy_and_says_why)
{
	begin_grace("59000");
	RUNS(75, &cmd, "latchkey", "lock", "-n", "a", "true");
	ck_assert(has(cmd.err, "latchkey: cannot acquire \"a\": " FORGOTTEN));
	ck_assert(has(cmd.err, " s\n"));
	RUNS(75, &cmd, "latchkey", "sem", "-n", "--permits", "2", "s", "true");
	ck_assert(has(cmd.err, "cannot acquire \"s\": 2 of 2 free, " FORGOTTEN));
	RUNS(75, &cmd, "latchkey", "rate", "-n", "--limit", "2", "--per", "1", "r", "true");
	ck_assert(has(cmd.err, "2 of 2 free, " FORGOTTEN));
	RUNS(75, &cmd, "latchkey", "lock", "-w", "0.1", "a", "true");
	ck_assert(has(cmd.err, "not acquired in time, " FORGOTTEN));
	RUNS(3, &cmd, "latchkey", "lock", "-nq", "-E", "3", "a", "true");
	ck_assert_str_eq(cmd.err, "");
	finish();
}

TEST(wait_ends_with_the_grace)
{
	begin_grace("1500");
	RUNS(75, &cmd, "latchkey", "lock", "-n", "a", "true");
	RUNS(0, &cmd, "latchkey", "lock", "a", "echo", "ran");
	ck_assert_str_eq(cmd.out, "ran\n");
	ck_assert_str_eq(cmd.err, "");
	RUNS(0, &cmd, "latchkey", "grace");
	ck_assert(has(cmd.out, "grace    none\n"));
	finish();
}

/* Without a terminal as an outage: after 5 s, once. */
TEST(long_wait_is_explained_without_a_terminal)
{
	const char *explained;

	begin_grace("59000");
	RUNS(75, &cmd, "latchkey", "lock", "-w", "7", "a", "true");
	explained = strstr(cmd.err, "latchkey: waiting for \"a\": " FORGOTTEN);
	ck_assert_msg(explained != NULL, "%s", cmd.err);
	ck_assert(has(explained, "latchkey grace end"));
	ck_assert_ptr_null(strstr(explained + 1, "latchkey: waiting"));
	RUNS(75, &cmd, "latchkey", "lock", "-q", "-w", "6", "a", "true");
	ck_assert_str_eq(cmd.err, "");
	finish();
}

TEST(show_says_how_much_of_the_grace_is_left)
{
	begin_grace("59000");
	RUNS(0, &cmd, "latchkey", "show", "a");
	ck_assert(has(cmd.out, "held by  -\ngrace    nothing is granted for "));
	RUNS(75, &cmd, "latchkey", "sem", "-n", "--permits", "2", "s", "true");
	RUNS(0, &cmd, "latchkey", "show", "s");
	ck_assert(has(cmd.out, "\ngrace    nothing is granted for "));
	RUNS(0, &cmd, "latchkey", "show", "--json", "a");
	ck_assert(has(cmd.out, ",\"grace_seconds\":5"));
	RUNS(0, &cmd, "latchkey", "show", "--json", "s");
	ck_assert(has(cmd.out, ",\"grace_seconds\":5"));
	RUNS(0, &cmd, "latchkey", "show");
	ck_assert(has(cmd.err, "latchkey: " FORGOTTEN));
	RUNS(0, &cmd, "latchkey", "grace", "end", "--yes");
	RUNS(0, &cmd, "latchkey", "show", "a");
	ck_assert_ptr_null(strstr(cmd.out, "grace"));
	RUNS(0, &cmd, "latchkey", "show", "--json", "s");
	ck_assert(has(cmd.out, ",\"grace_seconds\":0.000,"));
	RUNS(0, &cmd, "latchkey", "show");
	ck_assert_ptr_null(strstr(cmd.err, "granted"));
	finish();
}

TEST(grace_shows_the_memory)
{
	char begins[80];

	begin_grace("59000");
	RUNS(0, &cmd, "latchkey", "grace");
	snprintf(begins, sizeof(begins), "memory   %.40s\nfor      ",
	         strchr(redis_marker(redis), ' ') + 1);
	ck_assert(has(cmd.out, begins));
	ck_assert(has(cmd.out, "\ngrace    5"));
	ck_assert(has(cmd.out, " s left\n"));
	RUNS(0, &cmd, "latchkey", "grace", "--json");
	ck_assert(has(cmd.out, ",\"grace_seconds\":5"));
	ck_assert(has(cmd.out, ",\"partial\":false}\n"));
	RUNS(0, &cmd, "latchkey", "--url", server.url, "grace");
	ck_assert(has(cmd.out, "\ngrace    none\n"));
	RUNS(64, &cmd, "latchkey", "grace", "begin");
	ck_assert(has(cmd.err, "latchkey grace: may only be followed by end"));
	finish();
}

TEST(grace_end_lets_everybody_go_on)
{
	begin_grace("59000");
	command_start_line(&other, "lock -v b true");
	ck_assert(WITHIN(5000, command_waiting_is("b", 1)));
	RUNS(0, &cmd, "latchkey", "grace", "end", "--yes");
	ck_assert(has(cmd.err, "latchkey: the grace was ended\n"));
	RUNS(0, &cmd, "latchkey", "lock", "-n", "a", "true");
	RUNS(0, &cmd, "latchkey", "sem", "-n", "--permits", "2", "s", "true");
	/* A waiter asks again every 10 s. */
	ck_assert(command_wait(&other, 15000));
	ck_assert_int_eq(other.status, 0);
	ck_assert(has(other.err, ": the grace was ended by hand\n"));
	RUNS(0, &cmd, "latchkey", "grace");
	ck_assert(has(cmd.out, "\ngrace    ended by hand, or not needed\n"));
	RUNS(0, &cmd, "latchkey", "grace", "end", "-y");
	ck_assert(has(cmd.err, "there is no grace, or it is over"));
	RUNS(0, &cmd, "latchkey", "grace", "end", "-qy");
	ck_assert_str_eq(cmd.err, "");
	/* The next loss has a grace again. */
	redis_do(redis, "FLUSHALL");
	RUNS(75, &cmd, "latchkey", "lock", "-n", "a", "true");
	finish();
}

TEST(grace_end_needs_a_yes)
{
	char marker[120];

	begin_grace("59000");
	RUNS(0, &cmd, "latchkey", "grace");
	snprintf(marker, sizeof(marker), "%s", redis_marker(redis));
	ck_assert_int_eq(shell("latchkey grace end </dev/null 2>%s", command_file("err")), 64);
	ck_assert(has(command_read("err"), "without one, give --yes"));
	ck_assert_str_eq(redis_marker(redis), marker);
	RUNS(75, &cmd, "latchkey", "lock", "-n", "a", "true");
	finish();
}

TEST(loss_is_logged_with_what_was_taken_back)
{
	begin_grace("4000");
	RUNS(0, &cmd, "latchkey", "grace", "end", "--yes");
	command_hold(&other, "lock -v --lease 6 a sleep 5");
	redis_do(redis, "FLUSHALL");
	ck_assert(command_wait(&other, 15000));
	ck_assert_int_eq(other.status, 0);
	ck_assert(has(other.err,
	              ": the server has lost its memory (its keys were deleted, or its clock was "
	              "set back) and may "
	              "have forgotten a holder: nothing is granted for 4.0 s (if nothing "
	              "can be held: latchkey grace end, or grace=0 in the URL)\n"));
	ck_assert(has(other.err, ": holds taken back after the loss: 1\n"));
	ck_assert(has(other.err, "a lease of 6.0 s is longer than the grace of 4.0 s"));
	finish();
}

TEST(restart_and_a_grace_that_runs_are_logged)
{
	begin_grace("2000");
	RUNS(0, &cmd, "latchkey", "lock", "-v", "--lease", "1", "a", "true");
	ck_assert(has(cmd.err, ": the server's memory began "));
	ck_assert_ptr_null(strstr(cmd.err, "longer than the grace"));
	command_hold(&other, "lock -v a sleep 4");
	redis_close(redis);
	server_restart(&server);
	redis = redis_open(&server);
	ck_assert(command_wait(&other, 15000));
	ck_assert_int_eq(other.status, 0);
	ck_assert(has(other.err, "has lost its memory (it was restarted, or is another one)"));
	ck_assert(has(other.err, ": holds taken back after the loss: 1\n"));
	finish();
}

TEST(promotion_is_logged)
{
	begin_grace("2000");
	command_hold(&other, "lock -v a sleep 3");
	redis_do(redis, "REPLICAOF 127.0.0.1 1");
	redis_do(redis, "REPLICAOF NO ONE");
	redis_do(redis, "CLIENT KILL TYPE normal SKIPME yes");
	ck_assert(command_wait(&other, 15000));
	ck_assert_int_eq(other.status, 0);
	ck_assert(has(other.err, "has lost its memory (it was a replica)"));
	ck_assert(has(other.err, ": holds taken back after the loss: 1\n"));
	finish();
}

TEST(refused_info_is_logged)
{
	begin_grace("1000");
	redis_do(redis, "ACL SETUSER default -info");
	RUNS(0, &cmd, "latchkey", "lock", "-v", "a", "true");
	ck_assert(has(cmd.err, ": this user may not run INFO: "));
	RUNS(0, &cmd, "latchkey", "grace");
	ck_assert(has(cmd.out, "memory   -\n"));
	ck_assert(has(cmd.out, "\nINFO     refused: "));
	finish();
}
