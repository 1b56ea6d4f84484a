/* SPDX-License-Identifier: MIT
 * A killed latchkey does not cost the next holder a lease: its guard ends the command and releases
 * the hold.
 *
 * Each command takes a flock that all its processes inherit; the next holder checks that it is
 * free. */
#include "command_server.h"
#include "process.h"
#include "proxy.h"
#include "redis.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 5
#define SOON_MS (ASAN || TSAN ? 1000 : 200)

static struct command cmd, next, other;

/* Make a command line whose processes all hold a flock while one of them lives. */
static const char *witnessed(const char *command)
{
	static char line[1024];

	snprintf(line, sizeof(line), "exec 9>%s; flock 9; %s", command_file("witness"), command);
	return line;
}

/* Make the next holder's command: it checks that the first command is dead. */
static const char *alone(const char *command)
{
	static char line[512];

	snprintf(line, sizeof(line), "flock -n %s true || exit 9; %s", command_file("witness"),
	         command);
	return line;
}

static void assert_waiting(const char *name)
{
	ck_assert(WITHIN(5000, command_waiting_is(name, 1)));
}

static void assert_next(int64_t ms)
{
	ck_assert_msg(command_wait(&next, ms), "no next holder");
	ck_assert_msg(WIFEXITED(next.status) && WEXITSTATUS(next.status) == 0, "%x %s", next.status,
	              next.err);
}

static bool is_gone(pid_t pid)
{
	char state = proc_state(pid);

	return !state || state == 'Z' || state == 'X';
}

static pid_t guard_of(const struct command *command)
{
	pid_t guard = command_child(command->pid);

	ck_assert_int_gt(guard, 0);
	return guard;
}

/* latchkey holds the lock for its command, with a lease of that many seconds. */
static void hold(const char *lease)
{
	START(&cmd, "latchkey", "lock", "--lease", lease, "a", "-c", witnessed("sleep 97; true"));
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
}

/* Kill latchkey; return the time until the next holder's command has ended. */
static int64_t kill_and_follow(void)
{
	int64_t began = now_ms();

	kill(cmd.pid, SIGKILL);
	assert_next(5000);
	return now_ms() - began;
}

static void assert_soon(int64_t best)
{
	printf("from the kill to the end of the next command: %d ms\n", (int)best);
	ck_assert_int_le(best, SOON_MS);
}

TEST(c4_killed_latchkey_hands_its_lock_on)
{
	int64_t best = 100000;

	begin();
	for (int i = 0; i < ROUNDS && best > SOON_MS; i++) {
		int64_t took;
		START(&cmd, "latchkey", "lock", "--lease", "20", "a", "-c",
		      witnessed("trap '' TERM; setsid sleep 98 & sleep 97; true"));
		ck_assert(WITHIN(5000, command_count_of("sleep") == 2));
		START(&next, "latchkey", "lock", "a", "-c", alone("true"));
		assert_waiting("a");
		took = kill_and_follow();
		best = took < best ? took : best;
		ck_assert(command_wait(&cmd, 5000));
	}
	assert_soon(best);
	ck_assert(WITHIN(5000, command_count() == 0));
	server_stop(&server);
}

TEST(c4_killed_latchkey_hands_its_permits_on)
{
	int64_t best = 100000;

	begin();
	START(&other, "latchkey", "sem", "--permits", "3", "s", "-c",
	      "until test -e $(dirname $LATCHKEY_LOCAL_DIR)/go; do sleep .1; done; exit 5");
	for (int i = 0; i < ROUNDS && best > SOON_MS; i++) {
		int64_t took;
		START(&cmd, "latchkey", "sem", "--permits", "3", "-k", "2", "--lease", "20", "s",
		      "-c", witnessed("sleep 97; true"));
		ck_assert(WITHIN(5000, command_count_of("sleep") >= 1 &&
		                               shell("latchkey show s | grep -q 'pid %d'",
		                                     (int)cmd.pid) == 0));
		START(&next, "latchkey", "sem", "--permits", "3", "-k", "2", "s", "-c",
		      alone("true"));
		assert_waiting("s");
		took = kill_and_follow();
		best = took < best ? took : best;
		ck_assert(command_wait(&cmd, 5000));
	}
	assert_soon(best);
	/* The other holder was not affected. */
	ck_assert_int_eq(shell("touch %s", command_file("go")), 0);
	ck_assert(command_wait(&other, 5000));
	ck_assert_int_eq(WEXITSTATUS(other.status), 5);
	ck_assert(WITHIN(5000, command_count() == 0));
	server_stop(&server);
}

