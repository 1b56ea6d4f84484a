/* SPDX-License-Identifier: MIT
 * The command with replicas= in its URL: what it prints, reports and returns if too few replicas
 * confirm the lock, or stop to. */
#include "command.h"
#include "process.h"
#include "redis.h"
#include "replicated.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static struct replicated servers;
static struct command cmd;

static void set_up(int count, int needed)
{
	char url[200];

	replicated_start(&servers, count);
	snprintf(url, sizeof(url), "%s&replicas=%d", servers.master.url, needed);
	command_setup(url);
}

TEST_LIMIT(lock_that_replicas_do_not_confirm_runs_no_command, 60)
{
	set_up(0, 1);
	RUNS(69, &cmd, "latchkey", "lock", "--report", command_file("report"), "a", "--", "touch",
	     command_file("ran"));
	ck_assert_msg(strstr(cmd.err, "cannot acquire \"a\": granted, but 0 of 1 replicas "
	                              "confirmed in 1000 ms"),
	              "%s", cmd.err);
	command_check_report("{\"outcome\":\"replicas\",\"status\":69,", "\"fence\":null");
	RUNS(1, &cmd, "test", "-e", command_file("ran"));
	RUNS(69, &cmd, "latchkey", "sem", "--permits", "2", "s", "true");
	RUNS(0, &cmd, "latchkey", "rate", "--limit", "2", "--per", "1", "r", "true");
	RUNS(2, &cmd, "latchkey", "doctor");
	ck_assert_msg(strstr(cmd.out, "unfit    replicas     0 of 1 replicas are in sync"), "%s",
	              cmd.out);
	replicated_stop(&servers);
}

TEST_LIMIT(missing_right_to_wait_is_named, 60)
{
	char url[200];

	replicated_start(&servers, 1);
	redis_do(servers.redis, "ACL SETUSER ann on >x ~lk:* &lk:* +@all -wait");
	snprintf(url, sizeof(url), "redis://ann:x@127.0.0.1:%d?replicas=1", servers.master.port);
	command_setup(url);
	RUNS(69, &cmd, "latchkey", "lock", "--report", command_file("report"), "a", "--", "touch",
	     command_file("ran"));
	ck_assert_msg(strstr(cmd.err, "cannot acquire \"a\": replicas=1 needs the right +wait"),
	              "%s", cmd.err);
	command_check_report("{\"outcome\":\"refused\",\"status\":69,", "\"fence\":null");
	RUNS(1, &cmd, "test", "-e", command_file("ran"));
	redis_do(servers.redis, "ACL SETUSER ann resetpass");
	RUNS(69, &cmd, "latchkey", "lock", "--report", command_file("report"), "a", "true");
	command_check_report("{\"outcome\":\"refused\",\"status\":69,", "\"fence\":null");
	replicated_stop(&servers);
}

TEST_LIMIT(lock_is_lost_when_replicas_stop, 60)
{
	set_up(1, 1);
	RUNS(0, &cmd, "latchkey", "lock", "a", "true");
	START(&cmd, "latchkey", "lock", "--lease", "3", "--report", command_file("report"), "a",
	      "sleep", "50");
	ck_assert(WITHIN(10000, command_count_of("sleep") == 1));
	replicated_pause(&servers, 1);
	ck_assert(command_wait(&cmd, 20000));
	command_check_report("{\"outcome\":\"lost\",\"status\":79,", "\"reason\":\"expired\"");
	replicated_resume(&servers, 1);
	replicated_stop(&servers);
}
