/* SPDX-License-Identifier: MIT
 * latchkey sem: at most as many commands at once as there are permits, even if holders are killed.
 */
#include "command_server.h"
#include "process.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct command cmd, other, third;

/* Another latchkey that holds permits until the test ends. */
static void hold(struct command *command, const char *permits, const char *units)
{
	command_hold(command, "sem --permits '%s' -k '%s' a sleep 97", permits, units);
}

TEST(busy_permits_name_their_holder)
{
	char expected[128];

	begin();
	hold(&other, "3", "2");
	snprintf(expected, sizeof(expected), "(pid %d, sleep) for ", (int)other.pid);
	ck_assert(WITHIN(5000, RUN(&cmd, "latchkey", "sem", "-n", "--permits", "3", "-k", "2", "a",
	                           "true") == 75 &&
	                               strstr(cmd.err, expected)));
	ck_assert_ptr_nonnull(
		strstr(cmd.err, "latchkey: cannot acquire \"a\": 1 of 3 free, held by "));
	ck_assert_ptr_null(strstr(cmd.err, "other"));
	hold(&third, "3", "1");
	ck_assert(WITHIN(5000,
	                 RUN(&cmd, "latchkey", "sem", "-w", "0.1", "--permits", "3", "a", "true") ==
	                                 75 &&
	                         strstr(cmd.err, "not acquired in time, 0 of 3 free, held by ")));
	ck_assert_ptr_nonnull(strstr(cmd.err, " and 1 other\n"));
	RUNS(75, &cmd, "latchkey", "sem", "-nq", "--permits", "3", "a", "true");
	ck_assert_str_eq(cmd.err, "");
	server_stop(&server);
}

/* Each command leaves a file while it runs, and records how many it sees. */
#define COUNTS                                                                                     \
	"touch in.$$; ls | grep -c \"^in\" >>seen; sleep 0.05; "                                   \
	"ls | grep -c \"^in\" >>seen; rm in.$$"

TEST_LIMIT(as_many_run_at_once_as_there_are_permits, 60)
{
	begin();
	ck_assert_int_eq(shell("cd %s && for i in 1 2 3 4 5 6 7 8; do "
	                       "(for j in 1 2 3; do latchkey sem --permits 3 a -c '%s' || echo bad "
	                       ">>bad; done) & done; wait",
	                       command_folder(), COUNTS),
	                 0);
	ck_assert_str_eq(command_read("bad"), "");
	ck_assert_int_eq(shell("cd %s && test 48 = $(wc -l <seen) && "
	                       "test 3 = $(sort -n seen | tail -1)",
	                       command_folder()),
	                 0);
	server_stop(&server);
}

TEST_LIMIT(xargs_is_limited, 60)
{
	begin();
	ck_assert_int_eq(
		shell("cd %s && seq 12 | xargs -P 6 -I {} latchkey sem --permits 2 a -c '%s'",
	              command_folder(), COUNTS),
		0);
	ck_assert_int_eq(shell("cd %s && test 24 = $(wc -l <seen) && "
	                       "test 2 = $(sort -n seen | tail -1)",
	                       command_folder()),
	                 0);
	server_stop(&server);
}

TEST(units_are_taken_all_or_none)
{
	begin();
	hold(&other, "3", "2");
	RUNS(75, &cmd, "latchkey", "sem", "-n", "--permits", "3", "-k", "2", "a", "echo", "no");
	ck_assert_str_eq(cmd.out, "");
	ck_assert_ptr_nonnull(strstr(cmd.err, "latchkey: cannot acquire \"a\": "));
	RUNS(0, &cmd, "latchkey", "sem", "-n", "--permits", "3", "a", "true");
	hold(&third, "3", "1");
	RUNS(75, &cmd, "latchkey", "sem", "-n", "--permits", "3", "a", "true");
	server_stop(&server);
}

TEST(largest_numbers_are_taken)
{
	begin();
	RUNS(0, &cmd, "latchkey", "sem", "--permits", "2147483647", "-k", "2147483647", "a",
	     "true");
	RUNS(0, &cmd, "latchkey", "sem", "--permits", "2147483647", "a", "true");
	server_stop(&server);
}

