/* SPDX-License-Identifier: MIT
 * latchkey show and break on a real etcd server. */
#include "command.h"
#include "etcd_server.h"
#include "process.h"
#include "test.h"

#include <latchkey.h>

#include <stdio.h>
#include <string.h>

#define LONG_MS 20000 /* for what comes at once on a machine that is not loaded */

static struct etcd_servers shared;
static struct command cmd, holder, waiter;

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

static bool shows(const char *name, const char *text)
{
	return RUN(&cmd, "latchkey", "show", name) == 0 && strstr(cmd.out, text);
}

TEST_LIMIT(hold_is_shown_and_broken, 120)
{
	char id[LK_HOLDER_ID_SIZE + 1] = "";
	const char *at;

	begin();
	command_hold(&holder, "lock --label nightly a/b -- sleep 300");
	command_start_line(&waiter, "lock -v a/b true");
	ck_assert_msg(WITHIN(LONG_MS, shows("a/b", ", nightly)\n")), "%s", cmd.out);
	ck_assert_msg(WITHIN(LONG_MS, shows("a/b", "\nwaiting  1\n")), "%s", cmd.out);
	ck_assert_ptr_nonnull(strstr(cmd.out, "name     a/b\nkind     lock\nheld by  "));
	ck_assert_ptr_nonnull(strstr(cmd.out, "\nfor      ?\n"));
	ck_assert_ptr_nonnull(strstr(cmd.out, ", true)\n"));
	at = strstr(cmd.out, "\nholder   ");
	ck_assert_ptr_nonnull(at);
	sscanf(at, "\nholder %40s", id);
	RUNS(0, &cmd, "latchkey", "show");
	ck_assert_ptr_nonnull(strstr(cmd.out, "\na/b "));
	RUNS(0, &cmd, "latchkey", "show", "--json", "a/b");
	ck_assert_ptr_nonnull(strstr(cmd.out, "\"held_seconds\":null"));
	ck_assert_ptr_nonnull(strstr(cmd.out, id));
	RUNS(1, &cmd, "latchkey", "break", "--if-holder", "another", "a/b");
	ck_assert_ptr_nonnull(strstr(cmd.err, "the holder is another"));
	RUNS(0, &cmd, "latchkey", "break", "--if-holder", id, "a/b");
	ck_assert_str_eq(cmd.err, "latchkey: \"a/b\" was broken; the former holder may still be "
	                          "working\n");
	ck_assert(command_wait(&waiter, LONG_MS));
	ck_assert_int_eq(waiter.status, 0);
	ck_assert(command_wait(&holder, LONG_MS));
	ck_assert_int_eq(holder.status >> 8, 79);
	ck_assert_ptr_nonnull(strstr(holder.err, "(broken)"));
	RUNS(1, &cmd, "latchkey", "break", "a/b");
	ck_assert_str_eq(cmd.err, "latchkey: cannot break \"a/b\": not held\n");
	RUNS(0, &cmd, "latchkey", "show");
	ck_assert_str_eq(cmd.out, "");
	ck_assert_ptr_nonnull(strstr(cmd.err, "no lock is held"));
}

TEST_LIMIT(hold_of_another_program_is_shown_and_broken, 60)
{
	begin();
	etcd_ctl(&shared, "put lk/L/go/694d8a1b2c3d4e5f 1");
	ck_assert(shows("go", "held by  unknown host (not Latchkey)\nholder   694d8a1b2c3d4e5f\n"));
	RUNS(75, &cmd, "latchkey", "lock", "-n", "go", "true");
	ck_assert_ptr_nonnull(strstr(cmd.err, "held by unknown host (not Latchkey)\n"));
	RUNS(0, &cmd, "latchkey", "break", "go");
	ck_assert_str_eq(cmd.err, "latchkey: \"go\" was broken; the former holder, which is not "
	                          "Latchkey and is not notified, may still be working\n");
	RUNS(0, &cmd, "latchkey", "lock", "-n", "go", "true");
}

TEST_LIMIT(key_of_another_kind_is_foreign, 60)
{
	begin();
	RUNS(0, &cmd, "latchkey", "latch", "set", "gate", "1");
	RUNS(1, &cmd, "latchkey", "break", "gate");
	ck_assert_ptr_nonnull(strstr(cmd.err, "a latch has no holder"));
	ck_assert_int_ne(RUN(&cmd, "latchkey", "lock", "-n", "gate", "true"), 0);
	RUNS(0, &cmd, "latchkey", "latch", "rm", "gate");
	RUNS(0, &cmd, "latchkey", "lock", "gate", "-c",
	     "! latchkey latch set gate 1 2>&1 | grep -v 'a lock, not a latch'");
	etcd_ctl(&shared, "put lk/Dgate 1");
	ck_assert_int_ne(RUN(&cmd, "latchkey", "latch", "down", "gate"), 0);
	ck_assert_ptr_nonnull(strstr(cmd.err, "not a latch"));
	etcd_ctl(&shared, "del lk/Dgate");
}

TEST_LIMIT(latch_is_counted_down_and_waited_for, 60)
{
	char name[32];

	begin();
	RUNS(0, &cmd, "latchkey", "latch", "set", "all/done", "3");
	ck_assert_str_eq(cmd.out, "");
	RUNS(75, &cmd, "latchkey", "latch", "set", "all/done", "5");
	RUNS(75, &cmd, "latchkey", "latch", "wait", "-n", "all/done");
	START(&waiter, "latchkey", "latch", "wait", "-w", "60", "all/done");
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "part/%d", i);
		RUNS(0, &cmd, "latchkey", "latch", "down", "--id", name, "all/done");
		RUNS(0, &cmd, "latchkey", "latch", "down", "--id", name, "all/done");
	}
	RUNS(0, &cmd, "latchkey", "latch", "show", "all/done");
	ck_assert_ptr_nonnull(strstr(cmd.out, "state    counting\nremain   1 of 3\n"));
	RUNS(0, &cmd, "latchkey", "show");
	ck_assert_ptr_nonnull(strstr(cmd.out, "all/done"));
	RUNS(0, &cmd, "latchkey", "latch", "down", "all/done");
	ck_assert(command_wait(&waiter, 20000));
	ck_assert_int_eq(waiter.status, 0);
	RUNS(0, &cmd, "latchkey", "latch", "rm", "all/done");
	RUNS(1, &cmd, "latchkey", "latch", "rm", "all/done");
}