TEST(guard_logs_in_with_a_password_that_no_argument_shows)
{
	struct redis *redis;
	char url[128];

	begin();
	ck_assert_int_eq(shell("echo s3cret >%s", command_file("password")), 0);
	redis = redis_open(&server);
	redis_do(redis, "ACL SETUSER job on >s3cret ~* &* +@all");
	redis_do(redis, "ACL SETUSER default off");
	snprintf(url, sizeof(url), "redis://job@127.0.0.1:%d?grace=0", server.port);
	setenv("LATCHKEY_URL", url, 1);
	setenv("LATCHKEY_PASSWORD_FILE", command_file("password"), 1);
	hold("20");
	ck_assert_int_eq(shell("! grep -q s3cret /proc/%d/cmdline", (int)guard_of(&cmd)), 0);
	/* The file's present content does not help the guard. */
	ck_assert_int_eq(shell("cp %s %s; echo >%s", command_file("password"), command_file("copy"),
	                       command_file("password")),
	                 0);
	setenv("LATCHKEY_PASSWORD_FILE", command_file("copy"), 1);
	START(&next, "latchkey", "lock", "a", "-c", alone("true"));
	assert_waiting("a");
	ck_assert_int_le(kill_and_follow(), 3000);
	redis_close(redis);
	server_stop(&server);
}

/* The store is down: the lease has to expire, as without a guard, and the guard ends. */
TEST(guard_gives_up_when_the_lease_has_ended)
{
	pid_t guard;

	begin();
	hold("2");
	guard = guard_of(&cmd);
	server_pause(&server);
	kill(cmd.pid, SIGKILL);
	ck_assert(WITHIN(1000, command_count_of("sleep") == 0));
	ck_assert(!is_gone(guard));
	ck_assert(WITHIN(8000, is_gone(guard)));
	server_resume(&server);
	RUNS(0, &next, "latchkey", "lock", "a", "-c", alone("true"));
	server_stop(&server);
}

TEST(guard_releases_when_the_store_is_back)
{
	int64_t began;

	begin();
	hold("60");
	server_pause(&server);
	kill(cmd.pid, SIGKILL);
	ck_assert(WITHIN(1000, command_count_of("sleep") == 0));
	nap_ms(1200); /* one try has failed */
	server_resume(&server);
	began = now_ms();
	RUNS(0, &next, "latchkey", "lock", "a", "-c", alone("true"));
	ck_assert_int_le(now_ms() - began, 6000);
	server_stop(&server);
}

/* Connecting takes longer than a second, and each request nearly half a second. */
TEST(guard_releases_over_a_slow_link)
{
	static const struct proxy_fault slow = {.delay_ms = 200};
	static struct proxy proxy;

	begin();
	proxy_start(&proxy, &server);
	setenv("LATCHKEY_URL", proxy.url, 1);
	hold("60");
	proxy_set_all(&proxy, &slow);
	kill(cmd.pid, SIGKILL);
	setenv("LATCHKEY_URL", server.url, 1);
	RUNS(0, &next, "latchkey", "lock", "-w", "11", "a", "-c", alone("true"));
	server_stop(&server);
}

/* latchkey was stopped past its lease and another client holds the lock when it is killed. */
TEST(guard_of_a_lost_lock_breaks_no_other_holder)
{
	pid_t guard;

	begin();
	hold("1");
	guard = guard_of(&cmd);
	kill(cmd.pid, SIGSTOP);
	START(&next, "latchkey", "lock", "a", "-c",
	      alone("touch $(dirname $LATCHKEY_LOCAL_DIR)/in; sleep 96; sleep .3"));
	ck_assert(
		WITHIN(5000, !access(command_file("in"), F_OK) && command_count_of("sleep") == 1));
	kill(cmd.pid, SIGKILL);
	ck_assert(WITHIN(5000, is_gone(guard)));
	/* The command continues; it would not if its lock had been broken. */
	ck_assert_int_eq(command_signal_of("sleep", SIGTERM), 1);
	assert_next(5000);
	server_stop(&server);
}

