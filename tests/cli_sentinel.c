/* SPDX-License-Identifier: MIT
 * The command with a real service of Sentinel: show names the master, before and after a failover,
 * and doctor prints what it found. */
#include "command.h"
#include "process.h"
#include "sentinel_setup.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static struct sentinel_setup setup;
static struct command cmd, holder;

/* What show prints of the server. */
static bool shows(int server)
{
	char line[100], member[100];
	bool shown;

	snprintf(line, sizeof(line), "service  main at 127.0.0.1:%d\n", setup.servers[server].port);
	snprintf(member, sizeof(member), ",\"service\":\"main\",\"master\":\"127.0.0.1:%d\"}\n",
	         setup.servers[server].port);
	shown = RUN(&cmd, "latchkey", "show", "deploy") == 0 && strstr(cmd.out, line);
	return shown && RUN(&cmd, "latchkey", "show", "--json", "deploy") == 0 &&
	       strstr(cmd.out, member);
}

TEST_LIMIT(show_names_the_master_that_was_followed, 60)
{
	char line[100], url[160];
	int master;

	sentinel_setup_start(&setup, NULL);
	snprintf(url, sizeof(url), "%s?grace=100", setup.url);
	command_setup(url);
	ck_assert_msg(shows(0), "%s%s", cmd.out, cmd.err);
	command_hold(&holder, "lock deploy sleep 85");
	RUNS(0, &cmd, "latchkey", "show");
	snprintf(line, sizeof(line), "latchkey: service main at 127.0.0.1:%d\n",
	         setup.servers[0].port);
	ck_assert_msg(strstr(cmd.err, line) && strstr(cmd.out, "deploy"), "%s%s", cmd.out, cmd.err);
	RUNS(0, &cmd, "latchkey", "show", "-q");
	ck_assert_str_eq(cmd.err, "");
	sentinel_setup_failover(&setup);
	master = sentinel_setup_await_switch(&setup, 0);
	ck_assert_msg(WITHIN(10000, shows(master)), "%s%s", cmd.out, cmd.err);
	sentinel_setup_stop(&setup);
}

TEST_LIMIT(doctor_prints_the_topics_of_sentinel, 40)
{
	sentinel_setup_start(&setup, NULL);
	command_setup(setup.url);
	RUNS(1, &cmd, "latchkey", "doctor");
	ck_assert_msg(strstr(cmd.out, "ok       sentinels    3, quorum 2, and all 3 of the URL"),
	              "%s", cmd.out);
	ck_assert_msg(strstr(cmd.out, "ok       topology     master main at 127.0.0.1:"), "%s",
	              cmd.out);
	ck_assert_msg(strstr(cmd.out, "warning  failover     min-replicas-to-write is 0"), "%s",
	              cmd.out);
	server_kill(&setup.servers[0]);
	RUNS(2, &cmd, "latchkey", "doctor");
	ck_assert_msg(strstr(cmd.out, "unfit    reachable    main at 127.0.0.1:"), "%s", cmd.out);
	ck_assert_msg(strstr(cmd.out, "warning  topology     cannot tell"), "%s", cmd.out);
	ck_assert_msg(strstr(cmd.out, "sentinels    3, quorum 2"), "%s", cmd.out);
	sentinel_setup_stop(&setup);
}
