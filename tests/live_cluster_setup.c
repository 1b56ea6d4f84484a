/* SPDX-License-Identifier: MIT
 * The Cluster that other tests use: it becomes ready, moves slots, fails over and returns to its
 * first layout; and the redirections that a client of it must expect. */
#include "harness/cluster_setup.h"
#include "harness/cluster_slots.h"
#include "harness/cluster_store.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Each counts the keys that it sees. */
#define ONE_KEY "return redis.call('EXISTS', KEYS[1])"
#define TWO_KEYS "return redis.call('EXISTS', KEYS[1], KEYS[2])"

CLUSTER_SETUP_SHARED(NULL)

static bool begins(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

/* A connection to the master of this key's slot. */
static struct redis *open_owner(const struct cluster_setup *setup, const char *key)
{
	int owner = cluster_slot_owner(setup, key);

	ck_assert_int_ge(owner, 0);
	return redis_open(&setup->nodes[owner]);
}

static void write_key(const struct cluster_setup *setup, const char *key, const char *value)
{
	struct redis *redis = open_owner(setup, key);

	redis_do(redis, "SET %s %s", key, value);
	redis_close(redis);
}

TEST(nodes_are_ready_in_the_first_layout)
{
	struct cluster_setup *setup = cluster_setup_shared();
	struct cluster_view view;

	for (int i = 0; i < CLUSTER_NODES; i++) {
		cluster_setup_view(setup, i, &view);
		ck_assert(view.ok);
		ck_assert_int_eq(view.known, CLUSTER_NODES);
		for (int node = 0; node < CLUSTER_NODES; node++)
			ck_assert_int_eq(view.master_of[node],
			                 node < CLUSTER_MASTERS ? -1 : node - CLUSTER_MASTERS);
		ck_assert_int_eq(view.owner[0], 0);
		ck_assert_int_eq(view.owner[8000], 1);
		ck_assert_int_eq(view.owner[CLUSTER_SLOTS - 1], 2);
		ck_assert_int_lt(setup->nodes[i].port, 32768);
		ck_assert_int_lt(setup->nodes[i].bus_port, 32768);
	}
	for (int i = 0; i < CLUSTER_MASTERS; i++) {
		struct redis *redis = redis_open(&setup->nodes[i]);
		ck_assert(begins(redis_text(redis, "GET a"),
		                 cluster_slot_owner(setup, "a") == i ? "" : "-MOVED "));
		redis_close(redis);
	}
	ck_assert(begins(setup->url, "redis+cluster://127.0.0.1:"));
}

TEST(master_has_a_replica_that_confirms)
{
	struct cluster_setup *setup = cluster_setup_shared();
	struct redis *redis = open_owner(setup, "a");

	redis_do(redis, "SET a 1");
	ck_assert_int_eq(redis_int(redis, "WAIT 1 5000"), 1);
	redis_close(redis);
	ck_assert_str_eq(cluster_read(setup, "GET", "a"), "1");
}

/* ---- Slots that move ------------------------------------------------------------------------- */

TEST(slot_moves_with_its_keys_step_by_step)
{
	struct cluster_setup *setup = cluster_setup_shared();
	int slot = cluster_slot_of(setup, "{a}"), from = cluster_slot_owner(setup, "{a}");
	int to = (from + 1) % CLUSTER_MASTERS;
	struct redis *redis;
	char key[16];

	redis = open_owner(setup, "{a}");
	for (int i = 0; i < 20; i++)
		redis_do(redis, "SET {a}%d {a}%d", i, i);
	redis_close(redis);
	cluster_slot_open(setup, slot, to);
	ck_assert_int_eq(cluster_slot_move_keys(setup, slot, to, 10), 10);
	ck_assert_int_eq(cluster_setup_owner(setup, slot), from);
	for (int i = 0; i < 20; i++) {
		snprintf(key, sizeof(key), "{a}%d", i);
		ck_assert_str_eq(cluster_read(setup, "GET", key), key);
	}
	ck_assert_int_eq(cluster_slot_move_keys(setup, slot, to, CLUSTER_ALL_KEYS), 10);
	cluster_slot_close(setup, slot, to);
	ck_assert_int_eq(cluster_setup_owner(setup, slot), to);
	for (int i = 0; i < 20; i++) {
		snprintf(key, sizeof(key), "{a}%d", i);
		ck_assert_str_eq(cluster_read(setup, "GET", key), key);
	}
}

TEST(slot_that_migrates_returns_with_its_keys)
{
	struct cluster_setup *setup = cluster_setup_shared();
	int slot = cluster_slot_of(setup, "{a}"), from = cluster_slot_owner(setup, "{a}");
	int to = (from + 1) % CLUSTER_MASTERS;
	struct cluster_view view;

	write_key(setup, "{a}1", "1");
	write_key(setup, "{a}2", "2");
	cluster_slot_open(setup, slot, to);
	cluster_slot_move_key(setup, "{a}1", to);
	ck_assert_str_eq(cluster_read(setup, "GET", "{a}1"), "1");
	cluster_setup_view(setup, from, &view);
	ck_assert_int_eq(view.open_slot, slot);
	cluster_slot_undo(setup, slot, to);
	for (int i = 0; i < CLUSTER_MASTERS; i++) {
		cluster_setup_view(setup, i, &view);
		ck_assert_int_eq(view.open_slot, -1);
	}
	ck_assert_int_eq(cluster_setup_owner(setup, slot), from);
	ck_assert_str_eq(cluster_read(setup, "GET", "{a}1"), "1");
	ck_assert_str_eq(cluster_read(setup, "GET", "{a}2"), "2");
}

/* A slot that migrates, and connections to both of its masters. */
struct migration {
	struct cluster_setup *setup;
	int slot, from, to;
	struct redis *source, *target;
};

static void migration_begin(struct migration *migration)
{
	struct cluster_setup *setup = cluster_setup_shared();

	migration->setup = setup;
	migration->slot = cluster_slot_of(setup, "{a}");
	migration->from = cluster_slot_owner(setup, "{a}");
	migration->to = (migration->from + 1) % CLUSTER_MASTERS;
	migration->source = redis_open(&setup->nodes[migration->from]);
	migration->target = redis_open(&setup->nodes[migration->to]);
	cluster_slot_open(setup, migration->slot, migration->to);
}

static void migration_end(struct migration *migration)
{
	redis_close(migration->source);
	redis_close(migration->target);
}

/* What scripts of one key and of two answer: at the source, and at the target after ASKING. */
static void expect_answers(const struct migration *migration, const char *one, const char *two,
                           const char *one_asking, const char *two_asking)
{
	struct redis *source = migration->source, *target = migration->target;

	ck_assert(begins(redis_text(source, "EVAL %s 1 {a}1", ONE_KEY), one));
	ck_assert(begins(redis_text(source, "EVAL %s 2 {a}1 {a}2", TWO_KEYS), two));
	ck_assert(begins(redis_text(target, "EVAL %s 1 {a}1", ONE_KEY), "-MOVED "));
	ck_assert(begins(redis_text(target, "EVAL %s 2 {a}1 {a}2", TWO_KEYS), "-MOVED "));
	redis_do(target, "ASKING");
	ck_assert(begins(redis_text(target, "EVAL %s 1 {a}1", ONE_KEY), one_asking));
	redis_do(target, "ASKING");
	ck_assert(begins(redis_text(target, "EVAL %s 2 {a}1 {a}2", TWO_KEYS), two_asking));
}

TEST(scripts_in_a_migrating_slot_are_redirected_by_where_their_keys_are)
{
	struct migration migration;

	migration_begin(&migration);
	/* No key exists. */
	expect_answers(&migration, "-ASK ", "-ASK ", "0", "-TRYAGAIN");
	/* The first exists at the source, the second does not. */
	redis_do(migration.target, "ASKING");
	redis_do(migration.target, "SET {a}1 1");
	cluster_slot_undo(migration.setup, migration.slot, migration.to);
	cluster_slot_open(migration.setup, migration.slot, migration.to);
	expect_answers(&migration, "1", "-TRYAGAIN", "0", "-TRYAGAIN");
	/* All at the source. */
	cluster_slot_undo(migration.setup, migration.slot, migration.to);
	redis_do(migration.source, "SET {a}2 2");
	cluster_slot_open(migration.setup, migration.slot, migration.to);
	expect_answers(&migration, "1", "2", "0", "-TRYAGAIN");
	/* One here, one there. */
	cluster_slot_move_key(migration.setup, "{a}1", migration.to);
	expect_answers(&migration, "-ASK ", "-TRYAGAIN", "1", "-TRYAGAIN");
	/* All at the target. */
	cluster_slot_move_key(migration.setup, "{a}2", migration.to);
	expect_answers(&migration, "-ASK ", "-ASK ", "1", "2");
	/* ASK names the target, for once; MOVED names the owner. */
	ck_assert(strstr(redis_text(migration.source, "GET {a}1"), ":"));
	cluster_slot_close(migration.setup, migration.slot, migration.to);
	ck_assert(begins(redis_text(migration.source, "GET {a}1"), "-MOVED "));
	ck_assert_str_eq(redis_text(migration.target, "GET {a}1"), "1");
	migration_end(&migration);
}

/* At the source, a key that a script has deleted counts as moved. */
TEST(script_in_a_migrating_slot_cannot_use_a_key_that_it_has_deleted)
{
	static const char *const scripts[] = {
		"redis.call('DEL', KEYS[1]) return redis.call('EXISTS', KEYS[1])",
		"redis.call('ZREM', KEYS[1], 'x') return redis.call('ZCARD', KEYS[1])",
	};
	struct migration migration;

	migration_begin(&migration);
	for (int i = 0; i < 2; i++) {
		cluster_slot_undo(migration.setup, migration.slot, migration.to);
		redis_do(migration.source, "ZADD {a}1 1 x");
		cluster_slot_open(migration.setup, migration.slot, migration.to);
		ck_assert(strstr(redis_text(migration.source, "EVAL %s 1 {a}1", scripts[i]),
		                 "non local key"));
		/* It had an effect. */
		ck_assert(begins(redis_text(migration.source, "EXISTS {a}1"), "-ASK "));
		ck_assert_str_eq(cluster_read(migration.setup, "EXISTS", "{a}1"), "0");
	}
	migration_end(&migration);
}

/* ---- Subscriptions --------------------------------------------------------------------------- */

TEST(subscriber_in_a_moved_slot_is_unsubscribed)
{
	struct migration migration;
	struct redis *at_source;

	migration_begin(&migration);
	at_source = redis_open(&migration.setup->nodes[migration.from]);
	ck_assert_str_eq(redis_text(at_source, "SSUBSCRIBE c:{a}"), "ssubscribe\nc:{a}\n1");
	ck_assert_int_eq(redis_int(migration.source, "SPUBLISH c:{a} x"), 1);
	ck_assert_str_eq(redis_next(at_source, 5000), "smessage\nc:{a}\nx");
	ck_assert(begins(redis_text(migration.target, "SSUBSCRIBE c:{a}"), "-MOVED "));
	cluster_slot_close(migration.setup, migration.slot, migration.to);
	ck_assert_str_eq(redis_next(at_source, 5000), "sunsubscribe\nc:{a}\n0");
	ck_assert(begins(redis_text(at_source, "SSUBSCRIBE c:{a}"), "-MOVED "));
	redis_close(at_source);
	migration_end(&migration);
}

TEST_LIMIT(subscriber_at_a_demoted_master_is_unsubscribed, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	int master = cluster_slot_owner(setup, "{a}");
	struct redis *redis = open_owner(setup, "{a}");

	ck_assert_str_eq(redis_text(redis, "SSUBSCRIBE c:{a}"), "ssubscribe\nc:{a}\n1");
	cluster_setup_failover(setup, master, "TAKEOVER");
	ck_assert_str_eq(redis_next(redis, 5000), "sunsubscribe\nc:{a}\n0");
	redis_close(redis);
}

/* ---- Failovers ------------------------------------------------------------------------------- */

static void fail_over(struct cluster_setup *setup, int master, const char *how)
{
	char key[16];
	int slot = (2 * master + 1) * CLUSTER_SLOTS / CLUSTER_MASTERS / 2;
	struct redis *redis = redis_open(&setup->nodes[master]);

	/* A key of the master. */
	for (int i = 0; snprintf(key, sizeof(key), "k%d", i); i++)
		if (begins(redis_text(redis, "SET %s 1", key), "OK"))
			break;
	redis_close(redis);
	cluster_setup_await_sync(setup);
	ck_assert_int_eq(cluster_setup_failover(setup, master, how), master + CLUSTER_MASTERS);
	ck_assert_int_eq(cluster_setup_owner(setup, slot), master + CLUSTER_MASTERS);
	ck_assert(!cluster_setup_is_master(setup, master));
	ck_assert_str_eq(cluster_read(setup, "GET", key), "1");
}

TEST_LIMIT(replica_replaces_its_master_by_order, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();

	fail_over(setup, 0, "");
	fail_over(setup, 1, "TAKEOVER");
	fail_over(setup, 2, "FORCE");
}

TEST_LIMIT(replica_replaces_a_killed_master_which_returns_as_a_replica, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();

	cluster_setup_kill(setup, 1);
	ck_assert_int_eq(cluster_setup_await_promotion(setup, 1), 4);
	ck_assert_int_eq(cluster_setup_owner(setup, 8000), 4);
	cluster_setup_restart(setup, 1);
	cluster_setup_await_ok(setup);
	ck_assert(WITHIN(CLUSTER_SETTLED_MS, !cluster_setup_is_master(setup, 1)));
	cluster_setup_await_sync(setup);
	ck_assert_int_eq(cluster_setup_owner(setup, 8000), 4);
}

TEST_LIMIT(replica_replaces_a_paused_master_which_returns_as_a_replica, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();

	cluster_setup_pause(setup, 0);
	ck_assert_int_eq(cluster_setup_await_promotion(setup, 0), 3);
	cluster_setup_resume(setup, 0);
	ck_assert(WITHIN(CLUSTER_SETTLED_MS, !cluster_setup_is_master(setup, 0)));
	cluster_setup_await_ok(setup);
	ck_assert_int_eq(cluster_setup_owner(setup, 0), 3);
}

TEST_LIMIT(killed_replica_returns_as_it_was, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	struct redis *redis;

	cluster_setup_kill(setup, 5);
	cluster_setup_restart(setup, 5);
	redis = redis_open(&setup->nodes[5]);
	ck_assert_str_eq(redis_text(redis, "CLUSTER MYID"), setup->ids[5]);
	redis_close(redis);
	cluster_setup_await_ok(setup);
	cluster_setup_await_sync(setup);
	ck_assert(!cluster_setup_is_master(setup, 5));
}

/* ---- Between tests --------------------------------------------------------------------------- */

TEST_LIMIT(cluster_returns_to_its_first_layout_from_anything, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	struct cluster_view view;
	int slot = cluster_slot_of(setup, "{a}"), elsewhere = 0;

	write_key(setup, "{a}1", "1");
	cluster_slot_move(setup, slot, (cluster_setup_owner(setup, slot) + 1) % CLUSTER_MASTERS);
	cluster_slot_open(setup, 0, 2);
	cluster_setup_failover(setup, 1, "TAKEOVER");
	cluster_setup_kill(setup, 2);
	cluster_setup_pause(setup, 3);
	cluster_setup_reset(setup);
	for (int i = 0; i < CLUSTER_NODES; i++) {
		struct redis *redis = redis_open(&setup->nodes[i]);
		cluster_setup_view(setup, i, &view);
		for (int at = 0; at < CLUSTER_SLOTS; at++)
			elsewhere += view.owner[at] != at * CLUSTER_MASTERS / CLUSTER_SLOTS;
		ck_assert_int_eq(elsewhere, 0);
		ck_assert_int_eq(view.open_slot, -1);
		ck_assert(WITHIN(5000, redis_int(redis, "DBSIZE") == 0));
		redis_close(redis);
	}
}

TEST(requests_are_counted_where_they_run)
{
	struct cluster_setup *setup = cluster_setup_shared();
	int owner = cluster_slot_owner(setup, "{a}");

	for (int i = 0; i < CLUSTER_NODES; i++) {
		struct redis *redis = redis_open(&setup->nodes[i]);
		ck_assert(begins(redis_text(redis, "EVAL %s 1 {a}1", ONE_KEY),
		                 i == owner ? "0" : "-MOVED "));
		redis_close(redis);
	}
	for (int i = 0; i < CLUSTER_NODES; i++)
		ck_assert_int_eq(cluster_setup_requests(setup, i), i == owner);
}

/* As the row of stores that look() and the others serve. */
TEST_LIMIT(store_in_the_cluster_is_looked_at_as_one, 60)
{
	static const char *const keys[] = {"k0", "k1", "k2"}; /* at three masters */
	const struct test_store *store = &store_in_cluster;
	const char *url = store->start();
	struct redis *redis = store->look();

	ck_assert(begins(url, "redis+cluster://127.0.0.1:") && strstr(url, "?grace=0"));
	for (int i = 0; i < 3; i++)
		redis_do(redis, "SET %s 1", keys[i]);
	redis_do(redis, "SET lk:epoch:{a}:1 1");
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(redis_int(redis, "EXISTS %s", keys[i]), 1);
	ck_assert_int_eq(redis_size(redis), 3);
	ck_assert_int_eq(redis_calls(redis, "set"), 4);
	for (int i = 0; i < 3; i++)
		redis_do(redis, "EVAL %s 1 %s", ONE_KEY, keys[i]);
	ck_assert_int_eq(store->requests(), 3);
	ck_assert_int_eq(redis_script_calls(redis), 3);
	store->pause(true);
	store->pause(false);
	ck_assert_int_eq(redis_size(redis), 3);
	redis_do(redis, "FLUSHALL");
	ck_assert_int_eq(redis_size(redis), 0);
	redis_do(redis, "SET k1 1");
	store->restart();
	ck_assert_int_eq(redis_size(redis), 0);
	redis_do(redis, "SET k1 1");
	redis_close(redis);
}

TEST(command_is_run_at_each_node)
{
	struct cluster_setup *setup = cluster_setup_shared();

	cluster_setup_each(setup, "ACL SETUSER worker on >secret ~lk:* +get");
	for (int i = 0; i < CLUSTER_NODES; i++) {
		struct redis *redis = redis_open(&setup->nodes[i]);
		ck_assert_str_eq(redis_text(redis, "AUTH worker secret"), "OK");
		ck_assert(begins(redis_text(redis, "GET a"), "-NOPERM"));
		redis_close(redis);
	}
	cluster_setup_each(setup, "ACL DELUSER worker");
}

static int run_own(void *arg, int in, int out)
{
	static struct cluster_setup own;

	(void)arg;
	(void)in;
	cluster_setup_start(&own, &(struct cluster_setup_options){.node_timeout_ms = 5000});
	for (int i = 0; i < CLUSTER_NODES; i++)
		line_write(out, "%d", (int)own.nodes[i].pid);
	pause();
	return 0;
}

TEST_LIMIT(nodes_end_with_the_process_that_started_them, 60)
{
	struct process process;
	int pids[CLUSTER_NODES];

	process_start(&process, run_own, NULL);
	for (int i = 0; i < CLUSTER_NODES; i++) {
		const char *line = line_read(process.out, 30000);
		ck_assert_ptr_nonnull(line);
		ck_assert_int_eq(sscanf(line, "%d", &pids[i]), 1);
		ck_assert(!kill(pids[i], 0));
	}
	process_kill(&process);
	/* Another process may have to collect them. */
	for (int i = 0; i < CLUSTER_NODES; i++)
		ck_assert(WITHIN(5000, proc_state(pids[i]) == 0 || proc_state(pids[i]) == 'Z'));
}
