/* SPDX-License-Identifier: MIT
 * latchkey lock, and what only the first verb need show: help, options, passwords, what the command
 * inherits. */
#include "command_server.h"
#include "process.h"
#include "redis.h"
#include "test.h"

#include <latchkey.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct command cmd, other;

/* Another latchkey that holds a lock until the test ends. */
static void hold(const char *name)
{
	char ready[64];

	snprintf(ready, sizeof(ready), "touch %s; sleep 97", command_file("held"));
	START(&other, "latchkey", "lock", name, "-c", ready);
	ck_assert(WITHIN(5000, !access(command_file("held"), F_OK)));
}

TEST(busy_lock_names_its_holder)
{
	char host[256], expected[400];

	begin();
	hold("a");
	ck_assert_int_eq(gethostname(host, sizeof(host)), 0);
	snprintf(expected, sizeof(expected),
	         "latchkey: cannot acquire \"a\": held by %s (pid %d, sh) for ", host,
	         (int)other.pid);
	/* The holder's description arrives in the background. */
	ck_assert_msg(WITHIN(5000, RUN(&cmd, "latchkey", "lock", "-n", "a", "true") == 75 &&
	                                   !strncmp(cmd.err, expected, strlen(expected))),
	              "%s, not %s", cmd.err, expected);
	snprintf(expected, sizeof(expected),
	         "latchkey: cannot acquire \"a\": not acquired in time, held by %s (pid %d, sh) "
	         "for ",
	         host, (int)other.pid);
	/* If the store is slow to end the wait, it is not queried for the holder. */
	ck_assert_msg(WITHIN(5000, RUN(&cmd, "latchkey", "lock", "-w", "0.1", "a", "true") == 75 &&
	                                   !strncmp(cmd.err, expected, strlen(expected))),
	              "%s", cmd.err);
	RUNS(75, &cmd, "latchkey", "lock", "-q", "-w", "0.1", "a", "true");
	ck_assert_str_eq(cmd.err, "");
	server_stop(&server);
}

TEST(help_and_version_are_told)
{
	static char whole[sizeof(cmd.out)];

	command_setup(NULL);
	RUNS(0, &cmd, "latchkey", "--help");
	ck_assert_ptr_nonnull(strstr(cmd.out, "latchkey lock"));
	ck_assert_ptr_nonnull(strstr(cmd.out, "latchkey doctor"));
	memcpy(whole, cmd.out, sizeof(whole));
	RUNS(0, &cmd, "latchkey", "-h");
	ck_assert_str_eq(cmd.out, whole);
	RUNS(0, &cmd, "latchkey", "help");
	ck_assert_str_eq(cmd.out, whole);
	ck_assert_str_eq(cmd.err, "");
	RUNS(0, &cmd, "latchkey", "help", "help");
	ck_assert_str_eq(cmd.out, whole);
	RUNS(0, &cmd, "latchkey", "show", "a", "--help");
	RUNS(0, &cmd, "latchkey", "-V");
	ck_assert_ptr_nonnull(strstr(cmd.out, "latchkey " LK_VERSION "\n"));
}

/* Return the text of the help, which must be the same for three ways to ask. */
static const char *help_of(const char *verb, const char *second)
{
	static char first[sizeof(cmd.out)];

	RUNS(0, &cmd, "latchkey", "help", verb, second);
	ck_assert_str_eq(cmd.err, "");
	memcpy(first, cmd.out, sizeof(first));
	RUNS(0, &cmd, "latchkey", verb, second ? second : "--help", second ? "--help" : NULL);
	ck_assert_str_eq(cmd.out, first);
	RUNS(0, &cmd, "latchkey", verb, second ? second : "-h", second ? "-h" : NULL);
	ck_assert_str_eq(cmd.out, first);
	return first;
}

