/* SPDX-License-Identifier: MIT
 * The command and a store that is down: the same rule for waits, whether the store was down at the
 * start or failed later. */
#include "command.h"
#include "process.h"
#include "proxy.h"
#include "redis.h"
#include "server.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The delay that a loaded machine may add to an exact time. */
#define SLACK_MS 1500
#define NOT_RUN "\"command_status\":null"

static struct test_server server;
static struct proxy proxy;
static struct command cmd, holder;
static char report[256];

static void begin(void)
{
	server_start(&server, NULL);
	command_setup(server.url);
	snprintf(report, sizeof(report), "--report=%s", command_file("report"));
}

/* The store is down, and returns on the same port by server_restart(). */
static void begin_down(void)
{
	begin();
	server_kill(&server);
}

/* Another latchkey holds "a" until the test ends. */
static void hold(void)
{
	command_hold(&holder, "lock -q a sleep 82");
}

/* Return how often the line about an outage was written. */
static int lines_of(const struct command *command)
{
	const char *at = command_err(command);
	int count = 0;

	for (; (at = strstr(at, "latchkey: waiting for 127.0.0.1:")); at++)
		count++;
	return count;
}

static void assert_outcome(const char *outcome)
{
	char text[64];

	snprintf(text, sizeof(text), "{\"outcome\":\"%s\",", outcome);
	ck_assert_msg(!strncmp(command_read("report"), text, strlen(text)), "%s",
	              command_read("report"));
}

/* Return a time of the report. */
static int64_t reported_ms(const char *field)
{
	const char *at = strstr(command_read("report"), field);

	ck_assert_ptr_nonnull(at);
	return (int64_t)(strtod(at + strlen(field) + 2, NULL) * 1000);
}

/* The command ends with this status, between two times since start_ms. */
static void expect_end(int64_t start_ms, int status, int64_t least_ms, int64_t most_ms)
{
	ck_assert(command_wait(&cmd, 30000));
	ck_assert_msg(WIFEXITED(cmd.status) && WEXITSTATUS(cmd.status) == status, "%x: %s",
	              (unsigned)cmd.status, cmd.err);
	ck_assert_int_ge(now_ms() - start_ms, least_ms);
	ck_assert_int_le(now_ms() - start_ms, most_ms);
}

/* ---- The store is down at the start -------------------------------------------------------- */

TEST(wait_covers_connecting)
{
	int64_t start_ms;

	begin_down();
	START(&cmd, "latchkey", "lock", "-w", "60", report, "a", "echo", "in");
	ck_assert(!command_wait(&cmd, 1500));
	server_restart(&server);
	start_ms = now_ms();
	expect_end(start_ms, 0, 0, 1000 + SLACK_MS);
	ck_assert_str_eq(cmd.out, "in\n");
	ck_assert_str_eq(cmd.err, ""); /* the outage was too short for a message */
	assert_outcome("ended");
	server_stop(&server);
}

TEST(wait_for_each_kind_covers_connecting)
{
	struct command sem, rate, latch;

	begin_down();
	START(&sem, "latchkey", "sem", "-w", "60", "--permits", "2", "s", "echo", "sem");
	START(&rate, "latchkey", "rate", "-w", "60", "--limit", "2", "--per", "1", "r", "echo",
	      "rate");
	START(&latch, "latchkey", "latch", "wait", "-w", "60", "--absent-is-open", "l");
	ck_assert(!command_wait(&sem, 700));
	ck_assert(!command_wait(&rate, 100));
	ck_assert(!command_wait(&latch, 100));
	server_restart(&server);
	ck_assert(command_wait(&sem, 5000) && command_wait(&rate, 5000) &&
	          command_wait(&latch, 5000));
	ck_assert_str_eq(sem.out, "sem\n");
	ck_assert_str_eq(rate.out, "rate\n");
	ck_assert_int_eq(sem.status | rate.status | latch.status, 0);
	server_stop(&server);
}

