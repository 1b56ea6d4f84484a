/* SPDX-License-Identifier: MIT
 * latchkey at a terminal: the waiting line, the foreground group, ^C, ^Z and fg.  A shell with job
 * control (bash -i) runs under a pseudo-terminal, and the test types. */
#include "command_server.h"
#include "process.h"
#include "rights.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct command other;

/* The terminal, and its output so far. */
static int terminal;
static pid_t shell_pid;
static char screen[65536];
static size_t screen_len;

static void terminal_start(int width, const char *const *args)
{
	struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)width};

	screen_len = 0;
	shell_pid = forkpty(&terminal, NULL, NULL, &size);
	ck_assert_int_ge(shell_pid, 0);
	if (!shell_pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execvp(args[0], (char *const *)(uintptr_t)args);
		_exit(125);
	}
	fcntl(terminal, F_SETFD, FD_CLOEXEC);
}
#define TERMINAL(width, ...) terminal_start(width, (const char *const[]){__VA_ARGS__, NULL})

/* Read the available output; true while the other side is open. */
static bool terminal_read(int ms)
{
	struct pollfd ready = {terminal, POLLIN, 0};
	ssize_t got;

	if (poll(&ready, 1, ms) <= 0)
		return true;
	ck_assert_uint_lt(screen_len, sizeof(screen) - 1);
	got = read(terminal, screen + screen_len, sizeof(screen) - 1 - screen_len);
	if (got <= 0)
		return false;
	screen_len += (size_t)got;
	screen[screen_len] = 0;
	return true;
}

static bool shows(const char *text)
{
	return memmem(screen, screen_len, text, strlen(text)) != NULL;
}

/* Read until the text appeared; then drop the output up to its end. */
static void expect(const char *text)
{
	char *at;

	ck_assert_msg(WITHIN(8000, (terminal_read(5), shows(text))), "no \"%s\" in: %.*s", text,
	              (int)screen_len, screen);
	at = memmem(screen, screen_len, text, strlen(text));
	at += strlen(text);
	screen_len -= (size_t)(at - screen);
	memmove(screen, at, screen_len + 1);
}

static void type(const char *text)
{
	ck_assert_int_eq(write(terminal, text, strlen(text)), (ssize_t)strlen(text));
}

/* Read to the end; return the exit status. */
static int terminal_end(void)
{
	int status = -1;
	bool open = true;

	ck_assert(WITHIN(8000, (open = open && terminal_read(5),
	                        waitpid(shell_pid, &status, WNOHANG) == shell_pid)));
	while (open && (open = terminal_read(50)) && screen_len < sizeof(screen) / 2 &&
	       poll(&(struct pollfd){terminal, POLLIN, 0}, 1, 50) > 0)
		continue;
	close(terminal);
	return status;
}

/* Start an interactive shell, whose prompt is P>. */
static void shell_start(void)
{
	setenv("PS1", "P> ", 1);
	unsetenv("PROMPT_COMMAND");
	TERMINAL(200, "bash", "--norc", "--noprofile", "--noediting", "-i");
	expect("P> ");
	type("stty -echo\n");
	expect("P> ");
}

static void shell_end(void)
{
	type("exit 0\n");
	terminal_end();
	ck_assert(WITHIN(2000, command_count() == 0));
	server_stop(&server);
}

static void hold(void)
{
	command_hold(&other, "lock --label 'nightly job' deploy sleep 89");
}

/* The line's content is unknown during the outage; after 5 s a message names the store. */
TEST(wait_line_is_wiped_in_an_outage)
{
	char line[100];

	NEEDS_TERMINAL;
	begin();
	hold();
	TERMINAL(200, "latchkey", "lock", "deploy", "echo", "ran");
	expect("waiting for deploy: ");
	server_kill(&server);
	expect("\r\033[Klatchkey: waiting for ");
	snprintf(line, sizeof(line), "127.0.0.1:%d: connection refused\r\n", server.port);
	expect(line);
	ck_assert(!shows("waiting for deploy"));
	server_restart(&server);
	expect("ran\r\n");
	ck_assert_int_eq(terminal_end(), 0);
	server_stop(&server);
}

TEST(wait_line_names_the_holder_and_is_wiped)
{
	char line[128];

	NEEDS_TERMINAL;
	begin();
	hold();
	TERMINAL(200, "latchkey", "lock", "deploy", "echo", "ran");
	snprintf(line, sizeof(line), "(pid %d, nightly job) for ", (int)other.pid);
	expect(line);
	kill(other.pid, SIGTERM);
	ck_assert(command_wait(&other, 5000));
	ck_assert_int_eq(terminal_end(), 0);
	ck_assert(shows("\r\033[Kran\r\n"));
	server_stop(&server);
}

