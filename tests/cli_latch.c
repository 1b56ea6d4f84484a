/* SPDX-License-Identifier: MIT
 * latchkey latch: set, reset, down, wait, show, rm, and a batch job behind a gate. */
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

static struct command cmd, waiter;

/* The command still waits after 400 ms. */
static void assert_waits(struct command *command)
{
	ck_assert_msg(!command_wait(command, 400), "it ended: %x %s", command->status,
	              command->err);
}

static void assert_ends(struct command *command, int status)
{
	ck_assert(command_wait(command, 5000));
	ck_assert_msg(WIFEXITED(command->status) && WEXITSTATUS(command->status) == status, "%x %s",
	              command->status, command->err);
}

TEST(set_tells_what_it_was_and_leaves_a_counting_one)
{
	begin();
	/* The latch did not exist: there is nothing to report. */
	RUNS(0, &cmd, "latchkey", "latch", "set", "a", "2");
	ck_assert_str_eq(cmd.out, "");
	ck_assert_str_eq(cmd.err, "");
	RUNS(75, &cmd, "latchkey", "latch", "set", "a", "5");
	ck_assert_str_eq(cmd.out, "");
	ck_assert_ptr_nonnull(strstr(cmd.err, "latchkey: cannot set \"a\": "));
	RUNS(75, &cmd, "latchkey", "latch", "set", "-q", "a", "5");
	ck_assert_str_eq(cmd.err, "");
	RUNS(0, &cmd, "latchkey", "latch", "show", "a");
	ck_assert_ptr_nonnull(strstr(cmd.out, "state    counting\nremain   2 of 2\n"));
	RUNS(0, &cmd, "latchkey", "latch", "down", "a", "2");
	RUNS(0, &cmd, "latchkey", "latch", "set", "a", "1");
	ck_assert_str_eq(cmd.out, "open\n");
	RUNS(0, &cmd, "latchkey", "latch", "reset", "a", "4");
	ck_assert_str_eq(cmd.out, "counting\n");
	RUNS(0, &cmd, "latchkey", "latch", "reset", "-q", "a", "3");
	ck_assert_str_eq(cmd.out, "");
	RUNS(0, &cmd, "latchkey", "latch", "show", "a");
	ck_assert_ptr_nonnull(strstr(cmd.out, "remain   3 of 3\n"));
	/* With a count of 0 it is open at once. */
	RUNS(0, &cmd, "latchkey", "latch", "set", "b", "0");
	RUNS(0, &cmd, "latchkey", "latch", "wait", "-n", "b");
	RUNS(0, &cmd, "latchkey", "latch", "reset", "c", "2147483647");
	ck_assert_str_eq(cmd.out, "");
	server_stop(&server);
}

TEST(down_tells_what_remains)
{
	begin();
	RUNS(1, &cmd, "latchkey", "latch", "down", "a");
	ck_assert_str_eq(cmd.out, "");
	ck_assert_str_eq(cmd.err, "latchkey: cannot count down \"a\": no such latch\n");
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "a", "5");
	RUNS(0, &cmd, "latchkey", "latch", "down", "a");
	ck_assert_str_eq(cmd.out, "4\n");
	RUNS(0, &cmd, "latchkey", "latch", "down", "a", "2");
	ck_assert_str_eq(cmd.out, "2\n");
	RUNS(0, &cmd, "latchkey", "latch", "down", "-q", "a");
	ck_assert_str_eq(cmd.out, "");
	RUNS(0, &cmd, "latchkey", "latch", "down", "a", "2147483647");
	ck_assert_str_eq(cmd.out, "0\n");
	RUNS(0, &cmd, "latchkey", "latch", "down", "a");
	ck_assert_str_eq(cmd.out, "0\n");
	server_stop(&server);
}