TEST(wait_that_never_met_the_store_ends_exactly_with_69)
{
	char text[100];
	int64_t start_ms;

	begin_down();
	start_ms = now_ms();
	START(&cmd, "latchkey", "lock", "-w", "1.5", "-E", "9", report, "a", "true");
	expect_end(start_ms, 69, 1500, 1500 + SLACK_MS);
	snprintf(text, sizeof(text),
	         "latchkey: cannot acquire \"a\": 127.0.0.1:%d: connection refused\n", server.port);
	ck_assert_str_eq(cmd.err, text);
	assert_outcome("unreachable");
	start_ms = now_ms();
	START(&cmd, "latchkey", "latch", "wait", "-w", "1.5", "l");
	expect_end(start_ms, 69, 1500, 1500 + SLACK_MS);
	/* With lazy the client is open though it has no connection. */
	snprintf(text, sizeof(text), "%s&lazy=1", server.url);
	start_ms = now_ms();
	START(&cmd, "latchkey", "lock", "-w", "1.5", "-E", "9", "--url", text, "a", "true");
	expect_end(start_ms, 69, 1500, 1500 + SLACK_MS);
	server_stop(&server);
}

TEST(wait_is_not_outlived_by_a_connect_that_hangs)
{
	char url[120];
	int64_t start_ms;

	begin();
	proxy_start(&proxy, &server);
	proxy_black_hole(&proxy, true);
	setenv("LATCHKEY_URL", proxy.url, 1);
	start_ms = now_ms();
	START(&cmd, "latchkey", "lock", "-w", "1.5", "a", "true");
	expect_end(start_ms, 69, 1500, 1500 + SLACK_MS);
	ck_assert_str_eq(cmd.err, "latchkey: cannot acquire \"a\": not connected in time\n");
	/* The URL's longer connect timeout does not extend the wait either. */
	snprintf(url, sizeof(url), "%s&connect_timeout=20000", proxy.url);
	setenv("LATCHKEY_URL", url, 1);
	start_ms = now_ms();
	START(&cmd, "latchkey", "lock", "-w", "7", "a", "true");
	expect_end(start_ms, 69, 7000, 7000 + SLACK_MS);
	ck_assert_int_ge(proxy_count(&proxy).silent, 2);
	server_stop(&server);
}

/* The limit of the wait does not apply to later reconnects: these have the URL's timeout. */
TEST(wait_shortens_no_later_connect)
{
	static const struct proxy_fault slow = {.delay_ms = 300};
	char url[120];

	begin();
	proxy_start(&proxy, &server);
	snprintf(url, sizeof(url), "%s&connect_timeout=20000", proxy.url);
	setenv("LATCHKEY_URL", url, 1);
	command_hold(&cmd, "lock -v -w 1.5 --lease 60 a sleep 82");
	proxy_set_all(&proxy, &slow);
	proxy_cut(&proxy, PROXY_COMMANDS, false);
	proxy_cut(&proxy, PROXY_MESSAGES, false);
	ck_assert_msg(WITHIN(12000, strstr(command_err(&cmd), ": connected")), "%s",
	              command_err(&cmd));
	ck_assert_ptr_null(strstr(command_err(&cmd), "cannot connect"));
	ck_assert_int_gt(proxy_count(&proxy).late[PROXY_COMMANDS][PROXY_TO_CLIENT], 0);
	server_stop(&server);
}

TEST(start_without_a_wait_fails_at_once)
{
	int64_t start_ms;

	begin_down();
	start_ms = now_ms();
	START(&cmd, "latchkey", "lock", "a", "true");
	expect_end(start_ms, 69, 0, SLACK_MS);
	start_ms = now_ms();
	START(&cmd, "latchkey", "lock", "-n", "a", "true");
	expect_end(start_ms, 69, 0, SLACK_MS);
	start_ms = now_ms();
	START(&cmd, "latchkey", "latch", "wait", "l");
	expect_end(start_ms, 69, 0, SLACK_MS);
	server_stop(&server);
}