TEST(wait_line_begins_and_counts_as_documented)
{
	static struct command second;

	NEEDS_TERMINAL;
	begin();
	hold();
	START(&second, "latchkey", "lock", "deploy", "true");
	ck_assert(WITHIN(5000, command_waiting_is("deploy", 1)));
	TERMINAL(200, "latchkey", "lock", "deploy", "true");
	expect("\r\033[Kwaiting for deploy: 1 ahead, held by ");
	/* The line appears nowhere else. */
	ck_assert_str_eq(command_err(&second), "");
	kill(shell_pid, SIGTERM);
	terminal_end();
	server_stop(&server);
}

/* A server whose memory has just begun, and commands with that grace. */
static void begin_grace(const char *grace_ms)
{
	char url[80];

	server_start(&server, NULL);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d?grace=%s", server.port, grace_ms);
	command_setup(url);
}

/* After a second one line says why, and what to do; it stays, above the waiting line. */
TEST(wait_in_a_grace_is_explained)
{
	NEEDS_TERMINAL;
	begin_grace("3000");
	TERMINAL(200, "latchkey", "lock", "deploy", "echo", "ran");
	expect("\r\033[Kwaiting for deploy: nothing is granted for ");
	expect("\r\033[Klatchkey: waiting for \"deploy\": the server may have forgotten a holder: "
	       "nothing is granted for 1.");
	expect(" s (if nothing can be held: latchkey grace end, or grace=0 in the URL)\r\n");
	expect("\r\033[Kwaiting for deploy: nothing is granted for 1.");
	ck_assert_int_eq(terminal_end(), 0);
	ck_assert(!shows("forgotten"));
	ck_assert(shows("\r\033[Kran\r\n"));
	server_stop(&server);
}

TEST(wait_in_a_grace_is_not_explained_if_quiet)
{
	NEEDS_TERMINAL;
	begin_grace("2500");
	TERMINAL(200, "latchkey", "sem", "-q", "--permits", "1", "builds", "echo", "ran");
	ck_assert_int_eq(terminal_end(), 0);
	ck_assert(shows("ran\r\n"));
	ck_assert(!shows("grant"));
	server_stop(&server);
}

TEST(grace_end_asks_at_a_terminal)
{
	NEEDS_TERMINAL;
	begin_grace("59000");
	TERMINAL(200, "latchkey", "grace", "end");
	expect("The grace has 5");
	expect("refused and lost");
	expect("End it? [y/N] ");
	type("\n");
	ck_assert_int_eq(WEXITSTATUS(terminal_end()), 1);
	RUNS(75, &other, "latchkey", "lock", "-n", "deploy", "true");
	TERMINAL(200, "latchkey", "grace", "end");
	expect("End it? [y/N] ");
	type("y\n");
	expect("latchkey: the grace was ended\r\n");
	ck_assert_int_eq(terminal_end(), 0);
	RUNS(0, &other, "latchkey", "lock", "-n", "deploy", "true");
	server_stop(&server);
}

TEST(wait_line_of_permits_tells_what_is_free)
{
	NEEDS_TERMINAL;
	begin();
	command_hold(&other, "sem --permits 3 -k 2 builds sleep 89");
	TERMINAL(200, "latchkey", "sem", "--permits", "3", "-k", "2", "builds", "echo", "ran");
	expect("\r\033[Kwaiting for builds: 1 of 3 free");
	kill(other.pid, SIGTERM);
	ck_assert(command_wait(&other, 5000));
	ck_assert_int_eq(terminal_end(), 0);
	ck_assert(shows("\r\033[Kran\r\n"));
	server_stop(&server);
}

TEST(wait_line_of_a_latch_tells_what_remains)
{
	NEEDS_TERMINAL;
	begin();
	TERMINAL(200, "latchkey", "latch", "wait", "loaders");
	expect("\r\033[Kwaiting for latch loaders: not set yet");
	RUNS(0, &other, "latchkey", "latch", "set", "loaders", "5");
	RUNS(0, &other, "latchkey", "latch", "down", "loaders", "2");
	expect("\r\033[Kwaiting for latch loaders: 3 of 5 remain");
	RUNS(0, &other, "latchkey", "latch", "down", "loaders", "3");
	ck_assert_int_eq(terminal_end(), 0);
	ck_assert(shows("\r\033[K"));
	server_stop(&server);
}

TEST(wait_line_is_cut_to_the_width)
{
	NEEDS_TERMINAL;
	begin();
	hold();
	TERMINAL(30, "latchkey", "lock", "deploy", "true");
	expect("\r\033[Kwaiting for deploy: held by ");
	while (screen_len < 3 || !memmem(screen, screen_len, "\033[K", 3))
		ck_assert(terminal_read(3000));
	nap_ms(50);
	terminal_read(10);
	kill(shell_pid, SIGINT);
	terminal_end();
	screen[screen_len] = 0;
	for (char *at = screen; (at = strstr(at, "waiting")); at++)
		ck_assert_int_le(strcspn(at, "\r\n\033"), 29);
	server_stop(&server);
}

