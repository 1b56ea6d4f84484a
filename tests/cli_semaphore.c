/* SPDX-License-Identifier: MIT
 * latchkey sem: at most as many commands at once as there are permits, even if holders are killed.
 */
#include "command.h"
#include "process.h"
#include "server.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_server server;
static struct command cmd, other, third;

static void begin(void)
{
	server_start(&server, NULL);
	command_setup(server.url);
}

/* Another latchkey that holds permits until the test ends. */
static void hold(struct command *command, const char *permits, const char *units)
{
	int before = command_count_of("sleep");

	START(command, "latchkey", "sem", "--permits", permits, "-k", units, "a", "sleep", "97");
	ck_assert(WITHIN(5000, command_count_of("sleep") == before + 1));
}

static void wait_for(const char *line)
{
	ck_assert(WITHIN(5000, shell("latchkey show a | grep -q '%s'", line) == 0));
}

TEST(command_gives_output_and_status)
{
	begin();
	RUNS(7, &cmd, "latchkey", "sem", "--permits", "2", "a", "-c",
	     "echo out; echo err >&2; exit 7");
	ck_assert_str_eq(cmd.out, "out\n");
	ck_assert_str_eq(cmd.err, "err\n");
	RUNS(75, &cmd, "latchkey", "sem", "--permits", "2", "a", "--", "sh", "-c", "exit 75");
	RUNS(137, &cmd, "latchkey", "sem", "--permits", "2", "a", "-c", "kill -KILL $$");
	RUNS(127, &cmd, "latchkey", "sem", "--permits=2", "a", "/nowhere/at-all");
	ck_assert_str_eq(cmd.err,
	                 "latchkey: cannot run \"/nowhere/at-all\": No such file or directory\n");
	RUNS(0, &cmd, "latchkey", "sem", "-n", "--permits", "2", "-k", "2", "a", "true");
	ck_assert_int_eq(command_count(), 0);
	server_stop(&server);
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

TEST(busy_semaphore_is_75_or_the_chosen_status)
{
	int64_t began;

	begin();
	hold(&other, "1", "1");
	RUNS(75, &cmd, "latchkey", "sem", "-n", "--permits", "1", "a", "true");
	RUNS(3, &cmd, "latchkey", "sem", "-nq", "-E", "3", "--permits", "1", "a", "true");
	ck_assert_str_eq(cmd.err, "");
	began = now_ms();
	RUNS(75, &cmd, "latchkey", "sem", "-w", "0.25", "--permits", "1", "a", "true");
	ck_assert_int_ge(now_ms() - began, 250);
	ck_assert_int_lt(now_ms() - began, 2000);
	RUNS(0, &cmd, "latchkey", "-E0", "--permits", "1", "sem", "-w.1", "a", "true");
	RUNS(0, &cmd, "latchkey", "show", "a");
	ck_assert_ptr_nonnull(strstr(cmd.out, "waiting  0\n"));
	server_stop(&server);
}

TEST(wrong_usage_is_64)
{
	static const char *const wrong[][9] = {
		{"latchkey", "sem", "a", "true", NULL},
		{"latchkey", "sem", "--permits", "3", NULL},
		{"latchkey", "sem", "--permits", "3", "a", NULL},
		{"latchkey", "sem", "--permits", NULL},
		{"latchkey", "sem", "--permits", "0", "a", "true", NULL},
		{"latchkey", "sem", "--permits", "-1", "a", "true", NULL},
		{"latchkey", "sem", "--permits", "1e9999", "a", "true", NULL},
		{"latchkey", "sem", "--permits", "", "a", "true", NULL},
		{"latchkey", "sem", "--permits", "2147483648", "a", "true", NULL},
		{"latchkey", "sem", "--permits", "18446744073709551617", "a", "true", NULL},
		{"latchkey", "sem", "--permits", "3 ", "a", "true", NULL},
		{"latchkey", "sem", "--permits", "3.5", "a", "true", NULL},
		{"latchkey", "sem", "--permits", "3", "-k", "0", "a", "true", NULL},
		{"latchkey", "sem", "--permits", "3", "-k", "-1", "a", "true", NULL},
		{"latchkey", "sem", "--permits", "3", "-k", "1e9999", "a", "true", NULL},
		{"latchkey", "sem", "--permits", "3", "-k", "", "a", "true", NULL},
		{"latchkey", "sem", "--permits", "3", "-k", "2147483648", "a", "true", NULL},
		{"latchkey", "sem", "--permits", "3", "-k", "4", "a", "true", NULL},
		{"latchkey", "sem", "--limit", "3", "a", "true", NULL},
		{"latchkey", "sem", "--permits", "3", "--per", "1", "a", "true", NULL},
		{"latchkey", "lock", "--permits", "3", "a", "true", NULL},
		{"latchkey", "lock", "-k", "3", "a", "true", NULL},
		{"latchkey", "lock", "--resize", "a", "true", NULL},
	};

	command_setup(NULL);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		int status = command_run(&cmd, wrong[i]);
		ck_assert_msg(status == 64, "line %zu: status %d: %s", i, status, cmd.err);
		ck_assert_msg(!strncmp(cmd.err, "latchkey: ", 10), "line %zu: %s", i, cmd.err);
	}
	RUNS(64, &cmd, "latchkey", "sem", "--permits", "3", "-k", "4", "a", "true");
	ck_assert_ptr_nonnull(strstr(cmd.err, "-k: must not exceed --permits"));
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
	wait_for("waiting  1");
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
	wait_for("waiting  1");
	RUNS(75, &cmd, "latchkey", "sem", "-n", "--resize", "--permits", "1", "a", "true");
	ck_assert(command_wait(&third, 5000));
	ck_assert_int_eq(WEXITSTATUS(third.status), 64);
	server_stop(&server);
}