/* There are no connections but those of the commands. */
TEST(guard_asks_nothing_after_a_release)
{
	struct redis *redis;
	long long before;

	begin();
	redis = redis_open(&server);
	before = redis_info(redis, "total_connections_received");
	RUNS(0, &cmd, "latchkey", "lock", "a", "true");
	RUNS(0, &cmd, "latchkey", "lock", "--min-hold", "0.1", "a", "true");
	RUNS(79, &cmd, "latchkey", "lock", "a", "-c", "latchkey break -q a; sleep 95");
	/* Four clients with two connections each. */
	ck_assert_int_eq(redis_info(redis, "total_connections_received") - before, 8);
	redis_close(redis);
	server_stop(&server);
}

/* ---- With --min-hold ------------------------------------------------------------------------ */

TEST(killed_latchkey_holds_until_min_hold_is_over)
{
	int64_t began, took;

	begin();
	/* The lease is longer in one case, shorter in the other. */
	for (int i = 0; i < 2; i++) {
		began = now_ms();
		START(&cmd, "latchkey", "lock", "--lease", i ? "1" : "20", "--min-hold", "3", "a",
		      "-c", witnessed("sleep 97; true"));
		ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
		START(&next, "latchkey", "lock", "a", "-c", alone("true"));
		assert_waiting("a");
		kill(cmd.pid, SIGKILL);
		ck_assert(WITHIN(1000, command_count_of("sleep") == 0));
		assert_next(8000);
		took = now_ms() - began;
		ck_assert_int_ge(took, 3000);
		ck_assert_int_le(took, 6000);
		ck_assert(command_wait(&cmd, 5000));
	}
	server_stop(&server);
}

/* Only the store keeps the hold: both processes that could do so are dead. */
TEST(min_hold_outlives_latchkey_and_its_guard)
{
	static const char *const verbs[][4] = {{"lock", "--lease", "0.5", "-v"},
	                                       {"sem", "--permits", "1", "--lease=0.5"}};
	int64_t began;

	begin();
	for (int i = 0; i < 2; i++) {
		const char *const *verb = verbs[i];
		const char *name = i ? "s" : "a";
		pid_t guard;
		began = now_ms();
		START(&cmd, "latchkey", verb[0], verb[1], verb[2], verb[3], "--min-hold", "3", name,
		      "-c", witnessed("exec sleep 97"));
		ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
		guard = guard_of(&cmd);
		kill(cmd.pid, SIGSTOP);
		kill(guard, SIGKILL);
		kill(cmd.pid, SIGKILL);
		ck_assert(WITHIN(1000, command_count() == 0));
		RUNS(0, &next, "latchkey", verb[0], verb[1], i ? verb[2] : "10", name, "-c",
		     alone("true"));
		ck_assert_int_ge(now_ms() - began, 3000);
		ck_assert_int_le(now_ms() - began, 8000);
		ck_assert(command_wait(&cmd, 5000));
	}
	server_stop(&server);
}

/* Only the store uses the long lease: losses are noticed as without --min-hold. */
TEST(min_hold_delays_no_loss)
{
	struct redis *redis;
	int64_t began;

	begin();
	command_hold(&cmd, "lock --lease 2 --min-hold 60 a sleep 97");
	redis = redis_open(&server);
	redis_do(redis, "FLUSHALL");
	redis_close(redis);
	began = now_ms();
	ck_assert(command_wait(&cmd, 8000));
	ck_assert_int_le(now_ms() - began, 4000);
	ck_assert_int_eq(WEXITSTATUS(cmd.status), 79);
	ck_assert_ptr_nonnull(strstr(cmd.err, "taken"));
	command_hold(&cmd, "lock --lease 2 --min-hold 60 a sleep 97");
	server_pause(&server);
	ck_assert(WITHIN(2500, command_count_of("sleep") == 0));
	ck_assert(command_wait(&cmd, 8000));
	ck_assert_int_eq(WEXITSTATUS(cmd.status), 79);
	server_resume(&server);
	server_stop(&server);
}

