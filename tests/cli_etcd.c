/* SPDX-License-Identifier: MIT
 * latchkey lock on a real etcd server: waits, fences, losses, a killed latchkey, and what is
 * refused.  cli_etcd_look has show and break. */
#include "command.h"
#include "etcd_server.h"
#include "process.h"
#include "proxy.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define LONG_MS 20000 /* for what comes at once on a machine that is not loaded */

static struct etcd_servers shared;
static struct command cmd, next, kept;

static void start_shared(void)
{
	etcd_start(&shared, 1);
}

__attribute__((constructor)) static void prepare(void)
{
	test_before_all(start_shared);
}

static void begin(void)
{
	command_setup(etcd_url(&shared, "", ""));
}

static void expect(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part), "\"%s\" is not in: %s", part, text);
}

static void ends_with(struct command *command, int status)
{
	ck_assert(command_wait(command, LONG_MS));
	ck_assert_msg(WIFEXITED(command->status) && WEXITSTATUS(command->status) == status,
	              "%x: %s", (unsigned)command->status, command->err);
}

TEST_LIMIT(job_runs_with_the_lock_alone, 60)
{
	unsigned long long fence;

	begin();
	RUNS(7, &cmd, "latchkey", "lock", "job/1", "-c", "echo $LATCHKEY_FENCE; exit 7");
	fence = strtoull(cmd.out, NULL, 10);
	ck_assert_uint_gt(fence, 0);
	command_hold(&cmd, "lock job/1 -- sleep 97");
	RUNS(75, &next, "latchkey", "lock", "-n", "job/1", "true");
	expect(next.err, "cannot acquire \"job/1\": held by");
	RUNS(75, &next, "latchkey", "lock", "-w", "0.3", "job/1", "true");
	RUNS(0, &next, "latchkey", "lock", "-n", "job", "true"); /* another name */
	START(&next, "latchkey", "lock", "job/1", "-c", "echo $LATCHKEY_FENCE");
	ck_assert(WITHIN(LONG_MS, command_waiting_is("job/1", 1)));
	ck_assert_int_eq(command_signal_of("sleep", SIGTERM), 1);
	ends_with(&next, 0);
	ck_assert_uint_gt(strtoull(next.out, NULL, 10), fence);
	ends_with(&cmd, 143);
}

TEST_LIMIT(killed_latchkey_hands_its_lock_on, 60)
{
	int64_t began;

	begin();
	command_hold(&cmd, "lock --lease 60 killed -- sleep 97");
	START(&next, "latchkey", "lock", "killed", "true");
	ck_assert(WITHIN(LONG_MS, command_waiting_is("killed", 1)));
	began = now_ms();
	kill(cmd.pid, SIGKILL);
	ends_with(&next, 0);
	ck_assert_int_lt(now_ms() - began, LONG_MS); /* not the lease */
	ck_assert(WITHIN(LONG_MS, command_count() == 0));
}

/* By a process that is left for it. */
TEST_LIMIT(release_without_a_connection_is_made_up_for, 60)
{
	static struct proxy proxy;
	struct etcd_servers far = shared;

	begin();
	proxy_start_at_port(&proxy, shared.nodes[0].port);
	far.nodes[0].port = proxy.port;
	setenv("LATCHKEY_URL", etcd_url(&far, "", ""), 1);
	command_hold(&cmd, "lock --lease 60 far -- sleep 97");
	setenv("LATCHKEY_URL", etcd_url(&shared, "", ""), 1);
	START(&next, "latchkey", "lock", "far", "true");
	ck_assert(WITHIN(LONG_MS, command_waiting_is("far", 1)));
	proxy_refuse(&proxy, true);
	proxy_cut(&proxy, PROXY_COMMANDS, false);
	ck_assert_int_eq(command_signal_of("sleep", SIGTERM), 1);
	ends_with(&cmd, 143);
	expect(cmd.err, "release not confirmed");
	proxy_refuse(&proxy, false);
	ends_with(&next, 0);
	ck_assert(WITHIN(LONG_MS, command_count() == 0));
	proxy_stop(&proxy);
}

