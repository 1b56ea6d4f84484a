/* SPDX-License-Identifier: MIT
 * The guard key on a real etcd server: transactions of etcdctl succeed only while the store has the
 * hold. */
#include "harness/command.h"
#include "harness/etcd_server.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LONG_MS 20000

static struct etcd_servers shared;

static void start_shared(void)
{
	etcd_start(&shared, 1);
}

__attribute__((constructor)) static void prepare(void)
{
	test_before_all(start_shared);
}

/* Put "result" if that comparison of etcdctl is true; "SUCCESS" or "FAILURE". */
static const char *put_if(const char *comparison, const char *value)
{
	FILE *file = fopen(command_file("txn"), "w");

	ck_assert_ptr_nonnull(file);
	fprintf(file, "%s\n\nput result %s\n\n\n", comparison, value);
	fclose(file);
	return etcd_ctl(&shared, "txn < %s", command_file("txn"));
}

static void result_is(const char *value)
{
	const char *got = etcd_ctl(&shared, "get --print-value-only result");

	ck_assert_msg(!strncmp(got, value, strlen(value)), "%s, not %s", got, value);
}

TEST_LIMIT(key_guards_transactions_of_the_holder, 60)
{
	char key[LK_GUARD_KEY_SIZE] = "", small[8], comparison[LK_GUARD_KEY_SIZE + 60];
	lk_client *client = client_at(etcd_url(&shared, "", ""));
	lk_lock *lock = lock_leased(client, "guarded", 60000);
	uint64_t fence;

	command_setup(etcd_url(&shared, "", ""));
	EXPECT(lk_lock_guard_key(lock, key, sizeof(key)), LK_ENOTOWNER);
	OK(lk_lock_acquire(lock, LONG_MS, &fence));
	EXPECT(lk_lock_guard_key(lock, small, sizeof(small)), LK_EINVALID);
	OK(lk_lock_guard_key(lock, key, sizeof(key)));
	ck_assert_int_eq(strncmp(key, "lk/L/guarded/", 13), 0);
	snprintf(comparison, sizeof(comparison), "create(\"%s\") = \"%" PRIu64 "\"", key,
	         fence >> 16);
	ck_assert_int_eq(strncmp(put_if(comparison, "one"), "SUCCESS", 7), 0);
	result_is("one");
	/* The store has ended the hold, and the client does not know it. */
	etcd_ctl(&shared, "del --prefix lk/L/guarded/");
	ck_assert(lk_lock_is_mine(lock));
	ck_assert_int_eq(strncmp(put_if(comparison, "two"), "FAILURE", 7), 0);
	result_is("one");
	OK(lk_client_close(client));
}

TEST_LIMIT(lost_hold_has_no_key, 60)
{
	lk_client *client = client_at(etcd_url(&shared, "", ""));
	lk_lock *lock = lock_leased(client, "lost", 2000);
	char key[LK_GUARD_KEY_SIZE];

	OK(lk_lock_acquire(lock, LONG_MS, NULL));
	etcd_ctl(&shared, "del --prefix lk/L/lost/");
	ck_assert(WITHIN(LONG_MS, lk_lock_state(lock) == LK_STATE_LOST));
	EXPECT(lk_lock_guard_key(lock, key, sizeof(key)), LK_ELOST);
	OK(lk_client_close(client));
}

/* The variable as the command's job has it. */
TEST_LIMIT(variable_guards_transactions_of_the_job, 60)
{
	static const char name[] = "a \"q\" (1)/\\b \303\251";
	struct command holder, other;
	char job[400];

	command_setup(etcd_url(&shared, "", ""));
	snprintf(job, sizeof(job), "printf %%s \"$LATCHKEY_GUARD\" >%s; mv %s %s; sleep 300",
	         command_file("new"), command_file("new"), command_file("guard"));
	START(&holder, "latchkey", "lock", name, "-c", job);
	ck_assert(WITHIN(LONG_MS, *command_read("guard")));
	ck_assert_msg(!strncmp(command_read("guard"), "create(\"lk/L/a", 14), "%s",
	              command_read("guard"));
	ck_assert_int_eq(strncmp(put_if(command_read("guard"), "three"), "SUCCESS", 7), 0);
	result_is("three");
	RUNS(0, &other, "latchkey", "break", name);
	ck_assert_int_eq(strncmp(put_if(command_read("guard"), "four"), "FAILURE", 7), 0);
	result_is("three");
}