TEST(failure_that_no_wait_cures_ends_at_once)
{
	struct redis *redis;
	char url[100];

	begin();
	redis = redis_open(&server);
	redis_do(redis, "ACL SETUSER job on >word ~* &* +@all -publish");
	START(&cmd, "latchkey", "lock", "-w", "60", "--url", "redis://nohost.invalid:x", "a",
	      "true");
	expect_end(now_ms(), 64, 0, 5000);
	snprintf(url, sizeof(url), "redis://job:bad@127.0.0.1:%d?grace=0", server.port);
	setenv("LATCHKEY_URL", url, 1);
	START(&cmd, "latchkey", "lock", "-w", "60", "a", "true");
	expect_end(now_ms(), 69, 0, 5000);
	ck_assert_ptr_nonnull(strstr(cmd.err, "WRONGPASS"));
	snprintf(url, sizeof(url), "redis://job:word@127.0.0.1:%d?grace=0", server.port);
	setenv("LATCHKEY_URL", url, 1);
	START(&cmd, "latchkey", "lock", "-w", "60", "a", "true");
	expect_end(now_ms(), 69, 0, 5000);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d/99", server.port);
	setenv("LATCHKEY_URL", url, 1);
	START(&cmd, "latchkey", "lock", "-w", "60", "a", "true");
	expect_end(now_ms(), 69, 0, 5000);
	setenv("LATCHKEY_URL", server.url, 1);
	redis_do(redis, "SET lk:{a} mine");
	START(&cmd, "latchkey", "lock", "-w", "60", "a", "true");
	expect_end(now_ms(), 69, 0, 5000);
	redis_close(redis);
	server_stop(&server);
}

/* As while it loads its data, the server responds, but runs no command. */
TEST(server_that_is_busy_at_the_start_is_waited_for)
{
	struct redis *redis, *killer;

	begin();
	redis = redis_open(&server);
	killer = redis_open(&server);
	redis_do(killer, "CONFIG SET lua-time-limit 50");
	ck_assert_int_eq(
		shell("redis-cli -p %d EVAL 'while true do end' 0 >/dev/null 2>&1 &", server.port),
		0);
	ck_assert(WITHIN(5000, shell("redis-cli -p %d GET x | grep -q BUSY", server.port) == 0));
	START(&cmd, "latchkey", "lock", "-w", "60", "a", "echo", "in");
	ck_assert(!command_wait(&cmd, 1000));
	redis_do(killer, "SCRIPT KILL");
	ck_assert(command_wait(&cmd, 5000));
	ck_assert_str_eq(cmd.out, "in\n");
	redis_close(redis);
	redis_close(killer);
	server_stop(&server);
}

/* ---- The server dies while the command waits ------------------------------------------------ */

TEST(waiter_whose_server_died_long_ago_ends_exactly_with_69)
{
	int64_t start_ms;

	begin();
	hold();
	start_ms = now_ms();
	START(&cmd, "latchkey", "lock", "-w", "6", "-E", "9", report, "a", "true");
	ck_assert(WITHIN(3500, command_waiting_is("a", 1)));
	server_kill(&server);
	ck_assert_int_lt(now_ms() - start_ms, 3900); /* a command timeout before the end */
	expect_end(start_ms, 69, 6000, 6000 + SLACK_MS);
	ck_assert_ptr_nonnull(strstr(cmd.err, "cannot acquire \"a\": 127.0.0.1:"));
	assert_outcome("unreachable");
	server_stop(&server);
}

TEST(waiter_whose_server_died_just_now_ends_exactly_with_75)
{
	int64_t start_ms;

	begin();
	hold();
	start_ms = now_ms();
	START(&cmd, "latchkey", "lock", "-w", "5", "-E", "9", report, "a", "true");
	ck_assert(WITHIN(4000, command_waiting_is("a", 1)));
	nap_ms(4000 - (now_ms() - start_ms));
	server_kill(&server);
	expect_end(start_ms, 9, 5000, 5000 + SLACK_MS);
	ck_assert_ptr_nonnull(strstr(cmd.err, "not acquired in time"));
	assert_outcome("busy");
	server_stop(&server);
}