TEST(nested_commands_fail_at_once_when_they_would_wait_for_themselves)
{
	int64_t began;

	begin();
	began = now_ms();
	RUNS(75, &cmd, "latchkey", "sem", "--permits", "1", "n", "latchkey", "sem", "--permits",
	     "1", "n", "true");
	ck_assert_int_lt(now_ms() - began, 5000);
	ck_assert_str_eq(cmd.err, "latchkey: cannot acquire \"n\": the commands that run this one "
	                          "hold 1 of its 1 permits\n");
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

TEST(command_sees_name_fence_and_holder)
{
	unsigned long long first, second;

	begin();
	RUNS(0, &cmd, "latchkey", "sem", "--permits", "2", "a b", "-c",
	     "echo \"$LATCHKEY_NAME|$LATCHKEY_FENCE\"; "
	     "latchkey show --json 'a b' | grep -q "
	     "\"\\\"id\\\":\\\"$LATCHKEY_HOLDER\\\".*\\\"fence\\\":$LATCHKEY_FENCE,\" && echo "
	     "same");
	ck_assert(!strncmp(cmd.out, "a b|", 4));
	ck_assert_ptr_nonnull(strstr(cmd.out, "\nsame\n"));
	first = strtoull(cmd.out + 4, NULL, 10);
	RUNS(0, &cmd, "latchkey", "sem", "--permits", "2", "a b", "-c", "echo $LATCHKEY_FENCE");
	second = strtoull(cmd.out, NULL, 10);
	ck_assert_uint_gt(first, 0);
	ck_assert_uint_gt(second, first);
	server_stop(&server);
}

TEST(c4_killed_latchkey_leaves_no_descendant_and_its_permits_come_back)
{
	int64_t began;

	begin();
	START(&cmd, "latchkey", "sem", "--permits", "2", "-k", "2", "--lease", "2", "a", "-c",
	      "setsid sleep 99 & sleep 98; true");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 2));
	kill(cmd.pid, SIGKILL);
	ck_assert(WITHIN(500, command_count() == 0));
	began = now_ms();
	RUNS(0, &other, "latchkey", "sem", "--permits", "2", "-k", "2", "a", "true");
	ck_assert_int_le(now_ms() - began, 3000);
	server_stop(&server);
}

TEST(stopped_latchkey_leaves_no_descendant_past_its_lease)
{
	begin();
	START(&cmd, "latchkey", "sem", "--permits", "1", "--lease", "2", "a", "sleep", "98");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	kill(cmd.pid, SIGSTOP);
	RUNS(0, &other, "latchkey", "sem", "--permits", "1", "a", "true");
	ck_assert_int_eq(command_count_of("sleep"), 0);
	kill(cmd.pid, SIGCONT);
	ck_assert(command_wait(&cmd, 5000));
	ck_assert_int_eq(WEXITSTATUS(cmd.status), 79);
	server_stop(&server);
}

TEST(lost_store_ends_the_command_within_the_lease)
{
	begin();
	START(&cmd, "latchkey", "sem", "--permits", "2", "--lease", "2", "a", "sleep", "98");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	server_kill(&server);
	ck_assert(WITHIN(2000, command_count_of("sleep") == 0));
	ck_assert(command_wait(&cmd, 5000));
	ck_assert_int_eq(WEXITSTATUS(cmd.status), 79);
	ck_assert_ptr_nonnull(strstr(cmd.err, "cannot be renewed"));
	server_stop(&server);
}

