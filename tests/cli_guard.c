/* SPDX-License-Identifier: MIT
 * The command never outlives its lock: loss, latchkey killed or stopped, its guard killed. */
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

/* The command, and one whose children hide: in a session of their own, by a double fork. */
#define PLAIN "sleep 99 & sleep 98; true"
#define HIDING                                                                                     \
	"setsid sleep 99 & (sleep 97 & setsid sh -c 'sleep 96 & sleep 95 & exit' &) ; sleep 98; "  \
	"true"

static struct command cmd, other;

/* Verbs that hold something; most tests try the first alone. */
static const char *const verbs[] = {"lock", "sem --permits 1", NULL};
static const char *const *verb = verbs;

static void begin_command(const char *lease, const char *line, int sleeps)
{
	command_start_line(&cmd, "%s --lease %s a -c \"%s\"", *verb, lease, line);
	ck_assert(WITHIN(5000, command_count_of("sleep") == sleeps));
}

static void assert_status(int status)
{
	ck_assert(command_wait(&cmd, 5000));
	ck_assert_msg(WIFEXITED(cmd.status) && WEXITSTATUS(cmd.status) == status, "%x: %s",
	              cmd.status, cmd.err);
}

/* The next holder gets the lock when the lease of the killed one has expired. */
static void assert_free_within(int64_t ms)
{
	int64_t began = now_ms();

	RUNS_LINE(0, &other, "%s a true", *verb);
	ck_assert_int_le(now_ms() - began, ms);
}

static void killed_latchkey(const char *line, int sleeps)
{
	for (verb = verbs; *verb; verb++) {
		begin();
		begin_command("2", line, sleeps);
		kill(cmd.pid, SIGKILL);
		ck_assert(WITHIN(500, command_count() == 0));
		assert_free_within(3000);
		server_stop(&server);
	}
}

TEST(c4_killed_latchkey_leaves_no_descendant)
{
	killed_latchkey(PLAIN, 2);
}

TEST(c4_killed_latchkey_leaves_no_child_that_left_the_group)
{
	killed_latchkey(HIDING, 5);
}

TEST(killed_group_of_latchkey_leaves_no_descendant)
{
	begin();
	START(&cmd, "setsid", "latchkey", "lock", "a", "-c", PLAIN);
	ck_assert(WITHIN(5000, command_count_of("sleep") == 2));
	/* As kill -9 %1 in a shell does. */
	ck_assert_int_eq(getpgid(cmd.pid), cmd.pid);
	ck_assert(!kill(-cmd.pid, SIGKILL));
	ck_assert(WITHIN(500, command_count() == 0));
	server_stop(&server);
}

static void stopped_latchkey(const char *line, int sleeps)
{
	for (verb = verbs; *verb; verb++) {
		begin();
		begin_command("2", line, sleeps);
		kill(cmd.pid, SIGSTOP);
		ck_assert(WITHIN(1000, proc_state(cmd.pid) == 'T'));
		/* The lease is no longer renewed: the next holder enters when it expires, and finds
		 * no process. */
		RUNS_LINE(0, &other, "%s a true", *verb);
		ck_assert_int_eq(command_count_of("sleep"), 0);
		kill(cmd.pid, SIGCONT);
		assert_status(79);
		ck_assert_int_eq(command_count(), 0);
		server_stop(&server);
	}
}

TEST(stopped_latchkey_leaves_no_descendant_past_its_lease)
{
	stopped_latchkey(PLAIN, 2);
}

TEST(stopped_latchkey_leaves_no_child_that_left_the_group)
{
	stopped_latchkey(HIDING, 5);
}

/* The first command touches a file continuously; the second removes it and must not see it
 * again. */
TEST(next_holder_of_a_stopped_latchkey_is_alone)
{
	char busy[512];

	begin();
	snprintf(busy, sizeof(busy), "while :; do touch %s; sleep 0.01; done", command_file("at"));
	START(&cmd, "latchkey", "lock", "--lease", "1", "a", "-c", busy);
	ck_assert(WITHIN(5000, !access(command_file("at"), F_OK)));
	kill(cmd.pid, SIGSTOP);
	RUNS(0, &other, "latchkey", "lock", "a", "-c",
	     "cd $(dirname $LATCHKEY_LOCAL_DIR); rm -f at; sleep 0.3; test ! -e at");
	kill(cmd.pid, SIGCONT);
	assert_status(79);
	server_stop(&server);
}

TEST(killed_guard_ends_the_command)
{
	pid_t guard;

	begin();
	begin_command("10", HIDING, 5);
	guard = command_child(cmd.pid);
	ck_assert_int_gt(guard, 0);
	kill(guard, SIGKILL);
	assert_status(137);
	ck_assert_ptr_nonnull(strstr(cmd.err, "guard"));
	ck_assert_int_eq(command_count(), 0);
	assert_free_within(1000);
	server_stop(&server);
}

TEST(stopped_guard_is_continued)
{
	begin();
	begin_command("10", "sleep 0.5; exit 4", 1);
	kill(command_child(cmd.pid), SIGSTOP);
	assert_status(4);
	server_stop(&server);
}

