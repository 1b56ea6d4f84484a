/* SPDX-License-Identifier: MIT
 * lk_doctor() on a quorum of three servers. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/quorum_setup.h"
#include "harness/redis.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

#define CONNECT_MS 2000

static struct quorum_setup setup;
static struct test_server *const servers = setup.servers;
static char report[16384];

static void note(void *arg, const lk_finding *finding)
{
	static const char *const words[] = {"ok", "warning", "unfit"};
	size_t len = strlen(report);

	(void)arg;
	snprintf(report + len, sizeof(report) - len, "%s %s: %s\n", words[finding->fitness],
	         finding->topic, finding->text);
}

static lk_fitness examine(const char *url)
{
	const lk_client_options options = {.connect_timeout_ms = CONNECT_MS};
	lk_fitness worst;

	report[0] = '\0';
	OK(lk_doctor(url, &options, note, NULL, &worst));
	return worst;
}

static void expect(const char *text)
{
	ck_assert_msg(strstr(report, text) != NULL, "\"%s\" is not in:\n%s", text, report);
}

TEST_LIMIT(healthy_quorum_is_fit, 60)
{
	quorum_setup_begin(&setup, 5000);
	ck_assert_int_ne(examine(setup.url), LK_UNFIT);
	expect("ok reachable: a quorum of 3 servers, which all answer");
	expect("ok version: all 3 servers: ");
	expect(": 3 of 3 servers vote, 2 are needed; no lease is longer than 5.0 s");
	expect("ok quorum: the clocks of the servers are equal, within ");
	expect("ok persistence: all 3 servers: not needed");
	expect("ok replicas: all 3 servers: a master without replicas");
}

TEST_LIMIT(servers_that_are_down_or_young_do_not_vote, 60)
{
	struct redis *redis;
	lk_client *client;

	quorum_setup_begin(&setup, 0);
	server_restart(&servers[2]);
	ck_assert_int_eq(examine(setup.url), LK_FIT_WARN);
	expect(" has lost its memory, or is new: the next client marks it, not latchkey doctor");
	expect(": 2 of 3 servers vote, 2 are needed");
	client = client_at(setup.url);
	redis = redis_open(&servers[2]);
	ck_assert(WITHIN(10000, strchr(redis_marker(redis), '[')));
	OK(lk_client_close(client));
	examine(setup.url);
	expect(" has lost its memory: it votes again in ");
	server_kill(&servers[0]);
	ck_assert_int_eq(examine(setup.url), LK_UNFIT);
	expect("warning reachable: 127.0.0.1:");
	expect("unfit quorum: 1 of 3 servers vote, 2 are needed");
	server_kill(&servers[1]);
	ck_assert_int_eq(examine(setup.url), LK_UNFIT);
	expect("unfit reachable: 127.0.0.1:");
}

/* It has its marker from before, which counts for nothing. */
TEST_LIMIT(restarted_server_that_has_saved_all_does_not_vote, 60)
{
	const struct server_options options = {.appendonly = true};
	lk_client *client;
	char text[80];

	quorum_setup_start(&setup, &options);
	OK(lk_quorum_begin(setup.url, NULL, 0));
	examine(setup.url);
	expect(": 3 of 3 servers vote");
	server_restart(&servers[2]);
	ck_assert_int_eq(examine(setup.url), LK_FIT_WARN);
	snprintf(text, sizeof(text),
	         "warning quorum: 127.0.0.1:%d was restarted: ", servers[2].port);
	expect(text);
	expect(": 2 of 3 servers vote");
	client = client_at(setup.url);
	ck_assert(WITHIN(10000, (examine(setup.url), strstr(report, ": it votes again in "))));
	expect(": 2 of 3 servers vote");
	OK(lk_client_close(client));
}

TEST_LIMIT(replica_does_not_vote, 60)
{
	struct redis *redis;
	char text[80];

	quorum_setup_begin(&setup, 0);
	redis = redis_open(&servers[2]);
	snprintf(text, sizeof(text), "REPLICAOF 127.0.0.1 %d", servers[0].port);
	redis_do(redis, text);
	ck_assert_int_eq(examine(setup.url), LK_UNFIT);
	snprintf(text, sizeof(text), "unfit quorum: 127.0.0.1:%d is a replica: it does not vote",
	         servers[2].port);
	expect(text);
	expect(": 2 of 3 servers vote");
}

TEST_LIMIT(quorum_of_one_server_is_for_tests, 60)
{
	static struct test_server server;
	char url[64];

	server_start(&server, NULL);
	snprintf(url, sizeof(url), "redis+quorum://127.0.0.1:%d", server.port);
	OK(lk_quorum_begin(url, NULL, 0));
	ck_assert_int_eq(examine(url), LK_FIT_WARN);
	expect("warning quorum: one server, which is for tests");
	expect(": 1 of 1 servers vote");
}

TEST_LIMIT(servers_without_a_quorum_are_named, 60)
{
	quorum_setup_start(&setup, NULL);
	ck_assert_int_eq(examine(setup.url), LK_FIT_WARN);
	expect("warning quorum: no quorum yet");
}

TEST_LIMIT(quorum_without_all_servers_is_not_made, 60)
{
	quorum_setup_start(&setup, NULL);
	server_kill(&servers[1]);
	ck_assert_int_eq(examine(setup.url), LK_UNFIT);
	expect("unfit quorum: no quorum yet: the first client that reaches all 3 servers");
}

