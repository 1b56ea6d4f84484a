/* SPDX-License-Identifier: MIT
 * The operators' side of a Cluster: the names of all masters, the node that has a name, the graces
 * of all masters; by the calls and by the command. */
#include "harness/cluster_setup.h"
#include "harness/cluster_slots.h"
#include "harness/command.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

#define NAME_SIZE 16
#define GRACE_MS 60000 /* more than a test takes */

CLUSTER_SETUP_SHARED(NULL)

static struct command cmd;

static const char *url_with(const struct cluster_setup *setup, int grace_ms)
{
	static char url[200];

	snprintf(url, sizeof(url), "%s?grace=%d", setup->url, grace_ms);
	return url;
}

/* A name of that master. */
static void find_name(const struct cluster_setup *setup, int master, char name[NAME_SIZE])
{
	char key[NAME_SIZE + 8];
	int i = 0;

	do {
		snprintf(name, NAME_SIZE, "n%d", i++);
		snprintf(key, sizeof(key), "lk:{%s}", name);
	} while (cluster_slot_owner(setup, key) != master);
}

static void hold_one_at_each(const struct cluster_setup *setup, lk_client *client,
                             char names[CLUSTER_MASTERS][NAME_SIZE])
{
	for (int i = 0; i < CLUSTER_MASTERS; i++) {
		find_name(setup, i, names[i]);
		OK(lk_lock_acquire(lock_named(client, names[i]), 10000, NULL));
	}
}

static int slot_of(const struct cluster_setup *setup, const char *name)
{
	char key[NAME_SIZE + 8];

	snprintf(key, sizeof(key), "lk:{%s}", name);
	return cluster_slot_of(setup, key);
}

/* ---- Names ---------------------------------------------------------------------------------- */

struct list {
	char text[100]; /* the names, in order */
};

static bool append(void *arg, const char *name, size_t len)
{
	struct list *list = arg;
	size_t used = strlen(list->text);

	snprintf(list->text + used, sizeof(list->text) - used, "%.*s ", (int)len, name);
	return true;
}

static void check_names(lk_client *client, char names[CLUSTER_MASTERS][NAME_SIZE])
{
	struct list list = {""};

	OK(lk_client_names(client, append, &list));
	for (int i = 0; i < CLUSTER_MASTERS; i++)
		ck_assert_msg(strstr(list.text, names[i]) != NULL, "%s not in %s", names[i],
		              list.text);
}