TEST_LIMIT(job_ends_when_the_lock_is_lost, 60)
{
	begin();
	command_hold(&cmd, "lock --lease 2 lost -- sleep 97");
	etcd_ctl(&shared, "del --prefix lk/L/lost/");
	ends_with(&cmd, 79);
	expect(cmd.err, "lost");
	ck_assert(WITHIN(LONG_MS, command_count_of("sleep") == 0));
}

TEST_LIMIT(wait_includes_a_server_that_hangs, 60)
{
	begin();
	kill(shared.nodes[0].pid, SIGSTOP);
	START(&cmd, "latchkey", "lock", "-w", "60", "late", "true");
	nap_ms(1000);
	kill(shared.nodes[0].pid, SIGCONT);
	ends_with(&cmd, 0);
}

TEST_LIMIT(job_that_ends_with_a_right_says_so, 120)
{
	struct etcd_servers own = {.args = {"--bcrypt-cost", "4", NULL}};

	etcd_start(&own, 1);
	etcd_ctl(&own, "user add root:r");
	etcd_ctl(&own, "role add root");
	etcd_ctl(&own, "user grant-role root root");
	etcd_ctl(&own, "user add app:p");
	etcd_ctl(&own, "role add app");
	etcd_ctl(&own, "role grant-permission --prefix=true app readwrite lk/");
	etcd_ctl(&own, "user grant-role app app");
	etcd_ctl(&own, "auth enable");
	command_setup(etcd_url(&own, "app:p@", ""));
	command_hold(&cmd, "lock --lease 3 kept -- sleep 97");
	etcd_ctl(&own, "--user root:r user revoke-role app app");
	ends_with(&cmd, 79);
	expect(cmd.err, "\"kept\" cannot be renewed and will be lost (127.0.0.1:");
	expect(cmd.err, "etcdserver: permission denied (the user's role needs readwrite for the "
	                "prefix of the keys)): ending the command");
	etcd_stop(&own);
}

TEST_LIMIT(old_version_is_warned_of_once, 60)
{
	bool is_old = strstr(etcd_ctl(&shared, "version"), " 3.4.23");
	const char *first;

	begin();
	RUNS(0, &cmd, "latchkey", "lock", "-n", "warned", "true");
	first = strstr(cmd.err, "may end a renewed lease early");
	ck_assert_int_eq(first != NULL, is_old);
	ck_assert(!first || !strstr(first + 1, "may end"));
	RUNS(0, &cmd, "latchkey", "lock", "-q", "warned", "true");
	ck_assert_str_eq(cmd.err, "");
}

TEST_LIMIT(what_etcd_does_not_have_is_refused_with_a_reason, 60)
{
	char url[400];

	begin();
	RUNS(64, &cmd, "latchkey", "rate", "--limit", "2", "--per", "1", "b", "true");
	expect(cmd.err, "cannot acquire \"b\": no rate limit on etcd");
	RUNS(0, &cmd, "latchkey", "lock", "-n", "b", "true"); /* it is no semaphore now */
	RUNS(64, &cmd, "latchkey", "rate", "--limit", "2", "--per", "1", "--url",
	     "etcds://127.0.0.1:1", "b", "true");
	snprintf(url, sizeof(url), "%s", etcd_url(&shared, "", "?grace=1000"));
	RUNS(64, &cmd, "latchkey", "lock", "--url", url, "a", "true");
	expect(cmd.err, "--url: grace: etcd loses no grants");
	RUNS(64, &cmd, "latchkey", "quorum", "init", "etcd://h1,h2,h3");
	expect(cmd.err, "must begin with redis+quorum:");
	RUNS(64, &cmd, "latchkey", "lock", "--url", "etcd://u:secret@h", "a", "true");
	expect(cmd.err, "every user of this machine could read its password");
	RUNS(69, &cmd, "latchkey", "lock", "-n", "--url", "etcd://127.0.0.1:1,127.0.0.1:2", "a",
	     "true");
	expect(cmd.err, "no member can be used");
}

