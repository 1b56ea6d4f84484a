/* SPDX-License-Identifier: MIT
 * latchkey rate: a limited number of turns in any window, for all clients together, and no guard
 * for the command. */
#include "command_server.h"
#include "process.h"
#include "proxy.h"
#include "redis.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct command cmd, other;

/* The store's clock decides, and the test measures ends of commands.  So it checks only that many
 * turns take many windows. */
TEST_LIMIT(no_window_sees_more_than_the_limit, 40)
{
	int64_t began, took;

	begin();
	began = now_ms();
	ck_assert_int_eq(shell("cd %s && for i in 1 2 3 4; do (for j in 1 2 3; do latchkey rate "
	                       "--limit 4 --per 1.5 a -c 'echo >>turns' || echo bad >>bad; done) & "
	                       "done; wait",
	                       command_folder()),
	                 0);
	took = now_ms() - began;
	ck_assert_str_eq(command_read("bad"), "");
	ck_assert_int_eq(strlen(command_read("turns")), 12);
	ck_assert_int_ge(took, 2 * 1500);
	/* Nor is it unnecessarily slow. */
	ck_assert_int_lt(took, 4 * 1500);
	server_stop(&server);
}

#define STARTS 4
#define PER_MS 1000

static int compare_ms(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

/* Two turns are granted at once, and their commands start late: the store is far.  The next two are
 * granted when the permits expire, and their commands start at once.  Without the slack all four
 * would start within one window. */
TEST_LIMIT(slack_makes_starts_obey_the_limit, 60)
{
	struct proxy_fault far = {.delay_ms = 400};
	struct command far_turns[2], near_turns[2];
	int64_t starts_ms[STARTS];
	struct proxy proxy;
	struct redis *redis;
	char *at;

	begin();
	redis = redis_open(&server);
	setenv("STARTS_FILE", command_file("starts"), 1);
	proxy_start(&proxy, &server);
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &far);
	for (int i = 0; i < 2; i++)
		START(&far_turns[i], "latchkey", "rate", "--url", proxy.url, "--limit", "2",
		      "--per", "1", "--slack", "5", "a", "-c", "date +%s%3N >>\"$STARTS_FILE\"");
	ck_assert(WITHIN(10000, redis_int(redis, "EXISTS lk:{a}") &&
	                                redis_int(redis, "HGET lk:{a} used") == 2));
	for (int i = 0; i < 2; i++)
		START(&near_turns[i], "latchkey", "rate", "--limit", "2", "--per", "1", "--slack",
		      "5", "a", "-c", "date +%s%3N >>\"$STARTS_FILE\"");
	for (int i = 0; i < 2; i++) {
		ck_assert(command_wait(&far_turns[i], 20000) && far_turns[i].status == 0);
		ck_assert(command_wait(&near_turns[i], 20000) && near_turns[i].status == 0);
	}
	ck_assert_int_gt(proxy_count(&proxy).late[PROXY_COMMANDS][PROXY_TO_CLIENT], 0);
	at = (char *)(uintptr_t)command_read("starts");
	for (int i = 0; i < STARTS; i++)
		starts_ms[i] = strtoll(at, &at, 10);
	ck_assert_str_eq(at, "\n");
	qsort(starts_ms, STARTS, sizeof(starts_ms[0]), compare_ms);
	for (int i = 2; i < STARTS; i++)
		ck_assert_int_ge(starts_ms[i] - starts_ms[i - 2], PER_MS);
	redis_close(redis);
	proxy_stop(&proxy);
	server_stop(&server);
}

TEST(slack_keeps_a_permit_for_longer_than_the_window)
{
	begin();
	RUNS(0, &cmd, "latchkey", "rate", "--limit", "1", "--per", "0.1", "--slack", "600", "a");
	nap_ms(300);
	RUNS(75, &cmd, "latchkey", "rate", "-n", "--limit", "1", "--per", "0.1", "--slack", "600",
	     "a");
	/* The slack belongs to its permit, not to the rate: another command may use another slack,
	 * or none. */
	RUNS(75, &cmd, "latchkey", "rate", "-n", "--limit", "1", "--per", "0.1", "a");
	RUNS(0, &cmd, "latchkey", "rate", "--limit", "1", "--per", "0.1", "--slack", "0", "b");
	RUNS(0, &cmd, "latchkey", "rate", "-w", "15", "--limit", "1", "--per", "0.1", "b");
	server_stop(&server);
}

TEST(turns_without_a_command_pace_a_loop)
{
	int64_t began;

	begin();
	began = now_ms();
	ck_assert_int_eq(
		shell("cd %s && printf 'a\\nb\\nc\\n' | while read -r word; do "
	              "latchkey rate --limit 2 --per 0.7 turns && echo $word >>words; done",
	              command_folder()),
		0);
	ck_assert_int_ge(now_ms() - began, 700);
	ck_assert_str_eq(command_read("words"), "a\nb\nc\n");
	RUNS(75, &cmd, "latchkey", "rate", "-nq", "--limit", "2", "-k", "2", "--per", "0.7",
	     "turns");
	ck_assert_str_eq(cmd.err, "");
	ck_assert_str_eq(cmd.out, "");
	server_stop(&server);
}

TEST(turn_is_not_given_back_when_the_command_ends)
{
	int64_t began;

	begin();
	began = now_ms();
	RUNS(3, &cmd, "latchkey", "rate", "--limit", "1", "--per", "2", "a", "sh", "-c", "exit 3");
	RUNS(75, &cmd, "latchkey", "rate", "-n", "--limit", "1", "--per", "2", "a", "echo", "no");
	ck_assert_str_eq(cmd.out, "");
	RUNS(9, &cmd, "latchkey", "rate", "-w", "0.2", "-E", "9", "--limit", "1", "--per", "2", "a",
	     "true");
	RUNS(0, &cmd, "latchkey", "rate", "-w", "10", "--limit", "1", "--per", "2", "a", "echo",
	     "yes");
	ck_assert_str_eq(cmd.out, "yes\n");
	ck_assert_int_ge(now_ms() - began, 2000);
	server_stop(&server);
}