/* The connection appears to work until its silence is noticed. */
TEST(waiter_whose_server_is_silent_ends_a_command_timeout_later_with_69)
{
	static const struct proxy_fault stall = {.stall = true};
	int64_t start_ms;

	begin();
	proxy_start(&proxy, &server);
	hold();
	setenv("LATCHKEY_URL", proxy.url, 1);
	start_ms = now_ms();
	START(&cmd, "latchkey", "lock", "-w", "4", "a", "true");
	START(&holder, "latchkey", "latch", "wait", "-w", "4", "-E", "9", "l");
	setenv("LATCHKEY_URL", server.url, 1);
	ck_assert(WITHIN(3500, proxy_count(&proxy).open == 4 && command_waiting_is("a", 1)));
	proxy_set_all(&proxy, &stall);
	expect_end(start_ms, 69, 4000, 6000 + SLACK_MS);
	ck_assert(command_wait(&holder, 4000));
	ck_assert_int_eq(WEXITSTATUS(holder.status), 69);
	server_stop(&server);
}

/* The silence was noticed less than a command timeout before the end, but began earlier. */
TEST(waiter_whose_server_fell_silent_long_ago_ends_with_69)
{
	static const struct proxy_fault stall = {.stall = true};
	int64_t start_ms;

	begin();
	proxy_start(&proxy, &server);
	hold();
	setenv("LATCHKEY_URL", proxy.url, 1);
	start_ms = now_ms();
	/* A short lease: silence is noticed 2.3 s after it began. */
	START(&cmd, "latchkey", "lock", "-w", "7", "--lease", "1", "-E", "9", "a", "true");
	setenv("LATCHKEY_URL", server.url, 1);
	ck_assert(WITHIN(3000, command_waiting_is("a", 1)));
	nap_ms(3200 - (now_ms() - start_ms));
	proxy_set_all(&proxy, &stall);
	expect_end(start_ms, 69, 7000, 7000 + SLACK_MS);
	server_stop(&server);
}

TEST(waiter_without_a_limit_goes_on_after_its_server_died)
{
	begin();
	hold();
	START(&cmd, "latchkey", "lock", "a", "echo", "in");
	ck_assert(WITHIN(5000, command_waiting_is("a", 1)));
	server_kill(&server);
	ck_assert_msg(!command_wait(&cmd, 3000), "status %x: %s", cmd.status, cmd.err);
	server_restart(&server); /* the holder is forgotten */
	ck_assert(command_wait(&cmd, 5000));
	ck_assert_str_eq(cmd.out, "in\n");
	server_stop(&server);
}

/* ---- Messages about an outage -------------------------------------------------------------- */

TEST_LIMIT(outage_of_5_seconds_is_reported_once, 60)
{
	struct command quiet, starting;
	char text[100];
	int64_t down_ms;

	begin();
	hold();
	START(&cmd, "latchkey", "lock", "a", "true");
	START(&quiet, "latchkey", "lock", "-q", "a", "true");
	ck_assert(WITHIN(5000, command_waiting_is("a", 2)));
	server_kill(&server);
	START(&starting, "latchkey", "lock", "-w", "60", "b", "true");
	down_ms = now_ms();
	ck_assert(WITHIN(5000 + SLACK_MS, lines_of(&cmd) == 1));
	ck_assert_int_ge(now_ms() - down_ms, 4900);
	ck_assert(WITHIN(SLACK_MS, lines_of(&starting) == 1));
	snprintf(text, sizeof(text), "latchkey: waiting for 127.0.0.1:%d: connection refused\n",
	         server.port);
	ck_assert_str_eq(command_err(&cmd), text);
	ck_assert_str_eq(command_err(&starting), text);
	ck_assert(!command_wait(&cmd, 2000));
	server_restart(&server);
	ck_assert(command_wait(&cmd, 5000) && command_wait(&quiet, 5000) &&
	          command_wait(&starting, 5000));
	ck_assert_str_eq(cmd.err, text);
	ck_assert_str_eq(starting.err, text);
	ck_assert_str_eq(quiet.err, "");
	ck_assert_int_eq(cmd.status | quiet.status | starting.status, 0);
	server_stop(&server);
}

