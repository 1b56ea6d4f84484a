/* SPDX-License-Identifier: MIT
 * The command with a quorum: quorum init, and the other verbs while a server is down. */
#include "command.h"
#include "process.h"
#include "quorum_setup.h"
#include "redis.h"
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static struct quorum_setup setup;
static struct command cmd, holder, waiter;

static void expect(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part), "\"%s\" is not in: %s", part, text);
}

TEST(quorum_is_made_by_the_environment_or_a_url)
{
	quorum_setup_start(&setup, NULL);
	command_setup(setup.url);
	RUNS(64, &cmd, "latchkey", "quorum");
	RUNS(64, &cmd, "latchkey", "quorum", "begin");
	RUNS(64, &cmd, "latchkey", "quorum", "init", "--longest-lease", "0");
	RUNS(0, &cmd, "latchkey", "quorum", "init", "--longest-lease", "5");
	ck_assert_str_eq(cmd.err, "latchkey: the servers are a quorum now: no lease may be longer "
	                          "than 5 seconds\n");
	expect(redis_marker(redis_open(&setup.servers[2])), " 0 [");
	expect(redis_marker(redis_open(&setup.servers[2])), "/3 5000]");
	RUNS(1, &cmd, "latchkey", "quorum", "init", setup.url);
	expect(cmd.err, "belongs to a quorum already");
	RUNS(64, &cmd, "latchkey", "lock", "--lease", "6", "a", "true");
	expect(cmd.err, "cannot acquire \"a\": --lease: must be at most 5 seconds, the quorum's "
	                "longest lease");
	RUNS(0, &cmd, "latchkey", "lock", "--lease", "5", "a", "true");
}

TEST(limits_are_those_of_the_option_in_seconds)
{
	static const char limits[] = "--longest-lease: must be 0.100 to 60 seconds\n";
	static const char *const wrong[] = {"0", "0.099", "60.001", "100", "86401", "x"};

	command_setup("redis+quorum://127.0.0.1:1");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		RUNS(64, &cmd, "latchkey", "quorum", "init", "--longest-lease", wrong[i]);
		expect(cmd.err, limits);
	}
	RUNS(0, &cmd, "latchkey", "help", "quorum", "init");
	expect(cmd.out, "(0.1 to 60, default: 60)");
	expect(cmd.out, "already in a quorum");
}

TEST(lease_above_a_longest_one_that_is_not_whole_is_refused)
{
	char url[140];

	quorum_setup_begin(&setup, 1500);
	snprintf(url, sizeof(url), "%s?lazy=1", setup.url);
	for (int lazy = 0; lazy < 2; lazy++) {
		command_setup(lazy ? url : setup.url);
		RUNS(64, &cmd, "latchkey", "lock", "--lease", "2", "a", "true");
		expect(cmd.err, "cannot acquire \"a\": --lease: must be at most 1.500 seconds, ");
		expect(cmd.err, "the quorum's longest lease");
	}
}

TEST(quorum_of_servers_with_data_says_for_how_long_nothing_is_granted)
{
	quorum_setup_start(&setup, NULL);
	command_setup(setup.url);
	for (int i = 0; i < 2; i++)
		redis_do(redis_open(&setup.servers[i]), "SET other 1");
	RUNS(0, &cmd, "latchkey", "quorum", "init");
	expect(cmd.err, "the servers are a quorum now: no lease may be longer than 60 seconds\n");
	expect(cmd.err, "had data, and may have forgotten a holder: nothing is granted for ");
	for (int i = 0; i < QUORUM_SERVERS; i++)
		ck_assert_int_eq(redis_int(redis_open(&setup.servers[i]), "DBSIZE"), i < 2 ? 2 : 1);
}

TEST(password_in_the_url_of_a_new_quorum_is_refused)
{
	command_setup(NULL);
	RUNS(64, &cmd, "latchkey", "quorum", "init", "redis+quorum://u:secret@h1,h2,h3");
	expect(cmd.err, "URL: every user of this machine could read its password");
	ck_assert_msg(!strstr(cmd.err, "secret"), "%s", cmd.err);
	RUNS(64, &cmd, "latchkey", "quorum", "init", "redis://h1");
	expect(cmd.err, "must begin with redis+quorum:");
}

TEST_LIMIT(holder_is_shown_and_broken_while_a_server_is_down, 60)
{
	quorum_setup_begin(&setup, 0);
	server_kill(&setup.servers[1]);
	command_setup(setup.url);
	command_hold(&holder, "lock --on-lost=warn --label night a -- sleep 40");
	START(&waiter, "latchkey", "lock", "-w", "30", "a", "true");
	ck_assert(WITHIN(10000, command_waiting_is("a", 1)));
	RUNS(0, &cmd, "latchkey", "show", "a");
	expect(cmd.out, "night");
	RUNS(0, &cmd, "latchkey", "show");
	expect(cmd.out, "night");
	RUNS(75, &cmd, "latchkey", "lock", "-n", "a", "true");
	RUNS(0, &cmd, "latchkey", "break", "a");
	ck_assert(command_wait(&waiter, 20000));
	ck_assert_int_eq(waiter.status, 0);
	RUNS(1, &cmd, "latchkey", "break", "a");
	command_signal_of("sleep", 9);
}