TEST(max_hold_and_fixed_end_the_command)
{
	int64_t began;

	begin();
	began = now_ms();
	RUNS(79, &cmd, "latchkey", "sem", "--permits", "2", "--max-hold", "1", "a", "sleep", "96");
	ck_assert_int_le(now_ms() - began, 1500);
	began = now_ms();
	RUNS(79, &cmd, "latchkey", "sem", "--permits", "2", "--fixed", "--lease", "1", "a", "sleep",
	     "95");
	ck_assert_int_le(now_ms() - began, 1300);
	began = now_ms();
	RUNS(5, &cmd, "latchkey", "sem", "--permits", "2", "--min-hold", "0.5", "a", "sh", "-c",
	     "exit 5");
	ck_assert_int_ge(now_ms() - began, 500);
	server_stop(&server);
}

TEST(signal_ends_a_wait_and_leaves_nothing)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

	begin();
	hold(&other, "1", "1");
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		START(&cmd, "latchkey", "sem", "--permits", "1", "a", "true");
		wait_for("waiting  1");
		kill(cmd.pid, numbers[i]);
		ck_assert(command_wait(&cmd, 5000));
		ck_assert(WIFSIGNALED(cmd.status) && WTERMSIG(cmd.status) == numbers[i]);
		RUNS(0, &cmd, "sh", "-c", "latchkey show a | grep -q 'waiting  0'");
	}
	server_stop(&server);
}

TEST(signals_reach_the_command)
{
	begin();
	START(&cmd, "latchkey", "sem", "--permits", "1", "a", "-c",
	      "trap 'exit 31' TERM; sleep 90 & wait; wait");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	kill(cmd.pid, SIGTERM);
	ck_assert(command_wait(&cmd, 8000));
	ck_assert_int_eq(WEXITSTATUS(cmd.status), 31);
	ck_assert_int_eq(command_count(), 0);
	server_stop(&server);
}

static void assert_report(const char *begins)
{
	const char *text = command_read("report");

	ck_assert_msg(!strncmp(text, begins, strlen(begins)), "%s", text);
	ck_assert_int_eq(shell("test 1 = $(sqlite3 :memory: \"SELECT json_valid(readfile('%s'))\")",
	                       command_file("report")),
	                 0);
}

TEST(report_tells_each_outcome)
{
	char report[256];

	begin();
	snprintf(report, sizeof(report), "--report=%s", command_file("report"));
	RUNS(3, &cmd, "latchkey", "sem", report, "--permits", "1", "a", "sh", "-c", "exit 3");
	assert_report("{\"outcome\":\"ended\",\"status\":3,\"command_status\":3,\"reason\":null,"
	              "\"fence\":1");
	RUNS(79, &cmd, "latchkey", "sem", report, "--permits", "1", "a", "-c",
	     "latchkey break -q a; sleep 9");
	assert_report("{\"outcome\":\"lost\",\"status\":79,\"command_status\":143,"
	              "\"reason\":\"broken\"");
	RUNS(75, &cmd, "latchkey", "sem", "--permits", "1", "a", "latchkey", "sem", report,
	     "--permits", "1", "a", "true");
	assert_report("{\"outcome\":\"nested\",\"status\":75,");
	RUNS(64, &cmd, "latchkey", "sem", report, "--permits", "2", "a", "true");
	assert_report("{\"outcome\":\"error\",\"status\":64,");
	hold(&other, "1", "1");
	RUNS(75, &cmd, "latchkey", "sem", report, "-n", "--permits", "1", "a", "true");
	assert_report("{\"outcome\":\"busy\",\"status\":75,\"command_status\":null,");
	server_stop(&server);
	RUNS(69, &cmd, "latchkey", "sem", report, "--permits", "1", "a", "true");
	assert_report("{\"outcome\":\"unreachable\",\"status\":69,");
}

TEST(one_name_is_one_kind)
{
	begin();
	RUNS(0, &cmd, "latchkey", "sem", "--permits", "2", "a", "true");
	RUNS(69, &cmd, "latchkey", "lock", "a", "echo", "no");
	ck_assert_str_eq(cmd.out, "");
	START(&other, "latchkey", "lock", "b", "sleep", "97");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	RUNS(69, &cmd, "latchkey", "sem", "--permits", "2", "b", "echo", "no");
	ck_assert_str_eq(cmd.out, "");
	server_stop(&server);
}