TEST(wait_line_of_wide_characters_is_cut_to_the_columns)
{
#define WIDE "\u65e5"
	static const char name[] = WIDE WIDE WIDE WIDE WIDE WIDE WIDE WIDE WIDE WIDE WIDE WIDE;

	NEEDS_TERMINAL;
	begin();
	setenv("LC_ALL", "C.UTF-8", 1);
	command_hold(&other, "lock '%s' sleep 89", name);
	/* 30 columns are available: 12 of ASCII and 9 characters of two columns, not half of a
	 * tenth. */
	TERMINAL(31, "latchkey", "lock", name, "true");
	expect("\r\033[Kwaiting for ");
	ck_assert(WITHIN(3000, (terminal_read(5), screen_len >= 9 * strlen(WIDE))));
	nap_ms(50);
	terminal_read(10);
	kill(shell_pid, SIGINT);
	terminal_end();
	screen[strcspn(screen, "\r\n\033^")] = 0;
	ck_assert_str_eq(screen, WIDE WIDE WIDE WIDE WIDE WIDE WIDE WIDE WIDE);
	/* There is room for only one column of the tenth. */
	TERMINAL(32, "latchkey", "lock", name, "true");
	expect("\r\033[Kwaiting for " WIDE WIDE WIDE WIDE WIDE WIDE WIDE WIDE WIDE);
	nap_ms(50);
	terminal_read(10);
	kill(shell_pid, SIGINT);
	terminal_end();
	ck_assert_ptr_null(memmem(screen, strcspn(screen, "\r\n\033^"), "\xe6", 1));
	server_stop(&server);
}

TEST(quiet_wait_shows_nothing)
{
	NEEDS_TERMINAL;
	begin();
	hold();
	TERMINAL(80, "latchkey", "lock", "-q", "-w", "0.7", "deploy", "true");
	ck_assert_int_eq(WEXITSTATUS(terminal_end()), 75);
	ck_assert_msg(screen_len == 0, "%.*s", (int)screen_len, screen);
	server_stop(&server);
}

TEST(background_wait_shows_nothing)
{
	NEEDS_TERMINAL;
	begin();
	hold();
	shell_start();
	type("latchkey lock -w 0.7 deploy true & sleep 1; echo over\n");
	expect("over");
	type("\n");
	expect("P> ");
	kill(other.pid, SIGTERM);
	ck_assert(command_wait(&other, 5000));
	shell_end();
}

TEST(default_store_is_said_once)
{
	char *first;

	NEEDS_TERMINAL;
	begin();
	unsetenv("LATCHKEY_URL");
	TERMINAL(80, "latchkey", "lock", "a", "echo", "ran");
	ck_assert_int_eq(terminal_end(), 0);
	first = strstr(screen, "local:");
	ck_assert_ptr_nonnull(first);
	ck_assert_ptr_null(strstr(first + 1, "local:"));
	RUNS(0, &other, "latchkey", "lock", "a", "true");
	ck_assert_str_eq(other.err, "");
	RUNS(0, &other, "latchkey", "local", "stop");
	server_stop(&server);
}

TEST(command_has_the_terminal)
{
	NEEDS_TERMINAL;
	begin();
	shell_start();
	/* The command reads from the terminal, as the foreground group; afterwards the shell is the
	 * foreground group again. */
	type("latchkey lock a -c 'read x; set -- $(cat /proc/$$/stat); test $5 = $8 && echo "
	     "foreground; echo got $x'; echo status $?\n");
	ck_assert(WITHIN(5000, command_count_of("latchkey") == 1));
	type("word\n");
	expect("foreground");
	expect("got word");
	expect("P> ");
	type("read y; echo and $y\n");
	type("more\n");
	expect("and more");
	expect("P> ");
	/* In a pipeline, too. */
	type("echo | latchkey lock a -c 'read x </dev/tty; echo piped $x' | cat\n");
	ck_assert(WITHIN(5000, command_count_of("latchkey") == 1));
	type("word\n");
	expect("piped word");
	expect("P> ");
	shell_end();
}

TEST(interrupt_ends_the_command_and_the_loop_around_it)
{
	NEEDS_TERMINAL;
	begin();
	shell_start();
	type("for i in 1 2 3; do latchkey lock a -c 'echo in $LATCHKEY_NAME; sleep 88'; done; echo "
	     "$?\n");
	expect("in a");
	/* dash itself loses an interrupt that arrives during a fork. */
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	type("\003");
	expect("P> ");
	ck_assert_int_eq(command_count_of("sleep"), 0);
	type("echo status $?\n");
	expect("status 130");
	expect("P> ");
	/* In a script, too, whose shell itself got no signal. */
	type("bash -c 'for i in 1 2 3; do latchkey lock a -c \"echo in; sleep 87\"; done; echo "
	     "not'\n");
	expect("in\r\n");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	type("\003");
	expect("P> ");
	ck_assert_int_eq(command_count_of("sleep"), 0);
	type("latchkey lock -n a echo free\n");
	expect("free");
	shell_end();
}