TEST(outage_while_the_command_runs_is_no_wait)
{
	begin();
	START(&cmd, "latchkey", "lock", "--lease", "30", "a", "-c", "sleep 7; exit 3");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	server_kill(&server);
	ck_assert(command_wait(&cmd, 20000));
	ck_assert_int_eq(WEXITSTATUS(cmd.status), 3);
	ck_assert_int_eq(lines_of(&cmd), 0);
	server_stop(&server);
}

/* ---- Signals ------------------------------------------------------------------------------- */

TEST(signal_ends_a_wait_without_a_connection_at_once)
{
	int64_t start_ms;

	begin();
	hold();
	START(&cmd, "latchkey", "lock", "-w", "60", report, "a", "true");
	ck_assert(WITHIN(5000, command_waiting_is("a", 1)));
	server_kill(&server);
	nap_ms(300); /* the command may notice the loss of its link; it must end in either case */
	start_ms = now_ms();
	kill(cmd.pid, SIGTERM);
	ck_assert(command_wait(&cmd, 5000));
	ck_assert(WIFSIGNALED(cmd.status) && WTERMSIG(cmd.status) == SIGTERM);
	ck_assert_int_le(now_ms() - start_ms, SLACK_MS);
	assert_outcome("cancelled");
	/* The same for a command that was never connected. */
	START(&cmd, "latchkey", "lock", "-w", "60", report, "a", "true");
	ck_assert(!command_wait(&cmd, 500));
	start_ms = now_ms();
	kill(cmd.pid, SIGINT);
	ck_assert(command_wait(&cmd, 5000));
	ck_assert(WIFSIGNALED(cmd.status) && WTERMSIG(cmd.status) == SIGINT);
	ck_assert_int_le(now_ms() - start_ms, SLACK_MS);
	assert_outcome("cancelled");
	ck_assert_msg(reported_ms("waited_seconds") >= 300, "%s", command_read("report"));
	server_stop(&server);
}

/* ---- After a loss -------------------------------------------------------------------------- */

TEST(command_that_was_lost_with_its_server_ends_at_once)
{
	int64_t start_ms;

	begin();
	command_hold(&cmd, "lock --lease 2 a sleep 82");
	server_kill(&server);
	ck_assert(WITHIN(5000, command_count_of("sleep") == 0));
	start_ms = now_ms();
	/* Some of the lease may be left when the command has ended. */
	expect_end(start_ms, 79, 0, 500 + SLACK_MS);
	server_stop(&server);
}

/* ---- Between the grant and the command ----------------------------------------------------- */

/* "a" is granted to a command with --min-hold, whose request for the longer lease is delayed. */
static void begin_granted(const char *on_lost, int timeout_ms)
{
	static const struct proxy_fault stall = {.stall = true};
	char url[120];

	begin();
	proxy_start(&proxy, &server);
	hold();
	snprintf(url, sizeof(url), "%s&command_timeout=%d", proxy.url, timeout_ms);
	setenv("LATCHKEY_URL", url, 1);
	START(&cmd, "latchkey", "lock", on_lost, "--lease", "20", "--min-hold", "60", report, "a",
	      "echo", "ran");
	setenv("LATCHKEY_URL", server.url, 1);
	ck_assert(WITHIN(5000, command_waiting_is("a", 1)));
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_SERVER, &stall);
	ck_assert_int_eq(command_signal_of("sleep", SIGKILL), 1);
	ck_assert(command_wait(&holder, 5000));
	ck_assert(WITHIN(5000, proxy_count(&proxy).held[PROXY_COMMANDS][PROXY_TO_SERVER] > 0));
	ck_assert_int_eq(shell("latchkey show a | grep -q 'pid %d'", (int)cmd.pid), 0);
}