TEST_LIMIT(user_without_info_is_unfit, 60)
{
	char url[140];

	quorum_setup_begin(&setup, 0);
	for (int i = 0; i < QUORUM_SERVERS; i++)
		redis_do(redis_open(&servers[i]), "ACL SETUSER job on >word ~* &* +@all -info");
	snprintf(url, sizeof(url), "redis+quorum://job:word@%s",
	         setup.url + strlen("redis+quorum://"));
	ck_assert_int_eq(examine(url), LK_UNFIT);
	expect("unfit rights: all 3 servers: this user lacks rights that are needed: +info");
	expect(" refuses INFO, without which a restart with an older file is not noticed");
	expect("unfit quorum: 0 of 3 servers vote, 2 are needed");
}

/* Its messages have the channels of a single server. */
TEST_LIMIT(rights_of_each_member_are_those_of_a_single_server, 60)
{
	static const char *const rules[] = {"-publish", "-subscribe"};
	char url[200], command[120], text[120];

	quorum_setup_begin(&setup, 5000);
	snprintf(url, sizeof(url), "redis+quorum://app:pw@%s",
	         setup.url + strlen("redis+quorum://"));
	for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
		snprintf(command, sizeof(command),
		         "ACL SETUSER app reset on >pw ~lk:* &lk:* +@all %s", rules[i]);
		for (int j = 0; j < QUORUM_SERVERS; j++) {
			struct redis *redis = redis_open(&servers[j]);
			redis_do(redis, command);
			redis_close(redis);
		}
		ck_assert_int_eq(examine(url), LK_UNFIT);
		snprintf(text, sizeof(text),
		         "unfit rights: all 3 servers: this user lacks rights that are needed: +%s",
		         rules[i] + 1);
		expect(text);
	}
}

TEST_LIMIT(member_is_not_fit_as_a_single_server, 60)
{
	quorum_setup_begin(&setup, 0);
	ck_assert_int_eq(examine(servers[0].url), LK_UNFIT);
	expect("unfit quorum: a member of a quorum of 3 servers: a client of this server alone is "
	       "refused");
}

/* Each of them takes the whole connect timeout. */
TEST_LIMIT(servers_that_hang_are_waited_for_together, 60)
{
	int64_t began_ms;

	quorum_setup_begin(&setup, 0);
	for (int i = 0; i < QUORUM_SERVERS; i++)
		server_pause(&servers[i]);
	began_ms = now_ms();
	ck_assert_int_eq(examine(setup.url), LK_UNFIT);
	ck_assert_int_le(now_ms() - began_ms, 3 * CONNECT_MS - 500);
	expect("unfit quorum: no server was reached");
	for (int i = 0; i < QUORUM_SERVERS; i++)
		server_resume(&servers[i]);
}

/* The fourth server took the place of the third, as the list of another client has it. */
TEST_LIMIT(servers_with_one_place_are_unfit, 60)
{
	const lk_client_options options = {.connect_timeout_ms = 1000};
	static struct test_server fourth;
	char url[120];
	lk_client *client;

	quorum_setup_begin(&setup, 5000);
	server_start(&fourth, NULL);
	snprintf(url, sizeof(url), "redis+quorum://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d",
	         servers[0].port, fourth.port, servers[1].port);
	client = client_at(url);
	ck_assert(WITHIN(10000, strchr(redis_marker(redis_open(&fourth)), '[')));
	OK(lk_client_close(client));
	ck_assert_int_ne(examine(url), LK_UNFIT);
	snprintf(url, sizeof(url), "redis+quorum://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d",
	         fourth.port, servers[1].port, servers[2].port);
	ck_assert_int_eq(examine(url), LK_UNFIT);
	expect(": clients whose lists have only one of them can hold a lock at the same time");
	expect(": 2 of 3 servers vote");
	/* A client of that list refuses it as well: without the second, no majority votes. */
	server_kill(&servers[1]);
	EXPECT(lk_client_open(url, &options, &client), LK_EFOREIGN);
	ck_assert_msg(strstr(lk_errmsg(), "has the same place in the quorum as"), "%s",
	              lk_errmsg());
}

TEST_LIMIT(servers_that_do_not_fit_are_unfit, 60)
{
	static struct quorum_setup other;
	struct redis *redis;
	char url[120];

	quorum_setup_begin(&setup, 0);
	quorum_setup_begin(&other, 0);
	redis = redis_open(&servers[1]);
	redis_do(redis, "CONFIG SET maxmemory 100mb");
	redis_do(redis, "CONFIG SET maxmemory-policy allkeys-lru");
	snprintf(url, sizeof(url), "redis+quorum://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d",
	         servers[0].port, servers[1].port, other.servers[0].port);
	ck_assert_int_eq(examine(url), LK_UNFIT);
	expect(" belongs to another quorum (");
	expect(": a full server evicts locks");
	snprintf(url, sizeof(url), "redis+quorum://127.0.0.1:%d,localhost:%d,127.0.0.1:%d",
	         servers[0].port, servers[0].port, servers[2].port);
	ck_assert_int_eq(examine(url), LK_UNFIT);
	expect(" are the same server");
	snprintf(url, sizeof(url), "redis+quorum://127.0.0.1:%d", servers[0].port);
	ck_assert_int_eq(examine(url), LK_UNFIT);
	expect("unfit quorum: a quorum of 3 servers, but the URL has 1: no client can open it");
	ck_assert_msg(!strstr(report, "servers vote"), "%s", report);
}
