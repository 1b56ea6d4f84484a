/* SPDX-License-Identifier: MIT
 * lk_doctor() on a real Cluster: its nodes, slots, settings and users; and what it says where a
 * managed service refuses commands. */
#include "harness/cluster_setup.h"
#include "harness/cluster_slots.h"
#include "harness/handles.h"
#include "harness/redis.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

#define TEXT_SIZE 16384

static char text[TEXT_SIZE]; /* a line for each finding: "FITNESS topic: text [cure]" */
static lk_fitness worst;

CLUSTER_SETUP_SHARED(NULL)

static void keep(void *arg, const lk_finding *finding)
{
	size_t len = strlen(text);

	(void)arg;
	snprintf(text + len, TEXT_SIZE - len, "%d %s: %s [%s]\n", finding->fitness, finding->topic,
	         finding->text, finding->cure);
}

static void examine(const char *url, const char *query)
{
	char whole[300];

	snprintf(whole, sizeof(whole), "%s%s", url, query);
	text[0] = '\0';
	OK(lk_doctor(whole, NULL, keep, NULL, &worst));
}

/* Is there a line that begins so and has that part? */
static bool has(const char *begins, const char *part)
{
	for (char *at = text; *at; at += strcspn(at, "\n") + 1) {
		char line[2400];
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
		if (!strncmp(line, begins, strlen(begins)) && strstr(line, part))
			return true;
	}
	return false;
}

static void expect(const char *begins, const char *part)
{
	ck_assert_msg(has(begins, part), "no \"%s...%s\" in:\n%s", begins, part, text);
}

static void run(const struct cluster_setup *setup, int node, const char *command)
{
	struct redis *redis = redis_open(&setup->nodes[node]);

	redis_do(redis, command);
	redis_close(redis);
}

TEST_LIMIT(all_nodes_of_a_cluster_are_examined, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();

	examine(setup->url, "");
	expect("0 reachable: ", "a Cluster of 3 masters and 3 replicas");
	expect("0 version: ", "all 3 masters: ");
	expect("0 version: ", "all 3 replicas: ");
	expect("0 rights: ", "all 3 masters: this user may run every command");
	expect("0 rights: ", "all 3 replicas: this user may run every command");
	expect("0 topology: ", "3 masters have all slots");
	expect("0 topology: ", "1 replica: 127.0.0.1:");
	expect("0 failover: ", "replaced after about 3 s (cluster-node-timeout 1000)");
	expect("1 persistence: ", "all 3 masters: ");
	ck_assert_int_eq(worst, LK_FIT_WARN);
}

/* A plain URL of a node, and one of a replica. */
TEST_LIMIT(plain_url_of_a_node_examines_the_cluster, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();

	examine(setup->nodes[1].url, "");
	expect("0 reachable: ", "a Cluster of 3 masters and 3 replicas");
	expect("0 topology: ", "3 masters have all slots");
	examine(setup->nodes[4].url, "");
	expect("0 reachable: ", "a Cluster of 3 masters and 3 replicas");
}

TEST_LIMIT(slot_that_is_half_moved_is_named, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();

	cluster_slot_open(setup, 100, 1);
	examine(setup->url, "");
	expect("1 topology: ", "slot 100 is half moved (migrating)");
	expect("1 topology: ", "slot 100 is half moved (importing)");
	cluster_slot_undo(setup, 100, 1);
	examine(setup->url, "");
	ck_assert_msg(!strstr(text, "half moved"), "%s", text);
}

TEST_LIMIT(settings_are_judged, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();

	run(setup, 2, "CONFIG SET cluster-node-timeout 15000");
	cluster_setup_each(setup, "CONFIG SET cluster-require-full-coverage yes");
	examine(setup->url, "");
	expect("1 failover: ", "replaced after about 17 s (cluster-node-timeout 15000)");
	expect("1 failover: ", "cluster-require-full-coverage is yes");
	run(setup, 2, "CONFIG SET cluster-node-timeout 1000");
	cluster_setup_each(setup, "CONFIG SET cluster-require-full-coverage no");
	examine(setup->url, "");
	expect("0 failover: ", "replaced after about 3 s");
	ck_assert_msg(!strstr(text, "cluster-require-full-coverage"), "%s", text);
	examine(setup->url, "?grace=0");
	expect("2 failover: ", "no grace");
	run(setup, 0, "CONFIG SET min-replicas-to-write 2");
	examine(setup->url, "");
	run(setup, 0, "CONFIG SET min-replicas-to-write 0");
	expect("2 failover: ", "min-replicas-to-write is 2, but 1 replicas are in sync");
}

TEST_LIMIT(node_whose_user_lacks_a_right_is_named, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	char begins[60];

	run(setup, 1, "ACL SETUSER default -ssubscribe");
	run(setup, 5, "ACL SETUSER default -asking");
	examine(setup->url, "");
	run(setup, 1, "ACL SETUSER default +ssubscribe");
	run(setup, 5, "ACL SETUSER default +asking");
	snprintf(begins, sizeof(begins), "2 rights: 127.0.0.1:%d: ", setup->nodes[1].port);
	expect(begins, "+ssubscribe [ACL SETUSER default +ssubscribe]");
	snprintf(begins, sizeof(begins), "2 rights: 127.0.0.1:%d: ", setup->nodes[5].port);
	expect(begins, "+asking");
	ck_assert_int_eq(worst, LK_UNFIT);
}