TEST(down_of_one_id_counts_once)
{
	begin();
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "a", "3");
	RUNS(0, &cmd, "latchkey", "latch", "down", "--id", "one", "a");
	ck_assert_str_eq(cmd.out, "2\n");
	RUNS(0, &cmd, "latchkey", "latch", "down", "--id=one", "a");
	ck_assert_str_eq(cmd.out, "2\n");
	ck_assert_str_eq(cmd.err, "");
	RUNS(0, &cmd, "latchkey", "latch", "down", "-v", "--id=one", "a");
	ck_assert_ptr_nonnull(strstr(cmd.err, "this step had been counted before"));
	RUNS(0, &cmd, "latchkey", "latch", "down", "--id", "two", "a");
	ck_assert_str_eq(cmd.out, "1\n");
	/* A reset latch counts the step again. */
	RUNS(0, &cmd, "latchkey", "latch", "reset", "-q", "a", "3");
	RUNS(0, &cmd, "latchkey", "latch", "down", "--id", "one", "a");
	ck_assert_str_eq(cmd.out, "2\n");
	server_stop(&server);
}

TEST(wait_ends_with_the_last_step)
{
	begin();
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "a", "2");
	START(&waiter, "latchkey", "latch", "wait", "a");
	assert_waits(&waiter);
	RUNS(0, &cmd, "latchkey", "latch", "down", "a");
	assert_waits(&waiter);
	RUNS(0, &cmd, "latchkey", "latch", "down", "a");
	assert_ends(&waiter, 0);
	ck_assert_str_eq(waiter.out, "");
	ck_assert_str_eq(waiter.err, "");
	/* A later wait finds it open. */
	RUNS(0, &cmd, "latchkey", "latch", "wait", "-n", "a");
	server_stop(&server);
}

TEST(absent_latch_is_awaited_or_open)
{
	begin();
	START(&waiter, "latchkey", "latch", "wait", "a");
	assert_waits(&waiter);
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "a", "1");
	assert_waits(&waiter);
	RUNS(0, &cmd, "latchkey", "latch", "down", "a");
	assert_ends(&waiter, 0);
	RUNS(75, &cmd, "latchkey", "latch", "wait", "-n", "b");
	RUNS(75, &cmd, "latchkey", "latch", "wait", "-w", "0.1", "b");
	RUNS(0, &cmd, "latchkey", "latch", "wait", "--absent-is-open", "b");
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "b", "1");
	RUNS(75, &cmd, "latchkey", "latch", "wait", "-n", "--absent-is-open", "b");
	server_stop(&server);
}

TEST(removed_latch_is_waited_for)
{
	begin();
	RUNS(1, &cmd, "latchkey", "latch", "rm", "a");
	ck_assert_str_eq(cmd.err, "latchkey: cannot remove \"a\": no such latch\n");
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "a", "1");
	START(&waiter, "latchkey", "latch", "wait", "a");
	assert_waits(&waiter);
	RUNS(0, &cmd, "latchkey", "latch", "rm", "a");
	ck_assert_str_eq(cmd.out, "");
	assert_waits(&waiter);
	RUNS(0, &cmd, "latchkey", "latch", "show", "a");
	ck_assert_str_eq(cmd.out, "name     a\nkind     latch\nstate    absent\n");
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "a", "0");
	assert_ends(&waiter, 0);
	server_stop(&server);
}

TEST(signal_ends_a_wait_for_a_silent_store)
{
	begin();
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "a", "1");
	server_pause(&server);
	START(&waiter, "latchkey", "latch", "wait", "a");
	nap_ms(300);
	kill(waiter.pid, SIGTERM);
	ck_assert(command_wait(&waiter, 1500));
	ck_assert(WIFSIGNALED(waiter.status) && WTERMSIG(waiter.status) == SIGTERM);
	server_resume(&server);
	server_stop(&server);
}

TEST(latch_is_forgotten_when_its_time_is_over)
{
	begin();
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "--ttl", "1", "a", "2");
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "--open-ttl", "1", "b", "1");
	RUNS(0, &cmd, "latchkey", "latch", "show", "b");
	ck_assert_ptr_nonnull(strstr(cmd.out, "memory   no end\n"));
	RUNS(0, &cmd, "latchkey", "latch", "down", "b");
	RUNS(0, &cmd, "latchkey", "latch", "wait", "-n", "b");
	ck_assert(WITHIN(3000, shell("latchkey latch show a | grep -q absent") == 0));
	ck_assert(WITHIN(3000, shell("latchkey latch show b | grep -q absent") == 0));
	RUNS(75, &cmd, "latchkey", "latch", "wait", "-n", "b");
	server_stop(&server);
}