/* The default lease is cut to the quorum's longest; so is the time in which a command must end. */
TEST(command_lives_on_under_the_shortest_of_leases)
{
	quorum_setup_begin(&setup, 1000);
	command_setup(setup.url);
	RUNS(0, &cmd, "latchkey", "lock", "a", "sleep", "1.5");
	ck_assert_str_eq(cmd.err, "");
}

/* The store confirms no time beyond the longest lease; the hold is still kept until then. */
TEST(min_hold_beyond_the_longest_lease_is_kept_unless_the_command_is_killed)
{
	int64_t began_ms = now_ms();

	quorum_setup_begin(&setup, 1000);
	command_setup(setup.url);
	RUNS(0, &cmd, "latchkey", "lock", "--min-hold", "2", "a", "true");
	expect(cmd.err, "--min-hold not confirmed");
	expect(cmd.err, "longest lease");
	ck_assert_int_ge(now_ms() - began_ms, 2000);
	RUNS(0, &cmd, "latchkey", "lock", "--min-hold", "1.5", "--fixed", "a", "true");
	expect(cmd.err, "--min-hold not kept: the fixed lease is 1.0 s");
}

/* One server answers, which is no connection yet. */
TEST_LIMIT(wait_ends_in_time_while_a_majority_hangs, 60)
{
	int64_t began_ms;
	char url[140], places[120];

	quorum_setup_begin(&setup, 0);
	snprintf(url, sizeof(url), "%s?connect_timeout=30000", setup.url);
	snprintf(places, sizeof(places), "no response from 127.0.0.1:%d, 127.0.0.1:%d",
	         setup.servers[0].port, setup.servers[1].port);
	command_setup(url);
	server_pause(&setup.servers[0]);
	server_pause(&setup.servers[1]);
	began_ms = now_ms();
	RUNS(69, &cmd, "latchkey", "lock", "-w", "1.5", "a", "true");
	ck_assert_int_ge(now_ms() - began_ms, 1500);
	ck_assert_int_le(now_ms() - began_ms, 15000);
	expect(cmd.err, "not connected in time: ");
	expect(cmd.err, places);
	server_resume(&setup.servers[0]);
	server_resume(&setup.servers[1]);
}

/* The line about an outage is that of the majority. */
TEST_LIMIT(wait_without_a_majority_says_why, 60)
{
	quorum_setup_begin(&setup, 0);
	command_setup(setup.url);
	command_hold(&holder, "lock --on-lost=warn a -- sleep 40");
	START(&waiter, "latchkey", "lock", "-w", "9", "a", "true");
	ck_assert(WITHIN(10000, command_waiting_is("a", 1)));
	server_kill(&setup.servers[0]);
	server_kill(&setup.servers[1]);
	ck_assert(command_wait(&waiter, 20000));
	expect(waiter.err, "latchkey: waiting for a majority: 1 of 3 servers vote, 2 are needed: "
	                   "127.0.0.1:");
	ck_assert_int_eq(WEXITSTATUS(waiter.status), 69);
	command_signal_of("sleep", 9);
}

/* No advice that a quorum refuses: neither grace end nor grace=0. */
TEST(young_servers_are_no_grace)
{
	static const char why[] =
		"too many servers are new or have lost their memory: nothing is granted for ";

	quorum_setup_start(&setup, NULL);
	command_setup(setup.url);
	RUNS(75, &cmd, "latchkey", "lock", "-n", "a", "true");
	expect(cmd.err, why);
	START(&waiter, "latchkey", "lock", "-w", "5.8", "a", "true");
	RUNS(0, &cmd, "latchkey", "show", "a");
	expect(cmd.out, "young    nothing is granted for ");
	ck_assert(command_wait(&waiter, 20000));
	expect(waiter.err, "waiting for \"a\": too many servers");
	expect(waiter.err, "cannot acquire \"a\": not acquired in time, too many servers");
	ck_assert_msg(!strstr(waiter.err, "grace") && !strstr(cmd.out, "grace"), "%s%s", waiter.err,
	              cmd.out);
}

TEST(verbs_that_a_quorum_has_not_say_why)
{
	quorum_setup_begin(&setup, 0);
	command_setup(setup.url);
	RUNS(64, &cmd, "latchkey", "sem", "--permits", "2", "a", "true");
	expect(cmd.err, "quorum");
	RUNS(64, &cmd, "latchkey", "rate", "--limit", "2", "--per", "1", "a", "true");
	expect(cmd.err, "quorum");
	RUNS(64, &cmd, "latchkey", "latch", "set", "a", "1");
	expect(cmd.err, "quorum");
	RUNS(64, &cmd, "latchkey", "grace");
	expect(cmd.err, "quorum");
}

TEST(servers_that_are_down_are_named)
{
	char places[80];

	quorum_setup_begin(&setup, 0);
	command_setup(setup.url);
	server_kill(&setup.servers[0]);
	server_kill(&setup.servers[1]);
	RUNS(69, &cmd, "latchkey", "lock", "-n", "a", "true");
	snprintf(places, sizeof(places), "127.0.0.1:%d, 127.0.0.1:%d: connection refused",
	         setup.servers[0].port, setup.servers[1].port);
	expect(cmd.err, places);
}