TEST(broken_lock_ends_the_command_by_term)
{
	begin();
	START(&cmd, "latchkey", "lock", "a", "-c",
	      "trap 'echo bye; exit 0' TERM; "
	      "while :; do sleep 0.02; done");
	ck_assert(WITHIN(5000, RUN(&other, "latchkey", "break", "a") == 0));
	assert_status(79); /* though the command exited 0 */
	ck_assert_int_eq(command_count(), 0);
	ck_assert_ptr_nonnull(strstr(cmd.err, "broken"));
	server_stop(&server);
}

TEST(broken_lock_kills_a_command_that_ignores_term)
{
	int64_t began;

	begin();
	begin_command("10", "trap '' TERM; sleep 99 & wait; wait", 1);
	RUNS(0, &other, "latchkey", "break", "a");
	began = now_ms();
	assert_status(79);
	ck_assert_int_le(now_ms() - began, 1500);
	ck_assert_int_eq(command_count(), 0);
	server_stop(&server);
}

TEST(lost_store_ends_the_command_within_the_lease)
{
	char line[512];
	int64_t began;

	for (verb = verbs; *verb; verb++) {
		begin();
		snprintf(line, sizeof(line), "trap 'date >%s' TERM; while :; do sleep 0.02; done",
		         command_file("termed"));
		begin_command("3", line, 1);
		server_kill(&server);
		began = now_ms();
		/* TERM comes first, with time to clean up, then KILL: this command ignores TERM. */
		ck_assert(WITHIN(3000, !access(command_file("termed"), F_OK)));
		ck_assert(WITHIN(3000 - (now_ms() - began), command_count_of("sh") == 0));
		assert_status(79);
		ck_assert_ptr_nonnull(strstr(cmd.err, "cannot be renewed"));
		server_stop(&server);
	}
}

TEST(store_that_comes_back_in_time_ends_nothing)
{
	begin();
	begin_command("4", "sleep 3; exit 6", 1);
	server_pause(&server);
	nap_ms(1500);
	server_resume(&server);
	assert_status(6);
	server_stop(&server);
}

/* The lease left at the resumption would be too short for a command that was not stopped. */
TEST(latchkey_that_was_stopped_for_a_while_goes_on)
{
	begin();
	begin_command("4", "sleep 4; exit 6", 1);
	kill(cmd.pid, SIGSTOP);
	nap_ms(3200);
	kill(cmd.pid, SIGCONT);
	assert_status(6);
	ck_assert_str_eq(cmd.err, "");
	server_stop(&server);
}

TEST(on_lost_kill_sends_no_term)
{
	char line[512];

	begin();
	snprintf(line, sizeof(line), "trap 'date >%s' TERM; while :; do sleep 0.02; done",
	         command_file("termed"));
	START(&cmd, "latchkey", "lock", "--on-lost=kill", "a", "-c", line);
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	RUNS(0, &other, "latchkey", "break", "a");
	assert_status(79);
	ck_assert(access(command_file("termed"), F_OK));
	ck_assert_int_eq(command_count(), 0);
	server_stop(&server);
}

TEST(on_lost_warn_lets_the_command_end)
{
	begin();
	START(&cmd, "latchkey", "lock", "--on-lost=warn", "a", "-c", "sleep 1.5; echo done");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	RUNS(0, &other, "latchkey", "break", "a");
	assert_status(79);
	ck_assert_str_eq(cmd.out, "done\n");
	ck_assert_ptr_nonnull(strstr(cmd.err, "continues"));
	server_stop(&server);
}

TEST(command_that_stopped_itself_is_killed_when_lost)
{
	begin();
	START(&cmd, "latchkey", "lock", "a", "-c", "sleep 99 & kill -STOP $$; sleep 98");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	RUNS(0, &other, "latchkey", "break", "a");
	assert_status(79);
	ck_assert_int_eq(command_count(), 0);
	server_stop(&server);
}

/* A user cannot signal root's processes; and latchkey ends although a process cannot be killed. */
TEST(process_that_changed_its_user_is_warned_of)
{
	NEEDS_ROOT;
	begin();
	ck_assert_int_eq(shell("chmod 755 %s; cp %s %s; cp -r $(dirname %s)/lib %s; "
	                       "cp $(command -v setpriv) %s; chmod 4755 %s",
	                       command_folder(), command_path(), command_file("latchkey"),
	                       command_path(), command_folder(), command_file("root"),
	                       command_file("root")),
	                 0);
	START(&cmd, "setpriv", "--reuid=65534", "--clear-groups", command_file("latchkey"), "lock",
	      "--max-hold", "1", "a", command_file("root"), "--reuid=0", "sleep", "60");
	assert_status(79);
	ck_assert_ptr_nonnull(strstr(cmd.err, "1 processes of the command could not be killed"));
	ck_assert_int_eq(command_signal_of("sleep", SIGKILL), 1);
	ck_assert(WITHIN(2000, command_count() == 0));
	server_stop(&server);
}