/* As the manual page warns. */
TEST_LIMIT(etcdctl_lock_unescaped_blocks_another_name, 120)
{
	char line[320];

	begin();
	snprintf(line, sizeof(line),
	         "ETCDCTL_API=3 exec %s --endpoints 127.0.0.1:%d lock lk/L/un/escaped sleep 96",
	         etcd_program("etcdctl"), shared.nodes[0].port);
	START(&cmd, "sh", "-c", line);
	ck_assert(WITHIN(LONG_MS, command_count_of("sleep") == 1));
	RUNS(75, &next, "latchkey", "lock", "-n", "un", "true");
	RUNS(0, &next, "latchkey", "lock", "-n", "un/escaped", "true");
	ck_assert_int_eq(command_signal_of("sleep", SIGTERM), 1);
	ck_assert(command_wait(&cmd, LONG_MS));
}

TEST_LIMIT(permits_are_held_shown_and_resized, 120)
{
	begin();
	RUNS(7, &cmd, "latchkey", "sem", "--permits", "2", "pool", "-c", "exit 7");
	command_hold(&cmd, "sem --permits 2 -k 2 pool -- sleep 97");
	RUNS(75, &next, "latchkey", "sem", "-n", "--permits", "2", "pool", "true");
	expect(next.err, "0 of 2 free, held by");
	ck_assert_ptr_null(strstr(next.err, " for ")); /* etcd has no clock */
	RUNS(64, &next, "latchkey", "sem", "-n", "--permits", "3", "pool", "true");
	RUNS(0, &next, "latchkey", "show", "pool");
	expect(next.out, "kind     semaphore\npermits  2\nfree     0\n");
	expect(next.out, ", 2 permits\n");
	RUNS(0, &next, "latchkey", "sem", "-n", "--resize", "--permits", "3", "pool", "true");
	START(&next, "latchkey", "sem", "-w", "60", "--permits", "3", "-k", "2", "pool", "true");
	nap_ms(300);
	ck_assert(!command_wait(&next, 0));
	RUNS(0, &kept, "latchkey", "break", "pool");
	ends_with(&cmd, 79);
	ends_with(&next, 0);
}

/* etcd's own command excludes ours, and waits for it: the manual page has its line. */
TEST_LIMIT(etcdctl_lock_excludes_and_is_excluded, 120)
{
	char tool[300], line[320];
	const char *dir = getenv("LATCHKEY_ETCD");

	begin();
	snprintf(tool, sizeof(tool),
	         "PATH=%s:build/deps/etcd:$PATH ETCDCTL_API=3 "
	         "etcdctl --endpoints 127.0.0.1:%d lock lk/L/both%%2Fways",
	         dir ? dir : "build/deps/etcd", shared.nodes[0].port);
	command_hold(&cmd, "lock both/ways -- sleep 97");
	ck_assert_int_ne(shell("timeout 1 sh -c '%s true'", tool), 0);
	ck_assert_int_eq(command_signal_of("sleep", SIGTERM), 1);
	ends_with(&cmd, 143);
	ck_assert_int_eq(shell("timeout 20 sh -c '%s true'", tool), 0);
	/* The other way round. */
	snprintf(line, sizeof(line), "%s sleep 96", tool);
	START(&cmd, "sh", "-c", line);
	ck_assert(WITHIN(LONG_MS, command_count_of("sleep") == 1));
	RUNS(75, &next, "latchkey", "lock", "-n", "both/ways", "true");
	START(&next, "latchkey", "lock", "both/ways", "true");
	nap_ms(300);
	ck_assert(!command_wait(&next, 0));
	ck_assert_int_eq(command_signal_of("sleep", SIGTERM), 1);
	ends_with(&next, 0);
	ck_assert(command_wait(&cmd, LONG_MS));
}