TEST_LIMIT(right_to_the_topology_is_named, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();

	cluster_setup_each(setup, "ACL SETUSER default -cluster|slots");
	examine(setup->url, "");
	expect("2 rights: ", "+cluster|slots [ACL SETUSER default +cluster|slots, at each node]");
	ck_assert_msg(!strstr(text, "the server was not reached"), "%s", text);
	examine(setup->nodes[1].url, ""); /* INFO says what it is */
	expect("2 rights: ", "+cluster|slots [ACL SETUSER default +cluster|slots, at each node]");
	cluster_setup_each(setup, "ACL SETUSER default +@all");
	ck_assert_int_eq(worst, LK_UNFIT);
}

TEST_LIMIT(node_without_the_user_is_named, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	char url[200], address[60];

	for (int i = 0; i < CLUSTER_NODES; i++)
		if (i != 2)
			run(setup, i, "ACL SETUSER app on nopass ~* &* +@all");
	snprintf(url, sizeof(url), "redis+cluster://app:x@127.0.0.1:%d", setup->nodes[0].port);
	examine(url, "");
	for (int i = 0; i < CLUSTER_NODES; i++)
		run(setup, i, "ACL DELUSER app");
	snprintf(address, sizeof(address), "master 127.0.0.1:%d: ", setup->nodes[2].port);
	expect("2 rights: ", address);
	ck_assert_int_eq(worst, LK_UNFIT);
}

/* The rest is examined. */
TEST_LIMIT(commands_that_managed_services_refuse_are_not_needed, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	const char *less = "ACL SETUSER default -config -info -client -script -cluster|myid "
			   "-cluster|nodes -role";

	cluster_setup_each(setup, less);
	examine(setup->url, "");
	cluster_setup_each(setup, "ACL SETUSER default +@all");
	expect("0 reachable: ", "a Cluster of 3 masters and 3 replicas");
	expect("1 version: ", "cannot tell: grant +info");
	expect("1 topology: ", "cannot tell if a slot is half moved: grant +cluster|nodes");
	expect("1 failover: ", "cannot tell if leases outlast a failover");
	expect("1 rights: ", "locks can do without");
	ck_assert_int_eq(worst, LK_FIT_WARN);
}

TEST_LIMIT(node_without_eval_is_unfit, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();

	cluster_setup_each(setup, "ACL SETUSER default -eval");
	examine(setup->url, "");
	cluster_setup_each(setup, "ACL SETUSER default +@all");
	expect("2 rights: ", "all 3 masters: this user lacks rights that are needed: +eval");
}

TEST_LIMIT(dead_nodes_are_named, 90)
{
	struct cluster_setup *setup = cluster_setup_shared();
	char address[60];

	cluster_setup_kill(setup, 3);
	examine(setup->url, "");
	snprintf(address, sizeof(address), "127.0.0.1:%d", setup->nodes[3].port);
	ck_assert_msg(has("1 reachable: ", address) || has("1 topology: ", "no replica"), "%s",
	              text);
	ck_assert_int_eq(worst, LK_FIT_WARN);
	cluster_setup_restart(setup, 3);
	cluster_setup_await_ok(setup);
}

/* Nothing replaces a master without a replica, so no time is named. */
TEST_LIMIT(masters_without_replicas_are_named_once, 90)
{
	struct cluster_setup *setup = cluster_setup_shared();

	for (int node = CLUSTER_MASTERS; node < CLUSTER_NODES; node++)
		cluster_setup_kill(setup, node);
	for (int node = 0; node < CLUSTER_MASTERS; node++) {
		struct redis *redis = redis_open(&setup->nodes[node]);
		ck_assert(WITHIN(10000, redis_info(redis, "connected_slaves") == 0));
		redis_close(redis);
	}
	examine(setup->url, "");
	for (int node = CLUSTER_MASTERS; node < CLUSTER_NODES; node++)
		cluster_setup_restart(setup, node);
	cluster_setup_await_ok(setup);
	expect("1 topology: ", "all 3 masters: no replica: if it fails, nothing replaces it");
	ck_assert_msg(!strstr(text, "is replaced after"), "%s", text);
	expect("0 failover: ", "no master has a replica");
}

TEST_LIMIT(address_of_a_node_is_named_once, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	char address[60], replica[80];

	examine(setup->url, "");
	snprintf(address, sizeof(address), "127.0.0.1:%d: 1 replica: ", setup->nodes[0].port);
	snprintf(replica, sizeof(replica), "%s127.0.0.1:%d (", address, setup->nodes[3].port);
	expect("0 topology: ", replica);
}

/* Clients use the other port. */
TEST(bus_port_of_a_node_is_suspected)
{
	struct cluster_setup *setup = cluster_setup_shared();
	const int bus = setup->nodes[0].bus_port;
	char url[80], hint[100];

	ck_assert_int_gt(bus, 10000);
	snprintf(hint, sizeof(hint), "if it is the bus port of a node, write the other one (%d?)",
	         bus - 10000);
	for (int i = 0; i < 2; i++) {
		snprintf(url, sizeof(url), "%s://127.0.0.1:%d", i ? "redis" : "redis+cluster", bus);
		examine(url, "");
		expect("2 reachable: ", hint);
		expect("2 reachable: ", i ? "write rediss://" : "write rediss+cluster://");
	}
}

TEST(unreachable_cluster_is_unfit)
{
	examine("redis+cluster://127.0.0.1:1,127.0.0.1:2", "");
	expect("1 reachable: ", "127.0.0.1:1");
	expect("2 reachable: ", "127.0.0.1:2");
	expect("1 topology: ", "cannot tell: the server was not reached");
	ck_assert_int_eq(worst, LK_UNFIT);
}