static void assert_help(const char *verb, const char *second, const char *const *has,
                        const char *const *lacks)
{
	const char *text = help_of(verb, second);
	char usage[64];

	snprintf(usage, sizeof(usage), "latchkey %s ", verb);
	ck_assert_msg(!strncmp(text, usage, strlen(usage)), "%s", text);
	ck_assert_ptr_nonnull(strstr(text, "\n  --url URL "));
	ck_assert_ptr_nonnull(strstr(text, "\nExit status: "));
	for (; *has; has++)
		ck_assert_msg(strstr(text, *has) != NULL, "help of %s lacks %s: %s", verb, *has,
		              text);
	for (; *lacks; lacks++)
		ck_assert_msg(!strstr(text, *lacks), "help of %s has %s: %s", verb, *lacks, text);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(help_of_a_verb_has_its_options_and_no_other)
{
	command_setup(NULL);
	assert_help("lock", NULL,
	            WORDS("latchkey lock [OPTION...] NAME -c", "\n  -n ", "\n  -w SECS",
	                  "\n  -E CODE", "\n  --lease SECS", "\n           =kill", "\n  --label",
	                  "\n  --min-hold"),
	            WORDS("latchkey sem", "--permits", "--ttl", "--id", "--json", "latch:"));
	assert_help(
		"sem", NULL, WORDS("\n  --permits N", "\n  -k UNITS", "\n  --ttl SECS", "--fixed"),
		WORDS("latchkey rate", "--per SECS", "--open-ttl", "remove it if it is not open"));
	assert_help("rate", NULL, WORDS("\n  --permits N, --limit N", "\n  --per SECS", "--report"),
	            WORDS("latchkey sem", "--lease", "=kill", "--open-ttl"));
	assert_help("latch", NULL,
	            WORDS("latchkey latch set|reset", "latchkey latch rm", "\n  --id ID", "\n  -n ",
	                  "\n  --absent-is-open", "\n  --ttl SECS        remove it"),
	            WORDS("latchkey lock", "--lease", "--label", "after the last use"));
	assert_help("latch", "wait",
	            WORDS("latchkey latch wait", "\n  --absent-is-open", "\n  -n "),
	            WORDS("latch set", "latch rm", "--id", "--ttl", "--open-ttl"));
	assert_help("latch", "reset",
	            WORDS("latchkey latch set|reset", "\n  --ttl", "\n  --open-ttl"),
	            WORDS("latch wait", "--id", "  --absent-is-open", "\n  -n "));
	assert_help("show", NULL, WORDS("latchkey show [--json]"), WORDS("latch show", "\n  -n "));
	assert_help("grace", NULL,
	            WORDS("latchkey grace [--json]", "latchkey grace end [--yes]", "\n  -y, --yes"),
	            WORDS("latchkey local", "latchkey doctor", "\n  -n "));
	assert_help("doctor", NULL, WORDS("latchkey doctor"), WORDS("latchkey local", "\n  -w"));
	RUNS(0, &cmd, "latchkey", "help", "local");
	ck_assert(!strncmp(cmd.out, "latchkey local start|stop|status", 32));
	ck_assert_ptr_null(strstr(cmd.out, "--url"));
	RUNS(64, &cmd, "latchkey", "help", "nothing");
	ck_assert_ptr_nonnull(strstr(cmd.err, "unknown verb \"nothing\""));
	ck_assert_str_eq(cmd.out, "");
	RUNS(64, &cmd, "latchkey", "help", "latch", "nothing");
	RUNS(64, &cmd, "latchkey", "help", "lock", "a");
	RUNS(0, &cmd, "latchkey", "help", "local", "start");
	RUNS(0, &cmd, "latchkey", "help", "grace", "end");
	RUNS(64, &cmd, "latchkey", "help", "grace", "start");
	RUNS(64, &cmd, "latchkey", "nothing", "--help");
}

TEST(options_stand_before_or_after_the_verb)
{
	begin();
	hold("a");
	RUNS(9, &cmd, "latchkey", "-n", "-E9", "lock", "a", "true");
	RUNS(9, &cmd, "latchkey", "-E", "9", "lock", "--nonblock", "a", "true");
	RUNS(9, &cmd, "latchkey", "lock", "-n", "--conflict-exit-code=9", "a", "true");
	RUNS(0, &cmd, "latchkey", "lock", "b", "echo", "-n");
	ck_assert_str_eq(cmd.out, ""); /* -n is echo's own option */
	server_stop(&server);
}

TEST(url_with_a_password_is_refused)
{
	static const char *const urls[] = {
		"redis://user:secret@127.0.0.1:1",     "redis://:secret@127.0.0.1:1",
		"redis://127.0.0.1:1?password=secret", "redis://127.0.0.1:1?db=1&password=secret",
		"redis+unix:///tmp/x?password=secret",
	};

	command_setup(NULL);
	for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
		RUNS(64, &cmd, "latchkey", "lock", "--url", urls[i], "a", "true");
		ck_assert_ptr_nonnull(strstr(cmd.err, "LATCHKEY_URL"));
		ck_assert_ptr_nonnull(strstr(cmd.err, "LATCHKEY_PASSWORD_FILE"));
		ck_assert_ptr_null(strstr(cmd.err, "secret"));
	}
	/* A misspelt option does not print it either. */
	RUNS(64, &cmd, "latchkey", "lock", "--ulr=redis://:secret@h", "a", "true");
	ck_assert_ptr_null(strstr(cmd.err, "secret"));
}

TEST(password_file_is_used_without_its_newline)
{
	struct redis *redis;
	char url[128];

	begin();
	ck_assert_int_eq(shell("echo s3cret >%s", command_file("password")), 0);
	redis = redis_open(&server);
	redis_do(redis, "ACL SETUSER job on >s3cret ~* &* +@all");
	redis_close(redis);
	snprintf(url, sizeof(url), "redis://job@127.0.0.1:%d?grace=0", server.port);
	setenv("LATCHKEY_PASSWORD_FILE", command_file("password"), 1);
	RUNS(0, &cmd, "latchkey", "lock", "--url", url, "a", "echo", "in");
	ck_assert_str_eq(cmd.out, "in\n");
	ck_assert_int_eq(shell("echo wrong >%s", command_file("password")), 0);
	RUNS(69, &cmd, "latchkey", "lock", "--url", url, "a", "true");
	ck_assert_ptr_null(strstr(cmd.err, "wrong\n"));
	setenv("LATCHKEY_PASSWORD_FILE", "/nowhere/password", 1);
	RUNS(64, &cmd, "latchkey", "lock", "--url", url, "a", "true");
	server_stop(&server);
}

