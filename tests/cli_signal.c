/* SPDX-License-Identifier: MIT
 * latchkey lock and signals: forwarded to the command's group, and latchkey's own end. */
#include "command_server.h"
#include "process.h"
#include "rights.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct command cmd, other;
static const char *verb = "lock"; /* of most tests */

/* Start a command that traps a signal; return when its trap is set. */
static void begin_trap(const char *trap)
{
	char line[1024];

	unlink(command_file("up"));
	snprintf(line, sizeof(line), "%s; touch %s; while :; do sleep 0.02; done", trap,
	         command_file("up"));
	command_start_line(&cmd, "%s a -c \"%s\"", verb, line);
	ck_assert(WITHIN(5000, !access(command_file("up"), F_OK)));
}

static void assert_ended_by(int number)
{
	ck_assert(command_wait(&cmd, 5000));
	ck_assert_msg(WIFSIGNALED(cmd.status) && WTERMSIG(cmd.status) == number, "%x %s",
	              cmd.status, cmd.err);
	ck_assert_int_eq(command_count(), 0);
}

static void assert_status(int status)
{
	ck_assert(command_wait(&cmd, 5000));
	ck_assert_msg(WIFEXITED(cmd.status) && WEXITSTATUS(cmd.status) == status, "%x %s",
	              cmd.status, cmd.err);
	ck_assert_int_eq(command_count(), 0);
}

TEST(signals_reach_the_command)
{
	static const struct {
		int number;
		const char *trap;
	} cases[] = {
		{SIGTERM, "trap 'exit 31' TERM"},
		{SIGHUP, "trap 'exit 31' HUP"},
		{SIGUSR1, "trap 'exit 31' USR1"},
		{SIGUSR2, "trap 'exit 31' USR2"},
	};

	for (int verbs = 0; verbs < 2; verbs++) {
		verb = verbs ? "sem --permits 1" : "lock";
		begin();
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			begin_trap(cases[i].trap);
			kill(cmd.pid, cases[i].number);
			assert_status(31);
		}
		server_stop(&server);
	}
}

TEST(command_that_a_signal_ended_is_128_plus_n)
{
	begin();
	begin_trap(":");
	kill(cmd.pid, SIGTERM);
	assert_status(143);
	begin_trap(":");
	kill(cmd.pid, SIGHUP);
	assert_status(129);
	server_stop(&server);
}

TEST(signals_reach_the_whole_group)
{
	begin();
	START(&cmd, "latchkey", "lock", "a", "-c", "sleep 93 & sleep 92; true");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 2));
	kill(cmd.pid, SIGTERM);
	assert_status(143);
	server_stop(&server);
}

TEST(int_and_quit_end_latchkey_by_themselves)
{
	begin();
	begin_trap("trap 'exit 3' INT");
	kill(cmd.pid, SIGINT);
	assert_ended_by(SIGINT);
	begin_trap(":");
	kill(cmd.pid, SIGQUIT);
	assert_ended_by(SIGQUIT);
	begin_trap(":");
	kill(cmd.pid, SIGINT);
	assert_ended_by(SIGINT);
	/* The lock is free. */
	RUNS(0, &other, "latchkey", "lock", "-n", "a", "true");
	server_stop(&server);
}

TEST(ignored_signals_stay_ignored)
{
	begin();
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	START(&cmd, "latchkey", "lock", "a", "-c", "sleep 0.5; exit 8");
	signal(SIGINT, SIG_DFL);
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	kill(cmd.pid, SIGINT);
	kill(cmd.pid, SIGHUP);
	assert_status(8);
	server_stop(&server);
}

TEST(closed_standard_error_ends_nothing)
{
	begin();
	ck_assert_int_eq(shell("latchkey -v lock a -c 'sleep 0.1; exit 5' 2>&1 >/dev/null | true; "
	                       "latchkey -v lock a -c 'exit 5' 2>&-"),
	                 5);
	server_stop(&server);
}

/* Without a terminal a stopped command keeps its lock, which is renewed. */
TEST(stopped_command_without_a_terminal_keeps_its_lock)
{
	begin();
	START(&cmd, "setsid", "latchkey", "lock", "--lease", "0.6", "a", "-c",
	      "kill -STOP $$; exit 12");
	ck_assert(WITHIN(5000, command_child(command_child(cmd.pid)) > 0 &&
	                               proc_state(command_child(command_child(cmd.pid))) == 'T'));
	RUNS(75, &other, "latchkey", "lock", "-q", "-w", "1.5", "a", "true");
	kill(cmd.pid, SIGCONT);
	assert_status(12);
	server_stop(&server);
}

/* As in a container: no default dispositions, and orphans to reap. */
TEST(pid_1_passes_signals_and_collects_orphans)
{
	NEEDS_OWN_PROC;
	begin();
	START(&cmd, "unshare", unshare_right(), "--mount", "--pid", "--fork", "--mount-proc",
	      "--kill-child", "latchkey", "lock", "a", "-c",
	      "(sleep 0.1 &); sleep 0.5; "
	      "grep -l \"^State:.Z\" /proc/[0-9]*/status | wc -l; exit 9");
	ck_assert(command_wait(&cmd, 10000));
	ck_assert_int_eq(WEXITSTATUS(cmd.status), 9);
	ck_assert_str_eq(cmd.out, "0\n");
	for (int i = 0; i < 2; i++) {
		int number = i ? SIGINT : SIGTERM;
		START(&cmd, "unshare", unshare_right(), "--mount", "--pid", "--fork",
		      "--mount-proc", "--kill-child", "latchkey", "lock", "a", "-c",
		      "sleep 90; true");
		/* A shell that is interrupted just as its child ends continues. */
		ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
		kill(command_child(cmd.pid), number);
		ck_assert(command_wait(&cmd, 5000));
		ck_assert_int_eq(WEXITSTATUS(cmd.status), 128 + number);
	}
	ck_assert_int_eq(command_count(), 0);
	server_stop(&server);
}

/* The pids of another namespace's /proc would be other processes. */
TEST(foreign_proc_is_not_believed)
{
	NEEDS_PIDS;
	begin();
	START(&cmd, "unshare", unshare_right(), "--mount", "--pid", "--fork", "--kill-child",
	      "latchkey", "lock", "--max-hold", "0.5", "a", "-c", "sleep 90");
	ck_assert(command_wait(&cmd, 10000));
	ck_assert_int_eq(WEXITSTATUS(cmd.status), 79);
	ck_assert_ptr_null(strstr(cmd.err, "could not be killed"));
	/* A process that left the group is not found there, but latchkey detects that one is
	 * left. */
	START(&cmd, "unshare", unshare_right(), "--mount", "--pid", "--fork", "--kill-child",
	      "latchkey", "lock", "--max-hold", "0.5", "a", "-c", "setsid sleep 90 & sleep 91");
	ck_assert(command_wait(&cmd, 10000));
	ck_assert_int_eq(WEXITSTATUS(cmd.status), 79);
	ck_assert_ptr_nonnull(strstr(cmd.err, "could not be killed"));
	server_stop(&server);
}