TEST(options_stand_anywhere)
{
	begin();
	RUNS(0, &cmd, "latchkey", "-q", "latch", "--ttl=100", "set", "--open-ttl", "100", "a", "3");
	ck_assert_str_eq(cmd.out, "");
	RUNS(0, &cmd, "latchkey", "latch", "down", "a", "-q", "1", "--id", "x");
	ck_assert_str_eq(cmd.out, "");
	RUNS(9, &cmd, "latchkey", "latch", "-n", "wait", "a", "-E9");
	RUNS(0, &cmd, "latchkey", "latch", "show", "a", "--json");
	ck_assert_ptr_nonnull(strstr(cmd.out, "\"count\":2"));
	RUNS(0, &cmd, "latchkey", "latch", "set", "--", "-n", "3");
	RUNS(0, &cmd, "latchkey", "latch", "down", "-q", "--", "-n");
	RUNS(0, &cmd, "latchkey", "latch", "show", "--json", "--", "-n");
	ck_assert_ptr_nonnull(strstr(cmd.out, "{\"name\":\"-n\","));
	RUNS(0, &cmd, "latchkey", "latch", "--help");
	RUNS(0, &cmd, "latchkey", "latch", "wait", "a", "--help");
	ck_assert_ptr_nonnull(strstr(cmd.out, "--absent-is-open"));
	server_stop(&server);
}

TEST(wait_ends_in_time_when_the_server_is_gone)
{
	int64_t began;

	begin();
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "a", "1");
	began = now_ms();
	START(&waiter, "latchkey", "latch", "wait", "-w", "1", "a");
	nap_ms(300);
	server_kill(&server);
	ck_assert(command_wait(&waiter, 10000));
	/* Either the state is unknown, or the latch did not open in time. */
	ck_assert(WEXITSTATUS(waiter.status) == 69 || WEXITSTATUS(waiter.status) == 75);
	ck_assert_int_le(now_ms() - began, 1000 + 2000 + 1000);
	server_stop(&server);
}

/* Without a terminal the command does not poll: the store publishes the end. */
TEST(wait_asks_the_store_only_at_its_begin)
{
	struct redis *redis;
	long long before, first;

	begin();
	redis = redis_open(&server);
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "a", "1");
	before = redis_script_calls(redis);
	RUNS(75, &cmd, "latchkey", "latch", "wait", "-q", "-w", "0.1", "a");
	first = redis_script_calls(redis) - before;
	before = redis_script_calls(redis);
	RUNS(75, &cmd, "latchkey", "latch", "wait", "-q", "-w", "4", "a");
	ck_assert_int_le(redis_script_calls(redis) - before, first + 1);
	redis_close(redis);
	server_stop(&server);
}

/* Five loaders, one of which crashes after its step and is restarted. */
TEST_LIMIT(batch_waits_for_its_loaders, 30)
{
	begin();
	RUNS(0, &cmd, "latchkey", "latch", "set", "-q", "--ttl", "3600", "loaders", "5");
	START(&waiter, "sh", "-c",
	      "latchkey latch wait loaders && ls $(dirname $LATCHKEY_LOCAL_DIR)");
	ck_assert_int_eq(shell("cd %s && for i in 1 2 3 4; do (touch part$i; "
	                       "latchkey latch down -q --id $i loaders) & done; wait; "
	                       "latchkey latch down --id 3 loaders >again",
	                       command_folder()),
	                 0);
	ck_assert_str_eq(command_read("again"), "1\n");
	assert_waits(&waiter);
	ck_assert_int_eq(shell("cd %s && touch part5 && latchkey latch down -q --id 5 loaders",
	                       command_folder()),
	                 0);
	assert_ends(&waiter, 0);
	ck_assert_ptr_nonnull(strstr(waiter.out, "part1\npart2\npart3\npart4\npart5\n"));
	server_stop(&server);
}