TEST(other_capacity_is_refused_and_both_are_named)
{
	begin();
	RUNS(0, &cmd, "latchkey", "sem", "--permits", "3", "a", "true");
	RUNS(64, &cmd, "latchkey", "sem", "--permits", "41", "a", "echo", "no");
	ck_assert_str_eq(cmd.out, "");
	ck_assert_ptr_nonnull(strstr(cmd.err, "latchkey: cannot acquire \"a\": "));
	ck_assert_ptr_nonnull(strstr(cmd.err, "3"));
	ck_assert_ptr_nonnull(strstr(cmd.err, "41"));
	ck_assert_ptr_nonnull(strstr(cmd.err, "--resize"));
	RUNS(0, &cmd, "latchkey", "sem", "--permits", "3", "a", "true");
	RUNS(0, &cmd, "latchkey", "sem", "--resize", "--permits", "41", "-k", "41", "a", "true");
	RUNS(64, &cmd, "latchkey", "sem", "--permits", "3", "a", "true");
	/* The command that creates the semaphore has nothing to resize. */
	RUNS(0, &cmd, "latchkey", "sem", "--resize", "--permits", "5", "b", "true");
	server_stop(&server);
}

TEST(resize_serves_who_waits_and_ends_nobody)
{
	begin();
	hold(&other, "1", "1");
	START(&third, "latchkey", "sem", "--permits", "1", "a", "echo", "served");
	ck_assert(WITHIN(5000, command_waiting_is("a", 1)));
	RUNS(0, &cmd, "latchkey", "sem", "--resize", "--permits", "2", "a", "true");
	ck_assert(command_wait(&third, 5000));
	ck_assert_int_eq(WEXITSTATUS(third.status), 0);
	ck_assert_str_eq(third.out, "served\n");
	hold(&third, "2", "1");
	RUNS(75, &cmd, "latchkey", "sem", "-n", "--resize", "--permits", "1", "a", "true");
	ck_assert_int_eq(command_count_of("sleep"), 2);
	kill(third.pid, SIGTERM);
	ck_assert(command_wait(&third, 5000));
	/* The holds fit again, but no permit is free. */
	RUNS(75, &cmd, "latchkey", "sem", "-n", "--permits", "1", "a", "true");
	kill(other.pid, SIGTERM);
	ck_assert(command_wait(&other, 5000));
	RUNS(0, &cmd, "latchkey", "sem", "-n", "--permits", "1", "a", "true");
	server_stop(&server);
}

TEST(wait_that_a_resize_made_impossible_is_64)
{
	begin();
	hold(&other, "3", "2");
	START(&third, "latchkey", "sem", "--permits", "3", "-k", "2", "a", "true");
	ck_assert(WITHIN(5000, command_waiting_is("a", 1)));
	RUNS(75, &cmd, "latchkey", "sem", "-n", "--resize", "--permits", "1", "a", "true");
	ck_assert(command_wait(&third, 5000));
	ck_assert_int_eq(WEXITSTATUS(third.status), 64);
	server_stop(&server);
}

TEST(nested_commands_fail_at_once_when_they_would_wait_for_themselves)
{
	begin();
	RUNS(0, &cmd, "latchkey", "sem", "--permits", "2", "b", "latchkey", "sem", "--permits", "2",
	     "b", "echo", "in");
	ck_assert_str_eq(cmd.out, "in\n");
	RUNS(9, &cmd, "latchkey", "sem", "--permits", "2", "b", "latchkey", "sem", "--permits", "2",
	     "-k", "2", "-E9", "b", "true");
	RUNS(9, &cmd, "latchkey", "sem", "--permits", "2", "b", "-c",
	     "latchkey sem --permits 2 b latchkey lock c latchkey sem -E9 --permits 2 b true");
	ck_assert_ptr_nonnull(strstr(cmd.err, "hold 2 of its 2 permits"));
	/* Permits that other commands hold may be waited for. */
	hold(&other, "2", "1");
	RUNS(75, &cmd, "latchkey", "lock", "c", "latchkey", "sem", "-n", "--permits", "2", "-k",
	     "2", "a", "true");
	ck_assert_ptr_null(strstr(cmd.err, "the commands that run this one"));
	server_stop(&server);
}