TEST(units_are_turns)
{
	begin();
	RUNS(0, &cmd, "latchkey", "rate", "--limit", "3", "-k", "2", "--per", "60", "a");
	RUNS(75, &cmd, "latchkey", "rate", "-n", "--limit", "3", "-k", "2", "--per", "60", "a");
	RUNS(0, &cmd, "latchkey", "rate", "-n", "--limit", "3", "--per", "60", "a");
	RUNS(75, &cmd, "latchkey", "rate", "-n", "--limit", "3", "--per", "60", "a");
	RUNS(64, &cmd, "latchkey", "rate", "-n", "--limit", "4", "--per", "60", "a");
	ck_assert_ptr_nonnull(strstr(cmd.err, "--resize"));
	RUNS(0, &cmd, "latchkey", "rate", "-n", "--resize", "--limit", "4", "--per", "60", "a");
	RUNS(75, &cmd, "latchkey", "rate", "-n", "--limit", "4", "--per", "60", "a");
	server_stop(&server);
}

TEST(command_runs_without_a_guard_and_without_the_store)
{
	struct redis *redis;

	begin();
	redis = redis_open(&server);
	command_hold(&cmd, "rate --limit 9 --per 0.1 a sleep 3");
	ck_assert(WITHIN(1000, redis_info(redis, "connected_clients") == 1));
	/* Its window has passed and the store is down: the command continues. */
	redis_close(redis);
	server_kill(&server);
	nap_ms(500);
	ck_assert_int_eq(command_count_of("sleep"), 1);
	kill(cmd.pid, SIGKILL);
	nap_ms(300);
	ck_assert_int_eq(command_count_of("sleep"), 1);
	ck_assert(WITHIN(5000, command_count() == 0));
	server_stop(&server);
}

TEST(what_the_command_leaves_in_its_group_stays)
{
	int64_t began;

	begin();
	began = now_ms();
	RUNS(3, &cmd, "latchkey", "rate", "--limit", "9", "--per", "1", "a", "-c",
	     "sleep 3 & exit 3");
	ck_assert_int_lt(now_ms() - began, 2500);
	ck_assert(WITHIN(2000, command_count_of("sleep") == 1)); /* once its exec() is done */
	ck_assert(WITHIN(5000, command_count() == 0));
	server_stop(&server);
}

TEST(environment_is_that_of_the_caller)
{
	begin();
	RUNS(0, &cmd, "latchkey", "rate", "--limit", "9", "--per", "1", "a", "-c",
	     "echo ${LATCHKEY_NAME-none} ${LATCHKEY_FENCE-none} ${LATCHKEY_CHAIN-none}");
	ck_assert_str_eq(cmd.out, "none none none\n");
	/* A hold of an outer command remains that command's hold. */
	RUNS(75, &cmd, "latchkey", "lock", "b", "latchkey", "rate", "--limit", "9", "--per", "1",
	     "a", "latchkey", "lock", "b", "true");
	ck_assert_ptr_nonnull(strstr(cmd.err, "held by the command that runs this one"));
	server_stop(&server);
}

TEST(signals_reach_the_command)
{
	begin();
	START(&cmd, "latchkey", "rate", "--limit", "1", "--per", "60", "b", "-c",
	      "trap 'exit 31' TERM; sleep 2 & wait; wait");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	kill(cmd.pid, SIGTERM);
	ck_assert(command_wait(&cmd, 5000));
	ck_assert_int_eq(WEXITSTATUS(cmd.status), 31);
	server_stop(&server);
}

TEST(killed_wait_takes_no_turn)
{
	begin();
	RUNS(0, &cmd, "latchkey", "rate", "--limit", "1", "--per", "3", "a");
	START(&other, "latchkey", "rate", "--limit", "1", "--per", "60", "a");
	ck_assert(WITHIN(2500, command_waiting_is("a", 1)));
	kill(other.pid, SIGKILL);
	RUNS(0, &cmd, "latchkey", "rate", "-w", "12", "--limit", "1", "--per", "3", "a");
	server_stop(&server);
}

/* The permit that the outer command holds is not released while this one waits. */
TEST(rate_under_a_sem_of_the_same_name_does_not_wait_for_itself)
{
	begin();
	RUNS(75, &cmd, "latchkey", "sem", "--permits", "1", "a", "--", "latchkey", "rate",
	     "--limit", "1", "--per", "1", "a");
	ck_assert_ptr_nonnull(strstr(cmd.err, "hold 1 of its 1 permits"));
	RUNS(0, &cmd, "latchkey", "sem", "--permits", "1", "a", "--", "latchkey", "rate", "--limit",
	     "1", "--per", "1", "b");
	server_stop(&server);
}

TEST(permits_are_remembered_as_long_as_ttl_says)
{
	begin();
	RUNS(0, &cmd, "latchkey", "rate", "--limit", "1", "--per", "0.1", "--ttl", "1", "a");
	RUNS(64, &cmd, "latchkey", "sem", "--permits", "2", "a", "true");
	nap_ms(1300);
	RUNS(0, &cmd, "latchkey", "lock", "a", "true");
	RUNS(64, &cmd, "latchkey", "sem", "--ttl", "0.5", "--permits", "2", "b", "true");
	server_stop(&server);
}