/* Part of the lease has passed when the grant is noticed: it is extended to last for --min-hold. */
TEST(min_hold_of_a_late_grant_is_known_to_the_store)
{
	begin();
	command_hold(&other, "lock a sleep 96");
	START(&cmd, "latchkey", "lock", "--lease", "20", "--min-hold", "20", "a", "sleep", "97");
	assert_waiting("a");
	kill(cmd.pid, SIGSTOP);
	ck_assert_int_eq(command_signal_of("sleep", SIGKILL), 1);
	ck_assert(WITHIN(5000, shell("latchkey show a | grep -q 'pid %d'", (int)cmd.pid) == 0));
	nap_ms(3000);
	kill(cmd.pid, SIGCONT);
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	ck_assert_int_eq(shell("latchkey show --json a | "
	                       "grep -Eq 'lease_left_seconds\":(18|19|20)[.]'"),
	                 0);
	server_stop(&server);
}

/* The guard has closed the descriptors of latchkey's start while it waits, and may be killed. */
TEST(guard_that_waits_for_min_hold_holds_nothing_else)
{
	pid_t guard;

	begin();
	START(&cmd, "sh", "-c",
	      witnessed("exec latchkey lock --min-hold 60 --report "
	                "$(dirname $LATCHKEY_LOCAL_DIR)/the-report a "
	                "sh -c 'exec 9>&-; sleep 97; true'"));
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	guard = guard_of(&cmd);
	ck_assert_int_eq(shell("ls -l /proc/%d/fd | grep -q the-report", (int)cmd.pid), 0);
	ck_assert_int_eq(shell("ls -l /proc/%d/fd | grep -q the-report", (int)guard), 1);
	ck_assert_int_eq(shell("flock -n %s true", command_file("witness")), 1);
	kill(cmd.pid, SIGKILL);
	ck_assert(WITHIN(2000, shell("flock -n %s true", command_file("witness")) == 0));
	ck_assert(!is_gone(guard));
	RUNS(75, &next, "latchkey", "lock", "-nq", "a", "true");
	ck_assert(!is_gone(guard));
	kill(guard, SIGTERM);
	ck_assert(WITHIN(2000, is_gone(guard)));
	server_stop(&server);
}

/* ---- With --on-lost=warn -------------------------------------------------------------------- */

TEST(command_that_goes_on_keeps_the_lock_until_it_ends)
{
	begin();
	START(&cmd, "latchkey", "lock", "--lease", "20", "--on-lost=warn", "a", "-c",
	      witnessed("sleep 97; sleep .3; true"));
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	START(&next, "latchkey", "lock", "a", "-c", alone("true"));
	assert_waiting("a");
	kill(cmd.pid, SIGKILL);
	ck_assert(command_wait(&cmd, 5000));
	ck_assert(!command_wait(&next, 300));
	ck_assert_int_eq(command_signal_of("sleep", SIGTERM), 1);
	assert_next(5000);
	ck_assert(WITHIN(5000, command_count() == 0));
	server_stop(&server);
}

/* The lock was not renewed, and another holder entered: the end of the command does not affect
 * it. */
TEST(command_that_goes_on_too_long_breaks_no_other_holder)
{
	pid_t guard;

	begin();
	command_hold(&cmd, "lock --lease 1 --on-lost=warn a sleep 97");
	guard = guard_of(&cmd);
	kill(cmd.pid, SIGKILL);
	START(&next, "latchkey", "lock", "a", "sh", "-c",
	      "touch $(dirname $LATCHKEY_LOCAL_DIR)/in; until test -e "
	      "$(dirname $LATCHKEY_LOCAL_DIR)/go; do sleep .05; done");
	ck_assert(WITHIN(5000, !access(command_file("in"), F_OK)));
	ck_assert(!is_gone(guard));
	kill(command_child(guard), SIGTERM);
	ck_assert(WITHIN(5000, is_gone(guard)));
	ck_assert_int_eq(shell("touch %s", command_file("go")), 0);
	assert_next(5000);
	server_stop(&server);
}
