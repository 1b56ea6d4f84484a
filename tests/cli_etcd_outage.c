/* SPDX-License-Identifier: MIT
 * The command and an etcd without a majority: its waits end as with any store that is down. */
#include "command.h"
#include "etcd_server.h"
#include "process.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define LONG_MS 60000
#define MET_MS 2000 /* a server that responded so long before the end of a wait was met */
#define SLACK_MS 700
#define BETWEEN_MS 4300 /* after the renewal of a mailbox's lease: 10 s / 3 */

static struct etcd_servers etcd;
static struct command holder, cmds[4];
static int64_t started_ms[4], down_ms;

static void lose_majority(void)
{
	etcd_kill(&etcd, 1);
	etcd_kill(&etcd, 2);
	down_ms = now_ms();
}

static void start(int i, int wait_s, const char *name)
{
	started_ms[i] = now_ms();
	command_start_line(&cmds[i], "lock -w %d -E 9 %s true", wait_s, name);
}

/* The wait has ended.  Only if it ended soon after the loss, the lock may have been busy. */
static void ends(int i, int wait_s)
{
	bool soon = started_ms[i] + wait_s * 1000 - down_ms < MET_MS + SLACK_MS;
	int status;

	ck_assert(command_wait(&cmds[i], LONG_MS));
	status = WIFEXITED(cmds[i].status) ? WEXITSTATUS(cmds[i].status) : -1;
	ck_assert_msg(status == 69 || (soon && status == 9), "-w %d: %d: %s", wait_s, status,
	              cmds[i].err);
}

/* The member that is left accepts connections, and calls that it cannot answer. */
TEST_LIMIT(wait_that_begins_without_a_majority_ends_with_69, 120)
{
	static const int waits[4] = {1, 2, 3, 4};

	etcd_start(&etcd, 3);
	command_setup(etcd_url(&etcd, "", ""));
	lose_majority();
	down_ms -= MET_MS + SLACK_MS; /* a member alone is no store that was met */
	for (int i = 0; i < 4; i++)
		start(i, waits[i], "a");
	for (int i = 0; i < 4; i++)
		ends(i, waits[i]);
	etcd_stop(&etcd);
}

/* The loss comes between two looks of a waiter: then the member that is left says that it has no
 * leader.  Otherwise it does not answer. */
TEST_LIMIT(wait_that_loses_the_majority_ends_with_69, 120)
{
	static const int waits[4] = {7, 8, 8, 9};
	struct etcd_servers first;

	etcd_start(&etcd, 3);
	first = etcd;
	first.count = 1;
	command_setup(etcd_url(&first, "", ""));
	command_hold(&holder, "lock --lease 60 a -- sleep 97");
	for (int i = 0; i < 4; i++)
		start(i, waits[i], "a");
	nap_ms(BETWEEN_MS);
	lose_majority();
	for (int i = 0; i < 4; i++)
		ends(i, waits[i]);
	etcd_stop(&etcd);
}