/* Run a program alone and below latchkey: its own state must be the same. */
static void assert_same_below(const char *line)
{
	char alone[sizeof(cmd.out)];

	RUNS(0, &cmd, "sh", "-c", line);
	memcpy(alone, cmd.out, sizeof(alone));
	ck_assert_int_gt(strlen(alone), 0);
	RUNS(0, &cmd, "latchkey", "lock", "a", "-c", line);
	ck_assert_str_eq(cmd.out, alone);
}

TEST(command_inherits_no_descriptor_of_latchkey)
{
	begin();
	assert_same_below("ls /proc/$$/fd");
	close(0);
	RUNS(0, &cmd, "latchkey", "lock", "a", "-c", "readlink /proc/$$/fd/0");
	ck_assert_str_eq(cmd.out, "/dev/null\n");
	server_stop(&server);
}

TEST(command_gets_the_callers_signal_mask_and_dispositions)
{
	sigset_t set;

	begin();
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGWINCH);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGTTOU, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	assert_same_below("exec grep '^Sig[BIC]' /proc/self/status");
	server_stop(&server);
}

TEST_LIMIT(sixteen_shells_count_without_loss, 60)
{
	begin();
	ck_assert_int_eq(shell("echo 0 >%s", command_file("count")), 0);
	ck_assert_int_eq(shell("cd %s; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do "
	                       "(for j in 1 2 3 4 5; do latchkey lock n -c "
	                       "'read n <count; echo $((n + 1)) >count' || echo bad >>bad; done) & "
	                       "done; wait",
	                       command_folder()),
	                 0);
	ck_assert_str_eq(command_read("bad"), "");
	ck_assert_str_eq(command_read("count"), "80\n");
	server_stop(&server);
}

TEST(min_hold_keeps_the_lock_after_the_command)
{
	begin();
	START(&cmd, "latchkey", "lock", "--min-hold", "60", "a", "touch", command_file("ran"));
	ck_assert(WITHIN(5000, !access(command_file("ran"), F_OK)));
	RUNS(75, &other, "latchkey", "lock", "-nq", "a", "true");
	/* One that comes before the command has been waited for is the command's. */
	ck_assert(WITHIN(5000, (kill(cmd.pid, SIGTERM), command_wait(&cmd, 200))));
	RUNS(0, &other, "latchkey", "lock", "-n", "a", "true");
	server_stop(&server);
}

TEST(max_hold_ends_the_command_in_time)
{
	char report[256];
	int64_t began;

	begin();
	snprintf(report, sizeof(report), "--report=%s", command_file("report"));
	/* The hold lasts as long as the command may, too. */
	RUNS(79, &cmd, "latchkey", "lock", "--max-hold", "1", "--min-hold", "1", report, "a",
	     "sleep", "96");
	command_check_report("{\"outcome\":\"lost\",\"status\":79,", "\"held_seconds\":1.");
	/* A command that ignores TERM is dead by then. */
	began = now_ms();
	RUNS(79, &cmd, "latchkey", "lock", "--max-hold", "1", "a", "-c",
	     "trap '' TERM; while :; do sleep 0.05; done");
	ck_assert_int_le(now_ms() - began, 1500);
	ck_assert_int_eq(command_count(), 0);
	server_stop(&server);
}

TEST(what_the_command_leaves_in_its_group_is_ended)
{
	begin();
	RUNS(3, &cmd, "latchkey", "lock", "a", "-c", "sleep 94 & exit 3");
	ck_assert_int_eq(command_count(), 0);
	/* A daemon has left the group: it is meant to stay. */
	RUNS(0, &cmd, "latchkey", "lock", "a", "-c", "setsid sleep 4 & sleep 0.2");
	ck_assert_int_eq(command_count_of("sleep"), 1);
	ck_assert(WITHIN(6000, command_count() == 0));
	server_stop(&server);
}

TEST(start_costs_little_more_than_flock)
{
	int64_t ours = 1000000, flock = 1000000;

	begin();
	for (int i = 0; i < 30; i++) {
		int64_t began = now_us(), took;
		RUNS(0, &cmd, "latchkey", "lock", "a", "true");
		took = now_us() - began;
		ours = took < ours ? took : ours;
		began = now_us();
		RUNS(0, &cmd, "flock", command_folder(), "true");
		took = now_us() - began;
		flock = took < flock ? took : flock;
	}
	printf("start: latchkey %d us, flock %d us\n", (int)ours, (int)flock);
#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(SANITIZED)
	/* A pause or a second connection attempt would cost more; bench/ has the cost itself. */
	ck_assert_int_le(ours - flock, 10000);
#endif
	server_stop(&server);
}