TEST(stopped_command_continues_within_its_lease)
{
	NEEDS_TERMINAL;
	begin();
	shell_start();
	type("latchkey lock --lease 20 a -c 'echo in; read x; echo got $x; exit 6'; echo status "
	     "$?\n");
	expect("in\r\n");
	type("\032");
	expect("Stopped");
	expect("P> ");
	RUNS(75, &other, "latchkey", "lock", "-nq", "a", "true");
	type("fg\n");
	type("word\n");
	expect("got word");
	type("echo status $?\n");
	expect("status 6");
	shell_end();
}

TEST(stopped_command_is_ended_past_its_lease)
{
	NEEDS_TERMINAL;
	begin();
	shell_start();
	type("latchkey lock --lease 2 a -c 'echo in; sleep 60; echo again'\n");
	expect("in\r\n");
	/* dash itself hangs when it is stopped during a fork. */
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	type("\032");
	expect("Stopped");
	expect("P> ");
	/* The next holder is alone. */
	RUNS(0, &other, "latchkey", "lock", "-w", "5", "a", "true");
	ck_assert_int_eq(command_count_of("sleep") + command_count_of("sh"), 0);
	type("fg; echo status $?\n");
	expect("status 79");
	ck_assert(!shows("again"));
	shell_end();
}

TEST(stopped_wait_continues)
{
	NEEDS_TERMINAL;
	begin();
	hold();
	shell_start();
	type("latchkey lock deploy echo ran\n");
	expect("waiting for deploy");
	type("\032");
	expect("Stopped");
	expect("P> ");
	kill(other.pid, SIGTERM);
	ck_assert(command_wait(&other, 5000));
	type("fg\n");
	expect("ran\r\n");
	shell_end();
}

/* A turn is no hold, yet its command is treated as that of a hold. */
TEST(command_of_a_rate_has_the_terminal)
{
	NEEDS_TERMINAL;
	begin();
	shell_start();
	type("latchkey rate --limit 9 --per 1 a -c 'echo in; read x; echo got $x; exit 6'\n");
	expect("in\r\n");
	type("\032");
	expect("Stopped");
	expect("P> ");
	/* Longer than the window: the command has no lease that could expire. */
	nap_ms(1200);
	type("fg\n");
	type("word\n");
	expect("got word");
	type("echo status $?\n");
	expect("status 6");
	expect("P> ");
	type("for i in 1 2 3; do latchkey rate --limit 9 --per 1 a -c 'echo in; sleep 88'; done\n");
	expect("in\r\n");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	type("\003");
	expect("P> ");
	ck_assert_int_eq(command_count_of("sleep"), 0);
	/* The same while it waits, before there is a command. */
	type("for i in 1 2 3; do latchkey rate --limit 1 --per 60 b; echo turn; done\n");
	expect("turn");
	expect("waiting for b: 0 of 1 free");
	type("\003");
	expect("P> ");
	type("echo status $?\n");
	expect("status 130");
	shell_end();
}

TEST(killed_latchkey_leaves_the_shell_usable)
{
	NEEDS_TERMINAL;
	begin();
	shell_start();
	type("latchkey lock a -c 'echo in; sleep 86'\n");
	expect("in\r\n");
	ck_assert(!kill(command_child(shell_pid), SIGKILL));
	expect("Killed");
	expect("P> ");
	ck_assert(WITHIN(500, command_count_of("sleep") == 0));
	type("read x; echo got $x\n");
	type("word\n");
	expect("got word");
	shell_end();
}

TEST(guard_that_waits_for_min_hold_leaves_the_terminal)
{
	pid_t guard;

	NEEDS_TERMINAL;
	begin();
	TERMINAL(80, "latchkey", "lock", "--min-hold", "60", "a", "sleep", "98");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	guard = command_child(shell_pid);
	ck_assert_int_eq(shell("ls -l /proc/%d/fd | grep -q /dev/tty", (int)guard), 0);
	kill(shell_pid, SIGKILL);
	ck_assert(WITHIN(5000, command_count_of("sleep") == 0));
	ck_assert(WITHIN(5000, shell("ls -l /proc/%d/fd | grep -Eq '/dev/(tty|pts)'", (int)guard)));
	ck_assert(proc_state(guard) && proc_state(guard) != 'Z');
	RUNS(75, &other, "latchkey", "lock", "-nq", "a", "true");
	kill(guard, SIGTERM);
	server_stop(&server);
}