TEST_LIMIT(names_of_all_masters_are_listed, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	lk_client *client = client_at(url_with(setup, 100));
	lk_client *other = client_at(url_with(setup, 100));
	char names[CLUSTER_MASTERS][NAME_SIZE];

	hold_one_at_each(setup, client, names);
	check_names(client, names);
	check_names(other, names); /* it has used no name */
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* The client has not used a name since, so no redirect has shown it. */
TEST_LIMIT(names_of_a_master_that_is_new_to_the_client_are_listed, 90)
{
	struct cluster_setup *setup = cluster_setup_shared();
	lk_client *client = client_at(url_with(setup, 100));
	lk_client *other = client_at(url_with(setup, 100));
	char names[CLUSTER_MASTERS][NAME_SIZE];
	int master;

	hold_one_at_each(setup, client, names);
	check_names(other, names);
	cluster_setup_await_sync(setup);
	master = cluster_setup_failover(setup, 1, "");
	ck_assert_int_ne(master, 1);
	check_names(other, names);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* ---- The node of a name --------------------------------------------------------------------- */

static bool is_at(const struct cluster_setup *setup, lk_client *client, const char *name, int node)
{
	char address[40];
	lk_server server;

	snprintf(address, sizeof(address), "127.0.0.1:%d", cluster_setup_port(setup, node));
	return lk_client_name_server(client, name, 0, &server) == LK_OK && server.in_cluster &&
	       !server.service[0] && !strcmp(server.address, address);
}

TEST_LIMIT(client_names_the_node_of_a_name, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	lk_client *client = client_at(url_with(setup, 100));
	char names[CLUSTER_MASTERS][NAME_SIZE];
	lk_server server;
	lk_kind kind;

	hold_one_at_each(setup, client, names);
	for (int i = 0; i < CLUSTER_MASTERS; i++)
		ck_assert_msg(is_at(setup, client, names[i], i), "%s", names[i]);
	EXPECT(lk_client_server(client, &server), LK_EINVALID);
	cluster_slot_move(setup, slot_of(setup, names[0]), 2);
	OK(lk_client_name_kind(client, names[0], 0, &kind));
	ck_assert_int_eq(kind, LK_KIND_LOCK);
	ck_assert(is_at(setup, client, names[0], 2));
	OK(lk_client_close(client));
}

/* ---- Memories ------------------------------------------------------------------------------- */

static void flush(const struct cluster_setup *setup, int node)
{
	struct redis *redis = redis_open(&setup->nodes[node]);

	redis_do(redis, "FLUSHALL");
	redis_close(redis);
}

TEST_LIMIT(graces_of_all_masters_are_seen_and_ended, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	lk_client *client = client_at(url_with(setup, GRACE_MS));
	lk_memory memory, first;

	/* They have just begun. */
	OK(lk_client_memory(client, &memory));
	ck_assert_int_gt(memory.grace_ms, 0);
	OK(lk_client_end_grace(client, &memory));
	OK(lk_client_memory(client, &memory));
	ck_assert_int_eq(memory.grace_ms, 0);
	EXPECT(lk_client_end_grace(client, NULL), LK_EABSENT);
	for (int i = 0; i < CLUSTER_MASTERS; i++) {
		flush(setup, i);
		OK(lk_client_memory(client, &memory));
		ck_assert_msg(memory.grace_ms > 0, "master %d", i);
		OK(lk_client_end_grace(client, &memory));
		OK(lk_client_memory(client, &memory));
		ck_assert_msg(memory.grace_ms == 0, "master %d", i);
	}
	/* The caller does not know of the second loss. */
	flush(setup, 0);
	OK(lk_client_memory(client, &first));
	nap_ms(1500);
	flush(setup, 1);
	EXPECT(lk_client_end_grace(client, &first), LK_EMISMATCH);
	OK(lk_client_memory(client, &memory));
	ck_assert_int_gt(memory.grace_ms, first.grace_ms - 1500);
	ck_assert(memory.since_us != first.since_us);
	OK(lk_client_end_grace(client, &memory));
	OK(lk_client_memory(client, &memory));
	ck_assert_int_eq(memory.grace_ms, 0);
	OK(lk_client_close(client));
}

/* ---- The command ---------------------------------------------------------------------------- */

TEST_LIMIT(command_shows_all_masters, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	lk_client *client;
	char names[CLUSTER_MASTERS][NAME_SIZE], line[100];

	command_setup(url_with(setup, GRACE_MS));
	RUNS(0, &cmd, "latchkey", "grace");
	ck_assert_msg(strstr(cmd.out, " left\n"), "%s", cmd.out);
	RUNS(0, &cmd, "latchkey", "grace", "end", "--yes");
	RUNS(0, &cmd, "latchkey", "grace");
	ck_assert_msg(strstr(cmd.out, "grace    ended by hand"), "%s", cmd.out);
	client = client_at(url_with(setup, GRACE_MS));
	hold_one_at_each(setup, client, names);
	RUNS(0, &cmd, "latchkey", "show");
	for (int i = 0; i < CLUSTER_MASTERS; i++)
		ck_assert_msg(strstr(cmd.out, names[i]), "%s", cmd.out);
	ck_assert_str_eq(cmd.err, "");
	RUNS(0, &cmd, "latchkey", "show", names[1]);
	snprintf(line, sizeof(line), "\nnode     127.0.0.1:%d\n", cluster_setup_port(setup, 1));
	ck_assert_msg(strstr(cmd.out, line), "%s", cmd.out);
	RUNS(0, &cmd, "latchkey", "show", "--json", names[1]);
	snprintf(line, sizeof(line), ",\"node\":\"127.0.0.1:%d\"}\n", cluster_setup_port(setup, 1));
	ck_assert_msg(strstr(cmd.out, line), "%s", cmd.out);
	OK(lk_client_close(client));
}

/* A lock is on two nodes: it has no queue, whose key the new node could have. */
TEST_LIMIT(command_shows_the_rest_while_a_name_is_half_moved, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	lk_client *client;
	char names[CLUSTER_MASTERS][NAME_SIZE];

	command_setup(url_with(setup, 0));
	client = client_at(url_with(setup, 0));
	hold_one_at_each(setup, client, names);
	cluster_slot_open(setup, slot_of(setup, names[1]), 2);
	for (int json = 0; json < 2; json++) {
		RUNS(0, &cmd, "latchkey", "show", json ? "--json" : NULL);
		ck_assert_msg(strstr(cmd.out, names[0]) && strstr(cmd.out, names[2]), "%s",
		              cmd.out);
		ck_assert_msg(!strstr(cmd.out, names[1]), "%s", cmd.out);
		ck_assert_msg(strstr(cmd.err, names[1]) && strstr(cmd.err, "half moved"), "%s",
		              cmd.err);
	}
	RUNS(69, &cmd, "latchkey", "show", names[1]);
	OK(lk_client_close(client));
}