TEST(command_whose_lock_was_lost_before_it_began_is_not_run)
{
	static const char *const on_lost[] = {"--on-lost=warn", "--on-lost=term"};

	for (int i = 0; i < 2; i++) {
		begin_granted(on_lost[i], 5000);
		RUNS(0, &holder, "latchkey", "break", "-q", "a");
		proxy_heal(&proxy);
		ck_assert(command_wait(&cmd, 10000));
		ck_assert_int_eq(WEXITSTATUS(cmd.status), 79);
		ck_assert_str_eq(cmd.out, "");
		ck_assert_msg(strstr(cmd.err, "lost before the command") != NULL, "%s", cmd.err);
		assert_outcome("lost");
		ck_assert_ptr_nonnull(strstr(command_read("report"), NOT_RUN));
		/* The reason comes from the response or from the message, whichever is first. */
		ck_assert_msg(strstr(command_read("report"), "\"taken\"") ||
		                      strstr(command_read("report"), "\"broken\""),
		              "%s", command_read("report"));
		proxy_stop(&proxy);
		server_stop(&server);
	}
}

TEST(signal_before_the_command_began_ends_the_hold)
{
	begin_granted("--on-lost=term", 5000);
	kill(cmd.pid, SIGTERM);
	proxy_heal(&proxy);
	ck_assert(command_wait(&cmd, 10000));
	ck_assert_msg(WIFSIGNALED(cmd.status) && WTERMSIG(cmd.status) == SIGTERM, "%x %s",
	              (unsigned)cmd.status, cmd.err);
	ck_assert_str_eq(cmd.out, "");
	assert_outcome("cancelled");
	ck_assert_ptr_nonnull(strstr(command_read("report"), NOT_RUN));
	RUNS(0, &holder, "latchkey", "lock", "-n", "a", "true");
	server_stop(&server);
}

/* Without the signal, latchkey would try for half a lease to shorten the hold again. */
TEST(signal_ends_a_start_whose_store_went_away)
{
	int64_t start_ms;

	begin_granted("--on-lost=term", 1000);
	proxy_refuse(&proxy, true);
	proxy_cut(&proxy, PROXY_COMMANDS, false);
	proxy_cut(&proxy, PROXY_MESSAGES, false);
	ck_assert(!command_wait(&cmd, 300));
	start_ms = now_ms();
	kill(cmd.pid, SIGTERM);
	ck_assert(command_wait(&cmd, 10000));
	ck_assert_msg(WIFSIGNALED(cmd.status) && WTERMSIG(cmd.status) == SIGTERM, "%x %s",
	              (unsigned)cmd.status, cmd.err);
	ck_assert_str_eq(cmd.out, "");
	ck_assert_int_le(now_ms() - start_ms, 2000 + SLACK_MS);
	server_stop(&server);
}

/* ---- After a release ----------------------------------------------------------------------- */

/* The command itself ends in time; otherwise the next one would wait for the lease. */
TEST(release_without_a_connection_is_made_up_for)
{
	begin();
	proxy_start(&proxy, &server);
	setenv("LATCHKEY_URL", proxy.url, 1);
	command_hold(&cmd, "lock --lease 60 a -- sleep 82");
	setenv("LATCHKEY_URL", server.url, 1);
	START(&holder, "latchkey", "lock", "a", "echo", "in");
	ck_assert(WITHIN(5000, command_waiting_is("a", 1)));
	proxy_refuse(&proxy, true);
	proxy_cut(&proxy, PROXY_COMMANDS, false);
	proxy_cut(&proxy, PROXY_MESSAGES, false);
	ck_assert_int_eq(command_signal_of("sleep", SIGTERM), 1);
	expect_end(now_ms(), 143, 0, 2000 + SLACK_MS);
	ck_assert_msg(strstr(cmd.err, "release not confirmed") != NULL, "%s", cmd.err);
	ck_assert(!command_wait(&holder, 0));
	proxy_refuse(&proxy, false);
	ck_assert(command_wait(&holder, 10000)); /* not the lease */
	ck_assert_str_eq(holder.out, "in\n");
	ck_assert(WITHIN(5000, command_count() == 0));
	server_stop(&server);
}
